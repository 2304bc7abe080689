use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::contract::identity::{RunIdentity, RunOrigin};
use crate::contract::inference::{ModelUsage, StreamResult, TokenUsage};
use crate::contract::judgement::Profile;
use crate::contract::message::{Message, ToolCall};
use crate::contract::profile::ProfileAccess;
use crate::contract::spec::AgentSpec;
use crate::contract::suspension::{SuspendTicket, ToolCallResume};
use crate::contract::tool::{ToolDescriptor, ToolResult};
use crate::contract::tool_intercept::ToolInterceptPayload;
use crate::state::{Phase, Snapshot, StateKey};

/// The progress of a run, over all its waits and restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunProgress {
    /// Inferences that were completed; from `AfterInference` on it includes the step's own.
    pub steps: u32,
    /// Tokens they used, under the same rule.
    pub usage: TokenUsage,
    /// The time spent active. Waiting for a decision does not count.
    pub active: Duration,
}

/// The call that a `BeforeToolExecute` or `AfterToolExecute` phase is about.
#[derive(Clone, Debug)]
pub struct ToolCallInfo {
    /// The call, with the arguments the tool would be executed with.
    pub call: ToolCall,
    /// The tool; `None` when no such tool is on offer.
    pub descriptor: Option<ToolDescriptor>,
    /// The decision that the call is replayed with.
    pub resume: Option<ToolCallResume>,
    /// The question that the decision answers.
    pub suspension: Option<SuspendTicket>,
    /// The profile that the user chose for the call. Like edited arguments, it applies whatever happens to
    /// the call.
    pub chosen: Option<Profile>,
    /// Grants, by id, that were found not to hold any more while the call was judged: they allow nothing.
    pub spent_grants: Vec<String>,
}

impl ToolCallInfo {
    /// Returns a call that has not been asked about yet.
    pub fn new(call: ToolCall, descriptor: Option<ToolDescriptor>) -> Self {
        Self { call, descriptor, resume: None, suspension: None, chosen: None, spent_grants: Vec::new() }
    }

    /// Adds the decision and the question it answers.
    #[must_use]
    pub fn with_decision(mut self, resume: ToolCallResume, suspension: Option<SuspendTicket>) -> Self {
        self.resume = Some(resume);
        self.suspension = suspension;
        self
    }
}

/// A [`Snapshot`] with the identity of the run it was taken in.
#[derive(Clone, Copy, Debug)]
pub struct RunSnapshot<'a> {
    state: &'a Snapshot,
    identity: &'a RunIdentity,
}

impl<'a> RunSnapshot<'a> {
    pub fn run_identity(self) -> &'a RunIdentity {
        self.identity
    }

    /// The value of `K`, or `None` when it was never written.
    pub fn get<K: StateKey>(self) -> Option<&'a K::Value> {
        self.state.get::<K>()
    }

    /// The same as [`RunSnapshot::get`], under the name that contexts have for it.
    pub fn state<K: StateKey>(self) -> Option<&'a K::Value> {
        self.state.get::<K>()
    }
}

impl Deref for RunSnapshot<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        self.state
    }
}

/// The read-only context that hooks and handlers run in.
#[derive(Clone, Debug)]
pub struct PhaseContext {
    pub phase: Phase,
    /// The state; the engine replaces it by the newest one before it hands the context out.
    pub snapshot: Snapshot,
    pub run_identity: RunIdentity,
    pub agent_spec: Arc<AgentSpec>,
    /// The conversation so far, newest last.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The tools of the agent, whether or not the step offers them; filled in the phases of a step.
    pub tools: Arc<[ToolDescriptor]>,
    /// The call, in the two phases of a call.
    pub tool: Option<ToolCallInfo>,
    /// The action to take instead of executing, if this phase has set one so far: for the handlers of
    /// actions.
    pub intercept: Option<ToolInterceptPayload>,
    /// Its result, in `AfterToolExecute`.
    pub tool_result: Option<ToolResult>,
    /// In `AfterToolExecute`: the tool ran. A call that was denied, declined or invalid has a result too.
    pub was_executed: bool,
    /// In `AfterToolExecute`: the call failed to run or was refused. A failure that the tool itself reports, such as a
    /// command's exit status, is a result of a call that ran.
    pub came_to_nothing: bool,
    /// The answer of the step's inference, from `AfterInference` to `StepEnd`; absent when the process was restarted
    /// between the two.
    pub response: Option<StreamResult>,
    /// The progress of the run.
    pub progress: RunProgress,
    /// The tokens that the run is charged for so far, by model.
    pub spent: Arc<[ModelUsage]>,
    /// Values that outlive the thread; absent where nothing keeps them.
    pub profile: Option<ProfileAccess>,
    /// Cancelled when the run is given up. Hooks of `RunEnd` run all the same.
    pub cancellation: CancellationToken,
}

