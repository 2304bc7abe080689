//! Keeps the conversation in the terminal in sync with the store, whichever process drives it.
//!
//! All terminals that show a conversation are equal: a process has the right to write to it only while a run
//! is active. While another process drives, this one follows: it reads what that process commits, when the
//! change feed of the store reports a change. It resumes the run if the other process dies or stops renewing
//! its lease; if no process drives, it applies decisions that were stored elsewhere, and starts queued
//! messages. If several try, the lease picks one; the others follow.
//!
//! Nothing here polls. While no process drives, this waits only for the change feed; only while a question is
//! pending, it also reads the store every 30 seconds, because the message of a decision may have been lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use tokio::sync::Notify;

use crate::commands::when;
use crate::compose::images;
use crate::config::Wake;
use crate::contract::command::CommandRecord;
use crate::contract::content::ContentBlock;
use crate::contract::event::AgentEvent;
use crate::contract::event_sink::EventSink;
use crate::contract::ids::{RunId, ThreadId};
use crate::contract::lifecycle::{RunStatus, TerminationReason, ToolCallOutcome};
use crate::contract::message::Message;
use crate::contract::record::{FailedTry, QueuedMessage};
use crate::program::app_context::AppContext;
use crate::runtime::{AgentRunResult, AgentRuntime, OwnerWatch, RuntimeError, UnknownPolicy};
use crate::session::Ended;
use crate::store::{ChangeKind, StoreChange, StoreError, ThreadView};
use crate::terminal::host::{Events, with_open_results};
use crate::tui::host::{HostEvent, QueuedRow, ThreadOwner, ThreadSync, UserInput};

/// The maximum changes combined into one read of the store.
const BULK: usize = 64;
/// How long to wait for a run that has just ended to be cleaned up.
const REST: Duration = Duration::from_millis(100);
/// A position after every message.
const NOTHING: u64 = i64::MAX as u64;

#[derive(Clone)]
pub(crate) struct ThreadFollower {
    app: Arc<AppContext>,
    events: Events,
    shown: Arc<FollowCell>,
}

#[derive(Default)]
struct FollowCell {
    state: Mutex<FollowState>,
    /// Signals a reason to read the store.
    request_read: Notify,
}

#[derive(Default)]
struct FollowState {
    thread: Option<ThreadId>,
    /// The last message that was sent to the terminal.
    seen: u64,
    /// How many times this process drives each conversation, or is about to.
    driving: HashMap<ThreadId, usize>,
    /// Counts the events that make an earlier read outdated.
    moves: u64,
    /// The last attempt; it is not repeated while nothing has changed.
    tried: Option<Cause>,
    /// When the next message of the queue becomes due.
    due: Option<u64>,
    /// A question waits, or something is queued: what moves it may come from another process.
    waits: bool,
    /// The background runs as they were when last resumed.
    supervised: Vec<(ThreadId, u64, Option<u64>)>,
    /// The follower that has replaced this one.
    successor: Option<ThreadFollower>,
}

/// The state that a read was made for.
struct ReadMark {
    thread: ThreadId,
    seen: u64,
    moves: u64,
    is_driving: bool,
}

/// A reason to become active.
#[derive(Clone, Debug, PartialEq)]
struct Cause {
    run: Option<(RunId, u64)>,
    decided: usize,
    owner: Option<(String, u64)>,
    queued: Option<u64>,
}

/// Sends the events of one conversation to the terminal.
pub(crate) struct ThreadSink {
    thread: ThreadId,
    viewer: ThreadFollower,
    /// The queued message that the next run starts with.
    begins: Mutex<Option<QueuedRow>>,
}

