//! The files that `@` completes.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use crate::walk::WalkFilter;

/// How long a list of files may be reused.
const FRESH: Duration = Duration::from_secs(5);
/// The maximum number of files listed.
const MAX_FILES: usize = 50_000;
/// The maximum number of completions.
const OFFERED: usize = 50;

/// The files of one folder, walked when first asked for.
#[derive(Default)]
pub(crate) struct Files {
    list: Mutex<Option<(Instant, Vec<String>)>>,
}

impl Files {
    /// Returns all files. Blocks: it may walk the folder.
    pub(crate) fn all(&self, cwd: &Path) -> Vec<String> {
        self.complete(cwd, "");
        let list = self.list.lock().expect("no panic while files are held");
        list.as_ref().map(|(_, files)| files.clone()).unwrap_or_default()
    }

    /// Returns the matching paths, best first. Blocks: it may walk the folder.
    pub(crate) fn complete(&self, cwd: &Path, query: &str) -> Vec<String> {
        let mut list = self.list.lock().expect("no panic while files are held");
        let stale = list.as_ref().is_none_or(|(read, _)| read.elapsed() > FRESH);
        if stale {
            *list = Some((Instant::now(), walk(cwd)));
        }
        let files = list.as_ref().map(|(_, files)| files.as_slice()).unwrap_or_default();
        if query.is_empty() {
            return files.iter().take(OFFERED).cloned().collect();
        }
        let mut matcher = Matcher::new(Config::DEFAULT.match_paths());
        let pattern = Pattern::parse(query, CaseMatching::Smart, Normalization::Smart);
        let best = pattern.match_list(files, &mut matcher).into_iter().take(OFFERED);
        best.map(|(file, _)| file.clone()).collect()
    }
}

fn walk(cwd: &Path) -> Vec<String> {
    let mut files: Vec<String> = crate::walk::walk(cwd, WalkFilter::default(), |_| true)
        .filter_map(|entry| {
            let path = entry.path().strip_prefix(cwd).ok()?.to_str()?;
            Some(if entry.is_dir() { format!("{path}/") } else { path.to_owned() })
        })
        .take(MAX_FILES)
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_at_the_start_of_a_name_is_better_than_one_in_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("mainland/src")).expect("folders");
        for file in ["mainland/src/other.rs", "mainland/src/main.rs", "README.md"] {
            std::fs::write(folder.path().join(file), "").expect("a file");
        }
        let files = Files::default();
        let first = |query: &str| files.complete(folder.path(), query).into_iter().next();
        for query in ["main.rs", "srcmai"] {
            assert_eq!(first(query).as_deref(), Some("mainland/src/main.rs"), "{query}");
        }
        assert_eq!(first("zzz"), None);
    }
}
