//! The body of a request to Responses of OpenAI.
//!
//! It does not go through genai, which moves all of an answer's reasoning before its text and calls: each reasoning item
//! belongs to the item that follows it, and the provider refuses one that lost it.

use serde_json::{Map, Value, json};

use super::convert::{PICTURES, PreparedMessages, cache_key, is_image, thinks, unseen, wire_id};
use super::provider::WireFormat;
use aye_core::contract::content::{ContentBlock, text_of};
use aye_core::contract::executor::InferenceRequest;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::message::{Message, MessagePart, Role};

const FORM: WireFormat = WireFormat::OpenAiResponses;

/// Builds the body. Everything that stays the same from request to request comes first.
pub(super) fn build(prepared: &PreparedMessages, request: &InferenceRequest) -> Value {
    let model = request.wire_model();
    let overrides = &request.overrides;
    let mut body = Map::new();
    body.insert("model".into(), json!(model));
    body.insert("store".into(), json!(false));
    body.insert("stream".into(), json!(true));
    let effort = overrides.reasoning_effort.and_then(|effort| effort_word(model, effort));
    let thinks = thinks(FORM, model, request);
    if thinks || effort.is_some() {
        let mut reasoning = Map::new();
        reasoning.extend(effort.map(|word| ("effort".to_owned(), json!(word))));
        reasoning.extend(thinks.then(|| ("summary".to_owned(), json!("detailed"))));
        body.insert("reasoning".into(), Value::Object(reasoning));
    }
    if thinks {
        body.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if !prepared.system.is_empty() {
        body.insert("instructions".into(), json!(prepared.system.join("\n\n")));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "type": "function",
                "name": tool.id,
                "description": tool.description,
                "parameters": tool.parameters,
                // Left out, it means strict: every optional argument would become one that must be given.
                "strict": false,
            })
        });
        body.insert("tools".into(), tools.collect());
    }
    body.insert("input".into(), Value::Array(input(prepared)));
    if let Some(temperature) = overrides.temperature {
        body.insert("temperature".into(), json!(temperature));
    }
    if let Some(top_p) = overrides.top_p {
        body.insert("top_p".into(), json!(top_p));
    }
    if let Some(max_tokens) = overrides.max_tokens {
        body.insert("max_output_tokens".into(), json!(max_tokens));
    }
    if request.enable_prompt_cache {
        let first = prepared.messages.first().map(AsRef::as_ref);
        body.insert("prompt_cache_key".into(), json!(cache_key(&prepared.system, &request.tools, first)));
    }
    Value::Object(body)
}

fn effort_word(model: &str, effort: ReasoningEffort) -> Option<&'static str> {
    let name = model.rsplit('/').next().unwrap_or(model);
    match effort {
        // The first models cannot stop thinking.
        ReasoningEffort::None if ["o1", "o3", "o4"].iter().any(|start| name.starts_with(start)) => {
            Some("low")
        }
        ReasoningEffort::None if name == "gpt-5" || name.starts_with("gpt-5-") => Some("minimal"),
        ReasoningEffort::None => Some("none"),
        ReasoningEffort::Low => Some("low"),
        ReasoningEffort::Medium => Some("medium"),
        ReasoningEffort::High => Some("high"),
        ReasoningEffort::Max => Some("xhigh"),
        // There is no field for a budget here.
        ReasoningEffort::Budget(_) => None,
    }
}

fn input(prepared: &PreparedMessages) -> Vec<Value> {
    let mut items = Vec::with_capacity(prepared.messages.len());
    let mut pictures: Vec<Value> = Vec::new();
    for message in &prepared.messages {
        if message.role != Role::Tool {
            show(&mut pictures, &mut items);
        }
        match message.role {
            // None is left here.
            Role::System => {}
            Role::User => items.push(json!({"role": "user", "content": user_content(&message.content)})),
            Role::Assistant => answer(message, &mut items),
            Role::Tool => {
                let found: Vec<Value> =
                    message.content.iter().filter(|block| is_image(block)).filter_map(shown).collect();
                let mut output = text_of(&message.content);
                if output.is_empty() && !found.is_empty() {
                    "The image follows.".clone_into(&mut output);
                }
                pictures.extend(found);
                let id = wire_id(FORM, message.tool_call_id.as_deref().unwrap_or_default());
                items.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
            }
        }
    }
    show(&mut pictures, &mut items);
    items
}

/// Adds the pictures of tool results as a message of the user after them, since results hold text only.
fn show(pictures: &mut Vec<Value>, items: &mut Vec<Value>) {
    if pictures.is_empty() {
        return;
    }
    let mut content = vec![json!({"type": "input_text", "text": PICTURES})];
    content.append(pictures);
    items.push(json!({"role": "user", "content": content}));
}

/// Plain text where it is enough: not every server takes lists.
fn user_content(content: &[ContentBlock]) -> Value {
    if content.iter().any(is_image) {
        return content.iter().filter_map(shown).collect();
    }
    let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).collect();
    json!(texts.join("\n\n"))
}

fn shown(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"type": "input_text", "text": text})),
        ContentBlock::Image { media_type, data } => Some(json!({
            "type": "input_image",
            "detail": "auto",
            "image_url": format!("data:{media_type};base64,{data}"),
        })),
        ContentBlock::StoredImage(image) => Some(json!({"type": "input_text", "text": unseen(image)})),
        ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. } | ContentBlock::ToolCall { .. } => None,
    }
}

/// Adds the items of an answer, as they came: reasoning without the item that it led to is refused.
fn answer(message: &Message, items: &mut Vec<Value>) {
    let mut texts: Vec<Value> = Vec::new();
    let mut thoughts: Vec<Value> = Vec::new();
    let end_text = |texts: &mut Vec<Value>, items: &mut Vec<Value>| {
        if !texts.is_empty() {
            items.push(json!({"type": "message", "role": "assistant", "content": std::mem::take(texts)}));
        }
    };
    for part in message.parts() {
        match part {
            MessagePart::Block(ContentBlock::Text { text }) => {
                items.append(&mut thoughts);
                texts.push(json!({"type": "output_text", "text": text}));
            }
            MessagePart::Block(ContentBlock::Thinking { signature, .. }) => {
                if let Some(proof) = signature.as_deref().and_then(|proof| FORM.unmark(proof)) {
                    end_text(&mut texts, items);
                    thoughts.push(json!({"type": "reasoning", "encrypted_content": proof, "summary": []}));
                }
            }
            MessagePart::Block(
                ContentBlock::Image { .. }
                | ContentBlock::StoredImage(_)
                | ContentBlock::Opaque { .. }
                | ContentBlock::ToolCall { .. },
            ) => {}
            MessagePart::Call(call) => {
                end_text(&mut texts, items);
                items.append(&mut thoughts);
                items.push(json!({
                    "type": "function_call",
                    "call_id": wire_id(FORM, &call.id),
                    "name": call.name,
                    "arguments": call.arguments.to_string(),
                }));
            }
        }
    }
    end_text(&mut texts, items);
}

#[cfg(test)]
mod tests;
