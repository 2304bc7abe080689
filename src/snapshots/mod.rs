//! Snapshots: the files of a folder as they were before a step, and the way back to them.
//!
//! The user's repository is neither read nor written, and git is not started: a repository can make it run anything.
//! Files are pieces named by their SHA-256 in a database of aye's own ([`Objects`]), so a second snapshot costs a look
//! at each file's times and what changed. What `.gitignore` names is left out, and so are the folders `.git`.

mod restore;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use similar::{ChangeTag, TextDiff};
use tokio_util::sync::CancellationToken;

use crate::contract::clock::Clock;
use crate::contract::digest::{hex, sha256_hex};
use crate::contract::snapshot::{Change, ChangedFile, Changes, FileChange, Snapshots, Taken, TreeId};
use crate::contract::tool::FilePreview;
use crate::store::objects::{Hash, ObjectError, Objects, Piece, parse_hash};

use tree::{Difference, Item, Kind};
use walk::{Index, path_of};

/// A text that is longer is not shown or counted by lines.
const MAX_TEXT: usize = 256 << 10;
/// So many files have their lines counted.
const COUNTED: usize = 300;
/// So many files that were left out are named.
const NAMED: usize = 3;
/// The index is written down after so many files were read.
const UNWRITTEN: usize = 200;
/// A folder that is too large is not looked at again for so long.
const AGAIN: Duration = Duration::from_mins(10);

/// How much is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_file: 10 << 20,
            max_files: 100_000,
            max_total: 1 << 30,
            max_kept: 2 << 30,
            max_wait: Duration::from_secs(5),
        }
    }
}

/// What going back does to files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// How many files were changed.
    pub changed: usize,
    /// Those that could not be, with why.
    pub failed: Vec<(String, String)>,
}

/// A way back that was looked at and not gone yet.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The files as they are now: kept, so that going back can be taken back.
    pub now: TreeId,
    /// What of them was not kept.
    pub note: String,
    differences: Vec<Difference>,
    /// The files that would differ, at most so many with their lines counted.
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
    limits: Limits,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    is_prepared: AtomicBool,
    has_made_room: AtomicBool,
    told: Mutex<Told>,
}

/// Who is told once why files are not kept.
#[derive(Default)]
struct Told {
    by: Option<Box<dyn Fn(String) + Send>>,
    last: String,
}

#[derive(Default)]
struct State {
    index: Index,
    folders: std::collections::HashSet<Hash>,
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
        limits: Limits,
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
                has_made_room: AtomicBool::new(false),
                told: Mutex::default(),
            }),
        }
    }

    /// Who is told, once for each reason, that files of a step cannot be brought back.
    pub fn on_trouble(&self, by: impl Fn(String) + Send + 'static) {
        self.inner.told.lock().unwrap_or_else(PoisonError::into_inner).by = Some(Box::new(by));
    }

    /// What would be different, were the files as in that tree. Blocks.
    ///
    /// # Errors
    /// A sentence.
    pub fn plan(&self, target: &TreeId) -> Result<Plan, String> {
        self.inner.plan(target)
    }

    /// Carries a plan out. Blocks.
    pub fn restore(&self, plan: &Plan) -> Restored {
        // Nobody takes a snapshot of half of it.
        let _held = self.inner.hold();
        let failed = restore::carry_out(&self.inner.root, &self.inner.objects, &plan.differences);
        let named = |(path, why): (Vec<u8>, String)| (shown(&path), why);
        Restored {
            changed: plan.differences.len() - failed.len().min(plan.differences.len()),
            failed: failed.into_iter().map(named).collect(),
        }
    }

    /// What is different now from that tree, in files whose path holds a text, with the texts of at most so many. Blocks.
    ///
    /// # Errors
    /// A sentence.
    pub fn changes_since(&self, before: &TreeId, wanted: &str, most: usize) -> Result<Changes, String> {
        let (now, note) = self.inner.take(&[])?;
        let before = parse_hash(&before.0).ok_or("the snapshot's name is damaged")?;
        let objects = &self.inner.objects;
        let mut all = tree::differences(objects, &before, &now).map_err(|e| gone(&e))?;
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
    /// Why they cannot be kept, as a sentence.
    pub fn take_now(&self) -> Result<(TreeId, String), String> {
        self.inner.take(&[]).map(|(hash, note)| (TreeId(hex(&hash)), note))
    }
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
        tokio::task::spawn_blocking(move || {
            if let Err(why) = own.take_now() {
                tracing::info!(why, "no snapshots of this folder");
            }
            own.inner.make_room();
        });
    }

    async fn take(&self, cancel: &CancellationToken) -> Taken {
        self.inner.is_prepared.store(true, Ordering::Relaxed);
        let own = self.clone();
        // One that takes too long goes on: the next one finds what it read.
        let taken = tokio::task::spawn_blocking(move || {
            let taken = own.take_now();
            // Behind the step's back.
            tokio::task::spawn_blocking(move || own.inner.make_room());
            taken
        });
        let none = |note: String| {
            self.inner.tell(&note);
            Taken { tree: None, note }
        };
        let wait = self.inner.limits.max_wait;
        tokio::select! {
            taken = tokio::time::timeout(wait, taken) => match taken {
                Ok(Ok(Ok((tree, note)))) => Taken { tree: Some(tree), note },
                Ok(Ok(Err(why))) => none(why),
                Ok(Err(_)) => none("the snapshot failed".to_owned()),
                Err(_) => none(format!("the snapshot took longer than {} s", wait.as_secs())),
            },
            () = cancel.cancelled() => Taken { tree: None, note: "it was stopped".to_owned() },
        }
    }
}

