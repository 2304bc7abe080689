//! The destinations of requests: providers with their settings, their normalised URLs, and local servers to
//! probe.

use serde::{Deserialize, Serialize};

use super::env::Env;
use super::providers::{self, BuiltInProvider, PROVIDERS, split_key_name};
use super::settings::{Adapter, Settings};
use aye_core::contract::address::is_this_machine;

/// A local server that is worth a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeCandidate {
    /// The provider that it would be.
    pub provider: String,
    pub adapter: Adapter,
    /// Address with the slash at its end.
    pub base_url: String,
    /// The URL to GET: a response with status 200 lists the models, either as Ollama (`models[].name`) or as
    /// OpenAI (`data[].id`) does.
    pub models_url: String,
}

/// A server that listed its models: one that was found on this machine, or the one at a provider's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeHit {
    /// The candidate that answered.
    pub candidate: ProbeCandidate,
    /// Its models, as it lists them.
    pub models: Vec<OfferedModel>,
}

/// A model that a server lists, with what the server says about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedModel {
    /// The name that the server knows.
    pub id: String,
    /// Tokens that fit in one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
}

/// A provider after settings, environment and built-in values were joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedProvider {
    pub name: String,
    pub adapter: Adapter,
    /// The base URL, ending in a slash; empty if none is configured.
    pub base_url: String,
    /// Whether the settings or the environment set the URL.
    pub is_base_url_set: bool,
    /// The variable that contains the key, or would if it were set.
    pub key_env: Option<String>,
    /// Whether a key exists: the variable is set, or a key is stored.
    pub has_key: bool,
    /// Whether the key is the stored one, because the variable is not set.
    pub is_key_stored: bool,
    pub(super) built_in: Option<&'static BuiltInProvider>,
}

impl ResolvedProvider {
    /// Returns whether a request can be sent: the URL is known, and so is a key unless the server needs none.
    pub fn is_usable(&self) -> bool {
        !self.base_url.is_empty() && (self.has_key || !self.needs_key())
    }

    /// Returns whether to choose the provider when none is named: a local server only counts if its URL was
    /// configured.
    pub fn is_set_up(&self) -> bool {
        self.is_usable() && (self.has_key || self.is_base_url_set)
    }

    /// Returns whether the configured URL is not the provider's own: only the server at that URL knows its
    /// models.
    pub(super) fn is_elsewhere(&self) -> bool {
        let is_own = |built_in: &BuiltInProvider| {
            built_in.base_url == self.base_url && !built_in.default_model.is_empty()
        };
        self.is_base_url_set && !self.built_in.is_some_and(is_own)
    }

    /// The server at the provider's address, as one that can list its models.
    pub fn candidate(&self) -> ProbeCandidate {
        let path = if self.adapter == Adapter::Ollama { "api/tags" } else { "models" };
        ProbeCandidate {
            provider: self.name.clone(),
            adapter: self.adapter,
            base_url: self.base_url.clone(),
            models_url: format!("{}{path}", self.base_url),
        }
    }

    /// The same provider under a key with a name of its own. No variable overrides that.
    #[must_use]
    pub fn under_key(&self, key: &str, env: &Env) -> Self {
        let name = format!("{}@{key}", split_key_name(&self.name).0);
        let is_key_stored = env.has_stored_key(&name);
        Self { name, key_env: None, has_key: is_key_stored, is_key_stored, ..self.clone() }
    }

    /// Returns how to supply the provider's key: the variable to set, or the command to run.
    pub fn key_advice(&self) -> String {
        if let (provider, Some(key)) = split_key_name(&self.name) {
            return format!("run `aye login {provider} --as {key}`");
        }
        match (&self.key_env, self.built_in) {
            (Some(key_env), Some(built_in)) if !built_in.key_envs.is_empty() => {
                format!("set {key_env} or run `aye login {}`", self.name)
            }
            (Some(key_env), _) => format!("set {key_env}"),
            (None, _) => format!("run `aye login {}`", self.name),
        }
    }

    fn needs_key(&self) -> bool {
        if split_key_name(&self.name).1.is_some() {
            return true;
        }
        match self.built_in {
            // Another address may be a proxy that adds the key itself.
            Some(built_in) => !built_in.key_envs.is_empty() && !self.is_base_url_set,
            None => self.key_env.is_some() && !is_loopback(&self.base_url),
        }
    }
}

/// All providers: the user's own first, by name, then the built-in ones in the order of their keys, then those under keys with
/// names of their own.
pub fn resolve_providers(settings: &Settings, env: &Env) -> Vec<ResolvedProvider> {
    let own =
        settings.providers.keys().filter(|name| providers::provider(name).is_none()).map(String::as_str);
    let all = own.chain(PROVIDERS.iter().map(|provider| provider.name));
    let mut all: Vec<_> = all.map(|name| resolve(settings, env, name)).collect();
    let keys = env.stored_keys();
    let named = keys.iter().filter_map(|name| {
        let (provider, key) = name.split_once('@').filter(|(_, key)| !key.is_empty())?;
        let is_known =
            |known: &&ResolvedProvider| known.name == provider && !settings.providers.contains_key(name);
        Some(all.iter().find(is_known)?.under_key(key, env))
    });
    let named: Vec<_> = named.collect();
    all.extend(named);
    all
}

