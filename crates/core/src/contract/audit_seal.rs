//! What seals the chains of an audit.
//!
//! A store that writes on several machines has a chain for each thread, so that no commit waits for another thread's. Nothing
//! in a chain shows that its end was cut off, or that a whole chain was removed. So from time to time a seal notes where the
//! chains end that grew since the seal before. The seals are a chain of their own, and what it says must still be found.

use std::collections::HashMap;

use super::audit::{AuditFault, AuditFaultKind, AuditReport};
use super::digest::sha256_hex;

/// A row that a seal vouches for: the last one that a chain had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRow {
    /// The chain.
    pub chain: String,
    /// The number of the row in its chain.
    pub n: u64,
    /// The hash of the row.
    pub hash: String,
}

/// One seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSeal {
    /// Its number; they count up from 1 without a gap.
    pub n: u64,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// The last rows of the chains that grew since the seal before.
    pub ends: Vec<SealedRow>,
    /// SHA-256, hex, over the hash of the seal before (empty for the first) and all of this one.
    pub hash: String,
}

impl AuditSeal {
    /// Returns the seal with this number, after the seal with this hash; the hash is empty for the first.
    #[must_use]
    pub fn after(previous: &str, n: u64, at: u64, ends: Vec<SealedRow>) -> AuditSeal {
        let hash = hash(previous, n, at, &ends);
        AuditSeal { n, at, ends, hash }
    }
}

fn hash(previous: &str, n: u64, at: u64, ends: &[SealedRow]) -> String {
    let ends: Vec<_> = ends.iter().map(|end| (&end.chain, end.n, &end.hash)).collect();
    sha256_hex(serde_json::json!([previous, n, at, ends]).to_string())
}

/// The walk over the seals of an audit, oldest first.
#[derive(Debug, Default)]
pub struct SealWalk {
    previous: String,
    seals: u64,
    last_at: Option<u64>,
    faults: Vec<AuditFault>,
    /// The last row that is known to be sealed, by chain.
    sealed: HashMap<String, u64>,
}

impl SealWalk {
    /// Takes the next seal. Returns what must be found in the chains, without what an earlier seal vouched for.
    pub fn take(&mut self, seal: AuditSeal) -> Vec<SealedRow> {
        let expected = self.seals + 1;
        if seal.n != expected {
            let what = format!("seal {expected} is missing");
            self.faults.push(fault("", None, self.last_at, what));
        } else if seal.hash != hash(&self.previous, seal.n, seal.at, &seal.ends) {
            let what = format!("seal {} was changed, or the one before it", seal.n);
            self.faults.push(fault("", None, Some(seal.at), what));
        }
        (self.seals, self.previous, self.last_at) = (seal.n, seal.hash, Some(seal.at));
        let mut new = seal.ends;
        new.retain(|end| {
            let known = self.sealed.entry(end.chain.clone()).or_default();
            if end.n < *known {
                let what = format!("seal {} has an earlier end than the seals before it", seal.n);
                self.faults.push(fault(&end.chain, Some(end.n), Some(seal.at), what));
            }
            let is_new = end.n > *known;
            *known = end.n.max(*known);
            is_new
        });
        new
    }

    /// Takes the hash that a sealed row has, `None` if the row is gone.
    pub fn found(&mut self, end: &SealedRow, hash: Option<&str>) {
        let what = match hash {
            Some(hash) if hash == end.hash => return,
            Some(_) => "not the row that was sealed: the chain was rewritten",
            None => "sealed, but missing: the chain was cut off or removed",
        };
        self.faults.push(fault(&end.chain, Some(end.n), None, what.to_owned()));
    }

    /// Adds what was found to a report.
    pub fn end(self, report: &mut AuditReport) {
        report.seals = self.seals;
        report.faults.extend(self.faults);
    }
}

fn fault(chain: &str, n: Option<u64>, at: Option<u64>, what: String) -> AuditFault {
    let n = n.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    AuditFault { kind: AuditFaultKind::Seal, chain: chain.to_owned(), n, last: None, at, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(chain: &str, n: u64) -> SealedRow {
        SealedRow { chain: chain.into(), n, hash: format!("{chain}{n}") }
    }

    /// Chains `a` and `b`, sealed three times; the second and third seal overlap.
    fn seals() -> Vec<AuditSeal> {
        let mut seals: Vec<AuditSeal> = Vec::new();
        for ends in [vec![end("a", 2), end("b", 1)], vec![end("a", 5)], vec![end("a", 5), end("b", 3)]] {
            let previous = seals.last().map_or("", |seal| &seal.hash);
            let n = seals.len() as u64 + 1;
            seals.push(AuditSeal::after(previous, n, 100 * n, ends));
        }
        seals
    }

    /// Walks over seals of chains that have these last rows, and returns the faults.
    fn walk(seals: Vec<AuditSeal>, rows: &[(&str, u64)]) -> Vec<String> {
        let mut walk = SealWalk::default();
        for seal in seals {
            for sealed in walk.take(seal) {
                let is_there = rows.iter().any(|(chain, last)| sealed.chain == *chain && sealed.n <= *last);
                let hash = is_there.then(|| format!("{}{}", sealed.chain, sealed.n));
                walk.found(&sealed, hash.as_deref());
            }
        }
        let mut report = AuditReport::default();
        walk.end(&mut report);
        report
            .faults
            .iter()
            .map(|fault| format!("{}:{} {}", fault.chain, fault.n.unwrap_or(0), fault.what))
            .collect()
    }

    #[test]
    fn intact_chains_have_what_was_sealed() {
        assert_eq!(walk(seals(), &[("a", 7), ("b", 3)]), [] as [String; 0]);
        let mut walk = SealWalk::default();
        let new: Vec<usize> = seals().into_iter().map(|seal| walk.take(seal).len()).collect();
        assert_eq!(new, [2, 1, 1], "nothing is looked up twice");
    }

    #[test]
    fn a_chain_that_was_cut_removed_or_rewritten_shows() {
        let cut = "sealed, but missing: the chain was cut off or removed";
        assert_eq!(walk(seals(), &[("a", 4), ("b", 3)]), [format!("a:5 {cut}")]);
        assert_eq!(walk(seals(), &[("a", 5)]), [format!("b:1 {cut}"), format!("b:3 {cut}")]);
        let mut walk = SealWalk::default();
        walk.found(&end("a", 5), Some("other"));
        let mut report = AuditReport::default();
        walk.end(&mut report);
        assert!(report.faults[0].what.contains("rewritten"), "{report:?}");
    }

    #[test]
    fn seals_that_were_changed_removed_or_put_back_show() {
        let rows = [("a", 7), ("b", 3)];
        let mut changed = seals();
        changed[1].ends[0].n = 3;
        changed[1].ends[0].hash = "a3".into();
        assert_eq!(walk(changed, &rows), [":0 seal 2 was changed, or the one before it"]);
        let mut removed = seals();
        removed.remove(1);
        assert_eq!(walk(removed, &rows), [":0 seal 2 is missing"]);
        let mut forged = seals();
        let back = AuditSeal::after(&forged[2].hash, 4, 400, vec![end("a", 1)]);
        forged.push(back);
        assert_eq!(walk(forged, &rows), ["a:1 seal 4 has an earlier end than the seals before it"]);
    }
}
