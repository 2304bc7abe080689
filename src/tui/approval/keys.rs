//! What each key means on a card. Enter alone is never a yes.

use std::path::Path;

use crossterm::event::KeyEvent;
use serde_json::{Value, json};

use super::super::composer::Composer;
use super::super::keymap::{Action, Keymap, Place, typed};
use super::super::update::edit;
use super::{Answer, Card, CardKind, Reply, SCOPES, Stage, line};

impl Card {
    /// What a key does. Enter alone is never a yes.
    pub fn key(&mut self, key: KeyEvent, keymap: &Keymap, project: &Path) -> Reply {
        self.problem = None;
        match &mut self.stage {
            Stage::Deciding(_) => Reply::Taken,
            Stage::Reason(line) => match edit_line(line, key, keymap) {
                Edited::Sent => {
                    let reason = line.take();
                    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
                    self.decide(Answer::no(reason), "saying no")
                }
                Edited::Left => {
                    self.stage = Stage::Open;
                    Reply::Taken
                }
                Edited::Yes => Reply::Taken,
                Edited::No => Reply::NotMine,
            },
            Stage::Grant { .. } => self.grant_key(key, keymap, project),
            Stage::Open if self.kind == CardKind::Ask => self.ask_key(key, keymap),
            Stage::Open => self.open_key(key, keymap),
        }
    }

    fn decide(&mut self, answer: Answer, word: &'static str) -> Reply {
        self.stage = Stage::Deciding(word);
        Reply::Decide(answer)
    }

    fn open_key(&mut self, key: KeyEvent, keymap: &Keymap) -> Reply {
        let Some(action) = keymap.action(Place::Card, key) else { return Reply::NotMine };
        let is_unknown = self.kind == CardKind::Unknown;
        let choice = |choice: &str| Answer::yes(json!({ "choice": choice }));
        match action {
            Action::Allow | Action::Grant if !is_unknown && self.is_unread => {
                self.problem =
                    Some("not all of the command was shown yet: ↓ shows the rest, then y".to_owned());
                Reply::Taken
            }
            Action::Allow if !is_unknown => self.decide(Answer::yes(Value::Null), "allowing"),
            Action::Deny if !is_unknown => {
                self.stage = Stage::Reason(Box::new(line()));
                Reply::Taken
            }
            Action::Grant if !is_unknown => {
                if self.proposals().is_empty() {
                    self.problem =
                        Some("there is no rule to propose for this call: y allows it once".to_owned());
                } else {
                    self.stage = Stage::Grant { pattern: 0, scope: 0 };
                }
                Reply::Taken
            }
            Action::RunAgain if is_unknown => self.decide(choice("rerun"), "running it again"),
            Action::MarkDone if is_unknown => self.decide(choice("done"), "marking it done"),
            Action::Skip if is_unknown => self.decide(choice("skip"), "skipping it"),
            Action::Accept => {
                let keys = if is_unknown { "r, d or s" } else { "y or n" };
                self.problem = Some(format!("Enter is no answer: press {keys}"));
                Reply::Taken
            }
            other => self.common_key(other),
        }
    }

    fn common_key(&mut self, action: Action) -> Reply {
        match action {
            // Ending a run that is not in sight is more than a person may mean.
            Action::Stop if self.elsewhere.is_some() => Reply::PutAway,
            Action::Stop => {
                self.stage = Stage::Deciding("stopping");
                Reply::Stop
            }
            Action::NextCard => Reply::Next,
            Action::PreviousCard => Reply::Previous,
            Action::ScrollUp => self.scroll_by(-1),
            Action::ScrollDown => self.scroll_by(1),
            Action::PageUp => self.scroll_by(-10),
            Action::PageDown => self.scroll_by(10),
            _ => Reply::NotMine,
        }
    }

    fn scroll_by(&mut self, lines: isize) -> Reply {
        self.scroll = self.scroll.saturating_add_signed(lines);
        Reply::Taken
    }

    fn grant_key(&mut self, key: KeyEvent, keymap: &Keymap, project: &Path) -> Reply {
        let proposals = self.proposals();
        let Stage::Grant { pattern, scope } = &mut self.stage else { return Reply::NotMine };
        let step =
            |at: usize, by: isize, of: usize| (at as isize + by).rem_euclid((of as isize).max(1)) as usize;
        match keymap.action(Place::Card, key) {
            Some(Action::ScrollUp) => *pattern = step(*pattern, -1, proposals.len()),
            Some(Action::ScrollDown) => *pattern = step(*pattern, 1, proposals.len()),
            Some(Action::PreviousCard) => *scope = step(*scope, -1, SCOPES.len()),
            Some(Action::NextCard) => *scope = step(*scope, 1, SCOPES.len()),
            Some(Action::Stop) => self.stage = Stage::Open,
            Some(Action::Accept) => {
                let (pattern, scope) = (*pattern, *scope);
                let Some(proposal) = proposals.get(pattern) else { return Reply::Taken };
                let scope = self.scope(scope, project);
                self.stage = Stage::Deciding("storing the rule");
                return Reply::Grant { pattern: proposal.pattern.clone(), scope };
            }
            _ => {}
        }
        Reply::Taken
    }

    fn ask_key(&mut self, key: KeyEvent, keymap: &Keymap) -> Reply {
        if let Some(line) = self.ask.line_mut() {
            return match edit_line(line, key, keymap) {
                Edited::Sent => match self.ask.written() {
                    Some(answer) => self.decide(Answer::yes(answer), "answering"),
                    None => Reply::Taken,
                },
                Edited::Left => {
                    self.ask.stop_writing();
                    Reply::Taken
                }
                Edited::Yes => Reply::Taken,
                Edited::No => Reply::NotMine,
            };
        }
        if let Some(number) = typed(key).and_then(|c| c.to_digit(10)).filter(|number| *number > 0) {
            self.ask.choose(number as usize - 1);
            return Reply::Taken;
        }
        match keymap.action(Place::Card, key) {
            Some(Action::ScrollUp) => self.ask.step(-1),
            Some(Action::ScrollDown) => self.ask.step(1),
            Some(Action::Toggle) => self.ask.toggle(),
            Some(Action::Skip) => return self.decide(Answer::no(None), "skipping it"),
            Some(Action::Accept) => match self.ask.accept() {
                Some(answer) => return self.decide(Answer::yes(answer), "answering"),
                None => self.problem = self.ask.hint(),
            },
            Some(action) => return self.common_key(action),
            None => return Reply::NotMine,
        }
        Reply::Taken
    }
}

enum Edited {
    /// It was an edit.
    Yes,
    /// It means nothing in a line.
    No,
    /// Enter.
    Sent,
    /// Escape.
    Left,
}

/// A key in a line of text. Leaving and sending are the writing keys of the composer.
fn edit_line(line: &mut Composer, key: KeyEvent, keymap: &Keymap) -> Edited {
    match keymap.action(Place::Composer, key) {
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
