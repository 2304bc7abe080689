//! Threads, their messages and their state.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, Transaction};
use serde_json::Value;

use super::rows::{
    all, body, decode, encode, first, int, path_bytes, path_from, run_status_from, text, uint,
};
use super::{SqlFailure, Store, StoreError, ThreadLookup, images, outlines, rewind, statistics};
use aye_core::contract::ids::{RunId, ThreadId, check_given};
use aye_core::contract::message::Message;
use aye_core::contract::record::{StoredMessage, ThreadRecord, ThreadSummary};
use aye_core::contract::suspension::ACTION_CHILD_RUN;

/// More matches than these are not worth a list.
const LOOKUP_LIMIT: i64 = 20;
/// Milliseconds between two writes of the time of a thread's last change, while its run goes through its steps.
const TOUCH_INTERVAL: i64 = 60_000;

impl Store {
    /// Adds a thread without messages. It does not wait for the disk: an empty thread is nothing to lose, and the
    /// first message takes it along.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the id is taken.
    pub async fn create_thread(&self, thread: ThreadRecord) -> Result<(), StoreError> {
        self.write_relaxed(move |tx| {
            if add(tx, &thread)? {
                Ok(())
            } else {
                Err(StoreError::Exists { what: format!("thread {}", thread.id) }.into())
            }
        })
        .await
    }

