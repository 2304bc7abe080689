//! The configuration over HTTP: an admin's definitions are published with a revision, local ones stay local.

use serde_json::{Value, json};

use super::{RUN, done};
use crate::support::home::Home;
use crate::support::http::{Reply, Server};
use crate::support::llm::{Answer, MockLlm, until};

const AGENTS: &str = "/v1/config/agents";

/// Answers by the agent's prompt: an agent prompted with `Ask.` wants to run a command first.
fn agents_that_ask() -> MockLlm {
    MockLlm::by(|chat| {
        if chat.results().is_empty() && chat.system().starts_with("Ask.") {
            return Answer::new().bash("c1", RUN);
        }
        let name = if chat.system().starts_with("Ask.") { "old" } else { "new" };
        Answer::say(&format!("The {name} one with {}.", chat.body["model"].as_str().unwrap_or_default()))
    })
}

fn helper(prompt: &str, model: &str) -> Value {
    json!({ "id": "helper", "system_prompt": prompt, "model": model, "allowed_tools": ["Bash"] })
}

/// Starts a run of an agent; returns the reply with the conversation.
fn start(server: &Server, agent: &str) -> Reply {
    server.post("/v1/runs", &json!({ "text": "do it", "agent_id": agent }))
}

fn if_match(server: &Server, method: &str, path: &str, revision: &str, body: &str) -> Reply {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nIf-Match: {revision}\r\n",
        server.address, server.token
    );
    server.raw(&head, body)
}

#[test]
fn a_run_finishes_on_the_revision_it_started_with() {
    let llm = agents_that_ask();
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let fast = json!({ "id": "fast", "provider": "mock", "model": "m2" });
    assert_eq!(server.post("/v1/config/models", &fast).status, 201);
    let made = server.post(AGENTS, &helper("Ask.", "fast"));
    assert_eq!((made.status, &made.json()["revision"]), (201, &json!(2)), "{made:?}");
    let first = start(&server, "helper");
    assert!(first.body.contains("suspended"), "{}", first.body);
    let first = first.header("x-thread-id").expect("a conversation").to_owned();
    assert_eq!(llm.last().tools(), ["Bash"]);
    let second = start(&server, "helper").header("x-thread-id").expect("a conversation").to_owned();
    // The agent changes, and so does its model.
    let changed = server.send("PUT", &format!("{AGENTS}/helper"), &helper("Just answer.", "fast"));
    assert_eq!((changed.status, changed.header("etag")), (200, Some("\"3\"")), "{changed:?}");
    let slow = json!({ "provider": "mock", "model": "m3" });
    assert_eq!(server.send("PUT", "/v1/config/models/fast", &slow).json()["revision"], 4);
    let card = |server: &Server, thread: &str| {
        let cards = server.get("/v1/approvals").json();
        let mut cards = cards["items"].as_array().expect("a list").iter();
        cards.find(|card| card["thread_id"] == thread).expect("a card").clone()
    };
    let answer = |server: &Server, thread: &str| {
        until("the end", || done(server, thread));
        server.get(&format!("/v1/threads/{thread}/messages")).body
    };
    assert_eq!(server.approve(&card(&server, &first)).status, 200);
    let told = answer(&server, &first);
    assert!(told.contains("The old one with m2."), "{told}");
    assert!(start(&server, "helper").body.contains("The new one with m3."));
    // It stays, and so does everything the other run needs, even if the agent is deleted.
    assert_eq!(server.send("DELETE", &format!("{AGENTS}/helper"), &Value::Null).status, 204);
    assert_eq!(start(&server, "helper").code(), "unknown_agent");
    server.stop();
    let server = Server::start(&home, &[]);
    assert_eq!(server.get("/v1/config/models/fast").json()["definition"]["model"], "m3");
    assert_eq!(server.get(&format!("{AGENTS}/helper")).code(), "not_found");
    assert_eq!(server.approve(&card(&server, &second)).status, 200);
    let told = answer(&server, &second);
    assert!(told.contains("The old one with m2."), "{told}");
    assert_eq!(home.read("log.txt"), "ran\nran\n");
    server.stop();
}

