//! Scans a folder: its files, and what changed since the last scan.
//!
//! The result stays in memory as a tree of folders ([`FolderScan`]). A folder whose times did not change is
//! not listed again, only the times of its files are read; an unchanged folder keeps its piece. So a scan
//! costs one system call for each file, and memory for each name. Files are read one at a time and written in
//! small batches.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aye_files::opener::{FilePlace, PASSAGE};
use aye_platform::FileAttributes;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};
use seen::{FileStamp, Folder, FolderRules, SeenFile, What};

use super::SnapshotLimits;
use super::error::SnapshotError;
use super::tree::{self, Item, PathKind};
use aye_store_sqlite::objects::{Hash, ObjectKind, Objects, hash_of};

mod seen;
mod unchanged;

pub(super) use seen::FolderScan;

/// Number of bytes to read before they are written, so that others do not wait long for the database.
const BATCH: usize = 1 << 20;
/// The files below a folder that say what is ignored in it.
const RULES: [&[u8]; 2] = [b".git/info/exclude", b".gitignore"];
/// A file of rules that is longer is not read.
const MAX_RULES: u64 = 1 << 20;
/// Number of bytes read after which the known state is written.
const PROGRESS: u64 = 128 << 20;
const MAX_DEPTH: usize = 256;

/// The path below the folder, as the system has it.
pub(super) fn path_of(relative: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(relative))
}

/// The result of a scan.
#[derive(Debug)]
pub(super) struct WalkResult {
    pub(super) tree: Hash,
    /// Files that were left out, with why.
    pub(super) left_out: Vec<(Vec<u8>, String)>,
    /// The number of files that were read.
    pub(super) read: usize,
}

/// The folder and the parameters of a scan.
pub(super) struct WalkContext<'a> {
    pub(super) root: &'a Path,
    /// Folders that are none of its files.
    pub(super) without: &'a [PathBuf],
    pub(super) limits: &'a SnapshotLimits,
    pub(super) objects: &'a Objects,
    pub(super) is_stopped: &'a dyn Fn() -> bool,
    /// Writes down what is known so far: reading all of it again takes long.
    pub(super) progress: &'a dyn Fn(&FolderScan),
}

/// Checks all files, and keeps those that were not kept before.
pub(super) fn scan(place: &WalkContext<'_>, seen: &mut FolderScan) -> Result<WalkResult, SnapshotError> {
    if !seen.is_complete {
        // A folder that is too large is not read at all.
        run(place, seen, false)?;
    }
    let mut read = 0;
    loop {
        let (scanned, is_early) = run(place, seen, true)?;
        read += scanned.read;
        if !is_early {
            seen.is_complete = true;
            return Ok(WalkResult { read, ..scanned });
        }
        (place.progress)(seen);
    }
}

