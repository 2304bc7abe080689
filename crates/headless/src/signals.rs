//! Reasons to end a job early: signals, and a closed reader of stdout. The first one cancels the run and lets
//! it save its state, a second one ends the program at once.

use std::future::Future;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{exit, note};

/// Runs the work under the watch of SIGINT, SIGTERM and SIGHUP, and of `closed`. Returns its result, `None` when it was not
/// waited for, and the exit status that goes with what came, if something did.
pub(super) async fn guard<T>(
    work: impl Future<Output = T>,
    closed: impl Future<Output = ()>,
    cancel: impl Fn() -> bool,
) -> (Option<T>, Option<u8>) {
    let mut signals: Vec<(Signal, u8)> = [
        (SignalKind::interrupt(), exit::INTERRUPTED),
        (SignalKind::terminate(), exit::TERMINATED),
        (SignalKind::hangup(), exit::HUNG_UP),
    ]
    .into_iter()
    // Without a handler the signal ends the program, which loses nothing that was reported.
    .filter_map(|(kind, code)| Some((signal(kind).ok()?, code)))
    .collect();
    tokio::pin!(work, closed);
    let mut came = None;
    loop {
        let code = tokio::select! {
            biased;
            code = next(&mut signals) => code,
            result = &mut work => return (Some(result), came),
            () = &mut closed, if came.is_none() => {
                note("aye: stdout was closed; the run was stopped");
                exit::FAILED
            }
        };
        if came.is_some() || !cancel() {
            return (None, Some(code));
        }
        came = Some(code);
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

/// Waits until the other end of stdout is closed. Forever where stdout is neither a pipe nor a socket.
pub(super) async fn reader_gone() {
    let Some(stdout) = watched_stdout() else { return std::future::pending().await };
    loop {
        // Any freed space wakes this task, which is as often as the reader reads.
        let Ok(mut ready) = stdout.ready(Interest::WRITABLE).await else {
            return std::future::pending().await;
        };
        if ready.ready().is_write_closed() {
            return;
        }
        ready.clear_ready();
    }
}

#[expect(clippy::disallowed_methods, reason = "this front end prints")]
#[expect(
    deprecated,
    reason = "the replacement is unsafe for types that give their descriptor away; an owned one cannot"
)]
fn watched_stdout() -> Option<AsyncFd<std::fs::File>> {
    let stdout = std::fs::File::from(std::io::stdout().as_fd().try_clone_to_owned().ok()?);
    let kind = stdout.metadata().ok()?.file_type();
    if !kind.is_fifo() && !kind.is_socket() {
        return None;
    }
    AsyncFd::with_interest(stdout, Interest::WRITABLE).ok()
}
