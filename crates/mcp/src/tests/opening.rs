//! How a connection is opened with servers that do not know `server/discover`.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};

use super::*;
use crate::client::Client;
use crate::handler::ConnectionState;
use aye_core::contract::server::{ProtocolRevision, ToolFilter};

#[tokio::test]
async fn a_server_that_ends_when_it_is_probed_is_started_again_and_remembered() {
    let world = World::new(&[tool("echo")]);
    for (starts, probes) in [(2, 1), (3, 1)] {
        let manager = world.user("exits").await;
        assert_eq!(manager.views()[0].phase, ServerState::Connected, "{:?}", world.notices());
        assert_eq!(world.ids(), ["mcp__s__echo"]);
        assert_eq!(world.notices(), [] as [String; 0]);
        assert_eq!((world.count("started"), world.count("discover")), (starts, probes));
        manager.close().await;
    }
    // With another configuration it may be another server.
    let mut other = world.config("s", ServerScope::User, "plain");
    other.digest = "e".to_owned();
    let manager = world.manager_of(vec![other]);
    manager.start();
    manager.ready(PATIENCE).await;
    assert_eq!(world.count("discover"), 2);
    manager.close().await;
}

#[tokio::test]
async fn a_server_that_no_longer_needs_initialize_is_forgotten() {
    let world = World::new(&[tool("echo")]);
    let manager = world.user("exits").await;
    manager.close().await;
    // Started at once with `initialize`, this one ends; probed, it answers.
    let manager = world.user("discovers").await;
    assert_eq!(manager.look("s").expect("exists").about, "new 1, protocol 2026-07-28");
    manager.close().await;
    let kept = world.pins.pinned.lock().expect("not poisoned").values().next().cloned().expect("stored");
    assert_eq!(kept.initialize, None);
}

#[tokio::test]
async fn lines_of_a_log_on_the_output_are_skipped() {
    let world = World::new(&[tool("echo")]);
    let manager = world.user("chatty").await;
    assert_eq!(world.ids(), ["mcp__s__echo"]);
    assert!(world.call("mcp__s__echo").await.expect("a result").is_success());
    manager.close().await;
}

