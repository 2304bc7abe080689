//! The machine's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use aye_core::contract::clock::Clock;

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn awake_ms(&self) -> u64 {
        aye_platform::awake_ms()
    }
}
