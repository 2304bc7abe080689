//! What the rows of the audit, and those of the tables beside it, say of questions and executions: hashes that can be
//! compared. Both comparisons read with it: the one by sums (`sums`) and the one item by item (`cross_check`).
//!
//! The hashes have keys of this process: nobody can change a table so that a hash stays.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};

use rusqlite::{Connection, Row};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::chain::Link;
use crate::SqlFailure;
use crate::rows::{body, body_or_null, suspension_status};
use aye_core::contract::audit::AuditKind;
use aye_core::contract::record::SuspensionStatus;

/// What a row of the audit says of a conversation. After an end that is not final, what became of the
/// execution may still be found out.
pub(super) enum AuditFact {
    Deleted,
    Asked { question: String, asked: u128 },
    Decided { question: String, answer: u128 },
    Closed { question: String, status: SuspensionStatus },
    Began { attempt: u64, began: u128, question: Option<String> },
    Ended { attempt: u64, ended: u128, is_final: bool },
}

/// A row that says something else than aye writes.
pub(super) struct Unreadable;

/// The row of the audit that said something last.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastRow {
    pub(super) n: i64,
    pub(super) at: Option<u64>,
}

impl LastRow {
    pub(super) fn of(link: &Link) -> Self {
        Self { n: link.n, at: u64::try_from(link.at).ok() }
    }
}

/// The audit's account of a conversation since it was started, or started again.
#[derive(Debug, Default)]
pub(super) struct ThreadFacts {
    pub(super) questions: HashMap<String, QuestionFacts>,
    pub(super) executions: HashMap<ExecutionId, ExecutionFacts>,
}

/// Run, call and attempt.
pub(super) type ExecutionId = (String, String, u64);

#[derive(Debug)]
pub(super) struct QuestionFacts {
    pub(super) place: LastRow,
    pub(super) asked: Option<u128>,
    pub(super) status: SuspensionStatus,
    pub(super) answer: Option<u128>,
}

#[derive(Debug)]
pub(super) struct ExecutionFacts {
    pub(super) place: LastRow,
    pub(super) began: Option<u128>,
    pub(super) ended: Option<u128>,
}

/// What a row closed: nothing more is to be said of it.
#[derive(Default)]
pub(super) struct ClosedItems {
    pub(super) question: Option<String>,
    pub(super) execution: Option<ExecutionId>,
}

impl ThreadFacts {
    /// Takes what the next row says.
    pub(super) fn apply(&mut self, fact: AuditFact, link: &Link) -> ClosedItems {
        let place = LastRow::of(link);
        let key = |attempt| {
            let [_, run, call] = &link.about;
            (run.clone().unwrap_or_default(), call.clone().unwrap_or_default(), attempt)
        };
        let mut closed = ClosedItems::default();
        match fact {
            AuditFact::Deleted => *self = Self::default(),
            AuditFact::Asked { question, asked } => {
                let status = SuspensionStatus::Open;
                let new = QuestionFacts { place, asked: Some(asked), status, answer: None };
                self.questions.insert(question, new);
            }
            AuditFact::Decided { question, answer } => {
                self.move_question(&question, SuspensionStatus::Decided, place).answer = Some(answer);
            }
            AuditFact::Closed { question, status } => {
                self.move_question(&question, status, place);
                closed.question = Some(question);
            }
            AuditFact::Began { attempt, began, question } => {
                self.executions
                    .insert(key(attempt), ExecutionFacts { place, began: Some(began), ended: None });
                if let Some(question) = &question {
                    self.move_question(question, SuspensionStatus::Applied, place);
                }
                closed.question = question;
            }
            AuditFact::Ended { attempt, ended, is_final } => {
                let key = key(attempt);
                closed.execution = is_final.then(|| key.clone());
                let new = ExecutionFacts { place, began: None, ended: None };
                let execution = self.executions.entry(key).or_insert(new);
                (execution.place, execution.ended) = (place, Some(ended));
            }
        }
        closed
    }

    fn move_question(&mut self, id: &str, status: SuspensionStatus, place: LastRow) -> &mut QuestionFacts {
        if !self.questions.contains_key(id) {
            self.questions.insert(id.to_owned(), QuestionFacts { place, asked: None, status, answer: None });
        }
        let question = self.questions.get_mut(id).expect("it was just added");
        (question.place, question.status) = (place, status);
        question
    }
}

