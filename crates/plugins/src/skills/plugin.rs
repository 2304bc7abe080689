//! The two plugins of skills: one offers them, one keeps what was taken up before the model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use async_trait::async_trait;

use super::registry::{SkillRegistry, catalogue, named};
use super::runner::ScriptRunner;
use super::state::{ActiveSkills, Invocation, InvocationUpdate, SkillConsent, SkillInvocations, SkillModel};
use super::tools::{
    LoadSkillResourceTool, RESOURCE_TOOL, SCRIPT_TOOL, SKILL_TOOL, SkillScriptTool, SkillTool,
};
use aye_core::contract::context_message::ContextMessage;
use aye_core::contract::display::escape_markup;
use aye_core::contract::inference::InferenceOverride;
use aye_core::contract::message::Role;
use aye_core::phase::{
    AddContextMessage, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar,
    SetInferenceOverride,
};
use aye_core::state::{KeyScope, Phase, StateCommand, StateError, StateKeyOptions};

/// Name of the plugin that offers skills.
pub const DISCOVERY_PLUGIN: &str = "skills-discovery";
/// Name of the plugin that keeps the instructions of skills before the model.
pub const ACTIVE_INSTRUCTIONS_PLUGIN: &str = "skills-active-instructions";

/// The agents and models that a skill's front matter may name.
#[derive(Clone, Debug, Default)]
pub struct SkillTargets {
    /// The agents that can run a skill of their own conversation.
    pub agents: Vec<String>,
    /// The registered ids of models, by the names that skills give them.
    pub models: BTreeMap<String, String>,
}

/// The targets that skills may name. They are filled in once agents and models are known; clones share them.
pub type SharedTargets = Arc<RwLock<SkillTargets>>;

/// Makes the plugins of skills.
#[derive(Clone)]
pub struct SkillSubsystem {
    registry: Arc<dyn SkillRegistry>,
    scripts: Option<(Arc<dyn ScriptRunner>, PathBuf)>,
    targets: SharedTargets,
}

impl SkillSubsystem {
    /// Over a registry, without scripts.
    pub fn new(registry: Arc<dyn SkillRegistry>) -> Self {
        Self { registry, scripts: None, targets: SharedTargets::default() }
    }

    /// Lets scripts run with this runner; compiled-in scripts run in this folder. Without a runner, the
    /// script tool is not registered.
    #[must_use]
    pub fn with_scripts(mut self, runner: Arc<dyn ScriptRunner>, project_dir: impl Into<PathBuf>) -> Self {
        self.scripts = Some((runner, project_dir.into()));
        self
    }

    /// Says which agents and models skills can name (`agent`, `model`).
    #[must_use]
    pub fn with_targets(mut self, targets: SharedTargets) -> Self {
        self.targets = targets;
        self
    }

    pub fn registry(&self) -> &Arc<dyn SkillRegistry> {
        &self.registry
    }

    /// The plugin that offers skills: catalogue, tools, state keys.
    pub fn discovery_plugin(&self) -> SkillDiscoveryPlugin {
        SkillDiscoveryPlugin(self.clone())
    }

    /// The plugin that keeps what was taken up before the model.
    pub fn active_instructions_plugin(&self) -> ActiveSkillInstructionsPlugin {
        ActiveSkillInstructionsPlugin
    }
}

/// Puts the catalogue before the model and registers the tools.
pub struct SkillDiscoveryPlugin(SkillSubsystem);

