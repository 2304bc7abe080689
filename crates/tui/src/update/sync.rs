//! Changes by other processes in the conversation on screen.

use super::super::app::{App, EarlyEvent, RunState};
use super::super::approval::Card;
use super::super::host::{QuestionCmd, ThreadCmd, ThreadMsg, ThreadOwner, ThreadSync};
use super::super::msg::Cmd;
use super::super::transcript::Level;
use aye_core::contract::child::TaskRecord;
use aye_core::contract::command::CommandRecord;
use aye_core::contract::display::visible_line;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::SuspensionRecord;

#[cfg(test)]
mod tests;

/// Conversations that are being opened, and earlier parts of them that are fetched.
#[derive(Debug, Default)]
pub struct ThreadLoading {
    /// The number of conversations being opened.
    pub(crate) opening: usize,
    /// Events received in the meantime that may belong to these conversations.
    pub(crate) early: Vec<(ThreadId, EarlyEvent)>,
    /// The position at which the conversation started when it was opened, set once earlier parts were
    /// fetched.
    pub(crate) fetched_from: Option<u64>,
    /// Whether an earlier part is being fetched.
    pub(crate) fetching: bool,
    /// Whether the position at which to trim the conversation is being requested.
    pub(crate) cutting: bool,
}

impl App {
    pub(super) fn thread_msg(&mut self, msg: ThreadMsg, cmds: &mut Vec<Cmd>) {
        match msg {
            ThreadMsg::Opened(opened) => {
                self.conversation.loading.opening = self.conversation.loading.opening.saturating_sub(1);
                match opened {
                    Ok(opened) => {
                        self.opened(&opened, cmds);
                        self.push_origin_notice(cmds);
                    }
                    Err(error) => self.conversation.transcript.note(Level::Error, error),
                }
                if self.conversation.loading.opening == 0 {
                    self.conversation.loading.early.clear();
                }
            }
            ThreadMsg::Earlier(thread, messages) => self.earlier_loaded(&thread, messages, cmds),
            ThreadMsg::LastHere(last) => self.last_here = Some(last).filter(|last| !last.title.is_empty()),
            ThreadMsg::Placed(thread, message, place) => self.placed(&thread, message, place),
            ThreadMsg::Started(Ok(())) => {}
            ThreadMsg::Started(Err((error, input))) => {
                self.conversation.transcript.remove_unaccepted_message();
                self.conversation.transcript.note(Level::Error, error);
                if matches!(self.conversation.run, RunState::Starting(_) | RunState::Stopping(_)) {
                    self.conversation.run = RunState::Idle;
                }
                self.restore_unsent(&[input]);
            }
            ThreadMsg::Enqueued(input, row) => self.enqueued(input, row),
            ThreadMsg::Unqueued { back, gone } => self.unqueued(&back, &gone),
            ThreadMsg::Listed(Ok(threads)) => {
                self.overlays.back.threads = threads;
                self.fill_threads();
            }
            ThreadMsg::Listed(Err(error)) => self.conversation.transcript.note(Level::Error, error),
            ThreadMsg::Synced(sync) => self.synced(sync, cmds),
            ThreadMsg::Began(thread, row) => self.began(&thread, row),
            ThreadMsg::Deferred(thread, row, input) => self.deferred(&thread, row, input),
            ThreadMsg::Lost(thread) => self.lost(&thread, cmds),
        }
    }

    /// Takes what works in the background.
    pub(super) fn take_tasks(&mut self, children: &[TaskRecord], commands: &[CommandRecord]) {
        let agents = children.iter().filter(|task| task.child.background && !task.status().is_over());
        self.conversation.tasks = agents.count() + commands.len();
        let shown =
            |command: &CommandRecord| (command.id(), visible_line(command.command.trim()).into_owned());
        self.conversation.commands = commands.iter().map(shown).collect();
    }

    /// Brings the picture in line with the store.
    pub(super) fn synced(&mut self, sync: Box<ThreadSync>, cmds: &mut Vec<Cmd>) {
        let thread = &sync.thread.id;
        if self.conversation.loading.opening > 0 {
            // The update belongs to the conversation that is being opened, or is repeated after it is open.
            self.conversation.loading.early.push((thread.clone(), EarlyEvent::Synced(sync)));
            return;
        }
        if self.conversation.id() != Some(thread) {
            return;
        }
        self.take_tasks(&sync.children, &sync.commands);
        self.conversation.moved = self.now;
        self.queue.rows.clone_from(&sync.queued);
        self.queue.rows.retain(|row| !self.queue.steered.contains(&row.id));
        self.check_unlisted_cards(&sync, cmds);
        if sync.is_part {
            // The events of this conversation's run do not report questions of its child runs.
            for record in sync.waiting.iter().filter(|record| record.thread_id != *thread) {
                self.ask_for(record, &sync);
            }
            return;
        }
        self.conversation.thread = Some(sync.thread.clone());
        self.conversation.driver =
            if sync.driver == ThreadOwner::Own { ThreadOwner::Nobody } else { sync.driver };
        self.conversation.transcript.sync(self.now, &sync, self.conversation.seen);
        self.conversation.seen = sync
            .messages
            .last()
            .map_or(self.conversation.seen, |stored| stored.seq.max(self.conversation.seen));
        for record in &sync.waiting {
            self.ask_for(record, &sync);
        }
        self.sync_run(&sync, cmds);
    }

