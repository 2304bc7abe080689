//! The program in a terminal, against a server on loopback.

use rustix::process::Signal;
use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, Gate, MockLlm, until};
use crate::support::pty::Pty;

const TOUCH: &str = "echo ran >> log.txt";

/// A model that runs a command and then reports its outcome.
fn asks_to_run(command: &str) -> MockLlm {
    MockLlm::answers([Answer::say("I will.").bash("c1", command), Answer::say("It is **done**.")])
}

fn open(llm: &MockLlm) -> (Home, Pty) {
    let home = Home::with(llm);
    let tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    (home, tty)
}

fn fifo(home: &Home, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(home.work().join(name)).status();
    assert!(made.expect("mkfifo is installed").success());
}

#[test]
fn a_card_is_approved() {
    let llm = asks_to_run(TOUCH);
    let (home, mut tty) = open(&llm);
    tty.say("do it");
    tty.card(TOUCH);
    tty.shows("I will.");
    assert_eq!(home.read("log.txt"), "");
    tty.send("y");
    tty.shows("It is done.");
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.quit();
    tty.shows_after("aye -r");
    tty.is_restored();
}

#[test]
fn a_card_is_denied_with_and_without_a_reason() {
    for (keys, said) in [("\r", None), ("use make\r", Some("use make"))] {
        let llm = asks_to_run(TOUCH);
        let (home, mut tty) = open(&llm);
        tty.say("do it");
        tty.card(TOUCH);
        tty.send("n");
        tty.shows("reason:");
        tty.send(keys);
        tty.shows("It is done.");
        let text = llm.last().result("c1");
        assert!(text.contains("user denied"), "{text}");
        assert_eq!(said.is_some_and(|said| text.contains(said)), said.is_some(), "{text}");
        tty.shows("denied by you");
        assert_eq!(home.read("log.txt"), "");
        tty.quit();
    }
}

#[test]
fn a_granted_call_is_not_asked_about_again() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        n @ 0..=1 => Answer::new().bash(&format!("c{n}"), "touch made.txt"),
        _ => Answer::say("All done."),
    });
    let (home, mut tty) = open(&llm);
    tty.say("do it");
    tty.card("touch made.txt");
    tty.send("a");
    tty.shows("Always allow exactly ");
    // The scope before: this conversation.
    tty.send("\x1b[D");
    tty.shows("in this conversation");
    tty.send("\r");
    tty.shows("All done.");
    assert!(home.work().join("made.txt").exists());
    assert_eq!(llm.last().results().len(), 2);
    tty.quit();
    // A conversation's grant survives a restart, and applies only there.
    let again = Pty::start(&home, &["-c"], 100, 30);
    again.shows("All done.");
    let other = Home::with(&llm);
    other.aye(&["-p", "do it"]).run().exits(3);
}

#[test]
fn escape_on_a_card_denies_and_stops() {
    let llm = asks_to_run(TOUCH);
    let (home, mut tty) = open(&llm);
    tty.say("do it");
    tty.card(TOUCH);
    tty.send("\x1b");
    tty.wait("the stop", |view| !view.has("Allow once") && view.all().contains("interrupted"));
    assert_eq!(llm.asked().len(), 1, "the model is not asked again");
    assert_eq!(home.read("log.txt"), "");
    assert!(home.open().is_empty());
    tty.say("go on");
    tty.shows("It is done.");
    let text = llm.last().result("c1").to_lowercase();
    assert!(text.contains("not run") && !text.contains("may have run"), "{text}");
    tty.quit();
}

