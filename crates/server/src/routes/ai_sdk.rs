//! The AI SDK: its `useChat` uses `/v1/ai-sdk/chat`. `aye-encode` defines the wire format.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::Event;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::message::{Message, Role};
use aye_core::contract::storage::SuspensionFilter;
use aye_encode::ai_sdk::{AiSdkEncoder, AiSdkIntent, AiSdkRequest, UiChunk, ui_messages};
use aye_runtime::RunRequest;
use futures::Stream;
use serde_json::{Value, json};

use super::approvals;
use super::extract::{Authorized, ChatScope, InThread, JsonBody, ReadScope};
use super::threads::{CancelReceipt, InterruptReceipt, cancel, interrupt, thread_of};
use crate::access::Caller;
use crate::api::{Api, EventStream, StreamOrNothing};
use crate::error::ApiError;
use crate::follow::{Follower, Frame};
use crate::hub::Hub;
use crate::reading::RunReader;
use crate::sse::{self, StopsOnLeave};

/// Says which protocol a stream speaks.
const PROTOCOL: (&str, &str) = ("x-vercel-ai-ui-message-stream", "v1");
/// The last line of a stream.
const END: &str = "[DONE]";
/// The message to the model when a client requests another answer. Messages are only ever appended.
const ONCE_MORE: &str = "Answer my last message again in a different way.";

pub(super) fn routes(api: Api) -> Api {
    api.post("/v1/ai-sdk/chat", "One turn of `useChat`", &[409, 410], chat)
        .post("/v1/ai-sdk/threads/{id}/runs", "The same in a conversation", &[409, 410], chat_in)
        .post("/v1/ai-sdk/agents/{id}/runs", "The same with an agent", &[409, 410], chat_with)
        .get("/v1/ai-sdk/chat/{id}/stream", "Resume the message in progress", &[], resume)
        .get("/v1/ai-sdk/threads/{id}/stream", "The same", &[], resume_in)
        .get("/v1/ai-sdk/streams/{id}", "The same by the id of the run", &[], resume_run)
        .get("/v1/ai-sdk/runs/{id}/stream", "The same", &[], resume_in_run)
        .get("/v1/ai-sdk/threads/{id}/messages", "Show the history as messages", &[], messages)
        .post("/v1/ai-sdk/threads/{id}/cancel", "Stop the run", &[409], stop)
        .post(
            "/v1/ai-sdk/threads/{id}/interrupt",
            "Stop the run and discard queued messages",
            &[409],
            drop_all,
        )
}

/// A chat that has sent nothing yet has nothing in progress.
async fn resume(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Path(id): Path<ThreadId>,
) -> Result<StreamOrNothing, ApiError> {
    in_progress(hub, id, None).await
}

async fn resume_in(allowed: Authorized<ReadScope>, id: Path<ThreadId>) -> Result<StreamOrNothing, ApiError> {
    resume(allowed, id).await
}

async fn resume_run(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Path(id): Path<RunId>,
) -> Result<StreamOrNothing, ApiError> {
    let run = hub.run(&id).await?;
    in_progress(hub, run.thread_id, Some(id)).await
}

async fn resume_in_run(allowed: Authorized<ReadScope>, id: Path<RunId>) -> Result<StreamOrNothing, ApiError> {
    resume_run(allowed, id).await
}

async fn stop(thread: InThread<ChatScope>) -> Result<Json<CancelReceipt>, ApiError> {
    cancel(thread).await
}

async fn drop_all(thread: InThread<ChatScope>) -> Result<Json<InterruptReceipt>, ApiError> {
    interrupt(thread).await
}

async fn chat(
    Authorized { hub, caller, .. }: Authorized<ChatScope>,
    stops: StopsOnLeave,
    JsonBody(request): JsonBody<AiSdkRequest>,
) -> Result<EventStream, ApiError> {
    turn(&hub, &caller, request, stops).await
}

async fn chat_in(
    Authorized { hub, caller, .. }: Authorized<ChatScope>,
    Path(id): Path<String>,
    stops: StopsOnLeave,
    JsonBody(mut request): JsonBody<AiSdkRequest>,
) -> Result<EventStream, ApiError> {
    request.thread_id = Some(id);
    turn(&hub, &caller, request, stops).await
}

async fn chat_with(
    Authorized { hub, caller, .. }: Authorized<ChatScope>,
    Path(id): Path<String>,
    stops: StopsOnLeave,
    JsonBody(mut request): JsonBody<AiSdkRequest>,
) -> Result<EventStream, ApiError> {
    request.agent_id = Some(id);
    turn(&hub, &caller, request, stops).await
}

