//! A terminal that shows ASCII only: every other character is written as one that takes the same columns.

use std::io::{self, Write};

use unicode_segmentation::UnicodeSegmentation;

use super::TtyOut;
use crate::wrap::grapheme_width;

/// Standard output of a terminal that shows all characters, or ASCII only.
#[derive(Debug, Default)]
pub struct Output<W = TtyOut> {
    out: W,
    /// The bytes of a character that is not whole yet, where only ASCII is shown.
    ascii: Option<Vec<u8>>,
}

impl<W: Write> Output<W> {
    /// Creates an output that writes to `out`; `utf8` is whether the terminal shows more than ASCII.
    pub fn new(out: W, utf8: bool) -> Output<W> {
        Output { out, ascii: (!utf8).then(Vec::new) }
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(begun) = &mut self.ascii else { return self.out.write(bytes) };
        begun.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(begun) {
            Ok(_) => begun.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // Not UTF-8, so not text of this program: nothing is held back.
            Err(_) => begun.len(),
        };
        let rest = begun.split_off(whole);
        let whole = std::mem::replace(begun, rest);
        self.out.write_all(in_ascii(&String::from_utf8_lossy(&whole)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The text in ASCII, with the same widths. Sequences that a terminal obeys are ASCII already.
pub(super) fn in_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.graphemes(true) {
        if piece.is_ascii() {
            out.push_str(piece);
            continue;
        }
        let columns = grapheme_width(piece);
        let first = piece.chars().next().filter(|_| columns > 0);
        let instead = first.map(|first| if first.is_ascii() { first } else { like(first) });
        out.extend(instead.into_iter().flat_map(|c| std::iter::repeat_n(c, columns)));
    }
    out
}

/// The ASCII character that looks most like it.
fn like(c: char) -> char {
    match c {
        '─' | '━' | '═' | '╌' | '┄' | '┈' | '–' | '—' | '−' => '-',
        '│' | '┃' | '║' | '╎' | '┆' | '▏' | '▎' | '▌' | '▕' | '⎿' => '|',
        '\u{2500}'..='\u{257f}' => '+',
        '█' => '#',
        '▓' => '%',
        '▒' => '=',
        '░' => ':',
        // The parts of a bar stay apart, and four of them are the mark of the program.
        '▚' => '&',
        '▞' => '$',
        '▛' => '/',
        '▜' => '\\',
        '▙' => 'L',
        '▟' => 'J',
        '▗' | '▖' => '.',
        '▝' | '▘' => '\'',
        '❯' | '›' | '»' | '→' | '▸' | '▶' => '>',
        '‹' | '«' | '←' | '◂' | '◀' => '<',
        '↑' | '▲' | '▴' => '^',
        '↓' | '▼' | '▾' => 'v',
        '…' | '⋯' | '·' => '.',
        '•' | '●' | '★' | '∴' | '◐' | '◓' | '\u{2800}'..='\u{28ff}' => '*',
        '○' | '◦' | '◌' | '☐' => 'o',
        '✓' | '✔' | '☑' => '+',
        '✗' | '✘' | '×' | '☒' | '⊘' => 'x',
        '⁰' => '0',
        '¹' => '1',
        '²' => '2',
        '³' => '3',
        '⁴'..='⁹' => char::from_digit(c as u32 - 0x2070, 10).unwrap_or('?'),
        '‘' | '’' => '\'',
        '“' | '”' => '"',
        '⏎' | '␍' | '\u{a0}' => ' ',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::width;

    #[test]
    fn non_ascii_keeps_its_columns() {
        for (text, expected) in [
            ("plain", "plain"),
            ("❯ ─┃╭╮│…", "> -|++|."),
            ("漢字 x", "???? x"),
            ("👍🏽 ok 👩‍💻", "?? ok ??"),
            ("▗▛▜▖", "./\\."),
            ("▝▙▟▘", "'LJ'"),
            ("cafe\u{301} ü", "cafe ?"),
            ("\u{1b}[1m✓\u{1b}[0m", "\u{1b}[1m+\u{1b}[0m"),
        ] {
            let ascii = in_ascii(text);
            assert_eq!(ascii, expected, "{text}");
            assert_eq!(width(&ascii), width(text), "{text}");
        }
    }

    #[test]
    fn the_parts_of_a_bar_stay_apart() {
        let marks = ['█', '▚', '▓', '▛', '▟', '▞', '▜', '▙', '▒', '░', '·'];
        let mut seen = marks.map(like).to_vec();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), marks.len(), "{seen:?}");
    }

    #[test]
    fn a_character_may_be_split() {
        let mut out = Output::new(Vec::new(), false);
        for byte in "a漢b…".bytes() {
            out.write_all(&[byte]).expect("a vector takes everything");
        }
        out.write_all(b"\xff!").expect("a vector takes everything");
        assert_eq!(String::from_utf8_lossy(&out.out), "a??b.?!");
        let mut out = Output::new(Vec::new(), true);
        out.write_all("漢".as_bytes()).expect("a vector takes everything");
        assert_eq!(out.out, "漢".as_bytes());
    }
}
