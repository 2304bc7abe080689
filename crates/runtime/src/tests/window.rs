//! Requests that fit the window, and summaries of the rest.

use super::*;
use crate::SettledSummaries;
use aye_core::context::{CompactionConfig, CompactionConfigKey, is_summary};
use aye_core::contract::inference::{StopReason, TokenUsage};
use aye_core::contract::message::Visibility;
use aye_core::contract::progress::INFERENCE_RETRY_ACTIVITY_TYPE;
use aye_core::contract::spec::ContextWindowPolicy;
use aye_core::contract::summary::{COMPACTED_ACTIVITY_TYPE, SummaryRecord};
use aye_core::contract::todo::{TodoItem, TodoStatus, Todos};
use aye_core::state::{KeyRegistration, KeyScope, StateKeyOptions};

/// Answers with a long text, so that the conversation grows by about this number of tokens.
fn long(nth: usize, tokens: usize) -> StreamResult {
    text(&format!("answer {nth} {}", "w".repeat(tokens * 4)))
}

fn small(window: usize) -> ContextWindowPolicy {
    ContextWindowPolicy {
        max_context_tokens: window,
        max_output_tokens: 500,
        min_recent_messages: 4,
        ..ContextWindowPolicy::default()
    }
}

struct Room {
    house: House,
    script: Arc<Script>,
    /// The model that writes summaries.
    writer: Arc<Script>,
    policy: Option<ContextWindowPolicy>,
    /// Whether there is a tool with a long description.
    is_wordy: bool,
    kept: Arc<Mutex<Vec<Artifact>>>,
}

impl Room {
    fn new(policy: ContextWindowPolicy, answers: impl IntoIterator<Item = StreamResult>) -> Self {
        Self {
            house: House::new(),
            script: Script::of(answers),
            writer: Script::of([]),
            policy: Some(policy),
            is_wordy: false,
            kept: Arc::default(),
        }
    }

    fn runtime(&self) -> AgentRuntime {
        let mut spec = AgentSpec::new("a")
            .with_model("m")
            .with_system_prompt("Be brief.")
            .with_config::<CompactionConfigKey>(CompactionConfig {
                summary_model: Some("s".into()),
                ..CompactionConfig::default()
            })
            .unwrap();
        spec.context_policy = self.policy.clone();
        let (writer, kept) = (Arc::clone(&self.writer), Arc::clone(&self.kept));
        let builder = self
            .house
            .builder(&self.script)
            .with_model("s", ModelEntry { provider: "writer".into(), model_name: "s".into() })
            .with_provider("writer", writer)
            .with_state_key(KeyRegistration::of::<Todos>(StateKeyOptions {
                scope: KeyScope::Thread,
                ..StateKeyOptions::default()
            }))
            .with_artifacts(Arc::new(move |artifact: Artifact| {
                let sentence = format!("Read /kept/{}.", artifact.call_id);
                kept.lock().unwrap().push(artifact);
                Box::pin(std::future::ready(Some(sentence)))
            }));
        let builder = if self.is_wordy { builder.with_tool("wordy", Arc::new(Wordy)) } else { builder };
        let runtime = builder.build().unwrap();
        runtime.set_agent(spec);
        runtime
    }

    fn writes(&self, summary: &str) {
        let usage = TokenUsage { total_tokens: Some(77), ..TokenUsage::default() };
        let result = StreamResult { usage: Some(usage), ..text(summary) };
        self.writer.answers.lock().unwrap().push_back(Ok(result));
    }

    /// The messages of a request to the agent's model.
    fn asked(&self, nth: usize) -> Arc<Vec<Arc<Message>>> {
        self.script.requests.lock().unwrap()[nth].messages.clone()
    }

    fn last(&self) -> InferenceRequest {
        self.script.requests.lock().unwrap().last().unwrap().clone()
    }

