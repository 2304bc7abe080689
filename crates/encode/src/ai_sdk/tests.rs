use std::collections::{HashMap, HashSet};

use aye_core::contract::content::ContentBlock;
use aye_core::contract::ids::RunId;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::record::{StoredMessage, SuspensionStatus};
use aye_core::contract::suspension::{
    ACTION_ASK_USER, ACTION_CHILD_RUN, ACTION_PERMISSION, ResumeDecisionAction,
};
use aye_core::contract::tool::UserEdit;
use proptest::prelude::*;

use super::*;
use crate::answer::ClientAnswer;
use crate::testing::*;

fn frames(encoder: &mut AiSdkEncoder, events: &[AgentEvent]) -> Vec<Value> {
    let chunks = events.iter().flat_map(|event| encoder.encode(event));
    chunks.map(|chunk| serde_json::to_value(chunk).unwrap()).collect()
}

fn encoded(events: &[AgentEvent]) -> Vec<Value> {
    frames(&mut AiSdkEncoder::new(), events)
}

/// The frames that form the message.
fn lasting(frames: Vec<Value>) -> Vec<Value> {
    frames.into_iter().filter(|frame| frame.get("transient").is_none()).collect()
}

fn finish(termination: Value) -> Value {
    json!({"type": "data-finish", "id": "r", "data": {"runId": "r", "termination": termination}})
}

fn same(left: &[Value], right: &[Value]) {
    let lines = |frames: &[Value]| frames.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(left), lines(right));
}

#[test]
fn a_text_is_one_part_of_one_step() {
    let events = [
        run_start(),
        step_start("m1"),
        text("H"),
        text("i"),
        complete(StopReason::EndTurn),
        AgentEvent::StepEnd,
        run_finish(TerminationReason::NaturalEnd),
    ];
    same(
        &encoded(&events),
        &[
            json!({"type": "start", "messageId": "r"}),
            json!({"type": "data-run-info", "data": {"threadId": "t", "runId": "r", "parentRunId": null}, "transient": true}),
            json!({"type": "start-step"}),
            json!({"type": "text-start", "id": "1"}),
            json!({"type": "text-delta", "id": "1", "delta": "H"}),
            json!({"type": "text-delta", "id": "1", "delta": "i"}),
            json!({"type": "text-end", "id": "1"}),
            json!({"type": "data-inference-complete", "data": {
                "model": "m", "usage": {"prompt_tokens": 3}, "durationMs": 5, "stopReason": "end_turn",
            }, "transient": true}),
            json!({"type": "finish-step"}),
            finish(json!({"type": "natural_end"})),
            json!({"type": "finish", "finishReason": "stop"}),
        ],
    );
}

#[test]
fn a_call_has_arguments_then_its_result() {
    same(
        &lasting(encoded(&tool_run())),
        &[
            json!({"type": "start", "messageId": "r"}),
            json!({"type": "start-step"}),
            json!({"type": "reasoning-start", "id": "1"}),
            json!({"type": "reasoning-delta", "id": "1", "delta": "hm"}),
            json!({"type": "reasoning-end", "id": "1"}),
            json!({"type": "text-start", "id": "2"}),
            json!({"type": "text-delta", "id": "2", "delta": "I look."}),
            json!({"type": "text-end", "id": "2"}),
            json!({"type": "tool-input-start", "toolCallId": "c1", "toolName": "Bash"}),
            json!({"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": "{\"command\":"}),
            json!({"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": "\"ls\"}"}),
            json!({"type": "tool-input-available", "toolCallId": "c1", "toolName": "Bash", "input": {"command": "ls"}}),
            json!({"type": "tool-output-available", "toolCallId": "c1", "output": "a.txt"}),
            json!({"type": "finish-step"}),
            json!({"type": "start-step"}),
            json!({"type": "text-start", "id": "3"}),
            json!({"type": "text-delta", "id": "3", "delta": "One file."}),
            json!({"type": "text-end", "id": "3"}),
            json!({"type": "finish-step"}),
            finish(json!({"type": "natural_end"})),
            json!({"type": "finish", "finishReason": "stop"}),
        ],
    );
}

