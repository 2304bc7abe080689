//! Globs as regular expressions.
//!
//! A glob is anchored at both ends and case-sensitive. `*` crosses `/` and newlines, `**/` may match nothing, `?` is
//! one character, `[a-z]`, `[!a]`, `{a,b}` and `\*` work.

use super::LazyRegex;
use regex::Regex;

/// Why a glob was refused: where (counted in characters) and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GlobError {
    pub(super) position: usize,
    pub(super) message: String,
}

/// The treatment of spaces and quotes in a glob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// A plain text: a blank is a blank.
    Text,
    /// The words of a command: unquoted blanks part words, quotes are taken off.
    Words,
}

/// Translates `glob` to the source of an anchored regular expression.
pub(super) fn to_regex(glob: &str, reading: Reading) -> Result<String, GlobError> {
    let chars: Vec<char> = glob.chars().collect();
    let quotes = if reading == Reading::Words { quoted(&chars) } else { vec![Quote::Outside; chars.len()] };
    let mut out = String::from(r"(?s)\A(?:");
    let mut i = 0;
    let mut braces: Vec<usize> = Vec::new();
    while i < chars.len() {
        let c = chars[i];
        if quotes[i] == Quote::Mark {
            i += 1;
            continue;
        }
        match c {
            '*' => {
                let start = i;
                while chars.get(i + 1) == Some(&'*') {
                    i += 1;
                }
                let at_start = start == 0 || matches!(chars[start - 1], '/' | ' ' | ',' | '{');
                if i > start && at_start && chars.get(i + 1) == Some(&'/') {
                    out.push_str("(?:.*/)?");
                    i += 1;
                } else {
                    out.push_str(".*");
                }
            }
            '?' => out.push_str(if reading == Reading::Words { r"[^\x1f]" } else { "." }),
            '[' => i = class(&chars, i, reading, &mut out)?,
            '{' if chars.get(i + 1) == Some(&'}') => {
                out.push_str(r"\{\}");
                i += 1;
            }
            '{' => {
                braces.push(i);
                out.push_str("(?:");
            }
            '}' if !braces.is_empty() => {
                braces.pop();
                out.push(')');
            }
            ',' if !braces.is_empty() => out.push('|'),
            '\\' => {
                i += 1;
                let Some(&literal) = chars.get(i) else {
                    return Err(GlobError {
                        position: i - 1,
                        message: "a glob must not end in a lone backslash (write `\\\\` for one)".into(),
                    });
                };
                push_literal(&mut out, literal);
            }
            ' ' | '\t' if reading == Reading::Words && quotes[i] == Quote::Outside => {
                while matches!(chars.get(i + 1), Some(' ' | '\t')) {
                    i += 1;
                }
                if i + 1 < chars.len() && chars[i + 1..].iter().all(|c| *c == '*') {
                    // A trailing ` *` is zero or more words.
                    out.push_str(r"(?:\x1f.*)?");
                    i = chars.len() - 1;
                } else {
                    out.push_str(r"\x1f");
                }
            }
            other => push_literal(&mut out, other),
        }
        i += 1;
    }
    if let Some(open) = braces.first() {
        return Err(GlobError { position: *open, message: "unclosed `{` (write `\\{` for a brace)".into() });
    }
    out.push_str(r")\z");
    Ok(out)
}

/// Returns the start that a text must have to match: the part of the glob before its first special character.
pub(super) fn literal_start(glob: &str) -> &str {
    glob.find(['*', '?', '[', '{', '\\']).map_or(glob, |end| &glob[..end])
}

/// A glob of this many bytes translates to an expression that is neither too large nor too deep, whatever it
/// contains.
const ALWAYS_FINE: usize = 200;

/// Compiles a glob, at its first use when it cannot go wrong.
pub(super) fn compile(glob: &str, reading: Reading) -> Result<LazyRegex, GlobError> {
    let source = to_regex(glob, reading)?;
    if glob.len() <= ALWAYS_FINE {
        return Ok(LazyRegex::later(source));
    }
    LazyRegex::now(&source).map_err(|error| GlobError { position: 0, message: regex_message(&error) })
}

/// The last, telling line of a regular expression's error.
pub(super) fn regex_message(error: &regex::Error) -> String {
    let text = error.to_string();
    let last =
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("invalid regular expression");
    last.trim().trim_start_matches("error: ").to_owned()
}

/// Writes `text` so that a glob matches exactly it.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Returns whether `text` contains a character that makes it a glob.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

fn push_literal(out: &mut String, c: char) {
    let mut buf = [0; 4];
    out.push_str(&regex::escape(c.encode_utf8(&mut buf)));
}

fn class(chars: &[char], open: usize, reading: Reading, out: &mut String) -> Result<usize, GlobError> {
    let mut i = open + 1;
    let negated = matches!(chars.get(i), Some('!' | '^'));
    if negated {
        i += 1;
    }
    let first = i;
    let mut body = String::new();
    loop {
        match chars.get(i) {
            None => {
                return Err(GlobError {
                    position: open,
                    message: "unclosed `[` (write `\\[` for a bracket)".into(),
                });
            }
            Some(']') if i > first => break,
            Some('\\') => {
                i += 1;
                let Some(&c) = chars.get(i) else { continue };
                push_class_char(&mut body, c);
            }
            // A dash between two characters is a range, anywhere else it is itself.
            Some('-') if i > first && chars.get(i + 1).is_some_and(|c| *c != ']') => body.push('-'),
            Some(&c) => push_class_char(&mut body, c),
        }
        i += 1;
    }
    out.push('[');
    if negated {
        out.push('^');
        if reading == Reading::Words {
            out.push_str(r"\x1f");
        }
    }
    out.push_str(&body);
    out.push(']');
    // A range that runs backwards is found here, where its place is known.
    if let Err(error) = Regex::new(&format!("[{body}]")) {
        return Err(GlobError { position: open, message: regex_message(&error) });
    }
    Ok(i)
}

