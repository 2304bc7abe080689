//! Text files that start with front matter (YAML between two `---` lines), such as skills and agents.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use aye_core::contract::display::visible_line;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file's definition is used, but some of its content has no effect here.
    Note,
    /// The file's definition is used.
    Warning,
    /// It is not used.
    Error,
}

impl Severity {
    /// Its word, as compilers write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something to say about a file, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Issue {
    /// The file or folder.
    pub path: PathBuf,
    /// The line, from 1; 0 is the file as a whole.
    pub line: usize,
    pub severity: Severity,
    /// The problem and what was expected instead.
    pub message: String,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.to_string_lossy();
        match self.line {
            0 => write!(f, "{}: {}", visible_line(&path), self.message),
            line => write!(f, "{}:{line}: {}", visible_line(&path), self.message),
        }
    }
}

/// A file taken apart.
#[derive(Clone, Debug)]
pub struct Front<T> {
    /// The fields of the front matter.
    pub fields: T,
    /// The front matter itself, for the lines of its keys.
    pub yaml: String,
    /// The text below the front matter, verbatim; lines end with a newline only.
    pub body: String,
}

/// Reads one file and collects the findings about it.
#[derive(Debug)]
pub struct FrontMatterReader<'a> {
    path: &'a Path,
    /// The findings so far.
    pub issues: Vec<Issue>,
}

impl<'a> FrontMatterReader<'a> {
    /// For the file of this path.
    pub fn new(path: &'a Path) -> Self {
        Self { path, issues: Vec::new() }
    }

    /// Returns whether a finding is so severe that the file is unusable.
    pub fn is_refused(&self) -> bool {
        self.issues.iter().any(|issue| issue.severity == Severity::Error)
    }

    /// Adds a finding; line 0 is the file as a whole.
    pub fn say(&mut self, severity: Severity, line: usize, message: impl Into<String>) {
        self.issues.push(Issue { path: self.path.to_path_buf(), line, severity, message: message.into() });
    }

    /// Takes the text apart and reads the front matter, once more leniently when it is not quite YAML.
    pub fn read<T: DeserializeOwned>(&mut self, text: &str) -> Option<Front<T>> {
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => {
                self.say(
                    Severity::Warning,
                    1,
                    "starts with a byte order mark; save the file as UTF-8 without one",
                );
                rest
            }
            None => text,
        };
        let text = text.replace("\r\n", "\n");
        let (yaml, body) = self.split(&text)?;
        if let Some((line, c)) = control_character(yaml) {
            let message = format!("control character U+{:04X} in the front matter; remove it", u32::from(c));
            self.say(Severity::Error, line + 1, message);
            return None;
        }
        let fields = self.yaml(yaml)?;
        Some(Front { fields, yaml: yaml.to_owned(), body: body.trim_start_matches('\n').to_owned() })
    }

    /// Cuts the file at the two `---` lines.
    fn split<'t>(&mut self, text: &'t str) -> Option<(&'t str, &'t str)> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        if first.trim_end() != "---" {
            self.say(Severity::Error, 1, "does not start with front matter; the first line must be `---`");
            return None;
        }
        let mut at = 0;
        for line in rest.split_inclusive('\n') {
            if line.trim_end() == "---" {
                return Some((&rest[..at], &rest[at + line.len()..]));
            }
            at += line.len();
        }
        self.say(Severity::Error, 1, "the front matter is not closed; add a line `---` after it");
        None
    }

    fn yaml<T: DeserializeOwned>(&mut self, yaml: &str) -> Option<T> {
        let strict = match read_yaml(yaml) {
            Ok(raw) => return Some(raw),
            Err(error) => error,
        };
        if let Some((quoted, line, what)) = quote_plain_scalars(yaml)
            && let Ok(raw) = read_yaml(&quoted)
        {
            let message = format!("a value with {what} was read as text; put it in quotes");
            self.say(Severity::Warning, line + 1, message);
            return Some(raw);
        }
        // The location may be that of the end, one line after the last.
        let lines = yaml.lines().count().max(1);
        let line = strict.location().map_or(1, |place| place.line() as usize).clamp(1, lines);
        let message = yaml_error(&strict);
        self.say(Severity::Error, line + 1, format!("invalid YAML in the front matter: {message}"));
        None
    }
}

