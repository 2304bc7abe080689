//! A store restored from a backup: calls decided or started when the backup was made may have run since.

use super::document::RunDocument;
use super::result_text;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::ids::CallId;
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::record::{
    AttemptId, Checkpoint, ExecutionStart, Fence, IntentRecord, LeaseRecord, OpenIntent, OutcomeKind,
    OutcomeRecord, Owner, RunRecord, SuspensionRecord, SuspensionStatus,
};
use aye_core::contract::storage::{AcquireError, StoreError, SuspensionFilter, ThreadRunStore};
use aye_core::contract::suspension::{ResumeDecisionAction, SuspendTicket, ToolCallResume};
use aye_core::contract::tool::ToolClass;
use aye_core::run::{CallState, Fact};

/// Gives every call that was decided or started, and has no outcome, the outcome `unknown`: before such a
/// call runs again, the process that resumes its run asks the user, or reports the outcome to the model.
/// Returns the number of calls.
///
/// No other process may use the store. A run that cannot be read is left as it is: it cannot be resumed
/// either.
///
/// # Errors
/// [`StoreError`].
pub async fn mark_unknown(store: &dyn ThreadRunStore, owner: &Owner, now_ms: u64) -> Result<u64, StoreError> {
    let mut marked = 0;
    for run in store.unfinished_runs().await? {
        // A lease from before the backup is nobody's.
        if let Some(LeaseRecord { owner, epoch, .. }) = store.lease(&run.thread_id).await? {
            let fence = Fence { thread_id: run.thread_id.clone(), epoch, token: owner.token };
            store.release(&fence).await?;
        }
        let fence = match store.acquire(&run.thread_id, owner, None).await {
            Ok(fence) => fence,
            Err(AcquireError::Store(error)) => return Err(error),
            Err(AcquireError::Busy { owner }) => {
                return Err(StoreError::Owned { thread: run.thread_id, owner: Box::new(owner) });
            }
        };
        let result = mark(store, run, owner, &fence, now_ms).await;
        store.release(&fence).await?;
        marked += result?;
    }
    Ok(marked)
}

async fn mark(
    store: &dyn ThreadRunStore,
    mut run: RunRecord,
    owner: &Owner,
    fence: &Fence,
    now_ms: u64,
) -> Result<u64, StoreError> {
    let mut outcomes = Vec::new();
    for open in store.open_intents(&run.id).await? {
        outcomes.push(unknown(open.intent.id.clone(), &open.intent.tool, &open.output, now_ms));
    }
    let decided = SuspensionFilter {
        run: Some(run.id.clone()),
        status: Some(SuspensionStatus::Decided),
        ..SuspensionFilter::default()
    };
    for question in store.suspensions(decided).await? {
        let Some(decision) = question.decision.clone().filter(|_| !question.ticket.is_served()) else {
            continue;
        };
        if decision.action != ResumeDecisionAction::Resume {
            continue;
        }
        let Some((started, attempt, intent)) = started(&run, &question, decision.clone(), owner, now_ms)
        else {
            continue;
        };
        run = started;
        let tool = intent.tool.clone();
        store
            .begin(ExecutionStart {
                fence: fence.clone(),
                run: run.clone(),
                intent,
                spends: Some((question.id.clone(), decision.decision_id)),
                judged: Vec::new(),
                commands: Vec::new(),
                snapshot: None,
            })
            .await?;
        outcomes.push(unknown(attempt, &tool, "", now_ms));
    }
    let marked = outcomes.len() as u64;
    if marked > 0 {
        run.updated_at = run.updated_at.max(now_ms);
        store.checkpoint(Checkpoint { outcomes, ..Checkpoint::new(fence.clone(), run) }).await?;
    }
    Ok(marked)
}

