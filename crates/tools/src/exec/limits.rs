//! Limits on what a command takes from the machine: processes, memory, temporary files.
//!
//! Where aye can make control groups, the kernel counts processes and memory. Elsewhere aye looks twice a second, and the
//! sandbox's own limit of processes holds for users other than root. Temporary files are always counted here.

#![expect(
    clippy::disallowed_methods,
    reason = "control groups are the kernel's; of temporary files only the sizes count"
)]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use super::ExecResult;
use aye_platform::{descendants, process, proportional_bytes, resident_bytes, signal};

/// How often a command is looked at that no control group limits.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Temporary files are counted again when this part of their limit was written.
const PART: u64 = 16;
/// Directory entries that are counted at most.
const MAX_ENTRIES: usize = 1_000_000;
/// How often a group is removed again whose processes are ending.
const ROUNDS: usize = 20;
/// The start of the names of aye's control groups.
const GROUP: &str = "aye-";

/// The most that one command may take; [`u64::MAX`] is no limit.
#[derive(Clone, Debug)]
pub struct CommandLimits {
    /// Processes and threads at once.
    pub processes: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of files in `/dev/shm`.
    pub shared_memory: Option<u64>,
    /// The folder of temporary files, and the bytes in it.
    pub tmp: Option<(PathBuf, u64)>,
    /// Where control groups can be made.
    pub groups: Arc<ControlGroups>,
}

impl CommandLimits {
    fn on_processes(&self) -> String {
        format!(
            "the command met the limit of {} processes and threads (sandbox.max_processes)",
            self.processes
        )
    }

    fn on_memory(&self) -> String {
        format!(
            "the command met the limit of {} MiB of memory (sandbox.max_memory_percent)",
            self.memory >> 20
        )
    }

    /// Adds to the result which limits its command met. `group` has counted it.
    pub(super) fn explain(&self, group: Option<&ControlGroup>, result: &mut ExecResult) {
        let (processes, memory) = group.map(ControlGroup::met).unwrap_or_default();
        let mentions =
            |words: &[&str]| words.iter().any(|word| result.output.to_ascii_lowercase().contains(word));
        let has_failed = !result.is_success();
        if processes {
            result.notes.push(self.on_processes());
        } else if has_failed
            && mentions(&["resource temporarily unavailable", "cannot fork", "failed to spawn thread"])
        {
            result.notes.push(format!("perhaps {}", self.on_processes()));
        }
        if memory {
            result.notes.push(self.on_memory());
        }
        if let Some(bytes) = self.shared_memory
            && has_failed
            && mentions(&["no space left on device"])
            && mentions(&["/dev/shm", "shared memory", "shm_open"])
        {
            result.notes.push(format!(
                "perhaps the command met the limit of {} MiB in /dev/shm (half of sandbox.max_memory_percent)",
                bytes >> 20
            ));
        }
    }

    /// Waits until the command takes too much, and returns what it was. `pid` is above its processes.
    pub(super) async fn exceeded(self: Arc<Self>, pid: i32, is_counted: bool) -> String {
        let mut watch = TmpWatch::new(&self);
        let mut pause = CHECK_INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            // A server that runs for days changes slowly.
            pause = (pause + CHECK_INTERVAL / 50).min(10 * CHECK_INTERVAL);
            let (limits, mut before) = (Arc::clone(&self), watch);
            let checked = tokio::task::spawn_blocking(move || {
                let taken = || {
                    let below = descendants(pid).iter().map(|process| process.pid).collect::<Vec<_>>();
                    limits.taken(&below)
                };
                let found = before.exceeded().or_else(|| if is_counted { None } else { taken() });
                (before, found)
            });
            match checked.await {
                Ok((_, Some(found))) => return found,
                Ok((now, None)) => watch = now,
                Err(_) => return std::future::pending().await,
            }
        }
    }

    /// What these processes take too much of.
    fn taken(&self, processes: &[i32]) -> Option<String> {
        if processes.len() as u64 > self.processes {
            return Some(self.on_processes());
        }
        let resident: u64 = processes.iter().filter_map(|pid| resident_bytes(*pid)).sum();
        if resident <= self.memory {
            return None;
        }
        // Processes share pages: each has its part of them.
        let parts: Vec<(u64, i32)> =
            processes.iter().filter_map(|pid| Some((proportional_bytes(*pid)?, *pid))).collect();
        if parts.iter().map(|(bytes, _)| bytes).sum::<u64>() <= self.memory {
            return None;
        }
        // As the kernel would, so that the rest has time to end.
        if let Some((_, largest)) = parts.iter().max() {
            signal(*largest, Signal::KILL);
        }
        Some(self.on_memory())
    }
}

