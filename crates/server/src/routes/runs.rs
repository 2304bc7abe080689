//! Runs: start one and read its events, list and show them, stop them.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::sse::Event;
use aye_core::contract::event::{AgentEvent, StreamEvent};
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::record::{RunRecord, ThreadRecord};
use aye_runtime::RunRequest;
use futures::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::approvals::{CallDecision, decide_call_of};
use super::threads::{CancelReceipt, NewThread, SayReceipt, checked_thread, send_message_in};
use super::{Allowed, Asked, Body, Chat, InThread, ListPage, Paging, Read, Said, given_thread, page};
use crate::access::TokenScope;
use crate::api::{Accepted, Api, EventStream};
use crate::error::ApiError;
use crate::follow::Frame;
use crate::guard::demand;
use crate::hub::Hub;
use crate::reading::RunReader;
use crate::sse::{self, StopsOnLeave};

pub(super) fn routes(api: Api) -> Api {
    api.get("/v1/runs", "List runs", &[], list)
        .post("/v1/runs", "Start a run and stream its events", &[409], start)
        .get("/v1/runs/{id}", "Show a run", &[], show)
        .post("/v1/runs/{id}/inputs", "Send messages to the conversation of a run", &[409], inputs)
        .post("/v1/runs/{id}/cancel", "Stop a run", &[409], cancel)
        .post(
            "/v1/runs/{id}/decision",
            "Answer a question about a call of a run",
            &[409, 410],
            super::approvals::decide_in_run,
        )
}

/// A run without the machine's own state.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunView {
    id: RunId,
    thread_id: ThreadId,
    parent_run_id: Option<RunId>,
    /// The client's id of the request that the run serves.
    correlation_id: Option<String>,
    agent_id: String,
    model: String,
    status: RunStatus,
    steps: u32,
    usage: TokenUsage,
    active_ms: u64,
    termination: Option<TerminationReason>,
    created_at: u64,
    updated_at: u64,
}

