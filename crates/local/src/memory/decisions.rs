//! Questions and grants.

use std::sync::Arc;

use async_trait::async_trait;

use super::InMemoryStore;
use super::rows::{Rows, StoredGrant};
use aye_core::contract::audit::AuditKind;
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::ids::{DecisionId, SuspensionId};
use aye_core::contract::record::{
    AttemptId, DecideOutcome, Decision, GrantRecord, RunRecord, SuspensionRecord, SuspensionStatus,
};
use aye_core::contract::storage::{
    ChangeKind, DecisionStore, GrantStore, Slice, StoreChange, StoreError, SuspensionFilter,
};
use aye_core::contract::suspension::ResumeDecisionAction;

impl Rows {
    /// Ends questions without an answer; returns them.
    fn close_all(
        &mut self,
        to: SuspensionStatus,
        kind: AuditKind,
        at: u64,
        is_meant: impl Fn(&SuspensionRecord) -> bool,
    ) -> Result<Vec<SuspensionRecord>, StoreError> {
        let mut closed = Vec::new();
        for row in self.suspensions.iter_mut().filter(|row| is_meant(row)) {
            Arc::make_mut(row).status = to;
            closed.push(SuspensionRecord::clone(row));
        }
        for row in &closed {
            let about = (&row.thread_id, &row.run_id, &row.call_id);
            self.append_audit(AuditEntry::closed(at, kind, about, &row.id))?;
        }
        Ok(closed)
    }

    fn expire_due(&mut self, now_ms: u64) -> Result<Vec<SuspensionRecord>, StoreError> {
        self.close_all(SuspensionStatus::Expired, AuditKind::Expired, now_ms, |row| {
            row.status == SuspensionStatus::Open
                // A run that waits for a time takes note of it itself.
                && row.ticket.suspension.resumes_at().is_none()
                && row.ticket.suspension.expires_at.is_some_and(|end| end <= now_ms)
        })
    }

    fn decide(
        &mut self,
        id: &SuspensionId,
        decision: Decision,
        now_ms: u64,
    ) -> Result<DecideOutcome, StoreError> {
        self.expire_due(now_ms)?;
        let Some(row) = self.suspension_mut(id) else { return Ok(DecideOutcome::NotFound) };
        let is_same = row.decision.as_ref().is_some_and(|d| d.decision_id == decision.resume.decision_id);
        let known = Box::new(row.clone());
        let status = row.status;
        if status == SuspensionStatus::Open
            && let Some(grant) = decision.grant.clone()
        {
            self.add_grant(grant)?;
        }
        let Some(row) = self.suspension_mut(id) else { return Ok(DecideOutcome::NotFound) };
        Ok(match status {
            SuspensionStatus::Open => {
                let entry = AuditEntry::decided(row, &decision, now_ms);
                row.status = SuspensionStatus::Decided;
                row.decision = Some(decision.resume);
                row.decided_by = Some(decision.actor);
                let accepted = Box::new(row.clone());
                self.append_audit(entry)?;
                DecideOutcome::Accepted(accepted)
            }
            SuspensionStatus::Decided | SuspensionStatus::Applied if is_same => {
                DecideOutcome::Repeated(known)
            }
            SuspensionStatus::Decided | SuspensionStatus::Applied => DecideOutcome::AlreadyDecided(known),
            SuspensionStatus::Superseded => DecideOutcome::Closed(known),
            SuspensionStatus::Expired => DecideOutcome::Expired(known),
        })
    }

    /// Adds a question of a run.
    pub(super) fn ask(&mut self, run: &RunRecord, question: &SuspensionRecord) -> Result<(), StoreError> {
        let what = format!("question {}", question.id);
        if question.thread_id != run.thread_id || question.run_id != run.id {
            return Err(StoreError::Misplaced { what, place: format!("run {}", run.id) });
        }
        if question.status != SuspensionStatus::Open || question.decision.is_some() {
            let (suspension, from, to) = (question.id.clone(), SuspensionStatus::Open, question.status);
            return Err(StoreError::IllegalMove { suspension, from, to });
        }
        if question.ticket.suspension.id != question.id {
            let place = format!("the ticket of {}", question.ticket.suspension.id);
            return Err(StoreError::Misplaced { what, place });
        }
        if self.suspension(&question.id).is_some() {
            return Err(StoreError::Exists { what });
        }
        self.suspensions.push(Arc::new(question.clone()));
        self.append_audit(AuditEntry::asked(run, question))
    }

