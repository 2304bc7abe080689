//! Rows of the store as types. Times are Unix milliseconds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hook::HookRan;
use super::ids::{CallId, DecisionId, JobId, RunId, SuspensionId, ThreadId};
use super::inference::TokenUsage;
use super::judgement::{JudgedCall, Profile, Risk};
use super::lifecycle::{RunStatus, TerminationReason, ToolCallOutcome};
use super::mailbox::MailboxJob;
use super::message::Message;
use super::snapshot::{ForkRecord, SnapshotRecord};
use super::suspension::{Actor, SuspendTicket, ToolCallResume};
use super::tool::{FilePreview, ToolClass, ToolResult};

/// A conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadRecord {
    /// Its id.
    pub id: ThreadId,
    /// What it is called; empty until the first message.
    pub title: String,
    /// The folder it works in.
    pub cwd: PathBuf,
    /// Born.
    pub created_at: u64,
    /// Last changed.
    pub updated_at: u64,
}

/// A conversation in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadSummary {
    /// The conversation.
    #[serde(flatten)]
    pub thread: ThreadRecord,
    /// How many messages it has.
    pub messages: u64,
    /// How many questions wait.
    pub waiting: u64,
    /// The status of its latest run.
    pub status: Option<RunStatus>,
    /// Set when rows of it are missing or doubled; it cannot be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// What else a list shows.
    #[serde(flatten)]
    pub marks: ThreadMarks,
}

/// What a list shows of a conversation beside its title.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadMarks {
    /// It stands before all others.
    #[serde(default)]
    pub pinned: bool,
    /// The branch that was checked out in its folder when it last changed files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// It began as a copy of another one's beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<ForkRecord>,
    /// By going back it was left for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_for: Option<ThreadId>,
}

/// Who named a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedBy {
    /// Titled after its first message.
    FirstLine,
    /// A model.
    Model,
    /// A person: nobody else changes it.
    Person,
}

/// A message with its place in the thread; places count up from 1 without a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StoredMessage {
    /// The place.
    pub seq: u64,
    /// The run that wrote it.
    pub run_id: RunId,
    /// When.
    pub created_at: u64,
    /// The message.
    pub message: Message,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// The conversation.
    pub thread_id: ThreadId,
    /// The run it continues or serves.
    pub parent_run_id: Option<RunId>,
    /// What a client calls the request that it serves, so that its own records can be held against ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The agent.
    pub agent_id: String,
    /// The model's registered id.
    pub model: String,
    /// The projection of `machine`, for lists and queries.
    pub status: RunStatus,
    /// The run machine as JSON, with its own format number.
    pub machine: Value,
    /// Run-scoped persistent state by key.
    pub state: BTreeMap<String, Value>,
    /// Inferences so far.
    pub steps: u32,
    /// Tokens so far.
    pub usage: TokenUsage,
    /// Time spent awake so far, in milliseconds.
    pub active_ms: u64,
    /// Why it ended, when it did.
    pub termination: Option<TerminationReason>,
    /// Started.
    pub created_at: u64,
    /// Last changed.
    pub updated_at: u64,
}

impl RunRecord {
    /// A run that begins now.
    pub fn new(
        id: RunId,
        thread_id: ThreadId,
        agent_id: impl Into<String>,
        model: impl Into<String>,
        now_ms: u64,
    ) -> RunRecord {
        RunRecord {
            id,
            thread_id,
            parent_run_id: None,
            correlation_id: None,
            agent_id: agent_id.into(),
            model: model.into(),
            status: RunStatus::Running,
            machine: Value::Null,
            state: BTreeMap::new(),
            steps: 0,
            usage: TokenUsage::default(),
            active_ms: 0,
            termination: None,
            created_at: now_ms,
            updated_at: now_ms,
        }
    }
}

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuspensionStatus {
    /// Nobody has answered.
    Open,
    /// Answered, and the answer is not carried out yet.
    Decided,
    /// Answered and carried out.
    Applied,
    /// Closed without an answer: a new message came, or the run ended.
    Superseded,
    /// Its time ran out.
    Expired,
}

