//! A thread goes to the next process when its owner is silent for too long, and the owner does no harm when
//! it wakes up.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::home::{Home, Out, Running};
use crate::support::llm::{Answer, Chat, MockLlm, PATIENCE, until};

fn home(llm: &MockLlm, lease: &str) -> Home {
    let home = Home::with(llm);
    let config = home.root().join("aye/config/config.toml");
    let text = std::fs::read_to_string(&config).expect("settings");
    home.config(&format!("lease = \"{lease}\"\n{text}"));
    home
}

/// A model that runs one command and then is done.
fn wants(command: &'static str) -> MockLlm {
    MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => Answer::new().bash("c1", command),
        _ => Answer::say("Finished."),
    })
}

/// Resumes the thread as soon as it may.
fn take_over(home: &Home, thread: &str) -> Out {
    let end = Instant::now() + PATIENCE;
    loop {
        let out = home.aye(&["-r", thread, "-p"]).run();
        if !out.stderr.contains("is running thread") {
            return out;
        }
        assert!(Instant::now() < end, "it is never free: {out:?}");
    }
}

fn is_fenced(old: Running) {
    old.signal(Signal::CONT);
    old.end().exits(1).says("was taken over by another process");
}

#[cfg(feature = "failpoints")]
#[test]
fn an_owner_stopped_between_intent_and_start_starts_nothing() {
    let llm = wants("echo ran >> log.txt");
    let home = home(&llm, "500ms");
    home.aye(&["-p", "do it"]).run().exits(3);
    let thread = home.thread();
    home.ok(&["approvals", "approve", &home.question()]);
    let old = home.aye(&["-r", &thread, "-p"]).env("AYE_FAILPOINT", "stop:store.begin.after").spawn();
    until("the stop", || old.is_stopped());
    let new = take_over(&home, &thread).exits(0);
    assert_eq!(new.stdout, "Finished.\n");
    assert!(llm.last().result("c1").contains("may have run"), "{}", llm.last().result("c1"));
    is_fenced(old);
    assert_eq!(home.read("log.txt"), "", "nothing ran");
    assert_eq!(llm.asked().len(), 2, "the old owner asked nothing more");
}

#[test]
fn a_stopped_owners_command_is_ended_before_the_next_one_resumes() {
    let llm = wants("echo begun >> log.txt; sleep 30; echo ended >> log.txt");
    let home = home(&llm, "500ms");
    let old = home.aye(&["-p", "do it", "--permission-mode", "yolo"]).spawn();
    until("the command", || home.read("log.txt") == "begun\n");
    let thread = home.thread();
    // A living owner is left alone, however long its command takes.
    std::thread::sleep(Duration::from_millis(700));
    home.aye(&["-r", &thread, "-p"]).run().exits(1).says("is running thread");
    old.signal(Signal::STOP);
    let new = take_over(&home, &thread).exits(0);
    assert_eq!(new.stdout, "Finished.\n");
    assert!(!home.works("sleep 30"), "two owners' commands must not run side by side");
    assert!(llm.last().result("c1").contains("may have run"), "{}", llm.last().result("c1"));
    is_fenced(old);
    assert_eq!(home.read("log.txt"), "begun\n");
    assert_eq!(llm.asked().len(), 2);
}

/// The supervisor of a command ends it without aye, and without another process that takes over.
#[test]
fn a_stopped_aye_does_not_keep_its_command_beyond_its_lease() {
    let llm = wants("echo begun >> log.txt; sleep 30; echo ended >> log.txt");
    let home = home(&llm, "3s");
    let run = home.aye(&["-p", "do it", "--permission-mode", "yolo"]).spawn();
    until("the command", || home.read("log.txt") == "begun\n");
    // Renewed leases keep it running.
    std::thread::sleep(Duration::from_millis(3500));
    assert!(home.works("sleep 30"), "its lease is renewed: {}", run.told());
    run.signal(Signal::STOP);
    until("the end of the command", || !home.works("sleep 30"));
    assert!(run.is_stopped());
    run.signal(Signal::CONT);
    let out = run.end().exits(0);
    assert_eq!(out.stdout, "Finished.\n");
    let told = llm.last().result("c1");
    assert!(told.contains("aye was stopped for longer than its lease"), "{told}");
    assert_eq!(home.read("log.txt"), "begun\n");
}

/// Two containers that share a data folder, or a container and the host: pids of one mean nothing to the other.
#[test]
fn a_living_run_in_another_pid_namespace_is_left_alone() {
    let llm = wants("echo begun >> log.txt; until [ -e go ]; do sleep 0.05; done; echo ended >> log.txt");
    let home = home(&llm, "10s");
    let Some(run) = home.contained(&["-p", "do it", "--permission-mode", "yolo"]) else { return };
    let run = run.spawn();
    until("the command", || home.read("log.txt") == "begun\n");
    let thread = home.thread();
    let resume = ["-r", &thread, "-p", "--on-unknown", "retry"];
    let contained = home.contained(&resume).expect("possible a moment ago");
    for other in [contained, home.aye(&resume)] {
        let out = other.run().exits(1).says("is running thread");
        assert!(out.stderr.contains(" on "), "the pid alone would name another process: {}", out.stderr);
    }
    home.aye(&["threads", "delete", &thread]).run().exits(1).says("is in use by");
    home.write("go", "");
    assert_eq!(run.end().exits(0).stdout, "Finished.\n");
    assert_eq!(home.read("log.txt"), "begun\nended\n", "it ran once, and to its end");
}

/// Death is seen at once, however long the lease of the dead lasts.
#[test]
fn a_run_that_died_in_another_pid_namespace_is_taken_over_at_once() {
    let llm = wants("echo begun >> log.txt; sleep 30; echo ended >> log.txt");
    let home = home(&llm, "10m");
    let Some(run) = home.contained(&["-p", "do it", "--permission-mode", "yolo"]) else { return };
    let run = run.spawn();
    until("the command", || home.read("log.txt") == "begun\n");
    let thread = home.thread();
    run.signal(Signal::KILL);
    until("the end of the namespace", || !home.works("sleep 30"));
    let new = home.aye(&["-r", &thread, "-p"]).run().exits(0);
    assert_eq!(new.stdout, "Finished.\n");
    assert!(llm.last().result("c1").contains("may have run"), "{}", llm.last().result("c1"));
    assert_eq!(home.read("log.txt"), "begun\n");
    // What the dead left is gone with the first start after it.
    let left = std::fs::read_dir(home.root().join("aye/data/alive")).expect("the folder").count();
    assert_eq!(left, 0);
}

#[test]
fn an_answer_from_elsewhere_is_executed_by_the_active_run() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().bash("slow", "sleep 30").bash("c1", "echo ran >> log.txt"),
        _ => Answer::say("Finished."),
    });
    let home = home(&llm, "10s");
    home.rules("rules:\n  - tool: \"Bash(sleep *)\"\n    behavior: allow\n");
    let mut run = home.aye(&["-p", "do it", "--output-format", "stream-json"]).spawn();
    let mut asked = Vec::new();
    until("the question beside a running command", || {
        asked = home.open();
        !asked.is_empty()
    });
    assert_eq!(asked.len(), 1, "{asked:#?}");
    home.ok(&["approvals", "approve", &home.question()]);
    let decided = Instant::now();
    run.until_line("succeeded");
    let took = decided.elapsed();
    println!("heard and carried out after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(home.read("log.txt"), "ran\n");
    run.signal(Signal::TERM);
    run.end();
}
