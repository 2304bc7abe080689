//! The runtime: starts, decides, cancels; one driver per active run.
//!
//! A waiting run has no driver, no task and no lease: it is rows in the store. [`AgentRuntime::decide`] writes a
//! decision into its row; [`AgentRuntime::resume`] starts a driver for the run and applies the stored decisions, in
//! this process or in any other.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod active_drivers;
mod announce;
mod answers;
mod aside;
mod background;
pub mod breaker;
mod builder;
mod call;
mod carry;
mod catalog;
mod change_listener;
mod charges;
mod children;
mod compact;
mod delegate;
mod document;
mod driver;
pub mod executor;
mod frontend;
mod git;
mod handoff;
mod images;
mod in_flight;
mod infer;
mod journal;
mod lease;
pub mod loop_runner;
mod mailbox;
mod nested;
mod output;
mod parts;
mod postpone;
mod preconditions;
mod questions;
mod ready;
mod recover;
mod remote;
mod replay;
mod report;
mod request;
mod resolve;
mod restore;
mod result_text;
pub mod retry;
mod session;
mod shared_state;
mod snapshot;
mod steer;
mod stored_thread;
mod tasks;
#[cfg(test)]
mod tests;
mod titles;
mod user_edit;
mod window;
mod windows;
mod workplace;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::Duration;

use aye_core::contract::clock::Clock;
use aye_core::contract::display::shortened;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::message::Message;
use aye_core::contract::near::or_these;
use aye_core::contract::presence::{Announced, Liveness, Presence};
use aye_core::contract::profile::ProfileStore;
use aye_core::contract::record::{LeaseRecord, Owner, RunRecord, ThreadRecord};
use aye_core::contract::renderer::Renderer;
use aye_core::contract::snapshot::Snapshots;
use aye_core::contract::spec::AgentSpec;
use aye_core::contract::storage::{AcquireError, StoreError, ThreadRunStore};
use aye_core::contract::suspension::Actor;
use aye_core::contract::terms::Terms;
use aye_core::phase::PhaseRuntime;
use aye_core::run::Fact;
use aye_core::state::KeyRegistration;

pub use background::NoTerminal;
pub use breaker::{CircuitBreaker, CircuitBreakerConfig, CircuitOpen};
pub use builder::{AgentRuntimeBuilder, BuildError};
pub use catalog::{Catalog, PublishedAgents};
pub use compact::CompactError;
pub use delegate::{
    AgentBackend, AgentBackendError, AgentTool, DELEGATION_DEPTH, DelegateRunResult, DelegateRunStatus,
    LocalBackend, tool_name,
};
pub use document::{CallResult, CurrentStep, DocumentError, RunDocument, tool_message};
pub use frontend::FrontendTool;
pub use git::head_of;
pub use recover::{LeftoverProcess, UnknownPolicy};
pub use remote::{CODE_ANSWERED_REMOTELY, DiscoveryError, REMOTE_MODEL, RemoteConversation};
pub use replay::{Replay, ReplayedRequest, RequestMatch, RequestPart, messages_without_thoughts};
pub use report::{ContextReport, RequestParts};
pub use request::{
    AgentRunResult, DecideError, RunRequest, RuntimeError, check_arguments, check_payload, stop_reason_of,
};
pub use resolve::{AgentResolver, ResolveError, ResolvedAgent};
pub use restore::{adopt, mark_unknown};
pub use retry::{LlmRetryPolicy, RetryConfigKey, RetryingExecutor};
pub use session::OwnerWatch;
pub use user_edit::{change_words, shown_payload};
pub use window::{Artifact, Artifacts};
pub use windows::SettledSummaries;
pub use workplace::Workplaces;

use active_drivers::{ActiveDrivers, Slot};
use driver::{Driver, LoadedRun};
use lease::{Lease, LeaseGuard};
use stored_thread::StoredThread;

/// Kills what a dead process left running for a run.
pub type LeftoverHandler =
    Arc<dyn Fn(LeftoverProcess) -> futures::future::BoxFuture<'static, ()> + Send + Sync>;

/// Brings the grants of the store into force.
pub type GrantLoader = Arc<dyn Fn() -> futures::future::BoxFuture<'static, ()> + Send + Sync>;

