//! The mailbox: requests for runs, stored until a worker serves them.
//!
//! The result of a job is durable when it is acknowledged, and concurrent requests share one fsync (see
//! `group_commit`). A claim does not wait for the disk: a power cut that loses the claim ends its worker too.
//! Database indexes allow one claimed job per mailbox and one unfinished job per key, whatever this code
//! writes.

mod claim;
mod jobs;
mod next_work;
mod queue;

use rusqlite::{Connection, OptionalExtension};

use super::rows::{encode, int, uint};
use super::{ChangeKind, SqlFailure, Store, StoreChange, StoreError, images, threads};
use aye_core::contract::ids::{JobId, ThreadId, check_given};
use aye_core::contract::mailbox::{MailboxInterrupt, MailboxJob, MailboxJobStatus};
use aye_core::contract::record::ThreadRecord;

use jobs::{Body, by_id, claimed_of, one, readable, take_claim};

pub(super) use claim::{end_resume, end_wait, note_wait, of_thread, queue_resume, settle, take};
pub(super) use jobs::{jobs_from, next_jobs};
pub use next_work::NextWork;
#[cfg(test)]
pub(crate) use next_work::{OVERDUE, READY};

/// Why a job whose worker went silent is tried again.
const SILENT: &str = "its worker stopped responding";

/// The mailbox of a store. Times are Unix milliseconds, as the caller's clock has them.
#[derive(Clone, Debug)]
pub struct Mailbox {
    pub(super) store: Store,
}

impl Store {
    /// Requests for runs that wait to be served.
    pub fn mailbox(&self) -> Mailbox {
        Mailbox { store: self.clone() }
    }
}

fn change_of(job: &MailboxJob) -> StoreChange {
    StoreChange::of(ChangeKind::Queue, &job.mailbox_id)
}

impl Mailbox {
    /// Adds a job. It gets a number and the generation of its mailbox, and is queued whatever its status was.
    ///
    /// # Errors
    /// [`StoreError::NoThread`]; [`StoreError::Exists`] when its id is taken; [`StoreError::Duplicate`] when
    /// an unfinished job of the mailbox has its key.
    pub async fn enqueue(&self, job: MailboxJob) -> Result<MailboxJob, StoreError> {
        self.store.write_grouped(true, move |conn| insert(conn, job), |job| Some(change_of(job))).await
    }

