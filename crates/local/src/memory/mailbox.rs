//! The mailbox as a worker sees it.

use std::path::PathBuf;

use async_trait::async_trait;

use super::InMemoryStore;
use super::queue::turn;
use super::rows::Rows;
use aye_core::contract::ids::{JobId, ThreadId};
use aye_core::contract::mailbox::{MailboxInterrupt, MailboxJob, MailboxJobStatus};
use aye_core::contract::record::ThreadRecord;
use aye_core::contract::storage::{ChangeKind, MailboxStore, QueueStore as _, StorageError, StoreError};

/// A mailbox that is gone with the program.
#[derive(Clone, Debug)]
pub struct InMemoryMailboxStore {
    store: InMemoryStore,
    /// Whether the mailbox has a store of its own: then the first job of a thread creates the thread.
    is_alone: bool,
}

impl Default for InMemoryMailboxStore {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemoryMailboxStore {
    pub fn new() -> Self {
        Self { store: InMemoryStore::new(), is_alone: true }
    }

    /// The mailbox of a store.
    pub(super) fn of(store: InMemoryStore) -> Self {
        Self { store, is_alone: false }
    }

    fn change<T>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, StoreError>,
        of: impl FnOnce(&T) -> Option<ThreadId>,
    ) -> Result<T, StorageError> {
        let value = self.store.write(work)?;
        if let Some(thread) = of(&value) {
            self.store.publish_change(ChangeKind::Queue, &thread);
        }
        Ok(value)
    }

    /// Ends a claim.
    fn leave(
        &self,
        job: &JobId,
        token: &str,
        now: u64,
        change: impl FnOnce(&mut MailboxJob),
    ) -> Result<MailboxJob, StorageError> {
        self.change(
            |rows| {
                let job = rows.job(job)?;
                if job.status != MailboxJobStatus::Claimed || job.claim_token.as_deref() != Some(token) {
                    return Err(StoreError::NotClaimed(job.job_id.clone()));
                }
                change(job);
                job.updated_at = job.updated_at.max(now);
                (job.claim_token, job.claimed_by, job.lease_until) = (None, None, None);
                Ok(job.clone())
            },
            |job| Some(job.mailbox_id.clone()),
        )
    }
}

impl Rows {
    fn job(&mut self, id: &JobId) -> Result<&mut MailboxJob, StoreError> {
        self.job_mut(|job| job.job_id == *id).ok_or_else(|| StoreError::NoJob(id.clone()))
    }
}

fn claim(
    rows: &mut Rows,
    job: &JobId,
    consumer: &str,
    now: u64,
    lease_ms: u64,
) -> Result<MailboxJob, StoreError> {
    let job = rows.job(job)?;
    job.status = MailboxJobStatus::Claimed;
    job.claim_token = Some(uuid::Uuid::now_v7().to_string());
    job.claimed_by = Some(consumer.to_owned());
    job.lease_until = Some(now.saturating_add(lease_ms));
    job.updated_at = job.updated_at.max(now);
    let next = job.pass_on_schedule(now);
    let claimed = job.clone();
    rows.continue_schedule(&claimed, next)?;
    Ok(claimed)
}

#[async_trait]
impl MailboxStore for InMemoryMailboxStore {
    async fn enqueue(&self, job: MailboxJob) -> Result<MailboxJob, StorageError> {
        let thread = ThreadRecord {
            id: job.mailbox_id.clone(),
            title: String::new(),
            cwd: PathBuf::new(),
            created_at: job.created_at,
            updated_at: job.created_at,
        };
        let work = |rows: &mut Rows| {
            if self.is_alone {
                rows.ensure_thread(thread)?;
            }
            rows.enqueue(job)
        };
        self.change(work, |job| Some(job.mailbox_id.clone()))
    }

