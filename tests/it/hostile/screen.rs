//! Terminal rows that are a text in a place, as rendered by the views. No cell ever contains a character that
//! a terminal obeys or a reader cannot see, and no row is wider than the terminal.

use aye::contract::display::{is_unsafe, visible_line};
use aye::contract::event::AgentEvent as E;
use aye::contract::ids::ThreadId;
use aye::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye::contract::record::{ThreadMarks, ThreadRecord, ThreadSummary};
use aye::contract::suspension::{
    ACTION_ASK_USER, ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME, PendingToolCall, SuspendTicket, Suspension,
    ToolCallResumeMode,
};
use aye::contract::tool::ToolResult;
use aye::tui::app::{App, WallClock};
use aye::tui::highlight::Highlighter;
use aye::tui::host::{
    HostInfo, ModelMsg, ModelRow, OpenedThread, QuestionCmd, QuestionMsg, RuleRow, SkillRow, ThreadMsg,
    WritingMsg,
};
use aye::tui::keymap::Keymap;
use aye::tui::msg::{Cmd, Msg};
use aye::tui::terminal::LiveTerminal;
use aye::tui::theme::Theme;
use aye::tui::thread_actions::RewindMsg;
use aye::tui::transcript::Moment;
use aye::tui::view::scrollback::ScrollbackWriter;
use aye::tui::view::{self, RenderStyle};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Line;
use serde_json::{Value, json};

use super::{Found, Row, each, ensure, of_area};

/// Whether the row is a text in a place.
pub fn is_data(row: &Row) -> bool {
    row.input["sink"].is_string()
}

/// Every place that foreign text gets to.
pub const SINKS: &[&str] = &[
    "tool_output",
    "live_output",
    "tool_error",
    "model_text",
    "reasoning",
    "model_code",
    "error",
    "retry",
    "user_text",
    "approval_prompt",
    "approval_reason",
    "approval_file",
    "approval_diff",
    "question",
    "unknown_outcome",
    "tool_name",
    "mcp_server_name",
    "arguments",
    "file_name",
    "thread_title",
    "skill_name",
    "skill_description",
    "model_name",
    "rule",
    "history",
    "paste",
    "warning",
    "cwd",
    "notification",
    "instructions",
    "blocked",
];

/// The application without a terminal, and everything it ever drew.
struct Stage {
    app: App,
    feed: ScrollbackWriter,
    look: RenderStyle,
    now: Moment,
    cmds: Vec<Cmd>,
    drawn: String,
    bad: Option<String>,
    lines: usize,
    printed: usize,
    terminal: LiveTerminal<Vec<u8>>,
}

