//! Tools, plugins, keys and whole runs under test, without a model.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use aye::contract::StateError;
use aye::contract::content::ContentBlock;
use aye::contract::event::AgentEvent;
use aye::contract::event_sink::VecEventSink;
use aye::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor};
use aye::contract::identity::{RunIdentity, RunOrigin};
use aye::contract::ids::DecisionId;
use aye::contract::inference::{StopReason, StreamResult};
use aye::contract::lifecycle::TerminationReason;
use aye::contract::message::{Message, ToolCall};
use aye::contract::suspension::{ResumeDecisionAction, ToolCallResume};
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::engine::MockLlmExecutor;
use aye::loop_runner::{AgentLoopParams, LoopStatePlugin, build_agent_env, run_agent_loop};
use aye::phase::PhaseRuntime;
use aye::plugins::{Plugin, PluginDescriptor, PluginRegistrar};
use aye::registry::{AgentResolver, ResolvedAgent};
use aye::state::{MergeStrategy, StateCommand, StateKey, StateKeyOptions, StateStore};
use aye::{CancellationToken, RuntimeError};
use serde_json::{Value, json};

struct Count;

impl StateKey for Count {
    const KEY: &'static str = "test.count";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = usize;
    type Update = usize;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value += update;
    }
}

struct CountPlugin;

impl Plugin for CountPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "count" }
    }

    fn register(&self, r: &mut PluginRegistrar) -> Result<(), StateError> {
        r.register_key::<Count>(StateKeyOptions::default())?;
        Ok(())
    }
}

struct CountTool {
    by: usize,
}

#[async_trait]
impl Tool for CountTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("count", "Count", "Counts up")
    }

    async fn execute(&self, args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        if args.get("fail").is_some() {
            return Err(ToolError::InvalidArguments("missing 'name'".into()));
        }
        let mut cmd = StateCommand::new();
        cmd.update::<Count>(self.by);
        Ok(ToolOutput::with_command(ToolResult::success("count", json!({"by": self.by})), cmd))
    }
}

#[tokio::test]
async fn a_tool_is_tested_alone() {
    let ctx = ToolCallContext::test_default();
    let output = CountTool { by: 5 }.execute(json!({}), &ctx).await.expect("an output");
    assert!(output.result.is_success());
    assert_eq!(output.result.data["by"], 5);
    assert!(!output.command.is_empty());
    let err = CountTool { by: 5 }.execute(json!({"fail": 1}), &ctx).await.expect_err("an error");
    assert!(matches!(err, ToolError::InvalidArguments(_)));
}

#[test]
fn a_plugin_is_tested_alone() {
    let store = StateStore::new();
    store.install_plugin(CountPlugin).expect("installed");
    assert_eq!(store.read::<Count>().unwrap_or_default(), 0);
    assert!(store.install_plugin(CountPlugin).is_err(), "twice is too often");
    let mut cmd = StateCommand::new();
    cmd.update::<Count>(2);
    store.commit(cmd).expect("committed");
    assert_eq!(store.read::<Count>(), Some(2));
}

struct Keep;

impl Plugin for Keep {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "keep" }
    }

    fn register(&self, registrar: &mut aye::plugins::registry::PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<Count>(StateKeyOptions {
            retain_on_uninstall: true,
            ..StateKeyOptions::default()
        })
    }
}

#[test]
fn a_plugin_is_uninstalled() {
    let store = StateStore::new();
    store.install_plugin(Keep).expect("installed");
    let mut cmd = StateCommand::new();
    cmd.update::<Count>(2);
    store.commit(cmd).expect("committed");
    store.uninstall_plugin::<Keep>().expect("the plugin is uninstalled");
    assert_eq!(store.read::<Count>(), Some(2), "it is retained");
    let refused = store.install_plugin(CountPlugin);
    assert!(refused.is_err(), "another plugin's key under other options is another key");
    store.install_plugin(Keep).expect("installed again");
}

struct Script {
    responses: Mutex<Vec<StreamResult>>,
}

#[async_trait]
impl LlmExecutor for Script {
    async fn execute(&self, _: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        let mut responses = self.responses.lock().expect("not poisoned");
        Ok(if responses.is_empty() { text_step("Done.") } else { responses.remove(0) })
    }

