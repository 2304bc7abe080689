//! The screen: the inline screen with its scrollback, or the terminal's alternate screen while one of ours is open.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::text::Line;

use super::super::TuiOptions;
use super::super::app::App;
use super::super::links::Links;
use super::super::status::{Chrome, TitleProgress, chrome};
use super::super::terminal::{Abilities, Clipboard, Desktop, FullScreen, Linear, LiveTerminal};
use super::super::view::layout_cache::Sheets;
use super::super::view::scrollback::ScrollbackWriter;
use super::super::view::{self, RenderStyle, Rendered, linear};

/// Keeps the composer where it is: the live region ends at the end of the screen as soon as it has more than the composer,
/// and stays as high as it was when less is shown in it. Printed lines take the place of its blank rows.
///
/// Where the cursor was at the start is not known. But no more than what was printed since then has to be above the
/// region, so a region that fills the rest of the screen ends with it, and what the shell showed is in the scrollback.
#[derive(Debug, Default)]
struct Anchor {
    /// Rows printed here that are above the region on the screen; at most.
    above: usize,
    /// Rows for the next frame.
    appended: usize,
    /// Rows of the terminal.
    height: usize,
    is_down: bool,
}

impl Anchor {
    /// Returns how many rows the region must have.
    fn least(&mut self, app: &App) -> usize {
        let height = usize::from(app.display.size.1);
        // A terminal that gets lower moves the rows at its top to the scrollback.
        self.above = self.above.saturating_sub(self.height.saturating_sub(height));
        self.height = height;
        let is_large = !app.cards.open.is_empty() || app.overlays.picker.is_some();
        self.is_down |= is_large || app.conversation.is_active();
        if self.is_down { height.saturating_sub(self.above + self.appended) } else { 0 }
    }

    /// A frame was written with a region of that many rows.
    fn drawn(&mut self, rows: usize) {
        self.above = (self.above + std::mem::take(&mut self.appended)).min(self.height.saturating_sub(rows));
    }
}

/// The model with its screen.
pub(super) struct Screen<W: io::Write> {
    pub(super) terminal: LiveTerminal<W>,
    pub(super) feed: ScrollbackWriter,
    pub(super) render_style: RenderStyle,
    /// The other screen, while it is shown, and the size that the terminal had when it was switched to.
    other: Option<(FullScreen, (u16, u16))>,
    /// Whether the alternate screen is shown, for the code that restores the terminal.
    is_other: Arc<AtomicBool>,
    sheets: Sheets,
    mouse: bool,
    clipboard: Clipboard,
    desktop: Desktop,
    abilities: Abilities,
    /// The URLs of links; they stay when the colours change.
    links: Links,
    /// The state of the screen reader's output, and the lines that are not written yet.
    linear: Option<(Linear, Vec<String>)>,
    /// The current title and progress display of the terminal.
    chrome: Option<Chrome>,
    anchor: Anchor,
}

/// Returns the abilities of the terminal that the options permit.
pub(super) fn abilities(options: &TuiOptions) -> Abilities {
    let mut abilities = options.abilities;
    abilities.title &= options.title;
    abilities.progress &= options.progress;
    abilities
}

impl<W: io::Write> Screen<W> {
    pub(super) fn new(
        terminal: LiveTerminal<W>,
        render_style: RenderStyle,
        options: &TuiOptions,
        is_other: Arc<AtomicBool>,
    ) -> Screen<W> {
        Screen {
            terminal,
            feed: ScrollbackWriter::default(),
            sheets: Sheets::new(render_style.clone()),
            render_style,
            other: None,
            is_other,
            mouse: options.mouse,
            clipboard: options.clipboard,
            desktop: options.desktop,
            abilities: abilities(options),
            links: options.links.clone(),
            linear: options.screen_reader.then(Default::default),
            chrome: None,
            anchor: Anchor::default(),
        }
    }

    /// Shows the model as it is now. Inline, finished lines go out for good and the rest is drawn below them; what
    /// gets finished while another screen is up goes out when it is left.
    pub(super) fn draw(&mut self, app: &App) -> io::Result<()> {
        if !self.render_style.theme.is_same(app.theme()) {
            self.render_style.theme = app.theme().clone().with_links(self.links.clone());
            self.sheets = Sheets::new(self.render_style.clone());
        }
        let (width, height) = app.display.size;
        self.terminal.resize(width, height);
        if app.overlays.wants_other_screen() {
            self.draw_other(app)?;
            return self.show_outside(app);
        }
        self.leave_other()?;
        let finished = self.feed.finished(app, &self.render_style);
        self.append(finished);
        if let Some((linear, lines)) = &mut self.linear {
            let bytes = linear.frame(&std::mem::take(lines), linear::topics(app), &linear::prompt(app));
            self.terminal.out_mut().write_all(&bytes)?;
            return self.show_outside(app);
        }
        let least = self.anchor.least(app);
        let rendered = view::live_of(app, &mut self.feed, &self.render_style, least);
        let rows = u16::try_from(rendered.lines.len()).unwrap_or(u16::MAX).min(height);
        self.terminal.park(app.parks_caret());
        self.terminal.draw(rows, |area, buf| paint(&rendered, area, buf))?;
        if !self.terminal.was_missed() {
            self.anchor.drawn(usize::from(rows));
        }
        self.show_outside(app)
    }

