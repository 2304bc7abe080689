//! One call of the audit for users: a heading, then one or more lines per row, at most 80 columns.

use std::fmt::Write as _;

use serde_json::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::Names;
use crate::commands::when;
use crate::contract::amount::duration;
use crate::contract::audit::{AuditKind, AuditRow};
use crate::contract::display::{call_summary, visible_line};
use crate::contract::record::{GrantRecord, GrantScope};

/// The total width, and the width of the labels.
const WIDTH: usize = 80;
const INDENT: usize = 11;

/// Renders the rows of one call, or a row that belongs to none.
pub(super) fn of(rows: &[AuditRow], known: &Names) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut out = String::new();
    if first.call_id.is_none() {
        let text = alone(first, known);
        entry(&mut out, &format!("{}  {}  ", when(first.at), first.kind.as_str()), 4, &text);
        out.push('\n');
        return out;
    }
    heading(&mut out, rows);
    let mut began_at = None;
    for row in rows {
        let body = &row.body;
        let name = match row.kind {
            AuditKind::Judged => "rules",
            AuditKind::Decided => "answer",
            AuditKind::Began => "started",
            other => other.as_str(),
        };
        let label = format!("  {name:<w$}", w = INDENT - 2);
        let mut add_entry = |text: &str| entry(&mut out, &label, INDENT, text);
        match row.kind {
            AuditKind::Judged => judged(&mut out, &label, body, known),
            AuditKind::Hook => add_entry(&hook(body)),
            AuditKind::Asked => add_entry(&format!("{}: {}", word(body, "suspension"), word(body, "why"))),
            AuditKind::Decided => {
                add_entry(&decided(body));
                for (name, key) in [("", "reason"), ("answer ", "result"), ("to run instead ", "arguments")] {
                    match &body[key] {
                        Value::Null => {}
                        Value::String(text) => entry(&mut out, "", INDENT, &format!("{name}\"{text}\"")),
                        other => entry(&mut out, "", INDENT, &format!("{name}{other}")),
                    }
                }
                let id = word(body, "suspension");
                let given = known
                    .grants
                    .iter()
                    .filter(|g| g.suspension_id.as_ref().is_some_and(|s| s.as_str() == id));
                for grant in given {
                    entry(&mut out, "", INDENT, &format!("and granted {}", granted(grant)));
                }
            }
            AuditKind::Began => {
                began_at = Some(row.at);
                let (class, pid) = (word(body, "class"), &body["pid"]);
                add_entry(&format!("attempt {}, process {pid} ({class})", body["attempt"]));
                let is_other =
                    rows.iter().find_map(|row| row.body.get("arguments")) != Some(&body["arguments"]);
                if is_other {
                    entry(&mut out, "", INDENT, &format!("with {}", body["arguments"]));
                }
            }
            AuditKind::Ended => {
                let after = match began_at {
                    Some(began) => format!(" after {}", duration(row.at.saturating_sub(began))),
                    None => String::new(),
                };
                let kind = match word(body, "kind").as_str() {
                    "returned" => String::new(),
                    other => format!(", {other}"),
                };
                add_entry(&format!("{}{kind}{after}: {}", word(body, "outcome"), word(body, "summary")));
            }
            AuditKind::Expired => add_entry(&format!("{}: expired", word(body, "suspension"))),
            AuditKind::Superseded => {
                add_entry(&format!("{}: closed without an answer", word(body, "suspension")));
            }
            AuditKind::Applied => {
                add_entry(&format!("{}: the decision was applied", word(body, "suspension")));
            }
            AuditKind::Granted
            | AuditKind::Revoked
            | AuditKind::Spent
            | AuditKind::Lapsed
            | AuditKind::Deleted
            | AuditKind::Configured
            | AuditKind::Other => add_entry(&body.to_string()),
        }
    }
    out.push('\n');
    out
}

/// Renders time, tool, subject and place.
fn heading(out: &mut String, rows: &[AuditRow]) {
    let first = &rows[0];
    let (tool, summary) = rows
        .iter()
        .find_map(|row| {
            let tool = row.body.get("tool")?.as_str()?;
            Some((tool, call_summary(tool, row.body.get("arguments")?)))
        })
        .unwrap_or(("?", String::new()));
    entry(out, &format!("{}  ", when(first.at)), 4, &format!("{tool}  {summary}"));
    let id = |id: Option<&str>| id.unwrap_or("?").to_owned();
    let mut place = format!(
        "thread {}, run {}, call {}",
        id(first.thread_id.as_ref().map(AsRef::as_ref)),
        id(first.run_id.as_ref().map(AsRef::as_ref)),
        id(first.call_id.as_ref().map(AsRef::as_ref)),
    );
    if let Some(cwd) = rows.iter().find_map(|row| row.body.get("cwd")?.as_str()) {
        let _ = write!(place, ", in {cwd}");
    }
    entry(out, "  of       ", INDENT, &place);
}

