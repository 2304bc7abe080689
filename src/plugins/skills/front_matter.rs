//! Reads `SKILL.md`: the front matter with its rules, and the instructions below it.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::contract::display::{count_unsafe, visible_line};
use crate::pattern::Pattern;

/// Characters of a name.
pub const MAX_NAME: usize = 64;
/// Characters of a description.
pub const MAX_DESCRIPTION: usize = 1024;
/// A larger `SKILL.md` is refused.
pub const MAX_FILE: u64 = 512 * 1024;

/// What the front matter says about a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SkillMeta {
    /// Unique among the loaded skills, NFKC.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// Tool patterns that it asks to be allowed, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Its licence, for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// What it needs around it, for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The skill is loaded.
    Warning,
    /// The skill is not loaded.
    Error,
}

/// Something to say about a skill, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkillIssue {
    /// The file or folder.
    pub path: PathBuf,
    /// The line, from 1; 0 is the file as a whole.
    pub line: usize,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for SkillIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.to_string_lossy();
        match self.line {
            0 => write!(f, "{}: {}", visible_line(&path), self.message),
            line => write!(f, "{}:{line}: {}", visible_line(&path), self.message),
        }
    }
}

/// A skill file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillDoc {
    /// The front matter.
    pub meta: SkillMeta,
    /// What stands below it, literally; lines end with a newline only.
    pub instructions: String,
}

/// The result of reading one file: a skill unless a finding is an error.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The skill.
    pub doc: Option<SkillDoc>,
    /// Errors and warnings.
    pub issues: Vec<SkillIssue>,
}

/// The keys that mean something; all others are ignored.
#[derive(Deserialize)]
struct Raw {
    name: Option<String>,
    description: Option<String>,
    #[serde(rename = "allowed-tools")]
    allowed_tools: Option<ToolList>,
    license: Option<String>,
    compatibility: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ToolList {
    Text(String),
    List(Vec<String>),
}

struct Reader<'a> {
    path: &'a Path,
    issues: Vec<SkillIssue>,
}

impl Reader<'_> {
    fn say(&mut self, severity: Severity, line: usize, message: impl Into<String>) {
        self.issues.push(SkillIssue {
            path: self.path.to_path_buf(),
            line,
            severity,
            message: message.into(),
        });
    }
}

/// Reads the text of a `SKILL.md`; `folder` is the name of the folder it stands in, if it stands in one.
pub fn parse(path: &Path, text: &str, folder: Option<&str>) -> Parsed {
    let mut reader = Reader { path, issues: Vec::new() };
    let doc = reader.doc(text, folder);
    let is_refused = reader.issues.iter().any(|issue| issue.severity == Severity::Error);
    Parsed { doc: doc.filter(|_| !is_refused), issues: reader.issues }
}

impl Reader<'_> {
    fn doc(&mut self, text: &str, folder: Option<&str>) -> Option<SkillDoc> {
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
        let (yaml, instructions) = self.split(&text)?;
        if let Some((line, c)) = control_character(yaml) {
            let message =
                format!("control character U+{:04X} in the front matter; take it out", u32::from(c));
            self.say(Severity::Error, line + 1, message);
            return None;
        }
        let raw = self.yaml(yaml)?;
        let meta = self.meta(raw, yaml, folder)?;
        if instructions.trim().is_empty() {
            self.say(Severity::Warning, 0, "has no instructions below the front matter");
        }
        Some(SkillDoc { meta, instructions: instructions.trim_start_matches('\n').to_owned() })
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
        self.say(Severity::Error, 1, "the front matter is never closed; add a line `---` behind it");
        None
    }

    fn yaml(&mut self, yaml: &str) -> Option<Raw> {
        let strict = match read_yaml(yaml) {
            Ok(raw) => return Some(raw),
            Err(error) => error,
        };
        if let Some((quoted, line)) = quote_plain_scalars(yaml)
            && let Ok(raw) = read_yaml(&quoted)
        {
            let message = "a value with `: ` in it was read as text; put it in quotes";
            self.say(Severity::Warning, line + 1, message);
            return Some(raw);
        }
        // The location may be that of the end, one line behind the last.
        let lines = yaml.lines().count().max(1);
        let line = strict.location().map_or(1, |place| place.line() as usize).clamp(1, lines);
        let message = strict.without_snippet().to_string();
        let message = visible_line(message.lines().next().unwrap_or_default()).into_owned();
        self.say(Severity::Error, line + 1, format!("the front matter is not readable YAML: {message}"));
        None
    }

    fn meta(&mut self, raw: Raw, yaml: &str, folder: Option<&str>) -> Option<SkillMeta> {
        let line_of = |key: &str| {
            let at = yaml.lines().position(|line| {
                line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'))
            });
            at.map_or(1, |at| at + 2)
        };
        let name = self.name(raw.name.as_deref(), line_of("name"), folder);
        let description = raw.description.unwrap_or_default();
        let description = description.trim();
        let line = line_of("description");
        if description.is_empty() {
            let message = "has no description; add `description: what it does and when to use it`";
            self.say(Severity::Error, line, message);
        }
        if let Some((_, c)) = control_character(description) {
            let message = format!("control character U+{:04X} in the description; take it out", u32::from(c));
            self.say(Severity::Error, line, message);
        }
        let length = description.chars().count();
        if length > MAX_DESCRIPTION {
            let message = format!(
                "the description has {length} characters; more than {MAX_DESCRIPTION} are not shown to the model"
            );
            self.say(Severity::Warning, line, message);
        }
        let hidden = count_unsafe(description);
        if hidden > 0 {
            let plural = if hidden == 1 { "" } else { "s" };
            self.say(
                Severity::Warning,
                line,
                format!("{hidden} invisible character{plural} in the description; take them out"),
            );
        }
        let allowed_tools = match raw.allowed_tools {
            Some(list) => self.allowed_tools(list, line_of("allowed-tools")),
            None => Vec::new(),
        };
        Some(SkillMeta {
            name: name?,
            description: description.to_owned(),
            allowed_tools,
            license: raw.license,
            compatibility: raw.compatibility,
        })
    }

    fn name(&mut self, name: Option<&str>, line: usize, folder: Option<&str>) -> Option<String> {
        let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) else {
            self.say(Severity::Error, line, "has no name; add `name: ` with the name of its folder");
            return None;
        };
        let name: String = name.nfkc().collect();
        if let Err(message) = check_name(&name) {
            self.say(Severity::Error, line, message);
            return None;
        }
        let length = name.chars().count();
        if length > MAX_NAME {
            self.say(
                Severity::Warning,
                line,
                format!("the name has {length} characters; at most {MAX_NAME} are right"),
            );
        }
        if let Some(folder) = folder.map(|folder| folder.nfkc().collect::<String>())
            && folder != name
        {
            let message = format!(
                "the name `{name}` differs from its folder `{}`; give both the same",
                visible_line(&folder)
            );
            self.say(Severity::Warning, line, message);
        }
        Some(name)
    }

    fn allowed_tools(&mut self, list: ToolList, line: usize) -> Vec<String> {
        let (parts, has_commas) = match list {
            ToolList::Text(text) => split_tools(&text),
            ToolList::List(items) => {
                let message =
                    "allowed-tools is a list; the specification has one text with blanks between the tools";
                self.say(Severity::Warning, line, message);
                (
                    items
                        .into_iter()
                        .map(|item| item.trim().to_owned())
                        .filter(|item| !item.is_empty())
                        .collect(),
                    false,
                )
            }
        };
        if has_commas {
            self.say(
                Severity::Warning,
                line,
                "allowed-tools has commas; the specification has blanks between the tools",
            );
        }
        if let Some(part) = parts.iter().find(|part| count_unsafe(part) > 0 || part.contains(['\n', '\t'])) {
            let message =
                format!("allowed-tools holds control or invisible characters: `{}`", visible_line(part));
            self.say(Severity::Error, line, message);
        }
        let mut kept = Vec::new();
        for part in parts {
            match Pattern::parse(&part) {
                Ok(_) => kept.push(part),
                // Leaving it out grants less, and the skill is still of use.
                Err(error) => {
                    let message = format!(
                        "`{}` in allowed-tools is no pattern and is left out: {}",
                        visible_line(&part),
                        visible_line(&error.message)
                    );
                    self.say(Severity::Warning, line, message);
                }
            }
        }
        kept
    }
}

