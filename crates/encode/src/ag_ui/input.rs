//! The request with which a client starts or resumes a run.

use std::collections::HashSet;

use aye_core::contract::content::ContentBlock;
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{ACTION_FRONTEND_TOOL, ACTION_PERMISSION};
use aye_core::contract::tool::ToolDescriptor;
use serde::Deserialize;
use serde_json::Value;

use super::AgUiEvent;
use super::messages::{AgUiMessage, AgUiRole};
use crate::ai_sdk::UserTurn;
use crate::answer::{ClientAnswer, ClientRequestError};
use crate::data_url;

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunAgentInput {
    /// The thread.
    pub thread_id: String,
    /// Id that the client gives the run.
    pub run_id: String,
    /// The run this one continues.
    #[serde(default)]
    pub parent_run_id: Option<String>,
    /// The agent that answers; the default agent if absent.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// State of the client.
    #[serde(default)]
    pub state: Value,
    /// The whole conversation as the client has it.
    #[schemars(with = "Vec<Value>")]
    pub messages: Vec<AgUiMessage>,
    /// Tools that the client carries out.
    #[serde(default)]
    pub tools: Vec<AgUiTool>,
    /// The client's knowledge besides the conversation.
    #[serde(default)]
    pub context: Vec<AgUiContext>,
    /// Anything else.
    #[serde(default)]
    pub forwarded_props: Value,
    /// Answers to the questions of the thread.
    #[serde(default)]
    pub resume: Vec<AgUiResume>,
}

/// A tool that a client carries out.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
pub struct AgUiTool {
    /// Name of the tool.
    pub name: String,
    /// Description for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub parameters: Value,
}

/// Something a client knows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
pub struct AgUiContext {
    /// The description of the value.
    pub description: String,
    /// The value as text.
    pub value: String,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgUiResume {
    /// The question.
    pub interrupt_id: String,
    /// Whether the question is answered or cancelled.
    pub status: AgUiResumeStatus,
    /// The answer.
    #[serde(default)]
    pub payload: Value,
}

/// The outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgUiResumeStatus {
    /// The payload is the answer.
    Resolved,
    /// It counts as a denial.
    Cancelled,
}

/// The new part of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum AgUiIntent {
    /// A message of the user.
    Say(UserTurn),
    /// Answers to questions, and results of the client's own tools.
    Answer(Vec<ClientAnswer>),
    /// Nothing is new: the client asks how the conversation stands.
    Join,
}

impl RunAgentInput {
    /// Returns the client's tools.
    ///
    /// # Errors
    /// [`ClientRequestError`] names one that cannot be offered.
    pub fn frontend_tools(&self) -> Result<Vec<ToolDescriptor>, ClientRequestError> {
        let descriptor = |tool: &AgUiTool| {
            let refused = |what: &str| {
                Err(ClientRequestError::new("tools", format!("the tool {:?} has {what}", tool.name)))
            };
            if tool.name.trim().is_empty() {
                return refused("an empty name");
            }
            let described = ToolDescriptor::new(&tool.name, &tool.name, &tool.description);
            match &tool.parameters {
                Value::Null => Ok(described),
                Value::Object(_) => Ok(described.with_parameters(tool.parameters.clone())),
                _ => refused("parameters that are not a JSON Schema object"),
            }
        };
        self.tools.iter().map(descriptor).collect()
    }

