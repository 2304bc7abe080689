//! The audit as a program reads it.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::Value;

use super::rows::RowFeed;
use crate::contract::audit::{AuditReport, AuditRow, PastRow};
use crate::contract::audit_seal::{AuditSeal, SealWalk, SealedRow};
use crate::contract::ids::{CallId, RunId, ThreadId};
use crate::contract::judgement::TriedRule;
use crate::contract::record::GrantRecord;
use crate::contract::storage::{AuditFilter, StoreError};

/// The rows whose hashes are looked up at once.
const HASHES_AT_ONCE: usize = 1000;

/// A call that met the rules once.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentCall {
    /// Its run and its id.
    pub id: (RunId, CallId),
    pub tool: String,
    pub arguments: Value,
    /// The folder it was to run in.
    pub cwd: PathBuf,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// Whether the user denied the call.
    pub declined: bool,
}

/// Reads the audit, and the grants that its rows name. Rows are written by the transactions that they record.
#[async_trait]
pub trait AuditReader: Send + Sync {
    /// The rows that the filter leaves, oldest first. A row whose body is not JSON has its text as the body: the chain
    /// shows that the row was changed.
    fn read_audit(&self, filter: AuditFilter) -> RowFeed<AuditRow>;

    /// The rows of each call together, in the order of the calls' first rows. Rows that are about no call come by
    /// themselves, in their place. A call comes whole, when any of its rows is left by the filter; kinds do not matter.
    fn read_audit_calls(&self, filter: AuditFilter) -> RowFeed<Vec<AuditRow>>;

    /// Each call as it was first judged, oldest first, and after it each answer of a user to an approval request about
    /// the call, or its expiry. Unreadable rows are left out.
    fn read_past_calls(&self, since: Option<u64>) -> RowFeed<PastRow>;

    /// The calls of a tool below a folder, newest first, each once however often it was judged. Only the newest `rows`
    /// rows of the audit are read, and unreadable ones are left out.
    async fn recent_calls(&self, tool: &str, below: &Path, rows: u64) -> Result<Vec<RecentCall>, StoreError>;

    /// The lists of rules by which calls were judged, by their hashes. An unreadable list is left out.
    async fn audit_rules(&self) -> Result<Vec<(String, Vec<TriedRule>)>, StoreError>;

    /// The conversations in the audit whose ids start with a prefix, at most 20; they need not exist any more.
    async fn audit_threads(&self, prefix: &str) -> Result<Vec<ThreadId>, StoreError>;

    /// Every grant that was ever given, oldest first.
    async fn all_grants(&self) -> Result<Vec<GrantRecord>, StoreError>;

    /// The newest grants that do not hold any more, newest first.
    async fn ended_grants(&self, most: u64) -> Result<Vec<GrantRecord>, StoreError>;
}

/// What shows whether the audit is as it was written.
#[async_trait]
pub trait AuditVerifier: Send + Sync {
    /// Checks each chain, and the tables against them. What seals the chains is checked by [`verify_sealed`].
    async fn verify_audit(&self) -> Result<AuditReport, StoreError>;

    /// What seals the chains, oldest first; nothing in a store with one chain.
    fn read_seals(&self) -> RowFeed<AuditSeal>;

    /// The hashes that these rows have now, by chain and number, in the same order; `None` for a row that is gone.
    async fn audit_hashes(&self, rows: Vec<(String, u64)>) -> Result<Vec<Option<String>>, StoreError>;
}

/// Checks the whole audit: the chains, the tables against them, and what seals the chains.
///
/// # Errors
/// [`StoreError`] when the store fails. Faults in the audit are in the report.
pub async fn verify_sealed<S: AuditVerifier + ?Sized>(store: &S) -> Result<AuditReport, StoreError> {
    let mut report = store.verify_audit().await?;
    let mut walk = SealWalk::default();
    let mut sealed: Vec<SealedRow> = Vec::new();
    {
        let mut feed = store.read_seals();
        while let Some(seals) = feed.next().await? {
            sealed.extend(seals.into_iter().flat_map(|seal| walk.take(seal)));
        }
    }
    for rows in sealed.chunks(HASHES_AT_ONCE) {
        let places = rows.iter().map(|row| (row.chain.clone(), row.n)).collect();
        let hashes = store.audit_hashes(places).await?;
        for (place, row) in rows.iter().enumerate() {
            walk.found(row, hashes.get(place).and_then(Option::as_deref));
        }
    }
    walk.end(&mut report);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::program_store::RowReader;

    /// A store with two chains of five rows each, and seals.
    struct Sealed {
        seals: Vec<AuditSeal>,
    }

    struct Once<T>(Option<Vec<T>>);

    #[async_trait]
    impl<T: Send> RowReader<T> for Once<T> {
        async fn next(&mut self) -> Result<Option<Vec<T>>, StoreError> {
            Ok(self.0.take())
        }
    }

    fn row(chain: &str, n: u64) -> SealedRow {
        SealedRow { chain: chain.into(), n, hash: format!("{chain}{n}") }
    }

    #[async_trait]
    impl AuditVerifier for Sealed {
        async fn verify_audit(&self) -> Result<AuditReport, StoreError> {
            Ok(AuditReport { rows: 10, chains: 2, ..AuditReport::default() })
        }

        fn read_seals(&self) -> RowFeed<AuditSeal> {
            Box::new(Once(Some(self.seals.clone())))
        }

        async fn audit_hashes(&self, rows: Vec<(String, u64)>) -> Result<Vec<Option<String>>, StoreError> {
            assert!(rows.len() <= HASHES_AT_ONCE);
            let hash = |(chain, n): (String, u64)| (n <= 5).then(|| row(&chain, n).hash);
            Ok(rows.into_iter().map(hash).collect())
        }
    }

    #[test]
    fn the_audit_of_a_store_with_several_chains_is_checked_with_its_seals() {
        let verified = |ends: Vec<SealedRow>| {
            let store = Sealed { seals: vec![AuditSeal::after("", 1, 5, ends)] };
            futures::executor::block_on(verify_sealed(&store)).unwrap()
        };
        let whole = verified(vec![row("a", 5), row("b", 4)]);
        assert!(whole.is_whole(), "{whole:?}");
        assert_eq!((whole.rows, whole.chains, whole.seals), (10, 2, 1));
        let cut = verified(vec![row("a", 5), row("b", 6)]);
        let faults: Vec<_> = cut.faults.iter().map(|fault| (fault.chain.as_str(), fault.n)).collect();
        assert_eq!(faults, [("b", Some(6))]);
        // More chains than are looked up at once.
        let many = (0..2500).map(|n| row(&format!("c{n}"), if n == 2400 { 7 } else { 1 })).collect();
        let cut = verified(many);
        let faults: Vec<_> = cut.faults.iter().map(|fault| fault.chain.as_str()).collect();
        assert_eq!(faults, ["c2400"]);
    }
}
