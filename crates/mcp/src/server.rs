//! One server: its state, its offers, and which of them are trusted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::client::Client;
use super::error::{McpServerError, needs_login};
use super::list::ServerTool;
use super::names::server_part;
use super::pins::{PinStatus, Pinned};
use super::tool::McpTool;
use super::{Surroundings, list};
use aye_core::contract::amount::counted;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::display::visible_line;
use aye_core::contract::server::{ServerConfig, ServerScope};
use aye_core::contract::tool::Tool;

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Nothing was done yet.
    Idle,
    /// It is started or reached for.
    Connecting,
    /// It can be used.
    Connected,
    /// It cannot be used, for this reason.
    Failed {
        why: String,
        /// Whether the server is retried automatically.
        again: bool,
    },
    /// The server accepts nothing before a user logs in.
    NeedsLogin,
    Stopped,
}

/// A tool as shown to a user.
#[derive(Clone, Debug)]
pub struct ToolView {
    /// The name that the model calls.
    pub id: String,
    /// The name that the server gave it.
    pub name: String,
    /// The server's description of the tool, in full.
    pub description: String,
    /// Its title, when it has another one.
    pub title: Option<String>,
    /// The server's statement about the tool's effects; it has no consequences.
    pub hints: Option<String>,
    /// The schema of its arguments.
    pub schema: serde_json::Value,
    /// The tool's status compared with the trusted one.
    pub standing: PinStatus,
    /// Whether the model may call the tool.
    pub is_offered: bool,
}

/// A prompt as shown to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptView {
    pub server: String,
    pub name: String,
    pub description: String,
    /// Its arguments in their order, and whether each is needed.
    pub arguments: Vec<(String, bool)>,
}

/// A server as shown to a user.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// Its name, as it was written.
    pub name: String,
    /// The name as it can be typed.
    pub typed: String,
    /// The scope of its configuration.
    pub scope: ServerScope,
    /// The location of its configuration.
    pub place: String,
    /// Its command line or address.
    pub shown: String,
    pub phase: ServerState,
    /// Its name for itself, and the protocol's revision.
    pub about: String,
    /// Its instructions for its use.
    pub instructions: Option<String>,
    /// Whether the model reads the instructions.
    pub is_guiding: bool,
    pub tools: Vec<ToolView>,
    pub prompts: Vec<PromptView>,
    /// Whether the server has resources.
    pub has_resources: bool,
    /// Everything that was left out, with the reasons.
    pub notes: Vec<String>,
    /// The last lines that it wrote or logged.
    pub lines: Vec<String>,
    /// The time that the server took to become usable.
    pub took: Option<Duration>,
    /// Stands for the tools and instructions of this view: see [`Manager::agree_to`](crate::Manager::agree_to).
    pub digest: String,
}

/// Maximum names of tools in a message.
const FIRST_SHOWN: usize = 8;

struct Now {
    phase: ServerState,
    client: Option<Arc<Client>>,
    tools: Vec<(ServerTool, PinStatus, bool)>,
    prompts: Vec<PromptView>,
    notes: Vec<String>,
    took: Option<Duration>,
    /// The server's instructions for its use.
    instructions: String,
    /// The status of the instructions compared with the trusted ones, and whether the model may read them.
    guiding: (PinStatus, bool),
    /// The tools that a user saw: only these can be trusted.
    seen: BTreeMap<String, String>,
    /// The hash of the instructions that a user saw with the tools.
    seen_instructions: Option<String>,
    /// The last notification shown to the user; the same one is not repeated.
    last_notice: String,
}

impl Now {
    /// Notes that a user saw the tools and instructions as they are now.
    fn mark_seen(&mut self) {
        self.seen = self.tools.iter().map(|(found, _, _)| (found.name.clone(), found.hash.clone())).collect();
        self.seen_instructions = Some(sha256_hex(&self.instructions));
    }

    /// Stands for the tools and instructions as they are now.
    fn digest(&self) -> String {
        let mut all = String::new();
        for (found, _, _) in &self.tools {
            let _ = writeln!(all, "{}\n{}", found.name, found.hash);
        }
        all.push_str(&sha256_hex(&self.instructions));
        sha256_hex(&all)
    }
}

