//! Sending messages, commands that start with `/`, and selections in lists.

use crossterm::event::{KeyCode, KeyEvent};

use super::super::app::{App, Focus};
use super::super::approval::{Card, CardKind, CardStage};
use super::super::composer::dropped;
use super::super::composer::paste::Draft;
use super::super::host::{
    ExportFormat, Mode, ModelCmd, ProgramCmd, QuestionCmd, Shell, ThreadCmd, UserInput, WritingCmd,
};
use super::super::keymap::{Action, KeyContext};
use super::super::msg::Cmd;
use super::super::palette::{
    COMMANDS, HostPage, SlashAction, command_named, command_of_alias, is_command_word, not_a_command,
};
use super::super::picker::{PickRow, Picker, PickerKind};
use super::super::transcript::{EntryKind, Level};
use crate::thread_actions::RewindCmd;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::ThreadSummary;

/// The message sent to continue after a stop.
const GO_ON: &str = "Continue.";

impl App {
    /// Opens the list of conversations before the first conversation is open; closing the list starts a new
    /// one.
    pub fn ask_which_thread(&mut self) -> Vec<Cmd> {
        self.overlays.picker = Some(Picker::loading(PickerKind::Threads));
        self.overlays.resumes_by_list = true;
        vec![Cmd::Thread(ThreadCmd::List)]
    }

    /// Submits a text as if it had been typed.
    pub fn submit_text(&mut self, text: &str) -> Vec<Cmd> {
        let mut cmds = Vec::new();
        if dropped::mentions(text).is_empty() {
            self.submit(UserInput::text(text), self.queue.keeps_waiting, &mut cmds);
        } else {
            self.composer.set(text);
            self.send(self.queue.keeps_waiting, &mut cmds);
        }
        cmds
    }

    pub(super) fn resumes_by_list(&mut self, cmds: &mut Vec<Cmd>) {
        if std::mem::take(&mut self.overlays.resumes_by_list) && self.conversation.thread.is_none() {
            self.open(None, cmds);
        }
    }

    /// Enter: a command, a skill, or a message; `behind`: one that closes no questions.
    pub(super) fn send(&mut self, behind: bool, cmds: &mut Vec<Cmd>) {
        let written = self.composer.text().trim().to_owned();
        if written.is_empty() {
            if self.can_continue() {
                self.continue_run(cmds);
            }
            return;
        }
        if self.display.is_linear && self.answer_in_words(&written, cmds) {
            return;
        }
        self.completion.palette = None;
        self.completion.dismissed = None;
        if self.attach_mentioned(behind, cmds) {
            return;
        }
        let skill = written.strip_prefix('$').filter(|written| {
            let name = written.split_whitespace().next();
            self.skills.iter().any(|skill| Some(skill.name.as_str()) == name)
        });
        if let Some(command) = written.strip_prefix('/').or(skill) {
            let (name, words) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
            if is_command_word(name) && !name.is_empty() {
                let (name, words) = (name.to_owned(), words.trim().to_owned());
                if self.skills.iter().any(|skill| skill.name == name) && command_named(&name).is_none() {
                    let (images, draft) = (self.composer.attached(), self.composer.pasted());
                    let text = self.take_text(cmds);
                    let words =
                        text.trim().split_once(char::is_whitespace).map_or("", |(_, words)| words.trim());
                    let input = UserInput { skill: Some(name), images, draft, ..UserInput::text(words) };
                    self.submit(input, behind, cmds);
                    return;
                }
                if self.command(&name, &words, cmds) {
                    self.begin_text();
                } else {
                    self.refresh_palette(cmds);
                    // The line below the composer says it already, except to screen readers.
                    let has_help = self.completion.palette.as_ref().is_some_and(|it| !it.help.is_empty());
                    if self.display.is_linear || !has_help {
                        self.show_hint(not_a_command(&format!("/{name}")));
                    }
                }
                return;
            }
        }
        if let Some((_, "")) = Shell::of(&written) {
            self.show_hint("! runs the command after it; !! hides it from the model");
            return;
        }
        let (images, draft) = (self.composer.attached(), self.composer.pasted());
        let text = self.take_text(cmds);
        let input = match Shell::of(&text) {
            Some((shell, command)) => UserInput { shell: Some(shell), draft, ..UserInput::text(command) },
            None => UserInput { images, draft, ..UserInput::text(text.trim()) },
        };
        self.submit(input, behind, cmds);
    }

