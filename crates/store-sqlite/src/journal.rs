//! The two transactions of a run: a stage is true, and a tool is about to start.

use rusqlite::{Connection, OptionalExtension, Row, Rows, Transaction};

use super::rows::{body, body_or_null, decode, encode, outcome_kind, text, uint};
use super::{
    ChangeKind, SqlFailure, Store, StoreChange, StoreError, audit, leases, mailbox, output, prefixes, rewind,
    runs, statistics, suspensions, threads,
};
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::message::Message;
use aye_core::contract::record::{
    AttemptId, Checkpoint, ExecutionStart, Fence, IntentRecord, OpenIntent, OutcomeRecord, RunRecord,
};

impl Store {
    /// Writes the state after a stage of a run, in one transaction.
    ///
    /// New messages get the next positions and the time of the run's last change. When the run is done, its
    /// pending questions are superseded, so that no question outlives its run.
    ///
    /// The write is durable when this returns, unless the checkpoint contains only an answer of the model in
    /// a run that continues: the write that follows, the intent of a call or the end of the run, makes both
    /// durable.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when another process owns the thread now; see [`StoreError`] for the rest.
    pub async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), StoreError> {
        let durable = !is_only_an_answer(&checkpoint);
        let thread = &checkpoint.run.thread_id;
        let change = StoreChange::of(ChangeKind::Run, thread);
        let released = checkpoint.releases.then(|| StoreChange::of(ChangeKind::Owner, thread));
        let places = ("store.checkpoint.before", "store.checkpoint.after");
        let work = move |tx: &Transaction<'_>| write_checkpoint(tx, &checkpoint);
        let changes = |(): &()| [change].into_iter().chain(released);
        self.write_and_publish(durable, places, work, changes).await
    }

    /// Writes that a tool is about to start, in a transaction that also spends the decision. The tool may
    /// start only after this has returned.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::NotDecided`], [`StoreError::AlreadyStarted`]; see [`StoreError`]
    /// for the rest. The tool must not start after any error.
    pub async fn begin(&self, begin: ExecutionStart) -> Result<(), StoreError> {
        let change = StoreChange::of(ChangeKind::Run, &begin.run.thread_id);
        let places = ("store.begin.before", "store.begin.after");
        self.write_and_publish(true, places, move |tx| write_begin(tx, &begin), |()| Some(change)).await
    }

    /// Runs [`Store::checkpoint`] and [`Store::begin`] in one transaction: writes what led to the call and
    /// that the call is about to start, with a single fsync and no moment between the two.
    ///
    /// # Errors
    /// Those of both. After any error, nothing was written and the tool must not start.
    pub async fn checkpoint_and_begin(
        &self,
        checkpoint: Checkpoint,
        begin: ExecutionStart,
    ) -> Result<(), StoreError> {
        let change = StoreChange::of(ChangeKind::Run, &begin.run.thread_id);
        let places = ("store.begin.before", "store.begin.after");
        let work = move |tx: &Transaction<'_>| {
            write_checkpoint(tx, &checkpoint)?;
            write_begin(tx, &begin)
        };
        self.write_and_publish(true, places, work, |()| Some(change)).await
    }

    /// The executions of a run that were started and never recorded as ended, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn open_intents(&self, run: &RunId) -> Result<Vec<OpenIntent>, StoreError> {
        let run = run.clone();
        self.read(move |conn| open_of(conn, &run)).await
    }

    /// All executions of a run with their outcomes, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn intents(
        &self,
        run: &RunId,
    ) -> Result<Vec<(IntentRecord, Option<OutcomeRecord>)>, StoreError> {
        let run = run.clone();
        self.read(move |conn| {
            let mut statement = conn.prepare_cached(
                "SELECT thread_id, call_id, body, outcome FROM intent WHERE run_id = ?1 ORDER BY n",
            )?;
            let mut rows = statement.query((run.as_str(),))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push((intent_of(row)?, outcome_of(row)?));
            }
            Ok(found)
        })
        .await
    }
}

pub(super) fn open_of(conn: &Connection, run: &RunId) -> Result<Vec<OpenIntent>, SqlFailure> {
    let mut statement = conn.prepare_cached(
        "SELECT thread_id, call_id, body, outcome, n FROM intent \
         WHERE run_id = ?1 AND outcome IS NULL ORDER BY n",
    )?;
    open_in(conn, &mut statement.query((run.as_str(),))?)
}

