//! Pixels as sixels: bands of six rows, in each of which every colour is written over the others once.

use std::io::Write as _;

use super::palette::{Palette, is_seen};
use crate::contract::image::Pixels;

/// Rows of pixels that a band has.
pub(super) const BAND: u32 = 6;

/// The sequence. What is not seen of the picture is left as it is on the screen.
pub(super) fn encode(pixels: &Pixels, most_colours: usize) -> Vec<u8> {
    let (width, height) = (pixels.width as usize, pixels.height as usize);
    let palette = Palette::of(&pixels.rgba, most_colours);
    let mut out = Vec::with_capacity(width * height / 4);
    let _ = write!(out, "\x1bP0;1;0q\"1;1;{width};{height}");
    for (number, colour) in palette.colours.iter().enumerate() {
        let [red, green, blue] = colour.map(|part| (u32::from(part) * 100 + 127) / 255);
        let _ = write!(out, "#{number};2;{red};{green};{blue}");
    }
    // Of each colour, the sixels of a band; only those of its own columns are filled.
    let mut sixels = vec![0u8; palette.colours.len() * width];
    let mut used = vec![false; palette.colours.len()];
    for (number, band) in pixels.rgba.chunks(width.max(1) * 4 * BAND as usize).enumerate() {
        if number > 0 {
            out.push(b'-');
        }
        for (y, row) in band.chunks_exact(width.max(1) * 4).enumerate() {
            for (x, pixel) in row.chunks_exact(4).enumerate().filter(|(_, pixel)| is_seen(pixel[3])) {
                let colour = usize::from(palette.number(pixel[0], pixel[1], pixel[2]));
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
