//! A sample of everything that has its own colour, for choosing a theme.

use ratatui::text::{Line, Span};

use super::super::theme::{Role, Theme};

/// Some rows in the colours of a theme.
pub(super) fn sample(theme: &Theme, columns: u16) -> Vec<Line<'static>> {
    let row = |pieces: &[(&'static str, Role)]| {
        let spans = pieces.iter().map(|(text, role)| Span::styled(*text, theme.style(*role))).collect();
        Line::from(super::fit(spans, usize::from(columns)))
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
