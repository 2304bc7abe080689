//! Finds agents in folders, in the order of precedence.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::fields::{AgentDialect, read_fields};
use super::{AgentIssue, AgentScope, ParsedAgent, ParsedAgents, Severity, SourceLocator};
use crate::paths::{ReadTextError, read_private};
use aye_files::front_matter::{Front, FrontMatterReader, line_of};

/// A larger file is refused.
const MAX_FILE: u64 = 512 * 1024;
/// Files of one root.
const MAX_FILES: usize = 500;
/// Folders below a root.
const MAX_FOLDERS: usize = 200;
/// The maximum depth of a file below a root.
const MAX_DEPTH: usize = 3;

/// A folder of agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRoot {
    /// The folder; it may be missing.
    pub dir: PathBuf,
    /// The scope of the folder's agents.
    pub scope: AgentScope,
    /// The form that the folder's files are written in.
    pub form: AgentDialect,
    /// The folder that nothing may lead out of through links.
    pub boundary: Option<PathBuf>,
}

/// Returns the project's roots, from the working directory up to the repository's root; the first match wins.
///
/// For trusted folders only.
pub fn project_roots(cwd: &Path, repository: &Path) -> Vec<AgentRoot> {
    let folders = cwd.ancestors().take_while(|folder| folder.starts_with(repository));
    let below = |folder: &Path| {
        [
            (".agents/agents", AgentDialect::Shared),
            (".aye/agents", AgentDialect::Own),
            (".claude/agents", AgentDialect::Shared),
        ]
        .map(|(name, form)| AgentRoot {
            dir: folder.join(name),
            scope: AgentScope::Project,
            form,
            boundary: Some(repository.to_path_buf()),
        })
    };
    folders.flat_map(below).collect()
}

/// The user's roots, first wins.
pub fn user_roots(config_dir: &Path, home: Option<&Path>) -> Vec<AgentRoot> {
    let root = |dir, form| AgentRoot { dir, scope: AgentScope::User, form, boundary: None };
    let mut roots = vec![root(config_dir.join("agents"), AgentDialect::Own)];
    if let Some(home) = home {
        roots.push(root(home.join(".claude/agents"), AgentDialect::Shared));
        roots.push(root(home.join(".agents/agents"), AgentDialect::Shared));
    }
    roots
}

/// Adds the agents of all roots, in their order.
pub fn discover(roots: &[AgentRoot], agents: &mut ParsedAgents) {
    discover_following(roots, agents, &|_| true);
}

/// The same, and follows links of the project only to files that `may_follow` says yes to: those that no rule keeps from
/// being read.
pub fn discover_following(
    roots: &[AgentRoot],
    agents: &mut ParsedAgents,
    may_follow: &dyn Fn(&Path) -> bool,
) {
    let mut seen = BTreeSet::new();
    for root in roots {
        let Ok(real) = root.dir.canonicalize() else { continue };
        let boundary = root.boundary.as_ref().map(|boundary| boundary.canonicalize());
        let below = root.boundary.as_ref().and_then(|boundary| root.dir.strip_prefix(boundary).ok());
        let boundary = match boundary {
            None => None,
            Some(Ok(boundary)) if real.starts_with(&boundary) => Some(boundary),
            Some(_) => {
                let message = "links out of the project; not followed";
                warn(agents, &root.dir, message.to_owned());
                continue;
            }
        };
        let is_link = |file: &Path| match (&boundary, below) {
            (None, _) => false,
            (Some(boundary), Some(below)) if boundary.join(below) == real => !file.starts_with(&real),
            (Some(_), _) => true,
        };
        for file in files(&real, boundary.as_deref(), agents) {
            if is_link(&file) && !may_follow(&file) {
                let message = "links to a file that rules keep from being read; not followed";
                warn(agents, &file, message.to_owned());
                continue;
            }
            // `.claude/agents` is often a link to `.agents/agents`: one agent, found twice, hides nothing.
            if seen.insert(file.clone()) {
                let (agent, issues) = read_file(&file, root.form, root.scope);
                agents.issues.extend(issues);
                if let Some(agent) = agent {
                    agents.add(agent);
                }
            }
        }
    }
}

