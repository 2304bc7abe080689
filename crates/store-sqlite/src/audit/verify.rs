//! Verifies the whole audit in one transaction: the chain, the lists of rules, the tables beside it.

use std::collections::HashMap;
use std::sync::mpsc::{channel, sync_channel};

use rusqlite::{Connection, OptionalExtension, Row};
use serde::Deserialize;

use super::chain::{Chain, ChainedTable, Link};
use super::cross_check::ExpectedState;
use super::sums::{Sums, TableSums};
use crate::rows::{body, body_or_null, text};
use crate::{SqlFailure, Store, StoreError};
use aye_core::contract::audit::{AuditFault, AuditFaultKind, AuditKind, AuditReport};
use aye_core::contract::digest::sha256_hex;

impl Store {
    /// Checks every row of the audit: whether each follows from the previous one, whether the last row is the
    /// latest that was written, whether the lists of rules are unchanged, and whether the questions,
    /// executions and grants in their tables match the audit.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails. Faults in the audit are in the report.
    pub async fn verify_audit(&self) -> Result<AuditReport, StoreError> {
        self.read(verify).await
    }

    /// Returns the hashes that these rows have now, by chain and number. The one chain here has no name.
    pub(crate) async fn audit_hashes(
        &self,
        rows: Vec<(String, u64)>,
    ) -> Result<Vec<Option<String>>, StoreError> {
        self.read(move |conn| {
            let hash = |(chain, n): &(String, u64)| match i64::try_from(*n) {
                Ok(n) if chain.is_empty() && n > 0 => Rows(conn).hash_at(n),
                _ => Ok(None),
            };
            rows.iter().map(hash).collect()
        })
        .await
    }
}

const ROWS: &str = "SELECT n, at, kind, thread_id, run_id, call_id, body, hash FROM audit ORDER BY n";

/// The part of a judged row that refers to the rules.
#[derive(Deserialize)]
struct JudgedRow {
    judgement: Tried,
}

#[derive(Deserialize)]
struct Tried {
    tried: String,
}

/// The state of a list of rules: whether it exists, is unchanged, and was named by a row.
struct List {
    is_there: bool,
    is_right: bool,
    is_named: bool,
}

/// The rows that are handed over at once.
const BATCH: usize = 512;

/// What is known of the audit after some of its rows.
struct Verification {
    report: AuditReport,
    lists: HashMap<String, List>,
    chain: Chain,
    expected: ExpectedState,
    sums: Sums,
    faults: Vec<AuditFault>,
}

impl Verification {
    fn new(conn: &Connection) -> Result<Self, SqlFailure> {
        let lists = rules(conn)?;
        let head = conn
            .prepare_cached("SELECT n, hash FROM audit_head")?
            .query_row((), |row| Ok((row.get(0)?, text(row, 1)?)))
            .optional()?;
        Ok(Self {
            report: AuditReport { rules: lists.len() as u64, ..AuditReport::default() },
            lists,
            chain: Chain::new(head),
            expected: ExpectedState::new(conn)?,
            sums: Sums::new(),
            faults: Vec::new(),
        })
    }

    /// Takes the next row.
    fn take(&mut self, link: &Link) -> Result<(), SqlFailure> {
        let Self { report, lists, chain, expected, sums, faults } = self;
        let at = u64::try_from(link.at).ok();
        report.rows += 1;
        report.first_at = report.first_at.or(at);
        report.last_at = at.or(report.last_at);
        let kind = AuditKind::parse(&link.kind).unwrap_or(AuditKind::Other);
        if kind == AuditKind::Judged
            && let Ok(judged) = serde_json::from_str::<JudgedRow>(&link.body)
        {
            let hash = judged.judgement.tried;
            let list = lists.entry(hash).or_insert_with_key(|hash| {
                let what = format!("its list of rules {hash} is missing");
                faults.push(rules_fault(Some(link.n), at, what));
                List { is_there: false, is_right: true, is_named: true }
            });
            if !list.is_named && !list.is_right {
                faults.push(rules_fault(Some(link.n), at, "its list of rules was changed".to_owned()));
            }
            list.is_named = true;
        }
        sums.take(kind, link);
        if link.about[0].is_none() {
            expected.take(kind, link);
        }
        chain.step(link)
    }

    /// Compares the audit with the tables beside it. `tables` has their sums, `None` if a row cannot be read.
    fn end(self, tables: Option<TableSums>, conn: &Connection) -> Result<AuditReport, SqlFailure> {
        let Self { mut report, lists, chain, expected, sums, mut faults } = self;
        for (hash, _) in lists.iter().filter(|(_, list)| list.is_there && !list.is_named) {
            let what = format!("the list of rules {hash} was inserted or changed: no row refers to it");
            faults.push(rules_fault(None, None, what));
        }
        let (mut found, unlisted) = chain.end(&Rows(conn))?;
        found.append(&mut faults);
        let agrees = expected.is_complete() && sums.agree(tables);
        let (mut differences, more) = if agrees { expected.end_grants(conn)? } else { differences(conn)? };
        found.append(&mut differences);
        (report.faults, report.unlisted) = (found, unlisted + more);
        report.chains = u64::from(report.rows > 0);
        Ok(report)
    }
}

fn rules_fault(n: Option<i64>, at: Option<u64>, what: String) -> AuditFault {
    AuditFault { kind: AuditFaultKind::Rules, chain: String::new(), n, last: None, at, what }
}

