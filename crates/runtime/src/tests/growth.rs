//! Requests that only ever grow.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::*;
use crate::{Replay, RequestMatch, RequestPart};
use aye_core::context::{CompactionConfig, CompactionConfigKey};
use aye_core::contract::context_message::{ContextMessage, ContextTarget};
use aye_core::contract::inference::InferenceOverride;
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::spec::ContextWindowPolicy;
use aye_core::phase::{AddContextMessage, ExcludeTool, ExcludeTools, ExcludedTools};
use aye_plugins::handoff::{AgentOverlay, HANDOFF_PLUGIN_ID, HandoffPlugin};

/// A message as a provider compares it: without thoughts.
#[derive(Clone, Debug, PartialEq)]
struct SeenMessage(Role, Vec<ContentBlock>, Vec<(String, Value)>, Option<String>);

fn seen(message: &Message) -> SeenMessage {
    let content = message.content.iter().filter(|block| !block.is_bound()).cloned().collect();
    let calls = message.tool_calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
    SeenMessage(message.role, content, calls, message.tool_call_id.clone())
}

/// A request as text: all that a provider gets of it.
fn bytes(request: &InferenceRequest) -> String {
    let message = |m: &Arc<Message>| json!([m.role, m.content, m.tool_calls, m.tool_call_id]);
    let messages: Vec<_> = request.messages.iter().map(message).collect();
    let InferenceRequest { model, system, tools, overrides, enable_prompt_cache, .. } = request;
    json!([model, system, tools, overrides, enable_prompt_cache, messages]).to_string()
}

#[derive(Clone, Debug)]
struct Asked {
    system: Vec<ContentBlock>,
    tools: Vec<ToolDescriptor>,
    messages: Vec<SeenMessage>,
    thoughts: usize,
}

/// A model whose provider takes thoughts back only after exactly the request that they answered.
#[derive(Default)]
struct Strict {
    answers: Mutex<VecDeque<Result<StreamResult, InferenceExecutionError>>>,
    asked: Mutex<Vec<Asked>>,
    refused: Mutex<Vec<String>>,
    sent: Mutex<Vec<InferenceRequest>>,
}

#[async_trait]
impl LlmExecutor for Strict {
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        self.sent.lock().unwrap().push(request.clone());
        let mut asked = self.asked.lock().unwrap();
        let messages: Vec<SeenMessage> = request.messages.iter().map(|message| seen(message)).collect();
        let mut thoughts = 0;
        for (at, message) in request.messages.iter().enumerate() {
            for block in &message.content {
                let ContentBlock::Thinking { signature: Some(proof), .. } = block else { continue };
                thoughts += 1;
                let nth: usize = proof.trim_start_matches("anthropic:").parse().unwrap();
                let made: &Asked = &asked[nth];
                for (what, is_same) in [
                    ("the system text", made.system == request.system),
                    ("the tools", made.tools == request.tools),
                    ("an earlier message", made.messages == messages[..at]),
                ] {
                    if !is_same {
                        let why = format!("request {}: {what} changed before thoughts {nth}", asked.len());
                        self.refused.lock().unwrap().push(why);
                    }
                }
            }
        }
        let proof = format!("anthropic:{}", asked.len());
        asked.push(Asked { system: request.system, tools: request.tools, messages, thoughts });
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or_else(|| Ok(text("Done.")));
        answer.map(|mut answer| {
            if answer.content.is_empty() {
                answer.content.extend(
                    answer.tool_calls.iter().map(|call| ContentBlock::ToolCall { id: call.id.clone() }),
                );
            }
            answer
                .content
                .insert(0, ContentBlock::Thinking { thinking: String::new(), signature: Some(proof) });
            answer
        })
    }

    fn name(&self) -> &'static str {
        "strict"
    }
}

/// Everything that plugins may want of a request.
#[derive(Clone, Default)]
struct Mood {
    parts: BTreeMap<String, String>,
    events: Vec<String>,
    hidden: BTreeSet<String>,
    deferred: BTreeSet<String>,
}