    /// Claims the first job of a mailbox that is due, unless one is claimed already. At most one is claimed at a time
    /// in a mailbox, so a `limit` above 1 gives no more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn claim(
        &self,
        mailbox: &ThreadId,
        consumer: &str,
        limit: usize,
        now: u64,
        lease_ms: u64,
    ) -> Result<Vec<MailboxJob>, StoreError> {
        let (mailbox, consumer) = (mailbox.clone(), consumer.to_owned());
        let work = move |conn: &Connection| {
            if limit == 0 || claimed_of(conn, &mailbox)?.is_some() {
                return Ok(Vec::new());
            }
            let first: Option<i64> = conn
                .prepare_cached(
                    "SELECT n FROM mailbox WHERE mailbox_id = ?1 AND status = 'queued' AND available_at <= ?2 \
                     ORDER BY priority, available_at, created_at, n LIMIT 1",
                )?
                .query_row((mailbox.as_str(), int(now)), |row| row.get(0))
                .optional()?;
            first.map_or(Ok(Vec::new()), |n| Ok(vec![claim(conn, n, &consumer, now, lease_ms)?]))
        };
        self.store.write_grouped(false, work, |claimed| claimed.first().map(change_of)).await
    }

    /// Claims this job, also before it is due. `None`: it is not queued, or another one of its mailbox is claimed.
    ///
    /// # Errors
    /// [`StoreError::NoJob`].
    pub async fn claim_job(
        &self,
        job: &JobId,
        consumer: &str,
        now: u64,
        lease_ms: u64,
    ) -> Result<Option<MailboxJob>, StoreError> {
        let (id, consumer) = (job.clone(), consumer.to_owned());
        let work = move |conn: &Connection| {
            let job = by_id(conn, &id)?.ok_or(StoreError::NoJob(id))?;
            if job.status != MailboxJobStatus::Queued || claimed_of(conn, &job.mailbox_id)?.is_some() {
                return Ok(None);
            }
            claim(conn, int(job.sequence), &consumer, now, lease_ms).map(Some)
        };
        self.store.write_grouped(false, work, |claimed| claimed.as_ref().map(change_of)).await
    }

    /// It is done.
    ///
    /// # Errors
    /// [`StoreError::NotClaimed`] without the claim.
    pub async fn ack(&self, job: &JobId, token: &str, now: u64) -> Result<MailboxJob, StoreError> {
        self.leave(job, token, now, |_| Left::to(MailboxJobStatus::Accepted)).await
    }

    /// A try failed: the job is queued again for another one at that time, or given up when it had its tries.
    ///
    /// # Errors
    /// [`StoreError::NotClaimed`] without the claim.
    pub async fn nack(
        &self,
        job: &JobId,
        token: &str,
        retry_at: u64,
        error: &str,
        now: u64,
    ) -> Result<MailboxJob, StoreError> {
        let error = error.to_owned();
        self.leave(job, token, now, move |job| failed(job, retry_at, error)).await
    }

    /// Marks a job as dead, whatever attempts it has left.
    ///
    /// # Errors
    /// [`StoreError::NotClaimed`] without the claim.
    pub async fn dead_letter(
        &self,
        job: &JobId,
        token: &str,
        error: &str,
        now: u64,
    ) -> Result<MailboxJob, StoreError> {
        let error = error.to_owned();
        let to = move |job: &MailboxJob| Left {
            attempts: job.attempt_count.saturating_add(1),
            error: Some(error),
            ..Left::to(MailboxJobStatus::DeadLetter)
        };
        self.leave(job, token, now, to).await
    }

    /// A newer one takes its place: what becomes of a job whose run was cancelled after [`Mailbox::interrupt`].
    ///
    /// # Errors
    /// [`StoreError::NotClaimed`] without the claim.
    pub async fn supersede(
        &self,
        job: &JobId,
        token: &str,
        reason: &str,
        now: u64,
    ) -> Result<MailboxJob, StoreError> {
        let reason = reason.to_owned();
        let to = move |_: &MailboxJob| Left { error: Some(reason), ..Left::to(MailboxJobStatus::Superseded) };
        self.leave(job, token, now, to).await
    }

    /// Queues a claimed job again as it was, without a failed attempt: it could not start yet, waits for a
    /// user, or its worker ends.
    ///
    /// # Errors
    /// [`StoreError::NotClaimed`] without the claim.
    pub async fn give_back(&self, job: &JobId, token: &str, now: u64) -> Result<MailboxJob, StoreError> {
        self.leave(job, token, now, |_| Left::to(MailboxJobStatus::Queued)).await
    }

    /// Queues a claimed job again for this time, without a failed attempt: nothing was sent for it.
    ///
    /// # Errors
    /// [`StoreError::NotClaimed`] without the claim.
    pub async fn postpone(
        &self,
        job: &JobId,
        token: &str,
        at: u64,
        why: &str,
        now: u64,
    ) -> Result<MailboxJob, StoreError> {
        let why = why.to_owned();
        let to = move |_: &MailboxJob| Left {
            available_at: Some(at),
            error: Some(why),
            ..Left::to(MailboxJobStatus::Queued)
        };
        self.leave(job, token, now, to).await
    }

    async fn leave(
        &self,
        job: &JobId,
        token: &str,
        now: u64,
        to: impl FnOnce(&MailboxJob) -> Left + Send + 'static,
    ) -> Result<MailboxJob, StoreError> {
        let (id, token) = (job.clone(), token.to_owned());
        let work = move |conn: &Connection| {
            let job = take_claim(conn, &id, &token)?;
            let left = to(&job);
            left.write(conn, job, now)
        };
        self.store.write_grouped(true, work, |job| Some(change_of(job))).await
    }

    /// Extends a claim to `lease_ms` from now; its end never moves to an earlier time. Returns `false` if the
    /// claim was lost.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn extend_lease(
        &self,
        job: &JobId,
        token: &str,
        now: u64,
        lease_ms: u64,
    ) -> Result<bool, StoreError> {
        let (id, token) = (job.clone(), token.to_owned());
        let work = move |conn: &Connection| {
            let sql = "UPDATE mailbox SET lease_until = max(lease_until, ?3), updated_at = max(updated_at, ?4) \
                       WHERE job_id = ?1 AND claim_token = ?2 AND status = 'claimed'";
            let until = int(now.saturating_add(lease_ms));
            Ok(conn.prepare_cached(sql)?.execute((id.as_str(), token, until, int(now)))? > 0)
        };
        // No change is published: a process that waits for the claim to end checks again at the time it
        // expects that.
        self.store.write_grouped(false, work, |_| None).await
    }

    /// Takes a queued job back. `None`: it is not queued any more.
    ///
    /// # Errors
    /// [`StoreError::NoJob`].
    pub async fn cancel(&self, job: &JobId, now: u64) -> Result<Option<MailboxJob>, StoreError> {
        let id = job.clone();
        let work = move |conn: &Connection| {
            let job = by_id(conn, &id)?.ok_or(StoreError::NoJob(id))?;
            if job.status != MailboxJobStatus::Queued {
                return Ok(None);
            }
            Left::to(MailboxJobStatus::Cancelled).write(conn, job, now).map(Some)
        };
        self.store.write_grouped(true, work, |job| job.as_ref().map(change_of)).await
    }

    /// Starts a new generation of a mailbox: queued jobs are superseded, and a claimed job is returned to the
    /// caller, who cancels its run.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    pub async fn interrupt(&self, mailbox: &ThreadId, now: u64) -> Result<MailboxInterrupt, StoreError> {
        let id = mailbox.clone();
        let change = StoreChange::of(ChangeKind::Queue, mailbox);
        let work = move |conn: &Connection| {
            if !threads::exists(conn, &id)? {
                return Err(StoreError::NoThread(id).into());
            }
            let generation: i64 = conn
                .prepare_cached(
                    "INSERT INTO mailbox_generation (mailbox_id, generation) VALUES (?1, 1) \
                     ON CONFLICT (mailbox_id) DO UPDATE SET generation = generation + 1 RETURNING generation",
                )?
                .query_row((id.as_str(),), |row| row.get(0))?;
            let superseded_count = conn
                .prepare_cached(
                    "UPDATE mailbox SET status = 'superseded', updated_at = max(updated_at, ?3) \
                     WHERE mailbox_id = ?1 AND status = 'queued' AND generation < ?2",
                )?
                .execute((id.as_str(), generation, int(now)))?;
            let active_job = claimed_of(conn, &id)?;
            Ok(MailboxInterrupt { new_generation: uint(generation), active_job, superseded_count })
        };
        self.store.write_grouped(true, work, |_| Some(change)).await
    }

    /// Takes jobs away from those whose claim is over, or who are gone: for each a failed try. Gives what they are now.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn reclaim(
        &self,
        now: u64,
        limit: usize,
        is_gone: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Vec<MailboxJob>, StoreError> {
        let work = move |conn: &Connection| {
            let sql = "SELECT {} FROM mailbox WHERE status = 'claimed' ORDER BY lease_until, n";
            let mut reclaimed = Vec::new();
            for job in readable(conn, sql, ())? {
                if reclaimed.len() == limit {
                    break;
                }
                if job.is_lease_over(now) || job.claimed_by.as_deref().is_some_and(&is_gone) {
                    // The job keeps its position: jobs queued later must not overtake it because its worker
                    // died.
                    let left = Left { available_at: None, ..failed(&job, now, SILENT.to_owned()) };
                    reclaimed.push(left.write(conn, job, now)?);
                }
            }
            Ok(reclaimed)
        };
        let change = |jobs: &Vec<MailboxJob>| match jobs.as_slice() {
            [] => None,
            [one] => Some(change_of(one)),
            [..] => Some(StoreChange { kind: ChangeKind::Queue, thread: None }),
        };
        self.store.write_grouped(true, work, change).await
    }

    /// Queues a job again that was given up: a fresh one with all its tries takes its place, for a terminal job never
    /// changes. `None`: it is gone, or was not given up.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] when an open job has its key by now.
    pub async fn requeue_dead(&self, job: &JobId, now: u64) -> Result<Option<MailboxJob>, StoreError> {
        let id = job.clone();
        let work = move |conn: &Connection| {
            let Some(mut job) = by_id(conn, &id)?.filter(|job| job.status == MailboxJobStatus::DeadLetter)
            else {
                return Ok(None);
            };
            conn.prepare_cached("DELETE FROM mailbox WHERE n = ?1")?.execute((int(job.sequence),))?;
            job.job_id = JobId::fresh();
            (job.available_at, job.created_at, job.updated_at) = (now, now, now);
            insert(conn, job).map(Some)
        };
        self.store.write_grouped(true, work, |job| job.as_ref().map(change_of)).await
    }

    /// Removes jobs that were over before this time. Gives how many.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn purge_terminal(&self, before: u64) -> Result<usize, StoreError> {
        let work = move |conn: &Connection| {
            let sql = "DELETE FROM mailbox WHERE updated_at < ?1 \
                       AND status IN ('accepted', 'cancelled', 'superseded', 'dead_letter')";
            Ok(conn.prepare_cached(sql)?.execute((int(before),))?)
        };
        self.store.write_grouped(true, work, |_| None).await
    }
}

