//! Questions that wait for the person, as cards: what each key means on them. "Approval" is only the picture; what is
//! answered is a suspension.

use std::path::Path;

use crossterm::event::KeyEvent;
use serde_json::{Value, json};

use super::composer::Composer;
use super::keymap::{Action, Keymap, Place, typed};
use super::transcript::Moment;
use crate::contract::ids::{RunId, SuspensionId, ThreadId};
use crate::contract::record::GrantScope;
use crate::contract::suspension::{
    ACTION_ASK_USER, ACTION_UNKNOWN_OUTCOME, ResumeDecisionAction, SuspendTicket,
};
use crate::contract::tool::FilePreview;

pub mod ask;
#[cfg(test)]
mod tests;

use ask::AskState;

/// A card must have been on the screen for so long before it takes a key: what was typed before it came is not an
/// answer to it.
pub const SEEN_MS: u64 = 300;
/// And the person must not have typed anything else for so long.
pub const QUIET_MS: u64 = 400;

/// What kind of answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardKind {
    /// Yes or no.
    Permission,
    /// A choice or words.
    Ask,
    /// What to do about a call that may have run.
    Unknown,
}

/// How far an answer has come.
#[derive(Clone, Debug)]
pub enum Stage {
    /// Nothing is answered.
    Open,
    /// The reason of a no is being written.
    Reason(Box<Composer>),
    /// A rule is being chosen.
    Grant {
        /// The proposal.
        pattern: usize,
        /// The scope, by its place in [`SCOPES`].
        scope: usize,
    },
    /// The answer was sent and is not stored yet.
    Deciding(&'static str),
}

/// How far a grant can reach, narrowest first.
pub const SCOPES: [&str; 4] = ["this run", "this conversation", "this project", "everywhere"];

/// An answer, before it gets its id and time.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Yes or no.
    pub action: ResumeDecisionAction,
    /// The payload.
    pub result: Value,
    /// What the person wrote beside it.
    pub reason: Option<String>,
}

impl Answer {
    fn yes(result: Value) -> Answer {
        Answer { action: ResumeDecisionAction::Resume, result, reason: None }
    }

    fn no(reason: Option<String>) -> Answer {
        Answer { action: ResumeDecisionAction::Cancel, result: Value::Null, reason }
    }
}

/// A rule that may be granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The pattern that is stored.
    pub pattern: String,
    /// What it covers, in words.
    pub text: String,
}

/// What a key on a card leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The card changed, or nothing happened.
    Taken,
    /// The key means nothing here.
    NotMine,
    /// The answer.
    Decide(Answer),
    /// Store a rule, then say yes.
    Grant {
        /// The pattern.
        pattern: String,
        /// How far.
        scope: GrantScope,
    },
    /// No, and stop the run.
    Stop,
    /// The next card has the focus.
    Next,
    /// The card before has it.
    Previous,
}

/// A question that waits.
#[derive(Clone, Debug)]
pub struct Card {
    /// The question's id.
    pub id: SuspensionId,
    /// The conversation.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
    /// The question, and the call.
    pub ticket: SuspendTicket,
    /// What kind of answer is wanted.
    pub kind: CardKind,
    /// How far the answer has come.
    pub stage: Stage,
    /// The state of a question with choices.
    pub ask: AskState,
    /// When the card was first drawn.
    pub seen: Option<Moment>,
    /// The first line of its body that is shown.
    pub scroll: usize,
    /// What went wrong with the last answer.
    pub problem: Option<String>,
}

impl Card {
    /// A card for a question.
    pub fn new(thread_id: ThreadId, run_id: RunId, ticket: SuspendTicket) -> Card {
        let kind = match ticket.suspension.action.as_str() {
            ACTION_ASK_USER => CardKind::Ask,
            ACTION_UNKNOWN_OUTCOME => CardKind::Unknown,
            _ => CardKind::Permission,
        };
        let ask = if kind == CardKind::Ask {
            AskState::of(&ticket.suspension.parameters)
        } else {
            AskState::default()
        };
        Card {
            id: ticket.suspension.id.clone(),
            thread_id,
            run_id,
            kind,
            ticket,
            stage: Stage::Open,
            ask,
            seen: None,
            scroll: 0,
            problem: None,
        }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.ticket.suspension.parameters.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// The rule that asks.
    pub fn rule(&self) -> Option<&str> {
        self.parameter("rule")
    }

    /// Why it asks.
    pub fn why(&self) -> Option<&str> {
        self.parameter("why")
    }

    /// Where it will run.
    pub fn cwd(&self) -> Option<&str> {
        self.parameter("cwd")
    }

    /// The exact command line, for tools that run one.
    pub fn command(&self) -> Option<&str> {
        self.ticket.pending.arguments.get("command").and_then(Value::as_str)
    }

    /// What the call would do to files.
    pub fn previews(&self) -> Vec<FilePreview> {
        let preview = self.ticket.suspension.parameters.get("preview");
        preview.and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
    }

    /// Rules that may be granted here.
    pub fn proposals(&self) -> Vec<Proposal> {
        let list = self.ticket.suspension.parameters.get("proposals").and_then(Value::as_array);
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        list.into_iter()
            .flatten()
            .map(|value| Proposal { pattern: text(value, "pattern"), text: text(value, "text") })
            .filter(|proposal| !proposal.pattern.is_empty())
            .collect()
    }

    /// Whether an answer is on its way.
    pub fn is_deciding(&self) -> bool {
        matches!(self.stage, Stage::Deciding(_))
    }

    /// Whether it was on the screen long enough to take a key.
    pub fn was_seen(&self, now: Moment) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) >= SEEN_MS)
    }

    /// The line of text that is being written on the card.
    pub fn line(&self) -> Option<&Composer> {
        match &self.stage {
            Stage::Reason(line) => Some(line),
            Stage::Open => self.ask.line(),
            Stage::Grant { .. } | Stage::Deciding(_) => None,
        }
    }

    /// The scope of that number.
    pub fn scope(&self, number: usize, project: &Path) -> GrantScope {
        match number {
            0 => GrantScope::Run(self.run_id.clone()),
            1 => GrantScope::Thread(self.thread_id.clone()),
            2 => GrantScope::Project(project.to_path_buf()),
            _ => GrantScope::Everywhere,
        }
    }

    /// Text that was pasted while a line of the card is written.
    pub fn paste(&mut self, text: &str) -> bool {
        let line = match &mut self.stage {
            Stage::Reason(line) => Some(&mut **line),
            Stage::Open => self.ask.line_mut(),
            Stage::Grant { .. } | Stage::Deciding(_) => None,
        };
        let Some(line) = line else { return false };
        line.insert_text(&crate::contract::display::visible_line(text).replace('⏎', " "));
        true
    }

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

/// An empty line to write in.
pub(super) fn line() -> Composer {
    let mut line = Composer::default();
    line.set_width(u16::MAX);
    line
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
        Some(action) if super::update::edit(line, action) => Edited::Yes,
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