#[derive(Clone, Default)]
struct Moody(Arc<Mutex<Mood>>);

#[async_trait]
impl PhaseHook for Moody {
    async fn run(&self, _ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let mut mood = self.0.lock().unwrap();
        for (key, text) in &mood.parts {
            let target =
                if key.starts_with("front") { ContextTarget::SystemFront } else { ContextTarget::System };
            let message = ContextMessage { target, ..ContextMessage::system(key, text) };
            command.schedule_action::<AddContextMessage>(message)?;
        }
        for event in mood.events.drain(..) {
            command
                .schedule_action::<AddContextMessage>(ContextMessage::conversation(event.clone(), event))?;
        }
        for tool in &mood.hidden {
            command.schedule_action::<ExcludeTool>(tool.clone())?;
        }
        let tools = mood.deferred.clone();
        command.schedule_action::<ExcludeTools>(ExcludedTools { tools, why: Some("is deferred".into()) })?;
        Ok(command)
    }
}

impl Plugin for Moody {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "moody" }
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::BeforeInference, self.clone());
        Ok(())
    }
}

struct Big;

#[async_trait]
impl Tool for Big {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("big", "big", "big")
    }

    async fn execute(&self, _: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::text("big", "a line\n".repeat(1500)).into())
    }
}

struct World {
    house: House,
    model: Arc<Strict>,
    mood: Moody,
    /// The agent's own text: another version of the program brings another one.
    prompt: String,
    policy: ContextWindowPolicy,
}

impl World {
    fn new(policy: ContextWindowPolicy) -> Self {
        let (model, mood, prompt) = (Arc::default(), Moody::default(), "Be brief.".to_owned());
        Self { house: House::new(), model, mood, prompt, policy }
    }

    /// A runtime as in a new process.
    fn runtime(&self) -> AgentRuntime {
        let writer = AgentOverlay { system_prompt: Some("You write.".into()), ..AgentOverlay::default() };
        let script = Script::of([]);
        let runtime = self
            .house
            .builder(&script)
            .with_model("strict", ModelEntry { provider: "strict".into(), model_name: "strict".into() })
            .with_model("other", ModelEntry { provider: "strict".into(), model_name: "other".into() })
            .with_provider("strict", Arc::<Strict>::clone(&self.model))
            .with_plugin("moody", Arc::new(self.mood.clone()))
            .with_plugin(
                HANDOFF_PLUGIN_ID,
                Arc::new(HandoffPlugin::new(HashMap::from([("writer".to_owned(), writer)]))),
            )
            .with_tool("big", Arc::new(Big))
            .build()
            .unwrap();
        let mut spec = AgentSpec::new("a")
            .with_model("strict")
            .with_system_prompt(self.prompt.clone())
            .with_section("handoff", json!({"agents": ["writer", "a"]}))
            .with_config::<CompactionConfigKey>(CompactionConfig {
                summary_model: Some("m".into()),
                ..CompactionConfig::default()
            })
            .unwrap();
        spec.context_policy = Some(self.policy.clone());
        runtime.set_agent(spec);
        runtime
    }

    fn will(&self, answers: impl IntoIterator<Item = Result<StreamResult, InferenceExecutionError>>) {
        self.model.answers.lock().unwrap().extend(answers);
    }

    async fn marks(&self) -> Option<(u64, u64, u64)> {
        let prefix: Option<PrefixRecord> = self.house.store.prefix(&"t".into()).await.unwrap();
        prefix.map(|prefix| (prefix.cut, prefix.previewed, prefix.summary_upto))
    }

    /// Checks the requests from this one on against those before.
    fn check(&self, from: usize, is_compacted: bool) {
        let refused = self.model.refused.lock().unwrap().clone();
        assert_eq!(refused, [] as [String; 0]);
        let asked = self.model.asked.lock().unwrap();
        for (nth, pair) in asked.windows(2).enumerate().skip(from.saturating_sub(1)) {
            let [before, after] = pair else { unreachable!() };
            let begins = before.system == after.system
                && before.tools == after.tools
                && after.messages.starts_with(&before.messages);
            assert!(begins || is_compacted, "request {} does not begin with request {nth}", nth + 1);
        }
    }

