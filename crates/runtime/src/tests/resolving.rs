//! Agents that cannot be resolved, and the tools of those that can.

use super::*;
use aye_plugins::stop::StopPlugin;

fn refusal(change: impl FnOnce(AgentRuntimeBuilder) -> AgentRuntimeBuilder) -> String {
    let house = House::new();
    change(house.builder(&Script::of([]))).build().unwrap_err().to_string()
}

fn agent(change: impl FnOnce(&mut AgentSpec)) -> AgentSpec {
    let mut spec = AgentSpec::new("b").with_model("m");
    change(&mut spec);
    spec
}

#[test]
fn each_error_says_what_is_expected() {
    let with = |spec: AgentSpec| {
        refusal(|builder| builder.with_agent_spec(spec).with_plugin("stop", Arc::new(StopPlugin::default())))
    };
    let cases = [
        (
            agent(|spec| spec.model = "gpt".into()),
            "the agent `b` cannot run: the model `gpt` is not registered; there is m",
        ),
        (
            agent(|spec| spec.plugin_ids = vec!["gatekeper".into()]),
            "the agent `b` cannot run: the plugin `gatekeper` is not registered; did you mean `gatekeeper`?",
        ),
        (
            agent(|spec| spec.allowed_tools = Some(vec!["Bash(".into()])),
            "the agent `b` cannot run: invalid tool pattern `Bash(`: ",
        ),
        (
            agent(|spec| {
                spec.sections.insert("stop".into(), json!({"conditions": [{"type": "nothing"}]}));
            }),
            "the agent `b` cannot run: invalid section `stop` of plugin `stop`: conditions[0]: unknown \
             variant `nothing`",
        ),
        (
            agent(|spec| {
                spec.sections.insert("retry".into(), json!({"max_retries": "many"}));
            }),
            "the agent `b` cannot run: invalid section `retry` of plugin `retry`: invalid type",
        ),
        (
            agent(|spec| {
                spec.sections.insert("retry".into(), json!({"fallback_models": ["n"]}));
            }),
            "the agent `b` cannot run: the model `n` is not registered; did you mean `m`?",
        ),
    ];
    for (spec, sentence) in cases {
        let content = with(spec);
        assert!(content.starts_with(sentence), "{content}");
    }
    let no_provider = refusal(|builder| {
        builder
            .with_agent_spec(agent(|spec| spec.model = "x".into()))
            .with_model("x", ModelEntry { provider: "nobody".into(), model_name: "x".into() })
    });
    assert_eq!(no_provider, "the agent `b` cannot run: the provider `nobody` is not registered; there is p");
    let twice = refusal(|builder| builder.with_plugin("again", Arc::new(Gatekeeper)));
    assert!(twice.contains("gatekeeper"), "{twice}");
}

struct Bringer;

impl Plugin for Bringer {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "bringer" }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        let tool = Counter { name: "free", class: ToolClass::Pure, runs: Arc::default(), hangs: None };
        registrar.register_tool("free", Arc::new(tool))
    }
}

#[test]
fn duplicate_tools_and_agents_that_run_elsewhere_are_refused() {
    let conflict = refusal(|builder| builder.with_plugin("bringer", Arc::new(Bringer)));
    assert_eq!(
        conflict,
        "the agent `a` cannot run: the tool `free` comes from the runtime and from a plugin"
    );
    let house = House::new();
    let endpoint = serde_json::from_value(json!({"backend": "a2a", "base_url": "http://x"})).unwrap();
    let runtime = house.runtime(&Script::of([]));
    runtime.set_agent(AgentSpec::new("far").with_endpoint(endpoint));
    let error = runtime.try_resolve("far").unwrap_err();
    assert_eq!(error.to_string(), "the agent `far` runs remotely: delegate to it instead");
    let error = runtime.try_resolve("b").unwrap_err();
    assert_eq!(runtime.catalog().advice(&error), "unknown agent `b`; did you mean `a`?");
}

#[test]
fn tools_are_allowed_and_excluded_by_name_patterns() {
    let house = House::new();
    let runtime = house.runtime(&Script::of([]));
    let all = ["free", "ask", "ask_soon", "ask_at_1000", "deny", "hang", "ask_hang", "hang_pure"];
    let list = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let cases = [
        (None, None, &all[..]),
        (list(&[]), None, &[]),
        (list(&["free"]), None, &["free"]),
        (list(&["free", "deny", "nothing"]), None, &["free", "deny"]),
        (list(&["ask*"]), None, &["ask", "ask_soon", "ask_at_1000", "ask_hang"]),
        (list(&["ask_*"]), list(&["*hang*"]), &["ask_soon", "ask_at_1000"]),
        (list(&["/^hang/"]), None, &["hang", "hang_pure"]),
        (None, list(&["*"]), &[]),
        (None, list(&["ask*", "/hang/"]), &["free", "deny"]),
        // Excluding beats allowing.
        (list(&["free", "deny"]), list(&["free"]), &["deny"]),
        // Arguments do not decide which tools are offered: the rules judge such a call.
        (list(&["free(id=1)"]), None, &["free"]),
        (list(&["free(git *)"]), None, &["free"]),
        (list(&["free", "deny"]), list(&["free(git *)"]), &["free", "deny"]),
        (list(&["free", "deny"]), list(&["free(*)"]), &["deny"]),
    ];
    for (allowed, excluded, wanted) in cases {
        let case = format!("{allowed:?} {excluded:?}");
        runtime.set_agent(agent(|spec| {
            spec.allowed_tools = allowed;
            spec.excluded_tools = excluded;
        }));
        let resolved = runtime.try_resolve("b").unwrap();
        let tools: Vec<&str> = resolved.tools.keys().map(String::as_str).collect();
        assert_eq!(tools, wanted, "{case}");
        assert_eq!(resolved.descriptors.len(), wanted.len());
    }
}
