//! The images of the conversation that the screen needs: fetched when an entry has one, kept for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

mod protocol;

use super::app::App;
use super::graphics::ImagePlacement;
use super::msg::Cmd;
use super::theme::Depth;
use super::transcript::{Entry, Moment};
use crate::host::ImageCmd;
use aye_core::contract::image::{Drawn, ImageRef, Packed, Pixels};
pub use protocol::ImageProtocol;
use protocol::ImageSupport;

/// Maximum images to keep; each takes some 60 KiB.
const KEPT: usize = 64;
/// Those for a terminal that draws pixels have no more bytes than these.
const KEPT_BYTES: usize = 32 << 20;
/// Number of last entries whose images are requested.
const LAST: usize = 400;
/// Columns and rows of cells that a picture takes where it is printed.
pub const SMALL: (u16, u16) = (48, 12);
/// Columns before one.
pub const INDENT: u16 = 2;

/// The display of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageMode {
    /// In pixels where the terminal draws them, else with cells.
    #[default]
    Auto,
    /// As files in sequences of iTerm2, without asking the terminal whether it knows them.
    Iterm2,
    /// As sixels, where the size of a cell is known.
    Sixel,
    /// With cells.
    Blocks,
    /// By name only.
    Off,
}

/// The state of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageState {
    /// It is on its way.
    Asked,
    /// It is here, to be drawn with cells.
    Here(Arc<Pixels>),
    /// It is here, for a terminal that places pixels.
    Packed(Arc<Packed>),
    /// Loaded, for a terminal that draws images at its cursor.
    CursorImage(Arc<Drawn>),
    /// Why it cannot be shown.
    Broken(String),
}

/// The images of the conversation that the screen needs.
#[derive(Clone, Debug, Default)]
pub struct ImageCache {
    /// In how many colours pictures are drawn; `None`: not at all.
    depth: Option<Depth>,
    images: ImageMode,
    way: ImageProtocol,
    support: ImageSupport,
    /// Pictures are not asked for before: until then the terminal may say how it wants them.
    held: Option<Moment>,
    /// Columns and rows of cells that one may take that is printed.
    room: (u16, u16),
    known: HashMap<String, (ImageRef, ImageState)>,
    order: VecDeque<String>,
    /// The conversation that was checked last, its number of entries, and its number of results with images.
    last_checked: (u32, usize, usize),
}

impl ImageCache {
    /// Creates a cache for images drawn in this number of colours.
    pub fn new(depth: Option<Depth>) -> ImageCache {
        ImageCache { depth, room: SMALL, ..ImageCache::default() }
    }

    /// Applies the user's setting.
    #[must_use]
    pub fn shown(self, images: ImageMode) -> ImageCache {
        let depth = if images == ImageMode::Off { None } else { self.depth };
        ImageCache { depth, images, ..self }
    }

    /// In how many colours they are drawn, when they are.
    pub fn depth(&self) -> Option<Depth> {
        self.depth
    }

    /// Returns the state of an image; `None` for an image that is not shown.
    pub fn get(&self, image: &ImageRef) -> Option<&ImageState> {
        self.known.get(&image.hash).map(|(_, shown)| shown)
    }

    /// Returns how many of these images are not being loaded: lines laid out with fewer are stale.
    pub fn ready(&self, images: &[ImageRef]) -> usize {
        images.iter().filter(|image| !matches!(self.get(image), Some(ImageState::Asked))).count()
    }

    /// Returns a number for the state of these images: lines laid out at another number are stale.
    pub fn stage(&self, images: &[ImageRef]) -> usize {
        let packed =
            images.iter().filter(|image| matches!(self.get(image), Some(ImageState::Packed(_)))).count();
        self.ready(images) + packed * (images.len() + 1)
    }

    /// The place with that number, and what is shown there.
    pub fn place(&self, id: u32) -> Option<(ImagePlacement, &Packed)> {
        self.known.values().find_map(|(image, shown)| match shown {
            ImageState::Packed(packed) => Some((ImagePlacement::of(image, id)?, &**packed)),
            ImageState::Asked | ImageState::Here(_) | ImageState::CursorImage(_) | ImageState::Broken(_) => {
                None
            }
        })
    }

