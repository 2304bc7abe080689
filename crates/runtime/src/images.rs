//! Images of a request: their bytes are inserted right before it is sent. A loaded conversation contains only
//! references.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use aye_core::contract::content::ContentBlock;
use aye_core::contract::image::ImageRef;
use aye_core::contract::message::Message;
use aye_core::contract::storage::ThreadStore;

/// Providers take requests of some 30 MB at most; base64 makes a third more of this. The newest pictures go first, a
/// model reads of the others that they were there.
const MOST: u64 = 20 << 20;

/// Puts the bytes into messages.
pub(super) async fn fill(store: &(impl ThreadStore + ?Sized), messages: &mut [Arc<Message>]) {
    let mut used = 0;
    for message in messages.iter_mut().rev() {
        if !message.content.iter().any(|block| block.as_stored_image().is_some()) {
            continue;
        }
        for block in Arc::make_mut(message).content.iter_mut().rev() {
            let ContentBlock::StoredImage(image) = &*block else { continue };
            used += image.bytes;
            if used > MOST {
                return;
            }
            if let Some(bytes) = bytes_of(store, image).await {
                *block = ContentBlock::image(image.format.media_type(), STANDARD.encode(bytes));
            }
        }
    }
}

async fn bytes_of(store: &(impl ThreadStore + ?Sized), image: &ImageRef) -> Option<Vec<u8>> {
    match store.image(&image.hash).await {
        Ok(Some(bytes)) => Some(bytes),
        Ok(None) => {
            tracing::warn!(image = image.hash, "the bytes of an image are missing");
            None
        }
        Err(error) => {
            tracing::error!(image = image.hash, %error, "the bytes of an image cannot be read");
            None
        }
    }
}