    /// At most one job of a mailbox is claimed at a time, so a `limit` above 1 gives no more.
    async fn claim(
        &self,
        mailbox: &ThreadId,
        consumer: &str,
        limit: usize,
        now: u64,
        lease_ms: u64,
    ) -> Result<Vec<MailboxJob>, StorageError> {
        let work = |rows: &mut Rows| {
            if limit == 0 || rows.claimed(mailbox).is_some() {
                return Ok(Vec::new());
            }
            let is_due = |job: &MailboxJob| {
                job.mailbox_id == *mailbox
                    && job.status == MailboxJobStatus::Queued
                    && job.available_at <= now
            };
            let first = rows.jobs.iter().filter(|job| is_due(job)).min_by_key(|job| turn(job));
            let first = first.map(|job| job.job_id.clone());
            first.map_or(Ok(Vec::new()), |id| Ok(vec![claim(rows, &id, consumer, now, lease_ms)?]))
        };
        self.change(work, |claimed| claimed.first().map(|job| job.mailbox_id.clone()))
    }

    async fn claim_job(
        &self,
        job: &JobId,
        consumer: &str,
        now: u64,
        lease_ms: u64,
    ) -> Result<Option<MailboxJob>, StorageError> {
        let work = |rows: &mut Rows| {
            let MailboxJob { mailbox_id, status, .. } = rows.job(job)?.clone();
            if status != MailboxJobStatus::Queued || rows.claimed(&mailbox_id).is_some() {
                return Ok(None);
            }
            Ok(Some(claim(rows, job, consumer, now, lease_ms)?))
        };
        self.change(work, |claimed| claimed.as_ref().map(|job| job.mailbox_id.clone()))
    }

    async fn ack(&self, job: &JobId, token: &str, now: u64) -> Result<MailboxJob, StorageError> {
        self.leave(job, token, now, |job| job.status = MailboxJobStatus::Accepted)
    }

    async fn nack(
        &self,
        job: &JobId,
        token: &str,
        retry_at: u64,
        error: &str,
        now: u64,
    ) -> Result<MailboxJob, StorageError> {
        self.leave(job, token, now, |job| {
            job.attempt_count = job.attempt_count.saturating_add(1);
            job.last_error = Some(error.to_owned());
            if job.attempt_count >= job.max_attempts {
                job.status = MailboxJobStatus::DeadLetter;
            } else {
                (job.status, job.available_at) = (MailboxJobStatus::Queued, retry_at);
            }
        })
    }

    async fn cancel(&self, job: &JobId, now: u64) -> Result<Option<MailboxJob>, StorageError> {
        let work = |rows: &mut Rows| {
            let job = rows.job(job)?;
            if job.status != MailboxJobStatus::Queued {
                return Ok(None);
            }
            job.status = MailboxJobStatus::Cancelled;
            job.updated_at = job.updated_at.max(now);
            Ok(Some(job.clone()))
        };
        self.change(work, |cancelled| cancelled.as_ref().map(|job| job.mailbox_id.clone()))
    }

    async fn extend_lease(
        &self,
        job: &JobId,
        token: &str,
        now: u64,
        lease_ms: u64,
    ) -> Result<bool, StorageError> {
        let work = |rows: &mut Rows| {
            let is_it = |known: &MailboxJob| {
                known.job_id == *job
                    && known.status == MailboxJobStatus::Claimed
                    && known.claim_token.as_deref() == Some(token)
            };
            Ok(rows.job_mut(is_it).map(|job| {
                job.lease_until = job.lease_until.max(Some(now.saturating_add(lease_ms)));
                job.updated_at = job.updated_at.max(now);
            }))
        };
        Ok(self.change(work, |_| None)?.is_some())
    }

    async fn interrupt(&self, mailbox: &ThreadId, now: u64) -> Result<MailboxInterrupt, StorageError> {
        Ok(self.store.interrupt(mailbox, now).await?)
    }

    async fn load_job(&self, job: &JobId) -> Result<Option<MailboxJob>, StorageError> {
        let found = self.store.read(|rows| {
            rows.jobs.iter().find(|known| known.job_id == *job).map(|known| MailboxJob::clone(known))
        })?;
        Ok(found)
    }
}
