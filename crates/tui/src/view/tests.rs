use proptest::prelude::*;
use serde_json::{Value, json};

use crate::app::tests::{TestApp, opened, suspended, ticket};
use crate::host::ThreadMsg;
use crate::msg::Msg;
use crate::theme::{Role, Theme};
use crate::transcript::Level;
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::message::Message;
use aye_core::contract::record::StoredMessage;
use aye_core::contract::suspension::{ACTION_ASK_USER, ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME};
use aye_core::contract::tool::ToolResult;

mod render;

fn text(delta: &str) -> E {
    E::TextDelta { delta: delta.into() }
}

fn done(id: &str, result: ToolResult, outcome: ToolCallOutcome) -> E {
    E::ToolCallDone { id: id.into(), message_id: "m".into(), result, outcome }
}

/// A conversation with some of everything and a pending question at its end.
fn busy(width: u16, height: u16) -> TestApp {
    let mut test = TestApp::new(width, height);
    test.start("fix the bug");
    test.event(text("I will **look** first.\n\n"));
    test.call("a", "Read", json!({"file_path": "/home/me/proj/src/main.rs"}));
    test.event(done("a", ToolResult::text("Read", "x\n".repeat(12)), ToolCallOutcome::Succeeded));
    test.call(
        "b",
        "Edit",
        json!({"file_path": "/home/me/proj/src/main.rs", "old_string": "a\nb", "new_string": "a\nc"}),
    );
    test.event(done("b", ToolResult::text("Edit", "ok"), ToolCallOutcome::Succeeded));
    let usage = TokenUsage { total_tokens: Some(310), ..TokenUsage::default() };
    test.event(E::InferenceComplete {
        model: "m1".into(),
        usage: Some(usage),
        duration_ms: 4,
        stop_reason: None,
    });
    test.ask_bash("c", "git push origin main");
    test
}

#[test]
fn backticks_are_a_colour_where_there_are_colours() {
    let theme = Theme::builtin("dark").expect("exists");
    let parts = |text: &str, theme: &Theme| {
        let spans = super::text::marked(text, Role::Dim, theme);
        let code = theme.style(Role::Dim).patch(theme.style(Role::Code));
        spans.iter().map(|span| (span.content.to_string(), span.style == code)).collect::<Vec<_>>()
    };
    let part = |text: &str, is_code| (text.to_owned(), is_code);
    assert_eq!(
        parts("any `a …`, or `b`", &theme),
        [part("any ", false), part("a …", true), part(", or ", false), part("b", true)]
    );
    for plain in ["a ` alone", "``", "`two\nlines`", "none"] {
        assert_eq!(parts(plain, &theme), [part(plain, false)]);
    }
    assert_eq!(super::text::marked("any `a`", Role::Dim, &Theme::plain()).len(), 1, "the marks stay");
}

