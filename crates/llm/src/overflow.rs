//! What each provider says to a request that is longer than the model's window. They have no common code for it, and an
//! error that is not recognised ends the run instead of summarising its older messages.

/// One sentence of a provider.
struct Sentence {
    /// The provider or server, by its name in the table of models where it is there.
    #[cfg_attr(not(test), expect(dead_code, reason = "documents the row, and the tests read it"))]
    provider: &'static str,
    /// What the sentence contains, in lower case and in this order.
    parts: &'static [&'static str],
    /// The sentence with numbers in it.
    #[cfg_attr(not(test), expect(dead_code, reason = "documents the row, and the tests read it"))]
    example: &'static str,
}

const fn row(provider: &'static str, parts: &'static [&'static str], example: &'static str) -> Sentence {
    Sentence { provider, parts, example }
}

const SENTENCES: &[Sentence] = &[
    row("anthropic", &["prompt is too long"], "prompt is too long: 213462 tokens > 200000 maximum"),
    row(
        "anthropic",
        &["input length and `max_tokens` exceed context limit"],
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
    ),
    row(
        "openai",
        &["exceeds the context window"],
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    row(
        "openai",
        &["maximum context length"],
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
    ),
    row(
        "openai",
        &["string too long", "maximum length"],
        "Invalid 'input': string too long. Expected a string with maximum length 10485760, but got a string with length 12000000 instead.",
    ),
    row(
        "google",
        &["input token count", "exceeds the maximum"],
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    ),
    row(
        "xai",
        &["maximum prompt length"],
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    ),
    row(
        "groq",
        &["reduce the length of the messages"],
        "Please reduce the length of the messages or completion.",
    ),
    row(
        "cerebras",
        &["reduce the length of the messages"],
        "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000",
    ),
    row(
        "mistral",
        &["too large for model with", "maximum context length"],
        "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
    ),
    row(
        "deepseek",
        &["maximum context length"],
        "This model's maximum context length is 131072 tokens. However, you requested 133034 tokens (125034 in the messages, 8000 in the completion).",
    ),
    row(
        "moonshotai",
        &["exceeded model token limit"],
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 266240)",
    ),
    row("zai", &["prompt exceeds max length"], "Prompt exceeds max length"),
    row("zai", &["prompt 超长"], "Prompt 超长"),
    row(
        "together",
        &["longer than the model's context length"],
        "The input (140000 tokens) is longer than the model's context length (131072 tokens).",
    ),
    row(
        "together",
        &["`inputs` tokens + `max_new_tokens` must be"],
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and 512 `max_new_tokens`",
    ),
    row(
        "fireworks",
        &["prompt is too long"],
        "The prompt is too long: 140000, model maximum context length: 131071",
    ),
    row(
        "openrouter",
        &["maximum context length"],
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 150000 tokens",
    ),
    row(
        "openrouter",
        &["exceeds the maximum allowed input length"],
        "Input length 300000 exceeds the maximum allowed input length of 262144 tokens.",
    ),
    row(
        "copilot",
        &["prompt token count", "exceeds the limit of"],
        "prompt token count of 130000 exceeds the limit of 128000",
    ),
    row("bedrock", &["input is too long"], "Input is too long for requested model."),
    row(
        "dashscope",
        &["range of input length should be"],
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 202745]",
    ),
    row(
        "dashscope",
        &["message token length exceed model limit"],
        "Total message token length exceed model limit (1000000 tokens).",
    ),
    row("minimax", &["context window exceeds limit"], "invalid params, context window exceeds limit (2013)"),
    row("litellm", &["contextwindowexceedederror"], "litellm.ContextWindowExceededError: BadRequestError"),
    row("cohere", &["too many tokens"], "too many tokens: size limit exceeded by 11326 tokens."),
    row(
        "lm studio",
        &["tokens to keep from the initial prompt", "greater than the context length"],
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 9000 >= n_ctx: 4096).",
    ),
    row(
        "lm studio",
        &["trying to keep the first", "context length"],
        "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
    ),
    row(
        "lm studio",
        &["reached context length"],
        "Reached context length of 4096 tokens with model (arch: llama) that does not currently support mid-generation context overflow.",
    ),
    row(
        "vllm",
        &["longer than the maximum model length"],
        "The decoder prompt (length 5951) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.",
    ),
    row(
        "vllm",
        &["too long to fit into the model"],
        "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
    ),
    row(
        "vllm",
        &["context length is only"],
        "You passed 9000 input tokens and requested 0 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 8192 tokens.",
    ),
    row(
        "vllm",
        &["model's maximum context length"],
        "Input length (265330) exceeds model's maximum context length (262144).",
    ),
    row(
        "sglang",
        &["exceeds the model's maximum context length"],
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
    ),
    row(
        "tgi",
        &["`inputs` must have less than"],
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    ),
    row(
        "llama.cpp",
        &["exceeds the available context size"],
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    ),
    row("llama.cpp", &["context size has been exceeded"], "Context size has been exceeded."),
    row(
        "llama.cpp",
        &["the configured context size is"],
        "Prompt has 70000 tokens, but the configured context size is 65536 tokens",
    ),
    row("ollama", &["prompt too long"], "prompt too long; exceeded max context length by 5000 tokens"),
    row("ollama", &["input length exceeds", "context length"], "the input length exceeds the context length"),
    row("any", &["context length exceeded"], "context length exceeded"),
    row("any", &["context_length_exceeded"], "Error code: 400 - context_length_exceeded"),
    row("any", &["exceeds the context"], "the request exceeds the context of the model"),
    row("any", &["exceeds maximum context length"], "Prompt exceeds maximum context length"),
    row("any", &["exceed context limit"], "your messages exceed context limit"),
    row("any", &["context window"], "The context window is full"),
];

