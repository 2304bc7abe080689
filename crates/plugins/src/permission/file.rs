//! Rules in files: YAML and JSON, every mistake refused with its file and line.

use super::evaluate::{CallRequest, SCRIPT_TOOL, SHELL_TOOL, VerdictKind, evaluate, known_primary};
use super::names::check_name;
use super::reachable::check_reach;
use super::rules::{InvalidRule, Layer, Rule, RuleSet, RuleSource, ToolPermissionBehavior};
use aye_core::contract::judgement::Profile;
use aye_core::contract::terms::{Expiry, Notify};
use aye_files::front_matter::yaml_error;
use aye_pattern::Pattern;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serde_saphyr::Spanned;
use std::fmt;
use std::path::Path;

/// The format of a rules file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleFormat {
    Yaml,
    Json,
}

impl RuleFormat {
    /// By the file's name: `.json` is JSON, everything else YAML.
    pub fn of(path: &Path) -> RuleFormat {
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        if is_json { RuleFormat::Json } else { RuleFormat::Yaml }
    }
}

/// Why a file of rules was refused.
#[derive(Debug, thiserror::Error)]
pub enum RulesFileError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        file: String,
        #[source]
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}:{line}: {message}")]
    Invalid {
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The problem and what was expected instead.
        message: String,
    },
}

/// Rules as data: a file's content, or the section `permission` of an agent's spec.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PermissionRulesConfig {
    /// The behaviour for calls that no rule matches; ask if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_behavior: Option<ToolPermissionBehavior>,
    /// The rules.
    #[serde(default)]
    pub rules: Vec<PermissionRuleEntry>,
}

/// One rule as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PermissionRuleEntry {
    /// The pattern.
    pub tool: String,
    /// The rule's behaviour.
    pub behavior: ToolPermissionBehavior,
    /// Calls that the pattern must match, checked when the rules are loaded.
    #[serde(
        default,
        rename = "match",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_many"
    )]
    #[schemars(with = "Value")]
    pub matches: Vec<Value>,
    /// Calls that it must not match.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    #[schemars(with = "Value")]
    pub not_match: Vec<Value>,
    /// When a question of this rule ends unanswered, such as `30m`; only for rules that ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Value>,
    /// The notifications about a pending question of this rule: `bell`, `desktop`,
    /// `{command: [program, argument]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Value>,
    /// The profile that the kernel enforces on a command: `read`, `workspace` or `outside`; only for rules
    /// about Bash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub sandbox: Option<Profile>,
    /// Names of variables that a command gets beside those that every command gets, such as `DATABASE_URL` or `APP_*`;
    /// only for the user's own rules about Bash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
}

/// As in the file, with places.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    default_behavior: Option<ToolPermissionBehavior>,
    #[serde(default)]
    rules: Option<Vec<RawRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    tool: Spanned<Name>,
    behavior: ToolPermissionBehavior,
    #[serde(default, rename = "match", deserialize_with = "one_or_many")]
    matches: Vec<Value>,
    #[serde(default, deserialize_with = "one_or_many")]
    not_match: Vec<Value>,
    #[serde(default)]
    expires_in: Option<Spanned<Value>>,
    #[serde(default)]
    notify: Option<Spanned<Value>>,
    #[serde(default)]
    sandbox: Option<Spanned<Profile>>,
    #[serde(default)]
    env: Option<Spanned<Vec<String>>>,
}

/// A text, and nothing that YAML reads as something else: `no`, `123` and `null` are no names.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool pattern as a string (put quotes around it)")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Name, E> {
                Ok(Name(text.to_owned()))
            }
        }
        deserializer.deserialize_any(NameVisitor)
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(all) => all,
        Value::Null => Vec::new(),
        one => vec![one],
    })
}

