//! Flags that people know from other agents, in the real program.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};

#[test]
fn texts_of_the_command_line_reach_the_agent_that_is_talked_to() {
    let llm = MockLlm::answers([Answer::say("one"), Answer::say("two")]);
    let home = Home::with(&llm);
    home.write("who.txt", "You are a pirate.\n");
    home.ok(&["-p", "hi", "--append-system-prompt", "Answer in rhymes."]);
    let system = llm.last().system();
    assert!(system.contains("\n\nAnswer in rhymes.\n"), "{system}");
    assert!(system.starts_with("You are aye"), "{system}");
    home.ok(&["-p", "hi", "--system-prompt-file", "who.txt"]);
    let system = llm.last().system();
    assert!(system.starts_with("You are a pirate.\n\n# How to work here"), "{system}");
    assert!(!system.contains("You are aye"), "{system}");
    home.aye(&["-p", "hi", "--system-prompt-file", "none.txt"])
        .run()
        .exits(2)
        .says("--system-prompt-file none.txt: No such file");
}

#[test]
fn an_agent_of_a_file_takes_the_texts_when_it_is_chosen() {
    let llm = MockLlm::answers([Answer::say("one")]);
    let home = Home::with(&llm);
    home.write("../aye/config/agents/cook.md", "---\ndescription: cooks\n---\nYou cook.\n");
    home.ok(&["-p", "hi", "--agent", "cook", "--append-system-prompt", "Use salt."]);
    let system = llm.last().system();
    assert!(system.starts_with("You cook.") && system.contains("\n\nUse salt.\n"), "{system}");
}

#[test]
fn the_answer_goes_to_a_file_too() {
    let llm = MockLlm::answers([
        Answer::say("I will look.").call("c1", "Read", json!({"file_path": "a.txt"})),
        Answer::say("It has five lines."),
        Answer::say("I will.").bash("c2", "touch made"),
    ]);
    let home = Home::with(&llm);
    home.write("a.txt", "1\n");
    home.ok(&["-p", "count", "-o", "answer.txt", "--output-format", "json"]);
    assert_eq!(home.read("answer.txt"), "It has five lines.\n");
    // A run that waits has no answer yet.
    home.aye(&["-p", "make it", "-o", "other.txt"]).run().exits(3);
    assert!(!home.work().join("other.txt").exists());
}

#[test]
fn a_session_has_the_id_that_the_caller_gives_and_forks_leave_it_alone() {
    let llm = MockLlm::answers([Answer::say("one"), Answer::say("two"), Answer::say("three")]);
    let home = Home::with(&llm);
    let id = "0198c0de-0000-7000-8000-000000000001";
    home.ok(&["-p", "first", "--session-id", id]);
    assert_eq!(home.thread(), id);
    home.aye(&["-p", "again", "--session-id", id])
        .run()
        .exits(2)
        .says("there is a conversation of this id; open it with -r");
    let forked = home.ok(&["-p", "second", "-r", id, "--fork-session", "--output-format", "json"]).json();
    assert_ne!(forked["thread_id"], id);
    let texts: Vec<String> = llm.last().messages().iter().map(ToString::to_string).collect();
    assert!(
        texts.iter().any(|text| text.contains("first")) && texts.iter().any(|text| text.contains("second"))
    );
    let original = home.ok(&["threads", "show", id]).stdout;
    assert!(original.contains("first") && !original.contains("second"), "{original}");
}

