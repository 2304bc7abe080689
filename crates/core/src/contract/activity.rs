//! Activities of plugins and tools, shown to the user beside the conversation.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::child::{CHILD_RUN_ACTIVITY_TYPE, ChildRunState};
use super::event::AgentEvent;
use super::image::ImageRef;
use super::inference::TokenUsage;
use super::progress::{
    INFERENCE_RETRY_ACTIVITY_TYPE, TOOL_CALL_PROGRESS_ACTIVITY_TYPE, ToolCallProgressState,
};
use super::summary::COMPACTED_ACTIVITY_TYPE;
use crate::state::EffectSpec;

/// The activity type of [`NoticeActivity`].
pub const NOTICE_ACTIVITY_TYPE: &str = "notice";

/// The activity type of [`SteeredMessage`].
pub const STEERED_ACTIVITY_TYPE: &str = "steered";

/// The full state of an activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The kind of activity; front ends skip unknown kinds.
    pub activity_type: String,
    /// The state, in the form of its kind.
    pub content: Value,
}

/// The activities that aye itself reports, in the form of their kind.
#[derive(Clone, Debug, PartialEq)]
pub enum KnownActivity {
    /// Text for the user that stays in the transcript.
    Notice(NoticeActivity),
    /// A message that a run took in between two steps.
    Steered(SteeredMessage),
    /// Progress of a tool.
    Progress(ToolCallProgressState),
    /// The activity of a child.
    Child(Box<ChildRunState>),
    /// Older messages were summarised.
    Compacted(CompactedHistory),
    /// An inference is repeated.
    Retry(InferenceRetry),
}

/// Text for the user that stays in the transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NoticeActivity {
    /// Its source, such as `reminder`; empty for the runtime's own.
    pub source: String,
    pub text: String,
    /// `warning` or `error`; everything else is information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// The agent that answers from now on, after a handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A message that a run took in between two steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SteeredMessage {
    /// Its place in the queue until then.
    pub queued: u64,
    pub text: String,
    /// The text that is shown instead of the full one.
    pub shown: Option<String>,
    pub images: Vec<ImageRef>,
    /// Whether this reports the end of a background task instead of being a user's message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_report: bool,
}

/// Older messages that were summarised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactedHistory {
    /// The description for the user.
    pub text: String,
    /// The position of the last message that the summary replaces.
    pub upto_seq: Option<u64>,
    /// The number of messages that it replaces.
    pub messages: u64,
    /// Their tokens, by an estimate.
    pub before_tokens: u64,
    /// Its own tokens.
    pub after_tokens: u64,
    /// The model that wrote it.
    pub model: String,
    /// The tokens that writing it took.
    pub usage: Option<TokenUsage>,
}

/// An inference that is repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InferenceRetry {
    /// The number of this attempt.
    pub attempt: u64,
    /// Attempts at most.
    pub max: u64,
    /// When it starts, in milliseconds from now.
    pub delay_ms: u64,
    /// Whether another model than the configured one is used.
    pub instead: bool,
    /// The model that receives the request.
    pub model: String,
    /// Why it is repeated.
    pub reason: String,
    /// The answer so far does not count.
    pub reset: bool,
}

impl KnownActivity {
    /// Reads an activity; `None` for kinds of plugins, and for content of another form.
    pub fn of(activity_type: &str, content: &Value) -> Option<Self> {
        fn read<T: DeserializeOwned>(content: &Value) -> Option<T> {
            T::deserialize(content).ok()
        }
        match activity_type {
            NOTICE_ACTIVITY_TYPE => read(content).map(Self::Notice),
            STEERED_ACTIVITY_TYPE => read(content).map(Self::Steered),
            TOOL_CALL_PROGRESS_ACTIVITY_TYPE => read(content).map(Self::Progress),
            CHILD_RUN_ACTIVITY_TYPE => read(content).map(Self::Child),
            COMPACTED_ACTIVITY_TYPE => read(content).map(Self::Compacted),
            INFERENCE_RETRY_ACTIVITY_TYPE => read(content).map(Self::Retry),
            _ => None,
        }
    }

    /// The event that reports it.
    pub fn event(self, message_id: impl Into<String>) -> AgentEvent {
        let Activity { activity_type, content } = self.into();
        AgentEvent::ActivitySnapshot {
            message_id: message_id.into(),
            activity_type,
            content,
            replace: Some(true),
        }
    }
}

impl From<KnownActivity> for Activity {
    fn from(known: KnownActivity) -> Self {
        let (activity_type, content) = match known {
            KnownActivity::Notice(notice) => (NOTICE_ACTIVITY_TYPE, json!(notice)),
            KnownActivity::Steered(message) => (STEERED_ACTIVITY_TYPE, json!(message)),
            KnownActivity::Progress(state) => (TOOL_CALL_PROGRESS_ACTIVITY_TYPE, json!(state)),
            KnownActivity::Child(state) => (CHILD_RUN_ACTIVITY_TYPE, json!(state)),
            KnownActivity::Compacted(history) => (COMPACTED_ACTIVITY_TYPE, json!(history)),
            KnownActivity::Retry(retry) => (INFERENCE_RETRY_ACTIVITY_TYPE, json!(retry)),
        };
        Self { activity_type: activity_type.to_owned(), content }
    }
}

impl Activity {
    /// Text for the user from a source such as `reminder`.
    pub fn notice(source: &str, text: impl Into<String>) -> Self {
        let (source, text) = (source.to_owned(), text.into());
        KnownActivity::Notice(NoticeActivity { source, text, ..NoticeActivity::default() }).into()
    }

    /// The same, as something that needs care.
    pub fn warning(source: &str, text: impl Into<String>) -> Self {
        let (source, text, level) = (source.to_owned(), text.into(), Some("warning".to_owned()));
        KnownActivity::Notice(NoticeActivity { source, text, level, ..NoticeActivity::default() }).into()
    }
}

/// The core effect that reports an activity to the user: the driver emits it as an event after the command
/// that emitted it was committed. Every agent has this effect.
pub struct ReportActivity;

impl EffectSpec for ReportActivity {
    const KEY: &'static str = "runtime.report_activity";
    type Payload = Activity;
}
