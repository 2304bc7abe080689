//! The policy of a machine: what its administrator sets, and users can only narrow.
//!
//! It is one file that belongs to root. It counts after all other layers, also after flags.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aye_core::contract::address::DomainPattern;
use aye_core::contract::display::visible_line;
use serde_json::Value as Json;
use toml::Value;

use super::layer::{Key, LayerEntry, Origin, PolicyRule, PolicyText, Problem, Values};
use super::models::DEMO;
use super::paths::{ReadTextError, read_text};
use super::providers::split_key_name;
use super::schema::ProjectMay;
use super::settings::PermissionMode;

/// The file; nothing names another one.
pub const POLICY_FILE: &str = "/etc/aye/policy.toml";

/// A policy that is larger than this is not one.
const MAX_FILE: u64 = 1 << 20;

/// How long things are kept: users may keep them for a shorter time.
const RETENTION: [&str; 2] = ["threads.keep", "mailbox.keep"];

/// Lists from which users may choose.
const OPENINGS: [&str; 5] =
    ["sandbox.readable", "sandbox.writable", "sandbox.domains", "sandbox.env", "sandbox.sockets"];

/// What the administrator of a machine set.
#[derive(Clone, Debug)]
pub struct MachinePolicy {
    path: PathBuf,
    settings: Vec<LayerEntry>,
    models: Option<Vec<String>>,
    rules: Vec<PolicyRule>,
}

/// Why a policy is not used. aye does not start then: without it, more would be allowed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: ReadTextError,
    },
    /// Somebody other than root can change it.
    #[error(
        "{}: the policy of this machine and the folders above it must belong to root and be writable only by root; \
         {} does not: owner {owner}, mode {mode:03o}",
        path.display(), changeable.display()
    )]
    Changeable {
        path: PathBuf,
        /// The file, or the folder above it.
        changeable: PathBuf,
        /// The number of its owner.
        owner: u32,
        mode: u32,
    },
    /// Something in it is wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<Problem>),
}

impl MachinePolicy {
    /// Reads the policy of this machine; `None` if it has none.
    ///
    /// # Errors
    /// The file is there, and cannot be read, can be changed by somebody other than root, or contains a mistake.
    pub fn of_this_machine() -> Result<Option<Self>, PolicyError> {
        Self::read(Path::new(POLICY_FILE), 0)
    }

    /// Reads a policy that belongs to a user, as do all folders above it.
    pub(crate) fn read(path: &Path, owner: u32) -> Result<Option<Self>, PolicyError> {
        let unreadable =
            |source: io::Error| PolicyError::Unreadable { path: path.into(), source: source.into() };
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                // A link to nothing is somebody's mistake.
                return match path.symlink_metadata() {
                    Ok(_) => Err(unreadable(error)),
                    Err(_) => Ok(None),
                };
            }
            Err(error) => return Err(unreadable(error)),
        };
        let belongs = |at: &Path, about: &Metadata| {
            let (of, mode) = (about.uid(), about.mode() & 0o7777);
            if of == owner && mode & 0o022 == 0 {
                return Ok(());
            }
            Err(PolicyError::Changeable { path: path.into(), changeable: at.into(), owner: of, mode })
        };
        for folder in real.ancestors().skip(1).chain(path.ancestors().skip(1)) {
            belongs(folder, &folder.metadata().map_err(unreadable)?)?;
        }
        let file = File::open(&real).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        belongs(&real, &about)?;
        let text = if about.is_file() { read_text(file, MAX_FILE) } else { Err(ReadTextError::NotAFile) };
        let text = text.map_err(|source| PolicyError::Unreadable { path: path.into(), source })?;
        Self::parse(path, &text).map(Some)
    }

    /// Reads the text of a policy.
    ///
    /// # Errors
    /// All mistakes in it.
    pub fn parse(path: &Path, text: &str) -> Result<Self, PolicyError> {
        let PolicyText { settings, models, rules, mut problems } = PolicyText::read(path, text);
        problems.extend(settings.problems);
        if !problems.is_empty() {
            return Err(PolicyError::Invalid(problems));
        }
        Ok(Self { path: path.into(), settings: settings.entries, models, rules })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its rules as a permissions file has them, each with its line.
    pub fn rules(&self) -> impl Iterator<Item = (&Json, u64)> {
        self.rules.iter().map(|rule| (&rule.rule, rule.line))
    }

    /// Returns the most that a permission mode may allow.
    pub fn permission_mode(&self) -> Option<PermissionMode> {
        let entry = self.settings.iter().find(|entry| entry.key == Key::of("permission_mode"))?;
        PermissionMode::parse(entry.value.as_str()?)
    }

    /// Returns the most inferences that a run may make.
    pub fn max_turns(&self) -> Option<usize> {
        let entry = self.settings.iter().find(|entry| entry.key == Key::of("max_turns"))?;
        usize::try_from(entry.value.as_integer()?).ok().filter(|most| *most > 0)
    }

    /// Returns why a model, as `provider/model`, cannot be used here. The demo model sends nothing anywhere.
    pub(crate) fn refuses_model(&self, full_name: &str) -> Option<String> {
        let allowed = self.models.as_ref()?;
        let (provider, model) = full_name.split_once('/').unwrap_or((full_name, ""));
        let name = format!("{}/{model}", split_key_name(provider).0);
        if provider == DEMO || allowed.iter().any(|pattern| is_covered(pattern, &name)) {
            return None;
        }
        let path = self.path.display();
        Some(match allowed.as_slice() {
            [] => format!("the policy of this machine allows no model ({path})"),
            _ => format!("the policy of this machine allows only {} ({path})", allowed.join(", ")),
        })
    }

    /// Says in a few words what it sets.
    pub fn summary(&self) -> String {
        let count = |n: usize, one: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {one}s")),
        };
        let models = self.models.as_ref().map(|models| match models.as_slice() {
            [] => "no models".to_owned(),
            _ => format!("models {}", models.join(", ")),
        });
        let parts = [count(self.settings.len(), "setting"), count(self.rules.len(), "rule"), models];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let path = visible_line(&self.path.to_string_lossy()).into_owned();
        if parts.is_empty() { format!("{path}: empty") } else { format!("{path}: {}", parts.join(", ")) }
    }

    /// Narrows the joined settings of all layers. Returns what was asked for and does not count.
    pub(crate) fn narrow(&self, joined: &mut Values) -> Vec<Problem> {
        self.settings.iter().filter_map(|limit| narrow(limit, joined)).collect()
    }
}

