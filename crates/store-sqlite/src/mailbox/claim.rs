//! Jobs and the runs that serve them, in the transactions of those runs.

use rusqlite::{Connection, OptionalExtension};

use super::super::rows::int;
use super::super::{SqlFailure, StoreError};
use super::jobs::{one, several};
use super::{insert, pass_on_schedule};
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};
use aye_core::contract::record::{JobClaim, QueueId, QueuedMessage, RunRecord};

/// Takes a job for the run that it starts. A front end removes the job from the queue for good: the run takes
/// care of itself. A worker's job stays claimed until the run has ended, and refers to the run from now on.
pub(crate) fn take(conn: &Connection, run: &RunRecord, taking: &JobClaim) -> Result<(), SqlFailure> {
    let now = int(run.updated_at);
    let (id, thread) = (int(taking.id), run.thread_id.as_str());
    let taken = match &taking.claim {
        None => conn
            .prepare_cached(
                "UPDATE mailbox SET status = 'accepted', run_id = ?3, updated_at = max(updated_at, ?4) \
                 WHERE n = ?1 AND mailbox_id = ?2 AND status = 'queued'",
            )?
            .execute((id, thread, run.id.as_str(), now))?,
        Some(token) => conn
            .prepare_cached(
                "UPDATE mailbox SET run_id = ?3, updated_at = max(updated_at, ?4) \
                 WHERE n = ?1 AND mailbox_id = ?2 AND status = 'claimed' AND claim_token = ?5",
            )?
            .execute((id, thread, run.id.as_str(), now, token))?,
    };
    if taken == 1 {
        if let Some(mut job) = one(conn, "SELECT {} FROM mailbox WHERE n = ?1", (id,))? {
            pass_on_schedule(conn, &mut job, run.updated_at)?;
        }
        return Ok(());
    }
    Err(StoreError::NotQueued { thread: run.thread_id.clone(), id: taking.id }.into())
}

/// Queues the job by which any process resumes a run that waits for a time, or moves the job to another time.
pub(crate) fn queue_resume(conn: &Connection, run: &RunRecord, at: u64) -> Result<(), SqlFailure> {
    let job = MailboxJob::resuming(run, at, run.updated_at);
    let moved = conn
        .prepare_cached(
            "UPDATE mailbox SET available_at = ?3, updated_at = max(updated_at, ?4) \
             WHERE mailbox_id = ?1 AND dedupe_key = ?2 AND status IN ('queued', 'claimed')",
        )?
        .execute((run.thread_id.as_str(), &job.dedupe_key, int(at), int(run.updated_at)))?;
    if moved == 0 {
        insert(conn, job)?;
    }
    Ok(())
}

/// Closes the job that would resume a run: its wait is over. A job that a worker has claimed ends with the run.
pub(crate) fn end_resume(conn: &Connection, run: &RunRecord) -> Result<(), SqlFailure> {
    conn.prepare_cached(
        "UPDATE mailbox SET status = 'accepted', updated_at = max(updated_at, ?3) \
         WHERE mailbox_id = ?1 AND dedupe_key = ?2 AND status = 'queued'",
    )?
    .execute((run.thread_id.as_str(), MailboxJob::resume_key(&run.id), int(run.updated_at)))?;
    Ok(())
}

/// Closes the job of a run that has ended, whichever process drove it to its end. The job of a failed run is
/// left to a worker, which retries it or marks it as dead.
pub(crate) fn settle(conn: &Connection, run: &RunRecord) -> Result<(), SqlFailure> {
    if run.status != RunStatus::Done {
        return Ok(());
    }
    let Some((status, error)) = MailboxJobStatus::after(run.termination.as_ref()) else { return Ok(()) };
    conn.prepare_cached(
        "UPDATE mailbox SET status = ?2, last_error = coalesce(?3, last_error), updated_at = max(updated_at, ?4), \
         claim_token = NULL, claimed_by = NULL, lease_until = NULL \
         WHERE run_id = ?1 AND status IN ('queued', 'claimed')",
    )?
    .execute((run.id.as_str(), status.as_str(), error, int(run.updated_at)))?;
    Ok(())
}

/// Notes whether the jobs of a run wait for an answer. A job that waits is not in the order of the queue, so that a look
/// for work does not pass it each time. A question that was answered or has expired and that the run has not taken note of
/// ends the wait; a question that expired earlier does not, because the run waits for another one.
pub(crate) fn note_wait(conn: &Connection, run: &RunRecord) -> Result<(), SqlFailure> {
    let waits = run.status == RunStatus::Waiting && {
        let open = "SELECT 1 FROM suspension WHERE run_id = ?1 AND status = ?2";
        let has = |status| Ok::<_, SqlFailure>(conn.prepare_cached(open)?.exists((run.id.as_str(), status))?);
        !has("decided")? && (has("open")? || !has("expired")?)
    };
    set_wait(conn, &run.id, waits)
}

/// Ends the wait of a run's jobs: a question of it was answered, or has expired.
pub(crate) fn end_wait(conn: &Connection, run: &RunId) -> Result<(), SqlFailure> {
    set_wait(conn, run, false)
}

fn set_wait(conn: &Connection, run: &RunId, waits: bool) -> Result<(), SqlFailure> {
    // Whatever their status: a job that is claimed now may be queued again before the run writes anything else.
    conn.prepare_cached("UPDATE mailbox SET waits = ?2 WHERE run_id = ?1 AND waits <> ?2")?
        .execute((run.as_str(), waits))?;
    Ok(())
}

/// Returns the messages that start a run once the thread is free, in order. A message whose run has already
/// started and waits for a user is not included.
pub(crate) fn of_thread(conn: &Connection, thread: &ThreadId) -> Result<Vec<QueuedMessage>, SqlFailure> {
    let sql = "SELECT {} FROM mailbox WHERE mailbox_id = ?1 AND status = 'queued' \
               AND (run_id IS NULL OR coalesce((SELECT status FROM run WHERE id = run_id), 'done') = 'done') \
               ORDER BY priority, available_at, created_at, n";
    Ok(several(conn, sql, (thread.as_str(),))?.into_iter().map(QueuedMessage::from).collect())
}

/// Cancels a job before its turn. Returns `None` if the job is gone or has started.
pub(crate) fn unqueue(conn: &Connection, id: QueueId, now: u64) -> Result<Option<ThreadId>, SqlFailure> {
    let thread: Option<String> = conn
        .prepare_cached(
            "UPDATE mailbox SET status = 'cancelled', updated_at = max(updated_at, ?2) \
             WHERE n = ?1 AND status = 'queued' RETURNING mailbox_id",
        )?
        .query_row((int(id), int(now)), |row| row.get(0))
        .optional()?;
    Ok(thread.map(ThreadId::from))
}
