//! Questions with their decisions, and grants.

use async_trait::async_trait;

use super::{AuditFilter, Slice, StoreError, SuspensionFilter};
use crate::contract::audit::AuditRow;
use crate::contract::ids::SuspensionId;
use crate::contract::record::{DecideOutcome, Decision, GrantRecord, SuspensionRecord};

/// Stores questions. They are asked and closed by
/// [`ThreadRunStore::checkpoint`](super::ThreadRunStore::checkpoint).
///
/// # Errors
/// [`StoreError::Damaged`] if a row cannot be read; see [`StoreError`] for the rest.
#[async_trait]
pub trait DecisionStore: Send + Sync {
    /// The question, when it exists.
    async fn suspension(&self, id: &SuspensionId) -> Result<Option<SuspensionRecord>, StoreError>;

    /// The questions that the filter leaves, oldest first.
    async fn suspensions(&self, filter: SuspensionFilter) -> Result<Vec<SuspensionRecord>, StoreError>;

    /// A part of the questions that the filter leaves, oldest first.
    async fn suspensions_page(
        &self,
        filter: SuspensionFilter,
        slice: Slice,
    ) -> Result<Vec<SuspensionRecord>, StoreError>;

    /// The number of pending questions of all threads that users have to answer and that have not expired.
    async fn pending_count(&self, now_ms: u64) -> Result<u64, StoreError>;

    /// Stores a decision, durably and once: of several that come at once exactly one is accepted. Before, each question
    /// whose time is over at `now_ms` is marked as expired, for good. The caller has checked the payload.
    async fn decide(
        &self,
        id: &SuspensionId,
        decision: Decision,
        now_ms: u64,
    ) -> Result<DecideOutcome, StoreError>;

    /// Marks each question whose time is over as expired, for good, and returns those that were open until now.
    async fn expire_due(&self, now_ms: u64) -> Result<Vec<SuspensionRecord>, StoreError>;

    /// Expires these questions, whatever their own expiry, and returns those that were pending until now.
    async fn expire(&self, ids: Vec<SuspensionId>, now_ms: u64) -> Result<Vec<SuspensionRecord>, StoreError>;
}

/// Keeps allow rules that users granted with questions.
#[async_trait]
pub trait GrantStore: Send + Sync {
    /// Adds a grant.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the id is taken.
    async fn add_grant(&self, grant: GrantRecord) -> Result<(), StoreError>;

    /// Returns the grants that are active at a time, oldest first. An expired grant stays expired, whatever
    /// the clock says later.
    async fn grants(&self, active_at: u64) -> Result<Vec<GrantRecord>, StoreError>;

    /// Revokes a grant. Returns `false` if the grant does not exist, or was revoked before.
    async fn revoke_grant(&self, id: &str, now_ms: u64) -> Result<bool, StoreError>;

    /// Counts one use of each of these grants, or of none: then it names the first one that does not hold any more.
    async fn spend_grants(&self, ids: Vec<String>, now_ms: u64) -> Result<Option<String>, StoreError>;
}

/// Records what was asked, decided, started and ended. Each row is written in the transaction that it
/// records; `audit` in [`contract`](crate::contract::audit) lists the kinds and the bodies, and chains the
/// rows.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// The rows that the filter leaves, oldest first.
    async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditRow>, StoreError>;

    /// A part of the rows that the filter leaves, oldest first.
    async fn audit_page(&self, filter: AuditFilter, slice: Slice) -> Result<Vec<AuditRow>, StoreError>;
}
