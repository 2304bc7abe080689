//! Specifications of agents and models: data that may come from files.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::executor::ToolExecutionMode;
use super::inference::TokenUsage;
use crate::state::StateError;

/// Binds the name of a config section to its type.
pub trait PluginConfigKey: 'static + Send + Sync {
    /// The section's name in [`AgentSpec::sections`].
    const KEY: &'static str;
    /// The section's content; its default is what an absent section means.
    type Config: Default + Clone + Serialize + DeserializeOwned + schemars::JsonSchema + Send + Sync + 'static;
}

/// The limits on the part of a conversation that goes into a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextWindowPolicy {
    /// The model's window, in tokens.
    pub max_context_tokens: usize,
    /// Kept free for the answer, in tokens.
    pub max_output_tokens: usize,
    /// Never cut off.
    pub min_recent_messages: usize,
    /// Whether to set cache marks.
    pub enable_prompt_cache: bool,
    /// Compaction starts here, in tokens; `None` is never.
    pub autocompact_threshold: Option<usize>,
    /// The messages that stay raw.
    pub compaction_mode: ContextCompactionMode,
    /// The number of messages that stay raw.
    pub compaction_raw_suffix_messages: usize,
}

impl Default for ContextWindowPolicy {
    fn default() -> Self {
        Self {
            max_context_tokens: 200_000,
            max_output_tokens: 16_384,
            min_recent_messages: 10,
            enable_prompt_cache: true,
            autocompact_threshold: None,
            compaction_mode: ContextCompactionMode::default(),
            compaction_raw_suffix_messages: 2,
        }
    }
}

/// The messages that compaction keeps raw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextCompactionMode {
    /// The newest messages.
    #[default]
    KeepRecentRawSuffix,
    /// Only the messages after the last complete exchange.
    CompactToSafeFrontier,
}

/// An agent that runs elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteEndpoint {
    /// The kind of backend.
    pub backend: String,
    pub base_url: String,
    /// The credentials for requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Value>,
    /// The agent's name there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The timeout, in milliseconds.
    #[serde(default = "remote_timeout_ms")]
    pub timeout_ms: u64,
    /// The backend's own settings.
    #[serde(default)]
    pub options: BTreeMap<String, Value>,
}

impl RemoteEndpoint {
    /// An agent that speaks A2A at this address.
    pub fn a2a(base_url: impl Into<String>) -> Self {
        Self {
            backend: "a2a".into(),
            base_url: base_url.into(),
            auth: None,
            target: None,
            timeout_ms: remote_timeout_ms(),
            options: BTreeMap::new(),
        }
    }

    /// Returns the host of the address, with the port that it names.
    pub fn host(&self) -> &str {
        let rest = self.base_url.split_once("://").map_or(self.base_url.as_str(), |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    }
}

fn remote_timeout_ms() -> u64 {
    300_000
}

/// An agent: a model, a prompt, tools and plugins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    pub id: String,
    /// The purpose of the agent, in the words that other agents and users read when they choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The registered model it uses.
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub system_prompt: String,
    /// The maximum number of inferences per run; 0 is unlimited.
    #[serde(default = "max_rounds")]
    pub max_rounds: usize,
    /// The maximum number of times a truncated answer is continued.
    #[serde(default = "max_continuation_retries")]
    pub max_continuation_retries: usize,
    /// The limits on the part of the conversation that goes into a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_policy: Option<ContextWindowPolicy>,
    /// The plugins it uses.
    #[serde(default)]
    pub plugin_ids: Vec<String>,
    /// Plugins whose hooks, tools and transforms are active; empty is all.
    #[serde(default)]
    pub active_hook_filter: HashSet<String>,
    /// The tools it may use; `None` is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// The tools it may not use; beats `allowed_tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_tools: Option<Vec<String>>,
    /// The endpoint where the agent runs, if it does not run here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<RemoteEndpoint>,
    /// Agents it may delegate to.
    #[serde(default)]
    pub delegates: Vec<String>,
    /// Whether a run that serves a call of another agent works in a git worktree of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// The order in which the calls of a step run.
    #[serde(default)]
    pub tool_execution: ToolExecutionMode,
    /// Plugin configuration by section.
    #[serde(default)]
    pub sections: HashMap<String, Value>,
    /// The registry it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
}

fn max_rounds() -> usize {
    16
}

fn max_continuation_retries() -> usize {
    2
}

