//! Linux.

mod network;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::time::ClockId;

use crate::stat::ProcessStat;
use crate::system_text::line;

/// The clock that counts while the machine sleeps.
pub(crate) const UPTIME: ClockId = ClockId::Boottime;

/// How a folder is opened through which others are opened. It cannot be listed.
pub const PASSAGE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
/// How something is opened to learn what it is, without reading it.
pub const INSPECTED: OFlags = OFlags::PATH;
/// The attribute of a file that holds its access control list.
pub const ACCESS_LIST: Option<&str> = Some("system.posix_acl_access");
/// Whether [`adopt_orphans`] has an effect.
pub const ADOPTS_ORPHANS: bool = true;

pub(crate) fn boot_id() -> String {
    line("/proc/sys/kernel/random/boot_id")
}

pub(crate) fn hostname() -> String {
    let names = ["/proc/sys/kernel/hostname", "/etc/hostname"].map(line);
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
}

pub(crate) fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

pub(crate) fn started(pid: u32) -> Option<u64> {
    process(i32::try_from(pid).ok()?).filter(|process| !process.is_over()).map(|process| process.started)
}

/// Returns the running program as something to start: an upgrade of the file does not take it away. Other systems keep a
/// name of it in a folder of the user's for that.
pub fn own_program(_: &Path) -> Option<PathBuf> {
    Some("/proc/self/exe".into())
}

/// Takes the variables `is_hidden` names out of the environment that the system shows of this process, and out of the one
/// that the programs it starts would inherit. Must come before anything else runs.
///
/// Fails if the system does not show it without them afterwards.
pub fn hide_variables(is_hidden: &dyn Fn(&OsStr) -> bool) -> io::Result<()> {
    let is_entry_hidden = |entry: &[u8]| {
        let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
        !entry.is_empty() && is_hidden(OsStr::from_bytes(name))
    };
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // proc_pid_stat(5): env_start and env_end are fields 50 and 51; the state, after the name, is field 3.
    let mut fields = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().skip(50 - 3);
    let mut address = || fields.next().and_then(|field| field.parse::<u64>().ok()).filter(|at| *at > 0);
    let (start, end) = address().zip(address()).filter(|(start, end)| start < end).ok_or(Errno::NOSYS)?;
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let mut shown = vec![0; usize::try_from(end - start).unwrap_or(0)];
    memory.read_exact_at(&mut shown, start)?;
    let mut at = start;
    for entry in shown.split(|byte| *byte == 0) {
        if is_entry_hidden(entry) {
            memory.write_all_at(&vec![0; entry.len()], at)?;
        }
        at += entry.len() as u64 + 1;
    }
    let is_left = std::fs::read("/proc/self/environ")?.split(|byte| *byte == 0).any(is_entry_hidden);
    if is_left { Err(Errno::PERM.into()) } else { Ok(()) }
}

/// Returns why processes cannot be seen here, and what helps.
pub fn cannot_see_processes() -> Option<&'static str> {
    (!Path::new("/proc/self").exists()).then_some(
        "/proc is not mounted here, so aye cannot find out which processes are alive, and cannot stop what a \
         command left running; mount it with `mount -t proc proc /proc`",
    )
}

/// Returns the process, or `None` if it does not exist.
pub fn process(pid: i32) -> Option<ProcessStat> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
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
    // Field 22 of proc_pid_stat(5); the session was field 6.
    let started = fields.nth(15)?.parse().ok()?;
    Some(ProcessStat { pid, parent, group, session, state, started })
}

/// Returns all processes that may be seen.
pub fn processes() -> Vec<ProcessStat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(process)
        .collect()
}

/// Returns all processes that may be seen, with the words of their command lines as far as they are known.
pub fn processes_with_words() -> Vec<(ProcessStat, Vec<Vec<u8>>)> {
    processes().into_iter().map(|process| (process, words(process.pid))).collect()
}

fn words(pid: i32) -> Vec<Vec<u8>> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|b| *b == 0).map(<[u8]>::to_vec).collect()
}

pub(crate) fn command_line(pid: i32) -> String {
    let words = words(pid);
    let words: Vec<_> =
        words.iter().filter(|word| !word.is_empty()).map(|word| String::from_utf8_lossy(word)).collect();
    if words.is_empty() { line(&format!("/proc/{pid}/comm")) } else { words.join(" ") }
}

/// Returns all living processes below `root` from the kernel's lists of children: faster where many processes run, and
/// without those that are being started. `None` if the kernel does not have them.
pub fn known_descendants(root: i32) -> Option<Vec<ProcessStat>> {
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
            found.extend(process(parent).filter(|process| !process.is_over()));
        }
    }
    Some(found)
}

/// Returns a descriptor that is readable once this process has ended. `None` where there are none, and for a process that
/// does not exist.
pub fn end_of_process(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok()
}

/// The same for a child of this process, which has not been waited for.
pub fn end_of_child(pid: i32) -> Option<OwnedFd> {
    end_of_process(u32::try_from(pid).ok()?)
}

