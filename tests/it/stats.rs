//! Activity as shown by `aye stats` and `/stats`.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

/// A model that lists the folder, runs a command, and is done.
fn model() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "List", json!({"path": "."})),
        1 => Answer::new().bash("c2", "exit 3; touch x"),
        _ => Answer::say("End."),
    })
}

#[test]
fn calls_answers_and_waiting_are_counted() {
    let llm = model();
    let home = Home::with(&llm);
    home.ok(&["stats"]).prints("no activity yet");
    home.aye(&["-p", "go"]).run().exits(3);
    home.ok(&["approve", &home.question(), "--resume"]).prints("End.");
    let stats = home.ok(&["stats", "--json"]).json();
    assert_eq!(stats["total"]["answers"], 3, "{stats:#}");
    assert_eq!(stats["by_model"][0]["model"], "mock/m1");
    assert_eq!(stats["total"]["questions"], 1);
    let waited = stats["total"]["waited_ms"].as_u64().expect("a number");
    let bash =
        &stats["by_tool"].as_array().expect("rows").iter().find(|row| row["tool"] == "Bash").expect("Bash");
    assert_eq!((&bash["calls"], &bash["waited_ms"]), (&json!(1), &json!(waited)));
    assert_eq!(stats["by_day"].as_array().map(Vec::len), Some(1));
    // It survives the conversation's deletion.
    home.ok(&["threads", "delete", &home.thread()]);
    assert_eq!(home.ok(&["stats", "--json"]).json(), stats);
    home.ok(&["stats", "--by", "tool"]).prints("List").prints("Bash");
    home.ok(&["stats", "--since", "2030-01-01"]).prints("no activity yet");
    home.aye(&["stats", "--since", "yesterday"]).run().exits(2);
}

#[test]
fn a_failing_provider_is_counted_and_shown_in_the_terminal() {
    let llm = MockLlm::by(|_: &Chat| Answer::error(400, "no"));
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run();
    let stats = home.ok(&["stats", "--json", "--by", "model"]).json();
    assert_eq!(stats["by_model"][0]["failed_runs"], 1, "{stats:#}");
    assert_eq!(stats["by_model"][0]["model"], "mock/m1");
    let mut tty = Pty::start(&home, &[], 90, 30);
    tty.ready();
    tty.say("/stats model");
    tty.shows("answers");
    tty.shows("m1");
    tty.quit();
}

/// The real program, with its spans at a loopback collector.
#[cfg(feature = "otel")]
#[test]
fn a_run_is_reported_only_to_the_users_collector() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("a valid address"));
    let (send, bodies) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let send = send.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        return;
                    }
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().expect("a length");
                    } else if line.trim().is_empty() {
                        let mut body = vec![0; length];
                        reader.read_exact(&mut body).expect("a body");
                        let _ = send.send(String::from_utf8(body).expect("text"));
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
                    }
                }
            });
        }
    });
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "List", json!({"path": "."})),
        _ => Answer::say("The secret is out."),
    });
    let home = Home::with(&llm);
    // A project cannot set a collector.
    home.write(".aye/config.toml", &format!("[telemetry]\nendpoint = \"{url}\"\n"));
    home.aye(&["--trust", "-p", "my secret"]).run();
    assert!(bodies.try_recv().is_err(), "a project's endpoint was used");
    std::fs::remove_dir_all(home.work().join(".aye")).expect("removed");
    home.aye(&["-p", "my secret"]).env("OTEL_EXPORTER_OTLP_ENDPOINT", &url).run().exits(0);
    let all: String = bodies.try_iter().collect();
    for word in ["invoke_agent aye", "chat m1", "execute_tool List", "gen_ai.client.token.usage"] {
        assert!(all.contains(word), "{word} is not in {all}");
    }
    assert!(!all.contains("secret"), "{all}");
}
