//! Questions that expire, and their notifications.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::home::{Home, id_of};
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::pty::Pty;

const TOUCH: &str = "echo ran >> log.txt";

fn asks() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::say("I will.").bash("c1", TOUCH),
        _ => Answer::say("It is done."),
    })
}

/// A program outside the workspace.
fn script(home: &Home, text: &str) -> PathBuf {
    let path = home.root().join("tell.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    path
}

fn rule(terms: &str) -> String {
    format!("rules:\n  - {{tool: Bash(echo *), behavior: ask, {terms}}}\n")
}

fn told(home: &Home, name: &str) -> String {
    std::fs::read_to_string(home.root().join(name)).unwrap_or_default()
}

#[test]
fn a_program_is_notified_once_with_the_question_on_stdin() {
    let llm = asks();
    let home = Home::with(&llm);
    let root = home.root().display().to_string();
    let program = script(&home, &format!("cat > {root}/question.json; echo \"$1\" >> {root}/times"));
    home.rules(&rule(&format!("notify: [bell, {{command: [{}, told]}}]", program.display())));
    let out = home.aye(&["-p", "do it"]).run().exits(3);
    assert!(!out.stdout.contains('\u{7}') && !out.stderr.contains('\u{7}'), "no terminal to ring");
    let question: Value = serde_json::from_str(&told(&home, "question.json")).expect("JSON");
    assert_eq!(id_of(&question), home.question());
    assert_eq!(question["ticket"]["pending"]["arguments"]["command"], TOUCH);
    // Showing it again is not asking again.
    home.aye(&["-r", &home.thread(), "-p"]).run().exits(3);
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.card(TOUCH);
    assert!(!tty.raw().contains(&7), "it is only shown again");
    tty.quit();
    assert_eq!(told(&home, "times"), "told\n");
    assert_eq!(home.read("log.txt"), "");
}

#[test]
fn a_notified_program_may_answer() {
    let llm = asks();
    let home = Home::with(&llm);
    let aye = env!("CARGO_BIN_EXE_aye");
    let program = script(
        &home,
        &format!(
            "id=$(grep -o '\"id\":\"[^\"]*\"' | head -n 1 | cut -d '\"' -f 4)\nexec {aye} approvals approve \"$id\""
        ),
    );
    home.config(&format!(
        "{}\n[questions]\nnotify = [{{command = [\"{}\"]}}]\n",
        config(&llm),
        program.display()
    ));
    home.aye(&["-p", "do it"]).run().exits(3);
    assert!(home.open().is_empty(), "answered");
    assert_eq!(home.ok(&["-r", &home.thread(), "-p"]).stdout, "It is done.\n");
    assert_eq!(home.read("log.txt"), "ran\n");
}

fn config(llm: &MockLlm) -> String {
    format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\n",
        llm.url
    )
}

#[test]
fn a_failing_program_is_reported_once_and_decides_nothing() {
    let llm = MockLlm::by(|_| Answer::new().bash("c1", "echo one").bash("c2", "echo two"));
    let home = Home::with(&llm);
    home.rules(&rule("notify: [{command: [/nonexistent/tell]}]"));
    let out = home.aye(&["-p", "do it"]).run().exits(3);
    assert_eq!(
        out.stderr.matches("notify: /nonexistent/tell: it did not start").count(),
        1,
        "{}",
        out.stderr
    );
    assert_eq!(home.open().len(), 2);
    let program = script(&home, "echo out of paper >&2; exit 7");
    home.rules(&rule(&format!("notify: [{{command: [{}]}}]", program.display())));
    let out = home.aye(&["-p", "do it"]).run().exits(3);
    assert!(
        out.stderr.contains("exit status: 7: out of paper; the question is still pending"),
        "{}",
        out.stderr
    );
}

#[test]
fn a_project_cannot_set_a_notify_command() {
    let llm = asks();
    let home = Home::with(&llm);
    let root = home.root().display().to_string();
    let program = script(&home, &format!("echo x > {root}/times"));
    home.write(".aye/permissions.yaml", &rule(&format!("notify: [{{command: [{}]}}]", program.display())));
    let out = home.aye(&["--trust", "-p", "do it"]).run().exits(3);
    assert!(
        out.stderr.contains("permissions.yaml:2: a project's rules cannot name a `command`"),
        "{}",
        out.stderr
    );
    home.write(".aye/permissions.yaml", &rule("notify: [bell]"));
    home.write(
        ".aye/config.toml",
        &format!("[questions]\nnotify = [{{command = [\"{}\"]}}]\n", program.display()),
    );
    home.aye(&["--trust", "-p", "do it"]).run();
    assert_eq!(told(&home, "times"), "");
}

#[test]
fn the_terminal_rings_and_notifies_the_desktop_only_when_unfocused() {
    for is_behind in [false, true] {
        let llm = asks();
        let home = Home::with(&llm);
        home.rules(&rule("notify: [bell, desktop]"));
        let mut tty = Pty::start(&home, &[], 100, 30);
        tty.ready();
        if is_behind {
            tty.send("\x1b[O");
        }
        tty.say("do it");
        tty.card(TOUCH);
        until("the bell", || tty.raw().contains(&7));
        let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
        assert_eq!(raw.contains("\x1b]9;aye: question: "), is_behind);
        assert_eq!(raw.contains("\x1b]777;notify;aye;question: "), is_behind);
        tty.send("y");
        tty.shows("It is done.");
        tty.quit();
    }
}

#[test]
fn a_question_expires_on_the_screen_and_a_late_answer_is_refused() {
    let llm = asks();
    let home = Home::with(&llm);
    home.rules(&rule("expires_in: 3s"));
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("do it");
    tty.shows("expires in less than a minute");
    let id = home.question();
    let shown = home.ok(&["approvals", "show", &id]).stdout;
    assert!(shown.contains("\nexpires  "), "{shown}");
    // Nobody does anything.
    tty.shows("It is done.");
    tty.shows("expired");
    let text = llm.last().result("c1");
    assert!(text.contains("approval request expired") && text.contains("The call did not run"), "{text}");
    assert!(!text.contains("user denied"), "{text}");
    assert_eq!(home.read("log.txt"), "");
    let out = home.aye(&["approvals", "approve", &id]).run().exits(1);
    let wanted = format!("to be asked again: aye -r {}", home.thread());
    let says = |text: &str| out.stderr.contains(text);
    assert!(says("expired at ") && says("the call did not run") && says(&wanted), "{}", out.stderr);
    assert_eq!(home.read("log.txt"), "");
    tty.quit();
}

#[test]
fn the_settings_set_an_expiry_for_tool_questions_too() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("q", "AskUser", serde_json::json!({"question": "Which?", "free_text": true})),
        _ => Answer::say("It is done."),
    });
    let home = Home::with(&llm);
    home.config(&format!("{}\n[questions]\nexpires_in = \"1s\"\n", config(&llm)));
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("do it");
    tty.shows("It is done.");
    let text = llm.last().result("q");
    assert!(text.contains("The question expired unanswered"), "{text}");
    tty.quit();
    let out = home.aye(&["config", "show", "--config", "questions.expires_in=soon"]).run().exits(2);
    assert!(out.stderr.contains("a time with a unit such as \"30m\""), "{}", out.stderr);
}
