//! The outline of a thread, known without reading all of it, and the end of a thread that a request contains.
//!
//! The outline of a thread is written with its messages. A thread from an older version has none: until it is
//! computed, unloaded messages are assumed to be what the runtime writes, steps whose calls all have results.

use std::collections::{BTreeMap, HashSet};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::rows::{body, body_or_null, decode, encode, first, int, uint};
use super::threads::places_of;
use super::{Portion, SqlFailure, Store, StoreError, ThreadTail};
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::message::{Message, Role};
use aye_core::contract::outline::Outline;

/// As many messages are read at once to bring an outline up to date.
const AT_ONCE: usize = 1_000;
/// The same while others wait for the store.
const A_FEW: usize = 250;
/// As many runs are added up when one of them ends.
pub(super) const RUNS: usize = 50;

impl Store {
    /// Returns the end of a thread. A summary limits it further: the messages that the summary replaces are
    /// not read. A thread that does not exist is empty.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a message of the end is missing or unreadable.
    pub async fn thread_tail(&self, thread: &ThreadId, portion: Portion) -> Result<ThreadTail, StoreError> {
        let id = thread.clone();
        self.read(move |conn| tail_of(conn, &id, portion)).await
    }

    /// The messages before a place, from 0, in order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is missing or unreadable.
    pub async fn messages_back(
        &self,
        thread: &ThreadId,
        before: usize,
        portion: Portion,
    ) -> Result<Vec<Message>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| back(conn, &id, before, portion)).await
    }

    /// Returns the messages from a position (from 0) on, in order, until they have the given number of bytes
    /// as stored.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is unreadable.
    pub async fn messages_from(
        &self,
        thread: &ThreadId,
        from: usize,
        bytes: usize,
    ) -> Result<Vec<Message>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| {
            let sql = "SELECT body, seq FROM message WHERE thread_id = ?1 AND seq > ?2 ORDER BY seq";
            let mut statement = conn.prepare_cached(sql)?;
            let mut rows = statement.query((id.as_str(), int(from as u64)))?;
            let (mut found, mut read) = (Vec::new(), 0);
            while read < bytes
                && let Some(row) = rows.next()?
            {
                let bytes = body(row, 0)?;
                read += bytes.len();
                found.push(decode(&id, &format!("message {}", row.get::<_, i64>(1)?), bytes)?);
            }
            Ok(found)
        })
        .await
    }

    /// Returns the last message of a run that the model wrote.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a message after it is unreadable.
    pub async fn last_answer(
        &self,
        thread: &ThreadId,
        run: Option<&RunId>,
    ) -> Result<Option<Message>, StoreError> {
        let (id, run) = (thread.clone(), run.cloned());
        self.read(move |conn| {
            let sql = "SELECT body, seq FROM message WHERE thread_id = ?1 AND (?2 IS NULL OR run_id = ?2) \
                       ORDER BY seq DESC";
            let mut statement = conn.prepare_cached(sql)?;
            let mut rows = statement.query((id.as_str(), run.as_ref().map(RunId::as_str)))?;
            while let Some(row) = rows.next()? {
                let place = format!("message {}", row.get::<_, i64>(1)?);
                let message: Message = decode(&id, &place, body(row, 0)?)?;
                if message.role == Role::Assistant {
                    return Ok(Some(message));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Returns those of the ids that calls of a thread already use.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    pub async fn used_call_ids(
        &self,
        thread: &ThreadId,
        ids: Vec<String>,
    ) -> Result<HashSet<String>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| {
            let mut known =
                conn.prepare_cached("SELECT 1 FROM called WHERE thread_id = ?1 AND call_id = ?2")?;
            let mut used = HashSet::new();
            for id in ids {
                if known.exists((thread.as_str(), &id))? {
                    used.insert(id);
                }
            }
            Ok(used)
        })
        .await
    }

    /// Tokens of all runs of a thread.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub async fn usage_of_thread(&self, thread: &ThreadId) -> Result<TokenUsage, StoreError> {
        Ok(self.usage_by_model(thread).await?.0)
    }

    /// Tokens of all runs of a thread, and the same for each model that answered.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub async fn usage_by_model(
        &self,
        thread: &ThreadId,
    ) -> Result<(TokenUsage, Vec<ModelUsage>), StoreError> {
        let id = thread.clone();
        self.read(move |conn| {
            let Some(mut sum) = sum_of(conn, &id)? else { return Ok((TokenUsage::default(), Vec::new())) };
            add_runs(conn, &id, &mut sum, usize::MAX, false)?;
            Ok((sum.usage, sum.spent))
        })
        .await
    }

    /// Brings the outline of a thread up to date that was written without one, some messages at a time. A thread that
    /// cannot be read is left as it is.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read or written.
    pub async fn complete_outline(&self, thread: &ThreadId) -> Result<(), StoreError> {
        loop {
            let id = thread.clone();
            let is_complete = self
                .write_relaxed(move |tx| {
                    let Some((written, known)) = stored(tx, &id)? else { return Ok(true) };
                    let mut outline = known;
                    let upto = written.min(outline.count + A_FEW);
                    match read_on(tx, &id, &mut outline, upto, true) {
                        Ok(()) => {}
                        Err(SqlFailure(StoreError::Damaged { .. })) => return Ok(true),
                        Err(error) => return Err(error),
                    }
                    save(tx, &id, &outline)?;
                    let is_added_up = add_up(tx, &id, A_FEW)?;
                    Ok(outline.count >= written && is_added_up)
                })
                .await?;
            if is_complete {
                return Ok(());
            }
        }
    }
}

