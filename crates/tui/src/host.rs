//! The terminal's interface to the program behind it, by parts. Each part has the requests that the program serves, and
//! the commands and messages of the terminal that go with them. It names no runtime, no store and no model.

use super::thread_actions::RewindHost;
pub use aye_core::contract::mode::Mode;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::ids::ThreadId;
use futures::future::BoxFuture;

mod images;
mod models;
mod program;
mod questions;
mod threads;
mod writing;

pub use images::{Attach, Attached, ImageCmd, ImageHost, ImageMsg};
pub use models::{ModelCmd, ModelHost, ModelMsg, ModelRow, Price, Secret};
pub use program::{
    ChangedTools, Choice, HostInfo, ModelPrices, ProgramCmd, ProgramHost, ProgramMsg, ProjectServer, Renewal,
    StartChoice, TextPage, UntrustedRow,
};
pub use questions::{GrantRow, OpenedQuestion, QuestionCmd, QuestionHost, QuestionMsg, Review, RuleRow};
pub use threads::{
    Earlier, ExportFormat, LastThread, OpenedThread, QueuedRow, Shell, ThreadCmd, ThreadHost, ThreadMsg,
    ThreadOwner, ThreadSync, UserInput,
};
pub use writing::{KeepDraft, MentionRow, SkillRow, WritingCmd, WritingHost, WritingMsg};

/// The host's answer, when it is ready. The error is a sentence for the user.
///
/// The parts of the host return it themselves. With `async_trait`, each method would add bounds of its own, under which
/// the compiler proves anew that all of the program can be sent to another thread.
pub type HostFuture<'a, T> = BoxFuture<'a, Result<T, ForeignError>>;

/// The program behind the terminal: all parts of it.
pub trait Host:
    ThreadHost + QuestionHost + ModelHost + ImageHost + WritingHost + ProgramHost + RewindHost + 'static
{
}

impl<T> Host for T where
    T: ThreadHost + QuestionHost + ModelHost + ImageHost + WritingHost + ProgramHost + RewindHost + 'static
{
}

/// An event that the terminal did not request.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEvent {
    /// An event of a run in this process.
    Agent(ThreadId, AgentEvent),
    /// Something may wait, or wait no more, in some conversation.
    InboxChanged,
    /// A note for the user that stays on the screen.
    Note(String),
    /// Other processes did something in the conversation that is shown.
    Synced(Box<ThreadSync>),
    /// A queued message starts a run in this process.
    Began(ThreadId, QueuedRow),
    /// A message could not start a run, because another process had just become active: it is queued instead.
    Deferred(ThreadId, QueuedRow, UserInput),
    /// Another process took the conversation over from this one: what is shown may not be what is stored.
    Lost(ThreadId),
    /// The skills that can be called by name have changed to these.
    Skills(Vec<SkillRow>),
    /// Servers listed their models.
    Models(Vec<ModelRow>),
    /// The last conversation of this folder.
    LastHere(LastThread),
    /// This machine does not have a layer of the sandbox: which one, in few words.
    Unsandboxed(String),
    /// Something besides a conversation failed; a sentence for the user.
    Warned(String),
    /// The servers whose tools are not those that the user trusted.
    ToolsChanged(Vec<ChangedTools>),
}

/// What the program says when it could not do something.
fn words<T>(result: Result<T, ForeignError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
