//! Agents as tools of other agents, and the backends that run them.
//!
//! A subagent of this runtime does not run inside the call: the call suspends with a ticket of its own kind
//! ([`ACTION_CHILD_RUN`]) and is served by a run in its own thread (`children.rs`), so that it outlives the process
//! as any question does. A remote agent is reached through a registered [`AgentBackend`]:
//! one that serves runs makes the same run of the call (`remote.rs`), any other runs inside the call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::remote::{DiscoveryError, RemoteConversation};
use super::request::{AgentRunResult, RunRequest, RuntimeError};
use super::{AgentRuntime, Catalog, ResolveError, RuntimeCore};
use aye_core::contract::child::ChildStatus;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::event_sink::{EventSink, NullEventSink};
use aye_core::contract::ids::{CallId, RunId, ThreadId};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::Message;
use aye_core::contract::profile::ProfileStore;
use aye_core::contract::question::QuestionParameters;
use aye_core::contract::spec::{AgentSpec, RemoteEndpoint};
use aye_core::contract::suspension::{
    ACTION_CHILD_RUN, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

pub use aye_core::contract::child::DELEGATION_DEPTH;

/// The longest name of a tool that models take.
const MAX_NAME: usize = 64;

/// The status of a finished delegated run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelegateRunStatus {
    /// The agent completed its task, as far as can be determined.
    Completed,
    /// It did not; why.
    Failed(String),
    Cancelled,
    /// It took longer than it may.
    Timeout,
}

/// The result of a delegated run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegateRunResult {
    pub agent_id: String,
    /// The status at the end.
    pub status: DelegateRunStatus,
    /// The agent's last answer.
    pub response: Option<String>,
    /// Inferences.
    pub steps: usize,
}

/// Why a backend could not run an agent at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AgentBackendError {
    #[error("unknown agent `{0}`")]
    AgentNotFound(String),
    /// The run did not start, or its outcome is unknown.
    #[error("{0}")]
    ExecutionFailed(String),
}

/// Runs agents for calls of other agents. The runtime's own agents need none; register one with
/// [`AgentRuntimeBuilder::with_agent_backend`](super::AgentRuntimeBuilder::with_agent_backend) for agents whose
/// endpoint names it.
#[async_trait]
pub trait AgentBackend: Send + Sync {
    /// Runs an agent to its end.
    ///
    /// # Errors
    /// [`AgentBackendError`]. A run that started and failed is a result.
    async fn execute(
        &self,
        agent_id: &str,
        messages: Vec<Message>,
        event_sink: Arc<dyn EventSink>,
        parent_run_id: Option<String>,
        parent_tool_call_id: Option<String>,
    ) -> Result<DelegateRunResult, AgentBackendError>;

    /// Returns whether [`conversation`](Self::conversation) has one: calls of its agents then outlive the process. Without
    /// one they run inside of [`execute`](Self::execute).
    fn serves_runs(&self) -> bool {
        false
    }

    /// Returns what the child run in `thread` asks the agent through. What must outlive the process is kept in `notes`.
    fn conversation(
        &self,
        _spec: &AgentSpec,
        _thread: &ThreadId,
        _notes: Arc<dyn ProfileStore>,
    ) -> Option<Arc<dyn RemoteConversation>> {
        None
    }

    /// Asks an endpoint what its agent is for.
    ///
    /// # Errors
    /// [`DiscoveryError`].
    async fn discover(&self, agent: &str, endpoint: &RemoteEndpoint) -> Result<AgentSpec, DiscoveryError> {
        Err(DiscoveryError {
            agent: agent.to_owned(),
            url: endpoint.base_url.clone(),
            message: format!("the backend `{}` cannot look agents up", endpoint.backend),
        })
    }
}

/// The backend of a remote agent whose calls are served by runs here.
pub(super) fn remote_backend<'a>(
    catalog: &'a Catalog,
    spec: &AgentSpec,
) -> Option<&'a Arc<dyn AgentBackend>> {
    let endpoint = spec.endpoint.as_ref()?;
    catalog.backends.get(&endpoint.backend).filter(|backend| backend.serves_runs())
}

impl RuntimeCore {
    /// The conversation of the child run in a thread with its agent, if that is remote.
    pub(super) fn conversation(
        &self,
        spec: &AgentSpec,
        thread: &ThreadId,
    ) -> Option<Arc<dyn RemoteConversation>> {
        let backend = Arc::clone(remote_backend(&self.catalog(), spec)?);
        backend.conversation(spec, thread, Arc::clone(&self.profiles))
    }

    /// The host of a remote agent.
    pub(super) fn host_of(&self, agent: &str) -> Option<String> {
        let endpoint = self.catalog().agents.get(agent)?.endpoint.clone()?;
        Some(endpoint.host().to_owned())
    }
}

