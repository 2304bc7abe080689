//! Calls that a user edits before approving, sends back, or comments: in the shell and in the terminal.

use serde_json::{Value, json};

use crate::support::home::{Home, id_of, with_program};
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

/// A model that makes these calls at once, and then reports that it is done.
fn asks_for(calls: &'static [(&'static str, &'static str)]) -> MockLlm {
    MockLlm::by(move |chat: &Chat| {
        if chat.results().is_empty() {
            calls.iter().fold(Answer::new(), |answer, (id, command)| answer.bash(id, command))
        } else {
            Answer::say("End.")
        }
    })
}

/// A model that makes one call.
fn asks_to(name: &'static str, args: Value) -> MockLlm {
    MockLlm::by(move |chat: &Chat| {
        if chat.results().is_empty() {
            Answer::new().call("c1", name, args.clone())
        } else {
            Answer::say("End.")
        }
    })
}

fn shown(home: &Home, id: &str) -> Value {
    home.ok(&["approvals", "show", id, "--json"]).json()
}

#[test]
fn a_command_is_edited_on_the_command_line_and_runs_once_as_edited() {
    let llm = asks_for(&[("c1", "echo old >> log.txt")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    let out = home.ok(&[
        "approvals",
        "approve",
        &id,
        "--args",
        r#"{"command": "echo new >> log.txt"}"#,
        "--comment",
        "the new word is new",
    ]);
    assert!(
        out.stdout.contains("- command: echo old >> log.txt\n+ command: echo new >> log.txt\n"),
        "{out:?}"
    );
    assert!(out.stdout.contains("needs approval too"), "{out:?}");
    home.ok(&["-c", "-p"]);
    assert_eq!(home.read("log.txt"), "new\n");
    let told = llm.last().result("c1");
    assert!(told.starts_with("The user edited the call before approving it. It ran as: {"), "{told}");
    assert!(told.contains("echo new >> log.txt") && told.contains("Comment: the new word is new"), "{told}");

    let row = shown(&home, &id);
    assert_eq!(row["ticket"]["pending"]["arguments"]["command"], "echo old >> log.txt");
    assert_eq!(row["decision"]["arguments"]["command"], "echo new >> log.txt");
    let text = home.ok(&["approvals", "show", &id]).stdout;
    assert!(text.contains("allowed as edited") && text.contains("+ command: echo new"), "{text}");
    assert!(text.contains("comment: the new word is new"), "{text}");
}

#[test]
fn invalid_edits_are_refused_before_deciding() {
    let llm = asks_for(&[("c1", "echo old >> log.txt")]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: 'Bash(curl *)', behavior: deny}\n");
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    for (args, code, why) in [
        ("{\"command\": ", 2, "line 1, column 12"),
        ("[]", 2, "must be a JSON object"),
        ("{}", 2, "command"),
        ("{\"command\": 7}", 2, "command"),
        ("{\"command\": \"ls\", \"comand\": 1}", 2, "comand"),
        ("{\"command\": \"echo old >> log.txt\"}", 1, "did not change"),
        ("{\"command\": \"curl evil\"}", 2, "Bash(curl *)"),
    ] {
        let out = home.aye(&["approvals", "approve", &id, "--args", args]).run().exits(code);
        let all = format!("{}{}", out.stdout, out.stderr);
        assert!(
            all.contains(why) && all.contains("nothing was decided") || all.contains("cannot be used"),
            "{args}: {all}"
        );
    }
    assert_eq!(home.question(), id, "it is still pending");
    assert_eq!(shown(&home, &id)["decision"], Value::Null);
}

#[test]
fn the_editor_edits_a_call_and_an_invalid_text_is_kept() {
    let llm = asks_for(&[("c1", "echo old >> log.txt")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    let tmp = home.root().join("tmp");
    std::fs::create_dir(&tmp).expect("a folder");
    let edit = |editor: &str| {
        home.aye(&["approvals", "approve", &id, "--edit"])
            .env("EDITOR", editor)
            .env("TMPDIR", &tmp.to_string_lossy())
            .run()
    };
    home.aye(&["approvals", "approve", &id, "--edit"]).run().exits(1).says("no editor is set");
    edit("true").exits(1).says("did not change");
    edit("truncate -s 0").exits(1).says("the text is empty");
    edit("false").exits(1).says("nothing was decided");
    assert_eq!(std::fs::read_dir(&tmp).expect("a folder").count(), 0, "nothing is left behind");
    let out = edit("sed -i 2s/:/=/").exits(2);
    assert!(out.stderr.contains("line 2, column") && out.stderr.contains("nothing was decided"), "{out:?}");
    let kept = out.stderr.split("saved in ").nth(1).expect("a path").trim().to_owned();
    assert!(std::fs::read_to_string(&kept).expect("exists").contains("\"command\"="), "{kept}");
    edit("sed -i s/old/new/").exits(0);
    home.ok(&["-c", "-p"]);
    assert_eq!(home.read("log.txt"), "new\n");
}

#[test]
fn changes_to_a_call_are_requested_with_feedback() {
    let llm = asks_for(&[("c1", "echo old >> log.txt")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    home.aye(&["approvals", "modify", &id]).run().exits(2);
    home.aye(&["approvals", "modify", &id, "--feedback", " "]).run().exits(2).says("what to change");
    home.ok(&["approvals", "modify", &id, "--feedback", "write to notes.txt"]);
    home.ok(&["-c", "-p"]);
    assert_eq!(home.read("log.txt"), "");
    let told = llm.last().result("c1");
    assert!(told.contains("requested changes") && told.contains("write to notes.txt"), "{told}");
    assert!(!told.contains("user denied"), "{told}");
    let text = home.ok(&["approvals", "show", &id]).stdout;
    assert!(text.contains("changes requested") && text.contains("write to notes.txt"), "{text}");
}

#[test]
fn a_comment_goes_with_any_decision() {
    let llm = asks_for(&[("c1", "echo yes >> log.txt"), ("c2", "echo no >> log.txt")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    for question in home.open() {
        let id = id_of(&question);
        let word = if id.contains("c1") { "approve" } else { "deny" };
        home.ok(&["approvals", word, &id, "-m", "go easy"]);
    }
    home.ok(&["-c", "-p"]);
    assert_eq!(home.read("log.txt"), "yes\n");
    let chat = llm.last();
    assert!(
        chat.result("c1").starts_with("The user approved this with the comment: go easy\n"),
        "{}",
        chat.result("c1")
    );
    assert!(
        chat.result("c2").contains("denied this call. It did not run. Reason: go easy"),
        "{}",
        chat.result("c2")
    );

    let llm = asks_to("AskUser", json!({"question": "Which?", "choices": ["a", "b"]}));
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    home.ok(&["approvals", "answer", &id, r#"{"answer": "a"}"#, "-m", "b is gone"]);
    home.ok(&["-c", "-p"]);
    let told = llm.last().result("c1");
    assert!(
        told.contains("The user answered with the comment: b is gone") && told.contains("\"a\""),
        "{told}"
    );
}

#[test]
fn an_edited_file_is_written_only_while_it_is_as_reviewed() {
    for moved in [false, true] {
        let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
            // An existing file is read before it is overwritten.
            0 => Answer::new().call("c0", "Read", json!({"file_path": "a.txt"})),
            1 => Answer::new().call("c1", "Write", json!({"file_path": "a.txt", "content": "theirs\n"})),
            _ => Answer::say("End."),
        });
        let home = Home::with(&llm);
        home.write("a.txt", "before\n");
        home.aye(&["-p", "go"]).run().exits(3);
        let id = home.question();
        home.ok(&["approvals", "approve", &id, "--args", r#"{"file_path": "a.txt", "content": "mine\n"}"#]);
        if moved {
            home.write("a.txt", "somebody else's\n");
            home.aye(&["-c", "-p"]).run().exits(3);
            assert_eq!(home.read("a.txt"), "somebody else's\n");
            let again = home.question();
            let row = shown(&home, &again);
            assert_eq!(
                row["ticket"]["pending"]["arguments"]["content"], "mine\n",
                "it asks about the edited one"
            );
            assert_eq!(row["ticket"]["suspension"]["parameters"]["original"]["content"], "theirs\n");
            home.ok(&["approvals", "approve", &again]);
        }
        home.ok(&["-c", "-p"]);
        assert_eq!(home.read("a.txt"), "mine\n", "moved: {moved}");
        assert!(llm.last().result("c1").contains("It ran as: "), "{}", llm.last().result("c1"));
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn a_crash_between_the_answer_and_the_execution_runs_the_edited_call_once() {
    for place in ["store.begin.before", "store.begin.after"] {
        let llm = asks_for(&[("c1", "echo old >> log.txt")]);
        let home = Home::with(&llm);
        home.aye(&["-p", "go"]).run().exits(3);
        let id = home.question();
        home.ok(&["approvals", "approve", &id, "--args", r#"{"command": "echo new >> log.txt"}"#]);
        let killed = home.aye(&["-c", "-p"]).env("AYE_FAILPOINT", place).run();
        assert_ne!(killed.status.code(), Some(0), "{place}: it dies there");
        assert_eq!(home.read("log.txt"), "", "{place}");
        // After the intent the outcome is unknown; it is retried because the flag says so.
        home.ok(&["-c", "-p", "--on-unknown", "retry"]);
        assert_eq!(home.read("log.txt"), "new\n", "{place}");
        home.aye(&["-c", "-p", "more"]).run();
        assert_eq!(home.read("log.txt"), "new\n", "{place}");
        let asked = llm.asked();
        let told = asked.iter().find(|chat| !chat.results().is_empty()).expect("received").result("c1");
        assert!(told.contains("It ran as: ") && told.contains("echo new"), "{place}: {told}");
    }
}

fn open(llm: &MockLlm, env: &[(&str, &str)]) -> (Home, Pty) {
    let home = Home::with(llm);
    let tty = Pty::start_with(&home, &[], 100, 30, env);
    tty.ready();
    (home, tty)
}

#[test]
fn a_command_is_edited_on_its_card_and_runs_as_shown() {
    let llm = asks_for(&[("c1", "echo old >> log.txt")]);
    let (home, mut tty) = open(&llm, &[]);
    tty.say("do it");
    tty.card("echo old");
    tty.send("e");
    tty.shows("Enter review");
    // Go to the start, past the first word, and replace the next one.
    tty.send("\x01\x1bf\x1bd new \r");
    tty.card("echo new");
    tty.shows("as you edited it");
    tty.shows("your edit needs approval too");
    tty.send("c");
    tty.send("new is better\r");
    tty.shows("comment: new is better");
    tty.send("y");
    tty.shows("End.");
    assert_eq!(home.read("log.txt"), "new\n");
    let told = llm.last().result("c1");
    assert!(told.contains("It ran as: ") && told.contains("Comment: new is better"), "{told}");
    tty.shows("edited before it was allowed, with: new is better");
    tty.quit();
    // It looks the same after a restart.
    let again = Pty::start(&home, &["-c"], 100, 30);
    again.shows("edited before it was allowed");
    again.shows("echo new");
}

#[test]
fn a_files_text_is_edited_in_the_users_editor_and_the_terminal_is_restored() {
    let llm = asks_to("Write", json!({"file_path": "a.txt", "content": "one\ntwo\n"}));
    let editor = "echo IN-THE-EDITOR; sed -i s/two/2/";
    let (home, mut tty) = open(&llm, &[("EDITOR", editor)]);
    tty.say("do it");
    tty.card("two");
    tty.send("e");
    tty.shows("IN-THE-EDITOR");
    tty.shows("as you edited it");
    tty.card("2");
    tty.send("y");
    tty.shows("End.");
    assert_eq!(home.read("a.txt"), "one\n2\n");
    let told = llm.last().result("c1");
    assert!(told.contains("The user edited the call before approving it"), "{told}");
    tty.quit();
    tty.is_restored();

    // Without an editor in the environment it is vi.
    let home = Home::with(&llm);
    let path = with_program(&home, "vi", "echo IN-VI; sed -i s/two/3/ \"$1\"");
    let mut tty = Pty::start_with(&home, &[], 100, 30, &[("PATH", &path)]);
    tty.ready();
    tty.say("do it");
    tty.card("two");
    tty.send("e");
    tty.shows("IN-VI");
    tty.shows("as you edited it");
    tty.card("3");
    tty.send("y");
    tty.shows("End.");
    assert_eq!(home.read("a.txt"), "one\n3\n");
    tty.quit();
}

#[test]
fn hunks_of_a_file_are_dropped_on_the_card() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c0", "Read", json!({"file_path": "a.txt"})),
        1 => Answer::new().call("c1", "Write", json!({"file_path": "a.txt", "content": "A\nb\nC\n"})),
        _ => Answer::say("End."),
    });
    let home = Home::with(&llm);
    home.write("a.txt", "a\nb\nc\n");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("do it");
    tty.card("a.txt");
    tty.send("h");
    tty.shows("[x] hunk 1 of 2");
    tty.send(" \r");
    tty.shows("as you edited it");
    tty.card("as you edited it");
    tty.send("y");
    tty.shows("End.");
    assert_eq!(home.read("a.txt"), "a\nb\nC\n");
    tty.quit();
}

#[test]
fn a_denied_edit_is_reported_on_the_card_and_does_not_run() {
    let llm = asks_for(&[("c1", "echo old >> log.txt")]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: 'Bash(echo evil*)', behavior: deny}\n");
    let mut tty = Pty::start(&home, &[], 60, 15);
    tty.ready();
    tty.say("do it");
    tty.card("echo old");
    tty.send("e\x01\x1bf\x1bd evil\r");
    tty.shows("as you edited it");
    // Until the rules have judged the edited call, `y` only says that it is being checked.
    tty.card("the rules deny it");
    tty.send("y");
    tty.shows("the edited call would not run");
    tty.send("m");
    tty.send("another word\r");
    tty.shows("End.");
    assert_eq!(home.read("log.txt"), "");
    assert!(llm.last().result("c1").contains("Revise it: another word"), "{}", llm.last().result("c1"));
    tty.quit();
}

#[test]
fn several_cards_each_get_one_answer() {
    let llm = asks_for(&[("c1", "echo one >> log.txt"), ("c2", "echo two >> log.txt")]);
    let (home, mut tty) = open(&llm, &[]);
    tty.say("do it");
    tty.card("echo one");
    tty.shows("deny all 2");
    tty.send("D");
    tty.card("Deny these 2 calls?");
    tty.shows("echo two");
    tty.send("D");
    tty.shows("End.");
    assert_eq!(home.read("log.txt"), "");
    let chat = llm.last();
    assert!(chat.result("c1").contains("user denied") && chat.result("c2").contains("user denied"));
    tty.quit();
}

#[test]
fn read_only_calls_are_approved_and_the_rest_denied_with_one_command_each() {
    let llm = asks_for(&[("c1", "cat a.txt"), ("c2", "echo two >> log.txt"), ("c3", "cat b.txt")]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: 'Bash(cat *)', behavior: ask}\n");
    home.write("a.txt", "alpha\n");
    home.write("b.txt", "beta\n");
    home.aye(&["-p", "go"]).run().exits(3);
    home.aye(&["approvals", "deny", "--rest", "--thread", "nobody"]).run().exits(2);
    let out = home.ok(&["approvals", "approve", "--all-reads"]);
    assert_eq!(out.stdout, "approved 2 of 2 pending calls that only read\n");
    let out = home.ok(&["approvals", "deny", "--rest", "-m", "not now", "--thread", &home.thread()]);
    assert_eq!(out.stdout, "denied 1 of 1 pending calls that do more than read\n");
    home.ok(&["-c", "-p"]);
    let chat = llm.last();
    assert!(chat.result("c1").contains("alpha") && chat.result("c3").contains("beta"));
    assert!(chat.result("c2").contains("Reason: not now"), "{}", chat.result("c2"));
    assert_eq!(home.read("log.txt"), "");
    let out = home.ok(&["approvals", "approve", "--all-reads"]);
    assert_eq!(out.stdout, "approved 0 of 0 pending calls that only read\n");
}
