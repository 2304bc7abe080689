//! The spellings of one name. A volume that ignores case, or how letters are composed, finds a file under each of them.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

/// Returns the text that all spellings of a name share: in lower case, composed, without invisible characters. Names that
/// any volume takes for one have one such text; a few others have it too.
pub fn folded(text: &str) -> Cow<'_, str> {
    if is_folded(text) {
        Cow::Borrowed(text)
    } else if text.is_ascii() {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        let decomposed = text.nfd().filter(|c| !is_ignored(*c));
        Cow::Owned(decomposed.flat_map(fold).nfc().collect())
    }
}

/// The same for a text whose ASCII letters may have a meaning of their own, such as a regular expression: they stay.
pub fn folded_beyond_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.nfc() {
        if c.is_ascii() {
            out.push(c);
        } else {
            out.push_str(&folded(c.encode_utf8(&mut [0; 4])));
        }
    }
    out
}

/// Whether a text is certainly the same as its folded one.
pub fn is_folded(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase())
}

/// By way of upper case: `ß` and `ſ` are in lower case already.
fn fold(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

/// Whether volumes that compare by Unicode's rules see nothing in a character (`Default_Ignorable_Code_Point`).
fn is_ignored(c: char) -> bool {
    matches!(
        u32::from(c),
        0x00AD
            | 0x034F
            | 0x061C
            | 0x115F..=0x1160
            | 0x17B4..=0x17B5
            | 0x180B..=0x180F
            | 0x200B..=0x200F
            | 0x202A..=0x202E
            | 0x2060..=0x206F
            | 0x3164
            | 0xFE00..=0xFE0F
            | 0xFEFF
            | 0xFFA0
            | 0xFFF0..=0xFFF8
            | 0x1BCA0..=0x1BCA3
            | 0x1D173..=0x1D17A
            | 0xE0000..=0xE0FFF
    )
}

/// Other spellings of a name, by which a volume shows whether it takes them for the same: in the other case, and with its
/// letters composed and decomposed. None for a name of which there is only one.
pub fn others(name: &str) -> Vec<String> {
    let turned: String = name.chars().flat_map(turn).collect();
    let mut found = vec![turned];
    if !name.is_ascii() {
        found.extend([name.nfc().collect(), name.nfd().collect()]);
    }
    found.retain(|other| other != name);
    found
}

/// A character in the other case, as far as that is one character.
fn turn(c: char) -> impl Iterator<Item = char> {
    let (mut upper, mut lower) = (c.to_uppercase(), c.to_lowercase());
    let turned = match (upper.next(), upper.next(), lower.next(), lower.next()) {
        (Some(upper), None, _, _) if upper != c => upper,
        (_, _, Some(lower), None) => lower,
        _ => c,
    };
    std::iter::once(turned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_name_are_one() {
        for (one, other) in [
            (".env", ".ENV"),
            ("caf\u{e9}", "CAFE\u{301}"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{3c3}", "\u{3c2}"),
            ("\u{212a}ey", "key"),
            ("\u{17f}ecret", "SECRET"),
            (".g\u{200c}it", ".git"),
            ("\u{fb01}le", "FILE"),
            ("\u{1e9e}", "ss"),
        ] {
            assert_eq!(folded(one), folded(other), "{one:?} and {other:?}");
        }
        for (one, other) in [(".env", ".envx"), ("e", "\u{e9}"), ("a b", "ab"), ("\u{430}", "a")] {
            assert_ne!(folded(one), folded(other), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn a_folded_text_stays() {
        for text in ["src/main.rs", ".ENV", "Stra\u{df}e", "CAFE\u{301}", "\u{1e9e}", "\u{130}"] {
            let once = folded(text).into_owned();
            assert_eq!(folded(&once), once, "{text:?}");
        }
        assert!(is_folded("a/b-1") && !is_folded("A") && !is_folded("\u{e9}"));
    }

    #[test]
    fn a_name_with_letters_has_another_spelling() {
        assert_eq!(others("Makefile1"), ["mAKEFILE1"]);
        assert_eq!(others("\u{e9}"), ["\u{c9}", "e\u{301}"]);
        assert_eq!(others("123-4"), [""; 0]);
        assert_eq!(others("\u{df}"), [""; 0]);
    }
}
