//! Rows of the store as types. Times are Unix milliseconds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file_preview::FilePreview;
use super::hook::HookRan;
use super::ids::{CallId, DecisionId, JobId, RunId, SuspensionId, ThreadId};
use super::inference::{ModelUsage, TokenUsage};
use super::judgement::{JudgedCall, Profile, Risk};
use super::lifecycle::{RunStatus, TerminationReason, ToolCallOutcome};
use super::mailbox::MailboxJob;
use super::message::Message;
use super::prefix::PrefixRecord;
use super::presence::Liveness;
use super::question::subject;
use super::snapshot::{ForkRecord, SnapshotRecord};
use super::suspension::{
    ACTION_PERMISSION, Actor, CHANNEL_REMOTE, ResumeDecisionAction, SuspendTicket, ToolCallResume,
};
use super::tool_descriptor::ToolClass;
use super::tool_result::ToolResult;

/// A conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadRecord {
    /// Its id.
    pub id: ThreadId,
    /// The title; empty until the first message.
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
    /// The number of messages.
    pub messages: u64,
    /// The number of pending questions.
    pub waiting: u64,
    /// The status of its latest run.
    pub status: Option<RunStatus>,
    /// Set when rows of it are missing or doubled; it cannot be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// The other data for lists.
    #[serde(flatten)]
    pub marks: ThreadMarks,
}

/// The data of a conversation that lists show beside the title.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadMarks {
    /// Whether the conversation comes before all others.
    #[serde(default)]
    pub pinned: bool,
    /// The branch that was checked out in its folder when it last changed files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The origin of the conversation, if it was forked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<ForkRecord>,
    /// By going back it was left for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_for: Option<ThreadId>,
}

/// The author of a conversation's title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedBy {
    /// Titled after its first message.
    FirstLine,
    Model,
    /// A user; the title is not changed automatically.
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    pub id: RunId,
    pub thread_id: ThreadId,
    /// The run it continues or serves.
    pub parent_run_id: Option<RunId>,
    /// The client's id for the request that the run serves, so that the client can match its records to
    /// these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
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
    /// The same by model: the ledger of every request that the run is charged for. Besides its own answers, these are
    /// summaries and titles of its conversation, and what its subagents used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<ModelUsage>,
    /// The time spent active so far, in milliseconds.
    pub active_ms: u64,
    /// Why it ended, when it did.
    pub termination: Option<TerminationReason>,
    pub created_at: u64,
    pub updated_at: u64,
}

impl RunRecord {
    /// Returns a run that starts now.
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
            spent: Vec::new(),
            active_ms: 0,
            termination: None,
            created_at: now_ms,
            updated_at: now_ms,
        }
    }
}

/// The status of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuspensionStatus {
    /// Not answered yet.
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
    /// Returns the client's id for the request that the question's run serves.
    pub fn correlation_id(&self) -> Option<&str> {
        self.ticket.suspension.correlation_id()
    }

    /// Returns how the question was answered and by whom, for users, such as `approved by lena (cli)`; `None` without
    /// an answer.
    pub fn answered(&self) -> Option<String> {
        let word = match self.decision.as_ref()?.action {
            ResumeDecisionAction::Cancel => "denied",
            ResumeDecisionAction::Resume if self.ticket.suspension.action == ACTION_PERMISSION => "approved",
            ResumeDecisionAction::Resume => "answered",
        };
        Some(match &self.decided_by {
            Some(by) if by.channel == CHANNEL_REMOTE => format!("answered on the side of {}", by.user),
            Some(by) => format!("{word} by {}", by.shown()),
            None => word.to_owned(),
        })
    }
}

/// A question that waits, or waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuspensionRecord {
    pub id: SuspensionId,
    pub thread_id: ThreadId,
    pub run_id: RunId,
    pub call_id: CallId,
    /// The question, its call, what an answer does.
    pub ticket: SuspendTicket,
    /// The status of the question.
    pub status: SuspensionStatus,
    pub created_at: u64,
    pub decision: Option<ToolCallResume>,
    /// The actor who answered.
    pub decided_by: Option<Actor>,
}