#[test]
fn a_question_ends_the_stream_and_its_answer_continues_the_message() {
    same(
        &lasting(encoded(&question_run()))[5..],
        &[
            json!({"type": "tool-input-available", "toolCallId": "c1", "toolName": "Bash", "input": {"command": "ls"}}),
            json!({"type": "data-question", "id": "s1", "data": {
                "id": "s1", "toolCallId": "c1", "action": ACTION_PERMISSION, "message": "Run ls?",
                "parameters": {"why": "a rule asks"}, "responseSchema": null, "expiresAt": null,
            }}),
            json!({"type": "tool-approval-request", "approvalId": "s1", "toolCallId": "c1"}),
            json!({"type": "finish-step"}),
            finish(json!({"type": "suspended"})),
            json!({"type": "finish", "finishReason": "tool-calls"}),
        ],
    );
    let mut encoder = AiSdkEncoder::resuming("r", ["c1".to_owned()]);
    let resumed = frames(&mut encoder, &resumed_run());
    assert!(encoder.is_finished());
    same(
        &lasting(resumed),
        &[
            json!({"type": "start", "messageId": "r"}),
            json!({"type": "tool-output-available", "toolCallId": "c1", "output": "a.txt"}),
            json!({"type": "start-step"}),
            json!({"type": "text-start", "id": "1"}),
            json!({"type": "text-delta", "id": "1", "delta": "One file."}),
            json!({"type": "text-end", "id": "1"}),
            json!({"type": "finish-step"}),
            finish(json!({"type": "natural_end"})),
            json!({"type": "finish", "finishReason": "stop"}),
        ],
    );
    // A client without the call receives it first.
    same(
        &lasting(frames(&mut AiSdkEncoder::new(), &resumed_run()))[1..3],
        &[
            json!({"type": "tool-input-available", "toolCallId": "c1", "toolName": "Bash", "input": {}}),
            json!({"type": "tool-output-available", "toolCallId": "c1", "output": "a.txt"}),
        ],
    );
}

#[test]
fn calls_run_by_the_client_or_another_agent_ask_for_no_approval() {
    for action in [ACTION_FRONTEND_TOOL, ACTION_CHILD_RUN] {
        let mut encoder = AiSdkEncoder::resuming("r", ["c1".to_owned()]);
        encoder.encode(&run_start());
        same(&frames(&mut encoder, &[asks("s1", "c1", action)]), &[]);
    }
}

#[test]
fn the_outcome_of_a_call_is_reported() {
    let ended = |result: ToolResult, outcome| {
        let mut encoder = AiSdkEncoder::resuming("r", ["c1".to_owned()]);
        encoder.encode(&run_start());
        frames(&mut encoder, &[done("c1", result.clone(), outcome), done("c1", result, outcome)])
    };
    use ToolCallOutcome::{Cancelled, Failed, Succeeded};
    same(&ended(declined(), Cancelled), &[json!({"type": "tool-output-denied", "toolCallId": "c1"})]);
    let failed = json!({"type": "tool-output-error", "toolCallId": "c1", "errorText": "no such file"});
    same(&ended(ToolResult::error("Bash", "no such file"), Failed), std::slice::from_ref(&failed));
    same(&ended(ToolResult::error("Bash", "no such file"), Cancelled), &[failed]);
    let rich = ToolResult::success_with_message("Bash", json!({"n": 1}), "for the model")
        .with_details(json!({"exit_code": 0}))
        .with_shown("for people");
    let output = json!({"message": "for people", "data": {"n": 1}, "details": {"exit_code": 0}});
    same(
        &ended(rich, Succeeded),
        &[json!({"type": "tool-output-available", "toolCallId": "c1", "output": output})],
    );
    let mut edited = ToolResult::success("Bash", json!([1]));
    let arguments = Some(json!({"command": "pwd"}));
    edited.touched = Some(Box::new(UserEdit { words: "edited".into(), arguments, comment: None }));
    same(
        &ended(edited, Succeeded),
        &[
            json!({"type": "tool-input-available", "toolCallId": "c1", "toolName": "Bash", "input": {"command": "pwd"}}),
            json!({"type": "tool-output-available", "toolCallId": "c1", "output": [1]}),
        ],
    );
}

