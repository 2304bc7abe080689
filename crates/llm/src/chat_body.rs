//! The body of a chat completions request.
//!
//! It does not go through genai. It is the wire form that every gateway and local server speaks in its own way, and
//! genai cannot be made right for it from outside: it cuts effort-like ends off model names, must have a key to send,
//! echoes thoughts to servers that refuse the field, and its transport has no bound on the size of an event.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::classify::ModelEndpoint;
use super::convert::{PICTURES, Shaper, cache_key, joined, split_point, system_texts, unseen, wire_id};
use super::provider::WireFormat;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::executor::InferenceRequest;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::message::{Message, Role};

/// More is not kept for the next request: then it is nearly all pictures.
const KEPT: usize = 4 << 20;

/// The known requirements and restrictions of the server at a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ServerQuirks {
    openai: bool,
    /// Wants thoughts back in the same turn; others refuse the unknown field, so it is an exception.
    echo_thoughts: bool,
    /// Wants its own reasoning details back.
    openrouter: bool,
    /// Accepts only call ids of nine letters and digits.
    short_ids: bool,
}

impl ServerQuirks {
    fn of(origin: &ModelEndpoint) -> Self {
        let url = origin.base_url.to_ascii_lowercase();
        let model = origin.model.to_ascii_lowercase();
        let openrouter = url.contains("openrouter.ai");
        Self {
            openai: url.contains("//api.openai.com"),
            echo_thoughts: !openrouter
                && ["deepseek", "moonshot", "kimi"]
                    .iter()
                    .any(|name| url.contains(name) || model.contains(name)),
            openrouter,
            short_ids: ["mistral", "magistral", "devstral", "codestral", "ministral"]
                .iter()
                .any(|name| url.contains(name) || model.contains(name)),
        }
    }

    /// A call id that the server accepts; another provider's ids may be longer or hold other characters.
    fn id(self, id: &str) -> Cow<'_, str> {
        if !self.short_ids {
            return wire_id(WireFormat::OpenAi, id);
        }
        if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Cow::Borrowed(id);
        }
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let hash = Sha256::digest(id.as_bytes());
        Cow::Owned(hash.iter().take(9).map(|byte| char::from(DIGITS[usize::from(byte % 36)])).collect())
    }
}

/// The part of the body before the messages: stable fields come first, for the provider's cache.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Offer<'a>>,
}

/// The part of the body after the messages.
#[derive(Serialize)]
struct Tail {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// A tool on offer.
#[derive(Serialize)]
pub(super) struct Offer<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Offered<'a>,
}

#[derive(Serialize)]
struct Offered<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: String,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
        #[serde(skip_serializing_if = "String::is_empty")]
        reasoning_content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_details: Option<&'a Value>,
    },
    Tool {
        tool_call_id: Option<Cow<'a, str>>,
        content: Cow<'a, str>,
    },
}

/// Plain text where it is enough: not every server takes lists.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Called<'a>,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: String,
}

/// The messages of a request as they were sent. The conversation's next request starts with the same
/// messages, and encoding them again would cost more with each turn.
#[derive(Debug)]
struct Encoded {
    quirks: ServerQuirks,
    /// The tools that were offered: calls of others have other names.
    tools: Vec<String>,
    /// The messages that were encoded.
    messages: Vec<Arc<Message>>,
    shaper: Shaper,
    /// The first message that was sent.
    first: Option<Arc<Message>>,
    /// The members of the list, with commas between them.
    items: Vec<u8>,
}

impl Encoded {
    fn nothing(quirks: ServerQuirks, request: &InferenceRequest) -> Self {
        let tools = request.tools.iter().map(|tool| tool.id.clone()).collect();
        let (messages, shaper) = (Vec::new(), Shaper::default());
        Self { quirks, tools, messages, shaper, first: None, items: Vec::new() }
    }

    /// Returns whether a request starts with exactly these messages.
    fn begins(&self, quirks: ServerQuirks, request: &InferenceRequest) -> bool {
        let reads_same = |(known, message): (&Arc<Message>, &Arc<Message>)| {
            Arc::ptr_eq(known, message)
                || known.role == message.role
                    && known.content == message.content
                    && known.tool_calls == message.tool_calls
                    && known.tool_call_id == message.tool_call_id
        };
        self.quirks == quirks
            && self.messages.len() <= request.messages.len()
            && self.tools.iter().eq(request.tools.iter().map(|tool| &tool.id))
            && self.messages.iter().zip(request.messages.iter()).all(reads_same)
    }

