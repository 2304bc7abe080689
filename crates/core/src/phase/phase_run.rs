use std::future::Future;
use std::mem;

use futures::future::join_all;

use super::action::decode;
use super::engine::{CoreEffects, NextEffects, check_handlers, dispatch};
use super::guard::guarded;
use super::{
    ExecutionEnv, FailedScheduledAction, FailedScheduledActions, PendingScheduledActions, PendingUpdate,
    PhaseAnswer, PhaseContext, PhaseReport, StepShape, StepShapeUpdate, StopRequest, TaggedPhaseHook,
    inference_shape,
};
use crate::contract::judgement::JudgementAction;
use crate::contract::tool_intercept::{ToolInterceptAction, ToolInterceptPayload};
use crate::state::{
    MutationBatch, Phase, ScheduledAction, ScheduledActionSpec, StateCommand, StateError, StateStore,
};

/// The maximum number of times a hook or a handler is repeated because a concurrent phase wrote its key.
const MAX_REPEATS: usize = 64;

/// One phase while it is carried out.
pub(super) struct PhaseRun<'a> {
    store: &'a StateStore,
    env: &'a ExecutionEnv,
    ctx: PhaseContext,
    /// Actions for this very phase. They are not shared: of two calls that are gated at once, neither may get the
    /// other one's intercept.
    queue: Vec<ScheduledAction>,
    report: PhaseReport,
}

impl<'a> PhaseRun<'a> {
    pub(super) fn new(store: &'a StateStore, env: &'a ExecutionEnv, ctx: PhaseContext) -> Self {
        let report = PhaseReport::new(ctx.phase);
        Self { store, env, ctx, queue: Vec::new(), report }
    }

    pub(super) async fn run_to_end(mut self, max_rounds: usize) -> Result<PhaseReport, StateError> {
        self.ctx.snapshot = self.store.snapshot();
        if self.ctx.phase == Phase::StepStart {
            self.clear_step()?;
        }
        self.gather().await?;
        self.execute(max_rounds).await?;
        Ok(self.into_report())
    }

    pub(super) async fn take_answer(
        mut self,
        action: &str,
        answer: &PhaseAnswer,
        max_rounds: usize,
    ) -> Result<PhaseReport, StateError> {
        let payload = serde_json::to_value(answer)
            .map_err(|e| StateError::KeyDecode { key: action.into(), message: e.to_string() })?;
        self.handle(&ScheduledAction { phase: self.ctx.phase, key: action.into(), payload }).await?;
        self.execute(max_rounds).await?;
        Ok(self.into_report())
    }

    fn into_report(mut self) -> PhaseReport {
        let snapshot = self.store.snapshot();
        self.report.stop = snapshot.get::<StopRequest>().cloned().flatten();
        if self.ctx.phase == Phase::BeforeInference {
            self.report.inference = inference_shape(&snapshot);
        }
        self.report
    }

    /// Clears the plugins' changes to the last step's request.
    fn clear_step(&mut self) -> Result<(), StateError> {
        if self.ctx.state::<StepShape>().is_none_or(|shape| *shape == <_>::default()) {
            return Ok(());
        }
        let mut batch = MutationBatch::new();
        batch.update::<StepShape>(StepShapeUpdate::Clear);
        self.ctx.snapshot = self.store.commit_snapshot(batch)?;
        Ok(())
    }

