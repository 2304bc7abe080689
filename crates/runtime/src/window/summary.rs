//! Summaries of a conversation, as its driver takes them over and has them made.

use std::sync::Arc;

use crate::compact::{Compacting, Compaction, place};
use crate::driver::Driver;
use crate::in_flight::Done;
use crate::windows::{SuspectedLimit, WindowMemory};
use aye_core::contract::activity::{InferenceRetry, KnownActivity};
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::spec::ContextWindowPolicy;
use aye_core::contract::summary::SummaryRecord;

impl Driver {
    /// Adopts the current summary, whichever process made it. It is reported unless an earlier run did so.
    pub(super) async fn load_new_summary(&mut self) {
        let known = self.packing.summary.as_ref().map_or(0, |summary| summary.upto_seq);
        let was_fresh = std::mem::take(&mut self.packing.is_fresh);
        let found = if was_fresh {
            Ok(self.packing.loaded.take())
        } else {
            self.shared.store.summary(&self.record.thread_id, known).await
        };
        match found {
            Ok(None) => {}
            Ok(Some(summary))
                // The store made sure of a message that is not loaded when it took the summary.
                if place(&summary) <= self.history.len()
                    && self.history.get(place(&summary) - 1).is_none_or(|m| m.id == summary.upto) =>
            {
                let is_it = |own: &SummaryRecord| own.upto == summary.upto;
                if self.shared.windows.take_unreported(&self.record.thread_id, is_it).is_some() {
                    self.emit_activities(vec![summary.activity()]).await;
                } else if !was_fresh {
                    // The process that made it counts its tokens.
                    let made_elsewhere = SummaryRecord { usage: None, ..summary.clone() };
                    self.emit_activities(vec![made_elsewhere.activity()]).await;
                }
                self.packing.summary = Some(Arc::new(summary));
            }
            Ok(Some(summary)) => {
                tracing::error!(thread = %self.record.thread_id, upto = %summary.upto, "a summary of other messages");
            }
            // The messages are all there: a request without the summary is only longer.
            Err(error) => tracing::error!(%error, "the summary cannot be read"),
        }
    }

    /// Has a summary made in the background when it is time.
    pub(super) fn compact_if_due(
        &mut self,
        policy: &ContextWindowPolicy,
        memory: &WindowMemory,
        tokens: usize,
        is_cut: bool,
    ) {
        let Some(threshold) = policy.autocompact_threshold else { return };
        let counted = memory.calibration.apply(tokens);
        let grew = memory.failed_at.is_none_or(|before| counted >= before + (threshold / 8).max(1024));
        if memory.compacting || !(counted >= threshold || is_cut) || !grew {
            return;
        }
        self.shared.windows.change(&self.record.thread_id, |memory| memory.compacting = true);
        let compaction = self.compaction(policy.clone());
        tokio::spawn(async move {
            let (shared, thread) = (Arc::clone(&compaction.shared), compaction.thread_id.clone());
            // The right is released whatever happens, even if the task is dropped.
            let _done = Compacting { shared: Arc::clone(&shared), thread: thread.clone() };
            match compaction.run(None).await {
                Ok(_) => shared.windows.change(&thread, |memory| memory.failed_at = None),
                Err(error) => {
                    tracing::info!(%thread, %error, "no summary was made");
                    shared.windows.change(&thread, |memory| memory.failed_at = Some(counted));
                }
            }
        });
    }

    fn compaction(&self, policy: ContextWindowPolicy) -> Compaction {
        Compaction {
            shared: Arc::clone(&self.shared),
            thread_id: self.record.thread_id.clone(),
            agent_id: self.record.agent_id.clone(),
            agent: self.agent.clone(),
            policy,
            existing: self.packing.summary.clone(),
        }
    }

    /// Handles a request that the provider refused as too long: older messages are summarised, more is left
    /// out, and the request is repeated. Returns `false` if this already was the second attempt.
    pub(crate) async fn overflowed(&mut self, error: &InferenceExecutionError) -> bool {
        if std::mem::replace(&mut self.packing.is_second, true) {
            return false;
        }
        let refused = self.packing.estimated;
        let (model, prefix) = (self.agent.model_id.clone(), self.packing.prefix.clone());
        self.shared.windows.change(&self.record.thread_id, |memory| {
            *memory = std::mem::take(memory).of_model(&model);
            if !matches!(error, InferenceExecutionError::ContextOverflow(_)) {
                memory.suspected = Some(SuspectedLimit { before: memory.ceiling, prefix });
            }
            memory.ceiling = Some(refused - refused / 4);
        });
        self.inference.partial.clear();
        let retry = InferenceRetry {
            attempt: 1,
            max: 1,
            model: self.agent.model_id.clone(),
            reason: format!("{error}; summarising older messages"),
            reset: true,
            ..InferenceRetry::default()
        };
        self.events.emit(KnownActivity::Retry(retry).event(self.step.message_id.as_str())).await;
        let policy = self.agent.spec.context_policy.clone().unwrap_or_default();
        let compaction = self.compaction(policy);
        self.in_flight.start(async move {
            if let Err(error) = compaction.run(None).await {
                // Leaving out more messages helps even without a summary.
                tracing::info!(%error, "no summary was made");
            }
            Done::Compacted
        });
        true
    }
}
