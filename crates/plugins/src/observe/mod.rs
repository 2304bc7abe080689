//! Observability: measurements of each inference, each tool call and each run.
//!
//! [`ObservabilityPlugin`] measures and reports to a [`MetricsSink`]. Contents (prompts, answers, arguments,
//! results) are left out unless they are requested.

mod hooks;
mod metrics;
#[cfg(feature = "otel")]
mod otel;
mod sink;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use metrics::{AgentMetrics, GenAISpan, ModelStats, RunRef, ToolSpan, ToolStats};
#[cfg(feature = "otel")]
pub use otel::{OtelMetricsSink, Otlp, OtlpError};
pub use sink::{InMemorySink, MetricsSink};

use self::hooks::{Observer, ObserverHook};
use aye_core::contract::clock::{Clock, SystemClock};
use aye_core::phase::{Plugin, PluginDescriptor, PluginRegistrar};
use aye_core::state::{Phase, StateError};

/// The name of the plugin.
pub const OBSERVABILITY_PLUGIN: &str = "observability";

/// The plugin that measures runs and reports to a sink.
pub struct ObservabilityPlugin {
    observer: Arc<Observer>,
}

impl ObservabilityPlugin {
    /// Creates a plugin that reports to this sink.
    pub fn new(sink: impl MetricsSink + 'static) -> Self {
        Self::shared(Arc::new(sink))
    }

    /// Creates a plugin that reports to a shared sink.
    pub fn shared(sink: Arc<dyn MetricsSink>) -> Self {
        Self { observer: Arc::new(Observer::new(sink, Arc::new(SystemClock), false)) }
    }

    /// Takes the time from here.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { observer: Arc::new(self.observer.with_clock(clock)) }
    }

    /// Sets whether contents are reported too: prompts, answers, arguments and results.
    #[must_use]
    pub fn with_content(self, content: bool) -> Self {
        Self { observer: Arc::new(self.observer.with_content(content)) }
    }
}

impl Plugin for ObservabilityPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(OBSERVABILITY_PLUGIN, "measures inferences, calls and runs")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        for phase in [
            Phase::RunStart,
            Phase::BeforeInference,
            Phase::AfterInference,
            Phase::BeforeToolExecute,
            Phase::AfterToolExecute,
            Phase::RunEnd,
        ] {
            registrar.register_hook(phase, ObserverHook { observer: Arc::clone(&self.observer) });
        }
        Ok(())
    }
}
