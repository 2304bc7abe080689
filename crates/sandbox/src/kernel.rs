//! The restrictions that the launcher applies to its own process before it becomes the program: capabilities,
//! Landlock, seccomp.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use aye_files::opener::is_link;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::folder::{InodeId, OpenFolder, kind_of};
use crate::launch::LaunchPolicy;
use crate::namespaces::SYSTEM;
use crate::policy::PartialFolder;
use aye_core::contract::judgement::Profile;

/// The requested Landlock version; an older kernel enforces what it supports.
const LANDLOCK: ABI = ABI::V7;

/// Devices that a program may open where `/dev` is the machine's own.
/// `/dev/tty` is the terminal of the command's own session, if it has one.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Restricts this process, for itself and for everything it starts.
pub(crate) fn restrict(orders: &LaunchPolicy) -> io::Result<()> {
    if orders.policy.profile == Profile::Outside {
        return Err(io::Error::other("the profile `outside` has no sandbox"));
    }
    rustix::thread::set_no_new_privs(true)?;
    limit_processes(orders)?;
    drop_capabilities()?;
    landlock(orders)?;
    seccomp(orders)?;
    // The command must not inherit descriptors that were left open for child processes.
    close_fds::set_fds_cloexec(3, &[]);
    Ok(())
}

/// Drops every capability of this thread.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    use caps::CapSet;
    // The bounding set needs a right that an ordinary user does not have, and does not miss: without new privileges
    // nothing comes back that is not permitted here.
    let _ = caps::clear(None, CapSet::Bounding);
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The first kernel that counts the processes of each user namespace. Earlier ones count all of the user's.
const COUNTED: (u32, u32) = (5, 14);

fn limit_processes(orders: &LaunchPolicy) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Some(most) = orders.policy.processes else { return Ok(()) };
    let others = if orders.inside && kernel_version() >= COUNTED { 0 } else { all_processes() };
    let known = getrlimit(Resource::Nproc).maximum;
    let most = most.saturating_add(others).min(known.unwrap_or(u64::MAX));
    Ok(setrlimit(Resource::Nproc, Rlimit { current: Some(most), maximum: Some(most) })?)
}

fn kernel_version() -> (u32, u32) {
    let name = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = name.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// The number of processes and threads of the machine.
fn all_processes() -> u64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(['/', ' ']).nth(4).and_then(|all| all.parse().ok()).unwrap_or(0)
}

/// Returns the Landlock version as far as it matters here; 6 represents every later one.
pub(crate) fn landlock_version() -> u8 {
    let has = |abi: ABI| {
        let mut set = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi));
        let net = AccessNet::from_all(abi);
        if !net.is_empty() {
            set = set.and_then(|set| set.handle_access(net));
        }
        let scope = Scope::from_all(abi);
        if !scope.is_empty() {
            set = set.and_then(|set| set.scope(scope));
        }
        set.and_then(Ruleset::create).is_ok()
    };
    let versions = [(ABI::V6, 6), (ABI::V5, 5), (ABI::V4, 4), (ABI::V3, 3), (ABI::V2, 2), (ABI::V1, 1)];
    versions.into_iter().find(|(abi, _)| has(*abi)).map_or(0, |(_, version)| version)
}

