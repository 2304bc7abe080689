//! A2A v1.0 over HTTP and JSON: other agents send tasks here. `aye-encode` defines the wire format.
//!
//! A task is a run and its context is a conversation. Each path may start with the name of an agent as a
//! tenant.

mod card;
mod error;
mod push;
mod stream;
mod tasks;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use aye_encode::a2a::{A2A_CARD_PATH, A2A_VERSION, A2A_VERSION_HEADER};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::HubState;
use crate::access::{Caller, TokenScope};
use crate::api::Api;
use crate::api::Operation as Operations;
use crate::error::ApiError;
use crate::guard::demand;
use crate::hub::Hub;
use crate::push::task_of_run;
use crate::sse;
use card::{card, extended_card};
use push::PushOperation;
use stream::{TaskStream, stream, subscribe};
use tasks::{Task, TaskQuery, cancel, list, run_of, send, submitted, task_of};

use error::A2aError;

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
                Task::Run(run) => json!(task_of_run(hub.store(), &run, query.history_length).await?),
                Task::Job(job) => json!(submitted(&job)),
            }
        }
        Operation::Cancel(id) => json!(cancel(hub, caller, id).await?),
        Operation::Subscribe(id) => return subscribe(hub, caller, id).await.map(Reply::Stream),
        Operation::Push(task, operation) => {
            demand(caller, TokenScope::Chat)?;
            push::serve(hub, &run_of(hub, task).await?, operation, body).await?
        }
        Operation::ExtendedCard => {
            demand(caller, TokenScope::Read)?;
            extended_card(hub).await?
        }
        Operation::Rpc => return Err(A2aError::unsupported("a method cannot be `rpc`")),
    }))
}

fn query(uri: &Uri) -> Result<TaskQuery, A2aError> {
    let query = axum::extract::Query::<TaskQuery>::try_from_uri(uri);
    query.map(|query| query.0).map_err(|error| ApiError::field("query", error.body_text()).into())
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
