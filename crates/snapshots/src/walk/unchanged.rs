//! Finds what did not change since the last look, before the look itself.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use aye_files::opener::{PASSAGE, open_beneath};
use aye_platform::FileAttributes;
use rustix::fs::{AtFlags, fstat, statat};

use super::super::SnapshotLimits;
use super::seen::{FileStamp, Folder, SeenFile, What};
use super::{WalkContext, path_of, rule_sources};

/// Maximum number of threads that read times.
const CHECKERS: usize = 4;
/// Fewer files than this are not worth a second thread; tests have few.
const FEW: usize = if cfg!(test) { 1 } else { 2_000 };

/// Marks the folders that are as they were, so that the look numbered `number` asks for nothing in them again.
pub(super) fn mark(place: &WalkContext<'_>, top: &OwnedFd, device: u64, seen: &mut Folder, number: u64) {
    check(place, top, device, seen, number);
    mark_unchanged(seen, number);
}

/// Asks for the times of the folders and files that are known, in several threads: with many files nearly all of a look
/// is that. A folder that is as it was, with all of its files, is marked, and the look itself asks for none of it again.
fn check(place: &WalkContext<'_>, top: &OwnedFd, device: u64, seen: &Folder, number: u64) {
    let mut folders = Vec::new();
    flatten(seen, &mut Vec::new(), &mut folders);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(CHECKERS));
    if threads < 2 || folders.iter().map(|(_, folder)| folder.rows.len()).sum::<usize>() < FEW {
        return;
    }
    let next = AtomicUsize::new(0);
    let one = || {
        let Some((path, folder)) = folders.get(next.fetch_add(1, Ordering::Relaxed)) else { return false };
        if is_same(place.limits, top, device, path, folder) {
            folder.same_in.store(number, Ordering::Relaxed);
        }
        true
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // One that cannot be started is done without.
            drop(
                std::thread::Builder::new()
                    .name("snapshot".to_owned())
                    .spawn_scoped(scope, || while one() {}),
            );
        }
        // Only this thread may ask whether to stop.
        while !(place.is_stopped)() && one() {}
        next.store(folders.len(), Ordering::Relaxed);
    });
}

/// All folders with their paths.
fn flatten<'a>(folder: &'a Folder, path: &mut Vec<u8>, folders: &mut Vec<(Vec<u8>, &'a Folder)>) {
    folders.push((path.clone(), folder));
    let length = path.len();
    for SeenFile { name, what } in &folder.rows {
        if let What::Folder(below) = what {
            path.extend_from_slice(name);
            path.push(b'/');
            flatten(below, path, folders);
            path.truncate(length);
        }
    }
}

/// Whether a folder and all of its known files are unchanged; the folders in it are not looked at.
fn is_same(limits: &SnapshotLimits, top: &OwnedFd, device: u64, path: &[u8], folder: &Folder) -> bool {
    let opened;
    let fd = match path {
        [] => top,
        path => match open_beneath(top, &path_of(path), PASSAGE) {
            Ok(fd) => {
                opened = fd;
                &opened
            }
            Err(_) => return false,
        },
    };
    let is_folder_same =
        fstat(fd).is_ok_and(|about| {
            FileAttributes::from(&about).device == device && folder.stamp == Some(FileStamp::of(&about))
        }) && folder.rules.as_ref().is_none_or(|rules| rule_sources(limits, fd) == (rules.sources, false));
    is_folder_same
        && folder.rows.iter().all(|row| match &row.what {
            What::File { stamp, hash } => {
                hash.is_some()
                    && statat(fd, &*row.name, AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|about| FileStamp::of(&about) == *stamp)
            }
            What::Link(_) | What::Folder(_) => true,
        })
}

/// Marks the folders that are as they were with everything below them; whether this one is.
fn mark_unchanged(folder: &mut Folder, number: u64) -> bool {
    let mut is_unchanged = *folder.same_in.get_mut() == number && folder.hash.is_some();
    for row in &mut folder.rows {
        if let What::Folder(below) = &mut row.what {
            is_unchanged &= mark_unchanged(below, number);
        }
    }
    if is_unchanged {
        folder.unchanged_in = number;
    }
    is_unchanged
}
