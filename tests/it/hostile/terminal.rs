//! Terminal rows that need a real terminal: premature keys, pastes, and everything ever written to it.

use serde_json::json;

use super::screen::{is_data, text_of};
use super::{Row, of_area};
use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};
use crate::support::pty::Pty;

/// TE038: type-ahead. TE039, TE040: pastes. TE044: a pipe. TE201o: all texts of the rows in one conversation.
pub const CHECKS: &[&str] = &["TE038", "TE039", "TE040", "TE044", "TE201o", "TE202o"];

#[test]
fn every_row_is_known() {
    for row in of_area("terminal").iter().filter(|row| !is_data(row)) {
        assert!(CHECKS.contains(&row.id.as_str()), "{}", row.id);
    }
}

const RUN: &str = "echo ran >> log.txt";

/// TE038
#[test]
fn a_key_before_the_card_does_not_answer() {
    let llm = MockLlm::answers([Answer::new().bash("a", RUN), Answer::say("done")]);
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 90, 24);
    tty.ready();
    tty.say("go");
    // Typed at once: the card cannot have been seen.
    tty.send("yyy");
    tty.wait("the card", |view| view.has(RUN) && view.has("Allow once"));
    assert_eq!(home.read("log.txt"), "");
    assert_eq!(home.open().len(), 1);
    tty.signal(rustix::process::Signal::TERM);
    tty.end();
    assert_eq!(home.read("log.txt"), "");
}

/// TE039, TE040
#[test]
fn a_paste_is_never_a_decision() {
    let llm = MockLlm::answers([Answer::new().bash("a", RUN), Answer::say("done")]);
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 90, 24);
    tty.ready();
    tty.say("go");
    tty.card(RUN);
    tty.send("\x1b[200~y\r\x1b[201~");
    tty.send("\x1b[200~a\x1b[201~y\r\x1b[201~");
    // Both appear in the composer: all of it was received.
    tty.wait("the pastes", |view| view.screen().lines().any(|line| line.trim() == "ay"));
    assert_eq!((home.read("log.txt").as_str(), home.open().len()), ("", 1));
    assert_eq!(llm.asked().len(), 1, "nothing was sent");
    tty.signal(rustix::process::Signal::TERM);
    tty.end();
    assert_eq!(home.read("log.txt"), "");
}

/// TE044
#[test]
fn text_is_clean_on_a_terminal_and_json_everywhere() {
    let llm = MockLlm::by(|_| Answer::say("before\u{1b}]52;c;AA==\u{7}\u{202e}after"));
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &["-p", "go"], 80, 24);
    tty.end();
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    assert!(raw.contains("before^[]52;c;AA==^G<U+202E>after"), "{raw:?}");
    assert!(!raw.contains("\u{1b}]52"), "{raw:?}");
    let out = home.ok(&["-p", "go", "--output-format", "json"]);
    assert!(!out.stdout.contains('\u{1b}'), "{}", out.stdout);
}

/// TE201o: every text of the rows, as model text and as command output, in one conversation in a real
/// terminal.
#[test]
fn nothing_foreign_is_ever_written() {
    let texts: Vec<String> = of_area("terminal")
        .iter()
        .filter(|row: &&Row| is_data(row))
        .map(text_of)
        .filter(|t| t.len() < 3000)
        .collect();
    let all = texts.join("\n\nx");
    let llm = MockLlm::answers([
        Answer::say(&all)
            .call("a", "Read", json!({"file_path": "texts"}))
            .bash("b", "cat texts; cat texts >&2"),
        Answer::say(&format!("{all}\n\nTHE END")),
    ]);
    let home = Home::with(&llm);
    home.write("texts", &all.replace('\0', ""));
    let mut tty = Pty::start(&home, &["--allowed-tools", "Bash"], 100, 30);
    tty.ready();
    tty.say("go");
    tty.shows("THE END");
    tty.quit();
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    for foreign in [
        "\x1b]52",
        "\x1b]8;",
        "\x1b]777",
        "\x1b]99;",
        "\x1b]1337",
        "\x1b]50;",
        "\x1b_G",
        "\x1bP+q",
        "\x1bPq",
        "\x1b^",
        "\x1bX",
        "\x1b[6n",
        "\x1b[5n",
        "\x1b[>c",
        "\x1b[=c",
        "\x1b]4;",
        "\x1b[20t",
        "\x1b[8;1;1t",
        "\x1b(0",
        "\x1b#8",
        "\x1b[?1049h",
        "\x1b[?1000h",
        "\x1bc\x1b",
        "\x0e",
        "\x05",
        "\x07",
        "\x08",
        "\x0b",
        "\u{202e}",
        "\u{2066}",
        "\u{200b}",
        "\u{9b}",
        "\u{9d}",
        "\u{90}",
        "\u{e0041}",
        "\u{feff}",
        "\x1b[999999",
        "\x1b[38;2;0;0;0",
    ] {
        assert!(
            !raw.contains(foreign),
            "{foreign:?} was written: {:?}",
            raw.find(foreign).map(|at| raw.get(at.saturating_sub(30)..at + 30))
        );
    }
    tty.is_restored();
}

/// TE202o: titles, warnings and names at startup: a folder and a skill with odd names.
#[test]
fn a_folder_with_an_odd_name() {
    let home = Home::new();
    let odd = home.work().join("a\u{1b}]52;c;AA==\u{7}\u{202e}b");
    std::fs::create_dir(&odd).expect("a folder");
    let odd = odd.to_string_lossy().into_owned();
    let mut tty = Pty::start(&home, &["-C", &odd], 100, 30);
    tty.ready();
    tty.say("list files");
    tty.quit();
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    assert!(!raw.contains("\x1b]52") && !raw.contains('\u{202e}') && !raw.contains('\x07'), "{raw:?}");
}
