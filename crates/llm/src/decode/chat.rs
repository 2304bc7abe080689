//! Chat completions, of OpenAI and of everyone who says to be compatible.

use serde_json::{Value, json};

use super::super::classify::ModelEndpoint;
use super::super::fold::{CallKey, Fold};
use super::think_tags::ThinkTags;
use super::{openai_usage, text};
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::inference::StopReason;

/// The state kept between two frames.
#[derive(Debug, Default)]
pub(super) struct Chat {
    /// OpenRouter's signed or encrypted thoughts, which it wants back with the next tool turn.
    reasoning_details: Vec<Value>,
    tags: ThinkTags,
}

impl Chat {
    pub(super) fn frame(
        &mut self,
        frame: &Value,
        origin: &ModelEndpoint,
        fold: &mut Fold,
    ) -> Result<(), InferenceExecutionError> {
        // Check this first: an error frame may contain choices and a stop reason as if nothing had happened.
        if let Some(error) = frame.get("error").filter(|error| !error.is_null()) {
            return Err(origin.stream_error(error));
        }
        if let Some(usage) = frame.get("usage").filter(|usage| usage.is_object()) {
            fold.usage(openai_usage(usage));
        }
        // Groq.
        if let Some(usage) = frame.pointer("/x_groq/usage") {
            fold.usage(openai_usage(usage));
        }
        let Some(choice) = frame.get("choices").and_then(|choices| choices.get(0)) else {
            return Ok(());
        };
        if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
            return Err(origin.stream_error(error));
        }
        // Some gateways answer a streaming request with whole messages.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        if let Some(thought) = text(delta, "reasoning_content").or_else(|| text(delta, "reasoning")) {
            fold.reasoning(thought)?;
        }
        self.take_details(delta);
        match delta.get("content") {
            Some(Value::String(content)) => self.tags.text(content, fold)?,
            Some(Value::Array(chunks)) => self.content_chunks(chunks, fold)?,
            _ => {}
        }
        if let Some(refusal) = text(delta, "refusal") {
            // The reason that follows is an ordinary `stop`.
            fold.text(refusal)?;
            fold.withhold(StopReason::Refusal, None);
        }
        if let Some(calls) = delta.get("tool_calls").and_then(Value::as_array) {
            for call in calls {
                tool_call(call, fold)?;
            }
        }
        // From before tools.
        if let Some(call) = delta.get("function_call").filter(|call| call.is_object()) {
            function(call, CallKey::Index(0), None, fold)?;
        }
        if let Some(reason) = text(choice, "finish_reason") {
            fold.stop(match reason {
                "stop" | "eos" | "end_turn" => StopReason::EndTurn,
                // Z.ai, which accepts a request that is too long.
                "model_context_window_exceeded" if fold.is_empty() => {
                    let message = "the prompt fills the model's context window";
                    return Err(origin.stream_error(&json!({"code": reason, "message": message})));
                }
                "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => {
                    StopReason::MaxTokens
                }
                "tool_calls" | "function_call" | "tool_use" => StopReason::ToolUse,
                "stop_sequence" => StopReason::StopSequence,
                "content_filter" | "safety" => StopReason::ContentFilter,
                "refusal" => StopReason::Refusal,
                "error" => return Err(origin.stream_error(&json!("the provider stopped with an error"))),
                // DeepSeek, when it has no room left for the rest.
                "insufficient_system_resource" => {
                    return Err(origin.stream_error(&json!({"code": "overloaded", "message": reason})));
                }
                _ => StopReason::Other,
            });
        }
        Ok(())
    }

    /// Joins the pieces of OpenRouter's `reasoning_details` by their index.
    fn take_details(&mut self, delta: &Value) {
        let Some(details) = delta.get("reasoning_details").and_then(Value::as_array) else { return };
        for detail in details {
            let same = |old: &&mut Value| old["index"] == detail["index"] && old["type"] == detail["type"];
            let Some(old) = self.reasoning_details.last_mut().filter(same) else {
                // Far more than any answer has; a server without end must not fill the memory.
                if self.reasoning_details.len() < 1024 {
                    self.reasoning_details.push(detail.clone());
                }
                continue;
            };
            for (key, value) in detail.as_object().into_iter().flatten() {
                match (old.get_mut(key), value) {
                    (Some(Value::String(old)), Value::String(more))
                        if matches!(key.as_str(), "text" | "summary" | "data") =>
                    {
                        old.push_str(more);
                    }
                    (_, Value::Null) => {}
                    _ => old[key] = value.clone(),
                }
            }
        }
    }

    /// Mistral sends thoughts and text as lists of typed pieces.
    fn content_chunks(&mut self, chunks: &[Value], fold: &mut Fold) -> Result<(), InferenceExecutionError> {
        for chunk in chunks {
            match chunk.get("type").and_then(Value::as_str) {
                Some("text") => self.tags.text(text(chunk, "text").unwrap_or_default(), fold)?,
                Some("thinking") => match chunk.get("thinking") {
                    Some(Value::Array(parts)) => {
                        for part in parts {
                            fold.reasoning(text(part, "text").unwrap_or_default())?;
                        }
                    }
                    Some(Value::String(thought)) => fold.reasoning(thought)?,
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// The answer is complete.
    pub(super) fn end(&mut self, fold: &mut Fold) -> Result<(), InferenceExecutionError> {
        self.tags.flush(fold)?;
        let mut details = std::mem::take(&mut self.reasoning_details);
        // Unsigned plain text proves nothing and is not asked for.
        details.retain(|detail| text(detail, "signature").is_some() || text(detail, "data").is_some());
        if details.is_empty() {
            return Ok(());
        }
        fold.opaque("openai", json!({"reasoning_details": details}))
    }
}

fn tool_call(call: &Value, fold: &mut Fold) -> Result<(), InferenceExecutionError> {
    let key = call.get("index").and_then(Value::as_u64).map_or(CallKey::Last, CallKey::Index);
    let id = text(call, "id");
    match call.get("function") {
        Some(body) => function(body, key, id, fold),
        None => fold.call(key, id, None, None),
    }
}

fn function(
    body: &Value,
    key: CallKey,
    id: Option<&str>,
    fold: &mut Fold,
) -> Result<(), InferenceExecutionError> {
    let name = text(body, "name");
    match body.get("arguments") {
        Some(Value::String(args)) => fold.call(key, id, name, Some(args)),
        // Whole objects instead of text, from servers that think ahead.
        Some(args @ Value::Object(_)) => fold.call(key, id, name, Some(&args.to_string())),
        _ => fold.call(key, id, name, None),
    }
}
