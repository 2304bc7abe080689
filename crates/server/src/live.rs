//! The events of conversations that this process drives, for any number of readers.
//!
//! A reader gets committed messages from the store and the rest from here. The two meet at a number: how many
//! messages of the conversation were committed when an event was emitted. So nothing is read twice or missed,
//! whenever a reader joins.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::storage::ThreadRunStore;
use tokio::sync::broadcast;

use super::starts::Place;

/// Maximum backlog that can be configured: the channel allocates it.
const MAX_BACKLOG: usize = 1 << 16;

/// An event of a run.
#[derive(Clone, Debug)]
pub(super) struct LiveEvent {
    pub(super) event: Arc<AgentEvent>,
    /// The messages of the conversation that are committed now, where the event says that some were.
    pub(super) committed: Option<u64>,
}

/// The state of a conversation when a reader joins.
pub(super) struct Joined {
    /// The events from now on.
    pub(super) events: broadcast::Receiver<LiveEvent>,
    /// The events since the last commit; empty if this process does not drive the conversation.
    pub(super) drafts: Vec<AgentEvent>,
    /// The number of messages at the last commit that a run here reported. Everything after them is in the
    /// drafts and in `events`.
    pub(super) committed: Option<u64>,
    /// Keeps the conversation's channel.
    pub(super) channel: Arc<Channel>,
}

#[derive(Debug)]
struct Progress {
    /// Set while this process drives it.
    committed: Option<u64>,
    drafts: Vec<AgentEvent>,
}

/// The channel of one conversation.
#[derive(Debug)]
pub(super) struct Channel {
    sender: broadcast::Sender<LiveEvent>,
    backlog: usize,
    progress: Mutex<Progress>,
    /// Set once a reader wants the shared state as well.
    wants_state: AtomicBool,
}

impl Channel {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes runs that start from now on report their shared state, too.
    pub(super) fn want_state(&self) {
        self.wants_state.store(true, Ordering::Relaxed);
    }

    /// Whether this process drives the conversation.
    pub(super) fn is_driven(&self) -> bool {
        self.progress().committed.is_some()
    }
}

/// The channels of all conversations that are driven or read here.
#[derive(Debug)]
pub(super) struct Channels {
    open: Mutex<HashMap<ThreadId, Arc<Channel>>>,
    /// Maximum backlog of events for a reader before the reader is dropped.
    backlog: usize,
}

impl Channels {
    pub(super) fn new(backlog: usize) -> Self {
        Self { open: Mutex::default(), backlog: backlog.clamp(1, MAX_BACKLOG) }
    }

    fn channel(&self, thread: &ThreadId) -> Arc<Channel> {
        let mut channels = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !channels.contains_key(thread) {
            // Unused channels are removed when one is added, so that there are never more than twice as many
            // as needed.
            channels.retain(|_, channel| Arc::strong_count(channel) > 1);
        }
        let fresh = || {
            let progress = Mutex::new(Progress { committed: None, drafts: Vec::new() });
            Arc::new(Channel {
                sender: broadcast::channel(self.backlog).0,
                backlog: self.backlog,
                progress,
                wants_state: AtomicBool::new(false),
            })
        };
        Arc::clone(channels.entry(thread.clone()).or_insert_with(fresh))
    }

    pub(super) fn join(&self, thread: &ThreadId) -> Joined {
        let channel = self.channel(thread);
        let progress = channel.progress();
        let (events, drafts, committed) =
            (channel.sender.subscribe(), progress.drafts.clone(), progress.committed);
        drop(progress);
        Joined { events, drafts, committed, channel }
    }

    /// Returns the sink for the events of a conversation's run. `store` determines what is committed.
    pub(super) fn sink(&self, thread: &ThreadId, store: &Arc<dyn ThreadRunStore>) -> Arc<ChannelSink> {
        Arc::new(ChannelSink {
            thread: thread.clone(),
            channel: self.channel(thread),
            store: Arc::clone(store),
            place: Mutex::default(),
        })
    }
}

/// Sends the events of a run to the readers of its conversation.
pub(super) struct ChannelSink {
    thread: ThreadId,
    channel: Arc<Channel>,
    store: Arc<dyn ThreadRunStore>,
    /// The place of a run that is being started.
    place: Mutex<Option<Place>>,
}

