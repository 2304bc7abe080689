//! The content of the terminal after a conversation, however its window changed meanwhile.
//!
//! `AYE_SCREEN_SECONDS` extends the random part, `AYE_SCREEN_SEED` repeats one conversation.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, Gate, MockLlm};
use crate::support::pty::Pty;
use fastrand::Rng;

const ESC: &str = "\x1b";

/// Words to count: none of them is part of another.
fn word(n: usize) -> String {
    format!("w{n:04}e")
}

/// The counted words in the content of a terminal, in order; broken lines are joined.
fn words(lines: &[String]) -> Vec<usize> {
    let text: String = lines.concat().chars().filter(|c| !c.is_whitespace()).collect();
    let found = regex::Regex::new(r"w(\d{4})e").expect("a pattern");
    found.captures_iter(&text).filter_map(|word| word[1].parse().ok()).collect()
}

/// A conversation: the user's messages and the model's answers, chunk by chunk.
struct Plan {
    /// The answers; the chunks of one are released one by one.
    answers: Vec<Vec<String>>,
    /// Whether a question follows an answer.
    asks: Vec<bool>,
    count: usize,
}

impl Plan {
    fn random(random: &mut Rng) -> Plan {
        let mut plan = Plan { answers: Vec::new(), asks: Vec::new(), count: 1 };
        // The first answer fills the screen.
        let lines: Vec<String> = (0..60).map(|_| format!("- {}\n", plan.next())).collect();
        let lines = lines.concat();
        plan.answers.push(vec![lines + "\n"]);
        plan.asks.push(false);
        for turn in 0..=random.usize(..3) {
            plan.count += 1; // The user's message.
            let pieces = (0..=random.usize(..8)).map(|_| plan.piece(random)).collect();
            plan.answers.push(pieces);
            plan.asks.push(turn > 0 && random.usize(..3) == 0);
        }
        plan
    }

    fn next(&mut self) -> String {
        self.count += 1;
        word(self.count - 1)
    }

    fn some(&mut self, most: usize, random: &mut Rng) -> String {
        let words: Vec<String> = (0..=random.usize(..most))
            .map(|_| match random.usize(..8) {
                0 => format!("漢字 {}", self.next()),
                1 => format!("**{}**", self.next()),
                2 => format!("{} 👍", self.next()),
                _ => self.next(),
            })
            .collect();
        words.join(" ")
    }

    fn piece(&mut self, random: &mut Rng) -> String {
        let mut text = String::new();
        match random.usize(..6) {
            0 => {
                let _ = write!(text, "## {}\n\n", self.some(4, random));
            }
            1 => {
                for _ in 0..=random.usize(..6) {
                    let _ = writeln!(text, "- {}", self.some(8, random));
                }
                text.push('\n');
            }
            2 => {
                text.push_str("```rust\n");
                for _ in 0..=random.usize(..12) {
                    let _ = writeln!(text, "{}({});", self.next(), self.next());
                }
                text.push_str("```\n\n");
            }
            3 => {
                let _ = write!(text, "> {}\n\n", self.some(20, random));
            }
            _ => {
                let _ = write!(text, "{}\n\n", self.some(60, random));
            }
        }
        text
    }
}

/// Whether the windows of a conversation always have room for the whole live region. If not, a terminal moves
/// rows to its scrollback before they can be removed: copies of unfinished text may stay there, above the
/// finished one.
fn has_room(seed: u64) -> bool {
    seed % 2 == 1
}

