//! Providers' responses: recorded bodies and hand-made ones, over a real socket, through the real executor.

mod failures;
mod recorded;

use std::sync::Arc;
use std::time::Duration;

use aye::contract::content::ContentBlock;
use aye::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStreamEvent};
use aye::contract::inference::{StopReason, StreamResult};
use aye::contract::message::{Message, ToolCall};
use aye::contract::tool::ToolDescriptor;
use aye::llm::{GenaiExecutor, ProviderConfig, WireFormat};
use futures::StreamExt;
use serde_json::{Value, json};

use super::support::mock_server::{End, MockServer, Reply};

type Events = Vec<Result<LlmStreamEvent, InferenceExecutionError>>;

fn request() -> InferenceRequest {
    InferenceRequest {
        model: "the-model".into(),
        upstream_model: "wire-model".into(),
        messages: Arc::new(vec![Message::user("go").into()]),
        ..InferenceRequest::default()
    }
}

fn provider(adapter: WireFormat, server: &MockServer) -> ProviderConfig {
    ProviderConfig::new("testers", adapter)
        .with_base_url(&server.url)
        .with_api_key("sk-secret-key-0123456789")
}

async fn ask(adapter: WireFormat, server: &MockServer) -> Events {
    match GenaiExecutor::with(provider(adapter, server)).execute_stream(request()).await {
        Ok(stream) => stream.collect().await,
        Err(error) => vec![Err(error)],
    }
}

async fn replay(adapter: WireFormat, reply: Reply) -> Events {
    let server = MockServer::start([reply]).await;
    tokio::time::timeout(Duration::from_secs(30), ask(adapter, &server)).await.expect("an end")
}

/// The whole answer, after a check of the event order.
fn finished(events: &Events) -> &StreamResult {
    let finishes = events.iter().filter(|e| matches!(e, Ok(LlmStreamEvent::Finish { .. }))).count();
    assert_eq!(finishes, 1, "{events:#?}");
    assert!(events.iter().all(Result::is_ok), "{events:#?}");
    let Some(Ok(LlmStreamEvent::Finish { result, model })) = events.last() else {
        panic!("the end comes last: {events:#?}")
    };
    assert_eq!(model, "the-model");
    let (mut text, mut thoughts) = (String::new(), String::new());
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for event in events.iter().flatten() {
        match event {
            LlmStreamEvent::TextDelta(delta) => text.push_str(delta),
            LlmStreamEvent::ReasoningDelta(delta) => thoughts.push_str(delta),
            LlmStreamEvent::ToolCallStart { id, name } => {
                calls.push((id.clone(), name.clone(), String::new()));
            }
            LlmStreamEvent::ToolCallDelta { id, args_delta } => {
                calls.iter_mut().find(|call| call.0 == *id).expect("a start").2.push_str(args_delta);
            }
            LlmStreamEvent::ReasoningEncrypted(_)
            | LlmStreamEvent::StopDetail(_)
            | LlmStreamEvent::Retrying { .. }
            | LlmStreamEvent::Finish { .. } => {}
        }
    }
    assert_eq!(text, result.text(), "the streamed text is the stored one");
    assert_eq!(thoughts, thoughts_of(result));
    for call in result.tool_calls.iter().filter(|call| call.invalid.is_none()) {
        let streamed = calls.iter().find(|(id, ..)| *id == call.id).expect("one start per call");
        assert_eq!(streamed.1, call.name);
        let args = if streamed.2.is_empty() { "{}" } else { &streamed.2 };
        assert_eq!(serde_json::from_str::<Value>(args).expect("JSON"), call.arguments);
    }
    result
}

fn thoughts_of(result: &StreamResult) -> String {
    result
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Thinking { thinking, .. } => Some(thinking.as_str()),
            ContentBlock::Text { .. }
            | ContentBlock::Image { .. }
            | ContentBlock::StoredImage(_)
            | ContentBlock::Opaque { .. }
            | ContentBlock::ToolCall { .. } => None,
        })
        .collect()
}

fn failed(events: &Events) -> &InferenceExecutionError {
    assert_eq!(events.iter().filter(|event| event.is_err()).count(), 1, "{events:#?}");
    let Some(Err(error)) = events.last() else { panic!("the error comes last: {events:#?}") };
    error
}

