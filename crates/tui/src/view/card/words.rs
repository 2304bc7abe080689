//! The question of a card in the user's words.

use super::super::super::app::App;
use super::super::super::approval::{Card, CardKind};
use super::super::super::status::short_path;
use aye_core::contract::display::visible_line;

/// Returns the question, on one line.
pub(super) fn question(card: &Card, app: &App) -> String {
    let name = || visible_line(&card.ticket.pending.name).into_owned();
    match card.kind {
        CardKind::Permission => of_call(card, app),
        CardKind::Plan => "Carry out this plan?".to_owned(),
        CardKind::Trust => "Trust the files of this folder?".to_owned(),
        CardKind::Ask => match card.question.choice().and_then(|choice| choice.header.as_deref()) {
            Some(header) => format!("The agent asks · {}", visible_line(header)),
            None => "The agent asks".to_owned(),
        },
        CardKind::Form => "The agent asks you to fill in a form".to_owned(),
        CardKind::Unknown => format!("{} was interrupted: its outcome is unknown", name()),
    }
}

fn of_call(card: &Card, app: &App) -> String {
    let proposed = card.proposed();
    let outside =
        if proposed.is_some_and(|proposed| proposed.is_outside) { ", outside this project" } else { "" };
    match card.previews() {
        [] => {}
        [file] => {
            let verb = if file.before.is_none() { "Create" } else { "Edit" };
            let root = card.project(&app.info.project);
            let path = file.path.strip_prefix(root).unwrap_or(&file.path);
            let path = short_path(path, app.info.home.as_deref());
            return format!("{verb} {}{outside}?", visible_line(&path));
        }
        files => return format!("Change {} files?", files.len()),
    }
    let text = match (card.command(), card.description(), proposed.and_then(|it| it.does.as_deref())) {
        (Some(_), Some(text), _) => sentence(&text),
        (Some(_), None, _) => "Run this command".to_owned(),
        (None, _, Some("needs approval") | None) => {
            format!("Allow {}", visible_line(&card.ticket.pending.name))
        }
        (None, _, Some(does)) => imperative(&visible_line(does)),
    };
    let how = match (card.in_terminal(), card.in_background()) {
        (true, _) => ", in a terminal in the background",
        (false, true) => ", in the background",
        (false, false) => "",
    };
    format!("{text}{how}?")
}

/// The text with a capital, and without the mark at its end.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches(['.', '?', '!', '…', ':']);
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// `opens x` as `Open x`.
fn imperative(does: &str) -> String {
    let (verb, rest) = does.split_once(' ').unwrap_or((does, ""));
    let stem = ["ches", "shes", "sses", "xes"].iter().any(|end| verb.ends_with(end));
    let stem = if stem { verb.strip_suffix("es") } else { verb.strip_suffix('s') };
    sentence(&format!("{} {rest}", stem.unwrap_or(verb)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_becomes_a_request() {
        for (does, text) in [
            ("opens /etc/shadow, outside this project", "Open /etc/shadow, outside this project"),
            ("fetches https://example.com", "Fetch https://example.com"),
            ("changes a note", "Change a note"),
            ("searches this folder", "Search this folder"),
            ("uses the network", "Use the network"),
        ] {
            assert_eq!(imperative(does), text);
        }
        assert_eq!(sentence(" run the tests. "), "Run the tests");
    }
}
