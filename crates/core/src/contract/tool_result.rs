//! How a call ended.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::content::ContentBlock;
use super::judgement::Profile;
use super::suspension::SuspendTicket;
use crate::state::StateError;

/// The status of a call's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Success,
    /// The call is suspended.
    Pending,
    /// The call failed; the model reads why.
    Error,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    pub tool_name: String,
    /// The status of the call.
    pub status: ToolStatus,
    /// The structured result. If there is also a message, the model reads both, unless `data` is null.
    #[serde(default)]
    pub data: Value,
    /// The text for the model and the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The question, when it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Box<SuspendTicket>>,
    /// For the front ends only, never for the model: `exit_code`, `profile`, `diff`, `truncated`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Pictures for models that take them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ContentBlock>,
    /// The user's changes to the call before it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched: Option<Box<UserEdit>>,
}

/// The user's changes to a call beyond approving it: edited arguments, or a comment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UserEdit {
    /// For the model, before the result.
    pub words: String,
    /// The arguments in place of the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The user's comment on the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl ToolResult {
    fn of(tool: impl Into<String>, status: ToolStatus, data: Value, message: Option<String>) -> Self {
        Self {
            tool_name: tool.into(),
            status,
            data,
            message,
            suspension: None,
            details: None,
            images: Vec::new(),
            touched: None,
        }
    }

    /// A success with structured data.
    pub fn success(tool: impl Into<String>, data: Value) -> Self {
        Self::of(tool, ToolStatus::Success, data, None)
    }

    /// A success with structured data and text.
    pub fn success_with_message(tool: impl Into<String>, data: Value, message: impl Into<String>) -> Self {
        Self::of(tool, ToolStatus::Success, data, Some(message.into()))
    }

    /// A success that is text.
    pub fn text(tool: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(tool, ToolStatus::Success, Value::Null, Some(message.into()))
    }

    /// A failure the model can do something about.
    pub fn error(tool: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(tool, ToolStatus::Error, Value::Null, Some(message.into()))
    }

    /// A failure with a machine-readable code.
    pub fn error_with_code(
        tool: impl Into<String>,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::of(tool, ToolStatus::Error, json!({"code": code.into()}), Some(message.into()))
    }

    /// Waits, for a reason without a ticket.
    pub fn suspended(tool: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(tool, ToolStatus::Pending, Value::Null, Some(message.into()))
    }

    /// Waits for the decision that the ticket asks for.
    pub fn suspended_with(
        tool: impl Into<String>,
        message: impl Into<String>,
        ticket: SuspendTicket,
    ) -> Self {
        Self { suspension: Some(Box::new(ticket)), ..Self::suspended(tool, message) }
    }

    /// Adds what only front ends read.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    fn with_detail(mut self, name: &str, value: &str) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        if let Some(details) = details.as_object_mut() {
            details.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Adds what front ends show in place of the text, which is written for the model.
    #[must_use]
    pub fn with_shown(self, shown: impl AsRef<str>) -> Self {
        self.with_detail("shown", shown.as_ref())
    }

    /// Adds what the kernel kept the call's programs to.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        self.with_detail("profile", profile.word())
    }

    /// Returns the profile that the kernel enforced on the call's programs; `None` for a call that started
    /// none.
    pub fn profile(&self) -> Option<Profile> {
        serde_json::from_value(self.details.as_ref()?.get("profile")?.clone()).ok()
    }

    /// Returns the text that front ends show in place of the message, if there is one.
    pub fn shown(&self) -> Option<&str> {
        self.details.as_ref()?.get("shown")?.as_str()
    }

    /// Returns what happened in one line; for a command that failed without a word, how it ended.
    pub fn headline(&self) -> &str {
        let why = self.details.as_ref().and_then(|details| details.get("why")?.as_str());
        why.or(self.shown())
            .or(self.message.as_deref())
            .and_then(|text| text.lines().next())
            .unwrap_or_default()
    }

    /// Returns whether the call succeeded.
    pub fn is_success(&self) -> bool {
        self.status == ToolStatus::Success
    }

    /// Returns whether the call waits.
    pub fn is_pending(&self) -> bool {
        self.status == ToolStatus::Pending
    }

    /// Returns whether the call failed.
    pub fn is_error(&self) -> bool {
        self.status == ToolStatus::Error
    }

    /// The whole result as JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// The text that the model reads.
    pub fn model_text(&self) -> String {
        let text = match (&self.message, &self.data) {
            (Some(message), Value::Null) => message.clone(),
            (Some(message), data) => format!("{message}\n{data}"),
            (None, Value::String(text)) => text.clone(),
            (None, data) => data.to_string(),
        };
        match &self.touched {
            Some(touched) if !touched.words.is_empty() => format!("{}\n{text}", touched.words),
            Some(_) | None => text,
        }
    }
}

/// Why a call could not be made at all. The model reads it as an error result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ToolError {
    /// The arguments are wrong.
    #[error("invalid arguments: {0}")]
    InvalidArguments(String),
    /// It was tried and went wrong.
    #[error("{0}")]
    ExecutionFailed(String),
    /// The same, with advice for the model that a user does not need.
    #[error("{text}")]
    Advised {
        /// What the model reads.
        text: String,
        /// What front ends show.
        shown: String,
    },
    /// It is not allowed.
    #[error("denied: {0}")]
    Denied(String),
    /// A required item was not found.
    #[error("not found: {0}")]
    NotFound(String),
    /// The effect of the call would differ from what the user approved; nothing was done. The user is asked
    /// again.
    #[error("{0}")]
    Moved(String),
    /// A fault of ours.
    #[error("internal error: {0}")]
    Internal(String),
}

impl ToolError {
    /// Returns the result that the model reads and front ends show.
    pub fn into_result(self, tool: &str) -> ToolResult {
        let result = ToolResult::error(tool, self.to_string());
        match self {
            Self::Advised { shown, .. } => result.with_shown(shown),
            Self::InvalidArguments(_)
            | Self::ExecutionFailed(_)
            | Self::Denied(_)
            | Self::NotFound(_)
            | Self::Moved(_)
            | Self::Internal(_) => result,
        }
    }
}

impl From<StateError> for ToolError {
    /// Lets a tool use `?` on what it asks of the state.
    fn from(error: StateError) -> Self {
        Self::Internal(error.to_string())
    }
}
