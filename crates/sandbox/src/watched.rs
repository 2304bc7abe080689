//! [`ProtectedFiles`]: protected names anywhere below the workspace, compared before and after a command.
//!
//! At the root of a repository mounts keep them as they are, but not a name that is missing yet. Deeper down a mount would
//! also keep the folders above it from being moved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::Metadata;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::folder_stamp::FolderStamp;
use crate::policy::common_git_folder;
use crate::protected::{INSTALLED, at_root, is_protected, of_repository};

/// More protected files are not compared.
const MAX_FILES: usize = 5_000;
/// A larger file is not kept: that it changed is only reported.
const MAX_FILE: u64 = 256 * 1024;
/// Maximum bytes kept in total.
const MAX_KEPT: usize = 16 * 1024 * 1024;
/// Characters of a name that are kept when a file is set aside: with four bytes each there is space for what is added.
const MAX_NAME: usize = 50;
/// Maximum depth of folders in folders that a command closed.
const MAX_DEPTH: usize = 100;

/// The state of a folder, as far as it matters here.
#[derive(Debug, Clone, Default)]
struct Folder {
    stamp: Option<FolderStamp>,
    is_closed: bool,
    is_repository: bool,
    protected: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

/// A cache of where protected names are: only folders that changed are read again.
#[derive(Debug, Default)]
pub struct ProtectedFiles(Mutex<HashMap<PathBuf, Folder>>);

/// The protected names below some folders.
#[derive(Debug, Default)]
struct Entries {
    /// Entries with a protected name, and whether each is a link.
    protected: BTreeMap<PathBuf, bool>,
    /// Folders that cannot be read.
    closed: Vec<PathBuf>,
}

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
    /// Those of them that are the repositories of linked worktrees. What the command writes does not change that.
    linked: Vec<PathBuf>,
    entries: Entries,
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
    /// Whether the earlier content was restored; `None` if there was none.
    pub restored: Option<bool>,
}

impl ProtectedFiles {
    /// Looks through `roots`, so that a first command does not have to.
    pub fn prepare(&self, roots: &[&Path]) {
        drop(self.entries(SystemTime::now(), roots, &linked(roots)));
    }

    /// Reads what exists below `roots`.
    pub fn before(&self, roots: &[&Path]) -> ProtectedBefore {
        self.before_at(SystemTime::now(), roots)
    }

    fn before_at(&self, now: SystemTime, roots: &[&Path]) -> ProtectedBefore {
        let linked = linked(roots);
        let entries = self.entries(now, roots, &linked);
        let (mut files, mut kept) = (BTreeMap::new(), 0);
        for file in files_of(entries.protected.keys(), MAX_FILES) {
            let Ok(metadata) = file.symlink_metadata() else { continue };
            let is_small = metadata.is_file() && metadata.size() <= MAX_FILE;
            let content = if is_small && kept < MAX_KEPT { std::fs::read(&file).ok() } else { None };
            kept += content.as_ref().map_or(0, Vec::len);
            files.insert(file.clone(), KeptFile { state: FileState::of(&file, &metadata), content });
        }
        let roots = roots.iter().map(|root| (*root).to_owned()).collect();
        ProtectedBefore { roots, linked, entries, files }
    }

