//! Text objects: the range of `iw`, `a"`, `i(`, `ap` and the like at a position.

use std::ops::Range;

use super::super::{left_of, right_of};
use super::motion::{closing, line_end, line_start, opening};

/// A kind of thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Word { big: bool },
    Quote(char),
    Pair(char, char),
    Paragraph,
}

impl Object {
    pub(super) fn of(c: char) -> Option<Object> {
        Some(match c {
            'w' => Object::Word { big: false },
            'W' => Object::Word { big: true },
            '"' | '\'' | '`' => Object::Quote(c),
            '(' | ')' | 'b' => Object::Pair('(', ')'),
            '[' | ']' => Object::Pair('[', ']'),
            '{' | '}' | 'B' => Object::Pair('{', '}'),
            '<' | '>' => Object::Pair('<', '>'),
            'p' => Object::Paragraph,
            _ => return None,
        })
    }
}

/// The bytes of an object at a place, and whether they are whole lines.
pub(super) fn find(
    text: &str,
    at: usize,
    object: Object,
    around: bool,
    count: usize,
) -> Option<(Range<usize>, bool)> {
    match object {
        Object::Word { big } => Some((words(text, at, big, around, count), false)),
        Object::Quote(quote) => quoted(text, at, quote, around).map(|range| (range, false)),
        Object::Pair(open, close) => pair(text, at, open, close, around, count).map(|range| (range, false)),
        Object::Paragraph => Some((paragraph(text, at, around, count), true)),
    }
}

fn class(text: &str, at: usize, big: bool) -> u8 {
    match text[at..].chars().next() {
        Some(c) if c.is_whitespace() => 0,
        Some(c) if big || c.is_alphanumeric() || c == '_' => 1,
        Some(_) | None => 2,
    }
}

/// Returns the end of the run of one class that starts at a position, within the line.
fn run_end(text: &str, from: usize, big: bool) -> usize {
    let end = line_end(text, from);
    let mut to = from;
    while to < end && class(text, to, big) == class(text, from, big) {
        to = right_of(text, to);
    }
    to
}

fn words(text: &str, at: usize, big: bool, around: bool, count: usize) -> Range<usize> {
    let (first, end) = (line_start(text, at), line_end(text, at));
    if first == end || at >= end {
        return at..at;
    }
    let mut start = at;
    while start > first && class(text, left_of(text, start), big) == class(text, at, big) {
        start = left_of(text, start);
    }
    let begins_blank = class(text, start, big) == 0;
    let mut to = start;
    for _ in 0..count {
        to = run_end(text, to, big);
        if around && to < end {
            let is_blank = class(text, to, big) == 0;
            // A word with the spaces after it, or spaces with the word after them.
            if is_blank || begins_blank {
                to = run_end(text, to, big);
            }
        }
    }
    let has_blank_end = to > start && class(text, left_of(text, to), big) == 0;
    if around && !begins_blank && !has_blank_end {
        while start > first && class(text, left_of(text, start), big) == 0 {
            start = left_of(text, start);
        }
    }
    start..to
}

fn quoted(text: &str, at: usize, quote: char, around: bool) -> Option<Range<usize>> {
    let (first, end) = (line_start(text, at), line_end(text, at));
    let mut places = Vec::new();
    let mut escaped = false;
    for (offset, c) in text[first..end].char_indices() {
        if c == quote && !escaped {
            places.push(first + offset);
        }
        escaped = c == '\\' && !escaped;
    }
    let (open, close) =
        places.chunks_exact(2).map(|pair| (pair[0], pair[1])).find(|(_, close)| at <= *close)?;
    if !around {
        return Some(open + 1..close);
    }
    let mut range = open..close + 1;
    let blanks = text[range.end..end].len() - text[range.end..end].trim_start_matches([' ', '\t']).len();
    if blanks > 0 {
        range.end += blanks;
    } else {
        range.start = first + text[first..open].trim_end_matches([' ', '\t']).len();
    }
    Some(range)
}

fn pair(text: &str, at: usize, open: char, close: char, around: bool, count: usize) -> Option<Range<usize>> {
    let here = text[at..].chars().next();
    let mut start = if here == Some(open) { at } else { opening(text, at, open, close)? };
    for _ in 1..count {
        start = opening(text, start, open, close)?;
    }
    let end = closing(text, start + open.len_utf8(), open, close)?;
    Some(if around { start..end + close.len_utf8() } else { start + open.len_utf8()..end })
}

fn is_blank_line(text: &str, start: usize) -> bool {
    text[start..line_end(text, start)].trim().is_empty()
}

fn paragraph(text: &str, at: usize, around: bool, count: usize) -> Range<usize> {
    let mut start = line_start(text, at);
    let kind = is_blank_line(text, start);
    while start > 0 && is_blank_line(text, line_start(text, start - 1)) == kind {
        start = line_start(text, start - 1);
    }
    let mut to = start;
    let runs = if around { count * 2 } else { count };
    for _ in 0..runs {
        if to >= text.len() {
            break;
        }
        let kind = is_blank_line(text, to);
        while to < text.len() && is_blank_line(text, to) == kind {
            let end = line_end(text, to);
            to = if end < text.len() { end + 1 } else { end };
        }
    }
    start..to
}
