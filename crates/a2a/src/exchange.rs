//! One exchange with an agent: a message, and what comes of it until the task is over or asks something.
//!
//! Before a message is sent, the note says so; when the task is known, the note names it. An exchange that a crash cut off
//! finds the note: a message that arrived is followed and not sent, and one that may have arrived is looked for. Whether
//! to send that one again if it is not found is the user's to say.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::display::{shortened, visible_line};
use aye_core::contract::executor::{
    InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStream, LlmStreamEvent,
};
use aye_core::contract::inference::{StopReason, StreamResult};
use aye_core::contract::message::ToolCall;
use aye_core::contract::spec::RemoteEndpoint;
use aye_core::contract::tool::Tool;
use aye_core::failpoint::failpoint;
use aye_encode::a2a::{
    A2aConfiguration, A2aMessage, A2aPart, A2aResponse, A2aRole, A2aSendRequest, A2aTask, A2aTaskState,
    A2aTaskStatus,
};
use aye_runtime::RemoteConversation;
use futures::StreamExt as _;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use super::client::{A2aClient, A2aClientError, ReachedAgent, SendReply, Updates, cleaned};
use super::note::{SentMessage, TaskNote, TaskNotes};
use super::question::{RemoteQuestion, lost, questions};
use super::turn::Turn;
use super::{FillVariables, Pace};

/// Bytes of text that one exchange takes; the rest is left out.
const MAX_TEXT: usize = 256 << 10;
/// How often something that did not arrive is sent again, and a lost message is looked for.
const SENDS: u32 = 6;
const LOOKS: u32 = 3;
/// How long a task that nobody waits for is told so.
const FAREWELL: Duration = Duration::from_secs(5);

/// The exchanges of one child run with its agent.
pub(crate) struct Exchanges {
    shared: Arc<Shared>,
}

struct Shared {
    agent: String,
    endpoint: RemoteEndpoint,
    fill: FillVariables,
    notes: TaskNotes,
    pace: Pace,
    reached: OnceCell<(A2aClient, ReachedAgent)>,
    /// One exchange at a time.
    turn: Mutex<()>,
}

/// How an exchange failed.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error(transparent)]
    Client(#[from] A2aClientError),
    #[error("the note of the remote task: {0}")]
    Note(String),
    #[error("{0}")]
    Failed(String),
    #[error("it did not finish within {0} s")]
    TooSlow(u64),
}

impl ExchangeError {
    fn told(self, who: &str) -> InferenceExecutionError {
        let text = format!("the remote agent {who}: {self}");
        match self {
            Self::Client(A2aClientError::NotReached(_) | A2aClientError::Broke(_)) => {
                InferenceExecutionError::Network(text)
            }
            Self::Client(A2aClientError::Busy(_) | A2aClientError::Failed { .. }) => {
                InferenceExecutionError::Unavailable { message: text, retry_after: None }
            }
            Self::Client(A2aClientError::Refused { status: 401 | 403, .. }) => {
                InferenceExecutionError::Unauthorized(text)
            }
            Self::TooSlow(_) => InferenceExecutionError::TooSlow(text),
            Self::Client(_) | Self::Note(_) | Self::Failed(_) => {
                InferenceExecutionError::InvalidRequest(text)
            }
        }
    }
}

/// How an exchange ended.
enum Outcome {
    Done,
    Rejected(String),
    Asks(Vec<ToolCall>),
}

impl Exchanges {
    pub(crate) fn new(
        agent: String,
        endpoint: RemoteEndpoint,
        fill: FillVariables,
        notes: TaskNotes,
        pace: Pace,
    ) -> Self {
        let (reached, turn) = (OnceCell::new(), Mutex::default());
        Self { shared: Arc::new(Shared { agent, endpoint, fill, notes, pace, reached, turn }) }
    }
}

#[async_trait]
impl RemoteConversation for Exchanges {
    fn executor(&self) -> Arc<dyn LlmExecutor> {
        Arc::new(A2aExecutor { shared: Arc::clone(&self.shared) })
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(RemoteQuestion)]
    }

    async fn leave(&self) {
        let left = tokio::time::timeout(FAREWELL, self.shared.leave()).await;
        let who = self.shared.who();
        match left {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(agent = %who, %error, "a remote task was not cancelled"),
            Err(_) => tracing::warn!(agent = %who, "a remote task was not cancelled in time"),
        }
    }

    async fn forget(&self) {
        self.shared.notes.forget().await;
    }
}

