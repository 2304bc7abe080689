//! Resolves an agent's id to everything a run of it needs, in three stages: look up, plugins, tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::breaker::CircuitBreaker;
use super::catalog::Catalog;
use super::delegate;
use super::remote::{RemoteConversation, resolve_remote};
use super::request::RuntimeError;
use super::retry::{Fallback, LlmRetryPolicy, RetryConfigKey, RetryingExecutor};
use aye_core::context::estimate;
use aye_core::contract::executor::LlmExecutor;
use aye_core::contract::spec::{AgentSpec, ModelEntry, PluginConfigKey as _};
use aye_core::contract::tool::{Tool, ToolDescriptor};
use aye_core::phase::{ExecutionEnv, Plugin, validate_sections};
use aye_core::state::StateError;
use aye_pattern::Pattern;

/// Why an agent cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ResolveError {
    #[error("unknown agent `{0}`")]
    AgentNotFound(String),
    /// The agent's model is not registered.
    #[error("the model `{0}` is not registered")]
    ModelNotFound(String),
    /// The model's provider is not registered.
    #[error("the provider `{0}` is not registered")]
    ProviderNotFound(String),
    /// The agent names a plugin that is not registered.
    #[error("the plugin `{0}` is not registered")]
    PluginNotFound(String),
    /// A config section does not fit its schema.
    #[error("invalid section `{key}` of plugin `{plugin}`: {message}")]
    InvalidPluginConfig {
        plugin: String,
        key: String,
        /// What is wrong with the section.
        message: String,
    },
    /// The agent is remote and can only be delegated to.
    #[error("the agent `{0}` runs remotely: delegate to it instead")]
    RemoteAgentNotDirectlyRunnable(String),
    /// Two tools with one id.
    #[error("the tool `{tool_id}` comes from {source_a} and from {source_b}")]
    ToolIdConflict { tool_id: String, source_a: String, source_b: String },
    /// A tool pattern of the agent does not parse.
    #[error("invalid tool pattern `{pattern}`: {message}")]
    InvalidToolPattern {
        pattern: String,
        /// What is wrong with the pattern.
        message: String,
    },
    /// An agent that may be delegated to cannot be.
    #[error("the agent `{agent}` cannot delegate to `{delegate}`: {message}")]
    InvalidDelegate {
        agent: String,
        delegate: String,
        /// The reason why it cannot.
        message: String,
    },
    /// The plugins do not fit together.
    #[error(transparent)]
    EnvBuild(#[from] StateError),
}

/// An agent with everything it needs, for one run.
#[derive(Clone)]
pub struct ResolvedAgent {
    pub spec: Arc<AgentSpec>,
    /// The model's registered id.
    pub model_id: String,
    /// The model's provider, and its name there.
    pub model: ModelEntry,
    /// The model, with retries around it.
    pub executor: Arc<dyn LlmExecutor>,
    /// Hooks, handlers, transforms, keys.
    pub env: Arc<ExecutionEnv>,
    /// The tools, filtered, in a stable order.
    pub tools: Arc<IndexMap<String, Arc<dyn Tool>>>,
    /// The descriptors of the tools, in the same order.
    pub descriptors: Arc<[ToolDescriptor]>,
    /// The agents of this runtime that can be called as tools, by tool.
    pub delegates: Arc<BTreeMap<String, String>>,
    /// Sections that no plugin claims: probably typing errors.
    pub warnings: Vec<String>,
    /// The revision of the published agents that it was resolved at.
    pub revision: u64,
}

/// Gives agents by their id.
pub trait AgentResolver: Send + Sync {
    /// The agent, with everything that a run of it needs.
    ///
    /// # Errors
    /// [`RuntimeError::AgentNotFound`], [`RuntimeError::ResolveFailed`].
    fn resolve(&self, agent_id: &str) -> Result<ResolvedAgent, RuntimeError>;
}

impl ResolvedAgent {
    /// An agent of parts, without plugins and without retries.
    pub fn new(
        id: impl Into<String>,
        model: impl Into<String>,
        system_prompt: impl Into<String>,
        executor: Arc<dyn LlmExecutor>,
    ) -> Self {
        let model = model.into();
        let mut spec = AgentSpec::new(id).with_model(&model).with_system_prompt(system_prompt);
        spec.sections.insert(RetryConfigKey::KEY.into(), serde_json::json!({"max_retries": 0}));
        Self {
            spec: Arc::new(spec),
            model: ModelEntry { provider: executor.name().to_owned(), model_name: model.clone() },
            model_id: model,
            executor,
            delegates: Arc::default(),
            env: Arc::default(),
            tools: Arc::default(),
            descriptors: Arc::from([]),
            warnings: Vec::new(),
            revision: 0,
        }
    }

