//! The file contents that each thread saw last.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;

pub(super) use aye_core::contract::digest::sha256_hex as hash;

/// More entries than this and the ledger starts afresh; then a Write asks for a Read again.
const MAX_ENTRIES: usize = 20_000;
/// Maximum bytes of a file whose content is kept.
const MAX_FILE: usize = 256 << 10;
/// Maximum bytes of all contents; beyond that, those kept so far are dropped.
const MAX_KEPT: usize = 4 << 20;

/// The state of a thread's knowledge about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownContent {
    /// It saw this content.
    Current,
    /// It saw another content.
    Stale,
    /// The thread never read it, or aye was restarted since.
    Unknown,
}

/// What a thread saw of a file.
#[derive(Debug)]
struct SeenContent {
    hash: String,
    /// Dropped when there is too much of it.
    bytes: Option<Arc<[u8]>>,
}

#[derive(Debug, Default)]
struct Entries {
    all: HashMap<(String, PathBuf), SeenContent>,
    /// Bytes of the contents.
    kept: usize,
}

/// The hash of each file at its last Read, Write or Edit, by thread, and the content, to show what changed since. Kept in
/// memory only: after a restart the ledger is empty, which costs a Write another Read, but costs an Edit nothing as long as
/// its text occurs once.
#[derive(Debug, Default)]
pub(super) struct FileLedger {
    seen: Mutex<Entries>,
    changing: Arc<tokio::sync::Mutex<()>>,
}

impl FileLedger {
    /// Locks changes from reading a file to replacing it: the calls of one answer run in parallel, and the
    /// second of two changes to a file has to be made to the result of the first. Calls get the lock in the order in
    /// which they ask for it.
    pub(super) async fn changing(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changing).lock_owned().await
    }

    /// Notes what a thread saw.
    pub(super) fn note(&self, thread: &str, real: &Path, bytes: &[u8]) {
        let mut seen = self.seen.lock().expect("no panic while the ledger is held");
        let key = (thread.to_owned(), real.to_owned());
        if seen.all.len() >= MAX_ENTRIES {
            *seen = Entries::default();
        }
        let before = seen.all.remove(&key).and_then(|content| content.bytes);
        seen.kept -= before.map_or(0, |bytes| bytes.len());
        let kept: Option<Arc<[u8]>> = (bytes.len() <= MAX_FILE).then(|| bytes.into());
        if kept.is_some() && seen.kept + bytes.len() > MAX_KEPT {
            seen.all.values_mut().for_each(|content| content.bytes = None);
            seen.kept = 0;
        }
        seen.kept += kept.as_ref().map_or(0, |bytes| bytes.len());
        seen.all.insert(key, SeenContent { hash: hash(bytes), bytes: kept });
    }

    /// Returns the content that a thread saw, if it is still kept.
    pub(super) fn content(&self, thread: &str, real: &Path) -> Option<Arc<[u8]>> {
        let seen = self.seen.lock().expect("no panic while the ledger is held");
        seen.all.get(&(thread.to_owned(), real.to_owned()))?.bytes.clone()
    }

    /// Compares what a thread saw with the current content.
    pub(super) fn compare(&self, thread: &str, real: &Path, hash: &str) -> KnownContent {
        let seen = self.seen.lock().expect("no panic while the ledger is held");
        match seen.all.get(&(thread.to_owned(), real.to_owned())) {
            None => KnownContent::Unknown,
            Some(known) if known.hash == hash => KnownContent::Current,
            Some(_) => KnownContent::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_do_not_share_seen_files() {
        let ledger = FileLedger::default();
        let path = Path::new("/x");
        ledger.note("a", path, b"1");
        assert_eq!(ledger.compare("a", path, &hash(b"1")), KnownContent::Current);
        assert_eq!(ledger.compare("a", path, &hash(b"2")), KnownContent::Stale);
        assert_eq!(ledger.compare("b", path, &hash(b"1")), KnownContent::Unknown);
        assert_eq!(hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
    #[test]
    fn contents_are_kept_within_bounds() {
        let ledger = FileLedger::default();
        let file = |n: usize| PathBuf::from(format!("/{n}"));
        let big = vec![b'x'; MAX_FILE];
        let fit = MAX_KEPT / MAX_FILE;
        for _ in 0..3 {
            (0..fit).for_each(|n| ledger.note("a", &file(n), &big));
        }
        assert!((0..fit).all(|n| ledger.content("a", &file(n)).is_some()));
        ledger.note("a", &file(fit), b"one more");
        assert_eq!(ledger.content("a", &file(fit)).as_deref(), Some(&b"one more"[..]));
        assert_eq!(ledger.content("a", &file(0)), None);
        assert_eq!(ledger.compare("a", &file(0), &hash(&big)), KnownContent::Current);
        let huge = vec![b'x'; MAX_FILE + 1];
        ledger.note("a", &file(0), &huge);
        assert_eq!(ledger.content("a", &file(0)), None);
        assert_eq!(ledger.compare("a", &file(0), &hash(&huge)), KnownContent::Current);
    }
}
