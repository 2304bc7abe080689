//! The screen as shown by a terminal, and requests as received by a host.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::host::HostFuture;
use futures::future::BoxFuture;

use super::perform::Performer;
use super::*;
use crate::app::tests::{TestApp, opened};
use crate::host::{
    Attach, Attached, Choice, GrantRow, HostInfo, ImageHost, Mode, ModelHost, ModelRow, OpenedQuestion,
    OpenedThread, ProgramCmd, ProgramHost, ProgramMsg, QuestionCmd, QuestionHost, QueuedRow, Review, RuleRow,
    SkillRow, TextPage, ThreadCmd, ThreadHost, ThreadMsg, UntrustedRow, UserInput, WritingCmd, WritingHost,
    WritingMsg,
};
use crate::keymap::Keymap;
use crate::msg::Cmd;
use crate::palette::HostPage;
use crate::theme::{Depth, Theme, ThemeChoice, ThemeRow};
use crate::thread_actions::{RewindCmd, RewindHost, RewindMsg};
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::grant::GrantPreview;
use aye_core::contract::ids::SuspensionId;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::image::{ImageRef, Pixels};
use aye_core::contract::record::{
    DecideOutcome, InboxRow, QueueId, StoredMessage, SuspensionRecord, ThreadSummary,
};
use aye_core::contract::suspension::Answer;

#[derive(Default)]
struct FakeHost {
    asked: Mutex<Vec<String>>,
    asks_for_trust: bool,
    /// The host that replaces it.
    next: Option<Arc<FakeHost>>,
}

impl FakeHost {
    fn note(&self, what: impl Into<String>) {
        self.asked.lock().expect("not poisoned").push(what.into());
    }
}

impl ThreadHost for FakeHost {
    fn open_thread(&self, _: Option<ThreadId>) -> HostFuture<'_, OpenedThread> {
        Box::pin(async move { Ok(opened(Vec::new())) })
    }
    fn earlier<'a>(&'a self, _: &'a ThreadId, _: u64) -> HostFuture<'a, Vec<StoredMessage>> {
        Box::pin(async move { Ok(Vec::new()) })
    }
    fn place<'a>(&'a self, _: &'a ThreadId, _: &'a str) -> HostFuture<'a, Option<u64>> {
        Box::pin(async move { Ok(None) })
    }
    fn start<'a>(&'a self, _: &'a ThreadId, input: UserInput) -> HostFuture<'a, ()> {
        Box::pin(async move {
            self.note(format!("start {}", input.text));
            Err("the store is locked".into())
        })
    }
    fn enqueue<'a>(&'a self, _: &'a ThreadId, input: UserInput) -> HostFuture<'a, QueuedRow> {
        Box::pin(async move {
            self.note(format!("enqueue {}", input.text));
            Ok(QueuedRow {
                id: 1,
                text: input.text,
                shown: None,
                images: Vec::new(),
                note: String::new(),
                steers: false,
                is_report: false,
            })
        })
    }
    fn unqueue(&self, id: QueueId) -> HostFuture<'_, bool> {
        Box::pin(async move {
            self.note(format!("unqueue {id}"));
            Ok(id == 1)
        })
    }
    fn cancel(&self, _: &ThreadId) {
        self.note("cancel");
    }
    fn to_background(&self, thread: &ThreadId) -> bool {
        self.note(format!("background {thread}"));
        true
    }
    fn take_over<'a>(&'a self, _: &'a ThreadId, id: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { Err(format!("{id} has no terminal").into()) })
    }
    fn threads(&self) -> HostFuture<'_, Vec<ThreadSummary>> {
        Box::pin(async move { Ok(Vec::new()) })
    }
}

