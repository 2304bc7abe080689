//! Commands of the terminal that give something to read.

use std::fmt::Write as _;

use super::agent::{AGENT, App};
use crate::contract::ids::ThreadId;
use crate::runtime::ResolvedAgent;
use crate::state::Phase;
use crate::tui::host::Page;

/// The page of a command, with the words behind it. Text from elsewhere stands in it as it is: the terminal makes it
/// visible.
pub(super) async fn page(
    app: &App,
    thread: Option<&ThreadId>,
    name: &str,
    words: &str,
) -> Result<Page, String> {
    match name {
        "memory" => super::memory::page(app, words).await,
        "plugins" => plugins(app),
        "tasks" => super::tasks::page(app, thread, words).await,
        "stats" => super::stats::page(app, words).await,
        "queue" => super::queue::page(&app.store).await,
        _ => Err(format!("there is no /{name}")),
    }
}

fn plugins(app: &App) -> Result<Page, String> {
    let agent = app.runtime.resolved(AGENT).map_err(|e| e.to_string())?;
    Ok(Page { title: format!("plugins of {AGENT}"), text: plugin_lines(&agent) })
}

/// What each plugin of an agent registered, one paragraph a plugin.
pub(super) fn plugin_lines(agent: &ResolvedAgent) -> String {
    let mut text = String::new();
    for plugin in &agent.env.plugins {
        let name = plugin.descriptor().name;
        let active = agent.env.active_plugins(&agent.spec).any(|known| known.descriptor().name == name);
        let _ = writeln!(text, "{name}{}", if active { "" } else { " (not active)" });
        for phase in Phase::ALL {
            let hooks = agent.env.hooks_for_phase(phase).iter().filter(|hook| hook.plugin_id == name).count();
            if hooks > 0 {
                let _ = writeln!(text, "  {hooks} at {phase:?}");
            }
        }
        let tools: Vec<&str> = agent
            .env
            .tools
            .iter()
            .filter(|(_, tagged)| tagged.plugin_id == name)
            .map(|(id, _)| id.as_str())
            .collect();
        if !tools.is_empty() {
            let _ = writeln!(text, "  tools: {}", tools.join(", "));
        }
        let sections: Vec<&str> = plugin.config_schemas().iter().map(|schema| schema.key).collect();
        if !sections.is_empty() {
            let _ = writeln!(text, "  reads the sections: {}", sections.join(", "));
        }
    }
    text
}
