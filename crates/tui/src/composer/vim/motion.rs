//! Targets of motions, in bytes of a text.

use super::super::{left_of, right_of};
use super::parse::Motion;

/// A search within the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Find {
    pub(super) c: char,
    /// Stops before it.
    pub(super) till: bool,
    pub(super) back: bool,
}

impl Find {
    pub(super) fn reversed(self) -> Find {
        Find { back: !self.back, ..self }
    }
}

/// Returns the class of the character at `at`: 0 blank, 1 word, 2 anything else.
fn class(text: &str, at: usize, big: bool) -> u8 {
    match text[at..].chars().next() {
        None => 0,
        Some(c) if c.is_whitespace() => 0,
        Some(c) if big || c.is_alphanumeric() || c == '_' => 1,
        Some(_) => 2,
    }
}

pub(super) fn is_blank_at(text: &str, at: usize) -> bool {
    class(text, at, true) == 0
}

pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |at| at + 1)
}

pub(super) fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end)
}

pub(super) fn first_non_blank(text: &str, at: usize) -> usize {
    let start = line_start(text, at);
    let line = &text[start..line_end(text, start)];
    start + line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Returns the start of the line this many lines below, or of the last line.
pub(super) fn lines_down(text: &str, at: usize, lines: usize) -> usize {
    let mut at = at;
    for _ in 0..lines {
        let end = line_end(text, at);
        if end == text.len() {
            break;
        }
        at = end + 1;
    }
    at
}

fn lines_up(text: &str, at: usize, lines: usize) -> usize {
    (0..lines).fold(line_start(text, at), |start, _| if start == 0 { 0 } else { line_start(text, start - 1) })
}

fn is_empty_line(text: &str, at: usize) -> bool {
    line_start(text, at) == at && (at == text.len() || text[at..].starts_with('\n'))
}

fn word_forward(text: &str, at: usize, big: bool) -> usize {
    let kind = class(text, at, big);
    let mut to = at;
    while kind != 0 && to < text.len() && class(text, to, big) == kind {
        to = right_of(text, to);
    }
    while to < text.len() && class(text, to, big) == 0 {
        to = right_of(text, to);
        if to > at && to < text.len() && is_empty_line(text, to) {
            break;
        }
    }
    to
}

fn word_back(text: &str, at: usize, big: bool) -> usize {
    let mut to = left_of(text, at);
    while to > 0 && class(text, to, big) == 0 {
        if is_empty_line(text, to) {
            return to;
        }
        to = left_of(text, to);
    }
    while to > 0 && class(text, left_of(text, to), big) == class(text, to, big) {
        to = left_of(text, to);
    }
    to
}

fn word_end(text: &str, at: usize, big: bool) -> usize {
    let mut to = right_of(text, at);
    while to < text.len() && class(text, to, big) == 0 {
        to = right_of(text, to);
    }
    if to >= text.len() {
        return left_of(text, text.len()).max(at);
    }
    loop {
        let next = right_of(text, to);
        if next >= text.len() || class(text, next, big) != class(text, to, big) {
            return to;
        }
        to = next;
    }
}

/// Returns the end of the word at `at`, or of a later word for a count above 1.
pub(super) fn word_end_of(text: &str, at: usize, big: bool, times: usize) -> usize {
    let mut to = at;
    while right_of(text, to) < text.len() && class(text, right_of(text, to), big) == class(text, at, big) {
        to = right_of(text, to);
    }
    (1..times).fold(to, |to, _| word_end(text, to, big))
}

fn word_end_back(text: &str, at: usize, big: bool) -> usize {
    let kind = class(text, at, big);
    let mut to = at;
    while kind != 0 && to > 0 && class(text, to, big) == kind {
        to = left_of(text, to);
    }
    if kind == 0 {
        to = left_of(text, to);
    }
    while to > 0 && class(text, to, big) == 0 {
        to = left_of(text, to);
    }
    to
}

fn find(text: &str, at: usize, find: Find, times: usize, again: bool) -> Option<usize> {
    let (start, end) = (line_start(text, at), line_end(text, at));
    let mut found = at;
    for nth in 0..times {
        // A repeated till skips the match directly next to the caret.
        let skips = again && find.till && nth == 0;
        found = if find.back {
            let from = if skips { left_of(text, found).max(start) } else { found };
            start + text[start..from].rfind(find.c)?
        } else {
            let mut from = right_of(text, found).min(end);
            if skips {
                from = right_of(text, from).min(end);
            }
            from + text[from..end].find(find.c)?
        };
    }
    Some(match (find.till, find.back) {
        (false, _) => found,
        (true, false) => left_of(text, found),
        (true, true) => right_of(text, found),
    })
}

/// Returns the counterpart of the first bracket at or after the position, in its line.
fn pair(text: &str, at: usize) -> Option<usize> {
    let end = line_end(text, at);
    let from = at + text[at..end].find(['(', ')', '[', ']', '{', '}'])?;
    let bracket = text[from..].chars().next()?;
    let (open, close, forward) = match bracket {
        '(' => ('(', ')', true),
        '[' => ('[', ']', true),
        '{' => ('{', '}', true),
        ')' => ('(', ')', false),
        ']' => ('[', ']', false),
        _ => ('{', '}', false),
    };
    if forward { closing(text, from + 1, open, close) } else { opening(text, from, open, close) }
}

/// The bracket that closes what is open at a place.
pub(super) fn closing(text: &str, from: usize, open: char, close: char) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text[from..].char_indices() {
        if c == close && depth == 0 {
            return Some(from + at);
        }
        if c == close {
            depth -= 1;
        } else if c == open {
            depth += 1;
        }
    }
    None
}

