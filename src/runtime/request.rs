//! What a run is asked for, and what comes of it.

use serde_json::Value;

use crate::contract::ids::{RunId, SuspensionId, ThreadId};
use crate::contract::inference::{InferenceOverride, TokenUsage};
use crate::contract::lifecycle::TerminationReason;
use crate::contract::message::Message;
use crate::contract::record::SuspensionRecord;
use crate::contract::suspension::ToolCallResume;
use crate::state::StateError;
use crate::store::StoreError;

/// Asks for a run over a thread, which is made when there is none.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The conversation.
    pub thread_id: ThreadId,
    /// What is said.
    pub messages: Vec<Message>,
    /// Who answers; the first registered agent when `None`.
    pub agent_id: Option<String>,
    /// Changed parameters for the whole run.
    pub overrides: InferenceOverride,
    /// The run this one continues or serves.
    pub parent_run_id: Option<RunId>,
}

impl RunRequest {
    /// Says something in a conversation.
    pub fn new(thread_id: impl Into<ThreadId>, messages: Vec<Message>) -> Self {
        Self {
            thread_id: thread_id.into(),
            messages,
            agent_id: None,
            overrides: InferenceOverride::default(),
            parent_run_id: None,
        }
    }

    /// Says who answers.
    #[must_use]
    pub fn with_agent_id(mut self, agent_id: impl Into<String>) -> Self {
        self.agent_id = Some(agent_id.into());
        self
    }

    /// Changes parameters for the whole run.
    #[must_use]
    pub fn with_overrides(mut self, overrides: InferenceOverride) -> Self {
        self.overrides = overrides;
        self
    }
}

/// How a run came out.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRunResult {
    /// The conversation.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
    /// The text of the last assistant message.
    pub response: String,
    /// Why it ended, or that it waits.
    pub termination: TerminationReason,
    /// A short name of the failure, when it failed: `rate_limited`, `network`, ...
    pub error_code: Option<String>,
    /// Inferences.
    pub steps: u32,
    /// Tokens.
    pub usage: TokenUsage,
    /// The questions that wait.
    pub waiting: Vec<SuspensionRecord>,
}

/// Why a run could not be started, or could not go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RuntimeError {
    /// The state engine refused.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another process is awake on the thread.
    #[error("thread {thread_id} is being worked on by process {pid}")]
    ThreadAlreadyRunning {
        /// The conversation.
        thread_id: ThreadId,
        /// That process.
        pid: u32,
    },
    /// No such agent.
    #[error("there is no agent `{agent_id}`")]
    AgentNotFound {
        /// The agent.
        agent_id: String,
    },
    /// The agent cannot run.
    #[error("{message}")]
    ResolveFailed {
        /// Why.
        message: String,
    },
    /// The thread has no unfinished run.
    #[error("thread {thread_id} has nothing to go on with")]
    NothingToResume {
        /// The conversation.
        thread_id: ThreadId,
    },
    /// The stored run cannot be read.
    #[error("run {run_id} cannot be resumed: {message}")]
    Damaged {
        /// The run.
        run_id: RunId,
        /// Why.
        message: String,
    },
    /// The store failed; what was not written did not happen.
    #[error("{0}")]
    Store(String),
    /// Another owner took the thread over; this one must not write any more.
    #[error("thread {thread_id} was taken over by another process")]
    Fenced {
        /// The conversation.
        thread_id: ThreadId,
    },
    /// A fault of ours: the machine refused a fact.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<StoreError> for RuntimeError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced { thread } => Self::Fenced { thread_id: thread },
            other => Self::Store(other.to_string()),
        }
    }
}

/// Why an answer was not written.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// The payload is not what the question asks for.
    #[error("the answer to {id} does not fit: {message}")]
    Schema {
        /// The question.
        id: SuspensionId,
        /// What is wrong, with its place.
        message: String,
    },
    /// The store failed.
    #[error("{0}")]
    Store(#[source] StoreError),
}

/// Looks at a payload against the schema of its question.
///
/// # Errors
/// [`DecideError::Schema`].
pub fn check_payload(suspension: &SuspensionRecord, resume: &ToolCallResume) -> Result<(), DecideError> {
    let Some(schema) = &suspension.ticket.suspension.response_schema else { return Ok(()) };
    if resume.result == Value::Null && accepts_null(schema) {
        return Ok(());
    }
    let fail = |message: String| DecideError::Schema { id: suspension.id.clone(), message };
    let validator =
        jsonschema::validator_for(schema).map_err(|e| fail(format!("the schema is broken: {e}")))?;
    match validator.iter_errors(&resume.result).next() {
        None => Ok(()),
        Some(error) => {
            let path = error.instance_path().to_string();
            let place = if path.is_empty() { "the payload".to_owned() } else { format!("`{path}`") };
            Err(fail(format!("{place}: {error}")))
        }
    }
}

fn accepts_null(schema: &Value) -> bool {
    schema.as_bool() == Some(true) || schema.as_object().is_some_and(serde_json::Map::is_empty)
}
