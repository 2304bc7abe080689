//! The images of the conversation that the screen needs: fetched when an entry has one, kept for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::app::App;
use super::msg::Cmd;
use super::theme::Depth;
use super::transcript::Entry;
use crate::host::ImageCmd;
use aye_core::contract::image::{ImageRef, Pixels};

/// Maximum images to keep; each takes some 60 KiB.
const KEPT: usize = 64;
/// Number of last entries whose images are requested.
const LAST: usize = 400;
/// Columns and rows of cells that a picture takes where it is printed.
pub const SMALL: (u16, u16) = (48, 12);

/// The state of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageState {
    /// It is on its way.
    Asked,
    Here(Arc<Pixels>),
    /// Why it cannot be shown.
    Broken(String),
}

/// The images of the conversation that the screen needs.
#[derive(Clone, Debug, Default)]
pub struct ImageCache {
    /// In how many colours pictures are drawn; `None`: not at all.
    depth: Option<Depth>,
    known: HashMap<String, ImageState>,
    order: VecDeque<String>,
    /// The conversation that was checked last, its number of entries, and its number of results with images.
    last_checked: (u32, usize, usize),
}

impl ImageCache {
    /// Creates a cache for images drawn in this number of colours.
    pub fn new(depth: Option<Depth>) -> ImageCache {
        ImageCache { depth, ..ImageCache::default() }
    }

    /// In how many colours they are drawn, when they are.
    pub fn depth(&self) -> Option<Depth> {
        self.depth
    }

    /// Returns the state of an image; `None` for an image that is not shown.
    pub fn get(&self, image: &ImageRef) -> Option<&ImageState> {
        self.known.get(&image.hash)
    }

    /// Returns how many of these images are not being loaded: lines laid out with fewer are stale.
    pub fn ready(&self, images: &[ImageRef]) -> usize {
        images.iter().filter(|image| !matches!(self.get(image), Some(ImageState::Asked))).count()
    }

    /// Stores the result of loading an image.
    pub fn take(&mut self, hash: &str, pixels: Result<Pixels, String>) {
        if let Some(known) = self.known.get_mut(hash) {
            *known = pixels.map_or_else(ImageState::Broken, |pixels| ImageState::Here(Arc::new(pixels)));
        }
    }

    fn ask(&mut self, image: &ImageRef, cmds: &mut Vec<Cmd>) {
        if self.known.contains_key(&image.hash) {
            return;
        }
        self.known.insert(image.hash.clone(), ImageState::Asked);
        self.order.push_back(image.hash.clone());
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        cmds.push(Cmd::Image(ImageCmd::Picture(image.clone())));
    }
}

impl App {
    /// Asks for pictures of entries that came since the last time.
    pub(super) fn want_pictures(&mut self, cmds: &mut Vec<Cmd>) {
        let entries = self.conversation.transcript.entries();
        let now = (self.conversation.epoch, entries.len(), self.conversation.transcript.pictured());
        if self.display.image_cache.depth.is_none() || self.display.image_cache.last_checked == now {
            return;
        }
        self.display.image_cache.last_checked = now;
        let last = entries.iter().rev().take(LAST);
        let images: Vec<ImageRef> = last.flat_map(Entry::images).take(KEPT).cloned().collect();
        for image in images.iter().rev() {
            self.display.image_cache.ask(image, cmds);
        }
    }
}
