//! The questions of a remote agent as calls of a tool that asks the user, and the answers in the form it expects.

use std::fmt::Write as _;

use async_trait::async_trait;
use aye_core::contract::display::{call_text, shortened};
use aye_core::contract::message::ToolCall;
use aye_core::contract::question::{QuestionParameters, WrittenChoice};
use aye_core::contract::suspension::{
    ACTION_ASK_USER, ACTION_PERMISSION, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_encode::a2a::{A2aPart, A2aTaskState, A2aTaskStatus};
use serde_json::{Value, json};

use super::client::cleaned;

/// The name by which rules and front ends know the tool that asks the user.
pub(crate) const ASK_USER: &str = "AskUser";
/// The choice that sends a message again that may have arrived.
pub(crate) const SEND_AGAIN: &str = "send it again";
const STOP: &str = "stop";
const APPROVE: &str = "approve";
const DENY: &str = "deny";
/// Characters of a question, of a call that it shows, and of one choice.
const MAX_TEXT: usize = 4000;
const MAX_CALL: usize = 4000;
const MAX_LABEL: usize = 200;
/// Questions of one task that are asked at once, and choices of each.
const MAX_QUESTIONS: usize = 8;
const MAX_CHOICES: usize = 12;

/// What a call asks for. It is part of the arguments, so that the answer can be matched to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteAsk {
    Text,
    /// An approval, by the id of the question there.
    Approval(String),
    /// A choice or text for the question of this id there.
    Payload(String),
    /// Whether to send a message again that may have arrived.
    Lost,
}

impl RemoteAsk {
    pub(crate) fn of(call: &ToolCall) -> Self {
        let id = || call.arguments["id"].as_str().unwrap_or_default().to_owned();
        match call.arguments["kind"].as_str() {
            Some("approval") => Self::Approval(id()),
            Some("payload") => Self::Payload(id()),
            Some("lost") => Self::Lost,
            Some(_) | None => Self::Text,
        }
    }

