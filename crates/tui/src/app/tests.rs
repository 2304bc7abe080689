//! The test app: keys and events in, screen and commands out, with its own clock.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use serde_json::{Value, json};

use super::*;
use crate::highlight::Highlighter;
use crate::host::{
    GrantRow, Mode, OpenedThread, ProgramCmd, QuestionCmd, QuestionMsg, QueuedRow, ThreadCmd, ThreadMsg,
    UserInput, WritingCmd, WritingMsg,
};
use crate::msg::{Cmd, Msg};
use crate::theme::Theme;
use crate::view::layout_cache::Sheets;
use crate::view::scrollback::ScrollbackWriter;
use crate::view::{self, RenderStyle};
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::grant::{GrantEnd, GrantPreview, GrantRequest, PastMatch};
use aye_core::contract::ids::RunId;
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::record::{
    DecideOutcome, GrantScope, SuspensionRecord, SuspensionStatus, ThreadRecord,
};
use aye_core::contract::suspension::{
    ACTION_ASK_USER, ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME, Actor, Answer, PendingToolCall,
    ResumeDecisionAction, SuspendTicket, Suspension, ToolCallResume, ToolCallResumeMode,
};
use aye_core::contract::tool::ToolResult;

pub(crate) struct TestApp {
    pub(crate) app: App,
    pub(crate) cmds: Vec<Cmd>,
    pub(crate) scrollback: Vec<String>,
    pub(crate) caret: Option<(u16, u16)>,
    live: Vec<String>,
    feed: ScrollbackWriter,
    sheets: Sheets,
    render_style: RenderStyle,
    now: Moment,
}

fn text_of(line: &Line<'_>, width: u16) -> String {
    let mut buf = Buffer::empty(Rect::new(0, 0, width, 1));
    buf.set_line(0, 0, line, width);
    let mut text = String::new();
    let mut skip = 0;
    for cell in buf.content() {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        skip = crate::wrap::width(cell.symbol()).saturating_sub(1);
        text.push_str(cell.symbol());
    }
    text.trim_end().to_owned()
}

impl TestApp {
    pub(crate) fn new(width: u16, height: u16) -> TestApp {
        let mut test = TestApp::unopened(width, height);
        test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
        test
    }

    /// Before its first conversation is loaded.
    fn unopened(width: u16, height: u16) -> TestApp {
        let info = HostInfo {
            model: "m1".into(),
            is_demo: true,
            context_window: Some(1000),
            cwd: "/home/me/proj".into(),
            project: "/home/me/proj".into(),
            home: Some("/home/me".into()),
            version: "0.1.0".into(),
            ..HostInfo::default()
        };
        let app = App::new(info, Keymap::embedded(), WallClock::default(), (width, height));
        TestApp {
            app,
            cmds: Vec::new(),
            scrollback: Vec::new(),
            caret: None,
            live: Vec::new(),
            feed: ScrollbackWriter::default(),
            sheets: Sheets::new(RenderStyle { theme: Theme::plain(), highlighter: Highlighter::waiting() }),
            render_style: RenderStyle { theme: Theme::plain(), highlighter: Highlighter::waiting() },
            now: Moment(1000),
        }
    }

    pub(crate) fn send(&mut self, msg: Msg) {
        self.send_undrawn(msg);
        self.draw();
    }

    fn send_undrawn(&mut self, msg: Msg) {
        self.cmds.extend(self.app.update(self.now, msg));
    }

