//! Detects that the process driving a conversation has ended, or should have renewed its lease: without polling, where
//! the system can notify of the end of another process.

use std::time::Duration;

use tokio::time::Instant;

use crate::AgentRuntime;
use aye_core::contract::presence::Liveness;
use aye_core::contract::record::{LeaseRecord, Owner};

/// How often an owner's lock is looked at, if nothing notifies of its end.
const CHECK_EVERY: Duration = Duration::from_millis(300);

/// Waits for the end of the process that drives a thread, or of its lease.
pub struct OwnerWatch {
    token: String,
    process: Process,
    until: Option<Instant>,
}

enum Process {
    /// Readable when it ended.
    Open(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>),
    /// Its lock is looked at: it is in another pid namespace, or nothing notifies of its end here.
    Locked(AgentRuntime, Owner),
    /// The process ended before it could be observed.
    Gone,
    /// Its end was noticed.
    Noticed,
}

impl OwnerWatch {
    /// Watches the owner of this lease; an existing watch of the same process is reused.
    pub fn of(known: Option<OwnerWatch>, lease: &LeaseRecord, runtime: &AgentRuntime) -> OwnerWatch {
        // A little later, so that the lease has certainly expired when the timer fires.
        let until = lease.left.map(|left| Instant::now() + left + Duration::from_millis(2));
        match known {
            Some(watch) if watch.token == lease.owner.token => OwnerWatch { until, ..watch },
            Some(_) | None => {
                OwnerWatch { token: lease.owner.token.clone(), process: Process::of(lease, runtime), until }
            }
        }
    }

    /// Waits until the process ended or should have renewed its lease; for ever without a watch.
    pub async fn ends_or_due(watch: &mut Option<OwnerWatch>) {
        let Some(watch) = watch else { return std::future::pending().await };
        tokio::select! {
            () = watch.process.ends() => {
                // The end of the process is not waited for again, whatever the caller finds now.
                watch.process = Process::Noticed;
            }
            () = until(watch.until) => watch.until = None,
        }
    }
}

pub(super) async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

impl Process {
    async fn ends(&self) {
        match self {
            Process::Open(handle) => {
                if let Err(error) = handle.readable().await {
                    tracing::warn!(%error, "the end of another process cannot be observed");
                    std::future::pending::<()>().await;
                }
            }
            Process::Locked(runtime, owner) => {
                while runtime.liveness(owner) != Liveness::No {
                    tokio::time::sleep(CHECK_EVERY).await;
                }
            }
            Process::Gone => {}
            Process::Noticed => std::future::pending().await,
        }
    }

    #[expect(
        deprecated,
        reason = "what came in its place is unsafe, for descriptors that are not owned; this one is"
    )]
    fn of(lease: &LeaseRecord, runtime: &AgentRuntime) -> Process {
        // Elsewhere, the number belongs to another process.
        let pid = Some(lease.owner.pid).filter(|_| lease.owner.shares_pids(runtime.owner()));
        let handle = pid.and_then(aye_platform::end_of_process);
        // The lease is checked after the handle was opened: from then on the pid cannot be reused unnoticed.
        if !runtime.is_kept_out_by(lease) {
            return Process::Gone;
        }
        match handle.map(tokio::io::unix::AsyncFd::new) {
            Some(Ok(handle)) => Process::Open(handle),
            Some(Err(_)) | None => Process::Locked(runtime.clone(), lease.owner.clone()),
        }
    }
}
