//! Images: detected by their first bytes, and referred to by a message while the store keeps their bytes.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use super::amount::bytes_in_words;
use super::digest::sha256_hex;
use super::display::visible_line;

/// Providers take no larger ones: as base64 this is 5 MiB, which is the strictest of their limits.
pub const MAX_IMAGE_BYTES: u64 = (5 << 20) / 4 * 3;
/// Providers take none that is longer or wider.
pub const MAX_IMAGE_SIDE: u32 = 8000;
/// More pixels than these are not decoded: they would take too much memory and time.
pub const MAX_IMAGE_PIXELS: u64 = 50_000_000;
/// So much of a name is shown.
const NAME: usize = 40;

/// The formats that providers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
}

impl ImageFormat {
    /// The format by the first bytes; a name proves nothing.
    pub fn of(head: &[u8]) -> Option<ImageFormat> {
        Some(match head {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => ImageFormat::Png,
            [0xff, 0xd8, 0xff, ..] => ImageFormat::Jpeg,
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => ImageFormat::Gif,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => ImageFormat::Webp,
            _ => return None,
        })
    }

    /// The format that requests name like this.
    pub fn of_media_type(name: &str) -> Option<ImageFormat> {
        use ImageFormat::{Gif, Jpeg, Png, Webp};
        [Png, Jpeg, Gif, Webp].into_iter().find(|format| format.media_type() == name)
    }

    /// As requests name it.
    pub fn media_type(self) -> &'static str {
        match self {
            ImageFormat::Png => "image/png",
            ImageFormat::Jpeg => "image/jpeg",
            ImageFormat::Gif => "image/gif",
            ImageFormat::Webp => "image/webp",
        }
    }

    /// Returns the format's name for display.
    pub fn name(self) -> &'static str {
        match self {
            ImageFormat::Png => "PNG",
            ImageFormat::Jpeg => "JPEG",
            ImageFormat::Gif => "GIF",
            ImageFormat::Webp => "WebP",
        }
    }

    /// Returns whether a name ends like an image of these formats.
    pub fn is_likely(name: &str) -> bool {
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        ["png", "jpg", "jpeg", "gif", "webp"].iter().any(|known| ending.eq_ignore_ascii_case(known))
    }

    /// Columns and rows of pixels by the header.
    fn size(self, bytes: &[u8]) -> Option<(u32, u32)> {
        let be = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let le2 = |at: usize| Some(u32::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
        let le3 = |at: usize| Some(le2(at)? | u32::from(*bytes.get(at + 2)?) << 16);
        let size = match self {
            ImageFormat::Png => (be(16)?, be(20)?),
            ImageFormat::Gif => (le2(6)?, le2(8)?),
            ImageFormat::Webp => match bytes.get(12..16)? {
                b"VP8X" => (le3(24)? + 1, le3(27)? + 1),
                b"VP8L" => {
                    let bits = le2(21)? | le2(23)? << 16;
                    ((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1)
                }
                b"VP8 " => (le2(26)? & 0x3fff, le2(28)? & 0x3fff),
                _ => return None,
            },
            ImageFormat::Jpeg => jpeg_size(bytes)?,
        };
        Some(size).filter(|(width, height)| *width > 0 && *height > 0)
    }
}

/// Reads the size from the first frame header, skipping the segments before it.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        while *bytes.get(at)? != 0xff {
            at += 1;
        }
        let marker = *bytes.get(at + 1)?;
        match marker {
            0xff => at += 1,
            0x00 | 0x01 | 0xd0..=0xd8 => at += 2,
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                let two = |at: usize| Some(u32::from(*bytes.get(at)?) << 8 | u32::from(*bytes.get(at + 1)?));
                return Some((two(at + 7)?, two(at + 5)?));
            }
            _ => at += 2 + (usize::from(*bytes.get(at + 2)?) << 8 | usize::from(*bytes.get(at + 3)?)),
        }
    }
}

