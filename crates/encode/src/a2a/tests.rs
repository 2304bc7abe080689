use std::collections::HashMap;

use aye_core::contract::content::ContentBlock;
use aye_core::contract::ids::RunId;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::suspension::{ACTION_ASK_USER, ACTION_CHILD_RUN, ACTION_PERMISSION};
use proptest::prelude::*;

use super::*;
use crate::answer::ClientAnswer;
use crate::testing::*;

fn encoded(events: &[AgentEvent]) -> Vec<Value> {
    let mut encoder = A2aEncoder::new("t", "r");
    let frames = events.iter().flat_map(|event| encoder.encode(event));
    frames.map(|frame| serde_json::to_value(frame).unwrap()).collect()
}

fn same(left: &[Value], right: &[Value]) {
    let lines = |frames: &[Value]| frames.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(left), lines(right));
}

fn begun() -> Value {
    json!({"task": {"id": "r", "contextId": "t", "status": {"state": "TASK_STATE_WORKING"}}})
}

fn piece(id: &str, text: &str, append: bool, last_chunk: bool) -> Value {
    json!({"artifactUpdate": {"taskId": "r", "contextId": "t",
        "artifact": {"artifactId": id, "parts": [{"text": text}]}, "append": append, "lastChunk": last_chunk}})
}

fn status(state: &str, parts: Value) -> Value {
    let mut status = json!({"state": state});
    if !parts.is_null() {
        status["message"] = json!({"messageId": "r:status", "contextId": "t", "taskId": "r", "role": "ROLE_AGENT",
            "parts": parts});
    }
    json!({"statusUpdate": {"taskId": "r", "contextId": "t", "status": status}})
}

fn question_parts() -> Value {
    json!([
        {"text": "Run ls?"},
        {"data": {"id": "s1", "action": ACTION_PERMISSION, "message": "Run ls?",
            "parameters": {"why": "a rule asks"}, "responseSchema": null, "expiresAt": null,
            "tool": "Bash", "arguments": {"command": "ls"}}},
    ])
}

#[test]
fn a_run_is_a_task_and_its_answers_are_artifacts() {
    same(
        &encoded(&tool_run()),
        &[
            begun(),
            piece("m1", "I look.", false, false),
            piece("m1", "", true, true),
            piece("m2", "One file.", false, false),
            piece("m2", "", true, true),
            status("TASK_STATE_COMPLETED", Value::Null),
        ],
    );
}

#[test]
fn a_waiting_run_is_input_required() {
    same(&encoded(&question_run()), &[begun(), status("TASK_STATE_INPUT_REQUIRED", question_parts())]);
    let mut encoder = A2aEncoder::new("t", "r");
    encoder.encode(&run_start());
    encoder.expect(&[question("s1", "c1", ACTION_PERMISSION), question("s2", "c2", ACTION_CHILD_RUN)]);
    let end = encoder.encode(&run_finish(TerminationReason::Suspended));
    same(&[serde_json::to_value(&end[0]).unwrap()], &[status("TASK_STATE_INPUT_REQUIRED", question_parts())]);
    assert_eq!(encoded(&resumed_run()).last(), Some(&status("TASK_STATE_COMPLETED", Value::Null)));
}

#[test]
fn the_end_of_a_run_has_a_state() {
    let end =
        |termination| encoded(&[run_start(), step_start("m1"), text("Hi"), run_finish(termination)]).pop();
    let parts = |text: &str| json!([{"text": text}]);
    for (termination, expected) in [
        (TerminationReason::Cancelled, status("TASK_STATE_CANCELED", Value::Null)),
        (TerminationReason::Blocked("refused".into()), status("TASK_STATE_REJECTED", parts("refused"))),
        (TerminationReason::Error("down".into()), status("TASK_STATE_FAILED", parts("down"))),
        (
            TerminationReason::stopped("max_rounds", "3 rounds"),
            status("TASK_STATE_FAILED", parts("3 rounds")),
        ),
        (TerminationReason::BehaviorRequested, status("TASK_STATE_COMPLETED", Value::Null)),
    ] {
        assert_eq!(end(termination), Some(expected));
    }
}

