//! Keys, pastes, sizes, the mouse and agent events in any order: nothing panics, nothing is drawn outside the
//! screen.
//!
//! 100,000 steps or 30 seconds. `AYE_FUZZ_SECONDS` extends the time, `AYE_FUZZ_SEED` repeats one
//! conversation.

use std::time::{Duration, Instant};

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::*;
use crate::host::ThreadMsg;

use fastrand::Rng;

const STEPS: usize = 400;
const KEYS: &[&str] = &[
    "y",
    "n",
    "a",
    "e",
    "h",
    "u",
    "m",
    "c",
    "R",
    "D",
    "t",
    "w",
    "r",
    "d",
    "s",
    "q",
    "v",
    "V",
    "g",
    "G",
    "[",
    "]",
    "T",
    "C",
    "N",
    "#",
    "2",
    "/",
    "@",
    " ",
    "x",
    "漢",
    "👍",
    "\u{301}",
    "\\",
    "<enter>",
    "<esc>",
    "<tab>",
    "<up>",
    "<down>",
    "<left>",
    "<right>",
    "<backspace>",
    "<pageup>",
    "<pagedown>",
    "<home>",
    "<end>",
    "<ctrl-o>",
    "<alt-o>",
    "<ctrl-t>",
    "<ctrl-c>",
    "<ctrl-l>",
    "<ctrl-u>",
    "<ctrl-w>",
    "<ctrl-y>",
    "<ctrl-j>",
    "<alt-/>",
    "<alt-q>",
    "<shift-tab>",
    "/screen<enter>",
    "/help<enter>",
    "/mode<enter>",
    "/new<enter>",
];
const TEXTS: &[&str] = &[
    "word ",
    "\n",
    "\n\n",
    "# head\n",
    "- item\n",
    "```rust\n",
    "fn f() {}\n",
    "```\n",
    "| a | b |\n|---|---|\n",
    "> q\n",
    "**bold",
    "漢字",
    "👍🏽",
    "e\u{301}",
    "\u{1b}[31m",
    "\u{202e}",
    "\t",
    "`x`",
    "1. one\n",
    "x",
];

/// Prints the seed of a conversation that fails.
struct PrintSeed(u64);

impl Drop for PrintSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("AYE_FUZZ_SEED={}", self.0);
        }
    }
}

fn event(random: &mut Rng) -> E {
    let id = format!("c{}", random.usize(..3));
    let outcome =
        [ToolCallOutcome::Succeeded, ToolCallOutcome::Failed, ToolCallOutcome::Cancelled][random.usize(..3)];
    match random.usize(..12) {
        0 => E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None },
        1 => E::StepStart { message_id: "m".into() },
        2 => E::StepEnd,
        3 => E::ReasoningDelta { delta: TEXTS[random.usize(..TEXTS.len())].into() },
        4 => E::ToolCallStart { id, name: ["Bash", "Edit", "TodoWrite"][random.usize(..3)].into() },
        5 => E::ToolCallReady {
            id,
            name: "Bash".into(),
            arguments: json!({"command": "ls\n\u{1b}", "todos": [{}]}),
        },
        6 => E::ToolCallDone {
            id,
            message_id: "m".into(),
            result: ToolResult::text("Bash", TEXTS[random.usize(..TEXTS.len())].repeat(random.usize(..40))),
            outcome,
        },
        7 => suspended(ticket(
            &id,
            "Bash",
            json!({"command": "git push"}),
            [ACTION_PERMISSION, ACTION_ASK_USER, ACTION_UNKNOWN_OUTCOME][random.usize(..3)],
            json!({"question": "which?", "choices": ["a", "b"], "rule": "ask"}),
        )),
        8 => E::RunFinish {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: None,
            termination: [
                TerminationReason::NaturalEnd,
                TerminationReason::Cancelled,
                TerminationReason::Suspended,
                TerminationReason::Error("it broke".into()),
            ][random.usize(..4)]
            .clone(),
        },
        _ => E::TextDelta { delta: TEXTS[random.usize(..TEXTS.len())].into() },
    }
}

fn step(test: &mut TestApp, random: &mut Rng) {
    match random.usize(..20) {
        0 => test.wait(random.usize(..900) as u64),
        1 => {
            // Including sizes that no user has.
            let (width, height) = match random.usize(..4) {
                0 => (random.usize(1..=19), random.usize(1..=6)),
                1 => (random.usize(20..=400), random.usize(5..=100)),
                _ => (random.usize(20..=120), random.usize(5..=50)),
            };
            test.send(Msg::Resize(width as u16, height as u16));
        }
        2 => {
            let text: String = (0..random.usize(..30)).map(|_| TEXTS[random.usize(..TEXTS.len())]).collect();
            test.send(Msg::Paste(text));
        }
        3 => {
            let kind = [
                MouseEventKind::ScrollUp,
                MouseEventKind::ScrollDown,
                MouseEventKind::Down(MouseButton::Left),
                MouseEventKind::Drag(MouseButton::Left),
                MouseEventKind::Up(MouseButton::Left),
                MouseEventKind::Moved,
            ][random.usize(..6)];
            let (column, row) = (random.usize(..200) as u16, random.usize(..80) as u16);
            test.send(Msg::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        }
        4 => test.send(Msg::Focus(random.usize(..2) == 0)),
        5..=11 => test.keys(KEYS[random.usize(..KEYS.len())]),
        _ => test.event(event(random)),
    }
    if test.app.conversation.thread.is_none() || random.usize(..50) == 0 {
        test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
    }
    test.cmds.clear();
}

#[test]
fn no_sequence_of_events_breaks_the_screen() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let asked = number("AYE_FUZZ_SECONDS");
    let end = Instant::now() + Duration::from_secs(asked.unwrap_or(30));
    let only = number("AYE_FUZZ_SEED");
    let mut seed = only.unwrap_or(1);
    let mut steps = 0;
    loop {
        let _print_seed = PrintSeed(seed);
        let mut random = Rng::with_seed(seed);
        let mut test = TestApp::new(80, 24);
        for _ in 0..STEPS {
            step(&mut test, &mut random);
        }
        steps += STEPS;
        if only.is_some() || Instant::now() >= end || (asked.is_none() && steps >= 100_000) {
            println!("{steps} steps, the last ones with AYE_FUZZ_SEED={seed}");
            return;
        }
        seed += 1;
    }
}
