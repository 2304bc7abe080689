//! [`KnownFiles`]: files that rules are about, by identity. A secret is a file, not a name: it stays one when its folder
//! is moved, and under each of its links.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::opener::PrivateFolder;

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

/// A file of names that is larger is written anew, without those that are found again anyway.
const MAX_FILE: u64 = 4 << 20;

/// The files and folders of a project that rules deny or ask about, and the name under which each was found. Whoever
/// looks through the project for them adds them; whoever opens a file or hides it from a command asks for its name here,
/// and judges the file by that name too. Rules that change need no notice: a name that no rule is about any more restricts
/// nothing.
#[derive(Debug, Default)]
pub struct KnownFiles {
    names: Mutex<Names>,
    /// The file in which names outlive the process.
    file: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Names {
    found: HashMap<FileId, PathBuf>,
    inodes: HashSet<u64>,
    /// The number of names at which some are forgotten.
    many: usize,
    /// Names that are not in the file yet.
    new: Vec<(FileId, PathBuf)>,
}

impl Names {
    fn insert(&mut self, id: FileId, name: &Path) -> bool {
        let is_new = !self.found.contains_key(&id);
        if is_new {
            self.inodes.insert(id.inode);
            self.found.insert(id, name.to_owned());
        }
        is_new
    }

