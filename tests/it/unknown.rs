//! Calls lost with their process: asked about without a terminal, and answered from elsewhere.

use rustix::process::Signal;
use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::pty::Pty;

fn model() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::say("I will.").bash("c1", "echo half way; echo ran >> log.txt; cat pipe"),
        _ => Answer::say("It is done."),
    })
}

/// A home whose run was killed during its command.
fn lost(llm: &MockLlm) -> Home {
    let home = Home::with(llm);
    let made = std::process::Command::new("mkfifo").arg(home.work().join("pipe")).status();
    assert!(made.expect("mkfifo is installed").success());
    let run = home.aye(&["--permission-mode", "yolo", "-p", "do it"]).spawn();
    until("the command", || home.works("cat pipe") && home.read("log.txt") == "ran\n");
    // Its output is stored a moment later.
    until("its output", || kept(&home).contains("half way"));
    run.signal(Signal::KILL);
    assert!(run.end().was_killed());
    home
}

/// The store's bytes: the output of a running call is in them before anything shows it.
fn kept(home: &Home) -> String {
    let mut all = String::new();
    let mut folders = vec![home.root().join("aye")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains(".db") {
                let bytes = std::fs::read(&path).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                // The text of the call itself does not count.
                all.push_str(&text.replace("echo half way", ""));
            }
        }
    }
    all
}

#[test]
fn an_unknown_outcome_stays_pending_and_is_answered_from_elsewhere() {
    for (choice, wanted) in
        [("done", "marked it as done"), ("skip", "The user skipped it"), ("rerun", "half way")]
    {
        let llm = model();
        let home = lost(&llm);
        let out = home.aye(&["-c", "-p", "--on-unknown", "ask"]).run().exits(3);
        assert!(out.stderr.contains("rerun") && out.stderr.contains("answer"), "{}", out.stderr);
        let id = home.question();
        assert!(id.starts_with("unknown_"), "{id}");
        let shown = home.ok(&["approvals", "show", &id]).stdout;
        assert!(shown.contains("its output:\nhalf way"), "{shown}");
        let choices = format!(
            "aye answer {id} '{{\"choice\":\"rerun\"}}' with {{\"choice\": \"rerun\" or \"done\" or \"skip\"}}"
        );
        assert!(shown.contains(&choices) && shown.contains("\nbegan  "), "{shown}");
        // An approval alone does not say what to do.
        home.aye(&["approvals", "approve", &id]).run().exits(2);
        home.aye(&["approvals", "answer", &id, "{\"choice\": \"maybe\"}"]).run().exits(2);
        home.ok(&["approvals", "answer", &id, &json!({"choice": choice}).to_string()]);
        let run = home.aye(&["-c", "-p", "--on-unknown", "ask"]).spawn();
        if choice == "rerun" {
            until("the command", || home.works("cat pipe"));
            std::fs::write(home.work().join("pipe"), "x").expect("written");
        }
        assert_eq!(run.end().exits(0).stdout, "It is done.\n");
        let told = llm.last().result("c1");
        assert!(told.contains(wanted), "{choice}: {told}");
        let times = if choice == "rerun" { "ran\nran\n" } else { "ran\n" };
        assert_eq!(home.read("log.txt"), times, "{choice}");
    }
}

#[test]
fn the_card_of_an_unknown_outcome_says_what_is_known() {
    let llm = model();
    let home = lost(&llm);
    let mut tty = Pty::start(&home, &["-c"], 100, 40);
    tty.shows("its outcome is unknown");
    tty.shows("Its output:");
    tty.shows("Started at ");
    tty.card("Mark as done");
    tty.send("d");
    tty.shows("It is done.");
    assert!(llm.last().result("c1").contains("half way"));
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.quit();
}
