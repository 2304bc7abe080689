//! Past calls from the audit, to evaluate a rule against them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::rows::{body, body_or_null, int, text, uint};
use crate::{RecentCall, Store, StoreError};
use aye_core::contract::audit::AuditKind;
use aye_core::contract::ids::{CallId, RunId};
use aye_core::contract::suspension::ResumeDecisionAction;

#[derive(Deserialize)]
struct Judged {
    tool: String,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    cwd: PathBuf,
}

#[derive(Deserialize)]
struct Decided {
    action: ResumeDecisionAction,
}

impl Store {
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
            let mut statement = conn.prepare_cached(
                "SELECT at, kind, run_id, call_id, body FROM audit WHERE n > (SELECT coalesce(max(n), 0) FROM audit) - ?1 \
                 AND kind IN ('judged', 'decided') ORDER BY n DESC",
            )?;
            let mut rows = statement.query((int(rows),))?;
            // Newest first: the answer of a call comes before the judgement that led to it.
            let (mut declined, mut seen) = (HashSet::new(), HashSet::new());
            let mut calls = Vec::new();
            while let Some(row) = rows.next()? {
                let id = |at: usize| -> rusqlite::Result<String> {
                    Ok(String::from_utf8_lossy(body_or_null(row, at)?.unwrap_or_default()).into_owned())
                };
                let call = (RunId::from(id(2)?), CallId::from(id(3)?));
                if text(row, 1)? == AuditKind::Decided.as_str() {
                    let is_no = serde_json::from_slice::<Decided>(body(row, 4)?)
                        .is_ok_and(|decided| decided.action == ResumeDecisionAction::Cancel);
                    if is_no {
                        declined.insert(call);
                    }
                    continue;
                }
                let Ok(judged) = serde_json::from_slice::<Judged>(body(row, 4)?) else { continue };
                if judged.tool != tool || !judged.cwd.starts_with(&below) || !seen.insert(call.clone()) {
                    continue;
                }
                calls.push(RecentCall {
                    declined: declined.contains(&call),
                    id: call,
                    tool: judged.tool,
                    arguments: judged.arguments,
                    cwd: judged.cwd,
                    at: uint(row.get(0)?),
                });
            }
            Ok(calls)
        })
        .await
    }
}
