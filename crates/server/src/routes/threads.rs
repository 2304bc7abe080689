//! Conversations.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use aye_core::contract::ids::{JobId, RunId, ThreadId};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::MailboxJob;
use aye_core::contract::message::{Message, Visibility};
use aye_core::contract::record::{NamedBy, RunRecord, StoredMessage, ThreadRecord, ThreadSummary};
use aye_core::contract::storage::Slice;
use aye_runtime::RunRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Authorized, ChatScope, HubState, InThread, JsonBody, ReadScope, given_thread};
use super::new_messages::NewMessages;
use super::paging::{ListPage, Paging, page};
use super::run_view::RunView;
use crate::access::{Caller, TokenScope};
use crate::api::{Accepted, Api, Created, EventStream, Nothing};
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::follow::Follower;
use crate::guard::demand;
use crate::hub::Hub;
use crate::sse::{self, LastEvent};

/// Characters of a title.
const MAX_TITLE: usize = 200;

pub(super) fn routes(api: Api) -> Api {
    api.get("/v1/threads", "List the ids of conversations", &[], ids)
        .post("/v1/threads", "Make a conversation", &[409], create)
        .get("/v1/threads/summaries", "List conversations", &[], summaries)
        .get("/v1/threads/{id}", "Show a conversation", &[], show)
        .patch("/v1/threads/{id}", "Set the title of a conversation", &[], rename)
        .delete("/v1/threads/{id}", "Delete a conversation", &[409], delete)
        .patch("/v1/threads/{id}/metadata", "Set the title of a conversation", &[], patch_metadata)
        .get("/v1/threads/{id}/messages", "Read the history", &[], messages)
        .post("/v1/threads/{id}/messages", "Send messages without waiting for the run", &[409], send_message)
        .get("/v1/threads/{id}/mailbox", "List the queued messages", &[], mailbox)
        .post("/v1/threads/{id}/mailbox", "Queue messages", &[409], put_into_mailbox)
        .get("/v1/threads/{id}/events", "Follow the events of a conversation", &[], events)
        .get("/v1/threads/{id}/runs", "List runs", &[], runs)
        .get("/v1/threads/{id}/runs/latest", "Show the latest run", &[], latest_run)
        .post("/v1/threads/{id}/cancel", "Stop the run", &[409], cancel)
        .post("/v1/threads/{id}/interrupt", "Stop the run and discard queued messages", &[409], interrupt)
        .post(
            "/v1/threads/{id}/decision",
            "Answer about a call",
            &[409, 410],
            super::approvals::decide_in_thread,
        )
}

/// The receipt for a request to stop a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct CancelReceipt {
    /// `false`: nothing of this server was active or waiting there.
    pub(super) cancel_requested: bool,
}

/// The receipt for an interrupt.
#[derive(Serialize, JsonSchema)]
pub(super) struct InterruptReceipt {
    interrupt_requested: bool,
    /// Queued messages that were dropped.
    superseded_jobs: usize,
}

/// The receipt for a message.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SayReceipt")]
pub(super) struct MessageReceipt {
    thread_id: ThreadId,
    /// Whether the message is queued after an active or waiting run.
    queued: bool,
    /// The run that the message started, or that the decisions are for.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// The job that contains the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
}

impl MessageReceipt {
    /// The receipt for decisions.
    pub(super) fn resumed(run: RunRecord) -> Self {
        Self { thread_id: run.thread_id, queued: false, run_id: Some(run.id), job_id: None }
    }
}

/// A conversation and its state.
#[derive(Serialize, JsonSchema)]
struct ThreadDetail {
    #[serde(flatten)]
    thread: ThreadRecord,
    /// The status of its latest run.
    status: Option<RunStatus>,
    /// The number of pending questions in the conversation and below it.
    waiting: usize,
    /// Whether this server may drive the conversation.
    served: bool,
}

/// A part of a history.
#[derive(Serialize, JsonSchema)]
struct HistoryPage {
    items: Vec<StoredMessage>,
    /// Messages of the whole conversation.
    total: u64,
    next_cursor: Option<String>,
    prev_cursor: Option<String>,
}

/// A conversation in a list.
#[derive(Serialize, JsonSchema)]
struct SummaryRow {
    #[serde(flatten)]
    summary: ThreadSummary,
    /// Whether this server may drive the conversation.
    served: bool,
}

