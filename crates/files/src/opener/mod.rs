//! Opens files and folders by descriptor, without links on the way: what was checked is what is used.
//!
//! A path is resolved once ([`resolve`]), the result is judged, and then exactly that is opened here. Whoever renames or
//! links something meanwhile gets an error ([`is_link`]) instead of another file. All that follows happens relative to the
//! descriptor.

#[cfg(test)]
mod tests;

mod private;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, mkdirat, openat, readlinkat, statat};
use rustix::io::Errno;

pub use private::PrivateFolder;

pub use aye_platform::PASSAGE;

/// A folder whose entries are listed.
pub const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK);

/// Follows all links of a path, once. What it returns is judged and then opened without following any.
///
/// # Errors
/// When something on the way is missing or may not be entered.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// Why the place of a new file is not known.
#[derive(Debug)]
pub enum Unresolved {
    /// This link leads to nothing.
    Dangling(PathBuf),
    Io(io::Error),
}

/// Follows all links of a path that need not exist: what is missing of it is kept as it is.
///
/// # Errors
/// A link leads to nothing, or something on the way may not be entered.
pub fn resolve_new(path: &Path) -> Result<PathBuf, Unresolved> {
    let mut existing = path;
    let mut missing = Vec::new();
    loop {
        match resolve(existing) {
            Ok(real) => return Ok(missing.iter().rev().fold(real, |folder, name| folder.join(name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if existing.symlink_metadata().is_ok() {
                    return Err(Unresolved::Dangling(existing.to_owned()));
                }
                let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
                    return Err(Unresolved::Io(error));
                };
                missing.push(name);
                existing = parent;
            }
            Err(error) => return Err(Unresolved::Io(error)),
        }
    }
}

/// Returns whether a path is not what it was when it was resolved: a link is on it now.
pub fn is_link(errno: Errno) -> bool {
    matches!(errno, Errno::LOOP | Errno::XDEV)
}

/// Opens a resolved absolute path. No link is followed, the last component included.
///
/// # Errors
/// Those of the system; [`is_link`] tells a link.
pub fn open(real: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let top = openat(rustix::fs::CWD, "/", PASSAGE | OFlags::CLOEXEC, Mode::empty())?;
    open_beneath(top, real.strip_prefix("/").map_err(|_| Errno::INVAL)?, flags)
}

/// Opens a path below an open folder. Neither a link nor `..` is followed.
///
/// # Errors
/// Those of the system; [`is_link`] tells a link.
pub fn open_beneath(folder: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(Errno::XDEV);
    }
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match aye_platform::open_beneath(&folder, path, flags) {
        // A folder that became a link is not a folder for one who opens it as such.
        Some(Err(Errno::NOTDIR)) if has_link(&folder, path) => return Err(Errno::LOOP),
        Some(opened) => return opened,
        None => {}
    }
    open_by_steps(folder, path, flags, &mut |_| Ok(()))
}

/// The same, component by component. `each` sees every folder on the way, and may refuse it.
///
/// # Errors
/// Those of the system and of `each`.
pub fn open_by_steps<E: From<Errno>>(
    folder: impl AsFd,
    path: &Path,
    flags: OFlags,
    each: &mut dyn FnMut(&OwnedFd) -> Result<(), E>,
) -> Result<OwnedFd, E> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names = path.components().filter(|part| *part != Component::CurDir).peekable();
    let mut above: Option<OwnedFd> = None;
    loop {
        let at = above.as_ref().map_or(folder.as_fd(), AsFd::as_fd);
        let name = match names.next() {
            None => return Ok(openat(at, ".", flags, Mode::empty())?),
            Some(Component::Normal(name)) => name,
            Some(_) => return Err(Errno::XDEV.into()),
        };
        if names.peek().is_none() {
            return Ok(openat(at, name, flags, Mode::empty()).map_err(|errno| of_link(at, name, errno))?);
        }
        let next = step(at, name)?;
        each(&next)?;
        above = Some(next);
    }
}

/// Opens a folder on the way.
fn step(folder: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = PASSAGE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&folder, name, flags, Mode::empty()).map_err(|errno| of_link(&folder, name, errno))
}

/// A link that is opened as a folder is reported as `ENOTDIR`.
fn of_link(folder: impl AsFd, name: &OsStr, errno: Errno) -> Errno {
    let is_link = || {
        statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::Symlink)
    };
    if errno == Errno::NOTDIR && is_link() { Errno::LOOP } else { errno }
}

fn has_link(folder: impl AsFd, path: &Path) -> bool {
    open_by_steps(folder, path, PASSAGE, &mut |_| Ok(())).is_err_and(|errno: Errno| is_link(errno))
}

/// Opens the folder of a resolved absolute path, and makes what is missing of it.
///
/// # Errors
/// Those of the system; [`is_link`] tells a link.
pub fn make_folder(real: &Path) -> Result<OwnedFd, Errno> {
    make_folder_in_root(real, Mode::from_raw_mode(0o777))
}

