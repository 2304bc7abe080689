//! Whether the audit agrees with the tables, in little memory: what each says of questions and executions is added up by
//! conversation, and an item that is closed is forgotten. Only if the sums differ, the items are compared one by one (see
//! `cross_check`), which finds out what differs.
//!
//! The numbers that are added are hashes with keys of this process: nobody can change a table so that its sum stays.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};

use rusqlite::{Connection, Row};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::chain::Link;
use crate::SqlFailure;
use crate::rows::{body, body_or_null, suspension_status};
use aye_core::contract::audit::AuditKind;
use aye_core::contract::record::SuspensionStatus;

/// The keys of the hashes that are added.
#[derive(Clone)]
pub(super) struct Keys([RandomState; 2]);

/// What the tables say, added up for each conversation.
pub(super) struct TableSums(HashMap<String, u128>);

/// What the audit says, added up.
pub(super) struct Sums {
    keys: Keys,
    threads: HashMap<String, ThreadSum>,
    /// Whether every row could be read.
    is_readable: bool,
}

/// What is said about a conversation.
#[derive(Default)]
struct ThreadSum {
    /// The sum over closed items.
    closed: u128,
    questions: HashMap<String, OpenQuestion>,
    executions: HashMap<(String, String, u64), OpenExecution>,
}

struct OpenQuestion {
    asked: Option<u128>,
    status: SuspensionStatus,
    answer: Option<u128>,
}

#[derive(Default)]
struct OpenExecution {
    began: Option<u128>,
    ended: Option<u128>,
}

type Raw<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct Asked<'a> {
    suspension: String,
    #[serde(borrow)]
    action: &'a RawValue,
    #[serde(borrow)]
    tool: &'a RawValue,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow, default)]
    expires_at: Raw<'a>,
}

#[derive(Deserialize)]
struct Ticket<'a> {
    #[serde(borrow)]
    suspension: TicketQuestion<'a>,
    #[serde(borrow)]
    pending: TicketCall<'a>,
}

#[derive(Deserialize)]
struct TicketQuestion<'a> {
    #[serde(borrow)]
    action: &'a RawValue,
    #[serde(borrow, default)]
    expires_at: Raw<'a>,
}

#[derive(Deserialize)]
struct TicketCall<'a> {
    #[serde(borrow)]
    name: &'a RawValue,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

#[derive(Deserialize)]
struct Decided<'a> {
    suspension: String,
    #[serde(borrow)]
    decision: &'a RawValue,
    #[serde(borrow)]
    actor: &'a RawValue,
    #[serde(borrow)]
    action: &'a RawValue,
    #[serde(borrow, default)]
    result: Raw<'a>,
    #[serde(borrow, default)]
    reason: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
}

#[derive(Deserialize)]
struct Resume<'a> {
    #[serde(borrow)]
    decision_id: &'a RawValue,
    #[serde(borrow)]
    action: &'a RawValue,
    #[serde(borrow, default)]
    result: Raw<'a>,
    #[serde(borrow, default)]
    reason: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
}

#[derive(Deserialize)]
struct ClosedQuestion {
    suspension: String,
}

#[derive(Deserialize)]
struct Began<'a> {
    attempt: u64,
    suspension: Option<String>,
    #[serde(borrow)]
    tool: &'a RawValue,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow)]
    hash: &'a RawValue,
    #[serde(borrow)]
    class: &'a RawValue,
}

#[derive(Deserialize)]
struct Intent<'a> {
    #[serde(borrow)]
    tool: &'a RawValue,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow)]
    hash: &'a RawValue,
    #[serde(borrow)]
    class: &'a RawValue,
}

#[derive(Deserialize)]
struct Ended<'a> {
    #[serde(default)]
    attempt: u64,
    #[serde(borrow)]
    kind: &'a RawValue,
    #[serde(borrow)]
    outcome: &'a RawValue,
}

/// A member as its text; one that is absent is null.
fn given(raw: Raw<'_>) -> &str {
    raw.map_or("null", RawValue::get)
}

impl Keys {
    fn hash(&self, facts: &impl Hash) -> u128 {
        let [high, low] = self.0.each_ref().map(|key| u128::from(key.hash_one(facts)));
        (high << 64) | low
    }

    fn question(&self, id: &str, facts: &OpenQuestion) -> u128 {
        self.hash(&("question", id, facts.asked, suspension_status(facts.status), facts.answer))
    }

    fn execution(&self, (run, call, attempt): (&str, &str, u64), facts: &OpenExecution) -> u128 {
        self.hash(&("execution", run, call, attempt, facts.began, facts.ended))
    }
}

