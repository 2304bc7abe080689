//! What the benchmarks work on: a long answer, a long thread, commands, records.

use aye::contract::event::AgentEvent;
use aye::contract::ids::ThreadId;
use aye::contract::lifecycle::RunStatus;
use aye::contract::message::{Message, ToolCall};
use aye::contract::presence::Liveness;
use aye::contract::record::{
    AttemptId, Checkpoint, Decision, ExecutionStart, Fence, IntentRecord, Owner, RunRecord, StoredMessage,
    SuspensionRecord, SuspensionStatus, ThreadRecord,
};
use aye::contract::suspension::{
    ACTION_PERMISSION, Actor, Answer, PendingToolCall, SuspendTicket, Suspension, ToolCallResume,
    ToolCallResumeMode,
};
use aye::contract::tool::{ToolClass, ToolDescriptor};
use aye::store::Store;
use aye::tui::host::{HostInfo, Mode, ModelPrices, OpenedThread};
use serde_json::{Value, json};

/// One section of an answer: every block of markdown that models write.
const SECTION: &str = "\
## Section @: reading the queue

The worker keeps a *bounded* queue of `Job` values and a **single** writer, so the order of events is the order of \
arrival. See `src/queue_@.rs` for the drain loop, and note that a cancelled job still runs its cleanup.

- first, take the lock and copy the header
- second, release the lock before any I/O
- third, retry with a delay of `@ ms` when the peer is busy

```rust
pub fn drain_@(q: &mut Vec<Job>) -> Result<usize, Error> {
    let mut done = 0;
    while let Some(job) = q.pop() {
        if let Err(e) = job.run(\"step-@\") {
            eprintln!(\"job {}: {e}\", job.id);
        }
        done += 1;
    }
    Ok(done)
}
```

1. build with `cargo build --release`
2. run the check number @

> A quoted remark about item @: measure first, change one thing, measure again.

| name | runs | seconds |
| --- | ---: | ---: |
| alpha | @ | 0.12 |
| beta | @ | 0.34 |

";

/// So many small deltas, about four characters each.
pub fn markdown_deltas(count: usize) -> Vec<String> {
    let mut deltas = Vec::with_capacity(count);
    for section in 1.. {
        let text: Vec<char> = SECTION.replace('@', &section.to_string()).chars().collect();
        for piece in text.chunks(4) {
            if deltas.len() == count {
                return deltas;
            }
            deltas.push(piece.iter().collect());
        }
    }
    deltas
}

pub fn run_start() -> AgentEvent {
    AgentEvent::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None }
}

pub fn info() -> HostInfo {
    HostInfo {
        unsandboxed: None,
        agent: None,
        effort_in_force: None,
        model: "model".into(),
        model_why: String::new(),
        effort: None,
        provider: "provider".into(),
        is_demo: false,
        start: Vec::new(),
        context_window: Some(200_000),
        prices: ModelPrices::default(),
        mode: Mode::default(),
        most_mode: None,
        cwd: "/work".into(),
        project: "/work".into(),
        home: None,
        branch: None,
        instructions: None,
        warnings: Vec::new(),
        version: "0".into(),
    }
}

pub fn thread() -> ThreadRecord {
    ThreadRecord {
        id: "t".into(),
        title: "a long one".into(),
        cwd: "/work".into(),
        created_at: 1,
        updated_at: 1,
    }
}

/// A conversation of so many messages: a question, a call, its result, an answer, and again.
pub fn messages(count: usize) -> Vec<Message> {
    let mut messages = Vec::with_capacity(count);
    for n in 0..count {
        let text = SECTION.replace('@', &n.to_string());
        messages.push(match n % 4 {
            0 => Message::user(format!("question {n}: what does the queue do?")),
            1 => {
                let call =
                    ToolCall::new(format!("c{n}"), "Bash", json!({ "command": format!("ls -la src/{n}") }));
                Message::assistant_with(Vec::new(), vec![call])
            }
            2 => Message::tool(format!("c{}", n - 1), format!("total {n}\n-rw-r--r-- 1 a a 10 main.rs\n")),
            _ => Message::assistant(text),
        });
    }
    messages
}

pub fn opened(count: usize) -> OpenedThread {
    let stored = messages(count).into_iter().enumerate().map(|(seq, message)| StoredMessage {
        seq: seq as u64,
        run_id: "r".into(),
        created_at: 1,
        message,
    });
    OpenedThread {
        children: Vec::new(),
        commands: Vec::new(),
        thread: thread(),
        messages: stored.collect(),
        run: None,
        earlier: None,
        waiting: Vec::new(),
        interrupted: Vec::new(),
        driver: aye::tui::host::ThreadOwner::Nobody,
        queued: Vec::new(),
        summaries: Vec::new(),
    }
}

fn run() -> RunRecord {
    RunRecord {
        machine: json!({ "format": 1 }),
        steps: 1,
        ..RunRecord::new("r".into(), "t".into(), "bench", "model", 1)
    }
}

/// A thread with a run that may be written to.
pub async fn begin_thread(store: &Store) -> (Fence, RunRecord) {
    store.create_thread(thread()).await.unwrap();
    let owner = Owner { token: "me".into(), pid: 1, ..Owner::default() };
    let fence = store.acquire(&ThreadId::from("t"), &owner, None, |_| Liveness::Yes).await.unwrap();
    (fence, run())
}