/// Prepares an unfinished run that was copied from another store, with its questions and the executions that
/// had no known outcome there: as in [`mark_unknown`], a call that was decided or started may have run
/// elsewhere since. Returns how each such call must be recorded, or `None` if the run cannot continue here,
/// because it cannot be read, or a call is in none of the lists. `is_served` tells whether the conversation of the
/// subagent that works on a call was copied, too.
pub fn adopt(
    run: &mut RunRecord,
    questions: &[SuspensionRecord],
    intents: &[OpenIntent],
    is_served: impl Fn(&CallId) -> bool,
    owner: &Owner,
    now_ms: u64,
) -> Option<Vec<(ExecutionStart, OutcomeRecord)>> {
    let fence = Fence { thread_id: run.thread_id.clone(), epoch: 0, token: owner.token.clone() };
    let begin = |run: &RunRecord, intent: IntentRecord, spends| ExecutionStart {
        fence: fence.clone(),
        run: run.clone(),
        intent,
        spends,
        judged: Vec::new(),
        commands: Vec::new(),
        snapshot: None,
    };
    let machine = RunDocument::from_value(&run.machine).ok()?.machine;
    let is_asked = |ticket: &SuspendTicket| questions.iter().any(|question| question.ticket == *ticket);
    for call in machine.calls() {
        let is_known = match &call.state {
            // A call that was being judged is judged again.
            CallState::New | CallState::Gating | CallState::Closed { .. } => true,
            CallState::Suspended { ticket } => {
                is_asked(ticket) && (!ticket.is_served() || is_served(&call.id))
            }
            CallState::Held { ticket, .. } | CallState::Regating { ticket, .. } => is_asked(ticket),
            CallState::Running { .. } => intents
                .iter()
                .any(|open| open.intent.id.call_id == call.id && open.intent.id.attempt == call.attempt),
        };
        if !is_known {
            return None;
        }
    }
    let mut marked: Vec<_> = intents
        .iter()
        .map(|OpenIntent { intent, output }| {
            (begin(run, intent.clone(), None), unknown(intent.id.clone(), &intent.tool, output, now_ms))
        })
        .collect();
    for question in questions {
        let decision = question.decision.clone().filter(|_| !question.ticket.is_served());
        let Some(decision) = decision.filter(|decision| decision.action == ResumeDecisionAction::Resume)
        else {
            continue;
        };
        let spends = (question.id.clone(), decision.decision_id.clone());
        if let Some((next, attempt, intent)) = started(run, question, decision, owner, now_ms) {
            *run = next;
            let outcome = unknown(attempt, &intent.tool, "", now_ms);
            marked.push((begin(run, intent, Some(spends)), outcome));
        }
    }
    Some(marked)
}

fn unknown(id: AttemptId, tool: &str, output: &str, now_ms: u64) -> OutcomeRecord {
    OutcomeRecord {
        id,
        kind: OutcomeKind::Unknown,
        outcome: ToolCallOutcome::Failed,
        result: result_text::unknown_result(tool, output),
        ended_at: now_ms,
    }
}

/// The run as it would be if the decision had just started its call. `None`: the answer starts nothing.
fn started(
    run: &RunRecord,
    question: &SuspensionRecord,
    decision: ToolCallResume,
    owner: &Owner,
    now_ms: u64,
) -> Option<(RunRecord, AttemptId, IntentRecord)> {
    let mut document = RunDocument::from_value(&run.machine).ok()?;
    let call = question.call_id.clone();
    let suspension = question.id.clone();
    document.machine.apply(Fact::Decided { call: call.clone(), suspension, decision }).ok()?;
    document.machine.apply(Fact::MayHaveStarted { call: call.clone() }).ok()?;
    let state = document.machine.call(&call)?;
    let asked = document.step.call(&call)?;
    let arguments = state.edited.clone().unwrap_or_else(|| asked.arguments.clone());
    let id = AttemptId { run_id: run.id.clone(), call_id: call, attempt: state.attempt };
    let intent = IntentRecord {
        id: id.clone(),
        thread_id: run.thread_id.clone(),
        tool: asked.name.clone(),
        hash: sha256_hex(format!("{}\n{arguments}", asked.name)),
        arguments,
        class: ToolClass::Opaque,
        files: Vec::new(),
        boot_id: owner.boot_id.clone(),
        pid: owner.pid,
        owner: Some(owner.clone()),
        started_at: now_ms,
    };
    let mut run = run.clone();
    run.status = document.machine.status();
    run.machine = document.to_value();
    run.updated_at = run.updated_at.max(now_ms);
    Some((run, id, intent))
}
