//! Telemetry goes to a collector if the user configured one: in the variable `OTEL_EXPORTER_OTLP_ENDPOINT`, or in
//! their own settings. A project cannot.

use std::sync::Arc;

use crate::phase::Plugin;
use crate::program::foundation::Foundation;

/// The connection to the collector, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Telemetry {
    #[cfg(feature = "otel")]
    otlp: Option<(crate::plugins::observe::Otlp, bool)>,
}

/// Returns the URL of the collector, and where it is set.
fn endpoint(foundation: &Foundation) -> Option<(String, &'static str)> {
    let set = |name: &str| foundation.env.var(name).map(str::trim).filter(|value| !value.is_empty());
    if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let variable =
        set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| (url.to_owned(), "OTEL_EXPORTER_OTLP_ENDPOINT"));
    variable.or_else(|| Some((foundation.loaded.settings.telemetry.endpoint.clone()?, "telemetry.endpoint")))
}

impl Telemetry {
    /// Connects to the collector for this start. A problem that prevents the connection becomes a warning.
    #[cfg(feature = "otel")]
    pub(crate) fn start(foundation: &mut Foundation) -> Self {
        use crate::plugins::observe::Otlp;
        let Some((endpoint, origin)) = endpoint(foundation) else { return Self::default() };
        let is_address = |scheme: &str| endpoint.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty());
        let started = if is_address("http://") || is_address("https://") {
            Otlp::start(&endpoint, env!("CARGO_PKG_VERSION")).map_err(|error| error.to_string())
        } else {
            Err("it must start with http:// or https://".to_owned())
        };
        match started {
            Ok(otlp) => {
                let asked = foundation.env.var("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT");
                let content = asked.is_some_and(|value| value.eq_ignore_ascii_case("true"));
                let content = content || foundation.loaded.settings.telemetry.content;
                Self { otlp: Some((otlp, content)) }
            }
            Err(why) => {
                foundation.warnings.push(format!("{origin}: no telemetry: {why}"));
                Self::default()
            }
        }
    }

    /// This program cannot export anything: a setting that asks for it is a warning.
    #[cfg(not(feature = "otel"))]
    pub(crate) fn start(foundation: &mut Foundation) -> Self {
        if let Some((_, origin @ "telemetry.endpoint")) = endpoint(foundation) {
            foundation
                .warnings
                .push(format!("{origin}: no telemetry: this aye was built without the feature `otel`"));
        }
        Self::default()
    }

    /// Returns the plugin that measures runs, if a collector receives the data.
    #[cfg(feature = "otel")]
    pub(crate) fn plugin(&self) -> Option<Arc<dyn Plugin>> {
        use crate::plugins::observe::ObservabilityPlugin;
        let (otlp, content) = self.otlp.as_ref()?;
        Some(Arc::new(ObservabilityPlugin::new(otlp.clone()).with_content(*content)))
    }

    #[cfg(not(feature = "otel"))]
    #[expect(clippy::unused_self, reason = "the same shape as with the feature")]
    pub(crate) fn plugin(&self) -> Option<Arc<dyn Plugin>> {
        None
    }

    /// Sends what is left; waits briefly for a collector that does not respond.
    #[cfg(feature = "otel")]
    pub(crate) async fn end(&self) {
        if let Some((otlp, _)) = &self.otlp {
            otlp.end().await;
        }
    }

    #[cfg(not(feature = "otel"))]
    #[expect(clippy::unused_async, reason = "the same shape as with the feature")]
    pub(crate) async fn end(&self) {}
}
