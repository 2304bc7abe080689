//! Answers to questions, and what became of them.

use crossterm::event::KeyEvent;

use super::super::app::{App, Focus};
use super::super::approval::{Reply, Stage};
use super::super::keymap::typed;
use super::super::msg::Cmd;
use super::super::transcript::Level;
use crate::contract::ids::SuspensionId;
use crate::contract::record::{DecideOutcome, SuspensionRecord, SuspensionStatus};
use crate::contract::suspension::ResumeDecisionAction;

/// A key so soon after one that a card took is meant for the card before, not for the text.
const DOUBLE_MS: u64 = 1500;

impl App {
    /// A key while the focus is on the card. `false`: it is for the text.
    pub(super) fn card_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) -> bool {
        let now = self.now;
        let Some(card) = self.cards.get_mut(self.card) else { return false };
        if !card.was_seen(now) {
            let was_answering = self.card_key_at.is_some_and(|at| now.since(at) < DOUBLE_MS);
            if was_answering && typed(key).is_some() {
                self.say_hint("that was too quick: this is another question");
            }
            // Pressed before the card could be read: no answer to it.
            return was_answering;
        }
        let reply = card.key(key, &self.keymap, &self.info.project);
        let id = card.id.clone();
        if reply != Reply::NotMine {
            self.card_key_at = Some(now);
        }
        match reply {
            Reply::NotMine => return false,
            Reply::Taken => {}
            Reply::Decide(answer) => {
                cmds.push(Cmd::Decide(id, answer));
                self.go_to_open_card();
            }
            Reply::Grant { pattern, scope } => {
                cmds.push(Cmd::Grant(id, pattern, scope));
                self.go_to_open_card();
            }
            Reply::Stop => {
                if self.is_driven_elsewhere() {
                    self.say_who_drives();
                } else if let Some(thread) = self.thread_id() {
                    cmds.push(Cmd::Cancel(thread.clone()));
                }
            }
            Reply::Next if self.card + 1 < self.cards.len() => self.show_card(self.card + 1),
            Reply::Next => {
                self.focus = Focus::Composer;
                self.stays = true;
                self.card = 0;
            }
            Reply::Previous => self.show_card(self.card.saturating_sub(1)),
        }
        true
    }

    fn show_card(&mut self, card: usize) {
        self.card = card;
        if let Some(card) = self.cards.get_mut(card) {
            card.seen = None;
        }
    }

    /// The next card that still needs an answer.
    fn go_to_open_card(&mut self) {
        let count = self.cards.len();
        let next = (1..count).map(|by| (self.card + by) % count).find(|at| !self.cards[*at].is_deciding());
        if let Some(next) = next {
            self.show_card(next);
        }
    }

    /// Goes to the question from the text.
    pub(super) fn focus_card(&mut self) {
        if self.cards.is_empty() {
            self.say_hint("no question is open");
            return;
        }
        self.focus = Focus::Card;
        self.stays = false;
        self.card = self.cards.iter().position(|card| !card.is_deciding()).unwrap_or(0);
        self.show_card(self.card);
    }

    pub(super) fn decided(&mut self, id: &SuspensionId, outcome: Result<DecideOutcome, String>) {
        let note = match outcome {
            Err(error) => {
                if let Some(card) = self.cards.iter_mut().find(|card| card.id == *id) {
                    card.stage = Stage::Open;
                    card.problem = Some(error);
                } else {
                    self.transcript.note(Level::Error, error);
                }
                return;
            }
            Ok(DecideOutcome::Accepted(_) | DecideOutcome::Repeated(_)) => None,
            Ok(DecideOutcome::AlreadyDecided(record)) => Some(self.who_decided(&record)),
            Ok(DecideOutcome::Closed(record)) => Some(format!(
                "the question about {} was closed before your answer",
                record.ticket.pending.name
            )),
            Ok(DecideOutcome::Expired(record)) => Some(format!(
                "the question about {} had expired before your answer; it did not run",
                record.ticket.pending.name
            )),
            Ok(DecideOutcome::NotFound) => Some("the question is not known any more".to_owned()),
        };
        self.remove_cards(|card| card.id == *id);
        if let Some(note) = note {
            self.transcript.note(Level::Warning, note);
        }
    }

    /// What became of a question that was open here, told without being asked.
    pub(super) fn what_became_of(&self, record: &SuspensionRecord) -> String {
        let tool = &record.ticket.pending.name;
        match record.status {
            SuspensionStatus::Superseded => format!("the question about {tool} was closed"),
            SuspensionStatus::Expired => format!("the question about {tool} expired; it did not run"),
            SuspensionStatus::Open | SuspensionStatus::Decided | SuspensionStatus::Applied => {
                self.who_decided(record)
            }
        }
    }

    fn who_decided(&self, record: &SuspensionRecord) -> String {
        let what = match record.decision.as_ref().map(|decision| decision.action) {
            Some(ResumeDecisionAction::Resume) => "allowed",
            Some(ResumeDecisionAction::Cancel) => "declined",
            None => "answered",
        };
        let who = record.decided_by.as_ref().map_or_else(String::new, |actor| {
            format!(" by {} through {} (process {})", actor.user, actor.channel, actor.pid)
        });
        let when = record.decision.as_ref().map_or_else(String::new, |decision| {
            format!(" at {}", self.clock.hour_and_minute(decision.updated_at))
        });
        format!("{} was already {what}{who}{when}", record.ticket.pending.name)
    }
}
