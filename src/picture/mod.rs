//! Pictures as pixels, small enough for a terminal. Bytes come from anywhere: nothing is decoded whose header promises too
//! much, and what is not needed is skipped. It blocks for as long as 50 megapixels take: callers are on a thread that may.

mod scale;
#[cfg(test)]
mod tests;

use std::io::Cursor;

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::contract::image::{ImageError, ImageFormat, ImageRef, Pixels};
use scale::Scaler;

/// Interlaced pictures are not made smaller while they are read.
const MOST_INTERLACED: u64 = 16_000_000;
/// A progressive picture is read so often at most.
const MOST_SCANS: usize = 64;
/// The maximum memory of a decoder in addition to the image itself, in bytes.
const MEMORY: usize = 256 << 20;

/// Why an image cannot be shown: a sentence that starts with "it".
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// Its header cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A decoder cannot read it, or could only with more memory than it gets.
    #[error("it cannot be decoded: {0}")]
    Unfit(&'static str),
    /// The decoder of PNG failed.
    #[error("it cannot be decoded: {0}")]
    Png(#[from] png::DecodingError),
    /// The decoder of JPEG failed.
    #[error("it cannot be decoded: {0}")]
    Jpeg(#[from] zune_jpeg::errors::DecodeErrors),
    /// The decoder of GIF failed.
    #[error("it cannot be decoded: {0}")]
    Gif(#[from] gif::DecodingError),
    /// The decoder of WebP failed.
    #[error("it cannot be decoded: {0}")]
    Webp(#[from] image_webp::DecodingError),
}

/// Decodes the image to at most this many pixels, preserving its shape. An animated image becomes a still
/// one.
///
/// # Errors
/// [`PictureError`].
pub fn decode(bytes: &[u8], most: (u32, u32)) -> Result<Pixels, PictureError> {
    let image = ImageRef::of("", bytes)?;
    let (width, height) = fitting((image.width, image.height), most);
    let scaler = Scaler::new((image.width, image.height), (width, height));
    match image.format {
        ImageFormat::Png => png(bytes, scaler),
        ImageFormat::Jpeg => jpeg(bytes, scaler),
        ImageFormat::Gif => gif(bytes, scaler, (image.width, image.height)),
        ImageFormat::Webp => webp(bytes, scaler, (image.width, image.height)),
    }
}

/// The largest size of that shape that fits; never larger than the picture is.
pub fn fitting((width, height): (u32, u32), (most_wide, most_high): (u32, u32)) -> (u32, u32) {
    let (w, h) = (u64::from(width), u64::from(height));
    let (most_w, most_h) = (u64::from(most_wide.max(1)), u64::from(most_high.max(1)));
    if w <= most_w && h <= most_h {
        return (width, height);
    }
    let small = |n: u64| u32::try_from(n.max(1)).unwrap_or(u32::MAX);
    if w * most_h > h * most_w {
        (small(most_w), small(h * most_w / w))
    } else {
        (small(w * most_h / h), small(most_h))
    }
}

fn png(bytes: &[u8], mut scaler: Scaler) -> Result<Pixels, PictureError> {
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: MEMORY });
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info()?;
    let (colour, _) = reader.output_color_type();
    let channels = match colour {
        png::ColorType::Grayscale => 1,
        png::ColorType::GrayscaleAlpha => 2,
        png::ColorType::Rgb => 3,
        png::ColorType::Rgba => 4,
        png::ColorType::Indexed => return Err(PictureError::Unfit("its palette cannot be read")),
    };
    if reader.info().interlaced {
        let info = reader.info();
        if u64::from(info.width) * u64::from(info.height) > MOST_INTERLACED {
            return Err(PictureError::Unfit("it is interlaced and too large"));
        }
        let size = reader.output_buffer_size().ok_or(PictureError::Unfit("it is too large"))?;
        let mut all = vec![0; size];
        let frame = reader.next_frame(&mut all)?;
        for row in all.chunks_exact(frame.line_size) {
            scaler.row(row, channels);
        }
        return Ok(scaler.finish());
    }
    while let Some(row) = reader.next_row()? {
        scaler.row(row.data(), channels);
    }
    Ok(scaler.finish())
}

fn jpeg(bytes: &[u8], mut scaler: Scaler) -> Result<Pixels, PictureError> {
    let options = DecoderOptions::default()
        .set_max_width(scaler.from().0 as usize)
        .set_max_height(scaler.from().1 as usize)
        .jpeg_set_max_scans(MOST_SCANS)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(bytes), options);
    let all = decoder.decode()?;
    let channels = match decoder.output_colorspace() {
        Some(ColorSpace::Luma) => 1,
        Some(ColorSpace::LumaA) => 2,
        Some(ColorSpace::RGB) => 3,
        Some(ColorSpace::RGBA) => 4,
        _ => return Err(PictureError::Unfit("its colours are of an odd kind")),
    };
    for row in all.chunks_exact(scaler.from().0 as usize * channels) {
        scaler.row(row, channels);
    }
    Ok(scaler.finish())
}

fn gif(bytes: &[u8], mut scaler: Scaler, (width, height): (u32, u32)) -> Result<Pixels, PictureError> {
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::RGBA);
    options.check_frame_consistency(true);
    if let Some(limit) = std::num::NonZeroU64::new(MEMORY as u64) {
        options.set_memory_limit(gif::MemoryLimit::Bytes(limit));
    }
    let mut decoder = options.read_info(bytes)?;
    let frame = decoder.read_next_frame()?.ok_or(PictureError::Unfit("it contains no image"))?;
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (wide, high) = (usize::from(frame.width), usize::from(frame.height));
    let mut row = vec![0; width as usize * 4];
    for y in 0..height as usize {
        row.fill(0);
        if let Some(inside) = y.checked_sub(top).filter(|inside| *inside < high)
            && let Some(part) = frame.buffer.get(inside * wide * 4..(inside + 1) * wide * 4)
            && let Some(place) = row.get_mut(left * 4..(left + wide) * 4)
        {
            place.copy_from_slice(part);
        }
        scaler.row(&row, 4);
    }
    Ok(scaler.finish())
}

fn webp(bytes: &[u8], mut scaler: Scaler, (width, height): (u32, u32)) -> Result<Pixels, PictureError> {
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(bytes))?;
    decoder.set_memory_limit(MEMORY);
    if decoder.dimensions() != (width, height) {
        return Err(PictureError::Unfit("its headers do not agree"));
    }
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let size = decoder.output_buffer_size().ok_or(PictureError::Unfit("it is too large"))?;
    let mut all = vec![0; size];
    decoder.read_image(&mut all)?;
    for row in all.chunks_exact(width as usize * channels) {
        scaler.row(row, channels);
    }
    Ok(scaler.finish())
}
