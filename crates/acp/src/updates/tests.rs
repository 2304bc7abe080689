use serde_json::json;

use super::*;
use aye_core::contract::lifecycle::TerminationReason;

fn encoder() -> UpdateEncoder {
    let mut encoder = UpdateEncoder::new("/w".into());
    let start = AgentEvent::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None };
    assert!(encoder.event(&start, Instant::now()).is_empty());
    encoder
}

fn updates(encoder: &mut UpdateEncoder, event: &AgentEvent) -> Vec<Value> {
    let updates = encoder.event(event, Instant::now());
    updates.into_iter().map(|update| serde_json::to_value(update).expect("JSON")).collect()
}

fn ready(name: &str, arguments: Value) -> AgentEvent {
    AgentEvent::ToolCallReady { id: "c1".into(), name: name.into(), arguments }
}

fn done(name: &str, text: &str, outcome: ToolCallOutcome) -> AgentEvent {
    let result = ToolResult::text(name, text);
    AgentEvent::ToolCallDone { id: "c1".into(), message_id: "m".into(), result, outcome }
}

#[test]
fn text_and_thoughts_are_chunks_of_one_message() {
    let mut encoder = encoder();
    updates(&mut encoder, &AgentEvent::StepStart { message_id: "m1".into() });
    let text = updates(&mut encoder, &AgentEvent::TextDelta { delta: "Hi".into() });
    let expected = json!({
        "sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": {"type": "text", "text": "Hi"},
    });
    assert_eq!(text, [expected]);
    let thought = updates(&mut encoder, &AgentEvent::ReasoningDelta { delta: "hm".into() });
    assert_eq!(thought[0]["sessionUpdate"], "agent_thought_chunk");
}

#[test]
fn a_call_keeps_one_id_from_start_to_result() {
    let mut encoder = encoder();
    let start = updates(&mut encoder, &AgentEvent::ToolCallStart { id: "c1".into(), name: "Read".into() });
    assert_eq!(start[0]["sessionUpdate"], "tool_call");
    assert_eq!((&start[0]["toolCallId"], &start[0]["kind"]), (&json!("r/c1"), &json!("read")));
    let ready = updates(&mut encoder, &ready("Read", json!({"file_path": "a.rs", "offset": 7})));
    assert_eq!(ready[0]["sessionUpdate"], "tool_call_update");
    assert_eq!(ready[0]["status"], "in_progress");
    assert_eq!(ready[0]["locations"], json!([{"path": "/w/a.rs", "line": 7}]));
    let done = updates(&mut encoder, &done("Read", "fn a() {}", ToolCallOutcome::Succeeded));
    assert_eq!((&done[0]["toolCallId"], &done[0]["status"]), (&json!("r/c1"), &json!("completed")));
    assert_eq!(done[0]["content"][0]["content"]["text"], "```\nfn a() {}\n```");
}

#[test]
fn call_kinds_match_the_protocol() {
    let kind = |name: &str| serde_json::to_value(kind_of(name)).expect("JSON");
    let known = ["Read", "Edit", "Write", "Bash", "Grep", "WebFetch", "TodoWrite", "mcp__s__t"];
    assert_eq!(known.map(kind), ["read", "edit", "edit", "execute", "search", "fetch", "think", "other"]);
}

#[test]
fn an_edit_includes_its_diff() {
    let mut encoder = encoder();
    let edit = json!({"file_path": "a.rs", "old_string": "one", "new_string": "two"});
    let ready = updates(&mut encoder, &ready("Edit", edit));
    let diff = json!({"type": "diff", "path": "/w/a.rs", "oldText": "one", "newText": "two"});
    assert_eq!(ready[0]["content"], json!([diff]));
    let failed = updates(&mut encoder, &done("Edit", "no such text", ToolCallOutcome::Failed));
    assert_eq!(failed[0]["status"], "failed");
    assert_eq!(failed[0]["content"][0]["type"], "content", "nothing was changed");
}

#[test]
fn a_todo_list_becomes_a_plan_once_written() {
    let mut encoder = encoder();
    let todos = json!({"todos": [
        {"content": "read", "status": "completed"}, {"content": "write", "status": "in_progress"}]});
    assert_eq!(updates(&mut encoder, &ready("TodoWrite", todos)).len(), 1);
    let updates = updates(&mut encoder, &done("TodoWrite", "1 of 2 done", ToolCallOutcome::Succeeded));
    assert_eq!(updates[1]["sessionUpdate"], "plan");
    let entry = |at: usize| (&updates[1]["entries"][at]["content"], &updates[1]["entries"][at]["status"]);
    assert_eq!(entry(0), (&json!("read"), &json!("completed")));
    assert_eq!(entry(1), (&json!("write"), &json!("in_progress")));
}

#[test]
fn output_is_throttled_and_truncated_at_the_start() {
    let mut encoder = encoder();
    updates(&mut encoder, &ready("Bash", json!({"command": "make"})));
    let delta = |text: &str| AgentEvent::ToolCallStreamDelta {
        id: "c1".into(),
        name: "Bash".into(),
        delta: text.into(),
    };
    let now = Instant::now();
    assert_eq!(encoder.event(&delta("one\n"), now).len(), 1);
    assert_eq!(encoder.event(&delta("two\n"), now + OUTPUT_PAUSE / 2).len(), 0);
    let late = encoder.event(&delta(&"é".repeat(MAX_TEXT)), now + OUTPUT_PAUSE);
    let late = serde_json::to_value(&late[0]).expect("JSON");
    let text = late["content"][0]["content"]["text"].as_str().expect("a string");
    assert!(text.len() <= MAX_TEXT + 16 && !text.contains("one"), "{}", text.len());
}

#[test]
fn output_cannot_close_its_own_code_block() {
    assert_eq!(fenced("a ``` b"), "````\na ``` b\n````");
    assert_eq!(fenced("  \n"), "");
}

#[test]
fn a_stored_message_is_sent_once_and_never_after_its_events() {
    let run = RunId::from("r");
    let mut encoder = encoder();
    let written = Message::user("hello");
    let call = ToolCall::new("c1", "Bash", json!({"command": "ls"}));
    let answer = Message::assistant_with(vec![ContentBlock::text("Looking.")], vec![call]);
    let result = Message::tool("c1", "a.rs");
    let kinds = |encoder: &mut UpdateEncoder| -> Vec<Value> {
        let all = [&written, &answer, &result].into_iter().flat_map(|message| encoder.stored(&run, message));
        all.map(|update| serde_json::to_value(update).expect("JSON")["sessionUpdate"].clone()).collect()
    };
    let once = ["user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update"];
    assert_eq!(kinds(&mut encoder), once);
    assert!(kinds(&mut encoder).is_empty(), "each message once");
    let mut live = self::encoder();
    live.knows(&written);
    updates(&mut live, &AgentEvent::StepStart { message_id: answer.id.to_string() });
    updates(&mut live, &ready("Bash", json!({"command": "ls"})));
    assert_eq!(kinds(&mut live), ["tool_call_update"], "another process ran the call");
}

#[test]
fn run_ends_and_bookkeeping_produce_no_updates() {
    let mut encoder = encoder();
    let finish = AgentEvent::RunFinish {
        thread_id: "t".into(),
        run_id: "r".into(),
        result: None,
        termination: TerminationReason::NaturalEnd,
    };
    for event in [finish, AgentEvent::StepEnd, AgentEvent::Error { message: "x".into(), code: None }] {
        assert!(updates(&mut encoder, &event).is_empty());
    }
}