    /// Updates the title and the progress display if they have changed and the terminal supports them.
    fn show_outside(&mut self, app: &App) -> io::Result<()> {
        if !self.abilities.title && !self.abilities.progress {
            return Ok(());
        }
        let now = chrome(app);
        if self.chrome.as_ref() == Some(&now) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        if self.abilities.title && self.chrome.as_ref().is_none_or(|old| old.title != now.title) {
            if self.chrome.is_none() {
                bytes.extend_from_slice(b"\x1b[22;2t");
            }
            bytes.extend_from_slice(format!("\x1b]2;{}\x1b\\", now.title).as_bytes());
        }
        let before = self.chrome.as_ref().map_or(TitleProgress::None, |old| old.progress);
        if self.abilities.progress && before != now.progress {
            bytes.extend_from_slice(now.progress.bytes());
        }
        self.chrome = Some(now);
        self.terminal.out_mut().write_all(&bytes)
    }

    /// Writes the remaining lines for a screen reader.
    pub(super) fn end_linear(&mut self) {
        if let Some((linear, lines)) = &mut self.linear {
            let mut bytes = linear.frame(&std::mem::take(lines), Vec::new(), "");
            bytes.extend_from_slice(linear.end());
            let _ = self.terminal.out_mut().write_all(&bytes);
        }
    }

    /// Requests the background colour, if the terminal's answer is understood. The call does not wait for it.
    pub(super) fn ask_background(&mut self) {
        if self.abilities.background {
            let _ = self.terminal.out_mut().write_all(b"\x1b]11;?\x1b\\");
        }
    }

    fn draw_other(&mut self, app: &App) -> io::Result<()> {
        self.enter_other(app.display.size)?;
        let rendered = match (&app.overlays.viewer, &app.overlays.pane) {
            (Some(viewer), _) => view::viewer::viewer(app, viewer, &mut self.sheets),
            (None, Some(pane)) => view::viewer::full(app, pane, &mut self.sheets),
            (None, None) => return Ok(()),
        };
        if let Some((other, _)) = &mut self.other {
            other.draw(self.terminal.out_mut(), app.display.size, |area, buf| paint(&rendered, area, buf))?;
        }
        Ok(())
    }

    fn enter_other(&mut self, size: (u16, u16)) -> io::Result<()> {
        if self.other.is_some() {
            return Ok(());
        }
        // The live region is removed completely: the terminal may rewrap its rows in the meantime.
        self.terminal.finish(false)?;
        self.is_other.store(true, Ordering::SeqCst);
        let links = self.render_style.theme.links().clone();
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

    /// Removes the live region. For a screen reader, everything is already in lines that stay.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if self.linear.is_some() { Ok(()) } else { self.terminal.finish(false) }
    }

    /// Paints everything with the next frame.
    pub(super) fn redraw(&mut self) {
        self.chrome = None;
        self.terminal.redraw();
        if let Some((other, _)) = &mut self.other {
            other.redraw();
        }
    }

    pub(super) fn append(&mut self, lines: Vec<Line<'static>>) {
        if let Some((_, texts)) = &mut self.linear {
            texts.extend(lines.iter().map(linear::words));
        } else {
            let width = self.terminal.size().0;
            let rows = |line: &Line<'_>| line.width().div_ceil(usize::from(width)).max(1);
            self.anchor.appended += lines.iter().map(rows).sum::<usize>();
            self.terminal.append(lines);
        }
    }

    /// Puts text on the clipboard through the terminal, also over a remote shell.
    pub(super) fn copy(&mut self, text: &str) {
        if !self.abilities.escapes {
            return;
        }
        let bytes = self.clipboard.bytes(text);
        let _ = self.terminal.out_mut().write_all(&bytes);
    }

    /// Sounds the bell, and has the terminal show a notification. Neither moves the cursor or changes the
    /// screen.
    pub(super) fn alert(&mut self, bell: bool, desktop: Option<&str>) {
        let desktop = desktop.filter(|_| self.abilities.escapes);
        let mut bytes = desktop.map(|text| self.desktop.bytes(text)).unwrap_or_default();
        if bell {
            bytes.push(0x07);
        }
        let _ = self.terminal.out_mut().write_all(&bytes);
    }
}

fn paint(
    rendered: &Rendered,
    area: ratatui::layout::Rect,
    buf: &mut ratatui::buffer::Buffer,
) -> Option<ratatui::layout::Position> {
    for (y, line) in rendered.lines.iter().enumerate().take(usize::from(area.height)) {
        buf.set_line(area.x, area.y + y as u16, line, area.width);
    }
    rendered.caret
}
