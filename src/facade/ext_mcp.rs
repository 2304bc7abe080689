//! Tool servers for programs that embed aye.
//!
//! A program that registers a tool has agreed to it: one whose name, description or schema the server changes later is
//! not called any more until the program takes the new one from the registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::task::AbortHandle;

use crate::contract::digest::sha256_hex;
use crate::contract::server::{LoginConfig, ServerConfig, ServerScope, ServerTransport, ToolFilter};
use crate::contract::tool::Tool;
use crate::mcp::{
    KeepError, Manager, NoLogins, PinStore, Pinned, ServerLaunch, ServerProgram, ServerState, Surroundings,
};
use crate::phase::{Plugin, PluginDescriptor, PluginRegistrar};
use crate::state::StateError;

/// How long a call may take without a message from the server.
const CALL: Duration = Duration::from_mins(1);
/// How long a server may take to become usable.
const START: Duration = Duration::from_secs(30);
/// Lists are not read again more often.
const MIN_REFRESH: Duration = Duration::from_secs(1);
/// The environment variables passed on to a server's process; keys of other services are none of its
/// business.
const PASSED_ON: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "TZ",
    "XDG_RUNTIME_DIR",
];

/// Why servers cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// A server could not be started, reached or understood.
    #[error("{0}")]
    TransportError(String),
    /// The servers do not go together, such as two of one name.
    #[error("{0}")]
    InvalidConfig(String),
}

/// A server, and how it is reached. Values that may hold secrets do not show in the debug form.
#[derive(Clone, Debug)]
pub struct McpServerConnectionConfig {
    name: String,
    transport: ServerTransport,
    timeout: Duration,
    start_timeout: Duration,
}

impl McpServerConnectionConfig {
    fn new(name: impl Into<String>, transport: ServerTransport) -> Self {
        Self { name: name.into(), transport, timeout: CALL, start_timeout: START }
    }

    /// A program that is started, in the folder of this one, and spoken with over its standard input and output.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>, args: Vec<String>) -> Self {
        let transport = ServerTransport::Stdio {
            command: command.into(),
            args: args.into_iter().map(SecretString::from).collect(),
            env: BTreeMap::new(),
            cwd: PathBuf::from("."),
            domains: Vec::new(),
        };
        Self::new(name, transport)
    }

    /// A server that answers over streamable HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(
            name,
            ServerTransport::Http {
                url: url.into().into(),
                headers: BTreeMap::new(),
                login: LoginConfig::default(),
            },
        )
    }

    /// Sets a variable of the program, or a header of each request.
    #[must_use]
    pub fn with_value(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let values = match &mut self.transport {
            ServerTransport::Stdio { env, .. } => env,
            ServerTransport::Http { headers, .. } => headers,
        };
        values.insert(name.into(), value.into().into());
        self
    }

    /// Sets how long a call may take without a message from the server; the default is one minute.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long the server may take to become usable; the default is half a minute.
    #[must_use]
    pub fn with_start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    fn config(self) -> ServerConfig {
        let shown = match &self.transport {
            ServerTransport::Stdio { command, .. } => command.clone(),
            ServerTransport::Http { url, .. } => url.expose_secret().to_owned(),
        };
        ServerConfig {
            digest: sha256_hex(&shown),
            shown,
            place: "this program".to_owned(),
            name: self.name,
            scope: ServerScope::User,
            transport: self.transport,
            timeout: self.timeout,
            start_timeout: self.start_timeout,
            revision: None,
            tools: ToolFilter::default(),
        }
    }
}

/// Agreements are the program's: it registers the tools that it wants.
struct NoPins;

impl PinStore for NoPins {
    fn load(&self, _: &str, _: &str) -> Result<Option<Pinned>, KeepError> {
        Ok(None)
    }

    fn save(&self, _: &str, _: &str, _: &Pinned) -> Result<(), KeepError> {
        Ok(())
    }
}

/// The tools of each server.
type Found = BTreeMap<String, Vec<Arc<dyn Tool>>>;

/// The tools that servers have now. Clones share it.
#[derive(Clone, Default)]
pub struct McpToolRegistry(Arc<Mutex<Found>>);