/// Runs agents of a runtime inside the caller's future, each in its own thread. For programs that embed aye;
/// a call of an agent is served differently, in a way that outlives the process. A run that waits for a user
/// is left as it is: it counts as failed here and can be resumed in its thread.
pub struct LocalBackend {
    runtime: AgentRuntime,
}

impl LocalBackend {
    /// Runs the agents of this runtime.
    pub fn new(runtime: AgentRuntime) -> Self {
        Self { runtime }
    }
}

#[async_trait]
impl AgentBackend for LocalBackend {
    async fn execute(
        &self,
        agent_id: &str,
        messages: Vec<Message>,
        event_sink: Arc<dyn EventSink>,
        parent_run_id: Option<String>,
        parent_tool_call_id: Option<String>,
    ) -> Result<DelegateRunResult, AgentBackendError> {
        tracing::debug!(agent_id, ?parent_run_id, ?parent_tool_call_id, "delegated");
        let mut request = RunRequest::new(ThreadId::fresh(), messages).with_agent_id(agent_id);
        request.parent_run_id = parent_run_id.map(RunId::from);
        let result = self.runtime.run(request, event_sink).await.map_err(|error| match error {
            RuntimeError::AgentNotFound { agent_id } => AgentBackendError::AgentNotFound(agent_id),
            other => AgentBackendError::ExecutionFailed(other.to_string()),
        })?;
        Ok(DelegateRunResult {
            agent_id: agent_id.to_owned(),
            status: status_of(&result.termination),
            response: Some(result.response).filter(|response_text| !response_text.is_empty()),
            steps: usize::try_from(result.steps).unwrap_or(usize::MAX),
        })
    }
}

/// Returns the status of a run with this end.
pub(super) fn status_of(termination: &TerminationReason) -> DelegateRunStatus {
    match ChildStatus::of_end(termination) {
        ChildStatus::Completed => DelegateRunStatus::Completed,
        ChildStatus::Cancelled => DelegateRunStatus::Cancelled,
        ChildStatus::Timeout => DelegateRunStatus::Timeout,
        ChildStatus::Running | ChildStatus::Waiting | ChildStatus::Failed => {
            DelegateRunStatus::Failed(why_of(termination))
        }
    }
}

/// Why a run ended as it did, in words for the one that asked for it.
pub(super) fn why_of(termination: &TerminationReason) -> String {
    match termination {
        TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested => "it is done".into(),
        TerminationReason::Suspended => "it is waiting for the user's decision".into(),
        TerminationReason::Cancelled => "it was stopped before it finished".into(),
        TerminationReason::Blocked(why) => format!("it was blocked: {why}"),
        TerminationReason::Stopped(why) => {
            format!("it was stopped: {}", why.detail.as_deref().unwrap_or(&why.code))
        }
        TerminationReason::Error(why) => format!("it failed: {why}"),
    }
}

/// Returns the report of a child's end to its parent: the payload of the decision, or the text of the
/// message.
pub(super) fn payload(agent: &str, host: Option<&str>, result: &AgentRunResult, state: &Value) -> Value {
    let status = ChildStatus::of_end(&result.termination);
    json!({
        "agent": agent,
        "host": host,
        "status": status.word(),
        "response": result.response,
        "error": format!("The subagent `{agent}` did not finish: {}.", why_of(&result.termination)),
        "steps": result.steps,
        "usage": result.usage,
        "state": state,
    })
}

/// Returns the same report for a child whose run could not start.
pub(super) fn refused(agent: &str, why: &str) -> Value {
    json!({
        "agent": agent,
        "status": ChildStatus::Failed.word(),
        "response": "",
        "error": format!("The subagent `{agent}` could not run: {why}."),
        "steps": 0,
        "state": {"agent": agent, "thread_id": "", "parent_call_id": "", "status": "failed"},
    })
}

/// The party that serves a call of the tool.
#[derive(Clone)]
enum Serves {
    /// An agent of this runtime, with the maximum number of runs above it.
    Here(Option<u32>),
    /// A remote agent; how long it may take.
    Elsewhere(Arc<dyn AgentBackend>, Duration),
}

/// An agent as a tool of another agent.
pub struct AgentTool {
    agent: String,
    descriptor: ToolDescriptor,
    serves: Serves,
}

/// Returns the name of the tool for an agent. Characters that models do not accept in a name become `_`.
pub fn tool_name(agent: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    format!("agent_run_{agent}").chars().map(fits).take(MAX_NAME).collect()
}

