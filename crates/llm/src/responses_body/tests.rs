use std::sync::Arc;

use super::*;
use crate::convert::prepare;
use aye_core::contract::message::ToolCall;
use aye_core::contract::tool::ToolDescriptor;

fn request(messages: Vec<Message>) -> InferenceRequest {
    InferenceRequest {
        model: "gpt-6-sol".into(),
        system: vec![ContentBlock::text("be brief"), ContentBlock::text("be kind")],
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: vec![ToolDescriptor::new("Read", "Read", "reads")],
        enable_prompt_cache: true,
        ..InferenceRequest::default()
    }
}

fn body(request: &InferenceRequest) -> Value {
    build(&prepare(request), request)
}

fn thought(proof: &str) -> ContentBlock {
    ContentBlock::Thinking { thinking: "hm".into(), signature: Some(proof.into()) }
}

fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "Read", json!({"file_path": id}))
}

#[test]
fn reasoning_stays_before_the_item_that_it_led_to() {
    let place = |id: &str| ContentBlock::ToolCall { id: id.into() };
    let content = vec![
        thought("openai_responses:1"),
        ContentBlock::text("so"),
        thought("openai_responses:2"),
        place("a"),
        thought("anthropic:foreign"),
        thought("openai_responses:3"),
    ];
    let image = ContentBlock::image("image/png", "AAAA");
    let sent = body(&request(vec![
        Message::user_with(vec![ContentBlock::text("see"), image.clone()]),
        Message::assistant_with(content, vec![call("a"), call("b")]),
        Message::tool_with("a", vec![image]),
        Message::tool("b", "two"),
        Message::user("and now?"),
    ]));
    let reasoning = |proof: &str| json!({"type": "reasoning", "encrypted_content": proof, "summary": []});
    let asked = |id: &str| {
        let arguments = json!({"file_path": id}).to_string();
        json!({"type": "function_call", "call_id": id, "name": "Read", "arguments": arguments})
    };
    let image = json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"});
    assert_eq!(
        sent["input"],
        json!([
            {"role": "user", "content": [{"type": "input_text", "text": "see"}, image]},
            reasoning("1"),
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            reasoning("2"),
            asked("a"),
            reasoning("3"),
            asked("b"),
            {"type": "function_call_output", "call_id": "a", "output": "The image follows."},
            {"type": "function_call_output", "call_id": "b", "output": "two"},
            {"role": "user", "content": [{"type": "input_text", "text": PICTURES}, image]},
            {"role": "user", "content": "and now?"},
        ])
    );
    assert_eq!(sent["instructions"], "be brief\n\nbe kind");
    assert_eq!(sent["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!((&sent["store"], &sent["stream"]), (&json!(false), &json!(true)));
    assert_eq!(sent["reasoning"], json!({"summary": "detailed"}));
    // The call that the last thoughts led to was cut off and dropped.
    let cut = vec![ContentBlock::text("so"), thought("openai_responses:1")];
    let sent = body(&request(vec![Message::user("go"), Message::assistant_with(cut, Vec::new())]));
    assert!(!sent.to_string().contains("encrypted_content\":\""), "{sent:#}");
}

#[test]
fn parameters_match_the_model() {
    let mut request = request(vec![Message::user("go")]);
    request.overrides.reasoning_effort = Some(ReasoningEffort::Max);
    request.overrides.max_tokens = Some(7);
    let sent = body(&request);
    assert_eq!(sent["reasoning"], json!({"effort": "xhigh", "summary": "detailed"}));
    assert_eq!(sent["max_output_tokens"], 7);
    assert!(sent["prompt_cache_key"].is_string());
    for (model, word) in
        [("gpt-6-sol", "none"), ("gpt-5.1", "none"), ("gpt-5-mini", "minimal"), ("o3", "low")]
    {
        request.model = model.into();
        request.overrides.reasoning_effort = Some(ReasoningEffort::None);
        assert_eq!(body(&request)["reasoning"]["effort"], word, "{model}");
    }
    request.model = "gpt-4.1".into();
    request.overrides.reasoning_effort = None;
    request.enable_prompt_cache = false;
    let sent = body(&request);
    for field in ["reasoning", "include", "prompt_cache_key", "temperature"] {
        assert_eq!(sent.get(field), None, "{field}");
    }
}