/// The state of a job after its claim.
struct Left {
    status: MailboxJobStatus,
    available_at: Option<u64>,
    attempts: u32,
    error: Option<String>,
}

impl Left {
    fn to(status: MailboxJobStatus) -> Left {
        Left { status, available_at: None, attempts: 0, error: None }
    }

    /// A job never has fewer tries than before, and keeps its last error.
    fn write(self, conn: &Connection, mut job: MailboxJob, now: u64) -> Result<MailboxJob, SqlFailure> {
        job.status = self.status;
        job.available_at = self.available_at.unwrap_or(job.available_at);
        job.attempt_count = job.attempt_count.max(self.attempts);
        job.last_error = self.error.or(job.last_error);
        job.updated_at = job.updated_at.max(now);
        (job.claim_token, job.claimed_by, job.lease_until) = (None, None, None);
        conn.prepare_cached(
            "UPDATE mailbox SET status = ?2, available_at = ?3, attempt_count = ?4, last_error = ?5, updated_at = ?6, \
             claim_token = NULL, claimed_by = NULL, lease_until = NULL WHERE n = ?1",
        )?
        .execute((
            int(job.sequence),
            job.status.as_str(),
            int(job.available_at),
            job.attempt_count,
            &job.last_error,
            int(job.updated_at),
        ))?;
        Ok(job)
    }
}

