//! [`KnownFiles`]: files that rules are about, by identity. A secret is a file, not a name: it stays one when its folder
//! is moved, and under each of its links.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The identity of a file: device, inode, and when it was made, because an inode is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
    made: Option<SystemTime>,
}

impl FileId {
    /// Returns the identity in the attributes of a file. They must be those of a descriptor, or of a link itself.
    pub fn of(metadata: &Metadata) -> FileId {
        FileId { device: metadata.dev(), inode: metadata.ino(), made: metadata.created().ok() }
    }

    /// The device and the inode.
    pub fn device_and_inode(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// With more names than this, those that are found again anyway are forgotten.
const MANY: usize = 200_000;

/// The files and folders of a project that rules deny or ask about, and the name under which each was found. Whoever
/// looks through the project for them adds them; whoever opens a file or hides it from a command asks for its name here,
/// and judges the file by that name too. Rules that change need no notice: a name that no rule is about any more restricts
/// nothing.
#[derive(Debug, Default)]
pub struct KnownFiles(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    found: HashMap<FileId, PathBuf>,
    inodes: HashSet<u64>,
    /// The number of names at which some are forgotten.
    many: usize,
}

impl Names {
    /// Forgets the files that are still where they were found: the next look through the project finds them again.
    fn forget_those_in_place(&mut self) {
        self.found
            .retain(|id, name| name.symlink_metadata().map_or(true, |metadata| FileId::of(&metadata) != *id));
        self.inodes = self.found.keys().map(|id| id.inode).collect();
        self.many = MANY.max(2 * self.found.len());
    }
}

impl KnownFiles {
    /// Remembers that a file was found under a name that a rule is about. The first name is kept.
    pub fn remember(&self, id: FileId, name: &Path) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.found.len() >= known.many.max(MANY) {
            known.forget_those_in_place();
        }
        known.inodes.insert(id.inode);
        known.found.entry(id).or_insert_with(|| name.to_owned());
    }

    /// Returns the name under which a file was found.
    pub fn name(&self, id: &FileId) -> Option<PathBuf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).found.get(id).cloned()
    }

    /// Returns whether a file with this inode may be known: the number that the listing of a folder has for it.
    pub fn has_inode(&self, inode: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).inodes.contains(&inode)
    }

    /// Returns whether nothing is known, so that no file needs to be asked about.
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).found.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_under_every_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("secrets")).expect("made");
        std::fs::write(at("secrets/a"), "x").expect("written");
        std::fs::write(at("other"), "x").expect("written");
        let id = |name: &str| FileId::of(&at(name).symlink_metadata().expect("exists"));
        let known = KnownFiles::default();
        assert!(known.is_empty());
        known.remember(id("secrets/a"), &at("secrets/a"));
        std::fs::hard_link(at("secrets/a"), at("linked")).expect("linked");
        std::fs::rename(at("secrets"), at("pub")).expect("renamed");
        known.remember(id("pub/a"), &at("pub/a"));
        for name in ["pub/a", "linked"] {
            assert_eq!(known.name(&id(name)), Some(at("secrets/a")), "{name}");
            assert!(known.has_inode(id(name).inode));
        }
        assert_eq!(known.name(&id("other")), None);
    }

    #[test]
    fn an_inode_that_is_used_again_is_another_file() {
        let id = |made| FileId { device: 1, inode: 2, made };
        let known = KnownFiles::default();
        known.remember(id(Some(SystemTime::UNIX_EPOCH)), Path::new("/p/.env"));
        assert_eq!(known.name(&id(Some(SystemTime::now()))), None);
        assert!(known.has_inode(2));
    }
}
