//! What the model is told about the project and the day: texts of their own, so that a change of one is said in a message
//! and leaves the rest of the prompt as it is.

use async_trait::async_trait;
use jiff::tz::TimeZone;

use crate::contract::context_message::ContextMessage;
use crate::phase::{AddContextMessage, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar};
use crate::state::{Phase, StateCommand, StateError};

/// The plugin's name.
pub(crate) const ENVIRONMENT_PLUGIN: &str = "environment";

/// Offers the instructions of the user and the project, and the date.
#[derive(Clone)]
pub(crate) struct EnvironmentPlugin {
    instructions: String,
    zone: fn() -> TimeZone,
}

impl EnvironmentPlugin {
    /// The date is that of the zone at the time of each request.
    pub(crate) fn new(instructions: &str, zone: fn() -> TimeZone) -> Self {
        let instructions = match instructions.trim() {
            "" => String::new(),
            text => format!("# Instructions of the user and the project\n\n{text}"),
        };
        Self { instructions, zone }
    }
}

impl Plugin for EnvironmentPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(
            ENVIRONMENT_PLUGIN,
            "adds the project's instructions and the date to the context",
        )
    }

    // They are for every agent of the workspace.
    fn is_guard(&self) -> bool {
        true
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::BeforeInference, self.clone());
        Ok(())
    }
}

#[async_trait]
impl PhaseHook for EnvironmentPlugin {
    async fn run(&self, _ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let mut add = |key: &str, text: &str| {
            command.schedule_action::<AddContextMessage>(ContextMessage::system(
                format!("environment.{key}"),
                text,
            ))
        };
        if !self.instructions.is_empty() {
            add("instructions", &self.instructions)?;
        }
        let date = jiff::Timestamp::now().to_zoned((self.zone)()).date();
        add("date", &format!("Date: {date}."))?;
        Ok(command)
    }
}

/// The estimated tokens of the instructions in a request.
pub(crate) fn tokens_of(instructions: &str) -> usize {
    match instructions.trim().len() {
        0 => 0,
        bytes => bytes / 4 + 12,
    }
}