impl QuestionHost for FakeHost {
    fn question<'a>(&'a self, _: &'a SuspensionId) -> HostFuture<'a, Option<SuspensionRecord>> {
        Box::pin(async move { Ok(None) })
    }
    fn opened_question<'a>(&'a self, id: &'a SuspensionId) -> HostFuture<'a, Option<OpenedQuestion>> {
        Box::pin(async move {
            self.note(format!("question {id}"));
            Ok(None)
        })
    }
    fn decide<'a>(&'a self, id: &'a SuspensionId, answer: Answer) -> HostFuture<'a, DecideOutcome> {
        Box::pin(async move {
            self.note(format!("decide {id} {:?}", answer.action));
            Ok(DecideOutcome::NotFound)
        })
    }
    fn review<'a>(
        &'a self,
        id: &'a SuspensionId,
        arguments: &'a serde_json::Value,
    ) -> HostFuture<'a, Review> {
        Box::pin(async move {
            self.note(format!("review {id} {arguments}"));
            Err("no such thing".into())
        })
    }
    fn expired(&self, thread: &ThreadId) {
        self.note(format!("expired {thread}"));
    }
    fn inbox(&self) -> HostFuture<'_, Vec<InboxRow>> {
        Box::pin(async move { Ok(Vec::new()) })
    }
    fn waiting_elsewhere<'a>(&'a self, here: Option<&'a ThreadId>) -> HostFuture<'a, u64> {
        Box::pin(async move {
            self.note(format!("count all but {here:?}"));
            Ok(2)
        })
    }
    fn preview_grant<'a>(&'a self, _: &'a SuspensionId, _: &'a str) -> HostFuture<'a, GrantPreview> {
        Box::pin(async move { Ok(GrantPreview::default()) })
    }
    fn grants(&self) -> HostFuture<'_, Vec<GrantRow>> {
        Box::pin(async move { Ok(Vec::new()) })
    }
    fn revoke_grant<'a>(&'a self, id: &'a str) -> HostFuture<'a, bool> {
        Box::pin(async move {
            self.note(format!("revoke {id}"));
            Ok(true)
        })
    }
    fn permissions(&self) -> Vec<RuleRow> {
        Vec::new()
    }
}

impl ModelHost for FakeHost {
    fn models(&self) -> Vec<ModelRow> {
        Vec::new()
    }
    fn set_model<'a>(&'a self, name: &'a str) -> HostFuture<'a, String> {
        Box::pin(async move { Ok(format!("{name} answers")) })
    }
    fn try_model<'a>(&'a self, name: &'a str) -> HostFuture<'a, String> {
        self.set_model(name)
    }
    fn set_effort(
        &self,
        effort: Option<aye_core::contract::inference::ReasoningEffort>,
    ) -> HostFuture<'_, String> {
        Box::pin(async move { Err(format!("effort {effort:?}").into()) })
    }
    fn logins(&self) -> Vec<ModelRow> {
        Vec::new()
    }
    fn log_in<'a>(&'a self, provider: &'a str, key: crate::host::Secret) -> HostFuture<'a, String> {
        Box::pin(async move {
            self.note(format!("login {provider} {key:?}"));
            Ok(format!("logged in to {provider}"))
        })
    }
    fn log_out<'a>(&'a self, provider: Option<&'a str>) -> HostFuture<'a, String> {
        Box::pin(async move {
            self.note(format!("logout {provider:?}"));
            Err("no key is stored".into())
        })
    }
}

impl ImageHost for FakeHost {
    fn attach(&self, _: Attach) -> HostFuture<'_, Attached> {
        Box::pin(async move { Ok(Attached::Nothing) })
    }
    fn picture<'a>(&'a self, _: &'a ImageRef) -> HostFuture<'a, Pixels> {
        Box::pin(async move { Err("there is none".into()) })
    }
    fn open<'a>(&'a self, _: &'a [ImageRef]) -> HostFuture<'a, ()> {
        Box::pin(async move { Err("there is none".into()) })
    }
}

impl WritingHost for FakeHost {
    fn keep_draft(&self, _: crate::host::KeepDraft) -> BoxFuture<'_, ()> {
        Box::pin(async move {})
    }
    fn draft<'a>(&'a self, _: &'a ThreadId, _: bool) -> BoxFuture<'a, Option<crate::composer::paste::Draft>> {
        Box::pin(async move { None })
    }
    fn history(&self) -> HostFuture<'_, Vec<String>> {
        Box::pin(async move { Ok(Vec::new()) })
    }
    fn remember<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.note(format!("remember {prompt}"));
        })
    }
    fn complete_files<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<crate::host::MentionRow>> {
        Box::pin(async move {
            vec![crate::host::MentionRow { label: format!("{query}.rs"), detail: String::new() }]
        })
    }
    fn skills(&self) -> Vec<SkillRow> {
        Vec::new()
    }
    fn edit<'a>(&'a self, text: &'a str, _: &'a str) -> HostFuture<'a, String> {
        Box::pin(async move { Ok(text.to_owned()) })
    }
}

