//! The model for a screen reader: the same words as on the screen, without frames, as lines that are read once.

use ratatui::text::Line;

use super::super::app::{App, Focus, RunState};
use super::super::keymap::{Action, KeyContext};
use super::super::picker::Picker;
use super::super::theme::Theme;
use aye_core::contract::display::visible_line;

/// The maximum lines of a question; the rest is in the conversation's list.
pub(super) const MOST: usize = 400;

/// The words of a line, without frames.
pub fn words(line: &Line<'_>) -> String {
    let mut text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
    if let Some(message) = text.strip_prefix("❯ ") {
        text = format!("You: {message}");
    }
    let plain = |c: char| match c {
        '─' | '━' | '═' | '╌' | '┄' => '-',
        '│' | '┃' | '║' | '▏' | '▎' | '▌' => '|',
        '\u{2500}'..='\u{257f}' => '+',
        other => other,
    };
    // The mark of the program says nothing.
    let is_mark = |c: &char| matches!(c, '▗' | '▖' | '▘' | '▝' | '▙' | '▛' | '▜' | '▟');
    let text: String = text.chars().filter(|c| !is_mark(c)).map(plain).collect();
    let text = text.trim_end();
    let is_rule = !text.trim().is_empty() && text.chars().all(|c| matches!(c, '-' | '+' | '|' | ' '));
    if is_rule { String::new() } else { text.to_owned() }
}

/// The last line: what is being written, or where keys go.
pub fn prompt(app: &App) -> String {
    if app.overlays.picker.is_some() {
        let filter = app.overlays.picker.as_ref().map(Picker::filter).unwrap_or_default();
        return format!("list> {}", visible_line(filter));
    }
    match app.focus {
        Focus::Card => {
            let written = super::screen_reader::spoken_card(app).and_then(super::screen_reader::writing);
            written.unwrap_or_else(|| "question> ".to_owned())
        }
        Focus::Composer => format!("> {}", visible_line(&app.composer.text().replace('\n', " / "))),
    }
}

/// Returns the current lines of each topic.
pub fn topics(app: &App) -> Vec<(&'static str, Vec<String>)> {
    let run = match app.conversation.run {
        RunState::Idle if app.conversation.transcript.is_empty() => "",
        RunState::Idle => "Ready.",
        RunState::Starting(_) | RunState::Running(_) => "Working.",
        RunState::Stopping(_) => "Stopping.",
        RunState::Waiting => "Waiting for you.",
    };
    let one = |text: String| if text.is_empty() { Vec::new() } else { vec![text] };
    let hint = app.display.hint.as_ref().map(|(hint, _)| visible_line(hint).into_owned()).unwrap_or_default();
    vec![
        ("run", one(run.to_owned())),
        (
            "last",
            one(super::spoken_last_here(app).map_or_else(String::new, |last| format!("Last here: {last}"))),
        ),
        ("card", card(app)),
        ("here", here(app)),
        ("list", list(app)),
        ("queue", one(queue(app))),
        ("hint", one(hint)),
    ]
}

fn queue(app: &App) -> String {
    match app.queue.unsent.len() + app.queue.rows.len() {
        0 => String::new(),
        count => match app.queue.rows.iter().enumerate().find(|(_, row)| Some(row.id) == app.queue.at) {
            Some((at, row)) => {
                let chord = |action| app.keymap.chord_of(KeyContext::Queue, action);
                let (edit, drop) = (chord(Action::Accept), chord(Action::Drop));
                let text = visible_line(row.shown.as_ref().unwrap_or(&row.text));
                format!("Queued {} of {count}: {text}. {edit}: edit, {drop}: drop.", at + 1)
            }
            None => format!("{count} queued."),
        },
    }
}

fn card(app: &App) -> Vec<String> {
    if app.cards.open.is_empty() || app.overlays.picker.is_some() {
        return Vec::new();
    }
    let count = app.cards.open.len();
    if let Some(card) = super::screen_reader::spoken_card(app) {
        let mut all = vec![format!("Question {} of {count}.", app.cards.at + 1)];
        all.extend(super::screen_reader::all(card, app));
        return all;
    }
    let picture = super::card::cards(app, app.display.size.0, MOST, &Theme::plain(), &[]);
    let lines = picture.lines.iter().map(|line| {
        let text = words(line);
        let text = text.trim_start_matches('|').trim();
        text.to_owned()
    });
    let mut all = vec![format!("Question {} of {count}.", app.cards.at + 1)];
    all.extend(lines.filter(|line| !line.is_empty()));
    if app.focus == Focus::Composer {
        all.push("Answer with yes, no, always, skip or stop, and Enter; Tab for its keys.".to_owned());
    }
    all
}

fn here(app: &App) -> Vec<String> {
    let card = app.current_card().filter(|_| app.overlays.picker.is_none() && app.cards.batch.is_none());
    card.map(|card| super::screen_reader::here(card, app)).unwrap_or_default()
}

fn list(app: &App) -> Vec<String> {
    let Some(picker) = &app.overlays.picker else {
        let row = app
            .completion
            .palette
            .as_ref()
            .filter(|palette| palette.is_chosen)
            .and_then(|palette| palette.chosen());
        return row.map_or_else(Vec::new, |row| {
            vec![visible_line(&format!("{}: {}", row.label, row.detail)).into_owned()]
        });
    };
    if picker.is_loading() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{}: {} rows. Up and down select, Enter uses, Escape closes.",
        picker.kind.title(),
        picker.count()
    )];
    if let Some(row) = picker.chosen() {
        let mut text = row.label.clone();
        for more in [row.unusable.as_deref().unwrap_or(&row.detail), &row.note] {
            if !more.is_empty() {
                text = format!("{text}, {more}");
            }
        }
        lines.push(format!("{}. {}", picker.selected() + 1, visible_line(&text)));
    }
    lines
}
