//! The audit as a program reads it.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::Value;

use super::rows::RowFeed;
use crate::contract::audit::{AuditReport, AuditRow, PastRow};
use crate::contract::ids::{CallId, RunId, ThreadId};
use crate::contract::judgement::TriedRule;
use crate::contract::record::GrantRecord;
use crate::contract::storage::{AuditFilter, StoreError};

/// A call that met the rules once.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentCall {
    /// Its run and its id.
    pub id: (RunId, CallId),
    /// The tool.
    pub tool: String,
    /// Its arguments.
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

    /// Checks the chain, and the tables against it.
    async fn verify_audit(&self) -> Result<AuditReport, StoreError>;

    /// Every grant that was ever given, oldest first.
    async fn all_grants(&self) -> Result<Vec<GrantRecord>, StoreError>;

    /// The newest grants that do not hold any more, newest first.
    async fn ended_grants(&self, most: u64) -> Result<Vec<GrantRecord>, StoreError>;
}
