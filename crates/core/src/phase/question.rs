use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::contract::ids::{CallId, SuspensionId};
use crate::contract::lifecycle::TerminationReason;
use crate::contract::question::{QuestionParameters, WrittenChoice};
use crate::contract::suspension::{
    ACTION_RUN_QUESTION, PendingToolCall, SuspendTicket, Suspension, ToolCallResume, ToolCallResumeMode,
};
use crate::run::RunQuestion;
use crate::state::{EffectSpec, JsonValue, Phase};

/// The core effect with which a hook asks the user before the run continues. Every agent has this effect, and
/// it works in `RunStart`, `StepStart`, `BeforeInference`, `AfterInference` and `StepEnd`; a hook of
/// `BeforeToolExecute` suspends its call instead. The run then waits as it does for a call. A stop beats a
/// question, and of several questions the first one is asked.
pub struct AskBeforeNext;

impl EffectSpec for AskBeforeNext {
    const KEY: &'static str = "runtime.ask_before_next";
    type Payload = PhaseQuestion;
}

/// The core effect with which a hook of `StepEnd` has the model answer again, although it asked for no calls and the run
/// would end. What the model should read is added with [`AddContextMessage`](super::AddContextMessage). A stop and a
/// question beat it, and so does the agent's limit of inferences.
pub struct AnotherStep;

impl EffectSpec for AnotherStep {
    const KEY: &'static str = "runtime.another_step";
    type Payload = ();
}

/// The question that a hook asks about the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseQuestion {
    /// The source of the question, as the card names it.
    pub name: String,
    pub message: String,
    /// The answers; labels are unique.
    pub choices: Vec<PhaseChoice>,
    /// The key of the plugin's scheduled action that reads the answer, a [`PhaseAnswer`], before the run
    /// continues. The action may end the run with a [`StopRequest`](super::StopRequest).
    pub action: String,
    /// The reason why the run ends if the user denies, the question expires, or no plugin can read the
    /// answer.
    pub otherwise: TerminationReason,
}

/// One of the answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseChoice {
    /// The label that the user reads and selects.
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The value that the plugin reads.
    pub value: JsonValue,
}

/// The answer to a [`PhaseQuestion`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseAnswer {
    pub question: SuspensionId,
    /// The value of the selected choice.
    pub value: JsonValue,
}

impl PhaseQuestion {
    /// The question as a row and a machine keep it.
    pub fn asked_in(self, phase: Phase) -> RunQuestion {
        let Self { name, message, choices, action, otherwise } = self;
        let id = SuspensionId::fresh();
        let labels: Vec<_> = choices.iter().map(|choice| choice.label.as_str()).collect();
        let response_schema = json!({
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": labels}},
            "required": ["answer"],
            "additionalProperties": false,
        });
        let suspension = Suspension {
            action: ACTION_RUN_QUESTION.into(),
            parameters: QuestionParameters {
                question: Some(message.clone()),
                choices: Some(choices.into_iter().map(WrittenChoice::from).collect()),
                phase: Some(phase),
                ..QuestionParameters::default()
            }
            .into(),
            response_schema: Some(response_schema),
            expires_at: None,
            message: message.clone(),
            id,
        };
        let pending = PendingToolCall {
            id: CallId::from(format!("run_{}", suspension.id)),
            name,
            arguments: json!({"question": message}),
        };
        let resume_mode = ToolCallResumeMode::UseDecisionAsToolResult;
        RunQuestion {
            ticket: SuspendTicket { suspension, pending, resume_mode },
            otherwise,
            action,
            resumes: false,
            decision: None,
        }
    }
}

impl From<PhaseChoice> for WrittenChoice {
    fn from(PhaseChoice { label, description, value }: PhaseChoice) -> Self {
        Self { label, description: description.map(Some), value: Some(value) }
    }
}

impl PhaseAnswer {
    /// The answer of a decision; `None` when it selects none of the choices.
    pub fn of(ticket: &SuspendTicket, decision: &ToolCallResume) -> Option<Self> {
        let label = decision.result.get("answer")?.as_str()?;
        let choices = QuestionParameters::read(&ticket.suspension.parameters).choices?;
        let chosen = choices.into_iter().find(|choice| choice.label == label)?;
        Some(Self { question: ticket.suspension.id.clone(), value: chosen.value? })
    }
}
