//! [`OpenFolder`]: a folder that is kept open. What is done through it happens there and beneath it, whatever becomes of its
//! path, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use aye_core::contract::spelling;
use aye_files::opener::{PASSAGE, open_beneath};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Opening never waits: the file may be a FIFO by now.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The device and inode of a file: what it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InodeId(pub u64, pub u64);

impl InodeId {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    pub(crate) fn of(stat: &Stat) -> InodeId {
        InodeId(stat.st_dev as u64, stat.st_ino as u64)
    }
}

/// A folder that is kept open.
#[derive(Debug)]
pub(crate) struct OpenFolder(OwnedFd);

/// An entry of a folder.
#[derive(Debug)]
pub(crate) struct FolderEntry {
    pub(crate) name: OsString,
    pub(crate) kind: FileType,
}

impl FolderEntry {
    pub(crate) fn is_folder(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub(crate) fn is_link(&self) -> bool {
        self.kind == FileType::Symlink
    }

    /// The name as it compares with a protected one.
    pub(crate) fn folded(&self) -> String {
        spelling::folded(&self.name.to_string_lossy()).into_owned()
    }
}

pub(crate) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

impl OpenFolder {
    /// Opens a folder by a path that commands cannot change: links on it are followed.
    pub(crate) fn open(path: &Path) -> io::Result<OpenFolder> {
        Ok(OpenFolder(rustix::fs::open(path, PASSAGE | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens what is beneath the folder.
    pub(crate) fn beneath(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(open_beneath(&self.0, path, flags)?)
    }

    /// Opens a folder beneath this one.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<OpenFolder> {
        self.beneath(path, PASSAGE).map(OpenFolder)
    }

    /// Opens the folder of a path beneath this one, and returns the last name of the path.
    pub(crate) fn place<'a>(&self, path: &'a Path) -> io::Result<(OpenFolder, &'a OsStr)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::ISDIR.into());
        };
        Ok((self.folder(parent)?, name))
    }

    /// Returns what this folder is.
    pub(crate) fn own_stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.0)?)
    }

    /// Returns what an entry is.
    pub(crate) fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.0, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Returns what is beneath this folder.
    pub(crate) fn stat_beneath(&self, path: &Path) -> io::Result<Stat> {
        let (folder, name) = self.place(path)?;
        folder.stat(name)
    }

    /// Returns what a path leads to now, only to compare it: links on the way are followed.
    pub(crate) fn stat_loosely(&self, path: &Path) -> io::Result<Stat> {
        if path.as_os_str().is_empty() { self.own_stat() } else { self.stat(path) }
    }

    pub(crate) fn entries(&self) -> io::Result<Vec<FolderEntry>> {
        let listed = rustix::fs::openat(
            &self.0,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut all = Vec::new();
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => self.stat(name).map_or(FileType::Unknown, |stat| kind_of(&stat)),
                known => known,
            };
            all.push(FolderEntry { name: name.to_owned(), kind });
        }
        Ok(all)
    }

    /// Returns where a link leads, as it is written.
    pub(crate) fn link_target(&self, name: &OsStr) -> io::Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// Reads a regular file, and returns what it is. Nothing if it has more than `most` bytes.
    pub(crate) fn read(&self, name: &OsStr, most: u64) -> io::Result<Option<(Stat, Vec<u8>)>> {
        if kind_of(&self.stat(name)?) != FileType::RegularFile {
            return Ok(None);
        }
        let file =
            rustix::fs::openat(&self.0, name, READ | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        File::from(file).take(most + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= most).then_some((stat, bytes)))
    }

    /// Writes a new file.
    pub(crate) fn write(&self, name: &OsStr, mode: Mode, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, mode)?;
        rustix::fs::fchmod(&file, mode)?;
        File::from(file).write_all(bytes)
    }

    pub(crate) fn link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// Makes a folder that only its owner can enter, unless it exists, and opens it.
    pub(crate) fn make(&self, name: &OsStr) -> io::Result<OpenFolder> {
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.folder(Path::new(name)),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames an entry. What has the new name already stays, and nothing is renamed then.
    pub(crate) fn rename(&self, name: &OsStr, to: &OpenFolder, new_name: &OsStr) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match rustix::fs::renameat_with(&self.0, name, &to.0, new_name, rustix::fs::RenameFlags::NOREPLACE) {
            // Some file systems do not know this flag.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            result => return Ok(result?),
        }
        if to.stat(new_name).is_ok() {
            return Err(Errno::EXIST.into());
        }
        Ok(rustix::fs::renameat(&self.0, name, &to.0, new_name)?)
    }

    /// Gives the owner all rights to this folder, and returns whether that changed something.
    pub(crate) fn open_up(&self) -> bool {
        let Ok(stat) = self.own_stat() else { return false };
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.contains(Mode::RWXU) {
            return false;
        }
        // A folder that cannot be read can be entered by its descriptor only.
        let changed = match rustix::fs::openat(&self.0, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        {
            Ok(file) => rustix::fs::fchmod(file, mode | Mode::RWXU),
            Err(_) => self.chmod(mode | Mode::RWXU),
        };
        changed.is_ok()
    }

    /// The link in `/proc` leads to exactly this folder.
    #[cfg(target_os = "linux")]
    fn chmod(&self, mode: Mode) -> rustix::io::Result<()> {
        use std::os::fd::AsRawFd as _;
        rustix::fs::chmod(format!("/proc/self/fd/{}", self.0.as_raw_fd()), mode)
    }

    #[cfg(not(target_os = "linux"))]
    fn chmod(&self, mode: Mode) -> rustix::io::Result<()> {
        rustix::fs::fchmod(&self.0, mode)
    }
}
