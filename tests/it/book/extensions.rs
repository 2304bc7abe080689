//! MCP servers, reminders, surfaces, handoff and deferred tools.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use aye::contract::event::AgentEvent;
use aye::contract::event_sink::VecEventSink;
use aye::contract::executor::InferenceRequest;
use aye::contract::lifecycle::TerminationReason;
use aye::contract::message::Message;
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::engine::{ScriptedExecutor, ScriptedReply};
use aye::ext_deferred_tools::state::{DeferralState, DeferralStateValue};
use aye::ext_deferred_tools::{
    DeferralRule, DeferredToolsConfig, DeferredToolsConfigKey, DeferredToolsPlugin, DiscBetaParams,
    ToolLoadMode,
};
use aye::ext_generative_ui::A2uiPlugin;
use aye::ext_mcp::{McpError, McpPlugin, McpServerConnectionConfig, McpToolRegistryManager};
use aye::ext_reminder::{ReminderConfigError, ReminderPlugin, ReminderRulesConfig};
use aye::extensions::handoff::{
    ActiveAgentKey, AgentOverlay, HANDOFF_PLUGIN_ID, HandoffPlugin, HandoffState, activate_handoff,
    clear_handoff, request_handoff,
};
use aye::registry_spec::{AgentSpec, ModelSpec};
use aye::state::StateCommand;
use aye::{
    AgentRunResult, AgentRuntimeBuilder, Phase, PhaseContext, PhaseHook, Plugin, PluginDescriptor,
    PluginRegistrar, RunRequest, StateError,
};
use serde_json::{Value, json};

/// Returns its arguments under any name, and fails on request.
struct Say(&'static str);

#[async_trait]
impl Tool for Say {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new(self.0, self.0, format!("Does what {} says", self.0)).with_parameters(json!({
            "type": "object",
            "properties": {"text": {"type": "string", "description": "what is to be said ".repeat(9)}}
        }))
    }

    async fn execute(&self, args: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        if let Some(error) = args.get("error") {
            let mut result = ToolResult::error(self.0, "permission denied by the door");
            result.data = json!({ "error": error });
            return Ok(result.into());
        }
        Ok(ToolResult::success(self.0, args).into())
    }
}

struct Ran {
    result: AgentRunResult,
    events: Vec<AgentEvent>,
    requests: Vec<InferenceRequest>,
}

impl Ran {
    /// The results of its calls, in order of completion.
    fn results(&self) -> Vec<&ToolResult> {
        self.events
            .iter()
            .filter_map(|event| match event {
                AgentEvent::ToolCallDone { result, .. } => Some(result),
                _ => None,
            })
            .collect()
    }

    /// Whether a request contains a text.
    fn holds(&self, nth: usize, text: &str) -> bool {
        format!("{:?}", self.requests[nth]).contains(text)
    }

    fn offered(&self, nth: usize) -> BTreeSet<&str> {
        self.requests[nth].tools.iter().map(|tool| tool.id.as_str()).collect()
    }

    /// How often a text was said in messages up to a request.
    fn said(&self, nth: usize, text: &str) -> usize {
        self.requests[nth].messages.iter().filter(|message| message.text().contains(text)).count()
    }

    /// The last message that says which of the tools of the start cannot be used.
    fn withheld(&self, nth: usize) -> String {
        let texts = self.requests[nth].messages.iter().rev().map(|message| message.text());
        let about =
            |text: &String| text.contains("that cannot be used now") || text.contains("can be used again");
        texts.into_iter().find(about).unwrap_or_default()
    }
}

fn model(id: &str) -> ModelSpec {
    ModelSpec { id: id.into(), provider: "scripted".into(), model: id.into() }
}

/// Runs the only agent over this builder, with the scripted model `m`.
async fn run(builder: AgentRuntimeBuilder, script: Vec<ScriptedReply>) -> Ran {
    let executor = Arc::new(ScriptedExecutor::new(script));
    let runtime = builder
        .with_provider("scripted", Arc::clone(&executor) as _)
        .with_model("m", model("m"))
        .build()
        .expect("a runtime");
    let sink = Arc::new(VecEventSink::new());
    let request = RunRequest::new("thread-1", vec![Message::user("go")]);
    let result = runtime.run(request, sink.clone()).await.expect("a run");
    Ran { result, events: sink.take(), requests: executor.requests() }
}

fn say(tool: &str, args: Value) -> ScriptedReply {
    ScriptedReply::new().call(tool, args)
}

