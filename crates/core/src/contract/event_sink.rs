//! Receivers of events.

use std::sync::Mutex;

use async_trait::async_trait;

use super::event::AgentEvent;

/// Takes the events of a run, in order.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Takes one event. A sink that cannot deliver drops it: the store is the truth, not the stream.
    async fn emit(&self, event: AgentEvent);

    /// Takes all output of a running tool that stores it whole and shows it in part. From then on, the output in the
    /// call's events is only shown.
    fn store_output(&self, _text: &str) {}

    /// Called right after the lease on the thread was acquired, before it is used: from now on no other
    /// process writes. Messages that others wrote earlier can be shown first.
    async fn acquired(&self) {}

    /// Called whenever the run has nothing to do before a model or a tool responds.
    fn waits(&self) {}

    /// Returns whether this sink receives the run's shared state: a snapshot at each start and finish, and
    /// changes after each commit. The run creates neither for other sinks.
    fn wants_state(&self) -> bool {
        false
    }
}

#[derive(Debug, Default)]
pub struct VecEventSink {
    events: Mutex<Vec<AgentEvent>>,
    wants_state: bool,
}

impl VecEventSink {
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty sink that also receives the shared state.
    pub fn with_state() -> Self {
        Self { wants_state: true, ..Self::default() }
    }

    /// Takes all events out.
    pub fn take(&self) -> Vec<AgentEvent> {
        std::mem::take(&mut self.events.lock().expect("no panic while events are held"))
    }

    /// A copy of all events.
    pub fn events(&self) -> Vec<AgentEvent> {
        self.events.lock().expect("no panic while events are held").clone()
    }
}

#[async_trait]
impl EventSink for VecEventSink {
    async fn emit(&self, event: AgentEvent) {
        self.events.lock().expect("no panic while events are held").push(event);
    }

    fn wants_state(&self) -> bool {
        self.wants_state
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NullEventSink;

#[async_trait]
impl EventSink for NullEventSink {
    async fn emit(&self, _event: AgentEvent) {}
}

/// Sends events into a channel. Unbounded, because a run must never wait for a screen; what fills it is bounded by
/// the provider's stream and by the output caps of tools.
#[derive(Clone, Debug)]
pub struct ChannelEventSink(pub tokio::sync::mpsc::UnboundedSender<AgentEvent>);

#[async_trait]
impl EventSink for ChannelEventSink {
    async fn emit(&self, event: AgentEvent) {
        // If the receiver is gone, so is the front end, and the event is not needed.
        let _ = self.0.send(event);
    }
}
