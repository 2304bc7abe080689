//! The transcript as entries. Live events and stored messages are folded by the same code, so that a live
//! conversation and a reopened one look the same.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::composer::paste::Draft;
use super::host::TextPage;
use super::viewer::DocEntry;
use aye_core::contract::image::ImageRef;
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::lifecycle::StoppedReason;
use aye_core::contract::snapshot::Changes;
use aye_core::contract::summary::SummaryRecord;

mod fold;
mod run_activity;
mod stored;
mod sync;
mod tail;
#[cfg(test)]
mod tests;
pub mod todo;
pub mod tool;
mod trim;

pub use run_activity::RunActivity;
pub use tail::Tail;
pub use todo::{Todo, TodoState};
pub use tool::{ToolEntry, ToolProgress, ToolState};
pub use trim::StorePosition;

/// The first id of an entry: entries fetched from the store are placed before these, in the order of ids too.
const FIRST_ID: u64 = 1 << 40;
/// Lines of output that the report of a background task shows.
const REPORT_LINES: usize = 3;

/// A point in time: milliseconds since the terminal started. Time is data here; nothing reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Milliseconds since an earlier point, zero when it was not earlier.
    pub fn since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment `ms` milliseconds later.
    #[must_use]
    pub fn plus(self, ms: u64) -> Moment {
        Moment(self.0.saturating_add(ms))
    }
}

/// The severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Info,
    /// What a run did, at its end.
    Summary,
    Warning,
    Error,
}

/// The kind and content of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryKind {
    /// A message of the user.
    User {
        text: String,
        /// The text with a placeholder for each long paste, if there are any.
        shown: Option<String>,
        /// Pictures that came with them.
        images: Vec<ImageRef>,
    },
    /// The model said something, in markdown.
    Assistant {
        /// The words so far.
        text: String,
        /// Whether the user or an error cut the answer off.
        interrupted: bool,
    },
    /// The model's thinking before its answer.
    Thinking {
        /// The thoughts so far.
        text: String,
    },
    Tool(Box<ToolEntry>),
    /// The program says something.
    Notice {
        level: Level,
        /// The text of the notice.
        text: String,
    },
    Changes(Box<Changes>),
    /// A text that the user asked to read.
    Page(TextPage),
    /// An entry of a document; belongs to no conversation.
    Document(Box<DocEntry>),
}

/// One piece of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Unique in its transcript.
    pub id: u64,
    /// Changes whenever the entry does, so that pictures of it can be kept.
    pub version: u32,
    /// Whether the entry is final.
    pub is_done: bool,
    /// The kind and content of the entry.
    pub kind: EntryKind,
    /// When the entry started, if that was observed.
    pub began: Option<Moment>,
    /// How long the entry grew, in milliseconds.
    pub took: Option<u64>,
}

impl Entry {
    /// Returns the images of the entry: those of a user's message, or those a tool returned.
    pub fn images(&self) -> &[ImageRef] {
        match &self.kind {
            EntryKind::User { images, .. } => images,
            EntryKind::Tool(tool) => &tool.images,
            EntryKind::Assistant { .. }
            | EntryKind::Thinking { .. }
            | EntryKind::Notice { .. }
            | EntryKind::Changes(_)
            | EntryKind::Page(_)
            | EntryKind::Document(_) => &[],
        }
    }
}

/// An inference that is tried again.
#[derive(Clone, Debug, PartialEq)]
struct Retry {
    attempt: u64,
    max: u64,
    until: Moment,
    /// The model, when it is another one.
    model: Option<String>,
    reason: String,
}