fn landlock(orders: &LaunchPolicy) -> io::Result<()> {
    let policy = &orders.policy;
    let all = AccessFs::from_all(LANDLOCK);
    let read = AccessFs::from_read(LANDLOCK);
    let mut set = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|set| set.scope(Scope::from_all(LANDLOCK)))
        .map_err(io::Error::other)?;
    if !may_connect(orders) {
        set = set.handle_access(AccessNet::from_all(LANDLOCK)).map_err(io::Error::other)?;
    }
    let changing = policy.writable.iter().chain([&policy.workspace]).map(PathBuf::as_path).collect();
    let opener = AllowedOpener { changing, hidden: &orders.hidden };
    let mut rules = Rules { set: set.create().map_err(io::Error::other)?, opener };
    if orders.inside {
        // The mounts say what can be seen; this says once more what can be changed.
        rules = rules
            .allow(Path::new("/"), read)?
            .allow(Path::new("/tmp"), all)?
            .allow(Path::new("/dev"), all)?;
        for cache in policy.linked_caches() {
            rules = rules.allow(&cache.path, all)?;
        }
    } else {
        let masks = policy.masks();
        let system = SYSTEM.iter().chain(&["/etc"]).map(Path::new);
        for root in system.chain(policy.visible()).chain([policy.workspace.as_path()]) {
            let (whole, split) = beneath(root, &masks, &policy.partial);
            for path in whole {
                rules = rules.allow(&path, read)?;
            }
            // Their files are allowed one by one, their names are not.
            for folder in split {
                rules = rules.allow(&folder, AccessFs::ReadDir.into())?;
            }
        }
        rules = rules.allow(Path::new("/proc"), read)?;
        for device in DEVICES {
            rules = rules.allow(Path::new(device), read | AccessFs::WriteFile | AccessFs::IoctlDev)?;
        }
        if let Some(tmp) = &policy.tmp {
            rules = rules.allow(tmp, all)?;
        }
    }
    for folder in policy.writable_folders() {
        rules = rules.allow(folder, all)?;
    }
    let status = rules.set.restrict_self().map_err(io::Error::other)?;
    // Mounts alone do what matters where a kernel has no Landlock.
    if status.ruleset == RulesetStatus::NotEnforced && !orders.inside {
        return Err(io::Error::other("the kernel has no Landlock"));
    }
    Ok(())
}

/// Whether internet sockets are useful: with a network, or in a separate network namespace, where the command
/// can reach only what it started itself, such as the server of a test.
fn may_connect(orders: &LaunchPolicy) -> bool {
    orders.policy.profile == Profile::Workspace && (orders.policy.network || orders.inside)
}

struct Rules<'a> {
    set: RulesetCreated,
    opener: AllowedOpener<'a>,
}

impl<'a> Rules<'a> {
    /// Allows it below a path, if that exists.
    fn allow(self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<Rules<'a>> {
        let Rules { set, opener } = self;
        let Some((file, is_folder)) = opener.open(path)? else { return Ok(Rules { set, opener }) };
        let access = if is_folder { access } else { access & AccessFs::from_file(LANDLOCK) };
        let set = set.add_rule(PathBeneath::new(file, access)).map_err(io::Error::other)?;
        Ok(Rules { set, opener })
    }
}

/// Opens what is allowed: a rule is about a file, whatever its name is by now.
struct AllowedOpener<'a> {
    /// Folders in which other programs may rename something meanwhile. No link is followed in them.
    changing: Vec<&'a Path>,
    /// Files that are not allowed under any name.
    hidden: &'a [InodeId],
}

impl AllowedOpener<'_> {
    /// Also returns whether it is a folder. `None` if there is nothing.
    fn open(&self, path: &Path) -> io::Result<Option<(OwnedFd, bool)>> {
        // The outermost folder of these: its own name is not in any other.
        let root = self
            .changing
            .iter()
            .filter(|root| path.starts_with(root))
            .min_by_key(|root| root.as_os_str().len());
        let opened = match root {
            Some(root) => {
                let rest = path.strip_prefix(root).unwrap_or(Path::new(""));
                let Ok(root) = OpenFolder::open(root) else { return Ok(None) };
                root.beneath(rest, OFlags::PATH)
            }
            None => rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(Into::into),
        };
        let replaced = || io::Error::other(format!("{} was renamed or replaced meanwhile", path.display()));
        let file = match opened {
            Ok(file) => file,
            Err(error) if rustix::io::Errno::from_io_error(&error).is_some_and(is_link) => {
                return Err(replaced());
            }
            Err(_) => return Ok(None),
        };
        let about = rustix::fs::fstat(&file)?;
        // One opens a link itself.
        if self.hidden.contains(&InodeId::of(&about)) || kind_of(&about) == FileType::Symlink {
            return Err(replaced());
        }
        Ok(Some((file, kind_of(&about) == FileType::Directory)))
    }
}

