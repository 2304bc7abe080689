//! The screen of a command that runs in a terminal, as it would be seen.

use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

use super::exec::TerminalSize;
use aye_core::contract::command::CommandTerminal;
use aye_core::contract::display::is_unsafe;

/// A terminal with a screen that is kept up to date while it is not displayed.
pub(super) struct ScreenTerminal {
    keys: mpsc::Sender<Vec<u8>>,
    size: TerminalSize,
    screen: Mutex<Screen>,
    /// Whether the command is running; a change of the screen is signalled here too.
    runs: watch::Sender<bool>,
}

struct Screen {
    parser: vt100::Parser,
    /// As it was drawn last.
    drawn: Option<vt100::Screen>,
    /// Something changed since.
    is_new: bool,
}

/// Says that the command ended when it is dropped.
pub(super) struct EndOfScreen(Arc<ScreenTerminal>);

impl Drop for EndOfScreen {
    fn drop(&mut self) {
        self.0.runs.send_replace(false);
    }
}

fn sides(columns: u16, rows: u16) -> (NonZeroU16, NonZeroU16) {
    let side = |length| NonZeroU16::new(length).unwrap_or(NonZeroU16::MIN);
    (side(rows), side(columns))
}

impl ScreenTerminal {
    pub(super) fn new(keys: mpsc::Sender<Vec<u8>>, size: TerminalSize, (columns, rows): (u16, u16)) -> Self {
        let (rows, columns) = sides(columns, rows);
        let screen = Screen { parser: vt100::Parser::new(rows, columns, 0), drawn: None, is_new: true };
        Self { keys, size, screen: Mutex::new(screen), runs: watch::Sender::new(true) }
    }

    /// Takes what the command printed.
    pub(super) fn print(&self, text: &str) {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.parser.process(text.as_bytes());
        screen.is_new = true;
        drop(screen);
        self.runs.send_modify(|_| {});
    }

    /// Returns a guard to keep as long as the command runs.
    pub(super) fn ends(self: &Arc<Self>) -> EndOfScreen {
        EndOfScreen(Arc::clone(self))
    }
}

#[async_trait]
impl CommandTerminal for ScreenTerminal {
    fn write(&self, keys: &[u8]) -> bool {
        self.keys.try_send(keys.to_vec()).is_ok()
    }

    fn resize(&self, columns: u16, rows: u16) {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, columns) = sides(columns, rows);
        screen.parser.screen_mut().set_size(rows, columns);
        screen.drawn = None;
        // A program that is gone has no use for it.
        let _ = self.size.set(columns.get(), rows.get());
    }

    fn draw(&self, whole: bool) -> String {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = screen.parser.screen().clone();
        let text = match screen.drawn.take().filter(|_| !whole) {
            Some(before) => now.state_diff(&before),
            None => now.state_formatted(),
        };
        screen.drawn = Some(now);
        screen.is_new = false;
        // Control characters are those of the sequences; a cell has none.
        text.chars().filter(|c| c.is_ascii() || !is_unsafe(*c)).collect()
    }

    async fn changed(&self) -> bool {
        let is_new = || self.screen.lock().unwrap_or_else(PoisonError::into_inner).is_new;
        // Its sender is this very value.
        let changed = self.runs.subscribe().wait_for(|runs| !*runs || is_new()).await.map(|runs| *runs);
        changed.unwrap_or(false)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_screen_is_drawn_without_the_commands_escape_sequences() {
        let terminal = super::super::exec::open_terminal(20, 5).expect("a terminal");
        let (keys, mut typed) = mpsc::channel(1);
        let screen = Arc::new(ScreenTerminal::new(keys, terminal.size, (20, 5)));
        let ends = screen.ends();
        // The clipboard, the title, a question to the terminal, another direction of writing.
        let hostile = "\u{1b}]52;c;aGk=\u{7}\u{1b}]0;title\u{7}\u{1b}[c\u{1b}[6n\u{1b}P+q544e\u{1b}\\";
        screen.print(&format!("{hostile}\u{1b}[31mred\u{1b}[0m\r\n\u{202e}left"));
        assert!(screen.changed().await);
        let drawn = screen.draw(true);
        assert!(drawn.contains("red") && drawn.contains("left"), "{drawn:?}");
        for piece in ["]52", "title", "aGk", "[c", "[6n", "P+q", "\u{202e}"] {
            assert!(!drawn.contains(piece), "{piece:?} in {drawn:?}");
        }
        screen.print("\u{1b}[1;1Hnew");
        let more = screen.draw(false);
        assert!(more.contains("new") && !more.contains("left"), "{more:?}");
        screen.resize(30, 6);
        assert!(screen.draw(false).contains("left"), "all of it after another size");
        assert!(screen.write(b"a") && !screen.write(b"b"), "nobody reads");
        assert_eq!(typed.recv().await.as_deref(), Some(&b"a"[..]));
        drop(ends);
        assert!(!screen.changed().await);
    }
}