impl PermissionRulesConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or anything in it is wrong.
    pub fn from_file(path: impl AsRef<Path>) -> Result<PermissionRulesConfig, RulesFileError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| RulesFileError::Read { file: file.clone(), source })?;
        let raw = read(&text, RuleFormat::of(path), &file)?;
        let rules = raw.rules.unwrap_or_default().into_iter().map(|rule| PermissionRuleEntry {
            tool: rule.tool.value.0,
            behavior: rule.behavior,
            matches: rule.matches,
            not_match: rule.not_match,
            expires_in: rule.expires_in.map(|value| value.value),
            notify: rule.notify.map(|value| value.value),
            sandbox: rule.sandbox.map(|value| value.value),
            env: rule.env.map(|value| value.value).unwrap_or_default(),
        });
        Ok(PermissionRulesConfig { default_behavior: raw.default_behavior, rules: rules.collect() })
    }

    /// The rules, as rules of the run.
    ///
    /// # Errors
    /// When a pattern is broken or an example fails; the line is the rule's number.
    pub fn into_ruleset(self) -> Result<RuleSet, RulesFileError> {
        let mut set = RuleSet::new();
        if let Some(default) = self.default_behavior {
            set.set_default(default);
        }
        for (index, entry) in self.rules.into_iter().enumerate() {
            let rule =
                entry.into_rule(RuleSource::of(Layer::Run)).map_err(|why| RulesFileError::Invalid {
                    file: "permission rules, rule".into(),
                    line: index as u64 + 1,
                    message: why.0,
                })?;
            set.push(rule);
        }
        Ok(set)
    }
}

impl PermissionRuleEntry {
    fn into_rule(self, origin: RuleSource) -> Result<Rule, InvalidRule> {
        let mut rule = build(&self.tool, self.behavior, &self.matches, &self.not_match, origin)?;
        rule.terms.expires_in = self.expires_in.map(|value| expiry_of(&value, &rule)).transpose()?;
        rule.terms.notify = self.notify.map(|value| notify_of(&value, &rule)).transpose()?;
        rule.sandbox = self.sandbox.map(|profile| sandbox_of(profile, &rule)).transpose()?;
        rule.env = env_of(self.env, &rule)?;
        Ok(rule)
    }
}

impl RuleSet {
    /// Reads rules that another file contains, each with its line.
    ///
    /// # Errors
    /// When an entry is no rule, a pattern is broken or an example fails.
    pub fn from_entries<'a>(
        entries: impl Iterator<Item = (&'a Value, u64)>,
        layer: Layer,
        file: &str,
    ) -> Result<RuleSet, RulesFileError> {
        let mut set = RuleSet::new();
        for (entry, line) in entries {
            let origin = RuleSource { layer, file: Some(file.to_owned()), line: Some(line), grant: None };
            let invalid = |message| RulesFileError::Invalid { file: file.to_owned(), line, message };
            let entry =
                PermissionRuleEntry::deserialize(entry).map_err(|error| invalid(error.to_string()))?;
            set.push(entry.into_rule(origin).map_err(|why| invalid(why.0))?);
        }
        Ok(set)
    }

    /// Reads a file's text as rules of a layer. `file` is the name that errors and verdicts show.
    ///
    /// # Errors
    /// When anything in it is wrong: unknown or doubled keys, a broken pattern, a failing example.
    pub fn read(text: &str, format: RuleFormat, layer: Layer, file: &str) -> Result<RuleSet, RulesFileError> {
        let raw = read(text, format, file)?;
        let mut set = RuleSet::new();
        if let Some(default) = raw.default_behavior {
            set.set_default(default);
        }
        for rule in raw.rules.unwrap_or_default() {
            let line = rule.tool.referenced.line();
            let origin = RuleSource { layer, file: Some(file.to_owned()), line: Some(line), grant: None };
            let invalid = |line, why: InvalidRule| RulesFileError::Invalid {
                file: file.to_owned(),
                line,
                message: why.0,
            };
            let mut made = build(&rule.tool.value.0, rule.behavior, &rule.matches, &rule.not_match, origin)
                .map_err(|why| invalid(line, why))?;
            if let Some(value) = rule.expires_in {
                let expiry = expiry_of(&value.value, &made);
                let line = value.referenced.line();
                made.terms.expires_in = Some(expiry.map_err(|why| invalid(line, why))?);
            }
            if let Some(value) = rule.notify {
                let notify = notify_of(&value.value, &made);
                let line = value.referenced.line();
                made.terms.notify = Some(notify.map_err(|why| invalid(line, why))?);
            }
            if let Some(value) = rule.sandbox {
                let profile = sandbox_of(value.value, &made);
                let line = value.referenced.line();
                made.sandbox = Some(profile.map_err(|why| invalid(line, why))?);
            }
            if let Some(value) = rule.env {
                let line = value.referenced.line();
                made.env = env_of(value.value, &made).map_err(|why| invalid(line, why))?;
            }
            set.push(made);
        }
        Ok(set)
    }