/// Why bytes are no picture that can be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// They are something else.
    #[error("not a PNG, JPEG, GIF or WebP image")]
    Unknown,
    /// The header is cut off or makes no sense.
    #[error("it starts like a {} image, but its header cannot be read", .0.name())]
    Broken(ImageFormat),
    /// Too many bytes.
    #[error(
        "it has {}; the maximum is {}: scale it down, or save it as JPEG",
        bytes_in_words(*.0),
        bytes_in_words(MAX_IMAGE_BYTES)
    )]
    Heavy(u64),
    #[error(
        "it is {0}×{1} pixels; the maximum is {MAX_IMAGE_SIDE} each way and 50 megapixels: scale it down"
    )]
    Large(u32, u32),
}

/// A picture whose bytes the store keeps by their hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ImageRef {
    /// The SHA-256 of the bytes, in hex.
    pub hash: String,
    /// The format of the image.
    pub format: ImageFormat,
    /// Columns of pixels.
    pub width: u32,
    /// Rows of pixels.
    pub height: u32,
    /// Bytes.
    pub bytes: u64,
    /// The image's name: a file name, safe to display.
    pub name: String,
}

impl ImageRef {
    /// Checks bytes that are expected to be an image of that name.
    ///
    /// # Errors
    /// [`ImageError`], a sentence that starts with "it".
    pub fn of(name: &str, bytes: &[u8]) -> Result<ImageRef, ImageError> {
        let format = ImageFormat::of(bytes).ok_or(ImageError::Unknown)?;
        let count = bytes.len() as u64;
        if count > MAX_IMAGE_BYTES {
            return Err(ImageError::Heavy(count));
        }
        let (width, height) = format.size(bytes).ok_or(ImageError::Broken(format))?;
        if width.max(height) > MAX_IMAGE_SIDE || u64::from(width) * u64::from(height) > MAX_IMAGE_PIXELS {
            return Err(ImageError::Large(width, height));
        }
        let name = short_name(name);
        Ok(ImageRef { hash: sha256_hex(bytes), format, width, height, bytes: count, name })
    }

    /// Returns the text for places where the image cannot be shown.
    pub fn caption(&self) -> String {
        let Self { format, width, height, bytes, name, .. } = self;
        format!("{}: {}, {width}×{height}, {}", short_name(name), format.name(), bytes_in_words(*bytes))
    }

    /// Returns the mark for the image in a draft.
    pub fn mark(&self, number: usize) -> String {
        format!("[image {number}{}", self.mark_end())
    }

    fn mark_end(&self) -> String {
        format!(": {} {}×{}]", short_name(&self.name), self.width, self.height)
    }

    /// Returns the position of the image's mark in a text, whatever the mark's number.
    pub fn mark_in(&self, text: &str) -> Option<Range<usize>> {
        let end = self.mark_end();
        text.match_indices(&end).find_map(|(at, _)| {
            let digits = text[..at].trim_end_matches(|c: char| c.is_ascii_digit());
            let start = digits.strip_suffix("[image ").filter(|_| digits.len() < at)?.len();
            Some(start..at + end.len())
        })
    }

    /// Estimates the number of tokens that a model counts for the image: by its pixels, but no more than
    /// after a provider has scaled it down.
    pub fn tokens(&self) -> usize {
        let pixels = u64::from(self.width) * u64::from(self.height);
        usize::try_from(pixels / 750).unwrap_or(usize::MAX).clamp(85, 1600)
    }
}

/// A picture as it is drawn: from the upper left, four bytes a pixel, red, green, blue and opacity.
#[derive(Clone, PartialEq, Eq)]
pub struct Pixels {
    pub width: u32,
    pub height: u32,
    pub rgba: Vec<u8>,
}

impl fmt::Debug for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pixels({}×{})", self.width, self.height)
    }
}

