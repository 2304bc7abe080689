//! Events of runs, and opened conversations.

use std::collections::VecDeque;

use super::super::app::{App, EarlyEvent, Focus, RunState};
use super::super::approval::{Card, CardKind};
use super::super::host::{
    OpenedThread, ProgramCmd, QuestionCmd, ThreadCmd, ThreadOwner, UserInput, WritingCmd,
};
use super::super::msg::Cmd;
use super::super::status::{cost, duration};
use super::super::tally::RunTally;
use super::super::transcript::{EntryKind, Level, ToolEntry, ToolState, Transcript};
use aye_core::contract::activity::KnownActivity;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason, ToolCallOutcome};
use aye_core::contract::record::SuspensionStatus;

impl App {
    pub(super) fn agent(&mut self, thread: &ThreadId, event: &AgentEvent, cmds: &mut Vec<Cmd>) {
        if self.conversation.id() != Some(thread) {
            // It may belong to the conversation that is being opened.
            if self.conversation.loading.opening > 0 {
                self.conversation
                    .loading
                    .early
                    .push((thread.clone(), EarlyEvent::Agent(Box::new(event.clone()))));
            }
            return;
        }
        self.conversation.moved = self.now;
        match event {
            AgentEvent::RunStart { run_id, .. } => {
                self.conversation.run_id = Some(RunId::from(run_id.as_str()));
                self.conversation.driver = ThreadOwner::Nobody;
                self.conversation.transcript.accept_words();
                if !matches!(self.conversation.run, RunState::Running(_) | RunState::Stopping(_)) {
                    self.conversation.run =
                        RunState::Running(self.conversation.run.active_since().unwrap_or(self.now));
                }
            }
            AgentEvent::ToolCallDone { id, result, outcome, .. } => {
                if *outcome == ToolCallOutcome::Suspended {
                    // A call that another agent works on does not ask the user.
                    let asks = result.suspension.as_ref().filter(|ticket| !ticket.is_served());
                    if let (Some(ticket), Some(run)) = (asks, self.conversation.run_id.clone()) {
                        let card = Card::new(thread.clone(), run, (**ticket).clone());
                        self.born(&card, cmds);
                        self.ask(card);
                    }
                } else {
                    self.drop_cards_of(id, cmds);
                }
            }
            AgentEvent::ActivitySnapshot { activity_type, content, .. } => {
                if let Some(KnownActivity::Steered(message)) = KnownActivity::of(activity_type, content) {
                    self.steered(message);
                    return;
                }
            }
            AgentEvent::ToolCallResumed { target_id, .. } => self.drop_cards_of(target_id, cmds),
            AgentEvent::RunFinish { run_id, termination, .. } => {
                let is_current =
                    self.conversation.run_id.as_ref().is_none_or(|known| known.as_str() == run_id);
                // A run that could not even be loaded has no id.
                let is_current = is_current || run_id.is_empty();
                let is_superseded = matches!(self.conversation.run, RunState::Starting(_));
                if is_superseded && *termination == TerminationReason::Cancelled {
                    // A new message closed the waiting run; this is not an interruption.
                    let quiet = AgentEvent::RunFinish {
                        thread_id: thread.to_string(),
                        run_id: run_id.clone(),
                        result: None,
                        termination: TerminationReason::BehaviorRequested,
                    };
                    self.conversation.transcript.apply(self.now, &quiet);
                    self.remove_cards(|card| card.elsewhere.is_none() && !card.is_own());
                    return;
                }
                self.conversation.transcript.accept_words();
                self.conversation.transcript.apply(self.now, event);
                if is_current {
                    self.run_finished(termination, cmds);
                }
                return;
            }
            _ => {}
        }
        self.conversation.transcript.apply(self.now, event);
    }

    fn run_finished(&mut self, termination: &TerminationReason, cmds: &mut Vec<Cmd>) {
        self.conversation.last_run_ms =
            self.conversation.run.active_since().map(|since| self.now.since(since));
        if let Some(tally) = &mut self.conversation.tally {
            tally.active_ms += self.conversation.last_run_ms.unwrap_or_default();
        }
        if self.info.branch.is_some() {
            cmds.push(Cmd::Program(ProgramCmd::Info));
        }
        if *termination == TerminationReason::Suspended {
            self.conversation.run = RunState::Waiting;
            return;
        }
        self.conversation.run = RunState::Idle;
        self.end_tally();
        self.dismiss_closed_cards(|card| card.elsewhere.is_none() && !card.is_own(), cmds);
        self.conversation.ended.clone_from(&self.conversation.run_id);
        self.take_back_own(termination, cmds);
        self.offer_plan(termination);
    }

    /// Starts to count for a new run.
    pub(super) fn begin_tally(&mut self) {
        let (from, cost) = (self.conversation.transcript.next_id(), cost(self).unwrap_or_default());
        self.conversation.tally = Some(RunTally { from, cost, ..RunTally::default() });
        self.conversation.transcript.end_plan();
    }

