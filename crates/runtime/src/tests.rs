mod children;
mod edited;
mod growth;
mod handoff;
mod limits;
mod mailbox;
mod on_store;
mod prepared;
mod profile;
mod published;
mod queue;
mod resolving;
mod shared_state;
mod stopping;
mod waking;
mod window;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;
use aye_core::contract::clock::SystemClock;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::VecEventSink;
use aye_core::contract::executor::LlmExecutor;
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, ToolExecutionMode};
use aye_core::contract::ids::SuspensionId;
use aye_core::contract::inference::StreamResult;
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::message::{Message, Role, ToolCall};
use aye_core::contract::presence::Sign;
use aye_core::contract::record::DecideOutcome;
use aye_core::contract::record::SuspensionStatus;
use aye_core::contract::spec::{AgentSpec, ModelEntry};
use aye_core::contract::suspension::{
    ACTION_PERMISSION, PendingToolCall, ResumeDecisionAction, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::suspension::{Actor, ToolCallResume};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_core::contract::tool_intercept::{ToolInterceptAction, ToolInterceptPayload};
use aye_core::phase::{PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar};
use aye_core::state::{Phase, StateCommand, StateError};
use aye_store_sqlite::{Store, SuspensionFilter};

/// A scripted model that records its requests.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Result<StreamResult, InferenceExecutionError>>>,
    requests: Mutex<Vec<InferenceRequest>>,
}

impl Script {
    fn of(answers: impl IntoIterator<Item = StreamResult>) -> Arc<Self> {
        let script = Self::default();
        script.answers.lock().unwrap().extend(answers.into_iter().map(Ok));
        Arc::new(script)
    }

    /// The result of a call in the last request.
    fn result_of(&self, call: &str) -> String {
        let requests = self.requests.lock().unwrap();
        let messages = &requests.last().unwrap().messages;
        messages
            .iter()
            .find(|m| m.tool_call_id.as_deref() == Some(call))
            .map(|message| message.text())
            .unwrap_or_default()
    }
}

#[async_trait]
impl LlmExecutor for Script {
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        self.requests.lock().unwrap().push(request);
        self.answers.lock().unwrap().pop_front().unwrap_or_else(|| Ok(text("Done.")))
    }

    fn name(&self) -> &'static str {
        "script"
    }
}

fn text(text: &str) -> StreamResult {
    StreamResult { content: vec![ContentBlock::text(text)], ..StreamResult::default() }
}

fn calls(calls: &[(&str, &str)]) -> StreamResult {
    StreamResult {
        tool_calls: calls.iter().map(|(id, tool)| ToolCall::new(*id, *tool, json!({"id": id}))).collect(),
        ..StreamResult::default()
    }
}

/// Counts its executions, and hangs forever if configured to.
struct Counter {
    name: &'static str,
    class: ToolClass,
    runs: Arc<AtomicU32>,
    hangs: Option<Arc<AtomicBool>>,
}

#[async_trait]
impl Tool for Counter {
    fn descriptor(&self) -> ToolDescriptor {
        let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}});
        ToolDescriptor::new(self.name, self.name, "counts").with_class(self.class).with_parameters(schema)
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        match args.get("forbidden") {
            Some(_) => Err(ToolError::InvalidArguments("`forbidden` is".into())),
            None => Ok(()),
        }
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        if self.hangs.as_ref().is_some_and(|hangs| hangs.load(Ordering::SeqCst)) {
            ctx.stream_output("half way").await;
            std::future::pending::<()>().await;
        }
        Ok(ToolResult::success(self.name, json!({"ran": args})).into())
    }
}

/// Asks about each call of tools named `ask*`, and denies `deny*`.
struct Gatekeeper;
struct GateHook;

