//! Walks a folder as ripgrep does, without trusting its contents.
//!
//! Every folder is opened once, from the descriptor of the one above, and no link is followed: a folder that somebody
//! exchanges for a link meanwhile is not entered, and an [`WalkEntry`] is opened in the folder in which it was found. The
//! ignore files are read here and not by the library that matches them: it opens anything with the right name, so a FIFO
//! called `.gitignore` would block a search forever, and a device would fill the memory. Only regular files are opened
//! here, without blocking, and only their first [`MAX_IGNORE_FILE`] bytes count.

mod ignored;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use ignore::overrides::Override;
use ignore::{DirEntry, Match, WalkBuilder};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

use crate::opener::{self, LISTED};
pub use crate::opener::{open_regular, read_regular};
use ignored::{IgnoreFiles, IgnoreLevel, Ignored, NamedLevels};

/// Bytes of an ignore file that count.
pub const MAX_IGNORE_FILE: u64 = 256 << 10;

/// The number of folders, one in the other, that are kept open. Those below are opened again for each entry.
const MAX_OPEN: usize = if cfg!(test) { 4 } else { 128 };

/// The entries of a folder that a walk visits. Links are never followed.
#[derive(Clone, Debug)]
pub struct WalkFilter {
    /// Names that start with a dot are visited too.
    pub hidden: bool,
    /// Files named by `.ignore` are left out.
    pub dot_ignore: bool,
    /// Files named by `.gitignore` and `.git/info/exclude` are left out, inside and outside of repositories.
    pub git_ignore: bool,
    /// The ignore files of the folders above count too.
    pub parents: bool,
    /// The folders `.git` are entered.
    pub git_dirs: bool,
    /// Globs that decide before everything else.
    pub overrides: Override,
}

impl Default for WalkFilter {
    fn default() -> Self {
        Self {
            hidden: false,
            dot_ignore: true,
            git_ignore: true,
            parents: true,
            git_dirs: false,
            overrides: Override::empty(),
        }
    }
}

/// Something in a walked folder, and the folder in which it was found.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: PathBuf,
    depth: usize,
    kind: FileType,
    inode: u64,
    folder: Rc<OwnedFd>,
    name: OsString,
}

impl WalkEntry {
    /// The path below the one that the walk was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path, without a copy.
    pub fn into_path(self) -> PathBuf {
        self.path
    }

    /// The name in its folder.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The number of folders above it, up to the walked one: 1 for what is directly in that.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The inode, as the folder lists it: on some file systems not the one that the attributes have.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns whether it is a folder.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// Returns whether it is a link.
    pub fn is_symlink(&self) -> bool {
        self.kind == FileType::Symlink
    }

    /// Opens the regular file in the folder in which it was found.
    ///
    /// # Errors
    /// When it is something else by now, or cannot be opened.
    pub fn open(&self) -> io::Result<File> {
        opener::open_regular_at(&*self.folder, &self.name)
    }

    /// Reads the attributes of what is there now; a link is not followed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn metadata(&self) -> io::Result<Metadata> {
        opener::metadata_at(&*self.folder, &self.name)
    }

    /// Returns where the link leads, as it is written.
    ///
    /// # Errors
    /// Those of the system.
    pub fn link_target(&self) -> io::Result<PathBuf> {
        opener::link_target_at(&*self.folder, &self.name)
    }
}

/// A folder of which entries are left.
struct Frame {
    /// `None`: too many are open. The folder is then opened again.
    folder: Option<Rc<OwnedFd>>,
    path: PathBuf,
    rules: Option<Arc<IgnoreLevel>>,
    /// In reverse order.
    entries: Vec<(OsString, FileType, u64)>,
}

/// Says whether an open folder may be entered.
pub type AdmitsOpen = Box<dyn FnMut(&WalkEntry, &OwnedFd) -> bool>;

/// A walk in the order of names. A folder comes before its content.
pub struct Walk<V> {
    selection: WalkFilter,
    ignore_files: IgnoreFiles,
    /// Where the walked folder is.
    real: PathBuf,
    visit: V,
    admits_open: Option<AdmitsOpen>,
    max_depth: usize,
    frames: Vec<Frame>,
    /// The walked thing itself, if it is no folder.
    single: Option<WalkEntry>,
    /// The folder that was visited last and is still to be entered.
    next: Option<WalkEntry>,
}

/// Returns a walk over `root`, which should be absolute; links in it are followed now. `visit` is called for each selected
/// entry; one for which it returns false is left out, and a folder is not entered.
pub fn walk<V: FnMut(&WalkEntry) -> bool>(root: &Path, selection: WalkFilter, visit: V) -> Walk<V> {
    let mut walk = Walk::new(root, selection, visit);
    let Ok(real) = opener::resolve(root) else { return walk };
    match opener::open(&real, LISTED) {
        Ok(folder) => {
            walk.real = real;
            walk.enter(Rc::new(folder), root.to_owned());
        }
        Err(_) => walk.single = single(root, &real),
    }
    walk
}

/// Returns a walk over an open folder. `path` is what entries are called by, and has no links.
pub fn walk_in<V: FnMut(&WalkEntry) -> bool>(
    folder: OwnedFd,
    path: &Path,
    selection: WalkFilter,
    visit: V,
) -> Walk<V> {
    let mut walk = Walk::new(path, selection, visit);
    walk.enter(Rc::new(folder), path.to_owned());
    walk
}

