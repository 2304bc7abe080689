//! Looking at a folder: what is there, and what changed since the last look.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ignore::{WalkBuilder, WalkState};

use super::Limits;
use super::tree::{Item, Items, Kind};
use crate::store::objects::{Hash, Objects, Piece, hash_of};
use crate::walk::Selection;

/// A file that changed less than this before it was read may change again without its time telling.
const RACY_NS: i128 = 1_000_000_000;
/// So many bytes are read before they are written.
const BATCH: usize = 16 << 20;
/// So many files are worth threads.
const FEW: usize = 2_000;
/// Threads that look at folders.
const THREADS: usize = 4;

/// The form of a written index.
const FORMAT: u8 = 1;

/// What tells that a file is still the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    size: u64,
    modified: i128,
    changed: i128,
    inode: u64,
    mode: u32,
}

/// Files that were read before.
pub(super) type Index = HashMap<Vec<u8>, (Stamp, Hash)>;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) items: Items,
    /// Files that were left out, with why.
    pub(super) left_out: Vec<(Vec<u8>, String)>,
    /// How many files were read.
    pub(super) read: usize,
}

impl Look {
    fn leave_out(&mut self, path: Vec<u8>, why: String) {
        self.items.insert(path.clone(), Item { kind: Kind::LeftOut, hash: [0; 32] });
        self.left_out.push((path, why));
    }
}

/// The index as bytes, for the next start of the program.
pub(super) fn written(index: &Index) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    for (path, (stamp, hash)) in index {
        bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
        bytes.extend_from_slice(path);
        bytes.extend_from_slice(&stamp.size.to_le_bytes());
        bytes.extend_from_slice(&stamp.modified.to_le_bytes());
        bytes.extend_from_slice(&stamp.changed.to_le_bytes());
        bytes.extend_from_slice(&stamp.inode.to_le_bytes());
        bytes.extend_from_slice(&stamp.mode.to_le_bytes());
        bytes.extend_from_slice(hash);
    }
    bytes
}

/// The index from its bytes; `None` when they are of another version or damaged: then all files are read.
pub(super) fn read_back(bytes: &[u8]) -> Option<Index> {
    let (FORMAT, mut rest) = bytes.split_first().map(|(format, rest)| (*format, rest))? else { return None };
    let mut index = Index::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(take(&mut rest)?);
        let (path, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        rest = after;
        let stamp = Stamp {
            size: u64::from_le_bytes(take(&mut rest)?),
            modified: i128::from_le_bytes(take(&mut rest)?),
            changed: i128::from_le_bytes(take(&mut rest)?),
            inode: u64::from_le_bytes(take(&mut rest)?),
            mode: u32::from_le_bytes(take(&mut rest)?),
        };
        index.insert(path.to_vec(), (stamp, take(&mut rest)?));
    }
    Some(index)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

/// The path below the folder, as the system has it.
pub(super) fn path_of(relative: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(relative))
}

