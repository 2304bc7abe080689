//! The agents of aye as tools of an MCP server: over HTTP below `/v1/mcp`, and over stdin and stdout.
//!
//! One tool for each agent. A question becomes a request to the user where the client can ask one; otherwise the call
//! ends with an error that names the question and how to answer it, and the run keeps waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aye_core::contract::event::AgentEvent;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::Message;
use aye_core::contract::record::SuspensionRecord;
use aye_core::contract::suspension::{ACTION_PERMISSION, Answer};
use aye_runtime::RunRequest;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, DiscoverResult, ErrorCode,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{ElicitationError, Peer, RequestContext, RoleServer, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, ServiceExt as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::access::{Caller, TokenScope};
use super::card::QuestionCard;
use super::clock::now_ms;
use super::error::ApiError;
use super::follow::Frame;
use super::guard::{MAX_BODY, demand};
use super::hub::Hub;
use super::mcp_transport::{BoundedTransport, MAX_REQUESTS};
use super::reading::RunReader;
use super::routes::approvals::decide;
use super::routes::threads::thread_of;

/// The description of this server for clients.
const INSTRUCTIONS: &str = "Each tool is an agent that works in a project folder. An agent's calls that its rules do \
                            not allow wait for a user. Pass the thread_id of a result to continue that conversation.";

/// The newest revision that this server speaks. The next one has no handshake and no session, so a run that waits for a
/// user could not ask that user.
const NEWEST: ProtocolVersion = ProtocolVersion::V_2025_11_25;
/// Clients give up on a call after a minute without a sign of it.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Maximum calls that run or wait at once.
pub(super) const MAX_CALLS: usize = 256;
// Every other request is answered at once. So there is always a place to read what a waiting call needs: an answer of the
// user, or its cancellation.
const _: () = assert!(MAX_CALLS < MAX_REQUESTS);

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
    /// Bounds the calls that run or wait at once.
    calls: Arc<Semaphore>,
}

/// The service of `/v1/mcp`. Host, origin and token were checked before.
pub(super) fn http(hub: &Arc<Hub>) -> StreamableHttpService<AgentTools, LocalSessionManager> {
    let tools = AgentTools::new(Arc::clone(hub), None);
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
    let tools = AgentTools::new(hub, Some(local));
    let serving = async {
        let (stdin, stdout) = rmcp::transport::stdio();
        let pipe = BoundedTransport::new(AsyncRwTransport::new_server(stdin, stdout), MAX_REQUESTS);
        let running = Box::pin(tools.serve(pipe)).await.map_err(Box::new)?;
        running.waiting().await?;
        Ok(())
    };
    tokio::select! {
        done = serving => done,
        () = closing.cancelled() => Ok(()),
    }
}

