//! The one place where the model changes: a message in, commands out. No clock, no channel, no file.

use super::app::App;
use super::approval::{CardKind, CardStage};
use super::composer::Composer;
use super::composer::words::Case;
use super::host::{ProgramCmd, ProgramMsg, ThreadCmd, ThreadOwner};
use super::keymap::Action;
use super::msg::{Cmd, Msg};
use super::picker::{PickRow, PickerKind};
use super::transcript::{Level, Moment};

mod agent;
mod attach;
mod cards;
mod commands;
mod compose;
mod draft;
mod first;
mod grants;
mod inbox;
mod keys;
mod models;
mod mouse;
mod notify;
mod program;
mod queue;
mod rewind;
mod sync;
mod theme;
mod trust;
mod viewer;

pub use cards::{QuestionCards, SERVED_CARD};
pub use compose::Completion;
pub use queue::MessageQueue;
pub use sync::ThreadLoading;
pub use theme::ThemeState;

impl App {
    /// Handles a message that arrived at that time, and returns the commands to execute.
    pub fn update(&mut self, at: Moment, msg: Msg) -> Vec<Cmd> {
        self.now = self.now.max(at);
        let mut cmds = Vec::new();
        // Time alone changes nothing in the status command's input.
        let is_news = !matches!(msg, Msg::Tick | Msg::Drawn | Msg::Program(ProgramMsg::StatusLine(_)));
        match msg {
            Msg::Key(key) => self.key(key, &mut cmds),
            Msg::Paste(text) => self.paste(&text, &mut cmds),
            Msg::Mouse(event) => self.mouse(event, &mut cmds),
            Msg::Resize(width, height) => {
                self.resize(width, height);
            }
            Msg::Focus(is_in_front) => {
                self.display.has_focus = is_in_front;
                if is_in_front && self.info.branch.is_some() {
                    // The branch may be another one by now.
                    cmds.push(Cmd::Program(ProgramCmd::Info));
                }
            }
            Msg::Background(background) => self.background_is(background),
            Msg::Drawn => {
                self.drawn();
                self.ask_first(&mut cmds);
            }
            Msg::Tick => {}
            Msg::Agent(thread, event) => self.agent(&thread, &event, &mut cmds),
            Msg::Thread(msg) => self.thread_msg(msg, &mut cmds),
            Msg::Question(msg) => self.question_msg(msg, &mut cmds),
            Msg::Model(msg) => self.model_msg(msg),
            Msg::Image(msg) => self.image_msg(msg, &mut cmds),
            Msg::Writing(msg) => self.writing_msg(msg, &mut cmds),
            Msg::Program(msg) => self.program_msg(msg, &mut cmds),
            Msg::Back(msg) => self.rewind_msg(*msg, &mut cmds),
            Msg::EditorClosed(id, argument, text) => self.editor_closed(&id, argument, text, &mut cmds),
            Msg::Composed(text) => self.composed(text, &mut cmds),
            Msg::Note(text) => self.conversation.transcript.note(Level::Info, text),
            Msg::Failed(error) => self.conversation.transcript.note(Level::Error, error),
            Msg::Hangup | Msg::Terminate => self.quit(&mut cmds),
        }
        self.load_earlier(&mut cmds);
        self.trim_transcript(&mut cmds);
        self.resume_expired(&mut cmds);
        self.renew_trust(&mut cmds);
        self.settle_start(&mut cmds);
        self.settle();
        self.keep_draft(&mut cmds);
        self.want_pictures(&mut cmds);
        self.feed_status(is_news, &mut cmds);
        cmds
    }

    /// Runs the status line command when its input has changed.
    fn feed_status(&mut self, is_news: bool, cmds: &mut Vec<Cmd>) {
        if is_news {
            self.display.feed.touch(self.now);
        }
        let mut feed = std::mem::take(&mut self.display.feed);
        if let Some(json) = feed.take(self.now, || super::status::command_input(self)) {
            cmds.push(Cmd::Program(ProgramCmd::StatusLine(json)));
        }
        self.display.feed = feed;
    }

    fn fill_picker(&mut self, kind: PickerKind, rows: Vec<PickRow>) {
        if let Some(picker) = self.overlays.picker.as_mut().filter(|picker| picker.kind == kind) {
            picker.fill(rows);
        }
    }

    /// A frame was shown: the card in it was seen.
    fn drawn(&mut self) {
        let now = self.now;
        if self.overlays.picker.is_none()
            && self.overlays.viewer.is_none()
            && let is_whole = self.is_card_whole()
            && let Some(card) = self.cards.open.get_mut(self.cards.at)
        {
            card.seen = card.seen.or(Some(now)).filter(|_| is_whole);
        }
        self.note_what_was_read();
    }

    /// Records how far a card has been shown: the effect of a call may be in the last row of its card.
    fn note_what_was_read(&mut self) {
        let wants = self.overlays.picker.is_none()
            && self.overlays.viewer.is_none()
            && self.is_card_whole()
            && self.current_card().is_some_and(|card| {
                let runs = matches!(card.kind, CardKind::Permission | CardKind::Unknown | CardKind::Trust);
                (runs || self.cards.batch.is_some()) && (card.read == 0 || card.is_unread)
            });
        if !wants {
            return;
        }
        let Some((from, to, total)) = super::view::card_window(self) else { return };
        if let Some(card) = self.cards.open.get_mut(self.cards.at)
            && matches!(card.stage, CardStage::Open)
        {
            if from <= card.read {
                card.read = card.read.max(to);
            }
            card.is_unread = card.read < total;
        }
    }

    /// Quits. An active run is stopped first; pending questions stay pending.
    fn quit(&mut self, cmds: &mut Vec<Cmd>) {
        if self.conversation.is_active()
            && self.conversation.driver == ThreadOwner::Nobody
            && let Some(thread) = self.conversation.id()
        {
            cmds.push(Cmd::Thread(ThreadCmd::Cancel(thread.clone())));
        }
        self.keep_draft_now(cmds);
        cmds.push(Cmd::Quit);
    }
}

/// Applies an edit. Returns `false` if the action is not an edit.
pub(super) fn edit(composer: &mut Composer, action: Action) -> bool {
    match action {
        Action::Newline => composer.insert('\n'),
        Action::Up => composer.up(),
        Action::Down => composer.down(),
        Action::Left => composer.left(),
        Action::Right => composer.right(),
        Action::WordLeft => composer.word_left(),
        Action::WordRight => composer.word_right(),
        Action::LineStart => composer.line_start(),
        Action::LineEnd => composer.line_end(),
        Action::TextStart => composer.text_start(),
        Action::TextEnd => composer.text_end(),
        Action::DeleteLeft => composer.delete_left(),
        Action::DeleteRight | Action::DeleteOrQuit => composer.delete_right(),
        Action::DeleteWordLeft => composer.delete_word_left(),
        Action::DeleteWordRight => composer.delete_word_right(),
        Action::DeleteToStart => composer.delete_to_start(),
        Action::DeleteToEnd => composer.delete_to_end(),
        Action::Yank => composer.yank(),
        Action::YankPop => composer.yank_pop(),
        Action::Undo => composer.undo(),
        Action::Redo => composer.redo(),
        Action::Transpose => composer.transpose(),
        Action::TransposeWords => composer.transpose_words(),
        Action::UpperWord => composer.change_case(Case::Upper),
        Action::LowerWord => composer.change_case(Case::Lower),
        Action::CapitalWord => composer.change_case(Case::Capital),
        _ => return false,
    }
    true
}
