use super::*;

fn origin() -> ModelEndpoint {
    ModelEndpoint {
        provider: "testers".into(),
        adapter: WireFormat::OpenAi,
        model: "m".into(),
        base_url: "http://h/v1/".into(),
        key: Some(SecretString::from("abcd-1234")),
    }
}

#[test]
fn a_token_rate_limit_is_not_a_context_overflow() {
    let error = origin().http_error(
        StatusCode::TOO_MANY_REQUESTS,
        &HeaderMap::new(),
        r#"{"error":{"message":"Request too large: too many tokens per minute (TPM)","code":"rate_limit_exceeded"}}"#,
    );
    assert_eq!(error.code(), "rate_limited");
}

#[test]
fn foreign_messages_are_short_single_line_and_without_keys() {
    let shown =
        origin().shown(&format!("bad\n\tkey abcd-1234, or \"sk-proj-aaaaaaaaaaaa\". {}", "x".repeat(2000)));
    assert!(shown.starts_with("bad key [key], or \"[key]\". xx"), "{shown}");
    assert_eq!(shown.chars().count(), MAX_SHOWN);
}

#[test]
fn the_inner_message_of_openrouter_is_shown() {
    let error = serde_json::json!({
        "code": 502, "message": "Provider returned error", "metadata": {"raw": "upstream is on fire"}
    });
    let error = origin().stream_error(&error);
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains("on fire"));
}

#[test]
fn refused_thoughts_are_told_from_other_refusals() {
    let kind = |message: &str| {
        let body = serde_json::json!({"error": {"type": "invalid_request_error", "message": message}});
        origin().http_error(StatusCode::BAD_REQUEST, &HeaderMap::new(), &body.to_string())
    };
    for message in [
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
        "messages.3.content.0: Invalid `signature` in `thinking` block",
    ] {
        let error = kind(message);
        assert!(matches!(error, InferenceExecutionError::BoundThoughts(_)), "{error:?}");
        assert!(
            !error.is_retryable() && error.to_string().starts_with("testers rejected the thoughts"),
            "{error}"
        );
    }
    let other = kind("messages.1.content.0: `thinking` blocks are not supported by this model");
    assert!(matches!(other, InferenceExecutionError::Rejected(_)), "{other:?}");
}
