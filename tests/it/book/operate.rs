//! Permissions, stop policies and progress.

use std::sync::Arc;

use async_trait::async_trait;
use aye::contract::event::AgentEvent;
use aye::contract::event_sink::VecEventSink;
use aye::contract::ids::DecisionId;
use aye::contract::lifecycle::{StopConditionSpec, StoppedReason, TerminationReason};
use aye::contract::message::Message;
use aye::contract::progress::{ProgressStatus, TOOL_CALL_PROGRESS_ACTIVITY_TYPE};
use aye::contract::suspension::{Actor, ResumeDecisionAction, ToolCallResume};
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::engine::{ScriptedExecutor, ScriptedReply};
use aye::ext_permission::{
    PermissionPlugin, PermissionRuleEntry, PermissionRulesConfig, ToolPermissionBehavior,
};
use aye::policies::{
    ConsecutiveErrorsPolicy, MaxRoundsPlugin, MaxRoundsPolicy, StopConditionPlugin, StopDecision, StopPolicy,
    StopPolicyStats, TimeoutPolicy, TokenBudgetPolicy, policies_from_specs,
};
use aye::runtime::UnknownPolicy;
use aye::{AgentRunResult, AgentRuntime, AgentRuntimeBuilder, AgentSpec, ModelSpec, Plugin, RunRequest};
use serde_json::{Value, json};

struct Index;

#[async_trait]
impl Tool for Index {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("index_docs", "Index", "Index documents")
    }

    async fn execute(&self, _: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        ctx.report_progress(ProgressStatus::Running, Some("starting"), None).await;
        ctx.report_progress(ProgressStatus::Running, Some("half"), Some(0.5)).await;
        ctx.report_activity("code-generation", "fn hello() {}").await;
        ctx.report_activity_delta("code-generation", json!({"op": "add", "path": "/line", "value": "x"}))
            .await;
        ctx.report_progress(ProgressStatus::Done, Some("complete"), Some(1.0)).await;
        Ok(ToolResult::success("index_docs", json!({"indexed": 10})).into())
    }
}

fn runtime(spec: AgentSpec, plugin: (&str, Arc<dyn Plugin>), script: Vec<ScriptedReply>) -> AgentRuntime {
    AgentRuntimeBuilder::new()
        .with_plugin(plugin.0, plugin.1)
        .with_agent_spec(spec.with_model("m"))
        .with_tool("index_docs", Arc::new(Index))
        .with_provider("scripted", Arc::new(ScriptedExecutor::new(script)))
        .with_model("m", ModelSpec { id: "m".into(), provider: "scripted".into(), model: "m".into() })
        .build()
        .expect("a runtime")
}

async fn run(runtime: &AgentRuntime) -> (AgentRunResult, Vec<AgentEvent>) {
    let sink = Arc::new(VecEventSink::new());
    let request = RunRequest::new("thread-1", vec![Message::user("go")]);
    let result = runtime.run(request, sink.clone()).await.expect("a run");
    (result, sink.take())
}

fn calls(n: usize) -> Vec<ScriptedReply> {
    let mut script: Vec<ScriptedReply> =
        (0..n).map(|_| ScriptedReply::new().call("index_docs", json!({}))).collect();
    script.push(ScriptedReply::new().text("done"));
    script
}

#[expect(clippy::default_trait_access, reason = "as a reader of the book writes it")]
fn rule(tool: &str, behavior: ToolPermissionBehavior) -> PermissionRuleEntry {
    PermissionRuleEntry { tool: tool.into(), behavior, scope: Default::default() }
}

#[tokio::test]
async fn an_undecided_call_waits_for_approval() {
    let spec = AgentSpec::new("guarded").with_hook_filter("permission");
    let runtime = runtime(spec, ("permission", Arc::new(PermissionPlugin) as Arc<dyn Plugin>), calls(1));
    let (result, events) = run(&runtime).await;
    assert_eq!(result.termination, TerminationReason::Suspended);
    assert!(matches!(
        events.last(),
        Some(AgentEvent::RunFinish { termination: TerminationReason::Suspended, .. })
    ));
    let yes = ToolCallResume {
        decision_id: DecisionId::fresh(),
        action: ResumeDecisionAction::Resume,
        result: Value::Null,
        reason: None,
        arguments: None,
        profile: None,
        updated_at: 0,
    };
    runtime.decide(&result.waiting[0].id, yes, Actor::default()).await.expect("stored");
    let sink = Arc::new(VecEventSink::new());
    let result =
        runtime.resume(&"thread-1".into(), sink.clone(), UnknownPolicy::Ask).await.expect("continues");
    assert_eq!((result.response.as_str(), result.termination), ("done", TerminationReason::NaturalEnd));
    let resumed = |event: &AgentEvent| matches!(event, AgentEvent::ToolCallResumed { .. });
    assert!(sink.take().iter().any(resumed));
}

