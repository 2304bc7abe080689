//! Walking a tree as ripgrep does: ignored and hidden files are left out, links are not followed.

use std::path::Path;
use std::time::{Duration, Instant};

use ignore::{DirEntry, Walk, WalkBuilder};
use tokio_util::sync::CancellationToken;

/// How long a search may take.
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

    /// Whether it is time to stop with what was found so far.
    pub(super) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() > self.deadline
    }
}

/// A walk, to be changed further.
pub(super) fn builder(root: &Path, hidden_too: bool) -> WalkBuilder {
    let mut builder = WalkBuilder::new(root);
    builder
        .hidden(!hidden_too)
        // What a `.gitignore` says holds outside of a repository as well.
        .require_git(false)
        // The user's global excludes are found through the environment, which only the composition root reads.
        .git_global(false)
        .follow_links(false)
        .sort_by_file_name(std::cmp::Ord::cmp)
        .filter_entry(|entry| entry.file_name() != ".git");
    builder
}

/// The entries that can be read, until the bounds are met; the flag says that they were.
pub(super) fn entries<'a>(
    walk: Walk,
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
    if over { "\n[stopped after 20 s: there may be more; narrow the search]" } else { "" }
}
