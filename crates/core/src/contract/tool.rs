//! The interface to tools.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::activity::KnownActivity;
use super::command::BackgroundHost;
use super::event::AgentEvent;
use super::event_sink::EventSink;
use super::identity::{RunIdentity, RunOrigin};
use super::judgement::Profile;
use super::profile::ProfileAccess;
use super::progress::{ProgressStatus, TOOL_CALL_PROGRESS_SCHEMA, ToolCallProgressState};
use super::spec::AgentSpec;
use super::suspension::ToolCallResume;
use crate::state::{Snapshot, StateCommand, StateKey};

pub use super::file_preview::{AgreedFile, FilePreview};
pub use super::tool_descriptor::{ToolClass, ToolDescriptor};
pub use super::tool_result::{ToolError, ToolResult, ToolStatus, UserEdit};

/// A result, and what the tool asks of the state.
#[derive(Debug)]
pub struct ToolOutput {
    pub result: ToolResult,
    pub command: StateCommand,
}

impl ToolOutput {
    /// A result with a command.
    pub fn with_command(result: ToolResult, command: StateCommand) -> Self {
        Self { result, command }
    }
}

impl From<ToolResult> for ToolOutput {
    fn from(result: ToolResult) -> Self {
        Self { result, command: StateCommand::new() }
    }
}

/// The context of a call that a tool executes.
#[derive(Clone)]
pub struct ToolCallContext {
    pub call_id: String,
    pub tool_name: String,
    pub run_identity: RunIdentity,
    pub agent_spec: Arc<AgentSpec>,
    /// The state as it was when the call started.
    pub snapshot: Snapshot,
    /// Values that outlive the thread; absent where nothing keeps them.
    pub profile: Option<ProfileAccess>,
    /// The destination of reports; without one they are dropped.
    pub activity_sink: Option<Arc<dyn EventSink>>,
    /// Cancelled when the user or the program gives up. The future is dropped soon after.
    pub cancellation: CancellationToken,
    /// The decision that let this call run, if one was needed.
    pub resume: Option<ToolCallResume>,
    /// The files as they were when the user approved; empty if the user was not asked or no file was shown. A
    /// tool that finds one of them changed when it is about to write returns [`ToolError::Moved`].
    pub agreed: Vec<AgreedFile>,
    /// 1 is the first time this call is executed.
    pub attempt: u32,
    /// The moment of [`Clock::uptime_ms`](super::clock::Clock::uptime_ms) from which no program may be
    /// started: another process may then take over the run.
    pub start_before: Option<u64>,
    /// When a program that was started must end, which moves with the lease of the run: another process may take over the
    /// run then. Absent where nothing can.
    pub lease_end: Option<LeaseEnd>,
    /// Only rules that come with aye allowed this call: see [`Judgement::guards_git`](super::judgement::Judgement).
    pub guards_git: bool,
    /// The profile that the kernel enforces on the programs of this call: see
    /// [`Judgement::profile`](super::judgement::Judgement::profile).
    pub sandbox: Option<Profile>,
    /// See [`Judgement::opened`](super::judgement::Judgement::opened).
    pub opened: super::judgement::SandboxOpening,
    /// The file or folder that the call names, as it was judged: as written, and where its links led then. A tool whose
    /// path leads elsewhere when it opens it returns [`ToolError::Moved`]. Empty if nobody judged a path.
    pub judged: Vec<PathBuf>,
    /// Keeps commands that outlive this call; absent where nothing does.
    pub background: Option<Arc<dyn BackgroundHost>>,
}

/// The run that a process is spawned for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnContext {
    /// The run; empty if there is none.
    pub run: String,
    /// See [`ToolCallContext::start_before`].
    pub start_before: Option<u64>,
    /// See [`ToolCallContext::lease_end`].
    pub lease_end: Option<LeaseEnd>,
}

/// A moment of [`Clock::uptime_ms`](super::clock::Clock::uptime_ms) that moves to a later one as long as somebody renews it.
#[derive(Clone, Debug)]
pub struct LeaseEnd {
    until: watch::Receiver<u64>,
    /// How long before the end of the lease it is.
    margin: u64,
}

impl PartialEq for LeaseEnd {
    fn eq(&self, other: &LeaseEnd) -> bool {
        self.until.same_channel(&other.until) && self.margin == other.margin
    }
}