fn done() -> ScriptedReply {
    ScriptedReply::new().text("done")
}

// --- MCP ---

fn server(name: &str, tools: &Path, mode: &str) -> McpServerConnectionConfig {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mcp_server.sh");
    let tools = tools.to_str().expect("a path");
    McpServerConnectionConfig::stdio(name, "sh", vec![script.into(), tools.into(), mode.into()])
}

fn write_tools(file: &Path, names: &[&str]) {
    let tool = |name: &&str| json!({"name": name, "description": format!("does {name}"), "inputSchema": {"type": "object"}});
    let tools: Vec<Value> = names.iter().map(tool).collect();
    std::fs::write(file, Value::from(tools).to_string()).expect("written");
}

#[tokio::test]
async fn server_tools_are_found_registered_and_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let tools = folder.path().join("tools.json");
    write_tools(&tools, &["echo", "env"]);
    let manager = McpToolRegistryManager::connect(vec![server("desk", &tools, "plain")])
        .await
        .expect("failed to connect MCP servers");
    let registry = manager.registry();
    assert_eq!(registry.ids(), ["mcp__desk__echo", "mcp__desk__env"]);

    let agent_spec = AgentSpec::new("mcp-agent")
        .with_model("m")
        .with_system_prompt("Use tools when they help.")
        .with_hook_filter("mcp");
    let mut builder = AgentRuntimeBuilder::new()
        .with_agent_spec(agent_spec)
        .with_plugin("mcp", Arc::new(McpPlugin) as Arc<dyn Plugin>);
    for (id, tool) in registry.snapshot() {
        builder = builder.with_tool(&id, tool);
    }
    let script = vec![say("mcp__desk__echo", json!({})), say("mcp__desk__env", json!({})), done()];
    let ran = run(builder, script).await;
    assert_eq!(ran.result.termination, TerminationReason::NaturalEnd);
    let results = ran.results();
    assert_eq!(results[0].model_text(), "it was called");
    let metadata = results[0].details.as_ref().expect("details");
    assert_eq!((&metadata["mcp.server"], &metadata["mcp.tool"]), (&json!("desk"), &json!("echo")));
    // A server is a foreign program: this process's environment is not passed on.
    let names = results[1].model_text();
    assert!(names.split(' ').any(|name| name == "PATH") && !names.contains("CARGO"), "{names}");
    manager.close().await;
}

#[tokio::test]
async fn a_refresh_adds_unannounced_tools() {
    let folder = tempfile::tempdir().expect("a folder");
    let tools = folder.path().join("tools.json");
    write_tools(&tools, &["echo"]);
    let manager =
        McpToolRegistryManager::connect(vec![server("desk", &tools, "plain")]).await.expect("connected");
    let registry = manager.registry();
    write_tools(&tools, &["echo", "late"]);
    // Less than a second becomes a second.
    manager.start_periodic_refresh(Duration::ZERO);
    let arrives = async {
        while registry.ids() != ["mcp__desk__echo", "mcp__desk__late"] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), arrives).await.expect("the new tool");
    manager.close().await;
}

#[tokio::test]
async fn unusable_servers_are_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let tools = folder.path().join("tools.json");
    write_tools(&tools, &[]);
    let gone = McpServerConnectionConfig::http("remote", "http://127.0.0.1:9/mcp");
    let error = McpToolRegistryManager::connect(vec![server("desk", &tools, "plain"), gone]).await.err();
    assert!(matches!(&error, Some(McpError::TransportError(why)) if why.contains("remote")), "{error:?}");
    let dead = McpToolRegistryManager::connect(vec![server("desk", &tools, "dead")]).await.err();
    assert!(matches!(&dead, Some(McpError::TransportError(why)) if why.contains("desk")), "{dead:?}");
    let twice = vec![server("desk", &tools, "plain"), server("desk", &tools, "plain")];
    let twice = McpToolRegistryManager::connect(twice).await.err();
    assert!(matches!(&twice, Some(McpError::InvalidConfig(_))), "{twice:?}");
    let secret = server("desk", &tools, "plain").with_value("KEY", "hunter2");
    assert!(!format!("{secret:?}").contains("hunter2"));
}

// --- Reminders ---