fn read_yaml(yaml: &str) -> Result<Raw, serde_saphyr::Error> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    // An empty document is a mapping without keys here, so that the message is about what is missing.
    if yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return serde_saphyr::from_str_with_options("{}", options);
    }
    serde_saphyr::from_str_with_options(yaml, options)
}

/// The first control character but newline and tab, with its line from 1.
fn control_character(text: &str) -> Option<(usize, char)> {
    let mut lines = text.split('\n').enumerate();
    lines.find_map(|(i, line)| line.chars().find(|c| c.is_control() && *c != '\t').map(|c| (i + 1, c)))
}

/// Puts top-level plain scalars that hold `: ` or ` #` or end in `:` into quotes. Gives the first line changed, from 1.
fn quote_plain_scalars(yaml: &str) -> Option<(String, usize)> {
    let mut changed = None;
    let mut out = String::with_capacity(yaml.len() + 16);
    for (i, line) in yaml.lines().enumerate() {
        let plain = line.split_once(": ").filter(|(key, value)| {
            let is_key =
                key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') && !key.is_empty();
            let value = value.trim();
            let is_plain =
                !value.starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!', '#', '%', '@', '`']);
            is_key && is_plain && (value.contains(": ") || value.ends_with(':'))
        });
        if let Some((key, value)) = plain {
            changed.get_or_insert(i + 1);
            let quoted = value.trim().replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(out, "{key}: \"{quoted}\"");
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    changed.map(|line| (out, line))
}

/// What a name may look like, its length aside.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_name(name: &str) -> Result<(), String> {
    let refuse = |what: &str| Err(format!("the name `{}` {what}", visible_line(name)));
    let is_wrong =
        |c: &char| !(*c == '-' || c.is_numeric() || c.is_alphabetic()) || c.to_lowercase().ne([*c]);
    match name.chars().find(is_wrong) {
        Some(c) if c.is_alphabetic() => {
            refuse("has an upper-case letter; only lower-case letters, digits and `-` are right")
        }
        Some(_) => refuse(
            "has a character that does not belong there; only lower-case letters, digits and `-` are right",
        ),
        None if name.is_empty() => refuse("is empty"),
        None if name.starts_with('-') || name.ends_with('-') => refuse("starts or ends with `-`"),
        None if name.contains("--") => refuse("has two `-` in a row"),
        // A name of several hundred letters is no name, and would fill the prompt.
        None if name.chars().count() > 4 * MAX_NAME => refuse("is much too long"),
        None => Ok(()),
    }
}

/// Takes `Bash(git commit:*) Read` apart at blanks and commas outside of parentheses; says whether there were commas.
pub(crate) fn split_tools(text: &str) -> (Vec<String>, bool) {
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

#[cfg(test)]
#[path = "front_matter_tests.rs"]
mod tests;
