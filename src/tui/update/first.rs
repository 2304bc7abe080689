//! The questions of the first start: lists like any other, one after the other. Esc leaves things as they are.

use super::super::app::{App, FirstStart};
use super::super::host::Choice;
use super::super::msg::Cmd;
use super::super::picker::PickerKind;
use super::super::transcript::Level;

impl App {
    /// Begins with the questions that are open.
    pub fn begin_first_start(&mut self, questions: FirstStart) -> Vec<Cmd> {
        let mut cmds = Vec::new();
        self.first = Some(questions);
        if questions.model || questions.theme {
            let text =
                "Welcome. Choose a model and colours, or leave each with Esc; /model and /theme ask again.";
            self.transcript.note(Level::Info, text);
        }
        self.ask_next_of_first(&mut cmds);
        cmds
    }

    /// Opens the next list, when the one before is closed.
    pub(super) fn ask_next_of_first(&mut self, cmds: &mut Vec<Cmd>) {
        if self.picker.is_some() || !self.composer.is_empty() {
            return;
        }
        let Some(left) = &mut self.first else { return };
        if std::mem::take(&mut left.model) {
            self.fetch(PickerKind::Models, Cmd::Models, cmds);
        } else if std::mem::take(&mut left.theme) {
            self.fetch_themes(cmds);
        } else {
            self.first = None;
        }
    }

    /// A model of the first start is kept; later one is for the start in which it is chosen.
    pub(super) fn keep_first_model(&mut self, name: &str, cmds: &mut Vec<Cmd>) {
        if self.first.is_some() {
            cmds.push(Cmd::Keep(Choice::Model, name.to_owned()));
        }
    }
}
