//! Handoff: a run continues as another agent, in the same conversation.
//!
//! A tool or a hook requests it ([`request_handoff`]); at the end of the step the request becomes the state's
//! active agent, and the next step starts with that agent's prompt, model and tools. An agent whose section
//! `handoff` names others has a tool for the request.

mod tool;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use self::tool::HANDOFF_TOOL;
use self::tool::HandoffTool;
use aye_core::contract::foreign::ForeignError;
pub use aye_core::contract::handoff::{
    ActiveAgentKey, AgentOverlay, HandoffAction, HandoffBase, HandoffState,
};
use aye_core::contract::spec::{AgentSpec, PluginConfigKey};
use aye_core::phase::{ConfigSchema, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar};
use aye_core::state::{JsonValue, KeyScope, Phase, StateCommand, StateError, StateKeyOptions};

/// The name of the plugin.
pub const HANDOFF_PLUGIN_ID: &str = "agent_handoff";

/// Lets an agent take over at the next boundary of a step.
pub fn request_handoff(agent: impl Into<String>) -> HandoffAction {
    HandoffAction::Request { agent: agent.into() }
}

/// Makes an agent the active one without a request.
pub fn activate_handoff(agent: impl Into<String>) -> HandoffAction {
    HandoffAction::Activate { agent: agent.into() }
}

/// Returns the action that switches back to the agent that the run started with.
pub fn clear_handoff() -> HandoffAction {
    HandoffAction::Clear
}

/// The config section `handoff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandoffConfig {
    /// The agents that may take over.
    pub agents: Vec<String>,
}

pub struct HandoffConfigKey;

impl PluginConfigKey for HandoffConfigKey {
    const KEY: &'static str = "handoff";
    type Config = HandoffConfig;
}

/// The agents that there are, with what they are for.
pub type Roster = Arc<dyn Fn() -> BTreeMap<String, Option<String>> + Send + Sync>;

/// Brings variants of agents, and the tool to hand over with.
#[derive(Clone, Default)]
pub struct HandoffPlugin {
    overlays: Arc<HashMap<String, AgentOverlay>>,
    roster: Option<Roster>,
}

impl HandoffPlugin {
    /// With variants by name; registered agents can take over beside them.
    pub fn new(overlays: HashMap<String, AgentOverlay>) -> Self {
        Self { overlays: Arc::new(overlays), roster: None }
    }

    /// Says which agents are registered, so that unknown names are refused at once and the model reads what each is for.
    #[must_use]
    pub fn with_roster(mut self, roster: Roster) -> Self {
        self.roster = Some(roster);
        self
    }

    /// The variant of a name.
    pub fn overlay(&self, name: &str) -> Option<&AgentOverlay> {
        self.overlays.get(name)
    }

    /// Returns the agent that continues the run: the requested one, otherwise the active one; `None` is the
    /// agent that the run started with.
    pub fn effective_agent(state: &HandoffState) -> Option<&String> {
        state.requested_agent.as_ref().or(state.active_agent.as_ref())
    }

    /// Returns the agents that may take over from an agent, each with its purpose.
    fn targets(&self, spec: &AgentSpec) -> BTreeMap<String, Option<String>> {
        let roster = self.roster.as_ref().map(|roster| roster());
        // A section that cannot be read was refused when the agent was resolved.
        let named: Vec<String> = if spec.sections.contains_key(HandoffConfigKey::KEY) {
            spec.config::<HandoffConfigKey>().unwrap_or_default().agents
        } else {
            self.overlays.keys().cloned().collect()
        };
        let known = |id: &String| {
            self.overlays.contains_key(id) || roster.as_ref().is_none_or(|roster| roster.contains_key(id))
        };
        let about = |id: &String| roster.as_ref().and_then(|roster| roster.get(id).cloned()).flatten();
        let named = named.into_iter().filter(|id| known(id) && *id != spec.id);
        named.map(|id| (id.clone(), about(&id))).collect()
    }
}

impl Plugin for HandoffPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(HANDOFF_PLUGIN_ID, "hands a run off to another agent")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<ActiveAgentKey>(StateKeyOptions {
            scope: KeyScope::Thread,
            ..StateKeyOptions::default()
        })?;
        registrar.register_key::<HandoffBase>(StateKeyOptions {
            scope: KeyScope::Thread,
            ..StateKeyOptions::default()
        })?;
        registrar.register_phase_hook(HANDOFF_PLUGIN_ID, Phase::RunStart, HandoffSyncHook)?;
        registrar.register_phase_hook(HANDOFF_PLUGIN_ID, Phase::StepEnd, HandoffSyncHook)
    }

    fn register_for(&self, registrar: &mut PluginRegistrar, spec: &AgentSpec) -> Result<(), StateError> {
        self.register(registrar)?;
        let targets = self.targets(spec);
        if targets.is_empty() {
            return Ok(());
        }
        registrar.register_tool(HANDOFF_TOOL, Arc::new(HandoffTool::new(targets)))
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        vec![ConfigSchema { key: HandoffConfigKey::KEY, json_schema: schemars::schema_for!(HandoffConfig) }]
    }

    fn check_section(&self, _key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        let config: HandoffConfig = serde_json::from_value(section.clone())?;
        match config.agents.iter().position(|id| id.trim().is_empty()) {
            Some(at) => Err(format!("agents[{at}]: the name is empty").into()),
            None => Ok(()),
        }
    }

    fn agent_overlay(&self, name: &str) -> Option<AgentOverlay> {
        self.overlay(name).cloned()
    }
}

/// Makes a request the active agent, at the boundaries of steps.
struct HandoffSyncHook;

#[async_trait]
impl PhaseHook for HandoffSyncHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let state = ctx.state::<ActiveAgentKey>().cloned().unwrap_or_default();
        let known = ctx.state::<HandoffBase>().cloned().flatten();
        let base = &ctx.run_identity.agent_id;
        if let Some(agent) = state.requested_agent {
            command.update::<ActiveAgentKey>(activate_handoff(agent));
        } else if ctx.phase == Phase::RunStart
            && state.active_agent.is_some()
            && known.as_ref().is_some_and(|known| known != base)
        {
            // A user chose another agent since.
            command.update::<ActiveAgentKey>(clear_handoff());
        }
        if !command.is_empty() || state.active_agent.is_some() && known.as_ref() != Some(base) {
            command.update::<HandoffBase>(Some(base.clone()));
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests;
