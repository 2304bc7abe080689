//! Reads the events of one run for one reader, until the run is done or waits, whichever process drives it.

use std::collections::VecDeque;
use std::sync::Arc;

use aye_core::contract::event::AgentEvent;

use aye_core::contract::ids::{JobId, RunId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::mailbox::MailboxJobStatus;
use aye_core::contract::record::RunRecord;
use aye_core::contract::storage::{ChangeKind, StoreChange};
use aye_encode::replay::replay;
use tokio::sync::broadcast;

use super::error::ApiError;
use super::follow::{Follower, Frame};
use super::hub::Hub;

pub(super) struct RunReader {
    /// The frames that are known already.
    ready: VecDeque<Frame>,
    /// Gives the others; `None` when no more can come.
    follower: Option<Follower>,
    run: Option<RunId>,
    began: bool,
    is_over: bool,
    /// Set for a reader that is about answers: a run that has them to read is not over although it waits.
    answers: Option<(Arc<Hub>, ThreadId)>,
    stop: StopOnLeave,
    /// Set for a run that a queued message starts: it may be dropped instead.
    queued: Option<QueuedRun>,
}

impl RunReader {
    /// Creates a reader of what happens in a conversation from now on. It must be created before the run
    /// starts or is answered, so that the reader misses nothing.
    pub(super) async fn new(hub: &Arc<Hub>, thread: &ThreadId) -> Result<Self, ApiError> {
        let follower = Follower::from_now(Arc::clone(hub), thread.clone()).await?;
        Ok(Self::with(Some(follower)))
    }

    fn with(follower: Option<Follower>) -> Self {
        Self {
            ready: VecDeque::new(),
            follower,
            run: None,
            began: false,
            is_over: false,
            answers: None,
            stop: StopOnLeave::default(),
            queued: None,
        }
    }

    /// Creates a reader of what has happened in a run since a message, and of the rest as it happens. It may be created
    /// after the run was answered.
    pub(super) async fn since(hub: &Arc<Hub>, run: &RunRecord, after: u64) -> Result<Self, ApiError> {
        if run.status != RunStatus::Done {
            let follower = Follower::in_step(Arc::clone(hub), run.thread_id.clone(), after).await?;
            // It may have ended before the follower looked, which then does not report the end.
            let now = hub.store().load_run(&run.id).await?;
            if now.is_none_or(|run| run.status != RunStatus::Done) {
                let answers = Some((Arc::clone(hub), run.thread_id.clone()));
                return Ok(Self { began: true, answers, ..Self::with(Some(follower)).of(run.id.clone()) });
            }
        }
        let run = hub.store().load_run(&run.id).await?.unwrap_or_else(|| run.clone());
        let (_, mut messages) = hub.store().messages_of_run(&run.thread_id, &run.id).await?;
        messages.retain(|stored| stored.seq > after);
        let mut ready = VecDeque::new();
        for event in replay(&messages).into_iter().flat_map(|group| group.events) {
            ready.push_back(Frame::Event { committed: None, event: Arc::new(event) });
        }
        let termination = run.termination.clone().unwrap_or(TerminationReason::NaturalEnd);
        ready.push_back(finish(&run.thread_id, &run.id, termination));
        Ok(Self { ready, began: true, ..Self::with(None).of(run.id) })
    }

    /// The same for a conversation without runs.
    pub(super) fn idle(thread: &ThreadId, run: &RunId) -> Self {
        let ready = VecDeque::from([finish(thread, run, TerminationReason::NaturalEnd)]);
        Self { ready, began: true, ..Self::with(None) }
    }

    /// Says which run it is about.
    pub(super) fn of(self, run: RunId) -> Self {
        Self { run: Some(run), ..self }
    }

    /// The same for a run that has started. Only an active one has frames to come.
    pub(super) fn joining(self, is_active: bool) -> Self {
        Self { began: true, is_over: !is_active, ..self }
    }

    /// Makes the run stop when the reader leaves before its end, if the reader asked for that.
    pub(super) fn stopping(mut self, hub: &Arc<Hub>, thread: &ThreadId, is_wanted: bool) -> Self {
        if let Some(run) = self.run.clone().filter(|_| is_wanted) {
            self.stop = StopOnLeave(Some((Arc::clone(hub), thread.clone(), run)));
        }
        self
    }

    /// Says that the run starts with a queued message, whose job has the id of the run. If the job is dropped, that is
    /// the end.
    pub(super) fn queued(mut self, hub: &Arc<Hub>) -> Self {
        self.queued = Some(QueuedRun { hub: Arc::clone(hub), changes: hub.changes(), is_checked: false });
        self
    }

    /// Returns the next frame; `None` after the end of the run. Messages that users send meanwhile are left
    /// out.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        while !self.is_over {
            let frame = if let Some(frame) = self.ready.pop_front() {
                frame
            } else {
                let follower = self.follower.as_mut()?;
                match self.queued.as_mut().filter(|_| !self.began).zip(self.run.as_ref()) {
                    None => follower.next().await?,
                    Some((queued, run)) => tokio::select! {
                        frame = follower.next() => frame?,
                        dropped = queued.until_dropped(run) => dropped,
                    },
                }
            };
            let own = |id: &str| self.run.as_ref().is_none_or(|run| run.as_str() == id);
            match &frame {
                Frame::Event { event, .. } => match &**event {
                    AgentEvent::RunStart { run_id, .. } if own(run_id) => self.began = true,
                    AgentEvent::RunFinish { run_id, termination, .. } if own(run_id) => {
                        if *termination == TerminationReason::Suspended && self.is_answered().await {
                            continue;
                        }
                        self.end();
                    }
                    _ => {}
                },
                Frame::Message(_) => continue,
                Frame::Dropped(_) => self.end(),
            }
            if self.began {
                return Some(frame);
            }
        }
        None
    }

    fn end(&mut self) {
        (self.began, self.is_over) = (true, true);
        self.stop.0 = None;
    }

    /// Whether the run is about to resume: it has an answer to read, or nothing is pending any more.
    async fn is_answered(&self) -> bool {
        let Some((hub, thread)) = &self.answers else { return false };
        match (hub.store().has_answers(thread).await, hub.store().waiting_below(thread).await) {
            (Ok(true), _) => true,
            (_, Ok(open)) => open.is_empty(),
            (_, Err(error)) => {
                tracing::warn!(%error, "answers cannot be read");
                false
            }
        }
    }
}

