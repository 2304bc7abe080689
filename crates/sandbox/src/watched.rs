//! [`ProtectedFiles`]: protected names anywhere below the workspace, compared before and after a command.
//!
//! At the root of a repository mounts keep them as they are, but not a name that is missing yet. Deeper down a mount would
//! also keep the folders above it from being moved.
//!
//! Other processes may write in the workspace meanwhile. So everything happens beneath a descriptor of the workspace, no
//! link is followed, and nothing is ever removed or overwritten: a file is renamed to a name that is free, and made where
//! there is none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FileType, Mode, Stat};

use crate::folder::{InodeId, OpenFolder, kind_of};
use crate::folder_stamp::FolderStamp;
use crate::policy::common_git_folder;
use crate::protected::{INSTALLED, SET_ASIDE, at_root, of_repository};

/// More protected files are not compared.
const MAX_FILES: usize = 5_000;
/// A larger file is not kept: that it changed is only reported.
const MAX_FILE: u64 = 256 * 1024;
/// Maximum bytes kept in total.
const MAX_KEPT: usize = 16 * 1024 * 1024;
/// Maximum depth of folders in folders that a command closed.
const MAX_DEPTH: usize = 100;
/// How often files are set aside that became others between being compared and being renamed.
const MAX_ROUNDS: usize = 3;

/// The state of a folder, as far as it matters here.
#[derive(Debug, Clone, Default)]
struct FolderState {
    stamp: Option<FolderStamp>,
    is_closed: bool,
    is_repository: bool,
    protected: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl FolderState {
    /// Whether only the folders in it matter.
    fn has_nothing(&self) -> bool {
        !self.is_closed && !self.is_repository && self.protected.is_empty()
    }
}

/// A cache of where protected names are: only folders that changed are read again.
#[derive(Debug, Default)]
pub struct ProtectedFiles(Mutex<HashMap<PathBuf, FolderState>>);

/// The protected names below some folders.
#[derive(Debug, Default)]
struct Entries {
    /// Entries with a protected name, and whether each is a link.
    protected: BTreeMap<PathBuf, bool>,
    /// Folders that cannot be read.
    closed: Vec<PathBuf>,
}

/// A folder whose protected files are compared.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    folder: OpenFolder,
    /// The repository of another root, a linked worktree. What the command writes does not change that.
    is_linked: bool,
}

#[derive(Debug)]
struct Roots(Vec<Root>);

impl Roots {
    /// Roots that cannot be opened have no files.
    fn open(paths: &[&Path]) -> Roots {
        let linked: Vec<PathBuf> = paths
            .iter()
            .filter_map(|path| common_git_folder(path))
            .filter(|git| paths.contains(&git.as_path()))
            .collect();
        let open = |path: &&Path| {
            let folder = OpenFolder::open(path).ok()?;
            Some(Root { path: path.to_path_buf(), folder, is_linked: linked.iter().any(|it| it == path) })
        };
        Roots(paths.iter().filter_map(open).collect())
    }

    /// The root of a path, and the path from there.
    fn of<'p>(&self, path: &'p Path) -> io::Result<(&Root, &'p Path)> {
        let found = self.0.iter().find_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn folder(&self, path: &Path) -> io::Result<OpenFolder> {
        let (root, rest) = self.of(path)?;
        root.folder.folder(rest)
    }

    fn place(&self, path: &Path) -> io::Result<(OpenFolder, OsString)> {
        let (root, rest) = self.of(path)?;
        let (folder, name) = root.folder.place(rest)?;
        Ok((folder, name.to_owned()))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let (folder, name) = self.place(path)?;
        folder.stat(name)
    }
}

/// The attributes that distinguish one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    /// Its identity and the time of its last change, which the kernel sets: no program chooses it.
    stamp: FolderStamp,
    size: u64,
    mode: u32,
    link: Option<PathBuf>,
}

impl FileState {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    fn of(stat: &Stat, link: Option<PathBuf>) -> FileState {
        FileState {
            stamp: FolderStamp::of_stat(stat),
            size: stat.st_size as u64,
            mode: stat.st_mode as u32,
            link,
        }
    }
}

#[derive(Debug, Clone)]
struct KeptFile {
    state: FileState,
    content: Option<Vec<u8>>,
}

