//! Locks in files that show which processes are alive: the kernel releases them when their process ends, however it
//! ends, and every process of the kernel sees them, whatever its pid namespace.
//!
//! Only its holder ever locks a file exclusively. Whoever looks, or removes what the dead left, takes a shared lock for a
//! moment, so that two of them never take each other for the holder. Whoever removes holds the folder's own lock as well:
//! of two, the slower one would remove the file that the next holder has created in the meantime.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for those who look at a lock, which takes them a moment.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// A folder of lock files.
#[derive(Clone, Debug)]
pub struct LockFolder {
    path: PathBuf,
}

/// What is known of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// A process holds it.
    Held,
    /// Its file exists, and no process holds it.
    Released,
    /// There is no such file.
    Absent,
    /// There is no such folder, or the file cannot be read.
    Unknown,
}

/// A lock that is held until this is dropped, or this process ends.
#[derive(Debug)]
pub struct HeldLock {
    path: PathBuf,
    folder: LockFolder,
    file: Mutex<File>,
}

impl LockFolder {
    /// A folder, which is created with the first lock.
    pub fn new(path: impl Into<PathBuf>) -> LockFolder {
        LockFolder { path: path.into() }
    }

    /// The file of a lock; names come from rows, and must not lead elsewhere.
    fn file(&self, name: &str) -> Option<PathBuf> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name = Some(name).filter(|name| (1..=200).contains(&name.len()) && name.chars().all(is_plain))?;
        Some(self.path.join(name))
    }

    fn create(&self) -> Result<()> {
        if !self.path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
            // The user's mask may have taken rights from the owner, too.
            std::fs::set_permissions(&self.path, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Takes the lock of this name.
    ///
    /// # Errors
    /// When another process holds it, the folder cannot be written to, or its file system has no working locks.
    pub fn hold(&self, name: &str) -> Result<HeldLock> {
        let path = self.file(name).ok_or(ErrorKind::InvalidFilename)?;
        self.create()?;
        let file = lock(&path)?;
        // Some file systems accept every lock.
        match open(&path)?.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Err(Error::new(ErrorKind::Unsupported, "locks have no effect here")),
        }
        Ok(HeldLock { path, folder: self.clone(), file: Mutex::new(file) })
    }

    /// Looks at a lock.
    pub fn state(&self, name: &str) -> LockState {
        let Some(path) = self.file(name) else { return LockState::Unknown };
        match open(&path).map(|file| file.try_lock_shared()) {
            Ok(Err(TryLockError::WouldBlock)) => LockState::Held,
            Ok(Ok(())) => LockState::Released,
            Err(error) if error.kind() == ErrorKind::NotFound && self.path.is_dir() => LockState::Absent,
            Ok(Err(TryLockError::Error(_))) | Err(_) => LockState::Unknown,
        }
    }

    /// Removes the files of locks that no process holds, unless another process is about to.
    pub fn remove_released(&self) {
        let Ok(folder) = File::open(&self.path) else { return };
        if folder.try_lock().is_err() {
            return;
        }
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let path = entry.file_name().to_str().and_then(|name| self.file(name));
            let Some(path) = path.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file())) else {
                continue;
            };
            // The shared lock keeps the owner of a file that was just created from taking it, until it is removed: then the
            // owner finds that the file it locked has no name, and creates another one.
            if let Ok(file) = open(&path)
                && file.try_lock_shared().is_ok()
                && is_at(&file, &path)
            {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

impl HeldLock {
    /// Creates the file again if something removed it: without it, others take this process for dead.
    ///
    /// # Errors
    /// As [`LockFolder::hold`].
    pub fn keep(&self) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_at(&file, &self.path) {
            self.folder.create()?;
            *file = lock(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let file = self.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        if is_at(file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Waits for the lock of a file that only this user may use, and that is made unless it exists. It is held until the file
/// is dropped.
///
/// # Errors
/// Those of the system, also where the name is a link.
pub fn lock_private_file(path: &Path) -> Result<File> {
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(nofollow);
    let file = options.open(path)?;
    // The umask may have removed our own permission, which the next lock needs.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.lock()?;
    Ok(file)
}

fn open(path: &Path) -> Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn lock(path: &Path) -> Result<File> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let file = options.open(path)?;
        // The user's mask may have taken rights from the owner, too.
        file.set_permissions(Permissions::from_mode(0o600))?;
        match file.try_lock() {
            // Whoever removes what the dead left may have been faster.
            Ok(()) if is_at(&file, path) => return Ok(file),
            Ok(()) => {}
            // It is held, unless those in the way can share it.
            Err(TryLockError::WouldBlock) if file.try_lock_shared().is_err() => break,
            Err(TryLockError::WouldBlock) => {
                drop(file);
                std::thread::sleep(PAUSE);
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(ErrorKind::WouldBlock.into())
}

/// Whether the file still has this name.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |about: std::fs::Metadata| (about.dev(), about.ino());
    let named = std::fs::symlink_metadata(path).ok().map(id);
    named.is_some() && named == file.metadata().ok().map(id)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn folder() -> (tempfile::TempDir, LockFolder) {
        let dir = tempfile::tempdir().expect("a folder");
        let locks = LockFolder::new(dir.path().join("alive"));
        (dir, locks)
    }

    #[test]
    fn a_lock_is_held_until_it_is_dropped_and_leaves_no_file() {
        let (dir, locks) = folder();
        assert_eq!(locks.state("a"), LockState::Unknown, "there is no folder");
        let held = locks.hold("a").expect("locked");
        assert_eq!(locks.state("a"), LockState::Held);
        assert_eq!(locks.state("b"), LockState::Absent);
        assert!(locks.hold("a").is_err(), "one process at a time");
        locks.remove_released();
        assert_eq!(locks.state("a"), LockState::Held);
        drop(held);
        assert_eq!(locks.state("a"), LockState::Absent);
        assert_eq!(std::fs::read_dir(dir.path().join("alive")).expect("it is there").count(), 0);
    }

    #[test]
    fn what_the_dead_left_is_released_and_removed() {
        let (dir, locks) = folder();
        let _held = locks.hold("living").expect("locked");
        // As a killed process leaves it: the kernel released the lock, nobody removed the file.
        std::fs::write(dir.path().join("alive/dead"), "").expect("written");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("alive/link")).expect("linked");
        assert_eq!(locks.state("dead"), LockState::Released);
        assert_eq!(locks.state("link"), LockState::Unknown, "links are not followed");
        locks.remove_released();
        assert_eq!((locks.state("dead"), locks.state("living")), (LockState::Absent, LockState::Held));
        assert!(dir.path().join("alive/link").is_symlink(), "what is no lock stays");
    }

    #[test]
    fn a_lock_whose_file_was_removed_comes_back() {
        let (dir, locks) = folder();
        let held = locks.hold("a").expect("locked");
        held.keep().expect("nothing to do");
        std::fs::remove_dir_all(dir.path().join("alive")).expect("removed");
        assert_eq!(locks.state("a"), LockState::Unknown);
        held.keep().expect("locked again");
        assert_eq!(locks.state("a"), LockState::Held);
    }

    #[test]
    fn names_do_not_lead_out_of_the_folder() {
        let (_dir, locks) = folder();
        for name in ["", "../x", "/etc/passwd", ".", "a/b", "a\0"] {
            assert!(locks.hold(name).is_err(), "{name:?}");
            assert_eq!(locks.state(name), LockState::Unknown, "{name:?}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        let (dir, _) = folder();
        std::fs::write(dir.path().join("file"), "").expect("written");
        let locks = LockFolder::new(dir.path().join("file/alive"));
        assert!(locks.hold("a").is_err());
        assert_eq!(locks.state("a"), LockState::Unknown);
        assert_eq!(dir.path().join("file").metadata().expect("there").permissions().mode() & 0o111, 0);
    }

    /// Ends the threads of a test also when it fails, which would wait for them forever otherwise.
    struct Done<'a>(&'a AtomicBool);

    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn cleaning_never_takes_the_name_of_a_living_lock() {
        let (_dir, locks) = folder();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _done = Done(&done);
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        locks.remove_released();
                    }
                });
            }
            for round in 0..500 {
                let name = format!("n{}", round % 3);
                let held = locks.hold(&name).expect("locked");
                assert_eq!(locks.state(&name), LockState::Held, "round {round}");
                drop(held);
            }
        });
    }

    #[test]
    fn only_one_process_removes_what_the_dead_left() {
        let (dir, locks) = folder();
        std::fs::create_dir(dir.path().join("alive")).expect("created");
        std::fs::write(dir.path().join("alive/dead"), "").expect("written");
        let other = File::open(dir.path().join("alive")).expect("open");
        other.try_lock().expect("another process removes");
        locks.remove_released();
        assert_eq!(locks.state("dead"), LockState::Released, "the other one removes it");
        drop(other);
        locks.remove_released();
        assert_eq!(locks.state("dead"), LockState::Absent);
    }
}