impl Stage {
    fn new(width: u16, height: u16, info: HostInfo) -> Self {
        let app = App::new(info, Keymap::embedded(), WallClock::default(), (width, height));
        let mut stage = Self {
            app,
            feed: ScrollbackWriter::default(),
            look: RenderStyle { theme: Theme::default(), highlighter: Highlighter::off() },
            now: Moment(1000),
            cmds: Vec::new(),
            drawn: String::new(),
            bad: None,
            lines: 0,
            printed: 0,
            terminal: LiveTerminal::new(Vec::new(), width, height, false),
        };
        stage.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened())))));
        stage
    }

    fn keep(&mut self, line: &Line<'_>) {
        let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        if let Some(c) = text.chars().find(|c| is_unsafe(*c) || matches!(c, '\n' | '\t')) {
            self.bad.get_or_insert(format!("{c:?} is in {text:?}"));
        }
        if line.width() > usize::from(self.app.display.size.0) {
            self.bad.get_or_insert(format!("wider than the terminal: {text:?}"));
        }
        self.drawn.push_str(&text);
        self.drawn.push('\n');
    }

    fn send(&mut self, msg: Msg) {
        self.cmds.extend(self.app.update(self.now, msg));
        let finished = self.feed.finished(&self.app, &self.look);
        for line in &finished {
            self.keep(line);
        }
        self.printed += finished.len();
        self.terminal.append(finished);
        let picture = view::live(&self.app, &mut self.feed, &self.look);
        for line in &picture.lines {
            self.keep(line);
        }
        self.lines = picture.lines.len();
        self.cmds.extend(self.app.update(self.now, Msg::Drawn));
    }

    fn event(&mut self, event: E) {
        self.send(Msg::Agent(ThreadId::from("t"), Box::new(event)));
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.send(Msg::Tick);
    }

    fn key(&mut self, code: KeyCode) {
        self.send(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    fn start(&mut self, text: &str) {
        self.send(Msg::Paste(text.into()));
        self.key(KeyCode::Enter);
        self.event(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None });
        self.event(E::StepStart { message_id: "m".into() });
    }

    fn call(&mut self, name: &str, arguments: Value) {
        self.event(E::ToolCallStart { id: "a".into(), name: name.into() });
        self.event(E::ToolCallReady { id: "a".into(), name: name.into(), arguments });
    }

    fn done(&mut self, result: ToolResult, outcome: ToolCallOutcome) {
        self.event(E::ToolCallDone { id: "a".into(), message_id: "m".into(), result, outcome });
    }

    fn finish(&mut self, termination: TerminationReason) {
        self.event(E::StepEnd);
        self.event(E::RunFinish { thread_id: "t".into(), run_id: "r".into(), result: None, termination });
        self.wait(1000);
        self.wait(1000);
    }

    fn ask(&mut self, name: &str, arguments: Value, action: &str, parameters: Value) {
        self.call(name, arguments.clone());
        let ticket = SuspendTicket {
            suspension: Suspension {
                id: "perm_a".into(),
                action: action.into(),
                message: "may it run?".into(),
                parameters,
                response_schema: None,
                expires_at: None,
            },
            pending: PendingToolCall { id: "a".into(), name: name.into(), arguments },
            resume_mode: ToolCallResumeMode::ReplayToolCall,
        };
        let result = ToolResult::suspended_with(name.to_owned(), "?", ticket);
        self.done(result, ToolCallOutcome::Suspended);
        self.finish(TerminationReason::Suspended);
    }

    fn decided(&self) -> bool {
        self.cmds.iter().any(|cmd| matches!(cmd, Cmd::Question(QuestionCmd::Decide(..))))
    }

    /// Checks the bytes that the terminal itself would get.
    fn is_clean(&mut self) -> Found {
        ensure(self.bad.is_none(), || self.bad.clone().unwrap_or_default())?;
        let picture = view::live(&self.app, &mut self.feed, &self.look);
        let rows = u16::try_from(picture.lines.len()).map_err(|e| e.to_string())?;
        let fill = |area: ratatui::layout::Rect, buffer: &mut ratatui::buffer::Buffer| {
            for (y, line) in (0..area.height).zip(&picture.lines) {
                buffer.set_line(0, y, line, area.width);
            }
            None
        };
        self.terminal.draw(rows, fill).map_err(|e| e.to_string())?;
        self.terminal.finish(true).map_err(|e| e.to_string())?;
        let raw = String::from_utf8_lossy(self.terminal.out_mut()).into_owned();
        for foreign in [
            "\x1b]52", "\x1b]0;", "\x1b]2;", "\x1b_G", "\x1bP", "\x1b[6n", "\x1b[c", "\x1b]8;", "\u{9b}",
            "\u{9d}", "\x07", "\u{202e}",
        ] {
            ensure(!raw.contains(foreign), || format!("{foreign:?} was written"))?;
        }
        Ok(())
    }
}

fn thread(title: &str) -> ThreadRecord {
    ThreadRecord {
        id: ThreadId::from("t"),
        title: title.into(),
        cwd: "/w".into(),
        created_at: 0,
        updated_at: 0,
    }
}

fn opened() -> OpenedThread {
    OpenedThread {
        thread: thread(""),
        messages: Vec::new(),
        run: None,
        earlier: None,
        waiting: Vec::new(),
        interrupted: Vec::new(),
        driver: aye::tui::host::ThreadOwner::Nobody,
        queued: Vec::new(),
        children: Vec::new(),
        commands: Vec::new(),
        summaries: Vec::new(),
    }
}

fn info() -> HostInfo {
    HostInfo {
        model: "m1".into(),
        cwd: "/w".into(),
        project: "/w".into(),
        version: "0.1.0".into(),
        ..HostInfo::default()
    }
}

