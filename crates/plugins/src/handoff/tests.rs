use serde_json::json;

use super::*;
use aye_core::contract::tool::{ToolCallContext, ToolStatus};
use aye_core::phase::{ExecutionEnv, PhaseRuntime};
use aye_core::state::{StateKey as _, StateStore};

fn roster(names: &[(&str, &str)]) -> Roster {
    let all: BTreeMap<String, Option<String>> =
        names.iter().map(|(id, about)| ((*id).to_owned(), Some((*about).to_owned()))).collect();
    Arc::new(move || all.clone())
}

fn tool_of(plugin: HandoffPlugin, spec: &AgentSpec) -> Option<Arc<dyn aye_core::contract::tool::Tool>> {
    let env = ExecutionEnv::for_agent(&[Arc::new(plugin)], spec).unwrap();
    env.tools.get(HANDOFF_TOOL).map(|tagged| Arc::clone(&tagged.tool))
}

#[test]
fn the_state_follows_the_actions() {
    let mut state = HandoffState::default();
    let apply = |state: &mut HandoffState, action| ActiveAgentKey::apply(state, action);
    assert_eq!(HandoffPlugin::effective_agent(&state), None);
    apply(&mut state, request_handoff("a"));
    assert_eq!(state, HandoffState { active_agent: None, requested_agent: Some("a".into()) });
    assert_eq!(HandoffPlugin::effective_agent(&state).map(String::as_str), Some("a"));
    apply(&mut state, activate_handoff("a"));
    assert_eq!(state, HandoffState { active_agent: Some("a".into()), requested_agent: None });
    apply(&mut state, request_handoff("b"));
    assert_eq!(HandoffPlugin::effective_agent(&state).map(String::as_str), Some("b"));
    apply(&mut state, clear_handoff());
    assert_eq!(state, HandoffState::default());
    assert_eq!(serde_json::to_value(request_handoff("a")).unwrap(), json!({"request": {"agent": "a"}}));
}

#[tokio::test]
async fn a_request_becomes_the_active_agent_at_the_boundaries() {
    let env = ExecutionEnv::from_plugins(&[Arc::new(HandoffPlugin::default())]).unwrap();
    for phase in [Phase::RunStart, Phase::StepEnd] {
        let phases = PhaseRuntime::new(StateStore::new()).unwrap();
        phases.install(&env).unwrap();
        let mut command = StateCommand::new();
        command.update::<ActiveAgentKey>(request_handoff("b"));
        phases.store().commit(command).unwrap();
        let ctx = PhaseContext::new(
            phase,
            ToolCallContext::test_default().run_identity,
            Arc::new(AgentSpec::new("a")),
        );
        phases.run_phase(&env, ctx).await.unwrap();
        let state = phases.store().read::<ActiveAgentKey>().unwrap();
        assert_eq!(
            state,
            HandoffState { active_agent: Some("b".into()), requested_agent: None },
            "{phase:?}"
        );
    }
}

/// A handoff applies to the next run of the thread too, unless that run starts with another agent.
#[tokio::test]
async fn a_handoff_lasts_until_the_user_chooses_another_agent() {
    assert_eq!(ActiveAgentKey::SCOPE, KeyScope::Thread);
    let env = ExecutionEnv::from_plugins(&[Arc::new(HandoffPlugin::default())]).unwrap();
    let phases = PhaseRuntime::new(StateStore::new()).unwrap();
    phases.install(&env).unwrap();
    let mut command = StateCommand::new();
    command.update::<ActiveAgentKey>(request_handoff("b"));
    phases.store().commit(command).unwrap();
    let begin = async |agent: &str, phase: Phase| {
        let mut identity = ToolCallContext::test_default().run_identity;
        identity.agent_id = agent.into();
        let ctx = PhaseContext::new(phase, identity, Arc::new(AgentSpec::new(agent)));
        phases.run_phase(&env, ctx).await.unwrap();
        phases.store().read::<ActiveAgentKey>().unwrap().active_agent
    };
    assert_eq!(begin("a", Phase::StepEnd).await.as_deref(), Some("b"));
    assert_eq!(begin("a", Phase::RunStart).await.as_deref(), Some("b"), "the next run");
    assert_eq!(begin("c", Phase::RunStart).await, None, "a run of another agent");
    assert_eq!(begin("a", Phase::RunStart).await, None, "it is not handed off again");
}

#[tokio::test]
async fn only_agents_with_targets_have_the_tool_and_it_describes_them() {
    let spec = AgentSpec::new("a").with_section("handoff", json!({"agents": ["writer", "a", "gone"]}));
    let plugin =
        HandoffPlugin::default().with_roster(roster(&[("a", "x"), ("writer", "Writes\n text."), ("z", "z")]));
    assert!(tool_of(plugin.clone(), &AgentSpec::new("a")).is_none());
    let only_gone = AgentSpec::new("a").with_section("handoff", json!({"agents": ["gone"]}));
    assert!(tool_of(plugin.clone(), &only_gone).is_none());
    let tool = tool_of(plugin, &spec).expect("a tool");
    let about = tool.descriptor();
    assert!(about.description.ends_with("The agents:\n- writer: Writes text."), "{}", about.description);
    assert_eq!(about.parameters["properties"]["agent"]["enum"], json!(["writer"]));
    let ctx = ToolCallContext::test_default();
    let output = tool.execute(json!({"agent": "writr"}), &ctx).await.unwrap();
    assert_eq!(output.result.status, ToolStatus::Error);
    assert_eq!(
        output.result.message.as_deref(),
        Some("unknown agent `writr`; did you mean `writer`?; nothing was handed off")
    );
    assert!(output.command.is_empty());
    let output = tool.execute(json!({"agent": "writer"}), &ctx).await.unwrap();
    assert_eq!(output.result.status, ToolStatus::Success);
    assert!(!output.command.is_empty());
}

#[test]
fn variants_are_targets_without_a_section_and_a_section_is_validated() {
    let overlays = HashMap::from([("writer".to_owned(), AgentOverlay::default())]);
    let plugin = HandoffPlugin::new(overlays);
    assert_eq!(plugin.overlay("writer"), Some(&AgentOverlay::default()));
    assert_eq!(plugin.overlay("other"), None);
    assert!(tool_of(plugin.clone(), &AgentSpec::new("a")).is_some());
    assert!(plugin.check_section("handoff", &json!({"agents": ["a"]})).is_ok());
    for wrong in
        [json!([]), json!({}), json!({"agents": [1]}), json!({"agents": [" "]}), json!({"agent": ["a"]})]
    {
        assert!(plugin.check_section("handoff", &wrong).is_err(), "{wrong}");
    }
}
