//! Settings of other agents in aye's terms: rules, MCP servers, hooks, commands, agents and instructions.
//!
//! Each of these modules reads the files of one agent and translates them; nothing here writes. What cannot be translated
//! without a change of meaning is left, with the reason. `changes` says which files become what.

mod changes;
mod claude;
mod codex;
mod cursor;
mod gemini;
mod hint;
mod opencode;

use std::fs;
use std::path::Path;

use clap::ValueEnum;
use serde_json::{Map, Value};

use crate::config::read_resolved;
use crate::plugins::permission::{Layer, RuleFormat, RuleSet, ToolPermissionBehavior as Behavior};

pub(crate) use changes::{ImportedFile, changes};
pub(crate) use hint::hint;

/// The maximum size of a file that is read.
const MAX_FILE: u64 = 1 << 20;
/// The maximum number of files that are read in a folder.
const MAX_FILES: usize = 200;

/// An agent whose settings can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ForeignAgent {
    /// Claude Code: `.claude/settings.json`, `~/.claude.json`
    Claude,
    /// Codex: `.codex/config.toml`, rules and prompts
    Codex,
    /// opencode: `opencode.json`, `.opencode/`
    Opencode,
    /// Gemini CLI: `.gemini/settings.json` and commands
    Gemini,
    /// Cursor: `.cursor/`
    Cursor,
}

impl ForeignAgent {
    /// The name of the agent.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::Codex => "Codex",
            Self::Opencode => "opencode",
            Self::Gemini => "Gemini CLI",
            Self::Cursor => "Cursor",
        }
    }

    /// Reads what an agent has at a place.
    pub(crate) fn read(self, place: &SourceFolder<'_>) -> Import {
        let mut import = Import::default();
        match self {
            Self::Claude => claude::read(place, &mut import),
            Self::Codex => codex::read(place, &mut import),
            Self::Opencode => opencode::read(place, &mut import),
            Self::Gemini => gemini::read(place, &mut import),
            Self::Cursor => cursor::read(place, &mut import),
        }
        import
    }
}

/// Whose settings are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportScope {
    /// The user's, below the home folder.
    User,
    Project,
}

/// Where settings are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceFolder<'a> {
    pub(crate) scope: ImportScope,
    /// The home folder or the project's.
    pub(crate) folder: &'a Path,
}

impl SourceFolder<'_> {
    fn is_user(&self) -> bool {
        self.scope == ImportScope::User
    }

    /// Reads a file; `None` if there is none. A project's file counts only if it lies in the project.
    fn text(&self, path: &str, import: &mut Import) -> Option<String> {
        let real = self.folder.join(path).canonicalize().ok()?;
        let is_inside = || self.folder.canonicalize().is_ok_and(|folder| real.starts_with(folder));
        if !self.is_user() && !is_inside() {
            import.cannot_read(path, "links out of the project");
            return None;
        }
        match read_resolved(&real, MAX_FILE) {
            Ok(text) => text,
            Err(why) => {
                import.cannot_read(path, &why.to_string());
                None
            }
        }
    }

    /// Reads an object of JSON, which may have comments.
    fn json(&self, path: &str, import: &mut Import) -> Option<Map<String, Value>> {
        let text = self.text(path, import)?;
        match serde_json::from_str(&without_comments(&text)) {
            Ok(Value::Object(object)) => Some(object),
            Ok(_) => {
                import.cannot_read(path, "is no JSON object");
                None
            }
            Err(error) => {
                import.cannot_read(path, &format!("is no JSON: {error}"));
                None
            }
        }
    }

    /// Reads a table of TOML as JSON.
    fn toml(&self, path: &str, import: &mut Import) -> Option<Map<String, Value>> {
        let text = self.text(path, import)?;
        match toml::from_str::<Map<String, Value>>(&text) {
            Ok(table) => Some(table),
            Err(error) => {
                import.cannot_read(path, &format!("is no TOML: {}", error.message()));
                None
            }
        }
    }

    /// Returns the files of a folder with this ending and their names without it, in order.
    fn files(&self, folder: &str, ending: &str) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.folder.join(folder)).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let file = entry.file_name().into_string().ok()?;
                let name = file.strip_suffix(ending)?.to_owned();
                (!name.is_empty() && !name.starts_with('.')).then(|| (name, format!("{folder}/{file}")))
            })
            .take(MAX_FILES)
            .collect();
        found.sort();
        found
    }

    fn has(&self, path: &str) -> bool {
        self.folder.join(path).exists()
    }
}

