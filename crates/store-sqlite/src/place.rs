//! The open files of a store: whether they are still those at their paths, and which process locks them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::rows::with_suffix;
use super::{SqlFailure, StoreError};

/// Device and inode.
type FileId = (u64, u64);

/// A store's file and its write-ahead log, by what they are and not by their names.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    id: Option<FileId>,
    log: Option<FileId>,
}

impl OpenFile {
    /// The file that was just opened, and its log, which SQLite keeps until the last process closes the file.
    pub(super) fn at(path: PathBuf) -> OpenFile {
        OpenFile { id: id_of(&path), log: id_of(&with_suffix(&path, "-wal")), path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses to write to files that cannot be found again: one was deleted, moved or replaced by another one.
    pub(super) fn check(&self) -> Result<(), SqlFailure> {
        for (path, id) in [(self.path.clone(), self.id), (with_suffix(&self.path, "-wal"), self.log)] {
            if id.is_some() && id_of(&path) != id {
                return Err(StoreError::Gone { path }.into());
            }
        }
        Ok(())
    }
}

fn id_of(path: &Path) -> Option<FileId> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Returns another process that has a lock on the store, if the system reports one.
///
/// The process is read from the kernel's list of locks: opening the file once more would drop SQLite's own
/// locks along with the descriptor.
pub(super) fn locked_by(file: &Path) -> Option<u32> {
    let list = aye_platform::locks()?;
    let ids = ["-shm", ""].map(|suffix| id_of(&with_suffix(file, suffix)));
    let files: Vec<u64> = ids.into_iter().flatten().map(|(_, ino)| ino).collect();
    holder(&list, &files, std::process::id())
}

/// The process with a write lock on one of the files; else one with a read lock.
fn holder(list: &str, files: &[u64], own: u32) -> Option<u32> {
    let mut reader = None;
    for ino in files {
        // The device before it is another one on stacked file systems.
        let place = format!(":{ino}");
        for line in list.lines() {
            // `1: POSIX  ADVISORY  WRITE 4711 fe:01:131 120 120`; a waiting lock has an arrow after its
            // number.
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, _, _, kind, pid, at, ..] = fields[..] else { continue };
            let Some(pid) = pid.parse().ok().filter(|pid| *pid != own && *pid != 0) else { continue };
            if !at.ends_with(&place) {
                continue;
            }
            if kind == "WRITE" {
                return Some(pid);
            }
            reader = reader.or(Some(pid));
        }
    }
    reader
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writing_process_is_named() {
        let list = "1: POSIX  ADVISORY  READ  11 fe:01:77 124 124\n\
                    1: -> POSIX  ADVISORY  WRITE 12 fe:01:77 120 120\n\
                    2: POSIX  ADVISORY  WRITE 13 fe:01:78 120 120\n\
                    3: FLOCK  ADVISORY  WRITE 14 fe:01:77 0 EOF\n\
                    4: OFDLCK ADVISORY  WRITE -1 fe:01:77 0 EOF\n";
        assert_eq!(holder(list, &[77], 1), Some(14));
        assert_eq!(holder(list, &[77], 14), Some(11), "oneself is no other process");
        assert_eq!(holder(list, &[78], 1), Some(13));
        assert_eq!(holder(list, &[79], 1), None);
        assert_eq!(holder("", &[77], 1), None);
    }
}
