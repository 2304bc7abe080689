//! Messages to an agent.

use aye_core::contract::content::ContentBlock;
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{ACTION_FRONTEND_TOOL, ACTION_PERMISSION};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{A2aMessage, A2aPart, A2aRole};
use crate::answer::{ClientAnswer, ClientRequestError};
use crate::data_url;

/// The body of a request that sends a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct A2aSendRequest {
    /// The agent that answers, if the path does not name it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    pub message: A2aMessage,
    /// The options of the response.
    pub configuration: A2aConfiguration,
}

/// The options of the response to a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aConfiguration {
    /// Whether to respond before the task ends or needs input.
    pub return_immediately: bool,
    /// The number of messages that the task keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_length: Option<usize>,
    /// The target of push notifications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_push_notification_config: Option<Value>,
}

/// The purpose of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum A2aIntent {
    /// Start a run, or queue a message for the next one.
    Say(Vec<ContentBlock>),
    /// Answer questions of the task.
    Answer(Vec<ClientAnswer>),
}

impl A2aSendRequest {
    /// Returns what the message wants. `questions` are those of the task that it names, with those of its subagents; none
    /// when it names no task.
    ///
    /// A data part answers the question whose `id` it has, or the only pending one: `{"approved": true}` with an optional
    /// `reason` and `arguments` for an approval, otherwise the payload of the question. The text `approve` or `deny` answers
    /// the only pending approval, and any text another kind of question.
    ///
    /// # Errors
    /// [`ClientRequestError`] when the message cannot be taken.
    pub fn intent(&self, questions: &[SuspensionRecord]) -> Result<A2aIntent, ClientRequestError> {
        if self.message.message_id.is_empty() || self.message.role != A2aRole::User {
            return refused("it needs a `messageId` and the role `ROLE_USER`");
        }
        let is_pending = |record: &&SuspensionRecord| {
            record.status == SuspensionStatus::Open && !record.ticket.is_served()
        };
        let open: Vec<_> = questions.iter().filter(is_pending).collect();
        if self.message.task_id.is_empty() || open.is_empty() {
            return Ok(A2aIntent::Say(content_of(&self.message.parts)?));
        }
        let data: Vec<_> = self.message.parts.iter().filter_map(|part| part.data.as_ref()).collect();
        if !data.is_empty() {
            let answers: Result<_, _> = data.into_iter().map(|data| from_data(data, &open)).collect();
            return Ok(A2aIntent::Answer(answers?));
        }
        let text: Vec<_> = self.message.parts.iter().filter_map(|part| part.text.as_deref()).collect();
        Ok(A2aIntent::Answer(vec![from_text(text.join("\n").trim(), &open)?]))
    }
}

fn refused<T>(message: impl Into<String>) -> Result<T, ClientRequestError> {
    Err(ClientRequestError::new("message", message))
}

fn only<'a>(open: &[&'a SuspensionRecord]) -> Result<&'a SuspensionRecord, ClientRequestError> {
    match open {
        [only] => Ok(only),
        _ => refused("more than one question is pending; name one by its `id` in a data part"),
    }
}

fn from_data(data: &Value, open: &[&SuspensionRecord]) -> Result<ClientAnswer, ClientRequestError> {
    let asked = match data.get("id").and_then(Value::as_str) {
        Some(id) => match open.iter().find(|record| record.id.as_str() == id) {
            Some(asked) => *asked,
            None => return refused(format!("the question {id} is not pending in this task")),
        },
        None => only(open)?,
    };
    let approved = data.get("approved").and_then(Value::as_bool);
    let is_permission = asked.ticket.suspension.action == ACTION_PERMISSION;
    let mut answer = match approved {
        Some(approved) => ClientAnswer::new(asked.id.clone(), approved),
        None if is_permission => return refused(format!("the question {} needs `approved`", asked.id)),
        None => ClientAnswer::new(asked.id.clone(), true),
    };
    answer.reason = data.get("reason").and_then(Value::as_str).map(str::to_owned);
    if is_permission {
        answer.arguments = data.get("arguments").filter(|_| approved == Some(true)).cloned();
    } else if approved != Some(false) {
        let mut payload = data.get("payload").unwrap_or(data).clone();
        if let Some(members) = payload.as_object_mut().filter(|_| data.get("payload").is_none()) {
            members.retain(|name, _| !matches!(name.as_str(), "id" | "approved" | "reason"));
        }
        answer.result = payload;
    }
    Ok(answer)
}

fn from_text(text: &str, open: &[&SuspensionRecord]) -> Result<ClientAnswer, ClientRequestError> {
    let asked = only(open)?;
    let id = asked.id.clone();
    let is_permission = asked.ticket.suspension.action == ACTION_PERMISSION;
    match text.to_ascii_lowercase().as_str() {
        "" => refused("it is empty; answer the pending question"),
        "approve" | "yes" if is_permission => Ok(ClientAnswer::new(id, true)),
        "deny" | "no" if is_permission => Ok(ClientAnswer::new(id, false)),
        _ if is_permission => refused(
            "an approval is pending; answer `approve` or `deny`, or send the data `{\"approved\": true, \"reason\": \"…\"}`",
        ),
        _ if asked.ticket.suspension.action == ACTION_FRONTEND_TOOL => {
            Ok(ClientAnswer { result: text.into(), ..ClientAnswer::new(id, true) })
        }
        _ => {
            let mut answer = ClientAnswer { reason: Some(text.to_owned()), ..ClientAnswer::new(id, true) };
            answer.fill_from_reason(asked);
            Ok(answer)
        }
    }
}

fn content_of(parts: &[A2aPart]) -> Result<Vec<ContentBlock>, ClientRequestError> {
    let mut content = Vec::new();
    for part in parts {
        let block = match part {
            A2aPart { text: Some(text), .. } => (!text.is_empty()).then(|| ContentBlock::text(text)),
            A2aPart { data: Some(data), .. } => Some(ContentBlock::text(data.to_string())),
            A2aPart { raw: Some(raw), media_type, .. } => match data_url::block(media_type, raw) {
                Some(image) => Some(image),
                None => {
                    return refused(format!(
                        "bytes of type `{media_type}` cannot be read; send PNG, JPEG, GIF or WebP images"
                    ));
                }
            },
            A2aPart { .. } => {
                return refused("a part has no text, data or bytes; URLs are not fetched");
            }
        };
        content.extend(block);
    }
    if content.is_empty() {
        return refused("it is empty; send text, data or an image");
    }
    Ok(content)
}
