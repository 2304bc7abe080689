//! An image of the conversation in half blocks, two pixels a cell, with a caption below.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::super::super::image_cache::{ImageState, SMALL};
use super::super::super::theme::{Depth, Role};
use super::super::super::wrap::Wrap;
use super::{EntryLayout, INDENT, OUTPUT_INDENT};
use aye_core::contract::display::visible_line;
use aye_core::contract::image::{ImageRef, Pixels};

/// Columns and rows of cells where everything is shown.
const LARGE: (u16, u16) = (120, 40);

/// The lines of a picture.
pub(super) fn picture(image: &ImageRef, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut caption = image.caption();
    let (columns, rows) = if page.expanded { LARGE } else { SMALL };
    let columns = columns.min(page.width.saturating_sub(INDENT + 1));
    match (page.image_cache.get(image), page.image_cache.depth()) {
        (Some(ImageState::Here(pixels)), Some(depth)) => {
            lines = half_blocks(pixels, (columns, rows), depth);
        }
        (Some(ImageState::Broken(why)), _) => caption = format!("{caption} ({why})"),
        _ => {}
    }
    let wrap = Wrap::words(page.width).indent(INDENT, OUTPUT_INDENT);
    lines.extend(wrap.text(&visible_line(&caption), page.theme.style(Role::Dim)));
    lines
}

/// Renders the image in at most `most` cells.
fn half_blocks(pixels: &Pixels, most: (u16, u16), depth: Depth) -> Vec<Line<'static>> {
    let (columns, rows) = (usize::from(most.0), usize::from(most.1));
    let (wide, high) = (pixels.width as usize, pixels.height as usize);
    if columns == 0 || wide == 0 || high == 0 {
        return Vec::new();
    }
    // The most that keeps its shape; it is never made larger.
    let (most_w, most_h) = (columns.min(wide), (rows * 2).min(high));
    let (w, h) = if wide * most_h > high * most_w {
        (most_w, (high * most_w / wide).max(1))
    } else {
        ((wide * most_h / high).max(1), most_h)
    };
    let colour = |x: usize, y: usize| {
        let mean = mean(pixels, (x * wide / w, (x + 1) * wide / w), (y * high / h, (y + 1) * high / h));
        mean.map(|[red, green, blue]| depth.map(Color::Rgb(red, green, blue)))
    };
    let row = |y: usize| {
        let mut spans: Vec<Span<'static>> = vec![Span::raw(" ".repeat(usize::from(INDENT)))];
        let mut run: Option<(Style, &'static str, usize)> = None;
        for x in 0..w {
            let (upper, lower) = (colour(x, y), (y + 1 < h).then(|| colour(x, y + 1)).flatten());
            let (symbol, style) = match (upper, lower) {
                // Also where both are the same: what copies a screen drops blanks.
                (Some(upper), Some(lower)) => ("▀", Style::new().fg(upper).bg(lower)),
                (Some(upper), None) => ("▀", Style::new().fg(upper)),
                (None, Some(lower)) => ("▄", Style::new().fg(lower)),
                (None, None) => (" ", Style::new()),
            };
            run = match run {
                Some((known, same, count)) if known == style && same == symbol => {
                    Some((style, symbol, count + 1))
                }
                Some((known, other, count)) => {
                    spans.push(Span::styled(other.repeat(count), known));
                    Some((style, symbol, 1))
                }
                None => Some((style, symbol, 1)),
            };
        }
        if let Some((style, symbol, count)) = run {
            spans.push(Span::styled(symbol.repeat(count), style));
        }
        Line::from(spans)
    };
    (0..h).step_by(2).map(row).collect()
}

/// The mean colour of a part; `None` where little of it can be seen.
fn mean(pixels: &Pixels, across: (usize, usize), down: (usize, usize)) -> Option<[u8; 3]> {
    let wide = pixels.width as usize;
    let (mut sums, mut opacity, mut count) = ([0u64; 3], 0u64, 0u64);
    for y in down.0..down.1.max(down.0 + 1) {
        for x in across.0..across.1.max(across.0 + 1) {
            let at = (y * wide + x) * 4;
            let Some([red, green, blue, alpha]) = pixels.rgba.get(at..at + 4) else { continue };
            for (sum, colour) in sums.iter_mut().zip([red, green, blue]) {
                *sum += u64::from(*colour) * u64::from(*alpha);
            }
            opacity += u64::from(*alpha);
            count += 1;
        }
    }
    let is_seen = opacity > 0 && opacity * 2 >= count * 255;
    is_seen.then(|| sums.map(|sum| u8::try_from(sum / opacity).unwrap_or(u8::MAX)))
}
