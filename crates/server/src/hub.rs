//! Drives conversations: starts runs, resumes them once they are answered, and takes queued messages.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::Message;
use aye_core::contract::record::{RunRecord, ThreadRecord};
use aye_core::contract::storage::{ChangeKind, StoreChange, StoreError, ThreadRunStore};
use aye_runtime::{AgentRunResult, AgentRuntime, RunRequest, RuntimeError};
use aye_session::{Attender, Elsewhere, Ended, FrontEnd, Manner, Queue, SessionFact};
use futures::FutureExt as _;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::{Caller, TokenScope};
use super::error::ApiError;
use super::host::{AgentFolder, ServerHost};
use super::inbox_feed::InboxFeed;
use super::live::{ChannelSink, Channels};
use super::metrics::{Metrics, Present};
use super::push::push_task_state;
use super::starts::{Place, Starts};

/// Time limit for runs to end when the server shuts down.
pub(super) const LAST_WAIT: Duration = Duration::from_secs(30);
/// Time until a conversation that a failed write stopped is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum backlog of commits for a reader before the reader reads everything again.
const CHANGES: usize = 1024;

/// What the server does in a conversation: it leaves a run that waits, and returns when a question is answered.
const MANNER: Manner = Manner {
    waits: false,
    elsewhere: Elsewhere::Leave,
    queue: Queue::Messages,
    after_failure: true,
    stays: false,
};

/// The work of this process in one conversation.
struct Drive {
    attender: Arc<Attender>,
    /// The run that was accepted last. Until it is stored, only this says that the conversation is busy.
    accepted: Option<RunId>,
}

/// The work of this process in conversations.
#[derive(Default)]
struct Work {
    /// Those that it drives.
    driven: HashMap<ThreadId, Drive>,
    /// Those that it left because they wait.
    waiting: HashSet<ThreadId>,
    /// Those that are about to be resumed.
    woken: HashSet<ThreadId>,
    /// Those that a failed write stopped, the oldest first.
    stopped: VecDeque<ThreadId>,
}

/// A conversation that is about to be resumed, until dropped.
struct Woken {
    hub: Arc<Hub>,
    thread: ThreadId,
}

impl Drop for Woken {
    fn drop(&mut self) {
        self.hub.work().woken.remove(&self.thread);
    }
}

/// The next step in a conversation.
enum Begin {
    Run(Box<RunRequest>),
    /// Whatever is pending there: answers first, then the queue.
    Check,
}

/// The conversations of a server.
pub struct Hub {
    pub(super) program: Arc<dyn ServerHost>,
    pub(super) channels: Channels,
    pub(super) metrics: Metrics,
    pub(super) starts: Starts,
    pub(super) inbox: Arc<InboxFeed>,
    changes: broadcast::Sender<StoreChange>,
    work: Mutex<Work>,
    tasks: TaskTracker,
    /// Notified when anyone may have answered anything.
    may_be_answered: Arc<Notify>,
    /// Notified when a write failed.
    write_failed: Arc<Notify>,
    /// Conversations with tasks that other agents follow.
    push_threads: Mutex<HashSet<ThreadId>>,
    /// Held while a message that other agents may repeat is received.
    pub(super) sending: tokio::sync::Mutex<()>,
    /// The address under which others reach the server, without a slash at its end.
    pub(super) url: Option<String>,
    /// Set when the server shuts down: nothing new starts.
    pub(super) closing: CancellationToken,
}

