//! The agents of aye as tools of an MCP server: over HTTP below `/v1/mcp`, and over stdin and stdout.
//!
//! One tool for each agent. A question becomes a request to the user where the client can ask one; otherwise the call
//! ends with an error that names the question and how to answer it, and the run keeps waiting.

use std::sync::Arc;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::Message;
use aye_core::contract::record::SuspensionRecord;
use aye_core::contract::suspension::{ACTION_PERMISSION, Answer};
use aye_runtime::RunRequest;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, DiscoverRequestMethod,
    DiscoverResult, Implementation, JsonObject, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{ElicitationError, RequestContext, RoleServer, ServerInitializeError};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, ServiceExt as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{Caller, TokenScope};
use super::card::QuestionCard;
use super::error::ApiError;
use super::follow::Frame;
use super::guard::{MAX_BODY, demand};
use super::hub::Hub;
use super::reading::RunReader;
use super::routes::{decide, now_ms, thread_of};

/// The description of this server for clients.
const INSTRUCTIONS: &str = "Each tool is an agent that works in a project folder. An agent's calls that its rules do \
                            not allow wait for a user. Pass the thread_id of a result to continue that conversation.";

/// The arguments of an agent's tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentCall {
    message: String,
    thread_id: Option<String>,
}

/// The form that a user fills in.
#[derive(Debug, Deserialize, JsonSchema)]
struct Approval {
    /// Whether the call may run.
    approve: bool,
    /// What the agent should know about the answer.
    reason: Option<String>,
}

rmcp::elicit_safe!(Approval);

/// The agents of a hub as tools.
#[derive(Clone)]
pub(super) struct AgentTools {
    hub: Arc<Hub>,
    /// The caller if no request names one.
    local: Option<Caller>,
}

/// The service of `/v1/mcp`. Host, origin and token were checked before.
pub(super) fn http(hub: &Arc<Hub>) -> StreamableHttpService<AgentTools, LocalSessionManager> {
    let tools = AgentTools { hub: Arc::clone(hub), local: None };
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(MAX_BODY)
        .with_cancellation_token(hub.closing.child_token());
    StreamableHttpService::new(move || Ok(tools.clone()), Arc::default(), config)
}

