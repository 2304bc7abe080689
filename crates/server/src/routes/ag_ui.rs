//! AG-UI: its `HttpAgent` and CopilotKit use `/v1/ag-ui/run`. `aye-encode` defines the wire format.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::{Message, Visibility};
use aye_core::contract::storage::SuspensionFilter;
use aye_encode::ag_ui::{AgUiEncoder, AgUiEvent, AgUiIntent, RunAgentInput, ag_ui_messages};
use aye_encode::answer::ClientRequestError;
use aye_runtime::RunRequest;
use serde_json::{Value, json};

use super::ai_sdk::thread_of;
use super::threads::{InterruptReceipt, interrupt};
use super::{Allowed, Body, Chat, InThread, Read, approvals};
use crate::access::Caller;
use crate::api::{Api, EventStream};
use crate::error::ApiError;
use crate::follow::Frame;
use crate::hub::Hub;
use crate::reading::RunReader;
use crate::sse;

pub(super) fn routes(api: Api) -> Api {
    api.post("/v1/ag-ui/run", "One run of `HttpAgent`", &[409, 410], run)
        .post("/v1/ag-ui/threads/{id}/runs", "The same in a conversation", &[409, 410], run_in)
        .post("/v1/ag-ui/agents/{id}/runs", "The same with an agent", &[409, 410], run_with)
        .post(
            "/v1/ag-ui/threads/{id}/interrupt",
            "Stop the run and discard queued messages",
            &[409],
            drop_all,
        )
        .get("/v1/ag-ui/threads/{id}/messages", "Show the history as messages", &[], messages)
}

async fn drop_all(thread: InThread<Chat>) -> Result<Json<InterruptReceipt>, ApiError> {
    interrupt(thread).await
}

async fn run(
    Allowed { hub, caller, .. }: Allowed<Chat>,
    Body(input): Body<RunAgentInput>,
) -> Result<EventStream, ApiError> {
    turn(&hub, &caller, input).await
}

async fn run_in(
    Allowed { hub, caller, .. }: Allowed<Chat>,
    Path(id): Path<String>,
    Body(mut input): Body<RunAgentInput>,
) -> Result<EventStream, ApiError> {
    input.thread_id = id;
    turn(&hub, &caller, input).await
}

async fn run_with(
    Allowed { hub, caller, .. }: Allowed<Chat>,
    Path(id): Path<String>,
    Body(mut input): Body<RunAgentInput>,
) -> Result<EventStream, ApiError> {
    input.agent_id = Some(id);
    turn(&hub, &caller, input).await
}

/// One run of a client: something said, or answers to interrupts and results of its own tools.
async fn turn(hub: &Arc<Hub>, caller: &Caller, input: RunAgentInput) -> Result<EventStream, ApiError> {
    let refused = |error: ClientRequestError| ApiError::field(error.field, error.message);
    let thread = thread_of(hub, Some(&input.thread_id)).await?;
    let filter = SuspensionFilter { thread: Some(thread.id.clone()), ..SuspensionFilter::default() };
    let mut questions = hub.store().suspensions(filter).await?;
    let below = hub.store().waiting_below(&thread.id).await?;
    questions.extend(below.into_iter().filter(|question| question.thread_id != thread.id));
    let intent = input.intent(&questions).map_err(refused)?;
    let tools = input.frontend_tools().map_err(refused)?;
    let reader = RunReader::with_state(hub, &thread.id).await?;
    let encoder = AgUiEncoder::new(&input.thread_id, &input.run_id);
    let run = match intent {
        AgUiIntent::Say(said) => {
            let mut messages = Vec::new();
            if let Some(known) = input.context_text() {
                // The context of the page is for the model; the user did not write it.
                messages.push(Message { visibility: Visibility::Internal, ..Message::user(known) });
            }
            messages.push(Message::user_with(said.content));
            let mut request = RunRequest::new(thread.id.clone(), messages);
            request.agent_id = input.agent_id;
            request.correlation_id.clone_from(&caller.correlation_id);
            request.frontend_tools = tools;
            hub.begin(&thread, request).await?
        }
        AgUiIntent::Answer(answers) => approvals::answered(hub, caller, &thread, answers).await?,
    };
    let hub = Arc::clone(hub);
    let state = (reader.of(run), encoder, hub, thread.id);
    let frames = sse::chunks(None, state, |(mut reader, mut encoder, hub, thread)| async move {
        let frame = reader.next().await?;
        let events = encoded(frame, &mut encoder, &hub, &thread).await;
        Some((events, (reader, encoder, hub, thread)))
    });
    Ok(EventStream(sse::respond(frames)))
}

async fn encoded(frame: Frame, encoder: &mut AgUiEncoder, hub: &Hub, thread: &ThreadId) -> Vec<AgUiEvent> {
    match frame {
        Frame::Event { event, .. } => {
            if let AgentEvent::RunFinish { termination: TerminationReason::Suspended, .. } = &*event {
                // Some questions may have been asked before this stream started.
                match hub.store().waiting_below(thread).await {
                    Ok(open) => encoder.expect(&open),
                    Err(error) => tracing::warn!(%error, "pending questions cannot be read"),
                }
            }
            encoder.encode(&event)
        }
        Frame::Message(_) => Vec::new(),
        Frame::Dropped(_) => encoder.fail("the stream was read too slowly"),
    }
}

async fn messages(InThread { hub, thread, .. }: InThread<Read>) -> Result<Json<Value>, ApiError> {
    let stored = hub.store().load_messages(&thread.id).await?;
    Ok(Json(json!(ag_ui_messages(&stored))))
}
