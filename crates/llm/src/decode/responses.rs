//! Responses of OpenAI.

use serde_json::Value;

use super::super::classify::ModelEndpoint;
use super::super::fold::{CallKey, Fold};
use super::{openai_usage, text};
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::inference::StopReason;

/// The state kept between two frames.
#[derive(Debug, Default)]
pub(super) struct Responses {
    thoughts: bool,
}

impl Responses {
    pub(super) fn frame(
        &mut self,
        frame: &Value,
        origin: &ModelEndpoint,
        fold: &mut Fold,
    ) -> Result<(), InferenceExecutionError> {
        let delta = text(frame, "delta").unwrap_or_default();
        let index = frame.get("output_index").and_then(Value::as_u64).unwrap_or_default();
        let key = CallKey::Index(index);
        match frame.get("type").and_then(Value::as_str).unwrap_or_default() {
            "response.output_text.delta" => fold.text(delta)?,
            "response.refusal.delta" => {
                // Its end is an ordinary `response.completed`.
                fold.text(delta)?;
                fold.withhold(StopReason::Refusal, None);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.thoughts = true;
                fold.reasoning(delta)?;
            }
            "response.reasoning_summary_part.added" if self.thoughts => fold.reasoning("\n\n")?,
            "response.output_item.added" => {
                let item = frame.get("item").unwrap_or(&Value::Null);
                match item.get("type").and_then(Value::as_str) {
                    Some("function_call") => {
                        fold.call(key, text(item, "call_id"), text(item, "name"), text(item, "arguments"))?;
                    }
                    Some("reasoning") => {
                        self.thoughts = false;
                        fold.begin_thinking();
                    }
                    _ => {}
                }
            }
            "response.function_call_arguments.delta" => fold.call(key, None, None, Some(delta))?,
            "response.function_call_arguments.done" => {
                fold.call_arguments_are(&key, text(frame, "arguments").unwrap_or_default());
            }
            "response.output_item.done" => {
                done(frame.get("item").unwrap_or(&Value::Null), &key, origin, fold)?;
            }
            "response.completed" | "response.incomplete" => {
                whole(frame.get("response").unwrap_or(&Value::Null), origin, fold)?;
            }
            "response.failed" => {
                return Err(origin.stream_error(frame.pointer("/response/error").unwrap_or(&Value::Null)));
            }
            "error" => return Err(origin.stream_error(frame.get("error").unwrap_or(frame))),
            // A server that does not stream, or leaves the type of an error out.
            "" => match frame.get("error").filter(|error| !error.is_null()) {
                Some(error) => return Err(origin.stream_error(error)),
                None if frame.get("output").is_some_and(Value::is_array) => whole(frame, origin, fold)?,
                None => {}
            },
            _ => {}
        }
        Ok(())
    }
}

fn done(
    item: &Value,
    key: &CallKey,
    origin: &ModelEndpoint,
    fold: &mut Fold,
) -> Result<(), InferenceExecutionError> {
    match item.get("type").and_then(Value::as_str) {
        Some("function_call") => {
            fold.call(key.clone(), text(item, "call_id"), text(item, "name"), None)?;
            fold.call_arguments_are(key, text(item, "arguments").unwrap_or_default());
            fold.close_call(key);
        }
        Some("reasoning") => {
            if let Some(proof) = text(item, "encrypted_content") {
                fold.sign_thinking(origin.adapter.mark(proof))?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The end repeats the whole answer; servers that streamed nothing before it have said it only there.
fn whole(response: &Value, origin: &ModelEndpoint, fold: &mut Fold) -> Result<(), InferenceExecutionError> {
    if let Some(usage) = response.get("usage") {
        fold.usage(openai_usage(usage));
    }
    let output = response.get("output").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let unread = if fold.is_empty() { output } else { &[] };
    for (at, item) in unread.iter().enumerate() {
        if item.get("type").and_then(Value::as_str) == Some("message") {
            for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                fold.text(text(part, "text").unwrap_or_default())?;
                if let Some(refusal) = text(part, "refusal") {
                    fold.text(refusal)?;
                    fold.withhold(StopReason::Refusal, None);
                }
            }
        } else {
            done(item, &CallKey::Index(at as u64), origin, fold)?;
        }
    }
    fold.stop(match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
        Some("max_output_tokens") => StopReason::MaxTokens,
        Some("content_filter") => StopReason::ContentFilter,
        Some(_) => StopReason::Other,
        None => StopReason::EndTurn,
    });
    fold.finish();
    Ok(())
}