#[test]
fn an_error_ends_the_stream_after_closing_everything() {
    let events = [
        run_start(),
        step_start("m1"),
        text("Hi"),
        AgentEvent::ToolCallStart { id: "c1".into(), name: "Bash".into() },
        AgentEvent::Error { message: "the provider is down".into(), code: Some("network".into()) },
        AgentEvent::StepEnd,
        run_finish(TerminationReason::Error("the provider is down".into())),
        text("never sent"),
    ];
    same(
        &encoded(&events)[3..],
        &[
            json!({"type": "text-start", "id": "1"}),
            json!({"type": "text-delta", "id": "1", "delta": "Hi"}),
            json!({"type": "text-end", "id": "1"}),
            json!({"type": "tool-input-start", "toolCallId": "c1", "toolName": "Bash"}),
            json!({"type": "data-error", "data": {"message": "the provider is down", "code": "network"}, "transient": true}),
            json!({"type": "tool-input-error", "toolCallId": "c1", "toolName": "Bash", "input": null,
                "errorText": "the call did not arrive completely; it did not run"}),
            json!({"type": "finish-step"}),
            finish(json!({"type": "error", "value": "the provider is down"})),
            json!({"type": "error", "errorText": "the provider is down"}),
            json!({"type": "finish", "finishReason": "error"}),
        ],
    );
}

#[test]
fn a_cancelled_run_aborts_the_stream() {
    let events = [
        run_start(),
        step_start("m1"),
        text("Hi"),
        AgentEvent::StepEnd,
        run_finish(TerminationReason::Cancelled),
    ];
    same(
        &encoded(&events)[4..],
        &[
            json!({"type": "text-delta", "id": "1", "delta": "Hi"}),
            json!({"type": "text-end", "id": "1"}),
            json!({"type": "finish-step"}),
            finish(json!({"type": "cancelled"})),
            json!({"type": "abort"}),
        ],
    );
}

#[test]
fn finish_reasons_are_known_to_clients() {
    let reason = |stop: StopReason, termination: TerminationReason| {
        let frames = encoded(&[run_start(), complete(stop), run_finish(termination)]);
        frames.last().unwrap()["finishReason"].as_str().unwrap().to_owned()
    };
    let blocked = || TerminationReason::Blocked("m refused to answer".into());
    assert_eq!(reason(StopReason::Refusal, blocked()), "content-filter");
    assert_eq!(reason(StopReason::ContentFilter, blocked()), "content-filter");
    assert_eq!(reason(StopReason::ToolUse, blocked()), "other");
    assert_eq!(reason(StopReason::MaxTokens, TerminationReason::stopped("length", "")), "length");
    assert_eq!(reason(StopReason::ToolUse, TerminationReason::stopped("max_rounds", "")), "other");
    assert_eq!(reason(StopReason::Other, TerminationReason::NaturalEnd), "stop");
    assert_eq!(reason(StopReason::ToolUse, TerminationReason::BehaviorRequested), "stop");
}

