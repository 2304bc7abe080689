//! Decisions on questions, and their results.

use std::collections::HashMap;

use crossterm::event::KeyEvent;
use serde_json::Value;

use super::super::app::{App, Focus, RunState};
use super::super::approval::{Batch, BodyWindow, Card, CardAction, CardKind, CardStage};
use super::super::host::{Mode, ProgramCmd, QuestionCmd, Review, ThreadCmd, UserInput};
use super::super::keymap::{Action, KeyContext, typed};
use super::super::msg::Cmd;
use super::super::palette::HostPage;
use super::super::transcript::{EntryKind, Level, Moment};
use super::super::viewer::Document;
use aye_core::contract::grant::GrantPreview;
use aye_core::contract::ids::SuspensionId;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::record::{DecideOutcome, SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{ACTION_WAIT, Answer};

/// The first word after `/serve` that asks for the link to a question; its id follows.
pub const SERVED_CARD: &str = "card";

/// A character typed this soon after a key that a card took is meant for that card, not for the text.
const DOUBLE_MS: u64 = 1500;

/// Open questions, as cards.
#[derive(Debug, Default)]
pub struct QuestionCards {
    /// The cards, oldest first.
    pub open: Vec<Card>,
    /// The place of the card that is shown whole.
    pub at: usize,
    /// Several cards that are about to get one answer.
    pub batch: Option<(Batch, Vec<SuspensionId>)>,
    /// The question that was chosen from the list and is being fetched.
    pub(crate) chosen: Option<SuspensionId>,
    /// Closed questions of the conversation, with their outcome as far as it is known: an earlier read of the
    /// store must not bring them back.
    pub(crate) over: HashMap<SuspensionId, String>,
    /// When a card last took the focus without the user's action.
    pub(crate) focused_at: Moment,
    /// When a card last took a key.
    pub(crate) key_at: Option<Moment>,
    /// The scope of the last grant, by its place in the list of scopes.
    pub(crate) last_scope: Option<usize>,
    /// The user left the cards for the text: they do not take the focus by themselves again.
    pub(crate) stays: bool,
}

impl QuestionCards {
    /// The card that is shown whole.
    pub fn current(&self) -> Option<&Card> {
        self.open.get(self.at)
    }

    /// Prepares the cards for a new layout, which changes their rows: a card that was not shown to its end
    /// must be read again from its start.
    pub(crate) fn are_laid_out_anew(&mut self) {
        for card in self.open.iter_mut().filter(|card| card.is_unread) {
            card.read = 0;
        }
    }
}

impl App {
    /// Shows the call of the current card in the viewer.
    fn show_whole_card(&mut self) {
        if self.display.is_linear {
            self.show_hint("everything was already read out; the screen reader mode has no viewer");
        } else if let Some(card) = self.current_card() {
            let title = super::super::view::question(card, self);
            let home = self.info.home.as_deref();
            let document = Document::of_call(title, card.arguments(), card.previews(), home);
            self.open_document(document);
        }
    }

    /// A key while the focus is on the card. `false`: it is for the text.
    pub(super) fn card_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) -> bool {
        let now = self.now;
        let is_stop = self.keymap.action(KeyContext::Card, key) == Some(Action::Stop);
        if is_stop && self.asking_card().is_none() {
            // Esc stops the run, as it does beside the text.
            return false;
        }
        let Some(card) = self.cards.open.get_mut(self.cards.at) else { return false };
        if !card.was_seen(now) {
            let was_answering = self.cards.key_at.is_some_and(|at| now.since(at) < DOUBLE_MS);
            if was_answering && typed(key).is_some() {
                self.show_hint("key ignored: new question");
            }
            // Pressed before the card could be read: no answer to it.
            return was_answering;
        }
        if self.cards.batch.is_some() {
            self.cards.key_at = Some(now);
            let window = self.body_window(key);
            if let Some(card) = self.cards.open.get_mut(self.cards.at) {
                card.window = window.unwrap_or(card.window);
            }
            self.batch_key(key, cmds);
            return true;
        }
        // A rule is made with the rules and the history of its own project in sight.
        let is_of_other = card.elsewhere.as_ref().is_some_and(|of| of.project != self.info.project);
        let is_grant = self.keymap.action(KeyContext::Card, key) == Some(Action::Grant);
        let takes_words = matches!(card.kind, CardKind::Ask | CardKind::Form);
        if is_of_other
            && is_grant
            && !takes_words
            && matches!(card.stage, CardStage::Open)
            && card.line().is_none()
        {
            let chord = self.keymap.chord_of(KeyContext::List, Action::Jump);
            card.problem = Some(format!(
                "this call belongs to another project; grant a rule in its own conversation ({chord} in the \
                 inbox opens it)"
            ));
            self.cards.key_at = Some(now);
            return true;
        }
        let is_written = takes_words || card.line().is_some() || matches!(card.stage, CardStage::Edit(_));
        if !is_written && self.keymap.action(KeyContext::Card, key) == Some(Action::ToggleSides) {
            self.cards.key_at = Some(now);
            self.toggle_sides();
            return true;
        }
        let is_call = matches!(card.kind, CardKind::Permission | CardKind::Unknown);
        let action = self.keymap.action(KeyContext::Card, key);
        let shows = matches!(action, Some(Action::WholeCard | Action::Phone));
        if is_call && shows && matches!(card.stage, CardStage::Open) {
            self.cards.key_at = Some(now);
            if action == Some(Action::Phone) {
                let words = format!("{SERVED_CARD} {}", card.id);
                let thread = Some(card.thread_id.clone());
                self.show_hint("serving this folder …");
                cmds.push(Cmd::Program(ProgramCmd::Page(thread, HostPage::Serve, words)));
            } else {
                self.show_whole_card();
            }
            return true;
        }
        let window = self.body_window(key);
        let Some(card) = self.cards.open.get_mut(self.cards.at) else { return false };
        card.window = window.unwrap_or(card.window);
        card.fit(self.display.size.0.saturating_sub(super::super::view::CARD_TEXT));
        let project = card.project(&self.info.project).to_path_buf();
        card.last_scope = self.cards.last_scope;
        card.is_spoken = self.display.is_linear;
        let scope = card.form().map(|form| form.scope);
        let reply = card.key(key, &self.keymap, &project);
        card.fit(self.display.size.0.saturating_sub(super::super::view::CARD_TEXT));
        let (id, is_of_tools) = (card.id.clone(), card.is_of_tools());
        self.ask_for_preview(cmds);
        if reply != CardAction::NotMine {
            self.cards.key_at = Some(now);
        }
        match reply {
            CardAction::NotMine => return false,
            CardAction::Taken => {}
            CardAction::Decide(answer) => {
                if answer.grant.is_some() {
                    self.cards.last_scope = scope;
                }
                cmds.push(Cmd::Question(QuestionCmd::Decide(id, answer)));
                self.go_to_open_card();
            }
            CardAction::Dismiss => self.dismiss_card(&id),
            CardAction::AcceptPlan(mode) => self.accept_plan(&id, mode, cmds),
            CardAction::Trust(is_yes) if is_of_tools => self.use_tools(is_yes, cmds),
            CardAction::Trust(true) => cmds.push(Cmd::Program(ProgramCmd::Trust)),
            CardAction::Trust(false) => self.leave_untrusted(),
            CardAction::Review(arguments) => cmds.push(Cmd::Question(QuestionCmd::Review(id, arguments))),
            CardAction::Editor(draft) => cmds.push(Cmd::Editor(id, draft)),
            CardAction::Batch(which) => self.begin_batch(which),
            CardAction::Stop => {
                if self.is_driven_elsewhere() {
                    if let Some(card) = self.card_of(&id) {
                        card.stage = CardStage::Open;
                    }
                    self.show_driver_hint();
                } else if let Some(thread) = self.conversation.id() {
                    cmds.push(Cmd::Thread(ThreadCmd::Cancel(thread.clone())));
                }
            }
            CardAction::Next if self.cards.at + 1 < self.cards.open.len() => {
                self.show_card(self.cards.at + 1);
            }
            CardAction::Next => {
                self.focus = Focus::Composer;
                self.cards.stays = true;
                self.cards.at = 0;
            }
            CardAction::Previous => self.show_card(self.cards.at.saturating_sub(1)),
        }
        true
    }

    /// Asks what to do with the plan that a run ended with.
    pub(super) fn offer_plan(&mut self, termination: &TerminationReason) {
        let last = self.conversation.transcript.entries().last().map(|entry| &entry.kind);
        let is_plan = *termination == TerminationReason::NaturalEnd
            && self.info.mode == Mode::Plan
            && matches!(last, Some(EntryKind::Assistant { .. }))
            && self.queue.rows.is_empty()
            && self.own_cards() == 0;
        if let (true, Some(thread), Some(run)) =
            (is_plan, self.conversation.id().cloned(), self.conversation.run_id.clone())
        {
            self.ask(Card::plan(thread, run));
        }
    }

    /// Removes the card of a plan when there is nothing left to carry out.
    pub(in super::super) fn drop_finished_plan(&mut self) {
        if self.info.mode != Mode::Plan || !matches!(self.conversation.run, RunState::Idle) {
            self.remove_cards(|card| card.kind == CardKind::Plan);
        }
    }

    fn accept_plan(&mut self, id: &SuspensionId, mode: Option<Mode>, cmds: &mut Vec<Cmd>) {
        self.remove_cards(|card| card.id == *id);
        match mode {
            Some(mode) => {
                self.info.mode = mode;
                cmds.push(Cmd::Program(ProgramCmd::SetMode(mode)));
                self.submit(UserInput::text("Go ahead: carry out the plan."), false, cmds);
            }
            None => self.show_hint("write what to change in the plan"),
        }
    }

    /// Returns how the body of the card fits on the screen, for keys that scroll the body.
    fn body_window(&self, key: KeyEvent) -> Option<BodyWindow> {
        use Action as A;
        let action = self.keymap.action(KeyContext::Card, key)?;
        if !matches!(action, A::ScrollUp | A::ScrollDown | A::PageUp | A::PageDown) {
            return None;
        }
        let (from, to, total) = super::super::view::card_window(self)?;
        let rows = to - from;
        Some(BodyWindow { last_scroll: total.saturating_sub(rows), rows })
    }

    fn card_of(&mut self, id: &SuspensionId) -> Option<&mut Card> {
        self.cards.open.iter_mut().find(|card| card.id == *id)
    }

    pub(super) fn reviewed(&mut self, id: &SuspensionId, arguments: &Value, review: Result<Review, String>) {
        if let Some(card) = self.card_of(id) {
            card.reviewed(arguments, review);
        }
    }

    pub(super) fn editor_closed(
        &mut self,
        id: &SuspensionId,
        argument: Option<&'static str>,
        text: Result<String, String>,
        cmds: &mut Vec<Cmd>,
    ) {
        let Some(card) = self.card_of(id) else {
            self.conversation
                .transcript
                .note(Level::Warning, "the question was closed while you edited the call");
            return;
        };
        // Keys that were typed for the editor are no answer.
        card.seen = None;
        if let CardAction::Review(arguments) = card.edited_away(argument, text) {
            cmds.push(Cmd::Question(QuestionCmd::Review(id.clone(), arguments)));
        }
    }

    /// Returns the number of cards a batch would answer.
    pub fn batch_count(&self, which: Batch) -> usize {
        self.batch_of(which).count()
    }

    fn batch_of(&self, which: Batch) -> impl Iterator<Item = &Card> {
        self.cards.open.iter().filter(move |card| {
            card.elsewhere.is_none()
                && card.takes_batch()
                && match which {
                    // One that was edited is allowed on its own card, where the edited version is shown.
                    Batch::AllowReads => card.only_reads() && card.edit.is_none(),
                    Batch::DenyRest => !card.only_reads(),
                }
        })
    }

    /// Shows what would be answered; the same key once more does it.
    fn begin_batch(&mut self, which: Batch) {
        let ids: Vec<SuspensionId> = self.batch_of(which).map(|card| card.id.clone()).collect();
        if ids.is_empty() || self.cards.open.len() < 2 {
            let text = match which {
                Batch::AllowReads => "no pending call is read-only",
                Batch::DenyRest => "no other call is pending",
            };
            if let Some(card) = self.cards.open.get_mut(self.cards.at) {
                card.problem = Some(text.to_owned());
            }
            return;
        }
        self.cards.batch = Some((which, ids));
        self.mark_card_unseen();
    }

    fn batch_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) {
        let Some((which, ids)) = self.cards.batch.clone() else { return };
        let Some(card) = self.cards.open.get_mut(self.cards.at) else { return };
        card.problem = None;
        let action = self.keymap.action(KeyContext::Card, key);
        let again = match which {
            Batch::AllowReads => Action::AllowReads,
            Batch::DenyRest => Action::DenyRest,
        };
        match action {
            Some(Action::ScrollUp) => card.scroll = card.scroll.saturating_sub(1),
            Some(Action::ScrollDown) => card.scroll = (card.scroll + 1).min(card.window.last_scroll),
            Some(Action::PageUp) => drop(card.page(false)),
            Some(Action::PageDown) => drop(card.page(true)),
            Some(action) if action == again => {
                if which == Batch::AllowReads && card.is_unread {
                    let down = self.keymap.chord_of(KeyContext::Card, Action::ScrollDown);
                    card.problem = Some(format!("some calls were not shown yet; press {down} for the rest"));
                    return;
                }
                self.cards.batch = None;
                let (answer, word) = match which {
                    Batch::AllowReads => (Answer::yes(Value::Null), "allowing"),
                    Batch::DenyRest => (Answer::no(None), "denying"),
                };
                for card in self.cards.open.iter_mut().filter(|card| ids.contains(&card.id)) {
                    // Each call is decided separately; if somebody else decides one in the meantime, their
                    // decision stays.
                    if card.takes_batch() {
                        card.stage = CardStage::Deciding(word);
                        let answer = Answer { reason: card.comment.clone(), ..answer.clone() };
                        cmds.push(Cmd::Question(QuestionCmd::Decide(card.id.clone(), Box::new(answer))));
                    }
                }
                self.mark_card_unseen();
                self.go_to_open_card();
            }
            _ => {
                self.cards.batch = None;
                self.mark_card_unseen();
            }
        }
    }

    fn mark_card_unseen(&mut self) {
        if let Some(card) = self.cards.open.get_mut(self.cards.at) {
            card.mark_unseen();
        }
    }

    /// Asks what the pattern on the card would have matched, when it is another one than before.
    pub(super) fn ask_for_preview(&mut self, cmds: &mut Vec<Cmd>) {
        let Some(card) = self.cards.open.get_mut(self.cards.at) else { return };
        if let Some(pattern) = card.wants_preview() {
            cmds.push(Cmd::Question(QuestionCmd::PreviewGrant(card.id.clone(), pattern)));
        }
    }

    pub(super) fn previewed(
        &mut self,
        id: &SuspensionId,
        pattern: String,
        preview: Result<GrantPreview, String>,
    ) {
        let Some(card) = self.cards.open.iter_mut().find(|card| card.id == *id) else { return };
        let preview = preview
            .unwrap_or_else(|problem| GrantPreview { problem: Some(problem), ..GrantPreview::default() });
        card.previewed(pattern, preview);
    }

    pub(super) fn show_card(&mut self, card: usize) {
        self.cards.at = card;
        if let Some(card) = self.cards.open.get_mut(card) {
            card.seen = None;
            card.choice = None;
        }
    }

    /// The next card that still needs an answer.
    fn go_to_open_card(&mut self) {
        let count = self.cards.open.len();
        let mut others = (1..count).map(|by| (self.cards.at + by) % count);
        let next = others.find(|at| !self.cards.open[*at].is_deciding() && !self.cards.open[*at].is_own());
        if let Some(next) = next {
            self.show_card(next);
        }
    }

    /// Goes to the question from the text.
    pub(super) fn focus_card(&mut self) {
        if self.cards.open.is_empty() {
            self.show_hint("no question is pending");
            return;
        }
        self.focus = Focus::Card;
        self.cards.stays = false;
        self.cards.at = self.cards.open.iter().position(|card| !card.is_deciding()).unwrap_or(0);
        self.show_card(self.cards.at);
    }

    pub(super) fn decided(&mut self, id: &SuspensionId, outcome: Result<DecideOutcome, String>) {
        let note = match outcome {
            Err(error) => {
                if let Some(card) = self.card_of(id) {
                    card.stage = CardStage::Open;
                    card.problem = Some(error);
                } else {
                    self.conversation.transcript.note(Level::Error, error);
                }
                return;
            }
            Ok(DecideOutcome::Accepted(_) | DecideOutcome::Repeated(_)) => None,
            Ok(DecideOutcome::AlreadyDecided(record)) => Some(self.who_decided(&record, "already ")),
            Ok(DecideOutcome::Closed(record)) => Some(format!(
                "the question about {} was closed before your decision",
                record.ticket.pending.name
            )),
            Ok(DecideOutcome::Expired(record)) => {
                let end = record.ticket.suspension.expires_at;
                let at =
                    end.map_or_else(String::new, |end| format!(" at {}", self.clock.hour_and_minute(end)));
                Some(format!(
                    "the question about {} expired{at}; the call did not run. Ask the agent to try again",
                    record.ticket.pending.name
                ))
            }
            Ok(DecideOutcome::NotFound) => Some("the question no longer exists".to_owned()),
        };
        self.remove_cards(|card| card.id == *id);
        if let Some(note) = note {
            self.conversation.transcript.note(Level::Warning, note);
        }
    }

    /// Describes, for a notice, how a question that was pending here was closed.
    pub(super) fn what_became_of(&self, record: &SuspensionRecord) -> String {
        let tool = &record.ticket.pending.name;
        match record.status {
            SuspensionStatus::Superseded => format!("the question about {tool} was closed"),
            SuspensionStatus::Expired if record.ticket.suspension.action == ACTION_WAIT => {
                "the limit has reset; the run continues".to_owned()
            }
            SuspensionStatus::Expired => format!("the question about {tool} expired; the call did not run"),
            SuspensionStatus::Open | SuspensionStatus::Decided | SuspensionStatus::Applied => {
                self.who_decided(record, "")
            }
        }
    }

    pub(super) fn who_decided(&self, record: &SuspensionRecord, already: &str) -> String {
        let what = record.answered().unwrap_or_else(|| "answered".to_owned());
        let when = record.decision.as_ref().map_or_else(String::new, |decision| {
            format!(" at {}", self.clock.hour_and_minute(decision.updated_at))
        });
        format!("{} was {already}{what}{when}", record.ticket.pending.name)
    }
}
