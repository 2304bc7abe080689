//! Reduces an image to a few colours: its colours are split in the middle until there are enough parts.

use std::ops::Range;

/// The bits of each channel by which colours are distinguished.
const BITS: u32 = 5;
const BINS: usize = 1 << (3 * BITS);

/// Colours that are alike.
#[derive(Clone, Copy, Default)]
struct Bin {
    at: usize,
    sums: [u64; 3],
    count: u64,
}

impl Bin {
    /// The part of its place that is one of red, green and blue.
    fn part(&self, channel: usize) -> usize {
        (self.at >> ((2 - channel as u32) * BITS)) & ((1 << BITS) - 1)
    }
}

/// The colours of the table, and the colour that represents each other one.
pub(super) struct ColourTable {
    pub(super) colours: Vec<[u8; 3]>,
    of: Vec<Option<u8>>,
    /// Whether some entries represent colours that differ.
    pub(super) is_coarse: bool,
}

fn bin(red: u8, green: u8, blue: u8) -> usize {
    let part = |colour: u8| usize::from(colour) >> (8 - BITS);
    (part(red) << (2 * BITS)) | (part(green) << BITS) | part(blue)
}

/// Returns whether a pixel is visible.
pub(super) fn is_seen(alpha: u8) -> bool {
    alpha >= 128
}

impl ColourTable {
    /// Creates a table of at most `most` colours (and no more than 256) for these pixels.
    pub(super) fn of(rgba: &[u8], most: usize) -> ColourTable {
        let mut bins = vec![Bin::default(); BINS];
        for pixel in rgba.chunks_exact(4).filter(|pixel| is_seen(pixel[3])) {
            let bin = &mut bins[bin(pixel[0], pixel[1], pixel[2])];
            bin.count += 1;
            for (sum, colour) in bin.sums.iter_mut().zip(pixel) {
                *sum += u64::from(*colour);
            }
        }
        for (at, bin) in bins.iter_mut().enumerate() {
            bin.at = at;
        }
        bins.retain(|bin| bin.count > 0);
        let mut parts: Vec<Range<usize>> = Vec::new();
        if !bins.is_empty() {
            parts.push(0..bins.len());
        }
        while parts.len() < most.clamp(2, 256) {
            let widest = parts.iter().enumerate().filter(|(_, part)| part.len() > 1);
            let Some((at, _)) = widest.max_by_key(|(_, part)| weight(&bins[(*part).clone()])) else { break };
            let part = parts[at].clone();
            let middle = cut(&mut bins[part.clone()]) + part.start;
            parts[at] = part.start..middle;
            parts.push(middle..part.end);
        }
        let is_coarse = parts.len() < bins.len();
        let mut palette =
            ColourTable { colours: Vec::with_capacity(parts.len()), of: vec![None; BINS], is_coarse };
        for (number, part) in (0..=u8::MAX).zip(parts) {
            let bins = &bins[part];
            let count: u64 = bins.iter().map(|bin| bin.count).sum();
            let mean = |channel: usize| {
                let sum: u64 = bins.iter().map(|bin| bin.sums[channel]).sum();
                u8::try_from((sum + count / 2) / count.max(1)).unwrap_or(u8::MAX)
            };
            palette.colours.push([mean(0), mean(1), mean(2)]);
            for bin in bins {
                palette.of[bin.at] = Some(number);
            }
        }
        palette
    }

    /// Returns the number of the entry that represents a colour: one from the image, or the nearest one.
    pub(super) fn number(&mut self, [red, green, blue]: [u8; 3]) -> u8 {
        let at = bin(red, green, blue);
        if let Some(number) = self.of[at] {
            return number;
        }
        let far = |colour: &[u8; 3]| {
            let parts = colour.iter().zip([red, green, blue]);
            parts.map(|(one, other)| u32::from(one.abs_diff(other)).pow(2)).sum::<u32>()
        };
        let nearest = (0..=u8::MAX).zip(&self.colours).min_by_key(|(_, colour)| far(colour));
        let number = nearest.map_or(0, |(number, _)| number);
        self.of[at] = Some(number);
        number
    }
}

/// From the least to the largest part of a channel.
fn range(bins: &[Bin], channel: usize) -> Range<usize> {
    let parts = bins.iter().map(|bin| bin.part(channel));
    parts.clone().min().unwrap_or(0)..parts.max().unwrap_or(0)
}

/// Returns how much is gained by splitting this part: more for many pixels, and for very different ones.
fn weight(bins: &[Bin]) -> u64 {
    let count: u64 = bins.iter().map(|bin| bin.count).sum();
    let widest = (0..3).map(|channel| range(bins, channel).len() as u64).max().unwrap_or(0);
    count.isqrt() * widest * widest
}

/// Sorts a part along its widest channel, and returns the index of its middle: neither side is empty.
fn cut(bins: &mut [Bin]) -> usize {
    let widest = (0..3).max_by_key(|channel| range(bins, *channel).len()).unwrap_or(0);
    bins.sort_by_key(|bin| (bin.part(widest), bin.at));
    let all: u64 = bins.iter().map(|bin| bin.count).sum();
    let mut seen = 0;
    for (at, bin) in bins.iter().enumerate() {
        seen += bin.count;
        if seen * 2 >= all {
            return (at + 1).min(bins.len() - 1);
        }
    }
    1
}