#[async_trait]
impl PhaseHook for GateHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let tool = ctx.tool.as_ref().expect("a gate has a call");
        if tool.call.arguments["id"] == "evil" {
            let result = ToolResult::error(&tool.call.name, "evil is denied");
            command.schedule_action::<ToolInterceptAction>(ToolInterceptPayload::SetResult(result))?;
        } else if tool.call.name.starts_with("deny") {
            let result = ToolResult::error(&tool.call.name, "denied by rule deny");
            command.schedule_action::<ToolInterceptAction>(ToolInterceptPayload::SetResult(result))?;
        }
        if tool.call.name.starts_with("ask") && tool.resume.is_none() {
            command.schedule_action::<ToolInterceptAction>(ToolInterceptPayload::Suspend(SuspendTicket {
                suspension: Suspension {
                    id: format!("perm_{}", tool.call.id).into(),
                    action: ACTION_PERMISSION.into(),
                    message: "run it?".into(),
                    parameters: json!({}),
                    response_schema: None,
                    expires_at: match tool.call.name.as_str() {
                        "ask_soon" => Some(SystemClock.now_ms() + 50),
                        "ask_at_1000" => Some(1000),
                        _ => None,
                    },
                },
                pending: PendingToolCall {
                    id: tool.call.id.as_str().into(),
                    name: tool.call.name.clone(),
                    arguments: tool.call.arguments.clone(),
                },
                resume_mode: ToolCallResumeMode::ReplayToolCall,
            }))?;
        }
        Ok(command)
    }
}

impl Plugin for Gatekeeper {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "gatekeeper" }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_phase_hook("gatekeeper", Phase::BeforeToolExecute, GateHook)
    }
}

struct House {
    store: Store,
    runs: Arc<AtomicU32>,
    /// Whether the hanging tools hang.
    hangs: Arc<AtomicBool>,
    mode: ToolExecutionMode,
}

impl House {
    fn new() -> Self {
        Self {
            store: Store::in_memory().unwrap(),
            runs: Arc::default(),
            hangs: Arc::new(AtomicBool::new(true)),
            mode: ToolExecutionMode::Sequential,
        }
    }

    /// A runtime as in a new process.
    fn runtime(&self, script: &Arc<Script>) -> AgentRuntime {
        self.builder(script).build().unwrap()
    }

    fn builder(&self, script: &Arc<Script>) -> AgentRuntimeBuilder {
        let script: Arc<Script> = Arc::clone(script);
        let tool = |name, class, hangs| -> Arc<dyn Tool> {
            let hangs = Some(Arc::clone(&self.hangs)).filter(|_| hangs);
            Arc::new(Counter { name, class, hangs, runs: Arc::clone(&self.runs) })
        };
        AgentRuntimeBuilder::new()
            .with_store(self.store.clone())
            .with_agent_spec(
                AgentSpec::new("a")
                    .with_model("m")
                    .with_system_prompt("Be brief.")
                    .with_tool_execution(self.mode),
            )
            .with_model("m", ModelEntry { provider: "p".into(), model_name: "m".into() })
            .with_provider("p", script)
            .with_tool("free", tool("free", ToolClass::Opaque, false))
            .with_tool("ask", tool("ask", ToolClass::Opaque, false))
            .with_tool("ask_soon", tool("ask_soon", ToolClass::Opaque, false))
            .with_tool("ask_at_1000", tool("ask_at_1000", ToolClass::Opaque, false))
            .with_tool("deny", tool("deny", ToolClass::Opaque, false))
            .with_tool("hang", tool("hang", ToolClass::Opaque, true))
            .with_tool("ask_hang", tool("ask_hang", ToolClass::Opaque, true))
            .with_tool("hang_pure", tool("hang_pure", ToolClass::Pure, true))
            .with_plugin("gatekeeper", Arc::new(Gatekeeper))
            .dead()
    }

