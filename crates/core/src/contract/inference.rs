//! The input and output of an inference.

use serde::{Deserialize, Serialize};

use super::content::{ContentBlock, text_of};
use super::message::ToolCall;

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    /// The output limit was reached.
    MaxTokens,
    ToolUse,
    /// A stop sequence came.
    StopSequence,
    Refusal,
    /// A filter of the provider withheld the answer, or the rest of it.
    ContentFilter,
    Other,
}

impl StopReason {
    /// Returns whether the model or its provider withheld the answer.
    pub fn is_withheld(self) -> bool {
        matches!(self, Self::Refusal | Self::ContentFilter)
    }
}

/// Tokens that one inference used, as the provider reported them.
///
/// All counts are tokens. `None` means "not reported", which is not zero. `prompt_tokens` includes what was read from
/// or written to a cache, so the counts of one kind are never added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TokenUsage {
    /// Everything that went in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<i32>,
    /// Everything that came out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<i32>,
    /// Both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<i32>,
    /// The part of the prompt that came from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_tokens: Option<i32>,
    /// The part of the prompt that was put into a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_creation_tokens: Option<i32>,
    /// The part of the completion that was thought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_tokens: Option<i32>,
}

impl TokenUsage {
    /// Adds another inference's counts.
    pub fn add(&mut self, other: &Self) {
        // A provider that reports no sum is counted by its parts, so that the sum of several is never too small.
        let total = self.total().saturating_add(other.total());
        self.total_tokens = (total > 0).then(|| i32::try_from(total).unwrap_or(i32::MAX));
        fn sum(left: &mut Option<i32>, right: Option<i32>) {
            if let Some(right) = right {
                *left = Some(left.unwrap_or(0).saturating_add(right));
            }
        }
        sum(&mut self.prompt_tokens, other.prompt_tokens);
        sum(&mut self.completion_tokens, other.completion_tokens);
        sum(&mut self.cache_read_tokens, other.cache_read_tokens);
        sum(&mut self.cache_creation_tokens, other.cache_creation_tokens);
        sum(&mut self.thinking_tokens, other.thinking_tokens);
    }

    /// Total tokens, added up from the parts when the provider gave no sum.
    pub fn total(&self) -> u64 {
        let sum = self.total_tokens.unwrap_or_else(|| {
            self.prompt_tokens.unwrap_or(0).saturating_add(self.completion_tokens.unwrap_or(0))
        });
        u64::try_from(sum).unwrap_or(0)
    }
}

/// The usage of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// The model, by its registered id.
    pub model: String,
    /// The tokens that the model used.
    pub usage: TokenUsage,
}

impl ModelUsage {
    /// Adds what a model used to a list that has each model once.
    pub fn add_to(all: &mut Vec<Self>, model: &str, usage: &TokenUsage) {
        match all.iter_mut().find(|known| known.model == model) {
            Some(known) => known.usage.add(usage),
            None => all.push(Self { model: model.to_owned(), usage: *usage }),
        }
    }
}

/// The whole answer of one inference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamResult {
    /// Text, thoughts, opaque pieces, in order.
    pub content: Vec<ContentBlock>,
    /// The calls it asks for, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The usage, if reported.
    pub usage: Option<TokenUsage>,
    /// Why it stopped, when reported.
    pub stop_reason: Option<StopReason>,
    /// Calls were cut off by the output limit and dropped.
    pub has_incomplete_tool_calls: bool,
}

impl StreamResult {
    pub fn text(&self) -> String {
        text_of(&self.content)
    }
}

/// The amount of reasoning that a model should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    None,
    Low,
    /// As usual.
    Medium,
    High,
    /// As much as it can.
    Max,
    /// At most this many tokens.
    Budget(u32),
}

impl ReasoningEffort {
    /// The words that settings, flags and commands use.
    pub const WORDS: [&'static str; 5] = ["none", "low", "medium", "high", "max"];

    /// The effort of a word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::None, Self::Low, Self::Medium, Self::High, Self::Max]
            .into_iter()
            .find(|effort| effort.to_string() == word)
    }
}

impl std::fmt::Display for ReasoningEffort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Low => f.write_str("low"),
            Self::Medium => f.write_str("medium"),
            Self::High => f.write_str("high"),
            Self::Max => f.write_str("max"),
            Self::Budget(tokens) => write!(f, "{tokens} tokens"),
        }
    }
}

/// Changes to the parameters of one inference; `None` leaves the agent's own value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InferenceOverride {
    /// Another model, by its registered id.
    pub model: Option<String>,
    /// Models to try when the first one fails, in order.
    pub fallback_models: Option<Vec<String>>,
    pub temperature: Option<f64>,
    /// Limit of output tokens.
    pub max_tokens: Option<u32>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    pub reasoning_effort: Option<ReasoningEffort>,
}

impl InferenceOverride {
    /// Returns whether nothing is overridden.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes each field that the other one sets.
    pub fn merge(&mut self, other: Self) {
        self.model = other.model.or(self.model.take());
        self.fallback_models = other.fallback_models.or(self.fallback_models.take());
        self.temperature = other.temperature.or(self.temperature);
        self.max_tokens = other.max_tokens.or(self.max_tokens);
        self.top_p = other.top_p.or(self.top_p);
        self.reasoning_effort = other.reasoning_effort.or(self.reasoning_effort);
    }
}
