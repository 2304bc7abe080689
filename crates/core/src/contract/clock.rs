//! Time as a value from the composition root.

use std::fmt;
use std::time::Duration;

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

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        aye_platform::now_ms()
    }

    fn awake_ms(&self) -> u64 {
        aye_platform::awake_ms()
    }
}

/// Returns a length of time in milliseconds.
pub fn in_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Returns [`Clock::uptime_ms`] of this machine.
pub fn uptime_ms() -> u64 {
    aye_platform::uptime_ms()
}