/// Resolves a provider, or one under a key with a name of its own.
pub(super) fn resolve(settings: &Settings, env: &Env, name: &str) -> ResolvedProvider {
    if let (provider, Some(key)) = split_key_name(name)
        && !settings.providers.contains_key(name)
    {
        return resolve(settings, env, provider).under_key(key, env);
    }
    let built_in = providers::provider(name);
    let own = settings.providers.get(name).cloned().unwrap_or_default();
    let from_env = built_in.and_then(|built_in| match built_in.name {
        "ollama" => ollama_url(env),
        _ => env.var(built_in.base_url_env?).map(str::to_owned),
    });
    let given = own.base_url.or(from_env);
    let is_base_url_set = given.is_some();
    let base_url = given.or(built_in.map(|built_in| built_in.base_url.to_owned())).unwrap_or_default();
    let adapter =
        own.adapter.unwrap_or_else(|| match built_in.map_or(Adapter::OpenAi, |known| known.adapter) {
            // Several of its models exist nowhere else; other servers speak chat completions.
            Adapter::OpenAi if is_openai(&base_url) => Adapter::OpenAiResponses,
            other => other,
        });
    let built_in_keys = built_in.map_or(&[][..], |built_in| built_in.key_envs);
    let key_env = own.api_key_env.or_else(|| {
        let set = built_in_keys.iter().find(|name| env.has(name));
        set.or(built_in_keys.first()).map(|name| (*name).to_owned())
    });
    let is_set = key_env.as_deref().is_some_and(|name| env.has(name));
    let is_key_stored = !is_set && env.has_stored_key(name);
    ResolvedProvider {
        name: name.to_owned(),
        adapter,
        base_url: normalise_base_url(adapter, &base_url),
        is_base_url_set,
        has_key: is_set || is_key_stored,
        is_key_stored,
        key_env,
        built_in,
    }
}

/// `OLLAMA_HOST` as Ollama itself reads it: a host, a host with a port, or an address.
fn ollama_url(env: &Env) -> Option<String> {
    let host = env.var("OLLAMA_HOST")?.trim();
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let authority = rest.split('/').next().unwrap_or_default();
    // A client cannot always connect to the address that the server listens on.
    let authority = authority.replacen("0.0.0.0", "127.0.0.1", 1);
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let authority = match authority.as_str() {
        port if port.starts_with(':') => format!("127.0.0.1{port}"),
        other if has_port => other.to_owned(),
        other => format!("{}:11434", other.trim_end_matches(':')),
    };
    Some(format!("{scheme}://{authority}/"))
}

/// The address in the one form that clients need: a slash at its end, and the version that the adapter counts on.
pub fn normalise_base_url(adapter: Adapter, url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    if url.is_empty() {
        return String::new();
    }
    let url = match url.contains("://") {
        true => url.to_owned(),
        false if is_loopback(url) => format!("http://{url}"),
        false => format!("https://{url}"),
    };
    let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path);
    match adapter {
        // Its own SDKs take the address without the version, ours with it.
        Adapter::Anthropic if !path.ends_with("v1") => format!("{url}/v1/"),
        // No server offers chat completions at the root of a host.
        Adapter::OpenAi | Adapter::OpenAiResponses if path.is_empty() => format!("{url}/v1/"),
        Adapter::Gemini if path.is_empty() => format!("{url}/v1beta/"),
        // Ollama's native API is at the root, its OpenAI-compatible API at /v1.
        Adapter::Ollama if path == "v1" => format!("{}/", url.trim_end_matches("/v1")),
        _ => format!("{url}/"),
    }
}

/// Returns whether a URL is that of OpenAI's own service, in any region.
fn is_openai(url: &str) -> bool {
    let rest = url.trim().split_once("://").map_or(url.trim(), |(_, rest)| rest);
    let host = rest.split(['/', ':', '?']).next().unwrap_or_default().to_ascii_lowercase();
    host == "api.openai.com" || host.ends_with(".api.openai.com")
}

pub(super) fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    // A port, but not the end of an IPv6 address.
    let host = host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(host, _)| host);
    is_this_machine(host)
}

/// The local servers to try, in order, when neither flag nor settings nor keys name a model.
pub fn probe_candidates(env: &Env) -> Vec<ProbeCandidate> {
    let ollama = ollama_url(env).unwrap_or_else(|| "http://127.0.0.1:11434/".to_owned());
    let mut candidates = vec![ProbeCandidate {
        provider: "ollama".to_owned(),
        adapter: Adapter::Ollama,
        models_url: format!("{ollama}api/tags"),
        base_url: ollama,
    }];
    // LM Studio, llama.cpp, vLLM, in the ports that they choose by themselves.
    for (provider, port) in [("lmstudio", 1234), ("llamacpp", 8080), ("vllm", 8000)] {
        let base_url = format!("http://127.0.0.1:{port}/v1/");
        let models_url = format!("{base_url}models");
        candidates.push(ProbeCandidate {
            provider: provider.to_owned(),
            adapter: Adapter::OpenAi,
            base_url,
            models_url,
        });
    }
    candidates.retain(|candidate| is_loopback(&candidate.base_url));
    candidates
}