    /// Closes a question of a run's thread. One that is over already stays as it ended.
    pub(super) fn close_question(
        &mut self,
        run: &RunRecord,
        id: &SuspensionId,
        to: SuspensionStatus,
    ) -> Result<(), StoreError> {
        use SuspensionStatus::{Applied, Decided, Expired, Open, Superseded};
        let found = self.suspension_mut(id).filter(|row| row.thread_id == run.thread_id);
        let row = found.ok_or_else(|| StoreError::NoSuspension(id.clone()))?;
        let kind = match (row.status, to) {
            (Open | Decided, Superseded) => AuditKind::Superseded,
            (Open, Expired) => AuditKind::Expired,
            (Decided, Applied) => AuditKind::Applied,
            (Applied | Superseded | Expired, Superseded | Expired) | (Applied, Applied) => return Ok(()),
            (Open | Superseded | Expired, Applied) => {
                return Err(StoreError::NotDecided { suspension: id.clone() });
            }
            // An answer that came in time counts, whatever the clock of the closing process shows.
            (from @ Decided, Expired) | (from, Open | Decided) => {
                return Err(StoreError::IllegalMove { suspension: id.clone(), from, to });
            }
        };
        row.status = to;
        let call = row.call_id.clone();
        self.append_audit(AuditEntry::closed(run.updated_at, kind, (&run.thread_id, &run.id, &call), id))
    }

    /// Closes what is left of a run that is done.
    pub(super) fn supersede_questions(&mut self, run: &RunRecord) -> Result<(), StoreError> {
        let is_left = |row: &SuspensionRecord| {
            row.run_id == run.id && matches!(row.status, SuspensionStatus::Open | SuspensionStatus::Decided)
        };
        self.close_all(SuspensionStatus::Superseded, AuditKind::Superseded, run.updated_at, is_left).map(drop)
    }

    /// Spends the decision that lets an execution start.
    pub(super) fn spend_decision(
        &mut self,
        id: &SuspensionId,
        decision: &DecisionId,
        attempt: &AttemptId,
    ) -> Result<(), StoreError> {
        let fits = |row: &&mut SuspensionRecord| {
            row.status == SuspensionStatus::Decided
                && row.run_id == attempt.run_id
                && row.call_id == attempt.call_id
                && row.decision.as_ref().is_some_and(|known| {
                    known.action == ResumeDecisionAction::Resume && known.decision_id == *decision
                })
        };
        let refused = || StoreError::NotDecided { suspension: id.clone() };
        self.suspension_mut(id).filter(fits).ok_or_else(refused)?.status = SuspensionStatus::Applied;
        Ok(())
    }
}

#[async_trait]
impl DecisionStore for InMemoryStore {
    async fn suspension(&self, id: &SuspensionId) -> Result<Option<SuspensionRecord>, StoreError> {
        self.read(|rows| rows.suspension(id).cloned())
    }

    async fn suspensions(&self, filter: SuspensionFilter) -> Result<Vec<SuspensionRecord>, StoreError> {
        let SuspensionFilter { thread, run, status } = filter;
        self.read(|rows| {
            let is_wanted = |row: &&Arc<SuspensionRecord>| {
                thread.as_ref().is_none_or(|thread| row.thread_id == *thread)
                    && run.as_ref().is_none_or(|run| row.run_id == *run)
                    && status.is_none_or(|status| row.status == status)
            };
            rows.suspensions.iter().filter(is_wanted).map(|row| SuspensionRecord::clone(row)).collect()
        })
    }

    async fn suspensions_page(
        &self,
        filter: SuspensionFilter,
        slice: Slice,
    ) -> Result<Vec<SuspensionRecord>, StoreError> {
        Ok(slice.of(self.suspensions(filter).await?))
    }

    async fn pending_count(&self, now_ms: u64) -> Result<u64, StoreError> {
        let filter = SuspensionFilter { status: Some(SuspensionStatus::Open), ..SuspensionFilter::default() };
        let is_pending = |row: &&SuspensionRecord| {
            !row.ticket.is_served() && row.ticket.suspension.expires_at.is_none_or(|end| end > now_ms)
        };
        Ok(self.suspensions(filter).await?.iter().filter(is_pending).count() as u64)
    }