/// Returns the number of messages of a thread and its outline as far as it was written, or `None` if the
/// thread does not exist.
fn stored(conn: &Connection, id: &ThreadId) -> Result<Option<(usize, Outline)>, SqlFailure> {
    let mut statement = conn.prepare_cached("SELECT messages, outline FROM thread WHERE id = ?1")?;
    let mut rows = statement.query((id.as_str(),))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let written = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
    let outline = body_or_null(row, 1)?.and_then(|bytes| serde_json::from_slice::<Outline>(bytes).ok());
    // An outline that cannot be right is built again.
    Ok(Some((written, outline.filter(|outline| outline.count <= written).unwrap_or_default())))
}

fn save(conn: &Connection, id: &ThreadId, outline: &Outline) -> Result<(), SqlFailure> {
    conn.prepare_cached("UPDATE thread SET outline = ?2 WHERE id = ?1")?
        .execute((id.as_str(), encode("the outline", outline)?))?;
    Ok(())
}

/// Takes the messages up to a place into an outline; `writes`: and notes the ids of their calls.
fn read_on(
    conn: &Connection,
    id: &ThreadId,
    outline: &mut Outline,
    upto: usize,
    writes: bool,
) -> Result<(), SqlFailure> {
    let sql = "SELECT body, seq FROM message WHERE thread_id = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((id.as_str(), int(outline.count as u64), int(upto as u64)))?;
    while let Some(row) = rows.next()? {
        let seq = row.get::<_, i64>(1)?;
        if seq != int(outline.count as u64 + 1) {
            return Err(missing(id, outline.count + 1));
        }
        let message: Message = decode(id, &format!("message {seq}"), body(row, 0)?)?;
        outline.push(&message);
        if writes {
            note_calls(conn, id, &message)?;
        }
    }
    if outline.count < upto {
        return Err(missing(id, outline.count + 1));
    }
    Ok(())
}

fn missing(id: &ThreadId, seq: usize) -> SqlFailure {
    SqlFailure(StoreError::Damaged { thread: id.clone(), why: format!("message {seq} is missing") })
}

