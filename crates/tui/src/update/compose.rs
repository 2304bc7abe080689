//! Keys of the composer, and other changes of its text.

use crossterm::event::KeyEvent;

use super::super::app::App;
use super::super::composer::paste::clean;
use super::super::composer::vim::Vim;
use super::super::host::{WritingCmd, WritingMsg};
use super::super::keymap::{Action, KeyContext, typed};
use super::super::msg::Cmd;
use super::super::palette::Palette;
use super::super::picker::{PickRow, PickerKind};
use super::super::transcript::Level;
use super::edit;

/// The completions offered while the user types.
#[derive(Debug, Default)]
pub struct Completion {
    /// The list below the text.
    pub palette: Option<Palette>,
    /// The start of the word for which the user closed the list.
    pub(crate) dismissed: Option<usize>,
    /// The number of the last question for files.
    pub(crate) files_asked: u64,
}

impl App {
    pub(super) fn writing_msg(&mut self, msg: WritingMsg, cmds: &mut Vec<Cmd>) {
        match msg {
            WritingMsg::Draft(thread, draft) => self.drafted(&thread, draft, cmds),
            WritingMsg::History(history) => self.fill_history(history),
            WritingMsg::Files(number, paths) => self.offer_files(number, paths),
            WritingMsg::Skills(skills) => {
                let rows = skills.iter().map(|skill| PickRow {
                    value: skill.name.clone(),
                    label: format!("/{}", skill.name),
                    detail: skill.description.clone(),
                    note: skill.origin.clone(),
                    ..PickRow::default()
                });
                let rows = rows.collect();
                self.fill_picker(PickerKind::Skills, rows);
                self.skills = skills;
            }
        }
    }

    /// The table of the keymap that the text is written with.
    pub(super) fn writing(&self) -> KeyContext {
        match &self.vim {
            Some(vim) if !vim.inserts() => KeyContext::Vim,
            Some(_) | None => KeyContext::Composer,
        }
    }

    /// The tables that count for the text, the first one first.
    pub(super) fn writing_layers(&self) -> Vec<KeyContext> {
        let empty = self.composer.is_empty().then_some(KeyContext::Empty);
        let queue = empty.and(self.queue.at).map(|_| KeyContext::Queue);
        queue.into_iter().chain(empty).chain(self.writing().layers().iter().copied()).collect()
    }

    pub(super) fn writing_action(&self, key: KeyEvent) -> Option<Action> {
        let is_empty = self.composer.is_empty();
        let queue = self.queue.at.filter(|_| is_empty).and_then(|_| self.keymap.own(KeyContext::Queue, key));
        let empty = || is_empty.then(|| self.keymap.own(KeyContext::Empty, key)).flatten();
        queue.or_else(empty).or_else(|| self.keymap.action(self.writing(), key))
    }

    pub(super) fn composer_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) {
        let action = self.writing_action(key);
        if self.queued_key(action, cmds) {
            return;
        }
        match action {
            Some(Action::Send) if self.take_start(cmds) => self.refresh_palette(cmds),
            Some(Action::Send) => {
                if !self.composer.newline_after_backslash() {
                    let behind = self.queue.keeps_waiting && !self.conversation.is_active();
                    self.send(behind, cmds);
                }
            }
            Some(Action::SendBehind) => self.send(true, cmds),
            Some(Action::Interrupt) if self.leave_vim_mode() => {}
            Some(Action::Interrupt) if self.conversation.is_active() => self.interrupt(cmds),
            Some(Action::Interrupt) if !self.cards.open.is_empty() => {
                let chord = self.keymap.chord_of(KeyContext::Composer, Action::FocusCard);
                self.show_hint(format!("{chord} goes to the question"));
            }
            Some(Action::Interrupt) => self.arm_rewind(cmds),
            Some(Action::FocusCard) if self.asking_card().is_none() && self.conversation.is_active() => {
                if !self.composer.is_empty() {
                    self.send(true, cmds);
                } else if !self.cards.open.is_empty() {
                    self.focus_card();
                }
            }
            Some(Action::FocusCard) => self.focus_card(),
            Some(Action::DeleteOrQuit) if self.composer.is_empty() => self.quit(cmds),
            Some(Action::OpenPaste) => {
                if !self.composer.open_paste() {
                    self.show_hint("the text has no folded paste");
                }
            }
            Some(Action::AttachImage) => self.attach_clipboard(cmds),
            Some(Action::Editor) => cmds.push(Cmd::Compose(self.composer.whole())),
            Some(Action::Background) => self.move_command(cmds),
            Some(Action::History) => self.fetch(PickerKind::History, Cmd::Writing(WritingCmd::History), cmds),
            Some(action) => {
                edit(&mut self.composer, action);
                if let Some(vim) = &mut self.vim {
                    vim.note_edit(action == Action::DeleteLeft);
                    vim.settle(&mut self.composer);
                }
            }
            None => {
                if let Some(c) = typed(key) {
                    self.type_char(c);
                }
            }
        }
        self.refresh_palette(cmds);
    }

    fn type_char(&mut self, c: char) {
        match &mut self.vim {
            Some(vim) if !vim.inserts() => vim.key(&mut self.composer, c),
            Some(vim) => {
                self.composer.insert(c);
                vim.note_typed(c);
            }
            None => self.composer.insert(c),
        }
        self.cards.stays = false;
    }

    /// Takes the whole text out and is ready for the next one.
    pub(super) fn begin_text(&mut self) -> String {
        if let Some(vim) = &mut self.vim {
            vim.begin();
        }
        self.composer.take()
    }

    fn leave_vim_mode(&mut self) -> bool {
        match &mut self.vim {
            Some(vim) => vim.escape(&mut self.composer),
            None => false,
        }
    }

    /// Uses the keys of vi from now on, or not.
    pub fn set_vim(&mut self, is_used: bool) {
        self.vim = is_used.then(Vim::default);
        self.composer.end_group();
    }

    pub(super) fn toggle_vim(&mut self) {
        self.set_vim(self.vim.is_none());
        self.show_hint(if self.vim.is_some() {
            "vi keys on: Esc leaves insert mode; tui.editing = \"vim\" in the settings makes them the default"
        } else {
            "vi keys off; tui.editing in the settings sets the default"
        });
    }

    /// Fills the list of earlier messages once they are loaded.
    pub(super) fn fill_history(&mut self, history: Result<Vec<String>, String>) {
        match history {
            Ok(history) => {
                let rows = history.into_iter().map(|text| PickRow {
                    label: text.split_whitespace().collect::<Vec<_>>().join(" "),
                    value: text,
                    ..PickRow::default()
                });
                let rows = rows.collect();
                self.fill_picker(PickerKind::History, rows);
            }
            Err(error) => {
                self.overlays.picker = None;
                self.conversation.transcript.note(Level::Error, error);
            }
        }
    }

    /// Handles the closing of the user's external editor.
    pub(super) fn composed(&mut self, text: Result<String, String>, cmds: &mut Vec<Cmd>) {
        match text {
            Ok(text) => {
                // Editors end the last line with a line break that the user did not type.
                let whole = self.composer.whole();
                let written = text.strip_suffix('\n').unwrap_or(&text);
                if text != whole && written != whole {
                    self.composer.set(clean(written));
                }
            }
            Err(why) => self.show_hint(why),
        }
        self.typed_at = Some(self.now);
        self.refresh_palette(cmds);
    }
}
