//! `api/chat` of Ollama: one JSON object a line.

use serde_json::Value;

use super::super::classify::ModelEndpoint;
use super::super::fold::{CallKey, Fold};
use super::think_tags::ThinkTags;
use super::{count, text};
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::inference::{StopReason, TokenUsage};

pub(super) fn frame(
    tags: &mut ThinkTags,
    frame: &Value,
    origin: &ModelEndpoint,
    fold: &mut Fold,
) -> Result<(), InferenceExecutionError> {
    if let Some(error) = frame.get("error").filter(|error| !error.is_null()) {
        return Err(origin.stream_error(error));
    }
    let message = frame.get("message").unwrap_or(&Value::Null);
    if let Some(thought) = text(message, "thinking").or_else(|| text(message, "reasoning_content")) {
        fold.reasoning(thought)?;
    }
    tags.text(text(message, "content").unwrap_or_default(), fold)?;
    for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        let function = call.get("function").unwrap_or(&Value::Null);
        let args = match function.get("arguments") {
            Some(Value::String(args)) => args.clone(),
            Some(args) => args.to_string(),
            None => "{}".into(),
        };
        // Each call comes whole, so a name is always a new one.
        let id = text(call, "id").map_or_else(super::super::fold::fresh_id, str::to_owned);
        fold.call(CallKey::Last, Some(&id), Some(text(function, "name").unwrap_or(" ")), Some(&args))?;
    }
    if frame.get("done").and_then(Value::as_bool) == Some(true) {
        tags.flush(fold)?;
        let (prompt, completion) = (count(frame, "/prompt_eval_count"), count(frame, "/eval_count"));
        fold.usage(TokenUsage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt
                .zip(completion)
                .map(|(prompt, completion)| prompt.saturating_add(completion)),
            ..TokenUsage::default()
        });
        fold.stop(match text(frame, "done_reason") {
            Some("stop") | None => StopReason::EndTurn,
            Some("length") => StopReason::MaxTokens,
            Some(_) => StopReason::Other,
        });
        fold.finish();
    }
    Ok(())
}
