//! At the end of a step or a run, closes the questions of MCP servers with their calls. Before each inference, gives
//! the model the servers' instructions.

use async_trait::async_trait;

use crate::contract::context_message::ContextMessage;
use crate::mcp::{Guidance, Questions};
use crate::phase::{AddContextMessage, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar};
use crate::state::{Phase, StateCommand, StateError};

/// The plugin's name.
pub(crate) const MCP_PLUGIN: &str = "mcp";

/// Closes the questions of servers without an answer when the user denies the call or stops the run.
pub(crate) struct ElicitationPlugin(pub(crate) Questions, pub(crate) Guidance);

impl Plugin for ElicitationPlugin {
    // This applies to every agent that calls the tool: the server must learn that no answer will come.
    fn is_guard(&self) -> bool {
        true
    }

    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(
            MCP_PLUGIN,
            "adds MCP server instructions to the context and closes their questions with their calls",
        )
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::BeforeInference, Guide(self.1.clone()));
        registrar.register_hook(Phase::StepEnd, Forget(self.0.clone()));
        registrar.register_hook(Phase::RunEnd, Forget(self.0.clone()));
        Ok(())
    }
}

struct Guide(Guidance);

#[async_trait]
impl PhaseHook for Guide {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if let Some(text) = self.0.text(ctx.tools.iter().map(|tool| tool.id.as_str())) {
            command.schedule_action::<AddContextMessage>(ContextMessage::system("mcp.instructions", text))?;
        }
        Ok(command)
    }
}

struct Forget(Questions);

#[async_trait]
impl PhaseHook for Forget {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        self.0.forget(ctx.run_identity.run_id.as_str());
        Ok(StateCommand::new())
    }
}
