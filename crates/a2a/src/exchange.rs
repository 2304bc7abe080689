//! One exchange with a remote agent: a message, and its task until that is over or asks something.
//!
//! The message is recorded in the run's notes before it is sent, and the task when it is known. After a crash, the notes
//! say where to continue: a message that arrived is not sent again, only its task is followed; one that may have arrived
//! is looked for in the agent's tasks. If it is not found, the user decides whether to send it again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::display::{shortened, visible_line};
use aye_core::contract::executor::{
    InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStream, LlmStreamEvent,
};
use aye_core::contract::inference::StreamResult;
use aye_core::contract::spec::RemoteEndpoint;
use aye_core::contract::tool::Tool;
use aye_core::failpoint::failpoint;
use aye_encode::a2a::{
    A2aConfiguration, A2aMessage, A2aResponse, A2aRole, A2aSendRequest, A2aTask, A2aTaskState, A2aTaskStatus,
};
use aye_runtime::RemoteConversation;
use futures::StreamExt as _;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use super::address::poll_interval;
use super::answer::{AnswerStream, ExchangeEvent, ExchangeOutcome, MAX_TEXT, text_of};
use super::client::{A2aClient, A2aClientError, DiscoveredAgent, SendReply, Updates};
use super::note::{AskedStatus, NoteError, SentMessage, TaskNote, TaskNotes};
use super::question::{RemoteQuestion, lost_message, questions};
use super::turn::Turn;
use super::{FillVariables, RetryDelay};

/// How often a request that did not arrive is repeated, and a lost message is looked for.
const MAX_RETRIES: u32 = 6;
const MAX_LOOKUPS: u32 = 3;
/// The longest time between two checks whether a question was answered on the other side, unless tasks are checked less
/// often.
const MAX_CHECK: Duration = Duration::from_secs(10);
/// The time limit for cancelling the task when the run ends.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The exchanges of one child run with its agent.
pub(crate) struct Exchanges {
    inner: Arc<Inner>,
}

struct Inner {
    agent: String,
    endpoint: RemoteEndpoint,
    fill: FillVariables,
    notes: TaskNotes,
    delay: RetryDelay,
    discovered: OnceCell<(A2aClient, DiscoveredAgent)>,
    /// Held during an exchange: there is one at a time.
    lock: Mutex<()>,
}

/// How an exchange failed.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error(transparent)]
    Client(#[from] A2aClientError),
    #[error("the notes about its task: {0}")]
    Note(#[from] NoteError),
    #[error("its endpoint is not the one that the task was sent to")]
    EndpointChanged,
    #[error("the message may not have arrived, and the user chose to stop")]
    GivenUp,
    #[error("it gave its task an id that cannot be used")]
    BadTaskId,
    #[error("it answered about another task")]
    OtherTask,
    #[error("it no longer knows the task")]
    TaskGone,
    #[error("its task failed: {0}")]
    TaskFailed(String),
    #[error("its task was cancelled there")]
    TaskCancelled,
    #[error("it did not finish within {0} s")]
    TimedOut(u64),
}

impl ExchangeError {
    /// The error as one of an inference; `label` names the agent.
    fn into_inference(self, label: &str) -> InferenceExecutionError {
        let text = format!("the remote agent {label}: {self}");
        match self {
            Self::Client(A2aClientError::NotReached(_) | A2aClientError::ConnectionLost(_)) => {
                InferenceExecutionError::Network(text)
            }
            Self::Client(A2aClientError::Busy(_) | A2aClientError::Failed { .. }) => {
                InferenceExecutionError::Unavailable { message: text, retry_after: None }
            }
            Self::Client(A2aClientError::Refused { status: 401 | 403, .. }) => {
                InferenceExecutionError::Unauthorized(text)
            }
            Self::TimedOut(_) => InferenceExecutionError::TooSlow(text),
            Self::Client(_)
            | Self::Note(_)
            | Self::EndpointChanged
            | Self::GivenUp
            | Self::BadTaskId
            | Self::OtherTask
            | Self::TaskGone
            | Self::TaskFailed(_)
            | Self::TaskCancelled => InferenceExecutionError::InvalidRequest(text),
        }
    }
}

impl Exchanges {
    pub(crate) fn new(
        agent: String,
        endpoint: RemoteEndpoint,
        fill: FillVariables,
        notes: TaskNotes,
        delay: RetryDelay,
    ) -> Self {
        let (discovered, lock) = (OnceCell::new(), Mutex::default());
        Self { inner: Arc::new(Inner { agent, endpoint, fill, notes, delay, discovered, lock }) }
    }
}

#[async_trait]
impl RemoteConversation for Exchanges {
    fn executor(&self) -> Arc<dyn LlmExecutor> {
        Arc::new(A2aExecutor { inner: Arc::clone(&self.inner) })
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(RemoteQuestion)]
    }

    async fn still_asks(&self, checks: u32) -> bool {
        self.inner.still_asks(checks).await.unwrap_or_else(|error| {
            let label = self.inner.label();
            tracing::debug!(agent = %label, %error, "a question of a remote agent cannot be checked");
            true
        })
    }

    async fn cancel(&self) {
        let cancelled = tokio::time::timeout(CANCEL_TIMEOUT, self.inner.cancel()).await;
        let label = self.inner.label();
        match cancelled {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(agent = %label, %error, "a remote task was not cancelled"),
            Err(_) => tracing::warn!(agent = %label, "a remote task was not cancelled in time"),
        }
    }

    async fn forget(&self) {
        self.inner.notes.forget().await;
    }
}

