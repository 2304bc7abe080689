//! `aye acp` over pipes, as an editor drives it: raw JSON-RPC lines against the real program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, Gate, MockLlm, PATIENCE, Part, until};

const TOUCH: &str = "echo ran >> log.txt";

/// An editor.
pub struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    next: u64,
    /// Messages that arrived but were not waited for.
    seen: Vec<Value>,
}

impl Editor {
    /// Starts the program and initialises the connection.
    fn start(home: &Home) -> Editor {
        let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
        Editor::start_with(home, &capabilities, &[])
    }

    fn start_with(home: &Home, capabilities: &Value, flags: &[&str]) -> Editor {
        let mut child = Command::new(env!("CARGO_BIN_EXE_aye"))
            .arg("acp")
            .args(flags)
            .current_dir(home.root())
            .env_clear()
            .envs(home.env())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // Any other output on stdout would break a client.
                let message: Value =
                    serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                assert_eq!(message["jsonrpc"], "2.0", "{line}");
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut editor = Editor { child, stdin, lines, next: 0, seen: Vec::new() };
        let hello =
            editor.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": capabilities}));
        assert_eq!(hello["protocolVersion"], 1, "{hello:#}");
        assert_eq!(hello["agentCapabilities"]["loadSession"], true, "{hello:#}");
        editor
    }

    /// Starts the program with a new session in the workspace.
    pub fn open(home: &Home) -> (Editor, String) {
        let mut editor = Editor::start(home);
        let session = editor.new_session(home);
        (editor, session)
    }

    fn new_session(&mut self, home: &Home) -> String {
        let opened = self.call("session/new", json!({"cwd": home.work(), "mcpServers": []}));
        opened["sessionId"].as_str().expect("a session").to_owned()
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("open");
        stdin.write_all(format!("{message}\n").as_bytes()).expect("written");
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Reads messages until one matches; the others are kept.
    #[track_caller]
    fn wait(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&is) {
            return self.seen.remove(at);
        }
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(message) if is(&message) => return message,
                Ok(message) => self.seen.push(message),
                Err(error) => panic!("{what}: {error}: {:#?}", self.seen),
            }
        }
    }

    #[track_caller]
    fn answer(&mut self, id: u64) -> Value {
        self.wait("an answer", |message| message["id"] == id && message.get("method").is_none())
    }

    #[track_caller]
    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{method}: {answer:#}");
        answer["result"].clone()
    }

    /// Returns the error of a refused request.
    #[track_caller]
    fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let id = self.send(method, params);
        let answer = self.answer(id);
        let error = answer.get("error").unwrap_or_else(|| panic!("{method} was accepted: {answer:#}"));
        (error["code"].as_i64().expect("a code"), error["message"].as_str().expect("words").to_owned())
    }

    pub fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    #[track_caller]
    pub fn stops(&mut self, prompt: u64) -> String {
        let answer = self.answer(prompt);
        answer["result"]["stopReason"].as_str().unwrap_or_else(|| panic!("{answer:#}")).to_owned()
    }

    /// Waits for the next question.
    #[track_caller]
    fn question(&mut self) -> Value {
        self.wait("a question", |message| message["method"] == "session/request_permission")
    }

    /// Selects the first option of a kind.
    fn choose(&mut self, question: &Value, kind: &str) {
        let options = question["params"]["options"].as_array().expect("options");
        let option = options.iter().find(|option| option["kind"] == kind);
        let option = option.unwrap_or_else(|| panic!("no {kind}: {options:#?}"))["optionId"].clone();
        self.select(question, &option);
    }

    fn select(&mut self, question: &Value, option: &Value) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        self.write(&json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome}));
    }

    /// The updates of a kind so far.
    fn updates(&self, kind: &str) -> Vec<&Value> {
        let updates = self.seen.iter().filter(|message| message["method"] == "session/update");
        updates
            .map(|message| &message["params"]["update"])
            .filter(|update| update["sessionUpdate"] == kind)
            .collect()
    }

    /// The text of chunks of a kind so far.
    fn text(&self, kind: &str) -> String {
        self.updates(kind).iter().filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// Closes the editor's side, and waits for the program's end.
    pub fn leave(mut self) {
        self.stdin = None;
        until("the end of the program", || self.child.try_wait().expect("a child").is_some());
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "{status}");
    }

    fn kill(mut self) {
        self.child.kill().expect("is alive");
        self.child.wait().expect("a child");
    }
}

