//! The text that is written, with the list of what is offered below it.

use std::borrow::Cow;

use ratatui::layout::Position;
use ratatui::text::{Line, Span};

use super::super::app::{App, Focus};
use super::super::composer::layout;
use super::super::keymap::{Action, Place};
use super::super::theme::{Role, Theme};
use super::Picture;
use crate::contract::display::visible_line;

/// The text in at most so many rows, the caret in it.
pub(super) fn composer(app: &App, width: u16, most: usize, theme: &Theme) -> Picture {
    let has_rule = most >= 5;
    let offered = app.palette.as_ref().map_or(0, |palette| palette.rows.len());
    let for_list = offered.min(8).min(most.saturating_sub(1 + 2 * usize::from(has_rule)));
    let for_text = (most - for_list).saturating_sub(2 * usize::from(has_rule)).max(1);

    let mut picture = Picture::default();
    if has_rule {
        if app.cards.is_empty() {
            picture.lines.push(Line::default());
        }
        picture.lines.push(Line::styled("─".repeat(usize::from(width)), theme.style(Role::ComposerBorder)));
    }
    picture.stack(text(app, width, for_text, theme));
    if let Some(palette) = app.palette.as_ref().filter(|_| for_list > 0) {
        picture.lines.extend(super::lists::palette(palette, width, for_list, theme));
    }
    picture
}

fn text(app: &App, width: u16, most: usize, theme: &Theme) -> Picture {
    let text = app.composer.text();
    let rows = layout::rows(text, width.saturating_sub(4).max(1));
    let (row, column) = layout::position(text, &rows, app.composer.caret());
    let first = (row + 1).saturating_sub(most).min(rows.len().saturating_sub(1));
    let has_focus = app.focus == Focus::Composer;
    let mark = theme.style(if has_focus { Role::Accent } else { Role::Dim });
    let mut lines = Vec::new();
    for (i, range) in rows.iter().enumerate().skip(first).take(most) {
        let lead = match (i, i == first) {
            (0, _) => "❯ ",
            (_, true) => "↑ ",
            (_, false) => "  ",
        };
        let shown = visible_line(&text[range.clone()].replace('\t', "    ")).into_owned();
        let style = theme.style(Role::Text);
        lines.push(Line::from(vec![Span::styled(lead, mark), Span::styled(shown, style)]));
    }
    if text.is_empty()
        && let Some(line) = lines.first_mut()
    {
        let hint = placeholder(app);
        let room = width.saturating_sub(3);
        line.spans.push(Span::styled(super::truncate(&hint, room), theme.style(Role::Placeholder)));
    }
    let caret = has_focus.then(|| {
        let x = (column as u16 + 2).min(width.saturating_sub(1));
        Position::new(x, (row - first) as u16)
    });
    Picture { lines, caret }
}

fn placeholder(app: &App) -> Cow<'static, str> {
    let text = if app.focus == Focus::Card {
        ""
    } else if app.own_cards() > 0 {
        let chord = |action| app.keymap.chord_of(Place::Composer, action);
        let (answers, enter, behind) =
            (chord(Action::FocusCard), chord(Action::Send), chord(Action::SendBehind));
        return Cow::Owned(if app.keeps_waiting || app.is_awake() {
            format!("{answers} answers; {enter} waits behind it")
        } else if behind.is_empty() {
            format!("{answers} answers; {enter} withdraws it")
        } else {
            format!("{answers} answers; {enter} withdraws it, {behind} waits behind it")
        });
    } else if !app.cards.is_empty() {
        "Tab answers the question of the other conversation"
    } else if app.can_go_on() {
        let enter = app.keymap.chord_of(Place::Composer, Action::Send);
        return Cow::Owned(format!("{enter} goes on where it stopped, or say something else"));
    } else if app.is_awake() {
        "write on: it is sent when this is done"
    } else if app.transcript.is_empty() {
        "Ask for something. / for commands, @ for files"
    } else {
        ""
    };
    Cow::Borrowed(text)
}
