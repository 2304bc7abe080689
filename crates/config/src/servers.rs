//! Tool servers: the `.mcp.json` of a project and `[mcp_servers]` of the settings, as values. Nothing is started here.

mod file;
mod variables;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use aye_core::contract::display::visible_line;
use aye_core::contract::server::{ServerConfig, ServerScope};

use super::env::Env;
use super::layer::Origin;
use super::layers::Provenance;
use super::paths::read_private;
use super::plugin_folders::PluginFolder;
use super::settings::{McpSettings, ServerSettings};
use file::{bad_name, not_one_way, parse};
use written::{Written, WrongServer};

pub use variables::{UnsetVariable, fill_variables};
pub use written::OfferedServer;

/// The file of a project that names servers.
pub const SERVERS_FILE: &str = ".mcp.json";
const MAX_FILE: u64 = 1 << 20;

/// The servers that can be used, and why others cannot.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    /// The user's own servers first, then the project's; each group by name.
    pub usable: Vec<ServerConfig>,
    /// One sentence each, with the file and line.
    pub problems: Vec<String>,
}

/// The `.mcp.json` files that count for a folder: its own first, then those above it up to the repository's root.
pub fn server_files(cwd: &Path, root: &Path) -> Vec<PathBuf> {
    cwd.ancestors()
        .take_while(|level| level.starts_with(root))
        .map(|level| level.join(SERVERS_FILE))
        .collect()
}

/// Loads all servers: the user's own and, in a trusted folder, those of the project. Starts none of them.
///
/// `project` contains the files of [`server_files`], or nothing in an untrusted folder.
pub fn load_servers(
    settings: &BTreeMap<String, ServerSettings>,
    defaults: &McpSettings,
    provenance: &Provenance,
    user_file: &Path,
    project: &[PathBuf],
    cwd: &Path,
    env: &Env,
) -> Servers {
    let mut servers = Servers::default();
    let mut known = BTreeSet::new();
    for (name, entry) in settings {
        let origin = provenance.origin_of_table(&["mcp_servers", name]);
        let place = origin.map(ToString::to_string).unwrap_or_default();
        let scope = match origin {
            Some(Origin::File { path, .. }) if path != user_file => ServerScope::Project(path.clone()),
            Some(Origin::Default | Origin::File { .. } | Origin::Env(_) | Origin::Flag(_)) | None => {
                ServerScope::User
            }
        };
        known.insert(name.clone());
        if !entry.enabled {
            continue;
        }
        let written =
            Written { name: name.clone(), place: place.clone(), domains: Vec::new(), entry: entry.clone() };
        match bad_name(name).or_else(|| not_one_way(entry)) {
            None => servers.take(written.resolve(scope, cwd, env, defaults)),
            Some(why) => servers
                .problems
                .push(format!("{place}: {why}; the server `{}` is not started", visible_line(name))),
        }
    }
    for file in project {
        let folder = file.parent().unwrap_or(cwd);
        for server in servers.written_in(file) {
            if !known.insert(server.name.clone()) {
                servers.problems.push(format!(
                    "{}: the server `{}` is not started: another server of this name has precedence",
                    server.place,
                    visible_line(&server.name)
                ));
            } else if server.entry.enabled {
                servers.take(server.resolve(ServerScope::Project(file.clone()), folder, env, defaults));
            }
        }
    }
    servers
}

/// Loads the servers of a file in the format of [`SERVERS_FILE`] that the user names for this session. Starts none of
/// them. `cwd` is the folder that they start in.
pub fn load_session_servers(file: &Path, defaults: &McpSettings, cwd: &Path, env: &Env) -> Servers {
    let mut servers = Servers::default();
    for server in servers.written_in(file) {
        if server.entry.enabled {
            servers.take(server.resolve(ServerScope::Client, cwd, env, defaults));
        }
    }
    servers
}

/// Adds the servers of the user's plugins. A name that is taken stays that of the other server.
pub fn add_plugin_servers(
    servers: &mut Servers,
    plugins: &[PluginFolder],
    settings: &BTreeMap<String, ServerSettings>,
    defaults: &McpSettings,
    cwd: &Path,
    env: &Env,
) {
    for plugin in plugins {
        let env = env.with_var("CLAUDE_PLUGIN_ROOT", &plugin.dir.to_string_lossy());
        for server in plugin.servers.iter().flat_map(|file| servers.written_in(file)).collect::<Vec<_>>() {
            let is_taken = settings.contains_key(&server.name)
                || servers.usable.iter().any(|known| known.name == server.name);
            if is_taken {
                servers.problems.push(format!(
                    "{}: the server `{}` is not started: another server of this name has precedence",
                    server.place,
                    visible_line(&server.name)
                ));
            } else if server.entry.enabled {
                servers.take(server.resolve(ServerScope::User, cwd, &env, defaults));
            }
        }
    }
}

impl Servers {
    /// Reads the entries of a file and notes its problems; a missing file has none of either.
    fn written_in(&mut self, file: &Path) -> Vec<Written> {
        match read_private(file, MAX_FILE) {
            Ok(Some(text)) => {
                let (written, problems) = parse(file, &text);
                self.problems.extend(problems);
                written
            }
            Ok(None) => Vec::new(),
            Err(error) => {
                self.problems.push(format!("{}: {error}", error.origin(file)));
                Vec::new()
            }
        }
    }

    fn take(&mut self, server: Result<ServerConfig, WrongServer>) {
        match server {
            Ok(server) => self.usable.push(server),
            Err(why) => self.problems.push(why.to_string()),
        }
    }
}

/// Returns the servers that a project's `.mcp.json` would start or reach, and how many of its entries cannot be read.
pub(super) fn offered(path: &Path, text: &str) -> (Vec<OfferedServer>, usize) {
    let (servers, problems) = parse(path, text);
    let enabled = servers.iter().filter(|server| server.entry.enabled);
    (enabled.map(Written::offered).collect(), problems.len())
}

#[cfg(test)]
mod tests;
