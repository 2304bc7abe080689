//! An inline terminal: finished lines go once into the terminal's own scrollback, below them a small live region is
//! redrawn in place.
//!
//! It never asks the terminal where the cursor is (the answer would race with the input thread and can take seconds).
//! All moves are relative to the first row of the live region, which stays true when the terminal scrolls: rows are
//! made by `\r\n` at the end of the region, and finished lines are printed over the region's top with the region
//! painted again below them. A frame is one write inside a synchronized update.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::links::Links;
use super::wrap::{Wrap, clean};

mod abilities;
mod clipboard;
mod full;
mod guard;
mod linear;
mod notify;
mod paint;
mod plain;
#[cfg(test)]
mod tests;

pub use abilities::{Abilities, Multiplexer};
pub use clipboard::Clipboard;
pub use full::FullScreen;
pub use guard::{Restore, TerminalGuard, TtyOut, reflows, resize_report_delay, size, stop_process};
pub use linear::Linear;
pub use notify::Desktop;
use paint::Painter;
pub use paint::styled;
pub use plain::Output;

/// Starts a synchronized update with the cursor hidden.
const BEGIN: &[u8] = b"\x1b[?2026h\x1b[?25l";
/// Shows the cursor.
const SHOW: &[u8] = b"\x1b[?25h";
/// Ends a synchronized update.
const END: &[u8] = b"\x1b[?2026l";
/// Has the terminal break rows that are wider than it, and keep them in one row again. A finished row that was laid out
/// for a terminal that has just got narrower is broken, and loses nothing.
const WRAP: &[u8] = b"\x1b[?7h";
const NO_WRAP: &[u8] = b"\x1b[?7l";
/// Erases the cursor's row and those below it, from the first column. tmux takes `CSI J` in the first column of the first
/// row for a screen that is cleared, and moves what is on it to its history: there a live region would stay.
const ERASE_BELOW: &[u8] = b"\x1b[K\x1b[C\x1b[J\r";
/// After this long, a terminal has processed a frame.
const TAKEN_IN: Duration = Duration::from_millis(10);
/// For this long after a size change, more are likely: the user is dragging a border.
const DRAGGED: Duration = Duration::from_secs(1);
/// A frame larger than this gives its memory back.
const KEEP_BYTES: usize = 256 * 1024;

/// Returns the terminal's columns and rows, if they can be determined.
pub type Probe = fn() -> Option<(u16, u16)>;

/// A live region at the end of the terminal's text, and a way to append lines above it.
#[derive(Debug)]
pub struct LiveTerminal<W: Write> {
    out: W,
    painter: Painter,
    width: u16,
    height: u16,
    /// The current content of the live region, with the width of the terminal when the region was drawn.
    shown: Buffer,
    next: Buffer,
    scratch: Buffer,
    /// The cursor's position, counted from the first row of the region.
    at: (u16, u16),
    cursor_shown: bool,
    /// The caret is a cell of the picture, and the cursor waits in the first row: see [`LiveTerminal::park`].
    parks: bool,
    /// The region's rows may not be where they were drawn: erase and paint all of it.
    dirty: bool,
    /// Whether the terminal reflows long lines when its width changes.
    reflow: bool,
    /// When the last frame was written.
    written: Option<Instant>,
    /// Whether it is unknown if the terminal processed the last frame before or after its size changed.
    unsure: bool,
    /// For this long after it reported a size, the terminal may not report another change.
    late: Duration,
    /// When the terminal last reported a different size.
    resize_reported: Option<Instant>,
    pending: Vec<Line<'static>>,
    /// Queries the terminal's size right before and right after a frame.
    probe: Option<Probe>,
    /// The last frame was thrown away, because it was made for a size that the terminal had no more.
    missed: bool,
    /// The number of rows from the cursor to the first row below the region, for the code that restores the
    /// terminal.
    below: Arc<AtomicU16>,
}