    /// Returns what the client knows as a text for the model.
    pub fn context_text(&self) -> Option<String> {
        let line = |known: &AgUiContext| format!("{}: {}", known.description, known.value);
        let lines: Vec<_> = self.context.iter().map(line).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Returns what is new. `questions` are those of the thread and its subagents, also some that are not pending any
    /// longer, and `stored` are the messages of the thread.
    ///
    /// A question may have been answered elsewhere, have expired, or have been asked since the client last looked. So an
    /// answer to one that is no longer pending is no error, and neither is a pending one without an answer: the client
    /// learns of both from the run.
    ///
    /// # Errors
    /// [`ClientRequestError`] when nothing is new in a thread without messages, or it cannot be taken.
    pub fn intent(
        &self,
        questions: &[SuspensionRecord],
        stored: &[AgUiMessage],
    ) -> Result<AgUiIntent, ClientRequestError> {
        let mut answers = self.tool_results(questions);
        for entry in &self.resume {
            answers.extend(resumed(entry, questions)?);
        }
        if !answers.is_empty() {
            return Ok(AgUiIntent::Answer(answers));
        }
        if let Some(turn) = self.new_message(stored)? {
            return Ok(AgUiIntent::Say(turn));
        }
        if !stored.is_empty() {
            return Ok(AgUiIntent::Join);
        }
        Err(ClientRequestError::new(
            "messages",
            "there is nothing new: end with a message from the user, or answer the pending interrupts in `resume`",
        ))
    }

    /// Returns the last message if the user sent it and the thread does not have it yet.
    ///
    /// # Errors
    /// [`ClientRequestError`] when it cannot be taken.
    pub fn new_message(&self, stored: &[AgUiMessage]) -> Result<Option<UserTurn>, ClientRequestError> {
        let Some(last) = self.messages.last().filter(|last| last.role == AgUiRole::User) else {
            return Ok(None);
        };
        let content = user_content(last)?;
        let is_stored = |known: &AgUiMessage| known.id == last.id && words_of(known) == words_of(last);
        if stored.iter().any(is_stored) {
            return Ok(None);
        }
        Ok(Some(UserTurn { id: last.id.clone(), content, replaces: None }))
    }

    /// Returns the events that bring the client's messages to those of the thread; none if the client lacks nothing.
    ///
    /// A client keeps the messages of a snapshot that it has where they are, appends the others, and drops what the
    /// snapshot lacks. So it first gets an empty one when this would give another order. Its own instructions stay, and
    /// thoughts are left to it.
    pub fn missing_messages(&self, stored: &[AgUiMessage]) -> Vec<AgUiEvent> {
        let is_own = |message: &&AgUiMessage| matches!(message.role, AgUiRole::System | AgUiRole::Developer);
        let mut messages: Vec<AgUiMessage> = self.messages.iter().filter(is_own).cloned().collect();
        // The result of a tool of its own has the client's id.
        let id_of = |stored: &AgUiMessage| {
            let is_result = |message: &&AgUiMessage| {
                message.role == AgUiRole::Tool && message.tool_call_id == stored.tool_call_id
            };
            let own = self.messages.iter().find(is_result).filter(|_| stored.role == AgUiRole::Tool);
            own.unwrap_or(stored).id.clone()
        };
        let shown = stored.iter().filter(|message| message.role != AgUiRole::Reasoning);
        messages.extend(shown.map(|message| AgUiMessage { id: id_of(message), ..message.clone() }));
        let known: Vec<&str> = self.messages.iter().map(|message| message.id.as_str()).collect();
        if messages.iter().all(|message| known.contains(&message.id.as_str())) {
            return Vec::new();
        }
        let wanted: HashSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
        let kept = known.iter().copied().filter(|id| wanted.contains(id));
        let is_in_order = kept.zip(&messages).all(|(kept, message)| kept == message.id);
        let empty = (!is_in_order).then(|| AgUiEvent::MessagesSnapshot { messages: Vec::new() });
        empty.into_iter().chain([AgUiEvent::MessagesSnapshot { messages }]).collect()
    }

    /// Returns the calls of the client's own tools whose results the client has.
    pub fn own_results(&self, questions: &[SuspensionRecord]) -> Vec<String> {
        let results = self.messages.iter().filter(|message| message.role == AgUiRole::Tool);
        let is_own = |call: &&String| {
            questions.iter().any(|record| {
                record.call_id.as_str() == call.as_str()
                    && record.ticket.suspension.action == ACTION_FRONTEND_TOOL
            })
        };
        results.filter_map(|message| message.tool_call_id.as_ref()).filter(is_own).cloned().collect()
    }

    /// Returns the client's state as a text for the model, without the members that aye itself published.
    pub fn state_text(&self, shared: impl Fn(&str) -> bool) -> Option<String> {
        let own = match &self.state {
            Value::Null => return None,
            Value::Object(members) => {
                let own = members.iter().filter(|(name, _)| !shared(name));
                Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect())
            }
            other => other.clone(),
        };
        let is_empty = own.as_object().is_some_and(serde_json::Map::is_empty);
        (!is_empty).then(|| format!("State of the user's page: {own}"))
    }