    /// Adds a thread that does not exist yet, as [`Store::create_thread`] does. An existing thread without a
    /// title gets this one; nothing else of it changes.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read or written.
    pub async fn ensure_thread(&self, thread: ThreadRecord) -> Result<(), StoreError> {
        let work = move |tx: &Transaction<'_>| {
            if !add(tx, &thread)? {
                tx.prepare_cached("UPDATE thread SET title = ?2 WHERE id = ?1 AND title = ''")?
                    .execute((thread.id.as_str(), &thread.title))?;
            }
            Ok(())
        };
        // The lease, which is sent right after it and needs the thread, shares its transaction.
        self.write_and_publish(false, ("", ""), work, |()| None).await
    }

    /// Returns the thread, or `None` if it does not exist.
    pub async fn thread(&self, id: &ThreadId) -> Result<Option<ThreadRecord>, StoreError> {
        let id = id.clone();
        self.read(move |conn| one(conn, &id)).await
    }

    /// All threads, or those of one folder, pinned ones first, then newest change first, with what a list shows of each.
    /// Those of children are left out: their questions count for the one at the top. Messages are not counted one by
    /// one: [`Store::check`] finds one that is missing between others.
    pub async fn threads(&self, cwd: Option<&Path>) -> Result<Vec<ThreadSummary>, StoreError> {
        self.threads_page(cwd, 0, None).await
    }

    /// The same, from the thread `offset` on, at most `limit`.
    pub async fn threads_page(
        &self,
        cwd: Option<&Path>,
        offset: usize,
        limit: Option<usize>,
    ) -> Result<Vec<ThreadSummary>, StoreError> {
        let cwd = cwd.map(|path| path_bytes(path).to_vec());
        self.read(move |conn| {
            let mut found = Vec::new();
            each_summary(conn, cwd, offset, limit, |summary| {
                found.push(summary);
                true
            })?;
            Ok(found)
        })
        .await
    }

    /// As [`Store::threads_page`], for threads of all folders, passed on one by one until `each` returns `false`.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails.
    pub async fn threads_each(
        &self,
        offset: usize,
        limit: Option<usize>,
        each: impl FnMut(ThreadSummary) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        self.read(move |conn| each_summary(conn, None, offset, limit, each)).await
    }

    /// The thread of a folder that was changed last; children's do not count, nor those that were left by going back.
    pub async fn latest_thread(&self, cwd: &Path) -> Result<Option<ThreadRecord>, StoreError> {
        let cwd = path_bytes(cwd).to_vec();
        self.read(move |conn| {
            let sql = "SELECT id, title, cwd, created_at, updated_at FROM thread WHERE cwd = ?1 AND left_for IS NULL \
                       AND NOT EXISTS (SELECT 1 FROM child c WHERE c.thread_id = thread.id) ORDER BY updated_at DESC, n DESC LIMIT 1";
            Ok(conn.prepare_cached(sql)?.query_row((cwd,), thread_of).optional()?)
        })
        .await
    }

    /// Finds the thread whose id starts with `prefix`; if a thread matches, its children do not. A whole id
    /// always matches exactly one; an empty prefix matches none.
    pub async fn find_thread(&self, prefix: &str) -> Result<ThreadLookup, StoreError> {
        let prefix = prefix.to_owned();
        self.read(move |conn| {
            if prefix.is_empty() {
                return Ok(ThreadLookup::None);
            }
            let sql = "SELECT id, title, cwd, created_at, updated_at FROM thread \
                       WHERE id >= ?1 AND id < ?1 || char(1114111) AND substr(id, 1, length(?1)) = ?1 AND NOT EXISTS (SELECT 1 FROM child c \
                         WHERE c.thread_id = thread.id AND substr(c.parent_thread, 1, length(?1)) = ?1) ORDER BY id = ?1 DESC, updated_at DESC, n DESC LIMIT ?2";
            let mut found = all(conn, sql, (&prefix, LOOKUP_LIMIT), |row| Ok(thread_of(row)?))?;
            Ok(match found.len() {
                0 => ThreadLookup::None,
                1 => ThreadLookup::One(found.remove(0)),
                _ if found[0].id.as_str() == prefix => ThreadLookup::One(found.remove(0)),
                _ => ThreadLookup::Many(found),
            })
        })
        .await
    }

    /// Says that a thread was used now. A time before the last one changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    pub async fn touch(&self, id: &ThreadId, now_ms: u64) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(
            move |tx| if touch(tx, &id, now_ms)? { Ok(()) } else { Err(StoreError::NoThread(id).into()) },
        )
        .await
    }

    /// All messages of a thread, in order; none for a thread that is not there.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is missing, doubled or unreadable.
    pub async fn messages(&self, id: &ThreadId) -> Result<Vec<StoredMessage>, StoreError> {
        let id = id.clone();
        self.read(move |conn| Ok(tail(conn, &id, None)?.1)).await
    }

    /// Returns the number of messages of a thread and the last `n` of them, in order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the first or the last one is missing, or one of the last `n` is missing,
    /// duplicated or unreadable.
    pub async fn messages_tail(
        &self,
        id: &ThreadId,
        n: usize,
    ) -> Result<(u64, Vec<StoredMessage>), StoreError> {
        let id = id.clone();
        self.read(move |conn| tail(conn, &id, Some(n))).await
    }

    /// Returns the number of messages of a run's thread, and the messages of the run in order. The messages
    /// of a run are contiguous, so nothing before them is read.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a message of the run, or one after it, is unreadable.
    pub async fn messages_of_run(
        &self,
        id: &ThreadId,
        run: &RunId,
    ) -> Result<(u64, Vec<StoredMessage>), StoreError> {
        let (id, run) = (id.clone(), run.clone());
        self.read(move |conn| {
            let (count, _) = tail(conn, &id, Some(0))?;
            let sql =
                "SELECT seq, run_id, created_at, body FROM message WHERE thread_id = ?1 ORDER BY seq DESC";
            let mut statement = conn.prepare_cached(sql)?;
            let mut rows = statement.query((id.as_str(),))?;
            let mut messages = Vec::new();
            while let Some(row) = rows.next()? {
                let message = message_of(&id, row)?;
                if message.run_id == run {
                    messages.push(message);
                } else if !messages.is_empty() {
                    break;
                }
            }
            messages.reverse();
            Ok((count, messages))
        })
        .await
    }

    /// Returns up to `count` messages before a position, in order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one of them is unreadable.
    pub async fn messages_before(
        &self,
        id: &ThreadId,
        seq: u64,
        count: usize,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        let id = id.clone();
        let first = seq.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
        self.read(move |conn| {
            let sql = "SELECT seq, run_id, created_at, body FROM message \
                       WHERE thread_id = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq";
            all(conn, sql, (id.as_str(), int(first), int(seq)), |row| message_of(&id, row))
        })
        .await
    }

    /// Returns the position of a message of a thread by its id, if it is one of the latest ten thousand.
    pub async fn place_of_message(&self, id: &ThreadId, message: &str) -> Result<Option<u64>, StoreError> {
        let (id, message) = (id.clone(), message.to_owned());
        self.read(move |conn| {
            let sql = "SELECT seq FROM message WHERE thread_id = ?1 \
                       AND seq > (SELECT max(seq) FROM message WHERE thread_id = ?1) - 10000 \
                       AND body ->> '$.id' = ?2 ORDER BY seq DESC LIMIT 1";
            first(conn, sql, (id.as_str(), message), |row| Ok(uint(row.get(0)?)))
        })
        .await
    }

    /// Returns the number of messages of a thread.
    pub async fn message_count(&self, id: &ThreadId) -> Result<u64, StoreError> {
        let id = id.clone();
        self.read(move |conn| {
            let sql = "SELECT coalesce(max(seq), 0) FROM message WHERE thread_id = ?1";
            Ok(uint(conn.prepare_cached(sql)?.query_row((id.as_str(),), |row| row.get(0))?))
        })
        .await
    }

    /// Returns the thread-scoped state by key; empty if the thread has none.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is unreadable.
    pub async fn thread_state(&self, id: &ThreadId) -> Result<BTreeMap<String, Value>, StoreError> {
        let id = id.clone();
        self.read(move |conn| state_of(conn, &id)).await
    }
}

