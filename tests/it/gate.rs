//! `aye gate`: rules, questions and the audit between another agent and its MCP servers, and as its permission hook.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm, PATIENCE, until};
use crate::support::pty::{Pty, View};

/// Ctrl-T.
const INBOX: &str = "\x14";

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mcp_server.sh");

/// The tools of a server that writes what it is asked into FILE.log; `hang` never answers.
fn tools(home: &Home, name: &str) -> String {
    let tool = |name: &str| json!({"name": name, "description": "Puts it there.", "inputSchema": {"type": "object"}});
    home.write(name, &json!([tool("put"), tool("hang")]).to_string());
    home.work().join(name).display().to_string()
}

/// A client that speaks with a gate in lines of JSON, as any agent does.
struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Value>,
    next: u64,
}

impl Client {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aye"));
        command.args(args).current_dir(home.work()).env_clear().envs(home.env());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("started");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(serde_json::from_str(&line).expect("JSON")).is_err() {
                    return;
                }
            }
        });
        let mut client = Self { child, stdin, lines, next: 0 };
        let about = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"},
        });
        let id = client.ask("initialize", &about);
        assert_eq!(client.answer(id)["result"]["capabilities"]["tools"], json!({}));
        client.notify("notifications/initialized", &json!({}));
        client
    }

    fn notify(&mut self, method: &str, params: &Value) {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params});
        writeln!(self.stdin, "{line}").expect("sent");
    }

    fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.stdin, "{line}").expect("sent");
        self.next
    }

    fn answer(&self, id: u64) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("an answer");
            if line["id"] == json!(id) {
                return line;
            }
        }
    }

    fn call(&mut self, what: &str) -> u64 {
        self.call_tool("put", what)
    }

    fn call_tool(&mut self, tool: &str, what: &str) -> u64 {
        self.ask("tools/call", &json!({"name": tool, "arguments": {"what": what}}))
    }

    /// The text of a call's result, and whether it is an error.
    fn result(&self, id: u64) -> (String, bool) {
        let result = &self.answer(id)["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned();
        (text, result["isError"] == json!(true))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often a server was asked to put this.
fn count(home: &Home, name: &str, what: &str) -> usize {
    home.read(&format!("{name}.log"))
        .lines()
        .filter(|line| line.contains("tools/call") && line.contains(what))
        .count()
}

#[test]
fn rules_questions_and_the_audit_stand_between_an_agent_and_a_server() {
    let home = Home::new();
    home.config("");
    home.rules("rules:\n  - {tool: 'mcp__shed__put(what = \"free\")', behavior: allow}\n  - {tool: 'mcp__shed__put(what = \"bad\")', behavior: deny}\n");
    let file = tools(&home, "tools.json");
    let mut client = Client::start(&home, &["gate", "--name", "shed", "--", "sh", SERVER, &file]);
    let id = client.ask("tools/list", &json!({}));
    let list = &client.answer(id)["result"]["tools"];
    assert_eq!((&list[0]["name"], &list[0]["description"]), (&json!("put"), &json!("Puts it there.")));

    let id = client.call("free");
    assert!(!client.result(id).1, "allowed at once");
    let id = client.call("bad");
    let (why, is_error) = client.result(id);
    assert!(is_error && why.contains("den"), "{why}");
    assert_eq!((count(&home, "tools.json", "free"), count(&home, "tools.json", "bad")), (1, 0));

    // What no rule decides is a question of the inbox, answered from anywhere.
    let id = client.call("tea");
    until("a question", || home.open().len() == 1);
    let row = &home.open()[0];
    assert_eq!(row["tool"], "mcp__shed__put");
    assert!(row["thread_title"].as_str().is_some_and(|title| title.starts_with("shed: ")), "{row}");
    home.ok(&["approve", &home.question()]);
    assert!(!client.result(id).1);
    let id = client.call("rum");
    until("a question", || home.open().len() == 1);
    home.ok(&["deny", &home.question(), "--reason", "not today"]);
    let (why, is_error) = client.result(id);
    assert!(is_error && why.contains("not today"), "{why}");
    assert_eq!((count(&home, "tools.json", "tea"), count(&home, "tools.json", "rum")), (1, 0));
    // The same call again is another question.
    let id = client.call("tea");
    until("a question", || home.open().len() == 1);
    home.ok(&["approve", &home.question(), "--grant", "1"]);
    assert!(!client.result(id).1);
    drop(client);
    home.ok(&["audit", "--verify"]);
    let audit = home.ok(&["audit", "--tool", "mcp__shed__put"]).stdout;
    assert!(audit.contains("not today"), "{audit}");
}

#[test]
fn an_answer_that_comes_late_is_there_when_the_agent_asks_again() {
    let home = Home::new();
    home.config("");
    let file = tools(&home, "tools.json");
    let gate = ["gate", "--name", "shed", "--", "sh", SERVER, &file];
    let mut client = Client::start(&home, &gate);
    let id = client.call("tea");
    until("a question", || home.open().len() == 1);
    client.notify("notifications/cancelled", &json!({"requestId": id, "reason": "timeout"}));
    // Another call has a place of its own.
    let other = client.call("milk");
    until("two questions", || home.open().len() == 2);
    let of = |what: &str| {
        let row = home.open().into_iter().find(|row| row["summary"].to_string().contains(what));
        row.unwrap_or_else(|| panic!("{:#?}", home.open()))["id"].as_str().expect("an id").to_owned()
    };
    home.ok(&["approve", &of("tea")]);
    until("it ran", || count(&home, "tools.json", "tea") == 1);
    let id = client.call("tea");
    assert!(!client.result(id).1, "the result was kept");
    assert_eq!((count(&home, "tools.json", "tea"), home.open().len()), (1, 1), "no second question");
    // The program is killed between the question and its answer; another one asks the same.
    drop(client);
    let out = home.ok(&["approve", &of("milk"), "--resume"]);
    assert!(out.stderr.contains("it counts when that agent makes the same call again"), "{}", out.stderr);
    assert_eq!(count(&home, "tools.json", "milk"), 0, "nothing calls the server meanwhile");
    let mut client = Client::start(&home, &gate);
    let id = client.call("milk");
    assert!(!client.result(id).1);
    assert_eq!(count(&home, "tools.json", "milk"), 1);
    assert_eq!(home.open().len(), 0);
    let _ = other;
}

/// A server that takes long: what happened when the gate died meanwhile is unknown, and is not done again.
#[test]
fn a_call_that_may_have_run_is_not_made_again() {
    let home = Home::new();
    home.config("");
    home.rules("rules:\n  - {tool: 'mcp__slow__*', behavior: allow}\n");
    let file = tools(&home, "tools.json");
    let gate = ["gate", "--name", "slow", "--", "sh", SERVER, &file];
    let mut client = Client::start(&home, &gate);
    let _ = client.call_tool("hang", "tea");
    until("it runs", || count(&home, "tools.json", "tea") == 1);
    drop(client);
    let mut client = Client::start(&home, &gate);
    let id = client.call_tool("hang", "tea");
    let (why, is_error) = client.result(id);
    assert!(is_error && why.contains("may have run"), "{why}");
    assert_eq!(count(&home, "tools.json", "tea"), 1);
    home.ok(&["audit", "--verify"]);
}

/// The client of aye itself before three servers, each with a gate of its own.
#[test]
fn a_real_client_calls_three_servers_through_gates() {
    let servers = ["plain", "empty", "chatty"];
    let llm = MockLlm::answers([
        Answer::new()
            .call("c0", "mcp__g0__put", json!({"what": "a"}))
            .call("c1", "mcp__g1__put", json!({"what": "b"}))
            .call("c2", "mcp__g2__put", json!({"what": "c"})),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.rules(
        "rules:\n  - {tool: 'mcp__g*', behavior: allow}\n  - {tool: 'mcp__behind*', behavior: allow}\n",
    );
    let mut config = std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("settings");
    for (nth, mode) in servers.iter().enumerate() {
        let file = tools(&home, &format!("tools{nth}.json"));
        let _ = write!(
            config,
            "\n[mcp_servers.g{nth}]\ncommand = {:?}\nargs = [\"gate\", \"--name\", \"behind{nth}\", \"--\", \"sh\", {SERVER:?}, {file:?}, {mode:?}]\nenv = {{ AYE_HOME = {:?} }}\n",
            env!("CARGO_BIN_EXE_aye"),
            home.root().join("aye"),
        );
    }
    std::fs::write(home.root().join("aye/config/config.toml"), config).expect("written");
    home.ok(&["-p", "go", "--config", "mcp.wait=30"]);
    for nth in 0..servers.len() {
        let result = llm.last().result(&format!("c{nth}"));
        assert!(!result.contains("unknown"), "{result}");
        assert_eq!(count(&home, &format!("tools{nth}.json"), "what"), 1, "{result}");
    }
}

/// The decision about one call of another agent.
fn hook(home: &Home, args: &[&str], input: &Value) -> Value {
    let args = [&["gate", "hook"][..], args].concat();
    let out = home.aye(&args).stdin(input.to_string()).run();
    assert_eq!(out.status.code(), Some(0), "{}", out.stderr);
    out.json()
}

#[test]
fn hooks_of_other_agents_are_answered_by_rules_and_from_the_inbox() {
    let home = Home::new();
    home.config("");
    home.rules("rules:\n  - {tool: 'Bash(git status*)', behavior: allow}\n  - {tool: 'Bash(rm *)', behavior: deny}\n");
    let claude = |command: &str| {
        json!({"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command},
               "cwd": home.work()})
    };
    let decided =
        |answer: &Value| answer["hookSpecificOutput"]["permissionDecision"].as_str().unwrap_or("").to_owned();
    assert_eq!(decided(&hook(&home, &[], &claude("git status -s"))), "allow");
    let answer = hook(&home, &[], &claude("rm -r build"));
    assert_eq!(decided(&answer), "deny");
    let gemini = json!({"hook_event_name": "BeforeTool", "tool_name": "run_shell_command",
                        "tool_input": {"command": "rm -r build"}, "cwd": home.work()});
    assert_eq!(hook(&home, &[], &gemini)["decision"], "deny");

    // No answer in time: it is denied, and the answer is kept for the same call.
    let push = json!({"hook_event_name": "PermissionRequest", "tool_name": "Bash",
                      "tool_input": {"command": "git push", "description": "Push it"}, "cwd": home.work()});
    let answer = hook(&home, &["--wait", "1s"], &push);
    let decision = &answer["hookSpecificOutput"]["decision"];
    assert_eq!(decision["behavior"], "deny");
    let id = home.question();
    assert!(
        decision["message"].as_str().is_some_and(|why| why.contains(&format!("aye approve {id}"))),
        "{answer}"
    );
    home.ok(&["approve", &id]);
    let answer = hook(&home, &["--wait", "30s"], &push);
    assert_eq!(answer["hookSpecificOutput"]["decision"], json!({"behavior": "allow"}));
    // Allowed once: the next one is another question.
    let answer = hook(&home, &["--wait", "1s"], &push);
    assert_eq!(answer["hookSpecificOutput"]["decision"]["behavior"], "deny");
    assert_eq!(home.open().len(), 1);
    // A grant is remembered.
    home.ok(&["approve", &home.question(), "--grant", "1"]);
    for _ in 0..2 {
        let answer = hook(&home, &["--wait", "30s"], &push);
        assert_eq!(answer["hookSpecificOutput"]["decision"]["behavior"], "allow");
    }
    // A tool that only the other agent has.
    let task = json!({"hook_event_name": "PreToolUse", "tool_name": "Task", "tool_input": {"prompt": "x"}, "cwd": home.work()});
    assert_eq!(decided(&hook(&home, &["--wait", "1s"], &task)), "deny");
    assert_eq!(home.open()[0]["tool"], "Task");
    home.ok(&["audit", "--verify"]);

    // What cannot be judged is blocked, in the way that all of them understand.
    for input in ["", "{}", "{\"hook_event_name\": \"Stop\", \"tool_name\": \"x\"}"] {
        let out = home.aye(&["gate", "hook"]).stdin(input).run().exits(2);
        assert!(out.stderr.contains("the call is denied") && out.stdout.is_empty(), "{}", out.stderr);
    }
}

#[test]
fn a_hooks_question_is_answered_on_a_card_and_left_to_the_agent_that_asked() {
    let home = Home::new();
    home.config("");
    let push = json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "git push"},
                      "cwd": home.work()});
    hook(&home, &["--wait", "1s"], &push);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.send(INBOX);
    tty.wait("the list", |view| view.has("$ git push"));
    tty.send("\r");
    tty.card("git push");
    tty.send("y");
    until("the answer", || home.open().is_empty());
    let answer = hook(&home, &["--wait", "30s"], &push);
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "allow", "{answer}");
    tty.wait("no card", |view| !view.has("Run this command?"));
    assert!(!tty.look(View::all).contains("cannot resume"), "{}", tty.look(View::all));
    tty.quit();
}
