//! Finds the provider, the key and the URL of a model from its name and the environment, for programs without
//! a configuration. This is the only place below the front ends that reads the environment.

use genai::adapter::AdapterKind;
use secrecy::SecretString;

use super::{Destination, GenaiExecutor, shown_url};
use crate::classify::ModelEndpoint;
use crate::provider::{ProviderConfig, WireFormat, normalise_base_url};
use aye_core::contract::executor::InferenceExecutionError;

impl GenaiExecutor {
    #[expect(clippy::disallowed_methods, reason = "the convenience of `GenaiExecutor::new`, which says so")]
    pub(super) async fn environment(
        &self,
        model: &str,
    ) -> Result<(Destination, String), InferenceExecutionError> {
        let defaults = ProviderConfig::new("", WireFormat::OpenAi);
        let mut origin = ModelEndpoint {
            provider: "the provider".into(),
            adapter: WireFormat::OpenAi,
            model: model.to_owned(),
            base_url: String::new(),
            key: None,
        };
        let client = genai::Client::builder().with_reqwest(self.http.get(&origin, None)?).build();
        let target = match client {
            Ok(client) => client.resolve_service_target(model).await,
            Err(error) => Err(error),
        };
        let target = target.map_err(|error| origin.unresolved(&error))?;
        let kind = target.model.adapter_kind;
        kind.as_lower_str().clone_into(&mut origin.provider);
        origin.adapter = match kind {
            AdapterKind::OpenAIResp => WireFormat::OpenAiResponses,
            AdapterKind::Anthropic => WireFormat::Anthropic,
            AdapterKind::Gemini => WireFormat::Gemini,
            AdapterKind::Ollama => WireFormat::Ollama,
            AdapterKind::Cohere | AdapterKind::Vertex | AdapterKind::BedrockApi | AdapterKind::GeminiIx => {
                return Err(InferenceExecutionError::InvalidRequest(format!(
                    "the wire format of {} is not supported; configure an OpenAI-compatible URL for {model}",
                    origin.provider
                )));
            }
            // Everyone else says to be compatible with OpenAI.
            _ => WireFormat::OpenAi,
        };
        // genai knows the variables of keys and not those of addresses.
        let variable = address_variable(kind);
        let address = variable.and_then(|name| std::env::var(name).ok()).filter(|url| !url.trim().is_empty());
        let base = match (&address, variable) {
            (Some(url), Some(name)) => normalise_base_url(origin.adapter, url)
                .map_err(|problem| InferenceExecutionError::InvalidRequest(format!("{name}: {problem}")))?,
            _ => normalise_base_url(origin.adapter, target.endpoint.base_url())
                .map_err(|problem| InferenceExecutionError::InvalidRequest(problem.to_string()))?,
        };
        let host = base.host_str().unwrap_or_default();
        // Use Responses for OpenAI's own service, whose newest models are available only there, and chat
        // completions for compatible services.
        if matches!(origin.adapter, WireFormat::OpenAi | WireFormat::OpenAiResponses) {
            let is_openai = host == "api.openai.com" || host.ends_with(".api.openai.com");
            origin.adapter = if is_openai { WireFormat::OpenAiResponses } else { WireFormat::OpenAi };
        }
        origin.base_url = shown_url(&base);
        if kind != AdapterKind::Ollama {
            match target.auth.single_key_value() {
                Ok(key) => origin.key = Some(SecretString::from(key.trim().to_owned())),
                Err(genai::resolver::Error::ApiKeyEnvNotFound { env_name }) => {
                    return Err(InferenceExecutionError::Unauthorized(format!(
                        "no key for {}: the environment variable {env_name} is not set",
                        origin.provider
                    )));
                }
                Err(_) => return Err(origin.no_key()),
            }
        }
        let (_, name) = target.model.model_name.namespace_and_name();
        let name = name.to_owned();
        origin.model.clone_from(&name);
        let timeouts = (defaults.header_timeout, defaults.read_timeout);
        Ok((Destination { origin, base, timeouts, answer_timeout: defaults.answer_timeout }, name))
    }
}

/// The variable that says where a provider's requests go instead of its own address.
fn address_variable(kind: AdapterKind) -> Option<&'static str> {
    match kind {
        AdapterKind::OpenAI | AdapterKind::OpenAIResp => Some("OPENAI_BASE_URL"),
        AdapterKind::Anthropic => Some("ANTHROPIC_BASE_URL"),
        AdapterKind::Gemini => Some("GEMINI_BASE_URL"),
        _ => None,
    }
}
