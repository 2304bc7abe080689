//! [`ProtectedFiles`]: protected names anywhere below the workspace, compared before and after a command.
//!
//! At the root of a repository mounts keep them as they are, but not a name that is missing yet. Deeper down a mount would
//! also keep the folders above it from being moved.

use std::collections::{BTreeMap, HashMap};
use std::fs::Metadata;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::protected::{at_root, of_repository};

/// A folder that changed this shortly before it was read may change again without a new time.
const SETTLED: Duration = Duration::from_secs(2);
/// Folders of installed or built files: users do not work in them, and they contain files with such names.
const INSTALLED: &[&str] =
    &["node_modules", "target", ".venv", "venv", "site-packages", "__pycache__", ".tox"];
/// More protected files are not compared.
const MAX_FILES: usize = 5_000;
/// A larger file is not kept: that it changed is only reported.
const MAX_FILE: u64 = 256 * 1024;
/// Maximum bytes kept in total.
const MAX_KEPT: usize = 16 * 1024 * 1024;

/// The state of a folder, as far as it matters here.
#[derive(Debug, Clone, Default)]
struct Folder {
    /// When it last changed; `None` when that is too recent to rely on.
    changed: Option<SystemTime>,
    is_repository: bool,
    protected: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

/// A cache of where protected names are: only folders that changed are read again.
#[derive(Debug, Default)]
pub struct ProtectedFiles(Mutex<HashMap<PathBuf, Folder>>);

/// The attributes that distinguish one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    id: (u64, u64),
    size: u64,
    /// Set by the kernel with each change: no program chooses it.
    changed: (i64, i64),
    mode: u32,
    link: Option<PathBuf>,
}

impl FileState {
    fn of(path: &Path, metadata: &Metadata) -> FileState {
        FileState {
            id: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode(),
            link: path.read_link().ok(),
        }
    }
}

#[derive(Debug, Clone)]
struct KeptFile {
    state: FileState,
    content: Option<Vec<u8>>,
}

/// The protected files as they were before a command.
#[derive(Debug)]
pub struct ProtectedBefore {
    roots: Vec<PathBuf>,
    /// Entries with a protected name, and whether each is a link.
    entries: BTreeMap<PathBuf, bool>,
    files: BTreeMap<PathBuf, KeptFile>,
}

/// The handling of a protected name that a command changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The protected name.
    pub path: PathBuf,
    /// The path that now contains what the command wrote. `None`: that stays in place, because the earlier
    /// content is unknown.
    pub to: Option<PathBuf>,
    /// Whether the earlier content was restored.
    pub restored: bool,
}

impl ProtectedFiles {
    /// Looks through `roots`, so that a first command does not have to.
    pub fn prepare(&self, roots: &[&Path]) {
        drop(self.entries(roots));
    }

    /// Reads what exists below `roots`.
    pub fn before(&self, roots: &[&Path]) -> ProtectedBefore {
        let entries = self.entries(roots);
        let (mut files, mut kept) = (BTreeMap::new(), 0);
        for file in files_of(entries.keys()) {
            let Ok(metadata) = file.symlink_metadata() else { continue };
            let is_small = metadata.is_file() && metadata.size() <= MAX_FILE;
            let content = if is_small && kept < MAX_KEPT { std::fs::read(&file).ok() } else { None };
            kept += content.as_ref().map_or(0, Vec::len);
            files.insert(file.clone(), KeptFile { state: FileState::of(&file, &metadata), content });
        }
        let roots = roots.iter().map(|root| (*root).to_owned()).collect();
        ProtectedBefore { roots, entries, files }
    }

    /// The entries with a protected name.
    fn entries(&self, roots: &[&Path]) -> BTreeMap<PathBuf, bool> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *known);
        let mut found = BTreeMap::new();
        for root in roots {
            let mut open = vec![(*root).to_owned()];
            while let Some(path) = open.pop() {
                let Ok(metadata) = path.symlink_metadata() else { continue };
                if !metadata.is_dir() || known.contains_key(&path) {
                    continue;
                }
                let is_same =
                    |folder: &Folder| folder.changed.is_some() && folder.changed == metadata.modified().ok();
                let folder = before.remove(&path).filter(is_same).unwrap_or_else(|| read(&path, &metadata));
                // The contents of `.git` change without the folder itself changing.
                let below_git =
                    if folder.is_repository || path == *root { of_repository(&path) } else { Vec::new() };
                for entry in folder.protected.iter().chain(&below_git) {
                    if let Ok(metadata) = entry.symlink_metadata() {
                        found.insert(entry.clone(), metadata.is_symlink());
                    }
                }
                open.extend_from_slice(&folder.folders);
                known.insert(path, folder);
            }
        }
        found
    }
}

