//! The audit, chained by hashes as in every store.

use std::sync::Arc;

use async_trait::async_trait;

use super::InMemoryStore;
use super::rows::Rows;
use aye_core::contract::audit::AuditRow;
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::judgement::JudgedCall;
use aye_core::contract::record::RunRecord;
use aye_core::contract::storage::{AuditFilter, AuditStore, Slice, StoreError};

fn unwritable(error: &serde_json::Error) -> StoreError {
    StoreError::Unwritable { what: "a row of the audit", why: error.to_string() }
}

impl Rows {
    pub(super) fn append_audit(&mut self, entry: AuditEntry) -> Result<(), StoreError> {
        let previous = self.audit.last().map_or("", |row| &row.hash);
        let row = entry.chained(self.audit.len() as u64 + 1, previous).map_err(|error| unwritable(&error))?;
        self.audit.push(Arc::new(row));
        Ok(())
    }

    /// The rules are not kept beside it: nothing here reads them again.
    pub(super) fn record_judged(&mut self, run: &RunRecord, call: &JudgedCall) -> Result<(), StoreError> {
        let (entry, _, _) = AuditEntry::judged(run, call).map_err(|error| unwritable(&error))?;
        self.append_audit(entry)
    }
}

#[async_trait]
impl AuditStore for InMemoryStore {
    async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        let AuditFilter { since, thread, kinds } = filter;
        self.read(|rows| {
            let is_wanted = |row: &&Arc<AuditRow>| {
                since.is_none_or(|since| row.at >= since)
                    && thread.as_ref().is_none_or(|thread| row.thread_id.as_ref() == Some(thread))
                    && (kinds.is_empty() || kinds.contains(&row.kind))
            };
            rows.audit.iter().filter(is_wanted).map(|row| AuditRow::clone(row)).collect()
        })
    }

    async fn audit_page(&self, filter: AuditFilter, slice: Slice) -> Result<Vec<AuditRow>, StoreError> {
        Ok(slice.of(self.audit(filter).await?))
    }
}