impl Plugin for SkillDiscoveryPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(DISCOVERY_PLUGIN, "offers skills to the model")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<ActiveSkills>(StateKeyOptions {
            scope: KeyScope::Thread,
            ..StateKeyOptions::default()
        })?;
        registrar.register_key::<SkillConsent>(StateKeyOptions::default())?;
        let run = StateKeyOptions::default();
        registrar.register_key::<SkillInvocations>(run)?;
        registrar.register_key::<SkillModel>(run)?;
        if self.0.registry.skills().is_empty() {
            // Tools for skills that are not there would only cost tokens.
            return Ok(());
        }
        // Those that only a user may start are not in it.
        if let Some(text) = catalogue(self.0.registry.as_ref()) {
            registrar.register_hook(Phase::BeforeInference, CatalogueHook(text));
        }
        let registry = || Arc::clone(&self.0.registry);
        registrar.register_hook(Phase::BeforeInference, InvocationHook(registry()));
        let tool = SkillTool::new(registry()).with_targets(Arc::clone(&self.0.targets));
        registrar.register_tool(SKILL_TOOL, Arc::new(tool))?;
        registrar.register_tool(RESOURCE_TOOL, Arc::new(LoadSkillResourceTool::new(registry())))?;
        if let Some((runner, project_dir)) = &self.0.scripts {
            let tool = SkillScriptTool::new(registry(), Arc::clone(runner), project_dir.clone());
            registrar.register_tool(SCRIPT_TOOL, Arc::new(tool))?;
        }
        Ok(())
    }
}

struct CatalogueHook(String);

#[async_trait]
impl PhaseHook for CatalogueHook {
    async fn run(&self, _ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        command.schedule_action::<AddContextMessage>(ContextMessage::system("skills.catalogue", &self.0))?;
        Ok(command)
    }
}

/// Notes the skills that the user started in this run by their names.
struct InvocationHook(Arc<dyn SkillRegistry>);

/// The prefix of a skill's name when a message mentions it.
const MENTION: &str = "@skill:";

#[async_trait]
impl PhaseHook for InvocationHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        // The messages since the last answer without calls are those of this run.
        let is_end = |role: Role, calls: usize| role == Role::Assistant && calls == 0;
        let written =
            ctx.messages.iter().rev().take_while(|written| !is_end(written.role, written.tool_calls.len()));
        for message in written.filter(|written| written.role == Role::User) {
            let Some(typed) = message.typed() else { continue };
            let mentions = typed.split_whitespace().filter_map(|word| word.strip_prefix(MENTION));
            let mut found: Vec<(String, Option<String>)> = mentions
                .map(|name| name.trim_end_matches([',', ';', '.', ')', '"', '\'', '?', '!']))
                .filter_map(|name| self.0.get(name))
                .map(|skill| (skill.meta().name.clone(), None))
                .collect();
            found.extend(
                named(self.0.as_ref(), typed).map(|(skill, args)| (skill.meta().name.clone(), Some(args))),
            );
            for (skill, arguments) in found {
                let message = message.id.to_string();
                let known = ctx.state::<SkillInvocations>().and_then(|known| known.get(&skill));
                if known.is_none_or(|known| known.message != message) {
                    let invocation = Invocation { message, arguments };
                    command.update::<SkillInvocations>(InvocationUpdate::Typed(skill, invocation));
                }
            }
        }
        Ok(command)
    }
}

/// Puts the instructions of the skills that were taken up before each inference, so that no compaction loses them.
pub struct ActiveSkillInstructionsPlugin;

impl Plugin for ActiveSkillInstructionsPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(
            ACTIVE_INSTRUCTIONS_PLUGIN,
            "keeps the instructions of active skills in context",
        )
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::BeforeInference, ActiveInstructionsHook);
        Ok(())
    }
}

struct ActiveInstructionsHook;

#[async_trait]
impl PhaseHook for ActiveInstructionsHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if let Some(model) = ctx.state::<SkillModel>().cloned().flatten() {
            let change = InferenceOverride { model: Some(model), ..InferenceOverride::default() };
            command.schedule_action::<SetInferenceOverride>(change)?;
        }
        for (name, skill) in ctx.state::<ActiveSkills>().into_iter().flatten() {
            let text = format!(
                "<skill_instructions name=\"{}\">\n{}\n</skill_instructions>",
                escape_markup(name),
                skill.instructions.trim_end()
            );
            command.schedule_action::<AddContextMessage>(ContextMessage::system(
                format!("skills.active.{name}"),
                text,
            ))?;
        }
        Ok(command)
    }
}
