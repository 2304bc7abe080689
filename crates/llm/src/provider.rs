//! The provider of a model: its wire format, its URL, its key.

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The wire form that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFormat {
    /// Chat completions, of OpenAI and of everyone compatible with it.
    #[serde(rename = "openai", alias = "open_ai")]
    OpenAi,
    /// Responses of OpenAI.
    #[serde(rename = "openai_responses", alias = "open_ai_responses")]
    OpenAiResponses,
    Anthropic,
    /// `generateContent` of Gemini.
    Gemini,
    /// `api/chat` of Ollama.
    Ollama,
}

impl WireFormat {
    pub const ALL: [Self; 5] =
        [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini, Self::Ollama];

    /// Its name in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// The adapter of a configured name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|adapter| adapter.as_str() == name)
    }

    /// Returns the URL used if none is given.
    pub fn default_base_url(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://localhost:11434/",
        }
    }

    /// An opaque proof with its owner's name before it: a proof of one provider makes another one refuse the request.
    pub fn mark(self, proof: &str) -> String {
        format!("{}:{proof}", self.as_str())
    }

    /// The proof without its mark; `None` when it is another provider's. One without a mark is taken as it is.
    pub fn unmark(self, proof: &str) -> Option<&str> {
        match proof.split_once(':') {
            Some((owner, rest)) if Self::from_name(owner).is_some() => {
                (owner == self.as_str()).then_some(rest)
            }
            _ => Some(proof),
        }
    }

    /// The path of an address that has none: `https://host` means `https://host/v1/`.
    fn default_path(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses | Self::Anthropic => "/v1/",
            Self::Gemini => "/v1beta/",
            Self::Ollama => "/",
        }
    }
}

/// One provider. `Debug` does not show the key.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// Its name, for messages.
    pub name: String,
    pub adapter: WireFormat,
    /// The base URL; a trailing slash makes no difference, and a bare host means the usual path on it.
    pub base_url: Option<String>,
    /// Its key; none for servers that want none.
    pub api_key: Option<SecretString>,
    /// The time limit for the headers of an answer.
    pub header_timeout: Duration,
    /// The longest pause allowed between two pieces of an answer.
    pub read_timeout: Duration,
    /// The time limit for a whole answer: a stream that trickles never pauses for long.
    pub answer_timeout: Duration,
    /// The context that requests ask for, in tokens, where the server does not know it by itself: Ollama.
    pub context_window: Option<u64>,
}

impl ProviderConfig {
    /// A provider at its usual address, without a key, that is waited for as long as thinking models need.
    pub fn new(name: impl Into<String>, adapter: WireFormat) -> Self {
        Self {
            name: name.into(),
            adapter,
            base_url: None,
            api_key: None,
            header_timeout: Duration::from_mins(5),
            read_timeout: Duration::from_mins(5),
            answer_timeout: Duration::from_hours(1),
            context_window: None,
        }
    }

    #[must_use]
    pub fn with_base_url(mut self, base_url: impl Into<String>) -> Self {
        self.base_url = Some(base_url.into());
        self
    }

    /// Sets the context that requests ask for.
    #[must_use]
    pub fn with_context_window(mut self, tokens: u64) -> Self {
        self.context_window = Some(tokens);
        self
    }

    /// Sets the key; an empty key counts as none.
    #[must_use]
    pub fn with_api_key(mut self, key: impl Into<String>) -> Self {
        let key: String = key.into();
        self.api_key = (!key.trim().is_empty()).then(|| SecretString::from(key.trim().to_owned()));
        self
    }
}

/// Why something is not the address of a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// It is no URL.
    #[error("{given:?} is not a URL ({error}); expected for example {example}")]
    NoUrl {
        /// What is written there.
        given: String,
        /// What is wrong with it.
        error: String,
        /// One that works.
        example: &'static str,
    },
    /// Its scheme is another one.
    #[error("{0:?} is not an http or https URL")]
    NoHttp(String),
}

/// An address with its path and exactly one slash at the end; the query is kept.
///
/// # Errors
/// [`BaseUrlError`].
pub fn normalise_base_url(adapter: WireFormat, base_url: &str) -> Result<reqwest::Url, BaseUrlError> {
    let mut url = reqwest::Url::parse(base_url.trim()).map_err(|error| BaseUrlError::NoUrl {
        given: base_url.to_owned(),
        error: error.to_string(),
        example: adapter.default_base_url(),
    })?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(BaseUrlError::NoHttp(base_url.to_owned()));
    }
    url.set_fragment(None);
    let mut path = url.path().trim_end_matches('/').to_owned();
    // Users often copy the whole URL of the endpoint.
    let endpoints = match adapter {
        WireFormat::OpenAi => &["/chat/completions"][..],
        WireFormat::OpenAiResponses => &["/responses"],
        WireFormat::Anthropic => &["/messages"],
        WireFormat::Gemini => &["/models"],
        WireFormat::Ollama => &["/api/chat", "/api", "/v1"],
    };
    for endpoint in endpoints {
        if let Some(base) = path.strip_suffix(endpoint) {
            path = base.to_owned();
            break;
        }
    }
    if path.is_empty() {
        adapter.default_path().clone_into(&mut path);
    } else {
        path.push('/');
    }
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(adapter: WireFormat, base_url: &str, expected: &str) {
        assert_eq!(normalise_base_url(adapter, base_url).expect("an address").as_str(), expected);
    }

    #[test]
    fn a_trailing_slash_makes_no_difference() {
        check(WireFormat::OpenAi, "http://h:1/v1", "http://h:1/v1/");
        check(WireFormat::OpenAi, "http://h:1/v1/", "http://h:1/v1/");
        check(WireFormat::OpenAi, "http://h:1/v1//", "http://h:1/v1/");
        check(WireFormat::OpenAi, "http://h:1/a/b?x=1", "http://h:1/a/b/?x=1");
    }

    #[test]
    fn a_bare_host_gets_the_usual_path() {
        check(WireFormat::OpenAi, "http://h:1", "http://h:1/v1/");
        check(WireFormat::Anthropic, "http://h:1/", "http://h:1/v1/");
        check(WireFormat::Gemini, "http://h:1", "http://h:1/v1beta/");
        check(WireFormat::Ollama, "http://h:1", "http://h:1/");
    }

    #[test]
    fn a_full_endpoint_url_is_understood() {
        check(WireFormat::OpenAi, "http://h:1/v1/chat/completions", "http://h:1/v1/");
        check(WireFormat::Anthropic, "http://h:1/v1/messages", "http://h:1/v1/");
        check(WireFormat::Ollama, "http://h:1/v1", "http://h:1/");
    }

    #[test]
    fn an_invalid_url_is_reported() {
        assert!(
            normalise_base_url(WireFormat::OpenAi, "localhost")
                .expect_err("no scheme")
                .to_string()
                .contains("localhost")
        );
        assert!(normalise_base_url(WireFormat::OpenAi, "ftp://h/").is_err());
    }

    #[test]
    fn the_key_is_not_shown() {
        let config = ProviderConfig::new("p", WireFormat::OpenAi).with_api_key("sk-very-secret");
        assert!(!format!("{config:?}").contains("very-secret"));
    }
}
