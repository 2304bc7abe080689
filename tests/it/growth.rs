//! Requests that only ever grow, against a server that refuses thoughts when anything before them changed.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::pty::Pty;
use crate::support::strict::{StrictLlm, call, say};

const MCP_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mcp_server.sh");

fn home(llm: &StrictLlm) -> Home {
    let home = Home::new();
    settings(&home, llm, "");
    home.git(&["init", "-q"]);
    home.write("AGENTS.md", "Be careful.\n");
    home
}

fn settings(home: &Home, llm: &StrictLlm, more: &str) {
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"anthropic\"\nbase_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\n\
         [retry]\nmax_retries = 0\n{more}",
        llm.url
    ));
}

fn skill(home: &Home, name: &str, text: &str) {
    home.write(
        &format!(".aye/skills/{name}/SKILL.md"),
        &format!("---\nname: {name}\ndescription: About {name}.\n---\n{text}\n"),
    );
}

fn says(body: &Value, text: &str) -> bool {
    body["messages"].to_string().contains(text)
}

/// The number of thoughts in a request.
fn proofs(body: &Value) -> usize {
    body["messages"].to_string().matches("\"signature\"").count()
}

#[test]
fn skills_notes_instructions_and_the_date_come_as_messages() {
    let llm = StrictLlm::new();
    let home = home(&llm);
    skill(&home, "sorting", "Sort with care.");
    home.ok(&["--trust", "-p", "one"]);
    llm.will([call("skill", json!({"skill": "sorting"})), say("loaded")]);
    home.ok(&["-c", "-p", "two"]);
    skill(&home, "packing", "Pack it.");
    skill(&home, "sorting", "Sort with more care.");
    home.ok(&["-c", "-p", "three"]);
    home.ok(&["memory", "add", "Uses tabs."]);
    home.ok(&["-c", "-p", "four"]);
    home.ok(&["memory", "add", "--user", "Likes tea."]);
    home.write("AGENTS.md", "Be careful.\nBe quick.\n");
    home.ok(&["-c", "-p", "five"]);
    home.write("sub/AGENTS.md", "Only here.\n");
    home.write("sub/a.txt", "a\n");
    llm.will([call("Read", json!({"file_path": "sub/a.txt"})), say("read")]);
    home.ok(&["-c", "-p", "six"]);
    for zone in ["Pacific/Kiritimati", "Etc/GMT+12"] {
        home.aye(&["-c", "-p", "another day"]).env("TZ", zone).run().exits(0);
    }
    let asked = llm.grew();
    let last = asked.last().expect("requests");
    for text in
        ["Sort with care.", "About packing.", "Uses tabs.", "Likes tea.", "Be quick.", "Only here.", "Date: "]
    {
        assert!(says(last, text), "{text}: {:#}", last["messages"]);
    }
    assert!(!asked[0]["system"].to_string().contains("Uses tabs."));
}

#[test]
fn reminders_hooks_and_modes_come_as_messages() {
    let llm = StrictLlm::new();
    let home = home(&llm);
    let rule = |target: &str| json!({"tool": "Read", "message": {"target": target, "content": format!("mind {target}"), "cooldown_turns": 1}});
    let rules: Vec<Value> = ["system", "suffix_system", "session", "conversation"].map(rule).to_vec();
    std::fs::write(home.root().join("aye/config/reminders.json"), json!({"rules": rules}).to_string())
        .expect("written");
    let context =
        json!({"context": [{"content": "be brief", "target": "system"}], "exclude_tools": ["WebFetch"]});
    let hook = format!(
        "[[hooks]]\nname = \"h\"\nphase = \"after_tool_execute\"\ntool = \"Read\"\n\
         command = [\"sh\", \"-c\", '''echo '{context}'\n''']\n"
    );
    std::fs::write(home.root().join("aye/config/hooks.toml"), hook).expect("written");
    let read = || call("Read", json!({"file_path": "AGENTS.md"}));
    llm.will([read(), read(), read(), say("read")]);
    home.ok(&["-p", "one"]);
    home.ok(&["-c", "--permission-mode", "plan", "-p", "two"]);
    home.ok(&["-c", "--disallowed-tools", "WebFetch", "-p", "three"]);
    home.ok(&["-c", "-p", "four"]);
    // Another front end, where somebody can be asked, and back.
    let mut pty = Pty::start(&home, &["-c"], 100, 30);
    pty.ready();
    llm.will([say("An answer in the terminal.")]);
    pty.say("five");
    pty.shows("An answer in the terminal.");
    pty.quit();
    home.ok(&["-c", "-p", "six"]);
    let asked = llm.grew();
    for text in ["mind system", "mind suffix_system", "mind session", "mind conversation", "be brief"] {
        assert!(says(&asked[1], text), "{text}: {:#}", asked[1]["messages"]);
    }
    assert!(says(&asked[1], "Tools that cannot be used now: WebFetch."), "{:#}", asked[1]["messages"]);
}

