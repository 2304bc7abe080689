//! Servers as text: for the page of `/mcp` and for stdout.

use std::fmt::Write as _;

use super::inside;
use crate::contract::amount::counted;
use crate::contract::display::visible_line;
use crate::failure::AppError;
use crate::mcp::{Manager, McpServerError, PinStatus, ServerState, ServerView, ToolView, login_command};
use crate::program::app_context::AppContext;
use crate::tui::host::{ChangedTools, TextPage};

/// Returns the page of `/mcp` with its arguments.
pub(crate) async fn page(app: &AppContext, words: &str) -> Result<TextPage, AppError> {
    let manager = &app.mcp.manager;
    let words = words.trim();
    let (verb, name) =
        words.split_once(char::is_whitespace).map_or((words, ""), |(verb, name)| (verb, name.trim()));
    match (verb, name) {
        ("", _) => Ok(TextPage {
            title: "MCP servers".to_owned(),
            text: overview(&manager.views()),
            ..TextPage::default()
        }),
        ("trust" | "agree", name) if !name.is_empty() => {
            // The answer on a card names what the card showed.
            let (digest, name) = match (verb, name.split_once(' ')) {
                ("agree", Some((digest, name))) => (Some(digest), name),
                _ => (None, name),
            };
            match digest.map_or_else(|| manager.agree(name), |digest| manager.agree_to(name, digest)) {
                Ok(agreed) => Ok(TextPage {
                    title: "MCP servers".to_owned(),
                    text: format!("{agreed}.\n\n{}", overview(&manager.views())),
                    ..TextPage::default()
                }),
                // What is trusted must be on the screen first.
                Err(McpServerError::NotReviewed { typed, .. }) => {
                    let view = manager.look(name)?;
                    Ok(TextPage {
                        title: format!("MCP server · {}", visible_line(&view.name)),
                        text: format!(
                            "`/mcp trust {typed}` once more trusts what follows.\n\n{}",
                            details(&view)
                        ),
                        ..TextPage::default()
                    })
                }
                Err(error) => Err(error.into()),
            }
        }
        ("restart", name) if !name.is_empty() => {
            manager.restart(name)?;
            Ok(TextPage {
                title: "MCP servers".to_owned(),
                text: format!("Restarting {name}.\n"),
                ..TextPage::default()
            })
        }
        ("login", name) if !name.is_empty() => inside::login(app, name).await,
        ("logout", name) if !name.is_empty() => inside::logout(app, name).await,
        ("cancel", name) if !name.is_empty() => inside::cancel(app, name),
        ("trust" | "restart" | "login" | "logout" | "cancel", _) => {
            Err(format!("no server given; use /mcp {verb} NAME").into())
        }
        _ => {
            let view = manager.look(words)?;
            Ok(TextPage {
                title: format!("MCP server · {}", visible_line(&view.name)),
                text: details(&view),
                ..TextPage::default()
            })
        }
    }
}

/// Describes the state of a server in a word or a sentence.
pub(crate) fn phase_words(phase: &ServerState) -> String {
    match phase {
        ServerState::Idle => "not started".to_owned(),
        ServerState::Connecting => "connecting".to_owned(),
        ServerState::Connected => "connected".to_owned(),
        ServerState::Failed { why, again } => {
            format!("failed: {why}{}", if *again { "; retrying" } else { "" })
        }
        ServerState::NeedsLogin => "needs login".to_owned(),
        ServerState::Stopped => "stopped".to_owned(),
    }
}

fn login_hint(view: &ServerView) -> String {
    format!("`/mcp login {}`, or `{}` in a shell", view.typed, login_command(&view.name))
}

fn overview(views: &[ServerView]) -> String {
    if views.is_empty() {
        return "No MCP servers. Add one with `aye mcp add NAME -- COMMAND` or in a project's .mcp.json.\n"
            .to_owned();
    }
    let mut out = String::new();
    for view in views {
        let sign = match &view.phase {
            ServerState::Connected => "✓ ",
            ServerState::NeedsLogin => "! ",
            ServerState::Failed { .. } => "✗ ",
            ServerState::Idle | ServerState::Connecting | ServerState::Stopped => "",
        };
        let _ =
            write!(out, "{sign}{}\t{}", visible_line(&view.name), visible_line(&phase_words(&view.phase)));
        if view.phase == ServerState::Connected {
            let mut parts = vec![counted(view.tools.len(), "tool")];
            if !view.prompts.is_empty() {
                parts.push(counted(view.prompts.len(), "prompt"));
            }
            if view.has_resources {
                parts.push("resources".to_owned());
            }
            let _ = write!(out, " · {}", parts.join(", "));
        }
        let _ = writeln!(out, "\t{}\n\t{}", view.scope, visible_line(&view.shown));
        if view.phase == ServerState::NeedsLogin {
            let _ = writeln!(out, "\t{}", login_hint(view));
        }
        let waiting = view.tools.iter().filter(|tool| !tool.is_offered).count();
        if waiting > 0 {
            let (verb, them) = if waiting == 1 { ("needs", "it") } else { ("need", "them") };
            let _ = writeln!(
                out,
                "\t{} {verb} trust: `/mcp {typed}` shows {them}, `/mcp trust {typed}` trusts {them}",
                counted(waiting, "tool"),
                typed = view.typed
            );
        }
        let has_words = view.instructions.as_deref().is_some_and(|text| !text.trim().is_empty());
        if waiting == 0 && has_words && !view.is_guiding && !view.tools.is_empty() {
            let typed = &view.typed;
            let _ = writeln!(
                out,
                "\tits instructions need trust: `/mcp {typed}` shows them, `/mcp trust {typed}` trusts them"
            );
        }
        for note in &view.notes {
            let _ = writeln!(out, "\t{}", visible_line(note));
        }
    }
    out
}