    /// Adds a tool, or replaces the one of the same id.
    #[must_use]
    pub fn with_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        let mut tools = IndexMap::clone(&self.tools);
        tools.insert(tool.descriptor().id, tool);
        self.descriptors = descriptors_of(&tools);
        self.tools = Arc::new(tools);
        self
    }

    /// Sets the maximum number of inferences in a run; 0 means no limit.
    #[must_use]
    pub fn with_max_rounds(mut self, rounds: usize) -> Self {
        Arc::make_mut(&mut self.spec).max_rounds = rounds;
        self
    }
}

impl std::fmt::Debug for ResolvedAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResolvedAgent")
            .field("spec", &self.spec.id)
            .field("model", &self.model)
            .field("tools", &self.tools.keys())
            .finish_non_exhaustive()
    }
}

/// Resolves an agent; `model` overrides the agent's own.
pub(super) fn resolve(
    catalog: &Catalog,
    breaker: &Arc<CircuitBreaker>,
    agent_id: &str,
    model: Option<&str>,
) -> Result<ResolvedAgent, ResolveError> {
    resolve_spec(catalog, breaker, spec_of(catalog, agent_id)?, model)
}

/// Resolves an agent for a run that may serve a call: the agent may be remote.
pub(super) fn resolve_served(
    catalog: &Catalog,
    breaker: &Arc<CircuitBreaker>,
    agent_id: &str,
    model: Option<&str>,
) -> Result<ResolvedAgent, ResolveError> {
    match catalog.agents.get(agent_id) {
        Some(spec) if delegate::remote_backend(catalog, spec).is_some() => resolve_remote(catalog, spec),
        Some(_) | None => resolve(catalog, breaker, agent_id, model),
    }
}

/// Checks that the agent, its model and the model's provider exist, without resolving anything.
pub(super) fn check_agent(
    catalog: &Catalog,
    agent_id: &str,
    model: Option<&str>,
) -> Result<(), ResolveError> {
    let spec = spec_of(catalog, agent_id)?;
    lookup(catalog, model.unwrap_or(&spec.model)).map(drop)
}

fn spec_of<'a>(catalog: &'a Catalog, agent_id: &str) -> Result<&'a Arc<AgentSpec>, ResolveError> {
    let spec = catalog.agents.get(agent_id).ok_or_else(|| ResolveError::AgentNotFound(agent_id.into()))?;
    if spec.endpoint.is_some() {
        return Err(ResolveError::RemoteAgentNotDirectlyRunnable(agent_id.into()));
    }
    Ok(spec)
}

/// Resolves a specification, registered or not.
pub(super) fn resolve_spec(
    catalog: &Catalog,
    breaker: &Arc<CircuitBreaker>,
    spec: &Arc<AgentSpec>,
    model: Option<&str>,
) -> Result<ResolvedAgent, ResolveError> {
    let model_id = model.unwrap_or(&spec.model);
    let (model, executor) = executor_of(catalog, breaker, spec, model_id)?;
    let (env, warnings) = environment(catalog, spec)?;
    let tools = tools_of(catalog, spec, &env)?;
    let descriptors = descriptors_of(&tools);
    Ok(ResolvedAgent {
        spec: Arc::clone(spec),
        model_id: model_id.to_owned(),
        model,
        executor,
        env: Arc::new(env),
        tools: Arc::new(tools),
        descriptors,
        delegates: Arc::new(delegate::local_delegates(catalog, spec).collect()),
        warnings,
        revision: catalog.published_revision,
    })
}

fn lookup(catalog: &Catalog, model_id: &str) -> Result<(ModelEntry, Arc<dyn LlmExecutor>), ResolveError> {
    let model =
        catalog.models.get(model_id).ok_or_else(|| ResolveError::ModelNotFound(model_id.into()))?.clone();
    let executor = catalog
        .providers
        .get(&model.provider)
        .ok_or_else(|| ResolveError::ProviderNotFound(model.provider.clone()))?;
    Ok((model, Arc::clone(executor)))
}

pub(super) fn executor_of(
    catalog: &Catalog,
    breaker: &Arc<CircuitBreaker>,
    spec: &AgentSpec,
    model_id: &str,
) -> Result<(ModelEntry, Arc<dyn LlmExecutor>), ResolveError> {
    let (model, executor) = lookup(catalog, model_id)?;
    let policy: LlmRetryPolicy =
        spec.config::<RetryConfigKey>().map_err(|error| ResolveError::InvalidPluginConfig {
            plugin: "retry".into(),
            key: RetryConfigKey::KEY.into(),
            message: match error {
                StateError::KeyDecode { message, .. } => message,
                other => other.to_string(),
            },
        })?;
    let fallback_ids = policy.fallback_models.clone();
    if policy.max_retries == 0 && fallback_ids.is_empty() {
        return Ok((model, executor));
    }
    let mut retrying = RetryingExecutor::new(executor, policy).with_breaker(Arc::clone(breaker));
    for id in fallback_ids {
        let (entry, executor) = lookup(catalog, &id)?;
        retrying = retrying.with_fallback(id, Fallback { executor, upstream_model: entry.model_name });
    }
    Ok((model, Arc::new(retrying)))
}

