//! A server in a program that embeds aye: its own runtime over HTTP.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::StatusCode;
use aye_core::contract::storage::ThreadRunStore;
use aye_runtime::{AgentResolver, AgentRuntime};
use tokio_util::sync::CancellationToken;

use super::access::fresh_token;
use super::embedded::Embedded;
use super::error::ApiError;
use super::guard::{Guard, Names};
use super::hub::Hub;
use super::mailbox::Mailbox;
use super::routes::router::router;

/// Characters that a token must have.
const MIN_TOKEN: usize = 16;

pub use HttpServerConfig as ServerConfig;

/// The settings of a server.
#[derive(Clone)]
pub struct HttpServerConfig {
    /// The address that the program listens on. Requests must name it in their Host header, or its port with
    /// `localhost`, `127.0.0.1` or `[::1]` if it is on loopback or on all addresses.
    pub address: String,
    /// How many events of a run a client may be behind before its stream ends; it can come back for the rest.
    pub sse_buffer_size: usize,
    /// The token that every request needs, except those for health and the page: at least 16 printable characters
    /// without spaces. Without one, a new token is made: see [`AppState::token`].
    pub token: Option<String>,
    /// Further host names under which requests arrive, such as `aye.example.com`.
    pub hosts: Vec<String>,
    /// Pages of other origins that may use the server, such as `https://app.example.com`.
    pub origins: Vec<String>,
    /// The URL under which others reach the server, for its agent card.
    pub public_url: Option<String>,
}

impl Default for HttpServerConfig {
    fn default() -> Self {
        Self {
            address: "0.0.0.0:3000".to_owned(),
            sse_buffer_size: 64,
            token: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            public_url: None,
        }
    }
}

impl fmt::Debug for HttpServerConfig {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("address", &self.address)
            .field("sse_buffer_size", &self.sse_buffer_size)
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .field("public_url", &self.public_url)
            .finish_non_exhaustive()
    }
}

/// The state of [`build_router`](super::routes::build_router). Clones share everything; when the last one is gone,
/// nothing resumes any more.
#[derive(Clone)]
pub struct AppState(Arc<Served>);

struct Served {
    runtime: AgentRuntime,
    store: Arc<dyn ThreadRunStore>,
    config: ServerConfig,
    token: String,
    started: Mutex<Option<Started>>,
    closing: CancellationToken,
}

#[derive(Clone)]
struct Started {
    router: Router,
    hub: Arc<Hub>,
    runtime: AgentRuntime,
}

impl AppState {
    /// A server for the agents of `runtime`, whose conversations are kept in `store`. It works on the store like
    /// another process: it resumes what was left there, and runs that the program starts itself exclude its own in the
    /// same conversation.
    ///
    /// The queue is part of the store, and the runtime resolves its own agents: `mailbox` and `resolver` are not used.
    ///
    /// It starts here, or with the first request if this is not called where tokio runs. If it cannot start, the reason
    /// is logged, requests are answered with 503, and the next one tries again.
    pub fn new(
        runtime: Arc<AgentRuntime>,
        _mailbox: Arc<Mailbox>,
        store: Arc<dyn ThreadRunStore>,
        _resolver: Arc<dyn AgentResolver>,
        config: ServerConfig,
    ) -> Self {
        let runtime = AgentRuntime::clone(&runtime);
        let token = config.token.clone().unwrap_or_else(fresh_token);
        let (started, closing) = (Mutex::default(), CancellationToken::new());
        let state = Self(Arc::new(Served { runtime, store, config, token, started, closing }));
        if tokio::runtime::Handle::try_current().is_ok() {
            // The error was logged, and a request tries again.
            let _ = state.started();
        }
        state
    }

    /// The token that requests send as `Authorization: Bearer TOKEN`. It allows everything; it is never logged.
    pub fn token(&self) -> &str {
        &self.0.token
    }

    /// The runtime that drives the conversations of the server, once it has started.
    pub fn runtime(&self) -> Option<AgentRuntime> {
        self.0.lock().as_ref().map(|started| started.runtime.clone())
    }

    /// Ends all streams and accepts no more runs. Active runs have 30 seconds to end; pending questions stay in the
    /// store.
    pub async fn close(&self) {
        self.0.closing.cancel();
        let started = self.0.lock().clone();
        if let Some(started) = started {
            started.hub.close().await;
        }
    }

    pub(super) fn router(&self) -> Result<Router, ApiError> {
        self.started().map(|started| started.router)
    }

    fn started(&self) -> Result<Started, ApiError> {
        let mut started = self.0.lock();
        if let Some(started) = &*started {
            return Ok(started.clone());
        }
        match self.0.start() {
            Ok(new) => Ok(started.insert(new).clone()),
            Err(reason) => {
                tracing::error!(%reason, "the server cannot start");
                let message = "the server cannot start; see the log of its program";
                Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_started", message))
            }
        }
    }
}

impl fmt::Debug for AppState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppState").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Served {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Started>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> Result<Started, String> {
        let Self { config, token, closing, .. } = self;
        if token.len() < MIN_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "ServerConfig::token must have at least {MIN_TOKEN} printable characters without spaces"
            ));
        }
        // Three handles, so that each hears what the others commit: the program's, the runtime's and this one.
        let runtime = self.store.another().and_then(|store| self.runtime.on_store(store));
        let runtime = runtime.map_err(|error| error.to_string())?;
        let watched = self.store.another().map_err(|error| error.to_string())?;
        let host = Embedded::new(runtime.clone(), watched, token, config.sse_buffer_size);
        let mut names = Names::of(&config.address, &config.hosts, &config.origins);
        let public_url = config.public_url.as_deref().map(|url| url.trim_end_matches('/'));
        let rest = public_url.and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
        let public_host = rest.and_then(|rest| rest.split('/').next());
        names.hosts.extend(public_host.map(str::to_ascii_lowercase));
        // Nothing reaches an address that stands for all of them.
        let address = match config.address.parse::<SocketAddr>() {
            Ok(all) if all.ip().is_unspecified() => format!("127.0.0.1:{}", all.port()),
            _ => config.address.clone(),
        };
        let url = public_url.map_or_else(|| format!("http://{address}"), str::to_owned);
        let hub = Hub::start(Arc::new(host), Some(url), closing.clone())
            .map_err(|error| error.message().to_owned())?;
        if config.token.is_none() {
            tracing::warn!(
                "every request needs a token: AppState::token returns the one made at this start, ServerConfig::token sets one"
            );
        }
        let guard = Guard { hub: Arc::clone(&hub), names: Arc::new(names) };
        Ok(Started { router: router(guard), hub, runtime })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}
