//! Rewind: the list of points, what to restore, and the menu of a conversation.

use super::super::app::{App, HINT_MS, RunState};
use super::super::host::{ExportFormat, ThreadCmd};
use super::super::keymap::{Action, KeyContext};
use super::super::msg::Cmd;
use super::super::palette::ThreadAction;
use super::super::picker::{PickRow, Picker, PickerKind};
use super::super::thread_actions::{PickPurpose, RewindCmd, RewindMsg, RewindPoints, RewindPreview, Rewound};
use super::super::transcript::Level;
use super::super::viewer::source;
use aye_core::contract::amount::counted;
use aye_core::contract::display::visible_line;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::record::ThreadSummary;
use aye_core::contract::snapshot::{ChangedFile, RewindTarget};

/// How long after a first Esc a second one counts, in milliseconds.
const TWICE_MS: u64 = 1000;
/// Files that are named below the list.
const NAMED: usize = 8;
/// The minimum number of characters for a search of all messages.
const SEARCHED: usize = 3;
/// The value of the row that undoes the last rewind.
const UNDO: &str = "undo";

impl App {
    /// Esc with nothing running: the second one asks where to go back to, or clears what is written.
    pub(super) fn arm_rewind(&mut self, cmds: &mut Vec<Cmd>) {
        let is_written = !self.composer.is_empty();
        if !is_written && self.conversation.transcript.is_empty() {
            return;
        }
        let armed = self.overlays.back.armed.take().is_some_and(|armed| self.now.since(armed) < TWICE_MS);
        let chord = |action| self.keymap.chord_of(KeyContext::Composer, action);
        if armed && is_written {
            let up = chord(Action::Up);
            self.composer.remember(self.composer.draft());
            self.composer.clear();
            self.show_hint(format!("cleared; {up} brings it back"));
            return;
        }
        if armed {
            self.display.hint = None;
            self.ask_where(PickPurpose::Back, cmds);
            return;
        }
        let does = if is_written { "clear the text" } else { "rewind to an earlier message" };
        let hint = format!("{} again: {does}", chord(Action::Interrupt));
        self.overlays.back.armed = Some(self.now);
        self.display.hint = Some((hint, self.now.plus(HINT_MS.min(TWICE_MS))));
    }

    /// Another key was pressed: the next Esc is a first one, and what a second one would do is not shown any more.
    pub(super) fn forget_escape(&mut self) {
        let armed = self.overlays.back.armed.take();
        if armed.is_some_and(|armed| self.now.since(armed) < TWICE_MS) {
            self.display.hint = None;
        }
    }

