//! Entries by kind at each width.

use serde_json::{Value, json};

use crate::app::tests::TestApp;
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::judgement::Profile;
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::progress::TOOL_CALL_PROGRESS_ACTIVITY_TYPE;
use aye_core::contract::tool::ToolResult;

const DIFF: &str = "--- a/src/größe.rs\n+++ b/src/größe.rs\n@@ -8,7 +8,8 @@\n //! 漢字 and 👩‍💻 in a comment\n \n fn size() -> usize {\n-    let old = first + second;\n+    let new = first - second;\n+    // 🎉 counted\n     old\n }\n \n@@ -40,3 +41,2 @@\n struct A;\n-struct B;\n struct C;\n";

fn ok(test: &mut TestApp, id: &str, name: &str, arguments: Value, result: ToolResult) {
    test.call(id, name, arguments);
    done(test, id, result);
}

fn done(test: &mut TestApp, id: &str, result: ToolResult) {
    let outcome = ToolCallOutcome::Succeeded;
    test.event(E::ToolCallDone { id: id.into(), message_id: "m".into(), result, outcome });
}

fn stream_text(test: &mut TestApp, text: &str) {
    test.event(E::TextDelta { delta: text.into() });
}

fn read(test: &mut TestApp, id: &str, file: &str, lines: u64) {
    let result = ToolResult::text("Read", "x").with_details(json!({"lines": lines}));
    ok(test, id, "Read", json!({"file_path": format!("/home/me/proj/{file}")}), result);
}

fn plan(done: usize, all: usize) -> Value {
    let todo = |n: usize| {
        let status = match n {
            n if n < done => "completed",
            n if n == done => "in_progress",
            _ => "pending",
        };
        json!({"content": format!("Schritt {n} 漢字 🧪"), "status": status})
    };
    json!({"todos": (0..all).map(todo).collect::<Vec<_>>()})
}

fn report(test: &mut TestApp, id: &str, content: Value) {
    test.event(E::ActivitySnapshot {
        message_id: id.into(),
        activity_type: TOOL_CALL_PROGRESS_ACTIVITY_TYPE.into(),
        content,
        replace: None,
    });
}

/// An active run with an entry of each kind.
fn session(width: u16) -> String {
    let mut test = TestApp::new(width, 80);
    test.start("measure it 📏");
    test.event(E::ReasoningDelta { delta: "short 考え".into() });
    test.wait(1500);
    stream_text(&mut test, "I look.\n\n");
    read(&mut test, "a", "src/größe.rs", 1);
    read(&mut test, "b", "src/漢字.rs", 220);
    let found = ToolResult::text("Grep", "x").with_details(json!({"files": 2, "matches": 14}));
    ok(&mut test, "c", "Grep", json!({"pattern": "fn size", "path": "/home/me/proj/src"}), found.clone());
    test.event(E::ReasoningDelta { delta: "one\ntwo\nthree\nfour\nfive".into() });
    test.wait(12_000);
    stream_text(&mut test, "Once more.\n\n");
    ok(&mut test, "d", "Grep", json!({"pattern": "🎉"}), found);
    stream_text(&mut test, "And change it.\n\n");
    let changed =
        ToolResult::text("Edit", "changed").with_details(json!({"diff": DIFF, "added": 2, "removed": 2}));
    ok(&mut test, "e", "Edit", json!({"file_path": "/home/me/proj/src/größe.rs"}), changed);
    ok(&mut test, "f", "TodoWrite", plan(1, 4), ToolResult::text("TodoWrite", "1 of 4 done"));
    ok(&mut test, "g", "TodoWrite", plan(2, 4), ToolResult::text("TodoWrite", "2 of 4 done"));
    let usage =
        TokenUsage { prompt_tokens: Some(12_345), completion_tokens: Some(678), ..TokenUsage::default() };
    test.event(E::InferenceComplete {
        model: "m1".into(),
        usage: Some(usage),
        duration_ms: 4,
        stop_reason: None,
    });
    test.call("h", "Bash", json!({"command": "cargo test 🧪"}));
    let lines = (1..=30).map(|n| format!("test {n} 漢字 … ok")).collect::<Vec<_>>().join("\n") + "\n";
    test.event(E::ToolCallStreamDelta { id: "h".into(), name: "Bash".into(), delta: lines });
    report(
        &mut test,
        "h",
        json!({"status": "running", "loaded": 30, "total": 48, "message": "compiling 漢字"}),
    );
    test.wait(3200);
    let mut lines: Vec<&str> = test.scrollback.iter().map(String::as_str).collect();
    let live = test.live();
    lines.extend(live.lines());
    lines.join("\n")
}

