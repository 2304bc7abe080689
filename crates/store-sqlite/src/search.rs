//! Searches messages of users and models.
//!
//! A search updates the index, not a run: sending a message never waits for it. The index only narrows down; a match
//! is a message that contains the text. Without write access, messages that are not indexed are read instead.

use std::collections::HashSet;

use rusqlite::{Connection, Transaction};

use super::rows::{body, text, uint};
use super::threads::thread_of;
use super::{Match, SqlFailure, Store, StoreError};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::message::{Message, Role};

/// Characters before and after a match.
const AROUND: usize = 40;
/// Bytes of messages that one transaction adds to the index, so that others get their turn.
const CHUNK: usize = 1 << 20;
/// Characters of an entry of the index; a shorter text is searched for in every message.
const GRAM: usize = 3;
/// Entries of the index that a search uses: more make it no narrower.
const MAX_GRAMS: usize = 48;
/// A thread with more messages leaves the index together with everything else in it: to take each out costs more than to
/// build a new one.
const FORGET_ONE_BY_ONE: i64 = 200;

impl Store {
    /// Adds messages to the index for at most one short transaction. `true`: there are more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn index_messages(&self) -> Result<bool, StoreError> {
        self.write(index_some).await
    }

    /// Returns the number of messages that must be added to the index before a search.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn unindexed_messages(&self) -> Result<u64, StoreError> {
        self.read(|conn| {
            let sql = "SELECT coalesce(sum(messages - said), 0) FROM thread WHERE unsaid = 1";
            Ok(uint(conn.prepare_cached(sql)?.query_row((), |row| row.get(0))?))
        })
        .await
    }

    /// Returns the threads in which the user or the model wrote this text, ignoring case, in the order of
    /// [`Store::threads`]; at most `limit`, from match `offset` on.
    ///
    /// # Errors
    /// [`StoreError`]. A message that cannot be read matches nothing.
    pub async fn search(
        &self,
        wanted: &str,
        offset: usize,
        limit: Option<usize>,
    ) -> Result<Vec<Match>, StoreError> {
        let wanted = wanted.to_lowercase();
        self.read(move |conn| find(conn, &wanted, offset, limit.unwrap_or(usize::MAX))).await
    }
}

/// The number of an entry. Threads and places that do not fit into it do not occur.
fn entry(thread: i64, seq: i64) -> i64 {
    (thread << 32) | (seq & 0xffff_ffff)
}

/// Returns the indexed text of a message: nothing for messages of tools or unreadable ones.
fn indexed(body: &[u8]) -> Option<String> {
    let message: Message = serde_json::from_slice(body).ok()?;
    if !matches!(message.role, Role::User | Role::Assistant) {
        return None;
    }
    // The index ends a text at its first NUL.
    let text = message.text().to_lowercase().replace('\0', " ");
    (text.chars().take(GRAM).count() == GRAM).then_some(text)
}

fn index_some(tx: &Transaction<'_>) -> Result<bool, SqlFailure> {
    let mut left = CHUNK;
    loop {
        let next: Option<(i64, String, i64)> = {
            let sql = "SELECT n, id, said FROM thread WHERE unsaid = 1 ORDER BY n LIMIT 1";
            let mut statement = tx.prepare_cached(sql)?;
            let mut rows = statement.query(())?;
            rows.next()?
                .map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, text(row, 1)?, row.get(2)?)))
                .transpose()?
        };
        let Some((n, id, said)) = next else { return Ok(false) };
        let mut upto = None;
        {
            let sql = "SELECT seq, body FROM message WHERE thread_id = ?1 AND seq > ?2 ORDER BY seq";
            let mut statement = tx.prepare_cached(sql)?;
            let mut insert = tx.prepare_cached("INSERT INTO said (rowid, text) VALUES (?1, ?2)")?;
            let mut rows = statement.query((&id, said))?;
            while let Some(row) = rows.next()? {
                if left == 0 {
                    break;
                }
                let seq: i64 = row.get(0)?;
                let bytes = body(row, 1)?;
                if let Some(text) = indexed(bytes) {
                    insert.execute((entry(n, seq), text))?;
                }
                left = left.saturating_sub(bytes.len());
                upto = Some(seq);
            }
        }
        // A thread whose counter says more than it has is damaged: nothing is left to add to it.
        let sql = match upto {
            Some(_) if left == 0 => {
                "UPDATE thread SET said = min(?2, messages), unsaid = ?2 < messages WHERE n = ?1"
            }
            Some(_) | None => "UPDATE thread SET said = max(?2, messages), unsaid = 0 WHERE n = ?1",
        };
        tx.prepare_cached(sql)?.execute((n, upto.unwrap_or(said)))?;
        if left == 0 {
            return Ok(true);
        }
    }
}

