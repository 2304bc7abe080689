//! Images for terminals that draw them at their cursor: as a file in an iTerm2 sequence, or as sixels.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{decode, fitting, sixel, smaller};
use crate::contract::image::{Canvas, Drawing, Drawn, ImageRef, Pixels};

/// Pixels of the small one, for where it cannot be drawn.
const SMALL: (u32, u32) = (160, 96);
/// A cell of more columns of pixels than these has as many as the screen: smaller ones may be doubled by the terminal.
const SHARP: u32 = 16;
/// No picture has more pixels than these each way.
const MOST: (u32, u32) = (1920, 1280);
/// The maximum length of a sequence in bytes: some terminals, and programs in front of them, drop longer
/// ones.
const MOST_BYTES: usize = 1 << 20;

/// The picture as a terminal takes it, in whole cells.
///
/// # Errors
/// As [`decode`].
pub fn draw(bytes: &[u8], canvas: Canvas) -> Result<Drawn, String> {
    let image = ImageRef::of("", bytes).map_err(|error| error.to_string())?;
    let size = (image.width, image.height);
    let (wide, high) = (u32::from(canvas.cell.0.max(1)), u32::from(canvas.cell.1.max(1)));
    let room = (u32::from(canvas.most.0.max(1)) * wide, u32::from(canvas.most.1.max(1)) * high);
    let cells = |pixels: u32, cell: u32| u16::try_from(pixels.div_ceil(cell)).unwrap_or(u16::MAX).max(1);
    let whole_bands = |rows: u32| rows.div_ceil(sixel::BAND) * sixel::BAND;
    match canvas.drawing {
        Drawing::Sixel => {
            // Bands are drawn whole: the last one must not reach into the row below.
            let room = (room.0.min(MOST.0), (room.1.min(MOST.1) / sixel::BAND).max(1) * sixel::BAND);
            let pixels = decode(bytes, room)?;
            let (columns, rows) = (cells(pixels.width, wide), cells(whole_bands(pixels.height), high));
            let bytes = sixel::encode(&pixels, usize::from(canvas.colours));
            let small = smaller(&pixels, SMALL);
            Ok(Drawn { canvas, columns, rows, bytes, small })
        }
        Drawing::Iterm2 => {
            let (width, height) = fitting(size, room);
            let (columns, rows) = (cells(width, wide), cells(height, high));
            let finer = if wide < SHARP { 2 } else { 1 };
            let (mut width, mut height) = ((width * finer).min(MOST.0), (height * finer).min(MOST.1));
            loop {
                let pixels = decode(bytes, (width, height))?;
                let bytes = file_sequence(&png(&pixels).map_err(|error| error.to_string())?, columns, rows);
                if bytes.len() <= MOST_BYTES || width.max(height) < 64 {
                    let small = smaller(&pixels, SMALL);
                    return Ok(Drawn { canvas, columns, rows, bytes, small });
                }
                (width, height) = ((width * 2 / 3).max(1), (height * 2 / 3).max(1));
            }
        }
    }
}

/// Returns the sequence that makes a terminal draw a file in this many cells.
fn file_sequence(file: &[u8], columns: u16, rows: u16) -> Vec<u8> {
    let text = STANDARD.encode(file);
    let head = format!(
        "\x1b]1337;File=inline=1;size={};width={columns};height={rows};preserveAspectRatio=1:",
        file.len()
    );
    [head.as_bytes(), text.as_bytes(), b"\x07"].concat()
}

