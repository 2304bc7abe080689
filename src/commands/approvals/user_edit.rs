//! Calls that users edit before approving them, and several questions answered at once.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::cli::start::StartFlags;
use crate::commands::approvals::{AnswerKind, CommandAnswer};
use crate::commands::thread_by_prefix;
use crate::contract::diff::unified;
use crate::contract::display::visible;
use crate::contract::identity::{RunIdentity, RunOrigin};
use crate::contract::judgement::{Risk, Ruling};
use crate::contract::record::{SuspensionRecord, SuspensionStatus};
use crate::contract::spec::AgentSpec;
use crate::contract::storage::{SharedStore, SuspensionFilter};
use crate::contract::suspension::{ACTION_PERMISSION, Answer, ResumeDecisionAction, ToolCallResume};
use crate::contract::tool::{Tool, ToolCallContext, ToolClass};
use crate::failure::{AppError, Failure};
use crate::plugins::permission::{Permissions, VerdictKind, evaluate_in};
use crate::program::foundation::Foundation;
use crate::program::put;
use crate::runtime::{check_arguments, shown_payload};
use crate::state::Snapshot;
use crate::terminal::editor;
use crate::tui::host::Review;

/// Returns the current verdict of the rules and the tool's check on edited arguments. This decides nothing:
/// the gate judges the call again before it runs.
///
/// # Errors
/// A sentence: the arguments cannot be used.
pub(crate) async fn review(
    permissions: &Permissions,
    tool: Option<Arc<dyn Tool>>,
    suspension: &SuspensionRecord,
    arguments: &Value,
) -> Result<Review, AppError> {
    if suspension.ticket.suspension.action != ACTION_PERMISSION {
        return Err("only an approval request can be edited".into());
    }
    check_arguments(suspension, tool.as_deref(), arguments).map_err(|error| error.to_string())?;
    let tool = tool.ok_or_else(|| format!("unknown tool `{}`", suspension.ticket.pending.name))?;
    let descriptor = tool.descriptor();
    let rules = permissions.rules_for(&suspension.thread_id, &suspension.run_id, &[]);
    let question = permissions.question(&descriptor.id, arguments, descriptor.primary_argument.as_deref());
    let verdict = evaluate_in(&rules, &question, permissions.mode());
    let (ruling, lead) = match verdict.decision {
        VerdictKind::Allow => (Ruling::Allow, "the rules allow it"),
        VerdictKind::Ask(_) => (Ruling::Ask, "needs approval too"),
        VerdictKind::Deny => (Ruling::Deny, "the rules deny it"),
        VerdictKind::Error => (Ruling::Error, "the rules cannot evaluate it"),
    };
    let words = format!("{lead}: {}", verdict.why);
    let files = if descriptor.class == ToolClass::Verifiable {
        let context = context(suspension);
        tool.preview(arguments, &context).await.map_err(|error| error.to_string())?
    } else {
        Vec::new()
    };
    let payload = shown_payload(&files);
    Ok(Review { ruling, words, files, payload })
}

/// Creates the context the call would have if the user had approved it.
fn context(suspension: &SuspensionRecord) -> ToolCallContext {
    ToolCallContext {
        call_id: suspension.call_id.to_string(),
        tool_name: suspension.ticket.pending.name.clone(),
        run_identity: RunIdentity::new(
            suspension.thread_id.clone(),
            None,
            suspension.run_id.clone(),
            None,
            crate::program::parts::AGENT.to_owned(),
            RunOrigin::User,
        ),
        agent_spec: Arc::new(AgentSpec::new(crate::program::parts::AGENT)),
        snapshot: Snapshot::default(),
        profile: None,
        activity_sink: None,
        cancellation: tokio_util::sync::CancellationToken::new(),
        // The user has seen the file, so it does not matter that this process's model never read it.
        resume: Some(ToolCallResume {
            decision_id: "review".into(),
            action: ResumeDecisionAction::Resume,
            result: Value::Null,
            reason: None,
            arguments: None,
            profile: None,
            updated_at: 0,
        }),
        attempt: 1,
        agreed: Vec::new(),
        judged: Vec::new(),
        start_before: None,
        lease_end: None,
        guards_git: false,
        sandbox: None,
        opened: crate::contract::judgement::SandboxOpening::default(),
        background: None,
    }
}

/// Returns whether a call only reads, according to the rules when the question was asked. An unknown risk
/// counts as more.
fn only_reads(suspension: &SuspensionRecord) -> bool {
    suspension.ticket.suspension.risk() == Some(Risk::Reads)
}

/// Returns the pending approval requests: the read-only ones, or the others.
pub(crate) async fn open_permissions(
    store: &SharedStore,
    thread: Option<&str>,
    reads: bool,
) -> Result<Vec<SuspensionRecord>, Failure> {
    let thread = match thread {
        Some(id) => Some(thread_by_prefix(store, id).await?.id),
        None => None,
    };
    let filter =
        SuspensionFilter { thread, status: Some(SuspensionStatus::Open), ..SuspensionFilter::default() };
    let mut found = store.suspensions(filter).await.map_err(Failure::failed)?;
    found.retain(|suspension| {
        suspension.ticket.suspension.action == ACTION_PERMISSION && only_reads(suspension) == reads
    });
    Ok(found)
}

