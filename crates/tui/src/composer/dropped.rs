//! Image paths in a text: terminals paste a dropped file as its path, quoted in one way or another, and users write
//! `@path`.

use std::ops::Range;

use aye_core::contract::image::ImageFormat;

/// A longer paste is a text.
const MOST: usize = 8 << 10;
/// Characters that may follow a path and belong to the sentence.
const PUNCTUATION: &[char] = &[',', ';', '.', ')', '"', '\'', '?', '!', ':'];

/// The words of a paste and the paths that they are, when it is nothing but paths of pictures.
pub fn paths(pasted: &str) -> Vec<(String, String)> {
    let pasted = pasted.trim();
    if pasted.is_empty() || pasted.len() > MOST {
        return Vec::new();
    }
    let words = words(pasted);
    if words.iter().all(|(_, path)| ImageFormat::is_likely(path)) {
        return words.into_iter().map(|(range, path)| (pasted[range].to_owned(), path)).collect();
    }
    // Some terminals quote nothing.
    let is_path = pasted.starts_with(['/', '~']) || is_drive(pasted);
    if is_path && !pasted.contains('\n') && ImageFormat::is_likely(pasted) {
        return vec![(pasted.to_owned(), pasted.to_owned())];
    }
    Vec::new()
}

/// `C:\`.
fn is_drive(text: &str) -> bool {
    matches!(text.as_bytes(), [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic())
}

/// Words as a shell takes them apart.
fn words(text: &str) -> Vec<(Range<usize>, String)> {
    let mut found = Vec::new();
    let (mut start, mut word, mut quote) = (None, String::new(), None);
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => {
                if let Some(start) = start.take() {
                    found.push((start..at, unwrapped(std::mem::take(&mut word))));
                }
                continue;
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') if !is_drive(&text[start.unwrap_or(at)..]) => {
                word.extend(chars.next().map(|(_, next)| next));
            }
            (_, c) => word.push(c),
        }
        start.get_or_insert(at);
    }
    if let Some(start) = start {
        found.push((start..text.len(), unwrapped(word)));
    }
    found
}

/// The path of a `file:` address.
fn unwrapped(word: String) -> String {
    let Some(rest) = word.strip_prefix("file://") else { return word };
    let path = rest.find('/').map_or("", |slash| &rest[slash..]);
    let mut bytes = Vec::with_capacity(path.len());
    let mut left = path.as_bytes();
    while let [byte, rest @ ..] = left {
        let coded = match rest {
            [high, low, ..] if *byte == b'%' => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        bytes.push(coded.unwrap_or(*byte));
        left = if coded.is_some() { &rest[2..] } else { rest };
    }
    String::from_utf8(bytes).unwrap_or(word)
}

/// The `@path`s of pictures in a text: the words, and the paths.
pub fn mentions(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('@') {
        if text[..at].chars().next_back().is_some_and(|before| !before.is_whitespace()) {
            continue;
        }
        let rest = &text[at + 1..];
        let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let (end, path) = if let Some((path, _)) = quoted {
            (path.len() + 2, path)
        } else {
            let word = &rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())];
            let path = word.trim_end_matches(PUNCTUATION);
            (path.len(), path)
        };
        let is_other = path.starts_with("thread:") || path.starts_with("skill:");
        if ImageFormat::is_likely(path) && !is_other {
            found.push((text[at..at + 1 + end].to_owned(), path.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pasted: &str) -> Vec<String> {
        paths(pasted).into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn dropped_files_are_recognised_with_any_quoting() {
        assert_eq!(of("/a/My\\ Shot.png"), ["/a/My Shot.png"]);
        assert_eq!(of("'/a/My Shot.PNG' "), ["/a/My Shot.PNG"]);
        assert_eq!(of("\"/a/b.jpeg\" /c.gif\n"), ["/a/b.jpeg", "/c.gif"]);
        assert_eq!(of("file:///a/My%20Shot.webp"), ["/a/My Shot.webp"]);
        assert_eq!(of("file://host/a/%C3%A9.png"), ["/a/é.png"]);
        assert_eq!(of("/home/me/Bildschirmfoto vom 1. Mai.png"), ["/home/me/Bildschirmfoto vom 1. Mai.png"]);
        assert_eq!(of("C:\\Users\\me\\x.png"), ["C:\\Users\\me\\x.png"]);
        assert_eq!(paths("'/a b.png' c.png")[0].0, "'/a b.png'");
    }

    #[test]
    fn text_stays_text() {
        for text in ["", "see a.png", "a.rs", "/usr/bin", "the file is called\n/a.png", "file://%", "x\\"] {
            assert!(of(text).is_empty(), "{text}");
        }
        assert!(of(&"/a.png ".repeat(5000)).is_empty());
    }

    #[test]
    fn images_are_mentioned_with_an_at() {
        assert_eq!(
            mentions("what is @a.png, and (@b.png) or @\"c d.jpg\"? x@y.png @e.rs @skill:f.png"),
            [("@a.png", "a.png"), ("@\"c d.jpg\"", "c d.jpg")].map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
    }
}
