use std::sync::Arc;

use super::*;
use crate::convert::prepare;
use aye_core::contract::inference::InferenceOverride;
use aye_core::contract::message::ToolCall;
use aye_core::contract::tool::ToolDescriptor;

fn request(messages: Vec<Message>) -> InferenceRequest {
    InferenceRequest {
        model: "claude-sonnet-5".into(),
        system: vec![ContentBlock::text("be brief"), ContentBlock::text("be kind")],
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: vec![
            ToolDescriptor::new("List", "List", "lists"),
            ToolDescriptor::new("Read", "Read", "reads"),
        ],
        enable_prompt_cache: true,
        ..InferenceRequest::default()
    }
}

fn body(request: &InferenceRequest) -> Value {
    build(&prepare(request), request)
}

fn thought(thinking: &str, proof: &str) -> ContentBlock {
    ContentBlock::Thinking { thinking: thinking.into(), signature: Some(proof.into()) }
}

fn place(id: &str) -> ContentBlock {
    ContentBlock::ToolCall { id: id.into() }
}

fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "Read", json!({"file_path": id}))
}

/// The blocks of an answer that is sent back, each in one word.
fn sent_back(answer: Message) -> Vec<String> {
    let results: Vec<Message> = answer.tool_calls.iter().map(|call| Message::tool(&call.id, "x")).collect();
    let body = body(&request([vec![Message::user("go"), answer], results].concat()));
    let blocks = body["messages"][1]["content"].as_array().expect("blocks");
    let word = |block: &Value| {
        let text = ["thinking", "text", "id", "data"].iter().find_map(|key| block[key].as_str());
        text.expect("a word").to_owned()
    };
    blocks.iter().map(word).collect()
}

#[test]
fn an_answer_goes_back_in_the_order_in_which_it_came() {
    let interleaved = vec![
        thought("t1", "anthropic:1"),
        ContentBlock::text("so"),
        thought("t2", "anthropic:2"),
        place("a"),
        thought("t3", "anthropic:3"),
    ];
    let answer = Message::assistant_with(interleaved, vec![call("a"), call("b")]);
    assert_eq!(sent_back(answer), ["t1", "so", "t2", "a", "t3", "b"]);
    // Stored before calls had a place.
    let old = Message::assistant_with(vec![thought("t1", "sig"), ContentBlock::text("so")], vec![call("a")]);
    assert_eq!(sent_back(old), ["t1", "so", "a"]);
    // The call that these thoughts led to was cut off and dropped.
    let cut = Message::assistant_with(vec![place("a"), thought("t2", "anthropic:2")], vec![call("a")]);
    assert_eq!(sent_back(cut), ["a"]);
    let redacted = ContentBlock::Opaque {
        provider: "anthropic".into(),
        data: json!({"type": "redacted_thinking", "data": "r"}),
    };
    let foreign = ContentBlock::Opaque { provider: "openai".into(), data: json!({"data": "foreign"}) };
    let content = vec![thought("no", "gemini:x"), thought("t", "anthropic:1"), redacted, foreign];
    assert_eq!(sent_back(Message::assistant_with(content, vec![call("a")])), ["t", "r", "a"]);
}

#[test]
fn a_conversation_has_results_images_errors_and_cache_marks() {
    let mut failed = Message::tool("b:2", "no");
    failed.metadata = Some(json!({"tool_result": {"status": "error"}}));
    let result =
        Message::tool_with("1", vec![ContentBlock::text("x"), ContentBlock::image("image/png", "AAAA")]);
    let asked = Message::assistant_with(vec![thought("hm", "sig")], vec![call("1"), call("b:2")]);
    let mark = json!({"type": "ephemeral"});
    let body = body(&request(vec![Message::user("go"), asked, result, failed]));
    let id = wire_id(WireFormat::Anthropic, "b:2");
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": mark}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "tool_use", "id": "1", "name": "Read", "input": {"file_path": "1"}},
                {"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": "b:2"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "x"}, image]},
                {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": "no"}],
                    "is_error": true, "cache_control": mark},
            ]},
        ])
    );
    assert_eq!(
        body["system"],
        json!([{"type": "text", "text": "be brief"}, {"type": "text", "text": "be kind", "cache_control": mark}])
    );
    assert_eq!(
        body["tools"][1],
        json!({"name": "Read", "description": "reads", "input_schema": {"type": "object", "properties": {}}, "cache_control": mark})
    );
    assert_eq!(body["tools"][0].get("cache_control"), None);
}

#[test]
fn without_a_cache_there_are_no_marks() {
    let mut request = request(vec![Message::user("go"), Message::assistant("so"), Message::user("on")]);
    request.enable_prompt_cache = false;
    let body = body(&request);
    assert_eq!(body["system"], "be brief\n\nbe kind");
    assert!(!body.to_string().contains("cache_control"), "{body:#}");
    assert_eq!(body["messages"].as_array().map(Vec::len), Some(3));
}