impl<W: Write> LiveTerminal<W> {
    /// Creates a terminal of this size whose live region starts in the cursor's row. For `reflow`, see
    /// [`reflows`].
    pub fn new(out: W, width: u16, height: u16, reflow: bool) -> LiveTerminal<W> {
        LiveTerminal {
            out,
            painter: Painter::default(),
            width: width.max(1),
            height: height.max(1),
            shown: Buffer::empty(Rect::ZERO),
            next: Buffer::empty(Rect::ZERO),
            scratch: Buffer::empty(Rect::ZERO),
            at: (0, 0),
            cursor_shown: true,
            parks: false,
            dirty: false,
            reflow,
            written: None,
            unsure: false,
            late: Duration::ZERO,
            resize_reported: None,
            pending: Vec::new(),
            probe: None,
            missed: false,
            below: Arc::default(),
        }
    }

    /// Shares the distance from the cursor to the end of the region, so that a panic message lands below it.
    #[must_use]
    pub fn with_restore(mut self, restore: &Restore) -> LiveTerminal<W> {
        self.below = restore.below();
        self
    }

    /// Has text lead to addresses.
    #[must_use]
    pub fn with_links(mut self, links: Links) -> LiveTerminal<W> {
        self.painter.links = links;
        self
    }

    /// Queries the size before each frame is written, and again after it. A frame for an outdated size is not
    /// written; a frame during which the size changed is not relied on.
    #[must_use]
    pub fn with_probe(mut self, probe: Probe) -> LiveTerminal<W> {
        self.probe = Some(probe);
        self
    }

    /// Sets how long the terminal may have another size before it reports that size: see [`resize_report_delay`].
    #[must_use]
    pub fn with_late_sizes(mut self, late: Duration) -> LiveTerminal<W> {
        self.late = late;
        self
    }

    /// Returns how long after reporting a size the terminal may not report another one.
    pub fn late(&self) -> Duration {
        self.late
    }

    /// Returns whether the last frame was not written because the terminal's size had changed in the
    /// meantime. Nothing is lost: draw again with the new size.
    pub fn was_missed(&self) -> bool {
        self.missed
    }

    /// Columns and rows of the terminal.
    pub fn size(&self) -> (u16, u16) {
        (self.width, self.height)
    }

    /// Rows of the live region on the screen.
    pub fn live_rows(&self) -> u16 {
        self.shown.area.height
    }

    /// Returns whether lines are pending for the next frame.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the writer that frames are written to.
    pub fn out_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Appends finished lines above the live region with the next frame. A line wider than the terminal is broken.
    /// Alignment is ignored; the style of a line fills its row.
    pub fn append(&mut self, lines: impl IntoIterator<Item = Line<'static>>) {
        self.pending.extend(lines);
    }

    /// Sets the terminal's new size. Nothing is written until the next frame.
    ///
    /// Call this on a resize event, and with [`size`] before each frame: a frame drawn for an outdated width
    /// cannot be erased exactly.
    pub fn resize(&mut self, width: u16, height: u16) {
        let (width, height) = (width.max(1), height.max(1));
        if (width, height) != (self.width, self.height) {
            let early = |written: Instant| {
                let since = self
                    .resize_reported
                    .and_then(|resize_reported| written.checked_duration_since(resize_reported));
                since.is_some_and(|since| since < self.late)
            };
            self.unsure |= self.written.is_some_and(|at| at.elapsed() < TAKEN_IN || early(at));
            self.resize_reported = Some(Instant::now());
            (self.width, self.height) = (width, height);
            self.dirty = true;
        }
    }

    /// Paints the whole region with the next frame, for a screen that something else wrote on.
    pub fn redraw(&mut self) {
        self.dirty = true;
    }

    /// Makes the next frames draw the caret as a reversed cell and leave the cursor, hidden, in the region's
    /// first row.
    ///
    /// A terminal that reflows rows moves its cursor with them. With the cursor in the first row, a frame
    /// starts where the region starts, whatever size the terminal had when it processed the last frame; with
    /// the cursor further down, that row is a guess while frames are written and the size is reported late.
    /// Input methods follow the cursor: leave it at the caret while the user is typing, except while the
    /// window is being resized. A terminal that does not reflow its rows needs none of this.
    pub fn park(&mut self, parks: bool) {
        let is_dragged = || {
            self.resize_reported
                .is_some_and(|resize_reported| resize_reported.elapsed() < DRAGGED + self.late)
        };
        self.parks = self.reflow && (parks || is_dragged());
    }

