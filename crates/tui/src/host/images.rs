//! Images that go with a message, and those that are shown.

use async_trait::async_trait;

use super::super::event_loop::Performer;
use super::words;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::image::{Canvas, Drawn, ImageRef, Packed, Pixels};

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
#[async_trait]
pub trait ImageHost: Send + Sync {
    /// Reads a picture and keeps its bytes.
    async fn attach(&self, what: Attach) -> Result<Attached, ForeignError>;

    /// A kept picture, small enough for a terminal.
    async fn picture(&self, image: &ImageRef) -> Result<Pixels, ForeignError>;

    /// A kept picture for a terminal that places pixels.
    async fn packed(&self, image: &ImageRef) -> Result<Packed, ForeignError>;

    /// Returns the same for a terminal that draws images at its cursor.
    async fn cursor_image(&self, image: &ImageRef, canvas: Canvas) -> Result<Drawn, ForeignError>;
}

/// An image is wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageCmd {
    /// Attach something in the place of these words of the text.
    Attach(String, Attach),
    /// Ask for a picture.
    Picture(ImageRef),
    /// Ask for a picture for a terminal that places pixels.
    Pack(ImageRef),
    /// Request an image for a terminal that draws images at its cursor.
    CursorImage(ImageRef, Canvas),
}

/// An image is there, or is not. Errors are sentences for the person.
#[derive(Clone, Debug)]
pub enum ImageMsg {
    /// The result of attaching something in place of these words.
    Attached(String, Result<Attached, String>),
    /// The picture of that hash, or why it cannot be shown.
    Picture(String, Result<Pixels, String>),
    /// The picture of that hash for a terminal that places pixels, or why it cannot be shown.
    Packed(String, Result<Packed, String>),
    /// The same for a terminal that draws images at its cursor.
    CursorImage(String, Result<Drawn, String>),
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
                Self::Pack(image) => {
                    let packed = words(host.packed(&image).await);
                    ImageMsg::Packed(image.hash, packed)
                }
                Self::CursorImage(image, canvas) => {
                    let drawn = words(host.cursor_image(&image, canvas).await);
                    ImageMsg::CursorImage(image.hash, drawn)
                }
            });
        });
    }
}
