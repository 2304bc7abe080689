//! File changes as a page of diffs.

use ratatui::text::{Line, Span};

use super::super::diff::{Show, diff_lines, header};
use super::super::theme::Role;
use super::super::wrap::{Wrap, truncate};
use super::entry::EntryLayout;
use aye_core::contract::display::{visible, visible_line};
use aye_core::contract::snapshot::{Changes, FileChange, FileChangeKind};

/// The maximum lines of a file: of each one of several, and of a single one.
const LINES: usize = 60;
const ONLY_LINES: usize = 400;
/// The indent of diffs.
const INDENT: u16 = 2;

/// Renders the changes file by file.
pub(super) fn changes(changes: &Changes, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let theme = page.theme;
    let mut lines = Vec::new();
    let count = changes.files.len() + changes.more;
    let title = match count {
        0 => "no differences".to_owned(),
        1 => "1 file differs".to_owned(),
        n => format!("{n} files differ"),
    };
    lines.push(Line::styled(title, theme.style(Role::Accent)));
    for note in &changes.notes {
        lines.extend(
            Wrap::words(page.width).indent(INDENT, INDENT).text(&visible(note), theme.style(Role::Dim)),
        );
    }
    let most = if changes.files.len() == 1 { ONLY_LINES } else { LINES };
    for file in &changes.files {
        lines.push(Line::default());
        lines.extend(one(file, most, page));
    }
    if changes.more > 0 {
        lines.push(Line::default());
        let text =
            format!("  and {} more files; /diff PATH shows those whose path contains PATH", changes.more);
        lines.push(Line::styled(truncate(&text, page.width), theme.style(Role::Dim)));
    }
    lines
}

fn one(file: &FileChange, most: usize, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let theme = page.theme;
    let path = visible_line(&file.about.path).into_owned();
    let word = match file.about.change {
        FileChangeKind::Created => "new ",
        FileChangeKind::Changed => "",
        FileChangeKind::Deleted => "deleted ",
    };
    let width = page.width.saturating_sub(INDENT).max(1);
    let Some(preview) = &file.preview else {
        let text = format!("{word}{path}: binary, or too long to show");
        return vec![Line::styled(truncate(&text, page.width), theme.style(Role::CardTitle))];
    };
    let text = |text: &Option<String>| visible(text.as_deref().unwrap_or_default()).into_owned();
    let (old, new) = (text(&preview.old_text), text(&preview.new_text));
    let diff = diff_lines(&old, &new, Show { most, layout: page.layout, ..Show::whole(width, theme) });
    let mut lines = vec![header(&format!("{word}{path}"), diff.added, diff.removed, page.width, theme)];
    lines.extend(diff.lines.into_iter().map(|line| {
        let mut spans = vec![Span::raw(" ".repeat(usize::from(INDENT)))];
        spans.extend(line.spans.into_iter().map(|span| span.patch_style(line.style)));
        Line::from(spans)
    }));
    lines
}
