//! Joins the layers of settings: defaults < user < project < environment < flags. The policy of the machine narrows them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::env::Env;
use super::kinds::one_line;
use super::layer::{Key, LayerEntry, Origin, Problem, SettingsLayer, Values};
use super::paths::read_private;
use super::policy::MachinePolicy;
use super::schema::{self, Fields, Node, Part as _, ProjectMay};
use super::settings::Settings;
use aye_core::contract::display::visible_line;
use toml::Value;

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
    /// What is added to a list, whatever the other layers say.
    added: Vec<(Key, String, Origin)>,
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

    /// Adds a text to a list of texts, such as `--add-dir` to `sandbox.writable`; what the other layers list stays.
    pub fn add(&mut self, flag: &str, key: &str, value: &str) -> &mut Self {
        self.added.push((Key::of(key), value.to_owned(), Origin::Flag(flag.to_owned())));
        self
    }

    /// Adds all settings of a file, which must exist. Call it first: flags for single keys take precedence over it.
    pub fn file(&mut self, flag: &str, path: &Path) -> &mut Self {
        match path.metadata() {
            Ok(_) => {
                let layer = read_layer(path);
                self.layer.entries.extend(layer.entries);
                self.layer.problems.extend(layer.problems);
            }
            Err(error) => {
                let message = format!("cannot read {}: {error}", visible_line(&path.to_string_lossy()));
                self.layer.problems.push(Problem { origin: Origin::Flag(flag.to_owned()), message });
            }
        }
        self
    }

    /// Joins these values as the last layer.
    fn join_into(&self, joined: &mut Values) {
        join(joined, self.layer.entries.clone());
        for (key, text, origin) in &self.added {
            let Ok((field, leaf)) = schema::lookup(key) else { continue };
            let before = joined.get(key).and_then(|entry| entry.value.as_array().cloned());
            let mut list = before.unwrap_or_default();
            list.push(Value::from(text.clone()));
            let entry = LayerEntry::new(key.clone(), list.into(), origin.clone(), (field, leaf));
            joined.insert(key.clone(), entry);
        }
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
    pub env: &'a Env,
    pub flags: &'a Flags,
    /// What the administrator of the machine set.
    pub policy: Option<&'a MachinePolicy>,
}

/// Settings, where each came from, and what was ignored on the way.
#[derive(Clone, Debug)]
pub struct Loaded {
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

/// The origin of each effective value, and the policy that narrowed them. Keys of providers are never in it, only the names of their variables.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    entries: Values,
    policy: Option<Arc<MachinePolicy>>,
}

impl Provenance {
    /// Returns what the administrator of the machine set.
    pub fn policy(&self) -> Option<&MachinePolicy> {
        self.policy.as_deref()
    }

    /// All effective values in the order of their keys.
    pub fn rows(&self) -> Vec<ProvenanceRow> {
        let row = |entry: &LayerEntry| ProvenanceRow {
            key: entry.key.to_string(),
            value: one_line(&(entry.leaf.redacted)(&entry.value)),
            origin: entry.origin.clone(),
        };
        self.entries.values().map(row).collect()
    }

