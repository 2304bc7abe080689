//! Tools that a client declares and runs: a call of one waits, and the decision is its result. They belong to the
//! run: any process that resumes it offers them too.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::driver::Driver;
use super::parts::ClientTools;
use super::request::RuntimeError;
use aye_core::contract::question::QuestionParameters;
use aye_core::contract::suspension::{
    ACTION_FRONTEND_TOOL, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye_core::state::MutationBatch;

impl Driver {
    /// Takes in the tools of the client that asks for the run.
    pub(super) fn declare(&mut self, tools: Vec<ToolDescriptor>) -> Result<(), RuntimeError> {
        for (place, tool) in tools.iter().enumerate() {
            let twice = tools[..place].iter().any(|other| other.id == tool.id);
            if twice || self.agent.tools.contains_key(&tool.id) {
                let message = format!("the client's tool `{}` has the name of an existing tool", tool.id);
                return Err(RuntimeError::ResolveFailed { message });
            }
        }
        let mut batch = MutationBatch::new();
        batch.update::<ClientTools>(tools);
        self.phases.store().commit_batch(batch)?;
        self.offer_client_tools();
        Ok(())
    }

    /// Offers the client's tools beside those of the agent; a name that the agent has meanwhile is the agent's.
    pub(super) fn offer_client_tools(&mut self) {
        for tool in self.phases.store().read::<ClientTools>().unwrap_or_default() {
            if !self.agent.tools.contains_key(&tool.id) {
                self.agent = self.agent.clone().with_tool(Arc::new(FrontendTool::new(tool)));
            }
        }
    }
}

/// A tool that a client declares and runs.
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
        let message = format!("{name} runs in the client");
        let ticket = SuspendTicket {
            suspension: Suspension {
                // Call ids are unique in a run only.
                id: format!("client_{}_{}", ctx.call_id, ctx.run_identity.run_id).into(),
                action: ACTION_FRONTEND_TOOL.into(),
                message: message.clone(),
                parameters: QuestionParameters {
                    tool: Some(name.clone()),
                    arguments: Some(args.clone()),
                    ..QuestionParameters::default()
                }
                .into(),
                response_schema: None,
                expires_at: None,
            },
            pending: PendingToolCall { id: ctx.call_id.as_str().into(), name: name.clone(), arguments: args },
            resume_mode: ToolCallResumeMode::UseDecisionAsToolResult,
        };
        Ok(ToolResult::suspended_with(name, message, ticket).into())
    }
}
