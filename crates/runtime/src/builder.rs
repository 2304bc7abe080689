use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use super::catalog::Catalog;
use super::delegate::AgentBackend;
use super::remote::DiscoveryError;
use super::resolve::resolve;
use super::windows::Windows;
use super::workplace::Workplaces;
use super::{AgentRuntime, GrantLoader, LeftoverHandler, RuntimeCore, lease};
use aye_core::contract::clock::Clock;
use aye_core::contract::executor::LlmExecutor;
use aye_core::contract::profile::ProfileStore;
use aye_core::contract::record::Owner;
use aye_core::contract::renderer::Renderer;
use aye_core::contract::snapshot::Snapshots;
use aye_core::contract::spec::{AgentSpec, ModelEntry, RemoteEndpoint};
use aye_core::contract::storage::ThreadRunStore;
use aye_core::contract::terms::Terms;
use aye_core::contract::tool::Tool;
use aye_core::phase::{PhaseRuntime, Plugin};
use aye_core::state::{KeyRegistration, StateError};
use aye_local::InMemoryStore;

/// Why a runtime could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// State keys or plugins do not fit together.
    #[error(transparent)]
    State(#[from] StateError),
    /// Two agents with one id.
    #[error("the agent `{0}` is registered twice")]
    AgentRegistryConflict(String),
    /// Two tools with one id, or a tool under another id than its own.
    #[error("{0}")]
    ToolRegistryConflict(String),
    /// Two models with one id.
    #[error("the model `{0}` is registered twice")]
    ModelRegistryConflict(String),
    /// Two providers with one name.
    #[error("the provider `{0}` is registered twice")]
    ProviderRegistryConflict(String),
    /// Two plugins with one id.
    #[error("the plugin `{0}` is registered twice")]
    PluginRegistryConflict(String),
    /// An agent cannot be resolved.
    #[error("{0}")]
    ValidationFailed(String),
    /// The card of a remote agent could not be read.
    #[error(transparent)]
    DiscoveryFailed(DiscoveryError),
    /// The store could not be opened.
    #[error("the store could not be opened: {0}")]
    Store(String),
}

/// Collects what a runtime needs. Errors are kept and come out of [`AgentRuntimeBuilder::build`], the first one first.
#[derive(Default)]
pub struct AgentRuntimeBuilder {
    catalog: Catalog,
    remotes: Vec<(String, RemoteEndpoint)>,
    errors: Vec<BuildError>,
    store: Option<Arc<dyn ThreadRunStore>>,
    clock: Option<Arc<dyn Clock>>,
    owner: Option<Owner>,
    /// Others take the owner for dead.
    #[cfg(test)]
    pub(crate) is_dead: bool,
    cwd: Option<PathBuf>,
    keys: Vec<KeyRegistration>,
    leftover_handler: Option<LeftoverHandler>,
    lease: Option<Duration>,
    grants: Option<GrantLoader>,
    renderers: Vec<Arc<dyn Renderer>>,
    question_terms: Terms,
    waits_for_limits: bool,
    artifacts: Option<super::Artifacts>,
    phases: Option<PhaseRuntime>,
    profiles: Option<Arc<dyn ProfileStore>>,
    snapshots: Option<Arc<dyn Snapshots>>,
    workplaces: Option<Arc<dyn Workplaces>>,
}

