//! The sink that running tools report to: forwards events at once and stores output a little later.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::record::{AttemptId, Fence};
use aye_core::contract::storage::ThreadRunStore;

/// Maximum time before output is written.
const FLUSH: Duration = Duration::from_millis(100);
/// Bytes of a call's output kept in memory for the result of an interrupted call.
const TAIL: usize = 16 * 1024;

#[derive(Default)]
struct Buffer {
    unwritten: String,
    tail: String,
    flushing: bool,
    ended: bool,
}

pub(super) struct CallSink {
    next: Arc<dyn EventSink>,
    store: Arc<dyn ThreadRunStore>,
    fence: Fence,
    attempt: AttemptId,
    buffer: Arc<Mutex<Buffer>>,
}

impl CallSink {
    pub(super) fn new(
        next: Arc<dyn EventSink>,
        store: Arc<dyn ThreadRunStore>,
        fence: Fence,
        attempt: AttemptId,
    ) -> Self {
        Self { next, store, fence, attempt, buffer: Arc::default() }
    }

    /// The end of what the call has printed.
    pub(super) fn tail(&self) -> String {
        self.buffer.lock().expect("no panic while output is held").tail.clone()
    }

    /// Ends the output of a finished call: its result contains the output, and nothing else is stored. Output
    /// that is still unwritten could only be written after the lease is released.
    pub(super) fn end(&self) {
        let mut buffer = self.buffer.lock().expect("no panic while output is held");
        buffer.ended = true;
        buffer.unwritten.clear();
    }

    /// Writes the unwritten output of a call that ends while its command continues; the command's keeper
    /// writes the rest.
    pub(super) async fn detach(&self) {
        let chunk = {
            let mut buffer = self.buffer.lock().expect("no panic while output is held");
            buffer.ended = true;
            std::mem::take(&mut buffer.unwritten)
        };
        if !chunk.is_empty()
            && let Err(error) = self.store.append_output(&self.fence, &self.attempt, chunk).await
        {
            tracing::warn!(%error, "output of a moved command could not be kept");
        }
    }

    fn keep(&self, delta: &str) {
        let mut buffer = self.buffer.lock().expect("no panic while output is held");
        if buffer.ended {
            return;
        }
        buffer.unwritten.push_str(delta);
        buffer.tail.push_str(delta);
        if buffer.tail.len() > 2 * TAIL {
            let mut cut = buffer.tail.len() - TAIL;
            while !buffer.tail.is_char_boundary(cut) {
                cut += 1;
            }
            buffer.tail.drain(..cut);
        }
        if !buffer.flushing {
            buffer.flushing = true;
            // The task ends with the first flush; a crash before it loses at most what came in that time.
            let (store, fence, attempt) = (Arc::clone(&self.store), self.fence.clone(), self.attempt.clone());
            let shared = Arc::clone(&self.buffer);
            tokio::spawn(async move {
                tokio::time::sleep(FLUSH).await;
                let chunk = {
                    let mut buffer = shared.lock().expect("no panic while output is held");
                    buffer.flushing = false;
                    std::mem::take(&mut buffer.unwritten)
                };
                if chunk.is_empty() {
                    return;
                }
                if let Err(error) = store.append_output(&fence, &attempt, chunk).await {
                    tracing::warn!(%error, "output of a running call could not be kept");
                }
            });
        }
    }
}

#[async_trait]
impl EventSink for CallSink {
    async fn emit(&self, event: AgentEvent) {
        if let AgentEvent::ToolCallStreamDelta { delta, .. } = &event {
            self.keep(delta);
        }
        self.next.emit(event).await;
    }
}
