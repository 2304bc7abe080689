//! Interception of a tool call by a plugin at the gate.

use serde::{Deserialize, Serialize};

use super::suspension::SuspendTicket;
use super::tool::ToolResult;
use crate::scheduled_actions;

/// The action to take instead of executing. Priority: `Block`, then `Deny`, then `Suspend`, then `SetResult`;
/// among equals the first one scheduled counts, except that a question with the same id replaces the one that
/// counts, so that a later plugin can add to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum ToolInterceptPayload {
    /// The call fails and the run ends.
    Block { reason: String },
    /// The call gets this error result without having run, and the user is not asked.
    Deny(ToolResult),
    /// The call waits for a decision.
    Suspend(SuspendTicket),
    /// The call has this result without having run.
    SetResult(ToolResult),
}

scheduled_actions! {
    /// The core action that carries a [`ToolInterceptPayload`].
    pub ToolInterceptAction = "tool_intercept" in BeforeToolExecute: ToolInterceptPayload;
}
