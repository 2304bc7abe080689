//! At the end of a step or a run, closes the questions of MCP servers with their calls. Before each inference, gives
//! the model the servers' instructions. The first run waits for servers that are being started.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;

use crate::contract::context_message::ContextMessage;
use crate::mcp::{Guidance, Manager, Questions};
use crate::phase::{AddContextMessage, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar};
use crate::state::{Phase, StateCommand, StateError};

pub(crate) const MCP_PLUGIN: &str = "mcp";

/// The start of the servers, which the first run waits for: a tool that comes after the first request of a conversation is
/// only described in a message, and many models call nothing but the tools of the list.
#[derive(Clone, Default)]
pub(super) struct ServerStart {
    servers: Arc<OnceLock<(Weak<Manager>, Duration)>>,
    awaited: Arc<tokio::sync::OnceCell<()>>,
}

impl ServerStart {
    /// Sets the servers, and how long to wait for them.
    pub(super) fn set(&self, manager: &Arc<Manager>, limit: Duration) {
        let _ = self.servers.set((Arc::downgrade(manager), limit));
    }

    /// Notes that a front end has waited.
    pub(super) fn is_over(&self) {
        let _ = self.awaited.set(());
    }

    /// Waits once until each server can be used or cannot.
    async fn over(&self) {
        let ready = async {
            let Some((manager, limit)) = self.servers.get() else { return };
            let Some(manager) = manager.upgrade().filter(|manager| !manager.is_empty()) else { return };
            manager.start();
            let _ = manager.ready(*limit).await;
        };
        self.awaited.get_or_init(|| ready).await;
    }
}

/// What the servers share with the runs that use them.
#[derive(Clone, Default)]
pub(crate) struct McpLinks {
    /// The questions that servers ask the user.
    pub(super) questions: Questions,
    /// Their instructions for the model.
    pub(super) guidance: Guidance,
    pub(super) first_start: ServerStart,
}

/// Closes the questions of servers without an answer when the user denies the call or stops the run.
pub(crate) struct ElicitationPlugin(pub(crate) McpLinks);

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
        registrar.register_hook(Phase::RunStart, AwaitServers(self.0.first_start.clone()));
        registrar.register_hook(Phase::BeforeInference, Guide(self.0.guidance.clone()));
        registrar.register_hook(Phase::StepEnd, Forget(self.0.questions.clone()));
        registrar.register_hook(Phase::RunEnd, Forget(self.0.questions.clone()));
        Ok(())
    }
}

struct AwaitServers(ServerStart);

#[async_trait]
impl PhaseHook for AwaitServers {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        tokio::select! {
            () = self.0.over() => {}
            () = ctx.cancellation.cancelled() => {}
        }
        Ok(StateCommand::new())
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