impl AgentSpec {
    /// An agent with defaults.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            description: None,
            model: String::new(),
            system_prompt: String::new(),
            max_rounds: max_rounds(),
            max_continuation_retries: max_continuation_retries(),
            context_policy: None,
            plugin_ids: Vec::new(),
            active_hook_filter: HashSet::new(),
            allowed_tools: None,
            excluded_tools: None,
            endpoint: None,
            delegates: Vec::new(),
            worktree: false,
            tool_execution: ToolExecutionMode::default(),
            sections: HashMap::new(),
            registry: None,
        }
    }

    /// Says what it is for.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the registered model.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    #[must_use]
    pub fn with_system_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.system_prompt = prompt.into();
        self
    }

    /// Sets the maximum number of inferences per run; 0 is unlimited.
    #[must_use]
    pub fn with_max_rounds(mut self, rounds: usize) -> Self {
        self.max_rounds = rounds;
        self
    }

    /// Sets how the calls of a step run.
    #[must_use]
    pub fn with_tool_execution(mut self, mode: ToolExecutionMode) -> Self {
        self.tool_execution = mode;
        self
    }

    /// Adds a plugin to the active ones.
    #[must_use]
    pub fn with_hook_filter(mut self, plugin_id: impl Into<String>) -> Self {
        self.active_hook_filter.insert(plugin_id.into());
        self
    }

    /// Adds an agent it may delegate to.
    #[must_use]
    pub fn with_delegate(mut self, agent_id: impl Into<String>) -> Self {
        self.delegates.push(agent_id.into());
        self
    }

    /// Says where it runs.
    #[must_use]
    pub fn with_endpoint(mut self, endpoint: RemoteEndpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// Sets a raw config section.
    #[must_use]
    pub fn with_section(mut self, key: impl Into<String>, value: Value) -> Self {
        self.sections.insert(key.into(), value);
        self
    }

    /// Sets a typed config section.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`].
    pub fn with_config<K: PluginConfigKey>(mut self, config: K::Config) -> Result<Self, StateError> {
        self.set_config::<K>(config)?;
        Ok(self)
    }

    /// Sets a typed config section.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`].
    pub fn set_config<K: PluginConfigKey>(&mut self, config: K::Config) -> Result<(), StateError> {
        let value = serde_json::to_value(config)
            .map_err(|e| StateError::KeyEncode { key: K::KEY.into(), message: e.to_string() })?;
        self.sections.insert(K::KEY.into(), value);
        Ok(())
    }

    /// Reads a typed config section; the default when it is absent.
    ///
    /// # Errors
    /// [`StateError::KeyDecode`].
    pub fn config<K: PluginConfigKey>(&self) -> Result<K::Config, StateError> {
        match self.sections.get(K::KEY) {
            None => Ok(K::Config::default()),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|e| StateError::KeyDecode { key: K::KEY.into(), message: e.to_string() }),
        }
    }
}

/// A registered model with its own id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// The id agents use.
    pub id: String,
    pub provider: String,
    /// The provider's name of the model.
    pub model: String,
}

/// The provider that serves a model, and the model's name there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelEntry {
    pub provider: String,
    /// The provider's name of the model.
    pub model_name: String,
}

impl From<ModelSpec> for ModelEntry {
    fn from(spec: ModelSpec) -> Self {
        Self { provider: spec.provider, model_name: spec.model }
    }
}

/// Prices, in a currency unit per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Prompt tokens.
    pub input: f64,
    /// Completion tokens.
    pub output: f64,
    /// Prompt tokens read from a cache; the input price when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Prompt tokens written to a cache; the input price when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// The parts of one unit of the currency that [`Price::cost`] counts.
pub const BILLION: f64 = 1e9;

impl Price {
    /// Returns the cost of a request, or of several together, in billionths of the currency unit.
    pub fn cost(&self, usage: &TokenUsage) -> u64 {
        let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or(0)).unwrap_or(0);
        self.cost_of(
            count(usage.prompt_tokens),
            count(usage.cache_read_tokens),
            count(usage.cache_creation_tokens),
            count(usage.completion_tokens),
        )
    }

    /// As [`Price::cost`], of numbers of tokens: those of the prompt, how many of these were read from a cache and
    /// how many were written to one, and those of the answer.
    pub fn cost_of(&self, input: u64, read: u64, written: u64, output: u64) -> u64 {
        // Prompt tokens are counted once, whatever a provider reports.
        let read = read.min(input);
        let written = written.min(input - read);
        let fresh = input - read - written;
        let millionths = fresh as f64 * self.input
            + read as f64 * self.cache_read.unwrap_or(self.input)
            + written as f64 * self.cache_write.unwrap_or(self.input)
            + output as f64 * self.output;
        // Never negative, and saturated by the conversion.
        (millionths * 1000.0).round() as u64
    }
}
