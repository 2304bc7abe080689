//! Runs that execute calls of other runs.

use super::*;
use aye_core::contract::child::{CHILD_RUN_ACTIVITY_TYPE, ChildRunState, ChildStatus, TaskRecord};
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::suspension::ACTION_CHILD_RUN;
use aye_store_sqlite::InboxFilter;

fn task(calls: &[(&str, &str, &str)]) -> StreamResult {
    let call = |(id, agent, prompt): &(&str, &str, &str)| {
        ToolCall::new(*id, format!("agent_run_{agent}"), json!({"prompt": prompt}))
    };
    StreamResult { tool_calls: calls.iter().map(call).collect(), ..StreamResult::default() }
}

fn in_background(id: &str, agent: &str, prompt: &str) -> StreamResult {
    let args = json!({"prompt": prompt, "background": true});
    StreamResult {
        tool_calls: vec![ToolCall::new(id, format!("agent_run_{agent}"), args)],
        ..StreamResult::default()
    }
}

/// A house in which `a` may delegate to `scout`, and `scout` to `digger`.
fn family(house: &House, parent: &Arc<Script>, scout: &Arc<Script>) -> AgentRuntimeBuilder {
    let script: Arc<Script> = Arc::clone(scout);
    let mut builder = house
        .builder(&Script::of([]))
        .with_agent_spec(
            AgentSpec::new("top")
                .with_model("mt")
                .with_tool_execution(house.mode)
                .with_delegate("scout")
                .with_delegate("digger"),
        )
        .with_agent_spec(
            AgentSpec::new("scout").with_model("ms").with_system_prompt("Scout.").with_delegate("digger"),
        )
        .with_agent_spec(AgentSpec::new("digger").with_delegate("digger"));
    for (name, script) in [("mt", Arc::clone(parent)), ("ms", script)] {
        builder = builder
            .with_model(name, ModelEntry { provider: name.into(), model_name: name.into() })
            .with_provider(name, script);
    }
    builder
}

async fn go(runtime: &AgentRuntime) -> (AgentRunResult, Vec<AgentEvent>) {
    let sink = Arc::new(VecEventSink::new());
    let request = RunRequest::new("t", vec![Message::user("go")]).with_agent_id("top");
    let result = runtime.run(request, sink.clone()).await.unwrap();
    (result, sink.take())
}

fn reported(events: &[AgentEvent]) -> Vec<ChildRunState> {
    let state = |event: &AgentEvent| match event {
        AgentEvent::ActivitySnapshot { activity_type, content, .. }
            if activity_type == CHILD_RUN_ACTIVITY_TYPE =>
        {
            serde_json::from_value(content.clone()).ok()
        }
        _ => None,
    };
    events.iter().filter_map(state).collect()
}

async fn tasks(house: &House) -> Vec<TaskRecord> {
    house.store.tasks(&"t".into()).await.unwrap()
}

async fn sound(house: &House) {
    assert_eq!(house.store.check().await.unwrap(), Vec::<String>::new());
    assert!(house.store.verify_audit().await.unwrap().is_whole());
}

#[tokio::test]
async fn a_childs_tokens_count_for_its_parent() {
    let using = |result: StreamResult, tokens: i32| {
        let usage = TokenUsage {
            prompt_tokens: Some(tokens),
            completion_tokens: Some(1),
            total_tokens: Some(tokens + 1),
            ..TokenUsage::default()
        };
        StreamResult { usage: Some(usage), ..result }
    };
    let house = House::new();
    let parent =
        Script::of([using(task(&[("c1", "scout", "look around")]), 10), using(text("It says: clear."), 20)]);
    let scout = Script::of([
        using(task(&[("d1", "digger", "dig")]), 100),
        using(text("It is deep."), 200),
        using(text("All clear."), 400),
    ]);
    // The digger uses its parent's model.
    let runtime = family(&house, &parent, &scout).build().unwrap();
    let (result, _) = go(&runtime).await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    assert_eq!(parent.result_of("c1"), "All clear.");
    assert_eq!((result.usage.prompt_tokens, result.usage.total()), (Some(730), 735));
    let runs = house.store.runs(&"t".into()).await.unwrap();
    assert_eq!(runs[0].usage.total(), 735, "it is what the row says");
    let child = &tasks(&house).await[0];
    assert_eq!(house.store.runs(&child.child.thread_id).await.unwrap()[0].usage.total(), 703);
    let stored = house.store.messages(&"t".into()).await.unwrap();
    let reported = stored.iter().find(|stored| stored.message.role == Role::Tool).unwrap();
    let spent = ChildRunState::spent_below(&reported.message);
    assert_eq!((spent.len(), spent[0].model.as_str(), spent[0].usage.total()), (1, "ms", 703), "{spent:?}");
    sound(&house).await;
}

