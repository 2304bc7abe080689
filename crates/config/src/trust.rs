//! The folders that the user trusts, and the parts of a folder that need trust at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::kinds::one_line;
use super::layer::LayerEntry;
use super::layers::{defaults, project_config_files, project_refusal, read_layer};
use super::paths::{PrivateFileError, read_private, write_private};
use super::schema::ProjectMay;
use super::servers::{OfferedServer, offered};
use aye_core::contract::amount::counted;
use aye_core::contract::digest::hex;
use aye_core::contract::display::{shortened, visible_line};

const FORMAT: u32 = 1;
const MAX_STORE: u64 = 16 << 20;
/// The maximum number of bytes of a project's file that are hashed. A larger file is hashed by its start, its
/// size and the time of its last write, so that no folder can make startup slow.
const MAX_HASHED: u64 = 4 << 20;
const MAX_SKILL_FOLDERS: usize = 2000;
const MAX_SKILL_DEPTH: usize = 4;
const MAX_SKILL_FILES: usize = 512;
/// Fields of an agent's file that permit or reach something; a backslash can spell one in another way.
const AGENT_WORDS: [&str; 9] =
    ["permission", "sections", "endpoint", "plugin", "hook", "model", "delegates", "handoff", "\\"];
const AGENT_ROOTS: [&str; 3] = [".agents/agents", ".aye/agents", ".claude/agents"];
const MAX_AGENT_FILES: usize = 500;
const SKILL_ROOTS: [&str; 3] = [".agents/skills", ".aye/skills", ".claude/skills"];

/// One thing in a folder that would grant or run something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustItem {
    /// The file or the skill's folder.
    pub path: PathBuf,
    /// What the item would do, for the user who is asked.
    pub summary: String,
    /// Whether aye starts programs that the item names: hooks and MCP servers.
    pub starts: bool,
    /// The MCP servers that the file would start or reach.
    pub servers: Vec<OfferedServer>,
    /// The SHA-256 of the content, in hex: trust applies to the content that the user saw. Empty if the
    /// content could not be hashed; then each start asks.
    pub hash: String,
}

/// The parts of a folder that would grant or run something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustAssessment {
    /// The opened folder, links resolved.
    pub folder: PathBuf,
    /// The items that need trust; empty if there is nothing to ask about.
    pub items: Vec<TrustItem>,
}

impl TrustAssessment {
    /// Assesses a folder and those above it up to the repository's root. Nothing is run and nothing granted.
    ///
    /// # Errors
    /// If the folder itself cannot be resolved.
    pub fn of(folder: &Path, repository: &Path) -> io::Result<Self> {
        let folder = folder.canonicalize()?;
        let repository = repository.canonicalize()?;
        let mut items = Vec::new();
        let mut levels: Vec<&Path> =
            folder.ancestors().take_while(|level| level.starts_with(&repository)).collect();
        levels.reverse();
        let settings = project_config_files(&repository, &folder);
        for level in levels {
            items.extend(rules_item(&level.join(".aye/permissions.yaml")));
            items.extend(hooks_item(level, &repository));
            items.extend(reminders_item(&level.join(".aye/reminders.json")));
            let config = level.join(".aye/config.toml");
            if settings.contains(&config) {
                items.extend(config_item(&config));
            }
            items.extend(mcp_item(&level.join(".mcp.json")));
            for root in SKILL_ROOTS {
                skill_items(&level.join(root), &repository, &mut items);
            }
            for root in AGENT_ROOTS {
                agent_items(&level.join(root), &repository, &mut items);
            }
        }
        Ok(Self { folder, items })
    }

    /// Returns the notice that a headless run writes to stderr about the items that it does not use.
    pub fn ignored_notice(missing: &[TrustItem]) -> Option<String> {
        let names: Vec<_> =
            missing.iter().map(|item| visible_line(&item.path.to_string_lossy()).into_owned()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "not used, because this folder is not trusted (--trust accepts them once): {}",
                names.join(", ")
            )
        })
    }

    /// Returns whether nothing needs trust.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