    /// Answers the question with a typed word, for screen reader users. Returns `false` if the word is not an
    /// answer.
    fn answer_in_words(&mut self, written: &str, cmds: &mut Vec<Cmd>) -> bool {
        let asks = |card: &Card| card.kind == CardKind::Ask && matches!(card.stage, CardStage::Open);
        if self.current_card().is_some_and(asks) {
            return self.answer_question(written, cmds);
        }
        if let Some(card) = self.current_card()
            && let Ok(digit @ 1..=9) = written.parse::<u8>()
            && usize::from(digit) <= card.choices().len()
        {
            let key = KeyEvent::from(KeyCode::Char(char::from(b'0' + digit)));
            return self.answer_by_key(key, written, cmds);
        }
        let action = match written.to_lowercase().as_str() {
            "yes" | "y" | "allow" => Action::Allow,
            "outside" => Action::AllowOutside,
            "no" | "n" | "deny" => Action::Deny,
            "always" => Action::Grant,
            "stop" => Action::Stop,
            "skip" => Action::Skip,
            "again" => Action::RunAgain,
            "done" => Action::MarkDone,
            _ => return false,
        };
        let Some(card) = self.asking_card() else { return false };
        // Letters answer no question of the terminal's own.
        let own = card.choices().iter().position(|choice| card.is_own() && *choice == action);
        let digit = own.map(|at| KeyEvent::from(KeyCode::Char(char::from(b'1' + at as u8))));
        let Some(key) = digit.or_else(|| self.keymap.key_of(KeyContext::Card, action)) else { return false };
        self.answer_by_key(key, written, cmds)
    }

