//! `generateContent` of Gemini.

use serde_json::{Value, json};

use super::super::classify::ModelEndpoint;
use super::super::fold::{CallKey, Fold};
use super::{count, text};
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::inference::{StopReason, TokenUsage};

/// The state kept between two frames.
#[derive(Debug, Default)]
pub(super) struct Gemini {
    calls: u64,
}

impl Gemini {
    pub(super) fn frame(
        &mut self,
        frame: &Value,
        origin: &ModelEndpoint,
        fold: &mut Fold,
    ) -> Result<(), InferenceExecutionError> {
        if let Some(error) = frame.get("error").filter(|error| !error.is_null()) {
            return Err(origin.stream_error(error));
        }
        if let Some(usage) = frame.get("usageMetadata") {
            fold.usage(usage_of(usage));
        }
        if let Some(reason) = frame.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
            let message = frame.pointer("/promptFeedback/blockReasonMessage").and_then(Value::as_str);
            fold.withhold(StopReason::ContentFilter, message.or(Some(reason)));
        }
        let candidate = frame.pointer("/candidates/0").unwrap_or(&Value::Null);
        for part in candidate.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten() {
            self.part(part, origin, fold)?;
        }
        let Some(reason) = text(candidate, "finishReason") else { return Ok(()) };
        match reason {
            "STOP" => fold.stop(StopReason::EndTurn),
            "MAX_TOKENS" => fold.stop(StopReason::MaxTokens),
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "LANGUAGE"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => {
                fold.withhold(StopReason::ContentFilter, text(candidate, "finishMessage").or(Some(reason)));
            }
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" => {
                return Err(
                    origin.stream_error(&json!(format!("the model's answer was unusable ({reason})")))
                );
            }
            _ => fold.stop(StopReason::Other),
        }
        // Not the end yet: newer models give a reason in the middle, and more text after it.
        Ok(())
    }

    fn part(
        &mut self,
        part: &Value,
        origin: &ModelEndpoint,
        fold: &mut Fold,
    ) -> Result<(), InferenceExecutionError> {
        let proof = text(part, "thoughtSignature").map(|proof| origin.adapter.mark(proof));
        if let Some(call) = part.get("functionCall") {
            let key = CallKey::Index(self.calls);
            self.calls += 1;
            let args = call.get("args").filter(|args| !args.is_null()).map(Value::to_string);
            fold.call(
                key.clone(),
                text(call, "id"),
                text(call, "name"),
                Some(args.as_deref().unwrap_or("{}")),
            )?;
            fold.close_call(&key);
            if let Some(proof) = proof {
                fold.sign_call(proof);
            }
            return Ok(());
        }
        let words = text(part, "text").unwrap_or_default();
        if part.get("thought").and_then(Value::as_bool) == Some(true) {
            fold.reasoning(words)?;
        } else {
            // The proof of a text is placed before it, as genai expects it back.
            if let Some(proof) = proof {
                fold.begin_thinking();
                fold.sign_thinking(proof)?;
            }
            fold.text(words)?;
        }
        Ok(())
    }
}

/// Gemini counts thoughts beside the answer, everyone else within it.
fn usage_of(usage: &Value) -> TokenUsage {
    let sum = |a: Option<i32>, b: Option<i32>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    };
    let thinking = count(usage, "/thoughtsTokenCount");
    TokenUsage {
        prompt_tokens: sum(count(usage, "/promptTokenCount"), count(usage, "/toolUsePromptTokenCount")),
        completion_tokens: sum(count(usage, "/candidatesTokenCount"), thinking),
        total_tokens: count(usage, "/totalTokenCount"),
        cache_read_tokens: count(usage, "/cachedContentTokenCount"),
        cache_creation_tokens: None,
        thinking_tokens: thinking,
    }
}
