//! Characters that make a command line say something else than it shows.

/// Returns why a user (or aye) could misread `command`: too long, control, invisible, bidi or lookalike
/// characters.
pub(super) fn unreadable(command: &str) -> Option<String> {
    if command.len() > super::MAX_BYTES {
        return Some(format!("the command has more than {} bytes", super::MAX_BYTES));
    }
    command.chars().find_map(|c| {
        let what = suspicious(c)?;
        Some(format!("the command contains {what} (U+{:04X})", u32::from(c)))
    })
}

/// Describes the problem with a character; returns nothing for a character that shows what it is.
pub fn suspicious(c: char) -> Option<&'static str> {
    Some(match u32::from(c) {
        0x09 | 0x0A => return None,
        0x00..=0x1F | 0x7F..=0x9F => "a control character",
        0x202A..=0x202E | 0x2066..=0x2069 | 0x200E | 0x200F | 0x061C => {
            "a character that turns the writing direction"
        }
        0x00AD
        | 0x034F
        | 0x115F
        | 0x1160
        | 0x17B4
        | 0x17B5
        | 0x180B..=0x180F
        | 0x200B..=0x200D
        | 0x2060..=0x2065
        | 0x206A..=0x206F
        | 0x2800
        | 0x3164
        | 0xFE00..=0xFE0F
        | 0xFEFF
        | 0xFFA0
        | 0xFFF0..=0xFFFC
        | 0x1BCA0..=0x1BCA3
        | 0x1D173..=0x1D17A
        | 0xE0000..=0xE0FFF => "an invisible character",
        0x00A0 | 0x1680 | 0x2000..=0x200A | 0x2028 | 0x2029 | 0x202F | 0x205F | 0x3000 => {
            "a space that the shell does not treat as one"
        }
        0xFF01..=0xFF5E | 0xFFE0..=0xFFE6 | 0xFE50..=0xFE6B => {
            "a wide or small lookalike of an ASCII character"
        }
        0x037E | 0x01C0 | 0x2044 | 0x2215 | 0x29F8 | 0x2223 | 0x2758 | 0xA789 | 0x2024 | 0x05C3 => {
            "a lookalike of a shell operator"
        }
        0xE000..=0xF8FF | 0xF0000..=0x10_FFFF => "a private-use character",
        _ => return None,
    })
}

/// Returns the start of a text on one line, with `…` after this number of characters.
pub fn excerpt(text: &str, most: usize) -> String {
    let text = visible(text.trim());
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A text with everything that does not show what it is written as `\u{…}`; a newline as `\n`.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if suspicious(c).is_some() => {
                use std::fmt::Write as _;
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}
