//! Detects without polling that the process driving a conversation has ended, or should have renewed its lease.

use tokio::time::Instant;

use crate::AgentRuntime;
use aye_core::contract::record::LeaseRecord;

/// Waits for the end of the process that drives a thread, or of its lease.
pub struct OwnerWatch {
    token: String,
    process: Process,
    until: Option<Instant>,
}

enum Process {
    /// Readable when it ended.
    #[cfg(target_os = "linux")]
    Open(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>),
    /// The process ended before it could be observed.
    Gone,
    /// The process cannot be observed: its end is noticed with the next change.
    Unknown,
}

impl OwnerWatch {
    /// Watches the owner of this lease; an existing watch of the same process is reused.
    pub fn of(known: Option<OwnerWatch>, lease: &LeaseRecord, runtime: &AgentRuntime) -> OwnerWatch {
        // A little later, so that the lease has certainly expired when the timer fires.
        let until =
            runtime.time_left(lease).map(|left| Instant::now() + left + std::time::Duration::from_millis(2));
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
                watch.process = Process::Unknown;
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
            #[cfg(target_os = "linux")]
            Process::Open(handle) => {
                if let Err(error) = handle.readable().await {
                    tracing::warn!(%error, "the end of another process cannot be observed");
                    std::future::pending::<()>().await;
                }
            }
            Process::Gone => {}
            Process::Unknown => std::future::pending().await,
        }
    }

    #[cfg(target_os = "linux")]
    #[expect(
        deprecated,
        reason = "what came in its place is unsafe, for descriptors that are not owned; this one is"
    )]
    fn of(lease: &LeaseRecord, runtime: &AgentRuntime) -> Process {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        // Elsewhere, the number belongs to another process.
        let pid = Some(lease.owner.pid).filter(|_| lease.owner.shares_pids(runtime.owner()));
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK).ok());
        // The lease is checked after the handle was opened: from then on the pid cannot be reused unnoticed.
        if !runtime.is_kept_out_by(lease) {
            return Process::Gone;
        }
        match handle.map(tokio::io::unix::AsyncFd::new) {
            Some(Ok(handle)) => Process::Open(handle),
            Some(Err(_)) | None => Process::Unknown,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn of(lease: &LeaseRecord, runtime: &AgentRuntime) -> Process {
        if runtime.is_kept_out_by(lease) { Process::Unknown } else { Process::Gone }
    }
}
