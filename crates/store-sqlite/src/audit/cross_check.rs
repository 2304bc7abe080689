//! Compares the audit with the tables: questions, executions and grants.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::chain::Link;
use super::facts::{AuditFact, FactReader, LastRow, ThreadFacts};
use crate::SqlFailure;
use crate::rows::{body, suspension_status, text};
use aye_core::contract::audit::{AuditFault, AuditFaultKind, AuditKind};

/// More differences than these are counted only.
const LISTED: usize = 1000;

/// The state that the audit rows read so far describe.
pub(super) struct ExpectedState {
    reader: FactReader,
    threads: HashMap<String, ThreadFacts>,
    grants: HashMap<String, Grant>,
    /// The last rows of before there was an audit: of questions, executions and grants.
    start: (i64, i64, i64),
    faults: Vec<AuditFault>,
    unlisted: u64,
}

#[derive(Debug)]
struct Grant {
    place: LastRow,
    given: Option<u128>,
    is_revoked: bool,
    is_over: bool,
    uses: i64,
}

#[derive(Deserialize)]
struct GrantFacts {
    id: String,
}

#[derive(Deserialize)]
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

impl Given {
    fn hash(&self, reader: &FactReader) -> u128 {
        let Self { id, pattern, scope, created_at, expires_at, max_uses, actor } = self;
        reader.hash(&[id, pattern, scope, created_at, expires_at, max_uses, actor].map(Value::to_string))
    }
}

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
        Ok(ExpectedState {
            reader: FactReader::new(true),
            threads: HashMap::new(),
            grants: HashMap::new(),
            start: start.unwrap_or_default(),
            faults: Vec::new(),
            unlisted: 0,
        })
    }

    /// Takes the next row. An unreadable one is ignored, because the chain reports that it was changed.
    pub(super) fn take(&mut self, kind: AuditKind, link: &Link) {
        let [Some(thread), ..] = &link.about else { return self.take_grant(kind, link) };
        match self.reader.fact(kind, link) {
            Ok(Some(AuditFact::Deleted)) => drop(self.threads.remove(thread)),
            Ok(Some(fact)) => drop(self.threads.entry(thread.clone()).or_default().apply(fact, link)),
            Ok(None) | Err(_) => {}
        }
    }

    fn take_grant(&mut self, kind: AuditKind, link: &Link) {
        let Some(GrantFacts { id }) = read(&link.body) else { return };
        let (place, Self { reader, grants, .. }) = (LastRow::of(link), self);
        let mut change = |change: &dyn Fn(&mut Grant)| {
            let new = Grant { place, given: None, is_revoked: false, is_over: false, uses: 0 };
            let grant = grants.entry(id.clone()).or_insert(new);
            grant.place = place;
            change(grant);
        };
        match kind {
            AuditKind::Granted => change(&|grant| {
                grant.given = read::<Given>(&link.body).map(|given| given.hash(reader));
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
        let at = place.and_then(|place| place.at);
        self.faults.push(AuditFault { kind, chain: String::new(), n, last: None, at, what });
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
        let reader = self.reader.clone();
        reader.each_question(conn, |row| {
            let (id, word) = (&row.id, &row.status);
            let thread = self.threads.get_mut(row.thread.as_ref());
            let facts = thread.and_then(|thread| thread.questions.remove(id.as_ref()));
            let is_older = row.n <= self.start.0;
            let Some(facts) = facts else {
                if !is_older {
                    let what = format!("question {id} is in its table, but no row records that it was asked");
                    self.differs(None, what);
                }
                return;
            };
            let place = Some(facts.place);
            if facts.asked.is_none() && !is_older {
                self.differs(place, format!("no row records that question {id} was asked"));
            }
            let status = suspension_status(facts.status);
            if *word != status {
                let what = format!("question {id} is {word} in its table, but {status} in this row");
                self.differs(place, what);
            }
            if facts.asked.is_some() && row.asked != facts.asked {
                self.differs(place, format!("question {id} belongs to another call in its table"));
            }
            if row.answer != facts.answer && (facts.answer.is_some() || !is_older) {
                self.differs(place, format!("the answer to question {id} differs in its table"));
            }
        })
    }

    fn executions(&mut self, conn: &Connection) -> Result<(), SqlFailure> {
        let reader = self.reader.clone();
        reader.each_execution(conn, |row| {
            let what = format!("attempt {} of call {}", row.attempt, row.call);
            let thread = self.threads.get_mut(row.thread.as_ref());
            let key = (row.run.clone().into_owned(), row.call.clone().into_owned(), row.attempt);
            let facts = thread.and_then(|thread| thread.executions.remove(&key));
            let is_older = row.n <= self.start.1;
            let Some(facts) = facts else {
                if !is_older {
                    self.differs(None, format!("{what} is in its table, but no row records its start"));
                }
                return;
            };
            let place = Some(facts.place);
            match facts.began {
                None if !is_older => self.differs(place, format!("no row records the start of {what}")),
                Some(_) if facts.began != row.began => {
                    self.differs(place, format!("{what} belongs to another call in its table"));
                }
                None | Some(_) => {}
            }
            if facts.ended != row.ended && (facts.ended.is_some() || !is_older) {
                self.differs(place, format!("the outcome of {what} differs in its table"));
            }
        })
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
            let given = given.map(|given| given.hash(&self.reader));
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