fn open_in(conn: &Connection, rows: &mut Rows<'_>) -> Result<Vec<OpenIntent>, SqlFailure> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(OpenIntent { intent: intent_of(row)?, output: output::read(conn, row.get(4)?)? });
    }
    Ok(found)
}

/// The executions of the unfinished runs of a thread whose outcome is unknown, oldest first.
pub(super) fn unknown_of(conn: &Connection, thread: &ThreadId) -> Result<Vec<OpenIntent>, SqlFailure> {
    let mut statement = conn.prepare_cached(
        "SELECT i.thread_id, i.call_id, i.body, i.outcome, i.n FROM intent i JOIN run r ON r.id = i.run_id \
         WHERE i.thread_id = ?1 AND r.status <> 'done' AND (i.kind IS NULL OR i.kind = 'unknown') ORDER BY i.n",
    )?;
    open_in(conn, &mut statement.query((thread.as_str(),))?)
}

/// Whether the checkpoint contains only an answer of the model: nothing that a user sent, decided or was
/// shown as done, and nothing that a call did.
fn is_only_an_answer(checkpoint: &Checkpoint) -> bool {
    let Checkpoint {
        fence: _,
        run,
        messages,
        thread_state,
        prefix: _,
        opened,
        closed,
        outcomes,
        judged,
        commands,
        takes,
        releases,
    } = checkpoint;
    run.status == RunStatus::Running
        && !messages.is_empty()
        && messages.iter().all(Message::is_from_agent)
        && thread_state.is_none()
        && opened.is_empty()
        && closed.is_empty()
        && outcomes.is_empty()
        && judged.is_empty()
        && commands.is_empty()
        && takes.is_none()
        && !releases
}

pub(super) fn write_checkpoint(tx: &Connection, checkpoint: &Checkpoint) -> Result<(), SqlFailure> {
    let Checkpoint {
        fence,
        run,
        messages,
        thread_state,
        prefix,
        opened,
        closed,
        outcomes,
        judged,
        commands,
        takes,
        releases,
    } = checkpoint;
    write_run(tx, fence, run)?;
    if let Some(taking) = takes {
        mailbox::take(tx, run, taking)?;
    }
    threads::append(tx, &run.thread_id, &run.id, run.updated_at, messages)?;
    if let Some(state) = thread_state {
        threads::set_state(tx, &run.thread_id, state)?;
        rewind::note_state(tx, &run.thread_id, state)?;
    }
    if let Some(prefix) = prefix {
        prefixes::set(tx, &run.thread_id, prefix)?;
    }
    for call in judged {
        audit::judged(tx, run, call)?;
    }
    for command in commands {
        audit::append_entry(tx, &AuditEntry::hook(run, command))?;
    }
    for outcome in outcomes {
        write_outcome(tx, &run.thread_id, outcome)?;
        audit::append_entry(tx, &AuditEntry::ended(fence, run, outcome))?;
    }
    for (id, status) in closed {
        suspensions::close(tx, run, id, *status)?;
    }
    if !closed.is_empty() {
        mailbox::end_resume(tx, run)?;
    }
    for suspension in opened {
        suspensions::insert(tx, run, suspension)?;
        if let Some(at) = suspension.ticket.suspension.resumes_at() {
            mailbox::queue_resume(tx, run, at)?;
        }
    }
    if run.status == RunStatus::Done {
        suspensions::supersede(tx, run)?;
        mailbox::settle(tx, run)?;
    }
    mailbox::note_wait(tx, run)?;
    if *releases {
        leases::release(tx, fence)?;
    }
    Ok(())
}

fn write_begin(tx: &Connection, begin: &ExecutionStart) -> Result<(), SqlFailure> {
    let ExecutionStart { fence, run, intent, .. } = begin;
    if intent.thread_id != run.thread_id || intent.id.run_id != run.id {
        let what = format!("the intent for call {}", intent.id.call_id);
        return Err(StoreError::Misplaced { what, place: format!("run {}", run.id) }.into());
    }
    write_run(tx, fence, run)?;
    start(tx, begin)?;
    mailbox::note_wait(tx, run)
}

