//! The sink that running tools report to: forwards events at once and stores output a little later, all of it, whatever
//! a screen shows.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::record::{AttemptId, Fence};
use aye_core::contract::storage::ThreadRunStore;

/// Maximum time before output is written.
const FLUSH: Duration = Duration::from_millis(100);
/// Maximum bytes that wait to be written; of more, the middle is dropped. A store keeps far less of one output.
const MAX_UNWRITTEN: usize = 8 << 20;
/// Bytes kept of the start of such output, and of its end: more than a store keeps.
const KEPT: usize = 256 << 10;
/// Bytes of a call's output kept in memory for the result of an interrupted call.
const TAIL: usize = 16 * 1024;

/// Output between two writes.
#[derive(Debug, Default)]
pub(super) struct UnwrittenOutput {
    start: String,
    dropped: usize,
    end: String,
}

impl UnwrittenOutput {
    pub(super) fn is_empty(&self) -> bool {
        self.end.is_empty()
    }

    pub(super) fn push(&mut self, text: &str) {
        self.end.push_str(text);
        if self.end.len() > MAX_UNWRITTEN {
            if self.dropped == 0 {
                let rest = self.end.split_off(self.end.floor_char_boundary(KEPT));
                self.start = std::mem::replace(&mut self.end, rest);
            }
            let cut = self.end.ceil_char_boundary(self.end.len() - KEPT);
            self.dropped += cut;
            self.end.drain(..cut);
        }
    }

    /// Takes all of it, with a line where something was dropped.
    pub(super) fn take(&mut self) -> String {
        let Self { start, dropped, end } = std::mem::take(self);
        if dropped == 0 { end } else { format!("{start}\n[... {dropped} bytes left out ...]\n{end}") }
    }
}

#[derive(Default)]
struct Buffer {
    unwritten: UnwrittenOutput,
    tail: String,
    /// The tool stores its output itself; its events are for the screen.
    is_whole: bool,
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
        buffer.unwritten = UnwrittenOutput::default();
    }

    /// Writes the unwritten output of a call that ends while its command continues; the command's keeper
    /// writes the rest.
    pub(super) async fn detach(&self) {
        let chunk = {
            let mut buffer = self.buffer.lock().expect("no panic while output is held");
            buffer.ended = true;
            buffer.unwritten.take()
        };
        if !chunk.is_empty()
            && let Err(error) = self.store.append_output(&self.fence, &self.attempt, chunk).await
        {
            tracing::warn!(%error, "output of a moved command could not be kept");
        }
    }

    fn keep(&self, delta: &str, is_whole: bool) {
        let mut buffer = self.buffer.lock().expect("no panic while output is held");
        buffer.is_whole |= is_whole;
        if buffer.ended || buffer.is_whole != is_whole {
            return;
        }
        buffer.unwritten.push(delta);
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
                    buffer.unwritten.take()
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
            self.keep(delta, false);
        }
        self.next.emit(event).await;
    }

    fn store_output(&self, text: &str) {
        self.keep(text, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_flood_loses_its_middle() {
        let mut output = UnwrittenOutput::default();
        let all = "0123456789abcde\n".repeat(KEPT / 16 * 4);
        output.push(&all);
        assert_eq!(output.take(), all);
        assert!(output.is_empty());
        let flood = "漢".repeat(MAX_UNWRITTEN / 30);
        let pushed = 40 * flood.len();
        for _ in 0..40 {
            output.push(&flood);
        }
        let text = output.take();
        let (start, rest) = text.split_once("\n[... ").expect("a line");
        let (dropped, end) = rest.split_once(" bytes left out ...]\n").expect("a line");
        let dropped: usize = dropped.parse().expect("a number");
        assert_eq!(start.len() + dropped + end.len(), pushed);
        assert!(start.len() + 3 > KEPT && end.len() + 3 > KEPT, "{} {}", start.len(), end.len());
    }
}
