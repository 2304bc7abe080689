//! Reads `SKILL.md`: the front matter with its rules, and the instructions below it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::contract::display::{count_unsafe, visible_line};
use crate::front_matter::{Front, Reader, control_character, line_of, split_list};
pub use crate::front_matter::{Issue as SkillIssue, Severity};
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

/// Reads the text of a `SKILL.md`; `folder` is the name of the folder it stands in, if it stands in one.
pub fn parse(path: &Path, text: &str, folder: Option<&str>) -> Parsed {
    let mut skill = SkillReader { reader: Reader::new(path) };
    let doc = skill.doc(text, folder);
    let is_refused = skill.reader.is_refused();
    Parsed { doc: doc.filter(|_| !is_refused), issues: skill.reader.issues }
}

struct SkillReader<'a> {
    reader: Reader<'a>,
}

impl SkillReader<'_> {
    fn say(&mut self, severity: Severity, line: usize, message: impl Into<String>) {
        self.reader.say(severity, line, message);
    }

    fn doc(&mut self, text: &str, folder: Option<&str>) -> Option<SkillDoc> {
        let Front { fields, yaml, body } = self.reader.read::<Raw>(text)?;
        let meta = self.meta(fields, &yaml, folder)?;
        if body.trim().is_empty() {
            self.say(Severity::Warning, 0, "has no instructions below the front matter");
        }
        Some(SkillDoc { meta, instructions: body })
    }

    fn meta(&mut self, raw: Raw, yaml: &str, folder: Option<&str>) -> Option<SkillMeta> {
        let line_of = |key: &str| line_of(yaml, key);
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
            ToolList::Text(text) => split_list(&text),
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

#[cfg(test)]
#[path = "front_matter_tests.rs"]
mod tests;