    /// Waits for the summary.
    async fn summary(&self) -> SummaryRecord {
        loop {
            if let Some(summary) = self.house.store.summary(&"t".into(), 0).await.unwrap() {
                return summary;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn words(messages: &[Arc<Message>]) -> Vec<String> {
    messages.iter().map(|m| m.text().chars().take(9).collect()).collect()
}

fn reported(events: &[AgentEvent], kind: &str) -> Vec<Value> {
    let of_kind = |event: &AgentEvent| match event {
        AgentEvent::ActivitySnapshot { activity_type, content, .. } if activity_type == kind => {
            Some(content.clone())
        }
        _ => None,
    };
    events.iter().filter_map(of_kind).collect()
}

#[tokio::test]
async fn old_messages_are_trimmed_and_requests_share_a_prefix_between_trims() {
    let room = Room::new(small(4000), (0..30).map(|n| long(n, 300)));
    let runtime = room.runtime();
    for n in 0..30 {
        send(&runtime, &format!("request {n}")).await;
    }
    let requests = room.script.requests.lock().unwrap().clone();
    let mut cuts = 0;
    for (n, pair) in requests.windows(2).enumerate() {
        assert_eq!(pair[0].system, pair[1].system);
        assert_eq!(pair[0].tools, pair[1].tools);
        assert!(pair[1].messages.iter().any(|m| m.text() == format!("request {}", n + 1)));
        let same = |(a, b): (&Arc<Message>, &Arc<Message>)| (a.role, &a.content) == (b.role, &b.content);
        cuts += usize::from(!pair[0].messages.iter().zip(pair[1].messages.iter()).all(same));
    }
    let last = &requests.last().unwrap().messages;
    assert!(last.len() < 25, "{:?}", words(last));
    assert!(last[0].text().ends_with("older messages of this conversation were left out here.]"));
    assert!((5..=15).contains(&cuts), "{cuts} of 29 requests had another prefix");
    assert_eq!(room.house.store.message_count(&"t".into()).await.unwrap(), 60, "nothing is lost");
    let report = runtime.context_report(Some(&"t".into()), "a", 0, &|_| false).await.unwrap();
    assert!(report.left_out > 30 && report.count == 60 && report.window == Some(4000), "{report:?}");
}

/// What `next_request` returns begins with the whole of the request before, and ends with its answer.
#[tokio::test]
async fn the_next_request_is_known_before_it_is_sent() {
    let room = Room::new(small(4000), (0..12).map(|n| long(n, 300)));
    let runtime = room.runtime();
    let thread: ThreadId = "t".into();
    assert_eq!(runtime.next_request(&thread).await.unwrap(), None, "there was none yet");
    for n in 0..12 {
        send(&runtime, &format!("request {n}")).await;
        let (sent, next) = (room.last(), runtime.next_request(&thread).await.unwrap().unwrap());
        let system: Vec<ContentBlock> =
            next.system.iter().map(|part| ContentBlock::text(part.text.clone())).collect();
        assert_eq!((system, &next.tools), (sent.system, &sent.tools));
        let texts = |messages: &[Arc<Message>]| messages.iter().map(|m| m.text()).collect::<Vec<_>>();
        let (before, known) = (texts(&sent.messages), texts(&next.messages));
        assert_eq!(known[..before.len()], before, "turn {n}");
        assert_eq!(known.len(), before.len() + 1, "turn {n}");
        assert!(known.last().unwrap().starts_with(&format!("answer {n}")));
    }
    assert!(room.last().messages.len() < 24, "some were left out");
    // Another process reads the same.
    let other = room.runtime().next_request(&thread).await.unwrap().unwrap();
    let own = runtime.next_request(&thread).await.unwrap().unwrap();
    assert_eq!((words(&other.messages), other.system), (words(&own.messages), own.system));
}

#[tokio::test]
async fn a_summary_is_made_in_parallel_and_replaces_old_messages() {
    let policy = ContextWindowPolicy { autocompact_threshold: Some(3000), ..small(20_000) };
    let room = Room::new(policy, (0..20).map(|n| long(n, 600)));
    room.writes("They agreed on </conversation-summary> tea.");
    let runtime = room.runtime();
    for n in 0..6 {
        let (_, events) = send(&runtime, &format!("request {n}")).await;
        assert_eq!(reported(&events, COMPACTED_ACTIVITY_TYPE), [] as [Value; 0]);
    }
    let summary = room.summary().await;
    assert_eq!(summary.text, "They agreed on  tea.");
    assert!(summary.after_tokens < 150 && summary.before_tokens > 2400, "{summary:?}");
    let asked = room.writer.requests.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "once, although each request was over the threshold");
    assert!(asked[0].messages[0].text().contains("User: request 0\n\nAgent: answer 0 w"));
    assert!(asked[0].tools.is_empty());

    let before = room.last();
    let (result, events) = send(&runtime, "request 6").await;
    let request = room.last();
    assert_eq!(request.system, before.system, "instructions keep their bytes");
    assert!(is_summary(&request.messages[0]) && request.messages[0].text().contains("agreed on  tea."));
    assert_eq!(request.messages.len() as u64, 1 + 13 - summary.upto_seq);
    let compacted = reported(&events, COMPACTED_ACTIVITY_TYPE);
    assert_eq!(compacted.len(), 1);
    assert!(compacted[0]["text"].as_str().unwrap().starts_with("compacted "), "{compacted:?}");
    assert!(result.response.starts_with("answer 6"));
    assert_eq!(room.house.store.message_count(&"t".into()).await.unwrap(), 14, "the messages are kept");

    // Another process knows the summary too, and builds on it.
    let other = room.runtime();
    let (_, events) = send(&other, "request 7").await;
    assert_eq!(reported(&events, COMPACTED_ACTIVITY_TYPE), [] as [Value; 0], "it is reported once");
    assert!(is_summary(&room.last().messages[0]));
    assert_eq!(
        room.last().messages[..3].iter().map(|message| message.text()).collect::<Vec<_>>(),
        request.messages[..3].iter().map(|message| message.text()).collect::<Vec<_>>()
    );
    room.writes("Tea, and then coffee.");
    let second = other.compact(&"t".into(), "a", Some("the drinks".into())).await.unwrap();
    assert!(second.upto_seq > summary.upto_seq);
    let asked = room.writer.requests.lock().unwrap().last().unwrap().messages[0].text();
    assert!(asked.contains("<summary-so-far>\nThey agreed on  tea.\n"), "{asked}");
    assert!(
        !asked.contains("request 0") && asked.ends_with("special attention to this: the drinks"),
        "{asked}"
    );
    let (_, events) = send(&runtime, "request 8").await;
    assert_eq!(
        reported(&events, COMPACTED_ACTIVITY_TYPE),
        [] as [Value; 0],
        "the process that made it reports it"
    );
    assert!(room.last().messages[0].text().contains("then coffee"), "the first process starts it");
    assert_eq!(other.settle(&"t".into()).await.summary, Some(second));
    assert_eq!(other.settle(&"t".into()).await, SettledSummaries::default());
    assert_eq!(room.last().messages.iter().filter(|m| is_summary(m)).count(), 1);
}

#[tokio::test]
async fn a_summarys_cost_counts_towards_the_run() {
    let policy = ContextWindowPolicy { autocompact_threshold: Some(1500), ..small(20_000) };
    let room = Room::new(policy, [long(0, 1500), long(1, 1500), calls(&[("c1", "free")]), text("Done.")]);
    let runtime = room.runtime();
    send(&runtime, "one").await;
    let mut paid = send(&runtime, "two").await.0.usage.total();
    room.writes("It was long.");
    // The summary costs 77. The run that started it may be over when it is written.
    let request = RunRequest::new("t", vec![Message::user("three")]);
    let (result, _) = tokio::join!(runtime.run(request, Arc::new(VecEventSink::new())), room.summary());
    paid += result.unwrap().usage.total();
    runtime.settle(&"t".into()).await;
    paid += send(&runtime, "four").await.0.usage.total();
    assert_eq!(paid, 77, "one run pays for it, and one only");
}

#[tokio::test]
async fn messages_after_the_requested_range_are_not_read() {
    let room = Room::new(small(20_000), [text("one"), text("two"), text("three")]);
    let runtime = room.runtime();
    for message in ["1", "2", "3"] {
        send(&runtime, message).await;
    }
    for (range, want) in [(0..6, 6), (0..3, 3), (1..4, 3), (2..2, 0), (3..9, 3)] {
        let thread = ThreadId::from("t");
        let found = crate::compact::read(&room.house.store, &thread, range.clone(), 100_000);
        let found = tokio::time::timeout(Duration::from_secs(30), found).await.expect("ends").unwrap();
        let all = ["1", "one", "2", "two", "3", "three"];
        let written: Vec<String> = found.iter().map(Message::text).collect();
        assert_eq!(written, all[range.start..range.start + want], "{range:?}");
    }
}

#[tokio::test]
async fn a_failing_summariser_ends_nothing_and_pauses() {
    let policy = ContextWindowPolicy { autocompact_threshold: Some(2000), ..small(20_000) };
    let room = Room::new(policy, (0..20).map(|n| long(n, 600)));
    for _ in 0..20 {
        let error = InferenceExecutionError::Unauthorized("no".into());
        room.writer.answers.lock().unwrap().push_back(Err(error));
    }
    let runtime = room.runtime();
    for n in 0..8 {
        let (result, _) = send(&runtime, &format!("request {n}")).await;
        assert_eq!(result.termination, TerminationReason::NaturalEnd);
        runtime.settle(&"t".into()).await;
    }
    let tries = room.writer.requests.lock().unwrap().len();
    assert!((1..=3).contains(&tries), "{tries}");
    assert_eq!(room.last().messages.len(), 15, "nothing is omitted");
    let error = runtime.compact(&"t".into(), "a", None).await.unwrap_err();
    assert_eq!(error.to_string(), "the model could not write a summary: no");
    // A summary as long as the messages it replaces is discarded.
    room.writer.answers.lock().unwrap().clear();
    room.writes(&"s".repeat(40_000));
    assert!(matches!(runtime.compact(&"t".into(), "a", None).await, Err(CompactError::NoGain(_))));
    assert_eq!(room.house.store.summary(&"t".into(), 0).await.unwrap(), None);
}

#[tokio::test]
async fn a_request_that_is_too_long_is_shortened_and_retried_once() {
    let mut room = Room::new(small(100_000), (0..6).map(|n| long(n, 600)));
    room.policy = Some(small(100_000));
    let runtime = room.runtime();
    for n in 0..6 {
        send(&runtime, &format!("request {n}")).await;
    }
    room.writes("In short: nothing.");
    let overflow = || Err(InferenceExecutionError::ContextOverflow("too long".into()));
    room.script.answers.lock().unwrap().extend([overflow(), Ok(text("Now it fits."))]);
    let (result, events) = send(&runtime, "and now?").await;
    assert_eq!(
        (result.response.as_str(), result.termination),
        ("Now it fits.", TerminationReason::NaturalEnd)
    );
    let request = room.last().messages;
    assert!(is_summary(&request[0]), "{:?}", words(&request));
    assert!(request.len() < 6 && request.last().unwrap().text() == "and now?");
    assert_eq!(reported(&events, INFERENCE_RETRY_ACTIVITY_TYPE)[0]["reset"], true);
    assert_eq!(reported(&events, COMPACTED_ACTIVITY_TYPE).len(), 1);

    // The second overflow is an error, and the message is kept.
    room.script.answers.lock().unwrap().extend([overflow(), overflow(), Ok(text("no third try"))]);
    let (result, _) = send(&runtime, "once more").await;
    assert_eq!(result.error_code.as_deref(), Some("context_overflow"));
    let TerminationReason::Error(why) = result.termination else { panic!("{:?}", result.termination) };
    assert!(why.starts_with("too long; it is still too long after older messages were left out"), "{why}");
    assert_eq!(room.script.answers.lock().unwrap().len(), 1);
    // No state remains: the next message is tried normally.
    assert_eq!(send(&runtime, "and again").await.0.response, "no third try");
}

/// Some providers refuse a request that is too long with words that say nothing of its length.
#[tokio::test]
async fn a_refusal_of_the_largest_request_so_far_is_taken_for_its_length_once() {
    let room = Room::new(small(8000), (0..7).map(|n| long(n, 600)));
    let runtime = room.runtime();
    let rejected = || Err(InferenceExecutionError::Rejected("p rejected the request (400)".into()));
    let send_refused = async |why: &str, answers: Vec<Result<StreamResult, InferenceExecutionError>>| {
        let left = {
            let mut script = room.script.answers.lock().unwrap();
            let later = std::mem::take(&mut *script);
            script.extend(answers);
            later
        };
        let (result, events) = send(&runtime, why).await;
        assert!(room.script.answers.lock().unwrap().is_empty(), "{why}: all answers were asked for");
        room.script.answers.lock().unwrap().extend(left);
        (result, reported(&events, INFERENCE_RETRY_ACTIVITY_TYPE).len())
    };
    // A short request is not refused for its length.
    let (result, retries) = send_refused("too early", vec![rejected()]).await;
    assert_eq!((result.error_code.as_deref(), retries), (Some("invalid_request"), 0));
    for n in 0..7 {
        send(&runtime, &format!("request {n}")).await;
    }
    let before = room.last().messages.len();
    // Its length was not the reason: nothing is said about it, and the next request is as long as before.
    room.writer.answers.lock().unwrap().push_back(rejected());
    let (result, retries) = send_refused("refused", vec![rejected(), rejected()]).await;
    assert_eq!((result.error_code.as_deref(), retries), (Some("invalid_request"), 1));
    let TerminationReason::Error(why) = result.termination else { panic!("{:?}", result.termination) };
    assert_eq!(why, "p rejected the request (400)");
    let (result, retries) = send_refused("again", vec![Ok(text("fine"))]).await;
    assert_eq!((result.response.as_str(), retries), ("fine", 0));
    assert!(room.last().messages.len() > before, "{before}: {:?}", words(&room.last().messages));
    // It was.
    room.writes("In short: nothing.");
    let (result, retries) = send_refused("once more", vec![rejected(), Ok(text("Now it fits."))]).await;
    assert_eq!((result.response.as_str(), retries), ("Now it fits.", 1));
    assert!(is_summary(&room.last().messages[0]), "{:?}", words(&room.last().messages));
    // No larger than what was answered.
    let (_, retries) = send_refused("a last time", vec![rejected()]).await;
    assert_eq!(retries, 0);
}

fn cut(written: &str) -> StreamResult {
    StreamResult {
        has_incomplete_tool_calls: true,
        stop_reason: Some(StopReason::MaxTokens),
        ..text(written)
    }
}

#[tokio::test]
async fn an_answer_that_lost_a_call_is_continued_at_most_twice_per_run() {
    let room = Room::new(small(100_000), [cut("I write"), cut("and write"), cut("and write again")]);
    let runtime = room.runtime();
    let (result, events) = send(&runtime, "write it").await;
    assert_eq!(result.response, "and write again");
    let TerminationReason::Stopped(why) = result.termination else { panic!("{:?}", result.termination) };
    assert_eq!(why.code, "length", "it was truncated once too often");
    assert_eq!(result.stop_reason, Some(StopReason::MaxTokens));
    let request = room.last().messages;
    assert_eq!(words(&request), ["write it", "I write", "Your last", "and write", "Your last"]);
    assert!(request[2].visibility == Visibility::Internal);
    let notices = reported(&events, aye_core::contract::activity::NOTICE_ACTIVITY_TYPE);
    assert_eq!(notices.len(), 3);
    assert_eq!(notices[2]["level"], "warning");
    assert_eq!(names(&events).iter().filter(|name| *name == "step_start").count(), 1);

    // Another run may do so again, even if other calls of the answer were complete: those run first.
    let whole = StreamResult { has_incomplete_tool_calls: true, ..calls(&[("c1", "free")]) };
    room.script.answers.lock().unwrap().extend([Ok(whole), Ok(text("Done."))]);
    let (result, _) = send(&runtime, "and this").await;
    assert_eq!(result.response, "Done.");
    let request = room.last().messages;
    let tail = &request[request.len() - 3..];
    assert_eq!((tail[0].tool_calls.len(), tail[1].role), (1, Role::Tool));
    assert!(tail[2].text().starts_with("Your last answer was cut off"));
    assert_eq!(room.house.executed(), 1);
}

#[tokio::test]
async fn a_large_result_is_whole_until_the_window_is_full() {
    let answers =
        [calls(&[("c1", "big")]), text("I see."), long(1, 3200), long(2, 3200), long(3, 3200), text("Good.")];
    let room = Room::new(small(12_000), answers);
    struct Big;
    #[async_trait]
    impl Tool for Big {
        fn descriptor(&self) -> ToolDescriptor {
            ToolDescriptor::new("big", "big", "big")
        }

        async fn execute(&self, _: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
            Ok(ToolResult::text("big", "a line\n".repeat(3000)).into())
        }
    }
    let runtime = room.runtime();
    runtime.set_tools("test", vec![Arc::new(Big)]);
    send(&runtime, "look").await;
    assert_eq!(
        room.last().messages[2].text().len(),
        21_000 - usize::from(room.last().messages[2].text().len() < 21_000)
    );
    send(&runtime, "and?").await;
    send(&runtime, "so?").await;
    assert_eq!(room.last().messages[2].text(), room.asked(1)[2].text(), "as long as it fits");
    send(&runtime, "then?").await;
    let short = room.last().messages[2].text();
    assert!(short.chars().count() <= 1600 && short.lines().count() <= 24, "{short}");
    assert!(short.contains("Read /kept/c1.]\na line\n") && short.ends_with("a line"), "{short}");
    let kept = room.kept.lock().unwrap().clone();
    assert_eq!((kept.len(), kept[0].text.len() >= 20_999), (1, true));
    // The conversation itself is unchanged.
    let stored = room.house.store.messages(&"t".into()).await.unwrap();
    assert!(stored[2].message.text().len() >= 20_999);
    let again = room.asked(4)[2].clone();
    send(&runtime, "once more").await;
    assert_eq!(room.last().messages[2].text(), again.text(), "the same bytes each time");
}

#[tokio::test]
async fn nothing_is_trimmed_for_an_unknown_window() {
    let mut room = Room::new(small(1), (0..9).map(|n| long(n, 9000)));
    room.policy = None;
    let runtime = room.runtime();
    for n in 0..9 {
        send(&runtime, &format!("request {n}")).await;
    }
    assert_eq!(room.last().messages.len(), 17);
    assert!(room.writer.requests.lock().unwrap().is_empty());
}

/// A run reuses the messages loaded by the previous run, unless the conversation has changed.
#[tokio::test]
async fn a_run_reads_only_messages_since_the_last_one() {
    let room = Room::new(small(20_000), (0..40).map(|n| text(&format!("answer {n}"))));
    let id = ThreadId::from("t");
    let (runtime, other) = (room.runtime(), room.runtime());
    for n in 0..3 {
        send(&runtime, &format!("request {n}")).await;
    }
    // Messages before the last request are not read again.
    let bodies =
        "CREATE TABLE kept AS SELECT seq, body FROM message; UPDATE message SET body = 'x' WHERE seq < 5";
    room.house.store.tamper(bodies).await;
    send(&runtime, "request 3").await;
    assert_eq!(room.last().messages.len(), 7);
    assert_eq!(room.last().messages[0].text(), "request 0");
    let restored =
        "UPDATE message SET body = (SELECT body FROM kept WHERE kept.seq = message.seq) WHERE seq < 5";
    room.house.store.tamper(restored).await;
    // Another process adds a message.
    send(&other, "from elsewhere").await;
    send(&runtime, "request 4").await;
    let written: Vec<_> = room.last().messages.iter().map(|message| message.text()).collect();
    assert_eq!(written[8..], ["from elsewhere", "answer 4", "request 4"]);
    // Another conversation replaced this one.
    let replaced =
        "UPDATE message SET body = json_set(body, '$.id', 'm' || seq, '$.content[0].text', 'new ' || seq)";
    room.house.store.tamper(replaced).await;
    send(&runtime, "request 5").await;
    let written: Vec<_> = room.last().messages.iter().map(|message| message.text()).collect();
    let all = room.house.store.messages(&id).await.unwrap();
    let all: Vec<_> = all.iter().map(|stored| stored.message.text()).collect();
    assert!(all[0] == "new 1" && all.len() == 14);
    assert_eq!(written, all[..13]);
}

/// The request equals the one with everything loaded, although only the end is read.
#[tokio::test]
async fn only_the_end_of_a_long_conversation_is_loaded() {
    let room = Room::new(small(4000), (0..400).map(|n| long(n, 20)));
    let id = ThreadId::from("t");
    let runtime = room.runtime();
    room.script.answers.lock().unwrap().push_front(Ok(calls(&[("c1", "free")])));
    for n in 0..200 {
        send(&runtime, &format!("request {n} {}", "w".repeat(80))).await;
    }
    // The trim position of an earlier process is unknown to the next one.
    let runtime = room.runtime();
    let all: Vec<_> = room.house.store.messages(&id).await.unwrap().into_iter().map(|m| m.message).collect();
    assert!(all.len() > 400);
    room.house.store.tamper("UPDATE message SET body = 'x' WHERE seq < 100").await;
    room.script.answers.lock().unwrap().push_front(Ok(calls(&[("c1", "free"), ("fresh", "free")])));
    send(&runtime, "and now").await;
    let requests = room.script.requests.lock().unwrap().len();
    let asked = room.asked(requests - 2);
    let mut whole = all.clone();
    whole.push(Message::clone(asked.last().unwrap()));
    let whole = aye_core::context::History::from(whole);
    let sizes = aye_core::context::Sizes::of(&whole);
    // Find the room beside instructions and tools that gives the same trim position.
    let fits = (1..400).rev().map(|tens| {
        let limits = aye_core::context::FitLimits { room: 10 * tens, recent: 4 };
        aye_core::context::fit(&sizes, 0, aye_core::context::Marks::default(), limits)
    });
    let sent = |fit: &aye_core::context::Fit| whole.len() - fit.marks.cut + fit.pinned.len() + 1;
    let fit = fits.into_iter().find(|fit| sent(fit) == asked.len()).unwrap();
    let wanted = aye_core::context::assemble(&whole, &sizes, &fit, None, &[], |_| None);
    assert_eq!(words(&asked), words(&wanted));
    assert_eq!(asked[0].text(), wanted[0].text(), "it counts omitted text");
    assert!(fit.left_out > 250, "{fit:?}");
    let of_run = room.last().messages;
    let ids: Vec<_> = of_run.iter().flat_map(|m| m.tool_calls.iter().map(|call| call.id.as_str())).collect();
    assert!(ids.len() == 2 && ids[0] != "c1" && ids[1] == "fresh", "an old id was reused: {ids:?}");
    let report = runtime.context_report(Some(&id), "a", 0, &|_| false).await.unwrap();
    assert!(report.count == whole.len() + 4 && report.left_out > 250, "{report:?}");
}

/// Messages that were never loaded are summarised from the store.
#[tokio::test]
async fn messages_that_are_not_loaded_are_still_summarised() {
    let mut room = Room::new(small(4000), (0..100).map(|n| long(n, 100)));
    let runtime = room.runtime();
    for n in 0..60 {
        send(&runtime, &format!("request {n}")).await;
    }
    room.policy = Some(ContextWindowPolicy { autocompact_threshold: Some(1000), ..small(4000) });
    room.writes("They talked.");
    let runtime = room.runtime();
    send(&runtime, "and now").await;
    let summary = room.summary().await;
    let asked = room.writer.requests.lock().unwrap()[0].messages[0].text();
    assert!(asked.contains("request 0\n") && !asked.contains("and now"), "{asked}");
    let stored = room.house.store.messages(&"t".into()).await.unwrap();
    assert_eq!(stored[summary.upto_seq as usize - 1].message.id, summary.upto);
    assert!((4..60).contains(&summary.upto_seq) && summary.messages == summary.upto_seq, "{summary:?}");
}

#[tokio::test]
async fn a_message_larger_than_the_window_is_refused_before_storing() {
    let room = Room::new(small(4000), [text("Yes."), text("Again.")]);
    let runtime = room.runtime();
    let asks = |tokens: usize| RunRequest::new("t", vec![Message::user("w".repeat(tokens * 4))]);
    let refused = runtime.run(asks(4000), Arc::new(VecEventSink::new())).await.unwrap_err();
    let why = "the message is about 4k tokens, and m takes 3.3k at once: nothing was sent; shorten it, put it into a \
               file and name its path, or choose a model with a larger window";
    assert_eq!(refused.to_string(), why);
    let refused = runtime.enqueue(&"t".into(), asks(4000).messages).await.unwrap_err();
    assert_eq!(refused.to_string(), why);
    assert!(room.house.store.thread(&"t".into()).await.unwrap().is_none(), "nothing was stored");
    runtime.run(asks(3000), Arc::new(VecEventSink::new())).await.unwrap();
    // Messages visible only to the user are in no request.
    let mut own = asks(4000);
    own.messages[0].visibility = Visibility::Person;
    runtime.fits(&own).unwrap();
}

/// A tool with a long description.
struct Wordy;

#[async_trait]
impl Tool for Wordy {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("wordy", "Wordy", "d".repeat(4000))
    }

    async fn execute(&self, _: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::text("wordy", "done").into())
    }
}

#[tokio::test]
async fn tools_reduce_the_room_for_a_message() {
    let asks = || RunRequest::new("t", vec![Message::user("w".repeat(3000 * 4))]);
    let mut room = Room::new(small(4000), [text("Yes.")]);
    room.is_wordy = true;
    let refused = room.runtime().run(asks(), Arc::new(VecEventSink::new())).await.unwrap_err();
    assert!(refused.to_string().starts_with("the message is about 3k tokens, and m takes 2.3k"), "{refused}");
    // Tools of others may be deferred: only a request shows their size.
    let room = Room::new(small(4000), [text("Yes.")]);
    let runtime = room.runtime();
    runtime.set_tools("server", vec![Arc::new(Wordy)]);
    runtime.fits(&asks()).unwrap();
    send(&runtime, "hello").await;
    let refused = runtime.fits(&asks()).unwrap_err();
    assert!(refused.to_string().contains("m takes 2.3k"), "{refused}");
}

#[tokio::test]
async fn a_message_is_refused_when_the_system_prompt_fills_the_window() {
    // "Be brief." alone is larger than this.
    let room = Room::new(small(1), [text("Yes.")]);
    let asks = RunRequest::new("t", vec![Message::user("Hello.".repeat(10))]);
    let refused = room.runtime().run(asks, Arc::new(VecEventSink::new())).await.unwrap_err();
    assert!(matches!(refused, crate::RuntimeError::TooLarge { window: 0, .. }), "{refused}");
}

#[tokio::test]
async fn a_conversation_far_beyond_the_window_is_summarised_in_parts() {
    let mut room = Room::new(small(200_000), (0..12).map(|n| long(n, 2000)));
    let runtime = room.runtime();
    for n in 0..12 {
        send(&runtime, &format!("request {n}")).await;
    }
    // A message of its own that does not fit any request to a smaller model.
    room.script
        .answers
        .lock()
        .unwrap()
        .extend(["Read.", "And this.", "Go on."].map(|written| Ok(text(written))));
    send(&runtime, &format!("FIRST {}", "w".repeat(80_000))).await;
    send(&runtime, "and this").await;
    room.policy = Some(small(10_000));
    let runtime = room.runtime();
    // The first attempt is larger than the writer's window.
    let overflow = InferenceExecutionError::ContextOverflow("too long".into());
    room.writer.answers.lock().unwrap().push_back(Err(overflow));
    for _ in 0..20 {
        room.writes("They went on.");
    }
    let summary = runtime.compact(&"t".into(), "a", Some("the names".into())).await.unwrap();
    assert_eq!((summary.upto_seq, summary.messages), (26, 26), "all but the two newest");
    assert!(summary.before_tokens > 40_000 && summary.after_tokens < 500, "{summary:?}");
    let asked: Vec<String> =
        room.writer.requests.lock().unwrap().iter().map(|request| request.messages[0].text()).collect();
    assert!(asked.len() > 4, "{}", asked.len());
    assert!(asked[1].len() < asked[0].len());
    for later in &asked[2..] {
        assert!(later.contains("<summary-so-far>\nThey went on.") && later.len() < 40_000, "{}", later.len());
    }
    assert!(asked.iter().all(|asked| asked.ends_with("Pay special attention to this: the names")));
    send(&runtime, "go on").await;
    let request = room.last().messages;
    assert!(is_summary(&request[0]) && request.len() == 4, "{:?}", words(&request));
}

/// A tool that writes a plan, one that changes a file, and one that prints a long log.
struct Works(&'static str);

#[async_trait]
impl Tool for Works {
    fn descriptor(&self) -> ToolDescriptor {
        let class = if self.0 == "change" { ToolClass::Verifiable } else { ToolClass::Pure };
        ToolDescriptor::new(self.0, self.0, "works").with_class(class).with_primary_argument("id")
    }

    async fn execute(&self, _: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let item = |content: &str, status| TodoItem { content: content.into(), status, active_form: None };
        let text = match self.0 {
            "log" => "a line of the log\n".repeat(2999) + "assertion failed: MARKER",
            _ => "fine".to_owned(),
        };
        let mut command = StateCommand::new();
        if self.0 == "plan" {
            command.update::<Todos>(vec![
                item("look", TodoStatus::Completed),
                item("build the parser", TodoStatus::Pending),
            ]);
        }
        Ok(ToolOutput::with_command(ToolResult::text(self.0, text), command))
    }
}

#[tokio::test]
async fn what_matters_survives_two_compactions() {
    let works = calls(&[("src/a.rs", "change"), ("c2", "plan"), ("c3", "log")]);
    let answers = [works, text("I see.")].into_iter().chain((0..12).map(|n| long(n, 2500)));
    let room = Room::new(small(20_000), answers);
    let start = || {
        let runtime = room.runtime();
        runtime.set_tools("test", ["change", "plan", "log"].map(|name| Arc::new(Works(name)) as _).to_vec());
        runtime
    };
    let runtime = start();
    send(&runtime, "Make it work, and never touch vendor/.").await;
    let short = |request: &InferenceRequest| -> Vec<String> {
        request.messages.iter().map(|message| message.text().chars().take(2000).collect()).collect()
    };
    for (summary, marker) in
        [("The log says MARKER.", "assertion failed: MARKER"), ("Twice.", "says MARKER.")]
    {
        for n in 0..4 {
            send(&runtime, &format!("go on {n}")).await;
        }
        room.writes(summary);
        runtime.compact(&"t".into(), "a", None).await.unwrap();
        let read = room.writer.requests.lock().unwrap().last().unwrap().messages[0].text();
        assert!(read.contains(marker), "{read}");
        // Another process resumes the conversation.
        let runtime = start();
        send(&runtime, "and now?").await;
        let sent = room.last().messages;
        assert!(is_summary(&sent[0]) && sent[0].text().contains(summary), "{}", sent[0].text());
        let all: Vec<String> = sent.iter().map(|message| message.text()).collect();
        let times = |what: &str| all.iter().filter(|text| text.contains(what)).count();
        for what in
            ["never touch vendor/.", "- [x] look\n- [ ] build the parser", "in this conversation: src/a.rs"]
        {
            assert_eq!(times(what), 1, "{what}: {all:#?}");
        }
        let before = room.last();
        send(&runtime, "and then?").await;
        let after = room.last();
        assert_eq!(short(&after)[..before.messages.len()], short(&before), "it only grows");
    }
}