fn each_summary(
    conn: &Connection,
    cwd: Option<Vec<u8>>,
    offset: usize,
    limit: Option<usize>,
    mut each: impl FnMut(ThreadSummary) -> bool,
) -> Result<(), SqlFailure> {
    let limit = limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let mut statement = conn.prepare_cached(&list_sql(cwd.is_some()))?;
    let mut rows = statement.query((cwd, ACTION_CHILD_RUN, limit, offset))?;
    while let Some(row) = rows.next()? {
        let places = MessageRange::without_gaps(row.get(5)?, row.get(6)?, row.get(7)?);
        let status: Option<String> = row.get(9)?;
        let summary = ThreadSummary {
            thread: thread_of(row)?,
            messages: uint(places.count),
            waiting: uint(row.get(8)?),
            status: status.as_deref().and_then(run_status_from),
            damaged: places.damage(),
            marks: rewind::marks_of(row, 10)?,
        };
        if !each(summary) {
            break;
        }
    }
    Ok(())
}

/// Returns the query that lists threads. Nothing is counted for skipped rows: only the rows of the page cost
/// more than a step of an index. The joins are CROSS, because SQLite keeps their order: it would otherwise go
/// through all pending questions for each row.
pub(super) fn list_sql(of_folder: bool) -> String {
    const ORDER: &str = "pinned_at IS NULL, updated_at DESC, n DESC";
    let folder = if of_folder { "t.cwd = ?1" } else { "?1 IS NULL" };
    format!(
        "SELECT t.id, t.title, t.cwd, t.created_at, t.updated_at, t.messages, \
         (SELECT min(seq) FROM message m WHERE m.thread_id = t.id), \
         (SELECT max(seq) FROM message m WHERE m.thread_id = t.id), \
         (SELECT count(*) FROM suspension s \
          WHERE s.thread_id = t.id AND s.status = 'open' AND s.action IS NOT ?2) \
         + (SELECT count(*) FROM child c CROSS JOIN suspension s ON s.thread_id = c.thread_id \
          WHERE c.root_thread = t.id AND s.status = 'open' AND s.action IS NOT ?2), \
         (SELECT r.status FROM run r WHERE r.thread_id = t.id ORDER BY r.n DESC LIMIT 1), \
         t.pinned_at, t.branch, t.fork, t.left_for \
         FROM (SELECT t.n FROM thread t WHERE {folder} \
               AND NOT EXISTS (SELECT 1 FROM child c WHERE c.thread_id = t.id) \
               ORDER BY {ORDER} LIMIT ?3 OFFSET ?4) AS page \
         CROSS JOIN thread t ON t.n = page.n"
    )
}

