//! What every system with POSIX has. Processes are those that `ps` lists.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Mode, OFlags, linkat, unlinkat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, WaitId, WaitIdOptions};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::time::ClockId;

use crate::stat::ProcessStat;

/// What other systems call monotonic counts while the machine sleeps, or they have nothing that does.
pub(crate) const UPTIME: ClockId = ClockId::Monotonic;

/// How a folder is opened through which others are opened.
pub const PASSAGE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// How something is opened to learn what it is. A pipe does not wait for its other end.
pub const INSPECTED: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// The attribute of a file that holds its access control list.
pub const ACCESS_LIST: Option<&str> = None;
/// Whether [`adopt_orphans`] has an effect.
pub const ADOPTS_ORPHANS: bool = false;

pub(crate) fn boot_id() -> String {
    String::new()
}

pub(crate) fn hostname() -> String {
    let output = Command::new("/usr/bin/uname").arg("-n").stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

pub(crate) fn pid_namespace() -> u64 {
    0
}

pub(crate) fn started(_: u32) -> Option<u64> {
    None
}

/// Fails: here a process cannot change what the system shows of it.
pub fn hide_variables(_: &dyn Fn(&OsStr) -> bool) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the running program as something to start: a name of it in `folder`, which an upgrade of the file does not take
/// away, or its own where there can be none.
pub fn own_program(folder: &Path) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(keep(&own, folder, SystemTime::now()).unwrap_or(own))
}

/// How long an older program is kept after it was replaced.
const KEPT: Duration = Duration::from_hours(24 * 30);

/// Gives a file a second name in a folder, the same each time, and removes names that nothing else has.
fn keep(file: &Path, folder: &Path, now: SystemTime) -> io::Result<PathBuf> {
    let about = file.metadata()?;
    let kept = folder.join(format!("{:x}-{:x}", about.ino(), about.mtime()));
    if kept.metadata().is_ok_and(|kept| (kept.dev(), kept.ino()) == (about.dev(), about.ino())) {
        return Ok(kept);
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for entry in std::fs::read_dir(folder)?.flatten() {
        // The last change is that the other name was removed.
        let is_old = |about: Metadata| {
            let changed = UNIX_EPOCH + Duration::from_secs(about.ctime().unsigned_abs());
            about.nlink() == 1 && now.duration_since(changed).is_ok_and(|age| age > KEPT)
        };
        if entry.metadata().is_ok_and(is_old) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    match std::fs::hard_link(file, &kept) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        linked => linked?,
    }
    Ok(kept)
}

const PS: &str = "/bin/ps";

/// Returns why processes cannot be seen here, and what helps.
pub fn cannot_see_processes() -> Option<&'static str> {
    (!Path::new(PS).exists()).then_some(
        "/bin/ps is missing here, so aye cannot stop what a command left running; install the package that has it (procps)",
    )
}

/// Returns the process, or `None` if it does not exist.
pub fn process(pid: i32) -> Option<ProcessStat> {
    let (process, _) = list(&["-p", &pid.to_string()]).into_iter().next()?;
    Some(process)
}

/// Returns all processes that may be seen.
pub fn processes() -> Vec<ProcessStat> {
    processes_with_words().into_iter().map(|(process, _)| process).collect()
}

/// Returns all processes that may be seen, with the words of their command lines as far as they are known.
pub fn processes_with_words() -> Vec<(ProcessStat, Vec<Vec<u8>>)> {
    list(&["-A"])
}

pub(crate) fn command_line(pid: i32) -> String {
    let words =
        list(&["-p", &pid.to_string()]).into_iter().next().map(|(_, words)| words).unwrap_or_default();
    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    words.join(" ")
}

fn list(which: &[&str]) -> Vec<(ProcessStat, Vec<Vec<u8>>)> {
    // Where `ps` shows sessions, the kernel may have some that have no number here, for which `getsid` is wrong.
    let session = if SHOWS_SESSIONS { "sid=" } else { "pgid=" };
    let columns = ["pid=", "ppid=", "pgid=", session, "stat=", "lstart=", "args="];
    let format = columns.iter().flat_map(|column| ["-o", column]);
    let mut ps = Command::new(PS);
    ps.arg("-ww")
        .args(which)
        .args(format)
        .env_clear()
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let Ok(child) = ps.stdout(Stdio::piped()).spawn() else { return Vec::new() };
    let own = child.id();
    let Ok(output) = child.wait_with_output() else { return Vec::new() };
    let mut found: Vec<_> = output.stdout.split(|b| *b == b'\n').filter_map(parse).collect();
    found.retain(|(process, _)| u32::try_from(process.pid) != Ok(own));
    found
}

