//! Whether the files of a project differ from the index of its repository: which tracked files have another size, another
//! kind, or are missing. Only attributes are compared, and git is not started: a repository can make it run anything, and
//! it takes longer than everything else before the first request.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use aye_files::opener::{self, FilePlace, PASSAGE, resolve};
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

/// Maximum bytes of an index.
const MAX_INDEX: u64 = 1 << 20;
/// Maximum files compared, each in about a microsecond.
const MAX_FILES: u32 = 4_000;

// Flags of an entry.
const ASSUME_VALID: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
const NAME_LENGTH: u16 = 0x0fff;
// Flags of an extended entry.
const SKIP_WORKTREE: u16 = 0x4000;
const INTENT_TO_ADD: u16 = 0x2000;

/// Returns whether a tracked file of the project differs from the index in the repository's folder; `None` if that is not
/// certain without reading the files, or would take long.
pub(crate) fn has_unstaged_changes(root: &Path, git: &Path) -> Option<bool> {
    let file = FilePlace::of(&resolve(git).ok()?.join("index")).ok()?.open_regular().ok()?;
    let about = file.metadata().ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_INDEX + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MAX_INDEX {
        return None;
    }
    let written = (about.mtime(), about.mtime_nsec());
    let top = opener::open(&resolve(root).ok()?, PASSAGE).ok()?;
    let mut folder: Option<(Vec<u8>, OwnedFd)> = None;
    let mut is_certain = true;
    let mut index = IndexReader::of(&bytes)?;
    for _ in 0..index.count {
        match index.next_entry()?.state(written, &top, &mut folder)? {
            EntryState::Same => {}
            EntryState::Unclear => is_certain = false,
            EntryState::Changed => return Some(true),
        }
    }
    (is_certain && !index.is_split()).then_some(false)
}

enum EntryState {
    Same,
    /// Only its content could tell.
    Unclear,
    Changed,
}

/// A tracked file, as it was when git last looked.
struct IndexEntry {
    modified: (u32, u32),
    mode: u32,
    size: u32,
    flags: u16,
    more_flags: u16,
    path: Vec<u8>,
}

impl IndexEntry {
    /// Compares the file with the entry. `folder` is the one of the entry before, which is mostly the same.
    fn state(
        &self,
        written: (i64, i64),
        top: &OwnedFd,
        folder: &mut Option<(Vec<u8>, OwnedFd)>,
    ) -> Option<EntryState> {
        let kind = match self.mode >> 12 {
            0o10 => FileType::RegularFile,
            0o12 => FileType::Symlink,
            // A submodule, or a folder of a sparse checkout.
            _ => return Some(EntryState::Same),
        };
        if self.flags & ASSUME_VALID != 0 || self.more_flags & SKIP_WORKTREE != 0 {
            return Some(EntryState::Same);
        }
        if self.flags & STAGE != 0 || self.more_flags & INTENT_TO_ADD != 0 {
            return Some(EntryState::Changed);
        }
        let slash = self.path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) =
            slash.map_or((&[][..], &self.path[..]), |at| (&self.path[..at], &self.path[at + 1..]));
        // What leads elsewhere now is not the tracked file.
        let is_gone = |errno| matches!(errno, Errno::NOENT | Errno::NOTDIR) || opener::is_link(errno);
        if folder.as_ref().is_none_or(|(path, _)| path != parent) {
            match opener::open_beneath(top, Path::new(OsStr::from_bytes(parent)), PASSAGE) {
                Ok(opened) => *folder = Some((parent.to_owned(), opened)),
                Err(errno) => return is_gone(errno).then_some(EntryState::Changed),
            }
        }
        let (_, opened) = folder.as_ref()?;
        let about = match statat(opened, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => about,
            Err(errno) => return is_gone(errno).then_some(EntryState::Changed),
        };
        if FileType::from_raw_mode(about.st_mode) != kind || about.st_size as u32 != self.size {
            return Some(EntryState::Changed);
        }
        let (seconds, nanos) = self.modified;
        // Not every git stores the fractions of a second.
        let is_same = about.st_mtime as u32 == seconds && (nanos == 0 || about.st_mtime_nsec as u32 == nanos);
        // What was changed while the index was written may have the same time.
        let is_older = (i64::from(seconds), i64::from(nanos)) < written;
        Some(if is_same && is_older { EntryState::Same } else { EntryState::Unclear })
    }
}

/// Reads the entries of an index (gitformat-index(5), versions 2 to 4).
struct IndexReader<'a> {
    bytes: &'a [u8],
    at: usize,
    version: u32,
    count: u32,
    /// The path of the entry before.
    path: Vec<u8>,
}