struct A2aExecutor {
    shared: Arc<Shared>,
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

    /// The exchange runs while the stream is read; dropping the stream stops it and leaves the task as it is.
    async fn execute_stream(&self, request: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
        let (out, told) = unbounded_channel();
        let shared = Arc::clone(&self.shared);
        let work = Box::pin(async move {
            let who = shared.who();
            match shared.exchange(&request, &out).await {
                Ok(last) => last,
                Err(error) => vec![Err(error.told(&who))],
            }
        });
        let state = (told, Some(work), Vec::new().into_iter());
        Ok(futures::stream::unfold(state, |(mut told, mut work, mut last)| async move {
            loop {
                let Some(running) = &mut work else {
                    // What was told before the end comes before it.
                    let next = told.try_recv().ok().or_else(|| last.next())?;
                    return Some((next, (told, work, last)));
                };
                tokio::select! {
                    biased;
                    Some(event) = told.recv() => return Some((event, (told, work, last))),
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

type Told = Result<LlmStreamEvent, InferenceExecutionError>;

impl Shared {
    /// The agent and its host, for people.
    fn who(&self) -> String {
        format!("`{}` at {}", self.agent, visible_line(self.endpoint.host()))
    }

    /// The client, and where it found the agent; found once.
    async fn reached(&self, until: Instant) -> Result<&(A2aClient, ReachedAgent), ExchangeError> {
        self.reached
            .get_or_try_init(|| async {
                let client = A2aClient::new(&self.endpoint, &self.fill)?;
                let mut tries = 0;
                loop {
                    match client.reach().await {
                        Ok(reached) => return Ok((client, reached)),
                        Err(error) if error.is_passing() && tries < SENDS && Instant::now() < until => {
                            self.pace.wait(tries).await;
                            tries += 1;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            })
            .await
    }

    async fn note(&self) -> Result<Option<TaskNote>, ExchangeError> {
        self.notes.read().await.map_err(ExchangeError::Note)
    }

    async fn write(&self, note: &TaskNote) -> Result<(), ExchangeError> {
        self.notes.write(note).await.map_err(ExchangeError::Note)
    }

    async fn leave(&self) -> Result<(), ExchangeError> {
        let note = self.note().await?;
        let is_ours = |note: &TaskNote| !note.is_over && note.endpoint == self.endpoint.base_url;
        let Some(note) = note.filter(is_ours) else { return Ok(()) };
        let (client, at) = self.reached(Instant::now() + FAREWELL).await?;
        let task = match &note.task {
            Some(task) => Some(task.clone()),
            None => client.find(at, &note.context).await?.map(|task| task.id),
        };
        let Some(task) = task else { return Ok(()) };
        match client.cancel(at, &task).await {
            // It was over, or is gone.
            Ok(()) | Err(A2aClientError::Refused { status: 400 | 404 | 409, .. }) => {
                self.write(&TaskNote { is_over: true, ..note }).await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn exchange(
        &self,
        request: &InferenceRequest,
        out: &UnboundedSender<Told>,
    ) -> Result<Vec<Told>, ExchangeError> {
        let _one = self.turn.lock().await;
        let limit = Duration::from_millis(self.endpoint.timeout_ms.max(1000));
        let mut story = Story::new(out.clone(), request.model.clone());
        let outcome =
            tokio::time::timeout(limit, self.converse(request, &mut story, Instant::now() + limit)).await;
        let outcome = outcome.map_err(|_| ExchangeError::TooSlow(limit.as_secs()))??;
        Ok(story.end(outcome))
    }

    async fn converse(
        &self,
        request: &InferenceRequest,
        story: &mut Story,
        until: Instant,
    ) -> Result<Outcome, ExchangeError> {
        let note = self.note().await?;
        let mut note = note.unwrap_or_else(|| {
            let name = || uuid::Uuid::new_v4().simple().to_string();
            TaskNote {
                endpoint: self.endpoint.base_url.clone(),
                context: format!("aye-{}", name()),
                salt: name(),
                ..TaskNote::default()
            }
        });
        // The user let it go to that address, and a task is known there alone.
        if note.endpoint != self.endpoint.base_url {
            return Err(ExchangeError::Failed(
                "its endpoint is another one than when the task was sent".into(),
            ));
        }
        let turn = Turn::of(&request.messages, &note.salt);
        if turn.is_given_up {
            return Err(ExchangeError::Failed(
                "the message may not have arrived, and the user stopped there".into(),
            ));
        }
        let (client, at) = self.reached(until).await?;
        let place = Place { shared: self, client, at };
        let known = note.sent.as_ref().filter(|sent| sent.id == turn.id).cloned();
        let begun = match known {
            Some(sent) if sent.reply.is_some() => {
                story.say(&sent.reply.unwrap_or_default());
                return Ok(Outcome::Done);
            }
            Some(sent) if sent.arrived || sent.refused.is_some() => {
                story.forget(&sent.before);
                Begun::Known
            }
            Some(sent) => {
                story.forget(&sent.before);
                place.look_for(&mut note, &turn, story).await?
            }
            None => place.begin(&mut note, &turn, story).await?,
        };
        match begun {
            Begun::Known => place.follow(&mut note, story, None).await,
            Begun::Updates(updates) => place.follow(&mut note, story, Some(updates)).await,
            Begun::Ended(outcome) => Ok(outcome),
        }
    }
}

/// How far an exchange is when its message was sent.
enum Begun {
    /// The task is known and is to be asked.
    Known,
    Updates(Updates),
    Ended(Outcome),
}

/// An exchange with an agent that was found.
struct Place<'a> {
    shared: &'a Shared,
    client: &'a A2aClient,
    at: &'a ReachedAgent,
}

impl Place<'_> {
    /// Sends the message, after it was written down that it is.
    async fn begin(
        &self,
        note: &mut TaskNote,
        turn: &Turn,
        story: &mut Story,
    ) -> Result<Begun, ExchangeError> {
        let mut sent = SentMessage { id: turn.id.clone(), ..SentMessage::default() };
        if let Some(id) = note.task.clone().filter(|_| !note.is_over) {
            let task = self.task(&id).await?;
            sent.before = task.artifacts.iter().map(|artifact| artifact.artifact_id.clone()).collect();
            sent.status.clone_from(&task.status.timestamp);
            story.forget(&sent.before);
            if !waits(task.status.state) {
                // It was answered there, or it gave up waiting: there is nothing to answer any more.
                sent.arrived = true;
                note.sent = Some(sent);
                self.shared.write(note).await?;
                return Ok(Begun::Known);
            }
        } else if note.sent.is_some()
            && let Some(task) = self.client.find(self.at, &note.context).await.ok().flatten()
        {
            // The message that was taken for lost is there after all.
            sent.arrived = true;
            note.sent = Some(sent);
            self.adopt(note, &task).await?;
            return Ok(Begun::Known);
        }
        note.sent = Some(sent);
        self.shared.write(note).await?;
        failpoint("a2a.noted");
        self.send(note, turn, story).await
    }

    async fn send(
        &self,
        note: &mut TaskNote,
        turn: &Turn,
        story: &mut Story,
    ) -> Result<Begun, ExchangeError> {
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
            match self.client.send(self.at, &request).await {
                Ok(reply) => break reply,
                Err(error) if error.may_be_sent_again() && tries < SENDS => {
                    self.shared.pace.wait(tries).await;
                    tries += 1;
                }
                Err(error) if error.leaves_open() => {
                    tracing::warn!(agent = %self.shared.who(), %error, "a message was lost from sight");
                    return self.look_for(note, turn, story).await;
                }
                Err(A2aClientError::Refused { words, .. }) if turn.answers && note.task.is_some() => {
                    // Most likely the answer does not fit the question, which is asked again.
                    if let Some(sent) = &mut note.sent {
                        sent.refused = Some(shortened(&words, 300).into_owned());
                    }
                    self.shared.write(note).await?;
                    return Ok(Begun::Known);
                }
                Err(error) => return Err(error.into()),
            }
        };
        failpoint("a2a.sent");
        match reply {
            SendReply::One(one) => self.first(note, *one, story, None).await,
            SendReply::Stream(mut updates) => match updates.next().await {
                Some(Ok(one)) => self.first(note, one, story, Some(updates)).await,
                Some(Err(error)) if !error.leaves_open() => Err(error.into()),
                Some(Err(_)) | None => self.look_for(note, turn, story).await,
            },
        }
    }

    /// Takes the first thing that came of a message.
    async fn first(
        &self,
        note: &mut TaskNote,
        one: A2aResponse,
        story: &mut Story,
        updates: Option<Updates>,
    ) -> Result<Begun, ExchangeError> {
        let (task, context) = match &one {
            A2aResponse::Message(message) => {
                let text = text_of(&message.parts);
                if let Some(sent) = &mut note.sent {
                    sent.arrived = true;
                    sent.reply = Some(shortened(&text, MAX_TEXT).into_owned());
                }
                note.is_over = true;
                self.shared.write(note).await?;
                story.say(&text);
                return Ok(Begun::Ended(Outcome::Done));
            }
            A2aResponse::Task(task) => (task.id.as_str(), task.context_id.as_str()),
            A2aResponse::StatusUpdate(update) => (update.task_id.as_str(), update.context_id.as_str()),
            A2aResponse::ArtifactUpdate(update) => (update.task_id.as_str(), update.context_id.as_str()),
        };
        self.name(note, task, context).await?;
        failpoint("a2a.named");
        if let Some(status) = story.take(one)
            && let Some(outcome) = self.settle(note, &status, story).await?
        {
            return Ok(Begun::Ended(outcome));
        }
        Ok(updates.map_or(Begun::Known, Begun::Updates))
    }

    /// Writes down which task a message made.
    async fn name(&self, note: &mut TaskNote, task: &str, context: &str) -> Result<(), ExchangeError> {
        let is_id = |id: &str| {
            (1..=256).contains(&id.len()) && !id.chars().any(char::is_control) && id != "." && id != ".."
        };
        if !is_id(task) || !context.is_empty() && !is_id(context) {
            return Err(ExchangeError::Failed("it named its task in a way that cannot be used".into()));
        }
        if note.task.as_deref().is_some_and(|known| known != task) {
            return Err(ExchangeError::Failed("it answered about another task".into()));
        }
        task.clone_into(note.task.get_or_insert_default());
        if !context.is_empty() {
            context.clone_into(&mut note.context);
        }
        if let Some(sent) = &mut note.sent {
            sent.arrived = true;
        }
        self.shared.write(note).await
    }

    async fn adopt(&self, note: &mut TaskNote, task: &A2aTask) -> Result<(), ExchangeError> {
        self.name(note, &task.id, &task.context_id).await
    }

    /// Looks whether a message arrived that was sent before a crash, or over a connection that broke.
    async fn look_for(
        &self,
        note: &mut TaskNote,
        turn: &Turn,
        story: &mut Story,
    ) -> Result<Begun, ExchangeError> {
        if let Some(id) = note.task.clone() {
            let task = self.task(&id).await?;
            let before = note.sent.as_ref().and_then(|sent| sent.status.clone());
            let is_same = waits(task.status.state) && before.is_some() && task.status.timestamp == before;
            if !is_same {
                self.adopt(note, &task).await?;
                return Ok(Begun::Known);
            }
            // It still waits as it did before the answer: the answer did not arrive.
            return Box::pin(self.send(note, turn, story)).await;
        }
        for tries in 0..LOOKS {
            match self.client.find(self.at, &note.context).await {
                Ok(Some(task)) => {
                    self.adopt(note, &task).await?;
                    return Ok(Begun::Known);
                }
                Ok(None) => {}
                Err(error) if error.is_passing() => {}
                Err(A2aClientError::Refused { .. } | A2aClientError::Unusable { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            self.shared.pace.wait(tries).await;
        }
        let call = lost(&self.shared.who(), format!("{}-lost", turn.id));
        Ok(Begun::Ended(Outcome::Asks(vec![call])))
    }

    /// The task as it is now. Waits until the other side is there again.
    async fn task(&self, id: &str) -> Result<A2aTask, ExchangeError> {
        let mut tries = 0;
        loop {
            match self.client.task(self.at, id).await {
                Ok(task) if task.id == id => return Ok(task),
                Ok(_) => return Err(ExchangeError::Failed("it answered about another task".into())),
                Err(error) if error.is_passing() => {
                    self.shared.pace.wait(tries).await;
                    tries += 1;
                }
                Err(A2aClientError::Refused { status: 404, .. }) => {
                    return Err(ExchangeError::Failed("it does not know the task any more".into()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Stays with a task until it is over or asks something.
    async fn follow(
        &self,
        note: &mut TaskNote,
        story: &mut Story,
        updates: Option<Updates>,
    ) -> Result<Outcome, ExchangeError> {
        let mut stream = updates;
        let mut pause = self.client.address.poll;
        loop {
            if let Some(updates) = stream.take() {
                match self.listen(note, story, updates).await? {
                    Some(outcome) => return Ok(outcome),
                    // It ended before the task did: the connection broke, or the other side was restarted.
                    None => self.shared.pace.wait(0).await,
                }
            }
            let id = note.task.clone().unwrap_or_default();
            let task = self.task(&id).await?;
            if let Some(status) = story.take(A2aResponse::Task(task))
                && let Some(outcome) = self.settle(note, &status, story).await?
            {
                return Ok(outcome);
            }
            if self.at.streams
                && let Ok(updates) = self.client.subscribe(self.at, &id).await
            {
                stream = Some(updates);
                continue;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(self.client.address.poll.max(Duration::from_secs(10)));
        }
    }

    async fn listen(
        &self,
        note: &mut TaskNote,
        story: &mut Story,
        mut updates: Updates,
    ) -> Result<Option<Outcome>, ExchangeError> {
        while let Some(update) = updates.next().await {
            let update = match update {
                Ok(update) => update,
                Err(error) if error.is_passing() => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if let Some(status) = story.take(update)
                && let Some(outcome) = self.settle(note, &status, story).await?
            {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// What a status means for the exchange; `None`: the task is at work.
    async fn settle(
        &self,
        note: &mut TaskNote,
        status: &A2aTaskStatus,
        story: &mut Story,
    ) -> Result<Option<Outcome>, ExchangeError> {
        let said = || {
            let parts = status.message.as_ref().map(|message| message.parts.as_slice()).unwrap_or_default();
            shortened(text_of(parts).trim(), 2000).into_owned()
        };
        let outcome = match status.state {
            A2aTaskState::Unspecified | A2aTaskState::Submitted | A2aTaskState::Working => return Ok(None),
            A2aTaskState::InputRequired | A2aTaskState::AuthRequired => {
                let sent = note.sent.as_ref();
                let refused = sent.and_then(|sent| sent.refused.as_deref());
                let prefix = sent.map_or("question", |sent| &sent.id);
                return Ok(Some(Outcome::Asks(questions(&self.shared.who(), status, refused, prefix))));
            }
            A2aTaskState::Completed => {
                if !story.has_text() {
                    story.say(&said());
                }
                Ok(Outcome::Done)
            }
            A2aTaskState::Rejected => Ok(Outcome::Rejected(said())),
            A2aTaskState::Failed => Err(ExchangeError::Failed(format!("its task failed: {}", said()))),
            A2aTaskState::Canceled => Err(ExchangeError::Failed("its task was cancelled there".into())),
        };
        note.is_over = true;
        self.shared.write(note).await?;
        outcome.map(Some)
    }
}

/// Whether a task in this state waits for a message.
fn waits(state: A2aTaskState) -> bool {
    matches!(state, A2aTaskState::InputRequired | A2aTaskState::AuthRequired)
}

/// The text of a message or an artifact. Files are named and not fetched.
fn text_of(parts: &[A2aPart]) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            A2aPart { text: Some(text), .. } => out.push_str(&cleaned(text)),
            A2aPart { data: Some(data), .. } => out.push_str(&cleaned(&data.to_string())),
            A2aPart { filename, .. } => {
                let name = shortened(&visible_line(filename), 100).into_owned();
                let _ = write!(out, "[a file that was not fetched: {name}]");
            }
        }
        if out.len() > MAX_TEXT {
            break;
        }
    }
    out
}

/// The text of an exchange as it comes in.
struct Story {
    out: UnboundedSender<Told>,
    model: String,
    /// Artifacts that an earlier exchange told.
    known: HashSet<String>,
    artifacts: Vec<(String, String)>,
    told: String,
}

impl Story {
    fn new(out: UnboundedSender<Told>, model: String) -> Self {
        Self { out, model, known: HashSet::new(), artifacts: Vec::new(), told: String::new() }
    }

    fn forget(&mut self, before: &[String]) {
        self.known.extend(before.iter().cloned());
    }

    fn has_text(&self) -> bool {
        !self.told.trim().is_empty()
    }

    /// Adds text that belongs to no artifact.
    fn say(&mut self, text: &str) {
        self.artifacts.push((String::new(), text.to_owned()));
        self.tell();
    }

    /// Takes an update; gives the status that it brings.
    fn take(&mut self, update: A2aResponse) -> Option<A2aTaskStatus> {
        match update {
            A2aResponse::Task(task) => {
                // The task as a whole replaces what was pieced together.
                let new =
                    task.artifacts.iter().filter(|artifact| !self.known.contains(&artifact.artifact_id));
                let new: Vec<_> =
                    new.map(|artifact| (artifact.artifact_id.clone(), text_of(&artifact.parts))).collect();
                if !new.is_empty() {
                    self.artifacts = new;
                }
                self.tell();
                Some(task.status)
            }
            A2aResponse::StatusUpdate(update) => Some(update.status),
            A2aResponse::ArtifactUpdate(update) => {
                let (id, text) = (update.artifact.artifact_id, text_of(&update.artifact.parts));
                if !self.known.contains(&id) {
                    match self.artifacts.iter_mut().find(|(known, _)| *known == id) {
                        Some((_, whole)) if update.append => {
                            if whole.len() <= MAX_TEXT {
                                whole.push_str(&text);
                            }
                        }
                        Some((_, whole)) => *whole = text,
                        None => self.artifacts.push((id, text)),
                    }
                    self.tell();
                }
                None
            }
            A2aResponse::Message(message) => {
                self.say(&text_of(&message.parts));
                None
            }
        }
    }

    fn tell(&mut self) {
        let texts: Vec<&str> =
            self.artifacts.iter().map(|(_, text)| text.as_str()).filter(|text| !text.is_empty()).collect();
        let mut whole = texts.join("\n\n");
        if whole.len() > MAX_TEXT {
            let end = (0..=MAX_TEXT).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or_default();
            whole.truncate(end);
            whole.push_str("\n[the rest was left out]");
        }
        let delta = match whole.strip_prefix(self.told.as_str()) {
            Some("") => return,
            Some(more) => more.to_owned(),
            None => {
                let again = LlmStreamEvent::Retrying {
                    attempt: 1,
                    max: 1,
                    delay: Duration::ZERO,
                    model: self.model.clone(),
                    reason: "the agent tells its answer anew".into(),
                    reset: true,
                };
                let _ = self.out.send(Ok(again));
                whole.clone()
            }
        };
        self.told = whole;
        let _ = self.out.send(Ok(LlmStreamEvent::TextDelta(delta)));
    }

    fn end(mut self, outcome: Outcome) -> Vec<Told> {
        let mut last = Vec::new();
        let (tool_calls, stop_reason) = match outcome {
            Outcome::Done => {
                if !self.has_text() {
                    self.say("(The agent finished without a text.)");
                }
                (Vec::new(), StopReason::EndTurn)
            }
            Outcome::Rejected(why) => {
                if !why.is_empty() {
                    last.push(Ok(LlmStreamEvent::StopDetail(why)));
                }
                (Vec::new(), StopReason::Refusal)
            }
            Outcome::Asks(calls) => (calls, StopReason::ToolUse),
        };
        for call in &tool_calls {
            last.push(Ok(LlmStreamEvent::ToolCallStart { id: call.id.clone(), name: call.name.clone() }));
            let args_delta = call.arguments.to_string();
            last.push(Ok(LlmStreamEvent::ToolCallDelta { id: call.id.clone(), args_delta }));
        }
        let content = if self.told.is_empty() { Vec::new() } else { vec![ContentBlock::text(self.told)] };
        let result =
            StreamResult { content, tool_calls, stop_reason: Some(stop_reason), ..StreamResult::default() };
        last.push(Ok(LlmStreamEvent::Finish { result, model: self.model }));
        last
    }
}
