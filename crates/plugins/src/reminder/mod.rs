//! Reminders: messages to the model after tool calls that match a rule.
//!
//! Rules are data, from `reminders.json` and from the section `reminder` of an agent. After each call that
//! ran, every rule is checked against the tool, its arguments and its result, in order; each rule that
//! matches adds its text to the model's context in the next step and is shown to the user, unless it fired
//! within its cooldown.

mod config;
mod hook;
mod located;
mod output;
mod read;
mod rule;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use config::{
    ContentEntry, FieldEntry, FieldsEntry, OutputEntry, OutputMatchEntry, ReminderConfigKey,
    ReminderMessageEntry, ReminderRuleEntry, ReminderRulesConfig, load_rules,
};
pub use output::{ContentMatcher, FieldMatcher, OutputMatcher, ResultView, StatusMatcher};
pub use read::ReminderConfigError;
pub use rule::{ReminderRule, ReminderTarget};
pub use state::RemindersFired;

use self::hook::{ReminderHook, Rules};
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::spec::PluginConfigKey;
use aye_core::phase::{ConfigSchema, Plugin, PluginDescriptor, PluginRegistrar};
use aye_core::state::{JsonValue, Phase, StateError, StateKeyOptions};

/// The name of the plugin.
pub const REMINDER_PLUGIN: &str = "reminder";

/// Reminds by the rules it was made with and by those of each agent.
pub struct ReminderPlugin {
    rules: Arc<Rules>,
}

impl ReminderPlugin {
    /// A plugin with these rules for every agent.
    pub fn new(rules: Vec<ReminderRule>) -> Self {
        Self { rules: Arc::new(Rules::new(rules)) }
    }
}

impl Plugin for ReminderPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(REMINDER_PLUGIN, "adds reminders by rules after tool calls")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<RemindersFired>(StateKeyOptions::default())?;
        registrar.register_hook(Phase::AfterToolExecute, ReminderHook { rules: Arc::clone(&self.rules) });
        Ok(())
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        vec![ConfigSchema {
            key: ReminderConfigKey::KEY,
            json_schema: schemars::schema_for!(ReminderRulesConfig),
        }]
    }

    fn check_section(&self, _key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        Ok(read::section(section).map(drop)?)
    }
}