    /// Reads a file of rules from disk.
    ///
    /// # Errors
    /// As [`RuleSet::read`], and when the file cannot be read.
    pub fn load(path: &Path, layer: Layer) -> Result<RuleSet, RulesFileError> {
        let file = path.display().to_string();
        let text = read_plain(path).map_err(|source| RulesFileError::Read { file: file.clone(), source })?;
        RuleSet::read(&text, RuleFormat::of(path), layer, &file)
    }
}

/// Maximum bytes of a rules file; a file written by a user is never larger.
const MAX_FILE: u64 = 4 << 20;

/// Reads a plain file. Opening a pipe would block forever, so the type of the file is checked first.
fn read_plain(path: &Path) -> std::io::Result<String> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(std::io::Error::other("it is not a plain file"));
    }
    if about.len() > MAX_FILE {
        return Err(std::io::Error::other("it is larger than 4 MiB"));
    }
    std::fs::read_to_string(path)
}

fn read(text: &str, format: RuleFormat, file: &str) -> Result<RawFile, RulesFileError> {
    let invalid =
        |line: u64, message: String| RulesFileError::Invalid { file: file.to_owned(), line, message };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if format == RuleFormat::Json && !text.trim().is_empty() {
        // The YAML reader is more lenient than JSON; strictness first, places from the other.
        serde_json::from_str::<de::IgnoredAny>(text).map_err(|error| {
            invalid(error.line() as u64, format!("not JSON (column {}): {error}", error.column()))
        })?;
    }
    let is_empty = text.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---"
    });
    if is_empty {
        return Ok(RawFile { default_behavior: None, rules: None });
    }
    // Not strict about booleans on purpose: a bare `no` must be refused as a name, not taken for one.
    let options = serde_saphyr::options! { reject_unsupported_tags: true };
    serde_saphyr::from_str_with_options::<RawFile>(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        invalid(line, yaml_error(&error))
    })
}

fn build(
    tool: &str,
    behavior: ToolPermissionBehavior,
    matches: &[Value],
    not_match: &[Value],
    origin: RuleSource,
) -> Result<Rule, InvalidRule> {
    let pattern = Pattern::parse(tool).map_err(|error| InvalidRule(error.to_string()))?;
    check_name(&pattern, behavior)?;
    check_reach(&pattern, behavior)?;
    let rule = Rule::new(pattern, behavior, origin);
    for example in matches {
        if !example_holds(&rule, example)? {
            return Err(InvalidRule(format!("rule `{tool}` does not match its example {}", shown(example))));
        }
    }
    for example in not_match {
        if example_holds(&rule, example)? {
            return Err(InvalidRule(format!(
                "rule `{tool}` matches {}, which is listed under not_match",
                shown(example)
            )));
        }
    }
    Ok(rule)
}

/// The `expires_in` of a rule.
fn expiry_of(value: &Value, rule: &Rule) -> Result<Expiry, InvalidRule> {
    if rule.behavior != ToolPermissionBehavior::Ask {
        return Err(InvalidRule(format!(
            "`expires_in` is for rules that ask; rule `{}` is {}",
            rule.pattern, rule.behavior
        )));
    }
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse().map_err(|wanted| InvalidRule(format!("`expires_in` must be {wanted}")))
}

/// Reads the `notify` of a rule. Programs named by a project's file must not be started.
fn notify_of(value: &Value, rule: &Rule) -> Result<Vec<Notify>, InvalidRule> {
    if rule.behavior != ToolPermissionBehavior::Ask {
        return Err(InvalidRule(format!(
            "`notify` is for rules that ask; rule `{}` is {}",
            rule.pattern, rule.behavior
        )));
    }
    let list = Notify::read_all(value).map_err(|wanted| InvalidRule(format!("`notify` must be {wanted}")))?;
    let own = list.iter().find_map(|notify| match notify {
        Notify::Command(_) => Some("a `command` to start"),
        Notify::Webhook(_) => Some("a `webhook` to send to"),
        Notify::Bell | Notify::Desktop => None,
    });
    if let Some(own) = own.filter(|_| rule.origin.layer == Layer::Project) {
        return Err(InvalidRule(format!(
            "a project's rules cannot name {own}; put it into your own permissions.yaml, or under questions.notify \
             in your own config.toml"
        )));
    }
    Ok(list)
}

