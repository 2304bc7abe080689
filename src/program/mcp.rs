//! MCP servers in the program: from configuration to connections, trust, and the page of `/mcp`.

mod attach;
mod describe;
mod doctor;
pub(crate) mod edit;
mod inside;
pub(crate) mod login;
mod logins;
mod plugin;
pub(crate) mod show;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use attach::{commands, complete, prompt, resources};
pub(crate) use describe::{agreed, find, login_name, login_words};
pub(crate) use doctor::{ServerRow, lines, rows};
pub(crate) use plugin::{ElicitationPlugin, MCP_PLUGIN, McpLinks};
pub(crate) use show::page;

use crate::cli::start::StartFlags;
use crate::config::{
    ReadTextError, Servers, add_plugin_servers, load_servers, read_private, server_files, write_private,
};
use crate::contract::clock::SystemClock;
use crate::contract::display::visible_line;
use crate::contract::server::ServerScope;
use crate::contract::tool::SpawnContext;
use crate::mcp::{KeepError, Manager, PinStore, Pinned, ServerLaunch, ServerProgram, Surroundings};
use crate::plugins::permission::Permissions;
use crate::program::foundation::Foundation;
use crate::program::permit::GateKind;
use crate::program::programs::ProjectPrograms;
use crate::runtime::AgentRuntime;
use crate::tools;
use crate::tools::exec::ExecRequest;

/// The maximum number of pending messages.
const MAX_UNHEARD: usize = 50;

/// The servers of an app.
pub(crate) struct Mcp {
    pub(crate) manager: Arc<Manager>,
    notices: Arc<PendingNotices>,
    begun: inside::Begun,
    changed: Changed,
    wait: Duration,
    first_start: plugin::ServerStart,
}

/// The callback for changes to the prompts of servers.
type Changed = Arc<Mutex<Option<Box<dyn Fn() + Send + Sync>>>>;

type Listener = Box<dyn Fn(String) + Send + Sync>;

/// Messages of servers to the user, stored until a listener is set.
#[derive(Default)]
struct PendingNotices {
    state: Mutex<(Vec<String>, Option<Listener>)>,
}

impl PendingNotices {
    fn report(&self, text: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.1 {
            Some(listener) => listener(text),
            None if state.0.len() < MAX_UNHEARD => state.0.push(text),
            None => {}
        }
    }

    fn listen(&self, listener: Listener) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for text in state.0.drain(..) {
            listener(text);
        }
        state.1 = Some(listener);
    }
}

