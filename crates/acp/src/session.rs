//! One session: a conversation, its open prompt, and the questions that it asks the client.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema as acp;
use agent_client_protocol::{Client, Error, JsonRpcRequest};
use async_trait::async_trait;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use acp::{RequestPermissionOutcome, SessionUpdate, StopReason};
use aye_core::contract::display::visible_line;
use aye_core::contract::editor::EditorFiles;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, ToolCallOutcome};
use aye_core::contract::record::{RunRecord, SuspensionRecord};
use aye_core::contract::suspension::Answer;
use aye_runtime::{AgentRunResult, AgentRuntime, DecideError, RunDocument, RunRequest, RuntimeError};
use aye_session::{AnswerError, Attender, Elsewhere, Ended, FrontEnd, Manner, Queue, Rest, SessionFact};

use super::ends::{RunEnd, internal, invalid, refusal, runtime_error};
use super::host::{FolderHost, WrittenPart};
use super::questions;
use super::updates::UpdateEncoder;

/// A prompt stays open until its run, what is queued and what works in the background are done.
const MANNER: Manner = Manner {
    waits: true,
    elsewhere: Elsewhere::FollowOwn,
    queue: Queue::Messages,
    after_failure: false,
    stays: true,
};
/// The time that a run with a pending question may take to settle after the client is gone.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Pause before a question is asked again whose answer was not stored.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The time that a client may take to read or write a file.
const FILE_WAIT: Duration = Duration::from_secs(2);

/// The features of a client beside messages and permission requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientAbilities {
    pub(crate) has_notices: bool,
    pub(crate) has_forms: bool,
    pub(crate) reads_files: bool,
    pub(crate) writes_files: bool,
}

/// The files of a session as the client has them open.
struct OpenFiles {
    session: acp::SessionId,
    client: ConnectionTo<Client>,
    writes: bool,
}

impl OpenFiles {
    /// Returns the client's response about a file, unless it fails or takes too long.
    async fn ask<R: JsonRpcRequest>(&self, request: R, path: &Path) -> Option<R::Response>
    where
        R::Response: Send,
    {
        let sent = self.client.send_request(request);
        let handle = sent.cancellation_handle();
        match tokio::time::timeout(FILE_WAIT, sent.block_task()).await {
            Ok(Ok(response)) => Some(response),
            Ok(Err(error)) => {
                tracing::debug!(?error, path = %path.display(), "the client refused a request about the file");
                None
            }
            Err(_) => {
                tracing::warn!(path = %path.display(), "the client took too long for the file");
                let _ = handle.cancel();
                None
            }
        }
    }
}

#[async_trait]
impl EditorFiles for OpenFiles {
    async fn text(&self, path: &Path) -> Option<String> {
        let request = acp::ReadTextFileRequest::new(self.session.clone(), path);
        Some(self.ask(request, path).await?.content)
    }

    async fn save(&self, path: &Path, text: String) -> bool {
        self.writes
            && self
                .ask(acp::WriteTextFileRequest::new(self.session.clone(), path, text), path)
                .await
                .is_some()
    }
}

