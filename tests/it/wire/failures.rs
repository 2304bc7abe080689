//! Wire failures: statuses, silence, and hosts that must not get the key.

use super::recorded::recording;
use super::*;

#[tokio::test]
async fn known_provider_errors_are_explained() {
    let quota = br#"{"error": {"code": 429, "message": "Quota is used up.", "status": "RESOURCE_EXHAUSTED", "details": [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}]}}"#;
    let listed = format!("[{}]", String::from_utf8_lossy(quota)).into_bytes();
    for body in [Some(quota.to_vec()), Some(listed), recording("gemini-error-429.json")].into_iter().flatten()
    {
        let events = replay(WireFormat::Gemini, Reply::new(429, body)).await;
        let error = failed(&events);
        assert_eq!(error.code(), "rate_limited", "{error:?}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs_f64(34.4)));
    }
    let unknown =
        br#"{"type": "error", "error": {"type": "not_found_error", "message": "model: wire-model"}}"#;
    for body in [Some(unknown.to_vec()), recording("anthropic-error-404.json")].into_iter().flatten() {
        let server = MockServer::start([Reply::new(404, body)]).await;
        let events = ask(WireFormat::Anthropic, &server).await;
        let error = failed(&events);
        assert_eq!(error.code(), "invalid_request", "{error:?}");
        for word in ["testers", "wire-model", server.url.as_str()] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}

#[tokio::test]
async fn statuses_are_classified_by_remedy() {
    let said = r#"{"error":{"message":"because","type":"x"}}"#;
    for (status, body, code) in [
        (400, said, "invalid_request"),
        (401, said, "unauthorized"),
        (403, said, "unauthorized"),
        (404, said, "invalid_request"),
        (408, said, "timeout"),
        (413, said, "context_overflow"),
        (422, said, "invalid_request"),
        (429, said, "rate_limited"),
        (429, r#"{"error":{"message":"quota","code":"insufficient_quota"}}"#, "unauthorized"),
        (500, said, "unavailable"),
        (503, "<html>down</html>", "unavailable"),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "unavailable",
        ),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
            "context_overflow",
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            "context_overflow",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed","status":"INVALID_ARGUMENT"}}"#,
            "context_overflow",
        ),
    ] {
        for adapter in WireFormat::ALL {
            let events = replay(adapter, Reply::new(status, body)).await;
            let error = failed(&events);
            assert_eq!(error.code(), code, "{adapter:?} {status} {body}: {error}");
            assert!(error.to_string().contains("testers"), "{error}");
        }
    }
}

#[tokio::test]
async fn retry_after_is_parsed_in_every_form_and_nonsense_is_ignored() {
    for (value, seconds) in [
        ("7", Some(7.0)),
        ("1.5", Some(1.5)),
        ("-5", None),
        ("NaN", None),
        ("1e9", None),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
    ] {
        for adapter in [WireFormat::OpenAi, WireFormat::Anthropic] {
            let reply = Reply::new(429, "{}").header("retry-after", value);
            let events = replay(adapter, reply).await;
            let asked = failed(&events).retry_after().map(|wait| wait.as_secs_f64());
            assert_eq!(asked, seconds, "{adapter:?} {value}");
        }
    }
    let reply = Reply::new(503, "{}").header("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT");
    let events = replay(WireFormat::OpenAi, reply).await;
    assert!(failed(&events).retry_after().expect("a date") > Duration::from_hours(24 * 365));
}

#[tokio::test]
async fn keys_are_in_no_error_and_go_to_no_other_host() {
    let key = "sk-secret-key-0123456789";
    for adapter in WireFormat::ALL {
        let body = format!(r#"{{"error":{{"message":"bad key {key} and sk-other-key-9876543210"}}}}"#);
        let events = replay(adapter, Reply::new(401, body)).await;
        let text = format!("{:?}", failed(&events));
        assert!(!text.contains("secret-key") && !text.contains("other-key"), "{text}");
        let other = MockServer::start([Reply::sse("data: [DONE]\n\n")]).await;
        let server = MockServer::start([Reply::new(307, "").header("location", &other.url)]).await;
        let events = ask(adapter, &server).await;
        assert!(matches!(failed(&events), InferenceExecutionError::InvalidRequest(_)), "{events:?}");
        assert!(other.asked().is_empty());
    }
}

#[tokio::test]
async fn an_unreachable_server_is_reported_with_its_url() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("a valid address"));
    drop(listener);
    for adapter in WireFormat::ALL {
        let config = ProviderConfig::new("testers", adapter).with_base_url(&url).with_api_key("k");
        let events: Events = match GenaiExecutor::with(config).execute_stream(request()).await {
            Ok(stream) => stream.collect().await,
            Err(error) => vec![Err(error)],
        };
        let error = failed(&events);
        assert!(matches!(error, InferenceExecutionError::Network(_)), "{error:?}");
        assert!(error.to_string().contains(&url), "{error}");
    }
}

