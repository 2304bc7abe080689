//! Agents, tools, plugins, actions, effects and skills, combined as in the book.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use aye::agent::state::{AddContextMessage, ExcludeTool, IncludeOnlyTools, SetInferenceOverride};
use aye::contract::context_message::ContextMessage;
use aye::contract::event::AgentEvent;
use aye::contract::event_sink::VecEventSink;
use aye::contract::inference::InferenceOverride;
use aye::contract::lifecycle::TerminationReason;
use aye::contract::message::Message;
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::contract::tool_intercept::{ToolInterceptAction, ToolInterceptPayload};
use aye::engine::{GenaiExecutor, ScriptedExecutor, ScriptedReply};
use aye::ext_skills::{EmbeddedSkill, EmbeddedSkillData, FsSkill, InMemorySkillRegistry, SkillSubsystem};
use aye::{
    AgentRuntimeBuilder, AgentSpec, BuildError, ConfigSchema, EffectSpec, JsonValue, KeyScope, MergeStrategy,
    ModelSpec, Phase, PhaseContext, PhaseHook, Plugin, PluginConfigKey, PluginDescriptor, PluginRegistrar,
    RunRequest, ScheduledActionSpec, Snapshot, StateCommand, StateError, StateKey, StateKeyOptions,
    TypedEffectHandler, TypedScheduledActionHandler,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

struct Forecast;

#[async_trait]
impl Tool for Forecast {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("forecast", "Forecast", "The weather of tomorrow").with_parameters(json!({
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"]
        }))
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        if args.get("city").and_then(|v| v.as_str()).is_none_or(str::is_empty) {
            return Err(ToolError::InvalidArguments("'city' must not be empty".into()));
        }
        Ok(())
    }

    async fn execute(&self, args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::success("forecast", json!({"city": args["city"], "sky": "clear"})).into())
    }
}

fn model(id: &str) -> ModelSpec {
    ModelSpec { id: id.into(), provider: "scripted".into(), model: id.into() }
}

/// Runs the script over this builder.
async fn run(
    builder: AgentRuntimeBuilder,
    agent: &str,
    script: Vec<ScriptedReply>,
) -> (Vec<AgentEvent>, aye::AgentRunResult, Arc<ScriptedExecutor>) {
    let executor = Arc::new(ScriptedExecutor::new(script));
    let runtime = builder
        .with_provider("scripted", Arc::clone(&executor) as _)
        .with_model("m", model("m"))
        .build()
        .expect("a runtime");
    let sink = Arc::new(VecEventSink::new());
    let request = RunRequest::new("thread-1", vec![Message::user("hello")]).with_agent_id(agent);
    let result = runtime.run(request, sink.clone()).await.expect("a run");
    (sink.take(), result, executor)
}

#[tokio::test]
async fn an_agent_with_a_tool_runs() {
    let spec = AgentSpec::new("assistant")
        .with_model("m")
        .with_system_prompt("You are a helpful assistant.")
        .with_max_rounds(10);
    let builder = AgentRuntimeBuilder::new().with_agent_spec(spec).with_tool("forecast", Arc::new(Forecast));
    let script = vec![
        ScriptedReply::new().call("forecast", json!({"city": ""})),
        ScriptedReply::new().call("forecast", json!({"city": "Oslo"})),
        ScriptedReply::new().text("Clear."),
    ];
    let (events, result, executor) = run(builder, "assistant", script).await;
    assert_eq!(result.response, "Clear.");
    assert_eq!(result.steps, 3);
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    let done: Vec<&ToolResult> = events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::ToolCallDone { id: _, message_id: _, result, outcome: _ } => Some(result),
            _ => None,
        })
        .collect();
    assert!(done[0].is_error() && done[0].model_text().contains("'city' must not be empty"), "{done:?}");
    assert_eq!(done[1].data["sky"], "clear");
    assert_eq!(executor.requests()[0].tools[0].id, "forecast");
}

