//! The body of a `generateContent` request of Gemini.
//!
//! It does not go through genai, whose reader ends an answer at the first `finishReason`: newer models give one in the
//! middle and write on.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::convert::{PICTURES, PreparedMessages, thinks, unseen};
use super::provider::WireFormat;
use aye_core::contract::content::{ContentBlock, text_of};
use aye_core::contract::executor::InferenceRequest;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::message::{Message, MessagePart, Role};

/// The value that Gemini 3 and newer accept in place of the proof of a call that has none, such as one of
/// another provider.
const NO_PROOF: &str = "skip_thought_signature_validator";

/// The path below the base URL, without its query.
pub(super) fn path(model: &str) -> String {
    format!("models/{model}:streamGenerateContent")
}

pub(super) fn build(prepared: &PreparedMessages, request: &InferenceRequest) -> Value {
    let model = request.wire_model();
    let mut body = Map::new();
    if !prepared.system.is_empty() {
        let text = prepared.system.join("\n\n");
        body.insert("systemInstruction".into(), json!({"parts": [{"text": text}]}));
    }
    if !request.tools.is_empty() {
        let declarations: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.id,
                    "description": tool.description,
                    "parametersJsonSchema": tool.parameters,
                })
            })
            .collect();
        body.insert("tools".into(), json!([{"functionDeclarations": declarations}]));
    }
    body.insert("contents".into(), Value::Array(contents(prepared, is_third(model))));
    let config = generation_config(model, request);
    if !config.is_empty() {
        body.insert("generationConfig".into(), Value::Object(config));
    }
    Value::Object(body)
}

fn generation_config(model: &str, request: &InferenceRequest) -> Map<String, Value> {
    let mut config = Map::new();
    let overrides = &request.overrides;
    if let Some(temperature) = overrides.temperature {
        config.insert("temperature".into(), json!(temperature));
    }
    if let Some(top_p) = overrides.top_p {
        config.insert("topP".into(), json!(top_p));
    }
    if let Some(max_tokens) = overrides.max_tokens {
        config.insert("maxOutputTokens".into(), json!(max_tokens));
    }
    let mut thinking = Map::new();
    if let Some(effort) = overrides.reasoning_effort {
        thinking.extend(thinking_of(model, effort));
    }
    // Without thoughts, asking for them is an error.
    let is_off = thinking.get("thinkingBudget").is_some_and(|budget| *budget == 0);
    if thinks(WireFormat::Gemini, model, request) && !is_off {
        thinking.insert("includeThoughts".into(), json!(true));
    }
    if !thinking.is_empty() {
        config.insert("thinkingConfig".into(), Value::Object(thinking));
    }
    config
}

/// Newer models take a level, older ones a number of tokens. For "not at all", the least is sent that a model accepts.
fn thinking_of(model: &str, effort: ReasoningEffort) -> Option<(String, Value)> {
    if is_third(model) || model.contains("gemma-4") {
        let level = match effort {
            ReasoningEffort::Budget(_) => return None,
            ReasoningEffort::None | ReasoningEffort::Low => "LOW",
            ReasoningEffort::Medium => "MEDIUM",
            ReasoningEffort::High | ReasoningEffort::Max => "HIGH",
        };
        return Some(("thinkingLevel".into(), json!(level)));
    }
    let budget = match effort {
        ReasoningEffort::None if !model.contains("2.5") => return None,
        ReasoningEffort::None if model.contains("pro") => 128,
        ReasoningEffort::None => 0,
        ReasoningEffort::Low => 1000,
        ReasoningEffort::Medium => 8000,
        ReasoningEffort::High | ReasoningEffort::Max => 24_000,
        ReasoningEffort::Budget(tokens) => tokens,
    };
    Some(("thinkingBudget".into(), json!(budget)))
}

/// Returns whether the model is of the third generation or later.
fn is_third(model: &str) -> bool {
    let generation =
        model.split("gemini-").nth(1).and_then(|rest| rest.split(['.', '-']).next()?.parse().ok());
    generation.is_some_and(|generation: u32| generation >= 3)
}

