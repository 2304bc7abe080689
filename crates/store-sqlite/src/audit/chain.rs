//! The audit chain: which rows do not follow from the row before, and how they were changed.
//!
//! A row's hash covers the hash of the row before, its own number and its content. So a changed row does not match,
//! and trying numbers and predecessors shows what was done. One change cannot be detected: rewriting a row, every row
//! after it and the end mark. Write access to the file is enough for that; a copy of the last hash kept elsewhere
//! detects it.

use crate::{SqlFailure, StoreError};
use aye_core::contract::audit::{AuditFault, AuditFaultKind as Kind};
use aye_core::contract::audit_entry::Covered;

/// Maximum number of mismatching rows kept for examination; a longer list would not be read.
const KEPT: usize = 256;
/// Maximum number of mismatching rows for which every position is tried.
const TRIED: usize = 24;

/// A row as stored in the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) n: i64,
    pub(super) at: i64,
    pub(super) kind: String,
    pub(super) about: [Option<String>; 3],
    pub(super) body: String,
    pub(super) hash: String,
}

impl Link {
    /// Returns the hash that the row would have with this number, after the previous row.
    fn hash_as(&self, n: i64, previous: &str) -> Result<String, SqlFailure> {
        let about = [0, 1, 2].map(|at| self.about[at].as_deref());
        Covered { n, at: self.at, kind: &self.kind, about, body: &self.body }
            .hash(previous)
            .map_err(unwritable)
    }

    fn fits(&self, n: i64, previous: &str) -> Result<bool, SqlFailure> {
        Ok(self.hash_as(n, previous)? == self.hash)
    }
}

pub(super) fn unwritable(error: serde_json::Error) -> SqlFailure {
    SqlFailure(StoreError::Unwritable { what: "a row of the audit", why: error.to_string() })
}

/// A row that does not fit.
#[derive(Debug)]
struct Bad {
    link: Link,
    /// The hash that the row should have in its position.
    should: String,
    /// The row before it is missing.
    after_gap: bool,
    /// Whether the next row fits after this one.
    followed: bool,
    /// Whether the next row fits after the hash that this one should have.
    hash_changed: bool,
}

/// From row `n` on, numbers are that much larger than they were written.
#[derive(Clone, Copy, Debug)]
struct Shift {
    n: i64,
    by: i64,
    before: i64,
}

/// Looks up what the walk does not keep.
pub(super) trait ChainedTable {
    /// The hash of the row of this number; empty before the first.
    fn hash_at(&self, n: i64) -> Result<Option<String>, SqlFailure>;
    /// Another row with this hash.
    fn row_with_hash(&self, hash: &str, n: i64) -> Result<Option<i64>, SqlFailure>;
}

/// The walk over the rows, by number.
#[derive(Debug)]
pub(super) struct Chain {
    head: Option<(i64, String)>,
    /// The number that comes next.
    expected: i64,
    /// The stored hash of the row before.
    previous: String,
    last_at: Option<u64>,
    shift: i64,
    shifts: Vec<Shift>,
    /// First and last number of what is missing, and when the row before was written.
    gaps: Vec<(i64, i64, Option<u64>)>,
    bad: Vec<Bad>,
    /// Whether the previous row is the last of `bad`.
    is_bad_before: bool,
    /// Rows with numbers that none can have.
    impossible_rows: Vec<Link>,
    unlisted: u64,
}

fn time(at: i64) -> Option<u64> {
    u64::try_from(at).ok()
}

impl Chain {
    /// `head`: the last row that there should be, and its hash.
    pub(super) fn new(head: Option<(i64, String)>) -> Chain {
        Chain {
            head,
            expected: 1,
            previous: String::new(),
            last_at: None,
            shift: 0,
            shifts: Vec::new(),
            gaps: Vec::new(),
            bad: Vec::new(),
            is_bad_before: false,
            impossible_rows: Vec::new(),
            unlisted: 0,
        }
    }