#[test]
fn a_stream_that_loses_its_run_ends_without_a_state() {
    let mut encoder = A2aEncoder::new("t", "r");
    encoder.encode(&step_start("m1"));
    encoder.encode(&text("Hi"));
    let closed: Vec<_> = encoder.fail().iter().map(|frame| serde_json::to_value(frame).unwrap()).collect();
    same(&closed, &[piece("m1", "", true, true)]);
    assert!(encoder.is_finished() && encoder.fail().is_empty());
}

proptest! {
    #[test]
    fn every_stream_starts_with_its_task(events in any_events()) {
        let mut encoder = A2aEncoder::new("t", "r");
        let mut frames: Vec<_> = events.iter().flat_map(|event| encoder.encode(event)).collect();
        if !frames.is_empty() {
            frames.extend(encoder.fail());
        }
        let mut open = HashMap::new();
        for (at, frame) in frames.iter().enumerate() {
            match frame {
                A2aResponse::Task(_) => assert_eq!(at, 0),
                A2aResponse::ArtifactUpdate(update) => {
                    let was = open.insert(update.artifact.artifact_id.clone(), !update.last_chunk);
                    assert_eq!(was == Some(true), update.append, "a piece follows one that is open");
                }
                A2aResponse::StatusUpdate(_) => assert_eq!(at, frames.len() - 1),
                A2aResponse::Message(_) => panic!("a stream of a task has no message"),
            }
            let wire = serde_json::to_value(frame).unwrap();
            assert_eq!(&serde_json::from_value::<A2aResponse>(wire).unwrap(), frame);
        }
        assert!(open.values().all(|is_open| !is_open));
    }
}

fn stored(seq: u64, id: &str, mut message: Message) -> StoredMessage {
    message.id = id.into();
    StoredMessage { seq, run_id: RunId::from("r"), created_at: 0, message }
}

