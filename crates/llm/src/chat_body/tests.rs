use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::WireFormat;
use crate::convert::prepare;
use aye_core::contract::message::ToolCall;
use aye_core::contract::tool::ToolDescriptor;

fn origin(base_url: &str) -> ModelEndpoint {
    ModelEndpoint {
        provider: "p".into(),
        adapter: WireFormat::OpenAi,
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
        messages: Arc::new(vec![
            Message::user_with(vec![ContentBlock::text("see"), ContentBlock::image("image/png", "AAAA")])
                .into(),
            Message::assistant_with(content, vec![ToolCall::new("1", "Read", json!({"a": 1}))]).into(),
            Message::tool_with("1", vec![ContentBlock::image("image/png", "BBBB")]).into(),
        ]),
        tools: vec![ToolDescriptor::new("Read", "Read", "reads")],
        enable_prompt_cache: true,
        ..InferenceRequest::default()
    }
}

fn built(request: &InferenceRequest, base_url: &str) -> Value {
    let body = ChatBodies::default().build(request, &origin(base_url)).expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

fn body(base_url: &str) -> Value {
    let request = request();
    built(&request, base_url)
}

#[test]
fn the_conversation_is_encoded_in_order() {
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
fn call_ids_of_other_providers_are_replaced() {
    let foreign = "toolu_01".to_owned() + &"x".repeat(40);
    let ids_for = |base_url: &str, model: &str, id: &str| {
        let mut request = request();
        let mut messages = vec![Message::user("go")];
        messages.push(Message::assistant_with(Vec::new(), vec![ToolCall::new(id, "Read", json!({}))]));
        messages.push(Message::tool(id, "x"));
        request.messages = Arc::new(messages.into_iter().map(Arc::new).collect());
        let origin = ModelEndpoint { model: model.into(), ..origin(base_url) };
        let body = ChatBodies::default().build(&request, &origin).expect("a body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let asked = body["messages"][2]["tool_calls"][0]["id"].as_str().expect("an id").to_owned();
        assert_eq!(body["messages"][3]["tool_call_id"], asked, "a result names its call");
        asked
    };
    for (base_url, model) in
        [("https://api.mistral.ai/v1/", "m"), ("http://gateway/", "mistralai/Devstral-2")]
    {
        for id in ["call_0123456789abcdef0123456789abcdef", "functions.Read:0", "toolu_01", "abc", &foreign] {
            let sent = ids_for(base_url, model, id);
            assert!(sent.len() == 9 && sent.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}: {sent}");
        }
        assert_eq!(ids_for(base_url, model, "D681PevKs"), "D681PevKs", "its own stay");
    }
    for id in ["call_0123456789abcdef0123456789abcdef", "functions.Read:0", "toolu_01"] {
        assert_eq!(ids_for("https://api.moonshot.ai/v1/", "kimi-k3", id), id);
    }
    assert!(ids_for("https://api.openai.com/v1/", "m", &foreign).len() <= 40);
    assert!(!ids_for("https://api.openai.com/v1/", "m", "a b\u{e9}").contains(' '));
}

#[test]
fn the_cache_key_is_stable_as_the_conversation_grows() {
    let mut request = request();
    let key = |request: &_| built(request, "https://api.openai.com/v1/")["prompt_cache_key"].clone();
    let before = key(&request);
    assert!(before.is_string());
    Arc::make_mut(&mut request.messages).push(Message::user("more").into());
    assert_eq!(key(&request), before);
}

#[test]
fn parameters_use_the_names_of_the_model() {
    let mut request = request();
    request.overrides.max_tokens = Some(7);
    request.overrides.reasoning_effort = Some(ReasoningEffort::Low);
    let old = built(&request, "http://h/");
    assert_eq!((&old["max_tokens"], &old["reasoning_effort"]), (&json!(7), &json!("low")));
    request.model = "gpt-5-mini".into();
    let new = built(&request, "http://h/");
    assert_eq!(new["max_completion_tokens"], json!(7));
}

/// A message of a conversation that may be out of order.
fn any_message() -> impl Strategy<Value = Arc<Message>> {
    let id = || prop::sample::select(vec!["1", "2", "3"]);
    let text = || prop::sample::select(vec!["", " ", "so", "\"quoted\"\n"]);
    let call = (id(), prop::sample::select(vec!["Read", "Gone", "b\0d"]), any::<bool>());
    let call = call.prop_map(|(id, name, is_odd)| {
        ToolCall::new(id, name, if is_odd { json!("{\"cut") } else { json!({"a": 1}) })
    });
    let asks = (text(), prop::collection::vec(call, 0..3));
    prop_oneof![
        text().prop_map(Message::user),
        text().prop_map(Message::system),
        asks.prop_map(|(text, calls)| Message::assistant_with(vec![ContentBlock::text(text)], calls)),
        (id(), text()).prop_map(|(id, text)| Message::tool(id, text)),
        id().prop_map(|id| Message::tool_with(id, vec![ContentBlock::image("image/png", "BBBB")])),
    ]
    .prop_map(Arc::new)
}

/// A typical turn: request, call, answer.
fn turn() -> impl Strategy<Value = Vec<Arc<Message>>> {
    (0_usize..3).prop_map(|count| {
        let ids = ["1", "2"][..count.min(2)].iter();
        let calls: Vec<ToolCall> = ids.clone().map(|id| ToolCall::new(*id, "Read", json!({}))).collect();
        let asked = vec![Message::user("go"), Message::assistant_with(vec![ContentBlock::text("x")], calls)];
        let results = ids.map(|id| Message::tool(*id, "y"));
        asked.into_iter().chain(results).map(Arc::new).collect()
    })
}

proptest! {
    /// A body does not depend on earlier requests: the conversation may grow, be rewound or summarised, and
    /// tools, instructions or server may change.
    #[test]
    fn a_body_does_not_depend_on_earlier_requests(
        steps in prop::collection::vec(
            (
                prop_oneof![
                    3 => turn(),
                    1 => prop::collection::vec(any_message(), 0..4),
                ],
                0_usize..3,
                0_u8..12,
            ),
            1..12,
        ),
    ) {
        let bodies = ChatBodies::default();
        let mut request = request();
        Arc::make_mut(&mut request.messages).clear();
        for (added, taken, change) in steps {
            let left = request.messages.len().saturating_sub(if change == 0 { taken } else { 0 });
            Arc::make_mut(&mut request.messages).truncate(left);
            Arc::make_mut(&mut request.messages).extend(added);
            match change {
                1 => request.tools.clear(),
                2 => request.tools = vec![ToolDescriptor::new("Read", "Read", "reads")],
                3 => request.system.push(ContentBlock::text("more")),
                4 if !request.messages.is_empty() => drop(Arc::make_mut(&mut request.messages).remove(0)),
                // A summary is rebuilt for each request with the same text.
                5 => Arc::make_mut(&mut request.messages).insert(0, Arc::new(Message::user("summary"))),
                6 => request.messages = Arc::new(request.messages.iter().map(|m| Arc::new(Message::clone(m))).collect()),
                _ => {}
            }
            let server = if change == 7 { "https://openrouter.ai/api/v1/" } else { "https://api.openai.com/v1/" };
            let origin = origin(server);
            let fresh = ChatBodies::default().build(&request, &origin).expect("a body");
            let body = bodies.build(&request, &origin).expect("a body");
            prop_assert_eq!(String::from_utf8(body), String::from_utf8(fresh.clone()));
            // The incremental body equals the complete one.
            let mut whole = Vec::new();
            encode(&prepare(&request).messages, ServerQuirks::of(&origin), &mut whole).expect("JSON");
            let whole = String::from_utf8(whole).expect("text");
            let fresh = String::from_utf8(fresh).expect("text");
            prop_assert!(fresh.contains(&format!("{whole}]")), "{whole} in {fresh}");
        }
    }
}

#[test]
fn only_new_messages_are_encoded() {
    let bodies = ChatBodies::default();
    let origin = origin("http://h/");
    let known = || {
        let known = bodies.last.lock().expect("not poisoned");
        known.as_ref().map(|known| (known.messages.len(), known.items.as_ptr(), known.items.len()))
    };
    let mut request = request();
    request.messages =
        Arc::new(vec![Arc::new(Message::user("a")), Arc::new(Message::assistant("b".repeat(4096)))]);
    Arc::make_mut(&mut request.messages).push(Arc::new(Message::user("c")));
    bodies.build(&request, &origin).expect("a body");
    let before = known().expect("is stored");
    assert_eq!(before.0, 2, "the last message may still grow");
    bodies.build(&request, &origin).expect("a body");
    assert_eq!(known(), Some(before));
    Arc::make_mut(&mut request.messages).push(Arc::new(Message::assistant("d")));
    bodies.build(&request, &origin).expect("a body");
    assert_eq!(known().expect("is stored").0, 4);
}