#[test]
fn escape_stops_a_stream_and_a_command() {
    let gate = Gate::default();
    let llm = MockLlm::answers([
        Answer::say("Half a sentence").wait(&gate).text("and more"),
        Answer::new().bash("c1", "echo begun >> log.txt; sleep 1000"),
        Answer::say("Over."),
    ]);
    let (home, mut tty) = open(&llm);
    tty.say("talk");
    tty.shows("Half a sentence");
    tty.send("\x1b");
    tty.shows("interrupted");
    gate.open();
    tty.say("work");
    tty.card("sleep 1000");
    tty.send("y");
    until("the command", || home.read("log.txt") == "begun\n");
    tty.send("\x1b");
    until("the end of the command", || !home.works("sleep 1000"));
    tty.shows("it may have run partly");
    tty.wait("the free thread", |view| view.all().matches("· interrupted").count() == 2);
    tty.say("and now");
    tty.shows("Over.");
    let text = llm.last().result("c1");
    assert!(text.contains("may have run partly"), "{text}");
    tty.quit();
}

const THREE: [&str; 3] = ["echo one >> log.txt", "echo two >> log.txt", "echo three >> log.txt"];

fn three() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => THREE.iter().enumerate().fold(Answer::new(), |a, (n, text)| a.bash(&format!("c{n}"), text)),
        _ => Answer::say("All three."),
    })
}

#[test]
fn several_cards_are_answered_in_any_order() {
    for mode in ["parallel_batch_approval", "parallel_streaming"] {
        let llm = three();
        let home = Home::with(&llm);
        let mut tty = Pty::start(&home, &["--tool-execution", mode], 100, 40);
        tty.ready();
        tty.say("do it");
        tty.card(THREE[0]);
        tty.shows("1 of 3");
        // Backwards: the third, the second (denied), the first.
        tty.send("\x1b[C");
        tty.card(THREE[1]);
        tty.send("\x1b[C");
        tty.card(THREE[2]);
        tty.send("y");
        tty.card(THREE[0]);
        tty.send("\x1b[C");
        tty.card(THREE[1]);
        tty.send("n");
        tty.shows("reason:");
        tty.send("\r");
        tty.card(THREE[0]);
        if mode == "parallel_batch_approval" {
            assert_eq!(home.read("log.txt"), "", "all wait for the last answer");
        } else {
            until("the third", || home.read("log.txt") == "three\n");
        }
        tty.send("y");
        tty.shows("All three.");
        let mut lines: Vec<String> = home.read("log.txt").lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["one", "three"], "{mode}");
        let ids: Vec<String> = llm.last().results().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["c0", "c1", "c2"], "results are in call order");
        assert!(llm.last().result("c1").contains("user denied"));
        tty.quit();
    }
}

#[test]
fn cards_appear_one_after_another_in_sequence() {
    let llm = three();
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &["--tool-execution", "sequential"], 100, 40);
    tty.ready();
    tty.say("do it");
    for (at, command) in THREE.iter().enumerate() {
        tty.card(command);
        assert_eq!(home.read("log.txt").lines().count(), at);
        tty.send("y");
    }
    tty.shows("All three.");
    assert_eq!(home.read("log.txt"), "one\ntwo\nthree\n");
    tty.quit();
}

#[test]
fn typed_or_pasted_text_never_answers() {
    let gate = Gate::default();
    let llm = MockLlm::answers([
        Answer::say("Thinking.").wait(&gate).bash("c1", TOUCH),
        Answer::say("It is done."),
    ]);
    let (home, mut tty) = open(&llm);
    tty.say("do it");
    tty.shows("Thinking.");
    tty.send("yes");
    tty.wait("the text", |view| view.has("❯ yes"));
    gate.open();
    tty.wait("the card", |view| view.has(TOUCH) && view.has("to answer:"));
    tty.send("yyy");
    tty.wait("the text", |view| view.has("❯ yesyyy"));
    tty.send("\x7f\x7f\x7f\x7f\x7f\x7f");
    tty.card(TOUCH);
    tty.paste("y\ny\n");
    tty.wait("the paste in the composer", |view| view.has("❯ y"));
    tty.wait("the focus in the composer", |view| view.has("to answer:"));
    assert_eq!(home.read("log.txt"), "");
    assert_eq!(home.open().len(), 1, "the question is still pending");
    tty.send("\x03");
    tty.card(TOUCH);
    tty.send("\r");
    tty.shows("It is done.");
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.quit();
}

