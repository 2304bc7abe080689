//! Usage counts: model answers, tool executions, user decisions.

use serde::{Deserialize, Serialize};

/// The kind of counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TallyKind {
    /// An answer of a model, by the id it is registered with.
    Inference,
    /// A run that ended because its model, or something else, failed; by model.
    FailedRun,
    /// An execution of a tool that ended, by tool.
    Call,
    /// A request that was sent again because the provider refused thoughts in it, by model.
    RefusedThoughts,
    /// A question that was answered, by the tool it was about; its duration is the time it waited.
    Wait,
}

impl TallyKind {
    pub const ALL: [Self; 5] =
        [Self::Inference, Self::FailedRun, Self::Call, Self::RefusedThoughts, Self::Wait];

    /// The word in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::FailedRun => "failed_run",
            Self::Call => "call",
            Self::RefusedThoughts => "refused_thoughts",
            Self::Wait => "wait",
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The length of the time slices of [`Tally`]s. Every day starts at the end of a slice, in every time zone.
pub const SLICE_MS: u64 = 15 * 60 * 1000;

/// The sum of one kind, of one name, in one slice of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// The start of the slice, in Unix milliseconds.
    pub from: u64,
    /// The kind of counted event.
    pub kind: TallyKind,
    /// The model or the tool.
    pub name: String,
    /// The number of events.
    pub count: u64,
    /// Of these, how many failed: only calls do.
    pub failed: u64,
    /// Tokens that went in, those from a cache included.
    pub input: u64,
    /// Tokens that came out.
    pub output: u64,
    /// Tokens that came from a cache.
    pub cached: u64,
    /// Tokens that were put into a cache.
    pub written: u64,
    /// The duration of all of them together, in milliseconds.
    pub duration_ms: u64,
}
