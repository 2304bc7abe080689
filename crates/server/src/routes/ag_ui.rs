//! AG-UI: its `HttpAgent` and CopilotKit use `/v1/ag-ui/run`. `aye-encode` defines the wire format.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{RunId, SuspensionId, ThreadId};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::{Message, Visibility};
use aye_core::contract::record::{StoredMessage, SuspensionRecord, SuspensionStatus, ThreadRecord};
use aye_core::contract::storage::SuspensionFilter;
use aye_core::contract::suspension::ACTION_FRONTEND_TOOL;
use aye_core::contract::tool::ToolDescriptor;
use aye_encode::ag_ui::{AgUiEncoder, AgUiEvent, AgUiIntent, AgUiMessage, RunAgentInput, ag_ui_messages};
use aye_encode::ai_sdk::UserTurn;
use aye_encode::answer::ClientRequestError;
use aye_runtime::RunRequest;
use serde_json::{Value, json};

use super::approvals;
use super::extract::{Authorized, ChatScope, InThread, JsonBody, ReadScope};
use super::threads::{CancelReceipt, InterruptReceipt, cancel, interrupt, send_message_in, thread_of};
use crate::access::Caller;
use crate::api::{Api, EventStream};
use crate::error::ApiError;
use crate::follow::Frame;
use crate::hub::Hub;
use crate::reading::RunReader;
use crate::sse::{self, StopsOnLeave};

pub(super) fn routes(api: Api) -> Api {
    api.post("/v1/ag-ui/run", "One run of `HttpAgent`", &[409, 410], run)
        .post("/v1/ag-ui/threads/{id}/runs", "The same in a conversation", &[409, 410], run_in)
        .post("/v1/ag-ui/agents/{id}/runs", "The same with an agent", &[409, 410], run_with)
        .post("/v1/ag-ui/threads/{id}/cancel", "Stop the run", &[409], stop)
        .post(
            "/v1/ag-ui/threads/{id}/interrupt",
            "Stop the run and discard queued messages",
            &[409],
            drop_all,
        )
        .get("/v1/ag-ui/threads/{id}/messages", "Show the history as messages", &[], messages)
}

async fn stop(thread: InThread<ChatScope>) -> Result<Json<CancelReceipt>, ApiError> {
    cancel(thread).await
}

async fn drop_all(thread: InThread<ChatScope>) -> Result<Json<InterruptReceipt>, ApiError> {
    interrupt(thread).await
}

async fn run(
    Authorized { hub, caller, .. }: Authorized<ChatScope>,
    stops: StopsOnLeave,
    JsonBody(input): JsonBody<RunAgentInput>,
) -> Result<EventStream, ApiError> {
    turn(&hub, &caller, input, stops).await
}

async fn run_in(
    Authorized { hub, caller, .. }: Authorized<ChatScope>,
    Path(id): Path<String>,
    stops: StopsOnLeave,
    JsonBody(mut input): JsonBody<RunAgentInput>,
) -> Result<EventStream, ApiError> {
    input.thread_id = id;
    turn(&hub, &caller, input, stops).await
}

async fn run_with(
    Authorized { hub, caller, .. }: Authorized<ChatScope>,
    Path(id): Path<String>,
    stops: StopsOnLeave,
    JsonBody(mut input): JsonBody<RunAgentInput>,
) -> Result<EventStream, ApiError> {
    input.agent_id = Some(id);
    turn(&hub, &caller, input, stops).await
}

/// One run of a client: something said, answers to interrupts and results of its own tools, or a look at what happens.
async fn turn(
    hub: &Arc<Hub>,
    caller: &Caller,
    input: RunAgentInput,
    StopsOnLeave(stops): StopsOnLeave,
) -> Result<EventStream, ApiError> {
    let refused = |error: ClientRequestError| ApiError::field(error.field, error.message);
    let tools = input.frontend_tools().map_err(refused)?;
    let thread = thread_of(hub, Some(&input.thread_id)).await?;
    let filter = SuspensionFilter { thread: Some(thread.id.clone()), ..SuspensionFilter::default() };
    let mut questions = hub.store().suspensions(filter).await?;
    let below = hub.store().waiting_below(&thread.id).await?;
    questions.extend(below.into_iter().filter(|question| question.thread_id != thread.id));
    for entry in &input.resume {
        // A subagent's question that is no longer pending.
        if questions.iter().all(|known| known.id.as_str() != entry.interrupt_id)
            && let Some(closed) =
                hub.store().suspension(&SuspensionId::from(entry.interrupt_id.as_str())).await?
            && closed.thread_id.is_at_or_below(&thread.id)
        {
            questions.push(closed);
        }
    }
    let stored = hub.store().load_messages(&thread.id).await?;
    let known = ag_ui_messages(&stored);
    let intent = input.intent(&questions, &known).map_err(refused)?;
    let channel = hub.channels.join(&thread.id).channel;
    channel.want_state();
    let is_pending = |question: &SuspensionRecord| {
        question.status == SuspensionStatus::Open
            && !question.ticket.is_served()
            && question.ticket.suspension.action != ACTION_FRONTEND_TOOL
    };
    let stream = match intent {
        // A page that answers an interrupt may not know of one that was asked since: what it says comes after that one.
        AgUiIntent::Say(user_turn) if !input.resume.is_empty() && questions.iter().any(is_pending) => {
            send_message_in(
                hub,
                &thread,
                vec![message(hub, &thread, user_turn, &known, caller).await?],
                caller,
            )
            .await?;
            join(hub, thread, input).await?
        }
        AgUiIntent::Say(user_turn) => {
            let mut messages = context(hub, &thread, &input, &stored).await?;
            messages.push(message(hub, &thread, user_turn, &known, caller).await?);
            let mut request = RunRequest::new(thread.id.clone(), messages);
            request.agent_id.clone_from(&input.agent_id);
            request.correlation_id.clone_from(&caller.correlation_id);
            request.frontend_tools = tools.into_iter().map(ToolDescriptor::on_page).collect();
            let reader = RunReader::new(hub, &thread.id).await?;
            let run = hub.begin(&thread, request).await?;
            PageStream::new(hub, thread, input, reader.of(run), None)
        }
        AgUiIntent::Answer(answers) => {
            let user_turn = input.new_message(&known).map_err(refused)?;
            approvals::decide_in_time(hub, caller, answers).await?;
            if let Some(user_turn) = user_turn {
                send_message_in(
                    hub,
                    &thread,
                    vec![message(hub, &thread, user_turn, &known, caller).await?],
                    caller,
                )
                .await?;
            }
            join(hub, thread, input).await?
        }
        AgUiIntent::Join => join(hub, thread, input).await?,
    };
    let results = stream.input.own_results(&questions);
    let stream = PageStream {
        reader: stream.reader.stopping(hub, &stream.thread.id, stops),
        encoder: stream.encoder.with_results(results),
        ..stream
    };
    let frames = sse::chunks(None, stream, |mut stream| async move {
        let events = stream.next().await?;
        Some((events, stream))
    });
    Ok(EventStream(sse::respond(frames)))
}

