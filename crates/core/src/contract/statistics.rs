//! Usage counts: model answers, tool executions, user decisions.

use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TallyKind {
    /// An answer of a model, by the id it is registered with.
    Inference,
    /// A run that ended because its model, or something else, failed; by model.
    FailedRun,
    /// An execution of a tool that ended, by tool.
    Call,
    /// A question that was answered, by the tool it was about; its duration is the time it waited.
    Wait,
}

impl TallyKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Inference, Self::FailedRun, Self::Call, Self::Wait];

    /// The word in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::FailedRun => "failed_run",
            Self::Call => "call",
            Self::Wait => "wait",
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Length of the slices of time that [`Tally`]s are for. A day begins at the end of one in every time zone there is.
pub const SLICE_MS: u64 = 15 * 60 * 1000;

/// The sum of one kind, of one name, in one slice of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// When the slice begins, in Unix milliseconds.
    pub from: u64,
    /// What is counted.
    pub kind: TallyKind,
    /// The model or the tool.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Of these, how many failed: only calls do.
    pub failed: u64,
    /// Tokens that went in, those from a cache included.
    pub input: u64,
    /// Tokens that came out.
    pub output: u64,
    /// Tokens that came from a cache.
    pub cached: u64,
    /// How long all of them took.
    pub duration_ms: u64,
}
