//! Images that go with a message, and those that are shown.

use super::super::event_loop::Performer;
use super::{HostFuture, words};
use aye_core::contract::image::{ImageRef, Pixels};

/// The source of an image to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// The file of that path.
    Path(String),
    /// The content of the clipboard.
    Clipboard,
}

/// The result of attaching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    /// A picture that the store keeps now.
    Image(ImageRef),
    /// A text, on the clipboard.
    Text(String),
    /// No such file, or no picture.
    Nothing,
}

/// Images, as the program reads and keeps them.
pub trait ImageHost: Send + Sync {
    /// Reads a picture and keeps its bytes.
    fn attach(&self, what: Attach) -> HostFuture<'_, Attached>;

    /// A kept picture, small enough for a terminal.
    fn picture<'a>(&'a self, image: &'a ImageRef) -> HostFuture<'a, Pixels>;

    /// Shows kept images, whole, in the program that the user's desktop has for them.
    fn open<'a>(&'a self, images: &'a [ImageRef]) -> HostFuture<'a, ()>;
}

/// An image is wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageCmd {
    /// Attach something in the place of these words of the text.
    Attach(String, Attach),
    /// Ask for a picture.
    Picture(ImageRef),
    /// Show images in a program of the desktop.
    Open(Vec<ImageRef>),
}

/// An image is there, or is not. Errors are sentences for the person.
#[derive(Clone, Debug)]
pub enum ImageMsg {
    /// The result of attaching something in place of these words.
    Attached(String, Result<Attached, String>),
    /// The picture of that hash, or why it cannot be shown.
    Picture(String, Result<Pixels, String>),
    /// The program for images was started, or why not.
    Opened(Result<(), String>),
}

impl ImageCmd {
    pub(crate) fn perform(self, performer: &mut Performer) {
        let (host, send) = performer.both();
        performer.spawn(async move {
            send.answer(match self {
                Self::Attach(typed, what) => ImageMsg::Attached(typed, words(host.attach(what).await)),
                Self::Picture(image) => {
                    let pixels = words(host.picture(&image).await);
                    ImageMsg::Picture(image.hash, pixels)
                }
                Self::Open(images) => ImageMsg::Opened(words(host.open(&images).await)),
            });
        });
    }
}