fn read(path: &Path, metadata: &Metadata) -> Folder {
    let now = SystemTime::now();
    let settled = |changed: &SystemTime| now.duration_since(*changed).is_ok_and(|age| age > SETTLED);
    let mut folder = Folder { changed: metadata.modified().ok().filter(settled), ..Folder::default() };
    folder.protected = at_root(path);
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name();
        folder.is_repository |= is_folder && name == ".git";
        let is_left_out = INSTALLED.iter().chain(&[".git", ".hg", ".svn", ".jj"]).any(|left| name == *left);
        if is_folder && !is_left_out && !folder.protected.contains(&entry.path()) {
            folder.folders.push(entry.path());
        }
    }
    folder
}

/// The files among these entries and below those that are folders. No link is followed.
fn files_of<'a>(entries: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let (mut open, mut found): (Vec<PathBuf>, Vec<PathBuf>) = (entries.cloned().collect(), Vec::new());
    while let Some(path) = open.pop() {
        if found.len() >= MAX_FILES {
            break;
        }
        if path.is_dir() && !path.is_symlink() {
            open.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else {
            found.push(path);
        }
    }
    found
}

impl ProtectedBefore {
    /// The protected names that are others now.
    pub fn changed(&self, files: &ProtectedFiles) -> Vec<PathBuf> {
        let roots: Vec<&Path> = self.roots.iter().map(PathBuf::as_path).collect();
        let now = files.entries(&roots);
        let is_new = |(path, is_link): (&PathBuf, &bool)| {
            (self.entries.get(path) != Some(is_link)).then(|| path.clone())
        };
        let mut changed: Vec<PathBuf> = now.iter().filter_map(is_new).collect();
        let others = files_of(now.keys())
            .into_iter()
            .filter(|file| !changed.iter().any(|entry| file.starts_with(entry)) && self.differs(file));
        let others: Vec<PathBuf> = others.collect();
        changed.extend(others);
        changed
    }

    fn differs(&self, file: &Path) -> bool {
        // More than can be compared: nothing is known of it.
        if self.files.len() >= MAX_FILES && !self.files.contains_key(file) {
            return false;
        }
        let Ok(metadata) = file.symlink_metadata() else { return false };
        let Some(kept) = self.files.get(file) else { return true };
        let now = FileState::of(file, &metadata);
        if now == kept.state {
            return false;
        }
        let is_alike = now.mode == kept.state.mode && now.link == kept.state.link && metadata.is_file();
        let content = || std::fs::read(file).ok();
        !(is_alike && kept.content.is_some() && kept.content == content())
    }

    /// Renames protected files that a command made or changed, so that nothing runs them, and puts back what was there
    /// before: `.envrc` becomes `set-aside-1-.envrc`.
    ///
    /// # Errors
    /// When one cannot be renamed or written.
    pub fn set_aside(&self, files: &ProtectedFiles) -> std::io::Result<Vec<SetAside>> {
        let mut moved = Vec::new();
        for path in self.changed(files) {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { continue };
            // Nothing below a link: `.git/info` may have become one.
            let above = folder.ancestors().take_while(|it| !self.roots.iter().any(|root| root == it));
            if above.into_iter().any(Path::is_symlink) {
                continue;
            }
            let kept = self.files.get(&path);
            if let Some(KeptFile { content: None, state }) = kept
                && state.link.is_none()
            {
                moved.push(SetAside { path, to: None, restored: false });
                continue;
            }
            // Some folders run every file in them that ends as it should.
            let end = if self.entries.contains_key(&path) || kept.is_none() && is_entry(&path, folder) {
                ""
            } else {
                ".txt"
            };
            let name = name.to_string_lossy();
            let free = (1..).map(|n| folder.join(format!("set-aside-{n}-{name}{end}")));
            let Some(to) = free.into_iter().find(|to| to.symlink_metadata().is_err()) else { continue };
            std::fs::rename(&path, &to)?;
            let restored = match kept {
                Some(kept) => restore(&path, kept).map(|()| true)?,
                None => false,
            };
            moved.push(SetAside { path, to: Some(to), restored });
        }
        Ok(moved)
    }
}

