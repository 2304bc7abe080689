//! Tools that the caller of aye carries out.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};

fn picks() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "pick_file", json!({"kind": "text"})),
        _ => Answer::say("End."),
    })
}

fn with_tools(home: &Home, tools: &str) -> String {
    let file = home.root().join("tools.json");
    std::fs::write(&file, tools).expect("written");
    file.to_string_lossy().into_owned()
}

#[test]
fn a_call_waits_for_the_client_and_its_answer_is_the_result() {
    let llm = picks();
    let home = Home::with(&llm);
    let schema = json!({"type": "object", "properties": {"kind": {"type": "string"}}});
    let tools = json!([{"name": "pick_file", "description": "Lets the person pick", "parameters": schema}]);
    let file = with_tools(&home, &tools.to_string());
    home.aye(&["-p", "go", "--client-tools", &file, "--allowed-tools", "pick_file"]).run().exits(3);
    assert!(llm.last().tools().contains(&"pick_file".to_owned()));
    let id = home.question();
    home.ok(&["approvals", "show", &id]).prints("pick_file runs in the client");
    // Another process resumes: the tool belongs to the run, wherever it is driven.
    home.ok(&["answer", &id, r#"{"path": "/tmp/x"}"#, "--resume"]).prints("End.");
    assert_eq!(llm.last().result("c1"), r#"{"path":"/tmp/x"}"#);
    assert!(llm.last().tools().contains(&"pick_file".to_owned()), "offered after the restart too");
    // Another run has no such tool.
    home.ok(&["-c", "-p", "again"]);
    let told = llm.last().told();
    assert!(told.contains("Tools that cannot be used now:") && told.contains("pick_file"), "{told}");
}

#[test]
fn the_rules_judge_it_like_any_call() {
    let llm = picks();
    let home = Home::with(&llm);
    let file = with_tools(&home, r#"[{"name": "pick_file"}]"#);
    home.rules("rules:\n  - {tool: pick_file, behavior: deny}\n");
    home.ok(&["-p", "go", "--client-tools", &file]).prints("End.");
    assert!(!llm.last().tools().contains(&"pick_file".to_owned()));
}

#[test]
fn an_invalid_list_is_refused_with_a_message() {
    let llm = picks();
    let home = Home::with(&llm);
    for (tools, words) in [
        ("{}", "a list such as"),
        (r#"[{"nam": "x"}]"#, "unknown field `nam`"),
        (r#"[{"name": "a b"}]"#, "must be letters"),
        (r#"[{"name": "x", "parameters": {"type": 3}}]"#, "not a JSON Schema"),
        (r#"[{"name": "Bash"}]"#, "the name of an existing tool"),
        (r#"[{"name": "x"}, {"name": "x"}]"#, "the name of an existing tool"),
    ] {
        let file = with_tools(&home, tools);
        let said = home.aye(&["-p", "go", "--client-tools", &file]).run();
        assert!(!said.status.success() && said.stderr.contains(words), "{tools}: {}", said.stderr);
    }
    assert!(llm.asked().is_empty());
}
