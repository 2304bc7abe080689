use super::*;
use crate::contract::spec::AgentSpec;

fn hooked<H: PhaseHook + Clone>(name: &'static str, phase: Phase, hook: H) -> Arc<dyn Plugin> {
    part(name, move |r| r.register_phase_hook(name, phase, hook.clone()))
}

impl<F: Clone> Clone for Hook<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

fn names_plugin(name: &'static str) -> Arc<dyn Plugin> {
    part(name, move |r| r.register_phase_hook(name, Phase::StepStart, append_name(name)))
}

fn failing(error: StateError) -> impl PhaseHook + Clone {
    Hook(move |_: &PhaseContext| Err(error.clone()))
}

fn command_hook(make: impl Fn(&mut StateCommand) + Clone + Send + Sync + 'static) -> impl PhaseHook + Clone {
    Hook(move |_: &PhaseContext| {
        let mut command = StateCommand::new();
        make(&mut command);
        Ok(command)
    })
}

#[tokio::test]
async fn a_phase_without_hooks_changes_nothing() {
    let bench = Bench::new([]);
    for phase in Phase::ALL {
        assert_eq!(bench.phase(phase).await.unwrap(), PhaseReport::new(phase));
    }
    assert_eq!(bench.revision(), 0);
}

#[tokio::test]
async fn hooks_without_conflict_share_one_commit() {
    let add = |n| command_hook(move |c| c.update::<Count>(n));
    let bench = Bench::new([
        hooked("a", Phase::RunStart, add(1)),
        hooked("b", Phase::RunStart, add(2)),
        names_plugin("c"),
        part("d", |r| r.register_phase_hook("d", Phase::RunStart, append_name("d"))),
    ]);
    let report = bench.phase(Phase::RunStart).await.unwrap();
    assert_eq!((report.hooks, report.deferred_hooks), (3, 0));
    assert_eq!((bench.count(), bench.names(), bench.revision()), (3, vec!["d".to_owned()], 1));
}

#[tokio::test]
async fn hooks_writing_one_exclusive_key_commit_in_registration_order() {
    let bench = Bench::new(["a", "b", "c"].map(names_plugin));
    let report = bench.phase(Phase::StepStart).await.unwrap();
    assert_eq!(bench.names(), ["a", "b", "c"]);
    assert_eq!((report.hooks, report.deferred_hooks, bench.revision()), (3, 2, 3));
}

#[tokio::test]
async fn overlapping_phases_lose_no_exclusive_write() {
    let bench = Bench::new(["a", "b", "c"].map(names_plugin));
    let runs = (0..8).map(|_| bench.phase(Phase::StepStart));
    for report in futures::future::join_all(runs).await {
        report.unwrap();
    }
    let mut names = bench.names();
    names.sort();
    assert_eq!(names.len(), 24);
    assert_eq!(names.iter().filter(|name| *name == "b").count(), 8);
}

#[tokio::test]
async fn a_failing_hook_discards_the_whole_phase() {
    let error = StateError::UnknownKey { key: "x".into() };
    let bench = Bench::new([
        hooked("a", Phase::RunStart, command_hook(|c| c.update::<Count>(1))),
        hooked("b", Phase::RunStart, failing(error.clone())),
    ]);
    assert_eq!(bench.phase(Phase::RunStart).await, Err(error));
    assert_eq!(bench.revision(), 0);
}

#[tokio::test]
async fn a_panic_is_an_error_naming_the_plugin() {
    let bench = Bench::new([hooked("bad", Phase::StepEnd, command_hook(|_| panic!("lost the thread")))]);
    let error = bench.phase(Phase::StepEnd).await.unwrap_err();
    assert_eq!(error.to_string(), "a StepEnd hook of plugin `bad` panicked: lost the thread");
}

struct Fragile;
impl StateKey for Fragile {
    const KEY: &'static str = "test.fragile";
    type Value = u8;
    type Update = u8;
    fn apply(_: &mut u8, _: u8) {
        panic!("broken");
    }
}

