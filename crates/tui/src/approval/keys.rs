//! The keys of a card. Enter takes the first answer where [`Card::preselects`] says so; elsewhere an arrow key has to
//! select one first.

use std::path::Path;

use crossterm::event::KeyEvent;
use serde_json::{Value, json};

use super::super::composer::Composer;
use super::super::keymap::{Action, KeyContext, Keymap, typed};
use super::super::update::edit;
use super::ask::Accepted;
use super::grant::GrantForm;
use super::{Batch, Card, CardAction, CardKind, CardStage, line};
use aye_core::contract::display::visible_line;
use aye_core::contract::judgement::Profile;
use aye_core::contract::mode::Mode;
use aye_core::contract::suspension::Answer;

impl Card {
    pub fn key(&mut self, key: KeyEvent, keymap: &Keymap, project: &Path) -> CardAction {
        self.problem = None;
        match &mut self.stage {
            // No letter answers this one: it belongs to the text.
            CardStage::Deciding(_)
                if self.kind == CardKind::Trust && typed(key).is_some_and(|c| !c.is_ascii_digit()) =>
            {
                CardAction::NotMine
            }
            // An answer key that is pressed twice must not become text; other keys are not for the card.
            CardStage::Deciding(_) if keymap.action(KeyContext::Card, key).is_some() => CardAction::Taken,
            CardStage::Stopping if keymap.action(KeyContext::Card, key) == Some(Action::Stop) => {
                CardAction::Taken
            }
            CardStage::Deciding(_) | CardStage::Stopping => CardAction::NotMine,
            CardStage::Reason(line) => match edit_line(line, key, keymap) {
                Edited::Sent => {
                    let reason = line.take();
                    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
                    self.decide(Answer::no(reason), "denying")
                }
                Edited::Left => {
                    self.stage = CardStage::Open;
                    CardAction::Taken
                }
                Edited::Yes => CardAction::Taken,
                Edited::No => CardAction::NotMine,
            },
            CardStage::Modify(line) => match edit_line(line, key, keymap) {
                Edited::Sent => {
                    let feedback = line.take().trim().to_owned();
                    if feedback.is_empty() {
                        self.problem = Some("write what to change; Esc: back, n: deny".to_owned());
                        return CardAction::Taken;
                    }
                    let answer = Answer::modify(feedback);
                    self.decide(answer, "requesting changes")
                }
                edited => self.line_reply(&edited),
            },
            CardStage::Comment(line) => match edit_line(line, key, keymap) {
                Edited::Sent => {
                    let comment = line.take().trim().to_owned();
                    self.comment = Some(comment).filter(|comment| !comment.is_empty());
                    self.stage = CardStage::Open;
                    CardAction::Taken
                }
                edited => self.line_reply(&edited),
            },
            CardStage::Edit(text) => match edit_text(text, key, keymap) {
                Edited::Sent => self.edited_here(),
                edited => self.line_reply(&edited),
            },
            CardStage::Hunks(_) => self.hunks_key(key, keymap),
            // The editor has the terminal; keys that come now were typed before.
            CardStage::Away => CardAction::Taken,
            CardStage::Grant(_) => self.grant_key(key, keymap, project),
            CardStage::Open if self.kind == CardKind::Ask => self.ask_key(key, keymap),
            CardStage::Open if self.kind == CardKind::Form => self.form_key(key, keymap),
            CardStage::Open if matches!(self.kind, CardKind::Plan | CardKind::Trust) => {
                self.own_key(key, keymap)
            }
            CardStage::Open => self.open_key(key, keymap),
        }
    }

    pub(super) fn decide(&mut self, mut answer: Answer, word: &'static str) -> CardAction {
        self.stage = CardStage::Deciding(word);
        answer.reason = answer.reason.or_else(|| self.comment.clone());
        CardAction::Decide(Box::new(answer))
    }

    /// Returns the reply to a key in a line that does not send the line.
    fn line_reply(&mut self, edited: &Edited) -> CardAction {
        match edited {
            Edited::No => CardAction::NotMine,
            Edited::Yes | Edited::Sent => CardAction::Taken,
            Edited::Left => {
                self.stage = CardStage::Open;
                CardAction::Taken
            }
        }
    }

