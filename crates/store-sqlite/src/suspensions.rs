//! Pending questions and their decisions.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::audit;
use super::grants;
use super::inbox::TicketView;
use super::rows::{
    all, body, body_or_null, decode, encode, first, int, readable, suspension_status, suspension_status_from,
    text, uint,
};
use super::{
    ChangeKind, SqlFailure, Store, StoreChange, StoreError, SuspensionFilter, SuspensionLookup, mailbox,
    statistics,
};
use aye_core::contract::audit::AuditKind;
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::ids::{CallId, DecisionId, RunId, SuspensionId, ThreadId};
use aye_core::contract::judgement::Risk;
use aye_core::contract::record::{
    AttemptId, DecideOutcome, Decision, RunRecord, SuspensionRecord, SuspensionStatus,
};
use aye_core::contract::suspension::{ResumeDecisionAction, ToolCallResume};

const COLUMNS: &str = "id, thread_id, run_id, call_id, ticket, status, created_at, decision, decided_by";
/// More matches than these are not worth a list.
const LOOKUP_LIMIT: usize = 20;

impl Store {
    /// Stores an answer, once. The caller has checked its payload against the question's schema.
    ///
    /// Of several who answer at once exactly one is accepted. Before anything else, every question whose time is over
    /// at `now_ms` is marked as expired, for good: a clock that goes back afterwards does not open it again. (A clock's
    /// highest reading is not remembered instead, because questions asked after a clock was put back would then end
    /// too early.)
    ///
    /// # Errors
    /// When the store fails. Refusals are outcomes.
    pub async fn decide(
        &self,
        id: &SuspensionId,
        decision: Decision,
        now_ms: u64,
    ) -> Result<DecideOutcome, StoreError> {
        let id = id.clone();
        let grant = decision.grant.as_ref().map(|_| grants::CHANGED);
        let work = move |tx: &Transaction<'_>| {
            expire(tx, now_ms)?;
            let Some(mut record) = get(tx, &id)? else { return Ok(DecideOutcome::NotFound) };
            let same = record.decision.as_ref().is_some_and(|d| d.decision_id == decision.resume.decision_id);
            Ok(match record.status {
                SuspensionStatus::Open => {
                    if let Some(grant) = &decision.grant {
                        grants::add(tx, grant)?;
                    }
                    answer(tx, &record, &decision, now_ms)?;
                    mailbox::end_wait(tx, &record.run_id)?;
                    statistics::answered(tx, now_ms, &record.ticket.pending.name, record.created_at)?;
                    record.status = SuspensionStatus::Decided;
                    record.decision = Some(decision.resume);
                    record.decided_by = Some(decision.actor);
                    DecideOutcome::Accepted(Box::new(record))
                }
                SuspensionStatus::Decided | SuspensionStatus::Applied if same => {
                    DecideOutcome::Repeated(Box::new(record))
                }
                SuspensionStatus::Decided | SuspensionStatus::Applied => {
                    DecideOutcome::AlreadyDecided(Box::new(record))
                }
                SuspensionStatus::Superseded => DecideOutcome::Closed(Box::new(record)),
                SuspensionStatus::Expired => DecideOutcome::Expired(Box::new(record)),
            })
        };
        let places = ("store.decide.before", "store.decide.after");
        self.write_and_publish(true, places, work, |outcome| {
            let (grant, decided) = match outcome {
                DecideOutcome::Accepted(record) => (grant, Some(record)),
                DecideOutcome::Expired(record) => (None, Some(record)),
                DecideOutcome::Repeated(_)
                | DecideOutcome::AlreadyDecided(_)
                | DecideOutcome::Closed(_)
                | DecideOutcome::NotFound => (None, None),
            };
            let decided = decided.map(|record| StoreChange::of(ChangeKind::Decision, &record.thread_id));
            // A process that receives the decision judges the call again, with the grants of that moment.
            grant.into_iter().chain(decided)
        })
        .await
    }

    /// Returns the question, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its row is unreadable.
    pub async fn suspension(&self, id: &SuspensionId) -> Result<Option<SuspensionRecord>, StoreError> {
        let id = id.clone();
        self.read(move |conn| get(conn, &id)).await
    }

    /// Replaces the reason that an open question shows. Returns `false` when the question is not open.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn replace_reason(&self, id: &SuspensionId, why: &str) -> Result<bool, StoreError> {
        let (id, why) = (id.clone(), why.to_owned());
        self.write(move |tx| {
            let sql = "UPDATE suspension SET why = ?2, \
                       ticket = json_set(ticket, '$.suspension.parameters.why', ?2) \
                       WHERE id = ?1 AND status = 'open'";
            Ok(tx.execute(sql, (id.as_str(), why))? > 0)
        })
        .await
    }

    /// Finds the question whose id starts with `prefix`. A whole id always matches exactly one; an empty
    /// prefix matches none.
    ///
    /// Closed questions count too: a prefix that once identified one question must never come to identify
    /// another, which a user would then answer unseen.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn find_suspension(&self, prefix: &str) -> Result<SuspensionLookup, StoreError> {
        let prefix = prefix.to_owned();
        self.read(move |conn| {
            if prefix.is_empty() {
                return Ok(SuspensionLookup::None);
            }
            if let Some(whole) = get(conn, &SuspensionId::from(prefix.as_str()))? {
                return Ok(SuspensionLookup::One(Box::new(whole)));
            }
            // The bounds are for the index; what decides is the comparison.
            let sql = format!(
                "SELECT {COLUMNS} FROM suspension \
                 WHERE id >= ?1 AND id < ?1 || char(1114111) AND substr(id, 1, length(?1)) = ?1 \
                 ORDER BY status <> 'open', n LIMIT {LOOKUP_LIMIT}"
            );
            let mut found = all(conn, &sql, (&prefix,), record_of)?;
            Ok(match found.len() {
                0 => SuspensionLookup::None,
                1 => SuspensionLookup::One(Box::new(found.remove(0))),
                _ => SuspensionLookup::Many(found),
            })
        })
        .await
    }

    /// Returns the questions that match the filter, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row of the requested thread or run is unreadable. In a list over all
    /// threads such a row is left out and logged.
    pub async fn suspensions(&self, filter: SuspensionFilter) -> Result<Vec<SuspensionRecord>, StoreError> {
        self.read(move |conn| listed(conn, &filter)).await
    }

    /// Marks every question whose time is over as expired, for good, and gives those that were still open.
    pub async fn expire_due(&self, now_ms: u64) -> Result<Vec<SuspensionRecord>, StoreError> {
        // Read without the write lock first: this is called often, and questions are seldom due.
        let is_due = self.read(move |conn| {
            let sql = format!("SELECT 1 FROM suspension WHERE {OVERDUE}");
            Ok(conn.prepare_cached(&sql)?.exists((int(now_ms),))?)
        });
        if !is_due.await? {
            return Ok(Vec::new());
        }
        let work = move |tx: &Transaction<'_>| {
            let mut found = Vec::new();
            for id in expire(tx, now_ms)? {
                found.extend(readable(get(tx, &id))?.flatten());
            }
            Ok(found)
        };
        self.write_and_publish(true, EXPIRE, work, decided).await
    }

    /// Expires these questions, whatever their own expiry, and returns those that were still pending; a
    /// question that was answered before stays answered. This is for a caller that has waited as long as it
    /// was allowed to.
    pub async fn expire(
        &self,
        ids: Vec<SuspensionId>,
        now_ms: u64,
    ) -> Result<Vec<SuspensionRecord>, StoreError> {
        let work = move |tx: &Transaction<'_>| {
            let mut update = tx.prepare_cached(
                "UPDATE suspension SET status = 'expired' WHERE id = ?1 AND status = 'open' \
                 RETURNING n, id, thread_id, run_id, call_id",
            )?;
            let mut found = Vec::new();
            for id in &ids {
                for id in close_returning(tx, &mut update, (id.as_str(),), now_ms, AuditKind::Expired)? {
                    found.extend(get(tx, &id)?);
                }
            }
            Ok(found)
        };
        self.write_and_publish(true, EXPIRE, work, decided).await
    }
}

