use std::sync::Arc;
use std::time::Duration;

use super::env::{TaggedPhaseHook, TaggedRequestTransform, TaggedTool};
use super::{
    ExecutionEnv, InferenceRequestTransform, PhaseHook, TypedEffectHandler, TypedScheduledActionHandler,
    action, effect,
};
use crate::contract::foreign::ForeignError;
use crate::contract::handoff::AgentOverlay;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::profile::ProfileKey;
use crate::contract::spec::AgentSpec;
use crate::contract::tool::Tool;
use crate::state::{
    EffectSpec, JsonValue, KeyRegistration, MutationBatch, Phase, ScheduledActionSpec, StateError, StateKey,
    StateKeyOptions, StateStore,
};

/// The name of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginDescriptor {
    /// Unique among the plugins of a program; what `active_hook_filter` and `plugin_ids` name.
    pub name: &'static str,
}

impl PluginDescriptor {
    /// Returns a descriptor with this name. The description is for readers of the code, and is not stored.
    pub const fn new(name: &'static str, _description: &'static str) -> Self {
        Self { name }
    }
}

/// The shape of a config section.
#[derive(Clone, Debug)]
pub struct ConfigSchema {
    /// The section's name in [`AgentSpec::sections`].
    pub key: &'static str,
    /// The schema of the section.
    pub json_schema: schemars::Schema,
}

/// The maximum time that a run may be active: a limit that interrupts an inference or a tool, whereas hooks
/// only run between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeLimit {
    /// The time active; waiting for a user does not count.
    pub active: Duration,
    /// Why the run ends then.
    pub reason: TerminationReason,
}

/// Behaviour that hooks into the phases of a run.
pub trait Plugin: Send + Sync + 'static {
    /// Returns the name of the plugin.
    fn descriptor(&self) -> PluginDescriptor;

    /// Registers the parts of the plugin. Called for each agent that is resolved.
    ///
    /// # Errors
    /// The error of the registrar.
    fn register(&self, _registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        Ok(())
    }

    /// The same for one agent, when what it has depends on the agent.
    ///
    /// # Errors
    /// What the registrar says.
    fn register_for(
        &self,
        registrar: &mut PluginRegistrar,
        _agent_spec: &AgentSpec,
    ) -> Result<(), StateError> {
        self.register(registrar)
    }

    /// Returns whether every agent of a program must use the plugin, because it sets permissions or limits:
    /// an agent's list in a file cannot leave the plugin out, and the plugin stays with a run that another
    /// agent continues.
    fn is_guard(&self) -> bool {
        false
    }

    /// Returns a section of a guard when an agent with the section `to` continues the run of an agent with
    /// the section `from`. Nothing of `from` may become looser.
    fn section_after_handoff(
        &self,
        _key: &str,
        from: Option<&JsonValue>,
        to: Option<&JsonValue>,
    ) -> Option<JsonValue> {
        from.or(to).cloned()
    }

    /// Returns how long a run of the agent may be active, if the plugin limits that time.
    fn time_limit(&self, _agent_spec: &AgentSpec) -> Option<TimeLimit> {
        None
    }

    /// The variant of an agent that it brings under a name.
    fn agent_overlay(&self, _name: &str) -> Option<AgentOverlay> {
        None
    }

    /// The config sections it reads; an agent with a section that does not fit is not started.
    fn config_schemas(&self) -> Vec<ConfigSchema> {
        Vec::new()
    }

    /// Looks at one of its sections for what a schema cannot say, or says badly. It is asked before the schema is, so
    /// that its sentence is the one that a person reads; the section may be anything.
    ///
    /// # Errors
    /// The plugin's own, whose words are for the user who wrote the section.
    fn check_section(&self, _key: &str, _section: &JsonValue) -> Result<(), ForeignError> {
        Ok(())
    }

    /// Writes first values when a run of an agent that uses the plugin starts.
    ///
    /// # Errors
    /// Any [`StateError`]; the run does not start.
    fn on_activate(&self, _agent_spec: &AgentSpec, _batch: &mut MutationBatch) -> Result<(), StateError> {
        Ok(())
    }

    /// Cleans up when an agent that does not use the plugin continues the run.
    ///
    /// # Errors
    /// Any [`StateError`].
    fn on_deactivate(&self, _batch: &mut MutationBatch) -> Result<(), StateError> {
        Ok(())
    }
}

/// The only way to register the parts of a plugin.
///
/// Keys of both kinds, action handlers and effect handlers are structural: they are registered whatever the
/// agent's `active_hook_filter` contains. Hooks, tools and transforms are behaviour: they are only used if
/// the filter is empty or names the plugin.
#[derive(Debug)]
pub struct PluginRegistrar {
    plugin: String,
    pub(super) env: ExecutionEnv,
}

impl PluginRegistrar {
    /// An empty registrar for one plugin, for tests of `register`.
    pub fn new(plugin: impl Into<String>) -> Self {
        Self { plugin: plugin.into(), env: ExecutionEnv::bare() }
    }

    pub(super) fn begin(&mut self, plugin: &str) {
        plugin.clone_into(&mut self.plugin);
    }

    /// Returns everything registered so far.
    pub fn registered(&self) -> &ExecutionEnv {
        &self.env
    }