impl ProgramHost for FakeHost {
    fn info(&self) -> HostInfo {
        HostInfo::default()
    }
    fn shown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {})
    }
    fn untrusted(&self) -> Vec<UntrustedRow> {
        let row =
            UntrustedRow { path: "/p/.aye/hooks.toml".into(), does: "runs make".into(), servers: Vec::new() };
        if self.asks_for_trust { vec![row] } else { Vec::new() }
    }
    fn trust(&self) -> HostFuture<'_, ()> {
        Box::pin(async move {
            self.note("trust");
            Ok(())
        })
    }
    fn renew(&self) -> HostFuture<'_, Option<Arc<dyn Host>>> {
        Box::pin(async move {
            self.note("renew");
            Ok(self.next.as_ref().map(|next| Arc::clone(next) as Arc<dyn Host>))
        })
    }
    fn set_mode(&self, mode: Mode) -> Result<(), ForeignError> {
        self.note(mode.as_str());
        Ok(())
    }
    fn themes(&self) -> Vec<ThemeRow> {
        Vec::new()
    }
    fn keep<'a>(&'a self, _: Choice, name: &'a str) -> HostFuture<'a, PathBuf> {
        Box::pin(async move {
            self.note(format!("theme {name}"));
            Ok(PathBuf::from("config.toml"))
        })
    }
    fn status_line(&self, json: String) -> HostFuture<'_, String> {
        Box::pin(async move {
            self.note("status line");
            Ok(json)
        })
    }
    fn page<'a>(
        &'a self,
        _: Option<&'a ThreadId>,
        page: HostPage,
        words: &'a str,
    ) -> HostFuture<'a, TextPage> {
        Box::pin(async move {
            self.note(format!("page {page:?} {words}"));
            Ok(TextPage { title: format!("{page:?}"), text: words.to_owned(), ..TextPage::default() })
        })
    }
}

impl RewindHost for FakeHost {
    fn back(&self, cmd: RewindCmd) -> BoxFuture<'_, RewindMsg> {
        Box::pin(async move {
            self.note(format!("back {cmd:?}"));
            RewindMsg::Marked(Ok("done".to_owned()))
        })
    }
}

/// Performs the commands and returns the requests and replies.
async fn perform(host: FakeHost, cmds: Vec<Cmd>) -> (Vec<String>, Vec<Msg>) {
    let host = Arc::new(host);
    let (sender, mut answers) = unbounded_channel();
    let mut performer = Performer::new(Arc::clone(&host) as Arc<dyn Host>, sender);
    for cmd in cmds {
        performer.perform(cmd);
    }
    performer.settle().await;
    let mut msgs = Vec::new();
    while let Ok(msg) = answers.try_recv() {
        msgs.push(msg);
    }
    let asked = host.asked.lock().expect("not poisoned").clone();
    (asked, msgs)
}

#[tokio::test]
async fn requests_are_answered_and_a_refused_message_is_returned() {
    let no = Answer::no(None);
    let (asked, msgs) =
        perform(FakeHost::default(), vec![Cmd::Question(QuestionCmd::Decide("q".into(), Box::new(no)))])
            .await;
    assert_eq!((asked, msgs.len()), (vec!["decide q Cancel".to_owned()], 1));
    let (_, msgs) =
        perform(FakeHost::default(), vec![Cmd::Thread(ThreadCmd::Start("t".into(), UserInput::text("hi")))])
            .await;
    let [Msg::Thread(ThreadMsg::Started(Err((error, input))))] = &msgs[..] else { panic!("{msgs:?}") };
    assert_eq!((error.as_str(), input.text.as_str()), ("the store is locked", "hi"));
    let (asked, msgs) = perform(FakeHost::default(), vec![Cmd::Thread(ThreadCmd::Unqueue(vec![1, 2]))]).await;
    assert_eq!(asked, ["unqueue 1", "unqueue 2"]);
    assert!(
        matches!(&msgs[..], [Msg::Thread(ThreadMsg::Unqueued { back, gone })] if back == &[1] && gone == &[2]),
        "{msgs:?}"
    );
    let (_, msgs) = perform(FakeHost::default(), vec![Cmd::Writing(WritingCmd::Files(3, "ma".into()))]).await;
    assert!(matches!(&msgs[..], [Msg::Writing(WritingMsg::Files(3, paths))] if paths[0].label == "ma.rs"));
}

