//! Clients of other protocols: the AI SDK, AG-UI, A2A and MCP.

use super::*;

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
    let kinds: Vec<&str> = parts.iter().filter_map(|part| part["type"].as_str()).collect();
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
    // The same answer again has no effect.
    assert_eq!(server.post("/v1/ai-sdk/chat", &answer).status, 409);
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
    ]);
    let home = Home::with(&llm);
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
    assert_eq!(server.raw(&format!("POST /v1/mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n", server.address), "{}").status, 401);
    server.stop();
}