/// An answer to be stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub resume: ToolCallResume,
    /// The actor who answers.
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

/// The result of storing an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum DecideOutcome {
    Accepted(Box<SuspensionRecord>),
    /// The same decision id was stored before: nothing changed.
    Repeated(Box<SuspensionRecord>),
    /// Another answer was stored first.
    AlreadyDecided(Box<SuspensionRecord>),
    /// It was closed: superseded or the run is over.
    Closed(Box<SuspensionRecord>),
    /// Its time ran out.
    Expired(Box<SuspensionRecord>),
    /// The question does not exist.
    NotFound,
}

/// Names one execution of one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    pub run_id: RunId,
    pub call_id: CallId,
    /// Counts from 1.
    pub attempt: u32,
}

/// Written before a tool starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntentRecord {
    /// The id of the execution.
    pub id: AttemptId,
    pub thread_id: ThreadId,
    pub tool: String,
    /// The arguments that run.
    pub arguments: Value,
    /// SHA-256 over tool, canonical arguments and working directory, hex.
    pub hash: String,
    /// The class of the tool, which decides what a crash means.
    pub class: ToolClass,
    /// The files before and after, for verifiable tools.
    pub files: Vec<FilePreview>,
    /// The machine's boot.
    pub boot_id: String,
    /// The process that started it.
    pub pid: u32,
    /// The same process with what tells it from others; rows of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Written.
    pub started_at: u64,
}

/// The end of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    Returned,
    /// The process died, so the outcome is unknown.
    Unknown,
    Cancelled,
}

/// Written after a tool ended, before the model reads the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    /// The id of the execution.
    pub id: AttemptId,
    /// The end of the execution.
    pub kind: OutcomeKind,
    /// The outcome of the call.
    pub outcome: ToolCallOutcome,
    pub result: ToolResult,
    /// Written.
    pub ended_at: u64,
}

/// An execution that was started and never recorded as ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenIntent {
    pub intent: IntentRecord,
    /// The output up to then.
    pub output: String,
}

/// The process that is active on a thread and may drive it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Unique for each start of a program.
    pub token: String,
    /// The machine's boot: a pid means nothing on another one.
    pub boot_id: String,
    pub pid: u32,
    /// When that process started, in clock ticks since boot, so that a reused pid is not mistaken for it.
    pub pid_started: u64,
    /// The pid namespace in which `pid` counts; 0 if unknown.
    #[serde(default)]
    pub pid_namespace: u64,
    /// The machine, if the owner's [`Presence`](super::presence::Presence) was announced there; empty if it was not: then
    /// nobody can tell whether it is alive.
    #[serde(default)]
    pub machine: String,
    /// The machine's name, for people.
    #[serde(default)]
    pub host: String,
}

impl Owner {
    /// Returns this process as an owner that is not announced yet.
    pub fn of_this_process() -> Owner {
        let this = aye_platform::Process::this();
        Owner {
            token: uuid::Uuid::now_v7().to_string(),
            boot_id: this.boot_id,
            pid: this.pid,
            pid_started: this.started,
            pid_namespace: this.pid_namespace,
            machine: String::new(),
            host: aye_platform::hostname(),
        }
    }

    /// Whether both processes started in one boot of one machine, and so have one clock. Where a system does not tell,
    /// they do.
    pub fn shares_boot(&self, other: &Owner) -> bool {
        self.boot_id.is_empty() || other.boot_id.is_empty() || self.boot_id == other.boot_id
    }

    /// Whether a pid means the same process to both, so that one may signal the other.
    pub fn shares_pids(&self, other: &Owner) -> bool {
        self.shares_boot(other) && self.pid_namespace != 0 && self.pid_namespace == other.pid_namespace
    }

