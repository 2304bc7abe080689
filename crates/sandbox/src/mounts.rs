//! The mounts beneath folders that commands may change, by identity: protected files, folders that keep their name, and
//! hidden files.
//!
//! Other processes may rename what is there between the moment when the rules were applied to it and the moment when it is
//! mounted. So each [`Mount`] names what it is about by device and inode. The launcher makes it inside the namespaces,
//! on the very file that it opened and compared. Where it may not, bubblewrap makes it by its path, and the launcher
//! compares afterwards. If anything differs, nothing starts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::folder::{InodeId, OpenFolder, kind_of};
use crate::policy::Policy;
use crate::protected;
use aye_core::contract::judgement::Profile;
use rustix::fs::FileType;

/// An empty, closed folder inside the namespaces.
pub(crate) const EMPTY_FOLDER: &str = "/run/aye/none";
/// A file inside the namespaces that cannot be opened.
pub(crate) const EMPTY_FILE: &str = "/run/aye/nothing";

/// The word before the number of mounts for the launcher to make.
pub(crate) const MAKE_WORD: &str = "mounts";
/// The word before the number of mounts for the launcher to compare.
pub(crate) const COMPARE_WORD: &str = "mounted";

/// What a mount does to a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MountKind {
    /// Nothing: bubblewrap has mounted it, and it has to be the right one.
    Seen,
    /// It cannot be renamed, and what is in it stays writable.
    Fixed,
    /// It cannot be changed.
    ReadOnly,
    /// It cannot be seen.
    Hidden,
}

/// One file or folder, by its path and by what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mount {
    pub(crate) kind: MountKind,
    pub(crate) path: PathBuf,
    pub(crate) id: InodeId,
    /// Whether it is a folder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_folder: bool,
}

/// Opens `/`: what is below is opened without following links.
fn top() -> std::io::Result<OpenFolder> {
    OpenFolder::open(Path::new("/"))
}