/// Puts the text in its place.
fn play(sink: &str, text: &str, width: u16, height: u16) -> Result<Stage, String> {
    let mut about = info();
    match sink {
        "model_name" => about.model = text.into(),
        "warning" => about.warnings = vec![text.into()],
        "cwd" => about.cwd = text.replace('\0', "").into(),
        "instructions" => about.instructions = Some(text.into()),
        _ => {}
    }
    let mut stage = Stage::new(width, height, about);
    let command = json!({"command": "x"});
    match sink {
        "model_name" | "warning" | "cwd" | "instructions" => stage.wait(10),
        "tool_output" => {
            stage.start("go");
            stage.call("Bash", command);
            stage.done(ToolResult::text("Bash", text), ToolCallOutcome::Succeeded);
            stage.finish(TerminationReason::NaturalEnd);
        }
        "live_output" => {
            stage.start("go");
            stage.call("Bash", command);
            for piece in text.as_bytes().chunks((text.len() / 100).max(7)) {
                let delta = String::from_utf8_lossy(piece).into_owned();
                stage.event(E::ToolCallStreamDelta { id: "a".into(), name: "Bash".into(), delta });
            }
            stage.wait(500);
            stage.done(ToolResult::text("Bash", text), ToolCallOutcome::Succeeded);
            stage.finish(TerminationReason::Cancelled);
        }
        "tool_error" => {
            stage.start("go");
            stage.call("Bash", command);
            stage.done(ToolResult::error("Bash", text), ToolCallOutcome::Failed);
            stage.finish(TerminationReason::NaturalEnd);
        }
        "model_text" | "model_code" => {
            stage.start("go");
            let text =
                if sink == "model_code" { format!("```sh {text}\n{text}\n```\n") } else { text.to_owned() };
            for piece in text.chars().collect::<Vec<_>>().chunks((text.len() / 100).max(5)) {
                stage.event(E::TextDelta { delta: piece.iter().collect() });
            }
            stage.finish(TerminationReason::NaturalEnd);
        }
        "reasoning" => {
            stage.start("go");
            stage.event(E::ReasoningDelta { delta: text.into() });
            stage.event(E::TextDelta { delta: "so".into() });
            stage.finish(TerminationReason::NaturalEnd);
        }
        "error" | "blocked" => {
            stage.start("go");
            stage.event(E::Error { message: text.into(), code: Some(text.into()) });
            let end = if sink == "error" {
                TerminationReason::Error(text.into())
            } else {
                TerminationReason::Blocked(text.into())
            };
            stage.finish(end);
        }
        "retry" => {
            stage.start("go");
            stage.event(E::ActivitySnapshot {
                message_id: "m".into(),
                activity_type: aye::contract::progress::INFERENCE_RETRY_ACTIVITY_TYPE.into(),
                content: json!({"reason": text, "delay_ms": 7000, "attempt": 1, "max_attempts": 3, "max": 3}),
                replace: None,
            });
            stage.wait(500);
        }
        "user_text" => {
            stage.start(text);
            stage.finish(TerminationReason::NaturalEnd);
        }
        "approval_prompt" | "notification" => {
            stage.start("go");
            stage.ask(
                "Bash",
                json!({"command": text}),
                ACTION_PERMISSION,
                json!({"rule": "ask Bash", "cwd": "/w", "proposals": []}),
            );
        }
        "approval_reason" => {
            stage.start("go");
            let about = json!({"rule": text, "why": text, "cwd": text, "proposals": [{"pattern": text, "text": text}]});
            stage.ask("Bash", command, ACTION_PERMISSION, about);
            stage.key(KeyCode::Char('a'));
            stage.wait(500);
        }
        "approval_file" | "file_name" | "approval_diff" => {
            stage.start("go");
            let (path, body) = if sink == "approval_diff" { ("f.txt", text) } else { (text, "new\n") };
            let preview =
                json!([{"path": path, "before": "aa", "after": "bb", "old_text": "old\n", "new_text": body}]);
            stage.ask(
                "Write",
                json!({"file_path": path, "content": body}),
                ACTION_PERMISSION,
                json!({"rule": "x", "cwd": "/w", "preview": preview, "proposals": []}),
            );
        }
        "question" => {
            stage.start("go");
            let about = json!({"questions": [{"question": text, "header": text, "options": [{"label": text, "description": text}, {"label": "b"}]}], "question": text, "options": [{"label": text, "description": text}, text]});
            stage.ask("AskUser", about.clone(), ACTION_ASK_USER, about);
        }
        "unknown_outcome" => {
            stage.start("go");
            stage.ask(
                "Bash",
                json!({"command": text}),
                ACTION_UNKNOWN_OUTCOME,
                json!({"output": text, "why": text, "partial": text}),
            );
        }
        "tool_name" | "mcp_server_name" => {
            stage.start("go");
            let name = if sink == "tool_name" { text.to_owned() } else { format!("mcp__{text}__list") };
            stage.ask(
                &name,
                json!({"a": 1}),
                ACTION_PERMISSION,
                json!({"rule": "x", "cwd": "/w", "proposals": []}),
            );
        }
        "arguments" => {
            stage.start("go");
            stage.ask(
                "mcp__s__t",
                json!({text: text, "list": [text, {"deep": text}]}),
                ACTION_PERMISSION,
                json!({"rule": "x", "proposals": []}),
            );
        }
        "thread_title" => {
            stage.send(Msg::Paste("/resume".into()));
            stage.key(KeyCode::Enter);
            let row = |damaged: Option<String>| ThreadSummary {
                thread: thread(text),
                messages: 3,
                waiting: 1,
                status: None,
                damaged,
                marks: ThreadMarks { branch: Some(text.into()), ..ThreadMarks::default() },
            };
            stage.send(Msg::Thread(ThreadMsg::Listed(Ok(vec![row(None), row(Some(text.into()))]))));
        }
        "skill_name" | "skill_description" => {
            let (name, description) = if sink == "skill_name" { (text, "d") } else { ("review", text) };
            stage.send(Msg::Writing(WritingMsg::Skills(vec![SkillRow {
                name: name.into(),
                description: description.into(),
                origin: "user".into(),
            }])));
            stage.key(KeyCode::Char('/'));
            stage.key(KeyCode::Down);
        }
        "rule" => {
            stage.send(Msg::Paste("/permissions".into()));
            stage.key(KeyCode::Enter);
            stage.send(Msg::Question(QuestionMsg::Rules(vec![RuleRow {
                pattern: text.into(),
                behavior: "ask".into(),
                origin: text.into(),
            }])));
            stage.send(Msg::Model(ModelMsg::Listed(vec![ModelRow {
                name: text.into(),
                note: text.into(),
                unusable: Some(text.into()),
                login: Some(text.into()),
                ..ModelRow::default()
            }])));
            stage.send(Msg::Failed(text.into()));
            stage.send(Msg::Back(Box::new(RewindMsg::Exported(Err(text.into())))));
        }
        "history" => {
            stage.send(Msg::Writing(WritingMsg::History(Ok(vec![text.into()]))));
            stage.key(KeyCode::Up);
        }
        "paste" => stage.send(Msg::Paste(text.into())),
        other => return Err(format!("unknown place {other}")),
    }
    Ok(stage)
}