    /// Returns the origin of a value by its dotted key, or `None` if the value is not set.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.entries.get(&Key::of(key)).map(|entry| &entry.origin)
    }

    /// Returns the origin of a value of `[table.NAME]`, or of the part that a JSON pointer leads to. A part
    /// without a location has that of the nearest part above it.
    pub fn origin_in(&self, table: &str, name: &str, pointer: &str) -> Option<Origin> {
        let key = Key(vec![table.to_owned(), name.to_owned()]);
        self.entries.get(&key).map(|entry| entry.origin_of(pointer))
    }

    /// Returns the origin of a table that only one file may define, by the parts of its name.
    pub fn origin_of_table(&self, parts: &[&str]) -> Option<&Origin> {
        let is_below = |key: &Key| key.0.len() > parts.len() && key.0.iter().zip(parts).all(|(a, b)| a == b);
        self.entries.values().find(|entry| is_below(&entry.key)).map(|entry| &entry.origin)
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

/// The first layer.
pub(crate) fn defaults() -> Values {
    fn collect(fields: Fields, path: &Key, values: &mut Values) {
        for field in fields {
            let key = path.with(field.name);
            match field.node {
                Node::Table(fields) => collect(fields, &key, values),
                Node::Leaf(leaf) => {
                    if let Some(value) = field.default.and_then(|text| text.parse().ok()) {
                        let entry = LayerEntry::new(key.clone(), value, Origin::Default, (field, leaf));
                        values.insert(key, entry);
                    }
                }
                Node::Named(_) | Node::Each(_) => {}
            }
        }
    }
    let mut values = Values::new();
    collect(schema::ROOT, &Key::default(), &mut values);
    values
}

/// Reads and joins all layers.
///
/// # Errors
/// All problems of the user's file, of a trusted project's files, of the environment and of the flags.
/// Problems in the files of an untrusted folder only cause a warning, so that a clone cannot keep aye from
/// starting.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, ConfigError> {
    let mut joined = defaults();
    let mut warnings = Vec::new();
    let mut problems = Vec::new();
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
            let before = joined.get(&entry.key).map(|before| &before.value);
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
    sources.flags.join_into(&mut joined);
    if let Some(policy) = sources.policy {
        warnings.extend(policy.narrow(&mut joined));
    }
    if !problems.is_empty() {
        return Err(ConfigError { problems });
    }
    warnings.extend(retired(&joined));
    Ok(Loaded {
        settings: Settings::collect(&joined, &Key::default(), None),
        provenance: Provenance { entries: joined, policy: sources.policy.cloned().map(Arc::new) },
        warnings,
    })
}

/// Returns a warning for a value that has no meaning of its own any more.
fn retired(joined: &Values) -> Option<Problem> {
    let entry = joined.get(&Key::of("tui.images"))?;
    let word = entry.value.as_str().filter(|word| matches!(*word, "iterm2" | "sixel"))?;
    let message = format!(
        "`tui.images = \"{word}\"` means \"auto\": images are drawn in half blocks, and `o` in the viewer opens them"
    );
    Some(Problem { origin: entry.origin.clone(), message })
}

/// Why an entry does not count that would change a server which another file describes: its command would run with
/// variables that were written for another one.
fn mixes_servers(joined: &Values, entry: &LayerEntry) -> Option<String> {
    let [table, name, _] = entry.key.0.as_slice() else { return None };
    if table != "mcp_servers" {
        return None;
    }
    let file = |origin: &Origin| match origin {
        Origin::File { path, .. } => Some(path.clone()),
        Origin::Default | Origin::Env(_) | Origin::Flag(_) => None,
    };
    let is_other = |other: &LayerEntry| {
        matches!(&other.key.0[..], [at, of, _] if at == table && of == name)
            && file(&other.origin) != file(&entry.origin)
    };
    joined
        .values()
        .any(is_other)
        .then(|| format!("`{}` is ignored: another file with precedence defines the server", entry.key))
}

fn join(joined: &mut Values, entries: Vec<LayerEntry>) {
    joined.extend(entries.into_iter().map(|entry| (entry.key.clone(), entry)));
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
    // What cannot be compared is not lower, and not stricter.
    let goes_down = || match ((entry.leaf.rank)(&entry.value), before.and_then(entry.leaf.rank)) {
        (Some(new), Some(old)) => new <= old,
        (Some(_) | None, _) => false,
    };
    match entry.project {
        ProjectMay::Never => Some(format!(
            "`{key}` is ignored: a project cannot set endpoints, keys or models; put it into your own \
             config.toml"
        )),
        ProjectMay::Set if is_trusted => None,
        ProjectMay::Set => Some(untrusted()),
        ProjectMay::Lower if is_trusted || goes_down() => None,
        ProjectMay::Lower => Some(format!("`{key}` is ignored: an untrusted folder can only lower it")),
        ProjectMay::Tighten if goes_down() => None,
        ProjectMay::Tighten => Some(format!("`{key}` is ignored: a project can only make it stricter")),
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
mod tests;