impl AgentTool {
    /// A tool for an agent of this runtime.
    pub fn local(spec: &AgentSpec, max_depth: Option<u32>) -> Self {
        // The call itself only creates a ticket, so it may be repeated.
        let tool = Self::of(spec, ToolClass::Pure, Serves::Here(max_depth));
        match &spec.endpoint {
            Some(endpoint) => Self { descriptor: tool.descriptor.with_host(endpoint.host()), ..tool },
            None => tool,
        }
    }

    /// A tool for a remote agent.
    pub fn remote(spec: &AgentSpec, backend: Arc<dyn AgentBackend>) -> Self {
        let timeout = spec.endpoint.as_ref().map_or(300_000, |endpoint| endpoint.timeout_ms);
        let tool =
            Self::of(spec, ToolClass::Opaque, Serves::Elsewhere(backend, Duration::from_millis(timeout)));
        let host = spec.endpoint.as_ref().map(RemoteEndpoint::host).unwrap_or_default();
        Self { descriptor: tool.descriptor.with_host(host), ..tool }
    }

    fn of(spec: &AgentSpec, class: ToolClass, serves: Serves) -> Self {
        let about = about(spec);
        let name = tool_name(&spec.id);
        let description = format!(
            "Gives a task to the subagent `{}`{about} It works in its own conversation and sees only your \
             prompt, so include everything it needs. Returns its final answer.",
            spec.id
        );
        let mut properties = json!({
            "prompt": {"type": "string", "description": "The task, with everything the subagent needs to \
                              know."},
        });
        if matches!(serves, Serves::Here(_)) {
            properties["background"] = json!({
                "type": "boolean",
                "description": "Return at once; the result comes later as a message.",
            });
        }
        let descriptor = ToolDescriptor::new(name.clone(), name, description)
            .with_class(class)
            .with_category("agent")
            .with_parameters(json!({
                "type": "object",
                "properties": properties,
                "required": ["prompt"],
                "additionalProperties": false,
            }));
        let descriptor = ToolDescriptor { primary_argument: Some("prompt".into()), ..descriptor };
        Self { agent: spec.id.clone(), descriptor, serves }
    }

    fn is_too_deep(&self, above: u32) -> Option<ToolResult> {
        let Serves::Here(Some(limit)) = &self.serves else { return None };
        (above >= *limit).then(|| {
            let text = format!("Not started: subagents nest at most {limit} deep. Do the task yourself.");
            ToolResult::error_with_code(&self.descriptor.id, "depth_limit", text)
        })
    }

    fn ticket(&self, prompt: &str, args: &Value, ctx: &ToolCallContext) -> SuspendTicket {
        let identity = &ctx.run_identity;
        let call = CallId::from(ctx.call_id.as_str());
        let thread = identity.thread_id.of_child(&identity.run_id, &call);
        SuspendTicket {
            suspension: Suspension {
                id: format!("child_{call}").into(),
                action: ACTION_CHILD_RUN.into(),
                message: format!("the subagent {} works on it", self.agent),
                parameters: QuestionParameters {
                    agent: Some(self.agent.clone()),
                    prompt: Some(prompt.to_owned()),
                    thread: Some(thread),
                    ..QuestionParameters::default()
                }
                .into(),
                response_schema: None,
                expires_at: None,
            },
            pending: PendingToolCall { id: call, name: self.descriptor.id.clone(), arguments: args.clone() },
            resume_mode: ToolCallResumeMode::UseDecisionAsToolResult,
        }
    }
}

/// Returns the agent's purpose, to be appended to its name.
fn about(spec: &AgentSpec) -> String {
    if let Some(told) = spec.description.as_deref().map(str::trim).filter(|told| !told.is_empty()) {
        return format!(": {}.", told.trim_end_matches('.'));
    }
    let first = spec.system_prompt.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line: String = first.chars().take(300).collect();
    match line.trim_end_matches('.') {
        "" => ".".to_owned(),
        line => format!(": {line}."),
    }
}

fn prompt_of(args: &Value) -> Result<&str, ToolError> {
    let prompt = args.get("prompt").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    if prompt.is_empty() {
        return Err(ToolError::InvalidArguments("`prompt` must describe the task".into()));
    }
    match args.get("background") {
        None | Some(Value::Bool(_) | Value::Null) => Ok(prompt),
        Some(_) => Err(ToolError::InvalidArguments("`background` must be true or false".into())),
    }
}

/// Whether the call does not wait for its child.
pub(super) fn is_background(args: &Value) -> bool {
    args.get("background").and_then(Value::as_bool) == Some(true)
}

/// Returns the result shown to the model for a child that works in the background.
pub(super) fn begun(tool: &str, agent: &str, task: &str) -> ToolResult {
    let text = format!(
        "The subagent `{agent}` works in the background as task {task}. A message brings its result. Continue without \
         it and do not guess the result."
    );
    ToolResult::text(tool, text).with_details(json!({"task": task, "agent": agent}))
}