/// The number after a word at the start of a line.
fn number_after(text: &str, word: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Counts temporary files when much was written where they are.
struct TmpWatch {
    folder: Option<(PathBuf, u64)>,
    free: u64,
}

impl TmpWatch {
    fn new(limits: &CommandLimits) -> TmpWatch {
        let free = limits.tmp.as_ref().map(|(folder, _)| free(folder)).unwrap_or_default();
        // Nobody's disk becomes full.
        let folder = limits.tmp.clone().map(|(folder, most)| (folder, most.min(free / 2).max(1)));
        TmpWatch { folder, free }
    }

    fn exceeded(&mut self) -> Option<String> {
        let (folder, most) = self.folder.as_ref()?;
        let now = free(folder);
        if self.free.saturating_sub(now) < most / PART {
            // Others may remove files meanwhile.
            self.free = self.free.max(now);
            return None;
        }
        self.free = now;
        (bytes_in(folder, *most) > *most).then(|| {
            format!(
                "the command met the limit of {} MiB of temporary files in /tmp (sandbox.max_tmp_mib)",
                most >> 20
            )
        })
    }
}

/// The free bytes of a file system.
fn free(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map(|about| about.f_bavail.saturating_mul(about.f_frsize)).unwrap_or_default()
}

/// The bytes that files below a folder occupy; counting ends above `most`.
fn bytes_in(folder: &Path, most: u64) -> u64 {
    let (mut bytes, mut entries) = (0, 0);
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            bytes += about.blocks() * 512;
            entries += 1;
            if about.is_dir() {
                open.push(entry.path());
            }
            if bytes > most || entries > MAX_ENTRIES {
                return bytes;
            }
        }
    }
    bytes
}

/// The folders of control groups in which aye may make its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlGroups {
    /// One of version 2, which counts both.
    both: Option<PathBuf>,
    /// Of version 1, where version 2 counts nothing.
    processes: Option<PathBuf>,
    memory: Option<PathBuf>,
}

impl ControlGroups {
    /// Looks for them, and removes groups that processes of aye left which are gone.
    pub fn find() -> ControlGroups {
        let (mounts, own) = (aye_platform::mounts(), aye_platform::own_control_groups());
        let usable = |folder: &PathBuf| {
            let access = rustix::fs::Access::WRITE_OK;
            [folder.clone(), folder.join("cgroup.procs")]
                .iter()
                .all(|path| rustix::fs::access(path, access).is_ok())
        };
        // Only the root of a file system of version 2 may contain processes beside groups.
        let both = group_folder(&mounts, &own, "").map(|(folder, is_root)| {
            if is_root { folder } else { folder.parent().map(Path::to_owned).unwrap_or(folder) }
        });
        let counts = |folder: &PathBuf| {
            let has = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
            ["pids", "memory"].iter().all(|name| has.split_whitespace().any(|one| one == *name))
        };
        let both = both.filter(|folder| counts(folder) && usable(folder));
        let of = |name| {
            group_folder(&mounts, &own, name).map(|it| it.0).filter(|folder| both.is_none() && usable(folder))
        };
        let found = ControlGroups { processes: of("pids"), memory: of("memory"), both };
        [&found.both, &found.processes, &found.memory].into_iter().flatten().for_each(|folder| tidy(folder));
        found
    }

    /// Makes a group with these limits; `None` where there can be none that counts processes and memory.
    pub(super) fn make(&self, limits: &CommandLimits) -> Option<ControlGroup> {
        let name = format!("{GROUP}{}-{}", std::process::id(), uuid::Uuid::now_v7().simple());
        let mut group = ControlGroup::default();
        let mut add = |parent: &Path, settings: &[(&str, u64)]| -> Option<()> {
            let folder = parent.join(&name);
            fs::create_dir(&folder).ok()?;
            group.folders.push(folder.clone());
            let mut limited = settings.iter().filter(|(_, most)| *most != u64::MAX);
            limited.try_for_each(|(file, most)| fs::write(folder.join(file), most.to_string()).ok())
        };
        match (&self.both, &self.processes, &self.memory) {
            (Some(both), ..) => {
                add(both, &[("pids.max", limits.processes), ("memory.max", limits.memory)])?;
            }
            (None, Some(processes), Some(memory)) => {
                add(processes, &[("pids.max", limits.processes)])?;
                add(memory, &[("memory.limit_in_bytes", limits.memory)])?;
            }
            _ => return None,
        }
        Some(group)
    }
}

