//! The registered agents, models, providers, tools and plugins.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, RwLockReadGuard};

use indexmap::IndexMap;

use super::delegate::{AgentBackend, DELEGATION_DEPTH};
use super::resolve::ResolveError;
use super::{AgentRuntime, RuntimeCore};
use aye_core::contract::executor::LlmExecutor;
use aye_core::contract::near::or_these;
use aye_core::contract::spec::{AgentSpec, ModelEntry};
use aye_core::contract::tool::Tool;
use aye_core::phase::Plugin;

/// A tool under its id.
pub(crate) type NamedTool = (String, Arc<dyn Tool>);

/// Agents by id, each with its versions by the revision that published them; `None` from the revision on that took the
/// agent away.
pub type PublishedAgents = BTreeMap<String, BTreeMap<u64, Option<Arc<AgentSpec>>>>;

/// All registries of one runtime. Tools and plugins keep the order they were registered in, so that requests are
/// byte-stable.
#[derive(Clone)]
pub struct Catalog {
    /// Agents by id.
    pub agents: BTreeMap<String, Arc<AgentSpec>>,
    /// The agent of requests that name none; without one the first by id.
    pub default_agent: Option<String>,
    /// Models by id.
    pub models: BTreeMap<String, ModelEntry>,
    /// Providers by name.
    pub providers: BTreeMap<String, Arc<dyn LlmExecutor>>,
    /// Tools by id.
    pub tools: IndexMap<String, Arc<dyn Tool>>,
    /// Tools that come and go while the program runs, such as those of servers, by who brings them. An id of
    /// [`Catalog::tools`] hides one of these.
    pub brought: BTreeMap<String, Vec<NamedTool>>,
    /// The backends of agents, by the name that an agent's endpoint uses.
    pub backends: BTreeMap<String, Arc<dyn AgentBackend>>,
    /// Maximum number of runs above a subagent's run; `None` means no limit.
    pub delegation_depth: Option<u32>,
    /// Counts the changes of what is registered.
    pub revision: u64,
    /// The versions of agents that were published while the program runs; the newest ones are also among the others.
    pub published: PublishedAgents,
    /// The newest revision of what was published; 0 if nothing was.
    pub published_revision: u64,
    /// Plugins by id.
    pub plugins: IndexMap<String, Arc<dyn Plugin>>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self {
            agents: BTreeMap::new(),
            default_agent: None,
            models: BTreeMap::new(),
            providers: BTreeMap::new(),
            tools: IndexMap::new(),
            brought: BTreeMap::new(),
            backends: BTreeMap::new(),
            delegation_depth: Some(DELEGATION_DEPTH),
            revision: 0,
            published: BTreeMap::new(),
            published_revision: 0,
            plugins: IndexMap::new(),
        }
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("agents", &self.agents.keys())
            .field("models", &self.models)
            .field("providers", &self.providers.keys())
            .field("tools", &self.tools.keys())
            .field("brought", &self.brought.keys())
            .field("plugins", &self.plugins.keys())
            .finish_non_exhaustive()
    }
}

impl Catalog {
    /// Sets the published agents to those of a revision.
    fn set_published(&mut self, revision: u64) {
        for (id, versions) in &self.published {
            match versions.range(..=revision).next_back() {
                Some((_, Some(spec))) => self.agents.insert(id.clone(), Arc::clone(spec)),
                Some((_, None)) | None => self.agents.remove(id),
            };
        }
        self.published_revision = revision;
    }

    /// Returns a tool, whatever its source.
    pub fn tool(&self, id: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(id).or_else(|| {
            self.brought.values().flatten().find_map(|(known, tool)| (known == id).then_some(tool))
        })
    }

