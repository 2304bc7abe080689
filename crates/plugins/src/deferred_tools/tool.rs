//! The tool that finds deferred tools.

use std::fmt::Write as _;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::search::{MAX_RESULTS, Query, search};
use super::state::{DeferralRegistry, PromoteToolAction};
use aye_core::context::function_line;
use aye_core::contract::display::visible_line;
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_core::phase::StepShape;
use aye_core::state::StateCommand;

/// Id of the tool that finds deferred tools.
pub const TOOL_SEARCH: &str = "ToolSearch";
/// Maximum bytes of a query.
const MAX_QUERY: usize = 2000;

/// Finds deferred tools and has them offered from the next step on.
pub struct ToolSearchTool;

fn query_of(args: &Value) -> Result<Query, ToolError> {
    let wrong = |why: &str| ToolError::InvalidArguments(why.to_owned());
    let text = args.get("query").and_then(Value::as_str).ok_or_else(|| wrong("`query` must be a string"))?;
    if text.len() > MAX_QUERY {
        return Err(wrong("`query` is too long; a few words are enough"));
    }
    Query::parse(text).ok_or_else(|| wrong("`query` is empty; write search words, or `select:` and names"))
}

fn limit_of(args: &Value) -> Result<usize, ToolError> {
    let Some(value) = args.get("max_results").filter(|value| !value.is_null()) else {
        return Ok(MAX_RESULTS);
    };
    let limit = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n >= 1);
    let wrong = || ToolError::InvalidArguments("`max_results` must be a number from 1 to 5".to_owned());
    limit.map(|n| n.min(MAX_RESULTS)).ok_or_else(wrong)
}

#[async_trait]
impl Tool for ToolSearchTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new(TOOL_SEARCH, "Tool search", include_str!("tool_search.md").trim_end())
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "search words, or `select:` and names"},
                    "max_results": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS}
                },
                "required": ["query"],
                "additionalProperties": false
            }))
            .with_class(ToolClass::Pure)
            .with_primary_argument("query")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        query_of(args)?;
        limit_of(args).map(|_| ())
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let (query, limit) = (query_of(&args)?, limit_of(&args)?);
        let registry = ctx.state::<DeferralRegistry>().and_then(|registry| registry.0.as_ref());
        let view = registry
            .filter(|view| view.is_on())
            .ok_or_else(|| ToolError::ExecutionFailed("no tools are deferred; all are loaded".into()))?;
        let step = ctx.state::<StepShape>();
        let mut found = search(&view.index, &query, |tool| step.is_some_and(|step| step.withholds(tool)));
        found.left_out += found.tools.len().saturating_sub(limit);
        found.tools.truncate(limit);
        let mut text = String::new();
        if found.tools.is_empty() {
            let _ = write!(
                text,
                "no tool matches; {} are deferred. Search for other words, or load a tool by name with `select:`.",
                view.index.deferrable.len()
            );
        } else {
            // For the user, who sees the first lines.
            let names: Vec<_> = found.tools.iter().map(|tool| visible_line(&tool.id)).collect();
            let _ = write!(text, "loaded: {}\n<functions>\n", names.join(", "));
            for tool in &found.tools {
                let _ = writeln!(text, "{}", function_line(tool));
            }
            text.push_str("</functions>\nYou can call them by name from your next turn, although your list of tools stays the same.");
        }
        if found.left_out > 0 {
            let _ = write!(text, "\n{} more match; narrow the search to see them.", found.left_out);
        }
        if !found.unknown.is_empty() {
            let names: Vec<_> = found.unknown.iter().map(|name| visible_line(name)).collect();
            let _ = write!(text, "\nunknown tools: {}", names.join(", "));
        }
        let ids: Vec<_> = found.tools.iter().map(|tool| tool.id.clone()).collect();
        let result = if ids.is_empty() && matches!(query, Query::Select(_)) {
            ToolResult::error(TOOL_SEARCH, text)
        } else {
            ToolResult::text(TOOL_SEARCH, text)
        };
        let mut command = StateCommand::new();
        let wanted: Vec<_> = ids.into_iter().filter(|id| view.index.deferrable.contains_key(id)).collect();
        if !wanted.is_empty() {
            command
                .schedule_action::<PromoteToolAction>(wanted)
                .map_err(|error| ToolError::Internal(error.to_string()))?;
        }
        Ok(ToolOutput::with_command(result, command))
    }
}