    /// Checks that the rows of the conversation give each request again as it was sent, and returns how many.
    async fn replay(&self) -> usize {
        let sent = self.model.sent.lock().unwrap().clone();
        let mut sent = sent.iter();
        let mut replay = Replay::read(Arc::new(self.house.store.clone()), &"t".into(), None).await.unwrap();
        let mut count = 0;
        while let Some(step) = replay.next().await {
            assert_eq!(step.compared, RequestMatch::Equal, "the request answered at {}", step.place);
            let made = bytes(&step.request.unwrap());
            assert!(sent.any(|sent| bytes(sent) == made), "no such request was sent: {made}");
            count += 1;
        }
        count
    }

    fn last(&self) -> Asked {
        self.model.asked.lock().unwrap().last().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.model.asked.lock().unwrap().len()
    }
}

fn window(tokens: usize, threshold: Option<usize>) -> ContextWindowPolicy {
    ContextWindowPolicy {
        max_context_tokens: tokens,
        max_output_tokens: 500,
        min_recent_messages: 4,
        autocompact_threshold: threshold,
        ..ContextWindowPolicy::default()
    }
}

/// A generator of numbers that gives the same ones each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn handoff_to(agent: &str, nth: u64) -> StreamResult {
    let call = ToolCall::new(format!("to{nth}"), "handoff", json!({"agent": agent}));
    StreamResult { tool_calls: vec![call], ..StreamResult::default() }
}