/// Looks at all files, and keeps those that were not kept before.
pub(super) fn look(
    root: &Path,
    without: &[PathBuf],
    also: &[Vec<u8>],
    limits: &Limits,
    index: &mut Index,
    objects: &Objects,
    progress: impl Fn(&Index),
) -> Result<Look, String> {
    let mut found = walk(root, without, limits, index.len())?;
    for path in also {
        if !found.iter().any(|(known, _)| known == path)
            && let Ok(about) = std::fs::symlink_metadata(root.join(path_of(path)))
        {
            found.push((path.clone(), about));
        }
    }
    let total: u64 = found.iter().map(|(_, about)| about.len()).filter(|size| *size <= limits.max_file).sum();
    if total > limits.max_total {
        return Err(format!(
            "the files of {} have {} MiB, more than {} MiB",
            root.display(),
            total >> 20,
            limits.max_total >> 20
        ));
    }
    let mut look = Look::default();
    let mut next = Index::with_capacity(found.len());
    let mut batch: Vec<(Hash, Vec<u8>)> = Vec::new();
    let mut held = 0;
    for (path, about) in found {
        let kind = about.file_type();
        if kind.is_symlink() {
            let Ok(target) = std::fs::read_link(root.join(path_of(&path))) else { continue };
            let bytes = target.as_os_str().as_bytes().to_vec();
            let hash = hash_of(Piece::Bytes, &bytes);
            held += bytes.len();
            batch.push((hash, bytes));
            look.items.insert(path, Item { kind: Kind::Link, hash });
            continue;
        }
        if !kind.is_file() {
            continue;
        }
        let stamp = stamp_of(&about);
        let kind = if about.mode() & 0o111 == 0 { Kind::File } else { Kind::Program };
        if stamp.size > limits.max_file {
            look.leave_out(path, format!("{} MiB", stamp.size >> 20));
            continue;
        }
        if let Some((known, hash)) = index.get(&path).filter(|(known, _)| *known == stamp) {
            next.insert(path.clone(), (*known, *hash));
            look.items.insert(path, Item { kind, hash: *hash });
            continue;
        }
        let now = now_ns();
        look.read += 1;
        match read(&root.join(path_of(&path)), limits.max_file) {
            Ok(Some(bytes)) => {
                let hash = hash_of(Piece::Bytes, &bytes);
                held += bytes.len();
                batch.push((hash, bytes));
                if now - stamp.modified.max(stamp.changed) > RACY_NS {
                    next.insert(path.clone(), (stamp, hash));
                }
                look.items.insert(path, Item { kind, hash });
            }
            Ok(None) => look.leave_out(path, "it grew while it was read".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => look.leave_out(path, error.to_string()),
        }
        if held > BATCH {
            objects.put(&batch).map_err(|e| e.to_string())?;
            // A program that ends in the midst of it need not begin anew.
            let mut known = index.clone();
            known.extend(next.iter().map(|(path, seen)| (path.clone(), *seen)));
            progress(&known);
            batch.clear();
            held = 0;
        }
    }
    objects.put(&batch).map_err(|e| e.to_string())?;
    // Only now is all of it surely there.
    *index = next;
    Ok(look)
}

type Found = Vec<(Vec<u8>, std::fs::Metadata)>;

/// All files, of which at least so many were there the last time.
fn walk(root: &Path, without: &[PathBuf], limits: &Limits, last: usize) -> Result<Found, String> {
    let without = without.to_vec();
    // What `.gitignore` says holds outside of a repository as well, and only that of the folder itself.
    let selection = Selection { hidden: true, dot_ignore: false, parents: false, ..Selection::default() };
    let mut walk = crate::walk::builder(root, selection, move |entry| {
        !without.iter().any(|other| entry.path() == other)
    });
    walk.same_file_system(true);
    let few = if last < FEW {
        let files = walk.build().filter_map(|entry| file_of(root, entry));
        Some(files.take(FEW).collect::<Found>()).filter(|files| files.len() < FEW)
    } else {
        None
    };
    let found = few.unwrap_or_else(|| walk_wide(root, &mut walk, limits));
    if found.len() > limits.max_files {
        return Err(format!("{} has more than {} files", root.display(), limits.max_files));
    }
    Ok(found)
}

/// The walk on several threads.
fn walk_wide(root: &Path, walk: &mut WalkBuilder, limits: &Limits) -> Found {
    let count = AtomicUsize::new(0);
    let all: Mutex<Found> = Mutex::default();
    walk.threads(std::thread::available_parallelism().map_or(1, usize::from).min(THREADS));
    walk.build_parallel().run(|| {
        let (count, all) = (&count, &all);
        let mut own = Gather { found: Vec::new(), all };
        Box::new(move |entry| {
            let Some(file) = file_of(root, entry) else { return WalkState::Continue };
            own.found.push(file);
            if count.fetch_add(1, Ordering::Relaxed) >= limits.max_files {
                return WalkState::Quit;
            }
            WalkState::Continue
        })
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What is no folder, with its path below the root.
fn file_of(
    root: &Path,
    entry: Result<ignore::DirEntry, ignore::Error>,
) -> Option<(Vec<u8>, std::fs::Metadata)> {
    let entry = entry.ok()?;
    if entry.file_type().is_none_or(|kind| kind.is_dir()) {
        return None;
    }
    let path = entry.path().strip_prefix(root).ok().filter(|path| !path.as_os_str().is_empty())?;
    Some((path.as_os_str().as_bytes().to_vec(), entry.metadata().ok()?))
}

/// What one thread found; given to all when it is done.
struct Gather<'a> {
    found: Found,
    all: &'a Mutex<Found>,
}

impl Drop for Gather<'_> {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.found);
    }
}

fn stamp_of(about: &std::fs::Metadata) -> Stamp {
    let ns = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    Stamp {
        size: about.len(),
        modified: ns(about.mtime(), about.mtime_nsec()),
        changed: ns(about.ctime(), about.ctime_nsec()),
        inode: about.ino(),
        mode: about.mode(),
    }
}

fn now_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos().cast_signed())
}

/// The bytes of a plain file; `None` when it is larger than that by now.
fn read(path: &Path, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(std::io::Error::other("it is no plain file any more"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len().min(most)).unwrap_or(0));
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}
