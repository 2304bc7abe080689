//! The audit: rows that are only ever added, each chained to the one before by its hash.
//!
//! They are written in the transactions that make true what they tell, so none is missing and none tells of what did
//! not happen. Nothing in this program changes or deletes one.

use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::{Value, json};

use super::rows::{body, body_or_null, encode, int, text, uint};
use super::{Store, StoreError};
use crate::contract::audit::{AuditKind, AuditRow};
use crate::contract::digest::sha256_hex;
use crate::contract::ids::{CallId, RunId, ThreadId};
use crate::contract::judgement::{JudgedCall, TriedRule};
use crate::contract::record::{Begin, Fence, OutcomeRecord, RunRecord};

const COLUMNS: &str = "n, at, kind, thread_id, run_id, call_id, body, hash";
/// Characters of a result that its row keeps.
const SUMMARY: usize = 200;

/// Which rows to list; what is `None` or empty does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Written at this time or later, in Unix milliseconds.
    pub since: Option<u64>,
    /// Of this thread.
    pub thread: Option<ThreadId>,
    /// Of these kinds.
    pub kinds: Vec<AuditKind>,
}

/// What a row is about.
#[derive(Clone, Copy, Default)]
pub(super) struct About<'a> {
    pub(super) thread: Option<&'a ThreadId>,
    pub(super) run: Option<&'a RunId>,
    pub(super) call: Option<&'a CallId>,
}

impl<'a> About<'a> {
    pub(super) fn call(run: &'a RunRecord, call: &'a CallId) -> About<'a> {
        About { thread: Some(&run.thread_id), run: Some(&run.id), call: Some(call) }
    }
}

impl Store {
    /// The rows that the filter leaves, oldest first. The rules of a judged call come as the list they were.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails. A row whose body is no JSON is given with its text as the body: the chain
    /// says that it was changed.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |conn| {
            let mut statement = conn.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM audit WHERE (?1 IS NULL OR at >= ?1) AND (?2 IS NULL OR thread_id = ?2) \
                 ORDER BY n"
            ))?;
            let mut rows =
                statement.query((filter.since.map(int), filter.thread.as_ref().map(ThreadId::as_str)))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let row = row_of(row)?;
                if filter.kinds.is_empty() || filter.kinds.contains(&row.kind) {
                    found.push(row);
                }
            }
            Ok(found)
        })
        .await
    }

    /// A list of rules that calls were held against, by its hash.
    pub async fn audit_rules(&self, hash: &str) -> Result<Option<Vec<TriedRule>>, StoreError> {
        let hash = hash.to_owned();
        self.read(move |conn| {
            let text: Option<Vec<u8>> = conn
                .prepare_cached("SELECT body FROM audit_rules WHERE hash = ?1")?
                .query_row((hash,), |row| Ok(body(row, 0)?.to_vec()))
                .optional()?;
            Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
        })
        .await
    }
}

/// The text that a row's hash covers: JSON, so that no two rows share it.
fn covered(
    previous: &str,
    n: u64,
    at: u64,
    kind: &str,
    about: [Option<&str>; 3],
    body: &str,
) -> Result<String, StoreError> {
    encode("a row of the audit", &json!([previous, n, at, kind, about[0], about[1], about[2], body]))
}

/// Adds a row at the end of the chain.
pub(super) fn append(
    conn: &Connection,
    at: u64,
    kind: AuditKind,
    about: About<'_>,
    body: &Value,
) -> Result<(), StoreError> {
    let head: Option<(i64, String)> = conn
        .prepare_cached("SELECT n, hash FROM audit_head WHERE one = 1")?
        .query_row((), |row| Ok((row.get(0)?, text(row, 1)?)))
        .optional()?;
    let (last, previous) = head.unwrap_or_default();
    let n = last + 1;
    let body = encode("a row of the audit", body)?;
    let names =
        [about.thread.map(ThreadId::as_str), about.run.map(RunId::as_str), about.call.map(CallId::as_str)];
    let hash = sha256_hex(covered(&previous, uint(n), at, kind.as_str(), names, &body)?);
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

/// Adds what was made of a call. The list of rules is kept once for all calls that met it.
pub(super) fn judged(conn: &Connection, run: &RunRecord, call: &JudgedCall) -> Result<(), StoreError> {
    let mut judgement = call.judgement.clone();
    let mut tried = std::mem::take(&mut judgement.tried);
    let matched: Vec<usize> = tried
        .iter_mut()
        .enumerate()
        .filter_map(|(at, rule)| std::mem::take(&mut rule.matched).then_some(at))
        .collect();
    let rules = encode("the rules of a call", &tried)?;
    let hash = sha256_hex(&rules);
    conn.prepare_cached("INSERT INTO audit_rules (hash, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute((&hash, &rules))?;
    let mut told = serde_json::to_value(&judgement).unwrap_or(Value::Null);
    told["tried"] = Value::from(hash);
    told["matched"] = json!(matched);
    let body = json!({
        "tool": call.tool,
        "arguments": call.arguments,
        "cwd": call.cwd,
        "answered": call.answered,
        "judgement": told,
    });
    append(conn, call.at, AuditKind::Judged, About::call(run, &call.call_id), &body)
}

/// Adds that a tool is about to start.
pub(super) fn began(conn: &Connection, begin: &Begin) -> Result<(), StoreError> {
    let Begin { fence, run, intent, spends, .. } = begin;
    let body = json!({
        "attempt": intent.id.attempt,
        "tool": intent.tool,
        "arguments": intent.arguments,
        "hash": intent.hash,
        "class": intent.class,
        "pid": intent.pid,
        "epoch": fence.epoch,
        "suspension": spends.as_ref().map(|(id, _)| id),
        "decision": spends.as_ref().map(|(_, id)| id),
    });
    append(conn, intent.started_at, AuditKind::Began, About::call(run, &intent.id.call_id), &body)
}

/// Adds that an execution ended.
pub(super) fn ended(
    conn: &Connection,
    fence: &Fence,
    run: &RunRecord,
    outcome: &OutcomeRecord,
) -> Result<(), StoreError> {
    let line = outcome.result.message.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
    let body = json!({
        "attempt": outcome.id.attempt,
        "epoch": fence.epoch,
        "kind": outcome.kind,
        "outcome": outcome.outcome,
        "summary": line.chars().take(SUMMARY).collect::<String>(),
    });
    append(conn, outcome.ended_at, AuditKind::Ended, About::call(run, &outcome.id.call_id), &body)
}

fn row_of(row: &Row<'_>) -> Result<AuditRow, StoreError> {
    let maybe = |at: usize| -> rusqlite::Result<Option<String>> {
        Ok(body_or_null(row, at)?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    let bytes = body(row, 6)?;
    let body = serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(bytes).into_owned()));
    let word = text(row, 2)?;
    let kind = AuditKind::parse(&word).unwrap_or(AuditKind::Ended);
    Ok(AuditRow {
        n: uint(row.get(0)?),
        at: uint(row.get(1)?),
        kind,
        thread_id: maybe(3)?.map(ThreadId::from),
        run_id: maybe(4)?.map(RunId::from),
        call_id: maybe(5)?.map(CallId::from),
        body,
        hash: text(row, 7)?,
    })
}
