//! The audit: append-only rows, each chained to the one before by its hash.
//!
//! Rows are written in the transactions they record, so none is missing and none records what did not happen. Nothing
//! in this program changes or deletes one.

mod chain;
mod cross_check;
mod facts;
mod history;
mod sums;
mod verify;

use rusqlite::{Connection, Row};
use serde_json::Value;

use super::rows::{body, body_or_null, encode, int, text, uint};
use super::{AuditFilter, SqlFailure, Store, StoreError};
use aye_core::contract::audit::{AuditKind, AuditRow};
use aye_core::contract::audit_entry::{AuditEntry, Covered};
use aye_core::contract::ids::{CallId, RunId, ThreadId};
use aye_core::contract::judgement::{JudgedCall, TriedRule};
use aye_core::contract::record::RunRecord;

use chain::unwritable;

#[cfg(test)]
pub(crate) use verify::{differences, is_quick};

const COLUMNS: &str = "n, at, kind, thread_id, run_id, call_id, body, hash";

/// The subject of a row.
#[derive(Clone, Copy, Default)]
pub(super) struct AuditSubject<'a> {
    pub(super) thread: Option<&'a ThreadId>,
    pub(super) run: Option<&'a RunId>,
    pub(super) call: Option<&'a CallId>,
}

impl Store {
    /// Returns the rows that match the filter, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails. A row whose body is not JSON is returned with its text as the
    /// body: the chain shows that the row was changed.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |conn| {
            let mut found = Vec::new();
            each(conn, &filter, |row| {
                found.push(row);
                true
            })?;
            Ok(found)
        })
        .await
    }

    /// As [`Store::audit`], handed on one by one until `receive` returns `false`.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails.
    pub async fn audit_each(
        &self,
        filter: AuditFilter,
        receive: impl FnMut(AuditRow) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        self.read(move |conn| each(conn, &filter, receive)).await
    }

    /// Returns the lists of rules by which calls were judged, by their hashes. An unreadable list is left
    /// out.
    pub async fn audit_rules(&self) -> Result<Vec<(String, Vec<TriedRule>)>, StoreError> {
        self.read(move |conn| {
            let mut statement = conn.prepare_cached("SELECT hash, body FROM audit_rules")?;
            let mut rows = statement.query(())?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                if let Ok(rules) = serde_json::from_slice(body(row, 1)?) {
                    found.push((text(row, 0)?, rules));
                }
            }
            Ok(found)
        })
        .await
    }
}

fn each(
    conn: &Connection,
    filter: &AuditFilter,
    receive: impl FnMut(AuditRow) -> bool,
) -> Result<(), SqlFailure> {
    each_after(conn, filter, 0, receive)
}

/// The same without the first rows. Their content is not read.
pub(super) fn each_after(
    conn: &Connection,
    filter: &AuditFilter,
    mut skip: u64,
    mut receive: impl FnMut(AuditRow) -> bool,
) -> Result<(), SqlFailure> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM audit WHERE (?1 IS NULL OR at >= ?1) AND (?2 IS NULL OR thread_id = ?2) ORDER BY n"
    ))?;
    let mut rows = statement.query((filter.since.map(int), filter.thread.as_ref().map(ThreadId::as_str)))?;
    while let Some(row) = rows.next()? {
        if !filter.kinds.is_empty() && !filter.kinds.contains(&kind_of(row)?) {
            continue;
        }
        if skip > 0 {
            skip -= 1;
        } else if !receive(row_of(row)?) {
            break;
        }
    }
    Ok(())
}

fn kind_of(row: &Row<'_>) -> Result<AuditKind, SqlFailure> {
    Ok(AuditKind::parse(&text(row, 2)?).unwrap_or(AuditKind::Other))
}

/// Adds a row at the end of the chain.
///
/// If the end was tampered with, the row is still written, after all others: the link that does not fit stays
/// in the chain as a trace, and work continues.
pub(super) fn append(
    conn: &Connection,
    at: u64,
    kind: AuditKind,
    about: AuditSubject<'_>,
    body: &Value,
) -> Result<(), SqlFailure> {
    let (last, previous): (i64, Option<String>) = conn
        .prepare_cached(
            "SELECT max(coalesce((SELECT max(n) FROM audit), 0), coalesce((SELECT n FROM audit_head), 0)), \
                    (SELECT hash FROM audit_head)",
        )?
        .query_row((), |row| {
            let hash = body_or_null(row, 1)?.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            Ok((row.get(0)?, hash))
        })?;
    let n = last.checked_add(1).ok_or_else(|| StoreError::Unwritable {
        what: "a row of the audit",
        why: "it has no row number left; `aye audit --verify` shows the inserted row".to_owned(),
    })?;
    let body = encode("a row of the audit", body)?;
    let names =
        [about.thread.map(ThreadId::as_str), about.run.map(RunId::as_str), about.call.map(CallId::as_str)];
    let row = Covered { n, at: int(at), kind: kind.as_str(), about: names, body: &body };
    let hash = row.hash(previous.as_deref().unwrap_or_default()).map_err(unwritable)?;
    conn.prepare_cached(
        "INSERT INTO audit (n, at, kind, thread_id, run_id, call_id, body, hash) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute((n, int(at), kind.as_str(), names[0], names[1], names[2], &body, &hash))?;
    conn.prepare_cached(
        "INSERT INTO audit_head (one, n, hash) VALUES (1, ?1, ?2) \
         ON CONFLICT (one) DO UPDATE SET n = excluded.n, hash = excluded.hash",
    )?
    .execute((n, &hash))?;
    Ok(())
}

/// The same for a row of a transaction that every store has.
pub(super) fn append_entry(conn: &Connection, entry: &AuditEntry) -> Result<(), SqlFailure> {
    let about = AuditSubject {
        thread: entry.thread_id.as_ref(),
        run: entry.run_id.as_ref(),
        call: entry.call_id.as_ref(),
    };
    append(conn, entry.at, entry.kind, about, &entry.body)
}

/// Records the verdict on a call. The list of rules is stored once for all calls that it judged.
pub(super) fn judged(conn: &Connection, run: &RunRecord, call: &JudgedCall) -> Result<(), SqlFailure> {
    let (entry, hash, rules) = AuditEntry::judged(run, call).map_err(unwritable)?;
    conn.prepare_cached("INSERT INTO audit_rules (hash, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute((&hash, &rules))?;
    append_entry(conn, &entry)
}

fn row_of(row: &Row<'_>) -> Result<AuditRow, SqlFailure> {
    let maybe = |at: usize| -> rusqlite::Result<Option<String>> {
        Ok(body_or_null(row, at)?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    let bytes = body(row, 6)?;
    let body = serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(bytes).into_owned()));
    Ok(AuditRow {
        chain: String::new(),
        n: uint(row.get(0)?),
        at: uint(row.get(1)?),
        kind: kind_of(row)?,
        thread_id: maybe(3)?.map(ThreadId::from),
        run_id: maybe(4)?.map(RunId::from),
        call_id: maybe(5)?.map(CallId::from),
        body,
        hash: text(row, 7)?,
    })
}