/// The entries of one conversation, oldest first, and what they cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    entries: Vec<Entry>,
    next_id: u64,
    /// The index of the current step's first entry.
    step: usize,
    /// Entries before this one are all done.
    settled: usize,
    usage: TokenUsage,
    /// The same for each model that answered.
    spent: Vec<ModelUsage>,
    context: u64,
    /// An inference that is tried again.
    retry: Option<Retry>,
    /// The fallback model that answered instead of the requested one.
    stands_in: Option<String>,
    saw_error: bool,
    /// The last run was stopped by a limit.
    stopped: bool,
    /// The agent that another one handed the run to, and its model.
    handed_to: Option<(String, String)>,
    /// The sequence number that the last reported summary covers.
    summarised: u64,
    /// When the event came that is taken in.
    at: Option<Moment>,
    /// The model's current plan.
    todos: Vec<Todo>,
    /// The run that made the plan is over.
    is_plan_over: bool,
    /// The number of results with images.
    pictured: usize,
    /// Messages before this place are in the store only.
    before: u64,
    /// The number of entries temporarily fetched from the store.
    fetched: usize,
    /// The number of ids used for fetched entries.
    fetched_ids: u64,
    /// The positions in the store of entries that are loaded, oldest first.
    marks: VecDeque<trim::StoreMark>,
    /// The number of entries trimmed, and left to the store, since the conversation was opened.
    trimmed: usize,
}

impl Transcript {
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The place of the first message that is here, when there are older ones in the store.
    pub fn starts_at(&self) -> Option<u64> {
        Some(self.before).filter(|before| *before > 1)
    }

    /// Returns how many of the first entries were fetched from the store only for display.
    pub fn fetched(&self) -> usize {
        self.fetched
    }

    /// Returns how many entries from the start are final; those after them may still change or be removed.
    pub fn settled(&self) -> usize {
        self.settled
    }

    /// Returns the number of results with images since the conversation was opened.
    pub fn pictured(&self) -> usize {
        self.pictured
    }

    /// Tokens of all inferences so far.
    pub fn usage(&self) -> &TokenUsage {
        &self.usage
    }

    /// Tokens of all inferences so far, for each model that answered.
    pub fn spent(&self) -> &[ModelUsage] {
        &self.spent
    }

    /// Returns the tokens of the last inference's input and output: the start of the next inference's input.
    pub fn context_tokens(&self) -> u64 {
        self.context
    }

    /// Returns the message about a pending retry of an inference; the time left counts down in whole seconds.
    pub fn retry(&self, now: Moment) -> Option<String> {
        let Retry { attempt, max, until, model, reason } = self.retry.as_ref()?;
        let left = until.0.saturating_sub(now.0);
        let who = model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
        let when = if left == 0 { String::new() } else { format!(" in {} s", left.div_ceil(1000)) };
        Some(match attempt {
            // A paused model is waited for; nothing was sent that could be repeated.
            0 => format!("asking again{when}{who}: {reason}"),
            _ => format!("retry {attempt} of {max}{when}{who}: {reason}"),
        })
    }

    /// When an inference is tried again, while that is to come.
    pub fn retry_at(&self, now: Moment) -> Option<Moment> {
        self.retry.as_ref().map(|retry| retry.until).filter(|until| until.0 > now.0)
    }

    /// Returns whether a limit stopped the last run, so that there is more to do.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the user's messages, oldest first.
    pub fn sent_drafts(&self) -> Vec<Draft> {
        let sent_drafts = |entry: &Entry| match &entry.kind {
            EntryKind::User { text, shown, .. } => Some(Draft::sent(text, shown.as_deref())),
            _ => None,
        };
        let mut all: Vec<Draft> = self.entries.iter().filter_map(sent_drafts).collect();
        all.dedup();
        all
    }

    /// Adds a notice that a limit stopped the last run, and that the run can be continued.
    pub fn push_stopped_notice(&mut self, why: &StoppedReason) {
        let detail = why.detail.as_deref().unwrap_or(&why.code);
        self.note(Level::Warning, format!("stopped: {detail}; /continue keeps going with fresh limits"));
        self.stopped = true;
    }

    /// Returns the fallback model that answered last instead of the requested one.
    pub fn stands_in(&self) -> Option<&str> {
        self.stands_in.as_deref()
    }

    /// Returns the agent that the run was handed off to, and its model.
    pub fn handed_to(&self) -> Option<(&str, &str)> {
        self.handed_to.as_ref().map(|(agent, model)| (agent.as_str(), model.as_str()))
    }

