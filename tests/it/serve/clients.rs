//! Clients of other protocols: the AI SDK, AG-UI, A2A and MCP.

use super::*;

/// The kinds of chunks or events.
fn kinds_of(parts: &[Value]) -> Vec<&str> {
    parts.iter().filter_map(|part| part["type"].as_str()).collect()
}

/// A page of AG-UI's `HttpAgent`, which keeps its messages.
struct Page<'a> {
    server: &'a Server,
    thread: &'a str,
    messages: Vec<Value>,
    tools: Value,
    state: Value,
}

impl<'a> Page<'a> {
    fn new(server: &'a Server, thread: &'a str) -> Self {
        Self { server, thread, messages: Vec::new(), tools: json!([]), state: json!({}) }
    }

    fn say(&mut self, id: &str, text: &str) {
        self.messages.push(json!({ "id": id, "role": "user", "content": text }));
    }

    fn input(&self, run: &str, resume: &Value) -> Value {
        let mut input = json!({
            "threadId": self.thread, "runId": run, "state": self.state, "tools": self.tools, "context": [],
            "forwardedProps": {}, "messages": self.messages,
        });
        if !resume.is_null() {
            input["resume"] = resume.clone();
        }
        input
    }

    /// One run: its events, whose messages the page keeps as the client does.
    #[track_caller]
    fn run(&mut self, run: &str, resume: &Value) -> Vec<Value> {
        let reply = self.server.post("/v1/ag-ui/run", &self.input(run, resume));
        assert_eq!(reply.status, 200, "{reply:?}");
        let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((&events[0]["type"], &events[0]["runId"]), (&json!("RUN_STARTED"), &json!(run)));
        for event in &events {
            self.apply(event);
        }
        events
    }

    fn apply(&mut self, event: &Value) {
        let id = &event["messageId"];
        let found = self.messages.iter().position(|message| message["id"] == *id);
        match event["type"].as_str().expect("a kind") {
            "MESSAGES_SNAPSHOT" => {
                let all = event["messages"].as_array().expect("a list");
                let has = |list: &[Value], id: &Value| list.iter().any(|message| message["id"] == *id);
                self.messages.retain(|message| has(all, &message["id"]));
                for message in all {
                    if !has(&self.messages, &message["id"]) {
                        self.messages.push(message.clone());
                    }
                }
            }
            "TEXT_MESSAGE_START" if found.is_none() => {
                self.messages.push(json!({ "id": id, "role": "assistant", "content": "" }));
            }
            "TEXT_MESSAGE_CONTENT" => {
                let message = &mut self.messages[found.expect("a message")];
                let text = format!(
                    "{}{}",
                    message["content"].as_str().unwrap_or(""),
                    event["delta"].as_str().unwrap_or("")
                );
                message["content"] = text.into();
            }
            "TOOL_CALL_START" => {
                let named = |name: &str| Some(&event[name]).filter(|id| id.is_string());
                let parent = named("parentMessageId").unwrap_or(&event["toolCallId"]).clone();
                let at = self.messages.iter().position(|message| message["id"] == parent);
                let at = at.unwrap_or_else(|| {
                    self.messages.push(json!({ "id": parent, "role": "assistant" }));
                    self.messages.len() - 1
                });
                let call = json!({ "id": event["toolCallId"], "type": "function",
                    "function": { "name": event["toolCallName"], "arguments": "{}" } });
                match self.messages[at]["toolCalls"].as_array_mut() {
                    Some(calls) => calls.push(call),
                    None => self.messages[at]["toolCalls"] = json!([call]),
                }
            }
            "TOOL_CALL_RESULT" => self.messages.push(json!({ "id": id, "role": "tool",
                "toolCallId": event["toolCallId"], "content": event["content"] })),
            _ => {}
        }
    }

    fn texts(&self) -> Vec<&str> {
        self.messages.iter().filter_map(|message| message["content"].as_str()).collect()
    }
}

fn outcome(events: &[Value]) -> &Value {
    let last = events.last().expect("an end");
    assert_eq!(last["type"], "RUN_FINISHED", "{last}");
    &last["outcome"]
}

fn interrupt_of(events: &[Value]) -> &str {
    outcome(events)["interrupts"][0]["id"].as_str().expect("an interrupt")
}

#[test]
fn a_page_whose_question_was_answered_elsewhere_goes_on() {
    let mut script = vec![Answer::new().text("I will.").bash("c1", RUN), Answer::say("It is done.")];
    script.extend((0..4).map(|n| Answer::say(&format!("Reply {n}."))));
    let llm = MockLlm::answers(script);
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let mut page = Page::new(&server, "late");
    page.say("u1", "do it");
    let asked = interrupt_of(&page.run("r1", &Value::Null)).to_owned();
    assert_eq!(server.approve(&server.card()).status, 200);
    until("the end", || done(&server, "late"));
    // `HttpAgent` sends nothing without an entry for each interrupt that it knows.
    for (n, status) in ["cancelled", "resolved"].into_iter().enumerate() {
        let late = json!([{ "interruptId": asked, "status": status }]);
        let mut copy = Page { messages: page.messages.clone(), ..Page::new(&server, "late") };
        let events = copy.run(&format!("late-{n}"), &late);
        assert_eq!(outcome(&events)["type"], "success", "{events:?}");
        let texts = copy.texts();
        assert_eq!((texts.first(), texts.last()), (Some(&"do it"), Some(&"It is done.")), "{texts:?}");
        assert_eq!(texts.len(), copy.messages.len());
    }
    assert_eq!(home.read("log.txt"), "ran\n");
    // What the user writes beside it is said.
    page.say("u2", "and now?");
    let events = page.run("r2", &json!([{ "interruptId": asked, "status": "cancelled" }]));
    assert_eq!(outcome(&events)["type"], "success");
    let texts = page.texts();
    assert_eq!(
        (texts[0], &texts[texts.len() - 3..]),
        ("do it", &["It is done.", "and now?", "Reply 0."][..])
    );
    // The same request again, after a lost connection, says nothing twice.
    let mut again =
        Page { messages: page.messages[..page.messages.len() - 1].to_vec(), ..Page::new(&server, "late") };
    let events = again.run("r3", &Value::Null);
    assert_eq!(outcome(&events)["type"], "success");
    assert_eq!(
        again.messages.iter().map(|m| &m["id"]).collect::<Vec<_>>(),
        page.messages.iter().map(|m| &m["id"]).collect::<Vec<_>>()
    );
    server.stop();
}