    /// Runs all hooks on one snapshot and commits what they want together; those whose exclusive keys collide with
    /// an earlier hook's are run again, one by one, on what the others left.
    async fn gather(&mut self) -> Result<(), StateError> {
        let env = self.env;
        let spec = self.ctx.agent_spec.clone();
        let hooks: Vec<_> = env.active_hooks(self.ctx.phase, &spec).collect();
        self.report.hooks = hooks.len();
        if hooks.is_empty() {
            return Ok(());
        }
        let ctx = &self.ctx;
        let commands = unless_cancelled(ctx, join_all(hooks.iter().map(|hook| run_hook(hook, ctx)))).await?;
        // Commit only after every hook has succeeded.
        let commands = commands.into_iter().collect::<Result<Vec<_>, _>>()?;
        for command in &commands {
            check_handlers(env, command)?;
        }

        let mut batch = StateCommand::new();
        let mut taken: Vec<&'static str> = Vec::new();
        let mut compatible = Vec::new();
        let mut deferred = Vec::new();
        for (hook, command) in hooks.into_iter().zip(commands) {
            if command.batch.exclusive_keys().any(|key| taken.contains(&key)) {
                deferred.push(hook);
                continue;
            }
            taken.extend(command.batch.exclusive_keys());
            batch.batch = mem::take(&mut batch.batch).merge(command.batch)?;
            batch.scheduled_actions.extend(command.scheduled_actions);
            batch.effects.extend(command.effects);
            compatible.push(hook);
        }
        match self.commit(batch).await {
            Ok(()) => {}
            // Another phase wrote one of the keys while the hooks ran: all of them have seen an old state.
            Err(StateError::ParallelMergeConflict { .. }) => {
                compatible.extend(deferred);
                deferred = compatible;
            }
            Err(error) => return Err(error),
        }
        self.report.deferred_hooks = deferred.len();
        for hook in deferred {
            self.rerun(hook).await?;
        }
        Ok(())
    }

    async fn rerun(&mut self, hook: &TaggedPhaseHook) -> Result<(), StateError> {
        for _ in 1..MAX_REPEATS {
            match self.run_alone(hook).await {
                Err(StateError::ParallelMergeConflict { .. }) => {}
                outcome => return outcome,
            }
        }
        self.run_alone(hook).await
    }

    async fn run_alone(&mut self, hook: &TaggedPhaseHook) -> Result<(), StateError> {
        self.ctx.snapshot = self.store.snapshot();
        let command = unless_cancelled(&self.ctx, run_hook(hook, &self.ctx)).await??;
        self.commit(command).await
    }

    /// Commits a command that was made from the context's snapshot: actions of other phases go to the state
    /// in the same commit, those of this phase to the queue, and the effects are dispatched.
    async fn commit(&mut self, command: StateCommand) -> Result<(), StateError> {
        check_handlers(self.env, &command)?;
        let StateCommand { mut batch, scheduled_actions, effects } = command;
        let (own, later): (Vec<_>, Vec<_>) =
            scheduled_actions.into_iter().partition(|action| action.phase == self.ctx.phase);
        if !later.is_empty() {
            batch.update::<PendingScheduledActions>(PendingUpdate::Push(later));
        }
        let snapshot = self.store.commit_since(batch, &self.ctx.snapshot)?;
        self.queue.extend(own);
        if !effects.is_empty() {
            let own = CoreEffects {
                activities: &mut self.report.activities,
                commands: &mut self.report.commands,
                next: Some(NextEffects {
                    question: &mut self.report.question,
                    another_step: &mut self.report.another_step,
                }),
            };
            self.report.effects.add(dispatch(self.env, &effects, &snapshot, own).await);
        }
        Ok(())
    }

    /// Carries out actions until none is left for this phase.
    async fn execute(&mut self, max_rounds: usize) -> Result<(), StateError> {
        loop {
            self.take_pending()?;
            if self.queue.is_empty() {
                return Ok(());
            }
            if self.report.rounds == max_rounds {
                return Err(StateError::PhaseRunLoopExceeded { phase: self.ctx.phase, max_rounds });
            }
            self.report.rounds += 1;
            for action in mem::take(&mut self.queue) {
                self.report.actions += 1;
                self.run_action(action).await?;
            }
        }
    }

