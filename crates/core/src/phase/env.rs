use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::core_actions;
use super::{
    EffectHandlerArc, InferenceRequestTransform, PhaseContext, PhaseHook, Plugin, PluginRegistrar,
    ScheduledActionHandlerArc, TimeLimit,
};
use crate::contract::executor::InferenceRequest;
use crate::contract::judgement::JudgementAction;
use crate::contract::profile::ProfileKeys;
use crate::contract::spec::AgentSpec;
use crate::contract::tool::Tool;
use crate::contract::tool_intercept::ToolInterceptAction;
use crate::state::{KeyRegistration, Phase, ScheduledActionSpec, StateError};

/// A hook and whose it is.
#[derive(Clone)]
pub struct TaggedPhaseHook {
    pub plugin_id: String,
    pub hook: Arc<dyn PhaseHook>,
}

/// A transform and whose it is.
#[derive(Clone)]
pub struct TaggedRequestTransform {
    pub plugin_id: String,
    pub transform: Arc<dyn InferenceRequestTransform>,
}

/// A tool and whose it is.
#[derive(Clone)]
pub struct TaggedTool {
    pub plugin_id: String,
    pub tool: Arc<dyn Tool>,
}

/// Everything that the plugins of one agent registered. Created separately for each agent that is resolved.
#[derive(Clone)]
pub struct ExecutionEnv {
    /// Hooks by phase, in the order of registration.
    pub phase_hooks: HashMap<Phase, Vec<TaggedPhaseHook>>,
    /// Handlers of scheduled actions by key.
    pub scheduled_action_handlers: HashMap<String, ScheduledActionHandlerArc>,
    /// Handlers of effects by key.
    pub effect_handlers: HashMap<String, EffectHandlerArc>,
    /// Transforms in the order of registration.
    pub request_transforms: Vec<TaggedRequestTransform>,
    pub key_registrations: Vec<KeyRegistration>,
    /// Namespaces of values that outlive a thread.
    pub profile_keys: Arc<ProfileKeys>,
    /// Tools by id.
    pub tools: BTreeMap<String, TaggedTool>,
    /// The plugins, in the order given.
    pub plugins: Vec<Arc<dyn Plugin>>,
}

/// Returns whether an agent uses the behaviour of a plugin: the agent's filter is empty or names the plugin.
fn is_active(spec: &AgentSpec, plugin_id: &str) -> bool {
    spec.active_hook_filter.is_empty() || spec.active_hook_filter.contains(plugin_id)
}

impl Default for ExecutionEnv {
    /// The core actions and nothing else.
    fn default() -> Self {
        Self::from_plugins(&[]).expect("the core actions have different names")
    }
}

impl ExecutionEnv {
    /// Without even the core actions.
    pub(super) fn bare() -> Self {
        Self {
            phase_hooks: HashMap::new(),
            scheduled_action_handlers: HashMap::new(),
            effect_handlers: HashMap::new(),
            request_transforms: Vec::new(),
            key_registrations: Vec::new(),
            profile_keys: Arc::default(),
            tools: BTreeMap::new(),
            plugins: Vec::new(),
        }
    }

    /// Lets each plugin register, in order, beside the core actions.
    ///
    /// # Errors
    /// What two registrations of one name are called, [`StateError::PluginAlreadyInstalled`] for two plugins of one
    /// name, and what a plugin's `register` says.
    pub fn from_plugins(plugins: &[Arc<dyn Plugin>]) -> Result<Self, StateError> {
        Self::collect(plugins, Plugin::register)
    }

    /// The same for one agent.
    ///
    /// # Errors
    /// As [`ExecutionEnv::from_plugins`].
    pub fn for_agent(plugins: &[Arc<dyn Plugin>], spec: &AgentSpec) -> Result<Self, StateError> {
        Self::collect(plugins, |plugin, registrar| plugin.register_for(registrar, spec))
    }

