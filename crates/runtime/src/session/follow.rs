//! Follows a run whoever answers its questions and whichever process drives it: this one, or another one that
//! resumes the run after an answer. Shared by all front ends.
//!
//! Nothing here polls: while nothing is committed, the code waits for the change feed of the store, for the
//! expiry of a question, and for the end of the process that drives the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::owner::{OwnerWatch, until};
use crate::{AgentRunResult, AgentRuntime, RuntimeError, UnknownPolicy};
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::{RunId, SuspensionId, ThreadId};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::{RunRecord, SuspensionRecord, SuspensionStatus};

/// Notified of who drives a run that is carried on.
#[async_trait]
pub trait RunFollower: Send + Sync {
    /// This process is about to drive the run.
    async fn drives_here(&self) {}

    /// Process `pid` drives the run; called again whenever something about the run was committed.
    async fn drives_elsewhere(&self, _pid: u32) {}
}

/// The end of a run, or the fact that it waits again.
#[derive(Debug)]
pub enum ResumeOutcome {
    /// This process drove it.
    Here(AgentRunResult),
    /// Another process drove it to its end.
    Elsewhere(RunRecord),
}

impl AgentRuntime {
    /// Waits until one of these questions of a thread is no longer pending, whoever decided it, and returns
    /// the current rows of those questions; none if a conversation was deleted or a question has passed its
    /// expiry, which resuming the run then applies. A question that reaches its time in `give_up` is closed
    /// as expired. Of the decisions made by this process, only those of remote agents are noticed.
    ///
    /// # Errors
    /// [`RuntimeError::Store`].
    pub async fn until_answered(
        &self,
        thread: &ThreadId,
        questions: &[SuspensionRecord],
        give_up: &BTreeMap<SuspensionId, Instant>,
    ) -> Result<Vec<SuspensionRecord>, RuntimeError> {
        let (store, clock) = (self.store(), &self.inner.shared.clock);
        // Subscribed before the first look, so that nothing is missed between the two.
        let (mut changes, mut children) = (store.watch()?, self.watch_children());
        loop {
            let mut settled = Vec::new();
            let mut is_deleted = false;
            for question in questions {
                match store.suspension(&question.id).await? {
                    Some(now) if now.status == SuspensionStatus::Open => {}
                    Some(now) => settled.push(now),
                    None => is_deleted = true,
                }
            }
            if is_deleted || !settled.is_empty() {
                return Ok(settled);
            }
            let moments =
                questions.iter().filter_map(|question| Some((&question.id, give_up.get(&question.id)?)));
            let over = moments.clone().filter(|(_, end)| **end <= Instant::now());
            let over: Vec<SuspensionId> = over.map(|(id, _)| id.clone()).collect();
            if !over.is_empty() {
                self.expire(over).await?;
                continue;
            }
            let now = clock.now_ms();
            let own = questions.iter().filter_map(|question| question.ticket.suspension.expires_at);
            if own.clone().any(|at| at <= now) {
                return Ok(Vec::new());
            }
            // One millisecond more than needed: a timer that comes early would be set again.
            let own = own.map(|at| Instant::now() + Duration::from_millis(at.saturating_sub(now) + 1));
            let end = own.chain(moments.map(|(_, end)| *end)).min();
            tokio::select! {
                () = changes.next_about(thread) => {}
                Ok(()) = children.changed() => {}
                () = until(end) => {}
            }
        }
    }

    /// Resumes a run of a thread, or follows it until it ends while another process drives it.
    ///
    /// # Errors
    /// [`RuntimeError`]; [`RuntimeError::Store`] when another process deleted the conversation.
    pub async fn resume_or_follow(
        &self,
        thread: &ThreadId,
        run: &RunId,
        sink: Arc<dyn EventSink>,
        unknown: UnknownPolicy,
        follower: &dyn RunFollower,
    ) -> Result<ResumeOutcome, RuntimeError> {
        let store = self.store();
        let mut owner: Option<OwnerWatch> = None;
        loop {
            let mut changes = store.watch()?;
            let gone = || RuntimeError::Store("the conversation was deleted by another process".to_owned());
            let record = store.load_run(run).await?.ok_or_else(gone)?;
            if record.status == RunStatus::Done {
                return Ok(ResumeOutcome::Elsewhere(record));
            }
            follower.drives_here().await;
            match self.resume(thread, Arc::clone(&sink), unknown).await {
                Err(RuntimeError::ThreadAlreadyRunning { pid, thread_id, .. }) => {
                    follower.drives_elsewhere(pid).await;
                    // Without a lease it is free by now.
                    let Some(lease) = store.lease(&thread_id).await? else { continue };
                    // A stopped process is silent but does not die; its lease expires all the same.
                    owner = Some(OwnerWatch::of(owner, &lease, self));
                    tokio::select! {
                        () = changes.next_about(thread) => {}
                        () = OwnerWatch::ends_or_due(&mut owner) => {}
                    }
                }
                // It ended between the look and the attempt.
                Err(RuntimeError::NothingToResume { .. }) => {}
                Ok(result) => return Ok(ResumeOutcome::Here(result)),
                Err(error) => return Err(error),
            }
        }
    }
}
