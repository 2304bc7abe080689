//! Follows one conversation for one reader: what is committed from the store, the rest from the run that is driven here.

use std::collections::VecDeque;
use std::sync::Arc;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::{Role, Visibility};
use aye_core::contract::record::{RunRecord, StoredMessage};
use aye_core::contract::storage::{StoreChange, StoreError};
use aye_encode::replay::{questions, replay, results};
use aye_runtime::RunDocument;
use tokio::sync::broadcast;

use super::hub::Hub;
use super::live::{Joined, LiveEvent};
use super::metrics::Present;

/// A frame that a reader receives.
#[derive(Clone, Debug)]
pub(super) enum Frame {
    /// An event of a run.
    Event {
        /// The number of committed messages; `None` for a draft, which a returning reader receives again.
        committed: Option<u64>,
        event: Arc<AgentEvent>,
    },
    /// A committed message of a user, which no event shows.
    Message(Box<StoredMessage>),
    /// The reader was too slow. It can come back with this number.
    Dropped(u64),
}

/// One reader of one conversation.
pub(super) struct Follower {
    hub: Arc<Hub>,
    thread: ThreadId,
    joined: Joined,
    changes: broadcast::Receiver<StoreChange>,
    /// Messages that the reader has.
    after: u64,
    /// The run that was shown last, and its status.
    shown: Option<(RunId, RunStatus)>,
    /// The next frames.
    ready: VecDeque<Frame>,
    is_over: bool,
    /// Set until the results of the open step were sent.
    lacks_results: bool,
    _reader: Present,
}

impl Follower {
    /// Returns the client's id of the request that a run serves.
    pub(super) async fn correlation_id(&self, run: &str) -> Option<String> {
        self.hub.store().load_run(&RunId::from(run)).await.ok()??.correlation_id
    }

