//! Attends conversations for the terminal: the one that is shown, whichever process drives it, and others until nothing is
//! left to do in them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;

use crate::config::Wake;
use crate::contract::event_sink::EventSink;
use crate::contract::ids::ThreadId;
use crate::contract::record::QueuedMessage;
use crate::runtime::{AgentRunResult, RunRequest, RuntimeError};
use crate::session::{Attender, Elsewhere, Ended, FrontEnd, Leaving, Manner, Queue, Rest, SessionFact};
use crate::terminal::background;
use crate::terminal::follow::{FollowState, ThreadFollower, row_of};
use crate::tui::host::HostEvent;

/// How long to wait for a run that has just ended to be cleaned up.
const REST: Duration = Duration::from_millis(100);

/// What is done after a requested run has ended in this way.
pub(crate) type AfterRun =
    Box<dyn FnOnce(Ended) -> BoxFuture<'static, Result<(), RuntimeError>> + Send + Sync>;

/// A conversation that is attended.
pub(super) struct Attended {
    attender: Arc<Attender>,
    /// This process drives it, or is about to.
    is_active: bool,
    /// The user interrupted a run that cannot be asked to stop yet.
    stops: bool,
    /// Something was requested or interrupted.
    called: Arc<Notify>,
    /// For each requested run that has not started.
    after: VecDeque<AfterRun>,
}

impl FollowState {
    /// Returns whether this process drives a conversation, or is about to.
    pub(super) fn drives(&self, thread: &ThreadId) -> bool {
        self.attended.get(thread).is_some_and(|attended| attended.is_active)
    }

    fn set_active(&mut self, thread: &ThreadId, is_active: bool) -> bool {
        let Some(attended) = self.attended.get_mut(thread) else { return false };
        let is_new = attended.is_active != is_active;
        attended.is_active = is_active;
        self.moves += u64::from(is_new);
        is_new
    }
}

impl ThreadFollower {
    /// Follows another conversation, which the terminal shows up to this message. `resumes`: it has an unfinished run that
    /// no process drives.
    pub(crate) fn show(&self, thread: &ThreadId, seen: u64, resumes: bool) {
        let before = self.state(|state| {
            let before = state.thread.replace(thread.clone());
            state.seen = seen;
            state.moves += 1;
            state.waits = false;
            before
        });
        if let Some(before) = before.filter(|before| before != thread) {
            self.release(&before);
        }
        let fact = SessionFact::Behaves(self.manner(true));
        self.report(thread, fact, if resumes { Attender::resume } else { Attender::look });
        self.request_read();
    }

    /// Lets a conversation go as soon as nothing is left to do in it.
    pub(super) fn release(&self, thread: &ThreadId) {
        let manner = self.manner(false);
        self.state(|state| {
            if let Some(attended) = state.attended.get(thread) {
                attended.attender.report(SessionFact::Behaves(manner));
            }
        });
    }

    /// Attends no conversation any more. What is driven comes to its rest.
    pub(crate) fn leave(&self) {
        self.state(|state| {
            state.thread = None;
            for attended in state.attended.values() {
                attended.attender.report(SessionFact::Closed);
            }
        });
    }

    /// Waits briefly until this process drives nothing. Returns `false` if it still does.
    pub(crate) async fn rests(&self) -> bool {
        let rest = async {
            while self.state(|state| state.attended.values().any(|attended| attended.is_active)) {
                tokio::time::sleep(REST / 20).await;
            }
        };
        tokio::time::timeout(REST, rest).await.is_ok()
    }

    /// Reads again what this process itself has changed, which no change feed reports to it.
    pub(crate) fn changed(&self) {
        if let Some(thread) = self.state(|state| state.thread.clone()) {
            self.report(&thread, SessionFact::Changed, Attender::look);
        }
        self.request_read();
    }

    /// Resumes a conversation's run in the background if that has an effect, and then starts the queued messages. How the
    /// run of one that is not shown ended is reported.
    pub(crate) fn wake(&self, thread: &ThreadId) {
        self.report(thread, SessionFact::Changed, Attender::resume);
    }

    pub(crate) fn start_queued(&self, thread: &ThreadId) {
        // A run that is active here decides whether they start after it.
        let is_active = self.state(|state| state.drives(thread));
        let fact = if is_active { SessionFact::Changed } else { SessionFact::Continued };
        self.report(thread, fact, Attender::look);
    }

