//! Foreign text made safe to show.
//!
//! Text from a model, a tool, a file name or a server may contain bytes that a terminal executes or that a reader
//! cannot see. [`visible`] turns each of them into something visible and harmless.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// Returns whether a character must not reach a terminal unchanged. Newline and tab are left to the caller's
/// layout.
pub fn is_unsafe(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        _ => is_invisible(c),
    }
}

/// The character over which a terminal with the graphics protocol of kitty draws an image that it has.
const PLACEHOLDER: char = '\u{10eeee}';

/// Returns whether a character is invisible, or changes how its neighbours are displayed: bidirectional
/// controls, zero-width and filler characters, tags, variation selectors beyond the emoji one, interlinear
/// and format controls.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}' | '\u{200c}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fe00}'..='\u{fe0e}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' | PLACEHOLDER)
}

/// JSON with every character that a terminal might obey written as an escape.
pub fn escape_json(json: &str) -> String {
    use std::fmt::Write as _;
    if !json.chars().any(is_unsafe) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() + 16);
    let mut units = [0; 2];
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Text that means nothing but itself in XML and HTML, in an element and between double quotes.
pub fn escape_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

fn needs_escape(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

/// A name on one line, without a loss: bytes that are no UTF-8 and control bytes as `\xff`, invisible characters as
/// `\u{202e}`, and in such a name a backslash twice. A name that needs none of it stays as it is.
pub fn escape_path(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    if let Some(text) = path.to_str()
        && !text.chars().any(needs_escape)
    {
        return text.to_owned();
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let _ = match c {
                '\\' => out.write_str("\\\\"),
                c if c.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(c)),
                c if needs_escape(c) => write!(out, "\\u{{{:x}}}", u32::from(c)),
                c => out.write_char(c),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Reads what [`escape_path`] wrote, and nothing else: what [`escape_path`] would write in another way is refused, so that no rule
/// about `.env` is passed by spelling it `\x2eenv`.
pub fn unescape_path(text: &str) -> Option<OsString> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('\\') {
            out.push(b'\\');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('x') {
            out.push(u8::from_str_radix(after.get(..2)?, 16).ok()?);
            rest = &after[2..];
        } else {
            let (digits, after) = rest.strip_prefix("u{")?.split_once('}')?;
            let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest = after;
        }
    }
    out.extend_from_slice(rest.as_bytes());
    let name = OsString::from_vec(out);
    (escape_path(Path::new(&name)) == text).then_some(name)
}

/// The text with each unsafe character written out: C0 controls as `^[`, all others as `<U+202E>`.
///
/// A carriage return before a newline is dropped. Newlines and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\u{0}'..='\u{1f}' if is_unsafe(c) => {
                out.push('^');
                out.push(char::from(c as u8 + 0x40));
            }
            '\u{7f}' => out.push_str("^?"),
            _ if is_unsafe(c) => {
                let _ = write!(out, "<U+{:04X}>", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// As [`visible`], on one line: newlines become `⏎` and tabs a blank.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    let text = visible(text);
    if text.contains(['\n', '\t']) { Cow::Owned(text.replace('\n', "⏎").replace('\t', " ")) } else { text }
}

/// Characters of a call that a list shows.
const SUMMARY: usize = 200;

/// Characters of a pattern that is followed by its folder, so that a long one does not hide the folder.
const PATTERN: usize = 80;

/// Returns the subject of a call, on one line of at most 200 characters: the most descriptive argument, else
/// all of them.
pub fn call_summary(tool: &str, arguments: &serde_json::Value) -> String {
    call_subject(arguments).unwrap_or_else(|| match arguments {
        serde_json::Value::Object(map) if map.is_empty() => on_one_line(tool),
        other => on_one_line(&other.to_string()),
    })
}

/// Returns the most descriptive argument of a call, on one line of at most 200 characters; `None` if none is.
pub fn call_subject(arguments: &serde_json::Value) -> Option<String> {
    const TELLING: [&str; 8] =
        ["command", "file_path", "url", "question", "pattern", "path", "skill", "prompt"];
    let text_of = |key: &str| arguments.get(key)?.as_str();
    let (key, text) = TELLING.iter().find_map(|key| Some((*key, text_of(key)?)))?;
    let mut text = match text_of("path").filter(|_| key == "pattern") {
        Some(folder) => on_one_line(&format!("{} in {folder}", shortened(text, PATTERN))),
        None => on_one_line(text),
    };
    if arguments.get("run_in_background") == Some(&serde_json::Value::Bool(true)) {
        text.push_str(" (in the background)");
    }
    Some(text)
}

fn on_one_line(text: &str) -> String {
    shortened(&visible_line(text.trim()), SUMMARY).into_owned()
}

/// The whole call: a command as it will run, with its other arguments below it, or all arguments as JSON. Not yet
/// [`visible`].
pub fn call_text(arguments: &serde_json::Value) -> String {
    let pretty = |value: &serde_json::Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let Some(command) = arguments.get("command").and_then(serde_json::Value::as_str) else {
        return pretty(arguments);
    };
    let mut rest = arguments.clone();
    if let Some(map) = rest.as_object_mut() {
        map.shift_remove("command");
    }
    if rest.as_object().is_some_and(serde_json::Map::is_empty) {
        command.to_owned()
    } else {
        format!("{command}\n\n{}", pretty(&rest))
    }
}

/// A word as a shell reads it back.
pub fn shell_word(word: &str) -> Cow<'_, str> {
    shlex::try_quote(word).unwrap_or(Cow::Borrowed(word))
}

/// The text in at most `max` characters, the last one `…` when something is missing.
pub fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    if text.char_indices().nth(max).is_none() {
        return text.into();
    }
    let end = text.char_indices().nth(max.saturating_sub(1)).map_or(0, |(end, _)| end);
    format!("{}…", &text[..end]).into()
}

