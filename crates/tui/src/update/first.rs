//! The first start: names the active model and how to connect another. Asks nothing.

use crossterm::event::KeyEvent;

use super::super::app::{App, QUIET_MS};
use super::super::host::{ModelCmd, StartChoice};
use super::super::keymap::typed;
use super::super::msg::Cmd;
use super::super::transcript::{EntryKind, Level, Moment};
use super::super::view::spoken_model;

impl App {
    /// Records that a key which is about to be written is a digit on its own.
    pub(super) fn note_digit(&mut self, key: KeyEvent) {
        let is_digit = self.composer.is_empty() && typed(key).is_some_and(|c| c.is_ascii_digit());
        self.digit_at = is_digit.then_some(self.now);
    }

    /// The way to begin whose digit is all that is written, before the first message.
    fn written_start(&self) -> Option<&StartChoice> {
        let digit: usize = Some(self.composer.text()).filter(|text| text.len() == 1)?.parse().ok()?;
        let entries = self.conversation.transcript.entries();
        let is_before = !self.conversation.is_active()
            && self.overlays.picker.is_none()
            && self.overlays.viewer.is_none()
            && !entries.iter().any(|entry| matches!(entry.kind, EntryKind::User { .. }));
        self.info.start.get(digit.checked_sub(1)?).filter(|_| is_before)
    }

    /// When the digit that is written counts, because nothing was written after it.
    pub(in super::super) fn start_deadline(&self) -> Option<Moment> {
        let at = self.digit_at.filter(|_| !self.display.is_linear)?;
        self.written_start().map(|_| at.plus(QUIET_MS))
    }

    /// Does what the digit stands for once nothing was written after it for a moment: it may be the start of a message.
    pub(super) fn settle_start(&mut self, cmds: &mut Vec<Cmd>) {
        if self.start_deadline().is_some_and(|due| due <= self.now) {
            self.take_start(cmds);
        }
    }

    /// Does what the digit that is written stands for. Returns whether there was one.
    pub(super) fn take_start(&mut self, cmds: &mut Vec<Cmd>) -> bool {
        let Some(choice) = self.written_start().cloned() else { return false };
        self.composer.clear();
        self.digit_at = None;
        match choice {
            StartChoice::LogIn => self.login_command("", cmds),
            StartChoice::Use { name, .. } => cmds.push(Cmd::Model(ModelCmd::Set(name))),
            StartChoice::Demo if self.info.is_demo => {
                self.show_hint("the demo model answers; try `run ls` or `help`");
            }
            StartChoice::Demo => cmds.push(Cmd::Model(ModelCmd::Try("demo".to_owned()))),
        }
        true
    }

    /// Shows the words of the first start, above the text that is written.
    pub fn welcome(&mut self) {
        let text = if self.info.is_demo {
            "I am the demo model: I come with aye and work offline. I understand a few commands and use the \
             same tools, rules and questions as any model. Try `list files`, `run ls -l` or `help`.\nTo \
             connect a real model, type /login and paste a key, or start Ollama. /model lists the available \
             models."
                .to_owned()
        } else {
            format!(
                "Using {} ({}). /model lists the others, /login connects another provider, /theme changes the colours.",
                spoken_model(&self.info),
                self.info.model_why
            )
        };
        self.conversation.transcript.note(Level::Info, text);
    }
}
