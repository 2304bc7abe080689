//! Joins the layers of settings: defaults < user < project < environment < flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::env::Env;
use super::layer::{Key, LayerEntry, Origin, Problem, SettingsLayer, Value, parse_duration};
use super::paths::read_private;
use super::redact::redacted;
use super::schema::{self, ProjectMay, ValueKind};
use super::settings::Settings;

/// A settings file that is larger than this is not one.
const MAX_FILE: u64 = 1 << 20;

/// Variables that set a key.
pub const ENV_KEYS: [(&str, &str); 7] = [
    ("AYE_MODEL", "model"),
    ("AYE_EFFORT", "effort"),
    ("AYE_PERMISSION_MODE", "permission_mode"),
    ("AYE_MAX_TURNS", "max_turns"),
    ("AYE_TOOL_EXECUTION", "tool_execution"),
    ("AYE_THEME", "theme"),
    ("AYE_SCREEN", "screen"),
];

/// The last layer: what the command line says.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    layer: SettingsLayer,
}

impl Flags {
    /// Adds `KEY=VALUE` as given to `--config`.
    pub fn config(&mut self, assignment: &str) -> &mut Self {
        self.layer.add_assignment(assignment);
        self
    }

    /// Adds a flag for one key, such as `--model`; the flag overrides `--config` if it is added later.
    pub fn set(&mut self, flag: &str, key: &str, value: &str) -> &mut Self {
        self.layer.add(Key::of(key), value, Origin::Flag(flag.to_owned()));
        self
    }
}

/// The sources of the layers.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    /// The user's file; it may be missing.
    pub user: &'a Path,
    /// The project's files, the repository's root first; they may be missing.
    pub project: &'a [PathBuf],
    /// Whether the user trusts the opened folder.
    pub is_trusted: bool,
    /// Variables.
    pub env: &'a Env,
    /// The command line.
    pub flags: &'a Flags,
}

/// Settings, where each came from, and what was ignored on the way.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The effective settings.
    pub settings: Settings,
    /// The origin of each value.
    pub provenance: Provenance,
    /// One line each for the status line or stderr.
    pub warnings: Vec<Problem>,
}

/// All problems of all layers that refuse a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// One line of `aye config show`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProvenanceRow {
    /// The dotted key.
    pub key: String,
    /// The value as TOML.
    pub value: String,
    /// The origin of the value.
    pub origin: Origin,
}

/// The origin of each effective value. Keys of providers are never in it, only the names of their variables.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    entries: BTreeMap<Key, (Value, Origin)>,
}

impl Provenance {
    /// All effective values in the order of their keys.
    pub fn rows(&self) -> Vec<ProvenanceRow> {
        let row = |(key, (value, origin)): (&Key, &(Value, Origin))| ProvenanceRow {
            key: key.to_string(),
            value: redacted(key, value).to_string(),
            origin: origin.clone(),
        };
        self.entries.iter().map(row).collect()
    }

    /// Returns the origin of a value by its dotted key, or `None` if the value is not set.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.entries.get(&Key::of(key)).map(|(_, origin)| origin)
    }

    /// Returns the origin of a value of `[table.NAME]`, or of the part that a JSON pointer leads to. A part
    /// without a location has that of the nearest part above it.
    pub fn origin_in(&self, table: &str, name: &str, pointer: &str) -> Option<Origin> {
        let (value, origin) = self.entries.get(&Key(vec![table.to_owned(), name.to_owned()]))?;
        let place = match value {
            Value::Tree(tree) => tree.place(pointer),
            Value::Text(_) | Value::Count(_) | Value::Number(_) | Value::Flag(_) | Value::List(_) => None,
        };
        Some(match (origin, place) {
            (Origin::File { path, .. }, Some((line, column))) => {
                Origin::File { path: path.clone(), line, column }
            }
            (origin, _) => origin.clone(),
        })
    }

    /// Returns the origin of a table that only one file may define, by the parts of its name.
    pub fn origin_of_table(&self, parts: &[&str]) -> Option<&Origin> {
        let is_below = |key: &Key| key.0.len() > parts.len() && key.0.iter().zip(parts).all(|(a, b)| a == b);
        self.entries.iter().find(|(key, _)| is_below(key)).map(|(_, (_, origin))| origin)
    }
}

/// The project's settings files that count for a working directory: the repository's root first, then the directory.
pub fn project_config_files(root: &Path, cwd: &Path) -> Vec<PathBuf> {
    let mut files = vec![root.join(".aye/config.toml")];
    if root != cwd {
        files.push(cwd.join(".aye/config.toml"));
    }
    files
}

pub(crate) fn defaults() -> Vec<LayerEntry> {
    let layer = SettingsLayer::from_toml(Path::new("defaults"), schema::DEFAULTS);
    debug_assert!(layer.problems.is_empty(), "{:?}", layer.problems);
    layer.entries
}

