//! Questions as signed messages to other programs, and their signed answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::http::Server;
use crate::support::llm::{Answer, MockLlm, until};

const RUN: &str = "echo ran >> log.txt";

/// The received requests: the head in lower case, and the body.
type Came = Arc<Mutex<Vec<(String, String)>>>;

/// A receiver that answers with these statuses in turn, the last one forever.
fn receiver(statuses: &'static [u16]) -> (String, Came) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("a valid address"));
    let came: Came = Arc::default();
    let kept = Arc::clone(&came);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) <= 2 {
                    break;
                }
                let line = line.to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().expect("a length");
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            let mut all = kept.lock().expect("not poisoned");
            let status = statuses.get(all.len()).or(statuses.last()).expect("a status");
            all.push((head, String::from_utf8(body).expect("text")));
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            reader.get_mut().write_all(answer.as_bytes()).expect("answered");
        }
    });
    (url, came)
}

fn asks() -> MockLlm {
    MockLlm::answers([Answer::new().text("I will.").bash("c1", RUN), Answer::say("It is done.")])
}

fn home(llm: &MockLlm, webhook: &str, more: &str) -> Home {
    let home = Home::with(llm);
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\n\
         [questions]\nnotify = [{{webhook = \"phone\"}}]\n[webhooks.phone]\nurl = \"{webhook}\"\n{more}",
        llm.url
    ));
    home
}

fn value_of<'a>(head: &'a str, name: &str) -> &'a str {
    let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("{name} is not in {head}")).trim()
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs()
}

fn key(home: &Home) -> String {
    std::fs::read_to_string(home.root().join("aye/data/webhook-key")).expect("a key").trim().to_owned()
}

#[test]
fn a_question_and_its_outcome_are_sent_once_and_signed() {
    let llm = asks();
    let (url, came) = receiver(&[200]);
    let home = home(&llm, &format!("{url}/hook"), "[serve]\npublic_url = \"https://aye.example.com/\"\n");
    home.aye(&["-p", "do it"]).run().exits(3);
    let id = home.question();
    let sent = came.lock().expect("not poisoned").clone();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let (head, body) = &sent[0];
    assert!(head.starts_with("post /hook "), "{head}");
    assert!(aye::server::is_signed(
        key(&home).as_bytes(),
        value_of(head, "aye-signature"),
        body.as_bytes(),
        now()
    ));
    let asked: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!((&asked["type"], &asked["id"]), (&json!("question.asked"), &json!(id)));
    assert_eq!((&asked["title"], &asked["summary"]), (&json!("Run this command?"), &json!(RUN)));
    assert_eq!(asked["options"], json!(["approve", "deny", "request_changes"]));
    assert_eq!(asked["links"]["card"], format!("https://aye.example.com/#/card/{id}"));
    // Showing it again does not ask again; the driver of the run reports the answer.
    home.aye(&["-r", &home.thread(), "-p"]).run().exits(3);
    home.ok(&["deny", &id, "--reason", "not now", "--resume"]);
    let sent = came.lock().expect("not poisoned").clone();
    assert_eq!(sent.len(), 2, "{sent:?}");
    let told: Value = serde_json::from_str(&sent[1].1).expect("JSON");
    assert_eq!((&told["type"], &told["options"]), (&json!("question.decided"), &json!([])));
    assert_eq!(
        (&told["decision"]["reason"], &told["decision"]["by"]["channel"]),
        (&json!("not now"), &json!("cli"))
    );
    assert_eq!(home.ok(&["queue", "outbox"]).stdout, "");
}

