//! Tool servers: the `.mcp.json` of a project and `[mcp_servers]` of the settings, as values. Nothing is started here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::env::Env;
use super::kinds::Kind as _;
use super::layer::{Origin, line_column};
use super::layers::Provenance;
use super::paths::read_private;
use super::plugin_folders::PluginFolder;
use super::redact::{arguments, without_password};
use super::settings::{McpSettings, ServerSettings};
use aye_core::contract::address::DomainPattern;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::display::{shell_word, visible_line};
use aye_core::contract::server::{
    LoginConfig, LoginGrant, ProtocolRevision, ServerConfig, ServerScope, ServerTransport, ToolFilter,
    streamable_url,
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
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub name: String,
    pub place: String,
    pub domains: Vec<DomainPattern>,
    pub entry: ServerSettings,
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

/// What is wrong with a member: the sentence goes on after its name.
#[derive(Debug, thiserror::Error)]
enum WrongMember {
    #[error("must be {0}, not {1}")]
    Kind(&'static str, &'static str),
    #[error("must be {0}")]
    Expected(String),
    #[error("has the domain `{name}`: {1}", name = visible_line(.0))]
    Domain(String, &'static str),
    #[error("has {0} for `{name}`; expected a string", name = visible_line(.1))]
    Entry(&'static str, String),
    #[error("has a duplicate `{}`", visible_line(.0))]
    DuplicateEntry(String),
    #[error("is duplicated")]
    Duplicate,
}

/// A server that cannot be used, and where it is written.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {why}")]
struct WrongServer {
    place: String,
    why: String,
}

impl WrongServer {
    fn at(place: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { place: place.into(), why: why.to_string() }
    }
}

fn object(piece: &RawValue) -> Result<Pairs<'_>, WrongMember> {
    serde_json::from_str(piece.get()).map_err(|_| WrongMember::Kind("an object", kind_of(piece)))
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

fn text_value(piece: &RawValue) -> Result<String, WrongMember> {
    serde_json::from_str(piece.get()).map_err(|_| WrongMember::Kind("a string", kind_of(piece)))
}

fn texts(piece: &RawValue) -> Result<Vec<String>, WrongMember> {
    serde_json::from_str(piece.get()).map_err(|_| WrongMember::Expected("a list of strings".to_owned()))
}

fn read_domains(piece: &RawValue) -> Result<Vec<DomainPattern>, WrongMember> {
    let parse = |text: String| match text.parse() {
        Ok(domain) => Ok(domain),
        Err(why) => Err(WrongMember::Domain(text, why)),
    };
    texts(piece)?.into_iter().map(parse).collect()
}

/// Texts by name; numbers and flags count as their text, as other programs take them.
fn table(piece: &RawValue) -> Result<BTreeMap<String, String>, WrongMember> {
    let pairs = object(piece)?;
    let mut found = BTreeMap::new();
    for (name, value) in pairs.0 {
        let text = match serde_json::from_str(value.get()) {
            Ok(Value::String(text)) => text,
            Ok(Value::Number(number)) => number.to_string(),
            Ok(Value::Bool(flag)) => flag.to_string(),
            Ok(Value::Null | Value::Array(_) | Value::Object(_)) | Err(_) => {
                return Err(WrongMember::Entry(kind_of(value), name.into_owned()));
            }
        };
        if found.insert(name.to_string(), text).is_some() {
            return Err(WrongMember::DuplicateEntry(name.into_owned()));
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

fn server(name: &str, value: &RawValue, here: &Text<'_>) -> Result<Written, WrongServer> {
    let place = here.at(value);
    let mut domains = Vec::new();
    let mut found = ServerSettings::default();
    if let Some(why) = bad_name(name) {
        return Err(WrongServer::at(place, why));
    }
    let fields = object(value).map_err(|why| WrongServer::at(&place, format_args!("a server {why}")))?;
    let mut seen = BTreeSet::new();
    let mut sse = None;
    for (key, value) in &fields.0 {
        let wrong = |why| WrongServer::at(here.at(value), format_args!("`{}` {why}", visible_line(key)));
        let expected = |what: &str| wrong(WrongMember::Expected(what.to_owned()));
        if !seen.insert(key.as_ref()) {
            return Err(wrong(WrongMember::Duplicate));
        }
        let millis = || match serde_json::from_str::<f64>(value.get()) {
            Ok(ms) if (1.0..=86_400_000.0).contains(&ms) => Ok(Duration::from_millis(ms as u64)),
            Ok(_) | Err(_) => Err(expected("milliseconds, 1 or more")),
        };
        let mut only = |names: Vec<String>| match &mut found.enabled_tools {
            Some(known) => known.retain(|name| names.contains(name)),
            None => found.enabled_tools = Some(names),
        };
        match key.as_ref() {
            "type" | "transport" => {
                let kind = text_value(value).map_err(wrong)?;
                match kind.as_str() {
                    "stdio" | "http" | "streamable-http" | "streamable_http" | "streamableHttp" => {}
                    kind if kind.eq_ignore_ascii_case("sse") => {
                        sse = Some((here.at(value), format!("`{}` is \"sse\"", visible_line(key))));
                    }
                    _ => return Err(expected("one of stdio, http")),
                }
            }
            "command" => found.command = Some(text_value(value).map_err(wrong)?),
            "args" => found.args = texts(value).map_err(wrong)?,
            "env" => found.env = table(value).map_err(wrong)?,
            "cwd" => found.cwd = Some(text_value(value).map_err(wrong)?),
            "domains" => domains = read_domains(value).map_err(wrong)?,
            "url" | "httpUrl" | "serverUrl" => found.url = Some(text_value(value).map_err(wrong)?),
            "headers" => found.headers = table(value).map_err(wrong)?,
            "oauth" => login(value, here, &mut found)?,
            "timeout" => found.timeout = Some(millis()?),
            "startTimeout" | "startup_timeout_ms" => found.start_timeout = Some(millis()?),
            "disabled" => found.enabled = value.get() != "true",
            "protocolVersion" | "protocol_version" => {
                let text = text_value(value).map_err(wrong)?;
                let known = ProtocolRevision::WORDS.iter().find(|(word, _)| *word == text);
                let known = known.ok_or_else(|| expected(&ProtocolRevision::expected()))?;
                found.protocol_version = Some(known.1);
            }
            "disabledTools" | "disabled_tools" | "excludeTools" => {
                found.disabled_tools.extend(texts(value).map_err(wrong)?);
            }
            "enabledTools" | "enabled_tools" | "includeTools" => only(texts(value).map_err(wrong)?),
            // Some programs write `"tools": ["*"]` for all of them, others a table of their own.
            "tools" => {
                if let Ok(names) = texts(value)
                    && !names.iter().any(|name| name == "*")
                {
                    only(names);
                }
            }
            // The fields that other programs keep beside these grant nothing here.
            _ => {}
        }
    }
    if let Some((place, sse)) = sse {
        let url = visible_line(&streamable_url(found.url.as_deref().unwrap_or_default())).into_owned();
        let url = if url.is_empty() { String::new() } else { format!(", probably {url}") };
        let why = format_args!(
            "{sse}, the HTTP+SSE transport that the protocol replaced in 2025; write \"type\": \"http\" and the \
             server's streamable HTTP URL{url}"
        );
        return Err(WrongServer::at(place, why));
    }
    if let Some(why) = not_one_way(&found) {
        return Err(WrongServer::at(place, why));
    }
    Ok(Written { name: name.to_owned(), place, domains, entry: found })
}

fn login(value: &RawValue, here: &Text<'_>, found: &mut ServerSettings) -> Result<(), WrongServer> {
    let fields =
        object(value).map_err(|why| WrongServer::at(here.at(value), format_args!("`oauth` {why}")))?;
    for (key, value) in &fields.0 {
        let wrong =
            |why| WrongServer::at(here.at(value), format_args!("`oauth.{}` {why}", visible_line(key)));
        let expected = |what: &str| wrong(WrongMember::Expected(what.to_owned()));
        match key.as_ref() {
            "clientId" | "client_id" => found.oauth_client_id = Some(text_value(value).map_err(wrong)?),
            "clientSecret" | "client_secret" => {
                found.oauth_client_secret = Some(text_value(value).map_err(wrong)?);
            }
            "callbackPort" | "port" => {
                let port = serde_json::from_str(value.get());
                found.oauth_port = Some(port.map_err(|_| expected("a port number"))?);
            }
            "grantType" | "grant_type" | "grant" => {
                let grant = text_value(value).map_err(wrong)?;
                let known = LoginGrant::WORDS.iter().find(|(word, _)| *word == grant);
                let known = known.ok_or_else(|| expected(&LoginGrant::expected()))?;
                found.oauth_grant = known.1;
            }
            "scopes" | "scope" => {
                found.oauth_scopes = match text_value(value) {
                    Ok(text) => text.split_whitespace().map(str::to_owned).collect(),
                    Err(_) => texts(value).map_err(wrong)?,
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn bad_name(name: &str) -> Option<&'static str> {
    if name.trim().is_empty() {
        return Some("a server needs a name");
    }
    (name.chars().count() > 64).then_some("the name of a server has at most 64 characters")
}

/// Returns why a server does not have exactly one way to reach it.
fn not_one_way(server: &ServerSettings) -> Option<&'static str> {
    match (&server.command, &server.url) {
        (Some(_), Some(_)) => Some("both `command` and `url` are set; remove one"),
        (None, None) => Some("neither `command` nor `url` is set; add one"),
        (Some(command), None) if command.trim().is_empty() => Some("`command` is empty"),
        (Some(_), None) | (None, Some(_)) => None,
    }
}

/// The variables that a text names.
fn variables(text: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let _ = fill(text, &mut |name, default| {
        found.push((name.to_owned(), default.map(str::to_owned)));
        Some(String::new())
    });
    found
}

/// A variable that a text needs and that has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", how_to_set(.0))]
pub struct UnsetVariable(pub String);

fn how_to_set(name: &str) -> String {
    let Some((_, input)) = name.split_once(':') else {
        return format!(
            "it needs the variable {name}, which is not set; set it, or write ${{{name}:-default}}"
        );
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let variable: String = input.chars().map(plain).collect();
    format!(
        "it needs `${{{}}}`, which another program asks for and aye does not; write ${{{variable}}} and set that \
         variable",
        visible_line(name)
    )
}

/// Placeholders of other programs: `${input:NAME}` and the like. Sent as they are, they would be a wrong password.
const FOREIGN: [&str; 3] = ["input:", "command:", "config:"];

/// Fills variables of the environment into a text: `${NAME}`, and `${NAME:-default}`.
///
/// # Errors
/// Which one has no value.
pub fn fill_variables(text: &str, env: &Env) -> Result<String, UnsetVariable> {
    let value = |name: &str, default: Option<&str>| {
        env.var(name).map(str::to_owned).or_else(|| default.map(str::to_owned))
    };
    fill(text, &mut { value })
}

/// Fills in `${NAME}`, `${env:NAME}` and `${NAME:-default}`.
fn fill(
    text: &str,
    value: &mut dyn FnMut(&str, Option<&str>) -> Option<String>,
) -> Result<String, UnsetVariable> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let inner = &rest[at + 2..];
        let Some(end) = inner.find('}') else { break };
        let (name, default) = match inner[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inner[..end], None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        out.push_str(&rest[..at]);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_name {
            out.push_str(&value(name, default).ok_or_else(|| UnsetVariable(name.to_owned()))?);
        } else if FOREIGN.iter().any(|prefix| name.starts_with(prefix)) {
            out.push_str(&value(name, default).ok_or_else(|| UnsetVariable(name.to_owned()))?);
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
        let entry = &self.entry;
        let mut text = match (&entry.command, &entry.url) {
            (Some(command), _) => {
                let args = if is_own { arguments(&entry.args) } else { entry.args.clone() };
                let words = std::iter::once(command).chain(&args);
                words.map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
            }
            (None, Some(url)) if is_own => without_password(url),
            (None, Some(url)) => url.clone(),
            (None, None) => String::new(),
        };
        if let Some(cwd) = &entry.cwd {
            let _ = write!(text, " (in {cwd})");
        }
        let names = |what: &str, table: &BTreeMap<String, String>| {
            let names: Vec<_> = table.keys().map(String::as_str).collect();
            if names.is_empty() { String::new() } else { format!(" ({what}: {})", names.join(", ")) }
        };
        text.push_str(&names("env", &entry.env));
        text.push_str(&names("headers", &entry.headers));
        let read = self.variables_read();
        if !read.is_empty() {
            let _ = write!(text, " (reads ${})", read.join(", $"));
        }
        if let Some(tools) = &entry.enabled_tools {
            let _ = write!(text, " (only the tools: {})", tools.join(", "));
        }
        if !entry.disabled_tools.is_empty() {
            let _ = write!(text, " (without the tools: {})", entry.disabled_tools.join(", "));
        }
        if !self.domains.is_empty() {
            let domains: Vec<String> = self.domains.iter().map(ToString::to_string).collect();
            let _ = write!(text, " (network: {})", domains.join(", "));
        }
        visible_line(&text).into_owned()
    }

    /// The variables of the user's environment whose values are sent or passed on without being written out in the
    /// command.
    fn variables_read(&self) -> Vec<String> {
        let entry = &self.entry;
        let mut read: Vec<String> = entry
            .env
            .values()
            .chain(entry.headers.values())
            .chain(&entry.oauth_client_id)
            .chain(&entry.oauth_client_secret)
            .flat_map(|text| variables(text))
            .map(|(name, _)| name)
            .filter(|name| !name.contains(':'))
            .collect();
        read.sort();
        read.dedup();
        read
    }

    fn digest(&self) -> String {
        let entry = &self.entry;
        let mut parts = vec![
            json!(entry.command),
            json!(entry.args),
            json!(entry.env),
            json!(entry.cwd),
            json!(entry.url),
            json!(entry.headers),
        ];
        let login =
            json!([entry.oauth_client_id, entry.oauth_client_secret, entry.oauth_port, entry.oauth_scopes]);
        // Parts that are not set are left out, so that trust from before they existed still applies.
        if login != json!([null, null, null, []]) {
            parts.push(login);
        }
        if !self.domains.is_empty() {
            let domains: Vec<String> = self.domains.iter().map(ToString::to_string).collect();
            parts.push(json!({ "domains": domains }));
        }
        if entry.oauth_grant != LoginGrant::default() {
            let word = LoginGrant::WORDS.iter().find(|(_, grant)| *grant == entry.oauth_grant);
            parts.push(json!({ "grant": word.map(|(word, _)| word) }));
        }
        sha256_hex(json!(parts).to_string())
    }

    /// Fills in the variables.
    fn resolve(
        self,
        scope: ServerScope,
        folder: &Path,
        env: &Env,
        defaults: &McpSettings,
    ) -> Result<ServerConfig, WrongServer> {
        let entry = &self.entry;
        let name = visible_line(&self.name).into_owned();
        let wrong = |why: &dyn fmt::Display| {
            WrongServer::at(&self.place, format_args!("the server `{name}` is not started: {why}"))
        };
        let filled = |text: &str| fill_variables(text, env).map_err(|why| wrong(&why));
        let secret = |text: &str| filled(text).map(SecretString::from);
        let secrets = |table: &BTreeMap<String, String>| {
            table
                .iter()
                .map(|(name, text)| Ok((name.clone(), secret(text)?)))
                .collect::<Result<BTreeMap<_, _>, WrongServer>>()
        };
        let transport = if let Some(command) = &entry.command {
            let cwd = match &entry.cwd {
                Some(cwd) => folder.join(expand_home(&filled(cwd)?, env)),
                None => folder.to_path_buf(),
            };
            ServerTransport::Stdio {
                command: expand_home(&filled(command)?, env).to_string_lossy().into_owned(),
                args: entry.args.iter().map(|arg| secret(arg)).collect::<Result<_, _>>()?,
                env: secrets(&entry.env)?,
                cwd,
                domains: self.domains.clone(),
            }
        } else {
            let url = filled(entry.url.as_deref().unwrap_or_default())?;
            if !(url.starts_with("https://") || url.starts_with("http://")) {
                return Err(wrong(&"its `url` must start with https:// or http://"));
            }
            let port = entry.oauth_port.map(|port| match u16::try_from(port) {
                Ok(port @ 1..) => Ok(port),
                Ok(0) | Err(_) => Err(wrong(&format_args!("invalid login port {port}; expected 1 to 65535"))),
            });
            let has_client = entry.oauth_client_id.is_some() && entry.oauth_client_secret.is_some();
            if entry.oauth_grant == LoginGrant::ClientCredentials && !has_client {
                return Err(wrong(
                    &"the grant client_credentials needs `oauth_client_id` and `oauth_client_secret` (in .mcp.json \
                      `oauth.clientId` and `oauth.clientSecret`)",
                ));
            }
            let login = LoginConfig {
                client_id: entry.oauth_client_id.as_deref().map(filled).transpose()?,
                client_secret: entry.oauth_client_secret.as_deref().map(secret).transpose()?,
                port: port.transpose()?,
                scopes: entry.oauth_scopes.clone(),
                grant: entry.oauth_grant,
            };
            ServerTransport::Http { url: url.into(), headers: secrets(&entry.headers)?, login }
        };
        Ok(ServerConfig {
            shown: self.shown(!matches!(scope, ServerScope::Project(_))),
            digest: self.digest(),
            timeout: entry.timeout.unwrap_or(defaults.timeout),
            start_timeout: entry.start_timeout.unwrap_or(defaults.start_timeout),
            revision: entry.protocol_version,
            tools: ToolFilter {
                enabled: entry.enabled_tools.clone(),
                disabled: entry.disabled_tools.clone(),
            },
            name: self.name,
            scope,
            place: self.place,
            transport,
        })
    }
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
    (settings, defaults): (&BTreeMap<String, ServerSettings>, &McpSettings),
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

/// A server that a project's file would start or reach, for the user who is asked to use it. Its texts are those of the
/// file and are not safe to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedServer {
    /// Its name.
    pub name: String,
    /// The whole command line, each argument quoted where a shell would need it, or the URL.
    pub runs: String,
    /// Whether aye starts it as a program.
    pub is_program: bool,
    /// What else the answer covers, a sentence each: the folder, variables, headers, domains and tools.
    pub facts: Vec<String>,
    /// The SHA-256 of its configuration.
    pub digest: String,
}

impl Written {
    fn offered(&self) -> OfferedServer {
        let entry = &self.entry;
        let runs = match (&entry.command, &entry.url) {
            (Some(command), _) => {
                let words = std::iter::once(command).chain(&entry.args);
                words.map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
            }
            (None, url) => url.clone().unwrap_or_default(),
        };
        let mut facts = Vec::new();
        if let Some(cwd) = &entry.cwd {
            facts.push(format!("in the folder {}", shell_word(cwd)));
        }
        let pairs = |table: &BTreeMap<String, String>| {
            let pairs = table.iter().map(|(name, value)| format!("{name}={value}"));
            pairs.map(|pair| shell_word(&pair).into_owned()).collect::<Vec<_>>().join(" ")
        };
        if !entry.env.is_empty() {
            facts.push(format!("with the variables {}", pairs(&entry.env)));
        }
        if !entry.headers.is_empty() {
            facts.push(format!("with the headers {}", pairs(&entry.headers)));
        }
        let read = self.variables_read();
        if !read.is_empty() {
            facts.push(format!("reads ${} from your environment", read.join(", $")));
        }
        if !self.domains.is_empty() {
            let domains: Vec<String> = self.domains.iter().map(ToString::to_string).collect();
            facts.push(format!("may connect to {}", domains.join(", ")));
        }
        facts.push(match (&entry.enabled_tools, entry.disabled_tools.as_slice()) {
            (Some(tools), _) => format!("tools: only {}", tools.join(", ")),
            (None, []) => "tools: those that it offers when it first starts".to_owned(),
            (None, tools) => {
                format!("tools: those that it offers when it first starts, without {}", tools.join(", "))
            }
        });
        OfferedServer {
            name: self.name.clone(),
            runs,
            is_program: entry.command.is_some(),
            facts,
            digest: self.digest(),
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
