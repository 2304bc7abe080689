//! The difference of two texts as styled lines: hunks with three lines around, line numbers, changed words marked.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use similar::{ChangeTag, DiffOp, TextDiff};

use super::theme::{Role, Theme};
use super::wrap::{Wrap, truncate};

pub mod hunks;
#[cfg(test)]
mod tests;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// Lines that [`diff_lines`] shows at most.
const MAX_LINES: usize = 400;
/// When more lines than this differ, they are not compared with each other: all old ones go, all new ones come.
const MAX_COMPARED: usize = 6_000;
/// Larger changes get no word marks.
const MAX_MARKED: usize = 20_000;
/// Characters of a line that are shown.
const MAX_CHARACTERS: usize = 1_000;
/// Narrower than this there is no room for line numbers.
const NUMBERS_FROM: u16 = 30;

/// What changed between two texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// The lines to show, each no wider than asked.
    pub lines: Vec<Line<'static>>,
    /// How many lines are new.
    pub added: usize,
    /// How many lines are gone.
    pub removed: usize,
    path: String,
}

impl Diff {
    /// `path +3 −1`, fitted to the width.
    pub fn header(&self, width: u16, theme: &Theme) -> Line<'static> {
        let counts = [format!("+{}", self.added), format!("−{}", self.removed)];
        let used = counts.iter().map(|count| count.chars().count() + 1).sum::<usize>();
        let path = truncate(&self.path, width.saturating_sub(used as u16));
        let [added, removed] = counts;
        let spans = vec![
            Span::styled(path, theme.style(Role::CardTitle)),
            Span::raw(" "),
            Span::styled(added, theme.style(Role::DiffAdd)),
            Span::raw(" "),
            Span::styled(removed, theme.style(Role::DiffDel)),
        ];
        let line = Line::from(spans);
        if line.width() <= usize::from(width) {
            return line;
        }
        Line::from(truncate(&line.to_string(), width))
    }
}

/// Compares two texts. At most 400 lines are shown; a last line says how many are not.
pub fn diff_lines(old: &str, new: &str, path: &str, width: u16, theme: &Theme) -> Diff {
    diff_lines_within(old, new, path, width, theme, MAX_LINES)
}

/// Compares two texts and shows at most so many lines.
pub fn diff_lines_within(old: &str, new: &str, path: &str, width: u16, theme: &Theme, most: usize) -> Diff {
    let (old_lines, new_lines) = (split(old), split(new));
    let same_front = old_lines.iter().zip(&new_lines).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old_lines[same_front..], &new_lines[same_front..]);
    let same_back = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_changed, new_changed) = (old_rest.len() - same_back, new_rest.len() - same_back);

    let mut view = View {
        width,
        theme,
        most,
        digits: old_lines.len().max(new_lines.len()).max(1).to_string().len(),
        // A file that got other line ends would otherwise show pairs of lines that look the same.
        show_cr: old.contains("\r\n") != new.contains("\r\n"),
        lines: Vec::new(),
        shown: 0,
        hidden: 0,
    };
    let (mut added, mut removed) = (0, 0);
    if old_changed + new_changed > MAX_COMPARED {
        (removed, added) = (old_changed, new_changed);
        view.note(&format!("too many lines differ to compare them: {removed} removed, {added} added"));
        for (n, line) in old_rest[..old_changed].iter().enumerate() {
            view.line(ChangeTag::Delete, same_front + n + 1, &[(false, line)]);
        }
        for (n, line) in new_rest[..new_changed].iter().enumerate() {
            view.line(ChangeTag::Insert, same_front + n + 1, &[(false, line)]);
        }
    } else {
        let diff = TextDiff::from_slices(&old_lines, &new_lines);
        let mut last_end = 0;
        for hunk in diff.grouped_ops(CONTEXT) {
            let start = hunk.first().map_or(0, |op| op.old_range().start);
            view.gap(start.saturating_sub(last_end));
            last_end = hunk.last().map_or(last_end, |op| op.old_range().end);
            for op in &hunk {
                if !matches!(op, DiffOp::Equal { .. }) {
                    removed += op.old_range().len();
                    added += op.new_range().len();
                }
                view.op(&diff, op, &old_lines, &new_lines);
            }
        }
        if added + removed > 0 {
            view.gap(old_lines.len().saturating_sub(last_end));
        }
    }
    if !old.is_empty() && !new.is_empty() && old.ends_with('\n') != new.ends_with('\n') {
        let which = if new.ends_with('\n') { "before" } else { "now" };
        view.note(&format!("no line end at the end of the file {which}"));
    }
    if view.hidden > 0 {
        let hidden = view.hidden;
        view.note(&format!("{hidden} more lines are not shown"));
    }
    Diff { lines: view.lines, added, removed, path: path.to_owned() }
}