pub(crate) struct AcpSession {
    pub(crate) id: acp::SessionId,
    pub(crate) thread: ThreadId,
    pub(crate) host: Arc<dyn FolderHost>,
    client: ConnectionTo<Client>,
    encoder: Mutex<UpdateEncoder>,
    /// Locked by the active prompt.
    turn: tokio::sync::Mutex<()>,
    /// Cancels the open prompt.
    cancel: Mutex<CancellationToken>,
    /// Questions that the client was asked, each with what takes the request back.
    asked: Mutex<HashMap<SuspensionId, CancellationToken>>,
    /// A question was decided here; the store reports only what others decide.
    answered: Notify,
    /// Something happened that may have brought a question.
    questions_changed: Notify,
    /// The client is gone: nothing that it did not say is an answer.
    closing: CancellationToken,
    abilities: ClientAbilities,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AcpSession {
    pub(crate) fn new(
        thread: ThreadId,
        host: Arc<dyn FolderHost>,
        client: ConnectionTo<Client>,
        abilities: ClientAbilities,
        closing: CancellationToken,
    ) -> Arc<Self> {
        let encoder = UpdateEncoder::new(host.cwd()).with_notices(abilities.has_notices);
        let id = acp::SessionId::new(thread.as_str());
        // An editor that only writes would overwrite unsaved changes that nobody can see.
        if abilities.reads_files {
            host.attach_editor(Arc::new(OpenFiles {
                session: id.clone(),
                client: client.clone(),
                writes: abilities.writes_files,
            }));
        }
        Arc::new(Self {
            id,
            thread,
            host,
            client,
            encoder: Mutex::new(encoder),
            turn: tokio::sync::Mutex::default(),
            cancel: Mutex::default(),
            asked: Mutex::default(),
            answered: Notify::new(),
            questions_changed: Notify::new(),
            closing,
            abilities,
        })
    }

    fn runtime(&self) -> &AgentRuntime {
        self.host.runtime()
    }

    pub(crate) fn send(&self, updates: Vec<SessionUpdate>) {
        for update in updates {
            let update = acp::SessionNotification::new(self.id.clone(), update);
            if let Err(error) = self.client.send_notification(update) {
                tracing::debug!(?error, "an update did not reach the client");
            }
        }
    }

    fn encode(&self, of: impl FnOnce(&mut UpdateEncoder) -> Vec<SessionUpdate>) {
        // The updates are sent under the encoder's lock, so they leave in the order in which they were made.
        let mut encoder = locked(&self.encoder);
        let updates = of(&mut encoder);
        self.send(updates);
    }

    /// Prepares a run, and notifies the user of what the preparation reported.
    async fn prepare(&self) {
        for text in self.host.prepare().await {
            self.send_text(&text);
        }
    }

    /// Shows the user a notice that is not part of the conversation.
    pub(crate) fn send_text(&self, text: &str) {
        self.encode(|encoder| vec![encoder.notice(text)]);
    }

    /// Sends the whole conversation, or only notes that the client knows it.
    pub(crate) async fn replay(&self, is_shown: bool) -> Result<(), Error> {
        let store = self.runtime().store();
        let messages = store.load_messages(&self.thread).await.map_err(|e| internal(e.to_string()))?;
        for stored in messages {
            self.encode(|encoder| {
                let updates = encoder.stored(&stored.run_id, &stored.message);
                if is_shown { updates } else { Vec::new() }
            });
        }
        if is_shown {
            self.catch_up().await;
        }
        Ok(())
    }

    /// Sends what other processes wrote to the latest run.
    async fn catch_up(&self) {
        if let Err(error) = self.try_catch_up().await {
            tracing::error!(thread = %self.thread, %error, "the conversation cannot be read");
        }
    }

    async fn try_catch_up(&self) -> Result<(), RuntimeError> {
        let store = self.runtime().store();
        let Some(run) = store.latest_run(&self.thread).await? else { return Ok(()) };
        let (_, messages) = store.messages_of_run(&self.thread, &run.id).await?;
        let open = RunDocument::unrecorded_results(&run);
        for message in messages.into_iter().map(|stored| stored.message).chain(open) {
            self.encode(|encoder| encoder.stored(&run.id, &message));
        }
        Ok(())
    }

    /// Cancels the open prompt.
    pub(crate) fn cancel(&self) {
        locked(&self.cancel).cancel();
    }

    /// Ends what runs here in order; questions stay.
    pub(crate) async fn close(&self) {
        self.cancel();
        drop(self.turn.lock().await);
        if let Err(error) = self.runtime().end_commands(&self.thread).await {
            tracing::warn!(thread = %self.thread, %error, "background commands");
        }
        self.host.close().await;
    }

    /// Answers a prompt: drives the conversation until nothing of it is left to do.
    pub(crate) async fn prompt(self: &Arc<Self>, parts: Vec<WrittenPart>) -> Result<StopReason, Error> {
        let Ok(_turn) = self.turn.try_lock() else {
            return Err(invalid("a prompt of this session is still open; cancel it first"));
        };
        let cancel = CancellationToken::new();
        *locked(&self.cancel) = cancel.clone();
        let mut turn = Turn { session: self, cancel: cancel.clone(), is_over: false };
        let questions = CancellationToken::new();
        let asking = tokio::spawn(Arc::clone(self).ask_until(questions.clone(), cancel));
        let stops = questions.drop_guard();
        // On the heap, because a run's future is large.
        let end = Box::pin(turn.drive(parts)).await;
        drop(stops);
        let _ = asking.await;
        end
    }

    /// Asks the client every question of the conversation, until stopped.
    async fn ask_until(self: Arc<Self>, stop: CancellationToken, cancel: CancellationToken) {
        let mut changes = match self.runtime().store().watch() {
            Ok(changes) => changes,
            Err(error) => {
                tracing::warn!(%error, "decisions from other processes are noticed late");
                return;
            }
        };
        let mut children = self.runtime().watch_children();
        while !stop.is_cancelled() {
            self.ask_open(&cancel).await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.questions_changed.notified() => {}
                Ok(()) = children.changed() => {}
                () = changes.next_about(&self.thread) => {}
            }
        }
        for (_, asked) in locked(&self.asked).drain() {
            asked.cancel();
        }
    }

