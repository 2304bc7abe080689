//! URLs of other agents that are notified about a run.

use async_trait::async_trait;

use crate::contract::ids::{RunId, ThreadId};
use crate::contract::storage::StoreError;

/// A URL that is notified about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTarget {
    pub run_id: RunId,
    /// Unique for the run.
    pub id: String,
    /// Its conversation.
    pub thread_id: ThreadId,
    /// The address and its secrets, as JSON.
    pub config: String,
}

/// The owner of the URLs to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushTargetsOf {
    /// Those of a run.
    Run(RunId),
    /// The URLs of a conversation that have not been notified of the end.
    Waiting(ThreadId),
    /// The URLs of all conversations that have not been notified of the end.
    AllWaiting,
}

/// The key of a message to an address about the place where its run stopped.
pub fn push_key(run: &RunId, id: &str, stop: &str) -> String {
    format!("push {run} {id} {stop}")
}

/// Keeps the URLs where other agents want to be notified about a task.
#[async_trait]
pub trait PushStore: Send + Sync {
    /// Stores a URL, replacing one with the same id. Returns `false` if the conversation does not exist.
    async fn put_push_target(&self, target: PushTarget, now_ms: u64) -> Result<bool, StoreError>;

    /// The URLs, oldest first.
    async fn push_targets(&self, of: PushTargetsOf) -> Result<Vec<PushTarget>, StoreError>;

    /// Deletes a URL. Returns `false` if it does not exist.
    async fn delete_push_target(&self, run: &RunId, id: String) -> Result<bool, StoreError>;
}
