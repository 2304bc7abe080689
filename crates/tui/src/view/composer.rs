//! Renders the composer, with the completions below it.

use std::borrow::Cow;
use std::ops::Range;

use ratatui::layout::Position;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::super::app::{App, Focus};
use super::super::composer::layout;
use super::super::keymap::{Action, KeyContext};
use super::super::palette;
use super::super::status;
use super::super::theme::{Role, Theme};
use super::{ClickTarget, Press, Rendered};
use aye_core::contract::display::visible_line;

/// A terminal with this many rows has room for both edges, whatever else is shown.
const ROOMY: u16 = 20;

/// The separation of the text from what is above and below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// No room for an edge.
    None,
    /// One row above.
    Above,
    /// One row above and one below.
    Both,
}

impl Edge {
    fn rows(self) -> usize {
        match self {
            Edge::None => 0,
            Edge::Above => 1,
            Edge::Both => 2,
        }
    }
}

/// Draws the composer in at most `most` rows, the caret in it: a hint or a gap, the text on its band or in its frame,
/// and the completions.
pub(super) fn composer(app: &App, width: u16, most: usize, theme: &Theme) -> Rendered {
    // A card takes of its room, and does not move it.
    let is_roomy = app.display.size.1 >= ROOMY && most >= 4;
    let edge = match most {
        _ if is_roomy => Edge::Both,
        0..5 => Edge::None,
        5..8 => Edge::Above,
        8.. => Edge::Both,
    };
    let mut picture = Rendered::default();
    let hint = status::hint(app, width, theme);
    let is_airy = hint.is_none() && edge == Edge::Both && app.cards.open.is_empty();
    match hint.or_else(|| status::tasks(app, width, theme)) {
        Some(line) if most > 1 => {
            picture.lines.extend(is_airy.then(Line::default));
            picture.lines.push(line);
        }
        Some(_) | None if edge != Edge::None && app.cards.open.is_empty() => {
            picture.lines.push(Line::default());
        }
        Some(_) | None => {}
    }
    let left = most - picture.lines.len();
    let offered = app
        .completion
        .palette
        .as_ref()
        .map_or(0, |palette| palette.rows.len() + usize::from(!palette.help.is_empty()));
    let for_list = offered.min(left.saturating_sub(1 + edge.rows()));
    let for_text = (left - for_list).saturating_sub(edge.rows()).max(1);

    let band = theme.style(Role::Composer);
    let border = match band.bg {
        Some(_) => Line::styled(" ".repeat(usize::from(width)), band),
        None => Line::styled("─".repeat(usize::from(width)), theme.style(Role::ComposerBorder)),
    };
    if edge != Edge::None {
        picture.lines.push(border.clone());
    }
    let mut text = text(app, width, for_text, theme);
    if band.bg.is_some() {
        for line in &mut text.lines {
            let rest = usize::from(width).saturating_sub(line.width());
            line.spans.push(Span::raw(" ".repeat(rest)));
            for span in &mut line.spans {
                span.style = band.patch(span.style);
            }
        }
    }
    picture.stack(text);
    if edge == Edge::Both {
        picture.lines.push(border);
    }
    if let Some(palette) = app.completion.palette.as_ref().filter(|_| for_list > 0) {
        picture.stack(super::lists::palette(palette, width, for_list, theme));
    }
    picture
}

