//! All servers of one app, each with a task that keeps its connection, on a thread of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::content::Content;
use super::error::{ConnectError, McpServerError, needs_login};
use super::handler::ConnectionState;
use super::resource_tools;
use super::server::{PromptView, Server, ServerSet, ServerState, ServerView};
use super::{Surroundings, list};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::display::visible_line;
use aye_core::contract::server::{ServerConfig, ServerTransport};

/// Delays before a server is tried again; after the last one it is left alone.
const BACKOFF: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
];
/// A connection that lasted this long was stable: the next failure counts as the first again.
const STABLE: Duration = Duration::from_mins(1);
/// Changes of a list that come so close together are one.
const GATHER: Duration = Duration::from_millis(200);
/// A list is read again no more often; the pause doubles while it keeps on changing.
const MIN_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// All MCP servers of a program. Dropping it ends all connections.
pub struct Manager {
    servers: Arc<ServerSet>,
    around: Surroundings,
    stop: CancellationToken,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Manager {
    /// Knows servers and starts nothing. The sentences say which of them are left out, and why.
    pub fn new(configs: Vec<ServerConfig>, around: Surroundings) -> (Self, Vec<String>) {
        let mut parts: BTreeMap<String, String> = BTreeMap::new();
        let (mut servers, mut problems) = (Vec::new(), Vec::new());
        for config in configs {
            let server = Server::new(config);
            if let Some(other) = parts.get(&server.part) {
                problems.push(format!(
                    "{}: the server `{}` is not started: its tools would have the same names as those of \
                     `{}`; rename one of them",
                    server.config.place,
                    server.name(),
                    visible_line(other)
                ));
                continue;
            }
            parts.insert(server.part.clone(), server.config.name.clone());
            servers.push(Arc::new(server));
        }
        (
            Self {
                servers: Arc::new(ServerSet::new(servers)),
                around,
                stop: CancellationToken::new(),
                thread: Mutex::default(),
            },
            problems,
        )
    }

    /// Returns whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.servers.all.is_empty()
    }

    /// Starts all servers in the background. A second call does nothing.
    pub fn start(&self) {
        self.run(&self.servers.all);
    }