#[test]
fn a_page_with_an_expired_question_learns_of_the_next_one() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().bash("c1", RUN),
        1 => Answer::new().bash("c2", RUN),
        _ => Answer::say("End."),
    });
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: Bash, behavior: ask}\n");
    let server = Server::start(&home, &[]);
    let mut page = Page::new(&server, "two");
    page.say("u1", "do it");
    let first = interrupt_of(&page.run("r1", &Value::Null)).to_owned();
    assert_eq!(server.approve(&server.card()).status, 200);
    until("the second question", || server.get("/v1/approvals").json()["items"][0]["call_id"] == "c2");
    // A message beside an old answer does not close a question that the page has not seen.
    page.say("u2", "later");
    let events = page.run("r2", &json!([{ "interruptId": first, "status": "cancelled" }]));
    let second = interrupt_of(&events).to_owned();
    assert_ne!(first, second);
    let yes = json!([{ "interruptId": second, "status": "resolved", "payload": { "approved": true } }]);
    let events = page.run("r3", &yes);
    assert_eq!(outcome(&events)["type"], "success", "{events:?}");
    until("the queued message", || llm.last().user() == "later");
    assert_eq!(home.read("log.txt"), "ran\nran\n");
    server.stop();
}

/// Of two requests the provider refuses the first one for an hour.
fn limits_every_other() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.nth % 2 {
        0 => Answer::error(429, "used up").header("retry-after", "3600"),
        _ => Answer::say("Here I am."),
    })
}

