//! Tool servers: the `.mcp.json` of a project and `[mcp_servers]` of the settings, as values. Nothing is started here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::env::Env;
use super::layer::{Origin, line_column};
use super::layers::Provenance;
use super::paths::read_private;
use super::redact::{arguments, without_password};
use super::settings::{McpSettings, ServerSettings};
use aye_core::contract::address::DomainPattern;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::display::{shell_word, visible_line};
use aye_core::contract::server::{
    LoginConfig, LoginGrant, ServerConfig, ServerScope, ServerTransport, streamable_url,
};

/// The file of a project that names servers.
pub const SERVERS_FILE: &str = ".mcp.json";
const MAX_FILE: u64 = 1 << 20;
const MAX_SERVERS: usize = 100;

/// The servers that can be used, and why others cannot.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    /// The user's own servers first, then the project's; each group by name.
    pub usable: Vec<ServerConfig>,
    /// One sentence each, with the file and line.
    pub problems: Vec<String>,
}

/// A server's entry in one file, before variables are expanded.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    pub name: String,
    pub place: String,
    pub command: Option<String>,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub domains: Vec<DomainPattern>,
    pub url: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub login: WrittenLogin,
    pub timeout: Option<Duration>,
    pub start_timeout: Option<Duration>,
    pub disabled: bool,
}

/// The login part of a server's entry in one file.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenLogin {
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    pub port: Option<u64>,
    pub scopes: Vec<String>,
    pub grant: Option<String>,
}

/// The pairs of a JSON object in their order, the same key twice included.
struct Pairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    pairs.push((Cow::Owned(key), value));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// A text and its file, for reporting locations.
struct Text<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Text<'_> {
    fn at(&self, piece: &RawValue) -> String {
        let offset = (piece.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let (line, column) = line_column(self.text, offset);
        Origin::File { path: self.path.to_path_buf(), line, column }.to_string()
    }
}

fn object(piece: &RawValue) -> Result<Pairs<'_>, String> {
    serde_json::from_str(piece.get()).map_err(|_| format!("must be an object, not {}", kind_of(piece)))
}

fn kind_of(piece: &RawValue) -> &'static str {
    match piece.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(_) | None => "a number",
    }
}

fn text_value(piece: &RawValue) -> Result<String, String> {
    serde_json::from_str(piece.get()).map_err(|_| format!("must be a string, not {}", kind_of(piece)))
}

fn texts(piece: &RawValue) -> Result<Vec<String>, String> {
    serde_json::from_str(piece.get()).map_err(|_| "must be a list of strings".to_owned())
}

fn domains(piece: &RawValue) -> Result<Vec<DomainPattern>, String> {
    let parse =
        |text: String| text.parse().map_err(|why| format!("has the domain `{}`: {why}", visible_line(&text)));
    texts(piece)?.into_iter().map(parse).collect()
}

/// Texts by name; numbers and flags count as their text, as other programs take them.
fn table(piece: &RawValue) -> Result<BTreeMap<String, String>, String> {
    let pairs = object(piece)?;
    let mut found = BTreeMap::new();
    for (name, value) in pairs.0 {
        let text = match serde_json::from_str(value.get()) {
            Ok(Value::String(text)) => text,
            Ok(Value::Number(number)) => number.to_string(),
            Ok(Value::Bool(flag)) => flag.to_string(),
            Ok(Value::Null | Value::Array(_) | Value::Object(_)) | Err(_) => {
                return Err(format!(
                    "has {} for `{}`; expected a string",
                    kind_of(value),
                    visible_line(&name)
                ));
            }
        };
        if found.insert(name.to_string(), text).is_some() {
            return Err(format!("has a duplicate `{}`", visible_line(&name)));
        }
    }
    Ok(found)
}

