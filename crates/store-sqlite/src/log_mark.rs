//! Detects a write-ahead log that was deleted or replaced by another store's: SQLite would then open the file without
//! it and show an earlier state.
//!
//! The mark beside the store contains the log's identity (the first salt of its header, which SQLite counts up) and
//! the time of the last write to the file itself. A program that folds the log into the file changes that time: then
//! the mark does not apply.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::OpenError;
use super::rows::with_suffix;

/// Length of the header of a log, in bytes.
const HEADER: usize = 32;
/// Maximum restarts of a log between two marks.
const RESTARTS: u32 = 1 << 20;

#[derive(Debug, PartialEq)]
struct Mark {
    salt: u32,
    /// When the file was written last, in seconds and nanoseconds.
    written: (i64, i64),
}

impl Mark {
    fn read(file: &Path) -> Option<Mark> {
        let text = std::fs::read_to_string(with_suffix(file, "-mark")).ok()?;
        let mut fields = text.split_whitespace();
        let salt = u32::from_str_radix(fields.next()?, 16).ok()?;
        Some(Mark { salt, written: (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?) })
    }

    fn of(file: &Path) -> Option<Mark> {
        Some(Mark { salt: salt_of(&with_suffix(file, "-wal"))?, written: written(file)? })
    }
}

fn written(file: &Path) -> Option<(i64, i64)> {
    let meta = std::fs::symlink_metadata(file).ok()?;
    Some((meta.mtime(), meta.mtime_nsec()))
}

fn salt_of(log: &Path) -> Option<u32> {
    let mut header = [0; HEADER];
    // It is a plain file: that was checked before.
    std::fs::File::open(log).ok()?.read_exact(&mut header).ok()?;
    Some(u32::from_be_bytes([header[16], header[17], header[18], header[19]]))
}

/// Marks the current log. Returns `false` if there is no log yet.
pub(super) fn note(file: &Path) -> bool {
    let Some(mark) = Mark::of(file) else { return false };
    if Mark::read(file).as_ref() != Some(&mark) {
        let (seconds, nanos) = mark.written;
        let mut open = std::fs::OpenOptions::new();
        let written = open
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(with_suffix(file, "-mark"))
            .and_then(|mut at| {
                // The user's mask may have taken rights from the owner, too.
                at.set_permissions(std::fs::Permissions::from_mode(0o600))?;
                writeln!(at, "{:08x} {seconds} {nanos}", mark.salt)
            });
        if let Err(error) = written {
            tracing::debug!(%error, "a deleted log will not be detected");
        }
    }
    true
}

/// Takes the mark away: the log may go.
pub(super) fn lift(file: &Path) {
    let _ = std::fs::remove_file(with_suffix(file, "-mark"));
}

/// Refuses, once, a store whose log is missing or belongs to another store; the next start works with the
/// contents of the file.
pub(super) fn check(file: &Path) -> Result<(), OpenError> {
    let Some(mark) = Mark::read(file).filter(|mark| Some(mark.written) == written(file)) else {
        return Ok(());
    };
    let log = with_suffix(file, "-wal");
    let what = match salt_of(&log) {
        Some(salt) if salt.wrapping_sub(mark.salt) <= RESTARTS => return Ok(()),
        None => "is missing".to_owned(),
        Some(_) => {
            let aside = with_suffix(file, "-wal.foreign");
            let _ = std::fs::rename(&log, &aside);
            let _ = std::fs::remove_file(with_suffix(file, "-shm"));
            format!("belongs to another store and is now {}", aside.display())
        }
    };
    lift(file);
    Err(OpenError::LogLost { path: file.to_owned(), what })
}