    pub(crate) fn draw(&mut self) {
        let width = self.app.display.size.0;
        let rendered = match (&self.app.overlays.viewer, &self.app.overlays.pane) {
            (Some(viewer), _) => view::viewer::viewer(&self.app, viewer, &mut self.sheets),
            (None, Some(pane)) => view::viewer::full(&self.app, pane, &mut self.sheets),
            (None, None) => {
                let finished = self.feed.finished(&self.app, &self.render_style);
                self.scrollback.extend(finished.iter().map(|line| text_of(line, width)));
                view::live(&self.app, &mut self.feed, &self.render_style)
            }
        };
        assert!(
            rendered.lines.len() <= usize::from(self.app.display.size.1.max(1)),
            "higher than the terminal"
        );
        for line in &rendered.lines {
            assert!(line.width() <= usize::from(width), "wider than the terminal: {line:?}");
        }
        if let Some(caret) = rendered.caret {
            assert!(caret.x < width && usize::from(caret.y) < rendered.lines.len(), "the caret is outside");
        }
        self.caret = rendered.caret.map(|at| (at.x, at.y));
        self.live = rendered.lines.iter().map(|line| text_of(line, width)).collect();
        self.send_undrawn(Msg::Drawn);
    }

    /// A change of a file that is done.
    fn edits(&mut self, id: &str, path: &str, added: u64, removed: u64) {
        self.call(id, "Edit", json!({"file_path": path, "old_string": "a", "new_string": "b"}));
        let details = json!({"added": added, "removed": removed});
        self.event(E::ToolCallDone {
            id: id.into(),
            message_id: "m".into(),
            result: ToolResult { details: Some(details), ..ToolResult::text("Edit", "edited") },
            outcome: ToolCallOutcome::Succeeded,
        });
    }

    /// A call that prints more than is shown.
    fn prints_fifty_lines(&mut self) {
        self.call("a", "Bash", json!({"command": "seq 50"}));
        let output: Vec<String> = (1..=50).map(|n| format!("line {n}")).collect();
        self.event(E::ToolCallDone {
            id: "a".into(),
            message_id: "m".into(),
            result: ToolResult::text("Bash", output.join("\n")),
            outcome: ToolCallOutcome::Succeeded,
        });
    }

    pub(crate) fn event(&mut self, event: E) {
        self.send(Msg::Agent(ThreadId::from("t"), Box::new(event)));
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.send(Msg::Tick);
    }

    /// Types text; `<enter>`, `<ctrl-c>` and so on are keys.
    pub(crate) fn keys(&mut self, keys: &str) {
        let mut rest = keys;
        while let Some(c) = rest.chars().next() {
            let end = rest.find('>').filter(|_| c == '<');
            let (key, length) = match end {
                Some(end) => (named(&rest[1..end]), end + 1),
                None => (KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE), c.len_utf8()),
            };
            rest = &rest[length..];
            self.send(Msg::Key(key));
        }
    }

    pub(crate) fn screen(&self) -> String {
        if self.app.overlays.wants_other_screen() {
            return self.live.join("\n");
        }
        let mut lines: Vec<&str> = self.scrollback.iter().chain(&self.live).map(String::as_str).collect();
        let height = usize::from(self.app.display.size.1);
        lines.drain(..lines.len().saturating_sub(height));
        lines.join("\n")
    }

    pub(crate) fn live(&self) -> String {
        self.live.join("\n")
    }

    pub(crate) fn start(&mut self, prompt: &str) {
        self.keys(&format!("{prompt}<enter>"));
        self.event(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None });
        self.event(E::StepStart { message_id: "m".into() });
        self.cmds.clear();
    }

    pub(crate) fn call(&mut self, id: &str, name: &str, arguments: Value) {
        self.event(E::ToolCallStart { id: id.into(), name: name.into() });
        self.event(E::ToolCallReady { id: id.into(), name: name.into(), arguments });
        self.event(E::InferenceComplete {
            model: "m1".into(),
            usage: None,
            duration_ms: 1,
            stop_reason: None,
        });
    }

    /// A call that asks, with the run waiting and enough time to read the card.
    pub(crate) fn ask(&mut self, id: &str, name: &str, arguments: Value, action: &str, parameters: Value) {
        self.call(id, name, arguments.clone());
        self.event(suspended(ticket(id, name, arguments, action, parameters)));
        self.event(E::StepEnd);
        self.finish(TerminationReason::Suspended);
        self.wait(1000);
        self.wait(1000);
    }

    pub(crate) fn ask_bash(&mut self, id: &str, command: &str) {
        let parameters = json!({
            "rule": "ask Bash(git push *)", "why": "it changes what others see", "cwd": "/home/me/proj",
            "proposals": [
                {"pattern": "Bash(git push *)", "text": "git push with any arguments"},
                {"pattern": "Bash(git push)", "text": "exactly this command"},
            ],
        });
        self.ask(id, "Bash", json!({"command": command}), ACTION_PERMISSION, parameters);
    }

    pub(crate) fn finish(&mut self, termination: TerminationReason) {
        self.event(E::RunFinish { thread_id: "t".into(), run_id: "r".into(), result: None, termination });
    }

    pub(super) fn grants(&self) -> Vec<&GrantRequest> {
        self.decisions().into_iter().filter_map(|answer| answer.grant.as_ref()).collect()
    }

    pub(crate) fn decisions(&self) -> Vec<&Answer> {
        let answers = self.cmds.iter().filter_map(|cmd| match cmd {
            Cmd::Question(QuestionCmd::Decide(_, answer)) => Some(answer.as_ref()),
            _ => None,
        });
        answers.collect()
    }
}