#[async_trait]
impl Tool for AgentTool {
    fn descriptor(&self) -> ToolDescriptor {
        self.descriptor.clone()
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        prompt_of(args).map(drop)
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let prompt = prompt_of(&args)?;
        if let Some(refusal) = self.is_too_deep(ctx.run_identity.depth) {
            return Ok(refusal.into());
        }
        match &self.serves {
            Serves::Here(_) if is_background(&args) => {
                let identity = &ctx.run_identity;
                let call = CallId::from(ctx.call_id.as_str());
                let thread = identity.thread_id.of_child(&identity.run_id, &call);
                let task = thread.as_str().rsplit('.').next().unwrap_or_default().to_owned();
                Ok(begun(&self.descriptor.id, &self.agent, &task).into())
            }
            Serves::Here(_) => {
                let ticket = self.ticket(prompt, &args, ctx);
                let message = ticket.suspension.message.clone();
                Ok(ToolResult::suspended_with(&self.descriptor.id, message, ticket).into())
            }
            Serves::Elsewhere(backend, limit) => {
                let messages = vec![Message::user_with(vec![ContentBlock::text(prompt)])];
                let sink = ctx.activity_sink.clone().unwrap_or_else(|| Arc::new(NullEventSink));
                let run = backend.execute(
                    &self.agent,
                    messages,
                    sink,
                    Some(ctx.run_identity.run_id.to_string()),
                    Some(ctx.call_id.clone()),
                );
                let result = tokio::select! {
                    result = run => result.map_err(|e| ToolError::ExecutionFailed(e.to_string()))?,
                    () = ctx.cancellation.cancelled() => {
                        return Err(ToolError::ExecutionFailed("it was cancelled".into()));
                    }
                    () = tokio::time::sleep(*limit) => DelegateRunResult {
                        agent_id: self.agent.clone(),
                        status: DelegateRunStatus::Timeout,
                        response: None,
                        steps: 0,
                    },
                };
                Ok(result_of(&self.descriptor.id, result).into())
            }
        }
    }
}

fn result_of(tool: &str, result: DelegateRunResult) -> ToolResult {
    let response_text = result.response.unwrap_or_default();
    let agent = &result.agent_id;
    let why = match result.status {
        DelegateRunStatus::Completed => return ToolResult::text(tool, response_text),
        DelegateRunStatus::Failed(why) => format!("The subagent `{agent}` failed: {why}"),
        DelegateRunStatus::Cancelled => format!("The subagent `{agent}` was stopped before it finished."),
        DelegateRunStatus::Timeout => format!("The subagent `{agent}` exceeded its time limit."),
    };
    ToolResult::error(tool, super::result_text::failed_words(&why, &response_text))
}

/// The tools of an agent for those it may delegate to.
pub(super) fn tools(catalog: &Catalog, spec: &AgentSpec) -> Result<Vec<Arc<dyn Tool>>, ResolveError> {
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for id in &spec.delegates {
        let unfit = |why: String| ResolveError::InvalidDelegate {
            agent: spec.id.clone(),
            delegate: id.clone(),
            message: why,
        };
        let Some(delegate) = catalog.agents.get(id) else {
            return Err(unfit("unknown agent".into()));
        };
        if *id == spec.id && catalog.delegation_depth.is_none() {
            return Err(unfit("an agent can delegate to itself only with a depth limit".into()));
        }
        let tool = match &delegate.endpoint {
            None => AgentTool::local(delegate, catalog.delegation_depth),
            Some(endpoint) => match catalog.backends.get(&endpoint.backend) {
                Some(backend) if backend.serves_runs() => {
                    AgentTool::local(delegate, catalog.delegation_depth)
                }
                Some(backend) => AgentTool::remote(delegate, Arc::clone(backend)),
                None => {
                    return Err(unfit(format!(
                        "it runs remotely through `{}`, which is not supported",
                        endpoint.backend
                    )));
                }
            },
        };
        tools.push(Arc::new(tool));
    }
    Ok(tools)
}

/// The agents that an agent's tools stand for and that runs here serve, by tool.
pub(super) fn local_delegates<'a>(
    catalog: &'a Catalog,
    spec: &'a AgentSpec,
) -> impl Iterator<Item = (String, String)> + 'a {
    let is_local = |id: &&String| {
        let agent = catalog.agents.get(*id);
        agent.is_some_and(|agent| agent.endpoint.is_none() || remote_backend(catalog, agent).is_some())
    };
    spec.delegates.iter().filter(is_local).map(|id| (tool_name(id), id.clone()))
}
