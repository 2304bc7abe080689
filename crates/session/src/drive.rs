//! Executes the directives of an [`Attendance`] over the runtime.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::{RunId, SuspensionId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::record::{LeaseRecord, QueuedMessage, RunRecord, SuspensionRecord, SuspensionStatus};
use aye_core::contract::storage::{ChangeFeed, StoreError, SuspensionFilter};
use aye_runtime::{AgentRunResult, AgentRuntime, OwnerWatch, RunRequest, RuntimeError, UnknownPolicy};

use crate::Ended;
use crate::machine::{
    Attendance, Elsewhere, First, Found, Leaving, Manner, Mark, Queue, SessionDirective, SessionFact,
    Standing,
};

/// What a front end adds to the attendance of a conversation: what it shows, and when it has seen enough.
///
/// # Errors
/// An error of a method ends the attendance.
pub trait FrontEnd: Send + Sync {
    /// Receives the events of the next run.
    fn sink(&self) -> Arc<dyn EventSink>;

    /// The same for a run that starts with a queued message.
    fn sink_of(&self, _message: &QueuedMessage) -> Arc<dyn EventSink> {
        self.sink()
    }

    /// The policy for calls that may have run.
    fn unknown(&self) -> UnknownPolicy {
        UnknownPolicy::Ask
    }

    /// Called before this process drives; the next run starts with this request, if there is one.
    fn prepare(&mut self, _request: Option<&RunRequest>) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Called after an attempt to drive, with its result; `None` if no message was queued.
    fn ended(
        &mut self,
        _result: Option<&Result<AgentRunResult, RuntimeError>>,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send {
        async { Ok(()) }
    }

    /// Called before a run is resumed. Returns whether it still may; if not, the next fact says what is done instead.
    fn before_resume(&mut self) -> impl Future<Output = bool> + Send {
        async { true }
    }

    /// Called after the run that waited was ended, or could not be.
    fn ended_waiting(&mut self, _result: Result<(), RuntimeError>) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Called before the queue is read. Returns whether it may start.
    fn before_queue(&mut self) -> impl Future<Output = Result<bool, RuntimeError>> + Send {
        async { Ok(true) }
    }

    /// Called when a run panicked, with the means to end it. Without this method the panic continues.
    fn panicked(
        &mut self,
        panic: Box<dyn Any + Send>,
        _runtime: &AgentRuntime,
    ) -> impl Future<Output = Ended> + Send {
        async { resume_unwind(panic) }
    }

    /// Waits for a reason to look again, which is the fact that it returns; [`SessionFact::Closed`] leaves.
    fn wait(
        &mut self,
        rest: &mut Rest<'_>,
    ) -> impl Future<Output = Result<SessionFact, RuntimeError>> + Send {
        async {
            rest.changed().await;
            Ok(SessionFact::Changed)
        }
    }

    /// Called when another process drives the conversation, and again whenever something about it was committed.
    fn follows(&mut self, _pid: u32) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns the result of a run that another process drove to its end.
    fn ended_elsewhere(
        &mut self,
        runtime: &AgentRuntime,
        run: RunRecord,
    ) -> impl Future<Output = Result<AgentRunResult, RuntimeError>> + Send {
        async move { runtime.result_of(run).await }
    }
}

/// The end of an attendance.
#[derive(Debug)]
pub struct SessionEnd {
    pub why: Leaving,
    /// The result of the last run, or the error of the last attempt; `None` if there was none.
    pub result: Option<Result<AgentRunResult, RuntimeError>>,
}

/// A wait of an attender.
pub struct Rest<'a> {
    /// The result of the run that waits; `None` if no run does, or another process drove it so far.
    pub waiting: Option<&'a AgentRunResult>,
    runtime: &'a AgentRuntime,
    thread: &'a ThreadId,
    changes: &'a mut (dyn ChangeFeed + 'static),
    children: &'a mut watch::Receiver<u64>,
    until: Option<Instant>,
    is_pending: bool,
}

impl Rest<'_> {
    pub fn runtime(&self) -> &AgentRuntime {
        self.runtime
    }

    /// Waits until something about the conversation may have changed, or the time has come.
    pub async fn changed(&mut self) {
        let (changes, thread, is_pending) = (&mut *self.changes, self.thread, self.is_pending);
        let changed = async {
            if is_pending {
                return changes.next_about(thread).await;
            }
            // A lost notice would delay nothing that is pending, so nothing wakes this process for it.
            while !changes.next().await.concerns(thread) {}
        };
        tokio::select! {
            () = changed => {}
            Ok(()) = self.children.changed() => {}
            () = moment(self.until) => {}
        }
    }
}

