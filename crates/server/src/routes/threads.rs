//! Conversations.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::mailbox::MailboxJob;
use aye_core::contract::message::{Message, Visibility};
use aye_core::contract::record::{ThreadRecord, ThreadSummary};
use aye_runtime::RunRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Allowed, AppState, Asked, Body, Chat, InThread, Paging, Read, Said, given_thread, now_ms, page};
use crate::access::{Caller, TokenScope};
use crate::error::ApiError;
use crate::follow::Follower;
use crate::guard::demand;
use crate::host::Slice;
use crate::hub::Hub;
use crate::sse;

/// Characters of a title.
const MAX_TITLE: usize = 200;

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/threads", get(ids).post(create))
        .route("/v1/threads/summaries", get(summaries))
        .route("/v1/threads/{id}", get(show).patch(rename).delete(delete))
        .route("/v1/threads/{id}/metadata", patch(rename))
        .route("/v1/threads/{id}/messages", get(messages).post(say))
        .route("/v1/threads/{id}/mailbox", get(mailbox).post(say))
        .route("/v1/threads/{id}/events", get(events))
        .route("/v1/threads/{id}/runs", get(runs).post(super::runs::start_in))
        .route("/v1/threads/{id}/runs/latest", get(latest_run))
        .route("/v1/threads/{id}/cancel", post(cancel))
        .route("/v1/threads/{id}/interrupt", post(interrupt))
        .route("/v1/threads/{id}/decision", post(super::approvals::decide_in_thread))
}

/// A conversation in a list.
#[derive(Serialize)]
struct SummaryRow {
    #[serde(flatten)]
    summary: ThreadSummary,
    /// Whether this server may drive it.
    served: bool,
}

