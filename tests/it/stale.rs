//! Preconditions change while a question is pending: the old approval is not used.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

/// A model that makes one call and then reports its outcome.
fn calls(name: &'static str, args: Value) -> MockLlm {
    MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => Answer::say("I will.").call("c1", name, args.clone()),
        _ => Answer::say("It is done."),
    })
}

fn edit() -> MockLlm {
    calls("Edit", json!({"file_path": "a.txt", "old_string": "two", "new_string": "TWO"}))
}

fn bash(command: &str) -> MockLlm {
    calls("Bash", json!({"command": command}))
}

/// The only pending question.
fn question(home: &Home) -> Value {
    home.ok(&["approvals", "show", &home.question(), "--json"]).json()
}

/// The changed preconditions of the only pending question.
fn moved(home: &Home) -> Vec<String> {
    let question = question(home);
    let moved = question.pointer("/ticket/suspension/parameters/stale/moved").and_then(Value::as_array);
    moved.into_iter().flatten().map(|words| words.as_str().expect("words").to_owned()).collect()
}

/// Approves the pending question, resumes, and expects to be asked again.
fn allow_and_be_asked_again(home: &Home) -> (String, String) {
    let old = home.question();
    home.ok(&["approvals", "approve", &old]);
    let out = home.aye(&["-r", &home.thread(), "-p"]).run().exits(3);
    let new = home.question();
    assert_ne!(old, new, "another question has another id");
    (new, out.stderr)
}

fn allow_and_finish(home: &Home) {
    home.ok(&["approvals", "approve", &home.question()]);
    let out = home.ok(&["-r", &home.thread(), "-p"]);
    assert_eq!(out.stdout, "It is done.\n");
}

#[test]
fn a_manually_edited_file_is_asked_about_again_with_the_delta() {
    let llm = edit();
    let home = Home::with(&llm);
    home.write("a.txt", "one\ntwo\nthree\n");
    let mut tty = Pty::start(&home, &[], 100, 40);
    tty.ready();
    tty.say("do it");
    tty.card("Edit ");
    home.write("a.txt", "one\ntwo\nthree\nby hand\n");
    tty.send("y");
    tty.shows("Asked again: a.txt changed since the question");
    tty.shows("Changes in a.txt since the question:");
    tty.shows("+by hand");
    assert_eq!(home.read("a.txt"), "one\ntwo\nthree\nby hand\n", "nothing was done on the old answer");
    assert_eq!(llm.asked().len(), 1);
    let id = home.question();
    let shown = home.ok(&["approvals", "show", &id]).stdout;
    assert!(shown.contains("Asked again: a.txt changed since the question"), "{shown}");
    assert!(shown.contains("+by hand"), "{shown}");
    tty.card("Asked again");
    tty.send("y");
    tty.shows("It is done.");
    assert_eq!(home.read("a.txt"), "one\nTWO\nthree\nby hand\n");
    tty.quit();
}

#[test]
fn a_file_edited_manually_after_reading_is_asked_about_too() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("r", "Read", json!({"file_path": "a.txt"})),
        1 => Answer::new().call("w", "Write", json!({"file_path": "a.txt", "content": "mine\n"})),
        _ => Answer::say("It is done."),
    });
    let home = Home::with(&llm);
    home.write("a.txt", "one\n");
    let mut tty = Pty::start(&home, &[], 100, 40);
    tty.ready();
    tty.say("do it");
    tty.card("Edit ");
    home.write("a.txt", "one\nby hand\n");
    tty.send("y");
    tty.shows("Asked again: a.txt changed since the question");
    assert_eq!(home.read("a.txt"), "one\nby hand\n");
    tty.quit();
}

#[test]
fn an_edit_that_no_longer_applies_is_reported_to_the_model() {
    let llm = edit();
    let home = Home::with(&llm);
    home.write("a.txt", "one\ntwo\n");
    home.aye(&["-p", "do it"]).run().exits(3);
    home.write("a.txt", "one\n2\n");
    home.ok(&["approvals", "approve", &home.question()]);
    home.ok(&["-r", &home.thread(), "-p"]);
    let text = llm.last().result("c1");
    assert!(text.contains("not run: the file changed since the question"), "{text}");
    assert!(text.contains("`old_string` is not in a.txt"), "{text}");
    assert_eq!(home.read("a.txt"), "one\n2\n");
    assert!(home.open().is_empty());
}

