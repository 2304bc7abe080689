//! Keeps the conversation in the terminal in sync with the store, whichever process drives it.
//!
//! All terminals that show a conversation are equal: a process has the right to write to it only while a run
//! is active. An attender does what is to be done in it ([`super::attend`]). This reads what other processes commit, when
//! the change feed of the store reports a change, and sends it to the screen.
//!
//! Nothing here polls. Only while a question is pending, this also reads the store every 30 seconds, because the message of
//! a decision may have been lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use futures::FutureExt as _;
use tokio::sync::Notify;

use crate::commands::when;
use crate::compose::images;
use crate::contract::command::CommandRecord;
use crate::contract::content::ContentBlock;
use crate::contract::event::AgentEvent;
use crate::contract::event_sink::EventSink;
use crate::contract::ids::ThreadId;
use crate::contract::judgement::Profile;
use crate::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use crate::contract::message::Message;
use crate::contract::path_policy::PathPolicies as _;
use crate::contract::record::{FailedTry, QueuedMessage};
use crate::contract::spec::AgentSpec;
use crate::contract::storage::{ChangeKind, MessageSelection, StoreChange, StoreError, ThreadView};
use crate::program::app_context::AppContext;
use crate::runtime::{AgentRuntime, RuntimeError};
use crate::terminal::attend::Attended;
use crate::terminal::host::{Events, with_open_results};
use crate::tui::host::{HostEvent, QueuedRow, ThreadOwner, ThreadSync, UserInput};

/// The maximum changes combined into one read of the store.
const BULK: usize = 64;
/// A position after every message.
const NOTHING: u64 = i64::MAX as u64;

#[derive(Clone)]
pub(crate) struct ThreadFollower {
    pub(super) app: Arc<AppContext>,
    pub(super) events: Events,
    shown: Arc<FollowCell>,
}

#[derive(Default)]
struct FollowCell {
    state: Mutex<FollowState>,
    /// Signals a reason to read the store.
    request_read: Notify,
    /// Set once the sandbox is made ready for commands.
    readied: OnceLock<()>,
}

#[derive(Default)]
pub(super) struct FollowState {
    pub(super) thread: Option<ThreadId>,
    /// The last message that was sent to the terminal.
    pub(super) seen: u64,
    /// What is attended: the conversation that is shown, and others until nothing is left to do in them.
    pub(super) attended: HashMap<ThreadId, Attended>,
    /// Counts the events that make an earlier read outdated.
    pub(super) moves: u64,
    /// A question waits, or something is queued: what moves it may come from another process.
    pub(super) waits: bool,
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
            self.viewer.run_started(&self.thread);
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
        let may_run = matches!(event, AgentEvent::ToolCallStart { .. });
        self.viewer.send(HostEvent::Agent(self.thread.clone(), event));
        if may_run {
            self.viewer.ready_sandbox();
        }
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

    /// Looks through the folders that commands see, the first time that something may run: while the model writes a call, or
    /// while a conversation is read. A first command would wait for it; a first request does not, and a terminal in which
    /// nothing runs never needs it.
    pub(super) fn ready_sandbox(&self) {
        let Some(sandbox) = self.app.sandbox.clone().filter(|_| self.shown.readied.set(()).is_ok()) else {
            return;
        };
        let app = Arc::clone(&self.app);
        tokio::task::spawn_blocking(move || {
            let root = &app.foundation.workspace.root;
            if sandbox.problem(Profile::Workspace, false, root).is_none() {
                let rules = app.permission.policy(&AgentSpec::new(""));
                sandbox.prepare(root, rules.as_ref(), app.permission.known_files());
            }
        });
    }

    pub(super) fn send(&self, event: HostEvent) {
        // When the program ends, the terminal is gone and nobody is left to receive the event.
        let _ = self.events.send(event);
    }

    pub(super) fn state<T>(&self, of: impl FnOnce(&mut FollowState) -> T) -> T {
        of(&mut self.shown.state.lock().expect("no panic while the state is held"))
    }

    pub(crate) fn sink(&self, thread: &ThreadId) -> Arc<ThreadSink> {
        self.sink_that_begins(thread, None)
    }

