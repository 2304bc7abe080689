//! The two tools over what servers have to read: a list, and one of it.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::error::McpServerError;
use super::server::ServerSet;
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

const LIST: &str = "ListMcpResources";
const READ: &str = "ReadMcpResource";
/// Rows that the model reads.
const MAX_ROWS: usize = 200;

pub(super) fn both(servers: &Arc<ServerSet>) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(List(Arc::clone(servers))), Arc::new(Read(Arc::clone(servers)))]
}

struct List(Arc<ServerSet>);
struct Read(Arc<ServerSet>);

fn text<'a>(args: &'a Value, name: &str) -> Result<Option<&'a str>, ToolError> {
    match args.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ToolError::InvalidArguments(format!("`{name}` must be a string"))),
    }
}

fn failed(error: McpServerError) -> ToolError {
    ToolError::ExecutionFailed(error.to_string())
}

fn needed<'a>(args: &'a Value, name: &str) -> Result<&'a str, ToolError> {
    text(args, name)?.ok_or_else(|| ToolError::InvalidArguments(format!("`{name}` is missing")))
}

#[async_trait]
impl Tool for List {
    fn descriptor(&self) -> ToolDescriptor {
        let description = "Lists the resources of the connected MCP servers: server, URI and name of each.";
        ToolDescriptor::new(LIST, LIST, description)
            .with_parameters(json!({
                "type": "object",
                "properties": {"server": {"type": "string", "description": "only this server's resources"}}
            }))
            .with_category("mcp")
            .with_class(ToolClass::Pure)
            .with_primary_argument("server")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        text(args, "server").map(drop)
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let rows = tokio::select! {
            rows = self.0.resources(text(&args, "server")?) => rows.map_err(failed)?,
            () = ctx.cancellation.cancelled() => return Err(ToolError::ExecutionFailed("cancelled".to_owned())),
        };
        let mut out = String::new();
        for [server, uri, name, description] in rows.iter().take(MAX_ROWS) {
            let short: String = description.chars().take(200).collect();
            let _ = writeln!(out, "{server}  {uri}  {name}  {}", short.replace('\n', " "));
        }
        if rows.len() > MAX_ROWS {
            let _ = writeln!(out, "[{} more]", rows.len() - MAX_ROWS);
        }
        if out.is_empty() {
            out.push_str("(no resources)");
        }
        super::content::bound(&mut out, 64 << 10);
        Ok(ToolResult::text(LIST, out).into())
    }
}

#[async_trait]
impl Tool for Read {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new(READ, READ, "Reads one resource of an MCP server.")
            .with_parameters(json!({
                "type": "object",
                "properties": {"server": {"type": "string"}, "uri": {"type": "string"}},
                "required": ["server", "uri"]
            }))
            .with_category("mcp")
            .with_class(ToolClass::Opaque)
            .with_primary_argument("uri")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        needed(args, "server").and(needed(args, "uri")).map(drop)
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let content = tokio::select! {
            content = self.0.resource(needed(&args, "server")?, needed(&args, "uri")?) => content,
            () = ctx.cancellation.cancelled() => return Err(ToolError::ExecutionFailed("cancelled".to_owned())),
        };
        let content = content.map_err(failed)?;
        let mut result = ToolResult::text(READ, content.text);
        result.images = content.images;
        Ok(result.into())
    }
}