impl Hub {
    /// A hub that follows what others commit until the token is cancelled.
    ///
    /// # Errors
    /// [`ApiError`] when the store cannot be watched.
    pub fn start(
        program: Arc<dyn ServerHost>,
        url: Option<String>,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, ApiError> {
        let mut feed = program.store().watch()?;
        let hub = Arc::new(Self {
            channels: Channels::new(program.backlog()),
            program,
            metrics: Metrics::default(),
            starts: Starts::of_machine(),
            inbox: Arc::default(),
            changes: broadcast::channel(CHANGES).0,
            work: Mutex::default(),
            tasks: TaskTracker::new(),
            may_be_answered: Arc::default(),
            write_failed: Arc::default(),
            push_threads: Mutex::default(),
            sending: tokio::sync::Mutex::default(),
            url,
            closing,
        });
        hub.resume_leftover_runs();
        hub.resume_pushes();
        hub.resume_answered_runs();
        hub.retry_stopped_runs();
        let weak = Arc::downgrade(&hub);
        let closing = hub.closing.clone();
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    change = feed.next_or_check() => change,
                    () = closing.cancelled() => return,
                };
                let Some(hub) = weak.upgrade() else { return };
                hub.on_store_change(&change);
                // There may be no receivers.
                let _ = hub.changes.send(change);
            }
        });
        Ok(hub)
    }

    /// Resumes runs that a dead process left, and those that have been answered since; the others as soon as they are.
    fn resume_leftover_runs(self: &Arc<Self>) {
        let hub = Arc::clone(self);
        self.tasks.spawn(async move {
            let left = hub.store().unfinished_runs().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "unfinished runs cannot be listed");
                Vec::new()
            });
            for run in left {
                // Before the look, so that an answer that comes after it is noticed.
                hub.work().waiting.insert(run.thread_id.clone());
                let is_ready = run.status == RunStatus::Running
                    || matches!(hub.store().has_answers(&run.thread_id).await, Ok(true));
                if is_ready {
                    // One that a live process drives is left to it.
                    hub.wake(&run.thread_id);
                } else if hub.may_resume_unanswered(&run.thread_id).await
                    && let Ok(record) = hub.thread(&run.thread_id).await
                    && let Ok(agent_folder) = hub.agent_folder(&record.cwd).await
                {
                    hub.watch_questions(&run.thread_id, &agent_folder).await;
                }
            }
        });
    }

    /// Resumes the runs that were answered, whenever changes may have been missed.
    fn resume_answered_runs(self: &Arc<Self>) {
        let (weak, closing) = (Arc::downgrade(self), self.closing.clone());
        let may_be_answered = Arc::clone(&self.may_be_answered);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = may_be_answered.notified() => {}
                    () = closing.cancelled() => return,
                }
                let Some(hub) = weak.upgrade() else { return };
                let answered = hub.store().answered_threads().await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "answered conversations cannot be listed");
                    Vec::new()
                });
                for thread in answered {
                    hub.wake_waiting(&StoreChange::of(ChangeKind::Decision, &thread));
                }
            }
        });
    }

    /// Tries a conversation that a failed write stopped every ten seconds: the disk may have space again. The first one
    /// that succeeds wakes the others.
    fn retry_stopped_runs(self: &Arc<Self>) {
        let (weak, closing) = (Arc::downgrade(self), self.closing.clone());
        let write_failed = Arc::clone(&self.write_failed);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = write_failed.notified() => {}
                    () = closing.cancelled() => return,
                }
                loop {
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = closing.cancelled() => return,
                    }
                    let Some(hub) = weak.upgrade() else { return };
                    let Some(thread) = hub.work().stopped.pop_front() else { break };
                    hub.wake(&thread);
                }
            }
        });
    }

    /// Keeps a conversation that a failed write stopped, to try it again.
    fn retry_later(&self, thread: &ThreadId) {
        let mut work = self.work();
        if !work.stopped.contains(thread) {
            work.stopped.push_back(thread.clone());
        }
        self.write_failed.notify_one();
    }

    /// Resumes all conversations that failed writes stopped: a write has succeeded.
    fn wake_stopped(self: &Arc<Self>) {
        let stopped = std::mem::take(&mut self.work().stopped);
        for thread in stopped {
            self.wake(&thread);
        }
    }

    /// Whether a run that waits may resume without an answer of this side: a question expires, or a subagent may be a
    /// remote one, whose questions can be answered over there.
    async fn may_resume_unanswered(&self, thread: &ThreadId) -> bool {
        let waiting = self.store().waiting_below(thread).await.unwrap_or_default();
        waiting.iter().any(|question| question.ticket.suspension.expires_at.is_some())
            || matches!(self.store().children(thread).await, Ok(children) if !children.is_empty())
    }

    /// Notifies other agents of what happened to their tasks in the meantime, and from now on.
    fn resume_pushes(self: &Arc<Self>) {
        let hub = Arc::clone(self);
        self.tasks.spawn(async move {
            let Some(pushes) = hub.program.pushes() else { return };
            let waiting = pushes.pushes_that_wait(None).await.unwrap_or_else(|error| {
                tracing::warn!(error = error.message(), "push notifications cannot be listed");
                Vec::new()
            });
            let threads: HashSet<ThreadId> = waiting.into_iter().map(|push| push.thread).collect();
            for thread in threads {
                hub.track_pushes(&thread);
                push_task_state(hub.store(), pushes, &thread).await;
            }
        });
    }

    /// Registers a conversation with a task that other agents follow.
    pub(super) fn track_pushes(&self, thread: &ThreadId) {
        self.push_threads.lock().unwrap_or_else(PoisonError::into_inner).insert(thread.clone());
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn store(&self) -> &Arc<dyn ThreadRunStore> {
        self.program.store()
    }

    /// Commits of anybody, from now on.
    pub(super) fn changes(&self) -> broadcast::Receiver<StoreChange> {
        self.changes.subscribe()
    }

    /// Resumes a conversation that this process left waiting, as soon as anyone answers.
    fn on_store_change(self: &Arc<Self>, change: &StoreChange) {
        if matches!(change.kind, ChangeKind::Run | ChangeKind::Anything) {
            let followed = self.push_threads.lock().unwrap_or_else(PoisonError::into_inner);
            for thread in followed.iter().filter(|thread| change.concerns(thread)) {
                let (hub, thread) = (Arc::clone(self), thread.clone());
                self.tasks.spawn(async move {
                    if let Some(pushes) = hub.program.pushes() {
                        push_task_state(hub.store(), pushes, &thread).await;
                    }
                });
            }
        }
        match change.kind {
            ChangeKind::Decision => self.wake_waiting(change),
            // In a burst of changes some may be lost. To resume all that wait would cost more than the burst itself.
            ChangeKind::Anything => self.may_be_answered.notify_one(),
            ChangeKind::Run | ChangeKind::Owner | ChangeKind::Queue | ChangeKind::Grant => {}
        }
    }

    /// Resumes the conversations that this process left waiting and that a change concerns.
    fn wake_waiting(self: &Arc<Self>, change: &StoreChange) {
        let concerned: Vec<ThreadId> =
            self.work().waiting.iter().filter(|own| change.concerns(own)).cloned().collect();
        for thread in concerned {
            self.wake(&thread);
        }
    }

    pub(super) async fn thread(&self, id: &ThreadId) -> Result<ThreadRecord, ApiError> {
        let found = self.store().load_thread(id).await?;
        found.ok_or_else(|| ApiError::not_found("conversation", id.as_str()))
    }

    pub(super) async fn run(&self, id: &RunId) -> Result<RunRecord, ApiError> {
        let found = self.store().load_run(id).await?;
        found.ok_or_else(|| ApiError::not_found("run", id.as_str()))
    }

    /// The latest run of a conversation.
    pub(super) async fn latest_run(&self, thread: &ThreadId) -> Result<RunRecord, ApiError> {
        let found = self.store().latest_run(thread).await?;
        found.ok_or_else(|| ApiError::not_found("run of conversation", thread.as_str()))
    }

    /// The agents of a folder, when this server serves it.
    pub(super) async fn agent_folder(&self, folder: &Path) -> Result<Arc<dyn AgentFolder>, ApiError> {
        if !self.serves(folder) {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "folder_not_served",
                format!(
                    "this server does not serve the folder {}; {}",
                    folder.display(),
                    self.program.texts().folder
                ),
            ));
        }
        self.program.workshop(folder).await
    }

    /// Whether conversations may work in a folder.
    pub(super) fn serves(&self, folder: &Path) -> bool {
        self.program.serves(folder)
    }

    /// The agents of the first folder, for what does not depend on the folder.
    pub(super) async fn any_folder(&self) -> Result<Arc<dyn AgentFolder>, ApiError> {
        let first = self.program.folders().first();
        self.agent_folder(first.ok_or_else(|| ApiError::internal("no folder is served"))?).await
    }

    /// The message of a conversation for what a person wrote. Whoever may not answer questions can mention nothing.
    pub(super) async fn message(
        &self,
        thread: &ThreadRecord,
        content: Vec<ContentBlock>,
        caller: &Caller,
    ) -> Result<Message, ApiError> {
        self.agent_folder(&thread.cwd).await?.message(content, caller.may(TokenScope::Decide)).await
    }

    /// The messages of a conversation for several texts.
    pub(super) async fn messages(
        &self,
        thread: &ThreadRecord,
        texts: Vec<String>,
        caller: &Caller,
    ) -> Result<Vec<Message>, ApiError> {
        let mut messages = Vec::with_capacity(texts.len());
        for text in texts {
            messages.push(self.message(thread, vec![ContentBlock::text(text)], caller).await?);
        }
        Ok(messages)
    }

    /// Starts a run in the background and returns its id. The run starts after one that is active here, and
    /// closes the questions of one that waits.
    ///
    /// # Errors
    /// [`ApiError`]; nothing was started.
    pub(super) async fn begin(
        self: &Arc<Self>,
        thread: &ThreadRecord,
        mut request: RunRequest,
    ) -> Result<RunId, ApiError> {
        if self.closing.is_cancelled() {
            return Err(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "closing",
                "the server is shutting down",
            ));
        }
        let agent_folder = self.agent_folder(&thread.cwd).await?;
        // A run that cannot start is reported in the response, not in an event of the run.
        let agent = request.agent_id.clone();
        if let Some(agent) = &agent {
            agent_folder.runtime().resolved(agent)?;
        }
        self.store().ensure_thread(thread.clone()).await?;
        let run = request.run_id.get_or_insert_with(RunId::fresh).clone();
        self.drive(&thread.id, Begin::Run(Box::new(request)), agent_folder, None);
        Ok(run)
    }

    /// Resumes a conversation in which something was answered or queued, as soon as there is a place for it.
    pub(super) fn wake(self: &Arc<Self>, thread: &ThreadId) {
        if self.closing.is_cancelled() || !self.work().woken.insert(thread.clone()) {
            return;
        }
        let (hub, woken) = (Arc::clone(self), Woken { hub: Arc::clone(self), thread: thread.clone() });
        self.tasks.spawn(async move {
            let place = tokio::select! {
                place = hub.starts.place() => place,
                () = hub.closing.cancelled() => return,
            };
            let woken_thread = woken.thread.clone();
            let found = hub.driven_with(&woken_thread).await;
            // Before the run reads its answers, so that one that comes after that is noticed.
            drop(woken);
            match found {
                Ok(Some((top, agent_folder))) => hub.drive(&top, Begin::Check, agent_folder, Some(place)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a conversation cannot be resumed");
                    hub.retry_later(&woken_thread);
                }
            }
        });
    }

    /// Returns the conversation that is resumed when something is answered in this one, and its agents. Returns `None` if
    /// its folder is not served: a process that works there resumes it.
    async fn driven_with(
        &self,
        thread: &ThreadId,
    ) -> Result<Option<(ThreadId, Arc<dyn AgentFolder>)>, StoreError> {
        let mut top = thread.clone();
        if thread.may_be_child() {
            // An answer to a child resumes the run that waits for the child.
            top = self.store().driven_with(thread).await?;
        }
        let Ok(record) = self.thread(&top).await else { return Ok(None) };
        Ok(self.agent_folder(&record.cwd).await.ok().map(|agent_folder| (top, agent_folder)))
    }

    /// Whether a run is active or waits in a conversation, so that a message must be queued.
    pub(super) async fn is_busy(&self, thread: &ThreadId) -> Result<bool, ApiError> {
        let accepted = self.work().driven.get(thread).and_then(|drive| drive.accepted.clone());
        if let Some(run) = accepted
            && self.store().load_run(&run).await?.is_none()
        {
            return Ok(true);
        }
        let run = self.store().latest_run(thread).await?;
        Ok(run.is_some_and(|run| run.status != RunStatus::Done))
    }

    /// Whether a run is the newest one that was accepted in a conversation that is driven here.
    pub(super) fn is_accepted(&self, thread: &ThreadId, run: &RunId) -> bool {
        self.work().driven.get(thread).is_some_and(|drive| drive.accepted.as_ref() == Some(run))
    }

    fn drive(
        self: &Arc<Self>,
        thread: &ThreadId,
        begin: Begin,
        agent_folder: Arc<dyn AgentFolder>,
        place: Option<Place>,
    ) {
        let attender = {
            let mut work = self.work();
            // From here on, the run itself learns of answers.
            work.waiting.remove(thread);
            let mut known = work.driven.get_mut(thread);
            let accepted = match &begin {
                Begin::Run(request) => request.run_id.clone(),
                Begin::Check => None,
            };
            // An attender that has just left takes nothing more, and is replaced.
            let new = match (begin, &known) {
                (Begin::Run(request), Some(drive)) => {
                    drive.attender.start(*request).err().map(|request| Attender::request(MANNER, *request))
                }
                (Begin::Run(request), None) => Some(Attender::request(MANNER, *request)),
                (Begin::Check, Some(drive)) if drive.attender.report(SessionFact::Continued) => None,
                (Begin::Check, _) => Some(Attender::resume(MANNER)),
            };
            let Some(attender) = new.map(Arc::new) else {
                if let Some(drive) = known.as_mut().filter(|_| accepted.is_some()) {
                    drive.accepted = accepted;
                }
                return;
            };
            work.driven.insert(thread.clone(), Drive { attender: Arc::clone(&attender), accepted });
            attender
        };
        let (hub, thread) = (Arc::clone(self), thread.clone());
        self.tasks.spawn(async move {
            let sink = hub.channels.sink(&thread, hub.store());
            let mut front = HubSession {
                hub: &hub,
                thread: &thread,
                agent_folder: &agent_folder,
                place,
                sink,
                run: None,
                active: Mutex::default(),
            };
            Box::pin(attender.attend(agent_folder.runtime(), &thread, &mut front)).await;
            drop(front);
            let mut work = hub.work();
            if work.driven.get(&thread).is_some_and(|drive| Arc::ptr_eq(&drive.attender, &attender)) {
                work.driven.remove(&thread);
            }
        });
    }

    /// Resumes a conversation when a question expires, or when a remote agent no longer needs the answer.
    async fn watch_questions(self: &Arc<Self>, thread: &ThreadId, agent_folder: &Arc<dyn AgentFolder>) {
        let runtime = agent_folder.runtime();
        let mut children = runtime.watch_children();
        let expiry = runtime.next_expiry(thread).await.unwrap_or_default();
        let has_remotes = runtime.watch_remotes(thread).await.unwrap_or_default();
        if expiry.is_none() && !has_remotes {
            return;
        }
        let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        let left = expiry.map(|at| Duration::from_millis(at.saturating_sub(now) + 1));
        let (hub, thread, store) = (Arc::downgrade(self), thread.clone(), Arc::clone(self.store()));
        let closing = self.closing.clone();
        tokio::spawn(async move {
            let answered = async {
                while children.changed().await.is_ok() {
                    if matches!(store.has_answers(&thread).await, Ok(true)) {
                        return;
                    }
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => {}
                () = answered, if has_remotes => {}
                () = closing.cancelled() => return,
            }
            if let Some(hub) = hub.upgrade() {
                hub.wake(&thread);
            }
        });
    }

    /// Asks the active run of a conversation to stop, or ends one that waits. Returns `false` if this process
    /// has none there.
    pub(super) async fn cancel(self: &Arc<Self>, thread: &ThreadRecord) -> Result<bool, ApiError> {
        let agent_folder = self.agent_folder(&thread.cwd).await?;
        if agent_folder.runtime().cancel(&thread.id) {
            return Ok(true);
        }
        let sink = self.channels.sink(&thread.id, self.store());
        Ok(agent_folder.runtime().cancel_waiting(&thread.id, sink).await?)
    }

    /// Stops a run whose reader left, unless the server is shutting down: then the run stays as it is.
    pub(super) fn stop_in_background(self: &Arc<Self>, thread: ThreadId, run: RunId) {
        // A stream can outlive the runtime that it was read in.
        if self.closing.is_cancelled() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let hub = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Err(error) = hub.stop_run(&thread, &run).await {
                tracing::warn!(%thread, %run, error = error.message(), "a run whose reader left cannot be stopped");
            }
        });
    }

    /// Stops a run, also one that has not started yet.
    async fn stop_run(self: &Arc<Self>, thread: &ThreadId, run: &RunId) -> Result<(), ApiError> {
        let mut changes = self.changes();
        loop {
            if self.withdraw(thread, run) {
                return Ok(());
            }
            match self.store().load_run(run).await? {
                Some(stored) if stored.status == RunStatus::Done => return Ok(()),
                Some(_) => return self.cancel(&self.thread(thread).await?).await.map(drop),
                None if !self.is_accepted(thread, run) => return Ok(()),
                None => {}
            }
            // It is about to be stored.
            tokio::select! {
                _ = changes.recv() => {}
                () = self.closing.cancelled() => return Ok(()),
            }
        }
    }

    /// Takes back an accepted run that has not started. Returns `false` if there is none.
    fn withdraw(&self, thread: &ThreadId, run: &RunId) -> bool {
        let mut work = self.work();
        let Some(drive) = work.driven.get_mut(thread) else { return false };
        let is_withdrawn = drive.attender.withdraw(run);
        if is_withdrawn && drive.accepted.as_ref() == Some(run) {
            drive.accepted = None;
        }
        is_withdrawn
    }

    /// Waits until nothing is running here, at most 30 seconds. Waiting runs keep waiting, and a run that is
    /// still active then is left as if killed.
    pub async fn close(&self) {
        self.tasks.close();
        let _ = tokio::time::timeout(LAST_WAIT, self.tasks.wait()).await;
    }
}