/// Looks once. Returns whether to look again: when it ended early because there was so much to read, or when there is
/// room now for files that it left out.
fn run(
    place: &WalkContext<'_>,
    seen: &mut FolderScan,
    reads: bool,
) -> Result<(WalkResult, bool), SnapshotError> {
    let top = openat(rustix::fs::CWD, place.root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let top = top.map_err(|error| SnapshotError::Failed(format!("{}: {error}", place.root.display())))?;
    let about = fstat(&top).map_err(|error| SnapshotError::Failed(error.to_string()))?;
    seen.scans += 1;
    let mut scanner = FolderScanner {
        place,
        number: seen.scans,
        device: FileAttributes::from(&about).device,
        reads,
        path: Vec::new(),
        rules: Vec::new(),
        files: 0,
        total: 0,
        room: (reads && seen.is_complete).then(|| Room {
            files: place.limits.max_files.saturating_sub(seen.files),
            bytes: place.limits.max_total.saturating_sub(seen.total),
            refused: 0,
        }),
        read: 0,
        bytes_read: 0,
        left_out: Vec::new(),
        batch: Vec::new(),
        held: 0,
    };
    if reads && seen.is_complete {
        unchanged::mark(place, &top, FileAttributes::from(&about).device, &mut seen.top, seen.scans);
    }
    let outcome = scanner.visit(&top, FileStamp::of(&about), &mut seen.top, false);
    // The known state is only valid once the batch is written.
    if let Err(trouble) = scanner.flush() {
        seen.clear();
        return Err(trouble);
    }
    let is_early = match outcome {
        Ok(_) => false,
        Err(End::Long) => true,
        Err(End::Trouble(trouble)) => {
            if matches!(trouble, SnapshotError::Failed(_) | SnapshotError::NotKept(_)) {
                seen.clear();
            }
            return Err(trouble);
        }
    };
    // Files that are gone, or have other names now, made room for some that were left out.
    let was_refused = scanner.room.as_ref().is_some_and(|room| room.refused > 0);
    let has_room_now = !is_early && was_refused && (scanner.files < seen.files || scanner.total < seen.total);
    if !is_early {
        (seen.files, seen.total) = (scanner.files, scanner.total);
    }
    let (left_out, read) = (scanner.left_out, scanner.read);
    let tree = match seen.top.hash {
        Some(hash) => hash,
        None if reads && !is_early => {
            let hash = hash_of(ObjectKind::Folder, b"");
            place.objects.put(&[(hash, Vec::new())])?;
            hash
        }
        None => [0; 32],
    };
    Ok((WalkResult { tree, left_out, read }, is_early || has_room_now))
}

enum End {
    /// It is time to write down what is known.
    Long,
    Trouble(SnapshotError),
}

impl From<SnapshotError> for End {
    fn from(trouble: SnapshotError) -> Self {
        End::Trouble(trouble)
    }
}

/// What may come to a folder that was kept before.
struct Room {
    files: usize,
    bytes: u64,
    /// The number of files that were left out for want of room.
    refused: usize,
}

struct FolderScanner<'a> {
    place: &'a WalkContext<'a>,
    number: u64,
    device: u64,
    /// Files are read; otherwise they are only counted.
    reads: bool,
    /// The current path below the root; the path of a folder ends in `/`.
    path: Vec<u8>,
    /// Those of the folders above, the nearest last.
    rules: Vec<Arc<FolderRules>>,
    files: usize,
    total: u64,
    /// Once a folder was kept, its files are kept whatever comes to it.
    room: Option<Room>,
    read: usize,
    bytes_read: u64,
    left_out: Vec<(Vec<u8>, String)>,
    batch: Vec<(Hash, Vec<u8>)>,
    held: usize,
}