/// The message of a user, by the id that its page gave it.
async fn message(
    hub: &Hub,
    thread: &ThreadRecord,
    user_turn: UserTurn,
    known: &[AgUiMessage],
    caller: &Caller,
) -> Result<Message, ApiError> {
    let message = hub.message(thread, user_turn.content, caller).await?;
    let is_known = known.iter().any(|known| known.id == user_turn.id);
    Ok(if is_known { message } else { message.known_as(&user_turn.id) })
}

/// What the page knows besides the conversation: for the model, as the user did not write it.
async fn context(
    hub: &Hub,
    thread: &ThreadRecord,
    input: &RunAgentInput,
    stored: &[StoredMessage],
) -> Result<Vec<Message>, ApiError> {
    let agent_folder = hub.agent_folder(&thread.cwd).await?;
    let shared = agent_folder.runtime().shared_keys(input.agent_id.as_deref());
    let internal = |text: String| Message { visibility: Visibility::Internal, ..Message::user(text) };
    let state = input.state_text(|name| shared.contains(name)).map(internal).filter(|state| {
        // The model has it already, if this is the last one that was sent.
        let heading = state.text().split(':').next().unwrap_or_default().to_owned();
        let is_state = |stored: &&StoredMessage| {
            let message = &stored.message;
            message.visibility == Visibility::Internal && message.text().starts_with(&heading)
        };
        stored.iter().rfind(is_state).is_none_or(|last| last.message.text() != state.text())
    });
    Ok(input.context_text().map(internal).into_iter().chain(state).collect())
}

/// Follows the last run of a conversation from where it is now.
async fn join(hub: &Arc<Hub>, thread: ThreadRecord, input: RunAgentInput) -> Result<PageStream, ApiError> {
    let stored = hub.store().load_messages(&thread.id).await?;
    let after = stored.last().map_or(0, |last| last.seq);
    let reader = match hub.store().latest_run(&thread.id).await? {
        Some(run) => RunReader::since(hub, &run, after).await?,
        None => RunReader::idle(&thread.id, &RunId::from(input.run_id.as_str())),
    };
    let missing = input.missing_messages(&ag_ui_messages(&stored));
    Ok(PageStream::new(hub, thread, input, reader, Some(missing)))
}

/// The events for one page.
struct PageStream {
    hub: Arc<Hub>,
    thread: ThreadRecord,
    input: RunAgentInput,
    reader: RunReader,
    encoder: AgUiEncoder,
    /// The messages that the page lacks; `None` until the run that it started has stored its own.
    missing: Option<Vec<AgUiEvent>>,
    has_begun: bool,
}

impl PageStream {
    fn new(
        hub: &Arc<Hub>,
        thread: ThreadRecord,
        input: RunAgentInput,
        reader: RunReader,
        missing: Option<Vec<AgUiEvent>>,
    ) -> Self {
        let encoder =
            AgUiEncoder::new(&input.thread_id, &input.run_id).with_client_state(input.state.clone());
        Self { hub: Arc::clone(hub), thread, input, reader, encoder, missing, has_begun: false }
    }

    async fn next(&mut self) -> Option<Vec<AgUiEvent>> {
        if let Some(missing) = self.missing.take() {
            self.has_begun = true;
            return Some(self.encoder.begin().into_iter().chain(missing).collect());
        }
        let frame = self.reader.next().await?;
        let mut events = encoded(frame, &mut self.encoder, &self.hub, &self.thread.id).await;
        if !std::mem::replace(&mut self.has_begun, true) && !self.encoder.is_finished() {
            match self.hub.store().load_messages(&self.thread.id).await {
                Ok(stored) => events.extend(self.input.missing_messages(&ag_ui_messages(&stored))),
                Err(error) => tracing::warn!(%error, "a page does not get the messages that it lacks"),
            }
        }
        Some(events)
    }
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

async fn messages(InThread { hub, thread, .. }: InThread<ReadScope>) -> Result<Json<Value>, ApiError> {
    let stored = hub.store().load_messages(&thread.id).await?;
    Ok(Json(json!(ag_ui_messages(&stored))))
}
