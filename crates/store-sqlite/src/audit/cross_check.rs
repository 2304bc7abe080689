//! Compares the audit with the tables: questions, executions and grants.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::chain::Link;
use crate::SqlFailure;
use crate::rows::{body, body_or_null, suspension_status, suspension_status_from, text};
use aye_core::contract::audit::{AuditFault, AuditFaultKind, AuditKind};
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::record::SuspensionStatus;

/// More differences than these are counted only.
const LISTED: usize = 1000;

/// The state that the audit rows read so far describe.
#[derive(Debug, Default)]
pub(super) struct ExpectedState {
    threads: HashMap<String, Thread>,
    grants: HashMap<String, Grant>,
    /// The last rows of before there was an audit: of questions, executions and grants.
    start: (i64, i64, i64),
    faults: Vec<AuditFault>,
    unlisted: u64,
}

/// The audit's account of a conversation since it was started, or started again.
#[derive(Debug, Default)]
struct Thread {
    questions: HashMap<String, QuestionRows>,
    executions: HashMap<(String, String, u64), Execution>,
}

/// The row that said something last.
#[derive(Clone, Copy, Debug)]
struct LastRow {
    n: i64,
    at: Option<u64>,
}

#[derive(Debug)]
struct QuestionRows {
    place: LastRow,
    asked: Option<String>,
    status: SuspensionStatus,
    answer: Option<String>,
}

#[derive(Debug)]
struct Execution {
    place: LastRow,
    began: Option<String>,
    ended: Option<(Value, Value)>,
}

#[derive(Debug)]
struct Grant {
    place: LastRow,
    given: Option<String>,
    is_revoked: bool,
    is_over: bool,
    uses: i64,
}

/// Digests, because what they are made of may be long.
fn digest(parts: &impl serde::Serialize) -> String {
    sha256_hex(serde_json::to_string(parts).unwrap_or_default())
}

#[derive(Deserialize)]
struct Asked {
    suspension: String,
    action: Value,
    tool: Value,
    arguments: Value,
    #[serde(default)]
    expires_at: Value,
}

#[derive(Deserialize)]
struct Ticket {
    suspension: TicketQuestion,
    pending: TicketCall,
}

#[derive(Deserialize)]
struct TicketQuestion {
    action: Value,
    #[serde(default)]
    expires_at: Value,
}

#[derive(Deserialize)]
struct TicketCall {
    name: Value,
    arguments: Value,
}

#[derive(Deserialize)]
struct Decided {
    suspension: String,
    decision: Value,
    actor: Value,
    #[serde(flatten)]
    answer: AnswerRow,
}

#[derive(Deserialize)]
struct Resume {
    decision_id: Value,
    #[serde(flatten)]
    answer: AnswerRow,
}

