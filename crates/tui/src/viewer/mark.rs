//! Text selection with the mouse: from where the button went down to where it is.

use super::{RowPosition, Scene, Viewer};
use crate::wrap;

/// A row of an entry and a column in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub row_position: RowPosition,
    /// The column, from the first one of the text.
    pub column: usize,
}

/// A selection made with the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextSelection {
    /// Where the button was pressed.
    pub from: Point,
    /// Where the pointer is, or where the button was released.
    pub to: Point,
}

impl TextSelection {
    /// Its ends in the order of the text.
    pub fn ends(&self) -> (Point, Point) {
        (self.from.min(self.to), self.from.max(self.to))
    }

    /// The columns of a row that are marked, of a text that wide.
    pub fn columns(&self, row_position: RowPosition, width: usize) -> Option<std::ops::Range<usize>> {
        let (first, last) = self.ends();
        if row_position < first.row_position || row_position > last.row_position || first == last {
            return None;
        }
        let start = if row_position == first.row_position { first.column } else { 0 };
        let end = if row_position == last.row_position { last.column + 1 } else { width };
        Some(start.min(width)..end.min(width))
    }
}

impl Viewer {
    /// The button went down, or moves.
    pub fn drag(&mut self, scene: &Scene<'_>, is_start: bool, screen_row: usize, column: usize) {
        let Some(row_position) = self.under(scene, screen_row) else { return };
        let to = Point { row_position, column };
        match &mut self.mark {
            Some(mark) if !is_start => mark.to = to,
            Some(_) | None => self.mark = Some(TextSelection { from: to, to }),
        }
    }

    /// The text that is marked.
    pub fn marked(&mut self, scene: &Scene<'_>) -> Option<String> {
        let mark = self.mark?;
        let (first, last) = mark.ends();
        if first == last {
            return None;
        }
        let mut lines = Vec::new();
        for index in scene.index(first.row_position.id)..=scene.index(last.row_position.id) {
            let id = scene.id(index);
            for (row, text) in self.texts(scene, index).iter().enumerate() {
                if let Some(columns) = mark.columns(RowPosition { id, row }, wrap::width(text)) {
                    lines.push(cut(text, columns).trim_end().to_owned());
                }
            }
        }
        Some(lines.join("\n"))
    }
}

/// Returns the part of a text that is in the given columns.
fn cut(text: &str, columns: std::ops::Range<usize>) -> String {
    let mut at = 0;
    let mut part = String::new();
    for c in unicode_segmentation::UnicodeSegmentation::graphemes(text, true) {
        let wide = wrap::width(c);
        if at + wide > columns.start && at < columns.end {
            part.push_str(c);
        }
        at += wide;
    }
    part
}
