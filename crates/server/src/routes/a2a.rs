//! A2A v1.0 over HTTP and JSON: other agents send tasks here. `aye-encode` defines the wire format.
//!
//! A task is a run and its context is a conversation. Each path may start with the name of an agent as a
//! tenant.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{JobId, RunId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::mailbox::{MailboxJob, MailboxJobOrigin, MailboxJobStatus};
use aye_core::contract::message::Message;
use aye_core::contract::record::{RunRecord, SuspensionRecord, ThreadRecord};
use aye_core::contract::storage::{Slice, SuspensionFilter};
use aye_encode::a2a::{
    A2A_BINDING, A2A_CARD_PATH, A2A_RPC_BINDING, A2A_VERSION, A2A_VERSION_HEADER, A2aCapabilities,
    A2aConfiguration, A2aEncoder, A2aIntent, A2aInterface, A2aMessage, A2aResponse, A2aSendRequest, A2aTask,
    A2aTaskState, A2aTaskStatus, task,
};
use aye_runtime::RunRequest;
use futures::Stream;
use serde::Deserialize;
use serde_json::{Value, json};

use super::a2a_push::{self, A2aPushConfig, PushOperation};
use super::ai_sdk::thread_of;
use super::{HubState, Paging, approvals, now_ms};
use crate::access::{Caller, TokenScope};
use crate::api::{Api, Operation as Operations};
use crate::error::ApiError;
use crate::follow::{Follower, Frame};
use crate::guard::demand;
use crate::host::ServerTexts;
use crate::hub::Hub;
use crate::reading::RunReader;
use crate::sse;

pub(super) fn routes(api: Api) -> Api {
    api.get(A2A_CARD_PATH, "Show the agent card", &[], card)
        .also(Router::new().route("/v1/a2a/{*rest}", get(serve).post(serve).delete(serve)), &OPERATIONS)
}

/// The operations of the protocol; each path may start with the name of an agent.
const OPERATIONS: [Operations; 12] = [
    ("post", "/v1/a2a/rpc", "Call a method of the protocol by JSON-RPC", "a2a::rpc"),
    ("post", "/v1/a2a/message:send", "Send a message and wait", "a2a::send"),
    ("post", "/v1/a2a/message:stream", "Send a message and stream", "a2a::stream"),
    ("get", "/v1/a2a/tasks", "List tasks", "a2a::list"),
    ("get", "/v1/a2a/tasks/{id}", "Show a task", "a2a::show"),
    ("post", "/v1/a2a/tasks/{id}:cancel", "Cancel a task", "a2a::cancel"),
    ("post", "/v1/a2a/tasks/{id}:subscribe", "Follow a task", "a2a::subscribe"),
    (
        "post",
        "/v1/a2a/tasks/{id}/pushNotificationConfigs",
        "Add a push notification config to a task",
        "a2a::push",
    ),
    (
        "get",
        "/v1/a2a/tasks/{id}/pushNotificationConfigs",
        "List the push notification configs of a task",
        "a2a::pushes",
    ),
    ("get", "/v1/a2a/tasks/{id}/pushNotificationConfigs/{config}", "Show an address", "a2a::show_push"),
    ("delete", "/v1/a2a/tasks/{id}/pushNotificationConfigs/{config}", "Forget an address", "a2a::stop_push"),
    (
        "get",
        "/v1/a2a/extendedAgentCard",
        "Show the agent card for callers with a token",
        "a2a::extended_card",
    ),
];

/// An error by the name that clients know it by.
pub(super) struct A2aError {
    status: StatusCode,
    reason: &'static str,
    message: String,
}

impl A2aError {
    pub(super) fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }

    fn no_task(id: &str) -> Self {
        let shown: String = id.chars().take(80).collect();
        Self::new(StatusCode::NOT_FOUND, "TASK_NOT_FOUND", format!("there is no task `{shown}`"))
    }

    fn unsupported(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "UNSUPPORTED_OPERATION", message)
    }

    fn details(&self) -> Value {
        json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": "a2a-protocol.org",
        }])
    }

    /// The error of a JSON-RPC response.
    fn rpc(&self) -> Value {
        let code = match self.reason {
            "TASK_NOT_FOUND" => -32001,
            "TASK_NOT_CANCELABLE" => -32002,
            "PUSH_NOTIFICATION_NOT_SUPPORTED" => -32003,
            "UNSUPPORTED_OPERATION" => -32004,
            "VERSION_NOT_SUPPORTED" => -32009,
            "INTERNAL" => -32603,
            _ => -32602,
        };
        json!({ "code": code, "message": self.message, "data": self.details() })
    }
}

