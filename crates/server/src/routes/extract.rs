//! What handlers take from a request: the caller with its scope, the conversation, the body, the query.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use aye_core::contract::ids::{ThreadId, check_given};
use aye_core::contract::record::ThreadRecord;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::access::{Caller, TokenScope};
use crate::api::{HandlerInput, OperationBuilder};
use crate::clock::now_ms;
use crate::connections::Peer;
use crate::error::ApiError;
use crate::guard::demand;
use crate::hub::Hub;
use crate::signature::is_signed;

/// State of every handler.
pub(super) type HubState = axum::extract::State<Arc<Hub>>;

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // The guard puts it there for every path that needs one.
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| ApiError::internal("a route has no guard"))
    }
}

/// The scope that a route requires of its caller.
pub(super) trait RequiredScope: Send + Sync {
    const SCOPE: TokenScope;
}

pub(super) struct ReadScope;
pub(super) struct ChatScope;
pub(super) struct DecideScope;
pub(super) struct AdminScope;

impl RequiredScope for ReadScope {
    const SCOPE: TokenScope = TokenScope::Read;
}

impl RequiredScope for ChatScope {
    const SCOPE: TokenScope = TokenScope::Chat;
}

impl RequiredScope for DecideScope {
    const SCOPE: TokenScope = TokenScope::Decide;
}

impl RequiredScope for AdminScope {
    const SCOPE: TokenScope = TokenScope::Admin;
}

/// A caller that may do what the route needs.
pub(super) struct Authorized<N> {
    pub(super) hub: Arc<Hub>,
    pub(super) caller: Caller,
    pub(super) need: PhantomData<N>,
}

impl<N: RequiredScope> FromRequestParts<Arc<Hub>> for Authorized<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, hub).await?;
        demand(&caller, N::SCOPE)?;
        Ok(Self { hub: Arc::clone(hub), caller, need: PhantomData })
    }
}

/// The same in the conversation of the path.
pub(super) struct InThread<N> {
    pub(super) hub: Arc<Hub>,
    pub(super) caller: Caller,
    pub(super) thread: ThreadRecord,
    need: PhantomData<N>,
}

impl<N: RequiredScope> FromRequestParts<Arc<Hub>> for InThread<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, ApiError> {
        let Authorized { hub, caller, need } = Authorized::<N>::from_request_parts(parts, hub).await?;
        let id = Path::<ThreadId>::from_request_parts(parts, &hub).await;
        let Path(id) =
            id.map_err(|error| ApiError::new(error.status(), "invalid_path", error.body_text()))?;
        let thread = hub.thread(&id).await?;
        Ok(Self { hub, caller, thread, need })
    }
}

impl<N: RequiredScope> HandlerInput for Authorized<N> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.needs(N::SCOPE);
    }
}

impl<N: RequiredScope> HandlerInput for InThread<N> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.needs(N::SCOPE);
    }
}

impl<T: JsonSchema> HandlerInput for JsonBody<T> {
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
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
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
pub(super) struct Signed<T> {
    pub(super) hub: Arc<Hub>,
    pub(super) caller: Caller,
    pub(super) body: T,
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
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|Query(found)| Self(found))
            .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "invalid_query", error.body_text()))
    }
}

/// An id that a client gives to a new conversation.
pub(super) fn given_thread(id: &str) -> Result<ThreadId, ApiError> {
    check_given("conversation", id).map_err(|error| ApiError::field("thread_id", error.to_string()))?;
    Ok(ThreadId::from(id))
}