fn hash_file(path: &Path) -> Option<String> {
    if !path.metadata().is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    let file = fs::File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    let mut bytes = Vec::new();
    file.take(MAX_HASHED).read_to_end(&mut bytes).ok()?;
    let mut hash = Sha256::new();
    hash.update(size.to_le_bytes());
    hash.update(&bytes);
    if size > MAX_HASHED {
        // After the hashed start of the file, only the time of the last write reveals a change.
        let written = path.metadata().and_then(|meta| meta.modified()).ok()?;
        hash.update(written.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos().to_le_bytes());
    }
    Some(hex(&hash.finalize()))
}

/// At most three lines of a file that say something, on one line.
fn excerpt(text: &str) -> String {
    let content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let mut lines = text.lines().filter(content);
    let mut shown = lines
        .by_ref()
        .take(3)
        .map(|line| line.trim().chars().take(80).collect())
        .collect::<Vec<String>>()
        .join("; ");
    if lines.next().is_some() {
        shown.push_str("; …");
    }
    visible_line(&shown).into_owned()
}

fn text_of(path: &Path) -> String {
    read_private(path, MAX_HASHED).ok().flatten().unwrap_or_default()
}

impl TrustItem {
    /// An item that starts nothing.
    fn inert(path: PathBuf, summary: String, hash: Option<String>) -> Self {
        Self { path, summary, starts: false, servers: Vec::new(), hash: hash.unwrap_or_default() }
    }
}

fn rules_item(path: &Path) -> Option<TrustItem> {
    let hash = hash_file(path)?;
    let summary = format!("permission rules: {}", excerpt(&text_of(path)));
    Some(TrustItem::inert(path.to_path_buf(), summary, Some(hash)))
}

/// Returns the item of a hooks file, whose commands run without being called: all of them are shown, and
/// trust covers the files that they name, too.
fn hooks_item(folder: &Path, repository: &Path) -> Option<TrustItem> {
    let path = folder.join(".aye/hooks.toml");
    let text_hash = hash_file(&path)?;
    let text = text_of(&path);
    let mut summary = "runs commands automatically (hooks):".to_owned();
    let mut hash = Sha256::new();
    hash.update(text_hash);
    let mut is_readable = false;
    if let Ok(table) = text.trim_start_matches('\u{feff}').parse::<toml::Table>() {
        is_readable = true;
        for hook in table.get("hooks").and_then(toml::Value::as_array).into_iter().flatten() {
            let word = |key: &str| hook.get(key).and_then(toml::Value::as_str).unwrap_or_default();
            let list = hook.get("command").and_then(toml::Value::as_array).into_iter().flatten();
            let words: Vec<&str> = list.filter_map(toml::Value::as_str).collect();
            let line = [&[word("phase"), word("tool")], &words[..]].concat().join(" ");
            let _ = write!(summary, "\n  {}", shortened(&visible_line(&line), 500));
            let domains = hook.get("domains").and_then(toml::Value::as_array).into_iter().flatten();
            let domains: Vec<&str> = domains.filter_map(toml::Value::as_str).collect();
            if !domains.is_empty() {
                let domains = domains.join(", ");
                let _ = write!(summary, " (network: {})", shortened(&visible_line(&domains), 500));
            }
            for word in words {
                // Inside of the project a file is as changeable as the list itself.
                if let Ok(file) = folder.join(word).canonicalize()
                    && file.starts_with(repository)
                {
                    hash.update((word.len() as u64).to_le_bytes());
                    hash.update(word.as_bytes());
                    hash.update(hash_file(&file).unwrap_or_default());
                }
            }
        }
    }
    if !is_readable {
        let _ = write!(summary, " {}", excerpt(&text));
    }
    let scripts = folder.join(".aye/hooks");
    let hash = match scripts.symlink_metadata() {
        Ok(_) => hash_folder(&scripts).map(|scripts| {
            hash.update(scripts);
            hex(&hash.finalize())
        }),
        Err(_) => Some(hex(&hash.finalize())),
    };
    // Without a hash each start asks.
    Some(TrustItem { path, summary, starts: true, servers: Vec::new(), hash: hash.unwrap_or_default() })
}

