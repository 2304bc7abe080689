//! Usage counts, stored beside the full rows: those are long and are deleted with their thread.

use std::collections::HashMap;

use rusqlite::Connection;
use serde_json::Value;

use super::rows::{int, text, uint};
use super::{SqlFailure, Store, StoreError};
use aye_core::contract::inference::ModelUsage;
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::message::{Message, REFUSED_THOUGHTS, Role};
use aye_core::contract::record::{OutcomeKind, OutcomeRecord, RunRecord};
use aye_core::contract::statistics::{SLICE_MS, Tally, TallyKind};

/// The kind of a row whose input is what an answer put into a cache: a part of the answer's own input.
const CACHE_WRITE: &str = "cache_write";

/// Maximum length of the stored name of a model or tool; real names are shorter.
const MAX_NAME: usize = 200;

impl Store {
    /// The counts since a moment, by slice of time, kind and name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn tallies(&self, since: Option<u64>) -> Result<Vec<Tally>, StoreError> {
        self.read(move |conn| {
            let mut statement = conn.prepare_cached(
                "SELECT at / ?2 AS slice, kind, name, count(*), sum(failed), sum(input), sum(output), sum(cached), \
                 sum(duration_ms) FROM tally WHERE at >= ?1 GROUP BY slice, kind, name ORDER BY slice, kind, name",
            )?;
            let mut rows = statement.query((int(since.unwrap_or(0)), int(SLICE_MS)))?;
            let mut found = Vec::new();
            let mut written = HashMap::new();
            while let Some(row) = rows.next()? {
                let number = |at: usize| row.get::<_, i64>(at).map(uint);
                let (from, kind, name) = (number(0)?.saturating_mul(SLICE_MS), text(row, 1)?, text(row, 2)?);
                if kind == CACHE_WRITE {
                    // It comes before the answers of its slice: kinds are in the order of their words.
                    written.insert((from, name), number(5)?);
                    continue;
                }
                let Some(kind) = TallyKind::parse(&kind) else { continue };
                let of_name = (from, name);
                found.push(Tally {
                    from,
                    kind,
                    written: match kind {
                        TallyKind::Inference => written.remove(&of_name).unwrap_or_default(),
                        TallyKind::FailedRun | TallyKind::Call | TallyKind::RefusedThoughts | TallyKind::Wait => 0,
                    },
                    name: of_name.1,
                    count: number(3)?,
                    failed: number(4)?,
                    input: number(5)?,
                    output: number(6)?,
                    cached: number(7)?,
                    duration_ms: number(8)?,
                });
            }
            Ok(found)
        })
        .await
    }
}

impl Store {
    /// Counts a request to a model that no message records.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn count_request(&self, spent: &ModelUsage, now_ms: u64) -> Result<(), StoreError> {
        let spent = spent.clone();
        self.write_grouped(false, move |conn| request(conn, now_ms, &spent), |()| None).await
    }
}

#[derive(Clone, Copy, Default)]
struct Row {
    failed: bool,
    input: u64,
    output: u64,
    cached: u64,
    duration_ms: u64,
}

fn add(conn: &Connection, at: u64, kind: &str, name: &str, row: Row) -> Result<(), SqlFailure> {
    let name: String = name.chars().take(MAX_NAME).collect();
    conn.prepare_cached(
        "INSERT INTO tally (at, kind, name, failed, input, output, cached, duration_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute((
        int(at),
        kind,
        name,
        row.failed,
        // The values are limited so that a sum over all rows stays within SQLite's range, whatever a provider
        // reports.
        small(row.input),
        small(row.output),
        small(row.cached),
        small(row.duration_ms),
    ))?;
    Ok(())
}

fn small(number: u64) -> i64 {
    i64::from(i32::try_from(number).unwrap_or(i32::MAX))
}

/// Counts a message when it is a model's answer.
pub(super) fn message(conn: &Connection, at: u64, message: &Message) -> Result<(), SqlFailure> {
    if message.role != Role::Assistant {
        return Ok(());
    }
    let Some(metadata) = &message.metadata else { return Ok(()) };
    let Some(model) = metadata.get("model").and_then(Value::as_str) else { return Ok(()) };
    let number = |path: &str| metadata.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let row = Row {
        failed: false,
        input: number("/usage/prompt_tokens"),
        output: number("/usage/completion_tokens"),
        cached: number("/usage/cache_read_tokens"),
        duration_ms: number("/duration_ms"),
    };
    if metadata.get(REFUSED_THOUGHTS).is_some() {
        add(conn, at, TallyKind::RefusedThoughts.as_str(), model, Row::default())?;
    }
    inference(conn, at, model, row, number("/usage/cache_creation_tokens"))
}

/// Counts a request that no message records.
pub(super) fn request(conn: &Connection, at: u64, spent: &ModelUsage) -> Result<(), SqlFailure> {
    let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or(0)).unwrap_or(0);
    let usage = &spent.usage;
    let row = Row {
        input: count(usage.prompt_tokens),
        output: count(usage.completion_tokens),
        cached: count(usage.cache_read_tokens),
        ..Row::default()
    };
    inference(conn, at, &spent.model, row, count(usage.cache_creation_tokens))
}

fn inference(conn: &Connection, at: u64, model: &str, row: Row, written: u64) -> Result<(), SqlFailure> {
    add(conn, at, TallyKind::Inference.as_str(), model, row)?;
    if written > 0 {
        add(conn, at, CACHE_WRITE, model, Row { input: written, ..Row::default() })?;
    }
    Ok(())
}

/// Counts a run that ends with an error.
pub(super) fn ended(conn: &Connection, run: &RunRecord) -> Result<(), SqlFailure> {
    let Some(TerminationReason::Error(_)) = &run.termination else { return Ok(()) };
    add(conn, run.updated_at, TallyKind::FailedRun.as_str(), &run.model, Row::default())
}

/// Counts an execution that ended. An execution that ended in a question is counted when it has run again
/// after the answer.
pub(super) fn outcome(
    conn: &Connection,
    tool: &str,
    started_at: u64,
    outcome: &OutcomeRecord,
) -> Result<(), SqlFailure> {
    if outcome.outcome == ToolCallOutcome::Suspended {
        return Ok(());
    }
    let failed = outcome.outcome == ToolCallOutcome::Failed || outcome.kind == OutcomeKind::Unknown;
    let duration_ms = outcome.ended_at.saturating_sub(started_at);
    add(conn, outcome.ended_at, TallyKind::Call.as_str(), tool, Row { failed, duration_ms, ..Row::default() })
}

/// Counts an answer to a question.
pub(super) fn answered(conn: &Connection, at: u64, tool: &str, asked_at: u64) -> Result<(), SqlFailure> {
    let duration_ms = at.saturating_sub(asked_at);
    add(conn, at, TallyKind::Wait.as_str(), tool, Row { duration_ms, ..Row::default() })
}