#[test]
fn an_undelivered_message_is_dead_until_it_is_resent() {
    let llm = asks();
    let (url, came) = receiver(&[410, 204]);
    let home = home(&llm, &url, "");
    home.aye(&["-p", "do it"]).run().exits(3);
    let shown = home.ok(&["queue", "outbox"]).stdout;
    assert!(shown.contains("dead") && shown.contains("webhook:phone") && shown.contains("410"), "{shown}");
    let rows: Value = serde_json::from_str(&home.ok(&["queue", "outbox", "--json"]).stdout).expect("JSON");
    assert_eq!((&rows[0]["status"], &rows[0]["attempt_count"]), (&json!("dead_letter"), &json!(1)));
    let number = rows[0]["number"].to_string();
    let sent = home.ok(&["queue", "outbox", "--retry", &number]).stdout;
    assert!(sent.contains("sent") && !sent.contains("failed"), "{sent}");
    assert_eq!(came.lock().expect("not poisoned").len(), 2);
    assert_eq!(home.ok(&["queue", "outbox"]).stdout, "");
    home.aye(&["queue", "outbox", "--retry", &number]).run().exits(2);
    assert_eq!(home.open().len(), 1, "the question is still pending");
}

#[test]
fn a_refused_webhook_message_is_sent_by_the_next_process() {
    let llm = asks();
    let (url, came) = receiver(&[503, 200]);
    let home = home(&llm, &url, "");
    home.aye(&["-p", "do it"]).run().exits(3);
    assert!(home.ok(&["queue", "outbox"]).stdout.contains("queued"));
    let server = Server::start(&home, &[]);
    until("the second attempt", || came.lock().expect("not poisoned").len() == 2);
    until("the write", || home.ok(&["queue", "outbox"]).stdout.is_empty());
    let came = came.lock().expect("not poisoned");
    assert_eq!(came[0].1, came[1].1, "the same message");
    server.stop();
}

#[test]
fn chat_programs_get_their_format() {
    for (format, path, member) in
        [("slack", "/s", "text"), ("discord", "/d", "content"), ("ntfy", "/topic", "message")]
    {
        let llm = MockLlm::answers([Answer::new().bash("c1", "echo '<!channel> @everyone' > log.txt")]);
        let (url, came) = receiver(&[200]);
        let home = home(&llm, &format!("{url}{path}"), &format!("format = \"{format}\"\n"));
        home.aye(&["-p", "do it"]).run().exits(3);
        let (head, body) = came.lock().expect("not poisoned").remove(0);
        let body: Value = serde_json::from_str(&body).expect("JSON");
        let text = body[member].as_str().expect("a string");
        match format {
            "slack" => assert!(text.contains("&lt;!channel&gt;") && !text.contains("<!"), "{text}"),
            "discord" => assert_eq!(body["allowed_mentions"], json!({ "parse": [] })),
            _ => {
                assert_eq!(body["topic"], "topic");
                assert!(
                    body["title"]
                        .as_str()
                        .is_some_and(|title| !title.is_empty() && !title.starts_with("Bash"))
                );
                assert!(head.starts_with("post / "), "{head}");
            }
        }
        assert!(text.contains("everyone"), "{text}");
    }
}

#[test]
fn an_answer_counts_only_with_the_key() {
    let llm = asks();
    let (url, came) = receiver(&[200]);
    let home = home(&llm, &url, "");
    let server = Server::start(&home, &[]);
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nX-Correlation-Id: order-7\r\n",
        server.address, server.token
    );
    assert_eq!(server.raw(&head, "{\"text\": \"do it\"}").status, 200);
    until("the message", || came.lock().expect("not poisoned").len() == 1);
    let asked: Value = serde_json::from_str(&came.lock().expect("not poisoned")[0].1).expect("JSON");
    assert_eq!(asked["links"]["answer"], format!("http://{}/v1/signed/answer", server.address));
    let send = |name: &str, signature: &str, body: &str| {
        let head = format!(
            "POST /v1/signed/answer HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Aye-Webhook: {name}\r\nAye-Signature: {signature}\r\n",
            server.address
        );
        server.raw(&head, body)
    };
    let key = key(&home);
    let signed = |body: &str| aye::server::sign(key.as_bytes(), now(), body.as_bytes());
    let yes = json!({ "question": asked["id"], "shown_hash": asked["shown_hash"], "action": "approve" });
    let yes = yes.to_string();
    let code = |reply: crate::support::http::Reply| (reply.status, reply.code());
    assert_eq!(code(send("phone", "", &yes)), (401, "not_signed".into()));
    assert_eq!(code(send("other", &signed(&yes), &yes)), (401, "not_signed".into()));
    assert_eq!(code(send("phone", &signed("{}"), &yes)), (401, "not_signed".into()));
    let old = aye::server::sign(key.as_bytes(), now() - 1000, yes.as_bytes());
    assert_eq!(code(send("phone", &old, &yes)), (401, "not_signed".into()));
    let stale = json!({ "question": asked["id"], "shown_hash": "00", "action": "deny" }).to_string();
    assert_eq!(code(send("phone", &signed(&stale), &stale)), (412, "changed".into()));
    assert_eq!(server.card()["status"], "open");
    assert_eq!(home.read("log.txt"), "");
    assert_eq!(asked["correlation_id"], "order-7");
    let reply = send("phone", &signed(&yes), &yes);
    assert_eq!((reply.status, &reply.json()["outcome"]), (200, &json!("accepted")), "{reply:?}");
    assert_eq!(code(send("phone", &signed(&yes), &yes)), (409, "already_decided".into()));
    until("the command", || home.read("log.txt") == "ran\n");
    until("the event", || came.lock().expect("not poisoned").len() == 2);
    let told = came.lock().expect("not poisoned")[1].1.clone();
    assert!(told.contains("question.decided") && told.contains("(webhook phone)"), "{told}");
    server.stop();
}

