//! A2A v1.0 in its proto JSON form: runs as tasks and their updates, and messages to them as intents.
//!
//! A run is a task and its thread is the context. Each answer of the model with text is an artifact.

mod card;
mod request;
#[cfg(test)]
mod tests;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason, ToolCallOutcome};
use aye_core::contract::message::{Role, Visibility};
use aye_core::contract::record::{RunRecord, StoredMessage, SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::SuspendTicket;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use card::{A2aCapabilities, A2aCard, A2aInterface};
pub use request::{A2aConfiguration, A2aIntent, A2aSendRequest};

use crate::time;

/// The header that names the version; a request without it counts as 0.3.
pub const A2A_VERSION_HEADER: &str = "a2a-version";
/// The version that is spoken.
pub const A2A_VERSION: &str = "1.0";
/// The binding that is spoken, as cards name it.
pub const A2A_BINDING: &str = "HTTP+JSON";
/// Where the card of a host is.
pub const A2A_CARD_PATH: &str = "/.well-known/agent-card.json";

/// The binding with all methods at one address.
pub const A2A_RPC_BINDING: &str = "JSONRPC";

/// State of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum A2aTaskState {
    #[default]
    #[serde(rename = "TASK_STATE_UNSPECIFIED")]
    Unspecified,
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    #[serde(rename = "TASK_STATE_COMPLETED")]
    Completed,
    #[serde(rename = "TASK_STATE_FAILED")]
    Failed,
    #[serde(rename = "TASK_STATE_CANCELED")]
    Canceled,
    #[serde(rename = "TASK_STATE_INPUT_REQUIRED")]
    InputRequired,
    #[serde(rename = "TASK_STATE_REJECTED")]
    Rejected,
    #[serde(rename = "TASK_STATE_AUTH_REQUIRED")]
    AuthRequired,
}

impl A2aTaskState {
    /// Returns whether nothing follows it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }
}

/// The sender of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum A2aRole {
    #[default]
    #[serde(rename = "ROLE_UNSPECIFIED")]
    Unspecified,
    #[serde(rename = "ROLE_USER")]
    User,
    #[serde(rename = "ROLE_AGENT")]
    Agent,
}

/// A piece of a message or an artifact: one of `text`, `raw`, `url` and `data`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// The location of the bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Name of a file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filename: String,
    /// The media type of the bytes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub media_type: String,
}

impl A2aPart {
    /// Returns a piece of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }
}

/// A message to or from an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aMessage {
    /// Id of the message.
    pub message_id: String,
    /// The conversation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task_id: String,
    pub role: A2aRole,
    pub parts: Vec<A2aPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// The status of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct A2aTaskStatus {
    pub state: A2aTaskState,
    /// The agent's message about the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<A2aMessage>,
    /// Since when, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
}

/// A result of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aArtifact {
    /// Id of the artifact in its task.
    pub artifact_id: String,
    pub parts: Vec<A2aPart>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aTask {
    /// The run.
    pub id: String,
    /// The thread.
    pub context_id: String,
    pub status: A2aTaskStatus,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<A2aArtifact>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<A2aMessage>,
}

/// A task has another status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aStatusUpdate {
    pub task_id: String,
    /// The conversation.
    pub context_id: String,
    pub status: A2aTaskStatus,
}

/// A piece of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aArtifactUpdate {
    pub task_id: String,
    /// The conversation.
    pub context_id: String,
    pub artifact: A2aArtifact,
    /// Whether this piece is appended to the previous ones.
    pub append: bool,
    /// Whether this is the last piece.
    pub last_chunk: bool,
}

/// One event of a stream, or the response to a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum A2aResponse {
    /// The task as it is.
    Task(A2aTask),
    /// A message instead of a task.
    Message(A2aMessage),
    StatusUpdate(A2aStatusUpdate),
    /// A piece of a result.
    ArtifactUpdate(A2aArtifactUpdate),
}

