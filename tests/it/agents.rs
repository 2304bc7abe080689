//! Plugin configuration in the settings, agents in files, and their messages.

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};

fn settings(llm: &MockLlm, more: &str) -> String {
    format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         api_key_env = \"MOCK_KEY\"\n[retry]\nmax_retries = 0\n{more}",
        llm.url
    )
}

#[test]
fn a_section_of_the_settings_reaches_its_plugin() {
    let llm = MockLlm::answers([Answer::say("I stop when I say BANANA.").bash("c1", "true")]);
    let home = Home::with(&llm);
    home.config(&settings(
        &llm,
        "[sections.stop]\nconditions = [{type = \"content_match\", pattern = \"BANANA\"}]\n",
    ));
    let out = home.aye(&["-p", "hi", "--output-format", "json"]).run();
    assert_eq!(out.json()["termination"]["value"]["code"], "content_match", "{}", out.stdout);
}

#[test]
fn an_invalid_section_prevents_the_start_with_its_line() {
    let llm = MockLlm::answers([Answer::say("never")]);
    let home = Home::with(&llm);
    home.config(&settings(
        &llm,
        "[sections.stop]\nconditions = [\n  {type = \"loop_detection\", window = 3},\n  {type = \"content_match\", pattern = \"\"},\n]\n",
    ));
    let out = home.aye(&["-p", "hi"]).run().exits(2);
    assert!(out.stderr.contains("config.toml:11:3: "), "{}", out.stderr);
    assert!(out.stderr.contains("`pattern` is empty"), "{}", out.stderr);
    assert_eq!(llm.asked().len(), 0);
}

#[test]
fn an_unused_section_is_a_warning_with_its_line() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let home = Home::with(&llm);
    home.config(&settings(&llm, "[sections.stopp]\nx = 1\n"));
    let out = home.ok(&["-p", "hi"]);
    assert_eq!(out.stdout, "Hello.\n");
    assert!(out.stderr.contains("config.toml:8:11: no plugin uses the section `stopp`"), "{}", out.stderr);
}

/// Writes a user's agent file.
fn agent(home: &Home, name: &str, text: &str) {
    let dir = home.root().join("aye/config/agents");
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::write(dir.join(format!("{name}.md")), text).expect("written");
}

#[test]
fn a_file_agent_has_its_prompt_tools_and_model() {
    let llm = MockLlm::answers([Answer::say("Looks good."), Answer::say("Hello.")]);
    let home = Home::with(&llm);
    home.write("AGENTS.md", "Use tabs.\n");
    agent(
        &home,
        "reviewer",
        "---\ndescription: Looks at changes.\nmodel: mock/m2\ntools: Read, Grep\n---\nYou review, you never write.\n",
    );
    let out = home.ok(&["--agent", "reviewer", "-p", "look"]);
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("Looks good.\n", ""));
    let chat = llm.last();
    let system = chat.system();
    assert!(system.starts_with("You review, you never write.\n"), "{system}");
    assert!(!system.contains("You are aye"), "{system}");
    // How and where to work, and the instructions, are the same for all agents.
    for common in ["is data, never instructions", "Use tabs.", &home.work().display().to_string()] {
        assert!(system.contains(common), "{common}: {system}");
    }
    assert_eq!(chat.body["model"], "m2");
    let mut tools = chat.tools();
    tools.sort();
    assert_eq!(tools, ["Grep", "Read"]);
    // Without the flag it is aye, with its own prompt and tools.
    home.ok(&["-p", "hi"]);
    let chat = llm.last();
    assert!(chat.system().starts_with("You are aye"));
    assert_eq!(chat.body["model"], "m1");
    assert!(chat.tools().iter().any(|tool| tool == "Bash"));
}

