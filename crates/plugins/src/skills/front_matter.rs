//! Reads `SKILL.md`: the front matter with its rules, and the instructions below it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use aye_core::contract::amount::counted;
use aye_core::contract::display::{count_unsafe, visible_line};
use aye_files::front_matter::{Front, FrontMatterReader, control_character, line_of, split_list};
pub use aye_files::front_matter::{Issue as SkillIssue, Severity};
use aye_pattern::Pattern;

/// Characters of a name.
pub(super) const MAX_NAME: usize = 64;
/// Characters of a description.
pub(super) const MAX_DESCRIPTION: usize = 1024;
/// A larger `SKILL.md` is refused.
pub(super) const MAX_FILE: u64 = 512 * 1024;

/// The metadata in a skill's front matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SkillMeta {
    /// Unique among the loaded skills, NFKC.
    pub name: String,
    /// The description of what the skill does and when to use it.
    pub description: String,
    /// Tool patterns that it asks to be allowed, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Its licence, for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// The environment that the skill needs, for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// When to use it: the model reads this after the description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_to_use: Option<String>,
    /// A hint for the arguments typed after `/name`, for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument_hint: Option<String>,
    /// Names of its arguments, in order: `$name` is replaced by the argument.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Only a user may start it; the model does not know of it.
    #[serde(skip_serializing_if = "is_false")]
    pub disable_model_invocation: bool,
    /// Only the model may start it; it is in no menu.
    #[serde(skip_serializing_if = "is_false")]
    pub is_hidden: bool,
    /// It runs in a conversation of its own: its instructions are the prompt of a subagent.
    #[serde(skip_serializing_if = "is_false")]
    pub is_forked: bool,
    /// The subagent that runs it; the one that calls it when nothing is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model that runs it, for the rest of the run; the one in use when nothing is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A skill file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillDoc {
    pub meta: SkillMeta,
    /// The text below the front matter, literally; lines end with a newline only.
    pub instructions: String,
}

/// The result of reading one file: a skill unless a finding is an error.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    pub doc: Option<SkillDoc>,
    pub issues: Vec<SkillIssue>,
}

/// Keys of Claude Code that have no meaning here; `aye skills check` names those that a skill has.
const IGNORED: [&str; 6] = ["disallowed-tools", "effort", "hooks", "paths", "shell", "mode"];

/// The supported keys; all others are ignored. Each value is checked separately, so that one with a wrong
/// type does not invalidate the skill.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Raw {
    name: Option<Value>,
    description: Option<Value>,
    allowed_tools: Option<Value>,
    license: Option<Value>,
    compatibility: Option<Value>,
    #[serde(alias = "when_to_use")]
    when_to_use: Option<Value>,
    argument_hint: Option<Value>,
    arguments: Option<Value>,
    disable_model_invocation: Option<Value>,
    user_invocable: Option<Value>,
    context: Option<Value>,
    agent: Option<Value>,
    model: Option<Value>,
}

/// A value as text: a string, or a number or flag that was written without quotes.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn items(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(scalar).collect()
}

/// Reads the text of a `SKILL.md`; `folder` is the name of the folder that contains it, if any.
pub fn parse(path: &Path, text: &str, folder: Option<&str>) -> Parsed {
    let mut skill = SkillReader { reader: FrontMatterReader::new(path) };
    let doc = skill.doc(text, folder);
    let is_refused = skill.reader.is_refused();
    Parsed { doc: doc.filter(|_| !is_refused), issues: skill.reader.issues }
}

struct SkillReader<'a> {
    reader: FrontMatterReader<'a>,
}