#[tokio::test]
async fn silence_is_a_timeout() {
    for (adapter, start) in [
        (WireFormat::OpenAi, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"),
        (WireFormat::Anthropic, "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
    ] {
        let server = MockServer::start([Reply::sse(start).ends(End::Hang)]).await;
        let mut config = provider(adapter, &server);
        config.read_timeout = Duration::from_millis(50);
        let stream = GenaiExecutor::with(config).execute_stream(request()).await.expect("a stream");
        let events: Events = stream.collect().await;
        assert!(matches!(failed(&events), InferenceExecutionError::Timeout(_)), "{events:?}");
    }
}

#[tokio::test]
async fn a_trickling_stream_is_cut_off() {
    for (adapter, start) in [
        (WireFormat::OpenAi, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"),
        (WireFormat::Anthropic, "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
        (WireFormat::Gemini, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n\n"),
    ] {
        let server = MockServer::start([Reply::sse(start).ends(End::Trickle)]).await;
        let mut config = provider(adapter, &server);
        config.answer_timeout = Duration::from_millis(200);
        let stream = GenaiExecutor::with(config).execute_stream(request()).await.expect("a stream");
        let all = tokio::time::timeout(Duration::from_secs(30), stream.collect::<Events>());
        let events = all.await.expect("an end");
        let error = failed(&events);
        assert_eq!((error.code(), error.is_retryable()), ("timeout", false), "{adapter:?}: {events:?}");
        assert!(error.to_string().contains("0.2 s"), "{error}");
    }
}

#[tokio::test]
async fn a_non_stream_reply_is_understood_or_explained() {
    let whole = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    assert_eq!(finished(&replay(WireFormat::OpenAi, Reply::new(200, whole)).await).text(), "hi");
    let events =
        replay(WireFormat::OpenAi, Reply::new(200, r#"{"error":{"message":"nope","code":503}}"#)).await;
    assert_eq!(failed(&events).code(), "unavailable");
    // A whole answer, in the form of each format, longer than what is read of anything else.
    let long = "word ".repeat(50_000);
    let candidate = |text: &str, more: Value| {
        let mut candidate = json!({"content": {"parts": [{"text": text}]}});
        candidate.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        json!({"candidates": [candidate]})
    };
    for (adapter, whole) in [
        (
            WireFormat::OpenAi,
            json!({"choices": [{"message": {"content": long, "tool_calls": [
                {"id": "a", "function": {"name": "Read", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]}),
        ),
        (
            WireFormat::Anthropic,
            json!({"type": "message", "role": "assistant", "stop_reason": "tool_use", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": long},
                {"type": "tool_use", "id": "a", "name": "Read", "input": {}},
            ], "usage": {"input_tokens": 5, "output_tokens": 7}}),
        ),
        (
            WireFormat::OpenAiResponses,
            json!({"object": "response", "status": "completed", "output": [
                {"type": "message", "content": [{"type": "output_text", "text": long}]},
                {"type": "function_call", "call_id": "a", "name": "Read", "arguments": "{}"},
            ]}),
        ),
        (
            WireFormat::Gemini,
            json!([candidate(&long, json!({})), {"candidates": [{"finishReason": "STOP", "content": {"parts": [
                {"functionCall": {"id": "a", "name": "Read", "args": {}}}]}}]}]),
        ),
    ] {
        for body in [whole.to_string(), serde_json::to_string_pretty(&whole).expect("JSON")] {
            let events = replay(adapter, Reply::new(200, body)).await;
            let result = finished(&events);
            assert_eq!(
                (result.text().len(), calls(result)),
                (long.len(), vec![("Read", &json!({}))]),
                "{adapter:?}"
            );
            assert_eq!(result.stop_reason, Some(StopReason::ToolUse), "{adapter:?}");
        }
    }
    for adapter in [WireFormat::Anthropic, WireFormat::OpenAiResponses] {
        let events = replay(adapter, Reply::new(200, r#"{"error":{"message":"nope","code":503}}"#)).await;
        assert_eq!(failed(&events).code(), "unavailable", "{adapter:?}");
    }
    let events = replay(WireFormat::OpenAi, Reply::new(200, "<!DOCTYPE html><p>Welcome")).await;
    assert!(failed(&events).to_string().contains("base_url"));
    let events = replay(WireFormat::OpenAi, Reply::sse("")).await;
    assert_eq!(failed(&events).code(), "network");
}

#[tokio::test]
async fn the_last_event_needs_no_empty_line() {
    for (name, adapter) in [
        ("anthropic-thinking-tool.sse", WireFormat::Anthropic),
        ("openai-responses-reasoning-tools.sse", WireFormat::OpenAiResponses),
        ("gemini-tool.sse", WireFormat::Gemini),
    ] {
        let body = String::from_utf8(fixture(name)).expect("text");
        let whole = without_ids(replay(adapter, Reply::sse(body.clone())).await);
        let events = replay(adapter, Reply::sse(body.trim_end())).await;
        assert_eq!(without_ids(events), whole, "{name}");
    }
    let body = chat_frames(&[delta(json!({"content": "all of it"})), finish("stop")]);
    let events = replay(WireFormat::OpenAi, Reply::sse(body.trim_end())).await;
    assert_eq!(finished(&events).text(), "all of it");
}

#[tokio::test]
async fn a_server_that_refuses_stream_options_is_asked_without_them() {
    let refusal = r#"{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error"}}"#;
    let body = chat_frames(&[delta(json!({"content": "hi"})), finish("stop")]);
    let server = MockServer::start([
        Reply::new(400, refusal),
        Reply::sse(body.clone()),
        Reply::sse(body),
        Reply::new(400, refusal),
    ])
    .await;
    let executor = GenaiExecutor::with(provider(WireFormat::OpenAi, &server));
    for _ in 0..2 {
        assert_eq!(executor.execute(request()).await.expect("an answer").text(), "hi");
    }
    let error = executor.execute(request()).await.expect_err("it is not repeated for ever");
    assert_eq!(error.code(), "invalid_request");
    let has_options =
        |asked: &super::super::support::mock_server::Asked| asked.body.get("stream_options").is_some();
    assert_eq!(server.asked().iter().map(has_options).collect::<Vec<_>>(), [true, false, false, false]);
}

#[tokio::test]
async fn thoughts_in_the_text_become_thoughts() {
    let said = "<think>\nFour?\n</think>\n\nIt is 4.";
    let (first, rest) = said.split_at(10);
    let chat =
        chat_frames(&[delta(json!({"content": first})), delta(json!({"content": rest})), finish("stop")]);
    let ollama =
        [first, rest].map(|piece| json!({"message": {"content": piece}}).to_string() + "\n").concat()
            + "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n";
    for (adapter, body) in [(WireFormat::OpenAi, chat), (WireFormat::Ollama, ollama)] {
        let events = replay(adapter, Reply::sse(body)).await;
        let result = finished(&events);
        assert_eq!(
            (thoughts_of(result).trim(), result.text().as_str()),
            ("Four?", "It is 4."),
            "{adapter:?}"
        );
    }
}

/// Streams of public reports about other agents.
#[tokio::test]
async fn odd_streams_are_read_whole() {
    let call = |args: &str| {
        delta(
            json!({"tool_calls": [{"index": 0, "id": "", "function": {"name": "Read", "arguments": args}}]}),
        )
    };
    // A chunk without a choice in the middle; a call without an id.
    let body = chat_frames(&[
        delta(json!({"content": "a"})),
        json!({"choices": []}),
        delta(json!({"content": "b"})),
        call("{\"file_path\":\"x\"}"),
        finish("tool_calls"),
    ]);
    let events = replay(WireFormat::OpenAi, Reply::sse(body)).await;
    let result = finished(&events);
    assert_eq!((result.text().as_str(), calls(result)), ("ab", vec![("Read", &json!({"file_path": "x"}))]));
    assert!(!result.tool_calls[0].id.is_empty());
    // Two reports of usage, each of which counts from the start.
    let usage = |tokens: u32, reason: Value| json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": tokens}});
    let body = chat_frames(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}}),
        usage(5, Value::Null),
        usage(12, json!("end_turn")),
        json!({"type": "message_stop"}),
    ]);
    let events = replay(WireFormat::Anthropic, Reply::sse(body)).await;
    let usage = finished(&events).usage.expect("usage");
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(3), Some(12)));
    // An answer that was refused for its length after the request was accepted.
    let body = chat_frames(&[finish("model_context_window_exceeded")]);
    let events = replay(WireFormat::OpenAi, Reply::sse(body)).await;
    assert_eq!(failed(&events).code(), "context_overflow");
}

#[tokio::test]
async fn an_error_inside_a_stream_is_an_error() {
    for (adapter, body, code) in [
        (
            WireFormat::Anthropic,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            "unavailable",
        ),
        (
            WireFormat::OpenAiResponses,
            "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow\"}\n\n",
            "rate_limited",
        ),
        (
            WireFormat::OpenAiResponses,
            "data: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"error\":{\"code\":\"server_error\",\"message\":\"oops\"}}}\n\n",
            "unavailable",
        ),
        (
            WireFormat::OpenAi,
            "data: {\"error\":{\"message\":\"oops\",\"code\":502}}\n\ndata: [DONE]\n\n",
            "unavailable",
        ),
        (
            WireFormat::Gemini,
            "data: {\"error\":{\"code\":503,\"message\":\"oops\",\"status\":\"UNAVAILABLE\"}}\n\n",
            "unavailable",
        ),
        (WireFormat::Ollama, "{\"error\":\"model runner has stopped\"}\n", "provider"),
        (WireFormat::OpenAi, "data: {oops\n\n", "provider"),
        (WireFormat::Anthropic, "data: {oops\n\n", "provider"),
    ] {
        let events = replay(adapter, Reply::sse(body)).await;
        assert_eq!(failed(&events).code(), code, "{adapter:?} {body}: {events:?}");
    }
}