    /// Starts a run. `after` is called when it has ended, or could not start.
    pub(crate) fn start(&self, thread: &ThreadId, request: RunRequest, after: AfterRun) {
        if let Some(successor) = self.successor() {
            return successor.start(thread, request, after);
        }
        self.state(|state| {
            let left = match state.attended.get(thread) {
                Some(known) => known.attender.start(request),
                None => Err(Box::new(request)),
            };
            if let Err(request) = left {
                let manner = self.manner(state.thread.as_ref() == Some(thread));
                self.attend(state, thread, Attender::request(manner, *request));
            }
            state.set_active(thread, true);
            if let Some(attended) = state.attended.get_mut(thread) {
                attended.after.push_back(after);
                attended.called.notify_one();
            }
        });
    }

    /// Asks the active run of a conversation to stop, or ends one that waits.
    pub(crate) fn interrupt(&self, thread: &ThreadId) {
        if self.app.runtime.cancel(thread) {
            return;
        }
        self.state(|state| {
            if let Some(attended) = state.attended.get_mut(thread) {
                attended.stops = attended.is_active;
                attended.called.notify_one();
            }
            state.set_active(thread, true);
        });
        self.report(thread, SessionFact::Interrupted, Attender::look);
    }

    /// Called when a run can be asked to stop.
    pub(super) fn run_started(&self, thread: &ThreadId) {
        let stops = self.state(|state| {
            state.attended.get_mut(thread).is_some_and(|attended| std::mem::take(&mut attended.stops))
        });
        if stops {
            self.app.runtime.cancel(thread);
        }
    }

    /// Reports a fact to the attender of a conversation, or to a new one.
    fn report(&self, thread: &ThreadId, fact: SessionFact, new: fn(Manner) -> Attender) {
        if let Some(successor) = self.successor() {
            return successor.report(thread, fact, new);
        }
        self.state(|state| {
            if state.attended.get(thread).is_some_and(|known| known.attender.report(fact)) {
                return;
            }
            let attender = new(self.manner(state.thread.as_ref() == Some(thread)));
            attender.report(fact);
            self.attend(state, thread, attender);
        });
    }

    fn manner(&self, is_shown: bool) -> Manner {
        let queue = match self.app.foundation.loaded.settings.background.wake {
            Wake::Idle => Queue::All,
            Wake::Never => Queue::Written,
        };
        let elsewhere = if is_shown { Elsewhere::Follow } else { Elsewhere::Leave };
        Manner { waits: is_shown, elsewhere, queue, after_failure: false, stays: is_shown }
    }

    fn attend(&self, state: &mut FollowState, thread: &ThreadId, attender: Attender) {
        let (attender, called) = (Arc::new(attender), Arc::<Notify>::default());
        let reports = state.thread.as_ref() != Some(thread);
        let attended = Attended {
            attender: Arc::clone(&attender),
            is_active: attender.is_driving(),
            stops: false,
            called: Arc::clone(&called),
            after: VecDeque::new(),
        };
        state.moves += 1;
        state.attended.insert(thread.clone(), attended);
        let attending = Attending { viewer: self.clone(), thread: thread.clone(), attender };
        tokio::spawn(async move {
            let Attending { viewer, thread, attender } = &attending;
            let mut front = TerminalSession { viewer, thread, called, after: None, reports, follows: false };
            let end = Box::pin(attender.attend(&viewer.app.runtime, thread, &mut front)).await;
            // A conversation whose run was deleted, such as by a rewind, is still attended.
            if end.why == Leaving::Gone && viewer.shows(thread) {
                viewer.report(thread, SessionFact::Changed, Attender::look);
            }
        });
    }
}

/// Removes what is attended when it is left, also by a panic.
struct Attending {
    viewer: ThreadFollower,
    thread: ThreadId,
    attender: Arc<Attender>,
}

impl Drop for Attending {
    fn drop(&mut self) {
        let Self { viewer, thread, attender } = self;
        viewer.state(|state| {
            let is_it = |attended: &Attended| Arc::ptr_eq(&attended.attender, attender);
            if state.attended.get(thread).is_some_and(is_it) {
                state.attended.remove(thread);
            }
            state.moves += 1;
        });
        viewer.request_read();
    }
}