fn named(name: &str) -> KeyEvent {
    let (modifiers, name) = match name.split_once('-') {
        Some(("ctrl", rest)) => (KeyModifiers::CONTROL, rest),
        Some(("alt", rest)) => (KeyModifiers::ALT, rest),
        Some(("shift", rest)) => (KeyModifiers::SHIFT, rest),
        _ => (KeyModifiers::NONE, name),
    };
    let code = match name {
        "enter" => KeyCode::Enter,
        "esc" => KeyCode::Esc,
        "tab" => KeyCode::Tab,
        "up" => KeyCode::Up,
        "down" => KeyCode::Down,
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "backspace" => KeyCode::Backspace,
        "pagedown" => KeyCode::PageDown,
        "pageup" => KeyCode::PageUp,
        "home" => KeyCode::Home,
        "end" => KeyCode::End,
        "delete" => KeyCode::Delete,
        other => KeyCode::Char(other.chars().next().expect("a key has a name")),
    };
    KeyEvent::new(code, modifiers)
}

pub(crate) fn ticket(
    id: &str,
    name: &str,
    arguments: Value,
    action: &str,
    parameters: Value,
) -> SuspendTicket {
    SuspendTicket {
        suspension: Suspension {
            id: format!("perm_{id}").into(),
            action: action.into(),
            message: "may it run?".into(),
            parameters,
            response_schema: None,
            expires_at: None,
        },
        pending: PendingToolCall { id: id.into(), name: name.into(), arguments },
        resume_mode: ToolCallResumeMode::ReplayToolCall,
    }
}

pub(crate) fn suspended(ticket: SuspendTicket) -> E {
    E::ToolCallDone {
        id: ticket.pending.id.to_string(),
        message_id: "m".into(),
        result: ToolResult::suspended_with(ticket.pending.name.clone(), "?", ticket),
        outcome: ToolCallOutcome::Suspended,
    }
}

pub(crate) fn opened(messages: Vec<aye_core::contract::record::StoredMessage>) -> OpenedThread {
    OpenedThread {
        thread: ThreadRecord {
            id: ThreadId::from("t"),
            title: String::new(),
            cwd: "/home/me/proj".into(),
            created_at: 0,
            updated_at: 0,
        },
        messages,
        run: None,
        earlier: None,
        waiting: Vec::new(),
        interrupted: Vec::new(),
        driver: ThreadOwner::Nobody,
        queued: Vec::new(),
        children: Vec::new(),
        commands: Vec::new(),
        summaries: Vec::new(),
    }
}