fn asks_to_run() -> MockLlm {
    MockLlm::answers([Answer::say("I will.").bash("c1", TOUCH), Answer::say("It is done.")])
}

#[test]
fn a_prompt_streams_its_answer() {
    let gate = Gate::default();
    let llm = MockLlm::answers([Answer::say("Hello").wait(&gate).text(", editor.")]);
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "hi");
    let is_chunk = |message: &Value| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
    let first = editor.wait("the first text", is_chunk);
    assert_eq!(first["params"]["sessionId"], session.as_str());
    assert_eq!(first["params"]["update"]["content"], json!({"type": "text", "text": "Hello"}));
    gate.open();
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), ", editor.");
    assert_eq!(editor.text("user_message_chunk"), "", "the editor knows what it sent");
    assert_eq!(llm.last().user(), "hi");
    editor.leave();
}

#[test]
fn an_approved_call_runs_once() {
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "do it");
    let question = editor.question();
    let call = &question["params"]["toolCall"];
    assert_eq!(call["title"], TOUCH);
    assert_eq!(call["kind"], "execute");
    assert_eq!(call["rawInput"], json!({"command": TOUCH}));
    let announced = editor.updates("tool_call")[0]["toolCallId"].clone();
    assert_eq!(call["toolCallId"], announced, "the question is about the announced call");
    assert_eq!(home.read("log.txt"), "");
    editor.choose(&question, "allow_once");
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(home.read("log.txt"), "ran\n");
    let last = editor.updates("tool_call_update").pop().expect("an update").clone();
    assert_eq!((&last["toolCallId"], &last["status"]), (&announced, &json!("completed")));
    let shown = home.ok(&["approvals", "show", "perm_c1", "--json"]).json();
    assert_eq!(shown["decided_by"]["channel"], "acp", "{shown:#}");
    editor.leave();
    assert_eq!(llm.asked().len(), 2);
}

#[test]
fn a_decision_that_the_store_refuses_is_asked_again() {
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "do it");
    let first = editor.question();
    let store = crate::audit::database(&home);
    let refuse = "CREATE INDEX refuse ON suspension (CASE status WHEN 'decided' THEN json('no') END)";
    store.execute_batch(refuse).expect("an index");
    editor.choose(&first, "allow_once");
    let second = editor.question();
    assert_eq!(second["params"]["toolCall"]["toolCallId"], first["params"]["toolCall"]["toolCallId"]);
    assert!(editor.text("agent_message_chunk").contains("could not be stored"));
    assert_eq!(home.read("log.txt"), "");
    store.execute_batch("DROP INDEX refuse").expect("no index");
    editor.choose(&second, "allow_once");
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(home.read("log.txt"), "ran\n");
    editor.leave();
}

