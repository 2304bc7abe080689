use proptest::prelude::*;
use serde_json::json;

use super::*;

fn fold() -> Fold {
    Fold::new("m", Arc::default())
}

/// A conversation in which a call has this id.
fn asked(id: &str) -> Arc<Vec<Arc<Message>>> {
    let call = ToolCall::new(id, "List", json!({}));
    Arc::new(vec![Arc::new(Message::assistant_with(Vec::new(), vec![call]))])
}

fn finish(mut fold: Fold) -> StreamResult {
    fold.finish();
    let mut last = None;
    while let Some(event) = fold.next_event() {
        last = Some(event);
    }
    let Some(LlmStreamEvent::Finish { result, .. }) = last else { panic!("{last:?}") };
    result
}

#[test]
fn only_a_call_reads_the_ids_of_the_conversation() {
    let earlier = asked("a");
    let mut fold = Fold::new("m", Arc::clone(&earlier));
    fold.text("hello").expect("within the limits");
    assert_eq!(Arc::strong_count(&earlier), 2, "it was not read");
    fold.finish();
    assert_eq!(Arc::strong_count(&earlier), 1, "the conversation can grow without a copy of its list");
    let mut calls = Fold::new("m", Arc::clone(&earlier));
    calls.call(CallKey::Last, Some("a"), Some("List"), None).expect("within the limits");
    assert_eq!(Arc::strong_count(&earlier), 1);
    assert_ne!(finish(calls).tool_calls[0].id, "a");
}

#[test]
fn calls_keep_their_place_among_text_and_thoughts() {
    let mut fold = fold();
    let take = |fold: &mut Fold, thinking: &str| {
        fold.begin_thinking();
        fold.reasoning(thinking).expect("within the limits");
        fold.sign_thinking(format!("proof of {thinking}")).expect("within the limits");
    };
    take(&mut fold, "t1");
    fold.text("so").expect("within the limits");
    take(&mut fold, "t2");
    fold.call(CallKey::Index(3), None, Some("List"), Some("{}")).expect("within the limits");
    // An id that comes after the first piece.
    fold.call(CallKey::Index(3), Some("late"), None, None).expect("within the limits");
    take(&mut fold, "t3");
    fold.call(CallKey::Index(5), Some("b"), Some("Read"), Some("{}")).expect("within the limits");
    let result = finish(fold);
    let order: Vec<String> = result
        .content
        .iter()
        .map(|block| match block {
            ContentBlock::Thinking { thinking, .. } => thinking.clone(),
            ContentBlock::ToolCall { id } => format!("={id}"),
            other => other.as_text().unwrap_or_default().to_owned(),
        })
        .collect();
    let first = result.tool_calls[0].id.clone();
    assert_eq!(order, ["t1", "so", "t2", &format!("={first}"), "t3"], "nothing comes after the last call");
}

#[test]
fn the_stop_reason_follows_the_presence_of_calls() {
    let mut none = fold();
    none.stop(StopReason::ToolUse);
    assert_eq!(finish(none).stop_reason, Some(StopReason::EndTurn));
    let mut some = fold();
    some.call(CallKey::Last, Some("a"), Some("List"), None).expect("within the limits");
    some.stop(StopReason::EndTurn);
    assert_eq!(finish(some).stop_reason, Some(StopReason::ToolUse));
}

#[test]
fn nothing_is_accepted_after_the_end() {
    let mut fold = fold();
    fold.text("a").expect("within the limits");
    fold.finish();
    fold.text("b").expect("ignored");
    fold.call(CallKey::Last, Some("a"), Some("List"), None).expect("ignored");
    fold.finish();
    let mut events = Vec::new();
    while let Some(event) = fold.next_event() {
        events.push(event);
    }
    assert!(
        matches!(&events[..], [LlmStreamEvent::TextDelta(text), LlmStreamEvent::Finish { .. }] if text == "a")
    );
}

#[test]
fn too_much_text_is_refused_and_not_retried() {
    let mut fold = fold();
    let piece = "x".repeat(1 << 20);
    let error = (0..20).find_map(|_| fold.text(&piece).err()).expect("a limit");
    assert!(matches!(error, InferenceExecutionError::InvalidRequest(_)));
    assert!(!error.is_retryable());
}

#[test]
fn arguments_have_a_limit() {
    let mut fold = fold();
    fold.call(CallKey::Index(0), Some("a"), Some("Write"), Some("{\"content\":\""))
        .expect("within the limits");
    let piece = "x".repeat(1 << 20);
    for _ in 0..6 {
        fold.call(CallKey::Index(0), None, None, Some(&piece)).expect("within the limits");
    }
    let result = finish(fold);
    assert!(result.tool_calls[0].invalid.as_deref().expect("too long").contains("4 MiB"));
    assert_eq!(result.tool_calls[0].arguments, json!({}));
}

#[test]
fn calls_have_a_limit() {
    let mut fold = fold();
    let error = (0..1000).find_map(|n| fold.call(CallKey::Index(n), None, Some("List"), None).err());
    assert!(error.expect("a limit").to_string().contains("256"));
}

#[test]
fn calls_all_numbered_zero_are_separated() {
    let mut fold = fold();
    for (id, args) in [("a", "{\"n\":1}"), ("b", "{\"n\":2}")] {
        fold.call(CallKey::Index(0), Some(id), Some("List"), Some(args)).expect("within the limits");
    }
    let args: Vec<Value> = finish(fold).tool_calls.into_iter().map(|call| call.arguments).collect();
    assert_eq!(args, [json!({"n": 1}), json!({"n": 2})]);
}