    fn executed(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

impl AgentRuntimeBuilder {
    /// Others take its process for dead from the start, whatever is left of it in this one.
    fn dead(mut self) -> Self {
        self.is_dead = true;
        self
    }

    fn alive(mut self) -> Self {
        self.is_dead = false;
        self
    }
}

#[derive(Debug)]
struct Silent;

impl Sign for Silent {}

pub(crate) fn dead(announced: Announced) -> Announced {
    Announced::new(announced.owner.clone(), Box::new(Silent))
}

fn actor() -> Actor {
    Actor { user: "me".into(), channel: "test".into(), pid: 1, ..Actor::default() }
}

fn answer(action: ResumeDecisionAction) -> ToolCallResume {
    ToolCallResume {
        decision_id: uuid::Uuid::now_v7().to_string().into(),
        action,
        result: Value::Null,
        reason: None,
        arguments: None,
        profile: None,
        updated_at: 1,
    }
}

fn names(events: &[AgentEvent]) -> Vec<String> {
    events
        .iter()
        .map(|event| {
            let value = serde_json::to_value(event).unwrap();
            let name = value["event_type"].as_str().unwrap().to_owned();
            match value.get("outcome").and_then(Value::as_str) {
                Some(outcome) => format!("{name}({outcome})"),
                None => match value.pointer("/termination/type").and_then(Value::as_str) {
                    Some(kind) => format!("{name}({kind})"),
                    None => name,
                },
            }
        })
        .collect()
}

async fn send(runtime: &AgentRuntime, message: &str) -> (AgentRunResult, Vec<AgentEvent>) {
    let sink = Arc::new(VecEventSink::new());
    let result = runtime.run(RunRequest::new("t", vec![Message::user(message)]), sink.clone()).await.unwrap();
    (result, sink.take())
}

async fn wake(runtime: &AgentRuntime, unknown: UnknownPolicy) -> (AgentRunResult, Vec<AgentEvent>) {
    let sink = Arc::new(VecEventSink::new());
    let result = runtime.resume(&"t".into(), sink.clone(), unknown).await.unwrap();
    (result, sink.take())
}

#[tokio::test]
async fn a_text_answer_has_the_documented_events() {
    let house = House::new();
    let runtime = house.runtime(&Script::of([text("Hello!")]));
    let (result, events) = send(&runtime, "hi").await;
    assert_eq!(result.response, "Hello!");
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    assert_eq!(
        names(&events),
        [
            "run_start",
            "step_start",
            "text_delta",
            "inference_complete",
            "step_end",
            "run_finish(natural_end)"
        ]
    );
    let stored = house.store.messages(&"t".into()).await.unwrap();
    let roles: Vec<_> = stored.iter().map(|m| m.message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant]);
}

#[tokio::test]
async fn one_tool_call_has_the_documented_events() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "free")]), text("Did it.")]);
    let (_, events) = send(&house.runtime(&script), "go").await;
    assert_eq!(
        names(&events),
        [
            "run_start",
            "step_start",
            "tool_call_start",
            "tool_call_delta",
            "tool_call_ready",
            "inference_complete",
            "tool_call_done(succeeded)",
            "step_end",
            "step_start",
            "text_delta",
            "inference_complete",
            "step_end",
            "run_finish(natural_end)"
        ]
    );
    assert_eq!(house.executed(), 1);
    assert!(script.result_of("c1").contains("ran"));
}

#[tokio::test]
async fn an_approval_after_a_restart_runs_the_call_once() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("It is noon.")]);
    let (result, events) = send(&house.runtime(&script), "go").await;
    assert_eq!(result.termination, TerminationReason::Suspended);
    assert_eq!(house.executed(), 0);
    assert_eq!(names(&events)[6..], ["tool_call_done(suspended)", "step_end", "run_finish(suspended)"]);
    let id = result.waiting[0].id.clone();
    assert_eq!(id.as_str(), "perm_c1");

    let runtime = house.runtime(&script);
    let (again, events) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!(again.waiting[0].id, id, "the same question");
    assert!(events.is_empty(), "a waiting run emits nothing: {events:?}");

    let yes = answer(ResumeDecisionAction::Resume);
    let outcome = runtime.decide(&id, yes.clone(), actor()).await.unwrap();
    assert!(matches!(outcome, DecideOutcome::Accepted(_)));
    let outcome = runtime.decide(&id, yes, actor()).await.unwrap();
    assert!(matches!(outcome, DecideOutcome::Repeated(_)));
    let outcome = runtime.decide(&id, answer(ResumeDecisionAction::Cancel), actor()).await.unwrap();
    assert!(matches!(outcome, DecideOutcome::AlreadyDecided(_)));

    let runtime = house.runtime(&script);
    let (result, events) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!(house.executed(), 1);
    assert_eq!(result.response, "It is noon.");
    assert_eq!(
        names(&events)[..4],
        ["run_start", "tool_call_resumed", "tool_call_done(succeeded)", "step_start"]
    );
    assert!(matches!(
        runtime.resume(&"t".into(), Arc::new(VecEventSink::new()), UnknownPolicy::Ask).await,
        Err(RuntimeError::NothingToResume { .. })
    ));
    assert_eq!(house.executed(), 1);
}