#[test]
fn a_kill_while_a_card_is_up_loses_nothing() {
    let llm = asks_to_run(TOUCH);
    let (home, tty) = open(&llm);
    tty.say("do it");
    tty.card(TOUCH);
    tty.kill();
    assert_eq!(home.read("log.txt"), "");
    // Any number of times.
    let tty = Pty::start(&home, &["-c"], 100, 30);
    tty.card(TOUCH);
    tty.kill();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.shows("do it");
    tty.card(TOUCH);
    assert_eq!(llm.asked().len(), 1, "the model is not asked again");
    tty.send("y");
    tty.shows("It is done.");
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.quit();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.shows("It is done.");
    tty.quit();
    assert_eq!((home.read("log.txt").as_str(), llm.asked().len()), ("ran\n", 2));
}

#[test]
fn a_kill_during_a_command_asks_what_to_do() {
    for (key, text, lines) in [
        ("s", "The user skipped it", "begun\n"),
        ("d", "marked it as done", "begun\n"),
        ("r", "ended", "begun\nbegun\nended\n"),
    ] {
        let llm = asks_to_run("echo begun | tee -a log.txt; cat pipe; echo ended | tee -a log.txt");
        let (home, tty) = open(&llm);
        fifo(&home, "pipe");
        tty.say("do it");
        tty.card("cat pipe");
        tty.send("y");
        until("the command", || home.works("cat pipe") && home.read("log.txt") == "begun\n");
        // Its output is stored a little later.
        until("the stored output", || {
            let sql = "SELECT count(*) FROM output WHERE text LIKE '%begun%'";
            crate::audit::database(&home).query_row(sql, (), |row| row.get::<_, i64>(0)).is_ok_and(|n| n > 0)
        });
        tty.kill();
        // It does not keep running unseen.
        until("the end of the command", || !home.works("cat pipe"));
        assert_eq!(home.read("log.txt"), "begun\n");
        let mut tty = Pty::start(&home, &["-c"], 100, 30);
        tty.card("cat pipe");
        tty.shows("its outcome is unknown");
        assert!(!tty.look(|view| view.has("Allow once")), "it is not a permission");
        assert_eq!(home.read("log.txt"), "begun\n", "not repeated");
        tty.send(key);
        if key == "r" {
            until("the command", || home.works("cat pipe"));
            std::fs::write(home.work().join("pipe"), "x").expect("written");
        }
        tty.shows("It is done.");
        assert_eq!(home.read("log.txt"), lines);
        let told = llm.last().result("c1");
        assert!(told.contains(text), "{key}: {told}");
        assert!(told.contains("begun"), "its output until then: {told}");
        tty.quit();
    }
}

#[test]
fn a_kill_during_a_command_is_reported_without_a_terminal() {
    for (policy, code) in [("report", 0), ("stop", 1), ("retry", 0)] {
        let llm = asks_to_run("echo begun | tee -a log.txt; cat pipe; echo ended | tee -a log.txt");
        let home = Home::with(&llm);
        fifo(&home, "pipe");
        home.aye(&["-p", "do it"]).run().exits(3);
        home.ok(&["approvals", "approve", &home.question()]);
        let run = home.aye(&["-c", "-p"]).spawn();
        until("the command", || home.works("cat pipe") && home.read("log.txt") == "begun\n");
        run.signal(Signal::KILL);
        assert!(run.end().was_killed());
        until("the end of the command", || !home.works("cat pipe"));
        let run = home.aye(&["-c", "-p", "--on-unknown", policy]).spawn();
        if policy == "retry" {
            until("the command", || home.works("cat pipe"));
            std::fs::write(home.work().join("pipe"), "x").expect("written");
        }
        run.end().exits(code);
        if policy == "stop" {
            home.ok(&["-c", "-p", "what now?"]);
        }
        let told = llm.last().result("c1");
        if policy == "retry" {
            assert_eq!(home.read("log.txt"), "begun\nbegun\nended\n");
        } else {
            assert_eq!(home.read("log.txt"), "begun\n", "not repeated");
            assert!(told.contains("may have run"), "{policy}: {told}");
            assert!(!told.contains("user denied"), "{policy}: {told}");
        }
        assert!(home.open().is_empty());
    }
}