    pub(super) fn thread_command(&mut self, action: ThreadAction, words: &str, cmds: &mut Vec<Cmd>) {
        // The git diff belongs to no conversation.
        let (first, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
        if action == ThreadAction::Diff && first == "git" {
            cmds.push(Cmd::Back(RewindCmd::GitChanges(rest.trim().to_owned())));
            return;
        }
        let Some(thread) = self.conversation.id().cloned() else {
            self.show_hint("no conversation is open yet");
            return;
        };
        match action {
            ThreadAction::Rewind => self.ask_where(PickPurpose::Back, cmds),
            ThreadAction::Fork => self.ask_where(PickPurpose::Fork, cmds),
            ThreadAction::Diff => cmds.push(Cmd::Back(RewindCmd::Changes(thread, words.to_owned()))),
            ThreadAction::Rename if words.is_empty() => self.ask_name(&thread),
            ThreadAction::Rename => cmds.push(Cmd::Back(RewindCmd::Rename(thread, words.to_owned()))),
            ThreadAction::Compare if words.is_empty() => {
                self.overlays.back.menu = Some(thread);
                self.fetch(PickerKind::Compare, Cmd::Thread(ThreadCmd::List), cmds);
            }
            ThreadAction::Compare => {
                cmds.push(Cmd::Back(RewindCmd::Compare(thread, ThreadId::from(words))));
            }
        }
    }

    fn ask_where(&mut self, purpose: PickPurpose, cmds: &mut Vec<Cmd>) {
        if self.conversation.is_active() && purpose == PickPurpose::Back {
            self.show_hint("interrupt the run first, then rewind");
            return;
        }
        let Some(thread) = self.conversation.id().cloned() else { return };
        let kind = match purpose {
            PickPurpose::Back => PickerKind::Back,
            PickPurpose::Fork => PickerKind::Fork,
        };
        self.overlays.back.menu = Some(thread.clone());
        self.fetch(kind, Cmd::Back(RewindCmd::Points(thread, purpose)), cmds);
    }

    fn list_points(&mut self, purpose: PickPurpose, points: &RewindPoints) {
        let kind = match purpose {
            PickPurpose::Back => PickerKind::Back,
            PickPurpose::Fork => PickerKind::Fork,
        };
        if points.points.is_empty() && (points.undo.is_none() || purpose == PickPurpose::Fork) {
            self.overlays.picker = None;
            self.show_hint("this conversation has no messages yet");
            return;
        }
        let mut rows = Vec::new();
        match (purpose, &points.undo) {
            (PickPurpose::Back, Some(undo)) => rows.push(PickRow {
                value: UNDO.to_owned(),
                label: "undo the last rewind".to_owned(),
                detail: undo.clone(),
                ..PickRow::default()
            }),
            (PickPurpose::Fork, _) => rows.push(PickRow {
                value: String::new(),
                label: "here: the whole conversation".to_owned(),
                ..PickRow::default()
            }),
            (PickPurpose::Back, None) => {}
        }
        // The latest is the nearest to the thought.
        rows.extend(points.points.iter().rev().map(|point| {
            let mark = match (point.is_message, purpose) {
                (true, _) => "❯ ",
                (false, _) => "  ",
            };
            PickRow {
                value: point.keep.to_string(),
                label: format!("{mark}{}", point.text.trim().lines().next().unwrap_or("(a picture)")),
                note: self.clock.ago(self.now, point.at),
                ..PickRow::default()
            }
        }));
        self.fill_picker(kind, rows);
    }

    /// Enter in a list of this part.
    pub(super) fn pick_back(&mut self, kind: PickerKind, value: &str, cmds: &mut Vec<Cmd>) {
        let Some(thread) = self.overlays.back.menu.clone().or_else(|| self.conversation.id().cloned()) else {
            return;
        };
        match kind {
            PickerKind::Back => {
                let keep = if value == UNDO { None } else { value.parse().ok() };
                self.overlays.back.chosen = Some(keep);
                self.overlays.back.preview = None;
                self.fetch(PickerKind::RewindTarget, Cmd::Back(RewindCmd::Preview(thread, keep)), cmds);
            }
            PickerKind::Fork => cmds.push(Cmd::Back(RewindCmd::Fork(thread, value.parse().ok()))),
            PickerKind::RewindTarget => {
                if let (Some(what), Some(keep)) =
                    (RewindTarget::parse(value), self.overlays.back.chosen.take())
                {
                    cmds.push(Cmd::Back(RewindCmd::Go(thread, keep, what)));
                }
            }
            PickerKind::Thread => self.do_with_thread(value, thread, cmds),
            PickerKind::DeleteThread => {
                if value == "yes" {
                    cmds.push(Cmd::Back(RewindCmd::Delete(thread)));
                } else {
                    self.fetch(PickerKind::Threads, Cmd::Thread(ThreadCmd::List), cmds);
                }
            }
            PickerKind::Compare => cmds.push(Cmd::Back(RewindCmd::Compare(thread, ThreadId::from(value)))),
            PickerKind::NameThread
            | PickerKind::Threads
            | PickerKind::Inbox
            | PickerKind::Models
            | PickerKind::Skills
            | PickerKind::Rules
            | PickerKind::Grants
            | PickerKind::Grant
            | PickerKind::Modes
            | PickerKind::Efforts
            | PickerKind::Logins
            | PickerKind::Key
            | PickerKind::History
            | PickerKind::Themes
            | PickerKind::Help => {}
        }
    }

    fn previewed_back(&mut self, keep: Option<u64>, preview: RewindPreview) {
        if self.overlays.back.chosen != Some(keep) {
            return;
        }
        let has_files = preview.no_files.is_none() && !preview.files.is_empty();
        let count = files_in_words(&preview.files);
        let row = |what: RewindTarget, label: &str, detail: String| PickRow {
            value: what.as_str().to_owned(),
            label: label.to_owned(),
            detail,
            ..PickRow::default()
        };
        let mut rows = Vec::new();
        if preview.moves && has_files {
            rows.push(row(RewindTarget::Both, "conversation and files", count.clone()));
        }
        if preview.moves {
            let detail = if has_files { "files stay unchanged" } else { "" };
            rows.push(row(RewindTarget::Conversation, "conversation", detail.to_owned()));
        }
        if has_files {
            let detail = if preview.moves { "messages stay".to_owned() } else { count };
            rows.push(row(RewindTarget::Files, "files", detail));
        }
        self.overlays.back.preview = Some(preview);
        self.fill_picker(PickerKind::RewindTarget, rows);
    }

    /// Returns the details of the selected row, shown below a list.
    pub fn picker_details(&self) -> Vec<String> {
        let Some(kind) = self.overlays.picker.as_ref().map(|picker| picker.kind) else { return Vec::new() };
        if kind != PickerKind::RewindTarget {
            return self.inbox_details();
        }
        let Some(preview) = &self.overlays.back.preview else { return Vec::new() };
        let mut lines = Vec::new();
        lines.extend(preview.no_files.iter().map(|why| format!("files stay unchanged: {why}")));
        lines.extend(preview.files.iter().take(NAMED).map(file_in_words));
        if preview.files.len() > NAMED {
            lines.push(format!("… and {} more", preview.files.len() - NAMED));
        }
        lines.extend(preview.notes.iter().cloned());
        lines
    }

    pub(super) fn fill_threads(&mut self) {
        let rows = self.thread_rows(&self.overlays.back.threads);
        self.fill_picker(PickerKind::Threads, rows.clone());
        let other = self.overlays.back.menu.as_ref().map(ThreadId::as_str);
        let rows = rows.into_iter().filter(|row| Some(row.value.as_str()) != other).collect();
        self.fill_picker(PickerKind::Compare, rows);
    }

    /// Searches all messages for the text typed into the list of conversations.
    pub(super) fn search_threads(&mut self, cmds: &mut Vec<Cmd>) {
        let Some(picker) = self.overlays.picker.as_ref().filter(|picker| picker.kind == PickerKind::Threads)
        else {
            return;
        };
        let words = picker.filter().trim().to_owned();
        if words == self.overlays.back.searched.1 {
            return;
        }
        self.overlays.back.searched = (self.overlays.back.searched.0 + 1, words.clone());
        if !self.overlays.back.found.is_empty() {
            self.overlays.back.found.clear();
            self.fill_threads();
        }
        if words.chars().count() >= SEARCHED {
            cmds.push(Cmd::Back(RewindCmd::Search(self.overlays.back.searched.0, words)));
        }
    }

    fn found_threads(&mut self, number: u64, found: Vec<(ThreadId, String)>, is_all: bool) {
        if number != self.overlays.back.searched.0 {
            return;
        }
        let words = self.overlays.back.searched.1.clone();
        self.overlays.back.found = found.into_iter().map(|(id, around)| (id.to_string(), around)).collect();
        self.fill_threads();
        if !is_all {
            self.show_hint(format!("too many conversations to search all for “{words}”"));
        }
    }

    fn summary(&self, thread: &ThreadId) -> Option<&ThreadSummary> {
        self.overlays.back.threads.iter().find(|summary| summary.thread.id == *thread)
    }

    /// Opens the menu of actions for the selected conversation.
    pub(super) fn open_thread_menu(&mut self) {
        let Some(chosen) = self.overlays.picker.as_ref().and_then(Picker::chosen) else { return };
        let thread = ThreadId::from(chosen.value.clone());
        let Some(summary) = self.summary(&thread) else { return };
        let row = |value: &str, label: &str, detail: &str| PickRow {
            value: value.to_owned(),
            label: label.to_owned(),
            detail: detail.to_owned(),
            ..PickRow::default()
        };
        let (pin, pin_detail) =
            if summary.marks.pinned { ("unpin", "remove the pin") } else { ("pin", "list it first") };
        let rows = vec![
            row("open", "open", &summary.thread.title),
            row("rename", "rename", ""),
            row(pin, pin, pin_detail),
            row("fork", "fork", "at a message or step"),
            row("compare", "compare", "with another conversation"),
            row("md", "export Markdown", "to a file in this folder"),
            row("json", "export JSON", "everything stored"),
            row("html", "export HTML", "one file for a browser"),
            row("delete", "delete", "asks for confirmation"),
        ];
        self.overlays.back.menu = Some(thread);
        self.overlays.picker = Some(Picker::new(PickerKind::Thread, rows));
    }

    fn do_with_thread(&mut self, value: &str, thread: ThreadId, cmds: &mut Vec<Cmd>) {
        match value {
            "open" => self.open(Some(thread), cmds),
            "rename" => self.ask_name(&thread),
            "pin" | "unpin" => cmds.push(Cmd::Back(RewindCmd::Pin(thread, value == "pin"))),
            "fork" => {
                self.fetch(PickerKind::Fork, Cmd::Back(RewindCmd::Points(thread, PickPurpose::Fork)), cmds);
            }
            "compare" => self.fetch(PickerKind::Compare, Cmd::Thread(ThreadCmd::List), cmds),
            "delete" => {
                let messages = self.summary(&thread).map_or(0, |summary| summary.messages);
                let row = |value: &str, label: &str, detail: String| PickRow {
                    value: value.to_owned(),
                    label: label.to_owned(),
                    detail,
                    ..PickRow::default()
                };
                let rows = vec![
                    row("no", "no, keep it", String::new()),
                    row("yes", "yes, delete it", format!("{messages} messages; cannot be undone")),
                ];
                self.overlays.picker = Some(Picker::new(PickerKind::DeleteThread, rows));
            }
            _ => {
                if let Some(format) = ExportFormat::parse(value) {
                    cmds.push(Cmd::Back(RewindCmd::Export(thread, format)));
                }
            }
        }
    }

    fn ask_name(&mut self, thread: &ThreadId) {
        let title = self
            .summary(thread)
            .map(|summary| summary.thread.title.clone())
            .or_else(|| {
                self.conversation.thread.as_ref().filter(|own| own.id == *thread).map(|own| own.title.clone())
            })
            .unwrap_or_default();
        let row = PickRow { label: "Enter saves the name".to_owned(), ..PickRow::default() };
        let mut picker = Picker::new(PickerKind::NameThread, vec![row]);
        picker.set_filter(title);
        self.overlays.back.menu = Some(thread.clone());
        self.overlays.picker = Some(picker);
    }

    pub(super) fn name_thread(&mut self, cmds: &mut Vec<Cmd>) {
        let title =
            self.overlays.picker.take().map(|picker| picker.filter().trim().to_owned()).unwrap_or_default();
        if let (false, Some(thread)) = (title.is_empty(), self.overlays.back.menu.take()) {
            cmds.push(Cmd::Back(RewindCmd::Rename(thread, title)));
        }
    }

    /// An answer of the host.
    pub(super) fn rewind_msg(&mut self, msg: RewindMsg, cmds: &mut Vec<Cmd>) {
        match msg {
            RewindMsg::Points(purpose, Ok(points)) => self.list_points(purpose, &points),
            RewindMsg::Preview(keep, Ok(preview)) => self.previewed_back(keep, preview),
            RewindMsg::Went(Ok(went)) => self.open_rewound(went, cmds),
            RewindMsg::Forked(Ok(forked)) => self.open_rewound(forked, cmds),
            RewindMsg::Found(number, found, is_all) => self.found_threads(number, found, is_all),
            RewindMsg::Marked(Ok(words)) => self.show_hint(words),
            RewindMsg::Deleted(thread, Ok(())) => {
                if self.conversation.id() == Some(&thread) {
                    self.open(None, cmds);
                }
                self.fetch(PickerKind::Threads, Cmd::Thread(ThreadCmd::List), cmds);
            }
            RewindMsg::Exported(Ok(path)) => {
                self.conversation.transcript.note(Level::Info, format!("written to {}", path.display()));
            }
            // A screen reader gets everything in order.
            RewindMsg::Changes(Ok((changes, _))) if self.display.is_linear => {
                self.conversation.transcript.changes(changes);
            }
            RewindMsg::Changes(Ok((_, document))) if document.count() == 0 => {
                self.conversation.transcript.note(Level::Info, "no differences");
            }
            RewindMsg::Compared(Ok(document)) if self.display.is_linear => {
                self.conversation.transcript.page("two conversations", source::document_patch(&document));
            }
            RewindMsg::Changes(Ok((_, document))) | RewindMsg::Compared(Ok(document)) => {
                self.open_document(*document);
            }
            RewindMsg::Points(_, Err(why))
            | RewindMsg::Preview(_, Err(why))
            | RewindMsg::Went(Err(why))
            | RewindMsg::Forked(Err(why))
            | RewindMsg::Marked(Err(why))
            | RewindMsg::Deleted(_, Err(why))
            | RewindMsg::Exported(Err(why))
            | RewindMsg::Changes(Err(why))
            | RewindMsg::Compared(Err(why)) => {
                self.overlays.picker = None;
                self.conversation.transcript.note(Level::Warning, why);
            }
        }
    }

    fn open_rewound(&mut self, went: Rewound, cmds: &mut Vec<Cmd>) {
        let is_same = self.conversation.id() == Some(&went.thread);
        let thread = went.thread.clone();
        self.overlays.back.after_open = Some(went);
        if is_same {
            self.push_origin_notice(cmds);
        } else {
            self.conversation.run = RunState::Idle;
            self.open(Some(thread), cmds);
        }
    }

    /// The conversation that was gone back to is open.
    pub(super) fn push_origin_notice(&mut self, cmds: &mut Vec<Cmd>) {
        let Some(went) = self
            .overlays
            .back
            .after_open
            .take_if(|went| self.conversation.thread.as_ref().is_some_and(|own| own.id == went.thread))
        else {
            return;
        };
        self.conversation.transcript.note(Level::Info, went.words);
        for failed in went.failed {
            self.conversation.transcript.note(Level::Warning, failed);
        }
        if let Some(text) = went.text.filter(|_| self.composer.is_empty()) {
            self.composer.set(text);
            self.refresh_palette(cmds);
        }
    }
}

/// `3 files, +10 −2`.
fn files_in_words(files: &[ChangedFile]) -> String {
    let sum = |of: fn(&ChangedFile) -> Option<usize>| files.iter().filter_map(of).sum::<usize>();
    let (added, removed) = (sum(|file| file.added), sum(|file| file.removed));
    format!("{}, +{added} −{removed}", counted(files.len(), "file"))
}

fn file_in_words(file: &ChangedFile) -> String {
    let counts = file.added.zip(file.removed).map(|(added, removed)| format!("  +{added} −{removed}"));
    format!("{} {}{}", file.change.letter(), visible_line(&file.path), counts.unwrap_or_default())
}
