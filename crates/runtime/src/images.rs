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

/// A request with more images than these may have no [large](LARGE) one: Anthropic refuses it, and with it every later
/// message of the conversation.
pub(super) const MANY: usize = 20;
/// The longest side, in pixels, of an image that is not large.
pub(super) const LARGE: u32 = 2000;
/// As many large images are left out at once, so that the start of the next requests stays the same.
const AT_ONCE: usize = 8;

fn images_of(messages: &[Arc<Message>]) -> impl DoubleEndedIterator<Item = &ImageRef> {
    messages.iter().flat_map(|message| &message.content).filter_map(ContentBlock::as_stored_image)
}

/// The number of large images that are sent: the newest ones.
fn kept_large(messages: &[Arc<Message>]) -> usize {
    let large = images_of(messages).filter(|image| is_large(image)).count();
    let too_many = images_of(messages).count().saturating_sub(MANY).div_ceil(AT_ONCE) * AT_ONCE;
    large.saturating_sub(too_many)
}

/// Returns the number of images that [`fill`] leaves out.
pub(super) fn left_out(messages: &[Arc<Message>]) -> usize {
    let (count, kept_large) = (images_of(messages).count(), kept_large(messages));
    let (mut used, mut sent, mut seen_large) = (0, 0, 0);
    for image in images_of(messages).rev() {
        seen_large += usize::from(is_large(image));
        if is_large(image) && seen_large > kept_large {
            continue;
        }
        used += image.bytes;
        if used > MOST {
            break;
        }
        sent += 1;
    }
    count - sent
}

/// Puts the bytes into messages, and returns the number of images that are left out.
pub(super) async fn fill(store: &(impl ThreadStore + ?Sized), messages: &mut [Arc<Message>]) -> usize {
    let (count, kept_large) = (images_of(messages).count(), kept_large(messages));
    let (mut used, mut sent, mut seen_large) = (0, 0, 0);
    for message in messages.iter_mut().rev() {
        if !message.content.iter().any(|block| block.as_stored_image().is_some()) {
            continue;
        }
        for block in Arc::make_mut(message).content.iter_mut().rev() {
            let ContentBlock::StoredImage(image) = &*block else { continue };
            if is_large(image) {
                seen_large += 1;
                if seen_large > kept_large {
                    continue;
                }
            }
            used += image.bytes;
            if used > MOST {
                return count - sent;
            }
            if let Some(bytes) = bytes_of(store, image).await {
                *block = ContentBlock::image(image.format.media_type(), STANDARD.encode(bytes));
            }
            sent += 1;
        }
    }
    count - sent
}

fn is_large(image: &ImageRef) -> bool {
    image.width.max(image.height) > LARGE
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

#[cfg(test)]
mod tests {
    use aye_core::contract::image::ImageFormat;
    use aye_local::InMemoryStore;

    use super::*;

    /// A conversation with images of these sides, the oldest first.
    async fn conversation(store: &InMemoryStore, sides: impl IntoIterator<Item = u32>) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for (at, side) in sides.into_iter().enumerate() {
            let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
            bytes.extend(side.to_be_bytes());
            bytes.extend(side.to_be_bytes());
            bytes.extend((at as u32).to_be_bytes());
            let image = ImageRef::of("i", &bytes).expect("an image");
            assert_eq!(image.format, ImageFormat::Png);
            store.put_image(&image, bytes, 0).await.expect("stored");
            messages.push(Arc::new(Message::user_with(vec![ContentBlock::StoredImage(image)])));
        }
        messages
    }

    /// Fills a conversation; which images were sent, and how many were left out.
    async fn sent(sides: impl IntoIterator<Item = u32>) -> (Vec<bool>, usize) {
        let store = InMemoryStore::default();
        let mut messages = conversation(&store, sides).await;
        let expected = super::left_out(&messages);
        let left_out = fill(&store, &mut messages).await;
        assert_eq!(left_out, expected);
        let is_sent = |message: &Arc<Message>| matches!(message.content[0], ContentBlock::Image { .. });
        (messages.iter().map(is_sent).collect(), left_out)
    }

    #[tokio::test]
    async fn many_large_images_leave_the_oldest_out() {
        assert_eq!(sent([2500; 20]).await, (vec![true; 20], 0), "as many as are accepted");
        assert_eq!(sent([2000; 30]).await, (vec![true; 30], 0), "small enough");
        for count in [21, 28] {
            let (is_sent, left_out) = sent(vec![2500; count]).await;
            assert_eq!(left_out, 8, "the start of the next requests stays the same");
            assert_eq!(is_sent.iter().position(|is_sent| *is_sent), Some(8));
        }
        assert_eq!(sent([2500; 29]).await.1, 16);
        // Among many small ones, no large one is accepted.
        let (is_sent, left_out) = sent([100; 15].into_iter().chain([2500, 2500]).chain([100; 15])).await;
        assert_eq!((left_out, is_sent[15], is_sent[16]), (2, false, false));
    }
}