    /// Registers a state key.
    ///
    /// # Errors
    /// [`StateError::KeyAlreadyRegistered`].
    pub fn register_key<K: StateKey>(&mut self, options: StateKeyOptions) -> Result<(), StateError> {
        if self.env.key_registrations.iter().any(|known| known.key == K::KEY) {
            return Err(StateError::KeyAlreadyRegistered { key: K::KEY.into() });
        }
        self.env.key_registrations.push(KeyRegistration::of::<K>(options));
        Ok(())
    }

    /// Registers a namespace of values that outlive a thread. Plugins may share one by sharing its type.
    ///
    /// # Errors
    /// [`StateError::ProfileKeyAlreadyRegistered`] when another type has the namespace.
    pub fn register_profile_key<K: ProfileKey>(&mut self) -> Result<(), StateError> {
        Arc::make_mut(&mut self.env.profile_keys).register::<K>()
    }

    /// Registers a hook that is active when `plugin_id` is.
    ///
    /// # Errors
    /// None today; a hook cannot collide with another one.
    pub fn register_phase_hook<H: PhaseHook>(
        &mut self,
        plugin_id: impl Into<String>,
        phase: Phase,
        hook: H,
    ) -> Result<(), StateError> {
        let tagged = TaggedPhaseHook { plugin_id: plugin_id.into(), hook: Arc::new(hook) };
        self.env.phase_hooks.entry(phase).or_default().push(tagged);
        Ok(())
    }

    /// Registers a hook that is active when the plugin is.
    pub fn register_hook<H: PhaseHook>(&mut self, phase: Phase, hook: H) {
        let tagged = TaggedPhaseHook { plugin_id: self.plugin.clone(), hook: Arc::new(hook) };
        self.env.phase_hooks.entry(phase).or_default().push(tagged);
    }

    /// Registers a tool; the id is the one in its descriptor.
    ///
    /// # Errors
    /// [`StateError::ToolAlreadyRegistered`], [`StateError::ToolIdMismatch`].
    pub fn register_tool(&mut self, id: impl Into<String>, tool: Arc<dyn Tool>) -> Result<(), StateError> {
        let tool_id = id.into();
        let declared = tool.descriptor().id;
        if declared != tool_id {
            return Err(StateError::ToolIdMismatch { tool_id, declared });
        }
        if self.env.tools.contains_key(&tool_id) {
            return Err(StateError::ToolAlreadyRegistered { tool_id });
        }
        self.env.tools.insert(tool_id, TaggedTool { plugin_id: self.plugin.clone(), tool });
        Ok(())
    }

    /// Registers the handler of an action.
    ///
    /// # Errors
    /// [`StateError::HandlerAlreadyRegistered`].
    pub fn register_scheduled_action<A, H>(&mut self, handler: H) -> Result<(), StateError>
    where
        A: ScheduledActionSpec,
        H: TypedScheduledActionHandler<A>,
    {
        if self.env.knows_action(A::KEY) {
            return Err(StateError::HandlerAlreadyRegistered { key: A::KEY.into() });
        }
        self.env.scheduled_action_handlers.insert(A::KEY.into(), action::erased::<A, H>(handler));
        Ok(())
    }

    /// Registers the handler of an effect.
    ///
    /// # Errors
    /// [`StateError::EffectHandlerAlreadyRegistered`].
    pub fn register_effect<E, H>(&mut self, handler: H) -> Result<(), StateError>
    where
        E: EffectSpec,
        H: TypedEffectHandler<E>,
    {
        if self.env.effect_handlers.contains_key(E::KEY) {
            return Err(StateError::EffectHandlerAlreadyRegistered { key: E::KEY.into() });
        }
        self.env.effect_handlers.insert(E::KEY.into(), effect::erased::<E, H>(handler));
        Ok(())
    }

    /// Registers a transform that is active when `plugin_id` is.
    ///
    /// # Errors
    /// None today; a transform cannot collide with another one.
    pub fn register_request_transform<T: InferenceRequestTransform>(
        &mut self,
        plugin_id: impl Into<String>,
        transform: T,
    ) -> Result<(), StateError> {
        let tagged = TaggedRequestTransform { plugin_id: plugin_id.into(), transform: Arc::new(transform) };
        self.env.request_transforms.push(tagged);
        Ok(())
    }
}

impl StateStore {
    /// Makes the keys of a plugin known, all or none.
    ///
    /// # Errors
    /// [`StateError::PluginAlreadyInstalled`], [`StateError::KeyAlreadyRegistered`], or what `register` says.
    pub fn install_plugin<P: Plugin>(&self, plugin: P) -> Result<(), StateError> {
        let name = plugin.descriptor().name;
        let mut registrar = PluginRegistrar::new(name);
        plugin.register(&mut registrar)?;
        self.install::<P>(name, &registrar.env.key_registrations)
    }

    /// Removes the plugin's keys and their values. Keys registered with `retain_on_uninstall` stay, with their values,
    /// and belong to the next plugin that registers them in the same way.
    ///
    /// # Errors
    /// [`StateError::PluginNotInstalled`].
    pub fn uninstall_plugin<P: Plugin>(&self) -> Result<(), StateError> {
        self.uninstall::<P>()
    }
}