#[test]
fn activities_replace_each_other_only_when_marked() {
    let activity = |replace| AgentEvent::ActivitySnapshot {
        message_id: "m1".into(),
        activity_type: "plan".into(),
        content: json!(1),
        replace,
    };
    let frames = encoded(&[run_start(), activity(Some(true)), activity(None), activity(Some(false))]);
    let ids: Vec<_> = frames[2..].iter().map(|frame| frame["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["m1:plan", "m1:plan", "m1:plan:1"]);
    assert_eq!(frames[2]["data"], json!({"messageId": "m1", "activityType": "plan", "content": 1}));
}

#[test]
fn a_stream_that_loses_its_run_fails() {
    let mut encoder = AiSdkEncoder::replaying("r");
    let opened = frames(&mut encoder, &[step_start("m1"), text("Hi")]);
    same(&opened[..1], &[json!({"type": "start", "messageId": "r"})]);
    let closed: Vec<_> =
        encoder.fail("the run moved").into_iter().map(|chunk| serde_json::to_value(chunk).unwrap()).collect();
    same(
        &closed,
        &[
            json!({"type": "text-end", "id": "1"}),
            json!({"type": "finish-step"}),
            json!({"type": "error", "errorText": "the run moved"}),
            json!({"type": "finish", "finishReason": "error"}),
        ],
    );
    assert_eq!(encoder.fail("twice"), []);
    assert!(!encoder.encode(&run_start()).is_empty(), "another run may follow");
}

/// Checks a stream by the rules of the client's reducer.
fn check(frames: &[Value]) {
    let (mut open, mut used, mut calls) = (HashSet::new(), HashSet::new(), HashMap::new());
    let (mut in_step, mut running) = (false, false);
    for frame in frames {
        let member = |name: &str| frame[name].as_str().unwrap_or_default().to_owned();
        let kind = member("type");
        assert_eq!(kind != "start", running, "{kind} at the wrong place");
        match kind.as_str() {
            "start" => running = true,
            "start-step" => assert!(!std::mem::replace(&mut in_step, true)),
            "finish-step" => {
                assert!(open.is_empty(), "closed before the step");
                assert!(std::mem::take(&mut in_step));
            }
            "text-start" | "reasoning-start" => {
                assert!(used.insert(member("id")), "the id was reused");
                open.insert(member("id"));
            }
            "text-delta" | "reasoning-delta" => {
                assert!(open.contains(&member("id")));
                assert!(!member("delta").is_empty());
            }
            "text-end" | "reasoning-end" => assert!(open.remove(&member("id"))),
            "tool-input-start" => {
                assert!(calls.insert(member("toolCallId"), "arriving").is_none());
            }
            "tool-input-delta" | "tool-input-error" => {
                assert_eq!(calls.get(&member("toolCallId")), Some(&"arriving"));
                if kind == "tool-input-error" {
                    calls.insert(member("toolCallId"), "settled");
                }
            }
            "tool-input-available" => {
                assert_ne!(calls.insert(member("toolCallId"), "known"), Some("settled"));
            }
            "tool-approval-request" => assert_eq!(calls.get(&member("toolCallId")), Some(&"known")),
            "tool-output-available" | "tool-output-error" | "tool-output-denied" => {
                assert_eq!(calls.insert(member("toolCallId"), "settled"), Some("known"));
            }
            "finish" | "abort" => {
                assert!(open.is_empty() && !in_step);
                assert!(calls.values().all(|stage| *stage != "arriving"));
                running = false;
                calls.clear();
            }
            "error" => assert!(open.is_empty() && !in_step),
            data => assert!(data.starts_with("data-") && frame.get("data").is_some(), "{frame}"),
        }
        assert!(!frame.to_string().contains("secret"), "only the provider reads encrypted thoughts");
    }
    assert!(!running);
}

proptest! {
    #[test]
    fn every_stream_is_valid_for_clients(events in any_events()) {
        let mut encoder = AiSdkEncoder::new();
        let mut all = frames(&mut encoder, &events);
        if !all.is_empty() {
            all.extend(encoder.fail("lost").iter().map(|chunk| serde_json::to_value(chunk).unwrap()));
        }
        check(&all);
    }
}

fn stored(seq: u64, run: &str, id: &str, mut message: Message) -> StoredMessage {
    message.id = id.into();
    StoredMessage { seq, run_id: RunId::from(run), created_at: 0, message }
}

fn tool_message(call: &str, result: &ToolResult, outcome: &str) -> Message {
    let mut message = Message::tool(call, result.model_text());
    message.metadata = Some(json!({"tool_result": result, "outcome": outcome}));
    message
}

fn bash(ids: &[&str]) -> Message {
    let calls = ids.iter().map(|id| ToolCall::new(*id, "Bash", json!({"command": "ls"}))).collect();
    let thinking = ContentBlock::Thinking { thinking: "hm".into(), signature: Some("secret".into()) };
    Message::assistant_with(vec![thinking, ContentBlock::text("I look.")], calls)
}

#[test]
fn a_stored_run_equals_its_streamed_message() {
    let mut denied = question("s2", "c2", ACTION_PERMISSION);
    denied.status = SuspensionStatus::Applied;
    let answer = ClientAnswer { reason: Some("not now".into()), ..ClientAnswer::new("s2", false) };
    denied.decision = Some(answer.into_decision(5).1);
    let messages = [
        stored(
            1,
            "r",
            "u1",
            Message::user_with(vec![ContentBlock::text("ls"), ContentBlock::image("image/png", "AA==")]),
        ),
        stored(2, "r", "m1", bash(&["c1", "c2", "c3"])),
        stored(3, "r", "x1", tool_message("c1", &ToolResult::text("Bash", "a.txt"), "succeeded")),
        stored(4, "r", "x2", tool_message("c2", &declined(), "cancelled")),
        stored(5, "r", "x3", tool_message("c3", &ToolResult::error("Bash", "no"), "failed")),
        stored(6, "r", "k", Message::continuation("go on")),
        stored(7, "r", "m2", Message::assistant("One file.")),
        stored(8, "r", "u2", Message::user("more").steering()),
        stored(9, "r", "m3", Message::assistant("No.")),
    ];
    let call = |id: &str, state: &str, more: Value| {
        let mut part =
            json!({"type": "tool-Bash", "toolCallId": id, "state": state, "input": {"command": "ls"}});
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        part
    };
    let list = serde_json::to_value(ui_messages(&messages, &[denied])).unwrap();
    same(
        list.as_array().unwrap(),
        &[
            json!({"id": "u1", "role": "user", "parts": [
                {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA=="},
                {"type": "text", "text": "ls"},
            ]}),
            json!({"id": "r", "role": "assistant", "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "hm"},
                {"type": "text", "text": "I look."},
                call("c1", "output-available", json!({"output": "a.txt"})),
                call("c2", "output-denied", json!({"approval": {"id": "s2", "approved": false, "reason": "not now"}})),
                call("c3", "output-error", json!({"errorText": "no"})),
                {"type": "step-start"},
                {"type": "text", "text": "One file."},
            ]}),
            json!({"id": "u2", "role": "user", "parts": [{"type": "text", "text": "more"}]}),
            json!({"id": "m3", "role": "assistant", "parts": [
                {"type": "step-start"}, {"type": "text", "text": "No."},
            ]}),
        ],
    );
}

#[test]
fn a_stored_waiting_call_shows_its_question() {
    let messages = [stored(1, "r", "m1", bash(&["c1"]))];
    let part =
        |questions: &[_]| serde_json::to_value(&ui_messages(&messages, questions)[0].parts[3]).unwrap();
    let mut asked = question("s1", "c1", ACTION_PERMISSION);
    assert_eq!(part(&[])["state"], "input-available");
    assert_eq!(part(std::slice::from_ref(&asked))["state"], "approval-requested");
    assert_eq!(part(std::slice::from_ref(&asked))["approval"], json!({"id": "s1"}));
    asked.status = SuspensionStatus::Decided;
    let edited = ClientAnswer { arguments: Some(json!({"command": "pwd"})), ..ClientAnswer::new("s1", true) };
    asked.decision = Some(edited.into_decision(5).1);
    let answered = part(&[asked]);
    assert_eq!(answered["state"], "approval-responded");
    assert_eq!(answered["approval"], json!({"id": "s1", "approved": true}));
    assert_eq!(answered["input"], json!({"command": "pwd"}));
}

fn request(body: Value) -> AiSdkRequest {
    serde_json::from_value(body).unwrap()
}

#[test]
fn the_new_message_is_the_last_one() {
    let body = json!({
        "id": "chat", "trigger": "submit-message", "model": "ignored",
        "messages": [
            {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "old"}]},
            {"id": "r", "role": "assistant", "parts": [{"type": "step-start"}, {"type": "data-x", "data": 1}]},
            {"id": "u2", "role": "user", "metadata": {}, "parts": [
                {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "data:image/png;base64,AA=="},
                {"type": "text", "text": "new", "state": "done"},
            ]},
        ],
    });
    let turn = UserTurn {
        id: "u2".into(),
        content: vec![ContentBlock::image("image/png", "AA=="), ContentBlock::text("new")],
        replaces: None,
    };
    let mut asked = request(body.clone());
    assert_eq!(asked.thread(), Some("chat"));
    assert_eq!(asked.intent(&[]), Ok(AiSdkIntent::Say(turn.clone())));
    asked.message_id = Some("u2".into());
    assert_eq!(asked.intent(&[]), Ok(AiSdkIntent::Say(UserTurn { replaces: Some("u2".into()), ..turn })));

    let plain = request(json!({"threadId": "t", "messages": [{"role": "user", "content": "Hello"}]}));
    assert_eq!(plain.thread(), Some("t"));
    let intent = AiSdkIntent::Say(UserTurn {
        id: String::new(),
        content: vec![ContentBlock::text("Hello")],
        replaces: None,
    });
    assert_eq!(plain.intent(&[]), Ok(intent));
    let again =
        request(json!({"id": "t", "trigger": "regenerate-message", "messageId": "r", "messages": []}));
    assert_eq!(again.intent(&[]), Ok(AiSdkIntent::Regenerate { message_id: Some("r".into()) }));
}