    /// Returns the process for people who use `here`: `process 7`, or `process 7 on HOST` where the pid means nothing.
    pub fn name_for(&self, here: &Owner) -> String {
        if self.host.is_empty() || self.shares_pids(here) {
            return format!("process {}", self.pid);
        }
        format!("process {} on {}", self.pid, self.host)
    }
}

/// The right to write to a thread: every write of its driver carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub thread_id: ThreadId,
    /// Counts up with every change of owner; a write with an old one fails.
    pub epoch: u64,
    pub token: String,
}

/// The owner of a thread, and how long no other process may drive the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    pub owner: Owner,
    /// Counts up with every change of owner.
    pub epoch: u64,
    /// What was left when it was read, unless it is renewed; `None` is as long as the owner's process lives.
    pub left: Option<Duration>,
}

impl LeaseRecord {
    /// Whether the lease kept others out of its thread when it was read: its owner is not known to be dead, and its time is
    /// not over. A lease without an end holds only while its owner is known to be alive.
    pub fn holds(&self, owner: Liveness) -> bool {
        match owner {
            Liveness::Yes => self.left.is_none_or(|left| !left.is_zero()),
            Liveness::Unknown => self.left.is_some_and(|left| !left.is_zero()),
            Liveness::No => false,
        }
    }

    /// Whether the process that took the lease may still use its thread: also one that lives but did not renew it.
    pub fn is_in_use(&self, owner: Liveness) -> bool {
        owner == Liveness::Yes || self.holds(owner)
    }

    /// Returns whether both are one lease: a renewed lease is the same one.
    pub fn is_same(&self, other: &LeaseRecord) -> bool {
        self.epoch == other.epoch && self.owner.token == other.owner.token
    }
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
    /// The start of the conversation's requests, when it was frozen anew.
    pub prefix: Option<PrefixRecord>,
    /// New questions.
    pub opened: Vec<SuspensionRecord>,
    /// Questions that are over, and how.
    pub closed: Vec<(SuspensionId, SuspensionStatus)>,
    pub outcomes: Vec<OutcomeRecord>,
    /// Calls that met the rules, for the audit.
    pub judged: Vec<JudgedCall>,
    /// Commands that hooks ran, for the audit.
    pub commands: Vec<HookRan>,
    /// The job that the run starts with.
    pub takes: Option<JobClaim>,
    /// Whether the lease is released with it: nothing else is written under it.
    pub releases: bool,
}

impl Checkpoint {
    /// One that says nothing but how the run is now.
    pub fn new(fence: Fence, run: RunRecord) -> Checkpoint {
        Checkpoint {
            fence,
            run,
            messages: Vec::new(),
            thread_state: None,
            prefix: None,
            opened: Vec::new(),
            closed: Vec::new(),
            outcomes: Vec::new(),
            judged: Vec::new(),
            commands: Vec::new(),
            takes: None,
            releases: false,
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

/// The job that a run starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobClaim {
    pub id: QueueId,
    /// The token of a worker's claim, which keeps the job until the run is over. Without one the job must be queued, and
    /// leaves the queue for good.
    pub claim: Option<String>,
}

/// A message that starts a run of its own when its thread is free: a job of the mailbox, as a front end sees
/// it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    pub id: QueueId,
    pub job_id: JobId,
    pub thread_id: ThreadId,
    /// The agent that should answer; `None` is the one that answers where the message starts.
    pub agent_id: Option<String>,
    /// Said, in Unix milliseconds.
    pub created_at: u64,
    /// The earliest start time.
    pub available_at: u64,
    pub messages: Vec<Message>,
    /// The failure of a run that a worker started: only a worker may retry the message.
    pub failed: Option<FailedTry>,
    /// The client's id for the message.
    pub correlation_id: Option<String>,
    /// The id of the run that starts with it, if the sender chose one.
    pub run_id: Option<RunId>,
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
            run_id: job.wanted_run_id(),
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
    /// Returns whether a front end may start the message now.
    pub fn begins(&self, now: u64) -> bool {
        self.failed.is_none() && self.available_at <= now
    }

    /// Returns whether an active run may take in the message between two steps.
    pub fn steers(&self) -> bool {
        self.messages.iter().any(Message::steers)
    }

    /// Returns whether the message reports the end of a background command. A run reads such messages before
    /// it asks the model.
    pub fn reports_command(&self) -> bool {
        self.messages.iter().any(Message::reports_command)
    }

    /// Returns whether the message reports the end of a background task, a command or a subagent.
    pub fn reports_task(&self) -> bool {
        self.messages.iter().any(Message::reports_task)
    }

    /// Returns the text with a mark in place of each long paste; `None` if there are no long pastes.
    pub fn shown(&self) -> Option<String> {
        self.messages.iter().any(|message| message.shown().is_some()).then(|| {
            let shown = |message: &Message| message.shown().map_or_else(|| message.written(), str::to_owned);
            let shown = self.messages.iter().map(shown).filter(|text| !text.is_empty());
            shown.collect::<Vec<_>>().join("\n\n")
        })
    }
}

/// The failure of a job's last attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTry {
    /// The number of failed attempts.
    pub attempts: u32,
    /// The maximum number of attempts.
    pub max_attempts: u32,
    /// Why the last one did.
    pub error: String,
}

