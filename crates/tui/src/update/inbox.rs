//! The inbox of all conversations: the list, and cards of other conversations that are answered in place.

use super::super::app::{App, Focus};
use super::super::approval::{Card, OtherThread};
use super::super::host::{OpenedQuestion, QuestionCmd, QuestionMsg};
use super::super::msg::Cmd;
use super::super::picker::{PickRow, PickerKind};
use super::super::status::short_path;
use super::super::transcript::Level;
use aye_core::contract::ids::SuspensionId;
use aye_core::contract::record::{DecideOutcome, InboxRow, SuspensionStatus};
use aye_core::contract::suspension::ACTION_WAIT;

impl App {
    pub(super) fn question_msg(&mut self, msg: QuestionMsg, cmds: &mut Vec<Cmd>) {
        match msg {
            QuestionMsg::Closed(record) => self.question_closed(&record),
            QuestionMsg::Opened(id, found) => self.question(&id, found),
            QuestionMsg::Decided(id, outcome) => {
                self.answered_elsewhere(&outcome, &id);
                self.decided(&id, outcome);
                self.count_elsewhere(cmds);
            }
            QuestionMsg::Reviewed(id, arguments, review) => self.reviewed(&id, &arguments, review),
            QuestionMsg::InboxChanged => self.inbox_changed(cmds),
            QuestionMsg::Inbox(Ok(rows)) => self.fill_inbox(rows),
            QuestionMsg::Inbox(Err(error)) => self.conversation.transcript.note(Level::Error, error),
            QuestionMsg::Elsewhere(count) => self.elsewhere = count,
            QuestionMsg::GrantPreviewed(id, pattern, preview) => self.previewed(&id, pattern, preview),
            QuestionMsg::Grants(Ok(grants)) => self.list_grants(grants),
            QuestionMsg::Revoked(id, Ok(revoked)) => self.revoked(&id, revoked),
            QuestionMsg::Grants(Err(error)) | QuestionMsg::Revoked(_, Err(error)) => {
                self.overlays.picker = None;
                self.conversation.transcript.note(Level::Error, error);
            }
            QuestionMsg::Rules(rules) => {
                let rows = rules.into_iter().map(|rule| PickRow {
                    label: rule.pattern,
                    detail: rule.behavior,
                    note: rule.origin,
                    ..PickRow::default()
                });
                let rows = rows.collect();
                self.fill_picker(PickerKind::Rules, rows);
            }
        }
    }

    /// The chord of the list: opens it, and closes it again.
    pub(super) fn toggle_inbox(&mut self, cmds: &mut Vec<Cmd>) {
        if self.overlays.picker.as_ref().is_some_and(|picker| picker.kind == PickerKind::Inbox) {
            self.overlays.picker = None;
        } else if !self.overlays.resumes_by_list {
            // The choice of the first conversation has to be made before anything else.
            self.fetch(PickerKind::Inbox, Cmd::Question(QuestionCmd::Inbox), cmds);
        }
    }

    /// Refreshes what is shown of questions after some appeared or were closed.
    pub(super) fn inbox_changed(&mut self, cmds: &mut Vec<Cmd>) {
        self.count_elsewhere(cmds);
        if self.overlays.picker.as_ref().is_some_and(|picker| picker.kind == PickerKind::Inbox) {
            cmds.push(Cmd::Question(QuestionCmd::Inbox));
        }
        let strangers = self.cards.open.iter().filter(|card| card.elsewhere.is_some() && !card.is_deciding());
        cmds.extend(strangers.map(|card| Cmd::Question(QuestionCmd::Open(card.id.clone()))));
    }

    pub(super) fn count_elsewhere(&self, cmds: &mut Vec<Cmd>) {
        cmds.push(Cmd::Question(QuestionCmd::CountElsewhere(self.conversation.id().cloned())));
    }

    /// The list has come.
    pub(super) fn fill_inbox(&mut self, rows: Vec<InboxRow>) {
        let Some(picker) = self.overlays.picker.as_mut().filter(|picker| picker.kind == PickerKind::Inbox)
        else {
            return;
        };
        let (clock, now) = (self.clock, self.now);
        let pick = |row: &InboxRow| {
            let mut notes: Vec<String> = Vec::new();
            notes.extend(row.risk.map(|risk| risk.to_string()));
            notes.push(clock.ago(now, row.created_at));
            PickRow {
                value: row.id.to_string(),
                label: row.subject(),
                detail: row.thread_title.clone(),
                note: notes.join(" · "),
                ..PickRow::default()
            }
        };
        picker.fill(rows.iter().map(pick).collect());
        self.overlays.inbox = rows;
    }