    /// Creates a reader that knows everything so far and receives what happens from now on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(super) async fn from_now(hub: Arc<Hub>, thread: ThreadId) -> Result<Self, StoreError> {
        let mut follower = Self::joined(hub, thread, 0);
        let store = follower.hub.store();
        let (count, run) =
            (store.message_count(&follower.thread).await?, store.latest_run(&follower.thread).await?);
        follower.after = count;
        follower.shown = run.map(|run| (run.id, run.status));
        Ok(follower)
    }

    fn joined(hub: Arc<Hub>, thread: ThreadId, after: u64) -> Self {
        // Subscribed before anything is read, so that nothing is missed between the two.
        let changes = hub.changes();
        let joined = hub.channels.join(&thread);
        let reader = hub.metrics.reader();
        Self {
            hub,
            thread,
            joined,
            changes,
            after,
            shown: None,
            ready: VecDeque::new(),
            is_over: false,
            lacks_results: false,
            _reader: reader,
        }
    }

    /// A reader that has the first `after` messages.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(super) async fn new(hub: Arc<Hub>, thread: ThreadId, after: u64) -> Result<Self, StoreError> {
        Self::reading(hub, thread, after, false).await
    }

    /// The same for a reader that may lack results of the step that is open: they are no messages yet.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(super) async fn in_step(hub: Arc<Hub>, thread: ThreadId, after: u64) -> Result<Self, StoreError> {
        Self::reading(hub, thread, after, true).await
    }

    async fn reading(
        hub: Arc<Hub>,
        thread: ThreadId,
        after: u64,
        lacks_results: bool,
    ) -> Result<Self, StoreError> {
        let mut follower = Self::joined(hub, thread, after);
        follower.lacks_results = lacks_results;
        match follower.joined.committed {
            Some(committed) => {
                follower.replay(Some(committed)).await?;
                let run = follower.hub.store().latest_run(&follower.thread).await?;
                follower.add_results(run.as_ref());
                let mut drafts = std::mem::take(&mut follower.joined.drafts);
                if after > committed {
                    // The drafts start with an answer that was committed before its calls were done, and the
                    // reader already has it.
                    let is_end = |event: &AgentEvent| matches!(event, AgentEvent::InferenceComplete { .. });
                    drafts.drain(..drafts.iter().position(is_end).map_or(0, |at| at + 1));
                }
                let drafts = drafts.into_iter().map(Arc::new);
                follower.ready.extend(drafts.map(|event| Frame::Event { committed: None, event }));
            }
            None => follower.catch_up().await?,
        }
        Ok(follower)
    }

    /// Returns the next frame; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                self.hub.metrics.frame();
                return Some(frame);
            }
            if self.is_over {
                return None;
            }
            let closing = self.hub.closing.clone();
            tokio::select! {
                () = closing.cancelled() => self.is_over = true,
                live_event = self.joined.events.recv() => match live_event {
                    Ok(live_event) => self.on_event(live_event).await,
                    Err(broadcast::error::RecvError::Lagged(_)) => self.drop_out(),
                    Err(broadcast::error::RecvError::Closed) => self.is_over = true,
                },
                change = self.changes.recv() => {
                    let concerns = match change {
                        Ok(change) => change.concerns(&self.thread),
                        Err(broadcast::error::RecvError::Lagged(_)) => true,
                        Err(broadcast::error::RecvError::Closed) => {
                            self.is_over = true;
                            false
                        }
                    };
                    if concerns && !self.joined.channel.is_driven() && self.joined.events.is_empty() {
                        self.catch_up().await.unwrap_or_else(|error| {
                            tracing::warn!(%error, "committed messages cannot be sent to a reader");
                            self.is_over = true;
                        });
                    }
                }
            }
        }
    }

    fn drop_out(&mut self) {
        self.hub.metrics.reader_dropped();
        self.ready.push_back(Frame::Dropped(self.after));
        self.is_over = true;
    }

    /// An event of the run that is driven here.
    async fn on_event(&mut self, live_event: LiveEvent) {
        if let Some(committed) = live_event.committed {
            if committed < self.after {
                return;
            }
            // Only users' messages: the rest was sent as it happened.
            match self.messages(Some(committed)).await {
                Ok(messages) => self.ready.extend(messages.into_iter().filter(is_shown).map(message)),
                Err(error) => {
                    tracing::warn!(%error, "committed messages cannot be sent to a reader");
                    self.is_over = true;
                    return;
                }
            }
            self.after = committed;
        }
        match &*live_event.event {
            AgentEvent::RunStart { run_id, .. } => {
                let now = Some((RunId::from(run_id.as_str()), RunStatus::Running));
                // The store may have been faster with the news.
                if std::mem::replace(&mut self.shown, now.clone()) == now {
                    return;
                }
            }
            AgentEvent::RunFinish { run_id, termination, .. } => {
                self.shown = Some((run_id.as_str().into(), termination.to_run_status()));
            }
            _ => {}
        }
        self.ready.push_back(Frame::Event { committed: live_event.committed, event: live_event.event });
    }

    /// Reads what was committed since, whichever process drives the conversation, and the status of its run.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let run = self.hub.store().latest_run(&self.thread).await?;
        let is_new = |shown: &Option<(RunId, RunStatus)>, run: &RunRecord| {
            shown.as_ref().is_none_or(|(id, _)| *id != run.id)
        };
        if let Some(run) = run.as_ref().filter(|run| is_new(&self.shown, run)) {
            let begins = AgentEvent::RunStart {
                thread_id: run.thread_id.to_string(),
                run_id: run.id.to_string(),
                parent_run_id: run.parent_run_id.as_ref().map(ToString::to_string),
            };
            // A run that was done before the reader joined is not reported again.
            if self.shown.is_some() || run.status != RunStatus::Done {
                self.ready.push_back(Frame::Event { committed: None, event: Arc::new(begins) });
            }
        }
        self.replay(None).await?;
        self.add_results(run.as_ref());
        let Some(run) = run else { return Ok(()) };
        let now = (run.id.clone(), run.status);
        let was = self.shown.replace(now.clone());
        if was.as_ref() == Some(&now) || (was.is_none() && run.status == RunStatus::Done) {
            return Ok(());
        }
        if run.status == RunStatus::Waiting {
            let open = self.hub.store().waiting_below(&self.thread).await?;
            let asked = questions("", &open).into_iter().map(Arc::new);
            self.ready.extend(asked.map(|event| Frame::Event { committed: None, event }));
        }
        if run.status != RunStatus::Running {
            let termination = match run.status {
                RunStatus::Waiting => TerminationReason::Suspended,
                RunStatus::Done | RunStatus::Running => {
                    run.termination.unwrap_or(TerminationReason::NaturalEnd)
                }
            };
            let event = AgentEvent::RunFinish {
                thread_id: self.thread.to_string(),
                run_id: run.id.to_string(),
                result: None,
                termination,
            };
            self.ready.push_back(Frame::Event { committed: Some(self.after), event: Arc::new(event) });
        }
        Ok(())
    }

    /// Adds the results of the step that is open, once, for a reader that lacks them.
    fn add_results(&mut self, run: Option<&RunRecord>) {
        if std::mem::take(&mut self.lacks_results)
            && let Some(run) = run
        {
            let done = results(&RunDocument::unrecorded_results(run)).into_iter().map(Arc::new);
            self.ready.extend(done.map(|event| Frame::Event { committed: None, event }));
        }
    }

    /// Returns the messages after those that the reader has, up to a position.
    async fn messages(&self, upto: Option<u64>) -> Result<Vec<StoredMessage>, StoreError> {
        let store = self.hub.store();
        let count = store.message_count(&self.thread).await?;
        let upto = upto.map_or(count, |upto| upto.min(count));
        let missing = usize::try_from(count.saturating_sub(self.after)).unwrap_or(usize::MAX);
        if missing == 0 || upto <= self.after {
            return Ok(Vec::new());
        }
        let (_, mut messages) = store.messages_tail(&self.thread, missing).await?;
        messages.retain(|stored| stored.seq > self.after && stored.seq <= upto);
        Ok(messages)
    }

    /// Replays what was committed since, as the events that a reader would have seen.
    async fn replay(&mut self, upto: Option<u64>) -> Result<(), StoreError> {
        let messages = self.messages(upto).await?;
        let mut at = 0;
        for group in replay(&messages) {
            let covered = messages[at..].iter().take_while(|stored| stored.seq <= group.after).count();
            self.ready
                .extend(messages[at..at + covered].iter().filter(|one| is_shown(one)).cloned().map(message));
            at += covered;
            let last = group.events.len().saturating_sub(1);
            for (place, event) in group.events.into_iter().enumerate() {
                let committed = (place == last).then_some(group.after);
                self.ready.push_back(Frame::Event { committed, event: Arc::new(event) });
            }
            self.after = group.after;
        }
        Ok(())
    }
}

/// Whether the message is a user's, which no event shows.
fn is_shown(stored: &StoredMessage) -> bool {
    stored.message.role == Role::User && stored.message.visibility != Visibility::Internal
}

fn message(stored: StoredMessage) -> Frame {
    Frame::Message(Box::new(stored))
}