    fn entries(&self, now: SystemTime, roots: &[&Path], linked: &[PathBuf]) -> Entries {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *known);
        let mut found = Entries::default();
        for root in roots {
            // Each commit and each switch changes its `HEAD` and logs.
            if linked.iter().any(|git| git == root) {
                let entries = of_repository(root).into_iter();
                found.protected.extend(
                    entries
                        .filter_map(|path| Some((path.clone(), path.symlink_metadata().ok()?.is_symlink()))),
                );
                continue;
            }
            let mut open = vec![(*root).to_owned()];
            while let Some(path) = open.pop() {
                let Ok(metadata) = path.symlink_metadata() else { continue };
                if !metadata.is_dir() || known.contains_key(&path) {
                    continue;
                }
                let is_same =
                    |folder: &Folder| folder.stamp.as_ref().is_some_and(|stamp| stamp.is_of(&metadata));
                let folder =
                    before.remove(&path).filter(is_same).unwrap_or_else(|| read(&path, &metadata, now));
                // The contents of `.git` change without the folder itself changing.
                let below_git =
                    if folder.is_repository || path == *root { of_repository(&path) } else { Vec::new() };
                for entry in folder.protected.iter().chain(&below_git) {
                    if let Ok(metadata) = entry.symlink_metadata() {
                        found.protected.insert(entry.clone(), metadata.is_symlink());
                        if metadata.is_dir() && metadata.mode() & 0o500 != 0o500 {
                            found.closed.push(entry.clone());
                        }
                    }
                }
                if folder.is_closed {
                    found.closed.push(path.clone());
                }
                open.extend_from_slice(&folder.folders);
                known.insert(path, folder);
            }
        }
        found
    }
}

/// The roots that are the repository of another root, a linked worktree.
fn linked(roots: &[&Path]) -> Vec<PathBuf> {
    roots
        .iter()
        .filter_map(|root| common_git_folder(root))
        .filter(|git| roots.contains(&git.as_path()))
        .collect()
}