#[test]
fn entries_of_each_kind() {
    for width in [40, 80, 140] {
        insta::assert_snapshot!(format!("entries_{width}"), session(width));
    }
}

#[test]
fn read_only_calls_are_grouped_on_one_line() {
    let mut test = TestApp::new(80, 30);
    test.start("go");
    read(&mut test, "a", "a.rs", 3);
    assert!(!test.scrollback.join("\n").contains("Read"), "more may follow");
    assert!(test.live().contains("✓ Read a.rs · 3 lines"), "{}", test.live());
    read(&mut test, "b", "b.rs", 3);
    test.call("c", "Read", json!({"file_path": "/home/me/proj/c.rs"}));
    let live = test.live();
    assert!(live.contains("✓ Read 2 files · a.rs, b.rs\n● Reading c.rs"), "{live}");
    done(&mut test, "c", ToolResult::text("Read", "x\ny"));
    test.finish(TerminationReason::NaturalEnd);
    let printed = test.scrollback.join("\n");
    assert!(printed.contains("✓ Read 3 files · a.rs, b.rs, c.rs"), "{printed}");
    assert_eq!(printed.matches("Read").count(), 1);
}

/// What a line of a call says, by its tool and state.
#[test]
fn lines_of_calls_are_sentences() {
    let text = |name: &str| ToolResult::text(name, "");
    let failed = |name: &str| ToolResult::error(name, "no");
    let cases = [
        ("Write", json!({"file_path": "/home/me/proj/a.rs"}), "Wrote a.rs", "Could not write a.rs"),
        ("Glob", json!({"pattern": "*.rs"}), "Looked for *.rs", "Could not look for *.rs"),
        ("List", json!({"path": "/home/me/proj/src"}), "Listed src", "Could not list src"),
        ("WebFetch", json!({"url": "https://a.b"}), "Fetched https://a.b", "Could not fetch https://a.b"),
        ("Bash", json!({"command": "make"}), "Ran make", "Ran make · failed"),
        (
            "Bash",
            json!({"command": "serve", "run_in_background": true}),
            "Started serve · in the background",
            "Started serve · failed · in the background",
        ),
        (
            "mcp__files__write_note",
            json!({"name": "n"}),
            "Called write_note (files) name: n",
            "Called write_note (files) name: n · failed",
        ),
        (
            "agent_run_reviewer",
            json!({"prompt": "look at it"}),
            "Asked agent reviewer look at it",
            "Asked agent reviewer look at it · failed",
        ),
    ];
    for (name, arguments, done, fails) in cases {
        let screen = finished(name, arguments.clone(), text(name), ToolCallOutcome::Succeeded);
        assert!(screen.contains(&format!("✓ {done}")), "{done}: {screen}");
        let screen = finished(name, arguments, failed(name), ToolCallOutcome::Failed);
        assert!(screen.contains(&format!("✗ {fails}\n")), "{fails}: {screen}");
    }
    let mut test = TestApp::new(60, 20);
    test.start("go");
    test.call("a", "Bash", json!({"command": "make"}));
    test.wait(4_900);
    assert!(test.live().contains("● Running make\n"), "{}", test.live());
    test.wait(600);
    assert!(test.live().contains("● Running make · 5 s\n"), "{}", test.live());
    test.ask_bash("b", "make install");
    test.app.cards.open.clear();
    test.draw();
    assert!(test.live().contains("? Wants to run make install"), "{}", test.live());
}

