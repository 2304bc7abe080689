//! Runs, what they started, and the right to write to a thread.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{AcquireError, Slice, StoreError};
use crate::contract::ids::{RunId, ThreadId};
use crate::contract::inference::ModelUsage;
use crate::contract::lifecycle::RunStatus;
use crate::contract::presence::{NoPresence, Presence};
use crate::contract::record::{
    AttemptId, Fence, IntentRecord, LeaseRecord, OpenIntent, OutcomeRecord, Owner, RunRecord,
};

/// Keeps runs and the executions of their calls. They are written by [`ThreadRunStore`](super::ThreadRunStore).
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// The run, when it exists.
    async fn load_run(&self, id: &RunId) -> Result<Option<RunRecord>, StoreError>;

    /// The run of a thread that was started last.
    async fn latest_run(&self, thread: &ThreadId) -> Result<Option<RunRecord>, StoreError>;

    /// All runs of a thread, oldest first.
    async fn list_runs(&self, thread: &ThreadId) -> Result<Vec<RunRecord>, StoreError>;

    /// Runs of a thread or of all, in one status or in any, newest first.
    async fn latest_runs(
        &self,
        thread: Option<&ThreadId>,
        status: Option<RunStatus>,
        slice: Slice,
    ) -> Result<Vec<RunRecord>, StoreError>;

    /// All runs that are not done, oldest first. An unreadable one is left out: it must not keep the others from being
    /// resumed.
    async fn unfinished_runs(&self) -> Result<Vec<RunRecord>, StoreError>;

    /// All executions of a run with their outcomes, oldest first.
    async fn intents(&self, run: &RunId) -> Result<Vec<(IntentRecord, Option<OutcomeRecord>)>, StoreError>;

    /// The executions of a run that were started and never recorded as ended, oldest first, with what they printed.
    async fn open_intents(&self, run: &RunId) -> Result<Vec<OpenIntent>, StoreError>;

    /// Adds to what an execution printed. A store may drop bytes from the middle. It need not wait for the disk.
    ///
    /// # Errors
    /// [`StoreError::NotStarted`] without an intent; [`StoreError::Fenced`] when another owner took over.
    async fn append_output(&self, fence: &Fence, id: &AttemptId, chunk: String) -> Result<(), StoreError>;

    /// Counts a request to a model that no message records, such as one for a summary. A store without statistics
    /// does nothing.
    async fn count_request(&self, _spent: &ModelUsage, _now_ms: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Gives one owner at a time the right to write to a thread. Which owners are alive is what the store's
/// [`presence`](LeaseStore::presence) says. The store counts the time of a lease by a clock of its own; callers know only
/// lengths.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Acquires the right to write to a thread: if no process has it, its time is over, its owner is known to be
    /// dead, or the owner is the same start of a program. The epoch increases each time, so that an older
    /// fence fails. It lasts for `length`, counted from before the request, or as long as the owner's process lives.
    ///
    /// # Errors
    /// [`AcquireError::Busy`] with the live owner; [`StoreError::NoThread`].
    async fn acquire(
        &self,
        thread: &ThreadId,
        owner: &Owner,
        length: Option<Duration>,
    ) -> Result<Fence, AcquireError>;

    /// Makes the right last for `length`, never shorter than before. Returns what is certainly left of it, counted from
    /// before the request, however long that took; `None` when it was lost.
    async fn renew(&self, fence: &Fence, length: Duration) -> Result<Option<Duration>, StoreError>;

    /// Releases the lease. A lease that was lost meanwhile is not an error.
    async fn release(&self, fence: &Fence) -> Result<(), StoreError>;

    /// Returns the owner of the lease, alive or not, and what is left of the lease.
    async fn lease(&self, thread: &ThreadId) -> Result<Option<LeaseRecord>, StoreError>;

    /// Returns what tells which processes that use this store are alive.
    fn presence(&self) -> Arc<dyn Presence> {
        Arc::new(NoPresence)
    }
}
