//! Runs that continue as another agent.

use std::collections::{BTreeSet, HashMap};

use super::*;
use aye_core::state::MutationBatch;
use aye_plugins::handoff::{AgentOverlay, HANDOFF_PLUGIN_ID, HandoffPlugin};

fn to(agent: &str) -> StreamResult {
    let arguments = json!({"agent": agent, "message": "Go on."});
    StreamResult {
        tool_calls: vec![ToolCall::new(format!("to_{agent}"), "handoff", arguments)],
        ..StreamResult::default()
    }
}

/// The prompt and the tools that count in each request, and its model. The start of the requests stays the same; messages
/// say what changed.
fn asked(script: &Script) -> Vec<(String, String, Vec<String>)> {
    let requests = script.requests.lock().unwrap();
    let one = |request: &InferenceRequest| {
        assert_eq!((&request.system, &request.tools), (&requests[0].system, &requests[0].tools));
        let mut prompt = format!("{:?}", request.system);
        let mut gone = BTreeSet::new();
        for message in request.messages.iter().map(|message| message.text()) {
            if message.ends_with("again: the instructions at the start apply.") {
                prompt = format!("{:?}", request.system);
            } else if message.starts_with("From here on you are the agent") {
                prompt = message.clone();
            }
            for line in message.lines() {
                let of = |start: &str| {
                    line.strip_prefix(start).map(|names| names.trim_end_matches('.').split(", "))
                };
                gone.extend(of("Tools that cannot be used now: ").into_iter().flatten().map(str::to_owned));
                of("Tools that can be used again: ").into_iter().flatten().for_each(|name| {
                    gone.remove(name);
                });
            }
        }
        let prompt = ["Be brief.", "You write.", "You test."].into_iter().find(|p| prompt.contains(p));
        let tools = request.tools.iter().map(|tool| tool.id.clone());
        let mut tools: Vec<String> = tools.filter(|tool| !gone.contains(tool)).collect();
        tools.sort();
        (prompt.unwrap_or("?").to_owned(), request.upstream_model.clone(), tools)
    };
    requests.iter().map(one).collect()
}