impl SuspensionRecord {
    /// What a client calls the request that its run serves.
    pub fn correlation_id(&self) -> Option<&str> {
        self.ticket.suspension.parameters.get("correlation_id")?.as_str()
    }
}

/// A question that waits, or waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuspensionRecord {
    /// The question's id.
    pub id: SuspensionId,
    /// The conversation.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// The question, its call, what an answer does.
    pub ticket: SuspendTicket,
    /// Where it stands.
    pub status: SuspensionStatus,
    /// Asked.
    pub created_at: u64,
    /// The answer.
    pub decision: Option<ToolCallResume>,
    /// Who answered.
    pub decided_by: Option<Actor>,
}

/// An answer that is to be written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The answer.
    pub resume: ToolCallResume,
    /// Who gives it.
    pub actor: Actor,
    /// The rule that is granted with it: stored in the same transaction, and only when the answer is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantRecord>,
}

impl Decision {
    /// An answer that grants no rule.
    pub fn new(resume: ToolCallResume, actor: Actor) -> Self {
        Self { resume, actor, grant: None }
    }
}

/// What became of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum DecideOutcome {
    /// It is stored.
    Accepted(Box<SuspensionRecord>),
    /// The same decision id was stored before: nothing changed.
    Repeated(Box<SuspensionRecord>),
    /// Somebody else was first.
    AlreadyDecided(Box<SuspensionRecord>),
    /// It was closed: superseded or the run is over.
    Closed(Box<SuspensionRecord>),
    /// Its time ran out.
    Expired(Box<SuspensionRecord>),
    /// There is no such question.
    NotFound,
}

/// Names one execution of one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// Counts from 1.
    pub attempt: u32,
}

/// Written before a tool starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntentRecord {
    /// Which execution.
    pub id: AttemptId,
    /// The conversation.
    pub thread_id: ThreadId,
    /// The tool.
    pub tool: String,
    /// The arguments that run.
    pub arguments: Value,
    /// SHA-256 over tool, canonical arguments and working directory, hex.
    pub hash: String,
    /// What a crash means.
    pub class: ToolClass,
    /// The files before and after, for verifiable tools.
    pub files: Vec<FilePreview>,
    /// The machine's boot.
    pub boot_id: String,
    /// The process that started it.
    pub pid: u32,
    /// Written.
    pub started_at: u64,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The tool returned.
    Returned,
    /// The process died and nobody knows.
    Unknown,
    /// It was cancelled.
    Cancelled,
}

/// Written after a tool ended, before the model reads the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    /// Which execution.
    pub id: AttemptId,
    /// How it ended.
    pub kind: OutcomeKind,
    /// What it was for the call.
    pub outcome: ToolCallOutcome,
    /// The result.
    pub result: ToolResult,
    /// Written.
    pub ended_at: u64,
}

/// An execution that was started and never recorded as ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenIntent {
    /// The intent.
    pub intent: IntentRecord,
    /// What it had printed.
    pub output: String,
}

/// Who may drive a thread: a process that is awake on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Unique for each start of a program.
    pub token: String,
    /// The machine's boot: a pid means nothing on another one.
    pub boot_id: String,
    /// The process.
    pub pid: u32,
    /// When that process started, in clock ticks since boot, so that a reused pid is not mistaken for it.
    pub pid_started: u64,
}

/// The right to write to a thread: every write of its driver carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The conversation.
    pub thread_id: ThreadId,
    /// Counts up with every change of owner; a write with an old one fails.
    pub epoch: u64,
    /// The owner.
    pub token: String,
}

/// Who drives a thread, and until when nobody else may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The owner.
    pub owner: Owner,
    /// Counts up with every change of owner.
    pub epoch: u64,
    /// The end, in milliseconds of the owner's boot's monotonic clock, unless it is renewed; `None` is as long as the
    /// owner's process lives.
    pub until: Option<u64>,
}