/// Codes that say the same; the codes of an error are in one string, in lower case.
const CODES: [&str; 5] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size",
    "model_context_window",
    "model_max_prompt_tokens_exceeded",
];

/// Words of a limit in time, which waiting cures and a shorter request does not.
const RATES: [&str; 7] = [
    "per minute",
    "per min",
    "per day",
    "per second",
    "rate limit",
    "too many requests",
    "wait before trying",
];

/// Returns whether an error says that the request is longer than the model's window.
pub(super) fn is_overflow(code: &str, message: &str) -> bool {
    if CODES.iter().any(|known| code.contains(known)) {
        return true;
    }
    let is_rate = code.contains("rate_limit") || RATES.iter().any(|words| message.contains(words));
    !is_rate && SENTENCES.iter().any(|sentence| sentence.is_in(message))
}

impl Sentence {
    fn is_in(&self, message: &str) -> bool {
        let mut rest = message;
        self.parts.iter().all(|part| {
            let found = rest.split_once(part);
            found.is_some_and(|(_, after)| {
                rest = after;
                true
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_sentence_is_recognised_by_its_own_row() {
        for sentence in SENTENCES {
            let message = sentence.example.to_lowercase();
            assert!(sentence.is_in(&message), "{}: {}", sentence.provider, sentence.example);
            assert!(
                is_overflow("invalid_request_error", &message),
                "{}: {}",
                sentence.provider,
                sentence.example
            );
            for part in sentence.parts {
                assert_eq!(*part, part.to_lowercase());
            }
        }
    }

    #[test]
    fn each_provider_of_the_table_of_models_has_a_row() {
        let table = include_str!("../../config/src/models.jsonl");
        let providers: BTreeSet<String> = table
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line of the table"))
            .map(|row| row["provider"].as_str().expect("a name").to_owned())
            .collect();
        for provider in providers {
            assert!(SENTENCES.iter().any(|sentence| sentence.provider == provider), "{provider}");
        }
    }

    #[test]
    fn other_refusals_are_no_overflow() {
        for (code, message) in [
            ("rate_limit_exceeded", "request too large for gpt-x: limit 30000, requested 40000 tokens"),
            ("tokens", "request too large for model on tokens per min (tpm): too many tokens"),
            ("throttlingexception", "too many tokens, please wait before trying again."),
            ("invalid_request_error", "max_tokens is too large: 100000. this model supports at most 16384"),
            ("invalid_request_error", "number of tools exceeds the limit of 128"),
            ("invalid_request_error", "image exceeds 5 mb maximum: 6291456 bytes > 5242880 bytes"),
            ("invalid_request_error", "range of max_tokens should be [1, 8192]"),
            ("invalid_request_error", "tools.0.custom.name: string should have at most 64 characters"),
            ("", ""),
        ] {
            assert!(!is_overflow(code, message), "{message}");
        }
        assert!(is_overflow("invalid_request_error exceed_context_size_error", "no"));
    }
}