fn note_calls(conn: &Connection, id: &ThreadId, message: &Message) -> Result<(), SqlFailure> {
    if message.tool_calls.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO called (thread_id, call_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    let mut insert = conn.prepare_cached(sql)?;
    for call in &message.tool_calls {
        insert.execute((id.as_str(), &call.id))?;
    }
    Ok(())
}

/// Takes messages into the outline of their thread that were just appended to it.
pub(super) fn grow(conn: &Connection, id: &ThreadId, messages: &[Message]) -> Result<(), SqlFailure> {
    let Some((written, mut outline)) = stored(conn, id)? else { return Ok(()) };
    let before = written.saturating_sub(messages.len());
    if before.saturating_sub(outline.count) > AT_ONCE {
        return Ok(());
    }
    match read_on(conn, id, &mut outline, before, true) {
        // Damage is reported to whoever reads the message.
        Err(SqlFailure(StoreError::Damaged { .. })) => return Ok(()),
        other => other?,
    }
    for message in messages {
        outline.push(message);
        note_calls(conn, id, message)?;
    }
    save(conn, id, &outline)
}

/// The tokens of the first runs of a thread.
#[derive(Default, Serialize, Deserialize)]
struct Sum {
    /// The number of the last one of them.
    n: i64,
    usage: TokenUsage,
    /// The same by model. Sums of an older version lack it, and are made anew.
    spent: Vec<ModelUsage>,
}

/// Returns `None` if the thread does not exist.
fn sum_of(conn: &Connection, id: &ThreadId) -> Result<Option<Sum>, SqlFailure> {
    first(conn, "SELECT usage FROM thread WHERE id = ?1", (id.as_str(),), |row| {
        Ok(body_or_null(row, 0)?.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default())
    })
}

/// Adds the next runs and returns their number; `is_over`: only up to the first run that has not ended.
fn add_runs(
    conn: &Connection,
    id: &ThreadId,
    sum: &mut Sum,
    most: usize,
    is_over: bool,
) -> Result<usize, SqlFailure> {
    let sql = "SELECT n, status = 'done', iif(json_valid(body), body -> '$.usage', NULL), \
               iif(json_valid(body), body -> '$.spent', NULL) FROM run \
               WHERE thread_id = ?1 AND n > ?2 ORDER BY n LIMIT ?3";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((id.as_str(), sum.n, int(most as u64)))?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        if is_over && !row.get::<_, bool>(1)? {
            break;
        }
        sum.n = row.get(0)?;
        count += 1;
        let usage = body_or_null(row, 2)?.and_then(|bytes| serde_json::from_slice(bytes).ok());
        if let Some(usage) = usage {
            sum.usage.add(&usage);
        }
        let spent =
            body_or_null(row, 3)?.and_then(|bytes| serde_json::from_slice::<Vec<ModelUsage>>(bytes).ok());
        for ModelUsage { model, usage } in spent.unwrap_or_default() {
            ModelUsage::add_to(&mut sum.spent, &model, &usage);
        }
    }
    Ok(count)
}

/// Adds up the tokens of runs that have ended. Returns whether all of them have been added.
pub(super) fn add_up(conn: &Connection, id: &ThreadId, most: usize) -> Result<bool, SqlFailure> {
    let Some(mut sum) = sum_of(conn, id)? else { return Ok(true) };
    let count = add_runs(conn, id, &mut sum, most, true)?;
    if count > 0 {
        conn.prepare_cached("UPDATE thread SET usage = ?2 WHERE id = ?1")?
            .execute((id.as_str(), encode("the tokens of a thread", &sum)?))?;
    }
    Ok(count < most)
}

/// Copies what is known about a thread to the copy of its first messages.
pub(super) fn copy(conn: &Connection, from: &ThreadId, to: &ThreadId, keep: usize) -> Result<(), SqlFailure> {
    let sql = "INSERT INTO called (thread_id, call_id) SELECT ?2, call_id FROM called WHERE thread_id = ?1";
    match stored(conn, from)? {
        Some((written, outline)) if written == keep && outline.count == keep => {
            conn.prepare_cached(sql)?.execute((from.as_str(), to.as_str()))?;
            save(conn, to, &outline)
        }
        _ => grow(conn, to, &[]),
    }
}

