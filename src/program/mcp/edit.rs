//! Adds and removes servers in the user's settings or in the project's `.mcp.json`.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::cli::{McpAddArgs, McpScope};
use crate::config::{SERVERS_FILE, write_private};
use crate::contract::display::visible_line;
use crate::contract::server::ServerScope;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::put;

const MAX_FILE: u64 = 1 << 20;

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
            write_private(&file, with_table(&text, name, &server, &file)?.as_bytes())
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
            let without = without_table(&text, name, &file)?.ok_or_else(|| not_there(&file))?;
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

/// Writes a file of the project, readable by anyone who can read the project. A temporary file is renamed, so that no
/// partial file is left.
fn write_project(file: &Path, root: &Map<String, Value>) -> Result<(), Failure> {
    let fail =
        |error: std::io::Error| Failure::failed(format!("{} cannot be written: {error}", file.display()));
    let mut text = serde_json::to_string_pretty(root).map_err(Failure::failed)?;
    text.push('\n');
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    std::io::Write::write_all(&mut new, text.as_bytes()).map_err(fail)?;
    use std::os::unix::fs::PermissionsExt as _;
    new.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(fail)?;
    new.persist(file).map_err(|error| fail(error.error))?;
    Ok(())
}

fn parsed(text: &str, file: &Path) -> Result<toml::Table, Failure> {
    text.parse().map_err(|error: toml::de::Error| {
        Failure::failed(format!("{}: {}; nothing changed", file.display(), error.message()))
    })
}

fn names_server(table: &toml::Table, name: &str) -> bool {
    table
        .get("mcp_servers")
        .and_then(|servers| servers.as_table())
        .is_some_and(|servers| servers.contains_key(name))
}

/// Returns the settings with a table added at the end.
fn with_table(text: &str, name: &str, server: &Map<String, Value>, file: &Path) -> Result<String, Failure> {
    if names_server(&parsed(text, file)?, name) {
        return Err(there_already(name, file));
    }
    let wanted = toml::Value::try_from(server).map_err(Failure::failed)?;
    let mut new = text.to_owned();
    if !new.is_empty() {
        new.push_str(if new.ends_with('\n') { "\n" } else { "\n\n" });
    }
    let is_bare = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if is_bare { name.to_owned() } else { toml::Value::from(name).to_string() };
    let _ = writeln!(new, "[mcp_servers.{key}]");
    for (field, value) in server.keys().filter_map(|field| Some((field, wanted.get(field)?))) {
        let _ = writeln!(new, "{field} = {value}");
    }
    let table = parsed(&new, file)?;
    let written = table.get("mcp_servers").and_then(|servers| servers.get(name));
    if written == Some(&wanted) {
        Ok(new)
    } else {
        Err(Failure::failed(format!(
            "{} has a layout that aye cannot add to; edit it by hand",
            file.display()
        )))
    }
}

/// Returns the settings without a server's tables; `None` if it is not configured.
fn without_table(text: &str, name: &str, file: &Path) -> Result<Option<String>, Failure> {
    let mut wanted = parsed(text, file)?;
    if !names_server(&wanted, name) {
        return Ok(None);
    }
    if let Some(servers) = wanted.get_mut("mcp_servers").and_then(|servers| servers.as_table_mut()) {
        servers.remove(name);
        if servers.is_empty() {
            wanted.remove("mcp_servers");
        }
    }
    let is_of_server = |line: &str| -> Option<bool> {
        let header = line.trim_start();
        if !header.starts_with('[') || header.starts_with("[[") {
            return header.starts_with("[[").then_some(false);
        }
        // A table header alone is a valid file.
        let table: toml::Table = header.parse().ok()?;
        Some(names_server(&table, name))
    };
    let (mut kept, mut is_inside) = (String::new(), false);
    for line in text.split_inclusive('\n') {
        if let Some(is_its) = is_of_server(line) {
            is_inside = is_its;
        }
        if !is_inside {
            kept.push_str(line);
        }
    }
    if parsed(&kept, file)? == wanted {
        let kept = kept.trim_end();
        return Ok(Some(if kept.is_empty() { String::new() } else { format!("{kept}\n") }));
    }
    Err(Failure::failed(format!(
        "{} has a layout that aye cannot remove from safely; edit it by hand",
        file.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> &'static Path {
        Path::new("/u/config.toml")
    }

    #[test]
    fn a_server_is_added_and_removed_and_the_rest_is_unchanged() {
        let before = "# mine\nmodel = \"m\"\n\n[tui] # colours\nmouse = true\n";
        let server = json!({"command": "npx", "args": ["-y", "a b"], "env": {"T": "${T}"}});
        let server = server.as_object().expect("an object");
        let after = with_table(before, "my server", server, file()).expect("added");
        assert!(after.starts_with(before), "{after}");
        assert!(after.contains("[mcp_servers.\"my server\"]\ncommand = \"npx\"\n"), "{after}");
        assert!(with_table(&after, "my server", server, file()).is_err(), "it is there already");
        let back = without_table(&after, "my server", file()).expect("read").expect("there");
        assert_eq!(back, before);
        assert_eq!(without_table(before, "my server", file()).expect("read"), None);
    }

    #[test]
    fn a_server_between_others_is_removed_with_its_tables() {
        let text = "[mcp_servers.a]\ncommand = \"a\"\n[mcp_servers.b]\ncommand = \"b\"\n[mcp_servers.b.env]\nX = \"[not a table]\"\n[[x]]\n[mcp_servers.c]\ncommand = \"c\"\n";
        let back = without_table(text, "b", file()).expect("read").expect("there");
        assert_eq!(back, "[mcp_servers.a]\ncommand = \"a\"\n[[x]]\n[mcp_servers.c]\ncommand = \"c\"\n");
    }

    #[test]
    fn a_server_that_cannot_be_removed_safely_is_left_alone() {
        let text = "mcp_servers = {a = {command = \"a\"}}\n";
        assert!(without_table(text, "a", file()).is_err());
        let text = "mcp_servers.a.command = \"a\"\n";
        assert!(without_table(text, "a", file()).is_err());
    }
}
