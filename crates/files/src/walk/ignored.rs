//! The verdict of ignore files on a path.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::{MAX_IGNORE_FILE, WalkFilter, read_regular};

/// The verdict of the ignore files on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ignored {
    /// A pattern names it.
    Yes,
    /// A pattern with `!` names it.
    Never,
    /// No pattern names it.
    No,
}

/// The ignore files of one folder that has any, or of a repository's root.
struct Level {
    above: Option<Arc<Level>>,
    dot: Gitignore,
    git: Gitignore,
    exclude: Gitignore,
    /// Whether the folder is a repository: `.gitignore` files above a repository do not apply inside it.
    is_repository: bool,
}

/// The ignore files of a tree, each read when a walk first comes to its folder.
pub(super) struct IgnoreFiles {
    root: PathBuf,
    dot: bool,
    git: bool,
    parents: bool,
    levels: Mutex<HashMap<PathBuf, Option<Arc<Level>>>>,
}

impl IgnoreFiles {
    pub(super) fn new(root: &Path, selection: &WalkFilter) -> IgnoreFiles {
        IgnoreFiles {
            root: root.to_owned(),
            dot: selection.dot_ignore,
            git: selection.git_ignore,
            parents: selection.parents,
            levels: Mutex::default(),
        }
    }

    /// Returns the verdict on an entry of a folder that is itself not ignored. The nearest file wins, and
    /// `.ignore` beats `.gitignore`.
    pub(super) fn matched(&self, path: &Path, is_dir: bool) -> Ignored {
        if !self.dot && !self.git {
            return Ignored::No;
        }
        let Some(folder) = path.parent() else { return Ignored::No };
        let nearest = self.level(folder);
        let levels = || std::iter::successors(nearest.as_deref(), |level| level.above.as_deref());
        let verdict = |rules: &Gitignore| match rules.matched(path, is_dir) {
            Match::Ignore(_) => Some(Ignored::Yes),
            Match::Whitelist(_) => Some(Ignored::Never),
            Match::None => None,
        };
        if let Some(said) = levels().find_map(|level| verdict(&level.dot)) {
            return said;
        }
        let mut exclude = None;
        for level in levels() {
            if let Some(said) = verdict(&level.git) {
                return said;
            }
            exclude = exclude.or_else(|| verdict(&level.exclude));
            if level.is_repository {
                break;
            }
        }
        exclude.unwrap_or(Ignored::No)
    }

    fn level(&self, folder: &Path) -> Option<Arc<Level>> {
        // A panic under the lock leaves whole entries: each is inserted at once.
        let known = self.levels.lock().unwrap_or_else(PoisonError::into_inner).get(folder).cloned();
        if let Some(known) = known {
            return known;
        }
        let above = match folder.parent() {
            Some(parent) if folder != self.root || self.parents => self.level(parent),
            _ => None,
        };
        let level = self.read(folder, above);
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        levels.insert(folder.to_owned(), level.clone());
        level
    }

    /// The files of one folder; a folder without any has the level of the one above.
    fn read(&self, folder: &Path, above: Option<Arc<Level>>) -> Option<Arc<Level>> {
        let rules =
            |wanted: bool, file: &Path| if wanted { read_rules(folder, file) } else { Gitignore::empty() };
        let git_dir = folder.join(".git");
        let is_repository = self.git && git_dir.symlink_metadata().is_ok();
        let dot = rules(self.dot, &folder.join(".ignore"));
        let git = rules(self.git, &folder.join(".gitignore"));
        let exclude = match is_repository.then(|| common_dir(&git_dir)).flatten() {
            Some(common) => rules(self.git, &common.join("info/exclude")),
            None => Gitignore::empty(),
        };
        if dot.is_empty() && git.is_empty() && exclude.is_empty() && !is_repository {
            return above;
        }
        Some(Arc::new(Level { above, dot, git, exclude, is_repository }))
    }
}

fn read_rules(folder: &Path, file: &Path) -> Gitignore {
    let Some(bytes) = read_regular(file, MAX_IGNORE_FILE) else { return Gitignore::empty() };
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
        if let Err(error) = builder.add_line(None, line) {
            tracing::debug!(%error, file = %file.display(), "a line of an ignore file was skipped");
        }
    }
    builder.build().unwrap_or_else(|error| {
        tracing::debug!(%error, file = %file.display(), "an ignore file was skipped");
        Gitignore::empty()
    })
}

/// The folder that the worktrees of a repository share: `.git` itself, or where the file `.git` points to.
fn common_dir(git_dir: &Path) -> Option<PathBuf> {
    if git_dir.is_dir() {
        return Some(git_dir.to_owned());
    }
    let line = |file: &Path| -> Option<String> {
        let text = String::from_utf8(read_regular(file, 4096)?).ok()?;
        Some(text.lines().next()?.trim().to_owned())
    };
    let link = line(git_dir)?;
    let own = git_dir.parent()?.join(link.strip_prefix("gitdir:")?.trim());
    let common = line(&own.join("commondir"))?;
    Some(own.join(common))
}
