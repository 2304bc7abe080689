//! Tests of the store, on real files where files matter.

mod audit;
mod commands;
mod config_entries;
mod crash;
mod decisions;
mod files;
mod hostile;
mod images;
mod inbox;
mod journal;
mod ledger;
mod log;
mod mailbox;
mod mailbox_model;
mod model;
mod outbox;
mod outlines;
mod pages;
mod profile;
mod rewind;
mod search;
mod statistics;
mod suite;
mod summaries;
mod threads;
mod upkeep;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{AcquireError, OpenError, Store, StoreError};
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, ToolCallOutcome};
use aye_core::contract::message::Message;
use aye_core::contract::presence::Liveness;
use aye_core::contract::record::*;
use aye_core::contract::suspension::{Actor, ResumeDecisionAction};
use aye_store_suite::fixtures::*;

/// Undoes the migrations about what a turn writes, what a look for work reads and how requests begin.
const BEFORE_GROWTH: &str = "DROP TABLE prefix; DROP INDEX thread_unsaid; ALTER TABLE thread DROP COLUMN unsaid; \
     CREATE INDEX thread_unsaid ON thread (n) WHERE said < messages; \
     CREATE INDEX intent_open ON intent (run_id) WHERE outcome IS NULL; \
     CREATE INDEX audit_of_thread ON audit (thread_id, n); \
     CREATE INDEX audit_of_call ON audit (run_id, call_id, n); \
     CREATE INDEX tally_at ON tally (at); DROP INDEX run_of_parent; \
     DROP INDEX suspension_waiting; CREATE INDEX suspension_waiting ON suspension (n) WHERE status = 'open'; \
     CREATE TABLE snapshot_old (n INTEGER PRIMARY KEY, thread_id TEXT NOT NULL REFERENCES thread (id) ON DELETE CASCADE, \
        seq INTEGER NOT NULL, run_id TEXT NOT NULL, created_at INTEGER NOT NULL, body TEXT NOT NULL, \
        UNIQUE (thread_id, seq)) STRICT; \
     INSERT INTO snapshot_old (thread_id, seq, run_id, created_at, body) SELECT * FROM snapshot; \
     DROP TABLE snapshot; ALTER TABLE snapshot_old RENAME TO snapshot; \
     DROP INDEX mailbox_order; ALTER TABLE mailbox DROP COLUMN waits; \
     CREATE INDEX mailbox_order ON mailbox (priority, available_at, created_at, n) WHERE status = 'queued';";

/// Undoes the migrations since the one that gave leases a length.
fn before_lease_lengths() -> String {
    format!("{BEFORE_GROWTH} ALTER TABLE lease DROP COLUMN renewed_at; ALTER TABLE lease DROP COLUMN length")
}

/// A temporary folder with a store in it.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data").join("aye.db")
    }

    fn open(&self) -> Store {
        Store::open(&self.path()).unwrap()
    }

    /// Creates the store and waits until it is closed: a dropped store closes some time later.
    fn make(&self) {
        futures::executor::block_on(self.open().close());
    }

    fn try_open(&self) -> Result<Store, OpenError> {
        Store::open_with(&self.path(), Duration::from_millis(50))
    }

    /// A plain connection, as another program would have it.
    fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// The files as a crash at this moment would leave them, without the shared memory.
    fn copy(&self) -> Home {
        let copy = Home::new();
        std::fs::create_dir_all(copy.path().parent().unwrap()).unwrap();
        for suffix in ["", "-wal"] {
            let name = |path: PathBuf| super::rows::with_suffix(&path, suffix);
            if name(self.path()).exists() {
                std::fs::copy(name(self.path()), name(copy.path())).unwrap();
            }
        }
        copy
    }
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The actor and time of a deletion.
fn by() -> (Actor, u64) {
    (Actor { user: "ada".into(), channel: "cli".into(), pid: 1, ..Actor::default() }, 60)
}

/// Runs a closure on the store's own connection.
async fn on_connection<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&Connection) -> T + Send + 'static,
) -> T {
    store.call(move |conn| Ok(work(conn))).await.unwrap()
}
