//! What plugins and tools show the user beside the conversation.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::EffectSpec;

/// The activity type of a word for the person that stays in the transcript: `{"text", "level"?, "source"?}`, with
/// `level` one of `info` (the default), `warning`, `error`.
pub const NOTICE_ACTIVITY_TYPE: &str = "notice";

/// The activity type of a message that a run took in between two steps: `{"queued", "text", "images"}`, the last a list of `ImageRef`s.
pub const STEERED_ACTIVITY_TYPE: &str = "steered";

/// The full state of an activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// What kind it is: front ends skip kinds that they do not know.
    pub activity_type: String,
    /// The state, in the form of its kind.
    pub content: Value,
}

impl Activity {
    /// A word for the person from a source such as `reminder`.
    pub fn notice(source: &str, text: impl Into<String>) -> Self {
        Self {
            activity_type: NOTICE_ACTIVITY_TYPE.into(),
            content: json!({"source": source, "text": text.into()}),
        }
    }

    /// The same, as something that needs care.
    pub fn warning(source: &str, text: impl Into<String>) -> Self {
        let mut notice = Self::notice(source, text);
        notice.content["level"] = "warning".into();
        notice
    }
}

/// The core effect that tells the person something: the driver sends it as an event once the command that emitted it
/// was committed. It is there in every agent.
pub struct ReportActivity;

impl EffectSpec for ReportActivity {
    const KEY: &'static str = "runtime.report_activity";
    type Payload = Activity;
}