    fn collect(
        plugins: &[Arc<dyn Plugin>],
        register: impl Fn(&dyn Plugin, &mut PluginRegistrar) -> Result<(), StateError>,
    ) -> Result<Self, StateError> {
        let mut registrar = PluginRegistrar::new(core_actions::PLUGIN_ID);
        core_actions::register(&mut registrar)?;
        for plugin in plugins {
            let name = plugin.descriptor().name;
            if registrar.env.plugins.iter().any(|known| known.descriptor().name == name) {
                return Err(StateError::PluginAlreadyInstalled { name: name.into() });
            }
            registrar.begin(name);
            register(plugin.as_ref(), &mut registrar)?;
            registrar.env.plugins.push(Arc::clone(plugin));
        }
        Ok(registrar.env)
    }

    /// All hooks of a phase, active or not.
    pub fn hooks_for_phase(&self, phase: Phase) -> &[TaggedPhaseHook] {
        self.phase_hooks.get(&phase).map_or(&[], Vec::as_slice)
    }

    /// The hooks of a phase that the agent uses.
    pub fn active_hooks<'a>(
        &'a self,
        phase: Phase,
        spec: &'a AgentSpec,
    ) -> impl Iterator<Item = &'a TaggedPhaseHook> {
        self.hooks_for_phase(phase).iter().filter(|tagged| is_active(spec, &tagged.plugin_id))
    }

    /// The tools that the plugins bring to the agent, by id.
    pub fn active_tools<'a>(
        &'a self,
        spec: &'a AgentSpec,
    ) -> impl Iterator<Item = (&'a str, &'a Arc<dyn Tool>)> {
        self.tools
            .iter()
            .filter(|(_, tagged)| is_active(spec, &tagged.plugin_id))
            .map(|(id, tagged)| (id.as_str(), &tagged.tool))
    }

    /// The plugins whose behaviour the agent uses.
    pub fn active_plugins<'a>(&'a self, spec: &'a AgentSpec) -> impl Iterator<Item = &'a Arc<dyn Plugin>> {
        self.plugins.iter().filter(|plugin| is_active(spec, plugin.descriptor().name))
    }

    /// The shortest time limit of the plugins whose behaviour the agent uses.
    pub fn time_limit(&self, spec: &AgentSpec) -> Option<TimeLimit> {
        self.active_plugins(spec)
            .filter_map(|plugin| plugin.time_limit(spec))
            .min_by_key(|limit| limit.active)
    }

    /// Returns whether an action with this key can be run.
    pub fn knows_action(&self, key: &str) -> bool {
        // The engine itself carries these out: they belong to one call, so they never go through shared state.
        key == ToolInterceptAction::KEY
            || key == JudgementAction::KEY
            || self.scheduled_action_handlers.contains_key(key)
    }

    /// Sends a request through the active transforms.
    ///
    /// # Errors
    /// [`StateError::Panicked`].
    pub fn transform_request(
        &self,
        request: InferenceRequest,
        ctx: &PhaseContext,
    ) -> Result<InferenceRequest, StateError> {
        let mut request = request;
        let active = |tagged: &&TaggedRequestTransform| is_active(&ctx.agent_spec, &tagged.plugin_id);
        for tagged in self.request_transforms.iter().filter(active) {
            request = catch_unwind(AssertUnwindSafe(|| tagged.transform.transform(request, ctx))).map_err(
                |panic| {
                    StateError::panicked(
                        format!("request transform of plugin `{}`", tagged.plugin_id),
                        &*panic,
                    )
                },
            )?;
        }
        Ok(request)
    }
}

impl std::fmt::Debug for ExecutionEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plugins: Vec<_> = self.plugins.iter().map(|plugin| plugin.descriptor().name).collect();
        let hooks: usize = self.phase_hooks.values().map(Vec::len).sum();
        f.debug_struct("ExecutionEnv")
            .field("plugins", &plugins)
            .field("hooks", &hooks)
            .field("tools", &self.tools.keys())
            .finish_non_exhaustive()
    }
}