pub(super) fn state_of(conn: &Connection, id: &ThreadId) -> Result<BTreeMap<String, Value>, SqlFailure> {
    let sql = "SELECT body FROM thread_state WHERE thread_id = ?1";
    Ok(first(conn, sql, (id.as_str(),), |row| decode(id, "its state", body(row, 0)?))?.unwrap_or_default())
}

/// Adds a thread. Returns `false` if its id already exists.
pub(super) fn add(conn: &Connection, thread: &ThreadRecord) -> Result<bool, SqlFailure> {
    if exists(conn, &thread.id)? {
        return Ok(false);
    }
    check_given("thread", thread.id.as_str())?;
    let added = conn
        .prepare_cached(
            "INSERT INTO thread (id, title, cwd, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
        )?
        .execute((
            thread.id.as_str(),
            &thread.title,
            path_bytes(&thread.cwd),
            int(thread.created_at),
            int(thread.updated_at),
        ))?;
    Ok(added > 0)
}

pub(super) fn one(conn: &Connection, id: &ThreadId) -> Result<Option<ThreadRecord>, SqlFailure> {
    let sql = "SELECT id, title, cwd, created_at, updated_at FROM thread WHERE id = ?1";
    Ok(conn.prepare_cached(sql)?.query_row((id.as_str(),), thread_of).optional()?)
}

/// Returns the messages after a position, in order. Nothing before the position is read.
pub(super) fn after(conn: &Connection, id: &ThreadId, seq: u64) -> Result<Vec<StoredMessage>, SqlFailure> {
    let sql =
        "SELECT seq, run_id, created_at, body FROM message WHERE thread_id = ?1 AND seq > ?2 ORDER BY seq";
    all(conn, sql, (id.as_str(), int(seq)), |row| message_of(id, row))
}

pub(super) fn message_of(id: &ThreadId, row: &Row<'_>) -> Result<StoredMessage, SqlFailure> {
    let seq = uint(row.get(0)?);
    Ok(StoredMessage {
        seq,
        run_id: RunId::from(text(row, 1)?),
        created_at: uint(row.get(2)?),
        message: decode(id, &format!("message {seq}"), body(row, 3)?)?,
    })
}

pub(super) fn thread_of(row: &Row<'_>) -> rusqlite::Result<ThreadRecord> {
    Ok(ThreadRecord {
        id: ThreadId::from(text(row, 0)?),
        title: text(row, 1)?,
        cwd: path_from(row.get(2)?),
        created_at: uint(row.get(3)?),
        updated_at: uint(row.get(4)?),
    })
}

/// The count and bounds of a thread's message positions.
pub(super) struct MessageRange {
    written: i64,
    count: i64,
    min: Option<i64>,
    max: Option<i64>,
}

impl MessageRange {
    /// Returns the range of messages of which only the first and the last position were read.
    fn without_gaps(written: i64, min: Option<i64>, max: Option<i64>) -> Self {
        let count = max.zip(min).map_or(0, |(max, min)| max - min + 1);
        Self { written, count, min, max }
    }

    fn damage(&self) -> Option<String> {
        let Self { written, count, min, max } = *self;
        if count < written {
            return Some(format!("{} of its {written} messages are missing", written - count));
        }
        if count > written {
            return Some(format!("it has {count} messages, but {written} were written"));
        }
        // Places are unique, so the right number of them between the right ends leaves no gap.
        let in_order = count == 0 || (min == Some(1) && max == Some(count));
        (!in_order).then(|| "its messages are not numbered from 1".to_owned())
    }

    /// Refuses places whose ends are wrong; says what is wrong with all of them.
    pub(super) fn check(&self, conn: &Connection, id: &ThreadId) -> Result<(), SqlFailure> {
        if self.damage().is_none() {
            return Ok(());
        }
        let why = counted(conn, id)?.and_then(|places| places.damage());
        let why = why.unwrap_or_else(|| "its messages are not numbered from 1".to_owned());
        Err(StoreError::Damaged { thread: id.clone(), why }.into())
    }
}

