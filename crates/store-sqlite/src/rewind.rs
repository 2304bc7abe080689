//! Rewind: snapshots before steps, forks of a thread, and thread metadata for lists.
//!
//! No message is ever deleted. A rewind continues with a fork of the conversation; the old thread stays complete and
//! records its fork.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, Row};
use serde_json::Value;

use super::rows::{all, body, body_or_null, decode, encode, first, int, path_bytes, text, uint};
use super::{ForkAt, SqlFailure, Store, StoreError, search};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::json::depth_of;
use aye_core::contract::message::Role;
use aye_core::contract::record::{NamedBy, ThreadMarks};
use aye_core::contract::snapshot::{ForkRecord, SnapshotRecord, WentBackRecord};

/// Larger states are not kept for each moment: a copy then has the one of its thread's end.
const MAX_STATE: usize = 64 << 10;
/// Messages searched in one transaction, so that other requests get their turn.
const SEARCHED: i64 = 2_000;
/// Number of messages that a fork copies at once.
const COPIED: usize = 256;

/// Writes a snapshot. If a snapshot of the same step exists, it takes precedence and the new one only adds
/// what is missing.
pub(super) fn insert(conn: &Connection, snapshot: &SnapshotRecord) -> Result<(), SqlFailure> {
    let sql = "SELECT body FROM snapshot WHERE thread_id = ?1 AND seq = ?2";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((snapshot.thread_id.as_str(), int(snapshot.seq)))?;
    if let Some(row) = rows.next()? {
        let known = snapshot_of(&snapshot.thread_id, row)?;
        let both = known.clone().then(snapshot);
        if both != known {
            conn.prepare_cached("UPDATE snapshot SET body = ?3 WHERE thread_id = ?1 AND seq = ?2")?
                .execute((snapshot.thread_id.as_str(), int(snapshot.seq), encode("the snapshot", &both)?))?;
        }
        return Ok(());
    }
    conn.prepare_cached(
        "INSERT INTO snapshot (thread_id, seq, run_id, created_at, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute((
        snapshot.thread_id.as_str(),
        int(snapshot.seq),
        snapshot.run_id.as_str(),
        int(snapshot.created_at),
        encode("the snapshot", snapshot)?,
    ))?;
    if let Some(head) = &snapshot.head {
        let branch = head.split_once(" at ").map_or(head.as_str(), |(branch, _)| branch);
        let branch = branch.strip_suffix(" without a commit").unwrap_or(branch);
        conn.prepare_cached("UPDATE thread SET branch = ?2 WHERE id = ?1")?
            .execute((snapshot.thread_id.as_str(), branch))?;
    }
    Ok(())
}

/// Keeps the state of a thread as it is at its present length.
pub(super) fn note_state(
    conn: &Connection,
    thread: &ThreadId,
    state: &BTreeMap<String, Value>,
) -> Result<(), SqlFailure> {
    let body = encode("the thread's state", state)?;
    if body.len() > MAX_STATE || depth_of(&body) > 100 {
        return Ok(());
    }
    let sql = "INSERT INTO thread_state_at (thread_id, seq, body) SELECT id, messages, ?2 FROM thread WHERE id = ?1 \
               ON CONFLICT (thread_id, seq) DO UPDATE SET body = excluded.body";
    conn.prepare_cached(sql)?.execute((thread.as_str(), body))?;
    Ok(())
}

/// Reads the marks shown in lists, from four columns starting at `at`.
pub(super) fn marks_of(row: &Row<'_>, at: usize) -> rusqlite::Result<ThreadMarks> {
    let pinned: Option<i64> = row.get(at)?;
    let branch = row.get_ref(at + 1)?.as_bytes_or_null()?;
    let fork = row.get_ref(at + 2)?.as_bytes_or_null()?;
    let left: Option<String> = row.get(at + 3)?;
    Ok(ThreadMarks {
        pinned: pinned.is_some(),
        branch: branch.map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
        // An unreadable fork record is no reason to hide the thread.
        fork: fork.and_then(|bytes| serde_json::from_slice::<ForkRecord>(bytes).ok()),
        left_for: left.map(ThreadId::from),
    })
}