struct Inner {
    shared: Arc<RuntimeCore>,
    live: Arc<ActiveDrivers>,
}

/// The state shared by all drivers.
pub(crate) struct RuntimeCore {
    catalog: Arc<RwLock<Catalog>>,
    /// One for all runs: a model that is down is down for each of them.
    pub(crate) breaker: Arc<CircuitBreaker>,
    pub(crate) store: Arc<dyn ThreadRunStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owner: Owner,
    /// Shows to others that the owner is alive: as long as a driver may write.
    pub(crate) announced: Arc<Announced>,
    pub(crate) presence: Arc<dyn Presence>,
    pub(crate) cwd: PathBuf,
    pub(crate) keys: Vec<KeyRegistration>,
    pub(crate) leftover_handler: Option<LeftoverHandler>,
    pub(crate) lease: Duration,
    grants: Option<GrantLoader>,
    pub(crate) renderers: Vec<Arc<dyn Renderer>>,
    pub(crate) question_terms: Terms,
    /// Whether a run waits for a provider's limit to reset instead of failing.
    pub(crate) waits_for_limits: bool,
    /// Keeps large results where the model can read them.
    artifacts: Option<Artifacts>,
    /// What was learned from the requests of each conversation.
    windows: windows::Windows,
    /// The engine that runs work on, for callers that inspect its state; without it each run has its own.
    pub(crate) phases: Option<PhaseRuntime>,
    pub(crate) profiles: Arc<dyn ProfileStore>,
    /// Whether they are those of the store.
    are_profiles_stored: bool,
    /// Keeps the files before a step changes them.
    pub(crate) snapshots: Option<Arc<dyn Snapshots>>,
    tasks: Arc<tasks::Tasks>,
    commands: Arc<background::Commands>,
    remotes: Arc<remote::RemoteWatches>,
    /// Where children work that have a folder of their own.
    workplaces: Option<Arc<dyn Workplaces>>,
}

impl RuntimeCore {
    /// Brings the grants of the store into force.
    pub(crate) async fn load_grants(&self) {
        if let Some(load) = &self.grants {
            load().await;
        }
    }

    /// Returns whether the process of an owner is alive.
    pub(crate) fn liveness(&self, other: &Owner) -> Liveness {
        if other.token == self.owner.token { Liveness::Yes } else { self.presence.liveness(other) }
    }

    pub(crate) fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read().expect("no panic while the catalog is held")
    }

    fn change_catalog(&self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = self.catalog.write().expect("no panic while the catalog is held");
        change(&mut catalog);
        catalog.revision += 1;
    }

    fn resolve(&self, agent_id: &str, model: Option<&str>) -> Result<ResolvedAgent, RuntimeError> {
        self.resolve_at(u64::MAX, agent_id, model)
    }

    /// Resolves an agent as it was published with a revision.
    fn resolve_at(
        &self,
        revision: u64,
        agent_id: &str,
        model: Option<&str>,
    ) -> Result<ResolvedAgent, RuntimeError> {
        let catalog = self.catalog_at(revision);
        resolve::resolve_served(&catalog, &self.breaker, agent_id, model).map_err(|e| unresolved(&catalog, e))
    }

    /// Checks that the agent and its model exist, which resolving checks first.
    fn check_agent(&self, agent_id: &str, model: Option<&str>) -> Result<(), RuntimeError> {
        let catalog = self.catalog();
        resolve::check_agent(&catalog, agent_id, model).map_err(|e| unresolved(&catalog, e))
    }
}

fn unresolved(catalog: &Catalog, error: ResolveError) -> RuntimeError {
    match error {
        ResolveError::AgentNotFound(agent_id) => RuntimeError::AgentNotFound { agent_id },
        other => RuntimeError::ResolveFailed { message: catalog.advice(&other) },
    }
}

/// Runs agents over threads. Clones share everything.
#[derive(Clone)]
pub struct AgentRuntime {
    inner: Arc<Inner>,
}

impl AgentRuntime {
    pub(crate) fn new(shared: RuntimeCore) -> Self {
        Self { inner: Arc::new(Inner { shared: Arc::new(shared), live: Arc::default() }) }
    }