#[derive(Deserialize, serde::Serialize)]
struct AnswerRow {
    action: Value,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    reason: Value,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct QuestionFacts {
    suspension: String,
}

#[derive(Deserialize)]
struct Began {
    attempt: u64,
    tool: Value,
    arguments: Value,
    hash: Value,
    class: Value,
    suspension: Option<String>,
}

#[derive(Deserialize)]
struct Intent {
    tool: Value,
    arguments: Value,
    hash: Value,
    class: Value,
}

#[derive(Deserialize)]
struct Ended {
    #[serde(default)]
    attempt: u64,
    kind: Value,
    outcome: Value,
}

#[derive(Deserialize)]
struct GrantFacts {
    id: String,
}

#[derive(Deserialize, serde::Serialize)]
struct Given {
    id: Value,
    pattern: Value,
    scope: Value,
    created_at: Value,
    #[serde(default)]
    expires_at: Value,
    #[serde(default)]
    max_uses: Value,
    actor: Value,
}

/// Parses a body as its kind requires. An unreadable row is ignored, because the chain reports that it was
/// changed.
fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

impl ExpectedState {
    pub(super) fn new(conn: &Connection) -> Result<ExpectedState, SqlFailure> {
        let sql = "SELECT suspension, intent, grant_row FROM audit_start";
        let start = conn
            .prepare_cached(sql)?
            .query_row((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        Ok(ExpectedState { start: start.unwrap_or_default(), ..ExpectedState::default() })
    }

    /// Takes the next row.
    pub(super) fn take(&mut self, kind: AuditKind, link: &Link) {
        let place = LastRow { n: link.n, at: u64::try_from(link.at).ok() };
        let [Some(thread), run, call] = &link.about else { return self.take_grant(kind, link, place) };
        if kind == AuditKind::Deleted {
            self.threads.remove(thread);
            return;
        }
        if matches!(kind, AuditKind::Judged | AuditKind::Hook) {
            return;
        }
        let thread = self.threads.entry(thread.clone()).or_default();
        let key = |attempt| (run.clone().unwrap_or_default(), call.clone().unwrap_or_default(), attempt);
        let question = |thread: &mut Thread, id: String, status| {
            let new = QuestionRows { place, asked: None, status, answer: None };
            let question = thread.questions.entry(id).or_insert(new);
            (question.place, question.status) = (place, status);
        };
        let body = link.body.as_str();
        let close = |thread: &mut Thread, status| {
            if let Some(facts) = read::<QuestionFacts>(body) {
                question(thread, facts.suspension, status);
            }
        };
        match kind {
            AuditKind::Asked => {
                let Some(facts) = read::<Asked>(body) else { return };
                let asked = digest(&(facts.action, facts.tool, facts.arguments, facts.expires_at));
                let status = SuspensionStatus::Open;
                let new = QuestionRows { place, asked: Some(asked), status, answer: None };
                thread.questions.insert(facts.suspension, new);
            }
            AuditKind::Decided => {
                let Some(facts) = read::<Decided>(body) else { return };
                question(thread, facts.suspension.clone(), SuspensionStatus::Decided);
                if let Some(question) = thread.questions.get_mut(&facts.suspension) {
                    question.answer = Some(digest(&(facts.decision, facts.answer, facts.actor)));
                }
            }
            AuditKind::Expired => close(thread, SuspensionStatus::Expired),
            AuditKind::Superseded => close(thread, SuspensionStatus::Superseded),
            AuditKind::Applied => close(thread, SuspensionStatus::Applied),
            AuditKind::Began => {
                let Some(facts) = read::<Began>(body) else { return };
                let began = digest(&(facts.tool, facts.arguments, facts.hash, facts.class));
                thread
                    .executions
                    .insert(key(facts.attempt), Execution { place, began: Some(began), ended: None });
                if let Some(id) = facts.suspension {
                    question(thread, id, SuspensionStatus::Applied);
                }
            }
            AuditKind::Ended => {
                let Some(facts) = read::<Ended>(body) else { return };
                let new = Execution { place, began: None, ended: None };
                let execution = thread.executions.entry(key(facts.attempt)).or_insert(new);
                (execution.place, execution.ended) = (place, Some((facts.kind, facts.outcome)));
            }
            AuditKind::Judged
            | AuditKind::Hook
            | AuditKind::Deleted
            | AuditKind::Granted
            | AuditKind::Revoked
            | AuditKind::Spent
            | AuditKind::Lapsed
            | AuditKind::Configured
            | AuditKind::Other => {}
        }
    }

    fn take_grant(&mut self, kind: AuditKind, link: &Link, place: LastRow) {
        let Some(GrantFacts { id }) = read(&link.body) else { return };
        let grants = &mut self.grants;
        let mut change = |change: &dyn Fn(&mut Grant)| {
            let new = Grant { place, given: None, is_revoked: false, is_over: false, uses: 0 };
            let grant = grants.entry(id.clone()).or_insert(new);
            grant.place = place;
            change(grant);
        };
        match kind {
            AuditKind::Granted => change(&|grant| {
                grant.given = read::<Given>(&link.body).map(|given| digest(&given));
            }),
            AuditKind::Revoked => change(&|grant| grant.is_revoked = true),
            AuditKind::Lapsed => change(&|grant| grant.is_over = true),
            AuditKind::Spent => change(&|grant| grant.uses += 1),
            AuditKind::Judged
            | AuditKind::Hook
            | AuditKind::Asked
            | AuditKind::Decided
            | AuditKind::Began
            | AuditKind::Ended
            | AuditKind::Expired
            | AuditKind::Superseded
            | AuditKind::Applied
            | AuditKind::Deleted
            | AuditKind::Configured
            | AuditKind::Other => {}
        }
    }

    fn differs(&mut self, place: Option<LastRow>, what: String) {
        if self.faults.len() >= LISTED {
            self.unlisted += 1;
            return;
        }
        let (kind, n) = (AuditFaultKind::Tables, place.map(|place| place.n));
        self.faults.push(AuditFault { kind, n, last: None, at: place.and_then(|place| place.at), what });
    }

    /// Whether there was an audit from the first row of the tables on.
    pub(super) fn is_complete(&self) -> bool {
        self.start == (0, 0, 0)
    }

    /// Compares the grants with their table only: what differs, and how much more than that.
    pub(super) fn end_grants(mut self, conn: &Connection) -> Result<(Vec<AuditFault>, u64), SqlFailure> {
        self.grants(conn)?;
        let left = self.missing_grants();
        self.report(left);
        Ok((self.faults, self.unlisted))
    }

    fn missing_grants(&mut self) -> Vec<(Option<LastRow>, String)> {
        let left = std::mem::take(&mut self.grants).into_iter();
        left.map(|(id, grant)| (Some(grant.place), format!("grant {id} is missing from its table"))).collect()
    }

    fn report(&mut self, mut left: Vec<(Option<LastRow>, String)>) {
        left.sort_by_key(|(place, _)| place.map(|place| place.n));
        for (place, what) in left {
            self.differs(place, what);
        }
    }

    /// Compares with the tables: what differs, and how much more than that.
    pub(super) fn end(mut self, conn: &Connection) -> Result<(Vec<AuditFault>, u64), SqlFailure> {
        self.questions(conn)?;
        self.executions(conn)?;
        self.grants(conn)?;
        // What is left is in the audit but in no table.
        let mut statement = conn.prepare_cached("SELECT id FROM thread")?;
        let rows = statement.query_map((), |row| text(row, 0))?;
        let there = rows.collect::<Result<HashSet<_>, _>>()?;
        let mut left: Vec<(Option<LastRow>, String)> = Vec::new();
        for (id, thread) in std::mem::take(&mut self.threads) {
            let is_empty = thread.questions.is_empty() && thread.executions.is_empty();
            if !there.contains(&id) && !is_empty {
                let places = (thread.questions.values().map(|q| q.place))
                    .chain(thread.executions.values().map(|e| e.place));
                let place = places.max_by_key(|place| place.n);
                left.push((
                    place,
                    format!("thread {id} is missing from its table, and no row records its deletion"),
                ));
                continue;
            }
            for (id, question) in thread.questions {
                left.push((Some(question.place), format!("question {id} is missing from its table")));
            }
            for ((_, call, attempt), execution) in thread.executions {
                let what = format!("attempt {attempt} of call {call} is missing from its table");
                left.push((Some(execution.place), what));
            }
        }
        left.extend(self.missing_grants());
        self.report(left);
        Ok((self.faults, self.unlisted))
    }

    fn questions(&mut self, conn: &Connection) -> Result<(), SqlFailure> {
        let mut statement = conn.prepare_cached(
            "SELECT n, id, thread_id, status, ticket, decision, decided_by FROM suspension ORDER BY n",
        )?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let (n, id, thread, word): (i64, _, _, _) =
                (row.get(0)?, text(row, 1)?, text(row, 2)?, text(row, 3)?);
            let facts = self.threads.get_mut(&thread).and_then(|thread| thread.questions.remove(&id));
            let is_older = n <= self.start.0;
            let Some(facts) = facts else {
                if !is_older {
                    self.differs(
                        None,
                        format!("question {id} is in its table, but no row records that it was asked"),
                    );
                }
                continue;
            };
            let place = Some(facts.place);
            if facts.asked.is_none() && !is_older {
                self.differs(place, format!("no row records that question {id} was asked"));
            }
            if suspension_status_from(&word) != Some(facts.status) {
                let status = suspension_status(facts.status);
                self.differs(
                    place,
                    format!("question {id} is {word} in its table, but {status} in this row"),
                );
            }
            if let Some(asked) = facts.asked {
                let ticket = serde_json::from_slice::<Ticket>(body(row, 4)?).ok();
                let stands = ticket.map(|Ticket { suspension: s, pending: p }| {
                    digest(&(s.action, p.name, p.arguments, s.expires_at))
                });
                if stands != Some(asked) {
                    self.differs(place, format!("question {id} belongs to another call in its table"));
                }
            }
            let decision = body_or_null(row, 5)?.and_then(|b| serde_json::from_slice::<Resume>(b).ok());
            let actor = body_or_null(row, 6)?.and_then(|b| serde_json::from_slice::<Value>(b).ok());
            let stands = decision.zip(actor).map(|(d, actor)| digest(&(d.decision_id, d.answer, actor)));
            let is_other = match (&facts.answer, &stands) {
                (Some(facts), Some(stands)) => facts != stands,
                (Some(_), None) => true,
                (None, Some(_)) => !is_older,
                (None, None) => false,
            };
            if is_other {
                self.differs(place, format!("the answer to question {id} differs in its table"));
            }
        }
        Ok(())
    }

    fn executions(&mut self, conn: &Connection) -> Result<(), SqlFailure> {
        let mut statement = conn.prepare_cached(
            "SELECT n, run_id, call_id, attempt, thread_id, body, outcome FROM intent ORDER BY n",
        )?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let (n, run, call): (i64, _, _) = (row.get(0)?, text(row, 1)?, text(row, 2)?);
            let attempt = u64::try_from(row.get::<_, i64>(3)?).unwrap_or_default();
            let what = format!("attempt {attempt} of call {call}");
            let thread = self.threads.get_mut(&text(row, 4)?);
            let facts = thread.and_then(|thread| thread.executions.remove(&(run, call, attempt)));
            let is_older = n <= self.start.1;
            let Some(facts) = facts else {
                if !is_older {
                    self.differs(None, format!("{what} is in its table, but no row records its start"));
                }
                continue;
            };
            let place = Some(facts.place);
            let intent = serde_json::from_slice::<Intent>(body(row, 5)?).ok();
            let stands = intent.map(|i| digest(&(i.tool, i.arguments, i.hash, i.class)));
            match facts.began {
                None if !is_older => self.differs(place, format!("no row records the start of {what}")),
                Some(began) if Some(&began) != stands.as_ref() => {
                    self.differs(place, format!("{what} belongs to another call in its table"));
                }
                None | Some(_) => {}
            }
            let outcome = body_or_null(row, 6)?.and_then(|b| serde_json::from_slice::<Ended>(b).ok());
            let stands = outcome.map(|outcome| (outcome.kind, outcome.outcome));
            if facts.ended != stands && (facts.ended.is_some() || !is_older) {
                self.differs(place, format!("the outcome of {what} differs in its table"));
            }
        }
        Ok(())
    }