#[tokio::test]
async fn the_model_reads_the_reason_of_a_denial_and_the_run_continues() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("Fine.")]);
    let runtime = house.runtime(&script);
    let (result, _) = send(&runtime, "go").await;
    let no = ToolCallResume { reason: Some("use make".into()), ..answer(ResumeDecisionAction::Cancel) };
    runtime.decide(&result.waiting[0].id, no, actor()).await.unwrap();
    let (result, events) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    assert_eq!(names(&events)[2], "tool_call_done(cancelled)");
    let reported = script.result_of("c1");
    assert!(reported.contains("not run") && reported.contains("use make"), "{reported}");
    assert_eq!(house.executed(), 0);
}

#[tokio::test]
async fn siblings_are_decided_in_any_order_and_free_calls_run_meanwhile() {
    for mode in [ToolExecutionMode::ParallelStreaming, ToolExecutionMode::ParallelBatchApproval] {
        let house = House { mode, ..House::new() };
        let script = Script::of([calls(&[("a", "ask"), ("b", "free"), ("c", "ask")])]);
        let runtime = house.runtime(&script);
        let (result, _) = send(&runtime, "go").await;
        assert_eq!(house.executed(), 1, "{mode:?}");
        assert_eq!(result.waiting.len(), 2);
        let yes = answer(ResumeDecisionAction::Resume);
        runtime.decide(&"perm_c".into(), yes, actor()).await.unwrap();
        let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
        let expected = if mode == ToolExecutionMode::ParallelStreaming { 2 } else { 1 };
        assert_eq!(house.executed(), expected, "{mode:?}");
        assert_eq!(result.waiting.len(), 1);
        runtime.decide(&"perm_a".into(), answer(ResumeDecisionAction::Cancel), actor()).await.unwrap();
        let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
        assert_eq!(result.termination, TerminationReason::NaturalEnd);
        assert_eq!(house.executed(), 2, "{mode:?}");
        let stored = house.store.messages(&"t".into()).await.unwrap();
        let order: Vec<_> = stored.iter().filter_map(|m| m.message.tool_call_id.clone()).collect();
        assert_eq!(order, ["a", "b", "c"], "results are in call order");
    }
}

#[tokio::test]
async fn a_new_message_closes_pending_questions() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask"), ("c2", "free")]), text("Another day.")]);
    let runtime = house.runtime(&script);
    let (result, _) = send(&runtime, "go").await;
    let (next, events) = send(&runtime, "never mind").await;
    assert_eq!(next.response, "Another day.");
    assert_eq!(names(&events)[0], "run_finish(cancelled)");
    assert!(script.result_of("c1").contains("new message"));
    assert!(script.result_of("c2").contains("Not run"));
    let late =
        runtime.decide(&result.waiting[0].id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    assert!(matches!(late, DecideOutcome::Closed(_)), "{late:?}");
    assert_eq!(house.executed(), 0);
}

struct Paging;

#[async_trait]
impl Tool for Paging {
    fn descriptor(&self) -> ToolDescriptor {
        let properties = json!({"id": {"type": "string"}, "count": {"type": "integer"}});
        let schema = json!({"type": "object", "properties": properties});
        ToolDescriptor::new("free_page", "Page", "pages").with_parameters(schema)
    }

