//! Usage and spans of runs.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use aye::contract::event_sink::VecEventSink;
use aye::contract::inference::TokenUsage;
use aye::contract::message::Message;
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::engine::{ScriptedExecutor, ScriptedReply};
use aye::ext_observability::{
    AgentMetrics, GenAISpan, InMemorySink, MetricsSink, ObservabilityPlugin, ToolSpan,
};
use aye::registry_spec::{AgentSpec, ModelSpec};
use aye::{AgentRuntimeBuilder, Plugin, RunRequest};
use serde_json::{Value, json};

struct Flip;

#[async_trait]
impl Tool for Flip {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("flip", "Flip", "Flips a coin")
    }

    async fn execute(&self, args: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        if args.get("lost").is_some() {
            return Err(ToolError::ExecutionFailed("the coin is gone".into()));
        }
        Ok(ToolResult::success("flip", json!({"side": "head"})).into())
    }
}

/// A run of three inferences and two calls, one of which fails.
async fn run(plugin: ObservabilityPlugin) {
    let usage = |prompt, completion| TokenUsage {
        prompt_tokens: Some(prompt),
        completion_tokens: Some(completion),
        ..TokenUsage::default()
    };
    let script = vec![
        ScriptedReply::new().call("flip", json!({})).usage(usage(100, 10)),
        ScriptedReply::new().call("flip", json!({"lost": true})).usage(usage(120, 20)),
        ScriptedReply::new().text("head").usage(usage(140, 3)),
    ];
    let agent_spec = AgentSpec::new("observed-agent")
        .with_model("gpt-4o-mini")
        .with_system_prompt("You are a helpful assistant.")
        .with_hook_filter("observability");
    let runtime = AgentRuntimeBuilder::new()
        .with_provider("openai", Arc::new(ScriptedExecutor::new(script)))
        .with_model(
            "gpt-4o-mini",
            ModelSpec { id: "gpt-4o-mini".into(), provider: "openai".into(), model: "gpt-4o-mini".into() },
        )
        .with_agent_spec(agent_spec)
        .with_tool("flip", Arc::new(Flip))
        .with_plugin("observability", Arc::new(plugin) as Arc<dyn Plugin>)
        .build()
        .expect("failed to build runtime");
    let request = RunRequest::new("thread-1", vec![Message::user("flip")]);
    runtime.run(request, Arc::new(VecEventSink::new())).await.expect("a run");
}

#[tokio::test]
async fn an_in_memory_sink_knows_what_a_run_used() {
    let sink = InMemorySink::new();
    run(ObservabilityPlugin::new(sink.clone())).await;
    let metrics = sink.metrics();
    assert_eq!((metrics.inferences.len(), metrics.tools.len()), (3, 2));
    assert_eq!((metrics.total_input_tokens(), metrics.total_output_tokens()), (360, 33));
    assert_eq!(metrics.tool_failures(), 1);
    assert!(metrics.session_duration_ms < 60_000, "{}", metrics.session_duration_ms);
    let models: Vec<_> = metrics
        .stats_by_model()
        .into_iter()
        .map(|stat| (stat.model, stat.inference_count, stat.input_tokens, stat.output_tokens))
        .collect();
    assert_eq!(models, [("gpt-4o-mini".to_string(), 3, 360, 33)]);
    let tools: Vec<_> = metrics
        .stats_by_tool()
        .into_iter()
        .map(|stat| (stat.name, stat.call_count, stat.failure_count))
        .collect();
    assert_eq!(tools, [("flip".to_string(), 2, 1)]);
    assert!(!metrics.inferences[0].finish_reasons.is_empty());
    assert!(metrics.inferences.iter().all(|span| span.input.is_none()), "no contents unless asked for");
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

struct MySink(Arc<Lines>);

impl MySink {
    fn write(&self, line: String) {
        self.0.0.lock().expect("not poisoned").push(line);
    }
}

impl MetricsSink for MySink {
    fn on_inference(&self, span: &GenAISpan) {
        self.write(format!("{} {}", span.operation, span.model));
    }

    fn on_tool(&self, span: &ToolSpan) {
        self.write(format!("{} {}", span.name, span.error_type.as_deref().unwrap_or("well")));
    }

    fn on_run_end(&self, metrics: &AgentMetrics) {
        self.write(format!("end of {} inferences", metrics.inferences.len()));
    }
}

#[tokio::test]
async fn a_custom_sink_receives_events_in_order() {
    let lines: Arc<Lines> = Arc::default();
    run(ObservabilityPlugin::new(MySink(Arc::clone(&lines)))).await;
    let chat = "chat gpt-4o-mini";
    let heard = lines.0.lock().expect("not poisoned").clone();
    assert_eq!(heard, [chat, "flip well", chat, "flip tool_error", chat, "end of 3 inferences"]);
}

/// The book's program lacks the `use` of the trait that provides `tracer`.
#[cfg(feature = "otel")]
#[tokio::test]
async fn spans_go_to_open_telemetry() {
    use aye::ext_observability::OtelMetricsSink;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};

    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().expect("not poisoned").extend(batch);
            Ok(())
        }
    }

    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let tracer = provider.tracer("aye");
    run(ObservabilityPlugin::new(OtelMetricsSink::new(tracer))).await;
    let spans = kept.0.lock().expect("not poisoned").clone();
    let asked = spans.iter().filter(|span| span.name == "chat gpt-4o-mini").collect::<Vec<_>>();
    assert_eq!(asked.len(), 3, "{spans:?}");
    let names: Vec<&str> = asked[0].attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    for name in ["gen_ai.request.model", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(spans.iter().any(|span| span.name == "execute_tool flip"));
}