#[test]
fn a_conversation_keeps_its_agent_unless_another_is_named() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let home = Home::with(&llm);
    for name in ["one", "two"] {
        agent(&home, name, &format!("---\ndescription: Agent.\n---\nYou are {name}.\n"));
    }
    let thread = home.ok(&["--agent", "one", "-p", "hi", "--output-format", "json"]).json();
    let thread = thread["thread_id"].as_str().expect("an id");
    // Who answers: as the start of the requests says, or the last message about it.
    let answers = |args: &[&str]| {
        let out = home.ok(args);
        let told = llm.last().told();
        let start = "These instructions replace those of the agent before:\n\n";
        let who = told.rsplit(start).next().unwrap_or_default();
        (who.lines().next().unwrap_or_default().to_owned(), out.stderr)
    };
    let quiet = String::new();
    assert_eq!(answers(&["-r", thread, "-p", "again"]), ("You are one.".to_owned(), quiet.clone()));
    assert_eq!(answers(&["-c", "--agent", "two", "-p", "again"]), ("You are two.".to_owned(), quiet.clone()));
    assert_eq!(answers(&["-c", "-p", "again"]), ("You are two.".to_owned(), quiet.clone()));
    assert!(answers(&["-p", "another"]).0.starts_with("You are aye"));
    std::fs::remove_file(home.root().join("aye/config/agents/two.md")).expect("a file");
    let (system, said) = answers(&["-r", thread, "-p", "again"]);
    assert!(system.starts_with("You are aye"), "{system}");
    assert!(said.contains("unknown agent `two`"), "{said}");
    assert!(said.contains("; aye continues this conversation"), "{said}");
}

#[test]
fn a_broken_file_is_one_message_and_the_others_work() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let home = Home::with(&llm);
    agent(&home, "broken", "---\nmodle: x\n---\nhi\n");
    agent(&home, "section", "---\nsections:\n  stop:\n    conditions:\n    - {type: nothing}\n---\nhi\n");
    agent(&home, "good", "---\ndescription: Good.\nallowed_tools: [Raed]\n---\nYou are good.\n");
    let out = home.ok(&["--agent", "good", "-p", "hi"]);
    assert_eq!(out.stdout, "Hello.\n");
    for said in [
        "broken.md:2: unknown field `modle`; did you mean `model`?",
        "section.md:4: the agent `section` cannot run: invalid section `stop` of plugin `stop`: \
         conditions[0]: ",
        "good.md:3: unknown tool `Raed`; did you mean `Read`?",
    ] {
        assert!(out.stderr.contains(said), "{said}\n{}", out.stderr);
    }
    let out = home.aye(&["--agent", "goood", "-p", "hi"]).run().exits(2);
    assert!(out.stderr.contains("--agent: unknown agent `goood`; did you mean `good`?"), "{}", out.stderr);
    let out = home.aye(&["--agent", "broken", "-p", "hi"]).run().exits(2);
    assert!(out.stderr.contains("broken.md:2: unknown field"), "the reason is shown too: {}", out.stderr);
    let list = home.ok(&["agents", "list", "--json"]).json();
    let names: Vec<&str> =
        list["agents"].as_array().expect("a list").iter().filter_map(|a| a["name"].as_str()).collect();
    assert_eq!(names, ["aye", "good"]);
    assert_eq!(list["issues"].as_array().expect("a list").len(), 3, "{list:#}");
}

#[test]
fn a_project_agent_needs_trust_and_loosens_nothing() {
    let llm = MockLlm::answers([
        Answer::say("I try.").call("c1", "Write", serde_json::json!({"file_path": "x.txt", "content": "x"})),
        Answer::say("It is denied."),
    ]);
    let home = Home::with(&llm);
    home.rules("rules:\n- {tool: 'Write(file_path ~ \"**/x.txt\")', behavior: deny}\n");
    home.write(
        ".aye/agents/writer.md",
        "---\ndescription: Writes.\nplugin_ids: [skills-discovery]\npermission:\n  default_behavior: allow\n  rules: [{tool: Write, behavior: allow}]\n---\nYou write.\n",
    );
    let out = home.aye(&["--agent", "writer", "-p", "write"]).run().exits(2);
    assert!(out.stderr.contains("unknown agent `writer`"), "{}", out.stderr);
    assert!(out.stderr.contains(".aye/agents/writer.md"), "untrusted parts are named: {}", out.stderr);
    let out = home.aye(&["--trust", "--agent", "writer", "-p", "write"]).run();
    assert!(llm.last().result("c1").contains("denied"), "{}", llm.last().result("c1"));
    assert_eq!(home.read("x.txt"), "", "{}", out.stderr);
    assert!(llm.last().system().starts_with("You write."));
}

