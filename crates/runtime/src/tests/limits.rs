//! Limits of a provider that reset later than a request waits, and what a run is charged for.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::*;
use crate::LlmRetryPolicy;
use crate::retry::RetryConfigKey;
use aye_core::contract::inference::{InferenceOverride, ModelUsage, TokenUsage};
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};
use aye_core::contract::suspension::ACTION_WAIT;
use aye_core::phase::SetInferenceOverride;
use aye_store_sqlite::JobFilter;

const HOUR: u64 = 3_600_000;

struct Hand(AtomicU64);

impl Clock for Hand {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn uptime_ms(&self) -> u64 {
        1
    }
}

fn limited(wait: u64) -> InferenceExecutionError {
    InferenceExecutionError::RateLimited {
        message: "too many requests".into(),
        retry_after: Some(Duration::from_millis(wait)),
    }
}

fn answers(answers: impl IntoIterator<Item = Result<StreamResult, InferenceExecutionError>>) -> Arc<Script> {
    let script = Script::default();
    script.answers.lock().unwrap().extend(answers);
    Arc::new(script)
}

fn clock() -> Arc<Hand> {
    Arc::new(Hand(AtomicU64::new(1000)))
}

fn waiting(house: &House, script: &Arc<Script>, clock: &Arc<Hand>) -> AgentRuntime {
    house.builder(script).with_clock(clock.clone()).with_waits_for_limits(true).build().unwrap()
}

async fn jobs(house: &House) -> Vec<MailboxJob> {
    house.store.mailbox().list_jobs(JobFilter::default()).await.unwrap()
}

#[tokio::test]
async fn a_run_waits_until_a_limit_resets_and_asks_again() {
    let house = House::new();
    let script = answers([Ok(calls(&[("c1", "free")])), Err(limited(HOUR)), Ok(text("There."))]);
    let clock = clock();
    let runtime = waiting(&house, &script, &clock);
    let (result, events) = send(&runtime, "go").await;
    assert_eq!(result.termination, TerminationReason::Suspended);
    let [question] = &result.waiting[..] else { panic!("{result:?}") };
    let asked = &question.ticket.suspension;
    assert_eq!((asked.action.as_str(), asked.resumes_at()), (ACTION_WAIT, Some(1000 + HOUR)));
    assert!(asked.message.contains("too many requests"), "{}", asked.message);
    assert_eq!(names(&events).last().unwrap(), "run_finish(suspended)");
    let [job] = &jobs(&house).await[..] else { panic!("a row has the time") };
    assert_eq!((job.available_at, &job.run_id), (1000 + HOUR, &Some(result.run_id.clone())));
    assert_eq!((job.status, job.attempt_count), (MailboxJobStatus::Queued, 0));
    assert!(house.store.queued(&"t".into()).await.unwrap().is_empty(), "it is no message of the user");

    // Looking at the questions, or at the run, does not end the wait.
    clock.0.store(HOUR, Ordering::SeqCst);
    assert_eq!(house.store.expire_due(HOUR * 9).await.unwrap(), []);
    let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!(result.termination, TerminationReason::Suspended);
    assert_eq!(script.requests.lock().unwrap().len(), 2);

    // The process has died; another one resumes the run in time.
    clock.0.store(1000 + HOUR, Ordering::SeqCst);
    let (result, events) = wake(&waiting(&house, &script, &clock), UnknownPolicy::Ask).await;
    assert_eq!((result.response.as_str(), &result.expired[..]), ("There.", &[][..]));
    assert_eq!(
        names(&events),
        [
            "run_start",
            "tool_call_done(succeeded)",
            "step_start",
            "text_delta",
            "inference_complete",
            "step_end",
            "run_finish(natural_end)"
        ]
    );
    {
        let requests = script.requests.lock().unwrap();
        assert_eq!(requests[1].messages, requests[2].messages, "nothing was added to the conversation");
    }
    assert_eq!(jobs(&house).await[0].status, MailboxJobStatus::Accepted);
}

