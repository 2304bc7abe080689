//! Child runs: runs that serve a call of another run.

use serde::{Deserialize, Serialize};

use super::ids::{CallId, RunId, ThreadId};
use super::inference::{ModelUsage, TokenUsage};
use super::lifecycle::{RunStatus, TerminationReason};
use super::message::Message;
use super::record::RunRecord;

/// The activity type of [`ChildRunState`]; its message id is the id of the call that the child serves.
pub const CHILD_RUN_ACTIVITY_TYPE: &str = "child-run";

/// A thread started by a call of another thread, and its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRecord {
    /// The child's own conversation.
    pub thread_id: ThreadId,
    /// The conversation of the call.
    pub parent_thread: ThreadId,
    /// The conversation at the top, which belongs to the user.
    pub root_thread: ThreadId,
    /// The run of the call.
    pub parent_run: RunId,
    pub parent_call: CallId,
    /// The agent that works.
    pub agent: String,
    /// The task of the child.
    pub prompt: String,
    /// The model of an agent that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The number of runs above the child.
    pub depth: u32,
    /// Its call does not wait for it.
    pub background: bool,
    /// The end of one in the background was put to the parent.
    #[serde(default)]
    pub told: bool,
    /// The start time, in Unix milliseconds.
    pub created_at: u64,
    /// Whether a stop was requested.
    #[serde(default)]
    pub stop: bool,
}

impl ChildRecord {
    /// Returns the part of the thread id that distinguishes this child from its parent's other children, as
    /// shown by `/tasks`.
    pub fn task_id(&self) -> &str {
        let own = self.thread_id.as_str().strip_prefix(self.parent_thread.as_str());
        own.map_or(self.thread_id.as_str(), |own| own.trim_start_matches('.'))
    }
}

/// The status of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildStatus {
    /// The child works, or will once its parent is active.
    #[default]
    Running,
    /// The child waits for the user.
    Waiting,
    /// The child did its task, as far as its run shows.
    Completed,
    Failed,
    Cancelled,
    /// It took longer than it may.
    Timeout,
}

impl ChildStatus {
    /// Returns the status for the end of a run.
    pub fn of_end(termination: &TerminationReason) -> Self {
        match termination {
            TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested => Self::Completed,
            TerminationReason::Suspended => Self::Waiting,
            TerminationReason::Cancelled => Self::Cancelled,
            TerminationReason::Stopped(why) if why.code == "timeout" => Self::Timeout,
            TerminationReason::Stopped(_) | TerminationReason::Blocked(_) | TerminationReason::Error(_) => {
                Self::Failed
            }
        }
    }

    /// Returns whether the status is final.
    pub fn is_over(self) -> bool {
        match self {
            Self::Running | Self::Waiting => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout => true,
        }
    }

    /// Returns the word for users and for the model.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }
}

/// The default limit of runs above a child.
pub const DELEGATION_DEPTH: u32 = 3;

/// The state of a child, as reported by its parent's events and results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildRunState {
    /// The agent that works.
    pub agent: String,
    /// The child's own conversation.
    pub thread_id: String,
    /// The call of the parent that it serves.
    pub parent_call_id: String,
    /// The status of the child.
    pub status: ChildStatus,
    /// Inferences so far.
    #[serde(default)]
    pub steps: u32,
    /// Tokens so far.
    #[serde(default)]
    pub tokens: u64,
    /// The usage of each model by the child and the children below it; known at the child's end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<ModelUsage>,
    /// The call that it makes now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The last line that it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The number of questions that this child and the children below it have asked while being reported: if
    /// it rises, the user is asked something new.
    #[serde(default)]
    pub questions: u32,
}

impl ChildRunState {
    /// Returns the usage of the child behind a tool result; empty for every other message.
    pub fn spent_below(message: &Message) -> Vec<ModelUsage> {
        usage_at(message, "/tool_result/details/child/spent")
    }

    /// Returns the usage of the background child whose end a message reports; empty for every other message.
    pub fn spent_in_background(message: &Message) -> Vec<ModelUsage> {
        usage_at(message, "/from_child/spent")
    }
}

fn usage_at(message: &Message, pointer: &str) -> Vec<ModelUsage> {
    let spent = message.metadata.as_ref().and_then(|about| about.pointer(pointer));
    spent.and_then(|spent| Vec::deserialize(spent).ok()).unwrap_or_default()
}

/// A snapshot of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    #[serde(flatten)]
    pub child: ChildRecord,
    /// The run of the child, once started.
    pub run: Option<TaskRun>,
    /// The number of pending questions of the child and of the children below it.
    pub waiting: u64,
}

/// The parts of a child's run that others need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRun {
    pub run_id: RunId,
    /// The status in the run's row.
    pub status: RunStatus,
    /// Inferences.
    pub steps: u32,
    /// Tokens.
    pub usage: TokenUsage,
    /// The time spent active, in milliseconds.
    pub active_ms: u64,
    /// Why it ended, when it did.
    pub termination: Option<TerminationReason>,
    pub created_at: u64,
    pub updated_at: u64,
}

impl From<RunRecord> for TaskRun {
    fn from(run: RunRecord) -> Self {
        Self {
            run_id: run.id,
            status: run.status,
            steps: run.steps,
            usage: run.usage,
            active_ms: run.active_ms,
            termination: run.termination,
            created_at: run.created_at,
            updated_at: run.updated_at,
        }
    }
}

impl TaskRecord {
    /// Returns the status of the child.
    pub fn status(&self) -> ChildStatus {
        let Some(run) = &self.run else { return ChildStatus::Running };
        match &run.termination {
            Some(termination) if run.status == RunStatus::Done => ChildStatus::of_end(termination),
            Some(_) | None if self.waiting > 0 => ChildStatus::Waiting,
            Some(_) | None => ChildStatus::Running,
        }
    }

    /// Returns the state as the parent's events would report it.
    pub fn state(&self) -> ChildRunState {
        ChildRunState {
            agent: self.child.agent.clone(),
            thread_id: self.child.thread_id.to_string(),
            parent_call_id: self.child.parent_call.to_string(),
            status: self.status(),
            steps: self.run.as_ref().map_or(0, |run| run.steps),
            tokens: self.run.as_ref().map_or(0, |run| run.usage.total()),
            spent: Vec::new(),
            tool: None,
            line: None,
            questions: 0,
        }
    }
}
