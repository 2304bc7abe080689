//! The part of a run that a checkpoint stores besides its messages: the machine, and what the machine does
//! not know.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use aye_core::contract::ids::{CallId, MessageId};
use aye_core::contract::lifecycle::{RunStatus, ToolCallOutcome};
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::record::RunRecord;
use aye_core::contract::tool::ToolResult;
use aye_core::run::Run;

/// The format this version writes. A higher one is refused by name.
pub(crate) const FORMAT: u32 = 1;

/// The result of one call of the current step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    pub call: CallId,
    /// The outcome of the call.
    pub outcome: ToolCallOutcome,
    /// The result that the model reads.
    pub result: ToolResult,
}

/// The stored form of an unfinished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDocument {
    /// The version of this form; a higher one is refused by name.
    pub format: u32,
    pub machine: Run,
    /// The revision of the published agents that the run started with; 0 if none was published.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: u64,
    #[serde(flatten)]
    pub step: CurrentStep,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One answer of the model, and the results of its calls so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurrentStep {
    /// The calls, as the model asked for them.
    pub calls: Vec<ToolCall>,
    /// The results so far, in the order they came.
    pub results: Vec<CallResult>,
    /// Whether the results are already in the thread.
    pub recorded: bool,
    pub message_id: MessageId,
}

impl CurrentStep {
    /// A step whose message has these calls.
    pub fn new(message_id: MessageId, calls: Vec<ToolCall>) -> Self {
        Self { calls, results: Vec::new(), recorded: false, message_id }
    }

    /// The call with this id.
    pub fn call(&self, id: &CallId) -> Option<&ToolCall> {
        self.calls.iter().find(|call| call.id == id.as_str())
    }

    /// Returns the result of a call.
    pub fn result(&self, id: &CallId) -> Option<&CallResult> {
        self.results.iter().find(|result| result.call == *id)
    }

    /// Takes the calls of the answer.
    pub(crate) fn answered(&mut self, calls: &[ToolCall]) {
        self.calls = calls.to_vec();
        self.results.clear();
        self.recorded = calls.is_empty();
    }

    /// Sets the result of a call, replacing an earlier one.
    pub(crate) fn set_result(&mut self, result: CallResult) {
        self.remove_result(&result.call);
        self.results.push(result);
    }

    pub(crate) fn remove_result(&mut self, id: &CallId) {
        self.results.retain(|result| result.call != *id);
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.calls.iter().all(|call| self.results.iter().any(|result| result.call.as_str() == call.id))
    }

    /// The results as the tool messages they will be, in call order: what a front end shows of an open step.
    pub fn tool_messages(&self) -> Vec<Message> {
        let result_of = |call: &ToolCall| self.results.iter().find(|result| result.call.as_str() == call.id);
        self.calls.iter().filter_map(result_of).map(tool_message).collect()
    }
}

/// Why a stored run cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// A newer version wrote it.
    #[error("it was saved by a newer version (format {0}, this version supports {FORMAT})")]
    NewerFormat(u64),
    /// It is not what we write.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

impl RunDocument {
    /// The results of a run's current step that are not in its conversation yet, as messages in call order. None when
    /// the run is done or its document cannot be read.
    pub fn unrecorded_results(run: &RunRecord) -> Vec<Message> {
        let document = Self::from_value(&run.machine).ok().filter(|_| run.status != RunStatus::Done);
        let open = document.filter(|document| !document.step.recorded);
        open.map(|document| document.step.tool_messages()).unwrap_or_default()
    }

    /// The revision of the published agents that a run started with, even if the rest cannot be read.
    pub(crate) fn revision_of(run: &RunRecord) -> u64 {
        run.machine.get("revision").and_then(Value::as_u64).unwrap_or(0)
    }

    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_value(value: &Value) -> Result<Self, DocumentError> {
        if let Some(format) = value.get("format").and_then(Value::as_u64)
            && format > u64::from(FORMAT)
        {
            return Err(DocumentError::NewerFormat(format));
        }
        serde_json::from_value(value.clone()).map_err(|e| DocumentError::Unreadable(e.to_string()))
    }
}

/// A result as the message that the model reads.
pub fn tool_message(result: &CallResult) -> Message {
    let mut message = Message::tool(result.call.as_str(), result.result.model_text());
    message.content.extend(result.result.images.iter().cloned());
    let mut stored = result.result.clone();
    // The images are already in the message's content.
    stored.images.clear();
    message.metadata = Some(serde_json::json!({"tool_result": stored, "outcome": result.outcome}));
    message
}
