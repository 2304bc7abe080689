//! Waits for a limit of a provider that resets later than a request waits: the run suspends until then, as it does
//! for an answer.
//!
//! The time is that of the run's question, and of a job in the mailbox. Whoever has the conversation open then, or a
//! worker, resumes the run, whether or not the process that asked still lives. The answer to the question only cuts the
//! wait short, or ends the run.

use serde_json::Value;

use super::driver::Driver;
use super::retry::MAX_RETRY_AFTER;
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::suspension::ACTION_WAIT;
use aye_core::phase::{PhaseChoice, PhaseQuestion};
use aye_core::run::Fact;
use aye_core::state::Phase;

impl Driver {
    /// Makes the run wait if the error names a time that is too far for a request to wait. A subagent's failure is its
    /// parent's matter.
    pub(super) fn postpone(&mut self, error: &InferenceExecutionError) -> Option<Fact> {
        let asked = error.retry_after().filter(|asked| error.is_retryable() && *asked > MAX_RETRY_AFTER)?;
        if !self.shared.waits_for_limits || self.lineage.is_some() || self.remote.is_some() {
            return None;
        }
        let wait = u64::try_from(asked.as_millis()).ok()?;
        let choice = |label: &str, goes_on: bool| PhaseChoice {
            label: label.to_owned(),
            description: None,
            value: Value::Bool(goes_on),
        };
        let question = PhaseQuestion {
            name: "Limit".into(),
            message: error.to_string(),
            choices: vec![choice("Try now", true), choice("Stop", false)],
            action: String::new(),
            otherwise: TerminationReason::Cancelled,
        };
        let mut question = question.asked_in(Phase::BeforeInference);
        question.resumes = true;
        question.ticket.suspension.action = ACTION_WAIT.into();
        question.ticket.suspension.expires_at = Some(self.shared.clock.now_ms().saturating_add(wait));
        self.apply_question_terms(&mut question.ticket);
        let call = question.ticket.pending.id.clone();
        self.open(&call, &mut question.ticket);
        self.keep_partial();
        Some(Fact::Postponed { question: Box::new(question) })
    }
}
