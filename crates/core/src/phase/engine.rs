use super::guard::guarded;
use super::phase_run::PhaseRun;
use super::{
    AnotherStep, AskBeforeNext, EffectDispatchReport, ExecutionEnv, PendingScheduledActions, PendingUpdate,
    PhaseAnswer, PhaseContext, PhaseQuestion, PhaseReport, PluginRegistrar, SubmitCommandReport,
    core_actions,
};
use crate::contract::activity::{Activity, ReportActivity};
use crate::contract::hook::{HookRan, ReportHook};
use crate::contract::spec::AgentSpec;
use crate::state::{
    EffectSpec as _, MutationBatch, Snapshot, StateCommand, StateError, StateStore, TypedEffect,
};

/// The maximum number of rounds of actions in a phase; one more is [`StateError::PhaseRunLoopExceeded`].
pub const DEFAULT_MAX_PHASE_ROUNDS: usize = 16;

/// Carries out phases on one run's state. Clones share the state.
///
/// Phases of calls that run in parallel may overlap: each keeps its own actions and its own intercept, and no
/// exclusive write is made over a value that its writer has not seen.
#[derive(Clone, Debug)]
pub struct PhaseRuntime {
    store: StateStore,
    max_rounds: usize,
}

impl PhaseRuntime {
    /// Returns an engine on this state, with the core keys registered.
    ///
    /// # Errors
    /// [`StateError::KeyAlreadyRegistered`] if another key type has the name of a core key.
    pub fn new(store: StateStore) -> Result<Self, StateError> {
        let mut core = PluginRegistrar::new(core_actions::PLUGIN_ID);
        core_actions::register(&mut core)?;
        store.ensure(&core.env.key_registrations)?;
        Ok(Self { store, max_rounds: DEFAULT_MAX_PHASE_ROUNDS })
    }

    pub fn store(&self) -> &StateStore {
        &self.store
    }

    /// Registers the keys of all plugins. Registering them again, or for an agent that a run is handed to, is
    /// not an error.
    ///
    /// # Errors
    /// [`StateError::KeyAlreadyRegistered`] if another key type has one of the names.
    pub fn install(&self, env: &ExecutionEnv) -> Result<(), StateError> {
        self.store.ensure(&env.key_registrations)
    }

    /// Lets the agent's plugins write their first values, in one commit.
    ///
    /// # Errors
    /// What a plugin says, or what the commit says.
    pub fn activate(&self, env: &ExecutionEnv, spec: &AgentSpec) -> Result<(), StateError> {
        let mut batch = MutationBatch::new();
        for plugin in env.active_plugins(spec) {
            plugin.on_activate(spec, &mut batch)?;
        }
        self.store.commit_batch(batch).map(|_| ())
    }

    /// Lets the plugins of an agent that hands the run over clean up, in one commit.
    ///
    /// # Errors
    /// What a plugin says, or what the commit says.
    pub fn deactivate(&self, env: &ExecutionEnv, spec: &AgentSpec) -> Result<(), StateError> {
        let mut batch = MutationBatch::new();
        for plugin in env.active_plugins(spec) {
            plugin.on_deactivate(&mut batch)?;
        }
        self.store.commit_batch(batch).map(|_| ())
    }

    /// Hands the run over to another agent: the plugins that the new agent does not use clean up, and those
    /// that only the new agent uses write their first values, in one commit.
    ///
    /// # Errors
    /// The error of a plugin, or of the commit.
    pub fn hand_off(
        &self,
        (old, old_spec): (&ExecutionEnv, &AgentSpec),
        (new, new_spec): (&ExecutionEnv, &AgentSpec),
    ) -> Result<(), StateError> {
        let names = |env: &ExecutionEnv, spec: &AgentSpec| -> Vec<&'static str> {
            env.active_plugins(spec).map(|plugin| plugin.descriptor().name).collect()
        };
        let (before, after) = (names(old, old_spec), names(new, new_spec));
        let mut batch = MutationBatch::new();
        for plugin in old.active_plugins(old_spec) {
            if !after.contains(&plugin.descriptor().name) {
                plugin.on_deactivate(&mut batch)?;
            }
        }
        for plugin in new.active_plugins(new_spec) {
            if !before.contains(&plugin.descriptor().name) {
                plugin.on_activate(new_spec, &mut batch)?;
            }
        }
        self.store.commit_batch(batch).map(|_| ())
    }

    /// Runs one phase: hooks, then actions until none is left.
    ///
    /// # Errors
    /// The first error of a hook, in the order of registration: none of the hooks' commands is committed
    /// then. [`StateError::PhaseRunLoopExceeded`], [`StateError::UnknownEffectHandler`],
    /// [`StateError::UnknownScheduledActionHandler`], [`StateError::UnknownKey`], [`StateError::Panicked`];
    /// [`StateError::Cancelled`] if the context's token is cancelled, unless the phase is `RunEnd`.
    pub async fn run_phase(&self, env: &ExecutionEnv, ctx: PhaseContext) -> Result<PhaseReport, StateError> {
        PhaseRun::new(&self.store, env, ctx).run_to_end(self.max_rounds).await
    }

    /// Passes a plugin the answer to the question that it asked in the context's phase, and runs the actions
    /// that the plugin schedules for that phase. The hooks are not run again.
    ///
    /// # Errors
    /// As [`PhaseRuntime::run_phase`]; also the error of the answer's handler, and
    /// [`StateError::UnknownScheduledActionHandler`] if that handler no longer exists.
    pub async fn answer(
        &self,
        env: &ExecutionEnv,
        ctx: PhaseContext,
        action: &str,
        answer: &PhaseAnswer,
    ) -> Result<PhaseReport, StateError> {
        PhaseRun::new(&self.store, env, ctx).take_answer(action, answer, self.max_rounds).await
    }

    /// Commits a tool's command; its actions wait for their phases, and its effects are dispatched at once.
    ///
    /// # Errors
    /// [`StateError::UnknownEffectHandler`], [`StateError::UnknownScheduledActionHandler`] and the errors of
    /// a commit; nothing is committed then.
    pub async fn submit_command(
        &self,
        env: &ExecutionEnv,
        command: StateCommand,
    ) -> Result<SubmitCommandReport, StateError> {
        let queued_actions = command.scheduled_actions.len();
        check_handlers(env, &command)?;
        let StateCommand { mut batch, scheduled_actions, effects } = command;
        if !scheduled_actions.is_empty() {
            batch.update::<PendingScheduledActions>(PendingUpdate::Push(scheduled_actions));
        }
        let snapshot = self.store.commit_snapshot(batch)?;
        let (mut activities, mut commands) = (Vec::new(), Vec::new());
        let own = CoreEffects { activities: &mut activities, commands: &mut commands, next: None };
        let effects = dispatch(env, &effects, &snapshot, own).await;
        Ok(SubmitCommandReport { revision: snapshot.revision, queued_actions, effects, activities })
    }
}

