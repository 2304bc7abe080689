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
    /// Puts what is said behind what the thread does now, or waits for. It is durable when this returns. Whoever is
    /// awake on the thread takes it when its run is over; when nobody is, the caller begins it with
    /// [`AgentRuntime::run_queued`].
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

    /// The process that is awake on a thread, when it is another one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn driver_elsewhere(&self, thread_id: &ThreadId) -> Result<Option<u32>, StoreError> {
        let lease = self.inner.shared.store.lease(thread_id).await?;
        Ok(lease.filter(|lease| self.is_kept_out_by(lease)).map(|lease| lease.owner.pid))
    }

    /// What is queued for a thread, first in first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn queued(&self, thread_id: &ThreadId) -> Result<Vec<QueuedMessage>, StoreError> {
        self.inner.shared.store.queued(thread_id).await
    }

    /// The first queued message of a thread that may begin now, if its thread is free.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn next_queued(&self, thread_id: &ThreadId) -> Result<Option<QueuedMessage>, StoreError> {
        let now = self.inner.shared.clock.now_ms();
        Ok(self.queued(thread_id).await?.into_iter().find(|message| message.begins(now)))
    }

    /// The same, without what became of commands in the background: that is for the next run that somebody wants.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn next_wanted(&self, thread_id: &ThreadId) -> Result<Option<QueuedMessage>, StoreError> {
        let now = self.inner.shared.clock.now_ms();
        let mut queued = self.queued(thread_id).await?.into_iter();
        Ok(queued.find(|message| message.begins(now) && !message.reports_command()))
    }

    /// Takes a message back. `false`: it is gone already, most likely begun.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn unqueue(&self, id: QueueId) -> Result<bool, StoreError> {
        let shared = &self.inner.shared;
        shared.store.unqueue(id, shared.clock.now_ms()).await
    }

    /// Begins a queued message and stays with its run, as [`AgentRuntime::run`] does; but it waits for a run of this
    /// process instead of cancelling it, and closes no questions.
    ///
    /// # Errors
    /// [`RuntimeError`]; [`RuntimeError::NotFree`] behind an unfinished run, and [`RuntimeError::NotQueued`] when it
    /// was begun elsewhere or taken back.
    pub async fn run_queued(
        &self,
        message: QueuedMessage,
        sink: Arc<dyn EventSink>,
    ) -> Result<AgentRunResult, RuntimeError> {
        self.run(RunRequest::queued(message), sink).await
    }
}
