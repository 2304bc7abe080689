//! From a file's values to rules. Every mistake has its place and says what would be right.

use std::path::Path;

use serde_json::Value;

use super::located::{LocatedValue, Shape};
use super::output::{ContentMatcher, FieldMatcher, OutputMatcher, StatusMatcher};
use super::rule::{ReminderRule, ReminderTarget};
use aye_pattern::{Matcher, Pattern, comparison_text};

/// Maximum bytes of a file; no hand-written file of rules is larger.
const MAX_FILE: u64 = 4 << 20;
/// The longest text of one reminder, in bytes: it is put before the model again and again.
const MAX_CONTENT: usize = 16 << 10;

/// The reason why reminder rules cannot be used. `at` is `file:line`, or the rule's position in the list if
/// there is no file.
#[derive(Debug, thiserror::Error)]
pub enum ReminderConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        file: String,
        #[source]
        source: std::io::Error,
    },
    /// The format is not known.
    #[error("unknown format `{format}` of reminder rules; expected json")]
    UnknownFormat { format: String },
    /// The file is not JSON, or a key is unknown, missing or of the wrong type.
    #[error("{at}: {message}")]
    Invalid {
        at: String,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// A tool pattern, a glob or a regular expression is malformed.
    #[error("{at}: {message}")]
    InvalidPattern {
        at: String,
        /// What is wrong with the pattern.
        message: String,
    },
    /// The target is unknown.
    #[error("{at}: unknown target `{target}`; expected one of {}", words(&ReminderTarget::WORDS))]
    InvalidTarget { at: String, target: String },
    /// The output condition is invalid.
    #[error("{at}: {message}")]
    InvalidOutput {
        at: String,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// The operation on a field is unknown.
    #[error("{at}: unknown operation `{op}`; expected one of {}", OPS.join(", "))]
    InvalidOp { at: String, op: String },
}

const OPS: [&str; 6] = ["glob", "exact", "regex", "not_glob", "not_exact", "not_regex"];

fn words<T>(known: &[(&'static str, T)]) -> String {
    known.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
}

type Read<T> = Result<T, ReminderConfigError>;

/// The file's name as it is shown, and its text.
pub(super) fn text_of(path: &Path) -> Read<(String, String)> {
    let file = path.display().to_string();
    let read = || {
        let about = std::fs::metadata(path)?;
        // Opening a pipe would wait for ever.
        if !about.is_file() {
            return Err(std::io::Error::other("it is not a plain file"));
        }
        if about.len() > MAX_FILE {
            return Err(std::io::Error::other("it is larger than 4 MiB"));
        }
        std::fs::read_to_string(path)
    };
    match read() {
        Ok(text) => Ok((file, text)),
        Err(source) => Err(ReminderConfigError::Read { file, source }),
    }
}

pub(super) fn parse(text: &str, file: &str) -> Read<LocatedValue> {
    LocatedValue::read(text)
        .map_err(|(line, message)| ReminderConfigError::Invalid { at: format!("{file}:{line}"), message })
}

/// The rules of an agent's section, or of data that has no file.
pub(super) fn section(value: &Value) -> Read<Vec<ReminderRule>> {
    rules(&LocatedValue::of(value), None)
}

/// The rules of a file.
pub(super) fn rules(root: &LocatedValue, file: Option<&str>) -> Read<Vec<ReminderRule>> {
    let mut reader = RuleReader { file, rule: None };
    let [list] = reader.fields(root, "the reminders", ["rules"])?;
    let Some(list) = list else { return Ok(Vec::new()) };
    let Shape::List(items) = &list.shape else {
        return Err(reader.invalid(list, "`rules` must be a list of rules"));
    };
    let mut rules = Vec::new();
    for (index, item) in items.iter().enumerate() {
        reader.rule = Some(index);
        rules.push(reader.rule(index, item)?);
    }
    Ok(rules)
}

struct RuleReader<'a> {
    file: Option<&'a str>,
    /// The rule that is being read.
    rule: Option<usize>,
}

impl RuleReader<'_> {
    fn at(&self, node: &LocatedValue) -> String {
        self.at_line(node.line)
    }

    fn at_line(&self, line: u64) -> String {
        match (self.file, self.rule) {
            (Some(file), _) => format!("{file}:{line}"),
            (None, Some(rule)) => format!("rules[{rule}]"),
            (None, None) => "reminder rules".to_owned(),
        }
    }

    fn invalid(&self, node: &LocatedValue, message: impl Into<String>) -> ReminderConfigError {
        ReminderConfigError::Invalid { at: self.at(node), message: message.into() }
    }

    fn output_error(&self, node: &LocatedValue, message: impl Into<String>) -> ReminderConfigError {
        ReminderConfigError::InvalidOutput { at: self.at(node), message: message.into() }
    }

    /// The values of these keys; any other key is refused.
    fn fields<'n, const N: usize>(
        &self,
        node: &'n LocatedValue,
        what: &str,
        keys: [&str; N],
    ) -> Read<[Option<&'n LocatedValue>; N]> {
        let Shape::Map(entries) = &node.shape else {
            return Err(
                self.invalid(node, format!("{what} must be an object with the keys {}", keys.join(", ")))
            );
        };
        let mut found = [None; N];
        for (key, line, value) in entries {
            let Some(place) = keys.iter().position(|known| known == key) else {
                return Err(ReminderConfigError::Invalid {
                    at: self.at_line(*line),
                    message: format!("{what} has no key `{key}`; its keys are {}", keys.join(", ")),
                });
            };
            found[place] = Some(value);
        }
        Ok(found)
    }

    fn needed<'n>(
        &self,
        node: &LocatedValue,
        field: Option<&'n LocatedValue>,
        what: &str,
    ) -> Read<&'n LocatedValue> {
        field.ok_or_else(|| self.invalid(node, format!("{what} is missing")))
    }

    fn text<'n>(&self, node: &'n LocatedValue, what: &str) -> Read<&'n str> {
        match &node.shape {
            Shape::Text(text) if !text.trim().is_empty() => Ok(text),
            Shape::Text(_) => Err(self.invalid(node, format!("{what} is empty"))),
            Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::List(_) | Shape::Map(_) => {
                Err(self.invalid(node, format!("{what} must be a string")))
            }
        }
    }

    fn rule(&self, index: usize, node: &LocatedValue) -> Read<ReminderRule> {
        let [name, tool, output, message] =
            self.fields(node, "a rule", ["name", "tool", "output", "message"])?;
        let tool_node = self.needed(node, tool, "the rule's `tool`, a tool pattern such as `Edit`,")?;
        let tool = self.text(tool_node, "`tool`")?;
        let pattern = Pattern::parse(tool).map_err(|error| ReminderConfigError::InvalidPattern {
            at: self.at(tool_node),
            message: error.to_string(),
        })?;
        let given = name.map(|name| self.text(name, "`name`")).transpose()?;
        let output = output.map_or_else(|| Ok(OutputMatcher::default()), |output| self.output(output))?;
        let message = self.needed(node, message, "the rule's `message`, {target, content},")?;
        let [target, content, cooldown] =
            self.fields(message, "`message`", ["target", "content", "cooldown_turns"])?;
        let target_node = self.needed(message, target, "the message's `target`")?;
        let word = self.text(target_node, "`target`")?;
        let target = word_of(word, &ReminderTarget::WORDS).ok_or_else(|| {
            ReminderConfigError::InvalidTarget { at: self.at(target_node), target: word.to_owned() }
        })?;
        let content_node = self.needed(message, content, "the message's `content`")?;
        let content = self.text(content_node, "`content`")?;
        if content.len() > MAX_CONTENT {
            return Err(self.invalid(content_node, "`content` is longer than 16 KiB"));
        }
        let cooldown_turns = cooldown.map_or(Ok(0), |node| self.count(node))?;
        Ok(ReminderRule {
            name: given.map_or_else(|| format!("rule-{index}-{tool}"), str::to_owned),
            is_named: given.is_some(),
            pattern,
            output,
            target,
            content: content.to_owned(),
            cooldown_turns,
            line: self.file.map(|_| node.line),
        })
    }

    fn count(&self, node: &LocatedValue) -> Read<u32> {
        let number = match &node.shape {
            Shape::Number(number) => number.as_u64().and_then(|n| u32::try_from(n).ok()),
            Shape::Null | Shape::Bool(_) | Shape::Text(_) | Shape::List(_) | Shape::Map(_) => None,
        };
        number.ok_or_else(|| self.invalid(node, "`cooldown_turns` must be a number of steps, 0 or more"))
    }

    fn output(&self, node: &LocatedValue) -> Read<OutputMatcher> {
        match &node.shape {
            Shape::Text(word) if word == "any" => Ok(OutputMatcher::default()),
            Shape::Text(word) => Err(self.output_error(
                node,
                format!(
                    "unknown output `{word}`; expected \"any\", or an object with `status` and `content`"
                ),
            )),
            Shape::Map(_) => {
                let [status, content] = self.fields(node, "`output`", ["status", "content"])?;
                Ok(OutputMatcher {
                    status: status.map_or(Ok(StatusMatcher::Any), |status| self.status(status))?,
                    content: content.map(|content| self.content(content)).transpose()?,
                })
            }
            Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::List(_) => {
                Err(self
                    .output_error(node, "`output` must be \"any\", or an object with `status` and `content`"))
            }
        }
    }

    fn status(&self, node: &LocatedValue) -> Read<StatusMatcher> {
        let known = words(&StatusMatcher::WORDS);
        let Shape::Text(word) = &node.shape else {
            return Err(self.output_error(node, format!("`status` must be one of {known}")));
        };
        word_of(word, &StatusMatcher::WORDS).ok_or_else(|| {
            self.output_error(node, format!("unknown status `{word}`; expected one of {known}"))
        })
    }

    fn content(&self, node: &LocatedValue) -> Read<ContentMatcher> {
        match &node.shape {
            Shape::Text(glob) => Ok(ContentMatcher::Text(self.glob(node, glob)?)),
            Shape::Map(_) => {
                let [fields] = self.fields(node, "`content`", ["fields"])?;
                let fields = self.needed(node, fields, "the content's `fields`")?;
                match &fields.shape {
                    Shape::List(list) if !list.is_empty() => {
                        let all = list.iter().map(|field| self.field(field)).collect::<Read<_>>()?;
                        Ok(ContentMatcher::Fields(all))
                    }
                    Shape::List(_)
                    | Shape::Null
                    | Shape::Bool(_)
                    | Shape::Number(_)
                    | Shape::Text(_)
                    | Shape::Map(_) => Err(self
                        .output_error(fields, "`fields` must be a list with at least one {path, op, value}")),
                }
            }
            Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::List(_) => {
                Err(self.output_error(node, "`content` must be a glob on the text, or {\"fields\": [...]}"))
            }
        }
    }

    fn field(&self, node: &LocatedValue) -> Read<FieldMatcher> {
        let [path, op, value] = self.fields(node, "a field", ["path", "op", "value"])?;
        let path_node = self.needed(node, path, "the field's `path`")?;
        let path: Vec<String> = self.text(path_node, "`path`")?.split('.').map(str::to_owned).collect();
        if path.iter().any(|name| name.is_empty() || name.contains(['[', ']', '*'])) {
            return Err(
                self.output_error(path_node, "`path` must be names separated by dots, such as `error.code`")
            );
        }
        let value_node = self.needed(node, value, "the field's `value`")?;
        let value = match &value_node.shape {
            Shape::Text(_) | Shape::Number(_) | Shape::Bool(_) | Shape::Null => {
                comparison_text(&value_node.value())
            }
            Shape::List(_) | Shape::Map(_) => {
                return Err(
                    self.output_error(value_node, "`value` must be a string, a number, true or false")
                );
            }
        };
        let word = op.map_or(Ok("glob"), |op| self.text(op, "`op`"))?;
        if !OPS.contains(&word) {
            let at = self.at(op.unwrap_or(node));
            return Err(ReminderConfigError::InvalidOp { at, op: word.to_owned() });
        }
        let (negated, kind) = word.strip_prefix("not_").map_or((false, word), |kind| (true, kind));
        let matcher = match kind {
            "exact" => Matcher::Exact(value),
            "regex" => Matcher::regex(&value).map_err(|error| self.broken(value_node, &error))?,
            _ => self.glob(value_node, &value)?,
        };
        Ok(FieldMatcher { path, negated, matcher })
    }

    fn glob(&self, node: &LocatedValue, text: &str) -> Read<Matcher> {
        Matcher::glob(text).map_err(|error| self.broken(node, &error))
    }

    fn broken(&self, node: &LocatedValue, error: &dyn std::fmt::Display) -> ReminderConfigError {
        ReminderConfigError::InvalidPattern { at: self.at(node), message: error.to_string() }
    }
}

fn word_of<T: Copy>(word: &str, known: &[(&str, T)]) -> Option<T> {
    known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}
