//! Rows for tests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use aye_core::contract::lifecycle::{RunStatus, ToolCallOutcome};
use aye_core::contract::message::Message;
use aye_core::contract::presence::Announced;
use aye_core::contract::record::*;
use aye_core::contract::storage::ThreadRunStore;
use aye_core::contract::suspension::{
    ACTION_PERMISSION, Actor, Answer, PendingToolCall, ResumeDecisionAction, SuspendTicket, Suspension,
    ToolCallResume, ToolCallResumeMode,
};
use aye_core::contract::tool::{ToolClass, ToolResult};

pub fn thread(id: &str) -> ThreadRecord {
    ThreadRecord { id: id.into(), title: "t".into(), cwd: "/work".into(), created_at: 1, updated_at: 1 }
}

pub fn owner(token: &str) -> Owner {
    Owner { token: token.into(), pid: 7, pid_started: 70, ..Owner::default() }
}

pub fn run(id: &str, thread: &str, status: RunStatus) -> RunRecord {
    RunRecord {
        status,
        machine: json!({"format": 1, "stage": "tools"}),
        state: BTreeMap::from([("k".to_owned(), json!(0.1))]),
        steps: 1,
        active_ms: 5,
        updated_at: 20,
        ..RunRecord::new(id.into(), thread.into(), "main", "demo", 10)
    }
}

pub fn question(id: &str, run: &RunRecord, call: &str, expires_at: Option<u64>) -> SuspensionRecord {
    SuspensionRecord {
        id: id.into(),
        thread_id: run.thread_id.clone(),
        run_id: run.id.clone(),
        call_id: call.into(),
        ticket: SuspendTicket {
            suspension: Suspension {
                id: id.into(),
                action: ACTION_PERMISSION.into(),
                message: "run it?".into(),
                parameters: json!({}),
                response_schema: None,
                expires_at,
            },
            pending: PendingToolCall {
                id: call.into(),
                name: "Bash".into(),
                arguments: json!({"command": "date"}),
            },
            resume_mode: ToolCallResumeMode::ReplayToolCall,
        },
        status: SuspensionStatus::Open,
        created_at: 20,
        decision: None,
        decided_by: None,
    }
}

pub fn answer(id: &str, action: ResumeDecisionAction) -> Decision {
    let answer = Answer { action, ..Answer::yes(Value::Null) };
    let resume = ToolCallResume { decision_id: id.into(), ..answer.resume(30) };
    Decision::new(resume, Actor { user: "ada".into(), channel: "cli".into(), pid: 1, ..Actor::default() })
}

pub fn yes(id: &str) -> Decision {
    answer(id, ResumeDecisionAction::Resume)
}

pub fn no(id: &str) -> Decision {
    answer(id, ResumeDecisionAction::Cancel)
}

pub fn checkpoint(fence: &Fence, run: &RunRecord) -> Checkpoint {
    Checkpoint::new(fence.clone(), run.clone())
}

pub fn attempt(run: &str, call: &str, attempt: u32) -> AttemptId {
    AttemptId { run_id: run.into(), call_id: call.into(), attempt }
}

pub fn begin(
    fence: &Fence,
    run: &RunRecord,
    call: &str,
    n: u32,
    spends: Option<(&str, &str)>,
) -> ExecutionStart {
    ExecutionStart {
        fence: fence.clone(),
        run: run.clone(),
        intent: IntentRecord {
            id: attempt(run.id.as_str(), call, n),
            thread_id: run.thread_id.clone(),
            tool: "Bash".into(),
            arguments: json!({"command": "date"}),
            hash: "00".into(),
            class: ToolClass::Opaque,
            files: Vec::new(),
            boot_id: "boot".into(),
            pid: 7,
            owner: None,
            started_at: 40,
        },
        spends: spends.map(|(question, decision)| (question.into(), decision.into())),
        judged: Vec::new(),
        commands: Vec::new(),
        snapshot: None,
    }
}

pub fn outcome(id: AttemptId, kind: OutcomeKind) -> OutcomeRecord {
    let result = ToolResult::text("Bash", "noon");
    OutcomeRecord { id, kind, outcome: ToolCallOutcome::Succeeded, result, ended_at: 50 }
}

/// A thread `t1` with a waiting run `r1` and the question `q1` about its call `c1`.
pub async fn waiting(store: &dyn ThreadRunStore, expires_at: Option<u64>) -> (Fence, RunRecord) {
    waiting_of(store, &owner("me"), expires_at).await
}

/// The same of another owner.
pub async fn waiting_of(
    store: &dyn ThreadRunStore,
    owner: &Owner,
    expires_at: Option<u64>,
) -> (Fence, RunRecord) {
    store.ensure_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), owner, None).await.unwrap();
    let run = run("r1", "t1", RunStatus::Waiting);
    let opened = vec![question("q1", &run, "c1", expires_at)];
    let messages = vec![Message::user("what time is it?")];
    store.checkpoint(Checkpoint { messages, opened, ..checkpoint(&fence, &run) }).await.unwrap();
    (fence, run)
}

/// An owner that is alive until the value is dropped.
pub fn announced(store: &dyn ThreadRunStore, token: &str) -> Announced {
    store.presence().announce(owner(token))
}

pub async fn acquired(store: &dyn ThreadRunStore, thread: &str, owner: &Owner) -> Fence {
    store.acquire(&thread.into(), owner, None).await.unwrap()
}

pub async fn status(store: &dyn ThreadRunStore, id: &str) -> SuspensionStatus {
    store.suspension(&id.into()).await.unwrap().unwrap().status
}