/// What is wrong with YAML, in words for users: without the parser's advice for its callers, and without its place,
/// which callers show in their own way.
pub fn yaml_error(error: &serde_saphyr::Error) -> String {
    const PLAIN: &[(&str, &str)] = &[
        (", set DuplicateKeyPolicy in Options if acceptable", ""),
        ("; use from_str_multiple or from_str_multiple_with_options", "; one is allowed"),
        ("duplicate mapping key", "duplicate key"),
        ("expected sequence start", "expected a list"),
        ("expected mapping start", "expected keys with values"),
        ("unknown variant", "unknown value"),
        ("recursive references require weak recursion types", "a reference (`*`) to what contains it"),
        ("tabs disallowed within this context (block indentation)", "a tab indents the line; use spaces"),
    ];
    let text = error.without_snippet().to_string();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it cannot be read");
    let line = line.trim_start_matches("error: ");
    let line = line.rsplit_once(" at line ").map_or(line, |(words, _)| words);
    let plain = PLAIN.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
    visible_line(&plain).into_owned()
}

/// Returns the line of a file that contains a key of its front matter, or that of the first `---` if the key
/// is not found.
pub fn line_of(yaml: &str, key: &str) -> usize {
    let at = yaml
        .lines()
        .position(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')));
    at.map_or(1, |at| at + 2)
}

fn read_yaml<T: DeserializeOwned>(yaml: &str) -> Result<T, serde_saphyr::Error> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    // An empty document is a mapping without keys here, so that the message is about what is missing.
    if yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return serde_saphyr::from_str_with_options("{}", options);
    }
    serde_saphyr::from_str_with_options(yaml, options)
}

/// The first control character but newline and tab, with its line from 1.
pub fn control_character(text: &str) -> Option<(usize, char)> {
    let mut lines = text.split('\n').enumerate();
    lines.find_map(|(i, line)| line.chars().find(|c| c.is_control() && *c != '\t').map(|c| (i + 1, c)))
}

/// Puts top-level plain scalars that contain `: ` or end in `:`, and lists that more text follows, into quotes. Gives the
/// first line changed, from 1, and why.
fn quote_plain_scalars(yaml: &str) -> Option<(String, usize, &'static str)> {
    let mut changed = None;
    let mut out = String::with_capacity(yaml.len() + 16);
    for (i, line) in yaml.lines().enumerate() {
        let plain = line.split_once(": ").filter(|(key, value)| {
            let is_key =
                key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') && !key.is_empty();
            let value = value.trim();
            let is_plain =
                !value.starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!', '#', '%', '@', '`']);
            let is_colon = is_plain && (value.contains(": ") || value.ends_with(':'));
            is_key && (is_colon || has_more(value))
        });
        if let Some((key, value)) = plain {
            let what = if has_more(value.trim()) { "more after its brackets" } else { "`: ` in it" };
            changed.get_or_insert((i + 1, what));
            let quoted = value.trim().replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(out, "{key}: \"{quoted}\"");
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    changed.map(|(line, what)| (out, line, what))
}

/// Returns whether text follows a list in brackets, as in `[file] [line]`.
fn has_more(value: &str) -> bool {
    let after = value.strip_prefix('[').and_then(|list| list.split_once(']')).map_or("", |(_, after)| after);
    !after.trim().is_empty() && !after.trim_start().starts_with('#')
}

/// Takes `Bash(git commit:*) Read` apart at blanks and commas outside of parentheses; says whether there were commas.
pub fn split_list(text: &str) -> (Vec<String>, bool) {
    let (mut parts, mut part, mut depth, mut has_commas) = (Vec::new(), String::new(), 0usize, false);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (c == ',' || c.is_whitespace()) {
            has_commas |= c == ',';
            if !part.is_empty() {
                parts.push(std::mem::take(&mut part));
            }
        } else {
            part.push(c);
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    (parts, has_commas)
}