pub(crate) fn record(ticket: SuspendTicket) -> Box<SuspensionRecord> {
    Box::new(SuspensionRecord {
        id: ticket.suspension.id.clone(),
        thread_id: ThreadId::from("t"),
        run_id: RunId::from("r"),
        call_id: ticket.pending.id.clone(),
        ticket,
        status: SuspensionStatus::Decided,
        created_at: 0,
        decision: Some(ToolCallResume {
            decision_id: "d".into(),
            action: ResumeDecisionAction::Resume,
            result: Value::Null,
            reason: None,
            arguments: None,
            profile: None,
            updated_at: (12 * 60 + 3) * 60_000,
        }),
        decided_by: Some(Actor { user: "ann".into(), channel: "cli".into(), pid: 7, ..Actor::default() }),
    })
}

/// A run that did something says at its end what, and how long it worked without the time it waited.
#[test]
fn a_line_ends_a_run() {
    let mut test = TestApp::new(100, 30);
    test.start("only talk");
    test.event(E::TextDelta { delta: "Hello.".into() });
    test.finish(TerminationReason::NaturalEnd);
    assert!(!test.screen().contains("worked"), "an answer alone needs none: {}", test.screen());
    test.start("go");
    test.wait(2000);
    test.edits("a", "a.rs", 3, 1);
    test.edits("b", "a.rs", 1, 0);
    test.edits("c", "b.rs", 1, 3);
    test.ask_bash("d", "cargo test");
    test.wait(60_000);
    test.event(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None });
    test.wait(1000);
    test.finish(TerminationReason::NaturalEnd);
    let line = "─ worked 3.0 s · 4 calls · 2 files +5 −4 · asked once ─ /diff · /rewind";
    assert!(test.screen().contains(line), "{}", test.screen());
    test.start("again");
    test.call("e", "Bash", json!({"command": "ls"}));
    test.finish(TerminationReason::Cancelled);
    assert!(test.screen().contains("─ worked 0.1 s · 1 call\n"), "{}", test.screen());
}

#[test]
fn a_plan_is_over_with_its_run() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    let todos = json!([{"content": "Write the test", "status": "in_progress"}]);
    let plan = |test: &mut TestApp, id: &str| {
        test.call(id, "TodoWrite", json!({"todos": todos}));
        test.event(E::ToolCallDone {
            id: id.into(),
            message_id: "m".into(),
            result: ToolResult::text("TodoWrite", "ok"),
            outcome: ToolCallOutcome::Succeeded,
        });
    };
    plan(&mut test, "a");
    assert!(test.live().contains("▸ Write the test"), "{}", test.live());
    test.finish(TerminationReason::NaturalEnd);
    test.start("something else");
    assert!(!test.live().contains("Write the test"), "{}", test.live());
    plan(&mut test, "b");
    assert!(test.live().contains("▸ Write the test"), "{}", test.live());
}

/// What a newcomer needs is on the first rows, each with what it means next to it.
#[test]
fn help_starts_with_the_keys_to_know_first() {
    let mut test = TestApp::new(140, 40);
    test.keys("/help<enter>");
    let rows: Vec<String> = test.live().lines().map(str::to_owned).collect();
    let at = rows.iter().position(|row| row.contains("First")).expect("the first heading");
    for (row, what) in rows[at + 1..].iter().zip(["Enter", "Shift-Enter", "Esc", "Tab"]) {
        assert!(row.trim_start_matches([' ', '▸']).starts_with(what), "{row}");
    }
    let widest = rows[at..rows.len() - 1].iter().map(|row| crate::wrap::width(row)).max();
    assert!(widest.is_some_and(|widest| widest <= 100), "{widest:?}");
}

