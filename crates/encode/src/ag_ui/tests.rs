use std::collections::{HashMap, HashSet};

use aye_core::contract::content::ContentBlock;
use aye_core::contract::ids::RunId;
use aye_core::contract::inference::StopReason;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::record::{StoredMessage, SuspensionStatus};
use aye_core::contract::suspension::{ACTION_ASK_USER, ACTION_CHILD_RUN};
use proptest::prelude::*;

use super::*;
use crate::ai_sdk::UserTurn;
use crate::answer::ClientAnswer;
use crate::testing::*;

fn frames(encoder: &mut AgUiEncoder, events: &[AgentEvent]) -> Vec<Value> {
    let events = events.iter().flat_map(|event| encoder.encode(event));
    events.map(|event| serde_json::to_value(event).unwrap()).collect()
}

fn encoded(events: &[AgentEvent]) -> Vec<Value> {
    frames(&mut AgUiEncoder::new("t", "run-1"), events)
}

fn same(left: &[Value], right: &[Value]) {
    let lines = |frames: &[Value]| frames.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(left), lines(right));
}

fn finished(outcome: Value, usage: Value, termination: Value) -> Value {
    let mut frame = json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "run-1", "result": {"response": "Hi"},
        "outcome": outcome, "usage": usage, "metadata": {"termination": termination}});
    if frame["usage"].is_null() {
        frame.as_object_mut().unwrap().shift_remove("usage");
    }
    frame
}

#[test]
fn a_call_belongs_to_a_step_and_its_message() {
    same(
        &encoded(&tool_run()),
        &[
            json!({"type": "RUN_STARTED", "threadId": "t", "runId": "run-1"}),
            json!({"type": "STEP_STARTED", "stepName": "step-1"}),
            json!({"type": "REASONING_START", "messageId": "m1:reasoning-1"}),
            json!({"type": "REASONING_MESSAGE_START", "messageId": "m1:reasoning-1", "role": "reasoning"}),
            json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": "m1:reasoning-1", "delta": "hm"}),
            json!({"type": "REASONING_MESSAGE_END", "messageId": "m1:reasoning-1"}),
            json!({"type": "REASONING_END", "messageId": "m1:reasoning-1"}),
            json!({"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}),
            json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "I look."}),
            json!({"type": "TEXT_MESSAGE_END", "messageId": "m1"}),
            json!({"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "Bash", "parentMessageId": "m1"}),
            json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{\"command\":"}),
            json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "\"ls\"}"}),
            json!({"type": "TOOL_CALL_END", "toolCallId": "c1"}),
            json!({"type": "CUSTOM", "name": "tool_call_output",
                "value": {"toolCallId": "c1", "toolCallName": "Bash", "delta": "a.txt\n"}}),
            json!({"type": "TOOL_CALL_RESULT", "messageId": "result:c1", "toolCallId": "c1", "content": "a.txt",
                "role": "tool"}),
            json!({"type": "STEP_FINISHED", "stepName": "step-1"}),
            json!({"type": "STEP_STARTED", "stepName": "step-2"}),
            json!({"type": "TEXT_MESSAGE_START", "messageId": "m2", "role": "assistant"}),
            json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "One file."}),
            json!({"type": "TEXT_MESSAGE_END", "messageId": "m2"}),
            json!({"type": "STEP_FINISHED", "stepName": "step-2"}),
            finished(
                json!({"type": "success"}),
                json!([{"model": "m", "inputTokens": 6}]),
                json!({"type": "natural_end"}),
            ),
        ],
    );
}

fn interrupt() -> Value {
    json!({
        "id": "s1", "reason": "tool_call", "message": "Run ls?", "toolCallId": "c1",
        "responseSchema": {
            "type": "object",
            "properties": {
                "approved": {"type": "boolean"}, "reason": {"type": "string"}, "editedArgs": {"type": "object"},
            },
            "required": ["approved"],
        },
        "metadata": {"action": ACTION_PERMISSION, "toolName": "Bash", "parameters": {"why": "a rule asks"}},
    })
}

