use std::sync::Arc;

use super::*;
use crate::convert::prepare;
use aye_core::contract::tool::ToolDescriptor;

fn request(messages: Vec<Message>) -> InferenceRequest {
    InferenceRequest {
        model: "qwen3".into(),
        system: vec![ContentBlock::text("be brief"), ContentBlock::text("be kind")],
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: vec![ToolDescriptor::new("Read", "Read", "reads").with_parameters(json!({"type": "object"}))],
        enable_prompt_cache: true,
        ..InferenceRequest::default()
    }
}

fn body(request: &InferenceRequest, window: Option<u64>) -> String {
    String::from_utf8(build(&prepare(request), request, window).expect("a body")).expect("UTF-8")
}

#[test]
fn the_body_is_what_the_server_expects() {
    let mut call = ToolCall::new("1", "Read", json!({"file_path": "a"}));
    call.signatures = vec!["gemini:call-proof".into()];
    let content = vec![
        ContentBlock::Thinking { thinking: "foreign".into(), signature: Some("anthropic:sig".into()) },
        ContentBlock::Opaque { provider: "anthropic".into(), data: json!({"type": "redacted_thinking"}) },
        ContentBlock::Thinking { thinking: "hm".into(), signature: None },
        ContentBlock::text("so"),
    ];
    let mut request = request(vec![
        Message::user_with(vec![ContentBlock::text("see"), ContentBlock::image("image/png", "AAAA")]),
        Message::assistant_with(content, vec![call, ToolCall::new("2", "Read", json!({}))]),
        Message::tool_with("1", vec![ContentBlock::image("image/png", "BBBB")]),
        Message::tool("2", "text"),
    ]);
    request.overrides.reasoning_effort = Some(ReasoningEffort::High);
    request.overrides.max_tokens = Some(7);
    request.overrides.temperature = Some(0.5);
    request.overrides.top_p = Some(0.25);
    let head = r#"{"model":"qwen3","stream":true,"truncate":false,"shift":false,"think":"high","#;
    let options = r#""options":{"num_ctx":32768,"num_predict":7,"temperature":0.5,"top_p":0.25},"#;
    let tools = r#""tools":[{"type":"function","function":{"name":"Read","description":"reads","parameters":{"type":"object"}}}],"#;
    let messages = [
        r#"{"role":"system","content":"be brief\n\nbe kind"}"#,
        r#"{"role":"user","content":"see","images":["AAAA"]}"#,
        r#"{"role":"assistant","content":"so","thinking":"hm","tool_calls":[{"id":"1","function":{"name":"Read","arguments":{"file_path":"a"}}},{"id":"2","function":{"name":"Read","arguments":{}}}]}"#,
        r#"{"role":"tool","content":"The image follows.","tool_name":"Read","tool_call_id":"1"}"#,
        r#"{"role":"tool","content":"text","tool_name":"Read","tool_call_id":"2"}"#,
        r#"{"role":"user","content":"Images from the tool results above:","images":["BBBB"]}"#,
    ];
    let expected = format!("{head}{options}{tools}\"messages\":[{}]}}", messages.join(","));
    assert_eq!(body(&request, Some(32_768)), expected);
}

#[test]
fn what_is_not_known_is_not_sent() {
    let mut request = request(vec![Message::user("hi")]);
    request.system.clear();
    request.tools.clear();
    assert_eq!(
        body(&request, None),
        r#"{"model":"qwen3","stream":true,"truncate":false,"shift":false,"messages":[{"role":"user","content":"hi"}]}"#
    );
}

#[test]
fn each_effort_has_its_word() {
    for (effort, word) in [
        (ReasoningEffort::None, json!(false)),
        (ReasoningEffort::Low, json!("low")),
        (ReasoningEffort::Medium, json!("medium")),
        (ReasoningEffort::Max, json!("max")),
        (ReasoningEffort::Budget(9), json!(true)),
    ] {
        assert_eq!(think(effort), word, "{effort:?}");
    }
}