/// Returns the first and last position of a thread's messages, assuming no gaps: messages are not counted one
/// by one.
pub(super) fn places_of(conn: &Connection, id: &ThreadId) -> Result<Option<MessageRange>, SqlFailure> {
    let sql = "SELECT t.messages, (SELECT min(seq) FROM message m WHERE m.thread_id = t.id), \
               (SELECT max(seq) FROM message m WHERE m.thread_id = t.id) FROM thread t WHERE t.id = ?1";
    let found = conn.prepare_cached(sql)?.query_row((id.as_str(),), |row| {
        Ok(MessageRange::without_gaps(row.get(0)?, row.get(1)?, row.get(2)?))
    });
    Ok(found.optional()?)
}

/// The same, with each message counted.
fn counted(conn: &Connection, id: &ThreadId) -> Result<Option<MessageRange>, SqlFailure> {
    let Some(places) = places_of(conn, id)? else { return Ok(None) };
    let count = conn
        .prepare_cached("SELECT count(*) FROM message WHERE thread_id = ?1")?
        .query_row((id.as_str(),), |row| row.get(0))?;
    Ok(Some(MessageRange { count, ..places }))
}

/// Refuses a thread whose messages are not all there, each counted.
pub(super) fn check_places(conn: &Connection, id: &ThreadId) -> Result<(), SqlFailure> {
    match counted(conn, id)?.and_then(|places| places.damage()) {
        Some(why) => Err(StoreError::Damaged { thread: id.clone(), why }.into()),
        None => Ok(()),
    }
}

/// Counts the messages of every thread, and returns a line for each thread with missing ones or too many.
pub(super) fn faults(conn: &Connection) -> Result<Vec<String>, SqlFailure> {
    let sql = "SELECT t.id, t.messages, count(m.seq), min(m.seq), max(m.seq) \
               FROM thread t LEFT JOIN message m ON m.thread_id = t.id GROUP BY t.n ORDER BY t.n";
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let places =
            MessageRange { written: row.get(1)?, count: row.get(2)?, min: row.get(3)?, max: row.get(4)? };
        if let Some(why) = places.damage() {
            found.push(format!("conversation {}: {why}", text(row, 0)?));
        }
    }
    Ok(found)
}

/// Reads the last `n` messages, or all. With all of them each is counted.
pub(super) fn tail(
    conn: &Connection,
    id: &ThreadId,
    n: Option<usize>,
) -> Result<(u64, Vec<StoredMessage>), SqlFailure> {
    let damaged = |why| SqlFailure(StoreError::Damaged { thread: id.clone(), why });
    let places = if n.is_some() { places_of(conn, id)? } else { counted(conn, id)? };
    let Some(places) = places else { return Ok((0, Vec::new())) };
    let total = places.count;
    let skip = n.map_or(0, |n| total.saturating_sub(i64::try_from(n).unwrap_or(i64::MAX)).max(0));
    if n.is_some() {
        places.check(conn, id)?;
    }
    let mut statement = conn.prepare_cached(
        "SELECT seq, run_id, created_at, body FROM message WHERE thread_id = ?1 AND seq > ?2 ORDER BY seq",
    )?;
    let mut rows = statement.query((id.as_str(), skip))?;
    let mut messages = Vec::with_capacity((total - skip).max(0) as usize);
    let mut next = skip + 1;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        if seq > next {
            return Err(damaged(format!("message {next} is missing")));
        }
        if seq < next {
            return Err(damaged(format!("message {seq} is duplicated")));
        }
        next += 1;
        messages.push(message_of(id, row)?);
    }
    if let Some(why) = places.damage() {
        return Err(damaged(why));
    }
    if next <= total {
        return Err(damaged(format!("message {next} is missing")));
    }
    Ok((uint(total), messages))
}

/// Whether the thread exists.
pub(super) fn exists(conn: &Connection, id: &ThreadId) -> Result<bool, SqlFailure> {
    Ok(conn.prepare_cached("SELECT 1 FROM thread WHERE id = ?1")?.exists((id.as_str(),))?)
}