async fn reminded(rules: &str, script: Vec<ScriptedReply>) -> Ran {
    let config = ReminderRulesConfig::from_str(rules, Some("json")).expect("failed to parse reminder config");
    let rules = config.into_rules().expect("invalid rules");
    let agent_spec = AgentSpec::new("reminded").with_model("m").with_hook_filter("reminder");
    let builder = AgentRuntimeBuilder::new()
        .with_agent_spec(agent_spec)
        .with_tool("Bash", Arc::new(Say("Bash")))
        .with_tool("Edit", Arc::new(Say("Edit")))
        .with_plugin("reminder", Arc::new(ReminderPlugin::new(rules)) as Arc<dyn Plugin>);
    run(builder, script).await
}

fn rule(tool: &str, output: Value, target: &str, cooldown_turns: u32) -> String {
    let message = json!({"target": target, "content": "Mind the door.", "cooldown_turns": cooldown_turns});
    json!({"rules": [{"tool": tool, "output": output, "message": message}]}).to_string()
}

#[tokio::test]
async fn a_reminder_reaches_the_model_after_a_matching_call() {
    let rules = rule("Bash(command ~ 'rm *')", json!({"status": "success"}), "suffix_system", 0);
    let script = vec![
        say("Bash", json!({"command": "ls"})),
        say("Bash", json!({"command": "rm x"})),
        say("Bash", json!({"command": "rm x", "error": {}})),
        done(),
    ];
    let ran = reminded(&rules, script).await;
    let told: Vec<usize> = (0..4).map(|nth| ran.said(nth, "Mind the door.")).collect();
    assert_eq!(told, [0, 0, 1, 1], "after the call, where it stays, and not when it failed");
}

#[tokio::test]
async fn outputs_are_matched_by_text_and_fields() {
    let denied = json!({"status": "error", "content": "*permission denied*"});
    let script = || vec![say("Edit", json!({"file_path": "a.toml", "error": {"code": 403}})), done()];
    assert!(reminded(&rule("*", denied.clone(), "system", 0), script()).await.holds(1, "Mind the door."));
    let fields = |value| {
        let field = json!({"path": "error.code", "op": "exact", "value": value});
        json!({"status": "error", "content": {"fields": [field]}})
    };
    assert!(
        reminded(&rule("*", fields("403"), "conversation", 0), script()).await.holds(1, "Mind the door.")
    );
    assert!(
        !reminded(&rule("*", fields("404"), "conversation", 0), script()).await.holds(1, "Mind the door.")
    );
    let elsewhere = rule("Edit(file_path ~ '*.rs')", json!("any"), "system", 0);
    assert!(!reminded(&elsewhere, script()).await.holds(1, "Mind the door."));
}

#[tokio::test]
async fn a_cooldown_silences_a_rule() {
    let script = || (0..4).map(|_| say("Bash", json!({}))).chain([done()]).collect::<Vec<_>>();
    for (cooldown, expected) in [(0, [0, 1, 2, 3, 4]), (2, [0, 1, 1, 1, 2])] {
        let ran = reminded(&rule("*", json!("any"), "system", cooldown), script()).await;
        let told: Vec<usize> = (0..5).map(|nth| ran.said(nth, "Mind the door.")).collect();
        assert_eq!(told, expected, "after {cooldown}");
    }
}

#[test]
fn rules_come_from_files_and_broken_ones_are_named() {
    let file = tempfile::Builder::new().suffix(".json").tempfile().expect("a file");
    std::fs::write(file.path(), rule("*", json!("any"), "session", 3)).expect("written");
    let config = ReminderRulesConfig::from_file(file.path()).expect("failed to load reminder config");
    assert_eq!(config.into_rules().expect("rules")[0].name, "rule-0-*");
    let error = |rules: &str| ReminderRulesConfig::from_str(rules, Some("json")).err();
    let pattern = error(&rule("Bash(", json!("any"), "system", 0));
    assert!(matches!(pattern, Some(ReminderConfigError::InvalidPattern { .. })), "{pattern:?}");
    let target = error(&rule("*", json!("any"), "ceiling", 0));
    assert!(matches!(target, Some(ReminderConfigError::InvalidTarget { .. })), "{target:?}");
    let output = error(&rule("*", json!("some"), "system", 0));
    assert!(matches!(output, Some(ReminderConfigError::InvalidOutput { .. })), "{output:?}");
    let fields = json!({"content": {"fields": [{"path": "a", "op": "like", "value": "b"}]}});
    let op = error(&rule("*", fields, "system", 0));
    assert!(matches!(op, Some(ReminderConfigError::InvalidOp { .. })), "{op:?}");
}

// --- Surfaces ---

