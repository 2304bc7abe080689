//! A call as it runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aye_core::contract::message::ToolCall;
use aye_core::contract::tool::{ParsedCall, Tool, ToolDescriptor, ToolError, prepare_call};

/// A call with the user's arguments or the model's, as its tool has parsed them.
pub(super) struct ReadyCall {
    pub(super) call: ToolCall,
    pub(super) parsed: Arc<dyn ParsedCall>,
    tool: Arc<dyn Tool>,
}

impl ReadyCall {
    /// Has a tool parse the arguments of a call.
    pub(super) fn new(call: ToolCall, tool: Arc<dyn Tool>) -> Result<Self, ToolError> {
        let parsed = catch_unwind(AssertUnwindSafe(|| prepare_call(&tool, &call.arguments)));
        let parsed = parsed
            .unwrap_or_else(|_| Err(ToolError::ExecutionFailed("the tool failed on its arguments".into())))?;
        Ok(Self { call, parsed, tool })
    }

    /// Returns whether it was made of these arguments, by this tool.
    pub(super) fn is_of(&self, call: &ToolCall, tool: &Arc<dyn Tool>) -> bool {
        Arc::ptr_eq(&self.tool, tool) && self.call.arguments == call.arguments
    }

    pub(super) fn descriptor(&self) -> ToolDescriptor {
        self.tool.descriptor()
    }
}
