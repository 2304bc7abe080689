//! Snapshots: the files of a folder as they were before a step, and restoring them.
//!
//! The user's repository is neither read nor written, and git is not started: a repository can make it run
//! anything. Files are pieces named by their SHA-256 in aye's own database ([`Objects`]), so a second
//! snapshot costs a check of each file's times, plus what changed. Files that `.gitignore` excludes are left
//! out, and so are the folders `.git`.
//!
//! Before a tool that declares which files it changes, only those are kept, as their own tree: see
//! [`TreeId::then`] for how such trees are combined with what was kept later.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod error;
mod restore;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use tokio_util::sync::CancellationToken;

use aye_core::contract::clock::Clock;
use aye_core::contract::diff::changed_lines;
use aye_core::contract::digest::{hex, sha256_hex};
use aye_core::contract::snapshot::{
    ChangedFile, Changes, FileChange, FileChangeKind, Snapshots, Taken, TreeId,
};
use aye_core::contract::tool::FilePreview;
use aye_store_sqlite::objects::{Hash, ObjectError, ObjectKind, Objects, parse_hash};

use tree::{Item, Items, PathKind, TreeDifference};
use walk::{FolderScan, WalkContext, path_of};

pub use error::SnapshotError;

/// A text that is longer is not shown or counted by lines.
const MAX_TEXT: usize = 256 << 10;
/// Maximum number of files whose lines are counted.
const COUNTED: usize = 300;
/// Maximum number of left-out files that are named.
const NAMED: usize = 3;
/// The number of files read after which the index is written.
const UNWRITTEN: usize = 200;
/// Time before a folder that cannot be kept, such as one that is too large, is read again.
const AGAIN: Duration = Duration::from_mins(10);
/// The nice value of the thread that scans in advance.
const NICE: i32 = 19;

/// Limits on what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Larger files are left out.
    pub max_file: u64,
    /// A folder with more files is not kept.
    pub max_files: usize,
    /// Nor is one whose files have more bytes in all.
    pub max_total: u64,
    /// The oldest snapshots go when all of them together use more.
    pub max_kept: u64,
    /// A step waits no longer than this for its snapshot.
    pub max_wait: Duration,
    /// A file that changed less than this before it was read is read again the next time: its time might not
    /// reveal another change.
    pub settles: Duration,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            max_file: 10 << 20,
            max_files: 100_000,
            max_total: 1 << 30,
            max_kept: 2 << 30,
            max_wait: Duration::from_secs(5),
            settles: Duration::from_secs(1),
        }
    }
}

/// The result of restoring files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// The number of files that were changed.
    pub changed: usize,
    /// Those that could not be, with why.
    pub failed: Vec<(String, String)>,
}

/// A restore that has been computed and not carried out yet.
#[derive(Clone, Debug)]
pub struct RestorePlan {
    /// The current files, kept so that the restore can be undone.
    pub now: TreeId,
    /// A note on current files that were not kept.
    pub note: String,
    differences: Vec<TreeDifference>,
    /// The files that would differ; lines are counted in a limited number of them.
    pub files: Vec<ChangedFile>,
}

/// The snapshots of one folder.
#[derive(Clone)]
pub struct FolderSnapshots {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    without: Vec<PathBuf>,
    objects: Arc<Objects>,
    limits: SnapshotLimits,
    clock: Arc<dyn Clock>,
    state: Mutex<SnapshotState>,
    is_prepared: AtomicBool,
    /// The number of callers waiting for a snapshot: a scan in advance then stops, and theirs continues from
    /// there.
    waiting: AtomicUsize,
    has_made_room: AtomicBool,
    trouble: Mutex<TroubleNotifier>,
}

/// The callback notified when files are not kept, but not twice in a row for the same reason.
#[derive(Default)]
struct TroubleNotifier {
    by: Option<Box<dyn Fn(String) + Send>>,
    last: String,
}

