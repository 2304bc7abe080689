//! Tests of the phase engine: the book's examples, the core actions, and laws for any set of plugins.

mod core_actions;
mod engine;
mod laws;
mod plugins;

use std::future::Future;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::*;
use crate::state::{
    EffectSpec, MergeStrategy, Phase, ScheduledActionSpec, Snapshot, StateCommand, StateError, StateKey,
    StateKeyOptions, StateStore,
};

/// An exclusive list; each writer replaces it with the value it read plus its own name.
pub(super) struct Names;
impl StateKey for Names {
    const KEY: &'static str = "test.names";
    type Value = Vec<String>;
    type Update = Vec<String>;
    fn apply(value: &mut Vec<String>, update: Vec<String>) {
        *value = update;
    }
}

pub(super) struct Count;
impl StateKey for Count {
    const KEY: &'static str = "test.count";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = u64;
    type Update = u64;
    fn apply(value: &mut u64, update: u64) {
        *value += update;
    }
}

/// Counts itself and reschedules itself while its payload is above zero.
pub(super) struct Countdown;
impl ScheduledActionSpec for Countdown {
    const KEY: &'static str = "test.countdown";
    const PHASE: Phase = Phase::StepStart;
    type Payload = u32;
}

pub(super) struct Later;
impl ScheduledActionSpec for Later {
    const KEY: &'static str = "test.later";
    const PHASE: Phase = Phase::StepEnd;
    type Payload = u32;
}

pub(super) struct Announced;
impl EffectSpec for Announced {
    const KEY: &'static str = "test.announced";
    type Payload = String;
}

/// A hook from a closure.
pub(super) struct Hook<F>(pub(super) F);
#[async_trait]
impl<F> PhaseHook for Hook<F>
where
    F: Fn(&PhaseContext) -> Result<StateCommand, StateError> + Send + Sync + 'static,
{
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        // Yields once, so that hooks and phases really interleave.
        tokio::task::yield_now().await;
        (self.0)(ctx)
    }
}

/// Reads the list, waits, and writes it back with its own name.
pub(super) fn append_name(name: &'static str) -> impl PhaseHook {
    Hook(move |ctx: &PhaseContext| {
        let mut names = ctx.state::<Names>().cloned().unwrap_or_default();
        names.push(name.to_owned());
        let mut command = StateCommand::new();
        command.update::<Names>(names);
        Ok(command)
    })
}

pub(super) struct Counting;
#[async_trait]
impl TypedScheduledActionHandler<Countdown> for Counting {
    async fn handle_typed(&self, _: &PhaseContext, left: u32) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        command.update::<Count>(1);
        if left > 0 {
            command.schedule_action::<Countdown>(left - 1)?;
        }
        Ok(command)
    }
}
#[async_trait]
impl TypedScheduledActionHandler<Later> for Counting {
    async fn handle_typed(&self, _: &PhaseContext, amount: u32) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        command.update::<Count>(u64::from(amount));
        Ok(command)
    }
}

/// Records the effects it receives, with the count at that time.
#[derive(Clone, Default)]
pub(super) struct Ears(pub(super) Arc<Mutex<Vec<(String, u64)>>>);
#[async_trait]
impl TypedEffectHandler<Announced> for Ears {
    async fn handle_typed(&self, text: String, snapshot: &Snapshot) -> Result<(), String> {
        tokio::task::yield_now().await;
        match text.as_str() {
            "deaf" => Err("cannot hear".into()),
            "panic" => panic!("the listener panicked"),
            _ => {
                let count = snapshot.get::<Count>().copied().unwrap_or_default();
                self.0.lock().unwrap().push((text, count));
                Ok(())
            }
        }
    }
}

type Register = Box<dyn Fn(&mut PluginRegistrar) -> Result<(), StateError> + Send + Sync>;

/// A plugin from a closure.
pub(super) struct Part(pub(super) &'static str, pub(super) Register);
impl Plugin for Part {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: self.0 }
    }
    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        (self.1)(registrar)
    }
}

pub(super) fn part(
    name: &'static str,
    register: impl Fn(&mut PluginRegistrar) -> Result<(), StateError> + Send + Sync + 'static,
) -> Arc<dyn Plugin> {
    Arc::new(Part(name, Box::new(register)))
}

/// The keys and handlers shared by the tests.
pub(super) fn base(ears: &Ears) -> Arc<dyn Plugin> {
    let ears = ears.clone();
    part("base", move |r| {
        r.register_key::<Names>(StateKeyOptions::default())?;
        r.register_key::<Count>(StateKeyOptions::default())?;
        r.register_scheduled_action::<Countdown, _>(Counting)?;
        r.register_scheduled_action::<Later, _>(Counting)?;
        r.register_effect::<Announced, _>(ears.clone())
    })
}

/// An engine with the shared base and these plugins.
pub(super) struct Bench {
    pub(super) runtime: PhaseRuntime,
    pub(super) env: ExecutionEnv,
    pub(super) ears: Ears,
}

impl Bench {
    pub(super) fn new(plugins: impl IntoIterator<Item = Arc<dyn Plugin>>) -> Self {
        let ears = Ears::default();
        let plugins: Vec<_> = std::iter::once(base(&ears)).chain(plugins).collect();
        let env = ExecutionEnv::from_plugins(&plugins).unwrap();
        let runtime = PhaseRuntime::new(StateStore::new()).unwrap();
        runtime.install(&env).unwrap();
        Self { runtime, env, ears }
    }

    pub(super) fn phase(&self, phase: Phase) -> impl Future<Output = Result<PhaseReport, StateError>> + '_ {
        self.run(PhaseContext::test_default().with_phase(phase))
    }

    pub(super) async fn run(&self, ctx: PhaseContext) -> Result<PhaseReport, StateError> {
        self.runtime.run_phase(&self.env, ctx).await
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.runtime.store().read::<Names>().unwrap_or_default()
    }

    pub(super) fn count(&self) -> u64 {
        self.runtime.store().read::<Count>().unwrap_or_default()
    }

    pub(super) fn revision(&self) -> u64 {
        self.runtime.store().snapshot().revision
    }
}
