//! The models that a provider offers now: one request, bounded in time and size.

use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::http;
use super::provider::{ProviderConfig, WireFormat, normalise_base_url};

/// The largest list that is read; the longest one known has half a megabyte.
const MAX_LIST: usize = 8 << 20;

/// A model that a provider lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderModel {
    /// The name that the provider knows.
    pub id: String,
    /// The number of tokens that fit in one request, if the provider states it.
    pub context_window: Option<u64>,
    /// The maximum tokens of one answer, if the provider states it.
    pub max_output: Option<u64>,
}

/// The reason there is no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffersError {
    /// The provider does not accept the key.
    #[error("{0}")]
    Refused(String),
    /// There is no connection to the provider.
    #[error("{0}")]
    Unreachable(String),
    /// The provider did not answer in time, or not with a list.
    #[error("{0}")]
    Failed(String),
}

/// Asks a provider for its models.
///
/// # Errors
/// When the key is refused, or no list comes within `limit`.
pub async fn offers(config: &ProviderConfig, limit: Duration) -> Result<Vec<ProviderModel>, OffersError> {
    within(config, limit, async { list(config, &base_of(config)?).await }).await
}

/// Asks a provider for its models in order to try the key.
///
/// # Errors
/// As [`offers`].
pub async fn check_key(config: &ProviderConfig, limit: Duration) -> Result<Vec<ProviderModel>, OffersError> {
    let check = async {
        let base = base_of(config)?;
        // Its list is open to everybody; what it says about a key is not.
        if base.host_str() == Some("openrouter.ai") {
            get(config, &base, join(&base, "key")).await?;
        }
        list(config, &base).await
    };
    within(config, limit, check).await
}

/// Asks an Ollama server for the context length that a model runs with; `None` if the model is not loaded.
///
/// # Errors
/// As [`offers`].
pub async fn running_context(
    config: &ProviderConfig,
    model: &str,
    limit: Duration,
) -> Result<Option<u64>, OffersError> {
    let ask = async {
        let base = base_of(config)?;
        Ok(context_in(&get(config, &base, join(&base, "api/ps")).await?, model))
    };
    within(config, limit, ask).await
}

fn context_in(answer: &Value, model: &str) -> Option<u64> {
    let is_it = |row: &&Value| {
        let name = row.get("model").or_else(|| row.get("name")).and_then(Value::as_str);
        name.is_some_and(|name| name == model || name.strip_suffix(":latest") == Some(model))
    };
    answer.get("models")?.as_array()?.iter().find(is_it)?.get("context_length")?.as_u64()
}

async fn within<T>(
    config: &ProviderConfig,
    limit: Duration,
    asked: impl Future<Output = Result<T, OffersError>>,
) -> Result<T, OffersError> {
    let late = || OffersError::Failed(format!("{} did not answer within {} s", config.name, limit.as_secs()));
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Err(late()))
}

fn base_of(config: &ProviderConfig) -> Result<reqwest::Url, OffersError> {
    let base = config.base_url.as_deref().unwrap_or(config.adapter.default_base_url());
    normalise_base_url(config.adapter, base).map_err(|error| failed(config, &error.to_string()))
}

fn failed(config: &ProviderConfig, why: &str) -> OffersError {
    OffersError::Failed(format!("{}: {why}", config.name))
}

async fn list(config: &ProviderConfig, base: &reqwest::Url) -> Result<Vec<ProviderModel>, OffersError> {
    let value = get(config, base, list_url(config, base)).await?;
    offers_in(&value).ok_or_else(|| failed(config, "its answer contains no model list"))
}

async fn get(config: &ProviderConfig, base: &reqwest::Url, url: reqwest::Url) -> Result<Value, OffersError> {
    let client = http::build(Some(base)).map_err(|error| failed(config, &error.to_string()))?;
    let response = client.get(url).headers(headers(config)?).send().await;
    let mut response = response.map_err(|error| {
        let why = format!("{}: {}", config.name, aye_http::cause_with_proxy(&error));
        if error.is_connect() { OffersError::Unreachable(why) } else { OffersError::Failed(why) }
    })?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(piece) =
        response.chunk().await.map_err(|error| failed(config, &aye_http::cause_with_proxy(&error)))?
    {
        if body.len() + piece.len() > MAX_LIST {
            return Err(failed(config, "its list of models is too large"));
        }
        body.extend_from_slice(&piece);
    }
    // Gemini answers a wrong key with 400.
    let is_key = status.as_u16() == 400 && String::from_utf8_lossy(&body).contains("API key");
    if is_key || matches!(status.as_u16(), 401 | 403) {
        return Err(OffersError::Refused(format!("{} rejected the key ({})", config.name, status.as_u16())));
    }
    if !status.is_success() {
        return Err(failed(config, &format!("its model list request returned {}", status.as_u16())));
    }
    serde_json::from_slice(&body).map_err(|_| failed(config, "its list of models is not JSON"))
}

fn join(base: &reqwest::Url, path: &str) -> reqwest::Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path()));
    url
}

fn list_url(config: &ProviderConfig, base: &reqwest::Url) -> reqwest::Url {
    let (path, query) = match config.adapter {
        WireFormat::OpenAi | WireFormat::OpenAiResponses => ("models", ""),
        WireFormat::Anthropic => ("models", "limit=1000"),
        WireFormat::Gemini => ("models", "pageSize=1000"),
        WireFormat::Ollama => ("api/tags", ""),
    };
    let mut url = join(base, path);
    if !query.is_empty() {
        let query = base.query().map_or_else(|| query.to_owned(), |own| format!("{own}&{query}"));
        url.set_query(Some(&query));
    }
    url
}

