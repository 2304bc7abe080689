//! Permissions for programs that embed aye.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::plugins::permission::{
    Mode, Permissions, Rule, RuleSet, RulesFileError, ToolPermissionBehavior, shipped_rules,
};

use crate::contract::clock::SystemClock;
use crate::contract::foreign::ForeignError;
use crate::contract::workspace::Workspace;
use crate::phase::{ConfigSchema, Plugin, PluginDescriptor, PluginRegistrar};
use crate::plugins::permission as inner;
use crate::state::{JsonValue, StateError};

/// Judges each tool call by the rules in the agent's section `permission`; asks about calls that no rule
/// decides.
///
/// Paths of file tools are resolved relative to the working directory of the process. A program that has
/// rules or grants of its own uses [`crate::plugins::permission::PermissionPlugin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PermissionPlugin;

impl PermissionPlugin {
    /// The same over rules that hold for every agent.
    pub fn with_rules(rules: RuleSet) -> inner::PermissionPlugin {
        // A process without a working directory has no place that rules could allow.
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let workspace = Workspace { cwd: cwd.clone(), root: cwd, home: PathBuf::from("/") };
        inner::PermissionPlugin::new(Permissions::new(workspace, Arc::new(SystemClock), rules, Mode::Ask))
    }
}

impl Plugin for PermissionPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: inner::PERMISSION_PLUGIN }
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
        Self::with_rules(RuleSet::default()).section_after_handoff(key, from, to)
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        Self::with_rules(RuleSet::default()).register(registrar)
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        Self::with_rules(RuleSet::default()).config_schemas()
    }

    fn check_section(&self, key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        Self::with_rules(RuleSet::default()).check_section(key, section)
    }
}

/// The scope of a rule. Rules from files and code apply wherever they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionRuleScope {
    /// In every run.
    #[default]
    Always,
}

/// One rule as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionRuleEntry {
    /// The pattern.
    pub tool: String,
    /// The effect of the rule.
    pub behavior: ToolPermissionBehavior,
    /// The scope of the rule.
    #[serde(default)]
    pub scope: PermissionRuleScope,
}

/// Rules as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionRulesConfig {
    /// The behaviour for calls that no rule matches.
    pub default_behavior: ToolPermissionBehavior,
    /// The rules.
    #[serde(default)]
    pub rules: Vec<PermissionRuleEntry>,
}

impl PermissionRulesConfig {
    /// Reads a file of rules, YAML or JSON by its ending, with all that such a file may hold.
    ///
    /// # Errors
    /// [`RulesFileError`], with the line.
    pub fn from_file(path: impl AsRef<Path>) -> Result<inner::PermissionRulesConfig, RulesFileError> {
        inner::PermissionRulesConfig::from_file(path)
    }

    /// Reads the patterns.
    ///
    /// # Errors
    /// [`RulesFileError`]: the first pattern that is broken.
    pub fn into_ruleset(self) -> Result<RuleSet, RulesFileError> {
        let entry = |rule: PermissionRuleEntry| inner::PermissionRuleEntry {
            tool: rule.tool,
            behavior: rule.behavior,
            matches: Vec::new(),
            not_match: Vec::new(),
            expires_in: None,
            notify: None,
            sandbox: None,
            env: Vec::new(),
        };
        let rules = self.rules.into_iter().map(entry).collect();
        inner::PermissionRulesConfig { default_behavior: Some(self.default_behavior), rules }.into_ruleset()
    }
}
