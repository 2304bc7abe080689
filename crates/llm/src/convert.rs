//! Converts our request to the format of each provider.
//!
//! [`prepare`] does what all of them need; what only one needs is done in the function of its wire format.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::provider::WireFormat;
use super::repair::{self, repair};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::digest::{hex, sha256_hex};
use aye_core::contract::executor::InferenceRequest;
use aye_core::contract::image::ImageRef;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::message::{Message, Role, ToolCall};
use aye_core::contract::tool::ToolDescriptor;

/// A conversation in the shape that every provider accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedMessages {
    /// System texts, in order.
    pub system: Vec<String>,
    /// User, assistant and tool messages: the list starts with a user message, never has two user messages in
    /// a row, does not end with an assistant message, and each call has its result directly after it.
    pub messages: Vec<Arc<Message>>,
}

/// Brings a conversation into shape.
///
/// - Unpaired calls and results are repaired.
/// - System messages at the start join the system text. Later ones become a marked part of the user's turn: some
///   providers have one place for system text only, and changing that one would cost the whole prompt cache.
/// - Calls that could not be used are shown as calls without arguments; their results say what was wrong.
pub fn prepare(request: &InferenceRequest) -> PreparedMessages {
    let mut shaper = Shaper { system: system_texts(request), ..Shaper::default() };
    let mut messages = shaper.shape(request.messages.to_vec(), request);
    messages.extend(shaper.end());
    PreparedMessages { system: shaper.system, messages }
}

/// The instructions of a request.
pub(super) fn system_texts(request: &InferenceRequest) -> Vec<String> {
    request.system.iter().filter_map(ContentBlock::as_text).map(str::to_owned).collect()
}

/// The state of a conversation that is shaped piece by piece.
#[derive(Clone, Debug, Default)]
pub(super) struct Shaper {
    /// System texts at its start, in order.
    pub(super) system: Vec<String>,
    /// The role of the last message.
    last: Option<Role>,
}

impl Shaper {
    /// Shapes the next piece of the conversation of `request`. The one before must have ended at a [`split_point`].
    pub(super) fn shape(
        &mut self,
        piece: Vec<Arc<Message>>,
        request: &InferenceRequest,
    ) -> Vec<Arc<Message>> {
        let mut messages: Vec<Arc<Message>> = Vec::with_capacity(piece.len() + 1);
        // Most messages are shared with the conversation; only those that differ here are copied.
        for mut message in repair(piece) {
            if message.content.iter().any(is_blank) {
                Arc::make_mut(&mut message).content.retain(|block| !is_blank(block));
            }
            match message.role {
                Role::System if self.last.is_none() => {
                    let text = message.text();
                    if !text.is_empty() {
                        self.system.push(text);
                    }
                    continue;
                }
                Role::System => {
                    let text = message.text();
                    if text.is_empty() {
                        continue;
                    }
                    let text = format!("<system-reminder>\n{text}\n</system-reminder>");
                    let message = Arc::make_mut(&mut message);
                    message.role = Role::User;
                    message.content = vec![ContentBlock::text(text)];
                }
                Role::User if message.content.is_empty() => continue,
                Role::Assistant if !has_content(&message) => continue,
                Role::Assistant => {
                    let is_odd = |call: &ToolCall| {
                        call.invalid.is_some() || !call.arguments.is_object() || !is_offered(call, request)
                    };
                    if message.tool_calls.iter().any(is_odd) {
                        for call in &mut Arc::make_mut(&mut message).tool_calls {
                            call.name = wire_name(call, request);
                            if call.invalid.is_some() || !call.arguments.is_object() {
                                call.arguments = Value::Object(Map::new());
                            }
                        }
                    }
                }
                Role::User | Role::Tool => {}
            }
            if self.last.is_none() && message.role != Role::User {
                messages.push(Arc::new(Message::user("(The start of this conversation was left out.)")));
            }
            self.last = Some(message.role);
            match messages.last_mut() {
                Some(last) if last.role == Role::User && message.role == Role::User => {
                    Arc::make_mut(last).content.extend(Arc::unwrap_or_clone(message).content);
                }
                _ => messages.push(message),
            }
        }
        messages
    }

    /// Returns the message with which a conversation has to end if it does not end with a user message or a
    /// result.
    pub(super) fn end(&self) -> Option<Arc<Message>> {
        let is_open = self.last.is_none_or(|last| last == Role::Assistant);
        is_open.then(|| Arc::new(Message::user("Continue.")))
    }
}

