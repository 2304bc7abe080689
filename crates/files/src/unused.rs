//! [`remove_unused`]: folders of aye's own that nothing has used for a time.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::opener::{LISTED, PASSAGE, metadata_at};

/// The start of the name of a folder that is being removed: a process that is killed meanwhile leaves it to the next one.
const REMOVED: &str = ".removed-";
/// Folders that are nested deeper stay: each takes a descriptor.
const MAX_DEPTH: usize = 100;

/// Removes the folders in this one that [`crate::opener::PrivateFolder::touch`] did not mark for this time, and returns how many.
/// What is in them belongs to commands: no link is followed, and folders without rights are opened.
///
/// # Errors
/// The folder cannot be listed. A folder that cannot be removed stays for the next time.
pub fn remove_unused(folder: &Path, age: Duration) -> io::Result<usize> {
    let top = match rustix::fs::open(folder, LISTED | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(0),
        other => other?,
    };
    let mut removed = 0;
    for (name, kind) in entries(&top)? {
        let is_left = name.as_bytes().starts_with(REMOVED.as_bytes());
        let is_old = || {
            let used = metadata_at(&top, &name).and_then(|about| about.modified());
            used.is_ok_and(|used| SystemTime::now().duration_since(used).is_ok_and(|unused| unused > age))
        };
        if kind != FileType::Directory || !(is_left || is_old()) {
            continue;
        }
        // No command gets it any more from here on.
        let mut gone = name.clone();
        if !is_left {
            gone = OsString::from(REMOVED);
            gone.push(&name);
            if renameat(&top, &name, &top, &gone).is_err() {
                continue;
            }
        }
        removed += usize::from(remove(&top, &gone, 0).is_ok());
    }
    Ok(removed)
}

fn entries(folder: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut all = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            all.push((name.to_owned(), entry.file_type()));
        }
    }
    Ok(all)
}

fn remove(above: &OwnedFd, name: &OsStr, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = LISTED | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(above, name, flags, Mode::empty());
    let folder = match open() {
        Err(Errno::ACCESS) => {
            open_up(openat(above, name, PASSAGE | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)?;
            open()?
        }
        other => other?,
    };
    let mut is_open = false;
    for (name, kind) in entries(&folder)? {
        if kind == FileType::Directory {
            if let Err(error) = remove(&folder, &name, depth + 1) {
                // Package managers make folders in which nothing can be removed.
                if is_open || error.kind() != io::ErrorKind::PermissionDenied {
                    return Err(error);
                }
                is_open = true;
                open_up(folder.try_clone()?)?;
                remove(&folder, &name, depth + 1)?;
            }
            continue;
        }
        match unlinkat(&folder, &name, AtFlags::empty()) {
            Err(Errno::ACCESS) if !is_open => {
                is_open = true;
                open_up(folder.try_clone()?)?;
                unlinkat(&folder, &name, AtFlags::empty())?;
            }
            other => other?,
        }
    }
    Ok(unlinkat(above, name, AtFlags::REMOVEDIR)?)
}

/// Gives the owner all rights to a folder, which is open in any way.
fn open_up(folder: impl AsFd) -> io::Result<()> {
    Ok(aye_platform::set_folder_mode(folder, Mode::RWXU)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::opener::PrivateFolder;

    #[test]
    fn folders_that_nothing_used_are_removed_with_all_that_commands_left_in_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        for name in ["top/old/go/mod", "top/used/x", "top/.removed-left/x", "outside"] {
            std::fs::create_dir_all(at(name)).expect("made");
        }
        for name in ["top/old/go/mod/file", "outside/file", "top/file"] {
            std::fs::write(at(name), "x").expect("written");
        }
        std::os::unix::fs::symlink(at("outside"), at("top/old/go/link")).expect("linked");
        std::os::unix::fs::symlink(at("outside"), at("top/link")).expect("linked");
        for (name, mode) in [("top/old/go/mod", 0o500), ("top/old/go", 0), ("top/old", 0o555)] {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).expect("changed");
        }
        let day = Duration::from_hours(24);
        for name in ["top/old", "top/used", "outside"] {
            let folder = std::fs::File::open(at(name)).expect("opened");
            folder.set_modified(SystemTime::now() - 3 * day).expect("changed");
        }
        PrivateFolder::make(&at("top/used")).expect("opened").touch().expect("marked");
        assert_eq!(remove_unused(&at("top"), 2 * day).expect("listed"), 2);
        let left = |name: &str| at(name).symlink_metadata().is_ok();
        assert!(!left("top/old") && !left("top/.removed-left") && !left("top/.removed-old"));
        assert!(left("top/used/x") && left("outside/file") && left("top/file") && left("top/link"));
        assert_eq!(remove_unused(&at("missing"), day).expect("nothing"), 0);
    }
}
