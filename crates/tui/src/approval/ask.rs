//! A question with choices, text, or both.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::composer::Composer;
use aye_core::contract::question::{ChoiceQuestion, QuestionChoice};

/// The choices and text entered so far.
#[derive(Clone, Debug, Default)]
pub struct AskState {
    choices: Vec<QuestionChoice>,
    multi: bool,
    free_text: bool,
    /// The selected row: a choice, or the row for text after them.
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

    /// The choices.
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

    fn rows(&self) -> usize {
        self.choices.len() + usize::from(self.free_text)
    }

    pub(super) fn step(&mut self, by: isize) {
        let rows = self.rows() as isize;
        if rows == 0 {
            return;
        }
        let at = match self.cursor {
            Some(at) => (at as isize + by).rem_euclid(rows),
            None if by < 0 => rows - 1,
            None => 0,
        };
        self.cursor = Some(at as usize);
    }

    /// A digit goes to its choice; with several to choose it also chooses.
    pub(super) fn choose(&mut self, choice: usize) {
        if choice >= self.rows() {
            return;
        }
        self.cursor = Some(choice);
        if self.multi {
            self.toggle();
        }
    }

    pub(super) fn toggle(&mut self) {
        let Some(at) = self.cursor.filter(|at| *at < self.choices.len() && self.multi) else { return };
        if !self.chosen.remove(&at) {
            self.chosen.insert(at);
        }
    }

    /// Handles Enter: returns the answer, if there is one. On the row for text it starts the input line.
    pub(super) fn accept(&mut self) -> Option<Value> {
        if self.cursor == Some(self.choices.len()) && self.free_text {
            self.writing = Some(Box::new(super::line()));
            return None;
        }
        if self.multi {
            let labels: Vec<&str> = self.chosen.iter().map(|at| self.choices[*at].label.as_str()).collect();
            return (!labels.is_empty()).then(|| json!({ "answers": labels }));
        }
        let choice = self.choices.get(self.cursor?)?;
        Some(json!({ "answer": choice.label }))
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
