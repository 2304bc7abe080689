//! Whether the audit agrees with the tables, in little memory: what each says of questions and executions is added up by
//! conversation, and an item that is closed is forgotten. Only if the sums differ, the items are compared one by one (see
//! `cross_check`), which finds out what differs.

use std::collections::HashMap;

use rusqlite::Connection;

use super::chain::Link;
use super::facts::{AuditFact, ClosedItems, ExecutionFacts, ExecutionId, FactReader, ThreadFacts};
use crate::SqlFailure;
use aye_core::contract::audit::AuditKind;

/// What the tables say, added up for each conversation.
pub(super) struct TableSums(HashMap<String, u128>);

/// What the audit says, added up.
pub(super) struct Sums {
    reader: FactReader,
    threads: HashMap<String, ThreadSum>,
    /// Whether every row could be read.
    is_readable: bool,
}

/// What is said about a conversation.
#[derive(Default)]
struct ThreadSum {
    /// The sum over closed items.
    closed: u128,
    open: ThreadFacts,
}

fn execution_sum(reader: &FactReader, (run, call, attempt): &ExecutionId, facts: &ExecutionFacts) -> u128 {
    reader.execution_sum((run, call, *attempt), facts.began, facts.ended)
}

impl Sums {
    pub(super) fn new() -> Self {
        Self { reader: FactReader::new(false), threads: HashMap::new(), is_readable: true }
    }

    /// Reads with the keys with which the tables have to be added up.
    pub(super) fn reader(&self) -> FactReader {
        self.reader.clone()
    }

    /// Takes the next row of the audit.
    pub(super) fn take(&mut self, kind: AuditKind, link: &Link) {
        let [Some(thread), ..] = &link.about else { return };
        let fact = match self.reader.fact(kind, link) {
            Ok(Some(fact)) => fact,
            Ok(None) => return,
            Err(_) => {
                self.is_readable = false;
                return;
            }
        };
        if matches!(fact, AuditFact::Deleted) {
            self.threads.remove(thread);
            return;
        }
        if !self.threads.contains_key(thread) {
            self.threads.insert(thread.clone(), ThreadSum::default());
        }
        let ThreadSum { closed, open } = self.threads.get_mut(thread).expect("it was just added");
        let ClosedItems { question, execution } = open.apply(fact, link);
        if let Some((id, facts)) = question.and_then(|id| open.questions.remove_entry(&id)) {
            *closed = closed.wrapping_add(self.reader.question_sum(&id, &facts));
        }
        if let Some((id, facts)) = execution.and_then(|id| open.executions.remove_entry(&id)) {
            *closed = closed.wrapping_add(execution_sum(&self.reader, &id, &facts));
        }
    }

    /// The number of items that are kept because they are not closed.
    #[cfg(test)]
    pub(super) fn open_items(&self) -> usize {
        let open = self.threads.values().map(|thread| &thread.open);
        open.map(|open| open.questions.len() + open.executions.len()).sum()
    }

    /// Whether the tables say the same.
    pub(super) fn agree(self, tables: Option<TableSums>) -> bool {
        let (Some(TableSums(mut tables)), Self { reader, threads, is_readable }) = (tables, self) else {
            return false;
        };
        for (id, ThreadSum { closed, open }) in threads {
            let questions = open.questions.iter().map(|(id, facts)| reader.question_sum(id, facts));
            let executions = open.executions.iter().map(|(id, facts)| execution_sum(&reader, id, facts));
            let sum = questions.chain(executions).fold(closed, u128::wrapping_add);
            if tables.remove(&id).unwrap_or_default() != sum {
                return false;
            }
        }
        is_readable && tables.values().all(|sum| *sum == 0)
    }
}

impl TableSums {
    /// Adds up what the tables say; `None` if a row cannot be read.
    pub(super) fn read(reader: &FactReader, conn: &Connection) -> Result<Option<Self>, SqlFailure> {
        let (mut sums, mut is_readable) = (Self(HashMap::new()), true);
        reader.each_question(conn, |row| {
            is_readable &= row.is_readable;
            sums.add(&row.thread, reader.question_row_sum(row));
        })?;
        reader.each_execution(conn, |row| {
            is_readable &= row.is_readable;
            let id = (&*row.run, &*row.call, row.attempt);
            sums.add(&row.thread, reader.execution_sum(id, row.began, row.ended));
        })?;
        Ok(is_readable.then_some(sums))
    }

    fn add(&mut self, thread: &str, sum: u128) {
        if let Some(of_thread) = self.0.get_mut(thread) {
            *of_thread = of_thread.wrapping_add(sum);
        } else {
            self.0.insert(thread.to_owned(), sum);
        }
    }
}