#[test]
fn a_stored_run_equals_its_streamed_task() {
    let mut run = RunRecord::new("r".into(), "t".into(), "default", "m", 0);
    let messages = [
        stored(1, "u1", Message::user("ls")),
        stored(2, "k", Message::continuation("context")),
        stored(3, "m1", Message::assistant_with(Vec::new(), vec![ToolCall::new("c1", "Bash", json!({}))])),
        stored(4, "x1", Message::tool("c1", "a.txt")),
        stored(5, "m2", Message::assistant("One file.")),
    ];
    let message = |id: &str, role: &str, text: &str| {
        json!({"messageId": id, "contextId": "t", "taskId": "r",
        "role": role, "parts": [{"text": text}]})
    };
    let history = [message("u1", "ROLE_USER", "ls"), message("m2", "ROLE_AGENT", "One file.")];
    let json = |run: &RunRecord, questions: &[_], length| {
        serde_json::to_value(task(run, &messages, questions, length)).unwrap()
    };
    assert_eq!(
        json(&run, &[], None),
        json!({"id": "r", "contextId": "t",
            "status": {"state": "TASK_STATE_WORKING", "timestamp": "1970-01-01T00:00:00.000Z"},
            "artifacts": [{"artifactId": "m2", "parts": [{"text": "One file."}]}], "history": history})
    );
    assert_eq!(json(&run, &[], Some(1))["history"], json!(history[1..]));
    assert_eq!(json(&run, &[], Some(0)).get("history"), None);
    run.status = RunStatus::Waiting;
    let waiting = json(&run, &[question("s1", "c1", ACTION_PERMISSION)], None);
    assert_eq!(waiting["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(waiting["status"]["message"]["parts"], question_parts());
    let served = json(&run, &[question("s1", "c1", ACTION_CHILD_RUN)], None);
    assert_eq!(served["status"]["state"], "TASK_STATE_WORKING");
    run.status = RunStatus::Done;
    run.termination = Some(TerminationReason::Cancelled);
    let ended = task(&run, &messages, &[], None).status.state;
    assert_eq!(ended, A2aTaskState::Canceled);
    assert!(ended.is_terminal() && !A2aTaskState::InputRequired.is_terminal());
}

fn request(task: &str, parts: Value) -> A2aSendRequest {
    serde_json::from_value(json!({
        "message": {"messageId": "1", "role": "ROLE_USER", "taskId": task, "parts": parts, "extensions": []},
        "configuration": {"returnImmediately": true, "historyLength": 2},
    }))
    .unwrap()
}

#[test]
fn a_message_without_a_question_starts_a_run() {
    let asked = request(
        "",
        json!([{"text": "Hello"}, {"data": {"n": 1}}, {"raw": "AA==", "mediaType": "image/png"}]),
    );
    assert!(asked.configuration.return_immediately);
    assert_eq!(asked.configuration.history_length, Some(2));
    let content = vec![
        ContentBlock::text("Hello"),
        ContentBlock::text("{\"n\":1}"),
        ContentBlock::image("image/png", "AA=="),
    ];
    assert_eq!(asked.intent(&[question("s1", "c1", ACTION_PERMISSION)]), Ok(A2aIntent::Say(content)));
    let why = |parts: Value| request("r", parts).intent(&[]).unwrap_err().message;
    assert_eq!(why(json!([])), "it is empty; send text, data or an image");
    assert_eq!(
        why(json!([{"url": "http://10.0.0.1/"}])),
        "a part has no text, data or bytes; URLs are not fetched"
    );
    assert!(
        why(json!([{"raw": "AA==", "mediaType": "text/x"}]))
            .starts_with("bytes of type `text/x` cannot be read")
    );
    let nameless = A2aSendRequest::default().intent(&[]).unwrap_err().message;
    assert_eq!(nameless, "it needs a `messageId` and the role `ROLE_USER`");
}

#[test]
fn a_message_to_a_waiting_task_answers_it() {
    let permission = question("s1", "c1", ACTION_PERMISSION);
    let asks = question("s2", "c2", ACTION_ASK_USER);
    let answer = ClientAnswer::new;
    let one = |parts: Value, open: &SuspensionRecord| request("r", parts).intent(std::slice::from_ref(open));
    let gives = |answer: ClientAnswer| Ok(A2aIntent::Answer(vec![answer]));
    assert_eq!(one(json!([{"text": " Approve\n"}]), &permission), gives(answer("s1", true)));
    assert_eq!(one(json!([{"text": "no"}]), &permission), gives(answer("s1", false)));
    assert!(
        one(json!([{"text": "sure, why not"}]), &permission)
            .unwrap_err()
            .message
            .contains("an approval is pending")
    );
    assert_eq!(
        one(
            json!([{"data": {"approved": true, "arguments": {"command": "pwd"}, "reason": "ok"}}]),
            &permission
        ),
        gives(ClientAnswer {
            arguments: Some(json!({"command": "pwd"})),
            reason: Some("ok".into()),
            ..answer("s1", true)
        })
    );
    assert_eq!(
        one(json!([{"data": {"x": 1}}]), &permission).unwrap_err().message,
        "the question s1 needs `approved`"
    );
    let blue = ClientAnswer { result: json!({"answer": "blue"}), ..answer("s2", true) };
    assert_eq!(one(json!([{"text": "blue"}]), &asks), gives(blue.clone()));
    assert_eq!(one(json!([{"data": {"id": "s2", "answer": "blue"}}]), &asks), gives(blue.clone()));

    let open = [permission, asks];
    let both = request(
        "r",
        json!([{"data": {"id": "s1", "approved": false}}, {"data": {"id": "s2", "payload": {"answer": "blue"}}}]),
    );
    assert_eq!(both.intent(&open), Ok(A2aIntent::Answer(vec![answer("s1", false), blue])));
    let why = |parts: Value| request("r", parts).intent(&open).unwrap_err().message;
    assert!(why(json!([{"text": "yes"}])).starts_with("more than one question is pending"));
    assert_eq!(
        why(json!([{"data": {"id": "s9", "approved": true}}])),
        "the question s9 is not pending in this task"
    );
}
