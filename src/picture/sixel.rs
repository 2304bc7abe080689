//! Pixels as sixels: bands of six rows, in each of which every colour is written over the others once.

use std::io::Write as _;

use super::palette::{ColourTable, is_seen};
use crate::contract::image::Pixels;

/// Rows of pixels that a band has.
pub(super) const BAND: u32 = 6;

/// Returns the sequence. Invisible pixels of the image leave the screen unchanged.
pub(super) fn encode(pixels: &Pixels, most_colours: usize) -> Vec<u8> {
    let (width, height) = (pixels.width as usize, pixels.height as usize);
    let mut palette = ColourTable::of(&pixels.rgba, most_colours);
    let mut out = Vec::with_capacity(width * height / 4);
    let _ = write!(out, "\x1bP0;1;0q\"1;1;{width};{height}");
    for (number, colour) in palette.colours.iter().enumerate() {
        let [red, green, blue] = colour.map(|part| (u32::from(part) * 100 + 127) / 255);
        let _ = write!(out, "#{number};2;{red};{green};{blue}");
    }
    // Of each colour, the sixels of a band; only those of its own columns are filled.
    let mut sixels = vec![0u8; palette.colours.len() * width];
    let mut used = vec![false; palette.colours.len()];
    let mut spread = Spread::new(width);
    for (number, band) in pixels.rgba.chunks(width.max(1) * 4 * BAND as usize).enumerate() {
        if number > 0 {
            out.push(b'-');
        }
        for (y, row) in band.chunks_exact(width.max(1) * 4).enumerate() {
            spread.next_row();
            for (x, pixel) in row.chunks_exact(4).enumerate().filter(|(_, pixel)| is_seen(pixel[3])) {
                let wanted = spread.wanted(x, [pixel[0], pixel[1], pixel[2]]);
                let colour = usize::from(palette.number(wanted));
                if palette.is_coarse {
                    spread.miss(x, wanted, palette.colours[colour]);
                }
                used[colour] = true;
                sixels[colour * width + x] |= 1 << y;
            }
        }
        let mut is_first = true;
        for (colour, _) in used.iter().enumerate().filter(|(_, is_used)| **is_used) {
            if !std::mem::take(&mut is_first) {
                out.push(b'$');
            }
            let _ = write!(out, "#{colour}");
            let row = &mut sixels[colour * width..(colour + 1) * width];
            runs(row, &mut out);
            row.fill(0);
        }
        used.fill(false);
    }
    out.extend_from_slice(b"\x1b\\");
    out
}

/// The colour errors of pixels so far, passed on to those beside and below them (Floyd–Steinberg dithering):
/// few colours then cause no visible steps.
struct Spread {
    here: Vec<[i32; 3]>,
    below: Vec<[i32; 3]>,
}

impl Spread {
    fn new(width: usize) -> Spread {
        // One more at both sides.
        Spread { here: vec![[0; 3]; width + 2], below: vec![[0; 3]; width + 2] }
    }

    fn next_row(&mut self) {
        std::mem::swap(&mut self.here, &mut self.below);
        self.below.fill([0; 3]);
    }

    /// The colour that a pixel should have now.
    fn wanted(&self, x: usize, pixel: [u8; 3]) -> [u8; 3] {
        let mut wanted = pixel;
        for (part, missed) in wanted.iter_mut().zip(self.here[x + 1]) {
            *part = (i32::from(*part) + missed / 16).clamp(0, 255) as u8;
        }
        wanted
    }

    /// It has that one instead.
    fn miss(&mut self, x: usize, wanted: [u8; 3], has: [u8; 3]) {
        for channel in 0..3 {
            let missed = i32::from(wanted[channel]) - i32::from(has[channel]);
            self.here[x + 2][channel] += missed * 7;
            self.below[x][channel] += missed * 3;
            self.below[x + 1][channel] += missed * 5;
            self.below[x + 2][channel] += missed;
        }
    }
}

/// Writes the sixels of one colour; nothing of an empty end.
fn runs(row: &[u8], out: &mut Vec<u8>) {
    let end = row.iter().rposition(|sixel| *sixel != 0).map_or(0, |last| last + 1);
    for run in row[..end].chunk_by(|one, other| one == other) {
        let byte = b'?' + run[0];
        if run.len() > 3 {
            let _ = write!(out, "!{}", run.len());
            out.push(byte);
        } else {
            out.extend(std::iter::repeat_n(byte, run.len()));
        }
    }
}
