//! Breaks styled text into lines by grapheme and display width, and makes hostile characters visible.
//!
//! Everything that comes from outside (models, tools, files, names) passes [`clean`] on its way into a cell:
//! the functions here call it themselves.

use std::borrow::Cow;

use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;

use aye_core::contract::display::visible;

#[cfg(test)]
mod tests;

/// The distance between tab stops, in columns.
const TAB: usize = 4;

/// The text with characters made visible that would steer the terminal or hide from the reader; see [`visible`].
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) { Cow::Borrowed(text) } else { visible(text) }
}

/// The places where a line may be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Between words; a word longer than the line is broken hard. Blanks at a break go away.
    Words,
    /// After spaces, and anywhere in a word longer than the line; every space is preserved. For code and tool
    /// output.
    Kept,
}

/// The rules for wrapping a text: the width and the prefixes of its lines.
#[derive(Clone, Debug)]
pub struct Wrap {
    width: usize,
    first: Vec<Span<'static>>,
    rest: Vec<Span<'static>>,
    at: Break,
}

impl Wrap {
    /// Breaks between words.
    pub fn words(width: u16) -> Wrap {
        Wrap { width: usize::from(width.max(1)), first: Vec::new(), rest: Vec::new(), at: Break::Words }
    }

    /// Breaks after spaces and keeps all of them.
    pub fn kept(width: u16) -> Wrap {
        Wrap { at: Break::Kept, ..Wrap::words(width) }
    }

    /// Puts `first` before the first line and `rest` before the others (a bullet and its hanging indent).
    /// A prefix that leaves less than a few columns for the text is cut.
    #[must_use]
    pub fn prefix(mut self, first: Vec<Span<'static>>, rest: Vec<Span<'static>>) -> Wrap {
        let most = self.width.saturating_sub(self.width.min(4));
        self.first = cut(first, most);
        self.rest = cut(rest, most);
        self
    }

    /// Indents the first line and the others by blanks.
    #[must_use]
    pub fn indent(self, first: u16, rest: u16) -> Wrap {
        let blanks = |n: u16| if n == 0 { Vec::new() } else { vec![Span::raw(" ".repeat(usize::from(n)))] };
        self.prefix(blanks(first), blanks(rest))
    }

    /// Wraps one styled line; `\n` in it starts a new line. Returns at least one line.
    pub fn line(&self, line: &Line<'_>) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        self.spans_into(&line.spans, line.style, &mut lines);
        lines
    }

    /// Breaks text of one style.
    pub fn text(&self, text: &str, style: Style) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        self.spans_into(&[Span::styled(text, style)], Style::default(), &mut lines);
        lines
    }

    /// Breaks spans and appends the lines to `out`; each line gets `style` as its own.
    pub fn spans_into(&self, spans: &[Span<'_>], style: Style, out: &mut Vec<Line<'static>>) {
        let mut filler = Filler::new(self, style, out);
        for span in spans {
            for (i, piece) in span.content.split('\n').enumerate() {
                if i > 0 {
                    filler.new_line();
                }
                filler.add(&clean(piece.strip_suffix('\r').unwrap_or(piece)), span.style);
            }
        }
        filler.finish();
    }
}

/// The display width of a text as the terminal shows it; controls count nothing.
pub fn width(text: &str) -> usize {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return text.len();
    }
    text.graphemes(true).map(grapheme_width).sum()
}

/// The display width of one grapheme.
pub fn grapheme_width(grapheme: &str) -> usize {
    match grapheme.as_bytes() {
        [b] => usize::from((0x20..0x7f).contains(b)),
        _ => usize::from(grapheme.cell_width()),
    }
}

/// One cell must not hold thousands of combining marks; the longest emoji need eleven characters.
fn bounded(grapheme: &str) -> &str {
    const MOST: usize = 24;
    if grapheme.len() <= MOST {
        return grapheme;
    }
    grapheme.char_indices().nth(MOST).map_or(grapheme, |(end, _)| &grapheme[..end])
}

/// The text cut to `max` columns, with `…` at the end when something is missing. Cleaned, on one line.
pub fn truncate(text: &str, max: u16) -> String {
    let text = clean(text).replace(['\n', '\t'], " ");
    let max = usize::from(max);
    // No character has more columns than bytes, so a text that is written to a pipe need not be measured.
    if text.len() <= max || width(&text) <= max {
        return text;
    }
    let mut cut = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        used += grapheme_width(grapheme);
        if used + 1 > max {
            break;
        }
        cut.push_str(grapheme);
    }
    if max > 0 {
        cut.push('…');
    }
    cut
}

