//! Reminders from files: the text for the model, the display for the user, the effect of an invalid file.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

/// A model that reads a file in each of this number of steps, and then reports that it is done.
fn reads(steps: usize) -> MockLlm {
    MockLlm::by(move |chat: &Chat| match chat.results().len() {
        n if n < steps => Answer::new().call(&format!("c{n}"), "Read", json!({"file_path": "Cargo.toml"})),
        _ => Answer::say("End."),
    })
}

fn rule(content: &str, more: &str) -> String {
    format!(
        r#"{{"name": "toml", "tool": "Read(file_path ~ '*.toml')", "output": {{"status": "success"}},
            "message": {{"target": "suffix_system", "content": "{content}"{more}}}}}"#
    )
}

fn config(home: &Home, text: &str) {
    std::fs::write(home.root().join("aye/config/reminders.json"), text).expect("written");
}

#[test]
fn the_model_is_reminded_in_the_next_step_and_not_during_the_cooldown() {
    let llm = reads(4);
    let home = Home::with(&llm);
    home.write("Cargo.toml", "[package]\n");
    let front = r#"{"tool": "Read", "message": {"target": "system", "content": "FIRST"}}"#;
    let last = r#"{"tool": "Read", "message": {"target": "conversation", "content": "LAST"}}"#;
    let rules = [&rule("Run cargo check.", r#", "cooldown_turns": 2"#), front, last].join(",");
    config(&home, &format!("{{\"rules\": [{rules}]}}"));
    let out = home.ok(&["-p", "go", "--output-format", "stream-json"]);
    let told = |text: &str| -> Vec<usize> {
        llm.asked().iter().map(|chat| chat.told().matches(text).count()).collect()
    };
    assert_eq!(told("Run cargo check."), [0, 1, 1, 1, 2], "they stay");
    assert_eq!(told("FIRST"), [0, 1, 2, 3, 4]);
    let second = &llm.asked()[1];
    let end = second.messages().last().expect("messages");
    assert_eq!(end["role"], "user", "{end}");
    let text = end["content"].as_str().unwrap_or_default();
    assert!(text.ends_with("\n\n<system-reminder>\nLAST\n</system-reminder>"), "{end}");
    assert!(llm.asked().iter().all(|chat| chat.system() == llm.asked()[0].system()));
    let notices = out.stdout.matches("toml: Run cargo check.").count();
    assert_eq!(notices, 2, "{}", out.stdout);
}

#[test]
fn an_invalid_file_is_reported_with_its_line_and_breaks_nothing() {
    let llm = reads(1);
    let home = Home::with(&llm);
    home.write("Cargo.toml", "[package]\n");
    config(
        &home,
        "{\"rules\": [\n{\"tool\": \"Read(\", \"message\": {\"target\": \"system\", \"content\": \"x\"}}]}",
    );
    home.write(".aye/reminders.json", &format!("{{\"rules\": [{}]}}", rule("From the project.", "")));
    home.aye(&["-p", "go", "--trust"])
        .run()
        .exits(0)
        .says("reminders.json:2: pattern `Read(`, character 5")
        .says("its reminders are not used");
    assert!(llm.last().told().contains("From the project."), "the other file applies");

    let out = home.aye(&["reminders", "check"]).run().exits(1);
    assert!(out.stdout.contains("reminders.json:2: pattern `Read(`"), "{out:?}");
    assert!(!out.stdout.contains("From the project"), "the folder is not trusted: {out:?}");
    let out = home.ok(&["reminders", "check", ".aye/reminders.json"]);
    assert!(out.stdout.contains(": 1 rule\n       line 1: toml: after Read(file_path ~"), "{out:?}");
    let rows = home.ok(&["reminders", "check", ".aye/reminders.json", "--json"]).json();
    assert_eq!(rows[0]["rules"][0]["name"], "toml", "{rows}");
    home.aye(&["reminders", "check", "nothing.json"]).run().exits(1);
}

#[test]
fn project_reminders_apply_only_in_a_trusted_folder() {
    let llm = reads(1);
    let home = Home::with(&llm);
    home.write("Cargo.toml", "[package]\n");
    home.write(".aye/reminders.json", &format!("{{\"rules\": [{}]}}", rule("From the project.", "")));
    home.aye(&["-p", "go"]).run().exits(0).says("not trusted");
    assert!(llm.asked().iter().all(|chat| !chat.told().contains("From the project.")));
}

#[test]
fn a_reminder_is_shown_in_the_transcript() {
    let llm = reads(1);
    let home = Home::with(&llm);
    home.write("Cargo.toml", "[package]\n");
    config(&home, &format!("{{\"rules\": [{}]}}", rule("Run cargo\\u001b[31m check.", "")));
    let mut pty = Pty::start(&home, &[], 80, 20);
    pty.ready();
    pty.say("go");
    pty.shows("End.");
    pty.shows("reminder: toml: Run cargo");
    let raw = pty.raw();
    assert!(!raw.windows(4).any(|bytes| bytes == b"o\x1b[3"), "nothing foreign reaches the terminal raw");
    pty.quit();
}

#[test]
fn a_denied_call_is_matched_by_its_code() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c0", "Bash", json!({"command": "rm -r build"})),
        1 => Answer::new().call("c1", "Nothing", json!({})),
        _ => Answer::say("End."),
    });
    let home = Home::with(&llm);
    home.rules("rules: [{tool: 'Bash(rm *)', behavior: deny}]");
    let rule = |tool: &str, output: &str, content: &str| {
        format!(
            r#"{{"tool": "{tool}", "output": {output}, "message": {{"target": "suffix_system", "content": "{content}"}}}}"#
        )
    };
    let code = r#"{"status": "error", "content": {"fields": [{"path": "error.code", "value": "permission_denied"}]}}"#;
    let rules =
        [rule("*", code, "Ask for another way."), rule("Nothing", "\"any\"", "No such tool.")].join(",");
    config(&home, &format!("{{\"rules\": [{rules}]}}"));
    home.ok(&["-p", "go"]);
    let told = |words: &str| llm.asked().iter().map(|chat| chat.told().contains(words)).collect::<Vec<_>>();
    assert_eq!(told("Ask for another way."), [false, true, true]);
    assert_eq!(told("No such tool."), [false, false, true]);
}