/// Returns a run as a task: `messages` are those of the run, `questions` those of its thread and the subagents below.
/// `history_length`: how many of the last messages the task keeps; `None` is all.
pub fn task(
    run: &RunRecord,
    messages: &[StoredMessage],
    questions: &[SuspensionRecord],
    history_length: Option<usize>,
) -> A2aTask {
    let names = TaskNames { task: run.id.to_string(), context: run.thread_id.to_string() };
    let visible = messages.iter().map(|stored| &stored.message);
    let visible = visible.filter(|message| message.visibility != Visibility::Internal);
    let (mut history, mut artifacts) = (Vec::new(), Vec::new());
    for message in visible {
        let (role, text) = match message.role {
            Role::User => (A2aRole::User, message.written()),
            Role::Assistant => (A2aRole::Agent, message.text()),
            Role::System | Role::Tool => continue,
        };
        if text.is_empty() {
            continue;
        }
        if role == A2aRole::Agent {
            let parts = vec![A2aPart::text(text.as_str())];
            artifacts.push(A2aArtifact { artifact_id: message.id.to_string(), parts });
        }
        history.push(names.message(message.id.as_str(), role, vec![A2aPart::text(text)]));
    }
    let kept = history_length.unwrap_or(usize::MAX).min(history.len());
    let open = questions.iter().filter(|record| record.status == SuspensionStatus::Open);
    let tickets: Vec<_> = open.map(|record| &record.ticket).collect();
    let mut status = match (run.status, &run.termination) {
        (RunStatus::Running, _) => names.status(A2aTaskState::Working, Vec::new()),
        // Only subagents work on its calls.
        (RunStatus::Waiting, _) if tickets.iter().all(|ticket| ticket.is_served()) => {
            names.status(A2aTaskState::Working, Vec::new())
        }
        (RunStatus::Waiting, _) => names.status(A2aTaskState::InputRequired, asked(&tickets)),
        (RunStatus::Done, Some(termination)) => names.ended(termination, &tickets),
        (RunStatus::Done, None) => names.status(A2aTaskState::Completed, Vec::new()),
    };
    status.timestamp = Some(time::rfc3339(run.updated_at));
    let history = history.split_off(history.len() - kept);
    A2aTask { id: names.task, context_id: names.context, status, artifacts, history }
}

/// The ids of a task and its context.
#[derive(Clone, Debug)]
struct TaskNames {
    task: String,
    context: String,
}

impl TaskNames {
    fn message(&self, id: &str, role: A2aRole, parts: Vec<A2aPart>) -> A2aMessage {
        A2aMessage {
            message_id: id.to_owned(),
            context_id: self.context.clone(),
            task_id: self.task.clone(),
            role,
            parts,
            metadata: None,
        }
    }

    fn status(&self, state: A2aTaskState, parts: Vec<A2aPart>) -> A2aTaskStatus {
        let id = format!("{}:status", self.task);
        let message = (!parts.is_empty()).then(|| self.message(&id, A2aRole::Agent, parts));
        A2aTaskStatus { state, message, timestamp: None }
    }

    fn ended(&self, termination: &TerminationReason, tickets: &[&SuspendTicket]) -> A2aTaskStatus {
        let parts = |text: &str| vec![A2aPart::text(text)];
        match termination {
            // A limit ended it before the model did.
            TerminationReason::Stopped(reason) if !reason.is_goal() => {
                let text = reason.detail.as_deref().unwrap_or(&reason.code);
                self.status(A2aTaskState::Failed, parts(text))
            }
            TerminationReason::NaturalEnd
            | TerminationReason::BehaviorRequested
            | TerminationReason::Stopped(_) => self.status(A2aTaskState::Completed, Vec::new()),
            TerminationReason::Cancelled => self.status(A2aTaskState::Canceled, Vec::new()),
            TerminationReason::Blocked(why) => self.status(A2aTaskState::Rejected, parts(why)),
            TerminationReason::Suspended => self.status(A2aTaskState::InputRequired, asked(tickets)),
            TerminationReason::Error(why) => self.status(A2aTaskState::Failed, parts(why)),
        }
    }
}

/// Returns the pending questions, each as text for users and as data for programs.
fn asked(tickets: &[&SuspendTicket]) -> Vec<A2aPart> {
    let waiting = tickets.iter().filter(|ticket| !ticket.is_served());
    let part = |ticket: &&SuspendTicket| {
        let question = &ticket.suspension;
        let data = json!({
            "id": question.id,
            "action": question.action,
            "message": question.message,
            "parameters": question.parameters,
            "responseSchema": question.response_schema,
            "expiresAt": question.expires_at.map(time::rfc3339),
            "tool": ticket.pending.name,
            "arguments": ticket.pending.arguments,
        });
        [A2aPart::text(&question.message), A2aPart { data: Some(data), ..A2aPart::default() }]
    };
    waiting.flat_map(part).collect()
}

/// Encodes the events of a run as the stream of its task: first the task, then updates.
///
/// Before a `RunFinish` that reports a waiting run, pass the pending questions to [`expect`](Self::expect),
/// because some may have been asked before this stream started.
#[derive(Clone, Debug)]
pub struct A2aEncoder {
    names: TaskNames,
    is_started: bool,
    is_finished: bool,
    /// The id of the answer being streamed, and whether a piece of it was sent.
    answer: Option<(String, bool)>,
    answers: u64,
    tickets: Vec<SuspendTicket>,
}

