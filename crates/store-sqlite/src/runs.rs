//! Runs.

use rusqlite::{Connection, OptionalExtension, Row};

use super::rows::{all, body, decode, encode, first, readable, run_status, text};
use super::{SqlFailure, Store, StoreError, outlines, statistics};
use aye_core::contract::ids::{RunId, ThreadId, check_given};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::RunRecord;

impl Store {
    /// Returns the run, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its row is unreadable.
    pub async fn run(&self, id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        let id = id.clone();
        self.read(move |conn| one(conn, "SELECT thread_id, id, body FROM run WHERE id = ?1", id.as_str()))
            .await
    }

    /// The run of a thread that was born last.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its row is unreadable.
    pub async fn latest_run(&self, thread: &ThreadId) -> Result<Option<RunRecord>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| latest(conn, &thread)).await
    }

    /// All runs of a thread, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn runs(&self, thread: &ThreadId) -> Result<Vec<RunRecord>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| of_thread(conn, &thread)).await
    }

    /// All runs that are not done, oldest first. An unreadable one is left out and logged: it must not keep the
    /// others from being resumed.
    pub async fn unfinished_runs(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.read(|conn| {
            let sql = "SELECT thread_id, id, body FROM run WHERE status <> 'done' ORDER BY n";
            Ok(all(conn, sql, (), |row| readable(run_of(row)))?.into_iter().flatten().collect())
        })
        .await
    }
}

pub(super) fn of_thread(conn: &Connection, thread: &ThreadId) -> Result<Vec<RunRecord>, SqlFailure> {
    let sql = "SELECT thread_id, id, body FROM run WHERE thread_id = ?1 ORDER BY n";
    all(conn, sql, (thread.as_str(),), run_of)
}

/// Whether the run exists.
pub(super) fn exists(conn: &Connection, id: &RunId) -> Result<bool, SqlFailure> {
    Ok(conn.prepare_cached("SELECT 1 FROM run WHERE id = ?1")?.exists((id.as_str(),))?)
}

pub(super) fn latest(conn: &Connection, thread: &ThreadId) -> Result<Option<RunRecord>, SqlFailure> {
    let sql = "SELECT thread_id, id, body FROM run WHERE thread_id = ?1 ORDER BY n DESC LIMIT 1";
    one(conn, sql, thread.as_str())
}

fn one(conn: &Connection, sql: &str, key: &str) -> Result<Option<RunRecord>, SqlFailure> {
    first(conn, sql, (key,), run_of)
}

pub(super) fn run_of(row: &Row<'_>) -> Result<RunRecord, SqlFailure> {
    let thread = ThreadId::from(text(row, 0)?);
    let id = text(row, 1)?;
    decode(&thread, &format!("run {id}"), body(row, 2)?)
}

/// Writes a run, new or known. A finished run stays finished, and no run changes its thread. Returns whether the run is
/// new.
pub(super) fn upsert(conn: &Connection, run: &RunRecord) -> Result<bool, SqlFailure> {
    let word = run_status(run.status);
    let stored: Option<(String, String)> = conn
        .prepare_cached("SELECT thread_id, status FROM run WHERE id = ?1")?
        .query_row((run.id.as_str(),), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let body = encode("the run", run)?;
    let was = if let Some((thread, status)) = stored {
        if thread != run.thread_id.as_str() {
            let (what, place) = (format!("run {}", run.id), format!("thread {}", run.thread_id));
            return Err(StoreError::Misplaced { what, place }.into());
        }
        if status == run_status(RunStatus::Done) && run.status != RunStatus::Done {
            return Err(StoreError::RunOver { run: run.id.clone() }.into());
        }
        // A column that is set is written in the indices that depend on it, also with the value that it has.
        if status == word {
            conn.prepare_cached("UPDATE run SET body = ?2 WHERE id = ?1")?
                .execute((run.id.as_str(), body))?;
        } else {
            conn.prepare_cached("UPDATE run SET body = ?2, status = ?3 WHERE id = ?1")?.execute((
                run.id.as_str(),
                body,
                word,
            ))?;
        }
        Some(status)
    } else {
        check_given("run", run.id.as_str())?;
        conn.prepare_cached(
            "INSERT INTO run (id, thread_id, status, body, parent_run_id) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((
            run.id.as_str(),
            run.thread_id.as_str(),
            word,
            body,
            run.parent_run_id.as_ref().map(RunId::as_str),
        ))?;
        None
    };
    if run.status == RunStatus::Done && was.as_deref() != Some(word) {
        statistics::ended(conn, run)?;
        outlines::add_up(conn, &run.thread_id, outlines::RUNS)?;
    }
    Ok(was.is_none())
}