#[tokio::test]
async fn a_configured_revision_is_offered_at_once() {
    let world = World::new(&[tool("echo")]);
    let mut config = world.config("s", ServerScope::User, "plain");
    config.revision = Some(ProtocolRevision::V2025_06_18);
    let manager = world.manager_of(vec![config]);
    manager.start();
    manager.ready(super::PATIENCE).await;
    assert_eq!(world.count("discover"), 0);
    let offers = |line: &String| line.contains(r#""protocolVersion":"2025-06-18""#);
    assert_eq!(world.log().iter().filter(|line| offers(line)).count(), 1, "{:?}", world.log());
    manager.close().await;
}

#[tokio::test]
async fn tools_that_the_configuration_disables_are_not_offered() {
    let world = World::new(&[tool("echo"), tool("drop"), tool("shot")]);
    let mut config = world.config("s", ServerScope::User, "plain");
    config.tools = ToolFilter {
        enabled: Some(vec!["echo".to_owned(), "drop".to_owned()]),
        disabled: vec!["drop".to_owned(), "dorp".to_owned()],
    };
    let manager = world.manager_of(vec![config]);
    manager.start();
    manager.ready(super::PATIENCE).await;
    assert_eq!(world.ids(), ["mcp__s__echo"]);
    let view = manager.look("s").expect("exists");
    assert_eq!(
        view.notes,
        [
            "disabled in its configuration: drop, shot",
            "its configuration names tools that it does not have: dorp"
        ]
    );
    assert_eq!(world.notices(), [] as [String; 0], "nobody is asked about a tool that is not used");
    manager.close().await;
}

/// The other side of a connection, one message at a time.
struct Peer {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Peer {
    async fn asked(&mut self) -> Value {
        let line = self.lines.next_line().await.expect("readable").expect("a message");
        serde_json::from_str(&line).expect("JSON")
    }

    async fn answer(&mut self, id: &Value, result: Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string() + "\n";
        self.writer.write_all(line.as_bytes()).await.expect("written");
    }
}

/// Opens a connection to a server that is silent when it is probed, and answers the probe before `initialize` if `late`
/// is given.
async fn silent(late: Option<Value>) -> (Client, Duration) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    let mut peer = Peer { lines: BufReader::new(reader).lines(), writer };
    let serving = tokio::spawn(async move {
        let probe = peer.asked().await;
        assert_eq!(probe["method"], "server/discover");
        let first = peer.asked().await;
        assert_eq!(first["method"], "initialize");
        if let Some(late) = late {
            peer.answer(&probe["id"], late).await;
        }
        let about = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}});
        peer.answer(&first["id"], about).await;
        assert_eq!(peer.asked().await["method"], "notifications/initialized");
        peer
    });
    let began = tokio::time::Instant::now();
    let (reader, writer) = tokio::io::split(ours);
    let shared = Arc::new(ConnectionState::new("s", Arc::new(|_| {})));
    let client = Client::over(reader, writer, shared).await.expect("connected");
    let took = began.elapsed();
    drop(serving.await.expect("no panic"));
    (client, took)
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_probed_briefly_and_remembered() {
    let (client, took) = silent(None).await;
    assert_eq!(client.info.protocol, "2025-11-25");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(client.needs_initialize);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_to_a_probe_harms_nothing_and_is_not_remembered() {
    let late = json!({
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "serverInfo": {"name": "slow", "version": "1"},
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
    });
    let (client, _) = silent(Some(late)).await;
    assert_eq!(client.info.protocol, "2025-11-25");
    assert!(!client.needs_initialize, "it was only slow to start");
}

/// Serves streamable HTTP on a port of its own; requests for `server/discover` never get an answer. Returns the URL and
/// the methods that were asked for.
fn mute_over_http() -> (String, Arc<Mutex<Vec<String>>>) {
    use std::io::{BufRead as _, Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let methods = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().flatten() {
            let body = {
                let mut reader = std::io::BufReader::new(&stream);
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    let header = line.trim().to_ascii_lowercase();
                    length =
                        header.strip_prefix("content-length: ").map_or(length, |n| n.parse().unwrap_or(0));
                    line.clear();
                }
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).is_err() {
                    continue;
                }
                body
            };
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let method = request["method"].as_str().unwrap_or_default().to_owned();
            methods.lock().expect("not poisoned").push(method.clone());
            let result = match method.as_str() {
                "server/discover" => {
                    held.push(stream);
                    continue;
                }
                "initialize" => json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "old", "version": "1"},
                }),
                "tools/list" => json!({"tools": [tool("echo")]}),
                _ => Value::Null,
            };
            let mut stream = &stream;
            let _ = if result.is_null() {
                let status = if method.is_empty() { "405 No" } else { "202 Accepted" };
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            } else {
                let reply = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{reply}",
                    reply.len()
                )
            };
        }
    });
    (url, asked)
}

#[tokio::test]
async fn a_silent_server_over_http_gets_initialize_on_a_new_connection_and_is_remembered() {
    let world = World::new(&[]);
    let (url, asked) = mute_over_http();
    let config = || {
        let mut config = world.config("s", ServerScope::User, "plain");
        let (url, headers, login) = (url.clone().into(), BTreeMap::new(), <_>::default());
        config.transport = ServerTransport::Http { url, headers, login };
        config
    };
    for _ in 0..2 {
        let manager = world.manager_of(vec![config()]);
        manager.start();
        assert_eq!(manager.ready(super::PATIENCE).await, [] as [String; 0]);
        assert_eq!(world.ids(), ["mcp__s__echo"], "{:?}", world.notices());
        manager.close().await;
    }
    let asked = asked.lock().expect("not poisoned").clone();
    let count = |method: &str| asked.iter().filter(|known| *known == method).count();
    assert_eq!((count("server/discover"), count("initialize")), (1, 2), "{asked:?}");
}