    /// The results of the client's own tools among the messages.
    fn tool_results(&self, questions: &[SuspensionRecord]) -> Vec<ClientAnswer> {
        let result = |message: &AgUiMessage| {
            let call = message.tool_call_id.as_deref().filter(|_| message.role == AgUiRole::Tool)?;
            let asked = questions.iter().find(|record| {
                record.status == SuspensionStatus::Open
                    && record.call_id.as_str() == call
                    && record.ticket.suspension.action == ACTION_FRONTEND_TOOL
            })?;
            let result = match (&message.error, message.content.clone().unwrap_or(Value::Null)) {
                (Some(error), _) => serde_json::json!({"error": error}),
                (None, Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
                (None, content) => content,
            };
            Some(ClientAnswer { result, ..ClientAnswer::new(asked.id.clone(), true) })
        };
        self.messages.iter().filter_map(result).collect()
    }
}

/// Returns the answer of an entry; `None` if its question is no longer pending.
fn resumed(
    entry: &AgUiResume,
    questions: &[SuspensionRecord],
) -> Result<Option<ClientAnswer>, ClientRequestError> {
    let id = &entry.interrupt_id;
    let refused = |what: &str| Err(ClientRequestError::new("resume", format!("the interrupt {id} {what}")));
    let Some(asked) = questions.iter().find(|record| record.id.as_str() == id) else {
        return refused("does not exist in this thread");
    };
    if asked.status != SuspensionStatus::Open {
        return Ok(None);
    }
    let text = |name: &str| entry.payload.get(name).and_then(Value::as_str).map(str::to_owned);
    if entry.status == AgUiResumeStatus::Cancelled {
        let denied = ClientAnswer::new(asked.id.clone(), false);
        return Ok(Some(ClientAnswer { reason: text("reason"), ..denied }));
    }
    if asked.ticket.suspension.action != ACTION_PERMISSION {
        let mut answer = ClientAnswer::new(asked.id.clone(), true);
        match &entry.payload {
            Value::String(text) if asked.ticket.suspension.is_choice() => {
                answer.reason = Some(text.clone());
                answer.fill_from_reason(asked);
            }
            payload => answer.result = payload.clone(),
        }
        return Ok(Some(answer));
    }
    let approved = entry.payload.as_bool().or_else(|| entry.payload.get("approved")?.as_bool());
    let Some(approved) = approved else {
        return refused("needs `approved`, true or false, in its payload");
    };
    let arguments = entry.payload.get("editedArgs").filter(|edited| approved && !edited.is_null()).cloned();
    let answer = ClientAnswer::new(asked.id.clone(), approved);
    Ok(Some(ClientAnswer { reason: text("reason"), arguments, ..answer }))
}

/// The text of a message.
fn words_of(message: &AgUiMessage) -> String {
    match &message.content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().concat()
        }
        _ => String::new(),
    }
}

fn user_content(message: &AgUiMessage) -> Result<Vec<ContentBlock>, ClientRequestError> {
    let refused = |what: &str| Err(ClientRequestError::new("messages", format!("the last message {what}")));
    let mut content = Vec::new();
    match &message.content {
        Some(Value::String(text)) if !text.is_empty() => content.push(ContentBlock::text(text)),
        Some(Value::Array(parts)) => {
            for part in parts {
                let member = |path: &str| part.pointer(path).and_then(Value::as_str);
                let block = match member("/type") {
                    Some("text") => member("/text").map(ContentBlock::text),
                    Some("image") if member("/source/type") == Some("data") => {
                        let media_type = member("/source/mimeType").unwrap_or_default();
                        member("/source/value").and_then(|data| data_url::block(media_type, data))
                    }
                    Some("image") => member("/source/value").and_then(data_url::image),
                    _ => None,
                };
                let Some(block) = block else {
                    return refused(
                        "has a part that cannot be read; send text and PNG, JPEG, GIF or WebP images as data",
                    );
                };
                content.push(block);
            }
        }
        _ => {}
    }
    if content.is_empty() {
        return refused("is empty; send text or an image");
    }
    Ok(content)
}
