//! One question in full.

use std::fmt::Write as _;

use serde_json::Value;

use super::errors::actor_origin;
use super::errors::moment;
use super::errors::right;
use super::errors::who;
use crate::commands::approvals::user_edit::difference;
use crate::contract::diff::unified;
use crate::contract::display::{call_text, visible, visible_line};
use crate::contract::question::{Question, QuestionDetails, UnknownOutcome};
use crate::contract::record::{SuspensionRecord, SuspensionStatus};
use crate::contract::suspension::{ResumeDecisionAction, ToolCallResume};
use crate::contract::tool::FilePreview;

/// Parameters shown elsewhere, or that repeat the call.
const ELSEWHERE: [&str; 10] = [
    "tool",
    "args",
    "preview",
    "proposals",
    "output",
    "original",
    "stale",
    "world",
    "started_at",
    "found_at",
];
/// The maximum lines shown of a file's change.
const DIFF: usize = 200;

/// Renders a question for users: who asks and why, the exact call, what the call would change, how it was
/// answered.
pub(super) fn shown(suspension: &SuspensionRecord) -> String {
    let ticket = &suspension.ticket;
    let parameters = &ticket.suspension.parameters;
    let question = Question::of(&ticket.suspension);
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{:<11} {}", visible_line(name), visible_line(value));
    };
    line("question", suspension.id.as_str());
    line("thread", suspension.thread_id.as_str());
    line("run", suspension.run_id.as_str());
    line("call", suspension.call_id.as_str());
    line("asked", &moment(suspension.created_at));
    if let Some(end) = ticket.suspension.expires_at {
        line("expires", &moment(end));
    }
    line("status", state(suspension.status));
    line("asks", &ticket.suspension.action);
    line("tool", &ticket.pending.name);
    for (name, value) in parameters.as_object().into_iter().flatten() {
        if !ELSEWHERE.contains(&name.as_str()) && !value.is_null() {
            line(name, &plain(value));
        }
    }
    let known = match &question.details {
        QuestionDetails::UnknownOutcome(known) => known.clone(),
        _ => UnknownOutcome::default(),
    };
    for (name, at) in [("began", known.started_at), ("found", known.found_at)] {
        if let Some(at) = at {
            line(name, &moment(at));
        }
    }
    if let Some(git) = parameters.pointer("/world/git").filter(|git| git.is_object()) {
        let part = |key: &str| git.get(key).and_then(Value::as_str).unwrap_or("none");
        line("branch", &format!("{} at {}", part("branch"), part("commit")));
    }
    let _ = writeln!(out, "\n{}", visible(&ticket.suspension.message));
    let arguments = &ticket.pending.arguments;
    let _ = writeln!(out, "\n{}", visible(&call_text(arguments)));
    if let Some(output) = &known.output {
        let _ = writeln!(out, "\nits output:\n{}", visible(output));
    }
    for file in &question.files {
        out.push_str(&changed(file));
    }
    let proposals = question.proposals();
    if !proposals.is_empty() {
        let _ = writeln!(out, "\nrules that would allow it:");
        for (at, proposal) in proposals.iter().enumerate() {
            let _ = writeln!(out, "  --grant {}: {}", at + 1, visible_line(&proposal.pattern));
        }
    }
    for delta in &question.stale.deltas {
        let _ = writeln!(out, "\nchanges since the previous question:\n{}", visible(&delta.diff));
    }
    // Asked again about an edited call: what the model had proposed is still there.
    if let Some(original) = &question.original {
        let changed = difference(original, arguments);
        let _ = writeln!(out, "\nedited before the new question:\n{}", visible(changed.trim_end()));
    }
    if let Some(decision) = &suspension.decision {
        decided(&mut out, suspension, decision);
    } else if suspension.status == SuspensionStatus::Open {
        let _ = writeln!(out, "\nanswer with: {}", right(suspension));
    }
    out
}

/// Renders the decision: what was decided, by whom, their edits and their comment.
fn decided(out: &mut String, suspension: &SuspensionRecord, decision: &ToolCallResume) {
    let what = match decision.action {
        ResumeDecisionAction::Resume if decision.arguments.is_some() => "allowed as edited",
        ResumeDecisionAction::Resume => "allowed",
        ResumeDecisionAction::Cancel if decision.is_modify() => "changes requested",
        ResumeDecisionAction::Cancel => "declined",
    };
    let _ = writeln!(out, "\n{what} at {}", moment(decision.updated_at));
    if !decision.result.is_null() && decision.arguments.is_none() && !decision.is_modify() {
        let _ = writeln!(out, "with: {}", visible_line(&decision.result.to_string()));
    }
    if let Some(arguments) = &decision.arguments {
        let changed = difference(&suspension.ticket.pending.arguments, arguments);
        let _ = writeln!(out, "{}", visible(changed.trim_end()));
        let _ = writeln!(out, "it runs as:\n{}", visible(&call_text(arguments)));
    }
    if let Some(comment) = decision.comment() {
        let _ = writeln!(out, "comment: {}", visible(comment));
    }
    if let Some(by) = &suspension.decided_by {
        let _ = writeln!(out, "decided by {}, {}", who(by), actor_origin(by));
    }
}

fn state(status: SuspensionStatus) -> &'static str {
    match status {
        SuspensionStatus::Open => "open",
        SuspensionStatus::Decided => "decided, not yet applied",
        SuspensionStatus::Applied => "decided and applied",
        SuspensionStatus::Superseded => "closed without an answer",
        SuspensionStatus::Expired => "expired",
    }
}

/// A value on one line: text as it is, a list of texts with commas, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// Renders the change to a file.
fn changed(file: &FilePreview) -> String {
    let path = file.path.to_string_lossy();
    let mut out = format!("\n{}\n", visible_line(&path));
    let Some(new) = &file.new_text else {
        out.push_str("  (binary, or too long to show)\n");
        return out;
    };
    let old = file.old_text.as_deref().unwrap_or_default();
    let text = unified(old, new, None, 3);
    for line in text.lines().take(DIFF) {
        let _ = writeln!(out, "  {}", visible_line(line));
    }
    let more = text.lines().count().saturating_sub(DIFF);
    if more > 0 {
        let _ = writeln!(out, "  … {more} more lines");
    }
    out
}