#[test]
fn the_whole_command_can_be_seen() {
    let command = format!("git status{}; touch pwn\nls \u{202e}# tsil  ", " ".repeat(400));
    let mut test = TestApp::new(80, 40);
    test.start("go");
    test.ask_bash("a", &command);
    let seen = test.live();
    for part in ["$ git status····", "; touch pwn⏎", "ls <U+202E># tsil··", "1 invisible or control"]
    {
        assert!(seen.contains(part), "{part} is not in\n{seen}");
    }
    let mut test = TestApp::new(40, 14);
    test.start("go");
    test.ask_bash("a", &format!("{command}{}", "\nx".repeat(50)));
    assert!(test.live().contains("more rows below"), "{}", test.live());
}

#[test]
fn a_message_during_an_active_run_is_queued_and_not_lost() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.keys("and then this<enter>");
    assert!(test.cmds.iter().all(|cmd| !matches!(cmd, Cmd::Thread(ThreadCmd::Start(..)))));
    let input = UserInput { steers: true, ..UserInput::text("and then this") };
    assert_eq!(test.cmds.last(), Some(&Cmd::Thread(ThreadCmd::Enqueue("t".into(), input.clone()))));
    test.send(Msg::Thread(ThreadMsg::Enqueued(input.clone(), Ok(queued(7, "and then this")))));
    assert!(test.live().contains("queued and then this"), "{}", test.live());
    test.keys("<esc>");
    assert!(test.cmds.contains(&Cmd::Thread(ThreadCmd::Cancel("t".into()))));
    test.finish(TerminationReason::Cancelled);
    assert_eq!(test.cmds.last(), Some(&Cmd::Thread(ThreadCmd::Unqueue(vec![7]))));
    test.send(Msg::Thread(ThreadMsg::Unqueued { back: vec![7], gone: Vec::new() }));
    assert_eq!(test.app.composer.text(), "and then this");
    assert!(!test.live().contains("queued and"), "{}", test.live());

    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.keys("and then this<enter>");
    test.send(Msg::Thread(ThreadMsg::Enqueued(input, Ok(queued(8, "and then this")))));
    test.finish(TerminationReason::NaturalEnd);
    assert!(
        test.cmds.iter().all(|cmd| !matches!(cmd, Cmd::Thread(ThreadCmd::Unqueue(_) | ThreadCmd::Start(..)))),
        "{:?}",
        test.cmds
    );
    test.send(Msg::Thread(ThreadMsg::Began("t".into(), queued(8, "and then this"))));
    assert!(test.app.conversation.is_active());
    assert!(!test.live().contains("queued"), "{}", test.live());
    assert_eq!(test.screen().matches("and then this").count(), 1, "{}", test.screen());
}

pub(crate) fn queued(id: u64, text: &str) -> QueuedRow {
    QueuedRow {
        id,
        text: text.into(),
        shown: None,
        images: Vec::new(),
        note: String::new(),
        steers: false,
        is_report: false,
    }
}

#[test]
fn a_message_is_sent_while_questions_are_pending() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.ask_bash("a", "git push");
    test.keys("<right>");
    test.keys("no, leave it<enter>");
    assert!(
        matches!(test.cmds.last(), Some(Cmd::Thread(ThreadCmd::Start(_, input))) if input.text == "no, leave it")
    );
    let gone = ToolResult::error("Bash", "Not run").with_details(json!({"code": "superseded"}));
    let event = E::ToolCallDone {
        id: "a".into(),
        message_id: "m".into(),
        result: gone,
        outcome: ToolCallOutcome::Cancelled,
    };
    test.event(event);
    test.finish(TerminationReason::Cancelled);
    assert!(test.app.conversation.is_active(), "the new run is on its way");
    assert!(!test.screen().contains("interrupted"), "{}", test.screen());
    assert!(test.app.cards.open.is_empty());
}