/// A stored thread of so many messages.
pub async fn fill(store: &Store, count: usize) {
    let (fence, run) = begin_thread(store).await;
    for chunk in messages(count).chunks(500) {
        let messages = chunk.to_vec();
        let checkpoint = Checkpoint { messages, ..Checkpoint::new(fence.clone(), run.clone()) };
        store.checkpoint(checkpoint).await.unwrap();
    }
}

/// So many questions that wait, a hundred in each conversation.
pub async fn fill_inbox(store: &Store, count: usize) {
    let owner = Owner { token: "me".into(), pid: 1, ..Owner::default() };
    for (n, commands) in commands(count).chunks(100).enumerate() {
        let (thread_id, id) = (ThreadId::from(format!("t{n}")), format!("r{n}"));
        let title = format!("conversation {n}: make the tests of the parser pass");
        store.create_thread(ThreadRecord { id: thread_id.clone(), title, ..thread() }).await.unwrap();
        let fence = store.acquire(&thread_id, &owner, None, |_| Liveness::Yes).await.unwrap();
        let run = RunRecord { id: id.as_str().into(), thread_id, status: RunStatus::Waiting, ..run() };
        let ask = |(at, command): (usize, &String)| {
            let mut asked = question(&run, &format!("perm_call_{id}_{at}"));
            asked.ticket.pending.arguments = json!({ "command": command });
            asked.ticket.suspension.parameters =
                json!({ "why": format!("no rule allows `{command}`"), "risk": "runs", "cwd": "/work" });
            asked
        };
        let opened = commands.iter().enumerate().map(ask).collect();
        let checkpoint = Checkpoint { opened, ..Checkpoint::new(fence, run) };
        store.checkpoint(checkpoint).await.unwrap();
    }
}

pub fn begin(fence: &Fence, run: &RunRecord, call: &str, spends: Option<&str>) -> ExecutionStart {
    ExecutionStart {
        fence: fence.clone(),
        run: run.clone(),
        intent: IntentRecord {
            id: AttemptId { run_id: run.id.clone(), call_id: call.into(), attempt: 1 },
            thread_id: run.thread_id.clone(),
            tool: "Bash".into(),
            arguments: json!({ "command": "date" }),
            hash: "00".into(),
            class: ToolClass::Opaque,
            files: Vec::new(),
            boot_id: "boot".into(),
            pid: 1,
            owner: None,
            started_at: 2,
        },
        spends: spends.map(|id| (id.into(), id.into())),
        judged: Vec::new(),
        snapshot: None,
        commands: Vec::new(),
    }
}

/// A question about a call; question and decision have the call's id.
pub fn question(run: &RunRecord, call: &str) -> SuspensionRecord {
    SuspensionRecord {
        id: call.into(),
        thread_id: run.thread_id.clone(),
        run_id: run.id.clone(),
        call_id: call.into(),
        ticket: SuspendTicket {
            suspension: Suspension {
                id: call.into(),
                action: ACTION_PERMISSION.into(),
                message: "run it?".into(),
                parameters: json!({}),
                response_schema: None,
                expires_at: None,
            },
            pending: PendingToolCall {
                id: call.into(),
                name: "Bash".into(),
                arguments: json!({ "command": "date" }),
            },
            resume_mode: ToolCallResumeMode::ReplayToolCall,
        },
        status: SuspensionStatus::Open,
        created_at: 2,
        decision: None,
        decided_by: None,
    }
}

pub fn yes(id: &str) -> Decision {
    let answer = Answer::yes(Value::Null);
    let resume = ToolCallResume { decision_id: id.into(), ..answer.resume(3) };
    Decision::new(resume, Actor { user: "ada".into(), channel: "bench".into(), pid: 1, ..Actor::default() })
}

/// Tools as servers bring them, fifty a server.
pub fn tools(count: usize) -> Vec<ToolDescriptor> {
    const VERBS: [&str; 5] = ["create", "list", "get", "update", "delete"];
    const WORDS: [&str; 10] = [
        "issue",
        "pull_request",
        "branch",
        "file",
        "comment",
        "label",
        "release",
        "workflow",
        "user",
        "team",
    ];
    let tool = |i: usize| {
        let (server, verb, word) = (i / 50, VERBS[i / 10 % 5], WORDS[i % 10]);
        let about = format!("Do the {verb} of a {word} on server {server}, and give what was done as JSON.");
        ToolDescriptor::new(format!("mcp__server{server}__{verb}_{word}"), word, about).with_parameters(
            json!({
                "type": "object",
                "properties": {
                    "owner": {"type": "string", "description": "who owns the repository"},
                    "repo": {"type": "string", "description": "the repository"},
                    "number": {"type": "integer", "description": format!("number of the {word}")},
                    "body": {"type": "string", "description": "text in Markdown"},
                },
                "required": ["owner", "repo"],
            }),
        )
    };
    (0..count).map(tool).collect()
}

/// Commands as models write them.
pub fn commands(count: usize) -> Vec<String> {
    const FORMS: [&str; 10] = [
        "git status --short",
        "ls -la src/@",
        "grep -rn 'fn main' src | head -@",
        "cd src && wc -l main.rs",
        "cargo test --lib @:: -- --nocapture",
        "cat Cargo.toml && git diff HEAD~@",
        "find . -name '*.rs' -newer f@",
        "for f in a b c; do echo $f; done",
        "python3 -c 'print(@)' > out.txt",
        "sed -n '@,20p' src/lib.rs",
    ];
    (0..count).map(|n| FORMS[n % FORMS.len()].replace('@', &n.to_string())).collect()
}
