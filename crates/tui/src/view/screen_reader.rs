//! Questions with choices and forms in words, for a screen reader: the question and each input once, in a line of its
//! own, then only what the arrows select.

use super::super::app::{App, Focus};
use super::super::approval::ask::AskRow;
use super::super::approval::{Card, CardKind, CardStage};
use super::super::keymap::{Action, KeyContext};
use aye_core::contract::display::{visible, visible_line};
use aye_core::contract::surface::{Field, SurfaceNode, text_of};

/// Returns the current card if it is put into words here: a question or a form.
pub(super) fn spoken_card(app: &App) -> Option<&Card> {
    let card = app.current_card().filter(|_| app.cards.batch.is_none())?;
    let is_open = matches!(card.stage, CardStage::Open | CardStage::Deciding(_));
    (matches!(card.kind, CardKind::Ask | CardKind::Form) && is_open).then_some(card)
}

/// Returns the whole question, in its original order.
pub(super) fn all(card: &Card, app: &App) -> Vec<String> {
    let mut lines = Vec::new();
    match card.kind {
        CardKind::Ask => {
            let header = card.question.choice().and_then(|choice| choice.header.as_deref());
            let about = header.map_or(String::new(), |header| format!(" · {}", visible_line(header).trim()));
            lines.push(format!("The agent asks{about}:"));
            lines.extend(paragraphs(card.asked()));
            let count = if card.ask.choices().is_empty() { 0 } else { card.ask.rows() };
            lines.extend((0..count).map(|at| choice(card, at, false)));
        }
        CardKind::Form => {
            lines.push("The agent asks you to fill in a form.".to_owned());
            let form = card.fresh_form();
            let count = form.stops().len();
            let mut at = 0;
            render_node(&form.surface().picture(), card, count, &mut at, &mut lines);
        }
        CardKind::Permission | CardKind::Unknown | CardKind::Plan | CardKind::Trust => {}
    }
    if let Some(problem) = &card.problem {
        lines.push(visible_line(problem).into_owned());
    }
    lines.push(keys(card, app));
    lines
}

/// Returns the item selected with the arrows.
pub(super) fn here(card: &Card, app: &App) -> Vec<String> {
    if app.focus != Focus::Card || card.line().is_some() || card.is_deciding() {
        return Vec::new();
    }
    match card.kind {
        CardKind::Ask => {
            let line = card.ask.cursor().map(|at| choice(card, at, true));
            line.map(|line| format!("At {line}")).into_iter().collect()
        }
        CardKind::Form => {
            let stops = card.surface.stops();
            let at = card.surface.cursor().filter(|at| *at < stops.len());
            if card.surface.skips() {
                return vec!["At: skip this question".to_owned()];
            }
            at.map(|at| format!("At {}", stop(&stops[at], card, at, stops.len()))).into_iter().collect()
        }
        CardKind::Permission | CardKind::Unknown | CardKind::Plan | CardKind::Trust => selected(card, app),
    }
}

/// The answer that the arrows selected.
fn selected(card: &Card, app: &App) -> Vec<String> {
    let count = card.choices().len();
    let at = card.choice.filter(|_| matches!(card.stage, CardStage::Open));
    let words = at.and_then(|at| Some((at, super::card::answer_at(card, app, at)?)));
    words.map(|(at, words)| format!("At answer {} of {count}: {words}", at + 1)).into_iter().collect()
}

/// Returns the text being typed on the card, as the last line.
pub(super) fn writing(card: &Card) -> Option<String> {
    let line = card.line()?;
    let (label, is_secret) = card.surface.asks();
    let text = line.text();
    let text = if is_secret { "*".repeat(text.chars().count()) } else { visible_line(text).into_owned() };
    let label =
        if card.kind == CardKind::Form { visible_line(&label).into_owned() } else { "answer: ".to_owned() };
    Some(format!("{label}{text}"))
}

fn keys(card: &Card, app: &App) -> String {
    let chord = |action: Action| app.keymap.chord_of(KeyContext::Card, action);
    let (tab, accept) = (app.keymap.chord_of(KeyContext::Composer, Action::FocusCard), chord(Action::Accept));
    if card.kind == CardKind::Form {
        return format!(
            "{tab} selects the question; then the arrows move between fields, {accept} edits, ticks or presses, and \
             the last row skips it."
        );
    }
    let ask = &card.ask;
    let how = match (ask.choices().is_empty(), ask.is_multi(), ask.takes_text()) {
        (true, ..) => "Type the answer",
        (false, false, true) => "Type the number of a choice, or an answer of your own",
        (false, false, false) => "Type the number of a choice",
        (false, true, true) => "Type the numbers of the choices, or an answer of your own",
        (false, true, false) => "Type the numbers of the choices",
    };
    format!("{how}, then {accept}; `skip` skips the question.")
}

