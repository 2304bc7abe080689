use serde_json::{Value, json};

use super::*;
use crate::host::OpenedThread;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::record::{StoredMessage, ThreadRecord};
use aye_core::contract::tool::ToolResult;

fn fold(events: &[E]) -> Transcript {
    let mut transcript = Transcript::default();
    transcript.push_user_message("hello", Vec::new());
    for (i, event) in events.iter().enumerate() {
        transcript.apply(Moment(i as u64 * 10), event);
    }
    transcript
}

fn text(delta: &str) -> E {
    E::TextDelta { delta: delta.into() }
}

fn call(id: &str, command: &str) -> [E; 2] {
    [
        E::ToolCallStart { id: id.into(), name: "Bash".into() },
        E::ToolCallReady { id: id.into(), name: "Bash".into(), arguments: json!({"command": command}) },
    ]
}

fn done(id: &str, result: ToolResult, outcome: ToolCallOutcome) -> E {
    E::ToolCallDone { id: id.into(), message_id: "m".into(), result, outcome }
}

fn complete() -> E {
    let usage = TokenUsage { prompt_tokens: Some(10), completion_tokens: Some(5), ..TokenUsage::default() };
    E::InferenceComplete { model: "m".into(), usage: Some(usage), duration_ms: 1, stop_reason: None }
}

fn finish(termination: TerminationReason) -> E {
    E::RunFinish { thread_id: "t".into(), run_id: "r".into(), result: None, termination }
}

/// An error of the provider comes with what helps against it; others do not.
#[test]
fn errors_carry_their_remedy() {
    let noted = |code: Option<&str>| {
        let error = E::Error { message: "it says no".into(), code: code.map(Into::into) };
        match fold(&[error]).entries().last().map(|entry| entry.kind.clone()) {
            Some(EntryKind::Notice { level: Level::Error, text }) => text,
            other => panic!("{other:?}"),
        }
    };
    assert!(noted(Some("unauthorized")).starts_with("it says no\n/login"));
    let long = noted(Some("context_overflow"));
    assert!(long.contains("/compact") && long.contains("/rewind"), "{long}");
    assert!(noted(Some("rate_limited")).contains("/model"));
    assert_eq!([noted(None), noted(Some("plugin"))], ["it says no"; 2]);
}

fn stored(messages: Vec<Message>) -> OpenedThread {
    let messages = messages.into_iter().enumerate().map(|(i, message)| StoredMessage {
        seq: i as u64 + 1,
        run_id: RunId::from("r"),
        created_at: 0,
        message,
    });
    OpenedThread {
        thread: ThreadRecord {
            id: ThreadId::from("t"),
            title: String::new(),
            cwd: "/tmp".into(),
            created_at: 0,
            updated_at: 0,
        },
        messages: messages.collect(),
        run: None,
        earlier: None,
        waiting: Vec::new(),
        interrupted: Vec::new(),
        driver: crate::host::ThreadOwner::Nobody,
        queued: Vec::new(),
        children: Vec::new(),
        commands: Vec::new(),
        summaries: Vec::new(),
    }
}

/// The entries without times and counters.
fn picture(transcript: &Transcript) -> Vec<EntryKind> {
    let kinds = transcript.entries().iter().map(|entry| entry.kind.clone());
    kinds
        .map(|kind| match kind {
            EntryKind::Tool(tool) => EntryKind::Tool(Box::new(ToolEntry {
                started: None,
                elapsed: None,
                tail: Tail::default(),
                progress: None,
                ..*tool
            })),
            other => other,
        })
        .collect()
}

#[test]
fn a_long_paste_is_a_mark_in_a_stored_conversation_too() {
    let message = Message::user("look: 1\n2\n3").shown_as("look: [paste 1: 3 lines]");
    let marked = serde_json::to_string(&message).unwrap();
    let old = serde_json::to_string(&Message::user("look: 1\n2\n3")).unwrap();
    let read = |text: &str| serde_json::from_str::<Message>(text).unwrap();
    assert_eq!(read(&marked).text(), "look: 1\n2\n3", "the model reads all of it");
    let entries = |message: Message| picture(&Transcript::from_thread(&stored(vec![message])));
    let user = |shown: Option<&str>| EntryKind::User {
        text: "look: 1\n2\n3".into(),
        shown: shown.map(str::to_owned),
        images: Vec::new(),
    };
    assert_eq!(entries(read(&marked)), [user(Some("look: [paste 1: 3 lines]"))]);
    assert_eq!(entries(read(&old)), [user(None)]);
}