/// One transaction: what is true after a stage of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The right to write.
    pub fence: Fence,
    /// The run as it is now.
    pub run: RunRecord,
    /// New messages, in order.
    pub messages: Vec<Message>,
    /// Thread-scoped state by key, when it changed; replaces what was there.
    pub thread_state: Option<BTreeMap<String, Value>>,
    /// New questions.
    pub opened: Vec<SuspensionRecord>,
    /// Questions that are over, and how.
    pub closed: Vec<(SuspensionId, SuspensionStatus)>,
    /// Executions that ended.
    pub outcomes: Vec<OutcomeRecord>,
    /// Calls that met the rules, for the audit.
    pub judged: Vec<JudgedCall>,
    /// Commands that hooks ran, for the audit.
    pub commands: Vec<HookRan>,
    /// The job that this run begins with.
    pub takes: Option<JobClaim>,
}

impl Checkpoint {
    /// One that says nothing but how the run is now.
    pub fn new(fence: Fence, run: RunRecord) -> Checkpoint {
        Checkpoint {
            fence,
            run,
            messages: Vec::new(),
            thread_state: None,
            opened: Vec::new(),
            closed: Vec::new(),
            outcomes: Vec::new(),
            judged: Vec::new(),
            commands: Vec::new(),
            takes: None,
        }
    }
}

/// One transaction: a tool is about to start.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionStart {
    /// The right to write.
    pub fence: Fence,
    /// The run as it is now, the call Running in it.
    pub run: RunRecord,
    /// The intent. The same attempt twice is refused.
    pub intent: IntentRecord,
    /// The decision that is spent, which must be stored, say resume, and be unspent.
    pub spends: Option<(SuspensionId, DecisionId)>,
    /// Calls that met the rules, for the audit.
    pub judged: Vec<JudgedCall>,
    /// Commands that hooks ran, for the audit.
    pub commands: Vec<HookRan>,
    /// The files as they are before the call, when it is the first of its step that may change some.
    pub snapshot: Option<SnapshotRecord>,
}

/// The number of a job of the mailbox, unique in the store.
pub type QueueId = u64;

/// The job that a run begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobClaim {
    /// Its number.
    pub id: QueueId,
    /// The token of a worker's claim, which keeps the job until the run is over. Without one the job must be queued, and
    /// leaves the queue for good.
    pub claim: Option<String>,
}

/// A message that begins a run of its own when its thread is free: a job of the mailbox, as a front end sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Its number.
    pub id: QueueId,
    /// The job's id.
    pub job_id: JobId,
    /// The conversation.
    pub thread_id: ThreadId,
    /// Who is to answer; `None` is whoever answers where it begins.
    pub agent_id: Option<String>,
    /// Said, in Unix milliseconds.
    pub created_at: u64,
    /// It does not begin before this time.
    pub available_at: u64,
    /// What was said.
    pub messages: Vec<Message>,
    /// A worker began it and its run failed: it is a worker's to try again.
    pub failed: Option<FailedTry>,
    /// What a client calls it.
    pub correlation_id: Option<String>,
}

impl From<MailboxJob> for QueuedMessage {
    fn from(job: MailboxJob) -> Self {
        let failed = job.run_id.is_some().then(|| FailedTry {
            attempts: job.attempt_count,
            max_attempts: job.max_attempts,
            error: job.last_error.clone().unwrap_or_default(),
        });
        Self {
            correlation_id: job.correlation_id().map(str::to_owned),
            id: job.sequence,
            job_id: job.job_id,
            thread_id: job.mailbox_id,
            agent_id: (!job.agent_id.is_empty()).then_some(job.agent_id),
            created_at: job.created_at,
            available_at: job.available_at,
            messages: job.messages,
            failed,
        }
    }
}

impl QueuedMessage {
    /// Whether a front end may begin it now.
    pub fn begins(&self, now: u64) -> bool {
        self.failed.is_none() && self.available_at <= now
    }

    /// Whether a run that is awake may take it in between two steps.
    pub fn steers(&self) -> bool {
        self.messages.iter().any(Message::steers)
    }