    /// Says what a run of this terminal did that another driver finished: a server in this process, or another one.
    pub(super) fn end_synced_tally(&mut self) {
        let worked = self.conversation.run.active_since().map(|since| self.now.since(since));
        if let Some(tally) = &mut self.conversation.tally {
            tally.active_ms += worked.unwrap_or_default();
        }
        self.end_tally();
    }

    /// Says what the run did, unless it only answered.
    fn end_tally(&mut self) {
        let Some(tally) = self.conversation.tally.take() else { return };
        let calls: Vec<&ToolEntry> = self
            .conversation
            .transcript
            .entries()
            .iter()
            .rev()
            .take_while(|entry| entry.id >= tally.from)
            .filter_map(|entry| match &entry.kind {
                EntryKind::Tool(tool) => Some(&**tool),
                _ => None,
            })
            .collect();
        if calls.is_empty() {
            return;
        }
        let changes: Vec<_> = calls.iter().filter_map(|tool| change_of(tool)).collect();
        // Every run took some time.
        let worked = duration(tally.active_ms.max(100));
        let line = tally.line(&worked, calls.len(), &changes, cost(self).unwrap_or_default());
        self.conversation.transcript.note(Level::Summary, line);
    }

    /// Puts messages that were not sent back into the text.
    pub(super) fn restore_unsent(&mut self, inputs: &[UserInput]) {
        for input in inputs.iter().rev() {
            let written = input.written();
            if let Some(draft) = &input.draft {
                self.composer.restore(draft.clone());
            } else if !written.is_empty() {
                self.composer.restore_marks(&written, &input.images);
                self.composer.put_back(&written);
            }
        }
    }

    pub(super) fn ask(&mut self, card: Card) {
        if self.cards.open.iter().all(|known| known.id != card.id) {
            // The question of trust comes last: what a run asks stops the run.
            let trust = self.cards.open.iter().position(|card| card.kind == CardKind::Trust);
            if let Some(tally) = &mut self.conversation.tally
                && card.elsewhere.is_none()
                && !card.is_own()
            {
                tally.asked += 1;
            }
            self.cards.open.insert(trust.unwrap_or(self.cards.open.len()), card);
            self.cards.stays = false;
        }
    }

    fn drop_cards_of(&mut self, call_id: &str, cmds: &mut Vec<Cmd>) {
        // A call of another conversation, or of a child, may have the same id.
        let shown = self.conversation.id().cloned();
        self.dismiss_closed_cards(
            |card| {
                card.elsewhere.is_none()
                    && Some(&card.thread_id) == shown.as_ref()
                    && card.ticket.pending.id.as_str() == call_id
            },
            cmds,
        );
    }

    /// Removes cards whose questions are closed. A card the user is writing on stays until the text is
    /// discarded or sent, and explains why it is too late; unless the user's own new message closed the
    /// question.
    fn dismiss_closed_cards(&mut self, which: impl Fn(&Card) -> bool, cmds: &mut Vec<Cmd>) {
        let stay = !matches!(self.conversation.run, RunState::Starting(_));
        for card in self.cards.open.iter().filter(|card| stay && which(card) && card.is_written_on()) {
            self.cards.over.entry(card.id.clone()).or_default();
            cmds.push(Cmd::Question(QuestionCmd::WhoAnswered(card.id.clone())));
        }
        self.remove_cards(|card| which(card) && !(stay && card.is_written_on()));
    }

    pub(super) fn remove_cards(&mut self, which: impl Fn(&Card) -> bool) {
        let before = self.cards.open.iter().take(self.cards.at).filter(|card| which(card)).count();
        let is_current = self.current_card().is_some_and(&which);
        for card in self.cards.open.iter().filter(|card| which(card)) {
            self.cards.over.entry(card.id.clone()).or_default();
        }
        self.cards.open.retain(|card| !which(card));
        if let Some((_, ids)) = &self.cards.batch
            && !self.cards.open.iter().any(|card| ids.contains(&card.id))
        {
            self.cards.batch = None;
        }
        self.cards.at = self.cards.at.saturating_sub(before).min(self.cards.open.len().saturating_sub(1));
        if is_current {
            // A key meant for the previous card must not answer the one in its place.
            self.show_card(self.cards.at);
            if self.asking_card().is_none() {
                self.focus = Focus::Composer;
            }
        }
    }

    /// Says something, or queues it until the run is over; `behind`: also until open questions are answered.
    pub(super) fn submit(&mut self, mut input: UserInput, behind: bool, cmds: &mut Vec<Cmd>) {
        self.cards.stays = false;
        // A shell command of the user supersedes no question.
        let behind = behind || (input.shell.is_some() && self.conversation.run == RunState::Waiting);
        let Some(thread) = self.conversation.id().cloned() else {
            self.queue.unsent.push_back(input);
            return;
        };
        let is_free = match self.conversation.run {
            // Messages queued earlier go first.
            RunState::Idle => self.queue.rows.is_empty() && !behind,
            RunState::Waiting => !behind,
            RunState::Starting(_) | RunState::Running(_) | RunState::Stopping(_) => false,
        };
        if is_free {
            self.start(input, cmds);
        } else {
            let is_working = matches!(self.conversation.run, RunState::Starting(_) | RunState::Running(_));
            input.steers = is_working && !behind && input.shell.is_none();
            cmds.push(Cmd::Thread(ThreadCmd::Enqueue(thread, input)));
        }
    }