fn warn(agents: &mut ParsedAgents, path: &Path, message: String) {
    let place = path.to_string_lossy().into_owned();
    agents.issues.push(AgentIssue { place, severity: Severity::Warning, message });
}

/// The files below a folder, links resolved, in the order of their names.
fn files(root: &Path, boundary: Option<&Path>, agents: &mut ParsedAgents) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([root.to_path_buf()]);
    let mut folders = vec![(root.to_path_buf(), 1)];
    while let Some((folder, depth)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            warn(agents, &folder, "cannot be read".to_owned());
            continue;
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_file = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("md"));
            if name.starts_with('.') || name.eq_ignore_ascii_case("README.md") {
                continue;
            }
            let real = match path.canonicalize() {
                Ok(real) => real,
                Err(error) if is_file => {
                    warn(agents, &path, format!("cannot be read: {error}"));
                    continue;
                }
                Err(_) => continue,
            };
            if boundary.is_some_and(|boundary| !real.starts_with(boundary)) {
                warn(agents, &path, "links out of the project; not followed".to_owned());
            } else if real.is_dir() {
                if depth < MAX_DEPTH && seen.len() < MAX_FOLDERS && seen.insert(real.clone()) {
                    folders.push((real, depth + 1));
                }
            } else if is_file && found.len() == MAX_FILES {
                warn(agents, root, format!("contains more than {MAX_FILES} agents; the rest is not read"));
                return found;
            } else if is_file {
                found.push(real);
            }
        }
    }
    found
}

/// Reads the file of one agent.
pub fn read_file(
    path: &Path,
    form: AgentDialect,
    scope: AgentScope,
) -> (Option<ParsedAgent>, Vec<AgentIssue>) {
    let file = path.to_string_lossy().into_owned();
    let message = match read_private(path, MAX_FILE) {
        Ok(Some(text)) => return read_text(path, file, &text, form, scope),
        Ok(None) => "cannot be read: it is gone".to_owned(),
        Err(error @ ReadTextError::NotText { line }) => format!("{error} (line {line})"),
        Err(error) => error.to_string(),
    };
    (None, vec![AgentIssue { place: file, severity: Severity::Error, message }])
}

fn read_text(
    path: &Path,
    file: String,
    text: &str,
    form: AgentDialect,
    scope: AgentScope,
) -> (Option<ParsedAgent>, Vec<AgentIssue>) {
    let mut reader = FrontMatterReader::new(path);
    let front = reader.read::<Map<String, Value>>(text);
    let place = |line: usize| if line == 0 { file.clone() } else { format!("{file}:{line}") };
    let mut issues: Vec<AgentIssue> = reader
        .issues
        .into_iter()
        .map(|issue| AgentIssue {
            place: place(issue.line),
            severity: issue.severity,
            message: issue.message,
        })
        .collect();
    let Some(Front { fields, yaml, body }) = front else { return (None, issues) };
    let places: SourceLocator = {
        let file = file.clone();
        Arc::new(move |pointer| match line_in(&yaml, pointer) {
            0 => file.clone(),
            line => format!("{file}:{line}"),
        })
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (agent, reported) = read_fields(&fields, &stem, Some(&body), form, scope, &places);
    issues.extend(reported);
    (agent.map(|agent| ParsedAgent { path: Some(path.to_path_buf()), ..agent }), issues)
}

/// The line of the file of a part of the front matter, or of the nearest part above it that is found.
fn line_in(yaml: &str, pointer: &str) -> usize {
    let mut parts = pointer.split('/').skip(1);
    let Some(first) = parts.next().filter(|part| !part.is_empty()) else { return 0 };
    let mut line = line_of(yaml, first);
    for part in parts {
        // Line numbers of the file count from 1 and start at the `---`.
        let below = yaml.lines().enumerate().skip(line - 1);
        let mut below =
            below.take_while(|(_, text)| text.trim().is_empty() || text.starts_with([' ', '-', '#']));
        let is_key = |text: &str| {
            let text = text.trim_start_matches([' ', '-', '{']).trim_start_matches(['"', '\'']);
            text.strip_prefix(part)
                .is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
        };
        if let Some((at, _)) = below.find(|(_, text)| is_key(text)) {
            line = at + 2;
        }
    }
    line
}