    /// The runtime that a driver is part of.
    fn of(shared: &Arc<RuntimeCore>, live: &Arc<ActiveDrivers>) -> Self {
        Self { inner: Arc::new(Inner { shared: Arc::clone(shared), live: Arc::clone(live) }) }
    }

    /// The store that threads and runs live in.
    pub fn store(&self) -> &Arc<dyn ThreadRunStore> {
        &self.inner.shared.store
    }

    /// The folder that tools work in; empty if the program named none.
    pub fn cwd(&self) -> &Path {
        &self.inner.shared.cwd
    }

    /// Returns the resolver of its agents, for callers that share it.
    pub fn resolver_arc(&self) -> Arc<dyn AgentResolver> {
        Arc::new(self.clone())
    }

    /// Returns a runtime for the same agents, models, tools and plugins that keeps threads and runs in this store.
    /// It works like another process, also on the store of this runtime: while one of the two drives a thread, the
    /// other one cannot.
    ///
    /// # Errors
    /// [`StoreError::Unopened`].
    pub fn on_store(&self, store: Arc<dyn ThreadRunStore>) -> Result<Self, StoreError> {
        let shared = &self.inner.shared;
        let profiles = if shared.are_profiles_stored {
            store.profile_store(Arc::clone(&shared.clock))?
        } else {
            Arc::clone(&shared.profiles)
        };
        let presence = store.presence();
        let owner = Owner { token: uuid::Uuid::now_v7().to_string(), ..shared.owner.clone() };
        let announced = presence.announce(owner);
        Ok(Self::new(RuntimeCore {
            catalog: Arc::clone(&shared.catalog),
            breaker: Arc::clone(&shared.breaker),
            store,
            clock: Arc::clone(&shared.clock),
            owner: announced.owner.clone(),
            announced: Arc::new(announced),
            presence,
            cwd: shared.cwd.clone(),
            keys: shared.keys.clone(),
            leftover_handler: shared.leftover_handler.clone(),
            lease: shared.lease,
            grants: shared.grants.clone(),
            renderers: shared.renderers.clone(),
            question_terms: shared.question_terms.clone(),
            waits_for_limits: shared.waits_for_limits,
            artifacts: shared.artifacts.clone(),
            windows: windows::Windows::default(),
            phases: None,
            profiles,
            are_profiles_stored: shared.are_profiles_stored,
            snapshots: shared.snapshots.clone(),
            tasks: Arc::default(),
            commands: Arc::default(),
            remotes: Arc::default(),
            workplaces: shared.workplaces.clone(),
        }))
    }

    /// The values that outlive threads.
    pub fn profiles(&self) -> &Arc<dyn ProfileStore> {
        &self.inner.shared.profiles
    }

    /// Lets the next request to each paused model through: a user asks again, and does not want to wait.
    pub fn retry_paused_models(&self) {
        self.breaker().probe_now();
    }

    pub(crate) fn breaker(&self) -> &Arc<CircuitBreaker> {
        &self.inner.shared.breaker
    }

    fn resolve(&self, agent_id: &str, model: Option<&str>) -> Result<ResolvedAgent, RuntimeError> {
        self.inner.shared.resolve(agent_id, model)
    }

    /// Resolves the agent of a stored run as it was when the run started, with the run's model if that is still there.
    fn resolve_again(&self, run: &RunRecord) -> Result<ResolvedAgent, RuntimeError> {
        let (shared, revision) = (&self.inner.shared, RunDocument::revision_of(run));
        let agent = shared
            .resolve_at(revision, &run.agent_id, Some(&run.model))
            .or_else(|_| shared.resolve_at(revision, &run.agent_id, None))?;
        // A process that does not know the revision yet must not take the run back to an older one.
        Ok(ResolvedAgent { revision, ..agent })
    }

    /// An agent with everything that a run of it would have now.
    ///
    /// # Errors
    /// [`RuntimeError::AgentNotFound`], [`RuntimeError::ResolveFailed`].
    pub fn resolved(&self, agent_id: &str) -> Result<ResolvedAgent, RuntimeError> {
        self.inner.shared.check_agent(agent_id, None)?;
        self.resolve(agent_id, None)
    }

