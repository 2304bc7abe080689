//! Rewind and other actions on whole conversations: requests to the host and their answers.

use std::collections::HashMap;
use std::path::PathBuf;

use async_trait::async_trait;

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
    /// How many messages stay.
    pub keep: u64,
    /// Whether it is a message of the person, which comes back into the text; else a step of the model.
    pub is_message: bool,
    /// The message, or what the step did.
    pub text: String,
    /// When, in Unix milliseconds.
    pub at: u64,
}

/// The places of a conversation, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewindPoints {
    /// Them.
    pub points: Vec<RewindPoint>,
    /// What the last going back did, when it can be taken back.
    pub undo: Option<String>,
}

/// What going back would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewindPreview {
    /// The files that would be changed.
    pub files: Vec<ChangedFile>,
    /// Why files cannot go back, when they cannot.
    pub no_files: Option<String>,
    /// Whether the conversation would move.
    pub moves: bool,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// What going back did.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewound {
    /// The conversation to go on with.
    pub thread: ThreadId,
    /// What was said at that place.
    pub text: Option<String>,
    /// What was done, in words.
    pub words: String,
    /// What did not work.
    pub failed: Vec<String>,
}

/// Something is to be done with whole conversations. `keep: None` is the last going back, taken back.
#[derive(Clone, Debug, PartialEq)]
pub enum RewindCmd {
    /// Ask for the places of a conversation: to go back to, or to copy up to.
    Points(ThreadId, Chooses),
    /// Ask what going back would do.
    Preview(ThreadId, Option<u64>),
    /// Go back.
    Go(ThreadId, Option<u64>, RewindTarget),
    /// Make a new conversation of the beginning of one, up to there; `None` is all of it.
    Fork(ThreadId, Option<u64>),
    /// Find what was said, in all conversations. The number comes back with the answer.
    Search(u64, String),
    /// Name a conversation.
    Rename(ThreadId, String),
    /// Put a conversation before all others, or back among them.
    Pin(ThreadId, bool),
    /// Delete a conversation.
    Delete(ThreadId),
    /// Write a conversation to a file.
    Export(ThreadId, ExportFormat),
    /// Ask what was changed in a conversation, in files whose path holds this.
    Changes(ThreadId, String),
    /// Ask what differs from the last commit, in files whose path holds this.
    GitChanges(String),
    /// Put two conversations side by side.
    Compare(ThreadId, ThreadId),
}

/// What a place is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chooses {
    /// To go back to.
    Back,
    /// To copy up to.
    Fork,
}

/// An answer to a [`RewindCmd`]. Errors are sentences for the person.
#[derive(Clone, Debug, PartialEq)]
pub enum RewindMsg {
    /// The places.
    Points(Chooses, Result<RewindPoints, String>),
    /// What going back would do.
    Preview(Option<u64>, Result<RewindPreview, String>),
    /// It is done.
    Went(Result<Rewound, String>),
    /// The new conversation.
    Forked(Result<Rewound, String>),
    /// Conversations in which it was said, with the words around it; whether that is all.
    Found(u64, Vec<(ThreadId, String)>, bool),
    /// Something about a conversation changed.
    Marked(Result<String, String>),
    /// A conversation is gone.
    Deleted(ThreadId, Result<(), String>),
    /// It was written there.
    Exported(Result<PathBuf, String>),
    /// What was changed, and the same to be read in the viewer.
    Changes(Result<(Changes, Box<Document>), String>),
    /// Two conversations side by side, to be read in the viewer.
    Compared(Result<Box<Document>, String>),
}

/// Whole conversations, as the program keeps them.
#[async_trait]
pub trait RewindHost: Send + Sync {
    /// Does something with whole conversations.
    async fn back(&self, cmd: RewindCmd) -> RewindMsg;
}

impl RewindCmd {
    pub(crate) fn perform(self, performer: &mut Performer) {
        let (host, send) = performer.both();
        performer.spawn(async move { send.answer(Msg::Back(Box::new(host.back(self).await))) });
    }
}

/// What the terminal knows of going back and of conversations while it is looked at.
#[derive(Clone, Debug, Default)]
pub struct RewindState {
    /// The place that was chosen; `Some(None)` is the last going back.
    #[expect(clippy::option_option, reason = "nothing is chosen, or the last going back, or a place")]
    pub(super) chosen: Option<Option<u64>>,
    /// What going back to it would do.
    pub(super) preview: Option<RewindPreview>,
    /// The conversations of the list.
    pub(super) threads: Vec<ThreadSummary>,
    /// The one whose menu is open.
    pub(super) menu: Option<ThreadId>,
    /// Where what was typed was said, by conversation, and whether all were looked at.
    pub(super) found: HashMap<String, String>,
    /// The number of the last search, and what was searched for.
    pub(super) searched: (u64, String),
    /// Esc was pressed with nothing written.
    pub(super) armed: Option<Moment>,
    /// What is said, and comes back into the text, when the conversation is open.
    pub(super) after_open: Option<Rewound>,
}
