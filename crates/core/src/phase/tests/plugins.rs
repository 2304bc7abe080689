use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::contract::executor::InferenceRequest;
use crate::contract::foreign::ForeignError;
use crate::contract::spec::{AgentSpec, PluginConfigKey};
use crate::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};

// The book's examples, almost verbatim.

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct AuditLog {
    entries: Vec<String>,
}
struct AuditLogKey;
impl StateKey for AuditLogKey {
    type Value = AuditLog;
    const KEY: &'static str = "audit_log";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    type Update = AuditLog;
    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }
}
struct AuditHook;
#[async_trait]
impl PhaseHook for AuditHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut log = ctx.state::<AuditLogKey>().cloned().unwrap_or(AuditLog { entries: Vec::new() });
        log.entries.push(format!("Phase executed at {:?}", ctx.phase));
        let mut cmd = StateCommand::new();
        cmd.update::<AuditLogKey>(log);
        Ok(cmd)
    }
}
struct AuditPlugin;
impl Plugin for AuditPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "audit" }
    }
    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<AuditLogKey>(StateKeyOptions::default())?;
        registrar.register_phase_hook("audit", Phase::AfterInference, AuditHook)?;
        Ok(())
    }
}

#[tokio::test]
async fn audit_hook_appends_entry() {
    let cmd = AuditHook.run(&PhaseContext::test_default()).await.unwrap();
    let store = StateStore::new();
    store.install_plugin(AuditPlugin).unwrap();
    store.commit(cmd).unwrap();
    let log = store.read::<AuditLogKey>().unwrap();
    assert!(!log.entries.is_empty());
    let again = store.install_plugin(AuditPlugin);
    assert_eq!(again, Err(StateError::PluginAlreadyInstalled { name: "audit".into() }));
}

#[test]
fn a_refused_plugin_leaves_no_keys() {
    struct Second;
    impl Plugin for Second {
        fn descriptor(&self) -> PluginDescriptor {
            PluginDescriptor::new("second", "comes too late")
        }
        fn register(&self, r: &mut PluginRegistrar) -> Result<(), StateError> {
            r.register_key::<Count>(StateKeyOptions::default())?;
            r.register_key::<AuditLogKey>(StateKeyOptions::default())
        }
    }
    let store = StateStore::new();
    store.install_plugin(AuditPlugin).unwrap();
    let taken = StateError::KeyAlreadyRegistered { key: "audit_log".into() };
    assert_eq!(store.install_plugin(Second), Err(taken));
    let mut batch = crate::state::MutationBatch::new();
    batch.update::<Count>(1);
    assert_eq!(store.commit_batch(batch), Err(StateError::UnknownKey { key: "test.count".into() }));
}

fn refused(plugins: &[Arc<dyn Plugin>]) -> StateError {
    ExecutionEnv::from_plugins(plugins).unwrap_err()
}

#[test]
fn duplicate_registrations_are_refused_by_name() {
    let key = |name| part(name, |r| r.register_key::<Count>(StateKeyOptions::default()));
    assert_eq!(refused(&[key("a"), key("b")]), StateError::KeyAlreadyRegistered { key: "test.count".into() });
    assert_eq!(refused(&[key("a"), key("a")]), StateError::PluginAlreadyInstalled { name: "a".into() });
    let action = |name| part(name, |r| r.register_scheduled_action::<Later, _>(Counting));
    assert_eq!(
        refused(&[action("a"), action("b")]),
        StateError::HandlerAlreadyRegistered { key: "test.later".into() }
    );
    let effect = |name| part(name, |r| r.register_effect::<Announced, _>(Ears::default()));
    assert_eq!(
        refused(&[effect("a"), effect("b")]),
        StateError::EffectHandlerAlreadyRegistered { key: "test.announced".into() }
    );
    let tool = |name| part(name, |r| r.register_tool("greet", Arc::new(Greet)));
    assert_eq!(
        refused(&[tool("a"), tool("b")]),
        StateError::ToolAlreadyRegistered { tool_id: "greet".into() }
    );
    assert_eq!(
        refused(&[part("a", |r| r.register_tool("hello", Arc::new(Greet)))]),
        StateError::ToolIdMismatch { tool_id: "hello".into(), declared: "greet".into() }
    );
}

#[test]
fn the_core_actions_cannot_be_replaced() {
    struct Mine;
    #[async_trait]
    impl TypedScheduledActionHandler<crate::contract::tool_intercept::ToolInterceptAction> for Mine {
        async fn handle_typed(
            &self,
            _: &PhaseContext,
            _: crate::contract::tool_intercept::ToolInterceptPayload,
        ) -> Result<StateCommand, StateError> {
            Ok(StateCommand::new())
        }
    }
    let error = refused(&[part("mine", |r| r.register_scheduled_action::<_, _>(Mine))]);
    assert_eq!(error, StateError::HandlerAlreadyRegistered { key: "tool_intercept".into() });
}

