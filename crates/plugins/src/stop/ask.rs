//! A limit that asks the user instead of ending the run.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::state::{CountedFrom, StopStateKey, StopStateUpdate};
use aye_core::contract::inference::InferenceOverride;
use aye_core::contract::lifecycle::{StoppedReason, TerminationReason};
use aye_core::phase::{
    PhaseAnswer, PhaseChoice, PhaseContext, PhaseHook, PhaseQuestion, RoundsCountedFrom,
    SetInferenceOverride, StopRequest, TypedScheduledActionHandler,
};
use aye_core::state::{JsonValue, Phase, ScheduledActionSpec, StateCommand, StateError};

/// Returns the models with which a run over its budget may continue, given the model that answered last.
pub type OtherModels = Arc<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// The name of the asking party on the card.
const ASKER: &str = "Limit";

/// The effect of an answer on the run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LimitAnswer {
    /// All limits restart their count from here.
    Continue {
        /// With this model from here on.
        model: Option<String>,
    },
    /// It ends as it would have without the question.
    Stop(TerminationReason),
}

impl LimitAnswer {
    fn choice(self, label: String) -> PhaseChoice {
        let value = serde_json::to_value(self).unwrap_or(JsonValue::Null);
        PhaseChoice { label, description: None, value }
    }
}

/// Whether the limit that ended the run can restart its count. A condition that was configured as the
/// intended end is not a limit, and time is not counted by a policy alone.
pub(super) fn can_be_extended(reason: &TerminationReason) -> bool {
    const CODES: [&str; 6] =
        ["budget", "max_rounds", "token_budget", "consecutive_errors", "repeated_calls", "loop_detection"];
    matches!(reason, TerminationReason::Stopped(StoppedReason { code, .. }) if CODES.contains(&code.as_str()))
}

/// Builds the question whether a run that `otherwise` would end should continue; `more` is what the run would
/// get, such as `$5.00 more`.
pub(super) fn question(
    otherwise: TerminationReason,
    more: Option<String>,
    models: Vec<String>,
) -> PhaseQuestion {
    let detail = match &otherwise {
        TerminationReason::Stopped(StoppedReason { code, detail }) => detail.as_ref().unwrap_or(code),
        _ => "a limit is reached",
    };
    let mut message = format!("{detail}. Continue?");
    if let Some(first) = message.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let with = more.map(|more| format!(" with {more}")).unwrap_or_default();
    let mut choices = vec![LimitAnswer::Continue { model: None }.choice(format!("Continue{with}"))];
    choices.extend(models.into_iter().map(|model| {
        let label = format!("Switch to {model} and continue{with}");
        LimitAnswer::Continue { model: Some(model) }.choice(label)
    }));
    choices.push(LimitAnswer::Stop(otherwise.clone()).choice("Stop".to_owned()));
    PhaseQuestion { name: ASKER.into(), message, choices, action: ReadLimitAnswer::KEY.into(), otherwise }
}

pub(super) struct ReadLimitAnswer;

impl ScheduledActionSpec for ReadLimitAnswer {
    const KEY: &'static str = "stop.read_limit_answer";
    // It is carried out in the phase that asked.
    const PHASE: Phase = Phase::StepEnd;
    type Payload = PhaseAnswer;
}

#[async_trait]
impl TypedScheduledActionHandler<ReadLimitAnswer> for ReadLimitAnswer {
    async fn handle_typed(
        &self,
        ctx: &PhaseContext,
        answer: PhaseAnswer,
    ) -> Result<StateCommand, StateError> {
        let answer = serde_json::from_value(answer.value)
            .map_err(|e| StateError::KeyDecode { key: Self::KEY.into(), message: e.to_string() })?;
        let mut command = StateCommand::new();
        match answer {
            LimitAnswer::Continue { model } => {
                command.update::<RoundsCountedFrom>(ctx.progress.steps);
                command.update::<StopStateKey>(StopStateUpdate::Extended(CountedFrom::here(ctx), model));
            }
            LimitAnswer::Stop(reason) => command.update::<StopRequest>(reason),
        }
        Ok(command)
    }
}

/// Sends the run's requests to the model that the user switched to.
pub(super) struct SwitchHook;

#[async_trait]
impl PhaseHook for SwitchHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if let Some(model) = ctx.state::<StopStateKey>().and_then(|state| state.model.clone()) {
            let model = Some(model);
            command.schedule_action::<SetInferenceOverride>(InferenceOverride {
                model,
                ..InferenceOverride::default()
            })?;
        }
        Ok(command)
    }
}