#[tokio::test]
async fn a_worker_resumes_a_run_that_waits() {
    let house = House::new();
    let script = answers([Err(limited(HOUR)), Err(limited(2 * HOUR)), Ok(text("There."))]);
    let clock = clock();
    let (asked, _) = send(&waiting(&house, &script, &clock), "go").await;
    let mailbox = house.store.mailbox();
    let next = async |now| mailbox.next_work(now, |_| false).await.unwrap();
    let before = next(HOUR).await;
    assert_eq!((before.next, before.wake_at), (None, Some(1000 + HOUR)));
    clock.0.store(1000 + HOUR, Ordering::SeqCst);
    let due = next(1000 + HOUR).await.next.expect("a job");
    let held = mailbox.claim_job(&due.job_id, "w", HOUR, HOUR).await.unwrap().unwrap();
    // A worker has its queue: it fails, and says when the next attempt may start.
    let worker = house.builder(&script).with_clock(clock.clone()).build().unwrap();
    let serve = async |job: &MailboxJob| {
        worker.run_job(job, Arc::new(VecEventSink::new()), UnknownPolicy::Ask).await.unwrap()
    };
    let failed = serve(&held).await;
    assert_eq!((failed.run_id, failed.retry_at), (asked.run_id, Some(1000 + 3 * HOUR)));
    let token = held.claim_token.as_deref().unwrap();
    let left = mailbox.nack(&held.job_id, token, 1000 + 3 * HOUR, "limit", HOUR).await.unwrap();
    assert_eq!(left.status, MailboxJobStatus::Queued);
    let held = mailbox.claim_job(&left.job_id, "w", 4 * HOUR, HOUR).await.unwrap().unwrap();
    assert_eq!(serve(&held).await.response, "There.");
    let content = house.store.messages(&"t".into()).await.unwrap();
    assert_eq!(content.iter().filter(|m| m.message.role == Role::User).count(), 1, "said once");
}

#[tokio::test]
async fn a_wait_is_cut_short_or_stopped_by_its_answer() {
    for (label, ended) in [("Try now", TerminationReason::NaturalEnd), ("Stop", TerminationReason::Cancelled)]
    {
        let house = House::new();
        let script = answers([Err(limited(HOUR)), Ok(text("There."))]);
        let runtime = waiting(&house, &script, &clock());
        let (result, _) = send(&runtime, "go").await;
        let id = result.waiting[0].id.clone();
        let yes = ToolCallResume { result: json!({"answer": label}), ..answer(ResumeDecisionAction::Resume) };
        runtime.decide(&id, yes, actor()).await.unwrap();
        let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
        assert_eq!(result.termination, ended, "{label}");
        assert!(jobs(&house).await[0].status.is_terminal(), "{label}");
    }
}

#[tokio::test]
async fn a_cancelled_or_failed_run_leaves_no_job_behind() {
    let house = House::new();
    let script = answers([Err(limited(HOUR)), Err(InferenceExecutionError::Unauthorized("no".into()))]);
    let clock = clock();
    let runtime = waiting(&house, &script, &clock);
    send(&runtime, "go").await;
    clock.0.store(2 * HOUR, Ordering::SeqCst);
    let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
    assert!(matches!(result.termination, TerminationReason::Error(_)), "{result:?}");
    script.answers.lock().unwrap().push_back(Err(limited(HOUR)));
    send(&runtime, "again").await;
    assert!(runtime.cancel_waiting(&"t".into(), Arc::new(VecEventSink::new())).await.unwrap());
    assert!(jobs(&house).await.iter().all(|job| job.status.is_terminal()));
}

#[tokio::test]
async fn a_short_wait_or_a_runtime_that_does_not_wait_fails() {
    for (wait, waits) in [(HOUR, false), (60_000, true)] {
        let house = House::new();
        let script = answers([Err(limited(wait))]);
        let no_retry = LlmRetryPolicy { max_retries: 0, ..LlmRetryPolicy::default() };
        let spec = AgentSpec::new("b").with_model("m").with_config::<RetryConfigKey>(no_retry).unwrap();
        let builder = house.builder(&script).with_clock(clock()).with_agent_spec(spec);
        let runtime = builder.with_waits_for_limits(waits).build().unwrap();
        let request = RunRequest::new("t", vec![Message::user("go")]).with_agent_id("b");
        let result = runtime.run(request, Arc::new(VecEventSink::new())).await.unwrap();
        assert!(matches!(result.termination, TerminationReason::Error(_)), "{result:?}");
        assert_eq!(result.retry_at, Some(1000 + wait));
        assert_eq!(jobs(&house).await, []);
    }
}

/// Sets what a skill sets: another temperature for the step.
struct Warm;
struct WarmHook;

#[async_trait]
impl PhaseHook for WarmHook {
    async fn run(&self, _: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        command.schedule_action::<SetInferenceOverride>(InferenceOverride {
            temperature: Some(0.5),
            ..InferenceOverride::default()
        })?;
        Ok(command)
    }
}

impl Plugin for Warm {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "warm" }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_phase_hook("warm", Phase::BeforeInference, WarmHook)
    }
}

