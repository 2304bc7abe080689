//! Images: reading and storing them.

use super::TerminalHost;
use crate::compose::images;
use crate::contract::image::{ImageRef, Pixels};
use crate::tui::host::{Attach, Attached, HostFuture, ImageHost};

impl ImageHost for TerminalHost {
    fn attach(&self, what: Attach) -> HostFuture<'_, Attached> {
        Box::pin(async move { Ok(images::attach(&self.app, what).await?) })
    }

    fn picture<'a>(&'a self, image: &'a ImageRef) -> HostFuture<'a, Pixels> {
        Box::pin(async move { Ok(images::pixels(&self.app, image).await?) })
    }

    fn open<'a>(&'a self, images: &'a [ImageRef]) -> HostFuture<'a, ()> {
        Box::pin(async move { Ok(images::open(&self.app, images, &self.opened).await?) })
    }
}