/// Rejects a command with an action or effect that has no handler, before any of the command is committed.
pub(super) fn check_handlers(env: &ExecutionEnv, command: &StateCommand) -> Result<(), StateError> {
    if let Some(action) = command.scheduled_actions.iter().find(|action| !env.knows_action(&action.key)) {
        return Err(StateError::UnknownScheduledActionHandler { key: action.key.clone() });
    }
    let is_known = |effect: &&TypedEffect| {
        [ReportActivity::KEY, ReportHook::KEY, AskBeforeNext::KEY, AnotherStep::KEY]
            .contains(&effect.key.as_str())
            || env.effect_handlers.contains_key(&effect.key)
    };
    if let Some(effect) = command.effects.iter().find(|effect| !is_known(effect)) {
        return Err(StateError::UnknownEffectHandler { key: effect.key.clone() });
    }
    Ok(())
}

/// The destinations of core effects.
pub(super) struct CoreEffects<'a> {
    /// The activities to report to the user.
    pub(super) activities: &'a mut Vec<Activity>,
    /// Commands that were run.
    pub(super) commands: &'a mut Vec<HookRan>,
    /// What comes before the run continues or ends; `None` outside of a phase.
    pub(super) next: Option<NextEffects<'a>>,
}

/// What hooks want to happen after a phase.
pub(super) struct NextEffects<'a> {
    /// The question to ask before the run continues.
    pub(super) question: &'a mut Option<PhaseQuestion>,
    /// Whether the model answers again.
    pub(super) another_step: &'a mut bool,
}

/// Calls the handlers, in order. The commit stays valid whatever they return.
pub(super) async fn dispatch(
    env: &ExecutionEnv,
    effects: &[TypedEffect],
    snapshot: &Snapshot,
    mut core: CoreEffects<'_>,
) -> EffectDispatchReport {
    let mut report = EffectDispatchReport::default();
    for effect in effects {
        report.attempted += 1;
        let outcome = match env.effect_handlers.get(&effect.key) {
            None if effect.key == ReportActivity::KEY => effect
                .decode::<ReportActivity>()
                .map(|activity| core.activities.push(activity))
                .map_err(|e| e.to_string()),
            None if effect.key == ReportHook::KEY => {
                effect.decode::<ReportHook>().map(|ran| core.commands.push(ran)).map_err(|e| e.to_string())
            }
            None if effect.key == AskBeforeNext::KEY => match &mut core.next {
                Some(next) => effect.decode::<AskBeforeNext>().map_err(|e| e.to_string()).map(|question| {
                    next.question.get_or_insert(question);
                }),
                None => Err("only a hook of a phase asks".to_owned()),
            },
            None if effect.key == AnotherStep::KEY => match &mut core.next {
                Some(next) => {
                    *next.another_step = true;
                    Ok(())
                }
                None => Err("only a hook of a phase has the model answer again".to_owned()),
            },
            Some(handler) => guarded(|| "its handler".to_owned(), handler.handle(effect, snapshot))
                .await
                .unwrap_or_else(|panic| Err(panic.to_string())),
            None => Err("it has no handler".to_owned()),
        };
        match outcome {
            Ok(()) => report.dispatched += 1,
            Err(error) => {
                report.failed += 1;
                tracing::warn!(effect = %effect.key, %error, "effect failed");
            }
        }
    }
    report
}
