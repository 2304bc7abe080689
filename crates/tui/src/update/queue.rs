//! Messages queued until their conversation is free.

use super::super::app::{App, Early, Focus, RunState};
use super::super::host::{QueuedRow, UserInput};
use super::super::keymap::{Action, Place};
use super::super::msg::Cmd;
use super::super::transcript::Level;
use aye_core::contract::activity::SteeredMessage;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::record::QueueId;

impl App {
    /// A message is in the queue now, or it is handed back.
    pub(super) fn enqueued(&mut self, input: UserInput, row: Result<QueuedRow, String>) {
        match row {
            Ok(row) => {
                if self.run == RunState::Waiting {
                    self.say_hint(match self.cards.len() {
                        1 => "queued after the pending question".to_owned(),
                        n => format!("queued after {n} pending questions"),
                    });
                }
                self.keep_row(row, Some(input));
            }
            Err(error) => {
                self.transcript.note(Level::Error, error);
                self.hand_back(&[input]);
            }
        }
    }

    fn keep_row(&mut self, row: QueuedRow, input: Option<UserInput>) {
        if self.steered.contains(&row.id) {
            return;
        }
        if let Some(input) = input {
            self.own_queued.insert(row.id, input);
        }
        // It may have been told before the answer came.
        if self.queued.iter().all(|known| known.id != row.id) {
            self.queued.push(row);
            self.queued.sort_by_key(|row| row.id);
        }
    }

    /// A message of the queue begins here.
    pub(super) fn began(&mut self, thread: &ThreadId, row: QueuedRow) {
        if self.thread_id() != Some(thread) {
            if self.opening > 0 {
                self.early.push((thread.clone(), Early::Began(row)));
            }
            return;
        }
        self.queued.retain(|known| known.id != row.id);
        self.own_queued.remove(&row.id);
        self.transcript.say_as(row.text, row.shown, row.images);
        self.run = RunState::Starting(self.now);
    }

    /// The run read what was said meanwhile.
    pub(super) fn steered(&mut self, message: SteeredMessage) {
        let SteeredMessage { queued: id, text, shown, images } = message;
        self.steered.insert(id);
        self.queued.retain(|known| known.id != id);
        self.own_queued.remove(&id);
        self.transcript.say_as(text, shown, images);
    }

    /// What was said here could not begin: another process was quicker. It will be shown where it begins.
    pub(super) fn deferred(&mut self, thread: &ThreadId, row: QueuedRow, input: UserInput) {
        if self.thread_id() != Some(thread) {
            return;
        }
        self.transcript.unsay();
        if matches!(self.run, RunState::Starting(_) | RunState::Stopping(_)) {
            self.run = RunState::Idle;
        }
        self.keep_row(row, Some(input));
    }

    /// When a run did not end by itself, the person should see what happened before more is sent.
    pub(super) fn take_back_own(&mut self, termination: &TerminationReason, cmds: &mut Vec<Cmd>) {
        let goes_on =
            matches!(termination, TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested);
        let mut own: Vec<QueueId> = self.own_queued.keys().copied().collect();
        if !goes_on && !own.is_empty() {
            own.sort_unstable();
            cmds.push(Cmd::Unqueue(own));
        }
    }

    /// A key in an empty text that is about what is queued: one message comes back at once, of several one is chosen
    /// first. `false`: it is about something else, and nothing is chosen any more.
    pub(super) fn queued_key(&mut self, action: Option<Action>, cmds: &mut Vec<Cmd>) -> bool {
        if !self.composer.is_empty() || self.queued.is_empty() {
            self.queued_at = None;
            return false;
        }
        let at = self.queued_at.and_then(|id| self.queued.iter().position(|row| row.id == id));
        let Some(at) = at else {
            let Some(last) = self.queued.last().filter(|_| action == Some(Action::Up)) else { return false };
            if self.queued.len() == 1 {
                cmds.push(Cmd::Unqueue(vec![last.id]));
            } else {
                self.queued_at = Some(last.id);
            }
            return true;
        };
        let id = self.queued[at].id;
        match action {
            Some(Action::Up) => self.queued_at = Some(self.queued[at.saturating_sub(1)].id),
            Some(Action::Down) => self.queued_at = self.queued.get(at + 1).map(|row| row.id),
            Some(Action::Accept) => {
                self.queued_at = None;
                // It may be here still because dropping it did not work.
                self.dropped.remove(&id);
                cmds.push(Cmd::Unqueue(vec![id]));
            }
            Some(Action::Drop) => {
                let next = self.queued.get(at + 1).or_else(|| self.queued.get(at.checked_sub(1)?));
                self.queued_at = next.map(|row| row.id);
                self.dropped.insert(id);
                cmds.push(Cmd::Unqueue(vec![id]));
            }
            Some(Action::Close) => self.queued_at = None,
            _ => {
                self.queued_at = None;
                return false;
            }
        }
        true
    }

    /// A click on one that is queued does what its keys do: of several it is chosen first.
    pub(super) fn press_queued(&mut self, at: usize, cmds: &mut Vec<Cmd>) {
        let Some(id) = self.queued.get(at).map(|row| row.id) else { return };
        if !self.composer.is_empty() {
            self.say_hint("send or clear the draft first, then edit the queued message");
            return;
        }
        self.focus = Focus::Composer;
        let is_chosen = self.queued.len() == 1 || self.queued_at == Some(id);
        self.queued_at = Some(id);
        if is_chosen {
            self.queued_key(Some(Action::Accept), cmds);
        }
    }

    /// What is chosen may have been read or begun meanwhile.
    pub(crate) fn see_to_chosen_queued(&mut self) {
        let is_there = |id: &QueueId| self.queued.iter().any(|row| row.id == *id);
        self.queued_at = self.queued_at.filter(|id| self.composer.is_empty() && is_there(id));
    }

    pub(super) fn unqueued(&mut self, back: &[QueueId], gone: &[QueueId]) {
        let mut inputs = Vec::new();
        for id in back {
            let row = self
                .queued
                .iter()
                .find(|row| row.id == *id)
                .map(|row| UserInput { images: row.images.clone(), ..UserInput::text(row.text.clone()) });
            let own = self.own_queued.remove(id);
            if self.dropped.remove(id) {
                let text =
                    own.map(|input| input.written()).or_else(|| row.map(|row| row.text)).unwrap_or_default();
                self.composer.keep_killed(text);
                let chord = self.keymap.chord_of(Place::Composer, Action::Yank);
                self.say_hint(format!("dropped; {chord} pastes its text"));
                continue;
            }
            inputs.extend(own.or(row));
        }
        if gone.iter().any(|id| self.dropped.remove(id)) {
            self.say_hint("the message is no longer queued; the model read it or its run started");
        }
        self.queued.retain(|row| !back.contains(&row.id) && !gone.contains(&row.id));
        self.own_queued.retain(|id, _| !gone.contains(id));
        self.hand_back(&inputs);
        if !inputs.is_empty() {
            self.say_hint("queued message moved to the composer");
        }
    }
}