#[test]
fn missing_parts_are_reported_when_the_runtime_is_built() {
    let built = |builder: AgentRuntimeBuilder| builder.build().err();
    let agent = || AgentSpec::new("assistant").with_model("claude-sonnet");
    let no_model = built(AgentRuntimeBuilder::new().with_agent_spec(agent()));
    assert!(matches!(no_model, Some(BuildError::ValidationFailed(why)) if why.contains("claude-sonnet")));
    let spec = ModelSpec { id: "claude-sonnet".into(), provider: "anthropic".into(), model: "x".into() };
    let no_provider =
        built(AgentRuntimeBuilder::new().with_agent_spec(agent()).with_model("claude-sonnet", spec.clone()));
    assert!(matches!(no_provider, Some(BuildError::ValidationFailed(why)) if why.contains("anthropic")));
    let whole = AgentRuntimeBuilder::new()
        .with_agent_spec(agent())
        .with_provider("anthropic", Arc::new(GenaiExecutor::new()))
        .with_model("claude-sonnet", spec);
    assert_eq!(built(whole), None);
    // Errors wait for `build`, which returns the first one.
    let wrong = AgentRuntimeBuilder::new()
        .with_tool("weather", Arc::new(Forecast))
        .with_agent_spec(agent())
        .with_agent_spec(agent());
    assert!(matches!(built(wrong), Some(BuildError::ToolRegistryConflict(why)) if why.contains("weather")));
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Journal {
    entries: Vec<String>,
}

struct JournalKey;

impl StateKey for JournalKey {
    type Value = Journal;
    const KEY: &'static str = "journal";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;

    type Update = Journal;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }

    fn encode(value: &Self::Value) -> Result<JsonValue, StateError> {
        serde_json::to_value(value)
            .map_err(|e| StateError::KeyEncode { key: Self::KEY.into(), message: e.to_string() })
    }

    fn decode(json: JsonValue) -> Result<Self::Value, StateError> {
        serde_json::from_value(json)
            .map_err(|e| StateError::KeyDecode { key: Self::KEY.into(), message: e.to_string() })
    }
}

struct JournalHook;

#[async_trait]
impl PhaseHook for JournalHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut journal = ctx.state::<JournalKey>().cloned().unwrap_or(Journal { entries: Vec::new() });
        journal.entries.push(format!("{:?}", ctx.phase));
        let mut cmd = StateCommand::new();
        cmd.update::<JournalKey>(journal.clone());
        cmd.emit::<Written>(WrittenPayload { lines: journal.entries.len() })?;
        cmd.schedule_action::<Whisper>("psst".into())?;
        Ok(cmd)
    }
}

/// A custom effect.
struct Written;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct WrittenPayload {
    lines: usize,
}

impl EffectSpec for Written {
    const KEY: &'static str = "journal.written";
    type Payload = WrittenPayload;
}

struct Listener(Arc<Mutex<Vec<(usize, usize)>>>);

#[async_trait]
impl TypedEffectHandler<Written> for Listener {
    async fn handle_typed(&self, payload: WrittenPayload, snapshot: &Snapshot) -> Result<(), String> {
        let seen = snapshot.get::<JournalKey>().map_or(0, |journal| journal.entries.len());
        self.0.lock().expect("not poisoned").push((payload.lines, seen));
        Err("a handler that fails stops nothing".into())
    }
}

/// A custom action: its handler schedules a core one.
struct Whisper;

impl ScheduledActionSpec for Whisper {
    const KEY: &'static str = "journal.whisper";
    const PHASE: Phase = Phase::BeforeInference;
    type Payload = String;
}

struct Whisperer;

