//! Messages to other programs.

use crate::contract::ids::ThreadId;

/// The state of a message to another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxStatus {
    /// To be sent, for the first time or again.
    Queued,
    /// It was taken.
    Accepted,
    /// A user took it back.
    Cancelled,
    /// It was given up.
    DeadLetter,
}

impl OutboxStatus {
    /// All of them.
    pub const ALL: [OutboxStatus; 4] = [Self::Queued, Self::Accepted, Self::Cancelled, Self::DeadLetter];

    /// The word in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Accepted => "accepted",
            Self::Cancelled => "cancelled",
            Self::DeadLetter => "dead_letter",
        }
    }
}

/// A message to another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its number.
    pub number: u64,
    /// The conversation that it is about.
    pub thread_id: ThreadId,
    /// To whom, such as `webhook:phone`.
    pub target: String,
    /// The content to send.
    pub body: String,
    /// The state of the message.
    pub status: OutboxStatus,
    /// Attempts that failed.
    pub attempt_count: u32,
    /// Not sent before.
    pub available_at: u64,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// Written, in Unix milliseconds.
    pub created_at: u64,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxOutcome {
    /// It was taken.
    Accepted,
    /// It is tried again at this time.
    Retry {
        /// Unix milliseconds.
        at: u64,
        /// Why it was not taken.
        error: String,
    },
    /// No other attempt would help, or there were enough.
    DeadLetter {
        /// Why it was not taken.
        error: String,
    },
}
