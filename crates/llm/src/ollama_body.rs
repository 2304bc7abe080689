//! The body of a request to `api/chat` of Ollama.
//!
//! It does not go through genai, which cannot send `options.num_ctx`. Without it the server runs a model with a context
//! of its own, often 4,096 tokens, and cuts what is longer off at the front without a word.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

use super::chat_body::{Offer, offers};
use super::convert::{PICTURES, PreparedMessages, joined, unseen};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::executor::InferenceRequest;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::message::{Message, Role, ToolCall};

/// Everything that stays the same from request to request comes first.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    /// A request that is too long is refused, which leads to a summary, instead of losing its start.
    truncate: bool,
    /// An answer that fills the context ends there, instead of losing the start of the conversation.
    shift: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<Value>,
    #[serde(skip_serializing_if = "Options::is_empty")]
    options: Options,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Offer<'a>>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Default, PartialEq, Serialize)]
struct Options {
    /// The same in each request: the server loads the model again for another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
}

impl Options {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Default, Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Cow<'a, str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    function: Called<'a>,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: &'a Value,
}

/// Builds the body of a request to a model that runs with a context of `window` tokens, if that is known.
pub(super) fn build(
    prepared: &PreparedMessages,
    request: &InferenceRequest,
    window: Option<u64>,
) -> serde_json::Result<Vec<u8>> {
    let overrides = &request.overrides;
    serde_json::to_vec(&Body {
        model: request.wire_model(),
        stream: true,
        truncate: false,
        shift: false,
        think: overrides.reasoning_effort.map(think),
        options: Options {
            num_ctx: window,
            num_predict: overrides.max_tokens,
            temperature: overrides.temperature,
            top_p: overrides.top_p,
        },
        tools: offers(request),
        messages: messages(prepared),
    })
}

fn think(effort: ReasoningEffort) -> Value {
    match effort {
        ReasoningEffort::None => json!(false),
        ReasoningEffort::Low => json!("low"),
        ReasoningEffort::Medium => json!("medium"),
        ReasoningEffort::High => json!("high"),
        ReasoningEffort::Max => json!("max"),
        // There is no field for a budget here.
        ReasoningEffort::Budget(_) => json!(true),
    }
}

fn messages(prepared: &PreparedMessages) -> Vec<WireMessage<'_>> {
    let mut out = Vec::with_capacity(prepared.messages.len() + 1);
    if !prepared.system.is_empty() {
        out.push(WireMessage {
            role: "system",
            content: prepared.system.join("\n\n").into(),
            ..WireMessage::default()
        });
    }
    let mut pictures: Vec<&ContentBlock> = Vec::new();
    let mut calls: &[ToolCall] = &[];
    for message in &prepared.messages {
        if message.role != Role::Tool {
            show(&mut pictures, &mut out);
        }
        match message.role {
            // None is left here.
            Role::System => {}
            Role::User => out.push(user(&message.content)),
            Role::Assistant => {
                calls = &message.tool_calls;
                out.push(assistant(message));
            }
            Role::Tool => {
                let before = pictures.len();
                pictures.extend(message.content.iter().filter(|block| super::convert::is_image(block)));
                let mut content = joined(&message.content, "");
                if content.is_empty() && pictures.len() > before {
                    content = "The image follows.".into();
                }
                let id = message.tool_call_id.as_deref();
                let call = calls.iter().find(|call| Some(call.id.as_str()) == id);
                out.push(WireMessage {
                    role: "tool",
                    content,
                    tool_name: call.map(|call| call.name.as_str()),
                    tool_call_id: id,
                    ..WireMessage::default()
                });
            }
        }
    }
    show(&mut pictures, &mut out);
    out
}

/// Adds the pictures of tool results as a user message after them: models look for pictures there.
fn show<'a>(pictures: &mut Vec<&'a ContentBlock>, out: &mut Vec<WireMessage<'a>>) {
    if pictures.is_empty() {
        return;
    }
    let parts = std::iter::once(PICTURES.into()).chain(pictures.iter().filter_map(|block| unsent(block)));
    out.push(WireMessage {
        role: "user",
        content: parts.collect::<Vec<Cow<'_, str>>>().join("\n\n").into(),
        images: pictures.drain(..).filter_map(data).collect(),
        ..WireMessage::default()
    });
}

/// The text in place of an image whose bytes are not sent.
fn unsent(block: &ContentBlock) -> Option<Cow<'static, str>> {
    block.as_stored_image().map(|image| unseen(image).into())
}

fn data(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Image { data, .. } => Some(data),
        _ => None,
    }
}

fn user(content: &[ContentBlock]) -> WireMessage<'_> {
    let texts: Vec<Cow<'_, str>> = content
        .iter()
        .filter_map(|block| block.as_text().map(Cow::Borrowed).or_else(|| unsent(block)))
        .collect();
    WireMessage {
        role: "user",
        content: texts.join("\n\n").into(),
        images: content.iter().filter_map(data).collect(),
        ..WireMessage::default()
    }
}

fn assistant(message: &Message) -> WireMessage<'_> {
    // A proof belongs to the provider that signed it; the thoughts of models here have none.
    let thoughts = message.content.iter().filter_map(|block| match block {
        ContentBlock::Thinking { thinking, signature: None } => Some(thinking.as_str()),
        _ => None,
    });
    let calls = message
        .tool_calls
        .iter()
        .map(|call| Call { id: &call.id, function: Called { name: &call.name, arguments: &call.arguments } });
    WireMessage {
        role: "assistant",
        content: joined(&message.content, ""),
        thinking: thoughts.collect(),
        tool_calls: calls.collect(),
        ..WireMessage::default()
    }
}

#[cfg(test)]
mod tests;