impl AgentRuntimeBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the handler that ensures that nothing started by a lost process still runs. Without a handler,
    /// tools are assumed to die with their process.
    #[must_use]
    pub fn with_leftover_handler(mut self, leftover_handler: LeftoverHandler) -> Self {
        self.leftover_handler = Some(leftover_handler);
        self
    }

    /// Sets how long a driver may be silent before another process may take over its thread; the default is
    /// 10 s.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the loader that applies the grants of the store. The loader is called before a run starts or
    /// resumes, and when a question is answered with a grant, because another process may have granted or
    /// revoked some.
    #[must_use]
    pub fn with_grant_loader(mut self, load: GrantLoader) -> Self {
        self.grants = Some(load);
        self
    }

    /// Adds a renderer: it shows questions and is notified when one is answered or expires.
    #[must_use]
    pub fn with_renderer(mut self, renderer: Arc<dyn Renderer>) -> Self {
        self.renderers.push(renderer);
        self
    }

    /// Sets the terms of the questions that tools ask the user. A question about a call whose outcome is
    /// unknown never expires: an expiry would hide that the call may have run.
    #[must_use]
    pub fn with_question_terms(mut self, terms: Terms) -> Self {
        self.question_terms = terms;
        self
    }

    /// Sets whether a run waits until a provider's limit resets, if that is later than a request waits. The run
    /// suspends until then, as it does for an answer; without this it fails, and says when the limit resets.
    #[must_use]
    pub fn with_waits_for_limits(mut self, waits: bool) -> Self {
        self.waits_for_limits = waits;
        self
    }

    /// Sets the store that keeps the files of the folder before a step changes them.
    #[must_use]
    pub fn with_snapshots(mut self, snapshots: Arc<dyn Snapshots>) -> Self {
        self.snapshots = Some(snapshots);
        self
    }

    /// Sets the folders of children that work in one of their own.
    #[must_use]
    pub fn with_workplaces(mut self, workplaces: Arc<dyn Workplaces>) -> Self {
        self.workplaces = Some(workplaces);
        self
    }

    #[must_use]
    pub fn with_agent_spec(mut self, spec: AgentSpec) -> Self {
        if self.catalog.agents.contains_key(&spec.id) {
            self.errors.push(BuildError::AgentRegistryConflict(spec.id));
        } else {
            self.catalog.agents.insert(spec.id.clone(), Arc::new(spec));
        }
        self
    }

    /// Says which agent runs when a request names none.
    #[must_use]
    pub fn with_default_agent(mut self, agent_id: impl Into<String>) -> Self {
        self.catalog.default_agent = Some(agent_id.into());
        self
    }

    #[must_use]
    pub fn with_agent_specs(self, specs: impl IntoIterator<Item = AgentSpec>) -> Self {
        specs.into_iter().fold(self, Self::with_agent_spec)
    }

    /// Registers a tool under the id of its descriptor.
    #[must_use]
    pub fn with_tool(mut self, id: impl Into<String>, tool: Arc<dyn Tool>) -> Self {
        let id = id.into();
        let own = tool.descriptor().id;
        if own != id {
            let message = format!("the tool `{own}` is registered as `{id}`: both must be the same");
            self.errors.push(BuildError::ToolRegistryConflict(message));
        } else if self.catalog.tools.insert(id.clone(), tool).is_some() {
            self.errors
                .push(BuildError::ToolRegistryConflict(format!("the tool `{id}` is registered twice")));
        }
        self
    }

    /// Registers what runs the agents whose endpoint names this backend, such as `a2a`.
    #[must_use]
    pub fn with_agent_backend(mut self, name: impl Into<String>, backend: Arc<dyn AgentBackend>) -> Self {
        self.catalog.backends.insert(name.into(), backend);
        self
    }

    /// Registers a remote agent under this name. [`build_and_discover`](Self::build_and_discover) asks its
    /// endpoint what it is for; the other ways to build take it without a description.
    #[must_use]
    pub fn with_remote_agents(mut self, name: impl Into<String>, endpoint: RemoteEndpoint) -> Self {
        let name = name.into();
        self.remotes.push((name.clone(), endpoint.clone()));
        self.with_agent_spec(AgentSpec::new(name).with_endpoint(endpoint))
    }

    /// Sets how deep agents may nest subagents; the default is 3. `None` means no limit, but then no agent
    /// may delegate to itself.
    #[must_use]
    pub fn with_delegation_depth(mut self, depth: Option<u32>) -> Self {
        self.catalog.delegation_depth = depth;
        self
    }

    #[must_use]
    pub fn with_provider(mut self, name: impl Into<String>, executor: Arc<dyn LlmExecutor>) -> Self {
        let name = name.into();
        if self.catalog.providers.insert(name.clone(), executor).is_some() {
            self.errors.push(BuildError::ProviderRegistryConflict(name));
        }
        self
    }

    /// Registers a model: a [`ModelEntry`] or a `ModelSpec`.
    #[must_use]
    pub fn with_model(mut self, id: impl Into<String>, model: impl Into<ModelEntry>) -> Self {
        let id = id.into();
        if self.catalog.models.insert(id.clone(), model.into()).is_some() {
            self.errors.push(BuildError::ModelRegistryConflict(id));
        }
        self
    }

    #[must_use]
    pub fn with_plugin(mut self, id: impl Into<String>, plugin: Arc<dyn Plugin>) -> Self {
        let id = id.into();
        if self.catalog.plugins.insert(id.clone(), plugin).is_some() {
            self.errors.push(BuildError::PluginRegistryConflict(id));
        }
        self
    }

    /// Registers a state key that no plugin brings, such as a tool's.
    #[must_use]
    pub fn with_state_key(mut self, registration: KeyRegistration) -> Self {
        self.keys.push(registration);
        self
    }

    /// Keeps threads and runs here; without it they live in memory.
    #[must_use]
    pub fn with_store(self, store: impl ThreadRunStore + 'static) -> Self {
        self.with_shared_store(Arc::new(store))
    }

    /// As [`AgentRuntimeBuilder::with_store`], for a store that others keep too. One that is not open yet is opened.
    #[must_use]
    pub fn with_thread_run_store<S: ThreadRunStore + ?Sized>(mut self, store: Arc<S>) -> Self {
        match store.handle() {
            Ok(store) => self.store = Some(store),
            Err(error) => self.errors.push(BuildError::Store(error.to_string())),
        }
        self
    }

    pub(super) fn with_shared_store(mut self, store: Arc<dyn ThreadRunStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Makes all runs share one engine, for callers that inspect its state afterwards.
    #[must_use]
    pub(super) fn with_phases(mut self, phases: PhaseRuntime) -> Self {
        self.phases = Some(phases);
        self
    }

    /// Keeps values that outlive a thread here; without it they are in the store of the threads.
    #[must_use]
    pub fn with_profile_store(mut self, profiles: Arc<dyn ProfileStore>) -> Self {
        self.profiles = Some(profiles);
        self
    }

    /// Takes the time from here; without it from the store.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Says which process this is, for leases and intents.
    #[must_use]
    pub fn with_owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Says in which folder tools work; part of what an intent pins.
    #[must_use]
    pub fn with_cwd(mut self, cwd: PathBuf) -> Self {
        self.cwd = Some(cwd);
        self
    }

    /// Keeps large tool results, which become previews once they are not new, where the model can read the rest.
    #[must_use]
    pub fn with_artifacts(mut self, artifacts: super::Artifacts) -> Self {
        self.artifacts = Some(artifacts);
        self
    }

    /// As [`AgentRuntimeBuilder::build`], after it read the cards of the endpoints that
    /// [`with_remote_agents`](Self::with_remote_agents) named, all at once.
    ///
    /// # Errors
    /// [`BuildError::DiscoveryFailed`] names the endpoint that could not be looked up; else as
    /// [`AgentRuntimeBuilder::build`].
    pub async fn build_and_discover(mut self) -> Result<AgentRuntime, BuildError> {
        let remotes = std::mem::take(&mut self.remotes);
        let backends = &self.catalog.backends;
        let found = futures::future::join_all(remotes.iter().map(async |(name, endpoint)| {
            match backends.get(&endpoint.backend) {
                Some(backend) => backend.discover(name, endpoint).await,
                None => Err(DiscoveryError {
                    agent: name.clone(),
                    url: endpoint.base_url.clone(),
                    message: format!("the backend `{}` is not registered", endpoint.backend),
                }),
            }
        }))
        .await;
        for spec in found {
            let spec = spec.map_err(BuildError::DiscoveryFailed)?;
            self.catalog.agents.insert(spec.id.clone(), Arc::new(spec));
        }
        self.build()
    }

    /// Builds the runtime and resolves each agent once to see that it can run.
    ///
    /// # Errors
    /// The first conflict that a `with_*` call met, else the first agent that cannot be resolved.
    pub fn build(self) -> Result<AgentRuntime, BuildError> {
        let runtime = self.build_unchecked()?;
        let catalog = runtime.catalog();
        // Remote agents do not run here.
        for (id, _) in catalog.agents.iter().filter(|(_, spec)| spec.endpoint.is_none()) {
            // One that names no model has that of the agent that sets it to work.
            let any = catalog.models.keys().next().filter(|_| catalog.agents[id].model.is_empty());
            resolve(&catalog, runtime.breaker(), id, any.map(String::as_str)).map_err(|e| {
                let why = catalog.advice(&e);
                BuildError::ValidationFailed(format!("the agent `{id}` cannot run: {why}"))
            })?;
        }
        Ok(runtime)
    }

    /// As [`AgentRuntimeBuilder::build`], without resolving the agents.
    ///
    /// # Errors
    /// The first conflict that a `with_*` call met.
    pub fn build_unchecked(self) -> Result<AgentRuntime, BuildError> {
        if let Some(error) = self.errors.into_iter().next() {
            return Err(error);
        }
        let store = match self.store {
            Some(store) => store,
            None => Arc::new(InMemoryStore::new()),
        };
        let presence = store.presence();
        let announced = presence.announce(self.owner.unwrap_or_else(Owner::of_this_process));
        #[cfg(test)]
        let announced = if self.is_dead { crate::tests::dead(announced) } else { announced };
        let clock = self.clock.unwrap_or_else(|| store.clock());
        let are_profiles_stored = self.profiles.is_none();
        let profiles = match self.profiles {
            Some(profiles) => profiles,
            None => store.profile_store(Arc::clone(&clock)).map_err(|e| BuildError::Store(e.to_string()))?,
        };
        Ok(AgentRuntime::new(RuntimeCore {
            catalog: Arc::new(RwLock::new(self.catalog)),
            breaker: Arc::default(),
            store,
            clock,
            profiles,
            are_profiles_stored,
            owner: announced.owner.clone(),
            announced: Arc::new(announced),
            presence,
            cwd: self.cwd.unwrap_or_default(),
            keys: self.keys,
            leftover_handler: self.leftover_handler,
            lease: self.lease.unwrap_or(lease::LENGTH),
            grants: self.grants,
            renderers: self.renderers,
            question_terms: self.question_terms,
            waits_for_limits: self.waits_for_limits,
            artifacts: self.artifacts,
            phases: self.phases,
            snapshots: self.snapshots,
            windows: Windows::default(),
            tasks: Arc::default(),
            commands: Arc::default(),
            remotes: Arc::default(),
            workplaces: self.workplaces,
        }))
    }
}
