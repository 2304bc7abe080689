//! The queued messages of one thread: the mailbox as a front end sees it.

use rusqlite::Connection;

use super::claim::{self, of_thread};
use crate::{ChangeKind, Store, StoreChange, StoreError};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::mailbox::{MailboxInterrupt, MailboxJob};
use aye_core::contract::message::Message;
use aye_core::contract::record::{Owner, QueueId, QueuedMessage};

impl Store {
    /// Puts what was said at the end of its thread's queue. It is durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    pub async fn enqueue(
        &self,
        thread: &ThreadId,
        messages: Vec<Message>,
        now_ms: u64,
    ) -> Result<QueuedMessage, StoreError> {
        let job = MailboxJob::new(thread.clone(), messages, now_ms);
        Ok(self.mailbox().enqueue(job).await?.into())
    }

    /// The same for what was typed into this process: no worker takes it while the process lives.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    pub async fn enqueue_typed(
        &self,
        thread: &ThreadId,
        messages: Vec<Message>,
        typed_into: &Owner,
        now_ms: u64,
    ) -> Result<QueuedMessage, StoreError> {
        let job = MailboxJob::typed(thread.clone(), messages, typed_into, now_ms);
        Ok(self.mailbox().enqueue(job).await?.into())
    }

    /// As [`Mailbox::enqueue`](super::Mailbox::enqueue).
    ///
    /// # Errors
    /// Those of [`Mailbox::enqueue`](super::Mailbox::enqueue).
    pub async fn submit(&self, job: MailboxJob) -> Result<MailboxJob, StoreError> {
        self.mailbox().enqueue(job).await
    }

    /// As [`Mailbox::interrupt`](super::Mailbox::interrupt).
    ///
    /// # Errors
    /// Those of [`Mailbox::interrupt`](super::Mailbox::interrupt).
    pub async fn interrupt(&self, mailbox: &ThreadId, now_ms: u64) -> Result<MailboxInterrupt, StoreError> {
        self.mailbox().interrupt(mailbox, now_ms).await
    }

    /// Returns the queue of a thread, in the order in which its messages start runs.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is unreadable.
    pub async fn queued(&self, thread: &ThreadId) -> Result<Vec<QueuedMessage>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| of_thread(conn, &thread)).await
    }

    /// Takes a message back before its turn came. `false`: it is gone already.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn unqueue(&self, id: QueueId, now_ms: u64) -> Result<bool, StoreError> {
        let work = move |conn: &Connection| claim::unqueue(conn, id, now_ms);
        let change =
            |of: &Option<ThreadId>| of.as_ref().map(|thread| StoreChange::of(ChangeKind::Queue, thread));
        Ok(self.write_grouped(true, work, change).await?.is_some())
    }
}
