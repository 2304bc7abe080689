//! Reminder rules as data.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::located::LocatedValue;
use super::read::{self, ReminderConfigError};
use super::rule::ReminderRule;
use aye_core::contract::spec::PluginConfigKey;

/// Reminder rules: a file's content, or the section `reminder` of an agent's spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReminderRulesConfig {
    /// The rules; all that match fire, in this order.
    #[serde(default)]
    pub rules: Vec<ReminderRuleEntry>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReminderRuleEntry {
    /// The rule's name; `rule-{index}-{tool}` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The calls it is about, as a pattern.
    pub tool: String,
    /// The results it is about; any when nothing is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputEntry>,
    /// The message for the model.
    pub message: ReminderMessageEntry,
}

/// The conditions on a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OutputEntry {
    /// `any`.
    Word(String),
    /// Status and content; both must hold.
    Match(OutputMatchEntry),
}

/// Status and content of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputMatchEntry {
    /// `success`, `error`, `pending` or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The condition on the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentEntry>,
}

/// The condition on a result's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ContentEntry {
    /// A glob on the whole text that the model reads.
    Text(String),
    /// Fields of a structured result; all must hold.
    Fields(FieldsEntry),
}

/// Fields of a structured result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldsEntry {
    /// The fields.
    pub fields: Vec<FieldEntry>,
}

/// One field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldEntry {
    /// Names separated by dots. A missing field never matches.
    pub path: String,
    /// `glob` (when nothing is given), `exact`, `regex`, `not_glob`, `not_exact`, `not_regex`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The value that the field's text is compared with: a string, a number, true or false.
    pub value: Value,
}

/// The message for the model, where it is placed, and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReminderMessageEntry {
    /// `system`, `suffix_system`, `session` or `conversation`.
    pub target: String,
    /// The words.
    pub content: String,
    /// The number of steps after firing during which the rule does not fire again.
    #[serde(default)]
    pub cooldown_turns: u32,
}

pub struct ReminderConfigKey;

impl PluginConfigKey for ReminderConfigKey {
    const KEY: &'static str = "reminder";
    type Config = ReminderRulesConfig;
}

impl std::str::FromStr for ReminderRulesConfig {
    type Err = ReminderConfigError;

    fn from_str(text: &str) -> Result<Self, ReminderConfigError> {
        Self::from_str(text, None)
    }
}

impl ReminderRulesConfig {
    /// Reads a text; the format is `json`, also when none is given.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn from_str(text: &str, format: Option<&str>) -> Result<Self, ReminderConfigError> {
        if let Some(other) = format.filter(|format| !format.eq_ignore_ascii_case("json")) {
            return Err(ReminderConfigError::UnknownFormat { format: other.to_owned() });
        }
        let node = read::parse(text, "reminders")?;
        read::rules(&node, Some("reminders"))?;
        Self::of(&node, "reminders")
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, and what is wrong in it, with file and line.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ReminderConfigError> {
        let (file, text) = read::text_of(path.as_ref())?;
        let node = read::parse(&text, &file)?;
        read::rules(&node, Some(&file))?;
        Self::of(&node, &file)
    }

    /// Converts parsed rules to the typed configuration.
    fn of(node: &LocatedValue, file: &str) -> Result<Self, ReminderConfigError> {
        serde_json::from_value(node.value()).map_err(|error| ReminderConfigError::Invalid {
            at: format!("{file}:{}", node.line),
            message: error.to_string(),
        })
    }

    /// The rules, ready to fire.
    ///
    /// # Errors
    /// The first rule that can never work.
    pub fn into_rules(self) -> Result<Vec<ReminderRule>, ReminderConfigError> {
        let value = serde_json::to_value(&self).unwrap_or_default();
        read::section(&value)
    }
}

/// Reads a file of rules, each with its line number.
///
/// # Errors
/// As [`ReminderRulesConfig::from_file`].
pub fn load_rules(path: &Path) -> Result<Vec<ReminderRule>, ReminderConfigError> {
    let (file, text) = read::text_of(path)?;
    read::rules(&read::parse(&text, &file)?, Some(&file))
}
