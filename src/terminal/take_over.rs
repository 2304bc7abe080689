//! The user at the terminal of a background command: the whole screen is the command's until Ctrl-].

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use crate::contract::command::CommandTerminal;
use crate::contract::display::visible_line;
use crate::failure::AppError;

/// Ctrl-].
const RETURN: u8 = 0x1d;

/// The time between two frames.
const PICTURE: Duration = Duration::from_millis(20);

/// The alternate screen, empty.
const ENTER: &str = "\x1b[?1049h\x1b[2J\x1b[H";

/// Turns off every mode that a screen may have set, and leaves the alternate screen.
const LEAVE: &str = "\x1b[?1l\x1b>\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l";

/// The user's terminal, as it was before when this is dropped.
struct SavedTerminal {
    terminal: File,
    before: Termios,
}

impl SavedTerminal {
    fn new() -> std::io::Result<Self> {
        // A separate open file description: the flag for reading must not affect the shell.
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK;
        let terminal = aye_platform::own_terminal(flags)?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before })
    }

    fn size(&self) -> (u16, u16) {
        let Winsize { ws_col, ws_row, .. } = tcgetwinsize(&self.terminal).unwrap_or(Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        });
        (ws_col.max(1), ws_row.max(2))
    }
}

impl Drop for SavedTerminal {
    fn drop(&mut self) {
        let mut out = std::io::stdout();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Shows the screen of a command and types what the user types, until Ctrl-] or the end of the command.
pub(crate) async fn take_over(command: &dyn CommandTerminal, id: &str) -> Result<(), AppError> {
    let fail = |error: std::io::Error| format!("the terminal cannot be taken over: {error}");
    let borrowed = SavedTerminal::new().map_err(fail)?;
    let keys = borrowed.terminal.try_clone().map_err(fail)?;
    let mut keys = pipe::Receiver::from_file_unchecked(keys).map_err(fail)?;
    let mut resized = signal(SignalKind::window_change()).map_err(fail)?;
    write(ENTER).map_err(fail)?;
    let mut typed = [0; 1024];
    let (columns, rows) = borrowed.size();
    command.resize(columns, rows - 1);
    draw(command, true, (columns, rows), id).map_err(fail)?;
    loop {
        tokio::select! {
            read = keys.read(&mut typed) => {
                let keys = match read {
                    Ok(0) | Err(_) => return Ok(()),
                    Ok(read) => &typed[..read],
                };
                let end = keys.iter().position(|key| *key == RETURN);
                let keys = &keys[..end.unwrap_or(keys.len())];
                if !keys.is_empty() && !command.write(keys) {
                    // The command does not read: the input is lost, and the user sees no echo.
                    write("\x07").map_err(fail)?;
                }
                if end.is_some() {
                    return Ok(());
                }
            }
            _ = resized.recv() => {
                let (columns, rows) = borrowed.size();
                command.resize(columns, rows - 1);
                draw(command, true, (columns, rows), id).map_err(fail)?;
            }
            runs = command.changed() => {
                if !runs {
                    return Ok(());
                }
                draw(command, false, borrowed.size(), id).map_err(fail)?;
                tokio::time::sleep(PICTURE).await;
            }
        }
    }
}

fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The command's screen, and a line below it that says how to return.
fn draw(
    command: &dyn CommandTerminal,
    whole: bool,
    (columns, rows): (u16, u16),
    id: &str,
) -> std::io::Result<()> {
    let screen = command.draw(whole);
    let line: String =
        format!(" {} · Ctrl-] returns to aye", visible_line(id)).chars().take(usize::from(columns)).collect();
    // Clearing by the command may reach this line, so it is drawn after the screen.
    let line = format!("\x1b7\x1b[{rows};1H\x1b[7m{line}\x1b[K\x1b[0m\x1b8");
    write(&format!("\x1b[?2026h{screen}{line}\x1b[?2026l"))
}