    /// Takes the next row.
    pub(super) fn step(&mut self, link: &Link) -> Result<(), SqlFailure> {
        let is_gap = link.n > self.expected;
        let is_behind = self.head.as_ref().is_some_and(|(end, _)| link.n > *end);
        if link.n < 1 || (is_gap && is_behind) {
            if self.impossible_rows.len() < KEPT {
                self.impossible_rows.push(link.clone());
            } else {
                self.unlisted += 1;
            }
            return Ok(());
        }
        if is_gap {
            if self.gaps.len() < KEPT {
                self.gaps.push((self.expected, link.n - 1, self.last_at));
            } else {
                self.unlisted += 1;
            }
        }
        let number = link.n.saturating_sub(self.shift);
        let should = link.hash_as(number, &self.previous)?;
        let fits = !is_gap && (should == link.hash || self.fits_otherwise(link, number)?);
        (self.expected, self.last_at) = (link.n.saturating_add(1), time(link.at));
        if fits {
            if let Some(before) = self.before()
                && !before.hash_changed
            {
                before.followed = true;
            }
            self.is_bad_before = false;
        } else if self.bad.len() < KEPT {
            let bad =
                Bad { link: link.clone(), should, after_gap: is_gap, followed: false, hash_changed: false };
            self.bad.push(bad);
            self.is_bad_before = true;
        } else {
            self.unlisted += 1;
            self.is_bad_before = false;
        }
        self.previous.clone_from(&link.hash);
        Ok(())
    }

    /// The row before, when it does not fit.
    fn before(&mut self) -> Option<&mut Bad> {
        if self.is_bad_before { self.bad.last_mut() } else { None }
    }