impl Eq for LeaseEnd {}

impl LeaseEnd {
    /// The moment `margin` milliseconds before the end of a lease.
    pub fn new(until: watch::Receiver<u64>, margin: u64) -> LeaseEnd {
        LeaseEnd { until, margin }
    }

    /// Returns the moment as it is now.
    pub fn now(&mut self) -> u64 {
        self.until.borrow_and_update().saturating_sub(self.margin)
    }

    /// Waits until the moment moved, and returns the new one; for ever when nobody renews it any more.
    pub async fn moved(&mut self) -> u64 {
        if self.until.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.now()
    }
}

impl ToolCallContext {
    /// A context that reports nowhere, for tests.
    pub fn test_default() -> Self {
        Self {
            call_id: "call-1".into(),
            tool_name: "test".into(),
            run_identity: RunIdentity::new(
                "thread-1".into(),
                None,
                "run-1".into(),
                None,
                "agent".into(),
                RunOrigin::Internal,
            ),
            agent_spec: Arc::new(AgentSpec::new("agent")),
            snapshot: Snapshot::default(),
            profile: None,
            activity_sink: None,
            cancellation: CancellationToken::new(),
            resume: None,
            agreed: Vec::new(),
            attempt: 1,
            start_before: None,
            lease_end: None,
            guards_git: false,
            sandbox: None,
            opened: super::judgement::SandboxOpening::default(),
            judged: Vec::new(),
            background: None,
        }
    }

    /// Returns the run that a process of this call is spawned for.
    pub fn on_behalf(&self) -> SpawnContext {
        SpawnContext {
            run: self.run_identity.run_id.to_string(),
            start_before: self.start_before,
            lease_end: self.lease_end.clone(),
        }
    }

    /// The value of `K`, or `None` when it was never written.
    pub fn state<K: StateKey>(&self) -> Option<&K::Value> {
        self.snapshot.get::<K>()
    }

    /// Values that outlive the thread, when something keeps them.
    pub fn profile(&self) -> Option<&ProfileAccess> {
        self.profile.as_ref()
    }

    async fn emit(&self, event: AgentEvent) {
        if let Some(sink) = &self.activity_sink {
            sink.emit(event).await;
        }
    }

    /// Stores output of a tool that prints more than a screen can show, so that it survives a crash. What such a tool
    /// streams is only shown.
    pub fn store_output(&self, text: &str) {
        if let Some(sink) = &self.activity_sink {
            sink.store_output(text);
        }
    }

    /// Streams output while the tool runs. The output is stored beside the call, so that it survives a crash.
    pub async fn stream_output(&self, delta: impl Into<String>) {
        self.emit(AgentEvent::ToolCallStreamDelta {
            id: self.call_id.clone(),
            name: self.tool_name.clone(),
            delta: delta.into(),
        })
        .await;
    }

    /// Reports the full state of an activity.
    pub async fn report_activity(&self, activity_type: &str, content: &str) {
        self.emit(AgentEvent::ActivitySnapshot {
            message_id: self.call_id.clone(),
            activity_type: activity_type.into(),
            content: Value::String(content.into()),
            replace: Some(true),
        })
        .await;
    }

    /// Reports a change of an activity as JSON patch; a single operation becomes a list of one.
    pub async fn report_activity_delta(&self, activity_type: &str, patch: Value) {
        let patch = match patch {
            Value::Array(operations) => operations,
            operation => vec![operation],
        };
        self.emit(AgentEvent::ActivityDelta {
            message_id: self.call_id.clone(),
            activity_type: activity_type.into(),
            patch,
        })
        .await;
    }

    /// Reports progress; `progress` is 0.0 to 1.0, or `None` when unknown.
    pub async fn report_progress(
        &self,
        status: ProgressStatus,
        message: Option<&str>,
        progress: Option<f64>,
    ) {
        let state = ToolCallProgressState {
            schema: TOOL_CALL_PROGRESS_SCHEMA.into(),
            node_id: self.call_id.clone(),
            call_id: self.call_id.clone(),
            tool_name: self.tool_name.clone(),
            status,
            progress,
            message: message.map(Into::into),
            ..ToolCallProgressState::default()
        };
        self.emit(KnownActivity::Progress(state).event(self.call_id.as_str())).await;
    }
}

