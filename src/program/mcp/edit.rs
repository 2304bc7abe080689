//! Adds and removes servers in the user's settings or in the project's `.mcp.json`.

use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use crate::config::{SERVERS_FILE, ServerTableError, with_server, without_server, write_private};
use crate::contract::display::visible_line;
use crate::contract::server::ServerScope;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::{put, write_shared};

const MAX_FILE: u64 = 1 << 20;

/// `aye mcp add ...`
#[derive(Args, Clone, Debug)]
pub struct McpAddArgs {
    /// Name of the server; becomes part of its tools' names
    pub name: String,
    /// The URL of a running server
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub url: Option<String>,
    /// A header of each request; ${NAME} inserts an environment variable
    #[arg(long = "header", value_name = "NAME=TEXT", requires = "url")]
    pub headers: Vec<String>,
    /// An environment variable for the program; ${NAME} inserts one of yours
    #[arg(long = "env", value_name = "NAME=TEXT", requires = "command")]
    pub env: Vec<String>,
    /// The file to write: your settings, or the project's .mcp.json
    #[arg(long, value_enum, default_value_t = McpScope::User)]
    pub scope: McpScope,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "url")]
    pub command: Vec<String>,
}

/// The file of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum McpScope {
    /// The user's settings.
    User,
    /// The project's `.mcp.json`.
    Project,
}

fn pairs(texts: &[String], flag: &str) -> Result<Map<String, Value>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.into())),
        Some(_) | None => {
            Err(Failure::usage(format!("invalid {flag} {}; expected NAME=TEXT", visible_line(text))))
        }
    };
    texts.iter().map(pair).collect()
}

pub(crate) fn add(args: McpAddArgs, foundation: &Foundation) -> Result<u8, Failure> {
    let name = args.name.trim();
    if name.is_empty() || name.chars().count() > 64 || name.chars().any(char::is_control) {
        return Err(Failure::usage(
            "invalid server name; expected 1 to 64 characters without control characters",
        ));
    }
    let (env, headers) = (pairs(&args.env, "--env")?, pairs(&args.headers, "--header")?);
    let mut server = Map::new();
    if let Some(url) = &args.url {
        if !(url.starts_with("https://") || url.starts_with("http://")) {
            return Err(Failure::usage("--url must start with https:// or http://"));
        }
        if args.scope == McpScope::Project {
            server.insert("type".into(), "http".into());
        }
        server.insert("url".into(), url.as_str().into());
        if !headers.is_empty() {
            server.insert("headers".into(), headers.into());
        }
    } else {
        let (program, rest) =
            args.command.split_first().ok_or_else(|| Failure::usage("no command after --"))?;
        server.insert("command".into(), program.as_str().into());
        if !rest.is_empty() {
            server.insert("args".into(), json!(rest));
        }
        if !env.is_empty() {
            server.insert("env".into(), env.into());
        }
    }
    let file = match args.scope {
        McpScope::User => {
            let file = foundation.paths.config_file();
            let text = read(&file)?;
            write_private(&file, with_server(&text, name, &server, &file).map_err(failure)?.as_bytes())
                .map_err(Failure::failed)?;
            file
        }
        McpScope::Project => {
            let file = foundation.workspace.root.join(SERVERS_FILE);
            let mut root = project_root(&file)?;
            let servers = servers_of(&mut root, &file)?;
            if servers.contains_key(name) {
                return Err(there_already(name, &file));
            }
            servers.insert(name.to_owned(), Value::Object(server));
            write_project(&file, &root)?;
            file
        }
    };
    put(&format!(
        "written to {}; `aye mcp test {}` tries it\n",
        foundation.paths.display(&file),
        visible_line(name)
    ))?;
    Ok(0)
}

pub(crate) fn remove(name: &str, scope: McpScope, foundation: &Foundation) -> Result<u8, Failure> {
    let not_there =
        |file: &Path| Failure::usage(format!("no server `{}` in {}", visible_line(name), file.display()));
    let file = match scope {
        McpScope::User => {
            let file = foundation.paths.config_file();
            let text = read(&file)?;
            let without =
                without_server(&text, name, &file).map_err(failure)?.ok_or_else(|| not_there(&file))?;
            write_private(&file, without.as_bytes()).map_err(Failure::failed)?;
            super::login::forget_of(&ServerScope::User, name, foundation)?;
            file
        }
        McpScope::Project => {
            let file = foundation.workspace.root.join(SERVERS_FILE);
            let mut root = project_root(&file)?;
            servers_of(&mut root, &file)?.shift_remove(name).ok_or_else(|| not_there(&file))?;
            write_project(&file, &root)?;
            super::login::forget_of(&ServerScope::Project(file.clone()), name, foundation)?;
            file
        }
    };
    put(&format!("removed from {}\n", foundation.paths.display(&file)))?;
    Ok(0)
}

fn failure(error: ServerTableError) -> Failure {
    match error {
        ServerTableError::Exists { .. } => Failure::usage(error),
        _ => Failure::failed(error),
    }
}

fn there_already(name: &str, file: &Path) -> Failure {
    Failure::usage(format!("the server `{}` already exists in {}", visible_line(name), file.display()))
}

fn read(file: &Path) -> Result<String, Failure> {
    let text = crate::config::read_private(file, MAX_FILE);
    Ok(text.map_err(|why| Failure::failed(format!("{} {why}", file.display())))?.unwrap_or_default())
}

fn project_root(file: &Path) -> Result<Map<String, Value>, Failure> {
    let text = read(file)?;
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(&text)
        .map_err(|error| Failure::failed(format!("{}: {error}; nothing changed", file.display())))
}

fn servers_of<'a>(
    root: &'a mut Map<String, Value>,
    file: &Path,
) -> Result<&'a mut Map<String, Value>, Failure> {
    let servers = root.entry("mcpServers").or_insert_with(|| json!({}));
    let why = format!("{}: `mcpServers` must be an object; nothing changed", file.display());
    servers.as_object_mut().ok_or_else(|| Failure::failed(why))
}

fn write_project(file: &Path, root: &Map<String, Value>) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(root).map_err(Failure::failed)?;
    write_shared(file, &(text + "\n"))
}
