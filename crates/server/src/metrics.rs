//! Numbers about the server in the text format of Prometheus 0.0.4.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a server. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    refused: AtomicU64,
    decisions: AtomicU64,
    frames: AtomicU64,
    dropped_readers: AtomicU64,
    readers: AtomicU64,
    runs: AtomicU64,
    runs_active: AtomicU64,
}

/// A guard that counts something for as long as the guard lives.
pub(super) struct Present(Metrics, fn(&Counts) -> &AtomicU64);

impl Drop for Present {
    fn drop(&mut self) {
        (self.1)(&self.0.0).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    fn enter(&self, gauge: fn(&Counts) -> &AtomicU64) -> Present {
        gauge(&self.0).fetch_add(1, Ordering::Relaxed);
        Present(self.clone(), gauge)
    }

    pub(super) fn request(&self) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn decision(&self) {
        self.0.decisions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn frame(&self) {
        self.0.frames.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reader_dropped(&self) {
        self.0.dropped_readers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reader(&self) -> Present {
        self.enter(|counts| &counts.readers)
    }

    pub(super) fn run_begins(&self) -> Present {
        self.0.runs.fetch_add(1, Ordering::Relaxed);
        self.enter(|counts| &counts.runs_active)
    }

    /// All of them, with what they mean; `waiting` questions are pending in the store.
    pub(super) fn text(&self, waiting: u64) -> String {
        let counts = &*self.0;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rows = [
            ("aye_http_requests_total", "counter", "Requests.", of(&counts.requests)),
            (
                "aye_http_refused_total",
                "counter",
                "Requests without a valid token or with a wrong host.",
                of(&counts.refused),
            ),
            ("aye_decisions_total", "counter", "Accepted decisions.", of(&counts.decisions)),
            ("aye_sse_frames_total", "counter", "Event stream frames sent.", of(&counts.frames)),
            (
                "aye_sse_readers_dropped_total",
                "counter",
                "Event stream readers dropped for being too slow.",
                of(&counts.dropped_readers),
            ),
            ("aye_sse_readers", "gauge", "Open event streams.", of(&counts.readers)),
            ("aye_runs_total", "counter", "Runs started or resumed by this server.", of(&counts.runs)),
            ("aye_runs_active", "gauge", "Runs active in this server.", of(&counts.runs_active)),
            ("aye_questions_pending", "gauge", "Pending questions of all conversations.", waiting),
        ];
        rows.iter().fold(String::new(), |mut text, (name, kind, help, value)| {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
            text
        })
    }
}
