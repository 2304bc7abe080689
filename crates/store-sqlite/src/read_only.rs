//! Opens a store that cannot be written to, for reading only: a backup, a read-only disk, another user's folder.
//! Creates and changes nothing beside it.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use super::OpenError;
use super::open::{from_io, from_sqlite, harden, header_of, identify, inspect, migrate, our_version, pragma};
use super::rows::with_suffix;

const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX)
    .union(OpenFlags::SQLITE_OPEN_NOFOLLOW)
    .union(OpenFlags::SQLITE_OPEN_URI);

/// Opens the file, which must be there, and gives its path with the folder resolved.
pub(super) fn open(path: &Path, busy: Duration) -> Result<(Connection, PathBuf), OpenError> {
    let io = |error| from_io(path, error);
    let name =
        path.file_name().ok_or(OpenError::NotAFile { path: path.to_owned(), what: "not a file name" })?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = folder.canonicalize().map_err(io)?.join(name);
    let there = header_of(&file)?.ok_or_else(|| from_io(&file, std::io::ErrorKind::NotFound.into()))?;
    if there.len() < 100 {
        let why = "it is too short to be a database".to_owned();
        return Err(OpenError::NotOurs { path: file, why });
    }
    let log = header_of(&with_suffix(&file, "-wal"))?;
    let index = header_of(&with_suffix(&file, "-shm"))?;
    let how = match (log, index) {
        // The index of the log is left alone: another process may be writing it, and its locks are honoured.
        (Some(_), Some(_)) => "readonly_shm=1",
        // No process has the file open, or there would be a log: no lock is needed, and none can be acquired.
        (None, _) => "immutable=1",
        (Some(log), None) if log.len() == 0 => "immutable=1",
        // A log needs an index, and there is no place to create one.
        (Some(_), None) => return Ok((copied(&file, busy)?, file)),
    };
    let fail = |error| from_sqlite(&file, busy, error);
    let conn = Connection::open_with_flags(uri(&file, how), FLAGS).map_err(fail)?;
    conn.busy_timeout(busy).map_err(fail)?;
    harden(&conn).map_err(fail)?;
    identify(&conn, &file, busy)?;
    if pragma(&conn, "user_version").map_err(fail)? < our_version() {
        drop(conn);
        return Ok((copied(&file, busy)?, file));
    }
    inspect(&conn, &file, busy)?;
    Ok((conn, file))
}

/// A copy in memory, brought up to date, that refuses to be written to.
fn copied(file: &Path, busy: Duration) -> Result<Connection, OpenError> {
    let fail = |error| from_sqlite(file, busy, error);
    let io = |error| from_io(file, error);
    let folder = tempfile::Builder::new().prefix("aye-look-").tempdir().map_err(io)?;
    let copy = folder.path().join("aye.db");
    for suffix in ["", "-wal"] {
        match std::fs::copy(with_suffix(file, suffix), with_suffix(&copy, suffix)) {
            Err(error) if !(suffix == "-wal" && error.kind() == std::io::ErrorKind::NotFound) => {
                return Err(io(error));
            }
            // The copied file is as read-only as the original.
            Ok(_) => super::open::tighten(&with_suffix(&copy, suffix), 0, 0o600)?,
            Err(_) => {}
        }
    }
    let mut source = Connection::open(&copy).map_err(fail)?;
    harden(&source).map_err(fail)?;
    identify(&source, file, busy)?;
    migrate(&mut source, file)?;
    inspect(&source, file, busy)?;
    let mut memory = Connection::open_in_memory().map_err(fail)?;
    harden(&memory).map_err(fail)?;
    Backup::new(&source, &mut memory)
        .and_then(|backup| backup.run_to_completion(i32::MAX, Duration::ZERO, None))
        .map_err(fail)?;
    memory.pragma_update(None, "query_only", true).map_err(fail)?;
    Ok(memory)
}

/// Returns the path as a URI for SQLite, with the way in which to open it.
fn uri(file: &Path, how: &str) -> String {
    let mut uri = "file://".to_owned();
    for byte in file.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            other => {
                let _ = write!(uri, "%{other:02x}");
            }
        }
    }
    uri + "?" + how
}