#[tokio::test]
async fn a_child_runs_in_its_own_thread_and_its_last_message_is_the_result() {
    let house = House::new();
    let parent = Script::of([task(&[("c1", "scout", "look around")]), text("It says: clear.")]);
    let scout = Script::of([calls(&[("c1", "free")]), text("All clear.")]);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    let (result, events) = go(&runtime).await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    assert_eq!(result.response, "It says: clear.");
    assert_eq!(parent.result_of("c1"), "All clear.");
    assert_eq!(house.executed(), 1);
    // The child sees its prompt and nothing else of the conversation.
    let asked =
        scout.requests.lock().unwrap()[0].messages.iter().map(|message| message.text()).collect::<Vec<_>>();
    assert!(asked.contains(&"look around".to_owned()) && !asked.contains(&"go".to_owned()), "{asked:?}");
    let tasks = tasks(&house).await;
    let child = &tasks[0].child;
    assert_eq!((tasks.len(), child.agent.as_str(), child.depth), (1, "scout", 1));
    assert_eq!((&child.parent_run, child.parent_call.as_str()), (&result.run_id, "c1"));
    let runs = house.store.runs(&child.thread_id).await.unwrap();
    assert_eq!((runs.len(), runs[0].parent_run_id.as_ref()), (1, Some(&result.run_id)));
    // Listeners of the parent receive the child as an activity, and no end before the end.
    let reported = reported(&events);
    assert!(reported.iter().all(|state| state.parent_call_id == "c1" && state.agent == "scout"));
    assert!(
        reported.iter().any(|state| state.tool.as_deref().is_some_and(|tool| tool.contains("free"))),
        "{reported:?}"
    );
    let last = reported.last().unwrap();
    assert_eq!((last.status, last.steps), (ChildStatus::Completed, 2));
    let names = names(&events);
    assert_eq!(names.iter().filter(|name| name.starts_with("run_")).count(), 2, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.starts_with("tool_call_done(s")).count(), 2, "{names:?}");
    sound(&house).await;
}

