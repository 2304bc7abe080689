use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use super::*;
use aye_core::contract::inference::{StopReason, StreamResult, TokenUsage};
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::tool::ToolResult;
use aye_core::phase::{ExecutionEnv, PhaseContext, PhaseRuntime, RunProgress, ToolCallInfo};
use aye_core::state::StateStore;

/// A clock that advances by ten with each reading.
#[derive(Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(10, Ordering::SeqCst)
    }
}

struct House {
    sink: InMemorySink,
    env: ExecutionEnv,
    phases: PhaseRuntime,
}

impl House {
    fn new(content: bool) -> Self {
        let sink = InMemorySink::new();
        let plugin = ObservabilityPlugin::new(sink.clone())
            .with_clock(Arc::new(Ticking::default()))
            .with_content(content);
        let env = ExecutionEnv::from_plugins(&[Arc::new(plugin) as Arc<dyn Plugin>]).unwrap();
        let phases = PhaseRuntime::new(StateStore::new()).unwrap();
        phases.install(&env).unwrap();
        Self { sink, env, phases }
    }

    async fn phase(&self, ctx: PhaseContext, phase: Phase) {
        self.phases.run_phase(&self.env, ctx.with_phase(phase)).await.unwrap();
    }
}

fn context() -> PhaseContext {
    let mut ctx = PhaseContext::test_default();
    let mut spec = (*ctx.agent_spec).clone();
    spec.model = "openai/gpt-x".into();
    ctx.agent_spec = Arc::new(spec);
    ctx.with_messages(vec![Message::user("what time is it?")])
}

fn answered() -> PhaseContext {
    let usage = TokenUsage { prompt_tokens: Some(100), completion_tokens: Some(20), ..TokenUsage::default() };
    let mut answer = Message::assistant("Noon, secretly.");
    answer.metadata = Some(json!({"model": "gpt-x-2026", "duration_ms": 1234}));
    let response = StreamResult {
        usage: Some(usage),
        stop_reason: Some(StopReason::EndTurn),
        ..StreamResult::default()
    };
    context().with_messages(vec![Message::user("what time is it?"), answer]).with_response(response)
}

async fn story(house: &House, result: ToolResult) {
    house.phase(context(), Phase::RunStart).await;
    house.phase(context(), Phase::BeforeInference).await;
    house.phase(answered(), Phase::AfterInference).await;
    let call = ToolCallInfo::new(ToolCall::new("c1", "Bash", json!({"command": "date --secret"})), None);
    let calling = || context().with_tool(call.clone());
    // The question waits; only the time since the last gate counts.
    house.phase(calling(), Phase::BeforeToolExecute).await;
    house.phase(calling(), Phase::BeforeToolExecute).await;
    house.phase(calling().with_tool_result(result), Phase::AfterToolExecute).await;
    let progress = RunProgress { active: Duration::from_millis(777), ..RunProgress::default() };
    house.phase(context().with_progress(progress), Phase::RunEnd).await;
}

#[tokio::test]
async fn the_metrics_of_the_book_exist() {
    let house = House::new(false);
    story(&house, ToolResult::error("Bash", "no")).await;
    let metrics = house.sink.metrics();
    assert_eq!((metrics.inferences.len(), metrics.tools.len()), (1, 1));
    assert_eq!((metrics.total_input_tokens(), metrics.total_output_tokens()), (100, 20));
    assert_eq!((metrics.tool_failures(), metrics.session_duration_ms), (1, 777));
    let span = &metrics.inferences[0];
    assert_eq!(
        (span.model.as_str(), span.provider.as_str(), span.duration_ms),
        ("gpt-x-2026", "openai", 1234)
    );
    assert_eq!(span.finish_reasons, ["end_turn"]);
    let models = metrics.stats_by_model();
    assert_eq!(
        (models[0].model.as_str(), models[0].inference_count, models[0].input_tokens),
        ("gpt-x-2026", 1, 100)
    );
    let tools = metrics.stats_by_tool();
    assert_eq!((tools[0].name.as_str(), tools[0].call_count, tools[0].failure_count), ("Bash", 1, 1));
    assert_eq!(metrics.tools[0].duration_ms, 10);
    // No content of the conversation is included.
    assert!(!format!("{metrics:?}").contains("secret"), "{metrics:?}");
}

#[tokio::test]
async fn content_is_reported_only_on_request() {
    let house = House::new(true);
    story(&house, ToolResult::text("Bash", "noon")).await;
    let metrics = house.sink.metrics();
    let span = &metrics.inferences[0];
    assert!(span.input.as_ref().unwrap().contains("what time is it?"));
    assert!(!span.input.as_ref().unwrap().contains("Noon"));
    assert!(span.output.as_ref().unwrap().contains("Noon, secretly."));
    assert!(metrics.tools[0].arguments.as_ref().unwrap().contains("date --secret"));
    assert_eq!(metrics.tools[0].result.as_deref(), Some("noon"));
    assert_eq!(metrics.tool_failures(), 0);
}

#[tokio::test]
async fn an_inference_without_an_answer_is_reported_at_the_end() {
    let house = House::new(false);
    house.phase(context(), Phase::BeforeInference).await;
    house.phase(context(), Phase::RunEnd).await;
    let cancelled = context();
    cancelled.cancellation.cancel();
    house.phase(context(), Phase::BeforeInference).await;
    house.phase(cancelled, Phase::RunEnd).await;
    let metrics = house.sink.metrics();
    let errors: Vec<_> = metrics.inferences.iter().map(|span| span.error_type.as_deref()).collect();
    assert_eq!(errors, [Some("error"), Some("cancelled")]);
    assert_eq!(metrics.inferences[0].model, "gpt-x");
}

#[tokio::test]
async fn runs_that_never_end_here_are_forgotten() {
    let house = House::new(false);
    for n in 0..600 {
        let mut ctx = context();
        ctx.run_identity.run_id = format!("run-{n}").into();
        house.phase(ctx, Phase::BeforeInference).await;
    }
    // The first run is forgotten and reports nothing; the last one does.
    for n in [0, 599] {
        let mut ctx = context();
        ctx.run_identity.run_id = format!("run-{n}").into();
        house.phase(ctx, Phase::RunEnd).await;
    }
    let metrics = house.sink.metrics();
    assert_eq!(metrics.inferences.len(), 1);
    assert_eq!(metrics.inferences[0].run.run_id, "run-599");
}