/// Counts the characters of a text that a reader could not see.
pub fn count_unsafe(text: &str) -> usize {
    text.chars().filter(|c| is_unsafe(*c)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_summarised_with_its_folder() {
        let summary = |arguments| call_summary("Grep", &arguments);
        assert_eq!(summary(serde_json::json!({"pattern": "root", "path": "/etc"})), "root in /etc");
        assert_eq!(summary(serde_json::json!({"pattern": "root"})), "root");
        let long = summary(serde_json::json!({"pattern": "x".repeat(500), "path": "/etc"}));
        assert!(long.ends_with("x… in /etc"), "{long}");
        let list = call_summary("List", &serde_json::json!({"path": "/etc"}));
        assert_eq!(list, "/etc");
    }

    #[test]
    fn long_text_ends_with_an_ellipsis() {
        assert_eq!(shortened("", 0), "");
        assert_eq!(shortened("añb", 3), "añb");
        assert_eq!(shortened("añbc", 3), "añ…");
        assert_eq!(shortened("漢字", 1), "…");
    }

    proptest::proptest! {
        #[test]
        fn escaping_a_path_is_lossless(bytes in proptest::collection::vec(1_u8.., 1..20)) {
            let name = OsString::from_vec(bytes);
            let escaped = escape_path(Path::new(&name));
            proptest::prop_assert!(!escaped.chars().any(needs_escape));
            if Path::new(&name).to_str() != Some(&escaped) {
                proptest::prop_assert_eq!(unescape_path(&escaped), Some(name));
            }
        }
    }

    #[test]
    fn markup_cannot_leave_its_element() {
        let escaped = escape_markup("a</note><b c=\"d\">it's & 漢");
        assert_eq!(escaped, "a&lt;/note&gt;&lt;b c=&quot;d&quot;&gt;it's &amp; 漢");
    }

    #[test]
    fn escapes_become_text() {
        assert_eq!(visible("a\u{1b}[2Jb"), "a^[[2Jb");
        assert_eq!(visible("x\u{9d}52;c\u{9c}"), "x<U+009D>52;c<U+009C>");
        assert_eq!(visible("ls \u{202e}# tsil"), "ls <U+202E># tsil");
        assert_eq!(visible("a\r\nb\rc"), "a\nb^Mc");
        assert_eq!(visible_line("a\nb\tc"), "a⏎b c");
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        for text in ["héllo", "👨\u{200d}👩\u{200d}👧", "❤\u{fe0f}", "a\tb\n", "漢字"] {
            assert!(matches!(visible(text), Cow::Borrowed(_)), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_unsafe_is_left(text in "\\PC*|[\\x00-\\x{ff}]*") {
            proptest::prop_assert_eq!(count_unsafe(&visible(&text)), 0);
        }
    }
}
