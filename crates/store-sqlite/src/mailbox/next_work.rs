//! The work that a worker can claim now, or what it waits for.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row};

use super::super::rows::{int, uint};
use super::super::{SqlFailure, StoreError, leases};
use super::Mailbox;
use super::jobs::readable;
use aye_core::contract::clock::Clock;
use aye_core::contract::consumer::Consumer;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::mailbox::MailboxJob;
use aye_core::contract::message::Message;
use aye_core::contract::program_store::{NoWork, WorkClaim};
use aye_core::contract::record::{LeaseRecord, Owner};

/// Jobs whose thread is free: its last run is done, or is the job's own run and can be resumed. A run can be
/// resumed if a dead process left it, one of its questions was answered, or one of its questions has expired.
/// A job that was tried keeps its position although its time was moved: messages sent after it in its
/// conversation do not overtake it. A try is a failed attempt, or a run that the job started.
macro_rules! ready {
    ($source:literal) => {
        concat!(
            "SELECT m.priority, m.available_at, m.created_at, m.n, m.mailbox_id FROM ",
            $source,
            " LEFT JOIN run r ON r.n = (SELECT max(n) FROM run WHERE thread_id = m.mailbox_id) \
             WHERE m.status = 'queued' AND m.available_at <= ?1 \
             AND NOT EXISTS (SELECT 1 FROM mailbox c WHERE c.mailbox_id = m.mailbox_id AND c.status = 'claimed') \
             AND NOT EXISTS (SELECT 1 FROM mailbox e WHERE e.mailbox_id = m.mailbox_id AND e.status = 'queued' \
                  AND (e.attempt_count > 0 OR e.run_id IS NOT NULL) AND (e.priority, e.n) < (m.priority, m.n)) \
             AND (r.status IS NULL OR r.status = 'done' OR (r.id = m.run_id AND (r.status = 'running' OR EXISTS ( \
                  SELECT 1 FROM suspension s WHERE s.run_id = r.id AND (s.status IN ('decided', 'expired') \
                  OR (s.status = 'open' AND s.expires_at <= ?1))))))"
        )
    };
}

/// The jobs that wait for no answer, in the order of the queue.
pub(crate) const READY: &str = concat!(
    ready!("mailbox m INDEXED BY mailbox_order"),
    " AND m.waits = 0 ORDER BY m.priority, m.available_at, m.created_at, m.n"
);

/// The jobs that wait for the answer to a question whose time is over, before anybody has noted that.
pub(crate) const OVERDUE: &str = concat!(
    ready!("suspension q INDEXED BY suspension_open CROSS JOIN mailbox m ON m.run_id = q.run_id"),
    " AND m.waits = 1 AND q.status = 'open' AND q.expires_at <= ?1 \
     ORDER BY m.priority, m.available_at, m.created_at, m.n"
);

/// Priority, times, and number: the order of the queue.
type JobOrder = (i64, i64, i64, i64);

fn ready_of(row: &Row<'_>) -> rusqlite::Result<(JobOrder, String)> {
    Ok(((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?), row.get(4)?))
}

/// A retry that is due within this time keeps a worker waiting that ends with the last job; in milliseconds.
const SOON: u64 = 300_000;

/// The work that a worker can claim now, or what it waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextWork {
    /// The job that may be claimed now.
    pub next: Option<MailboxJob>,
    /// The leases of the threads that have jobs due.
    pub held: Vec<LeaseRecord>,
    /// The live processes in which jobs were typed: these jobs are theirs, as are the jobs after them in
    /// their conversations.
    pub typed: Vec<LeaseRecord>,
    /// The owners of the current claims, one for each claimed job.
    pub claimed: Vec<String>,
    /// The number of jobs that wait for a retry that is not due yet, but soon.
    pub retrying: u64,
    /// When to check again if no change is received until then.
    pub wake_at: Option<u64>,
}