/// Returns an approval with other arguments: given as JSON, or written in the user's editor. The changes and
/// the verdict of the rules are shown first.
pub(crate) async fn edited(
    suspension: &SuspensionRecord,
    given: Option<String>,
    yes: CommandAnswer,
    store: &SharedStore,
    foundation: &Foundation,
    cli: &StartFlags,
) -> Result<CommandAnswer, Failure> {
    if suspension.ticket.suspension.action != ACTION_PERMISSION {
        return Err(Failure::usage("only an approval request can be edited; nothing was decided"));
    }
    let original = &suspension.ticket.pending.arguments;
    let mut draft = None;
    let text = if let Some(text) = given {
        text
    } else {
        let text = serde_json::to_string_pretty(original).map_err(Failure::failed)?;
        let name = format!("{}.json", suspension.ticket.pending.name);
        let made = editor::edit(&foundation.env, &format!("{text}\n"), &name)
            .await
            .map_err(|why| Failure::failed(format!("{why}; nothing was decided")))?;
        if made.text.trim().is_empty() {
            return Err(Failure::failed("the text is empty; nothing was decided"));
        }
        let text = made.text.clone();
        draft = Some(made);
        text
    };
    let refuse = |why: String, draft: Option<editor::EditorText>| {
        let kept = draft.map(|draft| format!("; your text is saved in {}", draft.keep().display()));
        Failure::usage(format!("{why}; nothing was decided{}", kept.unwrap_or_default()))
    };
    let arguments: Value = match serde_json::from_str(&text) {
        Ok(arguments) => arguments,
        Err(error) => {
            let why = format!("line {}, column {}: {}", error.line(), error.column(), json_problem(&error));
            return Err(refuse(format!("the arguments are not JSON: {why}"), draft));
        }
    };
    if arguments == *original {
        return Err(Failure::failed(
            "the arguments did not change; nothing was decided (approve without an edit to allow the call)",
        ));
    }
    let reviewed = review_elsewhere(suspension, &arguments, store, foundation, cli).await;
    let review = match reviewed {
        Ok(review) => review,
        Err(why) => return Err(refuse(why.to_string(), draft)),
    };
    put(&visible(&difference(original, &arguments)))?;
    put(&format!("{}\n", visible(&review.words)))?;
    match review.ruling {
        Ruling::Allow | Ruling::Ask => {}
        Ruling::Deny | Ruling::Error => {
            return Err(refuse("the edited call would not run".to_owned(), draft));
        }
    }
    let answer = Answer { result: review.payload, arguments: Some(arguments), ..yes.answer };
    Ok(CommandAnswer { answer, kind: AnswerKind::ApproveEdited, ..yes })
}

/// Reviews in the folder of the conversation, with the rules and tools that hold there.
async fn review_elsewhere(
    suspension: &SuspensionRecord,
    arguments: &Value,
    store: &SharedStore,
    foundation: &Foundation,
    cli: &StartFlags,
) -> Result<Review, AppError> {
    let thread = store.load_thread(&suspension.thread_id).await?;
    let cwd = thread.map_or_else(|| foundation.workspace.cwd.clone(), |thread| thread.cwd);
    let mut there = load_at(&cwd, foundation, cli)?;
    let rules = there.rules(cli)?;
    let grants = store.grants(store.clock().now_ms()).await?;
    let permissions = crate::program::parts::permissions_of(&there, rules, store.clock());
    permissions.set_grants(grants);
    let name = &suspension.ticket.pending.name;
    let tool = crate::tools::builtin(crate::program::parts::tool_env(&there))
        .into_iter()
        .find(|tool| tool.descriptor().id == *name);
    review(&permissions, tool, suspension, arguments).await
}

fn load_at(cwd: &Path, foundation: &Foundation, cli: &StartFlags) -> Result<Foundation, Failure> {
    let mut cli = cli.clone();
    cli.global.cd = Some(cwd.to_path_buf());
    Foundation::load(&cli, foundation.env.clone())
}

/// Returns serde's message without the position, which is already shown.
fn json_problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(words, _)| words.to_owned())
}

/// Describes the differences between two sets of arguments for the user: a line for each side, longer texts
/// as a diff.
pub(crate) fn difference(original: &Value, edited: &Value) -> String {
    let none = Map::new();
    let (before, after) = (original.as_object().unwrap_or(&none), edited.as_object().unwrap_or(&none));
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            serde_json::to_string_pretty(value).unwrap_or_default()
        }
    };
    let mut out = String::new();
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    for key in after.keys().chain(gone) {
        let (old, new) = (before.get(key), after.get(key));
        if old == new {
            continue;
        }
        let (old_text, new_text) = (old.map(text), new.map(text));
        let is_long = [&old_text, &new_text].into_iter().flatten().any(|text| text.contains('\n'));
        if is_long {
            let (old_text, new_text) = (old_text.unwrap_or_default(), new_text.unwrap_or_default());
            let _ = write!(out, "  {key}:\n{}", unified(&old_text, &new_text, None, 2));
            if !out.ends_with('\n') {
                out.push('\n');
            }
            continue;
        }
        for (sign, text) in [('-', old_text), ('+', new_text)] {
            if let Some(text) = text {
                let _ = writeln!(out, "{sign} {key}: {text}");
            }
        }
    }
    out
}
