//! Messages to other programs: kept until they were taken or given up.

use rusqlite::{Connection, OptionalExtension, Row};

use super::rows::{int, text, uint};
use super::{OutboxOutcome, OutboxRow, OutboxStatus, SqlFailure, Store, StoreError};
use aye_core::contract::ids::ThreadId;

const COLUMNS: &str =
    "n, thread_id, target, body, status, attempt_count, available_at, last_error, created_at";

impl Store {
    /// Stores a message until it is accepted. `key` identifies its content and receiver: a second message
    /// with the same key is not stored. Returns `false` if the key already existed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_into_outbox(
        &self,
        thread: &ThreadId,
        key: String,
        target: String,
        body: String,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let thread = thread.clone();
        self.write(move |tx| {
            let sql = "INSERT INTO delivery (thread_id, key, target, body, status, available_at, created_at, updated_at) \
                       SELECT id, ?2, ?3, ?4, 'queued', ?5, ?5, ?5 FROM thread WHERE id = ?1 \
                       ON CONFLICT (key) DO NOTHING";
            let added = tx.prepare_cached(sql)?.execute((thread.as_str(), key, target, body, int(now_ms)))?;
            Ok(added == 1)
        })
        .await
    }

    /// Claims the oldest message that is due, for an attempt of at most `lease_ms`; if the claimant dies in
    /// the meantime, the message is left to the next one. If no message is due, the inner error is the time
    /// when the next one is, if any.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn claim_from_outbox(
        &self,
        now_ms: u64,
        lease_ms: u64,
    ) -> Result<Result<OutboxRow, Option<u64>>, StoreError> {
        self.write(move |tx| {
            let sql = format!(
                "UPDATE delivery SET lease_until = ?1 + ?2 WHERE n = (SELECT n FROM delivery \
                 WHERE status = 'queued' AND available_at <= ?1 AND coalesce(lease_until, 0) <= ?1 ORDER BY n LIMIT 1) \
                 RETURNING {COLUMNS}"
            );
            let claimed =
                tx.prepare_cached(&sql)?.query_row((int(now_ms), int(lease_ms)), row_of).optional()?;
            if let Some(row) = claimed {
                return Ok(Ok(row));
            }
            let sql = "SELECT min(max(available_at, coalesce(lease_until, 0))) FROM delivery WHERE status = 'queued'";
            let next: Option<i64> = tx.prepare_cached(sql)?.query_row((), |row| row.get(0))?;
            Ok(Err(next.map(uint)))
        })
        .await
    }

    /// Writes the result of an attempt.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn settle_in_outbox(
        &self,
        number: u64,
        outcome: OutboxOutcome,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let (status, at, error) = match outcome {
            OutboxOutcome::Accepted => (OutboxStatus::Accepted, None, None),
            OutboxOutcome::Obsolete => (OutboxStatus::Cancelled, None, None),
            OutboxOutcome::Retry { at, error } => (OutboxStatus::Queued, Some(at), Some(error)),
            OutboxOutcome::DeadLetter { error } => (OutboxStatus::DeadLetter, None, Some(error)),
        };
        self.write(move |tx| {
            let sql = "UPDATE delivery SET status = ?2, available_at = coalesce(?3, available_at), lease_until = NULL, \
                       attempt_count = attempt_count + (?4 IS NOT NULL), last_error = coalesce(?4, last_error), \
                       updated_at = ?5 WHERE n = ?1 AND status = 'queued'";
            tx.prepare_cached(sql)?
                .execute((int(number), status.as_str(), at.map(int), error, int(now_ms)))?;
            Ok(())
        })
        .await
    }

    /// Messages that were not taken, oldest first; `all`: those that were, too.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn outbox(&self, all: bool) -> Result<Vec<OutboxRow>, StoreError> {
        self.read(move |conn| listed(conn, all)).await
    }

    /// Makes a dead message due again, from now on. Returns `false` if there is no such message.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn retry_in_outbox(&self, number: u64, now_ms: u64) -> Result<bool, StoreError> {
        self.write(move |tx| {
            let sql = "UPDATE delivery SET status = 'queued', available_at = ?2, attempt_count = 0, updated_at = ?2 \
                       WHERE n = ?1 AND status = 'dead_letter'";
            Ok(tx.prepare_cached(sql)?.execute((int(number), int(now_ms)))? == 1)
        })
        .await
    }
}

fn listed(conn: &Connection, all: bool) -> Result<Vec<OutboxRow>, SqlFailure> {
    let sql =
        format!("SELECT {COLUMNS} FROM delivery WHERE ?1 OR status IN ('queued', 'dead_letter') ORDER BY n");
    super::rows::all(conn, &sql, (all,), |row| Ok(row_of(row)?))
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<OutboxRow> {
    let word = text(row, 4)?;
    let known = OutboxStatus::ALL.into_iter().find(|status| status.as_str() == word);
    Ok(OutboxRow {
        number: uint(row.get(0)?),
        thread_id: text(row, 1)?.into(),
        target: text(row, 2)?,
        body: text(row, 3)?,
        // The table has no other words.
        status: known.unwrap_or(OutboxStatus::DeadLetter),
        attempt_count: row.get(5)?,
        available_at: uint(row.get(6)?),
        last_error: row.get(7)?,
        created_at: uint(row.get(8)?),
    })
}
