//! Messages queued until their thread is free. A queued message leaves the queue in the transaction that starts its
//! run, so it starts exactly once, whichever process starts it.

use std::sync::Arc;

use crate::request::{AgentRunResult, RunRequest, RuntimeError};
use crate::{AgentRuntime, StoreError};
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

    /// Starts the first queued message that may start now, in the way that `start` gives, and passes over messages
    /// that another process started or removed meanwhile. Returns `None` if no message is left. `with_reports`: the
    /// report of a background command starts a run, too; otherwise it is for the next run that is requested.
    ///
    /// # Errors
    /// [`RuntimeError`]: the queue cannot be read, or the message could not start.
    pub async fn start_next<T, F: Future<Output = Result<T, RuntimeError>>>(
        &self,
        thread_id: &ThreadId,
        with_reports: bool,
        start: impl Fn(QueuedMessage) -> F,
    ) -> Result<Option<T>, RuntimeError> {
        let may_start = |message: &QueuedMessage| with_reports || !message.reports_command();
        self.start_next_of(thread_id, may_start, start).await
    }

    /// As [`AgentRuntime::start_next`], for the messages that may start a run.
    ///
    /// # Errors
    /// As [`AgentRuntime::start_next`].
    pub async fn start_next_of<T, F: Future<Output = Result<T, RuntimeError>>>(
        &self,
        thread_id: &ThreadId,
        may_start: impl Fn(&QueuedMessage) -> bool,
        start: impl Fn(QueuedMessage) -> F,
    ) -> Result<Option<T>, RuntimeError> {
        loop {
            let now = self.inner.shared.clock.now_ms();
            let begins = |message: &QueuedMessage| message.begins(now) && may_start(message);
            let Some(next) = self.queued(thread_id).await?.into_iter().find(begins) else {
                return Ok(None);
            };
            match start(next).await {
                Err(RuntimeError::NotQueued { .. }) => {}
                started => return started.map(Some),
            }
        }
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