    fn run(&self, servers: &[Arc<Server>]) {
        let mut thread = self.thread.lock().expect("no panic while it is held");
        if servers.is_empty() || thread.is_some() || self.stop.is_cancelled() {
            return;
        }
        let (servers, around, stop) = (servers.to_vec(), self.around.clone(), self.stop.clone());
        for server in &servers {
            server.set_phase(ServerState::Connecting);
        }
        let known: Vec<Weak<Server>> = servers.iter().map(Arc::downgrade).collect();
        let all = Arc::clone(&self.servers);
        let work = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    for server in &servers {
                        server.set_phase(ServerState::Failed { why: error.to_string(), again: false });
                    }
                    return;
                }
            };
            runtime.block_on(async {
                let tasks = servers.into_iter().map(|server| {
                    let (all, around, stop) = (Arc::clone(&all), around.clone(), stop.clone());
                    tokio::spawn(async move { keep(&server, &all, &around, &stop).await })
                });
                futures::future::join_all(tasks).await;
            });
            runtime.shutdown_timeout(Duration::from_millis(200));
        };
        match std::thread::Builder::new().name("mcp".to_owned()).spawn(work) {
            Ok(handle) => *thread = Some(handle),
            Err(error) => {
                for server in known.iter().filter_map(Weak::upgrade) {
                    server.set_phase(ServerState::Failed { why: error.to_string(), again: false });
                }
            }
        }
    }

    /// Waits until each server can be used or cannot, and no longer than `limit`. Gives those that are not there yet.
    pub async fn ready(&self, limit: Duration) -> Vec<String> {
        let is_settled = |server: &Server| match server.phase() {
            ServerState::Connected
            | ServerState::Failed { .. }
            | ServerState::NeedsLogin
            | ServerState::Stopped => true,
            ServerState::Idle | ServerState::Connecting => false,
        };
        let all = futures::future::join_all(self.servers.all.iter().map(|server| async move {
            let mut moved = server.moved.subscribe();
            while !is_settled(server) {
                if moved.changed().await.is_err() {
                    return;
                }
            }
        }));
        let _ = tokio::time::timeout(limit, all).await;
        self.servers.all.iter().filter(|server| !is_settled(server)).map(|server| server.name()).collect()
    }

    /// Returns whether a server with this name exists.
    pub fn knows(&self, name: &str) -> bool {
        self.servers.all.iter().any(|server| server.config.name == name)
    }

    /// Returns all servers as shown to a user, without starting any.
    pub fn views(&self) -> Vec<ServerView> {
        self.servers.all.iter().map(|server| server.view(false)).collect()
    }

    fn server(&self, name: &str) -> Result<Arc<Server>, McpServerError> {
        self.servers.named(name)
    }

    /// Returns one server with all details of its tools: only what this method returned can be trusted.
    ///
    /// # Errors
    /// There is no such server.
    pub fn look(&self, name: &str) -> Result<ServerView, McpServerError> {
        Ok(self.server(name)?.view(true))
    }

    /// Agrees to the tools of a server as [`Manager::look`] gave them.
    ///
    /// # Errors
    /// Why nothing was agreed to.
    pub fn agree(&self, name: &str) -> Result<String, McpServerError> {
        self.server(name)?.agree(&self.around)
    }

    /// Agrees to the tools and instructions of one [`ServerView`], whose digest this is, unless the server has others by now.
    ///
    /// # Errors
    /// Why nothing was agreed to.
    pub fn agree_to(&self, name: &str, digest: &str) -> Result<String, McpServerError> {
        self.server(name)?.agree_to(digest, &self.around)
    }

    /// Retries a failed server, or restarts a running one.
    ///
    /// # Errors
    /// There is no such server.
    pub fn restart(&self, name: &str) -> Result<(), McpServerError> {
        self.server(name)?.again.notify_one();
        Ok(())
    }

    /// Reads the lists of all connected servers again, in the background.
    pub fn refresh(&self) {
        for server in &self.servers.all {
            server.refresh();
        }
    }

    /// The prompts of all servers.
    pub fn prompts(&self) -> Vec<PromptView> {
        self.servers.all.iter().flat_map(|server| server.view(false).prompts).collect()
    }

    /// Returns the content of a prompt, with words for its arguments in their order; the last argument takes
    /// the rest.
    ///
    /// # Errors
    /// There is no such server, or it does not provide the prompt.
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        words: &str,
    ) -> Result<Vec<ContentBlock>, McpServerError> {
        let server = self.server(server)?;
        let client = server.client().await?;
        let mut known = server.view(false).prompts;
        if !known.iter().any(|prompt| prompt.name == name) {
            // Prompts are listed in the background after connecting; this call may be faster.
            server.read_prompts(&client, &self.around).await;
            known = server.view(false).prompts;
        }
        let prompt = known.iter().find(|prompt| prompt.name == name).ok_or_else(|| {
            McpServerError::UnknownPrompt { server: server.name(), prompt: name.to_owned() }
        })?;
        let arguments = arguments_of(prompt, words)?;
        let content = list::get_prompt(&client, name, arguments, server.config.timeout).await;
        blocks(content.map_err(|error| McpServerError::Call { server: server.name(), error })?)
    }

    /// Returns the resources of a server, or of all: server, URL, name, description.
    ///
    /// # Errors
    /// There is no such server, or it does not provide them.
    pub async fn resources(&self, server: Option<&str>) -> Result<Vec<[String; 4]>, McpServerError> {
        self.servers.resources(server).await
    }

    /// Returns the content of a resource.
    ///
    /// # Errors
    /// There is no such server, or it does not provide the resource.
    pub async fn resource(&self, server: &str, uri: &str) -> Result<Vec<ContentBlock>, McpServerError> {
        blocks(self.servers.resource(server, uri).await?)
    }

    /// Ends all connections and waits for that, a moment at most.
    pub async fn close(&self) {
        self.stop.cancel();
        let handle = self.thread.lock().expect("no panic while it is held").take();
        let Some(handle) = handle else { return };
        let end = Instant::now() + Duration::from_secs(2);
        while !handle.is_finished() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn blocks(content: Content) -> Result<Vec<ContentBlock>, McpServerError> {
    let mut blocks = Vec::new();
    if !content.text.is_empty() {
        blocks.push(ContentBlock::text(content.text));
    }
    blocks.extend(content.images);
    if blocks.is_empty() { Err(McpServerError::Empty) } else { Ok(blocks) }
}

fn arguments_of(prompt: &PromptView, words: &str) -> Result<Map<String, Value>, McpServerError> {
    let mut found = Map::new();
    let mut rest = words.trim();
    for (at, (name, _)) in prompt.arguments.iter().enumerate() {
        if rest.is_empty() {
            break;
        }
        let is_last = at + 1 == prompt.arguments.len();
        let (word, behind) = match rest.split_once(char::is_whitespace) {
            Some((word, behind)) if !is_last => (word, behind.trim_start()),
            Some(_) | None => (rest, ""),
        };
        found.insert(name.clone(), word.into());
        rest = behind;
    }
    let missing: Vec<String> = prompt
        .arguments
        .iter()
        .filter(|(name, is_needed)| *is_needed && !found.contains_key(name))
        .map(|(name, _)| name.clone())
        .collect();
    if missing.is_empty() { Ok(found) } else { Err(McpServerError::MissingArguments(missing)) }
}

/// The reason a connection ended.
enum End {
    Stop,
    Again,
    Gone(String),
    NeedsLogin,
}

/// Keeps one server connected until the stop token is cancelled.
async fn keep(server: &Arc<Server>, all: &Arc<ServerSet>, around: &Surroundings, stop: &CancellationToken) {
    let mut failures = 0;
    let mut was_connected = false;
    loop {
        server.set_phase(ServerState::Connecting);
        let began = Instant::now();
        let why = match once(server, all, around, stop, &mut was_connected).await {
            End::Stop => break,
            End::Again => {
                failures = 0;
                continue;
            }
            End::Gone(why) => why,
            End::NeedsLogin => {
                server.withdraw(around);
                (around.tell)(format!("MCP server {}: {}", server.name(), needs_login(&server.config.name)));
                server.set_phase(ServerState::NeedsLogin);
                // Only a user can change that.
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = server.again.notified() => {}
                }
                failures = 0;
                continue;
            }
        };
        failures = if was_connected && began.elapsed() > STABLE { 1 } else { failures + 1 };
        // A program that never worked is not started over and over; a server elsewhere may not be up yet.
        let is_program = matches!(server.config.transport, ServerTransport::Stdio { .. });
        let tries = if is_program && !was_connected { 0 } else { BACKOFF.len() };
        let pause = (failures <= tries).then(|| BACKOFF[failures - 1]);
        tracing::warn!(server = %server.name(), again = pause.is_some(), "{why}");
        if pause.is_none() {
            server.withdraw(around);
        }
        if failures == 1 || pause.is_none() {
            let then = if pause.is_some() { "retrying" } else { "not used" };
            (around.tell)(format!("MCP server {}: {why}; {then}", server.name()));
        }
        server.set_phase(ServerState::Failed { why, again: pause.is_some() });
        tokio::select! {
            () = stop.cancelled() => break,
            () = server.again.notified() => failures = 0,
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
    server.set_phase(ServerState::Stopped);
}

/// Runs one connection from its start to its end.
async fn once(
    server: &Arc<Server>,
    all: &Arc<ServerSet>,
    around: &Surroundings,
    stop: &CancellationToken,
    was_connected: &mut bool,
) -> End {
    let began = Instant::now();
    let shared = Arc::new(ConnectionState::new(&server.config.name, Arc::clone(&around.tell)));
    *server.last.lock().expect("no panic while it is held") = Some(Arc::clone(&shared));
    let limit = server.config.start_timeout;
    let starting = async {
        let is_known = server.is_known_to_initialize(around);
        let client = Client::connect(&server.config, around, Arc::clone(&shared), is_known).await?;
        let client = Arc::new(client);
        read_tools(server, &client, around).await?;
        server.remember_to_initialize(client.needs_initialize, around);
        Ok::<_, ConnectError>(client)
    };
    let started = tokio::select! {
        () = stop.cancelled() => return End::Stop,
        started = tokio::time::timeout(limit, starting) => started,
    };
    let client = match started {
        Ok(Ok(client)) => client,
        Ok(Err(_)) if shared.wants_login.is_cancelled() => return End::NeedsLogin,
        Ok(Err(error)) => return End::Gone(error.to_string()),
        Err(_) => return End::Gone(format!("it was not ready after {} s", limit.as_secs_f64())),
    };
    *was_connected = true;
    server.connected(Arc::clone(&client), began.elapsed());
    if client.info.has_resources && all.begins_with_resources() {
        (around.offer)("mcp", resource_tools::both(all));
    }
    let end = tokio::select! {
        () = stop.cancelled() => End::Stop,
        end = serve(server, around, &client) => end,
    };
    client.close().await;
    end
}

async fn read_tools(
    server: &Arc<Server>,
    client: &Client,
    around: &Surroundings,
) -> Result<(), ConnectError> {
    let (tools, notes) = if client.info.has_tools {
        list::tools(client, &server.part, server.config.start_timeout).await?
    } else {
        (Vec::new(), Vec::new())
    };
    let instructions = client.info.instructions.as_deref().unwrap_or_default();
    server.set_tools(tools, notes, instructions, around);
    Ok(())
}

async fn serve(server: &Arc<Server>, around: &Surroundings, client: &Client) -> End {
    let changes = async {
        server.read_prompts(client, around).await;
        let mut pause = MIN_PAUSE;
        loop {
            client.shared.changed.notified().await;
            tokio::time::sleep(GATHER).await;
            if !client.shared.take_change() {
                continue;
            }
            if let Err(why) = read_tools(server, client, around).await {
                tracing::warn!(server = %server.name(), "{why}");
            }
            server.read_prompts(client, around).await;
            tokio::time::sleep(pause).await;
            pause = if client.shared.take_change() {
                // Changes that arrived in the meantime are read once more, after an ever longer pause.
                client.shared.note_change();
                (pause * 2).min(MAX_PAUSE)
            } else {
                MIN_PAUSE
            };
        }
    };
    let refused = async {
        client.shared.wants_login.cancelled().await;
        // The call that ran into this reports it with its own answer first.
        tokio::time::sleep(GATHER).await;
    };
    tokio::select! {
        // The last branch but one ends with the connection too, and knows less about it.
        biased;
        () = client.ended.cancelled() => End::Gone(client.how_it_ended().await),
        () = server.again.notified() => End::Again,
        () = refused => End::NeedsLogin,
        () = client.subscribe_to_list_changes() => End::Gone("the connection ended".to_owned()),
        never = changes => never,
    }
}