/// The text cut to `max` columns, with `…` in its middle when something is missing: the end of a path says more than its
/// middle. Cleaned, on one line.
pub fn truncate_middle(text: &str, max: u16) -> String {
    let text = clean(text).replace(['\n', '\t'], " ");
    if width(&text) <= usize::from(max) {
        return text;
    }
    let end = usize::from(max) * 2 / 3;
    let (mut used, mut from) = (0, text.len());
    for (at, grapheme) in text.grapheme_indices(true).rev() {
        used += grapheme_width(grapheme);
        if used > end {
            break;
        }
        from = at;
    }
    let rest = width(&text[from..]) as u16;
    format!("{}{}", truncate(&text[..from], max.saturating_sub(rest)), &text[from..])
}

/// Cuts a prefix to at most `max` columns.
fn cut(spans: Vec<Span<'static>>, max: usize) -> Vec<Span<'static>> {
    let mut left = max;
    let mut kept = Vec::with_capacity(spans.len());
    for mut span in spans {
        let wide = width(&span.content);
        if wide > left {
            let mut part = String::new();
            for grapheme in span.content.graphemes(true) {
                let wide = grapheme_width(grapheme);
                if wide > left {
                    break;
                }
                left -= wide;
                part.push_str(grapheme);
            }
            span.content = Cow::Owned(part);
            kept.push(span);
            break;
        }
        left -= wide;
        kept.push(span);
    }
    kept
}

/// Fills lines from left to right. The part after the last possible break is kept separate until it is known
/// whether that part still fits.
struct Filler<'a> {
    wrap: &'a Wrap,
    style: Style,
    out: &'a mut Vec<Line<'static>>,
    /// Spans of the line that are settled, and their width.
    line: Vec<Span<'static>>,
    used: usize,
    /// The column where the text starts after the prefix; tab stops count from there.
    origin: usize,
    /// Blanks since the last word; they are dropped when the line breaks here.
    blanks: Vec<Span<'static>>,
    blank_width: usize,
    /// The word that is being collected.
    word: Vec<Span<'static>>,
    word_width: usize,
    /// Nothing but the prefix is in the line yet.
    fresh: bool,
    /// The line continues the one before, by a soft break.
    soft: bool,
    /// The end of the last space after a word, in spans, bytes of the last one and columns: where a full line is broken.
    break_at: Option<(usize, usize, usize)>,
    /// The line has more than spaces after its prefix.
    has_words: bool,
}

