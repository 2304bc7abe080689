//! The routes, one file for each kind of thing.

mod a2a;
mod a2a_push;
mod ag_ui;
mod ai_sdk;
mod approvals;
mod config;
mod health;
mod me;
mod others;
mod page;
mod runs;
mod threads;

pub use crate::push_config::{A2aAuthentication, A2aPushConfig, PUSH_DONE};

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{
    ConnectInfo, DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request, State,
};
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any_service;
use axum::{Json, Router};
use aye_core::contract::ids::{ThreadId, check_given};
use aye_core::contract::record::{RunRecord, ThreadRecord};
use aye_core::contract::storage::Slice;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::access::{Caller, TokenScope};
use super::api::{Api, HandlerInput, Operation, OperationBuilder, document};
use super::app::AppState;
use super::clock::now_ms;
use super::error::ApiError;
use super::guard::{Guard, MAX_BODY, demand, guard};
use super::hub::Hub;
use super::listen::Peer;
use super::signature::is_signed;

/// The default and the maximum number of entries in a list.
const PAGE: (u32, u32) = (50, 200);

/// The routes for a program that serves its own runtime: `build_router().with_state(AppState::new(…))`.
///
/// Requests need a token: [`ServerConfig::token`](super::app::HttpServerConfig::token), or the one that
/// [`AppState::token`] returns.
///
/// Served with `into_make_service_with_connect_info::<SocketAddr>()`, wrong tokens are counted for each address;
/// otherwise those of all clients together slow each other down.
pub fn build_router() -> Router<AppState> {
    Router::new().fallback(embedded)
}

async fn embedded(State(state): State<AppState>, mut request: Request) -> Response {
    let router = match state.router() {
        Ok(router) => router,
        Err(error) => return error.into_response(),
    };
    if let Some(ConnectInfo(from)) = request.extensions().get::<ConnectInfo<SocketAddr>>().copied() {
        request.extensions_mut().insert(ConnectInfo(Peer(from, None)));
    }
    Handler::<(), ()>::call(any_service(router), request, ()).await
}

/// All routes.
pub(super) fn router(guarding: Guard) -> Router {
    let hub = Arc::clone(&guarding.hub);
    api(&hub)
        .into_router()
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "not_found", "no endpoint has this path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this path does not support this method",
            )
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(guarding, guard))
        .with_state(hub)
}

/// Builds all routes, with their descriptions.
fn api(hub: &Arc<Hub>) -> Api {
    let groups = [
        page::routes,
        health::routes,
        me::routes,
        threads::routes,
        runs::routes,
        approvals::routes,
        config::routes,
        ai_sdk::routes,
        ag_ui::routes,
        a2a::routes,
        others::routes,
    ];
    let mcp = Router::new().nest_service("/v1/mcp", crate::mcp::http(hub));
    let api = groups.into_iter().fold(Api::default(), |api, group| group(api));
    api.also(mcp, &MCP).get("/v1/openapi.json", "This document", &[], document)
}

/// The operations of MCP, which has its own service.
const MCP: [Operation; 3] = [
    ("post", "/v1/mcp", "Send a message of MCP", "mcp::post"),
    ("get", "/v1/mcp", "Listen to an MCP session", "mcp::get"),
    ("delete", "/v1/mcp", "End a session of MCP", "mcp::delete"),
];

pub(super) use ai_sdk::thread_of;
pub(super) use approvals::decide;

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // The guard puts it there for every path that needs one.
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| ApiError::internal("a route has no guard"))
    }
}

/// The scope that a route requires of its caller.
trait Need: Send + Sync {
    const SCOPE: TokenScope;
}

struct Read;
struct Chat;
struct Decide;
struct Admin;

impl Need for Read {
    const SCOPE: TokenScope = TokenScope::Read;
}

impl Need for Chat {
    const SCOPE: TokenScope = TokenScope::Chat;
}

impl Need for Decide {
    const SCOPE: TokenScope = TokenScope::Decide;
}

