//! Signals while a job runs: the first one cancels the run and lets it write down where it stands, a second one ends
//! the program at once.

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs the work under the watch of SIGINT, SIGTERM and SIGHUP. Gives its result, `None` when a second signal came
/// first, and the exit status that goes with the signal, if one came.
pub(super) async fn guard<T>(
    work: impl Future<Output = T>,
    cancel: impl Fn() -> bool,
) -> (Option<T>, Option<u8>) {
    let mut signals: Vec<(Signal, u8)> =
        [(SignalKind::interrupt(), 130), (SignalKind::terminate(), 143), (SignalKind::hangup(), 129)]
            .into_iter()
            // Without a handler the signal ends the program, which loses nothing that was told.
            .filter_map(|(kind, code)| Some((signal(kind).ok()?, code)))
            .collect();
    tokio::pin!(work);
    let mut came = None;
    loop {
        tokio::select! {
            biased;
            code = next(&mut signals) => {
                if came.is_some() {
                    return (None, Some(code));
                }
                came = Some(code);
                if !cancel() {
                    return (None, Some(code));
                }
            }
            result = &mut work => return (Some(result), came),
        }
    }
}

async fn next(signals: &mut [(Signal, u8)]) -> u8 {
    if signals.is_empty() {
        return std::future::pending().await;
    }
    let waits = signals.iter_mut().map(|(signal, code)| {
        Box::pin(async move {
            signal.recv().await;
            *code
        })
    });
    futures::future::select_all(waits).await.0
}