    /// Forgets the files that are still where they were found: the next look through the project finds them again.
    fn forget_those_in_place(&mut self) {
        self.found
            .retain(|id, name| name.symlink_metadata().map_or(true, |about| FileId::of(&about).key() != *id));
        self.inodes = self.found.keys().map(|id| id.inode).collect();
        self.many = MANY.max(2 * self.found.len());
    }
}

impl FileId {
    /// The identity by which a name is found. A restart may give a device another number; the inode and the time of birth
    /// identify a file without it.
    fn key(self) -> FileId {
        FileId { device: if self.made.is_some() { 0 } else { self.device }, ..self }
    }
}

impl KnownFiles {
    /// Reads the names that earlier processes found, and keeps new ones beside them. Without the file nothing is lost but
    /// the names of before.
    pub fn kept_in(file: PathBuf) -> KnownFiles {
        let mut names = Names::default();
        match fs::read(&file) {
            Ok(bytes) => {
                for (id, name) in bytes.split(|byte| *byte == 0).filter_map(read_record) {
                    names.insert(id, &name);
                }
                if bytes.len() as u64 > MAX_FILE {
                    names.forget_those_in_place();
                    let all: Vec<u8> = names.found.iter().flat_map(|(id, name)| record(*id, name)).collect();
                    if let Err(error) = replace(&file, &all) {
                        tracing::warn!(%error, file = %file.display(), "the names of known files cannot be written");
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "the names of known files cannot be read");
            }
        }
        KnownFiles { names: Mutex::new(names), file: Some(file) }
    }

    /// Remembers that a file was found under a name that a rule is about. The first name is kept.
    pub fn remember(&self, id: FileId, name: &Path) {
        let mut known = self.lock();
        if known.found.len() >= known.many.max(MANY) {
            known.forget_those_in_place();
        }
        let id = id.key();
        // An inode is used again, and only the time of birth tells the files apart.
        if known.insert(id, name) && self.file.is_some() && id.made.is_some() {
            known.new.push((id, name.to_owned()));
        }
    }

    /// Writes new names to the file. Called before anything runs that may rename what was found.
    pub fn keep(&self) {
        let Some(file) = &self.file else { return };
        let new = std::mem::take(&mut self.lock().new);
        if new.is_empty() {
            return;
        }
        let records: Vec<u8> = new.iter().flat_map(|(id, name)| record(*id, name)).collect();
        if let Err(error) = append(file, &records) {
            tracing::warn!(%error, file = %file.display(), "the names of known files cannot be written");
        }
    }

    /// Returns the name under which a file was found.
    pub fn name(&self, id: &FileId) -> Option<PathBuf> {
        self.lock().found.get(&id.key()).cloned()
    }

    /// Returns whether a file with this inode may be known: the number that the listing of a folder has for it.
    pub fn has_inode(&self, inode: u64) -> bool {
        self.lock().inodes.contains(&inode)
    }

    /// Returns whether nothing is known, so that no file needs to be asked about.
    pub fn is_empty(&self) -> bool {
        self.lock().found.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record begins and ends with a byte that no path contains, so that one that was not written to its end spoils no other.
fn record(id: FileId, name: &Path) -> Vec<u8> {
    let made = id.made.and_then(|made| made.duration_since(SystemTime::UNIX_EPOCH).ok()).unwrap_or_default();
    let mut record = format!("\0{} {} {} ", id.inode, made.as_secs(), made.subsec_nanos()).into_bytes();
    record.extend_from_slice(name.as_os_str().as_bytes());
    record.push(0);
    record
}

fn read_record(record: &[u8]) -> Option<(FileId, PathBuf)> {
    let mut parts = record.splitn(4, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let (inode, secs, nanos) = (number()?, number()?, u32::try_from(number()?).ok()?);
    let made = SystemTime::UNIX_EPOCH.checked_add(Duration::new(secs, nanos.min(999_999_999)))?;
    let name = PathBuf::from(OsStr::from_bytes(parts.next()?));
    name.is_absolute().then_some((FileId { device: 0, inode, made: Some(made) }, name))
}

/// Appends to the file, of which another process may make a new one meanwhile.
fn append(file: &Path, records: &[u8]) -> io::Result<()> {
    let folder = PrivateFolder::make(file.parent().unwrap_or(file))?;
    let name = file.file_name().unwrap_or_default();
    loop {
        let open = folder.append(name)?;
        rustix::fs::flock(&open, rustix::fs::FlockOperation::LockExclusive)?;
        let is_same = |now: Metadata| Ok::<_, io::Error>(FileId::of(&now) == FileId::of(&open.metadata()?));
        if file.metadata().map_or(Ok(false), is_same)? {
            return (&open).write_all(records);
        }
    }
}

/// Makes a new file in place of the one that is there.
fn replace(file: &Path, records: &[u8]) -> io::Result<()> {
    let folder = PrivateFolder::make(file.parent().unwrap_or(file))?;
    let name = file.file_name().unwrap_or_default();
    let old = folder.append(name)?;
    rustix::fs::flock(&old, rustix::fs::FlockOperation::LockExclusive)?;
    let mut new_name = name.to_owned();
    new_name.push(format!(".{}", std::process::id()));
    folder.create(&new_name)?.write_all(records)?;
    folder.rename(&new_name, name)
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

    #[test]
    fn a_later_process_knows_a_file_that_was_renamed() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("secrets")).expect("made");
        for name in ["secrets/a", "secrets/b \n", "other"] {
            std::fs::write(at(name), "x").expect("written");
        }
        let id = |name: &str| FileId::of(&at(name).symlink_metadata().expect("exists"));
        let file = at("state/known/project");
        let (one, two) = (KnownFiles::kept_in(file.clone()), KnownFiles::kept_in(file.clone()));
        one.remember(id("secrets/a"), &at("secrets/a"));
        two.remember(id("secrets/a"), &at("secrets/a"));
        one.keep();
        // A process that was killed while it wrote.
        append(&file, b"\x0012 34 5").expect("written");
        two.remember(id("secrets/b \n"), &at("secrets/b \n"));
        two.keep();
        std::fs::rename(at("secrets"), at("pub")).expect("renamed");
        let later = KnownFiles::kept_in(file.clone());
        assert_eq!(later.name(&id("pub/a")), Some(at("secrets/a")));
        assert_eq!(later.name(&id("pub/b \n")), Some(at("secrets/b \n")));
        assert_eq!(later.name(&id("other")), None);
        // After a restart the disk may have another number.
        let restarted = FileId { device: 77, ..id("pub/a") };
        assert_eq!(later.name(&restarted), Some(at("secrets/a")));
        assert_eq!(later.name(&FileId { made: Some(SystemTime::now()), ..id("pub/a") }), None);
        // Nothing new is written twice.
        let size = || file.metadata().expect("exists").len();
        let before = size();
        later.remember(id("pub/a"), &at("pub/a"));
        later.keep();
        assert_eq!(size(), before);
    }

    #[test]
    fn a_file_of_many_names_keeps_those_that_were_renamed() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        for name in ["here", "there"] {
            std::fs::write(at(name), "x").expect("written");
        }
        let id = |name: &str| FileId::of(&at(name).symlink_metadata().expect("exists"));
        let file = at("known/project");
        let mut records = [record(id("here"), &at("here")), record(id("there"), &at("before"))].concat();
        while records.len() as u64 <= MAX_FILE {
            records.extend(record(id("here"), &at("here")));
        }
        append(&file, &records).expect("written");
        drop(KnownFiles::kept_in(file.clone()));
        assert_eq!(file.metadata().expect("exists").len(), record(id("there"), &at("before")).len() as u64);
        let later = KnownFiles::kept_in(file);
        assert_eq!((later.name(&id("there")), later.name(&id("here"))), (Some(at("before")), None));
    }
}
