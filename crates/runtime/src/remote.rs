//! Child runs that serve the calls of remote agents.
//!
//! Like the call of a local agent, the call of a remote one is served by a run in a thread of its own, so that it outlives
//! the process. The run sends a message to the agent where another run would ask a model, and each question of the agent
//! becomes a call of a tool that asks the user. Only the agent's [`AgentBackend`](super::AgentBackend) knows the protocol.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::catalog::Catalog;
use super::resolve::{self, ResolveError, ResolvedAgent};
use super::{AgentRuntime, RuntimeCore};
use aye_core::contract::child::ChildRecord;
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::inference::StreamResult;
use aye_core::contract::record::{Decision, SuspensionRecord, SuspensionStatus};
use aye_core::contract::spec::{AgentSpec, ModelEntry};
use aye_core::contract::storage::{StoreError, SuspensionFilter};
use aye_core::contract::suspension::{Actor, Answer, CHANNEL_REMOTE};
use aye_core::contract::tool::Tool;
use tokio_util::task::AbortOnDropHandle;

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

    /// Waits until the task no longer waits for the answers that the run asked the user for: it was answered on the
    /// other side, or is over.
    async fn answered_elsewhere(&self);

    /// Cancels the agent's task unless it is over. Called when the run ends, before that is committed.
    async fn cancel(&self);

    /// Deletes the stored notes about the task. Called when the end of the run is committed.
    async fn forget(&self);
}

/// How often a question is looked at that may have been answered here.
const LOOK: Duration = Duration::from_secs(5);

/// Questions of remote agents that this process watches on the other side, by the thread of the child.
#[derive(Default)]
pub(super) struct RemoteWatches(Mutex<HashMap<ThreadId, AbortOnDropHandle<()>>>);

impl AgentRuntime {
    /// Watches the questions of remote agents that a waiting conversation asks. If one is answered on the other side, it
    /// is closed here, and the conversation can be resumed as after an answer. Runs that this process drives are watched
    /// anyway; call this for those that an earlier process left.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn watch_remotes(&self, thread: &ThreadId) -> Result<(), StoreError> {
        for child in self.inner.shared.store.children(thread).await? {
            self.watch_remote(&child);
        }
        Ok(())
    }

    /// Watches the questions of one child until they are closed, if it serves a call of a remote agent.
    pub(super) fn watch_remote(&self, child: &ChildRecord) {
        let Some(remote) = self.remote_of(child) else { return };
        let shared = &self.inner.shared;
        let (core, live) = (Arc::downgrade(shared), Arc::downgrade(&self.inner.live));
        let (thread, agent) = (child.thread_id.clone(), child.agent.clone());
        let watch = tokio::spawn(async move {
            // Only the watched task keeps anything of the runtime.
            let closed = async {
                while let Some(core) = core.upgrade()
                    && !matches!(core.open_questions(&thread).await, Ok(open) if open.is_empty())
                {
                    drop(core);
                    tokio::time::sleep(LOOK).await;
                }
            };
            tokio::select! {
                () = remote.answered_elsewhere() => {}
                () = closed => return,
            }
            let (Some(core), Some(live)) = (core.upgrade(), live.upgrade()) else { return };
            match core.withdraw_questions(&thread, &agent).await {
                Ok(()) => {
                    live.rows_changed(|driven| thread.is_at_or_below(driven));
                    core.tasks.changed();
                }
                Err(error) => tracing::warn!(%thread, %error, "questions of a remote agent stay open"),
            }
        });
        let mut watches = shared.remotes.0.lock().expect("no panic while it is held");
        watches.retain(|_, watch| !watch.is_finished());
        watches.insert(child.thread_id.clone(), AbortOnDropHandle::new(watch));
    }
}

impl RuntimeCore {
    async fn open_questions(&self, thread: &ThreadId) -> Result<Vec<SuspensionRecord>, StoreError> {
        let (thread, status) = (Some(thread.clone()), Some(SuspensionStatus::Open));
        self.store.suspensions(SuspensionFilter { thread, status, ..SuspensionFilter::default() }).await
    }

    /// Stores that a remote agent no longer needs answers. The run then closes the questions as superseded, as after
    /// any other decision; a user's answer that came first stays.
    async fn withdraw_questions(&self, thread: &ThreadId, agent: &str) -> Result<(), StoreError> {
        for question in self.open_questions(thread).await? {
            let now = self.clock.now_ms();
            let resume = Answer::no(Some("it was answered on the other side".into())).resume(now);
            let actor = Actor {
                user: agent.to_owned(),
                channel: CHANNEL_REMOTE.into(),
                pid: self.owner.pid,
                ..Actor::default()
            };
            self.store.decide(&question.id, Decision::new(resume, actor), now).await?;
        }
        Ok(())
    }
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
