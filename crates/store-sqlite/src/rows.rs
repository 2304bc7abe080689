//! Conversion between rows and our types: JSON bodies, numbers, paths, words.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Params, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{SqlFailure, StoreError};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::{OutcomeKind, SuspensionStatus};
use aye_core::contract::storage;

/// Reads all rows of a query.
pub(super) fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    of: impl FnMut(&Row<'_>) -> Result<T, SqlFailure>,
) -> Result<Vec<T>, SqlFailure> {
    conn.prepare_cached(sql)?.query_and_then(params, of)?.collect()
}

/// Reads the first row of a query; `None` if there is none.
pub(super) fn first<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    of: impl FnMut(&Row<'_>) -> Result<T, SqlFailure>,
) -> Result<Option<T>, SqlFailure> {
    conn.prepare_cached(sql)?.query_and_then(params, of)?.next().transpose()
}

/// For lists over all threads: a damaged row is left out and logged, so that it does not hide the others.
pub(super) fn readable<T>(read: Result<T, SqlFailure>) -> Result<Option<T>, SqlFailure> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error @ SqlFailure(StoreError::Damaged { .. })) => {
            tracing::error!("{error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Converts a number for SQLite. A number beyond SQLite's range means "never" wherever it can occur.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number as we have it; a negative one, which we never write, is 0.
pub(super) fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

pub(super) fn path_from(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// A body's bytes. SQLite does not look whether text is UTF-8; [`decode`] does, and names the thread.
pub(super) fn body<'a>(row: &'a Row<'_>, at: usize) -> rusqlite::Result<&'a [u8]> {
    Ok(row.get_ref(at)?.as_bytes()?)
}

/// The same for a body that may be null.
pub(super) fn body_or_null<'a>(row: &'a Row<'_>, at: usize) -> rusqlite::Result<Option<&'a [u8]>> {
    Ok(row.get_ref(at)?.as_bytes_or_null()?)
}

/// A word or a title. One that is not UTF-8 must not take a whole list away.
pub(super) fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(at)?.as_bytes()?).into_owned())
}

/// Our type as a body.
pub(super) fn encode<T: Serialize + ?Sized>(what: &'static str, value: &T) -> Result<String, SqlFailure> {
    Ok(storage::encode(what, value)?)
}

/// A body as our type; what cannot be read damages its thread.
pub(super) fn decode<T: DeserializeOwned>(
    thread: &ThreadId,
    what: &str,
    body: &[u8],
) -> Result<T, SqlFailure> {
    serde_json::from_slice(body).map_err(|error| {
        let why = format!("{what} cannot be read ({error})");
        SqlFailure(StoreError::Damaged { thread: thread.clone(), why })
    })
}

pub(super) fn run_status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running => "running",
        RunStatus::Waiting => "waiting",
        RunStatus::Done => "done",
    }
}

pub(super) fn run_status_from(word: &str) -> Option<RunStatus> {
    [RunStatus::Running, RunStatus::Waiting, RunStatus::Done].into_iter().find(|s| run_status(*s) == word)
}

pub(super) fn suspension_status(status: SuspensionStatus) -> &'static str {
    match status {
        SuspensionStatus::Open => "open",
        SuspensionStatus::Decided => "decided",
        SuspensionStatus::Applied => "applied",
        SuspensionStatus::Superseded => "superseded",
        SuspensionStatus::Expired => "expired",
    }
}

pub(super) fn suspension_status_from(word: &str) -> Option<SuspensionStatus> {
    [
        SuspensionStatus::Open,
        SuspensionStatus::Decided,
        SuspensionStatus::Applied,
        SuspensionStatus::Superseded,
        SuspensionStatus::Expired,
    ]
    .into_iter()
    .find(|s| suspension_status(*s) == word)
}

pub(super) fn outcome_kind(kind: OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::Returned => "returned",
        OutcomeKind::Unknown => "unknown",
        OutcomeKind::Cancelled => "cancelled",
    }
}

/// Returns the path with a suffix appended to its file name, whatever its bytes are.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OsStr::new(suffix));
    PathBuf::from(name)
}