#[test]
fn another_commit_or_branch_is_reported() {
    let llm = bash("echo ran >> log.txt");
    let home = Home::with(&llm);
    home.git(&["init", "-q"]);
    home.git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    home.aye(&["-p", "do it"]).run().exits(3);
    home.git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    let (_, told) = allow_and_be_asked_again(&home);
    assert!(told.contains("the branch main was at"), "{told}");
    let words = moved(&home);
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(
        words[0].starts_with("the branch main was at ") && words[0].contains(", now it is at "),
        "{words:?}"
    );
    home.git(&["checkout", "-q", "-b", "fix"]);
    allow_and_be_asked_again(&home);
    let words = moved(&home);
    assert!(
        words[0].starts_with("the branch was main at ") && words[0].contains(", now fix at "),
        "{words:?}"
    );
    home.git(&["pack-refs", "--all"]);
    // The same commit, stored in another file.
    assert_eq!(home.read("log.txt"), "");
    allow_and_finish(&home);
    assert_eq!(home.read("log.txt"), "ran\n");
}

#[test]
fn a_changed_or_new_script_is_reported() {
    let llm = bash("sh run.sh && sh later.sh");
    let home = Home::with(&llm);
    home.write("run.sh", "echo good >> log.txt\n");
    home.aye(&["-p", "do it"]).run().exits(3);
    home.write("run.sh", "echo evil >> log.txt\n");
    home.write("later.sh", "echo evil >> log.txt\n");
    allow_and_be_asked_again(&home);
    assert_eq!(
        moved(&home),
        ["run.sh changed since the question", "later.sh was created since the question"]
    );
    let diff = question(&home).pointer("/ticket/suspension/parameters/stale/deltas/0/diff").cloned();
    assert!(
        diff.as_ref().and_then(Value::as_str).is_some_and(|text| text.contains("-echo good")),
        "{diff:?}"
    );
    assert_eq!(home.read("log.txt"), "");
    // Asked and answered about the current state.
    allow_and_finish(&home);
    assert_eq!(home.read("log.txt"), "evil\nevil\n");
}

#[test]
fn another_folder_is_reported() {
    let llm = bash("echo ran >> log.txt");
    let home = Home::with(&llm);
    home.aye(&["-p", "do it"]).run().exits(3);
    home.ok(&["approvals", "approve", &home.question()]);
    std::fs::create_dir(home.work().join("sub")).expect("a folder");
    home.aye(&["-C", "sub", "-r", &home.thread(), "-p"]).run().exits(3);
    let words = moved(&home);
    assert!(words[0].starts_with("the folder was /") && words[0].ends_with("/work/sub"), "{words:?}");
    assert_eq!(home.read("log.txt"), "");
    assert_eq!(home.read("sub/log.txt"), "");
}

#[test]
fn the_second_edit_of_one_file_in_a_turn_is_asked_about_again() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new()
            .call("c1", "Edit", json!({"file_path": "a.txt", "old_string": "one", "new_string": "ONE"}))
            .call("c2", "Edit", json!({"file_path": "a.txt", "old_string": "two", "new_string": "TWO"})),
        _ => Answer::say("It is done."),
    });
    let home = Home::with(&llm);
    home.write("a.txt", "one\ntwo\n");
    home.aye(&["-p", "do it"]).run().exits(3);
    for question in home.open() {
        home.ok(&["approvals", "approve", question["id"].as_str().expect("an id")]);
    }
    home.aye(&["-r", &home.thread(), "-p"]).run().exits(3);
    let words = moved(&home);
    assert_eq!(words, ["a.txt changed since the question (by another call of this turn)"]);
    assert_eq!(home.read("a.txt"), "ONE\ntwo\n", "one approval, one change");
    allow_and_finish(&home);
    assert_eq!(home.read("a.txt"), "ONE\nTWO\n");
}

#[test]
fn unchanged_preconditions_are_asked_about_once() {
    let llm = bash("cat a.txt >> log.txt");
    let home = Home::with(&llm);
    home.write("a.txt", "one\n");
    home.git(&["init", "-q"]);
    home.aye(&["-p", "do it"]).run().exits(3);
    home.write("a.txt", "one\n");
    home.write("other.txt", "new");
    allow_and_finish(&home);
    assert_eq!(home.read("log.txt"), "one\n");
}