/// Returns the state of a job after a failed attempt.
fn failed(job: &MailboxJob, retry_at: u64, error: String) -> Left {
    let attempts = job.attempt_count.saturating_add(1);
    let is_last = attempts >= job.max_attempts;
    Left {
        status: if is_last { MailboxJobStatus::DeadLetter } else { MailboxJobStatus::Queued },
        available_at: (!is_last).then_some(retry_at),
        attempts,
        error: Some(error),
    }
}

pub(super) fn insert(conn: &Connection, mut job: MailboxJob) -> Result<MailboxJob, SqlFailure> {
    check_given("job", job.job_id.as_str())?;
    if job.messages.is_empty() && job.run_id.is_none() {
        return Err(StoreError::NoMessage.into());
    }
    if !threads::exists(conn, &job.mailbox_id)? {
        return Err(StoreError::NoThread(job.mailbox_id).into());
    }
    if let Some(key) = &job.dedupe_key {
        let sql = "SELECT job_id FROM mailbox \
                   WHERE mailbox_id = ?1 AND dedupe_key = ?2 AND status IN ('queued', 'claimed')";
        let known: Option<String> = conn
            .prepare_cached(sql)?
            .query_row((job.mailbox_id.as_str(), key), |row| row.get(0))
            .optional()?;
        if let Some(known) = known {
            let (thread, key) = (job.mailbox_id, key.clone());
            return Err(StoreError::Duplicate { thread, key, job: known.into() }.into());
        }
    }
    let generation: Option<i64> = conn
        .prepare_cached("SELECT generation FROM mailbox_generation WHERE mailbox_id = ?1")?
        .query_row((job.mailbox_id.as_str(),), |row| row.get(0))
        .optional()?;
    job.generation = generation.map_or(0, uint);
    job.status = MailboxJobStatus::Queued;
    job.attempt_count = 0;
    (job.claim_token, job.claimed_by, job.lease_until) = (None, None, None);
    let mut kept = Vec::with_capacity(job.messages.len());
    for message in &job.messages {
        kept.push(images::keep(conn, &job.mailbox_id, job.created_at, message)?.into_owned());
    }
    job.messages = kept;
    let n: Option<i64> = conn
        .prepare_cached(
            "INSERT INTO mailbox (job_id, mailbox_id, status, priority, available_at, created_at, updated_at, \
             generation, dedupe_key, attempt_count, max_attempts, last_error, run_id, body) \
             VALUES (?1, ?2, 'queued', ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10, ?11, ?12) \
             ON CONFLICT (job_id) DO NOTHING RETURNING n",
        )?
        .query_row(
            (
                job.job_id.as_str(),
                job.mailbox_id.as_str(),
                job.priority,
                int(job.available_at),
                int(job.created_at),
                int(job.updated_at),
                int(job.generation),
                &job.dedupe_key,
                job.max_attempts,
                &job.last_error,
                job.run_id.as_ref().map(aye_core::contract::ids::RunId::as_str),
                encode("the job", &Body::of(&job))?,
            ),
            |row| row.get(0),
        )
        .optional()?;
    let Some(n) = n else { return Err(StoreError::Exists { what: format!("job {}", job.job_id) }.into()) };
    job.sequence = uint(n);
    Ok(job)
}

