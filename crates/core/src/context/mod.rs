//! How a conversation fits into a model's window: what it costs, what of it goes into a request, and what a summary
//! may stand for. All of it is plain arithmetic over messages: who asks a model, keeps a summary or writes a file is
//! `runtime`.
//!
//! A request holds, in this order: the messages that instruct at the very start of the conversation, the summary of
//! what was compacted, what is pinned (the last thing the person asked for, and calls that have no result yet), and
//! the newest messages. Large tool results that are not new are shown as a preview.
//!
//! Of a long conversation only that much is loaded ([`History`]); [`Sizes::suffices`] says how much is enough for the
//! request to be the one that the whole conversation would make.

mod assemble;
mod compaction;
pub mod estimate;
mod fit;
mod history;
mod preview;
pub mod repair;
mod sizes;

pub use assemble::{assemble, is_summary, summary_message};
pub use compaction::{
    CompactionConfig, CompactionConfigError, CompactionConfigKey, CompactionPlan, MIN_COMPACTION_GAIN_TOKENS,
    NoGain, accept, clean, plan, prompt,
};
pub use estimate::Calibration;
pub use fit::{Fit, FitLimits, Marks, fit};
pub use history::History;
pub use preview::{
    ARTIFACT_COMPACT_THRESHOLD_TOKENS, PREVIEW_MAX_CHARS, PREVIEW_MAX_LINES, is_oversized, preview,
};
pub use sizes::{Sizes, short_tokens};

#[cfg(test)]
mod tests;