fn reminders_item(path: &Path) -> Option<TrustItem> {
    let hash = hash_file(path)?;
    let summary = format!("adds reminders for the model after tool calls: {}", excerpt(&text_of(path)));
    Some(TrustItem::inert(path.to_path_buf(), summary, Some(hash)))
}

fn mcp_item(path: &Path) -> Option<TrustItem> {
    let hash = hash_file(path)?;
    let (servers, unreadable) = offered(path, &text_of(path));
    // What was shown must be what was hashed; without a hash each start asks.
    let hash = if hash_file(path).as_ref() == Some(&hash) { hash } else { String::new() };
    let mut lines = vec!["starts programs or connects to servers (MCP):".to_owned()];
    for server in &servers {
        let verb = if server.is_program { "starts" } else { "connects to" };
        lines.push(visible_line(&format!("{}: {verb} {}", server.name, server.runs)).into_owned());
    }
    if unreadable > 0 {
        lines.push(format!("{unreadable} that cannot be read"));
    }
    let starts = unreadable > 0 || servers.iter().any(|server| server.is_program);
    Some(TrustItem { path: path.to_path_buf(), summary: lines.join("\n  "), starts, servers, hash })
}

/// Settings that an untrusted project may not make; those that it may never make are left out, trust does not help them.
fn config_item(path: &Path) -> Option<TrustItem> {
    let hash = hash_file(path)?;
    let layer = read_layer(path);
    let base = defaults();
    let needs_trust = |entry: &&LayerEntry| {
        let before = base.get(&entry.key).map(|entry| &entry.value);
        let never = matches!(entry.project, ProjectMay::Never | ProjectMay::Tighten);
        !never && project_refusal(entry, before, false).is_some()
    };
    let mut content: Vec<String> = layer
        .entries
        .iter()
        .filter(needs_trust)
        .map(|entry| visible_line(&format!("{} = {}", entry.key, one_line(&entry.value))).into_owned())
        .collect();
    // A file that names servers in an unreadable way still needs trust.
    let starts = layer.problems.iter().filter(|problem| problem.message.contains("`mcp"));
    content.extend(starts.map(|problem| visible_line(&problem.message).into_owned()));
    if content.is_empty() {
        return None;
    }
    // What would be started is never left out of the summary.
    let starts = |line: &String| ["mcp_servers", "checks"].iter().any(|table| line.starts_with(table));
    let (mut shown, mut rest): (Vec<_>, Vec<_>) = content.into_iter().partition(starts);
    rest.truncate(8);
    shown.append(&mut rest);
    let starts = shown.iter().any(starts);
    Some(TrustItem {
        path: path.to_path_buf(),
        summary: format!("settings: {}", shown.join(", ")),
        starts,
        servers: Vec::new(),
        hash,
    })
}