/// The maximum number of files of [`Tool::touches`] that count.
pub const MAX_TOUCHED: usize = 32;

/// A capability offered to the model. A tool never knows whether it was permitted.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns the tool's description, the same at each call.
    fn descriptor(&self) -> ToolDescriptor;

    /// Puts arguments into the tool's own terms where models often use others, such as another name of a member. This
    /// happens once, before the call is stored, shown or judged: what is left here is what runs. A meaning that is not
    /// certain is left alone.
    fn settle_args(&self, _args: &mut Value) {}

    /// Returns the calls of other tools that a call stands for, by name and arguments. They take its place before it is
    /// stored, shown or judged, each with a result of its own. Empty: the call is what it is.
    fn stands_for(&self, _args: &Value) -> Vec<(String, Value)> {
        Vec::new()
    }

    /// Parses the arguments of a call, once for each judgement: what is returned previews and executes it. A tool for which
    /// parsing costs little need not: without a prepared call, its other methods are called with the arguments.
    ///
    /// # Errors
    /// [`ToolError::InvalidArguments`]; the model reads it.
    fn prepare(&self, _args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        Ok(None)
    }

    /// Checks the arguments before any gate and any execution.
    ///
    /// # Errors
    /// [`ToolError::InvalidArguments`]; the model reads it.
    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        self.prepare(args).map(drop)
    }

    /// Returns what the call would do to files, without doing it. Only tools of class `Verifiable` return
    /// files.
    ///
    /// # Errors
    /// Those that `execute` would return before it changed anything.
    async fn preview(&self, args: &Value, ctx: &ToolCallContext) -> Result<Vec<FilePreview>, ToolError> {
        match self.prepare(args)? {
            Some(call) => call.preview(ctx).await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns the files that the call depends on besides those of its preview, such as a script that it
    /// would start: an answer is valid only as long as these files do not change. A script that does not
    /// exist yet is one of them. Checks only names and types; at most [`MAX_TOUCHED`] files are used.
    fn touches(&self, args: &Value, ctx: &ToolCallContext) -> Vec<PathBuf> {
        self.prepare(args).ok().flatten().map(|call| call.touches(ctx)).unwrap_or_default()
    }

    /// Does it. Dropping the future cancels it and leaves nothing running.
    ///
    /// # Errors
    /// A [`ToolError`]; the model reads it as an error result.
    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError>;
}

/// A call whose arguments its tool has parsed and found valid: see [`Tool::prepare`].
#[async_trait]
pub trait ParsedCall: Send + Sync {
    /// Returns what the call would do to files: see [`Tool::preview`].
    ///
    /// # Errors
    /// Those that `execute` would return before it changed anything.
    async fn preview(&self, _ctx: &ToolCallContext) -> Result<Vec<FilePreview>, ToolError> {
        Ok(Vec::new())
    }

    /// Returns the files that the call depends on besides those of its preview: see [`Tool::touches`].
    fn touches(&self, _ctx: &ToolCallContext) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Does it: see [`Tool::execute`].
    ///
    /// # Errors
    /// A [`ToolError`]; the model reads it as an error result.
    async fn execute(&self, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError>;
}

/// Prepares a call with any tool. With one that does not parse arguments in advance, the arguments are checked.
///
/// # Errors
/// [`ToolError::InvalidArguments`]; the model reads it.
pub fn prepare_call(tool: &Arc<dyn Tool>, args: &Value) -> Result<Arc<dyn ParsedCall>, ToolError> {
    if let Some(call) = tool.prepare(args)? {
        return Ok(call);
    }
    tool.validate_args(args)?;
    Ok(Arc::new(UnparsedCall { tool: Arc::clone(tool), args: args.clone() }))
}

/// A call of a tool that does not parse arguments in advance.
struct UnparsedCall {
    tool: Arc<dyn Tool>,
    args: Value,
}

#[async_trait]
impl ParsedCall for UnparsedCall {
    async fn preview(&self, ctx: &ToolCallContext) -> Result<Vec<FilePreview>, ToolError> {
        self.tool.preview(&self.args, ctx).await
    }

    fn touches(&self, ctx: &ToolCallContext) -> Vec<PathBuf> {
        self.tool.touches(&self.args, ctx)
    }

    async fn execute(&self, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.tool.execute(self.args.clone(), ctx).await
    }
}