/// Reads the text of a `.mcp.json`: the servers that it describes, and what is wrong with the others.
pub(super) fn parse(path: &Path, text: &str) -> (Vec<Written>, Vec<String>) {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let here = Text { path, text: body };
    let mut problems = Vec::new();
    let root: Pairs<'_> = match serde_json::from_str(body) {
        Ok(root) => root,
        Err(error) => {
            let origin =
                Origin::File { path: path.to_path_buf(), line: error.line(), column: error.column() };
            let words = error.to_string();
            let words = words.split(" at line ").next().unwrap_or_default();
            return (Vec::new(), vec![format!("{origin}: not a valid MCP server file: {words}")]);
        }
    };
    let mut named = Vec::new();
    let mut has_servers = false;
    for (key, value) in &root.0 {
        match key.as_ref() {
            "mcpServers" | "servers" => {
                has_servers = true;
                match object(value) {
                    Ok(servers) => named.extend(servers.0),
                    Err(why) => problems.push(format!("{}: `{key}` {why}", here.at(value))),
                }
            }
            // Other programs keep things of their own in this file.
            _ => {}
        }
    }
    if !has_servers {
        let path = Origin::File { path: path.to_path_buf(), line: 0, column: 0 };
        problems.push(format!(
            "{path}: `mcpServers` is missing; expected {{\"mcpServers\": {{\"name\": \
                              {{\"command\": \"...\"}}}}}}"
        ));
    }
    let mut servers: Vec<Written> = Vec::new();
    for (name, value) in named {
        let place = here.at(value);
        let shown = visible_line(&name).into_owned();
        if servers.len() >= MAX_SERVERS {
            problems.push(format!("{place}: more than {MAX_SERVERS} servers; the others are left out"));
            break;
        }
        if servers.iter().any(|server| server.name == name) {
            problems.push(format!("{place}: duplicate server `{shown}`; the first one is used"));
            continue;
        }
        match server(&name, value, &here) {
            Ok(server) => servers.push(server),
            Err(why) => problems.push(format!("{why}; the server `{shown}` is not started")),
        }
    }
    (servers, problems)
}

fn server(name: &str, value: &RawValue, here: &Text<'_>) -> Result<Written, String> {
    let place = here.at(value);
    let mut found = Written { name: name.to_owned(), place: place.clone(), ..Written::default() };
    if let Some(why) = bad_name(name) {
        return Err(format!("{place}: {why}"));
    }
    let fields = object(value).map_err(|why| format!("{place}: a server {why}"))?;
    let mut seen = BTreeSet::new();
    let mut sse = None;
    for (key, value) in &fields.0 {
        let wrong = |why: String| format!("{}: `{}` {why}", here.at(value), visible_line(key));
        if !seen.insert(key.as_ref()) {
            return Err(wrong("is duplicated".to_owned()));
        }
        let millis = || match serde_json::from_str::<f64>(value.get()) {
            Ok(ms) if (1.0..=86_400_000.0).contains(&ms) => Ok(Duration::from_millis(ms as u64)),
            Ok(_) | Err(_) => Err(wrong("must be milliseconds, 1 or more".to_owned())),
        };
        match key.as_ref() {
            "type" | "transport" => {
                let kind = text_value(value).map_err(wrong)?;
                match kind.as_str() {
                    "stdio" | "http" | "streamable-http" | "streamable_http" | "streamableHttp" => {}
                    "sse" => sse = Some(wrong("is \"sse\"".to_owned())),
                    _ => return Err(wrong("must be one of stdio, http".to_owned())),
                }
            }
            "command" => found.command = Some(text_value(value).map_err(wrong)?),
            "args" => found.args = texts(value).map_err(wrong)?,
            "env" => found.env = table(value).map_err(wrong)?,
            "cwd" => found.cwd = Some(text_value(value).map_err(wrong)?),
            "domains" => found.domains = domains(value).map_err(wrong)?,
            "url" | "httpUrl" | "serverUrl" => found.url = Some(text_value(value).map_err(wrong)?),
            "headers" => found.headers = table(value).map_err(wrong)?,
            "oauth" => found.login = login(value, here)?,
            "timeout" => found.timeout = Some(millis()?),
            "startTimeout" | "startup_timeout_ms" => found.start_timeout = Some(millis()?),
            "disabled" => found.disabled = value.get() == "true",
            // The fields that other programs keep beside these grant nothing here.
            _ => {}
        }
    }
    if let Some(sse) = sse {
        let url = visible_line(&streamable_url(found.url.as_deref().unwrap_or_default())).into_owned();
        let url = if url.is_empty() { String::new() } else { format!(", probably {url}") };
        return Err(format!(
            "{sse}, the HTTP+SSE transport that the protocol replaced in 2025; write \"type\": \"http\" and the \
             server's streamable HTTP URL{url}"
        ));
    }
    one_way(&found).map_err(|why| format!("{place}: {why}"))?;
    Ok(found)
}