    async fn execute(&self, args: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::text("free_page", args.to_string()).into())
    }
}

#[tokio::test]
async fn a_call_is_read_as_the_model_can_only_have_meant_it() {
    let house = House::new();
    let mut asked = calls(&[("c1", "Free_Page"), ("c2", "free_page")]);
    for call in &mut asked.tool_calls {
        call.arguments = json!({"id": "7", "count": "7"});
    }
    let script = Script::of([asked, text("Fine.")]);
    let runtime = house.builder(&script).with_tool("free_page", Arc::new(Paging)).build().unwrap();
    let (_, events) = send(&runtime, "go").await;
    for id in ["c1", "c2"] {
        assert_eq!(script.result_of(id), json!({"id": "7", "count": 7}).to_string());
    }
    let ready = events.iter().filter_map(|event| match event {
        AgentEvent::ToolCallReady { name, arguments, .. } => Some((name.as_str(), &arguments["count"])),
        _ => None,
    });
    assert_eq!(ready.collect::<Vec<_>>(), [("free_page", &json!(7)); 2], "front ends see the same");
    let stored = house.store.messages(&"t".into()).await.unwrap();
    let names = stored.iter().flat_map(|m| &m.message.tool_calls).map(|call| call.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["free_page", "free_page"]);
}

#[tokio::test]
async fn unknown_tools_denied_calls_and_bad_arguments_become_results() {
    let house = House::new();
    let mut bad = calls(&[("c1", "Bassh"), ("c2", "deny"), ("c3", "free")]);
    bad.tool_calls[2].invalid = Some("they end in the middle".into());
    let script = Script::of([bad, text("I see.")]);
    let (result, _) = send(&house.runtime(&script), "go").await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    assert!(script.result_of("c1").contains("unknown tool `Bassh`"));
    assert!(script.result_of("c2").contains("denied by rule"));
    assert!(script.result_of("c3").contains("middle"));
    assert_eq!(house.executed(), 0);
}

#[tokio::test]
async fn a_reused_call_id_never_binds_to_an_old_result() {
    let house = House::new();
    let script = Script::of([calls(&[("x", "free"), ("x", "free")]), calls(&[("x", "free")])]);
    let (_, events) = send(&house.runtime(&script), "go").await;
    let mut ids: Vec<_> = events
        .iter()
        .filter_map(|e| match e {
            AgentEvent::ToolCallDone { id, .. } => Some(id.clone()),
            _ => None,
        })
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert_eq!(house.executed(), 3);
}

#[tokio::test]
async fn a_failed_inference_keeps_the_users_message() {
    let house = House::new();
    let script = Script::default();
    script.answers.lock().unwrap().push_back(Err(InferenceExecutionError::Unauthorized("no key".into())));
    let script = Arc::new(script);
    let (result, events) = send(&house.runtime(&script), "hi").await;
    assert_eq!(result.termination, TerminationReason::Error("no key".into()));
    assert_eq!(result.error_code.as_deref(), Some("unauthorized"));
    assert_eq!(names(&events), ["run_start", "step_start", "error", "step_end", "run_finish(error)"]);
    assert_eq!(house.store.messages(&"t".into()).await.unwrap().len(), 1);
}

/// Starts a run, waits for the named event, and drops the run as a killed process would.
async fn kill_at(house: &House, script: &Arc<Script>, event: &str) {
    let runtime = house.runtime(script);
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let sink = Arc::new(aye_core::contract::event_sink::ChannelEventSink(sender));
    let request = RunRequest::new("t", vec![Message::user("go")]);
    let run = tokio::spawn(async move { runtime.run(request, sink).await });
    while let Some(got) = events.recv().await {
        if names(&[got])[0] == event {
            break;
        }
    }
    run.abort();
    let _ = run.await;
}

