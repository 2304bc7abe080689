//! Messages of the protocol, and stored messages in this form.

use aye_core::contract::content::ContentBlock;
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::message::{Message, Role, Visibility};
use aye_core::contract::record::StoredMessage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::outcome;

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiMessage {
    /// Id of the message, unique in the conversation.
    pub id: String,
    pub role: AgUiRole,
    /// A text, or the parts of a message of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// Calls that an assistant asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<AgUiToolCall>,
    /// The call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Why the call of a tool message failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The author of a message of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgUiRole {
    Developer,
    System,
    Assistant,
    User,
    Tool,
    Activity,
    Reasoning,
}

/// A call in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgUiToolCall {
    /// Id of the call.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    pub function: AgUiFunction,
}

/// The function of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgUiFunction {
    /// Name of the tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

/// Returns the id of the message with the result of a call.
pub fn result_message_id(call: &str) -> String {
    format!("result:{call}")
}

/// Turns stored messages into those of the protocol. Images that only the store has are left out.
pub fn ag_ui_messages(messages: &[StoredMessage]) -> Vec<AgUiMessage> {
    let visible = messages.iter().map(|stored| &stored.message);
    visible.filter(|message| message.visibility != Visibility::Internal).flat_map(converted).collect()
}

fn plain(id: impl Into<String>, role: AgUiRole, content: Option<Value>) -> AgUiMessage {
    AgUiMessage { id: id.into(), role, content, tool_calls: Vec::new(), tool_call_id: None, error: None }
}

fn converted(message: &Message) -> Vec<AgUiMessage> {
    match message.role {
        Role::System => Vec::new(),
        Role::User => {
            let id = message.client_id().unwrap_or(message.id.as_str());
            vec![plain(id, AgUiRole::User, Some(user_content(message)))]
        }
        Role::Assistant => answer(message),
        Role::Tool => {
            let Some(call) = &message.tool_call_id else { return Vec::new() };
            let (result, outcome) = outcome::of_message(message, "");
            let words = outcome::words(&result);
            let error = (outcome != ToolCallOutcome::Succeeded).then(|| words.clone());
            let id = result_message_id(call);
            let tool_call_id = Some(call.clone());
            vec![AgUiMessage { tool_call_id, error, ..plain(id, AgUiRole::Tool, Some(words.into())) }]
        }
    }
}

fn user_content(message: &Message) -> Value {
    let text = message.written();
    let mut parts: Vec<_> = message
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Image { media_type, data } => Some(json!({
                "type": "image",
                "source": {"type": "data", "value": data, "mimeType": media_type},
            })),
            _ => None,
        })
        .collect();
    if parts.is_empty() {
        return text.into();
    }
    if !text.is_empty() {
        parts.push(json!({"type": "text", "text": text}));
    }
    parts.into()
}

fn answer(message: &Message) -> Vec<AgUiMessage> {
    let mut list = Vec::new();
    let thoughts = message.content.iter().filter_map(|block| match block {
        ContentBlock::Thinking { thinking, .. } if !thinking.is_empty() => Some(thinking),
        _ => None,
    });
    for (at, thinking) in thoughts.enumerate() {
        let id = format!("{}:reasoning-{}", message.id, at + 1);
        list.push(plain(id, AgUiRole::Reasoning, Some(thinking.as_str().into())));
    }
    let text = message.text();
    let tool_calls: Vec<_> = message
        .tool_calls
        .iter()
        .map(|call| AgUiToolCall {
            id: call.id.clone(),
            kind: "function".into(),
            function: AgUiFunction { name: call.name.clone(), arguments: call.arguments.to_string() },
        })
        .collect();
    if !text.is_empty() || !tool_calls.is_empty() {
        let content = Some(text).filter(|text| !text.is_empty()).map(Value::from);
        list.push(AgUiMessage { tool_calls, ..plain(message.id.as_str(), AgUiRole::Assistant, content) });
    }
    list
}