/// A file of pixels that were decoded here: nothing of the picture's own file goes to the terminal.
fn png(pixels: &Pixels) -> Result<Vec<u8>, png::EncodingError> {
    let has_alpha = pixels.rgba.iter().skip(3).step_by(4).any(|opacity| *opacity < u8::MAX);
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, pixels.width, pixels.height);
    encoder.set_depth(png::BitDepth::Eight);
    let samples = if has_alpha {
        encoder.set_color(png::ColorType::Rgba);
        Cow::Borrowed(&pixels.rgba[..])
    } else {
        encoder.set_color(png::ColorType::Rgb);
        pixels.rgba.chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect()
    };
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&samples)?;
    writer.finish()?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::tests::sample;
    use super::*;

    fn canvas(drawing: Drawing) -> Canvas {
        Canvas { drawing, most: (48, 12), cell: (10, 20), colours: 256 }
    }

    /// The colour of each pixel that was drawn.
    type Seen = HashMap<(usize, usize), [u8; 3]>;

    /// Returns what a terminal makes of sixels: the declared size, and the colour of each pixel drawn.
    fn seen(bytes: &[u8]) -> ((u32, u32), Seen) {
        let text = std::str::from_utf8(bytes).unwrap();
        let body = text.strip_prefix("\u{1b}P0;1;0q").unwrap().strip_suffix("\u{1b}\\").unwrap();
        let mut rest = body;
        let numbers = |rest: &mut &str| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(rest.len());
            let (all, behind) = rest.split_at(end);
            *rest = behind;
            all.split(';').filter_map(|n| n.parse::<usize>().ok()).collect::<Vec<_>>()
        };
        let (mut size, mut colours, mut drawn) = ((0, 0), HashMap::new(), HashMap::new());
        let (mut x, mut y, mut colour) = (0, 0, 0);
        while let Some(first) = rest.chars().next() {
            rest = &rest[1..];
            let mut put = |byte: char, count: usize| {
                let bits = byte as u8 - b'?';
                assert!(bits < 64, "{byte}");
                for column in x..x + count {
                    for row in (0..6).filter(|row| bits >> row & 1 == 1) {
                        drawn.insert((column, y + row), colours[&colour]);
                    }
                }
                x += count;
            };
            match first {
                '"' => {
                    let raster = numbers(&mut rest);
                    size = (raster[2] as u32, raster[3] as u32);
                }
                '#' => {
                    let told = numbers(&mut rest);
                    colour = told[0];
                    if let [_, 2, parts @ ..] = &told[..] {
                        let part = |n: usize| (parts[n] * 255 / 100) as u8;
                        colours.insert(colour, [part(0), part(1), part(2)]);
                    }
                }
                '!' => {
                    let count = numbers(&mut rest)[0];
                    let byte = rest.chars().next().unwrap();
                    rest = &rest[1..];
                    put(byte, count);
                }
                '$' => x = 0,
                '-' => (x, y) = (0, y + 6),
                byte => put(byte, 1),
            }
        }
        (size, drawn)
    }

    #[test]
    fn sixels_are_the_picture_and_leave_out_what_is_not_seen() {
        let made = draw(&sample(400, 200), canvas(Drawing::Sixel)).unwrap();
        // 200 rows of pixels are 34 bands, which reach into an eleventh row of cells.
        assert_eq!((made.columns, made.rows), (40, 11));
        let (size, drawn) = seen(&made.bytes);
        assert_eq!(size, (400, 200));
        assert_eq!((drawn[&(0, 0)], drawn[&(399, 99)]), ([255, 0, 0], [0, 0, 255]));
        assert_eq!((drawn.len(), drawn.get(&(0, 100))), (400 * 100, None), "the lower half is see-through");
        assert_eq!((made.small.width, made.small.height), (160, 80));
    }

    #[test]
    fn sixels_keep_to_the_cells_whatever_these_are() {
        for (size, most, cell) in [
            ((1000, 3000), (48, 12), (10, 20)),
            ((3000, 1000), (48, 12), (7, 13)),
            ((50, 7), (48, 12), (9, 17)),
            ((3, 8000), (48, 7), (10, 22)),
            ((8000, 3), (10, 1), (1, 1)),
        ] {
            let Canvas { drawing, colours, .. } = canvas(Drawing::Sixel);
            let made = draw(&sample(size.0, size.1), Canvas { drawing, most, cell, colours }).unwrap();
            let ((width, height), _) = seen(&made.bytes);
            assert!(made.columns <= most.0, "{size:?} {made:?}");
            assert!(width <= u32::from(made.columns * cell.0), "{size:?} {made:?}");
            if cell.1 >= 6 {
                assert!(made.rows <= most.1, "{size:?} {made:?}");
                assert!(height.div_ceil(6) * 6 <= u32::from(made.rows * cell.1), "{size:?} {made:?}");
            }
        }
    }

    #[test]
    fn few_colours_stand_for_many() {
        let rgba: Vec<u8> =
            (0..64u32 * 64).flat_map(|at| [(at % 64 * 4) as u8, (at / 64 * 4) as u8, 128, 255]).collect();
        let pixels = Pixels { width: 64, height: 64, rgba };
        for (most, off) in [(16, 24), (256, 6)] {
            let (_, drawn) = seen(&sixel::encode(&pixels, most));
            let colours: std::collections::HashSet<_> = drawn.values().collect();
            assert!((most / 2..=most).contains(&colours.len()), "{} of {most}", colours.len());
            // Over eight by eight pixels they are what was to be seen.
            for (left, top) in (0..64).step_by(8).flat_map(|x| (0..64).step_by(8).map(move |y| (x, y))) {
                let cells = (left..left + 8).flat_map(|x| (top..top + 8).map(move |y| (x, y)));
                let mut sums = [0; 3];
                for (x, y) in cells {
                    for (sum, (is, want)) in
                        sums.iter_mut().zip(drawn[&(x, y)].iter().zip([x * 4, y * 4, 128]))
                    {
                        *sum += i32::from(*is) - want as i32;
                    }
                }
                assert!(sums.iter().all(|sum| sum.abs() / 64 <= off), "{most} at {left}, {top}: {sums:?}");
            }
        }
    }

    #[test]
    fn iterm2_gets_a_file_of_its_own_in_whole_cells() {
        let made = draw(&sample(640, 480), canvas(Drawing::Iterm2)).unwrap();
        assert_eq!((made.columns, made.rows), (32, 12));
        let text = String::from_utf8(made.bytes).unwrap();
        let (head, data) = text.strip_suffix('\u{7}').unwrap().split_once(':').unwrap();
        let file = STANDARD.decode(data).unwrap();
        assert_eq!(
            head,
            format!("\u{1b}]1337;File=inline=1;size={};width=32;height=12;preserveAspectRatio=1", file.len())
        );
        let seen = decode(&file, (8000, 8000)).unwrap();
        assert_eq!((seen.width, seen.height), (640, 480), "twice as fine as the cells");
        assert_eq!(seen, decode(&sample(640, 480), (640, 480)).unwrap());
        let opaque = Pixels { width: 2, height: 1, rgba: vec![1, 2, 3, 255, 250, 3, 4, 255] };
        assert_eq!(decode(&png(&opaque).unwrap(), (9, 9)).unwrap(), opaque);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn any_pixels_come_back(width in 1u32..20, height in 1u32..20, seed in any::<u64>(), most in 2usize..300) {
            let mut state = seed | 1;
            let rgba = (0..width * height * 4).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            });
            let pixels = Pixels { width, height, rgba: rgba.collect() };
            let (size, drawn) = seen(&sixel::encode(&pixels, most));
            prop_assert_eq!(size, (width, height));
            let opaque = pixels.rgba.chunks_exact(4).filter(|pixel| pixel[3] >= 128).count();
            prop_assert_eq!(drawn.len(), opaque);
            prop_assert_eq!(decode(&png(&pixels).unwrap(), (50, 50)).unwrap().rgba.len(), pixels.rgba.len());
        }
    }
}