impl From<ApiError> for A2aError {
    fn from(error: ApiError) -> Self {
        let status = error.status();
        let reason = match status {
            StatusCode::FORBIDDEN => "FORBIDDEN",
            StatusCode::CONFLICT => "CONFLICT",
            StatusCode::INTERNAL_SERVER_ERROR => "INTERNAL",
            StatusCode::INSUFFICIENT_STORAGE => "DISK_FULL",
            _ => "INVALID_PARAMS",
        };
        Self { status, reason, message: error.message().to_owned() }
    }
}

impl IntoResponse for A2aError {
    fn into_response(self) -> Response {
        let status = match self.status {
            StatusCode::NOT_FOUND => "NOT_FOUND",
            StatusCode::FORBIDDEN => "PERMISSION_DENIED",
            StatusCode::CONFLICT => "FAILED_PRECONDITION",
            StatusCode::INTERNAL_SERVER_ERROR => "INTERNAL",
            StatusCode::INSUFFICIENT_STORAGE => "RESOURCE_EXHAUSTED",
            _ => "INVALID_ARGUMENT",
        };
        let body = json!({ "error": {
            "code": self.status.as_u16(),
            "status": status,
            "message": self.message,
            "details": self.details(),
        } });
        (self.status, Json(body)).into_response()
    }
}

/// Returns what this server offers, for clients that search for agents. The card names no folder and no
/// model.
async fn card(State(hub): HubState) -> Json<Value> {
    Json(public_card(&hub))
}

fn public_card(hub: &Hub) -> Value {
    let interface = |path: &str, binding: &str| A2aInterface {
        url: hub.url.as_deref().map_or_else(String::new, |url| format!("{url}{path}")),
        protocol_binding: binding.into(),
        protocol_version: A2A_VERSION.into(),
    };
    let interfaces = [interface("/v1/a2a", A2A_BINDING), interface("/v1/a2a/rpc", A2A_RPC_BINDING)];
    let push_notifications = hub.program.pushes().is_some();
    let capabilities = A2aCapabilities { streaming: true, push_notifications, extended_agent_card: true };
    let ServerTexts { about, skill: [id, name, description], .. } = hub.program.texts();
    json!({
        "name": "aye",
        "description": about,
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": interfaces,
        "capabilities": capabilities,
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "securitySchemes": { "token": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } },
        "securityRequirements": [{ "schemes": { "token": { "list": [] } } }],
        "skills": [{
            "id": id,
            "name": name,
            "description": description,
            "tags": ["coding"],
        }],
    })
}

/// The same for callers with a token: with the agents, each as a tenant and a skill.
async fn extended_card(hub: &Hub) -> Result<Value, ApiError> {
    let mut card = public_card(hub);
    let capabilities = hub.program.capabilities().await?;
    let bases = card["supportedInterfaces"].as_array().cloned().unwrap_or_default();
    for agent in capabilities["agents"].as_array().into_iter().flatten() {
        let (Some(id), about) = (agent["id"].as_str(), &agent["description"]) else { continue };
        let about = about.as_str().unwrap_or("An agent of this server");
        let skill = json!({ "id": id, "name": id, "description": about, "tags": ["agent"] });
        let interfaces = bases.iter().cloned().map(|mut interface| {
            interface["tenant"] = id.into();
            ("supportedInterfaces", interface)
        });
        for (list, entry) in interfaces.chain([("skills", skill)]) {
            if let Some(list) = card[list].as_array_mut() {
                list.push(entry);
            }
        }
    }
    Ok(card)
}

