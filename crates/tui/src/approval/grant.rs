//! Granting a rule on a card: its pattern, scope, expiry, and what it would have matched.

use std::path::Path;

use crossterm::event::KeyEvent;
use serde_json::Value;

use super::super::composer::Composer;
use super::super::keymap::{Action, KeyContext, Keymap, typed};
use super::keys::{Edited, edit_line};
use super::{Card, CardAction, CardStage, SCOPES, line};
use aye_core::contract::grant::{GrantEnd, GrantPreview, GrantRequest};
use aye_core::contract::question::GrantProposal;
use aye_core::contract::suspension::Answer;

/// The text being written.
#[derive(Clone, Debug)]
pub enum Writing {
    Pattern(Composer),
    /// The end: a date, a number of uses.
    End(Composer),
}

/// The rule so far.
#[derive(Clone, Debug, Default)]
pub struct GrantForm {
    /// The selected pattern: a proposal by its index; after these, the user's own.
    pub chosen: usize,
    /// The user's own pattern.
    pub own: Option<String>,
    /// The scope, by its place in [`SCOPES`].
    pub scope: usize,
    pub end: GrantEnd,
    /// The text being written.
    pub writing: Option<Writing>,
    /// The pattern that was asked about last.
    asked: Option<String>,
    /// A pattern and what it would have matched.
    preview: Option<(String, GrantPreview)>,
}

impl GrantForm {
    /// A form with the first rule and this scope.
    pub(super) fn new(scope: usize) -> GrantForm {
        GrantForm { scope, ..GrantForm::default() }
    }

    /// The pattern as it is now: also while it is being written.
    pub fn pattern(&self, proposals: &[GrantProposal]) -> String {
        if let Some(Writing::Pattern(line)) = &self.writing {
            return line.text().trim().to_owned();
        }
        match proposals.get(self.chosen) {
            Some(proposal) => proposal.pattern.clone(),
            None => self.own.clone().unwrap_or_default(),
        }
    }

    /// Returns what the pattern would have matched, if known.
    pub fn preview(&self, pattern: &str) -> Option<&GrantPreview> {
        self.preview.as_ref().filter(|(known, _)| known == pattern).map(|(_, preview)| preview)
    }

    fn line_mut(&mut self) -> Option<&mut Composer> {
        match &mut self.writing {
            Some(Writing::Pattern(line) | Writing::End(line)) => Some(line),
            None => None,
        }
    }

    /// The line that is being written.
    pub fn line(&self) -> Option<&Composer> {
        match &self.writing {
            Some(Writing::Pattern(line) | Writing::End(line)) => Some(line),
            None => None,
        }
    }

    pub(super) fn insert(&mut self, text: &str) -> bool {
        let Some(line) = self.line_mut() else { return false };
        line.insert_text(text);
        true
    }
}

/// Returns the next end in the cycle; after a custom one, the first.
fn next_end(end: &GrantEnd) -> GrantEnd {
    let at = GrantEnd::CYCLE.iter().position(|known| known == end);
    let next = at.map_or(0, |at| (at + 1) % GrantEnd::CYCLE.len());
    GrantEnd::CYCLE.get(next).cloned().unwrap_or_default()
}

fn line_with(text: &str) -> Composer {
    let mut line = line();
    line.set(text);
    line
}

impl Card {
    /// The rule that is being granted.
    pub fn form(&self) -> Option<&GrantForm> {
        match &self.stage {
            CardStage::Grant(form) => Some(form),
            CardStage::Open
            | CardStage::Reason(_)
            | CardStage::Modify(_)
            | CardStage::Comment(_)
            | CardStage::Edit(_)
            | CardStage::Hunks(_)
            | CardStage::Away
            | CardStage::Deciding(_)
            | CardStage::Stopping => None,
        }
    }

    /// Returns the pattern whose matches are needed and have not been requested yet.
    pub fn wants_preview(&mut self) -> Option<String> {
        let CardStage::Grant(form) = &mut self.stage else { return None };
        let pattern = form.pattern(self.question.proposals());
        if form.asked.as_ref() == Some(&pattern) {
            return None;
        }
        form.asked = Some(pattern.clone());
        Some(pattern)
    }