/// A call that shows more than its line has a blank row around it; lines follow each other without.
#[test]
fn only_calls_with_a_body_have_air() {
    let mut test = TestApp::new(60, 40);
    test.start("go");
    for (id, output) in [("a", ""), ("b", ""), ("c", "made"), ("d", "")] {
        ok(&mut test, id, "Bash", json!({"command": id}), ToolResult::text("Bash", output));
    }
    test.event(E::ReasoningDelta { delta: "hm\nso\nit\nis\nthat".into() });
    test.wait(2_100);
    ok(&mut test, "e", "Bash", json!({"command": "e"}), ToolResult::text("Bash", ""));
    test.finish(TerminationReason::NaturalEnd);
    let rows = "✓ Ran a\n✓ Ran b\n\n✓ Ran c\n    made\n\n✓ Ran d\n∴ thought 2 s (Ctrl-O)\n✓ Ran e\n";
    assert!(test.screen().contains(rows), "{}", test.screen());
}

/// A command has the colours of a shell, in the line of its call as on its card.
#[test]
fn commands_are_highlighted() {
    use crate::highlight::Highlighter;
    use crate::theme::{Role, Theme};
    use crate::view::{RenderStyle, scrollback::ScrollbackWriter};
    let mut test = TestApp::new(60, 20);
    test.start("go");
    ok(&mut test, "a", "Bash", json!({"command": "echo \"a b\" | wc"}), ToolResult::text("Bash", "1"));
    test.finish(TerminationReason::NaturalEnd);
    let theme = Theme::builtin("dark").expect("exists");
    let render_style = RenderStyle { theme: theme.clone(), highlighter: Highlighter::waiting() };
    let lines = ScrollbackWriter::default().finished(&test.app, &render_style);
    let line = lines.iter().find(|line| line.to_string() == "✓ Ran echo \"a b\" | wc").expect("the line");
    let text = theme.style(Role::CodeString).fg;
    assert!(line.spans.iter().any(|span| span.content.contains("a b") && span.style.fg == text), "{line:?}");
}

#[test]
fn a_failed_call_is_shown_separately() {
    let mut test = TestApp::new(80, 30);
    test.start("go");
    read(&mut test, "a", "a.rs", 3);
    test.call("b", "Read", json!({"file_path": "/home/me/proj/b.rs"}));
    let result = ToolResult::error("Read", "not there");
    let outcome = ToolCallOutcome::Failed;
    test.event(E::ToolCallDone { id: "b".into(), message_id: "m".into(), result, outcome });
    let printed = test.scrollback.join("\n");
    assert!(
        printed.contains("✓ Read a.rs · 3 lines") && printed.contains("✗ Could not read b.rs"),
        "{printed}"
    );
    assert!(printed.contains("not there"));
}

#[test]
fn the_plan_stays_while_its_run_has_open_items() {
    let mut test = TestApp::new(60, 24);
    test.start("go");
    ok(&mut test, "a", "TodoWrite", plan(0, 20), ToolResult::text("TodoWrite", "0 of 20 done"));
    stream_text(&mut test, "On it.\n\n");
    let live = test.live();
    assert!(live.contains("▸ Schritt 0") && live.contains("… 0 of 20 done"), "{live}");
    assert_eq!(test.scrollback.join("\n").matches("Schritt 0").count(), 0, "it is shown once");
    assert!(test.scrollback.join("\n").contains("✓ Updated the plan · 0 of 20 done"));
    test.finish(TerminationReason::NaturalEnd);
    assert!(!test.live().contains("Schritt"), "it is over with its run");
    test.start("more");
    ok(&mut test, "b", "TodoWrite", plan(19, 20), ToolResult::text("TodoWrite", "19 of 20 done"));
    let live = test.live();
    assert!(live.contains("▸ Schritt 19") && live.contains("… 19 of 20 done"), "{live}");
    // A question needs the room.
    test.ask_bash("c", "git push");
    let live = test.live();
    assert!(!live.contains("Schritt 18") && live.contains("Run this command?"), "{live}");
    test.event(E::ToolCallResumed { target_id: "c".into(), result: Value::Null });
    done(&mut test, "c", ToolResult::text("Bash", "ok"));
    ok(&mut test, "d", "TodoWrite", plan(20, 20), ToolResult::text("TodoWrite", "20 of 20 done"));
    assert!(!test.live().contains("Schritt"), "{}", test.live());
}