#[test]
fn a_question_is_an_interrupt_and_its_answer_resumes() {
    let asked = encoded(&question_run());
    let outcome = json!({"type": "interrupt", "interrupts": [interrupt()]});
    same(
        &asked[5..],
        &[
            json!({"type": "TOOL_CALL_END", "toolCallId": "c1"}),
            json!({"type": "STEP_FINISHED", "stepName": "step-1"}),
            finished(
                outcome.clone(),
                json!([{"model": "m", "inputTokens": 3}]),
                json!({"type": "suspended"}),
            ),
        ],
    );
    same(
        &encoded(&resumed_run())[..4],
        &[
            json!({"type": "RUN_STARTED", "threadId": "t", "runId": "run-1"}),
            json!({"type": "CUSTOM", "name": "tool_call_resumed", "value": {"toolCallId": "c1", "result": null}}),
            json!({"type": "TOOL_CALL_RESULT", "messageId": "result:c1", "toolCallId": "c1", "content": "a.txt",
                "role": "tool"}),
            json!({"type": "STEP_STARTED", "stepName": "step-1"}),
        ],
    );
    // A question asked by an earlier stream.
    let mut encoder = AgUiEncoder::new("t", "run-1");
    encoder.encode(&run_start());
    let mut over = question("s0", "c0", ACTION_PERMISSION);
    over.status = SuspensionStatus::Applied;
    encoder.expect(&[over, question("s1", "c1", ACTION_PERMISSION), question("s1", "c1", ACTION_PERMISSION)]);
    let end = frames(&mut encoder, &[run_finish(TerminationReason::Suspended)]);
    same(&end, &[finished(outcome, Value::Null, json!({"type": "suspended"}))]);
}

#[test]
fn an_interrupt_describes_the_expected_answer() {
    let mut ticket = ticket("s1", "c1", ACTION_ASK_USER);
    ticket.suspension.response_schema = Some(json!({"type": "object"}));
    ticket.suspension.expires_at = Some(951_782_400_000);
    let asked = AgUiInterrupt::of(&ticket);
    assert_eq!(asked.reason, "input_required");
    assert_eq!(asked.response_schema, Some(json!({"type": "object"})));
    assert_eq!(asked.expires_at.as_deref(), Some("2000-02-29T00:00:00.000Z"));
    ticket.suspension.action = ACTION_UNKNOWN_OUTCOME.into();
    assert_eq!(AgUiInterrupt::of(&ticket).reason, "confirmation");
}

#[test]
fn a_client_call_ends_the_run_successfully() {
    let mut events = vec![run_start(), step_start("m1")];
    events.extend(call("c1"));
    events.extend([
        asks("s1", "c1", ACTION_FRONTEND_TOOL),
        asks("s2", "c2", ACTION_CHILD_RUN),
        AgentEvent::StepEnd,
        run_finish(TerminationReason::Suspended),
    ]);
    let outcome = json!({"type": "success", "pendingToolCallIds": ["c1"]});
    let end = finished(outcome, Value::Null, json!({"type": "suspended"}));
    assert_eq!(encoded(&events).last(), Some(&end));
}

