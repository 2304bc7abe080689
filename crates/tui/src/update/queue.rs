//! Messages queued until their conversation is free.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::app::{App, EarlyEvent, Focus, RunState};
use super::super::host::{QueuedRow, ThreadCmd, UserInput};
use super::super::keymap::{Action, KeyContext};
use super::super::msg::Cmd;
use super::super::transcript::Level;
use aye_core::contract::activity::SteeredMessage;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::record::QueueId;

/// Messages that wait for their turn.
#[derive(Debug, Default)]
pub struct MessageQueue {
    /// Those to be sent when the conversation is open.
    pub unsent: VecDeque<UserInput>,
    /// Those that the store keeps until the conversation is free.
    pub rows: Vec<QueuedRow>,
    /// The row that the arrows are at.
    pub at: Option<QueueId>,
    /// Whether messages leave pending questions open: they then start after the questions are answered.
    pub keeps_waiting: bool,
    /// The messages queued here, as they were typed.
    pub(crate) own: HashMap<QueueId, UserInput>,
    /// Rows that the user took out of the queue to discard.
    pub(crate) dropped: HashSet<QueueId>,
    /// Rows that a run consumed; a stale listing must not restore them.
    pub(crate) steered: HashSet<QueueId>,
}

impl MessageQueue {
    /// Adds a row, with what was written here.
    fn keep(&mut self, row: QueuedRow, input: Option<UserInput>) {
        if self.steered.contains(&row.id) {
            return;
        }
        if let Some(input) = input {
            self.own.insert(row.id, input);
        }
        // The row may have been reported before the answer arrived.
        if self.rows.iter().all(|known| known.id != row.id) {
            self.rows.push(row);
            self.rows.sort_by_key(|row| row.id);
        }
    }

    /// Removes a row whose message starts a run or was read by one.
    fn begin(&mut self, id: QueueId) {
        self.rows.retain(|known| known.id != id);
        self.own.remove(&id);
    }

    /// Handles a key for the rows and returns the rows to take out of the queue. Returns `None` if the key is
    /// for something else; no row is selected then.
    fn key(&mut self, action: Option<Action>) -> Option<Vec<QueueId>> {
        let at = self.at.take().and_then(|id| self.rows.iter().position(|row| row.id == id));
        let Some(at) = at else {
            let last = self.rows.last().filter(|_| action == Some(Action::Up))?.id;
            if self.rows.len() == 1 {
                return Some(vec![last]);
            }
            self.at = Some(last);
            return Some(Vec::new());
        };
        let id = self.rows[at].id;
        match action? {
            Action::Up => self.at = Some(self.rows[at.saturating_sub(1)].id),
            Action::Down => self.at = self.rows.get(at + 1).map(|row| row.id),
            Action::Accept => {
                // It may be here still because dropping it did not work.
                self.dropped.remove(&id);
                return Some(vec![id]);
            }
            Action::Drop => {
                let next = self.rows.get(at + 1).or_else(|| self.rows.get(at.checked_sub(1)?));
                self.at = next.map(|row| row.id);
                self.dropped.insert(id);
                return Some(vec![id]);
            }
            Action::Close => {}
            _ => return None,
        }
        Some(Vec::new())
    }

    /// Returns the message of a row: as it was typed if it was queued here, else as it is stored.
    fn input_of(&mut self, id: QueueId) -> Option<UserInput> {
        let stored =
            |row: &QueuedRow| UserInput { images: row.images.clone(), ..UserInput::text(row.text.clone()) };
        let row = || self.rows.iter().find(|row| row.id == id).map(stored);
        self.own.get(&id).cloned().or_else(row)
    }
}

impl App {
    /// A message is in the queue now, or it is handed back.
    pub(super) fn enqueued(&mut self, input: UserInput, row: Result<QueuedRow, String>) {
        match row {
            Ok(row) => {
                if self.conversation.run == RunState::Waiting {
                    self.show_hint(match self.cards.open.len() {
                        1 => "queued after the pending question".to_owned(),
                        n => format!("queued after {n} pending questions"),
                    });
                }
                self.queue.keep(row, Some(input));
            }
            Err(error) => {
                self.conversation.transcript.note(Level::Error, error);
                self.restore_unsent(&[input]);
            }
        }
    }

