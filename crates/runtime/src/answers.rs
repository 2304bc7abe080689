//! Delivers decisions and expired deadlines to a driver, from the rows of the store, whichever process wrote
//! them.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::driver::Driver;
use super::request::RuntimeError;
use aye_core::contract::ids::{CallId, SuspensionId};
use aye_core::contract::record::SuspensionStatus;
use aye_core::contract::storage::SuspensionFilter;
use aye_core::run::Fact;

/// What came to the questions of a run, and what is still to be done with it.
#[derive(Default)]
pub(super) struct Answers {
    /// Facts from outside, for when all that the last one led to is done: a checkpoint writes the machine as it is, and
    /// the machine must not be ahead of the rows that belong to it.
    facts: VecDeque<Fact>,
    /// Questions that expired while the driver was active.
    overdue: HashSet<SuspensionId>,
    /// The questions that were closed as expired.
    expired: Vec<SuspensionId>,
    /// Questions that were answered or closed and whose renderers have not been notified yet.
    settled: Vec<SuspensionId>,
}

impl Answers {
    /// Keeps a fact from outside until the driver takes the next one.
    pub(super) fn add(&mut self, fact: Fact) {
        self.facts.push_back(fact);
    }

    pub(super) fn next_fact(&mut self) -> Option<Fact> {
        self.facts.pop_front()
    }

    pub(super) fn has_no_fact(&self) -> bool {
        self.facts.is_empty()
    }

    pub(super) fn note_expired(&mut self, question: SuspensionId) {
        self.expired.push(question);
    }

    pub(super) fn expired(&self) -> &[SuspensionId] {
        &self.expired
    }

    pub(super) fn note_settled(&mut self, question: SuspensionId) {
        self.settled.push(question);
    }

    /// Takes the questions whose renderers are to be notified now.
    pub(super) fn take_settled(&mut self) -> Vec<SuspensionId> {
        std::mem::take(&mut self.settled)
    }
}

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
