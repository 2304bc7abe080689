//! Which files an import changes, and how. Nothing is replaced: rules, servers and hooks are added at the end of what is
//! there, and a file that exists stays as it is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Import, ImportScope, ImportedHook, ImportedRule, Left, NewFile};
use crate::config::{SERVERS_FILE, read_private, with_server};
use crate::failure::AppError;
use crate::plugins::hooks::{HookLayer, HookSpec, parse, phase_name};
use crate::plugins::permission::{Layer, RuleFormat, RuleSet};

const MAX_FILE: u64 = 1 << 20;

/// A file with its text before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImportedFile {
    pub(crate) path: PathBuf,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// Returns what becomes of the files below aye's folder: the user's configuration folder, or a project's. What is there
/// already is left out; what contradicts it is left, with the reason.
pub(crate) fn changes(
    import: &Import,
    scope: ImportScope,
    folder: &Path,
) -> Result<(Vec<ImportedFile>, Vec<Left>), AppError> {
    let mut made = Made { scope, folder, files: BTreeMap::new(), left: Vec::new() };
    let own = match scope {
        ImportScope::User => folder.to_path_buf(),
        ImportScope::Project => folder.join(".aye"),
    };
    made.rules(&own.join("permissions.yaml"), &import.rules)?;
    made.hooks(&own.join("hooks.toml"), &import.hooks)?;
    for (name, server) in &import.servers {
        made.server(name, server)?;
    }
    for file in &import.files {
        // A project's own instructions lie beside its folder of settings.
        made.file(&own.join(&file.path), file)?;
    }
    let changed = made.files.into_iter().filter(|(_, (before, after))| before != after);
    let changes = changed.map(|(path, (before, after))| ImportedFile { path, before, after }).collect();
    Ok((changes, made.left))
}

struct Made<'a> {
    scope: ImportScope,
    folder: &'a Path,
    /// Texts before and after.
    files: BTreeMap<PathBuf, (String, String)>,
    left: Vec<Left>,
}

