//! The queued messages of one thread: the mailbox as a front end sees it.

use rusqlite::Connection;

use super::mailbox::{self, of_thread};
use super::{Change, ChangeKind, Store, StoreError};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::mailbox::MailboxJob;
use aye_core::contract::message::Message;
use aye_core::contract::record::{Owner, QueueId, QueuedMessage};

/// The member of a job's extras that names the process it was typed into.
const TYPED_INTO: &str = "typed_into";

/// The process that a job was typed into.
pub(super) fn typed_into(job: &MailboxJob) -> Option<Owner> {
    let owner = job.request_extras.as_ref()?.get(TYPED_INTO)?;
    serde_json::from_value(owner.clone()).ok()
}

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
        Ok(mailbox::queued(self.mailbox().enqueue(job).await?))
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
        let extras = serde_json::json!({ TYPED_INTO: typed_into });
        let job =
            MailboxJob { request_extras: Some(extras), ..MailboxJob::new(thread.clone(), messages, now_ms) };
        Ok(mailbox::queued(self.mailbox().enqueue(job).await?))
    }

    /// The queue of a thread, in the order in which its messages begin.
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
        let work = move |conn: &Connection| mailbox::unqueue(conn, id, now_ms);
        let change = |of: &Option<ThreadId>| of.as_ref().map(|thread| Change::of(ChangeKind::Queue, thread));
        Ok(self.write_grouped(true, work, change).await?.is_some())
    }
}