/// Leftover processes are stopped before anybody learns that the outcome is unknown.
#[test]
fn nothing_of_a_lost_command_runs_when_its_outcome_is_reported() {
    let llm =
        asks_to_run("trap '' TERM; echo begun >> log.txt; cat pipe; while :; do read -t 0.05 <> pipe; done");
    let home = Home::with(&llm);
    fifo(&home, "pipe");
    home.aye(&["-p", "do it"]).run().exits(3);
    home.ok(&["approvals", "approve", &home.question()]);
    let run = home.aye(&["-c", "-p"]).spawn();
    until("the command", || home.works("cat pipe") && home.read("log.txt") == "begun\n");
    run.signal(Signal::KILL);
    assert!(run.end().was_killed());
    home.ok(&["-c", "-p"]);
    assert!(!home.works("cat pipe"), "it still runs");
    assert!(llm.last().result("c1").contains("may have run"));
}

#[test]
fn resizes_during_a_stream_tear_nothing() {
    let gates: Vec<Gate> = (0..12).map(|_| Gate::default()).collect();
    let answer = gates.iter().enumerate().fold(Answer::new(), |answer, (n, gate)| {
        answer.text(&format!("Paragraph {n} has wide 漢字 and words that wrap. MARK{n}\n\n")).wait(gate)
    });
    let llm = MockLlm::answers([answer.text("The end.")]);
    let (_home, mut tty) = open(&llm);
    tty.say("talk");
    for (n, gate) in gates.iter().enumerate() {
        let sizes = [(20, 5), (100, 30), (7, 3), (60, 12), (200, 50), (33, 9)];
        for at in 0..4 {
            let (columns, rows) = sizes[(n + at) % sizes.len()];
            tty.resize(columns, rows);
        }
        gate.open();
    }
    tty.resize(100, 30);
    tty.shows("The end.");
    tty.send("still here");
    tty.wait("the text", |view| view.has("❯ still here"));
    tty.send("\x15");
    tty.wait("an empty composer", |view| !view.has("still here"));
    tty.quit();
    tty.is_restored();
}

#[test]
fn twenty_columns_and_five_rows_are_enough() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 20, 5);
    tty.ready();
    tty.say("do it");
    tty.card("echo ra");
    tty.wait("the keys", |view| view.has("[y]") && view.has("[n]"));
    // The command does not fit: a command that was not seen to its end cannot be approved.
    tty.send("y");
    tty.wait("the hint of more text", |view| view.has("the end of the co"));
    assert_eq!(home.read("log.txt"), "");
    tty.send("\x1b[B");
    tty.wait("the end of the command", |view| view.has("txt …+1"));
    tty.send("y");
    tty.shows("It is done.");
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.send("\x03");
    tty.send("\x03");
    assert!(tty.end().success());
    tty.is_restored();
}

#[test]
fn signals_restore_the_terminal() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let llm = asks_to_run(TOUCH);
        let (home, mut tty) = open(&llm);
        tty.say("do it");
        tty.card(TOUCH);
        tty.signal(signal);
        assert_eq!(tty.end().code(), Some(code), "{signal:?}");
        tty.is_restored();
        assert_eq!(home.open().len(), 1, "the question is pending");
    }
}

#[test]
fn a_signal_during_a_stream_keeps_the_text() {
    let gate = Gate::default();
    let llm = MockLlm::answers([Answer::say("Half a sentence").wait(&gate), Answer::say("More.")]);
    let (home, mut tty) = open(&llm);
    tty.say("talk");
    tty.shows("Half a sentence");
    tty.signal(Signal::TERM);
    assert_eq!(tty.end().code(), Some(143));
    gate.open();
    tty.is_restored();
    // Leftovers are closed, and the conversation continues.
    home.ok(&["-c", "-p", "and now?"]);
    assert!(llm.last().user().contains("and now?"));
}

