//! One call of the audit as an object, for programs.

use serde_json::{Map, Value, json};

use super::Names;
use crate::contract::audit::{AuditKind, AuditRow};

/// Returns the rows of one call, sorted by kind, with everything they refer to by hash or id written out; the
/// original rows are under `rows`. A row that belongs to no call is an object with its kind.
pub(super) fn of(rows: &[AuditRow], known: &Names) -> Value {
    let Some(first) = rows.first() else { return Value::Null };
    let mut call = Map::new();
    call.insert("at".into(), json!(first.at));
    call.insert("thread_id".into(), json!(first.thread_id));
    if first.call_id.is_none() {
        call.insert("kind".into(), json!(first.kind));
        call.insert("told".into(), first.body.clone());
        call.insert("rows".into(), json!(rows));
        return Value::Object(call);
    }
    call.insert("run_id".into(), json!(first.run_id));
    call.insert("call_id".into(), json!(first.call_id));
    for key in ["tool", "arguments", "cwd"] {
        let value = rows.iter().find_map(|row| row.body.get(key)).cloned();
        call.insert(key.into(), value.unwrap_or_default());
    }
    let mut lists: Map<String, Value> =
        ["judged", "hooks", "asked", "decided", "granted", "began", "ended", "closed"]
            .map(|name| (name.to_owned(), Value::Array(Vec::new())))
            .into_iter()
            .collect();
    let mut add = |name: &str, value: Value| {
        if let Some(Value::Array(list)) = lists.get_mut(name) {
            list.push(value);
        }
    };
    for row in rows {
        let mut body = row.body.clone();
        if !body.is_object() {
            continue;
        }
        body["at"] = json!(row.at);
        match row.kind {
            AuditKind::Judged => {
                add("judged", judged(body, known));
            }
            AuditKind::Decided => {
                let id = body["suspension"].as_str().unwrap_or_default().to_owned();
                add("decided", body);
                for grant in &known.grants {
                    if grant.suspension_id.as_ref().is_some_and(|s| s.as_str() == id) {
                        add("granted", json!(grant));
                    }
                }
            }
            AuditKind::Hook => add("hooks", body),
            AuditKind::Asked => add("asked", body),
            AuditKind::Began => add("began", body),
            AuditKind::Ended => add("ended", body),
            AuditKind::Expired | AuditKind::Superseded | AuditKind::Applied => {
                body["kind"] = json!(row.kind);
                add("closed", body);
            }
            AuditKind::Granted
            | AuditKind::Revoked
            | AuditKind::Spent
            | AuditKind::Lapsed
            | AuditKind::Deleted
            | AuditKind::Configured
            | AuditKind::Other => {}
        }
    }
    call.append(&mut lists);
    call.insert("rows".into(), json!(rows));
    Value::Object(call)
}

/// A verdict with the rules that were tried.
fn judged(mut body: Value, known: &Names) -> Value {
    let mut judgement = body.get_mut("judgement").map(Value::take).unwrap_or_default();
    let hash = judgement["tried"].as_str().unwrap_or_default().to_owned();
    let matched = judgement.get_mut("matched").map(Value::take).unwrap_or_default();
    let is_matched = |at: usize| matched.as_array().is_some_and(|all| all.iter().any(|n| *n == json!(at)));
    let tried = known.rules.get(&hash).map(|list| {
        let rule = |(at, rule): (usize, &crate::contract::judgement::TriedRule)| {
            json!({
                "pattern": rule.pattern,
                "behavior": rule.behavior,
                "origin": rule.origin,
                "matched": is_matched(at),
            })
        };
        list.iter().enumerate().map(rule).collect::<Vec<_>>()
    });
    let mut out = Map::new();
    out.insert("at".into(), body["at"].take());
    out.insert("answered".into(), body["answered"].take());
    out.insert("arguments".into(), body["arguments"].take());
    if let Value::Object(judgement) = judgement {
        out.extend(judgement.into_iter().filter(|(key, _)| key != "tried" && key != "matched"));
    }
    out.insert("tried".into(), json!(tried));
    Value::Object(out)
}
