//! Images that a terminal draws at its cursor.
//!
//! Their rows are created first, empty, like rows of text; then the cursor moves up, the image is drawn over them,
//! and the cursor returns: where a terminal leaves the cursor after an image does not matter, and nothing scrolls
//! meanwhile. Such rows are never written to again.

use std::sync::Arc;

use ratatui::text::Line;

use super::paint::Painter;
use aye_core::contract::image::Drawn;

/// An item to print with the next frame.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// A finished line.
    Line(Line<'static>),
    /// A picture.
    CursorImage(CursorImage),
}

/// An image, with replacement text for places where it cannot be drawn.
#[derive(Clone, Debug)]
pub struct CursorImage {
    /// Columns before it.
    pub indent: u16,
    /// The picture.
    pub drawn: Arc<Drawn>,
    /// In the same place, as text.
    pub instead: Vec<Line<'static>>,
}

impl CursorImage {
    /// Returns whether a terminal of this size has room for twice the image's height: the terminal may get
    /// lower at any moment.
    pub(super) fn fits(&self, (width, height): (u16, u16)) -> bool {
        let Drawn { columns, rows, .. } = *self.drawn;
        rows > 0 && rows <= height / 2 && self.indent.saturating_add(columns) <= width
    }
}

impl Painter {
    /// Draws an image, starting in the cursor's row, and leaves the cursor in the first column of the row
    /// after the image.
    pub(super) fn cursor_image(&mut self, cursor_image: &CursorImage) {
        let rows = cursor_image.drawn.rows;
        for _ in 0..rows {
            self.raw(b"\r");
            self.erase();
            self.raw(b"\r\n");
        }
        self.up(rows);
        self.right(cursor_image.indent);
        // The cursor is saved before the image and restored after it.
        self.raw(b"\x1b7");
        self.raw(&cursor_image.drawn.bytes);
        self.raw(b"\x1b8");
        self.down(rows);
        self.raw(b"\r");
    }
}
