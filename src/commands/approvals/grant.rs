//! `aye approvals approve --grant`: grants a rule with a decision, from any terminal.

use crate::cli::start::StartFlags;
use crate::commands::approvals::GrantFlags;
use crate::contract::display::visible_line;
use crate::contract::grant::{GrantEnd, GrantRequest};
use crate::contract::question::Question;
use crate::contract::record::{GrantRecord, GrantScope, SuspensionRecord};
use crate::contract::storage::SharedStore;
use crate::contract::suspension::ACTION_PERMISSION;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::grants::{check_opening, check_pattern, open_question, record};

/// Grants the rule that the flags name, if any, and returns the line that reports it.
pub(crate) async fn give(
    flags: GrantFlags,
    found: &SuspensionRecord,
    store: &SharedStore,
    foundation: &Foundation,
    cli: &StartFlags,
) -> Result<Option<(GrantRecord, String)>, Failure> {
    let GrantFlags { grant: Some(wanted), scope, until } = flags else { return Ok(None) };
    let asked = open_question(store, &found.id).await.map_err(Failure::failed)?;
    if asked.ticket.suspension.action != ACTION_PERMISSION {
        return Err(Failure::usage("a rule can be granted only with an approval request"));
    }
    let end = until.map_or(Ok(GrantEnd::Never), |end| GrantEnd::parse(&end));
    let end = end.map_err(|why| Failure::usage(format!("--for: {why}")))?;
    let pattern = pattern(&asked, &wanted)?;
    // The rules and the project are those of the folder that the question came from.
    let thread = store.load_thread(&asked.thread_id).await.map_err(Failure::failed)?;
    let mut there = cli.clone();
    there.global.cd = Some(thread.map_or_else(|| foundation.workspace.cwd.clone(), |thread| thread.cwd));
    let mut there_is = Foundation::load(&there, foundation.env.clone())?;
    let rules = there_is.rules(cli)?;
    let scope = match scope.as_deref() {
        Some("run") => GrantScope::Run(asked.run_id.clone()),
        Some("thread") => GrantScope::Thread(asked.thread_id.clone()),
        Some("project") => GrantScope::Project(there_is.workspace.root.clone()),
        Some("all") => GrantScope::Everywhere,
        Some(_) | None if is_dangerous(&asked) => GrantScope::Thread(asked.thread_id.clone()),
        Some(_) | None => GrantScope::Project(there_is.workspace.root.clone()),
    };
    let now = store.clock().now_ms();
    let permissions = crate::program::parts::permissions_of(&there_is, rules, store.clock());
    permissions.set_grants(store.grants(now).await.map_err(Failure::failed)?);
    let in_force = permissions.rules_for(&asked.thread_id, &asked.run_id, &[]);
    let tools = crate::tools::builtin(crate::program::parts::tool_env(&there_is));
    let tool = tools.into_iter().find(|tool| tool.descriptor().id == asked.ticket.pending.name);
    let primary = tool.and_then(|tool| tool.descriptor().primary_argument);
    let request = GrantRequest { suspension: asked.id.clone(), pattern, scope, end };
    let shown = visible_line(&request.pattern).into_owned();
    check_pattern(&permissions, &in_force, &asked, primary, &request)
        .and_then(|()| check_opening(&there_is.paths, &request))
        .map_err(|why| Failure::usage(format!("{shown} cannot be granted: {why}")))?;
    let granted = format!("{shown} for {}, {}", request.scope, request.end.words());
    let actor = crate::program::app_context::actor(foundation, "cli");
    let grant = record(request, &asked, now, actor).map_err(|why| Failure::usage(format!("--for: {why}")))?;
    let message = format!("granted: {granted} ({})", grant.id);
    Ok(Some((grant, message)))
}

/// Whether a grant without a scope covers no more than the conversation.
fn is_dangerous(asked: &SuspensionRecord) -> bool {
    let question = Question::of(&asked.ticket.suspension);
    question.approval().is_some_and(|request| request.danger_title().is_some())
}

/// Returns the pattern that the user wrote, or that of the proposal with this number.
fn pattern(asked: &SuspensionRecord, wanted: &str) -> Result<String, Failure> {
    let Ok(number) = wanted.trim().parse::<usize>() else { return Ok(wanted.trim().to_owned()) };
    let question = Question::of(&asked.ticket.suspension);
    let proposals = question.proposals();
    let chosen = number.checked_sub(1).and_then(|at| proposals.get(at));
    chosen.map(|proposal| proposal.pattern.clone()).ok_or_else(|| {
        Failure::usage(match proposals.len() {
            0 => "no rule fits this call; write a pattern".to_owned(),
            n => format!("unknown proposal {number}; `aye approvals show` lists {n}"),
        })
    })
}
