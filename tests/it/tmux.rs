//! The program in a real tmux: its scrollback, the input that reaches the program, and the state afterwards.
//!
//! Without tmux the tests say so and pass, unless `AYE_NEEDS_TMUX=1` is set.

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, Gate, MockLlm};
use crate::support::tmux::Tmux;

const TOUCH: &str = "echo ran >> log.txt";

/// A server whose shell knows this model.
fn open(llm: &MockLlm) -> Option<Tmux> {
    Tmux::start(Home::with(llm))
}

fn asks() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::say("I will, 漢字 “now”.").bash("c1", TOUCH),
        _ => Answer::say("It is done … 👍 end."),
    })
}

/// Words of which none is part of another.
fn word(n: usize) -> String {
    format!("w{n:04}e")
}

fn list(words: impl IntoIterator<Item = usize>) -> String {
    words.into_iter().map(|n| format!("- {} 漢字\n", word(n))).collect::<Vec<_>>().concat()
}

/// Checks that each of this number of words appears once in tmux.
#[track_caller]
fn stand_once(tmux: &Tmux, count: usize) {
    let all = tmux.all();
    for n in 0..count {
        assert_eq!(all.matches(&word(n)).count(), 1, "{}\n{all}", word(n));
    }
}

#[test]
fn a_streamed_answer_is_once_in_the_scrollback_and_copy_mode_finds_it() {
    let gate = Gate::default();
    let pieces = list(0..80);
    let (first, second) = pieces.split_at(pieces.len() / 2);
    let parts = |answer: Answer, text: &str| {
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(7).fold(answer, |answer, part| answer.text(&part.iter().collect::<String>()))
    };
    let answer = parts(parts(Answer::new(), first).wait(&gate), second).text("\nThat was all.\n");
    let llm = MockLlm::answers([answer]);
    let Some(tmux) = open(&llm) else { return };
    tmux.aye("");
    tmux.say("talk");
    tmux.shows(&word(35));
    gate.open();
    tmux.shows("That was all.");
    stand_once(&tmux, 80);
    assert_eq!(tmux.ask("alternate_on"), "0");
    assert!(tmux.ask("history_size").parse::<usize>().is_ok_and(|size| size > 40));
    // It is searched and copied like any other output.
    assert!(!tmux.screen().contains(&word(3)));
    tmux.tell(&["copy-mode"]);
    tmux.tell(&["send-keys", "-X", "search-backward", &word(3)]);
    assert!(tmux.ask("copy_cursor_line").contains(&word(3)), "{}", tmux.ask("copy_cursor_line"));
    tmux.tell(&["send-keys", "-X", "select-line"]);
    tmux.tell(&["send-keys", "-X", "copy-selection-and-cancel"]);
    assert!(tmux.tell(&["show-buffer"]).contains(&format!("{} 漢字", word(3))));
    tmux.quit();
    stand_once(&tmux, 80);
}

#[test]
fn a_card_waits_for_a_key_and_not_for_a_paste() {
    let llm = asks();
    let Some(tmux) = open(&llm) else { return };
    tmux.aye("");
    // Two pasted lines are not two messages.
    tmux.tell(&["set-buffer", "do it\nnow"]);
    tmux.tell(&["paste-buffer", "-p"]);
    tmux.wait("two lines", |screen| screen.contains("do it") && screen.contains("now"));
    assert!(llm.asked().is_empty(), "a paste sends nothing");
    tmux.key("Enter");
    tmux.card(TOUCH);
    assert!(llm.asked()[0].body.to_string().contains("do it\\nnow"));
    tmux.tell(&["set-buffer", "y\n"]);
    tmux.tell(&["paste-buffer", "-p"]);
    tmux.wait("the paste", |screen| screen.lines().any(|line| line.starts_with("❯ y")));
    assert_eq!(tmux.home.read("log.txt"), "");
    assert_eq!(tmux.home.open().len(), 1, "a paste does not answer");
    tmux.key("C-u");
    tmux.key("BSpace");
    tmux.wait("the withdrawal", |screen| !screen.lines().any(|line| line.starts_with("❯ y")));
    // Nobody types any more: the card takes the keys by itself. A Tab that comes after that would leave it.
    tmux.card(TOUCH);
    tmux.send("y");
    tmux.shows("It is done … 👍 end.");
    assert_eq!(tmux.home.read("log.txt"), "ran\n");
    for text in ["I will, 漢字 “now”.", "It is done … 👍 end."] {
        assert_eq!(tmux.count(text), 1, "{text}\n{}", tmux.all());
    }
    tmux.quit();
}

