//! Time as a value from the composition root.

use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time. Tests provide their own.
pub trait Clock: Send + Sync {
    /// Unix milliseconds.
    fn now_ms(&self) -> u64;

    /// Milliseconds of the machine's monotonic clock: the same for all processes of one boot, never put back, and
    /// standing still while the machine sleeps. For leases.
    fn uptime_ms(&self) -> u64 {
        uptime_ms()
    }
}

/// Returns [`Clock::uptime_ms`] of this machine.
pub fn uptime_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let ms = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    u64::try_from(ms).unwrap_or(0)
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else is given")]
    fn now_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