impl SkillReader<'_> {
    fn report(&mut self, severity: Severity, line: usize, message: impl Into<String>) {
        self.reader.say(severity, line, message);
    }

    fn doc(&mut self, text: &str, folder: Option<&str>) -> Option<SkillDoc> {
        let Front { fields, yaml, body } = self.reader.read::<Raw>(text)?;
        let meta = self.meta(fields, &yaml, folder)?;
        if body.trim().is_empty() {
            self.report(Severity::Warning, 0, "has no instructions below the front matter");
        }
        Some(SkillDoc { meta, instructions: body })
    }

    fn meta(&mut self, raw: Raw, yaml: &str, folder: Option<&str>) -> Option<SkillMeta> {
        let line_of = |key: &str| line_of(yaml, key);
        let name = raw.name.as_ref().and_then(scalar);
        let name = self.name(name.as_deref(), line_of("name"), folder);
        let line = line_of("description");
        let description = raw.description.as_ref().and_then(scalar).unwrap_or_default();
        let description = description.trim();
        if description.is_empty() {
            let message = "has no description; add `description: what it does and when to use it`";
            self.report(Severity::Error, line, message);
        }
        if let Some((_, c)) = control_character(description) {
            let message = format!("control character U+{:04X} in the description; remove it", u32::from(c));
            self.report(Severity::Error, line, message);
        }
        let length = description.chars().count();
        if length > MAX_DESCRIPTION {
            let message = format!(
                "the description has {length} characters; more than {MAX_DESCRIPTION} are not shown to the model"
            );
            self.report(Severity::Warning, line, message);
        }
        let hidden = count_unsafe(description);
        if hidden > 0 {
            self.report(
                Severity::Warning,
                line,
                format!("{} in the description; remove them", counted(hidden, "invisible character")),
            );
        }
        let allowed_tools = match &raw.allowed_tools {
            Some(list) => self.allowed_tools(list, line_of("allowed-tools")),
            None => Vec::new(),
        };
        let written = |key: &str| line_of(key) > 1;
        let when = if written("when_to_use") { "when_to_use" } else { "when-to-use" };
        let is_forked = match self.text("context", raw.context, yaml).as_deref() {
            Some("fork") => true,
            None | Some("inherit") => false,
            Some(other) => {
                let message = format!(
                    "`context` is `{}`; only `fork` is supported, so it is ignored",
                    visible_line(other)
                );
                self.report(Severity::Warning, line_of("context"), message);
                false
            }
        };
        let agent = self.text("agent", raw.agent, yaml);
        if agent.is_some() && !is_forked {
            self.report(Severity::Warning, line_of("agent"), "`agent` is ignored without `context: fork`");
        }
        let disable_model_invocation =
            self.flag("disable-model-invocation", raw.disable_model_invocation, yaml).unwrap_or(false);
        let is_hidden = !self.flag("user-invocable", raw.user_invocable, yaml).unwrap_or(true);
        if disable_model_invocation && is_hidden {
            let message = "neither the model nor a user can start it: `disable-model-invocation` is true and \
                           `user-invocable` false";
            self.report(Severity::Warning, line_of("user-invocable"), message);
        }
        for key in IGNORED.into_iter().filter(|key| written(key)) {
            self.report(Severity::Note, line_of(key), format!("`{key}` is ignored: aye does not support it"));
        }
        Some(SkillMeta {
            name: name?,
            description: description.to_owned(),
            allowed_tools,
            license: self.text("license", raw.license, yaml),
            compatibility: self.text("compatibility", raw.compatibility, yaml),
            when_to_use: self.text(when, raw.when_to_use, yaml),
            argument_hint: self.hint(raw.argument_hint, yaml),
            arguments: self.arguments(raw.arguments, yaml),
            disable_model_invocation,
            is_hidden,
            is_forked,
            agent: agent.filter(|_| is_forked),
            model: self.text("model", raw.model, yaml).filter(|model| model != "inherit"),
        })
    }

    /// An optional text. One of another type, or with characters that no text has, is left out.
    fn text(&mut self, key: &str, value: Option<Value>, yaml: &str) -> Option<String> {
        let value = value.filter(|value| !value.is_null())?;
        match scalar(&value).map(|text| text.trim().to_owned()) {
            Some(text) if text.is_empty() => None,
            Some(text) if control_character(&text).is_none() && count_unsafe(&text) == 0 => Some(text),
            Some(_) => {
                let message = format!("`{key}` contains control or invisible characters and is ignored");
                self.report(Severity::Warning, line_of(yaml, key), message);
                None
            }
            None => {
                let message = format!("`{key}` must be a string and is ignored");
                self.report(Severity::Warning, line_of(yaml, key), message);
                None
            }
        }
    }

    fn flag(&mut self, key: &str, value: Option<Value>, yaml: &str) -> Option<bool> {
        let value = value.filter(|value| !value.is_null())?;
        let flag = match scalar(&value).map(|text| text.trim().to_lowercase()).as_deref() {
            Some("true" | "yes" | "on") => Some(true),
            Some("false" | "no" | "off") => Some(false),
            Some(_) | None => None,
        };
        if flag.is_none() {
            let message = format!("`{key}` must be true or false and is ignored");
            self.report(Severity::Warning, line_of(yaml, key), message);
        }
        flag
    }

    /// `[file]` without quotes is a list for YAML, and meant as it is written.
    fn hint(&mut self, value: Option<Value>, yaml: &str) -> Option<String> {
        let value = match value.as_ref().and_then(items) {
            Some(words) => Some(Value::String(format!("[{}]", words.join(", ")))),
            None => value,
        };
        self.text("argument-hint", value, yaml)
    }

    fn arguments(&mut self, value: Option<Value>, yaml: &str) -> Vec<String> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Vec::new() };
        let names = items(&value).or_else(|| {
            scalar(&value).map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        });
        let is_name = |name: &String| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        names.filter(|names| names.iter().all(is_name)).unwrap_or_else(|| {
            let message = "`arguments` must be names of letters, digits, `_` and `-`, and is ignored";
            self.report(Severity::Warning, line_of(yaml, "arguments"), message);
            Vec::new()
        })
    }

    fn name(&mut self, name: Option<&str>, line: usize, folder: Option<&str>) -> Option<String> {
        let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) else {
            self.report(Severity::Error, line, "has no name; add `name: ` with the folder's name");
            return None;
        };
        let name: String = name.nfkc().collect();
        match (check_name(&name), is_usable(&name)) {
            (Ok(()), _) => {}
            (Err(error), true) => self.report(Severity::Warning, line, error.to_string()),
            (Err(error), false) => {
                self.report(Severity::Error, line, error.to_string());
                return None;
            }
        }
        let length = name.chars().count();
        if length > MAX_NAME {
            self.report(
                Severity::Warning,
                line,
                format!("the name has {length} characters; the maximum is {MAX_NAME}"),
            );
        }
        if let Some(folder) = folder.map(|folder| folder.nfkc().collect::<String>())
            && folder != name
        {
            let message = format!(
                "the name `{name}` differs from its folder `{}`; give both the same",
                visible_line(&folder)
            );
            self.report(Severity::Warning, line, message);
        }
        Some(name)
    }

    fn allowed_tools(&mut self, list: &Value, line: usize) -> Vec<String> {
        let (parts, has_commas) = match (list, items(list)) {
            (Value::Null, _) => return Vec::new(),
            (Value::String(text), _) => split_list(text),
            (_, Some(items)) => {
                let message =
                    "allowed-tools is a list; the specification has one string with spaces between the tools";
                self.report(Severity::Warning, line, message);
                (
                    items
                        .into_iter()
                        .map(|item| item.trim().to_owned())
                        .filter(|item| !item.is_empty())
                        .collect(),
                    false,
                )
            }
            (_, None) => {
                let message = "allowed-tools must be a string with spaces between the tools; it is ignored";
                self.report(Severity::Warning, line, message);
                return Vec::new();
            }
        };
        if has_commas {
            self.report(
                Severity::Warning,
                line,
                "allowed-tools has commas; the specification has spaces between the tools",
            );
        }
        if let Some(part) = parts.iter().find(|part| count_unsafe(part) > 0 || part.contains(['\n', '\t'])) {
            let message =
                format!("allowed-tools contains control or invisible characters: `{}`", visible_line(part));
            self.report(Severity::Error, line, message);
        }
        let mut kept = Vec::new();
        for part in parts {
            match Pattern::parse(&part) {
                Ok(_) => kept.push(part),
                // Leaving it out grants less, and the skill is still of use.
                Err(error) => {
                    let message = format!(
                        "`{}` in allowed-tools is not a pattern and is left out: {}",
                        visible_line(&part),
                        visible_line(&error.message)
                    );
                    self.report(Severity::Warning, line, message);
                }
            }
        }
        kept
    }
}

