//! The providers and models that are known without any settings.

use super::settings::Adapter;
use crate::contract::spec::Price;

/// A provider that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltInProvider {
    /// Its name in `provider/name`.
    pub name: &'static str,
    /// Wire form.
    pub adapter: Adapter,
    /// Address, with the slash at its end.
    pub base_url: &'static str,
    /// Variables that may hold its key, the usual one first; empty for local servers.
    pub key_envs: &'static [&'static str],
    /// Variable that may hold another address.
    pub base_url_env: Option<&'static str>,
    /// Model to use when only the key says what is wanted; empty when there is no sensible one.
    pub default_model: &'static str,
    /// How its model names begin, to find the provider of a bare name.
    pub prefixes: &'static [&'static str],
}

/// In the order in which keys are looked for.
pub const PROVIDERS: &[BuiltInProvider] = &[
    BuiltInProvider {
        name: "anthropic",
        adapter: Adapter::Anthropic,
        base_url: "https://api.anthropic.com/v1/",
        key_envs: &["ANTHROPIC_API_KEY"],
        base_url_env: Some("ANTHROPIC_BASE_URL"),
        default_model: "claude-sonnet-4-6",
        prefixes: &["claude-"],
    },
    BuiltInProvider {
        name: "openai",
        adapter: Adapter::OpenAi,
        base_url: "https://api.openai.com/v1/",
        key_envs: &["OPENAI_API_KEY"],
        base_url_env: Some("OPENAI_BASE_URL"),
        default_model: "gpt-5",
        prefixes: &["gpt-", "chatgpt-", "o1", "o3", "o4"],
    },
    BuiltInProvider {
        name: "gemini",
        adapter: Adapter::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta/",
        key_envs: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        base_url_env: Some("GEMINI_BASE_URL"),
        default_model: "gemini-2.5-pro",
        prefixes: &["gemini-"],
    },
    BuiltInProvider {
        name: "deepseek",
        adapter: Adapter::OpenAi,
        base_url: "https://api.deepseek.com/v1/",
        key_envs: &["DEEPSEEK_API_KEY"],
        base_url_env: None,
        default_model: "deepseek-chat",
        prefixes: &["deepseek-"],
    },
    BuiltInProvider {
        name: "xai",
        adapter: Adapter::OpenAi,
        base_url: "https://api.x.ai/v1/",
        key_envs: &["XAI_API_KEY"],
        base_url_env: None,
        default_model: "grok-4",
        prefixes: &["grok-"],
    },
    BuiltInProvider {
        name: "groq",
        adapter: Adapter::OpenAi,
        base_url: "https://api.groq.com/openai/v1/",
        key_envs: &["GROQ_API_KEY"],
        base_url_env: None,
        default_model: "openai/gpt-oss-120b",
        prefixes: &[],
    },
    BuiltInProvider {
        name: "mistral",
        adapter: Adapter::OpenAi,
        base_url: "https://api.mistral.ai/v1/",
        key_envs: &["MISTRAL_API_KEY"],
        base_url_env: None,
        default_model: "mistral-large-latest",
        prefixes: &["mistral-", "codestral-", "devstral-", "magistral-"],
    },
    BuiltInProvider {
        name: "openrouter",
        adapter: Adapter::OpenAi,
        base_url: "https://openrouter.ai/api/v1/",
        key_envs: &["OPENROUTER_API_KEY"],
        base_url_env: None,
        default_model: "openrouter/auto",
        prefixes: &[],
    },
    BuiltInProvider {
        name: "together",
        adapter: Adapter::OpenAi,
        base_url: "https://api.together.xyz/v1/",
        key_envs: &["TOGETHER_API_KEY"],
        base_url_env: None,
        default_model: "",
        prefixes: &[],
    },
    BuiltInProvider {
        name: "fireworks",
        adapter: Adapter::OpenAi,
        base_url: "https://api.fireworks.ai/inference/v1/",
        key_envs: &["FIREWORKS_API_KEY"],
        base_url_env: None,
        default_model: "",
        prefixes: &[],
    },
    BuiltInProvider {
        name: "ollama",
        adapter: Adapter::Ollama,
        base_url: "http://127.0.0.1:11434/",
        key_envs: &[],
        base_url_env: None,
        default_model: "",
        prefixes: &[],
    },
];

