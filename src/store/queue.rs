//! Messages that wait until their thread is free.

use rusqlite::{Connection, Transaction};

use super::rows::{body, decode, encode, int, uint};
use super::{Change, ChangeKind, Store, StoreError};
use crate::contract::ids::ThreadId;
use crate::contract::message::Message;
use crate::contract::record::{QueueId, QueuedMessage};

impl Store {
    /// Puts what was said at the end of its thread's queue. It is durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    pub async fn enqueue(
        &self,
        thread: &ThreadId,
        messages: Vec<Message>,
        now_ms: u64,
    ) -> Result<QueuedMessage, StoreError> {
        let thread = thread.clone();
        let change = Change::of(ChangeKind::Queue, &thread);
        let work = move |tx: &Transaction<'_>| {
            if !super::threads::exists(tx, &thread)? {
                return Err(StoreError::NoThread(thread));
            }
            let id = tx
                .prepare_cached(
                    "INSERT INTO queued (thread_id, created_at, body) VALUES (?1, ?2, ?3) RETURNING n",
                )?
                .query_row((thread.as_str(), int(now_ms), encode("the message", &messages)?), |row| {
                    row.get(0)
                })?;
            Ok(QueuedMessage { id: uint(id), thread_id: thread, created_at: now_ms, messages })
        };
        self.write_and_tell(true, ("", ""), work, |_| Some(change)).await
    }

    /// The queue of a thread, first in first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is unreadable.
    pub async fn queued(&self, thread: &ThreadId) -> Result<Vec<QueuedMessage>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| of_thread(conn, &thread)).await
    }

    /// Takes a message back before its turn came. `false`: it is gone already.
    pub async fn unqueue(&self, id: QueueId) -> Result<bool, StoreError> {
        let change = Change { kind: ChangeKind::Queue, thread: None };
        let work = move |tx: &Transaction<'_>| Ok(remove(tx, id)? > 0);
        self.write_and_tell(true, ("", ""), work, |gone| gone.then_some(change)).await
    }
}

pub(super) fn of_thread(conn: &Connection, thread: &ThreadId) -> Result<Vec<QueuedMessage>, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT n, created_at, body FROM queued WHERE thread_id = ?1 ORDER BY n")?;
    let mut rows = statement.query((thread.as_str(),))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(QueuedMessage {
            id: uint(row.get(0)?),
            thread_id: thread.clone(),
            created_at: uint(row.get(1)?),
            messages: decode(thread, "a queued message", body(row, 2)?)?,
        });
    }
    Ok(found)
}

fn remove(conn: &Connection, id: QueueId) -> Result<usize, StoreError> {
    Ok(conn.prepare_cached("DELETE FROM queued WHERE n = ?1")?.execute((int(id),))?)
}

/// Takes a message out of the queue for the run that begins with it. One that is gone was begun by somebody else.
pub(super) fn take(conn: &Connection, thread: &ThreadId, id: QueueId) -> Result<(), StoreError> {
    if remove(conn, id)? == 1 {
        return Ok(());
    }
    Err(StoreError::NotQueued { thread: thread.clone(), id })
}