    /// The yes: as it is, or as it was edited; in the profile that the card shows, or in another one.
    fn allow(&mut self, profile: Option<Profile>) -> CardAction {
        if let Some(problem) = self.edit_problem() {
            self.problem = Some(problem);
            return CardAction::Taken;
        }
        match &self.edit {
            None => self.decide(Answer { profile, ..Answer::yes(Value::Null) }, "allowing"),
            Some(edit) => {
                let payload = match &edit.review {
                    Some(Ok(review)) => review.payload.clone(),
                    Some(Err(_)) | None => Value::Null,
                };
                let arguments = Some(edit.arguments.clone());
                let answer = Answer { arguments, profile, ..Answer::yes(payload) };
                self.decide(answer, "allowing the edited call")
            }
        }
    }

    fn hunks_key(&mut self, key: KeyEvent, keymap: &Keymap) -> CardAction {
        let CardStage::Hunks(hunks) = &mut self.stage else { return CardAction::NotMine };
        match keymap.action(KeyContext::Card, key) {
            Some(Action::ScrollUp) => {
                hunks.step(-1);
                self.scroll = 0;
            }
            Some(Action::ScrollDown) => {
                hunks.step(1);
                self.scroll = 0;
            }
            Some(Action::PageUp) => return self.scroll_by(-5),
            Some(Action::PageDown) => return self.scroll_by(5),
            Some(Action::Toggle) => hunks.toggle(),
            Some(Action::Accept) => return self.accept_hunks(),
            Some(Action::Stop) => {
                self.stage = CardStage::Open;
                self.scroll = 0;
            }
            _ => {}
        }
        CardAction::Taken
    }