#[test]
fn ctrl_c_clears_first_and_quits_when_pressed_twice() {
    let mut test = TestApp::new(100, 30);
    test.keys("half a thought<ctrl-c>");
    assert!(test.app.composer.is_empty());
    assert!(test.live().contains("cleared; press Ctrl-C again to quit"), "{}", test.live());
    test.wait(QUIT_MS + 1);
    assert!(!test.live().contains("again to quit"));
    test.keys("<ctrl-c>");
    assert!(!test.cmds.contains(&Cmd::Quit));
    test.keys("<ctrl-c>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Quit));
}

#[test]
fn nothing_is_scheduled_while_idle() {
    let mut test = TestApp::new(100, 30);
    assert_eq!(test.app.deadline(), None);
    test.start("go");
    let due = test.app.deadline().expect("has a deadline");
    assert!(due.since(test.app.now) <= TICK_MS && due > test.app.now);
    test.ask_bash("a", "git push");
    assert_eq!(test.app.deadline(), None, "a waiting run needs no clock");
}

#[test]
fn commands_skills_and_paths_are_completed() {
    let mut test = TestApp::new(100, 30);
    test.send(Msg::Writing(WritingMsg::Skills(vec![SkillRow {
        name: "commit".into(),
        description: "Write a commit".into(),
        origin: "bundled".into(),
    }])));
    test.keys("/co");
    assert!(test.live().contains("/commit") && test.live().contains("/copy"), "{}", test.live());
    test.keys("mm<enter>fix it<enter>");
    let Some(Cmd::Thread(ThreadCmd::Start(_, input))) = test.cmds.last() else { panic!("{:?}", test.cmds) };
    assert_eq!((input.skill.as_deref(), input.text.as_str()), (Some("commit"), "fix it"));
    test.finish(TerminationReason::NaturalEnd);
    test.keys("look at @ma");
    let Some(Cmd::Writing(WritingCmd::Files(number, query))) = test.cmds.last().cloned() else {
        panic!("{:?}", test.cmds)
    };
    assert_eq!(query, "ma");
    test.send(Msg::Writing(WritingMsg::Files(
        number,
        ["src/main.rs", "Makefile"]
            .map(|label| crate::host::MentionRow { label: label.into(), detail: String::new() })
            .into(),
    )));
    test.keys("<down><tab>");
    assert_eq!(test.app.composer.text(), "look at @Makefile ");
    test.keys("<ctrl-c>/nope");
    assert!(test.live().contains("/nope is not a command"), "{}", test.live());
    test.keys("<enter>");
    assert_eq!(test.app.composer.text(), "/nope");
    assert_eq!(test.live().matches("is not a command").count(), 1, "{}", test.live());
    test.keys("<home><enter>");
    assert_eq!(test.live().matches("is not a command").count(), 1, "{}", test.live());
    test.keys("<ctrl-c>");
    test.wait(3000);
    test.keys("/usr/bin is a folder<enter>");
    assert!(
        matches!(test.cmds.last(), Some(Cmd::Thread(ThreadCmd::Start(_, input))) if input.text.starts_with("/usr/bin")),
        "{:?}\n{}",
        test.cmds,
        test.screen()
    );
}

#[test]
fn modes_cycle_and_yolo_is_reached_only_by_name() {
    let mut test = TestApp::new(100, 30);
    test.keys("<shift-tab><shift-tab><shift-tab>");
    let modes =
        [Mode::AcceptEdits, Mode::Plan, Mode::Ask].map(|mode| Cmd::Program(ProgramCmd::SetMode(mode)));
    assert_eq!(test.cmds[test.cmds.len() - 3..], modes);
    test.app.info.most_mode = Some(Mode::Ask);
    test.keys("<shift-tab><shift-tab>");
    let modes = [Mode::Plan, Mode::Ask].map(|mode| Cmd::Program(ProgramCmd::SetMode(mode)));
    assert_eq!(test.cmds[test.cmds.len() - 2..], modes, "the key passes over what the policy does not allow");
    test.app.info.most_mode = None;
    test.keys("/mode yolo<enter>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Program(ProgramCmd::SetMode(Mode::Yolo))));
    assert!(test.live().contains("yolo"), "{}", test.live());
}

#[test]
fn full_output_is_printed_once_on_request() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.prints_fifty_lines();
    assert!(test.screen().contains("… 45 more lines (Ctrl-O)"), "{}", test.screen());
    test.cmds.clear();
    test.keys("<alt-o>");
    assert!(matches!(&test.cmds[..], [Cmd::ShowWhole(entries)] if entries.len() == 1));
    let Some(Cmd::ShowWhole(entries)) = test.cmds.first().cloned() else { return };
    assert_eq!(ScrollbackWriter::whole(&test.app, &test.render_style, entries[0]).len(), 52);
    test.keys("<alt-o>");
    assert_eq!(test.cmds.len(), 1);
}

#[test]
fn events_that_overtake_the_opened_conversation_are_not_lost() {
    let mut test = TestApp::new(100, 30);
    test.keys("/resume other<enter>");
    let other = ThreadId::from("other");
    let start = E::RunStart { thread_id: "other".into(), run_id: "r2".into(), parent_run_id: None };
    test.send(Msg::Agent(other.clone(), Box::new(start)));
    let event =
        suspended(ticket("a", "Bash", json!({"command": "make"}), ACTION_UNKNOWN_OUTCOME, Value::Null));
    test.send(Msg::Agent(other.clone(), Box::new(event)));
    assert!(test.app.cards.open.is_empty());
    let mut thread = opened(Vec::new());
    thread.thread.id = other;
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(thread)))));
    assert_eq!(test.app.cards.open.len(), 1);
    assert!(test.live().contains("1  Run again"), "{}", test.live());
}