/// The questions whose time is over. A run that waits for a time takes note of it itself: until then its question stays
/// open, so that whoever looks for due work finds the run.
const OVERDUE: &str =
    "status = 'open' AND expires_at IS NOT NULL AND expires_at <= ?1 AND action IS NOT 'run:Wait'";

/// The failpoints around the commit that expires questions.
const EXPIRE: (&str, &str) = ("store.expire.before", "store.expire.after");

#[expect(clippy::ptr_arg, reason = "the value that the work returned")]
fn decided(found: &Vec<SuspensionRecord>) -> Vec<StoreChange> {
    found.iter().map(|record| StoreChange::of(ChangeKind::Decision, &record.thread_id)).collect()
}

pub(super) fn listed(
    conn: &Connection,
    filter: &SuspensionFilter,
) -> Result<Vec<SuspensionRecord>, SqlFailure> {
    listed_from(conn, filter, (-1, 0))
}

/// Returns a page of the questions: its limit (-1 for none) and its offset.
pub(super) fn listed_from(
    conn: &Connection,
    filter: &SuspensionFilter,
    (limit, offset): (i64, i64),
) -> Result<Vec<SuspensionRecord>, SqlFailure> {
    let everywhere = filter.thread.is_none() && filter.run.is_none();
    // A condition that may be absent would keep SQLite from using an index.
    let when =
        |is_given: bool, given: &'static str, absent: &'static str| if is_given { given } else { absent };
    let sql = format!(
        "SELECT {COLUMNS} FROM suspension WHERE {} AND {} AND {} ORDER BY n LIMIT ?4 OFFSET ?5",
        when(filter.thread.is_some(), "thread_id = ?1", "?1 IS NULL"),
        when(filter.run.is_some(), "run_id = ?2", "?2 IS NULL"),
        when(filter.status.is_some(), "status = ?3", "?3 IS NULL"),
    );
    let params = (
        filter.thread.as_ref().map(ThreadId::as_str),
        filter.run.as_ref().map(RunId::as_str),
        filter.status.map(suspension_status),
        limit,
        offset,
    );
    if everywhere {
        let found = all(conn, &sql, params, |row| readable(record_of(row)))?;
        return Ok(found.into_iter().flatten().collect());
    }
    all(conn, &sql, params, record_of)
}