fn contents(prepared: &PreparedMessages, wants_proofs: bool) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(prepared.messages.len());
    // The results of the calls of one turn are one turn.
    let mut results: Vec<Value> = Vec::new();
    let mut pictures: Vec<Value> = Vec::new();
    // A result must carry the name of its call.
    let mut names: HashMap<&str, &str> = HashMap::new();
    for message in &prepared.messages {
        if message.role != Role::Tool {
            end_results(&mut results, &mut pictures, &mut out);
        }
        match message.role {
            // None is left here.
            Role::System => {}
            Role::User => {
                let parts: Vec<Value> = message.content.iter().filter_map(user_part).collect();
                out.push(json!({"role": "user", "parts": parts}));
            }
            Role::Assistant => {
                names.extend(message.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str())));
                let parts = model_parts(message, wants_proofs);
                if !parts.is_empty() {
                    out.push(json!({"role": "model", "parts": parts}));
                }
            }
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let name = names.get(id).copied().unwrap_or(id);
                let found: Vec<Value> = message
                    .content
                    .iter()
                    .filter(|block| {
                        matches!(block, ContentBlock::Image { .. } | ContentBlock::StoredImage(_))
                    })
                    .filter_map(user_part)
                    .collect();
                let mut text = text_of(&message.content);
                if text.is_empty() && !found.is_empty() {
                    "The image follows.".clone_into(&mut text);
                }
                pictures.extend(found);
                results.push(json!({"functionResponse": {
                    "id": id,
                    "name": name,
                    "response": {"name": name, "content": text},
                }}));
            }
        }
    }
    end_results(&mut results, &mut pictures, &mut out);
    out
}

/// Results hold text only; their pictures come in a turn of the user after them.
fn end_results(results: &mut Vec<Value>, pictures: &mut Vec<Value>, out: &mut Vec<Value>) {
    if !results.is_empty() {
        out.push(json!({"role": "user", "parts": std::mem::take(results)}));
    }
    if !pictures.is_empty() {
        let mut parts = vec![json!({"text": PICTURES})];
        parts.append(pictures);
        out.push(json!({"role": "user", "parts": parts}));
    }
}

fn user_part(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"text": text})),
        ContentBlock::Image { media_type, data } => {
            Some(json!({"inline_data": {"mime_type": media_type, "data": data}}))
        }
        ContentBlock::StoredImage(image) => Some(json!({"text": unseen(image)})),
        ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. } | ContentBlock::ToolCall { .. } => None,
    }
}

fn model_parts(message: &Message, wants_proofs: bool) -> Vec<Value> {
    let own = |proof: &str| WireFormat::Gemini.unmark(proof).map(str::to_owned);
    let mut parts = Vec::new();
    // A text, or a call without a proof of its own, takes the proof that precedes it.
    let mut pending: Option<String> = None;
    let mut is_first = true;
    for part in message.parts() {
        match part {
            MessagePart::Block(ContentBlock::Text { text }) => {
                parts.push(with_proof(json!({"text": text}), pending.take()));
            }
            MessagePart::Block(ContentBlock::Thinking { signature, .. }) => {
                pending = signature.as_deref().and_then(own).or(pending);
            }
            MessagePart::Block(_) => {}
            MessagePart::Call(call) => {
                let proof = call
                    .signatures
                    .iter()
                    .find_map(|proof| own(proof))
                    .or_else(|| pending.take())
                    .or_else(|| (wants_proofs && is_first).then(|| NO_PROOF.to_owned()));
                is_first = false;
                let part =
                    json!({"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}});
                parts.push(with_proof(part, proof));
            }
        }
    }
    parts
}

fn with_proof(mut part: Value, proof: Option<String>) -> Value {
    if let Some(proof) = proof {
        part["thoughtSignature"] = Value::String(proof);
    }
    part
}

#[cfg(test)]
mod tests;
