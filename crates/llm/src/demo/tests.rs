use std::time::{Duration, Instant};

use aye_core::contract::executor::LlmStreamEvent;
use aye_core::contract::tool::ToolDescriptor;

use super::*;

fn request(messages: Vec<Message>) -> InferenceRequest {
    let tools = ["List", "Read", "Grep", "Bash", "Edit", "Write", "AskUser"];
    InferenceRequest {
        model: "demo".into(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: tools.iter().map(|name| ToolDescriptor::new(*name, *name, "")).collect(),
        ..InferenceRequest::default()
    }
}

#[track_caller]
fn check(prompt: &str, tool: &str, args: Value) {
    let Reply::Call { tool: called, args: given, .. } = reply(&request(vec![Message::user(prompt)])) else {
        panic!("{prompt:?} makes no call")
    };
    assert_eq!((called, given), (tool, args));
}

#[test]
fn the_demo_understands_its_commands() {
    check("list files", "List", json!({"path": "."}));
    check("List files.", "List", json!({"path": "."}));
    check("list files in src", "List", json!({"path": "src"}));
    check("read a b.txt", "Read", json!({"file_path": "a b.txt"}));
    check("read a.md\n\n<stdin>\nx\n</stdin>", "Read", json!({"file_path": "a.md"}));
    check("search a.b", "Grep", json!({"pattern": "a\\.b", "output_mode": "content"}));
    check(
        "run ls -l | wc",
        "Bash",
        json!({"command": "ls -l | wc", "description": "Run the requested command"}),
    );
    check(
        "edit a.rs: let x: u8 -> let x: u16",
        "Edit",
        json!({"file_path": "a.rs", "old_string": "let x: u8", "new_string": "let x: u16"}),
    );
    check("write a.txt: hi: there", "Write", json!({"file_path": "a.txt", "content": "hi: there\n"}));
    let Reply::Call { tool: "AskUser", args, .. } = understand("ask me") else { panic!("no question") };
    assert!(args["choices"].as_array().is_some_and(|choices| choices.len() > 1));
}

#[test]
fn other_prompts_get_an_honest_answer() {
    for prompt in ["what is love", "help", "hi", "edit nothing", "write", "run", "", "ünï"] {
        let Reply::Text(text) = understand(prompt) else { panic!("{prompt:?} makes a call") };
        assert!(text.contains("demo model") || text.contains("looks like this"), "{text}");
    }
}

#[test]
fn a_tool_that_is_not_offered_is_not_called() {
    let mut request = request(vec![Message::user("run ls")]);
    request.tools.retain(|tool| tool.id != "Bash");
    assert!(matches!(reply(&request), Reply::Text(text) if text.contains("not available")));
}

fn after_result(result: Message) -> String {
    let call = ToolCall::new("1", "Bash", json!({"command": "ls"}));
    let request = request(vec![Message::user("run ls"), Message::assistant_with(vec![], vec![call]), result]);
    let Reply::Text(text) = reply(&request) else { panic!("another call") };
    text
}

#[test]
fn result_states_are_distinguished() {
    assert!(after_result(Message::tool("1", "a.txt")).contains("```text\na.txt\n```"));
    assert!(
        after_result(Message::tool("1", "The user denied this call. It did not run. Reason: no"))
            .contains("You denied the call")
    );
    let declined = after_result(Message::tool("1", "The user denied this call. It did not run."));
    assert!(
        !declined.contains("It did not run"),
        "text for the model is not repeated to the user: {declined}"
    );
    let mut failed = Message::tool("1", "exit status 1");
    failed.metadata = Some(json!({"tool_result": {"status": "error"}}));
    assert!(after_result(failed).contains("did not succeed"));
    assert!(after_result(Message::tool("1", "")).contains("no output"));
    assert!(after_result(Message::tool("1", "```\nx\n````")).contains("`````text"), "it cannot escape");
}

#[test]
fn an_answer_is_repeated_in_the_reply() {
    let call = ToolCall::new("1", "AskUser", json!({"question": "Which?"}));
    let answer = Message::tool("1", "{\n  \"answer\": \"red\"\n}");
    let request = request(vec![Message::user("ask me"), Message::assistant_with(vec![], vec![call]), answer]);
    let Reply::Text(text) = reply(&request) else { panic!("another call") };
    assert_eq!(text, "Thank you. Your answer was `red`.");
}

#[test]
fn a_new_message_is_a_new_question() {
    let call = ToolCall::new("1", "Bash", json!({"command": "ls"}));
    let messages = vec![
        Message::user("run ls"),
        Message::assistant_with(vec![], vec![call]),
        Message::tool("1", "a"),
        Message::assistant("done"),
        Message::user("list files"),
    ];
    assert!(matches!(reply(&request(messages)), Reply::Call { tool: "List", .. }));
}

#[tokio::test]
async fn the_demo_streams_fast_in_small_chunks() {
    let start = Instant::now();
    let stream =
        DemoExecutor::new().execute_stream(request(vec![Message::user("help")])).await.expect("a stream");
    let events: Vec<_> = stream.collect().await;
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(events.len() > 10);
    let mut text = String::new();
    for event in events.iter().flatten() {
        if let LlmStreamEvent::TextDelta(delta) = event {
            assert!(delta.split_whitespace().count() <= 3, "{delta:?}");
            text.push_str(delta);
        }
    }
    let Some(Ok(LlmStreamEvent::Finish { result, .. })) = events.last() else { panic!("no end") };
    assert_eq!(result.text(), text);
    assert!(result.usage.is_some());
}