struct A2aExecutor {
    inner: Arc<Inner>,
}

#[async_trait]
impl LlmExecutor for A2aExecutor {
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        let mut events = self.execute_stream(request).await?;
        while let Some(event) = events.next().await {
            if let LlmStreamEvent::Finish { result, .. } = event? {
                return Ok(result);
            }
        }
        Err(InferenceExecutionError::Network("the exchange ended without a result".into()))
    }

    /// The exchange runs while the stream is read. Dropping the stream stops it and does not cancel the task.
    async fn execute_stream(&self, request: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
        let (out, events) = unbounded_channel();
        let inner = Arc::clone(&self.inner);
        let work = Box::pin(async move {
            let label = inner.label();
            match inner.exchange(&request, &out).await {
                Ok(last) => last,
                Err(error) => vec![Err(error.into_inference(&label))],
            }
        });
        let state = (events, Some(work), Vec::new().into_iter());
        Ok(futures::stream::unfold(state, |(mut events, mut work, mut last)| async move {
            loop {
                let Some(running) = &mut work else {
                    // Events that were sent before the end come before it.
                    let next = events.try_recv().ok().or_else(|| last.next())?;
                    return Some((next, (events, work, last)));
                };
                tokio::select! {
                    biased;
                    Some(event) = events.recv() => return Some((event, (events, work, last))),
                    end = running => {
                        last = end.into_iter();
                        work = None;
                    }
                }
            }
        })
        .boxed())
    }

    fn name(&self) -> &'static str {
        "a2a"
    }
}

impl Inner {
    /// The agent and its host, for users.
    fn label(&self) -> String {
        format!("`{}` at {}", self.agent, visible_line(self.endpoint.host()))
    }