/// The end of a run as a frame.
fn finish(thread: &ThreadId, run: &RunId, termination: TerminationReason) -> Frame {
    let event = AgentEvent::RunFinish {
        thread_id: thread.to_string(),
        run_id: run.to_string(),
        result: None,
        termination,
    };
    Frame::Event { committed: None, event: Arc::new(event) }
}

/// A run that starts with a queued message.
struct QueuedRun {
    hub: Arc<Hub>,
    changes: broadcast::Receiver<StoreChange>,
    /// Whether its job was checked since the last change.
    is_checked: bool,
}

impl QueuedRun {
    /// Waits until nothing will start the run any more, and returns its end.
    async fn until_dropped(&mut self, run: &RunId) -> Frame {
        loop {
            if !self.is_checked {
                let end = self.end_of(run).await.unwrap_or_else(|error| {
                    tracing::warn!(%run, error = error.message(), "a queued run cannot be looked up");
                    None
                });
                if let Some(frame) = end {
                    return frame;
                }
                self.is_checked = true;
            }
            match self.changes.recv().await {
                Ok(change) => {
                    self.is_checked = !matches!(change.kind, ChangeKind::Queue | ChangeKind::Anything);
                }
                Err(broadcast::error::RecvError::Lagged(_)) => self.is_checked = false,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    async fn end_of(&self, run: &RunId) -> Result<Option<Frame>, ApiError> {
        let store = self.hub.store();
        let job =
            store.mailboxes()?.load_job(&JobId::from(run.as_str())).await.map_err(ApiError::internal)?;
        let Some(job) = job.filter(|job| job.status.is_terminal()) else { return Ok(None) };
        if job.status == MailboxJobStatus::Accepted || store.load_run(run).await?.is_some() {
            return Ok(None);
        }
        let termination = match job.last_error.filter(|_| job.status == MailboxJobStatus::DeadLetter) {
            Some(why) => TerminationReason::Error(why),
            None => TerminationReason::Cancelled,
        };
        Ok(Some(finish(&job.mailbox_id, run, termination)))
    }
}

/// The run to stop when the reader leaves before its end.
#[derive(Default)]
struct StopOnLeave(Option<(Arc<Hub>, ThreadId, RunId)>);

impl Drop for StopOnLeave {
    fn drop(&mut self) {
        if let Some((hub, thread, run)) = self.0.take() {
            hub.stop_in_background(thread, run);
        }
    }
}
