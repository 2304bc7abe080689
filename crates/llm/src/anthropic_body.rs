//! The body of a request to Messages of Anthropic.
//!
//! It does not go through genai, which moves every thinking block before the text and the calls: the newest models think
//! between them, and refuse an answer of theirs that comes back in another order.

use serde_json::{Map, Value, json};

use super::claude::{Claude, ThinkingForm};
use super::convert::{PreparedMessages, is_error, unseen, wire_id};
use super::provider::WireFormat;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::executor::InferenceRequest;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::message::{Message, MessagePart, Role};

/// The version of the interface, for the header `anthropic-version`.
pub(super) const VERSION: &str = "2023-06-01";
/// The smallest budget for thoughts that is accepted.
const LEAST_BUDGET: u32 = 1024;

/// Builds the body. Everything that stays the same from request to request comes first.
pub(super) fn build(prepared: &PreparedMessages, request: &InferenceRequest) -> Value {
    let model = request.wire_model();
    let overrides = &request.overrides;
    let claude = Claude::of(model);
    let mut body = Map::new();
    body.insert("model".into(), json!(model));
    // The only wire format that requires a limit.
    let max_tokens = overrides.max_tokens.unwrap_or_else(|| claude.max_output());
    body.insert("max_tokens".into(), json!(max_tokens));
    body.insert("stream".into(), json!(true));
    let turns = turns(prepared, request.enable_prompt_cache);
    if let Some(effort) = overrides.reasoning_effort {
        think(claude, effort, is_late(&turns), &mut body);
    }
    if let Some(temperature) = overrides.temperature {
        body.insert("temperature".into(), json!(temperature));
    }
    if let Some(top_p) = overrides.top_p {
        body.insert("top_p".into(), json!(top_p));
    }
    let marks = request.enable_prompt_cache;
    if !prepared.system.is_empty() {
        body.insert("system".into(), system(&prepared.system, marks));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(
            |tool| json!({"name": tool.id, "description": tool.description, "input_schema": tool.parameters}),
        );
        let mut tools: Vec<Value> = tools.collect();
        mark_last(marks, &mut tools);
        body.insert("tools".into(), Value::Array(tools));
    }
    let messages = turns.into_iter().map(|(role, content)| json!({"role": role, "content": content}));
    body.insert("messages".into(), messages.collect());
    Value::Object(body)
}

/// Adds what asks a model to think this much.
fn think(claude: Claude, effort: ReasoningEffort, is_late: bool, body: &mut Map<String, Value>) {
    let effort = match effort {
        ReasoningEffort::None if claude.always_thinks() => ReasoningEffort::Low,
        ReasoningEffort::None => {
            // Off is the default of the others.
            if claude.thinks_by_default() {
                body.insert("thinking".into(), json!({"type": "disabled"}));
            }
            return;
        }
        wanted => wanted,
    };
    if let Some(word) = claude.effort(effort) {
        body.insert("output_config".into(), json!({"effort": word}));
    }
    let budget = match effort {
        ReasoningEffort::None | ReasoningEffort::Low => LEAST_BUDGET,
        ReasoningEffort::Medium => 8000,
        ReasoningEffort::High | ReasoningEffort::Max => 24_000,
        ReasoningEffort::Budget(tokens) => tokens,
    };
    if claude.thinking() == ThinkingForm::Adaptive {
        // Without a summary, nothing is seen of what it does before its first text.
        let mut thinking = json!({"type": "adaptive", "display": "summarized"});
        if let ReasoningEffort::Budget(tokens) = effort {
            thinking["budget_tokens"] = json!(tokens);
        }
        body.insert("thinking".into(), thinking);
        return;
    }
    // The budget is a part of the limit on the answer.
    let room = body["max_tokens"].as_u64().unwrap_or_default().saturating_sub(1);
    let budget = u64::from(budget).min(room);
    if !is_late && budget >= u64::from(LEAST_BUDGET) {
        body.insert("thinking".into(), json!({"type": "enabled", "budget_tokens": budget}));
    }
}

