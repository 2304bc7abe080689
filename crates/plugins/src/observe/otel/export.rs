//! OTLP as JSON over HTTP.
//!
//! Measurements are sent when a run is done and at the end, not by a timer: a program that waits for a user
//! does not wake up to send them.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanData,
    SpanExporter as ExportSpans,
};
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;

use super::super::metrics::{AgentMetrics, GenAISpan, RunRef, ToolSpan};
use super::super::sink::MetricsSink;
use super::OtelMetricsSink;

/// The time limit for a silent collector; at the end of the program it applies to traces and to metrics in
/// turn.
const PATIENCE: Duration = Duration::from_secs(3);
/// Nothing goes out by time; a timer of the crate needs one all the same.
const NEVER: Duration = Duration::from_hours(24);

/// Why nothing is exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The HTTP client could not be made.
    #[error("no HTTP client for telemetry: {0}")]
    Client(#[from] reqwest::Error),
    /// The crate refused its settings.
    #[error("telemetry cannot be exported: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Sends spans and metrics to a collector. Clones share it.
#[derive(Clone)]
pub struct Otlp {
    sink: Arc<OtelMetricsSink<SdkTracer>>,
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
    handle: Handle,
}

impl Otlp {
    /// A collector at this address, below which `/v1/traces` and `/v1/metrics` are. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`OtlpError`].
    pub fn start(endpoint: &str, version: &'static str) -> Result<Self, OtlpError> {
        let handle = Handle::current();
        let client = client(endpoint)?;
        let at = |path: &str| format!("{}/v1/{path}", endpoint.trim_end_matches('/'));
        let resource = Resource::builder()
            .with_service_name("aye")
            .with_attribute(opentelemetry::KeyValue::new("service.version", version))
            .build();
        let spans = SpanExporter::builder()
            .with_http()
            .with_http_client(client.clone())
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(at("traces"))
            .with_timeout(PATIENCE)
            .build()?;
        let metrics = MetricExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(at("metrics"))
            .with_timeout(PATIENCE)
            .build()?;
        let batches = BatchConfigBuilder::default().with_scheduled_delay(NEVER).build();
        let spans = Within { inner: spans, handle: handle.clone() };
        let traces = SdkTracerProvider::builder()
            .with_resource(resource.clone())
            .with_span_processor(BatchSpanProcessor::builder(spans).with_batch_config(batches).build())
            .build();
        let metrics = Within { inner: metrics, handle: handle.clone() };
        let metrics = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_reader(PeriodicReader::builder(metrics).with_interval(NEVER).build())
            .build();
        let sink = OtelMetricsSink::new(traces.tracer("aye")).with_meter(&metrics.meter("aye"));
        Ok(Self { sink: Arc::new(sink), traces, metrics, handle })
    }

    /// Sends the remaining data, and waits until it is sent or the collector was silent for too long.
    pub async fn end(&self) {
        self.sink.close();
        let (traces, metrics) = (self.traces.clone(), self.metrics.clone());
        let done = tokio::task::spawn_blocking(move || {
            for ended in [traces.shutdown_with_timeout(PATIENCE), metrics.shutdown_with_timeout(PATIENCE)] {
                if let Err(error) = ended {
                    tracing::warn!(%error, "telemetry was not sent");
                }
            }
        });
        let _ = done.await;
    }
}

impl MetricsSink for Otlp {
    fn on_run_start(&self, run: &RunRef) {
        self.sink.on_run_start(run);
    }

    fn on_inference(&self, span: &GenAISpan) {
        self.sink.on_inference(span);
    }

    fn on_tool(&self, span: &ToolSpan) {
        self.sink.on_tool(span);
    }

    fn on_run_end(&self, metrics: &AgentMetrics) {
        self.sink.on_run_end(metrics);
        let (traces, metrics) = (self.traces.clone(), self.metrics.clone());
        self.handle.spawn_blocking(move || {
            for sent in [traces.force_flush(), metrics.force_flush()] {
                if let Err(error) = sent {
                    tracing::warn!(%error, "telemetry was not sent");
                }
            }
        });
    }
}

fn client(endpoint: &str) -> reqwest::Result<reqwest::Client> {
    aye_http::client_builder(reqwest::Url::parse(endpoint).ok().as_ref())
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// Lets an exporter that needs tokio be polled on a thread that has none.
#[derive(Debug)]
struct Within<E> {
    inner: E,
    handle: Handle,
}

impl<E: ExportSpans> ExportSpans for Within<E> {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        TokioContext::new(self.inner.export(batch), self.handle.clone())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Within<E> {
    fn export(&self, metrics: &ResourceMetrics) -> impl Future<Output = OTelSdkResult> + Send {
        TokioContext::new(self.inner.export(metrics), self.handle.clone())
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}