    /// Returns the image that is drawn at that number.
    pub fn cursor_image(&self, id: u32) -> Option<&Arc<Drawn>> {
        self.known.values().find_map(|(image, shown)| match shown {
            ImageState::CursorImage(drawn) if ImagePlacement::of_cursor_image(image, drawn).id == id => {
                Some(drawn)
            }
            ImageState::CursorImage(_)
            | ImageState::Packed(_)
            | ImageState::Asked
            | ImageState::Here(_)
            | ImageState::Broken(_) => None,
        })
    }

    /// Stores the result of loading an image.
    pub fn take(&mut self, hash: &str, pixels: Result<Pixels, String>) {
        // A better one is on its way, or here.
        if self.way == ImageProtocol::Cells {
            self.set(hash, pixels.map(|pixels| ImageState::Here(Arc::new(pixels))));
        }
    }

    /// The same for a terminal that places pixels.
    pub fn take_packed(&mut self, hash: &str, packed: Result<Packed, String>) {
        if self.way == ImageProtocol::Placed {
            self.set(hash, packed.map(|packed| ImageState::Packed(Arc::new(packed))));
            self.forget_heavy();
        }
    }

    /// The same for one that draws them.
    pub fn take_cursor_image(&mut self, hash: &str, drawn: Result<Drawn, String>) {
        let is_wanted = match (&drawn, self.known.get(hash)) {
            (Ok(drawn), Some((image, _))) => {
                // One that was made for something else, another one is on its way for.
                matches!(self.wanted(image), Cmd::Image(ImageCmd::CursorImage(_, now))
                    if (now.drawing, now.cell) == (drawn.canvas.drawing, drawn.canvas.cell))
            }
            (Err(_), Some(_)) => matches!(self.way, ImageProtocol::Drawn(_)),
            (_, None) => false,
        };
        if is_wanted {
            self.set(hash, drawn.map(|drawn| ImageState::CursorImage(Arc::new(drawn))));
            self.forget_heavy();
        }
    }

    fn forget_heavy(&mut self) {
        let bytes = |known: &HashMap<String, (ImageRef, ImageState)>| -> usize {
            let of = |(_, shown): &(ImageRef, ImageState)| match shown {
                ImageState::Packed(packed) => packed.zlib.len(),
                ImageState::CursorImage(drawn) => drawn.bytes.len(),
                ImageState::Asked | ImageState::Here(_) | ImageState::Broken(_) => 0,
            };
            known.values().map(of).sum()
        };
        while self.order.len() > 1 && bytes(&self.known) > KEPT_BYTES {
            self.forget_oldest();
        }
    }

    fn set(&mut self, hash: &str, shown: Result<ImageState, String>) {
        if let Some((_, known)) = self.known.get_mut(hash) {
            *known = shown.unwrap_or_else(ImageState::Broken);
        }
    }

    fn ask(&mut self, image: &ImageRef, cmds: &mut Vec<Cmd>) {
        if self.known.contains_key(&image.hash) {
            return;
        }
        self.known.insert(image.hash.clone(), (image.clone(), ImageState::Asked));
        self.order.push_back(image.hash.clone());
        if self.order.len() > KEPT {
            self.forget_oldest();
        }
        if self.held.is_none() {
            cmds.push(self.wanted(image));
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.known.remove(&oldest);
        }
    }
}

impl App {
    /// Asks for pictures of entries that came since the last time.
    pub(super) fn want_pictures(&mut self, cmds: &mut Vec<Cmd>) {
        if self.image_cache.waiting_until().is_some_and(|until| until <= self.now) {
            self.image_cache.let_go(cmds);
        }
        let entries = self.transcript.entries();
        let now = (self.epoch, entries.len(), self.transcript.pictured());
        if self.image_cache.depth.is_none() || self.image_cache.last_checked == now {
            return;
        }
        self.image_cache.last_checked = now;
        self.image_cache.fit(self.size, INDENT);
        let last = entries.iter().rev().take(LAST);
        let images: Vec<ImageRef> = last.flat_map(Entry::images).take(KEPT).cloned().collect();
        for image in images.iter().rev() {
            self.image_cache.ask(image, cmds);
        }
    }
}