    /// Handles the start of a queued message.
    pub(super) fn began(&mut self, thread: &ThreadId, row: QueuedRow) {
        if self.conversation.id() != Some(thread) {
            if self.conversation.loading.opening > 0 {
                self.conversation.loading.early.push((thread.clone(), EarlyEvent::Began(row)));
            }
            return;
        }
        self.queue.begin(row.id);
        if row.is_report {
            self.conversation.transcript.report(&row.text);
        } else {
            self.conversation.transcript.push_user_message_as(row.text, row.shown, row.images);
        }
        self.begin_tally();
        self.conversation.run = RunState::Starting(self.now);
    }

    /// The run read what was said meanwhile.
    pub(super) fn steered(&mut self, message: SteeredMessage) {
        let SteeredMessage { queued: id, text, shown, images, is_report } = message;
        self.queue.steered.insert(id);
        self.queue.begin(id);
        if is_report {
            self.conversation.transcript.report(&text);
        } else {
            self.conversation.transcript.push_user_message_as(text, shown, images);
        }
    }

    /// Handles a message sent here that could not start, because another process was faster. The message will
    /// be shown where it starts.
    pub(super) fn deferred(&mut self, thread: &ThreadId, row: QueuedRow, input: UserInput) {
        if self.conversation.id() != Some(thread) {
            return;
        }
        self.conversation.transcript.remove_unaccepted_message();
        if matches!(self.conversation.run, RunState::Starting(_) | RunState::Stopping(_)) {
            self.conversation.run = RunState::Idle;
        }
        self.queue.keep(row, Some(input));
    }

    /// Takes this user's messages out of the queue if the run did not end normally: the user should see what
    /// happened before more is sent.
    pub(super) fn take_back_own(&mut self, termination: &TerminationReason, cmds: &mut Vec<Cmd>) {
        let mut own: Vec<QueueId> = self.queue.own.keys().copied().collect();
        if !termination.went_well() && !own.is_empty() {
            own.sort_unstable();
            cmds.push(Cmd::Thread(ThreadCmd::Unqueue(own)));
        }
    }

    /// A key in an empty text that is about what is queued: one message comes back at once, of several one is chosen
    /// first. `false`: it is about something else, and nothing is chosen any more.
    pub(super) fn queued_key(&mut self, action: Option<Action>, cmds: &mut Vec<Cmd>) -> bool {
        if !self.composer.is_empty() || self.queue.rows.is_empty() {
            self.queue.at = None;
            return false;
        }
        let Some(back) = self.queue.key(action) else { return false };
        if !back.is_empty() {
            cmds.push(Cmd::Thread(ThreadCmd::Unqueue(back)));
        }
        true
    }

    /// A click on one that is queued does what its keys do: of several it is chosen first.
    pub(super) fn press_queued(&mut self, at: usize, cmds: &mut Vec<Cmd>) {
        let Some(id) = self.queue.rows.get(at).map(|row| row.id) else { return };
        if !self.composer.is_empty() {
            self.show_hint("send or clear the draft first, then edit the queued message");
            return;
        }
        self.focus = Focus::Composer;
        let is_chosen = self.queue.rows.len() == 1 || self.queue.at == Some(id);
        self.queue.at = Some(id);
        if is_chosen {
            self.queued_key(Some(Action::Accept), cmds);
        }
    }

    /// Clears the selection if its message was read or started in the meantime, or if text was typed.
    pub(crate) fn clear_stale_queue_selection(&mut self) {
        let is_there = |id: &QueueId| self.queue.rows.iter().any(|row| row.id == *id);
        self.queue.at = self.queue.at.filter(|id| self.composer.is_empty() && is_there(id));
    }

    pub(super) fn unqueued(&mut self, back: &[QueueId], gone: &[QueueId]) {
        let mut inputs = Vec::new();
        for id in back {
            let input = self.queue.input_of(*id);
            if self.queue.dropped.remove(id) {
                self.composer.keep_killed(input.map(|input| input.written()).unwrap_or_default());
                let chord = self.keymap.chord_of(KeyContext::Composer, Action::Yank);
                self.show_hint(format!("dropped; {chord} pastes its text"));
                continue;
            }
            inputs.extend(input);
        }
        if gone.iter().any(|id| self.queue.dropped.remove(id)) {
            self.show_hint("the message is no longer queued; the model read it or its run started");
        }
        self.queue.rows.retain(|row| !back.contains(&row.id) && !gone.contains(&row.id));
        self.queue.own.retain(|id, _| !back.contains(id) && !gone.contains(id));
        self.restore_unsent(&inputs);
        if !inputs.is_empty() {
            self.show_hint("queued message moved to the composer");
        }
    }
}
