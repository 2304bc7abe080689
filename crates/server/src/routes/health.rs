//! Whether the server works, for those who watch it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use aye_core::contract::ids::ThreadId;
use serde_json::json;

use super::AppState;
use crate::access::{Caller, TokenScope};
use crate::error::ApiError;
use crate::guard::demand;
use crate::hub::Hub;

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/health", get(ready))
        .route("/health/ready", get(ready))
        .route("/health/live", get(async || Json(json!({ "status": "ok" }))))
        .route("/metrics", get(metrics))
}

/// 200 while the store can be read and requests are taken, else 503.
async fn ready(State(hub): AppState) -> Response {
    let is_open = !hub.closing.is_cancelled();
    // A conversation that cannot exist: the store only has to answer.
    let reads = hub.store().load_thread(&ThreadId::from(" ")).await.is_ok();
    let (status, word) = match (is_open, reads) {
        (true, true) => (StatusCode::OK, "ok"),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "closing"),
        (true, false) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
    };
    (status, Json(json!({ "status": word }))).into_response()
}

async fn metrics(State(hub): AppState, caller: Caller) -> Result<Response, ApiError> {
    demand(&caller, TokenScope::Read)?;
    let waiting = hub.program.inbox().await?.len() as u64;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], hub.metrics.text(waiting)).into_response())
}
