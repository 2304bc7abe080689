//! A diff as styled lines: unified, or side by side.

use aye_core::contract::amount::counted;
use aye_core::contract::diff::MarkedLine;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::patch::{DiffSpan, Patch, marked};
use super::{DiffLayout, MAX_CHARACTERS, NUMBERS_FROM};
use crate::highlight::{CodeBlock, Pieces};
use crate::theme::{Role, Theme};
use crate::wrap::{Wrap, truncate};

/// The colours of what a change shows.
#[derive(Debug)]
pub struct Colours {
    /// Of the old lines.
    pub old: CodeBlock,
    /// Of the new lines.
    pub new: CodeBlock,
}

impl Colours {
    /// Whether the colours are known, or never will be.
    pub fn are_ready(&self) -> bool {
        [&self.old, &self.new].iter().all(|block| block.is_empty() || block.is_ready(block.len() - 1))
    }
}

/// The display options of a change.
#[derive(Clone, Copy, Debug)]
pub struct Show<'a> {
    /// Columns.
    pub width: u16,
    /// Colours by meaning.
    pub theme: &'a Theme,
    /// Lines of the change at most.
    pub most: usize,
    /// Colours of code.
    pub colours: Option<&'a Colours>,
    /// Whether its line numbers are those of a file.
    pub numbers: bool,
    /// Below each other or side by side.
    pub layout: DiffLayout,
}

impl<'a> Show<'a> {
    /// All of a change of a file, without colours of code.
    pub fn whole(width: u16, theme: &'a Theme) -> Show<'a> {
        Show { width, theme, most: usize::MAX, colours: None, numbers: true, layout: DiffLayout::Auto }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum LineKind {
    Same,
    Gone,
    New,
}

impl Patch {
    /// The lines to show, each no wider than asked, and how many of the change are not among them.
    pub fn lines(&self, show: Show<'_>) -> (Vec<Line<'static>>, usize) {
        let is_wide = show.layout.has_sides(show.width) && self.added > 0 && self.removed > 0;
        let mut view = View {
            show,
            digits: self.last.max(1).to_string().len(),
            show_cr: self.show_cr,
            column: usize::from(show.width.saturating_sub(3) / 2),
            lines: Vec::new(),
            shown: 0,
            hidden: 0,
        };
        if let Some(note) = &self.above {
            view.note(note);
        }
        // Lines of both sides that were shown so far: where their colours are.
        let (mut old_seen, mut new_seen) = (0, 0);
        let mut end = 0;
        for stretch in &self.stretches {
            if self.above.is_none() && show.numbers && !self.is_part {
                view.gap(stretch.old_at.saturating_sub(end));
            }
            let (mut old_at, mut new_at) = (stretch.old_at, stretch.new_at);
            for piece in &stretch.pieces {
                match piece {
                    DiffSpan::Same(same) => {
                        for line in same {
                            let text = vec![(false, line.clone())];
                            let cell = Cell {
                                number: new_at + 1,
                                kind: LineKind::Same,
                                at: new_seen,
                                is_old: false,
                                text: &text,
                            };
                            if is_wide {
                                let old = Cell { number: old_at + 1, at: old_seen, is_old: true, ..cell };
                                view.pair(Some(old), Some(cell), 1);
                            } else {
                                view.line(cell);
                            }
                            (old_at, new_at) = (old_at + 1, new_at + 1);
                            (old_seen, new_seen) = (old_seen + 1, new_seen + 1);
                        }
                    }
                    DiffSpan::Change { old, new } => {
                        let (before, after) = marked(old, new, view.shown < show.most);
                        let gone = |i: usize, text| Cell {
                            number: old_at + i + 1,
                            kind: LineKind::Gone,
                            at: old_seen + i,
                            is_old: true,
                            text,
                        };
                        let come = |i: usize, text| Cell {
                            number: new_at + i + 1,
                            kind: LineKind::New,
                            at: new_seen + i,
                            is_old: false,
                            text,
                        };
                        if is_wide {
                            for i in 0..before.len().max(after.len()) {
                                let left = before.get(i).map(|text| gone(i, text));
                                let right = after.get(i).map(|text| come(i, text));
                                let count = usize::from(left.is_some()) + usize::from(right.is_some());
                                view.pair(left, right, count);
                            }
                        } else {
                            for (i, text) in before.iter().enumerate() {
                                view.line(gone(i, text));
                            }
                            for (i, text) in after.iter().enumerate() {
                                view.line(come(i, text));
                            }
                        }
                        (old_at, new_at) = (old_at + old.len(), new_at + new.len());
                        (old_seen, new_seen) = (old_seen + old.len(), new_seen + new.len());
                    }
                }
            }
            end = old_at;
        }
        if let Some(all) = self.old_lines.filter(|_| show.numbers) {
            view.gap(all.saturating_sub(end));
        }
        if let Some(note) = &self.below {
            view.note(note);
        }
        (view.lines, view.hidden)
    }
}

/// One line of one side.
#[derive(Clone, Copy)]
struct Cell<'a> {
    number: usize,
    kind: LineKind,
    /// Its place among the lines of its side, which have colours.
    at: usize,
    is_old: bool,
    text: &'a MarkedLine,
}

struct View<'a> {
    show: Show<'a>,
    digits: usize,
    show_cr: bool,
    /// Columns of one side.
    column: usize,
    lines: Vec<Line<'static>>,
    shown: usize,
    hidden: usize,
}

impl View<'_> {
    fn has_room(&mut self, count: usize) -> bool {
        if self.shown >= self.show.most {
            self.hidden += count;
            return false;
        }
        self.shown += count;
        true
    }