impl Sums {
    pub(super) fn new() -> Self {
        let keys = Keys([RandomState::new(), RandomState::new()]);
        Self { keys, threads: HashMap::new(), is_readable: true }
    }

    /// The keys with which the tables have to be added up.
    pub(super) fn keys(&self) -> Keys {
        self.keys.clone()
    }

    fn read<'a, T: Deserialize<'a>>(&mut self, text: &'a [u8]) -> Option<T> {
        let read = serde_json::from_slice(text).ok();
        self.is_readable &= read.is_some();
        read
    }

    /// Takes the next row of the audit.
    pub(super) fn take(&mut self, kind: AuditKind, link: &Link) {
        let [Some(thread), run, call] = &link.about else { return };
        let text = link.body.as_bytes();
        match kind {
            AuditKind::Deleted => drop(self.threads.remove(thread)),
            AuditKind::Asked => {
                let Some(row) = self.read::<Asked<'_>>(text) else { return };
                let expires_at = given(row.expires_at);
                let asked = (row.action.get(), row.tool.get(), row.arguments.get(), expires_at);
                let asked = Some(self.keys.hash(&asked));
                let new = OpenQuestion { asked, status: SuspensionStatus::Open, answer: None };
                self.thread(thread).questions.insert(row.suspension, new);
            }
            AuditKind::Decided => {
                let Some(row) = self.read::<Decided<'_>>(text) else { return };
                let [result, reason, arguments] = [row.result, row.reason, row.arguments].map(given);
                let answer =
                    (row.decision.get(), row.action.get(), result, reason, arguments, row.actor.get());
                let answer = Some(self.keys.hash(&answer));
                let question = self.open_question(thread, row.suspension);
                (question.status, question.answer) = (SuspensionStatus::Decided, answer);
            }
            AuditKind::Expired => self.close(thread, text, SuspensionStatus::Expired),
            AuditKind::Superseded => self.close(thread, text, SuspensionStatus::Superseded),
            AuditKind::Applied => self.close(thread, text, SuspensionStatus::Applied),
            AuditKind::Began => {
                let Some(row) = self.read::<Began<'_>>(text) else { return };
                let began = (row.tool.get(), row.arguments.get(), row.hash.get(), row.class.get());
                let began = Some(self.keys.hash(&began));
                let key = (run.clone().unwrap_or_default(), call.clone().unwrap_or_default(), row.attempt);
                self.thread(thread).executions.insert(key, OpenExecution { began, ended: None });
                if let Some(id) = row.suspension {
                    self.close_question(thread, &id, SuspensionStatus::Applied);
                }
            }
            AuditKind::Ended => {
                let Some(row) = self.read::<Ended<'_>>(text) else { return };
                // What became of it may still be found out.
                let is_final = row.kind.get() != "\"unknown\"";
                let ended = Some(self.keys.hash(&(row.kind.get(), row.outcome.get())));
                let key = (run.clone().unwrap_or_default(), call.clone().unwrap_or_default(), row.attempt);
                let mut execution = self.thread(thread).executions.remove(&key).unwrap_or_default();
                execution.ended = ended;
                if is_final {
                    let sum = self.keys.execution((&key.0, &key.1, key.2), &execution);
                    let thread = self.thread(thread);
                    thread.closed = thread.closed.wrapping_add(sum);
                } else {
                    self.thread(thread).executions.insert(key, execution);
                }
            }
            AuditKind::Judged
            | AuditKind::Hook
            | AuditKind::Granted
            | AuditKind::Revoked
            | AuditKind::Spent
            | AuditKind::Lapsed
            | AuditKind::Configured
            | AuditKind::Other => {}
        }
    }

    fn thread(&mut self, id: &str) -> &mut ThreadSum {
        if !self.threads.contains_key(id) {
            self.threads.insert(id.to_owned(), ThreadSum::default());
        }
        self.threads.get_mut(id).expect("it was just added")
    }

    fn open_question(&mut self, thread: &str, id: String) -> &mut OpenQuestion {
        let new = OpenQuestion { asked: None, status: SuspensionStatus::Open, answer: None };
        self.thread(thread).questions.entry(id).or_insert(new)
    }

    fn close(&mut self, thread: &str, text: &[u8], status: SuspensionStatus) {
        if let Some(ClosedQuestion { suspension }) = self.read(text) {
            self.close_question(thread, &suspension, status);
        }
    }

    fn close_question(&mut self, thread: &str, id: &str, status: SuspensionStatus) {
        let known = self.thread(thread).questions.remove(id);
        let (asked, answer) = known.map_or((None, None), |known| (known.asked, known.answer));
        let sum = self.keys.question(id, &OpenQuestion { asked, status, answer });
        let thread = self.thread(thread);
        thread.closed = thread.closed.wrapping_add(sum);
    }

