//! `/goal` and `--until`: a run works until its goal is reached, whoever drives it.

use std::collections::BTreeSet;

use rustix::process::Signal;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm, Part, until};
use crate::support::pty::Pty;

#[test]
fn a_goal_of_thirty_steps_survives_three_kills() {
    const STEPS: usize = 30;
    let mut kills = BTreeSet::from([8, 16, 24]);
    // Four steps, then it thinks that it is done.
    let llm = MockLlm::by(move |chat: &Chat| {
        let done = chat.results().len();
        if kills.remove(&done) {
            return Answer::new().text("Half a sen").part(Part::Hang);
        }
        let last = chat.messages().last().is_some_and(|last| last["role"] == "tool");
        match done {
            STEPS.. => Answer::say("It is done."),
            _ if done.is_multiple_of(4) && last => Answer::say("It is done, I think."),
            _ => Answer::new().bash(&format!("c{done}"), &format!("echo {done} >> log")),
        }
    });
    let home = Home::with(&llm);
    let is_at = |results: usize| llm.asked().iter().any(|chat| chat.results().len() == results);
    let start = ["--permission-mode", "yolo"];
    let goal = ["--until", "test \"$(wc -l < log)\" -ge 30"];
    let run = |args: &[&str], at: usize| {
        let run = home.aye(&[&start[..], args].concat()).spawn();
        until("the step", || is_at(at));
        run.signal(Signal::KILL);
        run.end().ends_by(Signal::KILL);
    };
    run(&[&goal[..], &["-p", "go"]].concat(), 8);
    // Neither needs the flag: the goal is in the row of the run.
    run(&["-c", "-p"], 16);
    run(&["-c", "-p"], 24);
    let out = home.aye(&[&start[..], &["-c", "-p"]].concat()).run().exits(0);
    assert!(out.stderr.contains("goal: the goal is reached"), "{}", out.stderr);
    assert!(out.stderr.contains("round 7 of at most 25: `test"), "rounds go on: {}", out.stderr);
    let log: Vec<usize> = home.read("log").lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(log, (0..STEPS).collect::<Vec<_>>(), "each step ran once");
}

#[test]
fn a_queued_goal_is_worked_for_by_workers() {
    let llm = MockLlm::by(|chat: &Chat| match (chat.results().len(), chat.told().contains("it fails now")) {
        (0, true) => Answer::new().bash("c", "touch done.txt"),
        _ => Answer::say("It is done."),
    });
    let home = Home::with(&llm);
    home.ok(&["queue", "add", "--until", "test -e done.txt", "make it"]);
    home.aye(&["--permission-mode", "yolo", "work", "--until-empty"]).run().exits(0);
    assert!(home.work().join("done.txt").exists());
    assert_eq!(llm.asked().len(), 3);
    home.rules("rules:\n  - {tool: \"Bash(make *)\", behavior: deny}\n");
    home.ok(&["queue", "add", "--until", "make test", "again"]);
    let out = home.aye(&["work", "--until-empty"]).run();
    let output = format!("{}{}", out.stdout, out.stderr);
    assert!(output.contains("a rule denies `make test`"), "{output}");
}

#[test]
fn a_condition_holds_when_an_output_shows_it() {
    let llm = MockLlm::by(|chat: &Chat| {
        let reminders = chat.told().matches("So far: ").count();
        match (reminders, chat.results().len()) {
            (0, _) => Answer::say("It is done.\nGOAL HOLDS: 3 tests passed"),
            (1, 0) => Answer::new().bash("c1", "echo '2 tests passed, 1 failed'"),
            (1, _) => Answer::say("GOAL MISSING: one test fails"),
            (_, 1) => Answer::new().bash("c2", "echo '3 tests passed'"),
            _ => Answer::say("Now it is.\nGOAL HOLDS: 3 tests passed"),
        }
    });
    let home = Home::with(&llm);
    let out = home.aye(&["--permission-mode", "yolo", "-p", "/goal every test passes"]).run().exits(0);
    for says in [
        "round 1 of at most 25: every test passes: no output has the words `3 tests passed`",
        "round 2 of at most 25: every test passes: one test fails",
        "the goal is reached: every test passes, shown by `3 tests passed`",
    ] {
        assert!(out.stderr.contains(says), "{says}: {}", out.stderr);
    }
    assert!(llm.asked()[0].user().starts_with("Work until this condition holds:\nevery test passes"));
    home.aye(&["-p", "/goal"]).run().exits(2).says("/goal needs a condition");
    // The next message has no goal.
    let out = home.ok(&["-c", "-p", "thanks"]);
    assert!(!out.stderr.contains("goal:"), "{}", out.stderr);
}

#[test]
fn every_stop_says_what_is_missing_and_continue_takes_the_goal_along() {
    let llm = MockLlm::by(|chat: &Chat| {
        let rounds = chat.results().len();
        let last = chat.messages().last().is_some_and(|last| last["role"] == "tool");
        if last {
            return Answer::say("GOAL MISSING: the last piece");
        }
        match rounds {
            0..4 => Answer::new().bash(&format!("c{rounds}"), &format!("echo piece {rounds}")),
            _ => Answer::say("GOAL HOLDS: piece 3"),
        }
    });
    let home = Home::with(&llm);
    let mut tty =
        Pty::start(&home, &["--permission-mode", "yolo", "--config", "stop.goal_rounds=2"], 110, 40);
    tty.ready();
    tty.say("/goal");
    tty.shows("no goal is open");
    tty.say("/goal all pieces are there");
    tty.shows("goal: round 1 of at most 2: all pieces are there: the last piece");
    tty.shows("stopped: the goal is not reached after 2 rounds: all pieces are there: the last piece");
    tty.say("/goal");
    tty.shows("2 of at most 2");
    tty.shows("the run ended without it");
    tty.say("/continue");
    tty.shows("piece 3");
    tty.wait("the end", |view| {
        view.all().matches("stopped: the goal is not reached").count() >= 2 && view.has("Enter: continue")
    });
    tty.say("/continue");
    tty.shows("the goal is reached: all pieces are there, shown by piece 3");
    tty.quit();
    assert!(!llm.asked()[0].body["tools"].to_string().contains("oal"), "a goal needs no tool");
}

/// The file of a conversation comes from anybody: it cannot name a command that runs without a question.
#[test]
fn an_imported_conversation_brings_no_command() {
    let llm = MockLlm::answers([
        Answer::new().bash("c", "true"),
        Answer::new().text("Half a sen").part(Part::Hang),
        Answer::say("It is done."),
    ]);
    let home = Home::with(&llm);
    let run = home.aye(&["--permission-mode", "yolo", "--until", "touch ran", "-p", "go"]).spawn();
    until("the second request", || llm.asked().len() == 2);
    run.signal(Signal::KILL);
    run.end().ends_by(Signal::KILL);
    let file = home.work().join("conversation.json");
    let thread = home.thread();
    let exported = home.ok(&["threads", "export", &thread, "--format", "json"]);
    std::fs::write(&file, exported.stdout).expect("is written");
    home.ok(&["threads", "delete", &thread]);
    let out = home.ok(&["threads", "import", file.to_str().expect("a path")]);
    assert!(out.stderr.contains("the command of its goal is not taken over"), "{}", out.stderr);
    let out = home.aye(&["--permission-mode", "yolo", "-c", "-p"]).run().exits(0);
    assert_eq!(out.stdout, "It is done.\n", "{}", out.stderr);
    assert!(!home.work().join("ran").exists(), "{}", out.stderr);
}
