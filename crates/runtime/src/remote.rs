//! Child runs that serve the calls of remote agents.
//!
//! Like the call of a local agent, the call of a remote one is served by a run in a thread of its own, so that it outlives
//! the process. The run sends a message to the agent where another run would ask a model, and each question of the agent
//! becomes a call of a tool that asks the user. Only the agent's [`AgentBackend`](super::AgentBackend) knows the protocol.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::catalog::Catalog;
use super::resolve::{self, ResolveError, ResolvedAgent};
use super::{AgentRuntime, RuntimeError};
use aye_core::contract::child::ChildRecord;
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::inference::StreamResult;
use aye_core::contract::record::{Decision, SuspensionRecord, SuspensionStatus};
use aye_core::contract::spec::{AgentSpec, ModelEntry};
use aye_core::contract::storage::SuspensionFilter;
use aye_core::contract::suspension::{Actor, Answer, CHANNEL_REMOTE};
use aye_core::contract::tool::Tool;
use tokio_util::task::AbortOnDropHandle;

/// The prefix of the model id that is recorded for the answers of a remote agent. Their cost is not known.
pub const REMOTE_MODEL: &str = "agent ";

/// The error code in the result of a question that was answered on the other side.
pub const CODE_ANSWERED_REMOTELY: &str = "answered_remotely";

/// The conversation of one child run with its remote agent.
#[async_trait]
pub trait RemoteConversation: Send + Sync {
    /// Returns the executor that the run uses in place of a model. After a crash, the repeated request continues the
    /// exchange where it stopped; nothing is sent twice.
    fn executor(&self) -> Arc<dyn LlmExecutor>;

    /// Returns the tools that the executor's answers call to ask the user.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Waits for as long as is usual after this number of checks, and then returns whether the task still waits for the
    /// answers that the run asked the user for. It no longer does if it was answered on the other side, or is over.
    async fn still_asks(&self, checks: u32) -> bool;

    /// Cancels the agent's task unless it is over. Called when the run ends, before that is committed.
    async fn cancel(&self);

    /// Deletes the stored notes about the task. Called when the end of the run is committed.
    async fn forget(&self);
}

/// The tasks that check on the other side whether a question was answered there, by the thread of the child.
#[derive(Default)]
pub(super) struct RemoteWatches(Mutex<HashMap<ThreadId, AbortOnDropHandle<()>>>);

impl AgentRuntime {
    /// Watches the pending questions of remote agents that work for a conversation, also those that an earlier process
    /// asked, and returns whether there are any. One that is answered on the other side is closed here as superseded;
    /// [`AgentRuntime::watch_children`] reports that, and the run can be resumed as after any other answer.
    ///
    /// # Errors
    /// [`RuntimeError::Store`].
    pub async fn watch_remotes(&self, thread: &ThreadId) -> Result<bool, RuntimeError> {
        let mut any = false;
        for task in self.tasks(thread).await? {
            any |= task.waiting > 0 && self.watch_remote(&task.child);
        }
        Ok(any)
    }

    /// Watches the questions of one child until they are closed. Returns `false` if it serves no call of a remote agent.
    pub(super) fn watch_remote(&self, child: &ChildRecord) -> bool {
        let Some(remote) = self.remote_of(child) else { return false };
        let (core, live) = (Arc::downgrade(&self.inner.shared), Arc::downgrade(&self.inner.live));
        let own = child.clone();
        // The task keeps neither runtime nor driver alive.
        let watch = tokio::spawn(async move {
            for checks in 0.. {
                let Some(store) = core.upgrade().map(|core| Arc::clone(&core.store)) else { return };
                // Read before the task on the other side: a question that is asked meanwhile is not closed.
                let filter = SuspensionFilter {
                    thread: Some(own.thread_id.clone()),
                    status: Some(SuspensionStatus::Open),
                    ..SuspensionFilter::default()
                };
                let open = store.suspensions(filter).await.unwrap_or_default();
                drop(store);
                if open.is_empty() {
                    return;
                }
                if !remote.still_asks(checks).await {
                    let (Some(core), Some(live)) = (core.upgrade(), live.upgrade()) else { return };
                    AgentRuntime::of(&core, &live).supersede(&own, open).await;
                    return;
                }
            }
        });
        let mut watches = self.inner.shared.remotes.0.lock().expect("no panic while it is held");
        watches.retain(|_, watch| !watch.is_finished());
        watches.insert(child.thread_id.clone(), AbortOnDropHandle::new(watch));
        true
    }

    /// Stores that a remote agent no longer needs answers. The run then closes the questions as superseded, as after any
    /// other decision; a user's answer that came first stays.
    async fn supersede(&self, child: &ChildRecord, questions: Vec<SuspensionRecord>) {
        let shared = &self.inner.shared;
        for question in questions {
            let now = shared.clock.now_ms();
            let resume = Answer::no(Some("it was answered on the other side".into())).resume(now);
            let actor = Actor {
                user: child.agent.clone(),
                channel: CHANNEL_REMOTE.into(),
                pid: shared.owner.pid,
                ..Actor::default()
            };
            if let Err(error) = shared.store.decide(&question.id, Decision::new(resume, actor), now).await {
                tracing::warn!(question = %question.id, %error, "a question answered by a remote agent stays open");
            }
        }
        self.inner.live.rows_changed(|driven| child.thread_id.is_at_or_below(driven));
        self.children_changed();
        if child.background {
            self.spawn_task(&child.thread_id);
        }
    }
}

/// Why the card of a remote agent could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent `{agent}` at {url} could not be looked up: {message}")]
pub struct DiscoveryError {
    pub agent: String,
    /// The URL of its endpoint.
    pub url: String,
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