/// A question that waits, as a row of the inbox: over all threads, without what only its card needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxRow {
    /// The question's id: what `aye approve` takes.
    pub id: SuspensionId,
    pub thread_id: ThreadId,
    /// The title of the conversation; for a child's question, the title of the conversation at the top.
    pub thread_title: String,
    /// The folder it works in.
    pub cwd: PathBuf,
    pub run_id: RunId,
    /// The run it serves, for a child's question.
    pub parent_run_id: Option<RunId>,
    pub call_id: CallId,
    /// The kind of answer expected, such as `tool:PermissionConfirm`.
    pub action: String,
    pub tool: String,
    /// The subject of the call, on one line and without terminal control sequences.
    pub summary: String,
    pub why: String,
    /// The risk of the call; absent for questions that no rule asked.
    pub risk: Option<Risk>,
    /// Asked, in Unix milliseconds.
    pub created_at: u64,
    /// When it ends unanswered.
    pub expires_at: Option<u64>,
    /// The child that asks the question, if a subagent asks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<InboxChild>,
}

impl InboxRow {
    /// Returns what it is about, in words and on one line.
    pub fn subject(&self) -> String {
        subject(&self.action, &self.tool, &self.summary)
    }
}

/// A child that asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxChild {
    pub agent: String,
    /// The conversation at the top.
    pub root: ThreadId,
}

/// The scope of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", content = "id", rename_all = "snake_case")]
pub enum GrantScope {
    Run(RunId),
    Thread(ThreadId),
    /// One project: the real path of its root.
    Project(PathBuf),
    Everywhere,
}

impl GrantScope {
    /// Returns the scope in words, as it reads after "for", while the grant applies there.
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

/// An allow rule that a user granted at a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrantRecord {
    pub id: String,
    /// The pattern, as it was shown.
    pub pattern: String,
    /// The profile that the kernel enforces on a command that the grant allows, if it is not the workspace
    /// profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Profile>,
    /// The scope of the grant.
    pub scope: GrantScope,
    pub created_at: u64,
    /// The time when the grant expires, if it does.
    pub expires_at: Option<u64>,
    /// The maximum number of calls; `None` is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u64>,
    /// The number of calls that the grant has allowed, counted by the store.
    #[serde(default)]
    pub uses: u64,
    /// The time when the grant was revoked.
    pub revoked_at: Option<u64>,
    /// The question it was given at.
    pub suspension_id: Option<SuspensionId>,
    /// The actor who made the grant.
    pub actor: Actor,
}