#[test]
fn after_a_kill_the_same_pane_shows_the_same_card() {
    let llm = asks();
    let Some(tmux) = open(&llm) else { return };
    tmux.aye("");
    tmux.say("do it");
    tmux.card(TOUCH);
    let id = tmux.home.question();
    tmux.kill_aye();
    // As users do it: the terminal is as the program had it.
    tmux.wait_for("the shell", || tmux.ask("pane_current_command") != "aye");
    tmux.send("stty sane; clear");
    tmux.key("C-j");
    tmux.wait("an empty pane", |screen| screen.trim_end() == "shell>");
    tmux.aye("-c");
    tmux.card(TOUCH);
    assert_eq!(tmux.home.question(), id);
    assert_eq!(llm.asked().len(), 1, "the model is not asked again");
    tmux.send("y");
    tmux.shows("It is done … 👍 end.");
    assert_eq!(tmux.home.read("log.txt"), "ran\n");
    tmux.quit();
}

#[test]
fn the_wheel_and_selection_work_on_the_full_screen() {
    let llm = MockLlm::by(|_| Answer::say(&format!("{}\nThat was all.\n", list(0..60))));
    let Some(tmux) = open(&llm) else { return };
    let tty = tmux.attach();
    tmux.aye("--screen full");
    assert_eq!((tmux.ask("alternate_on"), tmux.ask("mouse_sgr_flag")), ("1".into(), "1".into()));
    tmux.say("talk");
    tmux.shows("That was all.");
    // The bytes that a terminal sends to tmux, which forwards them.
    tty.send("\x1b[<64;5;5M\x1b[<64;5;5M");
    tmux.wait("the text above", |screen| screen.contains("more below") && !screen.contains("That was all."));
    let row = tmux.screen().lines().position(|line| line.contains(&word(50))).expect("a row") + 1;
    tty.send(&format!("\x1b[<0;1;{row}M"));
    tty.send(&format!("\x1b[<32;30;{row}M"));
    tty.send(&format!("\x1b[<0;30;{row}m"));
    tmux.shows("copied selection");
    tmux.wait_for("the text in tmux's buffer", || {
        tmux.tell(&["list-buffers"]).contains(&word(50)) && tmux.tell(&["show-buffer"]).contains("漢字")
    });
    tty.send("\x1b[<65;5;5M\x1b[<65;5;5M");
    tmux.shows("That was all.");
    assert_eq!(tmux.ask("pane_in_mode"), "0", "the program handled the wheel");
    tmux.quit();
    stand_once(&tmux, 60);
}

#[test]
fn copied_text_is_in_the_tmux_buffer() {
    let llm = MockLlm::by(|_| Answer::say("Copy **this** 漢字."));
    let Some(tmux) = open(&llm) else { return };
    tmux.aye("");
    tmux.say("talk");
    tmux.shows("Copy this 漢字.");
    tmux.say("/copy");
    tmux.wait_for("a buffer", || !tmux.tell(&["list-buffers"]).is_empty());
    assert_eq!(tmux.tell(&["show-buffer"]), "Copy **this** 漢字.");
    tmux.quit();
}

#[test]
fn an_unfocused_user_is_notified() {
    for looks in [true, false] {
        let llm = asks();
        let Some(tmux) = open(&llm) else { return };
        let tty = tmux.attach();
        tmux.aye("");
        tty.send("\x1b[I");
        if !looks {
            tty.send("\x1b[O");
        }
        // Focus reports are not text.
        tmux.say("do it");
        tmux.card(TOUCH);
        let rung = || tty.raw().contains(&7);
        if looks {
            assert!(!rung(), "a viewer needs no notification");
        } else {
            tmux.wait_for("the bell", rung);
        }
        assert!(llm.asked()[0].body.to_string().contains("\"do it\""));
        tty.send("\x1b[I");
        tmux.send("y");
        tmux.shows("It is done … 👍 end.");
        tmux.quit();
    }
}

