//! Rewind and other actions on whole conversations: requests to the host and their answers.

use std::collections::HashMap;
use std::path::PathBuf;

use futures::future::BoxFuture;

use super::event_loop::Performer;
use super::host::ExportFormat;
use super::msg::Msg;
use super::transcript::Moment;
use super::viewer::Document;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::record::ThreadSummary;
use aye_core::contract::snapshot::{ChangedFile, Changes, RewindTarget};

/// A place that a conversation can go back to, or be copied up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewindPoint {
    /// The number of messages that stay.
    pub keep: u64,
    /// Whether this is a message of the user, which is put back into the composer; otherwise a step of the
    /// model.
    pub is_message: bool,
    /// The message, or what the step did.
    pub text: String,
    /// When, in Unix milliseconds.
    pub at: u64,
}

/// The places of a conversation, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewindPoints {
    pub points: Vec<RewindPoint>,
    /// A description of the last rewind, if it can be undone.
    pub undo: Option<String>,
}

/// The effects of a rewind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewindPreview {
    /// The files that would be changed.
    pub files: Vec<ChangedFile>,
    /// Why files cannot go back, when they cannot.
    pub no_files: Option<String>,
    /// Whether the conversation would be rewound.
    pub moves: bool,
    /// Additional notes for the user.
    pub notes: Vec<String>,
}

/// The result of a rewind or fork.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewound {
    /// The conversation to continue in.
    pub thread: ThreadId,
    /// The user's message at that point.
    pub text: Option<String>,
    /// A description of what was done.
    pub words: String,
    /// The actions that failed.
    pub failed: Vec<String>,
}

/// A request about whole conversations. `keep: None` undoes the last rewind.
#[derive(Clone, Debug, PartialEq)]
pub enum RewindCmd {
    /// Ask for the places of a conversation: to go back to, or to copy up to.
    Points(ThreadId, PickPurpose),
    /// Ask what going back would do.
    Preview(ThreadId, Option<u64>),
    Go(ThreadId, Option<u64>, RewindTarget),
    /// Fork a conversation up to that point; `None` copies all of it.
    Fork(ThreadId, Option<u64>),
    /// Find what was said, in all conversations. The number comes back with the answer.
    Search(u64, String),
    Rename(ThreadId, String),
    /// Put a conversation before all others, or back among them.
    Pin(ThreadId, bool),
    Delete(ThreadId),
    /// Write a conversation to a file.
    Export(ThreadId, ExportFormat),
    /// Request the changes made in a conversation, in files whose path contains this text.
    Changes(ThreadId, String),
    /// Request the differences from the last commit, in files whose path contains this text.
    GitChanges(String),
    /// Put two conversations side by side.
    Compare(ThreadId, ThreadId),
}

/// The purpose of selecting a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickPurpose {
    /// To go back to.
    Back,
    /// To copy up to.
    Fork,
}

/// An answer to a [`RewindCmd`]. Errors are sentences for the user.
#[derive(Clone, Debug, PartialEq)]
pub enum RewindMsg {
    Points(PickPurpose, Result<RewindPoints, String>),
    /// The effects of a rewind.
    Preview(Option<u64>, Result<RewindPreview, String>),
    Went(Result<Rewound, String>),
    Forked(Result<Rewound, String>),
    /// Conversations in which it was said, with the words around it; whether that is all.
    Found(u64, Vec<(ThreadId, String)>, bool),
    /// Something about a conversation changed.
    Marked(Result<String, String>),
    /// A conversation is gone.
    Deleted(ThreadId, Result<(), String>),
    /// It was written there.
    Exported(Result<PathBuf, String>),
    /// The changes, and the same as a document for the viewer.
    Changes(Result<(Changes, Box<Document>), String>),
    /// Two conversations side by side, to be read in the viewer.
    Compared(Result<Box<Document>, String>),
}

/// Whole conversations, as the program keeps them.
pub trait RewindHost: Send + Sync {
    /// Does something with whole conversations.
    fn back(&self, cmd: RewindCmd) -> BoxFuture<'_, RewindMsg>;
}

impl RewindCmd {
    pub(crate) fn perform(self, performer: &mut Performer) {
        let (host, send) = performer.both();
        performer.spawn(async move { send.answer(Msg::Back(Box::new(host.back(self).await))) });
    }
}

/// The terminal's state for rewind and for the list of conversations.
#[derive(Clone, Debug, Default)]
pub struct RewindState {
    /// The place that was chosen; `Some(None)` is the last going back.
    #[expect(clippy::option_option, reason = "nothing, the undo row, or a point")]
    pub(super) chosen: Option<Option<u64>>,
    /// The effects of a rewind to the selected point.
    pub(super) preview: Option<RewindPreview>,
    /// The conversations of the list.
    pub(super) threads: Vec<ThreadSummary>,
    /// The one whose menu is open.
    pub(super) menu: Option<ThreadId>,
    /// The text around a search match, by conversation.
    pub(super) found: HashMap<String, String>,
    /// The number of the last search, and what was searched for.
    pub(super) searched: (u64, String),
    /// Esc was pressed with nothing written.
    pub(super) armed: Option<Moment>,
    /// The rewind or fork to report, and the text to put back into the composer, once the conversation is
    /// open.
    pub(super) after_open: Option<Rewound>,
}
