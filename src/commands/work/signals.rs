//! Signals to a worker: the first stops it after its current job, the second at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct Signals {
    open: Vec<(Signal, u8)>,
    received: Vec<u8>,
}

impl Signals {
    pub(crate) fn new() -> Signals {
        let open =
            [(SignalKind::interrupt(), 130), (SignalKind::terminate(), 143), (SignalKind::hangup(), 129)]
                .into_iter()
                // Without a handler the signal ends the program, which loses nothing already reported.
                .filter_map(|(kind, code)| Some((signal(kind).ok()?, code)))
                .collect();
        Signals { open, received: Vec::new() }
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        if self.open.is_empty() {
            return std::future::pending().await;
        }
        let waits = self.open.iter_mut().map(|(signal, code)| {
            Box::pin(async move {
                signal.recv().await;
                *code
            })
        });
        let (code, ..) = futures::future::select_all(waits).await;
        self.received.push(code);
    }

    /// The exit status of the first one.
    pub(crate) fn first(&self) -> Option<u8> {
        self.received.first().copied()
    }

    pub(super) fn has_come(&self) -> bool {
        !self.received.is_empty()
    }

    /// Returns whether the worker must end at once.
    pub(super) fn is_urgent(&self) -> bool {
        self.received.len() > 1
    }

    /// Returns the exit status for the signals: `None` for a worker that ended cleanly after its job.
    pub(super) fn status(&self) -> Option<u8> {
        self.is_urgent().then(|| self.received.last().copied()).flatten()
    }
}
