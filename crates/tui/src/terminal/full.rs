//! The terminal's alternate screen: all of it is ours, and only changed cells are written.

use std::io::{self, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::super::links::Links;
use super::paint::Painter;
use super::{BEGIN, END, KEEP_BYTES, SHOW, row};

/// Switches to the other screen. It has keyboard modes of its own.
pub(super) const ENTER: &[u8] = b"\x1b[?1049h\x1b[>1u\x1b[2J";
/// Leaves the alternate screen. The code that restores the terminal cleans up after an interrupted frame.
pub(super) const LEAVE: &[u8] = b"\x1b[<1u\x1b[?1049l";
/// Mouse reporting: buttons, moves while a button is pressed, and the wheel; in the encoding without a limit
/// on columns.
pub(super) const MOUSE_ON: &[u8] = b"\x1b[?1002h\x1b[?1006h";
pub(super) const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1002l";

/// The content of the alternate screen.
#[derive(Debug)]
pub struct FullScreen {
    painter: Painter,
    shown: Buffer,
    next: Buffer,
    at: (u16, u16),
    cursor_shown: bool,
    dirty: bool,
}

impl Default for FullScreen {
    fn default() -> FullScreen {
        FullScreen {
            painter: Painter::default(),
            shown: Buffer::empty(Rect::ZERO),
            next: Buffer::empty(Rect::ZERO),
            at: (0, 0),
            cursor_shown: false,
            dirty: true,
        }
    }
}

impl FullScreen {
    /// Switches the terminal to its other screen.
    pub fn enter(out: &mut impl Write, mouse: bool) -> io::Result<()> {
        out.write_all(&[ENTER, if mouse { MOUSE_ON } else { b"" }].concat())?;
        out.flush()
    }

    /// Leaves the alternate screen. If the size changed in the meantime, the cursor may be anywhere in the
    /// earlier output, so it is moved below all of it.
    pub fn leave(out: &mut impl Write, is_same_size: bool) -> io::Result<()> {
        let below: &[u8] = if is_same_size { b"" } else { b"\x1b[999B\r\n" };
        out.write_all(&[MOUSE_OFF, LEAVE, below].concat())?;
        out.flush()
    }

    /// Has text lead to addresses.
    #[must_use]
    pub fn with_links(mut self, links: Links) -> FullScreen {
        self.painter.links = links;
        self
    }

    /// Paints all of it with the next frame.
    pub fn redraw(&mut self) {
        self.dirty = true;
    }

    /// Draws a frame of that size, as [`super::LiveTerminal::draw`] does.
    pub fn draw(
        &mut self,
        out: &mut impl Write,
        (width, height): (u16, u16),
        view: impl FnOnce(Rect, &mut Buffer) -> Option<Position>,
    ) -> io::Result<bool> {
        let area = Rect::new(0, 0, width.max(1), height.max(1));
        self.next.resize(area);
        self.next.reset();
        let caret = view(area, &mut self.next);
        let last = (area.height - 1, area.width - 1);
        let target = caret.map_or(last, |at| (at.y.min(last.0), at.x.min(last.1)));
        let painter = &mut self.painter;
        painter.begin(BEGIN);
        if self.dirty || self.shown.area != area {
            painter.raw(b"\x1b[H\x1b[2J");
            for y in 0..area.height {
                if y > 0 {
                    painter.raw(b"\r\n");
                }
                painter.row(row(&self.next, y), 0);
            }
            painter.lost_column();
            self.at = (area.height - 1, 0);
        } else {
            for y in 0..area.height {
                painter.changes(&mut self.at, y, row(&self.shown, y), row(&self.next, y));
            }
        }
        if painter.len() == BEGIN.len() && target == self.at && caret.is_some() == self.cursor_shown {
            return Ok(false);
        }
        painter.move_to(&mut self.at, target);
        if caret.is_some() {
            painter.raw(SHOW);
        }
        painter.raw(END);
        self.cursor_shown = caret.is_some();
        std::mem::swap(&mut self.shown, &mut self.next);
        let written = out.write_all(painter.bytes()).and_then(|()| out.flush());
        painter.shrink(KEEP_BYTES);
        self.dirty = written.is_err();
        written.map(|()| true)
    }
}
