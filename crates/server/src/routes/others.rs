//! What runs here, what was done, and what is queued.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, get};
use axum::{Json, Router};
use aye_core::contract::ids::{JobId, ThreadId};
use aye_core::contract::storage::AuditFilter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AppState, Asked, Paging, now_ms, one_more, page_of};
use crate::access::{Caller, TokenScope};
use crate::error::ApiError;
use crate::guard::demand;
use crate::hub::Hub;

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/capabilities", get(capabilities))
        .route("/v1/agents", get(agents))
        .route("/v1/agents/{id}", get(agent))
        .route("/v1/audit", get(audit))
        .route("/v1/queue", get(queue))
        .route("/v1/queue/{id}", delete(unqueue))
}

async fn capabilities(State(hub): AppState, caller: Caller) -> Result<Json<Value>, ApiError> {
    demand(&caller, TokenScope::Read)?;
    Ok(Json(hub.program.capabilities().await?))
}

async fn agents(State(hub): AppState, caller: Caller) -> Result<Json<Value>, ApiError> {
    demand(&caller, TokenScope::Read)?;
    let all = hub.program.capabilities().await?;
    Ok(Json(json!({ "items": all["agents"], "next_offset": null })))
}

async fn agent(
    State(hub): AppState,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    demand(&caller, TokenScope::Read)?;
    let all = hub.program.capabilities().await?;
    let found = all["agents"].as_array().into_iter().flatten().find(|agent| agent["id"] == id.as_str());
    found.cloned().map(Json).ok_or_else(|| ApiError::not_found("agent", &id))
}

#[derive(Debug, Default, Deserialize)]
struct AuditQuery {
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
    thread_id: Option<ThreadId>,
    since: Option<u64>,
}

async fn audit(
    State(hub): AppState,
    caller: Caller,
    Asked(asked): Asked<AuditQuery>,
) -> Result<Json<Value>, ApiError> {
    demand(&caller, TokenScope::Read)?;
    let slice = Paging { offset: asked.offset, limit: asked.limit }.slice();
    let filter = AuditFilter { since: asked.since, thread: asked.thread_id, kinds: Vec::new() };
    let rows = hub.program.audit(filter, one_more(slice)).await?;
    Ok(Json(page_of(rows, slice)))
}

#[derive(Debug, Default, Deserialize)]
struct QueueQuery {
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
    thread_id: Option<ThreadId>,
}

async fn queue(
    State(hub): AppState,
    caller: Caller,
    Asked(asked): Asked<QueueQuery>,
) -> Result<Json<Value>, ApiError> {
    demand(&caller, TokenScope::Read)?;
    let slice = Paging { offset: asked.offset, limit: asked.limit }.slice();
    let jobs = hub.program.jobs(asked.thread_id.as_ref(), one_more(slice)).await?;
    Ok(Json(page_of(jobs, slice)))
}

async fn unqueue(
    State(hub): AppState,
    caller: Caller,
    Path(id): Path<JobId>,
) -> Result<Json<Value>, ApiError> {
    demand(&caller, TokenScope::Chat)?;
    let mailbox = hub.store().mailboxes()?;
    let job = mailbox.load_job(&id).await.map_err(ApiError::internal)?;
    if job.is_none() {
        return Err(ApiError::not_found("job", id.as_str()));
    }
    match mailbox.cancel(&id, now_ms()).await.map_err(ApiError::internal)? {
        Some(job) => Ok(Json(json!(job))),
        None => Err(ApiError::new(StatusCode::CONFLICT, "not_queued", "the job was begun or is over")),
    }
}
