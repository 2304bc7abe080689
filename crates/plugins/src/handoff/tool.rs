//! The tool `handoff`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{ActiveAgentKey, request_handoff};
use aye_core::contract::near::or_these;
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_core::state::StateCommand;

/// The name of the tool.
pub const HANDOFF_TOOL: &str = "handoff";

/// Asks for another agent. Made for each agent with those that it names.
pub(super) struct HandoffTool {
    targets: BTreeMap<String, Option<String>>,
}

impl HandoffTool {
    pub(super) fn new(targets: BTreeMap<String, Option<String>>) -> Self {
        Self { targets }
    }
}

#[async_trait]
impl Tool for HandoffTool {
    fn descriptor(&self) -> ToolDescriptor {
        let mut about = include_str!("handoff.md").trim_end().to_owned();
        for (id, description) in &self.targets {
            let _ = write!(about, "\n- {id}");
            if let Some(description) = description {
                let line: String = description.split_whitespace().collect::<Vec<_>>().join(" ");
                let _ = write!(about, ": {}", line.chars().take(400).collect::<String>());
            }
        }
        ToolDescriptor::new(HANDOFF_TOOL, HANDOFF_TOOL, about)
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "agent": {
                        "type": "string",
                        "enum": self.targets.keys().collect::<Vec<_>>(),
                        "description": "the agent to hand off to"
                    },
                    "message": {
                        "type": "string",
                        "description": "what is left to do, and what that agent must know beyond the \
                              conversation"
                    }
                },
                "required": ["agent"],
                "additionalProperties": false
            }))
            // Asking twice is asking once.
            .with_class(ToolClass::Pure)
            .with_primary_argument("agent")
    }

    async fn execute(&self, args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let agent = args["agent"].as_str().unwrap_or_default().trim();
        if !self.targets.contains_key(agent) {
            let known = or_these(agent, self.targets.keys().map(String::as_str));
            let text = format!("unknown agent `{agent}`{known}; nothing was handed off");
            return Ok(ToolResult::error_with_code(HANDOFF_TOOL, "unknown_agent", text).into());
        }
        let mut command = StateCommand::new();
        command.update::<ActiveAgentKey>(request_handoff(agent));
        let message = args["message"].as_str().map(str::trim).filter(|text| !text.is_empty());
        let text = match message {
            Some(message) => {
                format!("You are `{agent}` from here on; continue the conversation. {message}")
            }
            None => format!("You are `{agent}` from here on; continue the conversation."),
        };
        let result = ToolResult::text(HANDOFF_TOOL, text).with_shown(format!("handed off to {agent}"));
        Ok(ToolOutput::with_command(result, command))
    }
}
