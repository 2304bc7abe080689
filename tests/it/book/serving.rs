//! The book's programs that serve: "Expose HTTP with SSE", "Integrate AI SDK Frontend" and "Integrate CopilotKit".
//! Their text is the book's, but for the name of the crate, models that answer from a script, and ports that are free.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use aye::contract::event_sink::VecEventSink;
use aye::contract::executor::LlmExecutor;
use aye::contract::message::Message;
use aye::contract::storage::ThreadRunStore;
use aye::contract::suspension::{PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode};
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::engine::{MockLlmExecutor, ScriptedExecutor, ScriptedReply};
use aye::ext_permission::PermissionPlugin;
use aye::server::app::{AppState, ServerConfig};
use aye::server::mailbox::{Mailbox, MailboxConfig};
use aye::server::routes::build_router;
use aye::stores::{FileStore, InMemoryMailboxStore, InMemoryStore};
use aye::{AgentRuntime, AgentRuntimeBuilder, RunRequest};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::http::{Events, Far};

/// Asks the user where to search.
struct SearchTool;

#[async_trait]
impl Tool for SearchTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("search", "Search", "Searches")
    }

    async fn execute(&self, arguments: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let ticket = SuspendTicket {
            suspension: Suspension {
                id: format!("where_{}", ctx.run_identity.run_id).into(),
                action: "tool:search".into(),
                message: "Where?".into(),
                parameters: json!({}),
                response_schema: Some(json!({ "type": "string" })),
                expires_at: None,
            },
            pending: PendingToolCall { id: ctx.call_id.as_str().into(), name: "search".into(), arguments },
            resume_mode: ToolCallResumeMode::UseDecisionAsToolResult,
        };
        Ok(ToolResult::suspended_with("search", "Where?", ticket).into())
    }
}

/// Asks nothing itself.
struct DeployTool;

#[async_trait]
impl Tool for DeployTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("deploy", "Deploy", "Deploys")
    }

    async fn execute(&self, _args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::success("deploy", json!({ "deployed": true })).into())
    }
}

/// Calls a tool for each message, and then answers.
fn calls(tool: &'static str) -> Arc<dyn LlmExecutor> {
    Arc::new(ScriptedExecutor::from_fn(move |request| {
        if request.messages.last().is_some_and(|message| message.tool_call_id.is_some()) {
            ScriptedReply::new().text("It is tea.")
        } else {
            ScriptedReply::new().call(tool, json!({}))
        }
    }))
}

/// The book's "Expose HTTP with SSE".
mod expose {
    use std::sync::Arc;

    use super::{LlmExecutor, SearchTool};
    use aye::server::app::{AppState, ServerConfig};
    use aye::server::mailbox::{Mailbox, MailboxConfig};
    use aye::stores::{InMemoryMailboxStore, InMemoryStore};
    use aye::{AgentRuntimeBuilder, AgentSpec, BuildError, ModelSpec};

    pub(super) fn state(model: Arc<dyn LlmExecutor>, config: ServerConfig) -> Result<AppState, BuildError> {
        let store = Arc::new(InMemoryStore::new());

        let runtime = AgentRuntimeBuilder::new()
            .with_agent_spec(
                AgentSpec::new("assistant")
                    .with_model("claude-sonnet")
                    .with_system_prompt("You are a helpful assistant."),
            )
            .with_tool("search", Arc::new(SearchTool))
            .with_provider("anthropic", model)
            .with_model(
                "claude-sonnet",
                ModelSpec {
                    id: "claude-sonnet".into(),
                    provider: "anthropic".into(),
                    model: "claude-sonnet-4-20250514".into(),
                },
            )
            .with_thread_run_store(store.clone())
            .build()?;

        let runtime = Arc::new(runtime);

        let mailbox_store = Arc::new(InMemoryMailboxStore::new());
        let mailbox = Arc::new(Mailbox::new(
            runtime.clone(),
            mailbox_store,
            "default-consumer".to_string(),
            MailboxConfig::default(),
        ));

        let state = AppState::new(runtime.clone(), mailbox, store, runtime.resolver_arc(), config);
        Ok(state)
    }
}

/// The book's "Integrate AI SDK Frontend", and "Integrate CopilotKit", which differs in the agent.
mod frontend {
    use std::sync::Arc;

