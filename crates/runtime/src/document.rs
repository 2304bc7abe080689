//! What a checkpoint stores of a run besides its messages: the machine, and what the machine does not know.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use aye_core::contract::ids::{CallId, MessageId};
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::tool::ToolResult;
use aye_core::run::Run;

/// The format this version writes. A higher one is refused by name.
pub(crate) const FORMAT: u32 = 1;

/// The result of one call of the current step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub outcome: ToolCallOutcome,
    /// What the model reads.
    pub result: ToolResult,
}

/// The stored form of an unfinished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDocument {
    /// The version of this form; a higher one is refused by name.
    pub format: u32,
    /// The machine.
    pub machine: Run,
    /// The calls of the current step, as the model asked for them.
    pub calls: Vec<ToolCall>,
    /// The results so far, in the order they came.
    pub results: Vec<CallResult>,
    /// The results stand in the thread already.
    pub recorded: bool,
    /// The message of the current step.
    pub message_id: MessageId,
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
    /// Writes it.
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

    /// The results as the tool messages they will be, in call order: what a front end shows of an open step.
    pub fn tool_messages(&self) -> Vec<Message> {
        self.calls
            .iter()
            .filter_map(|call| self.results.iter().find(|r| r.call.as_str() == call.id))
            .map(tool_message)
            .collect()
    }
}

/// A result as the message that the model reads.
pub fn tool_message(result: &CallResult) -> Message {
    let mut message = Message::tool(result.call.as_str(), result.result.model_text());
    message.content.extend(result.result.images.iter().cloned());
    let mut stored = result.result.clone();
    // The pictures stand in the message's content already.
    stored.images.clear();
    message.metadata = Some(serde_json::json!({"tool_result": stored, "outcome": result.outcome}));
    message
}