#[tokio::test]
async fn a_panic_in_an_update_leaves_the_state_usable_and_unchanged() {
    let bench = Bench::new([part("fragile", |r| {
        r.register_key::<Fragile>(StateKeyOptions::default())?;
        r.register_hook(
            Phase::RunStart,
            command_hook(|c| {
                c.update::<Count>(1);
                c.update::<Fragile>(1);
            }),
        );
        Ok(())
    })]);
    assert!(matches!(bench.phase(Phase::RunStart).await, Err(StateError::Panicked { .. })));
    assert_eq!((bench.count(), bench.revision()), (0, 0));
    bench.phase(Phase::RunEnd).await.unwrap();
}

#[tokio::test]
async fn only_hooks_of_active_plugins_run() {
    let bench = Bench::new(["a", "b", "c"].map(names_plugin));
    let spec = AgentSpec::new("agent").with_hook_filter("b");
    let ctx = PhaseContext::test_default().with_phase(Phase::StepStart).with_agent_spec(spec);
    assert_eq!(bench.run(ctx).await.unwrap().hooks, 1);
    assert_eq!(bench.names(), ["b"]);
}

fn countdown(from: u32) -> Bench {
    Bench::new([hooked(
        "clock",
        Phase::StepStart,
        command_hook(move |c| c.schedule_action::<Countdown>(from).unwrap()),
    )])
}

#[tokio::test]
async fn sixteen_rounds_of_actions_are_allowed_and_a_seventeenth_is_not() {
    let bench = countdown(15);
    let report = bench.phase(Phase::StepStart).await.unwrap();
    assert_eq!((report.rounds, report.actions, bench.count()), (16, 16, 16));

    let bench = countdown(16);
    let error = StateError::PhaseRunLoopExceeded { phase: Phase::StepStart, max_rounds: 16 };
    assert_eq!(bench.phase(Phase::StepStart).await, Err(error));
}

#[tokio::test]
async fn actions_of_another_phase_wait_for_it() {
    let bench = Bench::new([hooked(
        "early",
        Phase::RunStart,
        command_hook(|c| c.schedule_action::<Later>(7).unwrap()),
    )]);
    bench.phase(Phase::RunStart).await.unwrap();
    bench.phase(Phase::StepStart).await.unwrap();
    assert_eq!(bench.runtime.store().read::<PendingScheduledActions>().unwrap().len(), 1);
    let report = bench.phase(Phase::StepEnd).await.unwrap();
    assert_eq!((report.actions, bench.count()), (1, 7));
    assert_eq!(bench.runtime.store().read::<PendingScheduledActions>(), Some(Vec::new()));
    assert_eq!(bench.phase(Phase::StepEnd).await.unwrap().actions, 0);
}

#[tokio::test]
async fn a_pending_action_without_handler_stays() {
    let bench = Bench::new([]);
    let mut command = StateCommand::new();
    command.schedule_action::<Later>(7).unwrap();
    bench.runtime.submit_command(&bench.env, command).await.unwrap();
    let other = ExecutionEnv::from_plugins(&[]).unwrap();
    let ctx = PhaseContext::test_default().with_phase(Phase::StepEnd);
    assert_eq!(bench.runtime.run_phase(&other, ctx).await.unwrap().actions, 0);
    assert_eq!(bench.phase(Phase::StepEnd).await.unwrap().actions, 1);
}

struct Moody;
#[async_trait]
impl TypedScheduledActionHandler<Moody> for Moody {
    async fn handle_typed(&self, _: &PhaseContext, mood: String) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        match mood.as_str() {
            "error" => return Err(StateError::UnknownKey { key: "mood".into() }),
            "panic" => panic!("bad day"),
            "unknown key" => command.update::<Fragile>(1),
            _ => command.update::<Count>(1),
        }
        Ok(command)
    }
}
impl ScheduledActionSpec for Moody {
    const KEY: &'static str = "test.moody";
    const PHASE: Phase = Phase::StepEnd;
    type Payload = String;
}

