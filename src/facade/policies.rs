//! Policies: when a run ends although the model would continue, how a failed request is retried, and how much
//! of a conversation fits into one.

use std::sync::Arc;

pub use crate::contract::spec::{ContextCompactionMode, ContextWindowPolicy};
pub use crate::llm::{CircuitBreakerConfig, LlmRetryPolicy, RetryConfigKey};
pub use crate::plugins::stop::{
    ConsecutiveErrorsPolicy, ContentMatchPolicy, LoopDetectionPolicy, MaxRoundsPolicy, RepeatedCallsPolicy,
    StopConditionSpec, StopConfigError, StopDecision, StopOnToolPolicy, StopPolicy, StopPolicyStats,
    TimeoutPolicy, TokenBudgetPolicy, policies_from_specs,
};

use crate::contract::foreign::ForeignError;
use crate::phase::{ConfigSchema, Plugin, PluginDescriptor, PluginRegistrar};
use crate::plugins::stop::{STOP_PLUGIN, StopPlugin};
use crate::state::{JsonValue, StateError};

/// Policies, or why there are none.
pub trait IntoPolicies {
    /// The policies.
    ///
    /// # Errors
    /// The first condition that can never work.
    fn into_policies(self) -> Result<Vec<Arc<dyn StopPolicy>>, StopConfigError>;
}

impl IntoPolicies for Vec<Arc<dyn StopPolicy>> {
    fn into_policies(self) -> Result<Vec<Arc<dyn StopPolicy>>, StopConfigError> {
        Ok(self)
    }
}

impl IntoPolicies for Result<Vec<Arc<dyn StopPolicy>>, StopConfigError> {
    fn into_policies(self) -> Result<Vec<Arc<dyn StopPolicy>>, StopConfigError> {
        self
    }
}

/// Ends the runs of every agent that uses it by these policies. A condition that can never work comes out when the
/// runtime is built.
pub struct StopConditionPlugin {
    name: &'static str,
    plugin: Result<StopPlugin, StopConfigError>,
}

impl StopConditionPlugin {
    /// The plugin's name.
    pub const NAME: &'static str = "stop-condition";

    /// Policies, as they are or from [`policies_from_specs`].
    pub fn new(policies: impl IntoPolicies) -> Self {
        Self { name: Self::NAME, plugin: policies.into_policies().map(StopPlugin::with_policies) }
    }
}

impl Plugin for StopConditionPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: self.name }
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn section_after_handoff(
        &self,
        key: &str,
        from: Option<&JsonValue>,
        to: Option<&JsonValue>,
    ) -> Option<JsonValue> {
        self.plugin.as_ref().ok()?.section_after_handoff(key, from, to)
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        match &self.plugin {
            Ok(plugin) => plugin.register(registrar),
            Err(error) => Err(StateError::KeyDecode { key: STOP_PLUGIN.into(), message: error.to_string() }),
        }
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        self.plugin.as_ref().map(Plugin::config_schemas).unwrap_or_default()
    }

    fn check_section(&self, key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        self.plugin.as_ref().map_or(Ok(()), |plugin| plugin.check_section(key, section))
    }
}

/// Only a limit of inferences.
pub struct MaxRoundsPlugin(StopConditionPlugin);

impl MaxRoundsPlugin {
    /// The plugin's name.
    pub const NAME: &'static str = "stop-condition:max-rounds";

    /// Creates the plugin with a limit of `rounds` inferences; 0 means no limit.
    pub fn new(rounds: usize) -> Self {
        let policies: Vec<Arc<dyn StopPolicy>> = vec![Arc::new(MaxRoundsPolicy::new(rounds))];
        Self(StopConditionPlugin { name: Self::NAME, ..StopConditionPlugin::new(policies) })
    }
}

impl Plugin for MaxRoundsPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        self.0.descriptor()
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn section_after_handoff(
        &self,
        key: &str,
        from: Option<&JsonValue>,
        to: Option<&JsonValue>,
    ) -> Option<JsonValue> {
        self.0.section_after_handoff(key, from, to)
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        self.0.register(registrar)
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        self.0.config_schemas()
    }

    fn check_section(&self, key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        self.0.check_section(key, section)
    }
}