fn read(path: &Path, metadata: &Metadata, now: SystemTime) -> Folder {
    let mut folder = Folder { stamp: FolderStamp::settled(metadata, now), ..Folder::default() };
    folder.protected = at_root(path);
    let entries = std::fs::read_dir(path);
    folder.is_closed =
        entries.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    for entry in entries.into_iter().flatten().flatten() {
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

/// The files among these entries and below those that are folders, at most about this many. No link is followed.
fn files_of<'a>(entries: impl Iterator<Item = &'a PathBuf>, most: usize) -> Vec<PathBuf> {
    let (mut open, mut found): (Vec<PathBuf>, Vec<PathBuf>) = (entries.cloned().collect(), Vec::new());
    while let Some(path) = open.pop() {
        if found.len() >= most {
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
        self.changed_at(SystemTime::now(), files)
    }

    fn changed_at(&self, now: SystemTime, files: &ProtectedFiles) -> Vec<PathBuf> {
        let now = files.entries(now, &self.roots(), &self.linked).protected;
        let is_new = |(path, is_link): (&PathBuf, &bool)| {
            (self.entries.protected.get(path) != Some(is_link)).then(|| path.clone())
        };
        let changed: BTreeSet<PathBuf> = now.iter().filter_map(is_new).collect();
        // The command may have added any number of files: what it changed must not be left over because of them.
        let all = files_of(now.keys(), if self.is_complete() { usize::MAX } else { 0 });
        let others = self.files.keys().chain(all.iter().filter(|file| !self.files.contains_key(*file)));
        let others = others
            .filter(|file| !file.ancestors().any(|it| changed.contains(it)) && self.differs(file))
            .cloned();
        let others: Vec<PathBuf> = others.collect();
        changed.into_iter().chain(others).collect()
    }

    fn roots(&self) -> Vec<&Path> {
        self.roots.iter().map(PathBuf::as_path).collect()
    }

    /// Whether all protected files are known, rather than more than can be compared.
    fn is_complete(&self) -> bool {
        self.files.len() < MAX_FILES
    }

    fn differs(&self, file: &Path) -> bool {
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
    /// before: `.envrc` becomes `set-aside-1-.envrc`. Folders that the command closed are opened again.
    pub fn set_aside(&self, files: &ProtectedFiles) -> Vec<SetAside> {
        self.set_aside_at(SystemTime::now(), files)
    }

    fn set_aside_at(&self, now: SystemTime, files: &ProtectedFiles) -> Vec<SetAside> {
        // Each time, folders in those that were opened come to light.
        for _ in 0..MAX_DEPTH {
            let closed = files.entries(now, &self.roots(), &self.linked).closed;
            let closed: Vec<_> =
                closed.iter().filter(|folder| !self.entries.closed.contains(folder)).collect();
            if closed.iter().filter(|folder| open_up(folder)).count() == 0 {
                break;
            }
        }
        let mut moved = Vec::new();
        for (at, path) in self.changed_at(now, files).into_iter().enumerate() {
            let Some(folder) = path.parent() else { continue };
            // Nothing below a link: `.git/info` may have become one.
            let mut above = folder.ancestors().take_while(|it| !self.roots.iter().any(|root| root == it));
            if above.any(Path::is_symlink) {
                continue;
            }
            let mut result = self.move_aside(at, &path, folder);
            if result.is_err() && open_up(folder) {
                result = self.move_aside(at, &path, folder);
            }
            moved.push(result.unwrap_or(SetAside { path, to: None, restored: None }));
        }
        moved
    }

    /// `at` counts the files of one command.
    fn move_aside(&self, at: usize, path: &Path, folder: &Path) -> std::io::Result<SetAside> {
        let kept = self.files.get(path);
        if let Some(KeptFile { content: None, state }) = kept
            && state.link.is_none()
        {
            return Ok(SetAside { path: path.to_owned(), to: None, restored: Some(false) });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Some folders run every file in them that ends as it should.
        let is_named = self.entries.protected.contains_key(path) || kept.is_none() && is_protected(&name);
        let end = if is_named { "" } else { ".txt" };
        // Names that are cut may be many that are the same then.
        let short: String = name.chars().take(MAX_NAME).collect();
        let first = if short.len() < name.len() { at + 1 } else { 1 };
        let mut free = (first..).map(|n| folder.join(format!("set-aside-{n}-{short}{end}")));
        let to = free.find(|to| to.symlink_metadata().is_err()).unwrap_or_default();
        std::fs::rename(path, &to)?;
        let restored = kept.map(|kept| restore(path, kept).is_ok());
        Ok(SetAside { path: path.to_owned(), to: Some(to), restored })
    }
}

/// Gives the owner all rights to a folder, and returns whether that changed something.
fn open_up(folder: &Path) -> bool {
    let Ok(metadata) = folder.symlink_metadata() else { return false };
    let mode = metadata.mode() & 0o7777;
    let is_closed = metadata.is_dir() && mode & 0o700 != 0o700;
    is_closed && std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | 0o700)).is_ok()
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
                format!("{path} -> {} {}", to.unwrap_or_default(), it.restored == Some(true))
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
        let moved = before.set_aside(&files);
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
    fn commits_and_switches_in_a_linked_worktree_stay() {
        let (_dir, root) = tree(&[
            ("main/.git/HEAD", "ref: refs/heads/main"),
            ("main/.git/config", "[core]"),
            ("main/.git/objects/x", ""),
            ("main/.git/worktrees/t/HEAD", "ref: refs/heads/t"),
            ("main/.git/worktrees/t/commondir", "../.."),
            ("main/.git/worktrees/t/logs/HEAD", "one"),
        ]);
        let (git, tree) = (root.join("main/.git"), root.join("t"));
        write(&tree, ".git", &format!("gitdir: {}", git.join("worktrees/t").display()));
        write(&git, "worktrees/t/gitdir", &tree.join(".git").display().to_string());
        let files = ProtectedFiles::default();
        let before = files.before(&[&git, &tree]);
        write(&git, "worktrees/t/HEAD", "ref: refs/heads/other");
        write(&git, "worktrees/t/logs/HEAD", "one two");
        write(&git, "worktrees/t/commondir", "/evil");
        write(&git, "config", "[core] fsmonitor = evil");
        let moved = before.set_aside(&files);
        assert_eq!(
            names(&git, &moved),
            ["config -> set-aside-1-config true", "worktrees/t/commondir -> set-aside-1-commondir true"]
        );
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
        let moved = before.set_aside(&files);
        assert_eq!(names(&work, &moved), ["a/.envrc -> set-aside-1-.envrc false"]);
        assert_eq!(std::fs::read_to_string(root.join("home/.envrc")).expect("readable"), "mine");
    }

    /// As if the files had not changed for a long time.
    fn later() -> SystemTime {
        SystemTime::now() + std::time::Duration::from_hours(1)
    }

    #[test]
    fn a_folder_with_its_old_times_is_read_again() {
        let (_dir, root) = tree(&[("sub/x", "")]);
        let sub = root.join("sub");
        let files = ProtectedFiles::default();
        let before = files.before_at(later(), &[&root]);
        let metadata = sub.metadata().expect("it exists");
        let times = std::fs::FileTimes::new()
            .set_modified(metadata.modified().expect("it has one"))
            .set_accessed(metadata.accessed().expect("it has one"));
        // The clock of a file system may be coarse.
        while sub.metadata().expect("it exists").ctime_nsec() == metadata.ctime_nsec() {
            write(&root, "sub/.envrc", "evil");
            let folder = std::fs::File::open(&sub).expect("opened");
            folder.set_times(times).expect("changed");
        }
        assert_eq!(sub.metadata().expect("it exists").modified().ok(), metadata.modified().ok());
        let moved = before.set_aside_at(later(), &files);
        assert_eq!(names(&root, &moved), ["sub/.envrc -> set-aside-1-.envrc false"]);
    }

    #[test]
    fn one_file_that_cannot_be_set_aside_does_not_save_the_others() {
        let (_dir, root) = tree(&[("a/x", ""), ("big/.npmrc", "mine")]);
        let files = ProtectedFiles::default();
        let before = files.before(&[&root]);
        let long = format!("AGENTS{}.md", "x".repeat(240));
        write(&root, &format!("a/{long}"), "decoy");
        write(&root, &format!("a/{}", long.replace("x.md", "y.md")), "decoy");
        write(&root, "big/.npmrc", "evil");
        let moved = before.set_aside(&files);
        assert_eq!(moved.iter().filter(|it| it.to.is_some()).count(), 3, "{moved:?}");
        assert_eq!(std::fs::read_to_string(root.join("big/.npmrc")).expect("readable"), "mine");
        assert!(!root.join("a").join(&long).exists());
    }

    #[test]
    fn many_new_files_do_not_hide_a_change() {
        let (_dir, root) = tree(&[("a/.vscode/tasks.json", "{}"), ("z/.vscode/tasks.json", "{}")]);
        let files = ProtectedFiles::default();
        let before = files.before(&[&root]);
        for folder in ["a", "z"] {
            write(&root, &format!("{folder}/.vscode/tasks.json"), "evil");
            for n in 0..MAX_FILES {
                write(&root, &format!("{folder}/.vscode/{n}"), "");
            }
        }
        let moved = before.set_aside(&files);
        assert_eq!(moved.len(), 2 * MAX_FILES + 2);
        for folder in ["a", "z"] {
            let file = root.join(folder).join(".vscode/tasks.json");
            assert_eq!(std::fs::read_to_string(file).expect("readable"), "{}");
        }
    }

    /// A user who is not root cannot read them.
    #[test]
    fn closed_folders_are_opened() {
        let (_dir, root) = tree(&[("a/b/x", ""), ("fixed/x", ""), ("c/.vscode/tasks.json", "")]);
        let files = ProtectedFiles::default();
        let before = files.before(&[&root]);
        write(&root, "c/.vscode/tasks.json", "evil");
        write(&root, "a/b/.envrc", "evil");
        write(&root, "fixed/.envrc", "evil");
        let close = |name: &str, mode| {
            std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(mode))
                .expect("changed");
        };
        close("fixed", 0o500);
        close("a/b", 0);
        close("a", 0);
        close("c/.vscode", 0);
        let moved = before.set_aside(&files);
        assert_eq!(
            names(&root, &moved),
            [
                "a/b/.envrc -> set-aside-1-.envrc false",
                "c/.vscode/tasks.json -> set-aside-1-tasks.json.txt true",
                "fixed/.envrc -> set-aside-1-.envrc false"
            ]
        );
    }
}