#[test]
fn answers_arrive_in_the_parts_of_the_asking_message() {
    let part = |call: &str, id: &str, approved: bool, reason: Value| {
        json!({"type": "tool-Bash", "toolCallId": call, "state": "approval-responded", "input": {},
            "approval": {"id": id, "approved": approved, "reason": reason}})
    };
    let body = json!({"id": "t", "trigger": "submit-message", "messageId": "r", "messages": [
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "ls"}]},
        {"id": "r", "role": "assistant", "parts": [
            {"type": "step-start"},
            part("c0", "s0", true, Value::Null),
            part("c1", "s1", true, Value::Null),
            part("c2", "s2", false, json!("not now")),
            part("c3", "s3", true, json!("blue")),
            {"type": "dynamic-tool", "toolName": "pick", "toolCallId": "c4", "state": "output-available",
                "input": {}, "output": {"color": "red"}},
            {"type": "tool-pick", "toolCallId": "c5", "state": "output-error", "input": {}, "errorText": "closed"},
            {"type": "tool-Bash", "toolCallId": "c6", "state": "output-available", "input": {}, "output": "forged"},
        ]},
    ]});
    let open = [
        question("s1", "c1", ACTION_PERMISSION),
        question("s2", "c2", ACTION_PERMISSION),
        question("s3", "c3", ACTION_ASK_USER),
        question("s4", "c4", ACTION_FRONTEND_TOOL),
        question("s5", "c5", ACTION_FRONTEND_TOOL),
        question("s6", "c6", ACTION_PERMISSION),
    ];
    let approve = |id: &str| ClientAnswer::new(id, true);
    let answers = vec![
        approve("s1"),
        ClientAnswer { reason: Some("not now".into()), ..ClientAnswer::new("s2", false) },
        ClientAnswer { result: json!({"answer": "blue"}), ..approve("s3") },
        ClientAnswer { result: json!({"color": "red"}), ..approve("s4") },
        ClientAnswer { result: json!({"error": "closed"}), ..approve("s5") },
    ];
    let asked = request(body.clone());
    assert_eq!(asked.intent(&open), Ok(AiSdkIntent::Answer(answers)));
    let calls = ["c0", "c1", "c2", "c3", "c4", "c5", "c6"].map(str::to_owned);
    assert_eq!(asked.continued(), Some(("r".to_owned(), calls.to_vec())));

    // The request arrives again after all decisions: it repeats the same ones.
    let Ok(AiSdkIntent::Answer(repeated)) = asked.intent(&[]) else { panic!("no answers") };
    assert_eq!(
        repeated.iter().map(|answer| answer.suspension_id.as_str()).collect::<Vec<_>>(),
        ["s0", "s1", "s2", "s3"]
    );
    let decision = |answer: &ClientAnswer| answer.clone().into_decision(7).1;
    assert_eq!(decision(&repeated[1]).decision_id, decision(&approve("s1")).decision_id);
    assert_ne!(decision(&repeated[1]).decision_id, decision(&ClientAnswer::new("s1", false)).decision_id);
    assert_eq!(decision(&repeated[2]).action, ResumeDecisionAction::Cancel);
}

#[test]
fn a_request_with_nothing_new_is_refused() {
    let why = |messages: Value| {
        request(json!({"id": "t", "messages": messages})).intent(&[]).unwrap_err().to_string()
    };
    assert_eq!(why(json!([])), "`messages`: the list is empty; send at least one message");
    assert_eq!(
        why(json!([{"id": "r", "role": "assistant", "parts": [{"type": "text", "text": "Hi"}]}])),
        "`messages`: there is nothing new: send a message, or answer a pending question"
    );
    assert_eq!(
        why(json!([{"id": "u", "role": "user", "parts": [{"type": "text", "text": ""}]}])),
        "`messages`: the last message is empty; send text or an image"
    );
    assert_eq!(
        why(json!([{"id": "s", "role": "developer", "parts": []}])),
        "`messages`: the last message must have the role `user` or `assistant`"
    );
    for url in [
        "https://example.org/a.png",
        "data:image/png,AA",
        "data:image/svg+xml;base64,AA==",
        "data:image/png;base64,<>",
    ] {
        let file = json!([{"id": "u", "role": "user", "parts": [{"type": "file", "mediaType": "image/x", "url": url}]}]);
        assert!(why(file).contains("the file of type `image/x` cannot be read"), "{url}");
    }
}