async fn rendered(plugin: A2uiPlugin, messages: Value) -> Ran {
    let agent_spec = AgentSpec::new("ui-agent").with_model("m").with_hook_filter("generative-ui");
    let builder = AgentRuntimeBuilder::new()
        .with_agent_spec(agent_spec)
        .with_plugin("generative-ui", Arc::new(plugin) as Arc<dyn Plugin>);
    run(builder, vec![say("render_a2ui", messages), done()]).await
}

fn surface(components: Value) -> Value {
    json!({"messages": [
        {"version": "v0.8", "createSurface": {"surfaceId": "order", "catalogId": "shop"}},
        {"version": "v0.8", "updateComponents": {"surfaceId": "order", "components": components}},
        {"version": "v0.8", "updateDataModel": {"surfaceId": "order", "path": "/", "value": {"name": "Ada"}}}
    ]})
}

#[tokio::test]
async fn a_surface_is_validated_and_emitted() {
    let components = json!([
        {"id": "root", "component": "Card", "child": "column"},
        {"id": "column", "component": "Column", "children": ["title", "name"]},
        {"id": "title", "component": "Text", "text": "New Order"},
        {"id": "name", "component": "TextField", "label": "Name", "value": {"path": "/name"}}
    ]);
    let ran = rendered(A2uiPlugin::with_catalog_id("shop"), surface(components.clone())).await;
    assert_eq!(ran.result.termination, TerminationReason::NaturalEnd);
    let result = ran.results()[0];
    assert!(result.is_success(), "{result:?}");
    assert_eq!(result.data["rendered"], true);
    assert_eq!(result.data["a2ui"], surface(components)["messages"]);
    assert!(ran.holds(0, "render_a2ui") && ran.holds(0, "shop"), "the tool and the catalogue");

    let gone = json!({"messages": [{"version": "v0.8", "deleteSurface": {"surfaceId": "order"}}]});
    assert!(
        rendered(A2uiPlugin::with_catalog_id("shop"), gone).await.results()[0].is_error(),
        "there is none"
    );
}

/// A button is for a user: the call waits for one, where the book's returns at once.
#[tokio::test]
async fn a_surface_with_a_button_waits() {
    let components = json!([
        {"id": "root", "component": "Column", "children": ["submit"]},
        {"id": "submit", "component": "Button", "label": "Submit",
         "action": {"event": {"name": "submit-order", "context": {"formId": "order"}}}}
    ]);
    let ran = rendered(A2uiPlugin::with_catalog_id("shop"), surface(components)).await;
    assert_eq!(ran.result.termination, TerminationReason::Suspended);
    assert!(ran.result.waiting[0].ticket.suspension.parameters["surface"]["id"] == "order");
}

#[tokio::test]
async fn invalid_surface_messages_are_reported_to_the_model() {
    let one = |message: Value| json!({ "messages": [message] });
    let create = json!({"surfaceId": "s", "catalogId": "shop"});
    for (args, words) in [
        (json!({}), "missing required field \"messages\""),
        (json!({"messages": []}), "messages array must not be empty"),
        (one(json!({"version": "v1", "createSurface": create})), "unsupported version"),
        (
            one(json!({"version": "v0.8", "createSurface": create, "deleteSurface": {"surfaceId": "s"}})),
            "multiple message types in one object",
        ),
        (surface(json!([{"component": "Text"}])), "components[0].id is required"),
        (surface(json!([{"id": "root"}])), "components[0].component is required"),
    ] {
        let ran = rendered(A2uiPlugin::with_catalog_id("shop"), args).await;
        let text = ran.results()[0].model_text();
        assert!(ran.results()[0].is_error() && text.contains(words), "{words}: {text}");
    }
}

#[tokio::test]
async fn surface_instructions_come_from_the_program() {
    let args = || json!({"messages": []});
    let examples = A2uiPlugin::with_catalog_and_examples("shop", "Example: a card with a title");
    let ran = rendered(examples, args()).await;
    assert!(ran.holds(0, "shop") && ran.holds(0, "Example: a card with a title"));
    let ran = rendered(A2uiPlugin::with_custom_instructions("Draw sparingly.".to_string()), args()).await;
    assert!(ran.holds(0, "Draw sparingly.") && !ran.holds(0, "catalogId\\\": \\\""));
}

// --- Handoff ---

/// Changes which agent drives the run.
struct Switch;

