//! Spans and metrics in the words of OpenTelemetry's conventions for generative AI.

mod export;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::metrics::{Histogram, Meter};
use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};

pub use export::{Otlp, OtlpError};

use super::metrics::{AgentMetrics, GenAISpan, RunRef, ToolSpan};
use super::sink::MetricsSink;

/// Bytes of a content that one attribute may have.
const MAX_CONTENT: usize = 64 * 1024;
/// The attribute that says what a client calls the request.
const CORRELATION_ID: &str = "aye.correlation.id";
/// Maximum runs whose span is kept open. A waiting run may resume in another process and never end here.
const MAX_RUNS: usize = 256;

/// Makes a span of each run, and below it one of each inference and each execution of a tool.
pub struct OtelMetricsSink<T: Tracer> {
    tracer: T,
    instruments: Option<Instruments>,
    runs: Mutex<HashMap<String, Context>>,
}

struct Instruments {
    tokens: Histogram<u64>,
    duration: Histogram<f64>,
}

impl<T> OtelMetricsSink<T>
where
    T: Tracer + Send + Sync,
    T::Span: Send + Sync + 'static,
{
    /// Spans by this tracer.
    pub fn new(tracer: T) -> Self {
        Self { tracer, instruments: None, runs: Mutex::default() }
    }

    /// Also records the two histograms of the conventions.
    #[must_use]
    pub fn with_meter(mut self, meter: &Meter) -> Self {
        let tokens = meter
            .u64_histogram("gen_ai.client.token.usage")
            .with_unit("{token}")
            .with_description("Number of input and output tokens used")
            .with_boundaries(
                [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262_144, 1_048_576].map(f64::from).to_vec(),
            )
            .build();
        let duration = meter
            .f64_histogram("gen_ai.client.operation.duration")
            .with_unit("s")
            .with_description("GenAI operation duration")
            .with_boundaries(vec![
                0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
            ])
            .build();
        self.instruments = Some(Instruments { tokens, duration });
        self
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<String, Context>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the spans of runs that continue elsewhere.
    pub fn close(&self) {
        let open: Vec<Context> = self.runs().drain().map(|(_, context)| context).collect();
        for context in open {
            context.span().end();
        }
    }

    /// Returns the context of a run's span, and starts the span if it does not exist.
    fn run(&self, run: &RunRef) -> Context {
        let mut runs = self.runs();
        if let Some(context) = runs.get(&run.run_id) {
            return context.clone();
        }
        if runs.len() >= MAX_RUNS
            && let Some(any) = runs.keys().next().cloned()
            && let Some(context) = runs.remove(&any)
        {
            context.span().end();
        }
        let above =
            run.parent_run_id.as_ref().and_then(|parent| runs.get(parent)).cloned().unwrap_or_default();
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("gen_ai.agent.name", run.agent_id.clone()),
            KeyValue::new("gen_ai.conversation.id", run.thread_id.clone()),
            KeyValue::new("aye.run.id", run.run_id.clone()),
        ];
        attributes.extend(run.correlation_id.clone().map(|id| KeyValue::new(CORRELATION_ID, id)));
        let builder = SpanBuilder::from_name(format!("invoke_agent {}", run.agent_id))
            .with_kind(SpanKind::Internal)
            .with_attributes(attributes);
        let span = self.tracer.build_with_context(builder, &above);
        let context = above.with_span(span);
        runs.insert(run.run_id.clone(), context.clone());
        context
    }

    fn report(
        &self,
        run: &RunRef,
        name: String,
        kind: SpanKind,
        times: (u64, u64),
        mut attributes: Vec<KeyValue>,
        error: Option<&str>,
    ) {
        attributes.extend(run.correlation_id.clone().map(|id| KeyValue::new(CORRELATION_ID, id)));
        let (started_at, duration) = times;
        let builder = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(moment(started_at))
            .with_attributes(attributes);
        let mut span = self.tracer.build_with_context(builder, &self.run(run));
        if let Some(error) = error {
            span.set_attribute(KeyValue::new("error.type", error.to_owned()));
            span.set_status(Status::error(error.to_owned()));
        }
        span.end_with_timestamp(moment(started_at.saturating_add(duration)));
    }
}

