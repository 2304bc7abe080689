//! The queue as a worker sees it.

use async_trait::async_trait;

use crate::contract::ids::{JobId, ThreadId};
use crate::contract::mailbox::{MailboxJob, MailboxJobStatus};
use crate::contract::record::{LeaseRecord, Owner};
use crate::contract::storage::StoreError;

/// A filter for listing jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Of this mailbox only.
    pub mailbox: Option<ThreadId>,
    /// Only jobs in these states; empty for any state.
    pub statuses: Vec<MailboxJobStatus>,
    /// Maximum jobs to list.
    pub limit: Option<usize>,
}

/// The result of looking up a job by its number or an id prefix.
#[derive(Clone, Debug, PartialEq)]
pub enum JobLookup {
    One(Box<MailboxJob>),
    None,
    Many(Vec<JobId>),
}

/// What a worker gets that asks for work.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkClaim {
    /// A job, which is the worker's until its claim ends.
    Claimed(Box<MailboxJob>),
    /// No job can be claimed now.
    Nothing(NoWork),
}

/// What a worker waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NoWork {
    /// The leases of the threads that have jobs due.
    pub held: Vec<LeaseRecord>,
    /// Other live processes after whose end there may be work: those that claimed jobs, and those in which jobs were typed.
    pub behind: Vec<LeaseRecord>,
    /// The number of claimed jobs.
    pub claimed: u64,
    /// The number of jobs that wait for a retry that is not due yet, but soon.
    pub retrying: u64,
    /// When to ask again if no change is received until then, in Unix milliseconds.
    pub wake_at: Option<u64>,
}

/// The queue of all threads, for workers and for those who look after it. Times are Unix milliseconds; a claim ends with
/// its lease, and only its token may end the job.
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait WorkStore: Send + Sync {
    /// Claims the first job that is due and whose thread is free, of all that this worker may start: not one that was
    /// typed in another live process, nor one that is after such a job in its thread. A job that waits for an answer is not
    /// passed.
    async fn claim_next(&self, worker: &Owner, now_ms: u64, lease_ms: u64) -> Result<WorkClaim, StoreError>;

    /// Takes jobs away from workers whose claim is over, or who are known to be dead, at most `limit`: each had a failed
    /// attempt and keeps its place in the queue. Returns them as they are now.
    async fn reclaim(&self, now_ms: u64, limit: usize) -> Result<Vec<MailboxJob>, StoreError>;

    /// Extends a claim to `lease_ms` from now; its end never moves to an earlier time. Returns `false` if it was lost.
    async fn extend_claim(
        &self,
        job: &JobId,
        token: &str,
        now_ms: u64,
        lease_ms: u64,
    ) -> Result<bool, StoreError>;

    /// Accepts a claimed job.
    ///
    /// # Errors
    /// [`StoreError::NotClaimed`] without the claim, as from the next four.
    async fn accept_job(&self, job: &JobId, token: &str, now_ms: u64) -> Result<MailboxJob, StoreError>;

    /// Queues a claimed job for another attempt at `retry_at`, or marks it as dead after its last attempt.
    async fn retry_job(
        &self,
        job: &JobId,
        token: &str,
        retry_at: u64,
        error: &str,
        now_ms: u64,
    ) -> Result<MailboxJob, StoreError>;

    /// Queues a claimed job again for this time, without a failed attempt: nothing was sent for it.
    async fn postpone_job(
        &self,
        job: &JobId,
        token: &str,
        at: u64,
        why: &str,
        now_ms: u64,
    ) -> Result<MailboxJob, StoreError>;

    /// Queues a claimed job again as it was, without a failed attempt.
    async fn give_back_job(&self, job: &JobId, token: &str, now_ms: u64) -> Result<MailboxJob, StoreError>;

    /// Marks a claimed job as dead, whatever attempts it has left.
    async fn dead_letter_job(
        &self,
        job: &JobId,
        token: &str,
        error: &str,
        now_ms: u64,
    ) -> Result<MailboxJob, StoreError>;

    /// Cancels a queued job; `None` when it is not queued any more.
    ///
    /// # Errors
    /// [`StoreError::NoJob`].
    async fn cancel_job(&self, job: &JobId, now_ms: u64) -> Result<Option<MailboxJob>, StoreError>;

    /// Queues a dead job again: a fresh one with all its attempts takes its place. `None`: it is gone, or not dead.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] when an open job has its key by now.
    async fn requeue_dead(&self, job: &JobId, now_ms: u64) -> Result<Option<MailboxJob>, StoreError>;

    /// Removes jobs that were over before this time. Returns their number.
    async fn purge_jobs(&self, before: u64) -> Result<usize, StoreError>;

    /// Jobs in the order in which they are served, followed by the closed ones, last one first.
    async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<MailboxJob>, StoreError>;

    /// The number of jobs that a filter leaves, whatever its limit is.
    async fn count_jobs(&self, filter: JobFilter) -> Result<u64, StoreError>;

    /// The job with this number, or with an id that starts with `words`.
    async fn find_job(&self, words: &str) -> Result<JobLookup, StoreError>;
}
