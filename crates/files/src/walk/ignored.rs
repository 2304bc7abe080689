//! The verdict of ignore files on a path.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, statat};

use super::{MAX_IGNORE_FILE, WalkFilter};
use crate::opener::{self, FilePlace, PASSAGE, open_regular, open_regular_at, read_regular, read_start};

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
pub(super) struct IgnoreLevel {
    above: Option<Arc<IgnoreLevel>>,
    dot: Gitignore,
    git: Gitignore,
    exclude: Gitignore,
    /// Whether the folder is a repository: `.gitignore` files above a repository do not apply inside it.
    is_repository: bool,
}

/// Returns the verdict on an entry of a folder that is itself not ignored. The nearest file wins, and `.ignore` beats
/// `.gitignore`.
pub(super) fn matched(nearest: Option<&Arc<IgnoreLevel>>, path: &Path, is_dir: bool) -> Ignored {
    let levels =
        || std::iter::successors(nearest.map(AsRef::as_ref), |level: &&IgnoreLevel| level.above.as_deref());
    let verdict = |rules: &Gitignore| match rules.matched(path, is_dir) {
        Match::Ignore(_) => Some(Ignored::Yes),
        Match::Whitelist(_) => Some(Ignored::Never),
        Match::None => None,
    };
    if let Some(ignored) = levels().find_map(|level| verdict(&level.dot)) {
        return ignored;
    }
    let mut exclude = None;
    for level in levels() {
        if let Some(ignored) = verdict(&level.git) {
            return ignored;
        }
        exclude = exclude.or_else(|| verdict(&level.exclude));
        if level.is_repository {
            break;
        }
    }
    exclude.unwrap_or(Ignored::No)
}

/// Which ignore files count.
pub(super) struct IgnoreFiles {
    root: PathBuf,
    dot: bool,
    git: bool,
    parents: bool,
}

impl IgnoreFiles {
    pub(super) fn new(root: &Path, selection: &WalkFilter) -> IgnoreFiles {
        IgnoreFiles {
            root: root.to_owned(),
            dot: selection.dot_ignore,
            git: selection.git_ignore,
            parents: selection.parents,
        }
    }

    /// The level of a folder that was opened and listed; `above` is that of the one above it.
    pub(super) fn level(
        &self,
        folder: &OwnedFd,
        path: &Path,
        entries: &[(OsString, FileType, u64)],
        above: Option<Arc<IgnoreLevel>>,
    ) -> Option<Arc<IgnoreLevel>> {
        let kind = |name: &str| entries.iter().find(|(entry, ..)| entry == name).map(|(_, kind, _)| *kind);
        self.read(folder, path, above, &kind)
    }

    /// The level of the folders above the walked one, which is at `real`. One that became a link since has no ignore files.
    pub(super) fn above(&self, real: &Path) -> Option<Arc<IgnoreLevel>> {
        if !self.parents || (!self.dot && !self.git) {
            return None;
        }
        let folders: Vec<(&Path, &Path)> = self.root.ancestors().zip(real.ancestors()).skip(1).collect();
        let level = |above, (path, real): (&Path, &Path)| self.opened(real, path, above);
        folders.into_iter().rev().fold(None, level)
    }

    /// The level of a folder that is at `real`.
    fn opened(&self, real: &Path, path: &Path, above: Option<Arc<IgnoreLevel>>) -> Option<Arc<IgnoreLevel>> {
        let Ok(folder) = opener::open(real, PASSAGE) else { return above };
        let about = |name: &str| statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let kind = |name: &str| about(name).map(|about| FileType::from_raw_mode(about.st_mode));
        self.read(&folder, path, above, &kind)
    }

    /// The files of one folder; a folder without any has the level of the one above. As in git, a link is no ignore file.
    fn read(
        &self,
        folder: &OwnedFd,
        path: &Path,
        above: Option<Arc<IgnoreLevel>>,
        kind: &dyn Fn(&str) -> Option<FileType>,
    ) -> Option<Arc<IgnoreLevel>> {
        let file = |counts: bool, name: &str| match kind(name) {
            Some(FileType::RegularFile) if counts => {
                let file = open_regular_at(folder, OsStr::new(name)).ok();
                rules(path, file.and_then(|file| read_start(file, MAX_IGNORE_FILE)))
            }
            _ => Gitignore::empty(),
        };
        let git_dir = kind(".git").filter(|_| self.git);
        let (dot, git) = (file(self.dot, ".ignore"), file(self.git, ".gitignore"));
        let exclude = git_dir.and_then(|kind| excluded(folder, path, kind));
        let exclude = rules(path, exclude.and_then(|file| read_start(file, MAX_IGNORE_FILE)));
        if dot.is_empty() && git.is_empty() && exclude.is_empty() && git_dir.is_none() {
            return above;
        }
        Some(Arc::new(IgnoreLevel { above, dot, git, exclude, is_repository: git_dir.is_some() }))
    }
}

/// Opens a repository's own list of ignored files. A linked worktree names the repository that has it.
fn excluded(folder: &OwnedFd, path: &Path, kind: FileType) -> Option<File> {
    if kind == FileType::Directory {
        return FilePlace::beneath(folder, Path::new(".git/info/exclude")).ok()?.open_regular().ok();
    }
    open_regular(&common_dir(&path.join(".git"))?.join("info/exclude")).ok()
}

/// The levels of folders by name, each read when a walk first comes to it.
pub(super) struct NamedLevels {
    files: IgnoreFiles,
    known: Mutex<HashMap<PathBuf, Option<Arc<IgnoreLevel>>>>,
}

impl NamedLevels {
    pub(super) fn new(files: IgnoreFiles) -> NamedLevels {
        NamedLevels { files, known: Mutex::default() }
    }

    pub(super) fn of(&self, folder: &Path) -> Option<Arc<IgnoreLevel>> {
        // A panic under the lock leaves whole entries: each is inserted at once.
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(level) = known().get(folder).cloned() {
            return level;
        }
        let above = match folder.parent() {
            Some(parent) if folder != self.files.root => self.of(parent),
            _ => opener::resolve(folder).ok().and_then(|real| self.files.above(&real)),
        };
        let level = match opener::resolve(folder) {
            Ok(real) => self.files.opened(&real, folder, above),
            Err(_) => above,
        };
        known().insert(folder.to_owned(), level.clone());
        level
    }
}

/// Parses an ignore file of a folder.
fn rules(folder: &Path, bytes: Option<Vec<u8>>) -> Gitignore {
    let Some(bytes) = bytes else { return Gitignore::empty() };
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
        if let Err(error) = builder.add_line(None, line) {
            tracing::debug!(%error, folder = %folder.display(), "a line of an ignore file was skipped");
        }
    }
    builder.build().unwrap_or_else(|error| {
        tracing::debug!(%error, folder = %folder.display(), "an ignore file was skipped");
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