impl KeptFile {
    /// Reads a file, with its content if it is small enough and there is `space`.
    fn read(folder: &OpenFolder, name: &OsString, space: bool) -> io::Result<KeptFile> {
        let stat = folder.stat(name)?;
        if kind_of(&stat) == FileType::Symlink {
            let target = folder.link_target(name)?;
            return Ok(KeptFile { state: FileState::of(&stat, Some(target)), content: None });
        }
        let read = if space { folder.read(name, MAX_FILE).ok().flatten() } else { None };
        Ok(match read {
            // What was read is what was looked at.
            Some((stat, content)) => KeptFile { state: FileState::of(&stat, None), content: Some(content) },
            None => KeptFile { state: FileState::of(&stat, None), content: None },
        })
    }

    /// Whether it is the same as before, rather than written again with other attributes or another content.
    fn is_as(&self, before: &KeptFile) -> bool {
        let (now, then) = (&self.state, &before.state);
        let is_alike = now.mode == then.mode && now.link == then.link;
        now == then || is_alike && self.content.is_some() && self.content == before.content
    }
}

/// The protected files as they were before a command.
#[derive(Debug)]
pub struct ProtectedBefore {
    roots: Roots,
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
        drop(self.entries(SystemTime::now(), &Roots::open(roots)));
    }

    /// Reads what exists below `roots`.
    pub fn before(&self, roots: &[&Path]) -> ProtectedBefore {
        self.before_at(SystemTime::now(), roots)
    }

    fn before_at(&self, now: SystemTime, roots: &[&Path]) -> ProtectedBefore {
        let roots = Roots::open(roots);
        let entries = self.entries(now, &roots);
        let (mut files, mut kept) = (BTreeMap::new(), 0);
        for file in files_of(&roots, entries.protected.keys(), MAX_FILES) {
            let Ok((folder, name)) = roots.place(&file) else { continue };
            let Ok(state) = KeptFile::read(&folder, &name, kept < MAX_KEPT) else { continue };
            kept += state.content.as_ref().map_or(0, Vec::len);
            files.insert(file, state);
        }
        ProtectedBefore { roots, entries, files }
    }

    fn entries(&self, now: SystemTime, roots: &Roots) -> Entries {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *known);
        let mut found = Entries::default();
        for root in &roots.0 {
            // Each commit and each switch changes its `HEAD` and logs.
            if root.is_linked {
                let is_link = |path: &PathBuf| Some(kind_of(&root.folder.stat_beneath(path).ok()?));
                found.protected.extend(
                    of_repository(&root.folder).into_iter().filter_map(|path| {
                        Some((root.path.join(&path), is_link(&path)? == FileType::Symlink))
                    }),
                );
                continue;
            }
            let mut open = vec![PathBuf::new()];
            while let Some(rest) = open.pop() {
                let path =
                    if rest.as_os_str().is_empty() { root.path.clone() } else { root.path.join(&rest) };
                if known.contains_key(&path) {
                    continue;
                }
                // A folder with the same stamp is the same one, whatever its path leads through.
                let is_root = rest.as_os_str().is_empty();
                let Ok(stat) = root.folder.stat_loosely(&rest) else { continue };
                let stamp = FolderStamp::of_stat(&stat);
                let mut known_state = before.remove(&path);
                known_state.take_if(|state| state.stamp.as_ref() != Some(&stamp));
                if let Some(state) = known_state.take_if(|state| !is_root && state.has_nothing()) {
                    open.extend(state.folders.iter().map(|name| rest.join(name)));
                    known.insert(path, state);
                    continue;
                }
                let Ok(folder) = root.folder.folder(&rest) else { continue };
                let Ok(stat) = folder.own_stat() else { continue };
                let stamp = FolderStamp::of_stat(&stat);
                known_state.take_if(|state| state.stamp.as_ref() != Some(&stamp));
                let state = known_state.unwrap_or_else(|| read(&folder, stamp, now));
                // The contents of `.git` change without the folder itself changing.
                let below_git =
                    if state.is_repository || is_root { of_repository(&folder) } else { Vec::new() };
                // What aye sets aside is no change.
                let all = state.protected.iter().chain(&below_git);
                for entry in all.filter(|entry| !(is_root && *entry == Path::new(SET_ASIDE))) {
                    if let Ok(stat) = folder.stat_beneath(entry) {
                        found.protected.insert(path.join(entry), kind_of(&stat) == FileType::Symlink);
                        if kind_of(&stat) == FileType::Directory && stat.st_mode & 0o500 != 0o500 {
                            found.closed.push(path.join(entry));
                        }
                    }
                }
                if state.is_closed {
                    found.closed.push(path.clone());
                }
                open.extend(state.folders.iter().map(|name| rest.join(name)));
                known.insert(path, state);
            }
        }
        found
    }
}