fn snapshot_of(thread: &ThreadId, row: &Row<'_>) -> Result<SnapshotRecord, SqlFailure> {
    decode(thread, "a snapshot of it", body(row, 0)?)
}

impl Store {
    /// The snapshots of a thread, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is unreadable.
    pub async fn snapshots(&self, thread: &ThreadId) -> Result<Vec<SnapshotRecord>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| {
            let sql = "SELECT body FROM snapshot WHERE thread_id = ?1 ORDER BY seq";
            all(conn, sql, (id.as_str(),), |row| snapshot_of(&id, row))
        })
        .await
    }

    /// Returns the files as they were when the thread had `keep` messages: the first snapshot after these,
    /// merged with later ones up to the first that covers all files. Returns `None` if no step since then may
    /// have changed a file.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is unreadable.
    pub async fn snapshot_behind(
        &self,
        thread: &ThreadId,
        keep: u64,
    ) -> Result<Option<SnapshotRecord>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| {
            let sql = "SELECT body FROM snapshot WHERE thread_id = ?1 AND seq > ?2 ORDER BY seq";
            let mut statement = conn.prepare_cached(sql)?;
            let mut rows = statement.query((id.as_str(), int(keep)))?;
            let Some(row) = rows.next()? else { return Ok(None) };
            let mut found = snapshot_of(&id, row)?;
            while found.tree.as_ref().is_some_and(|tree| !tree.is_whole())
                && let Some(row) = rows.next()?
            {
                let later = snapshot_of(&id, row)?;
                if later.root != found.root {
                    continue;
                }
                // A snapshot after a command whose files were not kept does not show the state before that
                // command.
                let is_end = later.tree.is_none();
                found = found.then(&later);
                if is_end {
                    break;
                }
            }
            Ok(Some(found))
        })
        .await
    }

    /// Creates a thread from the first messages of another one, and stores what is needed to undo this. The
    /// number in `went` is assigned here and returned.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], [`StoreError::Exists`]; [`StoreError::Damaged`] when the copied part has a
    /// call without a result, which no model accepts.
    pub async fn go_back(
        &self,
        fork: Option<ForkAt>,
        went: Option<WentBackRecord>,
    ) -> Result<Option<u64>, StoreError> {
        self.write(move |tx| {
            if let Some(fork) = &fork {
                copy(tx, fork)?;
            }
            let Some(went) = went else { return Ok(None) };
            tx.prepare_cached("INSERT INTO went_back (thread_id, created_at, body) VALUES (?1, ?2, ?3)")?
                .execute((went.thread_id.as_str(), int(went.created_at), encode("the rewind", &went)?))?;
            Ok(Some(uint(tx.last_insert_rowid())))
        })
        .await
    }

    /// The last going back that led to this thread, or in it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is unreadable.
    pub async fn last_went_back(&self, thread: &ThreadId) -> Result<Option<WentBackRecord>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| {
            let sql = "SELECT body, n FROM went_back WHERE thread_id = ?1 ORDER BY n DESC LIMIT 1";
            first(conn, sql, (id.as_str(),), |row| {
                let went: WentBackRecord = decode(&id, "its last rewind", body(row, 0)?)?;
                Ok(WentBackRecord { n: uint(row.get(1)?), ..went })
            })
        })
        .await
    }

    /// Says for which thread another one was left; `None`: it is gone on with again.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn set_left(&self, thread: &ThreadId, to: Option<&ThreadId>) -> Result<(), StoreError> {
        let (id, to) = (thread.clone(), to.cloned());
        self.write(move |tx| {
            let sql = "UPDATE thread SET left_for = ?2 WHERE id = ?1";
            tx.prepare_cached(sql)?.execute((id.as_str(), to.as_ref().map(ThreadId::as_str)))?;
            Ok(())
        })
        .await
    }

    /// Names a thread. A model's title is used only if nothing else named the thread; `false` means that it
    /// was not used.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    pub async fn rename_thread(
        &self,
        thread: &ThreadId,
        title: &str,
        by: NamedBy,
    ) -> Result<bool, StoreError> {
        let (id, title) = (thread.clone(), title.to_owned());
        self.write(move |tx| {
            if !super::threads::exists(tx, &id)? {
                return Err(StoreError::NoThread(id).into());
            }
            let word = match by {
                NamedBy::FirstLine => None,
                NamedBy::Model => Some("model"),
                NamedBy::Person => Some("person"),
            };
            let sql = "UPDATE thread SET title = ?2, named_by = ?3 \
                       WHERE id = ?1 AND (?3 = 'person' OR named_by IS NULL)";
            Ok(tx.prepare_cached(sql)?.execute((id.as_str(), title, word))? > 0)
        })
        .await
    }

    /// Returns the source of a thread's title.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn named_by(&self, thread: &ThreadId) -> Result<NamedBy, StoreError> {
        let id = thread.clone();
        self.read(move |conn| {
            let sql = "SELECT named_by FROM thread WHERE id = ?1";
            let word = conn
                .prepare_cached(sql)?
                .query_row((id.as_str(),), |row| row.get::<_, Option<String>>(0))
                .optional()?;
            Ok(match word.flatten().as_deref() {
                Some("person") => NamedBy::Person,
                Some("model") => NamedBy::Model,
                _ => NamedBy::FirstLine,
            })
        })
        .await
    }

    /// Puts a thread before all others, or back among them.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    pub async fn pin_thread(&self, thread: &ThreadId, pin: Option<u64>) -> Result<(), StoreError> {
        let id = thread.clone();
        self.write(move |tx| {
            let sql = "UPDATE thread SET pinned_at = ?2 WHERE id = ?1";
            let changed = tx.prepare_cached(sql)?.execute((id.as_str(), pin.map(int)))?;
            if changed == 0 { Err(StoreError::NoThread(id).into()) } else { Ok(()) }
        })
        .await
    }

    /// Finds the first occurrence of a text in the messages of the user and the model in a thread, ignoring
    /// case, and returns the words around it. The search continues at `from`; as long as nothing is found and
    /// messages remain, the second value is the position to continue from.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn search_thread(
        &self,
        thread: &ThreadId,
        wanted: &str,
        from: u64,
    ) -> Result<(Option<String>, Option<u64>), StoreError> {
        let (id, wanted) = (thread.clone(), wanted.to_lowercase());
        self.read(move |conn| {
            let upto = int(from).saturating_add(SEARCHED);
            if let Some(around) = search::first_match(conn, &id, (int(from), upto), &wanted)? {
                return Ok((Some(around), None));
            }
            let more: bool = conn
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM message WHERE thread_id = ?1 AND seq > ?2)")?
                .query_row((id.as_str(), upto), |row| row.get(0))?;
            Ok((None, more.then_some(uint(upto))))
        })
        .await
    }
}

