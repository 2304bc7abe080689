//! A call edited on its card, and several cards that are about to get one decision.

use ratatui::layout::Position;
use ratatui::text::{Line, Span};

use super::super::super::app::App;
use super::super::super::approval::{Batch, Card};
use super::super::super::composer::{Composer, layout};
use super::super::super::diff::hunks::{Hunk, Hunks};
use super::super::super::diff::{Patch, Show};
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::{Wrap, truncate};
use super::super::Rendered;
use super::super::entry::Colours;
use super::super::text::{indented, marked};
use aye_core::contract::display::{visible, visible_line};
use aye_core::contract::judgement::Ruling;

/// The indent of a hunk's lines.
const HUNK: u16 = 4;
/// The prompt before a command.
pub(super) const LEAD: u16 = 2;

/// All rows of a text that is being changed.
pub(super) fn rows(text: &Composer, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mark = theme.style(Role::Accent);
    layout::rows(text.text(), inner.saturating_sub(LEAD + 1).max(1))
        .into_iter()
        .enumerate()
        .map(|(at, range)| {
            let lead = if at == 0 { "$ " } else { "  " };
            let shown = visible_line(&text.text()[range].replace('\t', "    ")).into_owned();
            Line::from(vec![Span::styled(lead, mark), Span::styled(shown, theme.style(Role::Text))])
        })
        .collect()
}

/// Renders the rows around the caret that fit, and the caret.
pub(super) fn writing(text: &Composer, inner: u16, room: usize, theme: &Theme) -> Rendered {
    let all = rows(text, inner, theme);
    let places = layout::rows(text.text(), inner.saturating_sub(LEAD + 1).max(1));
    let (row, column) = layout::position(text.text(), &places, text.caret());
    let first = (row + 1).saturating_sub(room.max(1));
    let lines: Vec<_> = all.into_iter().skip(first).take(room).collect();
    let x = (column as u16 + LEAD).min(inner.saturating_sub(1));
    let caret = (row - first < lines.len()).then(|| Position::new(x, (row - first) as u16));
    Rendered { lines, caret, ..Rendered::default() }
}

/// The lines of a file at which a hunk starts, one for each place where it is replaced.
fn places(hunks: &Hunks, at: usize) -> String {
    let numbers: Vec<String> = hunks.places().iter().map(|before| (before + at + 1).to_string()).collect();
    match &numbers[..] {
        [] => "at an unknown place".to_owned(),
        [one] => format!("line {one}"),
        [all @ .., last] => format!("lines {} and {last}", all.join(", ")),
    }
}

/// The lines of a hunk.
pub(super) fn patch_of(hunks: &Hunks, hunk: &Hunk) -> Patch {
    let (gone, come) = hunks.lines(hunk);
    let before = hunks.places().first().copied().unwrap_or_default();
    let visible =
        |lines: Vec<String>| lines.iter().map(|line| visible(line).into_owned()).collect::<Vec<_>>();
    Patch::of_change((before + hunk.old.start, before + hunk.new.start), &visible(gone), &visible(come))
}

/// A change in hunks, and the row at which the selected one starts.
pub(super) fn hunks(
    hunks: &Hunks,
    app: &App,
    inner: u16,
    theme: &Theme,
    code: &[Option<Colours>],
) -> (Vec<Line<'static>>, usize) {
    let mut lines = Vec::new();
    let mut row = 0;
    let count = hunks.all().len();
    if hunks.places().len() > 1 {
        let text = format!("replaced in {} places", hunks.places().len());
        lines.extend(Wrap::words(inner).text(&text, theme.style(Role::Dim)));
    }
    for (at, hunk) in hunks.all().iter().enumerate() {
        let is_here = at == hunks.cursor();
        if is_here {
            // What is above the first hunk stays there.
            row = if at == 0 { 0 } else { lines.len() };
        }
        let tick = if hunk.is_kept { "[x]" } else { "[ ]" };
        let word = if hunk.is_kept { "keep" } else { "drop" };
        let text = format!(
            "{} {tick} hunk {} of {count}, {}: {word}",
            if is_here { "▸" } else { " " },
            at + 1,
            places(hunks, hunk.old.start)
        );
        let style = theme.style(if is_here { Role::Accent } else { Role::Text });
        lines.extend(Wrap::words(inner).indent(0, HUNK).text(&text, style));
        let patch = patch_of(hunks, hunk);
        let plain = Theme::plain();
        let theme = if hunk.is_kept { theme } else { &plain };
        let show = Show {
            numbers: !hunks.places().is_empty(),
            colours: code.get(at).and_then(Option::as_ref),
            layout: app.display.layout,
            ..Show::whole(inner.saturating_sub(HUNK).max(1), theme)
        };
        lines.extend(patch.lines(show).0.into_iter().map(|line| indented(line, HUNK)));
    }
    (lines, row)
}

/// Renders the comment stored for the decision.
pub(super) fn comment(card: &Card, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let Some(comment) = &card.comment else { return Vec::new() };
    let lead = vec![Span::styled("comment: ", theme.style(Role::Dim))];
    let wrap = Wrap::words(inner).prefix(lead, vec![Span::raw("  ")]);
    wrap.text(&visible_line(comment), theme.style(Role::Accent))
}

/// Renders the verdict of the rules and the tool's check on the edited version.
pub(super) fn review(card: &Card, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let Some(edit) = &card.edit else { return Vec::new() };
    let (text, role) = match &edit.review {
        None => ("checking the rules…".to_owned(), Role::Dim),
        Some(Err(why)) => (why.clone(), Role::Error),
        Some(Ok(review)) => {
            let role = match review.ruling {
                Ruling::Allow | Ruling::Ask => Role::Dim,
                Ruling::Deny | Ruling::Error => Role::Error,
            };
            // Which rule would allow it is of no use here: the edited call is allowed once.
            let words = review.words.split_once("; add `").map_or(&*review.words, |(words, _)| words);
            let text = match words.strip_prefix("needs approval too") {
                Some(why) => format!("your edit needs approval too{why}"),
                None => format!("your edit: {words}"),
            };
            (text, role)
        }
    };
    Wrap::words(inner).line(&Line::from(marked(&visible_line(&text), role, theme)))
}

/// Returns the title of a batch: the answer it is about to give.
pub(super) fn batch_title(app: &App) -> String {
    match &app.cards.batch {
        Some((Batch::AllowReads, ids)) if ids.len() == 1 => "Allow this read-only call?".to_owned(),
        Some((Batch::AllowReads, ids)) => format!("Allow these {} read-only calls?", ids.len()),
        Some((Batch::DenyRest, ids)) if ids.len() == 1 => "Deny this call?".to_owned(),
        Some((Batch::DenyRest, ids)) => format!("Deny these {} calls?", ids.len()),
        None => String::new(),
    }
}

/// The calls that are about to be answered at once, each whole.
pub(super) fn batch(app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let Some((_, ids)) = &app.cards.batch else { return Vec::new() };
    let mut lines = Vec::new();
    for (at, card) in app.cards.open.iter().enumerate().filter(|(_, card)| ids.contains(&card.id)) {
        let text = format!("{}. {}", at + 1, super::words::question(card, app));
        lines.push(Line::styled(truncate(&text, inner), theme.style(Role::CardTitle)));
        lines.extend(super::call(card, app, inner.saturating_sub(2).max(1), theme, &[]).into_iter().map(
            |line| {
                let mut spans = vec![Span::raw("  ")];
                spans.extend(line.spans);
                Line { spans, ..line }
            },
        ));
    }
    lines
}