impl Inner {
    fn hold(&self) -> MutexGuard<'_, State> {
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

    fn tell(&self, why: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.last != why
            && let Some(by) = &told.by
        {
            by(format!("going back cannot bring back the files of this step: {why}"));
            why.clone_into(&mut told.last);
        }
    }

    /// Keeps the files as they are; `also` are paths that are taken though they are ignored.
    fn take(&self, also: &[Vec<u8>]) -> Result<(Hash, String), String> {
        let state = &mut *self.hold();
        if let Some((why, since)) = &state.refused
            && since.elapsed() < AGAIN
        {
            return Err(why.clone());
        }
        let taken = self.try_take(state, also);
        state.refused = taken.as_ref().err().map(|why| (why.clone(), Instant::now()));
        taken
    }

    fn try_take(&self, state: &mut State, also: &[Vec<u8>]) -> Result<(Hash, String), String> {
        for _ in 0..3 {
            let sweeps = self.objects.sweeps().map_err(|e| e.to_string())?;
            if sweeps != state.sweeps {
                state.index.clear();
                state.folders.clear();
                state.sweeps = sweeps;
            }
            if !std::mem::replace(&mut state.is_loaded, true) {
                let seen = self.objects.seen(&self.root).map_err(|e| e.to_string())?;
                state.index = seen.and_then(|bytes| walk::read_back(&bytes)).unwrap_or_default();
            }
            let look = walk::look(
                &self.root,
                &self.without,
                also,
                &self.limits,
                &mut state.index,
                &self.objects,
                |index| drop(self.objects.set_seen(&self.root, sweeps, &walk::written(index))),
            )?;
            let (hash, mut folders) = tree::build(&look.items);
            folders.retain(|(hash, _)| !state.folders.contains(hash));
            self.objects.put(&folders).map_err(|e| e.to_string())?;
            let now = self.clock.now_ms();
            if self.objects.keep(&hex(&hash), &self.root, now, sweeps).map_err(|e| e.to_string())? {
                state.folders.extend(folders.iter().map(|(hash, _)| *hash));
                state.unwritten += look.read;
                // The next start reads these again otherwise.
                if state.unwritten >= UNWRITTEN.max(state.index.len() / 20) {
                    let written = walk::written(&state.index);
                    self.objects.set_seen(&self.root, sweeps, &written).map_err(|e| e.to_string())?;
                    state.unwritten = 0;
                }
                return Ok((hash, note_of(&look.left_out)));
            }
        }
        Err("snapshots are being dropped to make room".to_owned())
    }

