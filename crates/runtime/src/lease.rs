//! The lease of an active driver, renewed until dropped.
//!
//! A lease expires after its length unless it is renewed before, which its owner counts by the clock since the boot, from
//! before it asked the store. Another process can then acquire the thread, even from an owner that is alive but was stopped or starved. Such an owner notices it at its
//! next write, which fails, at its next renewal, and before each start of a tool, which needs enough time left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::RuntimeCore;
use super::request::RuntimeError;
use aye_core::contract::clock::in_ms;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::record::Fence;
use aye_core::contract::storage::StoreError;
use aye_core::contract::tool::LeaseEnd;

/// The default length of a lease.
pub(super) const LENGTH: Duration = Duration::from_secs(10);
/// So often a renewal that does not leave enough time is tried again before a start.
const TRIES: usize = 10;

pub(super) struct Lease {
    shared: Arc<RuntimeCore>,
    fence: Fence,
    /// The time until which the lease certainly holds.
    until: watch::Sender<u64>,
    lost: CancellationToken,
    /// Whether the last write under it released it.
    released: AtomicBool,
}

/// A lease that is renewed until this is dropped.
pub(super) struct LeaseGuard {
    pub(super) lease: Arc<Lease>,
    renewal: JoinHandle<()>,
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl LeaseGuard {
    /// Keeps up a lease that was requested at that point of the clock.
    pub(super) fn new(shared: Arc<RuntimeCore>, fence: Fence, requested: u64) -> Self {
        let until = watch::Sender::new(requested.saturating_add(in_ms(shared.lease)));
        let (lost, released) = (CancellationToken::new(), AtomicBool::new(false));
        let lease = Arc::new(Lease { shared, fence, until, lost, released });
        let kept = Arc::clone(&lease);
        let renewal = tokio::spawn(async move { kept.renew_until_dropped().await });
        Self { lease, renewal }
    }
}

impl Lease {
    /// Returns the fence that every write carries.
    pub(super) fn fence(&self) -> &Fence {
        &self.fence
    }

    pub(super) fn thread_id(&self) -> &ThreadId {
        &self.fence.thread_id
    }

    /// Ends when the lease is known to be lost.
    pub(super) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Notes that the last write released the lease.
    pub(super) fn note_release(&self) {
        self.released.store(true, Ordering::Release);
    }

    /// Returns whether the last write released the lease.
    pub(super) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    async fn renew_until_dropped(&self) {
        while !self.lost.is_cancelled() && !self.is_released() {
            tokio::time::sleep(self.shared.lease / 3).await;
            self.shared.announced.keep();
            // A store that is busy now may do it the next time; until then nothing is started.
            if let Err(error) = self.renew().await {
                tracing::warn!(thread = %self.thread_id(), %error, "the lease could not be renewed");
            }
        }
    }

    /// Makes it last longer; `false` when it is lost.
    async fn renew(&self) -> Result<bool, StoreError> {
        // The clock is read before the request to the store: however long the request takes, a confirmed
        // lease lasts at least until then.
        let requested = self.shared.clock.uptime_ms();
        let left = self.shared.store.renew(&self.fence, self.shared.lease).await?;
        if let Some(left) = left {
            let until = requested.saturating_add(in_ms(left));
            self.until.send_if_modified(|known| {
                let is_later = until > *known;
                *known = until.max(*known);
                is_later
            });
        } else {
            self.lost.cancel();
        }
        Ok(left.is_some())
    }

    /// Returns the time until which something that was started under the lease may run. What ends then has the rest of the
    /// lease to end in.
    pub(super) fn end(&self) -> LeaseEnd {
        LeaseEnd::new(self.until.subscribe(), in_ms(self.shared.lease) / 10)
    }

    /// Ensures that the lease lasts long enough to start something under it. Returns the time after which
    /// that must no longer be started.
    pub(super) async fn confirm(&self) -> Result<u64, RuntimeError> {
        let fenced = || RuntimeError::Fenced { thread_id: self.thread_id().clone() };
        let length = in_ms(self.shared.lease);
        for _ in 0..TRIES {
            let until = *self.until.borrow();
            let left = until.saturating_sub(self.shared.clock.uptime_ms());
            if self.lost.is_cancelled() {
                return Err(fenced());
            }
            if left > length / 2 {
                return Ok(until - length / 10);
            }
            if !self.renew().await? {
                return Err(fenced());
            }
        }
        Err(RuntimeError::Store(format!(
            "thread {}: nothing can be started, because the lease of {length} ms expires before the store \
             confirms it",
            self.thread_id()
        )))
    }
}
