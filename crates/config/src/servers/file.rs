//! Reads the servers of a `.mcp.json`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use aye_core::contract::address::DomainPattern;
use aye_core::contract::display::visible_line;
use aye_core::contract::server::{LoginGrant, ProtocolRevision, streamable_url};

use super::written::{Written, WrongServer};
use crate::kinds::Kind as _;
use crate::layer::{Origin, line_column};
use crate::settings::ServerSettings;

const MAX_SERVERS: usize = 100;

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

pub(super) fn bad_name(name: &str) -> Option<&'static str> {
    if name.trim().is_empty() {
        return Some("a server needs a name");
    }
    (name.chars().count() > 64).then_some("the name of a server has at most 64 characters")
}

/// Returns why a server does not have exactly one way to reach it.
pub(super) fn not_one_way(server: &ServerSettings) -> Option<&'static str> {
    match (&server.command, &server.url) {
        (Some(_), Some(_)) => Some("both `command` and `url` are set; remove one"),
        (None, None) => Some("neither `command` nor `url` is set; add one"),
        (Some(command), None) if command.trim().is_empty() => Some("`command` is empty"),
        (Some(_), None) | (None, Some(_)) => None,
    }
}
