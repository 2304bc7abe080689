//! The protocol for images: the user's setting, and what the terminal reports.
//!
//! It is queried for its name, the size of its cells and its attributes, in this order; every terminal answers the
//! last one, so all other answers are known by then. Nothing waits for them.

use super::super::graphics::{TerminalKind, TerminalQuery, TerminalReply};
use super::super::msg::Cmd;
use super::super::theme::Depth;
use super::super::transcript::Moment;
use super::{ImageCache, ImageMode, ImageState, SMALL};
use crate::host::ImageCmd;
use aye_core::contract::image::{Canvas, Drawing, Drawn, ImageRef};

/// Size of a cell in pixels if the terminal does not report it. Only files can be drawn then: their size is
/// given in cells.
const CELL: (u16, u16) = (10, 20);
/// Limits for a plausible size of a cell.
const LEAST_CELL: (u16, u16) = (4, 6);
const MOST_CELL: (u16, u16) = (200, 400);
/// How long images wait at the start for the terminal's answers.
const HELD_MS: u64 = 400;
/// Colours that sixels have where the terminal does not say it.
const COLOURS: u16 = 256;

/// The form in which the terminal receives images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageProtocol {
    /// As characters.
    #[default]
    Cells,
    /// As pixels, which it places where characters say it.
    Placed,
    /// As pixels that are drawn at the cursor, once they no longer change.
    Drawn(Drawing),
}

/// The known properties of the terminal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ImageSupport {
    /// No multiplexer or ssh in between.
    pub(super) is_direct: bool,
    /// Its environment says that it takes files; another one may have left that there.
    pub(super) takes_files: bool,
    maker: Option<TerminalKind>,
    cell: Option<(u16, u16)>,
    colours: Option<u16>,
    has_sixel: bool,
    /// It was asked how many colours it has.
    asked_colours: bool,
}

impl ImageCache {
    /// For a terminal with nothing between us and it, or with something; its environment may say that it takes files.
    #[must_use]
    pub fn on(mut self, is_direct: bool, takes_files: bool) -> ImageCache {
        self.support = ImageSupport { is_direct, takes_files, ..ImageSupport::default() };
        if self.depth.is_some() && self.images == ImageMode::Iterm2 && is_direct {
            self.way = ImageProtocol::Drawn(Drawing::Iterm2);
        }
        self
    }

