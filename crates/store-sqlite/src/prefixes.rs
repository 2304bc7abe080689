//! The start of a conversation's requests, as it was frozen.

use rusqlite::Connection;

use super::rows::{all, body, body_or_null, decode, encode, first, int};
use super::{SqlFailure, Store, StoreError};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::summary::RequestStart;

impl Store {
    /// The start of a thread's requests that was frozen last.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is unreadable.
    pub async fn prefix(&self, thread: &ThreadId) -> Result<Option<PrefixRecord>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| newest(conn, &id)).await
    }

    /// All starts of a thread's requests, each with the summary in it, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is unreadable.
    pub async fn request_starts(&self, thread: &ThreadId) -> Result<Vec<RequestStart>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| starts(conn, &id)).await
    }
}

fn starts(conn: &Connection, id: &ThreadId) -> Result<Vec<RequestStart>, SqlFailure> {
    let sql = "SELECT prefix.body, summary.body FROM prefix \
               LEFT JOIN summary ON summary.thread_id = prefix.thread_id \
               AND summary.upto_seq = prefix.body ->> '$.summary_upto' \
               WHERE prefix.thread_id = ?1 ORDER BY prefix.seq";
    all(conn, sql, (id.as_str(),), |row| {
        let summary = body_or_null(row, 1)?;
        let summary = summary.map(|text| decode(id, "a summary of it", text)).transpose()?;
        Ok(RequestStart { prefix: decode(id, "the start of its requests", body(row, 0)?)?, summary })
    })
}

fn newest(conn: &Connection, id: &ThreadId) -> Result<Option<PrefixRecord>, SqlFailure> {
    let sql = "SELECT body FROM prefix WHERE thread_id = ?1 ORDER BY seq DESC LIMIT 1";
    first(conn, sql, (id.as_str(),), |row| decode(id, "the start of its requests", body(row, 0)?))
}

/// Writes the start of a thread's requests.
pub(super) fn set(conn: &Connection, id: &ThreadId, prefix: &PrefixRecord) -> Result<(), SqlFailure> {
    let sql = "INSERT INTO prefix (thread_id, seq, body) VALUES (?1, ?2, ?3) \
               ON CONFLICT (thread_id, seq) DO UPDATE SET body = excluded.body";
    let body = encode("the start of its requests", prefix)?;
    conn.prepare_cached(sql)?.execute((id.as_str(), int(prefix.at_seq), body))?;
    Ok(())
}