    fn ask_for(&mut self, record: &SuspensionRecord, sync: &ThreadSync) {
        if !self.cards.over.contains_key(&record.id) {
            self.ask(Card::of(record, &sync.children));
        }
    }

    /// Updates the run's state from the store. This does not cancel a message that is being sent from here.
    fn sync_run(&mut self, sync: &ThreadSync, cmds: &mut Vec<Cmd>) {
        let is_starting = matches!(self.conversation.run, RunState::Starting(_));
        let Some(run) = &sync.run else { return };
        match run.status {
            RunStatus::Done => {
                if self.conversation.ended.as_ref() != Some(&run.id) {
                    self.conversation.ended = Some(run.id.clone());
                    self.conversation.transcript.sync_end(sync);
                    if !is_starting {
                        self.end_synced_tally();
                    }
                    if let Some(termination) = &run.termination {
                        self.take_back_own(termination, cmds);
                    }
                }
                if !is_starting {
                    self.conversation.run = RunState::Idle;
                }
            }
            RunStatus::Waiting if is_starting => {}
            // It waits for nothing but its children.
            RunStatus::Waiting if matches!(sync.driver, ThreadOwner::Other(_)) && sync.waiting.is_empty() => {
                self.conversation.run =
                    RunState::Running(self.conversation.run.active_since().unwrap_or(self.now));
            }
            RunStatus::Waiting => self.conversation.run = RunState::Waiting,
            RunStatus::Running => {
                let since = self.conversation.run.active_since().unwrap_or(self.now);
                self.conversation.run = match (sync.driver, self.conversation.run) {
                    (_, RunState::Starting(_) | RunState::Stopping(_)) => self.conversation.run,
                    // The run has no driver: its process left it and could not resume it.
                    (ThreadOwner::Nobody, _) => RunState::Idle,
                    (ThreadOwner::Own | ThreadOwner::Other(_), _) => RunState::Running(since),
                };
            }
        }
        self.conversation.run_id = Some(run.id.clone());
    }

    /// Checks cards whose questions no longer seem pending. This read may be older than a question that was
    /// just asked, so the question's row is read before its card is removed.
    fn check_unlisted_cards(&self, sync: &ThreadSync, cmds: &mut Vec<Cmd>) {
        let seem_over = self.cards.open.iter().filter(|card| {
            card.elsewhere.is_none()
                && !card.is_own()
                && !card.is_deciding()
                && sync.waiting.iter().all(|record| record.id != card.id)
        });
        cmds.extend(seem_over.map(|card| Cmd::Question(QuestionCmd::WhoAnswered(card.id.clone()))));
    }

    /// Handles a question that was closed elsewhere: its card is removed, unless the user is writing on the
    /// card.
    pub(super) fn question_closed(&mut self, record: &SuspensionRecord) {
        let what = self.what_became_of(record);
        let Some(card) = self.cards.open.iter().find(|card| card.id == record.id) else { return };
        if card.is_deciding() {
            return;
        }
        // Text being typed on the card is not discarded while the user is typing; the decision comes too late
        // all the same.
        let is_kept = card.is_written_on();
        self.cards.over.insert(record.id.clone(), format!("{what}: your decision came too late"));
        if !is_kept {
            self.remove_cards(|card| card.id == record.id);
            self.show_hint(what);
        }
    }

    /// Cards of questions that are over stay for what is being written on them, and say why it comes too late; they go
    /// when it was given up.
    pub(in super::super) fn settle_late_cards(&mut self) {
        let over = std::mem::take(&mut self.cards.over);
        self.remove_cards(|card| over.contains_key(&card.id) && !card.is_written_on() && !card.is_deciding());
        for card in &mut self.cards.open {
            if let Some(late) = over.get(&card.id).filter(|late| !late.is_empty())
                && card.problem.is_none()
            {
                card.problem = Some(late.clone());
            }
        }
        self.cards.over.extend(over);
    }

    /// Reloads the conversation from the store, because another process took it over.
    pub(super) fn lost(&mut self, thread: &ThreadId, cmds: &mut Vec<Cmd>) {
        if self.conversation.id() != Some(thread) {
            return;
        }
        self.conversation.run = RunState::Idle;
        self.conversation.loading.opening += 1;
        // A notice in the transcript that is on screen now would go away with it.
        self.conversation.loading.early.push((thread.clone(), EarlyEvent::TakenOver));
        cmds.push(Cmd::Thread(ThreadCmd::Open(Some(thread.clone()))));
    }
}