impl Mailbox {
    /// Returns the work to do now. `is_held` returns whether a lease keeps the caller out of its thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn next_work(
        &self,
        now: u64,
        is_held: impl Fn(&LeaseRecord) -> bool + Send + 'static,
    ) -> Result<NextWork, StoreError> {
        let clock = self.store.clock();
        self.store.read(move |conn| next_of(conn, &*clock, now, is_held)).await
    }

    /// Claims the first job that a worker may start.
    pub(crate) async fn claim_next(
        &self,
        worker: &Owner,
        now: u64,
        lease_ms: u64,
    ) -> Result<WorkClaim, StoreError> {
        let consumer = Consumer::new(worker.clone()).to_string();
        loop {
            let (liveness, own) = (self.store.liveness(), worker.token.clone());
            let is_held =
                move |lease: &LeaseRecord| lease.owner.token != own && lease.holds(liveness(&lease.owner));
            let mut found = self.next_work(now, is_held).await?;
            let Some(job) = found.next.take() else { return Ok(WorkClaim::Nothing(found.without(worker))) };
            // A look writes nothing, so that workers without work keep nobody waiting. Another one may be faster.
            match self.claim_job(&job.job_id, &consumer, now, lease_ms).await {
                Ok(Some(job)) => return Ok(WorkClaim::Claimed(Box::new(job))),
                Ok(None) | Err(StoreError::NoJob(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl NextWork {
    /// What the worker waits for: not for itself.
    fn without(self, worker: &Owner) -> NoWork {
        let claimants = self.claimed.iter().filter_map(|claimant| Consumer::owner_of(claimant));
        let others = claimants.filter(|owner| owner.token != worker.token);
        let claims = others.map(|owner| LeaseRecord { owner, epoch: 0, left: None });
        NoWork {
            behind: self.typed.into_iter().chain(claims).collect(),
            held: self.held,
            claimed: self.claimed.len() as u64,
            retrying: self.retrying,
            wake_at: self.wake_at,
        }
    }
}

fn next_of(
    conn: &Connection,
    clock: &dyn Clock,
    now: u64,
    is_held: impl Fn(&LeaseRecord) -> bool,
) -> Result<NextWork, SqlFailure> {
    let mut next_work = NextWork::default();
    let mut overdue = conn.prepare_cached(OVERDUE)?;
    let mut overdue = overdue.query_map((int(now),), ready_of)?.peekable();
    let mut ready = conn.prepare_cached(READY)?;
    let mut ready = ready.query_map((int(now),), ready_of)?.peekable();
    let mut behind_typed = HashSet::new();
    loop {
        let is_overdue_first = match (overdue.peek(), ready.peek()) {
            (Some(Ok(overdue)), Some(Ok(ready))) => overdue < ready,
            (overdue, ready) => ready.is_none() || matches!(overdue, Some(Err(_))),
        };
        let next = if is_overdue_first { overdue.next() } else { ready.next() };
        let Some(((.., n), thread)) = next.transpose()? else { break };
        if behind_typed.contains(&thread) {
            continue;
        }
        let lease = leases::lease_of(conn, clock, &ThreadId::from(thread.as_str()))?;
        // Each driver is checked once per scan: if it died between two of its rows, the later one would
        // overtake.
        if lease.as_ref().is_some_and(|lease| next_work.held.iter().any(|held| held.is_same(lease))) {
            continue;
        }
        if let Some(lease) = lease.filter(|lease| is_held(lease)) {
            next_work.held.push(lease);
            continue;
        }
        let Some(job) = readable(conn, "SELECT {} FROM mailbox WHERE n = ?1", (n,))?.pop() else { continue };
        if job.messages.iter().any(Message::reports_command) {
            // This message is for the next run that a user starts; it does not start one.
            continue;
        }
        let typed = job.typed_into().map(|owner| LeaseRecord { owner, epoch: 0, left: None });
        if let Some(lease) = typed.filter(|lease| next_work.typed.contains(lease) || is_held(lease)) {
            if !next_work.typed.contains(&lease) {
                next_work.typed.push(lease);
            }
            behind_typed.insert(thread);
            continue;
        }
        next_work.next = Some(job);
        break;
    }
    let number = |sql: &str| -> Result<Option<u64>, SqlFailure> {
        let found: Option<Option<i64>> =
            conn.prepare_cached(sql)?.query_row((int(now),), |row| row.get(0)).optional()?;
        Ok(found.flatten().map(uint))
    };
    let mut statement = conn
        .prepare_cached("SELECT coalesce(claimed_by, '') FROM mailbox WHERE status = 'claimed' ORDER BY n")?;
    next_work.claimed = statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut statement = conn.prepare_cached(
        "SELECT count(*) FROM mailbox WHERE status = 'queued' AND available_at > ?1 AND available_at <= ?2 \
         AND (attempt_count > 0 OR run_id IS NOT NULL)",
    )?;
    let retrying = statement.query_row((int(now), int(now.saturating_add(SOON))), |row| row.get(0))?;
    next_work.retrying = uint(retrying);
    let due = number("SELECT min(available_at) FROM mailbox WHERE status = 'queued' AND available_at > ?1")?;
    // A lease expires after its last millisecond.
    let lease = number("SELECT min(lease_until) + 1 FROM mailbox WHERE status = 'claimed' AND ?1 = ?1")?;
    let expiry = number(
        "SELECT s.expires_at FROM suspension s CROSS JOIN mailbox m ON m.run_id = s.run_id \
         WHERE s.status = 'open' AND s.expires_at > ?1 AND m.status = 'queued' ORDER BY s.expires_at LIMIT 1",
    )?;
    next_work.wake_at = [due, lease, expiry].into_iter().flatten().min();
    Ok(next_work)
}