#[test]
fn entries_are_listed_shown_changed_and_audited() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let home = Home::with(&llm);
    let server = Server::start(&home, &[]);
    let path = format!("{AGENTS}/helper");
    let made = server.post(AGENTS, &json!({ "id": "helper", "description": "Helps.", "delegates": ["aye"] }));
    assert_eq!((made.status, &made.json()["origin"]), (201, &json!("api")), "{made:?}");
    assert_eq!(server.post(AGENTS, &json!({ "id": "helper" })).code(), "exists");
    let shown = server.get(&path);
    assert_eq!(shown.header("etag"), Some("\"1\""));
    let shown = shown.json();
    assert_eq!(shown["definition"], json!({ "id": "helper", "description": "Helps.", "delegates": ["aye"] }));
    assert_eq!((&shown["scope"], &shown["model"]), (&json!("api"), &json!("mock/m1")));
    assert_eq!(server.get("/v1/agents/helper").json(), shown, "it is the same under its other name");
    assert_eq!(server.get("/v1/agents").json(), server.get(AGENTS).json());
    let page = server.get(&format!("{AGENTS}?limit=1")).json();
    assert_eq!((&page["items"][0]["id"], &page["next_offset"]), (&json!("aye"), &json!(1)));
    assert_eq!(server.get("/v1/config/agents/aye").json()["origin"], "local");
    // Another admin was faster.
    assert_eq!(if_match(&server, "PUT", &path, "\"1\"", "{\"max_rounds\": 3}").json()["revision"], 2);
    let late = if_match(&server, "PUT", &path, "\"1\"", "{}");
    assert_eq!((late.status, late.code(), &late.json()["revision"]), (412, "stale".into(), &json!(2)));
    assert_eq!(if_match(&server, "DELETE", &path, "\"1\"", "").code(), "stale");
    assert_eq!(if_match(&server, "PUT", &path, "soon", "{}").code(), "invalid_if_match");
    assert_eq!(if_match(&server, "PUT", &path, "*", "{}").json()["definition"], json!({ "id": "helper" }));
    let other = server.send("PUT", &path, &json!({ "id": "other" }));
    assert_eq!((other.status, &other.json()["error"]["field"]), (400, &json!("id")));
    assert_eq!(server.send("PUT", &format!("{AGENTS}/other"), &json!({})).status, 404);
    assert_eq!(server.get("/v1/capabilities").json()["namespaces"][3], "mcp-servers");
    assert_eq!(server.get("/v1/config/rules").status, 404);
    assert_eq!(server.get(&format!("{AGENTS}/$schema")).json()["additionalProperties"], false);
    assert!(home.ok(&["agents", "list"]).stdout.contains("helper"));
    home.ok(&["agents", "show", "helper"]);
    assert_eq!(home.ok(&["--agent", "helper", "-p", "hi"]).stdout, "Hello.\n");
    assert_eq!(server.send("DELETE", &path, &Value::Null).status, 204);
    assert_eq!(server.send("DELETE", &path, &Value::Null).status, 404);
    let rows = server.get("/v1/audit").json();
    let rows = rows["items"].as_array().expect("rows").iter().filter(|row| row["kind"] == "configured");
    let rows: Vec<&Value> = rows.map(|row| &row["body"]).collect();
    let changes: Vec<_> = rows.iter().map(|body| (&body["revision"], body["value"].is_null())).collect();
    assert_eq!(changes, [(&json!(1), false), (&json!(2), false), (&json!(3), false), (&json!(4), true)]);
    assert_eq!(rows[3]["actor"]["user"], "tester (owner)");
    assert!(home.ok(&["audit"]).stdout.contains("agents/helper deleted with revision 4"));
    home.ok(&["audit", "--verify"]);
    server.stop();
}

