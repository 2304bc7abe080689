//! Usage counts.

use async_trait::async_trait;

use crate::contract::ids::ThreadId;
use crate::contract::inference::{ModelUsage, TokenUsage};
use crate::contract::statistics::Tally;
use crate::contract::storage::StoreError;

/// Counts what was used. The counts outlive the threads.
#[async_trait]
pub trait StatisticsStore: Send + Sync {
    /// The counts since a moment, by slice of time, kind and name.
    async fn tallies(&self, since: Option<u64>) -> Result<Vec<Tally>, StoreError>;

    /// Tokens of all runs of a thread, and the same for each model that answered.
    async fn usage_by_model(&self, thread: &ThreadId) -> Result<(TokenUsage, Vec<ModelUsage>), StoreError>;
}