    /// The pending questions of the conversation and of all that works for it, also in the background.
    async fn open_questions(&self) -> Result<Vec<SuspensionRecord>, RuntimeError> {
        let runtime = self.runtime();
        let mut open = runtime.waiting(&self.thread).await?;
        for task in runtime.tasks(&self.thread).await? {
            if task.child.background && task.waiting > 0 {
                open.extend(runtime.waiting(&task.child.thread_id).await?);
            }
        }
        open.sort_by(|a, b| a.id.cmp(&b.id));
        open.dedup_by(|a, b| a.id == b.id);
        Ok(open)
    }

    /// Asks the pending questions that have not been asked yet, and cancels the requests of those that are no
    /// longer pending.
    async fn ask_open(self: &Arc<Self>, cancel: &CancellationToken) {
        let open = match self.open_questions().await {
            Ok(open) => open,
            Err(error) => {
                tracing::error!(thread = %self.thread, %error, "questions cannot be read");
                return;
            }
        };
        let mut asked = locked(&self.asked);
        asked.retain(|id, request| {
            let is_open = open.iter().any(|question| question.id == *id);
            if !is_open {
                request.cancel();
            }
            is_open
        });
        let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        for question in open {
            if asked.contains_key(&question.id) {
                continue;
            }
            let taken_back = CancellationToken::new();
            asked.insert(question.id.clone(), taken_back.clone());
            // A client that answers by itself would try again at once, and without end.
            if let Some(left) = question.ticket.suspension.resumes_in(now) {
                let why = visible_line(&question.ticket.suspension.message);
                let words =
                    format!("{why}\nResumes in {left} when the limit resets; cancel to end the run.\n");
                self.send(vec![SessionUpdate::AgentMessageChunk(acp::ContentChunk::new(words.into()))]);
                continue;
            }
            tokio::spawn(Arc::clone(self).ask(question, taken_back, cancel.clone()));
        }
    }

    /// Asks one question, and decides what the client says.
    async fn ask(
        self: Arc<Self>,
        question: SuspensionRecord,
        taken_back: CancellationToken,
        cancel: CancellationToken,
    ) {
        let asked = match questions::form_of(&question).filter(|_| self.abilities.has_forms) {
            Some((message, form)) => self.ask_form(&question, message, form, &taken_back).await,
            None => self.ask_permission(&question, &taken_back, &cancel).await,
        };
        let Some(answer) = asked else { return };
        let mut decided = self.decide(&question, answer).await;
        if decided == Decided::Unfit {
            decided = self.decide(&question, Answer::no(None)).await;
        }
        if decided == Decided::NotStored {
            let words = "Your answer could not be stored; the question is asked again.\n".to_owned();
            self.send(vec![SessionUpdate::AgentMessageChunk(acp::ContentChunk::new(words.into()))]);
            // A client that answers by itself must not ask a broken store without end.
            tokio::select! {
                () = tokio::time::sleep(ASK_AGAIN) => {}
                () = taken_back.cancelled() => {}
            }
            locked(&self.asked).remove(&question.id);
        } else {
            self.answered.notify_one();
        }
        self.questions_changed.notify_one();
    }

    /// Returns the client's choice, or `None` if the client did not answer.
    async fn ask_permission(
        &self,
        question: &SuspensionRecord,
        taken_back: &CancellationToken,
        cancel: &CancellationToken,
    ) -> Option<Answer> {
        let offers = questions::offered(question, &self.host.project());
        let how = questions::other_way(question);
        let call = locked(&self.encoder).asked(question, how.as_deref());
        let options = offers.iter().map(questions::OfferedAnswer::option).collect();
        let request = acp::RequestPermissionRequest::new(self.id.clone(), call, options);
        let chosen = match self.send_question(request, taken_back).await? {
            Ok(response) => match response.outcome {
                RequestPermissionOutcome::Selected(selected) => Some(selected.option_id.to_string()),
                // A client must answer its open permission requests like this when it cancels the prompt.
                RequestPermissionOutcome::Cancelled => {
                    cancel.cancel();
                    return None;
                }
                _ => None,
            },
            Err(_) => None,
        };
        Some(questions::chosen(&offers, chosen.as_deref()))
    }