    use super::LlmExecutor;
    use aye::AgentRuntimeBuilder;
    use aye::contract::storage::ThreadRunStore;
    use aye::registry_spec::{AgentSpec, ModelSpec};
    use aye::server::app::{AppState, ServerConfig};
    use aye::server::mailbox::{Mailbox, MailboxConfig};
    use aye::stores::{InMemoryMailboxStore, InMemoryStore};

    pub(super) fn ai_sdk() -> AgentSpec {
        AgentSpec::new("my-agent")
            .with_model("gpt-4o-mini")
            .with_system_prompt("You are a helpful assistant.")
            .with_max_rounds(10)
    }

    pub(super) fn copilot_kit() -> AgentSpec {
        AgentSpec::new("copilotkit-agent")
            .with_model("gpt-4o-mini")
            .with_system_prompt(
                "You are a CopilotKit-powered assistant. \
                 Update shared state and suggest actions when appropriate.",
            )
            .with_max_rounds(10)
    }

    pub(super) fn state(agent_spec: AgentSpec, model: Arc<dyn LlmExecutor>, address: &str) -> AppState {
        let runtime = AgentRuntimeBuilder::new()
            .with_provider("openai", model)
            .with_model(
                "gpt-4o-mini",
                ModelSpec {
                    id: "gpt-4o-mini".into(),
                    provider: "openai".into(),
                    model: "gpt-4o-mini".into(),
                },
            )
            .with_agent_spec(agent_spec)
            .build()
            .expect("failed to build runtime");
        let runtime = Arc::new(runtime);

        let store = Arc::new(InMemoryStore::new());
        let resolver = runtime.resolver_arc();

        let mailbox_store = Arc::new(InMemoryMailboxStore::new());
        let mailbox = Arc::new(Mailbox::new(
            runtime.clone(),
            mailbox_store as Arc<dyn aye::contract::MailboxStore>,
            format!("ai-sdk:{}", std::process::id()),
            MailboxConfig::default(),
        ));

        AppState::new(
            runtime,
            mailbox,
            store as Arc<dyn ThreadRunStore>,
            resolver,
            ServerConfig { address: address.into(), ..Default::default() },
        )
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

/// Serves as the book's programs do, and uses the server.
async fn served(listener: TcpListener, state: AppState, client: impl FnOnce(Far) + Send + 'static) {
    let far = Far {
        address: listener.local_addr().expect("an address").to_string(),
        token: state.token().to_owned(),
    };
    let app = build_router().with_state(state);
    let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("server crashed") });
    let done = tokio::task::spawn_blocking(move || client(far)).await;
    server.abort();
    done.expect("what the client expects");
}

fn frames(body: &str) -> Vec<Value> {
    let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|line| *line != "[DONE]").map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Waits until the run is over; a reader that joins meanwhile is first told that it waits.
fn until_answered(events: &mut Events) {
    while events.until("run_finish").data["termination"]["type"] != "natural_end" {}
}