async fn ids(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<ListPage<ThreadId>>, ApiError> {
    page(paging, async |slice| hub.store().summaries(slice).await, |row| row.thread.id).await
}

async fn summaries(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<ListPage<SummaryRow>>, ApiError> {
    let row = |summary: ThreadSummary| SummaryRow { served: hub.serves(&summary.thread.cwd), summary };
    page(paging, async |slice| hub.store().summaries(slice).await, row).await
}

/// The properties of a new conversation.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewThread {
    /// Its id; a fresh one when absent.
    pub(super) id: Option<String>,
    /// The title.
    pub(super) title: Option<String>,
    /// The folder it works in; the server's first one when absent.
    pub(super) folder: Option<PathBuf>,
}

/// A new conversation in a folder that is served. It is not stored yet.
pub(super) async fn checked_thread(hub: &Hub, wanted: NewThread) -> Result<ThreadRecord, ApiError> {
    let folder = match wanted.folder {
        // Links are followed before the folder is compared with those that are served.
        Some(folder) => tokio::fs::canonicalize(&folder)
            .await
            .map_err(|_| ApiError::field("folder", format!("{} is not a folder", folder.display())))?,
        None => hub.program.folders().first().cloned().unwrap_or_default(),
    };
    hub.agent_folder(&folder).await?;
    let id = match wanted.id {
        Some(id) => given_thread(&id)?,
        None => ThreadId::fresh(),
    };
    let title = wanted.title.unwrap_or_default();
    check_title(&title)?;
    if hub.store().load_thread(&id).await?.is_some() {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "exists",
            format!("the conversation `{id}` already exists"),
        ));
    }
    let now = now_ms();
    Ok(ThreadRecord { id, title, cwd: folder, created_at: now, updated_at: now })
}

/// The conversation of a client. A new one is stored when a run starts in it: a request that is refused leaves none.
pub(crate) async fn thread_of(hub: &Hub, id: Option<&str>) -> Result<ThreadRecord, ApiError> {
    if let Some(id) = id
        && let Some(known) = hub.store().load_thread(&given_thread(id)?).await?
    {
        return Ok(known);
    }
    checked_thread(hub, NewThread { id: id.map(str::to_owned), ..NewThread::default() }).await
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
    Authorized { hub, .. }: Authorized<ChatScope>,
    JsonBody(wanted): JsonBody<NewThread>,
) -> Result<Created<ThreadRecord>, ApiError> {
    let thread = checked_thread(&hub, wanted).await?;
    hub.store().ensure_thread(thread.clone()).await?;
    Ok(Created(thread))
}

