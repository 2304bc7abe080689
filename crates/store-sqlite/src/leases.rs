//! Leases: the right to write to a thread.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::rows::{body, decode, encode, int, uint};
use super::{AcquireError, ChangeKind, SqlFailure, Store, StoreChange, StoreError};
use aye_core::contract::clock::{Clock, in_ms};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::presence::Liveness;
use aye_core::contract::record::{Fence, LeaseRecord, Owner};

impl Store {
    /// Acquires the lease of a thread.
    ///
    /// The lease is granted if it is free, was released or has expired, its owner is dead according to
    /// `alive`, or its owner is this same process. Each acquisition increments the epoch, so that an older
    /// fence of the same process fails too.
    ///
    /// The write does not wait for the disk: a power cut that loses the lease also ends its owner, and what
    /// the owner writes under the lease becomes durable only together with it.
    ///
    /// # Errors
    /// [`AcquireError::Busy`] with the live owner; [`StoreError::NoThread`].
    pub async fn acquire(
        &self,
        thread: &ThreadId,
        owner: &Owner,
        length: Option<Duration>,
        alive: impl Fn(&Owner) -> Liveness + Send + 'static,
    ) -> Result<Fence, AcquireError> {
        let (thread, me, clock) = (thread.clone(), owner.clone(), self.clock());
        let change = StoreChange::of(ChangeKind::Owner, &thread);
        // Before the request: however long it waits for its turn, the lease ends no later than its owner thinks.
        let term = length.map(|length| Term::starting(&*clock, length));
        let work = move |tx: &Transaction<'_>| take(tx, &*clock, thread, me, term, alive);
        let taken =
            self.write_and_publish(false, ("", ""), work, |taken| taken.is_ok().then_some(change)).await?;
        taken.map_err(|owner| AcquireError::Busy { owner })
    }

    /// Makes the lease last for `length`, counted from now; its end never moves to an earlier time. Returns what is left of
    /// it, counted from before the request, or `None` if the lease was lost. No change is published: a process that waits
    /// for the lease to end checks again at the time it expects that.
    pub async fn renew(&self, fence: &Fence, length: Duration) -> Result<Option<Duration>, StoreError> {
        let (fence, term) = (fence.clone(), Term::starting(&*self.clock, length));
        self.write_relaxed(move |tx| {
            let until: Option<Option<i64>> = tx
                .prepare_cached(
                    "UPDATE lease SET until = max(until, ?4), renewed_at = ?5, \
                         length = max(coalesce(renewed_at + length, 0), ?5 + ?6) - ?5 \
                     WHERE thread_id = ?1 AND epoch = ?2 AND token = ?3 RETURNING until",
                )?
                .query_row(
                    (
                        fence.thread_id.as_str(),
                        int(fence.epoch),
                        &fence.token,
                        int(term.until),
                        int(term.starts_at),
                        int(term.length),
                    ),
                    |row| row.get(0),
                )
                .optional()?;
            let from = term.until.saturating_sub(term.length);
            let left = |until| Duration::from_millis(uint(until).saturating_sub(from));
            Ok(until.map(|until| until.map_or(Duration::MAX, left)))
        })
        .await
    }

    /// Releases the lease. A lease that was lost in the meantime is not an error.
    pub async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        let fence = fence.clone();
        let change = StoreChange::of(ChangeKind::Owner, &fence.thread_id);
        let work = move |tx: &Transaction<'_>| release(tx, &fence);
        self.write_and_publish(false, ("", ""), work, |()| Some(change)).await
    }

    /// Returns the owner of the lease of a thread, alive or not.
    pub async fn owner(&self, thread: &ThreadId) -> Result<Option<Owner>, StoreError> {
        Ok(self.lease(thread).await?.map(|lease| lease.owner))
    }

    /// Returns the lease of a thread, with its owner, alive or not, and what is left of it.
    pub async fn lease(&self, thread: &ThreadId) -> Result<Option<LeaseRecord>, StoreError> {
        let (thread, clock) = (thread.clone(), self.clock());
        self.read(move |conn| lease_of(conn, &*clock, &thread)).await
    }
}

/// The time of a lease: in the clock since the boot, and for other boots in Unix milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Term {
    until: u64,
    starts_at: u64,
    length: u64,
}

impl Term {
    fn starting(clock: &dyn Clock, length: Duration) -> Term {
        // What SQLite adds to a time of now stays a whole number.
        let length = in_ms(length).min(u64::from(u32::MAX) * 1000);
        Term { until: clock.uptime_ms().saturating_add(length), starts_at: clock.now_ms(), length }
    }
}

