//! Queued messages, and jobs in the transactions of runs.

use std::sync::Arc;

use async_trait::async_trait;

use super::InMemoryStore;
use super::rows::Rows;
use aye_core::contract::ids::{ThreadId, check_given};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxInterrupt, MailboxJob, MailboxJobStatus};
use aye_core::contract::record::{JobClaim, QueueId, QueuedMessage, RunRecord, ThreadRecord};
use aye_core::contract::storage::{ChangeKind, QueueStore, Slice, StoreError};

impl Rows {
    pub(super) fn enqueue(&mut self, mut job: MailboxJob) -> Result<MailboxJob, StoreError> {
        check_given("job", job.job_id.as_str())?;
        if job.messages.is_empty() && job.run_id.is_none() {
            return Err(StoreError::NoMessage);
        }
        if !self.threads.contains_key(&job.mailbox_id) {
            return Err(StoreError::NoThread(job.mailbox_id));
        }
        let is_same = |known: &&Arc<MailboxJob>| {
            !known.status.is_terminal()
                && known.mailbox_id == job.mailbox_id
                && known.dedupe_key == job.dedupe_key
        };
        if let Some(key) = &job.dedupe_key
            && let Some(known) = self.jobs.iter().find(is_same)
        {
            let (thread, key, job) = (job.mailbox_id.clone(), key.clone(), known.job_id.clone());
            return Err(StoreError::Duplicate { thread, key, job });
        }
        if self.jobs.iter().any(|known| known.job_id == job.job_id) {
            return Err(StoreError::Exists { what: format!("job {}", job.job_id) });
        }
        job.generation = self.generations.get(&job.mailbox_id).copied().unwrap_or_default();
        job.status = MailboxJobStatus::Queued;
        job.attempt_count = 0;
        (job.claim_token, job.claimed_by, job.lease_until) = (None, None, None);
        self.job += 1;
        job.sequence = self.job;
        job.messages = job.messages.into_iter().map(|message| self.without_images(message)).collect();
        self.jobs.push(Arc::new(job.clone()));
        Ok(job)
    }

    /// Queues the next job of a schedule, in a conversation of its own if it is for another one.
    pub(super) fn continue_schedule(
        &mut self,
        job: &MailboxJob,
        next: Option<MailboxJob>,
    ) -> Result<(), StoreError> {
        let Some(next) = next else { return Ok(()) };
        if let Some(thread) = self.threads.get(&job.mailbox_id)
            && next.mailbox_id != job.mailbox_id
        {
            let (id, created_at, updated_at) = (next.mailbox_id.clone(), next.created_at, next.created_at);
            self.ensure_thread(ThreadRecord { id, created_at, updated_at, ..thread.record.clone() })?;
        }
        self.enqueue(next).map(drop)
    }

    /// Queues the job that resumes a waiting run, or moves it to another time.
    pub(super) fn queue_resume(&mut self, run: &RunRecord, at: u64) -> Result<(), StoreError> {
        let job = MailboxJob::resuming(run, at, run.updated_at);
        let is_known = |known: &MailboxJob| {
            !known.status.is_terminal()
                && known.mailbox_id == run.thread_id
                && known.dedupe_key == job.dedupe_key
        };
        match self.job_mut(is_known) {
            Some(known) => known.available_at = at,
            None => {
                self.enqueue(job)?;
            }
        }
        Ok(())
    }

    /// Closes the job that would resume a run: its wait is over. A job that a worker has claimed ends with the run.
    pub(super) fn end_resume(&mut self, run: &RunRecord) {
        let key = Some(MailboxJob::resume_key(&run.id));
        let resumes = |job: &MailboxJob| {
            job.dedupe_key == key && job.mailbox_id == run.thread_id && job.status == MailboxJobStatus::Queued
        };
        for job in self.jobs_mut(resumes) {
            job.status = MailboxJobStatus::Accepted;
            job.updated_at = job.updated_at.max(run.updated_at);
        }
    }

    fn jobs_mut(&mut self, is_meant: impl Fn(&MailboxJob) -> bool) -> impl Iterator<Item = &mut MailboxJob> {
        self.jobs.iter_mut().filter(move |job| is_meant(job)).map(Arc::make_mut)
    }

    pub(super) fn job_mut(&mut self, is_meant: impl Fn(&MailboxJob) -> bool) -> Option<&mut MailboxJob> {
        self.jobs_mut(is_meant).next()
    }

    pub(super) fn claimed(&self, mailbox: &ThreadId) -> Option<&MailboxJob> {
        let is_it =
            |job: &&Arc<MailboxJob>| job.mailbox_id == *mailbox && job.status == MailboxJobStatus::Claimed;
        self.jobs.iter().find(is_it).map(|job| &**job)
    }

