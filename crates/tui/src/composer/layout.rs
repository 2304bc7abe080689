//! The composer's row breaks, and the cell of the cursor.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::wrap;

/// Columns of a tab.
const TAB: usize = 4;

/// The columns of one grapheme; a tab is always four wide.
pub fn columns(grapheme: &str) -> usize {
    if grapheme == "\t" { TAB } else { wrap::width(grapheme) }
}

/// Returns the rows of a text as ranges of bytes, without line endings. Rows break after spaces where
/// possible. There is always at least one row, and one more column than `width` is needed for a caret after a
/// full row.
pub fn rows(text: &str, width: u16) -> Vec<Range<usize>> {
    let width = usize::from(width.max(1));
    let mut rows = Vec::new();
    let mut line_start = 0;
    for line in text.split('\n') {
        let (mut start, mut used) = (0, 0);
        // The position after the last space of the row, and the columns up to it.
        let mut blank: Option<(usize, usize)> = None;
        for (at, grapheme) in line.grapheme_indices(true) {
            let wide = columns(grapheme);
            let is_blank = grapheme == " " || grapheme == "\t";
            if used + wide > width && at > start && !is_blank {
                let (cut, before) = blank.filter(|(cut, _)| *cut > start).unwrap_or((at, used));
                rows.push(line_start + start..line_start + cut);
                start = cut;
                used -= before;
                blank = None;
            } else if used + wide > width + 1 && at > start {
                // Spaces may exceed the width by one column, where the caret is, but no more.
                rows.push(line_start + start..line_start + at);
                start = at;
                used = 0;
                blank = None;
            }
            used += wide;
            if is_blank {
                blank = Some((at + grapheme.len(), used));
            }
        }
        rows.push(line_start + start..line_start + line.len());
        line_start += line.len() + 1;
    }
    rows
}

/// The row and column of a byte offset. At a soft break it is the start of the next row.
pub fn position(text: &str, rows: &[Range<usize>], at: usize) -> (usize, usize) {
    let row = rows.partition_point(|row| row.start <= at).saturating_sub(1);
    let start = rows.get(row).map_or(0, |row| row.start);
    let column = text[start..at.max(start)].graphemes(true).map(columns).sum();
    (row, column)
}

/// The byte offset in a row that is nearest to a column from the left.
pub fn offset(text: &str, rows: &[Range<usize>], row: usize, column: usize) -> usize {
    let Some(range) = rows.get(row) else { return text.len() };
    let mut used = 0;
    for (at, grapheme) in text[range.clone()].grapheme_indices(true) {
        used += columns(grapheme);
        if used > column {
            return range.start + at;
        }
    }
    // The end of a row that continues is the start of the next one: stay in this one.
    let continues = rows.get(row + 1).is_some_and(|next| next.start == range.end);
    if continues {
        let last = text[range.clone()].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
        return range.start + last;
    }
    range.end
}