#[test]
fn tools_and_agents_that_come_later_come_as_messages() {
    let llm = StrictLlm::new();
    let home = home(&llm);
    let agent = |name: &str, text: &str| {
        let path = home.root().join(format!("aye/config/agents/{name}.md"));
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    agent("planner", "---\ndescription: Plans.\nhandoff: [writer]\n---\nYou plan.\n");
    agent("writer", "---\ndescription: Writes.\nallowed_tools: [Read]\n---\nYou write.\n");
    settings(
        &home,
        &llm,
        "[sections.deferred_tools]\nenabled = true\nrules = [{tool = \"G*\", mode = \"deferred\"}]\n",
    );
    home.write("hay.txt", "a needle\n");
    let grep = || call("Grep", json!({"pattern": "needle"}));
    llm.will([call("ToolSearch", json!({"query": "select:Grep"})), grep(), say("found")]);
    home.ok(&["--agent", "planner", "-p", "one"]);
    assert!(says(llm.asked().last().expect("a request"), "hay.txt"));
    // A call without a search, in another process.
    llm.will([
        call("Glob", json!({"pattern": "*"})),
        call("Glob", json!({"pattern": "*"})),
        grep(),
        say("again"),
    ]);
    home.ok(&["-c", "--agent", "planner", "-p", "two"]);
    // A server that comes later.
    let tools = home.root().join("tools.json");
    let tool = json!([{"name": "echo", "description": "does echo", "inputSchema": {"type": "object"}}]);
    std::fs::write(&tools, tool.to_string()).expect("written");
    home.ok(&["mcp", "add", "shed", "--", "sh", MCP_SERVER, &tools.to_string_lossy(), "plain"]);
    home.rules("rules:\n  - {tool: mcp__shed__echo, behavior: allow}\n");
    llm.will([
        call("ToolSearch", json!({"query": "select:mcp__shed__echo"})),
        call("mcp__shed__echo", json!({"a": 1})),
        say("echoed"),
    ]);
    home.ok(&["-c", "--agent", "planner", "-p", "three"]);
    // Another version of the agent, a handoff, and another agent.
    agent("planner", "---\ndescription: Plans.\nhandoff: [writer]\n---\nYou plan well.\n");
    llm.will([call("handoff", json!({"agent": "writer"})), say("written")]);
    home.ok(&["-c", "--agent", "planner", "-p", "four"]);
    home.ok(&["-c", "--agent", "aye", "-p", "five"]);
    let asked = llm.grew();
    let last = asked.last().expect("requests");
    for text in ["mcp__shed__echo", "You plan well.", "You write.", "From here on you are the agent `aye`"] {
        assert!(says(last, text), "{text}: {:#}", last["messages"]);
    }
}

#[test]
fn forks_rewinds_and_interrupted_runs_keep_the_start() {
    let llm = StrictLlm::new();
    let home = home(&llm);
    home.ok(&["-p", "one"]);
    let thread = home.thread();
    home.ok(&["memory", "add", "Uses tabs."]);
    home.ok(&["-c", "-p", "two"]);
    let fork = home.ok(&["threads", "fork", &thread, "--messages", "2"]).stdout;
    home.ok(&["-r", fork.trim(), "-p", "another second"]);
    home.ok(&["-r", &thread, "-p", "three"]);
    let asked = llm.asked();
    assert_eq!(asked.iter().map(proofs).collect::<Vec<_>>(), [0, 1, 1, 2]);
    assert!(says(&asked[2], "Uses tabs."), "the copy is told too");
    // A question, answered by another process.
    llm.will([call("Bash", json!({"command": "echo x > made.txt"})), say("made")]);
    home.aye(&["-r", &thread, "-p", "four"]).run().exits(3);
    home.write("AGENTS.md", "Be nimble.\n");
    home.ok(&["approve", &home.question(), "--resume"]);
    assert!(says(llm.asked().last().expect("a request"), "Be nimble."));
    let last = llm.asked().pop().expect("a request");
    assert_eq!(proofs(&last), 4);
}

#[test]
fn a_compaction_starts_anew_without_thoughts_from_before() {
    let llm = StrictLlm::new();
    let home = home(&llm);
    settings(
        &home,
        &llm,
        "[models.m1]\nprovider = \"mock\"\ncontext_window = 12000\nmax_output = 1000\n[context]\ncompact_at = 60\n",
    );
    home.write("long.txt", &"a long line of text\n".repeat(900));
    home.ok(&["-p", "begin"]);
    for nth in 0..8 {
        llm.will([
            call("Read", json!({"file_path": "long.txt", "offset": nth * 100})),
            say(&"word ".repeat(400)),
        ]);
        home.ok(&["-c", "-p", &format!("message {nth}")]);
    }
    let asked = llm.asked();
    assert!(asked.iter().any(|body| says(body, "<conversation-summary>")), "it was compacted");
    assert!(asked.iter().any(|body| says(body, "[preview:")), "results became previews");
}

#[test]
fn refused_thoughts_are_left_out_silently_and_counted() {
    let llm = StrictLlm::new();
    let home = home(&llm);
    home.ok(&["-p", "one"]);
    llm.refuses(1);
    let out = home.ok(&["-c", "-p", "two"]);
    assert_eq!((out.stdout.as_str(), out.stderr.contains("thinking")), ("done\n", false), "{}", out.stderr);
    let asked = llm.grew();
    assert_eq!(asked.iter().map(proofs).collect::<Vec<_>>(), [0, 1, 0]);
    home.ok(&["stats"]).prints("1 requests were sent again without thoughts");
    assert_eq!(home.ok(&["stats", "--json"]).json()["total"]["refused_thoughts"], 1);
}

/// The start of the requests is stored with what followed the first one: a process that is killed leaves it to the next.
#[cfg(feature = "failpoints")]
#[test]
fn the_start_outlives_a_process_that_is_killed() {
    let mut kept = 0;
    for place in
        ["store.checkpoint.before", "store.checkpoint.after", "store.begin.before", "store.begin.after"]
    {
        for count in 1.. {
            let llm = StrictLlm::new();
            let home = home(&llm);
            home.write("a.txt", "one\n");
            let edit = json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"});
            llm.will([call("Read", json!({"file_path": "a.txt"})), call("Edit", edit), say("edited")]);
            let mode = ["--permission-mode", "accept-edits"];
            let out = home.aye(&[&["-p", "one"], &mode[..]].concat());
            let out = out.env("AYE_FAILPOINT", &format!("{place}:{count}")).run();
            if !out.was_killed() {
                out.exits(0);
                assert!(count > 1, "{place} is never reached");
                break;
            }
            // What a new start would contain.
            home.write("AGENTS.md", "Be nimble.\n");
            home.ok(&["memory", "add", "Uses tabs."]);
            let before = llm.asked();
            let again = home.aye(&[&["-c", "-p"], &mode[..]].concat()).run();
            if again.status.code() == Some(2) {
                // The message was not stored yet, or everything was done.
                home.ok(&[&["-c", "-p", "one"], &mode[..]].concat());
            } else {
                again.exits(0);
            }
            let asked = llm.asked();
            let place = format!("{place}:{count}");
            // Before the answer to the first request was stored, nothing was sent that must be kept.
            let is_stored = |next: &Value| next["messages"].to_string().contains("\"assistant\"");
            if asked.get(before.len()).is_some_and(is_stored) {
                kept += 1;
                let asked = llm.grew();
                assert!(proofs(&asked[before.len()]) > 0, "{place}: the thoughts are sent");
                assert!(says(asked.last().expect("requests"), "Be nimble."), "{place}");
                assert!(!asked[before.len()]["system"].to_string().contains("Be nimble."), "{place}");
            }
        }
    }
    assert!(kept >= 3, "{kept}");
}
