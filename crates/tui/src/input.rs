//! User input: keys, pastes, focus, size changes, the end of the terminal.
//!
//! A dedicated thread reads and decodes standard input. The decoder of crossterm is not used (its key types are): it
//! spins when the terminal disappears, cannot be paused for an editor, leaves the rest of a large burst unread until
//! the next key, and hides an end-of-paste mark inside a paste. The thread sleeps in `poll` without a timeout; only
//! while an escape sequence is incomplete it waits a moment.

use std::io::{self, PipeWriter, Write as _};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossterm::event::{KeyEvent, MouseEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::sync::mpsc::UnboundedSender;

use super::theme::Background;

mod decode;
#[cfg(test)]
mod tests;

pub use decode::InputDecoder;

/// How long a lone escape may still become a sequence: more than the gaps of a slow line, where an arrow key would deny a
/// question otherwise, and less than a user waits for. Terminals with the protocol of kitty send Escape without this
/// doubt.
const ESCAPE_WAIT_MS: i64 = 160;
/// The most that is read before it is decoded, so that a paste is seen as a whole.
const BURST: usize = 1 << 20;
/// How soon the next piece of a long paste comes that the terminal does not mark.
const PASTE_GAP: Duration = Duration::from_millis(30);

/// Something that happened at the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TerminalEvent {
    /// A key was pressed or repeats.
    Key(KeyEvent),
    /// Text was pasted: line ends are `\n`, other control characters but tabs are gone.
    Paste(String),
    /// The mouse, when the terminal was asked for it.
    Mouse(MouseEvent),
    /// The new columns and rows of the terminal.
    Resize(u16, u16),
    /// The terminal window got or lost the focus.
    Focus(bool),
    /// The terminal reports its background colour.
    Background(Background),
    /// The terminal is gone; no event follows.
    Hangup,
}

/// The thread that reads the terminal, and the task that receives size changes. Both end when this is
/// dropped.
#[derive(Debug)]
pub struct Input {
    shared: Arc<InputState>,
    wake: PipeWriter,
    thread: Option<JoinHandle<()>>,
    resizes: Option<tokio::task::JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    Running,
    Paused,
    Stopped,
}

#[derive(Debug)]
struct InputState {
    /// The requested state, and the actual state of the thread.
    state: Mutex<(ReaderState, ReaderState)>,
    changed: Condvar,
}