/// Returns the paths below `root` except the masked ones: whole folders and files, and the folders that had
/// to be split for this. Links are left out: a rule for a link applies to its target.
fn beneath(root: &Path, masks: &[PathBuf], partial: &[PartialFolder]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut whole, mut split) = (Vec::new(), Vec::new());
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        if masks.iter().any(|mask| path.starts_with(mask)) {
            continue;
        }
        if let Some(folder) = partial.iter().find(|folder| folder.path == path) {
            open.extend(folder.shown.iter().filter(|path| !path.is_symlink()).cloned());
            split.push(path);
            continue;
        }
        let contains_hidden = masks.iter().chain(partial.iter().map(|folder| &folder.path));
        if !contains_hidden.into_iter().any(|hidden| hidden.starts_with(&path)) {
            whole.push(path);
            continue;
        }
        let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
        open.extend(
            entries.filter(|it| it.file_type().is_ok_and(|kind| !kind.is_symlink())).map(|it| it.path()),
        );
        split.push(path);
    }
    (whole, split)
}

/// System calls that no profile needs.
const NEVER: &[i64] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_open_by_handle_at,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Changes to a file's owner, mode, times and attributes. Landlock does not know them.
const METADATA: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// System V objects and message queues, which have no path. Only a namespace separates them from those of others.
const SHARED_OBJECTS: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// System calls that change how another process runs, by its id or a group's. Only a namespace hides other processes.
/// What a process does to itself has 0 there; a thread that pins another one is refused, which is only slower.
const BY_PID: &[i64] = &[
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// `ioctl` calls that change a file's attributes through a descriptor that only reads: `FS_IOC_SETFLAGS` in both sizes,
/// `FS_IOC_SETVERSION`, `FS_IOC_FSSETXATTR`.
const ATTRIBUTES: [u64; 4] = [0x4008_6602, 0x4004_6602, 0x4008_7602, 0x401c_5820];

/// Newer than the C library's headers. These numbers are the same on every architecture.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_SETATTR: i64 = 469;

type Filter = BTreeMap<i64, Vec<SeccompRule>>;

fn condition(arg: u8, op: Op, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(arg, Len::Dword, op, value).map_err(io::Error::other)
}

/// Builds a filter that matches when any of the rules does; all conditions of a rule must hold.
fn any_of<const N: usize>(rules: [Vec<SeccompCondition>; N]) -> io::Result<Vec<SeccompRule>> {
    rules.into_iter().map(|all| SeccompRule::new(all).map_err(io::Error::other)).collect()
}

/// The same of rules whose conditions may have failed.
fn rules(all: impl IntoIterator<Item = io::Result<Vec<SeccompCondition>>>) -> io::Result<Vec<SeccompRule>> {
    all.into_iter().map(|conditions| SeccompRule::new(conditions?).map_err(io::Error::other)).collect()
}

/// Returns the refused system calls. An empty list of rules refuses every call of that number.
fn refused(orders: &LaunchPolicy) -> io::Result<Filter> {
    let policy = &orders.policy;
    let mut filter: Filter = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    if !orders.inside {
        filter.extend(SHARED_OBJECTS.iter().map(|call| (*call, Vec::new())));
    }
    if policy.profile == Profile::Read {
        filter.extend(METADATA.iter().map(|call| (*call, Vec::new())));
        // No socket of any kind: what only reads needs none.
        filter.insert(libc::SYS_socket, Vec::new());
    } else {
        let mut families = Vec::new();
        // Nothing but namespaces keeps a socket's path out of reach.
        if orders.inside {
            families.push(libc::AF_UNIX);
        }
        if may_connect(orders) {
            families.extend([libc::AF_INET, libc::AF_INET6]);
        }
        let other = families.iter().map(|family| condition(0, Op::Ne, u64::from(family.cast_unsigned())));
        let other = other.collect::<io::Result<Vec<_>>>()?;
        let rules = if other.is_empty() {
            Vec::new()
        } else {
            // Raw sockets of an allowed family; the low bits are the type, the others flags.
            let raw = condition(1, Op::MaskedEq(0xf), u64::from(libc::SOCK_RAW.cast_unsigned()))?;
            let mut rules = any_of([other])?;
            if may_connect(orders) {
                rules.extend(any_of([vec![raw]])?);
            }
            rules
        };
        filter.insert(libc::SYS_socket, rules);
    }
    // Typing into a terminal, and the console's own clipboard.
    let mut requests = vec![u64::from(libc::TIOCSTI as u32), u64::from(libc::TIOCLINUX as u32)];
    if !orders.inside || policy.profile == Profile::Read {
        requests.extend(ATTRIBUTES);
    }
    let requests = requests.into_iter().map(|request| Ok(vec![condition(1, Op::Eq, request)?]));
    filter.insert(libc::SYS_ioctl, rules(requests)?);
    filter.extend(modes(orders)?);
    // Limits of others are refused in namespaces, too: the supervisor in them must be able to end the command.
    filter.insert(libc::SYS_prlimit64, any_of([vec![condition(0, Op::Ne, 0)?]])?);
    if !orders.inside {
        for call in BY_PID {
            filter.insert(*call, any_of([vec![condition(0, Op::Ne, 0)?]])?);
        }
        // 0 stands for this process and for its group, but also for the user.
        for (call, user) in [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)] {
            let of_others = [vec![condition(1, Op::Ne, 0)?], vec![condition(0, Op::Eq, user)?]];
            filter.insert(call, any_of(of_others)?);
        }
    }
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let namespaces = namespaces.map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        Ok(vec![condition(0, Op::MaskedEq(flag), flag)?])
    });
    filter.insert(libc::SYS_clone, rules(namespaces)?);
    Ok(filter)
}