#[tokio::test]
async fn a_failing_action_is_recorded_and_not_retried() {
    let bench = Bench::new([part("moody", |r| r.register_scheduled_action::<Moody, _>(Moody))]);
    let mut command = StateCommand::new();
    for mood in ["error", "panic", "fine", "unknown key"] {
        command.schedule_action::<Moody>(mood.into()).unwrap();
    }
    bench.runtime.submit_command(&bench.env, command).await.unwrap();
    let report = bench.phase(Phase::StepEnd).await.unwrap();
    assert_eq!((report.actions, report.failed_actions, bench.count()), (4, 3, 1));
    let failed = bench.runtime.store().read::<FailedScheduledActions>().unwrap();
    let errors: Vec<_> = failed.iter().map(|f| (f.payload.as_str().unwrap(), f.error.as_str())).collect();
    assert_eq!(
        errors,
        [
            ("error", "state key `mood` is not registered"),
            ("panic", "the handler of action `test.moody` panicked: bad day"),
            ("unknown key", "state key `test.fragile` is not registered"),
        ]
    );
    assert_eq!(bench.phase(Phase::StepEnd).await.unwrap().actions, 0);
}

#[tokio::test]
async fn effects_run_after_the_commit_and_cannot_undo_it() {
    let announces = |text: &'static str| {
        command_hook(move |c| {
            c.update::<Count>(1);
            c.emit::<Announced>(text.into()).unwrap();
        })
    };
    let bench = Bench::new([
        hooked("a", Phase::RunStart, announces("deaf")),
        hooked("b", Phase::RunStart, announces("panic")),
        hooked("c", Phase::RunStart, announces("hello")),
    ]);
    let report = bench.phase(Phase::RunStart).await.unwrap();
    assert_eq!(report.effects, EffectDispatchReport { attempted: 3, dispatched: 1, failed: 2 });
    assert_eq!(*bench.ears.0.lock().unwrap(), [("hello".to_owned(), 3)]);
    assert_eq!(bench.count(), 3);
}

struct Nobody;
impl EffectSpec for Nobody {
    const KEY: &'static str = "test.nobody";
    type Payload = ();
}
impl ScheduledActionSpec for Nobody {
    const KEY: &'static str = "test.nobody_does";
    const PHASE: Phase = Phase::RunEnd;
    type Payload = ();
}

#[tokio::test]
async fn unhandled_actions_and_effects_are_refused_before_the_commit() {
    let effect = command_hook(|c| {
        c.update::<Count>(1);
        c.emit::<Nobody>(()).unwrap();
    });
    let bench = Bench::new([
        hooked("fine", Phase::RunStart, command_hook(|c| c.update::<Count>(1))),
        hooked("a", Phase::RunStart, effect),
    ]);
    let unknown = StateError::UnknownEffectHandler { key: "test.nobody".into() };
    assert_eq!(bench.phase(Phase::RunStart).await, Err(unknown.clone()));

    let mut command = StateCommand::new();
    command.update::<Count>(1);
    command.emit::<Nobody>(()).unwrap();
    assert_eq!(bench.runtime.submit_command(&bench.env, command).await, Err(unknown));

    let mut command = StateCommand::new();
    command.update::<Count>(1);
    command.schedule_action::<Nobody>(()).unwrap();
    let unknown = StateError::UnknownScheduledActionHandler { key: "test.nobody_does".into() };
    assert_eq!(bench.runtime.submit_command(&bench.env, command).await, Err(unknown));
    assert_eq!(bench.revision(), 0);
}

#[tokio::test]
async fn a_hook_to_be_rerun_is_validated_before_others_commit() {
    let bad = Hook(|_: &PhaseContext| {
        let mut command = StateCommand::new();
        command.update::<Names>(vec!["bad".into()]);
        command.emit::<Nobody>(())?;
        Ok(command)
    });
    let bench = Bench::new([names_plugin("good"), hooked("bad", Phase::StepStart, bad)]);
    let unknown = StateError::UnknownEffectHandler { key: "test.nobody".into() };
    assert_eq!(bench.phase(Phase::StepStart).await, Err(unknown));
    assert_eq!(bench.revision(), 0);
}