    pub(super) fn start(&mut self, input: UserInput, cmds: &mut Vec<Cmd>) {
        let Some(thread) = self.conversation.id().cloned() else { return };
        let shown = input.shown().map(str::to_owned);
        self.conversation.transcript.push_unaccepted_message(input.written(), shown, input.images.clone());
        self.begin_tally();
        self.conversation.run = RunState::Starting(self.now);
        self.display.hint = None;
        cmds.push(Cmd::Thread(ThreadCmd::Start(thread, input)));
    }

    pub(super) fn opened(&mut self, opened: &OpenedThread, cmds: &mut Vec<Cmd>) {
        let notes: Vec<_> = if self.conversation.thread.is_none() {
            // Errors from before the first conversation was open stay on the screen.
            self.conversation.transcript.entries().iter().map(|entry| entry.kind.clone()).collect()
        } else {
            Vec::new()
        };
        let earlier: VecDeque<UserInput> = std::mem::take(&mut self.queue.unsent);
        self.conversation.transcript = Transcript::from_thread(opened);
        self.shows_another();
        for note in notes {
            if let super::super::transcript::EntryKind::Notice { level, text } = note {
                self.conversation.transcript.note(level, text);
            }
        }
        let sent = self.conversation.transcript.sent_drafts();
        if self.kept.text.is_empty() {
            // Another process may have left a draft of a conversation that was open here before.
            self.kept.thread = None;
        }
        cmds.push(Cmd::Writing(WritingCmd::Draft(opened.thread.id.clone(), sent.is_empty())));
        self.composer.set_history(sent);
        self.conversation.epoch += 1;
        self.cards.over.clear();
        self.conversation.seen = opened.messages.last().map_or(0, |stored| stored.seq);
        self.conversation.driver = opened.driver;
        self.take_tasks(&opened.children, &opened.commands);
        self.queue.rows.clone_from(&opened.queued);
        self.conversation.thread = Some(opened.thread.clone());
        self.conversation.run_id = opened.run.as_ref().map(|run| run.id.clone());
        self.conversation.tally = None;
        self.cards.open = opened
            .waiting
            .iter()
            .filter(|record| record.status == SuspensionStatus::Open)
            .map(|record| Card::of(record, &opened.children))
            .collect();
        self.cards.at = 0;
        self.offer_trust();
        self.count_elsewhere(cmds);
        self.cards.batch = None;
        self.focus = Focus::Composer;
        self.cards.stays = false;
        self.conversation.run = match opened.run.as_ref().map(|run| run.status) {
            Some(RunStatus::Running) => RunState::Running(self.now),
            // It waits for nothing but its children.
            Some(RunStatus::Waiting)
                if matches!(opened.driver, ThreadOwner::Other(_)) && opened.waiting.is_empty() =>
            {
                RunState::Running(self.now)
            }
            Some(RunStatus::Waiting) => RunState::Waiting,
            Some(RunStatus::Done) | None => RunState::Idle,
        };
        let over = opened.run.as_ref().filter(|run| run.status == RunStatus::Done);
        self.conversation.ended = over.map(|run| run.id.clone());
        if let Some(TerminationReason::Error(why)) =
            opened.run.as_ref().and_then(|run| run.termination.as_ref())
        {
            self.conversation.transcript.note(Level::Error, why.clone());
        }
        if let Some(TerminationReason::Stopped(why)) =
            opened.run.as_ref().and_then(|run| run.termination.as_ref())
        {
            self.conversation.transcript.push_stopped_notice(why);
        }
        // Events that overtook the answer.
        for (thread, early) in std::mem::take(&mut self.conversation.loading.early) {
            match early {
                EarlyEvent::Agent(event) => self.agent(&thread, &event, cmds),
                EarlyEvent::Synced(sync) => self.synced(sync, cmds),
                EarlyEvent::Began(row) => self.began(&thread, row),
                EarlyEvent::TakenOver if self.conversation.id() == Some(&thread) => {
                    self.conversation
                        .transcript
                        .note(Level::Warning, "another process took over this conversation");
                }
                EarlyEvent::TakenOver => {}
            }
        }
        for input in earlier {
            self.submit(input, self.queue.keeps_waiting, cmds);
        }
    }
}

/// The file that a call changed, and its numbers of added and removed lines.
fn change_of(tool: &ToolEntry) -> Option<(&str, u64, u64)> {
    if tool.state != ToolState::Done || !matches!(tool.name.as_str(), "Edit" | "Write") {
        return None;
    }
    let details = tool.result.as_ref()?.details.as_ref()?;
    let number = |key: &str| details.get(key)?.as_u64();
    Some((tool.arguments.get("file_path")?.as_str()?, number("added")?, number("removed")?))
}
