//! Tools that a client declares and carries out: a call of one waits, and its answer is the result.

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::contract::suspension::{
    ACTION_FRONTEND_TOOL, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use crate::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};

/// See the module's text.
pub struct FrontendTool {
    descriptor: ToolDescriptor,
}

impl FrontendTool {
    /// A tool of a client.
    pub fn new(descriptor: ToolDescriptor) -> Self {
        Self { descriptor }
    }
}

#[async_trait]
impl Tool for FrontendTool {
    fn descriptor(&self) -> ToolDescriptor {
        self.descriptor.clone()
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let name = &self.descriptor.id;
        let message = format!("{name} is carried out by the client");
        let ticket = SuspendTicket {
            suspension: Suspension {
                // Call ids are unique in a run only.
                id: format!("client_{}_{}", ctx.call_id, ctx.run_identity.run_id).into(),
                action: ACTION_FRONTEND_TOOL.into(),
                message: message.clone(),
                parameters: json!({"tool": name, "arguments": args}),
                response_schema: None,
                expires_at: None,
            },
            pending: PendingToolCall { id: ctx.call_id.as_str().into(), name: name.clone(), arguments: args },
            resume_mode: ToolCallResumeMode::UseDecisionAsToolResult,
        };
        Ok(ToolResult::suspended_with(name, message, ticket).into())
    }
}