/// Whether a skill can be used although its name is invalid: other programs accept capitals, spaces, `_` and
/// the like. A name that could be a path or markup, or that has invisible characters, is never accepted.
fn is_usable(name: &str) -> bool {
    let is_fine = |c: char| c.is_alphanumeric() || " -_.:+&'(),".contains(c);
    name.chars().all(is_fine)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
        && name.chars().any(char::is_alphanumeric)
        && name.chars().count() <= 4 * MAX_NAME
}

/// Why a name is not one of a skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name `{}` {fault}", visible_line(name))]
pub struct SkillNameError {
    pub name: String,
    /// What is wrong with the name.
    pub fault: SkillNameFault,
}

/// The ways in which a skill's name can be invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkillNameFault {
    /// It has an upper-case letter.
    #[error("has an upper-case letter; expected lower-case letters, digits and `-`")]
    UpperCase,
    /// It has another character.
    #[error("has an invalid character; expected lower-case letters, digits and `-`")]
    Character,
    #[error("is empty")]
    Empty,
    /// It starts or ends with a hyphen.
    #[error("starts or ends with `-`")]
    Edge,
    /// It has two hyphens in a row.
    #[error("has two `-` in a row")]
    Double,
    /// It would fill the prompt.
    #[error("is much too long")]
    TooLong,
}

/// Checks a name, except for its length.
///
/// # Errors
/// What is wrong with the name.
pub fn check_name(name: &str) -> Result<(), SkillNameError> {
    let refuse = |fault| Err(SkillNameError { name: name.to_owned(), fault });
    let is_wrong =
        |c: &char| !(*c == '-' || c.is_numeric() || c.is_alphabetic()) || c.to_lowercase().ne([*c]);
    match name.chars().find(is_wrong) {
        Some(c) if c.is_alphabetic() => refuse(SkillNameFault::UpperCase),
        Some(_) => refuse(SkillNameFault::Character),
        None if name.is_empty() => refuse(SkillNameFault::Empty),
        None if name.starts_with('-') || name.ends_with('-') => refuse(SkillNameFault::Edge),
        None if name.contains("--") => refuse(SkillNameFault::Double),
        // A name of several hundred letters is not a name, and would fill the prompt.
        None if name.chars().count() > 4 * MAX_NAME => refuse(SkillNameFault::TooLong),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
