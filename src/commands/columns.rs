//! Lists in columns.

use crate::contract::display::visible_line;
use crate::tui::wrap::width;

/// A cell that is wider does not widen its column: only its own line is out of line.
const WIDEST: usize = 60;

/// Renders a line for each row. Cells are made visible, and those of a column begin at the same place; the last one of a
/// row is not padded.
pub(crate) fn columns<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = rows.into_iter().map(|row| row.map(|cell| visible_line(&cell).into_owned())).collect();
    let widths: [usize; N] = std::array::from_fn(|at| {
        rows.iter().map(|row| width(&row[at])).filter(|wide| *wide <= WIDEST).max().unwrap_or(0)
    });
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, wide) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', wide.saturating_sub(width(cell)) + 2));
        }
        out.push_str(line.trim_end_matches(' '));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_long_cells_break_no_column() {
        let long = "m".repeat(WIDEST + 1);
        let name = "provider/a-model-with-a-name-of-44-characters-xx";
        let rows = [
            ["a", "in use", "one"],
            [name, "-", "two"],
            ["模型🦀", "usable", "three"],
            ["\u{1b}[31m", "-", ""],
            [&long, "-", "four"],
        ];
        let text = columns(rows.map(|row| row.map(str::to_owned)));
        let lines: Vec<&str> = text.lines().collect();
        for (line, word) in lines.iter().zip(["one", "two", "three"]) {
            let before = line.split_once(word).map(|(before, _)| width(before));
            assert_eq!(before, Some(width(name) + 2 + 6 + 2), "{text}");
        }
        assert!(lines[3].ends_with("  -") && !text.contains('\u{1b}'), "{text}");
        assert_eq!(lines[4], format!("{long}  -       four"));
    }
}