fn paragraphs(text: &str) -> Vec<String> {
    visible(text).lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn choice(card: &Card, at: usize, with_ticks: bool) -> String {
    let (number, count) = (at + 1, card.ask.rows());
    let Some(choice) = card.ask.choices().get(at) else {
        let words = match card.ask.row(at) {
            Some(AskRow::Text) => "something else, in your own words",
            Some(AskRow::Choice(_) | AskRow::Skip) | None => "skip this question",
        };
        return format!("choice {number} of {count}: {words}");
    };
    let mut line = format!("choice {number} of {count}: {}", visible_line(&choice.label));
    if let Some(more) = &choice.description {
        line = format!("{line}, {}", visible_line(more));
    }
    if card.ask.is_multi() && with_ticks {
        line.push_str(if card.ask.is_chosen(at) { ", ticked" } else { ", not ticked" });
    }
    line
}

/// Renders a surface from start to end.
fn render_node(piece: &SurfaceNode, card: &Card, count: usize, at: &mut usize, lines: &mut Vec<String>) {
    match piece {
        SurfaceNode::Card(inner)
        | SurfaceNode::Column(inner)
        | SurfaceNode::Row(inner)
        | SurfaceNode::List(inner) => {
            for piece in inner {
                render_node(piece, card, count, at, lines);
            }
        }
        SurfaceNode::Table { columns, rows } => {
            for (n, row) in rows.iter().enumerate() {
                let cells = row.iter().enumerate().map(|(n, cell)| match columns.get(n) {
                    Some(name) => format!("{}: {}", visible_line(name), visible_line(cell)),
                    None => visible_line(cell).into_owned(),
                });
                let cells = cells.collect::<Vec<_>>().join(", ");
                lines.push(format!("row {} of {}: {cells}", n + 1, rows.len()));
            }
        }
        SurfaceNode::Text { text, .. } => lines.extend(paragraphs(text)),
        SurfaceNode::Image { caption } => lines.push(format!("picture: {}", visible_line(caption))),
        SurfaceNode::Divider => {}
        SurfaceNode::Unknown(what) => lines.push(format!("{} is not shown here", visible_line(what))),
        SurfaceNode::Button(button) if button.action.is_empty() => {
            lines.push(format!("button without an action: {}", visible_line(&button.label)));
        }
        SurfaceNode::Field(_) | SurfaceNode::Check(_) | SurfaceNode::Button(_) => {
            lines.push(stop(piece, card, *at, count));
            *at += 1;
        }
    }
}

/// Something to put in or to press: label, kind, value, whether it is needed, which it is of how many.
fn stop(piece: &SurfaceNode, card: &Card, at: usize, count: usize) -> String {
    let place = format!("{} of {count}", at + 1);
    match piece {
        SurfaceNode::Check(field) => {
            let tick = if field.value == true { "ticked" } else { "not ticked" };
            format!("{}, checkbox, {tick}, {place}", visible_line(&field.label))
        }
        SurfaceNode::Button(button) => {
            let label = if button.label.is_empty() { &button.action } else { &button.label };
            format!("{}, button, {place}", visible_line(label))
        }
        SurfaceNode::Field(field) => {
            let text = text_of(&field.value);
            let value = match (text.is_empty(), field.is_secret) {
                (true, _) => "empty".to_owned(),
                (false, true) => "hidden".to_owned(),
                (false, false) => visible_line(&text).into_owned(),
            };
            let kind = if field.is_secret { "hidden text" } else { "text" };
            let needed = if is_needed(field, card) { ", needed" } else { "" };
            format!("{}, {kind}, {value}{needed}, {place}", visible_line(&field.label))
        }
        SurfaceNode::Card(_)
        | SurfaceNode::Column(_)
        | SurfaceNode::Row(_)
        | SurfaceNode::List(_)
        | SurfaceNode::Table { .. }
        | SurfaceNode::Text { .. }
        | SurfaceNode::Image { .. }
        | SurfaceNode::Divider
        | SurfaceNode::Unknown(_) => place,
    }
}

/// Returns whether an answer without this field is rejected; `false` if the label already says so.
fn is_needed(field: &Field, card: &Card) -> bool {
    let Some(schema) = &card.ticket.suspension.response_schema else { return false };
    let name = field.path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let lists = ["/then/properties/dataModel/required", "/properties/dataModel/required"];
    let mut names = lists.iter().filter_map(|list| schema.pointer(list)?.as_array()).flatten();
    !field.label.contains("(needed") && names.any(|needed| needed.as_str() == Some(name))
}