impl ChannelSink {
    /// Keeps a place until the run waits.
    pub(super) fn keep(&self, place: Option<Place>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

#[async_trait]
impl EventSink for ChannelSink {
    fn waits(&self) {
        self.keep(None);
    }

    fn wants_state(&self) -> bool {
        self.channel.wants_state.load(Ordering::Relaxed)
    }

    async fn emit(&self, event: AgentEvent) {
        let is_commit =
            matches!(event, AgentEvent::RunStart { .. } | AgentEvent::StepEnd | AgentEvent::RunFinish { .. });
        let committed = if is_commit {
            match self.store.message_count(&self.thread).await {
                Ok(count) => Some(count),
                Err(error) => {
                    tracing::warn!(%error, "the number of committed messages cannot be read");
                    None
                }
            }
        } else {
            None
        };
        {
            let mut progress = self.channel.progress();
            if committed.is_some() {
                // After the end of a run the store contains everything.
                progress.committed = committed.filter(|_| !matches!(event, AgentEvent::RunFinish { .. }));
                progress.drafts.clear();
            } else {
                add(&mut progress.drafts, &event);
            }
            // There may be no readers.
            let _ = self.channel.sender.send(LiveEvent { event: Arc::new(event), committed });
        }
        // A model that answers faster than the readers get their turn must not make them lag.
        if self.channel.sender.len() > self.channel.backlog / 2 {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for ChannelSink {
    /// The run is over or waits: from here on the store says everything.
    fn drop(&mut self) {
        let mut progress = self.channel.progress();
        progress.committed = None;
        progress.drafts.clear();
    }
}

/// Adds an event to those since the last commit; consecutive pieces of text are joined to keep the list
/// short.
fn add(drafts: &mut Vec<AgentEvent>, event: &AgentEvent) {
    match (drafts.last_mut(), event) {
        (Some(AgentEvent::TextDelta { delta: all }), AgentEvent::TextDelta { delta })
        | (Some(AgentEvent::ReasoningDelta { delta: all }), AgentEvent::ReasoningDelta { delta }) => {
            all.push_str(delta);
        }
        (
            Some(AgentEvent::ToolCallDelta { id: of, args_delta: all }),
            AgentEvent::ToolCallDelta { id, args_delta },
        ) if of == id => all.push_str(args_delta),
        (
            Some(AgentEvent::ToolCallStreamDelta { id: of, delta: all, .. }),
            AgentEvent::ToolCallStreamDelta { id, delta, .. },
        ) if of == id => all.push_str(delta),
        _ => drafts.push(event.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aye_local::InMemoryStore;

    fn text(delta: &str) -> AgentEvent {
        AgentEvent::TextDelta { delta: delta.to_owned() }
    }

    #[tokio::test]
    async fn a_new_reader_gets_the_text_so_far_as_one_event() {
        let channels = Channels::new(8);
        let thread = ThreadId::from("t");
        let store: Arc<dyn ThreadRunStore> = Arc::new(InMemoryStore::default());
        let sink = channels.sink(&thread, &store);
        sink.emit(AgentEvent::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None })
            .await;
        sink.emit(text("Hel")).await;
        sink.emit(text("lo")).await;
        let mut late = channels.join(&thread);
        assert_eq!((late.drafts, late.committed), (vec![text("Hello")], Some(0)));
        sink.emit(text(" you")).await;
        assert_eq!(*late.events.recv().await.expect("it is told").event, text(" you"));
        sink.emit(AgentEvent::StepEnd).await;
        assert!(channels.join(&thread).drafts.is_empty());
        assert!(late.channel.is_driven());
        let termination = aye_core::contract::lifecycle::TerminationReason::NaturalEnd;
        let end =
            AgentEvent::RunFinish { thread_id: "t".into(), run_id: "r".into(), result: None, termination };
        sink.emit(end).await;
        assert!(!late.channel.is_driven());
        assert_eq!(channels.join(&thread).committed, None);
    }

    #[test]
    fn unused_channels_are_removed() {
        let channels = Channels::new(8);
        for n in 0..100 {
            drop(channels.join(&ThreadId::from(format!("t{n}"))));
        }
        assert_eq!(channels.open.lock().expect("not poisoned").len(), 1);
    }
}
