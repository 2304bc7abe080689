//! Tests of the store, on real files where files matter.

mod audit;
mod back;
mod commands;
mod crash;
mod decisions;
mod files;
mod hostile;
mod images;
mod inbox;
mod journal;
mod ledger;
mod mailbox;
mod mailbox_model;
mod model;
mod outlines;
mod pages;
mod profile;
mod search;
mod statistics;
mod summaries;
mod threads;
mod upkeep;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{AcquireError, OpenError, Store, StoreError, Term};
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, ToolCallOutcome};
use aye_core::contract::message::Message;
use aye_core::contract::record::*;
use aye_core::contract::suspension::{
    ACTION_PERMISSION, Actor, PendingToolCall, ResumeDecisionAction, SuspendTicket, Suspension,
    ToolCallResume, ToolCallResumeMode,
};
use aye_core::contract::tool::{ToolClass, ToolResult};

/// A folder of its own with a store in it, gone at the end.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data").join("aye.db")
    }

    fn open(&self) -> Store {
        Store::open(&self.path()).unwrap()
    }

    /// Makes the store and waits until it is closed again: a dropped one closes some time later.
    fn make(&self) {
        futures::executor::block_on(self.open().close());
    }

    fn try_open(&self) -> Result<Store, OpenError> {
        Store::open_with(&self.path(), Duration::from_millis(50))
    }

    /// A plain connection, as another program would have it.
    fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// What a crash at this moment would leave: the files as they are, without the shared memory.
    fn copy(&self) -> Home {
        let copy = Home::new();
        std::fs::create_dir_all(copy.path().parent().unwrap()).unwrap();
        for suffix in ["", "-wal"] {
            let name = |path: PathBuf| super::rows::with_suffix(&path, suffix);
            if name(self.path()).exists() {
                std::fs::copy(name(self.path()), name(copy.path())).unwrap();
            }
        }
        copy
    }
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn thread(id: &str) -> ThreadRecord {
    ThreadRecord { id: id.into(), title: "t".into(), cwd: "/work".into(), created_at: 1, updated_at: 1 }
}

fn owner(token: &str) -> Owner {
    Owner { token: token.into(), boot_id: "boot".into(), pid: 7, pid_started: 70 }
}

fn run(id: &str, thread: &str, status: RunStatus) -> RunRecord {
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

fn question(id: &str, run: &RunRecord, call: &str, expires_at: Option<u64>) -> SuspensionRecord {
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

fn answer(id: &str, action: ResumeDecisionAction) -> Decision {
    let resume = ToolCallResume {
        decision_id: id.into(),
        action,
        result: Value::Null,
        reason: None,
        arguments: None,
        updated_at: 30,
    };
    Decision {
        resume,
        actor: Actor { user: "ada".into(), channel: "cli".into(), pid: 1, ..Actor::default() },
    }
}

fn yes(id: &str) -> Decision {
    answer(id, ResumeDecisionAction::Resume)
}

fn no(id: &str) -> Decision {
    answer(id, ResumeDecisionAction::Cancel)
}

fn checkpoint(fence: &Fence, run: &RunRecord) -> Checkpoint {
    Checkpoint::new(fence.clone(), run.clone())
}

/// Who deletes, and when.
fn by() -> (Actor, u64) {
    (Actor { user: "ada".into(), channel: "cli".into(), pid: 1, ..Actor::default() }, 60)
}

fn attempt(run: &str, call: &str, attempt: u32) -> AttemptId {
    AttemptId { run_id: run.into(), call_id: call.into(), attempt }
}

fn begin(fence: &Fence, run: &RunRecord, call: &str, n: u32, spends: Option<(&str, &str)>) -> Begin {
    Begin {
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
            started_at: 40,
        },
        spends: spends.map(|(question, decision)| (question.into(), decision.into())),
        judged: Vec::new(),
        commands: Vec::new(),
        snapshot: None,
    }
}

fn outcome(id: AttemptId, kind: OutcomeKind) -> OutcomeRecord {
    let result = ToolResult::text("Bash", "noon");
    OutcomeRecord { id, kind, outcome: ToolCallOutcome::Succeeded, result, ended_at: 50 }
}

/// A thread `t1` with a waiting run `r1` and the question `q1` about its call `c1`.
async fn waiting(store: &Store, expires_at: Option<u64>) -> (Fence, RunRecord) {
    store.create_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("me"), Term::ENDLESS, |_| true).await.unwrap();
    let run = run("r1", "t1", RunStatus::Waiting);
    let opened = vec![question("q1", &run, "c1", expires_at)];
    let messages = vec![Message::user("what time is it?")];
    store.checkpoint(Checkpoint { messages, opened, ..checkpoint(&fence, &run) }).await.unwrap();
    (fence, run)
}

async fn status(store: &Store, id: &str) -> SuspensionStatus {
    store.suspension(&id.into()).await.unwrap().unwrap().status
}

/// Runs something on the store's own connection.
async fn on_connection<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&Connection) -> T + Send + 'static,
) -> T {
    store.call(move |conn| Ok(work(conn))).await.unwrap()
}
