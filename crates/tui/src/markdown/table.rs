//! Tables fitted to the width: columns shrink and wrap; when not even that fits, each row becomes a record.

use pulldown_cmark::Alignment;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::theme::{Role, Theme};
use crate::wrap::{Wrap, width};

/// No column gets narrower than this.
const NARROWEST: usize = 5;

/// The cells of a table; the first row is its head.
pub(crate) struct Table {
    alignments: Vec<Alignment>,
    pub(crate) rows: Vec<Vec<Vec<Span<'static>>>>,
}

impl Table {
    pub(crate) fn new(alignments: Vec<Alignment>) -> Table {
        Table { alignments, rows: Vec::new() }
    }

    pub(crate) fn lines(mut self, available: u16, theme: &Theme) -> Vec<Line<'static>> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        if columns == 0 {
            return Vec::new();
        }
        for row in &mut self.rows {
            row.resize_with(columns, Vec::new);
        }
        for cell in self.rows.first_mut().into_iter().flatten() {
            for span in cell {
                span.style = span.style.patch(theme.style(Role::Strong));
            }
        }
        match self.widths(columns, usize::from(available)) {
            Some(widths) => self.grid(&widths, theme),
            None => self.records(available, theme),
        }
    }

    /// Returns the width of each column: its natural width if possible, otherwise the widest columns shrink
    /// first.
    fn widths(&self, columns: usize, available: usize) -> Option<Vec<usize>> {
        let natural = |column: usize| {
            let cell = |row: &Vec<Vec<Span<'static>>>| {
                row[column].iter().flat_map(|span| span.content.split('\n')).map(width).sum::<usize>()
            };
            self.rows.iter().map(cell).max().unwrap_or(0).max(1)
        };
        let mut widths: Vec<usize> = (0..columns).map(natural).collect();
        let between = 3 * (columns - 1);
        let least: usize = widths.iter().map(|width| (*width).min(NARROWEST)).sum();
        if least + between > available {
            return None;
        }
        let mut over = (widths.iter().sum::<usize>() + between).saturating_sub(available);
        while over > 0 {
            // Lower all of the widest columns to the next width, or as much as needed.
            let widest = widths.iter().copied().max()?;
            let count = widths.iter().filter(|width| **width == widest).count();
            let next = widths
                .iter()
                .copied()
                .filter(|width| *width < widest)
                .max()
                .unwrap_or(0)
                .max(NARROWEST.min(widest));
            let step = (widest - next.min(widest - 1)).min(over.div_ceil(count)).max(1);
            for width in widths.iter_mut().filter(|width| **width == widest) {
                let cut = step.min(over);
                *width -= cut;
                over -= cut;
            }
        }
        Some(widths)
    }

    fn grid(&self, widths: &[usize], theme: &Theme) -> Vec<Line<'static>> {
        let rule = theme.style(Role::Rule);
        let mut lines = Vec::new();
        for (n, row) in self.rows.iter().enumerate() {
            let cells: Vec<Vec<Line<'static>>> = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| {
                    let mut lines = Vec::new();
                    Wrap::words(*width as u16).spans_into(cell, Style::default(), &mut lines);
                    lines
                })
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(1);
            for y in 0..height {
                let mut spans: Vec<Span<'static>> = Vec::new();
                for (column, cell) in cells.iter().enumerate() {
                    if column > 0 {
                        spans.push(Span::styled(" │ ", rule));
                    }
                    let content = cell.get(y).cloned().unwrap_or_default();
                    let free = widths[column].saturating_sub(content.width());
                    let left = match self.alignments.get(column) {
                        Some(Alignment::Right) => free,
                        Some(Alignment::Center) => free / 2,
                        _ => 0,
                    };
                    pad(&mut spans, left);
                    spans.extend(content.spans);
                    if column + 1 < cells.len() {
                        pad(&mut spans, free - left);
                    }
                }
                lines.push(Line::from(spans));
            }
            if n == 0 {
                let parts: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(Line::from(Span::styled(parts.join("─┼─"), rule)));
            }
        }
        lines
    }

    /// `head: cell` for each cell, rows apart.
    fn records(&self, available: u16, theme: &Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let Some((head, rows)) = self.rows.split_first() else {
            return lines;
        };
        if rows.is_empty() {
            for cell in head {
                Wrap::words(available).spans_into(cell, Style::default(), &mut lines);
            }
        }
        for (n, row) in rows.iter().enumerate() {
            if n > 0 {
                let rule = "─".repeat(usize::from(available.min(12)));
                lines.push(Line::from(Span::styled(rule, theme.style(Role::Rule))));
            }
            for (name, cell) in head.iter().zip(row) {
                let mut spans = name.clone();
                if !name.is_empty() {
                    spans.push(Span::styled(": ", theme.style(Role::Dim)));
                }
                spans.extend(cell.iter().cloned());
                Wrap::words(available).indent(0, 2).spans_into(&spans, Style::default(), &mut lines);
            }
        }
        lines
    }
}

fn pad(spans: &mut Vec<Span<'static>>, columns: usize) {
    if columns > 0 {
        spans.push(Span::raw(" ".repeat(columns)));
    }
}
