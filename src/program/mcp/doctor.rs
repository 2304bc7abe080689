//! The report of `aye doctor` on MCP servers: their configuration and trust; it starts and contacts none.

use std::fmt::Write as _;

use serde::Serialize;

use super::agreed;
use super::login;
use super::login_name;
use super::login_words;
use super::servers;
use crate::contract::display::visible_line;
use crate::contract::judgement::Profile;
use crate::contract::server::{ServerScope, ServerTransport};
use crate::mcp::{LoginState, PinStore as _, login_command, login_state};
use crate::program::foundation::Foundation;

#[derive(Debug, Serialize)]
pub(crate) struct ServerRow {
    pub(crate) name: String,
    scope: String,
    /// File and line.
    place: String,
    transport: &'static str,
    /// Its command line or URL, as configured.
    runs: String,
    /// The profile that the kernel enforces for its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
    /// Whether the server may be started here.
    trusted: bool,
    /// The number of its trusted tools; `None` if the user was never asked.
    agreed_tools: Option<usize>,
    /// Whether its configuration differs from the trusted one.
    changed: bool,
    /// The state of its login; `None` if it cannot have one.
    login: Option<&'static str>,
    needs_login: bool,
    /// The errors of what could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    #[serde(skip)]
    state: Option<LoginState>,
}

impl ServerRow {
    /// Returns whether the server is not used until the user acts.
    pub(crate) fn needs_somebody(&self) -> bool {
        let is_project = self.scope == "project";
        !self.trusted
            || self.needs_login
            || self.changed
            || !self.problems.is_empty()
            || (is_project && self.agreed_tools.is_none())
    }
}

/// Lists all servers, including those of an untrusted project.
pub(crate) fn rows(foundation: &Foundation) -> Vec<ServerRow> {
    let (pins, logins) = (agreed(foundation), login::logins(foundation));
    servers(foundation, true)
        .usable
        .into_iter()
        .map(|server| {
            let is_project = matches!(server.scope, ServerScope::Project(_));
            let mut problems = Vec::new();
            let pinned = pins.load(&server.scope.key(), &server.name);
            let pinned = pinned.unwrap_or_else(|why| {
                problems.push(why.to_string());
                None
            });
            let state = login_state(&server, &logins).unwrap_or_else(|why| {
                problems.push(why.to_string());
                None
            });
            ServerRow {
                transport: match &server.transport {
                    ServerTransport::Stdio { .. } => "stdio",
                    ServerTransport::Http { .. } => "streamable http",
                },
                trusted: !is_project || foundation.is_trusted,
                // Users may change their own files as they like.
                changed: is_project && pinned.as_ref().is_some_and(|pinned| pinned.config != server.digest),
                agreed_tools: pinned.map(|pinned| pinned.tools.len()),
                login: state.map(login_name),
                needs_login: state.is_some_and(LoginState::needs_login),
                profile: server.profile(),
                scope: server.scope.to_string(),
                name: server.name,
                place: server.place,
                runs: server.shown,
                problems,
                state,
            }
        })
        .collect()
}

/// Renders the rows for users.
pub(crate) fn lines(rows: &[ServerRow]) -> String {
    let mut out = String::new();
    for row in rows {
        let mut words =
            vec![if row.trusted { "trusted".to_owned() } else { "not trusted: not started".to_owned() }];
        words.push(match (row.agreed_tools, row.changed) {
            (Some(_), true) => "configured differently than you trusted".to_owned(),
            (Some(1), false) => "1 tool trusted".to_owned(),
            (Some(count), false) => format!("{count} tools trusted"),
            (None, _) if row.scope == "project" => "no tool trusted yet".to_owned(),
            (None, _) => "not used yet".to_owned(),
        });
        words.extend(row.profile.map(|profile| format!("runs in {profile}")));
        if row.needs_login {
            words.push(format!("needs login: {}", login_command(&row.name)));
        }
        words.push(login_words(Ok(&row.state)));
        words.extend(row.problems.iter().cloned());
        words.retain(|words| !words.is_empty());
        let _ = writeln!(
            out,
            "{}  {}, {}, from {}\n  {}\n  {}",
            visible_line(&row.name),
            row.scope,
            row.transport,
            visible_line(&row.place),
            row.runs,
            visible_line(&words.join("; "))
        );
    }
    out
}