#[test]
fn a_message_before_the_first_conversation_opens_is_shown_once() {
    for note in [None, Some("no such theme")] {
        let mut test = TestApp::unopened(100, 30);
        if let Some(text) = note {
            test.send(Msg::Note(text.into()));
        }
        test.keys("hello<enter>");
        test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
        let screen = test.screen();
        assert!(!screen.contains("new conversation"), "{screen}");
        assert_eq!(screen.matches("hello").count(), 1, "{screen}");
        assert_eq!(screen.matches("no such theme").count(), note.iter().count(), "{screen}");
    }
}

#[test]
fn a_failed_load_of_a_run_ends_the_wait() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.event(E::Error { message: "the store is locked".into(), code: None });
    test.event(E::RunFinish {
        thread_id: "t".into(),
        run_id: String::new(),
        result: None,
        termination: TerminationReason::Error("the store is locked".into()),
    });
    assert_eq!(test.app.conversation.run, RunState::Idle);
    assert_eq!(test.screen().matches("the store is locked").count(), 1);
}

mod answers;
mod cards;
mod comfort;
mod compose;
mod edited;
mod fuzz;
mod images;
mod inbox;
mod long;
mod press;
mod rewind;
mod states;
mod trust;
mod viewer;
mod widths;

fn retry(delay_ms: u64, model: &str, instead: bool) -> E {
    E::ActivitySnapshot {
        message_id: "m".into(),
        activity_type: "inference-retry".into(),
        content: json!({
            "attempt": 2, "max": 6, "delay_ms": delay_ms, "model": model, "instead": instead,
            "reason": "busy", "reset": false,
        }),
        replace: Some(true),
    }
}

#[test]
fn the_retry_countdown_wakes_once_a_second() {
    let mut test = TestApp::new(80, 20);
    test.start("hi");
    test.event(retry(2300, "m1", false));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let status = test.live.last().cloned().unwrap_or_default();
        seen.push(
            status.split("try ").nth(1).unwrap_or_default().split(':').next().unwrap_or_default().to_owned(),
        );
        let deadline = test.app.deadline().expect("a deadline");
        let left = deadline.since(test.now);
        seen.push(format!("{left} ms"));
        test.wait(left);
    }
    assert_eq!(seen, ["2 of 6 in 3 s", "300 ms", "2 of 6 in 2 s", "1000 ms", "2 of 6 in 1 s", "1000 ms"]);
    assert!(test.live().contains("retry 2 of 6: busy"), "{}", test.live());
    assert!(test.app.deadline().expect("has a deadline").since(test.now) <= 1000);
    test.event(E::InferenceComplete { model: "m1".into(), usage: None, duration_ms: 1, stop_reason: None });
    assert!(!test.live().contains("retry 2"), "{}", test.live());
    assert!(!test.screen().contains("instead"), "{}", test.screen());
}