fn judged(out: &mut String, label: &str, body: &Value, known: &Names) {
    let judgement = &body["judgement"];
    let again = if body["answered"] == true { " again, after the answer" } else { "" };
    let hash = word(judgement, "tried");
    let list = known.rules.get(&hash);
    let tried = match list {
        Some(list) => format!("{} rules tried", list.len()),
        None => "the rules are no longer stored".to_owned(),
    };
    entry(
        out,
        label,
        INDENT,
        &format!(
            "{}{again}: {} ({}, mode {}, {tried})",
            word(judgement, "ruling"),
            word(judgement, "why"),
            word(judgement, "risk"),
            word(judgement, "mode"),
        ),
    );
    let ids = judgement["grant"].as_str().into_iter();
    let others = judgement["other_grants"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for id in ids.chain(others) {
        let text = known.grant(id).map_or_else(|| format!("grant {id}"), granted);
        entry(out, "", INDENT, &format!("by {text}"));
    }
    let matched: Vec<u64> =
        judgement["matched"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    for (at, rule) in list.into_iter().flatten().enumerate() {
        let is_matched = matched.contains(&(at as u64));
        if is_matched || known.all_rules {
            let mark = if is_matched { "+" } else { "-" };
            let text = format!("{mark} {} {} ({})", rule.behavior, rule.pattern, rule.origin);
            entry(out, "", INDENT + 2, &text);
        }
    }
}

fn decided(body: &Value) -> String {
    let answer = match (word(body, "action").as_str(), &body["arguments"], &body["result"]) {
        ("cancel", _, _) => "denied".to_owned(),
        ("resume", Value::Null, Value::Null) => "approved".to_owned(),
        ("resume", Value::Null, _) => "answered".to_owned(),
        ("resume", _, _) => "approved as edited".to_owned(),
        (other, _, _) => other.to_owned(),
    };
    let delay = body["delay_ms"].as_u64().map(|ms| format!(" after {}", duration(ms))).unwrap_or_default();
    format!("{answer} by {}{delay}", who(&body["actor"]))
}

/// A command that a hook ran.
fn hook(body: &Value) -> String {
    let how = match body["exit"].as_i64() {
        Some(code) => format!("exit {code}"),
        None => "no exit status".to_owned(),
    };
    let time = body["duration_ms"].as_u64().unwrap_or_default();
    let (name, phase, origin) = (word(body, "name"), word(body, "phase"), word(body, "origin"));
    format!("{name} at {phase} ({how}, {}, {origin}): {}", duration(time), word(body, "answer"))
}

/// Renders a row that belongs to no call.
fn alone(row: &AuditRow, known: &Names) -> String {
    let body = &row.body;
    let id = word(body, "id");
    let grant = || known.grant(&id).map_or_else(|| format!("grant {id}"), granted);
    match row.kind {
        AuditKind::Granted => match serde_json::from_value::<GrantRecord>(body.clone()) {
            Ok(given) => format!("{} by {}", granted(&given), who(&body["actor"])),
            Err(_) => body.to_string(),
        },
        AuditKind::Revoked | AuditKind::Spent | AuditKind::Lapsed => grant(),
        AuditKind::Deleted => {
            let thread = row.thread_id.as_ref().map_or("?", AsRef::as_ref);
            let (questions, executions) = (&body["questions"], &body["executions"]);
            format!(
                "thread {thread} with {questions} questions and {executions} executions by {}",
                who(&body["actor"])
            )
        }
        AuditKind::Configured => {
            let what = if body["value"].is_null() { "deleted" } else { "published" };
            let (namespace, revision) = (word(body, "namespace"), &body["revision"]);
            format!("{namespace}/{id} {what} with revision {revision} by {}", who(&body["actor"]))
        }
        AuditKind::Hook => {
            let run = row.run_id.as_ref().map_or("?", AsRef::as_ref);
            format!("{}, run {run}", hook(body))
        }
        AuditKind::Judged
        | AuditKind::Asked
        | AuditKind::Decided
        | AuditKind::Began
        | AuditKind::Ended
        | AuditKind::Expired
        | AuditKind::Superseded
        | AuditKind::Applied
        | AuditKind::Other => body.to_string(),
    }
}

/// Renders a grant: pattern, scope and expiry.
fn granted(grant: &GrantRecord) -> String {
    let scope = match &grant.scope {
        GrantScope::Run(_) => "for the run".to_owned(),
        GrantScope::Thread(_) => "for the thread".to_owned(),
        GrantScope::Project(root) => format!("in {}", root.display()),
        GrantScope::Everywhere => "everywhere".to_owned(),
    };
    let until = grant.expires_at.map(|at| format!(" until {}", when(at))).unwrap_or_default();
    let uses = grant.max_uses.map(|uses| format!(" at most {uses} times")).unwrap_or_default();
    format!("`{}` {scope}{until}{uses} (grant {})", grant.pattern, grant.id)
}

/// Returns who answered, and through what.
fn who(actor: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(uid) = actor["uid"].as_u64() {
        parts.push(format!("uid {uid}"));
    }
    parts.extend(["tty", "channel"].iter().filter_map(|key| actor[*key].as_str().map(str::to_owned)));
    format!("{} ({})", actor["user"].as_str().unwrap_or("?"), parts.join(", "))
}

/// Returns a member of a body as text: strings as they are, other values as JSON, missing ones as an empty
/// string.
fn word(body: &Value, key: &str) -> String {
    match body.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Writes a text after a label, sanitized and broken into lines; continuation lines are indented by `indent`.
fn entry(out: &mut String, label: &str, indent: usize, text: &str) {
    let text = visible_line(text);
    let mut line = if label.is_empty() { " ".repeat(indent) } else { label.to_owned() };
    let mut used = line.width();
    let mut is_empty = true;
    for piece in text.split_inclusive(' ') {
        if !is_empty && used + piece.trim_end().width() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            (used, is_empty) = (indent, true);
        }
        for c in piece.chars() {
            let width = c.width().unwrap_or(0);
            if used + width > WIDTH && c != ' ' {
                out.push_str(line.trim_end());
                out.push('\n');
                line = " ".repeat(indent);
                used = indent;
            }
            line.push(c);
            used += width;
            is_empty = false;
        }
    }
    out.push_str(line.trim_end());
    out.push('\n');
}
