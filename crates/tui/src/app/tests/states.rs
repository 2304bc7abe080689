//! Unfinished states and endings at three widths, with wide characters, combining marks, emoji and sequences
//! that must not reach a terminal.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::TestApp;
use super::widths::ODD;
use aye_core::contract::child::{CHILD_RUN_ACTIVITY_TYPE, ChildRunState, ChildStatus};
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::progress::TOOL_CALL_PROGRESS_ACTIVITY_TYPE;
use aye_core::contract::tool::ToolResult;

const HEIGHT: u16 = 40;

/// Appends the lines printed since the last call, a rule, and the live region.
fn shown(all: &mut String, name: &str, test: &mut TestApp) {
    let printed = test.scrollback.join("\n");
    test.scrollback.clear();
    let live = test.live();
    for text in [&printed, &live] {
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{name}");
    }
    all.extend(["== ", name, "\n", &printed, "\n", "-- live\n", &live, "\n"]);
}

fn stream_text(test: &mut TestApp, text: &str) {
    test.event(E::TextDelta { delta: text.into() });
}

fn done(test: &mut TestApp, id: &str, result: ToolResult, outcome: ToolCallOutcome) {
    test.event(E::ToolCallDone { id: id.into(), message_id: "m".into(), result, outcome });
}

fn activity(test: &mut TestApp, id: &str, kind: &str, content: Value) {
    test.event(E::ActivitySnapshot {
        message_id: id.into(),
        activity_type: kind.into(),
        content,
        replace: Some(true),
    });
}

fn prints(test: &mut TestApp, id: &str, text: &str) {
    test.event(E::ToolCallStreamDelta { id: id.into(), name: "Bash".into(), delta: text.into() });
}

/// An answer, stopped inside each kind of block.
fn answer(width: u16) -> String {
    let mut all = String::new();
    let mut test = TestApp::new(width, HEIGHT);
    test.start("täll me 漢字");
    stream_text(
        &mut test,
        "## Über e\u{301} 👩‍👩‍👧\n\nA *paragraph* with `code 漢字` and [a link](https://example.org/漢字) tha",
    );
    shown(&mut all, "in a paragraph", &mut test);
    stream_text(
        &mut test,
        &format!(
            "t goes on: {ODD}.\n\n- one 🍎\n  - [x] nested 漢字 that is long enough to be broken at a width of forty\n  - [ ] op"
        ),
    );
    shown(&mut all, "in a list", &mut test);
    stream_text(&mut test, "en\n1. first\n\n> a quote 引用, e\u{301}\n> **bo");
    shown(&mut all, "in a quote", &mut test);
    stream_text(
        &mut test,
        "ld** of two lines\n\n```rust\nfn größe(漢: &str) -> usize {\n    // 👍🏽 a comment that is longer than forty columns\n    let text = \"half a st",
    );
    shown(&mut all, "in a block of code", &mut test);
    stream_text(
        &mut test,
        "ring\";\n}\n```\n\n| name 名前 | what it is |\n|---|--:|\n| tea e\u{301} 🍵 | a drink of many words, which are too many for one row of a narrow window |\n| 漢字",
    );
    shown(&mut all, "in a table", &mut test);
    stream_text(&mut test, " | 2 |\n\nThe e");
    shown(&mut all, "behind it", &mut test);
    stream_text(&mut test, "nd.\u{1b}[2J");
    test.finish(TerminationReason::NaturalEnd);
    shown(&mut all, "over", &mut test);
    all
}

/// Calls while running, and their endings.
fn calls(width: u16) -> String {
    let mut all = String::new();
    let mut test = TestApp::new(width, HEIGHT);
    test.start("go");
    test.event(E::ToolCallStart { id: "a".into(), name: "Bash".into() });
    test.event(E::ToolCallDelta { id: "a".into(), args_delta: "{\"command\": \"make 漢字".into() });
    shown(&mut all, "its arguments come", &mut test);
    test.call("a", "Bash", json!({"command": format!("make 漢字 && echo '{ODD}'")}));
    prints(&mut test, "a", "erste e\u{301}\nhalf of a li");
    test.wait(1400);
    shown(&mut all, "it runs", &mut test);
    let lines: String = (1..=30).map(|n| format!("zeile {n} 漢字 👍🏽 {ODD}\n")).collect::<Vec<_>>().concat();
    prints(&mut test, "a", &format!("ne\n{lines}50%\r75% fertig\r100% 完了"));
    shown(&mut all, "it printed much", &mut test);
    let progress = json!({"status": "running", "loaded": 12, "total": 48, "message": ODD});
    activity(&mut test, "a", TOOL_CALL_PROGRESS_ACTIVITY_TYPE, progress);
    shown(&mut all, "with progress", &mut test);
    test.wait(60_000);
    let result = ToolResult::text("Bash", lines.clone()).with_details(json!({"exit_code": 0}));
    done(&mut test, "a", result, ToolCallOutcome::Succeeded);
    shown(&mut all, "done, folded", &mut test);
    test.call("b", "Bash", json!({"command": "false 漢字"}));
    test.wait(300);
    let result = ToolResult::error("Bash", format!("exit status 1\n{ODD}\n{lines}"));
    done(&mut test, "b", result, ToolCallOutcome::Failed);
    shown(&mut all, "failed", &mut test);
    test.call("c", "Write", json!({"file_path": "/home/me/proj/漢字 👩‍👩‍👧.rs", "content": "x"}));
    let result = ToolResult::error_with_code("Write", "denied", format!("deny by rule Write(**): {ODD}"));
    done(&mut test, "c", result, ToolCallOutcome::Failed);
    shown(&mut all, "denied", &mut test);
    test.call("d", "mcp__größe__漢字", json!({"query": ODD, "n": 3}));
    done(&mut test, "d", ToolResult::error("d", "declined: use 漢字"), ToolCallOutcome::Cancelled);
    shown(&mut all, "cancelled", &mut test);
    test.finish(TerminationReason::Cancelled);
    shown(&mut all, "over", &mut test);
    all
}

