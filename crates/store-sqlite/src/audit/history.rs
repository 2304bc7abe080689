//! The audit as history: the rows of one call together, and past verdicts of rules.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{COLUMNS, row_of};
use crate::rows::{all, body, int, text, uint};
use crate::{AuditFilter, Store, StoreError};
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
        mut each: impl FnMut(PastRow) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        self.read(move |conn| {
            let mut statement = conn.prepare_cached(
                "SELECT n, at, kind, thread_id, run_id, call_id, body FROM audit \
                 WHERE kind IN ('judged', 'asked', 'decided', 'expired') AND call_id IS NOT NULL \
                   AND (?1 IS NULL OR at >= ?1) ORDER BY n",
            )?;
            let mut earlier = conn.prepare_cached(
                "SELECT 1 FROM audit WHERE run_id = ?1 AND call_id = ?2 AND n < ?3 AND kind = 'judged' LIMIT 1",
            )?;
            let mut rows = statement.query((since.map(int),))?;
            let mut calls: HashMap<(String, String), usize> = HashMap::new();
            let mut questions: HashSet<(String, String)> = HashSet::new();
            while let Some(row) = rows.next()? {
                let (thread, run, call) = (text(row, 3)?, text(row, 4)?, text(row, 5)?);
                let told = body(row, 6)?;
                let known = calls.get(&(run.clone(), call.clone())).copied();
                let answer = match text(row, 2)?.as_str() {
                    "judged" => {
                        let (None, Ok(judged)) = (known, serde_json::from_slice::<Judged>(told)) else { continue };
                        let n: i64 = row.get(0)?;
                        if judged.answered || (since.is_some() && earlier.exists((&run, &call, n))?) {
                            continue;
                        }
                        calls.insert((run.clone(), call.clone()), calls.len());
                        let past = PastCall {
                            n: uint(n),
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
                        if let Ok(asked) = serde_json::from_slice::<Asked>(told)
                            && asked.action == ACTION_PERMISSION
                        {
                            questions.insert((thread, asked.suspension));
                        }
                        continue;
                    }
                    "decided" => {
                        let Ok(decided) = serde_json::from_slice::<Decided>(told) else { continue };
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
                        let Ok(expired) = serde_json::from_slice::<QuestionFacts>(told) else { continue };
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
            let sql = "SELECT min(n), run_id, call_id FROM audit \
                       WHERE call_id IS NOT NULL AND (?2 IS NULL OR thread_id = ?2) \
                       GROUP BY run_id, call_id HAVING ?1 IS NULL OR max(at) >= ?1 \
                       UNION ALL SELECT n, NULL, NULL FROM audit \
                       WHERE call_id IS NULL AND (?1 IS NULL OR at >= ?1) AND (?2 IS NULL OR thread_id = ?2) ORDER BY 1";
            let parameters = (filter.since.map(int), filter.thread.as_ref().map(ThreadId::as_str));
            let keys: Vec<(i64, Option<String>, Option<String>)> = all(conn, sql, parameters, |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
            let mut of_call = conn.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM audit WHERE run_id IS ?1 AND call_id = ?2 ORDER BY n"
            ))?;
            let mut alone = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM audit WHERE n = ?1"))?;
            for (n, run, call) in keys {
                let found = match &call {
                    Some(call) => of_call.query_and_then((&run, call), row_of)?,
                    None => alone.query_and_then((n,), row_of)?,
                };
                if !each(found.collect::<Result<_, _>>()?) {
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