fn calls(result: &StreamResult) -> Vec<(&str, &Value)> {
    result.tool_calls.iter().map(|call| (call.name.as_str(), &call.arguments)).collect()
}

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/wire/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn chat_frames(frames: &[Value]) -> String {
    frames.iter().flat_map(|frame| ["data: ".to_owned(), frame.to_string(), "\n\n".to_owned()]).collect()
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

const FIXTURES: [(&str, WireFormat); 8] = [
    ("openai-chat-parallel-tools.sse", WireFormat::OpenAi),
    ("deepseek-chat-tool.sse", WireFormat::OpenAi),
    ("gateway-chat-index-from-one.sse", WireFormat::OpenAi),
    ("openrouter-chat-error-mid-stream.sse", WireFormat::OpenAi),
    ("openai-responses-reasoning-tools.sse", WireFormat::OpenAiResponses),
    ("anthropic-thinking-tool.sse", WireFormat::Anthropic),
    ("gemini-tool.sse", WireFormat::Gemini),
    ("ollama-chat.ndjson", WireFormat::Ollama),
];

#[tokio::test]
async fn each_wire_format_returns_the_models_answer() {
    for (name, adapter) in FIXTURES {
        let events = replay(adapter, Reply::sse(fixture(name))).await;
        if name.starts_with("openrouter") {
            assert!(failed(&events).to_string().contains("Token limit reached"), "{events:#?}");
            continue;
        }
        let result = finished(&events);
        if name.starts_with("gateway") {
            assert_eq!(calls(result), [("Read", &json!({"file_path": "a.txt"}))]);
            assert_eq!(result.tool_calls[0].id, "toolu_1");
            continue;
        }
        let usage = result.usage.expect("usage");
        let read = json!({"file_path": "grüße.txt"});
        let here = json!({"path": "."});
        match name {
            "openai-chat-parallel-tools.sse" => {
                assert_eq!(calls(result), [("Read", &read), ("List", &json!({}))]);
                assert_eq!((usage.total_tokens, usage.cache_read_tokens), (Some(49), Some(32)));
            }
            "deepseek-chat-tool.sse" => {
                assert_eq!(
                    (calls(result), thoughts_of(result)),
                    (vec![("List", &here)], "I should look.".into())
                );
                assert_eq!((usage.cache_read_tokens, usage.thinking_tokens), (Some(20), Some(4)));
            }
            "openai-responses-reasoning-tools.sse" => {
                assert_eq!(
                    (calls(result), thoughts_of(result)),
                    (vec![("List", &here)], "Look first.".into())
                );
                assert!(result.content.iter().any(|block| matches!(block,
                    ContentBlock::Thinking { signature: Some(proof), .. } if proof == "openai_responses:gAAA")));
                assert_eq!((usage.prompt_tokens, usage.thinking_tokens), (Some(70), Some(8)));
            }
            "anthropic-thinking-tool.sse" => {
                assert_eq!(calls(result), [("List", &here)]);
                assert_eq!(
                    result.content,
                    [
                        ContentBlock::Thinking {
                            thinking: "Look first.".into(),
                            signature: Some("anthropic:EqRR".into()),
                        },
                        ContentBlock::Opaque {
                            provider: "anthropic".into(),
                            data: json!({"type": "redacted_thinking", "data": "opaque"}),
                        },
                        ContentBlock::text("I look – now."),
                    ]
                );
                assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(115), Some(42)));
                assert_eq!((usage.cache_read_tokens, usage.cache_creation_tokens), (Some(100), Some(5)));
            }
            "gemini-tool.sse" => {
                assert_eq!(calls(result), [("List", &here), ("List", &json!({"path": "src"}))]);
                assert_eq!(result.tool_calls[0].signatures, ["gemini:EpoI"]);
                assert_ne!(result.tool_calls[0].id, result.tool_calls[1].id);
                assert_eq!((usage.completion_tokens, usage.thinking_tokens), (Some(14), Some(6)));
            }
            "ollama-chat.ndjson" => {
                assert_eq!(calls(result), [("List", &here), ("List", &json!({"path": "src"}))]);
                assert_eq!(result.text(), "Earth’s sky");
                assert_eq!(usage.total_tokens, Some(61));
            }
            _ => panic!("no expectation for {name}"),
        }
        assert_eq!(result.stop_reason, Some(StopReason::ToolUse), "{name}");
    }
}

