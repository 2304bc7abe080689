//! Notifies the user of a new question, and closes questions that expire.

use super::super::app::App;
use super::super::approval::Card;
use super::super::msg::Cmd;
use super::super::transcript::Moment;
use crate::host::QuestionCmd;
use aye_core::contract::display::call_summary;
use aye_core::contract::terms::Notify;

/// How long after a question expires the host is asked again to handle it, in milliseconds.
const AGAIN_MS: u64 = 10_000;

impl App {
    /// Notifies the user of a question that is new, and not only shown again.
    pub(super) fn born(&self, card: &Card, cmds: &mut Vec<Cmd>) {
        if self.cards.open.iter().any(|known| known.id == card.id) {
            return;
        }
        let list = &card.question.notify;
        let bell = list.contains(&Notify::Bell) || (self.display.rings && !self.display.has_focus);
        let desktop = (list.contains(&Notify::Desktop) && !self.display.has_focus).then(|| {
            let pending = &card.ticket.pending;
            let question = card.question.choice().and_then(|choice| choice.question.clone());
            let what = question.unwrap_or_else(|| call_summary(&pending.name, &pending.arguments));
            format!("question: {what}")
        });
        if bell || desktop.is_some() {
            cmds.push(Cmd::Notify { bell, desktop });
        }
    }

    /// Resumes the run whose question expired: a waiting run has no driver.
    pub(super) fn resume_expired(&mut self, cmds: &mut Vec<Cmd>) {
        let now = self.unix_now();
        let is_due = self.cards.open.iter().any(|card| card.expires_at().is_some_and(|end| end <= now));
        if !is_due {
            self.expiry_reported = None;
            return;
        }
        if self.expiry_reported.is_some_and(|at| self.now.since(at) < AGAIN_MS) {
            return;
        }
        self.expiry_reported = Some(self.now);
        if let Some(thread) = self.conversation.id() {
            cmds.push(Cmd::Question(QuestionCmd::Expire(thread.clone())));
        }
    }

    /// When a card with an end changes its words, or ends.
    pub(in super::super) fn expiry_deadline(&self) -> Option<Moment> {
        let now = self.unix_now();
        let next = |end: u64| match end.checked_sub(now).filter(|left| *left > 0) {
            // The whole minutes that are left change then.
            Some(left) => self.now.plus((left - 1) % 60_000 + 1),
            None => self.expiry_reported.map_or(self.now, |at| at.plus(AGAIN_MS)),
        };
        self.cards.open.iter().filter_map(Card::expires_at).map(next).min()
    }
}