#[test]
fn parameters_match_the_model() {
    let sent = |model: &str, overrides: InferenceOverride| {
        let mut request = request(vec![Message::user("go")]);
        request.model = model.into();
        request.overrides = overrides;
        body(&request)
    };
    let plain = sent("claude-opus-5-5", InferenceOverride::default());
    assert_eq!((&plain["max_tokens"], &plain["stream"]), (&json!(128_000), &json!(true)));
    for (model, limit) in [
        ("claude-opus-4-1", 32_000),
        ("claude-sonnet-4-5", 64_000),
        ("claude-3-5-haiku-latest", 8192),
        ("kimi-k2", 64_000),
    ] {
        assert_eq!(sent(model, InferenceOverride::default())["max_tokens"], limit, "{model}");
    }
    let all = InferenceOverride {
        temperature: Some(0.5),
        top_p: Some(0.9),
        max_tokens: Some(100),
        ..InferenceOverride::default()
    };
    let sent = sent("my-local-max", all);
    assert_eq!(
        (&sent["temperature"], &sent["top_p"], &sent["max_tokens"], &sent["model"]),
        (&json!(0.5), &json!(0.9), &json!(100), &json!("my-local-max"))
    );
}

#[test]
fn thinking_has_the_form_that_each_model_accepts() {
    use ReasoningEffort::{Budget, High, Low, Max, Medium, None as Off};
    let sent = |model: &str, effort: ReasoningEffort| {
        let mut request = request(vec![Message::user("go")]);
        request.model = model.into();
        request.overrides.reasoning_effort = Some(effort);
        let body = body(&request);
        (body["thinking"].clone(), body["output_config"]["effort"].clone())
    };
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    let off = json!({"type": "disabled"});
    for (model, effort, thinking, word) in [
        ("claude-haiku-4-5", Low, budget(1024), Value::Null),
        ("claude-sonnet-4-5", Medium, budget(8000), Value::Null),
        ("claude-sonnet-4-5", High, budget(24_000), Value::Null),
        ("claude-sonnet-4-5", Off, Value::Null, Value::Null),
        ("claude-opus-4-5", High, budget(24_000), Value::Null),
        ("claude-opus-4-5", Max, budget(24_000), Value::Null),
        ("claude-opus-4-6", Max, adaptive.clone(), json!("max")),
        ("claude-opus-4-6", Off, Value::Null, Value::Null),
        ("claude-sonnet-4-6", Low, adaptive.clone(), json!("low")),
        ("claude-sonnet-5", Medium, adaptive.clone(), json!("medium")),
        ("claude-sonnet-5", Off, off.clone(), Value::Null),
        ("claude-opus-5", Off, off, Value::Null),
        ("claude-opus-5-5", High, adaptive.clone(), json!("high")),
        ("claude-opus-5-5", Off, adaptive.clone(), json!("low")),
        ("claude-haiku-5-5", Off, adaptive.clone(), json!("low")),
        ("claude-fable-5-2", Off, adaptive.clone(), json!("low")),
        ("kimi-k2", Medium, budget(8000), Value::Null),
        ("kimi-k2", Off, Value::Null, Value::Null),
        ("claude-sonnet-4-5", Budget(5000), budget(5000), Value::Null),
    ] {
        assert_eq!(sent(model, effort), (thinking, word), "{model} {effort}");
    }
}

#[test]
fn a_budget_leaves_room_and_starts_with_an_answer() {
    let think = |messages: Vec<Message>, max_tokens: u32| {
        let mut request = request(messages);
        request.model = "claude-sonnet-4-5".into();
        request.overrides.reasoning_effort = Some(ReasoningEffort::High);
        request.overrides.max_tokens = Some(max_tokens);
        body(&request)["thinking"]["budget_tokens"].clone()
    };
    let go = || vec![Message::user("go")];
    assert_eq!(think(go(), 4000), 3999, "it is a part of the answer");
    assert_eq!(think(go(), 1000), Value::Null, "there is no room for it");
    let asked = |content: Vec<ContentBlock>| {
        let answer = Message::assistant_with(content, vec![call("a")]);
        vec![Message::user("go"), answer, Message::tool("a", "x")]
    };
    assert_eq!(think(asked(Vec::new()), 64_000), Value::Null, "another model began this answer");
    let steered = [asked(Vec::new()), vec![Message::user("by the way")]].concat();
    assert_eq!(think(steered, 64_000), Value::Null, "it is not over");
    assert_eq!(think(asked(vec![thought("hm", "sig")]), 64_000), 24_000);
    let next = [asked(Vec::new()), vec![Message::assistant("done"), Message::user("more")]].concat();
    assert_eq!(think(next, 64_000), 24_000, "a new answer");
}
