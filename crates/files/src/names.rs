//! The names that folders store. A volume that ignores case, or how letters are composed, finds a file under names that no
//! folder lists: what is compared with a name has to know which one the folder stores.
//!
//! No table says which volumes do, because ext4 decides it for each folder: a folder shows it by finding an entry under
//! another spelling of its name. On a volume that tells spellings apart, this is one call that finds nothing.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use aye_core::contract::spelling;

/// What is asked of the volumes about names.
pub trait Volumes: fmt::Debug + Send + Sync {
    /// The device and the inode of what has a path. A link at its end is not followed.
    fn id(&self, path: &Path) -> Option<(u64, u64)>;

    /// The names that a folder stores, each with the inode that the folder has for it.
    fn entries(&self, folder: &Path) -> Option<Vec<(OsString, u64)>>;

    /// Whether a folder ignores case, where each has a setting of its own.
    fn setting(&self, folder: &Path) -> Option<bool>;
}

/// Those of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Mounted;

impl Volumes for Mounted {
    fn id(&self, path: &Path) -> Option<(u64, u64)> {
        path.symlink_metadata().ok().map(|about| (about.dev(), about.ino()))
    }

    fn entries(&self, folder: &Path) -> Option<Vec<(OsString, u64)>> {
        let entries = std::fs::read_dir(folder).ok()?;
        entries.map(|entry| entry.ok().map(|entry| (entry.file_name(), entry.ino()))).collect()
    }

    fn setting(&self, folder: &Path) -> Option<bool> {
        aye_platform::ignores_case(folder)
    }
}

/// Returns an absolute path with the names that its folders store, if one of them is another than in the path. The part
/// that does not exist stays. The folders down to `above` are not asked.
pub fn stored(volumes: &dyn Volumes, path: &Path, above: &Path) -> Option<PathBuf> {
    let (mut at, rest) = match path.strip_prefix(above) {
        Ok(rest) => (above.to_owned(), rest),
        Err(_) => (PathBuf::new(), path),
    };
    let mut is_other = false;
    let mut names = rest.components();
    while let Some(name) = names.next() {
        let step = at.join(name);
        let Some(id) = other_id(volumes, &at, name.as_os_str()) else {
            at = step;
            continue;
        };
        match volumes.id(&step) {
            None => {
                at = step.join(names.as_path());
                break;
            }
            Some(own) if own == id => {
                let stored = stored_name(volumes, &at, name.as_os_str(), id);
                is_other |= stored.is_some();
                at = stored.map_or(step, |stored| at.join(stored));
            }
            Some(_) => at = step,
        }
    }
    is_other.then_some(at)
}

/// Returns what a folder finds under another spelling of a name.
fn other_id(volumes: &dyn Volumes, folder: &Path, name: &OsStr) -> Option<(u64, u64)> {
    let others = spelling::others(name.to_str()?);
    others.iter().find_map(|other| volumes.id(&folder.join(other)))
}

/// Returns the name that a folder stores for what it found under `name`; `None` if it is that one.
fn stored_name(volumes: &dyn Volumes, folder: &Path, name: &OsStr, id: (u64, u64)) -> Option<OsString> {
    let entries = volumes.entries(folder)?;
    if entries.iter().any(|(entry, _)| entry == name) {
        return None;
    }
    // Some volumes in user space list other inodes than their files have.
    let is_spelling = |entry: &OsStr| match (entry.to_str(), name.to_str()) {
        (Some(entry), Some(name)) => spelling::folded(entry) == spelling::folded(name),
        _ => false,
    };
    let mut entries = entries.into_iter().filter(|(entry, inode)| *inode == id.1 || is_spelling(entry));
    entries.find(|(entry, _)| volumes.id(&folder.join(entry)) == Some(id)).map(|(entry, _)| entry)
}

