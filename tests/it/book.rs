//! The book's first programs, as a reader would run them: `examples/`, each a separate process against a
//! server on loopback.

mod agents;
mod extensions;
mod migrating;
mod observe;
mod operate;
mod serving;
mod shared;
mod storage;
mod testing;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::http::Far;
use crate::support::mock_server::{MockServer, Reply};

/// The program of an example. `cargo test` builds all of them; a narrower call may not have.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps/");
    let program = profile.join("examples").join(name);
    if !program.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        // Build scripts watch what cargo tells a test about its package: with it, crates would be built again, each time
        // tests and anything else take turns.
        for (name, _) in std::env::vars()
            .filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            cargo.env_remove(name);
        }
        let built = cargo
            .args(["build", "--quiet", "--features", "failpoints", "--example", name, "--target-dir"])
            .arg(profile.parent().expect("target/"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(
            built.success() && program.exists(),
            "the example {name} does not exist: cargo build --examples"
        );
    }
    program
}

/// A chat completion that streams these deltas.
fn stream(deltas: &[Value], finish: &str) -> Reply {
    let chunk = |delta: &Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"id": "c1", "model": "gpt-4o-mini", "choices": [choice]}))
    };
    let mut body: String = deltas.iter().map(|delta| chunk(delta, None)).collect();
    body.push_str(&chunk(&json!({}), Some(finish)));
    body.push_str("data: [DONE]\n\n");
    Reply::sse(body)
}

fn call(name: &str, arguments: &Value) -> Reply {
    let function = json!({"name": name, "arguments": arguments.to_string()});
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
    stream(&[json!({"role": "assistant", "tool_calls": [call]})], "tool_calls")
}

async fn run(name: &str, server: &MockServer) -> Output {
    let mut command = Command::new(example(name));
    command
        .env("OPENAI_API_KEY", "test-key")
        .env("OPENAI_BASE_URL", format!("{}/v1", server.url))
        .env("NO_PROXY", "127.0.0.1");
    tokio::task::spawn_blocking(move || command.output().expect("the example runs"))
        .await
        .expect("not poisoned")
}

fn results(server: &MockServer) -> Vec<Value> {
    let asked = server.asked();
    assert_eq!(asked.len(), 2, "a call and an answer are two requests");
    assert!(asked.iter().all(|request| request.path == "/v1/chat/completions"), "{asked:?}");
    assert_eq!(asked[0].body["model"], "gpt-4o-mini");
    let messages = asked[1].body["messages"].as_array().expect("messages");
    messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            let text = message["content"].as_str().expect("a result text");
            serde_json::from_str(text).unwrap_or_else(|_| json!(text))
        })
        .collect()
}

#[tokio::test]
async fn first_agent() {
    let server = MockServer::start([
        call("echo", &json!({"text": "hello"})),
        stream(&[json!({"content": "Hello"}), json!({"content": "!"})], "stop"),
    ])
    .await;
    let output = run("first_agent", &server).await;
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let events = stdout.lines().find_map(|line| line.strip_prefix("events: ")).expect("an event count");
    assert!(events.parse::<usize>().expect("a number") > 0, "{stdout}");
    assert!(stdout.contains("run_finish_seen: true"), "{stdout}");
    assert_eq!(results(&server), [json!({"echoed": "hello"})]);
}

#[tokio::test]
async fn first_tool() {
    let server = MockServer::start([
        call("greet", &json!({"name": "Alice"})),
        stream(&[json!({"content": "Hello, Alice!"})], "stop"),
    ])
    .await;
    let output = run("first_tool", &server).await;
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("tool_call_done_seen: true"), "{stdout}");
    assert_eq!(results(&server), [json!({"greeting": "Hello, Alice!", "times_greeted": 0})]);
}

#[test]
fn server() {
    let mut process = Command::new(example("server"))
        .arg("127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example runs");
    let mut told = String::new();
    BufReader::new(process.stdout.take().expect("stdout")).read_line(&mut told).expect("a line");
    let (address, token) =
        told.trim().strip_prefix("http://").and_then(|url| url.split_once("/#token=")).expect("a URL");
    let far = Far { address: address.to_owned(), token: token.to_owned() };
    let first = far.post("/v1/runs", &json!({ "text": "Deploy" }));
    let accepted = far.approve(&far.card());
    let mut events = far
        .stream(&format!("/v1/threads/{}/events?after=0", first.header("x-thread-id").expect("an id")), "");
    while events.until("run_finish").data["termination"]["type"] != "natural_end" {}
    process.kill().expect("it runs until it is stopped");
    process.wait().expect("an end");
    assert_eq!((first.status, accepted.status), (200, 200));
}

#[test]
fn durable_approval() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = || {
        let output =
            Command::new(example("durable_approval")).arg(folder.path()).output().expect("the example runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let asked = start();
    assert!(asked.starts_with("waiting: ") && asked.lines().count() == 1, "{asked}");
    assert_eq!(start(), "answer: Version 1.2 is live.\n");
    assert_eq!(start(), "nothing is left to do\n");
}
