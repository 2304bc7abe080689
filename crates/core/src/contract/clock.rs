//! Time as a value from the composition root.

use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time. Tests provide their own.
pub trait Clock: Send + Sync {
    /// Unix milliseconds.
    fn now_ms(&self) -> u64;

    /// Milliseconds since the machine started: the same for all processes of one boot, never put back, and counting while
    /// the machine sleeps. For leases.
    fn uptime_ms(&self) -> u64 {
        uptime_ms()
    }

    /// Milliseconds from some moment on, without those in which the machine slept. For the active time of runs.
    fn awake_ms(&self) -> u64 {
        self.now_ms()
    }
}

/// Returns [`Clock::uptime_ms`] of this machine.
pub fn uptime_ms() -> u64 {
    aye_platform::uptime_ms()
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

    fn awake_ms(&self) -> u64 {
        aye_platform::awake_ms()
    }
}