fn claim(
    conn: &Connection,
    n: i64,
    consumer: &str,
    now: u64,
    lease_ms: u64,
) -> Result<MailboxJob, SqlFailure> {
    let token = uuid::Uuid::now_v7().to_string();
    conn.prepare_cached(
        "UPDATE mailbox SET status = 'claimed', claim_token = ?2, claimed_by = ?3, lease_until = ?4, \
         updated_at = max(updated_at, ?5) WHERE n = ?1",
    )?
    .execute((n, token, consumer, int(now.saturating_add(lease_ms)), int(now)))?;
    let mut job = one(conn, "SELECT {} FROM mailbox WHERE n = ?1", (n,))?
        .ok_or_else(|| SqlFailure(StoreError::NoJob(JobId::from(n.to_string()))))?;
    pass_on_schedule(conn, &mut job, now)?;
    Ok(job)
}

/// Queues the next job of a schedule when one of it begins: a crash in between loses neither, and makes none twice.
fn pass_on_schedule(conn: &Connection, job: &mut MailboxJob, now: u64) -> Result<(), SqlFailure> {
    let Some(next) = job.pass_on_schedule(now) else { return Ok(()) };
    if next.mailbox_id != job.mailbox_id
        && let Some(thread) = threads::one(conn, &job.mailbox_id)?
    {
        let (id, created_at, updated_at) = (next.mailbox_id.clone(), now, now);
        threads::add(conn, &ThreadRecord { id, created_at, updated_at, ..thread })?;
    }
    insert(conn, next)?;
    conn.prepare_cached("UPDATE mailbox SET body = ?2 WHERE n = ?1")?
        .execute((int(job.sequence), encode("the job", &Body::of(job))?))?;
    Ok(())
}
