//! Searches of a tree: hidden and ignored files are left out, links are not followed, and files that permission rules
//! restrict are skipped and counted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ignore::overrides::Override;
use ignore::{DirEntry, WalkBuilder};
use tokio_util::sync::CancellationToken;

use super::ToolEnv;
use aye_core::contract::path_policy::{PathAccess, PathCheck, PathPolicy};
use aye_core::contract::tool::ToolCallContext;
use aye_files::walk::WalkFilter;

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
        Self { deadline: Instant::now() + MAX_TIME, cancel }
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
        let policy = env.policies.as_ref().map(|policies| policies.policy(&ctx.agent_spec));
        let rules = policy.map(|policy| {
            let check = policy.below(folder);
            (policy, check)
        });
        WalkGuard { rules, skipped: Arc::default() }
    }

    /// Whether no rule restricts an entry. A restricted entry is counted as skipped.
    pub(super) fn admits(&self, entry: &DirEntry) -> bool {
        let Some((policy, check)) = &self.rules else { return true };
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        let restriction = if entry.path_is_symlink() {
            policy.restriction(entry.path(), PathAccess::Read)
        } else {
            check(entry.path(), is_dir)
        };
        if restriction.is_some() {
            let count = if is_dir { &self.skipped.folders } else { &self.skipped.files };
            count.fetch_add(1, Ordering::Relaxed);
            self.skipped.top.fetch_add(usize::from(entry.depth() == 1), Ordering::Relaxed);
        }
        restriction.is_none()
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

/// A walk, to be changed further. Restricted folders are not entered; restricted files are left to the caller, who may
/// not care about them: see [`WalkGuard::admits`].
pub(super) fn builder(
    root: &Path,
    hidden: bool,
    overrides: Option<Override>,
    bounds: &Bounds,
    guard: &WalkGuard,
) -> WalkBuilder {
    let overrides = overrides.unwrap_or_else(Override::empty);
    let (bounds, guard) = (bounds.clone(), guard.clone());
    let visit = move |entry: &DirEntry| {
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        // A search that is over must not read on just because nothing of it is visited.
        !bounds.is_over() && (!is_dir || guard.admits(entry))
    };
    let mut builder =
        aye_files::walk::builder(root, WalkFilter { hidden, overrides, ..WalkFilter::default() }, visit);
    builder.sort_by_file_name(std::cmp::Ord::cmp);
    builder
}

/// The entries that can be read, until the bounds are met; the flag says that they were.
pub(super) fn entries<'a>(
    walk: ignore::Walk,
    bounds: &'a Bounds,
    over: &'a mut bool,
) -> impl Iterator<Item = DirEntry> + 'a {
    walk.take_while(move |_| {
        *over = bounds.is_over();
        !*over
    })
    .filter_map(Result::ok)
}

/// The line that says that a search is not complete.
pub(super) fn over_note(over: bool) -> &'static str {
    if over { "\n[stopped after 20 s; there may be more results; narrow the search]" } else { "" }
}
