use async_trait::async_trait;
use serde_json::{Value, json};

use super::state::{Surfaces, SurfacesUpdate};
use super::validation::apply_messages;
use aye_core::contract::question::QuestionParameters;
use aye_core::contract::surface::{ACTION_SURFACE, Surface};
use aye_core::contract::suspension::{PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_core::state::StateCommand;

pub const RENDER_TOOL: &str = "render_a2ui";

/// The tool that shows surfaces; it waits for the user if the last surface that a call touches has a button.
pub struct A2uiRenderTool;

#[async_trait]
impl Tool for A2uiRenderTool {
    fn descriptor(&self) -> ToolDescriptor {
        let description = include_str!("render_a2ui.md").trim();
        ToolDescriptor::new(RENDER_TOOL, "Show a surface", description)
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "messages": {"type": "array", "items": {"type": "object"}, "description": "A2UI messages, in order"}
                },
                "required": ["messages"]
            }))
            .with_category("ui")
            .with_class(ToolClass::Pure)
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let before = ctx.state::<Surfaces>().cloned().unwrap_or_default();
        let mut surfaces = before.clone();
        let touched = apply_messages(&args, &mut surfaces)
            .map_err(|error| ToolError::InvalidArguments(error.to_string()))?;
        let mut command = StateCommand::new();
        for id in &touched {
            match surfaces.get(id) {
                Some(surface) => {
                    command.update::<Surfaces>(SurfacesUpdate::Put(Box::new(surface.clone())));
                }
                None => command.update::<Surfaces>(SurfacesUpdate::Delete(id.clone())),
            }
        }
        let shown: Vec<&Surface> = touched
            .iter()
            .filter_map(|id| surfaces.get(id))
            .filter(|surface| !surface.root.is_empty())
            .collect();
        let result = match shown.last() {
            Some(surface) if surface.is_form() => {
                let message = format!("the surface `{}` is waiting for the user", surface.id);
                ToolResult::suspended_with(RENDER_TOOL, message, ticket(surface, &args, ctx))
            }
            Some(_) | None => {
                ToolResult::success(RENDER_TOOL, json!({"a2ui": args["messages"], "rendered": true}))
                    .with_details(json!({ "surfaces": shown }))
            }
        };
        Ok(ToolOutput::with_command(result, command))
    }
}

fn ticket(surface: &Surface, args: &Value, ctx: &ToolCallContext) -> SuspendTicket {
    SuspendTicket {
        suspension: Suspension {
            // Call ids are unique in a run only.
            id: format!("ui_{}_{}", ctx.call_id, ctx.run_identity.run_id).into(),
            action: ACTION_SURFACE.into(),
            message: format!("fill in `{}`", surface.id),
            parameters: QuestionParameters {
                surface: Some(Box::new(surface.clone())),
                ..QuestionParameters::default()
            }
            .into(),
            response_schema: Some(json!({
                "type": "object",
                "properties": {
                    "userAction": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "examples": surface.actions()},
                            "surfaceId": {"const": surface.id},
                            "sourceComponentId": {"type": "string"},
                            "context": {"type": "object"}
                        },
                        "required": ["name", "surfaceId"]
                    },
                    "dataModel": {"examples": [surface.data]}
                },
                "required": ["userAction"]
            })),
            expires_at: None,
        },
        pending: PendingToolCall {
            id: ctx.call_id.as_str().into(),
            name: RENDER_TOOL.into(),
            arguments: args.clone(),
        },
        resume_mode: ToolCallResumeMode::UseDecisionAsToolResult,
    }
}
