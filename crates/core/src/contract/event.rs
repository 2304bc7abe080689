//! The events of a run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::inference::{StopReason, TokenUsage};
use super::lifecycle::{TerminationReason, ToolCallOutcome};
use super::suspension::{
    ACTION_RUN_QUESTION, ACTION_WAIT, PendingToolCall, ResumeDecisionAction, SuspendTicket,
};
use super::tool_result::ToolResult;

/// One event of a run. Orders are fixed: see the event orders in `src/ARCHITECTURE.md`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event_type", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The run starts, or resumes after a wait (same run id).
    RunStart {
        thread_id: String,
        run_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_run_id: Option<String>,
    },
    /// The run ended, or waits (`termination: suspended`).
    RunFinish {
        thread_id: String,
        run_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        termination: TerminationReason,
    },
    TextDelta {
        delta: String,
    },
    ReasoningDelta {
        delta: String,
    },
    /// Thoughts that only the provider can read.
    ReasoningEncryptedValue {
        encrypted_value: String,
    },
    /// The first part of a call arrives.
    ToolCallStart {
        id: String,
        name: String,
    },
    /// More of its arguments, as JSON text.
    ToolCallDelta {
        id: String,
        args_delta: String,
    },
    /// The call is complete.
    ToolCallReady {
        id: String,
        name: String,
        arguments: Value,
    },
    /// The call is settled, or waits (`outcome: suspended`; the result carries the ticket).
    ToolCallDone {
        id: String,
        message_id: String,
        result: ToolResult,
        outcome: ToolCallOutcome,
    },
    /// Output of a running tool.
    ToolCallStreamDelta {
        id: String,
        name: String,
        delta: String,
    },
    /// A decision arrived for the call; `result` is its payload, or `{"edited": arguments}` when it runs with others.
    ToolCallResumed {
        target_id: String,
        result: Value,
    },
    /// The whole conversation.
    MessagesSnapshot {
        messages: Vec<Value>,
    },
    /// The state of an activity; `replace: false` leaves an existing one alone.
    ActivitySnapshot {
        message_id: String,
        activity_type: String,
        content: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replace: Option<bool>,
    },
    /// A change of an activity, as JSON patch operations.
    ActivityDelta {
        message_id: String,
        activity_type: String,
        patch: Vec<Value>,
    },
    /// An inference and its calls start.
    StepStart {
        message_id: String,
    },
    StepEnd,
    /// The model's answer is complete.
    InferenceComplete {
        model: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<TokenUsage>,
        duration_ms: u64,
        /// Why the model stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
    },
    /// The whole shared state: the values of all persistent keys, by key. Only for a sink that wants it.
    StateSnapshot {
        snapshot: Value,
    },
    /// A change of it, as JSON patch operations, one for each key.
    StateDelta {
        delta: Vec<Value>,
    },
    Error {
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
}

impl AgentEvent {
    /// The response text of a `RunFinish` result: `{"response": "..."}`, or a bare string.
    pub fn extract_response(result: &Option<Value>) -> String {
        let Some(value) = result else { return String::new() };
        value.get("response").unwrap_or(value).as_str().unwrap_or_default().to_owned()
    }
}

/// An event on the wire: one line of `stream-json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamEvent {
    /// Counts up from 1 within a run's stream.
    pub seq: u64,
    /// RFC 3339.
    pub timestamp: String,
    /// The client's id for the request that the run serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The event, its fields beside `seq` and `timestamp`.
    #[serde(flatten)]
    pub event: AgentEvent,
}

impl AgentEvent {
    /// Returns the events of a question whose call now waits. The call of a question about the run is
    /// announced first, because no model made it.
    pub fn asked(ticket: &SuspendTicket, message_id: &str) -> Vec<Self> {
        let PendingToolCall { id, name, arguments } = ticket.pending.clone();
        let id = id.to_string();
        let mut events = Vec::new();
        if [ACTION_RUN_QUESTION, ACTION_WAIT].contains(&ticket.suspension.action.as_str()) {
            events.push(Self::ToolCallStart { id: id.clone(), name: name.clone() });
            events.push(Self::ToolCallReady { id: id.clone(), name: name.clone(), arguments });
        }
        let text = ticket.suspension.message.clone();
        events.push(Self::ToolCallDone {
            id,
            message_id: message_id.to_owned(),
            result: ToolResult::suspended_with(name, text, ticket.clone()),
            outcome: ToolCallOutcome::Suspended,
        });
        events
    }
}

impl StreamEvent {
    pub fn new(seq: u64, timestamp: impl Into<String>, event: AgentEvent) -> Self {
        Self { seq, timestamp: timestamp.into(), correlation_id: None, event }
    }

    /// Says what the client calls the request.
    #[must_use]
    pub fn with_correlation_id(mut self, id: Option<String>) -> Self {
        self.correlation_id = id;
        self
    }
}

/// The input that starts or resumes a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunInput {
    /// A message from the user.
    UserMessage { text: String },
    /// A decision for a call that waits.
    ResumeDecision {
        tool_call_id: String,
        action: ResumeDecisionAction,
        /// The payload, left out when null.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        payload: Value,
    },
}

/// A stream of events.
pub type RunOutput = futures::stream::BoxStream<'static, AgentEvent>;