#[test]
fn a_long_answer_is_in_the_scrollback_once_and_complete() {
    let (width, height) = (50, 12);
    let render_style = RenderStyle { theme: Theme::plain(), highlighter: Highlighter::waiting() };
    let terminal = LiveTerminal::new(Vec::new(), width, height, true);
    let mut screen = Screen::new(terminal, render_style, &TuiOptions::default(), Arc::default());
    let mut app = App::new(HostInfo::default(), Keymap::embedded(), WallClock::default(), (width, height));
    let mut at = 0;
    let mut step = |app: &mut App, screen: &mut Screen<Vec<u8>>, msg: Msg| {
        at += 5;
        app.update(Moment(at), msg);
        screen.draw(app).expect("in-memory writes succeed");
    };
    step(&mut app, &mut screen, Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
    let agent = |event: AgentEvent| Msg::Agent(ThreadId::from("t"), Box::new(event));
    step(&mut app, &mut screen, agent(AgentEvent::StepStart { message_id: "m".into() }));
    for n in 0..60 {
        for word in ["paragraph ", "number "] {
            step(&mut app, &mut screen, agent(AgentEvent::TextDelta { delta: word.into() }));
        }
        step(
            &mut app,
            &mut screen,
            agent(AgentEvent::TextDelta { delta: format!("n{n}.\n\n```\ncode c{n}\n```\n\n") }),
        );
        if n == 30 {
            step(&mut app, &mut screen, Msg::Paste("half written".into()));
        }
    }
    step(&mut app, &mut screen, agent(AgentEvent::StepEnd));

    let size = |n: u16| std::num::NonZeroU16::new(n).expect("not zero");
    let mut parser = vt100::Parser::new(size(height), size(width), 2000);
    parser.process(screen.terminal.out_mut());
    assert!(parser.screen().contents().contains("❯ half written"), "{}", parser.screen().contents());
    parser.screen_mut().set_scrollback(usize::MAX);
    let above = parser.screen().scrollback();
    let mut all = String::new();
    let mut from = above;
    loop {
        parser.screen_mut().set_scrollback(from);
        let rows: Vec<String> = parser.screen().rows(0, width).collect();
        let take = if from == 0 { rows.len() } else { from.min(rows.len()) };
        for row in &rows[..take] {
            all.push_str(row.trim_end());
            all.push('\n');
        }
        if from == 0 {
            break;
        }
        from -= take;
    }
    for n in 0..60 {
        let count = all.lines().filter(|line| line.trim() == format!("paragraph number n{n}.")).count();
        assert_eq!(count, 1, "paragraph {n} in\n{all}");
        assert_eq!(all.lines().filter(|line| line.trim() == format!("code c{n}")).count(), 1, "code {n}");
    }
}

/// The composer goes to the end of the screen with the first message, and stays there: whatever grows, asks, is answered
/// or ends. What the shell showed before is in the scrollback.
#[test]
fn the_composer_does_not_move_during_a_run() {
    for (width, height) in [(120, 40), (80, 24), (60, 15)] {
        let render_style = RenderStyle { theme: Theme::plain(), highlighter: Highlighter::waiting() };
        let terminal = LiveTerminal::new(Vec::new(), width, height, true);
        let mut screen = Screen::new(terminal, render_style, &TuiOptions::default(), Arc::default());
        let size = |n: u16| std::num::NonZeroU16::new(n).expect("not zero");
        let mut parser = vt100::Parser::new(size(height), size(width), 2000);
        parser.process(b"$ ls\r\nREADME.md\r\n$ aye\r\n");
        let mut test = TestApp::new(width, height);
        screen.append(view::banner(&test.app.info, width, &Theme::plain()));
        let end_call = |test: &mut TestApp, id: &str| {
            let result = aye_core::contract::tool::ToolResult::text("Bash", "one\ntwo");
            let outcome = ToolCallOutcome::Succeeded;
            test.event(AgentEvent::ToolCallDone { id: id.into(), message_id: "m".into(), result, outcome });
        };
        let mut places = Vec::new();
        let mut draw = |test: &TestApp, step: &'static str| {
            screen.draw(&test.app).expect("in-memory writes succeed");
            parser.process(&std::mem::take(screen.terminal.out_mut()));
            let rows: Vec<String> = parser.screen().rows(0, width).collect();
            let at = rows.iter().rposition(|row| row.starts_with('❯'));
            places.push((step, at.unwrap_or_else(|| panic!("no composer: {}", rows.join("\n")))));
        };
        draw(&test, "start");
        test.start("fix it");
        draw(&test, "message");
        test.event(AgentEvent::ReasoningDelta { delta: "one\ntwo\nthree\nfour\nfive\nsix\nseven".into() });
        draw(&test, "thoughts");
        test.event(AgentEvent::TextDelta { delta: "I look.\n\n- one\n- two\n".into() });
        draw(&test, "text");
        test.call("a", "Bash", serde_json::json!({"command": "make"}));
        draw(&test, "a call");
        let delta = "a line\n".repeat(9);
        test.event(AgentEvent::ToolCallStreamDelta { id: "a".into(), name: "Bash".into(), delta });
        draw(&test, "its output");
        end_call(&mut test, "a");
        draw(&test, "its end");
        for id in ["b", "c"] {
            test.ask_bash(id, &"git push origin main\n".repeat(if id == "b" { 1 } else { 12 }));
            draw(&test, "a card");
            test.keys("a");
            draw(&test, "always allow");
            test.keys("<esc>");
            draw(&test, "back");
            test.keys("n<enter>");
            draw(&test, "denied");
            test.event(AgentEvent::RunStart {
                thread_id: "t".into(),
                run_id: "r".into(),
                parent_run_id: None,
            });
            draw(&test, "the next run");
            let result = serde_json::Value::Null;
            test.event(AgentEvent::ToolCallResumed { target_id: id.into(), result });
            draw(&test, "answered");
            end_call(&mut test, id);
            draw(&test, "the end of the call");
        }
        test.event(AgentEvent::TextDelta { delta: "All is well.".into() });
        draw(&test, "the answer");
        test.finish(aye_core::contract::lifecycle::TerminationReason::NaturalEnd);
        draw(&test, "the end");
        let moves = places.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        assert!(
            moves <= 1 && places.last().is_some_and(|(_, at)| at + 4 > usize::from(height)),
            "{places:?}"
        );
        parser.screen_mut().set_scrollback(usize::MAX);
        assert_eq!(parser.screen().rows(0, width).next().as_deref(), Some("$ ls"));
    }
}