    /// Takes in what a pattern would have matched.
    pub fn previewed(&mut self, pattern: String, preview: GrantPreview) {
        // Answers may overtake each other: one about an older text is nothing to this one.
        if let CardStage::Grant(form) = &mut self.stage
            && form.asked.as_ref() == Some(&pattern)
        {
            form.preview = Some((pattern, preview));
        }
    }

    pub(super) fn grant_key(&mut self, key: KeyEvent, keymap: &Keymap, project: &Path) -> CardAction {
        let proposals = self.question.proposals().to_vec();
        let CardStage::Grant(form) = &mut self.stage else { return CardAction::NotMine };
        if form.writing.is_some() {
            return self.writing_key(key, keymap, &proposals);
        }
        let step =
            |at: usize, by: isize, of: usize| (at as isize + by).rem_euclid((of as isize).max(1)) as usize;
        let patterns = proposals.len() + usize::from(form.own.is_some());
        if let Some(number) = typed(key).and_then(|c| c.to_digit(10)).map(|number| number as usize) {
            if (1..=patterns).contains(&number) {
                form.chosen = number - 1;
            }
            self.scroll = 0;
            return CardAction::Taken;
        }
        match keymap.action(KeyContext::Card, key) {
            Some(Action::ScrollUp) => form.chosen = step(form.chosen, -1, patterns),
            Some(Action::ScrollDown) => form.chosen = step(form.chosen, 1, patterns),
            Some(Action::PreviousCard) => form.scope = step(form.scope, -1, SCOPES.len()),
            Some(Action::NextCard) => form.scope = step(form.scope, 1, SCOPES.len()),
            Some(Action::EditCall) => {
                form.writing = Some(Writing::Pattern(line_with(&form.pattern(&proposals))));
            }
            Some(Action::GrantEnd) => form.end = next_end(&form.end),
            Some(Action::GrantUntil) => form.writing = Some(Writing::End(line())),
            Some(Action::PageUp) => return self.scroll_by(-5),
            Some(Action::PageDown) => return self.scroll_by(5),
            Some(Action::Stop) => self.stage = CardStage::Open,
            Some(Action::Accept) => return self.store(&proposals, project),
            _ => {}
        }
        self.scroll = 0;
        CardAction::Taken
    }

    /// Enter: what is spelled out on the card is stored.
    fn store(&mut self, proposals: &[GrantProposal], project: &Path) -> CardAction {
        let CardStage::Grant(form) = &self.stage else { return CardAction::NotMine };
        let pattern = form.pattern(proposals);
        if form.chosen >= proposals.len() {
            match form.preview(&pattern) {
                None => {
                    self.problem = Some("wait a moment; the pattern is being checked".to_owned());
                    return CardAction::Taken;
                }
                Some(GrantPreview { problem: Some(_), .. }) => {
                    self.problem = Some("this pattern cannot be granted; e edits it".to_owned());
                    return CardAction::Taken;
                }
                Some(GrantPreview { problem: None, .. }) => {}
            }
        }
        let request = GrantRequest {
            suspension: self.id.clone(),
            pattern,
            scope: self.scope(form.scope, project),
            end: form.end.clone(),
        };
        self.decide(Answer { grant: Some(request), ..Answer::yes(Value::Null) }, "granting the rule")
    }

    fn writing_key(&mut self, key: KeyEvent, keymap: &Keymap, proposals: &[GrantProposal]) -> CardAction {
        let CardStage::Grant(form) = &mut self.stage else { return CardAction::NotMine };
        let Some(line) = form.line_mut() else { return CardAction::NotMine };
        match edit_line(line, key, keymap) {
            Edited::Yes => {}
            Edited::No => return CardAction::NotMine,
            Edited::Left => form.writing = None,
            Edited::Sent => match &form.writing {
                Some(Writing::Pattern(line)) => {
                    let text = line.text().trim().to_owned();
                    form.writing = None;
                    let proposed = proposals.iter().position(|proposal| proposal.pattern == text);
                    match proposed {
                        Some(at) => form.chosen = at,
                        None if text.is_empty() => {}
                        None => {
                            form.own = Some(text);
                            form.chosen = proposals.len();
                        }
                    }
                }
                Some(Writing::End(line)) => match GrantEnd::parse(line.text()) {
                    Ok(end) => {
                        form.end = end;
                        form.writing = None;
                    }
                    Err(problem) => self.problem = Some(problem.to_string()),
                },
                None => {}
            },
        }
        CardAction::Taken
    }
}