/// Before threads are deleted, with their numbers of messages: what the search has of them goes.
pub(super) fn forget(tx: &Connection, threads: &[ThreadId]) -> Result<(), SqlFailure> {
    let mut found = Vec::new();
    for id in threads {
        let sql = "SELECT n, said FROM thread WHERE id = ?1";
        let mut statement = tx.prepare_cached(sql)?;
        let mut rows = statement.query((id.as_str(),))?;
        if let Some(row) = rows.next()? {
            let (n, said): (i64, i64) = (row.get(0)?, row.get(1)?);
            found.push((id, n, said));
        }
    }
    if found.iter().map(|(_, _, said)| said).sum::<i64>() > FORGET_ONE_BY_ONE {
        tx.execute_batch(
            "INSERT INTO said (said) VALUES ('delete-all'); UPDATE thread SET said = 0, unsaid = 1 WHERE said > 0;",
        )?;
        return Ok(());
    }
    for (id, n, said) in found {
        let sql = "SELECT seq, body FROM message WHERE thread_id = ?1 AND seq <= ?2";
        let mut statement = tx.prepare_cached(sql)?;
        let mut rows = statement.query((id.as_str(), said))?;
        let mut delete =
            tx.prepare_cached("INSERT INTO said (said, rowid, text) VALUES ('delete', ?1, ?2)")?;
        while let Some(row) = rows.next()? {
            if let Some(text) = indexed(body(row, 1)?) {
                delete.execute((entry(n, row.get(0)?), text))?;
            }
        }
    }
    Ok(())
}

/// The query of the index that every message with this text fits; `None` for a text that is too short.
fn query_of(wanted: &str) -> Option<String> {
    let letters: Vec<char> = wanted.chars().map(|c| if c == '\0' { ' ' } else { c }).collect();
    let mut grams: Vec<String> = letters.windows(GRAM).map(|gram| gram.iter().collect()).collect();
    grams.sort_unstable();
    grams.dedup();
    grams.truncate(MAX_GRAMS);
    let quoted = grams.iter().map(|gram| format!("\"{}\"", gram.replace('"', "\"\"")));
    Some(quoted.collect::<Vec<_>>().join(" AND ")).filter(|query| !query.is_empty())
}

/// Reads the whole index for a text.
pub(crate) const ENTRIES: &str = "SELECT rowid FROM said WHERE said MATCH ?1 ORDER BY rowid";
/// Reads the part of it that is about one thread.
const ENTRIES_OF_THREAD: &str =
    "SELECT rowid FROM said WHERE said MATCH ?1 AND rowid >= ?2 AND rowid < ?3 ORDER BY rowid";
/// The number of threads that are looked up in the index one by one. A text that is in most of them has its first page there;
/// a rare one is found with one read of the index for all others.
const CHECKED: usize = 64;

/// The messages that may contain the text, and the threads that have to be read.
struct Candidates<'a> {
    conn: &'a Connection,
    /// `None`: every message has to be read.
    query: Option<String>,
    checked: usize,
    /// Those of all threads, in the order of threads' numbers.
    entries: Option<Vec<i64>>,
    unread: HashSet<i64>,
}