fn tail_of(conn: &Connection, id: &ThreadId, portion: Portion) -> Result<ThreadTail, SqlFailure> {
    let Some(places) = places_of(conn, id)? else { return Ok(ThreadTail::default()) };
    places.check(conn, id)?;
    let Some((written, mut outline)) = stored(conn, id)? else { return Ok(ThreadTail::default()) };
    let summarised: Option<i64> = conn
        .prepare_cached("SELECT max(upto_seq) FROM summary WHERE thread_id = ?1")?
        .query_row((id.as_str(),), |row| row.get(0))?;
    // The last message that a summary replaces records that it belongs to the summary.
    let floor = summarised.map_or(0, |upto| usize::try_from(uint(upto)).unwrap_or(0).saturating_sub(1));
    let portion = Portion { floor: portion.floor.max(floor), ..portion };
    let messages = back(conn, id, written, portion)?;
    let base = written - messages.len();
    let is_assumed = written - outline.count > AT_ONCE;
    if is_assumed {
        outline = assume(conn, id, base, &messages)?;
    } else {
        read_on(conn, id, &mut outline, written, false)?;
    }
    let mut apart = BTreeMap::new();
    for at in outline.needed().into_iter().take_while(|at| *at < base) {
        apart.extend(message_at(conn, id, at)?.map(|message| (at, message)));
    }
    Ok(ThreadTail { outline, is_assumed, base, messages, apart })
}

/// The outline of a thread of which only the end is known.
fn assume(conn: &Connection, id: &ThreadId, base: usize, tail: &[Message]) -> Result<Outline, SqlFailure> {
    let mut outline = Outline::default();
    while outline.count < base
        && let Some(message) = message_at(conn, id, outline.count)?
        && message.role == Role::System
    {
        outline.push(&message);
    }
    let sql = "SELECT seq FROM message WHERE thread_id = ?1 AND seq <= ?2 AND json_valid(body) \
               AND body ->> '$.role' = 'user' AND coalesce(body ->> '$.visibility', 'all') = 'all' \
               ORDER BY seq DESC LIMIT 1";
    let is_request = |message: &Message| message.role == Role::User && message.is_for_all();
    if !tail.iter().any(is_request) {
        let last = first(conn, sql, (id.as_str(), int(base as u64)), |row| Ok(row.get::<_, i64>(0)?))?;
        outline.request = last.and_then(|seq| usize::try_from(seq - 1).ok());
    }
    outline.count = base;
    for message in tail {
        outline.push(message);
    }
    Ok(outline)
}

fn message_at(conn: &Connection, id: &ThreadId, at: usize) -> Result<Option<Message>, SqlFailure> {
    let sql = "SELECT body FROM message WHERE thread_id = ?1 AND seq = ?2";
    let seq = at as u64 + 1;
    first(conn, sql, (id.as_str(), int(seq)), |row| decode(id, &format!("message {seq}"), body(row, 0)?))
}

fn back(
    conn: &Connection,
    id: &ThreadId,
    before: usize,
    portion: Portion,
) -> Result<Vec<Message>, SqlFailure> {
    let sql =
        "SELECT body, seq FROM message WHERE thread_id = ?1 AND seq <= ?2 AND seq > ?3 ORDER BY seq DESC";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((id.as_str(), int(before as u64), int(portion.floor as u64)))?;
    let (mut found, mut bytes): (Vec<Message>, _) = (Vec::new(), 0);
    loop {
        // A result belongs to what asked for it.
        let is_whole = found.last().is_none_or(|first| first.role != Role::Tool);
        if bytes >= portion.bytes && found.len() >= portion.count && is_whole {
            break;
        }
        let Some(row) = rows.next()? else {
            let wanted = before.saturating_sub(portion.floor);
            if found.len() < wanted {
                return Err(missing(id, before - found.len()));
            }
            break;
        };
        let seq = uint(row.get(1)?);
        if seq != (before - found.len()) as u64 {
            return Err(missing(id, before - found.len()));
        }
        let text = body(row, 0)?;
        bytes += text.len();
        found.push(decode(id, &format!("message {seq}"), text)?);
    }
    found.reverse();
    Ok(found)
}
