//! The viewer and the full screen: keys and their effects.

use crossterm::event::KeyEvent;

use super::super::app::App;
use super::super::diff::SIDES_NEED;
use super::super::keymap::{Action, KeyContext, typed};
use super::super::msg::Cmd;
use super::super::transcript::{self, Entry, EntryKind};
use super::super::view;
use super::super::viewer::source::{self, Code};
use super::super::viewer::{Document, InputPurpose, Landmark, Scene, Search, SearchStep, Viewer};
use crate::host::{ImageCmd, ThreadCmd};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::record::StoredMessage;

/// More is fetched from the store when so few entries are above.
const NEAR: usize = 100;

impl App {
    /// Opens or closes the viewer.
    pub(super) fn toggle_viewer(&mut self) {
        if self.is_read_aloud() {
            return;
        }
        if self.overlays.viewer.take().is_none() {
            if self.conversation.transcript.entries().is_empty() {
                self.show_hint("no messages yet");
                return;
            }
            self.overlays.viewer = Some(Viewer::new(true, &self.conversation.transcript));
        }
    }

    /// Opens a document in the viewer.
    pub(super) fn open_document(&mut self, document: Document) {
        self.overlays.documents += 1;
        self.overlays.viewer =
            Some(Viewer::of_document(Document { epoch: u32::MAX - self.overlays.documents, ..document }));
    }

    /// Returns whether the terminal is in screen reader mode, and shows a hint if so. A screen reader gets
    /// everything in order; another screen would add nothing.
    fn is_read_aloud(&mut self) -> bool {
        if self.display.is_linear {
            self.show_hint("everything was already read out; the screen reader mode has no viewer");
        }
        self.display.is_linear
    }

    /// To the other screen, or back to the terminal's own scrollback.
    pub fn toggle_screen(&mut self) {
        if self.is_read_aloud() {
            return;
        }
        self.overlays.pane = if self.overlays.pane.is_some() {
            None
        } else {
            Some(Viewer::new(false, &self.conversation.transcript))
        };
    }

    /// Does something with the reader that is on the screen, in what it reads.
    pub(super) fn read<T>(&mut self, act: impl FnOnce(&mut Viewer, &Scene<'_>) -> T) -> Option<T> {
        let is_viewer = self.overlays.viewer.is_some();
        let mut reader = if is_viewer { self.overlays.viewer.take() } else { self.overlays.pane.take() }?;
        let document = reader.document.clone();
        let scene = view::viewer::scene(self, reader.whole, document.as_deref());
        let done = act(&mut reader, &scene);
        if is_viewer {
            self.overlays.viewer = Some(reader);
        } else {
            self.overlays.pane = Some(reader);
        }
        Some(done)
    }

    /// A key while the viewer is open.
    pub(super) fn viewer_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) {
        if self.overlays.viewer.as_ref().is_some_and(|viewer| viewer.input.is_some()) {
            self.viewer_input_key(key, cmds);
            return;
        }
        if let Some(action) = self.keymap.action(KeyContext::Viewer, key) {
            self.reader_action(action, cmds);
        }
    }