    /// The client and the agent that it discovered, once.
    async fn discovered(&self, until: Instant) -> Result<&(A2aClient, DiscoveredAgent), ExchangeError> {
        self.discovered
            .get_or_try_init(|| async {
                let client = A2aClient::new(&self.endpoint, &self.fill)?;
                let mut tries = 0;
                loop {
                    match client.discover().await {
                        Ok(agent) => return Ok((client, agent)),
                        Err(error)
                            if error.is_transient() && tries < MAX_RETRIES && Instant::now() < until =>
                        {
                            self.delay.wait(tries).await;
                            tries += 1;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            })
            .await
    }

    async fn note(&self) -> Result<Option<TaskNote>, ExchangeError> {
        self.notes.read().await.map_err(ExchangeError::from)
    }

    async fn write(&self, note: &TaskNote) -> Result<(), ExchangeError> {
        self.notes.write(note).await.map_err(ExchangeError::from)
    }

    async fn still_asks(&self, checks: u32) -> Result<bool, ExchangeError> {
        // Whatever fails after it: the caller repeats this without a pause of its own.
        let poll = poll_interval(&self.endpoint).unwrap_or(MAX_CHECK);
        tokio::time::sleep((poll * (1 << checks.min(4))).min(poll.max(MAX_CHECK))).await;
        let note = self.note().await?.filter(|note| !note.is_over && note.endpoint == self.endpoint.base_url);
        let Some((note, id)) = note.and_then(|note| Some((note.clone(), note.task?))) else {
            return Ok(true);
        };
        let (client, agent) = self.discovered(Instant::now()).await?;
        match client.task(agent, &id).await {
            Ok(task) => Ok(!note.has_moved(&task.status)),
            // The exchange reports that the task is gone.
            Err(A2aClientError::Refused { status: 404, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn cancel(&self) -> Result<(), ExchangeError> {
        let note = self.note().await?;
        let is_ours = |note: &TaskNote| !note.is_over && note.endpoint == self.endpoint.base_url;
        let Some(note) = note.filter(is_ours) else { return Ok(()) };
        let (client, agent) = self.discovered(Instant::now() + CANCEL_TIMEOUT).await?;
        let task = match &note.task {
            Some(task) => Some(task.clone()),
            None => client.find(agent, &note.context).await?.map(|task| task.id),
        };
        let Some(task) = task else { return Ok(()) };
        match client.cancel(agent, &task).await {
            // The task is over or unknown.
            Ok(()) | Err(A2aClientError::Refused { status: 400 | 404 | 409, .. }) => {
                self.write(&TaskNote { is_over: true, ..note }).await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn exchange(
        &self,
        request: &InferenceRequest,
        out: &UnboundedSender<ExchangeEvent>,
    ) -> Result<Vec<ExchangeEvent>, ExchangeError> {
        let _guard = self.lock.lock().await;
        let limit = Duration::from_millis(self.endpoint.timeout_ms.max(1000));
        let mut answer = AnswerStream::new(out.clone(), request.model.clone());
        let outcome =
            tokio::time::timeout(limit, self.converse(request, &mut answer, Instant::now() + limit)).await;
        let outcome = outcome.map_err(|_| ExchangeError::TimedOut(limit.as_secs()))??;
        Ok(answer.finish(outcome))
    }

    async fn converse(
        &self,
        request: &InferenceRequest,
        answer: &mut AnswerStream,
        until: Instant,
    ) -> Result<ExchangeOutcome, ExchangeError> {
        let note = self.note().await?;
        let mut note = note.unwrap_or_else(|| {
            let id = || uuid::Uuid::new_v4().simple().to_string();
            TaskNote {
                endpoint: self.endpoint.base_url.clone(),
                context: format!("aye-{}", id()),
                salt: id(),
                ..TaskNote::default()
            }
        });
        // The user allowed the call for that URL, and only the agent there knows the task.
        if note.endpoint != self.endpoint.base_url {
            return Err(ExchangeError::EndpointChanged);
        }
        let turn = Turn::of(&request.messages, &note.salt);
        if turn.is_given_up {
            return Err(ExchangeError::GivenUp);
        }
        let (client, agent) = self.discovered(until).await?;
        let exchange = Exchange { inner: self, client, agent };
        let known = note.sent.as_ref().filter(|sent| sent.id == turn.id).cloned();
        let sent = match known {
            Some(sent) if sent.reply.is_some() => {
                answer.push_text(&sent.reply.unwrap_or_default());
                return Ok(ExchangeOutcome::Done);
            }
            Some(sent) if sent.arrived || sent.refused.is_some() => {
                answer.skip(&sent.before);
                SendOutcome::TaskKnown
            }
            Some(sent) => {
                answer.skip(&sent.before);
                exchange.recover(&mut note, &turn, answer).await?
            }
            None => exchange.start(&mut note, &turn, answer).await?,
        };
        match sent {
            SendOutcome::TaskKnown => exchange.follow(&mut note, answer, None).await,
            SendOutcome::Updates(updates) => exchange.follow(&mut note, answer, Some(updates)).await,
            SendOutcome::Ended(outcome) => Ok(outcome),
        }
    }
}

/// The state of an exchange after its message was sent.
enum SendOutcome {
    /// The task is known; its status is not.
    TaskKnown,
    Updates(Updates),
    Ended(ExchangeOutcome),
}

/// An exchange with an agent that was discovered.
struct Exchange<'a> {
    inner: &'a Inner,
    client: &'a A2aClient,
    agent: &'a DiscoveredAgent,
}

impl Exchange<'_> {
    /// Records the message in the notes, then sends it.
    async fn start(
        &self,
        note: &mut TaskNote,
        turn: &Turn,
        answer: &mut AnswerStream,
    ) -> Result<SendOutcome, ExchangeError> {
        let mut sent = SentMessage { id: turn.id.clone(), ..SentMessage::default() };
        if let Some(id) = note.task.clone().filter(|_| !note.is_over) {
            let task = self.task(&id).await?;
            sent.before = task.artifacts.iter().map(|artifact| artifact.artifact_id.clone()).collect();
            sent.status.clone_from(&task.status.timestamp);
            let has_moved = turn.is_superseded || note.has_moved(&task.status);
            if let Some(asked) = note.asked.as_ref().filter(|_| has_moved) {
                // Whatever it said after it had asked belongs to the answer of this exchange.
                sent.before.clone_from(&asked.before);
            }
            answer.skip(&sent.before);
            if has_moved {
                // It was answered on the other side, or expired: there is nothing left to answer, or something else.
                sent.arrived = true;
                note.sent = Some(sent);
                self.inner.write(note).await?;
                return Ok(SendOutcome::TaskKnown);
            }
        } else if note.sent.is_some()
            && let Some(task) = self.client.find(self.agent, &note.context).await.ok().flatten()
        {
            // The message that seemed to be lost did arrive.
            sent.arrived = true;
            note.sent = Some(sent);
            self.record_found(note, &task).await?;
            return Ok(SendOutcome::TaskKnown);
        }
        note.sent = Some(sent);
        self.inner.write(note).await?;
        failpoint("a2a.noted");
        self.send(note, turn, answer).await
    }

    async fn send(
        &self,
        note: &mut TaskNote,
        turn: &Turn,
        answer: &mut AnswerStream,
    ) -> Result<SendOutcome, ExchangeError> {
        let request = A2aSendRequest {
            message: A2aMessage {
                message_id: turn.id.clone(),
                context_id: note.context.clone(),
                task_id: note.task.clone().unwrap_or_default(),
                role: A2aRole::User,
                parts: turn.parts.clone(),
                metadata: None,
            },
            configuration: A2aConfiguration { return_immediately: true, ..A2aConfiguration::default() },
            ..A2aSendRequest::default()
        };
        let mut tries = 0;
        let reply = loop {
            match self.client.send(self.agent, &request).await {
                Ok(reply) => break reply,
                Err(error) if error.is_safe_to_resend() && tries < MAX_RETRIES => {
                    self.inner.delay.wait(tries).await;
                    tries += 1;
                }
                Err(error) if error.is_outcome_unknown() => {
                    tracing::warn!(agent = %self.inner.label(), %error, "it is not known whether a message arrived");
                    return self.recover(note, turn, answer).await;
                }
                Err(A2aClientError::Refused { message, .. }) if turn.answers && note.task.is_some() => {
                    // Most likely the answer does not fit the question, so ask again.
                    if let Some(sent) = &mut note.sent {
                        sent.refused = Some(shortened(&message, 300).into_owned());
                    }
                    self.inner.write(note).await?;
                    return Ok(SendOutcome::TaskKnown);
                }
                Err(error) => return Err(error.into()),
            }
        };
        failpoint("a2a.sent");
        match reply {
            SendReply::One(one) => self.take_first(note, *one, answer, None).await,
            SendReply::Stream(mut updates) => match updates.next().await {
                Some(Ok(one)) => self.take_first(note, one, answer, Some(updates)).await,
                Some(Err(error)) if !error.is_outcome_unknown() => Err(error.into()),
                Some(Err(_)) | None => self.recover(note, turn, answer).await,
            },
        }
    }

    /// Applies the first response to a message.
    async fn take_first(
        &self,
        note: &mut TaskNote,
        one: A2aResponse,
        answer: &mut AnswerStream,
        updates: Option<Updates>,
    ) -> Result<SendOutcome, ExchangeError> {
        let (task, context) = match &one {
            A2aResponse::Message(message) => {
                let text = text_of(&message.parts);
                if let Some(sent) = &mut note.sent {
                    sent.arrived = true;
                    sent.reply = Some(shortened(&text, MAX_TEXT).into_owned());
                }
                note.is_over = true;
                self.inner.write(note).await?;
                answer.push_text(&text);
                return Ok(SendOutcome::Ended(ExchangeOutcome::Done));
            }
            A2aResponse::Task(task) => (task.id.as_str(), task.context_id.as_str()),
            A2aResponse::StatusUpdate(update) => (update.task_id.as_str(), update.context_id.as_str()),
            A2aResponse::ArtifactUpdate(update) => (update.task_id.as_str(), update.context_id.as_str()),
        };
        self.record_task(note, task, context).await?;
        failpoint("a2a.named");
        if let Some(status) = answer.apply(one)
            && let Some(outcome) = self.apply_status(note, &status, answer).await?
        {
            return Ok(SendOutcome::Ended(outcome));
        }
        Ok(updates.map_or(SendOutcome::TaskKnown, SendOutcome::Updates))
    }

    /// Records in the notes which task the message started.
    async fn record_task(&self, note: &mut TaskNote, task: &str, context: &str) -> Result<(), ExchangeError> {
        let is_id = |id: &str| {
            (1..=256).contains(&id.len()) && !id.chars().any(char::is_control) && id != "." && id != ".."
        };
        if !is_id(task) || !context.is_empty() && !is_id(context) {
            return Err(ExchangeError::BadTaskId);
        }
        if note.task.as_deref().is_some_and(|known| known != task) {
            return Err(ExchangeError::OtherTask);
        }
        task.clone_into(note.task.get_or_insert_default());
        if !context.is_empty() {
            context.clone_into(&mut note.context);
        }
        if let Some(sent) = &mut note.sent {
            sent.arrived = true;
        }
        self.inner.write(note).await
    }

    async fn record_found(&self, note: &mut TaskNote, task: &A2aTask) -> Result<(), ExchangeError> {
        self.record_task(note, &task.id, &task.context_id).await
    }

    /// Finds out whether a message arrived that was sent before a crash, or before the connection was lost.
    async fn recover(
        &self,
        note: &mut TaskNote,
        turn: &Turn,
        answer: &mut AnswerStream,
    ) -> Result<SendOutcome, ExchangeError> {
        if let Some(id) = note.task.clone() {
            let task = self.task(&id).await?;
            let before = note.sent.as_ref().and_then(|sent| sent.status.clone());
            let is_same =
                is_waiting(task.status.state) && before.is_some() && task.status.timestamp == before;
            if !is_same {
                self.record_found(note, &task).await?;
                return Ok(SendOutcome::TaskKnown);
            }
            // It waits for the same answer as before: the answer did not arrive.
            return Box::pin(self.send(note, turn, answer)).await;
        }
        for tries in 0..MAX_LOOKUPS {
            match self.client.find(self.agent, &note.context).await {
                Ok(Some(task)) => {
                    self.record_found(note, &task).await?;
                    return Ok(SendOutcome::TaskKnown);
                }
                Ok(None) => {}
                Err(error) if error.is_transient() => {}
                Err(A2aClientError::Refused { .. } | A2aClientError::Unusable { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            self.inner.delay.wait(tries).await;
        }
        let call = lost_message(&self.inner.label(), format!("{}-lost", turn.id));
        Ok(SendOutcome::Ended(ExchangeOutcome::Asks(vec![call])))
    }

    /// The current task. Waits until the other side can be reached again.
    async fn task(&self, id: &str) -> Result<A2aTask, ExchangeError> {
        let mut tries = 0;
        loop {
            match self.client.task(self.agent, id).await {
                Ok(task) if task.id == id => return Ok(task),
                Ok(_) => return Err(ExchangeError::OtherTask),
                Err(error) if error.is_transient() => {
                    self.inner.delay.wait(tries).await;
                    tries += 1;
                }
                Err(A2aClientError::Refused { status: 404, .. }) => {
                    return Err(ExchangeError::TaskGone);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Follows a task until it is over or asks something.
    async fn follow(
        &self,
        note: &mut TaskNote,
        answer: &mut AnswerStream,
        updates: Option<Updates>,
    ) -> Result<ExchangeOutcome, ExchangeError> {
        let mut stream = updates;
        let mut pause = self.client.address.poll;
        loop {
            if let Some(updates) = stream.take() {
                match self.read_updates(note, answer, updates).await? {
                    Some(outcome) => return Ok(outcome),
                    // It ended before the task did: the connection was lost, or the other side was restarted.
                    None => self.inner.delay.wait(0).await,
                }
            }
            let id = note.task.clone().unwrap_or_default();
            let task = self.task(&id).await?;
            if let Some(status) = answer.apply(A2aResponse::Task(task))
                && let Some(outcome) = self.apply_status(note, &status, answer).await?
            {
                return Ok(outcome);
            }
            if self.agent.streams
                && let Ok(updates) = self.client.subscribe(self.agent, &id).await
            {
                stream = Some(updates);
                continue;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(self.client.address.poll.max(Duration::from_secs(10)));
        }
    }

    async fn read_updates(
        &self,
        note: &mut TaskNote,
        answer: &mut AnswerStream,
        mut updates: Updates,
    ) -> Result<Option<ExchangeOutcome>, ExchangeError> {
        while let Some(update) = updates.next().await {
            let update = match update {
                Ok(update) => update,
                Err(error) if error.is_transient() => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if let Some(status) = answer.apply(update)
                && let Some(outcome) = self.apply_status(note, &status, answer).await?
            {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// Returns how a status ends the exchange; `None` if the task is still running.
    async fn apply_status(
        &self,
        note: &mut TaskNote,
        status: &A2aTaskStatus,
        answer: &mut AnswerStream,
    ) -> Result<Option<ExchangeOutcome>, ExchangeError> {
        let status_text = || {
            let parts = status.message.as_ref().map(|message| message.parts.as_slice()).unwrap_or_default();
            shortened(text_of(parts).trim(), 2000).into_owned()
        };
        let outcome = match status.state {
            A2aTaskState::Unspecified | A2aTaskState::Submitted | A2aTaskState::Working => return Ok(None),
            A2aTaskState::InputRequired | A2aTaskState::AuthRequired => {
                let asked = Some(AskedStatus { digest: digest_of(status), before: answer.seen() });
                if note.asked != asked {
                    note.asked = asked;
                    self.inner.write(note).await?;
                }
                let sent = note.sent.as_ref();
                let refused = sent.and_then(|sent| sent.refused.as_deref());
                let prefix = sent.map_or("question", |sent| &sent.id);
                return Ok(Some(ExchangeOutcome::Asks(questions(
                    &self.inner.label(),
                    status,
                    refused,
                    prefix,
                ))));
            }
            A2aTaskState::Completed => {
                if !answer.has_text() {
                    answer.push_text(&status_text());
                }
                Ok(ExchangeOutcome::Done)
            }
            A2aTaskState::Rejected => Ok(ExchangeOutcome::Rejected(status_text())),
            A2aTaskState::Failed => Err(ExchangeError::TaskFailed(status_text())),
            A2aTaskState::Canceled => Err(ExchangeError::TaskCancelled),
        };
        note.is_over = true;
        self.inner.write(note).await?;
        outcome.map(Some)
    }
}

impl TaskNote {
    /// Whether the task no longer waits for the answers to the questions that the user is asked.
    fn has_moved(&self, status: &A2aTaskStatus) -> bool {
        !is_waiting(status.state)
            || self.asked.as_ref().is_some_and(|asked| asked.digest != digest_of(status))
    }
}

/// What tells one question of a task from the next. Not its time, which an update of a stream need not have.
fn digest_of(status: &A2aTaskStatus) -> String {
    let parts = status.message.as_ref().map(|message| &message.parts);
    sha256_hex(serde_json::to_vec(&parts).unwrap_or_default())
}

/// Whether a task in this state waits for input.
fn is_waiting(state: A2aTaskState) -> bool {
    matches!(state, A2aTaskState::InputRequired | A2aTaskState::AuthRequired)
}
