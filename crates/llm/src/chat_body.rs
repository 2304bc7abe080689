//! The body of a chat completions request.
//!
//! This wire form alone does not go through genai. It is the one that every gateway and local server speaks in its own
//! way, and genai cannot be made right for it from outside: it cuts effort-like ends off model names, must have a key
//! to send, echoes thoughts to servers that refuse the field, and its transport has no bound on the size of an event.

use serde_json::{Map, Value, json};

use super::classify::Origin;
use super::convert::{PICTURES, Prepared, cache_key, unseen};
use aye_core::contract::content::{ContentBlock, text_of};
use aye_core::contract::executor::InferenceRequest;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::message::{Message, Role};

/// What the server behind an address is known to want or to refuse.
#[derive(Clone, Copy, Debug, Default)]
struct Habits {
    /// OpenAI itself.
    openai: bool,
    /// Wants thoughts back in the same turn; others refuse the unknown field, so it is an exception.
    echo_thoughts: bool,
    /// Wants its own reasoning details back.
    openrouter: bool,
}

impl Habits {
    fn of(origin: &Origin) -> Self {
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
        }
    }
}

/// The body.
pub(super) fn build(prepared: &Prepared, request: &InferenceRequest, origin: &Origin) -> Value {
    let habits = Habits::of(origin);
    let model = request.wire_model();
    let mut body = Map::new();
    body.insert("model".into(), json!(model));
    body.insert("stream".into(), json!(true));
    body.insert("stream_options".into(), json!({"include_usage": true}));
    // Tools stand before the messages, and in a stable order: what does not change comes first, for the cache.
    if !request.tools.is_empty() {
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({"type": "function", "function": {
                    "name": tool.id,
                    "description": tool.description,
                    "parameters": tool.parameters,
                }})
            })
            .collect();
        body.insert("tools".into(), Value::Array(tools));
    }
    body.insert("messages".into(), Value::Array(messages(prepared, habits)));
    let overrides = &request.overrides;
    if let Some(temperature) = overrides.temperature {
        body.insert("temperature".into(), json!(temperature));
    }
    if let Some(top_p) = overrides.top_p {
        body.insert("top_p".into(), json!(top_p));
    }
    if let Some(max_tokens) = overrides.max_tokens {
        let new_name = ["gpt-5", "gpt-6", "o1", "o3", "o4"].iter().any(|start| model.starts_with(start));
        let key = if new_name { "max_completion_tokens" } else { "max_tokens" };
        body.insert(key.into(), json!(max_tokens));
    }
    let effort = match overrides.reasoning_effort {
        Some(ReasoningEffort::None) => Some("none"),
        Some(ReasoningEffort::Low) => Some("low"),
        Some(ReasoningEffort::Medium) => Some("medium"),
        Some(ReasoningEffort::High) => Some("high"),
        Some(ReasoningEffort::Max) => Some("xhigh"),
        // There is no field for it here.
        Some(ReasoningEffort::Budget(_)) | None => None,
    };
    if let Some(effort) = effort {
        body.insert("reasoning_effort".into(), json!(effort));
    }
    if request.enable_prompt_cache && habits.openai {
        body.insert("prompt_cache_key".into(), json!(cache_key(prepared, request)));
    }
    Value::Object(body)
}

fn messages(prepared: &Prepared, habits: Habits) -> Vec<Value> {
    let mut out = Vec::with_capacity(prepared.messages.len() + 1);
    if !prepared.system.is_empty() {
        out.push(json!({"role": "system", "content": prepared.system.join("\n\n")}));
    }
    let mut pictures: Vec<Value> = Vec::new();
    for message in &prepared.messages {
        if message.role != Role::Tool {
            show(&mut pictures, &mut out);
        }
        match message.role {
            // None is left here.
            Role::System => {}
            Role::User => out.push(json!({"role": "user", "content": user_content(&message.content)})),
            Role::Assistant => out.push(assistant(message, habits)),
            Role::Tool => {
                let found: Vec<Value> = message.content.iter().filter_map(image).collect();
                let mut text = text_of(&message.content);
                if text.is_empty() && !found.is_empty() {
                    "The image follows.".clone_into(&mut text);
                }
                pictures.extend(found);
                out.push(json!({"role": "tool", "tool_call_id": message.tool_call_id, "content": text}));
            }
        }
    }
    show(&mut pictures, &mut out);
    out
}

/// Results hold text only; their pictures come in a message of the user behind them.
fn show(pictures: &mut Vec<Value>, out: &mut Vec<Value>) {
    if pictures.is_empty() {
        return;
    }
    let mut parts = vec![json!({"type": "text", "text": PICTURES})];
    parts.append(pictures);
    out.push(json!({"role": "user", "content": parts}));
}

fn image(block: &ContentBlock) -> Option<Value> {
    let ContentBlock::Image { media_type, data } = block else {
        return block.as_stored_image().map(|image| json!({"type": "text", "text": unseen(image)}));
    };
    Some(json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}}))
}

/// Plain text where it is enough: not every server takes lists.
fn user_content(content: &[ContentBlock]) -> Value {
    if content.iter().any(|block| matches!(block, ContentBlock::Image { .. } | ContentBlock::StoredImage(_)))
    {
        let parts = content
            .iter()
            .filter_map(|block| match block {
                ContentBlock::Text { text } => Some(json!({"type": "text", "text": text})),
                _ => image(block),
            })
            .collect();
        return Value::Array(parts);
    }
    let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).collect();
    json!(texts.join("\n\n"))
}

fn assistant(message: &Message, habits: Habits) -> Value {
    let text = text_of(&message.content);
    let mut out = Map::new();
    out.insert("role".into(), json!("assistant"));
    out.insert("content".into(), if text.is_empty() { Value::Null } else { json!(text) });
    if !message.tool_calls.is_empty() {
        let calls: Vec<Value> = message
            .tool_calls
            .iter()
            .map(|call| {
                json!({"id": call.id, "type": "function", "function": {
                    "name": call.name,
                    "arguments": call.arguments.to_string(),
                }})
            })
            .collect();
        out.insert("tool_calls".into(), Value::Array(calls));
    }
    if habits.echo_thoughts {
        let thoughts: String = message
            .content
            .iter()
            .filter_map(|block| match block {
                ContentBlock::Thinking { thinking, .. } => Some(thinking.as_str()),
                ContentBlock::Text { .. }
                | ContentBlock::Image { .. }
                | ContentBlock::StoredImage(_)
                | ContentBlock::Opaque { .. } => None,
            })
            .collect();
        if !thoughts.is_empty() {
            out.insert("reasoning_content".into(), json!(thoughts));
        }
    }
    if habits.openrouter {
        for block in &message.content {
            if let ContentBlock::Opaque { provider, data } = block
                && provider == "openai"
                && let Some(details) = data.get("reasoning_details")
            {
                out.insert("reasoning_details".into(), details.clone());
            }
        }
    }
    Value::Object(out)
}

#[cfg(test)]
#[path = "chat_body_tests.rs"]
mod tests;
