//! Pending questions: list, decide, expire.

use super::active_drivers::Delivery;
use super::request::{self, DecideError};
use super::{AgentRuntime, StoreError};
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::record::{DecideOutcome, Decision, GrantRecord, SuspensionRecord};
use aye_core::contract::suspension::{Actor, ToolCallResume};

impl AgentRuntime {
    /// Stores an answer in its row and passes it to the driver if one is active here. When this returns
    /// `Accepted`, the answer is durable; the caller then wakes the run with [`AgentRuntime::resume`], which
    /// does nothing if the answer was applied in the meantime.
    ///
    /// # Errors
    /// [`DecideError`]: nothing was written.
    pub async fn decide(
        &self,
        id: &SuspensionId,
        resume: ToolCallResume,
        actor: Actor,
    ) -> Result<DecideOutcome, DecideError> {
        self.decide_granting(id, resume, actor, None).await
    }

    /// The same, with a rule that is granted when the answer is accepted, in one transaction with it. It is in
    /// force here before the run continues.
    ///
    /// # Errors
    /// [`DecideError`]: nothing was written.
    pub async fn decide_granting(
        &self,
        id: &SuspensionId,
        resume: ToolCallResume,
        actor: Actor,
        grant: Option<GrantRecord>,
    ) -> Result<DecideOutcome, DecideError> {
        match self.store().suspension(id).await.map_err(DecideError::Store)? {
            Some(question) => self.decide_about(&question, Decision { resume, actor, grant }).await,
            None => Ok(DecideOutcome::NotFound),
        }
    }

    /// The same for a question that the caller has read.
    ///
    /// # Errors
    /// [`DecideError`]: nothing was written.
    pub async fn decide_about(
        &self,
        question: &SuspensionRecord,
        decision: Decision,
    ) -> Result<DecideOutcome, DecideError> {
        let shared = &self.inner.shared;
        let Decision { resume, actor, grant } = decision;
        request::check_payload(question, &resume)?;
        if let Some(arguments) = &resume.arguments {
            let tool = self.inner.shared.catalog().tool(&question.ticket.pending.name).cloned();
            request::check_arguments(question, tool.as_deref(), arguments)?;
        }
        let grants = grant.is_some();
        let now = shared.clock.now_ms();
        // A decision that was made without a clock is from now.
        let updated_at = if resume.updated_at == 0 { now } else { resume.updated_at };
        let resume = ToolCallResume { updated_at, ..resume };
        let decision = Decision { resume: resume.clone(), actor, grant };
        let outcome = shared.store.decide(&question.id, decision, now).await.map_err(DecideError::Store)?;
        match &outcome {
            DecideOutcome::Accepted(record) => {
                if grants {
                    shared.load_grants().await;
                }
                let delivery =
                    Delivery { call: record.call_id.clone(), suspension: record.id.clone(), resume };
                if !self.inner.live.deliver(&record.thread_id, delivery) {
                    self.inner.live.rows_changed(|thread| record.thread_id.is_at_or_below(thread));
                }
            }
            // It may be this very call that marked it.
            DecideOutcome::Expired(record) => {
                self.inner.live.rows_changed(|thread| record.thread_id.is_at_or_below(thread));
            }
            DecideOutcome::Repeated(_)
            | DecideOutcome::AlreadyDecided(_)
            | DecideOutcome::Closed(_)
            | DecideOutcome::NotFound => {}
        }
        Ok(outcome)
    }

    /// Closes pending questions as expired, whatever their own expiry, and returns those that were pending.
    /// The caller then wakes their runs with [`AgentRuntime::resume`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn expire(&self, ids: Vec<SuspensionId>) -> Result<Vec<SuspensionRecord>, StoreError> {
        let shared = &self.inner.shared;
        let expired = shared.store.expire(ids, shared.clock.now_ms()).await?;
        self.inner.live.rows_changed(|thread| expired.iter().any(|one| one.thread_id.is_at_or_below(thread)));
        Ok(expired)
    }

    /// The open questions of a thread and of the children that its calls wait for, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn waiting(&self, thread_id: &ThreadId) -> Result<Vec<SuspensionRecord>, StoreError> {
        self.inner.shared.store.waiting_below(thread_id).await
    }

    /// Returns the expiry of the next pending question of a thread, in Unix milliseconds; `None` if none
    /// expires. For callers that wait for a thread without a driver: at that time [`AgentRuntime::resume`]
    /// informs the model.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn next_expiry(&self, thread_id: &ThreadId) -> Result<Option<u64>, StoreError> {
        let waiting = self.waiting(thread_id).await?;
        Ok(waiting.iter().filter_map(|question| question.ticket.suspension.expires_at).min())
    }
}
