//! Who may write to a thread.

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::rows::{body_or_null, decode, encode, int, uint};
use super::{AcquireError, Change, ChangeKind, Store, StoreError};
use crate::contract::ids::ThreadId;
use crate::contract::record::{Fence, Owner};

impl Store {
    /// Takes the right to write to a thread.
    ///
    /// It is given when nobody has it, when it was released, when the one who has it is not alive by `alive`, or is
    /// the same program start. Every taking counts the epoch up, so an older fence of the same program fails too.
    ///
    /// It does not wait for the disk: a power cut that takes the lease away takes its owner away too, and what the
    /// owner writes under it is durable only together with it.
    ///
    /// # Errors
    /// [`AcquireError::Busy`] with the live owner; [`StoreError::NoThread`].
    pub async fn acquire(
        &self,
        thread: &ThreadId,
        owner: &Owner,
        alive: impl Fn(&Owner) -> bool + Send + 'static,
    ) -> Result<Fence, AcquireError> {
        let (thread, me) = (thread.clone(), owner.clone());
        let change = Change::of(ChangeKind::Owner, &thread);
        let work = move |tx: &Transaction<'_>| {
            if let Some(owner) = owner_of(tx, &thread)?
                && owner.token != me.token
                && alive(&owner)
            {
                return Ok(Err(owner));
            }
            let known: Option<i64> = tx
                .prepare_cached("SELECT 1 FROM thread WHERE id = ?1")?
                .query_row((thread.as_str(),), |row| row.get(0))
                .optional()?;
            if known.is_none() {
                return Err(StoreError::NoThread(thread));
            }
            let epoch = tx
                    .prepare_cached(
                        "INSERT INTO lease (thread_id, epoch, token, owner) VALUES (?1, 1, ?2, ?3) \
                         ON CONFLICT (thread_id) DO UPDATE \
                         SET epoch = epoch + 1, token = excluded.token, owner = excluded.owner RETURNING epoch",
                    )?
                    .query_row((thread.as_str(), &me.token, encode("the owner", &me)?), |row| row.get(0))?;
            Ok(Ok(Fence { thread_id: thread, epoch: uint(epoch), token: me.token }))
        };
        let taken =
            self.write_and_tell(false, ("", ""), work, |taken| taken.is_ok().then_some(change)).await?;
        taken.map_err(|owner| AcquireError::Busy { owner })
    }

    /// Gives the right to write back. One that was lost meanwhile is no error.
    pub async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        let fence = fence.clone();
        let change = Change::of(ChangeKind::Owner, &fence.thread_id);
        let work = move |tx: &Transaction<'_>| {
            tx.prepare_cached(
                "UPDATE lease SET token = NULL, owner = NULL WHERE thread_id = ?1 AND epoch = ?2 AND token = ?3",
            )?
            .execute((fence.thread_id.as_str(), int(fence.epoch), &fence.token))?;
            Ok(())
        };
        self.write_and_tell(false, ("", ""), work, |()| Some(change)).await
    }

    /// Who has the right to write to a thread, alive or not.
    pub async fn owner(&self, thread: &ThreadId) -> Result<Option<Owner>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| owner_of(conn, &thread)).await
    }
}

pub(super) fn owner_of(conn: &Connection, thread: &ThreadId) -> Result<Option<Owner>, StoreError> {
    let sql = "SELECT owner FROM lease WHERE thread_id = ?1 AND token IS NOT NULL";
    let body: Option<Vec<u8>> = conn
        .prepare_cached(sql)?
        .query_row((thread.as_str(),), |row| Ok(body_or_null(row, 0)?.map(<[u8]>::to_vec)))
        .optional()?
        .flatten();
    body.map(|body| decode(thread, "its owner", &body)).transpose()
}

/// Refuses a writer that lost its thread. It must be called inside the transaction that writes.
pub(super) fn check(conn: &Connection, fence: &Fence) -> Result<(), StoreError> {
    let sql = "SELECT 1 FROM lease WHERE thread_id = ?1 AND epoch = ?2 AND token = ?3";
    let held: Option<i64> = conn
        .prepare_cached(sql)?
        .query_row((fence.thread_id.as_str(), int(fence.epoch), &fence.token), |row| row.get(0))
        .optional()?;
    if held.is_some() { Ok(()) } else { Err(StoreError::Fenced { thread: fence.thread_id.clone() }) }
}