/// The session of a conversation that the server drives.
struct HubSession<'a> {
    hub: &'a Arc<Hub>,
    thread: &'a ThreadId,
    agent_folder: &'a Arc<dyn AgentFolder>,
    place: Option<Place>,
    sink: Arc<ChannelSink>,
    /// The requested run that starts.
    run: Option<RunId>,
    /// Counts the attempt as active.
    active: Mutex<Option<Present>>,
}

impl FrontEnd for HubSession<'_> {
    fn sink(&self) -> Arc<dyn EventSink> {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.hub.metrics.run_begins());
        self.sink.clone()
    }

    async fn prepare(&mut self, request: Option<&RunRequest>) {
        let hub = self.hub;
        // From here on, the run itself learns of answers.
        hub.work().waiting.remove(self.thread);
        self.run = request.and_then(|request| request.run_id.clone());
        let place = hub.starts.aside(self.place.take(), self.agent_folder.prepare()).await;
        self.sink = hub.channels.sink(self.thread, hub.store());
        self.sink.keep(place);
    }

    async fn ended(
        &mut self,
        result: Option<&Result<AgentRunResult, RuntimeError>>,
    ) -> Result<(), RuntimeError> {
        let (hub, thread) = (self.hub, self.thread);
        *self.active.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        if let (Some(Err(error)), Some(run)) = (result, self.run.take()) {
            // Readers that wait for the run's events learn that there will be none.
            self.sink
                .emit(AgentEvent::RunFinish {
                    thread_id: thread.to_string(),
                    run_id: run.to_string(),
                    result: None,
                    termination: TerminationReason::Error(error.to_string()),
                })
                .await;
        }
        self.sink.waits();
        let Some(result) = result else { return Ok(()) };
        match (result, Ended::of(result)) {
            (Ok(_), ended) => {
                hub.wake_stopped();
                if ended == Ended::Waits {
                    hub.work().waiting.insert(thread.clone());
                    hub.watch_questions(thread, self.agent_folder).await;
                }
            }
            (Err(error), Ended::Unfit | Ended::Failed) => {
                tracing::error!(%thread, %error, "a run failed");
                if matches!(error, RuntimeError::Store(_) | RuntimeError::Full) {
                    hub.retry_later(thread);
                }
            }
            // Another process drives the run, or was faster; the run continues there.
            (Err(_), _) => {}
        }
        Ok(())
    }

    async fn before_queue(&mut self) -> Result<bool, RuntimeError> {
        Ok(!self.hub.closing.is_cancelled())
    }

    /// Ends the run, as one that a crash left, so that the conversation goes on with its next message: resumed, the run
    /// would panic again.
    async fn panicked(&mut self, _panic: Box<dyn Any + Send>, runtime: &AgentRuntime) -> Ended {
        let thread = self.thread;
        tracing::error!(%thread, "a run panicked");
        *self.active.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        let sink = self.hub.channels.sink(thread, self.hub.store());
        let message = "the run was ended because of an internal error".to_owned();
        sink.emit(AgentEvent::Error { message, code: Some("internal".into()) }).await;
        let end = async { runtime.cancel_waiting(thread, sink).await };
        match AssertUnwindSafe(end).catch_unwind().await {
            Ok(Ok(_)) => Ended::Badly,
            Ok(Err(error)) => {
                tracing::error!(%thread, %error, "a run that panicked cannot be ended");
                Ended::Failed
            }
            Err(_) => Ended::Failed,
        }
    }
}