/// Of the two bits of `O_TMPFILE`, the one that opening a folder does not have.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Returns the calls that make a file with a mode, or change one, as far as they are refused: devices, and programs that
/// run with the rights of their owner or group.
fn modes(orders: &LaunchPolicy) -> io::Result<Filter> {
    let has = |arg: u8, bits: u32| condition(arg, Op::MaskedEq(u64::from(bits)), u64::from(bits));
    let is_kind = |arg: u8, kind: u32| condition(arg, Op::MaskedEq(u64::from(libc::S_IFMT)), u64::from(kind));
    let rights = [libc::S_ISUID, libc::S_ISGID];
    let mut filter = Filter::new();
    let mut made = vec![(libc::SYS_mknodat, 2)];
    let mut opened = vec![(libc::SYS_openat, 2, 3)];
    let mut changed = vec![(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (SYS_FCHMODAT2, 2)];
    #[cfg(target_arch = "x86_64")]
    {
        made.push((libc::SYS_mknod, 1));
        opened.push((libc::SYS_open, 1, 2));
        changed.push((libc::SYS_chmod, 1));
        filter.insert(libc::SYS_creat, rules(rights.map(|bit| Ok(vec![has(1, bit)?])))?);
    }
    for (call, mode) in made {
        let devices = [libc::S_IFCHR, libc::S_IFBLK].map(|kind| Ok(vec![is_kind(mode, kind)?]));
        filter.insert(call, rules(devices.into_iter().chain(rights.map(|bit| Ok(vec![has(mode, bit)?]))))?);
    }
    // Only a call that makes a file has a mode.
    for (call, flags, mode) in opened {
        let making = [libc::O_CREAT, TMPFILE].map(i32::cast_unsigned);
        let all = making.into_iter().flat_map(|flag| rights.map(|bit| (flag, bit)));
        filter.insert(call, rules(all.map(|(flag, bit)| Ok(vec![has(flags, flag)?, has(mode, bit)?])))?);
    }
    if orders.policy.profile != Profile::Read {
        for (call, mode) in changed {
            // Folders of shared repositories have the group's bit, and namespaces have no other group.
            let refused = if orders.inside { &rights[..1] } else { &rights[..] };
            filter.insert(call, rules(refused.iter().map(|bit| Ok(vec![has(mode, *bit)?])))?);
        }
    }
    Ok(filter)
}

/// The first number of the calls of the 32-bit ABI with 64-bit registers. A kernel may have it.
const X32: u32 = 0x4000_0000;

/// Builds a filter that makes such calls, `clone3` and `openat2` appear not to exist. The flags of `clone3` and the mode
/// of `openat2` are behind a pointer, which a filter cannot read; programs then use `clone` and `openat`.
fn missing() -> io::Result<seccompiler::BpfProgram> {
    let clone3 = u32::try_from(libc::SYS_clone3).map_err(io::Error::other)?;
    let openat2 = u32::try_from(libc::SYS_openat2).map_err(io::Error::other)?;
    let line = |code: u32, jt, jf, k| {
        Ok(seccompiler::sock_filter { code: u16::try_from(code).map_err(io::Error::other)?, jt, jf, k })
    };
    let errno = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    [
        // The number is the first word of what a filter sees.
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 2, 0, X32),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, clone3),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, openat2),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, errno),
    ]
    .into_iter()
    .collect()
}

