//! Requests for a run, and their results.

use std::panic::AssertUnwindSafe;

use serde_json::Value;

use aye_core::contract::amount::short_number;
use aye_core::contract::error_code::ErrorCode;
use aye_core::contract::ids::{RunId, SuspensionId, ThreadId};
use aye_core::contract::inference::{InferenceOverride, StopReason, TokenUsage};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::Message;
use aye_core::contract::record::{JobClaim, QueueId, QueuedMessage, SuspensionRecord};
use aye_core::contract::storage::StoreError;
use aye_core::contract::suspension::{ACTION_PERMISSION, ResumeDecisionAction, ToolCallResume};
use aye_core::contract::tool::{Tool, ToolDescriptor};
use aye_core::state::StateError;

/// A request for a run over a thread, which is created if there is none.
#[derive(Clone, Debug)]
pub struct RunRequest {
    pub thread_id: ThreadId,
    pub messages: Vec<Message>,
    /// The agent's id; the default agent when `None`, or the first by id if there is no default.
    pub agent_id: Option<String>,
    /// Changed parameters for the whole run.
    pub overrides: InferenceOverride,
    /// The run's id; a fresh one when `None`.
    pub run_id: Option<RunId>,
    /// The run this one continues or serves.
    pub parent_run_id: Option<RunId>,
    /// The client's id of this request: it is part of the rows, events, log lines and spans of the run and of
    /// its subagents.
    pub correlation_id: Option<String>,
    /// Tools that the client executes: a call of one waits, and its answer is the result. They belong to the
    /// run, even if another process resumes it.
    pub frontend_tools: Vec<ToolDescriptor>,
    /// The job of the mailbox that this run starts with. Such a run closes no questions: see
    /// [`RuntimeError::NotFree`].
    pub takes: Option<JobClaim>,
}

impl RunRequest {
    /// Says something in a conversation.
    pub fn new(thread_id: impl Into<ThreadId>, messages: Vec<Message>) -> Self {
        Self {
            thread_id: thread_id.into(),
            messages,
            agent_id: None,
            overrides: InferenceOverride::default(),
            run_id: None,
            parent_run_id: None,
            correlation_id: None,
            frontend_tools: Vec::new(),
            takes: None,
        }
    }

    /// Creates a request that starts with a queued message, which leaves the queue with the run's first
    /// commit.
    pub fn queued(message: QueuedMessage) -> Self {
        Self {
            takes: Some(JobClaim { id: message.id, claim: None }),
            agent_id: message.agent_id,
            correlation_id: message.correlation_id,
            run_id: message.run_id,
            ..Self::new(message.thread_id, message.messages)
        }
    }

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

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRunResult {
    pub thread_id: ThreadId,
    pub run_id: RunId,
    /// The text of the last assistant message.
    pub response: String,
    /// Why it ended, or that it waits.
    pub termination: TerminationReason,
    /// A short name of the failure, when it failed: `rate_limited`, `network`, ...
    pub error_code: Option<String>,
    /// When the failed request may be repeated, in Unix milliseconds, if its error names a time.
    pub retry_at: Option<u64>,
    /// The model's last stop reason, if its provider reports one.
    pub stop_reason: Option<StopReason>,
    /// Inferences.
    pub steps: u32,
    /// Tokens.
    pub usage: TokenUsage,
    /// The questions that wait.
    pub waiting: Vec<SuspensionRecord>,
    /// The questions that ended without an answer while the run was driven.
    pub expired: Vec<SuspensionId>,
    /// The number of messages in the conversation at the end of the run.
    pub messages: u64,
}

/// The reason why a run could not be started or resumed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RuntimeError {
    /// The state engine refused.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another process is active on the thread.
    #[error("{process} is running thread {thread_id}")]
    ThreadAlreadyRunning {
        thread_id: ThreadId,
        /// The pid of that process.
        pid: u32,
        /// That process in words: `process 7`, with its machine's name where the pid means nothing here.
        process: String,
    },
    #[error("unknown agent `{agent_id}`")]
    AgentNotFound { agent_id: String },
    /// The agent cannot run.
    #[error("{message}")]
    ResolveFailed { message: String },
    /// The thread has no unfinished run.
    #[error("thread {thread_id} has nothing to resume")]
    NothingToResume { thread_id: ThreadId },
    /// There is nothing to answer: the request and the conversation have no messages.
    #[error("a run needs a message; thread {thread_id} has none")]
    NoMessage { thread_id: ThreadId },
    /// A message does not fit into the model's window. Nothing was stored.
    #[error(
        "the message is about {} tokens, and {model} takes {} at once: nothing was sent; shorten it, put it into a \
         file and name its path, or choose a model with a larger window",
        short_number(*tokens as u64),
        short_number(*window as u64)
    )]
    TooLarge {
        /// About how many tokens it has.
        tokens: usize,
        /// The number of tokens that fit into the window besides the answer.
        window: usize,
        /// The model's registered id.
        model: String,
    },
    /// A queued message cannot start yet: the thread has an unfinished run.
    #[error("thread {thread_id} has an unfinished run; the message stays queued after it")]
    NotFree { thread_id: ThreadId },
    /// A queued message was removed from the queue, or was started elsewhere.
    #[error("message {id} is no longer in the queue of thread {thread_id}")]
    NotQueued { thread_id: ThreadId, id: QueueId },
    /// The stored run cannot be read.
    #[error("run {run_id} cannot be resumed: {message}")]
    Damaged { run_id: RunId, message: String },
    /// The store failed; what was not written did not happen.
    #[error("{0}")]
    Store(String),
    /// The store's disk is full; what was not written did not happen.
    #[error("{}", StoreError::Full)]
    Full,
    /// Another owner took the thread over; this one must not write any more.
    #[error("thread {thread_id} was taken over by another process")]
    Fenced { thread_id: ThreadId },
    /// A fault of ours: the machine refused a fact.
    #[error("internal error: {0}")]
    Internal(String),
}