impl Need for Admin {
    const SCOPE: TokenScope = TokenScope::Admin;
}

/// A caller that may do what the route needs.
struct Allowed<N> {
    hub: Arc<Hub>,
    caller: Caller,
    need: PhantomData<N>,
}

impl<N: Need> FromRequestParts<Arc<Hub>> for Allowed<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, hub).await?;
        demand(&caller, N::SCOPE)?;
        Ok(Self { hub: Arc::clone(hub), caller, need: PhantomData })
    }
}

/// The same in the conversation of the path.
struct InThread<N> {
    hub: Arc<Hub>,
    caller: Caller,
    thread: ThreadRecord,
    need: PhantomData<N>,
}

impl<N: Need> FromRequestParts<Arc<Hub>> for InThread<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, ApiError> {
        let Allowed { hub, caller, need } = Allowed::<N>::from_request_parts(parts, hub).await?;
        let id = Path::<ThreadId>::from_request_parts(parts, &hub).await;
        let Path(id) =
            id.map_err(|error| ApiError::new(error.status(), "invalid_path", error.body_text()))?;
        let thread = hub.thread(&id).await?;
        Ok(Self { hub, caller, thread, need })
    }
}

impl<N: Need> HandlerInput for Allowed<N> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.needs(N::SCOPE);
    }
}

impl<N: Need> HandlerInput for InThread<N> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.needs(N::SCOPE);
    }
}

impl<T: JsonSchema> HandlerInput for Body<T> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.takes_body::<T>();
    }
}

impl<T: JsonSchema> HandlerInput for Asked<T> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.takes_query::<T>();
    }
}

/// A body of JSON. An empty one counts as `{}`.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(|error| {
            let status = error.status();
            let code = if status == StatusCode::PAYLOAD_TOO_LARGE { "too_large" } else { "unreadable" };
            ApiError::new(status, code, error.body_text())
        })?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map(Self).map_err(|error| {
            let code = if error.is_data() { "invalid" } else { "not_json" };
            ApiError::new(StatusCode::BAD_REQUEST, code, format!("invalid body: {error}"))
        })
    }
}

/// A body signed with the key of a webhook.
struct Signed<T> {
    hub: Arc<Hub>,
    caller: Caller,
    body: T,
}

/// The headers of a signed request: which key, and the signature.
const SIGNED: [&str; 2] = ["aye-webhook", "aye-signature"];

impl<T: DeserializeOwned> FromRequest<Arc<Hub>> for Signed<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, hub: &Arc<Hub>) -> Result<Self, ApiError> {
        let from = request.extensions().get::<ConnectInfo<Peer>>().map(|info| info.0.0.ip());
        let [name, signature] = SIGNED.map(|name| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        });
        let bytes = Bytes::from_request(request, hub)
            .await
            .map_err(|error| ApiError::new(error.status(), "unreadable", error.body_text()))?;
        let key = hub.program.webhook_key(&name).unwrap_or_default();
        if !is_signed(&key, &signature, &bytes, now_ms() / 1000) {
            hub.metrics.refused();
            tokio::time::sleep(hub.program.access().mistake(from)).await;
            let message = "sign the body with the key of a webhook: Aye-Webhook names it, Aye-Signature is t=SECONDS,v1=HEX";
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, "not_signed", message));
        }
        let body = serde_json::from_slice(&bytes).map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, "invalid", format!("invalid body: {error}"))
        })?;
        let caller = Caller {
            token: format!("webhook {name}"),
            scopes: vec![TokenScope::Decide],
            correlation_id: None,
        };
        Ok(Self { hub: Arc::clone(hub), caller, body })
    }
}

impl<T: JsonSchema> HandlerInput for Signed<T> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.takes_body::<T>();
        for name in ["Aye-Webhook", "Aye-Signature"] {
            sketch.takes_header::<String>(name);
        }
    }
}