    /// Adds the part of a request with which all later requests start.
    fn extend(&mut self, request: &InferenceRequest) -> serde_json::Result<()> {
        let new = &request.messages[self.messages.len()..];
        let new = &new[..split_point(new)];
        let shaped = self.shaper.shape(new.to_vec(), request);
        encode(&shaped, self.quirks, &mut self.items)?;
        self.first = self.first.take().or_else(|| shaped.first().cloned());
        self.messages.extend_from_slice(new);
        Ok(())
    }
}

/// Builds request bodies, and remembers the start of the last one.
#[derive(Debug, Default)]
pub(super) struct ChatBodies {
    last: Mutex<Option<Encoded>>,
    /// The server refuses `stream_options`, and reports no usage.
    without_stream_options: AtomicBool,
}

impl ChatBodies {
    /// Leaves `stream_options` out from now on. Returns `false` if it was left out already.
    pub(super) fn omit_stream_options(&self) -> bool {
        !self.without_stream_options.swap(true, Ordering::Relaxed)
    }

    /// Builds the body of a request.
    pub(super) fn build(
        &self,
        request: &InferenceRequest,
        origin: &ModelEndpoint,
    ) -> serde_json::Result<Vec<u8>> {
        let quirks = ServerQuirks::of(origin);
        let known = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        let known = known.filter(|known| known.begins(quirks, request));
        let mut known = known.unwrap_or_else(|| Encoded::nothing(quirks, request));
        known.extend(request)?;
        let mut shaper = known.shaper.clone();
        let mut rest = shaper.shape(request.messages[known.messages.len()..].to_vec(), request);
        rest.extend(shaper.end());
        let system = [system_texts(request), shaper.system].concat();
        let first = known.first.as_ref().or(rest.first()).map(Arc::as_ref);
        let tail = serde_json::to_vec(&tail(request, quirks, || cache_key(&system, &request.tools, first)))?;
        let mut before = Vec::new();
        if !system.is_empty() {
            serde_json::to_writer(&mut before, &WireMessage::System { content: system.join("\n\n") })?;
        }
        let mut behind = Vec::new();
        encode(&rest, quirks, &mut behind)?;
        let head = serde_json::to_vec(&head(request, !self.without_stream_options.load(Ordering::Relaxed)))?;
        let parts = [&before, &known.items, &behind];
        let length = parts.iter().map(|part| part.len() + 1).sum::<usize>();
        let mut body = Vec::with_capacity(head.len() + length + tail.len() + 16);
        body.extend_from_slice(&head[..head.len() - 1]);
        body.extend_from_slice(b",\"messages\":[");
        for (nth, part) in parts.into_iter().filter(|part| !part.is_empty()).enumerate() {
            body.extend_from_slice(if nth > 0 { b"," } else { b"" });
            body.extend_from_slice(part);
        }
        body.push(b']');
        body.extend_from_slice(if tail.len() > 2 { b"," } else { b"" });
        body.extend_from_slice(&tail[1..]);
        if known.items.len() <= KEPT {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        }
        Ok(body)
    }
}

/// The tools of a request.
pub(super) fn offers(request: &InferenceRequest) -> Vec<Offer<'_>> {
    let tools = request.tools.iter().map(|tool| Offer {
        kind: "function",
        function: Offered { name: &tool.id, description: &tool.description, parameters: &tool.parameters },
    });
    tools.collect()
}

fn head(request: &InferenceRequest, asks_usage: bool) -> Head<'_> {
    Head {
        model: request.wire_model(),
        stream: true,
        stream_options: asks_usage.then_some(StreamOptions { include_usage: true }),
        tools: offers(request),
    }
}

