//! Prompts typed in a folder, for the composer's history.

use std::path::Path;

use rusqlite::Connection;

use super::rows::{all, path_bytes, text};
use super::{SqlFailure, Store, StoreError};

/// Prompts kept for each folder; up to [`SPARE`] more may exist, because finding the oldest costs more than
/// counting.
const KEPT: i64 = 1000;
const SPARE: i64 = 100;

impl Store {
    /// Remembers what was typed. The same text again only moves to the front; blank text is not kept. It
    /// does not wait for the disk: the message that follows does.
    pub async fn remember_prompt(&self, cwd: &Path, text: &str) -> Result<(), StoreError> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let (cwd, text) = (path_bytes(cwd).to_vec(), text.to_owned());
        self.write_relaxed(move |tx| remember(tx, &cwd, &text)).await
    }

    /// Returns the prompts typed in a folder, newest first.
    pub async fn prompts(&self, cwd: &Path, limit: usize) -> Result<Vec<String>, StoreError> {
        let cwd = path_bytes(cwd).to_vec();
        self.read(move |conn| {
            let sql = "SELECT text FROM prompt WHERE cwd = ?1 ORDER BY n DESC LIMIT ?2";
            all(conn, sql, (cwd, i64::try_from(limit).unwrap_or(i64::MAX)), |row| Ok(text(row, 0)?))
        })
        .await
    }

    /// Returns the prompts typed in all folders, newest first, each text once.
    pub async fn all_prompts(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.read(move |conn| {
            let sql = "SELECT text FROM prompt GROUP BY text ORDER BY max(n) DESC LIMIT ?1";
            all(conn, sql, [i64::try_from(limit).unwrap_or(i64::MAX)], |row| Ok(text(row, 0)?))
        })
        .await
    }
}

pub(super) fn remember(conn: &Connection, cwd: &[u8], text: &str) -> Result<(), SqlFailure> {
    conn.prepare_cached("DELETE FROM prompt WHERE cwd = ?1 AND text = ?2")?.execute((cwd, text))?;
    conn.prepare_cached("INSERT INTO prompt (cwd, text) VALUES (?1, ?2)")?.execute((cwd, text))?;
    let mut count = conn.prepare_cached("SELECT count(*) FROM prompt WHERE cwd = ?1")?;
    if count.query_row([cwd], |row| row.get::<_, i64>(0))? <= KEPT + SPARE {
        return Ok(());
    }
    conn.prepare_cached(
        "DELETE FROM prompt WHERE cwd = ?1 AND n <= \
         (SELECT n FROM prompt WHERE cwd = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute((cwd, KEPT))?;
    Ok(())
}
