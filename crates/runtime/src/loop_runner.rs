//! One run of an agent that is put together by hand: for tests, and for programs that need no catalog.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::request::{AgentRunResult, RunRequest, RuntimeError};
use super::resolve::{AgentResolver, ResolvedAgent};
use super::{AgentRuntimeBuilder, UnknownPolicy};
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::identity::RunIdentity;
use aye_core::contract::ids::CallId;
use aye_core::contract::inference::InferenceOverride;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::Message;
use aye_core::contract::spec::AgentSpec;
use aye_core::contract::storage::ThreadRunStore;
use aye_core::contract::suspension::{Actor, ToolCallResume};
use aye_core::contract::tool::ToolDescriptor;
use aye_core::phase::{ExecutionEnv, PhaseRuntime, Plugin, PluginDescriptor};
use aye_core::state::StateError;

/// An answer to the question of a call.
pub type LoopDecision = (CallId, ToolCallResume);

/// The parameters of one [`run_agent_loop`].
pub struct AgentLoopParams<'a> {
    pub resolver: &'a dyn AgentResolver,
    pub agent_id: &'a str,
    /// The engine whose state the run works on, so that callers can inspect what the run leaves there.
    pub runtime: &'a PhaseRuntime,
    /// The sink for events.
    pub sink: Arc<dyn EventSink>,
    /// The store of the run; without one the run is lost when the call returns.
    pub checkpoint_store: Option<&'a dyn ThreadRunStore>,
    pub messages: Vec<Message>,
    /// The names of thread and run.
    pub run_identity: RunIdentity,
    pub cancellation_token: Option<CancellationToken>,
    /// Answers to questions. With a receiver the loop waits for answers; without one, or once its sender is
    /// dropped, a waiting run is returned with [`TerminationReason::Suspended`].
    pub decision_rx: Option<mpsc::UnboundedReceiver<LoopDecision>>,
    /// Changed parameters for the whole run.
    pub overrides: Option<InferenceOverride>,
    /// Tools that the caller carries out: a call of one waits for its result as a decision.
    pub frontend_tools: Vec<ToolDescriptor>,
}

/// A plugin without anything. The loop needs no state of its own; a store can have it installed all the same.
pub struct LoopStatePlugin;

impl Plugin for LoopStatePlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "loop-state" }
    }
}

/// Builds what plugins register, for an agent that is assembled by hand.
///
/// # Errors
/// The error of a plugin.
pub fn build_agent_env(
    plugins: &[Arc<dyn Plugin>],
    _agent: &ResolvedAgent,
) -> Result<Arc<ExecutionEnv>, StateError> {
    ExecutionEnv::from_plugins(plugins).map(Arc::new)
}

/// Runs an agent over the messages until it is over or waits.
///
/// # Errors
/// [`RuntimeError`].
pub async fn run_agent_loop(params: AgentLoopParams<'_>) -> Result<AgentRunResult, RuntimeError> {
    let AgentLoopParams {
        resolver,
        agent_id,
        runtime: phases,
        sink,
        checkpoint_store,
        messages,
        run_identity,
        cancellation_token,
        decision_rx,
        overrides,
        frontend_tools,
    } = params;
    let agent = resolver.resolve(agent_id)?;
    let failed = |e: &dyn std::fmt::Display| RuntimeError::Store(e.to_string());
    let mut builder = AgentRuntimeBuilder::new()
        .with_phases(phases.clone())
        .with_provider(agent.model.provider.clone(), Arc::clone(&agent.executor))
        .with_model(agent.model_id.clone(), agent.model.clone())
        .with_agent_spec(AgentSpec { id: agent_id.to_owned(), ..AgentSpec::clone(&agent.spec) });
    for plugin in &agent.env.plugins {
        builder = builder.with_plugin(plugin.descriptor().name, Arc::clone(plugin));
    }
    // A plugin brings its own tools.
    for (id, tool) in agent.tools.iter().filter(|(id, _)| !agent.env.tools.contains_key(*id)) {
        builder = builder.with_tool(id, Arc::clone(tool));
    }
    if let Some(store) = checkpoint_store {
        builder = builder.with_shared_store(store.handle().map_err(|e| failed(&e))?);
    }
    let runtime = builder.build().map_err(|e| RuntimeError::ResolveFailed { message: e.to_string() })?;
    let thread_id = run_identity.thread_id.clone();
    let request = RunRequest {
        run_id: Some(run_identity.run_id),
        parent_run_id: run_identity.parent_run_id,
        frontend_tools,
        overrides: overrides.unwrap_or_default(),
        ..RunRequest::new(thread_id.clone(), messages)
    };
    let cancelled = cancellation_token.unwrap_or_default();
    let ended = CancellationToken::new();
    let cancelling = async {
        tokio::select! {
            () = cancelled.cancelled() => {}
            () = ended.cancelled() => return Ok(()),
        }
        runtime.cancel_waiting(&thread_id, Arc::clone(&sink)).await.map(|_| ())
    };
    let driving = async {
        let _ends = ended.clone().drop_guard();
        let mut result = runtime.run(request, Arc::clone(&sink)).await?;
        let Some(mut decisions) = decision_rx else { return Ok::<_, RuntimeError>(result) };
        while result.termination == TerminationReason::Suspended {
            let answer = tokio::select! {
                biased;
                () = cancelled.cancelled() => None,
                answer = decisions.recv() => answer,
            };
            let Some((call, resume)) = answer else { break };
            let Some(question) = result.waiting.iter().find(|question| question.call_id == call) else {
                tracing::warn!(%call, "a decision on a call that is not waiting");
                continue;
            };
            let actor = Actor { channel: "loop".into(), ..Actor::default() };
            runtime.decide(&question.id, resume, actor).await.map_err(|e| failed(&e))?;
            result = runtime.resume(&thread_id, Arc::clone(&sink), UnknownPolicy::Ask).await?;
        }
        Ok(result)
    };
    let (driven, closed) = tokio::join!(driving, cancelling);
    let mut result: AgentRunResult = driven?;
    closed?;
    if cancelled.is_cancelled() && result.termination == TerminationReason::Suspended {
        result.termination = TerminationReason::Cancelled;
        result.waiting.clear();
    }
    Ok(result)
}