    /// Draws a frame: pending lines, then a live region of `height` rows (at most the terminal's), which `view`
    /// fills; it returns the caret, or `None` for a hidden cursor. Only what changed is written, and nothing when
    /// nothing changed; the answer says whether something was.
    pub fn draw(
        &mut self,
        height: u16,
        view: impl FnOnce(Rect, &mut Buffer) -> Option<Position>,
    ) -> io::Result<bool> {
        let area = Rect::new(0, 0, self.width, height.min(self.height));
        self.next.resize(area);
        self.next.reset();
        let mut caret = view(area, &mut self.next).filter(|_| area.height > 0);
        if self.parks
            && let Some(at) = caret.take()
        {
            let at = (at.x.min(self.width - 1), at.y.min(area.height - 1));
            self.next[at].modifier.toggle(Modifier::REVERSED);
        }
        // A hidden cursor waits in the first row: there a resize can be followed exactly.
        let target = caret.map_or((0, 0), |at| (at.y.min(area.height - 1), at.x.min(self.width - 1)));

        let stood = self.at;
        self.missed = false;
        let painter = &mut self.painter;
        painter.begin(BEGIN);
        if self.dirty || !self.pending.is_empty() || (self.shown.area.width != self.width && !self.is_blank())
        {
            self.repaint();
        } else {
            self.update();
        }
        let painter = &mut self.painter;
        if painter.len() == BEGIN.len() && target == self.at && caret.is_some() == self.cursor_shown {
            return Ok(false);
        }
        painter.move_to(&mut self.at, target);
        if caret.is_some() {
            painter.raw(SHOW);
        }
        painter.raw(END);
        if self.probe.and_then(|probe| probe()).is_some_and(|size| size != (self.width, self.height)) {
            // The content of this frame is written with the next one.
            self.at = stood;
            self.missed = true;
            return Ok(false);
        }
        self.pending.clear();
        self.cursor_shown = caret.is_some();
        std::mem::swap(&mut self.shown, &mut self.next);
        self.below.store(self.shown.area.height.saturating_sub(self.at.0), Ordering::Relaxed);

        let written = self.out.write_all(painter.bytes()).and_then(|()| self.out.flush());
        painter.shrink(KEEP_BYTES);
        // After a failed write the content of the screen is unknown.
        self.dirty = written.is_err();
        // The size may have changed since the check above: only a second check can detect that.
        self.unsure =
            self.probe.and_then(|probe| probe()).is_some_and(|size| size != (self.width, self.height));
        self.written = self.probe.map(|_| Instant::now());
        written.map(|()| true)
    }

    /// Ends the live region: prints pending lines, erases the region (or keeps it as it is) and shows the
    /// cursor at the start of the row below. The next frame starts a new region there.
    pub fn finish(&mut self, keep: bool) -> io::Result<()> {
        let height = self.live_rows();
        if keep && height > 0 && !self.dirty && self.pending.is_empty() {
            self.painter.begin(BEGIN);
            self.painter.move_to(&mut self.at, (height - 1, 0));
            self.painter.raw(b"\r\n");
        } else {
            self.next.resize(Rect::new(0, 0, self.width, 0));
            self.painter.begin(BEGIN);
            self.repaint();
            self.pending.clear();
        }
        self.painter.raw(SHOW);
        self.painter.raw(END);
        self.at = (0, 0);
        self.cursor_shown = true;
        self.dirty = false;
        self.missed = false;
        self.shown.resize(Rect::ZERO);
        self.below.store(0, Ordering::Relaxed);
        self.out.write_all(self.painter.bytes())?;
        self.out.flush()
    }

    /// Nothing is on the screen yet.
    fn is_blank(&self) -> bool {
        self.shown.area.height == 0
    }

