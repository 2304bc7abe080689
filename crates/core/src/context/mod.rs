//! Fits a conversation into a model's window: the cost of messages, the choice of those that go into a
//! request, and the part that a summary may replace. All of it is plain arithmetic over messages: asking a
//! model, storing a summary and writing a file is the job of `runtime`.
//!
//! A request contains, in this order: the instructions at the very start of the conversation, the summary of
//! the compacted messages, the pinned messages (the last request of the user, and calls that have no result
//! yet), and the newest messages. Large tool results that are not new are shown as a preview.
//!
//! Only part of a long conversation is loaded ([`History`]); [`Sizes::suffices`] decides how much is enough
//! for the request to equal the one that the whole conversation would make.

mod assemble;
mod compaction;
pub mod estimate;
mod fit;
mod growth;
mod history;
mod preview;
pub mod repair;
mod sizes;

pub use assemble::{assemble, is_summary, summary_message};
pub use compaction::{
    CompactionConfig, CompactionConfigError, CompactionConfigKey, CompactionPlan, MIN_COMPACTION_GAIN_TOKENS,
    NoGain, accept, clean, plan, prompt, read_tokens, said,
};
pub use estimate::Calibration;
pub use fit::{Fit, FitLimits, Marks, fit};
pub use growth::{AGENT_KEY, PromptNow, function_line};
pub use history::History;
pub use preview::{
    ARTIFACT_COMPACT_THRESHOLD_TOKENS, PREVIEW_MAX_CHARS, PREVIEW_MAX_LINES, is_oversized, preview,
};
pub use sizes::{Sizes, short_tokens};

#[cfg(test)]
mod tests;
