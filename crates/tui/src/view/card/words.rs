//! The question of a card in the user's words.

use super::super::super::app::App;
use super::super::super::approval::{Card, CardKind};
use super::super::super::host::ProjectServer;
use super::super::super::status::short_path;
use aye_core::contract::display::visible_line;
use aye_core::contract::question::tool_words;
use aye_core::contract::tool::FilePreview;

/// Returns the question, on one line.
pub(in super::super::super) fn question(card: &Card, app: &App) -> String {
    let name = || visible_line(&tool_words(&card.ticket.pending.name)).into_owned();
    match card.kind {
        CardKind::Permission => of_call(card, app),
        CardKind::Plan => "Carry out this plan?".to_owned(),
        CardKind::Trust if card.is_of_tools() => match app.changed_tools.as_slice() {
            [one] => format!("Use the changed tools of {}?", visible_line(&one.server)),
            servers => format!("Use the changed tools of {} MCP servers?", servers.len()),
        },
        CardKind::Trust => match offered(app).as_slice() {
            [] => "Trust the files of this folder?".to_owned(),
            [server] => format!("Use the MCP server {}?", visible_line(&server.name)),
            servers => format!("Use {} MCP servers?", servers.len()),
        },
        CardKind::Ask => match card.question.choice().and_then(|choice| choice.header.as_deref()) {
            Some(header) => format!("The agent asks · {}", visible_line(header)),
            None => "The agent asks".to_owned(),
        },
        CardKind::Form => "The agent asks you to fill in a form".to_owned(),
        CardKind::Unknown if card.ticket.pending.name == "Bash" => {
            "The command was interrupted: its outcome is unknown".to_owned()
        }
        CardKind::Unknown => format!("{} was interrupted: its outcome is unknown", name()),
    }
}

/// The servers that the question of trust is about, if it is about nothing else.
pub(super) fn offered(app: &App) -> Vec<&ProjectServer> {
    if app.untrusted.iter().any(|row| row.servers.is_empty()) {
        return Vec::new();
    }
    app.untrusted.iter().flat_map(|row| &row.servers).collect()
}

fn of_call(card: &Card, app: &App) -> String {
    let is_outside = card.proposed().is_some_and(|proposed| proposed.is_outside);
    let root = card.project(&app.info.project);
    let file = |file: &FilePreview| {
        let path = file.path.strip_prefix(root).unwrap_or(&file.path);
        (short_path(path, app.info.home.as_deref()), file.before.is_none())
    };
    let files: Vec<(String, bool)> = card.previews().iter().map(file).collect();
    card.question.asks(&card.ticket.pending.name, card.arguments(), &files, is_outside)
}
