//! Finds skills in folders, in the order of precedence, and keeps the first of each name.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::front_matter::{Severity, SkillIssue};
use super::registry::InMemorySkillRegistry;
use super::skill::{DOC, FsDiscovery, FsSkill, LinkPolicy, MayFollow, Skill, SkillError};
use aye_core::contract::display::visible_line;
use aye_files::foreign::is_foreign;

/// Maximum folders below a root that are read in total.
const MAX_FOLDERS: usize = 2000;
/// Maximum depth of a skill below a root.
const MAX_DEPTH: usize = 4;
/// Skills of one root.
const MAX_SKILLS: usize = 500;
/// The owner of the skills in a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillScope {
    /// The project's, used in trusted folders only.
    Project,
    User,
    /// Those that are compiled in.
    Bundled,
}

impl fmt::Display for SkillScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Project => "project",
            Self::User => "user",
            Self::Bundled => "built in",
        })
    }
}

/// A folder that contains skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillRoot {
    /// The folder; it may be missing.
    pub dir: PathBuf,
    /// The owner of its skills.
    pub scope: SkillScope,
    /// The folder that `dir` may not lead out of through links.
    pub boundary: Option<PathBuf>,
}

/// Returns the project's roots, from the working directory up to the repository's root; the first wins.
///
/// Only for folders that the user trusts.
pub fn project_roots(cwd: &Path, repository: &Path) -> Vec<SkillRoot> {
    let folders = cwd.ancestors().take_while(|folder| folder.starts_with(repository));
    let below = |folder: &Path| {
        [".agents/skills", ".aye/skills", ".claude/skills"].map(|name| SkillRoot {
            dir: folder.join(name),
            scope: SkillScope::Project,
            boundary: Some(repository.to_path_buf()),
        })
    };
    folders.flat_map(below).collect()
}

/// The user's roots, first wins.
pub fn user_roots(config_dir: &Path, home: Option<&Path>) -> Vec<SkillRoot> {
    let homes =
        home.into_iter().flat_map(|home| [".agents/skills", ".claude/skills"].map(|name| home.join(name)));
    std::iter::once(config_dir.join("skills"))
        .chain(homes)
        .map(|dir| SkillRoot { dir, scope: SkillScope::User, boundary: None })
        .collect()
}

/// A skill with the place it was found at.
#[derive(Clone)]
pub struct FoundSkill {
    pub skill: Arc<dyn Skill>,
    /// The owner of the skill.
    pub scope: SkillScope,
    /// The location of a skill with the same name that is used instead.
    pub hidden_by: Option<String>,
}

/// All skills of all roots.
#[derive(Clone, Default)]
pub struct Discovery {
    /// In order of precedence, hidden ones included.
    pub found: Vec<FoundSkill>,
    pub issues: Vec<SkillIssue>,
}

impl Discovery {
    /// The skills that can be used.
    pub fn registry(&self) -> InMemorySkillRegistry {
        let used = self.found.iter().filter(|found| found.hidden_by.is_none());
        InMemorySkillRegistry::from_skills(used.map(|found| Arc::clone(&found.skill)).collect())
    }

    fn add(&mut self, skill: Arc<dyn Skill>, scope: SkillScope) {
        let name = &skill.meta().name;
        let used =
            self.found.iter().find(|found| found.hidden_by.is_none() && found.skill.meta().name == *name);
        let hidden_by = used.map(|found| found.skill.location());
        if let Some(location) = &hidden_by {
            let message = format!(
                "skill `{name}` is not used, because {} defines one of the same name",
                visible_line(location)
            );
            self.issues.push(SkillIssue {
                path: skill.location().into(),
                line: 0,
                severity: Severity::Warning,
                message,
            });
        }
        self.found.push(FoundSkill { skill, scope, hidden_by });
    }
}

/// Finds the skills of all roots, in their order, and then the compiled-in ones.
pub fn discover(roots: &[SkillRoot], bundled: Vec<Arc<dyn Skill>>) -> Discovery {
    let may_follow: MayFollow = Arc::new(|_| true);
    discover_following(roots, bundled, &may_follow)
}