/// Whether `ps` has the session of a process: POSIX does not ask for it.
const SHOWS_SESSIONS: bool = cfg!(target_os = "linux");

/// Parses `  42  7 42 42 Ss Fri Nov 27 10:00:00 2026 sh -c x`: the process, its parent, group and session.
fn parse(line: &[u8]) -> Option<(ProcessStat, Vec<Vec<u8>>)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<i32>().ok();
    let (pid, parent, group, mut session) = (number()?, number()?, number()?, number()?);
    let state = *words.next()?.first()?;
    let mut started = DefaultHasher::new();
    for _ in 0..5 {
        words.next()?.hash(&mut started);
    }
    if !SHOWS_SESSIONS {
        let leader = Pid::from_raw(pid).and_then(|pid| rustix::process::getsid(Some(pid)).ok());
        session = leader.map_or(0, |leader| leader.as_raw_nonzero().get());
    }
    let process = ProcessStat { pid, parent, group, session, state, started: started.finish() };
    Some((process, words.map(<[u8]>::to_vec).collect()))
}

/// Returns all living processes below `root` without those that are being started. `None`: the system has no such list.
pub fn known_descendants(_: i32) -> Option<Vec<ProcessStat>> {
    None
}

/// Returns a descriptor that is readable once this process has ended. `None`: there are none.
pub fn end_of_process(_: u32) -> Option<OwnedFd> {
    None
}

/// The same for a child of this process, which has not been waited for.
pub fn end_of_child(pid: i32) -> Option<OwnedFd> {
    let child = Pid::from_raw(pid)?;
    let (end, held) = rustix::pipe::pipe().ok()?;
    for fd in [&end, &held] {
        fcntl_setfd(fd, FdFlags::CLOEXEC).ok()?;
    }
    // The status stays for whoever waits for the child. A pipe without a writer is readable.
    let wait = move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while rustix::process::waitid(WaitId::Pid(child), options).is_err_and(|errno| errno == Errno::INTR) {}
        drop(held);
    };
    std::thread::Builder::new().spawn(wait).ok()?;
    Some(end)
}

/// Makes this process the parent of everything below it that loses its own, where the system has that.
///
/// # Errors
/// None.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// Keeps the memory of this process from other processes of the user, where the system has that.
pub fn hide_memory() {}

/// Removes the rights to inspect other processes, where the system has them.
pub fn drop_inspection(_: bool) {}

/// Sets how much this thread gives way to others, where that can be said of one thread: POSIX has it for processes only.
pub fn set_thread_niceness(_: i32) {}

/// Returns how many filters for system calls a process has.
pub fn system_call_filters(_: i32) -> u32 {
    0
}

/// Returns the bytes of memory that a process uses. `None`: the system does not tell.
pub fn resident_bytes(_: i32) -> Option<u64> {
    None
}

/// Returns the bytes of memory that a process uses, with its part of shared pages. `None`: the system does not tell.
pub fn proportional_bytes(_: i32) -> Option<u64> {
    None
}

/// Returns the bytes of memory of this machine. `None`: the system does not tell.
pub fn memory_bytes() -> Option<u64> {
    None
}

/// Returns the mounts that this process sees, in the form of Linux; empty where the system does not tell.
pub fn mounts() -> String {
    String::new()
}

/// Returns the control groups that this process is in, in the form of Linux; empty where there are none.
pub fn own_control_groups() -> String {
    String::new()
}

/// Returns the list of file locks in the form of Linux. `None`: the system does not tell.
pub fn locks() -> Option<String> {
    None
}

/// Returns the name of the network file system that a folder is on. `None`: the system does not tell.
pub fn network_kind(_: &Path) -> Option<String> {
    None
}

/// Returns whether a folder ignores case, where each has a setting of its own. `None`: the system has no such setting.
pub fn ignores_case(_: &Path) -> Option<bool> {
    None
}

/// Opens a path below an open folder without following any link, in one call. `None`: the system has no such call.
pub fn open_beneath(_: impl AsFd, _: &Path, _: OFlags) -> Option<Result<OwnedFd, Errno>> {
    None
}

