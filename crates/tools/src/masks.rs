//! [`Masks`]: the files of the workspace that rules keep from being read, found again quickly before each command.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{DirEntry, Metadata};
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use aye_core::contract::path_policy::{PathAccess, PathCheck, PathPolicy, PathRestriction};
use aye_files::known::{FileId, KnownFiles};
use aye_sandbox::FolderStamp;

/// The contents of a folder, where they matter here.
#[derive(Debug, Default)]
struct Folder {
    stamp: Option<FolderStamp>,
    masked: Vec<Masked>,
    folders: Vec<PathBuf>,
}

/// A file or folder that a rule keeps from being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Masked {
    pub(super) path: PathBuf,
    /// A rule denies it; otherwise one wants the user to be asked.
    pub(super) is_denied: bool,
    /// The number of entries in its folder.
    pub(super) beside: usize,
    /// What it was when the rules were applied to it.
    pub(super) id: Option<FileId>,
}

#[derive(Default)]
struct Known {
    rules: u64,
    folders: HashMap<PathBuf, Folder>,
    /// Checks for the roots, each made with the first folder that is read: that takes a millisecond.
    checks: HashMap<PathBuf, PathCheck>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known")
            .field("rules", &self.rules)
            .field("folders", &self.folders.len())
            .finish_non_exhaustive()
    }
}

/// A cache of what the rules say about the files of one workspace and the folders beside it: only folders that changed
/// are read again. What it finds is remembered by identity, and found under other names too.
#[derive(Debug, Default)]
pub(super) struct Masks(Mutex<Known>);

impl Masks {
    /// The files and folders below `roots`, and the entries of `folders`, that `policy` keeps from being read, under these
    /// names or under those that `files` knows. They are added to `files`.
    pub(super) fn below(
        &self,
        roots: &[&Path],
        folders: &[&Path],
        policy: &dyn PathPolicy,
        files: &KnownFiles,
    ) -> Vec<Masked> {
        self.below_at(SystemTime::now(), (roots, folders), policy, files)
    }

    /// Forgets which folders did not change.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).folders.clear();
    }

    fn below_at(
        &self,
        now: SystemTime,
        roots: Roots<'_>,
        policy: &dyn PathPolicy,
        files: &KnownFiles,
    ) -> Vec<Masked> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut found, has_links) = find(&mut known, now, roots, (policy, files));
        if has_links {
            // Folders that were read before may contain other names of what was found.
            known.folders.clear();
            found = find(&mut known, now, roots, (policy, files)).0;
        }
        files.keep();
        found
    }
}