#[test]
fn nonsensical_progress_is_harmless() {
    let mut test = TestApp::new(50, 20);
    test.start("go");
    test.call("a", "mcp", json!({}));
    for (content, shown) in [
        (json!({"status": "running", "progress": 7.5}), "━━━━━━━━━━ 100%"),
        (json!({"status": "running", "progress": -1, "message": "漢\u{1b}[2J"}), "────────── 0% · 漢^[[2J"),
        (json!({"status": "running", "loaded": 3, "total": 0}), "running"),
        (json!({"status": "running", "loaded": 1, "total": 3}), "━━━─────── 33% · 1 of 3"),
        (json!({"status": "running", "message": "x".repeat(200)}), "…"),
    ] {
        report(&mut test, "a", content);
        assert!(test.live().contains(shown), "{shown}: {}", test.live());
    }
}

#[test]
fn the_spinner_stands_still_when_nothing_arrives() {
    let mut test = TestApp::new(80, 20);
    test.start("go");
    let status = |test: &TestApp| test.live().lines().last().map(str::to_owned).unwrap_or_default();
    assert!(status(&test).contains("waiting for the model"), "{}", status(&test));
    test.wait(5_000);
    let (still, due) = (status(&test), test.app.deadline().expect("has a deadline"));
    assert!(due.since(test.app.now) > 500, "one frame a second");
    test.wait(1_000);
    let turned = |line: &str| line.trim().chars().next();
    assert_eq!(turned(&still), turned(&status(&test)));
    test.event(E::ReasoningDelta { delta: "hm".into() });
    assert!(status(&test).contains("thinking"));
    test.wait(250);
    assert_ne!(turned(&still), turned(&status(&test)));
    test.call("a", "Bash", json!({"command": "ls"}));
    assert!(status(&test).contains("running Bash"), "{}", status(&test));
}

/// The lines of a finished call.
fn finished(name: &str, arguments: Value, result: ToolResult, outcome: ToolCallOutcome) -> String {
    let mut test = TestApp::new(80, 40);
    test.start("go");
    test.call("a", name, arguments);
    test.event(E::ToolCallDone { id: "a".into(), message_id: "m".into(), result, outcome });
    test.event(E::StepEnd);
    test.finish(TerminationReason::NaturalEnd);
    test.screen()
}

#[test]
fn folded_output_keeps_its_start_and_end() {
    let output: Vec<String> = (1..=50).map(|n| format!("line {n}")).collect();
    for name in ["Bash", "mcp__x__y"] {
        let result = ToolResult::text(name, output.join("\n"));
        let screen = finished(name, json!({"command": "seq 50"}), result, ToolCallOutcome::Succeeded);
        let rows: Vec<&str> = screen.lines().map(str::trim).filter(|row| !row.is_empty()).collect();
        let at = rows.iter().position(|row| *row == "line 1").expect("its start");
        let shown = ["line 1", "line 2", "… 45 more lines (Ctrl-O)", "line 48", "line 49", "line 50"];
        assert_eq!(rows[at..at + 6], shown, "{name}");
    }
    // A single line that is too long: both of its ends are shown.
    let long = format!("begin {} end", "x ".repeat(2_000));
    let result = ToolResult::text("Bash", long);
    let screen = finished("Bash", json!({"command": "x"}), result, ToolCallOutcome::Succeeded);
    assert!(
        screen.contains("begin x") && screen.contains("x  end") && screen.contains("… 1 more"),
        "{screen}"
    );
}