    /// The same, for callers that want to know what exactly is wrong.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn try_resolve(&self, agent_id: &str) -> Result<ResolvedAgent, ResolveError> {
        resolve::resolve(&self.inner.shared.catalog(), self.breaker(), agent_id, None)
    }

    /// The same for an agent that is not registered, with a model that is.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn try_resolve_spec(
        &self,
        spec: &Arc<AgentSpec>,
        model: &str,
    ) -> Result<ResolvedAgent, ResolveError> {
        resolve::resolve_spec(&self.inner.shared.catalog(), self.breaker(), spec, Some(model))
    }

    /// Starts a run and drives it until it is done or waits. An active run of the thread in this process is
    /// cancelled first; a run that waits, or was left by a dead process, is closed: its questions are
    /// superseded.
    ///
    /// # Errors
    /// [`RuntimeError`]: nothing was started, or the store failed on the way.
    pub async fn run(
        &self,
        request: RunRequest,
        sink: Arc<dyn EventSink>,
    ) -> Result<AgentRunResult, RuntimeError> {
        let agent_id = self.agent_of(&request)?;
        let model = request.overrides.model.clone();
        // An invalid request starts nothing.
        self.inner.shared.check_agent(&agent_id, model.as_deref())?;
        self.fits(&request)?;
        if request.messages.is_empty()
            && self.inner.shared.store.message_count(&request.thread_id).await? == 0
        {
            return Err(RuntimeError::NoMessage { thread_id: request.thread_id });
        }
        if request.takes.is_none() {
            self.inner.live.cancel(&request.thread_id);
        }
        let thread = &request.thread_id;
        let slot = self.enter(thread, &*sink).await;
        // The store answers these requests in order, so what is read after the lease was acquired is read
        // under the lease. The agent is resolved at the same time.
        let (ensured, lease_guard, stored, agent) = tokio::join!(
            biased;
            self.ensure_thread(thread, &request.messages),
            self.take(thread, &*sink),
            self.stored_thread(thread),
            async { self.resolve(&agent_id, model.as_deref()) },
        );
        let lease_guard = match (ensured, lease_guard) {
            (_, Ok(lease_guard)) => lease_guard,
            // There is no lease without a thread.
            (Err(error), Err(_)) => return Err(error.into()),
            (Ok(()), Err(error)) => return Err(error),
        };
        let result = match (agent, stored) {
            // On the heap, because a driver's future is large and callers put theirs on a stack.
            (Ok(agent), Ok(stored)) => {
                Box::pin(self.run_fenced(request, agent, stored, slot, &lease_guard.lease, sink)).await
            }
            (Err(error), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
        };
        self.release(lease_guard).await;
        result
    }

    async fn run_fenced(
        &self,
        request: RunRequest,
        agent: ResolvedAgent,
        mut stored: StoredThread,
        mut slot: Slot,
        lease: &Arc<Lease>,
        sink: Arc<dyn EventSink>,
    ) -> Result<AgentRunResult, RuntimeError> {
        let shared = &self.inner.shared;
        let mut parent_run_id = request.parent_run_id.clone();
        if let Some(old) = stored.take_unfinished() {
            if request.takes.is_some() {
                return Err(RuntimeError::NotFree { thread_id: request.thread_id });
            }
            parent_run_id = Some(old.id.clone());
            let own = self.resolve_again(&old).or_else(|_| self.resolve(&agent.spec.id, None))?;
            let mut driver = self.load(old, stored, own, slot, lease, &sink)?;
            driver.keeps_lease = true;
            let directives = driver.end_abandoned(true).await?;
            driver.drive(directives).await?;
            slot = driver.into_slot();
            stored = self.stored_thread(&request.thread_id).await?;
        }
        let now = shared.clock.now_ms();
        let id = request.run_id.unwrap_or_else(RunId::fresh);
        let mut record = RunRecord::new(id, request.thread_id.clone(), &agent.spec.id, &agent.model_id, now);
        record.parent_run_id = parent_run_id;
        record.correlation_id = request.correlation_id;
        let mode = agent.spec.tool_execution;
        let loaded = LoadedRun::fresh(record, mode, request.messages, request.takes, stored);
        let mut driver = Driver::new(
            Arc::clone(shared),
            Arc::clone(lease),
            slot,
            Arc::clone(&sink),
            agent,
            request.overrides,
            loaded,
        )?;
        if !request.frontend_tools.is_empty() {
            driver.declare(request.frontend_tools)?;
        }
        driver.checkpoint().await?;
        let directives = driver.apply(Fact::Started)?;
        driver.drive(directives).await?;
        let result = driver.result().await;
        driver.keep_window();
        result
    }

    /// Resumes the thread's unfinished run: recovers what a dead process left, applies the stored decisions,
    /// and drives the run until it is done or waits. Does nothing to a run that only waits. The run of a
    /// child that a call waits for resumes with the run at the top, and the result describes that one.
    ///
    /// # Errors
    /// [`RuntimeError`]; [`RuntimeError::NothingToResume`] when the thread has no unfinished run.
    pub async fn resume(
        &self,
        thread_id: &ThreadId,
        sink: Arc<dyn EventSink>,
        unknown: UnknownPolicy,
    ) -> Result<AgentRunResult, RuntimeError> {
        let mut thread_id = thread_id.clone();
        if thread_id.may_be_child() {
            // A child that a call waits for resumes with its parent, which drives the child.
            thread_id = self.inner.shared.store.driven_with(&thread_id).await?;
            if self.inner.shared.store.child(&thread_id).await?.is_some() {
                return Box::pin(self.drive_task(&thread_id, sink, unknown)).await;
            }
        }
        let thread_id = &thread_id;
        let slot = self.enter(thread_id, &*sink).await;
        // As in `run`: what is read is read under the lease.
        let stored = self.stored_thread(thread_id);
        let (lease_guard, stored) = tokio::join!(biased; self.take(thread_id, &*sink), stored);
        let lease_guard = lease_guard?;
        let result = match stored {
            Ok(stored) => Box::pin(self.resume_fenced(stored, slot, &lease_guard.lease, sink, unknown)).await,
            Err(error) => Err(error.into()),
        };
        self.release(lease_guard).await;
        result
    }

    async fn resume_fenced(
        &self,
        mut stored: StoredThread,
        slot: Slot,
        lease: &Arc<Lease>,
        sink: Arc<dyn EventSink>,
        unknown: UnknownPolicy,
    ) -> Result<AgentRunResult, RuntimeError> {
        let Some(record) = stored.take_unfinished() else {
            return Err(RuntimeError::NothingToResume { thread_id: lease.thread_id().clone() });
        };
        let agent = self.resolve_again(&record).map_err(|error| self.missing_agent(error))?;
        let mut driver = self.load(record, stored, agent, slot, lease, &sink)?;
        let directives = driver.recover(unknown).await?;
        driver.expire().await?;
        driver.drive(directives).await?;
        let result = driver.result().await;
        driver.keep_window();
        result
    }

    fn load(
        &self,
        record: RunRecord,
        stored: StoredThread,
        agent: ResolvedAgent,
        slot: Slot,
        lease: &Arc<Lease>,
        sink: &Arc<dyn EventSink>,
    ) -> Result<Driver, RuntimeError> {
        let document = RunDocument::from_value(&record.machine)
            .map_err(|e| RuntimeError::Damaged { run_id: record.id.clone(), message: e.to_string() })?;
        let loaded = LoadedRun::stored(record, document, stored);
        Driver::new(
            Arc::clone(&self.inner.shared),
            Arc::clone(lease),
            slot,
            Arc::clone(sink),
            agent,
            aye_core::contract::inference::InferenceOverride::default(),
            loaded,
        )
    }

    /// Returns an error that explains why a run cannot resume if its agent no longer exists.
    fn missing_agent(&self, error: RuntimeError) -> RuntimeError {
        let RuntimeError::AgentNotFound { agent_id } = &error else { return error };
        let catalog = self.inner.shared.catalog();
        let known = or_these(agent_id, catalog.agents.keys().map(String::as_str));
        let message = format!(
            "the run belongs to the agent `{agent_id}`, which no longer exists{known}; restore the agent to \
             resume, or send a new message to end the run"
        );
        RuntimeError::ResolveFailed { message }
    }

    fn agent_of(&self, request: &RunRequest) -> Result<String, RuntimeError> {
        match &request.agent_id {
            Some(id) => Ok(id.clone()),
            None => self.default_agent(),
        }
    }

    /// Returns the names of the state keys whose values front ends of an agent's runs receive; of the default agent when
    /// none is named.
    pub fn shared_keys(&self, agent_id: Option<&str>) -> BTreeSet<&'static str> {
        let id = agent_id.map_or_else(|| self.default_agent(), |id| Ok(id.to_owned()));
        let agent = id.and_then(|id| self.resolved(&id));
        let of_plugins = agent.iter().flat_map(|agent| &agent.env.key_registrations);
        let keys = self.inner.shared.keys.iter().chain(of_plugins);
        keys.filter(|key| key.shared).map(|key| key.key).collect()
    }

    fn default_agent(&self) -> Result<String, RuntimeError> {
        let catalog = self.inner.shared.catalog();
        catalog
            .default_agent
            .as_ref()
            .or_else(|| catalog.agents.keys().next())
            .cloned()
            .ok_or_else(|| RuntimeError::AgentNotFound { agent_id: "default".into() })
    }

    async fn ensure_thread(&self, thread_id: &ThreadId, messages: &[Message]) -> Result<(), StoreError> {
        let shared = &self.inner.shared;
        let now = shared.clock.now_ms();
        let title = messages.iter().map(|m| title_of(&m.text())).find(|t| !t.is_empty()).unwrap_or_default();
        let thread = ThreadRecord {
            id: thread_id.clone(),
            title,
            cwd: shared.cwd.clone(),
            created_at: now,
            updated_at: now,
        };
        shared.store.ensure_thread(thread).await
    }

    async fn stored_thread(&self, thread_id: &ThreadId) -> Result<StoredThread, StoreError> {
        let shared = &self.inner.shared;
        let windows = &shared.windows;
        StoredThread::read(&*shared.store, thread_id, windows.cut(thread_id), windows.take_kept(thread_id))
            .await
    }

    async fn enter(&self, thread_id: &ThreadId, sink: &dyn EventSink) -> Slot {
        self.inner.shared.load_grants().await;
        self.inner.live.enter(thread_id, &self.inner.shared.store, || sink.waits()).await
    }

    async fn acquire(&self, thread_id: &ThreadId) -> Result<LeaseGuard, RuntimeError> {
        let shared = &self.inner.shared;
        let requested = shared.clock.uptime_ms();
        shared
            .store
            .acquire(thread_id, &shared.owner, Some(shared.lease))
            .await
            .map(|fence| LeaseGuard::new(Arc::clone(shared), fence, requested))
            .map_err(|e| match e {
                AcquireError::Busy { owner } => RuntimeError::ThreadAlreadyRunning {
                    thread_id: thread_id.clone(),
                    pid: owner.pid,
                    process: owner.name_for(&shared.owner),
                },
                AcquireError::Store(e) => e.into(),
            })
    }

    /// Works like [`AgentRuntime::acquire`], and notifies the sink.
    async fn take(&self, thread_id: &ThreadId, sink: &dyn EventSink) -> Result<LeaseGuard, RuntimeError> {
        let lease_guard = self.acquire(thread_id).await?;
        sink.acquired().await;
        Ok(lease_guard)
    }

    async fn release(&self, lease_guard: LeaseGuard) {
        let lease = Arc::clone(&lease_guard.lease);
        drop(lease_guard);
        // A lease that cannot be released is taken over once it has expired.
        if !lease.is_released()
            && let Err(error) = self.inner.shared.store.release(lease.fence()).await
        {
            tracing::warn!(thread = %lease.thread_id(), %error, "the lease could not be released");
        }
    }

    async fn unfinished(&self, thread_id: &ThreadId) -> Result<Option<RunRecord>, StoreError> {
        let latest = self.inner.shared.store.latest_run(thread_id).await?;
        Ok(latest.filter(|run| run.status != RunStatus::Done))
    }

    /// Asks the active run of the thread to stop. Returns `false` if none is active in this process.
    pub fn cancel(&self, thread_id: &ThreadId) -> bool {
        self.inner.live.cancel(thread_id)
    }

    /// Ends the thread's waiting run and closes its questions; an active run is asked to stop.
    ///
    /// # Errors
    /// [`RuntimeError`].
    pub async fn cancel_waiting(
        &self,
        thread_id: &ThreadId,
        sink: Arc<dyn EventSink>,
    ) -> Result<bool, RuntimeError> {
        if self.cancel(thread_id) {
            return Ok(true);
        }
        let slot = self.enter(thread_id, &*sink).await;
        let lease_guard = self.take(thread_id, &*sink).await?;
        let result = Box::pin(self.cancel_fenced(thread_id, slot, &lease_guard.lease, sink, false)).await;
        self.release(lease_guard).await;
        result
    }

    async fn cancel_fenced(
        &self,
        thread_id: &ThreadId,
        slot: Slot,
        lease: &Arc<Lease>,
        sink: Arc<dyn EventSink>,
        superseded: bool,
    ) -> Result<bool, RuntimeError> {
        let mut stored = self.stored_thread(thread_id).await?;
        let Some(record) = stored.take_unfinished() else { return Ok(false) };
        let agent = self
            .resolve_again(&record)
            // Any agent can end the run.
            .or_else(|error| {
                self.default_agent().and_then(|any| self.resolve(&any, None)).map_err(|_| error)
            })?;
        let mut driver = self.load(record, stored, agent, slot, lease, &sink)?;
        let directives = driver.end_abandoned(superseded).await?;
        driver.drive(directives).await?;
        Ok(true)
    }

    /// Deletes a conversation with its children and everything that belongs to them, except for the audit, which
    /// names the actor. Returns `false` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Owned`] while a live process drives it, this one included.
    pub async fn delete_thread(&self, thread_id: &ThreadId, actor: Actor) -> Result<bool, StoreError> {
        let shared = &self.inner.shared;
        let nobody = Owner { token: String::new(), ..shared.owner.clone() };
        let now = shared.clock.now_ms();
        shared.store.delete_thread(thread_id, &nobody, actor, now).await
    }

    /// Whether a lease excludes this process: another process owns it that is not known to be dead, and it has not
    /// expired.
    pub fn is_kept_out_by(&self, lease: &LeaseRecord) -> bool {
        let shared = &self.inner.shared;
        lease.owner.token != shared.owner.token && lease.holds(shared.liveness(&lease.owner))
    }

    /// This process as the owner of threads.
    pub fn owner(&self) -> &Owner {
        &self.inner.shared.owner
    }

    /// Returns whether the process of an owner is alive.
    pub fn liveness(&self, owner: &Owner) -> Liveness {
        self.inner.shared.liveness(owner)
    }

    /// Returns how long it is until a moment in Unix milliseconds, by this process's clock; zero once it has passed.
    pub fn time_until(&self, at_ms: u64) -> Duration {
        Duration::from_millis(at_ms.saturating_sub(self.inner.shared.clock.now_ms()))
    }

    /// Whether a driver is active on the thread in this process.
    pub fn is_active(&self, thread_id: &ThreadId) -> bool {
        self.inner.live.is_active(thread_id)
    }

    /// Returns how long another live process that drives a thread may continue before it has to renew its
    /// lease; check again after that time. Returns `None` if a run can be started or resumed here at once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn driven_elsewhere(&self, thread_id: &ThreadId) -> Result<Option<Duration>, StoreError> {
        let lease =
            self.inner.shared.store.lease(thread_id).await?.filter(|lease| self.is_kept_out_by(lease));
        Ok(lease.map(|lease| lease.left.unwrap_or(Duration::MAX)))
    }
}

impl AgentResolver for AgentRuntime {
    fn resolve(&self, agent_id: &str) -> Result<ResolvedAgent, RuntimeError> {
        self.resolved(agent_id)
    }
}

impl std::fmt::Debug for AgentRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentRuntime").finish_non_exhaustive()
    }
}

/// Derives a title from the user's first message: one line, at most 80 characters.
fn title_of(text: &str) -> String {
    shortened(text.trim().lines().next().unwrap_or_default(), 80).into_owned()
}
