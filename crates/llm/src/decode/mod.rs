//! Decodes frames to facts, with one reader for each wire format.
//!
//! The readers use the raw frames, not genai's events, because genai hides what must not be missed: it drops
//! a piece of a call that has no index, emits a call twice if a gateway counts from one, allocates as many
//! calls as the largest index says, lets an answer end normally after an error frame, and makes up an end if
//! a Gemini or Ollama stream just stops. The wire tests replay each of these.

mod anthropic;
mod chat;
mod gemini;
mod ollama;
mod responses;
mod think_tags;

use serde_json::Value;

use super::classify::ModelEndpoint;
use super::fold::Fold;
use super::provider::WireFormat;
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::inference::TokenUsage;

/// Reads the frames of one answer.
#[derive(Debug)]
pub(super) struct Decoder {
    origin: ModelEndpoint,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Chat(chat::Chat),
    Responses(responses::Responses),
    Anthropic(anthropic::Anthropic),
    Gemini(gemini::Gemini),
    Ollama(think_tags::ThinkTags),
}

impl Decoder {
    pub(super) fn new(origin: ModelEndpoint) -> Self {
        let form = match origin.adapter {
            WireFormat::OpenAi => Form::Chat(chat::Chat::default()),
            WireFormat::OpenAiResponses => Form::Responses(responses::Responses::default()),
            WireFormat::Anthropic => Form::Anthropic(anthropic::Anthropic::default()),
            WireFormat::Gemini => Form::Gemini(gemini::Gemini::default()),
            WireFormat::Ollama => Form::Ollama(think_tags::ThinkTags::default()),
        };
        Self { origin, form }
    }

    /// Takes one frame in.
    pub(super) fn frame(&mut self, frame: &str, fold: &mut Fold) -> Result<(), InferenceExecutionError> {
        let frame = frame.trim();
        if frame.is_empty() || fold.is_finished() {
            return Ok(());
        }
        if frame == "[DONE]" {
            if let Form::Chat(chat) = &mut self.form {
                chat.end(fold)?;
                fold.finish();
            }
            return Ok(());
        }
        let value: Value =
            serde_json::from_str(frame).map_err(|error| self.origin.bad_frame(frame, &error))?;
        match &mut self.form {
            Form::Chat(chat) => chat.frame(&value, &self.origin, fold),
            Form::Responses(responses) => responses.frame(&value, &self.origin, fold),
            Form::Anthropic(anthropic) => anthropic.frame(&value, &self.origin, fold),
            Form::Gemini(gemini) => gemini.frame(&value, &self.origin, fold),
            Form::Ollama(tags) => ollama::frame(tags, &value, &self.origin, fold),
        }
    }

    /// Returns whether only the end of the stream is missing: a stop reason was received, and this wire
    /// format has no end marker, or not every server sends it.
    pub(super) fn awaits_end(&self, fold: &Fold) -> bool {
        matches!(self.form, Form::Chat(_) | Form::Gemini(_)) && fold.has_stop_reason() && !fold.is_finished()
    }

    /// The stream ended, well or not: whether the answer was complete by then.
    pub(super) fn end(&mut self, fold: &mut Fold) -> Result<bool, InferenceExecutionError> {
        if self.awaits_end(fold) {
            if let Form::Chat(chat) = &mut self.form {
                chat.end(fold)?;
            }
            fold.finish();
        }
        Ok(fold.is_finished())
    }
}

/// Returns a string member of an object if it exists and is not empty.
fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn count(value: &Value, pointer: &str) -> Option<i32> {
    value.pointer(pointer).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).filter(|n| *n >= 0)
}

/// The usage of chat completions and of responses, which name the same counts differently.
fn openai_usage(usage: &Value) -> TokenUsage {
    let either = |a: &str, b: &str| count(usage, a).or_else(|| count(usage, b));
    TokenUsage {
        prompt_tokens: either("/prompt_tokens", "/input_tokens"),
        completion_tokens: either("/completion_tokens", "/output_tokens"),
        total_tokens: count(usage, "/total_tokens"),
        cache_read_tokens: either(
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
        )
        .or_else(|| count(usage, "/prompt_cache_hit_tokens")),
        cache_creation_tokens: count(usage, "/prompt_tokens_details/cache_write_tokens"),
        thinking_tokens: either(
            "/completion_tokens_details/reasoning_tokens",
            "/output_tokens_details/reasoning_tokens",
        ),
    }
}