    /// Returns the details of the selected question, most important first.
    pub fn inbox_details(&self) -> Vec<String> {
        let Some(picker) = self.overlays.picker.as_ref().filter(|picker| picker.kind == PickerKind::Inbox)
        else {
            return Vec::new();
        };
        let Some(chosen) = picker.chosen() else { return Vec::new() };
        let Some(row) = self.overlays.inbox.iter().find(|row| row.id.as_str() == chosen.value) else {
            return Vec::new();
        };
        // The second answer of its card adds the rule.
        let mut why = row.why.split_once("; add `").map_or(&*row.why, |(why, _)| why).to_owned();
        if why == row.subject() {
            why.clear();
        }
        if let Some(end) = row.expires_at {
            let verb = if row.action == ACTION_WAIT { "resumes" } else { "expires" };
            let until = format!("{verb} at {}", self.clock.hour_and_minute(end));
            why = if why.is_empty() { until } else { format!("{until} · {why}") };
        }
        let place = short_path(&row.cwd, self.info.home.as_deref());
        let of = match &row.child {
            Some(child) => format!(" · asked by {}", child.agent),
            None if row.parent_run_id.is_some() => " · subagent".to_owned(),
            None => String::new(),
        };
        let is_here = if self.conversation.id().is_some_and(|shown| row.thread_id.is_at_or_below(shown)) {
            " · this conversation"
        } else {
            ""
        };
        let title = if row.thread_title.is_empty() { "(no title)" } else { row.thread_title.as_str() };
        vec![why, format!("{title} · in {place}{of}{is_here}")]
            .into_iter()
            .filter(|line| !line.is_empty())
            .collect()
    }

    /// Goes to the conversation of the chosen question.
    pub(super) fn jump(&mut self, cmds: &mut Vec<Cmd>) {
        let Some(picker) = self.overlays.picker.as_ref().filter(|picker| picker.kind == PickerKind::Inbox)
        else {
            return;
        };
        let Some(chosen) = picker.chosen() else { return };
        let Some(row) = self.overlays.inbox.iter().find(|row| row.id.as_str() == chosen.value) else {
            return;
        };
        let (thread, id) = (row.thread_id.clone(), row.id.clone());
        self.overlays.picker = None;
        if self.conversation.id() == Some(&thread) {
            self.focus_question(&id);
        } else {
            self.open(Some(thread), cmds);
        }
    }

    /// Handles the current state of a question: opens its card or updates it.
    pub(super) fn question(&mut self, id: &SuspensionId, found: Result<Option<Box<OpenedQuestion>>, String>) {
        let is_chosen = self.cards.chosen.take_if(|chosen| chosen == id).is_some();
        let opened = match found {
            Ok(Some(opened)) => opened,
            Ok(None) => {
                self.remove_cards(|card| card.id == *id && card.elsewhere.is_some());
                self.show_hint("the question no longer exists; its conversation was deleted");
                return;
            }
            Err(error) => return self.conversation.transcript.note(Level::Error, error),
        };
        let record = opened.record;
        if record.status != SuspensionStatus::Open {
            if self.cards.open.iter().any(|card| card.id == *id) {
                self.question_closed(&record);
            } else {
                let what = self.what_became_of(&record);
                self.show_hint(what);
            }
            return;
        }
        // Otherwise this was only a check whether the question is still pending.
        if !is_chosen {
            return;
        }
        if self.cards.open.iter().any(|card| card.id == *id) {
            self.focus_question(id);
            return;
        }
        let mut card = Card::new(record.thread_id.clone(), record.run_id, record.ticket);
        card.child.clone_from(&opened.child);
        if self.conversation.id().is_none_or(|shown| !record.thread_id.is_at_or_below(shown)) {
            let title = if opened.title.is_empty() { "(no title)".to_owned() } else { opened.title };
            card.elsewhere = Some(OtherThread { title, project: opened.project });
        }
        // It may have been put away before.
        self.cards.over.remove(id);
        self.cards.open.push(card);
        self.focus_question(id);
    }

    /// Shows the card of a question and focuses it.
    fn focus_question(&mut self, id: &SuspensionId) {
        if let Some(at) = self.cards.open.iter().position(|card| card.id == *id) {
            self.focus = Focus::Card;
            self.cards.stays = false;
            // The user opened this card: a key that comes too soon is meant for the card and is not text.
            self.cards.key_at = Some(self.now);
            self.show_card(at);
        }
    }

    /// Puts the card of another conversation away; its question keeps waiting.
    pub(super) fn dismiss_card(&mut self, id: &SuspensionId) {
        self.remove_cards(|card| card.id == *id);
        self.show_hint("dismissed; still in the inbox");
    }

    /// Handles the result of a decision on a question of another conversation.
    pub(super) fn answered_elsewhere(&mut self, outcome: &Result<DecideOutcome, String>, id: &SuspensionId) {
        let Some(of) =
            self.cards.open.iter().find(|card| card.id == *id).and_then(|card| card.elsewhere.clone())
        else {
            return;
        };
        if matches!(outcome, Ok(DecideOutcome::Accepted(_) | DecideOutcome::Repeated(_))) {
            self.show_hint(format!("answered; “{}” continues in the background", of.title));
        }
    }
}
