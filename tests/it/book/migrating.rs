//! The chapter on migrating from an older framework: everything comes from the prelude.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use aye::engine::{ScriptedExecutor, ScriptedReply};
use aye::prelude::*;
use serde_json::{Value, json};

struct Level;

impl StateKey for Level {
    const KEY: &'static str = "thermostat.level";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    type Value = u32;
    type Update = u32;

    fn apply(value: &mut u32, update: u32) {
        *value = update;
    }
}

struct Noted;

impl EffectSpec for Noted {
    const KEY: &'static str = "thermostat.noted";
    type Payload = String;
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl TypedEffectHandler<Noted> for Notes {
    async fn handle_typed(&self, payload: String, snapshot: &Snapshot) -> Result<(), String> {
        let level = snapshot.get::<Level>().copied().unwrap_or_default();
        self.0.lock().expect("not poisoned").push(format!("{payload} at {level}"));
        Ok(())
    }
}

struct Thermostat(Notes);

impl Plugin for Thermostat {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "thermostat" }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<Level>(StateKeyOptions::default())?;
        registrar.register_effect::<Noted, _>(self.0.clone())?;
        registrar.register_tool("warm", Arc::new(Warm))
    }
}

/// A tool that schedules an action and an effect: `?` converts their errors into its own.
struct Warm;

#[async_trait]
impl Tool for Warm {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("warm", "Warm", "Sets the level")
    }

    async fn execute(&self, _args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let mut cmd = StateCommand::new();
        cmd.update::<Level>(21);
        cmd.schedule_action::<AddContextMessage>(ContextMessage::system(
            "thermostat.hint",
            "The room is warm enough.",
        ))?;
        cmd.emit::<Noted>("warm".into())?;
        Ok(ToolOutput::with_command(ToolResult::success("warm", json!({"level": 21})), cmd))
    }
}

#[test]
fn state_errors_are_tool_errors() {
    let error = ToolError::from(StateError::UnknownKey { key: "k".into() });
    assert_eq!(error, ToolError::Internal("state key `k` is not registered".into()));
}

#[tokio::test]
async fn a_tool_schedules_actions_and_effects() {
    let notes = Notes::default();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let model = ScriptedExecutor::from_fn(move |request| {
        let mut requests = seen.lock().expect("not poisoned");
        requests.push(format!("{:?} {:?}", request.system, request.messages));
        match requests.len() {
            1 => ScriptedReply::new().call("warm", json!({})),
            _ => ScriptedReply::new().text("Done."),
        }
    });
    let runtime = AgentRuntimeBuilder::new()
        .with_plugin("thermostat", Arc::new(Thermostat(notes.clone())))
        .with_agent_spec(AgentSpec::new("assistant").with_model("m"))
        .with_provider("m", Arc::new(model))
        .with_model("m", ModelEntry { provider: "m".into(), model_name: "m".into() })
        .build()
        .expect("a runtime");
    let request = RunRequest::new("thread-1", vec![Message::user("Make it warm")]);
    let result = runtime.run(request, Arc::new(NullEventSink)).await.expect("a run");
    assert_eq!(result.response, "Done.");
    assert_eq!(*notes.0.lock().expect("not poisoned"), ["warm at 21"]);
    let requests = requests.lock().expect("not poisoned");
    assert!(!requests[0].contains("warm enough") && requests[1].contains("warm enough"), "{requests:?}");
}