fn from_top(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// The mounts for a policy, those of folders before those in them. `sources` are what bubblewrap mounts: where it is found
/// inside, and where it comes from.
pub(crate) fn plan(
    policy: &Policy,
    sources: &[(PathBuf, PathBuf)],
    is_shown: &dyn Fn(&Path) -> bool,
) -> Vec<Mount> {
    let Ok(top) = top() else { return Vec::new() };
    let mut all: BTreeMap<(usize, PathBuf), Mount> = BTreeMap::new();
    let mut add = |kind: MountKind, path: &Path, known: Option<InodeId>| {
        let stat = top.stat_beneath(from_top(path));
        // A mount that the rules were not applied to is for what is there now.
        let (id, is_folder) = match (known, stat) {
            (Some(id), stat) => (id, stat.is_ok_and(|stat| kind_of(&stat) == FileType::Directory)),
            (None, Ok(stat)) => (InodeId::of(&stat), kind_of(&stat) == FileType::Directory),
            (None, Err(_)) => return,
        };
        let mount = Mount { kind, path: path.to_owned(), id, is_folder };
        let entry = all.entry((path.components().count(), path.to_owned())).or_insert_with(|| mount.clone());
        if entry.kind < kind {
            *entry = mount;
        }
    };
    for (path, source) in sources {
        if let Ok(stat) = rustix::fs::stat(source) {
            add(MountKind::Seen, path, Some(InodeId::of(&stat)));
        }
    }
    let writable = policy.writable_folders();
    let fixed = |path: &Path, add: &mut dyn FnMut(MountKind, &Path, Option<InodeId>)| {
        let Some(root) =
            writable.iter().filter(|root| path.starts_with(root)).max_by_key(|root| root.as_os_str().len())
        else {
            return;
        };
        // Package managers rename the folders of packages.
        let is_installed = |folder: &&Path| {
            let below = folder.strip_prefix(root).into_iter().flat_map(Path::components);
            below.into_iter().any(|part| protected::INSTALLED.iter().any(|name| part.as_os_str() == *name))
        };
        let above = path.ancestors().skip(1).take_while(|folder| folder != root);
        for folder in above.filter(|folder| !is_installed(folder)) {
            add(MountKind::Fixed, folder, None);
        }
    };
    for path in writable.iter().flat_map(|root| protected_files(root)) {
        fixed(&path, &mut add);
        add(MountKind::ReadOnly, &path, None);
    }
    if policy.profile == Profile::Workspace {
        for path in &policy.read_only {
            // A link stands for its target, which is not writable outside of these folders anyway.
            let is_link = path.is_symlink();
            let real = if is_link { path.canonicalize().ok() } else { Some(path.clone()) };
            if let Some(path) = real.filter(|path| writable.iter().any(|root| path.starts_with(root))) {
                fixed(&path, &mut add);
                add(MountKind::ReadOnly, &path, policy.ids.get(&path).copied());
            }
        }
    }
    for path in policy.masks() {
        fixed(&path, &mut add);
        add(MountKind::Hidden, &path, policy.ids.get(&path).copied());
    }
    let all: Vec<Mount> = all.into_values().filter(|mount| is_shown(&mount.path)).collect();
    // A folder that cannot be changed, or seen, keeps what is in it as it is.
    let above = |mount: &Mount| {
        let mut others = all.iter().filter(|other| other.kind >= MountKind::ReadOnly.max(mount.kind));
        others.any(|other| other.path != mount.path && mount.path.starts_with(&other.path))
    };
    all.iter().filter(|mount| !above(mount)).cloned().collect()
}

/// The protected files of a folder, as far as they exist. A link stands for its target.
pub(crate) fn protected_files(root: &Path) -> Vec<PathBuf> {
    let Ok(folder) = OpenFolder::open(root) else { return Vec::new() };
    let existing = protected::of_repository(&folder).into_iter().filter_map(|path| {
        let stat = folder.stat_beneath(&path).ok()?;
        let path = root.join(path);
        if kind_of(&stat) == FileType::Symlink { path.canonicalize().ok() } else { Some(path) }
    });
    // The target of a link that leads outside is not writable anyway.
    existing.filter(|path| path.starts_with(root) && path != root).collect()
}

/// The words that hand mounts to the launcher.
pub(crate) fn words(mounts: &[Mount], makes: bool) -> Vec<OsString> {
    let first = if makes { MAKE_WORD } else { COMPARE_WORD };
    let count = mounts.len().to_string();
    let each = mounts.iter().map(|mount| serde_json::to_string(mount).unwrap_or_default().into());
    [OsString::from(first), count.into()].into_iter().chain(each).collect()
}

#[cfg(target_os = "linux")]
pub(crate) use inside::take;

#[cfg(target_os = "linux")]
mod inside {
    use std::io;
    use std::os::fd::{AsRawFd as _, OwnedFd};

    use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};
    use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags};
    use rustix::thread::UnshareFlags;

    use super::{
        COMPARE_WORD, EMPTY_FILE, EMPTY_FOLDER, FileType, InodeId, MAKE_WORD, Mount, MountKind, OpenFolder,
        OsString, from_top, kind_of, top,
    };

    /// Makes or compares the mounts that the first words name, and returns the other words. After this, the process has no
    /// right to mount anything.
    ///
    /// # Errors
    /// When a mount cannot be made, or is about something else than what is there.
    pub(crate) fn take(words: &[OsString]) -> io::Result<&[OsString]> {
        let invalid = || io::Error::other("the launcher does not understand its mounts");
        let makes = match words.first().and_then(|word| word.to_str()) {
            Some(MAKE_WORD) => true,
            Some(COMPARE_WORD) => false,
            _ => return Ok(words),
        };
        let count: usize = words.get(1).and_then(|word| word.to_str()?.parse().ok()).ok_or_else(invalid)?;
        let (mounts, rest) =
            words.get(2..).and_then(|words| words.split_at_checked(count)).ok_or_else(invalid)?;
        let read = |word: &OsString| serde_json::from_str::<Mount>(word.to_str()?).ok();
        let mounts: Vec<Mount> = mounts.iter().map(read).collect::<Option<_>>().ok_or_else(invalid)?;
        if makes {
            make(&mounts)?;
            crate::kernel::drop_capabilities()?;
        } else {
            compare(&mounts)?;
        }
        Ok(rest)
    }

    /// Opens what a mount is about.
    fn open(top: &OpenFolder, mount: &Mount) -> io::Result<OwnedFd> {
        let changed = |_| {
            let path = mount.path.display();
            io::Error::other(format!("{path} was renamed or replaced at the same time; try again"))
        };
        let file = top.beneath(from_top(&mount.path), OFlags::PATH).map_err(changed)?;
        if InodeId::of(&rustix::fs::fstat(&file)?) == mount.id {
            Ok(file)
        } else {
            Err(changed(io::ErrorKind::NotFound.into()))
        }
    }

    fn make(mounts: &[Mount]) -> io::Result<()> {
        // The namespace that bubblewrap made belongs to the user above; a copy belongs to this one.
        #[expect(deprecated, reason = "only the flag for descriptors is not safe")]
        rustix::thread::unshare(UnshareFlags::NEWNS)?;
        let top = top()?;
        for mount in mounts {
            let file = open(&top, mount)?;
            let tree = match mount.kind {
                MountKind::Seen => continue,
                MountKind::Fixed | MountKind::ReadOnly => clone(&file, "")?,
                MountKind::Hidden => clone(CWD, if mount.is_folder { EMPTY_FOLDER } else { EMPTY_FILE })?,
            };
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            rustix::mount::move_mount(&tree, "", &file, "", flags)?;
            if mount.kind == MountKind::ReadOnly {
                forbid_writing(&tree)?;
            }
        }
        Ok(())
    }

    fn clone(folder: impl std::os::fd::AsFd, path: &str) -> io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        Ok(rustix::mount::open_tree(folder, path, flags)?)
    }

    /// Other flags must be kept: they may be locked.
    fn forbid_writing(tree: &OwnedFd) -> io::Result<()> {
        let has = rustix::fs::fstatvfs(tree)?.f_flag;
        let flags = [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
            (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
            (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
            (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        ];
        let kept = flags.into_iter().filter(|(flag, _)| has.contains(*flag)).map(|(_, flag)| flag);
        let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, flag| all | flag);
        // The link leads to exactly this mount.
        Ok(rustix::mount::mount_remount(format!("/proc/self/fd/{}", tree.as_raw_fd()), flags, "")?)
    }

    /// Compares what bubblewrap mounted.
    fn compare(mounts: &[Mount]) -> io::Result<()> {
        let top = top()?;
        for mount in mounts {
            if mount.kind != MountKind::Hidden {
                open(&top, mount)?;
                continue;
            }
            let is_hidden = top.stat_beneath(from_top(&mount.path)).is_ok_and(|stat| match kind_of(&stat) {
                FileType::Directory => {
                    let rights = Mode::RWXU | Mode::RWXG | Mode::RWXO;
                    !Mode::from_raw_mode(stat.st_mode).intersects(rights) && InodeId::of(&stat) != mount.id
                }
                kind => kind == FileType::CharacterDevice,
            });
            if !is_hidden {
                let path = mount.path.display();
                return Err(io::Error::other(format!("{path} was renamed at the same time; try again")));
            }
        }
        Ok(())
    }
}
