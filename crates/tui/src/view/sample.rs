//! A sample of everything that has its own colour, for choosing a theme.

use ratatui::text::{Line, Span};

use super::super::theme::{Role, Theme};

/// The rows of the smallest sample, with its frame.
pub(super) const SMALLEST: usize = 5;
/// The columns of the frame, where there are as many.
const COLUMNS: usize = 56;

/// A frame with rows in the colours of a theme: all of them, those that differ most in a small terminal, or none in
/// `most` rows that are too few.
pub(super) fn sample(theme: &Theme, columns: u16, most: usize) -> Vec<Line<'static>> {
    let columns = usize::from(columns).min(COLUMNS);
    let mut rows = rows(theme, columns.saturating_sub(4));
    if rows.len() + 2 > most {
        rows.drain(..rows.len() - (SMALLEST - 2));
    }
    if rows.len() + 2 > most || columns < 12 {
        return Vec::new();
    }
    let dim = theme.style(Role::Dim);
    let edge = |text: String| Line::from(Span::styled(text, dim));
    let mut lines = vec![edge(format!("╭ sample {}╮", "─".repeat(columns - 10)))];
    lines.extend(rows.into_iter().map(|row| {
        let blank = (columns - 4).saturating_sub(row.width());
        let mut spans = vec![Span::styled("│ ", dim)];
        spans.extend(row.spans);
        spans.extend([Span::raw(" ".repeat(blank)), Span::styled(" │", dim)]);
        Line::from(spans)
    }));
    lines.push(edge(format!("╰{}╯", "─".repeat(columns - 2))));
    lines
}

fn rows(theme: &Theme, columns: usize) -> Vec<Line<'static>> {
    let row = |pieces: &[(&'static str, Role)]| {
        let spans = pieces.iter().map(|(text, role)| Span::styled(*text, theme.style(*role))).collect();
        Line::from(super::fit(spans, columns))
    };
    vec![
        row(&[("❯ ", Role::Accent), ("why does it fail?", Role::User)]),
        row(&[
            ("  It is in ", Role::Text),
            ("main.rs", Role::Code),
            (", ", Role::Text),
            ("see here", Role::Link),
            (" ", Role::Text),
            ("as was thought", Role::Thinking),
        ]),
        row(&[
            ("✓ ", Role::Success),
            ("Edit", Role::Tool),
            ("  src/main.rs  ", Role::Text),
            ("done", Role::Dim),
        ]),
        row(&[
            ("    3 ", Role::LineNumber),
            ("- let n = ", Role::DiffDel),
            ("one", Role::DiffDelWord),
            ("();", Role::DiffDel),
        ]),
        row(&[
            ("    3 ", Role::LineNumber),
            ("+ let n = ", Role::DiffAdd),
            ("two", Role::DiffAddWord),
            ("();", Role::DiffAdd),
        ]),
        row(&[
            ("    ", Role::Text),
            ("fn ", Role::CodeKeyword),
            ("main", Role::CodeFunction),
            ("() { ", Role::CodePunctuation),
            ("42", Role::CodeConstant),
            (", ", Role::CodePunctuation),
            ("\"text\"", Role::CodeString),
            (" } ", Role::CodePunctuation),
            ("// a word", Role::CodeComment),
        ]),
        row(&[
            ("  failed ", Role::Error),
            ("careful ", Role::Warning),
            ("worked ", Role::Success),
            ("note ", Role::Info),
            ("chosen", Role::Selection),
        ]),
    ]
}