#[tokio::test]
async fn pending_actions_precede_those_of_the_phases_hooks() {
    let schedule =
        |mood: &'static str| command_hook(move |c| c.schedule_action::<Moody>(mood.into()).unwrap());
    let bench = Bench::new([
        part("moody", |r| r.register_scheduled_action::<Moody, _>(Moody)),
        hooked("now", Phase::StepEnd, schedule("error")),
        hooked("early", Phase::RunStart, schedule("panic")),
    ]);
    bench.phase(Phase::RunStart).await.unwrap();
    bench.phase(Phase::StepEnd).await.unwrap();
    let failed = bench.runtime.store().read::<FailedScheduledActions>().unwrap();
    let order: Vec<_> = failed.iter().map(|f| f.payload.as_str().unwrap()).collect();
    assert_eq!(order, ["panic", "error"]);
}

#[tokio::test]
async fn a_tools_command_and_its_actions_are_one_commit() {
    let bench = Bench::new([]);
    let mut command = StateCommand::new();
    command.update::<Count>(1);
    command.schedule_action::<Later>(5).unwrap();
    command.emit::<Announced>("done".into()).unwrap();
    let report = bench.runtime.submit_command(&bench.env, command).await.unwrap();
    assert_eq!((report.revision, report.queued_actions), (1, 1));
    assert_eq!(*bench.ears.0.lock().unwrap(), [("done".to_owned(), 1)]);
}

#[tokio::test]
async fn a_cancelled_run_runs_only_its_end_hooks() {
    let bench = Bench::new([
        hooked("a", Phase::StepStart, command_hook(|c| c.update::<Count>(1))),
        hooked("b", Phase::RunEnd, command_hook(|c| c.update::<Count>(10))),
    ]);
    let ctx = PhaseContext::test_default();
    ctx.cancellation.cancel();
    assert_eq!(bench.run(ctx.clone().with_phase(Phase::StepStart)).await, Err(StateError::Cancelled));
    bench.run(ctx.with_phase(Phase::RunEnd)).await.unwrap();
    assert_eq!(bench.count(), 10);
}

struct Forever;
#[async_trait]
impl PhaseHook for Forever {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        ctx.cancellation.cancel();
        std::future::pending().await
    }
}

#[tokio::test]
async fn cancelling_ends_the_wait_for_a_hook() {
    let bench = Bench::new([part("slow", |r| r.register_phase_hook("slow", Phase::RunStart, Forever))]);
    assert_eq!(bench.phase(Phase::RunStart).await, Err(StateError::Cancelled));
}

#[tokio::test]
async fn a_step_with_twenty_plugins_takes_less_than_a_millisecond() {
    const NAMES: [&str; 20] = [
        "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13", "p14", "p15",
        "p16", "p17", "p18", "p19",
    ];
    struct Idle;
    #[async_trait]
    impl PhaseHook for Idle {
        async fn run(&self, _: &PhaseContext) -> Result<StateCommand, StateError> {
            Ok(StateCommand::new())
        }
    }
    let bench = Bench::new(NAMES.map(|name| {
        part(name, move |r| {
            for phase in Phase::ALL {
                r.register_phase_hook(name, phase, Idle)?;
            }
            Ok(())
        })
    }));
    let mut best = std::time::Duration::MAX;
    for _ in 0..20 {
        let start = std::time::Instant::now();
        for phase in Phase::ALL {
            bench.phase(phase).await.unwrap();
        }
        best = best.min(start.elapsed());
    }
    // The best of many runs, so that a busy machine does not decide.
    assert!(best.as_micros() < 1000, "{best:?}");
    assert_eq!(bench.revision(), 0);
}
