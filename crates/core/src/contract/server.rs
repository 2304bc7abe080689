//! MCP servers as configured, before any is started or connected.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::address::DomainPattern;
use super::judgement::Profile;

/// Who wrote a server down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerScope {
    /// The person, in the settings.
    User,
    /// The project, in this file: it is started only in a folder that the person trusts.
    Project(PathBuf),
    /// The program that a user opened this session with, such as an editor: it asks for the server in the user's name,
    /// and for this session only.
    Client,
}

impl ServerScope {
    /// The name under which is kept what the person agreed to.
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
    /// What the kernel keeps a program to that is started for it. A user's own is the user's choice.
    pub fn profile(&self) -> Profile {
        match self {
            Self::Project(_) => Profile::Workspace,
            Self::User | Self::Client => Profile::Outside,
        }
    }
}

impl ServerConfig {
    /// What the kernel keeps its program to; `None` where none is started.
    pub fn profile(&self) -> Option<Profile> {
        matches!(self.transport, ServerTransport::Stdio { .. }).then(|| self.scope.profile())
    }
}

/// How a server is reached. Values that may hold secrets do not show in the debug form.
#[derive(Clone, Debug)]
pub enum ServerTransport {
    /// A program that is started and spoken with over its standard input and output.
    Stdio {
        /// The program, looked up in `PATH` when it has no slash.
        command: String,
        /// Its arguments.
        args: Vec<SecretString>,
        /// Variables beside those that every program gets.
        env: BTreeMap<String, SecretString>,
        /// Where it runs.
        cwd: PathBuf,
        /// The domains that it may reach, for a project's: what is written beside it, and agreed to with the rest.
        domains: Vec<DomainPattern>,
    },
    /// A server that answers over streamable HTTP.
    Http {
        /// Its address.
        url: SecretString,
        /// Headers of every request.
        headers: BTreeMap<String, SecretString>,
        /// What a login takes beside what the server says of itself.
        login: LoginConfig,
    },
}

/// What is written down for the login (OAuth) at a server. Without it aye registers itself there.
#[derive(Clone, Debug, Default)]
pub struct LoginConfig {
    /// The name under which aye is known to who gives out the tokens.
    pub client_id: Option<String>,
    /// The word that goes with that name, where there is one.
    pub client_secret: Option<SecretString>,
    /// The port of this machine that the browser comes back to; any free one without it.
    pub port: Option<u16>,
    /// What is asked for, instead of what the server proposes.
    pub scopes: Vec<String>,
    /// How the tokens are obtained.
    pub grant: LoginGrant,
}

/// How the tokens of a server are obtained.
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

/// The URL where a server of the HTTP+SSE transport of 2024 probably speaks streamable HTTP, without its query, which may
/// hold a key.
pub fn streamable_url(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    path.strip_suffix("/sse").map_or_else(|| path.to_owned(), |before| format!("{before}/mcp"))
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its name, as it was written.
    pub name: String,
    /// Who wrote it down.
    pub scope: ServerScope,
    /// Where that stands: file and line.
    pub place: String,
    /// How it is reached.
    pub transport: ServerTransport,
    /// The command line or the address for a person, as it was written: variables by their names, no values of `env`
    /// and `headers`.
    pub shown: String,
    /// SHA-256 of what was written: what a person agreed to is agreed for this text only.
    pub digest: String,
    /// How long a call may take without a word from the server.
    pub timeout: Duration,
    /// How long it may take until it can be used.
    pub start_timeout: Duration,
}
