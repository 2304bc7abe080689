use serde_json::json;

use super::*;
use crate::Adapter;
use crate::convert::prepare;
use aye_core::contract::message::ToolCall;
use aye_core::contract::tool::ToolDescriptor;

fn origin(base_url: &str) -> Origin {
    Origin {
        provider: "p".into(),
        adapter: Adapter::OpenAi,
        model: "m".into(),
        base_url: base_url.into(),
        key: None,
    }
}

fn request() -> InferenceRequest {
    let content = vec![
        ContentBlock::Thinking { thinking: "hm".into(), signature: None },
        ContentBlock::Opaque {
            provider: "openai".into(),
            data: json!({"reasoning_details": [{"data": "x"}]}),
        },
    ];
    InferenceRequest {
        model: "m".into(),
        system: vec![ContentBlock::text("be brief"), ContentBlock::text("be kind")],
        messages: vec![
            Message::user_with(vec![ContentBlock::text("see"), ContentBlock::image("image/png", "AAAA")])
                .into(),
            Message::assistant_with(content, vec![ToolCall::new("1", "Read", json!({"a": 1}))]).into(),
            Message::tool_with("1", vec![ContentBlock::image("image/png", "BBBB")]).into(),
        ],
        tools: vec![ToolDescriptor::new("Read", "Read", "reads")],
        enable_prompt_cache: true,
        ..InferenceRequest::default()
    }
}

fn built(request: &InferenceRequest, base_url: &str) -> Value {
    serde_json::to_value(build(&prepare(request), request, &origin(base_url))).expect("JSON")
}

fn body(base_url: &str) -> Value {
    let request = request();
    built(&request, base_url)
}

#[test]
fn the_conversation_is_told_in_order() {
    let body = body("http://127.0.0.1/v1/");
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "be brief\n\nbe kind"},
            {"role": "user", "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "Read", "arguments": "{\"a\":1}"}},
            ]},
            {"role": "tool", "tool_call_id": "1", "content": "The image follows."},
            {"role": "user", "content": [
                {"type": "text", "text": PICTURES},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}},
            ]},
        ])
    );
    let keys: Vec<&str> = body.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(keys, ["model", "stream", "stream_options", "tools", "messages"]);
}

#[test]
fn fields_of_one_server_are_not_sent_to_another() {
    for (base_url, field) in [
        ("https://api.deepseek.com/v1/", "reasoning_content"),
        ("https://openrouter.ai/api/v1/", "reasoning_details"),
        ("https://api.openai.com/v1/", "prompt_cache_key"),
    ] {
        let text = body(base_url).to_string();
        for other in ["reasoning_content", "reasoning_details", "prompt_cache_key"] {
            assert_eq!(text.contains(other), other == field, "{base_url} {other}");
        }
    }
}

#[test]
fn the_cache_key_stays_while_the_conversation_grows() {
    let mut request = request();
    let before = cache_key(&prepare(&request), &request);
    request.messages.push(Message::user("more").into());
    assert_eq!(cache_key(&prepare(&request), &request), before);
}

#[test]
fn parameters_go_out_under_the_names_of_the_model() {
    let mut request = request();
    request.overrides.max_tokens = Some(7);
    request.overrides.reasoning_effort = Some(ReasoningEffort::Low);
    let old = built(&request, "http://h/");
    assert_eq!((&old["max_tokens"], &old["reasoning_effort"]), (&json!(7), &json!("low")));
    request.model = "gpt-5-mini".into();
    let new = built(&request, "http://h/");
    assert_eq!(new["max_completion_tokens"], json!(7));
}
