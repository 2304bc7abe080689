//! Downloads that commands can add to without changing the user's: [`LinkedCache`].
//!
//! What runs outside must never be what a sandboxed command wrote, and a build must find its packages at the path
//! where it finds them outside, or it would be made anew. So the command finds a folder of aye's own at the path of
//! the user's, and in it links to what the user's contains, or copies. The launcher makes the links after it has restricted
//! itself: whatever commands left in the folder, such as a link that leads elsewhere, it can reach no more than
//! they can.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only the launcher makes links"))]

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// The file that says what the links were made from.
const STAMP: &str = ".aye-links";

/// The depth to which folders of a cache of modules are compared with the last time.
const STAMPED: usize = 5;

/// A package manager whose downloads are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// The registry of Cargo: archives, unpacked packages and the index, by registry.
    Cargo,
    /// The module cache of Go: unpacked modules by path, and what was downloaded.
    Go,
}

/// A folder of downloads, in [`Profile::Workspace`](crate::Profile::Workspace) where there are namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkedCache {
    pub kind: CacheKind,
    /// The user's folder, and the path at which the command finds `own`.
    pub path: PathBuf,
    /// The folder of aye's own. No command may reach it at another path.
    pub own: PathBuf,
}

impl LinkedCache {
    /// The path of the user's folder inside the namespaces.
    pub(crate) fn source(&self) -> &'static str {
        match self.kind {
            CacheKind::Cargo => "/run/aye/cargo",
            CacheKind::Go => "/run/aye/go",
        }
    }

    /// Adds links to what is new in the user's folder and removes those to what is gone, inside the namespaces. A
    /// package without a link is downloaded again, so nothing is reported.
    pub(crate) fn link(&self) {
        self.kind.link_from(Path::new(self.source()), &self.path);
    }
}

impl CacheKind {
    fn link_from(self, from: &Path, to: &Path) {
        let stamp = self.stamp(from);
        let known = to.join(STAMP);
        if contains(&known, &stamp) {
            return;
        }
        self.link_below(from, to, Path::new(""));
        let _ = replace(&known, &mut stamp.as_bytes());
    }

    /// Whether this is linked as a whole; folders above it are made.
    fn is_package(self, path: &Path) -> bool {
        match self {
            CacheKind::Cargo => path.starts_with("src") && path.components().count() > 2,
            CacheKind::Go => {
                let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
                name.find('@').is_some_and(|at| at > 0)
            }
        }
    }

    /// Whether this cannot be shared: locks, and what a download makes anew.
    fn is_left_out(self, path: &Path) -> bool {
        let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
        match self {
            CacheKind::Cargo => name == STAMP || name == ".git",
            CacheKind::Go => name == STAMP || name == "list" || name == "lock" || name.ends_with(".lock"),
        }
    }

    /// Whether downloads write this file again, so that it has to be a copy.
    fn is_rewritten(self, path: &Path) -> bool {
        self == CacheKind::Cargo && path.starts_with("index")
    }

    /// Whether a new package shows in the times of folders below this one.
    fn is_stamped(self, path: &Path) -> bool {
        match self {
            CacheKind::Cargo => path.components().count() == 1,
            CacheKind::Go => path.components().count() < STAMPED && !path.starts_with("cache"),
        }
    }