/// Returns a name without anything that controls a terminal or ends a mark, limited in length: its start and
/// its end.
fn short_name(name: &str) -> String {
    let name: String =
        visible_line(name).chars().map(|c| if matches!(c, '[' | ']') { '_' } else { c }).collect();
    let count = name.chars().count();
    if count <= NAME {
        return name;
    }
    let head: String = name.chars().take(NAME - 9).collect();
    let tail: String = name.chars().skip(count - 8).collect();
    format!("{head}…{tail}")
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.caption())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes
    }

    #[test]
    fn an_image_is_recognised_by_its_bytes() {
        let image = ImageRef::of("shot.txt", &png(640, 480)).unwrap();
        assert_eq!((image.format, image.width, image.height), (ImageFormat::Png, 640, 480));
        assert_eq!(image.caption(), "shot.txt: PNG, 640×480, 24 bytes");
        assert_eq!(ImageRef::of("a.png", b"#!/bin/sh"), Err(ImageError::Unknown));
        assert_eq!(ImageRef::of("a.png", &png(0, 1)), Err(ImageError::Broken(ImageFormat::Png)));
        assert_eq!(ImageRef::of("a.png", &png(1, 1)[..20]), Err(ImageError::Broken(ImageFormat::Png)));
        assert_eq!(ImageRef::of("a.png", &png(8001, 1)), Err(ImageError::Large(8001, 1)));
        assert_eq!(ImageRef::of("a.png", &png(7500, 7500)), Err(ImageError::Large(7500, 7500)));
        let mut heavy = png(10, 10);
        heavy.resize(4 << 20, 0);
        let why = ImageRef::of("a.png", &heavy).unwrap_err().to_string();
        assert_eq!(why, "it has 4.00 MiB; the maximum is 3.75 MiB: scale it down, or save it as JPEG");
    }

    #[test]
    fn headers_of_all_formats_are_read() {
        let size =
            |bytes: &[u8]| ImageRef::of("x", bytes).map(|image| (image.format, image.width, image.height));
        assert_eq!(size(b"GIF89a\x02\x01\x03\0rest"), Ok((ImageFormat::Gif, 258, 3)));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x0b\x08\0\x10\0\x20\x01";
        assert_eq!(size(jpeg), Ok((ImageFormat::Jpeg, 32, 16)));
        assert_eq!(size(&jpeg[..12]), Err(ImageError::Broken(ImageFormat::Jpeg)));
        let vp8x = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x0f\0\0\x07\0\0";
        assert_eq!(size(vp8x), Ok((ImageFormat::Webp, 16, 8)));
        let vp8l = b"RIFF\0\0\0\0WEBPVP8L\x0a\0\0\0\x2f\x0f\xc0\x01\0";
        assert_eq!(size(vp8l), Ok((ImageFormat::Webp, 16, 8)));
        let vp8 = b"RIFF\0\0\0\0WEBPVP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a\x10\0\x08\0";
        assert_eq!(size(vp8), Ok((ImageFormat::Webp, 16, 8)));
    }

    #[test]
    fn markers_are_found_and_odd_names_are_harmless() {
        let image = ImageRef::of("a]\u{1b}[31m\n.png", &png(3, 4)).unwrap();
        let mark = image.mark(12);
        assert!(!mark.contains('\u{1b}') && !mark.contains('\n'), "{mark}");
        let text = format!("see {mark} and [image: x]");
        assert_eq!(&text[image.mark_in(&text).unwrap()], mark);
        assert_eq!(image.mark_in("nothing"), None);
        let long = ImageRef::of(&format!("{}.png", "x".repeat(300)), &png(3, 4)).unwrap();
        assert!(long.name.ends_with("xxxx.png") && long.name.chars().count() <= NAME);
        let again = ImageRef { ..serde_json::from_value(serde_json::to_value(&long).unwrap()).unwrap() };
        assert_eq!(again, long);
    }

    #[test]
    fn token_counts_depend_on_pixels() {
        let of = |w, h| ImageRef::of("x", &png(w, h)).unwrap().tokens();
        assert_eq!((of(10, 10), of(750, 750), of(8000, 6000)), (85, 750, 1600));
    }
}