async fn show(InThread { hub, thread, .. }: InThread<ReadScope>) -> Result<Json<ThreadDetail>, ApiError> {
    let status = hub.store().latest_run(&thread.id).await?.map(|run| run.status);
    let waiting = hub.store().waiting_below(&thread.id).await?.len();
    let served = hub.serves(&thread.cwd);
    Ok(Json(ThreadDetail { thread, status, waiting, served }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rename {
    title: String,
}

async fn rename(
    InThread { hub, thread, .. }: InThread<ChatScope>,
    JsonBody(Rename { title }): JsonBody<Rename>,
) -> Result<Json<ThreadRecord>, ApiError> {
    check_title(&title)?;
    if title.trim().is_empty() {
        return Err(ApiError::field("title", "a title is not empty"));
    }
    hub.store().rename_thread(&thread.id, &title, NamedBy::Person).await?;
    Ok(Json(hub.thread(&thread.id).await?))
}

async fn patch_metadata(
    thread: InThread<ChatScope>,
    title: JsonBody<Rename>,
) -> Result<Json<ThreadRecord>, ApiError> {
    rename(thread, title).await
}

async fn delete(State(hub): HubState, caller: Caller, Path(id): Path<ThreadId>) -> Result<Nothing, ApiError> {
    demand(&caller, TokenScope::Admin)?;
    let actor = hub.program.actor(&caller.token);
    let gone = hub.any_folder().await?.runtime().delete_thread(&id, actor).await?;
    if gone { Ok(Nothing) } else { Err(ApiError::not_found("conversation", id.as_str())) }
}

/// The part of a history to return, besides its paging.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct HistoryQuery {
    #[schemars(regex(pattern = "^(end|[0-9]{1,19})$"))]
    cursor: Option<String>,
    /// `external` when absent.
    #[schemars(regex(pattern = "^(external|all)$"))]
    visibility: Option<String>,
}

/// The messages of a conversation, oldest first. `cursor` is `end` for the last page, or what another page gave.
async fn messages(
    InThread { hub, thread, .. }: InThread<ReadScope>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<HistoryQuery>,
) -> Result<Json<HistoryPage>, ApiError> {
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
    let mut items = hub.store().messages_page(&thread.id, page).await?;
    items.retain(|stored| all || stored.message.visibility != Visibility::Internal);
    Ok(Json(HistoryPage {
        items,
        total: count,
        next_cursor: (until < count).then(|| until.to_string()),
        prev_cursor: (from > 0).then(|| from.saturating_sub(limit).to_string()),
    }))
}

/// Sends a message: a run starts in the background, or the message is queued after one that is active or
/// waits.
async fn send_message(
    InThread { hub, caller, thread, .. }: InThread<ChatScope>,
    JsonBody(given): JsonBody<NewMessages>,
) -> Result<Accepted<MessageReceipt>, ApiError> {
    let messages = hub.messages(&thread, given.texts()?, &caller).await?;
    Ok(Accepted(send_message_in(&hub, &thread, messages, &caller).await?))
}

async fn put_into_mailbox(
    thread: InThread<ChatScope>,
    given: JsonBody<NewMessages>,
) -> Result<Accepted<MessageReceipt>, ApiError> {
    send_message(thread, given).await
}

/// The same for callers that have the conversation.
pub(super) async fn send_message_in(
    hub: &Arc<Hub>,
    thread: &ThreadRecord,
    messages: Vec<Message>,
    caller: &Caller,
) -> Result<MessageReceipt, ApiError> {
    let receipt = MessageReceipt { thread_id: thread.id.clone(), queued: true, run_id: None, job_id: None };
    if hub.is_busy(&thread.id).await? {
        let agent_folder = hub.agent_folder(&thread.cwd).await?;
        let mut job = MailboxJob::new(thread.id.clone(), messages, now_ms());
        job.sender_id = Some(caller.token.clone());
        job = job.with_correlation_id(caller.correlation_id.clone());
        let job = agent_folder.runtime().submit(job).await?;
        hub.wake(&thread.id);
        return Ok(MessageReceipt { job_id: Some(job.job_id), ..receipt });
    }
    let mut request = RunRequest::new(thread.id.clone(), messages);
    request.correlation_id.clone_from(&caller.correlation_id);
    let run = hub.begin(thread, request).await?;
    Ok(MessageReceipt { queued: false, run_id: Some(run), ..receipt })
}

async fn mailbox(
    InThread { hub, thread, .. }: InThread<ReadScope>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<ListPage<MailboxJob>>, ApiError> {
    page(paging, async |slice| hub.store().open_jobs(Some(&thread.id), slice).await, |job| job).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct EventsQuery {
    after: Option<u64>,
}

/// Streams what happens in a conversation, without end.
async fn events(
    InThread { hub, thread, .. }: InThread<ReadScope>,
    LastEvent(last): LastEvent,
    Asked(asked): Asked<EventsQuery>,
) -> Result<EventStream, ApiError> {
    let count = hub.store().message_count(&thread.id).await?;
    let after = match last {
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
    Ok(EventStream(sse::respond(sse::follow(follower))))
}

async fn runs(
    InThread { hub, thread, .. }: InThread<ReadScope>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<ListPage<RunView>>, ApiError> {
    let runs = async |slice| hub.store().latest_runs(Some(&thread.id), None, slice).await;
    page(paging, runs, RunView::from).await
}

async fn latest_run(InThread { hub, thread, .. }: InThread<ReadScope>) -> Result<Json<RunView>, ApiError> {
    Ok(Json(hub.latest_run(&thread.id).await?.into()))
}

pub(super) async fn cancel(
    InThread { hub, thread, .. }: InThread<ChatScope>,
) -> Result<Json<CancelReceipt>, ApiError> {
    Ok(Json(CancelReceipt { cancel_requested: hub.cancel(&thread).await? }))
}

/// Stops what is active and drops what is queued.
pub(super) async fn interrupt(
    InThread { hub, thread, .. }: InThread<ChatScope>,
) -> Result<Json<InterruptReceipt>, ApiError> {
    let interrupted = hub.store().interrupt(&thread.id, now_ms()).await?;
    hub.cancel(&thread).await?;
    Ok(Json(InterruptReceipt { interrupt_requested: true, superseded_jobs: interrupted.superseded_count }))
}