    fn fits_otherwise(&mut self, link: &Link, number: i64) -> Result<bool, SqlFailure> {
        // The content of the previous row is unchanged, and only its hash differs.
        if let Some(before) = self.before()
            && link.fits(number, &before.should)?
        {
            before.hash_changed = true;
            return Ok(true);
        }
        // A row was inserted or removed earlier, and all rows after it were renumbered. A single row that
        // fits in this way was moved, so this counts only after a row that does not fit.
        if self.is_bad_before {
            for by in [self.shift + 1, self.shift - 1] {
                if link.fits(link.n - by, &self.previous)? {
                    self.shifts.push(Shift { n: link.n, by, before: self.shift });
                    self.shift = by;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Ends the walk: what is wrong, by number, and how much more than that.
    pub(super) fn end(mut self, table: &dyn ChainedTable) -> Result<(Vec<AuditFault>, u64), SqlFailure> {
        let mut faults = Vec::new();
        let added = self.check_end(table, &mut faults)?;
        self.check_shifts(table, &mut faults)?;
        for (first, last, at) in std::mem::take(&mut self.gaps) {
            faults.push(missing(first, last, at));
        }
        self.check_misfit(table, added, &mut faults)?;
        // A row that was found elsewhere is not missing.
        let found: Vec<i64> =
            faults.iter().filter(|f| f.kind == Kind::Moved).filter_map(|f| f.last).collect();
        faults.retain(|fault| {
            fault.kind != Kind::Missing
                || fault.last.is_some()
                || !fault.n.is_some_and(|n| found.contains(&n))
        });
        for fault in faults.iter_mut().filter(|fault| fault.kind == Kind::Moved) {
            fault.last = None;
        }
        faults.sort_by_key(|fault| fault.n);
        Ok((faults, self.unlisted))
    }

    /// Compares the last row with the end mark; returns the numbers of the rows after it.
    fn check_end(
        &mut self,
        table: &dyn ChainedTable,
        faults: &mut Vec<AuditFault>,
    ) -> Result<Option<(i64, i64)>, SqlFailure> {
        let last = self.expected - 1;
        let Some((end, hash)) = self.head.clone() else {
            if last > 0 || !self.impossible_rows.is_empty() {
                let what = "the end mark of the audit is missing; rows at the end may be missing too";
                faults.push(fault(Kind::Head, None, None, what.to_owned()));
            }
            return Ok(None);
        };
        let (shift, previous, is_bad) = (self.shift, self.previous.clone(), self.is_bad_before);
        let written = last - shift;
        // The row is the last one, renumbered, and not a copy of it.
        let is_last = is_bad && previous == hash && end.abs_diff(last) == 1;
        if is_last && (end > last || table.hash_at(end)?.as_ref() != Some(&hash)) {
            self.shifts.push(Shift { n: last + 1, by: last - end, before: shift });
            return Ok(None);
        }
        if end > written {
            self.gaps.push((last + 1, end.saturating_add(shift), self.last_at));
            return Ok(None);
        }
        if end < written {
            if !self.bad.iter().any(|bad| bad.link.n > end) {
                let what = format!(
                    "the end mark names row {end}, but rows continue to row {last}: they were inserted, or \
                     the mark was changed"
                );
                faults.push(fault(Kind::Head, Some(end + 1), self.last_at, what));
                return Ok(None);
            }
            return Ok(Some((end + 1, last)));
        }
        if previous == hash {
            if let Some(before) = self.before() {
                before.followed = true;
            }
        } else {
            let changed = self.before().filter(|before| before.should == hash);
            if let Some(before) = changed {
                before.hash_changed = true;
            } else if !is_bad {
                let what = "differs from the row in the end mark: the row was rewritten, or the mark was \
                            changed";
                faults.push(fault(Kind::Head, (last > 0).then_some(last), self.last_at, what.to_owned()));
            }
        }
        Ok(None)
    }

    /// Reports rows that were inserted or removed with all others renumbered.
    fn check_shifts(
        &mut self,
        table: &dyn ChainedTable,
        faults: &mut Vec<AuditFault>,
    ) -> Result<(), SqlFailure> {
        for Shift { n, by, before } in std::mem::take(&mut self.shifts) {
            let at = |bad: &[Bad], number: i64| bad.iter().position(|bad| bad.link.n == number);
            if by < before {
                // The first row after the removed one cannot be checked.
                if let Some(first) = at(&self.bad, n - 1) {
                    let bad = self.bad.remove(first);
                    let what = "the original row of this number is missing, and the rows after it were \
                              renumbered";
                    faults.push(fault(Kind::Missing, Some(n - 1), time(bad.link.at), what.to_owned()));
                }
                continue;
            }
            let Some(first) = at(&self.bad, n - 1) else { continue };
            let bad = &self.bad[first].link;
            if table.hash_at(n - 2)?.as_ref() == Some(&bad.hash) {
                faults.push(doubled(n - 1, n - 2, time(bad.at)));
                self.bad.remove(first);
                continue;
            }
            let is_next = match table.hash_at(n - 3)? {
                Some(previous) => bad.fits(n - 2 - before, &previous)?,
                None => false,
            };
            if is_next {
                self.bad.remove(first);
                let link = at(&self.bad, n - 2).map(|at| self.bad.remove(at).link);
                let row_with_hash = match &link {
                    Some(link) => table.row_with_hash(&link.hash, link.n)?,
                    None => None,
                };
                let written = link.as_ref().and_then(|link| time(link.at));
                faults.push(if let Some(row_with_hash) = row_with_hash {
                    doubled(n - 2, row_with_hash, written)
                } else {
                    let what = "inserted, and the rows after it were renumbered";
                    fault(Kind::Added, Some(n - 2), written, what.to_owned())
                });
            }
        }
        Ok(())
    }

    fn check_misfit(
        &mut self,
        table: &dyn ChainedTable,
        added: Option<(i64, i64)>,
        faults: &mut Vec<AuditFault>,
    ) -> Result<(), SqlFailure> {
        let is_few = self.bad.len() + self.impossible_rows.len() <= TRIED;
        // The positions at which a misplaced row may have been, and the hashes of rows that may have preceded
        // one.
        let mut places: Vec<i64> = self.bad.iter().map(|bad| bad.link.n).collect();
        let gaps = faults.iter().filter(|fault| fault.kind == Kind::Missing);
        for (first, last) in gaps.filter_map(|gap| Some((gap.n?, gap.last.or(gap.n)?))) {
            places.extend((first..=last).take(TRIED));
        }
        places.truncate(KEPT);
        let hashes: Vec<String> = (self.bad.iter().map(|bad| &bad.link))
            .chain(&self.impossible_rows)
            .map(|link| link.hash.clone())
            .collect();
        let was = |link: &Link| -> Result<Option<i64>, SqlFailure> {
            for place in &places {
                let before = table.hash_at(place - 1)?;
                for previous in before.iter().chain(&hashes) {
                    if link.fits(*place, previous)? {
                        return Ok(Some(*place));
                    }
                }
            }
            Ok(None)
        };
        for link in &self.impossible_rows {
            let written = time(link.at);
            let was = if is_few { was(link)? } else { None };
            let row_with_hash = if is_few { table.row_with_hash(&link.hash, link.n)? } else { None };
            faults.push(match (row_with_hash, was) {
                (Some(row_with_hash), _) => doubled(link.n, row_with_hash, written),
                (None, Some(was)) => moved(link.n, was, written),
                (None, None) => {
                    let what = "inserted: no such row was ever written";
                    fault(Kind::Added, Some(link.n), written, what.to_owned())
                }
            });
        }
        for bad in &self.bad {
            let (n, written) = (bad.link.n, time(bad.link.at));
            if bad.hash_changed {
                let what = "its hash was changed, its content was not";
                faults.push(fault(Kind::Hash, Some(n), written, what.to_owned()));
                continue;
            }
            if is_few {
                if let Some(was) = was(&bad.link)? {
                    // In its place, and only the row before it is not.
                    if was != n {
                        faults.push(moved(n, was, written));
                    }
                    continue;
                }
                if let Some(row_with_hash) = table.row_with_hash(&bad.link.hash, n)? {
                    faults.push(doubled(n, row_with_hash, written));
                    continue;
                }
            }
            if added.is_some_and(|(first, last)| (first..=last).contains(&n)) {
                let what = "inserted: the audit ended before it";
                faults.push(fault(Kind::Added, Some(n), written, what.to_owned()));
            } else if bad.after_gap && bad.followed {
                // Nothing contradicts the row, and it cannot be checked: it is reported with the missing
                // rows.
            } else if bad.followed {
                let what = format!("changed, or row {} was rewritten with a new hash", n - 1);
                faults.push(fault(Kind::Changed, Some(n), written, what));
            } else {
                let what =
                    "changed together with its hash: it matches neither the row before nor the row after";
                faults.push(fault(Kind::Changed, Some(n), written, what.to_owned()));
            }
        }
        Ok(())
    }
}

fn fault(kind: Kind, n: Option<i64>, at: Option<u64>, what: String) -> AuditFault {
    AuditFault { kind, chain: String::new(), n, last: None, at, what }
}

fn missing(first: i64, last: i64, at: Option<u64>) -> AuditFault {
    let what = if first == last {
        "missing; the row after it cannot be checked".to_owned()
    } else {
        format!("{} rows are missing; the row after them cannot be checked", last - first + 1)
    };
    AuditFault { last: (first < last).then_some(last), ..fault(Kind::Missing, Some(first), at, what) }
}

/// `last` temporarily contains the original number of the row.
fn moved(n: i64, was: i64, at: Option<u64>) -> AuditFault {
    let what = format!("its content was written as row {was}");
    AuditFault { last: Some(was), ..fault(Kind::Moved, Some(n), at, what) }
}

fn doubled(n: i64, row_with_hash: i64, at: Option<u64>) -> AuditFault {
    fault(Kind::Doubled, Some(n), at, format!("a copy of row {row_with_hash}"))
}