/// Renames a file within a folder to a name that nothing has. Returns `false`, having done nothing, where the file system
/// cannot do that at once.
///
/// # Errors
/// `EXIST` when something has the name; otherwise those of the system.
pub fn rename_new(folder: impl AsFd, from: &Path, to: &Path) -> Result<bool, Errno> {
    let folder = folder.as_fd();
    match linkat(folder, from, folder, to, AtFlags::empty()) {
        Ok(()) => unlinkat(folder, from, AtFlags::empty()).map(|()| true),
        // There are no hard links on this file system.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::MLINK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Makes sure that a file can grow to this size, where the system can tell.
///
/// # Errors
/// None.
pub fn reserve(_: &File, _: u64) -> Result<(), Errno> {
    Ok(())
}

/// Sets the mode of an open folder.
///
/// # Errors
/// Those of the system.
pub fn set_folder_mode(folder: impl AsFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::fchmod(folder, mode)
}

/// Opens the terminal that this process belongs to, under its own name if it is known: on macOS nothing can wait for input of
/// `/dev/tty`.
///
/// # Errors
/// Those of the system.
pub fn own_terminal(flags: OFlags) -> io::Result<File> {
    let session = rustix::process::getsid(None)?;
    let is_own = |fd: &BorrowedFd<'_>| rustix::termios::tcgetsid(fd).is_ok_and(|of| of == session);
    let name = terminal_name([stdin(), stdout(), stderr()].into_iter().filter(is_own));
    let name = name.unwrap_or_else(|| "/dev/tty".into());
    Ok(rustix::fs::open(name, flags | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?.into())
}

fn terminal_name<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>) -> Option<PathBuf> {
    let names = fds.into_iter().filter_map(|fd| rustix::termios::ttyname(fd, Vec::new()).ok());
    let mut names = names.map(|name| PathBuf::from(OsStr::from_bytes(name.as_bytes())));
    names.find(|name| name != Path::new("/dev/tty"))
}

/// Returns the terminal to read in place of standard input, where that one cannot be waited for.
///
/// # Errors
/// Those of the system.
pub fn input_to_poll() -> io::Result<Option<File>> {
    let stdin = stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
    let can_wait = !fds[0].revents().contains(PollFlags::NVAL);
    if can_wait || !rustix::termios::isatty(stdin) { Ok(None) } else { own_terminal(OFlags::RDWR).map(Some) }
}

/// Calls `work` with a short path to a folder, for what takes only short ones: a link in a folder of the user's in `/tmp`.
///
/// # Errors
/// Those of the system and of `work`.
pub fn with_short_path<T>(folder: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let links = PathBuf::from(format!("/tmp/aye-{}", rustix::process::getuid().as_raw()));
    work(&link_to(folder, &links)?)
}

/// Makes a link to a folder, the same each time. Nobody else may have made the folder of links.
fn link_to(folder: &Path, links: &Path) -> io::Result<PathBuf> {
    match std::fs::DirBuilder::new().mode(0o700).create(links) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let about = links.symlink_metadata()?;
    if !about.is_dir() || about.uid() != rustix::process::getuid().as_raw() || about.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("{} is not this user's alone", links.display())));
    }
    let mut name = DefaultHasher::new();
    folder.hash(&mut name);
    let link = links.join(format!("{:016x}", name.finish()));
    if !std::fs::read_link(&link).is_ok_and(|target| target == folder) {
        let new = links.join(format!("{:016x}-{}", name.finish(), std::process::id()));
        std::os::unix::fs::symlink(folder, &new)?;
        std::fs::rename(new, &link)?;
    }
    Ok(link)
}

/// Whether an attribute says something about a file or belongs to its user. The others are the system's.
pub fn is_copied_attribute(name: &[u8]) -> bool {
    !name.starts_with(b"system.")
}

