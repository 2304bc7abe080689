//! Themes, keys, the status line, the first start and screen reader mode, in a terminal.

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm, until};
use crate::support::pty::Pty;

fn answers() -> MockLlm {
    MockLlm::answers([Answer::say("Hello there.")])
}

#[test]
fn a_theme_is_previewed_and_kept() {
    let llm = answers();
    let home = Home::with(&llm);
    home.write("../aye/config/themes/mine.toml", "inherits = \"nord\"\n[roles]\nstatus = \"#010203\"\n");
    let mut tty =
        Pty::start_with(&home, &["--config", "theme=default"], 100, 30, &[("COLORTERM", "truecolor")]);
    tty.ready();
    assert!(!tty.raw().windows(5).any(|w| w == b"]11;?"), "the theme `default` sends no query");
    tty.say("/theme");
    tty.shows("the terminal's own colours");
    assert!(tty.raw().windows(5).any(|w| w == b"]11;?"));
    tty.send("mine");
    until("its colours", || tty.raw().windows(10).any(|w| w == b"38;2;1;2;3"));
    tty.send("\x1b");
    tty.wait("the list is closed", |view| !view.has("Themes"));
    assert!(!home.read("../aye/config/config.toml").contains("theme"));
    // By name; the other settings stay.
    tty.say("/theme solarized");
    until("the stored value", || {
        home.read("../aye/config/config.toml").contains("theme = \"solarized\"\n[providers.mock]")
    });
    tty.send("\x1b]11;rgb:ffff/ffff/ffff\x1b\\");
    tty.say("hello");
    tty.shows("Hello there.");
    assert!(!tty.look(|view| view.all().contains("rgb:")), "a terminal reply is not typed text");
    tty.quit();
    tty.is_restored();
    let out = home.aye(&["--config", "theme=nope", "config", "show"]).run();
    assert!(out.stdout.contains("nope"));
}

#[test]
fn sixteen_colours_are_enough() {
    let llm = answers();
    let home = Home::with(&llm);
    let mut tty = Pty::start_with(&home, &["--config", "theme=nord"], 80, 24, &[("TERM", "xterm")]);
    tty.ready();
    tty.say("hello");
    tty.shows("Hello there.");
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    assert!(!raw.contains("38;2;") && !raw.contains("38;5;2"), "{raw:?}");
    tty.quit();
}

#[test]
fn key_sequences_work_and_an_invalid_key_file_is_reported() {
    let llm = answers();
    let home = Home::with(&llm);
    home.write("../aye/config/keymap.toml", "[global]\n\"ctrl-x k\" = \"help\"\n");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.send("?");
    tty.shows("Composer, empty (now)");
    tty.send("\x1b");
    tty.wait("the help is closed", |view| !view.has("Composer, empty (now)"));
    tty.send("hi\x18");
    tty.shows("Ctrl-X …");
    tty.send("k");
    tty.shows("Keys and commands");
    tty.send("\x1b");
    tty.wait("the help is closed", |view| !view.has("Keys and commands"));
    tty.shows("❯ hi");
    tty.send("\x15");
    tty.quit();

    home.write("../aye/config/keymap.toml", "[global]\n\n\"ctrl-x\" = \"redraw\"\n");
    let tty = Pty::start(&home, &[], 100, 30);
    tty.shows("keymap.toml:3: 'Ctrl-X' is 'redraw' here");
    tty.kill();
}

#[test]
fn a_command_writes_the_status_line_and_titles_come_and_go() {
    let llm = answers();
    let home = Home::with(&llm);
    home.write("line.sh", "#!/bin/sh\necho x >> times\nsed 's/.*\"state\":\"\\([a-z]*\\)\".*/it is \\1/'\n");
    let script = home.work().join("line.sh");
    let config = home.read("../aye/config/config.toml");
    let config = format!("{config}[tui]\nstatus_command = [\"sh\", \"{}\"]\n", script.display());
    home.config(&config);
    let mut tty = Pty::start_with(&home, &[], 100, 30, &[("TERM_PROGRAM", "ghostty")]);
    tty.ready();
    tty.shows("it is idle");
    tty.say("hello");
    tty.shows("Hello there.");
    tty.shows("it is idle");
    let told = |text: &str| String::from_utf8_lossy(&tty.raw()).contains(text);
    assert!(told("\x1b[22;2t\x1b]2;work · aye\x1b\\"));
    until("progress that ends", || told("\x1b]9;4;3;0\x1b\\") && told("\x1b]9;4;0;0\x1b\\"));
    tty.quit();
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    assert!(raw.contains("\x1b[23;2t"), "the previous title is restored");
    let times = home.read("times").lines().count();
    assert!((1..=4).contains(&times), "{times} starts");
    // A project cannot set a command.
    home.write(".aye/config.toml", "[tui]\nstatus_command = [\"touch\", \"pwned\"]\n");
    let out = home.aye(&["--trust", "config", "show"]).run();
    let all = format!("{}{}", out.stdout, out.stderr);
    assert!(all.contains("status_command"), "{all}");
    assert!(!home.work().join("pwned").exists());
}

