use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::inference::{ModelUsage, StreamResult, TokenUsage};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::spec::{AgentSpec, RemoteEndpoint};
use aye_core::contract::todo::{TodoItem, TodoStatus, Todos};
use aye_core::contract::tool::{ToolClass, ToolDescriptor, ToolResult};
use aye_core::phase::{
    ExecutionEnv, PhaseContext, PhaseRuntime, RunProgress, ToolCallInfo, validate_sections,
};
use aye_core::state::{
    KeyRegistration, MutationBatch, StateKey, StateKeyOptions, StateStore, UnknownKeyPolicy,
};

/// A run with the stop plugin, driven by hand.
struct Bench {
    runtime: PhaseRuntime,
    env: ExecutionEnv,
    spec: AgentSpec,
    progress: RunProgress,
    spent: Vec<ModelUsage>,
    response: StreamResult,
}

impl Bench {
    fn new(specs: Vec<StopConditionSpec>) -> Self {
        Self::of(StopPlugin::new(specs).unwrap())
    }

    fn of(plugin: StopPlugin) -> Self {
        let plugins: Vec<Arc<dyn Plugin>> = vec![Arc::new(plugin)];
        let env = ExecutionEnv::from_plugins(&plugins).unwrap();
        let runtime = PhaseRuntime::new(StateStore::new()).unwrap();
        runtime.install(&env).unwrap();
        Self {
            runtime,
            env,
            spec: AgentSpec::new("agent").with_max_rounds(0),
            progress: RunProgress::default(),
            spent: Vec::new(),
            response: StreamResult::default(),
        }
    }