#[derive(Default)]
struct SnapshotState {
    seen: FolderScan,
    sweeps: u64,
    is_loaded: bool,
    /// Files that were read since the index was last written down.
    unwritten: usize,
    /// Why the folder cannot be kept, and since when that is known.
    refused: Option<(String, Instant)>,
}

impl FolderSnapshots {
    /// The snapshots of a folder; `without` are folders below it that are none of its files, such as aye's own.
    pub fn new(
        root: PathBuf,
        without: Vec<PathBuf>,
        objects: Arc<Objects>,
        limits: SnapshotLimits,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                root,
                without,
                objects,
                limits,
                clock,
                state: Mutex::default(),
                is_prepared: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
                has_made_room: AtomicBool::new(false),
                trouble: Mutex::default(),
            }),
        }
    }

    /// Sets the callback to notify when files of a step cannot be restored, but not twice in a row for the
    /// same reason.
    pub fn on_trouble(&self, by: impl Fn(String) + Send + 'static) {
        self.inner.trouble.lock().unwrap_or_else(PoisonError::into_inner).by = Some(Box::new(by));
    }

    /// What would be different, were the files as in that tree. Blocks.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn plan(&self, target: &TreeId) -> Result<RestorePlan, SnapshotError> {
        self.inner.plan(target)
    }

    /// Carries a plan out. Blocks.
    pub fn restore(&self, plan: &RestorePlan) -> Restored {
        // The lock prevents a snapshot of half of the changes.
        let _held = self.inner.hold();
        let failed = restore::apply_differences(&self.inner.root, &self.inner.objects, &plan.differences);
        let named = |(path, why): (Vec<u8>, String)| (shown(&path), why);
        Restored {
            changed: plan.differences.len() - failed.len().min(plan.differences.len()),
            failed: failed.into_iter().map(named).collect(),
        }
    }

    /// What is different now from that tree, in files whose path holds a text, with the texts of at most so many. Blocks.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn changes_since(
        &self,
        before: &TreeId,
        wanted: &str,
        most: usize,
    ) -> Result<Changes, SnapshotError> {
        let target = self.inner.target(before)?;
        let (now, note) = self.inner.now(&target, &[])?;
        let mut all: Vec<TreeDifference> = self.inner.compare(&now, &target)?;
        for one in &mut all {
            std::mem::swap(&mut one.before, &mut one.after);
        }
        all.retain(|one| shown(&one.path).contains(wanted));
        let mut changes = Changes { more: all.len().saturating_sub(most), ..Changes::default() };
        changes.notes.extend((!note.is_empty()).then_some(note));
        for difference in all.iter().take(most) {
            changes.files.push(self.inner.file_change(difference));
        }
        Ok(changes)
    }

    /// Keeps the files as they are now. Blocks.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn take_now(&self) -> Result<(TreeId, String), SnapshotError> {
        self.inner.take(&[], &|| false).map(|(hash, note)| (TreeId::of_all(&hex(&hash)), note))
    }

    /// Scans the folder until a caller waits for a snapshot, which continues from there.
    fn scan_ahead(&self) {
        aye_platform::set_thread_niceness(NICE);
        match self.inner.take(&[], &|| self.inner.waiting.load(Ordering::Relaxed) > 0) {
            Ok(_) => self.inner.make_room(),
            Err(why) => tracing::info!(%why, "no snapshot was made in advance"),
        }
    }
}

/// A guard that counts a caller waiting for a snapshot.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn of(inner: &'a Inner) -> Waiting<'a> {
        inner.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&inner.waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The files to go back to.
struct Target {
    all: Option<Hash>,
    /// Of these it is known, and of nothing else without the others.
    few: Items,
}

#[async_trait]
impl Snapshots for FolderSnapshots {
    fn root(&self) -> PathBuf {
        self.inner.root.clone()
    }