/// One turn of a client: something said, or answers.
async fn turn(
    hub: &Arc<Hub>,
    caller: &Caller,
    request: AiSdkRequest,
    StopsOnLeave(stops): StopsOnLeave,
) -> Result<EventStream, ApiError> {
    let thread = thread_of(hub, request.thread()).await?;
    let filter = SuspensionFilter { thread: Some(thread.id.clone()), ..SuspensionFilter::default() };
    let questions = hub.store().suspensions(filter).await?;
    let intent = request.intent(&questions).map_err(|error| ApiError::field(error.field, error.message))?;
    let sent = match intent {
        AiSdkIntent::Say(turn) => vec![hub.message(&thread, turn.content, caller).await?],
        AiSdkIntent::Regenerate { .. } => vec![Message::continuation(ONCE_MORE)],
        AiSdkIntent::Answer(answers) => {
            let encoder = match request.continued() {
                Some((message, calls)) => AiSdkEncoder::resuming(message, calls),
                None => AiSdkEncoder::new(),
            };
            let about = approvals::run_of_answers(hub, &thread, &questions, &answers).await?;
            approvals::decide_in_time(hub, caller, answers).await?;
            let reader = RunReader::since(hub, &about.run, about.asked).await?;
            return Ok(streamed(reader.stopping(hub, &thread.id, stops), encoder));
        }
    };
    let mut begin = RunRequest::new(thread.id.clone(), sent);
    begin.agent_id = request.agent_id;
    begin.correlation_id.clone_from(&caller.correlation_id);
    let reader = RunReader::new(hub, &thread.id).await?;
    let run = hub.begin(&thread, begin).await?;
    Ok(streamed(reader.of(run).stopping(hub, &thread.id, stops), AiSdkEncoder::new()))
}

fn streamed(reader: RunReader, encoder: AiSdkEncoder) -> EventStream {
    respond(sse::chunks(Some(END), (reader, encoder), |(mut reader, mut encoder)| async move {
        let chunks = chunks_of(reader.next().await?, &mut encoder);
        Some((chunks, (reader, encoder)))
    }))
}

fn chunks_of(frame: Frame, encoder: &mut AiSdkEncoder) -> Vec<UiChunk> {
    match frame {
        Frame::Event { event, .. } => encoder.encode(&event),
        Frame::Message(_) => Vec::new(),
        Frame::Dropped(_) => encoder.fail("the stream was read too slowly; resume it"),
    }
}

fn respond(frames: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> EventStream {
    let mut response = sse::respond(frames);
    let value = HeaderValue::from_static(PROTOCOL.1);
    response.headers_mut().insert(HeaderName::from_static(PROTOCOL.0), value);
    EventStream(response)
}

/// Streams the message in progress from its start; 204 when no run is active, or another one than the given.
async fn in_progress(
    hub: Arc<Hub>,
    thread: ThreadId,
    wanted: Option<RunId>,
) -> Result<StreamOrNothing, ApiError> {
    let nothing = || StreamOrNothing(None);
    if !hub.channels.join(&thread).channel.is_driven() {
        return Ok(nothing());
    }
    let latest = hub.store().latest_run(&thread).await?;
    let Some(run) = latest.filter(|run| wanted.is_none_or(|wanted| run.id == wanted)) else {
        return Ok(nothing());
    };
    let (_, sent) = hub.store().messages_of_run(&thread, &run.id).await?;
    let asked = sent.iter().take_while(|stored| stored.message.role == Role::User).last();
    let after = match (asked, sent.first()) {
        (Some(asked), _) => asked.seq,
        (None, Some(first)) => first.seq.saturating_sub(1),
        (None, None) => hub.store().message_count(&thread).await?,
    };
    let follower = Follower::new(hub, thread, after).await?;
    let encoder = AiSdkEncoder::replaying(run.id.as_str());
    let frames = sse::chunks(Some(END), (follower, encoder), |(mut follower, mut encoder)| async move {
        if encoder.is_finished() {
            return None;
        }
        let chunks = chunks_of(follower.next().await?, &mut encoder);
        Some((chunks, (follower, encoder)))
    });
    Ok(StreamOrNothing(Some(respond(frames))))
}

async fn messages(InThread { hub, thread, .. }: InThread<ReadScope>) -> Result<Json<Value>, ApiError> {
    let stored = hub.store().load_messages(&thread.id).await?;
    let questions = hub.store().waiting_below(&thread.id).await?;
    Ok(Json(json!(ui_messages(&stored, &questions))))
}