/// The operation that a path requests, without its tenant.
enum Operation<'a> {
    Send,
    Stream,
    List,
    Show(&'a str),
    Cancel(&'a str),
    Subscribe(&'a str),
    Push(&'a str, PushOperation<'a>),
    ExtendedCard,
    Rpc,
}

/// The operation of a path and the agent that it names.
fn operation<'a>(method: &Method, path: &'a str) -> Option<(Operation<'a>, Option<&'a str>)> {
    let parts: Vec<&str> = path.split('/').collect();
    let known = |parts: &[&'a str]| {
        Some(match (method, parts) {
            (&Method::POST, ["message:send"]) => Operation::Send,
            (&Method::POST, ["message:stream"]) => Operation::Stream,
            (&Method::GET, ["extendedAgentCard"]) => Operation::ExtendedCard,
            (&Method::POST, ["rpc"]) => Operation::Rpc,
            (&Method::GET, ["tasks"]) => Operation::List,
            (method, ["tasks", task, "pushNotificationConfigs", rest @ ..]) => {
                let operation = match (method, rest) {
                    (&Method::POST, []) => PushOperation::Create,
                    (&Method::GET, []) => PushOperation::List,
                    (&Method::GET, [id]) => PushOperation::Get(id),
                    (&Method::DELETE, [id]) => PushOperation::Delete(id),
                    _ => return None,
                };
                Operation::Push(task, operation)
            }
            (method, ["tasks", id]) => match (method, id.rsplit_once(':')) {
                (&Method::POST, Some((id, "cancel"))) => Operation::Cancel(id),
                (&Method::POST | &Method::GET, Some((id, "subscribe"))) => Operation::Subscribe(id),
                (&Method::GET, _) => Operation::Show(id),
                _ => return None,
            },
            _ => return None,
        })
    };
    known(&parts)
        .map(|operation| (operation, None))
        .or_else(|| Some((known(parts.get(1..)?)?, parts.first().copied())))
}

async fn serve(
    State(hub): HubState,
    caller: Caller,
    method: Method,
    Path(path): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, A2aError> {
    let version = supported(&headers);
    let Some((operation, tenant)) = operation(&method, &path) else {
        version?;
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", "no endpoint has this path").into());
    };
    if let Operation::Rpc = operation {
        return Ok(rpc(&hub, &caller, tenant, version, &body).await);
    }
    version?;
    match reply(&hub, &caller, operation, tenant, query(&uri)?, &body).await? {
        Reply::One(value) => Ok(Json(value).into_response()),
        Reply::Stream(stream) => Ok(sse::respond(stream.frames(|event| json!(event)))),
    }
}

/// Checks the version that a request is for.
fn supported(headers: &HeaderMap) -> Result<(), A2aError> {
    let version = headers.get(A2A_VERSION_HEADER).and_then(|version| version.to_str().ok()).unwrap_or("0.3");
    if version == A2A_VERSION {
        return Ok(());
    }
    let message = format!("version {version} is not supported; send `A2A-Version: {A2A_VERSION}`");
    Err(A2aError::new(StatusCode::BAD_REQUEST, "VERSION_NOT_SUPPORTED", message))
}

/// A request by JSON-RPC.
#[derive(Deserialize)]
struct RpcRequest {
    #[serde(default)]
    id: Value,
    method: String,
    #[serde(default)]
    params: Value,
}

/// Serves a request by JSON-RPC. Its errors are part of the response.
async fn rpc(
    hub: &Arc<Hub>,
    caller: &Caller,
    tenant: Option<&str>,
    version: Result<(), A2aError>,
    body: &[u8],
) -> Response {
    let refused = |id: &Value, error: Value| {
        Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response()
    };
    let request: RpcRequest = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => {
            let code = if error.is_data() { -32600 } else { -32700 };
            return refused(&Value::Null, json!({ "code": code, "message": error.to_string() }));
        }
    };
    let RpcRequest { id, method, params } = request;
    if let Err(error) = version {
        return refused(&id, error.rpc());
    }
    let member = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
    let (task, config) = (member("id"), member("taskId"));
    let operation = match method.as_str() {
        "SendMessage" => Operation::Send,
        "SendStreamingMessage" => Operation::Stream,
        "GetTask" => Operation::Show(task),
        "ListTasks" => Operation::List,
        "CancelTask" => Operation::Cancel(task),
        "SubscribeToTask" => Operation::Subscribe(task),
        "CreateTaskPushNotificationConfig" => Operation::Push(config, PushOperation::Create),
        "GetTaskPushNotificationConfig" => Operation::Push(config, PushOperation::Get(task)),
        "ListTaskPushNotificationConfigs" => Operation::Push(config, PushOperation::List),
        "DeleteTaskPushNotificationConfig" => Operation::Push(config, PushOperation::Delete(task)),
        "GetExtendedAgentCard" => Operation::ExtendedCard,
        _ => {
            let shown: String = method.chars().take(80).collect();
            return refused(&id, json!({ "code": -32601, "message": format!("unknown method `{shown}`") }));
        }
    };
    let query = if params.is_null() { Ok(TaskQuery::default()) } else { TaskQuery::deserialize(&params) };
    let query = match query {
        Ok(query) => query,
        Err(error) => return refused(&id, json!({ "code": -32602, "message": error.to_string() })),
    };
    match reply(hub, caller, operation, tenant, query, params.to_string().as_bytes()).await {
        Ok(Reply::One(result)) => {
            Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
        }
        Ok(Reply::Stream(stream)) => {
            sse::respond(stream.frames(move |event| json!({ "jsonrpc": "2.0", "id": id, "result": event })))
        }
        Err(error) => refused(&id, error.rpc()),
    }
}

/// The reply to an operation.
enum Reply {
    One(Value),
    Stream(Box<TaskStream>),
}

async fn reply(
    hub: &Arc<Hub>,
    caller: &Caller,
    operation: Operation<'_>,
    tenant: Option<&str>,
    query: TaskQuery,
    body: &[u8],
) -> Result<Reply, A2aError> {
    Ok(Reply::One(match operation {
        Operation::Send => {
            let turn = send(hub, caller, tenant, body).await?;
            json!({ "task": turn.wait(hub).await? })
        }
        Operation::Stream => {
            let turn = send(hub, caller, tenant, body).await?;
            return stream(hub, turn).await.map(Reply::Stream);
        }
        Operation::List => list(hub, caller, query).await?,
        Operation::Show(id) => {
            demand(caller, TokenScope::Read)?;
            match task_of(hub, id).await? {
                Task::Run(run) => json!(shown(hub, &run, query.history_length).await?),
                Task::Job(job) => json!(submitted(&job)),
            }
        }
        Operation::Cancel(id) => json!(cancel(hub, caller, id).await?),
        Operation::Subscribe(id) => return subscribe(hub, caller, id).await.map(Reply::Stream),
        Operation::Push(task, operation) => {
            demand(caller, TokenScope::Chat)?;
            a2a_push::serve(hub, &run_of(hub, task).await?, operation, body).await?
        }
        Operation::ExtendedCard => {
            demand(caller, TokenScope::Read)?;
            extended_card(hub).await?
        }
        Operation::Rpc => return Err(A2aError::unsupported("a method cannot be `rpc`")),
    }))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TaskQuery {
    history_length: Option<usize>,
    page_size: Option<u32>,
    page_token: Option<String>,
    context_id: Option<ThreadId>,
}

fn query(uri: &Uri) -> Result<TaskQuery, A2aError> {
    let query = axum::extract::Query::<TaskQuery>::try_from_uri(uri);
    query.map(|query| query.0).map_err(|error| ApiError::field("query", error.body_text()).into())
}

async fn run_of(hub: &Hub, id: &str) -> Result<RunRecord, A2aError> {
    let run = hub.store().load_run(&RunId::from(id)).await.map_err(ApiError::from)?;
    run.ok_or_else(|| A2aError::no_task(id))
}

/// Maximum messages of a list that wait to become tasks.
const MAX_WAITING: usize = 200;

/// A task: a run, or a message that waits for the run before it.
enum Task {
    Run(Box<RunRecord>),
    Job(Box<MailboxJob>),
}

async fn task_of(hub: &Hub, id: &str) -> Result<Task, A2aError> {
    match hub.store().load_run(&RunId::from(id)).await.map_err(ApiError::from)? {
        Some(run) => Ok(Task::Run(Box::new(run))),
        None => Ok(Task::Job(Box::new(job_of(hub, id).await?.ok_or_else(|| A2aError::no_task(id))?))),
    }
}

/// Returns the message that waits to become a task.
async fn job_of(hub: &Hub, id: &str) -> Result<Option<MailboxJob>, ApiError> {
    let mailboxes = hub.store().mailboxes()?;
    let job = mailboxes.load_job(&JobId::from(id)).await.map_err(ApiError::internal)?;
    Ok(job.filter(|job| job.wanted_run_id().is_some_and(|run| run.as_str() == id)))
}

/// A message that waits, as a task.
fn submitted(job: &MailboxJob) -> A2aTask {
    let state = match job.status {
        MailboxJobStatus::Queued | MailboxJobStatus::Claimed | MailboxJobStatus::Accepted => {
            A2aTaskState::Submitted
        }
        MailboxJobStatus::Cancelled | MailboxJobStatus::Superseded => A2aTaskState::Canceled,
        MailboxJobStatus::DeadLetter => A2aTaskState::Failed,
    };
    A2aTask {
        id: job.job_id.to_string(),
        context_id: job.mailbox_id.to_string(),
        status: A2aTaskStatus { state, ..A2aTaskStatus::default() },
        ..A2aTask::default()
    }
}

/// A run as a task.
pub(super) async fn shown(hub: &Hub, run: &RunRecord, history: Option<usize>) -> Result<A2aTask, ApiError> {
    let (_, messages) = hub.store().messages_of_run(&run.thread_id, &run.id).await?;
    let open = hub.store().waiting_below(&run.thread_id).await?;
    Ok(task(run, &messages, &open, history))
}

/// The run that a message started or resumed.
struct Turn {
    reader: RunReader,
    thread: ThreadId,
    run: RunId,
    returns_at_once: bool,
    history: Option<usize>,
    /// The task as it was when a message came that had come before.
    known: Option<RunRecord>,
}

impl Turn {
    fn new(reader: RunReader, thread: ThreadId, run: RunId, request: &A2aSendRequest) -> Self {
        let A2aConfiguration { return_immediately, history_length, .. } = request.configuration;
        Self {
            reader,
            thread,
            run,
            returns_at_once: return_immediately,
            history: history_length,
            known: None,
        }
    }

    async fn task(&self, hub: &Hub) -> Result<A2aTask, ApiError> {
        if let Some(run) = hub.store().load_run(&self.run).await? {
            return shown(hub, &run, self.history).await;
        }
        if let Some(job) = job_of(hub, self.run.as_str()).await? {
            return Ok(submitted(&job));
        }
        // The run starts in a moment.
        Ok(task(&RunRecord::new(self.run.clone(), self.thread.clone(), "", "", now_ms()), &[], &[], None))
    }

    /// Waits until the run is over or needs input, or, if the caller does not wait, until the task can be found.
    async fn wait(mut self, hub: &Hub) -> Result<A2aTask, A2aError> {
        let mut failed = None;
        let is_stored = task_of(hub, self.run.as_str()).await.is_ok();
        while !(self.returns_at_once && is_stored)
            && let Some(frame) = self.reader.next().await
        {
            if let Frame::Event { event, .. } = frame
                && let AgentEvent::RunFinish { termination: TerminationReason::Error(why), .. } = &*event
            {
                failed = Some(why.clone());
            }
            if self.returns_at_once {
                break;
            }
        }
        if let Some(why) = failed
            && task_of(hub, self.run.as_str()).await.is_err()
        {
            return Err(A2aError::new(StatusCode::BAD_REQUEST, "INVALID_PARAMS", why));
        }
        Ok(self.task(hub).await?)
    }
}

/// Handles a message: it starts a run or answers the questions of one.
async fn send(hub: &Arc<Hub>, caller: &Caller, tenant: Option<&str>, body: &[u8]) -> Result<Turn, A2aError> {
    demand(caller, TokenScope::Chat)?;
    let request: A2aSendRequest =
        serde_json::from_slice(body).map_err(|error| ApiError::field("message", error.to_string()))?;
    let push: Option<A2aPushConfig> = match request.configuration.task_push_notification_config.clone() {
        Some(push) => Some(serde_json::from_value(push).map_err(|error| {
            ApiError::field("configuration.taskPushNotificationConfig", error.to_string())
        })?),
        None => None,
    };
    if let Some(push) = &push {
        a2a_push::host(hub)?.checked_push(&push.url)?;
    }
    let key = message_key(caller, tenant, &request);
    // One message at a time, so that a message and its repetition do not both start something.
    let _turn = hub.sending.lock().await;
    let turn = match repeated(hub, &request, &key).await? {
        Some(turn) => turn,
        None => started(hub, caller, tenant, request, &key).await?,
    };
    if let Some(mut push) = push {
        if push.id.is_empty() {
            push.id = key;
        }
        if a2a_push::host(hub)?.pushes_of_run(&turn.run).await?.iter().all(|known| known.id != push.id) {
            a2a_push::add(hub, &turn.thread, &turn.run, push).await?;
        }
    }
    Ok(turn)
}

/// Identifies a message: the same for each repetition by the same caller, whichever process receives it. The
/// content counts as well, so that a client that uses an id twice is not answered with another task.
fn message_key(caller: &Caller, tenant: Option<&str>, request: &A2aSendRequest) -> String {
    let A2aMessage { message_id, context_id, task_id, parts, .. } = &request.message;
    let tenant = tenant.unwrap_or(&request.tenant);
    let content = json!([caller.token, tenant, context_id, task_id, message_id, parts]).to_string();
    format!("a2a-{}", &sha256_hex(content)[..32])
}

/// Returns the task of a message that was received before, also by an earlier process.
async fn repeated(hub: &Arc<Hub>, request: &A2aSendRequest, key: &str) -> Result<Option<Turn>, A2aError> {
    let message = &request.message;
    let run = match message.task_id.as_str() {
        "" => RunId::from(key),
        task if was_answered_by(hub, &run_of(hub, task).await?, key).await? => RunId::from(task),
        _ => return Ok(None),
    };
    let thread = if let Some(known) = hub.store().load_run(&run).await.map_err(ApiError::from)? {
        known.thread_id
    } else if let Some(job) = job_of(hub, run.as_str()).await? {
        job.mailbox_id
    } else {
        let thread = ThreadId::from(if message.context_id.is_empty() { key } else { &message.context_id });
        if !hub.is_accepted(&thread, &run) {
            return Ok(None);
        }
        thread
    };
    // The reader comes first, so that it sees the end of a run that is still active.
    let mut reader = RunReader::new(hub, &thread).await?.of(run.clone());
    let known = hub.store().load_run(&run).await.map_err(ApiError::from)?;
    reader = match &known {
        Some(known) => reader.joining(known.status == RunStatus::Running),
        None => reader.queued(hub),
    };
    Ok(Some(Turn { known, ..Turn::new(reader, thread, run, request) }))
}

/// Whether a message answered a question of the task, or of one of its subagents.
async fn was_answered_by(hub: &Hub, run: &RunRecord, key: &str) -> Result<bool, ApiError> {
    let mut filters = vec![SuspensionFilter { run: Some(run.id.clone()), ..SuspensionFilter::default() }];
    let children = hub.store().children(&run.thread_id).await?;
    filters.extend(
        children
            .into_iter()
            .map(|child| SuspensionFilter { thread: Some(child.thread_id), ..SuspensionFilter::default() }),
    );
    for filter in filters {
        let asked = hub.store().suspensions(filter).await?;
        let mut decisions = asked.into_iter().filter_map(|question| question.decision);
        if decisions.any(|decision| decision.decision_id.as_str().starts_with(key)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Starts a run or answers the questions of one.
async fn started(
    hub: &Arc<Hub>,
    caller: &Caller,
    tenant: Option<&str>,
    request: A2aSendRequest,
    key: &str,
) -> Result<Turn, A2aError> {
    let named = Some(request.message.task_id.as_str()).filter(|id| !id.is_empty());
    let known = match named {
        Some(id) => Some(run_of(hub, id).await?),
        None => None,
    };
    let context = Some(request.message.context_id.as_str()).filter(|id| !id.is_empty());
    // The ids of a conversation and a run that the message starts follow from it, so that its repetition finds them.
    let thread = match &known {
        Some(run) if context.is_some_and(|context| context != run.thread_id.as_str()) => {
            return Err(ApiError::field("contextId", "the task belongs to another context").into());
        }
        Some(run) => hub.thread(&run.thread_id).await?,
        None => thread_of(hub, context.or(Some(key))).await?,
    };
    let questions: Vec<SuspensionRecord> = match &known {
        Some(run) if run.status == RunStatus::Done => {
            return Err(A2aError::unsupported("the task has ended; send the message without a taskId"));
        }
        Some(run) => {
            let filter = SuspensionFilter { run: Some(run.id.clone()), ..SuspensionFilter::default() };
            let mut own = hub.store().suspensions(filter).await.map_err(ApiError::from)?;
            let below = hub.store().waiting_below(&thread.id).await.map_err(ApiError::from)?;
            own.extend(below.into_iter().filter(|question| question.thread_id != thread.id));
            own
        }
        None => Vec::new(),
    };
    let intent = request.intent(&questions).map_err(|error| ApiError::field(error.field, error.message))?;
    let mut reader = RunReader::new(hub, &thread.id).await?;
    let run = match (intent, known) {
        (A2aIntent::Answer(answers), Some(run)) => {
            approvals::decide_all_as(hub, caller, answers, key).await?;
            run.id
        }
        (A2aIntent::Say(_), Some(_)) => {
            return Err(A2aError::unsupported(
                "the task is still running; cancel it, or send without a taskId",
            ));
        }
        (A2aIntent::Answer(_), None) => {
            return Err(ApiError::field("message", "there is nothing to answer").into());
        }
        (A2aIntent::Say(content), None) => {
            let run = RunId::from(key);
            let tenant = tenant.or(Some(request.tenant.as_str())).filter(|tenant| !tenant.is_empty());
            let messages = vec![Message::user_with(content)];
            if hub.is_busy(&thread.id).await? {
                reader = reader.queued(hub);
                queue(hub, caller, &thread, messages, tenant, &run).await?;
            } else {
                let mut begin = RunRequest::new(thread.id.clone(), messages);
                begin.run_id = Some(run.clone());
                begin.agent_id = tenant.map(str::to_owned);
                begin.correlation_id.clone_from(&caller.correlation_id);
                hub.begin(&thread, begin).await?;
            }
            run
        }
    };
    Ok(Turn::new(reader.of(run.clone()), thread.id, run, &request))
}

/// Queues a message behind the run that is active or waits; the task that it becomes has the id of its run.
async fn queue(
    hub: &Arc<Hub>,
    caller: &Caller,
    thread: &ThreadRecord,
    messages: Vec<Message>,
    tenant: Option<&str>,
    run: &RunId,
) -> Result<(), ApiError> {
    let workshop = hub.workshop(&thread.cwd).await?;
    if let Some(agent) = tenant {
        workshop.runtime().resolved(agent)?;
    }
    let mut job = MailboxJob::new(thread.id.clone(), messages, now_ms())
        .with_agent_id(tenant.unwrap_or_default())
        .with_origin(MailboxJobOrigin::A2A)
        .with_correlation_id(caller.correlation_id.clone())
        .with_run_id(run);
    job.job_id = JobId::from(run.as_str());
    job.sender_id = Some(caller.token.clone());
    workshop.runtime().submit(job).await?;
    hub.wake(&thread.id);
    Ok(())
}

/// Where the events of a task come from.
enum Events {
    Run(RunReader),
    Thread(Follower),
}

/// The events of a task for one client.
struct TaskStream {
    hub: Arc<Hub>,
    thread: ThreadId,
    events: Events,
    encoder: A2aEncoder,
    first: Option<Vec<A2aResponse>>,
}

impl TaskStream {
    async fn next(&mut self) -> Option<Vec<A2aResponse>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let frame = match &mut self.events {
            Events::Run(reader) => reader.next().await?,
            Events::Thread(_) if self.encoder.is_finished() => return None,
            Events::Thread(follower) => follower.next().await?,
        };
        Some(encoded(frame, &mut self.encoder, &self.hub, &self.thread).await)
    }

    /// The events as frames, each in the form that `shape` gives it.
    fn frames(
        self: Box<Self>,
        shape: impl Fn(A2aResponse) -> Value + Send + Sync + 'static,
    ) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        let shape = Arc::new(shape);
        sse::chunks(None, self, move |mut stream| {
            let shape = Arc::clone(&shape);
            async move {
                let events = stream.next().await?;
                Some((events.into_iter().map(|event| shape(event)).collect(), stream))
            }
        })
    }
}

async fn stream(hub: &Arc<Hub>, turn: Turn) -> Result<Box<TaskStream>, A2aError> {
    let mut encoder = A2aEncoder::new(turn.thread.as_str(), turn.run.as_str());
    let first = match &turn.known {
        Some(run) => Some(encoder.begin(shown(hub, run, turn.history).await?)),
        None => job_of(hub, turn.run.as_str()).await?.map(|job| encoder.begin(submitted(&job))),
    };
    let events = Events::Run(turn.reader);
    Ok(Box::new(TaskStream { hub: Arc::clone(hub), thread: turn.thread, events, encoder, first }))
}

async fn encoded(frame: Frame, encoder: &mut A2aEncoder, hub: &Hub, thread: &ThreadId) -> Vec<A2aResponse> {
    match frame {
        Frame::Event { event, .. } => {
            if let AgentEvent::RunFinish { termination: TerminationReason::Suspended, .. } = &*event {
                encoder.expect(&hub.store().waiting_below(thread).await.unwrap_or_default());
            }
            encoder.encode(&event)
        }
        Frame::Message(_) => Vec::new(),
        Frame::Dropped(_) => encoder.fail(),
    }
}

async fn list(hub: &Arc<Hub>, caller: &Caller, asked: TaskQuery) -> Result<Value, A2aError> {
    demand(caller, TokenScope::Read)?;
    let context = asked.context_id.filter(|id| !id.as_str().is_empty());
    let offset = match asked.page_token.as_deref() {
        None | Some("") => 0,
        Some(token) => token.parse().map_err(|_| ApiError::field("pageToken", "not a token of this list"))?,
    };
    let slice = Paging { offset, limit: asked.page_size.filter(|size| *size > 0) }.slice();
    // Messages that wait come first: they are the newest tasks.
    let waiting = waiting_tasks(hub, context.as_ref()).await?;
    let runs_from = slice.offset.saturating_sub(waiting.len());
    let mut tasks: Vec<A2aTask> = waiting.into_iter().skip(slice.offset).take(slice.limit).collect();
    let rest = Slice { offset: runs_from, limit: slice.limit - tasks.len() };
    let runs = hub
        .store()
        .latest_runs(context.as_ref(), None, super::one_more(rest))
        .await
        .map_err(ApiError::from)?;
    let more = runs.len() > rest.limit;
    for run in runs.iter().take(rest.limit) {
        tasks.push(shown(hub, run, asked.history_length.or(Some(0))).await?);
    }
    let next = if more { (slice.offset + slice.limit).to_string() } else { String::new() };
    let size = tasks.len();
    Ok(json!({ "tasks": tasks, "nextPageToken": next, "pageSize": size, "totalSize": size + slice.offset }))
}

/// Returns the messages that wait to become tasks, the newest first.
async fn waiting_tasks(hub: &Hub, context: Option<&ThreadId>) -> Result<Vec<A2aTask>, ApiError> {
    let jobs = hub.store().open_jobs(context, Slice { offset: 0, limit: MAX_WAITING }).await?;
    let mut tasks = Vec::new();
    for job in jobs.iter().rev().filter(|job| job.origin == MailboxJobOrigin::A2A) {
        let run = job.wanted_run_id().filter(|run| run.as_str() == job.job_id.as_str());
        if let Some(run) = run
            && hub.store().load_run(&run).await?.is_none()
        {
            tasks.push(submitted(job));
        }
    }
    Ok(tasks)
}

async fn cancel(hub: &Arc<Hub>, caller: &Caller, id: &str) -> Result<A2aTask, A2aError> {
    demand(caller, TokenScope::Chat)?;
    let run = match task_of(hub, id).await? {
        Task::Run(run) => *run,
        Task::Job(job) => {
            let mailboxes = hub.store().mailboxes().map_err(ApiError::from)?;
            let cancelled = mailboxes.cancel(&job.job_id, now_ms()).await.map_err(ApiError::internal)?;
            if let Some(job) = cancelled.filter(|job| job.status == MailboxJobStatus::Cancelled) {
                return Ok(submitted(&job));
            }
            // It has just become a run.
            run_of(hub, id).await?
        }
    };
    let over = || A2aError::new(StatusCode::CONFLICT, "TASK_NOT_CANCELABLE", "the task is over");
    if run.status == RunStatus::Done {
        return Err(over());
    }
    let thread = hub.thread(&run.thread_id).await?;
    let mut reader = RunReader::new(hub, &thread.id).await?.of(run.id.clone());
    if !hub.cancel(&thread).await? {
        return Err(over());
    }
    // A run that waited has already ended; one that was active reports its end.
    let mut now = run_of(hub, id).await?;
    while now.status != RunStatus::Done && reader.next().await.is_some() {
        now = run_of(hub, id).await?;
    }
    Ok(shown(hub, &now, None).await?)
}

async fn subscribe(hub: &Arc<Hub>, caller: &Caller, id: &str) -> Result<Box<TaskStream>, A2aError> {
    demand(caller, TokenScope::Read)?;
    let run = match task_of(hub, id).await? {
        Task::Run(run) => *run,
        Task::Job(job) => {
            let reader = RunReader::new(hub, &job.mailbox_id).await?.of(RunId::from(id)).queued(hub);
            let mut encoder = A2aEncoder::new(job.mailbox_id.as_str(), id);
            let first = Some(encoder.begin(submitted(&job)));
            let (hub, thread) = (Arc::clone(hub), job.mailbox_id.clone());
            return Ok(Box::new(TaskStream { hub, thread, events: Events::Run(reader), encoder, first }));
        }
    };
    if run.status == RunStatus::Done {
        return Err(A2aError::unsupported("the task has ended; get it instead"));
    }
    let thread = run.thread_id.clone();
    let follower = Follower::from_now(Arc::clone(hub), thread.clone()).await.map_err(ApiError::from)?;
    let mut encoder = A2aEncoder::new(thread.as_str(), run.id.as_str());
    let first = Some(encoder.begin(shown(hub, &run, Some(0)).await?));
    let events = Events::Thread(follower);
    Ok(Box::new(TaskStream { hub: Arc::clone(hub), thread, events, encoder, first }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_may_precede_each_path() {
        let of = |method: Method, path: &'static str| {
            let (operation, tenant) = operation(&method, path)?;
            Some((
                match operation {
                    Operation::Send => "send".to_owned(),
                    Operation::Stream => "stream".to_owned(),
                    Operation::List => "list".to_owned(),
                    Operation::Show(id) => format!("show {id}"),
                    Operation::Cancel(id) => format!("cancel {id}"),
                    Operation::Subscribe(id) => format!("subscribe {id}"),
                    Operation::Push(task, PushOperation::Create) => format!("push {task}"),
                    Operation::Push(task, PushOperation::List) => format!("pushes {task}"),
                    Operation::Push(task, PushOperation::Get(id)) => format!("push {task} {id}"),
                    Operation::Push(task, PushOperation::Delete(id)) => format!("no push {task} {id}"),
                    Operation::ExtendedCard => "card".to_owned(),
                    Operation::Rpc => "rpc".to_owned(),
                },
                tenant,
            ))
        };
        let is = |word: &str, tenant: Option<&'static str>| Some((word.to_owned(), tenant));
        assert_eq!(of(Method::POST, "message:send"), is("send", None));
        assert_eq!(of(Method::POST, "research/message:stream"), is("stream", Some("research")));
        assert_eq!(of(Method::GET, "tasks/a:b"), is("show a:b", None));
        assert_eq!(of(Method::POST, "rpc"), is("rpc", None));
        assert_eq!(of(Method::POST, "r/rpc"), is("rpc", Some("r")));
        assert_eq!(of(Method::POST, "tasks/a:cancel"), is("cancel a", None));
        assert_eq!(of(Method::GET, "r/tasks/a:subscribe"), is("subscribe a", Some("r")));
        assert_eq!(of(Method::DELETE, "tasks/a/pushNotificationConfigs/b"), is("no push a b", None));
        assert_eq!(of(Method::POST, "r/tasks/a/pushNotificationConfigs"), is("push a", Some("r")));
        assert_eq!(of(Method::GET, "tasks/a/pushNotificationConfigs"), is("pushes a", None));
        assert_eq!(of(Method::POST, "tasks/a/pushNotificationConfigs/b"), None);
        assert_eq!(of(Method::GET, "message:send"), None);
        assert_eq!(of(Method::POST, "a/b/message:send"), None);
    }
}