fn push_class_char(body: &mut String, c: char) {
    if matches!(c, '\\' | '[' | ']' | '^' | '-' | '&' | '~') {
        body.push('\\');
    }
    body.push(c);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quote {
    Outside,
    Inside,
    Mark,
}

/// Marks the quoted characters. A quote that is never closed is an ordinary character.
fn quoted(chars: &[char]) -> Vec<Quote> {
    let mut marks = vec![Quote::Outside; chars.len()];
    let mut i = 0;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 1,
            quote @ ('"' | '\'') => {
                let mut end = i + 1;
                while end < chars.len() && chars[end] != quote {
                    end += if chars[end] == '\\' { 2 } else { 1 };
                }
                if end < chars.len() {
                    marks[i] = Quote::Mark;
                    marks[end] = Quote::Mark;
                    marks[i + 1..end].fill(Quote::Inside);
                    i = end;
                }
            }
            _ => {}
        }
        i += 1;
    }
    marks
}

/// Returns the leading words of a command glob that contain no wildcard, with quotes removed.
///
/// A rule names a program, a flag or an inner command explicitly if it is among these words.
pub(super) fn literal_words(glob: &str) -> (Vec<String>, bool) {
    let chars: Vec<char> = glob.trim().chars().collect();
    let quotes = quoted(&chars);
    let mut words = Vec::new();
    let mut word = String::new();
    let mut started = false;
    let mut i = 0;
    while i < chars.len() {
        match chars[i] {
            _ if quotes[i] == Quote::Mark => started = true,
            ' ' | '\t' if quotes[i] == Quote::Outside => {
                if started {
                    words.push(std::mem::take(&mut word));
                }
                started = false;
            }
            '{' if chars.get(i + 1) == Some(&'}') => {
                word.push_str("{}");
                started = true;
                i += 1;
            }
            '*' | '?' | '[' | '{' => return (words, false),
            '\\' => {
                i += 1;
                word.extend(chars.get(i));
                started = true;
            }
            c => {
                word.push(c);
                started = true;
            }
        }
        i += 1;
    }
    if started {
        words.push(word);
    }
    (words, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(glob: &str, text: &str) -> bool {
        compile(glob, Reading::Text).unwrap().is_match(text)
    }

    fn words(glob: &str, words: &[&str]) -> bool {
        compile(glob, Reading::Words).unwrap().is_match(&words.join("\u{1f}"))
    }

    #[test]
    fn text_globs() {
        for (glob, text, want) in [
            ("*", "", true),
            ("*", "a/b\nc", true),
            ("a*c", "a/b/c", true),
            ("**/x", "x", true),
            ("**/x", "a/b/x", true),
            ("**/x", "ax", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/c/d/b", true),
            ("src/**", "src/a/b", true),
            ("src/**", "src", false),
            ("src/**", "srcx/a", false),
            ("?", "é", true),
            ("?", "ab", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a]x", "bx", true),
            ("[]]x", "]x", true),
            ("{a,b*}c", "bbbc", true),
            ("{a,b}c", "cc", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("A", "a", false),
            ("a.c", "abc", false),
            ("{}", "{}", true),
            ("x", "x\n", false),
        ] {
            assert_eq!(hits(glob, text), want, "{glob:?} on {text:?}");
        }
    }

    #[test]
    fn word_globs() {
        for (glob, command, want) in [
            ("git status *", &["git", "status"][..], true),
            ("git status *", &["git", "status", "-sb"], true),
            ("git status *", &["git", "statusx"], false),
            ("git status *", &["git status"], false),
            ("cargo test*", &["cargo", "test-all", "x"], true),
            ("cargo test*", &["cargo", "test"], true),
            ("cargo test*", &["cargo"], false),
            ("cargo test", &["cargo", "test", "--lib"], false),
            ("*", &["anything", "at all"], true),
            ("* --force", &["git", "push", "--force"], true),
            ("git  commit   -m *", &["git", "commit", "-m", "a b"], true),
            ("echo \"a b\"", &["echo", "a b"], true),
            ("echo \"a b\"", &["echo", "a", "b"], false),
            ("echo a\\ b", &["echo", "a b"], true),
            ("echo don't", &["echo", "don't"], true),
            ("l? x", &["l", "x"], false),
        ] {
            assert_eq!(words(glob, command), want, "{glob:?} on {command:?}");
        }
    }

    #[test]
    fn broken_globs_report_their_position() {
        for (glob, position) in [("a[b", 1), ("ab{c", 2), ("a\\", 1), ("[z-a]", 0)] {
            assert_eq!(compile(glob, Reading::Text).unwrap_err().position, position, "{glob}");
        }
    }

    #[test]
    fn literal_words_stop_at_the_first_wildcard() {
        assert_eq!(literal_words("npx eslint *"), (vec!["npx".into(), "eslint".into()], false));
        assert_eq!(literal_words("cargo test*"), (vec!["cargo".into()], false));
        assert_eq!(literal_words("a 'b c' \\*"), (vec!["a".into(), "b c".into(), "*".into()], true));
    }
}