/// Returns the servers with tools that are not those that the user trusted, and what these say.
pub(crate) fn changed(manager: &Manager) -> Vec<ChangedTools> {
    let waits = |view: &ServerView| view.tools.iter().any(|tool| !tool.is_offered);
    let views = manager.views().into_iter().filter(waits);
    views
        .map(|view| {
            let mut text = String::new();
            for tool in view.tools.iter().filter(|tool| !tool.is_offered) {
                tool_lines(&mut text, tool);
            }
            if let Some(words) =
                view.instructions.as_deref().filter(|words| !words.trim().is_empty() && !view.is_guiding)
            {
                let _ = writeln!(text, "its instructions:\n{}", indented(words, "  "));
            }
            ChangedTools {
                server: view.name,
                typed: view.typed,
                lines: text.lines().map(str::to_owned).collect(),
                digest: view.digest,
            }
        })
        .filter(|row| !row.lines.is_empty())
        .collect()
}

/// Renders everything about a server: its command, its own claims, and each tool with its whole description.
pub(crate) fn details(view: &ServerView) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} server, from {}", view.scope, view.place);
    let _ = writeln!(out, "{}", view.shown);
    let _ = write!(out, "{}", phase_words(&view.phase));
    if let Some(took) = view.took.filter(|_| view.phase == ServerState::Connected) {
        let _ = write!(out, " after {} ms", took.as_millis());
    }
    if !view.about.is_empty() {
        let _ = write!(out, ": {}", visible_line(&view.about));
    }
    out.push('\n');
    if view.phase == ServerState::NeedsLogin {
        let _ = writeln!(out, "{}", login_hint(view));
    }
    for note in &view.notes {
        let _ = writeln!(out, "{note}");
    }
    if let Some(text) = view.instructions.as_deref().filter(|text| !text.trim().is_empty()) {
        let who = if view.is_guiding { "read by the model" } else { "not read by the model" };
        let _ = writeln!(out, "\nIts instructions ({who}):\n{}", indented(text, "  "));
    }
    let waiting = view.tools.iter().filter(|tool| !tool.is_offered).count();
    if waiting > 0 {
        let _ = writeln!(
            out,
            "\nItems marked [new] or [changed] are not used until you run `/mcp trust {}`.",
            view.typed
        );
    }
    for tool in &view.tools {
        out.push('\n');
        tool_lines(&mut out, tool);
    }
    for prompt in &view.prompts {
        let arguments: Vec<String> = prompt
            .arguments
            .iter()
            .map(|(name, is_needed)| if *is_needed { name.clone() } else { format!("[{name}]") })
            .collect();
        let _ = writeln!(
            out,
            "\nprompt /{}:{} {}\n{}",
            visible_line(&prompt.server),
            visible_line(&prompt.name),
            visible_line(&arguments.join(" ")),
            indented(&prompt.description, "  ")
        );
    }
    if !view.lines.is_empty() {
        let _ = writeln!(out, "\nIts last output lines:");
        for line in &view.lines {
            let _ = writeln!(out, "  {}", visible_line(line));
        }
    }
    out
}

fn tool_lines(out: &mut String, tool: &ToolView) {
    let mark = match tool.standing {
        PinStatus::Agreed => "",
        PinStatus::New => " [new]",
        PinStatus::Changed => " [changed]",
    };
    let _ = writeln!(out, "{}{mark}", tool.id);
    if !tool.id.ends_with(&tool.name) {
        let _ = writeln!(out, "  its own name: {}", visible_line(&tool.name));
    }
    if let Some(title) = &tool.title {
        let _ = writeln!(out, "  title: {}", visible_line(title));
    }
    if !tool.description.trim().is_empty() {
        let _ = writeln!(out, "{}", indented(&tool.description, "  "));
    }
    let arguments = arguments(&tool.schema);
    if !arguments.is_empty() {
        let _ = writeln!(out, "  arguments:\n{arguments}");
    }
    if let Some(hints) = &tool.hints {
        let _ = writeln!(out, "  its own claim, not relied on: {}", visible_line(hints));
    }
}

/// Renders the arguments with their descriptions: the model reads those too.
fn arguments(schema: &serde_json::Value) -> String {
    let mut out = String::new();
    for (name, property) in schema.get("properties").and_then(|p| p.as_object()).into_iter().flatten() {
        let _ = write!(out, "    {}", visible_line(name));
        // Unchanged: the model also reads what a schema contains besides descriptions.
        let text = property.to_string();
        let _ = writeln!(out, "  {}", visible_line(&text));
    }
    // A schema has other members with text for the model.
    let is_usual =
        |key: &str| ["type", "properties", "required", "additionalProperties", "$schema"].contains(&key);
    for (key, value) in schema.as_object().into_iter().flatten().filter(|(key, _)| !is_usual(key)) {
        let _ = writeln!(out, "    ({})  {}", visible_line(key), visible_line(&value.to_string()));
    }
    out.pop();
    out
}

fn indented(text: &str, by: &str) -> String {
    let lines: Vec<String> =
        text.trim_end().lines().map(|line| format!("{by}{}", visible_line(line))).collect();
    lines.join("\n")
}
