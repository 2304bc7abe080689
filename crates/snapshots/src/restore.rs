//! Restores files. Every component of a path is opened separately and no link is followed, so that nothing
//! outside the folder can be reached.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, openat, renameat, statat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::tree::{Item, PathKind, TreeDifference};
use super::walk::path_of;
use aye_files::opener::{self, FilePlace, make_folder_beneath, open_beneath};
use aye_files::rights;
use aye_store_sqlite::objects::{ObjectKind, Objects};

/// Carries differences out: files that go first, then those that come. Gives what did not work, with why.
pub(super) fn apply_differences(
    root: &Path,
    objects: &Objects,
    differences: &[TreeDifference],
) -> Vec<(Vec<u8>, String)> {
    let mut failed = Vec::new();
    let top = match openat(rustix::fs::CWD, root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(top) => top,
        Err(error) => return vec![(Vec::new(), io::Error::from(error).to_string())],
    };
    // Deepest first, so that folders that became empty can go.
    for difference in differences.iter().rev().filter(|difference| difference.after.is_none()) {
        if let Err(error) = delete(&top, &difference.path) {
            failed.push((difference.path.clone(), error.to_string()));
        }
    }
    for difference in differences {
        if let Some(item) = &difference.after
            && let Err(error) = create(&top, objects, &difference.path, item)
        {
            failed.push((difference.path.clone(), error.to_string()));
        }
    }
    failed
}

/// The folder that a path is in, and its name there.
fn parent(top: &OwnedFd, path: &[u8], make: bool) -> io::Result<FilePlace> {
    let path = path_of(path);
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("its path leads out of the folder"));
    };
    let folder =
        if make { make_folder_beneath(top, above) } else { open_beneath(top, above, opener::PASSAGE) };
    let folder = folder.map_err(|error| match error {
        Errno::XDEV => io::Error::other("its path leads out of the folder"),
        Errno::NOTDIR | Errno::LOOP => {
            io::Error::other(format!("something that is not a folder is in the way of {}", path.display()))
        }
        other => other.into(),
    })?;
    Ok(FilePlace { folder, name: name.to_owned() })
}

fn delete(top: &OwnedFd, path: &[u8]) -> io::Result<()> {
    let FilePlace { folder, name } = match parent(top, path, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    match unlinkat(&folder, &*name, AtFlags::empty()) {
        Err(error) if error != rustix::io::Errno::NOENT => return Err(error.into()),
        _ => {}
    }
    // Folders that this left empty go too; the first one that is not empty stays, and all above it.
    let mut rest = path;
    while let Some(at) = rest.iter().rposition(|b| *b == b'/') {
        rest = &rest[..at];
        let Ok(FilePlace { folder, name }) = parent(top, rest, false) else { break };
        if unlinkat(&folder, &*name, AtFlags::REMOVEDIR).is_err() {
            break;
        }
    }
    Ok(())
}

fn create(top: &OwnedFd, objects: &Objects, path: &[u8], item: &Item) -> io::Result<()> {
    if matches!(item.kind, PathKind::LeftOut | PathKind::Absent) {
        return Ok(());
    }
    let bytes = objects.get(ObjectKind::Bytes, &item.hash).map_err(io::Error::other)?;
    let FilePlace { folder, name } = parent(top, path, true)?;
    let name = &*name;
    let there = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(about) => Some(about),
        Err(rustix::io::Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    let kind = there.as_ref().map(|about| FileType::from_raw_mode(about.st_mode));
    match kind {
        None | Some(FileType::RegularFile | FileType::Symlink) => {}
        // Files in it are not part of what goes back, or they would be gone by now.
        Some(FileType::Directory) => unlinkat(&folder, name, AtFlags::REMOVEDIR)
            .map_err(|_| io::Error::other("a folder that is not empty is in the way"))?,
        Some(_) => return Err(io::Error::other("something that is not a file is in the way")),
    }
    // The new file replaces the existing one atomically.
    let aside = format!(".aye-{}", uuid::Uuid::now_v7().simple());
    let replaced = match kind {
        Some(FileType::RegularFile) => {
            // A file that cannot be read has its mode, which the replacement gets too.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            there.zip(Some(openat(&folder, name, flags, Mode::empty()).ok()))
        }
        _ => None,
    };
    let made = write(&folder, &aside, item.kind, &bytes, replaced)
        .and_then(|()| Ok(renameat(&folder, aside.as_str(), &folder, name)?));
    if made.is_err() {
        let _ = unlinkat(&folder, aside.as_str(), AtFlags::empty());
    }
    made
}

fn write(
    folder: &OwnedFd,
    name: &str,
    kind: PathKind,
    bytes: &[u8],
    replaced: Option<(rustix::fs::Stat, Option<OwnedFd>)>,
) -> io::Result<()> {
    if kind == PathKind::Link {
        return Ok(symlinkat(OsStr::from_bytes(bytes), folder, name)?);
    }
    let is_program = kind == PathKind::Program;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // What replaces another file is private until it has that one's rights.
    let mode = match (&replaced, is_program) {
        (Some(_), _) => 0o600,
        (None, true) => 0o777,
        (None, false) => 0o666,
    };
    let mut file = File::from(openat(folder, name, flags, Mode::from_raw_mode(mode))?);
    if let Some((there, old)) = replaced {
        let mode = there.st_mode & 0o777;
        let mode = if is_program { mode | (mode & 0o444) >> 2 } else { mode & !0o111 };
        let mode = Mode::from_raw_mode(mode);
        match old {
            Some(old) => rights::copy(&File::from(old), &file, mode)?,
            None => fchmod(&file, mode)?,
        }
    }
    file.write_all(bytes)
}