fn expire(conn: &Connection, now_ms: u64) -> Result<Vec<SuspensionId>, SqlFailure> {
    let sql = format!(
        "UPDATE suspension SET status = 'expired' WHERE {OVERDUE} RETURNING n, id, thread_id, run_id, call_id"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    close_returning(conn, &mut statement, (int(now_ms),), now_ms, AuditKind::Expired)
}

/// Runs an update that closes questions and returns the number, id, thread, run and call of each. The closed
/// questions are written to the audit, in the order in which they were asked.
fn close_returning(
    conn: &Connection,
    update: &mut rusqlite::Statement<'_>,
    parameters: impl rusqlite::Params,
    at: u64,
    kind: AuditKind,
) -> Result<Vec<SuspensionId>, SqlFailure> {
    let rows = update.query_map(parameters, |row| {
        Ok((row.get::<_, i64>(0)?, text(row, 1)?, text(row, 2)?, text(row, 3)?, text(row, 4)?))
    })?;
    let mut found = rows.collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable();
    let mut ids = Vec::with_capacity(found.len());
    for (_, id, thread, run, call) in found {
        let (thread, run, call) = (ThreadId::from(thread), RunId::from(run), CallId::from(call));
        let id = SuspensionId::from(id);
        audit::append_entry(conn, &AuditEntry::closed(at, kind, (&thread, &run, &call), &id))?;
        if kind == AuditKind::Expired {
            mailbox::end_wait(conn, &run)?;
        }
        ids.push(id);
    }
    Ok(ids)
}

fn get(conn: &Connection, id: &SuspensionId) -> Result<Option<SuspensionRecord>, SqlFailure> {
    let sql = format!("SELECT {COLUMNS} FROM suspension WHERE id = ?1");
    first(conn, &sql, (id.as_str(),), record_of)
}

fn record_of(row: &Row<'_>) -> Result<SuspensionRecord, SqlFailure> {
    let id = SuspensionId::from(text(row, 0)?);
    let thread_id = ThreadId::from(text(row, 1)?);
    let status = text(row, 5)?;
    let what = format!("question {id}");
    let status = suspension_status_from(&status).ok_or_else(|| StoreError::Damaged {
        thread: thread_id.clone(),
        why: format!("{what} has the invalid state \"{status}\""),
    })?;
    Ok(SuspensionRecord {
        ticket: decode(&thread_id, &what, body(row, 4)?)?,
        decision: body_or_null(row, 7)?.map(|body| decode(&thread_id, &what, body)).transpose()?,
        decided_by: body_or_null(row, 8)?.map(|body| decode(&thread_id, &what, body)).transpose()?,
        run_id: text(row, 2)?.into(),
        call_id: text(row, 3)?.into(),
        created_at: uint(row.get(6)?),
        status,
        thread_id,
        id,
    })
}

/// Adds a question of a run.
pub(super) fn insert(
    conn: &Connection,
    run: &RunRecord,
    record: &SuspensionRecord,
) -> Result<(), SqlFailure> {
    let what = || format!("question {}", record.id);
    if record.thread_id != run.thread_id || record.run_id != run.id {
        return Err(StoreError::Misplaced { what: what(), place: format!("run {}", run.id) }.into());
    }
    if record.status != SuspensionStatus::Open || record.decision.is_some() {
        let (from, to) = (SuspensionStatus::Open, record.status);
        return Err(StoreError::IllegalMove { suspension: record.id.clone(), from, to }.into());
    }
    if record.ticket.suspension.id != record.id {
        let place = format!("the ticket of {}", record.ticket.suspension.id);
        return Err(StoreError::Misplaced { what: what(), place }.into());
    }
    let shown = TicketView::of(&record.ticket);
    let added = conn
        .prepare_cached(
            "INSERT INTO suspension (id, thread_id, run_id, call_id, status, created_at, expires_at, ticket, \
                                     action, tool, summary, why, risk) \
             VALUES (?1, ?2, ?3, ?4, 'open', ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING",
        )?
        .execute((
            record.id.as_str(),
            record.thread_id.as_str(),
            record.run_id.as_str(),
            record.call_id.as_str(),
            int(record.created_at),
            record.ticket.suspension.expires_at.map(int),
            encode("the question", &record.ticket)?,
            shown.action,
            shown.tool,
            shown.summary,
            shown.why,
            shown.risk.map(Risk::as_str),
        ))?;
    if added == 0 {
        return Err(StoreError::Exists { what: what() }.into());
    }
    audit::append_entry(conn, &AuditEntry::asked(run, record))
}

/// Stores the answer to an open question.
pub(super) fn answer(
    conn: &Connection,
    record: &SuspensionRecord,
    decision: &Decision,
    at: u64,
) -> Result<(), SqlFailure> {
    conn.prepare_cached(
        "UPDATE suspension SET status = 'decided', decision_id = ?2, decision = ?3, decided_by = ?4 \
         WHERE id = ?1 AND status = 'open'",
    )?
    .execute((
        record.id.as_str(),
        decision.resume.decision_id.as_str(),
        encode("the decision", &decision.resume)?,
        encode("the actor", &decision.actor)?,
    ))?;
    audit::append_entry(conn, &AuditEntry::decided(record, decision, at))
}

/// Closes a question of a thread.
///
/// `Applied` spends an answer that starts no tool (a cancel, or an answer that is the result itself). `Superseded` and
/// `Expired` are for questions without an answer; a question that is over already stays as it ended.
pub(super) fn close(
    conn: &Connection,
    run: &RunRecord,
    id: &SuspensionId,
    to: SuspensionStatus,
) -> Result<(), SqlFailure> {
    use SuspensionStatus::{Applied, Decided, Expired, Open, Superseded};
    let thread = &run.thread_id;
    let found: Option<(String, String)> = conn
        .prepare_cached("SELECT status, call_id FROM suspension WHERE id = ?1 AND thread_id = ?2")?
        .query_row((id.as_str(), thread.as_str()), |row| Ok((text(row, 0)?, text(row, 1)?)))
        .optional()?;
    let Some((word, call)) = found else { return Err(StoreError::NoSuspension(id.clone()).into()) };
    let from = suspension_status_from(&word).ok_or_else(|| StoreError::Damaged {
        thread: thread.clone(),
        why: format!("question {id} has the invalid state \"{word}\""),
    })?;
    match (from, to) {
        (Open, Superseded | Expired) | (Decided, Applied | Superseded) => {}
        (Applied | Superseded | Expired, Superseded | Expired) | (Applied, Applied) => return Ok(()),
        (Open | Superseded | Expired, Applied) => {
            return Err(StoreError::NotDecided { suspension: id.clone() }.into());
        }
        // An answer that came in time counts, whatever the clock of the closing process shows.
        (Decided, Expired) | (_, Open | Decided) => {
            return Err(StoreError::IllegalMove { suspension: id.clone(), from, to }.into());
        }
    }
    conn.prepare_cached("UPDATE suspension SET status = ?2 WHERE id = ?1")?
        .execute((id.as_str(), suspension_status(to)))?;
    let kind = match to {
        Superseded => AuditKind::Superseded,
        Expired => AuditKind::Expired,
        Applied => AuditKind::Applied,
        Open | Decided => return Ok(()),
    };
    let call = CallId::from(call);
    audit::append_entry(conn, &AuditEntry::closed(run.updated_at, kind, (&run.thread_id, &run.id, &call), id))
}

/// Closes what is left of a run that is over.
pub(super) fn supersede(conn: &Connection, run: &RunRecord) -> Result<(), SqlFailure> {
    let mut statement = conn.prepare_cached(
        "UPDATE suspension SET status = 'superseded' WHERE run_id = ?1 AND status IN ('open', 'decided') \
         RETURNING n, id, thread_id, run_id, call_id",
    )?;
    close_returning(conn, &mut statement, (run.id.as_str(),), run.updated_at, AuditKind::Superseded).map(drop)
}

/// Spends the decision that lets an execution start: it must be stored for this very call, say resume, be unspent.
pub(super) fn spend(
    conn: &Connection,
    id: &SuspensionId,
    decision: &DecisionId,
    attempt: &AttemptId,
) -> Result<(), SqlFailure> {
    let refused = || SqlFailure(StoreError::NotDecided { suspension: id.clone() });
    let row: Option<(String, Vec<u8>)> = conn
        .prepare_cached(
            "SELECT thread_id, decision FROM suspension \
             WHERE id = ?1 AND status = 'decided' AND decision_id = ?2 AND run_id = ?3 AND call_id = ?4",
        )?
        .query_row(
            (id.as_str(), decision.as_str(), attempt.run_id.as_str(), attempt.call_id.as_str()),
            |row| Ok((text(row, 0)?, body(row, 1)?.to_vec())),
        )
        .optional()?;
    let (thread, body) = row.ok_or_else(refused)?;
    let stored: ToolCallResume =
        decode(&ThreadId::from(thread), &format!("the answer to question {id}"), &body)?;
    if stored.action != ResumeDecisionAction::Resume || stored.decision_id != *decision {
        return Err(refused());
    }
    conn.prepare_cached("UPDATE suspension SET status = 'applied' WHERE id = ?1 AND status = 'decided'")?
        .execute((id.as_str(),))?;
    Ok(())
}
