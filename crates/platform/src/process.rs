//! The identity of processes and machines. Where a system does not tell, strings are empty and numbers 0.

use std::sync::OnceLock;

/// A process, in terms that tell it from any other one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number, which means something in its pid namespace only.
    pub pid: u32,
    /// When it started, in clock ticks since boot, so that a reused number is not mistaken for it.
    pub started: u64,
    /// The pid namespace in which its number counts.
    pub pid_namespace: u64,
    /// The boot of its machine.
    pub boot_id: String,
}

impl Process {
    /// Returns this process.
    pub fn this() -> Process {
        Process {
            pid: std::process::id(),
            started: started(std::process::id()).unwrap_or(0),
            pid_namespace: pid_namespace(),
            boot_id: boot_id().to_owned(),
        }
    }
}

fn line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Returns the id of the running boot.
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| line("/proc/sys/kernel/random/boot_id"))
}

/// Returns the id of this machine, which outlives a boot. The system wants it kept confidential: hash it before it is
/// stored. Containers often have none.
pub fn machine_id() -> String {
    let is_id = |id: &String| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    let written = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(line);
    written.into_iter().find(is_id).unwrap_or_default()
}

/// Returns the machine's name, for people.
pub fn hostname() -> String {
    let names = ["/proc/sys/kernel/hostname", "/etc/hostname"].map(line);
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
}

fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// Returns when a process of this pid namespace started, in clock ticks since boot; `None` if there is none, or it has
/// ended and only its status is left.
pub fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may contain spaces, brackets and any byte.
    let end = stat.iter().rposition(|b| *b == b')')?;
    let mut fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace();
    // Field 22 of stat(5) is the start; the state is field 3.
    let is_over = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !is_over)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known_by_its_number_start_namespace_and_boot() {
        let this = Process::this();
        assert_eq!(this.pid, std::process::id());
        assert!(this.started > 0 && this.pid_namespace > 0 && this.boot_id.len() == 36, "{this:?}");
        assert_eq!(started(this.pid), Some(this.started));
        assert_eq!(started(u32::MAX), None);
    }

    #[test]
    fn a_process_that_has_ended_is_none_although_its_status_was_not_read() {
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        while started(child.id()).is_some() {
            std::thread::yield_now();
        }
        child.wait().expect("it ended");
    }
}