/// The bracket that opens what a place is in.
pub(super) fn opening(text: &str, until: usize, open: char, close: char) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text[..until].char_indices().rev() {
        if c == open && depth == 0 {
            return Some(at);
        }
        if c == open {
            depth -= 1;
        } else if c == close {
            depth += 1;
        }
    }
    None
}

fn paragraph_forward(text: &str, at: usize) -> usize {
    let mut to = line_start(text, at);
    let mut was_text = false;
    loop {
        let end = line_end(text, to);
        if to == end && was_text {
            return to;
        }
        was_text |= to != end;
        if end == text.len() {
            return text.len();
        }
        to = end + 1;
    }
}

fn paragraph_back(text: &str, at: usize) -> usize {
    let mut to = line_start(text, at);
    let mut was_text = to < at && to != line_end(text, to);
    loop {
        if to == line_end(text, to) && was_text && to < at {
            return to;
        }
        was_text |= to != line_end(text, to) && to < at;
        if to == 0 {
            return 0;
        }
        to = line_start(text, to - 1);
    }
}

/// Returns the target of a motion from a position, or `None`. `again`: the motion repeats an earlier search.
pub(super) fn reach(
    text: &str,
    at: usize,
    motion: Motion,
    count: Option<usize>,
    again: bool,
) -> Option<usize> {
    let times = count.unwrap_or(1);
    let repeat = |step: &dyn Fn(usize) -> usize| {
        let mut to = at;
        for _ in 0..times {
            let next = step(to);
            if next == to {
                break;
            }
            to = next;
        }
        Some(to)
    };
    match motion {
        Motion::Left => repeat(&|at| if at > line_start(text, at) { left_of(text, at) } else { at }),
        Motion::Right => repeat(&|at| if at < line_end(text, at) { right_of(text, at) } else { at }),
        Motion::Up if line_start(text, at) == 0 => None,
        Motion::Up => Some(lines_up(text, at, times)),
        Motion::Down if line_end(text, at) == text.len() => None,
        Motion::Down => Some(lines_down(text, at, times)),
        Motion::WordForward { big } => repeat(&|at| word_forward(text, at, big)),
        Motion::WordBack { big } => repeat(&|at| word_back(text, at, big)),
        Motion::WordEnd { big } => repeat(&|at| word_end(text, at, big)),
        Motion::WordEndBack { big } => repeat(&|at| word_end_back(text, at, big)),
        Motion::LineStart => Some(line_start(text, at)),
        Motion::FirstNonBlank => Some(first_non_blank(text, at)),
        Motion::LineEnd => Some(line_end(text, lines_down(text, at, times - 1))),
        Motion::TextStart => Some(first_non_blank(text, lines_down(text, 0, times - 1))),
        Motion::TextEnd => {
            let line = count.map_or_else(|| line_start(text, text.len()), |n| lines_down(text, 0, n - 1));
            Some(first_non_blank(text, line))
        }
        Motion::Find(wanted) => find(text, at, wanted, times, again),
        Motion::FindAgain { .. } => None,
        Motion::Pair => pair(text, at),
        Motion::ParagraphBack => repeat(&|at| paragraph_back(text, at)),
        Motion::ParagraphForward => repeat(&|at| paragraph_forward(text, at)),
    }
}
