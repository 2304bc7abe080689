//! Output without the sequences that only a terminal understands.

use futures::StreamExt as _;
use futures::stream::BoxStream;

/// Takes escape sequences out of a text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Plain {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
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
        if self.state == State::Text && !text.contains(['\u{1b}', '\u{9b}']) {
            return out.push_str(text);
        }
        for c in text.chars() {
            self.state = match (self.state, c) {
                (_, '\n') => {
                    out.push(c);
                    State::Text
                }
                (State::Text | State::Control, '\u{1b}') => State::Escape,
                (State::Text, '\u{9b}') => State::Control,
                (State::Text, _) => {
                    out.push(c);
                    State::Text
                }
                (State::Escape, '[') => State::Control,
                (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::String,
                (State::Escape, ' '..='/') => State::Charset,
                (State::Escape | State::Charset, _) => State::Text,
                (State::Control, '@'..='~') => State::Text,
                (State::Control, _) => State::Control,
                (State::String, '\u{7}' | '\u{9c}') | (State::StringEscape, '\\') => State::Text,
                (State::String | State::StringEscape, '\u{1b}') => State::StringEscape,
                (State::String | State::StringEscape, _) => State::String,
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
    fn colours_titles_and_charsets_go() {
        assert_eq!(
            plain(&["a\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}b\u{1b}]8;;x\u{1b}\\c\u{1b}(Bd"]),
            "ared bcd"
        );
        assert_eq!(plain(&["a\u{1b}", "[3", "1mb"]), "ab");
        assert_eq!(plain(&["\u{1b}]never ended\nnext"]), "\nnext");
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "(\u{1b}|\\[|\\]|[a-z;0-9é\n\u{7}]){0,40}", at in 0_usize..40) {
            let at = text.floor_char_boundary(at.min(text.len()));
            prop_assert_eq!(plain(&[&text[..at], &text[at..]]), plain(&[&text]));
            let escape = plain(&[&text]).contains('\u{1b}');
            prop_assert!(!escape);
        }
    }
}
