//! Child runs that serve the calls of remote agents.
//!
//! Like the call of a local agent, the call of a remote one is served by a run in a thread of its own, so that it outlives
//! the process. The run sends a message to the agent where another run would ask a model, and each question of the agent
//! becomes a call of a tool that asks the user. Only the agent's [`AgentBackend`](super::AgentBackend) knows the protocol.

use std::sync::Arc;

use async_trait::async_trait;

use super::catalog::Catalog;
use super::resolve::{self, ResolveError, ResolvedAgent};
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor};
use aye_core::contract::inference::StreamResult;
use aye_core::contract::spec::{AgentSpec, ModelEntry};
use aye_core::contract::tool::Tool;

/// The prefix of the model id that is recorded for the answers of a remote agent. Their cost is not known.
pub const REMOTE_MODEL: &str = "agent ";

/// The conversation of one child run with its remote agent.
#[async_trait]
pub trait RemoteConversation: Send + Sync {
    /// Returns the executor that the run uses in place of a model. After a crash, the repeated request continues the
    /// exchange where it stopped; nothing is sent twice.
    fn executor(&self) -> Arc<dyn LlmExecutor>;

    /// Returns the tools that the executor's answers call to ask the user.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Cancels the agent's task unless it is over. Called when the run ends, before that is committed.
    async fn cancel(&self);

    /// Deletes the stored notes about the task. Called when the end of the run is committed.
    async fn forget(&self);
}

/// Why the card of a remote agent could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent `{agent}` at {url} could not be looked up: {message}")]
pub struct DiscoveryError {
    /// The agent.
    pub agent: String,
    /// The URL of its endpoint.
    pub url: String,
    /// What went wrong.
    pub message: String,
}

/// Fails every request: a remote agent can only be called by a child run with its conversation.
struct OutsideChildRun;

#[async_trait]
impl LlmExecutor for OutsideChildRun {
    async fn execute(&self, _: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        Err(InferenceExecutionError::InvalidRequest(
            "a remote agent can only be called by delegating to it".into(),
        ))
    }

    fn name(&self) -> &'static str {
        "remote"
    }
}

/// Resolves a remote agent for a run that serves a call of it. The plugins of its specification apply to the run; model,
/// prompt and tools are the remote side's concern.
pub(super) fn resolve_remote(catalog: &Catalog, spec: &AgentSpec) -> Result<ResolvedAgent, ResolveError> {
    let label = spec.endpoint.as_ref().map_or("remote", |endpoint| endpoint.backend.as_str());
    // No model of a provider has such a name.
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
        executor: Arc::new(OutsideChildRun),
        env: Arc::new(env),
        tools: Arc::default(),
        descriptors: Arc::from([]),
        delegates: Arc::default(),
        warnings,
        revision: catalog.published_revision,
        spec: Arc::new(spec),
    })
}
