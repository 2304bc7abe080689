//! What clients see of a run.

use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::record::RunRecord;
use schemars::JsonSchema;
use serde::Serialize;

/// A run without the machine's own state.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunView {
    id: RunId,
    thread_id: ThreadId,
    parent_run_id: Option<RunId>,
    /// The client's id of the request that the run serves.
    correlation_id: Option<String>,
    agent_id: String,
    model: String,
    status: RunStatus,
    steps: u32,
    usage: TokenUsage,
    active_ms: u64,
    termination: Option<TerminationReason>,
    created_at: u64,
    updated_at: u64,
}

impl From<RunRecord> for RunView {
    fn from(run: RunRecord) -> Self {
        Self {
            id: run.id,
            thread_id: run.thread_id,
            parent_run_id: run.parent_run_id,
            correlation_id: run.correlation_id,
            agent_id: run.agent_id,
            model: run.model,
            status: run.status,
            steps: run.steps,
            usage: run.usage,
            active_ms: run.active_ms,
            termination: run.termination,
            created_at: run.created_at,
            updated_at: run.updated_at,
        }
    }
}
