//! The program in terminals with many, few and no features: each has a conversation with a card, from its
//! start to its end, and is left as it was.

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};
use crate::support::pty::Pty;

const TOUCH: &str = "echo ran >> log.txt";

/// A model that runs a command and then answers with non-ASCII text.
fn llm() -> MockLlm {
    MockLlm::answers([
        Answer::say("I will, 漢字 “now”.").bash("c1", TOUCH),
        Answer::say("It is done … 👍🏽 end."),
    ])
}

fn open(llm: &MockLlm, args: &[&str], env: &[(&str, &str)]) -> (Home, Pty) {
    let home = Home::with(llm);
    let tty = Pty::start_with(&home, args, 100, 30, env);
    (home, tty)
}

/// The typed text, as received by the model.
fn heard(llm: &MockLlm) -> String {
    llm.asked()[0].body.to_string()
}

/// A terminal that distinguishes all keys: Escape, Ctrl and Shift arrive as numbers.
#[test]
fn kitty_keys() {
    let llm = llm();
    let (home, mut tty) = open(&llm, &[], &[("TERM", "xterm-kitty")]);
    tty.ready();
    tty.send("do it\x1b[13;2unow\x1b[97;5u");
    tty.wait("two lines", |view| view.has("do it") && view.has("now"));
    // Key releases and modifier keys alone do nothing.
    tty.send("\x1b[120;1:3u\x1b[57441;2u\r");
    tty.card(TOUCH);
    tty.send("y");
    tty.shows("It is done");
    assert!(heard(&llm).contains("do it\\nnow"), "{}", heard(&llm));
    assert_eq!(home.read("log.txt"), "ran\n");
    // Escape and a letter right after it are two keys.
    tty.send("half\x1b[27uw");
    tty.shows("halfw");
    tty.send("\x1b[99;5u");
    tty.wait("an empty composer", |view| !view.has("halfw"));
    tty.send("\x1b[99;5u");
    assert_eq!(tty.end().code(), Some(0));
    tty.is_restored();
}

/// The same without: Alt-Enter starts a line, Escape arrives alone.
#[test]
fn legacy_keys() {
    let llm = llm();
    let (home, mut tty) = open(&llm, &[], &[("TERM", "xterm")]);
    tty.ready();
    tty.send("do it\x1b\rnow\x01");
    tty.wait("two lines", |view| view.has("do it") && view.has("now"));
    tty.send("\r");
    tty.card(TOUCH);
    tty.send("y");
    tty.shows("It is done");
    assert!(heard(&llm).contains("do it\\nnow"), "{}", heard(&llm));
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.quit();
    tty.is_restored();
}

#[test]
fn pastes_focus_and_the_mouse() {
    let llm = llm();
    let (home, mut tty) = open(&llm, &["--screen", "full"], &[("TERM", "xterm-256color")]);
    tty.ready();
    // Nothing in a paste is a key, and nothing in a report is text.
    tty.paste("do it\r\nnow\x1b[31m");
    tty.send("\x1b[O\x1b[<64;5;5M\x1b[<65;5;5M\x1b[<0;3;3M\x1b[<0;3;3m\x1b[I");
    tty.wait("two lines", |view| view.has("do it") && view.has("now[31m"));
    assert!(llm.asked().is_empty(), "a paste sends nothing");
    tty.send("\x7f\x7f\x7f\x7f\r");
    tty.card(TOUCH);
    // A paste does not answer either, and text keeps the card from the keys.
    tty.paste("y\r");
    tty.wait("the paste", |view| view.screen().lines().any(|line| line.contains("❯ y")));
    assert_eq!(home.read("log.txt"), "");
    tty.send("\x7f\x7f\t");
    tty.card(TOUCH);
    tty.send("\x1b[O\x1b[I\x1b[<64;5;5M");
    tty.send("y");
    tty.shows("It is done");
    assert!(heard(&llm).contains("do it\\nnow\""), "{}", heard(&llm));
    tty.quit();
    tty.is_restored();
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    for (on, off) in [("\x1b[?1002h", "\x1b[?1002l"), ("\x1b[?1006h", "\x1b[?1006l")] {
        assert!(raw.contains(on) && raw.rfind(on) < raw.rfind(off), "{on:?}");
    }
}

/// A dumb terminal gets lines one after another, and no escape sequences at all.
#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let llm = llm();
    let (home, mut tty) = open(&llm, &[], &[("TERM", "dumb")]);
    tty.shows("> ");
    tty.send("do it\r");
    tty.shows("You: do it");
    tty.shows("Answer with yes, no");
    tty.shows(TOUCH);
    tty.card_takes_keys();
    tty.send("yes\r");
    tty.shows("It is done");
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.send("/copy\r");
    tty.shows("clipboard");
    tty.quit();
    tty.is_restored();
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    assert!(!raw.contains('\x1b'), "{raw:?}");
    assert!(raw.contains("漢字"), "everything that can be shown is shown");
}

/// No UTF-8: drawing is ASCII, and the model's text takes as many columns as it would.
#[test]
fn a_terminal_without_utf8() {
    for (name, value) in [("LC_ALL", "C"), ("LANG", "C")] {
        let llm = llm();
        let (home, mut tty) = open(&llm, &[], &[(name, value)]);
        tty.wait("the prompt", |view| view.screen().lines().any(|line| line.starts_with('>')));
        tty.say("do it");
        tty.wait("the card", |view| {
            view.screen().lines().any(|line| line.starts_with('|') && line.contains(TOUCH))
        });
        tty.card_takes_keys();
        tty.send("y");
        tty.shows("It is done . ?? end.");
        tty.shows("I will, ???? \"now\".");
        assert_eq!(home.read("log.txt"), "ran\n");
        tty.quit();
        tty.is_restored();
        let raw = tty.raw();
        let rest = String::from_utf8_lossy(&raw).chars().filter(|c| !c.is_ascii()).collect::<String>();
        assert_eq!(rest, "", "{name}");
    }
}
