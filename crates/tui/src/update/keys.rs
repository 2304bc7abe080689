//! Routes keys and pastes to the open list, the card, or the composer.

use crossterm::event::KeyEvent;

use super::super::app::{App, Focus};
use super::super::approval::CardStage;
use super::super::host::{MentionRow, Mode, ThreadCmd, ThreadOwner, WritingCmd};
use super::super::keymap::{Action, Chord, KeyContext, Stroke, typed};
use super::super::msg::Cmd;
use super::super::palette::{self, CompletionItem, CompletionKind, Palette};
use super::super::picker::PickerKind;

/// The number of rows in a page of a list.
const PAGE: isize = 10;

impl App {
    pub(super) fn key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) {
        let Some(key) = self.stroke(key) else { return };
        let action = self.keymap.action(KeyContext::Composer, key);
        if action != Some(Action::Interrupt) {
            self.forget_escape();
        }
        if self.global_key(key, cmds) {
            return;
        }
        self.quit_armed = None;
        if self.overlays.viewer.is_some() {
            self.viewer_key(key, cmds);
        } else if self.overlays.picker.is_some() {
            self.picker_key(key, cmds);
        } else if !(self.focus == Focus::Card && self.card_key(key, cmds)
            || self.pane_key(key, cmds)
            || self.is_stray_digit(key))
        {
            if self.focus == Focus::Card {
                self.focus = Focus::Composer;
            }
            self.typed_at = Some(self.now);
            self.note_digit(key);
            if !self.palette_key(key, cmds) {
                self.composer_key(key, cmds);
            }
        }
    }

    /// Returns whether the key is a stray digit. Digits answer questions: while one is pending, no message
    /// starts with a digit.
    fn is_stray_digit(&mut self, key: KeyEvent) -> bool {
        let is_command = self.vim.as_ref().is_some_and(|vim| !vim.inserts());
        let is_stray = typed(key).is_some_and(|c| c.is_ascii_digit())
            && self.asking_card().is_some_and(|card| !matches!(card.stage, CardStage::Stopping))
            && self.composer.is_empty()
            && !self.display.is_linear
            && !is_command;
        if is_stray && self.focus == Focus::Composer {
            // The user is typing, so the card does not take the following keys.
            self.typed_at = Some(self.now);
            let chord = self.keymap.chord_of(KeyContext::Composer, Action::FocusCard);
            self.show_hint(format!("digits answer the question; press {chord} first"));
        } else if is_stray {
            self.show_hint("key ignored: new question");
        }
        is_stray
    }

    /// The tables that count where keys go now, the first one first.
    pub(in super::super) fn key_layers(&self) -> Vec<KeyContext> {
        match (&self.overlays.viewer, self.overlays.picker.is_some(), self.focus) {
            (Some(viewer), ..) if viewer.input.is_some() => KeyContext::List.layers().to_vec(),
            (Some(_), ..) => KeyContext::Viewer.layers().to_vec(),
            (None, true, _) => KeyContext::List.layers().to_vec(),
            (None, false, Focus::Card) => KeyContext::Card.layers().to_vec(),
            (None, false, Focus::Composer) => self.writing_layers(),
        }
    }

    /// Combines keys that are pressed one after another. Returns `None` if there is nothing to do, either not
    /// yet or not any more.
    fn stroke(&mut self, key: KeyEvent) -> Option<KeyEvent> {
        let begun = std::mem::take(&mut self.begun);
        match self.keymap.stroke(&self.key_layers(), &begun, key) {
            Stroke::Key(key) => return Some(key),
            Stroke::Pending => {
                self.begun = begun;
                self.begun.push(Chord::of(key));
                self.typed_at = Some(self.now);
            }
            Stroke::Nothing => {
                let action = self.keymap.action(KeyContext::Composer, key);
                // Esc and Ctrl-C end it without a word; what else was pressed is not done either.
                if !matches!(action, Some(Action::Interrupt | Action::CancelOrQuit)) {
                    let keys: Vec<String> = begun
                        .iter()
                        .copied()
                        .chain([Chord::of(key)])
                        .map(|chord| chord.to_string())
                        .collect();
                    self.show_hint(format!("{} does nothing here", keys.join(" ")));
                }
            }
        }
        None
    }

    /// Keys that mean the same everywhere, unless the place has its own meaning for them.
    fn global_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) -> bool {
        let action = match (&self.overlays.viewer, self.overlays.picker.is_some(), self.focus) {
            (Some(viewer), ..) if viewer.input.is_some() => self.keymap.action(KeyContext::List, key),
            (Some(_), ..) => self.keymap.action(KeyContext::Viewer, key),
            (None, true, _) => self.keymap.action(KeyContext::List, key),
            (None, false, Focus::Card) => self.keymap.action(KeyContext::Card, key),
            (None, false, Focus::Composer) => self.writing_action(key),
        };
        match action {
            Some(Action::CancelOrQuit) => self.cancel_or_quit(cmds),
            Some(Action::Redraw) => cmds.push(Cmd::Redraw),
            Some(Action::Suspend) => cmds.push(Cmd::Suspend),
            Some(Action::Viewer) => self.toggle_viewer(),
            Some(Action::Expand) => self.expand(cmds),
            Some(Action::CycleMode) => {
                let is_allowed = |mode: &Mode| self.info.most_mode.is_none_or(|most| mode.is_within(most));
                let next = std::iter::successors(Some(self.info.mode.next()), |mode| Some(mode.next()))
                    .take(Mode::ALL.len())
                    .find(is_allowed);
                if let Some(mode) = next {
                    self.set_mode(mode, cmds);
                }
            }
            Some(Action::Help) => self.open_help(),
            Some(Action::Inbox) => self.toggle_inbox(cmds),
            _ => return false,
        }
        true
    }

    /// Clears or interrupts, and says what a second press does.
    fn cancel_or_quit(&mut self, cmds: &mut Vec<Cmd>) {
        if self.quit_armed.take().is_some() {
            self.quit(cmds);
            return;
        }
        let had_picker = self.overlays.picker.is_some() && self.overlays.viewer.is_none();
        let done = if self.overlays.viewer.take().is_some()
            || self.overlays.picker.take().is_some()
            || self.completion.palette.take().is_some_and(|known| !known.rows.is_empty())
        {
            "closed"
        } else if !self.composer.is_empty() {
            self.composer.clear();
            self.refresh_palette(cmds);
            "cleared"
        } else if self.conversation.is_active() && !self.is_driven_elsewhere() {
            self.interrupt(cmds);
            "stopping"
        } else {
            ""
        };
        if had_picker {
            self.resumes_by_list(cmds);
        }
        let chord = self.keymap.chord_of(KeyContext::Global, Action::CancelOrQuit);
        let gap = if done.is_empty() { "" } else { "; " };
        let waiting = if self.own_cards() == 0 { "" } else { " (questions stay in the inbox)" };
        self.display.hint = Some((
            format!("{done}{gap}press {chord} again to quit{waiting}"),
            self.now.plus(super::super::app::QUIT_MS),
        ));
        self.quit_armed = Some(self.now);
    }

    pub(super) fn interrupt(&mut self, cmds: &mut Vec<Cmd>) {
        use super::super::app::RunState;
        if self.is_driven_elsewhere() {
            self.show_driver_hint();
        } else if let (Some(since), Some(thread)) =
            (self.conversation.run.active_since(), self.conversation.id().cloned())
        {
            self.conversation.run = RunState::Stopping(since);
            cmds.push(Cmd::Thread(ThreadCmd::Cancel(thread)));
        }
    }

    /// Moves the running command to the background.
    pub(super) fn move_command(&mut self, cmds: &mut Vec<Cmd>) {
        match self.conversation.id().cloned() {
            Some(_) if self.is_driven_elsewhere() => self.show_driver_hint(),
            Some(thread) if self.conversation.transcript.runs_command() => {
                cmds.push(Cmd::Thread(ThreadCmd::ToBackground(thread)));
            }
            Some(_) | None => self.show_hint("no command is running"),
        }
    }

    /// Returns whether another process drives the conversation: only that process can stop it.
    pub(super) fn is_driven_elsewhere(&self) -> bool {
        matches!(self.conversation.driver, ThreadOwner::Other(_))
    }

    pub(super) fn show_driver_hint(&mut self) {
        if let ThreadOwner::Other(pid) = self.conversation.driver {
            self.show_hint(format!("process {pid} runs this conversation; interrupt it there"));
        }
    }

    pub(super) fn paste(&mut self, text: &str, cmds: &mut Vec<Cmd>) {
        self.quit_armed = None;
        self.overlays.back.armed = None;
        self.begun.clear();
        if self.viewer_paste(text) {
            return;
        }
        if let Some(picker) = &mut self.overlays.picker {
            let most = if picker.kind == PickerKind::Key { 8192 } else { 200 };
            picker.type_all(text.chars().filter(|c| !c.is_control()).take(most));
            return;
        }
        if self.focus == Focus::Card
            && self.cards.open.get_mut(self.cards.at).is_some_and(|card| card.paste(text))
        {
            self.ask_for_preview(cmds);
            return;
        }
        // A paste is never an answer.
        self.focus = Focus::Composer;
        self.typed_at = Some(self.now);
        self.composer.paste(text);
        self.attach_dropped(text, cmds);
        self.refresh_palette(cmds);
    }

    /// Handles keys of the completion list; other keys are passed on to the text.
    fn palette_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) -> bool {
        let Some(palette) = &mut self.completion.palette else { return false };
        if palette.rows.is_empty()
            || typed(key).is_some()
            || self.vim.as_ref().is_some_and(|vim| !vim.inserts())
        {
            return false;
        }
        match self.keymap.action(KeyContext::List, key) {
            Some(Action::Up) => palette.step(-1),
            Some(Action::Down) => palette.step(1),
            Some(Action::Close) => {
                self.completion.dismissed = Some(palette.range.start);
                self.completion.palette = None;
            }
            Some(Action::Complete) => {
                self.complete(cmds);
            }
            // The text as typed is enough, unless the user selected a row.
            Some(Action::Accept) if palette.offer == CompletionKind::Words && !palette.is_chosen => {
                return false;
            }
            Some(Action::Accept) => {
                let is_command = palette.offer == CompletionKind::Commands;
                let takes_words = self.complete(cmds);
                if is_command && !takes_words {
                    self.send(self.queue.keeps_waiting, cmds);
                }
            }
            _ => return false,
        }
        true
    }

    /// Inserts the selected row into the text. Returns whether words may follow it.
    fn complete(&mut self, cmds: &mut Vec<Cmd>) -> bool {
        let Some(palette) = self.completion.palette.take() else { return false };
        // The text may have changed without a key, such as by a message that came back from the queue.
        let wanted = palette::wanted(self.composer.text(), self.composer.caret());
        if wanted.is_none_or(|(offer, range, _)| offer != palette.offer || range != palette.range) {
            self.refresh_palette(cmds);
            return false;
        }
        let Some(row) = palette.chosen() else { return false };
        let text = palette.text_of(row);
        self.composer.replace(palette.range.clone(), &text);
        self.refresh_palette(cmds);
        row.takes_words
    }

    /// Updates the completions for the text at the caret.
    pub(super) fn refresh_palette(&mut self, cmds: &mut Vec<Cmd>) {
        let Some((offer, range, query)) = palette::wanted(self.composer.text(), self.composer.caret()) else {
            self.completion.palette = None;
            self.completion.dismissed = None;
            return;
        };
        if self.completion.dismissed == Some(range.start) {
            return;
        }
        self.completion.dismissed = None;
        let query = query.to_owned();
        let same = self
            .completion
            .palette
            .as_ref()
            .is_some_and(|known| known.offer == offer && known.query == query);
        if same {
            if let Some(palette) = &mut self.completion.palette {
                palette.range = range;
            }
            return;
        }
        let unknown = palette::unknown_command(self.composer.text(), &self.skills);
        let mut help = unknown.map_or_else(String::new, palette::not_a_command);
        let rows = match offer {
            CompletionKind::Words if unknown.is_some() => Vec::new(),
            CompletionKind::Words => {
                let Some((how, rows)) = palette::words(self.composer.text(), &query, &self.skills) else {
                    self.completion.palette = None;
                    return;
                };
                help = how;
                rows
            }
            CompletionKind::Commands => palette::commands(&query, &self.skills),
            CompletionKind::Skills => palette::skills(&query, &self.skills),
            CompletionKind::Files => {
                self.completion.files_asked += 1;
                cmds.push(Cmd::Writing(WritingCmd::Files(
                    self.completion.files_asked,
                    query.trim_start_matches('"').to_owned(),
                )));
                // The rows of the shorter query stay until the new ones arrive.
                self.completion
                    .palette
                    .take()
                    .filter(|known| known.offer == CompletionKind::Files)
                    .map(|known| known.rows)
                    .unwrap_or_default()
            }
        };
        self.completion.palette =
            Some(Palette { offer, range, query, rows, selected: 0, is_chosen: false, help });
    }

    pub(super) fn offer_files(&mut self, number: u64, mentions: Vec<MentionRow>) {
        if number != self.completion.files_asked {
            return;
        }
        if let Some(palette) =
            self.completion.palette.as_mut().filter(|palette| palette.offer == CompletionKind::Files)
        {
            let row = |MentionRow { label, detail }| CompletionItem { label, detail, takes_words: true };
            let rows = mentions.into_iter().map(row);
            palette.rows = rows.collect();
            palette.selected = 0;
        }
    }

    fn picker_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) {
        let Some(picker) = &mut self.overlays.picker else { return };
        if let Some(c) = typed(key) {
            picker.type_in(c);
            self.search_threads(cmds);
            return;
        }
        match self.keymap.action(KeyContext::List, key) {
            Some(Action::Up) => picker.step(-1),
            Some(Action::Down) => picker.step(1),
            Some(Action::PageUp) => picker.step(-PAGE),
            Some(Action::PageDown) => picker.step(PAGE),
            Some(Action::First) => picker.end(false),
            Some(Action::Last) => picker.end(true),
            Some(Action::DeleteLeft) => {
                picker.delete();
                self.search_threads(cmds);
            }
            Some(Action::Close) => {
                self.overlays.picker = None;
                self.overlays.back.found.clear();
                self.resumes_by_list(cmds);
            }
            Some(Action::Accept | Action::Complete) => self.pick(cmds),
            Some(Action::Jump) if picker.kind == PickerKind::Threads => self.open_thread_menu(),
            Some(Action::Jump) => self.jump(cmds),
            _ => {}
        }
    }

    /// Shows more of what tools printed: running ones in place, finished ones once more below.
    fn expand(&mut self, cmds: &mut Vec<Cmd>) {
        if self.overlays.wants_other_screen() {
            return;
        }
        if self.conversation.transcript.running() > 0 {
            self.display.expanded = !self.display.expanded;
            return;
        }
        let folded = self.folded_since_last_words();
        if folded.is_empty() {
            self.show_hint("no output is folded");
        } else {
            self.display.unfolded = folded.last().copied();
            cmds.push(Cmd::ShowWhole(folded));
        }
    }
}