/// Each client sees why nothing comes and until when; nobody asks the provider again unless a person wants it.
#[test]
fn clients_see_a_run_that_waits_for_a_limit() {
    let llm = limits_every_other();
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let chunks = |reply: &Reply| -> Vec<Value> {
        let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.filter(|line| *line != "[DONE]").map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let is_told = |text: &Value| {
        let text = text.as_str().unwrap_or_default();
        text.contains("used up")
    };

    // AG-UI: an interrupt with the time, which an answer cuts short.
    let mut page = Page::new(&server, "limit-1");
    page.say("u1", "go");
    let events = page.run("r1", &Value::Null);
    let interrupt = outcome(&events)["interrupts"][0].clone();
    assert!(is_told(&interrupt["message"]), "{interrupt}");
    assert_eq!(
        (&interrupt["reason"], &interrupt["metadata"]["action"]),
        (&json!("input_required"), &json!("run:Wait"))
    );
    assert!(interrupt["expiresAt"].is_string(), "{interrupt}");
    let again = page.run("r2", &Value::Null);
    assert_eq!(interrupt_of(&again), interrupt["id"].as_str().expect("an id"), "looking changes nothing");
    assert_eq!(llm.asked().len(), 1);
    let now =
        json!([{ "interruptId": interrupt["id"], "status": "resolved", "payload": { "answer": "Try now" } }]);
    let events = page.run("r3", &now);
    assert_eq!(outcome(&events)["type"], "success", "{events:?}");
    assert_eq!(page.texts().last(), Some(&"Here I am."));

    // The AI SDK: a part with the question and the time. A yes without a choice is no answer, a no ends the run.
    let said = json!({ "id": "limit-2", "trigger": "submit-message",
        "messages": [{ "id": "u1", "role": "user", "parts": [{ "type": "text", "text": "go" }] }] });
    let parts = chunks(&server.post("/v1/ai-sdk/chat", &said));
    let asked = parts.iter().find(|part| part["type"] == "data-question").expect("a question");
    assert!(is_told(&asked["data"]["message"]), "{asked}");
    assert_eq!(asked["data"]["action"], "run:Wait");
    assert!(asked["data"]["expiresAt"].is_u64(), "{asked}");
    let call = parts.iter().find(|part| part["type"] == "tool-approval-request").expect("a request");
    assert_eq!(kinds_of(&parts).last(), Some(&"finish"));
    let name = parts.iter().find_map(|part| part["toolName"].as_str()).expect("a name");
    let answer = |approved: bool, reason: &str| {
        let mut approval = json!({ "id": call["approvalId"], "approved": approved });
        if !reason.is_empty() {
            approval["reason"] = reason.into();
        }
        let part = json!({ "type": format!("tool-{name}"), "toolCallId": call["toolCallId"],
            "state": "approval-responded", "input": {}, "approval": approval });
        json!({ "id": "limit-2", "trigger": "submit-message", "messageId": parts[0]["messageId"],
            "messages": [said["messages"][0], { "id": parts[0]["messageId"], "role": "assistant", "parts": [part] }] })
    };
    assert_eq!(server.post("/v1/ai-sdk/chat", &answer(true, "")).status, 400);
    assert_eq!((llm.asked().len(), server.card()["status"].clone()), (3, json!("open")));
    let parts = chunks(&server.post("/v1/ai-sdk/chat", &answer(true, "Try now")));
    assert!(parts.iter().any(|part| part["delta"] == "Here I am."), "{parts:?}");
    until("the end", || done(&server, "limit-2"));

    // A2A: a task that needs input, whose status says why.
    let send = |task: &str, text: &str| {
        let head = format!(
            "POST /v1/a2a/message:send HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             A2A-Version: 1.0\r\nContent-Type: application/a2a+json\r\n",
            server.address, server.token
        );
        let message =
            json!({ "messageId": text, "role": "ROLE_USER", "taskId": task, "parts": [{ "text": text }] });
        server.raw(&head, &json!({ "message": message }).to_string()).json()["task"].clone()
    };
    let task = send("", "go");
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    assert!(task["status"]["message"].to_string().contains("used up"), "{task}");
    let id = task["id"].as_str().expect("an id");
    let task = send(id, "Try now");
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert!(task["artifacts"].to_string().contains("Here I am."), "{task}");
    assert_eq!(llm.asked().len(), 6);
    server.stop();
}

/// The time is a row, so the next server resumes the run, too; a no of a page ends it.
#[test]
fn a_server_resumes_a_run_when_its_limit_resets() {
    let llm = limits_every_other();
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let mut page = Page::new(&server, "limit");
    page.say("u1", "go");
    interrupt_of(&page.run("r1", &Value::Null));
    server.stop();
    let store = crate::audit::database(&home);
    // The hour is over.
    let at: i64 = store.query_row("SELECT available_at FROM mailbox", (), |row| row.get(0)).expect("a job");
    for sql in [
        "UPDATE mailbox SET available_at = 1 WHERE available_at = ?1",
        "UPDATE suspension SET expires_at = 1, ticket = replace(ticket, ?1, '1') WHERE expires_at = ?1",
        "UPDATE run SET body = replace(body, ?1, '1') WHERE instr(body, ?1) > 0",
    ] {
        assert_eq!(store.execute(sql, (at,)).expect("a row"), 1, "{sql}");
    }
    drop(store);
    let server = Server::start(&home, &[]);
    until("the end", || done(&server, "limit"));
    assert_eq!((llm.asked().len(), home.open().len()), (2, 0));
    let mut page = Page::new(&server, "limit");
    page.run("r2", &Value::Null);
    assert_eq!(page.texts(), ["go", "Here I am."]);
    page.say("u2", "go");
    let asked = interrupt_of(&page.run("r3", &Value::Null)).to_owned();
    page.run("r4", &json!([{ "interruptId": asked, "status": "cancelled" }]));
    until("the end", || done(&server, "limit"));
    assert_eq!((llm.asked().len(), home.open().len()), (3, 0));
    server.stop();
}

#[test]
fn a_tool_of_a_page_needs_no_rule_and_its_result_counts() {
    let picks = || {
        MockLlm::by(|chat: &Chat| match chat.results().len() {
            0 => Answer::new().call("c1", "pick_color", json!({ "kind": "warm" })),
            _ => Answer::say("A fine color."),
        })
    };
    let tools = json!([{ "name": "pick_color", "description": "Picks", "parameters": { "type": "object" } }]);
    let llm = picks();
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let mut page = Page { tools: tools.clone(), ..Page::new(&server, "page") };
    page.say("u1", "pick one");
    let events = page.run("r1", &Value::Null);
    assert_eq!(*outcome(&events), json!({ "type": "success", "pendingToolCallIds": ["c1"] }));
    page.messages.push(json!({ "id": "x1", "role": "tool", "toolCallId": "c1", "content": "\"red\"" }));
    let events = page.run("r2", &Value::Null);
    assert_eq!(outcome(&events)["type"], "success");
    assert!(!kinds_of(&events).contains(&"TOOL_CALL_RESULT"), "the page has it: {events:?}");
    assert_eq!(page.texts().last(), Some(&"A fine color."));
    assert_eq!(llm.last().result("c1"), "red");
    // The result again, from another tab, is no error.
    let mut other =
        Page { tools: tools.clone(), messages: page.messages[..3].to_vec(), ..Page::new(&server, "page") };
    other.run("r3", &Value::Null);
    assert_eq!(other.texts().last(), Some(&"A fine color."));
    server.stop();

    for (rule, kind) in [("ask", "interrupt"), ("deny", "success")] {
        let llm = picks();
        let home = Home::with(&llm);
        home.rules(&format!("rules:\n  - {{tool: pick_color, behavior: {rule}}}\n"));
        let server = Server::start(&home, &[]);
        let mut page = Page { tools: tools.clone(), ..Page::new(&server, "page") };
        page.say("u1", "pick one");
        let events = page.run("r1", &Value::Null);
        assert_eq!(outcome(&events)["type"], kind, "{rule}");
        assert!(outcome(&events)["pendingToolCallIds"].is_null(), "{rule}");
        server.stop();
    }
}

#[test]
fn a_page_keeps_its_state_and_gets_only_what_is_shared() {
    let todos = json!({ "todos": [{ "content": "Look", "status": "pending" }] });
    let llm = MockLlm::answers([
        Answer::new().call("c1", "TodoWrite", todos),
        Answer::say("Noted."),
        Answer::say("Again."),
        Answer::say("Once more."),
    ]);
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let mut page = Page { state: json!({ "cart": ["tea"] }), ..Page::new(&server, "state") };
    page.say("u1", "plan");
    let events = page.run("r1", &Value::Null);
    let snapshots: Vec<_> = events.iter().filter(|event| event["type"] == "STATE_SNAPSHOT").collect();
    assert_eq!(snapshots[0]["snapshot"], json!({ "cart": ["tea"] }), "{events:?}");
    let last = &snapshots.last().expect("a snapshot")["snapshot"];
    assert_eq!((&last["cart"], &last["todos"][0]["content"]), (&json!(["tea"]), &json!("Look")));
    assert_eq!(last.as_object().map(serde_json::Map::len), Some(2), "{last}");
    let offered = |chat: &Chat| chat.body["messages"].to_string().matches("State of the user's page").count();
    assert_eq!(offered(&llm.last()), 1);
    assert!(llm.last().body["messages"].to_string().contains("cart"), "{:?}", llm.last());
    // What the model has already is not repeated.
    page.state = last.clone();
    page.say("u2", "go on");
    page.run("r2", &Value::Null);
    assert_eq!(offered(&llm.last()), 1);
    page.state["cart"] = json!([]);
    page.say("u3", "go on");
    page.run("r3", &Value::Null);
    assert_eq!(offered(&llm.last()), 2);
    server.stop();
}

#[test]
fn a_page_that_joins_a_conversation_gets_its_messages() {
    let llm = MockLlm::answers(["One.", "Two.", "Three."].map(Answer::say));
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let made = server.post("/v1/threads", &json!({ "id": "shared" }));
    assert_eq!(made.status, 201);
    server.post("/v1/threads/shared/runs", &json!({ "text": "first" }));
    // Nothing is new: the page only looks.
    let mut looking = Page::new(&server, "shared");
    looking.run("r1", &Value::Null);
    assert_eq!(looking.texts(), ["first", "One."]);
    let mut page = Page::new(&server, "shared");
    page.say("u1", "second");
    page.run("r2", &Value::Null);
    assert_eq!(page.texts(), ["first", "One.", "second", "Two."]);
    let events = page.run("r3", &Value::Null);
    assert!(!kinds_of(&events).contains(&"MESSAGES_SNAPSHOT"), "the page has them all: {events:?}");
    // One who was there before gets the rest in order.
    looking.say("u2", "third");
    looking.run("r4", &Value::Null);
    assert_eq!(looking.texts(), ["first", "One.", "second", "Two.", "third", "Three."]);
    let empty = Page::new(&server, "empty");
    assert_eq!(server.post("/v1/ag-ui/run", &empty.input("r", &Value::Null)).status, 400);
    server.stop();
}

#[test]
fn a_closed_connection_stops_a_run_only_on_request() {
    for (header, ends) in [("", "natural_end"), ("Aye-On-Disconnect: cancel\r\n", "cancelled")] {
        let gate = Gate::default();
        let llm = MockLlm::answers([Answer::new().text("Half").wait(&gate).text(" and whole")]);
        let home = Home::with(&llm);
        let server = Server::start(&home, &[]);
        let said = json!({ "id": "chat-1", "trigger": "submit-message",
            "messages": [{ "id": "u1", "role": "user", "parts": [{ "type": "text", "text": "go" }] }] });
        let mut stream = server.post_stream("/v1/ai-sdk/chat", header, &said);
        while stream.next().expect("more").data["type"] != "text-delta" {}
        drop(stream);
        if ends == "cancelled" {
            until("the end", || done(&server, "chat-1"));
            gate.open();
        } else {
            gate.open();
            until("the end", || done(&server, "chat-1"));
        }
        let run = server.get("/v1/threads/chat-1/runs/latest").json();
        assert_eq!(run["termination"]["type"], ends, "{header}");
        server.stop();
    }
}

#[test]
fn a_stop_button_stops_the_run_of_its_page() {
    let gate = Gate::default();
    let llm = MockLlm::by({
        let gate = gate.clone();
        move |_: &Chat| Answer::new().text("Half").wait(&gate)
    });
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    for protocol in ["ai-sdk", "ag-ui"] {
        let page = Page {
            messages: vec![json!({ "id": "u", "role": "user", "content": "go" })],
            ..Page::new(&server, protocol)
        };
        let mut stream = server.post_stream("/v1/ag-ui/run", "", &page.input("r1", &Value::Null));
        while stream.next().expect("more").data["type"] != "TEXT_MESSAGE_CONTENT" {}
        let stopped = server.post(&format!("/v1/{protocol}/threads/{protocol}/cancel"), &json!({})).json();
        assert_eq!(stopped, json!({ "cancel_requested": true }));
        let mut last = Value::Null;
        while let Some(event) = stream.next() {
            last = event.data;
        }
        assert_eq!(last["outcome"]["type"], "cancelled", "{last}");
    }
    gate.open();
    let wrong = server.raw(
        &format!(
            "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAye-On-Disconnect: maybe\r\n",
            server.address, server.token
        ),
        "{\"text\": \"go\"}",
    );
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "invalid_on_disconnect"));
    server.stop();
}

