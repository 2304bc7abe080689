use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::child::ChildStatus;
use crate::contract::ids::{CallId, DecisionId};
use crate::contract::judgement::Profile;
use crate::contract::lifecycle::ToolCallStatus;
use crate::contract::suspension::{
    ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME, ResumeDecisionAction, SuspendTicket, ToolCallResume,
    ToolCallResumeMode,
};

/// The state of a call, with the data that only this state needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CallState {
    /// Not admitted yet.
    New,
    /// At the gate for the first time.
    Gating,
    /// A question is open.
    Suspended {
        ticket: SuspendTicket,
    },
    /// Decided to run; waits until the execution mode admits the call.
    Held {
        ticket: SuspendTicket,
        decision: ToolCallResume,
    },
    /// At the gate again, with the decision in hand.
    Regating {
        ticket: SuspendTicket,
        decision: ToolCallResume,
    },
    Running {
        /// The question and answer that let it run, if one was needed.
        allowed_by: Option<(SuspendTicket, ToolCallResume)>,
    },
    Closed {
        status: ToolCallStatus,
    },
}

/// The effect of a decision on its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionEffect {
    Decline,
    /// The payload is the result.
    Answer,
    Run,
    /// The payload cannot be the arguments.
    BadPayload,
    /// Unknown outcome: it is done.
    SaidDone,
    /// Unknown outcome: leave it.
    Skip,
    /// The call is denied in this form; the user requests changes.
    Change,
    /// The payload is the result, and says that it went wrong.
    Failure,
}

impl DecisionEffect {
    /// Reads a decision against its question.
    pub fn of(ticket: &SuspendTicket, decision: &ToolCallResume) -> Self {
        if decision.action == ResumeDecisionAction::Cancel {
            return match ticket.suspension.action.as_str() {
                ACTION_UNKNOWN_OUTCOME => Self::Skip,
                _ if decision.is_modify() => Self::Change,
                _ => Self::Decline,
            };
        }
        if ticket.suspension.action == ACTION_UNKNOWN_OUTCOME {
            return match decision.result.get("choice").and_then(Value::as_str) {
                Some("rerun") => Self::Run,
                Some("done") => Self::SaidDone,
                // Anything unclear about a call that may have run must not run it again.
                _ => Self::Skip,
            };
        }
        if ticket.is_served() {
            let status = decision.result.get("status").and_then(Value::as_str);
            return if status == Some(ChildStatus::Completed.word()) { Self::Answer } else { Self::Failure };
        }
        if let Some(arguments) = &decision.arguments {
            let is_permission = ticket.suspension.action == ACTION_PERMISSION;
            return if is_permission && arguments.is_object() { Self::Run } else { Self::BadPayload };
        }
        match ticket.resume_mode {
            ToolCallResumeMode::ReplayToolCall => Self::Run,
            ToolCallResumeMode::UseDecisionAsToolResult => Self::Answer,
            ToolCallResumeMode::PassDecisionToTool => match decision.result {
                Value::Null | Value::Object(_) => Self::Run,
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Self::BadPayload,
            },
        }
    }
}

/// One call of the current step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub id: CallId,
    /// The number of times the call's execution was started.
    pub attempt: u32,
    /// The decision that an execution has spent already.
    pub spent: Option<DecisionId>,
    /// The last decision that was taken for it.
    pub decided_by: Option<DecisionId>,
    /// The arguments with which the user replaced the model's. They apply whatever happens to the call: also
    /// if it is asked about again, or was lost with a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<Value>,
    /// The profile that the user chose for the call; it applies as long as edited arguments do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Profile>,
    /// The user's comments, one for each approval that has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<String>,
    /// The state of the call.
    pub state: CallState,
}

impl Call {
    pub(super) fn new(id: CallId) -> Self {
        Self {
            id,
            attempt: 0,
            spent: None,
            decided_by: None,
            edited: None,
            chosen: None,
            comments: Vec::new(),
            state: CallState::New,
        }
    }

    /// Keeps what a yes says about the call besides yes.
    pub(super) fn keep(&mut self, ticket: &SuspendTicket, decision: &ToolCallResume) {
        let passed = (ticket.resume_mode == ToolCallResumeMode::PassDecisionToTool
            && decision.result.is_object())
        .then_some(&decision.result);
        if let Some(arguments) = decision.arguments.as_ref().or(passed) {
            self.edited = Some(arguments.clone());
        }
        if ticket.suspension.action == ACTION_PERMISSION {
            self.chosen = decision.profile;
        }
        self.comments.extend(decision.comment().map(str::to_owned));
    }

    /// The public status.
    pub fn status(&self) -> ToolCallStatus {
        match &self.state {
            CallState::New | CallState::Gating => ToolCallStatus::New,
            CallState::Suspended { .. } => ToolCallStatus::Suspended,
            CallState::Held { .. } | CallState::Regating { .. } => ToolCallStatus::Resuming,
            CallState::Running { .. } => ToolCallStatus::Running,
            CallState::Closed { status } => *status,
        }
    }

    /// Returns whether work on the call is in progress.
    pub fn is_in_flight(&self) -> bool {
        match self.state {
            CallState::Gating | CallState::Regating { .. } | CallState::Running { .. } => true,
            CallState::New
            | CallState::Suspended { .. }
            | CallState::Held { .. }
            | CallState::Closed { .. } => false,
        }
    }

    /// Returns whether the call is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, CallState::Closed { .. })
    }

    /// The question that is open or was answered last.
    pub fn ticket(&self) -> Option<&SuspendTicket> {
        match &self.state {
            CallState::Suspended { ticket }
            | CallState::Held { ticket, .. }
            | CallState::Regating { ticket, .. } => Some(ticket),
            CallState::Running { allowed_by } => allowed_by.as_ref().map(|(ticket, _)| ticket),
            CallState::New | CallState::Gating | CallState::Closed { .. } => None,
        }
    }

    /// The decision that lets it run.
    pub fn decision(&self) -> Option<&ToolCallResume> {
        match &self.state {
            CallState::Held { decision, .. } | CallState::Regating { decision, .. } => Some(decision),
            CallState::Running { allowed_by } => allowed_by.as_ref().map(|(_, decision)| decision),
            CallState::New | CallState::Gating | CallState::Suspended { .. } | CallState::Closed { .. } => {
                None
            }
        }
    }

    /// The question whose decision the next execution spends; `None` when it needs none or it is spent.
    pub fn spends(&self) -> Option<(&SuspendTicket, &DecisionId)> {
        let decision = self.decision()?;
        if self.spent.as_ref() == Some(&decision.decision_id) {
            return None;
        }
        Some((self.ticket()?, &decision.decision_id))
    }
}
