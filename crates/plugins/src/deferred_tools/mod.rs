//! Deferred tools: an agent with many tools gives the model their names, and their parameters only on
//! request.
//!
//! Rules decide which tools are deferred; deferring is on automatically if it saves more than it costs.
//! `ToolSearch` finds deferred tools and has them offered from the next step on; so does a call of one. A
//! requested tool that is not used is deferred again: a [`Beta`] distribution that forgets estimates how
//! often each tool is used in this conversation.
//!
//! The order in `BeforeInference`: first the actions that others scheduled ([`PromoteToolAction`],
//! [`DeferToolAction`]), then unused tools are deferred, then the deferred tools are removed from the request
//! and their names are listed.

mod beta;
mod config;
mod cost;
mod hooks;
mod index;
mod list;
mod priors;
mod savings;
mod search;
mod state;
#[cfg(test)]
mod tests;
mod tool;

use std::sync::{Arc, Mutex, PoisonError};

pub use beta::{Beta, PRIOR};
pub use config::{DeferralRule, DeferredToolsConfig, DeferredToolsConfigKey, DiscBetaParams, ToolLoadMode};
pub use cost::ToolCost;
pub use hooks::LIST_KEY;
pub use priors::{AgentToolPriors, AgentToolPriorsValue, RunToolUsage, RunUsage, ToolPrior};
pub use savings::{Savings, savings};
pub use search::{MAX_RESULTS, Query};
pub use state::{
    DeferToolAction, DeferralRegistry, DeferralState, DeferralStateValue, DeferralUpdate, DiscBetaState,
    DiscBetaUpdate, DiscBetaValue, PromoteToolAction, RegistryValue, ToolUsage, ToolUsageStats, UsageUpdate,
};
pub use tool::{TOOL_SEARCH, ToolSearchTool};

use self::config::DeferralPolicy;
use self::hooks::{CountHook, Handlers, RegisterHook, ShapeHook};
use self::index::{Index, View};
use self::state::SettleAction;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::spec::PluginConfigKey;
use aye_core::contract::tool::ToolDescriptor;
use aye_core::phase::{ConfigSchema, PhaseContext, Plugin, PluginDescriptor, PluginRegistrar};
use aye_core::state::{JsonValue, KeyScope, Phase, StateError, StateKeyOptions};

/// The name of the plugin.
pub const DEFERRED_TOOLS_PLUGIN: &str = "ext-deferred-tools";

#[derive(Clone)]
pub struct DeferredToolsPlugin {
    views: Arc<Views>,
}

impl DeferredToolsPlugin {
    /// Creates a plugin for agents with these tools. They are used only if the runtime does not provide an
    /// agent's tools.
    pub fn new(seed_tools: Vec<ToolDescriptor>) -> Self {
        Self::of(Views {
            seed: seed_tools.into(),
            defaults: Vec::new(),
            default_mode: DeferredToolsConfig::default().default_mode,
            made: Mutex::default(),
        })
    }

    fn of(views: Views) -> Self {
        Self { views: Arc::new(views) }
    }

    /// Sets how tools that no rule matches are offered, if an agent's section does not set it.
    #[must_use]
    pub fn with_default_mode(self, default_mode: ToolLoadMode) -> Self {
        let (seed, defaults) = (Arc::clone(&self.views.seed), self.views.defaults.clone());
        Self::of(Views { seed, defaults, default_mode, made: Mutex::default() })
    }

    /// Adds rules after those of every agent.
    #[must_use]
    pub fn with_default_rules(self, rules: Vec<DeferralRule>) -> Self {
        let (seed, default_mode) = (Arc::clone(&self.views.seed), self.views.default_mode);
        Self::of(Views { seed, defaults: rules, default_mode, made: Mutex::default() })
    }
}

/// The number of agents that may alternate without their tools being indexed again.
const KEPT_VIEWS: usize = 8;

/// The views built from the tools of agents.
struct Views {
    seed: Arc<[ToolDescriptor]>,
    defaults: Vec<DeferralRule>,
    default_mode: ToolLoadMode,
    made: Mutex<Vec<Made>>,
}

struct Made {
    tools: Arc<[ToolDescriptor]>,
    section: Option<JsonValue>,
    view: View,
}

impl Views {
    /// Returns the view of the current agent's tools, under its rules.
    fn view(&self, ctx: &PhaseContext) -> Result<View, StateError> {
        let tools = if ctx.tools.is_empty() { &self.seed } else { &ctx.tools };
        let section = ctx.agent_spec.sections.get(DeferredToolsConfigKey::KEY);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // Each run has a list of its own, mostly of the same tools.
        let is_same = |known: &Arc<[ToolDescriptor]>| Arc::ptr_eq(known, tools) || known == tools;
        let place = made.iter().position(|known| is_same(&known.tools) && known.section.as_ref() == section);
        if let Some(place) = place {
            return Ok(made[place].view.clone());
        }
        let policy = if let Some(section) = section {
            DeferralPolicy::of_section(section, &self.defaults, self.default_mode)
        } else {
            let config =
                DeferredToolsConfig { default_mode: self.default_mode, ..DeferredToolsConfig::default() };
            DeferralPolicy::new(&config, &self.defaults)
        };
        let policy = policy
            .map_err(|message| StateError::KeyDecode { key: DeferredToolsConfigKey::KEY.into(), message })?;
        let can_search = ctx.tools.is_empty() || tools.iter().any(|tool| tool.id == TOOL_SEARCH);
        let index = Arc::new(Index::new(tools, &policy));
        let view = View { index, policy: Arc::new(policy), can_search };
        if made.len() == KEPT_VIEWS {
            made.remove(0);
        }
        made.push(Made { tools: Arc::clone(tools), section: section.cloned(), view: view.clone() });
        Ok(view)
    }
}

impl Plugin for DeferredToolsPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(DEFERRED_TOOLS_PLUGIN, "lists tool names and loads their parameters on demand")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        let views = || Arc::clone(&self.views);
        let thread = StateKeyOptions { scope: KeyScope::Thread, ..StateKeyOptions::default() };
        registrar.register_key::<DeferralState>(thread)?;
        registrar.register_key::<DiscBetaState>(thread)?;
        registrar.register_key::<ToolUsageStats>(thread)?;
        registrar.register_key::<DeferralRegistry>(StateKeyOptions {
            persistent: false,
            ..StateKeyOptions::default()
        })?;
        registrar.register_scheduled_action::<DeferToolAction, _>(Handlers(views()))?;
        registrar.register_scheduled_action::<PromoteToolAction, _>(Handlers(views()))?;
        registrar.register_scheduled_action::<SettleAction, _>(Handlers(views()))?;
        registrar.register_hook(Phase::BeforeInference, ShapeHook(views()));
        registrar.register_hook(Phase::AfterInference, CountHook(views()));
        registrar.register_hook(Phase::BeforeToolExecute, RegisterHook(views()));
        registrar.register_profile_key::<AgentToolPriors>()?;
        registrar.register_tool(TOOL_SEARCH, Arc::new(ToolSearchTool))
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        vec![ConfigSchema {
            key: DeferredToolsConfigKey::KEY,
            json_schema: schemars::schema_for!(DeferredToolsConfig),
        }]
    }

    fn check_section(&self, _key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        Ok(DeferralPolicy::of_section(section, &self.views.defaults, self.views.default_mode).map(drop)?)
    }
}
