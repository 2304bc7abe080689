//! The driver over a store in memory and a scripted model.

use std::collections::VecDeque;

use async_trait::async_trait;
use serde_json::json;

use super::*;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor};
use aye_core::contract::inference::StreamResult;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::record::Owner;
use aye_core::contract::spec::{AgentSpec, ModelSpec};
use aye_core::contract::storage::LeaseStore as _;
use aye_core::contract::suspension::{Actor, ToolCallResume};
use aye_core::contract::tool::ToolDescriptor;
use aye_local::InMemoryStore;
use aye_runtime::AgentRuntimeBuilder;

/// Says these things; `?` calls the tool of the client, and `…` never ends.
struct Script(Mutex<VecDeque<&'static str>>);

#[async_trait]
impl LlmExecutor for Script {
    async fn execute(&self, _request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        let next = self.0.lock().unwrap().pop_front().unwrap_or("Done.");
        match next {
            "?" => {
                let calls = vec![ToolCall::new("c1", "ask", json!({}))];
                Ok(StreamResult { tool_calls: calls, ..StreamResult::default() })
            }
            "…" => std::future::pending().await,
            text => Ok(StreamResult { content: vec![ContentBlock::text(text)], ..StreamResult::default() }),
        }
    }

    fn name(&self) -> &'static str {
        "script"
    }
}

struct House {
    store: InMemoryStore,
    runtime: AgentRuntime,
}