/// Adds an execution and spends the decision that lets it start.
pub(super) fn start(tx: &Connection, begin: &ExecutionStart) -> Result<(), SqlFailure> {
    let ExecutionStart { fence: _, run, intent, spends, judged, commands, snapshot } = begin;
    if let Some((suspension, decision)) = spends {
        suspensions::spend(tx, suspension, decision, &intent.id)?;
    }
    let added = tx
        .prepare_cached(
            "INSERT INTO intent (run_id, call_id, attempt, thread_id, body) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
        )?
        .execute((
            run.id.as_str(),
            intent.id.call_id.as_str(),
            intent.id.attempt,
            run.thread_id.as_str(),
            encode("the intent", intent)?,
        ))?;
    if added == 0 {
        return Err(StoreError::AlreadyStarted { id: intent.id.clone() }.into());
    }
    for call in judged {
        audit::judged(tx, run, call)?;
    }
    for command in commands {
        audit::append_entry(tx, &AuditEntry::hook(run, command))?;
    }
    if let Some(snapshot) = snapshot {
        rewind::insert(tx, snapshot)?;
    }
    audit::append_entry(tx, &AuditEntry::began(begin))
}

/// Performs the first step of both transactions: checks the lease and writes the current state of the run.
fn write_run(conn: &Connection, fence: &Fence, run: &RunRecord) -> Result<(), SqlFailure> {
    if fence.thread_id != run.thread_id {
        let (what, place) = (format!("run {}", run.id), format!("thread {}", fence.thread_id));
        return Err(StoreError::Misplaced { what, place }.into());
    }
    leases::check(conn, fence)?;
    if runs::upsert(conn, run)? {
        threads::touch_for_run(conn, &run.thread_id, run.updated_at)?;
    } else {
        threads::touch_if_older(conn, &run.thread_id, run.updated_at)?;
    }
    Ok(())
}

/// The tool and start time of an intent, where its row can be read.
pub(super) type StartedIntent = (Option<String>, Option<i64>);

/// Writes an outcome and counts it. An outcome that was found out later is not counted: its execution was
/// counted when the outcome was recorded as unknown.
fn write_outcome(conn: &Connection, thread: &ThreadId, outcome: &OutcomeRecord) -> Result<(), SqlFailure> {
    if let Some((tool, started_at)) = end(conn, thread, outcome)? {
        let started_at = started_at.map_or(outcome.ended_at, uint);
        statistics::outcome(conn, tool.as_deref().unwrap_or("?"), started_at, outcome)?;
    }
    Ok(())
}

/// Writes an outcome, once. Only an unknown outcome may be replaced, by what was found out later; `None` is
/// returned in that case.
pub(super) fn end(
    conn: &Connection,
    thread: &ThreadId,
    outcome: &OutcomeRecord,
) -> Result<Option<StartedIntent>, SqlFailure> {
    let AttemptId { run_id, call_id, attempt } = &outcome.id;
    let stored: Option<(i64, Option<String>, StartedIntent)> = conn
        .prepare_cached(
            "SELECT n, kind, iif(json_valid(body), body ->> 'tool', NULL), \
             iif(json_valid(body), body ->> 'started_at', NULL) FROM intent WHERE run_id = ?1 AND call_id = ?2 AND attempt = ?3 AND thread_id = ?4",
        )?
        .query_row((run_id.as_str(), call_id.as_str(), attempt, thread.as_str()), |row| {
            Ok((row.get(0)?, row.get(1)?, (row.get(2)?, row.get(3)?)))
        })
        .optional()?;
    let Some((n, kind, begun)) = stored else {
        return Err(StoreError::NotStarted { id: outcome.id.clone() }.into());
    };
    let was_unknown = kind.as_deref() == Some("unknown");
    if kind.is_some_and(|kind| kind != "unknown") {
        return Err(StoreError::AlreadyEnded { id: outcome.id.clone() }.into());
    }
    conn.prepare_cached("UPDATE intent SET kind = ?2, outcome = ?3 WHERE n = ?1")?.execute((
        n,
        outcome_kind(outcome.kind),
        encode("the outcome", outcome)?,
    ))?;
    Ok((!was_unknown).then_some(begun))
}

fn intent_of(row: &Row<'_>) -> Result<IntentRecord, SqlFailure> {
    let thread = ThreadId::from(text(row, 0)?);
    let call = text(row, 1)?;
    decode(&thread, &format!("the intent for call {call}"), body(row, 2)?)
}

fn outcome_of(row: &Row<'_>) -> Result<Option<OutcomeRecord>, SqlFailure> {
    let thread = ThreadId::from(text(row, 0)?);
    let call = text(row, 1)?;
    body_or_null(row, 3)?
        .map(|body| decode(&thread, &format!("the outcome of call {call}"), body))
        .transpose()
}