#[test]
fn a_new_chat_has_nothing_to_resume() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    assert_eq!(server.get("/v1/ai-sdk/chat/fresh-id/stream").status, 204);
    assert_eq!(server.get("/v1/ai-sdk/threads/fresh-id/stream").status, 204);
    server.stop();
}

/// Whatever is wrong with the first request of a conversation.
#[test]
fn a_refused_request_leaves_no_conversation() {
    let llm = MockLlm::answers([Answer::say("Here I am.")]);
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let chat = |text: &str| {
        json!({ "id": "new", "trigger": "submit-message",
            "messages": [{ "id": "u1", "role": "user", "parts": [{ "type": "text", "text": text }] }] })
    };
    let page = |text: &str| {
        let mut page = Page::new(&server, "new");
        page.say("u1", text);
        page.input("r1", &Value::Null)
    };
    let agent = |text: &str| {
        let head = format!(
            "POST /v1/a2a/message:send HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             A2A-Version: 1.0\r\nContent-Type: application/a2a+json\r\n",
            server.address, server.token
        );
        let message =
            json!({ "messageId": "m", "role": "ROLE_USER", "contextId": "new", "parts": [{ "text": text }] });
        server.raw(&head, &json!({ "message": message, "tenant": "nobody" }).to_string())
    };
    for (what, reply) in [
        ("a command", server.post("/v1/ai-sdk/chat", &chat("/nope now"))),
        ("an agent", server.post("/v1/ai-sdk/agents/nobody/runs", &chat("go"))),
        ("a command", server.post("/v1/ag-ui/run", &page("/nope now"))),
        ("an agent", server.post("/v1/ag-ui/agents/nobody/runs", &page("go"))),
        ("a command", server.post("/v1/runs", &json!({ "thread_id": "new", "text": "/nope now" }))),
        (
            "an agent",
            server.post("/v1/runs", &json!({ "thread_id": "new", "text": "go", "agent_id": "nobody" })),
        ),
        ("an agent", agent("go")),
    ] {
        assert!((400..500).contains(&reply.status), "{what}: {reply:?}");
        assert_eq!(server.get("/v1/threads").json()["items"], json!([]), "{what}: {reply:?}");
    }
    assert_eq!(server.post("/v1/ai-sdk/chat", &chat("go")).status, 200);
    assert_eq!(server.get("/v1/threads").json()["items"], json!(["new"]));
    server.stop();
}

