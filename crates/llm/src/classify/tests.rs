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
fn dates_are_parsed_and_past_ones_ignored() {
    let now: jiff::Timestamp = "2026-11-21T10:00:00Z".parse().expect("a time");
    assert_eq!(until("Sat, 21 Nov 2026 10:00:30 GMT", now), Some(Duration::from_secs(30)));
    assert_eq!(until("Mon, 21 Nov 2026 10:00:30 GMT", now), Some(Duration::from_secs(30)), "a wrong weekday");
    assert_eq!(until("Sat, 21 Nov 2026 09:00:00 GMT", now), None);
    assert_eq!(until("tomorrow", now), None);
}

#[test]
fn numbers_are_plain() {
    assert_eq!(seconds("120"), Some(Duration::from_mins(2)));
    for bad in ["-5", "NaN", "1e9", "inf", "", "+3", "1.2.3", "99999999999999999"] {
        assert_eq!(seconds(bad), None, "{bad}");
    }
}

#[test]
fn milliseconds_win_over_seconds() {
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", "9".parse().expect("a value"));
    headers.insert("retry-after-ms", "1500".parse().expect("a value"));
    assert_eq!(retry_after(&headers), Some(Duration::from_millis(1500)));
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
