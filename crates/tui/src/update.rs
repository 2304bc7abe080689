//! The one place where the model changes: a message in, commands out. No clock, no channel, no file.

use super::app::{App, RunState};
use super::approval::{CardKind, Stage};
use super::composer::Composer;
use super::composer::words::Case;
use super::host::Driver;
use super::keymap::Action;
use super::msg::{Cmd, Msg};
use super::picker::{PickRow, PickerKind};
use super::transcript::{Level, Moment};

mod agent;
mod attach;
mod back;
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
mod queue;
mod reader;
mod sync;
mod theme;
mod trust;

pub use cards::QuestionCards;
pub use compose::Completion;
pub use queue::MessageQueue;
pub use sync::ThreadLoading;
pub use theme::ThemeState;

impl App {
    /// Takes in what happened at that time, and says what is to be done.
    pub fn update(&mut self, at: Moment, msg: Msg) -> Vec<Cmd> {
        self.now = self.now.max(at);
        let mut cmds = Vec::new();
        // Time alone changes nothing that is told.
        let is_news = !matches!(msg, Msg::Tick | Msg::Drawn | Msg::StatusLine(_));
        match msg {
            Msg::Key(key) => self.key(key, &mut cmds),
            Msg::Paste(text) => self.paste(&text, &mut cmds),
            Msg::Mouse(event) => self.mouse(event, &mut cmds),
            Msg::Resize(width, height) => {
                // One change may be told twice: by the signal, and by the look before a picture.
                if (width, height) != self.size {
                    self.gallery.resized(&mut cmds);
                }
                self.resize(width, height);
            }
            Msg::Focus(is_in_front) => {
                self.has_focus = is_in_front;
                if is_in_front && self.info.branch.is_some() {
                    // The branch may be another one by now.
                    cmds.push(Cmd::Info);
                }
            }
            Msg::Agent(thread, event) => self.agent(&thread, &event, &mut cmds),
            Msg::Synced(sync) => self.synced(sync, &mut cmds),
            Msg::Began(thread, row) => self.began(&thread, row),
            Msg::Deferred(thread, row, input) => self.deferred(&thread, row, input),
            Msg::Lost(thread) => self.lost(&thread, &mut cmds),
            Msg::Enqueued(input, row) => self.enqueued(input, row),
            Msg::Unqueued { back, gone } => self.unqueued(&back, &gone),
            Msg::Closed(record) => self.question_closed(&record),
            Msg::Drawn => {
                self.drawn();
                self.ask_first(&mut cmds);
            }
            Msg::Tick => {}
            Msg::Opened(opened) => {
                self.loading.opening = self.loading.opening.saturating_sub(1);
                match opened {
                    Ok(opened) => {
                        self.opened(&opened, &mut cmds);
                        self.say_where_it_came_from(&mut cmds);
                    }
                    Err(error) => self.transcript.note(Level::Error, error),
                }
                if self.loading.opening == 0 {
                    self.loading.early.clear();
                }
            }
            Msg::Earlier(thread, messages) => self.earlier_came(&thread, messages, &mut cmds),
            Msg::Placed(thread, message, place) => self.placed(&thread, message, place),
            Msg::Started(Ok(())) => {}
            Msg::Started(Err((error, input))) => {
                self.transcript.unsay();
                self.transcript.note(Level::Error, error);
                if matches!(self.run, RunState::Starting(_) | RunState::Stopping(_)) {
                    self.run = RunState::Idle;
                }
                self.hand_back(&[input]);
            }
            Msg::Decided(id, outcome) => {
                self.answered_elsewhere(&outcome, &id);
                self.decided(&id, outcome);
                self.count_elsewhere(&mut cmds);
            }
            Msg::InboxChanged => self.inbox_changed(&mut cmds),
            Msg::Inbox(Ok(rows)) => self.fill_inbox(rows),
            Msg::Elsewhere(count) => self.elsewhere = count,
            Msg::Question(id, found) => self.question(&id, found),
            Msg::Note(text) => self.transcript.note(Level::Info, text),
            Msg::Reviewed(id, arguments, review) => self.reviewed(&id, &arguments, review),
            Msg::EditorClosed(id, argument, text) => self.editor_closed(&id, argument, text, &mut cmds),
            Msg::GrantPreviewed(id, pattern, preview) => self.previewed(&id, pattern, preview),
            Msg::Grants(Ok(grants)) => self.list_grants(grants),
            Msg::Revoked(id, Ok(revoked)) => self.revoked(&id, revoked),
            Msg::Grants(Err(error)) | Msg::Revoked(_, Err(error)) => {
                self.picker = None;
                self.transcript.note(Level::Error, error);
            }
            Msg::Threads(Ok(threads)) => {
                self.back.threads = threads;
                self.fill_threads();
            }
            Msg::Back(told) => self.back_told(*told, &mut cmds),
            Msg::Threads(Err(error)) | Msg::Inbox(Err(error)) | Msg::Failed(error) => {
                self.transcript.note(Level::Error, error);
            }
            Msg::Models(models) | Msg::Offered(models) => self.list_models(models),
            Msg::Logins(providers) => self.list_logins(providers),
            Msg::StatusLine(text) => {
                if let Some(why) = self.feed.wrote(text) {
                    self.transcript.note(Level::Warning, why);
                }
            }
            Msg::Themes(themes, wanted) => self.list_themes(themes, wanted, &mut cmds),
            Msg::Attached(words, found) => self.attached(&words, found, &mut cmds),
            Msg::Picture(hash, pixels) => self.gallery.take(&hash, pixels),
            Msg::Reply(reply) => self.gallery.hear(reply, &mut cmds),
            Msg::Plate(hash, drawn) => self.gallery.take_plate(&hash, drawn),
            Msg::Packed(hash, packed) => self.gallery.take_packed(&hash, packed),
            Msg::Background(background) => self.background_is(background),
            Msg::Unsandboxed(lack) => self.info.unsandboxed = Some(lack),
            Msg::Skills(skills) => {
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
            Msg::Rules(rules) => {
                let rows = rules.into_iter().map(|rule| PickRow {
                    label: rule.pattern,
                    detail: rule.behavior,
                    note: rule.origin,
                    ..PickRow::default()
                });
                let rows = rows.collect();
                self.fill_picker(PickerKind::Rules, rows);
            }
            Msg::Files(number, paths) => self.offer_files(number, paths),
            Msg::History(history) => self.fill_history(history),
            Msg::Draft(thread, draft) => self.drafted(&thread, draft, &mut cmds),
            Msg::Composed(text) => self.composed(text, &mut cmds),
            Msg::Info(info) => {
                if info.agent != self.info.agent {
                    self.transcript.forget_handoff();
                }
                self.info = *info;
            }
            Msg::Trusted(trusted) => self.trusted(trusted),
            Msg::Renewed(renewed) => self.renewed(renewed),
            Msg::Exported(Ok(path)) => {
                self.transcript.note(Level::Info, format!("written to {}", path.display()));
            }
            Msg::Page(Ok(page)) => self.transcript.page(page.title, page.text),
            Msg::Page(Err(error)) => self.transcript.note(Level::Warning, error),
            Msg::Exported(Err(error)) => self.transcript.note(Level::Error, error),
            Msg::Hangup | Msg::Terminate => self.quit(&mut cmds),
        }
        self.see_to_earlier(&mut cmds);
        self.see_to_length(&mut cmds);
        self.see_to_expired(&mut cmds);
        self.see_to_renewal(&mut cmds);
        self.settle();
        self.keep_draft(&mut cmds);
        self.want_pictures(&mut cmds);
        self.feed_status(is_news, &mut cmds);
        cmds
    }

    /// Has the command of the status line told what changed.
    fn feed_status(&mut self, is_news: bool, cmds: &mut Vec<Cmd>) {
        if is_news {
            self.feed.touch(self.now);
        }
        let mut feed = std::mem::take(&mut self.feed);
        if let Some(json) = feed.take(self.now, || super::status::told(self)) {
            cmds.push(Cmd::StatusLine(json));
        }
        self.feed = feed;
    }

    fn fill_picker(&mut self, kind: PickerKind, rows: Vec<PickRow>) {
        if let Some(picker) = self.picker.as_mut().filter(|picker| picker.kind == kind) {
            picker.fill(rows);
        }
    }

    /// A frame was shown: the card in it was seen.
    fn drawn(&mut self) {
        let now = self.now;
        if self.picker.is_none()
            && self.viewer.is_none()
            && let is_whole = self.is_card_whole()
            && let Some(card) = self.cards.open.get_mut(self.cards.at)
        {
            card.seen = card.seen.or(Some(now)).filter(|_| is_whole);
        }
        self.note_what_was_read();
    }

    /// What a call does can stand in the last row of its card: how far that was on the screen is kept.
    fn note_what_was_read(&mut self) {
        let wants = self.picker.is_none()
            && self.viewer.is_none()
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
            && matches!(card.stage, Stage::Open)
        {
            if from <= card.read {
                card.read = card.read.max(to);
            }
            card.is_unread = card.read < total;
        }
    }

    /// Leaves. What runs is stopped first; what waits keeps waiting.
    fn quit(&mut self, cmds: &mut Vec<Cmd>) {
        if self.is_awake()
            && self.driver == Driver::Nobody
            && let Some(thread) = self.thread_id()
        {
            cmds.push(Cmd::Cancel(thread.clone()));
        }
        self.keep_draft_now(cmds);
        cmds.push(Cmd::Quit);
    }
}

/// Does an edit. `false`: the action is none.
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