fn read(folder: &OpenFolder, stamp: FolderStamp, now: SystemTime) -> FolderState {
    let mut state = FolderState { stamp: stamp.settled_at(now), ..FolderState::default() };
    state.protected = at_root(folder);
    let entries = folder.entries();
    state.is_closed = entries.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    for entry in entries.unwrap_or_default() {
        let name = &entry.name;
        state.is_repository |= entry.is_folder() && name == ".git";
        let mut left_out = INSTALLED.iter().chain(&[".git", ".hg", ".svn", ".jj"]);
        let is_left_out = left_out.any(|left| name == *left);
        if entry.is_folder() && !is_left_out && !state.protected.iter().any(|path| path.as_os_str() == name) {
            state.folders.push(name.into());
        }
    }
    state
}

/// The files among these entries and below those that are folders, at most about this many. No link is followed.
fn files_of<'a>(roots: &Roots, entries: impl Iterator<Item = &'a PathBuf>, most: usize) -> Vec<PathBuf> {
    let (mut open, mut found): (Vec<PathBuf>, Vec<PathBuf>) = (entries.cloned().collect(), Vec::new());
    while let Some(path) = open.pop() {
        if found.len() >= most {
            break;
        }
        match roots.stat(&path) {
            Ok(stat) if kind_of(&stat) == FileType::Directory => {
                let entries = roots.folder(&path).and_then(|folder| folder.entries()).unwrap_or_default();
                open.extend(entries.iter().map(|entry| path.join(&entry.name)));
            }
            Ok(_) => found.push(path),
            Err(_) => {}
        }
    }
    found
}

impl ProtectedBefore {
    /// The protected names that are others now.
    pub fn changed(&self, files: &ProtectedFiles) -> Vec<PathBuf> {
        self.changed_at(SystemTime::now(), files).into_keys().collect()
    }

    /// Each with its identity.
    fn changed_at(&self, now: SystemTime, files: &ProtectedFiles) -> BTreeMap<PathBuf, InodeId> {
        let now = files.entries(now, &self.roots).protected;
        let is_new = |(path, is_link): (&PathBuf, &bool)| {
            (self.entries.protected.get(path) != Some(is_link)).then(|| path.clone())
        };
        let changed: BTreeSet<PathBuf> = now.iter().filter_map(is_new).collect();
        // The command may have added any number of files: what it changed must not be left over because of them.
        let most = if self.is_complete() { usize::MAX } else { 0 };
        let all = files_of(&self.roots, now.keys(), most);
        let others = self.files.keys().chain(all.iter().filter(|file| !self.files.contains_key(*file)));
        let is_below = |file: &Path| file.ancestors().any(|it| changed.contains(it));
        let others = others
            .filter(|file| !is_below(file))
            .filter_map(|file| Some((file.clone(), self.differs(file)?)));
        let others: Vec<(PathBuf, InodeId)> = others.collect();
        let changed = changed.into_iter().filter_map(|path| {
            let id = InodeId::of(&self.roots.stat(&path).ok()?);
            Some((path, id))
        });
        changed.chain(others).collect()
    }

    /// Whether all protected files are known, rather than more than can be compared.
    fn is_complete(&self) -> bool {
        self.files.len() < MAX_FILES
    }

    /// The identity of a file that is another one than before.
    fn differs(&self, file: &Path) -> Option<InodeId> {
        let (folder, name) = self.roots.place(file).ok()?;
        let id = InodeId::of(&folder.stat(&name).ok()?);
        let Some(kept) = self.files.get(file) else { return Some(id) };
        let now = KeptFile::read(&folder, &name, kept.content.is_some()).ok()?;
        (!now.is_as(kept)).then_some(id)
    }

    /// Moves protected files that a command made or changed, so that nothing runs them, and puts back what was there
    /// before: `.envrc` becomes `.aye-set-aside/1/.envrc`. Folders that the command closed are opened again.
    pub fn set_aside(&self, files: &ProtectedFiles) -> Vec<SetAside> {
        self.set_aside_at(SystemTime::now(), files)
    }

    fn set_aside_at(&self, now: SystemTime, files: &ProtectedFiles) -> Vec<SetAside> {
        // Each time, folders in those that were opened come to light.
        for _ in 0..MAX_DEPTH {
            let closed = files.entries(now, &self.roots).closed;
            let closed = closed.iter().filter(|folder| !self.entries.closed.contains(folder));
            let opened = closed.filter(|path| self.roots.folder(path).is_ok_and(|folder| folder.open_up()));
            if opened.count() == 0 {
                break;
            }
        }
        let mut store = Store::default();
        let mut moved: BTreeMap<PathBuf, SetAside> = BTreeMap::new();
        for _ in 0..MAX_ROUNDS {
            let mut is_settled = true;
            for (path, id) in self.changed_at(now, files) {
                if moved.contains_key(&path) {
                    continue;
                }
                match self.move_aside(&mut store, &path, id) {
                    Ok(Some(done)) => drop(moved.insert(path, done)),
                    Ok(None) => is_settled = false,
                    Err(_) => {
                        let stays = SetAside { path: path.clone(), to: None, restored: None };
                        moved.insert(path, stays);
                    }
                }
            }
            if is_settled {
                break;
            }
        }
        moved.into_values().collect()
    }