/// Moves the time of the last change forward. Returns `false` if the thread does not exist.
pub(super) fn touch(conn: &Connection, id: &ThreadId, now_ms: u64) -> Result<bool, SqlFailure> {
    let sql = "UPDATE thread SET updated_at = max(updated_at, ?2) WHERE id = ?1";
    Ok(conn.prepare_cached(sql)?.execute((id.as_str(), int(now_ms)))? > 0)
}

/// As [`touch`], unless the last change was a short time ago. The order of the list is in two indices, and a run writes
/// often.
pub(super) fn touch_if_older(conn: &Connection, id: &ThreadId, now_ms: u64) -> Result<(), SqlFailure> {
    let sql = "UPDATE thread SET updated_at = ?2 WHERE id = ?1 AND updated_at <= ?3";
    conn.prepare_cached(sql)?.execute((id.as_str(), int(now_ms), int(now_ms) - TOUCH_INTERVAL))?;
    Ok(())
}

/// As [`touch_if_older`], for a run that starts: its thread becomes the newest one if it is not.
pub(super) fn touch_for_run(conn: &Connection, id: &ThreadId, now_ms: u64) -> Result<(), SqlFailure> {
    let mut statement = conn.prepare_cached(&touch_for_run_sql())?;
    statement.execute((id.as_str(), int(now_ms), int(now_ms) - TOUCH_INTERVAL))?;
    Ok(())
}

pub(super) fn touch_for_run_sql() -> String {
    let newer = |is_unpinned: u8| {
        format!(
            "EXISTS (SELECT 1 FROM thread o WHERE (o.pinned_at IS NULL) = {is_unpinned} \
             AND o.updated_at >= thread.updated_at AND o.n <> thread.n)"
        )
    };
    format!(
        "UPDATE thread SET updated_at = max(updated_at, ?2) \
         WHERE id = ?1 AND (updated_at <= ?3 OR {} OR {})",
        newer(1),
        newer(0)
    )
}

/// Appends messages at the next places.
pub(super) fn append(
    conn: &Connection,
    thread: &ThreadId,
    run: &RunId,
    at: u64,
    messages: &[Message],
) -> Result<(), SqlFailure> {
    if messages.is_empty() {
        return Ok(());
    }
    let (written, is_unsaid): (i64, bool) = conn
        .prepare_cached("SELECT messages, unsaid FROM thread WHERE id = ?1")?
        .query_row((thread.as_str(),), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .ok_or_else(|| StoreError::NoThread(thread.clone()))?;
    if !is_unsaid {
        conn.prepare_cached("UPDATE thread SET unsaid = 1 WHERE id = ?1")?.execute((thread.as_str(),))?;
    }
    let mut insert = conn.prepare_cached(
        "INSERT INTO message (thread_id, seq, run_id, created_at, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (seq, message) in (written + 1..).zip(messages) {
        let body = encode("the message", &*images::keep(conn, thread, at, message)?)?;
        insert.execute((thread.as_str(), seq, run.as_str(), int(at), body)).map_err(|error| {
            match error.sqlite_error_code() {
                // This row was written by hand. Continuing would only bury it.
                Some(rusqlite::ErrorCode::ConstraintViolation) => SqlFailure(StoreError::Damaged {
                    thread: thread.clone(),
                    why: format!("message {seq} is not in the count"),
                }),
                _ => error.into(),
            }
        })?;
        statistics::message(conn, at, message)?;
    }
    let total = written + messages.len() as i64;
    // A new message means that the user continues in this thread.
    conn.prepare_cached("UPDATE thread SET messages = ?2, left_for = NULL WHERE id = ?1")?
        .execute((thread.as_str(), total))?;
    outlines::grow(conn, thread, messages)
}

/// Replaces the thread-scoped state.
pub(super) fn set_state(
    conn: &Connection,
    thread: &ThreadId,
    state: &BTreeMap<String, Value>,
) -> Result<(), SqlFailure> {
    let sql = "INSERT INTO thread_state (thread_id, body) VALUES (?1, ?2) \
               ON CONFLICT (thread_id) DO UPDATE SET body = excluded.body";
    conn.prepare_cached(sql)?.execute((thread.as_str(), encode("the thread's state", state)?))?;
    Ok(())
}