impl PhaseContext {
    /// The bare moment: no conversation, no call, no progress.
    pub fn new(phase: Phase, run_identity: RunIdentity, agent_spec: Arc<AgentSpec>) -> Self {
        Self {
            phase,
            snapshot: Snapshot::default(),
            run_identity,
            agent_spec,
            messages: Arc::default(),
            tools: Arc::from([]),
            tool: None,
            intercept: None,
            tool_result: None,
            was_executed: true,
            came_to_nothing: false,
            response: None,
            progress: RunProgress::default(),
            spent: Arc::from([]),
            profile: None,
            cancellation: CancellationToken::new(),
        }
    }

    /// A run's start with an agent of defaults, for tests.
    pub fn test_default() -> Self {
        let identity = RunIdentity::new(
            "thread-1".into(),
            None,
            "run-1".into(),
            None,
            "agent".into(),
            RunOrigin::Internal,
        );
        Self::new(Phase::RunStart, identity, Arc::new(AgentSpec::new("agent")))
    }

    /// The value of `K`, or `None` when it was never written.
    pub fn state<K: StateKey>(&self) -> Option<&K::Value> {
        self.snapshot.get::<K>()
    }

    pub fn agent_spec(&self) -> &AgentSpec {
        &self.agent_spec
    }

    /// The state, with the identity of the run it belongs to.
    pub fn snapshot(&self) -> RunSnapshot<'_> {
        RunSnapshot { state: &self.snapshot, identity: &self.run_identity }
    }

    /// Values that outlive the thread, when something keeps them.
    pub fn profile(&self) -> Option<&ProfileAccess> {
        self.profile.as_ref()
    }

    #[must_use]
    pub fn with_phase(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// Sets the state, for hooks that are tested without an engine.
    #[must_use]
    pub fn with_snapshot(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = snapshot;
        self
    }

    #[must_use]
    pub fn with_agent_spec(mut self, spec: impl Into<Arc<AgentSpec>>) -> Self {
        self.agent_spec = spec.into();
        self
    }

    #[must_use]
    pub fn with_messages(mut self, messages: impl IntoIterator<Item = impl Into<Arc<Message>>>) -> Self {
        self.messages = Arc::new(messages.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the tools of the agent.
    #[must_use]
    pub fn with_tools(mut self, tools: impl Into<Arc<[ToolDescriptor]>>) -> Self {
        self.tools = tools.into();
        self
    }

    #[must_use]
    pub fn with_tool(mut self, tool: ToolCallInfo) -> Self {
        self.tool = Some(tool);
        self
    }

    /// Sets the call's result.
    #[must_use]
    pub fn with_tool_result(mut self, result: ToolResult) -> Self {
        self.tool_result = Some(result);
        self
    }

    /// Sets the model's answer.
    #[must_use]
    pub fn with_response(mut self, response: StreamResult) -> Self {
        self.response = Some(response);
        self
    }

    /// Sets how far the run is.
    #[must_use]
    pub fn with_progress(mut self, progress: RunProgress) -> Self {
        self.progress = progress;
        self
    }

    /// Sets what the run is charged for.
    #[must_use]
    pub fn with_spent(mut self, spent: impl Into<Arc<[ModelUsage]>>) -> Self {
        self.spent = spent.into();
        self
    }

    /// Sets what keeps values that outlive the thread.
    #[must_use]
    pub fn with_profile(mut self, profile: ProfileAccess) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Sets the token of the run.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: CancellationToken) -> Self {
        self.cancellation = cancellation;
        self
    }
}