/// Why a client could not be served.
#[derive(Debug, thiserror::Error)]
pub enum McpServeError {
    /// Client and server do not understand each other.
    #[error(transparent)]
    Start(#[from] Box<ServerInitializeError>),
    /// The server panicked.
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
}

/// Serves one client over stdin and stdout until it goes or the hub closes.
///
/// # Errors
/// [`McpServeError`].
pub async fn serve_stdio(hub: Arc<Hub>) -> Result<(), McpServeError> {
    let closing = hub.closing.clone();
    let local = Caller { token: "stdio".to_owned(), scopes: TokenScope::ALL.to_vec(), correlation_id: None };
    let tools = AgentTools { hub, local: Some(local) };
    let serving = async {
        let running = tools.serve(rmcp::transport::stdio()).await.map_err(Box::new)?;
        running.waiting().await?;
        Ok(())
    };
    tokio::select! {
        done = serving => done,
        () = closing.cancelled() => Ok(()),
    }
}

fn failed(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

impl From<ApiError> for ErrorData {
    fn from(error: ApiError) -> Self {
        if error.status().is_server_error() {
            return ErrorData::internal_error(error.message().to_owned(), None);
        }
        ErrorData::invalid_params(error.message().to_owned(), None)
    }
}

impl AgentTools {
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ApiError> {
        let request = context.extensions.get::<axum::http::request::Parts>();
        let caller = request.and_then(|request| request.extensions.get::<Caller>()).or(self.local.as_ref());
        caller.cloned().ok_or_else(|| ApiError::internal("a call has no caller"))
    }

    async fn agents(&self) -> Result<Vec<Value>, ApiError> {
        let all = self.hub.program.capabilities().await?;
        Ok(all["agents"].as_array().cloned().unwrap_or_default())
    }

    /// Runs an agent until it is done or a question cannot be asked here.
    async fn run(
        &self,
        agent: &str,
        call: AgentCall,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ApiError> {
        demand(caller, TokenScope::Chat)?;
        let hub = &self.hub;
        let thread = thread_of(hub, call.thread_id.as_deref()).await?;
        if hub.is_busy(&thread.id).await? {
            return Ok(failed(format!(
                "the conversation {} has an active run or a pending question",
                thread.id
            )));
        }
        let mut reader = RunReader::new(hub, &thread.id).await?;
        let mut request = RunRequest::new(thread.id.clone(), vec![Message::user(call.message)]);
        request.agent_id = Some(agent.to_owned());
        request.correlation_id.clone_from(&caller.correlation_id);
        let run = hub.begin(&thread, request).await?;
        let mut steps = 0.0;
        loop {
            reader = reader.of(run.clone());
            let end = loop {
                let frame = tokio::select! {
                    frame = reader.next() => frame,
                    () = context.ct.cancelled() => {
                        hub.cancel(&thread).await?;
                        return Ok(failed("cancelled"));
                    }
                };
                let Some(Frame::Event { event, .. }) = frame else {
                    return Ok(failed("the client read too slowly; the run continues in its conversation"));
                };
                match &*event {
                    AgentEvent::ToolCallReady { name, .. } => {
                        steps += 1.0;
                        progress(context, steps, name).await;
                    }
                    AgentEvent::RunFinish { termination, result, .. } => {
                        break (termination.clone(), AgentEvent::extract_response(result));
                    }
                    _ => {}
                }
            };
            let about = json!({ "thread_id": thread.id, "run_id": run });
            match end {
                (TerminationReason::Suspended, _) => {
                    let open = hub.store().waiting_below(&thread.id).await?;
                    // Made before the answer, so that nothing that follows is missed.
                    let next = RunReader::new(hub, &thread.id).await?;
                    for question in &open {
                        if let Some(refused) = self.ask(question, caller, context).await? {
                            return Ok(refused);
                        }
                    }
                    let now = hub.store().load_run(&run).await?;
                    if open.is_empty() && now.is_some_and(|run| run.status == RunStatus::Waiting) {
                        return Ok(failed(format!("the run waits for its subagents; see {about}")));
                    }
                    reader = next;
                }
                (TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested, text) => {
                    let mut done = CallToolResult::success(vec![ContentBlock::text(text)]);
                    done.structured_content = Some(about);
                    return Ok(done);
                }
                (TerminationReason::Cancelled, _) => return Ok(failed("the run was cancelled")),
                (TerminationReason::Blocked(why) | TerminationReason::Error(why), _) => {
                    return Ok(failed(why));
                }
                (TerminationReason::Stopped(why), text) => {
                    return Ok(failed(format!("stopped: {}\n{text}", why.detail.unwrap_or(why.code))));
                }
            }
        }
    }

    /// Asks the user of the client. Returns `Some` if the user cannot be asked there, with the other ways to
    /// answer.
    async fn ask(
        &self,
        question: &SuspensionRecord,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<CallToolResult>, ApiError> {
        let thread = self.hub.store().load_thread(&question.thread_id).await?;
        let card = QuestionCard::of(question, thread.as_ref());
        let elsewhere = || {
            failed(format!(
                "waiting for a decision: {} ({}). Answer it with `aye approve {id}` or `aye deny {id}`, or POST \
                 /v1/approvals/{id}/approve; the run then resumes.",
                card.title,
                card.summary,
                id = question.id,
            ))
        };
        if question.ticket.suspension.action != ACTION_PERMISSION || !caller.may(TokenScope::Decide) {
            return Ok(Some(elsewhere()));
        }
        let reach = card.reach.map_or_else(String::new, |reach| format!("\n{reach}"));
        let asked = format!("{}\n\n{}\n\n{}{reach}", card.title, card.summary, card.why);
        let answer = match context.peer.elicit::<Approval>(asked).await {
            Ok(Some(Approval { approve: true, reason })) => Answer { reason, ..Answer::yes(Value::Null) },
            Ok(Some(Approval { approve: false, reason })) => Answer::no(reason),
            Ok(None) | Err(ElicitationError::UserDeclined) => Answer::no(None),
            // There was no answer, or the user cannot be asked: the question stays pending.
            Err(_) => return Ok(Some(elsewhere())),
        };
        let resume = answer.resume(now_ms());
        let _accepted = decide(&self.hub, caller, &question.id, resume).await?;
        Ok(None)
    }
}

async fn progress(context: &RequestContext<RoleServer>, steps: f64, tool: &str) {
    if let Some(token) = context.meta.get_progress_token() {
        let told = ProgressNotificationParam::new(token, steps).with_message(tool);
        // A client that is gone is noticed by its cancellation.
        let _ = context.peer.notify_progress(told).await;
    }
}

impl ServerHandler for AgentTools {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("aye", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    /// Refuses the stateless revision 2026-07-28, which clients offer first: it has no way to ask the client's user. They
    /// fall back to a session.
    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        Err(ErrorData::method_not_found::<DiscoverRequestMethod>())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        demand(&self.caller(&context)?, TokenScope::Read)?;
        let schema = json!({
            "type": "object",
            "properties": {
                "message": { "type": "string", "description": "The task for the agent" },
                "thread_id": { "type": "string", "description": "A conversation to continue" },
            },
            "required": ["message"],
            "additionalProperties": false,
        });
        let schema: Arc<JsonObject> = Arc::new(schema.as_object().cloned().unwrap_or_default());
        let tool = |agent: &Value| {
            let about = agent["description"].as_str().unwrap_or("An aye agent").to_owned();
            Some(Tool::new(agent["id"].as_str()?.to_owned(), about, Arc::clone(&schema)))
        };
        Ok(ListToolsResult::with_all_items(self.agents().await?.iter().filter_map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(&context)?;
        if !self.agents().await?.iter().any(|agent| agent["id"] == *request.name) {
            return Err(ErrorData::invalid_params(format!("unknown tool `{}`", request.name), None));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let call = match serde_json::from_value::<AgentCall>(arguments) {
            Ok(call) if !call.message.trim().is_empty() => call,
            Ok(_) => return Ok(failed("`message` is empty").into()),
            Err(error) => return Ok(failed(format!("invalid arguments: {error}")).into()),
        };
        Ok(self.run(&request.name, call, &caller, &context).await?.into())
    }
}