    /// Takes what waited for this phase, before what was scheduled in it. An action whose handler is not there now
    /// (its plugin belongs to another agent of the run) stays.
    fn take_pending(&mut self) -> Result<(), StateError> {
        loop {
            let snapshot = self.store.snapshot();
            let Some(pending) = snapshot.get::<PendingScheduledActions>() else { return Ok(()) };
            let due = |action: &ScheduledAction| {
                action.phase == self.ctx.phase && self.env.knows_action(&action.key)
            };
            let places: Vec<_> = (0..pending.len()).filter(|place| due(&pending[*place])).collect();
            if places.is_empty() {
                return Ok(());
            }
            let mut batch = MutationBatch::with_base_revision(snapshot.revision);
            batch.update::<PendingScheduledActions>(PendingUpdate::Take(places.clone()));
            match self.store.commit_batch(batch) {
                Ok(_) => {
                    let due = places.into_iter().map(|place| pending[place].clone());
                    self.queue.splice(0..0, due);
                    return Ok(());
                }
                // The places are only true of the revision they were read from.
                Err(StateError::RevisionConflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn run_action(&mut self, action: ScheduledAction) -> Result<(), StateError> {
        if action.key == ToolInterceptAction::KEY {
            // An intercept that cannot be read must not let the call pass: the phase fails.
            self.intercept(decode::<ToolInterceptAction>(action.payload)?);
            return Ok(());
        }
        if action.key == JudgementAction::KEY {
            self.report.judgement = Some(decode::<JudgementAction>(action.payload)?);
            return Ok(());
        }
        let mut outcome = self.handle(&action).await;
        for _ in 1..MAX_REPEATS {
            if !matches!(outcome, Err(StateError::ParallelMergeConflict { .. })) {
                break;
            }
            outcome = self.handle(&action).await;
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(StateError::Cancelled) if self.ctx.cancellation.is_cancelled() => Err(StateError::Cancelled),
            Err(error) => {
                tracing::warn!(action = %action.key, %error, "scheduled action failed");
                self.report.failed_actions += 1;
                let mut batch = MutationBatch::new();
                batch.update::<FailedScheduledActions>(FailedScheduledAction {
                    key: action.key,
                    payload: action.payload,
                    error: error.to_string(),
                });
                self.store.commit_batch(batch).map(|_| ())
            }
        }
    }

    async fn handle(&mut self, action: &ScheduledAction) -> Result<(), StateError> {
        let Some(handler) = self.env.scheduled_action_handlers.get(&action.key) else {
            return Err(StateError::UnknownScheduledActionHandler { key: action.key.clone() });
        };
        self.ctx.snapshot = self.store.snapshot();
        self.ctx.intercept.clone_from(&self.report.intercept);
        let what = || format!("the handler of action `{}`", action.key);
        let handling = guarded(what, handler.handle(&self.ctx, action.payload.clone()));
        let command = unless_cancelled(&self.ctx, handling).await???;
        self.commit(command).await
    }

    /// Block beats Deny beats Suspend beats SetResult; among equals the first one counts.
    fn intercept(&mut self, payload: ToolInterceptPayload) {
        fn rank(payload: &ToolInterceptPayload) -> u8 {
            match payload {
                ToolInterceptPayload::Block { .. } => 4,
                ToolInterceptPayload::Deny(_) => 3,
                ToolInterceptPayload::Suspend(_) => 2,
                ToolInterceptPayload::SetResult(_) => 1,
            }
        }
        match &self.report.intercept {
            Some(ToolInterceptPayload::Suspend(known))
                if matches!(&payload, ToolInterceptPayload::Suspend(new)
                    if new.suspension.id == known.suspension.id) =>
            {
                self.report.intercept = Some(payload);
            }
            Some(known) if rank(known) == rank(&payload) => {
                let call = self.ctx.tool.as_ref().map_or("", |tool| tool.call.id.as_str());
                tracing::error!(call, "two intercepts of one kind; the first one is used");
            }
            Some(known) if rank(known) > rank(&payload) => {}
            Some(_) | None => self.report.intercept = Some(payload),
        }
    }
}

async fn run_hook(tagged: &TaggedPhaseHook, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
    let what = || format!("a {:?} hook of plugin `{}`", ctx.phase, tagged.plugin_id);
    guarded(what, tagged.hook.run(ctx)).await?
}

/// Waits for plugin code until the run is cancelled. Code that follows the end of a run is waited for in any
/// case.
async fn unless_cancelled<T>(ctx: &PhaseContext, work: impl Future<Output = T>) -> Result<T, StateError> {
    if ctx.phase == Phase::RunEnd {
        return Ok(work.await);
    }
    ctx.cancellation.run_until_cancelled(work).await.ok_or(StateError::Cancelled)
}
