//! What the terminal shows: the inline screen with its scrollback, or the terminal's other screen while one of ours is up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::text::Line;

use super::super::TuiOptions;
use super::super::app::App;
use super::super::terminal::{Clipboard, Desktop, FullScreen, LiveTerminal};
use super::super::view::feed::Feed;
use super::super::view::sheet::Sheets;
use super::super::view::{self, Look, Picture};

/// The model with its screen.
pub(super) struct Screen<W: io::Write> {
    pub(super) terminal: LiveTerminal<W>,
    pub(super) feed: Feed,
    pub(super) look: Look,
    /// The other screen, while it is shown, and the size that the terminal had when it was switched to.
    other: Option<(FullScreen, (u16, u16))>,
    /// The same for whoever gives the terminal back.
    is_other: Arc<AtomicBool>,
    sheets: Sheets,
    mouse: bool,
    clipboard: Clipboard,
    desktop: Desktop,
}

impl<W: io::Write> Screen<W> {
    pub(super) fn new(
        terminal: LiveTerminal<W>,
        look: Look,
        options: &TuiOptions,
        is_other: Arc<AtomicBool>,
    ) -> Screen<W> {
        Screen {
            terminal,
            feed: Feed::default(),
            sheets: Sheets::new(look.clone()),
            look,
            other: None,
            is_other,
            mouse: options.mouse,
            clipboard: options.clipboard,
            desktop: options.desktop,
        }
    }

    /// Shows the model as it is now. Inline, finished lines go out for good and the rest is drawn below them; what
    /// gets finished while another screen is up goes out when it is left.
    pub(super) fn draw(&mut self, app: &App) -> io::Result<()> {
        let (width, height) = app.size;
        self.terminal.resize(width, height);
        if app.wants_other_screen() {
            return self.draw_other(app);
        }
        self.leave_other()?;
        let finished = self.feed.finished(app, &self.look);
        self.terminal.append(finished);
        let picture = view::live(app, &mut self.feed, &self.look);
        let rows = u16::try_from(picture.lines.len()).unwrap_or(u16::MAX).min(height);
        self.terminal.draw(rows, |area, buf| paint(&picture, area, buf))?;
        Ok(())
    }

    fn draw_other(&mut self, app: &App) -> io::Result<()> {
        self.enter_other(app.size)?;
        let picture = match (&app.viewer, &app.pane) {
            (Some(viewer), _) => view::reader::viewer(app, viewer, &mut self.sheets),
            (None, Some(pane)) => view::reader::full(app, pane, &mut self.sheets),
            (None, None) => return Ok(()),
        };
        if let Some((other, _)) = &mut self.other {
            other.draw(self.terminal.out_mut(), app.size, |area, buf| paint(&picture, area, buf))?;
        }
        Ok(())
    }

    fn enter_other(&mut self, size: (u16, u16)) -> io::Result<()> {
        if self.other.is_some() {
            return Ok(());
        }
        // Nothing of the live region stays behind: the terminal may break its rows anew meanwhile.
        self.terminal.finish(false)?;
        self.is_other.store(true, Ordering::SeqCst);
        let links = self.look.theme.links().clone();
        self.other = Some((FullScreen::default().with_links(links), size));
        FullScreen::enter(self.terminal.out_mut(), self.mouse)
    }

    /// Back to the screen with the scrollback.
    pub(super) fn leave_other(&mut self) -> io::Result<()> {
        let Some((_, size)) = self.other.take() else { return Ok(()) };
        let is_same = size == self.terminal.size();
        self.is_other.store(false, Ordering::SeqCst);
        FullScreen::leave(self.terminal.out_mut(), is_same)?;
        self.terminal.redraw();
        Ok(())
    }

    /// Paints everything with the next frame.
    pub(super) fn redraw(&mut self) {
        self.terminal.redraw();
        if let Some((other, _)) = &mut self.other {
            other.redraw();
        }
    }

    pub(super) fn append(&mut self, lines: Vec<Line<'static>>) {
        self.terminal.append(lines);
    }

    /// Puts text on the clipboard through the terminal, also over a remote shell.
    pub(super) fn copy(&mut self, text: &str) {
        let bytes = self.clipboard.bytes(text);
        let _ = self.terminal.out_mut().write_all(&bytes);
    }

    /// Rings, and has the terminal show a notification. Neither moves the cursor or changes the picture.
    pub(super) fn tell(&mut self, bell: bool, desktop: Option<&str>) {
        let mut bytes = desktop.map(|text| self.desktop.bytes(text)).unwrap_or_default();
        if bell {
            bytes.push(0x07);
        }
        let _ = self.terminal.out_mut().write_all(&bytes);
    }
}

fn paint(
    picture: &Picture,
    area: ratatui::layout::Rect,
    buf: &mut ratatui::buffer::Buffer,
) -> Option<ratatui::layout::Position> {
    for (y, line) in picture.lines.iter().enumerate().take(usize::from(area.height)) {
        buf.set_line(area.x, area.y + y as u16, line, area.width);
    }
    picture.caret
}