impl<T> MetricsSink for OtelMetricsSink<T>
where
    T: Tracer + Send + Sync,
    T::Span: Send + Sync + 'static,
{
    fn on_run_start(&self, run: &RunRef) {
        self.run(run);
    }

    fn on_inference(&self, span: &GenAISpan) {
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", span.operation.clone()),
            KeyValue::new("gen_ai.request.model", span.model.clone()),
            KeyValue::new("gen_ai.conversation.id", span.run.thread_id.clone()),
        ];
        if !span.provider.is_empty() {
            // Most readers still look for the older name of the same attribute.
            for name in ["gen_ai.system", "gen_ai.provider.name"] {
                attributes.push(KeyValue::new(name, span.provider.clone()));
            }
        }
        if span.is_success() {
            attributes.push(KeyValue::new("gen_ai.response.model", span.model.clone()));
        }
        if !span.finish_reasons.is_empty() {
            let reasons = span.finish_reasons.iter().cloned().map(StringValue::from).collect();
            let reasons = Value::Array(Array::String(reasons));
            attributes.push(KeyValue::new("gen_ai.response.finish_reasons", reasons));
        }
        for (name, count) in [
            ("gen_ai.usage.input_tokens", span.input_tokens),
            ("gen_ai.usage.output_tokens", span.output_tokens),
            ("gen_ai.usage.cache_read.input_tokens", span.cache_read_input_tokens),
            ("gen_ai.usage.cache_creation.input_tokens", span.cache_creation_input_tokens),
        ] {
            attributes.extend(count.map(|count| KeyValue::new(name, i64::from(count))));
        }
        attributes.extend(content("gen_ai.input.messages", span.input.as_deref()));
        attributes.extend(content("gen_ai.output.messages", span.output.as_deref()));
        let times = (span.started_at_ms, span.duration_ms);
        let name = format!("{} {}", span.operation, span.model);
        self.report(&span.run, name, SpanKind::Client, times, attributes, span.error_type.as_deref());

        let Some(instruments) = &self.instruments else { return };
        let of = |more: &[(&'static str, &str)]| {
            let mut all = vec![
                KeyValue::new("gen_ai.operation.name", span.operation.clone()),
                KeyValue::new("gen_ai.request.model", span.model.clone()),
                KeyValue::new("gen_ai.provider.name", span.provider.clone()),
            ];
            all.extend(more.iter().map(|(name, value)| KeyValue::new(*name, (*value).to_owned())));
            all
        };
        for (kind, count) in [("input", span.input_tokens), ("output", span.output_tokens)] {
            if let Some(count) = count.and_then(|count| u64::try_from(count).ok()) {
                instruments.tokens.record(count, &of(&[("gen_ai.token.type", kind)]));
            }
        }
        let error: Vec<_> =
            span.error_type.as_deref().map(|error| ("error.type", error)).into_iter().collect();
        instruments.duration.record(seconds(span.duration_ms), &of(&error));
    }

    fn on_tool(&self, span: &ToolSpan) {
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", span.operation.clone()),
            KeyValue::new("gen_ai.tool.name", span.name.clone()),
            KeyValue::new("gen_ai.tool.type", span.tool_type.clone()),
            KeyValue::new("gen_ai.tool.call.id", span.call_id.clone()),
        ];
        attributes.extend(content("gen_ai.tool.call.arguments", span.arguments.as_deref()));
        attributes.extend(content("gen_ai.tool.call.result", span.result.as_deref()));
        let times = (span.started_at_ms, span.duration_ms);
        let name = format!("{} {}", span.operation, span.name);
        self.report(&span.run, name, SpanKind::Internal, times, attributes, span.error_type.as_deref());
        if let Some(instruments) = &self.instruments {
            let mut of = vec![
                KeyValue::new("gen_ai.operation.name", span.operation.clone()),
                KeyValue::new("gen_ai.tool.name", span.name.clone()),
            ];
            of.extend(span.error_type.clone().map(|error| KeyValue::new("error.type", error)));
            instruments.duration.record(seconds(span.duration_ms), &of);
        }
    }

    fn on_run_end(&self, metrics: &AgentMetrics) {
        let Some(context) = self.runs().remove(&metrics.run.run_id) else { return };
        let span = context.span();
        let count = |count: i64| count.max(0);
        span.set_attribute(KeyValue::new("gen_ai.usage.input_tokens", count(metrics.total_input_tokens())));
        span.set_attribute(KeyValue::new("gen_ai.usage.output_tokens", count(metrics.total_output_tokens())));
        span.end();
    }
}

fn content(name: &'static str, text: Option<&str>) -> Option<KeyValue> {
    let text = text?;
    let mut end = text.len().min(MAX_CONTENT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Some(KeyValue::new(name, text[..end].to_owned()))
}

fn moment(ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(UNIX_EPOCH)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}
