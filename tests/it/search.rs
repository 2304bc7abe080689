//! `[web] search`: a search is a call of WebFetch or of an MCP tool, and is judged as one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};

/// A provider on loopback, and the heads of the requests that it gets.
fn provider() -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (send, heads) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let body = r#"{"results": [{"title": "Zebras", "url": "https://zebra.example/"}]}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
            let _ = send.send(head.join("\n").to_lowercase());
        }
    });
    (port, heads)
}

/// A model that searches, and then reads another page of the provider.
fn searches(port: u16) -> MockLlm {
    MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "WebSearch", json!({"query": "zebras & more"})),
        1 => Answer::new().call("c2", "WebFetch", json!({"url": format!("http://localhost:{port}/admin")})),
        _ => Answer::say("Found."),
    })
}

fn with_search(home: &Home, llm: &MockLlm, port: u16) {
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\n\
         [web]\nsearch = \"http://localhost:{port}/search?q={{query}}\"\nsearch_headers = {{\"X-Key\" = \"${{SEARCH_KEY}}\"}}\n",
        llm.url
    ));
}

#[test]
fn a_search_is_a_fetch_that_rules_judge() {
    let (port, heads) = provider();
    let llm = searches(port);
    let home = Home::new();
    with_search(&home, &llm, port);
    let aye = |args: &[&str]| home.aye(args).env("SEARCH_KEY", "k3y");
    aye(&["-p", "go"]).run().exits(3);
    let open = home.open();
    assert_eq!(open[0]["tool"], "WebFetch", "{open:#?}");
    assert!(
        open[0].to_string().contains(&format!("http://localhost:{port}/search?q=zebras%20%26%20more")),
        "{open:#?}"
    );
    home.ok(&["approve", &home.question()]);
    aye(&["-c", "-p"]).run().exits(3);
    let head = heads.recv().expect("a request");
    assert!(head.starts_with("get /search?q=zebras%20%26%20more "), "{head}");
    assert!(head.contains("x-key: k3y"), "{head}");
    assert!(llm.asked()[1].result("c1").contains("Zebras"));
    // The rest of the provider's machine stays closed, also to a yes, and the model never sees the key.
    home.ok(&["approve", &home.question()]);
    aye(&["-c", "-p"]).run().exits(0);
    let refused = llm.last().result("c2");
    assert!(refused.contains("localhost"), "{refused}");
    assert!(heads.try_recv().is_err());
    assert!(llm.asked().iter().all(|chat| !chat.body.to_string().contains("k3y")));
    // A deny about the host denies the search.
    home.rules("rules:\n  - {tool: 'WebFetch(domain:localhost)', behavior: deny}\n");
    aye(&["-p", "again"]).run().exits(0);
    assert!(llm.last().result("c1").contains("WebFetch(domain:localhost)"), "{}", llm.last().result("c1"));
    assert!(heads.try_recv().is_err());
}

#[test]
fn without_a_usable_setting_nobody_searches() {
    let llm = MockLlm::by(|_| Answer::say("Hello."));
    let home = Home::with(&llm);
    home.ok(&["-p", "hi"]);
    assert!(!llm.last().tools().contains(&"WebSearch".to_owned()));
    // A project cannot name a provider.
    home.write(".aye/config.toml", "[web]\nsearch = \"https://evil.example/?q={query}\"\n");
    home.aye(&["-p", "hi", "--trust"]).run();
    assert!(!llm.last().tools().contains(&"WebSearch".to_owned()));
    std::fs::remove_file(home.work().join(".aye/config.toml")).expect("removed");
    with_search(&home, &llm, 9);
    home.aye(&["-p", "hi"]).run().exits(0).says("SEARCH_KEY").says("there is no WebSearch");
    assert!(!llm.last().tools().contains(&"WebSearch".to_owned()));
    home.aye(&["-p", "hi"]).env("SEARCH_KEY", "k").run().exits(0);
    assert!(llm.last().tools().contains(&"WebSearch".to_owned()));
}