#[tokio::test]
async fn segment_boundaries_do_not_matter() {
    for (name, adapter) in FIXTURES {
        let body = fixture(name);
        let whole = without_ids(replay(adapter, Reply::sse(body.clone())).await);
        let bytewise = without_ids(replay(adapter, Reply::sse(body.clone()).in_pieces_of(1)).await);
        assert_eq!(bytewise, whole, "{name}");
        if adapter == WireFormat::Ollama {
            continue;
        }
        for line_end in ["\r\n", "\r"] {
            let text = String::from_utf8(body.clone()).expect("text").replace('\n', line_end);
            for size in [1, 7] {
                let other = replay(adapter, Reply::sse(text.clone()).in_pieces_of(size)).await;
                assert_eq!(without_ids(other), whole, "{name} {line_end:?} {size}");
            }
        }
    }
}

/// Made-up ids differ from run to run.
fn without_ids(events: Events) -> Vec<String> {
    events
        .into_iter()
        .map(|event| match event {
            Ok(LlmStreamEvent::ToolCallStart { name, .. }) => format!("start {name}"),
            Ok(LlmStreamEvent::ToolCallDelta { args_delta, .. }) => format!("args {args_delta}"),
            Ok(LlmStreamEvent::Finish { mut result, .. }) => {
                result.tool_calls.iter_mut().for_each(|call| call.id.clear());
                format!("{result:?}")
            }
            other => format!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn a_stream_that_stops_early_is_an_error_wherever_it_stops() {
    for (name, adapter) in FIXTURES.into_iter().filter(|(name, _)| !name.starts_with("openrouter")) {
        let body = fixture(name);
        let text = String::from_utf8(body.clone()).expect("text");
        // The last token of each format; chat completions are complete once the stop reason is there.
        let mark = match adapter {
            WireFormat::OpenAi => "\"finish_reason\":\"tool_calls\"",
            WireFormat::OpenAiResponses => "\"type\":\"response.completed\"",
            WireFormat::Anthropic => "\"type\":\"message_stop\"",
            WireFormat::Gemini => "\"finishReason\"",
            WireFormat::Ollama => "\"done\":true",
        };
        let last = text.find(mark).expect("a final token");
        for cut in (0..=last).step_by(last / 23) {
            for end in [End::Close, End::Cut] {
                let events = replay(adapter, Reply::sse(&body[..cut]).ends(end)).await;
                let error = failed(&events);
                assert!(
                    matches!(error, InferenceExecutionError::Network(_)),
                    "{name} at {cut} {end:?}: {error:?}"
                );
                assert!(
                    error.to_string().starts_with("the stream ended before the answer was complete"),
                    "{error}"
                );
                assert!(error.is_retryable());
            }
        }
    }
}

#[tokio::test]
async fn data_after_the_end_is_ignored() {
    let mut body = fixture("anthropic-thinking-tool.sse");
    let once = without_ids(replay(WireFormat::Anthropic, Reply::sse(body.clone())).await);
    body.extend_from_slice(
        b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":9,\"delta\":{\"type\":\"text_delta\",\"text\":\"more\"}}\n\n\
          event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    assert_eq!(without_ids(replay(WireFormat::Anthropic, Reply::sse(body)).await), once);
    let mut body = chat_frames(&[delta(json!({"content": "a"})), finish("stop")]);
    body.push_str("data: [DONE]\n\ndata: {\"error\":{\"message\":\"late\"}}\n\n");
    assert_eq!(finished(&replay(WireFormat::OpenAi, Reply::sse(body)).await).text(), "a");
}

#[tokio::test]
async fn a_call_without_an_index_is_not_lost() {
    let body = chat_frames(&[
        delta(
            json!({"tool_calls": [{"id": "a", "function": {"name": "Read", "arguments": "{\"file_path\":"}}]}),
        ),
        delta(json!({"tool_calls": [{"function": {"arguments": "\"x\"}"}}]})),
        delta(json!({"tool_calls": [{"id": "b", "function": {"name": "List", "arguments": "{}"}}]})),
        finish("tool_calls"),
    ]);
    let events = replay(WireFormat::OpenAi, Reply::sse(body)).await;
    let result = finished(&events);
    assert_eq!(calls(result), [("Read", &json!({"file_path": "x"})), ("List", &json!({}))]);
}

#[tokio::test]
async fn an_absurd_index_costs_nothing() {
    let body = chat_frames(&[
        delta(
            json!({"tool_calls": [{"index": 4_294_967_295_u64, "id": "a", "function": {"name": "List", "arguments": "{}"}}]}),
        ),
        finish("tool_calls"),
    ]);
    assert_eq!(finished(&replay(WireFormat::OpenAi, Reply::sse(body)).await).tool_calls.len(), 1);
}

#[tokio::test]
async fn duplicate_and_used_ids_are_replaced() {
    let call = |index: u64, id: &str| json!({"index": index, "id": id, "function": {"name": "List", "arguments": "{}"}});
    let body = chat_frames(&[
        delta(json!({"tool_calls": [call(0, "a"), call(1, "b"), call(2, "b")]})),
        finish("tool_calls"),
    ]);
    let server = MockServer::start([Reply::sse(body)]).await;
    let mut request = request();
    request.messages = Arc::new(vec![
        Message::user("go").into(),
        Message::assistant_with(vec![], vec![ToolCall::new("a", "List", json!({}))]).into(),
        Message::tool("a", "files").into(),
    ]);
    let result =
        GenaiExecutor::with(provider(WireFormat::OpenAi, &server)).execute(request).await.expect("an answer");
    let ids: Vec<&str> = result.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids.len(), 3);
    assert_ne!(ids[0], "a", "an id of an earlier turn is not reused");
    assert_eq!(ids[1], "b");
    assert_ne!(ids[2], "b");
}

#[tokio::test]
async fn the_output_limit_drops_the_truncated_call() {
    let body = chat_frames(&[
        delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "List", "arguments": "{}"}}]}),
        ),
        delta(
            json!({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "Bash", "arguments": "{\"command\":\"rm -rf "}}]}),
        ),
        finish("length"),
    ]);
    let events = replay(WireFormat::OpenAi, Reply::sse(body)).await;
    let result = finished(&events);
    assert_eq!(calls(result), [("List", &json!({}))]);
    assert!(result.has_incomplete_tool_calls);
    assert_eq!(result.stop_reason, Some(StopReason::MaxTokens));
}

