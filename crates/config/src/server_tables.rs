//! MCP servers in the text of a settings file: tables are added and removed, and everything else stays as it is.

use std::fmt::Write as _;
use std::path::Path;

use aye_core::contract::display::visible_line;
use serde_json::{Map, Value};

/// Why the settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ServerTableError {
    /// A server of this name is configured.
    #[error("the server `{}` already exists in {file}", visible_line(.name))]
    Exists { name: String, file: String },
    /// The settings are no TOML, or the server has no form in it.
    #[error("{file}: {message}; nothing changed")]
    Invalid { file: String, message: String },
    /// A table cannot be added at the end, or not be removed without a change of others.
    #[error("{file} has a layout that aye cannot {action}; edit it by hand")]
    Layout {
        file: String,
        /// What cannot be done.
        action: &'static str,
    },
}

fn parsed(text: &str, file: &Path) -> Result<toml::Table, ServerTableError> {
    text.parse().map_err(|error: toml::de::Error| invalid(error.message(), file))
}

fn invalid(message: impl ToString, file: &Path) -> ServerTableError {
    ServerTableError::Invalid { file: file.display().to_string(), message: message.to_string() }
}

fn layout(action: &'static str, file: &Path) -> ServerTableError {
    ServerTableError::Layout { file: file.display().to_string(), action }
}

fn names_server(table: &toml::Table, name: &str) -> bool {
    table
        .get("mcp_servers")
        .and_then(|servers| servers.as_table())
        .is_some_and(|servers| servers.contains_key(name))
}

/// Returns the settings with the table of a server added at the end.
///
/// # Errors
/// [`ServerTableError`]; nothing is changed then.
pub fn with_server(
    text: &str,
    name: &str,
    server: &Map<String, Value>,
    file: &Path,
) -> Result<String, ServerTableError> {
    if names_server(&parsed(text, file)?, name) {
        return Err(ServerTableError::Exists { name: name.to_owned(), file: file.display().to_string() });
    }
    let wanted = toml::Value::try_from(server).map_err(|error| invalid(error, file))?;
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
    if written == Some(&wanted) { Ok(new) } else { Err(layout("add to", file)) }
}

/// Returns the settings without a server's tables; `None` if it is not configured.
///
/// # Errors
/// [`ServerTableError`]; nothing is changed then.
pub fn without_server(text: &str, name: &str, file: &Path) -> Result<Option<String>, ServerTableError> {
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
    Err(layout("remove from safely", file))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file() -> &'static Path {
        Path::new("/u/config.toml")
    }

    #[test]
    fn a_server_is_added_and_removed_and_the_rest_is_unchanged() {
        let before = "# mine\nmodel = \"m\"\n\n[tui] # colours\nmouse = true\n";
        let server = json!({"command": "npx", "args": ["-y", "a b"], "env": {"T": "${T}"}});
        let server = server.as_object().expect("an object");
        let after = with_server(before, "my server", server, file()).expect("added");
        assert!(after.starts_with(before), "{after}");
        assert!(after.contains("[mcp_servers.\"my server\"]\ncommand = \"npx\"\n"), "{after}");
        assert!(with_server(&after, "my server", server, file()).is_err(), "it is there already");
        let back = without_server(&after, "my server", file()).expect("read").expect("there");
        assert_eq!(back, before);
        assert_eq!(without_server(before, "my server", file()).expect("read"), None);
    }

    #[test]
    fn a_server_between_others_is_removed_with_its_tables() {
        let text = "[mcp_servers.a]\ncommand = \"a\"\n[mcp_servers.b]\ncommand = \"b\"\n[mcp_servers.b.env]\nX = \"[not a table]\"\n[[x]]\n[mcp_servers.c]\ncommand = \"c\"\n";
        let back = without_server(text, "b", file()).expect("read").expect("there");
        assert_eq!(back, "[mcp_servers.a]\ncommand = \"a\"\n[[x]]\n[mcp_servers.c]\ncommand = \"c\"\n");
    }

    #[test]
    fn a_server_that_cannot_be_removed_safely_is_left_alone() {
        let text = "mcp_servers = {a = {command = \"a\"}}\n";
        assert!(without_server(text, "a", file()).is_err());
        let text = "mcp_servers.a.command = \"a\"\n";
        assert!(without_server(text, "a", file()).is_err());
    }
}