    fn plan(&self, target: &TreeId) -> Result<Plan, String> {
        let target = parse_hash(&target.0).ok_or("the snapshot's name is damaged")?;
        let (mut now, mut note) = self.take(&[])?;
        let differ = |now: &Hash| tree::differences(&self.objects, now, &target).map_err(|e| gone(&e));
        let mut all = differ(&now)?;
        // What is ignored by now and would be written over is kept as well.
        let hidden: Vec<Vec<u8>> = all
            .iter()
            .filter(|one| {
                one.before.is_none() && self.root.join(path_of(&one.path)).symlink_metadata().is_ok()
            })
            .map(|one| one.path.clone())
            .collect();
        if !hidden.is_empty() {
            (now, note) = self.take(&hidden)?;
            all = differ(&now)?;
        }
        all.retain(|one| {
            let left_out = |item: &Option<Item>| item.is_some_and(|item| item.kind == Kind::LeftOut);
            !left_out(&one.before) && !left_out(&one.after)
        });
        let ignored = self.ignored_then(&all, &target)?;
        all.retain(|one| one.after.is_some() || !ignored.iter().any(|rules| is_ignored(rules, &one.path)));
        let count = |(n, one): (usize, &Difference)| self.about(one, n < COUNTED);
        let files = all.iter().enumerate().map(count).collect();
        Ok(Plan { now: TreeId(hex(&now)), note, differences: all, files })
    }

    /// The rules of the tree's own `.gitignore` files, when they differ from those of now: a file that they name was not
    /// looked at then, and must not go because it is not in the tree.
    fn ignored_then(&self, all: &[Difference], target: &Hash) -> Result<Vec<Gitignore>, String> {
        let is_rules = |path: &[u8]| path.rsplit(|b| *b == b'/').next() == Some(b".gitignore");
        if !all.iter().any(|one| is_rules(&one.path)) {
            return Ok(Vec::new());
        }
        let mut rules = Vec::new();
        for (path, item) in tree::named(&self.objects, target, b".gitignore").map_err(|e| gone(&e))? {
            let bytes = self.objects.get(Piece::Bytes, &item.hash).map_err(|e| gone(&e))?;
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
        if item.kind == Kind::LeftOut {
            return None;
        }
        let bytes = self.objects.get(Piece::Bytes, &item.hash).ok()?;
        if bytes.len() > MAX_TEXT || bytes.contains(&0) {
            return None;
        }
        String::from_utf8(bytes).ok()
    }

    fn about(&self, difference: &Difference, counts: bool) -> ChangedFile {
        let texts = counts
            .then(|| Some((self.text(difference.before.as_ref())?, self.text(difference.after.as_ref())?)))
            .flatten();
        about(difference, texts.as_ref())
    }

    fn file_change(&self, difference: &Difference) -> FileChange {
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

fn about(difference: &Difference, texts: Option<&(String, String)>) -> ChangedFile {
    let change = match (&difference.before, &difference.after) {
        (None, _) => Change::Created,
        (_, None) => Change::Deleted,
        (Some(_), Some(_)) => Change::Changed,
    };
    let (added, removed) = texts.map(|(old, new)| lines(old, new)).unzip();
    ChangedFile { path: shown(&difference.path), change, added, removed }
}

/// How many lines come and go.
fn lines(old: &str, new: &str) -> (usize, usize) {
    let diff = TextDiff::configure().timeout(Duration::from_millis(200)).diff_lines(old, new);
    diff.iter_all_changes().fold((0, 0), |(added, removed), change| match change.tag() {
        ChangeTag::Insert => (added + 1, removed),
        ChangeTag::Delete => (added, removed + 1),
        ChangeTag::Equal => (added, removed),
    })
}

fn is_ignored(rules: &Gitignore, path: &[u8]) -> bool {
    let path = Path::new("/").join(path_of(path));
    path.starts_with(rules.path()) && rules.matched_path_or_any_parents(&path, false).is_ignore()
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn gone(error: &ObjectError) -> String {
    format!("the snapshot cannot be read: {error}")
}

fn note_of(left_out: &[(Vec<u8>, String)]) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let named: Vec<String> =
        left_out.iter().take(NAMED).map(|(path, why)| format!("{} ({why})", shown(path))).collect();
    let more = left_out.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("not kept: {}{more}", named.join(", "))
}