#[test]
fn a_question_at_120_columns() {
    insta::assert_snapshot!(busy(120, 40).screen(), @r"
    ❯ fix the bug

      I will look first.

    ✓ Read src/main.rs · 12 lines

    ✓ Edited src/main.rs
            a
          - b
          + c

    ▌ Run this command?
    ▌
    ▌   $ git push origin main
    ▌
    ▌ ▸ 1  Allow once                                                         y
    ▌   2  Always allow  git push with any arguments, or exactly this command a
    ▌   3  Deny, and say why                                                  n
    ▌
    ▌ e edit   m request changes   c comment   Esc stop   ? why

    ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
    ❯
    ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      1 waiting · demo · ask · 31% context · ~/proj
    ");
}

#[test]
fn a_question_at_60_columns() {
    insta::assert_snapshot!(busy(60, 15).screen(), @r"
          - b
          + c

    ▌ Run this command?
    ▌
    ▌   $ git push origin main
    ▌
    ▌ ▸ 1  Allow once                                          y
    ▌   2  Always allow  git push with any arguments, or exac… a
    ▌   3  Deny, and say why                                   n
    ▌
    ▌ e edit   m request changes   c comment   Esc stop   ? why

    ❯
      1 waiting · demo · ask · 31% context · ~/proj
    ");
}

#[test]
fn a_question_at_20_columns_and_5_rows() {
    insta::assert_snapshot!(busy(20, 5).screen(), @r"
    ▌ Run this command?
    ▌   $ git pus… …+1
    ▌ [y] [a] [n] [e] […
    ❯
    1 waiting · demo
    ");
}

#[test]
fn an_empty_terminal_at_20_columns_and_5_rows() {
    let mut test = TestApp::new(20, 5);
    test.keys("hello 漢字 wide and long");
    insta::assert_snapshot!(test.screen(), @r"
    ❯ hello 漢字 wide
      and long
    demo · ask · ~/proj
    ");
    assert_eq!(test.caret, Some((10, 1)));
}

#[test]
fn a_streaming_answer() {
    let mut test = TestApp::new(60, 15);
    test.start("say");
    test.event(E::ReasoningDelta { delta: "hm".into() });
    test.event(text("# Plan\n\n- one\n- two\n\nAnd"));
    test.wait(1250);
    insta::assert_snapshot!(test.screen(), @r"
    ❯ say

    ∴ thought (Ctrl-O)

      Plan

      • one
      • two

      And

    ────────────────────────────────────────────────────────────
    ❯ Enter: send now · Tab: queue
      ⠸ answering 1.2 s · Esc interrupts · demo · ask · ~/proj
    ");
}

#[test]
fn all_states_of_a_call() {
    let mut test = TestApp::new(72, 40);
    test.start("go");
    let error = |code: &str| ToolResult::error("Bash", code).with_details(json!({ "code": code }));
    for (id, result, outcome) in [
        (
            "a",
            ToolResult::text("Bash", "fine").with_details(json!({"duration_ms": 1200})),
            ToolCallOutcome::Succeeded,
        ),
        ("b", ToolResult::error("Bash", "no").with_details(json!({"exit_code": 2})), ToolCallOutcome::Failed),
        ("c", error("denied"), ToolCallOutcome::Failed),
        ("d", error("declined"), ToolCallOutcome::Cancelled),
        ("e", error("superseded"), ToolCallOutcome::Cancelled),
        ("f", error("expired"), ToolCallOutcome::Failed),
        ("g", error("unknown"), ToolCallOutcome::Failed),
    ] {
        test.call(id, "Bash", json!({"command": format!("do {id}")}));
        test.event(done(id, result, outcome));
    }
    test.call("h", "Bash", json!({"command": "do h"}));
    test.event(E::ToolCallStreamDelta { id: "h".into(), name: "Bash".into(), delta: "10%\r20%\r30%".into() });
    test.call("i", "Bash", json!({"command": "do i"}));
    test.event(E::ToolCallStart { id: "j".into(), name: "Write".into() });
    test.event(E::ToolCallDelta { id: "j".into(), args_delta: "{\"file_".into() });
    test.wait(3000);
    insta::assert_snapshot!(test.screen(), @r"
    ❯ go

    ✓ Ran do a · 1.2 s
        fine

    ✗ Ran do b · exit 2
        no

    ⊘ Did not run do c · blocked
        denied

    − Did not run do d · denied by you
        declined

    ∅ Run do e · cancelled
        superseded

    ◌ Did not run do f · expired
        expired

    ‽ Started to run do g · outcome unknown
        unknown

    ● Running do h
        30%

    ○ Wants to run do i
    · Preparing to write 7 bytes …

    ────────────────────────────────────────────────────────────────────────
    ❯ Enter: send now · Tab: queue
    ────────────────────────────────────────────────────────────────────────
      ⠋ running Bash 3.0 s · Esc interrupts · demo · ask · ~/proj
    ");
}

#[test]
fn a_long_conversation_shows_its_end_and_counts_the_rest() {
    let messages = (0..10_000u64).map(|i| StoredMessage {
        seq: i + 1,
        run_id: RunId::from("r"),
        created_at: 0,
        message: if i % 2 == 0 {
            Message::user(format!("q{i}"))
        } else {
            Message::assistant(format!("a{i}"))
        },
    });
    let mut test = TestApp::new(100, 30);
    test.scrollback.clear();
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(messages.collect()))))));
    assert!(test.scrollback.iter().any(|line| line.contains("… 9800 earlier entries (Ctrl-O)")));
    assert!(test.screen().contains("a9999"));
    assert!(test.scrollback.len() < 1000);
}

#[test]
fn hostile_text_is_only_text() {
    let evil = "\u{1b}[2J\u{1b}]52;c;AA==\u{7}\u{9b}2J\u{202e}x\u{200b}";
    let mut test = TestApp::new(90, 60);
    test.start("go");
    test.event(text(&format!("{evil}\n\n")));
    test.event(E::ReasoningDelta { delta: evil.into() });
    test.call("a", evil, json!({"command": evil}));
    test.event(E::ToolCallStreamDelta { id: "a".into(), name: evil.into(), delta: evil.into() });
    test.event(done("a", ToolResult::error(evil, evil), ToolCallOutcome::Failed));
    test.event(E::Error { message: evil.into(), code: None });
    let parameters = json!({
        "rule": evil, "why": evil, "cwd": evil, "proposals": [{"pattern": evil, "text": evil}],
        "question": evil, "header": evil, "choices": [{"label": evil, "description": evil}],
    });
    test.ask("b", evil, json!({"command": evil, evil: evil}), ACTION_PERMISSION, parameters.clone());
    test.keys("a");
    test.ask("c", evil, json!({}), ACTION_ASK_USER, parameters);
    let all = format!("{}{}", test.scrollback.join(""), test.live());
    let bad: Vec<char> =
        all.chars().filter(|c| *c != '\n' && aye_core::contract::display::is_unsafe(*c)).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert!(all.contains("<U+202E>"));
}

fn any_event() -> impl Strategy<Value = E> {
    let id = prop_oneof![Just("a"), Just("b"), Just("c")];
    let words = "([a-z*`#\\-| \n]|漢|\u{1b}|\u{202e}|👨\u{200d}👩){0,24}";
    let outcome = prop_oneof![
        Just(ToolCallOutcome::Succeeded),
        Just(ToolCallOutcome::Failed),
        Just(ToolCallOutcome::Cancelled),
        Just(ToolCallOutcome::Suspended),
    ];
    let end = prop_oneof![
        Just(TerminationReason::NaturalEnd),
        Just(TerminationReason::Suspended),
        Just(TerminationReason::Cancelled),
        Just(TerminationReason::Error("broken".into())),
        Just(TerminationReason::stopped("max_rounds", "enough")),
    ];
    let action = prop_oneof![
        Just(ACTION_PERMISSION),
        Just(ACTION_ASK_USER),
        Just(ACTION_UNKNOWN_OUTCOME),
        Just("other")
    ];
    prop_oneof![
        Just(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None }),
        Just(E::StepStart { message_id: "m".into() }),
        Just(E::StepEnd),
        words.prop_map(|delta| E::TextDelta { delta }),
        words.prop_map(|delta| E::ReasoningDelta { delta }),
        words.prop_map(|message| E::Error { message, code: None }),
        id.clone().prop_map(|id| E::ToolCallStart { id: id.into(), name: "Bash".into() }),
        (id.clone(), words).prop_map(|(id, command)| E::ToolCallReady {
            id: id.into(),
            name: "Edit".into(),
            arguments: json!({"command": command, "old_string": command, "new_string": "x"}),
        }),
        (id.clone(), words).prop_map(|(id, delta)| E::ToolCallStreamDelta {
            id: id.into(),
            name: "Bash".into(),
            delta,
        }),
        (id.clone(), words, outcome).prop_map(|(id, words, outcome)| done(id, ToolResult::text("Bash", words), outcome)),
        (id.clone(), words, action).prop_map(|(id, command, action)| suspended(ticket(
            id,
            "Bash",
            json!({ "command": command }),
            action,
            json!({"choices": [{"label": command}, "two"], "multi": command.len() % 2 == 0, "question": command}),
        ))),
        id.prop_map(|id| E::ToolCallResumed { target_id: id.into(), result: Value::Null }),
        Just(E::InferenceComplete { model: "m".into(), usage: None, duration_ms: 1, stop_reason: None }),
        Just(E::ActivitySnapshot {
            message_id: "a".into(),
            activity_type: "inference-retry".into(),
            content: json!({"attempt": 1, "max": 2, "delay_ms": 10, "reason": "x", "reset": true}),
            replace: None,
        }),
        end.prop_map(|termination| E::RunFinish {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: None,
            termination,
        }),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Keys(String),
    Event(Box<E>),
    Wait(u64),
    Size(u16, u16),
    Paste(String),
}

fn any_step() -> impl Strategy<Value = Step> {
    let keys = "([yna/@rds13 \\\\]|漢|<enter>|<esc>|<tab>|<up>|<down>|<left>|<backspace>|<ctrl-c>|<ctrl-o>|<shift-tab>|<ctrl-w>|/help<enter>|/mode<enter>|<ctrl-u>){1,5}";
    prop_oneof![
        4 => keys.prop_map(Step::Keys),
        6 => any_event().prop_map(|event| Step::Event(Box::new(event))),
        1 => (0u64..900).prop_map(Step::Wait),
        1 => (1u16..60, 1u16..20).prop_map(|(width, height)| Step::Size(width, height)),
        1 => "(y\n|[a-z]{1,9}|\u{1b}){1,30}".prop_map(Step::Paste),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Any keys and events in any order: no panic, nothing wider or higher than the terminal (the test app
    /// checks both with each frame), and settled entries are returned once.
    #[test]
    fn no_keys_or_events_break_the_screen(steps in proptest::collection::vec(any_step(), 0..60)) {
        let mut test = TestApp::new(30, 10);
        for step in steps {
            match step {
                Step::Keys(keys) => test.keys(&keys),
                Step::Event(event) => test.event(*event),
                Step::Wait(ms) => test.wait(ms),
                Step::Size(width, height) => test.send(Msg::Resize(width, height)),
                Step::Paste(text) => test.send(Msg::Paste(text)),
            }
        }
        let _ = ThreadId::from("t");
    }
}

#[test]
fn the_first_lines_say_what_answers_and_where() {
    let info = crate::host::HostInfo {
        model: "m1".into(),
        context_window: Some(200_000),
        cwd: "/home/me/proj".into(),
        home: Some("/home/me".into()),
        branch: Some("main".into()),
        instructions: Some("AGENTS.md".into()),
        version: "1.2.3".into(),
        ..crate::host::HostInfo::default()
    };
    let shown = |info: &crate::host::HostInfo, width| {
        let lines = super::banner(info, width, &Theme::plain());
        lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let wanted = [
        "  ▗▛▜▖  aye 1.2.3  m1 · 200k window · mode ask",
        "  ▝▙▟▘  ~/proj · main · AGENTS.md",
        "        ? keys · / commands · @ files",
    ];
    assert_eq!(shown(&info, 80), wanted.join("\n"));
    let demo = crate::host::HostInfo { is_demo: true, ..info.clone() };
    assert!(shown(&demo, 80).contains("/login connects a model"), "{}", shown(&demo, 80));
    assert!(shown(&demo, 60).ends_with("/login connects a model · ? keys"), "{}", shown(&demo, 60));
    let found = crate::host::StartChoice::Use {
        provider: "ollama".into(),
        model: "qwen3".into(),
        name: "ollama/qwen3".into(),
    };
    let start = vec![crate::host::StartChoice::LogIn, found, crate::host::StartChoice::Demo];
    let unkeyed = crate::host::HostInfo { start, ..info.clone() };
    assert!(shown(&unkeyed, 80).contains("1 log in   2 use Ollama (found: qwen3)   3 try the demo"));
    assert!(shown(&unkeyed, 60).ends_with("1 log in   2 use qwen3   3 demo"), "{}", shown(&unkeyed, 60));
    assert!(shown(&info, 24).lines().all(|line| line.chars().count() <= 24), "{}", shown(&info, 24));
    let spoken: Vec<String> =
        super::banner(&info, 80, &Theme::plain()).iter().map(super::linear::words).collect();
    assert_eq!(spoken[1].trim(), "~/proj · main · AGENTS.md", "a screen reader reads no mark");
}

#[test]
fn a_notice_is_no_wider_than_an_answer() {
    let notice = |width| {
        let lines = super::entry::notice(Level::Info, &"words ".repeat(60), width, &Theme::plain());
        lines.iter().map(ratatui::text::Line::width).max()
    };
    assert_eq!((notice(200), notice(40)), (Some(109), Some(37)));
}