#[tokio::test]
async fn a_childs_question_is_answered_at_the_top_and_both_resume() {
    let house = House::new();
    let parent = Script::of([task(&[("c1", "scout", "look")]), text("Done.")]);
    let scout = Script::of([calls(&[("c1", "ask")]), text("I asked.")]);
    let (result, events) = go(&family(&house, &parent, &scout).build().unwrap()).await;
    assert_eq!(result.termination, TerminationReason::Suspended);
    assert_eq!(names(&events).last().unwrap(), "run_finish(suspended)");
    assert_eq!(result.waiting.len(), 1, "the child's question, not the parent's wait");
    let question = &result.waiting[0];
    assert_eq!(question.ticket.suspension.action, ACTION_PERMISSION);
    // The inbox lists the question with the title of the top conversation.
    let inbox = house.store.inbox(InboxFilter::default()).await.unwrap();
    assert_eq!(inbox.len(), 1);
    assert_eq!((inbox[0].thread_title.as_str(), &inbox[0].id), ("go", &question.id));
    let child = inbox[0].child.as_ref().unwrap();
    assert_eq!((child.agent.as_str(), child.root.as_str()), ("scout", "t"));
    assert_eq!(house.store.waiting_count(None, 0).await.unwrap(), 1);
    assert_eq!(house.store.waiting_count(Some(&"t".into()), 0).await.unwrap(), 0);
    let threads = house.store.threads(None).await.unwrap();
    assert_eq!((threads.len(), threads[0].waiting), (1, 1), "children are not separate conversations");

    // Another process answers, and resumes with the child's thread.
    let runtime = family(&house, &parent, &scout).build().unwrap();
    runtime.decide(&question.id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    let sink = Arc::new(VecEventSink::new());
    let result = runtime.resume(&question.thread_id, sink, UnknownPolicy::Ask).await.unwrap();
    assert_eq!((result.thread_id.as_str(), result.response.as_str()), ("t", "Done."));
    assert_eq!((house.executed(), parent.result_of("c1").as_str()), (1, "I asked."));
    sound(&house).await;
}

#[tokio::test]
async fn only_the_runtime_answers_for_a_child() {
    let house = House::new();
    let parent = Script::of([task(&[("c1", "scout", "look")])]);
    let scout = Script::of([calls(&[("c1", "ask")])]);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    go(&runtime).await;
    let filter = SuspensionFilter { thread: Some("t".into()), ..SuspensionFilter::default() };
    let rows = house.store.suspensions(filter).await.unwrap();
    assert_eq!((rows.len(), rows[0].ticket.suspension.action.as_str()), (1, ACTION_CHILD_RUN));
    let refused = runtime.decide(&rows[0].id, answer(ResumeDecisionAction::Resume), actor()).await;
    assert!(matches!(refused, Err(DecideError::Unfit { .. })), "{refused:?}");
    assert_eq!(runtime.waiting(&"t".into()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_grandchild_asks_through_both_parents_and_depth_is_limited() {
    let house = House::new();
    let parent = Script::of([task(&[("c1", "scout", "look")]), text("Up.")]);
    // scout and both diggers share one model: an agent without a model uses its parent's.
    let scout = Script::of([
        task(&[("c1", "digger", "dig")]),
        task(&[("c1", "digger", "deeper")]),
        task(&[("c1", "digger", "too deep")]),
        calls(&[("c2", "ask")]),
        text("Deep."),
        text("Middle."),
        text("Surface."),
    ]);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    let (result, _) = go(&runtime).await;
    assert_eq!(result.waiting.len(), 1);
    let depths: Vec<_> = tasks(&house).await.iter().map(|task| (task.child.depth, task.waiting)).collect();
    assert_eq!(depths, [(1, 1), (2, 1), (3, 1)]);
    runtime.decide(&result.waiting[0].id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!((result.response.as_str(), parent.result_of("c1").as_str()), ("Up.", "Surface."));
    let all: Vec<String> = {
        let requests = scout.requests.lock().unwrap();
        requests.iter().flat_map(|r| r.messages.iter().map(|message| message.text())).collect()
    };
    assert!(all.iter().any(|text| text.contains("at most 3 deep")), "{all:?}");
    sound(&house).await;
}

#[tokio::test]
async fn children_of_one_answer_run_in_parallel_or_in_sequence() {
    for mode in [ToolExecutionMode::ParallelStreaming, ToolExecutionMode::Sequential] {
        let house = House { mode, ..House::new() };
        let parent = Script::of([task(&[("c1", "scout", "one"), ("c2", "scout", "two")]), text("Done.")]);
        let scout = Script::of([calls(&[("x", "ask")]), calls(&[("x", "ask")]), text("A."), text("B.")]);
        let runtime = family(&house, &parent, &scout).build().unwrap();
        let (mut result, _) = go(&runtime).await;
        let at_once = result.waiting.len();
        assert_eq!(at_once, if mode == ToolExecutionMode::Sequential { 1 } else { 2 });
        while let Some(question) = result.waiting.first() {
            runtime.decide(&question.id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
            (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
        }
        assert_eq!((result.response.as_str(), house.executed()), ("Done.", 2));
        assert_eq!(tasks(&house).await.len(), 2);
        sound(&house).await;
    }
}

/// One child waits while another is active: the answer to the first reaches it during the parent's run.
#[tokio::test]
async fn an_answer_reaches_a_waiting_child_of_an_active_parent() {
    let house = House { mode: ToolExecutionMode::ParallelStreaming, ..House::new() };
    let mut both = task(&[("c1", "scout", "look")]);
    both.tool_calls.push(ToolCall::new("c2", "hang", json!({})));
    let parent = Script::of([both, text("Done.")]);
    let scout = Script::of([calls(&[("x", "ask")]), text("I asked.")]);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    let mut changes = runtime.watch_children();
    let run = tokio::spawn({
        let runtime = runtime.clone();
        async move { go(&runtime).await }
    });
    let question = loop {
        changes.changed().await.unwrap();
        let waiting = runtime.waiting(&"t".into()).await.unwrap();
        let asleep = tasks(&house)
            .await
            .iter()
            .any(|task| task.run.as_ref().is_some_and(|run| run.status == RunStatus::Waiting));
        if let Some(question) = waiting.first().filter(|_| asleep) {
            break question.clone();
        }
    };
    runtime.decide(&question.id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    loop {
        if tasks(&house).await[0].status().is_over() {
            break;
        }
        changes.changed().await.unwrap();
    }
    runtime.cancel(&"t".into());
    let (result, _) = run.await.unwrap();
    assert_eq!(result.termination, TerminationReason::Cancelled);
    assert_eq!(tasks(&house).await[0].status(), ChildStatus::Completed);
    sound(&house).await;
}

#[tokio::test]
async fn ending_the_parent_ends_its_children_and_closes_their_questions() {
    for awake in [true, false] {
        let house = House { mode: ToolExecutionMode::ParallelStreaming, ..House::new() };
        let parent = Script::of([task(&[("c1", "scout", "one"), ("c2", "scout", "two")])]);
        let second = if awake { "hang" } else { "ask" };
        let scout = Script::of([calls(&[("x", "ask")]), calls(&[("y", second)])]);
        let runtime = family(&house, &parent, &scout).build().unwrap();
        if awake {
            let mut changes = runtime.watch_children();
            let run = tokio::spawn({
                let runtime = runtime.clone();
                async move { go(&runtime).await }
            });
            while runtime.waiting(&"t".into()).await.unwrap().is_empty() || house.executed() == 0 {
                let _ = tokio::time::timeout(std::time::Duration::from_millis(20), changes.changed()).await;
            }
            assert!(runtime.cancel(&"t".into()));
            assert_eq!(run.await.unwrap().0.termination, TerminationReason::Cancelled);
        } else {
            assert_eq!(go(&runtime).await.0.waiting.len(), 2);
            assert!(runtime.cancel_waiting(&"t".into(), Arc::new(VecEventSink::new())).await.unwrap());
        }
        let tasks = tasks(&house).await;
        let ends: Vec<_> = tasks.iter().map(TaskRecord::status).collect();
        assert_eq!(ends, [ChildStatus::Cancelled, ChildStatus::Cancelled], "awake: {awake}");
        assert!(house.store.inbox(InboxFilter::default()).await.unwrap().is_empty());
        let open = SuspensionFilter { status: Some(SuspensionStatus::Open), ..SuspensionFilter::default() };
        assert!(house.store.suspensions(open).await.unwrap().is_empty());
        sound(&house).await;
    }
}

/// Cancels the run of `t` as soon as it reports that it waits, and stores whether that was accepted.
struct CancelsAtSuspension {
    runtime: std::sync::OnceLock<AgentRuntime>,
    receipt: std::sync::OnceLock<bool>,
}

#[async_trait]
impl EventSink for CancelsAtSuspension {
    async fn emit(&self, event: AgentEvent) {
        if let AgentEvent::RunFinish { termination: TerminationReason::Suspended, .. } = event {
            let _ = self.receipt.set(self.runtime.get().unwrap().cancel(&"t".into()));
        }
    }
}

#[tokio::test]
async fn a_run_cancelled_while_its_driver_leaves_is_cancelled() {
    for by_child in [false, true] {
        let house = House::new();
        let first = if by_child { task(&[("c1", "scout", "one")]) } else { calls(&[("c1", "ask")]) };
        let scout = Script::of([calls(&[("x", "ask")])]);
        let runtime = family(&house, &Script::of([first]), &scout).build().unwrap();
        let sink = Arc::new(CancelsAtSuspension {
            runtime: runtime.clone().into(),
            receipt: std::sync::OnceLock::new(),
        });
        let request = RunRequest::new("t", vec![Message::user("go")]).with_agent_id("top");
        runtime.run(request, sink.clone()).await.unwrap();
        // "No driver is active" is a valid reply too: then the cancellation goes to the store.
        if !sink.receipt.get().unwrap() {
            let quiet = Arc::new(VecEventSink::new());
            assert!(runtime.cancel_waiting(&"t".into(), quiet).await.unwrap());
        }
        let run = house.store.latest_run(&"t".into()).await.unwrap().unwrap();
        assert_eq!(run.status, RunStatus::Done, "by child: {by_child}");
        assert!(house.store.inbox(InboxFilter::default()).await.unwrap().is_empty());
        sound(&house).await;
    }
}

#[tokio::test]
async fn a_new_message_replaces_a_run_whose_child_asks() {
    let house = House::new();
    let parent = Script::of([task(&[("c1", "scout", "one")]), text("New.")]);
    let scout = Script::of([calls(&[("x", "ask")])]);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    assert_eq!(go(&runtime).await.0.waiting.len(), 1);
    assert_eq!(go(&runtime).await.0.response, "New.");
    assert_eq!(tasks(&house).await[0].status(), ChildStatus::Cancelled);
    assert!(parent.result_of("c1").contains("before it finished"), "{}", parent.result_of("c1"));
    sound(&house).await;
}

#[tokio::test]
async fn a_failed_or_stopped_child_is_an_error_for_its_parent() {
    let house = House::new();
    let parent = Script::of([task(&[("c1", "scout", "one")]), text("Then I do it.")]);
    let scout = Script::default();
    scout.answers.lock().unwrap().push_back(Err(InferenceExecutionError::Unauthorized("no key".into())));
    let scout = Arc::new(scout);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    let (result, events) = go(&runtime).await;
    assert_eq!(result.response, "Then I do it.");
    assert!(parent.result_of("c1").contains("`scout` did not finish"), "{}", parent.result_of("c1"));
    assert!(names(&events).contains(&"tool_call_done(failed)".to_owned()), "{:?}", names(&events));

    // A waiting child is stopped alone: its parent is notified when it resumes.
    let house = House::new();
    let parent = Script::of([task(&[("c1", "scout", "one")]), text("I see.")]);
    let scout = Script::of([calls(&[("x", "ask")])]);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    go(&runtime).await;
    let child = tasks(&house).await[0].child.thread_id.clone();
    assert!(runtime.stop_task(&child).await.unwrap());
    assert!(!runtime.stop_task(&child).await.unwrap(), "it has ended");
    let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!(result.response, "I see.");
    assert!(parent.result_of("c1").contains("stopped before it finished"), "{}", parent.result_of("c1"));
    sound(&house).await;
}

#[tokio::test]
async fn a_background_childs_end_arrives_once_as_a_message() {
    let house = House::new();
    let parent =
        Script::of([in_background("c1", "scout", "look"), text("It looks."), text("It says: clear.")]);
    let scout = Script::of([calls(&[("x", "ask")]), text("All clear.")]);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    let (result, _) = go(&runtime).await;
    assert_eq!((result.response.as_str(), result.waiting.len()), ("It looks.", 0));
    runtime.finish_tasks(&"t".into()).await;
    let task = tasks(&house).await.remove(0);
    assert!(task.child.background && task.waiting == 1, "{task:?}");
    assert!(parent.result_of("c1").contains(task.child.task_id()), "{}", parent.result_of("c1"));
    assert!(runtime.queued(&"t".into()).await.unwrap().is_empty());

    // Another process answers; whoever opens the conversation resumes its tasks.
    let runtime = family(&house, &parent, &scout).build().unwrap();
    let inbox = house.store.inbox(InboxFilter::default()).await.unwrap();
    runtime.decide(&inbox[0].id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    for _ in 0..2 {
        runtime.supervise_tasks(&"t".into()).await.unwrap();
        runtime.finish_tasks(&"t".into()).await;
    }
    let queued = runtime.queued(&"t".into()).await.unwrap();
    assert_eq!(queued.len(), 1);
    assert!(queued[0].messages[0].text().contains("ended: completed.\n\nAll clear."), "{queued:?}");
    let sink = Arc::new(VecEventSink::new());
    let request = RunRequest::queued(queued[0].clone()).with_agent_id("top");
    assert_eq!(runtime.run(request, sink).await.unwrap().response, "It says: clear.");
    sound(&house).await;
}

#[tokio::test]
async fn a_delegate_must_exist_and_be_reachable() {
    let house = House::new();
    let with = |spec: AgentSpec| house.builder(&Script::of([])).with_agent_spec(spec.with_model("m"));
    let error_of = |builder: AgentRuntimeBuilder| builder.build().unwrap_err().to_string();
    let nobody = error_of(with(AgentSpec::new("x").with_delegate("ghost")));
    assert!(nobody.contains("`x` cannot delegate to `ghost`: unknown agent"), "{nobody}");
    let own = error_of(with(AgentSpec::new("x").with_delegate("x")).with_delegation_depth(None));
    assert!(own.contains("only with a depth limit"), "{own}");
    with(AgentSpec::new("x").with_delegate("x")).build().unwrap();
    let endpoint = aye_core::contract::spec::RemoteEndpoint {
        backend: "a2a".into(),
        base_url: "http://127.0.0.1:1".into(),
        auth: None,
        target: None,
        timeout_ms: 1000,
        options: std::collections::BTreeMap::new(),
    };
    let far = with(AgentSpec::new("x").with_delegate("far"))
        .with_agent_spec(AgentSpec::new("far").with_endpoint(endpoint.clone()));
    let far = error_of(far);
    assert!(far.contains("it runs remotely through `a2a`"), "{far}");

    struct Echo;
    #[async_trait]
    impl AgentBackend for Echo {
        async fn execute(
            &self,
            agent_id: &str,
            messages: Vec<Message>,
            _: Arc<dyn EventSink>,
            _: Option<String>,
            call: Option<String>,
        ) -> Result<DelegateRunResult, AgentBackendError> {
            let answer = format!("{} for {}", messages[0].text(), call.unwrap_or_default());
            Ok(DelegateRunResult {
                agent_id: agent_id.into(),
                status: DelegateRunStatus::Completed,
                response: Some(answer),
                steps: 1,
            })
        }
    }
    let script = Script::of([task(&[("c1", "far", "shout")]), text("Done.")]);
    let runtime = house
        .builder(&script)
        .with_agent_spec(AgentSpec::new("top").with_model("m").with_delegate("far"))
        .with_agent_spec(AgentSpec::new("far").with_endpoint(endpoint))
        .with_agent_backend("a2a", Arc::new(Echo))
        .build()
        .unwrap();
    assert_eq!(go(&runtime).await.0.response, "Done.");
    assert_eq!(script.result_of("c1"), "shout for c1");
}

/// A batch of answers does not wait for a child: a child has no question to decide.
#[tokio::test]
async fn a_decided_call_does_not_wait_for_a_child() {
    let house = House { mode: ToolExecutionMode::ParallelBatchApproval, ..House::new() };
    let mut both = task(&[("c1", "scout", "look")]);
    both.tool_calls.push(ToolCall::new("c2", "ask", json!({})));
    let parent = Script::of([both, text("Done.")]);
    let scout = Script::of([calls(&[("x", "ask")]), text("I asked.")]);
    let runtime = family(&house, &parent, &scout).build().unwrap();
    let (result, _) = go(&runtime).await;
    assert_eq!(result.waiting.len(), 2);
    let own = result.waiting.iter().find(|row| row.thread_id.as_str() == "t").unwrap();
    runtime.decide(&own.id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!((house.executed(), result.waiting.len()), (1, 1));
}

/// A model whose answer depends only on the conversation.
struct Talk;

#[async_trait]
impl LlmExecutor for Talk {
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        let texts: Vec<String> = request.messages.iter().map(|message| message.text()).collect();
        let results = request.messages.iter().filter(|m| m.role == Role::Tool).count();
        let is = |prompt: &str| texts.iter().any(|text| text == prompt);
        Ok(if is("go") {
            match results {
                0 => task(&[("c1", "scout", "one"), ("c2", "scout", "two")]),
                _ => text("Both are back."),
            }
        } else if is("one") {
            match results {
                0 => task(&[("c1", "digger", "below")]),
                1 => calls(&[("c2", "ask")]),
                _ => text("One is back."),
            }
        } else if is("two") {
            match results {
                0 => calls(&[("c1", "free")]),
                _ => text("Two is back."),
            }
        } else {
            match results {
                0 => calls(&[("c1", "ask")]),
                _ => text("Dug."),
            }
        })
    }

    fn name(&self) -> &'static str {
        "talk"
    }
}

/// Counts events, and blocks everything at one of them.
struct Still {
    left: AtomicU32,
    stands: tokio::sync::Notify,
    seen: AtomicU32,
}

#[async_trait]
impl EventSink for Still {
    async fn emit(&self, _: AgentEvent) {
        self.seen.fetch_add(1, Ordering::SeqCst);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.stands.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// The process dies at each event of a scenario with a grandchild, questions in it, and a second child: the
/// end is always the same, and nothing runs twice.
#[tokio::test]
async fn wherever_the_process_dies_each_child_and_call_runs_once() {
    for mode in [ToolExecutionMode::Sequential, ToolExecutionMode::ParallelStreaming] {
        let mut is_over = false;
        for n in 1.. {
            assert!(n < 200, "an endless scenario");
            let house = House { mode, ..House::new() };
            house.hangs.store(false, Ordering::SeqCst);
            let runtime = || {
                let mut builder = family(&house, &Script::of([]), &Script::of([]));
                for model in ["t1", "t2"] {
                    builder = builder
                        .with_model(model, ModelEntry { provider: model.into(), model_name: "talk".into() })
                        .with_provider(model, Arc::new(Talk));
                }
                let runtime = builder.build().unwrap();
                for id in ["top", "scout"] {
                    let spec = AgentSpec::clone(&runtime.catalog().agents[id]).with_model("t1");
                    runtime.set_agent(spec);
                }
                runtime
            };
            let sink = |left| {
                Arc::new(Still {
                    left: AtomicU32::new(left),
                    stands: tokio::sync::Notify::new(),
                    seen: AtomicU32::new(0),
                })
            };
            let mut left = n;
            let mut rounds = 0;
            let response = loop {
                rounds += 1;
                assert!(rounds < 30, "it does not end");
                let (runtime, still) = (runtime(), sink(left));
                let latest = house.store.latest_run(&"t".into()).await.unwrap();
                let is_new = latest.is_none();
                if latest.is_some_and(|run| run.status == RunStatus::Done) {
                    // The process died after everything was done.
                    let messages = house.store.messages(&"t".into()).await.unwrap();
                    break messages.last().unwrap().message.text();
                }
                let work = {
                    let (runtime, still) = (runtime.clone(), still.clone());
                    tokio::spawn(async move {
                        if is_new {
                            let request =
                                RunRequest::new("t", vec![Message::user("go")]).with_agent_id("top");
                            runtime.run(request, still).await
                        } else {
                            runtime.resume(&"t".into(), still, UnknownPolicy::Retry).await
                        }
                    })
                };
                let abort = work.abort_handle();
                let result = tokio::select! {
                    result = work => Some(result.unwrap().unwrap()),
                    () = still.stands.notified() => None,
                };
                left = left.saturating_sub(still.seen.load(Ordering::SeqCst));
                match result {
                    None => {
                        abort.abort();
                        left = 0;
                        // Tasks of the dead process do nothing more.
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    }
                    Some(result) if result.termination == TerminationReason::Suspended => {
                        for question in &result.waiting {
                            runtime
                                .decide(&question.id, answer(ResumeDecisionAction::Resume), actor())
                                .await
                                .unwrap();
                        }
                    }
                    Some(result) => break result.response,
                }
            };
            is_over = left > 0;
            assert_eq!(response, "Both are back.", "{mode:?} {n}");
            // In parallel, a call may have run unrecorded when another child's event was the last.
            let most = if mode == ToolExecutionMode::Sequential { 3 } else { 4 };
            assert!((3..=most).contains(&house.executed()), "{mode:?} {n}: {}", house.executed());
            let tasks = tasks(&house).await;
            assert_eq!(tasks.len(), 3, "{mode:?} {n}");
            for task in &tasks {
                assert_eq!(task.status(), ChildStatus::Completed, "{mode:?} {n}");
                assert_eq!(house.store.runs(&task.child.thread_id).await.unwrap().len(), 1, "{mode:?} {n}");
            }
            let messages = house.store.messages(&"t".into()).await.unwrap();
            let results: Vec<_> =
                messages.iter().filter(|m| m.message.role == Role::Tool).map(|m| m.message.text()).collect();
            assert_eq!(results, ["One is back.", "Two is back."], "{mode:?} {n}");
            sound(&house).await;
            if is_over {
                break;
            }
        }
        assert!(is_over);
    }
}