/// Returns whether a path may name the same as another spelling of it: a folder on the way ignores case or how letters are
/// composed, or it cannot be known that none does. What does not exist would be made in the last folder that does.
pub fn ignores_spelling(volumes: &dyn Volumes, path: &Path) -> bool {
    let mut folder = PathBuf::new();
    for name in path {
        let step = folder.join(name);
        let Some(id) = volumes.id(&step) else { return ignores_new(volumes, &folder, name) };
        if other_id(volumes, &folder, name) == Some(id) {
            return true;
        }
        folder = step;
    }
    false
}

/// The same for a name that is new in a folder. What the folder has shows it; else the folders above it on the same volume
/// do.
fn ignores_new(volumes: &dyn Volumes, folder: &Path, name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return true };
    let device = volumes.id(folder).map(|(device, _)| device);
    for folder in folder.ancestors() {
        if volumes.id(folder).map(|(device, _)| device) != device {
            break;
        }
        if let Some(setting) = volumes.setting(folder) {
            return setting;
        }
        let entries = volumes.entries(folder).unwrap_or_default();
        // Only a name with such letters shows what the volume does with them.
        let shows = |entry: &&str| name.is_ascii() || !entry.is_ascii();
        let mut entries = entries.iter().filter_map(|(entry, _)| entry.to_str()).filter(shows);
        let found = entries.find_map(|entry| {
            let id = volumes.id(&folder.join(entry))?;
            let others = spelling::others(entry);
            let is_found = |other: &String| volumes.id(&folder.join(other)) == Some(id);
            (!others.is_empty()).then(|| others.iter().any(is_found))
        });
        if let Some(found) = found {
            return found;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use super::*;

    /// Paths and what they are. A folder whose name starts with `any` ignores spelling.
    #[derive(Debug, Default)]
    struct Made {
        paths: Vec<(&'static str, u64)>,
        /// Another device begins at this folder.
        mount: Option<&'static str>,
        setting: Option<(&'static str, bool)>,
        calls: Mutex<Cell<usize>>,
    }

    impl Made {
        fn of(paths: &[&'static str]) -> Made {
            Made { paths: paths.iter().copied().zip(2..).collect(), ..Made::default() }
        }

        fn find(&self, path: &Path) -> Option<(PathBuf, u64)> {
            let mut at = PathBuf::from("/");
            let mut inode = 1;
            for name in path.iter().skip(1) {
                let ignores = at.file_name().is_some_and(|name| name.to_string_lossy().starts_with("any"));
                let found = self.paths.iter().find(|(entry, _)| {
                    let entry = Path::new(entry);
                    let stored = entry.file_name().and_then(OsStr::to_str).unwrap_or_default();
                    let is_it = if ignores {
                        spelling::folded(stored) == spelling::folded(&name.to_string_lossy())
                    } else {
                        stored == name
                    };
                    entry.parent() == Some(&at) && is_it
                })?;
                (at, inode) = (found.0.into(), found.1);
            }
            Some((at, inode))
        }
    }

    impl Volumes for Made {
        fn id(&self, path: &Path) -> Option<(u64, u64)> {
            let calls = self.calls.lock().unwrap();
            calls.set(calls.get() + 1);
            let (at, inode) = self.find(path)?;
            let is_mounted = self.mount.is_some_and(|mount| at.starts_with(mount));
            Some((u64::from(is_mounted), inode))
        }

        fn entries(&self, folder: &Path) -> Option<Vec<(OsString, u64)>> {
            let (folder, _) = self.find(folder)?;
            let below = self.paths.iter().filter(|(path, _)| Path::new(path).parent() == Some(&folder));
            Some(below.map(|(path, inode)| (Path::new(path).file_name().unwrap().into(), *inode)).collect())
        }

        fn setting(&self, folder: &Path) -> Option<bool> {
            self.setting.filter(|(path, _)| folder == Path::new(path)).map(|(_, setting)| setting)
        }
    }

    #[test]
    fn a_path_has_the_names_that_its_folders_store() {
        let made = Made::of(&[
            "/w",
            "/w/any",
            "/w/any/.env",
            "/w/any/any Caf\u{e9}",
            "/w/any/any Caf\u{e9}/Key",
            "/w/README",
            "/w/readme",
        ]);
        let stored = |path: &str| {
            stored(&made, Path::new(path), Path::new("/w")).map(|path| path.to_str().unwrap().to_owned())
        };
        for (path, want) in [
            ("/w/any/.ENV", Some("/w/any/.env")),
            ("/w/any/.env", None),
            ("/w/any/ANY CAFE\u{301}/kEY", Some("/w/any/any Caf\u{e9}/Key")),
            ("/w/any/ANY CAFE\u{301}/new/File", Some("/w/any/any Caf\u{e9}/new/File")),
            ("/w/any/NEW", None),
            ("/w/ANY/.ENV", None),
            ("/w/README", None),
            ("/w/readme", None),
            ("/w/ReadMe", None),
            ("/other/x", None),
        ] {
            assert_eq!(stored(path).as_deref(), want, "{path}");
        }
    }

    #[test]
    fn an_ordinary_volume_is_asked_once_for_a_name() {
        let made = Made::of(&["/w", "/w/src", "/w/src/main.rs", "/w/12"]);
        let count = |path: &str| {
            made.calls.lock().unwrap().set(0);
            assert_eq!(stored(&made, Path::new(path), Path::new("/w")), None);
            made.calls.lock().unwrap().get()
        };
        assert_eq!((count("/w/src/main.rs"), count("/w/12"), count("/w")), (2, 0, 0));
    }

    #[test]
    fn hard_links_in_two_spellings_are_two_names() {
        let mut made = Made::of(&["/w", "/w/a", "/w/A"]);
        made.paths[2].1 = made.paths[1].1;
        assert_eq!(stored(&made, Path::new("/w/A"), Path::new("/")), None);
        assert!(ignores_spelling(&made, Path::new("/w/A")), "it is the same file all the same");
    }

    #[test]
    fn a_new_name_is_compared_as_its_folder_does() {
        let mut made = Made::of(&[
            "/any",
            "/any/.git",
            "/any/1",
            "/w",
            "/w/any",
            "/w/any/x",
            "/w/any/\u{e9}",
            "/w/any/any12",
            "/w/empty",
            "/w/\u{df}",
        ]);
        let ignores = |made: &Made, path: &str| ignores_spelling(made, Path::new(path));
        for (path, want) in [
            ("/w/new", false),
            ("/w/empty/new/.env", false),
            ("/w/any/new", true),
            ("/w/any/CAF\u{c9}", true),
            ("/any/x", true),
            ("/w/any/x", true),
            ("/w/any", false),
            // Nothing in these folders has such letters.
            ("/w/empty/\u{e9}", true),
        ] {
            assert_eq!(ignores(&made, path), want, "{path}");
        }
        made.setting = Some(("/w/empty", true));
        assert!(ignores(&made, "/w/empty/new") && ignores(&made, "/w/empty/new/x"));
        made.setting = Some(("/w/empty", false));
        assert!(!ignores(&made, "/w/empty/\u{e9}"));
        made.setting = None;
        // What the folder above says is about another volume.
        made.mount = Some("/w/empty");
        assert!(ignores(&made, "/w/empty/new"));
        assert!(!ignores(&made, "/w/new"));
    }

    #[test]
    fn this_machine_answers_about_its_own_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        std::fs::write(root.join("Name"), "").expect("written");
        // A folder for temporary files that ignores case is found out by the same means.
        let is_one = root.join("nAME").exists();
        assert_eq!(stored(&Mounted, &root.join("nAME"), &root), is_one.then(|| root.join("Name")));
        assert_eq!(ignores_spelling(&Mounted, &root.join("NEW")), is_one);
        assert_eq!(stored(&Mounted, &root.join("Name"), &root), None);
    }
}
