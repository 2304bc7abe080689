//! Agents that run elsewhere, as the child runs that serve calls of them see them.
//!
//! A call of such an agent is served as a call of a local one is: by a run in a thread of its own, so that it outlives the
//! process. The run's inferences are exchanges with the agent, and what the agent asks is a call of a tool that asks the
//! user. How the agent is reached is known to its [`AgentBackend`](super::AgentBackend) alone.

use std::sync::Arc;

use async_trait::async_trait;

use super::catalog::Catalog;
use super::resolve::{self, ResolveError, ResolvedAgent};
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor};
use aye_core::contract::inference::StreamResult;
use aye_core::contract::spec::{AgentSpec, ModelEntry};
use aye_core::contract::tool::Tool;

/// How the name begins that stands in place of a model for the answers of an agent elsewhere. What they cost is not known
/// here.
pub const REMOTE_MODEL: &str = "agent ";

/// What a child run has to do with one agent elsewhere.
#[async_trait]
pub trait RemoteConversation: Send + Sync {
    /// Returns what the run asks in place of a model. An exchange that a crash cut off is picked up where it stood when
    /// the run asks again; nothing is sent twice.
    fn executor(&self) -> Arc<dyn LlmExecutor>;

    /// Returns the tools that the agent's questions call.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Tells the agent that nobody waits for its work any more, unless it is done. Called when the run ends, before that
    /// is committed.
    async fn leave(&self);

    /// Forgets what was kept of the work. Called when the end of the run is committed.
    async fn forget(&self);
}

/// Why an agent elsewhere could not be looked up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent `{agent}` at {url} could not be looked up: {message}")]
pub struct DiscoveryError {
    /// The agent.
    pub agent: String,
    /// The address of its endpoint.
    pub url: String,
    /// What went wrong.
    pub message: String,
}

/// Stands where a run without its conversation would ask.
struct Nowhere;

#[async_trait]
impl LlmExecutor for Nowhere {
    async fn execute(&self, _: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        Err(InferenceExecutionError::InvalidRequest(
            "the agent runs remotely and is asked in its own run only".into(),
        ))
    }

    fn name(&self) -> &'static str {
        "remote"
    }
}

/// Resolves an agent that runs elsewhere for a run that serves a call of it: the plugins of its specification watch over
/// the run; model, prompt and tools are the agent's own affair.
pub(super) fn resolve_remote(catalog: &Catalog, spec: &AgentSpec) -> Result<ResolvedAgent, ResolveError> {
    let label = spec.endpoint.as_ref().map_or("remote", |endpoint| endpoint.backend.as_str());
    // No model of a provider is called so.
    let model_id = format!("{REMOTE_MODEL}{}", spec.id);
    let mut spec = spec.clone();
    spec.model.clone_from(&model_id);
    spec.system_prompt.clear();
    spec.context_policy = None;
    spec.delegates.clear();
    let (env, warnings) = resolve::environment(catalog, &spec)?;
    Ok(ResolvedAgent {
        model: ModelEntry { provider: label.to_owned(), model_name: spec.id.clone() },
        model_id,
        executor: Arc::new(Nowhere),
        env: Arc::new(env),
        tools: Arc::default(),
        descriptors: Arc::from([]),
        delegates: Arc::default(),
        warnings,
        spec: Arc::new(spec),
    })
}
