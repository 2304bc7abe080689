//! The SQLite store: no other module uses SQLite.
//!
//! A [`Store`] is a handle to the one thread that owns the connection (see `connection`). A request is a boxed closure on
//! a channel and its answer returns through a oneshot channel, so every request runs alone and in the order of sending. A
//! request whose future is dropped is still executed: a write is never half a write.
//!
//! A module has the rows of one part: functions over a connection, which work in any transaction, and methods of [`Store`],
//! each of which runs some of them in one. `journal` has the transactions that span most parts.
//!
//! The guarantees of the design that live here: acknowledged data has been committed with `synchronous=FULL`, except
//! what a power cut makes meaningless (see `no_sync`); one step is one transaction; a decision is spent once; a
//! writer that lost its thread to another process is refused.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

// The connection: who uses it, its transactions, its file, and those who hear of commits.
mod change_feed;
mod connection;
mod error;
mod group_commit;
mod log_mark;
mod no_sync;
mod open;
mod place;
mod read_only;
mod row_feed;
mod rows;
mod upkeep;
mod warm;

// Threads.
mod folders;
mod images;
mod outlines;
mod prompts;
mod rewind;
mod search;
mod summaries;
mod thread_view;
mod threads;
mod transfer;

// Runs: the two transactions of a driver, and what its calls started.
mod children;
mod commands;
mod journal;
mod leases;
mod output;
mod presence;
mod runs;
mod statistics;

// Questions, and rules granted with their answers.
mod grants;
mod inbox;
mod suspensions;

// Messages on their way: to runs, and to others.
mod mailbox;
mod outbox;
mod push;

// What outlives a thread.
mod audit;
mod config_entries;
mod prefixes;
mod profile;

// The files of snapshots, in a database of their own.
pub mod objects;

// For programs that embed aye.
mod pages;
mod source;

// The traits that it implements.
mod program;
mod traits;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use aye_core::contract::clock::Clock;
use aye_core::contract::presence::Presence;
pub use aye_core::contract::program_store::{
    CopyPart, ExportPart, ForkAt, InboxFilter, JobFilter, JobLookup, Match, MessageSelection, OutboxOutcome,
    OutboxRow, OutboxStatus, PrunePlace, Pruned, PushTarget, PushTargetsOf, RecentCall, SuspensionLookup,
    ThreadCopy, ThreadCopyFile, ThreadExport, ThreadLookup, ThreadRest, ThreadView, push_key,
};
pub use aye_core::contract::storage::{
    AcquireError, AuditFilter, ChangeKind, Portion, Slice, StoreChange, StoreError, SuspensionFilter,
    ThreadRunStore, ThreadTail,
};
pub use aye_core::failpoint;
pub use change_feed::ChangeSubscription;
use connection::{StoreRequest, transact};
pub(crate) use error::SqlFailure;
pub use error::{OpenError, OpenErrorKind};
pub use mailbox::{Mailbox, NextWork};
pub use open::StoreLock;
pub use pages::Page;
pub use source::FileStore;

/// How long a request waits for another process to finish its transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle to the store. Clones speak to the same thread and the same connection.
///
/// The thread ends when the last handle is gone, or at [`Store::close`].
#[derive(Clone, Debug)]
pub struct Store {
    // Unbounded on purpose: everybody who sends waits for the answer, so there are never more requests than callers.
    jobs: mpsc::Sender<StoreRequest>,
    /// `None` for a store in memory.
    file: Option<Arc<place::OpenFile>>,
    notifier: change_feed::ChangeNotifier,
    presence: Arc<dyn Presence>,
    clock: Arc<dyn Clock>,
}

impl Store {
    /// Opens the store in a file, makes it when it is not there, and brings an older one up to date.
    ///
    /// # Errors
    /// See [`OpenError`]. A file that is not ours, or newer, is left as it is.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, BUSY_TIMEOUT)
    }

    /// Opens the store's file again: another handle, which reports what this one commits.
    ///
    /// # Errors
    /// [`StoreError::Unopened`] for a store in memory, and when the file cannot be opened.
    pub fn opened_again(&self) -> Result<Self, StoreError> {
        let why = "a store in memory has one handle; use InMemoryStore or a store in a file";
        let path = self.path().ok_or_else(|| StoreError::Unopened(why.to_owned()))?;
        let again = Self::open(path).map_err(|error| StoreError::Unopened(error.to_string()))?;
        Ok(again.with_clock(self.clock()))
    }

    /// Counts by another clock than the machine's.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Returns the clock that every time in this store comes from: the machine's.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn open_with(path: &Path, busy: Duration) -> Result<Self, OpenError> {
        let (connection, path) = open::open(path, busy)?;
        Self::start(connection, Some(path), true)
    }

    /// Opens a store for reading only: every request that writes fails with [`StoreError::ReadOnly`]. Nothing
    /// is created or changed; a store of an older version is migrated in a copy.
    ///
    /// # Errors
    /// See [`OpenError`]; also when the file does not exist.
    pub fn open_to_read(path: &Path) -> Result<Self, OpenError> {
        let (connection, path) = read_only::open(path, BUSY_TIMEOUT)?;
        Self::start(connection, Some(path), false)
    }

    /// Locks the file of a store against every other process, until the lock is dropped: for one that moves it.
    ///
    /// # Errors
    /// [`OpenError`] of the kind [`OpenErrorKind::Locked`] when another process has the store open.
    pub fn lock(path: &Path) -> Result<StoreLock, OpenError> {
        open::lock(path)
    }

    /// Opens a store that is gone with its last handle.
    ///
    /// # Errors
    /// When SQLite cannot be set up, or no thread can be started.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::start(open::in_memory()?, None, false)
    }

    /// Returns what tells which processes that use this store are alive. Processes that use a file each hold a lock in
    /// a folder beside it.
    pub fn presence(&self) -> Arc<dyn Presence> {
        Arc::clone(&self.presence)
    }

    /// The file, with its folder resolved; `None` for a store in memory.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path())
    }

    /// Closes the store for all its handles, after the requests that were sent before. The write-ahead log is
    /// folded into the file unless another process has the file open. Closing a closed store is not an error.
    pub async fn close(&self) {
        self.end(false).await;
    }

    /// Closes the store like [`Store::close`], but keeps a short log for the next start, for a program that a
    /// user is waiting for. Folding the log and creating a new one takes four fsyncs.
    pub async fn leave(&self) {
        self.end(true).await;
    }

    /// Checks the whole file for damage and returns one line for each problem found. It reads every page, so
    /// it takes a while. If the pages are whole, it also counts the messages of each thread.
    ///
    /// # Errors
    /// When SQLite cannot run the check.
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.read(|conn| {
            let mut found = Vec::new();
            let mut statement = conn.prepare("PRAGMA quick_check(20)")?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                let line: String = row.get(0)?;
                if line != "ok" {
                    found.push(line);
                }
            }
            let mut statement = conn.prepare("PRAGMA foreign_key_check")?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
                found.push(format!("a row of {table} refers to a missing row of {parent}"));
            }
            if found.is_empty() {
                found = threads::faults(conn)?;
            }
            Ok(found)
        })
        .await
    }

    /// Changes rows in a way that no production code may.
    #[cfg(any(test, feature = "testing"))]
    pub async fn tamper(&self, sql: &'static str) {
        self.call(move |conn| Ok(conn.execute_batch(sql)?)).await.expect("a statement of a test");
    }
}
