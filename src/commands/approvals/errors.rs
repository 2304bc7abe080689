//! Errors for decisions that are not accepted: each reason with what was expected.

use std::fmt::Write as _;

use serde_json::Value;

use super::LIST;
use super::summary;
use crate::commands::when;
use crate::contract::display::{shortened, visible_line};
use crate::contract::lifecycle::{RunStatus, TerminationReason};
use crate::contract::record::{SuspensionRecord, SuspensionStatus};
use crate::contract::schema;
use crate::contract::storage::{SharedStore, SuspensionFilter};
use crate::contract::suspension::{Actor, ResumeDecisionAction, ToolCallResume};
use crate::failure::Failure;
use crate::runtime::DecideError;
use crate::session::AnswerError;

/// The maximum characters of foreign text in a sentence.
const QUOTED: usize = 200;

/// Joins several failures, one line each. Usage errors determine the exit status.
pub(super) fn all(refused: Vec<Failure>) -> Result<(), Failure> {
    let lines: Vec<&str> = refused.iter().map(|failure| failure.message.as_str()).collect();
    let message = lines.join("\n");
    let worst = refused.into_iter().max_by_key(|failure| failure.exit);
    worst.map_or(Ok(()), |failure| Err(failure.with_message(message)))
}

pub(super) fn ambiguous(id: &str, found: &[SuspensionRecord]) -> Failure {
    let mut text = format!("`{id}` matches several ids; write more of it:");
    for suspension in found {
        let state = match suspension.status {
            SuspensionStatus::Open => "",
            SuspensionStatus::Decided | SuspensionStatus::Applied => "decided: ",
            SuspensionStatus::Superseded => "closed: ",
            SuspensionStatus::Expired => "expired: ",
        };
        let _ = write!(text, "\n  {}  {state}{}", visible_line(suspension.id.as_str()), summary(suspension));
    }
    if found.len() >= 20 {
        text.push_str("\n  …");
    }
    Failure::usage(text)
}

/// Why the question cannot be answered any more; `None` while it can.
pub(super) async fn closed_error(
    store: &SharedStore,
    suspension: &SuspensionRecord,
) -> Result<Option<Failure>, Failure> {
    let id = visible_line(suspension.id.as_str());
    let what = format!("{id} ({})", summary(suspension));
    let why = match suspension.status {
        SuspensionStatus::Open => return Ok(None),
        SuspensionStatus::Decided | SuspensionStatus::Applied => {
            format!("{what} was {}; nothing changed", decided(suspension))
        }
        SuspensionStatus::Superseded => {
            format!("{what} is closed: {}; nothing changed", closed(store, suspension).await?)
        }
        SuspensionStatus::Expired => {
            let end = suspension.ticket.suspension.expires_at.map(|at| format!(" at {}", moment(at)));
            let run = store.load_run(&suspension.run_id).await.map_err(Failure::failed)?;
            let is_over = run.is_some_and(|run| run.status == RunStatus::Done);
            let again = if is_over { " \"please try that again\"" } else { "" };
            format!(
                "{what} expired{}: the call did not run, and nothing changed; to be asked again: aye -r {} -p{again}",
                end.unwrap_or_default(),
                suspension.thread_id
            )
        }
    };
    Ok(Some(Failure::failed(why)))
}

/// Why a question was closed without an answer.
async fn closed(store: &SharedStore, suspension: &SuspensionRecord) -> Result<String, Failure> {
    let runs = store.list_runs(&suspension.thread_id).await.map_err(Failure::failed)?;
    if runs.iter().any(|run| run.parent_run_id.as_ref() == Some(&suspension.run_id)) {
        return Ok("a new message superseded it; the call did not run".to_owned());
    }
    let run = runs.into_iter().find(|run| run.id == suspension.run_id);
    Ok(match run.filter(|run| run.status == RunStatus::Done).map(|run| run.termination) {
        Some(Some(TerminationReason::Cancelled)) => "its run was cancelled".to_owned(),
        Some(Some(TerminationReason::Error(why))) => format!("its run failed ({})", quoted(&why)),
        Some(Some(TerminationReason::Stopped(why))) => {
            format!("its run was stopped ({})", quoted(why.detail.as_deref().unwrap_or(&why.code)))
        }
        Some(Some(TerminationReason::Blocked(why))) => format!("its run was blocked ({})", quoted(&why)),
        Some(
            Some(
                TerminationReason::NaturalEnd
                | TerminationReason::BehaviorRequested
                | TerminationReason::Suspended,
            )
            | None,
        ) => "its run is done".to_owned(),
        None => {
            let filter = SuspensionFilter {
                run: Some(suspension.run_id.clone()),
                status: Some(SuspensionStatus::Open),
                ..SuspensionFilter::default()
            };
            let open = store.suspensions(filter).await.map_err(Failure::failed)?;
            match open.iter().find(|other| other.call_id == suspension.call_id) {
                Some(newer) => format!("asked again as {}", visible_line(newer.id.as_str())),
                None => format!("superseded; {LIST}"),
            }
        }
    })
}