#[async_trait]
impl EventSink for ThreadSink {
    async fn emit(&self, mut event: AgentEvent) {
        if let AgentEvent::ToolCallDone { result, .. } = &mut event {
            images::name(&self.viewer.app, &mut result.images).await;
        }
        if matches!(event, AgentEvent::RunStart { .. }) {
            let row = self.begins.lock().expect("no panic while it is held").take();
            if let Some(row) = row {
                self.viewer.send(HostEvent::Began(self.thread.clone(), row));
            }
        }
        let is_inbox = match &event {
            AgentEvent::ToolCallDone { outcome, .. } => *outcome == ToolCallOutcome::Suspended,
            AgentEvent::RunFinish { .. } => true,
            _ => false,
        };
        self.viewer.send(HostEvent::Agent(self.thread.clone(), event));
        if is_inbox {
            // The change feed does not report this process's own changes to it.
            self.viewer.send(HostEvent::InboxChanged);
        }
    }

    async fn acquired(&self) {
        self.viewer.catch_up(&self.thread).await;
    }
}

impl ThreadFollower {
    pub(crate) fn new(app: Arc<AppContext>, events: Events) -> Self {
        Self { app, events, shown: Arc::default() }
    }

    fn send(&self, event: HostEvent) {
        // When the program ends, the terminal is gone and nobody is left to receive the event.
        let _ = self.events.send(event);
    }

    fn state<T>(&self, of: impl FnOnce(&mut FollowState) -> T) -> T {
        of(&mut self.shown.state.lock().expect("no panic while the state is held"))
    }

    pub(crate) fn sink(&self, thread: &ThreadId) -> Arc<ThreadSink> {
        self.sink_that_begins(thread, None)
    }

    fn sink_that_begins(&self, thread: &ThreadId, row: Option<QueuedRow>) -> Arc<ThreadSink> {
        Arc::new(ThreadSink { thread: thread.clone(), viewer: self.clone(), begins: Mutex::new(row) })
    }

    /// Follows another conversation, which the terminal shows up to this message.
    pub(crate) fn show(&self, thread: &ThreadId, seen: u64) {
        self.state(|state| {
            state.thread = Some(thread.clone());
            state.seen = seen;
            state.moves += 1;
            state.tried = None;
            state.due = None;
            state.waits = false;
        });
        self.shown.request_read.notify_one();
    }

    /// Requests a read of the store, which may contain something new.
    pub(crate) fn request_read(&self) {
        self.shown.request_read.notify_one();
    }

    /// Waits briefly until this process drives nothing. Returns `false` if it still does.
    pub(crate) async fn rests(&self) -> bool {
        let rest = async {
            while !self.state(|state| state.driving.is_empty()) {
                tokio::time::sleep(REST / 20).await;
            }
        };
        tokio::time::timeout(REST, rest).await.is_ok()
    }

    /// Hands the conversation over to another follower, with what was shown so far.
    pub(crate) fn transfer_to(&self, successor: &ThreadFollower) {
        let (thread, seen) = self.state(|state| {
            state.successor = Some(successor.clone());
            (state.thread.take(), state.seen)
        });
        if let Some(thread) = thread {
            successor.show(&thread, seen);
        }
    }

    fn successor(&self) -> Option<ThreadFollower> {
        self.state(|state| state.successor.clone())
    }

    /// Returns whether the terminal shows this conversation.
    pub(crate) fn shows(&self, thread: &ThreadId) -> bool {
        self.state(|state| state.thread.as_ref() == Some(thread))
    }

    /// Returns whether the terminal shows this conversation, or one above it.
    pub(crate) fn shows_above(&self, thread: &ThreadId) -> bool {
        self.state(|state| state.thread.as_ref().is_some_and(|shown| thread.is_at_or_below(shown)))
    }

    /// Resumes the background runs of a conversation.
    pub(crate) fn mind(&self, thread: &ThreadId) {
        let (app, thread) = (Arc::clone(&self.app), thread.clone());
        tokio::spawn(async move {
            if let Err(error) = app.runtime.supervise_tasks(&thread).await {
                tracing::error!(%thread, %error, "background runs cannot resume");
            }
        });
    }