impl<'a> Candidates<'a> {
    fn of(conn: &'a Connection, wanted: &str) -> Result<Candidates<'a>, SqlFailure> {
        let mut statement = conn.prepare_cached("SELECT n FROM thread WHERE unsaid = 1")?;
        let unread = statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(Candidates { conn, query: query_of(wanted), checked: 0, entries: None, unread })
    }

    fn of_thread(&mut self, n: i64) -> Result<Vec<i64>, SqlFailure> {
        let Some(query) = &self.query else { return Ok(Vec::new()) };
        if self.checked < CHECKED {
            self.checked += 1;
            let mut statement = self.conn.prepare_cached(ENTRIES_OF_THREAD)?;
            let found = statement.query_map((query, entry(n, 0), entry(n + 1, 0)), |row| row.get(0))?;
            return Ok(found.collect::<Result<_, _>>()?);
        }
        if self.entries.is_none() {
            let mut statement = self.conn.prepare_cached(ENTRIES)?;
            let found = statement.query_map((query,), |row| row.get(0))?;
            self.entries = Some(found.collect::<Result<_, _>>()?);
        }
        let entries = self.entries.as_deref().unwrap_or_default();
        let start = entries.partition_point(|at| *at < entry(n, 0));
        let end = entries.partition_point(|at| *at < entry(n + 1, 0));
        Ok(entries[start..end].to_vec())
    }

    /// Whether the messages of a thread have to be read that are not in the index.
    fn reads(&self, n: i64) -> bool {
        self.query.is_none() || self.unread.contains(&n)
    }

    /// Whether no other thread can contain the text.
    fn is_over(&self) -> bool {
        self.query.is_some() && self.unread.is_empty() && self.entries.as_ref().is_some_and(Vec::is_empty)
    }
}

fn find(conn: &Connection, wanted: &str, offset: usize, limit: usize) -> Result<Vec<Match>, SqlFailure> {
    let mut candidates = Candidates::of(conn, wanted)?;
    let mut matches = Vec::new();
    if limit == 0 {
        return Ok(matches);
    }
    let mut skip = offset;
    let mut order =
        conn.prepare_cached("SELECT n FROM thread ORDER BY pinned_at IS NULL, updated_at DESC, n DESC")?;
    let mut one = conn.prepare_cached(
        "SELECT id, title, cwd, created_at, updated_at, said FROM thread t WHERE n = ?1 \
         AND NOT EXISTS (SELECT 1 FROM child c WHERE c.thread_id = t.id)",
    )?;
    let mut rows = order.query(())?;
    while let Some(row) = rows.next()? {
        let n: i64 = row.get(0)?;
        let entries = candidates.of_thread(n)?;
        if candidates.is_over() {
            break;
        }
        let reads = candidates.reads(n);
        if entries.is_empty() && !reads {
            continue;
        }
        let mut found = one.query((n,))?;
        let Some(row) = found.next()? else { continue };
        let (thread, said) = (thread_of(row)?, row.get::<_, i64>(5)?);
        let around = match in_entries(conn, &thread.id, &entries, wanted)? {
            None if reads => {
                let after = if candidates.query.is_none() { 0 } else { said };
                first_match(conn, &thread.id, (after, i64::MAX), wanted)?
            }
            found => found,
        };
        let Some(around) = around else { continue };
        if skip > 0 {
            skip -= 1;
            continue;
        }
        matches.push(Match { thread, around });
        if matches.len() == limit {
            break;
        }
    }
    Ok(matches)
}

fn in_entries(
    conn: &Connection,
    thread: &ThreadId,
    entries: &[i64],
    wanted: &str,
) -> Result<Option<String>, SqlFailure> {
    let mut statement = conn.prepare_cached("SELECT body FROM message WHERE thread_id = ?1 AND seq = ?2")?;
    for at in entries {
        let mut rows = statement.query((thread.as_str(), at & 0xffff_ffff))?;
        if let Some(row) = rows.next()?
            && let Some(around) = matched(body(row, 0)?, wanted)
        {
            return Ok(Some(around));
        }
    }
    Ok(None)
}

/// Returns the first match of the text after one position and up to another.
pub(super) fn first_match(
    conn: &Connection,
    thread: &ThreadId,
    (after, upto): (i64, i64),
    wanted: &str,
) -> Result<Option<String>, SqlFailure> {
    // Bodies are JSON: they are narrowed down by what cannot be written in two ways, then read as text.
    let plain = wanted.split(|c: char| !c.is_ascii_alphanumeric()).max_by_key(|word| word.len());
    let pattern = format!("%{}%", plain.unwrap_or_default());
    let sql = "SELECT body FROM message WHERE thread_id = ?1 AND seq > ?2 AND seq <= ?3 AND body LIKE ?4 \
               ORDER BY seq";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((thread.as_str(), after, upto, pattern))?;
    while let Some(row) = rows.next()? {
        if let Some(around) = matched(body(row, 0)?, wanted) {
            return Ok(Some(around));
        }
    }
    Ok(None)
}

fn matched(body: &[u8], wanted: &str) -> Option<String> {
    let message: Message = serde_json::from_slice(body).ok()?;
    matches!(message.role, Role::User | Role::Assistant).then(|| around(&message.text(), wanted)).flatten()
}

/// Returns the words around a text, which must be given in lower case.
fn around(said: &str, wanted: &str) -> Option<String> {
    let at = said.to_lowercase().find(wanted)?;
    // Lower case may be longer or shorter: it is near.
    let at = said.floor_char_boundary(at.min(said.len()));
    let start = said[..at].char_indices().rev().nth(AROUND).map_or(0, |(i, _)| i);
    let cut: String = said[start..].chars().take(2 * AROUND + wanted.chars().count()).collect();
    let words = cut.split_whitespace().collect::<Vec<_>>().join(" ");
    let (before, after) =
        (if start > 0 { "…" } else { "" }, if start + cut.len() < said.len() { "…" } else { "" });
    Some(format!("{before}{words}{after}"))
}