    fn prepare(&self) {
        if self.inner.is_prepared.swap(true, Ordering::Relaxed) {
            return;
        }
        let own = self.clone();
        // A separate thread: the program does not wait for the thread when exiting.
        let thread = std::thread::Builder::new().name("aye-snapshots".to_owned());
        if let Err(error) = thread.spawn(move || own.scan_ahead()) {
            tracing::warn!(%error, "no snapshot is made in advance");
        }
    }

    async fn take(&self, cancel: &CancellationToken) -> Taken {
        self.inner.is_prepared.store(true, Ordering::Relaxed);
        let (own, stop) = (self.clone(), cancel.clone());
        // A snapshot that takes too long continues: the next one finds what was read.
        let taken = tokio::task::spawn_blocking(move || {
            let waiting = Waiting::of(&own.inner);
            let taken = own.inner.take(&[], &|| stop.is_cancelled());
            let taken = taken.map(|(hash, note)| (TreeId::of_all(&hex(&hash)), note));
            drop(waiting);
            // The step does not wait for this.
            tokio::task::spawn_blocking(move || own.inner.make_room());
            taken
        });
        let none = |note: String| {
            self.inner.report_problem(&note);
            Taken { tree: None, note }
        };
        let wait = self.inner.limits.max_wait;
        tokio::select! {
            taken = tokio::time::timeout(wait, taken) => match taken {
                Ok(Ok(Ok((tree, note)))) => Taken { tree: Some(tree), note },
                Ok(Ok(Err(why))) => none(why.to_string()),
                Ok(Err(_)) => none("the snapshot failed".to_owned()),
                Err(_) => none(format!("the snapshot took longer than {} s", wait.as_secs())),
            },
            () = cancel.cancelled() => Taken { tree: None, note: "it was stopped".to_owned() },
        }
    }

    async fn take_files(&self, files: Vec<PathBuf>) -> Option<Taken> {
        let own = Arc::clone(&self.inner);
        let taken = tokio::task::spawn_blocking(move || own.take_files(&files)).await;
        let why = match taken {
            Ok(Ok(taken)) => return taken,
            Ok(Err(why)) => why.to_string(),
            Err(_) => "the snapshot failed".to_owned(),
        };
        self.inner.report_problem(&why);
        Some(Taken { tree: None, note: why })
    }
}

impl Inner {
    fn hold(&self) -> MutexGuard<'_, SnapshotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the oldest snapshots when all of them together use too much; once in the life of a process.
    fn make_room(&self) {
        if self.has_made_room.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.objects.make_room(self.limits.max_kept, tree::references) {
            tracing::warn!(%error, "old snapshots could not be dropped");
        }
    }

