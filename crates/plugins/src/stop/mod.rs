//! Stop policies: conditions that end a run although the model would continue.
//!
//! Conditions are checked in this order: those the plugin was created with, the agent's config section
//! `stop`, the agent's `max_rounds`, the budget. The first one that is met ends the run with
//! `TerminationReason::Stopped` and its code. Budgets, time and content are checked after each inference; the
//! others at the end of a step, when all its calls are settled, and only if another step would follow. A time
//! limit also interrupts an inference or a tool ([`Plugin::time_limit`]).
//!
//! Some conditions remind the model before they are met, and [`EndCheck`] reminds it before an answer ends the run. A
//! reminder is a message of the conversation, which stays; whether it was given is part of the checkpoint.

mod ask;
mod budget;
mod config;
mod end;
mod hook;
mod policy;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use ask::OtherModels;
pub use budget::Prices;
pub use config::{StopConditionSpec, StopConfig, StopConfigError, StopConfigKey, policies_from_specs};
pub use end::EndCheck;
pub use policy::{
    ConsecutiveErrorsPolicy, ContentMatchPolicy, LoopDetectionPolicy, MaxRoundsPolicy, RepeatedCallsPolicy,
    StopDecision, StopOnToolPolicy, StopPoint, StopPolicy, StopPolicyStats, TimeoutPolicy, TokenBudgetPolicy,
};
pub use state::{
    CallRepeats, CountedFrom, SettledCall, StopState, StopStateKey, StopStateUpdate, fingerprint,
};

use self::ask::{ReadLimitAnswer, SwitchHook};
use self::budget::Budget;
use self::hook::{Conditions, JudgeHook, RecordHook};
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::spec::{AgentSpec, PluginConfigKey};
use aye_core::phase::{ConfigSchema, Plugin, PluginDescriptor, PluginRegistrar, TimeLimit};
use aye_core::state::{JsonValue, Phase, StateError, StateKeyOptions};

/// The name of the plugin.
pub const STOP_PLUGIN: &str = "stop";

/// Ends runs by the conditions it was made with and by those of each agent.
pub struct StopPlugin {
    conditions: Arc<Conditions>,
}

impl StopPlugin {
    /// A plugin with these conditions for every agent.
    ///
    /// # Errors
    /// [`StopConfigError`] for a condition that can never work.
    pub fn new(specs: Vec<StopConditionSpec>) -> Result<Self, StopConfigError> {
        Ok(Self::with_policies(policies_from_specs(&specs)?))
    }

    /// Creates a plugin with custom policies.
    pub fn with_policies(policies: Vec<Arc<dyn StopPolicy>>) -> Self {
        Self { conditions: Arc::new(Conditions::new(policies)) }
    }

    /// Also ends a run that cost more than this at these prices. A model whose price is unknown, or that does
    /// not report its usage, ends the run too, because the cost of the next answer could not be determined.
    #[must_use]
    pub fn with_budget(self, most: f64, prices: Prices) -> Self {
        Self { conditions: Arc::new(self.conditions.under(Budget { most, prices })) }
    }

    /// Makes a limit ask whether to continue instead of ending the run: budget, rounds, tokens, consecutive
    /// errors and loops. The answer makes all of them restart their count from there; an answer about the
    /// budget may name another model.
    #[must_use]
    pub fn asking(self, models: OtherModels) -> Self {
        Self { conditions: Arc::new(self.conditions.asking(models)) }
    }

    /// Makes consecutive errors and repeated calls ask whether to continue, also where other limits end the run.
    #[must_use]
    pub fn asking_about_circles(self) -> Self {
        Self { conditions: Arc::new(self.conditions.asking_about_circles()) }
    }

    /// Has the model answer once more, at most once in a run, when its answer would end the run although it left its work
    /// unchecked or open.
    #[must_use]
    pub fn checking_ends(self, check: EndCheck) -> Self {
        Self { conditions: Arc::new(self.conditions.checking_ends(check)) }
    }
}

impl Default for StopPlugin {
    /// Only what the agents themselves ask for.
    fn default() -> Self {
        Self::with_policies(Vec::new())
    }
}

impl Plugin for StopPlugin {
    fn is_guard(&self) -> bool {
        true
    }

    /// The conditions of both.
    fn section_after_handoff(
        &self,
        _key: &str,
        from: Option<&JsonValue>,
        to: Option<&JsonValue>,
    ) -> Option<JsonValue> {
        let (Some(from), Some(to)) = (from, to) else { return from.or(to).cloned() };
        let mut both = to.clone();
        if let (Some(own), Some(old)) = (both["conditions"].as_array_mut(), from["conditions"].as_array()) {
            own.splice(0..0, old.iter().cloned());
            return Some(both);
        }
        Some(from.clone())
    }

    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: STOP_PLUGIN }
    }

    fn time_limit(&self, agent_spec: &AgentSpec) -> Option<TimeLimit> {
        self.conditions.time_limit(agent_spec)
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<StopStateKey>(StateKeyOptions::default())?;
        registrar.register_hook(
            Phase::AfterInference,
            JudgeHook { conditions: Arc::clone(&self.conditions), point: StopPoint::AfterInference },
        );
        // A question may have been asked before the setting changed.
        registrar.register_scheduled_action::<ReadLimitAnswer, _>(ReadLimitAnswer)?;
        registrar.register_hook(Phase::BeforeInference, SwitchHook);
        registrar
            .register_hook(Phase::AfterToolExecute, RecordHook { conditions: Arc::clone(&self.conditions) });
        registrar.register_hook(
            Phase::StepEnd,
            JudgeHook { conditions: Arc::clone(&self.conditions), point: StopPoint::StepEnd },
        );
        Ok(())
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        vec![ConfigSchema { key: StopConfigKey::KEY, json_schema: schemars::schema_for!(StopConfig) }]
    }

    fn check_section(&self, _key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        Ok(config::parse(section).map(drop)?)
    }
}
