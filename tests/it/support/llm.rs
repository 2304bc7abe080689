//! An OpenAI-compatible loopback server that answers as scripted, and records its requests.
//!
//! Every request is checked: a call without a result, or with two, fails the test.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The time limit of every wait in a test. Only a hang comes near it.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// A gate at which an answer waits until the test opens it.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().expect("not poisoned") = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let open = self.0.0.lock().expect("not poisoned");
        drop(self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open).expect("not poisoned"));
    }
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub enum Part {
    Text(String),
    Call {
        id: String,
        name: String,
        args: String,
    },
    Wait(Gate),
    /// Breaks the connection.
    Cut,
    /// Sends nothing more.
    Hang,
    /// Sends an error inside the stream.
    Broken(Value),
    /// The stop reason, instead of the usual one.
    Stop(&'static str),
}

/// One reply.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Option<String>,
    parts: Vec<Part>,
}

impl Answer {
    pub fn new() -> Self {
        Self { status: 200, headers: Vec::new(), body: None, parts: Vec::new() }
    }

    pub fn say(text: &str) -> Self {
        Self::new().text(text)
    }

    pub fn error(status: u16, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": "error", "code": null}}).to_string();
        Self { status, headers: Vec::new(), body: Some(body), parts: Vec::new() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    pub fn text(self, text: &str) -> Self {
        self.part(Part::Text(text.into()))
    }

    pub fn wait(self, gate: &Gate) -> Self {
        self.part(Part::Wait(gate.clone()))
    }

    pub fn call(self, id: &str, name: &str, args: Value) -> Self {
        self.part(Part::Call { id: id.into(), name: name.into(), args: args.to_string() })
    }

    pub fn bash(self, id: &str, command: &str) -> Self {
        self.call(id, "Bash", json!({"command": command}))
    }
}

/// A request of the program.
#[derive(Clone, Debug)]
pub struct Chat {
    pub body: Value,
    /// What the program sent as its key.
    pub key: String,
    /// The number of earlier requests.
    pub nth: usize,
}

impl Chat {
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The results in the conversation: the call's id and its text.
    pub fn results(&self) -> Vec<(String, String)> {
        let is_result = |m: &&Value| m["role"] == "tool";
        let result = |m: &Value| (text_of(&m["tool_call_id"]), text_of(&m["content"]));
        self.messages().iter().filter(is_result).map(result).collect()
    }

    /// The text of the result of a call.
    pub fn result(&self, id: &str) -> String {
        let found = self.results().into_iter().find(|(known, _)| known == id);
        found.unwrap_or_else(|| panic!("no result for {id} in {:#}", self.body["messages"])).1
    }

    /// The last message of the user, without what the program adds for the model.
    pub fn user(&self) -> String {
        let of_user =
            self.messages().iter().rev().filter(|m| m["role"] == "user").map(|m| text_of(&m["content"]));
        let own =
            |text: String| text.split("<system-reminder>").next().unwrap_or_default().trim_end().to_owned();
        of_user.map(own).find(|text| !text.is_empty()).unwrap_or_default()
    }

    pub fn system(&self) -> String {
        let is_system = |m: &&Value| m["role"] == "system" || m["role"] == "developer";
        self.messages().iter().filter(is_system).map(|m| text_of(&m["content"])).collect()
    }

    /// All that the model is told beside the conversation: the start, and the messages about what changed since.
    pub fn told(&self) -> String {
        let of_user = self.messages().iter().filter(|m| m["role"] == "user").map(|m| text_of(&m["content"]));
        self.system() + &of_user.collect::<Vec<_>>().join("\n")
    }

    /// Whether the model knows the parameters of a tool.
    pub fn knows(&self, tool: &str) -> bool {
        self.tools().iter().any(|known| known == tool)
            || self.body["messages"].to_string().contains(&format!("\\\"name\\\":\\\"{tool}\\\""))
    }

    /// The names of the offered tools.
    pub fn tools(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| text_of(&tool["function"]["name"])).collect()
    }

    /// The fault of the conversation, if any: each call must have one result, right after the message that
    /// requested it.
    fn problem(&self) -> Option<String> {
        let mut open: Vec<String> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for message in self.messages() {
            if message["role"] == "tool" {
                let id = text_of(&message["tool_call_id"]);
                let Some(at) = open.iter().position(|known| *known == id) else {
                    return Some(format!("a result without a call: {id}"));
                };
                open.remove(at);
                continue;
            }
            if !open.is_empty() {
                return Some(format!("calls without a result: {open:?}"));
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let id = text_of(&call["id"]);
                if !seen.insert(id.clone()) {
                    return Some(format!("the id {id} is used twice"));
                }
                open.push(id);
            }
        }
        (!open.is_empty()).then(|| format!("calls without a result: {open:?}"))
    }
}

/// A text, or the joined texts of a list of parts.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| text_of(&part["text"])).collect(),
        _ => String::new(),
    }
}