/// The number of bytes written for an answer with this number of deltas, with one frame per `per_frame`
/// deltas.
fn written(deltas: usize, per_frame: usize) -> usize {
    let (width, height) = (120, 40);
    let render_style =
        RenderStyle { theme: Theme::builtin("default").expect("exists"), highlighter: Highlighter::off() };
    let terminal = LiveTerminal::new(Vec::new(), width, height, true);
    let mut screen = Screen::new(terminal, render_style, &TuiOptions::default(), Arc::default());
    let mut app = App::new(HostInfo::default(), Keymap::embedded(), WallClock::default(), (width, height));
    app.update(Moment(0), Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
    let emit = |app: &mut App, at: u64, event: AgentEvent| {
        app.update(Moment(at), Msg::Agent(ThreadId::from("t"), Box::new(event)));
    };
    emit(&mut app, 0, AgentEvent::StepStart { message_id: "m".into() });
    let text = "Some words of a *paragraph* with `code` in it, and then a list:\n\n- one\n- two\n\n```rust\nlet x = 1;\n```\n\n";
    let chars: Vec<char> = text.chars().cycle().take(3 * deltas).collect();
    for (n, delta) in chars.chunks(3).enumerate() {
        emit(&mut app, n as u64, AgentEvent::TextDelta { delta: delta.iter().collect() });
        if n % per_frame == 0 {
            screen.draw(&app).expect("in-memory writes succeed");
        }
    }
    emit(&mut app, deltas as u64, AgentEvent::StepEnd);
    screen.draw(&app).expect("in-memory writes succeed");
    let before = screen.terminal.out_mut().len();
    screen.draw(&app).expect("in-memory writes succeed");
    assert_eq!(screen.terminal.out_mut().len(), before, "no frame when nothing changed");
    before
}

#[test]
fn an_answer_of_twenty_thousand_deltas_writes_little() {
    // As fast as a socket delivers them, and at 3,000 per second. The theme has no band: each frame draws two
    // rules.
    for (per_frame, limit) in [(400, 400 * 1024), (48, 480 * 1024)] {
        let written = written(20_000, per_frame);
        assert!(written <= limit, "{written} bytes with {per_frame} deltas in a frame");
    }
}

/// The first words do not wait for the frame after the one with the marks before them; later words come by frame.
#[test]
fn the_first_words_of_an_answer_are_painted_at_once() {
    let mut test = TestApp::new(80, 24);
    test.start("go");
    let delta = |delta: &str| AgentEvent::TextDelta { delta: delta.into() };
    let is_urgent = |test: &TestApp, words: &[&str]| {
        let event = |words: &&str| HostEvent::Agent(ThreadId::from("t"), delta(words));
        super::is_urgent(&test.app, &words.iter().map(event).collect::<Vec<_>>())
    };
    assert!(is_urgent(&test, &["Yes"]));
    assert!(!is_urgent(&test, &["\n", "## "]), "nothing of it is shown yet");
    test.event(delta("## "));
    assert!(is_urgent(&test, &["Sec"]));
    test.event(delta("Sec"));
    assert!(!is_urgent(&test, &["tion"]));
}

/// A terminal without a user. Notes what is done with it.
#[derive(Default)]
struct NoTty(Mutex<Vec<&'static str>>);

impl NoTty {
    fn note(&self, done: &'static str) {
        self.0.lock().expect("not poisoned").push(done);
    }
}

impl Tty for NoTty {
    fn stop_reading(&self) {
        self.note("stop reading");
    }
    fn give(&self) {
        self.note("give");
    }
    fn give_screen(&self) {
        self.note("give the screen");
    }
    fn take(&self) -> std::io::Result<()> {
        self.note("take");
        Ok(())
    }
    fn stop_process(&self) -> std::io::Result<()> {
        self.note("stop the process");
        Ok(())
    }
}

/// A loop around a new model; the senders keep it from ending.
fn stage(host: &Arc<FakeHost>, app: App) -> UiLoop<Vec<u8>, NoTty> {
    let (width, height) = app.display.size;
    let render_style = RenderStyle { theme: Theme::plain(), highlighter: Highlighter::off() };
    let terminal = LiveTerminal::new(Vec::new(), width, height, true);
    let mut options = TuiOptions::default();
    options.abilities.background = true;
    let screen = Screen::new(terminal, render_style, &options, Arc::default());
    let (answers_in, answers) = unbounded_channel();
    let (_, keys) = unbounded_channel();
    let (_, events) = unbounded_channel();
    let waits = Loop { keys, events, answers, colours: Arc::default(), started: Instant::now() };
    let performer = Performer::new(Arc::clone(host) as Arc<dyn Host>, answers_in);
    UiLoop { app, screen, waits, performer, tty: NoTty::default() }
}

/// Commands caused by a resize or a frame are performed like all others.
#[tokio::test]
async fn commands_of_any_update_are_performed() {
    for msg in [Msg::Resize(60, 20), Msg::Drawn, Msg::Tick] {
        let host = Arc::new(FakeHost::default());
        let mut app = App::new(HostInfo::default(), Keymap::embedded(), WallClock::default(), (80, 24));
        app.display.feed = StatusCommand::on();
        let mut stage = stage(&host, app);
        assert_eq!(stage.handle_msg(msg.clone()).await.expect("no write fails"), None);
        stage.performer.settle().await;
        assert_eq!(*host.asked.lock().expect("not poisoned"), ["status line"], "{msg:?}");
        let answer = stage.waits.answers.try_recv();
        assert!(matches!(answer, Ok(Msg::Program(ProgramMsg::StatusLine(Ok(_))))), "{msg:?}");
    }
}

#[tokio::test]
async fn only_the_first_frame_queries_the_background() {
    let host = Arc::new(FakeHost::default());
    let mut app = App::new(HostInfo::default(), Keymap::embedded(), WallClock::default(), (80, 24));
    app.display.colours.theme = ThemeChoice::find("auto", Depth::True, crate::theme::tests::from_folder)
        .expect("valid")
        .expect("is known");
    let mut stage = stage(&host, app);
    for _ in 0..3 {
        assert_eq!(stage.show().await.expect("in-memory writes succeed"), (true, None));
    }
    let written = String::from_utf8_lossy(stage.screen.terminal.out_mut()).into_owned();
    assert_eq!(written.matches("\u{1b}]11;?").count(), 1, "{written:?}");
}

/// The host is replaced, and the model receives its new description.
#[tokio::test]
async fn a_trusted_folder_gets_another_host_once_nothing_is_active() {
    let next = Arc::new(FakeHost { asks_for_trust: true, ..FakeHost::default() });
    let host = Arc::new(FakeHost { next: Some(Arc::clone(&next)), ..FakeHost::default() });
    let app = App::new(HostInfo::default(), Keymap::embedded(), WallClock::default(), (80, 24));
    let mut stage = stage(&host, app);
    stage
        .handle_msg(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))))
        .await
        .expect("no write fails");
    assert!(
        stage.execute(vec![Cmd::Program(ProgramCmd::Trust)]).await.expect("no write fails").is_continue()
    );
    let mut received = Vec::new();
    loop {
        let msg = stage.waits.answers.recv().await.expect("open");
        received.push(format!("{msg:?}"));
        let is_last = matches!(msg, Msg::Program(ProgramMsg::Renewed(_)));
        stage.handle_msg(msg).await.expect("no write fails");
        if is_last {
            break;
        }
    }
    assert!(received.iter().any(|msg| msg == "Program(Trusted(Ok(())))"), "{received:?}");
    let asked = |host: &FakeHost| host.asked.lock().expect("not poisoned").clone();
    assert_eq!(asked(&host).iter().filter(|asked| *asked == "trust" || *asked == "renew").count(), 2);
    assert_eq!(stage.app.cards.open.len(), 1, "changes in the meantime are asked about");
    stage.performer.perform(Cmd::Writing(WritingCmd::Remember("hi".into())));
    stage.performer.settle().await;
    assert!(asked(&next).contains(&"remember hi".to_owned()), "{:?}", asked(&next));
}

