use super::guard::guarded;
use super::phase_run::PhaseRun;
use super::{
    AskBeforeNext, EffectDispatchReport, ExecutionEnv, PendingScheduledActions, PendingUpdate, PhaseAnswer,
    PhaseContext, PhaseQuestion, PhaseReport, PluginRegistrar, SubmitCommandReport, core_actions,
};
use crate::contract::activity::{Activity, ReportActivity};
use crate::contract::hook::{HookRan, ReportHook};
use crate::contract::spec::AgentSpec;
use crate::state::{
    EffectSpec as _, MutationBatch, Snapshot, StateCommand, StateError, StateStore, TypedEffect,
};

/// So many rounds of actions a phase may take; one more is [`StateError::PhaseRunLoopExceeded`].
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
    /// An engine on this state; makes the core keys known.
    ///
    /// # Errors
    /// [`StateError::KeyAlreadyRegistered`] when something else holds the name of a core key.
    pub fn new(store: StateStore) -> Result<Self, StateError> {
        let mut core = PluginRegistrar::new(core_actions::PLUGIN_ID);
        core_actions::register(&mut core)?;
        store.ensure(&core.env.key_registrations)?;
        Ok(Self { store, max_rounds: DEFAULT_MAX_PHASE_ROUNDS })
    }

    /// The state.
    pub fn store(&self) -> &StateStore {
        &self.store
    }

    /// Makes the keys of all plugins known; a second time, and for an agent that a run is handed to, it is no error.
    ///
    /// # Errors
    /// [`StateError::KeyAlreadyRegistered`] when another key type holds one of the names.
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

    /// Lets another agent go on: the plugins that it does not use clean up, those that only it uses write their first
    /// values, in one commit.
    ///
    /// # Errors
    /// What a plugin says, or what the commit says.
    pub fn hand_over(
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

    /// Carries out one phase: hooks, then actions until none is left.
    ///
    /// # Errors
    /// The first error of a hook, in the order of registration: nothing that the hooks wanted is committed then.
    /// [`StateError::PhaseRunLoopExceeded`], [`StateError::UnknownEffectHandler`],
    /// [`StateError::UnknownScheduledActionHandler`], [`StateError::UnknownKey`], [`StateError::Panicked`];
    /// [`StateError::Cancelled`] when the context's token is cancelled, unless the phase is `RunEnd`.
    pub async fn run_phase(&self, env: &ExecutionEnv, ctx: PhaseContext) -> Result<PhaseReport, StateError> {
        PhaseRun::new(&self.store, env, ctx).carry_out(self.max_rounds).await
    }

    /// Gives a plugin the answer to what it asked in the context's phase, and carries out what it schedules for that
    /// phase. The hooks are not run again.
    ///
    /// # Errors
    /// As [`PhaseRuntime::run_phase`]; also what the handler of the answer says, and
    /// [`StateError::UnknownScheduledActionHandler`] when there is none any more.
    pub async fn answer(
        &self,
        env: &ExecutionEnv,
        ctx: PhaseContext,
        action: &str,
        answer: &PhaseAnswer,
    ) -> Result<PhaseReport, StateError> {
        PhaseRun::new(&self.store, env, ctx).take_answer(action, answer, self.max_rounds).await
    }

    /// Commits a tool's command; its actions wait for their phases, its effects are told at once.
    ///
    /// # Errors
    /// [`StateError::UnknownEffectHandler`], [`StateError::UnknownScheduledActionHandler`] and the errors of a
    /// commit; nothing is committed then.
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
        let told = CoreEffects { activities: &mut activities, commands: &mut commands, question: None };
        let effects = dispatch(env, &effects, &snapshot, told).await;
        Ok(SubmitCommandReport { revision: snapshot.revision, queued_actions, effects, activities })
    }
}

/// Refuses a command whose actions or effects nobody handles, before anything of it is committed.
pub(super) fn check_handlers(env: &ExecutionEnv, command: &StateCommand) -> Result<(), StateError> {
    if let Some(action) = command.scheduled_actions.iter().find(|action| !env.knows_action(&action.key)) {
        return Err(StateError::UnknownScheduledActionHandler { key: action.key.clone() });
    }
    let is_known = |effect: &&TypedEffect| {
        [ReportActivity::KEY, ReportHook::KEY, AskBeforeNext::KEY].contains(&effect.key.as_str())
            || env.effect_handlers.contains_key(&effect.key)
    };
    if let Some(effect) = command.effects.iter().find(|effect| !is_known(effect)) {
        return Err(StateError::UnknownEffectHandler { key: effect.key.clone() });
    }
    Ok(())
}

/// Where core effects go.
pub(super) struct CoreEffects<'a> {
    /// What the person is told.
    pub(super) activities: &'a mut Vec<Activity>,
    /// Commands that were run.
    pub(super) commands: &'a mut Vec<HookRan>,
    /// What is asked before the run goes on; `None` where nothing can be.
    pub(super) question: Option<&'a mut Option<PhaseQuestion>>,
}

/// Tells the handlers, in order. The commit stands whatever they say.
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
                .map(|told| core.activities.push(told))
                .map_err(|e| e.to_string()),
            None if effect.key == ReportHook::KEY => {
                effect.decode::<ReportHook>().map(|ran| core.commands.push(ran)).map_err(|e| e.to_string())
            }
            None if effect.key == AskBeforeNext::KEY => match &mut core.question {
                Some(slot) => effect.decode::<AskBeforeNext>().map_err(|e| e.to_string()).map(|question| {
                    slot.get_or_insert(question);
                }),
                None => Err("only a hook of a phase asks".to_owned()),
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