/// One thing that may change a request.
async fn change(world: &mut World, runtime: &mut AgentRuntime, dice: &mut Dice, nth: u64) {
    let key = |dice: &mut Dice| ["front.a", "part.b", "part.c"][dice.roll(3) as usize].to_owned();
    let tool = |dice: &mut Dice| ["free", "deny", "hang"][dice.roll(3) as usize].to_owned();
    match dice.roll(16) {
        0 => {
            let lines = (0..dice.roll(30)).fold(String::new(), |text, line| text + &format!("\nline {line}"));
            world.mood.0.lock().unwrap().parts.insert(key(dice), format!("part {nth}{lines}"));
        }
        1 => drop(world.mood.0.lock().unwrap().parts.remove(&key(dice))),
        2 => world.mood.0.lock().unwrap().events.push(format!("event {nth}")),
        3 => {
            let (mut mood, tool) = (world.mood.0.lock().unwrap(), tool(dice));
            if !mood.hidden.remove(&tool) {
                mood.hidden.insert(tool);
            }
        }
        4 => {
            let (mut mood, tool) = (world.mood.0.lock().unwrap(), tool(dice));
            if !mood.deferred.remove(&tool) {
                mood.deferred.insert(tool);
            }
        }
        5 => {
            world.prompt = format!("Be brief, version {nth}.");
            *runtime = world.runtime();
        }
        6 => *runtime = world.runtime(),
        7 => drop(runtime.compact(&"t".into(), "a", None).await),
        8 => world.will([Ok(calls(&[(&format!("b{nth}"), "big")]))]),
        9 => world.will([Err(InferenceExecutionError::InvalidRequest("no".into()))]),
        10 => world.will([Err(InferenceExecutionError::BoundThoughts("bound".into()))]),
        11 => world.will([Ok(handoff_to(["writer", "a"][dice.roll(2) as usize], nth))]),
        12 => {
            world.will([Ok(calls(&[(&format!("a{nth}"), "ask")]))]);
            send(runtime, "do it").await;
            *runtime = world.runtime();
            for waiting in runtime.waiting(&"t".into()).await.unwrap() {
                let id = &waiting.ticket.suspension.id;
                runtime.decide(id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
            }
            wake(runtime, UnknownPolicy::Report).await;
        }
        13 => {
            let tools: Vec<Arc<dyn Tool>> = match dice.roll(3) {
                0 => Vec::new(),
                n => vec![Arc::new(Counter {
                    name: ["late", "later"][n as usize - 1],
                    class: ToolClass::Opaque,
                    runs: Arc::default(),
                    hangs: None,
                })],
            };
            runtime.set_tools("server", tools);
        }
        14 => {
            let overrides = InferenceOverride { model: Some("other".into()), ..InferenceOverride::default() };
            let request = RunRequest::new("t", vec![Message::user("with another model")]);
            let request = RunRequest { overrides, ..request };
            runtime.run(request, Arc::new(VecEventSink::new())).await.unwrap();
        }
        _ => world.will([Ok(calls(&[(&format!("f{nth}"), "free"), (&format!("d{nth}"), "deny")]))]),
    }
}

#[tokio::test]
async fn each_request_begins_with_the_one_before_whatever_changes() {
    for seed in 0..24 {
        let mut dice = Dice(seed * 7919 + 1);
        let policy = match seed % 4 {
            0 => window(200_000, None),
            1 => window(9000, None),
            2 => window(20_000, Some(5000)),
            _ => window(200_000, Some(100_000)),
        };
        let mut world = World::new(policy);
        let mut runtime = world.runtime();
        for nth in 0..24 {
            let (from, marks) = (world.count(), world.marks().await);
            change(&mut world, &mut runtime, &mut dice, nth).await;
            send(&runtime, &format!("message {nth}")).await;
            world.check(from, marks != world.marks().await);
        }
        // A summary may still be written in the background.
        runtime.settle(&"t".into()).await;
        assert!(world.replay().await > 12);
    }
}

#[tokio::test]
async fn a_changed_row_is_found_with_the_part_that_it_changes() {
    let mut world = World::new(window(200_000, None));
    send(&world.runtime(), "first").await;
    world.prompt = "Be brief, please.".into();
    send(&world.runtime(), "second").await;
    assert_eq!(world.replay().await, 2);
    let compared = async || {
        let mut replay = Replay::read(Arc::new(world.house.store.clone()), &"t".into(), None).await.unwrap();
        let mut all = Vec::new();
        while let Some(step) = replay.next().await {
            all.push(step.compared);
        }
        all
    };
    let differs = |part| RequestMatch::Differs(vec![part]);
    let tamper = |sql: &'static str| world.house.store.tamper(sql);
    tamper("UPDATE message SET body = replace(body, 'please', 'always')").await;
    assert_eq!(compared().await, [RequestMatch::Equal, differs(RequestPart::Messages)]);
    tamper("UPDATE message SET body = replace(body, 'always', 'please')").await;
    tamper("UPDATE prefix SET body = replace(body, 'Be brief.', 'Be loud.')").await;
    assert_eq!(compared().await, [differs(RequestPart::System), differs(RequestPart::System)]);
    tamper(
        "UPDATE prefix SET body = replace(replace(body, 'Be loud.', 'Be brief.'), '\"free\"', '\"paid\"')",
    )
    .await;
    assert_eq!(compared().await, [differs(RequestPart::Tools), differs(RequestPart::Tools)]);
    // What earlier versions wrote says so.
    tamper("UPDATE message SET body = json_remove(body, '$.metadata.request')").await;
    assert_eq!(compared().await, [RequestMatch::NotKept, RequestMatch::NotKept]);
    tamper("DELETE FROM prefix").await;
    assert_eq!(compared().await, [RequestMatch::NoStart, RequestMatch::NoStart]);
}

#[tokio::test]
async fn another_process_and_another_version_keep_the_start() {
    let mut world = World::new(window(200_000, None));
    world.mood.0.lock().unwrap().parts.insert("notes".into(), "one".into());
    send(&world.runtime(), "first").await;
    world.prompt = "Be brief, please.".into();
    world.mood.0.lock().unwrap().parts.insert("notes".into(), "two".into());
    send(&world.runtime(), "second").await;
    let last = world.last();
    assert_eq!(last.system, [ContentBlock::text("Be brief."), ContentBlock::text("one")]);
    let texts: Vec<String> =
        last.messages.iter().map(|seen| aye_core::contract::content::text_of(&seen.1)).collect();
    assert_eq!(
        texts,
        [
            "first",
            "Done.",
            "second",
            "This replaces what was said before under `Be brief.`:\n\nBe brief, please.",
            "This replaces what was said before under `one`:\n\ntwo"
        ]
    );
    assert_eq!(last.thoughts, 1);
    send(&world.runtime(), "third").await;
    world.check(0, false);
    assert_eq!(world.last().messages.len(), 7, "it is said once");
    // A compaction takes everything in.
    world.will([Ok(text(&"w".repeat(20_000)))]);
    send(&world.runtime(), "long").await;
    send(&world.runtime(), "and").await;
    world.runtime().compact(&"t".into(), "a", None).await.unwrap();
    send(&world.runtime(), "fourth").await;
    assert_eq!(world.last().system, [ContentBlock::text("Be brief, please."), ContentBlock::text("two")]);
    assert_eq!(world.last().thoughts, 0, "no thoughts from before the cut");
    send(&world.runtime(), "fifth").await;
    assert_eq!(world.last().thoughts, 1);
    world.check(0, true);
}

#[tokio::test]
async fn refused_thoughts_are_left_out_once_and_for_all() {
    let world = World::new(window(200_000, None));
    let bound = || Err(InferenceExecutionError::BoundThoughts("bound to a different conversation".into()));
    send(&world.runtime(), "first").await;
    world.will([bound(), Ok(text("Fine."))]);
    let runtime = world.runtime();
    let (result, events) = send(&runtime, "second").await;
    assert_eq!(result.response, "Fine.");
    assert!(
        !names(&events).iter().any(|name| name.starts_with("error") || name.starts_with("activity")),
        "silently"
    );
    let thoughts: Vec<usize> = world.model.asked.lock().unwrap().iter().map(|asked| asked.thoughts).collect();
    assert_eq!(thoughts, [0, 1, 0]);
    // Another process knows.
    send(&world.runtime(), "third").await;
    assert_eq!(world.last().thoughts, 1, "only the new ones");
    world.check(0, false);
    // A second refusal of the same request is an error.
    world.will([bound(), bound(), Ok(text("Better."))]);
    let (result, _) = send(&runtime, "fourth").await;
    assert!(matches!(result.termination, TerminationReason::Error(_)), "{:?}", result.termination);
    assert_eq!(send(&runtime, "fifth").await.0.response, "Better.");
    world.check(0, false);
}

#[tokio::test]
async fn a_conversation_from_before_is_frozen_with_its_next_request() {
    let world = World::new(window(200_000, None));
    send(&world.runtime(), "first").await;
    // An older version kept no start.
    world.house.store.tamper("DELETE FROM prefix").await;
    send(&world.runtime(), "second").await;
    assert_eq!(world.last().thoughts, 0, "nobody knows what they were made for");
    send(&world.runtime(), "third").await;
    assert_eq!(world.last().thoughts, 1);
    world.check(0, false);
}

#[tokio::test]
async fn a_tool_that_was_loaded_stays_callable_and_a_withheld_one_is_refused() {
    let world = World::new(window(200_000, None));
    let runtime = world.runtime();
    send(&runtime, "first").await;
    world.mood.0.lock().unwrap().deferred.insert("free".into());
    world.mood.0.lock().unwrap().hidden.insert("deny".into());
    world.will([Ok(calls(&[("c1", "free"), ("c2", "deny")]))]);
    send(&runtime, "second").await;
    assert_eq!(world.house.executed(), 1);
    let texts: Vec<String> =
        world.last().messages.iter().map(|seen| aye_core::contract::content::text_of(&seen.1)).collect();
    assert!(texts.iter().any(|text| text == "Tools that cannot be used now: deny."), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("unknown tool `deny`")), "{texts:?}");
    world.check(0, false);
}