/// The text of a row: verbatim, from bytes, or repeated.
pub fn text_of(row: &Row) -> String {
    let text = &row.input["text"];
    if let Some(hex) = text["bytes_hex"].as_str() {
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal"))
            .collect();
        return String::from_utf8_lossy(&bytes).into_owned();
    }
    if let Some(piece) = text["repeat"].as_str() {
        let count = usize::try_from(text["times"].as_u64().expect("a number")).expect("fits");
        let tail = text["tail"].as_str().unwrap_or_default();
        return piece.repeat(count) + tail;
    }
    text.as_str().unwrap_or_else(|| panic!("a text: {}", row.input)).to_owned()
}

#[test]
fn every_text_in_its_place_is_harmless() {
    each(of_area("terminal").into_iter().filter(is_data).collect(), |row| {
        let (sink, text) = (row.input["sink"].as_str().expect("a place"), text_of(row));
        for (width, height) in [(80, 24), (20, 5)] {
            let mut stage = play(sink, &text, width, height)?;
            stage.is_clean().map_err(|what| format!("{sink} {width}x{height}: {what}"))?;
            let bound = usize::from(height);
            ensure(stage.lines <= bound, || format!("{} live rows of {bound}", stage.lines))?;
            if matches!(sink, "tool_output" | "live_output") {
                ensure(stage.printed < 400, || format!("{} rows", stage.printed))?;
            }
            if sink == "approval_prompt" {
                whole_or_no_key(&mut stage, &text)?;
            }
        }
        Ok(())
    });
}

/// A `y` counts only if the whole command was visible.
fn whole_or_no_key(stage: &mut Stage, text: &str) -> Found {
    let squeezed = |text: &str| {
        text.chars().filter(|c| !c.is_whitespace() && !"▌│╎⏎↵·…".contains(*c)).collect::<String>()
    };
    let tail: String =
        squeezed(&visible_line(text)).chars().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect();
    let seen = squeezed(&stage.drawn).contains(&tail);
    let says_hidden = stage.drawn.contains("hidden")
        || stage.drawn.contains("more")
        || stage.drawn.contains("not shown")
        || stage.drawn.contains("…+");
    stage.key(KeyCode::Char('y'));
    let decided = stage.decided();
    ensure(!decided || seen, || format!("y decided although {tail:?} was never shown:\n{}", stage.drawn))?;
    ensure(seen || says_hidden, || format!("{tail:?} is not shown and nothing says so:\n{}", stage.drawn))
}

/// Each text of the samples in every place, not only in its own.
#[test]
fn every_text_in_every_place_is_harmless() {
    let texts: Vec<String> = of_area("terminal")
        .iter()
        .filter(|row| is_data(row))
        .map(text_of)
        .filter(|t| t.len() < 3000)
        .collect();
    let rows = SINKS
        .iter()
        .map(|sink| Row {
            id: (*sink).into(),
            area: "terminal".into(),
            input: json!({"sink": sink}),
            expect: Value::Null,
        })
        .collect();
    each(rows, |row| {
        for text in &texts {
            let mut stage = play(&row.id, text, 60, 16)?;
            stage.is_clean().map_err(|what| format!("{text:?}: {what}"))?;
        }
        Ok(())
    });
}