#[test]
fn the_first_start_asks_nothing_and_swallows_nothing() {
    let home = Home::new();
    std::fs::remove_file(home.work().join("../aye/state/started")).expect("existed");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.send("typed at once");
    tty.shows("I am the demo model");
    tty.shows("type /login");
    tty.shows("typed at once");
    assert!(!tty.look(|view| view.has("Enter use") || view.has("Models")), "no list is open");
    assert_eq!(tty.look(|view| view.all().matches("I am the demo model").count()), 1);
    // Ctrl-U: an unsent draft would be restored at the next start.
    tty.send("\x15");
    tty.ready();
    tty.quit();
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    assert!(!tty.look(|view| view.has("I am the demo model")));
    tty.quit();
    std::fs::remove_file(home.work().join("../aye/state/started")).expect("existed");
    let mut tty = Pty::start_with(&home, &[], 100, 30, &[("ANTHROPIC_API_KEY", "k")]);
    tty.shows("Using anthropic/claude-sonnet-5 (ANTHROPIC_API_KEY is set)");
    tty.ready();
    tty.quit();
}

#[test]
fn a_screen_reader_gets_lines_and_answers_in_words() {
    let llm = MockLlm::answers([
        Answer::say("I will.").bash("c1", "echo ran >> log.txt"),
        Answer::say("| a | b |\n|---|---|\n| 1 | 2 |\n\nIt is done."),
    ]);
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &["--screen-reader"], 80, 30);
    tty.shows("> ");
    tty.send("do it\r");
    tty.shows("Question 1 of 1.");
    tty.shows("echo ran >> log.txt");
    tty.shows("Answer with yes, no");
    tty.card_takes_keys();
    tty.send("yes\r");
    tty.shows("It is done.");
    assert_eq!(home.read("log.txt"), "ran\n");
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    let drawn = |c: char| ('\u{2500}'..='\u{257f}').contains(&c) || ('\u{2800}'..='\u{28ff}').contains(&c);
    assert!(!raw.contains(drawn), "{raw:?}");
    for moves in ["\x1b[J", "\x1b[A", "\x1b[K", "\x1b[2K"] {
        assert!(!raw.contains(moves), "{moves:?} in {raw:?}");
    }
    assert_eq!(raw.matches("Question 1 of 1.").count(), 1);
    tty.quit();
    tty.is_restored();
}

#[test]
fn a_screen_reader_reads_each_choice_once() {
    let question = serde_json::json!({
        "question": "Which colour?",
        "choices": [{"label": "red"}, {"label": "blue", "description": "like the sky"}],
    });
    let llm =
        MockLlm::answers([Answer::new().call("q1", "AskUser", question), Answer::say("So be it: blue.")]);
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &["--screen-reader"], 80, 30);
    tty.shows("> ");
    tty.send("ask me\r");
    tty.shows("choice 3 of 3: skip this question");
    tty.shows("Type the number of a choice, then Enter");
    tty.send("\t");
    tty.shows("question>");
    // The question must be readable for a while.
    std::thread::sleep(std::time::Duration::from_millis(700));
    tty.send("2");
    tty.shows("At choice 2 of 3: blue");
    tty.send("\r");
    tty.shows("So be it: blue.");
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    assert_eq!(raw.matches("choice 1 of 3").count(), 1, "{raw}");
    assert!(!raw.contains(['│', '▌', '▸']), "{raw}");
    tty.quit();
}

#[test]
fn doctor_reports_what_the_terminal_can_do() {
    let home = Home::new();
    let out = home.aye(&["doctor"]).env("TERM", "tmux-256color").env("TMUX", "/tmp/t,1,0").run();
    for text in ["256 colours", "in tmux", "extended-keys", "set-clipboard on", "focus-events on"] {
        assert!(out.stdout.contains(text), "{text} in {}", out.stdout);
    }
}

#[test]
fn the_session_is_described_and_other_names_of_commands_are_known() {
    let llm = answers();
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("/status");
    tty.shows("mock/m1");
    // Who is asked with which key, and which files set that.
    for text in ["$MOCK_KEY", "MCP servers", "aye/config/config.toml", "conversation"] {
        tty.shows(text);
    }
    tty.say("/settings");
    // Longer than the screen: it opens above the conversation, at its start.
    tty.shows("background.wake");
    tty.send("q");
    tty.wait("the page is closed", |view| !view.has("background.wake"));
    tty.say("/init");
    tty.shows("Hello there.");
    assert!(llm.last().user().starts_with("Write an AGENTS.md for this project"), "{}", llm.last().user());
    tty.say("/exit");
    assert!(tty.end().success());
}

#[test]
fn init_proposes_checks_that_fit_the_project() {
    let llm = answers();
    let home = Home::with(&llm);
    home.ok(&["-p", "/init"]);
    assert!(!llm.last().user().contains("[checks]"), "nothing that could be checked");
    home.write("Cargo.toml", "[package]\n");
    home.ok(&["-p", "/init"]);
    let asked = llm.last().user();
    assert!(asked.contains("[checks]\n\"*.rs\" = \"cargo check -q --message-format short\"\n"), "{asked}");
    home.ok(&["-p", "/init", "--config", "checks={\"*.rs\"=\"true\"}"]);
    assert!(!llm.last().user().contains("[checks]"), "there are some");
}
