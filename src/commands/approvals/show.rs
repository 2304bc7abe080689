//! One question in full.

use std::fmt::Write as _;

use serde::Deserialize as _;
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
use crate::contract::surface::{Surface, SurfaceNode, text_of};
use crate::contract::suspension::{ResumeDecisionAction, ToolCallResume};
use crate::contract::tool::FilePreview;

/// Parameters shown elsewhere, or that repeat the call.
const ELSEWHERE: [&str; 11] = [
    "surface",
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
        let verb = if ticket.suspension.resumes_at().is_some() { "resumes" } else { "expires" };
        line(verb, &moment(end));
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
    if let Some(surface) = parameters.get("surface").and_then(|form| Surface::deserialize(form).ok()) {
        out.push('\n');
        form(&surface.picture(), &mut out);
    }
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

/// Renders a form as its card shows it, one line for each part.
fn form(piece: &SurfaceNode, out: &mut String) {
    match piece {
        SurfaceNode::Card(inner)
        | SurfaceNode::Column(inner)
        | SurfaceNode::Row(inner)
        | SurfaceNode::List(inner) => inner.iter().for_each(|piece| form(piece, out)),
        SurfaceNode::Table { columns, rows } => {
            for row in std::iter::once(columns).chain(rows) {
                let cells: Vec<_> = row.iter().map(|cell| visible_line(cell)).collect();
                let _ = writeln!(out, "  {}", cells.join("  "));
            }
        }
        SurfaceNode::Text { text, .. } => {
            for line in visible(text).lines() {
                let _ = writeln!(out, "  {line}");
            }
        }
        SurfaceNode::Image { caption } => {
            let _ = writeln!(out, "  image: {}", visible_line(caption));
        }
        SurfaceNode::Divider => {}
        SurfaceNode::Field(field) => {
            let text = if field.is_secret { String::new() } else { text_of(&field.value) };
            let text = if text.is_empty() { "…".into() } else { visible_line(&text) };
            let _ = writeln!(out, "  {}: {text}", visible_line(&field.label));
        }
        SurfaceNode::Check(field) => {
            let tick = if field.value == true { 'x' } else { ' ' };
            let _ = writeln!(out, "  [{tick}] {}", visible_line(&field.label));
        }
        SurfaceNode::Button(button) => {
            let label = if button.label.is_empty() { &button.action } else { &button.label };
            let _ = writeln!(out, "  [ {} ]", visible_line(label));
        }
        SurfaceNode::Unknown(what) => {
            let _ = writeln!(out, "  {} is not shown here", visible_line(what));
        }
    }
}

/// A value on one line: text as it is, a list of texts or choices with commas, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => match items.iter().map(item).collect::<Option<Vec<_>>>() {
            Some(items) => items.join(", "),
            None => value.to_string(),
        },
        other => other.to_string(),
    }
}

fn item(value: &Value) -> Option<String> {
    let label = value.as_str().or_else(|| value["label"].as_str())?;
    let about = value["description"].as_str().map(|about| format!(" ({about})"));
    Some(format!("{label}{}", about.unwrap_or_default()))
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