    pub(super) fn sink_that_begins(&self, thread: &ThreadId, row: Option<QueuedRow>) -> Arc<ThreadSink> {
        Arc::new(ThreadSink { thread: thread.clone(), viewer: self.clone(), begins: Mutex::new(row) })
    }

    /// Requests a read of the store, which may contain something new.
    pub(crate) fn request_read(&self) {
        self.shown.request_read.notify_one();
    }

    /// Hands the conversation over to another follower, with what was shown so far.
    pub(crate) fn transfer_to(&self, successor: &ThreadFollower) {
        let (thread, seen) = self.state(|state| {
            state.successor = Some(successor.clone());
            (state.thread.take(), state.seen)
        });
        if let Some(thread) = thread {
            self.release(&thread);
            successor.show(&thread, seen, false);
        }
    }

    pub(super) fn successor(&self) -> Option<ThreadFollower> {
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
    pub(crate) fn resume_tasks(&self, thread: &ThreadId) {
        let (app, thread) = (Arc::clone(&self.app), thread.clone());
        tokio::spawn(async move {
            if let Err(error) = app.runtime.supervise_tasks(&thread).await {
                tracing::error!(%thread, %error, "background runs cannot resume");
            }
        });
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

    pub(super) async fn mark_all_reported(&self, thread: &ThreadId) {
        if let Ok(count) = self.app.store.message_count(thread).await {
            self.mark_reported_up_to(thread, count);
        }
    }

    pub(super) fn mark_reported_up_to(&self, thread: &ThreadId, count: u64) {
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
        let mut changes = match self.app.store.watch() {
            Ok(changes) => Some(changes),
            Err(error) => {
                tracing::warn!(%error, "changes by other processes show only when a conversation is opened");
                None
            }
        };
        let mut children = self.app.runtime.watch_children();
        loop {
            tokio::select! {
                Ok(()) = children.changed() => {
                    // The change feed does not report this process's own changes to it.
                    self.send(HostEvent::InboxChanged);
                }
                change = async {
                    match &mut changes {
                        Some(changes) if self.state(|state| state.waits) => changes.next_or_check().await,
                        Some(changes) => changes.next().await,
                        None => std::future::pending().await,
                    }
                } => {
                    let mut concerns = self.concerns(&change);
                    for _ in 0..BULK {
                        let more = changes.as_mut().and_then(|changes| changes.next().now_or_never());
                        let Some(change) = more else { break };
                        concerns |= self.concerns(&change);
                    }
                    if !concerns {
                        continue;
                    }
                }
                () = self.shown.request_read.notified() => {}
            }
            self.read().await;
        }
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
            let is_driving = state.drives(&thread);
            Some(ReadMark { is_driving, thread, seen: state.seen, moves: state.moves })
        })
    }

    /// Sends the terminal what is new.
    async fn read(&self) {
        let Some(mark) = self.mark() else { return };
        // This process's own activity is reported by its events.
        let after = if mark.is_driving { NOTHING } else { mark.seen };
        let thread_view =
            match self.app.store.thread_view_at(&mark.thread, MessageSelection::Behind(after)).await {
                Ok(Some(thread_view)) => thread_view,
                // The program ends.
                Ok(None) | Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::error!(thread = %mark.thread, %error, "the conversation cannot be read");
                    return;
                }
            };
        let waits =
            !thread_view.waiting.is_empty() || thread_view.decided > 0 || !thread_view.queued.is_empty();
        self.state(|state| state.waits = waits);
        let driver = if mark.is_driving { ThreadOwner::Own } else { self.driver_of(&thread_view) };
        self.resume_changed_tasks(&mark, &thread_view, driver);
        self.send_read(&mark, &thread_view, driver).await;
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
            self.resume_tasks(&mark.thread);
        }
    }

    /// Sends what a read found. Returns `false` if the read is already outdated; another one will follow.
    async fn send_read(&self, mark: &ReadMark, thread_view: &ThreadView, driver: ThreadOwner) -> bool {
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
            match self.app.store.thread_view_at(thread, MessageSelection::Behind(mark.seen)).await {
                Ok(Some(thread_view)) => {
                    let mark = ReadMark { is_driving: false, ..mark };
                    if self.send_read(&mark, &thread_view, ThreadOwner::Own).await {
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
