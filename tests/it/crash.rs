//! Every place where a write to the store can be interrupted, in every process of a scenario with questions.
#![cfg(feature = "failpoints")]

use std::os::unix::process::ExitStatusExt as _;

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::operator::{Operator, Plan, Step, Trouble};
use crate::support::pty::Pty;

const FIRST: Plan = &[("c1", true), ("c2", false)];
const SECOND: Plan = &[];

/// Lets the n-th process of the scenario die at each occurrence of the failpoint, and each time continues to
/// the end.
fn at_each(place: &str, nth: usize) {
    for count in 1.. {
        assert!(count < 40, "{place} is reached endlessly");
        let mut story = Operator::new(FIRST, SECOND);
        for _ in 0..nth {
            let step = story.next();
            assert_ne!(step, Step::Done, "the scenario is shorter");
            story.take(step, &Trouble::None);
        }
        let step = story.next();
        story.take(step, &Trouble::At(format!("{place}:{count}")));
        let died = story.deaths == 1;
        // The second process to die, at the same failpoint, is the one that cleans up.
        if died {
            let step = story.next();
            story.take(step, &Trouble::At(format!("{place}:1")));
        }
        story.finish();
        if !died {
            return;
        }
    }
}

// Process 0 sends a message, 1 approves, 2 denies, 3 resumes.

#[test]
fn the_first_run_dies_at_a_checkpoint() {
    at_each("store.checkpoint.before", 0);
    at_each("store.checkpoint.after", 0);
}

#[test]
fn the_first_run_dies_at_an_intent() {
    at_each("store.begin.before", 0);
    at_each("store.begin.after", 0);
}

#[test]
fn aye_dies_while_storing_a_decision() {
    for nth in [1, 2] {
        at_each("store.decide.before", nth);
        at_each("store.decide.after", nth);
    }
}

#[test]
fn the_resumed_run_dies_at_a_checkpoint() {
    at_each("store.checkpoint.before", 3);
    at_each("store.checkpoint.after", 3);
}

#[test]
fn the_resumed_run_dies_at_an_intent() {
    at_each("store.begin.before", 3);
    at_each("store.begin.after", 3);
}

/// A file change shows whether it happened: it is made once, and nobody is asked.
#[test]
fn a_file_change_is_made_once_wherever_it_was_interrupted() {
    for place in
        ["store.checkpoint.before", "store.checkpoint.after", "store.begin.before", "store.begin.after"]
    {
        for count in 1.. {
            let edit = json!({"file_path": "a.txt", "old_string": "one", "new_string": "one one"});
            let llm = MockLlm::by(move |chat: &Chat| match chat.results().len() {
                0 => Answer::new().call("r", "Read", json!({"file_path": "a.txt"})),
                1 => Answer::new().call("e", "Edit", edit.clone()),
                _ => Answer::say("Finished."),
            });
            let home = Home::with(&llm);
            home.write("a.txt", "one\n");
            let mode = ["--permission-mode", "accept-edits"];
            let args = [&["-p", "change it"], &mode[..]].concat();
            let out = home.aye(&args).env("AYE_FAILPOINT", &format!("{place}:{count}")).run();
            if out.was_killed() {
                let again = home.aye(&[&["-c", "-p"], &mode[..]].concat()).run();
                if again.status.code() == Some(2) && llm.asked().is_empty() {
                    // It died before the message was stored.
                    home.ok(&args);
                } else if again.status.code() == Some(2) {
                    // The process died after everything was done.
                    assert!(again.stderr.contains("nothing to resume"), "{again:?}");
                } else {
                    again.exits(0);
                }
            } else {
                out.exits(0);
                assert!(count > 1, "{place} is never reached");
                break;
            }
            assert_eq!(home.read("a.txt"), "one one\n", "{place}:{count}");
            let told = llm.last().result("e");
            assert!(!told.contains("may have run") && !told.to_lowercase().contains("error"), "{told}");
            assert!(home.open().is_empty());
        }
    }
}

/// The key was pressed, and the process died around the write of the answer.
#[test]
fn an_answer_in_the_terminal_is_kept_or_asked_for_again() {
    for (place, is_kept) in [
        ("store.decide.before", false),
        ("store.decide.after", true),
        ("store.begin.before", true),
        ("store.checkpoint.before", true),
    ] {
        let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
            0 => Answer::new().bash("c1", "echo ran >> log.txt"),
            _ => Answer::say("Finished."),
        });
        let home = Home::with(&llm);
        home.aye(&["-p", "do it"]).run().exits(3);
        let mut tty = Pty::start_with(&home, &["-c"], 100, 30, &[("AYE_FAILPOINT", place)]);
        tty.card("echo ran");
        tty.send("y");
        assert_eq!(tty.end().signal(), Some(9), "{place}");
        let ran = home.read("log.txt");
        let mut tty = Pty::start(&home, &["-c"], 100, 30);
        if !is_kept {
            assert_eq!(ran, "");
            tty.card("echo ran");
            tty.send("y");
        } else if !ran.is_empty() {
            // It ran, and its outcome was not recorded.
            tty.card("echo ran");
            tty.shows("its outcome is unknown");
            tty.send("d");
        }
        tty.shows("Finished.");
        assert_eq!(home.read("log.txt"), "ran\n", "{place}");
        tty.quit();
    }
}

#[test]
fn a_message_comes_back_as_a_draft_only_if_it_was_not_stored() {
    for (place, is_stored) in [("store.checkpoint.before", false), ("store.checkpoint.after", true)] {
        let llm = MockLlm::answers([Answer::say("Hello.")]);
        let home = Home::with(&llm);
        let mut tty = Pty::start_with(&home, &[], 100, 30, &[("AYE_FAILPOINT", place)]);
        tty.ready();
        tty.send("good morning");
        let drafts = || {
            let folder =
                std::fs::read_dir(home.root().join("aye/state/drafts")).into_iter().flatten().flatten();
            let texts = folder.filter_map(|draft| std::fs::read_to_string(draft.path()).ok());
            texts.filter(|text| text.contains("good morning")).count()
        };
        until("the draft", || drafts() == 1);
        tty.send("\r");
        assert_eq!(tty.end().signal(), Some(9), "{place}");
        assert_eq!(drafts(), 1, "until the end of the message's commit only the draft has it");
        let args: &[&str] = if is_stored { &["-c"] } else { &[] };
        let mut tty = Pty::start(&home, args, 100, 30);
        tty.ready();
        if is_stored {
            until("the end of the draft", || drafts() == 0);
            // Once as a message, and not in the composer.
            tty.shows("❯ good morning");
            assert_eq!(tty.look(|view| view.screen().matches("❯ good morning").count()), 1, "{place}");
        } else {
            tty.shows("❯ good morning");
            // Not sent, and so it stays.
            tty.send("\u{15}");
        }
        tty.quit();
    }
}