#[test]
fn local_files_are_not_overridden() {
    let llm = MockLlm::answers([]);
    let home = Home::with(&llm);
    let config = std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("settings");
    let secrets = "[providers.corp]\nadapter = \"openai\"\nbase_url = \"https://llm.example/s3cret/?k=s3cret\"\n\
                   api_key_env = \"MOCK_KEY\"\n[mcp_servers.shed]\nurl = \"https://mcp.example/s3cret?key=s3cret\"\n\
                   headers = {Authorization = \"Bearer s3cret\"}\n[mcp_servers.tool]\ncommand = \"true\"\n\
                   args = [\"s3cret\"]\nenv = {KEY = \"s3cret\"}\n[models.local]\nprovider = \"mock\"\nmodel = \"m9\"\n";
    home.config(&format!("{config}{secrets}"));
    let dir = home.root().join("aye/config/agents");
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::write(dir.join("reviewer.md"), "---\ndescription: Reviews.\n---\nYou review.\n")
        .expect("written");
    let far = "---\nendpoint: https://far.example/a2a\n---\n";
    std::fs::write(dir.join("far.md"), far).expect("written");
    let mut server = Server::start(&home, &[]);
    for (path, member) in [("providers", "has_key"), ("mcp-servers", "tools")] {
        let list = server.get(&format!("/v1/config/{path}")).body;
        assert!(list.contains(member) && !list.contains("s3cret") && !list.contains("sk-mock"), "{list}");
        let new = json!({ "id": "x", "base_url": "http://evil.example", "command": "sh" });
        for reply in [
            server.post(&format!("/v1/config/{path}"), &new),
            server.send("PUT", &format!("/v1/config/{path}/corp"), &new),
            server.send("DELETE", &format!("/v1/config/{path}/shed"), &Value::Null),
        ] {
            assert_eq!((reply.status, reply.code()), (403, "local_only".to_owned()));
        }
    }
    assert_eq!(server.get("/v1/config/providers/corp").json()["address"], "https://llm.example");
    // Local definitions are neither shadowed, replaced nor deleted.
    for id in ["aye", "reviewer", "far"] {
        assert_eq!(server.post(AGENTS, &json!({ "id": id })).code(), "local", "{id}");
        assert_eq!(server.send("PUT", &format!("{AGENTS}/{id}"), &json!({})).code(), "local");
        assert_eq!(server.send("DELETE", &format!("{AGENTS}/{id}"), &Value::Null).code(), "local");
    }
    let model = |id: &str, provider: &str| {
        server.post("/v1/config/models", &json!({ "id": id, "provider": provider, "model": "m2" }))
    };
    assert_eq!(model("local", "mock").code(), "local");
    assert_eq!(model("odd", "nowhere").status, 400);
    // No member that would give an agent more rights.
    for name in
        ["permission", "sections", "plugin_ids", "active_hook_filter", "endpoint", "hitl", "hooks", "x"]
    {
        let reply = server.post(AGENTS, &json!({ "id": "a", name: { "default_behavior": "allow" } }));
        assert_eq!((reply.status, &reply.json()["error"]["field"]), (400, &json!(name)), "{reply:?}");
    }
    for (field, value) in [
        ("delegates", json!(["far"])),
        ("delegates", json!(["nobody"])),
        ("model", json!("mock/")),
        ("allowed_tools", json!(["Bash("])),
        ("description", json!("\u{1b}[2J")),
        ("id", json!("..")),
        ("id", json!("a\u{0}")),
        ("id", json!("x".repeat(10_000))),
    ] {
        let mut agent = json!({ "id": "a" });
        agent[field] = value;
        let reply = server.post(AGENTS, &agent);
        assert_eq!((reply.status, &reply.json()["error"]["field"]), (400, &json!(field)), "{reply:?}");
    }
    assert_eq!(server.post(AGENTS, &json!({ "id": "a", "system_prompt": "x".repeat(1 << 20) })).status, 413);
    for id in ["..", "%2e%2e", "a%2fb", "a%00", "%ff", "x".repeat(10_000).as_str()] {
        let path = format!("{AGENTS}/{id}");
        for (method, body) in [("GET", Value::Null), ("PUT", json!({})), ("DELETE", Value::Null)] {
            let reply = if method == "GET" { server.get(&path) } else { server.send(method, &path, &body) };
            assert!(matches!(reply.status, 400 | 404), "{method} {reply:?}");
            assert!(reply.body.contains("\"code\"") && reply.body.len() < 1000, "{method} {id:.9} {reply:?}");
        }
    }
    // A model named by an agent stays until the agent is gone.
    assert_eq!(model("fast", "mock").status, 201);
    assert_eq!(server.post(AGENTS, &helper("Help.", "fast")).status, 201);
    assert_eq!(server.send("DELETE", "/v1/config/models/fast", &Value::Null).code(), "in_use");
    // A later local file takes precedence, and the entry it hides can still be deleted.
    std::fs::write(dir.join("helper.md"), "---\ndescription: Of a file.\n---\n").expect("written");
    server.stop();
    server = Server::start(&home, &[]);
    assert_eq!(server.get(&format!("{AGENTS}/helper")).json()["description"], "Of a file.");
    let all = server.get(AGENTS).json();
    let hidden = all["items"].as_array().expect("a list").iter().find(|agent| agent["problem"].is_string());
    assert_eq!(hidden.expect("is listed")["origin"], "api");
    assert_eq!(server.send("PUT", &format!("{AGENTS}/helper"), &json!({})).code(), "local");
    assert_eq!(server.send("DELETE", &format!("{AGENTS}/helper"), &Value::Null).status, 204);
    assert_eq!(server.get("/v1/audit?offset=0").json()["items"].as_array().map(Vec::len), Some(3));
    // Without the scope nothing changes, in any namespace.
    server.token =
        home.ok(&["serve", "token", "add", "x", "--scope", "read,chat,decide"]).stdout.trim().into();
    assert_eq!(server.get("/v1/config/models").status, 200);
    for path in [AGENTS, "/v1/config/providers", "/v1/config/nothing"] {
        assert_eq!(server.post(path, &json!({ "id": "a" })).code(), "forbidden");
        assert_eq!(server.send("PUT", &format!("{path}/a"), &json!({})).code(), "forbidden");
        assert_eq!(server.send("DELETE", &format!("{path}/a"), &Value::Null).code(), "forbidden");
    }
    server.token = home.ok(&["serve", "token", "add", "y", "--scope", "admin"]).stdout.trim().into();
    assert_eq!(server.get(AGENTS).code(), "forbidden");
    server.stop();
}

/// The local rules judge the calls of an agent, whatever its definition says.
#[test]
fn rules_apply_to_agents_defined_over_the_api() {
    let llm = MockLlm::answers([
        Answer::new().bash("c1", RUN).call("c2", "Write", json!({ "path": "a.txt", "content": "x" })),
        Answer::say("Neither ran."),
    ]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - tool: Bash\n    behavior: deny\n");
    let server = Server::start(&home, &[]);
    let agent = json!({ "id": "helper", "excluded_tools": ["Write(*)"], "allowed_tools": ["Bash", "Write"] });
    assert_eq!(server.post(AGENTS, &agent).status, 201);
    let reply = start(&server, "helper");
    assert!(reply.body.contains("Neither ran."), "{}", reply.body);
    assert_eq!((home.read("log.txt"), home.read("a.txt")), (String::new(), String::new()));
    server.stop();
}
