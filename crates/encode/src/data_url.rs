//! Images in `data:` URLs.

use aye_core::contract::content::ContentBlock;
use aye_core::contract::image::ImageFormat;

/// Returns the image of a `data:` URL; `None` for anything but an image that models take, as base64.
pub(crate) fn image(url: &str) -> Option<ContentBlock> {
    let (media_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    block(media_type, data)
}

/// Returns an image from base64 data, when it is one that models take.
pub(crate) fn block(media_type: &str, data: &str) -> Option<ContentBlock> {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    ImageFormat::of_media_type(media_type)?;
    (!data.is_empty() && data.bytes().all(is_base64)).then(|| ContentBlock::image(media_type, data))
}

/// Returns the URL of an image.
pub(crate) fn of(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}