/// Returns the same walk by the names of files, unsorted. What it finds is opened by name again, so it is not for folders in
/// which others write: see [`walk()`].
pub fn builder(
    root: &Path,
    selection: WalkFilter,
    visit: impl Fn(&DirEntry) -> bool + Send + Sync + 'static,
) -> WalkBuilder {
    let levels = NamedLevels::new(IgnoreFiles::new(root, &selection));
    let mut builder = WalkBuilder::new(root);
    builder.standard_filters(false).follow_links(false).filter_entry(move |entry| {
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        let rules = entry.path().parent().and_then(|folder| levels.of(folder));
        (selection.git_dirs || entry.file_name() != ".git")
            && is_selected(&selection, rules.as_ref(), entry.path(), is_dir)
            && visit(entry)
    });
    builder
}

/// What is to be walked is not a folder: it is the only entry.
fn single(root: &Path, real: &Path) -> Option<WalkEntry> {
    let place = opener::FilePlace::of(real).ok()?;
    let about = place.stat().ok()?;
    let kind = FileType::from_raw_mode(about.st_mode);
    let (folder, name) = (Rc::new(place.folder), place.name);
    let is_file = kind != FileType::Directory;
    is_file.then(|| WalkEntry { path: root.to_owned(), depth: 0, kind, inode: about.st_ino, folder, name })
}

impl<V: FnMut(&WalkEntry) -> bool> Walk<V> {
    fn new(root: &Path, selection: WalkFilter, visit: V) -> Walk<V> {
        Walk {
            ignore_files: IgnoreFiles::new(root, &selection),
            real: root.to_owned(),
            selection,
            visit,
            admits_open: None,
            max_depth: usize::MAX,
            frames: Vec::new(),
            single: None,
            next: None,
        }
    }

    /// Enters only folders for which `admits` returns true once they are open: another may have come in the place of the one
    /// that was visited.
    #[must_use]
    pub fn entering(mut self, admits: AdmitsOpen) -> Self {
        self.admits_open = Some(admits);
        self
    }

    /// Visits nothing deeper than this.
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Self {
        self.max_depth = depth;
        self
    }

    /// Lists a folder.
    fn enter(&mut self, folder: Rc<OwnedFd>, path: PathBuf) {
        let Ok(mut entries) = list(&folder) else { return };
        let above = match self.frames.last() {
            Some(frame) => frame.rules.clone(),
            None => self.ignore_files.above(&self.real),
        };
        let rules = self.ignore_files.level(&folder, &path, &entries, above);
        entries.sort_unstable_by(|(a, ..), (b, ..)| b.cmp(a));
        let folder = (self.frames.len() < MAX_OPEN).then_some(folder);
        self.frames.push(Frame { folder, path, rules, entries });
    }

    /// Returns the folder of the last frame.
    fn folder(&self) -> Option<Rc<OwnedFd>> {
        let frame = self.frames.last()?;
        if let Some(folder) = &frame.folder {
            return Some(Rc::clone(folder));
        }
        let open = self.frames.iter().rfind(|frame| frame.folder.is_some())?;
        let below = frame.path.strip_prefix(&open.path).ok()?;
        opener::open_beneath(open.folder.as_deref()?, below, LISTED).ok().map(Rc::new)
    }
}

impl<V: FnMut(&WalkEntry) -> bool> Iterator for Walk<V> {
    type Item = WalkEntry;

    fn next(&mut self) -> Option<WalkEntry> {
        if let Some(entry) = self.next.take() {
            let flags = LISTED | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(folder) = openat(&*entry.folder, &*entry.name, flags, Mode::empty())
                && self.admits_open.as_mut().is_none_or(|admits| admits(&entry, &folder))
            {
                self.enter(Rc::new(folder), entry.path);
            }
        }
        if let Some(entry) = self.single.take() {
            return Some(entry);
        }
        loop {
            let depth = self.frames.len();
            let frame = self.frames.last_mut()?;
            if depth > self.max_depth {
                self.frames.pop();
                continue;
            }
            let Some((name, kind, inode)) = frame.entries.pop() else {
                self.frames.pop();
                continue;
            };
            if !self.selection.git_dirs && name == ".git" {
                continue;
            }
            let path = frame.path.join(&name);
            let is_dir = kind == FileType::Directory;
            if !is_selected(&self.selection, frame.rules.as_ref(), &path, is_dir) {
                continue;
            }
            let Some(folder) = self.folder() else { continue };
            let entry = WalkEntry { path, depth, kind, inode, folder, name };
            if !(self.visit)(&entry) {
                continue;
            }
            if is_dir && depth < self.max_depth {
                self.next = Some(entry.clone());
            }
            return Some(entry);
        }
    }
}

/// Reads the names in a folder, in any order.
fn list(folder: &OwnedFd) -> io::Result<Vec<(OsString, FileType, u64)>> {
    let mut entries = Vec::new();
    // The copy shares the place in the listing, and the folder is listed only once.
    for entry in Dir::new(rustix::io::fcntl_dupfd_cloexec(folder, 0)?)? {
        let Ok(entry) = entry else { break };
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |about| FileType::from_raw_mode(about.st_mode)),
            kind => kind,
        };
        entries.push((OsStr::from_bytes(name).to_owned(), kind, entry.ino()));
    }
    Ok(entries)
}

fn is_selected(selection: &WalkFilter, rules: Option<&Arc<IgnoreLevel>>, path: &Path, is_dir: bool) -> bool {
    match selection.overrides.matched(path, is_dir) {
        Match::Ignore(_) => return false,
        Match::Whitelist(_) => return true,
        Match::None => {}
    }
    let is_hidden =
        !selection.hidden && path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    match ignored::matched(rules, path, is_dir) {
        Ignored::Yes => false,
        Ignored::Never => true,
        Ignored::No => !is_hidden,
    }
}