/// What is known about a model by the beginning of its name.
#[derive(Clone, Copy, Debug)]
pub struct KnownModel {
    /// The beginning of its name.
    pub prefix: &'static str,
    /// Tokens that fit in one request.
    pub context_window: u64,
    /// Tokens of one answer.
    pub max_output: u64,
    /// Dollars per million tokens, where they are known.
    pub price: Option<Price>,
}

const fn known(prefix: &'static str, context_window: u64, max_output: u64) -> KnownModel {
    KnownModel { prefix, context_window, max_output, price: None }
}

const fn priced(
    prefix: &'static str,
    context_window: u64,
    max_output: u64,
    (input, output, cache_read): (f64, f64, f64),
) -> KnownModel {
    let price = Price { input, output, cache_read: Some(cache_read) };
    KnownModel { prefix, context_window, max_output, price: Some(price) }
}

/// Models by the beginning of their name; the longest that fits counts.
///
/// A price stands only where it is certain: none at all is better than a wrong sum in the status line. `[models.NAME]`
/// in the settings has the last word on everything here.
pub const KNOWN_MODELS: &[KnownModel] = &[
    known("claude-", 200_000, 32_000),
    priced("claude-opus-4-5", 200_000, 64_000, (5.0, 25.0, 0.5)),
    priced("claude-opus-4-1", 200_000, 32_000, (15.0, 75.0, 1.5)),
    priced("claude-sonnet-4-5", 200_000, 64_000, (3.0, 15.0, 0.3)),
    priced("claude-sonnet-4-6", 200_000, 64_000, (3.0, 15.0, 0.3)),
    priced("claude-haiku-4-5", 200_000, 64_000, (1.0, 5.0, 0.1)),
    known("gpt-", 128_000, 16_384),
    known("gpt-5", 400_000, 128_000),
    priced("gpt-5-mini", 400_000, 128_000, (0.25, 2.0, 0.025)),
    priced("gpt-5-nano", 400_000, 128_000, (0.05, 0.4, 0.005)),
    priced("gpt-4.1", 1_047_576, 32_768, (2.0, 8.0, 0.5)),
    priced("gpt-4.1-mini", 1_047_576, 32_768, (0.4, 1.6, 0.1)),
    priced("gpt-4o", 128_000, 16_384, (2.5, 10.0, 1.25)),
    priced("gpt-4o-mini", 128_000, 16_384, (0.15, 0.6, 0.075)),
    known("gpt-oss", 131_072, 32_768),
    known("o1", 200_000, 100_000),
    known("o3", 200_000, 100_000),
    known("o4", 200_000, 100_000),
    known("gemini-", 1_048_576, 65_536),
    priced("gemini-2.5-flash", 1_048_576, 65_536, (0.3, 2.5, 0.03)),
    known("deepseek-", 128_000, 8_192),
    known("grok-", 131_072, 32_768),
    known("grok-4", 256_000, 64_000),
    known("mistral-", 128_000, 32_768),
    known("codestral-", 128_000, 32_768),
    known("devstral-", 128_000, 32_768),
    known("llama", 131_072, 8_192),
    known("qwen", 32_768, 8_192),
];

/// The window of a model that nobody knows; small, so that what is sent fits in most.
pub const UNKNOWN_CONTEXT_WINDOW: u64 = 128_000;
/// The answer of a model that nobody knows.
pub const UNKNOWN_MAX_OUTPUT: u64 = 8_192;

/// The provider of a name.
pub fn provider(name: &str) -> Option<&'static BuiltInProvider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

/// What is known about a model; names of gateways such as `vendor/model` are known by their last part too.
pub fn known_model(model: &str) -> Option<&'static KnownModel> {
    let bare = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    KNOWN_MODELS.iter().filter(|known| bare.starts_with(known.prefix)).max_by_key(|known| known.prefix.len())
}

/// The exact price of a name: a name that goes on behind a known one (`gpt-5-pro`) may well cost something else.
pub fn known_price(model: &str) -> Option<Price> {
    let known = known_model(model)?;
    let bare = model.rsplit('/').next().unwrap_or(model);
    let rest = bare.get(known.prefix.len()..)?;
    // `-20250929`, `-2024-08-06` and `-latest` name a version of the same model.
    let is_version =
        rest.is_empty() || rest == "-latest" || rest.bytes().all(|b| b == b'-' || b.is_ascii_digit());
    known.price.filter(|_| is_version)
}