/// The folder of this process in a hierarchy of control groups, and whether it is the root of what is mounted: `name` is
/// a controller of version 1, or empty for version 2.
fn group_folder(mounts: &str, own: &str, name: &str) -> Option<(PathBuf, bool)> {
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        (names.split(',').any(|one| one == name)).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut about = after.split(' ');
        let (kind, options) = (about.next()?, about.nth(1).unwrap_or_default());
        let fits = match name {
            "" => kind == "cgroup2",
            name => kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        let below = Path::new(path).strip_prefix(root).ok().filter(|_| fits)?;
        let is_root = below.as_os_str().is_empty();
        Some((if is_root { PathBuf::from(point) } else { Path::new(point).join(below) }, is_root))
    })
}

/// Removes empty groups of processes that are gone. The kernel keeps one that has processes.
fn tidy(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(GROUP)?.split('-').next()?.parse::<i32>().ok());
        if pid.is_some_and(|pid| process(pid).is_none()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The control group of one command. It is removed when this is dropped.
#[derive(Debug, Default)]
pub(super) struct ControlGroup {
    folders: Vec<PathBuf>,
}

impl ControlGroup {
    /// Takes in a process and everything below it. Returns whether that worked.
    pub(super) fn take_in(&self, pid: i32) -> bool {
        let mut known = Vec::new();
        // What a process starts after it was taken in is in the group, so each round finds fewer.
        for _ in 0..20 {
            let below = descendants(pid).into_iter().map(|process| process.pid);
            let new: Vec<i32> = below.chain([pid]).filter(|pid| !known.contains(pid)).collect();
            if new.is_empty() {
                break;
            }
            for pid in &new {
                for folder in &self.folders {
                    let moved = fs::write(folder.join("cgroup.procs"), pid.to_string());
                    if moved.is_err() && process(*pid).is_some() {
                        return false;
                    }
                }
            }
            known.extend(new);
        }
        true
    }

    /// Whether the limits of processes and of memory were met.
    fn met(&self) -> (bool, bool) {
        let mut all = String::new();
        for folder in &self.folders {
            for file in ["pids.events", "memory.events", "memory.oom_control"] {
                let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
                // The events of memory have a `max`, too, which is reached without any harm.
                let text = if file == "pids.events" { text.replace("max", "processes") } else { text };
                let _ = writeln!(all, "{text}");
            }
        }
        let counted = |word: &str| number_after(&all, word).is_some_and(|count| count > 0);
        (counted("processes "), counted("oom_kill "))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.folders);
        let remove = |left: &mut Vec<PathBuf>| left.retain(|folder| fs::remove_dir(folder).is_err());
        remove(&mut left);
        // Processes of the command may still be ending. If aye ends, too, its next start removes the group.
        if !left.is_empty() {
            let remove_later = move || {
                for _ in 0..ROUNDS {
                    std::thread::sleep(CHECK_INTERVAL / 5);
                    remove(&mut left);
                }
            };
            let _ = std::thread::Builder::new().spawn(remove_later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n\
        31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
        32 23 0:28 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn the_own_group_is_found_in_each_version() {
        let own = "5:memory:/docker/x/y\n4:cpu,pids:/a\n0::/user.slice/app.slice/t.scope\n";
        let of = |name| {
            group_folder(MOUNTS, own, name).map(|(path, is_root)| (path.display().to_string(), is_root))
        };
        assert_eq!(of(""), Some(("/sys/fs/cgroup/user.slice/app.slice/t.scope".into(), false)));
        assert_eq!(of("pids"), Some(("/sys/fs/cgroup/pids/a".into(), false)));
        assert_eq!(of("memory"), Some(("/sys/fs/cgroup/memory/y".into(), false)));
        assert_eq!(of("cpu"), None, "it is not mounted");
        let at_root = group_folder(MOUNTS, "0::/\n", "");
        assert_eq!(at_root, Some(("/sys/fs/cgroup".into(), true)));
    }

    #[test]
    fn temporary_files_are_counted_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        for name in ["a/x", "y"] {
            fs::write(dir.path().join(name), vec![1; 100_000]).unwrap();
        }
        std::os::unix::fs::symlink("/", dir.path().join("all")).unwrap();
        let bytes = bytes_in(dir.path(), u64::MAX);
        assert!((200_000..1_000_000).contains(&bytes), "{bytes}");
        let some = bytes_in(dir.path(), 50_000);
        assert!(some > 50_000 && some < bytes, "{some}");
    }

    #[test]
    fn a_process_is_measured() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(resident_bytes(own).is_none_or(|bytes| bytes > 100_000));
        assert!(proportional_bytes(own).is_none_or(|bytes| bytes > 100_000));
        let limits = |processes, memory| CommandLimits {
            processes,
            memory,
            shared_memory: None,
            tmp: None,
            groups: Arc::default(),
        };
        assert_eq!(limits(1, u64::MAX).taken(&[own]), None);
        assert!(limits(1, u64::MAX).taken(&[own, own]).unwrap().contains("limit of 1 processes"));
    }
}
