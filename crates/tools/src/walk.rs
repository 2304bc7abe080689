//! Searches of a tree: hidden and ignored files are left out, links are not followed, and files that permission rules
//! restrict are skipped and counted.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ignore::overrides::Override;
use tokio_util::sync::CancellationToken;

use super::ToolEnv;
use aye_core::contract::path_policy::{PathAccess, PathCheck, PathPolicy, PathRestriction};
use aye_core::contract::tool::ToolCallContext;
use aye_files::known::{FileId, KnownFiles};
use aye_files::walk::{Walk, WalkEntry, WalkFilter};

/// Maximum time for a search.
const MAX_TIME: Duration = Duration::from_secs(20);

/// When a search has to end.
#[derive(Clone)]
pub(super) struct Bounds {
    deadline: Instant,
    cancel: CancellationToken,
}

impl Bounds {
    pub(super) fn new(cancel: CancellationToken) -> Self {
        Self::within(MAX_TIME, cancel)
    }

    pub(super) fn within(time: Duration, cancel: CancellationToken) -> Self {
        Self { deadline: Instant::now() + time, cancel }
    }

    /// Whether to stop with the results so far.
    pub(super) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() > self.deadline
    }
}

/// Keeps restricted files out of a search, and counts them.
#[derive(Clone, Default)]
pub(super) struct WalkGuard {
    rules: Option<(Arc<dyn PathPolicy>, PathCheck)>,
    known: Arc<KnownFiles>,
    skipped: Arc<Skipped>,
}

#[derive(Default)]
struct Skipped {
    files: AtomicUsize,
    folders: AtomicUsize,
    /// Those of both that lie in the searched folder itself.
    top: AtomicUsize,
}

impl WalkGuard {
    /// For a search of a folder.
    pub(super) fn new(env: &ToolEnv, ctx: &ToolCallContext, folder: &Path) -> WalkGuard {
        let rules = env.policy(ctx).map(|policy| {
            let check = policy.below(folder);
            (policy, check)
        });
        WalkGuard { rules, known: Arc::clone(&env.known), skipped: Arc::default() }
    }

    /// Whether no rule restricts an entry. A restricted entry is counted as skipped.
    pub(super) fn admits(&self, entry: &WalkEntry) -> bool {
        let Some((policy, check)) = &self.rules else { return true };
        let restriction = if entry.is_symlink() {
            policy.restriction(entry.path(), PathAccess::Read)
        } else {
            check(entry.path(), entry.is_dir()).or_else(|| {
                // The listing's number spares nearly every file the question for its attributes.
                let about = self.known.has_inode(entry.inode()).then(|| entry.metadata().ok())??;
                self.under_known_name(&about)
            })
        };
        if restriction.is_some() {
            self.skip(entry);
        }
        restriction.is_none()
    }

    /// Whether no rule restricts the file or folder that was opened for an entry. A restricted one is counted as skipped.
    pub(super) fn admits_open(&self, entry: &WalkEntry, file: &impl AsFd) -> bool {
        if self.known.is_empty() {
            return true;
        }
        let about = || File::from(file.as_fd().try_clone_to_owned()?).metadata();
        let is_restricted = !about().is_ok_and(|about| self.under_known_name(&about).is_none());
        if is_restricted {
            self.skip(entry);
        }
        !is_restricted
    }

    fn under_known_name(&self, about: &Metadata) -> Option<PathRestriction> {
        let (policy, _) = self.rules.as_ref()?;
        policy.restriction(&self.known.name(&FileId::of(about))?, PathAccess::Read)
    }

    fn skip(&self, entry: &WalkEntry) {
        let count = if entry.is_dir() { &self.skipped.folders } else { &self.skipped.files };
        count.fetch_add(1, Ordering::Relaxed);
        self.skipped.top.fetch_add(usize::from(entry.depth() == 1), Ordering::Relaxed);
    }

    /// Returns the number of skipped entries.
    pub(super) fn skipped(&self) -> usize {
        self.skipped.files.load(Ordering::Relaxed) + self.skipped.folders.load(Ordering::Relaxed)
    }

    /// Returns the number of skipped entries that are in the searched folder itself.
    pub(super) fn skipped_here(&self) -> usize {
        self.skipped.top.load(Ordering::Relaxed)
    }

    /// The line that says what was skipped.
    pub(super) fn note(&self) -> String {
        let count = |count: &AtomicUsize, word: &str| match count.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(format!("1 {word}")),
            n => Some(format!("{n} {word}s")),
        };
        let files = count(&self.skipped.files, "file");
        let folders = count(&self.skipped.folders, "folder");
        let what: Vec<String> = files.into_iter().chain(folders).collect();
        if what.is_empty() {
            return String::new();
        }
        let them = if self.skipped() == 1 { "it" } else { "them" };
        format!("\n[skipped {}: permission rules deny reading {them}, or ask first]", what.join(" and "))
    }
}

/// A walk over an open folder; `path` is its name. Restricted folders are not entered; restricted files are left to the
/// caller, who may not care about them: see [`WalkGuard::admits`].
pub(super) fn walk(
    folder: OwnedFd,
    path: &Path,
    hidden: bool,
    overrides: Option<Override>,
    bounds: &Bounds,
    guard: &WalkGuard,
) -> Walk<impl FnMut(&WalkEntry) -> bool + use<>> {
    let overrides = overrides.unwrap_or_else(Override::empty);
    let (bounds, guard, of_open) = (bounds.clone(), guard.clone(), guard.clone());
    // A search that is over must not read on just because nothing of it is visited.
    let visit = move |entry: &WalkEntry| !bounds.is_over() && (!entry.is_dir() || guard.admits(entry));
    let walk = aye_files::walk::walk_in(
        folder,
        path,
        WalkFilter { hidden, overrides, ..WalkFilter::default() },
        visit,
    );
    walk.entering(Box::new(move |entry, folder| of_open.admits_open(entry, folder)))
}

/// The entries, until the bounds are met; the flag says that they were.
pub(super) fn entries<'a>(
    walk: impl Iterator<Item = WalkEntry> + 'a,
    bounds: &'a Bounds,
    over: &'a mut bool,
) -> impl Iterator<Item = WalkEntry> + 'a {
    walk.take_while(move |_| {
        *over = bounds.is_over();
        !*over
    })
}

/// The line that says that a search is not complete.
pub(super) fn over_note(over: bool) -> &'static str {
    if over { "\n[stopped after 20 s; there may be more results; narrow the search]" } else { "" }
}
