//! What differs between systems: the clock of leases, the identity of processes, and locks that show which processes
//! are alive.

mod locks;
mod process;

use rustix::time::{ClockId, clock_gettime};

pub use locks::{HeldLock, LockFolder, LockState};
pub use process::{Process, boot_id, hostname, machine_id, started};

/// Milliseconds since the machine started: the same for all processes of one boot, never put back, and counting while
/// the machine sleeps.
pub fn uptime_ms() -> u64 {
    // What other systems call monotonic counts during sleep, or they have nothing that does.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    ms(clock)
}

/// Milliseconds that the machine has been awake, where the system tells.
pub fn awake_ms() -> u64 {
    ms(ClockId::Monotonic)
}

fn ms(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_clock_of_leases_counts_while_the_machine_sleeps() {
        let at = |clock| clock_gettime(clock).tv_sec.unsigned_abs();
        let (before, now) = (at(ClockId::Boottime), uptime_ms() / 1000);
        assert!((before..=at(ClockId::Boottime)).contains(&now), "it is not the clock since the boot");
    }
}
