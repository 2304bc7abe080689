//! Sets the terminal's modes and restores them on every way out.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::stdio;
use rustix::termios::{self, OptionalActions, Termios};

use super::abilities::Multiplexer;

/// Bracketed paste, focus events, no autowrap (a row that the terminal thinks longer than we do must not make a
/// second one), kitty keys without asking whether the terminal has them: one that has not ignores this.
const ENTER: &[u8] = b"\x1b[?2004h\x1b[?1004h\x1b[?7l\x1b[>1u";
/// Undoes the above, and whatever an interrupted frame may have left.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[<1u\x1b[?7h\x1b[?1004l\x1b[?2004l\x1b[0m\x1b[?25h";

#[derive(Debug)]
struct GuardState {
    original: Termios,
    /// The terminal is raw.
    active: AtomicBool,
    /// The screen modes are set.
    modes: AtomicBool,
    below: Arc<AtomicU16>,
    /// It obeys escape sequences.
    obeys: bool,
    /// The other screen is shown.
    other: Arc<AtomicBool>,
    /// Additional bytes to write when the terminal is restored.
    also: Mutex<Vec<u8>>,
    /// Entering and leaving are several steps; two threads must not mix them.
    turn: Mutex<()>,
}

/// Raw mode and the screen modes, from [`TerminalGuard::enter`] until the guard is dropped.
///
/// A panic that nothing catches drops it too, before the panic's message is printed. One that is caught must not touch
/// the terminal, so no panic hook gives it back: the program installs one that prints nothing.
#[derive(Debug)]
pub struct TerminalGuard {
    restore: Restore,
}

/// Gives the terminal back, from any thread and as often as one likes; the first call does the work. For signal
/// tasks.
#[derive(Clone, Debug)]
pub struct Restore(Arc<GuardState>);

impl GuardState {
    /// Undoes the screen modes, with the cursor below the live region. Errors are of no use to anybody here.
    fn leave_screen(&self) {
        if !self.modes.swap(false, Ordering::SeqCst) {
            return;
        }
        let mut bytes = Vec::new();
        if self.other.swap(false, Ordering::SeqCst) {
            bytes.extend_from_slice(super::full::MOUSE_OFF);
            bytes.extend_from_slice(super::full::LEAVE);
        }
        if self.obeys {
            bytes.extend_from_slice(LEAVE);
        }
        bytes.extend_from_slice(&self.also.lock().unwrap_or_else(PoisonError::into_inner));
        for _ in 0..self.below.swap(0, Ordering::Relaxed) {
            bytes.extend_from_slice(b"\r\n");
        }
        let _ = TtyOut.write_all(&bytes);
    }
}

impl TerminalGuard {
    /// Takes the terminal on standard input and output. One that does not obey escape sequences gets none.
    pub fn enter(obeys: bool) -> io::Result<TerminalGuard> {
        let original = termios::tcgetattr(stdio::stdin())?;
        let guard = TerminalGuard {
            restore: Restore(Arc::new(GuardState {
                original,
                active: AtomicBool::new(false),
                modes: AtomicBool::new(false),
                obeys,
                below: Arc::default(),
                other: Arc::default(),
                also: Mutex::default(),
                turn: Mutex::new(()),
            })),
        };
        guard.resume()?;
        Ok(guard)
    }

    /// The handle that gives the terminal back.
    pub fn restore(&self) -> Restore {
        self.restore.clone()
    }

    /// Gives the terminal back for a while: an editor, a stop by Ctrl-Z. Finish the live region first.
    pub fn pause(&self) {
        self.restore.now();
    }

    /// Gives only the screen away and leaves the terminal raw, to a user that wants it raw too. What is typed
    /// while the screen changes hands is neither echoed nor changed by the terminal.
    pub fn pause_screen(&self) {
        let shared = &self.restore.0;
        let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.active.load(Ordering::SeqCst) {
            shared.leave_screen();
        }
    }

    /// Takes the terminal again after [`TerminalGuard::pause`] or [`TerminalGuard::pause_screen`].
    pub fn resume(&self) -> io::Result<()> {
        let shared = &self.restore.0;
        let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.active.load(Ordering::SeqCst) {
            let mut raw = shared.original.clone();
            raw.make_raw();
            termios::tcsetattr(stdio::stdin(), OptionalActions::Now, &raw)?;
            shared.active.store(true, Ordering::SeqCst);
        }
        if shared.modes.swap(true, Ordering::SeqCst) || !shared.obeys {
            return Ok(());
        }
        TtyOut.write_all(ENTER)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        self.restore.now();
    }
}

impl Restore {
    /// Gives the terminal back now, with the cursor below the live region. Errors are of no use to anybody here.
    pub fn now(&self) {
        let shared = &self.0;
        let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.active.swap(false, Ordering::SeqCst) {
            return;
        }
        shared.leave_screen();
        let _ = termios::tcsetattr(stdio::stdin(), OptionalActions::Now, &shared.original);
    }

    /// Also writes these bytes when the terminal is restored.
    pub fn also(&self, bytes: &[u8]) {
        self.0.also.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
    }

    pub(super) fn below(&self) -> Arc<AtomicU16> {
        Arc::clone(&self.0.below)
    }

    /// Says whether the other screen is shown.
    pub fn other_screen(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.other)
    }
}

/// Unbuffered standard output: what is passed in one piece is written in one piece, even while another thread
/// holds the lock of `std::io::stdout`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TtyOut;

impl Write for TtyOut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(stdio::stdout(), bytes) {
                Ok(written) => return Ok(written),
                Err(Errno::INTR) => {}
                // Some other program left the terminal non-blocking: wait until it takes more.
                Err(Errno::AGAIN) => {
                    let stdout = stdio::stdout();
                    let _ = rustix::event::poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Columns and rows of the terminal on standard output. One system call; it asks the terminal nothing.
pub fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(stdio::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Stops this process group as Ctrl-Z does, and returns when it is continued. Pause the guard and the input first.
pub fn stop_process() -> io::Result<()> {
    Ok(rustix::process::kill_current_process_group(Signal::TSTP)?)
}

/// Returns how long the terminal may have a new size before it reports that size. tmux moves its rows at
/// once, but reports a change up to a quarter of a second later.
pub fn resize_report_delay(multiplexer: Option<Multiplexer>) -> Duration {
    match multiplexer {
        Some(Multiplexer::Tmux) => Duration::from_millis(275),
        Some(Multiplexer::Screen | Multiplexer::Zellij) | None => Duration::ZERO,
    }
}

/// Returns whether the terminal reflows long rows when it gets narrower, inferred from its environment. Most
/// terminals do; a wrong yes would cost finished lines at a resize, so the known exceptions and unknown old
/// names count as no.
pub fn reflows(env: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
    if set("TMUX")
        || set("VTE_VERSION")
        || set("WT_SESSION")
        || set("KITTY_WINDOW_ID")
        || set("KONSOLE_VERSION")
    {
        return true;
    }
    if set("XTERM_VERSION") || set("STY") {
        return false;
    }
    if set("TERM_PROGRAM") {
        return true;
    }
    let term = env("TERM").unwrap_or_default();
    [
        "alacritty",
        "foot",
        "kitty",
        "wezterm",
        "xterm-kitty",
        "xterm-ghostty",
        "contour",
        "konsole",
        "vte",
        "tmux",
    ]
    .iter()
    .any(|name| term.starts_with(name))
}
