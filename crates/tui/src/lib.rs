//! The terminal front end.
//!
//! [`run`] is the entry point: it takes the terminal, sends requests through a [`host::Host`], reads events from a
//! channel, and restores the terminal. The model is [`app::App`], changed only by `App::update`; [`view`] renders it;
//! every effect is a [`msg::Cmd`] executed by the loop.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use aye_core::contract::ids::ThreadId;
use host::HostEvent;

pub mod app;
pub mod approval;
pub mod composer;
pub mod diff;
mod event_loop;
pub mod highlight;
pub mod host;
pub mod image_cache;
pub mod input;
pub mod keymap;
pub mod links;
pub mod markdown;
pub mod msg;
pub mod palette;
pub mod picker;
pub mod status;
mod tally;
pub mod terminal;
pub mod theme;
pub mod thread_actions;
pub mod transcript;
pub mod update;
pub mod view;
pub mod viewer;
pub mod wrap;

/// The start options of the terminal front end.
#[derive(Clone, Debug, Default)]
pub struct TuiOptions {
    /// The conversation to resume; a new one when `None`.
    pub thread: Option<ThreadId>,
    /// Whether to ask which conversation to resume, with a list.
    pub choose_thread: bool,
    /// Said as soon as the conversation is open.
    pub initial_prompt: Option<String>,
    /// Whether messages leave pending questions open and are queued after them.
    pub keep_waiting: bool,
    pub theme: theme::ThemeChoice,
    /// The background colour, if known before the terminal is queried.
    pub background: Option<theme::Background>,
    /// The abilities of the terminal besides showing text.
    pub abilities: terminal::Abilities,
    pub keymap: keymap::Keymap,
    /// Whether the terminal rewraps long rows when it gets narrower: see [`terminal::reflows`].
    pub reflow: bool,
    /// Whether text is edited with the keys of vi.
    pub vim: bool,
    /// Whether to start on the alternate screen instead of below the prompt.
    pub full: bool,
    /// Take the mouse on such a screen.
    pub mouse: bool,
    /// The way to copy text to the clipboard.
    pub clipboard: terminal::Clipboard,
    /// Whether a question sounds the bell while the terminal does not have the focus.
    pub rings: bool,
    /// In which form the terminal takes notifications.
    pub desktop: terminal::Desktop,
    /// The segments of the status line, if the user chose them.
    pub segments: Option<Vec<status::Segment>>,
    /// Whether a command writes the status line.
    pub status_command: bool,
    /// Whether the window's title shows the current activity.
    pub title: bool,
    /// Whether progress is shown beside the window title.
    pub progress: bool,
    /// Whether animations are off; only the seconds change.
    pub reduced_motion: bool,
    /// Lines one after another, nothing drawn again.
    pub screen_reader: bool,
    /// Whether images are drawn, not only named.
    pub images: bool,
    /// Whether this is the first start; the model that answers is shown then.
    pub first_start: bool,
    /// The links in text, where the terminal shows them.
    pub links: links::Links,
    /// Seconds that the clock on the wall is ahead of UTC.
    pub utc_offset: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Quit,
    /// The terminal went away.
    Hangup,
    /// SIGTERM asked for it.
    Terminated,
}

/// The result of the terminal front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// The conversation, for a note about how to resume it.
    pub thread: Option<ThreadId>,
    pub title: String,
    /// How long it was open, and what it cost, in words.
    pub spent: Vec<String>,
    /// The number of its pending questions.
    pub waiting: usize,
    pub cause: Cause,
}

/// Why the terminal could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// Standard input and output are not a terminal that we can use.
    #[error("cannot use the terminal")]
    NoTerminal(#[source] io::Error),
    /// The terminal took no more output.
    #[error("cannot write to the terminal")]
    Write(#[source] io::Error),
}

/// Runs the terminal front end until the user quits. The events of all conversations arrive through the
/// channel.
///
/// # Errors
/// [`TuiError`]; the terminal is restored in any case.
pub async fn run(
    options: TuiOptions,
    host: Arc<dyn host::Host>,
    events: UnboundedReceiver<HostEvent>,
) -> Result<ExitStatus, TuiError> {
    Box::pin(event_loop::run(options, host, events)).await
}
