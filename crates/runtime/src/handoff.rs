//! Handoff: at the start of a step the driver switches to the agent that the state names.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::breaker::CircuitBreaker;
use super::catalog::Catalog;
use super::driver::Driver;
use super::resolve::{ResolveError, ResolvedAgent, resolve_spec};
use super::{RuntimeCore, RuntimeError};
use aye_core::contract::activity::{Activity, KnownActivity, NoticeActivity};
use aye_core::contract::handoff::{ActiveAgentKey, AgentOverlay, HandoffAction, HandoffBase, HandoffState};
use aye_core::contract::message::{Message, Visibility};
use aye_core::contract::record::RunRecord;
use aye_core::contract::spec::AgentSpec;
use aye_core::phase::Plugin;
use aye_core::state::{MutationBatch, StateKey as _};

/// The source of the messages shown to the user.
const SOURCE: &str = "handoff";

/// The agents of a run.
pub(super) struct Handoff {
    /// The agent that the run started with.
    base: ResolvedAgent,
    /// The agent that took over from it.
    active: Option<String>,
    /// Whether the user has been notified.
    is_reported: bool,
    /// The state of the catalog that the agent's tools are from.
    pub(super) catalog_revision: u64,
}

impl Handoff {
    /// Returns the handoff of a run and the agent that continues it. A missing agent is noticed at the next
    /// step.
    pub(super) fn of(
        shared: &RuntimeCore,
        record: &RunRecord,
        thread_state: &BTreeMap<String, Value>,
        base: ResolvedAgent,
    ) -> (Self, ResolvedAgent) {
        // A run that an older version saved has it in its own state.
        let stored = |key: &str| record.state.get(key).or_else(|| thread_state.get(key)).cloned();
        let known = stored(HandoffBase::KEY).and_then(|value| HandoffBase::decode(value).ok()).flatten();
        let active = stored(ActiveAgentKey::KEY)
            .and_then(|value| ActiveAgentKey::decode(value).ok())
            .and_then(|state| state.active_agent)
            .filter(|id| *id != base.spec.id && known.is_none_or(|known| known == base.spec.id));
        let resolved = active.as_deref().and_then(|id| {
            variant(&shared.catalog_at(base.revision), &shared.breaker, &base, id)
                .inspect_err(|error| tracing::warn!(run = %record.id, agent = id, %error, "not handed off"))
                .ok()
        });
        let active = active.filter(|_| resolved.is_some());
        let agent = resolved.unwrap_or_else(|| base.clone());
        (Self { base, active, is_reported: false, catalog_revision: shared.catalog().revision }, agent)
    }

    /// Returns the agent that took over from it.
    pub(super) fn active(&self) -> Option<&String> {
        self.active.as_ref()
    }

    /// Returns the agent that the run started with.
    pub(super) fn base(&self) -> &ResolvedAgent {
        &self.base
    }
}

impl Driver {
    /// Switches to the agent that the state names, if it differs from the current one.
    pub(super) async fn follow_handoff(&mut self) -> Result<(), RuntimeError> {
        let state: HandoffState = self.phases.store().read::<ActiveAgentKey>().unwrap_or_default();
        let wanted = state.active_agent.filter(|id| *id != self.handoff.base.spec.id);
        if wanted != self.handoff.active {
            return self.hand_off(wanted).await;
        }
        if let Some(id) = wanted.filter(|_| !self.handoff.is_reported) {
            self.handoff.is_reported = true;
            self.emit_handoff_notice(format!("handed off to {id}")).await;
        }
        Ok(())
    }

    async fn hand_off(&mut self, wanted: Option<String>) -> Result<(), RuntimeError> {
        let shared = Arc::clone(&self.shared);
        let (resolved, revision) = {
            let catalog = shared.catalog_at(self.handoff.base.revision);
            let resolved = match &wanted {
                None => Ok(self.handoff.base.clone()),
                Some(id) => variant(&catalog, &shared.breaker, &self.handoff.base, id)
                    .map_err(|error| catalog.advice(&error)),
            };
            (resolved, catalog.revision)
        };
        let next = match resolved {
            Ok(next) => next,
            Err(why) => return self.refuse_handoff(&wanted.unwrap_or_default(), &why).await,
        };
        self.phases.install(&next.env)?;
        self.phases.hand_off((&self.agent.env, &self.agent.spec), (&next.env, &next.spec))?;
        self.agent = next;
        self.handoff.catalog_revision = revision;
        // The user's choice of a model was for the first agent and does not apply to another one.
        self.inference.overrides.model = None;
        let name = wanted.clone().unwrap_or_else(|| self.handoff.base.spec.id.clone());
        self.handoff.active = wanted;
        self.handoff.is_reported = true;
        self.emit_handoff_notice(format!("handed off to {name}, with {}", self.agent.model_id)).await;
        Ok(())
    }

