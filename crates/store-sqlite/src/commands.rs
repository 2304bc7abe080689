//! Commands in the background of threads.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::rows::{all, body, body_or_null, decode, encode, int, text, uint};
use super::{ChangeKind, SqlFailure, Store, StoreChange, StoreError, children, mailbox, output};
use aye_core::contract::command::{CommandEnd, CommandNews, CommandRecord, CommandReport};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::presence::Liveness;
use aye_core::contract::record::{AttemptId, Owner};

const COLUMNS: &str = "c.n, c.thread_id, i.run_id, i.call_id, c.agent, c.line, c.owner, c.started_at, c.stop, \
                       c.told, c.ended_at, c.outcome";
const FROM: &str = "FROM command c JOIN intent i ON i.n = c.intent";

impl Store {
    /// Records that a command is about to run in the background, for the call of this execution.
    ///
    /// # Errors
    /// [`StoreError::NotStarted`] when there is no intent.
    pub async fn begin_command(
        &self,
        id: &AttemptId,
        agent: String,
        line: String,
        owner: Owner,
        now_ms: u64,
    ) -> Result<CommandRecord, StoreError> {
        let id = id.clone();
        let work = move |tx: &Transaction<'_>| {
            let Some(intent) = output::intent_of(tx, &id)? else {
                return Err(StoreError::NotStarted { id }.into());
            };
            let sql = "INSERT INTO command (thread_id, intent, agent, line, owner, started_at) \
                       SELECT thread_id, n, ?2, ?3, ?4, ?5 FROM intent WHERE n = ?1 \
                       ON CONFLICT DO NOTHING RETURNING n";
            let owner = encode("the owner of a command", &owner)?;
            let n: Option<i64> = tx
                .prepare_cached(sql)?
                .query_row((intent, agent, line, owner, int(now_ms)), |row| row.get(0))
                .optional()?;
            let exists = || StoreError::Exists { what: format!("a command of call {}", id.call_id) };
            Ok(one(tx, uint(n.ok_or_else(exists)?))?.ok_or(StoreError::NotStarted { id })?)
        };
        let change = |made: &CommandRecord| Some(StoreChange::of(ChangeKind::Run, &made.thread_id));
        self.write_and_publish(true, ("store.command.before", "store.command.after"), work, change).await
    }

    /// Adds to what a command printed, within the bounds of [`Store::append_output`]. `false`: it is over, or its
    /// conversation was deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn append_command_output(&self, number: u64, chunk: String) -> Result<bool, StoreError> {
        self.write_relaxed(move |tx| {
            let sql = "SELECT intent FROM command WHERE n = ?1 AND ended_at IS NULL";
            let intent: Option<i64> =
                tx.prepare_cached(sql)?.query_row((int(number),), |row| row.get(0)).optional()?;
            intent.map_or(Ok(false), |intent| output::append(tx, intent, &chunk).map(|()| true))
        })
        .await
    }

    /// Returns what a command of this thread printed since the last check; `None` if there is no such
    /// command.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_command_output(
        &self,
        thread: &ThreadId,
        number: u64,
    ) -> Result<Option<CommandNews>, StoreError> {
        let thread = thread.clone();
        self.write(move |tx| {
            let Some(record) = one(tx, number)?.filter(|record| record.thread_id == thread) else {
                return Ok(None);
            };
            let sql = "SELECT intent, seen FROM command WHERE n = ?1";
            let (intent, seen): (i64, i64) =
                tx.prepare_cached(sql)?.query_row((int(number),), |row| Ok((row.get(0)?, row.get(1)?)))?;
            let (output, upto) = output::since(tx, intent, usize::try_from(seen).unwrap_or(0))?;
            tx.prepare_cached("UPDATE command SET seen = ?2 WHERE n = ?1")?
                .execute((int(number), int(upto as u64)))?;
            Ok(Some(CommandNews { record, output }))
        })
        .await
    }

    /// Writes how a command ended, once. `false`: that is known already, or its conversation was deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn end_command(
        &self,
        number: u64,
        end: CommandEnd,
        report: CommandReport,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let work = move |tx: &Transaction<'_>| {
            let Some(record) = one(tx, number)?.filter(|record| record.end.is_none()) else {
                return Ok(None);
            };
            settle(tx, &record, &end, report, now_ms)?;
            Ok(Some(record.thread_id))
        };
        let change = |thread: &Option<ThreadId>| {
            thread.as_ref().map(|thread| StoreChange::of(ChangeKind::Queue, thread))
        };
        let places = ("store.command_end.before", "store.command_end.after");
        Ok(self.write_and_publish(true, places, work, change).await?.is_some())
    }

    /// Queues what the thread does not know yet: the ends of commands, and that those ended whose process is known to be dead.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn report_commands(
        &self,
        thread: &ThreadId,
        is_alive: impl Fn(&Owner) -> Liveness + Send + 'static,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let thread = thread.clone();
        let untold = format!("SELECT {COLUMNS} {FROM} WHERE c.thread_id = ?1 AND c.told = 0 ORDER BY c.n");
        let (of, sql) = (thread.clone(), untold.clone());
        // Most threads have none: a look is cheaper than a transaction that writes.
        let some = self.read(move |conn| Ok(!listed(conn, &sql, (of.as_str(),))?.is_empty())).await?;
        if !some {
            return Ok(());
        }
        self.write(move |tx| {
            for record in listed(tx, &untold, (thread.as_str(),))? {
                let end = match &record.end {
                    Some(end) => end.clone(),
                    None if is_alive(&record.owner) != Liveness::No => continue,
                    None => CommandEnd::Unknown,
                };
                settle(tx, &record, &end, CommandReport::Queued, now_ms)?;
            }
            Ok(())
        })
        .await
    }

    /// Records that a command must end, for the process that watches it. Returns `false` if there is no such
    /// command, or it has ended.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stop_command(&self, number: u64) -> Result<bool, StoreError> {
        let work = move |tx: &Transaction<'_>| {
            let sql = "UPDATE command SET stop = 1 WHERE n = ?1 AND ended_at IS NULL RETURNING thread_id";
            let thread: Option<String> =
                tx.prepare_cached(sql)?.query_row((int(number),), |row| text(row, 0)).optional()?;
            Ok(thread.map(ThreadId::from))
        };
        let change = |thread: &Option<ThreadId>| {
            thread.as_ref().map(|thread| StoreChange::of(ChangeKind::Decision, thread))
        };
        Ok(self.write_and_publish(true, ("", ""), work, change).await?.is_some())
    }

    /// A command.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its row is unreadable.
    pub async fn command(&self, number: u64) -> Result<Option<CommandRecord>, StoreError> {
        self.read(move |conn| one(conn, number)).await
    }

    /// Returns the output of a command, with a line in the middle where bytes are missing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn command_output(&self, number: u64) -> Result<String, StoreError> {
        self.read(move |conn| {
            let sql = "SELECT intent FROM command WHERE n = ?1";
            let intent: Option<i64> =
                conn.prepare_cached(sql)?.query_row((int(number),), |row| row.get(0)).optional()?;
            intent.map_or_else(|| Ok(String::new()), |intent| output::read(conn, intent))
        })
        .await
    }

    /// The commands of a thread and of those below it, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is unreadable.
    pub async fn commands(&self, thread: &ThreadId) -> Result<Vec<CommandRecord>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| below(conn, &thread, false)).await
    }

    /// The commands of all threads, or only those whose end is not known, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is unreadable.
    pub async fn all_commands(&self, open_only: bool) -> Result<Vec<CommandRecord>, StoreError> {
        let open = if open_only { "WHERE c.ended_at IS NULL" } else { "" };
        let sql = format!("SELECT {COLUMNS} {FROM} {open} ORDER BY c.n");
        self.read(move |conn| listed(conn, &sql, ())).await
    }
}