/// A query, with an error of ours when it cannot be used.
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|Query(found)| Self(found))
            .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "invalid_query", error.body_text()))
    }
}

/// `?offset=&limit=`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
struct Paging {
    /// Entries to leave out.
    #[serde(default)]
    #[schemars(range(max = u32::MAX))]
    offset: u32,
    /// At most this many: 50 when absent, 200 at most.
    #[schemars(range(max = u32::MAX))]
    limit: Option<u32>,
}

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
struct ListPage<T> {
    items: Vec<T>,
    /// The offset of the next page; absent at the end.
    next_offset: Option<usize>,
}

impl Paging {
    fn slice(self) -> Slice {
        Slice { offset: self.offset as usize, limit: self.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1) as usize }
    }
}

/// Reads a page of a list.
async fn page<T, U, E>(
    paging: Paging,
    read: impl AsyncFnOnce(Slice) -> Result<Vec<T>, E>,
    shown: impl FnMut(T) -> U,
) -> Result<Json<ListPage<U>>, ApiError>
where
    ApiError: From<E>,
{
    let slice = paging.slice();
    let items = read(one_more(slice)).await?;
    let next_offset = (items.len() > slice.limit).then(|| slice.offset + slice.limit);
    Ok(Json(ListPage { items: items.into_iter().take(slice.limit).map(shown).collect(), next_offset }))
}

/// Extends a slice by one entry, to find out whether there is another page.
fn one_more(slice: Slice) -> Slice {
    Slice { limit: slice.limit + 1, ..slice }
}

/// The new messages: `{"text": "..."}` or `{"messages": [{"role": "user", "content": "..."}]}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Said {
    text: Option<String>,
    messages: Option<Vec<SaidMessage>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SaidMessage {
    #[serde(default)]
    role: Option<String>,
    content: SaidContent,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum SaidContent {
    Text(String),
    Parts(Vec<SaidPart>),
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SaidPart {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    text: Option<String>,
}

impl Said {
    fn is_empty(&self) -> bool {
        self.text.is_none() && self.messages.is_none()
    }

    /// Returns the texts of the user. A client cannot speak in any other role.
    fn texts(self) -> Result<Vec<String>, ApiError> {
        let mut found = Vec::new();
        if let Some(text) = self.text {
            found.push(text);
        }
        for (at, message) in self.messages.unwrap_or_default().into_iter().enumerate() {
            if message.role.as_deref().is_some_and(|role| role != "user") {
                return Err(ApiError::field(
                    format!("messages[{at}].role"),
                    "a client can only send messages as `user`",
                ));
            }
            found.push(match message.content {
                SaidContent::Text(text) => text,
                SaidContent::Parts(parts) => {
                    let mut text = String::new();
                    for part in parts {
                        let words =
                            part.text.filter(|_| part.kind.as_deref().is_none_or(|kind| kind == "text"));
                        text.push_str(&words.ok_or_else(|| {
                            ApiError::field(
                                format!("messages[{at}].content"),
                                "only parts of type `text` are accepted",
                            )
                        })?);
                    }
                    text
                }
            });
        }
        if found.is_empty() || found.iter().any(|text| text.trim().is_empty()) {
            return Err(ApiError::field("text", "send `text`, or `messages` with content"));
        }
        Ok(found)
    }
}

/// An id that a client gives to a new conversation.
fn given_thread(id: &str) -> Result<ThreadId, ApiError> {
    check_given("conversation", id).map_err(|error| ApiError::field("thread_id", error.to_string()))?;
    Ok(ThreadId::from(id))
}

/// Returns the latest run of a conversation.
async fn latest_run(hub: &Hub, thread: &ThreadRecord) -> Result<RunRecord, ApiError> {
    let run = hub.store().latest_run(&thread.id).await?;
    run.ok_or_else(|| ApiError::not_found("run of conversation", thread.id.as_str()))
}

/// State of every handler.
type HubState = axum::extract::State<Arc<Hub>>;