    /// An error of resolving in words that say what would be right.
    pub fn advice(&self, error: &ResolveError) -> String {
        let more = match error {
            ResolveError::AgentNotFound(id) => or_these(id, self.agents.keys().map(String::as_str)),
            ResolveError::ModelNotFound(id) => or_these(id, self.models.keys().map(String::as_str)),
            ResolveError::ProviderNotFound(id) => or_these(id, self.providers.keys().map(String::as_str)),
            ResolveError::PluginNotFound(id) => or_these(id, self.plugins.keys().map(String::as_str)),
            ResolveError::InvalidPluginConfig { .. }
            | ResolveError::InvalidDelegate { .. }
            | ResolveError::RemoteAgentNotDirectlyRunnable(_)
            | ResolveError::ToolIdConflict { .. }
            | ResolveError::InvalidToolPattern { .. }
            | ResolveError::EnvBuild(_) => String::new(),
        };
        format!("{error}{more}")
    }

    /// The ids of all tools.
    pub fn tool_ids(&self) -> impl Iterator<Item = &str> {
        let brought = self.brought.values().flatten().map(|(id, _)| id);
        self.tools.keys().chain(brought).map(String::as_str)
    }
}

impl AgentRuntime {
    /// A copy of what is registered now.
    pub fn catalog(&self) -> Catalog {
        self.inner.shared.catalog().clone()
    }

    /// Replaces an agent, for the runs that start from now on.
    pub fn set_agent(&self, spec: AgentSpec) {
        self.inner.shared.change_catalog(|catalog| {
            catalog.agents.insert(spec.id.clone(), Arc::new(spec));
        });
    }

    /// Takes an agent away: no run of it starts any more.
    pub fn remove_agent(&self, agent_id: &str) {
        self.inner.shared.change_catalog(|catalog| {
            catalog.agents.remove(agent_id);
        });
    }

    /// Replaces the published agents, for the runs that start from now on. A run that is active or waits finishes with
    /// the agents of the revision that it started with, even after a restart if the versions are published again.
    pub fn publish(&self, revision: u64, agents: PublishedAgents) {
        self.inner.shared.change_catalog(|catalog| {
            for id in std::mem::replace(&mut catalog.published, agents).into_keys() {
                catalog.agents.remove(&id);
            }
            catalog.set_published(revision);
        });
    }

    /// Says which agent runs when a request names none, from now on.
    pub fn set_default_agent(&self, agent_id: &str) {
        self.inner.shared.change_catalog(|catalog| catalog.default_agent = Some(agent_id.to_owned()));
    }

    /// Registers or replaces a model and its provider, for the runs that start from now on.
    pub fn set_model(&self, id: &str, model: ModelEntry, executor: Arc<dyn LlmExecutor>) {
        self.inner.shared.change_catalog(|catalog| {
            catalog.providers.insert(model.provider.clone(), executor);
            catalog.models.insert(id.to_owned(), model);
        });
    }

    /// Replaces all tools from `source`; active runs use the new ones from their next step.
    pub fn set_tools(&self, source: &str, tools: Vec<Arc<dyn Tool>>) {
        let tools = tools.into_iter().map(|tool| (tool.descriptor().id, tool)).collect();
        self.inner.shared.change_catalog(|catalog| {
            catalog.brought.insert(source.to_owned(), tools);
        });
    }
}

/// The registries as a run sees them.
pub(crate) enum CatalogView<'a> {
    Current(RwLockReadGuard<'a, Catalog>),
    /// With the published agents of an earlier revision.
    Earlier(Box<Catalog>),
}

impl Deref for CatalogView<'_> {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        match self {
            Self::Current(catalog) => catalog,
            Self::Earlier(catalog) => catalog,
        }
    }
}

impl RuntimeCore {
    /// The registries with the published agents of a revision.
    pub(crate) fn catalog_at(&self, revision: u64) -> CatalogView<'_> {
        let catalog = self.catalog();
        if revision >= catalog.published_revision {
            return CatalogView::Current(catalog);
        }
        let mut earlier = Box::new(catalog.clone());
        earlier.set_published(revision);
        CatalogView::Earlier(earlier)
    }
}