fn login(value: &RawValue, here: &Text<'_>) -> Result<WrittenLogin, String> {
    let mut found = WrittenLogin::default();
    let fields = object(value).map_err(|why| format!("{}: `oauth` {why}", here.at(value)))?;
    for (key, value) in &fields.0 {
        let wrong = |why: String| format!("{}: `oauth.{}` {why}", here.at(value), visible_line(key));
        match key.as_ref() {
            "clientId" | "client_id" => found.client_id = Some(text_value(value).map_err(wrong)?),
            "clientSecret" | "client_secret" => found.client_secret = Some(text_value(value).map_err(wrong)?),
            "callbackPort" | "port" => {
                let port = serde_json::from_str(value.get());
                found.port = Some(port.map_err(|_| wrong("must be a port number".to_owned()))?);
            }
            "grantType" | "grant_type" | "grant" => found.grant = Some(text_value(value).map_err(wrong)?),
            "scopes" | "scope" => {
                found.scopes = match text_value(value) {
                    Ok(text) => text.split_whitespace().map(str::to_owned).collect(),
                    Err(_) => texts(value).map_err(wrong)?,
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn bad_name(name: &str) -> Option<String> {
    if name.trim().is_empty() {
        return Some("a server needs a name".to_owned());
    }
    (name.chars().count() > 64).then(|| "the name of a server has at most 64 characters".to_owned())
}

fn one_way(server: &Written) -> Result<(), String> {
    match (&server.command, &server.url) {
        (Some(_), Some(_)) => Err("both `command` and `url` are set; remove one".to_owned()),
        (None, None) => Err("neither `command` nor `url` is set; add one".to_owned()),
        (Some(command), None) if command.trim().is_empty() => Err("`command` is empty".to_owned()),
        (Some(_), None) | (None, Some(_)) => Ok(()),
    }
}

/// The variables that a text names.
pub(super) fn variables(text: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let _ = fill(text, &mut |name, default| {
        found.push((name.to_owned(), default.map(str::to_owned)));
        Some(String::new())
    });
    found
}

/// A variable that a text needs and that has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it needs the variable {0}, which is not set; set it, or write ${{{0}:-default}}")]
pub struct UnsetVariable(pub String);

/// Fills variables of the environment into a text: `${NAME}`, and `${NAME:-default}`.
///
/// # Errors
/// Which one has no value.
pub fn fill_variables(text: &str, env: &Env) -> Result<String, UnsetVariable> {
    let value = |name: &str, default: Option<&str>| {
        env.var(name).map(str::to_owned).or_else(|| default.map(str::to_owned))
    };
    fill(text, &mut { value }).map_err(UnsetVariable)
}

/// Fills in `${NAME}` and `${NAME:-default}`; the error is the name that has no value.
fn fill(text: &str, value: &mut dyn FnMut(&str, Option<&str>) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let inner = &rest[at + 2..];
        let Some(end) = inner.find('}') else { break };
        let (name, default) = match inner[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inner[..end], None),
        };
        out.push_str(&rest[..at]);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_name {
            out.push_str(&value(name, default).ok_or_else(|| name.to_owned())?);
        } else {
            out.push_str(&rest[at..=at + 2 + end]);
        }
        rest = &inner[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

impl Written {
    /// Returns the command line or the URL, followed by the names of variables and headers. The user's own
    /// files may contain keys there, which are left out; a project's file is shown in full, because the user
    /// agrees to exactly that text.
    fn shown(&self, is_own: bool) -> String {
        let mut text = match (&self.command, &self.url) {
            (Some(command), _) => {
                let args = if is_own { arguments(&self.args) } else { self.args.clone() };
                let words = std::iter::once(command).chain(&args);
                words.map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
            }
            (None, Some(url)) if is_own => without_password(url),
            (None, Some(url)) => url.clone(),
            (None, None) => String::new(),
        };
        if let Some(cwd) = &self.cwd {
            let _ = write!(text, " (in {cwd})");
        }
        let names = |what: &str, table: &BTreeMap<String, String>| {
            let names: Vec<_> = table.keys().map(String::as_str).collect();
            if names.is_empty() { String::new() } else { format!(" ({what}: {})", names.join(", ")) }
        };
        text.push_str(&names("env", &self.env));
        text.push_str(&names("headers", &self.headers));
        let mut read: Vec<String> = self
            .env
            .values()
            .chain(self.headers.values())
            .chain(&self.login.client_id)
            .chain(&self.login.client_secret)
            .flat_map(|text| variables(text))
            .map(|(name, _)| name)
            .collect();
        read.sort();
        read.dedup();
        if !read.is_empty() {
            let _ = write!(text, " (reads ${})", read.join(", $"));
        }
        if !self.domains.is_empty() {
            let domains: Vec<String> = self.domains.iter().map(ToString::to_string).collect();
            let _ = write!(text, " (network: {})", domains.join(", "));
        }
        visible_line(&text).into_owned()
    }

    fn digest(&self) -> String {
        let mut parts =
            serde_json::json!([self.command, self.args, self.env, self.cwd, self.url, self.headers]);
        let WrittenLogin { client_id, client_secret, port, scopes, grant } = &self.login;
        // Without login settings, the digest stays the same as before logins existed, so that earlier trust
        // still applies.
        if let Some(parts) = parts.as_array_mut()
            && (client_id.is_some() || client_secret.is_some() || port.is_some() || !scopes.is_empty())
        {
            parts.push(serde_json::json!([client_id, client_secret, port, scopes]));
        }
        if let Some(parts) = parts.as_array_mut().filter(|_| !self.domains.is_empty()) {
            let domains: Vec<String> = self.domains.iter().map(ToString::to_string).collect();
            parts.push(serde_json::json!({ "domains": domains }));
        }
        if let (Some(parts), Some(grant)) = (parts.as_array_mut(), grant) {
            parts.push(serde_json::json!({ "grant": grant }));
        }
        sha256_hex(parts.to_string())
    }

    /// Fills in the variables.
    fn resolve(
        self,
        scope: ServerScope,
        folder: &Path,
        env: &Env,
        defaults: &McpSettings,
    ) -> Result<ServerConfig, String> {
        let name = visible_line(&self.name).into_owned();
        let filled = |text: &str| {
            fill_variables(text, env)
                .map_err(|why| format!("{}: the server `{name}` is not started: {why}", self.place))
        };
        let secret = |text: &str| filled(text).map(SecretString::from);
        let secrets = |table: &BTreeMap<String, String>| {
            table
                .iter()
                .map(|(name, text)| Ok((name.clone(), secret(text)?)))
                .collect::<Result<BTreeMap<_, _>, String>>()
        };
        let transport = if let Some(command) = &self.command {
            let cwd = match &self.cwd {
                Some(cwd) => folder.join(expand_home(&filled(cwd)?, env)),
                None => folder.to_path_buf(),
            };
            ServerTransport::Stdio {
                command: expand_home(&filled(command)?, env).to_string_lossy().into_owned(),
                args: self.args.iter().map(|arg| secret(arg)).collect::<Result<_, _>>()?,
                env: secrets(&self.env)?,
                cwd,
                domains: self.domains.clone(),
            }
        } else {
            let url = filled(self.url.as_deref().unwrap_or_default())?;
            if !(url.starts_with("https://") || url.starts_with("http://")) {
                return Err(format!(
                    "{}: the server `{name}` is not started: its `url` must start with https:// or http://",
                    self.place
                ));
            }
            let port = self.login.port.map(|port| match u16::try_from(port) {
                Ok(port @ 1..) => Ok(port),
                Ok(0) | Err(_) => Err(format!(
                    "{}: the server `{name}` is not started: invalid login port {port}; expected 1 to 65535",
                    self.place
                )),
            });
            let grant = self.login.grant.as_deref().unwrap_or("authorization_code");
            let grant = LoginGrant::WORDS.iter().find(|(word, _)| *word == grant).map(|(_, grant)| *grant);
            let has_client = self.login.client_id.is_some() && self.login.client_secret.is_some();
            let refused = match grant {
                None => Some("its grant must be one of authorization_code, client_credentials"),
                Some(LoginGrant::ClientCredentials) if !has_client => Some(
                    "the grant client_credentials needs `oauth_client_id` and `oauth_client_secret` (in .mcp.json \
                     `oauth.clientId` and `oauth.clientSecret`)",
                ),
                Some(LoginGrant::ClientCredentials | LoginGrant::AuthorizationCode) => None,
            };
            if let Some(why) = refused {
                return Err(format!("{}: the server `{name}` is not started: {why}", self.place));
            }
            let login = LoginConfig {
                client_id: self.login.client_id.as_deref().map(filled).transpose()?,
                client_secret: self.login.client_secret.as_deref().map(secret).transpose()?,
                port: port.transpose()?,
                scopes: self.login.scopes.clone(),
                grant: grant.unwrap_or_default(),
            };
            ServerTransport::Http { url: url.into(), headers: secrets(&self.headers)?, login }
        };
        Ok(ServerConfig {
            shown: self.shown(!matches!(scope, ServerScope::Project(_))),
            digest: self.digest(),
            name: self.name,
            scope,
            place: self.place,
            transport,
            timeout: self.timeout.unwrap_or(defaults.timeout),
            start_timeout: self.start_timeout.unwrap_or(defaults.start_timeout),
        })
    }
}

/// The word of a grant; nothing for the usual one.
fn word_of(grant: LoginGrant) -> Option<String> {
    let is_named = |(_, named): &&(&str, LoginGrant)| *named == grant && grant != LoginGrant::default();
    LoginGrant::WORDS.iter().find(is_named).map(|(word, _)| (*word).to_owned())
}

fn expand_home(text: &str, env: &Env) -> PathBuf {
    match (text.strip_prefix("~/"), env.home()) {
        (Some(below), Some(home)) => home.join(below),
        (Some(_) | None, _) => PathBuf::from(text),
    }
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
        let written = Written {
            name: name.clone(),
            place: place.clone(),
            command: entry.command.clone(),
            args: entry.args.clone(),
            env: entry.env.clone(),
            cwd: entry.cwd.clone(),
            domains: Vec::new(),
            url: entry.url.clone(),
            headers: entry.headers.clone(),
            login: WrittenLogin {
                client_id: entry.oauth_client_id.clone(),
                client_secret: entry.oauth_client_secret.clone(),
                port: entry.oauth_port,
                scopes: entry.oauth_scopes.clone(),
                grant: word_of(entry.oauth_grant),
            },
            timeout: entry.timeout,
            start_timeout: entry.start_timeout,
            disabled: !entry.enabled,
        };
        known.insert(name.clone());
        if written.disabled {
            continue;
        }
        let checked = bad_name(name).map_or_else(|| one_way(&written), Err);
        match checked
            .map_err(|why| format!("{place}: {why}; the server `{}` is not started", visible_line(name)))
        {
            Ok(()) => servers.take(written.resolve(scope, cwd, env, defaults)),
            Err(why) => servers.problems.push(why),
        }
    }
    for file in project {
        let text = match read_private(file, MAX_FILE) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(error) => {
                servers.problems.push(format!("{}: {error}", error.origin(file)));
                continue;
            }
        };
        let (written, problems) = parse(file, &text);
        servers.problems.extend(problems);
        let folder = file.parent().unwrap_or(cwd);
        for server in written {
            if !known.insert(server.name.clone()) {
                servers.problems.push(format!(
                    "{}: the server `{}` is not started: another server of this name has precedence",
                    server.place,
                    visible_line(&server.name)
                ));
            } else if !server.disabled {
                servers.take(server.resolve(ServerScope::Project(file.clone()), folder, env, defaults));
            }
        }
    }
    servers
}

impl Servers {
    fn take(&mut self, server: Result<ServerConfig, String>) {
        match server {
            Ok(server) => self.usable.push(server),
            Err(why) => self.problems.push(why),
        }
    }
}

/// Returns what a project's `.mcp.json` would start, one line per server, for the user who is asked to trust
/// the file, and whether the file may start a program.
pub(super) fn summary(path: &Path, text: &str) -> (String, bool) {
    let (servers, problems) = parse(path, text);
    let mut lines: Vec<String> = servers
        .iter()
        .map(|server| {
            let verb = if server.command.is_some() { "starts" } else { "connects to" };
            format!("{}: {verb} {}", visible_line(&server.name), server.shown(false))
        })
        .collect();
    if !problems.is_empty() {
        lines.push(format!("{} that cannot be read", problems.len()));
    }
    let starts = !problems.is_empty() || servers.iter().any(|server| server.command.is_some());
    (lines.join("\n"), starts)
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