fn make_folder_in_root(real: &Path, mode: Mode) -> Result<OwnedFd, Errno> {
    let top = openat(rustix::fs::CWD, "/", PASSAGE | OFlags::CLOEXEC, Mode::empty())?;
    make_with_mode(top, real.strip_prefix("/").map_err(|_| Errno::INVAL)?, mode)
}

/// Opens a folder below another, and makes what is missing of it.
///
/// # Errors
/// Those of the system; [`is_link`] tells a link.
pub fn make_folder_beneath(top: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    make_with_mode(top, path, Mode::from_raw_mode(0o777))
}

fn make_with_mode(top: impl AsFd, path: &Path, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut folder = openat(&top, ".", PASSAGE | OFlags::CLOEXEC, Mode::empty())?;
    for part in path.components() {
        let name = match part {
            Component::CurDir => continue,
            Component::Normal(name) => name,
            _ => return Err(Errno::XDEV),
        };
        folder = match step(&folder, name) {
            Err(Errno::NOENT) => {
                match mkdirat(&folder, name, mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                step(&folder, name)?
            }
            other => other?,
        };
    }
    Ok(folder)
}

/// A name in a folder that is kept open. What is done with it is done there, wherever the folder is moved.
#[derive(Debug)]
pub struct FilePlace {
    pub folder: OwnedFd,
    /// The name in it.
    pub name: OsString,
}

impl FilePlace {
    /// Opens the folder of a resolved absolute path.
    ///
    /// # Errors
    /// Those of the system; [`is_link`] tells a link. `EISDIR` for `/` itself.
    pub fn of(real: &Path) -> Result<FilePlace, Errno> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else { return Err(Errno::ISDIR) };
        Ok(FilePlace { folder: open(parent, PASSAGE)?, name: name.to_owned() })
    }

    /// Opens the folder of a path below an open folder.
    ///
    /// # Errors
    /// Those of the system; [`is_link`] tells a link. `EISDIR` for the folder itself.
    pub fn beneath(folder: impl AsFd, path: &Path) -> Result<FilePlace, Errno> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::ISDIR) };
        Ok(FilePlace { folder: open_beneath(folder, parent, PASSAGE)?, name: name.to_owned() })
    }

    /// Returns what is there now; a link is not followed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn stat(&self) -> Result<Stat, Errno> {
        statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens the regular file for reading; see [`open_regular_at`].
    ///
    /// # Errors
    /// When it is something else, or cannot be opened.
    pub fn open_regular(&self) -> io::Result<File> {
        open_regular_at(&self.folder, &self.name)
    }

    /// Returns where a link leads, as it is written.
    ///
    /// # Errors
    /// Those of the system.
    pub fn link_target(&self) -> io::Result<PathBuf> {
        link_target_at(&self.folder, &self.name)
    }
}

/// Opens a regular file in a folder for reading. Anything else is refused without waiting for it; a device is not even
/// opened.
///
/// # Errors
/// When it is something else, or cannot be opened.
pub fn open_regular_at(folder: impl AsFd, name: &OsStr) -> io::Result<File> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    let about = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Err(refused());
    }
    let file = File::from(openat(&folder, name, READ, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

/// The file may be replaced by a FIFO before it is opened: then opening must not wait for a writer.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Reads the attributes of what is in a folder now; a link is not followed.
///
/// # Errors
/// Those of the system.
pub fn metadata_at(folder: impl AsFd, name: &OsStr) -> io::Result<Metadata> {
    let flags = aye_platform::INSPECTED | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    File::from(openat(&folder, name, flags, Mode::empty())?).metadata()
}

/// Returns where a link in a folder leads, as it is written.
///
/// # Errors
/// Those of the system.
pub fn link_target_at(folder: impl AsFd, name: &OsStr) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let target = readlinkat(folder, name, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// Counts the entries of a folder that is open to be listed, up to `most`. It can be listed afterwards.
///
/// # Errors
/// Those of the system.
pub fn count(folder: impl AsFd, most: usize) -> io::Result<usize> {
    let names = Dir::read_from(folder)?.flatten();
    let names = names.filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
    Ok(names.take(most).count())
}

/// Opens a regular file by its path, following the links on it now.
///
/// # Errors
/// When it cannot be opened or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    FilePlace::of(&resolve(path)?)?.open_regular()
}

/// Reads the start of a regular file; anything else with its name is never waited for.
pub fn read_regular(path: &Path, most: u64) -> Option<Vec<u8>> {
    read_start(open_regular(path).ok()?, most)
}

/// Reads the start of a file.
pub(crate) fn read_start(file: File, most: u64) -> Option<Vec<u8>> {
    use std::io::Read as _;

    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