    /// Moves files and folders with these identities that a command made where it must not. One that is another by now
    /// stays.
    pub fn set_aside_made(&self, made: Vec<(PathBuf, InodeId)>) -> Vec<SetAside> {
        let mut store = Store::default();
        let moved = made.into_iter().filter_map(|(path, id)| {
            let stays = || SetAside { path: path.clone(), to: None, restored: None };
            self.move_aside(&mut store, &path, id).unwrap_or_else(|_| Some(stays()))
        });
        moved.collect()
    }

    /// `None` if the file is no longer the one that was compared.
    fn move_aside(&self, store: &mut Store, path: &Path, id: InodeId) -> io::Result<Option<SetAside>> {
        let kept = self.files.get(path);
        if let Some(KeptFile { content: None, state }) = kept
            && state.link.is_none()
        {
            return Ok(Some(SetAside { path: path.to_owned(), to: None, restored: Some(false) }));
        }
        let (root, rest) = self.roots.of(path)?;
        let (folder, name) = root.folder.place(rest)?;
        if InodeId::of(&folder.stat(name)?) != id {
            return Ok(None);
        }
        let (to, new_path) = store.place(root, rest)?;
        if folder.rename(name, &to, name).is_err() {
            // A folder gets another one above it, which is a change of the folder.
            let is_opened = [folder.open_up(), folder.folder(Path::new(name)).is_ok_and(|it| it.open_up())];
            if !is_opened.contains(&true) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            folder.rename(name, &to, name)?;
        }
        let restored = kept.map(|kept| restore(&folder, name, kept).is_ok());
        Ok(Some(SetAside { path: path.to_owned(), to: Some(new_path), restored }))
    }
}

/// Where the files of one command are set aside: in a numbered folder of each root, with their paths.
#[derive(Default)]
struct Store(HashMap<PathBuf, (OpenFolder, PathBuf)>);

/// Folders of this kind in one root.
const MAX_STORES: usize = 100_000;

impl Store {
    /// The folder for a file, and the file's path there.
    fn place(&mut self, root: &Root, rest: &Path) -> io::Result<(OpenFolder, PathBuf)> {
        if !self.0.contains_key(&root.path) {
            self.0.insert(root.path.clone(), Store::open(root)?);
        }
        let Some((numbered, path)) = self.0.get(&root.path) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut folder = numbered.folder(Path::new(""))?;
        for part in rest.parent().into_iter().flat_map(Path::components) {
            folder = folder.make(part.as_os_str())?;
        }
        Ok((folder, path.join(rest)))
    }

    /// Makes a folder that did not exist.
    fn open(root: &Root) -> io::Result<(OpenFolder, PathBuf)> {
        let name = Path::new(SET_ASIDE);
        let mut number = 1;
        // A command may have made something else of this name, or closed the folder.
        if let Ok(stat) = root.folder.stat(name)
            && kind_of(&stat) != FileType::Directory
        {
            while root.folder.stat(format!("{SET_ASIDE}-{number}")).is_ok() && number < MAX_STORES {
                number += 1;
            }
            let other = format!("{SET_ASIDE}-{number}");
            root.folder.rename(name.as_os_str(), &root.folder, other.as_ref())?;
        }
        let store = root.folder.make(name.as_os_str())?;
        store.open_up();
        // Git does not list what is in it.
        let _ = store.write(".gitignore".as_ref(), Mode::from_raw_mode(0o600), b"*\n");
        for number in 1..MAX_STORES {
            let number = number.to_string();
            if store.stat(&number).is_err() {
                let numbered = store.make(number.as_ref())?;
                return Ok((numbered, root.path.join(name).join(number)));
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

fn restore(folder: &OpenFolder, name: &std::ffi::OsStr, kept: &KeptFile) -> io::Result<()> {
    if let Some(target) = &kept.state.link {
        return folder.link(name, target);
    }
    folder.write(
        name,
        aye_platform::permissions(kept.state.mode),
        kept.content.as_deref().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests;