#[tokio::test]
async fn rules_as_data_allow_ask_and_deny() {
    let config = PermissionRulesConfig {
        default_behavior: ToolPermissionBehavior::Ask,
        rules: vec![
            rule("index_*", ToolPermissionBehavior::Allow),
            rule("file_*", ToolPermissionBehavior::Ask),
            rule("delete_*", ToolPermissionBehavior::Deny),
        ],
    };
    let rules = config.into_ruleset().expect("rules");
    let plugin = ("permission", Arc::new(PermissionPlugin::with_rules(rules)) as Arc<dyn Plugin>);
    let (result, _) = run(&runtime(AgentSpec::new("free"), plugin, calls(1))).await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    let broken = PermissionRulesConfig {
        default_behavior: ToolPermissionBehavior::Ask,
        rules: vec![rule("/(/", ToolPermissionBehavior::Allow)],
    };
    assert!(broken.into_ruleset().is_err());

    let file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    std::fs::write(
        file.path(),
        "default_behavior: allow\nrules:\n  - tool: \"index_*\"\n    behavior: deny\n",
    )
    .expect("written");
    let rules = PermissionRulesConfig::from_file(file.path()).expect("read").into_ruleset().expect("rules");
    let plugin = ("permission", Arc::new(PermissionPlugin::with_rules(rules)) as Arc<dyn Plugin>);
    let (result, events) = run(&runtime(AgentSpec::new("bound"), plugin, calls(1))).await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd, "a denied call is a result");
    let done =
        |event: &AgentEvent| matches!(event, AgentEvent::ToolCallDone { result, .. } if result.is_error());
    assert!(events.iter().any(done));
}

struct Chatty {
    threshold: u32,
}

impl StopPolicy for Chatty {
    fn id(&self) -> &'static str {
        "chatty"
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        if stats.step_count >= self.threshold {
            StopDecision::Stop { code: "chatty".into(), detail: format!("{} steps", stats.step_count) }
        } else {
            StopDecision::Continue
        }
    }
}

fn stopped(result: &AgentRunResult) -> &str {
    match &result.termination {
        TerminationReason::Stopped(StoppedReason { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn policies_stop_runs() {
    let policies: Vec<Arc<dyn StopPolicy>> = vec![
        Arc::new(MaxRoundsPolicy::new(25)),
        Arc::new(TokenBudgetPolicy::new(100_000)),
        Arc::new(TimeoutPolicy::new(300_000)),
        Arc::new(ConsecutiveErrorsPolicy::new(3)),
        Arc::new(Chatty { threshold: 2 }),
    ];
    let plugin: Arc<dyn Plugin> = Arc::new(StopConditionPlugin::new(policies));
    let spec = AgentSpec::new("bounded").with_hook_filter(StopConditionPlugin::NAME);
    let (result, _) = run(&runtime(spec, ("stop-condition", plugin), calls(9))).await;
    assert_eq!((stopped(&result), result.steps), ("chatty", 2));

    let plugin: Arc<dyn Plugin> = Arc::new(MaxRoundsPlugin::new(3));
    let (result, _) =
        run(&runtime(AgentSpec::new("bounded"), ("stop-condition:max-rounds", plugin), calls(9))).await;
    assert_eq!((stopped(&result), result.steps), ("max_rounds", 3));

    let specs = vec![
        StopConditionSpec::MaxRounds { rounds: 10 },
        StopConditionSpec::Timeout { seconds: 300 },
        StopConditionSpec::TokenBudget { max_total: 100_000 },
        StopConditionSpec::ConsecutiveErrors { max: 3 },
        StopConditionSpec::StopOnTool { tool_name: "index_docs".into() },
    ];
    let policies = policies_from_specs(&specs);
    let plugin: Arc<dyn Plugin> = Arc::new(StopConditionPlugin::new(policies));
    let (result, _) = run(&runtime(AgentSpec::new("bounded"), ("stop-condition", plugin), calls(9))).await;
    assert_eq!((stopped(&result), result.steps), ("stop_on_tool", 1));
}

#[test]
fn an_impossible_condition_fails_the_build() {
    let specs = [StopConditionSpec::ContentMatch { pattern: String::new() }];
    let plugin = StopConditionPlugin::new(policies_from_specs(&specs));
    let error = AgentRuntimeBuilder::new()
        .with_plugin("stop-condition", Arc::new(plugin))
        .with_agent_spec(AgentSpec::new("a").with_model("m"))
        .with_provider("scripted", Arc::new(ScriptedExecutor::new([])))
        .with_model("m", ModelSpec { id: "m".into(), provider: "scripted".into(), model: "m".into() })
        .build()
        .expect_err("no runtime");
    assert!(error.to_string().contains("`pattern` is empty"), "{error}");
}

#[tokio::test]
async fn tools_report_progress_and_activities() {
    let plugin: Arc<dyn Plugin> = Arc::new(MaxRoundsPlugin::new(0));
    let (_, events) = run(&runtime(AgentSpec::new("a"), ("max", plugin), calls(1))).await;
    let snapshots: Vec<(&str, &Value)> = events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::ActivitySnapshot { activity_type, content, .. } => {
                Some((activity_type.as_str(), content))
            }
            _ => None,
        })
        .collect();
    let progress: Vec<&Value> = snapshots
        .iter()
        .filter(|(kind, _)| *kind == TOOL_CALL_PROGRESS_ACTIVITY_TYPE)
        .map(|(_, content)| *content)
        .collect();
    assert_eq!(progress.len(), 3);
    assert_eq!(progress[0]["schema"], "tool-call-progress.v1");
    assert!(progress[0].get("progress").is_none(), "absent when unknown: {}", progress[0]);
    assert_eq!((&progress[1]["progress"], &progress[2]["status"]), (&json!(0.5), &json!("done")));
    assert!(snapshots.contains(&("code-generation", &json!("fn hello() {}"))));
    let deltas =
        |event: &AgentEvent| matches!(event, AgentEvent::ActivityDelta { patch, .. } if patch.len() == 1);
    assert!(events.iter().any(deltas), "one operation is a list of one");
}