    /// Keeps the current agent, and reports the reason to the user and to the model, whose result had
    /// announced the handoff.
    async fn refuse_handoff(&mut self, wanted: &str, why: &str) -> Result<(), RuntimeError> {
        let stays = match &self.handoff.active {
            Some(agent) => HandoffAction::Activate { agent: agent.clone() },
            None => HandoffAction::Clear,
        };
        let mut batch = MutationBatch::new();
        batch.update::<ActiveAgentKey>(stays);
        self.phases.store().commit_batch(batch)?;
        let text = format!("the conversation was not handed off to `{wanted}`: {why}");
        let mut message = Message::user(text.clone());
        message.visibility = Visibility::Internal;
        self.append_message(message);
        self.emit_activities(vec![Activity::warning(SOURCE, text)]).await;
        Ok(())
    }

    fn emit_handoff_notice(&self, text: String) -> impl Future<Output = ()> + use<> {
        // The agent and its model are for front ends that show who answers.
        let agent = self.handoff.active.as_ref().unwrap_or(&self.handoff.base.spec.id).clone();
        let notice = NoticeActivity {
            source: SOURCE.to_owned(),
            text,
            level: None,
            agent: Some(agent),
            model: Some(self.agent.model.model_name.clone()),
        };
        self.emit_activities(vec![KnownActivity::Notice(notice).into()])
    }
}

/// The agent that takes over from `base`: a variant that one of its plugins brings, else a registered agent.
fn variant(
    catalog: &Catalog,
    breaker: &Arc<CircuitBreaker>,
    base: &ResolvedAgent,
    id: &str,
) -> Result<ResolvedAgent, ResolveError> {
    let overlay = base.env.plugins.iter().find_map(|plugin| plugin.agent_overlay(id));
    let spec = if let Some(overlay) = overlay {
        overlaid(&base.spec, overlay)
    } else {
        let target = catalog.agents.get(id).ok_or_else(|| ResolveError::AgentNotFound(id.to_owned()))?;
        if target.endpoint.is_some() {
            return Err(ResolveError::RemoteAgentNotDirectlyRunnable(id.to_owned()));
        }
        taken_over(catalog, base, target)
    };
    // An agent that names no model continues with the current one.
    let model = Some(spec.model.as_str()).filter(|model| !model.is_empty()).unwrap_or(&base.model_id);
    let model = model.to_owned();
    resolve_spec(catalog, breaker, &Arc::new(spec), Some(&model))
}

fn overlaid(base: &AgentSpec, overlay: AgentOverlay) -> AgentSpec {
    let AgentOverlay { system_prompt, model, allowed_tools, excluded_tools } = overlay;
    let mut spec = base.clone();
    spec.system_prompt = system_prompt.unwrap_or(spec.system_prompt);
    spec.model = model.unwrap_or(spec.model);
    spec.allowed_tools = allowed_tools.or(spec.allowed_tools);
    spec.excluded_tools = excluded_tools.or(spec.excluded_tools);
    spec
}

/// Returns the spec of an agent that continues a run of another one. The guards of the run stay active with
/// their rules: a handoff loosens nothing.
fn taken_over(catalog: &Catalog, base: &ResolvedAgent, target: &AgentSpec) -> AgentSpec {
    let mut spec = target.clone();
    spec.max_rounds = match (base.spec.max_rounds, target.max_rounds) {
        (0, rounds) | (rounds, 0) => rounds,
        (a, b) => a.min(b),
    };
    let guards: Vec<&Arc<dyn Plugin>> =
        base.env.active_plugins(&base.spec).filter(|plugin| plugin.is_guard()).collect();
    for guard in guards {
        let name = guard.descriptor().name;
        if !spec.plugin_ids.is_empty() {
            let is_it = |plugin: &Arc<dyn Plugin>| plugin.descriptor().name == name;
            let id = catalog.plugins.iter().find_map(|(id, plugin)| is_it(plugin).then_some(id));
            spec.plugin_ids.extend(id.filter(|id| !target.plugin_ids.contains(id)).cloned());
        }
        if !spec.active_hook_filter.is_empty() {
            spec.active_hook_filter.insert(name.to_owned());
        }
        for schema in guard.config_schemas() {
            let (from, to) = (base.spec.sections.get(schema.key), spec.sections.remove(schema.key));
            if let Some(section) = guard.section_after_handoff(schema.key, from, to.as_ref()) {
                spec.sections.insert(schema.key.to_owned(), section);
            }
        }
    }
    spec
}
