//! Threads that calls of other threads started, and queued messages.

use std::path::PathBuf;

use async_trait::async_trait;

use super::{DecisionStore, RunStore, Slice, StoreError};
use crate::contract::child::{ChildRecord, TaskRecord};
use crate::contract::ids::ThreadId;
use crate::contract::mailbox::{MailboxInterrupt, MailboxJob};
use crate::contract::message::Message;
use crate::contract::record::{Owner, QueueId, QueuedMessage, SuspensionRecord};

/// Keeps what a thread serves. Each method reads its rows at one moment.
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait ChildStore: RunStore + DecisionStore {
    /// Creates the thread of a child, once for each call: returns the record of the one that exists.
    ///
    /// # Errors
    /// [`StoreError::NoThread`] when its parent was deleted; [`StoreError::Exists`] when its id names something else.
    async fn create_child(
        &self,
        child: ChildRecord,
        title: String,
        cwd: PathBuf,
    ) -> Result<ChildRecord, StoreError>;

    /// Returns the record of a child's thread; `None` for a thread that only a user started.
    async fn child(&self, thread: &ThreadId) -> Result<Option<ChildRecord>, StoreError>;

    /// The children below a thread, and theirs, oldest first.
    async fn children(&self, thread: &ThreadId) -> Result<Vec<ChildRecord>, StoreError>;

    /// Records a stop request for a child, for the child's driver. Returns `false` if the child does not
    /// exist.
    async fn stop_child(&self, thread: &ThreadId) -> Result<bool, StoreError>;

    /// Queues the end of a child in the background for its parent, once, addressed to this agent. `false`: that was
    /// done before.
    async fn queue_child_end(
        &self,
        thread: &ThreadId,
        agent: String,
        messages: Vec<Message>,
        now_ms: u64,
    ) -> Result<bool, StoreError>;

    /// The thread whose driver drives this one: the first one above it that no call waits for, or itself.
    async fn driven_with(&self, thread: &ThreadId) -> Result<ThreadId, StoreError>;

    /// The children below a thread, and theirs, oldest first, with their latest runs.
    async fn tasks(&self, thread: &ThreadId) -> Result<Vec<TaskRecord>, StoreError>;

    /// The questions that users have to answer before this thread, and the children its calls wait for, can resume;
    /// oldest first.
    async fn waiting_below(&self, thread: &ThreadId) -> Result<Vec<SuspensionRecord>, StoreError>;

    /// Returns whether the unfinished run of the thread, or of one below it that a call waits for, has a
    /// decision that was not applied yet.
    async fn has_answers(&self, thread: &ThreadId) -> Result<bool, StoreError>;

    /// Returns the threads whose unfinished run may have something to read about its questions: one was answered or has
    /// expired, or the run was asked to stop. A run that has read that and waits for other questions is among them.
    async fn answered_threads(&self) -> Result<Vec<ThreadId>, StoreError>;
}

/// Keeps messages until their thread is free: the mailbox as a front end sees it.
#[async_trait]
pub trait QueueStore: Send + Sync {
    /// Queues a job, durably, with the current generation of its mailbox.
    ///
    /// # Errors
    /// [`StoreError::NoThread`]; [`StoreError::Exists`] when its id is taken; [`StoreError::Duplicate`] when an open
    /// job of the mailbox has its key.
    async fn submit(&self, job: MailboxJob) -> Result<MailboxJob, StoreError>;

    /// Starts a new generation of a mailbox: queued jobs are superseded, and the claimed one is returned for the caller
    /// to cancel.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    async fn interrupt(&self, mailbox: &ThreadId, now_ms: u64) -> Result<MailboxInterrupt, StoreError>;

    /// The queue of a thread, in the order in which its messages start.
    async fn queued(&self, thread: &ThreadId) -> Result<Vec<QueuedMessage>, StoreError>;

    /// The jobs of a thread or of all that are queued or claimed, in the order in which they are served.
    async fn open_jobs(&self, thread: Option<&ThreadId>, slice: Slice)
    -> Result<Vec<MailboxJob>, StoreError>;

    /// Takes a message out of the queue before its turn. `false`: it is gone already.
    async fn unqueue(&self, id: QueueId, now_ms: u64) -> Result<bool, StoreError>;

    /// Queues what was typed into this process: no worker takes it while the process lives.
    ///
    /// # Errors
    /// As [`QueueStore::submit`].
    async fn enqueue_typed(
        &self,
        thread: &ThreadId,
        messages: Vec<Message>,
        typed_into: &Owner,
        now_ms: u64,
    ) -> Result<QueuedMessage, StoreError> {
        let job = MailboxJob::typed(thread.clone(), messages, typed_into, now_ms);
        Ok(self.submit(job).await?.into())
    }
}
