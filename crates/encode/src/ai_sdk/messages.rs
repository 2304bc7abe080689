//! Stored messages as UI messages.

use std::collections::HashSet;

use aye_core::contract::content::ContentBlock;
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::message::{Message, MessagePart, Role, ToolCall, Visibility};
use aye_core::contract::record::{StoredMessage, SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{ACTION_FRONTEND_TOOL, ResumeDecisionAction};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{data_url, outcome};

/// A message of the client: what a user said, or everything that a run answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "UiMessageInput")]
pub struct UiMessage {
    /// Id of the message; a run's first message has the id of the run.
    pub id: String,
    pub role: UiRole,
    /// The pieces, in order.
    pub parts: Vec<UiPart>,
}

/// A message as clients send it; those of before version 5 have `content`.
#[derive(Deserialize)]
struct UiMessageInput {
    #[serde(default)]
    id: String,
    role: UiRole,
    #[serde(default)]
    parts: Vec<UiPart>,
    content: Option<UiContent>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UiContent {
    Text(String),
    Parts(Vec<UiPart>),
}

impl From<UiMessageInput> for UiMessage {
    fn from(UiMessageInput { id, role, mut parts, content }: UiMessageInput) -> Self {
        match content {
            Some(UiContent::Text(text)) if parts.is_empty() => parts.push(UiPart::Text { text }),
            Some(UiContent::Parts(content)) if parts.is_empty() => parts = content,
            Some(_) | None => {}
        }
        Self { id, role, parts }
    }
}

/// The author of a UI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UiRole {
    System,
    User,
    Assistant,
    /// A role of a client that has others.
    #[serde(other)]
    Unknown,
}

/// A piece of a UI message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum UiPart {
    Text {
        text: String,
    },
    Reasoning {
        text: String,
    },
    File {
        media_type: String,
        url: String,
    },
    StepStart,
    /// A call: `tool-NAME`.
    #[serde(untagged)]
    Tool(Box<UiToolPart>),
    /// Anything else that a client sends.
    #[serde(untagged)]
    Other(Value),
}

/// A call with its arguments and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UiToolPart {
    /// `tool-` and the name of the tool.
    #[serde(rename = "type")]
    pub kind: String,
    pub tool_call_id: String,
    /// The state of the call.
    pub state: UiToolState,
    #[serde(default)]
    pub input: Value,
    /// The result of a call that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_text: Option<String>,
    /// The question about the call, and its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<UiApproval>,
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UiToolState {
    InputStreaming,
    InputAvailable,
    ApprovalRequested,
    ApprovalResponded,
    OutputAvailable,
    OutputError,
    OutputDenied,
}

/// A question about a call, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UiApproval {
    pub id: String,
    /// The answer, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    /// The user's comment on the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Converts stored messages to UI messages: one for each user message, and one for everything a run answered
/// between two of them. `questions` are those of the thread, whatever their status. Images that exist only in
/// the store are omitted.
pub fn ui_messages(messages: &[StoredMessage], questions: &[SuspensionRecord]) -> Vec<UiMessage> {
    let mut list: Vec<UiMessage> = Vec::new();
    let mut runs = HashSet::new();
    let mut current = None;
    for StoredMessage { run_id, message, .. } in messages {
        if message.visibility == Visibility::Internal {
            continue;
        }
        match message.role {
            Role::System => {}
            Role::User => {
                current = None;
                let parts = user_parts(message);
                if !parts.is_empty() {
                    list.push(UiMessage { id: message.id.to_string(), role: UiRole::User, parts });
                }
            }
            Role::Assistant => {
                if current != Some(run_id) {
                    current = Some(run_id);
                    let id = if runs.insert(run_id) { run_id.to_string() } else { message.id.to_string() };
                    list.push(UiMessage { id, role: UiRole::Assistant, parts: Vec::new() });
                }
                if let Some(answer) = list.last_mut() {
                    answer.parts.extend(answer_parts(message, questions));
                }
            }
            Role::Tool => {
                let Some(id) = &message.tool_call_id else { continue };
                let parts = list.iter_mut().rev().flat_map(|answer| answer.parts.iter_mut().rev());
                let mut calls = parts.filter_map(|part| match part {
                    UiPart::Tool(call) => Some(call),
                    _ => None,
                });
                if let Some(call) = calls.find(|call| call.tool_call_id == *id) {
                    settle(call, message);
                }
            }
        }
    }
    list
}

