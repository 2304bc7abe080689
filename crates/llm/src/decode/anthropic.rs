//! Messages of Anthropic.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::classify::ModelEndpoint;
use super::super::fold::{CallKey, Fold};
use super::{count, text};
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::inference::{StopReason, TokenUsage};

/// The state kept between two frames.
#[derive(Debug, Default)]
pub(super) struct Anthropic {
    /// The proofs of open thinking blocks, which come in pieces that are simply joined.
    proofs: HashMap<u64, String>,
    usage: TokenUsage,
}

impl Anthropic {
    pub(super) fn frame(
        &mut self,
        frame: &Value,
        origin: &ModelEndpoint,
        fold: &mut Fold,
    ) -> Result<(), InferenceExecutionError> {
        let index = frame.get("index").and_then(Value::as_u64).unwrap_or_default();
        let key = CallKey::Index(index);
        match frame.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => self.usage(frame.pointer("/message/usage"), fold),
            "content_block_start" => {
                let block = frame.get("content_block").unwrap_or(&Value::Null);
                match block.get("type").and_then(Value::as_str) {
                    Some("text") => fold.text(text(block, "text").unwrap_or_default())?,
                    Some("tool_use") => {
                        fold.call(key.clone(), text(block, "id"), text(block, "name"), None)?;
                        // Whole at once from some gateways; `{}` is only the place where the pieces will go.
                        if let Some(input @ Value::Object(fields)) = block.get("input")
                            && !fields.is_empty()
                        {
                            fold.call_arguments_are(&key, &input.to_string());
                        }
                    }
                    Some("thinking") => {
                        fold.begin_thinking();
                        fold.reasoning(text(block, "thinking").unwrap_or_default())?;
                        self.proof(index, text(block, "signature").unwrap_or_default());
                    }
                    Some("redacted_thinking") => fold.opaque(origin.adapter.as_str(), block.clone())?,
                    _ => {}
                }
            }
            "content_block_delta" => {
                let delta = frame.get("delta").unwrap_or(&Value::Null);
                match delta.get("type").and_then(Value::as_str) {
                    Some("text_delta") => fold.text(text(delta, "text").unwrap_or_default())?,
                    Some("input_json_delta") => {
                        fold.call(key, None, None, text(delta, "partial_json"))?;
                    }
                    Some("thinking_delta") => fold.reasoning(text(delta, "thinking").unwrap_or_default())?,
                    Some("signature_delta") => {
                        self.proof(index, text(delta, "signature").unwrap_or_default());
                    }
                    _ => {}
                }
            }
            "content_block_stop" => {
                if let Some(proof) = self.proofs.remove(&index) {
                    fold.sign_thinking(origin.adapter.mark(&proof))?;
                }
                fold.close_call(&key);
            }
            "message_delta" => {
                self.usage(frame.get("usage"), fold);
                match frame.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    None => {}
                    Some("refusal") => {
                        let details = frame.pointer("/delta/stop_details").unwrap_or(&Value::Null);
                        let detail = text(details, "explanation").or_else(|| text(details, "category"));
                        fold.withhold(StopReason::Refusal, detail);
                    }
                    Some(reason) => fold.stop(match reason {
                        "end_turn" | "pause_turn" => StopReason::EndTurn,
                        "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
                        "tool_use" => StopReason::ToolUse,
                        "stop_sequence" => StopReason::StopSequence,
                        _ => StopReason::Other,
                    }),
                }
            }
            "message_stop" => fold.finish(),
            "message" => self.whole(frame, origin, fold)?,
            "error" => return Err(origin.stream_error(frame.get("error").unwrap_or(frame))),
            // Some gateways leave the type of an error out.
            _ => {
                if let Some(error) = frame.get("error").filter(|error| !error.is_null()) {
                    return Err(origin.stream_error(error));
                }
            }
        }
        Ok(())
    }

    /// The answer of a gateway that does not stream.
    fn whole(
        &mut self,
        message: &Value,
        origin: &ModelEndpoint,
        fold: &mut Fold,
    ) -> Result<(), InferenceExecutionError> {
        let blocks = message.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, block) in blocks.iter().enumerate() {
            let start = json!({"type": "content_block_start", "index": index, "content_block": block});
            self.frame(&start, origin, fold)?;
            self.frame(&json!({"type": "content_block_stop", "index": index}), origin, fold)?;
        }
        let end = json!({"type": "message_delta", "delta": message, "usage": message.get("usage")});
        self.frame(&end, origin, fold)?;
        fold.finish();
        Ok(())
    }

    fn proof(&mut self, index: u64, piece: &str) {
        let proof = self.proofs.entry(index).or_default();
        // A proof is some kilobytes; one without end is not kept, and the provider will refuse what is left of it.
        if proof.len() < 1 << 20 {
            proof.push_str(piece);
        }
    }

    /// Anthropic counts what came from and went to the cache beside the input, everyone else within it.
    fn usage(&mut self, usage: Option<&Value>, fold: &mut Fold) {
        let Some(usage) = usage else { return };
        let read = count(usage, "/cache_read_input_tokens");
        let written = count(usage, "/cache_creation_input_tokens");
        let all = &mut self.usage;
        all.cache_read_tokens = read.or(all.cache_read_tokens);
        all.cache_creation_tokens = written.or(all.cache_creation_tokens);
        if let Some(input) = count(usage, "/input_tokens") {
            let cached =
                all.cache_read_tokens.unwrap_or(0).saturating_add(all.cache_creation_tokens.unwrap_or(0));
            all.prompt_tokens = Some(input.saturating_add(cached));
        }
        all.completion_tokens = count(usage, "/output_tokens").or(all.completion_tokens);
        all.thinking_tokens = count(usage, "/output_tokens_details/thinking_tokens").or(all.thinking_tokens);
        all.total_tokens = match (all.prompt_tokens, all.completion_tokens) {
            (Some(prompt), Some(completion)) => Some(prompt.saturating_add(completion)),
            _ => None,
        };
        fold.usage(*all);
    }
}