/// The same, and follows links of the project only to files that `may_follow` says yes to: those that no rule keeps from
/// being read. It is asked again each time that the skill is read.
pub fn discover_following(
    roots: &[SkillRoot],
    bundled: Vec<Arc<dyn Skill>>,
    may_follow: &MayFollow,
) -> Discovery {
    let mut discovery = Discovery::default();
    let mut seen = BTreeSet::new();
    for root in roots {
        let Ok(real) = root.dir.canonicalize() else { continue };
        let links = match &root.boundary {
            None => Some(LinkPolicy::All),
            Some(folder) => folder.canonicalize().ok().map(|boundary| {
                let below = root.dir.strip_prefix(folder).ok();
                let is_real = below.is_some_and(|below| boundary.join(below) == real);
                let root = is_real.then(|| real.clone());
                LinkPolicy::Inside { boundary, root, may_follow: Arc::clone(may_follow) }
            }),
        };
        let Some(links) = links.filter(|links| links.reach(&real)) else {
            let message = "links out of the project; not followed".to_owned();
            discovery.issues.push(SkillIssue {
                path: root.dir.clone(),
                line: 0,
                severity: Severity::Warning,
                message,
            });
            continue;
        };
        match walk(&real, Some(&links)) {
            Ok(found) => {
                discovery.issues.extend(found.warnings);
                // `.claude/skills` is often a link to `.agents/skills`: one skill, found twice, hides nothing.
                for skill in found.skills.into_iter().filter(|skill| seen.insert(skill.dir().to_path_buf())) {
                    discovery.add(Arc::new(skill), root.scope);
                }
            }
            Err(error) => {
                let message = format!("skills are not read: {error}");
                discovery.issues.push(SkillIssue {
                    path: real,
                    line: 0,
                    severity: Severity::Warning,
                    message,
                });
            }
        }
    }
    for skill in bundled {
        discovery.add(skill, SkillScope::Bundled);
    }
    // The same file seen through two roots says the same things twice.
    let mut warned = BTreeSet::new();
    discovery.issues.retain(|issue| warned.insert((issue.path.clone(), issue.line, issue.message.clone())));
    discovery
}

/// Finds the skills below one folder, following `links`; without them those that stay inside of it.
pub(crate) fn walk(root: &Path, links: Option<&LinkPolicy>) -> Result<FsDiscovery, SkillError> {
    let read = |source| SkillError::Read { path: root.to_path_buf(), source };
    let root = root.canonicalize().map_err(read)?;
    let links = links.cloned().unwrap_or_else(|| LinkPolicy::inside(root.clone()));
    fs::read_dir(&root).map_err(read)?;
    let mut found = FsDiscovery::default();
    let mut seen = BTreeSet::from([root.clone()]);
    let mut queue = vec![(root.clone(), String::new(), 0)];
    while let Some((folder, name, depth)) = queue.pop() {
        let warn = |found: &mut FsDiscovery, path: &Path, message: String| {
            found.warnings.push(SkillIssue {
                path: path.to_path_buf(),
                line: 0,
                severity: Severity::Warning,
                message,
            });
        };
        // The root itself is a list of skills, even if it contains a `SKILL.md`.
        if depth > 0 && folder.join(DOC).symlink_metadata().is_ok() {
            let (skill, issues) = FsSkill::load(&folder, &name, &links);
            found.warnings.extend(issues);
            found.skills.extend(skill);
            if found.skills.len() == MAX_SKILLS {
                warn(
                    &mut found,
                    &root,
                    format!("contains more than {MAX_SKILLS} skills; the rest is not read"),
                );
                break;
            }
            continue;
        }
        if depth == MAX_DEPTH {
            continue;
        }
        let Ok(entries) = fs::read_dir(&folder) else {
            warn(&mut found, &folder, "cannot be read".to_owned());
            continue;
        };
        let mut inner: Vec<(PathBuf, String)> = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if depth > 0 && name.eq_ignore_ascii_case(DOC) {
                let message = format!("is not read: the file of a skill is called {DOC}; rename it");
                warn(&mut found, &entry.path(), message);
                continue;
            }
            if is_foreign(&name) || !entry.path().is_dir() {
                continue;
            }
            match entry.path().canonicalize() {
                Ok(real) if !links.reach(&real) => {
                    warn(&mut found, &entry.path(), "links out of the project; not followed".to_owned());
                }
                Ok(real) if seen.insert(real.clone()) => inner.push((real, name.into_owned())),
                _ => {}
            }
        }
        if seen.len() > MAX_FOLDERS {
            warn(
                &mut found,
                &root,
                format!("contains more than {MAX_FOLDERS} folders; the rest is not read"),
            );
            break;
        }
        inner.sort();
        queue.extend(inner.into_iter().rev().map(|(folder, name)| (folder, name, depth + 1)));
    }
    Ok(found)
}