impl A2aEncoder {
    /// An encoder for a run of a thread.
    pub fn new(thread_id: impl Into<String>, run_id: impl Into<String>) -> Self {
        Self {
            names: TaskNames { task: run_id.into(), context: thread_id.into() },
            is_started: false,
            is_finished: false,
            answer: None,
            answers: 0,
            tickets: Vec::new(),
        }
    }

    /// Starts the stream with a task that already exists, such as one that a client subscribes to.
    pub fn begin(&mut self, task: A2aTask) -> Vec<A2aResponse> {
        self.is_started = true;
        self.is_finished = task.status.state.is_terminal();
        vec![A2aResponse::Task(task)]
    }

    /// Returns whether the last event of the stream was returned.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Notes questions that wait, from this thread or those of its subagents.
    pub fn expect(&mut self, questions: &[SuspensionRecord]) {
        for record in questions.iter().filter(|record| record.status == SuspensionStatus::Open) {
            self.ask(&record.ticket);
        }
    }

    /// Returns the frames for an event; none after the end of the run.
    pub fn encode(&mut self, event: &AgentEvent) -> Vec<A2aResponse> {
        let mut out = Vec::new();
        if self.is_finished {
            return out;
        }
        self.start(&mut out);
        match event {
            AgentEvent::StepStart { message_id } => {
                self.close(&mut out);
                self.answer = Some((message_id.clone(), false)).filter(|(id, _)| !id.is_empty());
            }
            AgentEvent::TextDelta { delta } if !delta.is_empty() => self.push_text(delta, &mut out),
            AgentEvent::InferenceComplete { .. } | AgentEvent::StepEnd => self.close(&mut out),
            AgentEvent::ToolCallDone { id, result, outcome, .. } => {
                self.tickets.retain(|ticket| ticket.pending.id.as_str() != id);
                if let (ToolCallOutcome::Suspended, Some(ticket)) = (outcome, &result.suspension) {
                    self.ask(ticket);
                }
            }
            AgentEvent::RunFinish { termination, .. } => {
                self.close(&mut out);
                self.finish(termination, &mut out);
            }
            _ => {}
        }
        out
    }

    /// Ends the stream because the events of the run cannot be followed to its end. The task is not over by that: the
    /// client asks for it, or subscribes again.
    pub fn fail(&mut self) -> Vec<A2aResponse> {
        let mut out = Vec::new();
        if !self.is_finished {
            self.start(&mut out);
            self.close(&mut out);
            self.is_finished = true;
        }
        out
    }

    fn start(&mut self, out: &mut Vec<A2aResponse>) {
        if !std::mem::replace(&mut self.is_started, true) {
            out.push(A2aResponse::Task(A2aTask {
                id: self.names.task.clone(),
                context_id: self.names.context.clone(),
                status: self.names.status(A2aTaskState::Working, Vec::new()),
                ..A2aTask::default()
            }));
        }
    }

    fn finish(&mut self, termination: &TerminationReason, out: &mut Vec<A2aResponse>) {
        self.is_finished = true;
        let tickets: Vec<_> = self.tickets.iter().collect();
        out.push(A2aResponse::StatusUpdate(A2aStatusUpdate {
            task_id: self.names.task.clone(),
            context_id: self.names.context.clone(),
            status: self.names.ended(termination, &tickets),
        }));
    }

    fn ask(&mut self, ticket: &SuspendTicket) {
        self.tickets.retain(|known| known.suspension.id != ticket.suspension.id);
        self.tickets.push(ticket.clone());
    }

    fn push_text(&mut self, delta: &str, out: &mut Vec<A2aResponse>) {
        let (id, append) = self.answer.take().unwrap_or_else(|| {
            self.answers += 1;
            (format!("{}:answer-{}", self.names.task, self.answers), false)
        });
        out.push(self.piece(&id, delta, append, false));
        self.answer = Some((id, true));
    }

    /// Text that follows in the same step, after its calls or a retry, is an answer of its own.
    fn close(&mut self, out: &mut Vec<A2aResponse>) {
        if let Some((id, true)) = self.answer.take() {
            out.push(self.piece(&id, "", true, true));
        }
    }

    fn piece(&self, id: &str, text: &str, append: bool, last_chunk: bool) -> A2aResponse {
        A2aResponse::ArtifactUpdate(A2aArtifactUpdate {
            task_id: self.names.task.clone(),
            context_id: self.names.context.clone(),
            artifact: A2aArtifact { artifact_id: id.to_owned(), parts: vec![A2aPart::text(text)] },
            append,
            last_chunk,
        })
    }
}