#[test]
fn live_and_stored_conversations_look_the_same() {
    let failed = ToolResult::error("Bash", "no such file");
    let declined = ToolResult::error_with_code("Bash", "declined", "the person declined");
    let mut events = vec![E::StepStart { message_id: "m".into() }];
    events.push(E::ReasoningDelta { delta: "hm".into() });
    events.extend([text("I will "), text("look.")]);
    for (id, command) in [("a", "ls"), ("b", "cat x"), ("c", "rm y")] {
        events.extend(call(id, command));
    }
    events.push(complete());
    events.push(E::ToolCallStreamDelta { id: "a".into(), name: "Bash".into(), delta: "src\n".into() });
    events.push(done("a", ToolResult::text("Bash", "src"), ToolCallOutcome::Succeeded));
    events.push(done("b", failed.clone(), ToolCallOutcome::Failed));
    events.push(done("c", declined.clone(), ToolCallOutcome::Cancelled));
    events.extend([
        E::StepEnd,
        E::StepStart { message_id: "n".into() },
        text("Done."),
        complete(),
        E::StepEnd,
    ]);
    events.push(finish(TerminationReason::NaturalEnd));
    let live = fold(&events);

    let result = |id: &str, result: &ToolResult, outcome: &str| Message {
        metadata: Some(json!({"tool_result": result.to_json(), "outcome": outcome})),
        ..Message::tool(id, result.model_text())
    };
    let usage = json!({"model": "m", "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    let thinking = ContentBlock::Thinking { thinking: "hm".into(), signature: None };
    let calls = [("a", "ls"), ("b", "cat x"), ("c", "rm y")]
        .map(|(id, command)| ToolCall::new(id, "Bash", json!({"command": command})));
    let rebuilt = Transcript::from_thread(&stored(vec![
        Message::user("hello"),
        Message {
            metadata: Some(usage.clone()),
            ..Message::assistant_with(vec![thinking, ContentBlock::text("I will look.")], calls.to_vec())
        },
        result("a", &ToolResult::text("Bash", "src"), "succeeded"),
        result("b", &failed, "failed"),
        result("c", &declined, "cancelled"),
        Message { metadata: Some(usage), ..Message::assistant("Done.") },
    ]));
    assert_eq!(picture(&live), picture(&rebuilt));
    assert_eq!(live.usage(), rebuilt.usage());
    assert_eq!(live.spent(), rebuilt.spent());
    assert_eq!(live.context_tokens(), 15);
    assert_eq!(live.settled(), live.entries().len());
    assert_eq!(rebuilt.settled(), rebuilt.entries().len());
}

/// The end of a background task is a notice: no user wrote it.
#[test]
fn the_end_of_a_task_is_a_notice() {
    let lines: Vec<String> = (1..=9).map(|n| format!("line {n}")).collect();
    let text =
        format!("[task b1] The background command `make` ended with exit status 2.\n\n{}", lines.join("\n"));
    let about = json!({"from_command": {"task": "b1", "command": "make", "status": "failed"}});
    let message = Message { metadata: Some(about), ..Message::user(&text) };
    let transcript = Transcript::from_thread(&stored(vec![Message::user("go"), message]));
    let [_, entry] = transcript.entries() else { panic!("{:?}", transcript.entries()) };
    let shown = "task b1 · The background command `make` ended with exit status 2.\n… 6 more lines\nline 7\nline 8\nline 9";
    assert_eq!(entry.kind, EntryKind::Notice { level: Level::Info, text: shown.into() });
    assert_eq!(transcript.sent_drafts().len(), 1, "the keys that bring messages back pass over it");
}

#[test]
fn call_states_are_distinguished() {
    let mut icons: Vec<_> = ToolState::ALL.iter().map(|state| state.icon()).collect();
    let mut words: Vec<_> = ToolState::ALL.iter().map(|state| state.word()).collect();
    icons.sort_unstable();
    icons.dedup();
    words.sort_unstable();
    words.dedup();
    assert_eq!((icons.len(), words.len()), (ToolState::ALL.len(), ToolState::ALL.len()));

    let cases = [
        (ToolResult::text("Bash", "x"), ToolCallOutcome::Succeeded, ToolState::Done),
        (ToolResult::error("Bash", "x"), ToolCallOutcome::Failed, ToolState::Failed),
        (ToolResult::error_with_code("Bash", "denied", "x"), ToolCallOutcome::Failed, ToolState::Denied),
        (
            ToolResult::error_with_code("Bash", "declined", "x"),
            ToolCallOutcome::Cancelled,
            ToolState::Declined,
        ),
        (ToolResult::error_with_code("Bash", "expired", "x"), ToolCallOutcome::Failed, ToolState::Expired),
        (ToolResult::error_with_code("Bash", "unknown", "x"), ToolCallOutcome::Failed, ToolState::Unknown),
        (ToolResult::error("Bash", "x"), ToolCallOutcome::Cancelled, ToolState::Cancelled),
    ];
    for (result, outcome, state) in cases {
        let mut events = call("a", "ls").to_vec();
        events.push(done("a", result, outcome));
        let transcript = fold(&events);
        assert_eq!(transcript.tool("a").map(|tool| tool.state), Some(state));
        assert_eq!(transcript.settled(), 2, "{state:?}");
    }
}

#[test]
fn a_call_that_waited_and_was_approved_runs_and_ends() {
    let mut events = call("a", "ls").to_vec();
    events.push(done("a", ToolResult::suspended("Bash", "?"), ToolCallOutcome::Suspended));
    events.push(finish(TerminationReason::Suspended));
    let mut transcript = fold(&events);
    assert_eq!(transcript.tool("a").map(|tool| tool.state), Some(ToolState::Waiting));
    assert_eq!(transcript.settled(), 1);
    transcript.apply(Moment(900), &E::ToolCallResumed { target_id: "a".into(), result: Value::Null });
    assert_eq!(transcript.tool("a").map(|tool| tool.state), Some(ToolState::Running));
    let delta =
        E::ToolCallStreamDelta { id: "a".into(), name: "Bash".into(), delta: "x\r50%\r100%\nend".into() };
    transcript.apply(Moment(1000), &delta);
    let tool = transcript.tool("a").expect("exists");
    assert_eq!((tool.state, tool.tail.last(9)), (ToolState::Running, vec!["100%", "end"]));
    let end = done("a", ToolResult::text("Bash", "end"), ToolCallOutcome::Succeeded);
    transcript.apply(Moment(3000), &end);
    assert_eq!(transcript.tool("a").and_then(|tool| tool.elapsed), Some(2100));
}

#[test]
fn an_interrupted_answer_is_marked_and_partial_calls_are_dropped() {
    let start = E::ToolCallStart { id: "a".into(), name: "Bash".into() };
    let transcript = fold(&[text("half"), start, E::StepEnd, finish(TerminationReason::Cancelled)]);
    assert_eq!(transcript.entries().len(), 3);
    let transcript = fold(&[text("half"), finish(TerminationReason::Cancelled)]);
    let EntryKind::Assistant { interrupted, .. } = &transcript.entries()[1].kind else { panic!("no answer") };
    assert!(interrupted);
}

#[test]
fn a_withdrawn_answer_disappears_with_a_notice() {
    let retry = E::ActivitySnapshot {
        message_id: "m".into(),
        activity_type: "inference-retry".into(),
        content: json!({"attempt": 2, "max": 3, "delay_ms": 500, "reason": "the stream broke", "reset": true}),
        replace: Some(true),
    };
    let mut events = vec![E::StepStart { message_id: "m".into() }, text("Hal"), retry];
    let transcript = fold(&events);
    assert_eq!(transcript.retry(Moment(0)).as_deref(), Some("retry 2 of 3 in 1 s: the stream broke"));
    events.extend([text("Hello"), complete()]);
    let transcript = fold(&events);
    assert_eq!(transcript.last_answer(), Some("Hello"));
    assert_eq!(transcript.entries().len(), 3, "the message, the notice, the answer");
    assert_eq!(transcript.retry(Moment(0)), None);
}

#[test]
fn an_id_reused_in_a_later_turn_is_another_call() {
    let mut events = call("a", "ls").to_vec();
    events.push(done("a", ToolResult::text("Bash", "x"), ToolCallOutcome::Succeeded));
    events.extend(call("a", "rm"));
    let transcript = fold(&events);
    assert_eq!(transcript.entries().len(), 3);
    assert_eq!(transcript.tool("a").map(|tool| tool.state), Some(ToolState::Proposed));
}

fn sync_of(opened: OpenedThread, from: usize, driver: crate::host::ThreadOwner) -> crate::host::ThreadSync {
    crate::host::ThreadSync {
        thread: opened.thread,
        driver,
        is_part: false,
        messages: opened.messages.into_iter().skip(from).collect(),
        results: Vec::new(),
        run: opened.run,
        waiting: opened.waiting,
        running: Vec::new(),
        queued: Vec::new(),
        children: Vec::new(),
        commands: Vec::new(),
        summaries: Vec::new(),
    }
}

fn story() -> Vec<Message> {
    let result = |id: &str| Message {
        metadata: Some(
            json!({"tool_result": ToolResult::text("Bash", "src").to_json(), "outcome": "succeeded"}),
        ),
        ..Message::tool(id, "src")
    };
    let asks = |id: &str| {
        Message::assistant_with(
            vec![ContentBlock::text(format!("Call {id}."))],
            vec![ToolCall::new(id, "Bash", json!({"command": "ls"}))],
        )
    };
    vec![
        Message::user("hello"),
        asks("a"),
        result("a"),
        Message::assistant("Done."),
        Message::user("again"),
        // A reused id is another call.
        asks("a"),
        result("a"),
        Message::assistant("Done again."),
    ]
}

/// Any number of repeated syncs and events gives the same transcript.
#[test]
fn a_followed_conversation_equals_the_stored_one() {
    let driver = crate::host::ThreadOwner::Other(7);
    let whole = Transcript::from_thread(&stored(story()));
    for step in 1..=story().len() {
        let mut seen = 0;
        let mut transcript = Transcript::default();
        while seen < story().len() {
            let now = (seen + step).min(story().len());
            // The sync starts one message too early: that one is known.
            let sync = sync_of(stored(story()[..now].to_vec()), seen.saturating_sub(1), driver);
            transcript.sync(Moment(5), &sync, seen as u64);
            transcript.sync(Moment(6), &sync, now as u64);
            seen = now;
        }
        assert_eq!(picture(&transcript), picture(&whole), "{step} at a time");
        assert_eq!(transcript.usage(), whole.usage());
        assert_eq!(transcript.settled(), transcript.entries().len());
    }
}

#[test]
fn results_of_a_pending_step_are_reported_once() {
    let story = story();
    let mut transcript = Transcript::default();
    let mut sync = sync_of(stored(story[..2].to_vec()), 0, crate::host::ThreadOwner::Other(7));
    // The result arrives before its step is stored, and then as a message.
    sync.results = stored(story[2..3].to_vec()).messages;
    transcript.sync(Moment(5), &sync, 0);
    assert_eq!(transcript.tool("a").map(|tool| tool.state), Some(ToolState::Done));
    let before = transcript.entries().to_vec();
    let sync = sync_of(stored(story[..3].to_vec()), 2, crate::host::ThreadOwner::Other(7));
    transcript.sync(Moment(9), &sync, 2);
    assert_eq!(transcript.entries(), before);
}

#[test]
fn unaccepted_messages_come_last_and_can_be_removed() {
    let mut transcript = Transcript::default();
    transcript.push_unaccepted_message("mine", None, Vec::new());
    let sync = sync_of(stored(story()[..4].to_vec()), 0, crate::host::ThreadOwner::Own);
    transcript.sync(Moment(5), &sync, 0);
    let is_mine = |entry: &Entry| matches!(&entry.kind, EntryKind::User { text, .. } if text == "mine");
    assert!(transcript.entries().last().is_some_and(is_mine));
    assert_eq!(transcript.settled(), transcript.entries().len() - 1, "it is not final on the screen");
    let mut other = transcript.clone();
    other.remove_unaccepted_message();
    assert!(!other.entries().iter().any(is_mine));
    transcript.accept_words();
    assert_eq!(transcript.settled(), transcript.entries().len());
    transcript.remove_unaccepted_message();
    assert!(transcript.entries().iter().any(is_mine));
}

#[test]
fn a_summary_that_is_reported_again_is_counted_once() {
    let compacted = |upto: u64| E::ActivitySnapshot {
        message_id: "m".into(),
        activity_type: aye_core::contract::summary::COMPACTED_ACTIVITY_TYPE.into(),
        content: json!({"text": "compacted 9 messages", "upto_seq": upto, "usage": {"prompt_tokens": 100}}),
        replace: Some(false),
    };
    let transcript = fold(&[compacted(9), complete(), compacted(9), complete()]);
    assert_eq!(transcript.usage().prompt_tokens, Some(120));
    let transcript = fold(&[compacted(9), compacted(12)]);
    assert_eq!(transcript.usage().prompt_tokens, Some(200));
}

#[test]
fn a_handoff_is_a_notice_and_names_the_agent_until_the_next_one() {
    let start = || E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None };
    let handed = E::ActivitySnapshot {
        message_id: "m".into(),
        activity_type: "notice".into(),
        content: json!({"source": "handoff", "text": "handed off to writer, with big", "agent": "writer", "model": "big-1"}),
        replace: Some(false),
    };
    let transcript = fold(&[start(), handed.clone(), text("Hi.")]);
    assert_eq!(transcript.handed_to(), Some(("writer", "big-1")));
    let is_handoff_notice = |entry: &Entry| matches!(&entry.kind, EntryKind::Notice { text, .. } if text == "handoff: handed off to writer, with big");
    assert!(transcript.entries().iter().any(is_handoff_notice), "{:?}", transcript.entries());
    let mut later = fold(&[start(), handed, finish(TerminationReason::NaturalEnd), start()]);
    assert_eq!(later.handed_to(), Some(("writer", "big-1")));
    later.forget_handoff();
    assert_eq!(later.handed_to(), None);
}