/// Reads and joins all layers.
///
/// # Errors
/// All problems of the user's file, of a trusted project's files, of the environment and of the flags.
/// Problems in the files of an untrusted folder only cause a warning, so that a clone cannot keep aye from
/// starting.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, ConfigError> {
    let mut joined: BTreeMap<Key, (Value, Origin)> = BTreeMap::new();
    let mut warnings = Vec::new();
    let mut problems = Vec::new();
    for entry in defaults() {
        joined.insert(entry.key, (entry.value, Origin::Default));
    }
    let user = read_layer(sources.user);
    problems.extend(user.problems);
    join(&mut joined, user.entries);
    for path in sources.project {
        let layer = read_layer(path);
        let wrong = if sources.is_trusted { &mut problems } else { &mut warnings };
        wrong.extend(
            layer
                .problems
                .into_iter()
                .map(|problem| if sources.is_trusted { problem } else { ignored(problem) }),
        );
        for entry in layer.entries {
            let before = joined.get(&entry.key).map(|(value, _)| value);
            if let Some(message) = mixes_servers(&joined, &entry) {
                warnings.push(Problem { origin: entry.origin, message });
                continue;
            }
            match project_refusal(&entry, before, sources.is_trusted) {
                None => join(&mut joined, vec![entry]),
                Some(message) => warnings.push(Problem { origin: entry.origin, message }),
            }
        }
    }
    let env = env_layer(sources.env);
    problems.extend(env.problems);
    join(&mut joined, env.entries);
    problems.extend(sources.flags.layer.problems.iter().cloned());
    join(&mut joined, sources.flags.layer.entries.clone());
    if !problems.is_empty() {
        return Err(ConfigError { problems });
    }
    let values = joined.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect();
    Ok(Loaded {
        settings: Settings::from_values(&values),
        provenance: Provenance { entries: joined },
        warnings,
    })
}

/// Why an entry does not count that would change a server which another file describes: its command would run with
/// variables that were written for another one.
fn mixes_servers(joined: &BTreeMap<Key, (Value, Origin)>, entry: &LayerEntry) -> Option<String> {
    let [table, name, _] = entry.key.0.as_slice() else { return None };
    if table != "mcp_servers" {
        return None;
    }
    let file = |origin: &Origin| match origin {
        Origin::File { path, .. } => Some(path.clone()),
        Origin::Default | Origin::Env(_) | Origin::Flag(_) => None,
    };
    let is_other = |(key, (_, origin)): (&Key, &(Value, Origin))| {
        key.0.len() == 3 && key.0[0] == *table && key.0[1] == *name && file(origin) != file(&entry.origin)
    };
    joined
        .iter()
        .any(is_other)
        .then(|| format!("`{}` is ignored: another file with precedence defines the server", entry.key))
}

fn join(joined: &mut BTreeMap<Key, (Value, Origin)>, entries: Vec<LayerEntry>) {
    for entry in entries {
        joined.insert(entry.key, (entry.value, entry.origin));
    }
}

fn ignored(problem: Problem) -> Problem {
    Problem { message: format!("{}; ignored, this folder is not trusted", problem.message), ..problem }
}

fn env_layer(env: &Env) -> SettingsLayer {
    let mut layer = SettingsLayer::default();
    for (name, key) in ENV_KEYS {
        if let Some(value) = env.var(name) {
            layer.add(Key::of(key), value, Origin::Env(name.to_owned()));
        }
    }
    layer
}

/// Why a project's file may not set this, or nothing when it may.
pub(crate) fn project_refusal(
    entry: &LayerEntry,
    before: Option<&Value>,
    is_trusted: bool,
) -> Option<String> {
    let key = &entry.key;
    let untrusted = || format!("`{key}` is ignored until you trust this folder");
    match entry.leaf.project {
        ProjectMay::Never => Some(format!(
            "`{key}` is ignored: a project cannot set endpoints, keys or models; put it into your own \
             config.toml"
        )),
        ProjectMay::Set if is_trusted => None,
        ProjectMay::Set => Some(untrusted()),
        ProjectMay::Lower if is_trusted || is_lower(&entry.value, before) => None,
        ProjectMay::Lower => Some(format!("`{key}` is ignored: an untrusted folder can only lower it")),
        ProjectMay::Tighten if is_stricter(&entry.value, before, entry.leaf.kind) => None,
        ProjectMay::Tighten => Some(format!("`{key}` is ignored: a project can only make it stricter")),
    }
}

fn is_lower(value: &Value, before: Option<&Value>) -> bool {
    let size = |value: &Value| match value {
        // 0 is "no limit".
        Value::Count(0) => u128::MAX,
        Value::Count(number) => u128::from(*number),
        Value::Text(text) => parse_duration(text).map_or(u128::MAX, |time| time.as_millis()),
        Value::Number(number) if *number > 0.0 => (*number * 1e6) as u128,
        Value::Number(_) | Value::Flag(_) | Value::List(_) | Value::Tree(_) => u128::MAX,
    };
    size(value) <= before.map_or(u128::MAX, size)
}

fn is_stricter(value: &Value, before: Option<&Value>, kind: ValueKind) -> bool {
    let ValueKind::OneOf(strictest_first) = kind else { return false };
    let rank = |value: &Value| match value {
        Value::Text(word) => strictest_first.iter().position(|known| known == word),
        _ => None,
    };
    match (rank(value), before.and_then(rank)) {
        (Some(new), Some(old)) => new <= old,
        _ => false,
    }
}

/// Reads a settings file; a missing one is an empty layer.
pub(crate) fn read_layer(path: &Path) -> SettingsLayer {
    match read_private(path, MAX_FILE) {
        Ok(None) => SettingsLayer::default(),
        Ok(Some(text)) => SettingsLayer::from_toml(path, &text),
        Err(error) => {
            let (origin, message) = (error.origin(path), error.to_string());
            SettingsLayer { entries: Vec::new(), problems: vec![Problem { origin, message }] }
        }
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
