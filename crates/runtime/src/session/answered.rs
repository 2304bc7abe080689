//! Waits for the answers to questions, whoever gives them.
//!
//! Nothing here polls: while nothing is committed, the code waits for the change feed of the store, and for the expiry of a
//! question.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::owner::until;
use crate::{AgentRuntime, RuntimeError};
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus};

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
}