impl FolderScanner<'_> {
    fn flush(&mut self) -> Result<(), SnapshotError> {
        self.held = 0;
        let batch = std::mem::take(&mut self.batch);
        Ok(self.place.objects.put(&batch)?)
    }

    fn keep(&mut self, kind: ObjectKind, bytes: Vec<u8>) -> Result<Hash, SnapshotError> {
        let hash = hash_of(kind, &bytes);
        self.held += bytes.len() + size_of::<(Hash, Vec<u8>)>();
        self.batch.push((hash, bytes));
        if self.held > BATCH {
            self.flush()?;
        }
        Ok(hash)
    }

    /// Visits a folder; `is_new`: the ignore rules above it changed. Returns whether its piece changed.
    fn visit(
        &mut self,
        fd: &OwnedFd,
        stamp: FileStamp,
        folder: &mut Folder,
        is_new: bool,
    ) -> Result<bool, End> {
        if (self.place.is_stopped)() {
            return Err(SnapshotError::Stopped.into());
        }
        // A file of rules that came has changed the folder's times.
        let may_differ = folder.rules.is_some() || folder.stamp != Some(stamp);
        let is_new = may_differ && self.refresh_rules(fd, folder) || is_new;
        self.rules.extend(folder.rules.clone());
        let changed = self.visit_rows(fd, folder, stamp, is_new);
        if folder.rules.is_some() {
            self.rules.pop();
        }
        changed
    }

    fn visit_rows(
        &mut self,
        fd: &OwnedFd,
        folder: &mut Folder,
        stamp: FileStamp,
        is_new: bool,
    ) -> Result<bool, End> {
        let mut changed = false;
        let is_same = *folder.same_in.get_mut() == self.number;
        if is_new || folder.stamp != Some(stamp) {
            // A change in the same moment would not be seen by its time.
            folder.stamp = None;
            if self.list(fd, folder).map_err(End::Trouble)? {
                changed = true;
            }
            folder.stamp = (!stamp.is_racy(self.place.limits)).then_some(stamp);
        }
        let length = self.path.len();
        let mut gone = false;
        let mut rows = std::mem::take(&mut folder.rows);
        let mut outcome = Ok(());
        for row in &mut rows {
            if is_same && let What::File { stamp, hash: Some(_) } = &row.what {
                if let Err(trouble) = self.count(stamp.size) {
                    outcome = Err(trouble.into());
                    break;
                }
                continue;
            }
            self.path.extend_from_slice(&row.name);
            let one = self.row(fd, row, is_new);
            self.path.truncate(length);
            match one {
                Ok(State::Same) => {}
                Ok(State::Changed) => changed = true,
                Ok(State::Gone) => gone = true,
                Err(end) => {
                    outcome = Err(end);
                    break;
                }
            }
        }
        folder.rows = rows;
        if let Err(end) = outcome {
            // The checked rows may differ from those in the piece.
            folder.hash = None;
            return Err(end);
        }
        if gone {
            folder.stamp = None;
            folder.hash = None;
        }
        if !self.reads {
            return Ok(changed);
        }
        if changed || folder.hash.is_none() {
            return self.name(folder).map_err(End::Trouble);
        }
        Ok(false)
    }

    /// Gives a folder the name of what is in it; whether that is another one.
    fn name(&mut self, folder: &mut Folder) -> Result<bool, SnapshotError> {
        let mut bytes = Vec::new();
        for SeenFile { name, what } in &folder.rows {
            let (letter, hash) = match what {
                What::File { stamp: FileStamp { mode: 0, .. }, .. } => continue,
                What::File { stamp, hash: Some(hash) } => (tree::letter(stamp.kind()), *hash),
                What::File { hash: None, .. } => (tree::letter(PathKind::LeftOut), [0; 32]),
                What::Link(hash) => (tree::letter(PathKind::Link), *hash),
                What::Folder(below) => match below.hash {
                    Some(hash) => (tree::FOLDER, hash),
                    None => continue,
                },
            };
            tree::row(&mut bytes, letter, &hash, name);
        }
        let hash = if bytes.is_empty() { None } else { Some(self.keep(ObjectKind::Folder, bytes)?) };
        let changed = folder.hash != hash;
        folder.hash = hash;
        Ok(changed)
    }

    fn row(&mut self, fd: &OwnedFd, row: &mut SeenFile, is_new: bool) -> Result<State, End> {
        match &mut row.what {
            What::Link(_) => {
                self.count(0).map_err(End::Trouble)?;
                Ok(State::Same)
            }
            What::Folder(folder) => {
                if self.path.split(|byte| *byte == b'/').count() > MAX_DEPTH + 1 {
                    return Ok(State::Same);
                }
                if !is_new && folder.unchanged_in == self.number {
                    self.count_all(folder).map_err(End::Trouble)?;
                    return Ok(State::Same);
                }
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let Ok(below) = openat(fd, &*row.name, flags, Mode::empty()) else {
                    let changed = lose(folder);
                    return Ok(if changed { State::Gone } else { State::Same });
                };
                // A folder on another file system is left out.
                let about =
                    fstat(&below).ok().filter(|about| FileAttributes::from(about).device == self.device);
                let Some(about) = about else {
                    let changed = lose(folder);
                    return Ok(if changed { State::Changed } else { State::Same });
                };
                self.path.push(b'/');
                let changed = self.visit(&below, FileStamp::of(&about), folder, is_new)?;
                Ok(if changed { State::Changed } else { State::Same })
            }
            What::File { stamp, hash } => {
                let Ok(about) = statat(fd, &*row.name, AtFlags::SYMLINK_NOFOLLOW) else {
                    (*stamp, *hash) = (FileStamp::default(), None);
                    return Ok(State::Gone);
                };
                if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
                    (*stamp, *hash) = (FileStamp::default(), None);
                    return Ok(State::Gone);
                }
                let now = FileStamp::of(&about);
                let before = (stamp.kind(), *hash);
                if hash.is_none() && !self.has_room(now.size).map_err(End::Trouble)? {
                    *stamp = now;
                    return Ok(State::Same);
                }
                self.count(now.size).map_err(End::Trouble)?;
                if *stamp == now && hash.is_some() {
                    return Ok(State::Same);
                }
                *stamp = now;
                if !self.reads {
                    *hash = None;
                    return Ok(State::Changed);
                }
                *hash = self.read(fd, &row.name, now).map_err(End::Trouble)?;
                let after = (stamp.kind(), *hash);
                if hash.is_some() && now.is_racy(self.place.limits) {
                    // It is read again the next time.
                    stamp.modified = i64::MIN;
                }
                if self.bytes_read > PROGRESS {
                    return Err(End::Long);
                }
                Ok(if before == after { State::Same } else { State::Changed })
            }
        }
    }

    /// Counts everything in a folder that is as it was.
    fn count_all(&mut self, folder: &Folder) -> Result<(), SnapshotError> {
        for row in &folder.rows {
            match &row.what {
                What::File { stamp, .. } => self.count(stamp.size)?,
                What::Link(_) => self.count(0)?,
                What::Folder(below) => self.count_all(below)?,
            }
        }
        Ok(())
    }

    /// Counts a file and its size in bytes. A file that is too large to be kept adds nothing to the total size.
    fn count(&mut self, size: u64) -> Result<(), SnapshotError> {
        let SnapshotLimits { max_file, max_files, max_total, .. } = *self.place.limits;
        self.files += 1;
        self.total += if size <= max_file { size } else { 0 };
        if self.room.is_some() {
            return Ok(());
        }
        if self.files > max_files {
            return Err(self.too_many());
        }
        if self.total > max_total {
            return Err(SnapshotError::TooLarge(format!(
                "the files of {} have more than {} MiB; name what need not be kept in .gitignore, or raise \
                 snapshots.max_folder_mib",
                self.place.root.display(),
                max_total >> 20
            )));
        }
        Ok(())
    }

    fn too_many(&self) -> SnapshotError {
        let (root, most) = (self.place.root.display(), self.place.limits.max_files);
        SnapshotError::TooLarge(format!(
            "{root} has more than {most} files; name folders that need not be kept in .gitignore"
        ))
    }

    /// Returns whether a file that was not kept before can be; otherwise it is left out, and so are as many others as a
    /// folder may have files.
    fn has_room(&mut self, size: u64) -> Result<bool, SnapshotError> {
        let SnapshotLimits { max_file, max_files, max_total, .. } = *self.place.limits;
        let Some(room) = self.room.as_mut().filter(|_| size <= max_file) else { return Ok(true) };
        let why = if room.files == 0 {
            format!("more than {max_files} files")
        } else if room.bytes < size {
            format!("more than {} MiB in all", max_total >> 20)
        } else {
            room.files -= 1;
            room.bytes -= size;
            return Ok(true);
        };
        room.refused += 1;
        if room.refused > max_files {
            return Err(self.too_many());
        }
        self.left_out.push((self.path.clone(), why));
        Ok(false)
    }

    /// Reads a file and keeps it; `None`: it is left out.
    fn read(&mut self, fd: &OwnedFd, name: &[u8], stamp: FileStamp) -> Result<Option<Hash>, SnapshotError> {
        if (self.place.is_stopped)() {
            return Err(SnapshotError::Stopped);
        }
        let max = self.place.limits.max_file;
        let why = if stamp.size > max {
            format!("{} MiB", stamp.size >> 20)
        } else {
            self.read += 1;
            match read_at(fd.as_fd(), name, max) {
                Ok(Some(bytes)) => {
                    self.bytes_read += bytes.len() as u64;
                    return self.keep(ObjectKind::Bytes, bytes).map(Some);
                }
                Ok(None) => "it grew while it was read".to_owned(),
                Err(error) => error.to_string(),
            }
        };
        self.left_out.push((self.path.clone(), why));
        Ok(None)
    }

    /// Lists a folder again, keeping what is known of its rows. Returns whether its entries changed.
    fn list(&mut self, fd: &OwnedFd, folder: &mut Folder) -> Result<bool, SnapshotError> {
        let mut names: Vec<(Box<[u8]>, FileType)> = Vec::new();
        let Ok(entries) = rustix::fs::Dir::read_from(fd) else {
            let was = !folder.rows.is_empty();
            folder.rows.clear();
            return Ok(was);
        };
        for entry in entries {
            let Ok(entry) = entry else { break };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b".." | b".git") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |about| FileType::from_raw_mode(about.st_mode)),
                kind => kind,
            };
            if matches!(kind, FileType::RegularFile | FileType::Symlink | FileType::Directory)
                && !self.is_left_out(name, kind == FileType::Directory)
            {
                names.push((name.into(), kind));
            }
        }
        names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut old = std::mem::take(&mut folder.rows).into_iter().peekable();
        let mut changed = false;
        folder.rows.reserve_exact(names.len());
        for (name, kind) in names {
            while old.next_if(|row| *row.name < *name).is_some() {
                changed = true;
            }
            let known = old.next_if(|row| row.name == name).map(|row| row.what);
            let was = known.is_some();
            let what = match (kind, known) {
                (FileType::Directory, Some(what @ What::Folder(_)))
                | (FileType::RegularFile, Some(what @ What::File { .. })) => what,
                (FileType::Symlink, known) => {
                    let Ok(target) = readlinkat(fd, &*name, Vec::new()) else { continue };
                    let hash = self.keep(ObjectKind::Bytes, target.into_bytes())?;
                    changed |= !matches!(known, Some(What::Link(before)) if before == hash);
                    folder.rows.push(SeenFile { name, what: What::Link(hash) });
                    continue;
                }
                (kind, _) => {
                    changed = true;
                    if kind == FileType::Directory {
                        What::Folder(Box::default())
                    } else {
                        What::File { stamp: FileStamp::default(), hash: None }
                    }
                }
            };
            changed |= !was;
            folder.rows.push(SeenFile { name, what });
        }
        Ok(changed || old.next().is_some())
    }

    /// Whether the entry of this name is left out of the folder's files.
    fn is_left_out(&self, name: &[u8], is_folder: bool) -> bool {
        if self.rules.is_empty() && !is_folder {
            return false;
        }
        let path = [self.place.root.as_os_str().as_bytes(), b"/", &self.path[..], name].concat();
        let path = Path::new(OsStr::from_bytes(&path));
        if is_folder && self.place.without.iter().any(|without| without == path) {
            return true;
        }
        for rules in self.rules.iter().rev() {
            let found = rules.matcher.matched(path, is_folder);
            if !found.is_none() {
                return found.is_ignore();
            }
        }
        false
    }

    /// Reads what a folder says is ignored, when that changed.
    fn refresh_rules(&self, fd: &OwnedFd, folder: &mut Folder) -> bool {
        let known = folder.rules.as_ref().map_or([None; 2], |rules| rules.sources);
        let (sources, is_racy) = rule_sources(self.place.limits, fd);
        if sources == known && !is_racy {
            return false;
        }
        if sources.iter().all(Option::is_none) {
            folder.rules = None;
            return true;
        }
        let mut builder = GitignoreBuilder::new(self.place.root.join(path_of(&self.path)));
        for (name, _) in RULES.iter().zip(&sources).filter(|(_, source)| source.is_some()) {
            let Ok(Some(bytes)) = read_rules_at(fd.as_fd(), name) else { continue };
            for line in String::from_utf8_lossy(&bytes).lines() {
                // An invalid pattern ignores nothing.
                let _ = builder.add_line(None, line);
            }
        }
        let matcher = builder.build().unwrap_or_else(|_| Gitignore::empty());
        folder.rules = Some(Arc::new(FolderRules { sources, matcher }));
        true
    }
}

