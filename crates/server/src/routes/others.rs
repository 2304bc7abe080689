//! The capabilities of this server, the audit, and the queue.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use aye_core::contract::audit::AuditRow;
use aye_core::contract::ids::{JobId, ThreadId};
use aye_core::contract::mailbox::MailboxJob;
use aye_core::contract::storage::AuditFilter;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::config::{self, InNamespace, Tagged};
use super::extract::{Asked, Authorized, ChatScope, ReadScope};
use super::paging::{ListPage, Paging, page};
use crate::api::Api;
use crate::clock::now_ms;
use crate::config::ConfigEntry;
use crate::error::ApiError;

pub(super) fn routes(api: Api) -> Api {
    api.get("/v1/capabilities", "What runs here", &[], capabilities)
        .get("/v1/agents", "List agents", &[], agents)
        .get("/v1/agents/{id}", "Show an agent", &[], agent)
        .get("/v1/audit", "List rows of the audit", &[], audit)
        .get("/v1/queue", "List unfinished jobs", &[], queue)
        .delete("/v1/queue/{id}", "Take a queued job back", &[409], unqueue)
}

async fn capabilities(Authorized { hub, .. }: Authorized<ReadScope>) -> Result<Json<Value>, ApiError> {
    Ok(Json(hub.program.capabilities().await?))
}

/// The same as `/v1/config/agents`.
async fn agents(
    place: InNamespace<ReadScope>,
    paging: Asked<Paging>,
) -> Result<Json<ListPage<ConfigEntry>>, ApiError> {
    config::list(place, paging).await
}

async fn agent(place: InNamespace<ReadScope>) -> Result<Tagged, ApiError> {
    config::show(place).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct AuditQuery {
    thread_id: Option<ThreadId>,
    since: Option<u64>,
}

async fn audit(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<AuditQuery>,
) -> Result<Json<ListPage<AuditRow>>, ApiError> {
    let filter = AuditFilter { since: asked.since, thread: asked.thread_id, kinds: Vec::new() };
    page(paging, async |slice| hub.store().audit_page(filter, slice).await, |row| row).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct QueueQuery {
    thread_id: Option<ThreadId>,
}

async fn queue(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<QueueQuery>,
) -> Result<Json<ListPage<MailboxJob>>, ApiError> {
    let thread = asked.thread_id.as_ref();
    page(paging, async |slice| hub.store().open_jobs(thread, slice).await, |job| job).await
}

async fn unqueue(
    Authorized { hub, .. }: Authorized<ChatScope>,
    Path(id): Path<JobId>,
) -> Result<Json<MailboxJob>, ApiError> {
    let mailbox = hub.store().mailboxes()?;
    let job = mailbox.load_job(&id).await.map_err(ApiError::internal)?;
    if job.is_none() {
        return Err(ApiError::not_found("job", id.as_str()));
    }
    match mailbox.cancel(&id, now_ms()).await.map_err(ApiError::internal)? {
        Some(job) => Ok(Json(job)),
        None => {
            Err(ApiError::new(StatusCode::CONFLICT, "not_queued", "the job has already started or ended"))
        }
    }
}
