//! URLs of other agents that are notified about a run.

use crate::contract::ids::{RunId, ThreadId};

/// A URL that is notified about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTarget {
    /// The run.
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