    async fn decide(
        &self,
        id: &SuspensionId,
        decision: Decision,
        now_ms: u64,
    ) -> Result<DecideOutcome, StoreError> {
        let grants = decision.grant.is_some();
        let outcome = self.write(|rows| rows.decide(id, decision, now_ms))?;
        if grants && matches!(outcome, DecideOutcome::Accepted(_)) {
            self.emit(StoreChange { kind: ChangeKind::Grant, thread: None });
        }
        if let DecideOutcome::Accepted(row) | DecideOutcome::Expired(row) = &outcome {
            self.publish_change(ChangeKind::Decision, &row.thread_id);
        }
        Ok(outcome)
    }

    async fn expire_due(&self, now_ms: u64) -> Result<Vec<SuspensionRecord>, StoreError> {
        let expired = self.write(|rows| rows.expire_due(now_ms))?;
        for row in &expired {
            self.publish_change(ChangeKind::Decision, &row.thread_id);
        }
        Ok(expired)
    }

    async fn expire(&self, ids: Vec<SuspensionId>, now_ms: u64) -> Result<Vec<SuspensionRecord>, StoreError> {
        let expired = self.write(|rows| {
            rows.close_all(SuspensionStatus::Expired, AuditKind::Expired, now_ms, |row| {
                row.status == SuspensionStatus::Open && ids.contains(&row.id)
            })
        })?;
        for row in &expired {
            self.publish_change(ChangeKind::Decision, &row.thread_id);
        }
        Ok(expired)
    }
}

impl StoredGrant {
    fn holds(&self, now_ms: u64) -> bool {
        let GrantRecord { expires_at, max_uses, uses, revoked_at, .. } = &self.grant;
        !self.is_over
            && revoked_at.is_none()
            && expires_at.is_none_or(|end| end > now_ms)
            && max_uses.is_none_or(|most| *uses < most)
    }
}

impl Rows {
    fn add_grant(&mut self, grant: GrantRecord) -> Result<(), StoreError> {
        if self.grant_mut(&grant.id).is_some() {
            return Err(StoreError::Exists { what: format!("grant {}", grant.id) });
        }
        let entry = AuditEntry::granted(&grant);
        self.grants.push(Arc::new(StoredGrant { grant, is_over: false }));
        self.append_audit(entry)
    }

    fn grant_mut(&mut self, id: &str) -> Option<&mut StoredGrant> {
        self.grants.iter_mut().find(|row| row.grant.id == id).map(Arc::make_mut)
    }
}

#[async_trait]
impl GrantStore for InMemoryStore {
    async fn add_grant(&self, grant: GrantRecord) -> Result<(), StoreError> {
        self.write(|rows| rows.add_grant(grant))?;
        self.emit(StoreChange { kind: ChangeKind::Grant, thread: None });
        Ok(())
    }

    async fn grants(&self, active_at: u64) -> Result<Vec<GrantRecord>, StoreError> {
        self.write(|rows| {
            let mut lapsed = Vec::new();
            for row in &mut rows.grants {
                if !row.is_over && row.grant.expires_at.is_some_and(|end| end <= active_at) {
                    Arc::make_mut(row).is_over = true;
                    lapsed.push(row.grant.id.clone());
                }
            }
            for id in lapsed {
                rows.append_audit(AuditEntry::grant_changed(active_at, AuditKind::Lapsed, &id))?;
            }
            let holding = rows.grants.iter().filter(|row| row.holds(active_at));
            Ok(holding.map(|row| row.grant.clone()).collect())
        })
    }

    async fn revoke_grant(&self, id: &str, now_ms: u64) -> Result<bool, StoreError> {
        let is_revoked = self.write(|rows| {
            let Some(row) = rows.grant_mut(id).filter(|row| row.grant.revoked_at.is_none()) else {
                return Ok(false);
            };
            row.grant.revoked_at = Some(now_ms);
            rows.append_audit(AuditEntry::grant_changed(now_ms, AuditKind::Revoked, id))?;
            Ok(true)
        })?;
        if is_revoked {
            self.emit(StoreChange { kind: ChangeKind::Grant, thread: None });
        }
        Ok(is_revoked)
    }

    async fn spend_grants(&self, ids: Vec<String>, now_ms: u64) -> Result<Option<String>, StoreError> {
        self.write(|rows| {
            for id in &ids {
                if !rows.grant_mut(id).is_some_and(|row| row.holds(now_ms)) {
                    return Ok(Some(id.clone()));
                }
            }
            for id in &ids {
                if let Some(row) = rows.grant_mut(id) {
                    row.grant.uses += 1;
                }
                rows.append_audit(AuditEntry::grant_changed(now_ms, AuditKind::Spent, id))?;
            }
            Ok(None)
        })
    }
}
