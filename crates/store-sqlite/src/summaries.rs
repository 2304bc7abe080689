//! Summaries that replace the older messages of a thread in requests. Summarised messages never change, so any
//! process may write a summary, with a lease or without: the one that reaches farthest is used.

use rusqlite::{Connection, OptionalExtension as _};

use super::rows::{all, body, decode, encode, first, int};
use super::{ChangeKind, SqlFailure, Store, StoreChange, StoreError};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::summary::SummaryRecord;

/// Maximum summaries of a thread shown to front ends.
const NEWEST: i64 = 16;

impl Store {
    /// Stores a summary. Returns `false` if one exists that reaches as far or farther; nothing is written
    /// then.
    ///
    /// # Errors
    /// [`StoreError::NoThread`]; [`StoreError::Damaged`] when the message the summary ends at is not at its
    /// stated position.
    pub async fn add_summary(&self, summary: SummaryRecord) -> Result<bool, StoreError> {
        let change = StoreChange::of(ChangeKind::Run, &summary.thread_id);
        // The messages that it replaces still exist, so losing the summary is not worth an fsync.
        self.write_and_publish(
            false,
            ("context.summary", "context.summarised"),
            move |tx| {
                let thread = &summary.thread_id;
                let seq = int(summary.upto_seq);
                let sql = "SELECT body ->> '$.id' FROM message WHERE thread_id = ?1 AND seq = ?2";
                let found: Option<String> =
                    tx.prepare_cached(sql)?.query_row((thread.as_str(), seq), |row| row.get(0)).optional()?;
                match found {
                    Some(id) if id == summary.upto.as_str() => {}
                    _ if !super::threads::exists(tx, thread)? => {
                        return Err(StoreError::NoThread(thread.clone()).into());
                    }
                    _ => {
                        return Err(StoreError::Damaged {
                            thread: thread.clone(),
                            why: format!(
                                "message {} is not the one that a summary ends at",
                                summary.upto_seq
                            ),
                        }
                        .into());
                    }
                }
                let sql = "INSERT INTO summary (thread_id, upto_seq, body) SELECT ?1, ?2, ?3 \
                       WHERE NOT EXISTS (SELECT 1 FROM summary WHERE thread_id = ?1 AND upto_seq >= ?2)";
                let added = tx.prepare_cached(sql)?.execute((
                    thread.as_str(),
                    seq,
                    encode("the summary", &summary)?,
                ))?;
                Ok(added > 0)
            },
            |added| added.then_some(change),
        )
        .await
    }

    /// The summary of a thread that counts, when it reaches farther than a place.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is unreadable.
    pub async fn summary(&self, thread: &ThreadId, beyond: u64) -> Result<Option<SummaryRecord>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| newest(conn, &id, beyond)).await
    }
}

pub(super) fn newest(
    conn: &Connection,
    id: &ThreadId,
    beyond: u64,
) -> Result<Option<SummaryRecord>, SqlFailure> {
    let sql =
        "SELECT body FROM summary WHERE thread_id = ?1 AND upto_seq > ?2 ORDER BY upto_seq DESC LIMIT 1";
    first(conn, sql, (id.as_str(), int(beyond)), |row| decode(id, "its summary", body(row, 0)?))
}

/// The newest summaries of a thread, oldest first.
pub(super) fn newest_of(conn: &Connection, id: &ThreadId) -> Result<Vec<SummaryRecord>, SqlFailure> {
    let sql = "SELECT body FROM (SELECT body, upto_seq FROM summary WHERE thread_id = ?1 \
               ORDER BY upto_seq DESC LIMIT ?2) ORDER BY upto_seq";
    all(conn, sql, (id.as_str(), NEWEST), |row| decode(id, "a summary of it", body(row, 0)?))
}
