//! One hook in six phases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::Value;

use super::metrics::{AgentMetrics, GenAISpan, RunRef, ToolSpan};
use super::sink::MetricsSink;
use aye_core::contract::clock::Clock;
use aye_core::contract::message::{Message, Role};
use aye_core::phase::{PhaseContext, PhaseHook};
use aye_core::state::{Phase, StateCommand, StateError};

/// Maximum runs that are remembered. A waiting run may resume in another process and never end here.
const MAX_RUNS: usize = 256;

/// The data of an active run.
#[derive(Default)]
struct Running {
    /// The sequence number of its last event, for choosing which run to forget.
    last_event: u64,
    inference: Option<u64>,
    calls: HashMap<String, u64>,
    metrics: AgentMetrics,
}

/// The state of all measurements, shared by the hooks of all agents.
pub(super) struct Observer {
    sink: Arc<dyn MetricsSink>,
    clock: Arc<dyn Clock>,
    content: bool,
    runs: Mutex<(u64, HashMap<String, Running>)>,
}

impl Observer {
    pub(super) fn new(sink: Arc<dyn MetricsSink>, clock: Arc<dyn Clock>, content: bool) -> Self {
        Self { sink, clock, content, runs: Mutex::default() }
    }

    pub(super) fn with_clock(&self, clock: Arc<dyn Clock>) -> Self {
        Self::new(Arc::clone(&self.sink), clock, self.content)
    }

    pub(super) fn with_content(&self, content: bool) -> Self {
        Self::new(Arc::clone(&self.sink), Arc::clone(&self.clock), content)
    }

    fn runs(&self) -> MutexGuard<'_, (u64, HashMap<String, Running>)> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known of the context's run. The sink is never called from inside.
    fn with<T>(&self, ctx: &PhaseContext, change: impl FnOnce(&mut Running) -> T) -> T {
        let run = run_of(ctx);
        let mut is_new = false;
        let result = {
            let mut guard = self.runs();
            let (last_event, runs) = &mut *guard;
            *last_event += 1;
            if !runs.contains_key(&run.run_id) {
                is_new = true;
                if runs.len() >= MAX_RUNS
                    && let Some(oldest) =
                        runs.iter().min_by_key(|(_, run)| run.last_event).map(|(id, _)| id.clone())
                {
                    runs.remove(&oldest);
                }
                let metrics = AgentMetrics { run: run.clone(), ..AgentMetrics::default() };
                runs.insert(run.run_id.clone(), Running { metrics, ..Running::default() });
            }
            let running = runs.entry(run.run_id.clone()).or_default();
            running.last_event = *last_event;
            change(running)
        };
        if is_new {
            self.sink.on_run_start(&run);
        }
        result
    }

    fn observe(&self, ctx: &PhaseContext) {
        let now = self.clock.now_ms();
        match ctx.phase {
            Phase::RunStart => self.with(ctx, |_| ()),
            Phase::BeforeInference => self.with(ctx, |run| run.inference = Some(now)),
            Phase::AfterInference => {
                let began = self.with(ctx, |run| run.inference.take());
                self.inferred(ctx, self.answer(ctx, began.unwrap_or(now), now));
            }
            Phase::BeforeToolExecute => {
                if let Some(tool) = &ctx.tool {
                    self.with(ctx, |run| run.calls.insert(tool.call.id.clone(), now));
                }
            }
            Phase::AfterToolExecute if ctx.was_executed => self.executed(ctx, now),
            Phase::RunEnd => self.ended(ctx, now),
            Phase::AfterToolExecute | Phase::StepStart | Phase::StepEnd => {}
        }
    }

    fn inferred(&self, ctx: &PhaseContext, span: GenAISpan) {
        self.sink.on_inference(&span);
        self.with(ctx, |run| run.metrics.inferences.push(bare(span)));
    }

