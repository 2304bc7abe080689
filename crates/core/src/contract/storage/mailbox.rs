//! The mailbox as a trait.

use async_trait::async_trait;

use super::StorageError;
use crate::contract::ids::{JobId, ThreadId};
use crate::contract::mailbox::{MailboxInterrupt, MailboxJob};

/// A durable queue of requests for runs, one mailbox for each thread. Times are Unix milliseconds.
///
/// A claim has exactly one winner and ends with its lease; only its token may end the job.
#[async_trait]
pub trait MailboxStore: Send + Sync {
    /// Queues a job, with the current generation of its mailbox.
    ///
    /// # Errors
    /// [`StorageError::AlreadyExists`] when its id is taken, or an open job of the mailbox has its key.
    async fn enqueue(&self, job: MailboxJob) -> Result<MailboxJob, StorageError>;

    /// Claims jobs of a mailbox that are due, at most `limit`.
    ///
    /// # Errors
    /// [`StorageError`].
    async fn claim(
        &self,
        mailbox: &ThreadId,
        consumer: &str,
        limit: usize,
        now: u64,
        lease_ms: u64,
    ) -> Result<Vec<MailboxJob>, StorageError>;

    /// Claims this job, also before it is due; `None` when it cannot be claimed.
    ///
    /// # Errors
    /// [`StorageError::NotFound`].
    async fn claim_job(
        &self,
        job: &JobId,
        consumer: &str,
        now: u64,
        lease_ms: u64,
    ) -> Result<Option<MailboxJob>, StorageError>;

    /// Accepts a claimed job.
    ///
    /// # Errors
    /// [`StorageError`] without the claim.
    async fn ack(&self, job: &JobId, token: &str, now: u64) -> Result<MailboxJob, StorageError>;

    /// Queues a claimed job for another attempt at `retry_at`, or dead-letters it after its last attempt.
    ///
    /// # Errors
    /// [`StorageError`] without the claim.
    async fn nack(
        &self,
        job: &JobId,
        token: &str,
        retry_at: u64,
        error: &str,
        now: u64,
    ) -> Result<MailboxJob, StorageError>;

    /// Cancels a queued job; `None` when it is not queued.
    ///
    /// # Errors
    /// [`StorageError::NotFound`].
    async fn cancel(&self, job: &JobId, now: u64) -> Result<Option<MailboxJob>, StorageError>;

    /// Extends a claim; false when it is lost.
    ///
    /// # Errors
    /// [`StorageError`].
    async fn extend_lease(
        &self,
        job: &JobId,
        token: &str,
        now: u64,
        lease_ms: u64,
    ) -> Result<bool, StorageError>;

    /// Starts a new generation of a mailbox: queued jobs are superseded, and the claimed one is returned for the caller
    /// to cancel.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] when nothing was ever queued there.
    async fn interrupt(&self, mailbox: &ThreadId, now: u64) -> Result<MailboxInterrupt, StorageError>;

    /// The job, when it exists.
    ///
    /// # Errors
    /// [`StorageError`].
    async fn load_job(&self, job: &JobId) -> Result<Option<MailboxJob>, StorageError>;
}