#[tokio::test]
async fn an_interrupted_opaque_call_is_asked_about_and_never_repeated() {
    for (choice, executed, reported) in
        [("skip", 1, "may have run"), ("done", 1, "marked it as done"), ("rerun", 2, "interrupted this call")]
    {
        let house = House::new();
        let script = Script::of([calls(&[("c1", "hang")]), text("ok")]);
        kill_at(&house, &script, "tool_call_stream_delta").await;
        let runtime = house.runtime(&script);
        let (result, events) = wake(&runtime, UnknownPolicy::Ask).await;
        assert_eq!(house.executed(), 1);
        assert_eq!(result.termination, TerminationReason::Suspended);
        assert!(names(&events).contains(&"tool_call_done(suspended)".to_owned()));
        let question = &result.waiting[0];
        assert_eq!(question.ticket.suspension.action, "tool:UnknownOutcome");
        let wrong =
            ToolCallResume { result: json!({"choice": "maybe"}), ..answer(ResumeDecisionAction::Resume) };
        assert!(matches!(
            runtime.decide(&question.id, wrong, actor()).await,
            Err(DecideError::Schema { .. })
        ));
        let resume =
            ToolCallResume { result: json!({"choice": choice}), ..answer(ResumeDecisionAction::Resume) };
        runtime.decide(&question.id, resume, actor()).await.unwrap();
        if choice == "rerun" {
            let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
            let sink = Arc::new(aye_core::contract::event_sink::ChannelEventSink(sender));
            let other = runtime.clone();
            let run = tokio::spawn(async move { other.resume(&"t".into(), sink, UnknownPolicy::Ask).await });
            while let Some(got) = events.recv().await {
                if names(&[got])[0] == "tool_call_stream_delta" {
                    assert!(runtime.cancel(&"t".into()));
                    break;
                }
            }
            tokio::time::pause();
            let result = run.await.unwrap().unwrap();
            assert_eq!(result.termination, TerminationReason::Cancelled);
            let stored = house.store.messages(&"t".into()).await.unwrap();
            assert!(stored.last().unwrap().message.text().contains(reported));
            tokio::time::resume();
        } else {
            wake(&runtime, UnknownPolicy::Ask).await;
            assert!(script.result_of("c1").contains(reported), "{}", script.result_of("c1"));
        }
        assert_eq!(house.executed(), executed, "{choice}");
    }
}

#[tokio::test]
async fn headless_reports_an_unknown_outcome_to_the_model() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "hang")]), text("ok")]);
    kill_at(&house, &script, "tool_call_stream_delta").await;
    let (result, _) = wake(&house.runtime(&script), UnknownPolicy::Report).await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    assert!(script.result_of("c1").contains("may have run"));
    assert_eq!(house.executed(), 1);
    let stop = House::new();
    let script = Script::of([calls(&[("c1", "hang")]), text("ok")]);
    kill_at(&stop, &script, "tool_call_stream_delta").await;
    let (result, _) = wake(&stop.runtime(&script), UnknownPolicy::Stop).await;
    assert!(matches!(result.termination, TerminationReason::Error(_)));
}

#[tokio::test]
async fn a_new_message_after_a_kill_runs_normally() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "hang")]), calls(&[("c2", "free")]), text("ok")]);
    kill_at(&house, &script, "tool_call_stream_delta").await;
    let (result, _) = send(&house.runtime(&script), "something else").await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    assert_eq!(house.executed(), 2);
    assert!(script.result_of("c1").contains("may have run"), "{}", script.result_of("c1"));
}

#[tokio::test]
async fn an_interrupted_pure_call_runs_again_unasked() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "hang_pure")]), text("ok")]);
    kill_at(&house, &script, "tool_call_stream_delta").await;
    kill_at_resume(&house, &script).await;
    assert_eq!(house.executed(), 2);
}

