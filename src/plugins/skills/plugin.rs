//! The two plugins of skills: one offers them, one keeps what was taken up before the model.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::registry::{SkillRegistry, catalogue};
use super::runner::ScriptRunner;
use super::state::{ActiveSkills, SkillConsent};
use super::tools::{
    LoadSkillResourceTool, RESOURCE_TOOL, SCRIPT_TOOL, SKILL_TOOL, SkillScriptTool, SkillTool,
};
use crate::contract::context_message::ContextMessage;
use crate::phase::{AddContextMessage, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar};
use crate::state::{KeyScope, Phase, StateCommand, StateError, StateKeyOptions};

/// Name of the plugin that offers skills.
pub const DISCOVERY_PLUGIN: &str = "skills-discovery";
/// Name of the plugin that keeps the instructions of skills before the model.
pub const ACTIVE_INSTRUCTIONS_PLUGIN: &str = "skills-active-instructions";

/// Makes the plugins of skills.
#[derive(Clone)]
pub struct SkillSubsystem {
    registry: Arc<dyn SkillRegistry>,
    scripts: Option<(Arc<dyn ScriptRunner>, PathBuf)>,
}

impl SkillSubsystem {
    /// Over a registry, without scripts.
    pub fn new(registry: Arc<dyn SkillRegistry>) -> Self {
        Self { registry, scripts: None }
    }

    /// Lets scripts run: by this runner, compiled-in ones in this folder. Without it there is no tool for them.
    #[must_use]
    pub fn with_scripts(mut self, runner: Arc<dyn ScriptRunner>, project_dir: impl Into<PathBuf>) -> Self {
        self.scripts = Some((runner, project_dir.into()));
        self
    }

    /// The registry.
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
        registrar
            .register_key::<ActiveSkills>(StateKeyOptions { persistent: true, scope: KeyScope::Thread })?;
        registrar.register_key::<SkillConsent>(StateKeyOptions { persistent: true, scope: KeyScope::Run })?;
        let Some(text) = catalogue(self.0.registry.as_ref()) else {
            // Tools for skills that are not there would only cost tokens.
            return Ok(());
        };
        registrar.register_hook(Phase::BeforeInference, CatalogueHook(text));
        let registry = || Arc::clone(&self.0.registry);
        registrar.register_tool(SKILL_TOOL, Arc::new(SkillTool::new(registry())))?;
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

/// Puts the instructions of the skills that were taken up before each inference, so that no compaction loses them.
pub struct ActiveSkillInstructionsPlugin;

impl Plugin for ActiveSkillInstructionsPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(
            ACTIVE_INSTRUCTIONS_PLUGIN,
            "keeps the instructions of active skills before the model",
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
        for (name, skill) in ctx.state::<ActiveSkills>().into_iter().flatten() {
            let text = format!(
                "<skill_instructions name=\"{name}\">\n{}\n</skill_instructions>",
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
