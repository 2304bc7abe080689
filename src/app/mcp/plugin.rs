//! Where a step or a run ends, the calls of servers that still wait for a person end too.

use async_trait::async_trait;

use crate::mcp::Questions;
use crate::phase::{PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar};
use crate::state::{Phase, StateCommand, StateError};

/// The plugin's name.
pub(in crate::app) const MCP_PLUGIN: &str = "mcp";

/// Tells servers that their questions have no answer: the person said no to the call, or stopped the run.
pub(in crate::app) struct McpPlugin(pub(in crate::app) Questions);

impl Plugin for McpPlugin {
    // Whichever agent called the tool: its server must hear that nobody answers.
    fn is_guard(&self) -> bool {
        true
    }

    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(MCP_PLUGIN, "ends the questions of tool servers with their calls")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::StepEnd, Forget(self.0.clone()));
        registrar.register_hook(Phase::RunEnd, Forget(self.0.clone()));
        Ok(())
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