async fn moment(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// The attender of one conversation. Others reach it while it attends.
pub struct Attender {
    /// The run that it was started for.
    run: Option<RunId>,
    state: Mutex<State>,
    /// A directive is there, or the driven run is to stop.
    woken: Notify,
}

struct State {
    machine: Attendance,
    next: Option<SessionDirective>,
    stops: bool,
    requests: VecDeque<RunRequest>,
}

impl Attender {
    fn new(manner: Manner, first: First, run: Option<RunId>, request: Option<RunRequest>) -> Self {
        let (machine, directive) = Attendance::new(manner, first);
        let requests = request.into_iter().collect();
        let state = State { machine, next: Some(directive), stops: false, requests };
        Self { run, state: Mutex::new(state), woken: Notify::new() }
    }

    /// Creates an attender that starts a run.
    pub fn request(manner: Manner, request: RunRequest) -> Self {
        Self::new(manner, First::Request, None, Some(request))
    }

    /// Creates an attender that resumes the unfinished run; if there is none, it starts the queue.
    pub fn resume(manner: Manner) -> Self {
        Self::new(manner, First::Resume, None, None)
    }

    /// Creates an attender that sees this unfinished run to its end, wherever that is.
    pub fn of_run(manner: Manner, run: RunId) -> Self {
        Self::new(manner, First::Own, Some(run), None)
    }

    /// Creates an attender that does what the store has to do.
    pub fn look(manner: Manner) -> Self {
        Self::new(manner, First::Look, None, None)
    }

    fn manner(&self) -> Manner {
        self.state().machine.manner()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it drives, or is about to.
    pub fn is_driving(&self) -> bool {
        self.state().machine.is_driving()
    }

    /// Reports a fact. Returns `false` if the attender has left: nothing comes of the fact.
    pub fn report(&self, fact: SessionFact) -> bool {
        self.state().report(fact) && {
            self.woken.notify_one();
            true
        }
    }

    /// Requests another run, which starts when what is driven is done or waits.
    ///
    /// # Errors
    /// The request, if the attender has left.
    pub fn start(&self, request: RunRequest) -> Result<(), Box<RunRequest>> {
        let mut state = self.state();
        if state.machine.has_left() {
            return Err(Box::new(request));
        }
        state.requests.push_back(request);
        state.report(SessionFact::Requested);
        drop(state);
        self.woken.notify_one();
        Ok(())
    }

    /// Takes back a requested run that has not started. Returns `false` if there is none.
    pub fn withdraw(&self, run: &RunId) -> bool {
        let mut state = self.state();
        // The one that starts next is as good as started.
        let first = usize::from(state.next == Some(SessionDirective::Start));
        let is_it = |request: &RunRequest| request.run_id.as_ref() == Some(run);
        let Some(at) = state.requests.iter().skip(first).position(is_it) else { return false };
        state.requests.remove(first + at);
        state.machine.withdraw();
        true
    }

    /// Attends the conversation until it leaves.
    pub async fn attend<F: FrontEnd>(
        &self,
        runtime: &AgentRuntime,
        thread: &ThreadId,
        front: &mut F,
    ) -> SessionEnd {
        // If this future is dropped, facts are refused instead of lost.
        let _leaves = Leaves(self);
        let mut driver = Driver {
            attender: self,
            runtime,
            thread,
            front,
            own: self.run.clone(),
            waiting: None,
            moves: 0,
            result: None,
            changes: Mutex::default(),
            children: runtime.watch_children(),
            owner: None,
            lease: None,
            is_pending: false,
        };
        loop {
            let directive = self.next().await;
            if let SessionDirective::Leave(why) = directive {
                return SessionEnd { why, result: driver.result };
            }
            match driver.execute(directive).await {
                Ok(Some(fact)) => _ = self.report(fact),
                Ok(None) => {}
                Err(error) => return SessionEnd { why: Leaving::Failed, result: Some(Err(error)) },
            }
        }
    }

    /// Drives to the end of the run, and asks it to stop when the user cancels. `None`: nothing was active that could be
    /// asked.
    async fn stoppable<T>(
        &self,
        runtime: &AgentRuntime,
        thread: &ThreadId,
        mut work: impl Future<Output = T> + Unpin,
    ) -> Option<T> {
        tokio::select! {
            biased;
            result = &mut work => return Some(result),
            () = self.stopped() => {}
        }
        if runtime.cancel(thread) { Some(work.await) } else { None }
    }

    /// Waits for the next directive.
    async fn next(&self) -> SessionDirective {
        loop {
            if let Some(directive) = self.state().next.take() {
                return directive;
            }
            self.woken.notified().await;
        }
    }

    fn has_next(&self) -> bool {
        self.state().next.is_some()
    }

    /// Waits until another fact made a directive.
    async fn interrupted(&self) {
        while !self.has_next() {
            self.woken.notified().await;
        }
    }

    /// Waits until the driven run is to stop.
    async fn stopped(&self) {
        loop {
            if std::mem::take(&mut self.state().stops) {
                return;
            }
            self.woken.notified().await;
        }
    }
}

impl State {
    fn report(&mut self, fact: SessionFact) -> bool {
        if self.machine.has_left() {
            return false;
        }
        match self.machine.apply(fact) {
            Some(SessionDirective::Stop) => self.stops = true,
            Some(directive) => self.next = Some(directive),
            None => {}
        }
        true
    }
}

struct Leaves<'a>(&'a Attender);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.state().machine.abandon();
    }
}

