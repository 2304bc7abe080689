//! Globs as regular expressions.
//!
//! A glob is anchored at both ends and case-sensitive. `*` crosses `/` and newlines, `**/` may match nothing, `?` is
//! one character, `[a-z]`, `[!a]`, `{a,b}` and `\*` work.

use super::LazyRegex;
use regex::Regex;
use std::borrow::Cow;

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
    while let (Some(&c), Some(&quote)) = (chars.get(i), quotes.get(i)) {
        if quote == Quote::Mark {
            i += 1;
            continue;
        }
        match c {
            '*' => {
                let start = i;
                while chars.get(i + 1) == Some(&'*') {
                    i += 1;
                }
                let before = start.checked_sub(1).and_then(|at| chars.get(at));
                let at_start = before.is_none_or(|c| matches!(c, '/' | ' ' | ',' | '{'));
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
            ' ' | '\t' if reading == Reading::Words && quote == Quote::Outside => {
                while matches!(chars.get(i + 1), Some(' ' | '\t')) {
                    i += 1;
                }
                if chars.get(i + 1..).is_some_and(|rest| !rest.is_empty() && rest.iter().all(|c| *c == '*')) {
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

/// A glob over paths as a deny or ask rule reads it: whatever it names and, if that is a folder, everything in it; a
/// name without a slash matches at any depth.
pub(super) fn covering(glob: &str) -> Result<LazyRegex, GlobError> {
    let text = path_text(glob);
    let is_name = !text.contains('/') && !text.starts_with('~') && text != ".";
    let source = match text.as_ref() {
        "/" => to_regex("/**", Reading::Text)?,
        text if is_name => to_regex(&format!("**/{text}"), Reading::Text)?,
        text => to_regex(text, Reading::Text)?,
    };
    let source = match source.strip_suffix(r")\z") {
        Some(start) => format!(r"{start})(?:/.*)?\z"),
        None => source,
    };
    compiled(glob, source)
}

/// The text of a path in a rule without what changes nothing: `./` in front, a slash at the end, and the second slash
/// of `//etc/x`, which other programs use for an absolute path.
pub(super) fn path_text(text: &str) -> Cow<'_, str> {
    let mut rest = text;
    while let Some(below) = rest.strip_prefix("./") {
        rest = below.trim_start_matches('/');
    }
    if rest.starts_with("//") {
        rest = rest.trim_start_matches('/');
        return Cow::Owned(format!("/{}", without_end(rest)));
    }
    match without_end(rest) {
        "" if rest.starts_with('/') => Cow::Borrowed("/"),
        "" => Cow::Borrowed("."),
        rest => Cow::Borrowed(rest),
    }
}

/// A path without the slashes at its end, unless a backslash makes them part of the name.
fn without_end(text: &str) -> &str {
    let end = text.trim_end_matches('/');
    if end.ends_with('\\') { text } else { end }
}

/// A glob of this many bytes translates to an expression that is neither too large nor too deep, whatever it
/// contains.
const ALWAYS_FINE: usize = 200;

/// Compiles a glob, at its first use when it cannot go wrong.
pub(super) fn compile(glob: &str, reading: Reading) -> Result<LazyRegex, GlobError> {
    let source = to_regex(glob, reading)?;
    compiled(glob, source)
}

fn compiled(glob: &str, source: String) -> Result<LazyRegex, GlobError> {
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
    while let Some(&c) = chars.get(i) {
        match c {
            '\\' => i += 1,
            '"' | '\'' => {
                let mut end = i + 1;
                while let Some(&inside) = chars.get(end).filter(|inside| **inside != c) {
                    end += if inside == '\\' { 2 } else { 1 };
                }
                if end < chars.len()
                    && let Some([open, inside @ .., close]) = marks.get_mut(i..=end)
                {
                    (*open, *close) = (Quote::Mark, Quote::Mark);
                    inside.fill(Quote::Inside);
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
    while let (Some(&c), Some(&quote)) = (chars.get(i), quotes.get(i)) {
        match c {
            _ if quote == Quote::Mark => started = true,
            ' ' | '\t' if quote == Quote::Outside => {
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

/// The words of a command glob, each a glob of its own: quotes are taken off.
pub(super) fn glob_words(glob: &str) -> Vec<String> {
    let chars: Vec<char> = glob.trim().chars().collect();
    let quotes = quoted(&chars);
    let (mut words, mut word, mut started) = (Vec::new(), String::new(), false);
    let mut marked = chars.iter().copied().zip(quotes);
    while let Some((c, quote)) = marked.next() {
        match (c, quote) {
            (_, Quote::Mark) => started = true,
            (' ' | '\t', Quote::Outside) => {
                if started {
                    words.push(std::mem::take(&mut word));
                }
                started = false;
            }
            ('\\', _) => {
                started = true;
                word.push('\\');
                word.extend(marked.next().map(|(c, _)| c));
            }
            // In quotes too, `*` and its like are wildcards.
            (c, Quote::Outside | Quote::Inside) => {
                started = true;
                word.push(c);
            }
        }
    }
    if started {
        words.push(word);
    }
    words
}

/// The part of a word's glob before its first wildcard, without backslashes, and whether there is one.
pub(super) fn literal_part(word: &str) -> (String, bool) {
    let (mut out, mut chars) = (String::new(), word.chars());
    while let Some(c) = chars.next() {
        match c {
            '*' | '?' | '[' | '{' => return (out, true),
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    (out, false)
}

/// The alternatives of a word's glob: `{a,b}c` is `ac` and `bc`. More than `most` are not listed.
pub(super) fn alternatives(word: &str, most: usize) -> Option<Vec<String>> {
    let chars: Vec<char> = word.chars().collect();
    let (mut open, mut depth, mut cuts, mut i) = (None, 0_usize, Vec::new(), 0);
    while let Some(c) = chars.get(i) {
        match c {
            '\\' => i += 1,
            '{' if chars.get(i + 1) == Some(&'}') => i += 1,
            '{' => {
                open = open.or(Some(i));
                depth += 1;
            }
            ',' if depth == 1 => cuts.push(i),
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            _ => {}
        }
        i += 1;
    }
    let Some(open) = open else { return Some(vec![word.to_owned()]) };
    let text = |from: usize, to: usize| chars.get(from..to).map(|part| part.iter().collect::<String>());
    let (front, back) = (text(0, open)?, text(i + 1, chars.len())?);
    let mut all = Vec::new();
    let mut start = open + 1;
    for end in cuts.into_iter().chain([i]) {
        let middle = text(start, end)?;
        all.extend(alternatives(&format!("{front}{middle}{back}"), most)?);
        if all.len() > most {
            return None;
        }
        start = end + 1;
    }
    Some(all)
}

/// Words that an example has in place of a `*`: one may be a subcommand, a script or a file.
const FILLERS: [&str; 6] = ["x", "status", "build", "list", "1", "src"];

/// Command lines that a command glob matches.
pub(super) fn example_commands(glob: &str) -> Vec<String> {
    const MOST: usize = 16;
    let words = glob_words(glob);
    let stars = words.iter().filter(|word| word.contains('*')).count();
    let fillers = FILLERS.iter().take(if stars == 0 { 1 } else { FILLERS.len() });
    let lines = fillers.map(|filler| {
        let words = words.iter().map(|word| {
            let first = alternatives(word, MOST).and_then(|all| all.into_iter().next());
            example_word(&first.unwrap_or_else(|| word.clone()), filler)
        });
        words.collect::<Vec<_>>().join(" ")
    });
    let mut lines: Vec<String> = lines.collect();
    lines.dedup();
    lines
}

/// A word that a word's glob matches, as a shell reads it.
fn example_word(word: &str, filler: &str) -> String {
    if word.chars().all(|c| c == '*') {
        return filler.to_owned();
    }
    let (mut out, mut chars, mut is_escaped) = (String::new(), word.chars().peekable(), false);
    while let Some(c) = chars.next() {
        match c {
            '*' => {}
            '?' => out.push('x'),
            '[' => {
                let mut first = chars.next();
                if matches!(first, Some('!' | '^')) {
                    first = Some('~');
                }
                out.extend(first);
                let _ = chars.by_ref().find(|c| *c == ']');
            }
            '\\' => {
                is_escaped = true;
                out.extend(chars.next());
            }
            c => out.push(c),
        }
    }
    // Escaped and quoted text was meant as text; the rest is shell as it was written.
    let is_text = is_escaped || out.contains([' ', '\t', '"', '\'']);
    if is_text || out.is_empty() { super::shell::quote(&out) } else { out }
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
    fn a_path_covers_what_is_in_it() {
        for (glob, path, want) in [
            ("secret/", "secret/a", true),
            ("secret", "secret/a/b", true),
            ("./secret/", "secret/a", true),
            ("**/secret/", "x/secret/a", true),
            ("secret", "x/secret/a", true),
            ("a/b", "x/a/b", false),
            ("a/b", "a/b/c", true),
            ("secret", "secrets/a", false),
            ("secret", "xsecret", false),
            ("*.pem", "x/y.pem", true),
            ("//etc/x", "/etc/x", true),
            ("/etc/x/", "/etc/x/y", true),
            ("/", "/etc", true),
            ("~/.ssh", "~/.ssh/id", true),
            ("src/**", "src/a", true),
            ("src/**", "src", false),
            ("x\\/", "x/", true),
        ] {
            assert_eq!(covering(glob).unwrap().is_match(path), want, "{glob:?} on {path:?}");
        }
    }

    #[test]
    fn words_and_alternatives_of_a_glob() {
        assert_eq!(
            glob_words("git  push 'a b' {-f,--force} x\\ y *"),
            ["git", "push", "a b", "{-f,--force}", "x\\ y", "*"]
        );
        assert_eq!(alternatives("{-f,--force}=x", 8).unwrap(), ["-f=x", "--force=x"]);
        assert_eq!(alternatives("{a,{b,c}}", 8).unwrap(), ["a", "b", "c"]);
        assert_eq!(alternatives("{a,b,c}{a,b,c}", 8), None);
        assert_eq!(alternatives("{}", 8).unwrap(), ["{}"]);
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