fn child(status: ChildStatus, steps: u32, tool: Option<&str>, line: Option<&str>) -> Value {
    let state = ChildRunState {
        agent: "prüfer-漢".into(),
        thread_id: "t2".into(),
        parent_call_id: "a".into(),
        status,
        steps,
        tokens: 12_345,
        spent: Vec::new(),
        tool: tool.map(str::to_owned),
        line: line.map(str::to_owned),
        questions: 0,
    };
    serde_json::to_value(state).expect("JSON")
}

/// Children, nested below the calls that they serve.
fn children(width: u16) -> String {
    let mut all = String::new();
    let mut test = TestApp::new(width, HEIGHT);
    test.start("go");
    let task = json!({"task": format!("look at 漢字, {ODD}")});
    test.call("a", "agent_run_prüfer-漢", task.clone());
    test.call("b", "agent_run_zwei", task);
    let kind = CHILD_RUN_ACTIVITY_TYPE;
    activity(&mut test, "a", kind, child(ChildStatus::Running, 1, Some("Read 漢字.rs"), None));
    activity(&mut test, "b", kind, child(ChildStatus::Waiting, 2, Some("Bash make"), Some(ODD)));
    test.wait(2500);
    shown(&mut all, "they work", &mut test);
    activity(&mut test, "a", kind, child(ChildStatus::Running, 7, None, Some(ODD)));
    shown(&mut all, "one says something", &mut test);
    let result = ToolResult::text("agent_run", format!("All of it is right 👍.\n{ODD}")).with_details(
        json!({"child": child(ChildStatus::Completed, 8, None, Some("All of it is right 👍."))}),
    );
    done(&mut test, "a", result, ToolCallOutcome::Succeeded);
    shown(&mut all, "one is done", &mut test);
    let result = ToolResult::error("agent_run", format!("the model failed: {ODD}"))
        .with_details(json!({"child": child(ChildStatus::Failed, 3, None, Some("half of it"))}));
    done(&mut test, "b", result, ToolCallOutcome::Failed);
    shown(&mut all, "the other failed", &mut test);
    all
}

/// Thoughts, and an inference that is retried.
fn thoughts(width: u16) -> String {
    let mut all = String::new();
    let mut test = TestApp::new(width, HEIGHT);
    test.start("go");
    test.event(E::ReasoningDelta { delta: format!("Erst 考える e\u{301} 👩‍👩‍👧: {ODD}\n") });
    test.wait(900);
    shown(&mut all, "thinking", &mut test);
    test.event(E::ReasoningDelta { delta: "**second** thought\nthird\n漢字 fo".into() });
    test.wait(11_000);
    shown(&mut all, "thinking on", &mut test);
    stream_text(&mut test, "I know.\n\n");
    shown(&mut all, "folded", &mut test);
    let retry = json!({
        "attempt": 2, "max": 6, "delay_ms": 5300, "model": "m1", "instead": false,
        "reason": format!("busy: {ODD}"), "reset": false,
    });
    activity(&mut test, "m", "inference-retry", retry.clone());
    shown(&mut all, "tried again", &mut test);
    test.wait(4000);
    shown(&mut all, "the time runs", &mut test);
    let mut retry = retry;
    retry["instead"] = true.into();
    retry["model"] = "模型-2".into();
    activity(&mut test, "m", "inference-retry", retry);
    shown(&mut all, "with another model", &mut test);
    test.finish(TerminationReason::Error(format!("gave up: {ODD}")));
    shown(&mut all, "given up", &mut test);
    all
}

#[test]
fn every_state_at_three_widths() {
    for width in [40, 80, 140] {
        assert_snapshot!(format!("answer_{width}"), answer(width));
        assert_snapshot!(format!("calls_{width}"), calls(width));
        assert_snapshot!(format!("children_{width}"), children(width));
        assert_snapshot!(format!("thoughts_{width}"), thoughts(width));
    }
}