#[tokio::test]
async fn every_request_of_a_step_has_what_plugins_set_for_it() {
    let house = House::new();
    let cut = StreamResult { has_incomplete_tool_calls: true, ..text("Half") };
    let script = answers([Ok(cut), Err(limited(HOUR)), Ok(text("Done."))]);
    let clock = clock();
    let build = || {
        let builder = house.builder(&script).with_clock(clock.clone()).with_waits_for_limits(true);
        builder.with_plugin("warm", Arc::new(Warm)).build().unwrap()
    };
    send(&build(), "go").await;
    clock.0.store(2 * HOUR, Ordering::SeqCst);
    let (result, _) = wake(&build(), UnknownPolicy::Ask).await;
    assert_eq!(result.response, "Done.");
    let requests = script.requests.lock().unwrap();
    let temperatures: Vec<_> = requests.iter().map(|request| request.overrides.temperature).collect();
    assert_eq!(temperatures, [Some(0.5); 3], "after a cut answer, and in another process");
}

fn used(tokens: i32) -> TokenUsage {
    TokenUsage { prompt_tokens: Some(tokens), ..TokenUsage::default() }
}

/// A question beside a conversation is answered from it, without tools, and leaves nothing in it.
#[tokio::test]
async fn a_question_beside_a_conversation_does_not_enter_it() {
    let house = House::new();
    let script = answers([Ok(text("Hello.")), Ok(text(" It is blue. ")), Ok(text(""))]);
    let runtime = house.runtime(&script);
    send(&runtime, "paint it").await;
    let stored = async || house.store.messages(&"t".into()).await.unwrap().len();
    let before = stored().await;
    assert_eq!(runtime.answer_beside(&"t".into(), "a", "which colour?").await.unwrap(), "It is blue.");
    let none = runtime.answer_beside(&"t".into(), "a", "and now?").await;
    assert!(none.is_err_and(|error| error.to_string().contains("no answer")));
    assert_eq!(stored().await, before);
    let requests = script.requests.lock().unwrap();
    let asked = requests[1].messages.iter().map(|message| message.text()).collect::<String>();
    assert!(requests[1].tools.is_empty());
    for part in ["User: paint it", "Agent: Hello.", "which colour?"] {
        assert!(asked.contains(part), "{asked}");
    }
}

#[tokio::test]
async fn a_run_is_charged_for_titles_and_background_agents() {
    let house = House::new();
    let priced = |words: &str, tokens| StreamResult { usage: Some(used(tokens)), ..text(words) };
    let script = answers([Ok(priced("Hello.", 1)), Ok(priced("A title", 20)), Ok(priced("Yes.", 300))]);
    let runtime = house.runtime(&script);
    let (first, _) = send(&runtime, "hi").await;
    assert_eq!(runtime.propose_title(&"t".into(), "a", None).await.unwrap().as_deref(), Some("A title"));
    let mut report = Message::user("[task 1] It ended.");
    let spent = ModelUsage { model: "other".into(), usage: used(4000) };
    report.metadata = Some(json!({"from_child": {"spent": [spent.clone()]}}));
    let request = RunRequest::new("t", vec![report]);
    let second = runtime.run(request, Arc::new(VecEventSink::new())).await.unwrap();
    let ledger = async |run: &RunId| house.store.run(run).await.unwrap().unwrap().spent;
    let own =
        |tokens| ModelUsage { model: "m".into(), usage: TokenUsage { total_tokens: None, ..used(tokens) } };
    let tokens = |spent: Vec<ModelUsage>| -> Vec<(String, Option<i32>)> {
        spent.into_iter().map(|spent| (spent.model, spent.usage.prompt_tokens)).collect()
    };
    assert_eq!(tokens(ledger(&first.run_id).await), tokens(vec![own(1)]));
    assert_eq!(tokens(ledger(&second.run_id).await), tokens(vec![spent, own(320)]));
    assert_eq!(second.usage.prompt_tokens, Some(4320));
    let tallies = house.store.tallies(None).await.unwrap();
    let counted: u64 = tallies.iter().filter(|tally| tally.name == "m").map(|tally| tally.input).sum();
    assert_eq!(counted, 321, "the statistics have the title too");
}

#[tokio::test]
async fn tasks_that_end_together_start_one_run() {
    let house = House::new();
    let script = answers([Ok(text("Hello.")), Ok(text("Both ended."))]);
    let runtime = house.runtime(&script);
    send(&runtime, "hi").await;
    let thread = aye_core::contract::ids::ThreadId::from("t");
    for task in 1..=2 {
        let mut report = Message::user(format!("[task {task}] It ended."));
        report.metadata = Some(json!({"from_child": {"task": task}}));
        runtime.enqueue(&thread, vec![report]).await.unwrap();
    }
    let start = |message| runtime.run_queued(message, Arc::new(VecEventSink::new()));
    let none = runtime.start_next_of(&thread, |message| !message.reports_task(), start).await.unwrap();
    assert!(none.is_none(), "both wait for another run");
    let ended = runtime.start_next(&thread, true, start).await.unwrap().expect("a run");
    assert_eq!(ended.response, "Both ended.");
    assert!(runtime.queued(&thread).await.unwrap().is_empty(), "the run read the other one, too");
}
