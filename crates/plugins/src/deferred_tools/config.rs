use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use aye_core::contract::spec::PluginConfigKey;
use aye_core::state::JsonValue;
use aye_pattern::Pattern;

/// The way a tool is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolLoadMode {
    /// With its schema in every request.
    #[default]
    Eager,
    /// By its name, until it is requested.
    Deferred,
}

/// The mode in which tools with a matching name are offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeferralRule {
    /// A tool's name, or a pattern over names such as `mcp__github__*`.
    pub tool: String,
    /// The mode in which they are offered.
    pub mode: ToolLoadMode,
}

/// When a tool that was asked for is deferred again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiscBetaParams {
    /// The share of earlier observations that is kept with each inference; above 0, at most 1.
    pub omega: f64,
    /// The number of observations that the initial estimate is worth.
    pub n0: f64,
    /// The number of inferences without a call before a tool may be deferred again.
    pub defer_after: u64,
    /// The fraction of the break-even frequency below which a tool's use must fall.
    pub thresh_mult: f64,
    /// The cost of a search for tools, in tokens.
    pub gamma: f64,
}

impl Default for DiscBetaParams {
    fn default() -> Self {
        Self { omega: 0.95, n0: 5.0, defer_after: 5, thresh_mult: 0.5, gamma: 2000.0 }
    }
}

/// The section `deferred_tools` of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeferredToolsConfig {
    /// Whether deferring is on; if absent, it is on when it saves more than `beta_overhead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The first rule that matches a tool's name counts.
    pub rules: Vec<DeferralRule>,
    /// For tools that no rule matches.
    pub default_mode: ToolLoadMode,
    /// When a tool that was asked for is deferred again.
    pub disc_beta: DiscBetaParams,
    /// The cost of searching and of the list of names, in tokens.
    pub beta_overhead: f64,
}

impl Default for DeferredToolsConfig {
    fn default() -> Self {
        Self {
            enabled: None,
            rules: Vec::new(),
            default_mode: ToolLoadMode::Deferred,
            disc_beta: DiscBetaParams::default(),
            beta_overhead: 1136.0,
        }
    }
}

pub struct DeferredToolsConfigKey;

impl PluginConfigKey for DeferredToolsConfigKey {
    const KEY: &'static str = "deferred_tools";
    type Config = DeferredToolsConfig;
}

/// A config whose patterns were read.
#[derive(Clone, Debug)]
pub(super) struct DeferralPolicy {
    pub(super) enabled: Option<bool>,
    pub(super) params: DiscBetaParams,
    pub(super) overhead: f64,
    rules: Vec<(Pattern, ToolLoadMode)>,
    default_mode: ToolLoadMode,
}

impl DeferralPolicy {
    /// Reads a config. `defaults` are added after its rules.
    pub(super) fn new(config: &DeferredToolsConfig, defaults: &[DeferralRule]) -> Result<Self, String> {
        let DeferredToolsConfig { enabled, rules, default_mode, disc_beta: params, beta_overhead } = config;
        let mut read = Vec::new();
        for (place, rule) in rules.iter().chain(defaults).enumerate() {
            let pattern =
                Pattern::parse(&rule.tool).map_err(|error| format!("rules[{place}].tool: {error}"))?;
            if !pattern.is_unconditional() {
                return Err(format!(
                    "rules[{place}].tool: `{}` matches arguments, but deferring depends on the name alone; \
                     write the name without parentheses",
                    rule.tool
                ));
            }
            read.push((pattern, rule.mode));
        }
        let checks = [
            (
                "disc_beta.omega",
                params.omega,
                params.omega > 0.0 && params.omega <= 1.0,
                "above 0 and at most 1",
            ),
            ("disc_beta.n0", params.n0, params.n0 > 0.0, "above 0"),
            ("disc_beta.thresh_mult", params.thresh_mult, params.thresh_mult >= 0.0, "0 or more"),
            ("disc_beta.gamma", params.gamma, params.gamma > 0.0, "above 0"),
            ("beta_overhead", *beta_overhead, *beta_overhead >= 0.0, "0 or more"),
        ];
        for (name, value, holds, wanted) in checks {
            if !(holds && value.is_finite()) {
                return Err(format!("{name}: {value} must be {wanted}"));
            }
        }
        Ok(Self {
            enabled: *enabled,
            params: params.clone(),
            overhead: *beta_overhead,
            rules: read,
            default_mode: *default_mode,
        })
    }

    /// Reads a section. `default_mode` counts where the section names none.
    pub(super) fn of_section(
        section: &JsonValue,
        defaults: &[DeferralRule],
        default_mode: ToolLoadMode,
    ) -> Result<Self, String> {
        if !section.is_object() {
            return Err("it must be a map, such as {\"enabled\": true}".to_owned());
        }
        let mut config = DeferredToolsConfig::deserialize(section).map_err(|error| error.to_string())?;
        if section.get("default_mode").is_none() {
            config.default_mode = default_mode;
        }
        Self::new(&config, defaults)
    }

    /// Returns how a tool is offered before it is requested.
    pub(super) fn mode(&self, tool: &str) -> ToolLoadMode {
        let rule = self.rules.iter().find(|(pattern, _)| pattern.matches_tool(tool));
        rule.map_or(self.default_mode, |(_, mode)| *mode)
    }
}
