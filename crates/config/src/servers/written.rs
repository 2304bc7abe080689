//! A server as a file describes it, and what becomes of it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde_json::json;

use aye_core::contract::address::DomainPattern;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::display::{shell_word, visible_line};
use aye_core::contract::server::{
    LoginConfig, LoginGrant, ServerConfig, ServerScope, ServerTransport, ToolFilter,
};

use super::variables::{fill_variables, variables};
use crate::env::Env;
use crate::redact::{arguments, without_password};
use crate::settings::{McpSettings, ServerSettings};

/// A server's entry in one file, before variables are expanded.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub name: String,
    pub place: String,
    pub domains: Vec<DomainPattern>,
    pub entry: ServerSettings,
}

/// A server that cannot be used, and where it is written.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {why}")]
pub(super) struct WrongServer {
    place: String,
    why: String,
}

impl WrongServer {
    pub(super) fn at(place: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { place: place.into(), why: why.to_string() }
    }
}

/// A server that a project's file would start or reach, for the user who is asked to use it. Its texts are those of the
/// file and are not safe to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedServer {
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
    /// Returns the command line or the URL, followed by the names of variables and headers. The user's own
    /// files may contain keys there, which are left out; a project's file is shown in full, because the user
    /// agrees to exactly that text.
    pub(super) fn shown(&self, is_own: bool) -> String {
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
    pub(super) fn resolve(
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

impl Written {
    pub(super) fn offered(&self) -> OfferedServer {
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