fn tail(request: &InferenceRequest, quirks: ServerQuirks, key: impl FnOnce() -> String) -> Tail {
    let model = request.wire_model();
    let overrides = &request.overrides;
    let has_new_name = ["gpt-5", "gpt-6", "o1", "o3", "o4"].iter().any(|start| model.starts_with(start));
    Tail {
        temperature: overrides.temperature,
        top_p: overrides.top_p,
        max_completion_tokens: overrides.max_tokens.filter(|_| has_new_name),
        max_tokens: overrides.max_tokens.filter(|_| !has_new_name),
        reasoning_effort: match overrides.reasoning_effort {
            Some(ReasoningEffort::None) => Some("none"),
            Some(ReasoningEffort::Low) => Some("low"),
            Some(ReasoningEffort::Medium) => Some("medium"),
            Some(ReasoningEffort::High) => Some("high"),
            Some(ReasoningEffort::Max) => Some("xhigh"),
            // There is no field for a budget here.
            Some(ReasoningEffort::Budget(_)) | None => None,
        },
        prompt_cache_key: (request.enable_prompt_cache && quirks.openai).then(key),
    }
}

/// Appends messages to the members of a list.
fn encode(messages: &[Arc<Message>], quirks: ServerQuirks, items: &mut Vec<u8>) -> serde_json::Result<()> {
    for message in wire_messages(messages, quirks) {
        if !items.is_empty() {
            items.push(b',');
        }
        serde_json::to_writer(&mut *items, &message)?;
    }
    Ok(())
}

fn wire_messages(messages: &[Arc<Message>], quirks: ServerQuirks) -> Vec<WireMessage<'_>> {
    let mut out = Vec::with_capacity(messages.len());
    let mut pictures: Vec<Part<'_>> = Vec::new();
    for message in messages {
        if message.role != Role::Tool {
            show(&mut pictures, &mut out);
        }
        match message.role {
            // None is left here.
            Role::System => {}
            Role::User => out.push(WireMessage::User { content: user_content(&message.content) }),
            Role::Assistant => out.push(assistant(message, quirks)),
            Role::Tool => {
                let before = pictures.len();
                pictures.extend(message.content.iter().filter_map(image));
                let mut content = joined(&message.content, "");
                if content.is_empty() && pictures.len() > before {
                    content = "The image follows.".into();
                }
                let id = message.tool_call_id.as_deref().map(|id| quirks.id(id));
                out.push(WireMessage::Tool { tool_call_id: id, content });
            }
        }
    }
    show(&mut pictures, &mut out);
    out
}

/// Adds the pictures of tool results as a user message after them, since results can only contain text.
fn show<'a>(pictures: &mut Vec<Part<'a>>, out: &mut Vec<WireMessage<'a>>) {
    if pictures.is_empty() {
        return;
    }
    let mut parts = vec![Part::Text { text: PICTURES.into() }];
    parts.append(pictures);
    out.push(WireMessage::User { content: Content::Parts(parts) });
}

fn image(block: &ContentBlock) -> Option<Part<'_>> {
    let ContentBlock::Image { media_type, data } = block else {
        return block.as_stored_image().map(|image| Part::Text { text: unseen(image).into() });
    };
    Some(Part::ImageUrl { image_url: ImageUrl { url: format!("data:{media_type};base64,{data}") } })
}

fn user_content(content: &[ContentBlock]) -> Content<'_> {
    if content.iter().any(|block| matches!(block, ContentBlock::Image { .. } | ContentBlock::StoredImage(_)))
    {
        let parts = content.iter().filter_map(|block| match block {
            ContentBlock::Text { text } => Some(Part::Text { text: text.into() }),
            _ => image(block),
        });
        return Content::Parts(parts.collect());
    }
    Content::Text(joined(content, "\n\n"))
}

fn assistant(message: &Message, quirks: ServerQuirks) -> WireMessage<'_> {
    let calls = message.tool_calls.iter().map(|call| Call {
        id: quirks.id(&call.id),
        kind: "function",
        function: Called { name: &call.name, arguments: call.arguments.to_string() },
    });
    let thoughts = message.content.iter().filter_map(|block| match block {
        ContentBlock::Thinking { thinking, .. } if quirks.echo_thoughts => Some(thinking.as_str()),
        _ => None,
    });
    let details = message.content.iter().rev().find_map(|block| match block {
        ContentBlock::Opaque { provider, data } if quirks.openrouter && provider == "openai" => {
            data.get("reasoning_details")
        }
        _ => None,
    });
    WireMessage::Assistant {
        content: Some(joined(&message.content, "")).filter(|text| !text.is_empty()),
        tool_calls: calls.collect(),
        reasoning_content: thoughts.collect(),
        reasoning_details: details,
    }
}

#[cfg(test)]
mod tests;
