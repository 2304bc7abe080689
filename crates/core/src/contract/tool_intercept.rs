//! How a plugin stops a tool call at the gate.

use serde::{Deserialize, Serialize};

use super::suspension::SuspendTicket;
use super::tool::ToolResult;
use crate::state::{Phase, ScheduledActionSpec};

/// What is to be done instead of executing. Priority: `Block`, then `Deny`, then `Suspend`, then `SetResult`; among
/// equals the first one scheduled counts, except that a question with the id of the one that counts replaces it: so
/// can one who comes later add to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum ToolInterceptPayload {
    /// The call fails and the run ends.
    Block {
        /// Why.
        reason: String,
    },
    /// The call has this error result without having run, and nobody is asked about it.
    Deny(ToolResult),
    /// The call waits for a decision.
    Suspend(SuspendTicket),
    /// The call has this result without having run.
    SetResult(ToolResult),
}

/// The core action that carries a [`ToolInterceptPayload`].
pub struct ToolInterceptAction;

impl ScheduledActionSpec for ToolInterceptAction {
    const KEY: &'static str = "tool_intercept";
    const PHASE: Phase = Phase::BeforeToolExecute;
    type Payload = ToolInterceptPayload;
}