impl Mcp {
    /// Creates the list of usable servers, and returns what is wrong with the others. Nothing is started.
    pub(crate) fn new(
        foundation: &Foundation,
        cli: &StartFlags,
        runtime: &AgentRuntime,
        permission: &Permissions,
        links: &McpLinks,
        programs: &ProjectPrograms,
    ) -> (Self, Vec<String>) {
        let servers = servers(foundation, foundation.is_trusted);
        let mut warnings = servers.problems;
        // The client's servers come first: of two with the same name, the session asked for this one.
        let usable = foundation.client_servers.iter().cloned().chain(servers.usable).collect();
        let notices = Arc::new(PendingNotices::default());
        let changed: Changed = Arc::default();
        let offer = {
            let (runtime, permission) = (runtime.clone(), permission.clone());
            let one_at_a_time = Mutex::new(());
            Arc::new(move |source: &str, tools: Vec<Arc<dyn crate::contract::tool::Tool>>| {
                let _held = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
                runtime.set_tools(source, tools);
                permission.set_tools(runtime.catalog().tool_ids().map(str::to_owned).collect());
            })
        };
        let around = Surroundings {
            spawn: {
                let notices = Arc::clone(&notices);
                spawn(programs, move |note| notices.report(note))
            },
            offer,
            tell: {
                let notices = Arc::clone(&notices);
                Arc::new(move |text| notices.report(text))
            },
            pins: Arc::new(AgreedTools {
                path: foundation.paths.agreed_tools_file(),
                is_kept: !foundation.is_ephemeral,
            }),
            logins: Arc::new(login::logins(foundation)),
            agrees_to_all: cli.global.trust,
            prompts_changed: {
                let changed = Arc::clone(&changed);
                Arc::new(move || {
                    if let Some(listener) = changed.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                        listener();
                    }
                })
            },
            root: foundation.workspace.root.clone(),
            questions: links.questions.clone(),
            guidance: links.guidance.clone(),
            clock: Arc::new(SystemClock),
        };
        let (manager, problems) = Manager::new(usable, around);
        warnings.extend(problems);
        let manager = Arc::new(manager);
        let wait = foundation.loaded.settings.mcp.wait;
        links.first_start.set(&manager, wait);
        let mcp = Self {
            manager,
            notices,
            begun: inside::Begun::default(),
            changed,
            wait,
            first_start: links.first_start.clone(),
        };
        (mcp, warnings)
    }

    /// Starts the servers and forwards their messages.
    pub(crate) fn start(&self, listener: impl Fn(String) + Send + Sync + 'static) {
        if self.manager.is_empty() {
            return;
        }
        self.notices.listen(Box::new(listener));
        self.manager.start();
    }

    /// Sets the callback for changes to the prompts of servers.
    pub(crate) fn on_prompts(&self, listener: impl Fn() + Send + Sync + 'static) {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(listener));
    }

    /// Starts the servers and waits briefly for them: a headless run cannot use them later.
    pub(crate) async fn ready(&self) {
        self.start(|text| crate::program::put_stderr(&format!("aye: {text}")));
        let late = self.manager.ready(self.wait).await;
        self.first_start.is_over();
        if !late.is_empty() {
            crate::program::put_stderr(&format!(
                "aye: MCP servers not ready after {} s, the run starts without them: {} (mcp.wait)",
                self.wait.as_secs_f64(),
                late.join(", ")
            ));
        }
    }

    /// Waits briefly for servers that are being started.
    pub(crate) async fn settled(&self) {
        let _ = self.manager.ready(self.wait).await;
    }

    /// Does the same as [`Mcp::ready`] where nobody reads stderr.
    pub(crate) async fn ready_quietly(&self) {
        self.manager.start();
        let _ = self.manager.ready(self.wait).await;
        self.first_start.is_over();
    }
}

/// Returns all configured servers; those of the project only if the folder is trusted or the servers are only
/// listed.
pub(crate) fn servers(foundation: &Foundation, with_project: bool) -> Servers {
    if foundation.is_bare {
        return Servers::default();
    }
    let workspace = &foundation.workspace;
    // A gate has its own server and no other.
    let with_project = with_project && foundation.gate == GateKind::None;
    let files = if with_project { server_files(&workspace.cwd, &workspace.root) } else { Vec::new() };
    let settings = &foundation.loaded.settings;
    let mut servers = load_servers(
        &settings.mcp_servers,
        &settings.mcp,
        &foundation.loaded.provenance,
        &foundation.paths.config_file(),
        &files,
        &workspace.cwd,
        &foundation.env,
    );
    if foundation.gate != GateKind::None {
        return servers;
    }
    add_plugin_servers(
        &mut servers,
        &foundation.plugins,
        &settings.mcp_servers,
        &settings.mcp,
        &workspace.cwd,
        &foundation.env,
    );
    servers
}

/// Stores that the user agreed to use the servers that the trust question showed, with the tools that each offers first.
///
/// # Errors
/// Why it is not stored: nothing may be trusted then.
pub(crate) fn agree_to_shown(foundation: &Foundation) -> Result<(), KeepError> {
    let pins = agreed(foundation);
    for item in &foundation.untrusted {
        let scope = ServerScope::Project(item.path.clone()).key();
        for server in &item.servers {
            let before = pins.load(&scope, &server.name)?;
            let next = Pinned::with_first_offer(before, &server.digest);
            pins.save(&scope, &server.name, &next)?;
        }
    }
    Ok(())
}

