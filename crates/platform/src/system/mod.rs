//! One module for each system, with the same functions. `portable` uses nothing but POSIX; the others take from it what
//! they have no better way for. Built with `AYE_PORTABLE=1`, it stands in for every system.

#[cfg(all(target_os = "linux", not(portable)))]
mod linux;
#[cfg(all(target_os = "macos", not(portable)))]
mod macos;
#[cfg(any(test, portable, not(target_os = "linux")))]
#[allow(clippy::unnecessary_wraps, reason = "elsewhere these functions fail")]
#[cfg_attr(
    not(portable),
    allow(dead_code, unreachable_pub, reason = "others take part of it; its tests run on every system")
)]
mod portable;

#[cfg(all(target_os = "linux", not(portable)))]
pub use linux::*;
#[cfg(all(target_os = "macos", not(portable)))]
pub use macos::*;
#[cfg(any(portable, not(any(target_os = "linux", target_os = "macos"))))]
pub use portable::*;
