//! What runs here, what was done, and what is queued.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use axum::{Json, Router};
use aye_core::contract::ids::{JobId, ThreadId};
use aye_core::contract::storage::AuditFilter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Allowed, Asked, Chat, Paging, Read, now_ms, page};
use crate::error::ApiError;
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

async fn capabilities(Allowed { hub, .. }: Allowed<Read>) -> Result<Json<Value>, ApiError> {
    Ok(Json(hub.program.capabilities().await?))
}

async fn agents(Allowed { hub, .. }: Allowed<Read>) -> Result<Json<Value>, ApiError> {
    let all = hub.program.capabilities().await?;
    Ok(Json(json!({ "items": all["agents"], "next_offset": null })))
}

async fn agent(Allowed { hub, .. }: Allowed<Read>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let all = hub.program.capabilities().await?;
    let found = all["agents"].as_array().into_iter().flatten().find(|agent| agent["id"] == id.as_str());
    found.cloned().map(Json).ok_or_else(|| ApiError::not_found("agent", &id))
}

#[derive(Debug, Default, Deserialize)]
struct AuditQuery {
    thread_id: Option<ThreadId>,
    since: Option<u64>,
}

async fn audit(
    Allowed { hub, .. }: Allowed<Read>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<AuditQuery>,
) -> Result<Json<Value>, ApiError> {
    let filter = AuditFilter { since: asked.since, thread: asked.thread_id, kinds: Vec::new() };
    page(paging, async |slice| hub.program.audit(filter, slice).await, |row| row).await
}

#[derive(Debug, Default, Deserialize)]
struct QueueQuery {
    thread_id: Option<ThreadId>,
}

async fn queue(
    Allowed { hub, .. }: Allowed<Read>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<QueueQuery>,
) -> Result<Json<Value>, ApiError> {
    let thread = asked.thread_id.as_ref();
    page(paging, async |slice| hub.program.jobs(thread, slice).await, |job| job).await
}

async fn unqueue(Allowed { hub, .. }: Allowed<Chat>, Path(id): Path<JobId>) -> Result<Json<Value>, ApiError> {
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
