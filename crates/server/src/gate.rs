//! The tools of another server, offered to a client over stdin and stdout. What stands between the two decides about each
//! call.

use std::sync::Arc;

use aye_core::contract::content::ContentBlock as Block;
use aye_core::contract::tool::{ToolResult, ToolStatus};
use futures::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, DiscoverResult, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ErrorData, ServerHandler, ServiceExt as _};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::mcp::{MAX_CALLS, McpServeError, Progress, demand_session, failed, no_discovery};
use super::mcp_transport::{BoundedTransport, MAX_REQUESTS};

/// A tool as its server describes it.
#[derive(Clone, Debug)]
pub struct GatedTool {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
}

/// What stands between a client and a server.
pub trait GateHost: Send + Sync + 'static {
    /// The name of the server.
    fn name(&self) -> String;

    /// The tools that the client may see.
    fn tools(&self) -> Vec<GatedTool>;

    /// Decides about a call and makes it. The token is cancelled when the client gives up.
    ///
    /// # Errors
    /// Why nothing was decided, for the client.
    fn call(
        &self,
        tool: String,
        arguments: Value,
        given_up: CancellationToken,
    ) -> BoxFuture<'_, Result<ToolResult, String>>;
}

#[derive(Clone)]
struct GateServer {
    host: Arc<dyn GateHost>,
    /// Bounds the calls that run or wait at once.
    calls: Arc<Semaphore>,
}

/// Serves one client over stdin and stdout until it goes.
///
/// # Errors
/// [`McpServeError`].
pub async fn serve_gate(host: Arc<dyn GateHost>) -> Result<(), McpServeError> {
    let (stdin, stdout) = rmcp::transport::stdio();
    let pipe = BoundedTransport::new(AsyncRwTransport::new_server(stdin, stdout), MAX_REQUESTS);
    let gate = GateServer { host, calls: Arc::new(Semaphore::new(MAX_CALLS)) };
    let running = Box::pin(gate.serve(pipe)).await.map_err(Box::new)?;
    running.waiting().await?;
    Ok(())
}

fn block(block: &Block) -> Option<ContentBlock> {
    match block {
        Block::Image { media_type, data } => Some(ContentBlock::image(data.clone(), media_type.clone())),
        Block::Text { .. }
        | Block::StoredImage(_)
        | Block::Thinking { .. }
        | Block::Opaque { .. }
        | Block::ToolCall { .. } => None,
    }
}

fn answer(result: &ToolResult) -> CallToolResult {
    let mut content = vec![ContentBlock::text(result.model_text())];
    content.extend(result.images.iter().filter_map(block));
    match result.status {
        ToolStatus::Success => CallToolResult::success(content),
        ToolStatus::Pending | ToolStatus::Error => CallToolResult::error(content),
    }
}

impl ServerHandler for GateServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(self.host.name(), env!("CARGO_PKG_VERSION"));
        info
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        Err(no_discovery())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        demand_session(&context)?;
        let tool = |tool: GatedTool| {
            let schema: Arc<JsonObject> = Arc::new(tool.schema.as_object().cloned().unwrap_or_default());
            Tool::new(tool.name, tool.description, schema)
        };
        Ok(ListToolsResult::with_all_items(self.host.tools().into_iter().map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        demand_session(&context)?;
        let Ok(_place) = self.calls.try_acquire() else {
            return Ok(failed(format!(
                "{MAX_CALLS} calls run or wait already; call again when some are done"
            ))
            .into());
        };
        let _progress = Progress::start(&context);
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let called = self.host.call(request.name.to_string(), arguments, context.ct.clone()).await;
        Ok(called.map_or_else(failed, |result| answer(&result)).into())
    }
}