/// Plays one conversation and returns the final content of the terminal and the expected number of words.
fn play(seed: u64) -> (Vec<String>, usize) {
    let mut random = Rng::with_seed(seed);
    let plan = Plan::random(&mut random);
    let gates: Vec<Vec<Gate>> =
        plan.answers.iter().map(|pieces| pieces.iter().map(|_| Gate::default()).collect()).collect();
    let answers: Vec<Answer> = plan
        .answers
        .iter()
        .zip(&gates)
        .zip(&plan.asks)
        .enumerate()
        .map(|(turn, ((pieces, gates), asks))| {
            let answer = pieces.iter().zip(gates).fold(Answer::new(), |answer, (piece, gate)| {
                // In small chunks, as tokens arrive.
                let chars: Vec<char> = piece.chars().collect();
                chars
                    .chunks(7)
                    .fold(answer, |answer, part| answer.text(&part.iter().collect::<String>()))
                    .wait(gate)
            });
            if *asks { answer.bash(&format!("c{turn}"), "touch made") } else { answer }
        })
        .collect();
    let mut queue = answers.into_iter();
    let llm = MockLlm::by(move |_: &Chat| queue.next().unwrap_or_else(|| Answer::say("NO MORE")));
    let home = Home::with(&llm);
    let mut tty = Pty::start_with(&home, &[], 100, 50, &[("VTE_VERSION", "7600")]);
    tty.ready();

    let (mut said, mut turn, mut stopped) = (0, 0, 0);
    for ((pieces, gates), asks) in plan.answers.iter().zip(&gates).zip(&plan.asks) {
        tty.send(&word(said));
        said += 1;
        tty.send("\r");
        for (piece, gate) in pieces.iter().zip(gates) {
            said += piece.matches('w').count();
            let last = word(said - 1);
            tty.wait(&format!("{last}, seed {seed}"), |view| {
                view.reflowing().lines().concat().contains(&last)
            });
            for _ in 0..random.usize(..3) {
                resize(&tty, &mut random, has_room(seed));
            }
            gate.open();
        }
        if *asks {
            tty.wait(&format!("a card, seed {seed}"), |view| {
                view.reflowing().screen().iter().any(|line| line.contains("touch made"))
            });
            for _ in 0..random.usize(..4) {
                resize(&tty, &mut random, has_room(seed));
            }
            // A key pressed sooner than a user can read does not answer.
            std::thread::sleep(Duration::from_millis(700));
            tty.send("\x1b");
            stopped += 1;
            tty.wait(&format!("that it stopped, seed {seed}"), |view| {
                view.reflowing().lines().concat().matches("interrupted").count() == stopped
            });
        }
        turn += 1;
        // Only a frame drawn for this size counts.
        let before = tty.look(|view| view.written());
        tty.resize_calmly(100 + turn, 50);
        tty.wait(&format!("the end of a turn, seed {seed}"), |view| {
            let screen = view.reflowing().screen();
            view.written() > before
                && screen.iter().any(|line| line.starts_with('❯'))
                && screen.iter().any(|line| line.contains("m1 ·"))
                && !screen.iter().any(|line| line.contains("working") || line.contains("Allow once"))
        });
    }
    tty.quit();
    let mut lines = tty.look(|view| view.reflowing().lines());
    // The goodbye begins with the title, which is the first message once more.
    if let Some(end) = lines.iter().rposition(|line| line.contains("aye -r ")) {
        lines.truncate(end.saturating_sub(2));
    }
    (lines, plan.count)
}