impl Made<'_> {
    fn read(&mut self, path: &Path) -> Result<&mut String, AppError> {
        if !self.files.contains_key(path) {
            let text = read_private(path, MAX_FILE);
            let text = text.map_err(|why| format!("{} {why}", path.display()))?;
            let text = text.unwrap_or_default();
            self.files.insert(path.to_path_buf(), (text.clone(), text));
        }
        Ok(&mut self.files.get_mut(path).expect("inserted above").1)
    }

    fn leave(&mut self, what: String, why: &str, path: &Path) {
        self.left.push(Left { what, why: why.to_owned(), from: path.display().to_string() });
    }

    fn rules(&mut self, path: &Path, rules: &[ImportedRule]) -> Result<(), AppError> {
        if rules.is_empty() {
            return Ok(());
        }
        let layer = if self.scope == ImportScope::User { Layer::User } else { Layer::Project };
        let name = path.display().to_string();
        let text = self.read(path)?;
        let known = |text: &str| {
            let set =
                RuleSet::read(text, RuleFormat::Yaml, layer, &name).map_err(|error| error.to_string())?;
            let each = set.rules().iter().map(|rule| (rule.pattern.to_string(), rule.behavior));
            Ok::<Vec<_>, String>(each.collect())
        };
        let before = if text.trim().is_empty() { Vec::new() } else { known(text)? };
        let is_new = |rule: &&ImportedRule| {
            let pattern = aye_pattern::Pattern::parse(&rule.pattern);
            pattern.is_err()
                || pattern.is_ok_and(|pattern| !before.contains(&(pattern.to_string(), rule.behavior)))
        };
        let lines: Vec<String> = rules.iter().filter(is_new).map(ImportedRule::line).collect();
        if lines.is_empty() {
            return Ok(());
        }
        let after = with_rules(text, &lines);
        if !known(&after).is_ok_and(|all| all.len() == before.len() + lines.len()) {
            return Err(by_hand(path).into());
        }
        *text = after;
        Ok(())
    }

    fn hooks(&mut self, path: &Path, hooks: &[ImportedHook]) -> Result<(), AppError> {
        if hooks.is_empty() {
            return Ok(());
        }
        let (layer, folder) = match self.scope {
            ImportScope::User => (HookLayer::User, None),
            ImportScope::Project => (HookLayer::Project, Some(self.folder.to_path_buf())),
        };
        let text = self.read(path)?;
        let read =
            |text: &str| parse(path, text, layer, folder.as_deref()).map_err(|error| error.to_string());
        let before = read(text)?;
        let mut after = text.clone();
        let mut count = before.len();
        for hook in hooks {
            let command = ["sh".to_owned(), "-c".to_owned(), hook.command.clone()];
            let is_same = |other: &HookSpec| {
                phase_name(other.phase) == hook.phase
                    && other.command == command
                    && other.tool.as_ref().map(ToString::to_string) == hook.tool
            };
            if before.iter().any(is_same) {
                continue;
            }
            count += 1;
            let mut name = format!("imported-{count}");
            while before.iter().any(|other| other.name == name) {
                name.push('x');
            }
            let text = |text: &str| toml::Value::from(text);
            let gap = if after.is_empty() || after.ends_with("\n\n") { "" } else { "\n" };
            let _ = write!(after, "{gap}[[hooks]]\nname = {}\nphase = {}\n", text(&name), text(hook.phase));
            if let Some(tool) = &hook.tool {
                let _ = writeln!(after, "tool = {}", text(tool));
            }
            let command = toml::Value::from(command.map(toml::Value::from).to_vec());
            let _ =
                writeln!(after, "command = {command}\ntimeout = \"{}s\"\nplain_output = true", hook.timeout);
        }
        read(&after)?;
        *text = after;
        Ok(())
    }

    fn server(&mut self, name: &str, server: &Map<String, Value>) -> Result<(), AppError> {
        let there = "another server of this name is configured";
        match self.scope {
            ImportScope::User => {
                let path = self.folder.join("config.toml");
                let text = self.read(&path)?;
                let table: toml::Table = text
                    .parse()
                    .map_err(|error: toml::de::Error| format!("{}: {}", path.display(), error.message()))?;
                let known = table.get("mcp_servers").and_then(|servers| servers.get(name));
                match known {
                    None => {
                        *text = with_server(text, name, server, &path).map_err(|error| error.to_string())?;
                    }
                    Some(known) if Some(known) == toml::Value::try_from(server).ok().as_ref() => {}
                    Some(_) => self.leave(format!("MCP server {name}"), there, &path),
                }
            }
            ImportScope::Project => {
                let path = self.folder.join(SERVERS_FILE);
                let text = self.read(&path)?;
                let mut root: Map<String, Value> = match text.trim() {
                    "" => Map::new(),
                    text => {
                        serde_json::from_str(text).map_err(|error| format!("{}: {error}", path.display()))?
                    }
                };
                let servers = root.entry("mcpServers").or_insert_with(|| json!({}));
                let servers = servers.as_object_mut().ok_or_else(|| by_hand(&path))?;
                let server = in_json(server);
                match servers.get(name) {
                    None => {
                        servers.insert(name.to_owned(), Value::Object(server));
                        *text =
                            serde_json::to_string_pretty(&root).map_err(|error| error.to_string())? + "\n";
                    }
                    Some(Value::Object(known)) if is_same_server(known, &server) => {}
                    Some(_) => self.leave(format!("MCP server {name}"), there, &path),
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, file: &NewFile) -> Result<(), AppError> {
        let text = self.read(path)?;
        if text.is_empty() {
            file.text.clone_into(text);
        } else if *text != file.text {
            self.leave(file.path.clone(), "exists already with another text", path);
        }
        Ok(())
    }
}

fn by_hand(path: &Path) -> String {
    format!("{} has a layout that aye cannot add to; edit it by hand", path.display())
}

/// A server in the words of `.mcp.json`.
fn in_json(server: &Map<String, Value>) -> Map<String, Value> {
    let name = |name: &str| match name {
        "enabled_tools" => "enabledTools".to_owned(),
        "disabled_tools" => "disabledTools".to_owned(),
        other => other.to_owned(),
    };
    let is_remote = server.contains_key("url");
    let kind = is_remote.then(|| ("type".to_owned(), json!("http")));
    kind.into_iter().chain(server.iter().map(|(key, value)| (name(key), value.clone()))).collect()
}

fn is_same_server(known: &Map<String, Value>, server: &Map<String, Value>) -> bool {
    let of = |map: &Map<String, Value>| {
        let plain = map.iter().filter(|(key, value)| key.as_str() != "type" && !super::is_nothing(value));
        plain.map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    of(known) == of(server)
}

/// Returns the text of a file of rules with lines added to its list.
fn with_rules(text: &str, lines: &[String]) -> String {
    let added =
        |indent: &str| lines.iter().fold(String::new(), |all, line| format!("{all}{indent}- {line}\n"));
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    let is_key = |line: &str| line.trim_end() == "rules:" || line.trim_end() == "rules: []";
    let Some(key) = all.iter().position(|line| is_key(line)) else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return format!("{text}{gap}rules:\n{}", added("  "));
    };
    let is_of_list = |line: &&str| line.trim().is_empty() || line.starts_with([' ', '-', '#', '\t']);
    let block = &all[key + 1..];
    let end = block.iter().position(|line| !is_of_list(line)).unwrap_or(block.len());
    let items = block[..end].iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    let first = block[..items].iter().find(|line| line.trim_start().starts_with('-'));
    let indent = first.map_or("  ", |line| &line[..line.len() - line.trim_start().len()]);
    let mut before = all[..key].concat() + "rules:\n" + &block[..items].concat();
    if !before.ends_with('\n') {
        before.push('\n');
    }
    before + &added(indent) + &block[items..].concat()
}
