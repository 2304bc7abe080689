//! The audit as history: the rows of one call together, and past verdicts of rules.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rusqlite::Connection;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{COLUMNS, row_of};
use crate::rows::{all, body, int, text, uint};
use crate::{AuditFilter, RecentCall, SqlFailure, Store, StoreError};
use aye_core::contract::audit::{AuditRow, PastAnswer, PastCall, PastRow};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::judgement::Ruling;
use aye_core::contract::mode::Mode;
use aye_core::contract::suspension::{
    ACTION_PERMISSION, Actor, CHANNEL_POLICY, CHANNEL_REMOTE, ResumeDecisionAction,
};

#[derive(Deserialize)]
struct Judged {
    tool: String,
    arguments: Box<RawValue>,
    cwd: String,
    #[serde(default)]
    answered: bool,
    judgement: Verdict,
}

#[derive(Deserialize)]
struct Verdict {
    ruling: Ruling,
    mode: Mode,
}

#[derive(Deserialize)]
struct Asked {
    suspension: String,
    action: String,
}

#[derive(Deserialize)]
struct Decided {
    suspension: String,
    action: ResumeDecisionAction,
    #[serde(default)]
    arguments: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    actor: Actor,
}

/// Channels through which a setting, a rule or a remote agent answers instead of a user.
const NO_PERSON: [&str; 3] = [CHANNEL_POLICY, CHANNEL_REMOTE, "grant"];

#[derive(Deserialize)]
struct QuestionFacts {
    suspension: String,
}

/// The rows of a call, or a row that is about none.
#[derive(Default)]
struct RowsOfCall {
    numbers: Vec<i64>,
    last_at: i64,
}

impl Store {
    /// Passes on, oldest first, each call as it was first judged, and after it each answer of a user to an
    /// approval request about the call, or its expiry, until `each` returns `false`. Unreadable rows are left
    /// out.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails.
    pub async fn past_calls(
        &self,
        since: Option<u64>,
        each: impl FnMut(PastRow) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        self.read(move |conn| each_past_row(conn, u64::MAX, since, each)).await
    }

    /// Returns the calls of a tool below a folder, newest first, each once however often it was judged. Only
    /// the newest `rows` rows of the audit are read.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails. A row that cannot be read is left out.
    pub async fn recent_calls(
        &self,
        tool: &str,
        below: &Path,
        rows: u64,
    ) -> Result<Vec<RecentCall>, StoreError> {
        let (tool, below) = (tool.to_owned(), below.to_path_buf());
        self.read(move |conn| {
            let mut calls: Vec<Option<RecentCall>> = Vec::new();
            each_past_row(conn, rows, None, |row| {
                match row {
                    PastRow::Call(call) => {
                        let is_wanted = call.tool == tool && Path::new(&call.cwd).starts_with(&below);
                        calls.push(is_wanted.then(|| recent(*call)));
                    }
                    PastRow::Answer(at, answer) => {
                        if let Some(call) = &mut calls[at] {
                            call.declined |= answer == PastAnswer::Declined;
                        }
                    }
                }
                true
            })?;
            Ok(calls.into_iter().flatten().rev().collect())
        })
        .await
    }

    /// Hands on the rows of each call together, in the order of the calls' first rows, until `each` says `false`. Rows
    /// that are about no call come by themselves, in their place.
    ///
    /// A call is handed on whole, when any of its rows is left by the filter; kinds do not matter.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails.
    pub async fn audit_calls(
        &self,
        filter: AuditFilter,
        mut each: impl FnMut(Vec<AuditRow>) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        self.read(move |conn| {
            let thread = filter.thread.as_ref().map(ThreadId::as_str);
            let mut statement = conn.prepare_cached(
                "SELECT n, at, run_id, call_id FROM audit WHERE ?1 IS NULL OR thread_id = ?1 ORDER BY n",
            )?;
            let mut rows = statement.query((thread,))?;
            let mut found: Vec<RowsOfCall> = Vec::new();
            let mut calls: HashMap<(Option<String>, String), usize> = HashMap::new();
            while let Some(row) = rows.next()? {
                let (n, at): (i64, i64) = (row.get(0)?, row.get(1)?);
                let at_call = match row.get(3)? {
                    Some(call) => *calls.entry((row.get(2)?, call)).or_insert(found.len()),
                    None => found.len(),
                };
                if at_call == found.len() {
                    found.push(RowsOfCall::default());
                }
                found[at_call].numbers.push(n);
                found[at_call].last_at = found[at_call].last_at.max(at);
            }
            drop(calls);
            let since = filter.since.map(int);
            let mut one = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM audit WHERE n = ?1"))?;
            for call in found.into_iter().filter(|call| since.is_none_or(|since| call.last_at >= since)) {
                let mut rows = Vec::with_capacity(call.numbers.len());
                for n in call.numbers {
                    rows.extend(one.query_and_then((n,), row_of)?.next().transpose()?);
                }
                if !each(rows) {
                    break;
                }
            }
            Ok(())
        })
        .await
    }

