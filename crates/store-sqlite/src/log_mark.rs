//! Detects a write-ahead log that was deleted or replaced by another store's while no process had the store open:
//! SQLite would then show an earlier state without a word, or copy pages of the other store into this one.
//!
//! A process that leaves a log behind writes the mark beside it: the salts of the log's header, and the time of the last
//! write to the file. The mark is written only while the log has committed frames that are not in the file yet. From
//! then on every healthy store has either the same log or a file that was written later, whoever works with it and
//! however it dies. So a mark that contradicts both is proof of a loss, and nothing else is. The store's own files are
//! only read here.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rusqlite::Connection;

use super::OpenError;
use super::rows::with_suffix;

/// Length of the header of a log, in bytes.
const HEADER: usize = 32;

/// When a file was written last, in seconds and nanoseconds.
type Written = (i64, i64);

#[derive(Debug, PartialEq)]
struct Mark {
    /// Both salts of the log's header.
    salts: u64,
    written: Written,
}

impl Mark {
    /// Reads the mark of a store. An earlier format, which also marked logs without a commit, is none.
    fn read(file: &Path) -> Option<Mark> {
        let text = std::fs::read_to_string(with_suffix(file, "-mark")).ok()?;
        let mut fields = text.split_whitespace();
        let salts = fields.next().filter(|salts| salts.len() == 16)?;
        let salts = u64::from_str_radix(salts, 16).ok()?;
        Some(Mark { salts, written: (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?) })
    }

    fn write(&self, file: &Path) -> std::io::Result<()> {
        let mut open = std::fs::OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        let mut mark = open.open(with_suffix(file, "-mark"))?;
        // The user's mask may have taken rights from the owner, too.
        mark.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        writeln!(mark, "{:016x} {} {}", self.salts, self.written.0, self.written.1)
    }
}

fn written(file: &Path) -> Option<Written> {
    let meta = std::fs::symlink_metadata(file).ok()?;
    Some((meta.mtime(), meta.mtime_nsec()))
}

fn salts_of(log: &Path) -> Option<u64> {
    let mut header = [0; HEADER];
    // It is a plain file: that was checked before.
    std::fs::File::open(log).ok()?.read_exact(&mut header).ok()?;
    header[16..24].try_into().ok().map(u64::from_be_bytes)
}

/// Marks the log that a process is about to leave behind, if it has commits that are not in the file.
pub(super) fn note(connection: &Connection, file: &Path) {
    if let Err(error) = try_note(connection, file) {
        tracing::debug!(%error, "a deleted log will not be detected");
    }
}

fn try_note(connection: &Connection, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let log = with_suffix(file, "-wal");
    let Some(before) = written(file) else { return Ok(()) };
    // The next write to the file then gets a later time, however coarse the times of this file system are.
    if written(&log) <= Some(before) {
        return Ok(());
    }
    let (frames, in_file): (i64, i64) =
        connection.query_row("PRAGMA wal_checkpoint(NOOP)", (), |row| Ok((row.get(1)?, row.get(2)?)))?;
    let Some(salts) = salts_of(&log).filter(|_| frames > in_file) else { return Ok(()) };
    let mark = Mark { salts, written: before };
    // The same time after all: the frames that were counted are in the log with these salts.
    if written(file) != Some(before) || Mark::read(file).as_ref() == Some(&mark) {
        return Ok(());
    }
    // After a power cut a log whose last commits did not reach the disk may get new salts.
    std::fs::File::open(&log)?.sync_data()?;
    Ok(mark.write(file)?)
}

/// Removes the mark before the log is folded into the file: a power cut may lose the time of that write.
pub(super) fn lift(file: &Path) {
    let _ = std::fs::remove_file(with_suffix(file, "-mark"));
}

/// Refuses a store whose log is missing, once, and one whose log belongs to another store, until that log is gone.
pub(super) fn check(file: &Path) -> Result<(), OpenError> {
    let Some(mark) = Mark::read(file) else { return Ok(()) };
    let is_current = || written(file) == Some(mark.written);
    if !is_current() {
        return Ok(());
    }
    let found = salts_of(&with_suffix(file, "-wal"));
    // Another process writes to the file before it removes or restarts the log.
    if found == Some(mark.salts) || !is_current() {
        return Ok(());
    }
    let path = file.to_owned();
    if found.is_some() {
        return Err(OpenError::ForeignLog { path });
    }
    lift(file);
    Err(OpenError::LogLost { path, what: "is missing".to_owned() })
}
