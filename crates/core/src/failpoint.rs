//! Places where a test build dies as if the process lost power, or stops as if the machine had no time for it.
//!
//! Without the feature `failpoints` a place is an empty inline function. With it, the composition root arms one place
//! once at start; nothing here reads the environment.

#[cfg(feature = "failpoints")]
pub use armed::{arm, failpoint};

/// Marks a place where a test build may be made to die. This build does nothing.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn failpoint(_name: &str) {}

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::process::Signal;

    struct Armed {
        name: String,
        signal: Signal,
        left: AtomicU32,
    }

    static ARMED: OnceLock<Armed> = OnceLock::new();

    /// Arms one place: `name` for the first time the place is reached, `name:3` for the third; `stop:name`
    /// stops the process there until it is continued. Only the first call counts.
    pub fn arm(place: String) {
        let (place, signal) = match place.strip_prefix("stop:") {
            Some(place) => (place.to_owned(), Signal::STOP),
            None => (place, Signal::KILL),
        };
        let (name, times) = match place.rsplit_once(':') {
            Some((name, times)) if times.parse::<u32>().is_ok_and(|n| n > 0) => {
                (name.to_owned(), times.parse().unwrap_or(1))
            }
            _ => (place, 1),
        };
        let _ = ARMED.set(Armed { name, signal, left: AtomicU32::new(times) });
    }

    /// Kills this process without any goodbye, or stops it, when the place is the armed one.
    pub fn failpoint(name: &str) {
        let Some(armed) = ARMED.get() else { return };
        if armed.name == name && armed.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), armed.signal);
            if armed.signal == Signal::KILL {
                std::process::abort();
            }
        }
    }
}
