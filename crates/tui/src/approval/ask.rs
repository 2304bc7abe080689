//! A question with choices, text, or both.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::composer::Composer;
use aye_core::contract::question::{ChoiceQuestion, QuestionChoice};

/// A row of a question: a choice, the row for text after them, or the last one, which gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskRow {
    /// The choice at this place.
    Choice(usize),
    Text,
    /// No answer: the call is skipped.
    Skip,
}

/// What Enter does on a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Accepted {
    Answer(Value),
    Skip,
    /// It gives no answer yet.
    Nothing,
}

/// The choices and text entered so far.
#[derive(Clone, Debug, Default)]
pub struct AskState {
    choices: Vec<QuestionChoice>,
    multi: bool,
    free_text: bool,
    cursor: Option<usize>,
    chosen: BTreeSet<usize>,
    writing: Option<Box<Composer>>,
}

impl AskState {
    pub(super) fn of(question: &ChoiceQuestion) -> AskState {
        let choices = question.choices.clone();
        let free_text = question.takes_text || choices.is_empty();
        // Without choices, the only option is to write.
        let writing = choices.is_empty().then(|| Box::new(super::line()));
        let multi = question.is_multi && !choices.is_empty();
        AskState { choices, multi, free_text, cursor: None, chosen: BTreeSet::new(), writing }
    }

    pub fn choices(&self) -> &[QuestionChoice] {
        &self.choices
    }

    /// Whether more than one choice may be selected.
    pub fn is_multi(&self) -> bool {
        self.multi
    }

    /// Whether free text may be entered instead.
    pub fn takes_text(&self) -> bool {
        self.free_text
    }

    /// The row that the arrows are at.
    pub fn cursor(&self) -> Option<usize> {
        self.cursor
    }

    /// Whether a choice is selected.
    pub fn is_chosen(&self, choice: usize) -> bool {
        self.chosen.contains(&choice)
    }

    /// The line that is being written.
    pub fn line(&self) -> Option<&Composer> {
        self.writing.as_deref()
    }

    pub(super) fn line_mut(&mut self) -> Option<&mut Composer> {
        self.writing.as_deref_mut()
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.choices.len() + usize::from(self.free_text) + 1
    }

    /// The row at this place; `None` after the last one.
    pub fn row(&self, at: usize) -> Option<AskRow> {
        match at.checked_sub(self.choices.len()) {
            None => Some(AskRow::Choice(at)),
            Some(0) if self.free_text => Some(AskRow::Text),
            Some(_) => (at + 1 == self.rows()).then_some(AskRow::Skip),
        }
    }

    pub(super) fn step(&mut self, by: isize) {
        let rows = self.rows() as isize;
        let at = match self.cursor {
            Some(at) => (at as isize + by).rem_euclid(rows),
            None if by < 0 => rows - 1,
            None => 0,
        };
        self.cursor = Some(at as usize);
    }

    /// A digit goes to its row: with several to choose it also chooses, and on the row for text it starts the line.
    /// Returns `false` if there is no such row.
    pub(crate) fn choose(&mut self, at: usize) -> bool {
        match self.row(at) {
            None => return false,
            Some(AskRow::Choice(_)) => {
                self.cursor = Some(at);
                self.toggle();
            }
            Some(AskRow::Text) => self.write(""),
            Some(AskRow::Skip) => self.cursor = Some(at),
        }
        true
    }

    /// Ticks the choice that the arrows are at, else the first one, where several may be chosen.
    pub(super) fn toggle(&mut self) {
        let at = self.cursor.unwrap_or(0);
        if !self.multi || at >= self.choices.len() {
            return;
        }
        self.cursor = Some(at);
        if !self.chosen.remove(&at) {
            self.chosen.insert(at);
        }
    }

    /// Starts the line with this text, or adds it to the line. Only for questions that take text.
    pub(crate) fn write(&mut self, text: &str) {
        self.cursor = Some(self.choices.len());
        self.writing.get_or_insert_with(|| Box::new(super::line())).insert_text(text);
    }

    /// Handles Enter. On the row for text it starts the line.
    pub(super) fn accept(&mut self) -> Accepted {
        match self.cursor.and_then(|at| self.row(at)) {
            Some(AskRow::Skip) => Accepted::Skip,
            Some(AskRow::Text) => {
                self.write("");
                Accepted::Nothing
            }
            Some(AskRow::Choice(at)) if !self.multi => {
                Accepted::Answer(json!({ "answer": self.choices[at].label }))
            }
            Some(AskRow::Choice(_)) | None if self.chosen.is_empty() => Accepted::Nothing,
            Some(AskRow::Choice(_)) | None => {
                let labels: Vec<&str> =
                    self.chosen.iter().map(|at| self.choices[*at].label.as_str()).collect();
                Accepted::Answer(json!({ "answers": labels }))
            }
        }
    }

    /// Why Enter was no answer.
    pub(super) fn hint(&self) -> Option<String> {
        let text = match (self.writing.is_some(), self.multi) {
            (true, _) => return None,
            (false, true) => "select with Space first",
            (false, false) => "select one first, with the arrows or its number",
        };
        Some(text.to_owned())
    }

    /// Returns the entered text as an answer.
    pub(super) fn written(&mut self) -> Option<Value> {
        let text = self.writing.as_ref()?.text().trim().to_owned();
        if text.is_empty() {
            return None;
        }
        let text = self.writing.as_mut()?.take().trim().to_owned();
        if !self.multi {
            return Some(json!({ "answer": text }));
        }
        let mut answers: Vec<String> = self.chosen.iter().map(|at| self.choices[*at].label.clone()).collect();
        answers.push(text);
        Some(json!({ "answers": answers }))
    }

    pub(super) fn stop_writing(&mut self) {
        self.writing = None;
        if self.choices.is_empty() {
            self.cursor = Some(0);
        }
    }
}