#[tokio::test]
async fn unusable_arguments_never_run() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    for (args, why) in [
        ("{\"command\":\"rm -rf ", "cut off"),
        (deep.as_str(), "deeper"),
        ("[1]", "a list"),
        ("{\"a\":1}}", "not valid JSON"),
        ("{\"command\":\"ls\",\"command\":\"rm\"}", "duplicate key"),
    ] {
        let body = chat_frames(&[
            delta(
                json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "Bash", "arguments": args}}]}),
            ),
            finish("tool_calls"),
        ]);
        let events = replay(WireFormat::OpenAi, Reply::sse(body)).await;
        let result = finished(&events);
        let call = &result.tool_calls[0];
        assert_eq!(call.arguments, json!({}));
        assert!(call.invalid.as_deref().expect("a reason").contains(why), "{call:?}");
    }
}

#[tokio::test]
async fn a_name_with_hidden_characters_is_refused() {
    for name in ["bash\u{0}", "", "Ba\u{200b}sh", "Bash\n"] {
        let body = chat_frames(&[
            delta(
                json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": name, "arguments": "{}"}}]}),
            ),
            finish("tool_calls"),
        ]);
        let events = replay(WireFormat::OpenAi, Reply::sse(body)).await;
        let call = &finished(&events).tool_calls[0];
        assert!(call.invalid.is_some() && call.name != "Bash" && call.name != "bash", "{call:?}");
        assert!(!call.name.chars().any(char::is_control), "{call:?}");
    }
}