    /// Another agent was chosen: no handoff counts any more.
    pub fn forget_handoff(&mut self) {
        self.handed_to = None;
    }

    /// Adds a message of the user.
    pub fn push_user_message(&mut self, text: impl Into<String>, images: Vec<ImageRef>) {
        self.push_user_message_as(text, None, images);
    }

    /// Adds a message of the user, and its display text if it contains long pastes.
    pub fn push_user_message_as(
        &mut self,
        text: impl Into<String>,
        shown: Option<String>,
        images: Vec<ImageRef>,
    ) {
        self.push(EntryKind::User { text: text.into(), shown, images }, true);
    }

    /// Adds a message of the user that is not accepted yet: it can still be removed.
    pub fn push_unaccepted_message(
        &mut self,
        text: impl Into<String>,
        shown: Option<String>,
        images: Vec<ImageRef>,
    ) {
        self.push(EntryKind::User { text: text.into(), shown, images }, false);
    }

    /// The id that the next entry gets.
    pub(crate) fn next_id(&self) -> u64 {
        FIRST_ID + self.next_id
    }

    /// Marks the user's unaccepted messages as accepted.
    pub fn accept_words(&mut self) {
        for index in self.settled..self.entries.len() {
            if matches!(self.entries[index].kind, EntryKind::User { .. }) {
                self.touch(index, |entry| entry.is_done = true);
            }
        }
    }

    /// Takes away what was said and not accepted.
    pub fn remove_unaccepted_message(&mut self) {
        self.take_words();
    }

    fn take_words(&mut self) -> Vec<EntryKind> {
        let from = self.settled;
        let mut taken = Vec::new();
        for index in (from..self.entries.len()).rev() {
            let entry = &self.entries[index];
            if matches!(entry.kind, EntryKind::User { .. }) && !entry.is_done {
                taken.insert(0, self.entries.remove(index).kind);
                self.step = self.step.min(self.entries.len());
            }
        }
        self.advance();
        taken
    }

    pub fn note(&mut self, level: Level, text: impl Into<String>) {
        self.push(EntryKind::Notice { level, text: text.into() }, true);
    }

    /// Adds the report of a background task's end: what ended how, and the last of its output.
    pub fn report(&mut self, text: &str) {
        let (head, output) = text.split_once("\n\n").unwrap_or((text, ""));
        let lines: Vec<&str> = output.lines().collect();
        let (folded, shown) = lines.split_at(lines.len().saturating_sub(REPORT_LINES));
        let mut notice = head.trim_start_matches('[').replacen(']', " ·", 1);
        if !folded.is_empty() {
            let _ = write!(notice, "\n… {} more lines", folded.len());
        }
        for line in shown {
            notice.push('\n');
            notice.push_str(line);
        }
        self.note(Level::Info, notice);
    }

    /// Says that a summary was made, unless that was said already. How full the window is then is known after the next
    /// request.
    fn note_summary(&mut self, upto_seq: u64, words: &str) {
        if upto_seq > self.summarised {
            self.summarised = upto_seq;
            self.context = 0;
            self.note(Level::Info, words);
        }
    }