async fn kill_at_resume(house: &House, script: &Arc<Script>) {
    let runtime = house.runtime(script);
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let sink = Arc::new(aye_core::contract::event_sink::ChannelEventSink(sender));
    let run = tokio::spawn(async move { runtime.resume(&"t".into(), sink, UnknownPolicy::Ask).await });
    while let Some(got) = events.recv().await {
        if names(&[got])[0] == "tool_call_stream_delta" {
            break;
        }
    }
    run.abort();
    let _ = run.await;
}

#[tokio::test]
async fn rounds_are_counted_and_the_last_rounds_calls_are_settled() {
    let house = House::new();
    let script = Script::of((0..9).map(|n| calls(&[(format!("c{n}").leak(), "free")])));
    let runtime = house.runtime(&script);
    runtime.set_agent(AgentSpec::new("a").with_model("m").with_max_rounds(3));
    let (result, _) = send(&runtime, "go").await;
    assert!(matches!(&result.termination, TerminationReason::Stopped(r) if r.code == "max_rounds"));
    assert_eq!(house.executed(), 3);
    assert_eq!(result.steps, 3);
}

#[tokio::test]
async fn every_outcome_is_in_the_journal() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "free")]), text("ok")]);
    let (result, _) = send(&house.runtime(&script), "go").await;
    let journal = house.store.intents(&result.run_id).await.unwrap();
    assert_eq!(journal.len(), 1);
    assert_eq!(journal[0].1.as_ref().unwrap().outcome, ToolCallOutcome::Succeeded);
}

/// Stands for two calls of the tool `free`, unless it is asked for something else.
struct Pair;

#[async_trait]
impl Tool for Pair {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("pair", "Pair", "two at once")
    }

    fn stands_for(&self, args: &Value) -> Vec<(String, Value)> {
        let is_pair = args.get("alone").is_none();
        ["a", "b"].into_iter().filter(|_| is_pair).map(|n| ("free".to_owned(), json!({"n": n}))).collect()
    }

    async fn execute(&self, _: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::text("pair", "alone").into())
    }
}

#[tokio::test]
async fn a_call_that_stands_for_others_is_replaced_by_them() {
    let house = House::new();
    let mut asked = calls(&[("c1", "PAIR"), ("c2", "pair")]);
    asked.tool_calls[0].arguments = json!({});
    asked.tool_calls[1].arguments = json!({"alone": true});
    asked.content = ["c1", "c2"].map(|id| ContentBlock::ToolCall { id: id.into() }).into();
    let script = Script::of([asked, text("Fine.")]);
    let runtime = house.builder(&script).with_tool("pair", Arc::new(Pair)).build().unwrap();
    let (_, events) = send(&runtime, "go").await;
    let stored = house.store.messages(&"t".into()).await.unwrap();
    let answer = stored.iter().find(|m| !m.message.tool_calls.is_empty()).unwrap();
    let made: Vec<_> =
        answer.message.tool_calls.iter().map(|call| (call.name.as_str(), &call.arguments["n"])).collect();
    assert_eq!(made, [("free", &json!("a")), ("free", &json!("b")), ("pair", &Value::Null)]);
    let ids: Vec<_> = answer.message.tool_calls.iter().map(|call| call.id.clone()).collect();
    assert_eq!((ids[0].as_str(), ids[2].as_str()), ("c1", "c2"));
    let places = answer.message.content.iter().filter_map(|block| match block {
        ContentBlock::ToolCall { id } => Some(id.clone()),
        _ => None,
    });
    assert_eq!(places.collect::<Vec<_>>(), ids, "each has its place in the answer");
    for id in &ids {
        assert!(!script.result_of(id).is_empty());
        let of = |event: &AgentEvent| match event {
            AgentEvent::ToolCallStart { id: of, .. } => (of == id).then_some("start"),
            AgentEvent::ToolCallReady { id: of, .. } => (of == id).then_some("ready"),
            AgentEvent::ToolCallDone { id: of, .. } => (of == id).then_some("done"),
            _ => None,
        };
        let seen: Vec<_> = events.iter().filter_map(of).collect();
        assert_eq!(seen, ["start", "ready", "done"], "{id}");
    }
}