/// Reads the rows and the tables on this thread and checks the rows on another. Rows that were checked come back to be filled
/// again: text that one thread allocates and the other frees costs more than the second thread saves.
fn verify(conn: &Connection) -> Result<AuditReport, SqlFailure> {
    let mut verification = Verification::new(conn)?;
    let reader = verification.sums.reader();
    let tables = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Vec<Link>>(4);
        let (returner, returned) = channel::<Vec<Link>>();
        let known = &mut verification;
        let checker = std::thread::Builder::new().name("audit".to_owned()).spawn_scoped(scope, move || {
            receiver.into_iter().try_for_each(|batch| {
                batch.iter().try_for_each(|link| known.take(link))?;
                // The reader needs no more of them once it has read the last row.
                drop(returner.send(batch));
                Ok(())
            })
        });
        let Ok(checker) = checker else { return Ok(None) };
        let read = read_rows(conn, |batch| {
            Ok(sender.send(batch).ok().map(|()| returned.try_recv().unwrap_or_default()))
        });
        drop(sender);
        let tables = read.and_then(|()| TableSums::read(&reader, conn));
        let checked: Result<(), SqlFailure> =
            checker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        checked.and(tables.map(Some))
    })?;
    let tables = if let Some(tables) = tables {
        tables
    } else {
        // Where no thread can be had.
        read_rows(conn, |batch| {
            batch.iter().try_for_each(|link| verification.take(link)).map(|()| Some(batch))
        })?;
        TableSums::read(&reader, conn)?
    };
    verification.end(tables, conn)
}

/// Hands over all rows in their order. `take` gives back rows to fill, or `None` to end.
fn read_rows(
    conn: &Connection,
    mut take: impl FnMut(Vec<Link>) -> Result<Option<Vec<Link>>, SqlFailure>,
) -> Result<(), SqlFailure> {
    let mut statement = conn.prepare_cached(ROWS)?;
    let mut rows = statement.query(())?;
    let mut batch = Vec::new();
    loop {
        batch.resize_with(BATCH, Link::default);
        let mut filled = 0;
        for link in &mut batch {
            let Some(row) = rows.next()? else { break };
            fill(link, row)?;
            filled += 1;
        }
        batch.truncate(filled);
        let is_last = filled < BATCH;
        let Some(next) = take(batch)?.filter(|_| !is_last) else { return Ok(()) };
        batch = next;
    }
}

/// Compares what the audit says with the tables, item by item.
pub(crate) fn differences(conn: &Connection) -> Result<(Vec<AuditFault>, u64), SqlFailure> {
    let mut expected = ExpectedState::new(conn)?;
    let mut statement = conn.prepare_cached(ROWS)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let link = link_of(row)?;
        expected.take(AuditKind::parse(&link.kind).unwrap_or(AuditKind::Other), &link);
    }
    expected.end(conn)
}

fn rules(conn: &Connection) -> Result<HashMap<String, List>, SqlFailure> {
    let mut statement = conn.prepare_cached("SELECT hash, body FROM audit_rules")?;
    let mut rows = statement.query(())?;
    let mut lists = HashMap::new();
    while let Some(row) = rows.next()? {
        let hash = text(row, 0)?;
        let is_right = sha256_hex(body(row, 1)?) == hash;
        lists.insert(hash, List { is_there: true, is_right, is_named: false });
    }
    Ok(lists)
}

fn link_of(row: &Row<'_>) -> Result<Link, SqlFailure> {
    let mut link = Link::default();
    fill(&mut link, row)?;
    Ok(link)
}

/// Puts a row in the place of what was in `link`, whose memory it uses.
fn fill(link: &mut Link, row: &Row<'_>) -> Result<(), SqlFailure> {
    fn set(text: &mut String, bytes: &[u8]) {
        text.clear();
        text.push_str(&String::from_utf8_lossy(bytes));
    }
    (link.n, link.at) = (row.get(0)?, row.get(1)?);
    set(&mut link.kind, body(row, 2)?);
    for (text, at) in link.about.iter_mut().zip(3..) {
        match body_or_null(row, at)? {
            Some(bytes) => set(text.get_or_insert_default(), bytes),
            None => *text = None,
        }
    }
    set(&mut link.body, body(row, 6)?);
    set(&mut link.hash, body(row, 7)?);
    Ok(())
}

/// Whether the quick comparison is enough, and the number of items that it kept to the end.
#[cfg(test)]
pub(crate) fn is_quick(conn: &Connection) -> Result<(bool, usize), SqlFailure> {
    let mut sums = Sums::new();
    let mut statement = conn.prepare_cached(ROWS)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let link = link_of(row)?;
        sums.take(AuditKind::parse(&link.kind).unwrap_or(AuditKind::Other), &link);
    }
    let kept = sums.open_items();
    let tables = TableSums::read(&sums.reader(), conn)?;
    Ok((sums.agree(tables), kept))
}

struct Rows<'a>(&'a Connection);

impl ChainedTable for Rows<'_> {
    fn hash_at(&self, n: i64) -> Result<Option<String>, SqlFailure> {
        if n == 0 {
            return Ok(Some(String::new()));
        }
        let mut statement = self.0.prepare_cached("SELECT hash FROM audit WHERE n = ?1")?;
        Ok(statement.query_row((n,), |row| text(row, 0)).optional()?)
    }

    fn row_with_hash(&self, hash: &str, n: i64) -> Result<Option<i64>, SqlFailure> {
        let mut statement =
            self.0.prepare_cached("SELECT n FROM audit WHERE hash = ?1 AND n <> ?2 LIMIT 1")?;
        Ok(statement.query_row((hash, n), |row| row.get(0)).optional()?)
    }
}
