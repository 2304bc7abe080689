//! Tools that another agent runs: a gate has them judged, asked about and recorded, and does nothing else.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

/// What a program is a gate for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GateKind {
    /// Nothing: it is not a gate.
    #[default]
    None,
    /// One MCP server, whose tools it calls.
    Server,
    /// The tools of another agent, which that agent runs itself.
    Hook,
}

/// A tool of another agent, which runs it itself once its call is allowed.
pub(crate) struct PermitTool(ToolDescriptor);

impl PermitTool {
    /// Has another agent run a tool that aye has, too: the rules about it are the same.
    pub(crate) fn like(tool: &Arc<dyn Tool>) -> Arc<dyn Tool> {
        let mut descriptor = tool.descriptor();
        descriptor.class = ToolClass::Opaque;
        Arc::new(Self(descriptor))
    }

    /// A tool that aye knows by name only.
    pub(crate) fn named(name: &str) -> Arc<dyn Tool> {
        Arc::new(Self(ToolDescriptor::new(name, name, "a tool of another agent")))
    }
}

#[async_trait]
impl Tool for PermitTool {
    fn descriptor(&self) -> ToolDescriptor {
        self.0.clone()
    }

    async fn execute(&self, _: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::text(self.0.id.as_str(), "allowed; the agent that asked runs it").into())
    }
}
