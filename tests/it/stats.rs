//! What was done, as `aye stats` and `/stats` tell it.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

/// A model that lists the folder, runs a command, and is done.
fn model() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "List", json!({"path": "."})),
        1 => Answer::new().bash("c2", "exit 3; touch x"),
        _ => Answer::say("End."),
    })
}

#[test]
fn calls_answers_and_waiting_are_counted() {
    let llm = model();
    let home = Home::with(&llm);
    home.ok(&["stats"]).says("nothing was done yet");
    home.aye(&["-p", "go"]).run().exits(3);
    home.ok(&["approve", &home.question(), "--resume"]).says("End.");
    let stats = home.ok(&["stats", "--json"]).json();
    assert_eq!(stats["total"]["answers"], 3, "{stats:#}");
    assert_eq!(stats["by_model"][0]["model"], "m1");
    assert_eq!(stats["total"]["questions"], 1);
    let waited = stats["total"]["waited_ms"].as_u64().expect("a number");
    let bash =
        &stats["by_tool"].as_array().expect("rows").iter().find(|row| row["tool"] == "Bash").expect("Bash");
    assert_eq!((&bash["calls"], &bash["waited_ms"]), (&json!(1), &json!(waited)));
    assert_eq!(stats["by_day"].as_array().map(Vec::len), Some(1));
    // It stays when the conversation goes.
    home.ok(&["threads", "delete", &home.thread()]);
    assert_eq!(home.ok(&["stats", "--json"]).json(), stats);
    home.ok(&["stats", "--by", "tool"]).says("List").says("Bash");
    home.ok(&["stats", "--since", "2030-01-01"]).says("nothing was done yet");
    home.aye(&["stats", "--since", "yesterday"]).run().exits(2);
}

#[test]
fn a_provider_that_fails_is_counted_and_the_terminal_shows_it() {
    let llm = MockLlm::by(|_: &Chat| Answer::error(400, "no"));
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run();
    let stats = home.ok(&["stats", "--json", "--by", "model"]).json();
    assert_eq!(stats["by_model"][0]["failed_runs"], 1, "{stats:#}");
    assert_eq!(stats["by_model"][0]["model"], "m1");
    let mut tty = Pty::start(&home, &[], 90, 30);
    tty.ready();
    tty.say("/stats model");
    tty.shows("answers");
    tty.shows("m1");
    tty.send("\u{1b}");
    tty.quit();
}