    /// Answers a question that takes choices or text. A command is none.
    fn answer_question(&mut self, written: &str, cmds: &mut Vec<Cmd>) -> bool {
        let Some(card) = self.cards.open.get_mut(self.cards.at) else { return false };
        let ask = &mut card.ask;
        let numbers = written.split([' ', ',']).filter(|part| !part.is_empty());
        let rows: Option<Vec<usize>> = numbers
            .map(|part| part.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < ask.rows()))
            .collect();
        match rows {
            _ if written.eq_ignore_ascii_case("stop") => {
                let stop = self.keymap.key_of(KeyContext::Card, Action::Stop);
                return stop.is_some_and(|key| self.answer_by_key(key, written, cmds));
            }
            _ if written.eq_ignore_ascii_case("skip") => drop(ask.choose(ask.rows() - 1)),
            Some(rows) if ask.line().is_none() && (rows.len() == 1 || ask.is_multi()) => {
                for row in rows {
                    ask.choose(row);
                }
            }
            _ if written.starts_with(['/', '!']) || !ask.takes_text() => return false,
            Some(_) | None => ask.write(written),
        }
        let enter = match ask.line() {
            // The row for text was chosen: what is typed next is the answer.
            Some(line) if line.is_empty() => {
                self.begin_text();
                self.show_hint("type the answer");
                return true;
            }
            Some(_) => self.keymap.key_of(KeyContext::Composer, Action::Send),
            None => self.keymap.key_of(KeyContext::Card, Action::Accept),
        };
        enter.is_some_and(|key| self.answer_by_key(key, written, cmds))
    }

    fn answer_by_key(&mut self, key: KeyEvent, written: &str, cmds: &mut Vec<Cmd>) -> bool {
        self.begin_text();
        self.focus = Focus::Card;
        if !self.card_key(key, cmds) {
            self.focus = Focus::Composer;
            self.show_hint(format!("no pending question takes {written}"));
        } else if self.current_card().is_none_or(|card| card.line().is_none()) {
            self.focus = Focus::Composer;
        }
        true
    }

    /// Continues after a limit stopped the last run: with a new run, whose limits start fresh.
    fn continue_run(&mut self, cmds: &mut Vec<Cmd>) {
        self.submit(UserInput::text(GO_ON), false, cmds);
    }

    fn take_text(&mut self, cmds: &mut Vec<Cmd>) -> String {
        let shown = self.composer.pasted().map(|draft| draft.text);
        let text = self.begin_text();
        self.attaching.tried.clear();
        self.composer.remember(Draft::sent(text.trim(), shown.as_deref()));
        cmds.push(Cmd::Writing(WritingCmd::Remember(text.trim().to_owned())));
        text
    }

    /// Runs a command. Returns `false` if the command does not exist.
    fn command(&mut self, name: &str, words: &str, cmds: &mut Vec<Cmd>) -> bool {
        let (command, words) = match (command_named(name), command_of_alias(name)) {
            (Some(command), _) => (command, words),
            (None, Some((command, alias))) if alias.words.is_empty() => (command, words),
            (None, Some((command, alias))) => (command, alias.words),
            (None, None) => return false,
        };
        self.run_command(command.action, words, cmds);
        true
    }

    fn run_command(&mut self, action: SlashAction, words: &str, cmds: &mut Vec<Cmd>) {
        let given = Some(words).filter(|words| !words.is_empty()).map(str::to_owned);
        match (action, given) {
            (SlashAction::Init, _) => self.submit(UserInput::text("/init"), false, cmds),
            (SlashAction::Help, _) => self.open_help(),
            (SlashAction::New, _) => self.open(None, cmds),
            (SlashAction::Resume, Some(id)) => self.open(Some(ThreadId::from(id)), cmds),
            (SlashAction::Resume | SlashAction::Threads, _) => {
                self.fetch(PickerKind::Threads, Cmd::Thread(ThreadCmd::List), cmds);
            }
            (SlashAction::Inbox, _) => {
                self.fetch(PickerKind::Inbox, Cmd::Question(QuestionCmd::Inbox), cmds);
            }
            (SlashAction::Model, Some(model)) => cmds.push(Cmd::Model(ModelCmd::Set(model))),
            (SlashAction::Model, None) => {
                self.fetch(PickerKind::Models, Cmd::Model(ModelCmd::List), cmds);
            }
            (SlashAction::Effort, _) => self.effort_command(words, cmds),
            (SlashAction::Login, _) => self.login_command(words, cmds),
            (SlashAction::Logout, provider) => cmds.push(Cmd::Model(ModelCmd::LogOut(provider))),
            (SlashAction::Theme, theme @ Some(_)) => cmds.push(Cmd::Program(ProgramCmd::Themes(theme))),
            (SlashAction::Theme, None) => self.fetch_themes(cmds),
            (SlashAction::Skills, _) => {
                self.fetch(PickerKind::Skills, Cmd::Writing(WritingCmd::Skills), cmds);
            }
            (SlashAction::Grants, _) => {
                self.fetch(PickerKind::Grants, Cmd::Question(QuestionCmd::Grants), cmds);
            }
            (SlashAction::Permissions, _) => {
                self.fetch(PickerKind::Rules, Cmd::Question(QuestionCmd::Rules), cmds);
            }
            (SlashAction::Mode, None) => self.open_modes(),
            (SlashAction::Mode, Some(_)) => match Mode::parse(words) {
                Some(mode) => self.set_mode(mode, cmds),
                None => {
                    self.show_hint(format!(
                        "unknown mode {words}; expected ask, accept-edits, auto, plan or yolo"
                    ));
                }
            },
            (SlashAction::Copy, _) => self.copy_last(cmds),
            (SlashAction::Vim, _) => self.toggle_vim(),
            (SlashAction::Goal, Some(condition)) => {
                self.submit(UserInput::text(format!("/goal {condition}")), false, cmds);
            }
            (SlashAction::Goal, None) => {
                let thread = self.conversation.id().cloned();
                cmds.push(Cmd::Program(ProgramCmd::Page(thread, HostPage::Goal, String::new())));
            }
            (SlashAction::Continue, _) if self.can_continue() => self.continue_run(cmds),
            (SlashAction::Continue, _) => self.show_hint("no limit stopped this conversation"),
            (SlashAction::Export, _) => self.export(words, cmds),
            (SlashAction::Thread(action), _) => self.thread_command(action, words, cmds),
            (SlashAction::Screen, _) => self.toggle_screen(),
            (SlashAction::Quit, _) => {
                // The command must not be stored as a draft.
                self.composer.clear();
                self.quit(cmds);
            }
            (SlashAction::Page(page), _) => {
                let opened = words.strip_prefix("open ").filter(|_| page == HostPage::Tasks);
                cmds.push(match (opened, self.conversation.id().cloned()) {
                    (Some(id), Some(thread)) => Cmd::TakeOver(thread, id.trim().to_owned()),
                    (_, thread) => Cmd::Program(ProgramCmd::Page(thread, page, words.to_owned())),
                });
            }
        }
    }

    fn copy_last(&mut self, cmds: &mut Vec<Cmd>) {
        let transcript = &self.conversation.transcript;
        if let Some(address) = transcript.last_address() {
            cmds.push(Cmd::Copy(address.to_owned()));
            self.show_hint("URL sent to the clipboard, if the terminal allows it");
        } else if let Some(answer) = transcript.last_answer() {
            cmds.push(Cmd::Copy(answer.to_owned()));
            self.show_hint("last answer sent to the clipboard, if the terminal allows it");
        } else {
            self.show_hint("there is no answer yet");
        }
    }

    fn export(&mut self, words: &str, cmds: &mut Vec<Cmd>) {
        let format = if words.is_empty() { Some(ExportFormat::Markdown) } else { ExportFormat::parse(words) };
        match (format, self.conversation.id().cloned()) {
            (Some(format), Some(thread)) => cmds.push(Cmd::Back(RewindCmd::Export(thread, format))),
            (None, _) => self.show_hint(format!("unknown format {words}; expected md, json or html")),
            (Some(_), None) => self.show_hint("no conversation is open yet"),
        }
    }

    pub(super) fn set_mode(&mut self, mode: Mode, cmds: &mut Vec<Cmd>) {
        self.info.mode = mode;
        cmds.push(Cmd::Program(ProgramCmd::SetMode(mode)));
    }

    /// Opens another conversation. The active run of this one keeps running; pending questions stay pending.
    pub(super) fn open(&mut self, thread: Option<ThreadId>, cmds: &mut Vec<Cmd>) {
        if self.conversation.is_active() && !self.is_driven_elsewhere() {
            self.conversation
                .transcript
                .note(Level::Info, "the run of this conversation continues in the background");
        }
        self.conversation.loading.opening += 1;
        cmds.push(Cmd::Thread(ThreadCmd::Open(thread)));
    }

    /// Opens the first conversation.
    pub fn open_first(&mut self, thread: Option<ThreadId>) -> Vec<Cmd> {
        let mut cmds = Vec::new();
        self.open(thread, &mut cmds);
        cmds
    }

    pub(super) fn fetch(&mut self, kind: PickerKind, cmd: Cmd, cmds: &mut Vec<Cmd>) {
        self.overlays.picker = Some(Picker::loading(kind));
        cmds.push(cmd);
    }

    fn open_modes(&mut self) {
        let row = |mode: Mode, detail: &str| PickRow {
            value: mode.as_str().into(),
            label: mode.as_str().into(),
            detail: detail.into(),
            note: if self.info.mode == mode { "in use".into() } else { String::new() },
            ..PickRow::default()
        };
        let rows = vec![
            row(Mode::Ask, "the rules decide; aye asks about anything else"),
            row(Mode::AcceptEdits, "file changes in the project are allowed"),
            row(Mode::Auto, "commands run in the sandbox, without a question"),
            row(Mode::Plan, "read only; nothing changes"),
            row(Mode::Yolo, "no questions; deny rules still apply"),
        ];
        self.overlays.picker = Some(Picker::new(PickerKind::Modes, rows));
    }

    pub(super) fn open_help(&mut self) {
        let heading = |text: &str| PickRow { label: text.to_owned(), is_heading: true, ..PickRow::default() };
        let mut rows = vec![heading("First")];
        rows.extend(self.first_keys().into_iter().map(|(label, detail)| PickRow {
            label,
            detail: detail.to_owned(),
            ..PickRow::default()
        }));
        // Keys that work now come first, then the rest of the same table.
        let now = self.key_layers();
        for place in
            now.iter().copied().chain(KeyContext::ALL.into_iter().filter(|place| !now.contains(place)))
        {
            let help = self.keymap.help(place);
            if help.is_empty() {
                continue;
            }
            let note = if now.contains(&place) { " (now)" } else { "" };
            rows.push(heading(&format!("{}{note}", place.heading())));
            rows.extend(help.into_iter().map(|(keys, help)| PickRow {
                label: keys,
                detail: help.to_owned(),
                ..PickRow::default()
            }));
        }
        rows.push(heading("Commands"));
        rows.extend(COMMANDS.iter().map(|command| PickRow {
            label: command.syntax(),
            detail: command.help.to_owned(),
            ..PickRow::default()
        }));
        for (label, detail) in [
            ("@PATH", "mention a file or folder, with completion"),
            ("@path#name @#name", "a function or type of a file or the project; its lines are attached"),
            ("@thread: @skill:", "another conversation or a skill; its text is attached"),
            ("!COMMAND", "run a command under the same rules; the model sees its output"),
            ("!!COMMAND", "run a command; the model does not see its output"),
        ] {
            rows.push(PickRow { label: label.into(), detail: detail.into(), ..PickRow::default() });
        }
        let mut picker = Picker::new(PickerKind::Help, rows);
        // Its first row is a heading.
        picker.step(1);
        self.overlays.picker = Some(picker);
    }

    /// The keys to know first, as they are set.
    fn first_keys(&self) -> Vec<(String, &'static str)> {
        use KeyContext::{Composer, Global};
        let keys = [
            (Composer, Action::Send, "send; during a run: after the current calls"),
            (Composer, Action::Newline, "start a new line"),
            (Composer, Action::Interrupt, "interrupt; twice: rewind to an earlier message"),
            (Composer, Action::FocusCard, "answer the pending question"),
            (Global, Action::CycleMode, "permission mode: ask, accept-edits, plan"),
            (Global, Action::Viewer, "read and search the whole conversation"),
            (Global, Action::Inbox, "questions of all conversations"),
            (Global, Action::CancelOrQuit, "clear, interrupt, and twice: quit"),
        ];
        let signs =
            [("/", "commands"), ("@", "files, functions, conversations"), ("!", "run a command yourself")];
        let keys =
            keys.into_iter().map(|(context, action, what)| (self.keymap.chord_of(context, action), what));
        let keys = keys.filter(|(chord, _)| !chord.is_empty());
        keys.chain(signs.into_iter().map(|(sign, what)| (sign.to_owned(), what))).collect()
    }

    /// Enter in a list.
    pub(super) fn pick(&mut self, cmds: &mut Vec<Cmd>) {
        let Some(picker) = &self.overlays.picker else { return };
        let Some(row) = picker.chosen().cloned() else { return };
        if let Some(why) = &row.unusable {
            if picker.kind != PickerKind::Models || !self.pick_without_key(&row) {
                self.show_hint(why.clone());
            }
            return;
        }
        if row.is_heading {
            return;
        }
        let kind = picker.kind;
        if kind == PickerKind::NameThread {
            self.name_thread(cmds);
            return;
        }
        if kind == PickerKind::Key {
            self.key_typed(cmds);
            return;
        }
        if kind.verb().is_none() {
            self.overlays.picker = None;
            return;
        }
        self.overlays.picker = None;
        match kind {
            PickerKind::Threads => {
                self.overlays.resumes_by_list = false;
                self.open(Some(ThreadId::from(row.value)), cmds);
            }
            PickerKind::Inbox => {
                let id = SuspensionId::from(row.value);
                self.cards.chosen = Some(id.clone());
                cmds.push(Cmd::Question(QuestionCmd::Open(id)));
            }
            PickerKind::Models => cmds.push(Cmd::Model(ModelCmd::Set(row.value))),
            PickerKind::Logins => self.ask_key(&row.value),
            PickerKind::Efforts => self.effort_command(&row.value, cmds),
            PickerKind::Themes => self.use_theme(&row.value, cmds),
            PickerKind::Skills => {
                self.composer.set(format!("/{} ", row.value));
            }
            PickerKind::Modes => {
                if let Some(mode) = Mode::parse(&row.value) {
                    self.set_mode(mode, cmds);
                }
            }
            PickerKind::History => self.composer.recall(&row.value),
            PickerKind::Grants => self.open_grant(&row.value),
            PickerKind::Grant => self.pick_grant(&row.value, cmds),
            PickerKind::Back
            | PickerKind::Fork
            | PickerKind::RewindTarget
            | PickerKind::Thread
            | PickerKind::NameThread
            | PickerKind::DeleteThread
            | PickerKind::Compare => self.pick_back(kind, &row.value, cmds),
            PickerKind::Key | PickerKind::Rules | PickerKind::Help => {}
        }
    }

    pub(super) fn thread_rows(&self, threads: &[ThreadSummary]) -> Vec<PickRow> {
        let row = |summary: &ThreadSummary| {
            let thread = &summary.thread;
            let found = self.overlays.back.found.get(thread.id.as_str());
            let marks = &summary.marks;
            let state = match (summary.waiting, summary.status) {
                (1.., _) => format!("{} waiting, ", summary.waiting),
                (0, Some(RunStatus::Running)) => "running, ".to_owned(),
                (0, _) => String::new(),
            };
            let title = if thread.title.is_empty() { "(no messages)" } else { &thread.title };
            let pin = if marks.pinned { "★ " } else { "" };
            let copy = match (&marks.left_for, &marks.fork) {
                (Some(_), _) => "left by a rewind, ",
                (None, Some(fork)) if !fork.is_rewind => "copy, ",
                (None, _) => "",
            };
            let place = super::super::status::short_path(&thread.cwd, self.info.home.as_deref());
            let branch = marks.branch.as_ref().map(|branch| format!(" ({branch})")).unwrap_or_default();
            PickRow {
                value: thread.id.to_string(),
                label: format!("{pin}{title}"),
                detail: found.cloned().unwrap_or_else(|| format!("{place}{branch}")),
                note: format!("{copy}{state}{}", self.clock.ago(self.now, thread.updated_at)),
                unusable: summary.damaged.clone(),
                is_heading: false,
            }
        };
        threads.iter().map(row).collect()
    }

    /// Returns the folded entries since the user's last message, including that message, that were not shown
    /// in full yet.
    pub(super) fn folded_since_last_words(&self) -> Vec<u64> {
        let entries = self.conversation.transcript.entries();
        let from =
            entries.iter().rposition(|entry| matches!(entry.kind, EntryKind::User { .. })).unwrap_or(0);
        entries[from..]
            .iter()
            .filter(|entry| self.display.unfolded.is_none_or(|last| entry.id > last))
            .filter(|entry| match &entry.kind {
                EntryKind::Tool(tool) => tool.is_over() && super::super::view::entry::is_folded(tool),
                EntryKind::Thinking { .. } => entry.is_done,
                EntryKind::User { shown, .. } => shown.is_some(),
                _ => false,
            })
            .map(|entry| entry.id)
            .collect()
    }
}
