//! The file contents that each thread saw last.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;

pub(super) use aye_core::contract::digest::sha256_hex as hash;

/// More entries than this and the ledger starts afresh; then a Write asks for a Read again.
const MAX_ENTRIES: usize = 20_000;

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

/// The hash of each file at its last Read, Write or Edit, by thread. Kept in memory only: after a restart the
/// ledger is empty, which costs a Write another Read, but costs an Edit nothing as long as its text occurs
/// once.
#[derive(Debug, Default)]
pub(super) struct FileLedger {
    seen: Mutex<HashMap<(String, PathBuf), String>>,
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
    pub(super) fn note(&self, thread: &str, real: &Path, hash: String) {
        let mut seen = self.seen.lock().expect("no panic while the ledger is held");
        if seen.len() >= MAX_ENTRIES {
            seen.clear();
        }
        seen.insert((thread.to_owned(), real.to_owned()), hash);
    }

    /// Compares what a thread saw with the current content.
    pub(super) fn compare(&self, thread: &str, real: &Path, hash: &str) -> KnownContent {
        let seen = self.seen.lock().expect("no panic while the ledger is held");
        match seen.get(&(thread.to_owned(), real.to_owned())) {
            None => KnownContent::Unknown,
            Some(known) if known == hash => KnownContent::Current,
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
        ledger.note("a", path, hash(b"1"));
        assert_eq!(ledger.compare("a", path, &hash(b"1")), KnownContent::Current);
        assert_eq!(ledger.compare("a", path, &hash(b"2")), KnownContent::Stale);
        assert_eq!(ledger.compare("b", path, &hash(b"1")), KnownContent::Unknown);
        assert_eq!(hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