#[test]
fn a_repeated_id_and_name_is_one_call() {
    let mut fold = fold();
    for args in ["{\"n\"", ":1}"] {
        fold.call(CallKey::Index(0), Some("a"), Some("List"), Some(args)).expect("within the limits");
    }
    // A server that invents an id for each chunk.
    fold.call(CallKey::Index(0), Some("zzz"), None, Some(" ")).expect("within the limits");
    let result = finish(fold);
    assert_eq!((result.tool_calls.len(), &result.tool_calls[0].arguments), (1, &json!({"n": 1})));
    assert_eq!(result.tool_calls[0].id, "a");
}

#[test]
fn arguments_before_the_name_are_kept() {
    let mut fold = fold();
    fold.call(CallKey::Index(0), Some("a"), None, Some("{\"n\":")).expect("within the limits");
    assert!(fold.next_event().is_none(), "a call without a name cannot be shown");
    fold.call(CallKey::Index(0), None, Some("List"), Some("1}")).expect("within the limits");
    assert_eq!(
        fold.next_event(),
        Some(LlmStreamEvent::ToolCallStart { id: "a".into(), name: "List".into() })
    );
    let delta = LlmStreamEvent::ToolCallDelta { id: "a".into(), args_delta: "{\"n\":1}".into() };
    assert_eq!(fold.next_event(), Some(delta));
}

#[test]
fn the_output_limit_keeps_complete_calls() {
    let mut fold = fold();
    fold.call(CallKey::Index(0), Some("a"), Some("List"), Some("{}")).expect("within the limits");
    fold.stop(StopReason::MaxTokens);
    let result = finish(fold);
    assert_eq!((result.tool_calls.len(), result.has_incomplete_tool_calls), (1, false));
}

#[test]
fn the_output_limit_drops_only_the_truncated_call() {
    for args in ["{\"command\":\"rm -rf ", ""] {
        let mut fold = fold();
        fold.call(CallKey::Index(0), Some("a"), Some("List"), Some("{}")).expect("within the limits");
        fold.call(CallKey::Index(1), Some("b"), Some("Bash"), Some(args)).expect("within the limits");
        fold.stop(StopReason::MaxTokens);
        let result = finish(fold);
        assert_eq!((result.tool_calls.len(), result.has_incomplete_tool_calls), (1, true), "{args:?}");
        assert_eq!(result.tool_calls[0].name, "List");
    }
}

#[test]
fn the_nesting_limit_is_exact() {
    let nested = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n - 1), "]".repeat(n - 1));
    assert!(parse_arguments(&nested(100)).is_ok());
    assert!(parse_arguments(&nested(MAX_DEPTH + 1)).expect_err("too deep").to_string().contains("deeper"));
    assert!(parse_arguments(&nested(1_000_000)).expect_err("too deep").to_string().contains("deeper"));
    assert!(parse_arguments("{\"a\":\"[[[[\"}").is_ok(), "brackets in texts do not count");
}

#[test]
fn arguments_encoded_twice_are_one_object() {
    let twice = |inner: &str| parse_arguments(&Value::from(inner).to_string());
    assert_eq!(twice("{\"n\": \"{}\"}").expect("an object"), json!({"n": "{}"}));
    for inner in ["[1]", "{\"cut", "{\"a\":1,\"a\":2}", "\"{}\"", "text"] {
        assert_eq!(twice(inner).expect_err(inner).to_string(), "the arguments are a text, not an object");
    }
}

#[test]
fn empty_arguments_have_several_forms() {
    for text in ["", "  ", "null", "{}"] {
        assert_eq!(parse_arguments(text).expect("no arguments"), json!({}));
    }
}

proptest! {
    #[test]
    fn arguments_survive_any_chunking(text in "[a-zλ€🦀\"\\\\ {}\\[\\]]{0,20}", size in 1..7_usize) {
        let whole = json!({"text": text}).to_string();
        let mut fold = fold();
        fold.call(CallKey::Index(3), Some("a"), Some("Write"), None).expect("within the limits");
        let chars: Vec<char> = whole.chars().collect();
        for piece in chars.chunks(size) {
            let piece: String = piece.iter().collect();
            fold.call(CallKey::Index(3), None, None, Some(&piece)).expect("within the limits");
        }
        let result = finish(fold);
        prop_assert_eq!(&result.tool_calls[0].arguments, &json!({"text": text}));
        prop_assert_eq!(&result.tool_calls[0].invalid, &None);
    }

    #[test]
    fn arbitrary_text_never_panics_and_accepted_text_is_an_object(text in "\\PC{0,40}") {
        if let Ok(value) = parse_arguments(&text) {
            prop_assert!(value.is_object());
        }
    }

    #[test]
    fn ids_are_unique_and_names_are_clean(ids in prop::collection::vec("[ab\n]{0,2}", 0..8), name in "[a-z\u{0}\u{202e}]{0,4}") {
        let mut fold = Fold::new("m", asked("a"));
        for (n, id) in ids.iter().enumerate() {
            fold.call(CallKey::Index(n as u64), Some(id), Some(&name), Some("{}")).expect("within the limits");
        }
        let result = finish(fold);
        let unique: HashSet<&str> = result.tool_calls.iter().map(|call| call.id.as_str()).collect();
        prop_assert_eq!(unique.len(), ids.len());
        prop_assert!(!unique.contains("a"));
        for call in &result.tool_calls {
            prop_assert!(!call.name.is_empty() && !call.name.chars().any(is_hidden));
            prop_assert_eq!(call.invalid.is_none(), call.name == name);
        }
    }
}
