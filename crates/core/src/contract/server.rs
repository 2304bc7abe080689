//! MCP servers as configured, before any is started or connected.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::address::DomainPattern;
use super::judgement::Profile;

/// The source of a server's configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerScope {
    /// The user, in the settings.
    User,
    /// The project, in this file: the server is started only in a folder that the user trusts.
    Project(PathBuf),
    /// The program that a user opened this session with, such as an editor: it asks for the server in the user's name,
    /// and for this session only.
    Client,
}

impl ServerScope {
    /// Returns the key under which the user's trust is stored.
    pub fn key(&self) -> String {
        match self {
            Self::User => "user".to_owned(),
            Self::Project(file) => file.to_string_lossy().into_owned(),
            Self::Client => "client".to_owned(),
        }
    }
}

impl fmt::Display for ServerScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Project(_) => "project",
            Self::Client => "client",
        })
    }
}

impl ServerScope {
    /// Returns the profile that the kernel enforces on a program started for the server. A user's own server
    /// is the user's choice.
    pub fn profile(&self) -> Profile {
        match self {
            Self::Project(_) => Profile::Workspace,
            Self::User | Self::Client => Profile::Outside,
        }
    }
}

impl ServerConfig {
    /// Returns the profile that the kernel enforces on the server's program; `None` if no program is started.
    pub fn profile(&self) -> Option<Profile> {
        matches!(self.transport, ServerTransport::Stdio { .. }).then(|| self.scope.profile())
    }
}

/// The transport of a server. The debug form hides values that may be secrets.
#[derive(Clone, Debug)]
pub enum ServerTransport {
    /// A program that is started and spoken with over its standard input and output.
    Stdio {
        /// The program, looked up in `PATH` when it has no slash.
        command: String,
        args: Vec<SecretString>,
        /// Variables beside those that every program gets.
        env: BTreeMap<String, SecretString>,
        cwd: PathBuf,
        /// The domains that it may reach, for a project's: what is written beside it, and agreed to with the rest.
        domains: Vec<DomainPattern>,
    },
    /// A server that answers over streamable HTTP.
    Http {
        url: SecretString,
        /// Headers of every request.
        headers: BTreeMap<String, SecretString>,
        /// The login settings that the server itself does not provide.
        login: LoginConfig,
    },
}

/// The configured login (OAuth) at a server. Without a configured login, aye registers itself there.
#[derive(Clone, Debug, Default)]
pub struct LoginConfig {
    /// The name under which aye is known to who gives out the tokens.
    pub client_id: Option<String>,
    /// The secret that belongs to the client id, if there is one.
    pub client_secret: Option<SecretString>,
    /// The port of this machine that the browser comes back to; any free one without it.
    pub port: Option<u16>,
    /// The scopes to request, instead of those that the server proposes.
    pub scopes: Vec<String>,
    /// The grant for obtaining tokens.
    pub grant: LoginGrant,
}

/// The grant for obtaining the tokens of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginGrant {
    /// A user logs in with a browser.
    #[default]
    AuthorizationCode,
    /// The client id and its secret are the login; no user is involved, as in CI.
    ClientCredentials,
}

impl LoginGrant {
    /// The names of the grants, as OAuth has them.
    pub const WORDS: [(&'static str, Self); 2] =
        [("authorization_code", Self::AuthorizationCode), ("client_credentials", Self::ClientCredentials)];
}

/// A revision of the protocol that a connection can be opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolRevision {
    /// With the handshake `initialize`.
    V2024_11_05,
    /// With the handshake `initialize`.
    V2025_03_26,
    /// With the handshake `initialize`.
    V2025_06_18,
    /// The last one with the handshake `initialize`.
    V2025_11_25,
    /// Without a handshake: `server/discover`, and requests that carry their own context.
    V2026_07_28,
}

impl ProtocolRevision {
    /// The names of the revisions, as the protocol has them.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("2024-11-05", Self::V2024_11_05),
        ("2025-03-26", Self::V2025_03_26),
        ("2025-06-18", Self::V2025_06_18),
        ("2025-11-25", Self::V2025_11_25),
        ("2026-07-28", Self::V2026_07_28),
    ];
}

/// The tools of a server that are used, by the names that the server gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Only these; `None` means all.
    pub enabled: Option<Vec<String>>,
    pub disabled: Vec<String>,
}

impl ToolFilter {
    /// Returns whether a tool is used.
    pub fn allows(&self, tool: &str) -> bool {
        let names = |list: &[String]| list.iter().any(|name| name == tool);
        !names(&self.disabled) && self.enabled.as_deref().is_none_or(names)
    }
}

/// The URL where a server of the HTTP+SSE transport of 2024 probably speaks streamable HTTP, without its query, which may
/// hold a key.
pub fn streamable_url(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    match path.rsplit_once('/') {
        Some((before, last)) if last.eq_ignore_ascii_case("sse") => format!("{before}/mcp"),
        _ => path.to_owned(),
    }
}

#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its name, as it was written.
    pub name: String,
    /// The source of the configuration.
    pub scope: ServerScope,
    /// The location of the configuration: file and line.
    pub place: String,
    /// The transport of the server.
    pub transport: ServerTransport,
    /// The command line or the URL for display, as configured: variables by their names, no values of `env`
    /// and `headers`.
    pub shown: String,
    /// The SHA-256 of the configuration: trust applies only to exactly this text.
    pub digest: String,
    /// The time a call may take without a message from the server.
    pub timeout: Duration,
    /// The time the server may take to become usable.
    pub start_timeout: Duration,
    /// The revision of the protocol to offer; `None` offers the newest, and then what the server knows.
    pub revision: Option<ProtocolRevision>,
    /// The tools that are used.
    pub tools: ToolFilter,
}