    /// Returns the conversations in the audit whose ids start with a prefix, at most 20; they need not exist
    /// any more.
    pub async fn audit_threads(&self, prefix: &str) -> Result<Vec<ThreadId>, StoreError> {
        let prefix = prefix.to_owned();
        self.read(move |conn| {
            let sql = "SELECT DISTINCT thread_id FROM audit WHERE substr(thread_id, 1, length(?1)) = ?1 \
                       ORDER BY thread_id <> ?1, thread_id LIMIT 20";
            let mut found = all(conn, sql, (&prefix,), |row| Ok(ThreadId::from(text(row, 0)?)))?;
            if found.first().is_some_and(|id| id.as_str() == prefix) {
                found.truncate(1);
            }
            Ok(found)
        })
        .await
    }
}

/// Passes on what the newest rows say of past calls since a time, until `each` returns `false`.
fn each_past_row(
    conn: &Connection,
    newest: u64,
    since: Option<u64>,
    mut each: impl FnMut(PastRow) -> bool,
) -> Result<(), SqlFailure> {
    let mut statement = conn.prepare_cached(
        "SELECT n, at, kind, thread_id, run_id, call_id, body FROM audit \
         WHERE n > (SELECT coalesce(max(n), 0) FROM audit) - ?1 \
             AND kind IN ('judged', 'asked', 'decided', 'expired') AND call_id IS NOT NULL ORDER BY n",
    )?;
    let mut rows = statement.query((int(newest),))?;
    // Calls that were judged before, also before the rows that count.
    let mut earlier: HashSet<(String, String)> = HashSet::new();
    let mut calls: HashMap<(String, String), usize> = HashMap::new();
    let mut questions: HashSet<(String, String)> = HashSet::new();
    while let Some(row) = rows.next()? {
        let (thread, run, call) = (text(row, 3)?, text(row, 4)?, text(row, 5)?);
        let is_judged = text(row, 2)? == "judged";
        if since.is_some_and(|since| uint(row.get(1).unwrap_or_default()) < since) {
            if is_judged {
                earlier.insert((run, call));
            }
            continue;
        }
        let was_judged = is_judged && !earlier.insert((run.clone(), call.clone()));
        let facts = body(row, 6)?;
        let known = calls.get(&(run.clone(), call.clone())).copied();
        let answer = match text(row, 2)?.as_str() {
            "judged" => {
                let (None, Ok(judged)) = (known, serde_json::from_slice::<Judged>(facts)) else {
                    continue;
                };
                if judged.answered || (since.is_some() && was_judged) {
                    continue;
                }
                calls.insert((run.clone(), call.clone()), calls.len());
                let past = PastCall {
                    n: uint(row.get(0)?),
                    at: uint(row.get(1)?),
                    thread_id: thread.into(),
                    run_id: run.into(),
                    call_id: call.into(),
                    tool: judged.tool,
                    arguments: String::from(Box::<str>::from(judged.arguments)),
                    cwd: judged.cwd,
                    ruling: judged.judgement.ruling,
                    mode: judged.judgement.mode,
                };
                if !each(PastRow::Call(Box::new(past))) {
                    return Ok(());
                }
                continue;
            }
            "asked" => {
                if let Ok(asked) = serde_json::from_slice::<Asked>(facts)
                    && asked.action == ACTION_PERMISSION
                {
                    questions.insert((thread, asked.suspension));
                }
                continue;
            }
            "decided" => {
                let Ok(decided) = serde_json::from_slice::<Decided>(facts) else { continue };
                let is_about_it = questions.remove(&(thread, decided.suspension));
                if !is_about_it || NO_PERSON.contains(&decided.actor.channel.as_str()) {
                    continue;
                }
                match (decided.action, decided.arguments) {
                    (ResumeDecisionAction::Cancel, _) => PastAnswer::Declined,
                    (ResumeDecisionAction::Resume, Some(_)) => PastAnswer::Modified,
                    (ResumeDecisionAction::Resume, None) => PastAnswer::Allowed,
                }
            }
            _ => {
                let Ok(expired) = serde_json::from_slice::<QuestionFacts>(facts) else { continue };
                if !questions.remove(&(thread, expired.suspension)) {
                    continue;
                }
                PastAnswer::Expired
            }
        };
        if let Some(call) = known
            && !each(PastRow::Answer(call, answer))
        {
            return Ok(());
        }
    }
    Ok(())
}

fn recent(call: PastCall) -> RecentCall {
    RecentCall {
        id: (call.run_id, call.call_id),
        tool: call.tool,
        arguments: serde_json::from_str(&call.arguments).unwrap_or_default(),
        cwd: call.cwd.into(),
        at: call.at,
        declined: false,
    }
}