    pub(crate) fn is_driving(&self, thread: &ThreadId) -> bool {
        self.state(|state| state.driving.contains_key(thread))
    }

    /// Returns which process drives a conversation, as of a read of the store.
    pub(crate) fn driver_of(&self, thread_view: &ThreadView) -> ThreadOwner {
        if self.app.runtime.is_active(&thread_view.thread.id) {
            return ThreadOwner::Own;
        }
        match &thread_view.lease {
            Some(lease) if self.app.runtime.is_kept_out_by(lease) => ThreadOwner::Other(lease.owner.pid),
            Some(_) | None => ThreadOwner::Nobody,
        }
    }

    /// Resumes a conversation's run in the background, and then starts the queued messages. Does nothing if
    /// the run only waits, or if another process drives the conversation.
    pub(crate) fn wake(&self, thread: &ThreadId) {
        if let Some(successor) = self.successor() {
            return successor.wake(thread);
        }
        let (viewer, own, sink) = (self.clone(), thread.clone(), self.sink(thread));
        self.drive(thread, async move {
            // A call that waits may be one of a server that is just being started.
            viewer.app.mcp.settled().await;
            viewer.app.runtime.resume(&own, sink, UnknownPolicy::Ask).await.map(Some)
        });
    }

    /// Starts queued messages, unless this process drives the conversation: it then starts them anyway.
    pub(crate) fn begin_queued(&self, thread: &ThreadId) {
        if let Some(successor) = self.successor() {
            return successor.begin_queued(thread);
        }
        if self.is_driving(thread) {
            return;
        }
        let viewer = self.clone();
        let own = thread.clone();
        self.drive(thread, async move {
            match viewer.begin_next(&own).await {
                Some(result) => result.map(Some),
                None => Err(RuntimeError::NothingToResume { thread_id: own }),
            }
        });
    }

    /// Drives a conversation in the background: does this work, and then the queued messages as long as all
    /// ends well. Work without a result, such as a cancellation, starts nothing.
    pub(crate) fn drive(
        &self,
        thread: &ThreadId,
        work: impl Future<Output = Result<Option<AgentRunResult>, RuntimeError>> + Send + 'static,
    ) {
        self.state(|state| {
            *state.driving.entry(thread.clone()).or_default() += 1;
            state.moves += 1;
        });
        let (viewer, thread) = (self.clone(), thread.clone());
        tokio::spawn(async move {
            let mut result = work.await;
            loop {
                let goes_on = viewer.ended(&thread, result).await;
                if !goes_on {
                    break;
                }
                match viewer.begin_next(&thread).await {
                    Some(next) => result = next.map(Some),
                    None => break,
                }
            }
            viewer.state(|state| {
                if let Some(count) = state.driving.get_mut(&thread) {
                    *count -= 1;
                    if *count == 0 {
                        state.driving.remove(&thread);
                    }
                }
                state.moves += 1;
            });
            viewer.request_read();
        });
    }

    /// Queues a message that could not start.
    pub(crate) async fn defer(
        &self,
        thread: &ThreadId,
        messages: Vec<Message>,
        input: UserInput,
    ) -> Result<(), RuntimeError> {
        let queued = self.app.runtime.enqueue(thread, messages).await?;
        self.send(HostEvent::Deferred(thread.clone(), row_of(&queued), input));
        Ok(())
    }

    /// Starts the first message of the queue; returns `None` if the queue is empty.
    async fn begin_next(&self, thread: &ThreadId) -> Option<Result<AgentRunResult, RuntimeError>> {
        let runtime = &self.app.runtime;
        let start = |first: QueuedMessage| {
            let sink = self.sink_that_begins(thread, Some(row_of(&first)));
            runtime.run_queued(first, sink)
        };
        let wakes = self.app.foundation.loaded.settings.background.wake == Wake::Idle;
        let may_start = |message: &QueuedMessage| wakes || !message.reports_task();
        runtime.start_next_of(thread, may_start, start).await.transpose()
    }