    async fn run(&self, ctx: PhaseContext) -> Option<String> {
        let ctx = ctx.with_agent_spec(self.spec.clone()).with_progress(self.progress);
        let ctx = ctx.with_spent(self.spent.clone());
        match self.runtime.run_phase(&self.env, ctx).await.unwrap().stop {
            None => None,
            Some(TerminationReason::Stopped(reason)) => {
                assert!(reason.detail.unwrap().chars().count() <= 200);
                Some(reason.code)
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    /// The model answers; returns the stop reason after `AfterInference`.
    async fn answer(&mut self, text: &str, calls: &[(&str, Value)], tokens: i32) -> Option<String> {
        self.progress.steps += 1;
        let usage = TokenUsage { prompt_tokens: Some(tokens), ..TokenUsage::default() };
        self.progress.usage.add(&usage);
        let calls = calls.iter().enumerate();
        self.response = StreamResult {
            content: vec![ContentBlock::text(text)],
            tool_calls: calls
                .map(|(n, (tool, args))| {
                    ToolCall::new(format!("c{}-{n}", self.progress.steps), *tool, args.clone())
                })
                .collect(),
            ..StreamResult::default()
        };
        let ctx = PhaseContext::test_default().with_phase(Phase::AfterInference);
        self.run(ctx.with_response(self.response.clone())).await
    }

    /// One of the calls gets its result from its tool.
    async fn settle(&self, place: usize, result: ToolResult) -> Option<String> {
        self.settle_as(place, result, false, true).await
    }

    async fn settle_as(
        &self,
        place: usize,
        result: ToolResult,
        came_to_nothing: bool,
        was_executed: bool,
    ) -> Option<String> {
        let call = self.response.tool_calls[place].clone();
        let mut ctx = PhaseContext::test_default()
            .with_phase(Phase::AfterToolExecute)
            .with_tool(ToolCallInfo::new(call, None))
            .with_tool_result(result);
        (ctx.came_to_nothing, ctx.was_executed) = (came_to_nothing, was_executed);
        self.run(ctx).await
    }

    async fn end_step(&self) -> Option<String> {
        let ctx = PhaseContext::test_default().with_phase(Phase::StepEnd);
        self.run(ctx.with_response(self.response.clone())).await
    }

    /// A whole step with one call.
    async fn step(&mut self, tool: &str, args: Value, ok: bool) -> Option<String> {
        let after = self.answer("", &[(tool, args)], 1).await;
        assert_eq!(after, None);
        let result = if ok { ToolResult::text(tool, "fine") } else { ToolResult::error(tool, "broken") };
        assert_eq!(self.settle(0, result).await, None);
        self.end_step().await
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the compared value is an option")]
fn code(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[tokio::test]
async fn max_rounds_counts_inferences_with_their_calls_settled() {
    let mut bench = Bench::new(vec![StopConditionSpec::MaxRounds { rounds: 3 }]);
    assert_eq!(bench.step("Read", json!({}), true).await, None);
    assert_eq!(bench.step("Read", json!({}), true).await, None);
    // `step` asserts that nothing stops between the third inference and the end of its step.
    assert_eq!(bench.step("Read", json!({}), true).await, code("max_rounds"));
}

#[tokio::test]
async fn a_run_that_ends_in_its_last_round_was_not_stopped() {
    let mut bench = Bench::new(vec![StopConditionSpec::MaxRounds { rounds: 1 }]);
    assert_eq!(bench.answer("done", &[], 1).await, None);
    assert_eq!(bench.end_step().await, None);
    // An answer with truncated calls is not an end: the model would be asked to continue.
    bench.response.has_incomplete_tool_calls = true;
    assert_eq!(bench.end_step().await, code("max_rounds"));
}

#[tokio::test]
async fn the_agents_own_round_limit_applies_too() {
    let mut bench = Bench::of(StopPlugin::default());
    bench.spec.max_rounds = 2;
    assert_eq!(bench.step("Read", json!({}), true).await, None);
    assert_eq!(bench.step("Read", json!({}), true).await, code("max_rounds"));
}

#[tokio::test]
async fn after_a_restart_the_steps_calls_are_read_from_the_conversation() {
    let mut bench = Bench::new(vec![StopConditionSpec::MaxRounds { rounds: 1 }]);
    bench.progress.steps = 1;
    let at_end = |messages: Vec<Message>| {
        PhaseContext::test_default().with_phase(Phase::StepEnd).with_messages(messages)
    };
    let conversation = vec![Message::user("hi"), Message::assistant("hello")];
    assert_eq!(bench.run(at_end(conversation)).await, None);
    let call = ToolCall::new("c1", "Read", json!({}));
    let asked = vec![Message::assistant_with(vec![], vec![call]), Message::tool("c1", "text")];
    assert_eq!(bench.run(at_end(asked)).await, code("max_rounds"));
}

#[tokio::test]
async fn budget_and_time_are_checked_after_each_inference() {
    let budget = vec![StopConditionSpec::TokenBudget { max_total: 100 }];
    let mut bench = Bench::new(budget.clone());
    assert_eq!(bench.answer("", &[], 60).await, None);
    assert_eq!(bench.answer("", &[], 40).await, None, "the budget is reached, not exceeded");
    assert_eq!(bench.answer("", &[], 1).await, code("token_budget"));

    // One provider reports a total, the other only its parts.
    let mut bench = Bench::new(budget);
    bench.progress.usage.total_tokens = Some(10);
    assert_eq!(bench.answer("", &[], 101).await, code("token_budget"));

    let mut bench = Bench::new(vec![StopConditionSpec::Timeout { seconds: 2 }]);
    bench.progress.active = Duration::from_secs(2);
    assert_eq!(bench.answer("", &[], 1).await, None);
    bench.progress.active = Duration::from_millis(2001);
    assert_eq!(bench.end_step().await, None);
    assert_eq!(bench.answer("", &[], 1).await, code("timeout"));
}

#[tokio::test]
async fn answers_whose_calls_all_come_to_nothing_stop_the_run() {
    let mut bench = Bench::new(vec![StopConditionSpec::ConsecutiveErrors { max: 2 }]);
    for (n, (runs, expected)) in
        [(false, None), (true, None), (false, None), (false, code("consecutive_errors"))]
            .into_iter()
            .enumerate()
    {
        assert_eq!(bench.answer("", &[("Bash", json!({ "n": n }))], 1).await, None);
        let result = ToolResult::error("Bash", "broken");
        assert_eq!(bench.settle_as(0, result, !runs, runs).await, None);
        assert_eq!(bench.end_step().await, expected, "{n}");
    }
}

#[tokio::test]
async fn a_failure_that_a_tool_reports_is_a_result() {
    let mut bench = Bench::new(vec![StopConditionSpec::ConsecutiveErrors { max: 1 }]);
    for n in 0..3 {
        assert_eq!(bench.step("Bash", json!({ "n": n }), false).await, None, "an exit status");
    }
}

#[tokio::test]
async fn an_answer_counts_once_and_only_if_no_call_ran() {
    let mut bench = Bench::new(vec![StopConditionSpec::ConsecutiveErrors { max: 2 }]);
    let calls = [("A", json!({})), ("B", json!({}))];
    let error = || ToolResult::error("A", "unknown tool");
    for (last_runs, expected) in
        [(false, None), (true, None), (false, None), (false, code("consecutive_errors"))]
    {
        bench.answer("", &calls, 1).await;
        bench.settle_as(0, error(), true, false).await;
        bench.settle_as(1, error(), !last_runs, last_runs).await;
        assert_eq!(bench.end_step().await, expected);
    }
}

impl Bench {
    /// The next step starts; returns what the model reads in it.
    async fn reminders(&self) -> Vec<String> {
        let ctx =
            PhaseContext::test_default().with_agent_spec(self.spec.clone()).with_progress(self.progress);
        let start = ctx.clone().with_phase(Phase::StepStart);
        self.runtime.run_phase(&self.env, start).await.unwrap();
        let report = self.runtime.run_phase(&self.env, ctx.with_phase(Phase::BeforeInference)).await.unwrap();
        report.inference.context_messages.into_iter().map(|message| message.content).collect()
    }

    /// Whether the model answers again after an answer without calls.
    async fn goes_on_after(&mut self, answer: &str) -> bool {
        self.answer(answer, &[], 1).await;
        let ctx = PhaseContext::test_default().with_phase(Phase::StepEnd).with_tools(tools());
        let ctx = ctx.with_agent_spec(self.spec.clone()).with_response(self.response.clone());
        self.runtime.run_phase(&self.env, ctx).await.unwrap().another_step
    }

    /// A call of one of [`tools`], which comes back.
    async fn call(&mut self, tool: usize, args: Value) {
        let descriptor = tools()[tool].clone();
        self.answer("", &[(&descriptor.id, args)], 1).await;
        let result = ToolResult::text(&descriptor.id, "fine");
        let call = self.response.tool_calls[0].clone();
        let ctx = PhaseContext::test_default().with_phase(Phase::AfterToolExecute);
        let ctx = ctx.with_tool(ToolCallInfo::new(call, Some(descriptor))).with_tool_result(result);
        assert_eq!(self.run(ctx).await, None);
        assert_eq!(self.end_step().await, None);
    }
}

fn tools() -> Vec<ToolDescriptor> {
    let tool = |name: &str, class, category| {
        let tool = ToolDescriptor::new(name, name, "").with_class(class).with_category(category);
        tool.with_primary_argument("file_path")
    };
    vec![
        tool("Edit", ToolClass::Verifiable, "file"),
        tool("Bash", ToolClass::Opaque, "exec"),
        tool("TodoWrite", ToolClass::Pure, "plan"),
        tool("Read", ToolClass::Pure, "file"),
        tool("WebFetch", ToolClass::Opaque, "web"),
    ]
}

fn checking(is_unattended: bool) -> Bench {
    let check = EndCheck { is_unattended, applies_to: Arc::new(|model| model != "demo") };
    let mut bench = Bench::of(StopPlugin::default().checking_ends(check));
    bench.runtime.store().ensure(&[KeyRegistration::of::<Todos>(StateKeyOptions::default())]).unwrap();
    bench.spec = bench.spec.with_max_rounds(0);
    bench
}

#[tokio::test]
async fn the_same_calls_with_the_same_results_remind_at_three_and_stop_at_six() {
    // One call, or two and three in turn.
    for circle in 1..=3 {
        let mut bench = Bench::new(vec![StopConditionSpec::RepeatedCalls { max: 6 }]);
        let mut reminded = Vec::new();
        for n in 0..circle * 6 {
            let last = n + 1 == circle * 6;
            let stop = bench.step("Read", json!({"file_path": format!("{}", n % circle)}), true).await;
            assert_eq!(stop, last.then(|| "repeated_calls".to_owned()), "{circle}: {n}");
            if !bench.reminders().await.is_empty() {
                reminded.push(n + 1);
            }
        }
        assert_eq!(reminded, [circle * 3], "once, half-way");
    }
}

#[tokio::test]
async fn a_call_with_another_result_is_no_repetition() {
    let mut bench = Bench::new(vec![StopConditionSpec::RepeatedCalls { max: 2 }]);
    for n in 0..5 {
        assert_eq!(bench.answer("", &[("Bash", json!({"command": "make"}))], 1).await, None);
        bench.settle(0, ToolResult::text("Bash", format!("{n} failed"))).await;
        assert_eq!(bench.end_step().await, None);
    }
    // Nor is one that waits for what still runs.
    for _ in 0..5 {
        assert_eq!(bench.answer("", &[("BashOutput", json!({"bash_id": "bash_1"}))], 1).await, None);
        let result =
            ToolResult::text("BashOutput", "(no new output)").with_details(json!({"state": "running"}));
        bench.settle(0, result).await;
        assert_eq!(bench.end_step().await, None);
    }
}

#[tokio::test]
async fn several_calls_of_one_answer_remind_once() {
    let mut bench = Bench::new(vec![StopConditionSpec::RepeatedCalls { max: 6 }]);
    let read = ("Read", json!({"file_path": "a"}));
    for (calls, reminders, stop) in [(2, 0, None), (2, 1, None), (1, 0, None), (1, 0, code("repeated_calls"))]
    {
        bench.answer("", &vec![read.clone(); calls], 1).await;
        for place in 0..calls {
            bench.settle(place, ToolResult::text("Read", "text")).await;
        }
        assert_eq!(bench.end_step().await, stop);
        // By another process.
        let saved = bench.runtime.store().export(None).unwrap();
        bench = Bench::new(vec![StopConditionSpec::RepeatedCalls { max: 6 }]);
        bench.runtime.store().restore(saved, UnknownKeyPolicy::Error).unwrap();
        assert_eq!(bench.reminders().await.len(), reminders);
    }
}

#[tokio::test]
async fn changed_files_are_checked_once_before_the_end() {
    let mut bench = checking(false);
    bench.call(0, json!({"file_path": "src/a.rs"})).await;
    assert!(!bench.goes_on_after("Shall I test it?").await, "a question is for the user");
    assert!(bench.goes_on_after("Done.").await);
    let conversation = bench.reminders().await;
    assert!(
        conversation[0].contains("nothing ran since") && conversation[0].contains("whole answer again"),
        "{conversation:?}"
    );
    assert!(!bench.goes_on_after("Done.").await, "once in a run");

    let mut bench = checking(false);
    bench.call(0, json!({"file_path": "src/a.rs"})).await;
    bench.call(4, json!({"url": "https://example.org"})).await;
    bench.call(1, json!({"command": "cargo test"})).await;
    bench.call(3, json!({"file_path": "src/a.rs"})).await;
    assert!(!bench.goes_on_after("Done.").await, "something ran since");
    bench.call(0, json!({"file_path": "docs/README.md"})).await;
    assert!(!bench.goes_on_after("Done.").await, "a text is read, not run");
    bench.call(0, json!({"file_path": "Makefile"})).await;
    assert!(bench.goes_on_after("Done.").await);
}

#[tokio::test]
async fn open_items_are_named_only_in_the_run_that_wrote_them() {
    let mut bench = checking(false);
    let todo = |content: &str, status| TodoItem { content: content.into(), status, active_form: None };
    let mut batch = MutationBatch::new();
    batch.update::<Todos>(vec![todo("look", TodoStatus::Completed), todo("build", TodoStatus::Pending)]);
    bench.runtime.store().commit_batch(batch).unwrap();
    assert!(!bench.goes_on_after("It is blue.").await, "the plan of an earlier run");
    bench.call(2, json!({})).await;
    assert!(bench.goes_on_after("Done.").await);
    let conversation = bench.reminders().await;
    assert!(
        conversation[0].contains("open items: build.") && !conversation[0].contains("look"),
        "{conversation:?}"
    );
}

#[tokio::test]
async fn an_announcement_is_an_end_only_where_somebody_reads_it() {
    assert!(!checking(false).goes_on_after("Now I'll run the tests.").await);
    let mut bench = checking(true);
    assert!(bench.goes_on_after("Now I'll run the tests.").await);
    assert!(bench.reminders().await[0].contains("announces a step"));
    bench.call(0, json!({"file_path": "src/a.rs"})).await;
    assert!(!bench.goes_on_after("Now I'll run the tests.").await, "at most one reminder in a run");
    bench = checking(true);
    bench.spec.endpoint = Some(RemoteEndpoint::a2a("https://example.org"));
    assert!(!bench.goes_on_after("Now I'll run the tests.").await, "an agent elsewhere has its own end");
}

#[tokio::test]
async fn half_way_the_model_is_reminded() {
    let mut bench = Bench::new(vec![StopConditionSpec::ConsecutiveErrors { max: 4 }]);
    let mut reminded = Vec::new();
    for n in 0..3 {
        bench.answer("", &[("Raed", json!({ "n": n }))], 1).await;
        bench.settle_as(0, ToolResult::error("Raed", "unknown tool"), true, false).await;
        assert_eq!(bench.end_step().await, None);
        reminded.push(bench.reminders().await);
    }
    assert_eq!((reminded[0].len(), reminded[2].len()), (0, 0), "once, half-way");
    assert!(reminded[1][0].starts_with("Every tool call of your last 2 answers failed"), "{reminded:?}");
}

#[tokio::test]
async fn stop_on_tool_needs_the_exact_name_and_a_success_in_this_step() {
    let mut bench = Bench::new(vec![StopConditionSpec::StopOnTool { tool_name: "Submit".into() }]);
    assert_eq!(bench.step("submit", json!({}), true).await, None);
    assert_eq!(bench.step("Submit2", json!({}), true).await, None);
    assert_eq!(bench.step("Submit", json!({}), false).await, None);
    assert_eq!(bench.step("Submit", json!({}), true).await, code("stop_on_tool"));
}

struct Spy(StopPoint);
impl StopPolicy for Spy {
    fn id(&self) -> &'static str {
        "spy"
    }
    fn point(&self) -> StopPoint {
        self.0
    }
    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        if stats.succeeded_tools.len() < 2 {
            return StopDecision::Continue;
        }
        StopDecision::Stop { code: "spy".into(), detail: "x".repeat(500) }
    }
}

#[tokio::test]
async fn a_custom_policy_sees_only_this_steps_tools() {
    let mut bench = Bench::of(StopPlugin::with_policies(vec![Arc::new(Spy(StopPoint::StepEnd))]));
    assert_eq!(bench.step("A", json!({}), true).await, None);
    assert_eq!(bench.step("A", json!({}), true).await, None);
    bench.answer("", &[("A", json!({})), ("B", json!({}))], 1).await;
    bench.settle(1, ToolResult::text("B", "")).await;
    bench.settle(0, ToolResult::text("A", "")).await;
    assert_eq!(bench.end_step().await, code("spy"));
}

#[tokio::test]
async fn content_match_searches_the_whole_text_and_keeps_its_reason_short() {
    let mut bench = Bench::new(vec![StopConditionSpec::ContentMatch { pattern: "(?s)DONE.*".into() }]);
    assert_eq!(bench.answer("nothing done", &[], 1).await, None);
    let long = format!("all\nDONE: {}", "é".repeat(1000));
    assert_eq!(bench.answer(&long, &[("Read", json!({}))], 1).await, code("content_match"));
}

#[tokio::test]
async fn repeating_the_same_call_is_a_loop() {
    let mut bench = Bench::new(vec![StopConditionSpec::LoopDetection { window: 3 }]);
    assert_eq!(bench.step("Read", json!({"a": 1, "b": [2]}), true).await, None);
    assert_eq!(
        bench.step("Read", json!({"b": [2], "a": 1}), true).await,
        None,
        "the order of keys does not matter"
    );
    assert_eq!(bench.step("Read", json!({"a": 1, "b": [3]}), true).await, None, "another argument");
    for _ in 0..2 {
        assert_eq!(bench.step("Read", json!({"a": 1, "b": [2]}), false).await, None);
    }
    assert_eq!(bench.step("Read", json!({"a": 1, "b": [2]}), true).await, code("loop_detection"));
}

#[tokio::test]
async fn a_resumed_run_keeps_its_counts() {
    let specs =
        vec![StopConditionSpec::LoopDetection { window: 2 }, StopConditionSpec::ConsecutiveErrors { max: 2 }];
    let mut bench = Bench::new(specs.clone());
    assert_eq!(bench.step("Read", json!({}), false).await, None);
    let saved = bench.runtime.store().export(None).unwrap();
    let mut bench = Bench::new(specs);
    bench.runtime.store().restore(saved, UnknownKeyPolicy::Error).unwrap();
    assert_eq!(bench.step("Read", json!({}), false).await, code("loop_detection"), "the first in order");
}

#[tokio::test]
async fn zero_disables_a_limit_and_nothing_is_stored() {
    let mut bench = Bench::new(vec![
        StopConditionSpec::MaxRounds { rounds: 0 },
        StopConditionSpec::Timeout { seconds: 0 },
        StopConditionSpec::TokenBudget { max_total: 0 },
        StopConditionSpec::ConsecutiveErrors { max: 0 },
        StopConditionSpec::RepeatedCalls { max: 0 },
        StopConditionSpec::RepeatedCalls { max: 1 },
        StopConditionSpec::LoopDetection { window: 0 },
        StopConditionSpec::LoopDetection { window: 1 },
    ]);
    bench.progress.active = Duration::from_hours(99);
    for _ in 0..20 {
        assert_eq!(bench.step("Read", json!({}), false).await, None);
    }
    assert_eq!(bench.runtime.store().snapshot().revision, 0);
}

#[tokio::test]
async fn the_agents_section_is_read_and_a_broken_one_is_an_error() {
    let mut bench = Bench::of(StopPlugin::default());
    bench.spec = bench
        .spec
        .with_config::<StopConfigKey>(StopConfig {
            conditions: vec![StopConditionSpec::ConsecutiveErrors { max: 1 }],
        })
        .unwrap();
    assert_eq!(bench.answer("", &[("Bash", json!({}))], 1).await, None);
    bench.settle_as(0, ToolResult::error("Bash", "denied"), true, false).await;
    assert_eq!(bench.end_step().await, code("consecutive_errors"));
    let broken = bench.spec.clone().with_section("stop", json!({"conditions": [{"type": "content_match"}]}));
    let ctx = PhaseContext::test_default().with_phase(Phase::AfterInference).with_agent_spec(broken);
    assert!(bench.runtime.run_phase(&bench.env, ctx).await.is_err());
}

#[test]
fn impossible_limits_are_a_config_error() {
    let plugins: Vec<Arc<dyn Plugin>> = vec![Arc::new(StopPlugin::default())];
    let check = |section: Value| {
        let spec = AgentSpec::new("agent").with_section("stop", section);
        validate_sections(&plugins, &spec).map_err(|error| error.message)
    };
    let refused = |condition: Value| check(json!({"conditions": [condition]})).unwrap_err();
    assert_eq!(check(json!({})), Ok(vec![]));
    let all = json!({"conditions": [
        {"type": "max_rounds", "rounds": 3},
        {"type": "timeout", "seconds": 3},
        {"type": "token_budget", "max_total": 3},
        {"type": "consecutive_errors", "max": 3},
        {"type": "repeated_calls", "max": 3},
        {"type": "stop_on_tool", "tool_name": "Submit"},
        {"type": "content_match", "pattern": "a|b"},
        {"type": "loop_detection", "window": 3},
    ]});
    assert_eq!(check(all), Ok(vec![]));
    insta::assert_snapshot!(
        [
            refused(json!({"type": "stop_on_tool", "tool_name": " "})),
            refused(json!({"type": "content_match", "pattern": ""})),
            refused(json!({"type": "content_match", "pattern": "a("})),
            refused(json!({"type": "max_round", "rounds": 3})),
            refused(json!({"type": "max_rounds", "rounds": -3})),
            refused(json!({"type": "max_rounds", "rounds": 3, "extra": 1})),
            check(json!({"condition": []})).unwrap_err(),
            check(json!([{"type": "max_rounds", "rounds": 3}])).unwrap_err(),
        ]
        .join("\n"),
        @r"
    conditions[0]: stop_on_tool: `tool_name` is empty; name the tool that ends the run
    conditions[0]: content_match: `pattern` is empty; it would match every answer
    conditions[0]: content_match: `a(` is not a regular expression: unclosed group
    conditions[0]: unknown variant `max_round`, expected one of `max_rounds`, `timeout`, `token_budget`, `consecutive_errors`, `repeated_calls`, `stop_on_tool`, `content_match`, `loop_detection`
    conditions[0]: invalid value: integer `-3`, expected usize
    conditions[0]: unknown field `extra`, expected `rounds`
    unknown field `condition`, expected `conditions`
    it must be a map with the list `conditions`
    "
    );
    assert!(StopPlugin::new(vec![StopConditionSpec::ContentMatch { pattern: String::new() }]).is_err());
}

/// The literal definition: the last `window * p` calls are a block of `p` repeated.
fn oracle(calls: &[u8], window: usize) -> bool {
    window > 1
        && (1..=3).any(|p| {
            calls.len() >= window * p && {
                let tail = &calls[calls.len() - window * p..];
                let block = &tail[..p];
                tail.chunks(p).all(|chunk| chunk == block)
            }
        })
}

proptest! {
    #[test]
    fn loop_detection_matches_its_definition(
        calls in proptest::collection::vec(0..3_u8, 0..30),
        window in 0..6_usize,
        keep_only_what_it_asks_for: bool,
    ) {
        let policy = LoopDetectionPolicy::new(window);
        let mut state = StopState::default();
        for (n, call) in calls.iter().enumerate() {
            let settled = SettledCall {
                call_id: n.to_string(),
                tool: "T".into(),
                fingerprint: fingerprint("T", &json!({ "n": call })),
                is_error: false,
            };
            let keep = if keep_only_what_it_asks_for { policy.history().unwrap() } else { usize::MAX };
            StopStateKey::apply(&mut state, StopStateUpdate::Settled(settled, keep));
            let stats = StopPolicyStats { settled: state.settled.clone(), ..StopPolicyStats::default() };
            let stopped = policy.evaluate(&stats) != StopDecision::Continue;
            prop_assert_eq!(stopped, oracle(&calls[..=n], window), "{:?}", &calls[..=n]);
        }
    }

    #[test]
    fn a_fingerprint_ignores_only_key_order(
        entries in proptest::collection::btree_map("[a-c]{1,2}", 0..4_u8, 0..4),
        others in proptest::collection::btree_map("[a-c]{1,2}", 0..4_u8, 0..4),
    ) {
        let object = |entries: Vec<(&String, &u8)>| {
            Value::Object(entries.into_iter().map(|(k, v)| (k.clone(), json!(v))).collect())
        };
        let forth = object(entries.iter().collect());
        let back = object(entries.iter().rev().collect());
        prop_assert_eq!(fingerprint("T", &forth), fingerprint("T", &back));
        prop_assert_ne!(fingerprint("T", &forth), fingerprint("U", &forth));
        let other = object(others.iter().collect());
        prop_assert_eq!(entries == others, fingerprint("T", &forth) == fingerprint("T", &other));
    }
}

/// One inference of `tokens` prompt tokens by a model that has a price.
async fn pays(bench: &mut Bench, model: &str, usage: Option<TokenUsage>) -> Option<String> {
    bench.progress.steps += 1;
    if let Some(usage) = &usage {
        ModelUsage::add_to(&mut bench.spent, model, usage);
    }
    bench.response =
        StreamResult { content: vec![ContentBlock::text("x")], usage, ..StreamResult::default() };
    let mut message = Message::assistant("x");
    message.metadata = Some(json!({ "model": model, "usage": usage }));
    let ctx = PhaseContext::test_default().with_phase(Phase::AfterInference).with_messages(vec![message]);
    bench.run(ctx.with_response(bench.response.clone())).await
}

#[expect(clippy::unnecessary_wraps, reason = "the text of an answer")]
fn tokens(input: i32, cached: i32, output: i32) -> Option<TokenUsage> {
    Some(TokenUsage {
        prompt_tokens: Some(input),
        completion_tokens: Some(output),
        cache_read_tokens: Some(cached),
        ..TokenUsage::default()
    })
}

fn thrifty() -> Bench {
    let prices: Prices = Arc::new(|model| match model {
        "dear" => Some(aye_core::contract::spec::Price {
            input: 2.0,
            output: 10.0,
            cache_read: Some(0.2),
            cache_write: Some(2.5),
        }),
        "free" => Some(aye_core::contract::spec::Price::default()),
        _ => None,
    });
    Bench::of(StopPlugin::default().with_budget(1.0, prices))
}

#[tokio::test]
async fn a_budget_prices_each_answer_by_its_model() {
    let mut bench = thrifty();
    // 0.2 + 0.02 + 0.5; the other model is free however much it answers.
    assert_eq!(pays(&mut bench, "dear", tokens(200_000, 100_000, 50_000)).await, None);
    assert_eq!(bench.runtime.store().read::<StopStateKey>().unwrap().spent, 720_000_000);
    assert_eq!(pays(&mut bench, "free", tokens(9_000_000, 0, 9_000_000)).await, None);
    assert_eq!(pays(&mut bench, "dear", tokens(140_000, 0, 0)).await, None, "spent to the last cent");
    let (saved, spent) = (bench.runtime.store().export(None).unwrap(), bench.spent.clone());
    assert_eq!(pays(&mut bench, "dear", tokens(1, 0, 0)).await, code("budget"));
    // A resumed run keeps its counts.
    let mut bench = Bench { spent, ..thrifty() };
    bench.runtime.store().restore(saved, UnknownKeyPolicy::Error).unwrap();
    assert_eq!(pays(&mut bench, "free", tokens(1, 0, 1)).await, None);
    assert_eq!(pays(&mut bench, "dear", tokens(0, 0, 1)).await, code("budget"));
}

/// Summaries, titles and subagents are entries of the ledger like answers, and cache writes have their own price.
#[tokio::test]
async fn a_budget_covers_everything_in_the_ledger() {
    let mut bench = thrifty();
    ModelUsage::add_to(&mut bench.spent, "dear", &tokens(400_000, 0, 0).unwrap());
    ModelUsage::add_to(&mut bench.spent, "unheard of", &tokens(9_000_000, 0, 0).unwrap());
    assert_eq!(pays(&mut bench, "free", tokens(1, 0, 1)).await, None);
    let spent = |bench: &Bench| bench.runtime.store().read::<StopStateKey>().unwrap().spent;
    assert_eq!(spent(&bench), 800_000_000);
    assert_eq!(pays(&mut bench, "free", tokens(1, 0, 1)).await, None);
    assert_eq!(spent(&bench), 800_000_000, "nothing is charged twice");
    let written = TokenUsage { cache_creation_tokens: Some(80_000), ..tokens(80_000, 0, 0).unwrap() };
    assert_eq!(pays(&mut bench, "dear", Some(written)).await, None);
    assert_eq!(spent(&bench), 1_000_000_000);
    ModelUsage::add_to(&mut bench.spent, "dear", &tokens(1, 0, 0).unwrap());
    assert_eq!(pays(&mut bench, "free", tokens(1, 0, 1)).await, code("budget"));
}

/// A run of an earlier version kept only the sum.
#[tokio::test]
async fn a_sum_without_a_ledger_goes_on_counting() {
    let mut bench = thrifty();
    let saved = json!({"spent": 900_000_000});
    let saved = aye_core::state::PersistedState {
        revision: 1,
        values: [(StopStateKey::KEY.to_owned(), saved)].into_iter().collect(),
    };
    bench.runtime.store().restore(saved, UnknownKeyPolicy::Error).unwrap();
    assert_eq!(pays(&mut bench, "dear", tokens(50_000, 0, 0)).await, None);
    assert_eq!(pays(&mut bench, "dear", tokens(1, 0, 0)).await, code("budget"));
}

#[tokio::test]
async fn an_unpriced_model_ends_a_run_with_a_budget() {
    assert_eq!(pays(&mut thrifty(), "unheard of", tokens(1, 0, 1)).await, code("budget"));
    assert_eq!(pays(&mut thrifty(), "dear", None).await, code("budget"));
    assert_eq!(pays(&mut thrifty(), "free", None).await, None);
    let mut bench = Bench::of(StopPlugin::default());
    assert_eq!(pays(&mut bench, "unheard of", None).await, None, "without a budget nothing asks");
}

#[test]
fn the_shortest_time_limit_interrupts() {
    let limit = |bench: &Bench| bench.env.time_limit(&bench.spec);
    assert_eq!(limit(&Bench::of(StopPlugin::default())), None);
    let mut bench = Bench::new(vec![
        StopConditionSpec::Timeout { seconds: 90 },
        StopConditionSpec::Timeout { seconds: 0 },
        StopConditionSpec::MaxRounds { rounds: 1 },
    ]);
    let found = limit(&bench).expect("a limit");
    assert_eq!(found.active, Duration::from_secs(90));
    let reason = TerminationReason::stopped("timeout", "90.0 s spent; the limit is 90 s");
    assert_eq!(found.reason, reason);
    // The agent's own limit applies too.
    let config = StopConfig { conditions: vec![StopConditionSpec::Timeout { seconds: 2 }] };
    bench.spec = bench.spec.clone().with_config::<StopConfigKey>(config).unwrap();
    assert_eq!(limit(&bench).expect("a limit").active, Duration::from_secs(2));
}

#[tokio::test]
async fn a_limit_asks_if_possible_and_its_answer_restarts_the_count() {
    let loops = StopConditionSpec::LoopDetection { window: 2 };
    let mut bench = Bench::of(StopPlugin::new(vec![loops]).unwrap().asking(Arc::new(|_| Vec::new())));
    bench.spec = AgentSpec::new("agent").with_max_rounds(2);
    let ctx = |bench: &Bench| {
        PhaseContext::test_default()
            .with_phase(Phase::StepEnd)
            .with_agent_spec(bench.spec.clone())
            .with_progress(bench.progress)
            .with_response(bench.response.clone())
    };
    for place in 0..2 {
        assert_eq!(bench.step("List", json!({"path": place}), true).await, None);
    }
    let report = bench.runtime.run_phase(&bench.env, ctx(&bench)).await.unwrap();
    let asked = report.question.expect("the second inference was the last");
    assert_eq!(asked.message, "The limit of 2 inferences is reached. Continue?");
    let labels: Vec<_> = asked.choices.iter().map(|choice| choice.label.as_str()).collect();
    assert_eq!(labels, ["Continue with 2 more inferences", "Stop"]);
    let answer = |place: usize| aye_core::phase::PhaseAnswer {
        question: "q".into(),
        value: asked.choices[place].value.clone(),
    };
    let reported = bench.runtime.answer(&bench.env, ctx(&bench), &asked.action, &answer(0)).await.unwrap();
    assert_eq!((reported.stop, reported.hooks), (None, 0), "the hooks of the phase do not run again");
    assert_eq!(bench.step("Read", json!({}), true).await, None, "the third inference is now the first");
    assert_eq!(bench.step("Read", json!({}), true).await, None);
    let report = bench.runtime.run_phase(&bench.env, ctx(&bench)).await.unwrap();
    assert!(
        report.question.is_some_and(|asked| asked.message.starts_with("The same call")),
        "the first one wins"
    );
    let reported = bench.runtime.answer(&bench.env, ctx(&bench), &asked.action, &answer(1)).await.unwrap();
    assert_eq!(reported.stop, Some(asked.otherwise));
}

#[tokio::test]
async fn a_budget_asks_only_while_work_is_left() {
    let price = aye_core::contract::spec::Price { input: 1_000_000.0, ..<_>::default() };
    let plugin = StopPlugin::default()
        .with_budget(1.5, Arc::new(move |_| Some(price)))
        .asking(Arc::new(|_| vec!["mock/small".to_owned()]));
    let bench = Bench::of(plugin);
    let mut spent = Vec::new();
    let response = |calls: Vec<ToolCall>| StreamResult {
        usage: Some(TokenUsage { prompt_tokens: Some(2), ..TokenUsage::default() }),
        tool_calls: calls,
        ..StreamResult::default()
    };
    let mut report = async |response: StreamResult| {
        ModelUsage::add_to(&mut spent, "m1", &response.usage.unwrap());
        let ctx = PhaseContext::test_default()
            .with_phase(Phase::AfterInference)
            .with_agent_spec(bench.spec.clone())
            .with_spent(spent.clone())
            .with_response(response);
        bench.runtime.run_phase(&bench.env, ctx).await.unwrap()
    };
    let over = report(response(Vec::new())).await;
    assert_eq!((over.question, over.stop), (None, None), "the run ends by itself");
    let asked = report(response(vec![ToolCall::new("c1", "List", json!({}))])).await.question.unwrap();
    assert_eq!(asked.message, "$4.00 spent; the budget is $1.50. Continue?");
    let labels: Vec<_> = asked.choices.iter().map(|choice| choice.label.as_str()).collect();
    assert_eq!(
        labels,
        ["Continue with $1.50 more", "Switch to mock/small and continue with $1.50 more", "Stop"]
    );
    let ctx = || PhaseContext::test_default().with_agent_spec(bench.spec.clone());
    let answer = aye_core::phase::PhaseAnswer { question: "q".into(), value: asked.choices[1].value.clone() };
    let phase = ctx().with_phase(Phase::AfterInference);
    bench.runtime.answer(&bench.env, phase, &asked.action, &answer).await.unwrap();
    let next = bench.runtime.run_phase(&bench.env, ctx().with_phase(Phase::BeforeInference)).await.unwrap();
    assert_eq!(next.inference.overrides.model.as_deref(), Some("mock/small"));
    // $1 is within the added amount, $3 is not.
    let within = report(StreamResult {
        usage: Some(TokenUsage { prompt_tokens: Some(1), ..TokenUsage::default() }),
        tool_calls: vec![ToolCall::new("c2", "List", json!({}))],
        ..StreamResult::default()
    })
    .await;
    assert_eq!((within.question, within.stop), (None, None));
    assert!(report(response(vec![ToolCall::new("c3", "List", json!({}))])).await.question.is_some());
}
