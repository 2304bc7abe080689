use std::sync::Arc;

use async_trait::async_trait;

use super::state::Surfaces;
use super::tool::{A2uiRenderTool, RENDER_TOOL};
use aye_core::contract::context_message::ContextMessage;
use aye_core::phase::{
    AddContextMessage, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar,
};
use aye_core::state::{KeyScope, Phase, StateCommand, StateError, StateKeyOptions};

pub const A2UI_PLUGIN: &str = "generative-ui";

/// The plugin that adds `render_a2ui`. The tool's description explains its use to the model; a program's own
/// instructions are sent as a separate context message.
#[derive(Clone, Debug, Default)]
pub struct A2uiPlugin {
    instructions: Option<String>,
}

impl A2uiPlugin {
    /// Only the tool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the catalogue that surfaces are made from.
    pub fn with_catalog_id(catalog_id: impl AsRef<str>) -> Self {
        let id = catalog_id.as_ref();
        Self::with_custom_instructions(format!("Surfaces of render_a2ui have \"catalogId\": \"{id}\"."))
    }

    /// The same, with examples.
    pub fn with_catalog_and_examples(catalog_id: impl AsRef<str>, examples: impl AsRef<str>) -> Self {
        let mut plugin = Self::with_catalog_id(catalog_id);
        if let Some(instructions) = &mut plugin.instructions {
            instructions.push('\n');
            instructions.push_str(examples.as_ref());
        }
        plugin
    }

    /// These instructions and no others.
    pub fn with_custom_instructions(instructions: impl Into<String>) -> Self {
        Self { instructions: Some(instructions.into()) }
    }
}

impl Plugin for A2uiPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: A2UI_PLUGIN }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<Surfaces>(StateKeyOptions {
            scope: KeyScope::Thread,
            ..StateKeyOptions::default()
        })?;
        registrar.register_tool(RENDER_TOOL, Arc::new(A2uiRenderTool))?;
        if let Some(instructions) = &self.instructions {
            registrar.register_hook(Phase::BeforeInference, Instruct(instructions.clone()));
        }
        Ok(())
    }
}

struct Instruct(String);

#[async_trait]
impl PhaseHook for Instruct {
    async fn run(&self, _: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let message = ContextMessage::system_persistent("generative_ui.instructions", &self.0);
        command.schedule_action::<AddContextMessage>(message)?;
        Ok(command)
    }
}