    /// The same, for a question that is a form.
    async fn ask_form(
        &self,
        question: &SuspensionRecord,
        message: String,
        form: acp::ElicitationSchema,
        taken_back: &CancellationToken,
    ) -> Option<Answer> {
        let call = locked(&self.encoder).asked(question, None).tool_call_id;
        let scope = acp::ElicitationSessionScope::new(self.id.clone()).tool_call_id(call);
        let mode = acp::ElicitationMode::Form(acp::ElicitationFormMode::new(scope, form));
        let request = acp::CreateElicitationRequest::new(mode, message);
        let answer = self.send_question(request, taken_back).await?;
        Some(answer.map_or_else(|_| Answer::no(None), |response| questions::filled(response.action)))
    }

    /// Sends a question. Returns `None`, which answers nothing, if the question was withdrawn or the client
    /// is gone.
    async fn send_question<R: JsonRpcRequest>(
        &self,
        request: R,
        taken_back: &CancellationToken,
    ) -> Option<Result<R::Response, Error>> {
        let sent = self.client.send_request(request);
        let handle = sent.cancellation_handle();
        let answer = tokio::select! {
            biased;
            () = taken_back.cancelled() => {
                let _ = handle.cancel();
                return None;
            }
            answer = sent.block_task() => answer,
        };
        match answer {
            Err(error) if self.is_gone(&error) => None,
            Err(error) => {
                tracing::warn!(?error, "the client could not ask; the call is denied");
                Some(Err(error))
            }
            Ok(answer) => Some(Ok(answer)),
        }
    }

    async fn decide(&self, question: &SuspensionRecord, answer: Answer) -> Decided {
        match self.host.decide(&question.id, answer).await {
            Ok(outcome) => {
                // The same question may be asked again, if what it was about has changed.
                locked(&self.asked).remove(&question.id);
                // The first decision wins: the stored one is carried out.
                tracing::debug!(question = %question.id, ?outcome, "decided");
                Decided::Stored
            }
            Err(AnswerError::Refused(DecideError::Store(error))) => {
                tracing::error!(question = %question.id, %error, "the decision is not stored");
                Decided::NotStored
            }
            Err(error) => {
                tracing::warn!(question = %question.id, %error, "the answer does not match the form; the call is denied");
                Decided::Unfit
            }
        }
    }

    fn is_gone(&self, error: &Error) -> bool {
        agent_client_protocol::is_incoming_transport_closed(error)
            || self.client.is_incoming_closed()
            || self.client.termination().is_some()
            || self.closing.is_cancelled()
    }
}

/// What became of a decision.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decided {
    Stored,
    /// The store refused it: the question is still pending.
    NotStored,
    /// It does not fit the question.
    Unfit,
}

/// The open prompt of a session.
struct Turn<'a> {
    session: &'a Arc<AcpSession>,
    cancel: CancellationToken,
    /// The last run did not end well: nothing follows it.
    is_over: bool,
}

impl Turn<'_> {
    async fn drive(&mut self, parts: Vec<WrittenPart>) -> Result<StopReason, Error> {
        let session = self.session;
        let (runtime, thread) = (session.runtime(), &session.thread);
        session.prepare().await;
        let message = session.host.message(parts).await.map_err(refusal)?;
        // The client shows it already.
        session.encode(|encoder| {
            encoder.knows(&message);
            Vec::new()
        });
        let failed = |error: RuntimeError| runtime_error(&error);
        let unfinished = runtime.store().latest_run(thread).await.map_err(|e| internal(e.to_string()))?;
        let unfinished = unfinished.filter(|run| run.status != RunStatus::Done);
        let (attender, queued) = match unfinished {
            None => (Attender::request(MANNER, RunRequest::new(thread.clone(), vec![message])), None),
            // The pending questions are asked first, so that nothing is lost; the message starts after them.
            Some(run) => {
                let queued = runtime.enqueue(thread, vec![message]).await.map_err(failed)?;
                (Attender::of_run(MANNER, run.id), Some(queued.id))
            }
        };
        let cancel = self.cancel.clone();
        let end = {
            let mut attended = Box::pin(attender.attend(runtime, thread, self));
            tokio::select! {
                end = &mut attended => Some(end),
                () = cancel.cancelled() => {
                    if session.closing.is_cancelled() {
                        // What waits keeps waiting, and a run that is about to ask may reach its rest.
                        attender.report(SessionFact::Closed);
                        if !runtime.waiting(thread).await.is_ok_and(|open| !open.is_empty()) {
                            runtime.cancel(thread);
                        }
                        tokio::time::timeout(LAST_WAIT, attended).await.ok()
                    } else {
                        attender.report(SessionFact::Cancelled);
                        Some(attended.await)
                    }
                }
            }
        };
        if cancel.is_cancelled() {
            if let Some(queued) = queued {
                let _ = runtime.unqueue(queued).await;
            }
            return Ok(StopReason::Cancelled);
        }
        let nothing = || RuntimeError::NothingToResume { thread_id: thread.clone() };
        let result = end.and_then(|end| end.result).ok_or_else(nothing).flatten();
        let end = RunEnd::of(&result.map_err(failed)?);
        if let Some(words) = end.words() {
            session.send(vec![SessionUpdate::AgentMessageChunk(acp::ContentChunk::new(words.into()))]);
        }
        end.stop_reason()
    }

    /// Waits until one of these questions was answered, here or elsewhere.
    async fn wait_for(&self, questions: &[SuspensionRecord]) -> Result<(), RuntimeError> {
        let session = self.session;
        session.questions_changed.notify_one();
        let none = BTreeMap::new();
        tokio::select! {
            answered = session.runtime().until_answered(&session.thread, questions, &none) => answered.map(drop),
            () = session.answered.notified() => Ok(()),
        }
    }

    /// Lets background runs continue, which report by a message when they are done.
    async fn finish_tasks(&mut self) -> Result<(), RuntimeError> {
        let (session, cancel) = (self.session, self.cancel.clone());
        session.runtime().supervise_tasks(&session.thread).await?;
        tokio::select! {
            () = cancel.cancelled() => {}
            () = session.runtime().finish_tasks(&session.thread) => {}
        }
        Ok(())
    }
}