/// An editor that answers by itself would ask the provider again without end, so it is only told.
#[test]
fn a_prompt_waits_for_a_limit_that_resets_later() {
    let llm = MockLlm::by(|chat: &Chat| match chat.nth {
        0 | 2 => Answer::error(429, "used up").header("retry-after", "3600"),
        _ => Answer::say("Here I am."),
    });
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let is_told = |message: &Value| {
        let text = message["params"]["update"]["content"]["text"].as_str().unwrap_or_default();
        text.contains("used up") && text.contains("Resumes in 60 min when the limit resets")
    };
    let prompt = editor.prompt(&session, "go");
    editor.wait("the wait", is_told);
    home.ok(&["answer", &home.question(), r#"{"answer":"Try now"}"#]);
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Here I am.");
    let prompt = editor.prompt(&session, "again");
    editor.wait("the wait", is_told);
    editor.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(editor.stops(prompt), "cancelled");
    assert!(editor.seen.iter().all(|message| message["method"] != "session/request_permission"));
    assert_eq!((llm.asked().len(), home.open().len()), (3, 0));
    editor.leave();
}

#[test]
fn rejections_and_unknown_options_deny() {
    let outcomes: [fn(&mut Editor, &Value); 4] = [
        |editor, question| editor.choose(question, "reject_once"),
        |editor, question| editor.select(question, &json!("allow_everything")),
        |editor, question| {
            let error = json!({"code": -32603, "message": "no window"});
            editor.write(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}));
        },
        |editor, question| {
            editor.write(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": "yes"}}));
        },
    ];
    for answer in outcomes {
        let llm = asks_to_run();
        let home = Home::with(&llm);
        let (mut editor, session) = Editor::open(&home);
        let prompt = editor.prompt(&session, "do it");
        let question = editor.question();
        answer(&mut editor, &question);
        assert_eq!(editor.stops(prompt), "end_turn");
        assert_eq!(home.read("log.txt"), "");
        assert!(llm.last().result("c1").contains("denied"), "{}", llm.last().result("c1"));
        editor.leave();
    }
}

#[test]
fn always_allow_grants_the_rule_on_the_card() {
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "touch made.txt"),
        Answer::new().bash("c2", "touch made.txt"),
        Answer::say("Twice."),
    ]);
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "do it");
    let question = editor.question();
    editor.choose(&question, "allow_always");
    assert_eq!(editor.stops(prompt), "end_turn", "the second call is not asked about");
    assert!(home.work().join("made.txt").exists());
    let grants = home.ok(&["grants", "list", "--json"]).json();
    assert_eq!(grants.as_array().map(Vec::len), Some(1), "{grants:#}");
    editor.leave();
}

#[test]
fn an_answer_from_another_terminal_resumes_the_prompt() {
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "do it");
    let question = editor.question();
    home.ok(&["approve", "perm_c1"]);
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(editor.text("agent_message_chunk"), "I will.It is done.");
    // Too late: already answered.
    editor.choose(&question, "reject_once");
    let taken_back =
        editor.wait("the end of the question", |message| message["method"] == "$/cancel_request");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    editor.leave();
}

#[test]
fn a_run_resumed_by_another_process_is_followed_to_its_end() {
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "do it");
    editor.question();
    home.ok(&["approve", "perm_c1", "--resume"]);
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(editor.text("agent_message_chunk"), "I will.It is done.", "whichever process drove it");
    let settled = editor.updates("tool_call_update");
    assert!(settled.iter().any(|update| update["status"] == "completed"), "{settled:#?}");
    editor.leave();
}

#[test]
fn a_question_outlives_a_killed_process() {
    for is_answered_before in [false, true] {
        let llm = MockLlm::answers([
            Answer::say("I will.").bash("c1", TOUCH),
            Answer::say("It is done."),
            Answer::say("You are welcome."),
        ]);
        let home = Home::with(&llm);
        let (mut editor, session) = Editor::open(&home);
        editor.prompt(&session, "do it");
        editor.question();
        editor.kill();
        assert_eq!(home.question(), "perm_c1");
        if is_answered_before {
            home.ok(&["approve", "perm_c1"]);
        }
        let mut editor = Editor::start(&home);
        editor.call("session/load", json!({"sessionId": session, "cwd": home.work(), "mcpServers": []}));
        assert_eq!(editor.text("user_message_chunk"), "do it", "the history arrived before the answer");
        assert_eq!(editor.text("agent_message_chunk"), "I will.");
        let prompt = editor.prompt(&session, "thanks");
        if !is_answered_before {
            let question = editor.question();
            editor.choose(&question, "allow_once");
        }
        assert_eq!(editor.stops(prompt), "end_turn");
        assert_eq!(home.read("log.txt"), "ran\n", "once");
        assert_eq!(editor.text("agent_message_chunk"), "I will.It is done.You are welcome.");
        assert_eq!(llm.last().user(), "thanks");
        editor.leave();
        assert!(home.open().is_empty());
    }
}

#[test]
fn closing_the_editor_leaves_the_question() {
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    editor.prompt(&session, "do it");
    editor.question();
    editor.leave();
    assert_eq!(home.question(), "perm_c1");
    home.ok(&["approve", "perm_c1", "--resume"]);
    assert_eq!(home.read("log.txt"), "ran\n");
}

