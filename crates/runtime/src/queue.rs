//! Messages queued until their thread is free. A queued message leaves the queue in the transaction that starts its
//! run, so it starts exactly once, whichever process starts it.

use std::sync::Arc;

use super::request::{AgentRunResult, RunRequest, RuntimeError};
use super::{AgentRuntime, StoreError};
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::message::Message;
use aye_core::contract::record::{QueueId, QueuedMessage};

impl AgentRuntime {
    /// Queues messages for when the thread's current or waiting run is done. They are durable when this
    /// returns. A driver that is active on the thread takes them when its run is done; if there is none, the
    /// caller starts them with [`AgentRuntime::run_queued`].
    ///
    /// # Errors
    /// [`RuntimeError::Store`].
    pub async fn enqueue(
        &self,
        thread_id: &ThreadId,
        messages: Vec<Message>,
    ) -> Result<QueuedMessage, RuntimeError> {
        let request = RunRequest::new(thread_id.clone(), messages);
        self.fits(&request)?;
        let messages = request.messages;
        self.ensure_thread(thread_id, &messages).await?;
        let shared = &self.inner.shared;
        let now = shared.clock.now_ms();
        Ok(shared.store.enqueue_typed(thread_id, messages, &shared.owner, now).await?)
    }

    /// Returns the pid of another process that is active on a thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn driver_elsewhere(&self, thread_id: &ThreadId) -> Result<Option<u32>, StoreError> {
        let lease = self.inner.shared.store.lease(thread_id).await?;
        Ok(lease.filter(|lease| self.is_kept_out_by(lease)).map(|lease| lease.owner.pid))
    }

    /// Returns the queue of a thread, oldest message first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn queued(&self, thread_id: &ThreadId) -> Result<Vec<QueuedMessage>, StoreError> {
        self.inner.shared.store.queued(thread_id).await
    }

    /// Returns the first queued message of a thread that may start now if the thread is free.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn next_queued(&self, thread_id: &ThreadId) -> Result<Option<QueuedMessage>, StoreError> {
        let now = self.inner.shared.clock.now_ms();
        Ok(self.queued(thread_id).await?.into_iter().find(|message| message.begins(now)))
    }

    /// Returns the same, but skips the reports of background commands: those are for the next run that is
    /// requested.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn next_wanted(&self, thread_id: &ThreadId) -> Result<Option<QueuedMessage>, StoreError> {
        let now = self.inner.shared.clock.now_ms();
        let mut queued = self.queued(thread_id).await?.into_iter();
        Ok(queued.find(|message| message.begins(now) && !message.reports_command()))
    }

    /// Removes a message from the queue. Returns `false` if it is already gone, most likely because it was
    /// started.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn unqueue(&self, id: QueueId) -> Result<bool, StoreError> {
        let shared = &self.inner.shared;
        shared.store.unqueue(id, shared.clock.now_ms()).await
    }

    /// Starts a queued message and drives its run, as [`AgentRuntime::run`] does, but waits for a run of this
    /// process instead of cancelling it, and closes no questions.
    ///
    /// # Errors
    /// [`RuntimeError`]; [`RuntimeError::NotFree`] after an unfinished run, and [`RuntimeError::NotQueued`]
    /// when the message was started elsewhere or removed from the queue.
    pub async fn run_queued(
        &self,
        message: QueuedMessage,
        sink: Arc<dyn EventSink>,
    ) -> Result<AgentRunResult, RuntimeError> {
        self.run(RunRequest::queued(message), sink).await
    }
}