/// Returns the stamps of the files of a folder's rules, and whether one may change again without its time telling.
fn rule_sources(limits: &SnapshotLimits, folder: &OwnedFd) -> ([Option<FileStamp>; 2], bool) {
    let sources = RULES.map(|name| {
        let about = statat(folder, name, AtFlags::empty()).ok()?;
        let is_file = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        is_file.then(|| FileStamp::of(&about))
    });
    (sources, sources.iter().flatten().any(|stamp| stamp.is_racy(limits)))
}

/// Forgets a folder; whether anything was in it.
fn lose(folder: &mut Folder) -> bool {
    let was = folder.hash.is_some();
    *folder = Folder::default();
    was
}

/// The change of a row since the last scan.
enum State {
    Same,
    Changed,
    Gone,
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

/// The bytes of a plain file; `None` when it is larger than that by now.
fn read_at(folder: BorrowedFd<'_>, name: &[u8], most: u64) -> std::io::Result<Option<Vec<u8>>> {
    open_and_read(folder, name, most, OFlags::NOFOLLOW)
}

/// The same, and it may be a link.
fn read_rules_at(folder: BorrowedFd<'_>, name: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
    open_and_read(folder, name, MAX_RULES, OFlags::empty())
}

fn open_and_read(
    folder: BorrowedFd<'_>,
    name: &[u8],
    most: u64,
    flags: OFlags,
) -> std::io::Result<Option<Vec<u8>>> {
    // Opening a pipe would wait for a writer.
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::RDONLY;
    let file = std::fs::File::from(openat(folder, name, flags, Mode::empty())?);
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(std::io::Error::other("it is no longer a plain file"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len().min(most)).unwrap_or(0));
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Returns the item at one path, with its bytes; `None` if nothing there can be kept.
pub(super) fn one(
    root: &Path,
    relative: &[u8],
    limits: &SnapshotLimits,
) -> Option<(Item, Option<Vec<u8>>, String)> {
    let top = openat(rustix::fs::CWD, root, PASSAGE | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let place = FilePlace::beneath(top, &path_of(relative)).ok()?;
    let about = place.stat().ok()?;
    let item = |kind, bytes: &[u8]| Item { kind, hash: hash_of(ObjectKind::Bytes, bytes) };
    match FileType::from_raw_mode(about.st_mode) {
        FileType::Symlink => {
            let target = place.link_target().ok()?.as_os_str().as_bytes().to_vec();
            Some((item(PathKind::Link, &target), Some(target), String::new()))
        }
        FileType::RegularFile => {
            let stamp = FileStamp::of(&about);
            let left_out = |why: String| Some((Item { kind: PathKind::LeftOut, hash: [0; 32] }, None, why));
            if stamp.size > limits.max_file {
                return left_out(format!("{} MiB", stamp.size >> 20));
            }
            match read_at(place.folder.as_fd(), place.name.as_bytes(), limits.max_file) {
                Ok(Some(bytes)) => Some((item(stamp.kind(), &bytes), Some(bytes), String::new())),
                Ok(None) => left_out("it grew while it was read".to_owned()),
                Err(error) => left_out(error.to_string()),
            }
        }
        _ => None,
    }
}
