//! What a look knows of the last one: the folder with its stamps, as it is kept in the store.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use aye_platform::FileAttributes;
use ignore::gitignore::Gitignore;
use rustix::fs::Stat;

use super::super::SnapshotLimits;
use super::super::tree::PathKind;
use super::now_ns;
use aye_store_sqlite::objects::{Hash, ObjectError, PutPart};

/// The form of a written index: this byte is the first part, the files are in the others.
const FORMAT: u8 = 3;

/// A form whose files follow the byte in the only part.
const FORMAT_OF_ONE_PART: u8 = 2;

/// A part is written when it has as many bytes.
const PART: usize = 128 << 10;

/// The attributes that show whether a file is unchanged. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) changed: i64,
    pub(super) inode: u64,
    pub(super) mode: u32,
}

impl FileStamp {
    pub(super) fn of(about: &Stat) -> FileStamp {
        let FileAttributes { size, modified, changed, inode, mode, .. } = about.into();
        FileStamp { size, modified, changed, inode, mode }
    }

    /// It may change again without its time telling.
    pub(super) fn is_racy(&self, limits: &SnapshotLimits) -> bool {
        let settles = i64::try_from(limits.settles.as_nanos()).unwrap_or(i64::MAX);
        now_ns().saturating_sub(self.modified.max(self.changed)) < settles
    }

    pub(super) fn kind(&self) -> PathKind {
        if self.mode & 0o111 == 0 { PathKind::File } else { PathKind::Program }
    }
}

/// An entry of a folder.
#[derive(Debug)]
pub(super) enum What {
    /// A file; without a hash it was not read, or may have changed since without its time telling.
    File {
        stamp: FileStamp,
        hash: Option<Hash>,
    },
    Link(Hash),
    Folder(Box<Folder>),
}

#[derive(Debug)]
pub(super) struct SeenFile {
    pub(super) name: Box<[u8]>,
    pub(super) what: What,
}

/// A folder as it was seen.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// Without one it has to be listed.
    pub(super) stamp: Option<FileStamp>,
    pub(super) rules: Option<Arc<FolderRules>>,
    /// Sorted by name.
    pub(super) rows: Vec<SeenFile>,
    /// The name of its piece; `None` when nothing is in it, or it is not known.
    pub(super) hash: Option<Hash>,
    /// The last look before which it and its files were found as they were: see [`super::unchanged`].
    pub(super) same_in: AtomicU64,
    /// The last look before which everything below it was found as it was, too.
    pub(super) unchanged_in: u64,
}

/// What a folder itself says is ignored.
#[derive(Debug)]
pub(super) struct FolderRules {
    pub(super) sources: [Option<FileStamp>; 2],
    pub(super) matcher: Gitignore,
}

/// What was seen of a folder.
#[derive(Debug, Default)]
pub(crate) struct FolderScan {
    pub(super) top: Folder,
    pub(super) files: usize,
    /// Their bytes.
    pub(super) total: u64,
    /// All files were looked at once.
    pub(super) is_complete: bool,
    pub(super) scans: u64,
}

impl FolderScan {
    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.files
    }

    /// Forgets it: pieces that are named in it may be gone.
    pub(crate) fn clear(&mut self) {
        *self = FolderScan::default();
    }

    /// Writes it in parts, for the next start of the program.
    pub(crate) fn write(&self, put: &mut PutPart<'_>) -> Result<(), ObjectError> {
        put(&[FORMAT])?;
        let mut bytes = Vec::with_capacity(PART + PART / 4);
        self.top.write(&mut Vec::new(), &mut bytes, put)?;
        if bytes.is_empty() { Ok(()) } else { put(&bytes) }
    }

    /// It from its parts; `None` when they are of another version or damaged: then all files are read.
    pub(crate) fn read_back(parts: Vec<Vec<u8>>) -> Option<FolderScan> {
        let mut seen = FolderScan { is_complete: true, ..FolderScan::default() };
        let mut parts = parts.into_iter();
        match parts.next()?.split_first()? {
            (&FORMAT, []) => {}
            // Parts after it are of a program that was newer than the one that wrote this.
            (&FORMAT_OF_ONE_PART, rest) => return seen.read_part(rest).map(|()| seen),
            _ => return None,
        }
        for part in parts {
            seen.read_part(&part)?;
        }
        Some(seen)
    }

    pub(super) fn read_part(&mut self, mut rest: &[u8]) -> Option<()> {
        while !rest.is_empty() {
            let length = u32::from_le_bytes(take(&mut rest)?);
            let (path, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = after;
            let stamp = FileStamp {
                size: u64::from_le_bytes(take(&mut rest)?),
                modified: i64::from_le_bytes(take(&mut rest)?),
                changed: i64::from_le_bytes(take(&mut rest)?),
                inode: u64::from_le_bytes(take(&mut rest)?),
                mode: u32::from_le_bytes(take(&mut rest)?),
            };
            self.top.put(path, What::File { stamp, hash: Some(take(&mut rest)?) });
            self.files += 1;
            self.total += stamp.size;
        }
        Some(())
    }
}

impl Folder {
    pub(super) fn write(
        &self,
        above: &mut Vec<u8>,
        bytes: &mut Vec<u8>,
        put: &mut PutPart<'_>,
    ) -> Result<(), ObjectError> {
        let length = above.len();
        for SeenFile { name, what } in &self.rows {
            above.extend_from_slice(name);
            match what {
                What::File { stamp, hash: Some(hash) } => {
                    bytes.extend_from_slice(&(above.len() as u32).to_le_bytes());
                    bytes.extend_from_slice(above);
                    bytes.extend_from_slice(&stamp.size.to_le_bytes());
                    bytes.extend_from_slice(&stamp.modified.to_le_bytes());
                    bytes.extend_from_slice(&stamp.changed.to_le_bytes());
                    bytes.extend_from_slice(&stamp.inode.to_le_bytes());
                    bytes.extend_from_slice(&stamp.mode.to_le_bytes());
                    bytes.extend_from_slice(hash);
                    if bytes.len() >= PART {
                        put(bytes)?;
                        bytes.clear();
                    }
                }
                What::Folder(folder) => {
                    above.push(b'/');
                    folder.write(above, bytes, put)?;
                }
                What::File { hash: None, .. } | What::Link(_) => {}
            }
            above.truncate(length);
        }
        Ok(())
    }

    /// Puts what is at a path where it belongs; paths come in order.
    pub(super) fn put(&mut self, path: &[u8], what: What) {
        let (name, below) = match path.iter().position(|b| *b == b'/') {
            Some(at) => (&path[..at], Some(&path[at + 1..])),
            None => (path, None),
        };
        let Some(below) = below else {
            self.rows.push(SeenFile { name: name.into(), what });
            return;
        };
        if self.rows.last().is_none_or(|last| *last.name != *name) {
            self.rows.push(SeenFile { name: name.into(), what: What::Folder(Box::default()) });
        }
        if let Some(SeenFile { what: What::Folder(folder), .. }) = self.rows.last_mut() {
            folder.put(below, what);
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}