async fn ids(
    Allowed { hub, .. }: Allowed<Read>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Value>, ApiError> {
    page(paging, async |slice| hub.program.threads(slice).await, |row| row.thread.id).await
}

async fn summaries(
    Allowed { hub, .. }: Allowed<Read>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Value>, ApiError> {
    let row = |summary: ThreadSummary| SummaryRow { served: hub.serves(&summary.thread.cwd), summary };
    page(paging, async |slice| hub.program.threads(slice).await, row).await
}

/// What a new conversation is given.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewThread {
    /// Its id; a fresh one when absent.
    pub(super) id: Option<String>,
    /// What it is called.
    pub(super) title: Option<String>,
    /// The folder it works in; the server's first one when absent.
    pub(super) folder: Option<PathBuf>,
}

/// Makes a conversation in a folder that is served.
pub(super) async fn new_thread(hub: &Hub, wanted: NewThread) -> Result<ThreadRecord, ApiError> {
    let folder = wanted.folder.or_else(|| hub.program.folders().first().cloned());
    let folder = folder.ok_or_else(|| ApiError::field("folder", "this server serves no folder"))?;
    // Links are followed before the folder is compared with those that are served.
    let found = tokio::fs::canonicalize(&folder).await;
    let folder =
        found.map_err(|_| ApiError::field("folder", format!("{} is not a folder", folder.display())))?;
    hub.workshop(&folder).await?;
    let id = match wanted.id {
        Some(id) => given_thread(&id)?,
        None => ThreadId::fresh(),
    };
    let title = wanted.title.unwrap_or_default();
    check_title(&title)?;
    if hub.store().load_thread(&id).await?.is_some() {
        return Err(ApiError::new(StatusCode::CONFLICT, "exists", format!("the conversation `{id}` exists")));
    }
    let now = now_ms();
    let thread = ThreadRecord { id, title, cwd: folder, created_at: now, updated_at: now };
    hub.store().ensure_thread(thread.clone()).await?;
    Ok(thread)
}

fn check_title(title: &str) -> Result<(), ApiError> {
    if title.chars().count() > MAX_TITLE || title.chars().any(char::is_control) {
        return Err(ApiError::field(
            "title",
            format!("a title is one line of at most {MAX_TITLE} characters"),
        ));
    }
    Ok(())
}

async fn create(
    Allowed { hub, .. }: Allowed<Chat>,
    Body(wanted): Body<NewThread>,
) -> Result<Response, ApiError> {
    let thread = new_thread(&hub, wanted).await?;
    Ok((StatusCode::CREATED, Json(thread)).into_response())
}

async fn show(InThread { hub, thread, .. }: InThread<Read>) -> Result<Json<Value>, ApiError> {
    let run = hub.store().latest_run(&thread.id).await?;
    let mut shown = json!(thread);
    shown["status"] = json!(run.map(|run| run.status));
    shown["waiting"] = hub.store().waiting_below(&thread.id).await?.len().into();
    shown["served"] = hub.serves(&thread.cwd).into();
    Ok(Json(shown))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rename {
    title: String,
}

async fn rename(
    InThread { hub, thread, .. }: InThread<Chat>,
    Body(Rename { title }): Body<Rename>,
) -> Result<Json<ThreadRecord>, ApiError> {
    check_title(&title)?;
    if title.trim().is_empty() {
        return Err(ApiError::field("title", "a title is not empty"));
    }
    hub.program.rename(&thread.id, &title).await?;
    Ok(Json(hub.thread(&thread.id).await?))
}

async fn delete(
    State(hub): AppState,
    caller: Caller,
    Path(id): Path<ThreadId>,
) -> Result<StatusCode, ApiError> {
    demand(&caller, TokenScope::Admin)?;
    let gone = hub.program.delete(&id, hub.program.actor(&caller.token)).await?;
    if gone { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::not_found("conversation", id.as_str())) }
}

/// Which part of a history, beside its paging.
#[derive(Debug, Default, Deserialize)]
struct HistoryQuery {
    cursor: Option<String>,
    visibility: Option<String>,
}

/// The messages of a conversation, oldest first. `cursor` is `end` for the last page, or what another page gave.
async fn messages(
    InThread { hub, thread, .. }: InThread<Read>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<HistoryQuery>,
) -> Result<Json<Value>, ApiError> {
    let slice = paging.slice();
    let all = match asked.visibility.as_deref() {
        None | Some("external") => false,
        Some("all") => true,
        Some(other) => {
            return Err(ApiError::field("visibility", format!("`{other}` is not `all` or `external`")));
        }
    };
    let count = hub.store().message_count(&thread.id).await?;
    let limit = slice.limit as u64;
    // The places of the page, from 0; the end is not part of it.
    let from = match asked.cursor.as_deref() {
        None => slice.offset as u64,
        Some("end") => count.saturating_sub(limit),
        Some(cursor) => cursor.parse().map_err(|_| ApiError::field("cursor", "not a cursor of this list"))?,
    };
    let until = count.min(from.saturating_add(limit));
    let page = Slice { offset: usize::try_from(from).unwrap_or(usize::MAX), limit: slice.limit };
    let mut items = hub.program.messages(&thread.id, page).await?;
    items.retain(|stored| all || stored.message.visibility != Visibility::Internal);
    Ok(Json(json!({
        "items": items,
        "total": count,
        "next_cursor": (until < count).then(|| until.to_string()),
        "prev_cursor": (from > 0).then(|| from.saturating_sub(limit).to_string()),
    })))
}

/// Says something: a run begins in the background, or the message is queued behind what is active or waits.
async fn say(
    InThread { hub, caller, thread, .. }: InThread<Chat>,
    Body(said): Body<Said>,
) -> Result<Response, ApiError> {
    let answer = say_in(&hub, &thread, said.messages()?, &caller).await?;
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// The same for callers that have the conversation.
pub(super) async fn say_in(
    hub: &Arc<Hub>,
    thread: &ThreadRecord,
    messages: Vec<Message>,
    caller: &Caller,
) -> Result<Value, ApiError> {
    if hub.is_busy(&thread.id).await? {
        let workshop = hub.workshop(&thread.cwd).await?;
        let mut job = MailboxJob::new(thread.id.clone(), messages, now_ms());
        job.sender_id = Some(caller.token.clone());
        let job = workshop.runtime().submit(job).await?;
        hub.wake(&thread.id);
        return Ok(json!({ "thread_id": thread.id, "queued": true, "job_id": job.job_id }));
    }
    let run = hub.begin(thread, RunRequest::new(thread.id.clone(), messages)).await?;
    Ok(json!({ "thread_id": thread.id, "run_id": run, "queued": false }))
}

async fn mailbox(
    InThread { hub, thread, .. }: InThread<Read>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Value>, ApiError> {
    page(paging, async |slice| hub.program.jobs(Some(&thread.id), slice).await, |job| job).await
}

#[derive(Debug, Default, Deserialize)]
struct EventsQuery {
    after: Option<u64>,
}

/// What happens in a conversation, for ever.
async fn events(
    InThread { hub, thread, .. }: InThread<Read>,
    headers: HeaderMap,
    Asked(asked): Asked<EventsQuery>,
) -> Result<Response, ApiError> {
    let count = hub.store().message_count(&thread.id).await?;
    let after = match sse::last_event_id(&headers)? {
        Some(last) if last > count => {
            return Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "invalid_last_event_id",
                format!("this conversation has {count} messages"),
            ));
        }
        Some(last) => last,
        None => asked.after.unwrap_or(count).min(count),
    };
    let follower = Follower::new(hub, thread.id, after).await?;
    Ok(sse::respond(sse::follow(follower)))
}

async fn runs(
    InThread { hub, thread, .. }: InThread<Read>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Value>, ApiError> {
    let runs = async |slice| hub.program.runs(Some(&thread.id), None, slice).await;
    page(paging, runs, |run| super::runs::shown(&run)).await
}

async fn latest_run(InThread { hub, thread, .. }: InThread<Read>) -> Result<Json<Value>, ApiError> {
    Ok(Json(super::runs::shown(&super::latest_run(&hub, &thread).await?)))
}

pub(super) async fn cancel(InThread { hub, thread, .. }: InThread<Chat>) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "cancel_requested": hub.cancel(&thread).await? })))
}

/// Stops what is active and drops what is queued.
pub(super) async fn interrupt(InThread { hub, thread, .. }: InThread<Chat>) -> Result<Json<Value>, ApiError> {
    let interrupted = hub.store().interrupt(&thread.id, now_ms()).await?;
    hub.cancel(&thread).await?;
    Ok(Json(json!({ "interrupt_requested": true, "superseded_jobs": interrupted.superseded_count })))
}