    /// Says that summaries were made, the portions of one in one line.
    fn note_summaries<'s>(&mut self, summaries: impl IntoIterator<Item = &'s SummaryRecord>) {
        let new = summaries.into_iter().filter(|summary| summary.upto_seq > self.summarised);
        if let Some(all) = new.cloned().reduce(|earlier, next| next.after(&earlier)) {
            self.note_summary(all.upto_seq, &all.words());
        }
    }

    /// Adds something to read, as it is.
    pub fn page(&mut self, title: impl Into<String>, text: impl Into<String>) {
        self.add_page(TextPage {
            title: title.into(),
            text: text.into(),
            is_literal: true,
            ..TextPage::default()
        });
    }

    /// Adds something to read.
    pub fn add_page(&mut self, page: TextPage) {
        self.push(EntryKind::Page(page), true);
    }

    /// Adds what was changed in files.
    pub fn changes(&mut self, changes: Changes) {
        self.push(EntryKind::Changes(Box::new(changes)), true);
    }

    /// Adds an entry of a document.
    pub(crate) fn add_doc_entry(&mut self, doc_entry: DocEntry) {
        self.push(EntryKind::Document(Box::new(doc_entry)), true);
    }

    /// The call of that id, the newest when an id was used again.
    pub fn tool(&self, call_id: &str) -> Option<&ToolEntry> {
        self.entries.iter().rev().find_map(|entry| match &entry.kind {
            EntryKind::Tool(tool) if tool.call_id == call_id => Some(&**tool),
            _ => None,
        })
    }

    /// Calls that are being executed.
    pub fn running(&self) -> usize {
        self.tools().filter(|tool| tool.state == ToolState::Running).count()
    }

    /// Returns whether a call is not over yet: what follows it stays in the live region.
    pub fn has_open_calls(&self) -> bool {
        self.tools().any(|tool| !tool.is_over())
    }

    /// Returns whether a shell command may be running. Proposed calls count: no event reports the start of a
    /// call next to other calls.
    pub fn runs_command(&self) -> bool {
        let runs = |state| matches!(state, ToolState::Running | ToolState::Proposed);
        self.tools().any(|tool| tool.name == "Bash" && runs(tool.state))
    }

    /// All calls that may still change.
    fn tools(&self) -> impl Iterator<Item = &ToolEntry> {
        self.entries[self.settled..].iter().filter_map(|entry| match &entry.kind {
            EntryKind::Tool(tool) => Some(&**tool),
            _ => None,
        })
    }

    /// The last thing the model said.
    pub fn last_answer(&self) -> Option<&str> {
        self.entries.iter().rev().find_map(|entry| match &entry.kind {
            EntryKind::Assistant { text, .. } => Some(text.as_str()),
            _ => None,
        })
    }

    /// The address that was shown last, when nothing was said since.
    pub fn last_address(&self) -> Option<&str> {
        let spoken = |entry: &&Entry| !matches!(entry.kind, EntryKind::Notice { .. });
        match self.entries.iter().rev().find(spoken).map(|entry| &entry.kind) {
            Some(EntryKind::Page(page)) => super::links::sole_address(&page.text),
            Some(_) | None => None,
        }
    }

    /// Returns whether the conversation has no messages yet. Notices and pages of the program itself, for
    /// example at the first start, do not count.
    pub fn is_empty(&self) -> bool {
        let is_own = |entry: &Entry| matches!(entry.kind, EntryKind::Notice { .. } | EntryKind::Page(_));
        self.trimmed == 0 && self.before <= 1 && self.entries.iter().all(is_own)
    }

    fn push(&mut self, kind: EntryKind, is_done: bool) {
        let (id, began) = (self.next_id(), self.at);
        self.entries.push(Entry { id, version: 0, is_done, kind, began, took: None });
        self.next_id += 1;
        self.advance();
    }

    fn advance(&mut self) {
        while self.entries.get(self.settled).is_some_and(|entry| entry.is_done) {
            self.settled += 1;
        }
    }

    /// Changes an entry and its version.
    fn touch(&mut self, index: usize, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(index) {
            change(entry);
            entry.version = entry.version.wrapping_add(1);
        }
        self.advance();
    }

    fn tool_index(&self, call_id: &str) -> Option<usize> {
        self.entries.iter().rposition(|entry| match &entry.kind {
            EntryKind::Tool(tool) => tool.call_id == call_id,
            _ => false,
        })
    }

    fn change_tool(&mut self, call_id: &str, change: impl FnOnce(&mut ToolEntry)) {
        let Some(index) = self.tool_index(call_id) else { return };
        self.touch(index, |entry| {
            if let EntryKind::Tool(tool) = &mut entry.kind {
                change(tool);
                entry.is_done = tool.state.is_final();
            }
        });
    }
}