/// Refuses a member of a rule that says how programs run.
fn must_run_programs(member: &str, rule: &Rule) -> Result<(), InvalidRule> {
    let is_about_programs = [SHELL_TOOL, SCRIPT_TOOL].iter().any(|tool| rule.pattern.matches_tool(tool));
    if is_about_programs && rule.behavior != ToolPermissionBehavior::Deny {
        return Ok(());
    }
    Err(InvalidRule(format!(
        "`{member}` is for rules that allow {SHELL_TOOL} or {SCRIPT_TOOL}, or ask about them; rule `{}` is not one",
        rule.pattern
    )))
}

/// The `env` of a rule. A repository must not choose which of the user's variables its own commands get.
fn env_of(names: Vec<String>, rule: &Rule) -> Result<Vec<String>, InvalidRule> {
    if names.is_empty() {
        return Ok(names);
    }
    must_run_programs("env", rule)?;
    if rule.origin.layer == Layer::Project {
        return Err(
            "a project's rules cannot name variables in `env`; put the rule into your own permissions.yaml"
                .into(),
        );
    }
    let is_name = |text: &String| {
        let start = text.strip_suffix('*').unwrap_or(text);
        start.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
            && start.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(other) => Err(InvalidRule(format!(
            "`env` contains \"{}\"; expected names of variables such as [DATABASE_URL, APP_*]",
            other.escape_debug()
        ))),
        None => Ok(names),
    }
}

/// The `sandbox` of a rule. A repository must not open the sandbox that keeps its own commands.
fn sandbox_of(profile: Profile, rule: &Rule) -> Result<Profile, InvalidRule> {
    must_run_programs("sandbox", rule)?;
    if rule.origin.layer == Layer::Project && profile == Profile::Outside {
        return Err(
            "a project's rules cannot say `sandbox: outside`; put the rule into your own permissions.yaml"
                .into(),
        );
    }
    Ok(profile)
}

fn shown(example: &Value) -> String {
    match example {
        Value::String(text) => format!("`{text}`"),
        other => other.to_string(),
    }
}

/// Judges an example by this rule alone. An example is the text of the primary argument, or an object of arguments;
/// for a pattern that names no single tool it is a tool's name, or `{tool, args}`.
fn example_holds(rule: &Rule, example: &Value) -> Result<bool, InvalidRule> {
    let name = rule.pattern.to_string();
    let name = name.split('(').next().unwrap_or_default().to_owned();
    let is_single = !name.starts_with('/') && !aye_pattern::is_glob(&name);
    let full = example
        .as_object()
        .filter(|map| map.contains_key("tool") && map.keys().all(|k| k == "tool" || k == "args"));
    let (tool, args) = match (full, example) {
        (Some(map), _) => {
            let tool =
                map.get("tool").and_then(Value::as_str).ok_or("the `tool` of an example must be a string")?;
            (tool.to_owned(), map.get("args").cloned().unwrap_or_else(|| json!({})))
        }
        (None, Value::Object(_)) if is_single => (name, example.clone()),
        (None, Value::String(text)) if is_single => {
            let key = known_primary(&name).unwrap_or("value");
            (name, json!({ key: text }))
        }
        (None, Value::String(text)) => (text.clone(), json!({})),
        _ => {
            return Err(InvalidRule(format!(
                "the example {example} must be a string, or an object of arguments"
            )));
        }
    };
    let mut alone = RuleSet::new();
    alone.push(rule.clone());
    // A default that is not the rule's behaviour, so that only the rule can lead to it.
    let (default, wanted): (_, fn(VerdictKind) -> bool) = match rule.behavior {
        ToolPermissionBehavior::Allow => (ToolPermissionBehavior::Ask, |d| d == VerdictKind::Allow),
        ToolPermissionBehavior::Ask => (ToolPermissionBehavior::Allow, |d| matches!(d, VerdictKind::Ask(_))),
        ToolPermissionBehavior::Deny => (ToolPermissionBehavior::Allow, |d| d == VerdictKind::Deny),
    };
    alone.set_default(default);
    let question = CallRequest {
        tool: &tool,
        args: &args,
        cwd: Path::new("/workspace"),
        workspace: Path::new("/workspace"),
        home: Some(Path::new("/home/user")),
        primary: None,
    };
    // A tool without a known primary argument is matched by its name and its only text.
    Ok(wanted(evaluate(&alone, &question).decision))
}
