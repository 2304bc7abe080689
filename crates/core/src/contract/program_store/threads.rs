//! Conversations as lists and front ends show them.

use std::path::Path;

use async_trait::async_trait;

use super::rows::RowFeed;
use crate::contract::child::TaskRecord;
use crate::contract::command::CommandRecord;
use crate::contract::ids::ThreadId;
use crate::contract::record::{
    LeaseRecord, NamedBy, OpenIntent, QueuedMessage, RunRecord, StoredMessage, SuspensionRecord,
    ThreadRecord, ThreadSummary,
};
use crate::contract::storage::StoreError;
use crate::contract::summary::SummaryRecord;

/// The result of looking up a thread by an id prefix.
#[derive(Clone, Debug, PartialEq)]
pub enum ThreadLookup {
    One(ThreadRecord),
    None,
    /// Several, newest first, at most 20.
    Many(Vec<ThreadRecord>),
}

/// A conversation that contains a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    pub thread: ThreadRecord,
    /// The text at its first match, with the text around it.
    pub around: String,
}

/// A thread read in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadView {
    pub thread: ThreadRecord,
    /// The lease, with its owner, alive or not, and its end.
    pub lease: Option<LeaseRecord>,
    /// The messages after the requested position.
    pub messages: Vec<StoredMessage>,
    /// The total number of messages.
    pub total: u64,
    /// The latest run.
    pub run: Option<RunRecord>,
    /// The questions that wait for a user, oldest first, including those of the children.
    pub waiting: Vec<SuspensionRecord>,
    /// Answers that were not carried out yet, of the latest run and of the children that its calls wait for.
    pub decided: usize,
    /// The children below that are not over, oldest first.
    pub children: Vec<TaskRecord>,
    /// The commands in the background, of the children below too, whose end is not known, oldest first.
    pub commands: Vec<CommandRecord>,
    /// Executions of an unfinished latest run that were started and have no outcome yet.
    pub running: Vec<OpenIntent>,
    /// The messages that start runs once the thread is free.
    pub queued: Vec<QueuedMessage>,
    /// The newest summaries that replace older messages, oldest first.
    pub summaries: Vec<SummaryRecord>,
}

/// The part of a thread's messages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSelection {
    All,
    /// The messages after a position.
    Behind(u64),
    /// This many messages at the end.
    Last(usize),
}

/// Lists, finds and shows conversations. Their content is kept by
/// [`ThreadStore`](crate::contract::storage::ThreadStore).
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait ThreadListStore: Send + Sync {
    /// Adds a thread without messages. It need not wait for the disk: an empty thread is nothing to lose, and the first
    /// message takes it along.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the id is taken.
    async fn create_thread(&self, thread: ThreadRecord) -> Result<(), StoreError>;

    /// Threads of all folders or of one, pinned ones first, then newest change first, with what a list shows of each:
    /// from the thread `offset` on, at most `limit`. Those of children are left out.
    async fn threads_page(
        &self,
        cwd: Option<&Path>,
        offset: usize,
        limit: Option<usize>,
    ) -> Result<Vec<ThreadSummary>, StoreError>;

    /// The same for threads of all folders, read as they are wanted.
    fn read_threads(&self, offset: usize, limit: Option<usize>) -> RowFeed<ThreadSummary>;

    /// The thread of a folder that was changed last; children's do not count, nor those that were left by a rewind.
    async fn latest_thread(&self, cwd: &Path) -> Result<Option<ThreadRecord>, StoreError>;

    /// The thread whose id starts with `prefix`; if a thread matches, its children do not. A whole id always matches
    /// exactly one; an empty prefix matches none.
    async fn find_thread(&self, prefix: &str) -> Result<ThreadLookup, StoreError>;

    /// Says that a thread was used now. A time before the last one changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    async fn touch(&self, thread: &ThreadId, now_ms: u64) -> Result<(), StoreError>;

    /// Puts a thread before all others from this time on, or back among them.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    async fn pin_thread(&self, thread: &ThreadId, pin: Option<u64>) -> Result<(), StoreError>;

    /// The source of a thread's title.
    async fn named_by(&self, thread: &ThreadId) -> Result<NamedBy, StoreError>;

    /// Reads a thread at one moment, with a part of its messages; `None` if it does not exist. Missing messages are an
    /// error unless only those after a position are requested.
    async fn thread_view_at(
        &self,
        thread: &ThreadId,
        part: MessageSelection,
    ) -> Result<Option<ThreadView>, StoreError>;

    /// Up to `count` messages before a position, in order.
    async fn messages_before(
        &self,
        thread: &ThreadId,
        seq: u64,
        count: usize,
    ) -> Result<Vec<StoredMessage>, StoreError>;

    /// The position of a message of a thread by its id, if it is one of the latest ten thousand.
    async fn place_of_message(&self, thread: &ThreadId, message: &str) -> Result<Option<u64>, StoreError>;

    /// The threads in which the user or the model wrote this text, ignoring case, in the order of
    /// [`ThreadListStore::threads_page`]: from match `offset` on, at most `limit`. An unreadable message matches nothing.
    async fn search(
        &self,
        wanted: &str,
        offset: usize,
        limit: Option<usize>,
    ) -> Result<Vec<Match>, StoreError>;

    /// The first occurrence of a text in the messages of the user and the model in a thread, ignoring case, with the
    /// words around it. The search continues at `from`; as long as nothing is found and messages remain, the second value
    /// is the position to continue from.
    async fn search_thread(
        &self,
        thread: &ThreadId,
        wanted: &str,
        from: u64,
    ) -> Result<(Option<String>, Option<u64>), StoreError>;

    /// Adds messages to the index for searches, for at most one short transaction. `true`: there are more. A store without
    /// an index returns `false`.
    async fn index_messages(&self) -> Result<bool, StoreError>;

    /// The number of messages that the index does not have yet.
    async fn unindexed_messages(&self) -> Result<u64, StoreError>;
}

/// Lists what calls started.
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait TaskListStore: Send + Sync {
    /// The children of all threads, or only those that are not over, oldest first.
    async fn all_tasks(&self, open_only: bool) -> Result<Vec<TaskRecord>, StoreError>;

    /// The background commands of all threads, or only those whose end is not known, oldest first.
    async fn all_commands(&self, open_only: bool) -> Result<Vec<CommandRecord>, StoreError>;

    /// The output of a background command, with a line in the middle where bytes are missing.
    async fn command_output(&self, number: u64) -> Result<String, StoreError>;
}