/// Makes a terminal. Returns the end of its owner and the end of a program.
///
/// # Errors
/// Those of the system.
pub fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let owner = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    fcntl_setfd(&owner, FdFlags::CLOEXEC)?;
    grantpt(&owner)?;
    unlockpt(&owner)?;
    let name = ptsname(&owner, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let program = rustix::fs::open(Path::new(OsStr::from_bytes(name.as_bytes())), flags, Mode::empty())?;
    Ok((owner, program))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_line_of_ps_is_a_process_and_its_words() {
        let (process, words) =
            parse(b"  42     7    41    40 Ss+  Fri Nov 27 10:00:00 2026 sh -c x").expect("it parses");
        assert_eq!((process.pid, process.parent, process.group, process.state), (42, 7, 41, b'S'));
        assert!(!SHOWS_SESSIONS || process.session == 40);
        assert_eq!(words, [b"sh".to_vec(), b"-c".to_vec(), b"x".to_vec()]);
        let (later, _) = parse(b"42 7 41 40 Ss Fri Nov 27 10:00:01 2026 sh").expect("it parses");
        assert_ne!(process.id(), later.id());
        assert_eq!(parse(b"42 7"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_file_takes_a_name_that_nothing_has_and_no_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = File::open(dir.path()).expect("opened");
        let write = |name: &str| std::fs::write(dir.path().join(name), name).expect("written");
        write("a");
        assert_eq!(rename_new(&folder, Path::new("a"), Path::new("b")), Ok(true));
        write("a");
        assert_eq!(rename_new(&folder, Path::new("a"), Path::new("b")), Err(Errno::EXIST));
        assert_eq!(std::fs::read(dir.path().join("b")).expect("read"), b"a");
    }

    #[test]
    fn the_end_of_a_child_is_seen_and_its_status_stays() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
        let end = end_of_child(i32::try_from(child.id()).expect("a pid")).expect("a descriptor");
        let mut poll = [PollFd::new(&end, PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut poll, Some(&Timespec::default())), Ok(0));
        drop(child.stdin.take());
        assert_eq!(rustix::event::poll(&mut poll, None), Ok(1));
        assert!(child.wait().expect("its status").success());
    }

    #[test]
    fn the_ends_of_a_terminal_read_what_the_other_writes() {
        let (owner, program) = open_terminal().expect("a terminal");
        assert!(
            rustix::io::fcntl_getfd(&owner).expect("flags").contains(FdFlags::CLOEXEC),
            "{}",
            owner.as_raw_fd()
        );
        let (mut owner, mut program) = (File::from(owner), File::from(program));
        program.write_all(b"one").expect("written");
        let mut read = [0; 16];
        let length = owner.read(&mut read).expect("read");
        assert_eq!(&read[..length], b"one");
    }

    #[test]
    fn a_terminal_is_opened_by_its_own_name() {
        let (owner, program) = open_terminal().expect("a terminal");
        let (_, pipe) = rustix::pipe::pipe().expect("a pipe");
        let name = terminal_name([pipe.as_fd(), program.as_fd()]).expect("it has a name");
        assert!(name.starts_with("/dev/") && name != Path::new("/dev/tty"), "{name:?}");
        let mut again =
            File::from(rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("opened"));
        again.write_all(b"x").expect("written");
        let mut fds = [PollFd::new(&owner, PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut fds, None), Ok(1));
        assert_eq!(terminal_name([pipe.as_fd()]), None);
    }

    #[test]
    fn a_program_keeps_a_name_when_its_file_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let (own, folder) = (dir.path().join("aye"), dir.path().join("cache/programs"));
        std::fs::write(&own, "old").expect("written");
        let now = SystemTime::now();
        let kept = keep(&own, &folder, now).expect("linked");
        assert_eq!(keep(&own, &folder, now).expect("linked"), kept);
        std::fs::write(dir.path().join("new"), "new").expect("written");
        std::fs::rename(dir.path().join("new"), &own).expect("replaced");
        let newer = keep(&own, &folder, now).expect("linked");
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        assert_eq!((read(&kept).as_deref(), read(&newer).as_deref()), (Some("old"), Some("new")));
        // A month later a third one is installed.
        std::fs::remove_file(&own).expect("removed");
        std::fs::write(&own, "third").expect("written");
        keep(&own, &folder, now + 2 * KEPT).expect("linked");
        assert_eq!(read(&kept), None);
    }

    #[test]
    fn a_long_path_has_a_short_link_that_nobody_else_could_make() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("d".repeat(120));
        std::fs::create_dir(&folder).expect("made");
        let links = dir.path().join("links");
        let link = link_to(&folder, &links).expect("a link");
        assert_eq!(link_to(&folder, &links).expect("a link"), link);
        std::fs::write(link.join("x"), "").expect("written");
        assert!(folder.join("x").exists());
        // One that leads elsewhere is replaced.
        std::fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink("/", &link).expect("linked");
        assert_eq!(
            link_to(&folder, &links).expect("a link").canonicalize().expect("it exists"),
            folder.canonicalize().expect("it exists")
        );
        std::fs::set_permissions(&links, std::os::unix::fs::PermissionsExt::from_mode(0o770))
            .expect("opened");
        link_to(&folder, &links).expect_err("others can write there");
        with_short_path(&folder, |path| std::fs::metadata(path.join("x"))).expect("found");
    }
}
