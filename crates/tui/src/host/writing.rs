//! What helps to write a message: drafts, earlier messages, names to complete, and the user's editor.

use futures::future::BoxFuture;

use super::super::event_loop::Performer;
use super::{HostFuture, words};
use crate::composer::paste::Draft;
use aye_core::contract::ids::ThreadId;

/// A draft to store beyond the end of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepDraft {
    /// Counts them: an older one does not replace a newer one.
    pub number: u64,
    pub thread: ThreadId,
    /// Nothing was said in it yet: the next new conversation in the folder takes it over.
    pub is_new: bool,
    pub draft: Draft,
}

/// A skill that can be called by `/name`.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillRow {
    pub name: String,
    /// The purpose of the skill.
    pub description: String,
    /// The origin of the rule.
    pub origin: String,
}

/// An item that can be mentioned after `@`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MentionRow {
    /// The text after the `@`.
    pub label: String,
    /// A description, if the name does not suffice.
    pub detail: String,
}

/// What helps to write.
pub trait WritingHost: Send + Sync {
    /// Keeps what is written and not sent; one with an empty text is forgotten.
    fn keep_draft(&self, keep: KeepDraft) -> BoxFuture<'_, ()>;

    /// Returns the draft that a process that is gone left in a conversation. For a conversation without
    /// messages, this includes a draft from another such conversation of the folder.
    fn draft<'a>(&'a self, thread: &'a ThreadId, is_new: bool) -> BoxFuture<'a, Option<Draft>>;

    /// Returns the previous messages of all folders, newest first.
    fn history(&self) -> HostFuture<'_, Vec<String>>;

    /// Adds to the history.
    fn remember<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, ()>;

    /// Returns the completions for the text after `@`, best first: paths relative to the folder, and other
    /// items that have a name.
    fn complete_files<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<MentionRow>>;

    /// Skills that can be called.
    fn skills(&self) -> Vec<SkillRow>;

    /// Opens a text in the user's editor and returns the edited text. The editor has the terminal in the
    /// meantime; dropping the future ends the editor.
    fn edit<'a>(&'a self, text: &'a str, name: &'a str) -> HostFuture<'a, String>;
}

/// Something is wanted for what is being written.
#[derive(Clone, Debug, PartialEq)]
pub enum WritingCmd {
    /// Store a draft; an empty one is not stored.
    KeepDraft(KeepDraft),
    /// Ask for what was written in a conversation and not sent; whether nothing was said in it yet.
    Draft(ThreadId, bool),
    /// Ask for what was said before, in all conversations.
    History,
    /// Add to the history.
    Remember(String),
    Files(u64, String),
    /// Ask for the list of skills.
    Skills,
}

/// Something has come for what is being written.
#[derive(Clone, Debug)]
pub enum WritingMsg {
    /// A draft of the conversation from before this process.
    Draft(ThreadId, Draft),
    /// The previous messages of all conversations, newest first.
    History(Result<Vec<String>, String>),
    /// The items that can be mentioned, for the query of that number.
    Files(u64, Vec<MentionRow>),
    /// The list of skills.
    Skills(Vec<SkillRow>),
}

impl WritingCmd {
    pub(crate) fn perform(self, performer: &mut Performer) {
        let (host, send) = performer.both();
        match self {
            Self::KeepDraft(keep) => performer.spawn(async move { host.keep_draft(keep).await }),
            Self::Draft(thread, is_new) => performer.spawn(async move {
                if let Some(draft) = host.draft(&thread, is_new).await {
                    send.answer(WritingMsg::Draft(thread, draft));
                }
            }),
            Self::History => performer.spawn(async move {
                send.answer(WritingMsg::History(words(host.history().await)));
            }),
            Self::Remember(prompt) => performer.spawn(async move { host.remember(&prompt).await }),
            Self::Files(number, query) => performer.spawn(async move {
                send.answer(WritingMsg::Files(number, host.complete_files(&query).await));
            }),
            Self::Skills => send.answer(WritingMsg::Skills(host.skills())),
        }
    }
}
