use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::output::ResultView;
use super::read;
use super::rule::ReminderRule;
use super::{REMINDER_PLUGIN, ReminderConfigKey, RemindersFired};
use aye_core::contract::activity::{Activity, ReportActivity};
use aye_core::contract::spec::{AgentSpec, PluginConfigKey};
use aye_core::phase::{AddContextMessage, PhaseContext, PhaseHook};
use aye_core::state::{JsonValue, StateCommand, StateError};

/// Rules with the keys they are remembered by: a name may be used twice, a place may not.
type Keyed = Arc<[(String, ReminderRule)]>;

fn keyed(place: &str, rules: Vec<ReminderRule>) -> Keyed {
    rules.into_iter().enumerate().map(|(i, rule)| (format!("{place}.{i}.{}", rule.name), rule)).collect()
}

/// The rules of the plugin and of the current agent.
pub(super) struct Rules {
    own: Keyed,
    /// The section read last and the rules it contained, so that a section is read and its patterns compiled
    /// only once.
    section: Mutex<Option<(JsonValue, Keyed)>>,
}

impl Rules {
    pub(super) fn new(own: Vec<ReminderRule>) -> Self {
        Self { own: keyed("own", own), section: Mutex::new(None) }
    }

    fn of_section(&self, spec: &AgentSpec) -> Result<Keyed, StateError> {
        let Some(section) = spec.sections.get(ReminderConfigKey::KEY) else { return Ok(Arc::from([])) };
        let mut known = self.section.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((text, rules)) = known.as_ref()
            && text == section
        {
            return Ok(Arc::clone(rules));
        }
        let rules = read::section(section).map_err(|error| StateError::KeyDecode {
            key: ReminderConfigKey::KEY.into(),
            message: error.to_string(),
        })?;
        let rules = keyed("agent", rules);
        *known = Some((section.clone(), Arc::clone(&rules)));
        Ok(rules)
    }
}

/// Checks each settled call against the rules.
pub(super) struct ReminderHook {
    pub(super) rules: Arc<Rules>,
}

#[async_trait]
impl PhaseHook for ReminderHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let (Some(tool), Some(result)) = (&ctx.tool, &ctx.tool_result) else { return Ok(command) };
        let section = self.rules.of_section(&ctx.agent_spec)?;
        let step = ctx.progress.steps;
        let seen = ResultView::new(result);
        for (key, rule) in self.rules.own.iter().chain(section.iter()) {
            let last = ctx.state::<RemindersFired>().and_then(|fired| fired.get(key));
            // Twice in one step is once: the model reads all results of a step together.
            let rests = last.is_some_and(|last| step.saturating_sub(*last) <= rule.cooldown_turns);
            if rests || !rule.matches(tool, &seen) {
                continue;
            }
            tracing::debug!(rule = %rule.name, "reminder rule matched, scheduling context message");
            command.update::<RemindersFired>((key.clone(), step));
            command.schedule_action::<AddContextMessage>(rule.message(key))?;
            command.emit::<ReportActivity>(Activity::notice(REMINDER_PLUGIN, rule.notice()))?;
        }
        Ok(command)
    }
}
