//! Answers to questions, as the protocols hand them in.

use aye_core::contract::digest::sha256_hex;
use aye_core::contract::ids::{DecisionId, SuspensionId};
use aye_core::contract::record::SuspensionRecord;
use aye_core::contract::suspension::{ResumeDecisionAction, ToolCallResume};
use serde_json::{Value, json};

/// A client's answer to a pending question.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientAnswer {
    pub suspension_id: SuspensionId,
    pub action: ResumeDecisionAction,
    /// The payload; `null` if there is none.
    pub result: Value,
    /// The user's comment on the decision.
    pub reason: Option<String>,
    /// The arguments to run with instead, when the user edited them.
    pub arguments: Option<Value>,
}

impl ClientAnswer {
    /// An approval or a denial.
    pub(crate) fn new(id: impl Into<SuspensionId>, is_approved: bool) -> Self {
        let action = if is_approved { ResumeDecisionAction::Resume } else { ResumeDecisionAction::Cancel };
        Self { suspension_id: id.into(), action, result: Value::Null, reason: None, arguments: None }
    }

    /// Makes what the user wrote beside an approval the answer of a question that asks for text.
    pub(crate) fn fill_from_reason(&mut self, asked: &SuspensionRecord) {
        let suspension = &asked.ticket.suspension;
        if !suspension.is_choice() || self.action != ResumeDecisionAction::Resume || !self.result.is_null() {
            return;
        }
        let Some(text) = self.reason.take() else { return };
        let is_list = suspension
            .response_schema
            .as_ref()
            .is_some_and(|schema| schema.pointer("/properties/answers").is_some());
        self.result = if is_list { json!({"answers": [text]}) } else { json!({"answer": text}) };
    }

    /// Returns the decision to store. Its id follows from the answer, so that a request which a client repeats counts
    /// once, while another answer to the same question is refused as a second one.
    pub fn into_decision(self, now_ms: u64) -> (SuspensionId, ToolCallResume) {
        let content =
            json!([self.suspension_id, self.action, self.result, self.reason, self.arguments]).to_string();
        let resume = ToolCallResume {
            decision_id: DecisionId::from(format!("client-{}", &sha256_hex(content)[..32])),
            action: self.action,
            result: self.result,
            reason: self.reason,
            arguments: self.arguments,
            profile: None,
            updated_at: now_ms,
        };
        (self.suspension_id, resume)
    }
}

/// Why a request of a client cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRequestError {
    /// Member of the request that is wrong.
    pub field: &'static str,
    /// A description of the problem and its remedy.
    pub message: String,
}

impl ClientRequestError {
    pub(crate) fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into() }
    }
}

impl std::fmt::Display for ClientRequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`: {}", self.field, self.message)
    }
}

impl std::error::Error for ClientRequestError {}