/// Returns whether the model is in the middle of an answer that it began without thoughts, such as one of another model:
/// a model that thinks by budget refuses to start there.
fn is_late(turns: &[(&'static str, Vec<Value>)]) -> bool {
    let Some(last) = turns.iter().rposition(|(role, _)| *role == "assistant") else { return false };
    let is_result = |block: &Value| block["type"] == "tool_result";
    let is_open = turns[last + 1..].iter().flat_map(|(_, blocks)| blocks).any(is_result);
    let is_thought = |block: &Value| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
    is_open && !turns[last].1.first().is_some_and(is_thought)
}

fn system(texts: &[String], marks: bool) -> Value {
    if !marks {
        return json!(texts.join("\n\n"));
    }
    // Blocks of their own, so that the last one can carry a mark.
    let mut blocks: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
    mark_last(marks, &mut blocks);
    Value::Array(blocks)
}

/// Marks where a later request finds its start in the cache.
fn mark_last(marks: bool, blocks: &mut [Value]) {
    if marks && let Some(last) = blocks.last_mut() {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
}

/// The messages: who speaks, and the blocks.
fn turns(prepared: &PreparedMessages, marks: bool) -> Vec<(&'static str, Vec<Value>)> {
    let mut turns: Vec<(&'static str, Vec<Value>)> = Vec::with_capacity(prepared.messages.len());
    let mut is_after_result = false;
    for message in &prepared.messages {
        let is_result = message.role == Role::Tool;
        match message.role {
            // None is left here.
            Role::System => {}
            Role::User => turns.push(("user", message.content.iter().filter_map(shown).collect())),
            Role::Assistant => {
                let blocks = answer(message);
                if !blocks.is_empty() {
                    turns.push(("assistant", blocks));
                }
            }
            Role::Tool => match turns.last_mut().filter(|_| is_after_result) {
                // All results of an answer belong into one message.
                Some((_, results)) => results.push(result(message)),
                None => turns.push(("user", vec![result(message)])),
            },
        }
        is_after_result = is_result;
    }
    if let Some((last, before)) = turns.split_last_mut() {
        mark_last(marks, &mut last.1);
        // Mark the end of the previous request: its cache entry is then found again, even if text that plugins added at
        // its end is gone by now.
        let answered = before.iter().rposition(|(role, _)| *role == "assistant").unwrap_or(0);
        if let Some((_, blocks)) = before[..answered].last_mut() {
            mark_last(marks, blocks);
        }
    }
    turns
}

fn shown(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"type": "text", "text": text})),
        ContentBlock::Image { media_type, data } => Some(json!({
            "type": "image",
            "source": {"type": "base64", "media_type": media_type, "data": data},
        })),
        ContentBlock::StoredImage(image) => Some(json!({"type": "text", "text": unseen(image)})),
        ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. } | ContentBlock::ToolCall { .. } => None,
    }
}

/// The blocks of an answer, as they came: a thinking block is refused anywhere else.
fn answer(message: &Message) -> Vec<Value> {
    let mut blocks = Vec::new();
    // Thoughts are not accepted at the end.
    let mut thoughts = Vec::new();
    for part in message.parts() {
        let block = match part {
            MessagePart::Block(ContentBlock::Text { text }) => json!({"type": "text", "text": text}),
            MessagePart::Block(ContentBlock::Thinking { thinking, signature }) => {
                // Thoughts without a proof of this provider are refused or worth nothing.
                let proof = signature.as_deref().and_then(|proof| WireFormat::Anthropic.unmark(proof));
                thoughts.extend(
                    proof.map(|proof| json!({"type": "thinking", "thinking": thinking, "signature": proof})),
                );
                continue;
            }
            MessagePart::Block(ContentBlock::Opaque { provider, data }) => {
                if provider == WireFormat::Anthropic.as_str() {
                    thoughts.push(data.clone());
                }
                continue;
            }
            MessagePart::Block(
                ContentBlock::Image { .. } | ContentBlock::StoredImage(_) | ContentBlock::ToolCall { .. },
            ) => continue,
            MessagePart::Call(call) => json!({
                "type": "tool_use",
                "id": wire_id(WireFormat::Anthropic, &call.id),
                "name": call.name,
                "input": call.arguments,
            }),
        };
        blocks.append(&mut thoughts);
        blocks.push(block);
    }
    blocks
}

fn result(message: &Message) -> Value {
    let id = wire_id(WireFormat::Anthropic, message.tool_call_id.as_deref().unwrap_or_default());
    let content: Vec<Value> = message.content.iter().filter_map(shown).collect();
    let mut data = json!({"type": "tool_result", "tool_use_id": id});
    if !content.is_empty() {
        data["content"] = Value::Array(content);
    }
    if is_error(message) {
        data["is_error"] = Value::Bool(true);
    }
    data
}

#[cfg(test)]
mod tests;