#[async_trait]
impl TypedScheduledActionHandler<Whisper> for Whisperer {
    async fn handle_typed(&self, _: &PhaseContext, text: String) -> Result<StateCommand, StateError> {
        let mut cmd = StateCommand::new();
        cmd.schedule_action::<AddContextMessage>(ContextMessage::system_persistent("journal.hint", text))?;
        Ok(cmd)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct JournalConfig {
    pages: u32,
}

struct JournalConfigKey;

impl PluginConfigKey for JournalConfigKey {
    const KEY: &'static str = "journal";
    type Config = JournalConfig;
}

struct JournalPlugin {
    heard: Arc<Mutex<Vec<(usize, usize)>>>,
}

impl Plugin for JournalPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new("journal", "Writes down the phases")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar
            .register_key::<JournalKey>(StateKeyOptions { scope: KeyScope::Run, ..Default::default() })?;
        registrar.register_phase_hook("journal", Phase::AfterInference, JournalHook)?;
        registrar.register_effect::<Written, _>(Listener(Arc::clone(&self.heard)))?;
        registrar.register_scheduled_action::<Whisper, _>(Whisperer)?;
        registrar.register_tool("forecast", Arc::new(Forecast))
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        vec![ConfigSchema { key: JournalConfigKey::KEY, json_schema: schemars::schema_for!(JournalConfig) }]
    }
}

#[tokio::test]
async fn a_plugin_brings_state_hooks_actions_effects_and_tools() {
    let heard = Arc::default();
    let plugin = JournalPlugin { heard: Arc::clone(&heard) };
    let spec = AgentSpec::new("assistant")
        .with_model("m")
        .with_config::<JournalConfigKey>(JournalConfig { pages: 3 })
        .expect("a section")
        .with_hook_filter("journal");
    let builder = AgentRuntimeBuilder::new().with_plugin("journal", Arc::new(plugin)).with_agent_spec(spec);
    let script = vec![
        ScriptedReply::new().call("forecast", json!({"city": "Oslo"})),
        ScriptedReply::new().text("Clear."),
    ];
    let (_, result, executor) = run(builder, "assistant", script).await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    assert_eq!(*heard.lock().expect("not poisoned"), [(1, 1), (2, 2)], "emitted once each, after the commit");
    let requests = executor.requests();
    let told = |n: usize| format!("{:?}", requests[n].messages).contains("psst");
    assert!(!told(0) && told(1), "an action of a later phase runs there: {requests:?}");
    assert!(requests[0].tools.iter().any(|tool| tool.id == "forecast"));
}

#[tokio::test]
async fn a_filter_omits_a_plugins_effects_and_contributions() {
    let heard = Arc::default();
    let plugin = JournalPlugin { heard: Arc::clone(&heard) };
    let spec = AgentSpec::new("assistant").with_model("m").with_hook_filter("another");
    let builder = AgentRuntimeBuilder::new().with_plugin("journal", Arc::new(plugin)).with_agent_spec(spec);
    let (_, _, executor) = run(builder, "assistant", vec![ScriptedReply::new().text("x")]).await;
    assert!(heard.lock().expect("not poisoned").is_empty());
    assert!(executor.requests()[0].tools.is_empty());
}

#[test]
fn an_invalid_section_is_refused() {
    let spec = AgentSpec::new("assistant").with_model("m").with_section("journal", json!({"pages": "many"}));
    let error = AgentRuntimeBuilder::new()
        .with_plugin("journal", Arc::new(JournalPlugin { heard: Arc::default() }))
        .with_agent_spec(spec)
        .with_provider("scripted", Arc::new(ScriptedExecutor::new([])))
        .with_model("m", model("m"))
        .build()
        .err();
    let Some(BuildError::ValidationFailed(why)) = error else { panic!("{error:?}") };
    assert!(why.contains("journal") && why.contains("pages"), "{why}");
}

/// Schedules the given action.
struct Scheduler<F>(F);

#[async_trait]
impl<F: Fn(&mut StateCommand) -> Result<(), StateError> + Send + Sync + 'static> PhaseHook for Scheduler<F> {
    async fn run(&self, _: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut cmd = StateCommand::new();
        self.0(&mut cmd)?;
        Ok(cmd)
    }
}

struct Shaper;

