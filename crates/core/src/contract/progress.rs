//! Progress that a running tool reports.

use serde::{Deserialize, Serialize};

/// The activity type of [`ToolCallProgressState`].
pub const TOOL_CALL_PROGRESS_ACTIVITY_TYPE: &str = "tool-call-progress";
/// [`ToolCallProgressState::schema`].
pub const TOOL_CALL_PROGRESS_SCHEMA: &str = "tool-call-progress.v1";
/// The activity type of [`InferenceRetry`](super::activity::InferenceRetry).
pub const INFERENCE_RETRY_ACTIVITY_TYPE: &str = "inference-retry";

/// The progress of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressStatus {
    #[default]
    Pending,
    Running,
    Done,
    /// Ended with an error.
    Failed,
    /// Cancelled before it was done.
    Cancelled,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolCallProgressState {
    /// [`TOOL_CALL_PROGRESS_SCHEMA`].
    pub schema: String,
    pub node_id: String,
    pub call_id: String,
    pub tool_name: String,
    /// The status of the call.
    pub status: ProgressStatus,
    /// 0.0 to 1.0, absent when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// Absolute count done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<u64>,
    /// Absolute count in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The text for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The node this one belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_node_id: Option<String>,
    /// The call this one belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_call_id: Option<String>,
}
