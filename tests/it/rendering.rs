//! The entries of a run as displayed, in the real program.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, Gate, MockLlm};
use crate::support::pty::Pty;

fn plan(first: &str, second: &str) -> serde_json::Value {
    json!({"todos": [
        {"content": "look around", "status": first}, {"content": "mend it", "status": second},
    ]})
}

#[test]
fn calls_are_grouped_the_plan_stays_and_links_work() {
    let gate = Gate::default();
    let hold = gate.clone();
    let llm = MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => Answer::say("I look.")
            .call("a", "TodoWrite", plan("in_progress", "pending"))
            .call("b", "Read", json!({"file_path": "one.rs"}))
            .call("c", "Read", json!({"file_path": "two.rs"})),
        3 => Answer::say("It is described at https://example.org/a.\n\n").wait(&hold).call(
            "d",
            "TodoWrite",
            plan("completed", "completed"),
        ),
        _ => Answer::say("The end."),
    });
    let home = Home::with(&llm);
    home.write("one.rs", "fn one() {}\n");
    home.write("two.rs", "fn two() {}\nfn three() {}\n");
    let mut tty = Pty::start_with(&home, &[], 90, 24, &[("FORCE_HYPERLINK", "1")]);
    tty.ready();
    tty.say("mend it");
    tty.shows("✓ Read 2 files · one.rs, two.rs");
    tty.shows("described at");
    tty.wait("the plan above the composer", |view| {
        view.has("\n  ▸ look around") && view.has("\n  ○ mend it")
    });
    tty.wait("the wait notice", |view| view.is_active() && view.has("answering"));
    gate.open();
    tty.shows("The end.");
    tty.wait("the end", |view| !view.is_active());
    assert!(!tty.look(|view| view.has("\n  ▸ look around")), "nothing is pending");
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    assert!(raw.contains(";https://example.org/a\x1b\\"), "the URL can be opened");
    assert_eq!(tty.look(super::support::pty::View::all).matches("Read 2 files").count(), 1);
    tty.quit();
}