/// Lines without their `\n`.
fn split(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

struct View<'a> {
    width: u16,
    theme: &'a Theme,
    most: usize,
    digits: usize,
    show_cr: bool,
    lines: Vec<Line<'static>>,
    shown: usize,
    hidden: usize,
}

impl View<'_> {
    fn op(&mut self, diff: &TextDiff<'_, '_, str>, op: &DiffOp, old: &[&str], new: &[&str]) {
        let bytes: usize =
            old[op.old_range()].iter().chain(&new[op.new_range()]).map(|line| line.len()).sum();
        if matches!(op, DiffOp::Replace { .. }) && bytes <= MAX_MARKED && self.shown < self.most {
            for change in diff.iter_inline_changes(op) {
                let number = change.new_index().or(change.old_index()).unwrap_or(0) + 1;
                self.line(change.tag(), number, change.values());
            }
            return;
        }
        for change in diff.iter_changes(op) {
            let number = change.new_index().or(change.old_index()).unwrap_or(0) + 1;
            self.line(change.tag(), number, &[(false, change.value())]);
        }
    }

    fn line(&mut self, tag: ChangeTag, number: usize, pieces: &[(bool, &str)]) {
        if self.shown >= self.most {
            self.hidden += 1;
            return;
        }
        self.shown += 1;
        let (sign, role, word) = match tag {
            ChangeTag::Equal => (" ", Role::DiffContext, Role::DiffContext),
            ChangeTag::Delete => ("-", Role::DiffDel, Role::DiffDelWord),
            ChangeTag::Insert => ("+", Role::DiffAdd, Role::DiffAddWord),
        };
        let style = self.theme.style(role);
        let word = style.patch(self.theme.style(word));
        // A line that is new as a whole has no words to point at.
        let any_same = pieces.iter().any(|(marked, text)| !marked && !text.trim().is_empty());
        let mut spans = Vec::new();
        let mut left = MAX_CHARACTERS;
        let mut cut = 0;
        for (marked, text) in pieces {
            let mut text = text.replace('\n', "");
            if let Some(before) = text.strip_suffix('\r') {
                text = if self.show_cr { format!("{before}␍") } else { before.to_owned() };
            }
            let count = text.chars().count();
            if count > left {
                cut += count - left;
                text = text.chars().take(left).collect();
            }
            left -= count.min(left);
            spans.push(Span::styled(text, if *marked && any_same { word } else { style }));
        }
        if cut > 0 {
            spans.push(Span::styled(format!(" … {cut} more characters"), self.theme.style(Role::Dim)));
        }
        let (first, rest) = if self.width >= NUMBERS_FROM {
            let digits = self.digits;
            let gutter = self.theme.style(Role::LineNumber);
            (
                vec![
                    Span::styled(format!("{number:>digits$} "), gutter),
                    Span::styled(format!("{sign} "), style),
                ],
                vec![Span::raw(" ".repeat(digits + 3))],
            )
        } else {
            (vec![Span::styled(sign, style)], vec![Span::raw(" ")])
        };
        // The background of a changed line reaches to the right edge.
        let row = Style { fg: None, add_modifier: ratatui::style::Modifier::empty(), ..style };
        Wrap::anywhere(self.width).prefix(first, rest).spans_into(&spans, row, &mut self.lines);
    }

    fn gap(&mut self, lines: usize) {
        if lines > 0 && self.shown < self.most {
            let plural = if lines == 1 { "" } else { "s" };
            self.note(&format!("{lines} unchanged line{plural}"));
        }
    }

    fn note(&mut self, text: &str) {
        let text = truncate(&format!("⋯ {text}"), self.width);
        self.lines.push(Line::styled(text, self.theme.style(Role::DiffHunk)));
    }
}
