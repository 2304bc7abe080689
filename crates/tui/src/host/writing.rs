//! What helps to write a message: drafts, earlier messages, names to complete, and the user's editor.

use async_trait::async_trait;

use super::super::event_loop::Performer;
use super::words;
use crate::composer::paste::Draft;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::ids::ThreadId;

/// What is written and not sent, to be kept over the end of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepDraft {
    /// Counts them: an older one does not replace a newer one.
    pub number: u64,
    /// The conversation.
    pub thread: ThreadId,
    /// Nothing was said in it yet: the next new conversation in the folder takes it over.
    pub is_new: bool,
    /// The text.
    pub draft: Draft,
}

/// A skill that can be called by `/name`.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillRow {
    /// The name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Where it comes from.
    pub origin: String,
}

/// Something that can be named behind `@`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MentionRow {
    /// What is written behind the `@`.
    pub label: String,
    /// What it is, when the name does not say so.
    pub detail: String,
}

/// What helps to write.
#[async_trait]
pub trait WritingHost: Send + Sync {
    /// Keeps what is written and not sent; one with an empty text is forgotten.
    async fn keep_draft(&self, keep: KeepDraft);

    /// What was written in a conversation by a process that is gone, and not sent. For one in which nothing was said yet
    /// also what was written in another such one of the folder.
    async fn draft(&self, thread: &ThreadId, is_new: bool) -> Option<Draft>;

    /// What was said before in all folders, newest first.
    async fn history(&self) -> Result<Vec<String>, ForeignError>;

    /// Adds to the history.
    async fn remember(&self, prompt: &str);

    /// What fits what was typed behind `@`, best first: paths relative to the folder, and what else has a name.
    async fn complete_files(&self, query: &str) -> Vec<MentionRow>;

    /// Skills that can be called.
    fn skills(&self) -> Vec<SkillRow>;

    /// Opens a text in the person's editor and gives what it left. The terminal is the editor's meanwhile; dropping the
    /// future ends it.
    async fn edit(&self, text: &str, name: &str) -> Result<String, ForeignError>;
}

/// Something is wanted for what is being written.
#[derive(Clone, Debug, PartialEq)]
pub enum WritingCmd {
    /// Keep what is written and not sent; nothing is kept of an empty text.
    KeepDraft(KeepDraft),
    /// Ask for what was written in a conversation and not sent; whether nothing was said in it yet.
    Draft(ThreadId, bool),
    /// Ask for what was said before, in all conversations.
    History,
    /// Add to the history.
    Remember(String),
    /// Find paths.
    Files(u64, String),
    /// Ask for the list of skills.
    Skills,
}

/// Something has come for what is being written.
#[derive(Clone, Debug)]
pub enum WritingMsg {
    /// What was written in the conversation and not sent, before this process.
    Draft(ThreadId, Draft),
    /// What was said before, in all conversations, newest first.
    History(Result<Vec<String>, String>),
    /// What can be named, for the query of that number.
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