/// The filter as one program: the kernel tries each number out when it takes one, so that few instructions count.
fn program(orders: &LaunchPolicy) -> io::Result<seccompiler::BpfProgram> {
    let action = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    // A program of another architecture, such as a 32-bit one, is ended: its calls have other numbers.
    let filter =
        SeccompFilter::new(refused(orders)?, SeccompAction::Allow, action, arch).map_err(io::Error::other)?;
    let rest: seccompiler::BpfProgram = filter.try_into().map_err(io::Error::other)?;
    Ok([missing()?, rest].concat())
}

fn seccomp(orders: &LaunchPolicy) -> io::Result<()> {
    seccompiler::apply_filter(&program(orders)?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn a_folder_is_split_around_a_mask_and_links_are_omitted() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        std::fs::create_dir_all(root.join("a/b")).expect("written");
        for name in ["a/b/.env", "a/b/main.rs", "a/x", "y"] {
            std::fs::write(root.join(name), "").expect("written");
        }
        std::os::unix::fs::symlink("/", root.join("link")).expect("written");
        let (mut whole, split) = beneath(root, &[root.join("a/b/.env")], &[]);
        whole.sort();
        assert_eq!(whole, ["a/b/main.rs", "a/x", "y"].map(|name| root.join(name)));
        assert_eq!(split, [root.to_owned(), root.join("a"), root.join("a/b")]);
        assert_eq!(beneath(root, &[], &[]), (vec![root.to_owned()], Vec::new()));
        let partial = PartialFolder { path: root.join("a"), shown: vec![root.join("a/b")] };
        let (mut whole, split) = beneath(root, &[], &[partial]);
        whole.sort();
        assert_eq!(whole, ["a/b", "y"].map(|name| root.join(name)));
        assert_eq!(split, [root.to_owned(), root.join("a")]);
    }

    #[test]
    fn what_became_another_file_is_not_allowed() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        for name in ["home/x", "work/sub/in", "work/plain"] {
            std::fs::create_dir_all(root.join(name)).expect("written");
        }
        std::fs::write(root.join("work/secret"), "").expect("written");
        let [work, sub] = ["work", "work/sub"].map(|name| root.join(name));
        let secret = rustix::fs::stat(work.join("secret")).map(|about| InodeId::of(&about)).expect("exists");
        let hidden = [secret];
        let opener = AllowedOpener { changing: vec![&sub, &work], hidden: &hidden };
        let is_allowed = |name: &str| opener.open(&root.join(name)).map(|opened| opened.is_some());
        for name in ["work", "work/sub", "work/sub/in", "work/plain", "home"] {
            assert!(is_allowed(name).expect("nothing was renamed"), "{name}");
        }
        assert!(!is_allowed("work/missing").expect("nothing was renamed"));
        // What was judged gets other names before the rules are made.
        std::fs::rename(&sub, work.join("was-sub")).expect("renamed");
        std::os::unix::fs::symlink(root.join("home"), &sub).expect("linked");
        std::fs::remove_dir(work.join("plain")).expect("removed");
        std::fs::rename(work.join("secret"), work.join("plain")).expect("renamed");
        std::os::unix::fs::symlink(root.join("work"), root.join("home/link")).expect("linked");
        for name in ["work/sub", "work/sub/x", "work/plain"] {
            let refused = is_allowed(name).expect_err("it is another file");
            assert!(refused.to_string().contains("was renamed or replaced"), "{name}: {refused}");
        }
        // Nobody but the user makes links elsewhere.
        assert!(is_allowed("home/link").expect("allowed"));
    }

    #[test]
    fn the_filters_compile_for_every_profile() {
        for (profile, network, inside) in [
            (Profile::Read, false, true),
            (Profile::Read, false, false),
            (Profile::Workspace, false, true),
            (Profile::Workspace, true, true),
            (Profile::Workspace, false, false),
        ] {
            let policy = Policy { network, ..Policy::new(profile, "/srv") };
            let policy = LaunchPolicy { policy, inside, hidden: Vec::new() };
            let refused = refused(&policy).expect("it compiles");
            assert_eq!(refused.contains_key(&libc::SYS_shmat), !inside, "namespaces have their own");
            let program = program(&policy).expect("it compiles");
            assert!(program.len() < 760, "{}", program.len());
        }
    }
}