/// The commands of a thread and of those below it, oldest first; `open_only`: those whose end is not known.
pub(super) fn below(
    conn: &Connection,
    thread: &ThreadId,
    open_only: bool,
) -> Result<Vec<CommandRecord>, SqlFailure> {
    let sql = format!(
        "SELECT {COLUMNS} {FROM} WHERE c.thread_id = ?1 AND (?2 = 0 OR c.ended_at IS NULL) ORDER BY c.n"
    );
    let mut found = listed(conn, &sql, (thread.as_str(), open_only))?;
    for child in children::below(conn, thread, false)? {
        found.extend(listed(conn, &sql, (child.as_str(), open_only))?);
    }
    found.sort_by_key(|record| record.number);
    Ok(found)
}

fn settle(
    tx: &Transaction<'_>,
    record: &CommandRecord,
    end: &CommandEnd,
    report: CommandReport,
    now_ms: u64,
) -> Result<(), SqlFailure> {
    let told = report != CommandReport::NextRun;
    tx.prepare_cached(
        "UPDATE command SET ended_at = coalesce(ended_at, ?2), outcome = coalesce(outcome, ?3), told = ?4 \
         WHERE n = ?1",
    )?
    .execute((int(record.number), int(now_ms), encode("the end of a command", end)?, told))?;
    if report == CommandReport::Queued {
        let sql = "SELECT intent FROM command WHERE n = ?1";
        let intent: i64 = tx.prepare_cached(sql)?.query_row((int(record.number),), |row| row.get(0))?;
        let printed = output::read(tx, intent)?;
        mailbox::insert(tx, record.job(end, &printed, now_ms))?;
    }
    Ok(())
}

fn one(conn: &Connection, number: u64) -> Result<Option<CommandRecord>, SqlFailure> {
    let sql = format!("SELECT {COLUMNS} {FROM} WHERE c.n = ?1");
    Ok(listed(conn, &sql, (int(number),))?.pop())
}

fn listed(
    conn: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<CommandRecord>, SqlFailure> {
    all(conn, sql, params, record_of)
}

fn record_of(row: &Row<'_>) -> Result<CommandRecord, SqlFailure> {
    let thread = ThreadId::from(text(row, 1)?);
    let number = uint(row.get(0)?);
    let end = body_or_null(row, 11)?
        .map(|outcome| decode(&thread, &format!("the end of command b{number}"), outcome))
        .transpose()?;
    Ok(CommandRecord {
        number,
        owner: decode(&thread, &format!("the owner of command b{number}"), body(row, 6)?)?,
        run_id: text(row, 2)?.into(),
        call_id: text(row, 3)?.into(),
        agent: text(row, 4)?,
        command: text(row, 5)?,
        started_at: uint(row.get(7)?),
        stop: row.get(8)?,
        told: row.get(9)?,
        ended_at: row.get::<_, Option<i64>>(10)?.map(uint),
        end,
        thread_id: thread,
    })
}
