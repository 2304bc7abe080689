//! Summaries that replace the older messages of a conversation in requests. The messages themselves stay unchanged.

use serde::{Deserialize, Serialize};

use super::activity::{Activity, CompactedHistory, KnownActivity};
use super::amount::counted;
pub use super::amount::short_number;
use super::ids::{MessageId, ThreadId};
use super::inference::TokenUsage;
use super::prefix::PrefixRecord;

/// The activity type of [`CompactedHistory`].
pub const COMPACTED_ACTIVITY_TYPE: &str = "conversation-compacted";

/// A summary. Each summary replaces the messages from the first on, so the one that reaches farthest counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryRecord {
    pub thread_id: ThreadId,
    /// The last message that the summary replaces.
    pub upto: MessageId,
    /// The place of that message.
    pub upto_seq: u64,
    /// The number of messages when the summary was made: the position where the summary is reported.
    pub at_seq: u64,
    /// The number of messages that the summary replaces, beyond those of the summary before it.
    pub messages: u64,
    /// The tokens of what it takes the place of, by an estimate.
    pub before_tokens: u64,
    pub after_tokens: u64,
    /// The hint that was given for the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The model that wrote it.
    pub model: String,
    /// The usage of the summary's inference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// When, in Unix milliseconds.
    pub created_at: u64,
    pub text: String,
    /// The user's messages that it replaces, word for word, oldest first; those that are too much are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
}

/// A start of requests with the summary in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestStart {
    pub prefix: PrefixRecord,
    /// `None` if there is none in it, or it is lost.
    pub summary: Option<SummaryRecord>,
}

impl SummaryRecord {
    /// Returns what the model reads: the summary, and what the user said.
    pub fn for_model(&self) -> String {
        let mut text = self.text.clone();
        if !self.said.is_empty() {
            text.push_str("\n\nThe user's messages so far, word for word:");
        }
        for message in &self.said {
            text.push_str("\n<user-message>\n");
            text.push_str(message);
            text.push_str("\n</user-message>");
        }
        text
    }

    /// Describes the compaction in a few words.
    pub fn words(&self) -> String {
        format!(
            "compacted {}, {} → {} tokens",
            counted(self.messages, "message"),
            short_number(self.before_tokens),
            short_number(self.after_tokens)
        )
    }

    /// Returns this summary as one with the summary before it, which it replaces: what one summariser cannot read at
    /// once, it summarises in portions.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self {
            messages: earlier.messages + self.messages,
            before_tokens: earlier.before_tokens + self.before_tokens.saturating_sub(earlier.after_tokens),
            ..self
        }
    }

    /// Returns the activity for front ends.
    pub fn activity(&self) -> Activity {
        let history = CompactedHistory {
            text: self.words(),
            upto_seq: Some(self.upto_seq),
            messages: self.messages,
            before_tokens: self.before_tokens,
            after_tokens: self.after_tokens,
            model: self.model.clone(),
            usage: self.usage,
        };
        KnownActivity::Compacted(history).into()
    }
}