#[test]
fn the_defaults_are_the_books() {
    let config = ServerConfig { token: Some("a-token-that-is-secret".into()), ..ServerConfig::default() };
    assert_eq!((config.address.as_str(), config.sse_buffer_size), ("0.0.0.0:3000", 64));
    assert!(!format!("{config:?}").contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_is_exposed_over_http() {
    let (listener, address) = listen().await;
    let port = address.rsplit_once(':').expect("a port").1;
    let config = ServerConfig {
        address: format!("0.0.0.0:{port}"),
        sse_buffer_size: 128,
        origins: vec!["https://app.example.com".into()],
        ..ServerConfig::default()
    };
    let state = expose::state(calls("search"), config).expect("a runtime");
    served(listener, state, |far| {
        assert_eq!(far.get("/health").status, 200);
        let page = far.raw(&format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", far.address), "");
        assert_eq!(page.status, 200);

        // Nothing else is served without the token, on loopback neither.
        let stranger = Far { address: far.address.clone(), token: "aye_guess".into() };
        for refused in [stranger.get("/v1/threads"), stranger.post("/v1/runs", &json!({"text": "go"}))] {
            assert_eq!((refused.status, refused.code().as_str()), (401, "unauthorized"));
            let message = refused.json()["error"]["message"].as_str().expect("a sentence").to_owned();
            assert!(message.contains("send `Authorization: Bearer TOKEN`"), "{message}");
            assert!(message.contains("AppState::token"), "{message}");
        }
        let with = |host: &str, origin: &str| {
            let token = &far.token;
            let head = format!("GET /v1/threads HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
            far.raw(&format!("{head}{origin}Authorization: Bearer {token}\r\n"), "")
        };
        let port = far.address.rsplit_once(':').expect("a port").1;
        let local = format!("localhost:{port}");
        assert_eq!(with(&local, "").status, 200);
        assert_eq!(with(&local, "Origin: https://app.example.com\r\n").status, 200);
        let rebound = with("evil.example.com", "");
        assert_eq!((rebound.status, rebound.code().as_str()), (403, "unknown_host"));
        assert!(rebound.body.contains("ServerConfig::hosts"), "{}", rebound.body);
        let foreign = with(&local, "Origin: https://evil.example.com\r\n");
        assert_eq!((foreign.status, foreign.code().as_str()), (403, "unknown_origin"));

        let made = far.post("/v1/threads", &json!({}));
        assert_eq!(made.status, 201, "{made:?}");
        let thread = made.json()["id"].as_str().expect("an id").to_owned();
        let first = far.post(&format!("/v1/threads/{thread}/runs"), &json!({"text": "What do you find?"}));
        let kinds: Vec<String> = frames(&first.body)
            .iter()
            .filter_map(|event| event["event_type"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(kinds.first().map(String::as_str), Some("run_start"), "{}", first.body);
        assert_eq!(kinds.last().map(String::as_str), Some("run_finish"), "{}", first.body);
        let card = far.card();
        let mut events = far.stream(&format!("/v1/threads/{thread}/events"), "");
        let id = card["id"].as_str().expect("an id");
        let accepted = far.post(&format!("/v1/approvals/{id}/answer"), &json!({ "result": "at home" }));
        assert_eq!(accepted.status, 200, "{accepted:?}");
        until_answered(&mut events);
        let history = far.get(&format!("/v1/threads/{thread}/messages")).json();
        assert_eq!(history["items"][3]["message"]["content"][0]["text"], "It is tea.", "{history}");
        let audit = far.get("/v1/audit").json();
        let decided = audit["items"].as_array().expect("rows").iter().find(|row| row["kind"] == "decided");
        assert_eq!(decided.expect("a decision")["body"]["actor"]["user"], "program", "{audit}");

        // What users change, and what is listed.
        let path = format!("/v1/threads/{thread}");
        assert_eq!(far.send("PATCH", &path, &json!({"title": "Tea"})).json()["title"], "Tea");
        let listed = far.get("/v1/threads/summaries").json();
        assert_eq!(
            (&listed["items"][0]["title"], &listed["items"][0]["messages"]),
            (&"Tea".into(), &4.into())
        );
        assert_eq!(far.get("/v1/runs?status=done").json()["items"].as_array().map(Vec::len), Some(1));
        assert!(far.get("/metrics").body.contains("aye_questions_pending 0"));
        let about = far.get("/v1/capabilities").json();
        assert_eq!(
            (&about["agents"][0]["id"], &about["tools"][0]["id"]),
            (&"assistant".into(), &"search".into())
        );
        assert_eq!(far.get("/v1/config/agents").status, 400);
        let card = far.get("/.well-known/agent-card.json").json();
        assert_eq!(card["capabilities"]["pushNotifications"], false, "{card}");
        let url = card["supportedInterfaces"][0]["url"].as_str().expect("a URL");
        assert_eq!(url, format!("http://{}/v1/a2a", far.address));
        assert_eq!(far.send("DELETE", &path, &json!({})).status, 204);
        assert_eq!(far.get("/v1/threads").json()["items"], json!([]));
    })
    .await;
}

/// The run ends, and the conversation goes on with the next message.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_panics_leaves_its_conversation_usable() {
    let (listener, address) = listen().await;
    let asked = std::sync::atomic::AtomicBool::new(false);
    let model = ScriptedExecutor::from_fn(move |_| {
        assert!(asked.swap(true, std::sync::atomic::Ordering::SeqCst), "a driver panics, on purpose");
        ScriptedReply::new().text("It is tea.")
    });
    let config = ServerConfig { address, ..ServerConfig::default() };
    let state = expose::state(Arc::new(model), config).expect("a runtime");
    served(listener, state, |far| {
        let thread = far.post("/v1/threads", &json!({})).json()["id"].as_str().expect("an id").to_owned();
        let path = format!("/v1/threads/{thread}/runs");
        let broken = far.post(&path, &json!({"text": "What is it?"}));
        assert!(broken.body.contains("internal error"), "{broken:?}");
        let next = far.post(&path, &json!({"text": "And now?"}));
        assert!(next.body.contains("It is tea."), "{next:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ai_sdk_chats_with_a_runtime() {
    let (listener, address) = listen().await;
    let model = Arc::new(MockLlmExecutor::new().with_responses(vec!["Hello!".into()]));
    let state = frontend::state(frontend::ai_sdk(), model, &address);
    served(listener, state, |far| {
        let said = json!({
            "id": "thread-1", "trigger": "submit-message",
            "messages": [{ "id": "u1", "role": "user", "parts": [{ "type": "text", "text": "Hi" }] }],
        });
        let reply = far.post("/v1/ai-sdk/chat", &said);
        assert!(reply.body.trim_end().ends_with("data: [DONE]"), "{reply:?}");
        assert!(frames(&reply.body).iter().any(|part| part["delta"] == "Hello!"), "{reply:?}");
        assert_eq!(far.get("/v1/ai-sdk/chat/thread-1/stream").status, 204, "nothing runs");
        let messages = far.get("/v1/ai-sdk/threads/thread-1/messages").json();
        assert_eq!(
            messages.as_array().map(Vec::len),
            Some(2),
            "the runs are in the server's store: {messages}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn copilot_kit_runs_an_agent() {
    let (listener, address) = listen().await;
    // More pieces at once than a client may be behind.
    let words = ["word "; 500];
    let text = words.concat();
    let model = ScriptedExecutor::new([words.into_iter().fold(ScriptedReply::new(), ScriptedReply::text)]);
    let state = frontend::state(frontend::copilot_kit(), Arc::new(model), &address);
    served(listener, state, move |far| {
        let input = json!({
            "threadId": "ag-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
            "messages": [{ "id": "m1", "role": "user", "content": "Hi" }],
        });
        let events = frames(&far.post("/v1/ag-ui/run", &input).body);
        assert_eq!((&events[0]["type"], &events[0]["runId"]), (&"RUN_STARTED".into(), &"run-1".into()));
        let said: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(said, text);
        let last = events.last().expect("an end");
        assert_eq!((&last["type"], &last["runId"]), (&"RUN_FINISHED".into(), &"run-1".into()), "{last}");
        assert_eq!(far.get("/v1/ag-ui/threads/ag-1/messages").status, 200);
    })
    .await;
}

fn waiting_runtime(store: Arc<dyn ThreadRunStore>) -> Arc<AgentRuntime> {
    let runtime = AgentRuntimeBuilder::new()
        .with_agent_spec(aye::AgentSpec::new("assistant").with_model("m"))
        .with_plugin("permission", Arc::new(PermissionPlugin))
        .with_tool("deploy", Arc::new(DeployTool))
        .with_provider("m", calls("deploy"))
        .with_model("m", aye::ModelSpec { id: "m".into(), provider: "m".into(), model: "m".into() })
        .with_thread_run_store(store)
        .build();
    Arc::new(runtime.expect("a runtime"))
}

fn state_of(runtime: &Arc<AgentRuntime>, store: Arc<dyn ThreadRunStore>, config: ServerConfig) -> AppState {
    let mailbox_store = Arc::new(InMemoryMailboxStore::new());
    let mailbox = Mailbox::new(runtime.clone(), mailbox_store, "a".into(), MailboxConfig::default());
    AppState::new(runtime.clone(), Arc::new(mailbox), store, runtime.resolver_arc(), config)
}

/// The program asks, a client of the server answers, and the server resumes the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_the_program_is_answered_over_http() {
    let folder = tempfile::tempdir().expect("a folder");
    let (listener, address) = listen().await;
    let store: Arc<dyn ThreadRunStore> = Arc::new(FileStore::new(folder.path()));
    let runtime = waiting_runtime(Arc::clone(&store));
    let config = ServerConfig { address, token: Some("the-programs-own-token".into()), ..Default::default() };
    let state = state_of(&runtime, Arc::clone(&store), config);
    assert_eq!(state.token(), "the-programs-own-token");
    let request = RunRequest::new("t", vec![Message::user("Deploy")]);
    let result = runtime.run(request, Arc::new(VecEventSink::new())).await.expect("a run");
    assert_eq!(result.waiting.len(), 1);
    let closing = state.clone();
    served(listener, state, |far| {
        let mut events = far.stream("/v1/threads/t/events", "");
        let card = far.card();
        let (id, pattern) = (card["id"].as_str().expect("an id"), &card["proposals"][0]["pattern"]);
        let granted = json!({ "shown_hash": card["shown_hash"], "grant": { "pattern": pattern } });
        let refused = far.post(&format!("/v1/approvals/{id}/approve"), &granted);
        assert!(refused.status == 400 && refused.body.contains("grants no rules"), "{refused:?}");
        let queued = far.post("/v1/threads/t/messages", &json!({ "text": "Again" }));
        assert!(queued.status == 202 && queued.json()["queued"] == true, "{queued:?}");
        let mailbox = far.get("/v1/threads/t/mailbox").json();
        assert_eq!(mailbox["items"][0]["messages"][0]["content"][0]["text"], "Again", "{mailbox}");
        assert_eq!(far.approve(&card).status, 200);
        until_answered(&mut events);
        // The queued message starts the next run.
        while events.until("run_finish").data["termination"]["type"] != "suspended" {}
        assert_eq!(far.approve(&far.card()).status, 200);
        until_answered(&mut events);
    })
    .await;
    closing.close().await;
    assert_eq!(store.message_count(&"t".into()).await.expect("a count"), 8);
    store.close().await;
}

/// Clients see what the program itself runs: the server watches the store through a handle of its own, since a handle
/// does not report its own changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_the_program_is_seen_over_http() {
    let folder = tempfile::tempdir().expect("a folder");
    let (listener, address) = listen().await;
    let store: Arc<dyn ThreadRunStore> = Arc::new(FileStore::new(folder.path()));
    let runtime = waiting_runtime(Arc::clone(&store));
    let config = ServerConfig { address, ..ServerConfig::default() };
    let state = state_of(&runtime, Arc::clone(&store), config);
    let closing = state.clone();
    let program = tokio::runtime::Handle::current();
    served(listener, state, move |far| {
        let thread = far.post("/v1/threads", &json!({})).json()["id"].as_str().expect("an id").to_owned();
        let mut events = far.stream(&format!("/v1/threads/{thread}/events"), "");
        let request = RunRequest::new(thread.as_str(), vec![Message::user("Deploy")]);
        let ran = program.block_on(runtime.run(request, Arc::new(VecEventSink::new()))).expect("a run");
        assert_eq!(ran.waiting.len(), 1);
        while events.until("run_finish").data["termination"]["type"] != "suspended" {}
        assert_eq!(events.silences, 0, "only a check that is made now and then found it");
        assert_eq!(far.card()["thread_id"], thread.as_str());
    })
    .await;
    closing.close().await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_start_says_so() {
    let (listener, address) = listen().await;
    let store: Arc<dyn ThreadRunStore> = Arc::new(InMemoryStore::new());
    let runtime = waiting_runtime(Arc::clone(&store));
    let config = ServerConfig { address, token: Some(String::new()), ..Default::default() };
    served(listener, state_of(&runtime, store, config), |far| {
        for path in ["/health", "/", "/v1/threads"] {
            let refused = far.get(path);
            assert_eq!((refused.status, refused.code().as_str()), (503, "not_started"), "{path}");
        }
    })
    .await;
}

#[test]
fn a_state_made_outside_of_tokio_starts_with_its_first_request() {
    let store: Arc<dyn ThreadRunStore> = Arc::new(InMemoryStore::new());
    let runtime = waiting_runtime(Arc::clone(&store));
    let config = ServerConfig { address: "127.0.0.1:1".into(), ..Default::default() };
    let state = state_of(&runtime, store, config.clone());
    assert!(state.runtime().is_none(), "{state:?}");
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    tokio.block_on(async {
        let (listener, address) = listen().await;
        let client = state.clone();
        served(listener, state, move |far| {
            let head = format!("GET /health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", config.address);
            assert_eq!(far.raw(&head, "").status, 200);
            assert_eq!(far.get("/health").status, 403, "{address} is not the address in its settings");
        })
        .await;
        assert!(client.runtime().is_some());
    });
}

/// With the addresses of clients, guesses from one of them do not slow down others.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_a_client_is_known_where_the_program_passes_it_on() {
    let (listener, address) = listen().await;
    let model = Arc::new(MockLlmExecutor::new());
    let state = frontend::state(frontend::ai_sdk(), model, &address);
    let far = Far { address, token: "aye_guess".into() };
    let app = build_router().with_state(state).into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("server crashed") });
    let statuses = tokio::task::spawn_blocking(move || [0; 3].map(|_| far.get("/v1/threads").status)).await;
    server.abort();
    assert_eq!(statuses.expect("answers"), [401; 3]);
}
