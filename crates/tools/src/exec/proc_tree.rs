//! The descendants of a process, as reported by `/proc`.

#![expect(clippy::disallowed_methods, reason = "/proc is the kernel's")]

use std::collections::BTreeMap;

use rustix::process::{Pid, Signal};

use super::spec::SupervisorSpec;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// `R`, `S`, `Z`, `T`, ...
    pub(super) state: u8,
    /// When it started, in clock ticks since boot.
    pub(super) started: u64,
}

impl ProcessStat {
    /// What tells it from one that gets its number later.
    pub(super) fn id(&self) -> (i32, u64) {
        (self.pid, self.started)
    }

    /// Sends a signal to this process. If it has already gone, nothing happens.
    pub(super) fn signal(&self, sig: Signal) {
        if process(self.pid).is_some_and(|now| now.id() == self.id()) {
            signal(self.pid, sig);
        }
    }
}

/// Parses one line of `/proc/PID/stat`. The name is in parentheses and may contain any byte, parentheses too.
fn parse_stat(line: &[u8]) -> Option<ProcessStat> {
    let open = line.iter().position(|b| *b == b'(')?;
    let close = line.iter().rposition(|b| *b == b')')?;
    let pid = std::str::from_utf8(line.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    // Field 22; the session was field 6.
    let started = fields.nth(15)?.parse().ok()?;
    Some(ProcessStat { pid, parent, group, session, state, started })
}

/// Returns the process, or `None` if it does not exist.
pub(super) fn process(pid: i32) -> Option<ProcessStat> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The supervisors that live and work for this run.
pub(super) fn supervisors_of(run: &str) -> Vec<ProcessStat> {
    let mut found = all();
    found.retain(|process| {
        let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let mut words = line.split(|b| *b == 0).skip(1);
        words.next() == Some(super::SUPERVISE_ARG.as_bytes())
            && words
                .next()
                .and_then(|word| std::str::from_utf8(word).ok()?.parse::<SupervisorSpec>().ok())
                .is_some_and(|duty| duty.run == run)
    });
    found
}

/// All processes that may be seen.
fn all() -> Vec<ProcessStat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(process)
        .collect()
}

/// Returns all living processes below `root`, whatever group or session they moved to. Zombies are left out.
pub(super) fn descendants(root: i32) -> Vec<ProcessStat> {
    let mut children: BTreeMap<i32, Vec<ProcessStat>> = BTreeMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(parent) = queue.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            queue.push(child.pid);
            if child.state != b'Z' && child.state != b'X' {
                found.push(child);
            }
        }
    }
    found
}

/// The same, from the kernel's lists of children: faster where many processes run, and without those that are being
/// started. `None` if the kernel does not have them.
pub(super) fn known_descendants(root: i32) -> Option<Vec<ProcessStat>> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            match std::fs::read_to_string(thread.path().join("children")) {
                Ok(children) => {
                    open.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
                }
                // The thread has ended.
                Err(_) if parent != root => {}
                Err(_) => return None,
            }
        }
        if parent != root {
            found.extend(process(parent).filter(|process| process.state != b'Z' && process.state != b'X'));
        }
    }
    Some(found)
}

/// All living processes of a session but its leader.
pub(super) fn in_session(session: i32) -> Vec<ProcessStat> {
    all().into_iter().filter(|p| p.session == session && p.pid != session && p.state != b'Z').collect()
}

/// Returns the command line for display, truncated.
pub(super) fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> =
        bytes.split(|b| *b == 0).filter(|w| !w.is_empty()).map(String::from_utf8_lossy).collect();
    let line = if words.is_empty() {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
    } else {
        words.join(" ")
    };
    line.chars().take(100).collect()
}

/// Sends a signal to one process. If the process has already gone, nothing happens.
pub(super) fn signal(pid: i32, signal: Signal) {
    if pid > 1
        && let Some(pid) = Pid::from_raw(pid)
    {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Sends a signal to a group. If the group has already gone, nothing happens.
pub(super) fn signal_group(group: i32, signal: Signal) {
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
    fn parentheses_in_a_name_do_not_shift_the_fields() {
        let line = b"42 (a) b (c)) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9911 100";
        let process = parse_stat(line).expect("it parses");
        assert_eq!(
            process,
            ProcessStat { pid: 42, parent: 7, group: 42, session: 41, state: b'S', started: 9911 }
        );
        assert_eq!(parse_stat(b"42 (x) S"), None);
        assert_eq!(parse_stat(b""), None);
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
}
