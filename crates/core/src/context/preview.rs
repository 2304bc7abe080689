//! The preview of a tool result that is too large to stay whole: its start, its size and how to read the rest, and its
//! end, where a log says what failed.

use std::fmt::Write as _;

use crate::contract::content::ContentBlock;
use crate::contract::message::{Message, Role};

/// The tokens of text from which a tool result becomes a preview once it is not new.
pub const ARTIFACT_COMPACT_THRESHOLD_TOKENS: usize = 2048;
/// The longest preview, with its last line, in characters.
pub const PREVIEW_MAX_CHARS: usize = 1600;
/// The same in lines.
pub const PREVIEW_MAX_LINES: usize = 24;
/// The longest way to the rest that is believed; a longer one is cut.
const MAX_HOW: usize = 600;

fn text_bytes(message: &Message) -> usize {
    message.content.iter().filter_map(ContentBlock::as_text).map(str::len).sum()
}

/// Returns whether a message is a tool result that may become a preview.
pub fn is_oversized(message: &Message) -> bool {
    message.role == Role::Tool && text_bytes(message) / 4 >= ARTIFACT_COMPACT_THRESHOLD_TOKENS
}

/// Returns the start of a text, within a number of characters and lines.
fn head(text: &str, chars: usize, lines: usize) -> &str {
    let mut seen = 0;
    for (nth, (at, c)) in text.char_indices().enumerate() {
        if nth == chars {
            return &text[..at];
        }
        if c == '\n' {
            seen += 1;
            if seen == lines {
                return &text[..at];
            }
        }
    }
    text
}

/// Returns the end of a text, within a number of characters and lines.
fn tail(text: &str, chars: usize, lines: usize) -> &str {
    let mut seen = 0;
    for (nth, (at, c)) in text.char_indices().rev().enumerate() {
        seen += usize::from(c == '\n');
        if nth == chars || seen == lines {
            return &text[at + c.len_utf8()..];
        }
    }
    text
}

/// About how many tokens the preview of a message will have.
pub(super) fn preview_tokens(message: &Message) -> usize {
    let text = message.content.iter().find_map(ContentBlock::as_text).unwrap_or_default();
    let (head, tail) = ends(text.trim_end(), PREVIEW_MAX_CHARS);
    (head.len() + tail.len()) / 4
}

/// Returns the start and the end of a text, together of at most this many characters.
fn ends(text: &str, chars: usize) -> (&str, &str) {
    const LINES: usize = PREVIEW_MAX_LINES - 1;
    (head(text, chars / 2, LINES.div_ceil(2)), tail(text, chars / 2, LINES / 2))
}

/// The message with a preview in the place of its text; `how` says where the rest can be read.
pub fn preview(message: &Message, how: &str) -> Message {
    let text = message.text();
    let mut note = format!(
        "[preview: the start and the end of a result of {} characters in {} lines, about {} tokens. ",
        text.chars().count(),
        text.lines().count(),
        text.len() / 4
    );
    note.extend(how.chars().take(MAX_HOW).map(|c| if c == '\n' { ' ' } else { c }));
    note.push(']');
    let room = PREVIEW_MAX_CHARS.saturating_sub(note.chars().count() + 2);
    let (head, tail) = ends(text.trim_end(), room);
    let mut shown = head.trim_end().to_owned();
    let _ = write!(shown, "\n{note}\n{tail}");
    let mut short = message.clone();
    short.content.retain(|block| block.as_text().is_none());
    short.content.insert(0, ContentBlock::text(shown));
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_2048_tokens_is_oversized_and_2047_is_not() {
        assert!(is_oversized(&Message::tool("c", "x".repeat(8192))));
        assert!(!is_oversized(&Message::tool("c", "x".repeat(8191))));
        assert!(!is_oversized(&Message::user("x".repeat(9000))), "what a person says stays");
        assert!(!is_oversized(&Message::assistant("x".repeat(9000))));
    }

    #[test]
    fn a_preview_is_bounded_and_says_how_to_read_more() {
        let lines = (0..900).map(|n| format!("line {n} of it")).collect::<Vec<_>>().join("\n");
        let wide = "ä€𝄞".repeat(9000);
        let long_way = "x".repeat(5000);
        for (text, how) in [(&lines, "Read /a/b."), (&wide, "Read /a/b."), (&lines, long_way.as_str())] {
            let short = preview(&Message::tool("c", text.as_str()), how).text();
            assert!(short.chars().count() <= PREVIEW_MAX_CHARS, "{}", short.chars().count());
            assert!(short.lines().count() <= PREVIEW_MAX_LINES, "{short}");
            assert!(short.starts_with(&text[..20]) && short.ends_with(&text[text.len() - 18..]), "{short}");
        }
        let short = preview(&Message::tool("c", lines.as_str()), "Read /a/b.").text();
        assert!(short.contains("line 11 of it\n[preview") && !short.contains("line 12 "), "{short}");
        assert!(short.contains("in 900 lines, about 3347 tokens. Read /a/b.]\nline 889 of it\n"), "{short}");
        assert!(short.ends_with("line 899 of it"), "{short}");
    }

    #[test]
    fn images_of_a_result_stay() {
        let image = ContentBlock::image("image/png", "AA==");
        let content = vec![ContentBlock::text("x".repeat(9000)), image.clone()];
        assert_eq!(preview(&Message::tool_with("c", content), "Read it.").content[1], image);
    }
}