#[test]
fn cancelling_ends_the_turn_at_any_point() {
    // While the model is streaming.
    let llm = MockLlm::answers([Answer::say("Well").part(Part::Hang)]);
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "hi");
    let is_chunk = |message: &Value| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
    editor.wait("the first text", is_chunk);
    editor.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(editor.stops(prompt), "cancelled");
    editor.leave();

    // While a question is pending.
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "do it");
    let question = editor.question();
    editor.notify("session/cancel", json!({"sessionId": session}));
    let outcome = json!({"outcome": {"outcome": "cancelled"}});
    editor.write(&json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome}));
    assert_eq!(editor.stops(prompt), "cancelled");
    assert!(home.open().is_empty(), "a cancelled turn asks nothing");
    assert_eq!(home.read("log.txt"), "");
    // The session continues.
    let prompt = editor.prompt(&session, "and now?");
    assert_eq!(editor.stops(prompt), "end_turn");
    editor.leave();
}

#[test]
fn no_client_enters_yolo_or_auto() {
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let mut editor = Editor::start(&home);
    let opened = editor.call("session/new", json!({"cwd": home.work(), "mcpServers": []}));
    let session = opened["sessionId"].as_str().expect("a session").to_owned();
    assert_eq!(opened["modes"]["currentModeId"], "ask");
    let modes: Vec<_> =
        opened["modes"]["availableModes"].as_array().expect("modes").iter().map(|m| &m["id"]).collect();
    assert_eq!(modes, ["ask", "accept-edits", "plan"]);
    for mode in ["yolo", "auto", "YOLO", ""] {
        let (code, why) = editor.refused("session/set_mode", json!({"sessionId": session, "modeId": mode}));
        assert_eq!(code, -32602, "{why}");
    }
    let prompt = editor.prompt(&session, "do it");
    let question = editor.question();
    editor.choose(&question, "reject_once");
    editor.stops(prompt);
    assert_eq!(home.read("log.txt"), "");
    editor.call("session/set_mode", json!({"sessionId": session, "modeId": "plan"}));
    assert_eq!(editor.updates("current_mode_update")[0]["currentModeId"], "plan");
    editor.leave();
}

#[test]
fn invalid_requests_are_errors_with_reasons() {
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let refused = |editor: &mut Editor, method: &str, params: Value, words: &str| {
        let (_, why) = editor.refused(method, params);
        assert!(why.contains(words), "{method}: {why}");
    };
    refused(&mut editor, "session/new", json!({"cwd": "here", "mcpServers": []}), "absolute");
    refused(
        &mut editor,
        "session/new",
        json!({"cwd": "/no/such/folder", "mcpServers": []}),
        "/no/such/folder",
    );
    let sse = json!([{"type": "sse", "name": "old", "url": "http://127.0.0.1:1/sse", "headers": []}]);
    refused(&mut editor, "session/new", json!({"cwd": home.work(), "mcpServers": sse}), "`old`");
    let unknown = json!({"sessionId": "none", "cwd": home.work(), "mcpServers": []});
    assert_eq!(editor.refused("session/load", unknown).0, -32002);
    let prompt = json!([{"type": "text", "text": "hi"}]);
    assert_eq!(editor.refused("session/prompt", json!({"sessionId": "none", "prompt": prompt})).0, -32002);
    let audio = json!([{"type": "audio", "mimeType": "audio/wav", "data": "AA"}]);
    refused(&mut editor, "session/prompt", json!({"sessionId": session, "prompt": audio}), "audio");
    assert_eq!(editor.refused("session/dance", json!({})).0, -32601);
    // Lines that are no messages end nothing.
    let stdin = editor.stdin.as_mut().expect("open");
    stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}\n").expect("written");
    let error = editor.wait("a parse error", |message| message["error"]["code"] == -32700);
    assert!(error.to_string().contains("invalid utf-8"), "{error}");
    assert_eq!(editor.refused("session/dance", json!({})).0, -32601);
    editor.leave();
}

#[test]
fn without_a_key_the_error_names_the_login() {
    let home = Home::new();
    let mut editor = Editor::start(&home);
    let (code, why) = editor.refused("session/new", json!({"cwd": home.work(), "mcpServers": []}));
    assert_eq!(code, -32000);
    assert!(why.contains("aye login"), "{why}");
    editor.leave();
}

