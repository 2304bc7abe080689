//! Deferred tools for user and model: settings that defer aye's own tools, a search, a premature call.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};

/// Settings that defer some of aye's own tools.
fn defer(home: &Home, more: &str) {
    let path = home.root().join("aye/config/config.toml");
    let config = std::fs::read_to_string(&path).expect("settings");
    let section =
        "[sections.deferred_tools]\nenabled = true\nrules = [{tool = \"G*\", mode = \"deferred\"}]\n";
    std::fs::write(path, format!("{config}{section}{more}")).expect("written");
}

/// A model that makes these calls, one per step, and then reports that it is done.
fn calls(calls: Vec<(&'static str, Value)>) -> MockLlm {
    MockLlm::by(move |chat: &Chat| match calls.get(chat.results().len()) {
        Some((name, args)) => Answer::new().call(&format!("c{}", chat.results().len()), name, args.clone()),
        None => Answer::say("End."),
    })
}

fn offers(chat: &Chat, name: &str) -> bool {
    chat.tools().iter().any(|tool| tool == name)
}

#[test]
fn a_deferred_tool_is_searched_for_and_then_called() {
    let llm =
        calls(vec![("ToolSearch", json!({"query": "select:Grep"})), ("Grep", json!({"pattern": "needle"}))]);
    let home = Home::with(&llm);
    home.write("hay.txt", "a needle\n");
    defer(&home, "");
    home.ok(&["-p", "find it"]);
    let asked = llm.asked();
    assert!(!offers(&asked[0], "Grep") && !offers(&asked[0], "Glob") && offers(&asked[0], "ToolSearch"));
    assert!(offers(&asked[0], "Read"));
    assert!(asked[0].system().contains("<deferred_tools>") && asked[0].system().contains("\nGlob, Grep\n"));
    let found = asked[1].result("c0");
    assert!(found.starts_with("loaded: Grep\n<functions>") && found.contains("\"name\":\"Grep\""), "{found}");
    assert!(asked[1].knows("Grep") && !asked[1].knows("Glob"));
    assert_eq!((asked[1].system(), asked[1].tools()), (asked[0].system(), asked[0].tools()));
    assert!(asked[2].result("c1").contains("hay.txt"), "{}", asked[2].result("c1"));
    // The next message of the conversation: it is still loaded.
    home.ok(&["-c", "-p", "and again"]);
    assert!(llm.last().knows("Grep") && !llm.last().knows("Glob"));
    assert!(!llm.last().told().contains("are new"), "it is not loaded twice");
}

#[test]
fn a_premature_call_does_not_run_and_loads_the_tool() {
    let grep = || ("Grep", json!({"pattern": "needle"}));
    let llm = calls(vec![grep(), grep(), ("Nothing", json!({}))]);
    let home = Home::with(&llm);
    home.write("hay.txt", "a needle\n");
    defer(&home, "");
    home.ok(&["-p", "find it"]);
    let first = llm.asked()[1].result("c0");
    assert!(first.starts_with("not run: the tool `Grep` was deferred"), "{first}");
    assert!(llm.asked()[1].knows("Grep"));
    assert!(llm.asked()[2].result("c1").contains("hay.txt"));
    let none = llm.asked()[3].result("c2");
    assert!(none.contains("unknown tool `Nothing`") && !none.contains("Glob"), "{none}");
}

#[test]
fn without_server_tools_nothing_changes() {
    let llm = calls(vec![]);
    let home = Home::with(&llm);
    home.ok(&["-p", "hello"]);
    let chat = llm.last();
    assert!(!offers(&chat, "ToolSearch") && offers(&chat, "Grep"), "{:?}", chat.tools());
    assert!(!chat.system().contains("deferred_tools"));
}

#[test]
fn an_invalid_section_is_refused_with_its_place() {
    let llm = calls(vec![]);
    let home = Home::with(&llm);
    defer(&home, "disc_beta = {omega = 2.0}\n");
    home.aye(&["-p", "hello"])
        .run()
        .exits(2)
        .says("config.toml")
        .says("disc_beta.omega: 2 must be above 0 and at most 1");
}
