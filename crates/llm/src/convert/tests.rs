use serde_json::json;

use super::*;
use aye_core::contract::tool::ToolDescriptor;

fn request(messages: Vec<Message>) -> InferenceRequest {
    InferenceRequest {
        model: "m".into(),
        system: vec![ContentBlock::text("be brief")],
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: vec![
            ToolDescriptor::new("List", "List", "lists"),
            ToolDescriptor::new("Read", "Read", "reads"),
        ],
        enable_prompt_cache: true,
        ..InferenceRequest::default()
    }
}

fn asked(calls: Vec<ToolCall>) -> Message {
    let content = vec![
        ContentBlock::Thinking { thinking: "hm".into(), signature: Some("anthropic:sig".into()) },
        ContentBlock::Opaque {
            provider: "anthropic".into(),
            data: json!({"type": "redacted_thinking", "data": "x"}),
        },
        ContentBlock::text("so"),
    ];
    Message::assistant_with(content, calls)
}

#[test]
fn a_history_is_normalised() {
    let mut broken = ToolCall::new("1", "ba\0sh", json!("{\"command"));
    broken.invalid = Some("cut off".into());
    let prepared = prepare(&request(vec![
        Message::system("more rules"),
        Message::assistant("left over"),
        Message::user("a"),
        Message::system("by the way"),
        Message::user("  "),
        asked(vec![broken, ToolCall::new("2", "List", json!(null))]),
        Message::user("c"),
        Message::tool("2", "files"),
        Message::assistant("done"),
    ]));
    assert_eq!(prepared.system, ["be brief", "more rules"]);
    let roles: Vec<Role> = prepared.messages.iter().map(|message| message.role).collect();
    use Role::{Assistant, Tool, User};
    assert_eq!(roles, [User, Assistant, User, Assistant, Tool, Tool, User, Assistant, User]);
    assert!(prepared.messages[2].text().contains("<system-reminder>\nby the way\n</system-reminder>"));
    let calls = &prepared.messages[3].tool_calls;
    assert_eq!((calls[0].name.as_str(), &calls[0].arguments), ("ba_sh", &json!({})));
    assert_eq!(calls[1].arguments, json!({}));
}

#[test]
fn messages_are_shared_with_the_conversation_unless_they_differ() {
    let mut odd = ToolCall::new("2", "Read", json!({}));
    odd.invalid = Some("cut off".into());
    let calls = vec![ToolCall::new("1", "Read", json!({})), odd];
    let request = request(vec![
        Message::user("go"),
        Message::assistant("  "),
        asked(calls),
        Message::tool("1", "x"),
        Message::tool("2", "y"),
    ]);
    let prepared = prepare(&request);
    let is_shared = |message: &Arc<Message>| request.messages.iter().any(|known| Arc::ptr_eq(known, message));
    let shared: Vec<bool> = prepared.messages.iter().map(is_shared).collect();
    assert_eq!(shared, [true, false, true, true]);
    assert!(request.messages[2].tool_calls[1].invalid.is_some(), "the conversation stays as it is");
}

#[test]
fn ids_fit_the_providers_alphabet() {
    assert_eq!(wire_id(WireFormat::Anthropic, "toolu_1"), "toolu_1");
    let id = wire_id(WireFormat::Anthropic, "functions.List:0");
    assert!(id.starts_with("call_") && id == wire_id(WireFormat::Anthropic, "functions.List:0"));
    assert_eq!(wire_id(WireFormat::OpenAi, "functions.List:0"), "functions.List:0");
}

#[test]
fn a_signature_belongs_to_one_provider() {
    let proof = WireFormat::Anthropic.mark("a:b");
    assert_eq!(WireFormat::Anthropic.unmark(&proof), Some("a:b"));
    assert_eq!(WireFormat::Gemini.unmark(&proof), None);
    assert_eq!(WireFormat::Gemini.unmark("raw:proof"), Some("raw:proof"));
}