    /// Handles a key that scrolls the conversation on the full screen. Returns `false` if the key is meant
    /// for something else.
    pub(super) fn pane_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) -> bool {
        let action = self.keymap.action(KeyContext::Composer, key);
        match action {
            Some(Action::PageUp | Action::PageDown | Action::ScrollUp | Action::ScrollDown) => {
                let Some(action) = action else { return false };
                if self.overlays.pane.is_some() {
                    self.reader_action(action, cmds);
                } else {
                    self.show_hint("the terminal scrolls inline output; /screen switches to the full screen");
                }
                true
            }
            Some(Action::Search) => {
                if self.overlays.viewer.is_none() {
                    self.toggle_viewer();
                }
                if self.overlays.viewer.is_some() {
                    self.reader_action(Action::Search, cmds);
                }
                true
            }
            Some(_) | None => false,
        }
    }

    /// Another conversation is shown from now on.
    pub(super) fn shows_another(&mut self) {
        (self.conversation.loading.fetched_from, self.conversation.loading.fetching) = (None, false);
        self.overlays.viewer = None;
        if self.overlays.pane.is_some() {
            self.overlays.pane = Some(Viewer::new(false, &self.conversation.transcript));
        }
    }

    /// Fetches earlier entries from the store when the user is near them.
    pub(super) fn load_earlier(&mut self, cmds: &mut Vec<Cmd>) {
        let viewer = self.overlays.viewer.as_ref().filter(|viewer| viewer.document.is_none());
        let Some(reader) = viewer.or(self.overlays.pane.as_ref()) else {
            self.forget_earlier();
            return;
        };
        let Some(seq) = self.conversation.transcript.starts_at() else { return };
        if self.conversation.loading.fetching || !reader.is_within(&self.conversation.transcript, NEAR) {
            return;
        }
        if let Some(thread) = self.conversation.id().cloned() {
            self.conversation.loading.fetching = true;
            self.conversation.loading.fetched_from.get_or_insert(seq);
            cmds.push(Cmd::Thread(ThreadCmd::Earlier(thread, seq)));
        }
    }

    /// Removes the entries that were fetched for display and are no longer shown.
    fn forget_earlier(&mut self) {
        if let Some(seq) = self.conversation.loading.fetched_from.take() {
            self.conversation.transcript.forget_earlier(seq);
        }
    }

    /// Trims the start of a long conversation, leaving it to the store, while only the end is shown.
    pub(super) fn trim_transcript(&mut self, cmds: &mut Vec<Cmd>) {
        if self.conversation.loading.cutting || self.conversation.loading.opening > 0 || !self.is_at_the_end()
        {
            return;
        }
        match self.conversation.transcript.cut() {
            Some(place @ transcript::StorePosition::Seq(seq)) => {
                self.conversation.transcript.cut_at(&place, seq);
            }
            Some(transcript::StorePosition::Message(message)) => {
                let Some(thread) = self.conversation.id().cloned() else { return };
                self.conversation.loading.cutting = true;
                cmds.push(Cmd::Thread(ThreadCmd::Place(thread, message)));
            }
            None => {}
        }
    }

    /// Trims the conversation at the position that the store returned for a message.
    pub(super) fn placed(&mut self, thread: &ThreadId, message: String, seq: Result<Option<u64>, String>) {
        self.conversation.loading.cutting = false;
        let place = transcript::StorePosition::Message(message);
        if self.conversation.id() != Some(thread) {
            return;
        }
        match seq {
            Ok(Some(seq)) if self.is_at_the_end() => self.conversation.transcript.cut_at(&place, seq),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => self.conversation.transcript.no_cut_at(&place),
        }
    }

    /// Returns whether only the end of the conversation is shown.
    fn is_at_the_end(&self) -> bool {
        self.overlays.viewer.is_none() && self.overlays.pane.as_ref().is_none_or(Viewer::follows)
    }

    pub(super) fn earlier_loaded(
        &mut self,
        thread: &ThreadId,
        messages: Result<Vec<StoredMessage>, String>,
        cmds: &mut Vec<Cmd>,
    ) {
        self.conversation.loading.fetching = false;
        if self.conversation.id() != Some(thread) || self.conversation.loading.fetched_from.is_none() {
            return;
        }
        match messages {
            Ok(messages) => self.conversation.transcript.take_earlier(&messages),
            Err(error) => {
                self.show_hint(error);
                self.conversation.loading.fetching = true;
            }
        }
        self.load_earlier(cmds);
    }

    pub(super) fn copy_out(&mut self, text: String, what: &str, cmds: &mut Vec<Cmd>) {
        let size = text.len();
        cmds.push(Cmd::Copy(text));
        self.show_hint(format!("copied {what}, {size} bytes, if the terminal allows it"));
    }

    pub(super) fn reader_action(&mut self, action: Action, cmds: &mut Vec<Cmd>) {
        let jump = |app: &mut App, to: Landmark, forward: bool| {
            if app.read(|reader, scene| reader.jump(scene, to, forward)) == Some(false) {
                app.show_hint(if forward { "no more below" } else { "no more above" });
            }
        };
        match action {
            Action::ScrollUp => drop(self.read(|reader, scene| reader.scroll(scene, -1))),
            Action::ScrollDown => drop(self.read(|reader, scene| reader.scroll(scene, 1))),
            Action::PageUp | Action::PageDown => {
                let sign = if action == Action::PageUp { -1 } else { 1 };
                self.read(|reader, scene| reader.scroll(scene, sign * (scene.rows as isize - 1).max(1)));
            }
            Action::First => drop(self.read(|reader, scene| reader.end(scene, false))),
            Action::Last => drop(self.read(|reader, scene| reader.end(scene, true))),
            Action::NextMessage => jump(self, Landmark::Message, true),
            Action::PreviousMessage => jump(self, Landmark::Message, false),
            Action::NextTool => jump(self, Landmark::Tool, true),
            Action::PreviousTool => jump(self, Landmark::Tool, false),
            Action::NextQuestion => jump(self, Landmark::Question, true),
            Action::PreviousQuestion => jump(self, Landmark::Question, false),
            Action::Fold => drop(self.read(Viewer::fold)),
            Action::FoldAll => drop(self.read(Viewer::fold_all)),
            Action::ToggleSides => self.toggle_sides(),
            Action::Search => self.begin_input(InputPurpose::Search),
            Action::SearchNext => self.find(true),
            Action::SearchPrevious => self.find(false),
            Action::CodeBlock => {
                if self.code_of_chosen().is_empty() {
                    self.show_hint("this answer has no code block");
                } else {
                    self.begin_input(InputPurpose::Code);
                }
            }
            Action::CopySource => {
                let marked = self.read(Viewer::marked).flatten();
                if let Some(text) = marked {
                    self.copy_out(text, "selection", cmds);
                } else if let Some(kind) = self.chosen_kind() {
                    let text = source::text(kind);
                    self.copy_out(text, "source", cmds);
                }
            }
            Action::View => {
                if let Some(kind) = self.chosen_kind() {
                    cmds.push(Cmd::View("message.md".to_owned(), source::text(kind)));
                }
            }
            Action::ViewAll => {
                let document = self.overlays.viewer.as_ref().and_then(|viewer| viewer.document.as_deref());
                cmds.push(match document {
                    Some(document) => Cmd::View("aye.diff".to_owned(), source::document_patch(document)),
                    None => Cmd::View(
                        "conversation.md".to_owned(),
                        source::conversation(&self.conversation.transcript),
                    ),
                });
            }
            Action::OpenImage => match self.chosen().map(Entry::images) {
                Some(images) if !images.is_empty() => {
                    cmds.push(Cmd::Image(ImageCmd::Open(images.to_vec())));
                }
                _ => self.show_hint("this entry has no image"),
            },
            Action::Close => {
                let mark = self.overlays.viewer.as_mut().and_then(|viewer| viewer.mark.take());
                if mark.is_none() {
                    self.overlays.viewer = None;
                }
            }
            _ => {}
        }
    }

    /// Lays changes out in the other way.
    pub(super) fn toggle_sides(&mut self) {
        let columns = self.display.size.0;
        if columns < SIDES_NEED {
            self.show_hint(format!("side by side needs {SIDES_NEED} columns"));
            return;
        }
        self.display.layout = self.display.layout.toggled(columns);
        self.cards.are_laid_out_anew();
    }

    fn begin_input(&mut self, wanted: InputPurpose) {
        if let Some(viewer) = &mut self.overlays.viewer {
            viewer.input = Some((wanted, String::new()));
        }
    }

    fn chosen_kind(&self) -> Option<&EntryKind> {
        self.chosen().map(|entry| &entry.kind)
    }

    fn chosen(&self) -> Option<&Entry> {
        let reader = self.overlays.viewer.as_ref().or(self.overlays.pane.as_ref())?;
        let scene = view::viewer::scene(self, reader.whole, reader.document.as_deref());
        scene.transcript.entries().get(reader.chosen(&scene))
    }

    /// The blocks of code of the chosen answer, or the one nearest to what is chosen.
    pub(crate) fn code_of_chosen(&self) -> Vec<Code> {
        let Some(reader) = &self.overlays.viewer else { return Vec::new() };
        let scene = view::viewer::scene(self, reader.whole, reader.document.as_deref());
        let words = |entry: &Entry| match &entry.kind {
            EntryKind::Assistant { text, .. } => Some(text.clone()),
            _ => None,
        };
        let entries = scene.transcript.entries();
        let (before, after) = entries.split_at((reader.chosen(&scene) + 1).min(entries.len()));
        let answer = before.iter().rev().find_map(words).or_else(|| after.iter().find_map(words));
        answer.map(|text| source::code_blocks(&text)).unwrap_or_default()
    }

    fn find(&mut self, forward: bool) {
        if self.overlays.viewer.as_ref().is_none_or(|viewer| viewer.search.is_none()) {
            self.begin_input(InputPurpose::Search);
            return;
        }
        match self.read(|reader, scene| reader.find(scene, forward)) {
            Some(SearchStep::Wrapped) => self.show_hint("wrapped around"),
            Some(SearchStep::Nowhere)
                if self.conversation.transcript.starts_at().is_some()
                    && self.overlays.viewer.as_ref().is_some_and(|viewer| viewer.document.is_none()) =>
            {
                self.show_hint("not found in the loaded part; Home loads more");
            }
            Some(SearchStep::Nowhere) => self.show_hint("not found"),
            Some(SearchStep::Here) | None => {}
        }
    }

    /// A key while something is written in the viewer.
    fn viewer_input_key(&mut self, key: KeyEvent, cmds: &mut Vec<Cmd>) {
        let action = self.keymap.action(KeyContext::List, key);
        let Some(viewer) = &mut self.overlays.viewer else { return };
        let Some((wanted, text)) = &mut viewer.input else { return };
        if let Some(c) = typed(key) {
            text.push(c);
            return;
        }
        match action {
            Some(Action::DeleteLeft) if text.pop().is_some() => {}
            Some(Action::DeleteLeft | Action::Close) => viewer.input = None,
            Some(Action::Accept) => {
                let (wanted, text) = (*wanted, std::mem::take(text));
                viewer.input = None;
                self.take_input(wanted, &text, cmds);
            }
            _ => {}
        }
    }

    fn take_input(&mut self, wanted: InputPurpose, text: &str, cmds: &mut Vec<Cmd>) {
        match wanted {
            InputPurpose::Search => {
                if let Some(viewer) = &mut self.overlays.viewer {
                    // Nothing written: the same once more.
                    viewer.search = Search::new(text).or(viewer.search.take());
                    if viewer.search.is_some() {
                        self.find(true);
                    }
                }
            }
            InputPurpose::Code => {
                let mut blocks = self.code_of_chosen();
                match text.trim().parse::<usize>() {
                    Ok(number) if (1..=blocks.len()).contains(&number) => {
                        let code = blocks.swap_remove(number - 1);
                        self.copy_out(code.text, &format!("block {number}"), cmds);
                    }
                    _ => self.show_hint(format!("enter a number from 1 to {}", blocks.len())),
                }
            }
        }
    }

    /// A paste into what is written in the viewer. `false`: the viewer is not open.
    pub(super) fn viewer_paste(&mut self, text: &str) -> bool {
        let Some(viewer) = &mut self.overlays.viewer else { return false };
        if let Some((_, written)) = &mut viewer.input {
            written.extend(text.chars().filter(|c| !c.is_control()).take(200));
        }
        true
    }
}