/// Folders to search with everything below them, and folders of which only the direct entries count.
type Roots<'a> = (&'a [&'a Path], &'a [&'a Path]);

/// Also returns whether something was found for the first time that has more than one name.
fn find(
    known: &mut Known,
    now: SystemTime,
    (roots, folders): Roots<'_>,
    (policy, files): (&dyn PathPolicy, &KnownFiles),
) -> (Vec<Masked>, bool) {
    let rules = policy.fingerprint();
    let mut has_links = false;
    let mut before = std::mem::take(&mut known.folders);
    if known.rules != rules {
        before.clear();
        known.checks.clear();
    }
    known.rules = rules;
    let mut found = Vec::new();
    let roots = roots.iter().map(|root| (root, true));
    for (root, is_whole) in roots.chain(folders.iter().map(|folder| (folder, false))) {
        let mut open = vec![(*root).to_owned()];
        while let Some(path) = open.pop() {
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if !metadata.is_dir() || known.folders.contains_key(&path) {
                continue;
            }
            let folder = match before.remove(&path) {
                Some(folder) if folder.stamp.as_ref().is_some_and(|stamp| stamp.is_of(&metadata)) => folder,
                Some(_) | None => {
                    let check = known.checks.entry((*root).to_owned()).or_insert_with(|| policy.below(root));
                    let restriction = |entry: &DirEntry, is_folder| {
                        check(&entry.path(), is_folder).or_else(|| under_known_name(entry, policy, files))
                    };
                    let folder = read(&path, &metadata, now, &restriction);
                    has_links |= folder.masked.iter().any(|it| is_new_link(it, files));
                    folder
                }
            };
            for masked in &folder.masked {
                if let Some(id) = masked.id {
                    files.remember(id, &masked.path);
                }
            }
            found.extend_from_slice(&folder.masked);
            if is_whole {
                open.extend_from_slice(&folder.folders);
            }
            known.folders.insert(path, folder);
        }
    }
    (found, has_links)
}

/// What the rules say of an entry under a name that it had before.
fn under_known_name(
    entry: &DirEntry,
    policy: &dyn PathPolicy,
    files: &KnownFiles,
) -> Option<PathRestriction> {
    if !files.has_inode(entry.ino()) {
        return None;
    }
    let name = files.name(&FileId::of(&entry.metadata().ok()?))?;
    policy.restriction(&name, PathAccess::Read)
}

fn is_new_link(masked: &Masked, files: &KnownFiles) -> bool {
    masked.id.is_some_and(|id| files.name(&id).is_none())
        && masked.path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.nlink() > 1)
}

/// Says whether a rule keeps an entry from being read; the flag says that it is a folder.
type Restriction<'a> = dyn Fn(&DirEntry, bool) -> Option<PathRestriction> + 'a;

#[expect(clippy::disallowed_methods, reason = "names are listed; the mounts compare what is behind them")]
fn read(path: &Path, metadata: &Metadata, now: SystemTime, restriction: &Restriction<'_>) -> Folder {
    let mut folder = Folder { stamp: FolderStamp::settled(metadata, now), ..Folder::default() };
    let mut beside = 0;
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let path = entry.path();
        beside += 1;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if let Some(rule) = restriction(&entry, is_folder) {
            let id = entry.metadata().ok().map(|metadata| FileId::of(&metadata));
            folder.masked.push(Masked { path, is_denied: rule.is_denied, beside: 0, id });
        } else if is_folder && !is_objects(&path) {
            folder.folders.push(path);
        }
    }
    for masked in &mut folder.masked {
        masked.beside = beside;
    }
    folder
}

/// Minimum masked entries for a folder to be hidden as a whole; in a folder with fewer, each is masked
/// separately, so that others can be created beside them.
const MIN_FOLDED: usize = 16;

/// How masked files are hidden.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Folded {
    /// The files and folders to hide.
    pub(super) masks: Vec<PathBuf>,
    /// Those of them that hide other files, too.
    pub(super) hidden: Vec<PathBuf>,
    /// Roots of which only the other entries are shown, with their masked ones.
    pub(super) partial: Vec<(PathBuf, HashSet<PathBuf>)>,
}

/// Makes few masks of many, because the time for a mount grows with their number. A folder with nothing but masked entries
/// is one mask; and while there are more than `most`, the folder with most of them is hidden with all that is in it. None
/// of the `roots` is: one with more masked entries than others is shown in part.
pub(super) fn fold(masked: Vec<Masked>, roots: &[&Path], most: usize) -> Folded {
    let mut folders: HashMap<PathBuf, Vec<Masked>> = HashMap::new();
    for one in masked {
        let folder = one.path.parent().unwrap_or(&one.path).to_owned();
        folders.entry(folder).or_default().push(one);
    }
    let mut folded = Folded::default();
    let mut split: Vec<(PathBuf, Vec<Masked>)> = Vec::new();
    for (folder, masked) in folders {
        let is_root = roots.contains(&folder.as_path());
        if !is_root && masked.len() >= MIN_FOLDED && masked.len() == masked[0].beside {
            folded.masks.push(folder);
        } else {
            split.push((folder, masked));
        }
    }
    split.sort_by(|(a, these), (b, those)| those.len().cmp(&these.len()).then_with(|| a.cmp(b)));
    let mut left: usize = folded.masks.len() + split.iter().map(|(_, masked)| masked.len()).sum::<usize>();
    for (folder, masked) in split {
        let is_root = roots.contains(&folder.as_path());
        let contains_root = roots.iter().any(|root| root.starts_with(&folder));
        let others = masked[0].beside - masked.len();
        if left > most && is_root && others < masked.len() {
            left -= masked.len() - others;
            folded.partial.push((folder, masked.into_iter().map(|one| one.path).collect()));
        } else if left > most && masked.len() > 1 && !contains_root {
            left -= masked.len() - 1;
            folded.hidden.push(folder.clone());
            folded.masks.push(folder);
        } else {
            folded.masks.extend(masked.into_iter().map(|one| one.path));
        }
    }
    folded
}