/// A row of the table of questions. What cannot be read is missing.
pub(super) struct QuestionRow<'a> {
    pub(super) n: i64,
    pub(super) thread: Cow<'a, str>,
    pub(super) id: Cow<'a, str>,
    pub(super) status: Cow<'a, str>,
    pub(super) asked: Option<u128>,
    pub(super) answer: Option<u128>,
    pub(super) is_readable: bool,
}

/// A row of the table of executions. What cannot be read is missing.
pub(super) struct ExecutionRow<'a> {
    pub(super) n: i64,
    pub(super) thread: Cow<'a, str>,
    pub(super) run: Cow<'a, str>,
    pub(super) call: Cow<'a, str>,
    pub(super) attempt: u64,
    pub(super) began: Option<u128>,
    pub(super) ended: Option<u128>,
    pub(super) is_readable: bool,
}

type Raw<'a> = Option<&'a RawValue>;

macro_rules! members {
    ($($name:ident),*) => {
        /// The members that any of the rows has, as their texts.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Members<'a> {
            $(#[serde(borrow)] $name: Raw<'a>,)*
        }
    };
}

members!(
    suspension,
    pending,
    action,
    name,
    tool,
    arguments,
    expires_at,
    decision,
    decision_id,
    result,
    reason,
    actor,
    attempt,
    hash,
    class,
    kind,
    outcome
);

fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(text).map_err(|_| Unreadable)
}

fn parse_member<'a, T: Deserialize<'a>>(member: Raw<'a>) -> Result<T, Unreadable> {
    parse(member.ok_or(Unreadable)?.get().as_bytes())
}

/// Reads rows into hashes.
#[derive(Clone)]
pub(super) struct FactReader {
    keys: [RandomState; 2],
    /// Whether what says the same in another way is equal; otherwise the texts of members are compared.
    by_value: bool,
}

impl FactReader {
    pub(super) fn new(by_value: bool) -> Self {
        Self { keys: [RandomState::new(), RandomState::new()], by_value }
    }

    pub(super) fn hash(&self, facts: &impl Hash) -> u128 {
        let [high, low] = self.keys.each_ref().map(|key| u128::from(key.hash_one(facts)));
        (high << 64) | low
    }