impl Plugin for Shaper {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "shaper" }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        let shape = Scheduler(|cmd: &mut StateCommand| {
            cmd.schedule_action::<SetInferenceOverride>(InferenceOverride {
                temperature: Some(0.0),
                ..Default::default()
            })?;
            cmd.schedule_action::<IncludeOnlyTools>(vec!["forecast".into(), "rm".into()])?;
            cmd.schedule_action::<ExcludeTool>("rm".into())
        });
        registrar.register_phase_hook("shaper", Phase::BeforeInference, shape)?;
        let block = Scheduler(|cmd: &mut StateCommand| {
            let result = ToolResult::success("forecast", json!({"sky": "as told"}));
            cmd.schedule_action::<ToolInterceptAction>(ToolInterceptPayload::SetResult(result))?;
            cmd.schedule_action::<ToolInterceptAction>(ToolInterceptPayload::Block {
                reason: "the tool is off".into(),
            })
        });
        registrar.register_phase_hook("shaper", Phase::BeforeToolExecute, block)
    }
}

#[tokio::test]
async fn core_actions_shape_a_request_and_stop_a_call() {
    let spec = AgentSpec::new("assistant").with_model("m");
    let builder = AgentRuntimeBuilder::new()
        .with_plugin("shaper", Arc::new(Shaper))
        .with_tool("forecast", Arc::new(Forecast))
        .with_agent_spec(spec);
    let script = vec![ScriptedReply::new().call("forecast", json!({"city": "Oslo"}))];
    let (_, result, executor) = run(builder, "assistant", script).await;
    assert_eq!(result.termination, TerminationReason::Blocked("the tool is off".into()));
    let request = &executor.requests()[0];
    assert_eq!(request.overrides.temperature, Some(0.0));
    let offered: Vec<&str> = request.tools.iter().map(|tool| tool.id.as_str()).collect();
    assert_eq!(offered, ["forecast"]);
}

const SKILL_MD: &str = "---\nname: tide\ndescription: Reads tide tables\n---\nLook at the moon first.\n";

#[tokio::test]
async fn skills_are_found_offered_and_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("tide")).expect("a folder");
    std::fs::write(folder.path().join("tide/SKILL.md"), SKILL_MD).expect("a skill");
    let result = FsSkill::discover(folder.path()).expect("discovered");
    assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    let found = FsSkill::into_arc_skills(result.skills);
    assert_eq!(found.len(), 1);
    let skill = EmbeddedSkill::new(&EmbeddedSkillData { skill_md: SKILL_MD, references: &[], assets: &[] })
        .expect("a valid skill");
    let registry = Arc::new(InMemorySkillRegistry::from_skills(vec![Arc::new(skill)]));
    let subsystem = SkillSubsystem::new(registry);
    let spec = AgentSpec::new("skilled")
        .with_model("m")
        .with_hook_filter("skills-discovery")
        .with_hook_filter("skills-active-instructions");
    let builder = AgentRuntimeBuilder::new()
        .with_agent_spec(spec)
        .with_plugin("skills-discovery", Arc::new(subsystem.discovery_plugin()) as Arc<dyn Plugin>)
        .with_plugin(
            "skills-active-instructions",
            Arc::new(subsystem.active_instructions_plugin()) as Arc<dyn Plugin>,
        );
    let script = vec![
        ScriptedReply::new().call("skill", json!({"skill": "tide"})),
        ScriptedReply::new().text("High."),
    ];
    let (_, result, executor) = run(builder, "skilled", script).await;
    assert_eq!(result.response, "High.");
    let requests = executor.requests();
    let offered: Vec<&str> = requests[0].tools.iter().map(|tool| tool.id.as_str()).collect();
    // The third one, `skill_script`, comes with a host that can run scripts: `SkillSubsystem::with_scripts`.
    assert_eq!(offered, ["load_skill_resource", "skill"]);
    let holds = |n: usize, text: &str| format!("{:?}", requests[n]).contains(text);
    assert!(holds(0, "Reads tide tables"), "the catalogue");
    assert!(!holds(0, "Look at the moon first") && holds(1, "Look at the moon first"), "the instructions");
}