struct Driver<'a, F> {
    attender: &'a Attender,
    runtime: &'a AgentRuntime,
    thread: &'a ThreadId,
    front: &'a mut F,
    /// The run that this attender drove or was started for.
    own: Option<RunId>,
    /// The result of the run that waits.
    waiting: Option<AgentRunResult>,
    /// Counts the results that differ from the one before: the run of a subagent moves without the row of the run that
    /// waits for it.
    moves: u64,
    result: Option<Result<AgentRunResult, RuntimeError>>,
    /// Opened before the first read, so that nothing is missed between the two. In a lock, because it cannot be shared.
    changes: Mutex<Option<Box<dyn ChangeFeed>>>,
    children: watch::Receiver<u64>,
    owner: Option<OwnerWatch>,
    /// The lease of the process that drives.
    lease: Option<LeaseRecord>,
    /// Somebody may answer or start something: a notice about it must not be lost.
    is_pending: bool,
}

impl<F: FrontEnd> Driver<'_, F> {
    /// Executes a directive and returns the fact that follows; `None` if a fact of others was first.
    async fn execute(&mut self, directive: SessionDirective) -> Result<Option<SessionFact>, RuntimeError> {
        Ok(Some(match directive {
            SessionDirective::Read => {
                let found = self.read().await;
                SessionFact::Found(found.unwrap_or_else(|error| {
                    tracing::error!(thread = %self.thread, %error, "the conversation cannot be read");
                    self.result = Some(Err(error.into()));
                    Found { standing: Standing::Unreadable, mark: Mark::default() }
                }))
            }
            SessionDirective::Start
            | SessionDirective::Resume
            | SessionDirective::StartQueued
            | SessionDirective::EndWaiting => SessionFact::Ended(self.drive(directive).await?),
            SessionDirective::Report => SessionFact::Ended(self.report().await?),
            SessionDirective::Wait { until } => return self.wait(until).await,
            SessionDirective::Follow => return Ok(self.follow().await),
            // The run has just ended.
            SessionDirective::Stop | SessionDirective::Leave(_) => return Ok(None),
        }))
    }

    async fn drive(&mut self, directive: SessionDirective) -> Result<Ended, RuntimeError> {
        let request = match directive {
            SessionDirective::EndWaiting => {
                let ended = self.runtime.cancel_waiting(self.thread, self.front.sink()).await;
                if let Err(error) = &ended {
                    tracing::warn!(thread = %self.thread, %error, "the run still waits");
                }
                self.front.ended_waiting(ended.map(drop)).await;
                return Ok(Ended::Badly);
            }
            SessionDirective::Resume if !self.front.before_resume().await => return Ok(Ended::Dropped),
            SessionDirective::StartQueued if !self.front.before_queue().await? => return Ok(Ended::Nothing),
            SessionDirective::Start => match self.attender.state().requests.pop_front() {
                Some(request) => Some(request),
                None => return Ok(Ended::Nothing),
            },
            _ => None,
        };
        let (attender, runtime, thread) = (self.attender, self.runtime, self.thread);
        let work = async {
            self.front.prepare(request.as_ref()).await;
            self.attempt(directive, request).await
        };
        // On the heap, because a run's future is large.
        let work = Box::pin(AssertUnwindSafe(work).catch_unwind());
        let result = match attender.stoppable(runtime, thread, work).await {
            Some(Ok(result)) => result.transpose(),
            Some(Err(panic)) => {
                (self.own, self.waiting) = (None, None);
                return Ok(self.front.panicked(panic, runtime).await);
            }
            None => return Ok(Ended::Dropped),
        };
        self.front.ended(result.as_ref()).await?;
        let Some(result) = result else { return Ok(Ended::Nothing) };
        let ended = Ended::of(&result);
        let before = self.waiting.take();
        match &result {
            Ok(result) if ended == Ended::Waits => {
                self.moves += u64::from(before.as_ref() != Some(result));
                (self.own, self.waiting) = (Some(result.run_id.clone()), Some(result.clone()));
            }
            Ok(_) => self.own = None,
            Err(_) => {}
        }
        self.keep(result, ended);
        Ok(ended)
    }

    async fn attempt(
        &self,
        directive: SessionDirective,
        request: Option<RunRequest>,
    ) -> Result<Option<AgentRunResult>, RuntimeError> {
        let (runtime, thread, front) = (self.runtime, self.thread, &*self.front);
        match (directive, request) {
            (_, Some(request)) => runtime.run(request, front.sink()).await.map(Some),
            (SessionDirective::StartQueued, None) => {
                let queue = self.attender.manner().queue;
                let start = |message: QueuedMessage| {
                    let sink = front.sink_of(&message);
                    runtime.run_queued(message, sink)
                };
                runtime.start_next_of(thread, |message| queue.starts(message), start).await
            }
            _ => runtime.resume(thread, front.sink(), front.unknown()).await.map(Some),
        }
    }

    /// Keeps the result, unless it only says that others have the conversation now.
    fn keep(&mut self, result: Result<AgentRunResult, RuntimeError>, ended: Ended) {
        let has_no_news = ended.is_busy() || ended == Ended::Nothing;
        if !(has_no_news && matches!(self.result, Some(Ok(_)))) {
            self.result = Some(result);
        }
    }

    async fn report(&mut self) -> Result<Ended, RuntimeError> {
        let run = match self.own.take() {
            Some(id) => self.runtime.store().load_run(&id).await?,
            None => None,
        };
        let Some(run) = run else { return Ok(Ended::Nothing) };
        self.waiting = None;
        let result = Ok(self.front.ended_elsewhere(self.runtime, run).await?);
        let ended = Ended::of(&result);
        self.result = Some(result);
        Ok(ended)
    }

    async fn wait(&mut self, until: Option<u64>) -> Result<Option<SessionFact>, RuntimeError> {
        let until = until.map(|at| Instant::now() + self.runtime.time_until(at));
        let Some(changes) = opened(&mut self.changes) else { return Ok(Some(SessionFact::Closed)) };
        let mut rest = Rest {
            waiting: self.waiting.as_ref(),
            runtime: self.runtime,
            thread: self.thread,
            changes,
            children: &mut self.children,
            until,
            is_pending: self.is_pending,
        };
        tokio::select! {
            biased;
            () = self.attender.interrupted() => Ok(None),
            fact = self.front.wait(&mut rest) => fact.map(Some),
        }
    }

    async fn follow(&mut self) -> Option<SessionFact> {
        let (Some(lease), Some(changes)) = (&self.lease, opened(&mut self.changes)) else {
            return Some(SessionFact::Changed);
        };
        self.front.follows(lease.owner.pid).await;
        // A stopped process is silent but does not die; its lease expires all the same.
        self.owner = Some(OwnerWatch::of(self.owner.take(), lease, self.runtime));
        tokio::select! {
            biased;
            () = self.attender.interrupted() => return None,
            () = changes.next_about(self.thread) => {}
            () = OwnerWatch::ends_or_due(&mut self.owner) => {}
        }
        Some(SessionFact::Changed)
    }

    /// Whether it ever waits for what others commit.
    fn listens(&self) -> bool {
        let manner = self.attender.manner();
        manner.waits || manner.stays || manner.elsewhere != Elsewhere::Leave
    }

    async fn read(&mut self) -> Result<Found, StoreError> {
        let (store, thread) = (self.runtime.store(), self.thread);
        if self.listens() && opened(&mut self.changes).is_none() {
            self.changes = Mutex::new(Some(store.watch()?));
        }
        self.children.borrow_and_update();
        let mut mark = DefaultHasher::new();
        self.lease = store.lease(thread).await?;
        if let Some(lease) = &self.lease {
            (&lease.owner.token, lease.epoch).hash(&mut mark);
            if self.runtime.is_kept_out_by(lease) {
                return Ok(Found { standing: Standing::Elsewhere, mark: Mark(mark.finish()) });
            }
        }
        let run = match &self.own {
            Some(id) => store.load_run(id).await?,
            None => store.latest_run(thread).await?,
        };
        let run = match run {
            Some(run) => Some(run),
            None if self.own.is_some() => {
                let gone = "the conversation was deleted by another process".to_owned();
                self.result = Some(Err(RuntimeError::Store(gone)));
                return Ok(Found { standing: Standing::Gone, mark: Mark::default() });
            }
            None => None,
        };
        if let Some(run) = &run {
            (run.id.as_str(), run.updated_at).hash(&mut mark);
        }
        let standing = match &run {
            Some(run) if run.status == RunStatus::Running => Standing::Interrupted,
            Some(run) if run.status == RunStatus::Waiting => self.waiting(&mut mark).await?,
            _ => self.over(run.as_ref(), &mut mark).await?,
        };
        self.is_pending = !matches!(standing, Standing::Over { queued: false, until: None, .. });
        Ok(Found { standing, mark: Mark(mark.finish()) })
    }

    /// The state of a run that waits.
    async fn waiting(&self, mark: &mut DefaultHasher) -> Result<Standing, StoreError> {
        let (store, thread) = (self.runtime.store(), self.thread);
        let manner = self.attender.manner();
        let is_answered = store.has_answers(thread).await?;
        if !is_answered && !manner.waits {
            return Ok(Standing::Waiting { until: None });
        }
        let open = self.runtime.waiting(thread).await?;
        let ids = ids_of(&open);
        (&ids, self.moves).hash(mark);
        if is_answered {
            let status = Some(SuspensionStatus::Decided);
            let filter =
                SuspensionFilter { thread: Some(thread.clone()), status, ..SuspensionFilter::default() };
            for decided in store.suspensions(filter).await? {
                decided.decision.map(|decision| decision.decision_id).hash(mark);
            }
            return Ok(Standing::Answered);
        }
        let until = open.iter().filter_map(|question| question.ticket.suspension.expires_at).min();
        let is_due = until.is_some_and(|at| self.runtime.time_until(at).is_zero());
        is_due.hash(mark);
        let known = self.waiting.as_ref().map(|result| ids_of(&result.waiting)).unwrap_or_default();
        let is_moved = self.own.is_some() && ids != known;
        // A process that died may have driven a subagent that the run waits for.
        let is_left =
            self.lease.as_ref().is_some_and(|lease| lease.owner.token != self.runtime.owner().token);
        Ok(if is_due || is_moved || is_left { Standing::Answered } else { Standing::Waiting { until } })
    }

    /// The state of a conversation without an unfinished run.
    async fn over(&self, run: Option<&RunRecord>, mark: &mut DefaultHasher) -> Result<Standing, StoreError> {
        let manner = self.attender.manner();
        let ended_well =
            run.and_then(|run| run.termination.as_ref()).is_none_or(TerminationReason::went_well);
        let queue = match manner.queue {
            Queue::Nothing => Vec::new(),
            Queue::Written | Queue::Messages | Queue::All => self.runtime.queued(self.thread).await?,
        };
        let starts = |message: &&QueuedMessage| message.failed.is_none() && manner.queue.starts(message);
        let is_due = |message: &&QueuedMessage| self.runtime.time_until(message.available_at).is_zero();
        let (due, later): (Vec<_>, Vec<_>) = queue.iter().filter(starts).partition(is_due);
        due.first().map(|message| message.id).hash(mark);
        let until = later.iter().map(|message| message.available_at).min();
        Ok(Standing::Over { ended_well, queued: !due.is_empty(), until })
    }
}

impl Queue {
    fn starts(self, message: &QueuedMessage) -> bool {
        match self {
            Queue::Nothing => false,
            Queue::Written => !message.reports_task(),
            Queue::Messages => !message.reports_command(),
            Queue::All => true,
        }
    }
}

fn opened(changes: &mut Mutex<Option<Box<dyn ChangeFeed>>>) -> Option<&mut (dyn ChangeFeed + 'static)> {
    changes.get_mut().unwrap_or_else(PoisonError::into_inner).as_deref_mut()
}

fn ids_of(questions: &[SuspensionRecord]) -> Vec<SuspensionId> {
    let mut ids: Vec<SuspensionId> = questions.iter().map(|question| question.id.clone()).collect();
    ids.sort_unstable();
    ids
}
