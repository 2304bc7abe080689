//! A server in Anthropic's format that takes thoughts back only after exactly the request that they answered: as the newest
//! models' service does, it answers 400 if the system text, the tools or a message before them is not what it was.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::llm::read_request;

/// What a request contains beside cache marks.
#[derive(Clone, PartialEq)]
struct Made {
    system: Value,
    tools: Value,
    messages: Vec<Value>,
}

#[derive(Default)]
struct State {
    script: Vec<Value>,
    /// By signature.
    made: HashMap<String, Made>,
    asked: Vec<Value>,
    refused: Vec<String>,
    /// The number of requests still to be refused whatever they contain.
    refuses: usize,
}

/// The server. Its threads end with the test process.
pub struct StrictLlm {
    pub url: String,
    state: Arc<Mutex<State>>,
}

fn without_marks(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "cache_control");
            kept.map(|(key, value)| (key.clone(), without_marks(value)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        Value::Array(list) => list.iter().map(without_marks).collect(),
        other => other.clone(),
    }
}

fn is_thought(block: &Value) -> bool {
    block["type"] == "thinking"
}

/// A message with its blocks as a list, without thoughts.
fn visible(message: &Value) -> Value {
    let blocks: Vec<Value> = match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        blocks => blocks.as_array().cloned().unwrap_or_default(),
    };
    let blocks: Vec<Value> = blocks.into_iter().filter(|block| !is_thought(block)).collect();
    json!({"role": message["role"], "content": blocks})
}

impl State {
    fn problem(&self, request: &Made, raw: &[Value]) -> Option<String> {
        for (at, message) in raw.iter().enumerate() {
            for (nth, block) in message["content"].as_array().into_iter().flatten().enumerate() {
                if !is_thought(block) {
                    continue;
                }
                let place = format!("messages.{at}.content.{nth}");
                let Some(made) = block["signature"].as_str().and_then(|proof| self.made.get(proof)) else {
                    return Some(format!("{place}: unknown signature"));
                };
                for (what, is_same) in [
                    ("system", made.system == request.system),
                    ("tools", made.tools == request.tools),
                    ("an earlier message", made.messages == request.messages[..at]),
                ] {
                    if !is_same {
                        return Some(format!("{place}: {what} changed"));
                    }
                }
            }
        }
        None
    }

    /// The status and the body of the answer to a request.
    fn answer(&mut self, body: Value) -> (u16, String) {
        let body = without_marks(&body);
        let raw = body["messages"].as_array().cloned().unwrap_or_default();
        let mut answer = vec![json!({"type": "text", "text": "Summary: files were read."})];
        if body["tools"].is_array() {
            let (system, tools) = (body["system"].clone(), body["tools"].clone());
            let made = Made { system, tools, messages: raw.iter().map(visible).collect() };
            self.asked.push(body);
            let mut problem = self.problem(&made, &raw);
            if let Some(problem) = &problem {
                self.refused.push(problem.clone());
            } else if self.refuses > 0 {
                self.refuses -= 1;
                problem = Some("messages.1.content.0: on request".into());
            }
            if let Some(problem) = problem {
                let place = problem.split(':').next().unwrap_or_default();
                let message = format!(
                    "{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
                );
                let error =
                    json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
                return (400, error.to_string());
            }
            let proof = format!("proof{}", self.asked.len());
            self.made.insert(proof.clone(), made);
            answer = vec![json!({"type": "thinking", "signature": proof})];
            if self.script.is_empty() {
                answer.push(json!({"type": "text", "text": "done"}));
            } else {
                answer.extend(self.script.remove(0).as_array().cloned().unwrap_or_default());
            }
        }
        (200, stream_of(&answer, self.asked.len()))
    }
}

fn stream_of(answer: &[Value], nth: usize) -> String {
    let usage = json!({"input_tokens": 10, "output_tokens": 1});
    let start = json!({"id": "m", "type": "message", "role": "assistant", "model": "m1", "content": [],
        "stop_reason": null, "usage": usage});
    let mut events = vec![("message_start", json!({"message": start}))];
    for (index, block) in answer.iter().enumerate() {
        let (start, delta) = match block["type"].as_str() {
            Some("thinking") => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                json!({"type": "signature_delta", "signature": block["signature"]}),
            ),
            Some("text") => {
                (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": block["text"]}))
            }
            _ => (
                json!({"type": "tool_use", "id": format!("toolu_{nth}_{index}"), "name": block["name"], "input": {}}),
                json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}),
            ),
        };
        events.push(("content_block_start", json!({"index": index, "content_block": start})));
        events.push(("content_block_delta", json!({"index": index, "delta": delta})));
        events.push(("content_block_stop", json!({"index": index})));
    }
    let calls = answer.iter().any(|block| block["type"] == "tool_use");
    let stop = if calls { "tool_use" } else { "end_turn" };
    events.push(("message_delta", json!({"delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}})));
    events.push(("message_stop", json!({})));
    let mut text = String::new();
    for (kind, mut event) in events {
        event["type"] = kind.into();
        let _ = write!(text, "event: {kind}\ndata: {event}\n\n");
    }
    text
}

impl StrictLlm {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("a valid address"));
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { url, state }
    }

    /// Answers the next requests with these blocks, one after another.
    pub fn will(&self, answers: impl IntoIterator<Item = Value>) {
        self.state.lock().expect("not poisoned").script.extend(answers);
    }

    /// Refuses the next requests.
    pub fn refuses(&self, requests: usize) {
        self.state.lock().expect("not poisoned").refuses = requests;
    }

    /// The requests so far. Fails if one of them was refused for what it contained.
    pub fn asked(&self) -> Vec<Value> {
        let state = self.state.lock().expect("not poisoned");
        assert_eq!(state.refused, [] as [String; 0]);
        state.asked.clone()
    }

    /// The same, each with the whole of the one before at its beginning.
    pub fn grew(&self) -> Vec<Value> {
        let asked = self.asked();
        for (nth, pair) in asked.windows(2).enumerate() {
            let blocks = |body: &Value| -> Vec<Value> {
                let of = |message: &Value| {
                    let message = visible(message);
                    let blocks = message["content"].as_array().cloned().unwrap_or_default();
                    blocks.into_iter().map(move |block| json!([message["role"], block])).collect::<Vec<_>>()
                };
                body["messages"].as_array().into_iter().flatten().flat_map(of).collect()
            };
            let (before, after) = (blocks(&pair[0]), blocks(&pair[1]));
            assert_eq!(pair[0]["system"], pair[1]["system"], "the system text of request {}", nth + 1);
            assert_eq!(pair[0]["tools"], pair[1]["tools"], "the tools of request {}", nth + 1);
            assert_eq!(before, after[..before.len().min(after.len())], "the messages of request {}", nth + 1);
        }
        asked
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let Some((path, _, body)) = read_request(&stream) else { return };
    let (status, body) = if path.ends_with("/models") {
        (200, json!({"data": []}).to_string())
    } else {
        state.lock().expect("not poisoned").answer(body)
    };
    let kind =
        if status == 200 && !path.ends_with("/models") { "text/event-stream" } else { "application/json" };
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all((head + &body).as_bytes());
}

pub fn say(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

pub fn call(name: &str, input: Value) -> Value {
    json!([{"type": "tool_use", "name": name, "input": input}])
}