    /// Whether it reports that a background command ended. A run reads such messages before it asks the model.
    pub fn reports_command(&self) -> bool {
        self.messages.iter().any(Message::reports_command)
    }

    /// What was said, with a mark in the place of each long paste; `None`: it holds none.
    pub fn shown(&self) -> Option<String> {
        self.messages.iter().any(|message| message.shown().is_some()).then(|| {
            let shown = |message: &Message| message.shown().map_or_else(|| message.written(), str::to_owned);
            let shown = self.messages.iter().map(shown).filter(|text| !text.is_empty());
            shown.collect::<Vec<_>>().join("\n\n")
        })
    }
}

/// How the last try of a job failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTry {
    /// How many failed.
    pub attempts: u32,
    /// How many may.
    pub max_attempts: u32,
    /// Why the last one did.
    pub error: String,
}

/// A question that waits, as a row of the inbox: over all threads, without what only its card needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxRow {
    /// The question's id: what `aye approve` takes.
    pub id: SuspensionId,
    /// The conversation.
    pub thread_id: ThreadId,
    /// What it is called; for a child's question, what the conversation at the top is called.
    pub thread_title: String,
    /// The folder it works in.
    pub cwd: PathBuf,
    /// The run.
    pub run_id: RunId,
    /// The run it serves, for a child's question.
    pub parent_run_id: Option<RunId>,
    /// The call.
    pub call_id: CallId,
    /// The kind of answer wanted, such as `tool:PermissionConfirm`.
    pub action: String,
    /// The tool.
    pub tool: String,
    /// What the call is about, on one line, with nothing in it that a terminal obeys.
    pub summary: String,
    /// Why it asks.
    pub why: String,
    /// What the call can do; absent for questions that no rule asked.
    pub risk: Option<Risk>,
    /// Asked, in Unix milliseconds.
    pub created_at: u64,
    /// When it ends unanswered.
    pub expires_at: Option<u64>,
    /// Whose question it is, when an agent asks that another one set to work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<InboxChild>,
}

/// A child that asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxChild {
    /// The agent.
    pub agent: String,
    /// The conversation at the top.
    pub root: ThreadId,
}

/// How far a grant reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", content = "id", rename_all = "snake_case")]
pub enum GrantScope {
    /// One run.
    Run(RunId),
    /// One conversation.
    Thread(ThreadId),
    /// One project: the real path of its root.
    Project(PathBuf),
    /// Everywhere.
    Everywhere,
}

impl GrantScope {
    /// How far it reaches, behind "for", where it does reach.
    pub fn words(&self) -> &'static str {
        match self {
            GrantScope::Run(_) => "this run",
            GrantScope::Thread(_) => "this conversation",
            GrantScope::Project(_) => "this project",
            GrantScope::Everywhere => "all projects",
        }
    }
}

impl std::fmt::Display for GrantScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GrantScope::Run(id) => write!(f, "run {id}"),
            GrantScope::Thread(id) => write!(f, "conversation {id}"),
            GrantScope::Project(path) => write!(f, "project {}", path.display()),
            GrantScope::Everywhere => f.write_str("all projects"),
        }
    }
}

/// An allow rule that a person gave at a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrantRecord {
    /// Its id.
    pub id: String,
    /// The pattern, as it was shown.
    pub pattern: String,
    /// What the kernel keeps a command to that it allows, when that is not the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Profile>,
    /// How far it reaches.
    pub scope: GrantScope,
    /// Given.
    pub created_at: u64,
    /// Over at, when it ends by itself.
    pub expires_at: Option<u64>,
    /// How many calls it may allow in all; `None` is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u64>,
    /// How many calls it has allowed; the store counts.
    #[serde(default)]
    pub uses: u64,
    /// Taken back.
    pub revoked_at: Option<u64>,
    /// The question it was given at.
    pub suspension_id: Option<SuspensionId>,
    /// Who gave it.
    pub actor: Actor,
}