impl<'a> IndexReader<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Self { bytes, at: 0, version: 0, count: 0, path: Vec::new() };
        let is_index = reader.take(4)? == b"DIRC";
        reader.version = reader.number()?;
        reader.count = reader.number()?;
        (is_index && (2..=4).contains(&reader.version) && reader.count <= MAX_FILES).then_some(reader)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn flags(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// The next of the entries; `None` if this is no index that is understood.
    fn next_entry(&mut self) -> Option<IndexEntry> {
        let start = self.at;
        // The time of the last change of attributes.
        self.take(8)?;
        let modified = (self.number()?, self.number()?);
        // Device and inode; after the mode, user and group.
        self.take(8)?;
        let mode = self.number()?;
        self.take(8)?;
        let size = self.number()?;
        // The hash of the content. Where it is longer, the length of the name below is not what it should be.
        self.take(20)?;
        let flags = self.flags()?;
        let more_flags = if flags & EXTENDED == 0 { 0 } else { self.flags()? };
        if self.version == 4 {
            let kept = self.path.len().checked_sub(self.compressed_number()?)?;
            self.path.truncate(kept);
        } else {
            self.path.clear();
        }
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| *byte == 0)?;
        self.path.extend_from_slice(&rest[..length]);
        self.at += length + 1;
        if self.version != 4 {
            // Padded with zeros to a multiple of eight.
            self.at = start + (self.at - start).next_multiple_of(8);
        }
        let is_whole = usize::from(flags & NAME_LENGTH) == self.path.len().min(usize::from(NAME_LENGTH));
        is_whole.then(|| IndexEntry { modified, mode, size, flags, more_flags, path: self.path.clone() })
    }

    fn compressed_number(&mut self) -> Option<usize> {
        let mut byte = self.take(1)?[0];
        let mut number = usize::from(byte & 127);
        while byte & 128 != 0 {
            byte = self.take(1)?[0];
            number = number.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 127))?;
        }
        Some(number)
    }

    /// Whether entries are in another file, too. Called after the last entry.
    fn is_split(&mut self) -> bool {
        while let Some(name) = self.take(4) {
            if name == b"link" {
                return true;
            }
            // What remains at the end is a checksum.
            let Some(size) = self.number() else { break };
            if self.take(size as usize).is_none() {
                break;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, SystemTime};

    use super::*;

    struct Project(tempfile::TempDir);

    impl Project {
        fn new() -> Self {
            let project = Self(tempfile::tempdir().expect("a folder"));
            project.git(&["init", "-q"]);
            project
        }

        fn git(&self, args: &[&str]) {
            let out = Command::new("git")
                .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
                .args(args)
                .current_dir(self.0.path())
                .env("HOME", self.0.path())
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .output()
                .expect("git is installed");
            assert!(out.status.success(), "{args:?}: {out:?}");
        }

        /// Writes a file that is older than anything git writes afterwards.
        fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, text).expect("written");
            let before = SystemTime::now() - Duration::from_mins(1);
            std::fs::File::options()
                .write(true)
                .open(&path)
                .expect("opened")
                .set_modified(before)
                .expect("set");
        }

        fn is_changed(&self) -> Option<bool> {
            has_unstaged_changes(self.0.path(), &self.0.path().join(".git"))
        }
    }

    #[test]
    fn a_tracked_file_that_differs_is_found() {
        for version in ["2", "3", "4"] {
            let project = Project::new();
            assert_eq!(project.is_changed(), None, "there is no index yet");
            for name in ["a.rs", "sub/b.rs", "sub/c.rs", "sub/deep/deeper/d with a long name.rs", "z.rs"] {
                project.write(name, "one\n");
            }
            std::os::unix::fs::symlink("a.rs", project.0.path().join("link")).expect("linked");
            project.git(&["add", "."]);
            project.git(&["update-index", "--index-version", version]);
            // A link is as new as the index is, maybe.
            assert_ne!(project.is_changed(), Some(true), "version {version}");
            project.git(&["rm", "-q", "--cached", "link"]);
            assert_eq!(project.is_changed(), Some(false), "version {version}");
            project.write("untracked.rs", "");
            assert_eq!(project.is_changed(), Some(false), "untracked files do not count");
            project.write("sub/deep/deeper/d with a long name.rs", "another\n");
            assert_eq!(project.is_changed(), Some(true), "version {version}");
            project.git(&["add", "."]);
            assert_eq!(project.is_changed(), Some(false), "it is staged");
            project.write("z.rs", "two\n");
            std::fs::File::options()
                .write(true)
                .open(project.0.path().join("z.rs"))
                .expect("opened")
                .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1))
                .expect("set");
            assert_eq!(project.is_changed(), None, "as long as before: only its content tells");
            std::fs::remove_file(project.0.path().join("z.rs")).expect("removed");
            assert_eq!(project.is_changed(), Some(true), "it is gone");
            project.git(&["update-index", "--skip-worktree", "z.rs"]);
            assert_eq!(project.is_changed(), Some(false), "nobody wants it there");
        }
    }

    #[test]
    fn a_folder_that_leads_elsewhere_is_not_followed() {
        let project = Project::new();
        project.write("sub/a.rs", "one\n");
        project.git(&["add", "."]);
        assert_eq!(project.is_changed(), Some(false));
        let sub = project.0.path().join("sub");
        std::fs::rename(&sub, project.0.path().join("moved")).expect("renamed");
        std::os::unix::fs::symlink("moved", &sub).expect("linked");
        assert_eq!(project.is_changed(), Some(true));
    }

    #[test]
    fn an_index_that_is_not_understood_says_nothing() {
        let project = Project::new();
        project.write("a.rs", "one\n");
        project.git(&["add", "."]);
        let path = project.0.path().join(".git/index");
        let index = std::fs::read(&path).expect("read");
        for cut in 0..index.len() - 21 {
            std::fs::write(&path, &index[..cut]).expect("written");
            assert_ne!(project.is_changed(), Some(true), "{cut} bytes");
        }
        for at in 0..index.len() {
            let mut damaged = index.clone();
            damaged[at] = !damaged[at];
            std::fs::write(&path, &damaged).expect("written");
            let _ = project.is_changed();
        }
        let mut many = index.clone();
        many[8..12].copy_from_slice(&(MAX_FILES + 1).to_be_bytes());
        std::fs::write(&path, many).expect("written");
        assert_eq!(project.is_changed(), None);
        // Another index that this one adds to.
        std::fs::write(&path, &index).expect("written");
        project.git(&["update-index", "--split-index"]);
        assert_ne!(project.is_changed(), Some(false));
        std::fs::remove_file(&path).expect("removed");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).expect("a pipe");
        assert_eq!(project.is_changed(), None, "nobody waits for a pipe");
    }
}