    /// Handles the result of driving. Returns whether queued messages may start.
    async fn ended(&self, thread: &ThreadId, result: Result<Option<AgentRunResult>, RuntimeError>) -> bool {
        match result {
            Ok(None) => {
                self.mark_all_reported(thread).await;
                false
            }
            Ok(Some(result)) => {
                self.mark_reported_up_to(thread, result.messages);
                result.termination.went_well()
            }
            Err(error) => {
                match Ended::of_error(&error) {
                    // Another process was faster: this one follows, and tries again if that one does nothing.
                    Ended::Elsewhere => self.state(|state| state.tried = None),
                    // Nothing is left to do.
                    Ended::Nothing | Ended::NotFree | Ended::NotQueued => {}
                    // Events emitted in the meantime may not have been stored.
                    Ended::Fenced => self.send(HostEvent::Lost(thread.clone())),
                    _ => {
                        self.mark_all_reported(thread).await;
                        self.report_failure(thread, &error);
                    }
                }
                false
            }
        }
    }

    async fn mark_all_reported(&self, thread: &ThreadId) {
        if let Ok(count) = self.app.store.message_count(thread).await {
            self.mark_reported_up_to(thread, count);
        }
    }

    fn mark_reported_up_to(&self, thread: &ThreadId, count: u64) {
        self.state(|state| {
            if state.thread.as_ref() == Some(thread) {
                state.seen = count;
                state.moves += 1;
            }
        });
    }

    /// Reports a run that could not be driven in the form of a failed run.
    pub(crate) fn report_failure(&self, thread: &ThreadId, error: &RuntimeError) {
        let message = error.to_string();
        let error = AgentEvent::Error { message: message.clone(), code: Some("runtime".into()) };
        let finish = AgentEvent::RunFinish {
            thread_id: thread.to_string(),
            run_id: String::new(),
            result: None,
            termination: TerminationReason::Error(message),
        };
        self.send(HostEvent::Agent(thread.clone(), error));
        self.send(HostEvent::Agent(thread.clone(), finish));
    }

    /// Runs until the program ends.
    pub(crate) async fn watch(self) {
        let mut bell = match self.app.store.watch() {
            Ok(bell) => Some(bell),
            Err(error) => {
                tracing::warn!(%error, "changes by other processes show only when a conversation is opened");
                None
            }
        };
        let mut guard: Option<OwnerWatch> = None;
        let mut children = self.app.runtime.watch_children();
        loop {
            tokio::select! {
                Ok(()) = children.changed() => {
                    // The change feed does not report this process's own changes to it.
                    self.send(HostEvent::InboxChanged);
                }
                change = async {
                    match &mut bell {
                        Some(bell) if self.state(|state| state.waits) => bell.next_or_check().await,
                        Some(bell) => bell.next().await,
                        None => std::future::pending().await,
                    }
                } => {
                    let mut concerns = self.concerns(&change);
                    for _ in 0..BULK {
                        let more = bell.as_mut().and_then(|bell| bell.next().now_or_never());
                        let Some(change) = more else { break };
                        concerns |= self.concerns(&change);
                    }
                    if !concerns {
                        continue;
                    }
                }
                () = self.shown.request_read.notified() => {}
                () = OwnerWatch::ends_or_due(&mut guard) => {}
                () = self.queue_is_due() => {}
            }
            guard = self.look(guard).await;
        }
    }

    /// Waits until a queued message becomes due; forever if none is scheduled.
    async fn queue_is_due(&self) {
        let Some(due) = self.state(|state| state.due) else { return std::future::pending().await };
        let left = due.saturating_sub(self.app.clock.now_ms());
        tokio::time::sleep(Duration::from_millis(left.max(1))).await;
    }

