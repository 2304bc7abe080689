//! A server's tool as a tool of ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ServerResult};
use serde_json::Value;

use super::client::CallError;
use super::content::tool_result;
use super::list::Found;
use super::server::Server;
use crate::contract::progress::ProgressStatus;
use crate::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};

/// Progress is passed on no more often.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// See the module's text.
pub(super) struct McpTool {
    server: Arc<Server>,
    name: String,
    hash: String,
    descriptor: ToolDescriptor,
}

impl McpTool {
    pub(super) fn new(server: &Arc<Server>, found: &Found) -> Self {
        Self {
            server: Arc::clone(server),
            name: found.name.clone(),
            hash: found.hash.clone(),
            descriptor: found.descriptor.clone(),
        }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn descriptor(&self) -> ToolDescriptor {
        self.descriptor.clone()
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        if args.is_object() || args.is_null() {
            return Ok(());
        }
        Err(ToolError::InvalidArguments("the arguments must be an object".to_owned()))
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let id = self.descriptor.id.as_str();
        let server = self.server.name();
        let client = tokio::select! {
            client = self.server.client() => client.map_err(ToolError::NotFound)?,
            () = ctx.cancellation.cancelled() => return Err(ToolError::ExecutionFailed("cancelled".to_owned())),
        };
        // It may have changed since it was offered; what a person agreed to is what is called.
        if !self.server.offers(&self.name, &self.hash) {
            return Err(ToolError::NotFound(format!(
                "the tool {id} is not what the person agreed to any more; it was not called"
            )));
        }
        let mut params = CallToolRequestParams::new(self.name.clone());
        if let Value::Object(arguments) = args {
            params.arguments = Some(arguments);
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut reported: Option<Instant> = None;
        let answer = client
            .call(request, self.server.config.timeout, &ctx.cancellation, |progress| {
                let is_due = reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
                if is_due {
                    reported = Some(Instant::now());
                }
                async move {
                    if is_due {
                        let part =
                            progress.total.filter(|total| *total > 0.0).map(|total| progress.done / total);
                        let part = part.filter(|part| part.is_finite()).map(|part| part.clamp(0.0, 1.0));
                        ctx.report_progress(ProgressStatus::Running, progress.message.as_deref(), part).await;
                    }
                }
            })
            .await;
        let failed = |why: String| Ok(ToolOutput::from(ToolResult::error(id, why)));
        match answer {
            Ok(ServerResult::CallToolResult(result)) => {
                Ok(tool_result(id, &server, &self.name, result).into())
            }
            Ok(ServerResult::InputRequiredResult(_)) => failed(format!(
                "the server {server} wants to ask the person something, which is not possible here"
            )),
            Ok(_) => failed(format!("the server {server} gave an answer that is no result of a tool")),
            Err(error @ CallError::Refused(_)) => failed(format!("the server {server} says: {error}")),
            Err(CallError::Cancelled) => Err(ToolError::ExecutionFailed("cancelled".to_owned())),
            Err(error @ (CallError::Timeout(_) | CallError::Gone | CallError::Nonsense(_))) => {
                failed(format!(
                    "the server {server}: {error}; whether the call did anything is not known, look before you repeat it"
                ))
            }
        }
    }
}