/// What an agent has, in aye's terms.
#[derive(Debug, Default)]
pub(crate) struct Import {
    pub(crate) rules: Vec<ImportedRule>,
    pub(crate) servers: Vec<(String, Map<String, Value>)>,
    pub(crate) hooks: Vec<ImportedHook>,
    /// New files below aye's folder: commands, agents, instructions.
    pub(crate) files: Vec<NewFile>,
    /// What aye reads where it is.
    pub(crate) in_place: Vec<String>,
    /// What is not imported.
    pub(crate) left: Vec<Left>,
    /// Files that cannot be read; they are also among what is left.
    pub(crate) unreadable: Vec<String>,
}

/// A rule in aye's grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImportedRule {
    pub(crate) pattern: String,
    pub(crate) behavior: Behavior,
}

/// A hook that means the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImportedHook {
    pub(crate) phase: &'static str,
    pub(crate) tool: Option<String>,
    pub(crate) command: String,
    /// In seconds.
    pub(crate) timeout: u64,
}

/// A file to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewFile {
    /// Its path below aye's folder.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Something that is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) what: String,
    pub(crate) why: String,
    /// The file that it is in.
    pub(crate) from: String,
}

/// Why something has no form here that means the same: the end of a sentence about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct NotImported(String);

impl From<&str> for NotImported {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl Import {
    /// Whether the agent has nothing here.
    pub(crate) fn is_empty(&self) -> bool {
        let Import { rules, servers, hooks, files, in_place, left, unreadable: _ } = self;
        rules.is_empty()
            && servers.is_empty()
            && hooks.is_empty()
            && files.is_empty()
            && in_place.is_empty()
            && left.is_empty()
    }

    /// Adds what another agent has. The first of a name counts.
    pub(crate) fn add(&mut self, other: Import) {
        for rule in other.rules {
            if !self.rules.contains(&rule) {
                self.rules.push(rule);
            }
        }
        self.servers.extend(other.servers);
        self.hooks.extend(other.hooks);
        self.files.extend(other.files);
    }

    fn leave(&mut self, what: &str, why: &str, from: &str) {
        self.left.push(Left { what: what.to_owned(), why: why.to_owned(), from: from.to_owned() });
    }

    /// Says that a file cannot be read: nothing in it is imported.
    fn cannot_read(&mut self, path: &str, why: &str) {
        self.leave(path, why, path);
        self.unreadable.push(path.to_owned());
    }

    /// Adds the rules that a foreign one became, or says why it became none.
    fn add_rule(
        &mut self,
        behavior: Behavior,
        foreign: &str,
        from: &str,
        translated: Result<Vec<String>, NotImported>,
    ) {
        let what = format!("{foreign} ({})", word(behavior));
        let patterns = match translated {
            Ok(patterns) => patterns,
            Err(why) => return self.leave(&what, &why.0, from),
        };
        for pattern in patterns {
            let rule = ImportedRule { pattern, behavior };
            match rule.check() {
                Ok(()) if self.rules.contains(&rule) => {}
                Ok(()) => self.rules.push(rule),
                Err(why) => self.leave(&what, &why.0, from),
            }
        }
    }

    /// Adds a file below a folder of aye's, named as the agent names it. A name in a file may be anything.
    fn add_file(&mut self, folder: &str, name: &str, text: String, from: &str) {
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            return self.leave(&format!("{folder}/{name}"), "its name is none for a file", from);
        }
        self.files.push(NewFile { path: format!("{folder}/{name}.md"), text });
    }

    fn add_server(&mut self, name: &str, server: Result<Map<String, Value>, NotImported>, from: &str) {
        match server {
            Ok(server) => self.servers.push((name.to_owned(), server)),
            Err(why) => self.leave(&format!("MCP server {name}"), &why.0, from),
        }
    }
}

impl ImportedRule {
    /// The rule as a line of `permissions.yaml`.
    pub(crate) fn line(&self) -> String {
        format!("{{tool: {}, behavior: {}}}", Value::from(self.pattern.as_str()), word(self.behavior))
    }