/// Formats in which only the end of the stream says that an answer is complete, with a server that does not
/// end it.
#[tokio::test]
async fn a_connection_left_open_keeps_the_answer_complete() {
    for (adapter, body) in [
        (WireFormat::OpenAi, chat_frames(&[delta(json!({"content": "all of it"})), finish("stop")])),
        (
            WireFormat::Gemini,
            chat_frames(&[json!({"candidates": [{
                "content": {"parts": [{"text": "all of it"}]},
                "finishReason": "STOP",
            }]})]),
        ),
    ] {
        for end in [End::Hang, End::Trickle] {
            let server = MockServer::start([Reply::sse(body.clone()).ends(end)]).await;
            let mut config = provider(adapter, &server);
            config.answer_timeout = Duration::from_millis(200);
            let stream = GenaiExecutor::with(config).execute_stream(request()).await.expect("a stream");
            let events: Events = stream.collect().await;
            assert_eq!(finished(&events).text(), "all of it", "{adapter:?} {end:?}");
        }
    }
}

#[tokio::test]
async fn text_after_a_first_stop_reason_is_part_of_the_answer() {
    let part = |text: &str, reason: Option<&str>| {
        let mut candidate = json!({"content": {"role": "model", "parts": [{"text": text}]}, "index": 0});
        if let Some(reason) = reason {
            candidate["finishReason"] = json!(reason);
        }
        json!({"candidates": [candidate]})
    };
    let body =
        chat_frames(&[part("one ", Some("STOP")), part("two ", None), part("three", Some("MAX_TOKENS"))]);
    let events = replay(WireFormat::Gemini, Reply::sse(body)).await;
    let result = finished(&events);
    assert_eq!(result.text(), "one two three");
    assert_eq!(result.stop_reason, Some(StopReason::MaxTokens), "the last reason wins");
}