    /// Returns the queries to send to the terminal at the start.
    pub fn questions(&self) -> &'static [TerminalQuery] {
        match (self.depth, self.images) {
            (Some(_), ImageMode::Auto) if self.support.is_direct => {
                &[TerminalQuery::Cell, TerminalQuery::Name, TerminalQuery::Attributes]
            }
            (Some(_), ImageMode::Iterm2) if self.support.is_direct => &[TerminalQuery::Cell],
            // A program between us and the terminal may draw them itself.
            (Some(_), ImageMode::Sixel) => &[TerminalQuery::Cell, TerminalQuery::Attributes],
            (Some(_), ImageMode::Auto | ImageMode::Iterm2 | ImageMode::Blocks | ImageMode::Off)
            | (None, _) => &[],
        }
    }

    /// The terminal was just asked: pictures wait for its answers, and not for long.
    #[must_use]
    pub fn waiting_since(self, now: Moment) -> ImageCache {
        let is_asked = self.questions().contains(&TerminalQuery::Attributes);
        ImageCache { held: is_asked.then(|| now.plus(HELD_MS)), ..self }
    }

    /// Until when pictures wait, when some do.
    pub fn waiting_until(&self) -> Option<Moment> {
        self.held.filter(|_| !self.known.is_empty())
    }

    /// They wait no more.
    pub(super) fn let_go(&mut self, cmds: &mut Vec<Cmd>) {
        if self.held.take().is_some() {
            self.ask_again(cmds);
        }
    }

    /// Returns the form in which the terminal receives images.
    pub fn way(&self) -> ImageProtocol {
        self.way
    }

    /// Takes in an answer of the terminal.
    pub fn receive_reply(&mut self, reply: TerminalReply, cmds: &mut Vec<Cmd>) {
        match reply {
            TerminalReply::Name(maker) => {
                self.support.maker = Some(maker);
                let is_auto = self.images == ImageMode::Auto;
                match maker {
                    TerminalKind::Places if is_auto && self.depth == Some(Depth::True) => {
                        self.go(ImageProtocol::Placed, cmds);
                    }
                    TerminalKind::Files if is_auto => self.go(ImageProtocol::Drawn(Drawing::Iterm2), cmds),
                    TerminalKind::Places | TerminalKind::Files | TerminalKind::Other => {}
                }
            }
            TerminalReply::Cell(width, height) => self.measure((width, height), cmds),
            TerminalReply::Colours(count) => self.support.colours = Some(count.clamp(2, COLOURS)),
            TerminalReply::Attributes { sixel, cell } => {
                self.support.has_sixel |= sixel;
                if let (None, Some(cell)) = (self.support.cell, cell) {
                    self.measure(cell, cmds);
                }
                if self.choose(cmds) {
                    self.let_go(cmds);
                }
            }
        }
    }

    /// Handles a new size of the terminal, as the size of its cells may have changed too. Sixels that do not
    /// fit them would cover the text.
    pub fn resized(&mut self, cmds: &mut Vec<Cmd>) {
        if self.way == ImageProtocol::Drawn(Drawing::Sixel) {
            self.support.cell = None;
            cmds.extend([TerminalQuery::Cell, TerminalQuery::Attributes].map(Cmd::AskTerminal));
        }
    }

    /// Chooses the protocol once the answers are complete. Returns `false` if another query is needed first.
    fn choose(&mut self, cmds: &mut Vec<Cmd>) -> bool {
        if self.way != ImageProtocol::Cells || self.depth.is_none() {
            return true;
        }
        let has_sixel = match self.images {
            ImageMode::Auto => self.support.has_sixel,
            ImageMode::Sixel => true,
            ImageMode::Iterm2 | ImageMode::Blocks | ImageMode::Off => return true,
        };
        if self.images == ImageMode::Auto && self.support.takes_files && self.support.maker.is_none() {
            self.go(ImageProtocol::Drawn(Drawing::Iterm2), cmds);
        } else if has_sixel && self.support.cell.is_some() {
            if std::mem::replace(&mut self.support.asked_colours, true) {
                self.go(ImageProtocol::Drawn(Drawing::Sixel), cmds);
            } else {
                // Terminals without sixels may read something else in this question.
                cmds.extend([TerminalQuery::Colours, TerminalQuery::Attributes].map(Cmd::AskTerminal));
                return false;
            }
        }
        true
    }

    fn measure(&mut self, cell: (u16, u16), cmds: &mut Vec<Cmd>) {
        let fits = |n: u16, least: u16, most: u16| (least..=most).contains(&n);
        if !fits(cell.0, LEAST_CELL.0, MOST_CELL.0) || !fits(cell.1, LEAST_CELL.1, MOST_CELL.1) {
            return;
        }
        self.support.cell = Some(cell);
        // Images made for another cell size are no longer usable.
        let stale = |(_, shown): &(ImageRef, ImageState)| match shown {
            ImageState::CursorImage(drawn) => drawn.canvas.cell != cell,
            ImageState::Asked => true,
            ImageState::Here(_) | ImageState::Packed(_) | ImageState::Broken(_) => false,
        };
        if self.way == ImageProtocol::Drawn(Drawing::Sixel) && self.known.values().any(stale) {
            self.ask_again(cmds);
        }
    }

    fn go(&mut self, way: ImageProtocol, cmds: &mut Vec<Cmd>) {
        if self.way != way {
            self.way = way;
            self.held = None;
            self.ask_again(cmds);
        }
    }

    fn ask_again(&mut self, cmds: &mut Vec<Cmd>) {
        let cmd = |image: &ImageRef| self.wanted(image);
        let mut asked = Vec::new();
        for hash in &self.order {
            if let Some((image, shown)) = self.known.get(hash)
                && !matches!(shown, ImageState::Broken(_))
            {
                cmds.push(cmd(image));
                asked.push(hash.clone());
            }
        }
        for hash in asked {
            if let Some((_, shown)) = self.known.get_mut(&hash) {
                *shown = ImageState::Asked;
            }
        }
    }

    /// Returns the command that requests an image in the current form.
    pub(super) fn wanted(&self, image: &ImageRef) -> Cmd {
        match self.way {
            ImageProtocol::Cells => Cmd::Image(ImageCmd::Picture(image.clone())),
            ImageProtocol::Placed => Cmd::Image(ImageCmd::Pack(image.clone())),
            ImageProtocol::Drawn(drawing) => {
                let canvas = Canvas {
                    drawing,
                    most: self.room,
                    cell: self.support.cell.unwrap_or(CELL),
                    colours: self.support.colours.unwrap_or(COLOURS),
                };
                Cmd::Image(ImageCmd::CursorImage(image.clone(), canvas))
            }
        }
    }

    /// Sets the room for an image, from the columns and rows of the terminal and the columns before an image.
    pub(super) fn fit(&mut self, (columns, rows): (u16, u16), indent: u16) {
        let columns = columns.saturating_sub(indent + 1).clamp(1, SMALL.0);
        self.room = (columns, (rows / 2).clamp(1, SMALL.1));
    }

    /// Whether an image can be drawn in that room as it was made.
    pub fn can_draw(&self, drawn: &Drawn, room: (u16, u16)) -> bool {
        let is_exact = match drawn.canvas.drawing {
            Drawing::Iterm2 => true,
            Drawing::Sixel => self.support.cell == Some(drawn.canvas.cell),
        };
        self.way == ImageProtocol::Drawn(drawn.canvas.drawing)
            && is_exact
            && drawn.columns <= room.0.min(self.room.0)
            && drawn.rows <= room.1.min(self.room.1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ImageState;
    use super::*;
    use aye_core::contract::image::Pixels;

    fn image() -> ImageRef {
        ImageRef::of("a.gif", b"GIF89a\x80\x02\xe0\x01").unwrap()
    }

    fn told(image_cache: ImageCache, answers: &[TerminalReply]) -> (ImageCache, Vec<Cmd>) {
        let (mut image_cache, mut cmds) = (image_cache, Vec::new());
        image_cache.fit((80, 24), 2);
        image_cache.ask(&image(), &mut cmds);
        for answer in answers {
            image_cache.receive_reply(*answer, &mut cmds);
        }
        (image_cache, cmds)
    }

    fn attributes(sixel: bool) -> TerminalReply {
        TerminalReply::Attributes { sixel, cell: None }
    }

    #[test]
    fn the_answers_choose_the_way() {
        use TerminalReply::{Cell, Name};
        let cell = Cell(9, 18);
        let with_system = TerminalReply::Attributes { sixel: true, cell: Some((8, 16)) };
        let (files, sixels) = (ImageProtocol::Drawn(Drawing::Iterm2), ImageProtocol::Drawn(Drawing::Sixel));
        let true_colour = Some(Depth::True);
        for (depth, images, is_direct, takes_files, answers, want) in [
            (
                true_colour,
                ImageMode::Auto,
                true,
                false,
                &[cell, Name(TerminalKind::Places), attributes(false)][..],
                ImageProtocol::Placed,
            ),
            (
                Some(Depth::Indexed),
                ImageMode::Auto,
                true,
                false,
                &[cell, Name(TerminalKind::Places), attributes(false)],
                ImageProtocol::Cells,
            ),
            (
                true_colour,
                ImageMode::Auto,
                true,
                false,
                &[cell, Name(TerminalKind::Files), attributes(true)],
                files,
            ),
            (true_colour, ImageMode::Auto, true, true, &[attributes(false)], files),
            (
                true_colour,
                ImageMode::Auto,
                true,
                true,
                &[Name(TerminalKind::Other), attributes(false)],
                ImageProtocol::Cells,
            ),
            (
                Some(Depth::Indexed),
                ImageMode::Auto,
                true,
                false,
                &[cell, Name(TerminalKind::Other), attributes(true), attributes(true)],
                sixels,
            ),
            (true_colour, ImageMode::Auto, true, false, &[cell, attributes(true)], ImageProtocol::Cells),
            (
                true_colour,
                ImageMode::Auto,
                true,
                false,
                &[attributes(true), attributes(true)],
                ImageProtocol::Cells,
            ),
            (true_colour, ImageMode::Auto, true, false, &[with_system, attributes(true)], sixels),
            (
                true_colour,
                ImageMode::Auto,
                true,
                false,
                &[Cell(9, 0), attributes(true), attributes(true)],
                ImageProtocol::Cells,
            ),
            (
                true_colour,
                ImageMode::Sixel,
                false,
                false,
                &[cell, attributes(false), attributes(false)],
                sixels,
            ),
            (
                true_colour,
                ImageMode::Sixel,
                true,
                false,
                &[cell, Name(TerminalKind::Places), attributes(false)],
                ImageProtocol::Cells,
            ),
            (true_colour, ImageMode::Iterm2, true, false, &[], files),
            (true_colour, ImageMode::Iterm2, false, true, &[attributes(true)], ImageProtocol::Cells),
            (
                true_colour,
                ImageMode::Blocks,
                true,
                true,
                &[cell, Name(TerminalKind::Files), with_system, with_system],
                ImageProtocol::Cells,
            ),
            (None, ImageMode::Auto, true, true, &[cell, with_system, with_system], ImageProtocol::Cells),
        ] {
            let image_cache = ImageCache::new(depth).shown(images).on(is_direct, takes_files);
            assert_eq!(
                told(image_cache, answers).0.way(),
                want,
                "{depth:?} {images:?} {is_direct} {answers:?}"
            );
        }
    }

    #[test]
    fn only_one_that_has_sixels_is_asked_for_its_colours() {
        let auto = || ImageCache::new(Some(Depth::True)).on(true, false);
        assert_eq!(auto().questions(), [TerminalQuery::Cell, TerminalQuery::Name, TerminalQuery::Attributes]);
        let (_, cmds) = told(auto(), &[TerminalReply::Cell(9, 18), attributes(false)]);
        assert!(!cmds.iter().any(|cmd| matches!(cmd, Cmd::AskTerminal(_))), "{cmds:?}");
        let answers =
            [TerminalReply::Cell(9, 18), attributes(true), TerminalReply::Colours(16), attributes(true)];
        let (_, cmds) = told(auto(), &answers);
        assert_eq!(cmds[1..3], [TerminalQuery::Colours, TerminalQuery::Attributes].map(Cmd::AskTerminal));
        let canvas = Canvas { drawing: Drawing::Sixel, most: (48, 12), cell: (9, 18), colours: 16 };
        assert_eq!(cmds[3..], [Cmd::Image(ImageCmd::CursorImage(image(), canvas))]);
        assert!(ImageCache::new(Some(Depth::True)).on(false, true).questions().is_empty());
        let wanted = ImageCache::new(Some(Depth::True)).shown(ImageMode::Sixel).on(false, false);
        assert_eq!(wanted.questions(), [TerminalQuery::Cell, TerminalQuery::Attributes]);
    }

    #[test]
    fn pictures_wait_for_the_first_answers() {
        let auto = || ImageCache::new(Some(Depth::True)).on(true, false).waiting_since(Moment(5));
        assert_eq!(auto().waiting_until(), None, "no pending questions");
        let (mut image_cache, mut cmds) = told(auto(), &[TerminalReply::Cell(9, 18)]);
        assert_eq!((image_cache.waiting_until(), cmds.len()), (Some(Moment(405)), 0));
        image_cache.let_go(&mut cmds);
        assert_eq!(
            (image_cache.waiting_until(), &cmds[..]),
            (None, &[Cmd::Image(ImageCmd::Picture(image()))][..])
        );
        let (image_cache, cmds) = told(auto(), &[attributes(false)]);
        assert_eq!(
            (image_cache.waiting_until(), &cmds[..]),
            (None, &[Cmd::Image(ImageCmd::Picture(image()))][..])
        );
        let (image_cache, cmds) = told(auto(), &[TerminalReply::Cell(9, 18), attributes(true)]);
        assert!(
            image_cache.waiting_until().is_some()
                && cmds.iter().all(|cmd| matches!(cmd, Cmd::AskTerminal(_)))
        );
        let (image_cache, cmds) = told(image_cache, &[TerminalReply::Colours(16), attributes(true)]);
        assert!(
            image_cache.waiting_until().is_none()
                && matches!(cmds[..], [Cmd::Image(ImageCmd::CursorImage(..))]),
            "{cmds:?}"
        );
        let (image_cache, cmds) = told(auto(), &[TerminalReply::Name(TerminalKind::Places)]);
        assert_eq!(
            (image_cache.waiting_until(), &cmds[..]),
            (None, &[Cmd::Image(ImageCmd::Pack(image()))][..])
        );
        let forced = ImageCache::new(Some(Depth::True))
            .shown(ImageMode::Iterm2)
            .on(true, false)
            .waiting_since(Moment(5));
        assert!(
            matches!(told(forced, &[]).1[..], [Cmd::Image(ImageCmd::CursorImage(..))]),
            "it is not asked what it can"
        );
    }

    #[test]
    fn sixels_for_other_cells_are_not_drawn() {
        let answers = [TerminalReply::Cell(9, 18), attributes(true), attributes(true)];
        let (mut image_cache, mut cmds) = told(ImageCache::new(Some(Depth::True)).on(true, false), &answers);
        let Some(Cmd::Image(ImageCmd::CursorImage(_, canvas))) = cmds.pop() else { panic!("{cmds:?}") };
        let small = Pixels { width: 1, height: 1, rgba: vec![0; 4] };
        let drawn = Drawn { canvas, columns: 48, rows: 12, bytes: vec![1], small };
        image_cache.take_cursor_image(&image().hash, Ok(drawn.clone()));
        assert!(image_cache.can_draw(&drawn, SMALL) && !image_cache.can_draw(&drawn, (40, 12)));
        cmds.clear();
        image_cache.resized(&mut cmds);
        assert_eq!(cmds, [TerminalQuery::Cell, TerminalQuery::Attributes].map(Cmd::AskTerminal));
        assert!(!image_cache.can_draw(&drawn, SMALL), "nobody knows");
        cmds.clear();
        image_cache.receive_reply(TerminalReply::Cell(9, 18), &mut cmds);
        assert!(image_cache.can_draw(&drawn, SMALL) && cmds.is_empty());
        image_cache.receive_reply(TerminalReply::Cell(10, 20), &mut cmds);
        assert!(!image_cache.can_draw(&drawn, SMALL));
        assert!(
            matches!(&cmds[..], [Cmd::Image(ImageCmd::CursorImage(_, canvas))] if canvas.cell == (10, 20)),
            "{cmds:?}"
        );
        // An image made for the old cell size arrives late.
        image_cache.take_cursor_image(&image().hash, Ok(drawn));
        assert_eq!(image_cache.get(&image()), Some(&ImageState::Asked));
        image_cache.fit((30, 10), 2);
        assert_eq!(image_cache.room, (27, 5));
    }
}
