use std::sync::{Arc, Mutex, PoisonError};

use super::metrics::{AgentMetrics, GenAISpan, RunRef, ToolSpan};

/// The receiver of measurements during a run. It is called between two steps of the run, so it must not take
/// long.
pub trait MetricsSink: Send + Sync {
    /// A run has started, or resumed in this process.
    fn on_run_start(&self, _run: &RunRef) {}

    /// An inference is over.
    fn on_inference(&self, span: &GenAISpan);

    /// An execution of a tool is over.
    fn on_tool(&self, span: &ToolSpan);

    /// A run is over, with everything that this process measured of it.
    fn on_run_end(&self, metrics: &AgentMetrics);
}

impl<S: MetricsSink + ?Sized> MetricsSink for Arc<S> {
    fn on_run_start(&self, run: &RunRef) {
        S::on_run_start(self, run);
    }

    fn on_inference(&self, span: &GenAISpan) {
        S::on_inference(self, span);
    }

    fn on_tool(&self, span: &ToolSpan) {
        S::on_tool(self, span);
    }

    fn on_run_end(&self, metrics: &AgentMetrics) {
        S::on_run_end(self, metrics);
    }
}

/// Keeps everything, for development and tests. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct InMemorySink {
    metrics: Arc<Mutex<AgentMetrics>>,
}

impl InMemorySink {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the metrics so far.
    pub fn metrics(&self) -> AgentMetrics {
        self.change(|metrics| metrics.clone())
    }

    fn change<T>(&self, change: impl FnOnce(&mut AgentMetrics) -> T) -> T {
        change(&mut self.metrics.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl MetricsSink for InMemorySink {
    fn on_inference(&self, span: &GenAISpan) {
        self.change(|metrics| metrics.inferences.push(span.clone()));
    }

    fn on_tool(&self, span: &ToolSpan) {
        self.change(|metrics| metrics.tools.push(span.clone()));
    }

    fn on_run_end(&self, run: &AgentMetrics) {
        self.change(|metrics| {
            metrics.run = run.run.clone();
            metrics.session_duration_ms += run.session_duration_ms;
        });
    }
}