#[test]
fn a_failed_run_is_an_error_and_the_session_continues() {
    let llm = MockLlm::answers([Answer::error(400, "no such luck"), Answer::say("Better.")]);
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "hi");
    let answer = editor.answer(prompt);
    assert_eq!(answer["error"]["code"], -32603, "{answer:#}");
    assert!(
        answer["error"]["message"].as_str().is_some_and(|why| why.contains("no such luck")),
        "{answer:#}"
    );
    let prompt = editor.prompt(&session, "again");
    assert_eq!(editor.stops(prompt), "end_turn");
    editor.leave();
}

#[test]
fn conversations_are_listed_by_folder() {
    let llm = MockLlm::by(|_| Answer::say("ok"));
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "first words");
    editor.stops(prompt);
    let list = editor.call("session/list", json!({"cwd": home.work()}));
    let row = &list["sessions"][0];
    assert_eq!((&row["sessionId"], &row["title"]), (&json!(session), &json!("first words")), "{list:#}");
    let elsewhere = editor.call("session/list", json!({"cwd": home.root()}));
    assert_eq!(elsewhere["sessions"], json!([]));
    editor.leave();
}

#[test]
fn a_signal_ends_the_program_and_leaves_the_question() {
    let llm = asks_to_run();
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    editor.prompt(&session, "do it");
    editor.question();
    kill_process(Pid::from_child(&editor.child), Signal::TERM).expect("is alive");
    until("the end of the program", || editor.child.try_wait().expect("a child").is_some());
    assert_eq!(editor.child.wait().expect("a child").code(), Some(143));
    assert_eq!(home.question(), "perm_c1");
}

#[test]
fn an_editors_server_serves_its_session() {
    let llm = MockLlm::answers([
        Answer::new().call("c1", "mcp__my_shed__echo", json!({"a": 1})),
        Answer::say("It is done."),
    ]);
    let home = Home::with(&llm);
    let tools = home.root().join("tools.json");
    let tool = json!([{"name": "echo", "description": "does echo", "inputSchema": {"type": "object"}}]);
    std::fs::write(&tools, tool.to_string()).expect("written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mcp_server.sh");
    let servers = json!([
        {"name": "my shed", "command": "/bin/sh", "args": [script, tools], "env": []},
        {"name": "gone", "command": "/no/such/server", "args": [], "env": []},
    ]);
    let mut editor = Editor::start(&home);
    let opened = editor.call("session/new", json!({"cwd": home.work(), "mcpServers": servers}));
    let session = opened["sessionId"].as_str().expect("a session").to_owned();
    let prompt = editor.prompt(&session, "use the shed");
    let question = editor.question();
    assert_eq!(question["params"]["toolCall"]["kind"], "other", "rules judge each call: {question:#}");
    editor.choose(&question, "allow_once");
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(llm.last().result("c1"), "it was called");
    assert!(editor.text("agent_message_chunk").contains("gone"), "a server that does not start is named");
    editor.leave();
    assert!(home.ok(&["mcp", "list"]).stdout.find("shed").is_none(), "for this session only");
}

