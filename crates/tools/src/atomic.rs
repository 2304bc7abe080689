//! Replaces a file's content whole or not at all, and only there where it was meant.
//!
//! The folder is opened component by component without following a link (the path was resolved before), and all that
//! follows happens relative to that descriptor. So nothing that is renamed or linked meanwhile sends a write elsewhere.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::paths::escape;

/// Files above this are neither edited nor written over.
pub(super) const MAX_FILE: u64 = 16 << 20;

/// Why a file was not read or replaced.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("{0} is a folder")]
    IsFolder(String),
    #[error("{0} is {1}, not a regular file")]
    Special(String, &'static str),
    #[error("{path} is too large: {size} bytes; the maximum is {MAX_FILE}")]
    TooLarge { path: String, size: u64 },
    #[error("{0} is read-only (mode {1:04o})")]
    ReadOnly(String, u32),
    #[error("{0} was changed concurrently; nothing was written")]
    Raced(String),
    #[error("{0} or a parent folder is now a link; nothing was written")]
    Link(String),
    #[error("cancelled before anything was written")]
    Cancelled,
    #[error("cannot {verb} {path}: {reason}")]
    Io { verb: &'static str, path: String, reason: String },
}

/// The state of a file when it was read: enough to check that it is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    ino: u64,
    size: u64,
    mtime: (i64, i64),
    mode: u32,
    owner: (u32, u32),
}

/// A name in a folder that is kept open.
pub(super) struct WriteTarget {
    folder: OwnedFd,
    name: PathBuf,
    /// The whole path, for messages.
    shown: String,
    stamp: Option<FileStamp>,
}

/// Returns the name of a file type that is neither a regular file nor a folder.
pub(super) fn special_kind(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a link",
        FileType::RegularFile | FileType::Directory | FileType::Unknown => "special",
    }
}

#[cfg(target_os = "linux")]
const FOLDER: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const FOLDER: OFlags = OFlags::RDONLY;