#[test]
fn a_webhook_without_tls_is_used_only_on_this_machine() {
    let llm = asks();
    let home = home(&llm, "http://example.com/hook", "");
    let out = home.aye(&["-p", "do it"]).run().exits(3);
    out.says("[webhooks.phone] needs an https:// url");
    assert!(home.ok(&["queue", "outbox"]).stdout.contains("dead"));
}

#[test]
fn a_task_notifies_a_url_when_it_waits_and_ends() {
    let llm = asks();
    let (url, came) = receiver(&[200]);
    let host = url.strip_prefix("http://").expect("a host").to_owned();
    let home = Home::with(&llm);
    let config = std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("settings");
    home.config(&format!("{config}[serve]\npush_hosts = [\"{host}\"]\n"));
    let server = Server::start(&home, &[]);
    let a2a = |server: &Server, method: &str, path: &str, body: &Value| {
        let head = format!(
            "{method} /v1/a2a/{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             A2A-Version: 1.0\r\nContent-Type: application/a2a+json\r\n",
            server.address, server.token
        );
        server.raw(&head, &if body.is_null() { String::new() } else { body.to_string() })
    };
    let said = |text: &str, task: &str, push: Value| {
        let message =
            json!({ "messageId": "m1", "role": "ROLE_USER", "taskId": task, "parts": [{ "text": text }] });
        json!({ "message": message, "configuration": { "taskPushNotificationConfig": push } })
    };
    // URLs reachable only from this machine or its network are refused, unless the settings name them.
    for wrong in
        ["http://127.0.0.1:1/", "https://169.254.169.254/", "http://example.org/", "file:///etc/passwd"]
    {
        let reply = a2a(&server, "POST", "message:send", &said("do it", "", json!({ "url": wrong })));
        assert_eq!(reply.status, 400, "{wrong}: {reply:?}");
    }
    assert!(llm.asked().is_empty());
    let push = json!({
        "url": format!("{url}/hook"), "token": "t0ken",
        "authentication": { "scheme": "Bearer", "credentials": "s3cret" },
    });
    let task = a2a(&server, "POST", "message:send", &said("do it", "", push)).json()["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    let id = task["id"].as_str().expect("an id");
    let sent = || came.lock().expect("not poisoned").clone();
    until("the first notification", || sent().len() == 1);
    let (head, body) = sent().remove(0);
    assert!(head.starts_with("post /hook "), "{head}");
    assert_eq!(value_of(&head, "x-a2a-notification-token"), "t0ken");
    assert_eq!(value_of(&head, "authorization"), "bearer s3cret");
    assert!(aye::server::is_signed(b"t0ken", value_of(&head, "aye-signature"), body.as_bytes(), now()));
    let told: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((&told["task"]["id"], &told["task"]["status"]), (&task["id"], &task["status"]));
    // A second URL is registered, listed, shown and removed; it receives what it missed.
    let configs = format!("tasks/{id}/pushNotificationConfigs");
    let second = json!({ "id": "b", "url": format!("{url}/second") });
    let made = a2a(&server, "POST", &configs, &second).json();
    assert_eq!((&made["id"], &made["taskId"]), (&json!("b"), &task["id"]));
    until("the second notification", || sent().len() == 2);
    let listed = a2a(&server, "GET", &configs, &Value::Null).json();
    assert_eq!(listed["configs"].as_array().map(Vec::len), Some(2), "{listed}");
    let one = format!("{configs}/b");
    assert_eq!(a2a(&server, "GET", &one, &Value::Null).json()["url"], second["url"]);
    assert_eq!(a2a(&server, "DELETE", &one, &Value::Null).status, 200);
    assert_eq!(a2a(&server, "GET", &one, &Value::Null).status, 404);
    // The server dies; somebody answers elsewhere; the next server reports the end, and nothing twice.
    server.running.signal(rustix::process::Signal::KILL);
    drop(server);
    home.ok(&["approve", &home.question(), "--resume"]);
    let server = Server::start(&home, &[]);
    until("the end", || sent().len() == 3);
    let told: Value = serde_json::from_str(&sent()[2].1).expect("JSON");
    assert_eq!(told["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(sent()[2].0.starts_with("post /hook "), "{:?}", sent()[2]);
    assert_eq!(home.ok(&["queue", "outbox"]).stdout, "");
    let card = a2a(&server, "GET", "extendedAgentCard", &Value::Null).json();
    assert_eq!(card["supportedInterfaces"][2]["tenant"], "aye", "{card}");
    assert_eq!(card["capabilities"]["pushNotifications"], true);
    server.stop();
    assert_eq!(sent().len(), 3);
}

#[test]
fn a_question_that_stays_pending_goes_to_somebody_else() {
    let (phone, first) = receiver(&[200]);
    let (team, second) = receiver(&[200]);
    let llm = asks();
    let more = format!("[webhooks.team]\nurl = \"{team}\"\nescalate_after = \"1s\"\n");
    let home = home(&llm, &phone, &more);
    home.aye(&["-p", "go"]).run().exits(3);
    assert_eq!(first.lock().expect("not poisoned").len(), 1);
    assert!(second.lock().expect("not poisoned").is_empty(), "not yet");
    let waiting = home.ok(&["queue", "outbox"]);
    assert!(waiting.stdout.contains("escalate:team"), "{}", waiting.stdout);
    // The process that asked is gone: any other one sends it.
    let worker = home.aye(&["work"]).spawn();
    until("the message", || !second.lock().expect("not poisoned").is_empty());
    worker.signal(rustix::process::Signal::KILL);
    worker.end().ends_by(rustix::process::Signal::KILL);
    let body: Value = serde_json::from_str(&second.lock().expect("not poisoned")[0].1).expect("JSON");
    assert_eq!(body["type"], "question.still_pending", "{body:#}");
    assert_eq!(body["options"], json!(["approve", "deny", "request_changes"]));
    assert_eq!(home.open().len(), 1, "nobody answered it");
    assert_eq!(first.lock().expect("not poisoned").len(), 1, "who was notified is left in peace");
}

#[test]
fn an_answered_question_goes_to_nobody_else() {
    let (phone, _) = receiver(&[200]);
    let (team, second) = receiver(&[200]);
    let llm = asks();
    let more = format!("[webhooks.team]\nurl = \"{team}\"\nescalate_after = \"2s\"\n");
    let home = home(&llm, &phone, &more);
    home.aye(&["-p", "go"]).run().exits(3);
    home.ok(&["approve", &home.question()]);
    let worker = home.aye(&["work"]).spawn();
    until("the message is settled", || {
        let rows = home.ok(&["queue", "outbox", "--all", "--json"]).json();
        rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["status"] == "cancelled"))
    });
    worker.signal(rustix::process::Signal::KILL);
    worker.end().ends_by(rustix::process::Signal::KILL);
    assert!(second.lock().expect("not poisoned").is_empty());
}