    fn name(&self) -> &'static str {
        "script"
    }
}

struct FixedResolver {
    agent: ResolvedAgent,
}

impl AgentResolver for FixedResolver {
    fn resolve(&self, _agent_id: &str) -> Result<ResolvedAgent, RuntimeError> {
        let mut agent = self.agent.clone();
        agent.env = build_agent_env(&[], &agent)?;
        Ok(agent)
    }
}

fn tool_step(calls: Vec<ToolCall>) -> StreamResult {
    StreamResult {
        content: vec![],
        tool_calls: calls,
        usage: None,
        stop_reason: Some(StopReason::ToolUse),
        has_incomplete_tool_calls: false,
    }
}

fn text_step(text: &str) -> StreamResult {
    StreamResult {
        content: vec![ContentBlock::text(text)],
        tool_calls: vec![],
        usage: None,
        stop_reason: Some(StopReason::EndTurn),
        has_incomplete_tool_calls: false,
    }
}

fn identity() -> RunIdentity {
    RunIdentity::new("thread-test".into(), None, "run-test".into(), None, "agent".into(), RunOrigin::User)
}

fn agent(responses: Vec<StreamResult>) -> FixedResolver {
    let llm = Arc::new(Script { responses: Mutex::new(responses) });
    let agent =
        ResolvedAgent::new("test", "model", "You count.", llm).with_tool(Arc::new(CountTool { by: 3 }));
    FixedResolver { agent }
}

fn params<'a>(
    resolver: &'a FixedResolver,
    runtime: &'a PhaseRuntime,
    sink: &Arc<VecEventSink>,
) -> AgentLoopParams<'a> {
    AgentLoopParams {
        resolver,
        agent_id: "test",
        runtime,
        sink: sink.clone(),
        checkpoint_store: None,
        messages: vec![Message::user("How many?")],
        run_identity: identity(),
        cancellation_token: None,
        decision_rx: None,
        overrides: None,
        frontend_tools: Vec::new(),
    }
}