/// The right to write, or who has it.
pub(super) fn take(
    conn: &Connection,
    clock: &dyn Clock,
    thread: ThreadId,
    me: Owner,
    term: Option<Term>,
    alive: impl Fn(&Owner) -> Liveness,
) -> Result<Result<Fence, Owner>, SqlFailure> {
    if let Some(lease) = lease_of(conn, clock, &thread)?
        && lease.owner.token != me.token
        && lease.holds(alive(&lease.owner))
    {
        return Ok(Err(lease.owner));
    }
    let known: Option<i64> = conn
        .prepare_cached("SELECT 1 FROM thread WHERE id = ?1")?
        .query_row((thread.as_str(),), |row| row.get(0))
        .optional()?;
    if known.is_none() {
        return Err(StoreError::NoThread(thread).into());
    }
    let epoch = conn
        .prepare_cached(
            "INSERT INTO lease (thread_id, epoch, token, owner, until, renewed_at, length) \
             VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6) \
             ON CONFLICT (thread_id) DO UPDATE \
             SET epoch = epoch + 1, token = excluded.token, owner = excluded.owner, until = excluded.until, \
                 renewed_at = excluded.renewed_at, length = excluded.length RETURNING epoch",
        )?
        .query_row(
            (
                thread.as_str(),
                &me.token,
                encode("the owner", &me)?,
                term.map(|term| int(term.until)),
                term.map(|term| int(term.starts_at)),
                term.map(|term| int(term.length)),
            ),
            |row| row.get(0),
        )?;
    Ok(Ok(Fence { thread_id: thread, epoch: uint(epoch), token: me.token }))
}

/// Gives up the right to write.
pub(super) fn release(conn: &Connection, fence: &Fence) -> Result<(), SqlFailure> {
    conn.prepare_cached(
        "UPDATE lease SET token = NULL, owner = NULL, until = NULL, renewed_at = NULL, length = NULL \
         WHERE thread_id = ?1 AND epoch = ?2 AND token = ?3",
    )?
    .execute((fence.thread_id.as_str(), int(fence.epoch), &fence.token))?;
    Ok(())
}

/// Owner, epoch, end, and the end by the wall clock.
type LeaseRow = (Vec<u8>, i64, Option<i64>, Option<i64>);

/// The lease with what is left of it. The clock of another machine, or of this one before it was restarted, cannot be
/// compared with this one: then the end is that of the wall clock, and a lease of a version that did not write that is over.
pub(super) fn lease_of(
    conn: &Connection,
    clock: &dyn Clock,
    thread: &ThreadId,
) -> Result<Option<LeaseRecord>, SqlFailure> {
    let sql = "SELECT owner, epoch, until, renewed_at + length FROM lease \
               WHERE thread_id = ?1 AND token IS NOT NULL AND owner IS NOT NULL";
    let row: Option<LeaseRow> = conn
        .prepare_cached(sql)?
        .query_row((thread.as_str(),), |row| {
            Ok((body(row, 0)?.to_vec(), row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    row.map(|(owner, epoch, until, ends_at)| {
        let owner: Owner = decode(thread, "its owner", &owner)?;
        let here = Owner { boot_id: aye_platform::boot_id().to_owned(), ..Owner::default() };
        let left = until.map(|until| {
            let left = if owner.shares_boot(&here) {
                uint(until).saturating_sub(clock.uptime_ms())
            } else {
                ends_at.map_or(0, |end| uint(end.max(0)).saturating_sub(clock.now_ms()))
            };
            Duration::from_millis(left)
        });
        Ok(LeaseRecord { owner, epoch: uint(epoch), left })
    })
    .transpose()
}

/// Refuses a writer that lost its thread. It must be called inside the transaction that writes.
pub(super) fn check(conn: &Connection, fence: &Fence) -> Result<(), SqlFailure> {
    let sql = "SELECT 1 FROM lease WHERE thread_id = ?1 AND epoch = ?2 AND token = ?3";
    let held: Option<i64> = conn
        .prepare_cached(sql)?
        .query_row((fence.thread_id.as_str(), int(fence.epoch), &fence.token), |row| row.get(0))
        .optional()?;
    if held.is_some() { Ok(()) } else { Err(StoreError::Fenced { thread: fence.thread_id.clone() }.into()) }
}
