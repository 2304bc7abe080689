//! Processes and machines: who they are, and signals to them. Where a system does not tell, strings are empty and numbers
//! 0.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rustix::process::{Pid, Signal};

use crate::stat::ProcessStat;
use crate::system;
use crate::system_text::line;

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
    pub fn this() -> Process {
        Process {
            pid: std::process::id(),
            started: started(std::process::id()).unwrap_or(0),
            pid_namespace: system::pid_namespace(),
            boot_id: boot_id().to_owned(),
        }
    }
}

/// Returns the id of the running boot.
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(system::boot_id)
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
    system::hostname()
}

/// Returns when a process of this pid namespace started, in clock ticks since boot; `None` if there is none, or it has
/// ended and only its status is left, or the system does not tell.
pub fn started(pid: u32) -> Option<u64> {
    system::started(pid)
}

impl ProcessStat {
    /// Sends a signal to this process. If it has already gone, nothing happens.
    pub fn signal(&self, sig: Signal) {
        if system::process(self.pid).is_some_and(|now| now.id() == self.id()) {
            signal(self.pid, sig);
        }
    }
}

/// Returns all living processes below `root`, whatever group or session they moved to.
pub fn descendants(root: i32) -> Vec<ProcessStat> {
    below(root, system::processes())
}

fn below(root: i32, all: Vec<ProcessStat>) -> Vec<ProcessStat> {
    let mut children: BTreeMap<i32, Vec<ProcessStat>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(parent) = queue.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            queue.push(child.pid);
            if !child.is_over() {
                found.push(child);
            }
        }
    }
    found
}

/// Returns all living processes of a session but its leader.
pub fn in_session(session: i32) -> Vec<ProcessStat> {
    let mut all = system::processes();
    all.retain(|process| process.session == session && process.pid != session && !process.is_over());
    all
}

/// Returns what a process has started and is still alive: everything below it, and, where orphans get another parent
/// ([`ADOPTS_ORPHANS`](crate::ADOPTS_ORPHANS)), everything in these sessions and below that. There, what has left its
/// session and lost its parent is not found.
pub fn started_by(root: i32, sessions: &[i32]) -> Vec<ProcessStat> {
    let all = system::processes();
    let orphans: Vec<_> = if system::ADOPTS_ORPHANS {
        Vec::new()
    } else {
        let is_orphan = |process: &&ProcessStat| sessions.contains(&process.session) && process.pid != root;
        all.iter().filter(is_orphan).filter(|process| !process.is_over()).copied().collect()
    };
    let mut found = below(root, all.clone());
    for orphan in orphans {
        for process in below(orphan.pid, all.clone()).into_iter().chain([orphan]) {
            if !found.contains(&process) {
                found.push(process);
            }
        }
    }
    found
}

/// Returns the command line of a process for display, at most 100 characters.
pub fn command_line(pid: i32) -> String {
    system::command_line(pid).chars().take(100).collect()
}

/// Sends a signal to one process. If the process has already gone, nothing happens.
pub fn signal(pid: i32, signal: Signal) {
    if pid > 1
        && let Some(pid) = Pid::from_raw(pid)
    {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Sends a signal to a group. If the group has already gone, nothing happens.
pub fn signal_group(group: i32, signal: Signal) {
    if group > 1
        && let Some(group) = Pid::from_raw(group)
    {
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known_by_its_number_start_namespace_and_boot() {
        let this = Process::this();
        assert_eq!(this.pid, std::process::id());
        assert_eq!(started(u32::MAX), None);
        if cfg!(all(target_os = "linux", not(portable))) {
            assert!(this.started > 0 && this.pid_namespace > 0 && this.boot_id.len() == 36, "{this:?}");
            assert_eq!(started(this.pid), Some(this.started));
        }
    }

    #[test]
    fn a_child_is_a_descendant() {
        let me = i32::try_from(std::process::id()).expect("a pid");
        let mut child = std::process::Command::new("sleep").arg("30").spawn().expect("sleep is there");
        let pid = i32::try_from(child.id()).expect("a pid");
        assert!(descendants(me).iter().any(|p| p.pid == pid));
        signal(pid, Signal::KILL);
        child.wait().expect("it ends");
        assert!(!descendants(me).iter().any(|p| p.pid == pid));
    }

    #[test]
    fn what_is_below_is_found_and_what_has_ended_is_left_out() {
        let of =
            |pid, parent, session, state| ProcessStat { pid, parent, group: pid, session, state, started: 1 };
        let all = vec![of(10, 1, 10, b'S'), of(11, 10, 10, b'S'), of(12, 11, 12, b'Z'), of(13, 12, 13, b'S')];
        let found: Vec<i32> = below(10, all).iter().map(|process| process.pid).collect();
        assert_eq!(found, [11, 13]);
    }
}