pub(super) fn failed(text: impl Into<String>) -> CallToolResult {
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
    fn new(hub: Arc<Hub>, local: Option<Caller>) -> Self {
        Self { hub, local, calls: Arc::new(Semaphore::new(MAX_CALLS)) }
    }

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
        let progress = Progress::start(context);
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
                    AgentEvent::ToolCallReady { name, .. } => progress.report(name).await,
                    AgentEvent::TextDelta { .. } | AgentEvent::ReasoningDelta { .. } => {
                        progress.report_if_due("writing").await;
                    }
                    AgentEvent::RunFinish { termination, result, .. } => {
                        break (termination.clone(), AgentEvent::extract_response(result));
                    }
                    _ => {}
                }
            };
            let about = json!({ "thread_id": thread.id, "run_id": run });
            let (termination, text) = end;
            match termination {
                TerminationReason::Suspended => {
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
                TerminationReason::Cancelled => return Ok(failed("the run was cancelled")),
                TerminationReason::Blocked(why) | TerminationReason::Error(why) => return Ok(failed(why)),
                TerminationReason::Stopped(why) if !why.is_goal() => {
                    return Ok(failed(format!("stopped: {}\n{text}", why.detail.unwrap_or(why.code))));
                }
                TerminationReason::NaturalEnd
                | TerminationReason::BehaviorRequested
                | TerminationReason::Stopped(_) => {
                    let mut done = CallToolResult::success(vec![ContentBlock::text(text)]);
                    done.structured_content = Some(about);
                    return Ok(done);
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
        let suspension = &question.ticket.suspension;
        if let Some(left) = suspension.resumes_in(now_ms()) {
            return Ok(Some(failed(format!(
                "{}; the run resumes by itself in {left}, in the conversation {}",
                suspension.message, question.thread_id
            ))));
        }
        let thread = self.hub.store().load_thread(&question.thread_id).await?;
        let card = QuestionCard::of(question, thread.as_ref());
        let elsewhere = || {
            let is_plain = question.ticket.approval().is_some();
            failed(format!(
                "waiting for a decision: {} ({}). Answer it with `{}` or `aye deny {id}`, or POST \
                 /v1/approvals/{id}/{}; the run then resumes.",
                card.title,
                card.summary,
                question.ticket.answer_command(),
                if is_plain { "approve" } else { "answer" },
                id = question.id,
            ))
        };
        if suspension.action != ACTION_PERMISSION || !caller.may(TokenScope::Decide) {
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

/// Reports the progress of a call to a client that asked for it, and that the call goes on while nothing else is known
/// of it. Ends when it is dropped.
pub(super) struct Progress {
    to: Option<Arc<ProgressChannel>>,
    beat: Option<tokio::task::JoinHandle<()>>,
    last: std::sync::Mutex<Option<Instant>>,
}

struct ProgressChannel {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    count: AtomicU64,
}

impl ProgressChannel {
    async fn send(&self, what: &str) {
        // The count only has to grow.
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let report = ProgressNotificationParam::new(self.token.clone(), count as f64).with_message(what);
        // A client that is gone is noticed by its cancellation.
        let _ = self.peer.notify_progress(report).await;
    }
}

impl Progress {
    pub(super) fn start(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        let to = token.map(|token| {
            let count = AtomicU64::new(0);
            Arc::new(ProgressChannel { peer: context.peer.clone(), token, count })
        });
        let beat = to.clone().map(|to| {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(PROGRESS_EVERY).await;
                    to.send("working").await;
                }
            })
        });
        Self { to, beat, last: std::sync::Mutex::default() }
    }

    async fn report(&self, what: &str) {
        if let Some(to) = &self.to {
            *self.last.lock().expect("no panic while it is held") = Some(Instant::now());
            to.send(what).await;
        }
    }

    /// Reports what comes often.
    async fn report_if_due(&self, what: &str) {
        let last = *self.last.lock().expect("no panic while it is held");
        if last.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY) {
            self.report(what).await;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(beat) = &self.beat {
            beat.abort();
        }
    }
}

/// Refuses a request of a revision without sessions.
pub(super) fn demand_session(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    match context.meta.protocol_version() {
        Some(version) if version > NEWEST => {
            Err(ErrorData::unsupported_protocol_version(version, ProtocolVersion::known_up_to(&NEWEST)))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses the revision 2026-07-28, which clients offer first. They fall back to a session after this error, and not
/// after the one for an unsupported version.
pub(super) fn no_discovery() -> ErrorData {
    let supported = ProtocolVersion::known_up_to(&NEWEST);
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("server/discover: this server speaks {NEWEST} and older revisions; send initialize"),
        Some(json!({ "supported": supported })),
    )
}

impl ServerHandler for AgentTools {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("aye", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
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
        let result = json!({
            "type": "object",
            "properties": {
                "thread_id": { "type": "string", "description": "The conversation, to continue it" },
                "run_id": { "type": "string" },
            },
            "required": ["thread_id", "run_id"],
        });
        let object = |schema: Value| Arc::new(schema.as_object().cloned().unwrap_or_default());
        let (schema, result): (Arc<JsonObject>, Arc<JsonObject>) = (object(schema), object(result));
        let tool = |agent: &Value| {
            let about = agent["description"].as_str().unwrap_or("An aye agent").to_owned();
            let tool = Tool::new(agent["id"].as_str()?.to_owned(), about, Arc::clone(&schema));
            Some(tool.with_raw_output_schema(Arc::clone(&result)))
        };
        Ok(ListToolsResult::with_all_items(self.agents().await?.iter().filter_map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        demand_session(&context)?;
        let caller = self.caller(&context)?;
        let Ok(_place) = self.calls.try_acquire() else {
            return Ok(failed(format!(
                "{MAX_CALLS} calls run or wait already; call again when some are done"
            ))
            .into());
        };
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
