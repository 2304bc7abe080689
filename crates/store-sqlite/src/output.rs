//! Output of running tools, stored so that a crash keeps it: the first and the last bytes of each execution.

use std::fmt::Write as _;

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::rows::body;
use super::{SqlFailure, Store, StoreError, leases};
use aye_core::contract::record::{AttemptId, Fence};

/// Bytes kept of the start of an output, and as many of its end.
const HALF: usize = 128 * 1024;
/// Maximum size of a stored part of the end, so that little more than its share is stored at any time.
const PART: usize = 8 * 1024;

impl Store {
    /// Appends to the output of an execution. Beyond 256 KiB, output is dropped from the middle.
    ///
    /// The output outlives this process at once, and a power cut only after the next durable request: waiting
    /// for the disk here would only delay decisions and outcomes.
    ///
    /// # Errors
    /// [`StoreError::NotStarted`] when there is no intent; [`StoreError::Fenced`] when another owner took
    /// over.
    pub async fn append_output(
        &self,
        fence: &Fence,
        id: &AttemptId,
        chunk: String,
    ) -> Result<(), StoreError> {
        let (fence, id) = (fence.clone(), id.clone());
        self.write_relaxed(move |tx| {
            leases::check(tx, &fence)?;
            match intent_of(tx, &id)? {
                Some(intent) => append(tx, intent, &chunk),
                None => Err(StoreError::NotStarted { id }.into()),
            }
        })
        .await
    }

    /// Returns the output of an execution, with a line in the middle where bytes were dropped; empty if there
    /// is no output.
    pub async fn output(&self, id: &AttemptId) -> Result<String, StoreError> {
        let id = id.clone();
        self.read(move |conn| intent_of(conn, &id)?.map_or_else(|| Ok(String::new()), |n| read(conn, n)))
            .await
    }
}

pub(super) fn intent_of(conn: &Connection, id: &AttemptId) -> Result<Option<i64>, SqlFailure> {
    let sql = "SELECT n FROM intent WHERE run_id = ?1 AND call_id = ?2 AND attempt = ?3";
    let key = (id.run_id.as_str(), id.call_id.as_str(), id.attempt);
    Ok(conn.prepare_cached(sql)?.query_row(key, |row| row.get(0)).optional()?)
}

/// The stored size of one execution's output. Parts before `cut` are the start, the others are the end.
#[derive(Default)]
struct Size {
    head: usize,
    tail: usize,
    dropped: usize,
    parts: i64,
    cut: i64,
}

pub(super) fn append(tx: &Transaction<'_>, intent: i64, chunk: &str) -> Result<(), SqlFailure> {
    let mut size = size_of(tx, intent)?.unwrap_or_default();
    let mut rest = chunk;
    if size.tail == 0 && size.dropped == 0 && size.head < HALF {
        let (head, after) = rest.split_at(rest.floor_char_boundary(HALF - size.head));
        if !head.is_empty() {
            add(tx, intent, size.parts, head)?;
            size.parts += 1;
            size.head += head.len();
        }
        size.cut = size.parts;
        rest = after;
    }
    if rest.len() > HALF {
        // All of the old end goes out anyway: what would go out with it is not written at all.
        let from = rest.ceil_char_boundary(rest.len() - HALF);
        size.dropped += from;
        rest = &rest[from..];
    }
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(PART));
        add(tx, intent, size.parts, part)?;
        size.parts += 1;
        size.tail += part.len();
        rest = after;
    }
    while size.tail > HALF {
        let (part, bytes): (i64, i64) = tx
            .prepare_cached(
                "SELECT part, octet_length(text) FROM output WHERE intent = ?1 AND part >= ?2 ORDER BY part LIMIT 1",
            )?
            .query_row((intent, size.cut), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let bytes = bytes as usize;
        tx.prepare_cached("DELETE FROM output WHERE intent = ?1 AND part = ?2")?.execute((intent, part))?;
        size.tail = size.tail.saturating_sub(bytes);
        size.dropped += bytes;
    }
    tx.prepare_cached(
        "INSERT INTO output_size (intent, head, tail, dropped, parts, cut) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (intent) DO UPDATE SET head = excluded.head, tail = excluded.tail, \
         dropped = excluded.dropped, parts = excluded.parts, cut = excluded.cut",
    )?
    .execute((intent, size.head as i64, size.tail as i64, size.dropped as i64, size.parts, size.cut))?;
    Ok(())
}

fn add(tx: &Transaction<'_>, intent: i64, part: i64, text: &str) -> Result<(), SqlFailure> {
    tx.prepare_cached("INSERT INTO output (intent, part, text) VALUES (?1, ?2, ?3)")?
        .execute((intent, part, text))?;
    Ok(())
}

fn size_of(conn: &Connection, intent: i64) -> Result<Option<Size>, SqlFailure> {
    let sql = "SELECT head, tail, dropped, parts, cut FROM output_size WHERE intent = ?1";
    Ok(conn
        .prepare_cached(sql)?
        .query_row((intent,), |row| {
            let bytes = |at| row.get::<_, i64>(at).map(|n| n.max(0) as usize);
            Ok(Size {
                head: bytes(0)?,
                tail: bytes(1)?,
                dropped: bytes(2)?,
                parts: row.get(3)?,
                cut: row.get(4)?,
            })
        })
        .optional()?)
}

pub(super) fn read(conn: &Connection, intent: i64) -> Result<String, SqlFailure> {
    let Some(size) = size_of(conn, intent)? else { return Ok(String::new()) };
    let mut text = String::with_capacity(size.head + size.tail + 64);
    let mut statement =
        conn.prepare_cached("SELECT part, text FROM output WHERE intent = ?1 ORDER BY part")?;
    let mut rows = statement.query((intent,))?;
    let mut is_head = true;
    while let Some(row) = rows.next()? {
        if is_head && row.get::<_, i64>(0)? >= size.cut {
            is_head = false;
            if size.dropped > 0 {
                let _ = write!(text, "\n[... {} bytes left out ...]\n", size.dropped);
            }
        }
        text.push_str(&String::from_utf8_lossy(body(row, 1)?));
    }
    Ok(text)
}

/// Returns the output after the first `seen` bytes, with a line where bytes of it were dropped, and the total
/// number of bytes.
pub(super) fn since(conn: &Connection, intent: i64, seen: usize) -> Result<(String, usize), SqlFailure> {
    let Some(size) = size_of(conn, intent)? else { return Ok((String::new(), seen)) };
    let mut text = String::new();
    let mut statement =
        conn.prepare_cached("SELECT part, text FROM output WHERE intent = ?1 ORDER BY part")?;
    let mut rows = statement.query((intent,))?;
    let mut at = 0;
    let mut is_head = true;
    while let Some(row) = rows.next()? {
        if is_head && row.get::<_, i64>(0)? >= size.cut {
            is_head = false;
            at += size.dropped;
            if at > seen && size.dropped > 0 {
                let gone = size.dropped.min(at - seen);
                let _ = write!(text, "\n[... {gone} bytes left out ...]\n");
            }
        }
        let part = String::from_utf8_lossy(body(row, 1)?);
        let known = part.floor_char_boundary(seen.saturating_sub(at));
        text.push_str(&part[known..]);
        at += part.len();
    }
    Ok((text, at.max(seen)))
}