fn house(script: &[&'static str]) -> House {
    let store = InMemoryStore::new();
    let script = Script(Mutex::new(script.iter().copied().collect()));
    let model = ModelSpec { id: "script".into(), provider: "script".into(), model: "script".into() };
    let runtime = AgentRuntimeBuilder::new()
        .with_store(store.clone())
        .with_agent_spec(AgentSpec::new("assistant").with_model("script"))
        .with_provider("script", Arc::new(script))
        .with_model("script", model)
        .build()
        .unwrap();
    House { store, runtime }
}

impl House {
    /// The same agents in another process.
    fn another(&self) -> AgentRuntime {
        self.runtime.on_store(Arc::new(self.store.another())).unwrap()
    }

    async fn answer(&self, by: &AgentRuntime) {
        let open = self.runtime.waiting(&"t".into()).await.unwrap();
        by.decide(&open[0].id, ToolCallResume::answer(json!("noon")), Actor::default()).await.unwrap();
    }
}

fn request_with(text: &str) -> RunRequest {
    let mut request = RunRequest::new("t", vec![Message::user(text)]);
    request.frontend_tools = vec![ToolDescriptor::new("ask", "ask", "asks the client")];
    request
}

/// Records what it is shown.
#[derive(Default)]
struct Front {
    /// Notified of each run that comes to wait, and of each that starts.
    waits: Arc<Notify>,
    started: Arc<Notify>,
    ended: Vec<String>,
    elsewhere: usize,
}

struct Starts(Arc<Notify>);

#[async_trait]
impl EventSink for Starts {
    async fn emit(&self, event: AgentEvent) {
        if matches!(event, AgentEvent::StepStart { .. }) {
            self.0.notify_one();
        }
    }
}

impl FrontEnd for Front {
    fn sink(&self) -> Arc<dyn EventSink> {
        Arc::new(Starts(Arc::clone(&self.started)))
    }

    async fn ended(
        &mut self,
        result: Option<&Result<AgentRunResult, RuntimeError>>,
    ) -> Result<(), RuntimeError> {
        if let Some(Ok(result)) = result {
            self.ended.push(result.response.clone());
        }
        Ok(())
    }

    async fn wait(&mut self, rest: &mut Rest<'_>) -> Result<SessionFact, RuntimeError> {
        self.waits.notify_one();
        rest.changed().await;
        Ok(SessionFact::Changed)
    }

    async fn ended_elsewhere(
        &mut self,
        runtime: &AgentRuntime,
        run: RunRecord,
    ) -> Result<AgentRunResult, RuntimeError> {
        self.elsewhere += 1;
        runtime.result_of(run).await
    }
}

const PROMPT: Manner = Manner {
    waits: true,
    elsewhere: Elsewhere::FollowOwn,
    queue: Queue::Messages,
    after_failure: false,
    stays: false,
};

#[tokio::test]
async fn a_run_is_followed_by_the_queue() {
    let house = house(&["One.", "Two."]);
    house.runtime.enqueue(&"t".into(), vec![Message::user("and then")]).await.unwrap();
    let mut front = Front::default();
    let attender = Attender::request(PROMPT, request_with("go"));
    let end = attender.attend(&house.runtime, &"t".into(), &mut front).await;
    assert_eq!((end.why, front.ended), (Leaving::Done, vec!["One.".to_owned(), "Two.".to_owned()]));
    assert_eq!(end.result.unwrap().unwrap().response, "Two.");
    assert!(attender.start(request_with("too late")).is_err());
    assert!(!attender.report(SessionFact::Changed));
}

#[tokio::test]
async fn an_answer_of_another_process_resumes_the_run() {
    let house = house(&["?", "It is noon."]);
    let other = house.another();
    let (mut front, attender) = (Front::default(), Attender::request(PROMPT, request_with("go")));
    let waits = Arc::clone(&front.waits);
    let thread = "t".into();
    let answers = async {
        waits.notified().await;
        house.answer(&other).await;
    };
    let (end, ()) = tokio::join!(attender.attend(&house.runtime, &thread, &mut front), answers);
    assert_eq!(end.result.unwrap().unwrap().response, "It is noon.");
}

#[tokio::test]
async fn a_run_that_another_process_resumes_is_followed_to_its_end() {
    let house = house(&["?", "It is noon."]);
    let other = house.another();
    let (mut front, attender) = (Front::default(), Attender::request(PROMPT, request_with("go")));
    let waits = Arc::clone(&front.waits);
    let thread = "t".into();
    let answers = async {
        waits.notified().await;
        house.answer(&other).await;
        let (mut front, attender) = (Front::default(), Attender::resume(PROMPT));
        attender.attend(&other, &thread, &mut front).await
    };
    let (one, two) = tokio::join!(attender.attend(&house.runtime, &thread, &mut front), answers);
    // Whoever was faster: each run ends once, and both learn how.
    assert_eq!(one.result.unwrap().unwrap().response, "It is noon.");
    let runs = house.runtime.store().list_runs(&thread).await.unwrap();
    assert_eq!(runs.len(), 1);
    let is_done_there = matches!(&two.result, Some(Ok(result)) if result.response == "It is noon.");
    assert_eq!(front.elsewhere, usize::from(is_done_there), "{two:?}");
}

#[tokio::test]
async fn a_cancel_stops_what_is_driven_and_closes_what_waits() {
    let house = house(&["?", "…"]);
    let thread = "t".into();
    for driven in [false, true] {
        let (mut front, attender) = (Front::default(), Attender::request(PROMPT, request_with("go")));
        let comes = Arc::clone(if driven { &front.started } else { &front.waits });
        let cancels = async {
            comes.notified().await;
            assert!(attender.report(SessionFact::Cancelled));
        };
        let (end, ()) = tokio::join!(attender.attend(&house.runtime, &thread, &mut front), cancels);
        assert_eq!(end.why, Leaving::Cancelled);
        let run = house.runtime.store().latest_run(&thread).await.unwrap().unwrap();
        assert_eq!(run.termination, Some(TerminationReason::Cancelled));
        assert!(house.runtime.waiting(&thread).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn one_that_closes_leaves_its_question_and_a_later_one_sees_it_through() {
    let house = house(&["?", "It is noon."]);
    let (mut front, attender) = (Front::default(), Attender::request(PROMPT, request_with("go")));
    let waits = Arc::clone(&front.waits);
    let thread = "t".into();
    let closes = async {
        waits.notified().await;
        attender.report(SessionFact::Closed);
    };
    let (end, ()) = tokio::join!(attender.attend(&house.runtime, &thread, &mut front), closes);
    assert_eq!(end.why, Leaving::Closed);
    let run = house.runtime.store().latest_run(&thread).await.unwrap().unwrap();
    assert_eq!(house.runtime.waiting(&thread).await.unwrap().len(), 1);
    house.answer(&house.runtime).await;
    let end = Attender::of_run(PROMPT, run.id).attend(&house.runtime, &thread, &mut front).await;
    assert_eq!(end.result.unwrap().unwrap().response, "It is noon.");
}

const SCREEN: Manner = Manner {
    waits: true,
    elsewhere: Elsewhere::Follow,
    queue: Queue::Written,
    after_failure: false,
    stays: true,
};

/// One that stays until its conversation is no longer shown.
#[tokio::test]
async fn one_that_stays_starts_what_comes_and_leaves_when_it_is_let_go() {
    let house = house(&["One.", "Two."]);
    let (mut front, attender) = (Front::default(), Attender::look(SCREEN));
    let waits = Arc::clone(&front.waits);
    let thread = "t".into();
    let user = async {
        waits.notified().await;
        attender.start(request_with("go")).unwrap();
        waits.notified().await;
        house.runtime.enqueue(&thread, vec![Message::user("and then")]).await.unwrap();
        attender.report(SessionFact::Changed);
        waits.notified().await;
        attender.report(SessionFact::Behaves(Manner { stays: false, ..SCREEN }));
    };
    let (end, ()) = tokio::join!(attender.attend(&house.runtime, &thread, &mut front), user);
    assert_eq!((end.why, front.ended), (Leaving::Done, vec!["One.".to_owned(), "Two.".to_owned()]));
}

#[tokio::test]
async fn an_interruption_ends_the_run_that_waits_and_the_next_one_starts() {
    let house = house(&["?", "One."]);
    let (mut front, attender) = (Front::default(), Attender::request(SCREEN, request_with("go")));
    let waits = Arc::clone(&front.waits);
    let thread = "t".into();
    let user = async {
        waits.notified().await;
        attender.report(SessionFact::Interrupted);
        attender.start(request_with("something else")).unwrap();
        waits.notified().await;
        attender.report(SessionFact::Closed);
    };
    let (end, ()) = tokio::join!(attender.attend(&house.runtime, &thread, &mut front), user);
    assert_eq!(end.why, Leaving::Closed);
    let runs = house.runtime.store().list_runs(&thread).await.unwrap();
    let ends: Vec<_> = runs.into_iter().filter_map(|run| run.termination).collect();
    assert!(
        ends.contains(&TerminationReason::Cancelled) && ends.contains(&TerminationReason::NaturalEnd),
        "{ends:?}"
    );
}

/// A process that dies while it drives a subagent leaves a run that waits, and its lease.
#[tokio::test]
async fn a_run_that_waits_is_resumed_when_its_process_died() {
    let house = house(&["?"]);
    let thread: ThreadId = "t".into();
    let (mut front, attender) = (Front::default(), Attender::request(PROMPT, request_with("go")));
    let waits = Arc::clone(&front.waits);
    let closes = async {
        waits.notified().await;
        attender.report(SessionFact::Closed);
    };
    tokio::join!(attender.attend(&house.runtime, &thread, &mut front), closes);
    let dead = Owner { token: "dead".into(), ..house.runtime.owner().clone() };
    house.store.acquire(&thread, &dead, None).await.unwrap();
    let (mut front, attender) = (Front::default(), Attender::look(SCREEN));
    let waits = Arc::clone(&front.waits);
    let closes = async {
        waits.notified().await;
        attender.report(SessionFact::Closed);
    };
    tokio::join!(attender.attend(&house.runtime, &thread, &mut front), closes);
    assert_eq!(front.ended.len(), 1, "it was resumed, and waits again");
    assert_eq!(house.runtime.store().lease(&thread).await.unwrap(), None);
}

#[tokio::test]
async fn requested_runs_start_one_after_the_other_and_can_be_withdrawn_before() {
    let house = house(&["One.", "Two."]);
    let (mut front, attender) = (Front::default(), Attender::request(PROMPT, request_with("go")));
    let thread = "t".into();
    let mut withdrawn = request_with("never mind");
    withdrawn.run_id = Some("r9".into());
    attender.start(withdrawn).unwrap();
    attender.start(request_with("next")).unwrap();
    assert!(attender.withdraw(&"r9".into()));
    assert!(!attender.withdraw(&"r9".into()));
    let end = attender.attend(&house.runtime, &thread, &mut front).await;
    assert_eq!((end.why, front.ended), (Leaving::Done, vec!["One.".to_owned(), "Two.".to_owned()]));
}

/// A driver is a task of its own in most front ends.
#[test]
fn an_attendance_can_be_sent_to_another_thread() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let (house, thread, mut front) = (house(&[]), "t".into(), Front::default());
    let attender = Attender::look(PROMPT);
    drop(is_send(attender.attend(&house.runtime, &thread, &mut front)));
}