fn headers(config: &ProviderConfig) -> Result<HeaderMap, OffersError> {
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    let Some(key) = &config.api_key else { return Ok(headers) };
    let (name, value) = match config.adapter {
        WireFormat::Anthropic => (HeaderName::from_static("x-api-key"), key.expose_secret().to_owned()),
        WireFormat::Gemini => (HeaderName::from_static("x-goog-api-key"), key.expose_secret().to_owned()),
        WireFormat::OpenAi | WireFormat::OpenAiResponses | WireFormat::Ollama => {
            (AUTHORIZATION, format!("Bearer {}", key.expose_secret()))
        }
    };
    let mut value = HeaderValue::from_str(&value).map_err(|_| {
        OffersError::Refused(format!("the key of {} contains characters that cannot be sent", config.name))
    })?;
    value.set_sensitive(true);
    headers.insert(name, value);
    headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    Ok(headers)
}

/// Returns the models of a response in any known form: `data[].id`, `models[].name`, or a bare list. Models
/// that the server itself does not call chat models are left out.
pub fn offers_in(answer: &Value) -> Option<Vec<ProviderModel>> {
    let rows =
        answer.as_array().or_else(|| answer.get("data").or_else(|| answer.get("models"))?.as_array())?;
    Some(rows.iter().filter_map(offer).collect())
}

fn offer(row: &Value) -> Option<ProviderModel> {
    let id = row.get("id").or_else(|| row.get("name"))?.as_str()?;
    let id = id.strip_prefix("models/").unwrap_or(id);
    let lacks = |list: &Value, word: &str| {
        list.as_array()
            .is_some_and(|list| !list.is_empty() && list.iter().all(|one| one.as_str() != Some(word)))
    };
    let is_other = lacks(&row["supportedGenerationMethods"], "generateContent")
        || lacks(&row["architecture"]["output_modalities"], "text")
        || row["capabilities"]["completion_chat"] == Value::Bool(false)
        || row["supports_chat"] == Value::Bool(false)
        || row["type"].as_str().is_some_and(|kind| !matches!(kind, "chat" | "language" | "model" | "code"));
    if is_other || id.is_empty() || id.len() > 200 || id.chars().any(char::is_control) {
        return None;
    }
    let count =
        |names: &[&str]| names.iter().find_map(|name| row.get(name)?.as_u64()).filter(|count| *count > 0);
    Some(ProviderModel {
        id: id.to_owned(),
        context_window: count(&[
            "context_length",
            "context_window",
            "max_model_len",
            "inputTokenLimit",
            "max_input_tokens",
            "max_context_length",
        ]),
        max_output: count(&["outputTokenLimit", "max_output_tokens", "max_completion_tokens", "max_tokens"]),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_list_formats_are_read_without_models_that_cannot_chat() {
        let ids = |answer: Value| {
            let offers = offers_in(&answer).expect("a list");
            offers.into_iter().map(|offer| (offer.id, offer.context_window)).collect::<Vec<_>>()
        };
        let openai =
            json!({"object": "list", "data": [{"id": "a", "object": "model"}, {"id": 7}, {"id": "b\u{1b}"}]});
        assert_eq!(ids(openai), [("a".to_owned(), None)]);
        let gemini = json!({"models": [
            {"name": "models/g", "inputTokenLimit": 9, "supportedGenerationMethods": ["generateContent"]},
            {"name": "models/e", "supportedGenerationMethods": ["embedContent"]},
        ]});
        assert_eq!(ids(gemini), [("g".to_owned(), Some(9))]);
        let ollama = json!({"models": [{"name": "qwen3:latest", "model": "qwen3:latest"}]});
        assert_eq!(ids(ollama), [("qwen3:latest".to_owned(), None)]);
        let together =
            json!([{"id": "org/m", "type": "chat", "context_length": 8}, {"id": "p", "type": "image"}]);
        assert_eq!(ids(together), [("org/m".to_owned(), Some(8))]);
        assert_eq!(offers_in(&json!({"error": "no"})), None);
    }

    #[test]
    fn the_running_context_is_the_models_own() {
        let answer = json!({"models": [
            {"name": "other", "model": "other", "context_length": 9},
            {"name": "qwen3:latest", "model": "qwen3:latest", "size": 1, "context_length": 4096},
        ]});
        assert_eq!(context_in(&answer, "qwen3"), Some(4096));
        assert_eq!(context_in(&answer, "qwen3:latest"), Some(4096));
        assert_eq!(context_in(&answer, "qwen"), None);
        assert_eq!(context_in(&json!({"models": [{"name": "a"}]}), "a"), None, "an older server");
    }

    #[test]
    fn the_list_url_keeps_path_and_query() {
        let url = |adapter, base: &str| {
            let config = ProviderConfig::new("p", adapter).with_base_url(base);
            list_url(&config, &normalise_base_url(adapter, base).expect("an address")).to_string()
        };
        assert_eq!(url(WireFormat::OpenAi, "http://h:1/v1"), "http://h:1/v1/models");
        assert_eq!(url(WireFormat::Anthropic, "http://h:1/v1/?a=b"), "http://h:1/v1/models?a=b&limit=1000");
        assert_eq!(url(WireFormat::Gemini, "http://h:1"), "http://h:1/v1beta/models?pageSize=1000");
        assert_eq!(url(WireFormat::Ollama, "http://h:1"), "http://h:1/api/tags");
    }
}