fn resize(tty: &Pty, random: &mut Rng, has_room: bool) {
    if has_room {
        tty.resize_calmly(random.usize(70..=140) as u16, 50);
        return;
    }
    let columns = if random.usize(..3) == 0 { random.usize(20..=400) } else { random.usize(20..=120) };
    let rows = if random.usize(..3) == 0 { random.usize(5..=12) } else { random.usize(12..=60) };
    tty.resize_calmly(columns as u16, rows as u16);
    if random.usize(..2) == 0 {
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn resizes_and_streams_keep_each_line_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let end = Instant::now() + Duration::from_secs(number("AYE_SCREEN_SECONDS").unwrap_or(15));
    let only = number("AYE_SCREEN_SEED");
    let mut seed = only.unwrap_or(1);
    let mut again = true;
    loop {
        let (lines, count) = play(seed);
        let found = words(&lines);
        let expected: Vec<usize> = (0..count).collect();
        let mut seen = std::collections::HashSet::new();
        let last: Vec<usize> = found.iter().rev().copied().filter(|word| seen.insert(*word)).collect();
        let found = if has_room(seed) { found } else { last.into_iter().rev().collect() };
        if found != expected && again {
            // Nothing can rule out a window change between the last size query and the write of a frame. Then
            // a row of an older frame may stay. It is rare: two failures of one conversation are a defect.
            again = false;
            continue;
        }
        assert!(found == expected, "AYE_SCREEN_SEED={seed}: {found:?} of {count}\n{}", lines.join("\n"));
        again = true;
        if only.is_some() || Instant::now() >= end {
            return;
        }
        seed += 1;
    }
}

/// A model that answers with this number of lines and a code block.
fn talks() -> MockLlm {
    MockLlm::by(|chat: &Chat| {
        let lines: Vec<String> = (0..60).map(|n| format!("- {} of {}\n", word(n), chat.nth)).collect();
        let lines = lines.concat();
        Answer::say(&format!("{lines}\n```sh\necho hi\n```\n\nThat was answer {}.\n", chat.nth))
    })
}

/// How often each word of the answers appears in a terminal.
fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn the_viewer_searches_copies_opens_and_leaves_no_trace() {
    let llm = talks();
    let home = Home::with(&llm);
    home.write("edit.sh", "cp \"$1\" seen.txt");
    let mut tty = Pty::start_with(&home, &[], 80, 24, &[("EDITOR", "sh edit.sh")]);
    tty.ready();
    tty.say("talk");
    tty.shows("That was answer 0.");
    tty.send("\x0f");
    tty.wait("the viewer", |view| view.on_other_screen() && view.has("2/2"));
    tty.send("/W0007E\r");
    tty.wait("the match", |view| view.has("w0007e of 0"));
    tty.send("y");
    tty.wait("the copy notice", |view| view.has("copied source"));
    assert!(String::from_utf8_lossy(&tty.raw()).contains("\x1b]52;c;"));
    tty.send("v");
    crate::support::llm::until("the editor", || home.read("seen.txt").contains("- w0059e of 0"));
    tty.wait("the viewer again", |view| view.on_other_screen() && view.has("w0007e of 0"));
    tty.resize_calmly(60, 20);
    tty.send("q");
    tty.wait("the screen below", |view| !view.on_other_screen() && view.has("❯"));
    tty.quit();
    tty.is_restored();
    let lines = tty.look(|view| view.reflowing().lines());
    assert!((0..60).all(|n| count(&lines, &format!("{} of 0", word(n))) == 1), "{}", lines.join("\n"));
}

#[test]
fn the_full_screen_scrolls_and_everything_is_in_the_scrollback_afterwards() {
    let llm = talks();
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &["--screen", "full"], 80, 24);
    tty.wait("the prompt", |view| view.on_other_screen() && view.has("❯"));
    tty.say("talk");
    tty.wait("the answer", |view| view.has("That was answer 0."));
    tty.send(&format!("{ESC}[<64;5;5M{ESC}[<64;5;5M"));
    tty.wait("the text above", |view| view.has("more below") && !view.has("That was answer 0."));
    // Select from one word to its end.
    let row = tty.look(|view| view.screen().lines().position(|line| line.contains("w0055e"))).expect("a row");
    tty.send(&format!("{ESC}[<0;1;{r}M{ESC}[<32;30;{r}M{ESC}[<0;30;{r}m", r = row + 1));
    tty.wait("the copy notice", |view| view.has("copied selection"));
    tty.send(&format!("{ESC}[6~{ESC}[6~"));
    tty.wait("the end", |view| view.has("That was answer 0."));
    tty.send("/screen\r");
    tty.wait("the scrollback", |view| !view.on_other_screen() && view.has("That was answer 0."));
    tty.send("/screen\r");
    tty.wait("the other screen", |view| view.on_other_screen() && view.has("❯"));
    tty.say("and again");
    tty.wait("the second answer", |view| view.has("That was answer 1."));
    tty.quit();
    tty.is_restored();
    let lines = tty.look(|view| view.reflowing().lines());
    for turn in 0..2 {
        assert!(
            (0..60).all(|n| count(&lines, &format!("{} of {turn}", word(n))) == 1),
            "answer {turn}\n{}",
            lines.join("\n")
        );
    }
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
        let mut tty = Pty::start(&home, &["--screen", "full"], 80, 24);
        tty.wait("the prompt", |view| view.on_other_screen() && view.has("❯"));
        tty.signal(signal);
        tty.end();
        tty.is_restored();
    }
}