/// Terminal control sequences from the model, a file and a command.
#[test]
fn hostile_text_never_reaches_the_terminal_raw() {
    let evil = "\u{1b}]0;OWNED\u{7}\u{1b}[6n\u{1b}[41mRED\u{1b}[?1049h\u{1b}]52;c;eA==\u{7}\u{9b}31m\u{202e}rtl\u{200b}\u{e0041}\r";
    let llm = MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => Answer::say(&format!("Look: {evil}\n\n```sh\n{evil}\n```\n\n"))
            .call("c1", "Read", json!({"file_path": "evil.txt"}))
            .call("c2", &format!("No{evil}Tool"), json!({"x": evil})),
        2 => Answer::new().bash("c3", "cat evil.txt; printf '\\033]0;OWNED\\007\\033[41mRED'"),
        3 => Answer::new().bash("c4", &format!("echo '{evil}' > log.txt")),
        _ => Answer::say(&format!("End{evil}. **{evil}**\n\nAll over.")),
    });
    let home = Home::with(&llm);
    home.write("evil.txt", evil);
    let mut tty = Pty::start(&home, &[], 100, 40);
    tty.ready();
    tty.say("look");
    tty.card("log.txt");
    tty.send("n");
    tty.shows("reason:");
    tty.send("\r");
    tty.shows("All over.");
    tty.send("\x1bo");
    tty.quit();
    let raw = tty.raw();
    let text = String::from_utf8_lossy(&raw);
    for part in [
        "\x1b]0;OWNED",
        "\x1b]52;",
        "\x1b[6n",
        "\x1b[?1049h",
        "\x1b[41mRED",
        "\u{9b}",
        "\u{202e}",
        "\u{200b}",
        "\u{e0041}",
    ] {
        assert!(!text.contains(part), "{part:?} was written");
    }
    assert!(!raw.contains(&7), "the bell rang");
    // The window title, progress, links and the background query are ours: each is complete.
    for ours in text.split("\x1b]").skip(1) {
        let body = ours.split_once("\x1b\\").expect("ends").0;
        assert!(["2;", "9;4;", "8;", "11;?"].iter().any(|kind| body.starts_with(kind)), "{body:?}");
        assert!(!body.contains(char::is_control), "{body:?}");
    }
    tty.is_restored();
}

#[test]
fn trust_is_asked_for_once_and_only_where_something_would_be_granted() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().bash("c1", "touch made.txt"),
        1 => Answer::new().bash("c2", "touch made.txt"),
        _ => Answer::say("It is done."),
    });
    let home = Home::with(&llm);
    home.write(".aye/permissions.yaml", "rules:\n  - {tool: Bash(touch *), behavior: allow}\n");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.card(".aye/permissions.yaml");
    // The first message does not wait for the answer, and runs without the rules.
    tty.say("do it");
    tty.card("touch made.txt");
    tty.send("\x1b");
    tty.shows("interrupted");
    tty.card(".aye/permissions.yaml");
    // The same conversation continues, with the text typed meanwhile.
    tty.send("1");
    tty.send("once more");
    tty.shows("its files apply from now on");
    tty.wait("the typed text", |view| view.has("❯ once more"));
    tty.send("\r");
    tty.shows("It is done.");
    assert!(home.work().join("made.txt").exists());
    assert!(llm.asked().iter().any(|chat| chat.results().len() == 2), "it is the same conversation");
    let said = tty.look(|view| view.all().matches("❯ do it").count());
    assert_eq!(said, 1, "earlier entries are not shown again");
    tty.quit();
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.quit();
    assert!(!String::from_utf8_lossy(&tty.raw()).contains("permissions.yaml"), "it is asked once");
}
