//! Notes that outlive conversations, as seen by a user.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

/// A model that makes these calls on the word `call` and reports the outcome.
fn model(args: serde_json::Value) -> MockLlm {
    MockLlm::by(move |chat: &Chat| {
        let last = chat.messages().last().expect("a message");
        if last["role"] == "user" && chat.user().contains("call") {
            Answer::new().call(&format!("c{}", chat.nth), "Memory", args.clone())
        } else {
            Answer::say("End.")
        }
    })
}

#[test]
fn a_note_of_the_model_needs_approval_and_is_then_known_everywhere() {
    let llm = model(json!({"action": "add", "scope": "user", "text": "Likes <b>short</b> answers."}));
    let home = Home::with(&llm);
    home.aye(&["-p", "call it"]).run().exits(3);
    assert_eq!(home.ok(&["memory", "list", "--json"]).json(), json!([]));
    let id = home.question();
    home.ok(&["approve", &id, "--resume"]).prints("End.");
    assert!(llm.last().result("c0").contains("added as u1"));

    let rows = home.ok(&["memory", "list", "--json"]).json();
    assert_eq!(rows[0]["id"], "u1");
    assert_eq!(rows[0]["written"]["by"], json!({"kind": "agent", "name": "aye"}));
    assert_eq!(rows[0]["written"]["thread"], home.thread());
    home.ok(&["-p", "hello"]);
    let system = llm.last().system();
    assert!(
        system.contains("by=\"agent\"") && system.contains("Likes &lt;b&gt;short&lt;/b&gt; answers."),
        "{system}"
    );
    // The same bytes in another conversation.
    home.ok(&["-p", "hello again"]);
    assert_eq!(llm.last().system(), system);
    // Another folder has the user's notes and not the project's.
    home.ok(&["memory", "add", "Only here."]);
    std::fs::create_dir(home.root().join("other")).expect("a folder");
    let other = home.root().join("other").to_string_lossy().into_owned();
    home.ok(&["-C", &other, "-p", "hello"]);
    let system = llm.last().system();
    assert!(system.contains("short") && !system.contains("Only here."), "{system}");
}

#[test]
fn a_rule_can_allow_it_and_reading_is_never_asked_about() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "Memory", json!({"action": "view"})),
        1 => Answer::new().call("c2", "Memory", json!({"action": "add", "text": "Built with make."})),
        _ => Answer::say("End."),
    });
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    home.ok(&["approvals", "show", &home.question()]).prints("Built with make.");
    home.rules("rules:\n  - {tool: Memory(add), behavior: allow, match: [add], not_match: [remove]}\n");
    home.ok(&["-p", "go"]).prints("End.");
    home.ok(&["memory", "list"]).prints("Built with make.").prints("by the agent aye in conversation");
}

#[test]
fn a_user_adds_edits_and_forgets() {
    let llm = MockLlm::by(|_: &Chat| Answer::say("End."));
    let home = Home::with(&llm);
    home.ok(&["memory", "list"]).prints("nothing");
    home.ok(&["memory", "add", "--user", "Answer in German."]);
    home.aye(&["memory", "add", "-"]).stdin("Uses tabs.\u{202e}\n").run().exits(0);
    home.ok(&["-p", "hello"]);
    let system = llm.last().system();
    assert!(
        system.contains("by=\"person\"") && system.contains("Uses tabs.&lt;U+202E&gt;</note>"),
        "{system}"
    );

    home.aye(&["memory", "edit", "p1"]).env("EDITOR", "sed -i s/tabs.*/blanks./").run().exits(0);
    home.ok(&["memory", "list"]).prints("Uses blanks.").prints("by tester (cli)");
    let long = "x".repeat(3000);
    let refused = home.aye(&["memory", "edit", "p1", &long]).run().exits(2);
    assert!(refused.stderr.contains("3000"), "{}", refused.stderr);
    let refused = home.aye(&["memory", "forget", "p1", "p9"]).run().exits(2);
    assert!(refused.stderr.contains("unknown note p9"), "{}", refused.stderr);
    home.ok(&["memory", "list"]).prints("Uses blanks.");
    let gone = home.ok(&["memory", "forget", "p1", "u1", "--json"]).json();
    assert_eq!(gone.as_array().map(Vec::len), Some(2));
    home.ok(&["-p", "hello"]);
    assert!(!llm.last().system().contains("<memory>"));
}

#[test]
fn the_terminal_shows_and_changes_notes() {
    let llm = MockLlm::by(|_: &Chat| Answer::say("End."));
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 90, 30);
    tty.ready();
    tty.say("/memory add --user Likes tea.");
    tty.shows("Added as u1");
    tty.say("/memory");
    tty.shows("about this project");
    tty.shows("tester (terminal)");
    tty.say("/memory edit u1 Likes coffee.");
    tty.shows("Changed u1");
    tty.say("/memory forget u7");
    tty.shows("unknown note u7");
    tty.quit();
    home.ok(&["memory", "list"]).prints("Likes coffee.");
}