    pub(super) fn interrupt(
        &mut self,
        mailbox: &ThreadId,
        now_ms: u64,
    ) -> Result<MailboxInterrupt, StoreError> {
        if !self.threads.contains_key(mailbox) {
            return Err(StoreError::NoThread(mailbox.clone()));
        }
        let generation = self.generations.entry(mailbox.clone()).or_default();
        *generation += 1;
        let new_generation = *generation;
        let mut superseded_count = 0;
        let queued = |job: &MailboxJob| job.mailbox_id == *mailbox && job.status == MailboxJobStatus::Queued;
        for job in self.jobs_mut(queued) {
            job.status = MailboxJobStatus::Superseded;
            job.updated_at = job.updated_at.max(now_ms);
            superseded_count += 1;
        }
        let active_job = self.claimed(mailbox).cloned();
        Ok(MailboxInterrupt { new_generation, active_job, superseded_count })
    }

    /// Takes a job for the run that starts with it. A worker's stays claimed until the run is done.
    pub(super) fn take_job(&mut self, run: &RunRecord, claim: &JobClaim) -> Result<(), StoreError> {
        let refused = || StoreError::NotQueued { thread: run.thread_id.clone(), id: claim.id };
        let job = self.job_mut(|job| job.sequence == claim.id && job.mailbox_id == run.thread_id);
        let job = job.ok_or_else(refused)?;
        match &claim.claim {
            None if job.status == MailboxJobStatus::Queued => job.status = MailboxJobStatus::Accepted,
            Some(token)
                if job.status == MailboxJobStatus::Claimed && job.claim_token.as_ref() == Some(token) => {}
            None | Some(_) => return Err(refused()),
        }
        job.run_id = Some(run.id.clone());
        job.updated_at = job.updated_at.max(run.updated_at);
        let next = job.pass_on_schedule(run.updated_at);
        let taken = job.clone();
        self.continue_schedule(&taken, next)?;
        Ok(())
    }

    /// Ends the job of a run that is done. One whose run failed is left to a worker, which tries again.
    pub(super) fn settle_jobs(&mut self, run: &RunRecord) {
        let Some((status, error)) = MailboxJobStatus::after(run.termination.as_ref()) else { return };
        for job in self.jobs_mut(|job| job.run_id.as_ref() == Some(&run.id) && !job.status.is_terminal()) {
            job.status = status;
            job.last_error = error.clone().or(job.last_error.take());
            job.updated_at = job.updated_at.max(run.updated_at);
            (job.claim_token, job.claimed_by, job.lease_until) = (None, None, None);
        }
    }
}

/// The order in which jobs are served.
pub(super) fn turn(job: &MailboxJob) -> (u8, u64, u64, u64) {
    (job.priority, job.available_at, job.created_at, job.sequence)
}

#[async_trait]
impl QueueStore for InMemoryStore {
    async fn submit(&self, job: MailboxJob) -> Result<MailboxJob, StoreError> {
        let job = self.write(|rows| rows.enqueue(job))?;
        self.publish_change(ChangeKind::Queue, &job.mailbox_id);
        Ok(job)
    }

    async fn interrupt(&self, mailbox: &ThreadId, now_ms: u64) -> Result<MailboxInterrupt, StoreError> {
        let interrupt = self.write(|rows| rows.interrupt(mailbox, now_ms))?;
        self.publish_change(ChangeKind::Queue, mailbox);
        Ok(interrupt)
    }

    async fn queued(&self, thread: &ThreadId) -> Result<Vec<QueuedMessage>, StoreError> {
        self.read(|rows| {
            // Not what has started already and waits for a user.
            let is_started = |job: &MailboxJob| {
                let run = job.run_id.as_ref().and_then(|run| rows.run(run));
                run.is_some_and(|run| run.status != RunStatus::Done)
            };
            let is_queued = |job: &&Arc<MailboxJob>| {
                job.mailbox_id == *thread && job.status == MailboxJobStatus::Queued && !is_started(job)
            };
            let mut queued: Vec<_> = rows.jobs.iter().filter(is_queued).collect();
            queued.sort_by_key(|job| turn(job));
            queued.into_iter().map(|job| MailboxJob::clone(job).into()).collect()
        })
    }

    async fn open_jobs(
        &self,
        thread: Option<&ThreadId>,
        slice: Slice,
    ) -> Result<Vec<MailboxJob>, StoreError> {
        self.read(|rows| {
            let is_open = |job: &&Arc<MailboxJob>| {
                !job.status.is_terminal() && thread.is_none_or(|thread| job.mailbox_id == *thread)
            };
            let mut open: Vec<_> = rows.jobs.iter().filter(is_open).collect();
            open.sort_by_key(|job| turn(job));
            slice.of(open.into_iter().map(|job| MailboxJob::clone(job)))
        })
    }

    async fn unqueue(&self, id: QueueId, now_ms: u64) -> Result<bool, StoreError> {
        let thread = self.write(|rows| {
            let is_it = |job: &MailboxJob| job.sequence == id && job.status == MailboxJobStatus::Queued;
            Ok(rows.job_mut(is_it).map(|job| {
                job.status = MailboxJobStatus::Cancelled;
                job.updated_at = job.updated_at.max(now_ms);
                job.mailbox_id.clone()
            }))
        })?;
        if let Some(thread) = &thread {
            self.publish_change(ChangeKind::Queue, thread);
        }
        Ok(thread.is_some())
    }
}