fn text(app: &App, width: u16, most: usize, theme: &Theme) -> Rendered {
    let text = app.composer.text();
    let rows = layout::rows(text, width.saturating_sub(4).max(1));
    let (row, column) = layout::position(text, &rows, app.composer.caret());
    let first = (row + 1).saturating_sub(most).min(rows.len().saturating_sub(1));
    let has_focus = app.focus == Focus::Composer;
    let mark = theme.style(if has_focus { Role::Accent } else { Role::Dim });
    let marks = app.composer.mark_ranges();
    let selected = app.vim.as_ref().and_then(|vim| vim.selection(&app.composer));
    let unknown = palette::unknown_command(text, &app.skills).map(|name| 0..name.len());
    let mut lines = Vec::new();
    for (i, range) in rows.iter().enumerate().skip(first).take(most) {
        let lead = match (i, i == first) {
            (0, _) => "❯ ",
            (_, true) => "↑ ",
            (_, false) => "  ",
        };
        let mut spans = vec![Span::styled(lead, mark)];
        for (piece, kind) in pieces(range.clone(), &marks, selected.as_ref(), unknown.as_ref()) {
            let shown = visible_line(&text[piece].replace('\t', "    ")).into_owned();
            let style = match kind {
                TextKind::Text => theme.style(Role::Text),
                TextKind::Mark => theme.style(Role::Accent),
                TextKind::Unknown => theme.style(Role::Error),
                TextKind::Selected => theme.style(Role::Text).add_modifier(Modifier::REVERSED),
            };
            spans.push(Span::styled(shown, style));
        }
        lines.push(Line::from(spans));
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
    let targets = (0..lines.len()).map(|at| ClickTarget {
        row: at as u16,
        columns: 0..width,
        press: Press::Text(first + at),
    });
    Rendered { targets: targets.collect(), lines, caret }
}

/// The kind of a part of the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Text,
    /// The mark of a long paste.
    Mark,
    /// The name of a command that does not exist.
    Unknown,
    Selected,
}

/// A row cut where what it is changes.
fn pieces(
    row: Range<usize>,
    marks: &[Range<usize>],
    selected: Option<&Range<usize>>,
    unknown: Option<&Range<usize>>,
) -> Vec<(Range<usize>, TextKind)> {
    let mut cuts = vec![row.start, row.end];
    for range in marks.iter().chain(selected).chain(unknown) {
        cuts.extend([range.start, range.end].into_iter().filter(|at| row.start < *at && *at < row.end));
    }
    cuts.sort_unstable();
    cuts.dedup();
    let is_in = |range: &Range<usize>, at: usize| range.start <= at && at < range.end;
    let kind = |at: usize| match selected {
        Some(range) if is_in(range, at) => TextKind::Selected,
        _ if marks.iter().any(|mark| is_in(mark, at)) => TextKind::Mark,
        _ if unknown.is_some_and(|name| is_in(name, at)) => TextKind::Unknown,
        _ => TextKind::Text,
    };
    cuts.windows(2).map(|cut| (cut[0]..cut[1], kind(cut[0]))).collect()
}

fn placeholder(app: &App) -> Cow<'static, str> {
    let text = if app.focus == Focus::Card {
        ""
    } else if let Some(text) = status::beside_question(app) {
        return Cow::Owned(text);
    } else if app.cards.open.iter().any(|card| !card.is_own()) {
        "Tab answers the other conversation's question"
    } else if app.can_continue() {
        let enter = app.keymap.chord_of(KeyContext::Composer, Action::Send);
        return Cow::Owned(format!("{enter}: continue, or type a message"));
    } else if app.conversation.is_active() {
        let chord = |action| app.keymap.chord_of(KeyContext::Composer, action);
        let up = chord(Action::Up);
        if app.queue.at.is_some() {
            let chord = |action| app.keymap.chord_of(KeyContext::Queue, action);
            let (edit, drop, close) = (chord(Action::Accept), chord(Action::Drop), chord(Action::Close));
            return Cow::Owned(format!("{edit}: edit · {drop}: drop · {close}: keep"));
        }
        if app.queue.rows.len() > 1 {
            return Cow::Owned(format!("{up}: edit or drop queued messages"));
        }
        if !app.queue.rows.is_empty() {
            return Cow::Owned(format!("{up}: edit the last queued message"));
        }
        return Cow::Owned(format!(
            "{}: send now · {}: queue",
            chord(Action::Send),
            chord(Action::FocusCard)
        ));
    } else if app.conversation.transcript.is_empty() {
        "Ask for something. / for commands, @ for files"
    } else {
        ""
    };
    Cow::Borrowed(text)
}