/// Describes who decided what, when and how, for use after "was".
fn decided(suspension: &SuspensionRecord) -> String {
    let mut text = "already decided".to_owned();
    if let Some(by) = &suspension.decided_by {
        let _ = write!(text, " by {}", who(by));
    }
    if let Some(decision) = &suspension.decision {
        let _ = write!(text, " at {}: {}", moment(decision.updated_at), decision_text(decision));
    }
    if let Some(by) = &suspension.decided_by {
        let _ = write!(text, " ({})", actor_origin(by));
    }
    text
}

/// Returns a user's name and channel.
pub(super) fn who(actor: &Actor) -> String {
    visible_line(&actor.shown()).into_owned()
}

/// Returns the properties of an actor that cannot be chosen: the user id, the process, the terminal.
pub(super) fn actor_origin(actor: &Actor) -> String {
    let mut parts = Vec::new();
    parts.extend(actor.uid.map(|uid| format!("uid {uid}")));
    parts.push(format!("process {}", actor.pid));
    parts.extend(actor.tty.as_deref().map(|tty| visible_line(tty).into_owned()));
    parts.join(", ")
}

pub(super) fn decision_text(decision: &ToolCallResume) -> String {
    let mut text = match (decision.action, &decision.arguments, &decision.result) {
        (ResumeDecisionAction::Cancel, _, _) if decision.is_modify() => "changes requested".to_owned(),
        (ResumeDecisionAction::Cancel, _, _) => "denied".to_owned(),
        (ResumeDecisionAction::Resume, Some(arguments), _) => {
            format!("approved with edited arguments, {}", quoted(&arguments.to_string()))
        }
        (ResumeDecisionAction::Resume, None, Value::Null) => "approved".to_owned(),
        (ResumeDecisionAction::Resume, None, data) => format!("answered {}", quoted(&data.to_string())),
    };
    if let Some(reason) = decision.comment() {
        let _ = write!(text, ", saying \"{}\"", quoted(reason));
    }
    text
}

/// Returns the error that `aye answer` got no answer.
pub(super) fn no_answer(suspension: &SuspensionRecord) -> Failure {
    Failure::usage(format!("the answer is missing; expected: {}", right(suspension)))
}

/// Returns why an answer was not stored.
pub(super) fn refused(suspension: &SuspensionRecord, error: &AnswerError) -> Failure {
    match error {
        AnswerError::NeedsData => needs_data(suspension),
        AnswerError::TakesNoData => takes_no_data(suspension),
        AnswerError::Changed => Failure::failed(format!("{error}; nothing changed")),
        AnswerError::Refused(error) => unfit(suspension, error),
    }
}

/// Returns the error that data was given where only approval or denial is expected.
fn takes_no_data(suspension: &SuspensionRecord) -> Failure {
    let id = visible_line(suspension.id.as_str());
    Failure::usage(format!(
        "{id} ({}) takes no data; expected: {}; nothing changed",
        summary(suspension),
        right(suspension)
    ))
}

/// Returns the error that the question was approved, but needs data.
fn needs_data(suspension: &SuspensionRecord) -> Failure {
    let id = visible_line(suspension.id.as_str());
    Failure::usage(format!(
        "{id} ({}) needs data, not just approval; expected: {}; nothing changed",
        summary(suspension),
        right(suspension)
    ))
}

/// Returns the error that the payload does not match the question.
fn unfit(suspension: &SuspensionRecord, error: &DecideError) -> Failure {
    let why = match error {
        DecideError::Schema { .. } => error.to_string(),
        DecideError::Unfit { .. } | DecideError::Arguments { .. } | DecideError::Store(_) => {
            return Failure::usage(format!("{error}; nothing changed"));
        }
    };
    Failure::usage(format!("{why}; expected: {}; nothing changed", right(suspension)))
}

/// The command that answers a question.
pub(super) fn right(suspension: &SuspensionRecord) -> String {
    let id = visible_line(suspension.id.as_str());
    match &suspension.ticket.suspension.response_schema {
        None if suspension.ticket.approval().is_none() => {
            format!("{}, or aye deny {id}", suspension.ticket.answer_command())
        }
        None => format!("aye approve {id}, or aye deny {id}"),
        Some(schema) => {
            let (example, form) = (suspension.ticket.example_answer(), schema::form(schema));
            let text = example.to_string();
            let command = suspension.ticket.answer_command();
            // If the schema leaves no choice, the form would only repeat the example.
            let is_plain = form.split_whitespace().collect::<String>() == text;
            if is_plain { command } else { format!("{command} with {}", visible_line(&form)) }
        }
    }
}

/// Returns the time of an answer in the local time zone.
pub(super) fn moment(ms: u64) -> String {
    let seconds = ms / 1000 % 60;
    format!("{}:{seconds:02}", when(ms))
}

fn quoted(text: &str) -> String {
    shortened(&visible_line(text.trim()), QUOTED).into_owned()
}