impl<'a> Filler<'a> {
    fn new(wrap: &'a Wrap, style: Style, out: &'a mut Vec<Line<'static>>) -> Filler<'a> {
        let mut filler = Filler {
            wrap,
            style,
            out,
            line: Vec::new(),
            used: 0,
            origin: 0,
            blanks: Vec::new(),
            blank_width: 0,
            word: Vec::new(),
            word_width: 0,
            fresh: true,
            soft: false,
            break_at: None,
            has_words: false,
        };
        filler.begin(&wrap.first);
        filler
    }

    fn begin(&mut self, prefix: &[Span<'static>]) {
        self.line = prefix.to_vec();
        self.used = prefix.iter().map(|span| width(&span.content)).sum();
        self.origin = self.used;
        self.fresh = true;
        (self.break_at, self.has_words) = (None, false);
    }

    fn add(&mut self, text: &str, style: Style) {
        match self.wrap.at {
            Break::Words => self.add_words(text, style),
            Break::Kept => self.add_kept(text, style),
        }
    }

    fn add_words(&mut self, text: &str, style: Style) {
        for grapheme in text.graphemes(true).map(bounded) {
            if grapheme == " " || grapheme == "\t" {
                self.end_word();
                let wide = if grapheme == "\t" { TAB } else { 1 };
                // Blanks that lead a soft-broken line were the break itself, and a run wider than the line
                // says no more than a line of blanks would.
                if (self.fresh && self.soft) || self.blank_width >= self.wrap.width {
                    continue;
                }
                push(&mut self.blanks, &"    "[..wide], style);
                self.blank_width += wide;
                continue;
            }
            let wide = grapheme_width(grapheme);
            if wide == 0 {
                push(&mut self.word, grapheme, style);
                continue;
            }
            // Scripts without blanks may be broken between any two of their wide characters.
            if wide == 2 {
                self.end_word();
            }
            push(&mut self.word, grapheme, style);
            self.word_width += wide;
            if wide == 2 || self.word_width >= self.wrap.width {
                self.end_word();
            }
        }
    }

    fn add_kept(&mut self, text: &str, style: Style) {
        for grapheme in text.graphemes(true).map(bounded) {
            let is_blank = matches!(grapheme, " " | "\t");
            if grapheme == "\t" {
                let wide = TAB - (self.used - self.origin.min(self.used)) % TAB;
                let wide = wide.min(self.wrap.width.saturating_sub(self.used)).max(1);
                self.put(&"    "[..wide], wide, style);
            } else {
                let wide = grapheme_width(grapheme);
                if !is_blank && self.used + wide > self.wrap.width {
                    self.break_after_blank();
                }
                self.put(grapheme, wide, style);
            }
            if !is_blank {
                self.has_words = true;
            } else if self.has_words {
                let bytes = self.line.last().map_or(0, |span| span.content.len());
                self.break_at = Some((self.line.len(), bytes, self.used));
            }
        }
    }

    /// Starts a new line with the word at the end of the full one.
    fn break_after_blank(&mut self) {
        let Some((spans, bytes, used)) = self.break_at.take() else { return };
        // A piece that fills most of a line on its own is not a word: it is broken where the line ends.
        if (self.used - used) * 3 > (self.wrap.width - self.origin.min(self.wrap.width)) * 2 {
            return;
        }
        let mut rest = self.line.split_off(spans);
        if let Some(last) = self.line.last_mut() {
            let word = last.content[bytes..].to_owned();
            last.content.to_mut().truncate(bytes);
            if !word.is_empty() {
                rest.insert(0, Span::styled(word, last.style));
            }
        }
        self.flush_line();
        self.begin(&self.wrap.rest);
        self.soft = true;
        for span in rest {
            for grapheme in span.content.graphemes(true) {
                self.put(grapheme, grapheme_width(grapheme), span.style);
            }
        }
        self.has_words = !self.fresh;
    }

    /// Puts a grapheme on the line, or on the next one when it is full.
    fn put(&mut self, grapheme: &str, wide: usize, style: Style) {
        if self.used + wide > self.wrap.width && !self.fresh {
            self.flush_line();
            self.begin(&self.wrap.rest);
            self.soft = true;
        }
        if self.used + wide > self.wrap.width && grapheme.chars().nth(1).is_some() {
            // Joined characters too wide for any line are separated.
            let mut piece = [0; 4];
            for c in grapheme.chars() {
                let piece = c.encode_utf8(&mut piece);
                self.put(piece, grapheme_width(piece), style);
            }
        } else if self.used + wide > self.wrap.width {
            // Not even an empty line has room for the character (a wide character in one column).
            if self.used < self.wrap.width {
                push(&mut self.line, "?", style);
                self.used += 1;
            }
        } else {
            push(&mut self.line, grapheme, style);
            self.used += wide;
        }
        self.fresh = false;
    }

    /// Ends the word: puts it on this line or on a new one, or breaks it if no line has room for it.
    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let wide = std::mem::take(&mut self.word_width);
        if self.used + self.blank_width + wide <= self.wrap.width {
            self.line.append(&mut self.blanks);
            self.used += std::mem::take(&mut self.blank_width);
        } else {
            self.blanks.clear();
            self.blank_width = 0;
            if !self.fresh {
                self.flush_line();
                self.begin(&self.wrap.rest);
                self.soft = true;
            }
        }
        if self.used + wide <= self.wrap.width {
            self.used += wide;
            for span in word {
                push(&mut self.line, &span.content, span.style);
            }
            self.fresh = false;
        } else {
            for span in word {
                for grapheme in span.content.graphemes(true) {
                    self.put(grapheme, grapheme_width(grapheme), span.style);
                }
            }
        }
    }

    fn new_line(&mut self) {
        self.end_word();
        self.blanks.clear();
        self.blank_width = 0;
        self.flush_line();
        self.begin(&self.wrap.rest);
        self.soft = false;
    }

    fn flush_line(&mut self) {
        let spans = std::mem::take(&mut self.line);
        self.out.push(Line { spans, style: self.style, alignment: None });
    }

    fn finish(mut self) {
        self.end_word();
        self.flush_line();
    }
}

/// Appends text to the last span when the style is the same, so that a line has few spans.
fn push(spans: &mut Vec<Span<'static>>, text: &str, style: Style) {
    if let Some(last) = spans.last_mut()
        && last.style == style
    {
        last.content.to_mut().push_str(text);
        return;
    }
    spans.push(Span::styled(text.to_owned(), style));
}