pub(super) struct Server {
    pub(super) config: ServerConfig,
    pub(super) part: String,
    now: Mutex<Now>,
    /// Counts the state changes.
    pub(super) moved: watch::Sender<u64>,
    /// Wakes a server that is not retried automatically.
    pub(super) again: Notify,
    pub(super) last: Mutex<Option<Arc<super::handler::ConnectionState>>>,
}

/// The servers of one app, for lookup by name.
pub(super) struct ServerSet {
    pub(super) all: Vec<Arc<Server>>,
    has_resources: AtomicBool,
}

impl ServerSet {
    pub(super) fn new(all: Vec<Arc<Server>>) -> Self {
        Self { all, has_resources: AtomicBool::new(false) }
    }

    /// Records that a server has resources, and returns whether it is the first.
    pub(super) fn begins_with_resources(&self) -> bool {
        !self.has_resources.swap(true, Ordering::AcqRel)
    }

    pub(super) fn named(&self, name: &str) -> Result<Arc<Server>, McpServerError> {
        let by = |is: &dyn Fn(&Server) -> bool| self.all.iter().find(|server| is(server)).cloned();
        by(&|server| server.config.name == name).or_else(|| by(&|server| server.part == name)).ok_or_else(
            || {
                let known = self.all.iter().map(|server| server.name()).collect();
                McpServerError::UnknownServer { name: name.to_owned(), known }
            },
        )
    }

    /// Server, address, name and description of each resource.
    pub(super) async fn resources(&self, server: Option<&str>) -> Result<Vec<[String; 4]>, McpServerError> {
        let servers = match server {
            Some(name) => vec![self.named(name)?],
            None => {
                self.all.iter().filter(|server| server.phase() == ServerState::Connected).cloned().collect()
            }
        };
        let mut rows = Vec::new();
        for server in servers {
            let client = server.client().await?;
            if !client.info.has_resources {
                continue;
            }
            let found = list::resources(&client, server.config.start_timeout).await;
            let found = found.map_err(|error| McpServerError::Call { server: server.name(), error })?;
            rows.extend(found.into_iter().map(|resource| {
                [
                    server.config.name.clone(),
                    resource.uri,
                    resource.name,
                    resource.description.unwrap_or_default(),
                ]
            }));
        }
        Ok(rows)
    }

    pub(super) async fn resource(
        &self,
        server: &str,
        uri: &str,
    ) -> Result<super::content::Content, McpServerError> {
        let server = self.named(server)?;
        let client = server.client().await?;
        let content = list::read_resource(&client, uri, server.config.timeout).await;
        content.map_err(|error| McpServerError::Call { server: server.name(), error })
    }
}

fn typed(name: &str, part: &str) -> String {
    if visible_line(name) == name { name.to_owned() } else { part.to_owned() }
}

