//! Pictures of the conversation as far as they are needed on the screen: asked for when an entry has one, kept for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::app::App;
use super::graphics::Place;
use super::msg::Cmd;
use super::theme::Depth;
use super::transcript::EntryKind;
use crate::contract::image::{ImageRef, Packed, Pixels};

/// So many are kept; each has some 60 KiB.
const KEPT: usize = 64;
/// Those for a terminal that draws pixels have no more bytes than these.
const KEPT_BYTES: usize = 32 << 20;
/// Pictures of so many of the last entries are asked for.
const LAST: usize = 400;

/// How pictures are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Images {
    /// In pixels where the terminal draws them, else with cells.
    #[default]
    Auto,
    /// With cells.
    Blocks,
    /// By name only.
    Off,
}

/// What is known of a picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// It is on its way.
    Asked,
    /// It is here, to be drawn with cells.
    Here(Arc<Pixels>),
    /// It is here, for a terminal that draws pixels.
    Packed(Arc<Packed>),
    /// Why it cannot be shown.
    Broken(String),
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Gallery {
    /// In how many colours pictures are drawn; `None`: not at all.
    depth: Option<Depth>,
    /// They are drawn with cells also where the terminal draws pixels.
    in_blocks: bool,
    /// The terminal draws pixels.
    is_sharp: bool,
    known: HashMap<String, (ImageRef, Shown)>,
    order: VecDeque<String>,
    /// Which conversation was looked at, and how many entries it had.
    looked: (u32, usize),
}

impl Gallery {
    /// Pictures are drawn in so many colours.
    pub fn new(depth: Option<Depth>) -> Gallery {
        Gallery { depth, ..Gallery::default() }
    }

    /// As the person wants it.
    #[must_use]
    pub fn shown(self, images: Images) -> Gallery {
        match images {
            Images::Auto => self,
            Images::Blocks => Gallery { in_blocks: true, ..self },
            Images::Off => Gallery { depth: None, ..self },
        }
    }

    /// In how many colours they are drawn, when they are.
    pub fn depth(&self) -> Option<Depth> {
        self.depth
    }

    /// Whether they are drawn in pixels where the terminal can.
    pub fn wants_pixels(&self) -> bool {
        self.depth == Some(Depth::True) && !self.in_blocks
    }

    /// Whether the terminal draws pixels.
    pub fn is_sharp(&self) -> bool {
        self.is_sharp
    }

    /// What is known of a picture. Nothing is known of one that is not shown.
    pub fn get(&self, image: &ImageRef) -> Option<&Shown> {
        self.known.get(&image.hash).map(|(_, shown)| shown)
    }

    /// How many of these are not on their way: lines that were laid out with fewer are stale.
    pub fn ready(&self, images: &[ImageRef]) -> usize {
        images.iter().filter(|image| !matches!(self.get(image), Some(Shown::Asked))).count()
    }

    /// How these are shown: lines that were laid out at another number are stale.
    pub fn stage(&self, images: &[ImageRef]) -> usize {
        let packed = images.iter().filter(|image| matches!(self.get(image), Some(Shown::Packed(_)))).count();
        self.ready(images) + packed * (images.len() + 1)
    }

    /// The place with that number, and what is shown there.
    pub fn place(&self, id: u32) -> Option<(Place, &Packed)> {
        self.known.values().find_map(|(image, shown)| match shown {
            Shown::Packed(packed) => Some((Place::of(image, id)?, &**packed)),
            Shown::Asked | Shown::Here(_) | Shown::Broken(_) => None,
        })
    }

    /// Takes in what came of a picture.
    pub fn take(&mut self, hash: &str, pixels: Result<Pixels, String>) {
        // A better one is on its way, or here.
        if !self.is_sharp {
            self.set(hash, pixels.map(|pixels| Shown::Here(Arc::new(pixels))));
        }
    }

    /// The same for a terminal that draws pixels.
    pub fn take_packed(&mut self, hash: &str, packed: Result<Packed, String>) {
        self.set(hash, packed.map(|packed| Shown::Packed(Arc::new(packed))));
        let bytes = |known: &HashMap<String, (ImageRef, Shown)>| -> usize {
            let of = |(_, shown): &(ImageRef, Shown)| match shown {
                Shown::Packed(packed) => packed.zlib.len(),
                Shown::Asked | Shown::Here(_) | Shown::Broken(_) => 0,
            };
            known.values().map(of).sum()
        };
        while self.order.len() > 1 && bytes(&self.known) > KEPT_BYTES {
            self.forget_oldest();
        }
    }

    /// The terminal draws pixels: what is here is asked for again.
    pub fn sharpen(&mut self, cmds: &mut Vec<Cmd>) {
        if self.is_sharp || !self.wants_pixels() {
            return;
        }
        self.is_sharp = true;
        for hash in &self.order {
            if let Some((image, shown)) = self.known.get_mut(hash)
                && !matches!(shown, Shown::Broken(_))
            {
                *shown = Shown::Asked;
                cmds.push(Cmd::Pack(image.clone()));
            }
        }
    }

    fn set(&mut self, hash: &str, shown: Result<Shown, String>) {
        if let Some((_, known)) = self.known.get_mut(hash) {
            *known = shown.unwrap_or_else(Shown::Broken);
        }
    }

    fn ask(&mut self, image: &ImageRef, cmds: &mut Vec<Cmd>) {
        if self.known.contains_key(&image.hash) {
            return;
        }
        self.known.insert(image.hash.clone(), (image.clone(), Shown::Asked));
        self.order.push_back(image.hash.clone());
        if self.order.len() > KEPT {
            self.forget_oldest();
        }
        cmds.push(if self.is_sharp { Cmd::Pack(image.clone()) } else { Cmd::Picture(image.clone()) });
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
        let entries = self.transcript.entries();
        let now = (self.epoch, entries.len());
        if self.gallery.depth.is_none() || self.gallery.looked == now {
            return;
        }
        self.gallery.looked = now;
        let last = entries.iter().rev().take(LAST);
        let images: Vec<ImageRef> = last
            .filter_map(|entry| match &entry.kind {
                EntryKind::User { images, .. } => Some(images),
                _ => None,
            })
            .flatten()
            .take(KEPT)
            .cloned()
            .collect();
        for image in images.iter().rev() {
            self.gallery.ask(image, cmds);
        }
    }
}
