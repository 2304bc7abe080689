//! The request that a client's chat transport sends.

use aye_core::contract::content::ContentBlock;
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::ACTION_PERMISSION;
use serde::Deserialize;
use serde_json::{Value, json};

use super::messages::{UiMessage, UiPart, UiRole, UiToolPart, UiToolState};
use crate::answer::{ClientAnswer, ClientRequestError};
use crate::data_url;

/// The body of a request: the whole conversation as the client has it.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AiSdkRequest {
    /// Id of the chat: the thread.
    #[serde(default)]
    pub id: Option<String>,
    /// The thread, where it is not the chat's id.
    #[serde(default)]
    pub thread_id: Option<String>,
    /// The agent that answers; the default agent if absent.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// All messages.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub messages: Vec<UiMessage>,
    /// The action requested by the client.
    #[serde(default)]
    pub trigger: AiSdkTrigger,
    /// The message that it is about, when it is not the last one.
    #[serde(default)]
    pub message_id: Option<String>,
}

/// The action requested by a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AiSdkTrigger {
    /// Send a message, or answers.
    #[default]
    SubmitMessage,
    /// Answer once more.
    RegenerateMessage,
}

/// The new part of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum AiSdkIntent {
    /// A message of the user.
    Say(UserTurn),
    /// Another answer in place of a message: that of a run, or the one after a message of the user. `None`: the last one.
    Regenerate { message_id: Option<String> },
    /// Answers to questions, and results of the client's own tools.
    Answer(Vec<ClientAnswer>),
}

/// A message of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct UserTurn {
    /// Id that the client gave it; may be empty.
    pub id: String,
    pub content: Vec<ContentBlock>,
    /// The earlier message of the user whose place it takes; what followed that one is gone for the client.
    pub replaces: Option<String>,
}

impl AiSdkRequest {
    /// Returns the thread that the request is about; `None` starts one.
    pub fn thread(&self) -> Option<&str> {
        let named = self.thread_id.as_deref().or(self.id.as_deref());
        named.filter(|id| !id.is_empty())
    }

    /// Returns id and calls of the message that a stream after an answer continues, for
    /// [`AiSdkEncoder::resuming`](super::AiSdkEncoder::resuming).
    pub fn continued(&self) -> Option<(String, Vec<String>)> {
        let is_answered = |message: &&UiMessage| message.role == UiRole::Assistant;
        let named = self.message_id.as_deref();
        let mut answers = self.messages.iter().rev().filter(is_answered);
        let message = answers.clone().find(|message| Some(message.id.as_str()) == named).or(answers.next())?;
        Some((message.id.clone(), tool_parts(message).map(|part| part.tool_call_id.clone()).collect()))
    }

    /// Returns what is new. `questions` are the pending ones of the thread.
    ///
    /// # Errors
    /// [`ClientRequestError`] when nothing is new, or it cannot be taken.
    pub fn intent(&self, questions: &[SuspensionRecord]) -> Result<AiSdkIntent, ClientRequestError> {
        let refused = |message: &str| Err(ClientRequestError::new("messages", message));
        if self.trigger == AiSdkTrigger::RegenerateMessage {
            return Ok(AiSdkIntent::Regenerate { message_id: self.message_id.clone() });
        }
        let Some(last) = self.messages.last() else {
            return refused("the list is empty; send at least one message");
        };
        let is_about_answer = self.messages.iter().any(|message| {
            message.role == UiRole::Assistant && Some(&message.id) == self.message_id.as_ref()
        });
        match last.role {
            UiRole::User if !is_about_answer => Ok(AiSdkIntent::Say(UserTurn {
                id: last.id.clone(),
                content: user_content(last)?,
                replaces: self.message_id.clone().filter(|id| *id == last.id),
            })),
            UiRole::User | UiRole::Assistant => {
                let answers = self.answers(questions);
                if answers.is_empty() {
                    return refused("there is nothing new: send a message, or answer a pending question");
                }
                Ok(AiSdkIntent::Answer(answers))
            }
            UiRole::System | UiRole::Unknown => {
                refused("the last message must have the role `user` or `assistant`")
            }
        }
    }

    /// Returns the answers to pending questions. If there are none, returns those to questions that are no
    /// longer pending, so that a repeated request finds the decision it made.
    fn answers(&self, questions: &[SuspensionRecord]) -> Vec<ClientAnswer> {
        let is_open = |record: &&SuspensionRecord| record.status == SuspensionStatus::Open;
        let open: Vec<_> = questions.iter().filter(is_open).collect();
        let messages = self.messages.iter().filter(|message| message.role == UiRole::Assistant);
        let answers: Vec<_> = messages
            .flat_map(tool_parts)
            .filter_map(|part| match part.state {
                UiToolState::ApprovalResponded => approval(part, &open),
                UiToolState::OutputAvailable | UiToolState::OutputError => client_result(part, &open),
                UiToolState::InputStreaming
                | UiToolState::InputAvailable
                | UiToolState::ApprovalRequested
                | UiToolState::OutputDenied => None,
            })
            .collect();
        let is_pending = |answer: &&ClientAnswer| open.iter().any(|record| record.id == answer.suspension_id);
        let pending: Vec<_> = answers.iter().filter(is_pending).cloned().collect();
        if pending.is_empty() { answers } else { pending }
    }
}

fn tool_parts(message: &UiMessage) -> impl Iterator<Item = &UiToolPart> {
    message.parts.iter().filter_map(|part| match part {
        UiPart::Tool(call) => Some(&**call),
        _ => None,
    })
}

fn approval(part: &UiToolPart, open: &[&SuspensionRecord]) -> Option<ClientAnswer> {
    let approval = part.approval.as_ref()?;
    let mut answer = ClientAnswer::new(approval.id.as_str(), approval.approved?);
    answer.reason.clone_from(&approval.reason);
    if let Some(asked) = open.iter().find(|record| record.id == answer.suspension_id) {
        answer.fill_from_reason(asked);
    }
    Some(answer)
}

/// Returns the result of a call that the client executes, or the payload of a question. A result never counts
/// as the approval of a call.
fn client_result(part: &UiToolPart, open: &[&SuspensionRecord]) -> Option<ClientAnswer> {
    let asked = open.iter().find(|record| {
        record.call_id.as_str() == part.tool_call_id
            && !record.ticket.is_served()
            && record.ticket.suspension.action != ACTION_PERMISSION
    })?;
    let result = match (part.state, &part.error_text) {
        (UiToolState::OutputError, text) => json!({"error": text.as_deref().unwrap_or("failed")}),
        _ => part.output.clone().unwrap_or(Value::Null),
    };
    Some(ClientAnswer { result, ..ClientAnswer::new(asked.id.clone(), true) })
}

fn user_content(message: &UiMessage) -> Result<Vec<ContentBlock>, ClientRequestError> {
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            UiPart::Text { text } if !text.is_empty() => content.push(ContentBlock::text(text)),
            UiPart::File { media_type, url } => content.push(data_url::image(url).ok_or_else(|| {
                let message = format!(
                    "the file of type `{media_type}` cannot be read; send PNG, JPEG, GIF or WebP images as data URLs"
                );
                ClientRequestError::new("messages", message)
            })?),
            UiPart::Text { .. }
            | UiPart::Reasoning { .. }
            | UiPart::StepStart
            | UiPart::Tool(_)
            | UiPart::Other(_) => {}
        }
    }
    if content.is_empty() {
        return Err(ClientRequestError::new("messages", "the last message is empty; send text or an image"));
    }
    Ok(content)
}
