use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy::{
    ConsecutiveErrorsPolicy, ContentMatchPolicy, LoopDetectionPolicy, MaxRoundsPolicy, RepeatedCallsPolicy,
    StopOnToolPolicy, StopPolicy, TimeoutPolicy, TokenBudgetPolicy,
};
pub use aye_core::contract::lifecycle::StopConditionSpec;
use aye_core::contract::spec::PluginConfigKey;
use aye_core::state::JsonValue;

/// Why a condition can never work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopConfigError {
    /// `stop_on_tool` names no tool.
    #[error("stop_on_tool: `tool_name` is empty; name the tool that ends the run")]
    EmptyToolName,
    /// `content_match` would match any text.
    #[error("content_match: `pattern` is empty; it would match every answer")]
    EmptyPattern,
    /// `content_match` is not a regular expression.
    #[error("content_match: `{pattern}` is not a regular expression: {message}")]
    BadPattern {
        pattern: String,
        /// What is wrong with the pattern.
        message: String,
    },
}

/// The config section `stop`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopConfig {
    /// The conditions; the first one that is met applies.
    #[serde(default)]
    pub conditions: Vec<StopConditionSpec>,
}

pub struct StopConfigKey;

impl PluginConfigKey for StopConfigKey {
    const KEY: &'static str = "stop";
    type Config = StopConfig;
}

/// Makes policies of conditions, in their order; those that are switched off are left out.
///
/// # Errors
/// The first condition that can never work.
pub fn policies_from_specs(specs: &[StopConditionSpec]) -> Result<Vec<Arc<dyn StopPolicy>>, StopConfigError> {
    let mut policies: Vec<Arc<dyn StopPolicy>> = Vec::new();
    for spec in specs {
        match spec {
            StopConditionSpec::MaxRounds { rounds } if *rounds > 0 => {
                policies.push(Arc::new(MaxRoundsPolicy::new(*rounds)));
            }
            StopConditionSpec::Timeout { seconds } if *seconds > 0 => {
                policies.push(Arc::new(TimeoutPolicy::new(seconds.saturating_mul(1000))));
            }
            StopConditionSpec::TokenBudget { max_total } if *max_total > 0 => {
                policies.push(Arc::new(TokenBudgetPolicy::new(*max_total as u64)));
            }
            StopConditionSpec::ConsecutiveErrors { max } if *max > 0 => {
                policies.push(Arc::new(ConsecutiveErrorsPolicy::new(*max)));
            }
            StopConditionSpec::RepeatedCalls { max } if *max > 1 => {
                policies.push(Arc::new(RepeatedCallsPolicy::new(*max)));
            }
            StopConditionSpec::StopOnTool { tool_name } => {
                policies.push(Arc::new(StopOnToolPolicy::new(tool_name)?));
            }
            StopConditionSpec::ContentMatch { pattern } => {
                policies.push(Arc::new(ContentMatchPolicy::new(pattern)?));
            }
            StopConditionSpec::LoopDetection { window } if *window > 1 => {
                policies.push(Arc::new(LoopDetectionPolicy::new(*window)));
            }
            StopConditionSpec::MaxRounds { .. }
            | StopConditionSpec::Timeout { .. }
            | StopConditionSpec::TokenBudget { .. }
            | StopConditionSpec::ConsecutiveErrors { .. }
            | StopConditionSpec::RepeatedCalls { .. }
            | StopConditionSpec::LoopDetection { .. } => {}
        }
    }
    Ok(policies)
}

/// Reads a section, one condition after the other, so that a mistake is reported with its place.
pub(super) fn parse(section: &JsonValue) -> Result<Vec<Arc<dyn StopPolicy>>, String> {
    if !section.is_object() {
        return Err("it must be a map with the list `conditions`".to_owned());
    }
    if let Some(conditions) = section.get("conditions").and_then(JsonValue::as_array) {
        for (place, condition) in conditions.iter().enumerate() {
            let at = |error: &dyn std::fmt::Display| format!("conditions[{place}]: {error}");
            let spec = StopConditionSpec::deserialize(condition).map_err(|e| at(&e))?;
            policies_from_specs(&[spec]).map_err(|e| at(&e))?;
        }
    }
    let config = StopConfig::deserialize(section).map_err(|e| e.to_string())?;
    policies_from_specs(&config.conditions).map_err(|e| e.to_string())
}