    /// The answers that have a number, the first one first. The list has them in this order, too. A number always means
    /// the same: an answer that is not possible keeps its own, see [`Card::takes`].
    pub fn choices(&self) -> &'static [Action] {
        match self.kind {
            CardKind::Permission => &[Action::Allow, Action::Grant, Action::Deny],
            CardKind::Unknown => &[Action::RunAgain, Action::MarkDone, Action::Skip],
            CardKind::Plan => &[Action::Allow, Action::Grant, Action::Deny],
            CardKind::Trust => &[Action::Allow, Action::Deny],
            CardKind::Ask | CardKind::Form => &[],
        }
    }

    /// Whether an answer is possible.
    pub fn takes(&self, action: Action) -> bool {
        action != Action::Grant
            || self.kind != CardKind::Permission
            || self.edit.is_none() && !self.question.proposals().is_empty()
    }

    /// Handles a key on a plan or trust card. A message may be started while the trust question is shown, so no letter
    /// answers that one.
    fn own_key(&mut self, key: KeyEvent, keymap: &Keymap) -> CardAction {
        let action = keymap.action(KeyContext::Card, key);
        let number = typed(key).and_then(|c| c.to_digit(10)).map(|number| number as usize);
        let choice = match (action, number) {
            (Some(Action::Accept), _) => self.selected(),
            (Some(answer @ (Action::Allow | Action::Grant | Action::Deny)), _)
                if self.kind == CardKind::Plan =>
            {
                self.choices().iter().position(|choice| *choice == answer)
            }
            (_, Some(number)) => number.checked_sub(1),
            (Some(Action::Stop), _) => Some(self.choices().len() - 1),
            (Some(action), _) if typed(key).is_none() => return self.common_key(action),
            _ => return CardAction::NotMine,
        };
        match choice.and_then(|at| self.choices().get(at)) {
            Some(Action::Allow) if self.kind == CardKind::Trust && self.is_unread => {
                self.refuse_unread("list", "1", keymap)
            }
            Some(Action::Allow) if self.kind == CardKind::Trust => {
                self.stage = CardStage::Deciding("trusting");
                CardAction::Trust(true)
            }
            Some(_) if self.kind == CardKind::Trust => CardAction::Trust(false),
            Some(Action::Allow) => CardAction::AcceptPlan(Some(Mode::Ask)),
            Some(Action::Grant) => CardAction::AcceptPlan(Some(Mode::AcceptEdits)),
            Some(_) => CardAction::AcceptPlan(None),
            None => {
                self.problem = Some(match self.kind {
                    CardKind::Trust => "press 1 or 2, or write a message".to_owned(),
                    _ => "press 1, 2 or 3, or write what to change".to_owned(),
                });
                CardAction::Taken
            }
        }
    }

    fn open_key(&mut self, key: KeyEvent, keymap: &Keymap) -> CardAction {
        let action = keymap.action(KeyContext::Card, key);
        let number = typed(key).and_then(|c| c.to_digit(10)).map(|number| number as usize);
        let action = match (action, number) {
            (Some(Action::Accept), _)
                if self.choice.is_none() && self.is_unread && self.danger().is_none() =>
            {
                self.choices().first().copied()
            }
            (Some(Action::Accept), _) => self.selected().and_then(|at| self.choices().get(at)).copied(),
            (Some(action), _) => Some(action),
            (None, Some(number)) => number.checked_sub(1).and_then(|at| self.choices().get(at)).copied(),
            (None, None) => return CardAction::NotMine,
        };
        if let Some(action) = action {
            return self.act(action, keymap);
        }
        let count = self.choices().len();
        let numbers: Vec<String> = (1..count).map(|number| number.to_string()).collect();
        self.problem = Some(match number {
            Some(_) => format!("press {} or {count}", numbers.join(", ")),
            None if self.is_unread => format!(
                "nothing is selected; ↓ scrolls to the end and then selects an answer, or press {count}"
            ),
            None => format!(
                "nothing is selected; ↓ selects an answer, or press {} or {count}",
                numbers.join(", ")
            ),
        });
        CardAction::Taken
    }

    fn act(&mut self, action: Action, keymap: &Keymap) -> CardAction {
        let is_unknown = self.kind == CardKind::Unknown;
        let choice = |choice: &str| Answer::yes(json!({ "choice": choice }));
        match action {
            Action::Allow | Action::AllowOutside | Action::Grant if !is_unknown && self.is_unread => {
                self.refuse_unread_call(action, keymap)
            }
            Action::RunAgain if is_unknown && self.is_unread => self.refuse_unread_call(action, keymap),
            Action::Allow if !is_unknown => self.allow(None),
            Action::AllowOutside if self.is_sandboxed() => self.allow(Some(Profile::Outside)),
            Action::AllowOutside if !is_unknown => {
                self.problem = Some("this call is not sandboxed; y allows it".to_owned());
                CardAction::Taken
            }
            Action::Deny if !is_unknown => {
                let mut reason = line();
                reason.insert_text(self.comment.as_deref().unwrap_or_default());
                self.stage = CardStage::Reason(Box::new(reason));
                CardAction::Taken
            }
            Action::EditCall if !is_unknown => self.begin_edit(),
            Action::Hunks if !is_unknown => self.begin_hunks(),
            Action::Modify if !is_unknown => {
                let mut feedback = line();
                feedback.insert_text(self.comment.as_deref().unwrap_or_default());
                self.stage = CardStage::Modify(Box::new(feedback));
                CardAction::Taken
            }
            Action::Unedit | Action::Stop if self.edit.is_some() => {
                self.unedit();
                CardAction::Taken
            }
            Action::AllowReads if !is_unknown => CardAction::Batch(Batch::AllowReads),
            Action::DenyRest if !is_unknown => CardAction::Batch(Batch::DenyRest),
            Action::Grant if self.edit.is_some() => {
                self.problem = Some("a rule covers the call as proposed; u discards your edits".to_owned());
                CardAction::Taken
            }
            Action::Grant if !is_unknown => {
                if self.question.proposals().is_empty() {
                    let rule = self.proposed().and_then(|proposed| proposed.rule.as_deref());
                    self.problem = Some(match rule {
                        Some(rule) => format!(
                            "the rule `{}` asks every time; no always-allow changes that",
                            visible_line(rule)
                        ),
                        None => "no always-allow fits this call; y allows it once".to_owned(),
                    });
                } else {
                    self.scroll = 0;
                    let form = GrantForm::new(self.first_scope());
                    self.stage = CardStage::Grant(Box::new(form));
                }
                CardAction::Taken
            }
            Action::RunAgain if is_unknown => self.decide(choice("rerun"), "running the call again"),
            Action::MarkDone if is_unknown => self.decide(choice("done"), "marking the call as done"),
            Action::Skip if is_unknown => self.decide(choice("skip"), "skipping the call"),
            other => self.common_key(other),
        }
    }

    /// Nothing is allowed that was not shown to its end.
    fn refuse_unread_call(&mut self, action: Action, keymap: &Keymap) -> CardAction {
        let what = match (self.command(), self.previews().is_empty()) {
            (Some(_), _) => "command",
            (None, false) => "change",
            (None, true) => "call",
        };
        self.refuse_unread(what, &keymap.chord_of(KeyContext::Card, action), keymap)
    }

    fn refuse_unread(&mut self, what: &str, again: &str, keymap: &Keymap) -> CardAction {
        let down = keymap.chord_of(KeyContext::Card, Action::ScrollDown);
        // Several pages between two frames: what lay between them was never on the screen.
        let missed = if self.scroll > self.read {
            self.scroll = self.read;
            format!("a part of the {what} was skipped and is shown now")
        } else {
            format!("the end of the {what} was not shown yet")
        };
        self.problem = Some(format!("{missed}; press {down} for the rest, then {again}"));
        CardAction::Taken
    }

    /// An arrow key: through the body first, then from one answer to the next.
    fn step(&mut self, down: bool) -> CardAction {
        let last = self.choices().len().checked_sub(1);
        self.scroll = self.scroll.min(self.window.last_scroll);
        self.choice = match (self.choice, down) {
            (None, true) if self.scroll < self.window.last_scroll => {
                self.scroll += 1;
                None
            }
            (None, true) => last.map(|last| last.min(usize::from(self.preselects()))),
            (None, false) => {
                self.scroll = self.scroll.saturating_sub(1);
                None
            }
            (Some(at), true) => last.map(|last| (at + 1).min(last)),
            (Some(at), false) => at.checked_sub(1),
        };
        CardAction::Taken
    }

    fn common_key(&mut self, action: Action) -> CardAction {
        match action {
            // The user may not intend to end a run that is not in sight.
            Action::Stop if self.elsewhere.is_some() => CardAction::Dismiss,
            Action::Stop => {
                self.stage = CardStage::Stopping;
                CardAction::Stop
            }
            Action::Explain if matches!(self.kind, CardKind::Permission | CardKind::Unknown) => {
                self.is_explained = !self.is_explained;
                CardAction::Taken
            }
            // The other cards have nothing that a comment could go with.
            Action::Comment if !matches!(self.kind, CardKind::Permission | CardKind::Unknown) => {
                CardAction::Next
            }
            Action::Comment => {
                let mut comment = line();
                comment.insert_text(self.comment.as_deref().unwrap_or_default());
                self.stage = CardStage::Comment(Box::new(comment));
                CardAction::Taken
            }
            Action::NextCard => CardAction::Next,
            Action::PreviousCard => CardAction::Previous,
            Action::ScrollUp => self.step(false),
            Action::ScrollDown => self.step(true),
            Action::PageUp => self.page(false),
            Action::PageDown => self.page(true),
            _ => CardAction::NotMine,
        }
    }

    /// A page of the body, no row of it left out.
    pub(crate) fn page(&mut self, down: bool) -> CardAction {
        let rows = self.window.rows.max(1);
        self.scroll = if down {
            (self.scroll + rows).min(self.window.last_scroll)
        } else {
            self.scroll.min(self.window.last_scroll).saturating_sub(rows)
        };
        CardAction::Taken
    }

    pub(super) fn scroll_by(&mut self, lines: isize) -> CardAction {
        self.scroll = self.scroll.saturating_add_signed(lines);
        CardAction::Taken
    }

    fn ask_key(&mut self, key: KeyEvent, keymap: &Keymap) -> CardAction {
        if let Some(line) = self.ask.line_mut() {
            return match edit_line(line, key, keymap) {
                Edited::Sent => match self.ask.written() {
                    Some(answer) => self.decide(Answer::yes(answer), "answering"),
                    None => CardAction::Taken,
                },
                Edited::Left => {
                    self.ask.stop_writing();
                    CardAction::Taken
                }
                Edited::Yes => CardAction::Taken,
                Edited::No => CardAction::NotMine,
            };
        }
        let action = keymap.action(KeyContext::Card, key);
        // What is typed is an answer where the question takes one, and no letter decides.
        if let Some(c) = typed(key).filter(|c| !c.is_whitespace()) {
            let row = c.to_digit(10).and_then(|number| (number as usize).checked_sub(1));
            if row.is_some_and(|row| self.ask.choose(row)) {
                return CardAction::Taken;
            }
            if !self.ask.takes_text() {
                return CardAction::NotMine;
            }
            self.ask.write(c.encode_utf8(&mut [0; 4]));
            return CardAction::Taken;
        }
        match action {
            Some(Action::ScrollUp) => self.ask.step(-1),
            Some(Action::ScrollDown) => self.ask.step(1),
            Some(Action::Toggle) => self.ask.toggle(),
            Some(Action::Accept) => {
                let accepted = self.ask.accept();
                return self.accepted(accepted, self.ask.hint());
            }
            Some(action) => return self.common_key(action),
            None => return CardAction::NotMine,
        }
        CardAction::Taken
    }

    fn accepted(&mut self, accepted: Accepted, hint: Option<String>) -> CardAction {
        match accepted {
            Accepted::Answer(answer) => self.decide(Answer::yes(answer), "answering"),
            Accepted::Skip => self.decide(Answer::no(None), "skipping the call"),
            Accepted::Nothing => {
                self.problem = hint;
                CardAction::Taken
            }
        }
    }

    fn form_key(&mut self, key: KeyEvent, keymap: &Keymap) -> CardAction {
        let is_tab = keymap.action(KeyContext::Composer, key) == Some(Action::FocusCard);
        if let Some(line) = self.surface.line_mut() {
            return match edit_line(line, key, keymap) {
                Edited::Sent => {
                    self.surface.written();
                    CardAction::Taken
                }
                Edited::Left => {
                    self.surface.stop_writing();
                    CardAction::Taken
                }
                Edited::Yes => {
                    if is_tab {
                        self.surface.written();
                    }
                    CardAction::Taken
                }
                Edited::No => CardAction::NotMine,
            };
        }
        let action = keymap.action(KeyContext::Card, key);
        if let Some(c) = typed(key).filter(|c| !c.is_whitespace()) {
            return if self.surface.write(c.encode_utf8(&mut [0; 4])) {
                CardAction::Taken
            } else {
                CardAction::NotMine
            };
        }
        match action {
            _ if is_tab => self.surface.step(1),
            Some(Action::ScrollUp) => self.surface.step(-1),
            Some(Action::ScrollDown) => self.surface.step(1),
            Some(Action::Toggle) => self.surface.toggle(),
            Some(Action::Accept) => {
                let accepted = self.surface.accept();
                return self.accepted(accepted, self.surface.hint());
            }
            Some(action) => return self.common_key(action),
            None => return CardAction::NotMine,
        }
        CardAction::Taken
    }
}