impl FrontEnd for Turn<'_> {
    fn sink(&self) -> Arc<dyn EventSink> {
        Arc::new(SessionSink { session: Arc::clone(self.session), cancel: self.cancel.clone() })
    }

    async fn prepare(&mut self, _request: Option<&RunRequest>) {
        self.session.prepare().await;
    }

    async fn ended(
        &mut self,
        result: Option<&Result<AgentRunResult, RuntimeError>>,
    ) -> Result<(), RuntimeError> {
        let Some(result) = result else { return Ok(()) };
        let ended = Ended::of(result);
        self.is_over = !matches!(ended, Ended::Well | Ended::Waits | Ended::Nothing);
        match result {
            // A failure is the answer to the prompt.
            Err(error) if !ended.is_busy() && ended != Ended::Nothing => Err(error.clone()),
            _ => Ok(()),
        }
    }

    async fn before_queue(&mut self) -> Result<bool, RuntimeError> {
        self.finish_tasks().await?;
        Ok(true)
    }

    async fn wait(&mut self, rest: &mut Rest<'_>) -> Result<SessionFact, RuntimeError> {
        if let Some(result) = rest.waiting {
            self.wait_for(&result.waiting).await?;
            return Ok(SessionFact::Changed);
        }
        if self.is_over {
            return Ok(SessionFact::Closed);
        }
        // Background work may still have questions, or answers that nobody has carried out.
        let open = self.session.open_questions().await?;
        if !open.is_empty() {
            self.wait_for(&open).await?;
        }
        let tasks = || self.session.runtime().tasks(&self.session.thread);
        let before = tasks().await?;
        self.finish_tasks().await?;
        let is_settled = open.is_empty() && tasks().await? == before;
        Ok(if is_settled { SessionFact::Closed } else { SessionFact::Changed })
    }

    async fn follows(&mut self, _pid: u32) {
        self.session.catch_up().await;
        self.session.questions_changed.notify_one();
    }

    async fn ended_elsewhere(
        &mut self,
        runtime: &AgentRuntime,
        run: RunRecord,
    ) -> Result<AgentRunResult, RuntimeError> {
        self.session.catch_up().await;
        let result = runtime.result_of(run).await?;
        self.is_over = !result.termination.went_well();
        Ok(result)
    }
}

/// Sends the events of a run to the client.
struct SessionSink {
    session: Arc<AcpSession>,
    cancel: CancellationToken,
}

#[async_trait]
impl EventSink for SessionSink {
    async fn emit(&self, event: AgentEvent) {
        let session = &self.session;
        match &event {
            // A prompt that was cancelled before its run could be.
            AgentEvent::RunStart { .. } if self.cancel.is_cancelled() => {
                session.runtime().cancel(&session.thread);
            }
            AgentEvent::ToolCallDone { outcome: ToolCallOutcome::Suspended, .. }
            | AgentEvent::RunFinish { .. } => {
                session.questions_changed.notify_one();
            }
            _ => {}
        }
        session.encode(|encoder| encoder.event(&event, Instant::now()));
    }

    async fn acquired(&self) {
        self.session.catch_up().await;
    }
}