#[tokio::test]
async fn each_wire_format_reports_its_stop_reason() {
    use StopReason::{ContentFilter, MaxTokens, Refusal};
    let anthropic = |reason: &str, details: Value| {
        chat_frames(&[
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "No"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_details": details}}),
            json!({"type": "message_stop"}),
        ])
    };
    let gemini = |candidate: Value| chat_frames(&[json!({"candidates": [candidate]})]);
    let responses = |frames: &[Value]| chat_frames(frames);
    let ended = |reason: Value| json!({"type": "response.completed", "response": {"output": [], "incomplete_details": reason}});
    for (adapter, body, reason, detail, text) in [
        (
            WireFormat::Anthropic,
            anthropic("refusal", json!({"type": "refusal", "category": "cyber"})),
            Refusal,
            "cyber",
            "No",
        ),
        (WireFormat::Anthropic, anthropic("refusal", json!(null)), Refusal, "", "No"),
        (WireFormat::Anthropic, anthropic("max_tokens", json!(null)), MaxTokens, "", "No"),
        (
            WireFormat::OpenAi,
            chat_frames(&[delta(json!({"content": "No"})), finish("content_filter")]),
            ContentFilter,
            "",
            "No",
        ),
        // The reason is an ordinary one: only the field marks it as a refusal.
        (
            WireFormat::OpenAi,
            chat_frames(&[delta(json!({"refusal": "No"})), finish("stop")]),
            Refusal,
            "",
            "No",
        ),
        (
            WireFormat::OpenAi,
            chat_frames(&[delta(json!({"content": "No"})), finish("length")]),
            MaxTokens,
            "",
            "No",
        ),
        (
            WireFormat::OpenAiResponses,
            responses(&[json!({"type": "response.refusal.delta", "delta": "No"}), ended(json!(null))]),
            Refusal,
            "",
            "No",
        ),
        (
            WireFormat::OpenAiResponses,
            responses(&[
                json!({"type": "response.output_text.delta", "delta": "No"}),
                ended(json!({"reason": "content_filter"})),
            ]),
            ContentFilter,
            "",
            "No",
        ),
        (
            WireFormat::OpenAiResponses,
            responses(&[json!({"type": "response.completed", "response": {"output": [
                {"type": "message", "content": [{"type": "refusal", "refusal": "No"}]},
            ]}})]),
            Refusal,
            "",
            "No",
        ),
        (
            WireFormat::Gemini,
            gemini(json!({"content": {"parts": [{"text": "No"}]}, "finishReason": "SAFETY"})),
            ContentFilter,
            "SAFETY",
            "No",
        ),
        (
            WireFormat::Gemini,
            chat_frames(&[json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})]),
            ContentFilter,
            "PROHIBITED_CONTENT",
            "",
        ),
        (
            WireFormat::Ollama,
            format!("{}\n", json!({"message": {"content": "No"}, "done": true, "done_reason": "length"})),
            MaxTokens,
            "",
            "No",
        ),
    ] {
        let events = replay(adapter, Reply::sse(body.clone())).await;
        let result = finished(&events);
        assert_eq!((result.stop_reason, result.text().as_str()), (Some(reason), text), "{adapter:?} {body}");
        let said: Vec<&str> = events
            .iter()
            .filter_map(|event| match event {
                Ok(LlmStreamEvent::StopDetail(detail)) => Some(detail.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(said.concat(), detail, "{adapter:?} {body}");
    }
}

#[tokio::test]
async fn tools_of_responses_are_not_strict() {
    let server = MockServer::start([Reply::new(400, "{}")]).await;
    let mut request = request();
    let schema = json!({
        "type": "object",
        "properties": {"file_path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["file_path"],
    });
    request.tools = vec![ToolDescriptor::new("Read", "Read", "reads").with_parameters(schema.clone())];
    let _ = GenaiExecutor::with(provider(WireFormat::OpenAiResponses, &server)).execute(request).await;
    let tool = &server.asked()[0].body["tools"][0];
    assert_eq!(tool["strict"], false, "omitted, it means true: {tool:#}");
    assert_eq!(tool["parameters"], schema, "optional arguments stay optional");
}

#[tokio::test]
async fn the_request_matches_what_the_provider_expects() {
    let mut request = request();
    request.upstream_model = "my-local-max".into();
    request.system = vec![ContentBlock::text("be brief")];
    for (adapter, path, header) in [
        (WireFormat::OpenAi, "/v1/chat/completions", "authorization"),
        (WireFormat::OpenAiResponses, "/v1/responses", "authorization"),
        (WireFormat::Anthropic, "/v1/messages", "x-api-key"),
        (WireFormat::Gemini, "/v1beta/models/my-local-max:streamGenerateContent?alt=sse", "x-goog-api-key"),
        (WireFormat::Ollama, "/api/chat", ""),
    ] {
        for slash in ["", "/"] {
            let server = MockServer::start([Reply::new(400, "{}")]).await;
            let config = provider(adapter, &server).with_base_url(format!("{}{slash}", server.url));
            let _ = GenaiExecutor::with(config).execute(request.clone()).await;
            let asked = server.asked();
            assert_eq!(asked[0].path, path);
            if adapter != WireFormat::Gemini {
                assert_eq!(asked[0].body["model"], "my-local-max", "{adapter:?}: {}", asked[0].body);
            }
            assert!(asked[0].body.to_string().contains("be brief"));
            for field in ["reasoning_effort", "thinking", "think", "output_config"] {
                assert!(asked[0].body.get(field).is_none(), "{adapter:?} sends {field}");
            }
            assert!(asked[0].body.pointer("/reasoning/effort").is_none());
            if !header.is_empty() {
                assert!(asked[0].header(header).expect("a key").contains("sk-secret"));
            }
        }
    }
}

#[tokio::test]
async fn ollama_receives_the_options_of_a_request() {
    let server = MockServer::start([Reply::new(400, "{}"), Reply::new(400, "{}")]).await;
    let mut request = request();
    request.overrides.max_tokens = Some(7);
    request.overrides.temperature = Some(0.5);
    let config = provider(WireFormat::Ollama, &server);
    let _ = GenaiExecutor::with(config.clone()).execute(request.clone()).await;
    let _ = GenaiExecutor::with(config.with_context_window(9000)).execute(request).await;
    let asked = server.asked();
    assert_eq!(asked[0].body["options"], json!({"num_predict": 7, "temperature": 0.5}));
    assert_eq!(asked[1].body["options"], json!({"num_ctx": 9000, "num_predict": 7, "temperature": 0.5}));
}

#[tokio::test]
async fn a_keyless_server_gets_no_key() {
    let server = MockServer::start([Reply::sse(fixture("deepseek-chat-tool.sse"))]).await;
    let config = ProviderConfig::new("local", WireFormat::OpenAi).with_base_url(&server.url);
    GenaiExecutor::with(config).execute(request()).await.expect("an answer");
    assert_eq!(server.asked()[0].header("authorization"), None);
    let official = GenaiExecutor::with(ProviderConfig::new("openai", WireFormat::OpenAi));
    let error = official.execute(request()).await.expect_err("no key");
    assert!(matches!(error, InferenceExecutionError::Unauthorized(_)), "{error:?}");
}

/// A model's answer goes into the next request, signatures included.
#[tokio::test]
async fn an_answer_and_its_signatures_go_into_the_next_request() {
    for (name, adapter, proofs) in [
        ("anthropic-thinking-tool.sse", WireFormat::Anthropic, &["EqRR", "opaque", "Look first."][..]),
        ("openai-responses-reasoning-tools.sse", WireFormat::OpenAiResponses, &["gAAA"]),
        ("gemini-tool.sse", WireFormat::Gemini, &["EpoI"]),
        ("openai-chat-parallel-tools.sse", WireFormat::OpenAi, &["call_a", "call_b"]),
        ("ollama-chat.ndjson", WireFormat::Ollama, &["List"]),
    ] {
        let server = MockServer::start([Reply::sse(fixture(name))]).await;
        let executor = GenaiExecutor::with(provider(adapter, &server));
        let mut request = request();
        request.system = vec![ContentBlock::text("one"), ContentBlock::text("two")];
        request.tools = ["List", "Read"].map(|tool| ToolDescriptor::new(tool, tool, "a tool")).to_vec();
        request.enable_prompt_cache = true;
        let result = executor.execute(request.clone()).await.expect("an answer");
        let ids: Vec<String> = result.tool_calls.iter().map(|call| call.id.clone()).collect();
        let answer = Message::assistant_with(result.content, result.tool_calls);
        Arc::make_mut(&mut request.messages).push(answer.into());
        let png = ContentBlock::image("image/png", "iVBORw0KGgo=");
        for id in &ids {
            let found = Message::tool_with(id, vec![ContentBlock::text("found"), png.clone()]);
            Arc::make_mut(&mut request.messages).push(found.into());
        }
        executor.execute(request).await.expect("another answer");
        let body = &server.asked()[1].body;
        let text = body.to_string();
        for proof in proofs {
            assert!(text.contains(proof), "{name}: {proof} in {body:#}");
        }
        assert!(text.contains("found"), "{name}: {body:#}");
        let kind = if adapter == WireFormat::Ollama { "" } else { "image/png" };
        let sent = super::images::pictures(adapter, body);
        assert_eq!(sent, vec![(kind.to_owned(), "iVBORw0KGgo=".to_owned()); ids.len()], "{name}: {body:#}");
        for mark in ["anthropic:", "gemini:", "openai_responses:"] {
            assert!(!text.contains(mark), "{name}: our own prefix is not sent");
        }
        if adapter != WireFormat::Anthropic {
            assert!(!text.contains("cache_control"), "{name}");
            continue;
        }
        let mark = json!({"type": "ephemeral"});
        assert_eq!(body["system"][1]["cache_control"], mark);
        assert!(body["system"][0].get("cache_control").is_none());
        assert_eq!(body["tools"][1]["cache_control"], mark);
        let last = body["messages"].as_array().and_then(|messages| messages.last()).expect("messages");
        assert_eq!((&last["role"], &last["content"][0]["cache_control"]), (&json!("user"), &mark));
        assert_eq!(last["content"][0]["content"][1]["source"]["media_type"], "image/png");
        let kinds: Vec<&Value> = body["messages"][1]["content"]
            .as_array()
            .expect("has blocks")
            .iter()
            .map(|b| &b["type"])
            .collect();
        assert_eq!(kinds, ["thinking", "redacted_thinking", "text", "tool_use"]);
        // The tools, the system text, the end of the last request and of this one: at most four are allowed.
        assert_eq!(text.matches("cache_control").count(), 4);
    }
}
