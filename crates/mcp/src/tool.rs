//! A server's tool as a tool of ours.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, ServerResult};
use serde_json::{Value, json};

use super::Surroundings;
use super::call_session::{CallSession, ElicitationReply, ReplyRoute};
use super::client::CallError;
use super::content::tool_result;
use super::elicitation::{Elicitation, surface_id, surface_of};
use super::list::ServerTool;
use super::questions::{KEPT, Questions, WaitingCall};
use super::server::Server;
use aye_core::contract::clock::Clock;
use aye_core::contract::surface::ACTION_SURFACE;
use aye_core::contract::suspension::{PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode};
use aye_core::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};

pub(super) struct McpTool {
    server: Arc<Server>,
    name: String,
    hash: String,
    descriptor: ToolDescriptor,
    questions: Questions,
    clock: Arc<dyn Clock>,
}

impl McpTool {
    pub(super) fn new(server: &Arc<Server>, found: &ServerTool, around: &Surroundings) -> Self {
        Self {
            server: Arc::clone(server),
            name: found.name.clone(),
            hash: found.hash.clone(),
            descriptor: found.descriptor.clone(),
            questions: around.questions.clone(),
            clock: Arc::clone(&around.clock),
        }
    }
}

impl McpTool {
    /// Makes the call ready, when it may be made.
    async fn begin(&self, args: Value, ctx: &ToolCallContext) -> Result<CallSession, ToolError> {
        let client = tokio::select! {
            client = self.server.client() => client.map_err(|error| ToolError::NotFound(error.to_string()))?,
            () = ctx.cancellation.cancelled() => return Err(ToolError::ExecutionFailed("cancelled".to_owned())),
        };
        // The tool may have changed since it was offered; only the one that a user trusted is called.
        if !self.server.offers(&self.name, &self.hash) {
            return Err(ToolError::NotFound(format!(
                "the tool {} changed since the user trusted it. It was not called",
                self.descriptor.id
            )));
        }
        let mut params = CallToolRequestParams::new(self.name.clone());
        if let Value::Object(arguments) = args {
            params.arguments = Some(arguments);
        }
        Ok(CallSession::new(client, params, self.server.config.timeout))
    }

    /// Turns a server's question into one for the user, and keeps the call open for the answer.
    fn ask(
        &self,
        call_session: CallSession,
        question: Elicitation,
        reply: ReplyRoute,
        before: Option<(&Value, &str)>,
        args: Value,
        ctx: &ToolCallContext,
    ) -> ToolOutput {
        let (id, server) = (self.descriptor.id.as_str(), self.server.config.name.as_str());
        let surface = surface_id();
        let words = question.words(server);
        let kept = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
        let ticket = SuspendTicket {
            suspension: Suspension {
                // Call ids are unique in a run only.
                id: format!("mcp_{}_{}", ctx.call_id, ctx.run_identity.run_id).into(),
                action: ACTION_SURFACE.into(),
                message: words.clone(),
                parameters: json!({"server": server, "surface": question.form(&surface, server, &self.name, before)}),
                response_schema: Some(question.response_schema(&surface)),
                expires_at: Some(self.clock.now_ms().saturating_add(kept)),
            },
            pending: PendingToolCall {
                id: ctx.call_id.as_str().into(),
                name: id.to_owned(),
                arguments: args,
            },
            resume_mode: ToolCallResumeMode::ReplayToolCall,
        };
        let run = ctx.run_identity.run_id.to_string();
        self.questions.park(surface, WaitingCall { run, call_session, question, reply });
        ToolResult::suspended_with(id, words, ticket).into()
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
        let failed = |why: String| Ok(ToolOutput::from(ToolResult::error(id, why)));
        let mut call_session = match surface_of(ctx.resume.as_ref()) {
            None => self.begin(args.clone(), ctx).await?,
            Some(surface) => {
                let run = ctx.run_identity.run_id.as_str();
                let parked = self.questions.take(surface).filter(|parked| parked.run == run);
                let Some(WaitingCall { mut call_session, question, reply, .. }) = parked else {
                    return failed(format!(
                        "the server {server} asked the user during this call, and the connection was lost \
                         before the answer. The outcome is unknown; check, then call again if still needed"
                    ));
                };
                let payload = ctx.resume.as_ref().map_or(&Value::Null, |resume| &resume.result);
                match question.answer(payload) {
                    Ok(answer) => call_session.answer(reply, answer),
                    // An answer that the server did not ask for is not sent to it.
                    Err(why) => {
                        let before = payload.get("dataModel").unwrap_or(&Value::Null);
                        return Ok(self.ask(call_session, question, reply, Some((before, &why)), args, ctx));
                    }
                }
                call_session
            }
        };
        let answer = match call_session.advance(ctx).await {
            ElicitationReply::Result(answer) => answer,
            ElicitationReply::Question(question, reply) => {
                return Ok(self.ask(call_session, question, reply, None, args, ctx));
            }
        };
        match answer {
            Ok(ServerResult::CallToolResult(result)) => {
                Ok(tool_result(id, &server, &self.name, result).into())
            }
            Ok(_) => failed(format!("the server {server} returned an invalid tool result")),
            Err(error @ CallError::Refused(_)) => failed(format!("error from the server {server}: {error}")),
            Err(CallError::Cancelled) => Err(ToolError::ExecutionFailed("cancelled".to_owned())),
            Err(error @ (CallError::Timeout(_) | CallError::Gone | CallError::Nonsense(_))) => {
                failed(format!("the server {server}: {error}; the outcome is unknown; check before retrying"))
            }
        }
    }
}