    /// The number of items that are kept because they are not closed.
    #[cfg(test)]
    pub(super) fn open_items(&self) -> usize {
        self.threads.values().map(|thread| thread.questions.len() + thread.executions.len()).sum()
    }

    /// Whether the tables say the same.
    pub(super) fn agree(mut self, tables: Option<TableSums>) -> bool {
        let Some(TableSums(mut tables)) = tables else { return false };
        let keys = self.keys.clone();
        for (id, thread) in std::mem::take(&mut self.threads) {
            let questions = thread.questions.iter().map(|(id, facts)| keys.question(id, facts));
            let executions = thread
                .executions
                .iter()
                .map(|((run, call, attempt), facts)| keys.execution((run, call, *attempt), facts));
            let sum = questions.chain(executions).fold(thread.closed, u128::wrapping_add);
            if tables.remove(&id).unwrap_or_default() != sum {
                return false;
            }
        }
        self.is_readable && tables.values().all(|sum| *sum == 0)
    }
}

impl TableSums {
    /// Adds up what the tables say; `None` if a row cannot be read.
    pub(super) fn read(keys: &Keys, conn: &Connection) -> Result<Option<Self>, SqlFailure> {
        let mut sums = Self(HashMap::new());
        let is_readable = sums.add_questions(keys, conn)? && sums.add_executions(keys, conn)?;
        Ok(is_readable.then_some(sums))
    }

    fn add(&mut self, thread: Cow<'_, str>, sum: u128) {
        if let Some(of_thread) = self.0.get_mut(thread.as_ref()) {
            *of_thread = of_thread.wrapping_add(sum);
        } else {
            self.0.insert(thread.into_owned(), sum);
        }
    }

    fn add_questions(&mut self, keys: &Keys, conn: &Connection) -> Result<bool, SqlFailure> {
        let mut statement = conn
            .prepare_cached("SELECT thread_id, id, status, ticket, decision, decided_by FROM suspension")?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let Ok(ticket) = serde_json::from_slice::<Ticket<'_>>(body(row, 3)?) else { return Ok(false) };
            let Ticket { suspension: question, pending } = ticket;
            let expires_at = given(question.expires_at);
            let asked = (question.action.get(), pending.name.get(), pending.arguments.get(), expires_at);
            let asked = Some(keys.hash(&asked));
            let answer = match (body_or_null(row, 4)?, body_or_null(row, 5)?) {
                (Some(decision), Some(actor)) => {
                    let Ok(row) = serde_json::from_slice::<Resume<'_>>(decision) else { return Ok(false) };
                    let Ok(actor) = std::str::from_utf8(actor) else { return Ok(false) };
                    let [result, reason, arguments] = [row.result, row.reason, row.arguments].map(given);
                    let answer = (row.decision_id.get(), row.action.get(), result, reason, arguments, actor);
                    Some(keys.hash(&answer))
                }
                _ => None,
            };
            let facts = ("question", word(row, 1)?, asked, word(row, 2)?, answer);
            self.add(word(row, 0)?, keys.hash(&facts));
        }
        Ok(true)
    }

    fn add_executions(&mut self, keys: &Keys, conn: &Connection) -> Result<bool, SqlFailure> {
        let mut statement =
            conn.prepare_cached("SELECT thread_id, run_id, call_id, attempt, body, outcome FROM intent")?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let Ok(intent) = serde_json::from_slice::<Intent<'_>>(body(row, 4)?) else { return Ok(false) };
            let began = (intent.tool.get(), intent.arguments.get(), intent.hash.get(), intent.class.get());
            let began = Some(keys.hash(&began));
            let ended = match body_or_null(row, 5)? {
                Some(outcome) => {
                    let Ok(outcome) = serde_json::from_slice::<Ended<'_>>(outcome) else { return Ok(false) };
                    Some(keys.hash(&(outcome.kind.get(), outcome.outcome.get())))
                }
                None => None,
            };
            let attempt = u64::try_from(row.get::<_, i64>(3)?).unwrap_or_default();
            let (run, call) = (word(row, 1)?, word(row, 2)?);
            let sum = keys.execution((&run, &call, attempt), &OpenExecution { began, ended });
            self.add(word(row, 0)?, sum);
        }
        Ok(true)
    }
}

/// A text column without a copy.
fn word<'a>(row: &'a Row<'_>, at: usize) -> Result<Cow<'a, str>, SqlFailure> {
    Ok(String::from_utf8_lossy(body(row, at)?))
}
