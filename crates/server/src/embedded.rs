//! A program that embeds aye, as its server sees it: one runtime, one folder, one token.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aye_core::contract::foreign::ForeignError;
use aye_core::contract::grant::GrantRequest;
use aye_core::contract::record::GrantRecord;
use aye_core::contract::storage::ThreadRunStore;
use aye_core::contract::suspension::{Actor, CHANNEL_HTTP};
use aye_runtime::{AgentRuntime, Catalog};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::access::{Access, TokenRecord, TokenScope, TokenStore};
use super::clock::now_ms;
use super::error::ApiError;
use super::host::{AgentFolder, ServerHost, ServerTexts};

/// The name of the program's token.
const NAME: &str = "program";

const TEXTS: ServerTexts = ServerTexts {
    token: "the program that serves this has one in `AppState::token`",
    host: "add it to `ServerConfig::hosts`, and set `ServerConfig::address` to the address of the listener",
    origin: "add it to `ServerConfig::origins`",
    folder: "leave out the folder",
    code: "this server makes no codes; send its token",
    about: "Agents of a program; what they may not do alone becomes a question",
    skill: ["run", "Run an agent", "Answers messages; questions come back as input-required"],
};

/// The program of an embedded server.
pub(super) struct Embedded {
    store: Arc<dyn ThreadRunStore>,
    access: Access,
    folders: [PathBuf; 1],
    agents: Arc<ProgramAgents>,
    backlog: usize,
}

impl Embedded {
    /// `store` is a handle that nothing else writes through.
    pub(super) fn new(
        runtime: AgentRuntime,
        store: Arc<dyn ThreadRunStore>,
        token: &str,
        backlog: usize,
    ) -> Self {
        let token = OneToken(TokenRecord::of(token, NAME, &TokenScope::ALL, now_ms()));
        Self {
            store,
            access: Access::new(Box::new(token)),
            folders: [runtime.cwd().to_path_buf()],
            agents: Arc::new(ProgramAgents(runtime)),
            backlog,
        }
    }
}

struct OneToken(TokenRecord);

impl TokenStore for OneToken {
    fn tokens(&self) -> Result<Vec<TokenRecord>, ForeignError> {
        Ok(vec![self.0.clone()])
    }

    fn add(&self, _record: TokenRecord) -> Result<(), ForeignError> {
        Err("this server has one token".into())
    }
}

impl ServerHost for Embedded {
    fn store(&self) -> &Arc<dyn ThreadRunStore> {
        &self.store
    }

    fn access(&self) -> &Access {
        &self.access
    }

    fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Its tools work in one folder. A runtime without a folder has an empty path, below which everything would be.
    fn serves(&self, folder: &Path) -> bool {
        folder == self.folders[0]
    }

    fn workshop<'a>(&'a self, _folder: &'a Path) -> BoxFuture<'a, Result<Arc<dyn AgentFolder>, ApiError>> {
        Box::pin(async move { Ok(Arc::clone(&self.agents) as _) })
    }

    fn webhook_key(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn actor(&self, token: &str) -> Actor {
        let (user, channel) = (token.to_owned(), CHANNEL_HTTP.to_owned());
        Actor { user, channel, pid: std::process::id(), ..Actor::default() }
    }

    fn texts(&self) -> &'static ServerTexts {
        &TEXTS
    }

    fn backlog(&self) -> usize {
        self.backlog
    }

    fn capabilities(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        Box::pin(async move { Ok(catalog_view(&self.agents.0.catalog())) })
    }
}

struct ProgramAgents(AgentRuntime);

impl AgentFolder for ProgramAgents {
    fn runtime(&self) -> &AgentRuntime {
        &self.0
    }

    fn prepare(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {})
    }

    fn checked_grant(
        &self,
        _request: GrantRequest,
        _actor: Actor,
    ) -> BoxFuture<'_, Result<GrantRecord, ApiError>> {
        Box::pin(async move {
            Err(ApiError::field("grant", "this server grants no rules; approve the call without a grant"))
        })
    }

    fn root(&self) -> &Path {
        self.0.cwd()
    }

    fn model(&self) -> String {
        let catalog = self.0.catalog();
        let agent = catalog.default_agent.as_ref().or_else(|| catalog.agents.keys().next());
        agent.and_then(|id| catalog.agents.get(id)).map(|spec| spec.model.clone()).unwrap_or_default()
    }
}

/// What is registered, for `/v1/capabilities`.
pub fn catalog_view(catalog: &Catalog) -> Value {
    let agents = catalog.agents.values().map(|spec| {
        json!({ "id": spec.id, "name": spec.id, "description": spec.description, "model": spec.model })
    });
    let tools = catalog.tool_ids().filter_map(|id| {
        let about = catalog.tool(id)?.descriptor();
        Some(json!({ "id": id, "description": about.description, "parameters": about.parameters }))
    });
    json!({
        "agents": agents.collect::<Vec<_>>(),
        "tools": tools.collect::<Vec<_>>(),
        "plugins": catalog.plugins.keys().collect::<Vec<_>>(),
        "models": catalog.models.keys().collect::<Vec<_>>(),
        "providers": catalog.providers.keys().collect::<Vec<_>>(),
    })
}