struct Greet;
#[async_trait]
impl Tool for Greet {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("greet", "greet", "Greets")
    }
    async fn execute(&self, _: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::text("greet", "hello").into())
    }
}

struct Append(&'static str);
impl InferenceRequestTransform for Append {
    fn transform(&self, mut request: InferenceRequest, _: &PhaseContext) -> InferenceRequest {
        assert_ne!(self.0, "panic", "as instructed");
        request.model.push_str(self.0);
        request
    }
}

#[test]
fn the_filter_covers_tools_and_transforms_but_not_keys_and_handlers() {
    let plugins = [
        part("greeter", |r| r.register_tool("greet", Arc::new(Greet))),
        part("a", |r| r.register_request_transform("a", Append("a"))),
        part("b", |r| {
            r.register_request_transform("b", Append("b"))?;
            r.register_key::<Count>(StateKeyOptions::default())?;
            r.register_scheduled_action::<Later, _>(Counting)
        }),
    ];
    let env = ExecutionEnv::from_plugins(&plugins).unwrap();
    let model = |spec: AgentSpec| {
        let ctx = PhaseContext::test_default().with_agent_spec(spec);
        env.transform_request(InferenceRequest::default(), &ctx).unwrap().model
    };
    let all = AgentSpec::new("agent");
    let only_a = AgentSpec::new("agent").with_hook_filter("a");
    assert_eq!(env.active_tools(&all).map(|(id, _)| id).collect::<Vec<_>>(), ["greet"]);
    assert_eq!(env.active_tools(&only_a).count(), 0);
    assert_eq!((model(all), model(only_a)), ("ab".into(), "a".into()));
    assert!(env.knows_action("test.later"));
    assert!(env.key_registrations.iter().any(|key| key.key == "test.count"));
}

#[test]
fn a_panicking_transform_is_an_error() {
    let env =
        ExecutionEnv::from_plugins(&[part("a", |r| r.register_request_transform("a", Append("panic")))]);
    let ctx = PhaseContext::test_default();
    let error = env.unwrap().transform_request(InferenceRequest::default(), &ctx).unwrap_err();
    assert!(error.to_string().starts_with("request transform of plugin `a` panicked:"), "{error}");
}

#[test]
fn plugins_can_be_installed_again_and_together() {
    let ears = Ears::default();
    let first = ExecutionEnv::from_plugins(&[base(&ears)]).unwrap();
    let second = ExecutionEnv::from_plugins(&[base(&ears), Arc::new(AuditPlugin)]).unwrap();
    let runtime = PhaseRuntime::new(StateStore::new()).unwrap();
    for env in [&first, &second, &first] {
        runtime.install(env).unwrap();
    }
    let other = part("other", |r| {
        r.register_key::<Count>(StateKeyOptions { persistent: false, ..StateKeyOptions::default() })
    });
    let other = ExecutionEnv::from_plugins(&[other]).unwrap();
    let taken = StateError::KeyAlreadyRegistered { key: "test.count".into() };
    assert_eq!(runtime.install(&other), Err(taken), "one name, other options");
    PhaseRuntime::new(runtime.store().clone()).unwrap();
}

#[test]
fn activation_writes_initial_values_of_active_plugins() {
    struct Starter;
    impl Plugin for Starter {
        fn descriptor(&self) -> PluginDescriptor {
            PluginDescriptor { name: "starter" }
        }
        fn register(&self, r: &mut PluginRegistrar) -> Result<(), StateError> {
            r.register_key::<Count>(StateKeyOptions::default())
        }
        fn on_activate(&self, _: &AgentSpec, b: &mut crate::state::MutationBatch) -> Result<(), StateError> {
            b.update::<Count>(7);
            Ok(())
        }
        fn on_deactivate(&self, b: &mut crate::state::MutationBatch) -> Result<(), StateError> {
            b.update::<Count>(1);
            Ok(())
        }
    }
    let env = ExecutionEnv::from_plugins(&[Arc::new(Starter) as Arc<dyn Plugin>]).unwrap();
    let runtime = PhaseRuntime::new(StateStore::new()).unwrap();
    runtime.install(&env).unwrap();
    runtime.activate(&env, &AgentSpec::new("agent").with_hook_filter("other")).unwrap();
    assert_eq!(runtime.store().read::<Count>(), None);
    runtime.activate(&env, &AgentSpec::new("agent")).unwrap();
    assert_eq!(runtime.store().read::<Count>(), Some(7));
    runtime.deactivate(&env, &AgentSpec::new("agent")).unwrap();
    assert_eq!(runtime.store().read::<Count>(), Some(8));
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct RateLimitConfig {
    max_calls_per_step: u32,
    cooldown_ms: u64,
}
struct RateLimitConfigKey;
impl PluginConfigKey for RateLimitConfigKey {
    const KEY: &'static str = "rate_limit";
    type Config = RateLimitConfig;
}
struct RateLimit;
impl Plugin for RateLimit {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "rate-limit" }
    }
    fn config_schemas(&self) -> Vec<ConfigSchema> {
        vec![ConfigSchema {
            key: RateLimitConfigKey::KEY,
            json_schema: schemars::schema_for!(RateLimitConfig),
        }]
    }
    fn check_section(&self, _: &str, section: &Value) -> Result<(), ForeignError> {
        match section["cooldown_ms"].as_u64() {
            Some(13) => Err("cooldown_ms: not 13".into()),
            _ => Ok(()),
        }
    }
}

