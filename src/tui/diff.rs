//! The difference of two texts as styled lines: hunks with three lines around, line numbers, changed words marked,
//! side by side where there is room.

use ratatui::text::{Line, Span};

use super::theme::{Role, Theme};
use super::wrap::truncate;

pub mod hunks;
mod paint;
mod patch;
#[cfg(test)]
mod tests;

pub use paint::{Colours, Show};
pub use patch::Patch;

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
/// From here on both sides stand beside each other: a terminal of 120 columns, less what frames take.
const SIDES_FROM: u16 = 112;

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
    let patch = Patch::between(old, new);
    let (mut lines, hidden) = patch.lines(Show { width, theme, most, colours: None, numbers: true });
    if hidden > 0 {
        let text = truncate(&format!("⋯ {hidden} more lines are not shown"), width);
        lines.push(Line::styled(text, theme.style(Role::DiffHunk)));
    }
    Diff { lines, added: patch.added, removed: patch.removed, path: path.to_owned() }
}