    /// Hashes members of a row; one that is absent is null.
    fn members<const N: usize>(&self, members: [Raw<'_>; N]) -> u128 {
        self.hash(&members.map(|member| {
            let text = member.map_or("null", RawValue::get);
            let value = self.by_value.then(|| serde_json::from_str::<Value>(text));
            if let Some(Ok(value)) = value { Cow::Owned(value.to_string()) } else { Cow::Borrowed(text) }
        }))
    }

    /// What the ticket of a question says, in the table.
    fn ticket(&self, text: &[u8]) -> Result<u128, Unreadable> {
        let ticket: Members<'_> = parse(text)?;
        let question: Members<'_> = parse_member(ticket.suspension)?;
        let call: Members<'_> = parse_member(ticket.pending)?;
        Ok(self.members([question.action, call.name, call.arguments, question.expires_at]))
    }

    fn answer(&self, row: &Members<'_>, decision: Raw<'_>, actor: Raw<'_>) -> u128 {
        self.members([decision, row.action, row.result, row.reason, row.arguments, actor])
    }

    fn began(&self, row: &Members<'_>) -> u128 {
        self.members([row.tool, row.arguments, row.hash, row.class])
    }

    fn ended(&self, row: &Members<'_>) -> u128 {
        self.members([row.kind, row.outcome])
    }

    /// What a row about a conversation says of questions and executions.
    pub(super) fn fact(&self, kind: AuditKind, link: &Link) -> Result<Option<AuditFact>, Unreadable> {
        let read = || parse::<Members<'_>>(link.body.as_bytes());
        let closed = |status| Ok(AuditFact::Closed { question: parse_member(read()?.suspension)?, status });
        Ok(Some(match kind {
            AuditKind::Deleted => AuditFact::Deleted,
            AuditKind::Asked => {
                let row = read()?;
                let asked = self.members([row.action, row.tool, row.arguments, row.expires_at]);
                AuditFact::Asked { question: parse_member(row.suspension)?, asked }
            }
            AuditKind::Decided => {
                let row = read()?;
                let answer = self.answer(&row, row.decision, row.actor);
                AuditFact::Decided { question: parse_member(row.suspension)?, answer }
            }
            AuditKind::Expired => closed(SuspensionStatus::Expired)?,
            AuditKind::Superseded => closed(SuspensionStatus::Superseded)?,
            AuditKind::Applied => closed(SuspensionStatus::Applied)?,
            AuditKind::Began => {
                let row = read()?;
                let question = row.suspension.map(|id| parse_member(Some(id))).transpose()?;
                AuditFact::Began { attempt: parse_member(row.attempt)?, began: self.began(&row), question }
            }
            AuditKind::Ended => {
                let row = read()?;
                let attempt = row.attempt.map_or(Ok(0), |attempt| parse_member(Some(attempt)))?;
                let is_final = row.kind.is_none_or(|kind| kind.get() != "\"unknown\"");
                AuditFact::Ended { attempt, ended: self.ended(&row), is_final }
            }
            AuditKind::Judged
            | AuditKind::Hook
            | AuditKind::Granted
            | AuditKind::Revoked
            | AuditKind::Spent
            | AuditKind::Lapsed
            | AuditKind::Configured
            | AuditKind::Other => return Ok(None),
        }))
    }

    /// Hands over the rows of the table of questions.
    pub(super) fn each_question(
        &self,
        conn: &Connection,
        mut receive: impl FnMut(&QuestionRow<'_>),
    ) -> Result<(), SqlFailure> {
        let mut statement = conn.prepare_cached(
            "SELECT n, thread_id, id, status, ticket, decision, decided_by FROM suspension ORDER BY n",
        )?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let asked = self.ticket(body(row, 4)?);
            let answer = match (body_or_null(row, 5)?, body_or_null(row, 6)?) {
                (Some(decision), Some(actor)) => parse::<Members<'_>>(decision)
                    .and_then(|row| Ok(Some(self.answer(&row, row.decision_id, Some(parse(actor)?))))),
                _ => Ok(None),
            };
            receive(&QuestionRow {
                n: row.get(0)?,
                thread: word(row, 1)?,
                id: word(row, 2)?,
                status: word(row, 3)?,
                is_readable: asked.is_ok() && answer.is_ok(),
                asked: asked.ok(),
                answer: answer.ok().flatten(),
            });
        }
        Ok(())
    }

    /// Hands over the rows of the table of executions.
    pub(super) fn each_execution(
        &self,
        conn: &Connection,
        mut receive: impl FnMut(&ExecutionRow<'_>),
    ) -> Result<(), SqlFailure> {
        let mut statement = conn.prepare_cached(
            "SELECT n, thread_id, run_id, call_id, attempt, body, outcome FROM intent ORDER BY n",
        )?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let began = parse::<Members<'_>>(body(row, 5)?).map(|row| self.began(&row));
            let ended = body_or_null(row, 6)?.map(|text| parse(text).map(|row| self.ended(&row))).transpose();
            receive(&ExecutionRow {
                n: row.get(0)?,
                thread: word(row, 1)?,
                run: word(row, 2)?,
                call: word(row, 3)?,
                attempt: u64::try_from(row.get::<_, i64>(4)?).unwrap_or_default(),
                is_readable: began.is_ok() && ended.is_ok(),
                began: began.ok(),
                ended: ended.ok().flatten(),
            });
        }
        Ok(())
    }

    /// One number for all that is said of a question.
    pub(super) fn question_sum(&self, id: &str, facts: &QuestionFacts) -> u128 {
        self.hash(&("question", id, facts.asked, suspension_status(facts.status), facts.answer))
    }

    /// The same of a row of the table.
    pub(super) fn question_row_sum(&self, row: &QuestionRow<'_>) -> u128 {
        self.hash(&("question", &*row.id, row.asked, &*row.status, row.answer))
    }

    /// One number for all that is said of an execution.
    pub(super) fn execution_sum(
        &self,
        id: (&str, &str, u64),
        began: Option<u128>,
        ended: Option<u128>,
    ) -> u128 {
        self.hash(&("execution", id, began, ended))
    }
}

/// A text column without a copy.
fn word<'a>(row: &'a Row<'_>, at: usize) -> Result<Cow<'a, str>, SqlFailure> {
    Ok(String::from_utf8_lossy(body(row, at)?))
}