impl McpToolRegistry {
    fn tools(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of the tools: `mcp__SERVER__TOOL`.
    pub fn ids(&self) -> Vec<String> {
        self.snapshot().into_keys().collect()
    }

    /// The tools as they are now, by name.
    pub fn snapshot(&self) -> BTreeMap<String, Arc<dyn Tool>> {
        let tools = self.tools();
        tools.values().flatten().map(|tool| (tool.descriptor().id, Arc::clone(tool))).collect()
    }
}

/// Connections to servers. Dropping it ends them all.
pub struct McpToolRegistryManager {
    manager: Arc<Manager>,
    registry: McpToolRegistry,
    refresh: Mutex<Option<AbortHandle>>,
}

impl McpToolRegistryManager {
    /// Starts or reaches all servers and reads what tools they have.
    ///
    /// # Errors
    /// [`McpError`]: one of them cannot be used; then none is.
    pub async fn connect(
        servers: impl IntoIterator<Item = McpServerConnectionConfig>,
    ) -> Result<Self, McpError> {
        let configs: Vec<ServerConfig> = servers.into_iter().map(McpServerConnectionConfig::config).collect();
        let limit = configs.iter().map(|config| config.start_timeout).max().unwrap_or_default();
        let registry = McpToolRegistry::default();
        let (manager, problems) = Manager::new(configs, surroundings(&registry));
        if let Some(problem) = problems.into_iter().next() {
            return Err(McpError::InvalidConfig(problem));
        }
        manager.start();
        manager.ready(limit + Duration::from_secs(1)).await;
        let failed = manager.views().into_iter().find_map(|view| match view.phase {
            ServerState::Connected => None,
            ServerState::Failed { why, again: _ } => Some(format!("the MCP server {}: {why}", view.typed)),
            ServerState::NeedsLogin => Some(format!("the MCP server {} needs a login (OAuth)", view.typed)),
            ServerState::Idle | ServerState::Connecting | ServerState::Stopped => {
                Some(format!("the MCP server {} is not connected", view.typed))
            }
        });
        match failed {
            Some(why) => {
                manager.close().await;
                Err(McpError::TransportError(why))
            }
            None => Ok(Self { manager: Arc::new(manager), registry, refresh: Mutex::default() }),
        }
    }

    /// The tools; they follow what the servers have.
    pub fn registry(&self) -> McpToolRegistry {
        self.registry.clone()
    }

    /// Reads the lists of all servers again now. Servers that report their changes do not need this.
    pub fn refresh(&self) {
        self.manager.refresh();
    }

    /// Reads the lists of all servers again and again, once a second at most. Called inside of a tokio runtime; a second
    /// call takes the place of the first.
    pub fn start_periodic_refresh(&self, every: Duration) {
        let every = every.max(MIN_REFRESH);
        let manager: Weak<Manager> = Arc::downgrade(&self.manager);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(manager) = manager.upgrade() else { break };
                manager.refresh();
            }
        });
        self.set_refresh(Some(task.abort_handle()));
    }

    /// Stops the refresh that [`McpToolRegistryManager::start_periodic_refresh`] started.
    pub fn stop_periodic_refresh(&self) {
        self.set_refresh(None);
    }

    fn set_refresh(&self, task: Option<AbortHandle>) {
        let before =
            std::mem::replace(&mut *self.refresh.lock().unwrap_or_else(PoisonError::into_inner), task);
        if let Some(before) = before {
            before.abort();
        }
    }

    /// Ends all connections and waits for that, a moment at most.
    pub async fn close(&self) {
        self.stop_periodic_refresh();
        self.manager.close().await;
    }
}

impl Drop for McpToolRegistryManager {
    fn drop(&mut self) {
        self.stop_periodic_refresh();
    }
}

fn surroundings(registry: &McpToolRegistry) -> Surroundings {
    let registry = registry.clone();
    Surroundings {
        spawn: Arc::new(|launch| {
            let program =
                ServerProgram { command: command(launch), is_supervised: false, kept: Box::new(()) };
            Box::pin(async { Ok(program) })
        }),
        offer: Arc::new(move |source, tools| {
            // Tools that belong to no single server, those for resources, are not tools of a server.
            if source.contains(':') {
                registry.tools().insert(source.to_owned(), tools);
            }
        }),
        tell: Arc::new(|text| tracing::warn!("{text}")),
        pins: Arc::new(NoPins),
        logins: Arc::new(NoLogins),
        agrees_to_all: true,
        prompts_changed: Arc::new(|| {}),
        root: std::path::absolute(Path::new(".")).unwrap_or_else(|_| PathBuf::from("/")),
        questions: crate::mcp::Questions::default(),
        guidance: crate::mcp::Guidance::default(),
        clock: Arc::new(crate::contract::clock::SystemClock),
    }
}

fn command(launch: ServerLaunch) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).current_dir(&launch.cwd).env_clear();
    command.envs(PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    // A group of its own, so that all of it can be ended.
    command.envs(&launch.env).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The name that agents choose servers' tools by in their filters. The tools come from [`McpToolRegistry`].
#[derive(Clone, Copy, Debug, Default)]
pub struct McpPlugin;

impl Plugin for McpPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new("mcp", "tools of MCP servers")
    }

    fn register(&self, _: &mut PluginRegistrar) -> Result<(), StateError> {
        Ok(())
    }
}