#[test]
fn a_yes_is_no_answer_to_a_question_that_needs_data() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "pick_color", json!({})),
        _ => Answer::say("Done."),
    });
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let mut page = Page { tools: json!([{ "name": "pick_color" }]), ..Page::new(&server, "data") };
    page.say("u1", "pick one");
    page.run("r1", &Value::Null);
    let card = server.card();
    let id = card["id"].as_str().expect("an id");
    let refused = server.approve(&card);
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid"));
    assert!(refused.body.contains(&format!("POST /v1/approvals/{id}/answer")), "{}", refused.body);
    let said = home.aye(&["approve", id]).run().exits(2).stderr;
    assert!(
        said.contains("needs data, not just approval") && said.contains(&format!("aye answer {id} ")),
        "{said}"
    );
    assert_eq!(server.card()["status"], "open");
    home.ok(&["answer", id, "\"red\""]);
    until("the end", || done(&server, "data"));
    assert_eq!(llm.last().result("c1"), "red");
    server.stop();
}

/// The requests and responses of `useChat`, with an approval in a second request.
#[test]
fn the_ai_sdk_asks_and_is_answered() {
    let llm = asks();
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let said = json!({
        "id": "chat-1", "trigger": "submit-message",
        "messages": [{ "id": "u1", "role": "user", "parts": [{ "type": "text", "text": "do it" }] }],
    });
    let first = server.post("/v1/ai-sdk/chat", &said);
    assert_eq!((first.status, first.header("x-vercel-ai-ui-message-stream")), (200, Some("v1")));
    let chunks = |reply: &Reply| -> Vec<Value> {
        let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.filter(|line| *line != "[DONE]").map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    assert!(first.body.trim_end().ends_with("data: [DONE]"), "{}", first.body);
    let parts = chunks(&first);
    let kinds = kinds_of(&parts);
    assert_eq!(kinds.first(), Some(&"start"));
    assert_eq!(kinds.last(), Some(&"finish"));
    let asked = parts.iter().find(|part| part["type"] == "tool-approval-request").expect("a question");
    assert_eq!(asked["toolCallId"], "c1");
    assert_eq!(server.get("/v1/ai-sdk/chat/chat-1/stream").status, 204, "nothing runs");
    let message = &parts[0]["messageId"];
    let answer = json!({
        "id": "chat-1", "trigger": "submit-message", "messageId": message,
        "messages": [
            said["messages"][0],
            { "id": message, "role": "assistant", "parts": [{
                "type": "tool-Bash", "toolCallId": "c1", "state": "approval-responded",
                "input": { "command": RUN },
                "approval": { "id": asked["approvalId"], "approved": true },
            }] },
        ],
    });
    let second = server.post("/v1/ai-sdk/chat", &answer);
    let parts = chunks(&second);
    assert!(parts.iter().any(|part| part["type"] == "tool-output-available"), "{}", second.body);
    assert!(parts.iter().any(|part| part["delta"] == "It is done."), "{}", second.body);
    assert_eq!(home.read("log.txt"), "ran\n");
    // The same answer again, or another one that comes too late, has no effect: the stream says what happened.
    let mut denial = answer.clone();
    denial["messages"][1]["parts"][0]["approval"]["approved"] = json!(false);
    for late in [&answer, &denial] {
        let again = server.post("/v1/ai-sdk/chat", late);
        assert_eq!(again.status, 200, "{again:?}");
        let parts = chunks(&again);
        assert_eq!((&parts[0]["type"], &parts[0]["messageId"]), (&json!("start"), message));
        let kinds = kinds_of(&parts);
        for kind in ["tool-output-available", "text-delta", "finish"] {
            assert!(kinds.contains(&kind), "{kind}: {}", again.body);
        }
        assert!(!kinds.contains(&"tool-input-start"), "the page has the call: {}", again.body);
    }
    assert_eq!(home.read("log.txt"), "ran\n");
    let messages = server.get("/v1/ai-sdk/threads/chat-1/messages").json();
    assert_eq!((&messages[0]["role"], &messages[1]["role"]), (&json!("user"), &json!("assistant")));
    server.stop();
}

#[test]
fn the_ai_sdk_resumes_a_stream_by_its_run() {
    let gate = Gate::default();
    let llm = MockLlm::answers([Answer::new().text("Half").wait(&gate).text(" and whole")]);
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let thread = server.post("/v1/threads", &json!({})).json()["id"].as_str().expect("an id").to_owned();
    let said = server.post(&format!("/v1/threads/{thread}/messages"), &json!({ "text": "go" })).json();
    let run = said["run_id"].as_str().expect("a run");
    until("the request", || llm.asked().len() == 1);
    let mut stream = server.stream(&format!("/v1/ai-sdk/streams/{run}"), "");
    let mut next = |kind: &str| loop {
        let chunk = stream.next().expect("more").data;
        if chunk["type"] == kind {
            return chunk;
        }
    };
    assert_eq!(next("text-delta")["delta"], "Half");
    gate.open();
    assert_eq!(next("text-delta")["delta"], " and whole");
    next("finish");
    until("the end", || done(&server, &thread));
    until("rest", || server.get(&format!("/v1/ai-sdk/runs/{run}/stream")).status == 204);
    assert_eq!(server.get("/v1/ai-sdk/streams/unknown").status, 404);
    server.stop();
}

/// The requests and responses of AG-UI's `HttpAgent`: an interrupt, and its answer in a new run.
#[test]
fn ag_ui_is_interrupted_and_resumed() {
    let llm = asks();
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let input = |run: &str, more: Value| {
        let mut input = json!({
            "threadId": "ag-1", "runId": run, "state": {}, "tools": [], "context": [], "forwardedProps": {},
            "messages": [{ "id": "m1", "role": "user", "content": "do it" }],
        });
        for (name, value) in more.as_object().expect("has members") {
            input[name] = value.clone();
        }
        input
    };
    let events = |reply: &Reply| -> Vec<Value> {
        let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let first = events(&server.post("/v1/ag-ui/run", &input("run-1", json!({}))));
    assert_eq!((&first[0]["type"], &first[0]["runId"]), (&json!("RUN_STARTED"), &json!("run-1")));
    assert!(first.iter().any(|event| event["type"] == "STATE_SNAPSHOT"), "{first:?}");
    let last = first.last().expect("an end");
    assert_eq!((&last["type"], &last["outcome"]["type"]), (&json!("RUN_FINISHED"), &json!("interrupt")));
    let interrupt = &last["outcome"]["interrupts"][0]["id"];
    let nothing = server.post(
        "/v1/ag-ui/run",
        &input("run-2", json!({ "resume": [{ "interruptId": "x", "status": "resolved" }] })),
    );
    assert_eq!(nothing.status, 400, "{nothing:?}");
    let answer = json!([{ "interruptId": interrupt, "status": "resolved", "payload": { "approved": true } }]);
    let second = events(&server.post("/v1/ag-ui/run", &input("run-2", json!({ "resume": answer }))));
    let last = second.last().expect("an end");
    assert_eq!((&last["type"], &last["runId"]), (&json!("RUN_FINISHED"), &json!("run-2")), "{second:?}");
    assert!(second.iter().any(|event| event["type"] == "TOOL_CALL_RESULT"), "{second:?}");
    assert!(second.iter().any(|event| event["delta"] == "It is done."), "{second:?}");
    assert_eq!(home.read("log.txt"), "ran\n");
    server.stop();
}

/// The requests and responses of the A2A SDKs: a task that needs input, and its answer.
#[test]
fn an_agent_sends_a_task_and_answers_its_questions() {
    let llm = asks();
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let ask = |method: &str, path: &str, version: &str, body: &Value| {
        let kind = if body.is_null() { "" } else { "Content-Type: application/a2a+json\r\n" };
        let head = format!(
            "{method} /v1/a2a/{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{version}{kind}",
            server.address, server.token
        );
        server.raw(&head, &if body.is_null() { String::new() } else { body.to_string() })
    };
    let a2a = |method: &str, path: &str, body: &Value| ask(method, path, "A2A-Version: 1.0\r\n", body);
    let card = server.raw(
        &format!(
            "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            server.address
        ),
        "",
    );
    let url = format!("http://{}/v1/a2a", server.address);
    assert_eq!(card.json()["supportedInterfaces"][0]["url"], url.as_str());
    let reason =
        |reply: &Reply| reply.json()["error"]["details"][0]["reason"].as_str().unwrap_or_default().to_owned();
    let said = |text: &str, task: &str| json!({ "message": { "messageId": "m1", "role": "ROLE_USER", "taskId": task, "parts": [{ "text": text }] } });
    assert_eq!(reason(&ask("POST", "message:send", "", &said("do it", ""))), "VERSION_NOT_SUPPORTED");
    let mut first = said("do it", "");
    first["configuration"] = json!({ "returnImmediately": true });
    let task = a2a("POST", "message:send", &first).json()["task"].clone();
    let id = task["id"].as_str().expect("an id");
    // Whoever does not wait finds the task at once.
    assert_eq!(a2a("GET", &format!("tasks/{id}"), &Value::Null).status, 200, "{task}");
    until("the question", || {
        let now = a2a("GET", &format!("tasks/{id}"), &Value::Null).json();
        now["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    });
    let done = a2a("POST", "message:stream", &said("approve", id));
    assert!(done.body.contains("TASK_STATE_COMPLETED"), "{}", done.body);
    assert!(done.body.contains("It is done."), "{}", done.body);
    assert_eq!(home.read("log.txt"), "ran\n");
    let now = a2a("GET", &format!("tasks/{id}"), &Value::Null).json();
    assert_eq!(now["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(a2a("GET", "tasks", &Value::Null).json()["tasks"][0]["id"], id);
    assert_eq!(reason(&a2a("POST", &format!("tasks/{id}:cancel"), &Value::Null)), "TASK_NOT_CANCELABLE");
    assert_eq!(reason(&a2a("GET", "tasks/unknown", &Value::Null)), "TASK_NOT_FOUND");
    assert_eq!(reason(&a2a("POST", &format!("tasks/{id}:subscribe"), &Value::Null)), "UNSUPPORTED_OPERATION");
    server.stop();
}

/// A message that is sent again, because its answer was lost, starts nothing and answers nothing twice; whoever died
/// in between.
#[test]
fn an_agent_calls_methods_and_queues_behind_a_task_of_its_context() {
    let gate = Gate::default();
    let llm =
        MockLlm::answers([Answer::new().text("One").wait(&gate), Answer::say("Two."), Answer::say("Three.")]);
    let home = Home::with(&llm);
    let settings = home.root().join("aye/config/config.toml");
    let text = std::fs::read_to_string(&settings).expect("settings");
    std::fs::write(settings, text.replace("[stop]\n", "[stop]\ncontent_match = \"Three\"\n"))
        .expect("written");
    let server = Server::start(&home, &[]);
    let far: &Far = &server;
    let call = |version: &str, body: &str| {
        let head = format!(
            "POST /v1/a2a/rpc HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{version}\
             Content-Type: application/json\r\n",
            far.address, far.token
        );
        far.raw(&head, body)
    };
    let rpc = |method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let reply = call("A2A-Version: 1.0\r\n", &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = reply.json();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer}");
        answer
    };
    let said = |id: &str, at_once: bool| {
        json!({
            "message": { "messageId": id, "role": "ROLE_USER", "contextId": "busy", "parts": [{ "text": id }] },
            "configuration": { "returnImmediately": at_once },
        })
    };
    let state = |task: &Value| task["status"]["state"].as_str().unwrap_or_default().to_owned();
    let get = |task: &Value| rpc("GetTask", json!({ "id": task["id"] }))["result"].clone();
    let first = rpc("SendMessage", said("one", true))["result"]["task"].clone();
    let second = rpc("SendMessage", said("two", true))["result"]["task"].clone();
    assert_eq!(
        (state(&second), state(&get(&second))),
        ("TASK_STATE_SUBMITTED".into(), "TASK_STATE_SUBMITTED".into())
    );
    assert_eq!(
        rpc("SendMessage", said("two", true))["result"]["task"]["id"],
        second["id"],
        "a repeated message"
    );
    let dropped = rpc("SendMessage", said("dropped", true))["result"]["task"].clone();
    let listed = rpc("ListTasks", json!({ "contextId": "busy", "pageSize": 2 }))["result"].clone();
    let ids = |listed: &Value| {
        let tasks = listed["tasks"].as_array().cloned().unwrap_or_default();
        tasks.iter().map(|task| task["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&listed), [dropped["id"].clone(), second["id"].clone()]);
    let more = rpc("ListTasks", json!({ "contextId": "busy", "pageToken": listed["nextPageToken"] }));
    assert_eq!(ids(&more["result"]), [first["id"].clone()]);
    // Whoever waits for a message that is dropped hears of it.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| rpc("SendMessage", said("waits", false)));
        let follows = scope.spawn(|| {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": said("waits", false) });
            call("A2A-Version: 1.0\r\n", &body.to_string()).body
        });
        let queued = || {
            let listed = rpc("ListTasks", json!({ "contextId": "busy" }))["result"].clone();
            (listed["tasks"].as_array().map(Vec::len) == Some(4)).then(|| listed["tasks"][0]["id"].clone())
        };
        until("the task that is waited for", || queued().is_some());
        rpc("CancelTask", json!({ "id": queued() }));
        assert_eq!(state(&waits.join().expect("no panic")["result"]["task"]), "TASK_STATE_CANCELED");
        assert!(follows.join().expect("no panic").contains("TASK_STATE_CANCELED"));
    });
    let cancelled = rpc("CancelTask", json!({ "id": dropped["id"] }))["result"].clone();
    assert_eq!(
        (state(&cancelled), state(&get(&dropped))),
        ("TASK_STATE_CANCELED".into(), "TASK_STATE_CANCELED".into())
    );
    gate.open();
    until("the second task", || state(&get(&second)) == "TASK_STATE_COMPLETED");
    assert_eq!(state(&get(&first)), "TASK_STATE_COMPLETED");
    assert_eq!(get(&second)["artifacts"][0]["parts"][0]["text"], "Two.");
    // A goal that the user set is reached, and a stream has responses.
    let body = json!({ "jsonrpc": "2.0", "id": "s", "method": "SendStreamingMessage", "params": said("three", false) });
    let stream = call("A2A-Version: 1.0\r\n", &body.to_string());
    let lines = stream.body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(events.iter().all(|event| event["id"] == "s" && event["jsonrpc"] == "2.0"), "{events:?}");
    assert!(events[0]["result"]["task"].is_object(), "{events:?}");
    let last = events.last().expect("an end");
    assert_eq!(state(&last["result"]["statusUpdate"]), "TASK_STATE_COMPLETED", "{last}");
    for (method, params, code) in [
        ("GetTask", json!({ "id": "none" }), -32001),
        ("CancelTask", json!({ "id": first["id"] }), -32002),
        ("SubscribeToTask", json!({ "id": first["id"] }), -32004),
        ("Dance", json!({}), -32601),
        ("SendMessage", json!({}), -32602),
    ] {
        assert_eq!(rpc(method, params)["error"]["code"], code, "{method}");
    }
    assert_eq!(call("", &body.to_string()).json()["error"]["code"], -32009);
    assert_eq!(call("A2A-Version: 1.0\r\n", "{").json()["error"]["code"], -32700);
    assert_eq!(
        rpc("ListTasks", json!({ "contextId": "busy" }))["result"]["tasks"].as_array().map(Vec::len),
        Some(3)
    );
    server.stop();
}

#[test]
fn an_agent_that_repeats_a_message_gets_the_same_task() {
    let llm = MockLlm::answers([
        Answer::new().bash("c1", RUN),
        Answer::new().bash("c2", "echo more >> log.txt"),
        Answer::say("It is done."),
    ]);
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let send = |server: &Far, how: &str, id: &str, text: &str, task: &str| {
        let message =
            json!({ "messageId": id, "role": "ROLE_USER", "taskId": task, "parts": [{ "text": text }] });
        let head = format!(
            "POST /v1/a2a/message:{how} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             A2A-Version: 1.0\r\nContent-Type: application/json\r\n",
            server.address, server.token
        );
        server.raw(&head, &json!({ "message": message }).to_string())
    };
    let task = |reply: &Reply| {
        let task = reply.json()["task"].clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&task["id"]), text(&task["status"]["state"]))
    };
    // At the same time and one after the other.
    let far: &Far = &server;
    let found: Vec<_> = std::thread::scope(|scope| {
        let senders: Vec<_> =
            (0..3).map(|_| scope.spawn(|| task(&send(far, "send", "m1", "do it", "")))).collect();
        senders.into_iter().map(|sender| sender.join().expect("an answer")).collect()
    });
    let asks = "TASK_STATE_INPUT_REQUIRED".to_owned();
    let id = found[0].0.clone();
    assert!(found.iter().all(|found| *found == (id.clone(), asks.clone())), "{found:?}");
    server.running.signal(rustix::process::Signal::KILL);
    drop(server);
    let server = Server::start(&home, &[]);
    assert_eq!(task(&send(&server, "send", "m1", "do it", "")), (id.clone(), asks.clone()));
    let streamed = send(&server, "stream", "m1", "do it", "");
    assert!(streamed.body.contains(&id) && streamed.body.contains(&asks), "{}", streamed.body);
    assert_eq!(llm.asked().len(), 1);
    // The same yes once more is none to the next question.
    assert_eq!(task(&send(&server, "send", "m2", "approve", &id)), (id.clone(), asks.clone()));
    assert_eq!(task(&send(&server, "send", "m2", "approve", &id)), (id.clone(), asks));
    assert_eq!((home.read("log.txt"), llm.asked().len()), ("ran\n".to_owned(), 2));
    let done = (id.clone(), "TASK_STATE_COMPLETED".to_owned());
    assert_eq!(task(&send(&server, "send", "m3", "approve", &id)), done);
    assert_eq!(task(&send(&server, "send", "m3", "approve", &id)), done);
    assert_eq!(task(&send(&server, "send", "m1", "do it", "")), done);
    assert_eq!((home.read("log.txt"), llm.asked().len()), ("ran\nmore\n".to_owned(), 3));
    assert_eq!(server.get("/v1/runs").json()["items"].as_array().map(Vec::len), Some(1));
    server.stop();
}

/// The requests of an MCP client: an agent is a tool. This client cannot ask its user, so the question is
/// named instead.
#[test]
fn an_agent_is_a_tool_of_an_mcp_server() {
    let llm = MockLlm::answers([
        Answer::say("Hello from aye."),
        Answer::new().bash("c1", RUN),
        Answer::say("It is done."),
        Answer::say("Goal reached."),
        Answer::error(429, "used up").header("retry-after", "3600"),
        Answer::say("Here I am."),
    ]);
    let home = Home::with(&llm);
    let settings = home.root().join("aye/config/config.toml");
    let text = std::fs::read_to_string(&settings).expect("settings");
    std::fs::write(settings, text.replace("[stop]\n", "[stop]\ncontent_match = \"Goal\"\n"))
        .expect("written");
    let server = Server::start(&home, &[]);
    let send = |session: &str, body: &Value| {
        let head = format!(
            "POST /v1/mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{session}",
            server.address, server.token
        );
        server.raw(&head, &body.to_string())
    };
    let result = |reply: &Reply| -> Value {
        let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut answers = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        answers.find(|answer| answer["id"].is_number()).unwrap_or_else(|| reply.json())["result"].clone()
    };
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    } });
    let first = send("", &hello);
    assert_eq!(result(&first)["serverInfo"]["name"], "aye", "{first:?}");
    let session = format!(
        "Mcp-Session-Id: {}\r\nMcp-Protocol-Version: 2025-11-25\r\n",
        first.header("mcp-session-id").expect("a session")
    );
    send(&session, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let tools = result(&send(&session, &json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" })));
    assert_eq!(tools["tools"][0]["name"], "aye");
    let form = jsonschema::validator_for(&tools["tools"][0]["outputSchema"]).expect("a schema");
    let sent = |text: &str| {
        let call = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
            "name": "aye", "arguments": { "message": text }, "_meta": { "progressToken": 7 },
        } });
        send(&session, &call)
    };
    let call = |text: &str| result(&sent(text));
    // A client that gives up after a while without a sign has one while the model writes.
    let reply = sent("hello");
    assert!(reply.body.contains("notifications/progress") && reply.body.contains("writing"), "{reply:?}");
    let said = result(&reply);
    assert!(form.is_valid(&said["structuredContent"]), "{said}");
    assert_eq!(
        (&said["isError"], &said["content"][0]["text"]),
        (&json!(false), &json!("Hello from aye.")),
        "{said}"
    );
    // The revision without sessions is refused by name, whatever is asked for.
    let stateless = |id: u64, method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let name = if method == "tools/call" { "Mcp-Name: aye\r\n" } else { "" };
        let head = format!("Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}");
        send(&head, &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).body
    };
    let refused = stateless(4, "server/discover", json!({}));
    assert!(refused.contains("-32601") && refused.contains("speaks 2025-11-25 and older"), "{refused}");
    for (method, params) in
        [("tools/list", json!({})), ("tools/call", json!({ "name": "aye", "arguments": { "message": "x" } }))]
    {
        let refused = stateless(5, method, params);
        assert!(
            refused.contains("Unsupported protocol version") && refused.contains("2025-11-25"),
            "{refused}"
        );
    }
    let asked = call("do it");
    assert_eq!(asked["isError"], true);
    let id = home.question();
    assert!(asked["content"][0]["text"].as_str().is_some_and(|text| text.contains(&id)), "{asked}");
    assert_eq!(home.read("log.txt"), "");
    assert_eq!(server.approve(&server.card()).status, 200);
    until("the command", || home.read("log.txt") == "ran\n");
    until("the end of the run", || llm.asked().len() == 3);
    // A goal that the user set is reached; a limit is waited for.
    let goal = call("to the goal");
    assert_eq!(
        (&goal["isError"], &goal["content"][0]["text"]),
        (&json!(false), &json!("Goal reached.")),
        "{goal}"
    );
    let limited = call("more");
    assert_eq!(limited["isError"], true);
    let text = limited["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("used up") && text.contains("resumes by itself in 60 min"), "{text}");
    home.ok(&["answer", &home.question(), r#"{"answer":"Try now"}"#]);
    until("the rest of the run", || llm.asked().len() == 6);
    assert_eq!(server.raw(&format!("POST /v1/mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n", server.address), "{}").status, 401);
    server.stop();
}
