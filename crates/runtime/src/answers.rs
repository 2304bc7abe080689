//! Delivers decisions and expired deadlines to a driver, from the rows of the store, whichever process wrote
//! them.

use std::time::Duration;

use super::driver::Driver;
use super::request::RuntimeError;
use aye_core::contract::ids::{CallId, SuspensionId};
use aye_core::contract::record::SuspensionStatus;
use aye_core::contract::storage::SuspensionFilter;
use aye_core::run::Fact;

impl Driver {
    /// The questions that wait, by call.
    fn waiting(&self) -> impl Iterator<Item = (&CallId, &SuspensionId, Option<u64>)> {
        self.machine
            .open_tickets()
            .map(|ticket| (&ticket.pending.id, &ticket.suspension.id, ticket.suspension.expires_at))
    }

    /// Takes what the store says of the questions that wait: answers, and times that ran out.
    pub(super) async fn read_answers(&mut self) -> Result<(), RuntimeError> {
        if self.lineage.is_some() && !self.slot.handle.cancel.is_cancelled() {
            let own = self.shared.store.child(&self.record.thread_id).await?;
            if own.is_some_and(|own| own.stop) {
                self.slot.handle.cancel.cancel();
            }
        }
        for status in [SuspensionStatus::Decided, SuspensionStatus::Expired] {
            if self.waiting().next().is_none() {
                break;
            }
            let run = Some(self.record.id.clone());
            let filter = SuspensionFilter { run, status: Some(status), ..SuspensionFilter::default() };
            for row in self.shared.store.suspensions(filter).await? {
                let is_asked = self.waiting().any(|(call, id, _)| *call == row.call_id && *id == row.id);
                let fact = match (status, row.decision) {
                    (_, _) if !is_asked => continue,
                    (SuspensionStatus::Decided, Some(decision)) => {
                        Fact::Decided { call: row.call_id, suspension: row.id, decision }
                    }
                    (SuspensionStatus::Expired, _) => Fact::Expired { call: row.call_id, suspension: row.id },
                    (
                        SuspensionStatus::Open
                        | SuspensionStatus::Decided
                        | SuspensionStatus::Applied
                        | SuspensionStatus::Superseded,
                        _,
                    ) => continue,
                };
                self.answers.add(fact);
            }
        }
        self.resume_children().await
    }

    /// As [`Driver::read_answers`], after the questions whose time is over were marked.
    pub(super) async fn expire(&mut self) -> Result<(), RuntimeError> {
        let now = self.shared.clock.now_ms();
        self.shared.store.expire_due(now).await?;
        let due: Vec<_> = self
            .waiting()
            .filter(|(_, _, at)| at.is_some_and(|at| at <= now))
            .map(|(_, id, _)| id.clone())
            .collect();
        // The driver does not wait for these questions again, whatever their rows say.
        self.answers.overdue.extend(due.iter().cloned());
        self.read_answers().await?;
        // After the answers: one that came in time counts.
        let waited =
            self.machine.asking().filter(|question| question.resumes).map(|question| &question.ticket);
        if let Some(ticket) = waited.filter(|ticket| due.contains(&ticket.suspension.id)) {
            let (call, suspension) = (ticket.pending.id.clone(), ticket.suspension.id.clone());
            self.answers.add(Fact::Expired { call, suspension });
        }
        Ok(())
    }

    /// Returns the time until the next question of this run expires; `None` if none does.
    pub(super) fn until_expiry(&self) -> Option<Duration> {
        let next = self
            .waiting()
            .filter(|(_, id, _)| !self.answers.overdue.contains(*id))
            .filter_map(|(_, _, at)| at)
            .chain(self.children.next_expiry())
            .min()?;
        Some(Duration::from_millis(next.saturating_sub(self.shared.clock.now_ms())))
    }
}