impl Server {
    pub(super) fn new(config: ServerConfig) -> Self {
        Self {
            part: server_part(&config.name),
            config,
            now: Mutex::new(Now {
                phase: ServerState::Idle,
                client: None,
                tools: Vec::new(),
                prompts: Vec::new(),
                notes: Vec::new(),
                took: None,
                instructions: String::new(),
                guiding: (PinStatus::New, false),
                seen: BTreeMap::new(),
                seen_instructions: None,
                last_notice: String::new(),
            }),
            moved: watch::channel(0).0,
            again: Notify::new(),
            last: Mutex::default(),
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("no panic while it is held")
    }

    /// The name for a message.
    pub(super) fn name(&self) -> String {
        visible_line(&self.config.name).into_owned()
    }

    /// The name as it can be typed.
    pub(super) fn typed(&self) -> String {
        typed(&self.config.name, &self.part)
    }

    pub(super) fn phase(&self) -> ServerState {
        self.now().phase.clone()
    }

    pub(super) fn set_phase(&self, phase: ServerState) {
        {
            let mut now = self.now();
            if phase != ServerState::Connected {
                now.client = None;
            }
            now.phase = phase;
        }
        self.moved.send_modify(|count| *count += 1);
    }

    /// It can be used from now on.
    pub(super) fn connected(&self, client: Arc<Client>, took: Duration) {
        {
            let mut now = self.now();
            now.client = Some(client);
            now.took = Some(took);
        }
        self.set_phase(ServerState::Connected);
    }

    /// Returns the connection if there is one; waits while it is being made.
    ///
    /// # Errors
    /// The reason there is none.
    pub(super) async fn client(&self) -> Result<Arc<Client>, McpServerError> {
        let mut moved = self.moved.subscribe();
        let wait = async {
            loop {
                {
                    let now = self.now();
                    match (&now.phase, &now.client) {
                        // One that has just ended is about to be replaced.
                        (ServerState::Connected, Some(client)) if !client.ended.is_cancelled() => {
                            return Ok(Arc::clone(client));
                        }
                        (
                            ServerState::Idle
                            | ServerState::Connecting
                            | ServerState::Connected
                            | ServerState::Failed { again: true, .. },
                            _,
                        ) => {}
                        (ServerState::Failed { why, again: false }, _) => {
                            return Err(McpServerError::Unavailable {
                                server: self.name(),
                                why: why.clone(),
                            });
                        }
                        (ServerState::NeedsLogin, _) => {
                            let (server, name) = (self.name(), self.config.name.clone());
                            return Err(McpServerError::NeedsLogin { server, name });
                        }
                        (ServerState::Stopped, _) => {
                            return Err(McpServerError::Stopped { server: self.name() });
                        }
                    }
                }
                if moved.changed().await.is_err() {
                    return Err(McpServerError::Exiting);
                }
            }
        };
        match tokio::time::timeout(self.config.start_timeout, wait).await {
            Ok(found) => found,
            Err(_) => Err(McpServerError::NotConnected { server: self.name(), state: self.state_words() }),
        }
    }

    /// Takes its lists for others than they were.
    pub(super) fn refresh(&self) {
        if let Some(client) = &self.now().client {
            client.shared.note_change();
        }
    }

    pub(super) fn state_words(&self) -> String {
        match self.phase() {
            ServerState::Idle => "it is not started yet".to_owned(),
            ServerState::Connecting => "it is still starting".to_owned(),
            ServerState::Connected => "connected".to_owned(),
            ServerState::Failed { why, .. } => why,
            ServerState::NeedsLogin => needs_login(&self.config.name),
            ServerState::Stopped => "it was stopped".to_owned(),
        }
    }

    /// Returns whether exactly this tool is offered now.
    pub(super) fn offers(&self, name: &str, hash: &str) -> bool {
        self.now()
            .tools
            .iter()
            .any(|(found, _, offered)| *offered && found.name == name && found.hash == hash)
    }

    /// Takes the tools and the instructions that the server has now, compares them with what was agreed to, and offers
    /// those.
    pub(super) fn set_tools(
        self: &Arc<Self>,
        tools: Vec<ServerTool>,
        notes: Vec<String>,
        instructions: &str,
        around: &Surroundings,
    ) {
        let hash = sha256_hex(instructions);
        let scope = self.config.scope.key();
        let filter = &self.config.tools;
        // Servers that a client brings are trusted with its session, and stored nowhere.
        let is_of_client = self.config.scope == ServerScope::Client;
        let pinned = if is_of_client { Ok(None) } else { around.pins.load(&scope, &self.config.name) };
        let agrees = around.agrees_to_all || is_of_client;
        let (mut problem, mut begins) = (None, false);
        let pinned = match pinned {
            // The user's own server was trusted by a version that did not pass instructions on.
            Ok(Some(mut pinned))
                if self.config.scope == ServerScope::User && pinned.instructions.is_none() =>
            {
                pinned.instructions = Some(hash.clone());
                problem = around.pins.save(&scope, &self.config.name, &pinned).err();
                pinned
            }
            // The user was asked about exactly this configuration, before the server ever ran.
            Ok(Some(Pinned { config, first_offer: true, initialize, .. }))
                if config == self.config.digest && !tools.is_empty() =>
            {
                let pinned = self.first_pins(&tools, &hash, initialize);
                match around.pins.save(&scope, &self.config.name, &pinned) {
                    Ok(()) => {
                        begins = true;
                        pinned
                    }
                    // The next start would take other tools for the first ones.
                    Err(why) => {
                        problem = Some(why);
                        Pinned::default()
                    }
                }
            }
            Ok(Some(pinned)) => pinned,
            // The user configured the server: its initial tools are what they wanted.
            Ok(None) if self.config.scope == ServerScope::User => {
                let pinned = self.first_pins(&tools, &hash, None);
                problem = around.pins.save(&scope, &self.config.name, &pinned).err();
                pinned
            }
            Ok(None) => Pinned::default(),
            Err(why) => {
                problem = Some(why);
                Pinned::default()
            }
        };
        // Users may change their own file as they like; a project's file changes with the project.
        let digest = match self.config.scope {
            ServerScope::User => pinned.config.clone(),
            ServerScope::Project(_) | ServerScope::Client => self.config.digest.clone(),
        };
        let mut notes = notes;
        notes.extend(self.disabled(&tools));
        {
            let mut now = self.now();
            now.tools = tools
                .into_iter()
                .filter(|found| filter.allows(&found.name))
                .map(|found| {
                    let standing = pinned.standing(&digest, &found.name, &found.hash);
                    let offered = standing == PinStatus::Agreed || agrees;
                    (found, standing, offered)
                })
                .collect();
            now.notes = notes;
            now.notes.extend(problem.map(|error| error.to_string()));
            let standing = pinned.standing_of_instructions(&digest, &hash);
            now.guiding = (standing, standing == PinStatus::Agreed || agrees);
            instructions.clone_into(&mut now.instructions);
        }
        self.offer(around);
        if begins {
            self.report_first_tools(around);
        }
        self.report_pending_questions(around);
        self.moved.send_modify(|count| *count += 1);
    }

    /// Returns what is stored of the tools and instructions that the server offers first.
    fn first_pins(&self, tools: &[ServerTool], instructions: &str, initialize: Option<String>) -> Pinned {
        Pinned {
            config: self.config.digest.clone(),
            tools: tools.iter().map(|tool| (tool.name.clone(), tool.hash.clone())).collect(),
            instructions: Some(instructions.to_owned()),
            first_offer: false,
            initialize,
        }
    }

    /// Says which tools the user's answer brought: their names were not known when the question was asked.
    fn report_first_tools(&self, around: &Surroundings) {
        let names: Vec<String> = {
            let now = self.now();
            now.tools.iter().map(|(found, ..)| visible_line(&found.name).into_owned()).collect()
        };
        let (shown, rest) = names.split_at(names.len().min(FIRST_SHOWN));
        let rest = match rest.len() {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        let count = counted(names.len(), "tool");
        (around.tell)(format!(
            "MCP server {}: {count} can be used now: {}{rest}; each call asks · /mcp {} shows what they say",
            self.name(),
            shown.join(", "),
            self.typed()
        ));
    }

    /// Describes the tools that the configuration leaves out, and names there that the server does not have.
    fn disabled(&self, tools: &[ServerTool]) -> Vec<String> {
        let filter = &self.config.tools;
        let names = |names: Vec<&str>| names.into_iter().map(visible_line).collect::<Vec<_>>().join(", ");
        let off: Vec<&str> =
            tools.iter().map(|tool| tool.name.as_str()).filter(|name| !filter.allows(name)).collect();
        let named = filter.disabled.iter().chain(filter.enabled.iter().flatten());
        let unknown: Vec<&str> =
            named.map(String::as_str).filter(|name| !tools.iter().any(|tool| tool.name == *name)).collect();
        [
            ("disabled in its configuration", off),
            ("its configuration names tools that it does not have", unknown),
        ]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(what, list)| format!("{what}: {}", names(list)))
        .collect()
    }

    /// Returns whether the server needs `initialize` at once, as a start before this one found out.
    pub(super) fn is_known_to_initialize(&self, around: &Surroundings) -> bool {
        let pinned = around.pins.load(&self.config.scope.key(), &self.config.name);
        matches!(pinned, Ok(Some(Pinned { initialize: Some(digest), .. })) if digest == self.config.digest)
    }

    /// Stores whether the server needs `initialize` at once, so that the next start does not probe it. A server that
    /// nothing else is stored of is not remembered.
    pub(super) fn remember_to_initialize(&self, needs: bool, around: &Surroundings) {
        let (scope, name) = (self.config.scope.key(), &self.config.name);
        let Ok(Some(mut pinned)) = around.pins.load(&scope, name) else { return };
        let initialize = needs.then(|| self.config.digest.clone());
        if pinned.initialize == initialize {
            return;
        }
        pinned.initialize = initialize;
        if let Err(why) = around.pins.save(&scope, name, &pinned) {
            tracing::warn!(server = %self.name(), "{why}");
        }
    }

    fn offer(self: &Arc<Self>, around: &Surroundings) {
        let tools: Vec<Arc<dyn Tool>> = {
            let now = self.now();
            let offered = now.tools.iter().filter(|(_, _, offered)| *offered);
            let tools: Vec<_> = offered
                .map(|(found, _, _)| Arc::new(McpTool::new(self, found, around)) as Arc<dyn Tool>)
                .collect();
            let guides = now.guiding.1 && !tools.is_empty();
            around.guidance.set(&self.part, &self.config.name, guides.then_some(now.instructions.as_str()));
            tools
        };
        (around.offer)(&format!("mcp:{}", self.config.name), tools);
    }

    /// Takes its tools away.
    pub(super) fn withdraw(&self, around: &Surroundings) {
        around.guidance.set(&self.part, &self.config.name, None);
        (around.offer)(&format!("mcp:{}", self.config.name), Vec::new());
    }

    fn report_pending_questions(&self, around: &Surroundings) {
        let mut now = self.now();
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for (found, standing, offered) in &now.tools {
            match standing {
                PinStatus::New if !offered => new.push(found.name.as_str()),
                PinStatus::Changed if !offered => changed.push(found.name.as_str()),
                PinStatus::Agreed | PinStatus::New | PinStatus::Changed => {}
            }
        }
        // If none of a server's tools are trusted yet, its instructions need no separate notice.
        let instructions = match now.guiding {
            (_, true) => None,
            _ if now.instructions.trim().is_empty() => None,
            (PinStatus::New | PinStatus::Agreed, false) if new.len() == now.tools.len() => None,
            (PinStatus::New | PinStatus::Agreed, false) => Some("its instructions are new".to_owned()),
            (PinStatus::Changed, false) => Some("its instructions changed since you trusted them".to_owned()),
        };
        if new.is_empty() && changed.is_empty() && instructions.is_none() {
            now.last_notice.clear();
            return;
        }
        let count = |list: &[&str], one: &str, many: &str| match list {
            [] => None,
            [name] => Some(format!("{} {one}", visible_line(name))),
            list => Some(format!("{} tools {many}", list.len())),
        };
        let what: Vec<String> = [
            count(&new, "is new", "are new"),
            count(&changed, "changed since you trusted it", "changed since you trusted them"),
            instructions,
        ]
        .into_iter()
        .flatten()
        .collect();
        let (name, typed) = (self.name(), self.typed());
        let text = format!(
            "MCP server {name}: {}; not used until trusted: /mcp {typed} shows them, /mcp trust {typed} \
             trusts them",
            what.join(", ")
        );
        if now.last_notice != text {
            now.last_notice.clone_from(&text);
            drop(now);
            (around.tell)(text);
        }
    }

    /// Returns the server as shown to a user. If the view is for consent, records that the user sees the
    /// tools as they are now.
    pub(super) fn view(&self, is_for_consent: bool) -> ServerView {
        let mut now = self.now();
        if is_for_consent {
            now.mark_seen();
        }
        let info = now.client.as_ref().map(|client| client.info.clone()).unwrap_or_default();
        let last = self.last.lock().expect("no panic while it is held").clone();
        ServerView {
            name: self.config.name.clone(),
            typed: self.typed(),
            scope: self.config.scope.clone(),
            place: self.config.place.clone(),
            shown: self.config.shown.clone(),
            phase: now.phase.clone(),
            about: match (info.name.as_str(), info.protocol.as_str()) {
                ("", protocol) => protocol.to_owned(),
                (name, protocol) => format!("{name}, protocol {protocol}"),
            },
            instructions: info.instructions,
            is_guiding: now.guiding.1 && now.tools.iter().any(|(_, _, offered)| *offered),
            tools: now
                .tools
                .iter()
                .map(|(found, standing, offered)| ToolView {
                    id: found.descriptor.id.clone(),
                    name: found.name.clone(),
                    description: found.description.clone(),
                    title: found.title.clone(),
                    hints: found.hints.clone(),
                    schema: found.schema.clone(),
                    standing: *standing,
                    is_offered: *offered,
                })
                .collect(),
            prompts: now.prompts.clone(),
            has_resources: info.has_resources,
            notes: now.notes.clone(),
            lines: last.map(|shared| shared.lines(10)).unwrap_or_default(),
            took: now.took,
            digest: now.digest(),
        }
    }

    /// Agrees to the tools of a view that the user saw, if they are still the same.
    ///
    /// # Errors
    /// Why nothing was agreed to.
    pub(super) fn agree_to(
        self: &Arc<Self>,
        digest: &str,
        around: &Surroundings,
    ) -> Result<String, McpServerError> {
        {
            let mut now = self.now();
            if now.digest() != digest {
                return Err(McpServerError::NotReviewed { server: self.name(), typed: self.typed() });
            }
            now.mark_seen();
        }
        self.agree(around)
    }

    /// Agrees to the tools that were seen and are still the same, from now on.
    ///
    /// # Errors
    /// Why nothing was agreed to.
    pub(super) fn agree(self: &Arc<Self>, around: &Surroundings) -> Result<String, McpServerError> {
        let name = self.name();
        let (agreed, rest, instructions) = {
            let mut now = self.now();
            if now.tools.is_empty() {
                drop(now);
                return Err(McpServerError::NoTools { server: name, state: self.state_words() });
            }
            let seen = now.seen.clone();
            let is_seen = |found: &ServerTool| seen.get(&found.name) == Some(&found.hash);
            let (mut agreed, mut rest) = (BTreeMap::new(), 0);
            for (found, standing, offered) in &mut now.tools {
                if is_seen(found) {
                    agreed.insert(found.name.clone(), found.hash.clone());
                    (*standing, *offered) = (PinStatus::Agreed, true);
                } else if *standing != PinStatus::Agreed {
                    rest += 1;
                }
            }
            let instructions = now.seen_instructions.clone();
            if instructions.as_deref() == Some(&sha256_hex(&now.instructions)) {
                now.guiding = (PinStatus::Agreed, true);
            }
            (agreed, rest, instructions)
        };
        if agreed.is_empty() {
            return Err(McpServerError::NotReviewed { server: name, typed: self.typed() });
        }
        let scope = self.config.scope.key();
        let mut pinned = around.pins.load(&scope, &self.config.name)?.unwrap_or_default();
        if pinned.config != self.config.digest {
            let initialize = pinned.initialize;
            pinned = Pinned { config: self.config.digest.clone(), initialize, ..Pinned::default() };
        }
        pinned.first_offer = false;
        pinned.instructions = instructions.or(pinned.instructions);
        let agreed_count = agreed.len();
        pinned.tools.extend(agreed);
        let kept = around.pins.save(&scope, &self.config.name, &pinned);
        self.offer(around);
        self.moved.send_modify(|count| *count += 1);
        let mut words = format!("{} of {name} can be used now", counted(agreed_count, "tool"));
        if rest > 0 {
            let _ = write!(words, "; {rest} appeared after your review: /mcp {}", self.typed());
        }
        match kept {
            Ok(()) => Ok(words),
            Err(why) => Ok(format!("{words}, until aye exits: {why}")),
        }
    }

    /// Reads the lists of prompts, which nothing depends on.
    pub(super) async fn read_prompts(&self, client: &Client, around: &Surroundings) {
        if !client.info.has_prompts {
            return;
        }
        let prompts = match list::prompts(client, self.config.start_timeout).await {
            Ok(prompts) => prompts,
            Err(why) => {
                tracing::info!(server = %self.name(), "prompts cannot be listed: {why}");
                return;
            }
        };
        let prompts: Vec<PromptView> = prompts
            .into_iter()
            .map(|prompt| PromptView {
                server: self.config.name.clone(),
                description: prompt.description.or(prompt.title).unwrap_or_default(),
                arguments: prompt
                    .arguments
                    .unwrap_or_default()
                    .into_iter()
                    .map(|argument| (argument.name, argument.required == Some(true)))
                    .collect(),
                name: prompt.name,
            })
            .collect();
        let is_other = {
            let mut now = self.now();
            let is_other = now.prompts != prompts;
            now.prompts = prompts;
            is_other
        };
        if is_other {
            (around.prompts_changed)();
        }
    }
}
