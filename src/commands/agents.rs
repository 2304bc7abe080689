//! `aye agents` and `/agent`: the agents and their resulting settings.

use std::fmt::Write as _;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::agents::ParsedAgent;
use crate::cli::shared::JsonFlag;
use crate::cli::start::StartFlags;
use crate::commands::columns::columns;
use crate::commands::put_json;
use crate::contract::display::visible_line;
use crate::failure::{AppError, Failure};
use crate::program::agents::AYE_IS_FOR;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::parts::AGENT;
use crate::program::{put, put_stderr};
use crate::tui::host::TextPage;

/// `aye agents ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Example:\n  aye agents show reviewer\n  aye --agent reviewer -p \"look at the last commit\""
)]
pub enum AgentsCommand {
    /// List agents, those in use first
    List(JsonFlag),
    /// Show one agent: its file and the resulting settings
    Show {
        /// Name of the agent
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

/// Carries out the command.
pub(crate) async fn run(
    command: AgentsCommand,
    foundation: Foundation,
    cli: &StartFlags,
) -> Result<u8, Failure> {
    let app = AppContext::build(foundation, cli).await?;
    let result = match command {
        AgentsCommand::List(JsonFlag { json: true }) => put_json(&json!({
            "agents": rows(&app),
            "issues": app.agents.written.issues,
        })),
        AgentsCommand::List(JsonFlag { json: false }) => {
            let written = put(&list(&app));
            for issue in &app.agents.written.issues {
                put_stderr(&issue.to_string());
            }
            written
        }
        AgentsCommand::Show { name, json } => match show(&app, &name) {
            Err(why) => Err(Failure::usage(why)),
            Ok(shown) if json => put_json(&shown),
            Ok(shown) => put(&text_of(&shown)),
        },
    };
    app.store.leave().await;
    result.map(|()| 0)
}

fn row(app: &AppContext, agent: Option<&ParsedAgent>) -> Value {
    let id = agent.map_or(AGENT, |agent| agent.spec.id.as_str());
    let current = app.agents.current() == id && agent.is_none_or(|agent| agent.hidden_by.is_none());
    let mut row = json!({
        "name": id,
        "description": agent.map_or(Some(AYE_IS_FOR), |agent| agent.spec.description.as_deref()),
        "model": app.agents.model(id).full_name(),
        "scope": agent.map_or_else(|| "built in".to_owned(), |agent| agent.scope.to_string()),
        "location": agent.map(|agent| agent.place("")),
        "current": current,
    });
    if let Some(by) = agent.and_then(|agent| agent.hidden_by.as_ref()) {
        row["hidden_by"] = by.as_str().into();
    }
    row
}

pub(crate) fn rows(app: &AppContext) -> Vec<Value> {
    let written = app.agents.written.found.iter().map(|agent| row(app, Some(agent)));
    let published = app.agents.published();
    let published = published.used().map(|agent| row(app, Some(agent)));
    std::iter::once(row(app, None)).chain(written).chain(published).collect()
}

/// Renders one line for each agent; the current one is marked.
fn list(app: &AppContext) -> String {
    columns(rows(app).iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let mark = if row["current"] == true { "*" } else { " " };
        let hidden = match text("hidden_by") {
            by if by.is_empty() => String::new(),
            by => format!("  (hidden by {by})"),
        };
        let name = format!("{mark} {}", text("name"));
        [name, text("scope"), text("model"), text("description") + &hidden]
    }))
}

/// The same for a page.
fn labelled(app: &AppContext) -> String {
    let line = |row: Value| {
        let text = |key: &str| visible_line(row[key].as_str().unwrap_or_default()).into_owned();
        let hidden = match text("hidden_by") {
            by if by.is_empty() => String::new(),
            by => format!("hidden by {by}"),
        };
        let used = if row["current"] == true { "in use" } else { "" };
        let notes = [used.to_owned(), text("scope"), text("model"), hidden];
        let notes: Vec<String> = notes.into_iter().filter(|note| !note.is_empty()).collect();
        format!("{}\t{}\t{}\n", text("name"), text("description"), notes.join(" · "))
    };
    rows(app).into_iter().map(line).collect()
}

/// Returns the definition of an agent and the agent as it resolves here.
fn show(app: &AppContext, name: &str) -> Result<Value, AppError> {
    if !app.agents.names().iter().any(|known| known == name) {
        return Err(app.agents.no_such(name).into());
    }
    let catalog = app.runtime.catalog();
    let written = app.agents.get(name);
    let spec = catalog.agents.get(name).ok_or_else(|| app.agents.no_such(name))?;
    let mut shown = row(app, written.as_ref());
    // A remote agent has no tools here.
    if let Ok(resolved) = app.runtime.try_resolve(name) {
        shown["tools"] = json!(resolved.tools.keys().collect::<Vec<_>>());
        let active = resolved.env.active_plugins(&resolved.spec);
        shown["plugins"] = json!(active.map(|plugin| plugin.descriptor().name).collect::<Vec<_>>());
    }
    shown["spec"] = json!(spec);
    // A key in the file is for its endpoint alone.
    if let Some(auth) = shown["spec"]["endpoint"].get_mut("auth") {
        *auth = json!({ "type": auth["type"].as_str().unwrap_or_default() });
    }
    Ok(shown)
}

fn text_of(shown: &Value) -> String {
    let mut out = String::new();
    let word = |value: &Value| match value {
        Value::String(text) => visible_line(text).into_owned(),
        Value::Array(items) => items
            .iter()
            .map(|item| visible_line(item.as_str().unwrap_or_default()).into_owned())
            .collect::<Vec<_>>()
            .join(", "),
        other => visible_line(&other.to_string()).into_owned(),
    };
    for key in ["name", "description", "model", "scope", "location", "tools", "plugins"] {
        if !shown[key].is_null() {
            let _ = writeln!(out, "{key:<14} {}", word(&shown[key]));
        }
    }
    let spec = &shown["spec"];
    for key in [
        "max_rounds",
        "tool_execution",
        "delegates",
        "worktree",
        "allowed_tools",
        "excluded_tools",
        "endpoint",
        "sections",
    ] {
        let value = &spec[key];
        let is_empty = value.is_null()
            || value.as_array().is_some_and(Vec::is_empty) && key == "delegates"
            || value.as_object().is_some_and(serde_json::Map::is_empty);
        if !is_empty {
            let _ = writeln!(out, "{key:<14} {}", word(value));
        }
    }
    let prompt = spec["system_prompt"].as_str().unwrap_or_default();
    let _ = writeln!(out, "\n{}", crate::contract::display::visible(prompt));
    out
}

/// `/agent` lists the agents; `/agent NAME` selects one for the next messages.
pub(crate) fn page(app: &AppContext, words: &str) -> Result<TextPage, AppError> {
    let name = words.trim();
    if name.is_empty() {
        let text = format!("{}\n`/agent NAME` chooses the agent for your next messages.\n", labelled(app));
        return Ok(TextPage { title: "Agents".to_owned(), text, ..TextPage::default() });
    }
    app.set_agent(name)?;
    let text = format!("now using {name}, with {}.\n", app.selection().full_name());
    Ok(TextPage { title: format!("agent {name}"), text, ..TextPage::default() })
}
