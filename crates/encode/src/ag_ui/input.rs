//! The request with which a client starts or resumes a run.

use aye_core::contract::content::ContentBlock;
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{ACTION_FRONTEND_TOOL, ACTION_PERMISSION};
use aye_core::contract::tool::ToolDescriptor;
use serde::Deserialize;
use serde_json::Value;

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
    /// longer, so that a request that is repeated meets the decision it made.
    ///
    /// # Errors
    /// [`ClientRequestError`] when nothing is new, or it cannot be taken.
    pub fn intent(&self, questions: &[SuspensionRecord]) -> Result<AgUiIntent, ClientRequestError> {
        let mut answers = self.tool_results(questions);
        if !self.resume.is_empty() {
            for entry in &self.resume {
                answers.push(resumed(entry, questions)?);
            }
            let missing = questions.iter().find(|record| {
                record.status == SuspensionStatus::Open
                    && !record.ticket.is_served()
                    && record.ticket.suspension.action != ACTION_FRONTEND_TOOL
                    && !answers.iter().any(|answer| answer.suspension_id == record.id)
            });
            if let Some(record) = missing {
                let message = format!("no answer to the pending interrupt {}; answer all of them", record.id);
                return Err(ClientRequestError::new("resume", message));
            }
        }
        if !answers.is_empty() {
            return Ok(AgUiIntent::Answer(answers));
        }
        match self.messages.last() {
            Some(last) if last.role == AgUiRole::User => Ok(AgUiIntent::Say(UserTurn {
                id: last.id.clone(),
                content: user_content(last)?,
                replaces: None,
            })),
            Some(_) | None => Err(ClientRequestError::new(
                "messages",
                "there is nothing new: end with a message from the user, or answer the pending interrupts in `resume`",
            )),
        }
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

fn resumed(entry: &AgUiResume, questions: &[SuspensionRecord]) -> Result<ClientAnswer, ClientRequestError> {
    let id = &entry.interrupt_id;
    let refused = |what: &str| Err(ClientRequestError::new("resume", format!("the interrupt {id} {what}")));
    let Some(asked) = questions.iter().find(|record| record.id.as_str() == id) else {
        return refused("does not exist in this thread");
    };
    let text = |name: &str| entry.payload.get(name).and_then(Value::as_str).map(str::to_owned);
    if entry.status == AgUiResumeStatus::Cancelled {
        return Ok(ClientAnswer { reason: text("reason"), ..ClientAnswer::new(asked.id.clone(), false) });
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
        return Ok(answer);
    }
    let approved = entry.payload.as_bool().or_else(|| entry.payload.get("approved")?.as_bool());
    let Some(approved) = approved else {
        return refused("needs `approved`, true or false, in its payload");
    };
    let arguments = entry.payload.get("editedArgs").filter(|edited| approved && !edited.is_null()).cloned();
    Ok(ClientAnswer { reason: text("reason"), arguments, ..ClientAnswer::new(asked.id.clone(), approved) })
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