    fn line(&mut self, cell: Cell<'_>) {
        if self.has_room(1) {
            // The background starts where the line does, after any prefix, and ends at the edge.
            let (style, width) = (self.row_style(cell.kind), usize::from(self.show.width));
            let lines = self.cell(cell, self.show.width);
            let filled = |line| Line::from(half(Some(line), style, width, style.bg.is_some()));
            self.lines.extend(lines.iter().map(filled));
        }
    }

    /// Both sides in one row, each in its half.
    fn pair(&mut self, left: Option<Cell<'_>>, right: Option<Cell<'_>>, count: usize) {
        if !self.has_room(count) {
            return;
        }
        let column = self.column;
        let side = |cell: Option<Cell<'_>>| {
            cell.map(|cell| (self.row_style(cell.kind), self.cell(cell, column as u16))).unwrap_or_default()
        };
        let ((left_style, left), (right_style, right)) = (side(left), side(right));
        let bar = Span::styled(" │ ", self.show.theme.style(Role::Rule));
        for y in 0..left.len().max(right.len()) {
            let mut spans = half(left.get(y), left_style, column, true);
            spans.push(bar.clone());
            // A side with a background reaches to the edge.
            spans.extend(half(right.get(y), right_style, column, right_style.bg.is_some()));
            self.lines.push(Line::from(spans));
        }
    }

    /// The background of a changed line reaches to the right edge.
    fn row_style(&self, kind: LineKind) -> Style {
        let style = self.show.theme.style(roles(kind).0);
        Style { fg: None, add_modifier: Modifier::empty(), ..style }
    }

    fn cell(&self, cell: Cell<'_>, width: u16) -> Vec<Line<'static>> {
        let theme = self.show.theme;
        let sign = match cell.kind {
            LineKind::Same => " ",
            LineKind::Gone => "-",
            LineKind::New => "+",
        };
        let style = theme.style(roles(cell.kind).0);
        let side = |colours: &Colours| {
            if cell.is_old { colours.old.pieces(cell.at) } else { colours.new.pieces(cell.at) }
        };
        let colours = self.show.colours.and_then(side);
        let spans = self.spans(cell, colours.as_ref());
        let (first, rest) = if width >= NUMBERS_FROM {
            let digits = self.digits;
            let number = if self.show.numbers { cell.number.to_string() } else { String::new() };
            (
                vec![
                    Span::styled(format!("{number:>digits$} "), theme.style(Role::LineNumber)),
                    Span::styled(format!("{sign} "), style),
                ],
                vec![Span::raw(" ".repeat(digits + 3))],
            )
        } else {
            (vec![Span::styled(sign, style)], vec![Span::raw(" ")])
        };
        let mut lines = Vec::new();
        Wrap::kept(width).prefix(first, rest).spans_into(&spans, Style::default(), &mut lines);
        lines
    }

    /// The text of a line: what differs is marked, the rest has the colours of code.
    fn spans(&self, cell: Cell<'_>, colours: Option<&Pieces>) -> Vec<Span<'static>> {
        let theme = self.show.theme;
        let (role, word) = roles(cell.kind);
        let style = theme.style(role);
        let word = style.patch(theme.style(word));
        // If a changed line has no background, its own colour distinguishes it from the others.
        let colours = colours.filter(|_| cell.kind == LineKind::Same || style.bg.is_some());
        // On a background, the code has the colours of code; without them the line's own.
        let plain = match colours {
            Some(_) if cell.kind != LineKind::Same => Style { fg: theme.style(Role::Text).fg, ..style },
            _ => style,
        };
        let mut colours = colours.map(|pieces| pieces.iter());
        let mut next = || colours.as_mut()?.next().map(|(role, bytes)| (*role, *bytes as usize));
        let mut current = next();
        // A line that is new as a whole has no words to point at.
        let any_same = cell.text.iter().any(|(marked, text)| !marked && !text.trim().is_empty());
        let mut spans: Vec<Span<'static>> = Vec::new();
        // Changed lines are shown in full if the whole change has to be shown: nothing is allowed that was
        // not shown.
        let is_whole = self.show.most == usize::MAX && cell.kind != LineKind::Same;
        let mut indent = 0;
        let (mut left, mut cut) = (if is_whole { usize::MAX } else { MAX_CHARACTERS }, 0);
        for (at, (marked, text)) in cell.text.iter().enumerate() {
            // Blanks at the start are marked only where they are what differs.
            let blanks = text.len() - text.trim_start().len();
            if *marked && at == 0 && any_same && 0 < blanks && blanks < text.len() {
                indent = blanks;
            }
            let text = match text.strip_suffix('\r') {
                Some(before) if self.show_cr => format!("{before}␍"),
                Some(before) => before.to_owned(),
                None => text.clone(),
            };
            let count = text.chars().count();
            let text: String = if count > left {
                cut += count - left;
                text.chars().take(left).collect()
            } else {
                text
            };
            left -= count.min(left);
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (role, bytes) = current.unwrap_or((Role::Text, usize::MAX));
                let take = bytes.min(if indent > 0 { indent } else { rest.len() });
                // Colours that do not fit the text are those of another one.
                let (piece, after) = rest.split_at_checked(take).unwrap_or((rest, ""));
                current = match (current, bytes - take) {
                    (None, _) => None,
                    (Some(_), 0) => next(),
                    (Some(_), rest) => Some((role, rest)),
                };
                let own = match (*marked && any_same && indent == 0, role) {
                    (true, _) => word,
                    (false, Role::Text) => plain,
                    (false, role) => Style { fg: theme.style(role).fg.or(plain.fg), ..plain },
                };
                spans.push(Span::styled(piece.to_owned(), own));
                rest = after;
                indent = indent.saturating_sub(take);
            }
        }
        if cut > 0 {
            spans.push(Span::styled(format!(" … {cut} more characters"), theme.style(Role::Dim)));
        }
        spans
    }

    fn gap(&mut self, lines: usize) {
        if lines > 0 && self.shown < self.show.most {
            self.note(&counted(lines, "unchanged line"));
        }
    }

    fn note(&mut self, text: &str) {
        let text = truncate(&format!("⋯ {text}"), self.show.width);
        self.lines.push(Line::styled(text, self.show.theme.style(Role::DiffHunk)));
    }
}

/// A row of one side, filled up to its width.
fn half(line: Option<&Line<'static>>, style: Style, column: usize, fill: bool) -> Vec<Span<'static>> {
    let mut spans: Vec<Span<'static>> = match line {
        Some(line) => line
            .spans
            .iter()
            .cloned()
            .map(|span| {
                let own = span.style;
                Span { style: style.patch(own), ..span }
            })
            .collect(),
        None => Vec::new(),
    };
    let free = column.saturating_sub(line.map_or(0, Line::width));
    if fill && free > 0 {
        spans.push(Span::styled(" ".repeat(free), style));
    }
    spans
}

fn roles(kind: LineKind) -> (Role, Role) {
    match kind {
        LineKind::Same => (Role::DiffContext, Role::DiffContext),
        LineKind::Gone => (Role::DiffDel, Role::DiffDelWord),
        LineKind::New => (Role::DiffAdd, Role::DiffAddWord),
    }
}
