//! Replaces a file's content whole or not at all, and only there where it was meant. The replacement grants no more than
//! the file did; a file that no other can replace is written in place, with a copy kept until that is durable.
//!
//! The folder is opened component by component without following a link (the path was resolved before), and all that
//! follows happens relative to that descriptor. So nothing that is renamed or linked meanwhile sends a write elsewhere.

use std::fs::{File, Metadata};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use aye_files::opener::{self, PASSAGE};
use aye_files::rights;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::exec::{Spill, private_file};
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
    #[error("{0} cannot be written: {1}")]
    NotWritable(String, Errno),
    #[error("{0} was changed concurrently; nothing was written")]
    Raced(String),
    #[error("{0} or a parent folder is now a link; nothing was written")]
    Link(String),
    #[error("cancelled before anything was written")]
    Cancelled,
    #[error("cannot {verb} {path}: {reason}")]
    Io { verb: &'static str, path: String, reason: String },
    #[error("cannot write {path} completely: {reason}; its content before is in {copy}")]
    Half { path: String, reason: String, copy: String },
}

/// Why a file was not replaced by another.
enum NotReplaced {
    /// It never can be: its folder is not writable, it is a mount point, or another file cannot be as accessible.
    Never(FileError),
    Failed(FileError),
}

impl From<FileError> for NotReplaced {
    fn from(error: FileError) -> Self {
        Self::Failed(error)
    }
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
    /// The file that was read, and its state then.
    old: Option<(File, FileStamp)>,
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

impl WriteTarget {
    /// Opens the folder of `real`, a path whose links are resolved. Missing folders are made when `create` is set.
    pub(super) fn open(real: &Path, create: bool) -> Result<Self, FileError> {
        let shown = escape(real);
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(FileError::IsFolder(shown));
        };
        let opened = if create { opener::make_folder(parent) } else { opener::open(parent, PASSAGE) };
        let folder = opened.map_err(|errno| match errno {
            errno if errno == Errno::NOTDIR || opener::is_link(errno) => FileError::Link(shown.clone()),
            other => {
                FileError::Io { verb: "open the folder of", path: shown.clone(), reason: other.to_string() }
            }
        })?;
        Ok(Self { folder, name: name.into(), shown, old: None })
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
        // A file that this user may not write is not replaced either, although a writable folder allows it.
        // Not every system can tell; then writing does.
        if let Err(why @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) =
            rustix::fs::accessat(&self.folder, &self.name, Access::WRITE_OK, AtFlags::EACCESS)
        {
            return Err(FileError::NotWritable(self.shown.clone(), why));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        (&file).take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(self.io("read"))?;
        self.old = Some((file, stamp(&meta)));
        Ok(Some(bytes))
    }

    /// Whether this is its folder.
    pub(super) fn is_in(&self, folder: &OwnedFd) -> bool {
        let id = |fd| rustix::fs::fstat(fd).map(|about| (about.st_dev, about.st_ino)).ok();
        id(&self.folder).is_some_and(|own| Some(own) == id(folder))
    }

    /// The attributes of the file that was read.
    pub(super) fn read_file(&self) -> Option<std::io::Result<Metadata>> {
        self.old.as_ref().map(|(file, _)| file.metadata())
    }

    fn stamp(&self) -> Option<FileStamp> {
        self.old.as_ref().map(|(_, stamp)| *stamp)
    }

    fn now(&self) -> Result<Option<FileStamp>, FileError> {
        match opener::metadata_at(&self.folder, self.name.as_os_str()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            found => Ok(Some(stamp(&found.map_err(self.io("read"))?))),
        }
    }

    /// Replaces the file that was read, or creates the one that did not exist. Owner, group, mode, access control list and
    /// attributes are kept; `copies` is the folder for what is kept while a file is written in place. `cancelled` is
    /// checked once more at the last moment.
    pub(super) fn replace(
        &self,
        bytes: &[u8],
        copies: &Path,
        cancelled: impl Fn() -> bool,
    ) -> Result<(), FileError> {
        match (self.replace_by_name(bytes, &cancelled), &self.old) {
            (Ok(()), _) => Ok(()),
            (Err(NotReplaced::Never(_)), Some((old, stamp))) => {
                self.write_in_place(bytes, (old, stamp), copies, cancelled)
            }
            (Err(NotReplaced::Never(error) | NotReplaced::Failed(error)), _) => Err(error),
        }
    }