pub(super) fn environment(
    catalog: &Catalog,
    spec: &AgentSpec,
) -> Result<(ExecutionEnv, Vec<String>), ResolveError> {
    let mut plugins: Vec<Arc<dyn Plugin>> = Vec::new();
    if spec.plugin_ids.is_empty() {
        plugins.extend(catalog.plugins.values().cloned());
    } else {
        for id in &spec.plugin_ids {
            let plugin = catalog.plugins.get(id).ok_or_else(|| ResolveError::PluginNotFound(id.clone()))?;
            plugins.push(Arc::clone(plugin));
        }
    }
    // The one section that the runtime itself reads; most agents have no other, and schemas take time to make.
    let is_ours = |key: &String| key == RetryConfigKey::KEY;
    let mut warnings = Vec::new();
    if !spec.sections.keys().all(is_ours) {
        warnings = validate_sections(&plugins, spec).map_err(|e| ResolveError::InvalidPluginConfig {
            plugin: e.plugin.into(),
            key: e.key,
            message: e.message,
        })?;
        warnings.retain(|key| !is_ours(key));
    }
    Ok((ExecutionEnv::for_agent(&plugins, spec)?, warnings))
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern>, ResolveError> {
    texts
        .iter()
        .map(|text| {
            Pattern::parse(text).map_err(|e| ResolveError::InvalidToolPattern {
                pattern: text.clone(),
                message: e.to_string(),
            })
        })
        .collect()
}

fn descriptors_of(tools: &IndexMap<String, Arc<dyn Tool>>) -> Arc<[ToolDescriptor]> {
    tools.values().map(|tool| tool.descriptor()).collect()
}

impl ResolvedAgent {
    /// Uses `remote` in place of a model and offers its tools, for a run that serves a call of a remote agent.
    pub(super) fn connect(&mut self, remote: &dyn RemoteConversation) {
        let tools: IndexMap<_, _> =
            remote.tools().into_iter().map(|tool| (tool.descriptor().id, tool)).collect();
        self.executor = remote.executor();
        self.descriptors = descriptors_of(&tools);
        self.tools = Arc::new(tools);
    }

    /// Takes the tools that are there now; everything else stays as it was resolved.
    pub(super) fn refresh_tools(&mut self, catalog: &Catalog) -> Result<(), ResolveError> {
        let tools = tools_of(catalog, &self.spec, &self.env)?;
        self.descriptors = descriptors_of(&tools);
        self.tools = Arc::new(tools);
        Ok(())
    }
}

fn tools_of(
    catalog: &Catalog,
    spec: &AgentSpec,
    env: &ExecutionEnv,
) -> Result<IndexMap<String, Arc<dyn Tool>>, ResolveError> {
    let mut tools = catalog.tools.clone();
    for (id, tool) in env.active_tools(spec) {
        if tools.insert(id.to_owned(), Arc::clone(tool)).is_some() {
            return Err(ResolveError::ToolIdConflict {
                tool_id: id.to_owned(),
                source_a: "the runtime".into(),
                source_b: "a plugin".into(),
            });
        }
    }
    for tool in delegate::tools(catalog, spec)? {
        let id = tool.descriptor().id;
        if tools.insert(id.clone(), tool).is_some() {
            return Err(ResolveError::ToolIdConflict {
                tool_id: id,
                source_a: "a tool that is registered".into(),
                source_b: "an agent that may be delegated to".into(),
            });
        }
    }
    for (id, tool) in catalog.brought.values().flatten() {
        tools.entry(id.clone()).or_insert_with(|| Arc::clone(tool));
    }
    let is_offered = filter_of(spec)?;
    tools.retain(|id, _| is_offered(id));
    Ok(tools)
}

/// Returns a filter for the tools of an agent, by their ids.
fn filter_of(spec: &AgentSpec) -> Result<impl Fn(&str) -> bool + use<>, ResolveError> {
    let allowed = spec.allowed_tools.as_deref().map(patterns).transpose()?;
    let excluded = patterns(spec.excluded_tools.as_deref().unwrap_or_default())?;
    Ok(move |id: &str| {
        allowed.as_ref().is_none_or(|list| list.iter().any(|p| p.matches_tool(id)))
            // One with arguments speaks of calls, and rules judge those; it does not take the tool away.
            && !excluded.iter().any(|p| p.is_unconditional() && p.matches_tool(id))
    })
}

/// Returns the tokens of the tools in each request of an agent. Tools from other sources may be deferred and
/// are not counted.
pub(super) fn own_tools_tokens(catalog: &Catalog, spec: &AgentSpec) -> usize {
    let Ok(is_offered) = filter_of(spec) else { return 0 };
    let offered = catalog.tools.iter().filter(|(id, _)| is_offered(id));
    offered.map(|(_, tool)| estimate::tool_tokens(&tool.descriptor())).sum()
}