/// Skills of the project that bring scripts or ask for tools. It looks wherever the skills plugin would, and further.
fn skill_items(root: &Path, repository: &Path, items: &mut Vec<TrustItem>) {
    let Ok(root) = root.canonicalize() else { return };
    if !root.starts_with(repository) {
        return;
    }
    let mut seen = BTreeSet::from([root.clone()]);
    let mut folders = vec![(root.clone(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let is_inside = |path: &PathBuf| path.is_dir() && path.starts_with(&root);
        let mut inner: Vec<PathBuf> = entries
            .flatten()
            .filter_map(|entry| entry.path().canonicalize().ok())
            .filter(is_inside)
            .collect();
        inner.sort();
        for dir in inner {
            if !seen.insert(dir.clone()) {
                continue;
            }
            if seen.len() > MAX_SKILL_FOLDERS {
                let summary = "too many skill folders to list".to_owned();
                items.push(TrustItem::inert(root, summary, None));
                return;
            }
            if dir.join("SKILL.md").symlink_metadata().is_ok() {
                // The same folder may be reached through two roots, of which one is a link.
                let item = skill_item(&dir).filter(|item| !items.iter().any(|other| other.path == item.path));
                items.extend(item);
            } else if depth + 1 < MAX_SKILL_DEPTH {
                folders.push((dir, depth + 1));
            }
        }
    }
}

/// Agents of the project that say more than who they are. One that only has a prompt and fewer tools needs no trust.
fn agent_items(root: &Path, repository: &Path, items: &mut Vec<TrustItem>) {
    let Ok(root) = root.canonicalize() else { return };
    if !root.starts_with(repository) {
        return;
    }
    let mut seen = BTreeSet::from([root.clone()]);
    let mut folders = vec![root.clone()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut inner: Vec<PathBuf> =
            entries.flatten().filter_map(|entry| entry.path().canonicalize().ok()).collect();
        inner.sort();
        for path in inner.into_iter().filter(|path| path.starts_with(repository)) {
            if !seen.insert(path.clone()) {
                continue;
            }
            files += 1;
            if files > MAX_AGENT_FILES {
                let summary = "too many agents to list".to_owned();
                items.push(TrustItem::inert(root, summary, None));
                return;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("md")) {
                // The same file may be reached through two roots, of which one is a link.
                let item =
                    agent_item(&path).filter(|item| !items.iter().any(|other| other.path == item.path));
                items.extend(item);
            }
        }
    }
}

fn agent_item(path: &Path) -> Option<TrustItem> {
    let text = text_of(path);
    let front = text.split("\n---").next().unwrap_or(&text);
    if !AGENT_WORDS.iter().any(|word| front.contains(word)) {
        return None;
    }
    let name = visible_line(&path.file_stem().unwrap_or_default().to_string_lossy()).into_owned();
    let content = excerpt(front.trim_start_matches("---"));
    Some(TrustItem::inert(path.to_path_buf(), format!("agent {name}: {content}"), hash_file(path)))
}

fn skill_item(dir: &Path) -> Option<TrustItem> {
    let text = text_of(&dir.join("SKILL.md"));
    let scripts = fs::read_dir(dir.join("scripts")).map_or(0, Iterator::count);
    let asks_for_tools = {
        let front = text.split("---").nth(1).unwrap_or(&text);
        // A backslash can spell the key in another way; such a file needs trust rather than being parsed
        // here.
        front.contains("allowed-tools") || front.contains('\\')
    };
    if scripts == 0 && !asks_for_tools {
        return None;
    }
    let name = visible_line(&dir.file_name().unwrap_or_default().to_string_lossy()).into_owned();
    let mut summary = format!("skill {name}");
    if scripts > 0 {
        let _ = write!(summary, ", with {}", counted(scripts, "script"));
    }
    if let Some(tools) =
        text.lines().take(200).find_map(|line| line.trim_start().strip_prefix("allowed-tools:"))
    {
        let tools: String = tools.trim().chars().take(120).collect();
        let _ = write!(summary, ", requests permission for: {}", visible_line(&tools));
    }
    Some(TrustItem::inert(dir.to_path_buf(), summary, hash_folder(dir)))
}

/// The hash of all files below a folder; nothing when there are more than anybody could vouch for.
fn hash_folder(dir: &Path) -> Option<String> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).ok()? {
            let entry = entry.ok()?;
            match entry.file_type().ok()? {
                kind if kind.is_dir() => folders.push(entry.path()),
                _ => files.push(entry.path()),
            }
            if files.len() + folders.len() > MAX_SKILL_FILES {
                return None;
            }
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in &files {
        let path = file.to_string_lossy();
        hash.update((path.len() as u64).to_le_bytes());
        hash.update(path.as_bytes());
        hash.update(hash_file(file).unwrap_or_default());
        hash.update([0]);
    }
    Some(hex(&hash.finalize()))
}

/// Why the list of trusted folders cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file exists and cannot be read in its format.
    #[error("{}: {message}; move it away to start with an empty list", path.display())]
    Unreadable { path: PathBuf, message: String },
    /// It cannot be written.
    #[error("trust is not stored")]
    Write(#[from] PrivateFileError),
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StoreFile {
    format: u32,
    folders: BTreeMap<PathBuf, TrustedFolder>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TrustedFolder {
    /// When it was last said, RFC 3339.
    since: String,
    /// The items that the user saw: path and hash.
    items: BTreeMap<PathBuf, String>,
}

/// The list of trusted folders: one private JSON file.
#[derive(Clone, Debug)]
pub struct TrustStore {
    path: PathBuf,
}

impl TrustStore {
    /// The list in a file that may not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn read(&self) -> Result<BTreeMap<PathBuf, TrustedFolder>, TrustError> {
        let fail = |message: String| TrustError::Unreadable { path: self.path.clone(), message };
        let text = read_private(&self.path, MAX_STORE).map_err(|error| fail(error.to_string()))?;
        let Some(text) = text else { return Ok(BTreeMap::new()) };
        let file: StoreFile = serde_json::from_str(&text)
            .map_err(|error| fail(format!("is not a list of trusted folders: {error}")))?;
        match file.format {
            FORMAT => Ok(file.folders),
            newer => {
                Err(fail(format!("was written by another version (format {newer}, this one reads {FORMAT})")))
            }
        }
    }

    fn write(&self, folders: BTreeMap<PathBuf, TrustedFolder>) -> Result<(), TrustError> {
        let text = serde_json::to_vec_pretty(&StoreFile { format: FORMAT, folders });
        let text = text.map_err(|error| TrustError::Unreadable {
            path: self.path.clone(),
            message: error.to_string(),
        })?;
        Ok(write_private(&self.path, &text)?)
    }

    /// Returns the items of an assessment that the user has not yet trusted, new and changed ones. Empty
    /// means trusted.
    ///
    /// # Errors
    /// [`TrustError::Unreadable`]; the caller must then treat the folder as untrusted.
    pub fn missing(&self, assessment: &TrustAssessment) -> Result<Vec<TrustItem>, TrustError> {
        if assessment.is_empty() {
            return Ok(Vec::new());
        }
        let folders = self.read()?;
        let covering: Vec<&TrustedFolder> = covering_folders(&assessment.folder)
            .into_iter()
            .filter_map(|folder| folders.get(folder))
            .collect();
        let is_known = |item: &TrustItem| {
            !item.hash.is_empty()
                && covering.iter().any(|folder| folder.items.get(&item.path) == Some(&item.hash))
        };
        Ok(assessment.items.iter().filter(|item| !is_known(item)).cloned().collect())
    }

    /// Returns whether the user trusts everything that the folder would grant or run, in its current state. A
    /// folder that would do neither needs no trust, so its harmless settings apply.
    ///
    /// # Errors
    /// As [`TrustStore::missing`].
    pub fn is_trusted(&self, assessment: &TrustAssessment) -> Result<bool, TrustError> {
        Ok(self.missing(assessment)?.is_empty())
    }

    /// Records that the user trusts the assessed items.
    pub fn trust(&self, assessment: &TrustAssessment) -> Result<(), TrustError> {
        let mut folders = self.read()?;
        let items = assessment.items.iter().map(|item| (item.path.clone(), item.hash.clone())).collect();
        let since = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        folders.insert(assessment.folder.clone(), TrustedFolder { since, items });
        self.write(folders)
    }

    /// Forgets a folder; says whether it was known.
    pub fn distrust(&self, folder: &Path) -> Result<bool, TrustError> {
        let mut folders = self.read()?;
        // A folder that is gone can be forgotten too, by the path it had.
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        let was_known = folders.remove(&folder).is_some();
        if was_known {
            self.write(folders)?;
        }
        Ok(was_known)
    }

    /// The trusted folders with the time they were trusted, for `aye doctor`.
    pub fn folders(&self) -> Result<Vec<(PathBuf, String)>, TrustError> {
        Ok(self.read()?.into_iter().map(|(path, folder)| (path, folder.since)).collect())
    }
}

/// The folder and those above it whose trust reaches it: up to the first that has a `.git`, and not beyond.
///
/// The key is the real path of what was opened, never what a `.git` file points to (CVE-2026-40068).
fn covering_folders(folder: &Path) -> Vec<&Path> {
    let mut covering = Vec::new();
    for level in folder.ancestors() {
        covering.push(level);
        if level.join(".git").symlink_metadata().is_ok() {
            return covering;
        }
    }
    // Outside of any repository nothing says how far a project reaches, so only the folder itself counts.
    covering.truncate(1);
    covering
}

#[cfg(test)]
mod tests;
