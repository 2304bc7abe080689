//! `aye audit`: proposals, verdicts, questions, decisions and outcomes, and whether the record was tampered with.

mod block;
mod object;

use std::collections::HashMap;
use std::fmt::Write as _;

use clap::Args;
use serde_json::json;

use crate::commands::since::since;
use crate::commands::{put_json, when};
use crate::contract::amount::counted;
use crate::contract::audit::{AuditFault, AuditFaultKind, AuditReport, AuditRow};
use crate::contract::clock::{Clock as _, SystemClock};
use crate::contract::display::{escape_json, visible_line};
use crate::contract::ids::ThreadId;
use crate::contract::judgement::TriedRule;
use crate::contract::record::GrantRecord;
use crate::contract::storage::{AuditFilter, SharedStore, verify_sealed};
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::{put, put_or_stop, put_stderr};

/// `aye audit`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Write access to the file is enough to rewrite the whole chain: keep the last hash of `aye \
                  audit --rows` elsewhere to detect that too.\n\nExamples:\n  aye audit --since 1d --tool \
                  Bash\n  aye audit --verify"
)]
pub struct AuditArgs {
    /// Only calls with a row since then: 2h, 3d, 2026-11-21 or an RFC 3339 time
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Only calls of this conversation: its id, or its first characters; it may be deleted
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Show every rule tried, not only those that matched
    #[arg(long)]
    pub rules: bool,
    /// Write one line of JSON per call
    #[arg(long)]
    pub json: bool,
    /// Write the rows of the chain, one line of JSON each
    #[arg(long, conflicts_with_all = ["rules", "json"])]
    pub rows: bool,
    /// Verify the chain and tables; exit 1 on mismatch
    #[arg(long, conflicts_with_all = ["since", "thread", "tool", "rules", "rows"])]
    pub verify: bool,
}

/// The records that audit rows refer to but do not contain.
struct Names {
    /// Lists of rules by their hash.
    rules: HashMap<String, Vec<TriedRule>>,
    grants: Vec<GrantRecord>,
    /// Whether every rule that was tried is shown, not only those that matched.
    all_rules: bool,
}

impl Names {
    fn grant(&self, id: &str) -> Option<&GrantRecord> {
        self.grants.iter().find(|grant| grant.id == id)
    }
}

pub(crate) async fn run(args: AuditArgs, foundation: &Foundation) -> Result<u8, Failure> {
    let since = since(args.since.as_deref(), SystemClock.now_ms())?;
    let store = foundation.open_store_to_read()?;
    if args.verify {
        let report = verify_sealed(&*store).await.map_err(Failure::failed)?;
        store.close().await;
        return verified(&report, args.json);
    }
    let thread = match &args.thread {
        Some(prefix) => Some(thread_by_prefix(&store, prefix).await?),
        None => None,
    };
    let filter = AuditFilter { since, thread, kinds: Vec::new() };
    let count = if args.rows { rows(&store, filter, args).await } else { calls(&store, filter, args).await };
    store.close().await;
    if count? == 0 {
        put_stderr("the audit has no matching calls");
    }
    Ok(0)
}

/// Returns the conversation whose id starts with this prefix, even if it is deleted.
async fn thread_by_prefix(store: &SharedStore, prefix: &str) -> Result<ThreadId, Failure> {
    let mut found = store.audit_threads(prefix).await.map_err(Failure::failed)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Failure::usage(format!("the audit has no thread `{prefix}`; `aye audit` shows all"))),
        _ => {
            let ids: Vec<_> = found.iter().map(ThreadId::as_str).collect();
            Err(Failure::usage(format!("`{prefix}` is not unique: {}", ids.join(", "))))
        }
    }
}

/// The name of the tool that rows are about.
fn tool_of(rows: &[AuditRow]) -> Option<&str> {
    rows.iter().find_map(|row| row.body.get("tool")?.as_str())
}

async fn rows(store: &SharedStore, filter: AuditFilter, args: AuditArgs) -> Result<u64, Failure> {
    let mut feed = store.read_audit(filter);
    let mut written = 0;
    while let Some(rows) = feed.next().await.map_err(Failure::failed)? {
        for row in rows {
            if args.tool.is_some() && args.tool.as_deref() != tool_of(std::slice::from_ref(&row)) {
                continue;
            }
            written += 1;
            if !put_or_stop(&line(&json!(row)))? {
                return Ok(written);
            }
        }
    }
    Ok(written)
}

async fn calls(store: &SharedStore, filter: AuditFilter, args: AuditArgs) -> Result<u64, Failure> {
    let rules = store.audit_rules().await.map_err(Failure::failed)?;
    let grants = store.all_grants().await.map_err(Failure::failed)?;
    let known = Names { rules: rules.into_iter().collect(), grants, all_rules: args.rules };
    let mut feed = store.read_audit_calls(filter);
    let mut written = 0;
    while let Some(calls) = feed.next().await.map_err(Failure::failed)? {
        for rows in calls {
            if args.tool.is_some() && args.tool.as_deref() != tool_of(&rows) {
                continue;
            }
            let text = if args.json { line(&object::of(&rows, &known)) } else { block::of(&rows, &known) };
            written += 1;
            if !put_or_stop(&text)? {
                return Ok(written);
            }
        }
    }
    Ok(written)
}

fn line(value: &serde_json::Value) -> String {
    format!("{}\n", escape_json(&value.to_string()))
}

fn verified(report: &AuditReport, json: bool) -> Result<u8, Failure> {
    let code = u8::from(!report.is_whole());
    if json {
        let mut value = json!(report);
        value["whole"] = json!(report.is_whole());
        put_json(&value)?;
        return Ok(code);
    }
    put(&shown(report))?;
    Ok(code)
}

/// Describes a report: its faults, and how much was checked.
fn shown(report: &AuditReport) -> String {
    let mut out = String::new();
    for fault in &report.faults {
        out.push_str(&fault_text(fault));
        out.push('\n');
    }
    let mut rows = counted(report.rows, "row");
    if report.chains > 1 {
        let _ = write!(rows, " in {} chains", report.chains);
    }
    if let (Some(first), Some(last)) = (report.first_at, report.last_at) {
        let _ = write!(rows, ", {} to {}", when(first), when(last));
    }
    if report.chains > 1 {
        let _ = write!(rows, "; {}", counted(report.seals, "seal"));
    }
    if report.is_whole() {
        let lists = counted(report.rules, "list");
        let _ = writeln!(out, "intact: {rows}; {lists} of rules; the tables match");
    } else {
        let wrong = report.faults.len() as u64 + report.unlisted;
        let listed = match report.unlisted {
            0 => String::new(),
            more => format!(", {more} of them not listed"),
        };
        let things = counted(wrong, "fault");
        let _ = writeln!(out, "broken: {things}{listed}; {rows}");
    }
    out
}

/// Describes one fault on one line.
fn fault_text(fault: &AuditFault) -> String {
    let rows = match (fault.n, fault.last) {
        (Some(first), Some(last)) => format!("rows {first} to {last}"),
        (Some(n), None) => format!("row {n}"),
        (None, _) if fault.kind == AuditFaultKind::Seal => "seals".to_owned(),
        (None, _) => "audit".to_owned(),
    };
    let chain = match fault.chain.as_str() {
        "" => String::new(),
        chain => format!(" of chain {}", visible_line(chain)),
    };
    let is_missing = fault.kind == AuditFaultKind::Missing;
    let at = match fault.at {
        Some(at) if is_missing => format!(" (after {})", when(at)),
        Some(at) => format!(" (of {})", when(at)),
        None => String::new(),
    };
    format!("{rows}{chain}{at}: {}", visible_line(&fault.what))
}

#[cfg(test)]
mod tests;