fn notices(events: &[AgentEvent]) -> Vec<String> {
    let text = |event: &AgentEvent| match event {
        AgentEvent::ActivitySnapshot { content, .. } => content["text"].as_str().map(str::to_owned),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// Counts the calls it saw, and their outcomes.
#[derive(Clone, Default)]
struct Watch {
    guard: bool,
    calls: Arc<AtomicU32>,
    came: Arc<AtomicU32>,
    went: Arc<AtomicU32>,
}

#[async_trait]
impl PhaseHook for Watch {
    async fn run(&self, _ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(StateCommand::new())
    }
}

impl Plugin for Watch {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: if self.guard { "guard" } else { "helper" } }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::BeforeToolExecute, self.clone());
        Ok(())
    }

    fn is_guard(&self) -> bool {
        self.guard
    }

    fn on_activate(&self, _: &AgentSpec, _: &mut MutationBatch) -> Result<(), StateError> {
        self.came.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn on_deactivate(&self, _: &mut MutationBatch) -> Result<(), StateError> {
        self.went.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The house's agent may hand off to `writer`, a variant, and to `tester`, a separate agent.
fn builder(house: &House, script: &Arc<Script>) -> AgentRuntimeBuilder {
    let writer = AgentOverlay {
        system_prompt: Some("You write.".into()),
        model: Some("big".into()),
        allowed_tools: Some(vec!["ask".into(), "handoff".into()]),
        excluded_tools: None,
    };
    let tester = AgentSpec::new("tester")
        .with_model("m")
        .with_system_prompt("You test.")
        .with_section("handoff", json!({"agents": ["a"]}));
    let tester = AgentSpec { plugin_ids: vec![HANDOFF_PLUGIN_ID.into()], ..tester };
    let mut base = AgentSpec::new("a").with_model("m").with_system_prompt("Be brief.");
    base.sections.insert("handoff".into(), json!({"agents": ["writer", "tester", "ghost"]}));
    AgentRuntimeBuilder::new()
        .with_store(house.store.clone())
        .with_agent_spec(base)
        .with_agent_spec(tester)
        .with_default_agent("a")
        .with_model("m", ModelEntry { provider: "p".into(), model_name: "small-1".into() })
        .with_model("big", ModelEntry { provider: "p".into(), model_name: "big-1".into() })
        .with_provider("p", Arc::<Script>::clone(script))
        .with_tool(
            "ask",
            Arc::new(Counter {
                name: "ask",
                class: ToolClass::Opaque,
                hangs: None,
                runs: Arc::clone(&house.runs),
            }),
        )
        .with_tool(
            "free",
            Arc::new(Counter {
                name: "free",
                class: ToolClass::Opaque,
                hangs: None,
                runs: Arc::clone(&house.runs),
            }),
        )
        .with_plugin("gatekeeper", Arc::new(Gatekeeper))
        .with_plugin(
            HANDOFF_PLUGIN_ID,
            Arc::new(HandoffPlugin::new(HashMap::from([("writer".to_owned(), writer)]))),
        )
        .dead()
}

#[tokio::test]
async fn the_next_step_has_the_variants_prompt_model_and_tools() {
    let house = House::new();
    let script = Script::of([to("writer"), text("Written.")]);
    let runtime = builder(&house, &script).build().unwrap();
    let (result, events) = send(&runtime, "go").await;
    assert_eq!(result.response, "Written.");
    assert_eq!(result.steps, 2, "one run");
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        asked(&script),
        [
            ("Be brief.".to_owned(), "small-1".to_owned(), all(&["ask", "free", "handoff"])),
            ("You write.".to_owned(), "big-1".to_owned(), all(&["ask", "handoff"])),
        ]
    );
    assert!(
        script.result_of("to_writer").contains("You are `writer` from here on"),
        "{}",
        script.result_of("to_writer")
    );
    assert!(script.result_of("to_writer").contains("Go on."));
    assert_eq!(notices(&events), ["handed off to writer, with big"]);
    // The next run continues with it, in another process too.
    for runtime in [runtime, builder(&house, &script).build().unwrap()] {
        script.answers.lock().unwrap().push_back(Ok(text("Hi.")));
        let (_, events) = send(&runtime, "and now?").await;
        let last = asked(&script).pop().unwrap();
        assert_eq!((last.0.as_str(), last.1.as_str()), ("You write.", "big-1"));
        assert_eq!(notices(&events), ["handed off to writer"]);
    }
    // A run started with another agent uses that agent.
    let runtime = builder(&house, &script).with_default_agent("tester").build().unwrap();
    script.answers.lock().unwrap().push_back(Ok(text("Tested.")));
    let (_, events) = send(&runtime, "test it").await;
    assert_eq!(asked(&script).last().unwrap().0, "You test.");
    assert_eq!(notices(&events), [] as [String; 0]);
}

#[tokio::test]
async fn a_handoff_survives_a_restart() {
    let house = House::new();
    let script = Script::of([to("writer"), calls(&[("c1", "ask")]), text("Written.")]);
    let (result, _) = send(&builder(&house, &script).build().unwrap(), "go").await;
    assert_eq!(result.termination, TerminationReason::Suspended);
    let runtime = builder(&house, &script).build().unwrap();
    let waiting = runtime.waiting(&"t".into()).await.unwrap();
    runtime
        .decide(&waiting[0].ticket.suspension.id, answer(ResumeDecisionAction::Resume), actor())
        .await
        .unwrap();
    let (result, events) = wake(&runtime, UnknownPolicy::Report).await;
    assert_eq!(result.response, "Written.");
    assert_eq!(house.executed(), 1);
    let last = asked(&script).pop().unwrap();
    assert_eq!((last.0.as_str(), last.1.as_str()), ("You write.", "big-1"));
    assert_eq!(notices(&events), ["handed off to writer"], "a new terminal shows who answers");
}

#[tokio::test]
async fn a_separate_agent_takes_over_and_returns_while_guards_stay() {
    let house = House::new();
    let script = Script::of([to("tester"), calls(&[("c1", "free")]), to("a"), text("Done.")]);
    let guard = Watch { guard: true, ..Watch::default() };
    let helper = Watch::default();
    let runtime = builder(&house, &script)
        .with_plugin("guard", Arc::new(guard.clone()))
        .with_plugin("helper", Arc::new(helper.clone()))
        .build()
        .unwrap();
    send(&runtime, "go").await;
    let prompts: Vec<String> = asked(&script).into_iter().map(|(prompt, ..)| prompt).collect();
    assert_eq!(prompts, ["Be brief.", "You test.", "You test.", "Be brief."]);
    let count = |of: &Arc<AtomicU32>| of.load(Ordering::SeqCst);
    // The tester names its plugins, and the guard is not among them.
    assert_eq!(count(&guard.calls), 3, "it saw every call");
    assert_eq!(count(&helper.calls), 1, "it belongs to the first agent");
    assert_eq!((count(&guard.came), count(&guard.went)), (1, 0));
    assert_eq!((count(&helper.came), count(&helper.went)), (2, 1));
}

#[tokio::test]
async fn an_unknown_agent_is_an_error_result_and_a_missing_one_is_reported() {
    let house = House::new();
    let script = Script::of([to("wrter"), to("ghost"), text("Then I do it.")]);
    let runtime = builder(&house, &script).build().unwrap();
    let (result, events) = send(&runtime, "go").await;
    assert_eq!(result.response, "Then I do it.");
    let unknown = script.result_of("to_wrter");
    assert!(unknown.contains("wrter") && unknown.contains("writer"), "{unknown}");
    assert!(asked(&script).iter().all(|(prompt, ..)| prompt == "Be brief."));
    let why = "the conversation was not handed off to `ghost`: unknown agent `ghost`; there are a, tester";
    assert_eq!(notices(&events), [why]);
    let requests = script.requests.lock().unwrap();
    let reported = requests.last().unwrap().messages.iter().any(|message| message.text().contains(why));
    assert!(reported, "the model receives the correction");
}

#[tokio::test]
async fn a_run_whose_agent_is_missing_reports_it_and_can_be_ended() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("New.")]);
    let request = RunRequest::new("t", vec![Message::user("go")]).with_agent_id("tester");
    let runtime = builder(&house, &script).build().unwrap();
    let mut tester = AgentSpec::clone(&runtime.catalog().agents["tester"]);
    tester.plugin_ids.clear();
    runtime.set_agent(tester);
    let result = runtime.run(request, Arc::new(VecEventSink::new())).await.unwrap();
    assert_eq!(result.termination, TerminationReason::Suspended);
    let runtime = builder(&house, &script).build().unwrap();
    runtime.remove_agent("tester");
    let error =
        runtime.resume(&"t".into(), Arc::new(VecEventSink::new()), UnknownPolicy::Report).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the run belongs to the agent `tester`, which no longer exists; there is a; restore the agent to \
         resume, or send a new message to end the run"
    );
    let (result, _) = send(&runtime, "something new").await;
    assert_eq!(result.response, "New.");
}