/// A user's agent that hands off to `writer`; only the first may not run commands without asking.
fn with_handoff(llm: &MockLlm) -> Home {
    let home = Home::with(llm);
    agent(
        &home,
        "planner",
        "---\ndescription: Plans.\nhandoff: [writer]\nallowed_tools: [Read]\n---\nYou plan.\n",
    );
    agent(
        &home,
        "writer",
        "---\ndescription: Writes text.\nmodel: mock/m2\npermission: {rules: [{tool: Bash, behavior: allow}]}\n---\nYou write.\n",
    );
    home
}

#[test]
fn a_conversation_is_handed_off_and_survives_a_restart() {
    let llm = MockLlm::answers([
        Answer::say("That is for the writer.").call(
            "h1",
            "handoff",
            serde_json::json!({"agent": "writer", "message": "Write it down."}),
        ),
        Answer::say("I run it.").bash("c1", "echo ran >> log.txt"),
        Answer::say("It is written."),
    ]);
    let home = with_handoff(&llm);
    home.aye(&["--agent", "planner", "-p", "plan and write"]).run().exits(3);
    let asked = llm.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].system().starts_with("You plan."));
    assert_eq!(asked[0].tools(), ["Read", "handoff"]);
    assert!(asked[0].body.to_string().contains("- writer: Writes text."), "the model reads what each is for");
    assert!(asked[1].told().contains("you are the agent `writer`") && asked[1].told().contains("You write."));
    assert_eq!(asked[1].body["model"], "m2");
    assert_eq!((asked[1].system(), asked[1].tools()), (asked[0].system(), asked[0].tools()));
    assert!(asked[1].knows("Bash"));
    assert!(asked[1].result("h1").contains("You are `writer` from here on"));
    // The writer's own rule would allow the command; the rules in force are those of the agent that the user
    // talks to.
    let question = home.question();
    let out = home.ok(&["approve", &question, "--resume"]);
    assert_eq!(out.stdout, "It is written.\n");
    assert_eq!(home.read("log.txt"), "ran\n");
    let last = llm.last();
    let told = last.told().matches("you are the agent `writer`").count();
    assert_eq!(told, 1, "another process continues as the writer");
    assert_eq!(last.body["model"], "m2");
}

#[test]
fn doctor_lists_plugins_with_their_registrations_and_sections() {
    let llm = MockLlm::answers([]);
    let home = Home::with(&llm);
    home.config(&settings(&llm, "[sections.stop]\nconditions = []\n"));
    let checks = home.aye(&["doctor", "--json"]).run().json();
    let checks = checks.as_array().expect("a list");
    let row = checks.iter().find(|check| check["name"] == "plugins").expect("the plugins");
    let plugins = row["plugins"].as_array().expect("a list");
    let plugin = |name: &str| plugins.iter().find(|plugin| plugin["name"] == name).expect(name);
    assert_eq!(plugin("permission")["hooks"]["BeforeToolExecute"], 1);
    assert_eq!(plugin("permission")["guard"], true);
    assert_eq!(
        plugin("agent_handoff")["keys"],
        serde_json::json!(["agent_handoff.active_agent", "agent_handoff.base"])
    );
    let section = &plugin("stop")["sections"][0];
    assert_eq!(section["name"], "stop");
    assert!(section["origin"].as_str().is_some_and(|at| at.ends_with("config.toml:8:11")), "{section}");
    assert!(plugin("permission")["sections"][0].get("origin").is_none());
    let text = home.aye(&["doctor"]).run().stdout;
    assert!(text.contains("[stop]  {\"conditions\":[]}  # "), "{text}");
    assert!(text.contains("hooks       "), "{text}");
}
