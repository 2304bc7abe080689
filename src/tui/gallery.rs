//! Pictures of the conversation as far as they are needed on the screen: asked for when an entry has one, kept for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::app::App;
use super::msg::Cmd;
use super::theme::Depth;
use super::transcript::EntryKind;
use crate::contract::image::{ImageRef, Pixels};

/// So many are kept; each has some 60 KiB.
const KEPT: usize = 64;
/// Pictures of so many of the last entries are asked for.
const LAST: usize = 400;

/// What is known of a picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// It is on its way.
    Asked,
    /// It is here.
    Here(Arc<Pixels>),
    /// Why it cannot be shown.
    Broken(String),
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Gallery {
    /// In how many colours pictures are drawn; `None`: not at all.
    depth: Option<Depth>,
    known: HashMap<String, Shown>,
    order: VecDeque<String>,
    /// Which conversation was looked at, and how many entries it had.
    looked: (u32, usize),
}

impl Gallery {
    /// Pictures are drawn in so many colours.
    pub fn new(depth: Option<Depth>) -> Gallery {
        Gallery { depth, ..Gallery::default() }
    }

    /// In how many colours they are drawn, when they are.
    pub fn depth(&self) -> Option<Depth> {
        self.depth
    }

    /// What is known of a picture. Nothing is known of one that is not shown.
    pub fn get(&self, image: &ImageRef) -> Option<&Shown> {
        self.known.get(&image.hash)
    }

    /// How many of these are not on their way: lines that were laid out with fewer are stale.
    pub fn ready(&self, images: &[ImageRef]) -> usize {
        images.iter().filter(|image| !matches!(self.get(image), Some(Shown::Asked))).count()
    }

    /// Takes in what came of a picture.
    pub fn take(&mut self, hash: &str, pixels: Result<Pixels, String>) {
        if let Some(shown) = self.known.get_mut(hash) {
            *shown = match pixels {
                Ok(pixels) => Shown::Here(Arc::new(pixels)),
                Err(why) => Shown::Broken(why),
            };
        }
    }

    fn ask(&mut self, image: &ImageRef, cmds: &mut Vec<Cmd>) {
        if self.known.contains_key(&image.hash) {
            return;
        }
        self.known.insert(image.hash.clone(), Shown::Asked);
        self.order.push_back(image.hash.clone());
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        cmds.push(Cmd::Picture(image.clone()));
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
