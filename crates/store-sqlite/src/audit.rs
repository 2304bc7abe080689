//! The audit: append-only rows, each chained to the one before by its hash.
//!
//! Rows are written in the transactions they record, so none is missing and none records what did not happen. Nothing
//! in this program changes or deletes one.

mod agree;
mod chain;
mod history;
mod verify;

use rusqlite::{Connection, Row};
use serde_json::{Value, json};

use super::rows::{body, body_or_null, encode, int, text, uint};
use super::{AuditFilter, SqlFailure, Store, StoreError};
use aye_core::contract::audit::{AuditKind, AuditRow};
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::hook::HookRan;
use aye_core::contract::ids::{CallId, RunId, ThreadId};
use aye_core::contract::judgement::{JudgedCall, TriedRule};
use aye_core::contract::record::{Begin, Fence, OutcomeRecord, RunRecord};

const COLUMNS: &str = "n, at, kind, thread_id, run_id, call_id, body, hash";
/// Characters of a result that its row keeps.
const SUMMARY: usize = 200;

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
    /// The rows that the filter leaves, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails. A row whose body is no JSON is given with its text as the body: the chain
    /// says that it was changed.
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

    /// As [`Store::audit`], handed on one by one until `told` says `false`.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails.
    pub async fn audit_each(
        &self,
        filter: AuditFilter,
        told: impl FnMut(AuditRow) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        self.read(move |conn| each(conn, &filter, told)).await
    }

    /// The lists of rules that calls were held against, by their hashes. One that cannot be read is left out.
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
    mut told: impl FnMut(AuditRow) -> bool,
) -> Result<(), SqlFailure> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM audit WHERE (?1 IS NULL OR at >= ?1) AND (?2 IS NULL OR thread_id = ?2) ORDER BY n"
    ))?;
    let mut rows = statement.query((filter.since.map(int), filter.thread.as_ref().map(ThreadId::as_str)))?;
    while let Some(row) = rows.next()? {
        let row = row_of(row)?;
        if (filter.kinds.is_empty() || filter.kinds.contains(&row.kind)) && !told(row) {
            break;
        }
    }
    Ok(())
}

/// What a row's hash covers, and how. JSON, so that no two rows share a text.
struct Covered<'a> {
    n: i64,
    at: i64,
    kind: &'a str,
    about: [Option<&'a str>; 3],
    body: &'a str,
}

impl Covered<'_> {
    /// The row's hash, when the row before it has this one.
    fn hash(&self, previous: &str) -> Result<String, SqlFailure> {
        let [thread, run, call] = self.about;
        let whole = (previous, self.n, self.at, self.kind, thread, run, call, self.body);
        Ok(sha256_hex(encode("a row of the audit", &whole)?))
    }
}

/// Adds a row at the end of the chain.
///
/// Where somebody tampered with the end, the row is still written, behind all there is: the link that does not fit
/// stays in the chain as a trace, and work goes on.
pub(super) fn append(
    conn: &Connection,
    at: u64,
    kind: AuditKind,
    about: About<'_>,
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
    let hash = row.hash(previous.as_deref().unwrap_or_default())?;
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
pub(super) fn judged(conn: &Connection, run: &RunRecord, call: &JudgedCall) -> Result<(), SqlFailure> {
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

/// Adds that a hook ran its command.
pub(super) fn hook(conn: &Connection, run: &RunRecord, ran: &HookRan) -> Result<(), SqlFailure> {
    let about = About { thread: Some(&run.thread_id), run: Some(&run.id), call: ran.call_id.as_ref() };
    let body = json!({
        "name": ran.name,
        "origin": ran.origin,
        "phase": ran.phase,
        "exit": ran.exit,
        "duration_ms": ran.duration_ms,
        "answer": ran.answer,
    });
    append(conn, ran.at, AuditKind::Hook, about, &body)
}

/// Adds that a tool is about to start.
pub(super) fn began(conn: &Connection, begin: &Begin) -> Result<(), SqlFailure> {
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
) -> Result<(), SqlFailure> {
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

fn row_of(row: &Row<'_>) -> Result<AuditRow, SqlFailure> {
    let maybe = |at: usize| -> rusqlite::Result<Option<String>> {
        Ok(body_or_null(row, at)?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    let bytes = body(row, 6)?;
    let body = serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(bytes).into_owned()));
    let word = text(row, 2)?;
    let kind = AuditKind::parse(&word).unwrap_or(AuditKind::Other);
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
