//! The identity of a run.

use serde::{Deserialize, Serialize};

use super::ids::{RunId, ThreadId};

/// The origin of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOrigin {
    #[default]
    User,
    Subagent,
    Internal,
}

/// The names that go with one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    pub thread_id: ThreadId,
    /// The conversation of the run that started this one.
    pub parent_thread_id: Option<ThreadId>,
    pub run_id: RunId,
    /// The run that started this one, or that this one continues.
    pub parent_run_id: Option<RunId>,
    pub agent_id: String,
    /// The origin of the run.
    pub origin: RunOrigin,
    /// The number of runs above this one, each of which a call of the one above started.
    #[serde(default)]
    pub depth: u32,
    /// The client's id for the request that the run serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
}

impl RunIdentity {
    /// All of it at once.
    pub fn new(
        thread_id: ThreadId,
        parent_thread_id: Option<ThreadId>,
        run_id: RunId,
        parent_run_id: Option<RunId>,
        agent_id: String,
        origin: RunOrigin,
    ) -> Self {
        Self {
            thread_id,
            parent_thread_id,
            run_id,
            parent_run_id,
            agent_id,
            origin,
            depth: 0,
            correlation_id: None,
        }
    }

    /// Says what a client calls the request that it serves.
    #[must_use]
    pub fn with_correlation_id(mut self, id: Option<String>) -> Self {
        self.correlation_id = id;
        self
    }

    /// Sets the number of runs above this one.
    #[must_use]
    pub fn with_depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }
}