fn user_parts(message: &Message) -> Vec<UiPart> {
    let mut parts: Vec<_> = message.content.iter().filter_map(file).collect();
    let text = message.written();
    if !text.is_empty() {
        parts.push(UiPart::Text { text });
    }
    parts
}

fn file(block: &ContentBlock) -> Option<UiPart> {
    match block {
        ContentBlock::Image { media_type, data } => {
            Some(UiPart::File { media_type: media_type.clone(), url: data_url::of(media_type, data) })
        }
        ContentBlock::Text { .. }
        | ContentBlock::StoredImage(_)
        | ContentBlock::Thinking { .. }
        | ContentBlock::Opaque { .. }
        | ContentBlock::ToolCall { .. } => None,
    }
}

fn answer_parts(message: &Message, questions: &[SuspensionRecord]) -> Vec<UiPart> {
    let mut parts = vec![UiPart::StepStart];
    for part in message.parts() {
        match part {
            MessagePart::Block(ContentBlock::Text { text }) if !text.is_empty() => {
                parts.push(UiPart::Text { text: text.clone() });
            }
            MessagePart::Block(ContentBlock::Thinking { thinking, .. }) if !thinking.is_empty() => {
                parts.push(UiPart::Reasoning { text: thinking.clone() });
            }
            MessagePart::Block(other) => parts.extend(file(other)),
            MessagePart::Call(call) => parts.push(UiPart::Tool(Box::new(call_part(call, questions)))),
        }
    }
    parts
}

/// A call without its result: with the last question that was asked about it.
fn call_part(call: &ToolCall, questions: &[SuspensionRecord]) -> UiToolPart {
    let asked = questions.iter().filter(|record| {
        record.call_id.as_str() == call.id
            && !record.ticket.is_served()
            && record.ticket.suspension.action != ACTION_FRONTEND_TOOL
    });
    let asked = asked.max_by_key(|record| record.created_at);
    let approval = asked.map(|record| UiApproval {
        id: record.id.to_string(),
        approved: record.decision.as_ref().map(|answer| answer.action == ResumeDecisionAction::Resume),
        reason: record.decision.as_ref().and_then(|answer| answer.comment().map(str::to_owned)),
    });
    let edited = asked.and_then(|record| record.decision.as_ref()?.arguments.clone());
    UiToolPart {
        kind: format!("tool-{}", call.name),
        tool_call_id: call.id.clone(),
        state: match asked.map(|record| record.status) {
            Some(SuspensionStatus::Open) => UiToolState::ApprovalRequested,
            Some(SuspensionStatus::Decided | SuspensionStatus::Applied) => UiToolState::ApprovalResponded,
            Some(SuspensionStatus::Superseded | SuspensionStatus::Expired) | None => {
                UiToolState::InputAvailable
            }
        },
        input: edited.unwrap_or_else(|| call.arguments.clone()),
        output: None,
        error_text: None,
        approval,
    }
}

fn settle(call: &mut UiToolPart, message: &Message) {
    let tool = call.kind.strip_prefix("tool-").unwrap_or_default();
    let (result, outcome) = outcome::of_message(message, tool);
    if let Some(edited) = result.touched.as_ref().and_then(|touched| touched.arguments.clone()) {
        call.input = edited;
    }
    let approval = call.approval.take();
    // A client refuses a result whose approval says something else.
    let answered = |is_approved| approval.clone().filter(|approval| approval.approved == Some(is_approved));
    match outcome {
        ToolCallOutcome::Succeeded => {
            call.state = UiToolState::OutputAvailable;
            call.approval = answered(true);
            call.output = Some(outcome::value(&result));
        }
        ToolCallOutcome::Cancelled if outcome::is_denied(&result) => {
            call.state = UiToolState::OutputDenied;
            let unnamed =
                || UiApproval { id: call.tool_call_id.clone(), approved: Some(false), reason: None };
            call.approval = Some(answered(false).unwrap_or_else(unnamed));
        }
        ToolCallOutcome::Failed | ToolCallOutcome::Cancelled => {
            call.state = UiToolState::OutputError;
            call.approval = answered(true);
            call.error_text = Some(outcome::words(&result));
        }
        ToolCallOutcome::Suspended => call.approval = approval,
    }
}