/// Opens the folder of a resolved path, following no link, and makes missing folders when asked to.
fn open_folder(folder: &Path, create: bool) -> Result<OwnedFd, Errno> {
    let flags = FOLDER | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut fd = rustix::fs::open("/", FOLDER | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for component in folder.components() {
        let Component::Normal(name) = component else { continue };
        fd = match rustix::fs::openat(&fd, name, flags, Mode::empty()) {
            Err(Errno::NOENT) if create => {
                match rustix::fs::mkdirat(&fd, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                rustix::fs::openat(&fd, name, flags, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(fd)
}

impl WriteTarget {
    /// Opens the folder of `real`, a path whose links are resolved. Missing folders are made when `create` is set.
    pub(super) fn open(real: &Path, create: bool) -> Result<Self, FileError> {
        let shown = escape(real);
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(FileError::IsFolder(shown));
        };
        let folder = open_folder(parent, create).map_err(|errno| match errno {
            Errno::LOOP | Errno::NOTDIR => FileError::Link(shown.clone()),
            other => {
                FileError::Io { verb: "open the folder of", path: shown.clone(), reason: other.to_string() }
            }
        })?;
        Ok(Self { folder, name: name.into(), shown, stamp: None })
    }

    fn io(&self, verb: &'static str) -> impl Fn(std::io::Error) -> FileError + '_ {
        move |error| FileError::Io { verb, path: self.shown.clone(), reason: error.to_string() }
    }

    fn errno(&self, verb: &'static str) -> impl Fn(Errno) -> FileError + '_ {
        move |errno| self.io(verb)(errno.into())
    }

    /// Reads the file; returns `None` if it does not exist.
    pub(super) fn read(&mut self) -> Result<Option<Vec<u8>>, FileError> {
        let stat = match rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(self.errno("read"))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(FileError::IsFolder(self.shown.clone())),
            FileType::Symlink => return Err(FileError::Link(self.shown.clone())),
            other => return Err(FileError::Special(self.shown.clone(), special_kind(other))),
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd =
            rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty()).map_err(self.errno("read"))?;
        let file = File::from(fd);
        let meta = file.metadata().map_err(self.io("read"))?;
        if !meta.is_file() {
            return Err(FileError::Raced(self.shown.clone()));
        }
        if meta.len() > MAX_FILE {
            return Err(FileError::TooLarge { path: self.shown.clone(), size: meta.len() });
        }
        if meta.mode() & 0o222 == 0 {
            return Err(FileError::ReadOnly(self.shown.clone(), meta.mode() & 0o7777));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        (&file).take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(self.io("read"))?;
        self.stamp = Some(stamp(&meta));
        Ok(Some(bytes))
    }

    fn now(&self) -> Result<Option<FileStamp>, FileError> {
        let flags = FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.errno("read")(error)),
            Ok(fd) => Ok(Some(stamp(&File::from(fd).metadata().map_err(self.io("read"))?))),
        }
    }

    /// Replaces the file that was read, or creates the one that did not exist. Mode and owner are kept.
    /// `cancelled` is checked once more at the last moment.
    pub(super) fn replace(&self, bytes: &[u8], cancelled: impl Fn() -> bool) -> Result<(), FileError> {
        let temp = PathBuf::from(format!(".aye-{}.tmp", uuid::Uuid::new_v4().simple()));
        let result = self.write_temp(&temp, bytes).and_then(|()| {
            if cancelled() {
                return Err(FileError::Cancelled);
            }
            if self.now()? != self.stamp {
                return Err(FileError::Raced(self.shown.clone()));
            }
            self.rename(&temp)
        });
        if result.is_err() {
            let _ = rustix::fs::unlinkat(&self.folder, &temp, AtFlags::empty());
        }
        result
    }

    fn write_temp(&self, temp: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The umask decides about a new file; what replaces another file is private until it is complete.
        let mode = if self.stamp.is_some() { 0o600 } else { 0o666 };
        let fd = rustix::fs::openat(&self.folder, temp, flags, Mode::from_raw_mode(mode))
            .map_err(self.errno("write"))?;
        let mut file = File::from(fd);
        file.write_all(bytes).map_err(self.io("write"))?;
        if let Some(stamp) = self.stamp {
            let meta = file.metadata().map_err(self.io("write"))?;
            if (meta.uid(), meta.gid()) != stamp.owner {
                // Only root may change the owner of files; the content still belongs to a user who could
                // write to the folder.
                let _ = std::os::unix::fs::fchown(&file, Some(stamp.owner.0), Some(stamp.owner.1));
            }
            rustix::fs::fchmod(&file, Mode::from_raw_mode(stamp.mode & 0o7777))
                .map_err(self.errno("set the mode of"))?;
        }
        file.sync_all().map_err(self.io("write"))
    }

    fn rename(&self, temp: &Path) -> Result<(), FileError> {
        #[cfg(target_os = "linux")]
        if self.stamp.is_none() {
            use rustix::fs::RenameFlags;
            let (folder, name) = (&self.folder, &self.name);
            match rustix::fs::renameat_with(folder, temp, folder, name, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    self.sync_folder();
                    return Ok(());
                }
                Err(Errno::EXIST) => return Err(FileError::Raced(self.shown.clone())),
                // Some file systems cannot; then the look a moment ago has to do.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                Err(error) => return Err(self.errno("write")(error)),
            }
        }
        rustix::fs::renameat(&self.folder, temp, &self.folder, &self.name).map_err(self.errno("write"))?;
        self.sync_folder();
        Ok(())
    }

    /// Syncs the folder, which makes a rename durable. Not every folder can be opened for this; the file
    /// exists anyway.
    fn sync_folder(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(fd) = rustix::fs::openat(&self.folder, ".", flags, Mode::empty()) {
            let _ = rustix::fs::fsync(fd);
        }
    }
}

fn stamp(meta: &std::fs::Metadata) -> FileStamp {
    FileStamp {
        ino: meta.ino(),
        size: meta.len(),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sandbox;

    #[test]
    fn a_folder_replaced_by_a_link_is_not_followed() {
        let sandbox = Sandbox::new();
        sandbox.write("src/x", "old");
        sandbox.write("elsewhere/x", "old");
        let real = sandbox.path("src/x");
        std::fs::rename(sandbox.path("src"), sandbox.path("gone")).expect("renamed");
        sandbox.link(sandbox.path("elsewhere"), "src");
        assert!(matches!(WriteTarget::open(&real, true), Err(FileError::Link(_))));
        // Opened before: the write goes to the folder that was meant.
        std::fs::remove_file(sandbox.path("src")).expect("removed");
        std::fs::rename(sandbox.path("gone"), sandbox.path("src")).expect("renamed");
        let mut target = WriteTarget::open(&real, false).expect("a folder");
        assert_eq!(target.read().expect("read").expect("there"), b"old");
        std::fs::rename(sandbox.path("src"), sandbox.path("gone")).expect("renamed");
        sandbox.link(sandbox.path("elsewhere"), "src");
        target.replace(b"new", || false).expect("written");
        assert_eq!((sandbox.read("gone/x"), sandbox.read("elsewhere/x")), (b"new".to_vec(), b"old".to_vec()));
    }

    #[test]
    fn a_file_changed_meanwhile_is_left_alone() {
        let sandbox = Sandbox::new();
        let real = sandbox.write("x", "old");
        let mut target = WriteTarget::open(&real, false).expect("a folder");
        target.read().expect("read");
        sandbox.write("x", "someone else's");
        assert!(matches!(target.replace(b"new", || false), Err(FileError::Raced(_))));
        let mut target = WriteTarget::open(&sandbox.path("y"), false).expect("a folder");
        assert_eq!(target.read().expect("read"), None);
        sandbox.write("y", "someone else's");
        assert!(matches!(target.replace(b"new", || false), Err(FileError::Raced(_))));
        let mut target = WriteTarget::open(&real, false).expect("a folder");
        target.read().expect("read");
        assert!(matches!(target.replace(b"new", || true), Err(FileError::Cancelled)));
        let mut names: Vec<_> = std::fs::read_dir(&sandbox.workspace.cwd)
            .expect("there")
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["x", "y"], "no temporary file is left");
        assert_eq!(sandbox.read("x"), b"someone else's");
    }
}
