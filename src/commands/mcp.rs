//! `aye mcp`: MCP servers on the command line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde_json::json;

use crate::cli::shared::JsonFlag;
use crate::cli::start::StartFlags;
use crate::commands::put_json;
use crate::contract::display::{shortened, visible_line};
use crate::contract::server::{ServerConfig, ServerScope};
use crate::failure::Failure;
use crate::mcp::{
    KeepError, Manager, PinStore, Pinned, ServerState, ServerView, Surroundings, login_command, login_state,
};
use crate::program::foundation::Foundation;
pub use crate::program::mcp::edit::{McpAddArgs, McpScope};
pub use crate::program::mcp::login::McpLoginArgs;
use crate::program::mcp::{
    AgreedTools, agreed, edit, find, login, login_name, login_words, servers, show, spawn,
};
use crate::program::programs::ProjectPrograms;
use crate::program::{ask, put, put_stderr};

/// `aye mcp ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  aye mcp add files -- npx -y @modelcontextprotocol/server-filesystem .\n  aye mcp add remote --url https://example.org/mcp --header 'Authorization=Bearer ${TOKEN}'\n  aye mcp test files\n  aye mcp login remote"
)]
pub enum McpCommand {
    /// Serve the agents of this folder as tools over stdin and stdout
    ///
    /// Questions go to the client's user if the client supports that; otherwise the call fails, and the error says how
    /// to answer. `aye serve` offers the same at /v1/mcp.
    Serve,
    /// List the configured servers without starting them
    List(JsonFlag),
    /// Add a server: a program after `--`, or --url
    Add(McpAddArgs),
    /// Remove a server from its settings file
    Remove {
        /// Name of the server
        name: String,
        /// The settings file to remove it from
        #[arg(long, value_enum, default_value_t = McpScope::User)]
        scope: McpScope,
    },
    /// Start one server, show its tools and response time, and stop it
    Test {
        /// Name of the server
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Log in to a server (OAuth) in a browser
    Login(McpLoginArgs),
    /// Log out of a server
    Logout {
        /// Name of the server
        name: String,
    },
    /// Start one server, show its tools in full, and trust them
    Trust {
        /// Name of the server
        name: String,
        /// Trust without asking
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(
    command: McpCommand,
    foundation: &mut Foundation,
    cli: &StartFlags,
) -> Result<u8, Failure> {
    match command {
        // It needs more than the settings, so it is handled earlier.
        McpCommand::Serve => Ok(0),
        McpCommand::List(JsonFlag { json }) => list(json, foundation),
        McpCommand::Add(args) => edit::add(args, foundation),
        McpCommand::Remove { name, scope } => edit::remove(&name, scope, foundation),
        McpCommand::Login(args) => login::login(args, foundation).await,
        McpCommand::Logout { name } => login::logout(&name, foundation).await,
        McpCommand::Test { name, json } => {
            let programs = ProjectPrograms::alone(foundation, cli)?;
            test(&name, json, foundation, &programs).await
        }
        McpCommand::Trust { name, yes } => {
            let programs = ProjectPrograms::alone(foundation, cli)?;
            trust(&name, yes, foundation, &programs).await
        }
    }
}

/// Lists the configured servers. Nothing is started, whatever the files contain.
fn list(is_json: bool, foundation: &Foundation) -> Result<u8, Failure> {
    let found = servers(foundation, true);
    let pins = agreed(foundation);
    let logins = login::logins(foundation);
    let mut rows = Vec::new();
    let mut out = String::new();
    for server in &found.usable {
        let is_project = matches!(server.scope, ServerScope::Project(_));
        let pinned = pins.load(&server.scope.key(), &server.name).ok().flatten();
        let tools = pinned.as_ref().map_or(0, |pinned| pinned.tools.len());
        let login = login_state(server, &logins).map_err(|error| error.to_string());
        let state = if is_project && !foundation.is_trusted {
            "not started: this folder is not trusted".to_owned()
        } else if matches!(login, Ok(Some(login)) if login.needs_login()) {
            format!("needs login: {}", login_command(&server.name))
        } else if tools > 0 {
            format!("{tools} tools trusted")
        } else if is_project {
            "no tool trusted yet".to_owned()
        } else {
            "not used yet".to_owned()
        };
        let login_words = login_words(login.as_ref());
        let _ = writeln!(
            out,
            "{}  {}  {state}{}{}\n  {}",
            visible_line(&server.name),
            server.scope,
            if login_words.is_empty() { "" } else { "; " },
            visible_line(&login_words),
            server.shown
        );
        rows.push(json!({
            "name": server.name,
            "scope": server.scope.to_string(),
            "place": server.place,
            "runs": server.shown,
            "profile": server.profile(),
            "trusted": !is_project || foundation.is_trusted,
            "agreed_tools": tools,
            "login": login.ok().flatten().map(login_name),
        }));
    }
    if is_json {
        put_json(&json!({"servers": rows, "problems": found.problems}))?;
    } else {
        put(&out)?;
        for problem in &found.problems {
            put_stderr(&format!("aye: {problem}"));
        }
    }
    Ok(0)
}

/// The trusted tools, read-only: results do not change them.
struct OnlyRead(AgreedTools);

impl PinStore for OnlyRead {
    fn load(&self, scope: &str, server: &str) -> Result<Option<Pinned>, KeepError> {
        self.0.load(scope, server)
    }

    fn save(&self, _: &str, _: &str, _: &Pinned) -> Result<(), KeepError> {
        Ok(())
    }
}

/// A connection to one server, and nothing else.
async fn connected(
    server: ServerConfig,
    foundation: &Foundation,
    programs: &ProjectPrograms,
    pins: Arc<dyn PinStore>,
) -> Result<(Manager, ServerView), Failure> {
    let name = server.name.clone();
    let limit = server.start_timeout + Duration::from_secs(1);
    let around = Surroundings {
        spawn: spawn(programs, |note| put_stderr(&format!("aye: {note}"))),
        offer: Arc::new(|_, _| {}),
        tell: Arc::new(|_| {}),
        pins,
        logins: Arc::new(login::logins(foundation)),
        agrees_to_all: false,
        prompts_changed: Arc::new(|| {}),
        root: foundation.workspace.root.clone(),
        questions: crate::mcp::Questions::default(),
        guidance: crate::mcp::Guidance::default(),
        clock: Arc::new(crate::contract::clock::SystemClock),
    };
    let (manager, _) = Manager::new(vec![server], around);
    manager.start();
    manager.ready(limit).await;
    let view = manager.look(&name).map_err(Failure::failed)?;
    if view.phase == ServerState::Connected {
        return Ok((manager, view));
    }
    manager.close().await;
    let hint = if view.phase == ServerState::NeedsLogin {
        format!(": {}", login_command(&name))
    } else {
        String::new()
    };
    Err(Failure::failed(format!("{}: {}{hint}", visible_line(&name), show::phase_words(&view.phase))))
}

async fn test(
    name: &str,
    is_json: bool,
    foundation: &Foundation,
    programs: &ProjectPrograms,
) -> Result<u8, Failure> {
    let server = find(name, foundation)?;
    let (manager, _) =
        connected(server, foundation, programs, Arc::new(OnlyRead(agreed(foundation)))).await?;
    let began = Instant::now();
    let resources = manager.resources(Some(name)).await;
    let latency = began.elapsed();
    let view = manager.look(name).map_err(Failure::failed)?;
    manager.close().await;
    if is_json {
        let tools: Vec<_> = view
            .tools
            .iter()
            .map(|tool| json!({"id": tool.id, "name": tool.name, "description": tool.description, "schema": tool.schema}))
            .collect();
        let prompts: Vec<_> =
            view.prompts.iter().map(|p| json!({"name": p.name, "description": p.description})).collect();
        let keys = ["server", "uri", "name", "description"];
        let resources: Vec<BTreeMap<_, _>> = resources
            .unwrap_or_default()
            .into_iter()
            .map(|row| keys.into_iter().zip(row).collect())
            .collect();
        put_json(&json!({
            "name": view.name,
            "about": view.about,
            "connected_after_ms": view.took.map(|took| took.as_millis() as u64),
            "tools": tools,
            "prompts": prompts,
            "resources": resources,
        }))?;
        return Ok(0);
    }
    let mut out = show::details(&view);
    match resources {
        Ok(rows) => {
            for [_, uri, name, description] in rows {
                let short = shortened(&description, 100);
                let _ = writeln!(
                    out,
                    "\nresource {}  {}  {}",
                    visible_line(&uri),
                    visible_line(&name),
                    visible_line(&short)
                );
            }
        }
        Err(why) => {
            let _ = writeln!(out, "\nits resources cannot be listed: {why}");
        }
    }
    if view.has_resources {
        let _ = writeln!(out, "\nit answered after {} ms", latency.as_millis());
    }
    put(&out)?;
    Ok(0)
}

async fn trust(
    name: &str,
    yes: bool,
    foundation: &Foundation,
    programs: &ProjectPrograms,
) -> Result<u8, Failure> {
    let is_terminal = std::io::stdin().is_terminal();
    if !yes && !is_terminal {
        return Err(Failure::usage("stdin is not a terminal; use --yes to trust without a question"));
    }
    let server = find(name, foundation)?;
    let (manager, view) = connected(server, foundation, programs, Arc::new(agreed(foundation))).await?;
    put(&show::details(&view))?;
    if !yes && !ask("\nTrust these tools? Your rules still apply to each call. [y/N] ")? {
        manager.close().await;
        put_stderr("nothing was trusted");
        return Ok(1);
    }
    let agreed = manager.agree(name);
    manager.close().await;
    put(&format!("{}\n", agreed.map_err(Failure::failed)?))?;
    Ok(0)
}
