//! Messages to other programs.

use async_trait::async_trait;

use crate::contract::ids::ThreadId;
use crate::contract::storage::StoreError;

/// The state of a message to another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxStatus {
    /// To be sent, for the first time or again.
    Queued,
    Accepted,
    /// It was taken back, or is of no use any more.
    Cancelled,
    /// It was given up.
    DeadLetter,
}

impl OutboxStatus {
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
    Accepted,
    /// It is tried again at this time.
    Retry {
        /// Unix milliseconds.
        at: u64,
        /// Why it was not taken.
        error: String,
    },
    /// It is of no use any more, and was not sent.
    Obsolete,
    /// No other attempt would help, or there were enough.
    DeadLetter {
        /// Why it was not taken.
        error: String,
    },
}

/// Keeps messages to other programs until they were taken or given up.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Stores a message until it is accepted, due at `now_ms` or, for a later time, then. `key` identifies its content and receiver: a second message with the same
    /// key is not stored. Returns `false` if the key already existed.
    async fn put_into_outbox(
        &self,
        thread: &ThreadId,
        key: String,
        target: String,
        body: String,
        now_ms: u64,
    ) -> Result<bool, StoreError>;

    /// Claims the oldest message that is due, for an attempt of at most `lease_ms`; if the claimant dies in the
    /// meantime, the message is left to the next one. If no message is due, the inner error is the time when the next
    /// one is, if any.
    async fn claim_from_outbox(
        &self,
        now_ms: u64,
        lease_ms: u64,
    ) -> Result<Result<OutboxRow, Option<u64>>, StoreError>;

    /// Writes the result of an attempt.
    async fn settle_in_outbox(
        &self,
        number: u64,
        outcome: OutboxOutcome,
        now_ms: u64,
    ) -> Result<(), StoreError>;

    /// Messages that were not taken, oldest first; `all`: those that were, too.
    async fn outbox(&self, all: bool) -> Result<Vec<OutboxRow>, StoreError>;

    /// Makes a dead message due again, from now on. Returns `false` if there is no such message.
    async fn retry_in_outbox(&self, number: u64, now_ms: u64) -> Result<bool, StoreError>;
}