#[tokio::test]
async fn a_whole_run_is_tested_with_a_script() {
    let resolver = agent(vec![tool_step(vec![ToolCall::new("c1", "count", json!({}))]), text_step("Three.")]);
    let store = StateStore::new();
    let runtime = PhaseRuntime::new(store.clone()).expect("an engine");
    store.install_plugin(LoopStatePlugin).expect("installed");
    store.install_plugin(CountPlugin).expect("installed");
    let sink = Arc::new(VecEventSink::new());
    let result = run_agent_loop(params(&resolver, &runtime, &sink)).await.expect("a run");
    assert_eq!((result.response.as_str(), result.steps), ("Three.", 2));
    assert_eq!((result.thread_id.as_str(), result.run_id.as_str()), ("thread-test", "run-test"));
    assert_eq!(store.read::<Count>(), Some(3), "the state can be inspected afterwards");

    let events = sink.take();
    assert!(matches!(events.first(), Some(AgentEvent::RunStart { .. })));
    let Some(AgentEvent::RunFinish { termination, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!(*termination, TerminationReason::NaturalEnd);
    let count = |is: fn(&AgentEvent) -> bool| events.iter().filter(|event| is(event)).count();
    let starts = count(|e| matches!(e, AgentEvent::StepStart { .. }));
    assert_eq!((starts, count(|e| matches!(e, AgentEvent::StepEnd))), (2, 2));
    let start = events.iter().position(|e| matches!(e, AgentEvent::ToolCallStart { .. })).expect("a start");
    let done = events.iter().position(|e| matches!(e, AgentEvent::ToolCallDone { .. })).expect("a result");
    assert!(start < done);
}

#[tokio::test]
async fn a_reused_engine_forgets_run_state() {
    let store = StateStore::new();
    let runtime = PhaseRuntime::new(store.clone()).expect("an engine");
    store.install_plugin(CountPlugin).expect("installed");
    let calls = || tool_step(vec![ToolCall::new("c1", "count", json!({}))]);
    for run in ["run-1", "run-2"] {
        let resolver = agent(vec![calls(), text_step("Three.")]);
        let identity = RunIdentity { run_id: run.into(), ..identity() };
        let sink = Arc::default();
        let params = AgentLoopParams { run_identity: identity, ..params(&resolver, &runtime, &sink) };
        run_agent_loop(params).await.expect("a run");
        assert_eq!(store.read::<Count>(), Some(3), "{run}");
    }
}

#[tokio::test]
async fn the_mock_answers() {
    let llm = Arc::new(MockLlmExecutor::new().with_responses(vec!["Hello!".into()]));
    let resolver = FixedResolver { agent: ResolvedAgent::new("test", "model", "system prompt", llm) };
    let runtime = PhaseRuntime::new(StateStore::new()).expect("an engine");
    let result = run_agent_loop(params(&resolver, &runtime, &Arc::default())).await.expect("a run");
    assert_eq!(result.response, "Hello!");
}

#[tokio::test]
async fn a_client_tool_waits_for_its_result() {
    let resolver =
        agent(vec![tool_step(vec![ToolCall::new("c1", "pick_file", json!({}))]), text_step("Got it.")]);
    let runtime = PhaseRuntime::new(StateStore::new()).expect("an engine");
    let sink = Arc::new(VecEventSink::new());
    let tools = || vec![ToolDescriptor::new("pick_file", "Pick", "Lets the person pick a file")];

    let alone = AgentLoopParams { frontend_tools: tools(), ..params(&resolver, &runtime, &sink) };
    let result = run_agent_loop(alone).await.expect("a run");
    assert_eq!(result.termination, TerminationReason::Suspended);
    assert_eq!(result.waiting[0].ticket.pending.name, "pick_file");

    let resolver =
        agent(vec![tool_step(vec![ToolCall::new("c1", "pick_file", json!({}))]), text_step("Got it.")]);
    let runtime = PhaseRuntime::new(StateStore::new()).expect("an engine");
    let (answers, decision_rx) = tokio::sync::mpsc::unbounded_channel();
    let picked = ToolCallResume {
        decision_id: DecisionId::fresh(),
        action: ResumeDecisionAction::Resume,
        result: json!({"path": "/tmp/x"}),
        reason: None,
        arguments: None,
        profile: None,
        updated_at: 0,
    };
    answers.send(("c1".into(), picked)).expect("sent");
    let sink = Arc::new(VecEventSink::new());
    let answered = AgentLoopParams {
        frontend_tools: tools(),
        decision_rx: Some(decision_rx),
        ..params(&resolver, &runtime, &sink)
    };
    let result = run_agent_loop(answered).await.expect("a run");
    assert_eq!((result.response.as_str(), result.termination), ("Got it.", TerminationReason::NaturalEnd));
    let done = sink.take().into_iter().find_map(|event| match event {
        AgentEvent::ToolCallDone { result, .. } if result.is_success() => Some(result),
        _ => None,
    });
    assert_eq!(done.expect("a result").data, json!({"path": "/tmp/x"}));
}

#[tokio::test]
async fn a_waiting_loop_is_cancelled() {
    let resolver = agent(vec![tool_step(vec![ToolCall::new("c1", "pick_file", json!({}))])]);
    let runtime = PhaseRuntime::new(StateStore::new()).expect("an engine");
    let sink = Arc::new(VecEventSink::new());
    let (_answers, decision_rx) = tokio::sync::mpsc::unbounded_channel();
    let token = CancellationToken::new();
    let waiting = AgentLoopParams {
        frontend_tools: vec![ToolDescriptor::new("pick_file", "Pick", "Lets the person pick a file")],
        decision_rx: Some(decision_rx),
        cancellation_token: Some(token.clone()),
        ..params(&resolver, &runtime, &sink)
    };
    let (result, ()) = tokio::join!(run_agent_loop(waiting), async {
        while !sink.events().iter().any(|event| matches!(event, AgentEvent::RunFinish { .. })) {
            tokio::task::yield_now().await;
        }
        token.cancel();
    });
    let result = result.expect("a result");
    assert_eq!((result.termination, result.waiting.len()), (TerminationReason::Cancelled, 0));
}
