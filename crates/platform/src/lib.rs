//! The seam between aye and the systems it runs on: clocks, processes, files, terminals, and locks that show which
//! processes are alive. Nothing above asks for the system's name, but for what it has. The sandbox has a seam of its own.

mod attributes;
mod locks;
mod process;
mod stat;
mod system;
mod system_text;

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

pub use attributes::{FileAttributes, permissions};
pub use locks::{HeldLock, LockFolder, LockState, lock_private_file};
pub use process::{
    Process, boot_id, command_line, descendants, hostname, in_session, machine_id, signal, signal_group,
    started, started_by,
};
pub use stat::ProcessStat;
pub use system::{
    ACCESS_LIST, ADOPTS_ORPHANS, INSPECTED, PASSAGE, adopt_orphans, cannot_see_processes, drop_inspection,
    end_of_child, end_of_process, hide_memory, hide_variables, ignores_case, input_to_poll,
    is_copied_attribute, known_descendants, locks, memory_bytes, mounts, network_kind, open_beneath,
    open_terminal, own_control_groups, own_program, own_terminal, process, processes, processes_with_words,
    proportional_bytes, rename_new, reserve, resident_bytes, set_folder_mode, set_thread_niceness,
    system_call_filters, with_short_path,
};

/// A system, for what people call by its name: programs, keychains and words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Linux,
    MacOs,
    Other,
}

/// The system that this program was built for.
pub const SYSTEM: System = if cfg!(target_os = "linux") {
    System::Linux
} else if cfg!(target_os = "macos") {
    System::MacOs
} else {
    System::Other
};

/// Whether this program was built to use nothing but POSIX.
pub const IS_PORTABLE: bool = cfg!(portable);

/// Unix milliseconds.
pub fn now_ms() -> u64 {
    ms(ClockId::Realtime)
}

/// Milliseconds since the machine started: the same for all processes of one boot, never put back, and counting while
/// the machine sleeps.
pub fn uptime_ms() -> u64 {
    ms(system::UPTIME)
}

/// Milliseconds that the machine has been awake, where the system tells.
pub fn awake_ms() -> u64 {
    ms(ClockId::Monotonic)
}

fn ms(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}

/// Whether a path without links is one of the kernel's, and names no file on a disk.
pub fn is_of_the_kernel(real: &Path) -> bool {
    ["/proc", "/sys", "/dev"].iter().any(|folder| real.starts_with(folder))
}

/// Whether a path without links is about a process: its memory, its environment, its open files.
pub fn is_of_a_process(real: &Path) -> bool {
    let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
    real.strip_prefix("/proc")
        .is_ok_and(|rest| rest.iter().next().and_then(|name| name.to_str()).is_some_and(is_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", not(portable)))]
    fn the_clock_of_leases_counts_while_the_machine_sleeps() {
        let at = |clock| clock_gettime(clock).tv_sec.unsigned_abs();
        let (before, now) = (at(ClockId::Boottime), uptime_ms() / 1000);
        assert!((before..=at(ClockId::Boottime)).contains(&now), "it is not the clock since the boot");
    }

    #[test]
    fn paths_of_the_kernel_are_recognized() {
        let kernel = |path: &str| is_of_the_kernel(Path::new(path));
        assert!(kernel("/proc/1/environ") && kernel("/dev/null") && kernel("/sys"));
        assert!(!kernel("/process") && !kernel("/home/dev"));
        let process = |path: &str| is_of_a_process(Path::new(path));
        assert!(process("/proc/1/environ"));
        assert!(!process("/proc/meminfo") && !process("/home/proc/1"));
    }
}