pub(super) enum Edited {
    /// It was an edit.
    Yes,
    /// It means nothing in a line.
    No,
    /// Enter.
    Sent,
    /// Escape.
    Left,
}

/// Handles a key in a text of several lines. A backslash before Enter is kept: in a shell it continues the
/// line.
fn edit_text(text: &mut Composer, key: KeyEvent, keymap: &Keymap) -> Edited {
    match keymap.action(KeyContext::Composer, key) {
        Some(Action::Send) if text.text()[..text.caret()].ends_with('\\') => {
            text.insert('\n');
            Edited::Yes
        }
        Some(Action::Send) => Edited::Sent,
        Some(Action::Interrupt) => Edited::Left,
        Some(Action::FocusCard) => Edited::Yes,
        Some(action) if edit(text, action) => Edited::Yes,
        Some(_) => Edited::No,
        None => match typed(key) {
            Some(c) => {
                text.insert(c);
                Edited::Yes
            }
            None => Edited::No,
        },
    }
}

/// A key in a line of text. Leaving and sending are the writing keys of the composer.
pub(super) fn edit_line(line: &mut Composer, key: KeyEvent, keymap: &Keymap) -> Edited {
    match keymap.action(KeyContext::Composer, key) {
        Some(Action::Send) => Edited::Sent,
        Some(Action::Interrupt) => Edited::Left,
        Some(Action::Newline | Action::Up | Action::Down | Action::FocusCard) => Edited::Yes,
        Some(action) if edit(line, action) => Edited::Yes,
        Some(_) => Edited::No,
        None => match typed(key) {
            Some(c) => {
                line.insert(c);
                Edited::Yes
            }
            None => Edited::No,
        },
    }
}