    fn replace_by_name(&self, bytes: &[u8], cancelled: impl Fn() -> bool) -> Result<(), NotReplaced> {
        let temp = PathBuf::from(format!(".aye-{}.tmp", uuid::Uuid::new_v4().simple()));
        let result = self.write_temp(&temp, bytes).and_then(|()| {
            if cancelled() {
                return Err(FileError::Cancelled.into());
            }
            if self.now()? != self.stamp() {
                return Err(FileError::Raced(self.shown.clone()).into());
            }
            self.rename(&temp)
        });
        if result.is_err() {
            let _ = rustix::fs::unlinkat(&self.folder, &temp, AtFlags::empty());
        }
        result
    }

    /// Sorts errors of a folder by whether the file in it can be written nevertheless.
    fn not_replaced(&self, errno: Errno) -> NotReplaced {
        let error = self.errno("write")(errno);
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY | Errno::XDEV => {
                NotReplaced::Never(error)
            }
            _ => NotReplaced::Failed(error),
        }
    }

    fn write_temp(&self, temp: &Path, bytes: &[u8]) -> Result<(), NotReplaced> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The umask decides about a new file; what replaces another file is private until it is complete.
        let mode = if self.old.is_some() { 0o600 } else { 0o666 };
        let fd = rustix::fs::openat(&self.folder, temp, flags, Mode::from_raw_mode(mode))
            .map_err(|errno| self.not_replaced(errno))?;
        let mut file = File::from(fd);
        file.write_all(bytes).map_err(self.io("write"))?;
        if let Some((old, stamp)) = &self.old {
            let mode = aye_platform::permissions(stamp.mode);
            rights::copy(old, &file, mode)
                .map_err(|error| NotReplaced::Never(self.io("keep the access rights of")(error)))?;
        }
        Ok(file.sync_all().map_err(self.io("write"))?)
    }

    fn rename(&self, temp: &Path) -> Result<(), NotReplaced> {
        if self.old.is_none() {
            match aye_platform::rename_new(&self.folder, temp, &self.name) {
                Ok(true) => {
                    self.sync_folder();
                    return Ok(());
                }
                // Some file systems cannot; then the look a moment ago has to do.
                Ok(false) => {}
                Err(Errno::EXIST) => return Err(FileError::Raced(self.shown.clone()).into()),
                Err(error) => return Err(self.not_replaced(error)),
            }
        }
        rustix::fs::renameat(&self.folder, temp, &self.folder, &self.name)
            .map_err(|errno| self.not_replaced(errno))?;
        self.sync_folder();
        Ok(())
    }

    /// Writes the file itself. A private copy of the content before is kept until the new one is durable, and for good
    /// when neither can be written whole.
    fn write_in_place(
        &self,
        bytes: &[u8],
        (old, stamp): (&File, &FileStamp),
        copies: &Path,
        cancelled: impl Fn() -> bool,
    ) -> Result<(), FileError> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty())
            .map_err(self.errno("write"))?;
        let file = File::from(fd);
        let mut before = vec![0; usize::try_from(stamp.size).unwrap_or(0)];
        old.read_exact_at(&mut before, 0).map_err(self.io("read"))?;
        let name = format!("before-{}", uuid::Uuid::now_v7());
        let kept = private_file(&Spill { dir: copies.to_owned(), name });
        let (copy, mut kept) = kept.map_err(self.io("keep a copy of"))?;
        let written = kept.write_all(&before).and_then(|()| kept.sync_all());
        let written = written.map_err(self.io("keep a copy of")).and_then(|()| {
            if cancelled() {
                return Err(FileError::Cancelled);
            }
            if self::stamp(&file.metadata().map_err(self.io("read"))?) != *stamp {
                return Err(FileError::Raced(self.shown.clone()));
            }
            // What does not fit is refused before anything is lost.
            aye_platform::reserve(&file, bytes.len() as u64).map_err(self.errno("write"))?;
            overwrite(&file, bytes).map_err(|error| match overwrite(&file, &before) {
                Ok(()) => self.io("write")(error),
                Err(_) => FileError::Half {
                    path: self.shown.clone(),
                    reason: error.to_string(),
                    copy: escape(&copy),
                },
            })
        });
        if !matches!(written, Err(FileError::Half { .. })) {
            #[expect(clippy::disallowed_methods, reason = "no command can write in the folder for copies")]
            let _ = std::fs::remove_file(&copy);
        }
        written
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