/// The objects of a git repository: files that are named by their content, in hundreds of folders.
fn is_objects(path: &Path) -> bool {
    path.ends_with("objects") && path.with_file_name("HEAD").is_file()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Denies `.env`, asks about `*.pem`, and counts the checks.
    #[derive(Default)]
    struct Rules(u64, Arc<AtomicUsize>);

    impl PathPolicy for Rules {
        fn restriction(&self, path: &Path, _access: PathAccess) -> Option<PathRestriction> {
            path.ends_with(".env").then(|| PathRestriction { is_denied: true, why: String::new() })
        }

        fn below(&self, _folder: &Path) -> PathCheck {
            let asked = Arc::clone(&self.1);
            Arc::new(move |path, _| {
                asked.fetch_add(1, Ordering::Relaxed);
                let is_denied = path.ends_with(".env");
                let is_asked = path.extension().is_some_and(|extension| extension == "pem");
                (is_denied || is_asked).then(|| PathRestriction { is_denied, why: String::new() })
            })
        }

        fn fingerprint(&self) -> u64 {
            self.0
        }
    }

    fn masked(names: &[(&str, usize, usize)]) -> Vec<Masked> {
        let each = |(folder, count, beside): &(&str, usize, usize)| {
            let (folder, beside) = (PathBuf::from(folder), *beside);
            (0..*count)
                .map(move |n| Masked {
                    path: folder.join(format!("{n}.pem")),
                    is_denied: true,
                    beside,
                    id: None,
                })
                .collect::<Vec<_>>()
        };
        names.iter().flat_map(each).collect()
    }

    #[test]
    fn many_masks_become_few() {
        let root = Path::new("/w");
        let of =
            |names: &[(&str, usize, usize)], most| -> (Vec<String>, Vec<String>, Vec<(PathBuf, usize)>) {
                let Folded { mut masks, hidden, partial } = fold(masked(names), &[root], most);
                masks.sort();
                let text =
                    |paths: Vec<PathBuf>| paths.iter().map(|it| it.display().to_string()).collect::<Vec<_>>();
                (
                    text(masks),
                    text(hidden),
                    partial.into_iter().map(|(path, hides)| (path, hides.len())).collect(),
                )
            };
        // Nothing else is in the folder.
        assert_eq!(of(&[("/w/all", 700, 700)], 500), (vec!["/w/all".into()], vec![], vec![]));
        // A few stay what they are: something may be created beside them.
        assert_eq!(of(&[("/w/all", 2, 2)], 500).0, ["/w/all/0.pem", "/w/all/1.pem"]);
        // Too many of them: the fullest folders go first, and the root never does.
        let (masks, hidden, _) =
            of(&[("/w", 3, 9), ("/w/a", 30, 40), ("/w/b", 300, 400), ("/w/c", 1, 9)], 40);
        assert_eq!(hidden, ["/w/b"]);
        assert_eq!(masks.len(), 3 + 30 + 1 + 1);
        let (masks, hidden, _) = of(&[("/w", 3, 9), ("/w/a", 30, 40)], 2);
        assert_eq!((masks.len(), hidden.len()), (4, 1));
        // A root is shown in part, if that takes fewer mounts.
        let (masks, hidden, partial) = of(&[("/w", 700, 720), ("/w/a", 30, 40)], 500);
        assert_eq!((masks.len(), hidden.len(), partial), (30, 0, vec![(root.to_owned(), 700)]));
        assert_eq!(of(&[("/w", 700, 1500)], 500).0.len(), 700);
        // Neither is what contains another root.
        let folded = fold(masked(&[("/w/a", 30, 40)]), &[root, Path::new("/w/a/b")], 2);
        assert_eq!((folded.masks.len(), folded.hidden.len()), (30, 0));
    }

    /// As if nothing had changed for a long time.
    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_hours(1)
    }

    /// Changes a folder so that its time says so: a file system's clock may be coarse.
    fn change(folder: &Path, change: impl Fn()) {
        let time = |folder: &Path| folder.metadata().map(|it| (it.ctime(), it.ctime_nsec())).expect("exists");
        let before = time(folder);
        while time(folder) == before {
            change();
        }
    }

    #[test]
    fn only_changed_folders_are_read_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        std::fs::create_dir_all(root.join("a/b")).expect("written");
        std::fs::create_dir_all(root.join(".git/objects/.env")).expect("written");
        std::fs::write(root.join(".git/HEAD"), "").expect("written");
        for name in [".env", "a/b/x.pem", "a/main.rs"] {
            std::fs::write(root.join(name), "").expect("written");
        }
        let (masks, rules, files) = (Masks::default(), Rules::default(), KnownFiles::default());
        let names = |now: SystemTime, rules: &Rules| {
            let mut found: Vec<String> = masks
                .below_at(now, (&[root], &[]), rules, &files)
                .into_iter()
                .map(|it| {
                    format!("{} {}", it.path.strip_prefix(root).expect("below").display(), it.is_denied)
                })
                .collect();
            found.sort();
            found
        };
        let asked = |rules: &Rules| rules.1.swap(0, Ordering::Relaxed);
        assert_eq!(names(later(), &rules), [".env true", "a/b/x.pem false"]);
        assert_eq!(asked(&rules), 8);
        assert_eq!(names(later(), &rules), [".env true", "a/b/x.pem false"]);
        assert_eq!(asked(&rules), 0, "nothing changed");
        // A command that creates a file can give its folder the old time of modification.
        let folder = root.join("a");
        let modified = folder.metadata().and_then(|it| it.modified()).expect("it has one");
        change(&folder, || {
            std::fs::write(folder.join("y.pem"), "").expect("written");
            let _ = std::fs::File::open(&folder).and_then(|it| it.set_modified(modified));
        });
        assert_eq!(names(SystemTime::now(), &rules), [".env true", "a/b/x.pem false", "a/y.pem false"]);
        assert_eq!(asked(&rules), 3, "one folder changed");
        assert_eq!(names(later(), &rules).len(), 3);
        assert_eq!(asked(&rules), 3, "a moment ago: it may change again within the same tick");
        assert_eq!(names(later(), &rules).len(), 3);
        assert_eq!(asked(&rules), 0);
        let others = Rules(1, Arc::default());
        assert_eq!(names(later(), &others).len(), 3);
        assert!(asked(&others) > 3, "other rules");
        let entries = masks.below_at(later(), (&[], &[root]), &others, &files);
        assert_eq!(entries.len(), 1, "only the folder's own entries: {entries:?}");
    }

    #[test]
    fn a_file_stays_masked_under_every_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        for folder in ["a", "b", "c"] {
            std::fs::create_dir(root.join(folder)).expect("written");
        }
        std::fs::write(root.join("b/.env"), "").expect("written");
        // Read before the name that the rule is about.
        std::fs::hard_link(root.join("b/.env"), root.join("a/x")).expect("linked");
        std::fs::hard_link(root.join("b/.env"), root.join("c/x")).expect("linked");
        let (masks, files) = (Masks::default(), KnownFiles::default());
        let names = |now: SystemTime| {
            let found = masks.below_at(now, (&[root], &[]), &Rules::default(), &files).into_iter();
            let mut names: Vec<PathBuf> =
                found.map(|it| it.path.strip_prefix(root).expect("below").to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(later()), ["a/x", "b/.env", "c/x"].map(PathBuf::from));
        std::fs::rename(root.join("b/.env"), root.join("b/plain")).expect("renamed");
        std::fs::rename(root.join("b"), root.join("d")).expect("renamed");
        std::fs::write(root.join("d/other"), "").expect("written");
        assert_eq!(names(SystemTime::now()), ["a/x", "c/x", "d/plain"].map(PathBuf::from));
    }
}