    fn grants(&mut self, conn: &Connection) -> Result<(), SqlFailure> {
        let mut statement = conn.prepare_cached(
            "SELECT n, id, revoked_at IS NOT NULL, over, uses, body, expires_at, max_uses FROM grant_row ORDER BY n",
        )?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let (n, id): (i64, _) = (row.get(0)?, text(row, 1)?);
            let (is_revoked, is_over, uses): (bool, bool, i64) = (row.get(2)?, row.get(3)?, row.get(4)?);
            let is_older = n <= self.start.2;
            let Some(facts) = self.grants.remove(&id) else {
                if !is_older {
                    self.differs(None, format!("grant {id} is in its table, but no row records it"));
                }
                continue;
            };
            let place = Some(facts.place);
            let given = serde_json::from_slice::<Given>(body(row, 5)?).ok();
            let columns: (Option<i64>, Option<i64>) = (row.get(6)?, row.get(7)?);
            let fits = given.as_ref().is_some_and(|given| {
                let number = |value: &Value| value.as_u64().map(crate::rows::int);
                (number(&given.expires_at), number(&given.max_uses)) == columns
            });
            let given = given.map(|given| digest(&given));
            if !is_older && (facts.given.is_none() || given != facts.given || !fits) {
                self.differs(place, format!("grant {id} differs in its table"));
            }
            if is_revoked != facts.is_revoked && (facts.is_revoked || !is_older) {
                self.differs(place, format!("grant {id} is revoked in only one of table and audit"));
            }
            if is_over != facts.is_over && (facts.is_over || !is_older) {
                self.differs(place, format!("grant {id} is expired in only one of table and audit"));
            }
            if uses != facts.uses {
                let what = format!(
                    "grant {id} was used {uses} times according to its table, {} according to the \
                             audit",
                    facts.uses
                );
                self.differs(place, what);
            }
        }
        Ok(())
    }
}