/// Returns the last position at which a conversation can be shaped in two pieces with the same result as
/// shaping the whole: after an answer or a result, where no call is without its result.
pub(super) fn split_point(messages: &[Arc<Message>]) -> usize {
    let ordered = &messages[..repair::ordered(messages)];
    let ends = |message: &Arc<Message>| match message.role {
        Role::Assistant => has_content(message),
        Role::Tool => true,
        Role::System | Role::User => false,
    };
    ordered.iter().rposition(ends).map_or(0, |at| at + 1)
}

/// Returns whether an assistant's message has content to send. Thoughts alone do not count.
fn has_content(message: &Message) -> bool {
    let is_content = |block: &ContentBlock| match block {
        ContentBlock::Text { .. } => !is_blank(block),
        ContentBlock::Image { .. } => true,
        _ => false,
    };
    !message.tool_calls.is_empty() || message.content.iter().any(is_content)
}

fn is_blank(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::Text { text } if text.trim().is_empty())
}

fn is_offered(call: &ToolCall, request: &InferenceRequest) -> bool {
    request.tools.iter().any(|tool| tool.id == call.name)
}

/// The name of a past call. Providers refuse the whole conversation for one odd name in it, and a model may have made
/// up any.
fn wire_name(call: &ToolCall, request: &InferenceRequest) -> String {
    if is_offered(call, request) {
        return call.name.clone();
    }
    let name: String = call
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .take(64)
        .collect();
    if name.is_empty() { "unnamed_tool".into() } else { name }
}

/// A call id in the alphabet that the provider accepts; another provider's ids may hold more.
pub(super) fn wire_id(adapter: WireFormat, id: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let accepted = match adapter {
        WireFormat::Anthropic => id.len() <= 64 && id.chars().all(plain),
        WireFormat::OpenAiResponses => id.len() <= 64,
        WireFormat::OpenAi => id.len() <= 40 && id.chars().all(|c| c.is_ascii_graphic()),
        WireFormat::Gemini | WireFormat::Ollama => true,
    };
    if accepted {
        return Cow::Borrowed(id);
    }
    Cow::Owned(format!("call_{}", &sha256_hex(id)[..24]))
}

/// Returns one key for all conversations with the same start, so that a provider routes them to where that
/// start is cached.
pub(super) fn cache_key(system: &[String], tools: &[ToolDescriptor], first: Option<&Message>) -> String {
    let mut hash = Sha256::new();
    for text in system {
        hash.update(text.as_bytes());
    }
    for tool in tools {
        hash.update(tool.id.as_bytes());
    }
    if let Some(first) = first {
        hash.update(first.text().as_bytes());
    }
    format!("aye-{}", &hex(&hash.finalize())[..32])
}

/// Returns whether a model accepts parameters about thinking; the others refuse a request that has one.
pub(super) fn thinks(adapter: WireFormat, model: &str, request: &InferenceRequest) -> bool {
    if request.overrides.reasoning_effort.is_some_and(|effort| effort != ReasoningEffort::None) {
        return true;
    }
    let name = model.rsplit('/').next().unwrap_or(model);
    match adapter {
        WireFormat::OpenAiResponses => {
            ["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"].iter().any(|start| name.starts_with(start))
                && !name.contains("chat")
        }
        WireFormat::Gemini => ["2.5", "gemini-3", "gemini-4"].iter().any(|part| name.contains(part)),
        WireFormat::Anthropic | WireFormat::Ollama | WireFormat::OpenAi => true,
    }
}

/// The texts of a message as one.
pub(super) fn joined<'a>(content: &'a [ContentBlock], between: &str) -> Cow<'a, str> {
    let mut texts = content.iter().filter_map(ContentBlock::as_text);
    let Some(first) = texts.next() else { return Cow::Borrowed("") };
    texts.fold(Cow::Borrowed(first), |whole, text| Cow::Owned([&whole, between, text].concat()))
}

/// Returns the text that a model reads in place of an image whose bytes are not sent with the request.
pub(super) fn unseen(image: &ImageRef) -> String {
    format!("[image omitted from this request: {image}]")
}

/// Returns whether a block is an image, or stands for one.
pub(super) fn is_image(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::Image { .. } | ContentBlock::StoredImage(_))
}

/// The text before images that belong to tool results.
pub(super) const PICTURES: &str = "Images from the tool results above:";

/// Returns whether the result of a call is an error.
pub(super) fn is_error(message: &Message) -> bool {
    message
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.pointer("/tool_result/status"))
        .and_then(Value::as_str)
        .is_some_and(|status| status == "error")
}

#[cfg(test)]
mod tests;