impl From<RunRecord> for RunView {
    fn from(run: RunRecord) -> Self {
        Self {
            id: run.id,
            thread_id: run.thread_id,
            parent_run_id: run.parent_run_id,
            correlation_id: run.correlation_id,
            agent_id: run.agent_id,
            model: run.model,
            status: run.status,
            steps: run.steps,
            usage: run.usage,
            active_ms: run.active_ms,
            termination: run.termination,
            created_at: run.created_at,
            updated_at: run.updated_at,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct RunsQuery {
    status: Option<RunStatus>,
}

async fn list(
    Allowed { hub, .. }: Allowed<Read>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<RunsQuery>,
) -> Result<Json<ListPage<RunView>>, ApiError> {
    let runs = async |slice| hub.store().latest_runs(None, asked.status, slice).await;
    page(paging, runs, RunView::from).await
}

pub(super) async fn run_of(hub: &Hub, id: &RunId) -> Result<RunRecord, ApiError> {
    let run = hub.store().load_run(id).await?;
    run.ok_or_else(|| ApiError::not_found("run", id.as_str()))
}

async fn show(Allowed { hub, .. }: Allowed<Read>, Path(id): Path<RunId>) -> Result<Json<RunView>, ApiError> {
    Ok(Json(run_of(&hub, &id).await?.into()))
}

/// The request for a run.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct NewRun {
    thread_id: Option<String>,
    agent_id: Option<String>,
    folder: Option<PathBuf>,
    title: Option<String>,
    #[serde(flatten)]
    said: Said,
}

/// Starts a run, in a new conversation if none is named, and streams its events until the run is done or
/// waits.
async fn start(
    Allowed { hub, caller, .. }: Allowed<Chat>,
    stops: StopsOnLeave,
    Body(wanted): Body<NewRun>,
) -> Result<EventStream, ApiError> {
    let texts = wanted.said.texts()?;
    let known = match &wanted.thread_id {
        Some(id) => hub.store().load_thread(&given_thread(id)?).await?,
        None => None,
    };
    let thread = if let Some(thread) = known {
        thread
    } else {
        let new = NewThread { id: wanted.thread_id, title: wanted.title, folder: wanted.folder };
        checked_thread(&hub, new).await?
    };
    let messages = hub.messages(&thread, texts, &caller).await?;
    let mut request = RunRequest::new(thread.id.clone(), messages);
    request.agent_id = wanted.agent_id;
    request.correlation_id = caller.correlation_id;
    begin(&hub, &thread, request, stops).await
}

/// The same in the conversation of the path.
pub(super) async fn start_in(
    InThread { hub, caller, thread, .. }: InThread<Chat>,
    stops: StopsOnLeave,
    Body(wanted): Body<NewRun>,
) -> Result<EventStream, ApiError> {
    let mut request =
        RunRequest::new(thread.id.clone(), hub.messages(&thread, wanted.said.texts()?, &caller).await?);
    request.agent_id = wanted.agent_id;
    request.correlation_id = caller.correlation_id;
    begin(&hub, &thread, request, stops).await
}

async fn begin(
    hub: &Arc<Hub>,
    thread: &ThreadRecord,
    request: RunRequest,
    StopsOnLeave(stops): StopsOnLeave,
) -> Result<EventStream, ApiError> {
    if hub.is_busy(&thread.id).await? {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "busy",
            "a run is active or waits in this conversation; POST its messages to queue them behind it",
        ));
    }
    let reader = RunReader::new(hub, &thread.id).await?;
    let correlation_id = request.correlation_id.clone();
    let run = hub.begin(thread, request).await?;
    let mut response =
        sse::respond(frames(reader.of(run.clone()).stopping(hub, &thread.id, stops), correlation_id));
    let headers = response.headers_mut();
    for (name, value) in [("x-thread-id", thread.id.as_str()), ("x-run-id", run.as_str())] {
        // Ids that a client gave are letters and digits; others are ours.
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
    Ok(EventStream(response))
}

/// The events of one run as frames.
fn frames(
    reader: RunReader,
    correlation_id: Option<String>,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    futures::stream::unfold((reader, 0, correlation_id), |(mut reader, seq, correlation_id)| async move {
        let (frame, seq) = match reader.next().await? {
            Frame::Event { committed, event } => {
                let now = jiff::Timestamp::now().to_string();
                let event = StreamEvent::new(seq + 1, now, AgentEvent::clone(&event))
                    .with_correlation_id(correlation_id.clone());
                (sse::json(None, committed, &event), seq + 1)
            }
            Frame::Message(stored) => (sse::json(Some("message"), Some(stored.seq), &stored), seq),
            Frame::Dropped(cursor) => (sse::json(Some("dropped"), None, &json!({ "cursor": cursor })), seq),
        };
        Some((Ok(frame), (reader, seq, correlation_id)))
    })
}

/// What a run is sent: messages, or decisions about its calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct RunInputs {
    decisions: Vec<CallDecision>,
    #[serde(flatten)]
    said: Said,
}

/// Says more in the conversation of a run, or decides about its calls.
async fn inputs(
    Allowed { hub, caller, .. }: Allowed<Chat>,
    Path(id): Path<RunId>,
    Body(inputs): Body<RunInputs>,
) -> Result<Accepted<SayReceipt>, ApiError> {
    let run = run_of(&hub, &id).await?;
    if inputs.decisions.is_empty() {
        let thread = hub.thread(&run.thread_id).await?;
        let messages = hub.messages(&thread, inputs.said.texts()?, &caller).await?;
        return Ok(Accepted(send_message_in(&hub, &thread, messages, &caller).await?));
    }
    if !inputs.said.is_empty() {
        return Err(ApiError::field("decisions", "send decisions or messages, not both"));
    }
    demand(&caller, TokenScope::Decide)?;
    for decision in inputs.decisions {
        let _accepted = decide_call_of(&hub, &caller, &id, decision).await?;
    }
    Ok(Accepted(SayReceipt::resumed(run)))
}

async fn cancel(
    Allowed { hub, .. }: Allowed<Chat>,
    Path(id): Path<RunId>,
) -> Result<Json<CancelReceipt>, ApiError> {
    let run = run_of(&hub, &id).await?;
    if run.status == RunStatus::Done {
        return Err(ApiError::new(StatusCode::CONFLICT, "done", "the run is over"));
    }
    let thread = hub.thread(&run.thread_id).await?;
    Ok(Json(CancelReceipt { cancel_requested: hub.cancel(&thread).await? }))
}