fn copy(tx: &Connection, fork: &ForkAt) -> Result<(), SqlFailure> {
    let ForkAt { from, keep, copy, is_rewind } = fork;
    let keep = int(*keep);
    let (title, named, written): (String, Option<String>, i64) = tx
        .prepare_cached("SELECT title, named_by, messages FROM thread WHERE id = ?1")?
        .query_row((from.as_str(),), |row| Ok((text(row, 0)?, row.get(1)?, row.get(2)?)))
        .optional()?
        .ok_or_else(|| StoreError::NoThread(from.clone()))?;
    let damaged = |why: String| SqlFailure(StoreError::Damaged { thread: from.clone(), why });
    if keep > written {
        return Err(damaged(format!("it has {written} messages, not {keep}")));
    }
    if let Some(call) = open_call(tx, from, keep)? {
        return Err(damaged(format!("its message {keep} leaves call {call} without a result")));
    }
    let title = if copy.title.is_empty() && keep > 0 { title } else { copy.title.clone() };
    let named = named.filter(|_| keep > 0);
    let record = ForkRecord { from: from.clone(), keep: uint(keep), is_rewind: *is_rewind };
    let added = tx
        .prepare_cached(
            "INSERT INTO thread (id, title, cwd, created_at, updated_at, messages, unsaid, named_by, branch, fork, \
             pinned_at) \
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?6 > 0, ?7, branch, ?8, iif(?9, pinned_at, NULL) FROM thread WHERE id = ?10 \
             ON CONFLICT DO NOTHING",
        )?
        .execute((
            copy.id.as_str(),
            title,
            path_bytes(&copy.cwd),
            int(copy.created_at),
            int(copy.updated_at),
            keep,
            named,
            encode("the fork", &record)?,
            is_rewind,
            from.as_str(),
        ))?;
    if added == 0 {
        return Err(StoreError::Exists { what: format!("thread {}", copy.id) }.into());
    }
    // SQLite first reads all that an INSERT takes from its own table into memory.
    for sql in [
        "INSERT INTO message (thread_id, seq, run_id, created_at, body) \
         SELECT ?1, seq, run_id, created_at, body FROM message WHERE thread_id = ?2 AND seq > ?3 AND seq <= ?4",
        "INSERT INTO snapshot (thread_id, seq, run_id, created_at, body) \
         SELECT ?1, seq, run_id, created_at, json_set(body, '$.thread_id', ?1) FROM snapshot \
         WHERE thread_id = ?2 AND seq > ?3 AND seq <= ?4",
        "INSERT INTO thread_state_at (thread_id, seq, body) \
         SELECT ?1, seq, body FROM thread_state_at WHERE thread_id = ?2 AND seq > ?3 AND seq <= ?4",
    ] {
        let mut statement = tx.prepare_cached(sql)?;
        for after in (-1..keep).step_by(COPIED) {
            let upto = keep.min(after + int(COPIED as u64));
            statement.execute((copy.id.as_str(), from.as_str(), after, upto))?;
        }
    }
    let ids = (copy.id.as_str(), from.as_str(), keep);
    for sql in [
        // Extra images that the copied messages do not refer to do no harm.
        "INSERT INTO image_of (thread_id, hash) SELECT ?1, hash FROM image_of WHERE thread_id = ?2 AND ?3 > 0",
        "INSERT INTO summary (thread_id, upto_seq, body) SELECT ?1, upto_seq, json_set(body, '$.thread_id', ?1) \
         FROM summary WHERE thread_id = ?2 AND upto_seq <= ?3",
        "INSERT INTO prefix (thread_id, seq, body) SELECT ?1, seq, body FROM prefix WHERE thread_id = ?2 AND seq <= ?3",
        // For threads from before states were kept for each moment, only the last state exists.
        "INSERT INTO thread_state (thread_id, body) \
         SELECT ?1, body FROM (SELECT body FROM thread_state_at WHERE thread_id = ?2 AND seq <= ?3 \
             ORDER BY seq DESC LIMIT 1) \
         UNION ALL SELECT ?1, body FROM thread_state WHERE thread_id = ?2 AND ?3 > 0 \
             AND NOT EXISTS (SELECT 1 FROM thread_state_at WHERE thread_id = ?2)",
    ] {
        tx.prepare_cached(sql)?.execute(ids)?;
    }
    super::outlines::copy(tx, from, &copy.id, usize::try_from(keep).unwrap_or(0))?;
    if *is_rewind {
        tx.prepare_cached("UPDATE thread SET left_for = ?2, pinned_at = NULL WHERE id = ?1")?
            .execute((from.as_str(), copy.id.as_str()))?;
    }
    Ok(())
}

/// Returns a call that the copied messages ask for without containing its result.
fn open_call(tx: &Connection, thread: &ThreadId, keep: i64) -> Result<Option<String>, SqlFailure> {
    // Results directly follow the message that asked for them.
    let mut statement = tx.prepare_cached(
        "SELECT seq, body FROM message WHERE thread_id = ?1 AND seq <= ?2 ORDER BY seq DESC",
    )?;
    let mut rows = statement.query((thread.as_str(), keep))?;
    let mut answered = Vec::new();
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        let Some(bytes) = body_or_null(row, 1)? else { break };
        let message: aye_core::contract::message::Message = decode(thread, &format!("message {seq}"), bytes)?;
        match message.role {
            Role::Tool => answered.extend(message.tool_call_id),
            Role::Assistant => {
                return Ok(message
                    .tool_calls
                    .into_iter()
                    .map(|call| call.id)
                    .find(|id| !answered.contains(id)));
            }
            Role::User | Role::System if answered.is_empty() => return Ok(None),
            Role::User | Role::System => {}
        }
    }
    Ok(None)
}
