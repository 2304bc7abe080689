//! Jobs of the mailbox and the runs that serve them. A job stores the id of its run in the transaction that starts
//! the run: the next claim resumes that run and starts no second one.

use std::sync::Arc;

use super::request::{AgentRunResult, RunRequest, RuntimeError};
use super::{AgentRuntime, UnknownPolicy};
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxInterrupt, MailboxJob};
use aye_core::contract::message::{Message, Role, Visibility};
use aye_core::contract::record::{JobClaim, RunRecord};

/// Message to the model after an interrupted answer.
const GO_ON: &str = "Your answer was cut off by a connection failure. Continue where it ended.";

impl AgentRuntime {
    /// Stores a request for a run and creates its thread if there is none. The request is durable when this
    /// returns.
    ///
    /// # Errors
    /// [`RuntimeError::Store`], also when an open job of the mailbox has the same key.
    pub async fn submit(&self, job: MailboxJob) -> Result<MailboxJob, RuntimeError> {
        self.ensure_thread(&job.mailbox_id, &job.messages).await?;
        Ok(self.inner.shared.store.submit(job).await?)
    }

    /// Makes room in a thread for something more important: its queue is superseded, and the run of the
    /// active job is asked to stop if this process drives the run. Otherwise the caller has to ask the
    /// process that does.
    ///
    /// # Errors
    /// [`RuntimeError::Store`], also when there is no such thread.
    pub async fn interrupt(&self, thread_id: &ThreadId) -> Result<MailboxInterrupt, RuntimeError> {
        let shared = &self.inner.shared;
        let interrupt = shared.store.interrupt(thread_id, shared.clock.now_ms()).await?;
        if interrupt.active_job.is_some() {
            self.cancel(thread_id);
        }
        Ok(interrupt)
    }

    /// Serves a job that the caller has claimed and drives its run until that is done or waits: starts the
    /// run, or resumes the one already started, whatever happened to its process. A failed run is not
    /// restarted with the same messages: a new one continues from the current state of the conversation.
    ///
    /// A run that ends in any way but a failure ends its job in the same transaction.
    ///
    /// # Errors
    /// [`RuntimeError`]; [`RuntimeError::NotFree`] and [`RuntimeError::ThreadAlreadyRunning`] when the thread
    /// is busy with something else, [`RuntimeError::NotQueued`] when the claim is lost.
    pub async fn run_job(
        &self,
        job: &MailboxJob,
        sink: Arc<dyn EventSink>,
        unknown: UnknownPolicy,
    ) -> Result<AgentRunResult, RuntimeError> {
        let store = &self.inner.shared.store;
        let thread = &job.mailbox_id;
        let mut request = RunRequest::new(thread.clone(), job.messages.clone());
        request.agent_id = (!job.agent_id.is_empty()).then(|| job.agent_id.clone());
        request.parent_run_id.clone_from(&job.parent_run_id);
        request.correlation_id = job.correlation_id().map(str::to_owned);
        request.takes = Some(JobClaim {
            id: job.sequence,
            // Without a claim it is refused.
            claim: Some(job.claim_token.clone().unwrap_or_default()),
        });
        let latest = store.latest_run(thread).await?;
        let begun = latest.filter(|run| Some(&run.id) == job.run_id.as_ref());
        match begun {
            Some(run) if run.status != RunStatus::Done => return self.resume(thread, sink, unknown).await,
            Some(run) => {
                request.messages = self.after(&run).await?;
                request.parent_run_id = Some(run.id);
            }
            None if job.run_id.is_none() => request.run_id = job.wanted_run_id(),
            None => {}
        }
        self.run(request, sink).await
    }

    /// Returns the messages that continue a conversation after a failed run: none, unless its answer was
    /// interrupted.
    async fn after(&self, run: &RunRecord) -> Result<Vec<Message>, RuntimeError> {
        let (_, last) = self.inner.shared.store.messages_tail(&run.thread_id, 1).await?;
        let broke_off = last.last().is_some_and(|last| last.message.role == Role::Assistant);
        let mut go_on = Message::user(GO_ON);
        go_on.visibility = Visibility::Internal;
        Ok(if broke_off { vec![go_on] } else { Vec::new() })
    }
}