#[async_trait]
impl Tool for Switch {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("switch", "Switch", "Lets another one go on")
    }

    async fn execute(&self, args: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let mut cmd = StateCommand::new();
        match (args["request"].as_str(), args["activate"].as_str()) {
            (Some(agent), _) => cmd.update::<ActiveAgentKey>(request_handoff(agent)),
            (None, Some(agent)) => cmd.update::<ActiveAgentKey>(activate_handoff(agent)),
            (None, None) => cmd.update::<ActiveAgentKey>(clear_handoff()),
        }
        Ok(ToolOutput::with_command(ToolResult::text("switch", "ok"), cmd))
    }
}

#[tokio::test]
async fn a_run_continues_as_a_variant_and_returns() {
    let researcher = AgentOverlay {
        system_prompt: Some("You look things up.".into()),
        model: Some("large".into()),
        allowed_tools: Some(vec!["web_search".into(), "switch".into()]),
        excluded_tools: None,
    };
    let writer = AgentOverlay {
        system_prompt: Some("You write.".into()),
        model: None,
        allowed_tools: None,
        excluded_tools: Some(vec!["web_search".into()]),
    };
    let mut overlays = HashMap::new();
    overlays.insert("researcher".to_string(), researcher);
    overlays.insert("writer".to_string(), writer);
    let handoff = HandoffPlugin::new(overlays);
    assert!(handoff.overlay("researcher").is_some() && handoff.overlay("painter").is_none());
    let mut state = HandoffState { active_agent: Some("writer".into()), requested_agent: None };
    assert_eq!(HandoffPlugin::effective_agent(&state), Some(&"writer".to_string()));
    state.requested_agent = Some("researcher".into());
    assert_eq!(HandoffPlugin::effective_agent(&state), Some(&"researcher".to_string()));
    assert_eq!(HandoffPlugin::effective_agent(&HandoffState::default()), None);

    assert_eq!(HANDOFF_PLUGIN_ID, "agent_handoff");
    let spec = AgentSpec::new("base").with_model("m").with_system_prompt("You are the base.");
    let builder = AgentRuntimeBuilder::new()
        .with_plugin("agent_handoff", Arc::new(handoff))
        .with_agent_spec(spec)
        .with_model("large", model("large"))
        .with_tool("web_search", Arc::new(Say("web_search")))
        .with_tool("note", Arc::new(Say("note")))
        .with_tool("switch", Arc::new(Switch));
    let script = vec![
        say("switch", json!({"request": "researcher"})),
        say("switch", json!({"activate": "writer"})),
        say("switch", json!({})),
        done(),
    ];
    let ran = run(builder, script).await;
    assert_eq!(ran.result.steps, 4, "one run");
    // Variants may hand off too: the plugin provides the tool.
    let base = BTreeSet::from(["handoff", "note", "switch", "web_search"]);
    assert_eq!(ran.offered(0), base);
    assert!(ran.holds(0, "You are the base."));
    assert_eq!((ran.said(0, "You look things up."), ran.said(1, "You look things up.")), (0, 1));
    assert_eq!(ran.requests[1].upstream_model, "large");
    assert_eq!(ran.withheld(1), "Tools that cannot be used now: handoff, note.");
    assert!(ran.said(2, "You write.") == 1 && ran.requests[2].upstream_model == "m");
    assert!(ran.withheld(2).contains("cannot be used now: web_search."), "{}", ran.withheld(2));
    assert!(ran.withheld(2).contains("can be used again: note, handoff."), "{}", ran.withheld(2));
    assert_eq!(ran.said(3, "you are the agent `base` again"), 1);
    assert_eq!(ran.withheld(3), "Tools that can be used again: web_search.");
    assert!((1..4).all(|nth| ran.offered(nth) == base && ran.requests[nth].system == ran.requests[0].system));
    assert!(ran.requests[3].messages.iter().any(|message| message.text() == "go"), "the conversation stays");
}

// --- Deferred tools ---

/// Records the modes of tools before each inference.
struct Look(Arc<Mutex<Vec<DeferralStateValue>>>);

#[async_trait]
impl PhaseHook for Look {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let snapshot = ctx.snapshot();
        let state: &DeferralStateValue = snapshot.state::<DeferralState>().expect("DeferralState not found");
        self.0.lock().expect("not poisoned").push(state.clone());
        Ok(StateCommand::new())
    }
}

struct LookPlugin(Arc<Mutex<Vec<DeferralStateValue>>>);

impl Plugin for LookPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new("look", "looks")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_phase_hook("look", Phase::AfterInference, Look(Arc::clone(&self.0)))
    }
}