fn overwrite(file: &File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

fn stamp(meta: &Metadata) -> FileStamp {
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

    fn copies(sandbox: &Sandbox) -> PathBuf {
        sandbox.path("../outputs")
    }

    /// Replaces a file as a call does.
    fn write(sandbox: &Sandbox, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        let mut target = WriteTarget::open(&sandbox.path(name), false)?;
        target.read()?;
        target.replace(bytes, &copies(sandbox), || false)
    }

    fn inode(sandbox: &Sandbox, name: &str) -> u64 {
        std::fs::metadata(sandbox.path(name)).expect("is there").ino()
    }

    /// Nothing is left of what was kept.
    fn nothing_kept(sandbox: &Sandbox) -> bool {
        std::fs::read_dir(copies(sandbox)).is_ok_and(|entries| entries.count() == 0)
    }

    /// Runs a test again in another process, which `wrapper` starts.
    #[cfg(target_os = "linux")]
    fn again(test: &str, wrapper: &mut std::process::Command) -> std::process::Output {
        let own = std::env::current_exe().expect("a path");
        wrapper.arg(own).args(["--exact", &format!("atomic::tests::{test}"), "--nocapture"]);
        wrapper.env("AYE_TEST_AGAIN", "1").output().expect("is started")
    }

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
        target.replace(b"new", &copies(&sandbox), || false).expect("written");
        assert_eq!((sandbox.read("gone/x"), sandbox.read("elsewhere/x")), (b"new".to_vec(), b"old".to_vec()));
    }

    #[test]
    fn a_file_changed_meanwhile_is_left_alone() {
        let sandbox = Sandbox::new();
        let real = sandbox.write("x", "old");
        let mut target = WriteTarget::open(&real, false).expect("a folder");
        target.read().expect("read");
        sandbox.write("x", "someone else's");
        assert!(matches!(target.replace(b"new", &copies(&sandbox), || false), Err(FileError::Raced(_))));
        let mut target = WriteTarget::open(&sandbox.path("y"), false).expect("a folder");
        assert_eq!(target.read().expect("read"), None);
        sandbox.write("y", "someone else's");
        assert!(matches!(target.replace(b"new", &copies(&sandbox), || false), Err(FileError::Raced(_))));
        let mut target = WriteTarget::open(&real, false).expect("a folder");
        target.read().expect("read");
        assert!(matches!(target.replace(b"new", &copies(&sandbox), || true), Err(FileError::Cancelled)));
        let mut names: Vec<_> = std::fs::read_dir(&sandbox.workspace.cwd)
            .expect("there")
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["x", "y"], "no temporary file is left");
        assert_eq!(sandbox.read("x"), b"someone else's");
    }

    /// Without the right to change owners, as any user but root.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_owner_that_cannot_be_kept_widens_nothing() {
        use caps::{CapSet, Capability};
        let sandbox = Sandbox::new();
        let path = sandbox.write("x", "old");
        let set = |mode| {
            std::os::unix::fs::chown(&path, Some(2000), Some(3000)).ok()?;
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).ok()
        };
        let state = || {
            let meta = std::fs::metadata(&path).expect("is there");
            (meta.uid(), meta.gid(), meta.mode() & 0o7777)
        };
        if set(0o2775).is_none() {
            return;
        }
        write(&sandbox, "x", b"by root").expect("written");
        assert_eq!(state(), (2000, 3000, 0o2775));
        std::thread::scope(|threads| {
            let other = threads.spawn(|| {
                // The rights of a thread are its own.
                caps::drop(None, CapSet::Effective, Capability::CAP_CHOWN).expect("dropped");
                write(&sandbox, "x", b"by another").expect("written");
            });
            other.join().expect("it ends");
        });
        let (owner, group, mode) = state();
        assert_eq!((sandbox.read("x"), owner), (b"by another".to_vec(), rustix::process::geteuid().as_raw()));
        assert_ne!(group, 3000, "a user has only their own groups");
        assert_eq!(mode, 0o755, "no set-id bit, and the other group writes nothing");
    }

    /// A folder that is not writable is no reason to leave a file alone that is.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_in_a_folder_that_is_not_writable_is_written_in_place() {
        use caps::{CapSet, Capability};
        use std::os::unix::fs::PermissionsExt as _;
        let sandbox = Sandbox::new();
        sandbox.write("closed/x", "what it contained before");
        sandbox.write("closed/private", "old");
        std::fs::create_dir(copies(&sandbox)).expect("a folder");
        let mode = |name: &str, mode| {
            std::fs::set_permissions(sandbox.path(name), std::fs::Permissions::from_mode(mode)).expect("set");
        };
        mode("closed", 0o555);
        let before = inode(&sandbox, "closed/x");
        std::thread::scope(|threads| {
            let other = threads.spawn(|| {
                caps::drop(None, CapSet::Effective, Capability::CAP_DAC_OVERRIDE).expect("dropped");
                write(&sandbox, "closed/x", b"new").expect("written");
                assert_eq!(sandbox.read("closed/x"), b"new");
                write(&sandbox, "closed/x", b"longer than it was before that").expect("written");
                let error = write(&sandbox, "closed/new", b"x").expect_err("there is no file to write");
                assert!(error.to_string().contains("Permission denied"), "{error}");
                // Nobody but another owner may write this one, whatever the folder allows.
                mode("closed/private", 0o464);
                mode("closed", 0o755);
                let error = write(&sandbox, "closed/private", b"new").expect_err("not writable");
                assert!(
                    error.to_string().contains("private cannot be written: Permission denied"),
                    "{error}"
                );
            });
            other.join().expect("it ends");
        });
        assert_eq!(sandbox.read("closed/x"), b"longer than it was before that");
        assert_eq!(sandbox.read("closed/private"), b"old");
        assert_eq!(inode(&sandbox, "closed/x"), before);
        assert!(nothing_kept(&sandbox));
    }

    /// As containers have them: one file of the host, at its own place.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_is_a_mount_point_is_written_in_place() {
        use std::process::Command;
        const TEST: &str = "a_file_that_is_a_mount_point_is_written_in_place";
        if std::env::var_os("AYE_TEST_AGAIN").is_none() {
            let output = again(TEST, Command::new("unshare").args(["--mount", "--map-root-user", "--"]));
            let text = String::from_utf8_lossy(&output.stdout);
            let failed = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() || failed.contains("unshare failed"), "{failed}");
            return;
        }
        let sandbox = Sandbox::new();
        sandbox.write("host", "old");
        sandbox.write("x", "");
        let runs = |command: &mut Command| command.status().expect("is started").success();
        if !runs(Command::new("mount").arg("--bind").args([sandbox.path("host"), sandbox.path("x")])) {
            return;
        }
        write(&sandbox, "x", b"new").expect("written");
        assert_eq!((sandbox.read("x"), sandbox.read("host")), (b"new".to_vec(), b"new".to_vec()));
        assert!(nothing_kept(&sandbox));
        assert!(runs(Command::new("umount").arg(sandbox.path("x"))));
    }

    /// A full disk in the middle of it: the content before comes back.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_was_written_in_part_gets_its_content_back() {
        let sandbox = Sandbox::new();
        let path = sandbox.write("x", "old content");
        let mut target = WriteTarget::open(&path, false).expect("a folder");
        target.read().expect("read");
        let (old, stamp) = target.old.as_ref().expect("is there");
        let limit = rustix::process::Resource::Fsize;
        let before = rustix::process::getrlimit(limit);
        if std::env::var_os("AYE_TEST_AGAIN").is_none() {
            const TEST: &str = "a_file_that_was_written_in_part_gets_its_content_back";
            // Its own process: the limit is for all of it, and its signal too.
            let output = again(TEST, std::process::Command::new("env").arg("--ignore-signal=XFSZ"));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        rustix::process::setrlimit(
            limit,
            rustix::process::Rlimit { current: Some(20), maximum: before.maximum },
        )
        .expect("limited");
        let error = target
            .write_in_place(&[b'n'; 100], (old, stamp), &copies(&sandbox), || false)
            .expect_err("too large");
        assert!(error.to_string().contains("cannot write"), "{error}");
        rustix::process::setrlimit(limit, before).expect("unlimited");
        assert_eq!(sandbox.read("x"), b"old content");
        assert!(nothing_kept(&sandbox));
    }
}