/// Whether a path has a protected name itself, rather than being in a folder that has one.
fn is_entry(path: &Path, folder: &Path) -> bool {
    at_root(folder).iter().any(|entry| entry == path)
}

fn restore(path: &Path, kept: &KeptFile) -> std::io::Result<()> {
    if let Some(target) = &kept.state.link {
        return std::os::unix::fs::symlink(target, path);
    }
    let mode = kept.state.mode & 0o7777;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(kept.content.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        for (name, text) in files {
            write(&root, name, text);
        }
        (dir, root)
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn names(root: &Path, moved: &[SetAside]) -> Vec<String> {
        let mut names: Vec<String> = moved
            .iter()
            .map(|it| {
                let to =
                    it.to.as_ref().and_then(|to| to.file_name()).map(|to| to.to_string_lossy().into_owned());
                let path = it.path.strip_prefix(root).expect("below").display();
                format!("{path} -> {} {}", to.unwrap_or_default(), it.restored)
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn created_or_changed_protected_files_are_set_aside_and_the_rest_stays() {
        let (_dir, root) = tree(&[
            ("a/AGENTS.md", "rules"),
            ("a/.vscode/tasks.json", "{}"),
            ("nested/.git/config", "[core]"),
            ("nested/.git/HEAD", "x"),
            ("nested/.git/hooks/sample", ""),
            ("plain/main.rs", ""),
            (".github/workflows/ci.yml", "on: push"),
        ]);
        let files = ProtectedFiles::default();
        let before = files.before(&[&root]);
        write(&root, "a/AGENTS.md", "obey");
        write(&root, "a/.vscode/settings.json", "{}");
        write(&root, "nested/.git/config", "[core]\nfsmonitor = evil");
        write(&root, "nested/.git/hooks/pre-commit", "evil");
        write(&root, "nested/.git/refs/x", "a commit");
        write(&root, "plain/deep/.envrc", "evil");
        write(&root, "plain/main.rs", "fn main() {}");
        write(&root, "node_modules/x/.vscode/tasks.json", "{}");
        write(&root, ".github/workflows/evil.yml", "on: push");
        let moved = before.set_aside(&files).expect("it is possible");
        assert_eq!(
            names(&root, &moved),
            [
                ".github/workflows/evil.yml -> set-aside-1-evil.yml.txt false",
                "a/.vscode/settings.json -> set-aside-1-settings.json.txt false",
                "a/AGENTS.md -> set-aside-1-AGENTS.md true",
                "nested/.git/config -> set-aside-1-config true",
                "nested/.git/hooks/pre-commit -> set-aside-1-pre-commit.txt false",
                "plain/deep/.envrc -> set-aside-1-.envrc false",
            ]
        );
        let text = |name: &str| std::fs::read_to_string(root.join(name)).expect("readable");
        assert_eq!(text("a/AGENTS.md"), "rules");
        assert_eq!(text("a/set-aside-1-AGENTS.md"), "obey");
        assert_eq!(text("nested/.git/config"), "[core]");
        assert!(!root.join("plain/deep/.envrc").exists() && root.join("node_modules/x/.vscode").exists());
        assert!(files.before(&[&root]).changed(&files).is_empty());
    }

    #[test]
    fn rewritten_and_removed_files_are_left_alone() {
        let (_dir, root) = tree(&[("a/.npmrc", "x"), ("b/.npmrc", "y")]);
        let files = ProtectedFiles::default();
        let before = files.before(&[&root]);
        write(&root, "a/.npmrc", "x");
        std::fs::remove_file(root.join("b/.npmrc")).expect("removed");
        assert!(before.changed(&files).is_empty());
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let (_dir, root) = tree(&[("home/.envrc", "mine"), ("work/a/x", "")]);
        let work = root.join("work");
        let files = ProtectedFiles::default();
        let before = files.before(&[&work]);
        std::os::unix::fs::symlink(root.join("home"), work.join("a/link")).expect("linked");
        std::os::unix::fs::symlink(root.join("home/.envrc"), work.join("a/.envrc")).expect("linked");
        let moved = before.set_aside(&files).expect("it is possible");
        assert_eq!(names(&work, &moved), ["a/.envrc -> set-aside-1-.envrc false"]);
        assert_eq!(std::fs::read_to_string(root.join("home/.envrc")).expect("readable"), "mine");
    }
}