#[test]
fn resizing_the_window_keeps_each_line_once() {
    let gates: Vec<Gate> = (0..6).map(|_| Gate::default()).collect();
    let waits = gates.clone();
    let llm = MockLlm::by(move |chat: &Chat| {
        let long = |from: usize| {
            let words: Vec<String> = (from..from + 20).map(word).collect();
            format!("{}\n\n```rust\nlet {} = \"漢字\";\n```\n\n", words.join(" 漢字 "), word(from + 20))
        };
        let first = 60 + chat.nth * 63;
        let mut answer = if chat.nth == 0 { Answer::say(&(list(0..60) + "\n")) } else { Answer::new() };
        for (n, gate) in waits.iter().skip(chat.nth * 3).take(3).enumerate() {
            answer = answer.text(&long(first + n * 21)).wait(gate);
        }
        answer.text(&format!("\nThat was answer {}.\n", chat.nth))
    });
    let Some(tmux) = open(&llm) else { return };
    // A shell that ignores a stopped program.
    tmux.run("set +m; aye");
    let sizes = [(70, 30), (140, 30), (100, 40), (81, 30), (120, 50), (100, 30)];
    for (n, (gate, (columns, rows))) in gates.iter().zip(sizes).enumerate() {
        if n % 3 == 0 {
            tmux.say("talk");
        }
        tmux.shows(&word(60 + n * 21 + 20));
        tmux.resize_calmly(columns, rows);
        gate.open();
        if n % 3 == 2 {
            tmux.shows(&format!("That was answer {}.", n / 3));
        }
    }
    stand_once(&tmux, 60 + 6 * 21);
    tmux.quit();
    stand_once(&tmux, 60 + 6 * 21);
}

/// tmux has its new size at once, and notifies the program up to a quarter of a second later: frames drawn
/// meanwhile may leave copies of unfinished text, but lose no finished line.
#[test]
fn dragging_a_border_loses_no_line() {
    let gates: Vec<Gate> = (0..4).map(|_| Gate::default()).collect();
    let waits = gates.clone();
    let piece = |from: usize| {
        let words: Vec<String> = (from..from + 20).map(word).collect();
        format!("{}\n\n```rust\nlet {} = \"漢字\";\n```\n\n", words.join(" 漢字 "), word(from + 20))
    };
    let llm = MockLlm::by(move |_| {
        let mut answer = Answer::say(&(list(0..60) + "\n"));
        for (n, gate) in waits.iter().enumerate() {
            answer = answer.text(&piece(60 + n * 21)).wait(gate);
        }
        answer.text("\nThat was all.\n")
    });
    let Some(tmux) = open(&llm) else { return };
    tmux.aye("");
    tmux.say("talk");
    for (n, gate) in gates.iter().enumerate() {
        tmux.shows(&word(60 + n * 21 + 20));
        for columns in [70, 64, 90, 140, 120, 70, 131, 100] {
            tmux.tell(&["resize-window", "-x", &columns.to_string(), "-y", "40"]);
            std::thread::sleep(std::time::Duration::from_millis(20 + 30 * n as u64));
        }
        gate.open();
    }
    tmux.shows("That was all.");
    tmux.quit();
    let all = tmux.all();
    let found = regex::Regex::new(r"w(\d{4})e").expect("a pattern");
    let found: Vec<usize> = found.captures_iter(&all).filter_map(|word| word[1].parse().ok()).collect();
    let mut seen = std::collections::HashSet::new();
    let mut last: Vec<usize> = found.iter().rev().copied().filter(|word| seen.insert(*word)).collect();
    last.reverse();
    assert_eq!(last, (0..60 + 4 * 21).collect::<Vec<_>>(), "{all}");
}