    fn link_below(self, from: &Path, to: &Path, below: &Path) {
        for entry in entries(&to.join(below)) {
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if is_link && entry.path().metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            {
                let _ = fs::remove_file(entry.path());
            }
        }
        for entry in entries(&from.join(below)) {
            let path = below.join(entry.file_name());
            if self.is_left_out(&path) {
                continue;
            }
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && !self.is_package(&path) {
                let folder = to.join(&path);
                let _ = fs::create_dir(&folder);
                if folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                    self.link_below(from, to, &path);
                }
            } else if self.is_rewritten(&path) {
                copy_newer(&from.join(&path), &to.join(&path));
            } else {
                // What is there already stays: a link, or what a command downloaded.
                let _ = symlink(from.join(&path), to.join(&path));
            }
        }
    }

    /// The times at which packages were added, as text.
    fn stamp(self, from: &Path) -> String {
        let mut stamp = String::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(below) = folders.pop() {
            for entry in entries(&from.join(&below)) {
                let path = below.join(entry.file_name());
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let Some(metadata) = entry.metadata().ok().filter(|_| is_folder && !self.is_package(&path))
                else {
                    continue;
                };
                let time = (metadata.mtime(), metadata.mtime_nsec());
                // Writing into a string cannot fail.
                let _ = writeln!(stamp, "{} {}.{}", path.display(), time.0, time.1);
                if self.is_stamped(&path) {
                    folders.push(path);
                }
            }
        }
        stamp
    }
}

/// Copies a file where there is none or an older one.
fn copy_newer(from: &Path, to: &Path) {
    let time = |path: &Path| path.symlink_metadata().and_then(|metadata| metadata.modified()).ok();
    if time(to) < time(from)
        && let Ok(mut file) = fs::File::open(from)
    {
        let _ = replace(to, &mut file);
    }
}

/// Writes a file anew. Whatever a command left in its place, such as a pipe that nobody reads, is not opened.
fn replace(path: &Path, content: &mut impl io::Read) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    io::copy(content, &mut file).map(drop)
}

/// Whether a file has this content. A pipe has none, and is not waited for.
fn contains(path: &Path, text: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(fs::File::from) else { return false };
    let mut found = Vec::new();
    file.metadata().is_ok_and(|about| about.is_file() && about.len() == text.len() as u64)
        && file.take(text.len() as u64).read_to_end(&mut found).is_ok()
        && found == text.as_bytes()
}