    /// The part of a message that answers; `None` means that the question was declined or expired.
    pub(crate) fn answer(&self, answer: Option<Value>) -> A2aPart {
        const UNANSWERED: &str = "The user did not answer this question.";
        let text = answer.as_ref().map(|answer| match answer {
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let data = |data: Value| A2aPart { data: Some(data), ..A2aPart::default() };
        match (self, text) {
            (Self::Text | Self::Lost, text) => A2aPart::text(text.as_deref().unwrap_or(UNANSWERED)),
            (Self::Approval(id), Some(text)) if text == APPROVE => data(json!({"id": id, "approved": true})),
            (Self::Approval(id), Some(text)) if text == DENY => data(json!({"id": id, "approved": false})),
            (Self::Approval(id), text) => {
                data(json!({"id": id, "approved": false, "reason": text.as_deref().unwrap_or(UNANSWERED)}))
            }
            (Self::Payload(id), None) => data(json!({"id": id, "approved": false, "reason": UNANSWERED})),
            (Self::Payload(id), Some(text)) => {
                let payload = match answer {
                    Some(several @ Value::Array(_)) => json!({"answers": several}),
                    _ => match serde_json::from_str(&text) {
                        Ok(object @ Value::Object(_)) => object,
                        Ok(_) | Err(_) => json!({"answer": text}),
                    },
                };
                data(json!({"id": id, "payload": payload}))
            }
        }
    }
}

fn trimmed(text: &str, limit: usize) -> String {
    shortened(cleaned(text).trim(), limit).into_owned()
}

/// The calls that ask the user what a task needs. `label` names the agent and its host.
pub(crate) fn questions(
    label: &str,
    status: &A2aTaskStatus,
    refused: Option<&str>,
    prefix: &str,
) -> Vec<ToolCall> {
    let parts = status.message.as_ref().map(|message| message.parts.as_slice()).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.text.as_deref()).collect();
    let known = parts.iter().filter_map(|part| part.data.as_ref()).filter_map(known_question);
    let mut asked: Vec<Value> = known.take(MAX_QUESTIONS).collect();
    if asked.is_empty() {
        let text = trimmed(&texts.join("\n"), MAX_TEXT);
        let text = if text.is_empty() { "(it does not say what it needs)".to_owned() } else { text };
        asked.push(json!({"question": text, "free_text": true}));
    }
    let before = match (status.state == A2aTaskState::AuthRequired, refused) {
        (_, Some(why)) => format!("The answer was refused: {why}\n"),
        (true, None) => {
            "It needs an authorization that aye does not have. Grant it where the agent says so, and \
                         answer when that is done; never write a key or password here.\n"
                .to_owned()
        }
        (false, None) => String::new(),
    };
    asked
        .into_iter()
        .enumerate()
        .map(|(at, mut args)| {
            let text = args["question"].as_str().unwrap_or_default();
            args["question"] =
                format!("The remote agent {label} asks, in its own words:\n{before}{text}").into();
            args["header"] = "remote agent".into();
            ToolCall::new(format!("{prefix}-{at}"), ASK_USER, args)
        })
        .collect()
}

/// A question in the form of aye's own server.
fn known_question(data: &Value) -> Option<Value> {
    let text = |key: &str| data.get(key).and_then(Value::as_str);
    let (id, action) = (text("id")?, text("action")?);
    if id.is_empty() || id.len() > 256 {
        return None;
    }
    let mut message = trimmed(text("message").unwrap_or_default(), MAX_TEXT);
    if action == ACTION_PERMISSION {
        let tool = trimmed(text("tool").unwrap_or_default(), MAX_LABEL);
        let call = trimmed(&call_text(&data["arguments"]), MAX_CALL);
        let _ = write!(message, "\n\n{tool}:\n{call}");
        return Some(json!({
            "question": message, "kind": "approval", "id": id, "choices": [APPROVE, DENY], "free_text": true,
        }));
    }
    let asked = data.get("parameters").map(QuestionParameters::read).unwrap_or_default();
    // A label is sent back unchanged, so one that cannot be shown unchanged is left out.
    let is_whole = |label: &String| trimmed(label, MAX_LABEL) == *label;
    let labels = asked.choices.into_iter().flatten().map(|choice| choice.label).filter(is_whole);
    let choices: Vec<String> = labels.take(MAX_CHOICES).collect();
    let free = choices.is_empty() || asked.free_text.unwrap_or(true);
    Some(json!({
        "question": message, "kind": "payload", "id": id, "choices": choices,
        "multi": asked.multi.unwrap_or_default(), "free_text": free,
    }))
}

/// The call that asks what to do about a message that may have arrived.
pub(crate) fn lost_message(label: &str, id: String) -> ToolCall {
    let question = format!(
        "It is not known whether the last message reached the remote agent {label}: the connection was lost before it \
         answered, and it does not list the task. Sent again, it may be carried out twice."
    );
    let args = json!({
        "question": question, "header": "outcome unknown", "kind": "lost", "choices": [SEND_AGAIN, STOP],
        "free_text": false,
    });
    ToolCall::new(id, ASK_USER, args)
}

/// Asks the user the questions of a remote agent. No model sees this tool.
pub(crate) struct RemoteQuestion;

#[async_trait]
impl Tool for RemoteQuestion {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new(ASK_USER, ASK_USER, "Asks the user what the remote agent wants to know.")
            .with_category("person")
            .with_class(ToolClass::Pure)
            .with_primary_argument("question")
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let question = args["question"].as_str().unwrap_or_default().to_owned();
        let free = args["free_text"].as_bool().unwrap_or(true);
        let multi = args["multi"].as_bool().unwrap_or_default();
        let choices = args["choices"].as_array().cloned().unwrap_or_default();
        let mut item = json!({"type": "string"});
        if !free {
            item["enum"] = choices.clone().into();
        }
        let (name, value) = if multi {
            ("answers", json!({"type": "array", "items": item, "minItems": 1}))
        } else {
            ("answer", item)
        };
        let written = |label: &Value| {
            let label = label.as_str()?.to_owned();
            Some(WrittenChoice { label, description: Some(None), value: None })
        };
        let ticket = SuspendTicket {
            suspension: Suspension {
                // Call ids are unique in a run only.
                id: format!("ask_{}_{}", ctx.call_id, ctx.run_identity.run_id).into(),
                action: ACTION_ASK_USER.into(),
                message: question.clone(),
                parameters: QuestionParameters {
                    question: Some(question.clone()),
                    header: Some(args["header"].as_str().map(str::to_owned)),
                    choices: Some(choices.iter().filter_map(written).collect()),
                    multi: Some(multi),
                    free_text: Some(free),
                    ..QuestionParameters::default()
                }
                .into(),
                response_schema: Some(json!({
                    "type": "object",
                    "properties": {name: value},
                    "required": [name],
                    "additionalProperties": false,
                })),
                expires_at: None,
            },
            pending: PendingToolCall {
                id: ctx.call_id.as_str().into(),
                name: ASK_USER.into(),
                arguments: args.clone(),
            },
            resume_mode: ToolCallResumeMode::UseDecisionAsToolResult,
        };
        Ok(ToolResult::suspended_with(ASK_USER, question, ticket).into())
    }
}
