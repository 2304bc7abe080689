//! Images: reading and storing them.

use async_trait::async_trait;

use super::TerminalHost;
use crate::compose::images;
use crate::contract::foreign::ForeignError;
use crate::contract::image::{ImageRef, Pixels};
use crate::tui::host::{Attach, Attached, ImageHost};

#[async_trait]
impl ImageHost for TerminalHost {
    async fn attach(&self, what: Attach) -> Result<Attached, ForeignError> {
        Ok(images::attach(&self.app, what).await?)
    }

    async fn picture(&self, image: &ImageRef) -> Result<Pixels, ForeignError> {
        Ok(images::pixels(&self.app, image).await?)
    }

    async fn open(&self, images: &[ImageRef]) -> Result<(), ForeignError> {
        Ok(images::open(&self.app, images, &self.opened).await?)
    }
}