/// The entries of a folder, as far as they can be read; none if it is a link.
fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    let is_link = folder.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let entries = if is_link { None } else { fs::read_dir(folder).ok() };
    entries.into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn write(path: &Path) {
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, path.file_name().expect("it has one").as_encoded_bytes()).expect("written");
    }

    /// What is in a folder: links with an arrow, files and empty folders by their path.
    fn shown(root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in entries(&folder) {
                let path = entry.path();
                let name = path.strip_prefix(root).expect("below").display().to_string();
                match path.read_link() {
                    Ok(_) => found.push(format!("{name} ->")),
                    Err(_) if path.is_dir() => folders.push(path),
                    Err(_) if name != STAMP => found.push(name),
                    Err(_) => {}
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn packages_are_linked_once_and_gone_ones_leave() {
        let dir = tempfile::tempdir().expect("a folder");
        let (user, own) = (dir.path().join("user"), dir.path().join("own"));
        fs::create_dir(&own).expect("made");
        for file in
            ["cache/reg/a-1.crate", "src/reg/a-1/src/lib.rs", "index/reg/.cache/3/a/abc", "CACHEDIR.TAG"]
        {
            write(&user.join(file));
        }
        CacheKind::Cargo.link_from(&user, &own);
        let linked =
            ["CACHEDIR.TAG ->", "cache/reg/a-1.crate ->", "index/reg/.cache/3/a/abc", "src/reg/a-1 ->"];
        assert_eq!(shown(&own), linked);
        assert_eq!(fs::read_to_string(own.join("src/reg/a-1/src/lib.rs")).expect("read"), "lib.rs");

        // What a command downloaded stays, also when the user downloads it later.
        write(&own.join("src/reg/b-1/lib.rs"));
        write(&user.join("src/reg/b-1/src/lib.rs"));
        write(&user.join("src/reg/c-1/src/lib.rs"));
        fs::remove_dir_all(user.join("src/reg/a-1")).expect("removed");
        // The newer index is the right one, whoever has it.
        let index = "index/reg/.cache/3/a/abc";
        fs::write(own.join(index), "of a command").expect("written");
        write(&user.join("index/reg/.cache/3/b/bcd"));
        CacheKind::Cargo.link_from(&user, &own);
        assert_eq!(fs::read_to_string(own.join(index)).expect("read"), "of a command");
        let newer = own.join(index).metadata().and_then(|it| it.modified()).expect("known") + MINUTE;
        fs::write(user.join(index), "of the user").expect("written");
        let file = fs::File::options().write(true).open(user.join(index)).expect("opened");
        file.set_modified(newer).expect("changed");
        fs::create_dir(user.join("src/reg/d-1")).expect("made");
        CacheKind::Cargo.link_from(&user, &own);
        assert_eq!(fs::read_to_string(own.join(index)).expect("read"), "of the user");
        let later = ["index/reg/.cache/3/b/bcd", "src/reg/b-1/lib.rs", "src/reg/c-1 ->", "src/reg/d-1 ->"];
        assert_eq!(shown(&own), [&linked[..3], &later].concat());

        // Without anything new nothing is looked at.
        fs::remove_file(own.join("src/reg/c-1")).expect("removed");
        CacheKind::Cargo.link_from(&user, &own);
        assert!(!own.join("src/reg/c-1").exists());
    }

    #[test]
    fn modules_are_linked_as_a_whole_and_locks_are_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let (user, own) = (dir.path().join("user"), dir.path().join("own"));
        fs::create_dir(&own).expect("made");
        for file in [
            "example.org/a/b@v1.0.0/go.mod",
            "example.org/a/b/v2@v2.0.0/go.mod",
            "cache/lock",
            "cache/download/example.org/a/b/@v/v1.0.0.zip",
            "cache/download/example.org/a/b/@v/v1.0.0.lock",
            "cache/download/example.org/a/b/@v/list",
        ] {
            write(&user.join(file));
        }
        CacheKind::Go.link_from(&user, &own);
        let linked = [
            "cache/download/example.org/a/b/@v/v1.0.0.zip ->",
            "example.org/a/b/v2@v2.0.0 ->",
            "example.org/a/b@v1.0.0 ->",
        ];
        assert_eq!(shown(&own), linked);
        write(&user.join("example.org/a/b/v2@v2.0.1/go.mod"));
        CacheKind::Go.link_from(&user, &own);
        assert!(own.join("example.org/a/b/v2@v2.0.1").is_symlink());
    }

    #[test]
    fn pipes_in_place_of_files_are_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let (user, own) = (dir.path().join("user"), dir.path().join("own"));
        let index = "index/reg/.cache/3/a/abc";
        fs::create_dir_all(own.join(index).parent().expect("it has one")).expect("made");
        for path in [STAMP, index] {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                own.join(path),
                rustix::fs::FileType::Fifo,
                Mode::RUSR | Mode::WUSR,
                0,
            )
            .expect("made");
        }
        write(&user.join(index));
        let file = fs::File::options().write(true).open(user.join(index)).expect("opened");
        file.set_modified(std::time::SystemTime::now() + MINUTE).expect("changed");
        CacheKind::Cargo.link_from(&user, &own);
        assert_eq!(fs::read_to_string(own.join(index)).expect("read"), "abc");
        assert!(own.join(STAMP).symlink_metadata().expect("written").is_file());
    }

    #[test]
    fn a_link_in_place_of_a_folder_is_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (user, own, other) = (dir.path().join("user"), dir.path().join("own"), dir.path().join("other"));
        write(&user.join("src/reg/a-1/lib.rs"));
        write(&user.join("cache/reg/a-1.crate"));
        fs::create_dir(&own).expect("made");
        write(&other.join("reg/kept"));
        symlink(&other, own.join("src")).expect("linked");
        symlink(other.join("stamp"), own.join(STAMP)).expect("linked");
        CacheKind::Cargo.link_from(&user, &own);
        assert_eq!(shown(&other), ["reg/kept"]);
        assert!(own.join("cache/reg/a-1.crate").is_symlink());
    }
}