impl RuntimeError {
    /// Returns the name of the error for programs.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::ThreadAlreadyRunning { .. } | Self::NotFree { .. } => ErrorCode::Busy,
            Self::NothingToResume { .. } => ErrorCode::NothingToResume,
            Self::NotQueued { .. } => ErrorCode::NotQueued,
            Self::Fenced { .. } => ErrorCode::TakenOver,
            Self::AgentNotFound { .. } | Self::ResolveFailed { .. } => ErrorCode::UnknownAgent,
            Self::NoMessage { .. } => ErrorCode::NoMessage,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::Damaged { .. } => ErrorCode::Damaged,
            Self::Full => ErrorCode::DiskFull,
            Self::State(_) | Self::Store(_) | Self::Internal(_) => ErrorCode::Internal,
        }
    }
}

impl From<StoreError> for RuntimeError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced { thread } => Self::Fenced { thread_id: thread },
            StoreError::Full => Self::Full,
            other => Self::Store(other.to_string()),
        }
    }
}

/// Why an answer was not written.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// The payload is not what the question asks for.
    #[error("the decision for {id} does not match: {message}")]
    Schema {
        id: SuspensionId,
        /// What is wrong, and where.
        message: String,
    },
    /// The question does not take such an answer.
    #[error("invalid decision for {id}: {message}")]
    Unfit {
        id: SuspensionId,
        /// Why, and what would be right.
        message: String,
    },
    /// The edited arguments cannot be used.
    #[error("the edited arguments of {id} cannot be used: {message}")]
    Arguments {
        id: SuspensionId,
        /// What is wrong, and where.
        message: String,
    },
    #[error("{0}")]
    Store(#[source] StoreError),
}

/// Checks whether the question takes such an answer, and the payload of an approval against the schema of the
/// question.
///
/// # Errors
/// [`DecideError::Schema`], [`DecideError::Unfit`].
pub fn check_payload(suspension: &SuspensionRecord, resume: &ToolCallResume) -> Result<(), DecideError> {
    let asked = &suspension.ticket.suspension;
    let is_permission = asked.action == ACTION_PERMISSION;
    let unfit =
        |message: &str| Err(DecideError::Unfit { id: suspension.id.clone(), message: message.into() });
    if suspension.ticket.is_served() {
        return unfit(
            "a subagent works on this call and its result is the answer; `aye tasks stop` stops it",
        );
    }
    if resume.profile.is_some() && (resume.action == ResumeDecisionAction::Cancel || !is_permission) {
        return unfit("only an approval of a call takes a profile");
    }
    if resume.arguments.is_some() {
        if resume.action == ResumeDecisionAction::Cancel {
            return unfit("a denial takes no edited arguments; send them with an approval");
        }
        if !is_permission {
            return unfit("only an approval request takes edited arguments");
        }
        // Edited arguments replace the payload.
        return Ok(());
    }
    if resume.action == ResumeDecisionAction::Cancel {
        return match (resume.is_modify(), is_permission, resume.comment()) {
            (true, false, _) => unfit("changes can be requested only for an approval request"),
            (true, true, None) => unfit("the feedback is empty; write what to change"),
            (true, true, Some(_)) | (false, ..) => Ok(()),
        };
    }
    let Some(schema) = &asked.response_schema else { return Ok(()) };
    if resume.result == Value::Null && accepts_null(schema) {
        return Ok(());
    }
    first_error(schema, &resume.result, "the payload")
        .map_or(Ok(()), |message| Err(DecideError::Schema { id: suspension.id.clone(), message }))
}

/// Why the model stopped after a message, as it was noted beside it.
pub fn stop_reason_of(message: &Message) -> Option<StopReason> {
    serde_json::from_value(message.metadata.as_ref()?.get("stop_reason")?.clone()).ok()?
}

/// Checks edited arguments: they must be an object that the tool accepts.
///
/// # Errors
/// [`DecideError::Arguments`].
pub fn check_arguments(
    suspension: &SuspensionRecord,
    tool: Option<&dyn Tool>,
    arguments: &Value,
) -> Result<(), DecideError> {
    let name = &suspension.ticket.pending.name;
    let message = match (tool, arguments) {
        (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Some("they must be a JSON object".to_owned())
        }
        (None, Value::Object(_)) => Some(format!("unknown tool `{name}` here that could check them")),
        (Some(tool), Value::Object(_)) => {
            let checked = std::panic::catch_unwind(AssertUnwindSafe(|| tool.validate_args(arguments)));
            match checked {
                Ok(Ok(())) => first_error(&tool.descriptor().parameters, arguments, "they"),
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("the tool {name} failed on them")),
            }
        }
    };
    message.map_or(Ok(()), |message| Err(DecideError::Arguments { id: suspension.id.clone(), message }))
}

/// Returns the first violation of a schema by a value, with its place; `whole` names the value itself.
fn first_error(schema: &Value, value: &Value, whole: &str) -> Option<String> {
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        Err(error) => return Some(format!("invalid schema: {error}")),
    };
    let error = validator.iter_errors(value).next()?;
    let path = error.instance_path().to_string();
    let place = if path.is_empty() { whole.to_owned() } else { format!("`{path}`") };
    Some(format!("{place}: {error}"))
}

fn accepts_null(schema: &Value) -> bool {
    schema.as_bool() == Some(true) || schema.as_object().is_some_and(serde_json::Map::is_empty)
}
