//! Entries of a document as lines: files and hunks.

use ratatui::text::{Line, Span};

use super::super::diff::Show;
use super::super::theme::Role;
use super::super::transcript::EntryKind;
use super::super::viewer::{DocEntry, DocFile, DocHunk};
use super::super::wrap::{truncate, width};
use super::entry::EntryLayout;
use super::text::indented;
use aye_core::contract::display::visible_line;
use aye_core::contract::snapshot::FileChangeKind;

/// The indent of hunks.
const INDENT: u16 = 2;

/// Returns whether no blank line separates an entry from the one above it.
pub(super) fn stands_close(kind: &EntryKind) -> bool {
    matches!(kind, EntryKind::Document(doc_entry) if matches!(**doc_entry, DocEntry::Hunk(_)))
}

/// `new src/a.rs +3 −1`, which leads to the file.
pub(super) fn file(file: &DocFile, page: EntryLayout<'_>) -> Line<'static> {
    let theme = page.theme;
    let word = match file.change {
        FileChangeKind::Created => "new ",
        FileChangeKind::Changed => "",
        FileChangeKind::Deleted => "deleted ",
    };
    let title = theme.style(Role::CardTitle);
    let counts = match file.counts {
        Some((added, removed)) => vec![
            Span::styled(format!(" +{added}"), theme.style(Role::DiffAdd)),
            Span::styled(format!(" −{removed}"), theme.style(Role::DiffDel)),
        ],
        None => vec![Span::styled(": binary, or too long to show", theme.style(Role::Dim))],
    };
    let used = width(word) + counts.iter().map(Span::width).sum::<usize>();
    let room = usize::from(page.width).saturating_sub(used).max(8);
    let shown = truncate(&visible_line(&file.shown), u16::try_from(room).unwrap_or(u16::MAX));
    let link = file.path.as_ref().map(|path| theme.links().file(path)).unwrap_or_default();
    let mut spans = vec![Span::styled(word, title), Span::styled(shown, title.patch(link))];
    spans.extend(counts);
    Line::from(super::fit(spans, usize::from(page.width)))
}

/// Renders a hunk: its position in the file, and its lines.
pub(super) fn hunk(hunk: &DocHunk, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let theme = page.theme;
    let inner = page.width.saturating_sub(INDENT).max(1);
    let continues_hunk = if hunk.continues_hunk { " continued" } else { "" };
    let mut head =
        vec![Span::styled(format!("{}{continues_hunk}", hunk.patch.place()), theme.style(Role::DiffHunk))];
    let dim = theme.style(Role::Dim);
    for (sign, count) in [('+', hunk.patch.added), ('−', hunk.patch.removed)] {
        head.extend((count > 0).then(|| Span::styled(format!(" {sign}{count}"), dim)));
    }
    let mut lines = vec![Line::from(super::fit(head, usize::from(inner)))];
    let show = Show { colours: page.colours, layout: page.layout, ..Show::whole(inner, theme) };
    lines.extend(hunk.patch.lines(show).0);
    lines
        .into_iter()
        .map(|line| {
            let style = line.style;
            let spans = line.spans.into_iter().map(|span| span.patch_style(style)).collect::<Vec<_>>();
            indented(Line::from(spans), INDENT)
        })
        .collect()
}