#[test]
fn a_call_that_ran_outside_is_marked() {
    for (profile, is_marked) in
        [(Profile::Outside, true), (Profile::Workspace, false), (Profile::Read, false)]
    {
        let result = ToolResult::text("Bash", "x").with_profile(profile);
        let screen = finished("Bash", json!({"command": "make"}), result, ToolCallOutcome::Succeeded);
        assert!(screen.contains("✓ Ran make"), "{screen}");
        assert_eq!(screen.contains("make · outside"), is_marked, "{screen}");
    }
}

#[test]
fn text_meant_for_the_model_is_not_shown() {
    let error = |code: &str, text: &str, shown: &str| {
        ToolResult::error_with_code("Bash", code, text).with_shown(shown)
    };
    let denied =
        error("permission_denied", "denied: x. Do not try the same in another way", "deny by rule `x`");
    let screen = finished("Bash", json!({"command": "rm"}), denied, ToolCallOutcome::Failed);
    assert!(screen.contains("⊘ Did not run rm · blocked") && screen.contains("deny by rule `x`"), "{screen}");
    assert!(!screen.contains("another way"), "{screen}");
    let declined = error("declined", "The user denied this call. It did not run.", "");
    let screen = finished("Bash", json!({"command": "rm"}), declined, ToolCallOutcome::Cancelled);
    assert!(screen.contains("− Did not run rm · denied by you") && !screen.contains("The user"), "{screen}");
    // Answers and other data are readable lines, not JSON.
    let data = |name: &str, data: Value| {
        finished(
            name,
            json!({"question": "Which?"}),
            ToolResult::success(name, data),
            ToolCallOutcome::Succeeded,
        )
    };
    let screen = data("AskUser", json!({"answer": "blue"}));
    assert!(screen.contains("    blue\n") && !screen.contains(['{', '"']), "{screen}");
    let screen = data("AskUser", json!({"answers": ["red", "blue"]}));
    assert!(screen.contains("    - red\n    - blue\n"), "{screen}");
    let screen = data("form", json!({"name": "Ann", "ok": true, "more": {"n": 1, "tags": []}}));
    let rows = "    name: Ann\n    ok: yes\n    more:\n      n: 1\n      tags: none\n";
    let sorted = "    more:\n      n: 1\n      tags: none\n    name: Ann\n    ok: yes\n";
    assert!(screen.contains(rows) || screen.contains(sorted), "{screen}");
}

#[test]
fn user_messages_have_a_background() {
    use crate::theme::{Role, Theme};
    use crate::view::{RenderStyle, scrollback::ScrollbackWriter};
    let mut test = TestApp::new(60, 20);
    test.start("one two\\<enter>three");
    for name in ["dark", "light", "default"] {
        let theme = Theme::builtin(name).expect("exists");
        let band = theme.style(Role::User).bg;
        assert_eq!(band.is_some(), name != "default", "{name}");
        let render_style = RenderStyle { theme, highlighter: crate::highlight::Highlighter::off() };
        let lines = ScrollbackWriter::default().finished(&test.app, &render_style);
        let user_lines: Vec<_> = lines
            .iter()
            .filter(|line| ["❯ one two", "  three"].contains(&line.to_string().trim_end()))
            .collect();
        assert_eq!(user_lines.len(), 2, "{lines:?}");
        for line in user_lines {
            assert!(
                line.spans.iter().filter(|span| !span.content.is_empty()).all(|span| span.style.bg == band)
            );
            assert_eq!(
                line.width(),
                if band.is_some() { 10 } else { line.to_string().trim_end().chars().count() }
            );
        }
    }
}