/// Makes this process the parent of everything below it that loses its own.
///
/// # Errors
/// When the kernel refuses.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Leaves no core dump of this process, and lets no other process of the user read its memory and environment.
pub fn hide_memory() {
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Removes the rights to inspect other processes, or all of the memory, from what this process starts: with any one of
/// them, a command that runs as root could read keys from the memory of a process that hid it. The command may still trace
/// its own processes. Users other than root have no such right. With `makes_namespaces` the right for that stays.
pub fn drop_inspection(makes_namespaces: bool) {
    use caps::{CapSet, Capability};
    let admin = (!makes_namespaces).then_some(Capability::CAP_SYS_ADMIN);
    let rights = [Capability::CAP_SYS_PTRACE, Capability::CAP_PERFMON, Capability::CAP_SYS_RAWIO];
    for right in rights.into_iter().chain(admin) {
        // The bounding set first: taking from it needs a right that stays, and an `exec` by root asks only there.
        for set in
            [CapSet::Bounding, CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted]
        {
            let _ = caps::drop(None, set, right);
        }
    }
}

/// Sets how much this thread gives way to others, from 0 to 19.
pub fn set_thread_niceness(niceness: i32) {
    // Without it the thread is only less considerate.
    let _ = rustix::process::setpriority_process(None, niceness);
}

/// Returns how many filters for system calls a process has: one in the sandbox has more than aye.
pub fn system_call_filters(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let number = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u32>().ok())
    };
    // Before Linux 5.9, only whether there are any is known.
    number("Seccomp_filters").or_else(|| number("Seccomp")).unwrap_or(0)
}

/// Returns the bytes of memory that a process uses, pages that it shares included.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    kib_after(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Returns the bytes of memory that a process uses, with its part of shared pages.
pub fn proportional_bytes(pid: i32) -> Option<u64> {
    kib_after(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Returns the bytes of memory of this machine.
pub fn memory_bytes() -> Option<u64> {
    kib_after("/proc/meminfo", "MemTotal:")
}

/// The bytes of the KiB after a word at the start of a line.
fn kib_after(path: &str, word: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Returns the mounts that this process sees, as the kernel lists them (`mountinfo`).
pub fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// Returns the control groups that this process is in, as the kernel lists them.
pub fn own_control_groups() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Returns the kernel's list of file locks; opening a file to ask for them would drop the locks of this process.
pub fn locks() -> Option<String> {
    std::fs::read_to_string("/proc/locks").ok()
}

/// Returns the name of the network file system that a folder is on; `None` on a local disk.
pub fn network_kind(folder: &Path) -> Option<String> {
    network::kind(folder, mounts)
}

/// Returns whether a folder ignores case, where each has a setting of its own. `None`: its volume decides for all.
pub fn ignores_case(folder: &Path) -> Option<bool> {
    /// The file systems with folders of both kinds: ext4, f2fs, tmpfs.
    const EITHER: [u32; 3] = [0xEF53, 0xF2F5_2010, 0x0102_1994];
    /// `FS_CASEFOLD_FL` of ioctl_iflags(2).
    const IGNORES: u32 = 0x4000_0000;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty()).ok()?;
    let kind = rustix::fs::fstatfs(&folder).ok()?.f_type;
    let kind = u32::try_from(i128::from(kind) & 0xFFFF_FFFF).ok()?;
    let flags = EITHER.contains(&kind).then(|| rustix::fs::ioctl_getflags(&folder).ok())??;
    Some(flags.bits() & IGNORES != 0)
}

/// Opens a path below an open folder without following any link, in one call. `None` where the kernel cannot.
pub fn open_beneath(folder: impl AsFd, path: &Path, flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve) {
        // The kernel does not have it, or a filter of system calls forbids it.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::TOOBIG | Errno::AGAIN) => None,
        opened => Some(opened),
    }
}

/// Renames a file within a folder to a name that nothing has. Returns `false`, having done nothing, where the file system
/// cannot do that at once.
///
/// # Errors
/// `EXIST` when something has the name; otherwise those of the system.
pub fn rename_new(folder: impl AsFd, from: &Path, to: &Path) -> Result<bool, Errno> {
    let folder = folder.as_fd();
    match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Makes sure that a file can grow to this size, where the system can tell. Its length stays.
///
/// # Errors
/// When the disk or a limit does not allow it.
pub fn reserve(file: &File, bytes: u64) -> Result<(), Errno> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes.max(1)) {
        Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(errno),
        _ => Ok(()),
    }
}

/// Sets the mode of an open folder, also of one that is only a [`PASSAGE`].
///
/// # Errors
/// Those of the system.
pub fn set_folder_mode(folder: impl AsFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::chmod(link_of(folder), mode)
}

/// Opens the terminal that this process belongs to.
///
/// # Errors
/// Those of the system.
pub fn own_terminal(flags: OFlags) -> io::Result<File> {
    Ok(rustix::fs::open("/dev/tty", flags | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Returns the terminal to read in place of standard input, where that one cannot be waited for.
///
/// # Errors
/// Those of the system.
pub fn input_to_poll() -> io::Result<Option<File>> {
    Ok(None)
}

/// Calls `work` with a short path to a folder, for what takes only short ones.
///
/// # Errors
/// Those of the system and of `work`.
pub fn with_short_path<T>(folder: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let opened = File::open(folder)?;
    work(&link_of(&opened))
}

fn link_of(open: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()).into()
}

/// Whether an attribute says something about a file or belongs to its user. The others are the system's.
pub fn is_copied_attribute(name: &[u8]) -> bool {
    name.starts_with(b"user.") || ACCESS_LIST.is_some_and(|list| name == list.as_bytes())
}

/// Makes a terminal. Returns the end of its owner and the end of a program.
///
/// # Errors
/// Those of the system.
pub fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let owner = openpt(flags)?;
    unlockpt(&owner)?;
    let program = ioctl_tiocgptpeer(&owner, flags)?;
    Ok((owner, program))
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
    fn a_process_that_has_ended_is_none_although_its_status_was_not_read() {
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        while started(child.id()).is_some() {
            std::thread::yield_now();
        }
        child.wait().expect("it ended");
    }
}
