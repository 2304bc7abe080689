//! `aye approvals`: what waits for a person, and the answers.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::commands::{put_json, when};
use super::foundation::Foundation;
use super::{Failure, edited, put, say};
use crate::cli::{ApprovalsCommand, Cli, JsonFlag};
use crate::contract::clock::{Clock as _, SystemClock};
use crate::contract::display::{visible, visible_line};
use crate::contract::ids::DecisionId;
use crate::contract::record::{DecideOutcome, Decision, SuspensionRecord, SuspensionStatus};
use crate::contract::suspension::{ResumeDecisionAction, ToolCallResume};
use crate::runtime::check_payload;
use crate::store::{Store, SuspensionFilter, SuspensionLookup};

pub(super) async fn run(
    command: ApprovalsCommand,
    foundation: &Foundation,
    cli: &Cli,
) -> Result<u8, Failure> {
    let store = foundation.open_store()?;
    match command {
        ApprovalsCommand::List(JsonFlag { json }) => {
            let filter =
                SuspensionFilter { status: Some(SuspensionStatus::Open), ..SuspensionFilter::default() };
            let open = store.suspensions(filter).await.map_err(Failure::failed)?;
            if json {
                put_json(&json!(open))?;
            } else {
                let line =
                    |s: &SuspensionRecord| format!("{}  {}  {}\n", s.id, when(s.created_at), summary(s));
                put(&open.iter().map(line).collect::<String>())?;
            }
        }
        ApprovalsCommand::Show { id, json } => {
            let suspension = suspension_by_prefix(&store, &id).await?;
            if json {
                put_json(&json!(suspension))?;
            } else {
                put(&shown(&suspension))?;
            }
        }
        ApprovalsCommand::Approve(args) => edited::approve(args, &store, foundation, cli).await?,
        ApprovalsCommand::Deny(args) => edited::deny(args, &store, foundation).await?,
        ApprovalsCommand::Modify { id, feedback } => {
            let no = Answer { result: ToolCallResume::modify_payload(), ..Answer::no(Some(feedback)) };
            decide(&store, foundation, &id, no, "sent back").await?;
        }
        ApprovalsCommand::Answer { id, answer, comment } => {
            let payload: Value = serde_json::from_str(&answer)
                .map_err(|e| Failure::usage(format!("the answer is not JSON: {e}")))?;
            let answer = Answer::yes(payload).with_comment(comment);
            decide(&store, foundation, &id, answer, "answered").await?;
        }
    }
    store.close().await;
    Ok(0)
}

pub(super) async fn suspension_by_prefix(store: &Store, id: &str) -> Result<SuspensionRecord, Failure> {
    match store.find_suspension(id).await.map_err(Failure::failed)? {
        SuspensionLookup::One(suspension) => Ok(*suspension),
        SuspensionLookup::None => {
            Err(Failure::usage(format!("there is no question `{id}`; `aye approvals list` shows what waits")))
        }
        SuspensionLookup::Many(found) => {
            let ids: Vec<_> = found.iter().map(|s| s.id.to_string()).collect();
            Err(Failure::usage(format!("`{id}` is not unique: {}", ids.join(", "))))
        }
    }
}

/// What the call is about, on one line.
pub(super) fn summary(suspension: &SuspensionRecord) -> String {
    let pending = &suspension.ticket.pending;
    let main = ["command", "file_path", "url", "question", "pattern"]
        .iter()
        .find_map(|key| pending.arguments.get(*key)?.as_str())
        .map_or_else(|| pending.arguments.to_string(), str::to_owned);
    format!("{} {}", visible_line(&pending.name), visible_line(&main))
}

