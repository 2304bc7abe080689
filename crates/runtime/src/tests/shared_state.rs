//! The shared state as received by front ends.

use super::*;
use aye_core::state::{KeyScope, StateKey, StateKeyOptions};

struct Steps;

impl StateKey for Steps {
    const KEY: &'static str = "steps.n";
    const SCOPE: KeyScope = KeyScope::Thread;
    const SHARED: bool = true;
    type Value = u32;
    type Update = u32;

    fn apply(value: &mut u32, update: u32) {
        *value += update;
    }
}

/// Persistent, but not declared as shared.
struct Hidden;

impl StateKey for Hidden {
    const KEY: &'static str = "steps.hidden";
    type Value = u32;
    type Update = u32;

    fn apply(value: &mut u32, update: u32) {
        *value += update;
    }
}

struct Count;

#[async_trait]
impl PhaseHook for Count {
    async fn run(&self, _: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        command.update::<Steps>(1);
        command.update::<Hidden>(1);
        Ok(command)
    }
}

struct Counts;

impl Plugin for Counts {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "counts" }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<Steps>(StateKeyOptions::default())?;
        registrar.register_key::<Hidden>(StateKeyOptions::default())?;
        registrar.register_hook(Phase::StepEnd, Count);
        Ok(())
    }
}

/// The snapshot of a client that applies the events it receives.
fn follow(events: &[AgentEvent]) -> Vec<(&'static str, Value)> {
    let mut known = Value::Null;
    let mut seen = Vec::new();
    for event in events {
        match event {
            AgentEvent::StateSnapshot { snapshot } => {
                known = snapshot.clone();
                seen.push(("snapshot", known["steps.n"].clone()));
            }
            AgentEvent::StateDelta { delta } => {
                for operation in delta {
                    let key = operation["path"].as_str().unwrap().trim_start_matches('/');
                    match operation["op"].as_str().unwrap() {
                        "remove" => drop(known.as_object_mut().unwrap().remove(key)),
                        _ => known[key] = operation["value"].clone(),
                    }
                }
                seen.push(("delta", known["steps.n"].clone()));
            }
            AgentEvent::RunStart { .. } => seen.push(("start", Value::Null)),
            AgentEvent::RunFinish { .. } => seen.push(("finish", Value::Null)),
            _ => {}
        }
        assert!(known.get("steps.hidden").is_none());
    }
    seen.retain(|(what, value)| *what != "delta" || !value.is_null());
    seen.dedup();
    seen
}

#[tokio::test]
async fn a_subscribed_sink_receives_state_snapshots_and_changes() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "free")]), text("Done."), text("Again.")]);
    let runtime = house.builder(&script).with_plugin("counts", Arc::new(Counts)).build().unwrap();
    let run = async |message: &str| {
        let sink = Arc::new(VecEventSink::with_state());
        runtime.run(RunRequest::new("t", vec![Message::user(message)]), sink.clone()).await.unwrap();
        sink.take()
    };
    let events = run("go").await;
    assert_eq!(
        follow(&events),
        [
            ("start", Value::Null),
            ("snapshot", Value::Null),
            ("delta", json!(1)),
            ("delta", json!(2)),
            ("snapshot", json!(2)),
            ("finish", Value::Null),
        ]
    );
    let events = run("more").await;
    assert!(follow(&events).starts_with(&[("start", Value::Null), ("snapshot", json!(2))]));
    assert!(house.store.messages(&"t".into()).await.unwrap().len() == 6, "only messages are stored");
}

#[tokio::test]
async fn a_waiting_run_sends_a_snapshot_when_it_resumes() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("Done.")]);
    let runtime = house.builder(&script).with_plugin("counts", Arc::new(Counts)).build().unwrap();
    let sink = Arc::new(VecEventSink::with_state());
    let request = RunRequest::new("t", vec![Message::user("go")]);
    let result = runtime.run(request, sink.clone()).await.unwrap();
    assert!(names(&sink.take()).ends_with(&["state_snapshot".into(), "run_finish(suspended)".into()]));
    let question = &result.waiting[0].id;
    runtime.decide(question, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    runtime.resume(&"t".into(), sink.clone(), UnknownPolicy::Ask).await.unwrap();
    assert_eq!(names(&sink.take())[..2], ["run_start", "state_snapshot"]);
}

#[tokio::test]
async fn no_other_sink_receives_state() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "free")]), text("Done.")]);
    let runtime = house.builder(&script).with_plugin("counts", Arc::new(Counts)).build().unwrap();
    let (_, events) = send(&runtime, "go").await;
    assert!(!names(&events).iter().any(|name| name.starts_with("state_")));
}
