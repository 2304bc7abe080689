//! The start of a conversation's requests, as it was frozen.

use rusqlite::Connection;

use super::rows::{body, decode, encode, first, int};
use super::{SqlFailure, Store, StoreError};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::prefix::PrefixRecord;

impl Store {
    /// The start of a thread's requests that was frozen last.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is unreadable.
    pub async fn prefix(&self, thread: &ThreadId) -> Result<Option<PrefixRecord>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| newest(conn, &id)).await
    }
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