    /// Checks that the rule can be read.
    fn check(&self) -> Result<(), NotImported> {
        let text = format!("rules:\n  - {}\n", self.line());
        RuleSet::read(&text, RuleFormat::Yaml, Layer::User, "rule").map(drop).map_err(|error| {
            let why = error.to_string();
            why.strip_prefix("rule:2: ").unwrap_or(&why).into()
        })
    }
}

/// The word for a behaviour in `permissions.yaml`.
pub(crate) fn word(behavior: Behavior) -> &'static str {
    match behavior {
        Behavior::Allow => "allow",
        Behavior::Ask => "ask",
        Behavior::Deny => "deny",
    }
}

/// Returns the pattern for commands that begin with these words.
fn command_starting(words: &str) -> String {
    format!("Bash({} *)", words.trim())
}

/// Returns the texts of a list.
fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Copies the members of these names that mean the same to both programs.
fn members(of: &Map<String, Value>, names: &[(&str, &str)]) -> Map<String, Value> {
    let kept = names.iter().filter_map(|(theirs, ours)| Some(((*ours).to_owned(), of.get(*theirs)?.clone())));
    kept.filter(|(_, value)| !is_nothing(value)).collect()
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Reads a server in the form of `.mcp.json`, which most agents use.
fn common_server(server: &Value) -> Result<Map<String, Value>, NotImported> {
    let Some(server) = server.as_object() else { return Err("is no object".into()) };
    let is_off = server.get("disabled") == Some(&Value::Bool(true));
    if is_off || server.get("enabled") == Some(&Value::Bool(false)) {
        return Err("is turned off there".into());
    }
    if server.get("type").and_then(Value::as_str) == Some("sse") {
        return Err("the HTTP+SSE transport is not supported; use its streamable URL".into());
    }
    let names = ["command", "args", "env", "cwd", "headers"].map(|name| (name, name));
    let mut kept = members(server, &names);
    let url = server.get("httpUrl").or_else(|| server.get("url"));
    if let Some(url) = url.filter(|_| !kept.contains_key("command")) {
        kept.insert("url".to_owned(), url.clone());
        for of_program in ["args", "env", "cwd"] {
            kept.shift_remove(of_program);
        }
    } else if kept.get("command").is_some_and(Value::is_string) {
        kept.shift_remove("headers");
    } else {
        return Err("has neither a command nor a url".into());
    }
    Ok(kept)
}

/// Rewrites the texts of a server, such as to aye's form of variables.
fn rewritten(
    value: Value,
    rewrite: &dyn Fn(&str) -> Result<String, NotImported>,
) -> Result<Value, NotImported> {
    Ok(match value {
        Value::String(text) => rewrite(&text)?.into(),
        Value::Array(list) => {
            list.into_iter().map(|item| rewritten(item, rewrite)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::Object(map) => {
            let member = |(name, value)| Ok::<_, NotImported>((name, rewritten(value, rewrite)?));
            map.into_iter().map(member).collect::<Result<Map<_, _>, _>>()?.into()
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    })
}

/// Removes comments and commas before a closing bracket, which some agents allow in JSON.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                kept.push(c);
                while let Some(inner) = chars.next() {
                    kept.push(inner);
                    match inner {
                        '\\' => kept.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '/' if chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|c| *c != '\n') {
                    chars.next();
                }
            }
            '/' if chars.peek() == Some(&'*') => {
                chars.next();
                let mut last = ' ';
                for inner in chars.by_ref() {
                    if last == '*' && inner == '/' {
                        break;
                    }
                    last = inner;
                }
                kept.push(' ');
            }
            '}' | ']' => {
                let end = kept.trim_end().len();
                if kept[..end].ends_with(',') {
                    kept.truncate(end - 1);
                }
                kept.push(c);
            }
            _ => kept.push(c),
        }
    }
    kept
}

/// Splits a Markdown file with front matter into the lines of that and its text.
fn split_front(text: &str) -> (Vec<&str>, &str) {
    let Some(rest) = text.strip_prefix("---\n") else { return (Vec::new(), text) };
    let Some((front, body)) = rest.split_once("\n---\n") else { return (Vec::new(), text) };
    (front.lines().collect(), body)
}

/// The text of a command with a description.
fn command_text(description: Option<&str>, body: &str) -> String {
    let front = description.map(|text| format!("---\ndescription: {}\n---\n\n", Value::from(text)));
    format!("{}{}\n", front.unwrap_or_default(), body.trim())
}

#[cfg(test)]
mod tests;