    fn concerns(&self, change: &StoreChange) -> bool {
        if change.kind == ChangeKind::Grant {
            return false;
        }
        self.state(|state| state.thread.as_ref().is_some_and(|thread| change.concerns(thread)))
    }

    fn mark(&self) -> Option<ReadMark> {
        self.state(|state| {
            let thread = state.thread.clone()?;
            let is_driving = state.driving.contains_key(&thread);
            Some(ReadMark { is_driving, thread, seen: state.seen, moves: state.moves })
        })
    }

    /// Sends the terminal what is new, and acts on it. Returns what to wait for besides the change feed.
    async fn look(&self, guard: Option<OwnerWatch>) -> Option<OwnerWatch> {
        let mark = self.mark()?;
        // This process's own activity is reported by its events.
        let after = if mark.is_driving { NOTHING } else { mark.seen };
        let thread_view = match self.app.store.thread_view(&mark.thread, Some(after)).await {
            Ok(thread_view) => thread_view?,
            // The program ends.
            Err(StoreError::Closed) => return None,
            Err(error) => {
                tracing::error!(thread = %mark.thread, %error, "the conversation cannot be read");
                return guard;
            }
        };
        let now = self.app.clock.now_ms();
        let scheduled = thread_view.queued.iter().filter(|message| message.failed.is_none());
        let due = scheduled.map(|message| message.available_at).filter(|at| *at > now).min();
        let waits =
            !thread_view.waiting.is_empty() || thread_view.decided > 0 || !thread_view.queued.is_empty();
        self.state(|state| (state.due, state.waits) = (due, waits));
        let driver = if mark.is_driving { ThreadOwner::Own } else { self.driver_of(&thread_view) };
        self.resume_changed_tasks(&mark, &thread_view, driver);
        if !self.tell(&mark, &thread_view, driver).await || mark.is_driving {
            return None;
        }
        if let (ThreadOwner::Other(_), Some(lease)) = (driver, &thread_view.lease) {
            return Some(OwnerWatch::of(guard, lease, &self.app.runtime));
        }
        self.act(&mark, &thread_view);
        None
    }

    /// Resumes the background runs if something about them changed.
    fn resume_changed_tasks(&self, mark: &ReadMark, thread_view: &ThreadView, driver: ThreadOwner) {
        let tasks: Vec<_> = thread_view
            .children
            .iter()
            .filter(|task| task.child.background)
            .map(|task| {
                (task.child.thread_id.clone(), task.waiting, task.run.as_ref().map(|run| run.updated_at))
            })
            .collect();
        let is_new = self.state(|state| {
            let is_new = state.supervised != tasks;
            state.supervised.clone_from(&tasks);
            is_new
        });
        if is_new && !tasks.is_empty() && !matches!(driver, ThreadOwner::Other(_)) {
            self.mind(&mark.thread);
        }
    }

    /// Sends what a read found. Returns `false` if the read is already outdated; another one will follow.
    async fn tell(&self, mark: &ReadMark, thread_view: &ThreadView, driver: ThreadOwner) -> bool {
        let mut sync = sync_of(&self.app.runtime, thread_view, driver, mark.is_driving);
        for stored in &mut sync.results {
            images::name(&self.app, &mut stored.message.content).await;
        }
        self.state(|state| {
            if state.moves != mark.moves || state.thread.as_ref() != Some(&mark.thread) {
                return false;
            }
            if !mark.is_driving {
                state.seen = thread_view.messages.last().map_or(mark.seen, |stored| stored.seq);
            }
            self.send(HostEvent::Synced(Box::new(sync)));
            true
        })
    }

    /// Sends what others wrote before this process's own events: this process has just received the right to
    /// write.
    async fn catch_up(&self, thread: &ThreadId) {
        while let Some(mark) = self.mark().filter(|mark| mark.thread == *thread) {
            match self.app.store.thread_view(thread, Some(mark.seen)).await {
                Ok(Some(thread_view)) => {
                    if self
                        .tell(&ReadMark { is_driving: false, ..mark }, &thread_view, ThreadOwner::Own)
                        .await
                    {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%thread, %error, "the conversation cannot be read");
                    return;
                }
            }
        }
    }