fn sections(value: Value) -> Result<Vec<String>, String> {
    let plugins: Vec<Arc<dyn Plugin>> = vec![Arc::new(RateLimit)];
    let mut spec = AgentSpec::new("agent");
    spec.sections = serde_json::from_value(value).unwrap();
    validate_sections(&plugins, &spec).map_err(|error| error.to_string())
}

#[test]
fn sections_are_validated_against_plugin_schemas() {
    assert_eq!(sections(json!({})), Ok(vec![]));
    assert_eq!(sections(json!({"rate_limit": {"max_calls_per_step": 3}})), Ok(vec![]));
    assert_eq!(sections(json!({"rate_limt": {}, "a": 1})), Ok(vec!["a".into(), "rate_limt".into()]));
    let refused = |value| sections(json!({ "rate_limit": value })).unwrap_err();
    assert_eq!(
        refused(json!({"max_calls_per_step": "three"})),
        "section `rate_limit` of agent `agent` (plugin `rate-limit`): /max_calls_per_step: \"three\" is not of type \"integer\""
    );
    assert!(refused(json!({"max_calls_per_step": -1})).contains("/max_calls_per_step: -1 is less than"));
    assert!(refused(json!([])).contains("[] is not of type \"object\""));
    assert!(refused(json!({"cooldown_ms": 13})).ends_with("cooldown_ms: not 13"));
}

#[derive(Clone, Copy)]
struct Keeper;
struct Kept;
struct Gone;

impl StateKey for Kept {
    const KEY: &'static str = "keeper.kept";
    type Value = u32;
    type Update = u32;

    fn apply(value: &mut u32, update: u32) {
        *value += update;
    }
}

impl StateKey for Gone {
    const KEY: &'static str = "keeper.gone";
    type Value = u32;
    type Update = u32;

    fn apply(value: &mut u32, update: u32) {
        *value += update;
    }
}

impl Plugin for Keeper {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "keeper" }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<Kept>(StateKeyOptions {
            retain_on_uninstall: true,
            ..StateKeyOptions::default()
        })?;
        registrar.register_key::<Gone>(StateKeyOptions::default())
    }
}

#[test]
fn an_uninstalled_plugin_leaves_only_retained_keys() {
    fn add<K: StateKey<Update = u32>>(store: &StateStore) -> Result<u64, StateError> {
        let mut command = StateCommand::new();
        command.update::<K>(1);
        store.commit(command)
    }
    let store = StateStore::new();
    assert!(matches!(
        store.uninstall_plugin::<Keeper>(),
        Err(StateError::PluginNotInstalled { type_name }) if type_name.ends_with("Keeper")
    ));
    store.install_plugin(Keeper).unwrap();
    add::<Kept>(&store).unwrap();
    add::<Gone>(&store).unwrap();
    let before = store.snapshot();

    store.uninstall_plugin::<Keeper>().unwrap();
    assert_eq!((store.read::<Kept>(), store.read::<Gone>()), (Some(1), None));
    assert_eq!(before.get::<Gone>(), Some(&1), "an earlier snapshot is unchanged");
    assert_eq!(add::<Gone>(&store), Err(StateError::UnknownKey { key: "keeper.gone".into() }));
    assert!(store.export(None).unwrap().values.keys().eq(["keeper.kept"]));

    store.install_plugin(Keeper).unwrap();
    add::<Kept>(&store).unwrap();
    assert_eq!((store.read::<Kept>(), store.read::<Gone>()), (Some(2), None));
    assert!(store.install_plugin(Keeper).is_err());
}