#[test]
fn a_bare_run_has_the_model_the_built_in_tools_and_the_rules() {
    let denied = || Answer::say("I will.").bash("c1", "touch denied");
    let llm = MockLlm::answers([denied(), Answer::say("one"), denied(), Answer::say("two")]);
    let home = Home::with(&llm);
    home.write("AGENTS.md", "Answer in rhymes.\n");
    home.write(
        "../aye/config/hooks.toml",
        "[[hooks]]\nphase = \"run_start\"\ncommand = [\"touch\", \"hooked\"]\n",
    );
    home.write("../aye/config/permissions.yaml", "rules:\n  - {tool: 'Bash(touch *)', behavior: deny}\n");
    home.ok(&["mcp", "add", "shed", "--", "sh", "-c", "touch served"]);
    home.ok(&["--bare", "-p", "go"]);
    let (system, tools) = (llm.last().told(), llm.last().tools());
    assert!(!system.contains("rhymes") && !system.contains("skill"), "{system}");
    assert!(tools.iter().any(|tool| tool == "Bash"), "{tools:?}");
    assert!(!tools.iter().any(|tool| tool.contains("skill") || tool == "Memory"), "{tools:?}");
    let exists = |name: &str| home.work().join(name).exists();
    assert!(!exists("hooked") && !exists("served"), "nothing else was started");
    assert!(!exists("denied") && llm.last().result("c1").contains("denied"), "a rule holds as ever");
    home.ok(&["-p", "go"]);
    assert!(llm.last().told().contains("rhymes") && exists("hooked") && exists("served"));
    assert!(!exists("denied"));
}

#[test]
fn a_server_of_the_command_line_is_used_in_this_session() {
    let llm = MockLlm::answers([Answer::say("one"), Answer::say("two")]);
    let home = Home::with(&llm);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mcp_server.sh");
    let tool = json!([{"name": "echo", "description": "does echo", "inputSchema": {"type": "object"}}]);
    let list = home.root().join("tools.json");
    std::fs::write(&list, tool.to_string()).expect("written");
    let servers = json!({"mcpServers": {"shed": {"command": "sh", "args": [script, list, "plain"]}}});
    home.write("servers.json", &servers.to_string());
    home.ok(&["-p", "hi", "--mcp-config", "servers.json"]);
    assert!(llm.last().tools().iter().any(|tool| tool == "mcp__shed__echo"), "{:?}", llm.last().tools());
    home.ok(&["-p", "hi"]);
    assert!(!llm.last().tools().iter().any(|tool| tool.contains("shed")), "{:?}", llm.last().tools());
    home.write("broken.json", "{\"mcpServers\": {\"x\": {\"comand\": \"sh\"}}}");
    home.aye(&["-p", "hi", "--mcp-config", "broken.json"]).run().exits(2).says("broken.json:1:");
    home.aye(&["-p", "hi", "--mcp-config", "none.json"]).run().exits(2).says("--mcp-config");
}

#[test]
fn a_command_may_change_a_folder_that_was_added() {
    let llm = MockLlm::answers([
        Answer::say("I will.").bash("c1", "echo made > ../beside/a.txt"),
        Answer::say("done"),
        Answer::say("I will.").bash("c2", "echo made > ../beside/b.txt"),
        Answer::say("done"),
    ]);
    let home = Home::with(&llm);
    home.write("../beside/keep", "");
    if crate::sandbox::has_all_layers() {
        home.aye(&["-p", "x", "--permission-mode", "auto", "--add-dir", "../beside"]).run();
        assert!(home.work().join("../beside/a.txt").exists(), "{}", llm.last().result("c1"));
        home.aye(&["-p", "x", "--permission-mode", "auto"]).run();
        assert!(!home.work().join("../beside/b.txt").exists());
    }
    home.aye(&["-p", "x", "--add-dir", "nowhere"])
        .run()
        .exits(2)
        .says("--add-dir nowhere: it is not a folder");
}

#[test]
fn debug_writes_more_to_the_log() {
    let llm = MockLlm::answers([Answer::say("one"), Answer::say("two")]);
    let home = Home::with(&llm);
    home.ok(&["-p", "hi"]);
    let quiet = home.log().len();
    home.ok(&["-p", "hi", "--debug"]);
    assert!(home.log().len() > quiet && home.log().contains("DEBUG"), "{}", home.log());
}
