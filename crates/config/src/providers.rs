//! The providers that are known without any settings. Their models are in [`table`](super::table).

use super::settings::Adapter;

/// A provider that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltInProvider {
    /// Its name in `provider/name`.
    pub name: &'static str,
    pub adapter: Adapter,
    /// Address, with the slash at its end.
    pub base_url: &'static str,
    /// Variables that may hold its key, the usual one first; empty for local servers.
    pub key_envs: &'static [&'static str],
    /// Variable that may hold another address.
    pub base_url_env: Option<&'static str>,
    /// The model to use when only the key selects the provider; empty if there is no sensible one.
    pub default_model: &'static str,
    /// The prefixes of the provider's model names, for finding the provider of a bare name.
    pub prefixes: &'static [&'static str],
}

/// The built-in providers, in the order in which their keys are looked up.
pub const PROVIDERS: &[BuiltInProvider] = &[
    BuiltInProvider {
        name: "anthropic",
        adapter: Adapter::Anthropic,
        base_url: "https://api.anthropic.com/v1/",
        key_envs: &["ANTHROPIC_API_KEY"],
        base_url_env: Some("ANTHROPIC_BASE_URL"),
        default_model: "claude-sonnet-5",
        prefixes: &["claude-"],
    },
    BuiltInProvider {
        name: "openai",
        adapter: Adapter::OpenAi,
        base_url: "https://api.openai.com/v1/",
        key_envs: &["OPENAI_API_KEY"],
        base_url_env: Some("OPENAI_BASE_URL"),
        default_model: "gpt-6-sol",
        prefixes: &["gpt-", "chatgpt-", "o1", "o3", "o4"],
    },
    BuiltInProvider {
        name: "gemini",
        adapter: Adapter::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta/",
        key_envs: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        base_url_env: Some("GEMINI_BASE_URL"),
        default_model: "gemini-3.8-flash",
        prefixes: &["gemini-"],
    },
    BuiltInProvider {
        name: "deepseek",
        adapter: Adapter::OpenAi,
        base_url: "https://api.deepseek.com/v1/",
        key_envs: &["DEEPSEEK_API_KEY"],
        base_url_env: None,
        default_model: "deepseek-flash",
        prefixes: &["deepseek-"],
    },
    BuiltInProvider {
        name: "xai",
        adapter: Adapter::OpenAi,
        base_url: "https://api.x.ai/v1/",
        key_envs: &["XAI_API_KEY"],
        base_url_env: None,
        default_model: "grok-4.7",
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
        default_model: "zai-org/GLM-5.3",
        prefixes: &[],
    },
    BuiltInProvider {
        name: "fireworks",
        adapter: Adapter::OpenAi,
        base_url: "https://api.fireworks.ai/inference/v1/",
        key_envs: &["FIREWORKS_API_KEY"],
        base_url_env: None,
        default_model: "accounts/fireworks/models/glm-5p3",
        prefixes: &[],
    },
    BuiltInProvider {
        name: "cerebras",
        adapter: Adapter::OpenAi,
        base_url: "https://api.cerebras.ai/v1/",
        key_envs: &["CEREBRAS_API_KEY"],
        base_url_env: None,
        default_model: "gpt-oss-120b",
        prefixes: &[],
    },
    BuiltInProvider {
        name: "moonshotai",
        adapter: Adapter::OpenAi,
        base_url: "https://api.moonshot.ai/v1/",
        key_envs: &["MOONSHOT_API_KEY"],
        base_url_env: None,
        default_model: "kimi-k3",
        prefixes: &["kimi-"],
    },
    BuiltInProvider {
        name: "zai",
        adapter: Adapter::OpenAi,
        base_url: "https://api.z.ai/api/paas/v4/",
        key_envs: &["ZAI_API_KEY"],
        base_url_env: None,
        default_model: "glm-5.3",
        prefixes: &["glm-"],
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

/// The context window of an unknown model; small, so that a request fits most models.
pub(crate) const UNKNOWN_CONTEXT_WINDOW: u64 = 128_000;
/// The maximum output of an unknown model.
pub(crate) const UNKNOWN_MAX_OUTPUT: u64 = 8_192;

/// The provider of a name, or of the name of one of its keys.
pub(crate) fn provider(name: &str) -> Option<&'static BuiltInProvider> {
    let (name, _) = split_key_name(name);
    PROVIDERS.iter().find(|provider| provider.name == name)
}

/// Splits `provider@key`: the provider under a key that has a name of its own.
pub(crate) fn split_key_name(name: &str) -> (&str, Option<&str>) {
    name.split_once('@').map_or((name, None), |(provider, key)| (provider, Some(key)))
}
