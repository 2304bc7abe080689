//! Learns at once that the process that is awake on a conversation is gone, without looking again and again.

use crate::contract::record::Owner;

/// Stands by another process until it ends.
pub(super) struct Guard {
    token: String,
    process: Process,
}

enum Process {
    /// Readable when it ended.
    #[cfg(target_os = "linux")]
    Open(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>),
    /// It ended before anybody could stand by it.
    Gone,
    /// There is no way to stand by it: its end is seen with the next thing that is heard.
    Unknown,
}

impl Guard {
    /// For this owner; the guard that there was is kept when it stands by the same. `alive` says whether a number
    /// still means the process that took it, and not another one that was given it later.
    pub(super) fn of(known: Option<Guard>, owner: &Owner, alive: impl Fn(&Owner) -> bool) -> Guard {
        match known {
            Some(guard) if guard.token == owner.token => guard,
            Some(_) | None => Guard { token: owner.token.clone(), process: Process::of(owner, alive) },
        }
    }

    /// Waits until the process is gone; for ever when there is none.
    pub(super) async fn falls(guard: &mut Option<Guard>) {
        let Some(guard) = guard else { return std::future::pending().await };
        match &guard.process {
            #[cfg(target_os = "linux")]
            Process::Open(handle) => {
                if let Err(error) = handle.readable().await {
                    tracing::warn!(%error, "the end of another process is not heard");
                    std::future::pending::<()>().await;
                }
            }
            Process::Gone => {}
            Process::Unknown => std::future::pending().await,
        }
    }
}

impl Process {
    #[cfg(target_os = "linux")]
    #[expect(
        deprecated,
        reason = "what came in its place is unsafe, for descriptors that are not owned; this one is"
    )]
    fn of(owner: &Owner, alive: impl Fn(&Owner) -> bool) -> Process {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let pid = i32::try_from(owner.pid).ok().and_then(Pid::from_raw);
        let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK).ok());
        // Looked at after it was opened: from then on the number cannot be given to another one unseen.
        if !alive(owner) {
            return Process::Gone;
        }
        match handle.map(tokio::io::unix::AsyncFd::new) {
            Some(Ok(handle)) => Process::Open(handle),
            Some(Err(_)) | None => Process::Unknown,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn of(owner: &Owner, alive: impl Fn(&Owner) -> bool) -> Process {
        if alive(owner) { Process::Unknown } else { Process::Gone }
    }
}