    /// Paints pending lines and the whole region over the region that is shown.
    fn repaint(&mut self) {
        let up = if self.dirty { self.rows_above_cursor() } else { self.at.0 };
        // The terminal may have broken rows already: it would keep what it knows of them in rows that are written over.
        let erase_all = self.dirty || self.parks;
        let old_rows = if erase_all { 0 } else { self.shown.area.height.max(1) };
        let rows = self.next.area.height;
        let pending = std::mem::take(&mut self.pending);
        let painter = &mut self.painter;
        painter.up(up);
        painter.raw(b"\r");
        if erase_all {
            painter.raw(ERASE_BELOW);
        }
        let mut printed = 0usize;
        // How many columns are filled in the rows that are overwritten.
        let shown = &self.shown;
        let filled = |at: usize| match u16::try_from(at) {
            Ok(y) if y < shown.area.height && !erase_all => paint::end_of(row(shown, y)),
            Ok(_) | Err(_) => 0,
        };
        let wrap = Wrap::kept(self.width);
        if !pending.is_empty() {
            painter.raw(WRAP);
        }
        for line in &pending {
            let broken;
            let fits = line.width() <= usize::from(self.width) && !line.spans.iter().any(needs_work);
            let rows = if fits {
                std::slice::from_ref(line)
            } else {
                broken = wrap.line(line);
                &broken
            };
            for line in rows {
                self.scratch.resize(Rect::new(0, 0, self.width, 1));
                self.scratch.reset();
                self.scratch.set_style(self.scratch.area, line.style);
                self.scratch.set_line(0, 0, line, self.width);
                painter.row(self.scratch.content(), filled(printed));
                painter.raw(b"\r\n");
                printed += 1;
            }
        }
        if !pending.is_empty() {
            painter.raw(NO_WRAP);
        }
        self.pending = pending;
        for y in 0..rows {
            if y > 0 {
                painter.raw(b"\r\n");
            }
            painter.row(row(&self.next, y), filled(printed + usize::from(y)));
        }
        if rows == 0 {
            painter.raw(ERASE_BELOW);
        } else if usize::from(old_rows) > printed + usize::from(rows) {
            // The old region has a row there, or had one before the terminal got lower. A full row above must not be
            // erased.
            painter.raw(b"\r\n");
            painter.raw(ERASE_BELOW);
            painter.up(1);
        }
        painter.lost_column();
        self.at = (rows.saturating_sub(1), 0);
    }

    /// Writes the cells that differ from what is shown, and rows that are new.
    fn update(&mut self) {
        let (old_rows, rows) = (self.shown.area.height, self.next.area.height);
        let painter = &mut self.painter;
        for y in 0..rows.min(old_rows) {
            painter.changes(&mut self.at, y, row(&self.shown, y), row(&self.next, y));
        }
        if rows > old_rows {
            painter.move_to(&mut self.at, (old_rows.max(1) - 1, 0));
            for y in old_rows..rows {
                painter.raw(if y > 0 { b"\r\n" } else { b"\r" });
                painter.row(row(&self.next, y), 0);
            }
            painter.lost_column();
            self.at = (rows - 1, 0);
        } else if rows < old_rows {
            painter.move_to(&mut self.at, (rows, 0));
            painter.raw(ERASE_BELOW);
        }
    }

    /// Returns how many rows the first row of the region is above the cursor, given that the terminal may
    /// have reflowed rows.
    ///
    /// An estimate must never be too large: it would erase finished lines. One that is too small leaves a
    /// stale row.
    fn rows_above_cursor(&self) -> u16 {
        let drawn = self.shown.area.width;
        if !self.reflow || self.width >= drawn || self.unsure {
            return self.at.0;
        }
        let mut rows = 0usize;
        for y in 0..self.at.0.min(self.shown.area.height) {
            rows += paint::reflowed(row(&self.shown, y), self.width).0;
        }
        if self.at.0 < self.shown.area.height {
            let cells = row(&self.shown, self.at.0);
            let before = &cells[..usize::from(self.at.1).min(cells.len())];
            let (all, end) = paint::reflowed(cells, self.width);
            // Past the end of its text the cursor stays in the last row of it.
            rows += if before.len() >= end { all - 1 } else { paint::rows_before(before, self.width) };
        }
        u16::try_from(rows).unwrap_or(u16::MAX).min(self.height.saturating_sub(1))
    }
}

/// Returns whether a span contains line breaks, tabs or characters that must be cleaned.
fn needs_work(span: &Span<'_>) -> bool {
    span.content.contains(['\n', '\t']) || matches!(clean(&span.content), Cow::Owned(_))
}

fn row(buffer: &Buffer, y: u16) -> &[Cell] {
    let width = usize::from(buffer.area.width);
    let start = usize::from(y) * width;
    &buffer.content()[start..start + width]
}
