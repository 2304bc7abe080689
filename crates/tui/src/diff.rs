//! The difference of two texts as styled lines: hunks with three lines of context, line numbers, changed words
//! marked, side by side in wide terminals.

use ratatui::style::Style;
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
/// When more lines than this differ, they are not compared with each other: all old ones go, all new ones come.
const MAX_COMPARED: usize = 6_000;
/// Larger changes get no word marks.
const MAX_MARKED: usize = 20_000;
/// Characters of a line that are shown, where not all of a change has to be.
const MAX_CHARACTERS: usize = 1_000;
/// Minimum width for line numbers.
const NUMBERS_FROM: u16 = 30;
/// Minimum width at which sides are shown by default: a terminal of 160 columns, less the frames.
const SIDES_FROM: u16 = 152;
/// Minimum width for two sides.
pub const SIDES_NEED: u16 = 60;

/// The layout of old and new lines: below each other or side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiffLayout {
    /// Side by side in wide terminals.
    #[default]
    Auto,
    /// Below each other.
    Unified,
    /// Side by side.
    Sides,
}

impl DiffLayout {
    /// Whether there are two sides at a width.
    pub fn has_sides(self, width: u16) -> bool {
        match self {
            DiffLayout::Auto => width >= SIDES_FROM,
            DiffLayout::Unified => false,
            DiffLayout::Sides => width >= SIDES_NEED,
        }
    }

    #[must_use]
    pub fn toggled(self, width: u16) -> DiffLayout {
        if self.has_sides(width) { DiffLayout::Unified } else { DiffLayout::Sides }
    }
}

/// The changes between two texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// The lines to show, each no wider than asked.
    pub lines: Vec<Line<'static>>,
    /// The number of added lines.
    pub added: usize,
    /// The number of removed lines.
    pub removed: usize,
}

/// `path +3 −1`, fitted to the width.
pub fn header(path: &str, added: usize, removed: usize, width: u16, theme: &Theme) -> Line<'static> {
    let counts = [format!("+{added}"), format!("−{removed}")];
    let used = counts.iter().map(|count| count.chars().count() + 1).sum::<usize>();
    let path = truncate(path, width.saturating_sub(used as u16));
    let [added, removed] = counts;
    // Counts are no lines: only the colour of the text is theirs.
    let bare = |role| Style { bg: None, ..theme.style(role) };
    let spans = vec![
        Span::styled(path, theme.style(Role::CardTitle)),
        Span::raw(" "),
        Span::styled(added, bare(Role::DiffAdd)),
        Span::raw(" "),
        Span::styled(removed, bare(Role::DiffDel)),
    ];
    let line = Line::from(spans);
    if line.width() <= usize::from(width) {
        return line;
    }
    Line::from(truncate(&line.to_string(), width))
}

/// Compares two texts and shows at most `show.most` lines; a last line says how many are not shown.
pub fn diff_lines(old: &str, new: &str, show: Show<'_>) -> Diff {
    let patch = Patch::between(old, new);
    let (mut lines, hidden) = patch.lines(show);
    if hidden > 0 {
        let text = truncate(&format!("⋯ {hidden} more lines are not shown"), show.width);
        lines.push(Line::styled(text, show.theme.style(Role::DiffHunk)));
    }
    Diff { lines, added: patch.added, removed: patch.removed }
}
