//! Output without the sequences that only a terminal understands. One that erases a line before it is written again
//! becomes a carriage return.

use futures::StreamExt as _;
use futures::stream::BoxStream;

/// Takes escape sequences out of a text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Plain {
    state: EscapeState,
    /// The line is at its start again after a carriage return.
    returned: bool,
    /// The parameter of a control sequence, when it is a single digit.
    digit: Option<char>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and a character that is not the last one, such as `(`.
    Charset,
    /// In a control sequence: up to a letter.
    Control,
    /// In a string for the terminal: up to BEL or ESC and a backslash.
    String,
    /// After an ESC in such a string.
    StringEscape,
}

/// Takes escape sequences out of pieces of output.
pub(crate) fn plain_pieces(pieces: BoxStream<'static, String>) -> BoxStream<'static, String> {
    let text = |plain: &mut Plain, piece: String| {
        let mut text = String::with_capacity(piece.len());
        plain.push(&piece, &mut text);
        std::future::ready(Some(text))
    };
    pieces.scan(Plain::default(), text).boxed()
}

impl Plain {
    /// Appends what is text to `out`. A newline ends every sequence, so that a broken one hides a line at most.
    pub(super) fn push(&mut self, text: &str, out: &mut String) {
        if self.state == EscapeState::Text && !text.contains(['\u{1b}', '\u{9b}']) {
            self.returned = text.chars().next_back().map_or(self.returned, |c| c == '\r');
            return out.push_str(text);
        }
        for c in text.chars() {
            match (self.state, c) {
                (EscapeState::Escape, '[') | (EscapeState::Text, '\u{9b}') => self.digit = None,
                (EscapeState::Control, '0'..='9') if self.digit.is_none() => self.digit = Some(c),
                // Erases the line, or what is left of it.
                (EscapeState::Control, 'K') if self.digit == Some('2') => out.push('\r'),
                (EscapeState::Control, 'K' | 'J') if self.returned => out.push('\r'),
                (EscapeState::Control, ' '..='?') => self.digit = Some('-'),
                (EscapeState::Text, '\u{1b}') => {}
                (EscapeState::Text, _) | (_, '\n') => self.returned = c == '\r',
                _ => {}
            }
            self.state = match (self.state, c) {
                (_, '\n') => {
                    out.push(c);
                    EscapeState::Text
                }
                (EscapeState::Text | EscapeState::Control, '\u{1b}') => EscapeState::Escape,
                (EscapeState::Text, '\u{9b}') => EscapeState::Control,
                (EscapeState::Text, _) => {
                    out.push(c);
                    EscapeState::Text
                }
                (EscapeState::Escape, '[') => EscapeState::Control,
                (EscapeState::Escape, ']' | 'P' | 'X' | '^' | '_') => EscapeState::String,
                (EscapeState::Escape, ' '..='/') => EscapeState::Charset,
                (EscapeState::Escape | EscapeState::Charset, _) => EscapeState::Text,
                (EscapeState::Control, '@'..='~') => EscapeState::Text,
                (EscapeState::Control, _) => EscapeState::Control,
                (EscapeState::String, '\u{7}' | '\u{9c}') | (EscapeState::StringEscape, '\\') => {
                    EscapeState::Text
                }
                (EscapeState::String | EscapeState::StringEscape, '\u{1b}') => EscapeState::StringEscape,
                (EscapeState::String | EscapeState::StringEscape, _) => EscapeState::String,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(pieces: &[&str]) -> String {
        let (mut plain, mut out) = (Plain::default(), String::new());
        for piece in pieces {
            plain.push(piece, &mut out);
        }
        out
    }

    #[test]
    fn colours_titles_and_charsets_are_removed() {
        assert_eq!(
            plain(&["a\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}b\u{1b}]8;;x\u{1b}\\c\u{1b}(Bd"]),
            "ared bcd"
        );
        assert_eq!(plain(&["a\u{1b}", "[3", "1mb"]), "ab");
        assert_eq!(plain(&["\u{1b}]never ended\nnext"]), "\nnext");
    }

    #[test]
    fn an_erased_line_starts_again() {
        assert_eq!(plain(&["12%\r\u{1b}[K3%\r", "\u{1b}[0J4%"]), "12%\r\r3%\r\r4%");
        assert_eq!(plain(&["12%\u{1b}[2", "K\r3%"]), "12%\r\r3%");
        // Not the rest of a line that is empty anyway, as `grep --color` does.
        assert_eq!(plain(&["a\u{1b}[01;31m\u{1b}[Kb\u{1b}[m\u{1b}[K\n"]), "ab\n");
        assert_eq!(plain(&["a\r\n\u{1b}[Kb\u{1b}[12Kc"]), "a\r\nbc");
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(text in "(\u{1b}|\\[|\\]|[KJa-z;0-9é\r\n\u{7}]){0,40}", at in 0_usize..40) {
            let at = text.floor_char_boundary(at.min(text.len()));
            prop_assert_eq!(plain(&[&text[..at], &text[at..]]), plain(&[&text]));
            let escape = plain(&[&text]).contains('\u{1b}');
            prop_assert!(!escape);
        }
    }
}