#[test]
fn an_error_ends_the_stream_after_closing_everything() {
    let error = |termination| {
        encoded(&[
            run_start(),
            step_start("m1"),
            text("Hi"),
            AgentEvent::ToolCallStart { id: "c1".into(), name: "Bash".into() },
            AgentEvent::Error { message: "the provider is down".into(), code: Some("network".into()) },
            AgentEvent::StepEnd,
            run_finish(termination),
            text("never sent"),
        ])
    };
    same(
        &error(TerminationReason::Error("the provider is down".into()))[2..],
        &[
            json!({"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}),
            json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Hi"}),
            json!({"type": "TEXT_MESSAGE_END", "messageId": "m1"}),
            json!({"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "Bash", "parentMessageId": "m1"}),
            json!({"type": "CUSTOM", "name": "error", "value": {"message": "the provider is down", "code": "network"}}),
            json!({"type": "TOOL_CALL_END", "toolCallId": "c1"}),
            json!({"type": "TOOL_CALL_RESULT", "messageId": "result:c1", "toolCallId": "c1",
                "content": "the call did not arrive completely; it did not run", "role": "tool"}),
            json!({"type": "STEP_FINISHED", "stepName": "step-1"}),
            json!({"type": "RUN_ERROR", "message": "the provider is down", "code": "network"}),
        ],
    );
    let refused = error(TerminationReason::Blocked("m refused to answer".into()));
    let last = json!({"type": "RUN_ERROR", "message": "m refused to answer", "code": "blocked"});
    assert_eq!(refused.last(), Some(&last));
    let other = error(TerminationReason::Error("another".into()));
    assert_eq!(other.last(), Some(&json!({"type": "RUN_ERROR", "message": "another"})));
}

#[test]
fn a_cancelled_run_is_reported() {
    let events = [
        run_start(),
        step_start("m1"),
        text("Hi"),
        AgentEvent::StepEnd,
        run_finish(TerminationReason::Cancelled),
    ];
    same(
        &encoded(&events)[3..],
        &[
            json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Hi"}),
            json!({"type": "TEXT_MESSAGE_END", "messageId": "m1"}),
            json!({"type": "STEP_FINISHED", "stepName": "step-1"}),
            finished(json!({"type": "cancelled"}), Value::Null, json!({"type": "cancelled"})),
        ],
    );
}

#[test]
fn a_stream_that_loses_its_run_fails() {
    let mut encoder = AgUiEncoder::new("t", "run-1");
    let opened = frames(&mut encoder, &[step_start("m1"), text("Hi")]);
    assert_eq!(opened[0]["type"], "RUN_STARTED");
    let closed: Vec<_> =
        encoder.fail("the run moved").into_iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    same(
        &closed,
        &[
            json!({"type": "TEXT_MESSAGE_END", "messageId": "m1"}),
            json!({"type": "STEP_FINISHED", "stepName": "step-1"}),
            json!({"type": "RUN_ERROR", "message": "the run moved"}),
        ],
    );
    assert_eq!(encoder.fail("twice"), []);
}

#[test]
fn state_and_activities_have_their_own_events() {
    let activity = |content: Value, replace| AgentEvent::ActivitySnapshot {
        message_id: "m1".into(),
        activity_type: "plan".into(),
        content,
        replace,
    };
    let delta = |patch: Value| AgentEvent::ActivityDelta {
        message_id: "m1".into(),
        activity_type: "plan".into(),
        patch: vec![patch],
    };
    let removal = json!({"op": "remove", "path": "/a~1b"});
    let frames = encoded(&[
        run_start(),
        AgentEvent::StateSnapshot { snapshot: json!({"a": 1}) },
        AgentEvent::StateDelta { delta: vec![removal.clone()] },
        activity(json!({"n": 1}), Some(true)),
        delta(removal.clone()),
        activity(json!({"n": 2}), Some(false)),
        activity(json!("text"), None),
        delta(json!({"op": "add", "path": "/a"})),
        AgentEvent::StateDelta { delta: vec![json!({"op": "remove", "path": "a"})] },
    ]);
    let about =
        |member: &str, value: Value| json!({"messageId": "m1", "activityType": "plan", member: value});
    same(
        &frames[1..],
        &[
            json!({"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}),
            json!({"type": "STATE_DELTA", "delta": [removal]}),
            json!({"type": "ACTIVITY_SNAPSHOT", "messageId": "m1:plan", "activityType": "plan", "content": {"n": 1},
                "replace": true}),
            json!({"type": "ACTIVITY_DELTA", "messageId": "m1:plan", "activityType": "plan", "patch": [removal]}),
            json!({"type": "ACTIVITY_SNAPSHOT", "messageId": "m1:plan-1", "activityType": "plan", "content": {"n": 2},
                "replace": false}),
            json!({"type": "CUSTOM", "name": "activity_snapshot", "value": about("content", json!("text"))}),
            json!({"type": "CUSTOM", "name": "activity_delta",
                "value": about("patch", json!([{"op": "add", "path": "/a"}]))}),
            json!({"type": "CUSTOM", "name": "state_delta", "value": [{"op": "remove", "path": "a"}]}),
        ],
    );
}

/// Checks a stream by the rules of the client's verifier.
fn check(frames: &[Value]) {
    let (mut texts, mut thoughts, mut spans) = (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut calls, mut results, mut steps) = (HashMap::new(), HashSet::new(), HashSet::new());
    let mut running = false;
    for frame in frames {
        let member = |name: &str| frame[name].as_str().unwrap_or_default().to_owned();
        let kind = member("type");
        assert_eq!(kind != "RUN_STARTED", running, "{kind} at the wrong place");
        let id = member("messageId");
        match kind.as_str() {
            "RUN_STARTED" => running = true,
            "STEP_STARTED" => assert!(steps.insert(member("stepName"))),
            "STEP_FINISHED" => assert!(steps.remove(&member("stepName"))),
            "TEXT_MESSAGE_START" => assert!(texts.insert(id)),
            "TEXT_MESSAGE_CONTENT" => assert!(texts.contains(&id) && !member("delta").is_empty()),
            "TEXT_MESSAGE_END" => assert!(texts.remove(&id)),
            "REASONING_START" => assert!(spans.insert(id)),
            "REASONING_MESSAGE_START" => assert!(thoughts.insert(id)),
            "REASONING_MESSAGE_CONTENT" => assert!(thoughts.contains(&id)),
            "REASONING_MESSAGE_END" => assert!(thoughts.remove(&id)),
            "REASONING_END" => assert!(spans.remove(&id)),
            "TOOL_CALL_START" => assert!(calls.insert(member("toolCallId"), true).is_none()),
            "TOOL_CALL_ARGS" => assert_eq!(calls.get(&member("toolCallId")), Some(&true)),
            "TOOL_CALL_END" => assert_eq!(calls.insert(member("toolCallId"), false), Some(true)),
            "TOOL_CALL_RESULT" => {
                assert_ne!(calls.get(&member("toolCallId")), Some(&true));
                assert!(results.insert(id), "one result for each call");
            }
            "RUN_FINISHED" | "RUN_ERROR" => {
                assert!(texts.is_empty() && thoughts.is_empty() && spans.is_empty() && steps.is_empty());
                assert!(calls.values().all(|is_open| !is_open));
                if frame["outcome"]["type"] == "interrupt" {
                    assert!(!frame["outcome"]["interrupts"].as_array().unwrap().is_empty());
                }
                running = false;
                calls.clear();
                results.clear();
            }
            "STATE_SNAPSHOT" | "STATE_DELTA" | "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" | "CUSTOM" => {}
            other => panic!("{other}"),
        }
        assert!(!frame.to_string().contains("secret"), "only the provider reads encrypted thoughts");
    }
    assert!(!running);
}

proptest! {
    #[test]
    fn every_stream_is_valid_for_clients(events in any_events()) {
        let mut encoder = AgUiEncoder::new("t", "run-1");
        let mut all = frames(&mut encoder, &events);
        if !all.is_empty() {
            all.extend(encoder.fail("lost").iter().map(|event| serde_json::to_value(event).unwrap()));
        }
        check(&all);
    }
}

fn stored(seq: u64, id: &str, mut message: Message) -> StoredMessage {
    message.id = id.into();
    StoredMessage { seq, run_id: RunId::from("r"), created_at: 0, message }
}

#[test]
fn stored_messages_have_the_ids_of_their_stream() {
    let thinking = ContentBlock::Thinking { thinking: "hm".into(), signature: Some("secret".into()) };
    let asked = Message::assistant_with(
        vec![thinking, ContentBlock::text("I look.")],
        vec![ToolCall::new("c1", "Bash", json!({"command": "ls"})), ToolCall::new("c2", "Bash", json!({}))],
    );
    let result = |call: &str, result: ToolResult, outcome: &str| {
        let mut message = Message::tool(call, result.model_text());
        message.metadata = Some(json!({"tool_result": result, "outcome": outcome}));
        message
    };
    let pictured =
        Message::user_with(vec![ContentBlock::text("what?"), ContentBlock::image("image/png", "AA==")]);
    let messages = [
        stored(1, "u1", Message::user("ls")),
        stored(2, "m1", asked),
        stored(3, "x1", result("c1", ToolResult::text("Bash", "a.txt"), "succeeded")),
        stored(4, "x2", result("c2", declined(), "cancelled")),
        stored(5, "k", Message::continuation("go on")),
        stored(6, "m2", Message::assistant("One file.")),
        stored(7, "u2", pictured),
    ];
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "Bash", "arguments": arguments}});
    let list = serde_json::to_value(ag_ui_messages(&messages)).unwrap();
    same(
        list.as_array().unwrap(),
        &[
            json!({"id": "u1", "role": "user", "content": "ls"}),
            json!({"id": "m1:reasoning-1", "role": "reasoning", "content": "hm"}),
            json!({"id": "m1", "role": "assistant", "content": "I look.",
                "toolCalls": [call("c1", "{\"command\":\"ls\"}"), call("c2", "{}")]}),
            json!({"id": "result:c1", "role": "tool", "content": "a.txt", "toolCallId": "c1"}),
            json!({"id": "result:c2", "role": "tool", "content": "not now", "toolCallId": "c2", "error": "not now"}),
            json!({"id": "m2", "role": "assistant", "content": "One file."}),
            json!({"id": "u2", "role": "user", "content": [
                {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}},
                {"type": "text", "text": "what?"},
            ]}),
        ],
    );
}

fn input(more: Value) -> RunAgentInput {
    let mut body = json!({"threadId": "t", "runId": "run-1", "messages": [], "tools": [], "context": [],
        "forwardedProps": {}, "state": {"a": 1}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(body).unwrap()
}

#[test]
fn the_new_message_is_the_last_one() {
    let sent = input(json!({"messages": [
        {"id": "u1", "role": "user", "content": "old"},
        {"id": "m1", "role": "assistant", "content": "Hi", "toolCalls": []},
        {"id": "a1", "role": "activity", "activityType": "plan", "content": {"n": 1}},
        {"id": "u2", "role": "user", "content": [
            {"type": "text", "text": "new"},
            {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}},
            {"type": "image", "source": {"type": "url", "value": "data:image/gif;base64,AA=="}},
        ]},
    ]}));
    let content = vec![
        ContentBlock::text("new"),
        ContentBlock::image("image/png", "AA=="),
        ContentBlock::image("image/gif", "AA=="),
    ];
    assert_eq!(
        sent.intent(&[], &[]),
        Ok(AgUiIntent::Say(UserTurn { id: "u2".into(), content, replaces: None }))
    );

    let why =
        |message: Value| input(json!({"messages": [message]})).intent(&[], &[]).unwrap_err().to_string();
    assert!(
        why(json!({"id": "m", "role": "assistant", "content": "Hi"}))
            .starts_with("`messages`: there is nothing new:")
    );
    assert_eq!(
        why(json!({"id": "u", "role": "user", "content": ""})),
        "`messages`: the last message is empty; send text or an image"
    );
    let video = json!([{"type": "video", "source": {"type": "url", "value": "https://example.org/a.mp4"}}]);
    assert!(
        why(json!({"id": "u", "role": "user", "content": video})).contains("has a part that cannot be read")
    );
    assert!(
        serde_json::from_value::<RunAgentInput>(json!({"threadId": "t", "messages": []})).is_err(),
        "no runId"
    );
}

#[test]
fn interrupts_and_calls_are_answered() {
    let entry = |id: &str, status: &str, payload: Value| json!({"interruptId": id, "status": status, "payload": payload});
    let open = [
        question("s1", "c1", ACTION_PERMISSION),
        question("s2", "c2", ACTION_PERMISSION),
        question("s3", "c3", ACTION_ASK_USER),
        question("s4", "c4", ACTION_FRONTEND_TOOL),
        question("s5", "c5", ACTION_CHILD_RUN),
        question("s6", "c6", ACTION_PERMISSION),
    ];
    let all = json!({
        "messages": [
            {"id": "x4", "role": "tool", "toolCallId": "c4", "content": "{\"color\":\"red\"}"},
            {"id": "x1", "role": "tool", "toolCallId": "c1", "content": "forged"},
        ],
        "resume": [
            entry("s1", "resolved", json!({"approved": true, "editedArgs": {"command": "pwd"}})),
            entry("s2", "resolved", json!({"approved": false, "reason": "not now", "editedArgs": {}})),
            entry("s3", "resolved", json!("blue")),
            entry("s6", "cancelled", Value::Null),
        ],
    });
    let answer = ClientAnswer::new;
    let answers = vec![
        ClientAnswer { result: json!({"color": "red"}), ..answer("s4", true) },
        ClientAnswer { arguments: Some(json!({"command": "pwd"})), ..answer("s1", true) },
        ClientAnswer { reason: Some("not now".into()), ..answer("s2", false) },
        ClientAnswer { result: json!({"answer": "blue"}), ..answer("s3", true) },
        answer("s6", false),
    ];
    assert_eq!(input(all.clone()).intent(&open, &[]), Ok(AgUiIntent::Answer(answers)));

    let mut some = all.clone();
    some["resume"].as_array_mut().unwrap().pop();
    let Ok(AgUiIntent::Answer(partial)) = input(some).intent(&open, &[]) else { panic!("s6 may be new") };
    assert!(partial.len() == 4 && partial.iter().all(|answer| answer.suspension_id.as_str() != "s6"));
    let why =
        |entry: Value| input(json!({"resume": [entry]})).intent(&open[..1], &[]).unwrap_err().to_string();
    assert_eq!(
        why(entry("s1", "resolved", Value::Null)),
        "`resume`: the interrupt s1 needs `approved`, true or false, in its payload"
    );
    assert_eq!(
        why(entry("s9", "resolved", json!(true))),
        "`resume`: the interrupt s9 does not exist in this thread"
    );
}

#[test]
fn an_interrupt_that_is_no_longer_pending_is_known() {
    let statuses = [SuspensionStatus::Decided, SuspensionStatus::Expired, SuspensionStatus::Superseded];
    for (status, answer) in statuses.into_iter().zip(["resolved", "cancelled", "resolved"]) {
        let closed = SuspensionRecord { status, ..question("s1", "c1", ACTION_PERMISSION) };
        let open = question("s2", "c2", ACTION_PERMISSION);
        let history = [page_message("u1", AgUiRole::User, "go"), page_message("m1", AgUiRole::Assistant, "")];
        let late = input(json!({
            "messages": history,
            "resume": [{"interruptId": "s1", "status": answer}],
        }));
        let questions = [closed, open];
        assert_eq!(late.intent(&questions, &history), Ok(AgUiIntent::Join), "{status:?}");
        // What the user wrote meanwhile counts.
        let mut more = late.clone();
        more.messages.push(page_message("u2", AgUiRole::User, "and now?"));
        let sent =
            UserTurn { id: "u2".into(), content: vec![ContentBlock::text("and now?")], replaces: None };
        assert_eq!(more.intent(&questions, &history), Ok(AgUiIntent::Say(sent)));
    }
}

fn page_message(id: &str, role: AgUiRole, text: &str) -> AgUiMessage {
    serde_json::from_value(json!({"id": id, "role": role, "content": text})).unwrap()
}

/// Applies a snapshot as the client does.
fn merged(known: Vec<AgUiMessage>, snapshot: &[AgUiMessage]) -> Vec<AgUiMessage> {
    let of = |id: &str| snapshot.iter().find(|message| message.id == id);
    let mut kept: Vec<_> = known.iter().filter_map(|message| of(&message.id).cloned()).collect();
    let added = snapshot.iter().filter(|message| known.iter().all(|known| known.id != message.id));
    kept.extend(added.cloned());
    kept
}

#[test]
fn a_page_that_lacks_messages_gets_them_in_order() {
    let message = |id: &str| {
        let role = if id.starts_with('u') { AgUiRole::User } else { AgUiRole::Assistant };
        page_message(id, role, &format!("text of {id}"))
    };
    let list = |ids: &[&str]| ids.iter().map(|id| message(id)).collect::<Vec<_>>();
    let stored = list(&["u1", "m1", "u2", "m2", "u3"]);
    for (known, snapshots) in [
        (&["u1", "m1", "u2", "m2", "u3"][..], 0),
        (&[], 1),
        (&["u1", "m1"], 1),
        (&["u3"], 2),
        (&["u1", "u2", "u3"], 2),
        (&["u1", "gone", "m1"], 1),
    ] {
        let page = input(json!({"messages": list(known)}));
        let events = page.missing_messages(&stored);
        assert_eq!(events.len(), snapshots, "{known:?}");
        let mut has = page.messages.clone();
        for event in &events {
            let AgUiEvent::MessagesSnapshot { messages } = event else { panic!("{event:?}") };
            has = merged(has, messages);
        }
        assert_eq!(has, stored, "{known:?}");
    }
    // The result of a tool of its own has the page's id.
    let result = |id: &str| {
        serde_json::from_value::<AgUiMessage>(
            json!({"id": id, "role": "tool", "toolCallId": "c1", "content": "red"}),
        )
    };
    let page = input(json!({"messages": [message("u1"), result("x1").unwrap()]}));
    let known = [message("u1"), result("result:c1").unwrap()];
    assert_eq!(page.missing_messages(&known), []);
    let own =
        SuspensionRecord { status: SuspensionStatus::Applied, ..question("s1", "c1", ACTION_FRONTEND_TOOL) };
    assert_eq!(page.own_results(&[own]), ["c1"]);
    assert!(page.own_results(&[question("s1", "c1", ACTION_PERMISSION)]).is_empty());
    // Instructions of the page are its own, and thoughts are not missed.
    let rule = page_message("s", AgUiRole::System, "be brief");
    let page = input(json!({"messages": [rule.clone(), message("u1")]}));
    let thought = page_message("r", AgUiRole::Reasoning, "hm");
    assert_eq!(page.missing_messages(&[message("u1"), thought.clone()]), []);
    let events = page.missing_messages(&[message("u1"), thought, message("m1")]);
    let messages = vec![rule, message("u1"), message("m1")];
    assert_eq!(events, [AgUiEvent::MessagesSnapshot { messages }]);
}

#[test]
fn a_message_of_the_user_keeps_the_id_of_its_page() {
    let sent = stored(1, "ours", Message::user("go").known_as("u-page"));
    let known = ag_ui_messages(&[sent]);
    assert_eq!(known[0].id, "u-page");
    // A request that is repeated, such as after a lost connection, says nothing new.
    let repeated = input(json!({"messages": [{"id": "u-page", "role": "user", "content": "go"}]}));
    assert_eq!(repeated.intent(&[], &known), Ok(AgUiIntent::Join));
    let edited = input(json!({"messages": [{"id": "u-page", "role": "user", "content": "stop"}]}));
    assert!(matches!(edited.intent(&[], &known), Ok(AgUiIntent::Say(_))));
    for id in ["", &"x".repeat(201)] {
        assert_eq!(ag_ui_messages(&[stored(1, "ours", Message::user("go").known_as(id))])[0].id, "ours");
    }
}

#[test]
fn the_state_of_a_page_stays_and_the_shared_one_is_added() {
    let frames = |own: Value| {
        let mut encoder = AgUiEncoder::new("t", "run-1").with_client_state(own);
        let events = [
            run_start(),
            AgentEvent::StateSnapshot { snapshot: json!({"todos": [1]}) },
            AgentEvent::StateDelta { delta: vec![json!({"op": "replace", "path": "/todos", "value": []})] },
        ];
        let frames = frames(&mut encoder, &events);
        frames[1..].to_vec()
    };
    let delta = json!({"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/todos", "value": []}]});
    let snapshot = |state: Value| json!({"type": "STATE_SNAPSHOT", "snapshot": state});
    same(&frames(json!({"cart": 2})), &[snapshot(json!({"cart": 2, "todos": [1]})), delta.clone()]);
    same(&frames(json!({})), &[snapshot(json!({"todos": [1]})), delta]);
    same(&frames(json!([1, 2])), &[snapshot(json!([1, 2]))]);

    let text = |state: Value| input(json!({"state": state})).state_text(|name| name == "todos");
    assert_eq!(text(json!({"cart": 2, "todos": [1]})).unwrap(), "State of the user's page: {\"cart\":2}");
    for nothing in [json!({}), json!({"todos": [1]}), Value::Null] {
        assert_eq!(text(nothing), None);
    }
    assert!(text(json!([1])).unwrap().ends_with(": [1]"));
}

#[test]
fn client_tools_are_described() {
    let offered = input(json!({"tools": [
        {"name": "pick", "description": "Picks a color", "parameters": {"type": "object", "required": ["color"]}},
        {"name": "ping", "description": ""},
    ], "context": [{"description": "Page", "value": "/home"}, {"description": "User", "value": "Ada"}]}));
    let tools = offered.frontend_tools().unwrap();
    assert_eq!(tools[0].id, "pick");
    assert_eq!(tools[0].description, "Picks a color");
    assert_eq!(tools[0].parameters, json!({"type": "object", "required": ["color"]}));
    assert_eq!(tools[1].parameters, json!({"type": "object", "properties": {}}));
    assert_eq!(offered.context_text().as_deref(), Some("Page: /home\nUser: Ada"));
    assert_eq!(input(json!({})).context_text(), None);
    let why = |tool: Value| input(json!({"tools": [tool]})).frontend_tools().unwrap_err().to_string();
    assert_eq!(why(json!({"name": " "})), "`tools`: the tool \" \" has an empty name");
    assert_eq!(
        why(json!({"name": "x", "parameters": []})),
        "`tools`: the tool \"x\" has parameters that are not a JSON Schema object"
    );
}

#[test]
fn a_refusal_keeps_the_text_before_it() {
    let events = [
        run_start(),
        step_start("m1"),
        text("I"),
        thought("no"),
        text(" can't"),
        complete(StopReason::Refusal),
        AgentEvent::StepEnd,
        run_finish(TerminationReason::Blocked("m refused to answer".into())),
    ];
    let frames = encoded(&events);
    let starts: Vec<_> = frames.iter().filter(|frame| frame["type"] == "TEXT_MESSAGE_START").collect();
    assert_eq!(starts.iter().map(|frame| &frame["messageId"]).collect::<Vec<_>>(), ["m1", "m1"]);
    let usage = json!([{"model": "m", "inputTokens": 3}]);
    let last =
        json!({"type": "RUN_ERROR", "message": "m refused to answer", "code": "blocked", "usage": usage});
    assert_eq!(frames.last(), Some(&last));
}