    /// Acts while there is no driver: resumes a run that a dead process left, applies decisions, starts
    /// queued messages.
    fn act(&self, mark: &ReadMark, thread_view: &ThreadView) {
        let now = self.app.clock.now_ms();
        let next = thread_view.queued.iter().find(|message| message.begins(now));
        let cause = Cause {
            run: thread_view.run.as_ref().map(|run| (run.id.clone(), run.updated_at)),
            decided: thread_view.decided,
            owner: thread_view.lease.as_ref().map(|lease| (lease.owner.token.clone(), lease.epoch)),
            queued: next.map(|message| message.id),
        };
        let is_over = thread_view.run.as_ref().is_none_or(|run| run.status == RunStatus::Done);
        let last = thread_view.run.as_ref().and_then(|run| run.termination.as_ref());
        let ended_well = last.is_none_or(TerminationReason::went_well);
        let wakes = !is_over && (thread_view.lease.is_some() || thread_view.decided > 0);
        let begins = is_over && ended_well && next.is_some();
        if !wakes && !begins {
            return;
        }
        let is_new = self.state(|state| {
            let is_new = state.tried.as_ref() != Some(&cause);
            state.tried = Some(cause);
            is_new
        });
        if !is_new {
            return;
        }
        if wakes {
            self.wake(&mark.thread);
        } else {
            self.begin_queued(&mark.thread);
        }
    }
}

/// A queued message as the terminal shows it.
pub(crate) fn row_of(message: &QueuedMessage) -> QueuedRow {
    let content = message.messages.iter().flat_map(|message| &message.content);
    let images = content.filter_map(ContentBlock::as_stored_image).cloned().collect();
    let texts: Vec<String> =
        message.messages.iter().map(Message::written).filter(|text| !text.is_empty()).collect();
    let note = match &message.failed {
        Some(FailedTry { attempts, max_attempts, error }) => {
            format!(
                "attempt {attempts} of {max_attempts} failed, retry at {}: {error}",
                when(message.available_at)
            )
        }
        None if message.available_at > message.created_at => {
            format!("not before {}", when(message.available_at))
        }
        None => String::new(),
    };
    QueuedRow {
        id: message.id,
        text: texts.join("\n\n"),
        shown: message.shown(),
        images,
        note,
        steers: message.steers(),
        is_report: message.reports_task(),
    }
}

/// The queued messages that users wrote.
pub(crate) fn rows_of(queued: &[QueuedMessage]) -> Vec<QueuedRow> {
    queued.iter().filter(|message| !message.reports_task()).map(row_of).collect()
}

/// Returns the commands that are really running: one whose process died is not.
pub(crate) fn running_of(runtime: &AgentRuntime, commands: &[CommandRecord]) -> Vec<CommandRecord> {
    let commands = commands.iter().cloned().map(|record| runtime.as_it_stands(record));
    commands.filter(|record| record.end.is_none()).collect()
}

fn sync_of(
    runtime: &AgentRuntime,
    thread_view: &ThreadView,
    driver: ThreadOwner,
    is_part: bool,
) -> ThreadSync {
    let with_results = with_open_results(Vec::new(), thread_view.run.as_ref());
    ThreadSync {
        thread: thread_view.thread.clone(),
        driver,
        is_part,
        messages: if is_part { Vec::new() } else { thread_view.messages.clone() },
        results: if is_part { Vec::new() } else { with_results },
        run: thread_view.run.clone(),
        waiting: thread_view.waiting.clone(),
        running: thread_view.running.clone(),
        queued: rows_of(&thread_view.queued),
        children: thread_view.children.clone(),
        commands: running_of(runtime, &thread_view.commands),
        summaries: thread_view.summaries.clone(),
    }
}