/// Applies one entry of a policy. Returns a warning where somebody had chosen something that does not count.
fn narrow(limit: &LayerEntry, joined: &mut Values) -> Option<Problem> {
    let (key, place) = (limit.key.to_string(), &limit.origin);
    let is_most =
        matches!(limit.project, ProjectMay::Lower | ProjectMay::Tighten) || RETENTION.contains(&key.as_str());
    let now = joined.get(&limit.key).cloned();
    // A limit is no choice: what aye does by itself may be stricter.
    if is_most && allows_at_most(limit, now.as_ref()) {
        return None;
    }
    let chosen = now.filter(|entry| entry.origin != Origin::Default);
    if let Some(entry) = chosen.as_ref().filter(|_| OPENINGS.contains(&key.as_str())) {
        let (kept, left) = within(&key, &entry.value, &limit.value);
        if left.is_empty() {
            return None;
        }
        let mut entry = entry.clone();
        entry.value = Value::Array(kept);
        let left = left.join(", ");
        let message = format!(
            "`{key}`: {left} is ignored: the policy of this machine ({place}) allows {}",
            limit.value
        );
        let origin = entry.origin.clone();
        joined.insert(limit.key.clone(), entry);
        return Some(Problem { origin, message });
    }
    joined.insert(limit.key.clone(), limit.clone());
    let chosen = chosen.filter(|entry| entry.value != limit.value)?;
    let verb = if is_most { "allows at most" } else { "sets it to" };
    let message = format!("`{key}` is ignored: the policy of this machine ({place}) {verb} {}", limit.value);
    Some(Problem { origin: chosen.origin, message })
}

/// Whether what counts so far is no more than a limit.
fn allows_at_most(limit: &LayerEntry, now: Option<&LayerEntry>) -> bool {
    let rank = |entry: &LayerEntry| (entry.leaf.rank)(&entry.value);
    matches!((now.and_then(rank), rank(limit)), (Some(now), Some(most)) if now <= most)
}

/// Divides a list into what a policy's list covers, and the rest.
fn within(key: &str, list: &Value, limit: &Value) -> (Vec<Value>, Vec<String>) {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let limits = texts(limit);
    let covers = |limit: &String, text: &String| match key {
        "sandbox.domains" => {
            let (Ok(limit), Ok(text)) = (limit.parse::<DomainPattern>(), text.parse::<DomainPattern>())
            else {
                return false;
            };
            limit.covers(&text)
        }
        "sandbox.env" => {
            limit == text || limit.strip_suffix('*').is_some_and(|start| text.starts_with(start))
        }
        // A path with `..` in it could lead out of what it begins with.
        _ => limit == text || !text.split('/').any(|part| part == "..") && Path::new(text).starts_with(limit),
    };
    let (kept, left): (Vec<_>, Vec<_>) =
        texts(list).into_iter().partition(|text| limits.iter().any(|limit| covers(limit, text)));
    (kept.into_iter().map(Value::from).collect(), left)
}

/// Matches a name against a pattern in which `*` is any text.
fn is_covered(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;
