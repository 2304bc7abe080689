//! Recorded answers of providers.

use super::*;

/// A recorded body. The recordings are not part of the project: they are beside it, one level higher for a
/// worktree. If there are none, the test says so and the hand-made bodies of the same shapes remain.
pub(super) fn recording(name: &str) -> Option<Vec<u8>> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let found =
        here.ancestors().skip(1).find_map(|dir| std::fs::read(dir.join("shared/wire").join(name)).ok());
    if found.is_none() {
        #[expect(clippy::print_stdout, reason = "a skipped test says so")]
        {
            println!("not replayed, because it is not here: shared/wire/{name}");
        }
    }
    found
}

/// The content of a recording, counted from its frames by other means: calls, characters of text and of
/// thoughts, total tokens, length of the first signature.
struct Recorded {
    name: &'static str,
    adapter: WireFormat,
    calls: Vec<(&'static str, Value)>,
    text: usize,
    thoughts: usize,
    tokens: Option<i32>,
    proof: usize,
}

#[tokio::test]
async fn recorded_answers_are_read_as_the_models_gave_them() {
    use WireFormat::{Anthropic, Gemini, Ollama, OpenAi, OpenAiResponses};
    let row = |name, adapter, calls, text, thoughts, tokens, proof| Recorded {
        name,
        adapter,
        calls,
        text,
        thoughts,
        tokens,
        proof,
    };
    let paris = || json!({"city": "Paris", "country": "France", "unit": "C"});
    let rows = [
        row(
            "openai-chat-parallel-tools.sse",
            OpenAi,
            vec![("get_country", json!({})), ("get_product_name", json!({}))],
            0,
            0,
            Some(404),
            0,
        ),
        row(
            "deepseek-chat-tool.sse",
            OpenAi,
            vec![("weather", json!({"location": "San Francisco"}))],
            0,
            191,
            Some(422),
            0,
        ),
        row(
            "gateway-chat-odd-tool.sse",
            OpenAi,
            vec![("read_file", json!({"path": "a.txt"}))],
            11,
            0,
            None,
            0,
        ),
        row(
            "openai-responses-tool.sse",
            OpenAiResponses,
            vec![("get_capital", json!({"country": "France"}))],
            0,
            0,
            Some(271),
            0,
        ),
        row(
            "openai-responses-reasoning-tools.sse",
            OpenAiResponses,
            vec![("get_weather", paris())],
            0,
            0,
            Some(151),
            952,
        ),
        row("anthropic-tool.sse", Anthropic, vec![("get_weather", paris())], 0, 0, Some(127), 0),
        row("anthropic-thinking.sse", Anthropic, vec![], 1021, 202, Some(325), 504),
        row(
            "gemini-tool.sse",
            Gemini,
            vec![("get_weather", json!({"country": "Egypt", "unit": "C", "city": "Cairo"}))],
            440,
            322,
            Some(497),
            1404,
        ),
        row("gemini-thinking.sse", Gemini, vec![], 216, 1604, Some(744), 0),
        row("ollama-chat.ndjson", Ollama, vec![], 214, 0, Some(61), 0),
    ];
    for wanted in rows {
        let name = wanted.name;
        let Some(body) = recording(name) else { continue };
        for size in [usize::MAX, 1] {
            let events = replay(wanted.adapter, Reply::sse(body.clone()).in_pieces_of(size)).await;
            let result = finished(&events);
            let wanted_calls: Vec<(&str, &Value)> =
                wanted.calls.iter().map(|(name, args)| (*name, args)).collect();
            assert_eq!(calls(result), wanted_calls, "{name}");
            assert_eq!(result.text().chars().count(), wanted.text, "text of {name}");
            assert_eq!(thoughts_of(result).chars().count(), wanted.thoughts, "thoughts of {name}");
            assert_eq!(result.usage.and_then(|usage| usage.total_tokens), wanted.tokens, "{name}");
            let stop = if wanted_calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
            assert_eq!(result.stop_reason, Some(stop), "{name}");
            let proofs = result.content.iter().filter_map(|block| match block {
                ContentBlock::Thinking { signature, .. } => signature.as_deref(),
                ContentBlock::Text { .. }
                | ContentBlock::Image { .. }
                | ContentBlock::StoredImage(_)
                | ContentBlock::Opaque { .. }
                | ContentBlock::ToolCall { .. } => None,
            });
            let first = proofs
                .chain(result.tool_calls.iter().flat_map(|call| &call.signatures).map(String::as_str))
                .next();
            let length =
                first.map_or(0, |proof| wanted.adapter.unmark(proof).expect("its own signature").len());
            assert_eq!(length, wanted.proof, "proof of {name}");
        }
    }
    if let Some(body) = recording("openrouter-chat-error-mid-stream.sse") {
        let events = replay(OpenAi, Reply::sse(body)).await;
        assert!(failed(&events).to_string().contains("Token limit reached"), "{events:#?}");
    }
}