/// Keys as sent by a terminal.
const KEYS: &[&str] = &[
    "a",
    "y",
    "n",
    "q",
    "v",
    "/",
    "#",
    "[",
    "]",
    "g",
    "G",
    " ",
    "\\",
    "漢",
    "👍",
    "\r",
    "\n",
    "\t",
    "\x7f",
    "\x1b[A",
    "\x1b[B",
    "\x1b[C",
    "\x1b[D",
    "\x1b[5~",
    "\x1b[6~",
    "\x1b[H",
    "\x1b[F",
    "\x1b[Z",
    "\x0f",
    "\x14",
    "\x0c",
    "\x15",
    "\x17",
    "\x19",
    "\x1b",
    "\x1bo",
    "\x1b/",
    "\x1b[I",
    "\x1b[O",
    "\x1b[<64;3;3M",
    "\x1b[<65;3;3M",
    "\x1b[<0;3;3M",
    "\x1b[<32;9;5M",
    "\x1b[<0;9;5m",
    "/screen\r",
    "/help\r",
    "\x1b[97;5u",
    "\x1b[99",
    "\x1bOP",
    "\u{fffd}",
];

#[test]
fn random_keys_sizes_and_signals_leave_no_raw_mode_behind() {
    use rustix::process::Signal;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let end = Instant::now() + Duration::from_secs(number("AYE_FUZZ_SECONDS").unwrap_or(10));
    let only = number("AYE_FUZZ_SEED");
    let (mut seed, mut steps) = (only.unwrap_or(1), 0);
    loop {
        let mut random = Rng::with_seed(seed);
        let llm = MockLlm::by(|chat: &Chat| match chat.nth % 3 {
            0 => Answer::say("# One\n\ntext\n").bash(&format!("c{}", chat.nth), "true"),
            1 => Answer::say("- a\n- b\n\n```rust\nfn f() {}\n```\n"),
            _ => Answer::say("Two."),
        });
        let home = Home::with(&llm);
        let args: &[&str] = if random.usize(..3) == 0 { &["--screen", "full"] } else { &[] };
        let mut tty = Pty::start_with(&home, args, 80, 24, &[("EDITOR", "true")]);
        tty.ready();
        let some = random.usize(20..=150);
        steps += some;
        for _ in 0..some {
            match random.usize(..16) {
                0 => tty.resize(random.usize(1..=200) as u16, random.usize(1..=60) as u16),
                1 => tty.paste(&"pasted\n".repeat(random.usize(..30))),
                2 => tty.send("say it\r"),
                3 => tty.try_signal([Signal::WINCH, Signal::CONT, Signal::PIPE][random.usize(..3)]),
                _ => tty.send(KEYS[random.usize(..KEYS.len())]),
            }
            if random.usize(..8) == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        tty.try_signal([Signal::TERM, Signal::HUP][random.usize(..2)]);
        let status = tty.end();
        let raw = tty.raw();
        assert!(!String::from_utf8_lossy(&raw).contains("panicked"), "AYE_FUZZ_SEED={seed}: {status}");
        assert_ne!(status.code(), Some(101), "AYE_FUZZ_SEED={seed}");
        tty.is_restored();
        if only.is_some() || Instant::now() >= end {
            println!("{steps} steps, the last ones with AYE_FUZZ_SEED={seed}");
            return;
        }
        seed += 1;
    }
}