/// The session of a conversation that the terminal attends.
struct TerminalSession<'a> {
    viewer: &'a ThreadFollower,
    thread: &'a ThreadId,
    called: Arc<Notify>,
    /// For the requested run that is driven.
    after: Option<AfterRun>,
    /// The end of the next run is reported, because it is not on the screen.
    reports: bool,
    /// Another process drives the conversation.
    follows: bool,
}

impl TerminalSession<'_> {
    fn attended<T>(&self, of: impl FnOnce(&mut Attended) -> T) -> Option<T> {
        self.viewer.state(|state| state.attended.get_mut(self.thread).map(of))
    }

    /// Nothing is driven here. The screen reads what the events did not report.
    fn rest(&mut self, follows: bool) {
        let is_new = self.viewer.state(|state| {
            let Some(attended) = state.attended.get_mut(self.thread) else { return false };
            attended.stops = false;
            let is_active = !attended.after.is_empty();
            state.set_active(self.thread, is_active)
        });
        let was_followed = std::mem::replace(&mut self.follows, follows) && !follows;
        if is_new || was_followed {
            self.viewer.request_read();
        }
    }

    async fn failed(&self, error: &RuntimeError) {
        let (viewer, thread) = (self.viewer, self.thread);
        match Ended::of_error(error) {
            // Another process was faster, or nothing is left to do.
            Ended::Elsewhere | Ended::Nothing | Ended::NotFree | Ended::NotQueued => {}
            // Events emitted in the meantime may not have been stored.
            Ended::Fenced => viewer.send(HostEvent::Lost(thread.clone())),
            _ => {
                viewer.mark_all_reported(thread).await;
                viewer.report_failure(thread, error);
            }
        }
    }
}

impl FrontEnd for TerminalSession<'_> {
    fn sink(&self) -> Arc<dyn EventSink> {
        self.viewer.sink(self.thread)
    }

    fn sink_of(&self, message: &QueuedMessage) -> Arc<dyn EventSink> {
        self.viewer.sink_that_begins(self.thread, Some(row_of(message)))
    }

    async fn prepare(&mut self, request: Option<&RunRequest>) {
        self.viewer.state(|state| state.set_active(self.thread, true));
        if request.is_some() {
            self.after = self.attended(|attended| attended.after.pop_front()).flatten();
        }
    }

    async fn before_resume(&mut self) -> bool {
        self.viewer.state(|state| state.set_active(self.thread, true));
        let is_called = || self.attended(|attended| attended.stops || !attended.after.is_empty());
        let called = async {
            while is_called() == Some(false) {
                self.called.notified().await;
            }
        };
        // A call that waits may be one of a server that is just being started.
        tokio::select! {
            biased;
            () = called => false,
            () = self.viewer.app.mcp.settled() => true,
        }
    }

    async fn ended(
        &mut self,
        result: Option<&Result<AgentRunResult, RuntimeError>>,
    ) -> Result<(), RuntimeError> {
        let (viewer, thread) = (self.viewer, self.thread);
        self.attended(|attended| attended.stops = false);
        let Some(result) = result else { return Ok(()) };
        if let Some(after) = self.after.take()
            && let Err(error) = after(Ended::of(result)).await
        {
            self.failed(&error).await;
        }
        if std::mem::take(&mut self.reports) {
            background::report_end(&viewer.app, &viewer.events, thread, result).await;
        }
        match result {
            Ok(result) => viewer.mark_reported_up_to(thread, result.messages),
            Err(error) => self.failed(error).await,
        }
        Ok(())
    }

    async fn ended_waiting(&mut self, result: Result<(), RuntimeError>) {
        self.attended(|attended| attended.stops = false);
        match result {
            Ok(()) => self.viewer.mark_all_reported(self.thread).await,
            Err(error) => self.failed(&error).await,
        }
    }

    async fn wait(&mut self, rest: &mut Rest<'_>) -> Result<SessionFact, RuntimeError> {
        self.rest(false);
        rest.changed().await;
        Ok(SessionFact::Changed)
    }

    async fn follows(&mut self, _pid: u32) {
        self.rest(true);
    }
}