/// What is typed right after Ctrl-] arrives as it was typed: between two users that both want a raw terminal it never
/// echoes and makes no newline of Enter.
#[tokio::test]
async fn the_terminal_stays_raw_for_a_command_and_not_for_an_editor() {
    let thread = ThreadId::from("t1");
    let users =
        [(Cmd::TakeOver(thread, "b1".into()), "give the screen"), (Cmd::Compose("a draft".into()), "give")];
    for (cmd, given) in users {
        let app = App::new(HostInfo::default(), Keymap::embedded(), WallClock::default(), (80, 24));
        let mut stage = stage(&Arc::new(FakeHost::default()), app);
        assert!(stage.execute(vec![cmd]).await.expect("no write fails").is_continue());
        assert_eq!(*stage.tty.0.lock().expect("not poisoned"), ["stop reading", given, "take"]);
    }
}

/// The shell gets its terminal back before the process stops.
#[tokio::test]
async fn ctrl_z_gives_the_terminal_back_first() {
    let app = App::new(HostInfo::default(), Keymap::embedded(), WallClock::default(), (80, 24));
    let mut stage = stage(&Arc::new(FakeHost::default()), app);
    assert!(stage.execute(vec![Cmd::Suspend]).await.expect("no write fails").is_continue());
    let done = stage.tty.0.lock().expect("not poisoned").clone();
    assert_eq!(done, ["stop reading", "give", "stop the process", "take"]);
}
