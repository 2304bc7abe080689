//! The plugins of an agent: what they registered, and their configuration with its origin, for `/plugins` and
//! `aye doctor`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::agents::ParsedAgent;
use crate::config::Origin;
use crate::contract::display::visible_line;
use crate::failure::AppError;
use crate::phase::{Plugin, PluginRegistrar};
use crate::program::app_context::AppContext;
use crate::program::sections;
use crate::runtime::ResolvedAgent;
use crate::state::Phase;
use crate::tui::host::TextPage;

/// A section of a plugin's configuration.
#[derive(Debug, Serialize)]
pub(crate) struct SectionRow {
    name: String,
    /// Where the section is set; `None` if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

/// A plugin of an agent.
#[derive(Debug, Serialize)]
pub(crate) struct PluginRow {
    name: &'static str,
    active: bool,
    /// Whether every agent must use the plugin.
    guard: bool,
    /// The number of hooks in each phase.
    hooks: BTreeMap<String, usize>,
    keys: Vec<&'static str>,
    actions: Vec<String>,
    effects: Vec<String>,
    tools: Vec<String>,
    transforms: usize,
    sections: Vec<SectionRow>,
}

/// Returns the plugins of an agent, in the order in which they run.
pub(crate) fn rows(app: &AppContext, agent: &ResolvedAgent) -> Vec<PluginRow> {
    let row = |plugin: &std::sync::Arc<dyn Plugin>| {
        let name = plugin.descriptor().name;
        // Installed alone, so that everything registered is its own; resolving the agent has shown that this works.
        let mut registrar = PluginRegistrar::new(name);
        let _ = plugin.register_for(&mut registrar, &agent.spec);
        let own = registrar.registered();
        let hooks =
            Phase::ALL.into_iter().map(|phase| (format!("{phase:?}"), own.hooks_for_phase(phase).len()));
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        PluginRow {
            name,
            active: agent.env.active_plugins(&agent.spec).any(|known| known.descriptor().name == name),
            guard: plugin.is_guard(),
            hooks: hooks.filter(|(_, n)| *n > 0).collect(),
            keys: own.key_registrations.iter().map(|key| key.key).collect(),
            actions: sorted(own.scheduled_action_handlers.keys().cloned().collect()),
            effects: sorted(own.effect_handlers.keys().cloned().collect()),
            tools: own.tools.keys().cloned().collect(),
            transforms: own.request_transforms.len(),
            sections: plugin.config_schemas().iter().map(|schema| section(app, agent, schema.key)).collect(),
        }
    };
    agent.env.plugins.iter().map(row).collect()
}

fn section(app: &AppContext, agent: &ResolvedAgent, key: &str) -> SectionRow {
    let value = agent.spec.sections.get(key).cloned();
    let settings = app.foundation.loaded.provenance.origin_in(sections::TABLE, key, "");
    let settings = settings.as_ref().map(Origin::to_string);
    let place = |written: &ParsedAgent| {
        let field = written
            .spec
            .sections
            .contains_key(key)
            .then(|| if written.sets(key) { format!("/{key}") } else { format!("/sections/{key}") });
        field.map(|field| written.place(&field))
    };
    let own = app.agents.get(&agent.spec.id).as_ref().and_then(place);
    let origin = match (settings, own) {
        // Those that hold for all agents are joined with the agent's own.
        (Some(all), Some(own)) if sections::holds_for_all(key) => Some(format!("{all} and {own}")),
        (all, own) => own.or(all),
    };
    SectionRow { name: key.to_owned(), origin: origin.filter(|_| value.is_some()), value }
}

/// One paragraph for each plugin.
pub(crate) fn lines(rows: &[PluginRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let _ = writeln!(text, "{}{}", row.name, if row.active { "" } else { " (not active)" });
        let hooks: Vec<String> = row.hooks.iter().map(|(phase, n)| format!("{phase} {n}")).collect();
        let keys: Vec<String> = row.keys.iter().map(|key| (*key).to_owned()).collect();
        let parts = [
            ("hooks", hooks.join(", ")),
            ("tools", row.tools.join(", ")),
            ("state", keys.join(", ")),
            ("actions", row.actions.join(", ")),
            ("effects", row.effects.join(", ")),
            ("transforms", if row.transforms == 0 { String::new() } else { row.transforms.to_string() }),
        ];
        for (what, names) in parts.iter().filter(|(_, names)| !names.is_empty()) {
            let _ = writeln!(text, "  {what:<11} {}", visible_line(names));
        }
        for section in &row.sections {
            let _ = match (&section.value, &section.origin) {
                (Some(value), Some(origin)) => {
                    writeln!(
                        text,
                        "  [{}]  {}  # {}",
                        section.name,
                        visible_line(&value.to_string()),
                        visible_line(origin)
                    )
                }
                (Some(value), None) => {
                    writeln!(text, "  [{}]  {}", section.name, visible_line(&value.to_string()))
                }
                (None, _) => writeln!(text, "  [{}]  not given", section.name),
            };
        }
    }
    text
}

/// The same with the plugins as headings.
fn headed(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        let mark = if line.starts_with(' ') { "" } else { "── " };
        let _ = writeln!(out, "{mark}{line}");
        out
    })
}

/// `/plugins`: those of the agent that is talked to, or of the one that is named.
pub(crate) fn page(app: &AppContext, words: &str) -> Result<TextPage, AppError> {
    let name = match words.trim() {
        "" => app.agents.current(),
        name => name.to_owned(),
    };
    if !app.agents.names().contains(&name) {
        return Err(app.agents.no_such(&name).into());
    }
    let agent = app.runtime.resolved(&name)?;
    Ok(TextPage {
        title: format!("Plugins · {name}"),
        text: headed(&lines(&rows(app, &agent))),
        ..TextPage::default()
    })
}