impl InputState {
    fn lock(&self) -> MutexGuard<'_, (ReaderState, ReaderState)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Input {
    /// Reads standard input and follows the size of the terminal. Call it inside the tokio runtime, after raw
    /// mode.
    ///
    /// The channel is unbounded: it carries what a user types, and the reader must never wait for a front end
    /// that is just about to pause it.
    pub fn start(events: UnboundedSender<TerminalEvent>) -> io::Result<Input> {
        let mut signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change())?;
        let mut input = match aye_platform::input_to_poll()? {
            None => Input::over(rustix::stdio::stdin(), events.clone())?,
            Some(terminal) => Input::over(terminal, events.clone())?,
        };
        input.resizes = Some(tokio::spawn(async move {
            while signal.recv().await.is_some() {
                if let Some((width, height)) = super::terminal::size()
                    && events.send(TerminalEvent::Resize(width, height)).is_err()
                {
                    break;
                }
            }
        }));
        Ok(input)
    }

    /// Reads any descriptor in the same way, without the size.
    pub fn over(
        source: impl AsFd + Send + 'static,
        events: UnboundedSender<TerminalEvent>,
    ) -> io::Result<Input> {
        let (waked, wake) = io::pipe()?;
        let shared = Arc::new(InputState {
            state: Mutex::new((ReaderState::Running, ReaderState::Running)),
            changed: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("input".into()).stack_size(256 * 1024).spawn(move || {
            let mut reader =
                InputReader { source, waked, events, decoder: InputDecoder::default(), shared: &theirs };
            reader.run();
            theirs.lock().1 = ReaderState::Stopped;
            theirs.changed.notify_all();
        })?;
        Ok(Input { shared, wake, thread: Some(thread), resizes: None })
    }

    /// Stops reading; when it returns, not a byte more is taken. For an editor or a stop by Ctrl-Z.
    pub fn pause(&self) {
        self.ask(ReaderState::Paused);
    }

    pub fn resume(&self) {
        self.ask(ReaderState::Running);
    }

    fn ask(&self, wanted: ReaderState) {
        let mut state = self.shared.lock();
        if state.0 != ReaderState::Stopped {
            state.0 = wanted;
        }
        self.shared.changed.notify_all();
        // A full pipe wakes the thread just as well.
        let _ = (&self.wake).write_all(b"!");
        while state.1 != state.0 && state.1 != ReaderState::Stopped {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some(task) = self.resizes.take() {
            task.abort();
        }
        self.ask(ReaderState::Stopped);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct InputReader<'a, S> {
    source: S,
    waked: io::PipeReader,
    events: UnboundedSender<TerminalEvent>,
    decoder: InputDecoder,
    shared: &'a InputState,
}

impl<S: AsFd> InputReader<'_, S> {
    fn run(&mut self) {
        let mut bytes = Vec::with_capacity(4096);
        let mut found = Vec::new();
        // What was typed before anybody read it comes at once, too, and is no paste.
        let mut is_ahead = true;
        let mut pasted: Option<Instant> = None;
        loop {
            let wait = if is_ahead { 0 } else { ESCAPE_WAIT_MS };
            let timeout = (is_ahead || self.decoder.is_waiting())
                .then_some(Timespec { tv_sec: 0, tv_nsec: wait * 1_000_000 });
            let mut fds = [PollFd::new(&self.source, PollFlags::IN), PollFd::new(&self.waked, PollFlags::IN)];
            let ready = match poll(&mut fds, timeout.as_ref()) {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(_) => return self.hang_up(),
            };
            let (source, wake) = (fds[0].revents(), fds[1].revents());
            if !wake.is_empty() {
                let mut drained = [0; 64];
                let _ = rustix::io::read(&self.waked, &mut drained);
                if !self.apply_state() {
                    return;
                }
                is_ahead = true;
                continue;
            }
            let was_ahead = std::mem::take(&mut is_ahead);
            let gone = if source.contains(PollFlags::IN) {
                bytes.clear();
                let open = self.read_burst(&mut bytes);
                let follows_paste = pasted.is_some_and(|at| at.elapsed() < PASTE_GAP);
                if was_ahead {
                    self.decoder.feed(&bytes, &mut found);
                } else if self.decoder.feed_burst(&bytes, follows_paste, &mut found) {
                    pasted = Some(Instant::now());
                }
                bytes.shrink_to(64 * 1024);
                !open
            } else {
                if ready == 0 && !was_ahead {
                    self.decoder.flush(&mut found);
                }
                source.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
            };
            for event in found.drain(..) {
                if self.events.send(event).is_err() {
                    return;
                }
            }
            if gone {
                return self.hang_up();
            }
        }
    }

    fn hang_up(&self) {
        let _ = self.events.send(TerminalEvent::Hangup);
    }

    /// Reads all available bytes. Returns `false` if the other side is gone.
    fn read_burst(&self, bytes: &mut Vec<u8>) -> bool {
        let mut chunk = [0; 4096];
        loop {
            match rustix::io::read(&self.source, &mut chunk) {
                Ok(0) => return false,
                Ok(read) => bytes.extend_from_slice(&chunk[..read]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
            let mut fds = [PollFd::new(&self.source, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let more = poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0);
            if !more || !fds[0].revents().contains(PollFlags::IN) || bytes.len() >= BURST {
                return true;
            }
        }
    }

    /// Applies the requested state; waits while paused. Returns `false` at the end.
    fn apply_state(&self) -> bool {
        let mut state = self.shared.lock();
        loop {
            let wanted = state.0;
            if state.1 != wanted {
                state.1 = wanted;
                self.shared.changed.notify_all();
            }
            match wanted {
                ReaderState::Running => return true,
                ReaderState::Stopped => return false,
                ReaderState::Paused => {
                    state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