/// Starts servers as commands are started: below a supervisor, without the keys of models, those of a project in the
/// sandbox. `report` receives their changes to protected files when they end.
pub(crate) fn spawn(
    programs: &ProjectPrograms,
    report: impl Fn(String) + Clone + Send + Sync + 'static,
) -> crate::mcp::Spawn {
    let programs = programs.clone();
    Arc::new(move |launch: ServerLaunch| {
        let (programs, report) = (programs.clone(), report.clone());
        Box::pin(async move {
            let env = &programs.env;
            let request = ExecRequest {
                program: launch.program.into(),
                args: launch.args,
                cwd: launch.cwd,
                env: env.env_in(Some(launch.profile), launch.env),
                timeout: Duration::MAX,
                max_output: 0,
                output_dir: None,
                on_behalf: SpawnContext::default(),
                launcher: None,
                limits: None,
                frozen: None,
            };
            let (request, kept) = programs.confine(request, launch.profile, &launch.domains).await?;
            let name = launch.name;
            let kept =
                kept.reported(move |note| report(format!("MCP server {}: {note}", visible_line(&name))));
            let ExecRequest { program, args, cwd, env: variables, .. } = request;
            Ok(ServerProgram {
                command: tools::exec::server_command(&env.exec, &program, args, &cwd, &variables),
                is_supervised: env.exec.supervisor.is_some(),
                kept: Box::new(kept),
            })
        })
    })
}

const FORMAT: u32 = 1;
const MAX_FILE: u64 = 16 << 20;

/// The agreed tools: one private file next to the list of trusted folders.
pub(crate) struct AgreedTools {
    path: PathBuf,
    is_kept: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AgreedFile {
    format: u32,
    /// The key: who configured the server, then its name.
    servers: BTreeMap<String, BTreeMap<String, Pinned>>,
}

/// Why the file is not used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}; until this is fixed, no tool of an MCP server is used", path.display())]
struct AgreedFileError {
    path: PathBuf,
    what: AgreedFileFault,
}

#[derive(Debug, thiserror::Error)]
enum AgreedFileFault {
    #[error("{0}")]
    Unreadable(ReadTextError),
    #[error("is not a list of trusted tools: {0}")]
    NotAList(serde_json::Error),
    #[error("was written by another version")]
    OtherVersion,
}

impl AgreedTools {
    fn read(&self) -> Result<AgreedFile, AgreedFileError> {
        let fail = |what| AgreedFileError { path: self.path.clone(), what };
        let text =
            read_private(&self.path, MAX_FILE).map_err(|error| fail(AgreedFileFault::Unreadable(error)))?;
        let Some(text) = text else { return Ok(AgreedFile { format: FORMAT, servers: BTreeMap::new() }) };
        let file: AgreedFile =
            serde_json::from_str(&text).map_err(|error| fail(AgreedFileFault::NotAList(error)))?;
        if file.format == FORMAT { Ok(file) } else { Err(fail(AgreedFileFault::OtherVersion)) }
    }
}

impl PinStore for AgreedTools {
    fn load(&self, scope: &str, server: &str) -> Result<Option<Pinned>, KeepError> {
        let mut file = self.read().map_err(|error| KeepError::Unreadable(error.into()))?;
        Ok(file.servers.remove(scope).and_then(|mut servers| servers.remove(server)))
    }

    fn save(&self, scope: &str, server: &str, pinned: &Pinned) -> Result<(), KeepError> {
        if !self.is_kept {
            return Ok(());
        }
        let mut file = self.read().map_err(|error| KeepError::Unreadable(error.into()))?;
        file.servers.entry(scope.to_owned()).or_default().insert(server.to_owned(), pinned.clone());
        let text = serde_json::to_vec_pretty(&file).map_err(|e| KeepError::NotWritten(e.into()))?;
        write_private(&self.path, &text).map_err(|e| KeepError::NotWritten(e.into()))
    }
}