#[test]
fn a_form_is_shown_as_a_form_if_the_editor_supports_it() {
    let question = json!({"question": "Which colour?"});
    let answers = || [Answer::new().call("q1", "AskUser", question.clone()), Answer::say("Noted.")];
    let llm = MockLlm::answers(answers());
    let home = Home::with(&llm);
    let mut editor = Editor::start_with(&home, &json!({"elicitation": {"form": {}}}), &[]);
    let opened = editor.call("session/new", json!({"cwd": home.work(), "mcpServers": []}));
    let session = opened["sessionId"].as_str().expect("a session").to_owned();
    let prompt = editor.prompt(&session, "ask me");
    let form = editor.wait("a form", |message| message["method"] == "elicitation/create");
    assert_eq!(
        (&form["params"]["mode"], &form["params"]["message"]),
        (&json!("form"), &json!("Which colour?"))
    );
    assert_eq!(form["params"]["requestedSchema"]["required"], json!(["answer"]));
    let filled = json!({"action": "accept", "content": {"answer": "mauve"}});
    editor.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": filled}));
    assert_eq!(editor.stops(prompt), "end_turn");
    assert!(llm.last().result("q1").contains("mauve"), "{}", llm.last().result("q1"));
    editor.leave();

    // Without form support the question names the command that answers it.
    let llm = MockLlm::answers(answers());
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    let prompt = editor.prompt(&session, "ask me");
    let question = editor.question();
    let content = question["params"]["toolCall"]["content"].to_string();
    assert!(content.contains("aye answer"), "{content}");
    home.ok(&["answer", &home.question(), r#"{"answer": "mauve"}"#]);
    assert_eq!(editor.stops(prompt), "end_turn");
    assert!(llm.last().result("q1").contains("mauve"), "{}", llm.last().result("q1"));
    editor.leave();
}

#[test]
fn a_model_is_chosen_for_the_session() {
    let llm = MockLlm::by(|chat| Answer::say(chat.body["model"].as_str().unwrap_or_default()));
    let home = Home::with(&llm);
    let mut editor = Editor::start(&home);
    let opened = editor.call("session/new", json!({"cwd": home.work(), "mcpServers": []}));
    let session = opened["sessionId"].as_str().expect("a session").to_owned();
    let option = |options: &Value, id: &str| {
        let list = options["configOptions"].as_array().expect("options").clone();
        list.into_iter().find(|option| option["id"] == id).unwrap_or_else(|| panic!("{options:#}"))
    };
    assert_eq!(option(&opened, "model")["currentValue"], "mock/m1");
    assert_eq!(option(&opened, "mode")["currentValue"], "ask");
    let set = |id: &str, value: &str| json!({"sessionId": session, "configId": id, "value": value});
    let plan = editor.call("session/set_config_option", set("mode", "plan"));
    assert_eq!(option(&plan, "mode")["currentValue"], "plan");
    editor.call("session/set_config_option", set("model", "mock/m1"));
    for (id, value) in [("mode", "yolo"), ("model", "other/none"), ("sandbox", "off")] {
        let (code, why) = editor.refused("session/set_config_option", set(id, value));
        assert_eq!(code, -32602, "{why}");
    }
    let prompt = editor.prompt(&session, "who are you?");
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "m1");
    editor.leave();
}

#[test]
fn attachments_reach_the_model_unless_a_rule_denies_them() {
    let llm = MockLlm::by(|_| Answer::say("Seen."));
    let home = Home::with(&llm);
    home.rules("rules: [{tool: 'Read(**/secret.txt)', behavior: deny}]");
    let (mut editor, session) = Editor::open(&home);
    let uri = |name: &str| format!("file://{}", home.work().join(name).display());
    let pixel =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
    let blocks = json!([
        {"type": "text", "text": "Compare "},
        {"type": "resource_link", "name": "a.rs", "uri": uri("a.rs")},
        {"type": "resource", "resource": {"uri": uri("b.rs"), "text": "fn b() {}"}},
        {"type": "image", "mimeType": "image/png", "data": pixel},
    ]);
    let prompt = editor.send("session/prompt", json!({"sessionId": session, "prompt": blocks}));
    assert_eq!(editor.stops(prompt), "end_turn");
    let asked = llm.last().body["messages"].to_string();
    for text in ["Compare @", "a.rs", "fn b() {}", "data:image/png;base64"] {
        assert!(asked.contains(text), "{text}: {asked}");
    }
    let secret = json!([{"type": "resource", "resource": {"uri": uri("secret.txt"), "text": "hunter2"}}]);
    let (_, why) = editor.refused("session/prompt", json!({"sessionId": session, "prompt": secret}));
    assert!(why.contains("secret.txt"), "{why}");
    assert!(!llm.last().body.to_string().contains("hunter2"));
    editor.leave();
}

#[test]
fn a_call_that_may_have_run_is_asked_about() {
    let command = "echo ran >> log.txt; sleep 100";
    let llm = MockLlm::answers([
        Answer::new().bash("c1", command),
        Answer::say("Skipped."),
        Answer::say("You are welcome."),
    ]);
    let home = Home::with(&llm);
    let (mut editor, session) = Editor::open(&home);
    editor.prompt(&session, "do it");
    let question = editor.question();
    editor.choose(&question, "allow_once");
    until("the command", || home.read("log.txt") == "ran\n");
    editor.kill();
    let mut editor = Editor::start(&home);
    editor.call("session/load", json!({"sessionId": session, "cwd": home.work(), "mcpServers": []}));
    let prompt = editor.prompt(&session, "thanks");
    let question = editor.question();
    let options = question["params"]["options"].as_array().expect("options");
    let names: Vec<_> = options.iter().filter_map(|option| option["name"].as_str()).collect();
    assert_eq!(names, ["Run again", "Mark as done", "Skip"]);
    editor.select(&question, &json!("whatever"));
    assert_eq!(editor.stops(prompt), "end_turn");
    assert_eq!(home.read("log.txt"), "ran\n", "an opaque call never reruns unasked");
    editor.leave();
}

#[test]
fn subagent_questions_are_asked_in_the_editor() {
    for background in [false, true] {
        let is_scout = |chat: &Chat| chat.system().contains("You scout.");
        let args = json!({"prompt": "look around", "background": background});
        let llm = MockLlm::by(move |chat| match (is_scout(chat), chat.results().len()) {
            (false, _) if chat.user().contains("All clear") => Answer::say("I heard."),
            (false, 0) => Answer::new().call("c1", "agent_run_scout", args.clone()),
            (false, _) => Answer::say("The lead is done."),
            (true, 0) => Answer::new().bash("c1", TOUCH),
            (true, _) => Answer::say("All clear."),
        });
        let home = Home::with(&llm);
        let folder = home.root().join("aye/config/agents");
        std::fs::create_dir_all(&folder).expect("a folder");
        let agent = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
        agent("lead.md", "---\ndescription: Leads.\ndelegates: [scout]\n---\nYou lead.\n");
        agent("scout.md", "---\ndescription: Looks around.\n---\nYou scout.\n");
        let mut editor = Editor::start_with(&home, &json!({}), &["--agent", "lead"]);
        let session = editor.new_session(&home);
        let prompt = editor.prompt(&session, "go");
        let question = editor.question();
        assert_eq!(question["params"]["toolCall"]["title"], TOUCH);
        editor.choose(&question, "allow_once");
        assert_eq!(editor.stops(prompt), "end_turn");
        assert_eq!(home.read("log.txt"), "ran\n");
        let expected = if background { "The lead is done.I heard." } else { "The lead is done." };
        assert_eq!(editor.text("agent_message_chunk"), expected);
        editor.leave();
    }
}

#[test]
fn unsaved_text_is_read_from_the_editor_and_never_overwritten() {
    let llm = MockLlm::answers([
        Answer::new().call("c1", "Read", json!({"file_path": "a.txt"})),
        Answer::new().call(
            "c2",
            "Edit",
            json!({"file_path": "a.txt", "old_string": "disk", "new_string": "new"}),
        ),
        Answer::new().call("c3", "Read", json!({"file_path": ".env"})),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.write("a.txt", "on the disk\n");
    home.write(".env", "TOKEN=1\n");
    let rules = "rules:\n  - {tool: \"Read(**/.env)\", behavior: deny}\n";
    std::fs::write(home.root().join("aye/config/permissions.yaml"), rules).expect("written");
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
    let mut editor = Editor::start_with(&home, &capabilities, &[]);
    let session = editor.new_session(&home);
    let prompt = editor.prompt(&session, "look");
    let mut asked = Vec::new();
    for _ in 0..2 {
        let request = editor.wait("a file request", |message| message["method"] == "fs/read_text_file");
        asked.push(request["params"]["path"].as_str().expect("a path").to_owned());
        let content = "in the editor\n";
        editor.write(&json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": content}}));
    }
    assert_eq!(editor.stops(prompt), "end_turn");
    let path = home.work().join("a.txt").to_string_lossy().into_owned();
    assert_eq!(asked, [path.clone(), path], "a denied file is not asked for");
    let last = llm.last();
    assert!(last.result("c1").contains("in the editor"), "{}", last.result("c1"));
    assert!(last.result("c2").contains("unsaved changes in the editor"), "{}", last.result("c2"));
    assert!(last.result("c3").starts_with("denied"), "{}", last.result("c3"));
    assert!(editor.seen.iter().all(|message| message["method"] != "fs/read_text_file"));
    assert_eq!(home.read("a.txt"), "on the disk\n");
    editor.leave();
}

/// The editor makes the edits, where it can; what is on disk afterwards is what counts.
#[test]
fn edits_are_saved_by_the_editor() {
    let edit =
        |file: &str, old: &str, new: &str| json!({"file_path": file, "old_string": old, "new_string": new});
    let write = |file: &str| json!({"file_path": file, "content": "made\n"});
    let llm = MockLlm::answers([
        Answer::new().call("c0", "Read", json!({"file_path": "a.txt"})),
        Answer::new().call("c1", "Edit", edit("a.txt", "one", "two")),
        Answer::new().call("c2", "Edit", edit("formatted.txt", "one", "two")),
        Answer::new().call("c3", "Edit", edit("refused.txt", "one", "two")),
        Answer::new().call("c4", "Edit", edit("kept.txt", "one", "two")),
        Answer::new().call("c5", "Edit", edit("link.txt", "one", "two")),
        Answer::new().call("c6", "Write", write(".env")),
        Answer::new().call("c7", "Write", write("draft.txt")),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    for name in ["a", "formatted", "refused", "kept", "target"] {
        home.write(&format!("{name}.txt"), "one\n");
    }
    std::os::unix::fs::symlink("target.txt", home.work().join("link.txt")).expect("a link");
    home.rules(
        "rules:\n  - {tool: \"Write(**/.env)\", behavior: deny}\n  - {tool: Edit, behavior: allow}\n  \
         - {tool: Write, behavior: allow}\n",
    );
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
    let mut editor = Editor::start_with(&home, &capabilities, &[]);
    let session = editor.new_session(&home);
    let prompt = editor.prompt(&session, "change them");
    let mut saved = Vec::new();
    loop {
        let message = editor.wait("a request", |message| {
            message["method"].as_str().is_some_and(|method| method.starts_with("fs/"))
                || (message["id"] == prompt && message.get("method").is_none())
        });
        let Some(method) = message["method"].as_str() else {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            break;
        };
        let path = message["params"]["path"].as_str().expect("a path").to_owned();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let failed = json!({"error": {"code": -32000, "message": "no such file"}});
        let mut reply = match method {
            // A file that was never saved.
            "fs/read_text_file" if name == "draft.txt" => json!({"result": {"content": "unsaved"}}),
            "fs/read_text_file" => match std::fs::read_to_string(&path) {
                Ok(content) => json!({"result": {"content": content}}),
                Err(_) => failed,
            },
            _ => {
                let content = message["params"]["content"].as_str().expect("a string").to_owned();
                assert_eq!(content, "two\n", "{name}");
                saved.push(name.clone());
                match name.as_str() {
                    "a.txt" => std::fs::write(&path, content).expect("written"),
                    "formatted.txt" => std::fs::write(&path, "two;\n").expect("written"),
                    // Changed in the editor only.
                    "kept.txt" => {}
                    _ => assert_eq!(name, "refused.txt"),
                }
                if name == "refused.txt" { failed } else { json!({"result": {}}) }
            }
        };
        reply["jsonrpc"] = json!("2.0");
        reply["id"] = message["id"].clone();
        editor.write(&reply);
    }
    assert_eq!(saved, ["a.txt", "formatted.txt", "refused.txt", "kept.txt"]);
    for (name, content) in [
        ("a.txt", "two\n"),
        ("formatted.txt", "two;\n"),
        ("refused.txt", "two\n"),
        ("kept.txt", "two\n"),
        ("target.txt", "two\n"),
    ] {
        assert_eq!(home.read(name), content, "{name}");
    }
    assert!(!home.work().join(".env").exists() && !home.work().join("draft.txt").exists());
    let last = llm.last();
    for (call, text) in [
        ("c1", "changed a.txt (+1 -1)"),
        ("c2", "changed formatted.txt (+1 -1); the editor made changes of its own"),
        ("c3", "changed refused.txt (+1 -1)"),
        ("c4", "changed kept.txt (+1 -1)"),
        ("c6", "denied"),
        ("c7", "unsaved changes in the editor"),
    ] {
        assert!(last.result(call).contains(text), "{call}: {}", last.result(call));
    }
    editor.leave();
}
