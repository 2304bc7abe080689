//! Child runs: runs that serve a call of another run.

use serde::{Deserialize, Serialize};

use super::ids::{CallId, RunId, ThreadId};
use super::inference::{ModelUsage, TokenUsage};
use super::lifecycle::{RunStatus, TerminationReason};
use super::message::Message;
use super::record::RunRecord;

/// The activity type of [`ChildRunState`]; its message id is the id of the call that the child serves.
pub const CHILD_RUN_ACTIVITY_TYPE: &str = "child-run";

/// A thread that another one's call began, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRecord {
    /// The child's own conversation.
    pub thread_id: ThreadId,
    /// The conversation of the call.
    pub parent_thread: ThreadId,
    /// The conversation at the top, which a person talks in.
    pub root_thread: ThreadId,
    /// The run of the call.
    pub parent_run: RunId,
    /// The call.
    pub parent_call: CallId,
    /// The agent that works.
    pub agent: String,
    /// What it is to do.
    pub prompt: String,
    /// The model of an agent that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many runs stand above it.
    pub depth: u32,
    /// Its call does not wait for it.
    pub background: bool,
    /// The end of one in the background was put to the parent.
    #[serde(default)]
    pub told: bool,
    /// Begun, in Unix milliseconds.
    pub created_at: u64,
    /// Somebody wants it to end.
    #[serde(default)]
    pub stop: bool,
}

impl ChildRecord {
    /// The part of its id that tells it apart from the other children of its parent: what `/tasks` shows.
    pub fn task_id(&self) -> &str {
        let own = self.thread_id.as_str().strip_prefix(self.parent_thread.as_str());
        own.map_or(self.thread_id.as_str(), |own| own.trim_start_matches('.'))
    }
}

/// Where a child stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildStatus {
    /// It works, or will as soon as its parent is awake.
    #[default]
    Running,
    /// It waits for a person.
    Waiting,
    /// It did what it should, as far as one can tell.
    Completed,
    /// It failed.
    Failed,
    /// It was stopped.
    Cancelled,
    /// It took longer than it may.
    Timeout,
}

impl ChildStatus {
    /// How a run that ended so is called.
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

    /// Whether nothing more comes.
    pub fn is_over(self) -> bool {
        match self {
            Self::Running | Self::Waiting => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout => true,
        }
    }

    /// The word for people and for the model.
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

/// How many runs may stand above a child when nobody says otherwise.
pub const DELEGATION_DEPTH: u32 = 3;

/// What a child does, as its parent's events and results tell it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildRunState {
    /// The agent that works.
    pub agent: String,
    /// The child's own conversation.
    pub thread_id: String,
    /// The call of the parent that it serves.
    pub parent_call_id: String,
    /// Where it stands.
    pub status: ChildStatus,
    /// Inferences so far.
    #[serde(default)]
    pub steps: u32,
    /// Tokens so far.
    #[serde(default)]
    pub tokens: u64,
    /// What each model used for it, those of the children below it too; known at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<ModelUsage>,
    /// The call that it makes now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The last line that it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// How many questions of it and of the children below it came up while this was told: one that rises means that a
    /// person is asked something new.
    #[serde(default)]
    pub questions: u32,
}

impl ChildRunState {
    /// What the child behind a tool result used; empty for every other message.
    pub fn spent_below(message: &Message) -> Vec<ModelUsage> {
        let told =
            message.metadata.as_ref().and_then(|about| about.pointer("/tool_result/details/child/spent"));
        told.and_then(|spent| Vec::deserialize(spent).ok()).unwrap_or_default()
    }
}

/// A child as it stands in one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The child.
    #[serde(flatten)]
    pub child: ChildRecord,
    /// Its run, once it began.
    pub run: Option<TaskRun>,
    /// How many questions of it wait for a person, those of the children below it too.
    pub waiting: u64,
}

/// What of a child's run is of interest to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRun {
    /// The run.
    pub run_id: RunId,
    /// Where it stands by its row.
    pub status: RunStatus,
    /// Inferences.
    pub steps: u32,
    /// Tokens.
    pub usage: TokenUsage,
    /// Time spent awake, in milliseconds.
    pub active_ms: u64,
    /// Why it ended, when it did.
    pub termination: Option<TerminationReason>,
    /// Begun.
    pub created_at: u64,
    /// Last changed.
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
    /// Where it stands.
    pub fn status(&self) -> ChildStatus {
        let Some(run) = &self.run else { return ChildStatus::Running };
        match &run.termination {
            Some(termination) if run.status == RunStatus::Done => ChildStatus::of_end(termination),
            Some(_) | None if self.waiting > 0 => ChildStatus::Waiting,
            Some(_) | None => ChildStatus::Running,
        }
    }

    /// As its parent's events would tell it.
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