async fn deferred(config: DeferredToolsConfig, script: Vec<ScriptedReply>) -> (Ran, Vec<DeferralStateValue>) {
    let tools: [Arc<dyn Tool>; 3] =
        [Arc::new(Say("get_weather")), Arc::new(Say("debug_heap")), Arc::new(Say("debug_net"))];
    let seed_tools = tools.iter().map(|tool| tool.descriptor()).collect();
    let agent_spec = AgentSpec::new("deferred-agent")
        .with_model("m")
        .with_config::<DeferredToolsConfigKey>(config)
        .expect("a section")
        .with_hook_filter("ext-deferred-tools")
        .with_hook_filter("look");
    let seen = Arc::default();
    let mut builder = AgentRuntimeBuilder::new()
        .with_agent_spec(agent_spec)
        .with_plugin("look", Arc::new(LookPlugin(Arc::clone(&seen))))
        .with_plugin("ext-deferred-tools", Arc::new(DeferredToolsPlugin::new(seed_tools)) as Arc<dyn Plugin>);
    for tool in tools {
        builder = builder.with_tool(tool.descriptor().id, tool);
    }
    let ran = run(builder, script).await;
    let seen = seen.lock().expect("not poisoned").clone();
    (ran, seen)
}

fn rules() -> DeferredToolsConfig {
    DeferredToolsConfig {
        enabled: Some(true),
        rules: vec![
            DeferralRule { tool: "get_weather".into(), mode: ToolLoadMode::Eager },
            DeferralRule { tool: "debug_*".into(), mode: ToolLoadMode::Deferred },
        ],
        default_mode: ToolLoadMode::Deferred,
        ..Default::default()
    }
}

#[tokio::test]
async fn deferred_tools_are_listed_searched_and_then_offered() {
    let script =
        vec![say("ToolSearch", json!({"query": "select:debug_heap"})), say("debug_heap", json!({})), done()];
    let (ran, seen) = deferred(rules(), script).await;
    assert_eq!(ran.offered(0), BTreeSet::from(["ToolSearch", "get_weather"]));
    assert!(ran.holds(0, "debug_heap") && ran.holds(0, "debug_net"), "their names are listed");
    let found = ran.results()[0].model_text();
    assert!(found.contains("<functions>") && found.contains("debug_heap") && !found.contains("debug_net"));
    assert_eq!(ran.offered(1), ran.offered(0), "the result brings the tool, and the list stays");
    assert!(ran.results()[1].is_success());
    let mode = |nth: usize, tool: &str| seen[nth].modes[tool];
    assert_eq!((mode(0, "debug_heap"), mode(1, "debug_heap")), (ToolLoadMode::Deferred, ToolLoadMode::Eager));
    assert_eq!((mode(2, "get_weather"), mode(2, "debug_net")), (ToolLoadMode::Eager, ToolLoadMode::Deferred));
}

#[tokio::test]
async fn an_unused_tool_is_deferred_again() {
    let config = DeferredToolsConfig {
        disc_beta: DiscBetaParams { omega: 0.95, n0: 5.0, defer_after: 2, thresh_mult: 0.5, gamma: 2.0 },
        beta_overhead: 1136.0,
        ..rules()
    };
    let mut script = vec![say("ToolSearch", json!({"query": "+debug heap"}))];
    script.extend((0..5).map(|_| say("get_weather", json!({}))));
    script.push(done());
    let (ran, seen) = deferred(config, script).await;
    let mode = |nth: usize| seen[nth].modes["debug_heap"];
    assert_eq!((mode(1), mode(6)), (ToolLoadMode::Eager, ToolLoadMode::Deferred));
    assert_eq!(ran.offered(6), ran.offered(0));
}

#[tokio::test]
async fn deferring_turns_on_only_where_it_saves() {
    let says = |enabled, beta_overhead| DeferredToolsConfig { enabled, beta_overhead, ..rules() };
    let defaults = (DeferredToolsConfig::default().enabled, DeferredToolsConfig::default().beta_overhead);
    assert_eq!(defaults, (None, 1136.0));
    for (config, is_deferred) in [
        (says(None, 1136.0), false),
        (says(None, 10.0), true),
        (says(Some(true), 1e6), true),
        (says(Some(false), 0.0), false),
    ] {
        let (ran, _) = deferred(config.clone(), vec![done()]).await;
        assert_eq!(!ran.offered(0).contains("debug_heap"), is_deferred, "{config:?}");
    }
}
