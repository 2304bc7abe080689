//! What is registered: agents, models, providers, tools, plugins.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::contract::executor::LlmExecutor;
use crate::contract::spec::{AgentSpec, ModelEntry};
use crate::contract::tool::Tool;
use crate::phase::Plugin;

/// All registries of one runtime. Tools and plugins keep the order they were registered in, so that requests are
/// byte-stable.
#[derive(Clone, Default)]
pub struct Catalog {
    /// Agents by id.
    pub agents: BTreeMap<String, Arc<AgentSpec>>,
    /// Models by id.
    pub models: BTreeMap<String, ModelEntry>,
    /// Providers by name.
    pub providers: BTreeMap<String, Arc<dyn LlmExecutor>>,
    /// Tools by id.
    pub tools: IndexMap<String, Arc<dyn Tool>>,
    /// Plugins by id.
    pub plugins: IndexMap<String, Arc<dyn Plugin>>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("agents", &self.agents.keys())
            .field("models", &self.models)
            .field("providers", &self.providers.keys())
            .field("tools", &self.tools.keys())
            .field("plugins", &self.plugins.keys())
            .finish()
    }
}