    fn report_problem(&self, why: &str) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.last != why
            && let Some(by) = &trouble.by
        {
            by(format!("a rewind cannot restore the files of this step: {why}"));
            why.clone_into(&mut trouble.last);
        }
    }

    /// Keeps the files as they are; `also` are paths that are taken though they are ignored.
    fn take(&self, also: &[Vec<u8>], is_stopped: &dyn Fn() -> bool) -> Result<(Hash, String), SnapshotError> {
        let state = &mut *self.hold();
        if let Some((why, since)) = &state.refused
            && since.elapsed() < AGAIN
        {
            return Err(SnapshotError::Failed(why.clone()));
        }
        let taken = self.try_take(state, also, is_stopped);
        state.refused = match &taken {
            Ok(_) | Err(SnapshotError::Stopped) => None,
            Err(why) => Some((why.to_string(), Instant::now())),
        };
        taken
    }

    fn try_take(
        &self,
        state: &mut SnapshotState,
        also: &[Vec<u8>],
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(Hash, String), SnapshotError> {
        for _ in 0..3 {
            let sweeps = self.objects.sweeps()?;
            if sweeps != state.sweeps {
                state.seen.clear();
                state.sweeps = sweeps;
            }
            if !std::mem::replace(&mut state.is_loaded, true) {
                let seen = self.objects.seen(&self.root)?;
                state.seen = FolderScan::read_back(seen).unwrap_or_default();
            }
            let place = WalkContext {
                root: &self.root,
                without: &self.without,
                limits: &self.limits,
                objects: &self.objects,
                is_stopped,
                progress: &|seen| drop(self.objects.set_seen(&self.root, sweeps, |put| seen.write(put))),
            };
            let scanned = walk::scan(&place, &mut state.seen)?;
            let hash = if also.is_empty() { scanned.tree } else { self.with(&scanned.tree, also)? };
            if self.keep(&hash, sweeps)? {
                state.unwritten += scanned.read;
                // The next start reads these again otherwise.
                if state.unwritten >= UNWRITTEN.max(state.seen.len() / 20) {
                    (place.progress)(&state.seen);
                    state.unwritten = 0;
                }
                return Ok((hash, note_of(&scanned.left_out)));
            }
        }
        Err(SnapshotError::MakingRoom)
    }

    fn keep(&self, tree: &Hash, sweeps: u64) -> Result<bool, ObjectError> {
        self.objects.keep(&hex(tree), &self.root, self.clock.now_ms(), sweeps)
    }

    /// A tree with some paths more.
    fn with(&self, tree: &Hash, also: &[Vec<u8>]) -> Result<Hash, SnapshotError> {
        let mut items = tree::all(&self.objects, tree)?;
        for path in also {
            if let Some((item, bytes, _)) = walk::one(&self.root, path, &self.limits) {
                self.objects.put(&[(item.hash, bytes.unwrap_or_default())])?;
                items.insert(path.clone(), item);
            }
        }
        let (hash, folders) = tree::build(&items);
        self.objects.put(&folders)?;
        Ok(hash)
    }

    /// The place of a file below the folder, when it is one of its files.
    fn place_of(&self, path: &Path) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt as _;
        let relative = path.strip_prefix(&self.root).ok()?;
        let is_plain = relative.components().all(|part| match part {
            std::path::Component::Normal(name) => name != ".git",
            _ => false,
        });
        let is_other = self.without.iter().any(|other| path.starts_with(other));
        (is_plain && !is_other && !relative.as_os_str().is_empty())
            .then(|| relative.as_os_str().as_bytes().to_vec())
    }

    /// Keeps these files as they are, and that they are not there.
    fn take_files(&self, files: &[PathBuf]) -> Result<Option<Taken>, SnapshotError> {
        let places: Vec<Vec<u8>> = files.iter().filter_map(|path| self.place_of(path)).collect();
        if places.is_empty() {
            return Ok(None);
        }
        let (hash, note) = self.some(&places)?;
        Ok(Some(Taken { tree: Some(TreeId::of_some(&hex(&hash))), note }))
    }

    /// A tree of these paths only.
    fn some(&self, places: &[Vec<u8>]) -> Result<(Hash, String), SnapshotError> {
        for _ in 0..3 {
            let sweeps = self.objects.sweeps()?;
            let (mut items, mut pieces, mut left_out) = (Items::new(), Vec::new(), Vec::new());
            for place in places {
                let absent = (Item { kind: PathKind::Absent, hash: [0; 32] }, None, String::new());
                let (item, bytes, why) = walk::one(&self.root, place, &self.limits).unwrap_or(absent);
                pieces.extend(bytes.map(|bytes| (item.hash, bytes)));
                left_out.extend((!why.is_empty()).then(|| (place.clone(), why)));
                items.insert(place.clone(), item);
            }
            let (hash, folders) = tree::build(&items);
            pieces.extend(folders);
            self.objects.put(&pieces)?;
            if self.keep(&hash, sweeps)? {
                return Ok((hash, note_of(&left_out)));
            }
        }
        Err(SnapshotError::MakingRoom)
    }

    fn target(&self, tree: &TreeId) -> Result<Target, SnapshotError> {
        let hash = |part: &str| parse_hash(part).ok_or(SnapshotError::Name);
        let (all, parts) = tree.parts();
        let mut few = Items::new();
        for part in parts {
            for (path, item) in tree::all(&self.objects, &hash(part)?).map_err(SnapshotError::Unreadable)? {
                few.entry(path).or_insert(item);
            }
        }
        Ok(Target { all: all.map(hash).transpose()?, few })
    }

    /// Keeps the current files, as far as they matter for a target; `hidden` even though they are ignored.
    fn now(&self, target: &Target, hidden: &[Vec<u8>]) -> Result<(TreeId, String), SnapshotError> {
        let is_there = |path: &Vec<u8>| self.root.join(path_of(path)).symlink_metadata().is_ok();
        let also: Vec<Vec<u8>> =
            target.few.keys().filter(|path| is_there(path)).chain(hidden).cloned().collect();
        let waiting = Waiting::of(self);
        let taken = self.take(&also, &|| false);
        drop(waiting);
        match (taken, target.all) {
            (Ok((hash, note)), _) => Ok((TreeId::of_all(&hex(&hash)), note)),
            (Err(why), Some(_)) => Err(why),
            // The folder cannot be kept, and need not be.
            (Err(_), None) => {
                let places: Vec<_> = target.few.keys().cloned().collect();
                self.some(&places).map(|(hash, note)| (TreeId::of_some(&hex(&hash)), note))
            }
        }
    }

    /// Returns the changes from one state of the files to a target.
    fn compare(&self, now: &TreeId, target: &Target) -> Result<Vec<TreeDifference>, SnapshotError> {
        let objects = &self.objects;
        let now = self.target(now)?;
        let mut all = match (&now.all, &target.all) {
            (Some(now), Some(all)) => {
                tree::differences(objects, now, all).map_err(SnapshotError::Unreadable)?
            }
            _ => Vec::new(),
        };
        all.retain(|one| !target.few.contains_key(&one.path));
        for (path, item) in &target.few {
            let before = match (now.few.get(path), &now.all) {
                (Some(item), _) => Some(*item),
                (None, Some(all)) => tree::item_at(objects, all, path).map_err(SnapshotError::Unreadable)?,
                (None, None) => None,
            };
            let is_there = |item: &Item| item.kind != PathKind::Absent;
            let (before, after) = (before.filter(is_there), Some(*item).filter(is_there));
            if before != after {
                all.push(TreeDifference { path: path.clone(), before, after });
            }
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    fn plan(&self, tree: &TreeId) -> Result<RestorePlan, SnapshotError> {
        let target = self.target(tree)?;
        let (mut now, mut note) = self.now(&target, &[])?;
        let mut all = self.compare(&now, &target)?;
        // Files that are ignored by now but would be overwritten are kept as well.
        let hidden: Vec<Vec<u8>> = all
            .iter()
            .filter(|one| {
                one.before.is_none() && self.root.join(path_of(&one.path)).symlink_metadata().is_ok()
            })
            .map(|one| one.path.clone())
            .collect();
        if !hidden.is_empty() {
            (now, note) = self.now(&target, &hidden)?;
            all = self.compare(&now, &target)?;
        }
        all.retain(|one| {
            let left_out = |item: &Option<Item>| item.is_some_and(|item| item.kind == PathKind::LeftOut);
            !left_out(&one.before) && !left_out(&one.after)
        });
        if let Some(before) = &target.all {
            let ignored = self.ignored_then(&all, before)?;
            all.retain(|one| {
                one.after.is_some()
                    || target.few.contains_key(&one.path)
                    || !ignored.iter().any(|rules| is_ignored(rules, &one.path))
            });
        }
        let count = |(n, one): (usize, &TreeDifference)| self.about(one, n < COUNTED);
        let files = all.iter().enumerate().map(count).collect();
        Ok(RestorePlan { now, note, differences: all, files })
    }

    /// Returns the rules of the tree's own `.gitignore` files, if they differ from the current ones: a file
    /// that they exclude was not read then, and must not be deleted just because it is not in the tree.
    fn ignored_then(&self, all: &[TreeDifference], target: &Hash) -> Result<Vec<Gitignore>, SnapshotError> {
        let is_rules = |path: &[u8]| path.rsplit(|b| *b == b'/').next() == Some(b".gitignore");
        if !all.iter().any(|one| is_rules(&one.path)) {
            return Ok(Vec::new());
        }
        let mut rules = Vec::new();
        for (path, item) in
            tree::named(&self.objects, target, b".gitignore").map_err(SnapshotError::Unreadable)?
        {
            let bytes = self.objects.get(ObjectKind::Bytes, &item.hash).map_err(SnapshotError::Unreadable)?;
            let folder = path_of(&path).parent().map(Path::to_path_buf).unwrap_or_default();
            let mut builder = GitignoreBuilder::new(Path::new("/").join(folder));
            for line in String::from_utf8_lossy(&bytes).lines() {
                let _ = builder.add_line(None, line);
            }
            rules.extend(builder.build());
        }
        Ok(rules)
    }

    fn text(&self, item: Option<&Item>) -> Option<String> {
        let Some(item) = item else { return Some(String::new()) };
        if matches!(item.kind, PathKind::LeftOut | PathKind::Absent) {
            return None;
        }
        let bytes = self.objects.get(ObjectKind::Bytes, &item.hash).ok()?;
        if bytes.len() > MAX_TEXT || bytes.contains(&0) {
            return None;
        }
        String::from_utf8(bytes).ok()
    }

    fn about(&self, difference: &TreeDifference, counts: bool) -> ChangedFile {
        let texts = counts
            .then(|| Some((self.text(difference.before.as_ref())?, self.text(difference.after.as_ref())?)))
            .flatten();
        about(difference, texts.as_ref())
    }

    fn file_change(&self, difference: &TreeDifference) -> FileChange {
        let texts = self
            .text(difference.before.as_ref())
            .and_then(|old| Some((old, self.text(difference.after.as_ref())?)));
        let about = about(difference, texts.as_ref());
        let preview = texts.map(|(old, new)| FilePreview {
            path: self.root.join(path_of(&difference.path)),
            before: difference.before.is_some().then(|| sha256_hex(&old)),
            after: sha256_hex(&new),
            old_text: Some(old),
            new_text: Some(new),
        });
        FileChange { about, preview }
    }
}

fn about(difference: &TreeDifference, texts: Option<&(String, String)>) -> ChangedFile {
    let change = match (&difference.before, &difference.after) {
        (None, _) => FileChangeKind::Created,
        (_, None) => FileChangeKind::Deleted,
        (Some(_), Some(_)) => FileChangeKind::Changed,
    };
    let (added, removed) = texts.map(|(old, new)| changed_lines(old, new)).unzip();
    ChangedFile { path: shown(&difference.path), change, added, removed }
}

fn is_ignored(rules: &Gitignore, path: &[u8]) -> bool {
    let path = Path::new("/").join(path_of(path));
    path.starts_with(rules.path()) && rules.matched_path_or_any_parents(&path, false).is_ignore()
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn note_of(left_out: &[(Vec<u8>, String)]) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let first = &left_out[..left_out.len().min(NAMED)];
    let named = first.iter().enumerate().map(|(at, (path, why))| {
        // Several with the same reason name it once.
        let is_same = first.get(at + 1).is_some_and(|(_, next)| next == why);
        if is_same { shown(path) } else { format!("{} ({why})", shown(path)) }
    });
    let named: Vec<String> = named.collect();
    let more = left_out.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("not in the snapshot: {}{more}", named.join(", "))
}