type Script = Box<dyn FnMut(&Chat) -> Answer + Send>;

struct State {
    script: Mutex<Script>,
    asked: Mutex<Vec<Chat>>,
}

/// The server. Its threads end with the test process.
pub struct MockLlm {
    pub url: String,
    state: Arc<State>,
}

impl MockLlm {
    /// Answers each request by the script.
    pub fn by(script: impl FnMut(&Chat) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("a valid address"));
        let state = Arc::new(State { script: Mutex::new(Box::new(script)), asked: Mutex::default() });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { url, state }
    }

    /// Returns these answers one after another; when they run out, says so.
    pub fn answers(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: VecDeque<Answer> = answers.into_iter().collect();
        Self::by(move |_| answers.pop_front().unwrap_or_else(|| Answer::say("NO MORE ANSWERS")))
    }

    /// The requests so far. Fails if one of them was not a complete conversation.
    pub fn asked(&self) -> Vec<Chat> {
        let asked = self.state.asked.lock().expect("not poisoned").clone();
        for chat in &asked {
            if let Some(problem) = chat.problem() {
                panic!("request {}: {problem}: {:#}", chat.nth, chat.body["messages"]);
            }
        }
        asked
    }

    pub fn last(&self) -> Chat {
        self.asked().pop().expect("a request")
    }
}

fn serve(mut stream: TcpStream, state: &State) {
    let _ = stream.set_nodelay(true);
    let Some((path, key, body)) = read_request(&stream) else { return };
    if path.ends_with("/models") {
        let body = json!({"object": "list", "data": [{"id": "m1", "object": "model"}]}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let _ = stream.write_all((head + &body).as_bytes());
        return;
    }
    let chat = {
        let mut asked = state.asked.lock().expect("not poisoned");
        let chat = Chat { body, key, nth: asked.len() };
        asked.push(chat.clone());
        chat
    };
    let answer = state.script.lock().expect("not poisoned")(&chat);
    let _ = give(&mut stream, &answer);
}

/// Reads the path, the key and the body of a request.
pub fn read_request(stream: &TcpStream) -> Option<(String, String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? == 0 {
            return None;
        }
        let Some((name, value)) = header.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
        if name.eq_ignore_ascii_case("authorization") {
            value.trim().trim_start_matches("Bearer ").clone_into(&mut key);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, key, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

fn give(stream: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if let Some(body) = &answer.body {
        let _ = write!(head, "content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        return stream.write_all((head + body).as_bytes());
    }
    head.push_str("content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let (mut index, mut reason) = (0, None);
    for part in &answer.parts {
        match part {
            Part::Text(text) => send(stream, &delta(&json!({"content": text}), None))?,
            Part::Call { id, name, args } => {
                let half = args.char_indices().map(|(at, _)| at).nth(args.chars().count() / 2).unwrap_or(0);
                let call = |function: Value| json!({"tool_calls": [{"index": index, "function": function}]});
                let mut first = call(json!({"name": name, "arguments": &args[..half]}));
                first["tool_calls"][0]["id"] = json!(id);
                first["tool_calls"][0]["type"] = json!("function");
                send(stream, &delta(&first, None))?;
                send(stream, &delta(&call(json!({"arguments": &args[half..]})), None))?;
                index += 1;
            }
            Part::Wait(gate) => gate.wait(),
            Part::Cut => return Ok(()),
            Part::Hang => {
                // Until the client goes away.
                stream.set_read_timeout(Some(PATIENCE))?;
                let _ = stream.read(&mut [0]);
                return Ok(());
            }
            Part::Broken(error) => send(stream, &json!({"error": error}))?,
            Part::Stop(word) => reason = Some(*word),
        }
    }
    let reason = reason.unwrap_or(if index > 0 { "tool_calls" } else { "stop" });
    send(stream, &delta(&json!({}), Some(reason)))?;
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18});
    send(stream, &json!({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}))?;
    chunk(stream, "data: [DONE]\n\n")?;
    stream.write_all(b"0\r\n\r\n")
}

fn delta(delta: &Value, finish: Option<&str>) -> Value {
    json!({
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    })
}

fn send(stream: &mut TcpStream, event: &Value) -> std::io::Result<()> {
    chunk(stream, &format!("data: {event}\n\n"))
}

fn chunk(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?;
    stream.flush()
}

/// Polls a condition that another process fulfils, until it is true.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
