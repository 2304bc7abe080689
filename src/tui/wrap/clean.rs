//! Makes characters visible that would steer the terminal or hide from the reader.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character is a control, or changes or hides what is seen: C0, DEL, C1, bidi controls, zero-width and
/// other invisible characters, separators of lines, tags. `\n` and `\t` count too; callers handle those first.
pub fn is_hidden(c: char) -> bool {
    match c {
        ' '..='~' => false,
        _ => {
            c.is_control()
                || matches!(c,
                    '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                    | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                    | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
                    | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        }
    }
}

/// The text with every hidden character written as `<U+202E>`; escape is `<ESC>`. `\n` and `\t` stay. The joiner and
/// the variation selectors of emoji stay where they follow an emoji.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b) || b == b'\n' || b == b'\t') {
        return Cow::Borrowed(text);
    }
    let mut before = ' ';
    let mut cleaned: Option<String> = None;
    for (at, c) in text.char_indices() {
        let kept = c == '\n' || c == '\t' || !is_hidden(c) || (c == '\u{200d}' && joins(before));
        before = c;
        if kept {
            if let Some(cleaned) = &mut cleaned {
                cleaned.push(c);
            }
            continue;
        }
        let cleaned = cleaned.get_or_insert_with(|| text[..at].to_owned());
        let written = if c == '\u{1b}' {
            cleaned.write_str("<ESC>")
        } else {
            write!(cleaned, "<U+{:04X}>", u32::from(c))
        };
        written.expect("a string takes everything");
    }
    cleaned.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Whether a joiner may follow: only emoji are built with it.
fn joins(before: char) -> bool {
    matches!(before, '\u{fe0f}' | '\u{2600}'..='\u{27bf}' | '\u{1f000}'..='\u{1faff}')
}