fn shown(suspension: &SuspensionRecord) -> String {
    let ticket = &suspension.ticket;
    let mut out = format!(
        "{}\nthread   {}\nasked    {}\nstatus   {:?}\ntool     {}\n",
        suspension.id,
        suspension.thread_id,
        when(suspension.created_at),
        suspension.status,
        visible_line(&ticket.pending.name)
    );
    for key in ["rule", "why", "cwd"] {
        if let Some(text) = ticket.suspension.parameters.get(key).and_then(Value::as_str) {
            let _ = writeln!(out, "{key:<8} {}", visible_line(text));
        }
    }
    let _ = writeln!(out, "\n{}", visible(&ticket.suspension.message));
    let command = ticket.pending.arguments.get("command").and_then(Value::as_str).map(str::to_owned);
    let call = command
        .unwrap_or_else(|| serde_json::to_string_pretty(&ticket.pending.arguments).unwrap_or_default());
    let _ = writeln!(out, "\n{}", visible(&call));
    let deltas = ticket.suspension.parameters.pointer("/stale/deltas").and_then(Value::as_array);
    for delta in deltas.into_iter().flatten().filter_map(|delta| delta.get("diff")?.as_str()) {
        let _ = writeln!(out, "\nchanged since it was asked before:\n{}", visible(delta));
    }
    // Asked again about an edited call: what the model had proposed is still there.
    if let Some(original) = ticket.suspension.parameters.get("original") {
        let changed = edited::difference(original, &ticket.pending.arguments);
        let _ = writeln!(out, "\nedited before it was asked again:\n{}", visible(changed.trim_end()));
    }
    if let Some(decision) = &suspension.decision {
        let what = match decision.action {
            ResumeDecisionAction::Resume if decision.arguments.is_some() => "allowed as edited",
            ResumeDecisionAction::Resume => "allowed",
            ResumeDecisionAction::Cancel if decision.is_modify() => "sent back for a change",
            ResumeDecisionAction::Cancel => "declined",
        };
        let _ = writeln!(out, "\n{what} at {}", when(decision.updated_at));
        if let Some(arguments) = &decision.arguments {
            let changed = edited::difference(&ticket.pending.arguments, arguments);
            let _ = writeln!(out, "{}", visible(changed.trim_end()));
        }
        if let Some(comment) = decision.comment() {
            let _ = writeln!(out, "they said: {}", visible(comment));
        }
    }
    if let Some(by) = &suspension.decided_by {
        let _ = writeln!(out, "decided by {} ({})", visible_line(&by.user), visible_line(&by.channel));
    }
    out
}

/// An answer, before it gets its id and time.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) action: ResumeDecisionAction,
    pub(super) result: Value,
    pub(super) reason: Option<String>,
    pub(super) arguments: Option<Value>,
}

impl Answer {
    pub(super) fn yes(result: Value) -> Self {
        Self { action: ResumeDecisionAction::Resume, result, reason: None, arguments: None }
    }

    pub(super) fn no(reason: Option<String>) -> Self {
        Self { action: ResumeDecisionAction::Cancel, result: Value::Null, reason, arguments: None }
    }

    pub(super) fn with_comment(self, reason: Option<String>) -> Self {
        Self { reason, ..self }
    }
}

pub(super) async fn decide(
    store: &Store,
    foundation: &Foundation,
    id: &str,
    answer: Answer,
    word: &str,
) -> Result<(), Failure> {
    let suspension = suspension_by_prefix(store, id).await?;
    let now = SystemClock.now_ms();
    let Answer { action, result, reason, arguments } = answer;
    let decision_id = DecisionId::fresh();
    let resume = ToolCallResume { decision_id, action, result, reason, arguments, updated_at: now };
    check_payload(&suspension, &resume).map_err(Failure::usage)?;
    let actor = super::agent::actor(foundation, "cli");
    let outcome =
        store.decide(&suspension.id, Decision { resume, actor }, now).await.map_err(Failure::failed)?;
    match outcome {
        DecideOutcome::Accepted(record) | DecideOutcome::Repeated(record) => {
            say(&format!("{word}: {}; go on with: aye -r {} -p", summary(&record), record.thread_id));
            Ok(())
        }
        DecideOutcome::AlreadyDecided(record) => {
            let by = record.decided_by.as_ref().map_or("somebody", |by| by.user.as_str());
            let channel = record.decided_by.as_ref().map_or("", |by| by.channel.as_str());
            let at = record.decision.as_ref().map_or(0, |d| d.updated_at);
            Err(Failure::failed(format!(
                "already decided by {by} ({channel}) at {}; nothing changed",
                when(at)
            )))
        }
        DecideOutcome::Closed(_) => {
            Err(Failure::failed("the question is closed: a new message came, or the run is over"))
        }
        DecideOutcome::Expired(record) => {
            let end = record.ticket.suspension.expires_at;
            let at = end.map_or_else(String::new, |end| format!(" at {}", when(end)));
            Err(Failure::failed(format!(
                "it expired{at}; it did not run. Say so to the agent to be asked again: aye -r {}",
                record.thread_id
            )))
        }
        DecideOutcome::NotFound => Err(Failure::usage(format!("there is no question `{id}`"))),
    }
}
