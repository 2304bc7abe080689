//! Runs: start one and read its events, list and show them, stop them.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::sse::Event;
use aye_core::contract::event::{AgentEvent, StreamEvent};
use aye_core::contract::ids::RunId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::ThreadRecord;
use aye_runtime::RunRequest;
use futures::Stream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::approvals::{CallDecision, decide_call_of};
use super::extract::{Asked, Authorized, ChatScope, InThread, JsonBody, ReadScope, given_thread};
use super::new_messages::NewMessages;
use super::paging::{ListPage, Paging, page};
use super::run_view::RunView;
use super::threads::{CancelReceipt, MessageReceipt, NewThread, checked_thread, send_message_in};
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
        .post("/v1/threads/{id}/runs", "Start a run and stream its events", &[409], start_in)
        .post(
            "/v1/runs/{id}/decision",
            "Answer a question about a call of a run",
            &[409, 410],
            super::approvals::decide_in_run,
        )
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct RunsQuery {
    status: Option<RunStatus>,
}

async fn list(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<RunsQuery>,
) -> Result<Json<ListPage<RunView>>, ApiError> {
    let runs = async |slice| hub.store().latest_runs(None, asked.status, slice).await;
    page(paging, runs, RunView::from).await
}

async fn show(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Path(id): Path<RunId>,
) -> Result<Json<RunView>, ApiError> {
    Ok(Json(hub.run(&id).await?.into()))
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
    new_messages: NewMessages,
}

/// Starts a run, in a new conversation if none is named, and streams its events until the run is done or
/// waits.
async fn start(
    Authorized { hub, caller, .. }: Authorized<ChatScope>,
    stops: StopsOnLeave,
    JsonBody(wanted): JsonBody<NewRun>,
) -> Result<EventStream, ApiError> {
    let texts = wanted.new_messages.texts()?;
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
async fn start_in(
    InThread { hub, caller, thread, .. }: InThread<ChatScope>,
    stops: StopsOnLeave,
    JsonBody(wanted): JsonBody<NewRun>,
) -> Result<EventStream, ApiError> {
    let mut request = RunRequest::new(
        thread.id.clone(),
        hub.messages(&thread, wanted.new_messages.texts()?, &caller).await?,
    );
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
    new_messages: NewMessages,
}

/// Says more in the conversation of a run, or decides about its calls.
async fn inputs(
    Authorized { hub, caller, .. }: Authorized<ChatScope>,
    Path(id): Path<RunId>,
    JsonBody(inputs): JsonBody<RunInputs>,
) -> Result<Accepted<MessageReceipt>, ApiError> {
    let run = hub.run(&id).await?;
    if inputs.decisions.is_empty() {
        let thread = hub.thread(&run.thread_id).await?;
        let messages = hub.messages(&thread, inputs.new_messages.texts()?, &caller).await?;
        return Ok(Accepted(send_message_in(&hub, &thread, messages, &caller).await?));
    }
    if !inputs.new_messages.is_empty() {
        return Err(ApiError::field("decisions", "send decisions or messages, not both"));
    }
    demand(&caller, TokenScope::Decide)?;
    for decision in inputs.decisions {
        let _accepted = decide_call_of(&hub, &caller, &id, decision).await?;
    }
    Ok(Accepted(MessageReceipt::resumed(run)))
}

async fn cancel(
    Authorized { hub, .. }: Authorized<ChatScope>,
    Path(id): Path<RunId>,
) -> Result<Json<CancelReceipt>, ApiError> {
    let run = hub.run(&id).await?;
    if run.status == RunStatus::Done {
        return Err(ApiError::new(StatusCode::CONFLICT, "done", "the run is over"));
    }
    let thread = hub.thread(&run.thread_id).await?;
    Ok(Json(CancelReceipt { cancel_requested: hub.cancel(&thread).await? }))
}