    fn answer(&self, ctx: &PhaseContext, began: u64, now: u64) -> GenAISpan {
        let response = ctx.response.as_ref();
        let last_message = ctx.messages.last().filter(|message| message.role == Role::Assistant);
        let metadata = |name: &str| last_message.and_then(|message| message.metadata.as_ref()?.get(name));
        let usage = response.and_then(|response| response.usage).unwrap_or_default();
        let (provider, model) = provider_and_model(ctx, metadata("model").and_then(Value::as_str));
        let output =
            self.content.then(|| last_message.map(|message| json(std::slice::from_ref(message)))).flatten();
        let asked = ctx.messages.len() - usize::from(last_message.is_some());
        GenAISpan {
            run: run_of(ctx),
            model,
            provider,
            operation: "chat".into(),
            finish_reasons: response
                .and_then(|response| serde_json::to_value(response.stop_reason?).ok())
                .and_then(|reason| reason.as_str().map(str::to_owned))
                .into_iter()
                .collect(),
            error_type: None,
            input_tokens: usage.prompt_tokens,
            output_tokens: usage.completion_tokens,
            total_tokens: usage.total_tokens,
            cache_read_input_tokens: usage.cache_read_tokens,
            cache_creation_input_tokens: usage.cache_creation_tokens,
            thinking_tokens: usage.thinking_tokens,
            started_at_ms: began,
            // The driver's own measurement, if available, excludes the hooks around the inference.
            duration_ms: metadata("duration_ms")
                .and_then(Value::as_u64)
                .unwrap_or_else(|| now.saturating_sub(began)),
            input: self.content.then(|| json(&ctx.messages[..asked])),
            output,
        }
    }

    fn executed(&self, ctx: &PhaseContext, now: u64) {
        let (Some(tool), Some(result)) = (&ctx.tool, &ctx.tool_result) else { return };
        let began = self.with(ctx, |run| run.calls.remove(&tool.call.id)).unwrap_or(now);
        let span = ToolSpan {
            run: run_of(ctx),
            name: tool.call.name.clone(),
            operation: "execute_tool".into(),
            call_id: tool.call.id.clone(),
            tool_type: "function".into(),
            error_type: result.is_error().then(|| "tool_error".to_owned()),
            started_at_ms: began,
            duration_ms: now.saturating_sub(began),
            arguments: self.content.then(|| tool.call.arguments.to_string()),
            result: self.content.then(|| result.model_text()),
        };
        self.sink.on_tool(&span);
        let span = ToolSpan { arguments: None, result: None, ..span };
        self.with(ctx, |run| run.metrics.tools.push(span));
    }

    fn ended(&self, ctx: &PhaseContext, now: u64) {
        // An inference that started and never got an answer failed or was abandoned.
        if let Some(began) = self.with(ctx, |run| run.inference.take()) {
            let error = if ctx.cancellation.is_cancelled() { "cancelled" } else { "error" };
            let (provider, model) = provider_and_model(ctx, None);
            let span = GenAISpan {
                run: run_of(ctx),
                model,
                provider,
                operation: "chat".into(),
                error_type: Some(error.to_owned()),
                started_at_ms: began,
                duration_ms: now.saturating_sub(began),
                ..GenAISpan::default()
            };
            self.inferred(ctx, span);
        }
        let ended = self.runs().1.remove(ctx.run_identity.run_id.as_str());
        let mut metrics = ended.map(|run| run.metrics).unwrap_or_default();
        metrics.session_duration_ms = u64::try_from(ctx.progress.active.as_millis()).unwrap_or(u64::MAX);
        self.sink.on_run_end(&metrics);
    }
}

/// Returns the span without contents, to be kept until the end of the run.
fn bare(span: GenAISpan) -> GenAISpan {
    GenAISpan { input: None, output: None, ..span }
}

fn json(messages: &[Arc<Message>]) -> String {
    let slim: Vec<Value> = messages
        .iter()
        .map(|message| {
            serde_json::json!({
                "role": message.role,
                "content": message.text(),
                "tool_calls": message.tool_calls,
                "tool_call_id": message.tool_call_id,
            })
        })
        .collect();
    serde_json::to_string(&slim).unwrap_or_default()
}

/// Returns the provider of the model that answered, and the model's name there; without an answer, those of
/// the agent's model. An id that names no provider belongs to the agent's provider.
fn provider_and_model(ctx: &PhaseContext, answered: Option<&str>) -> (String, String) {
    let own = &ctx.agent_spec.model;
    let provider = own.split_once('/').map_or("", |(provider, _)| provider);
    let id = answered.unwrap_or(own);
    let (provider, model) = id.split_once('/').unwrap_or((provider, id));
    (provider.to_owned(), model.to_owned())
}

fn run_of(ctx: &PhaseContext) -> RunRef {
    let identity = &ctx.run_identity;
    RunRef {
        thread_id: identity.thread_id.to_string(),
        run_id: identity.run_id.to_string(),
        parent_run_id: identity.parent_run_id.as_ref().map(ToString::to_string),
        agent_id: identity.agent_id.clone(),
        correlation_id: identity.correlation_id.clone(),
    }
}

pub(super) struct ObserverHook {
    pub(super) observer: Arc<Observer>,
}

#[async_trait]
impl PhaseHook for ObserverHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        self.observer.observe(ctx);
        Ok(StateCommand::new())
    }
}