#[test]
fn a_long_reason_keeps_the_retry_countdown_visible() {
    for columns in [40, 60, 80, 160] {
        let mut test = TestApp::new(columns, 20);
        test.start("hi");
        let mut event = retry(2300, "m1", false);
        if let E::ActivitySnapshot { content, .. } = &mut event {
            content["reason"] =
                "cannot reach http://127.0.0.1:9/v1/chat/completions: connection refused".into();
        }
        test.event(event);
        let status = test.live.last().cloned().unwrap_or_default();
        assert!(status.contains("retry 2 of 6 in 3 s"), "{columns}: {status}");
        assert_eq!(status.contains("refused"), columns == 160, "{columns}: {status}");
        assert_eq!(status.contains(": cann"), columns > 60, "{columns}: {status}");
        assert_eq!(status.contains("Esc interrupts"), columns >= 60, "{columns}: {status}");
    }
}

#[test]
fn a_fallback_model_is_named() {
    let mut test = TestApp::new(80, 20);
    test.start("hi");
    let complete = |model: &str| E::InferenceComplete {
        model: model.into(),
        usage: None,
        duration_ms: 1,
        stop_reason: None,
    };
    for _ in 0..2 {
        test.event(retry(0, "m2", true));
        assert!(test.live().contains("retry 2 of 6 with m2: busy"), "{}", test.live());
        test.event(complete("m2"));
        assert!(test.live().contains("m2 (for demo)"), "{}", test.live());
    }
    assert_eq!(test.screen().matches("m2 answered instead").count(), 1, "{}", test.screen());
    test.event(complete("m1"));
    assert!(!test.live().contains("m2"), "{}", test.live());
}

#[test]
fn a_limit_offers_to_continue() {
    let mut test = TestApp::new(80, 20);
    let stopped = || TerminationReason::stopped("max_rounds", "the limit of 2 inferences is reached");
    let continued = |test: &TestApp| {
        test.cmds
            .iter()
            .filter(|cmd| matches!(cmd, Cmd::Thread(ThreadCmd::Start(_, input)) if input.text == "Continue."))
            .count()
    };
    test.keys("<enter>");
    assert_eq!(continued(&test), 0);
    test.start("hi");
    test.finish(stopped());
    assert!(test.screen().contains("stopped: the limit of 2 inferences is reached; /continue keeps going"));
    assert!(test.live().contains("Enter: continue, or type a message"), "{}", test.live());
    test.keys("<enter>");
    assert_eq!(continued(&test), 1);
    assert!(!test.live().contains(": continue, or"), "{}", test.live());
    test.event(E::RunStart { thread_id: "t".into(), run_id: "r2".into(), parent_run_id: None });
    test.event(E::RunFinish {
        thread_id: "t".into(),
        run_id: "r2".into(),
        result: None,
        termination: stopped(),
    });
    test.keys("/continue <enter>");
    assert_eq!(continued(&test), 2);
    test.event(E::RunStart { thread_id: "t".into(), run_id: "r3".into(), parent_run_id: None });
    let end = TerminationReason::NaturalEnd;
    test.event(E::RunFinish { thread_id: "t".into(), run_id: "r3".into(), result: None, termination: end });
    test.keys("<enter>/continue <enter>");
    assert_eq!(continued(&test), 2);
    assert!(test.live().contains("no limit stopped"), "{}", test.live());
}
