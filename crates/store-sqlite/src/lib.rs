//! The SQLite store: no other module uses SQLite.
//!
//! A [`Store`] is a handle to the one thread that owns the connection. A request is a boxed closure on a channel and
//! its answer returns through a oneshot channel, so every request runs alone and in the order of sending. A request
//! whose future is dropped is still executed: a write is never half a write.
//!
//! The guarantees of the design that live here: acknowledged data has been committed with `synchronous=FULL`, except
//! what a power cut makes meaningless (see `no_sync`); one step is one transaction; a decision is spent once; a
//! writer that lost its thread to another process is refused.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod audit;
mod change_feed;
mod children;
mod commands;
mod config_entries;
mod error;
mod folders;
mod grants;
mod group_commit;
mod history;
mod images;
mod inbox;
mod journal;
mod leases;
mod log_mark;
mod mailbox;
mod no_sync;
pub mod objects;
mod open;
mod outbox;
mod outlines;
mod output;
mod pages;
mod place;
mod profile;
mod prompts;
mod push;
mod queue;
mod read_only;
mod rewind;
mod rows;
mod runs;
mod search;
mod source;
mod statistics;
mod summaries;
mod suspensions;
#[cfg(test)]
mod tests;
mod thread_view;
mod threads;
mod traits;
mod transfer;
mod upkeep;
mod warm;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

pub use aye_core::contract::storage::{
    AcquireError, AuditFilter, ChangeKind, Portion, StoreChange, StoreError, SuspensionFilter, Term,
    ThreadRunStore, ThreadTail,
};
pub use aye_core::failpoint;
pub use aye_core::memory::{InMemoryMailboxStore, InMemoryStore};
pub use change_feed::ChangeSubscription;
pub(crate) use error::SqlFailure;
pub use error::{OpenError, OpenErrorKind};
pub use history::RecentCall;
pub use inbox::InboxFilter;
pub use mailbox::{JobFilter, JobLookup, Mailbox, NextWork};
pub use outbox::{OutboxOutcome, OutboxRow, OutboxStatus};
pub use pages::Page;
pub use push::{PushTarget, PushTargetsOf, push_key};
pub use rewind::ForkAt;
pub use search::Match;
pub use source::FileStore;
pub use suspensions::SuspensionLookup;
pub use thread_view::{MessageSelection, ThreadView};
pub use threads::ThreadLookup;
pub use transfer::{ThreadCopy, ThreadExport, ThreadRest};
pub use upkeep::{PrunePlace, Pruned};

/// How long a request waits for another process to finish its transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// A log that is shorter is left as it is at the end. Reading it again takes less than a millisecond.
const SHORT_LOG: u64 = 512 * 1024;
/// Statements that stay prepared: about as many as this module has.
const STATEMENTS: usize = 96;

enum StoreRequest {
    Work(Box<dyn FnOnce(&mut Connection) + Send>),
    /// A request that shares its transaction with those after it.
    Grouped(Box<dyn group_commit::GroupRequest>, group_commit::Beside),
    Close {
        reply: oneshot::Sender<()>,
        keep_short_log: bool,
    },
}

/// A handle to the store. Clones speak to the same thread and the same connection.
///
/// The thread ends when the last handle is gone, or at [`Store::close`].
#[derive(Clone, Debug)]
pub struct Store {
    // Unbounded on purpose: everybody who sends waits for the answer, so there are never more requests than callers.
    jobs: mpsc::Sender<StoreRequest>,
    path: Option<Arc<Path>>,
    file: Option<Arc<place::OpenFile>>,
    notifier: change_feed::ChangeNotifier,
}

impl Store {
    /// Opens the store in a file, makes it when it is not there, and brings an older one up to date.
    ///
    /// # Errors
    /// See [`OpenError`]. A file that is not ours, or newer, is left as it is.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, BUSY_TIMEOUT)
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

    /// Opens a store that is gone with its last handle.
    ///
    /// # Errors
    /// When SQLite cannot be set up, or no thread can be started.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::start(open::in_memory()?, None, false)
    }

    fn start(connection: Connection, path: Option<PathBuf>, may_write: bool) -> Result<Self, OpenError> {
        let marked = path.clone().filter(|_| may_write);
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let (jobs, queue) = mpsc::channel();
        std::thread::Builder::new()
            .name("aye-store".to_owned())
            .spawn(move || serve(connection, marked.as_deref(), &queue))
            .map_err(|error| OpenError::Io {
                path: path.clone().unwrap_or_default(),
                source: Box::new(error),
            })?;
        let notifier = path.as_deref().map(change_feed::ChangeNotifier::beside).unwrap_or_default();
        let file = path.as_deref().map(|path| Arc::new(place::OpenFile::at(path)));
        Ok(Self { jobs, path: path.map(Arc::from), file, notifier })
    }

    /// The file, with its folder resolved; `None` for a store in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
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

    async fn end(&self, keep_short_log: bool) {
        let (reply, answer) = oneshot::channel();
        if self.jobs.send(StoreRequest::Close { reply, keep_short_log }).is_ok() {
            let _ = answer.await;
        }
    }

    /// Checks the whole file for damage and returns one line for each problem found. It reads every page, so
    /// it takes a while.
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
            Ok(found)
        })
        .await
    }

    /// Changes rows in a way that no production code may.
    #[cfg(any(test, feature = "testing"))]
    pub async fn tamper(&self, sql: &'static str) {
        self.call(move |conn| Ok(conn.execute_batch(sql)?)).await.expect("a statement of a test");
    }

    /// Carries out a request on the store's thread.
    async fn call<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, SqlFailure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = StoreRequest::Work(Box::new(move |conn| {
            let _ = reply.send(work(conn));
        }));
        self.jobs.send(job).map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?.map_err(|SqlFailure(error)| self.named(error))
    }

    /// The same error, with the process that is in the way.
    fn named(&self, error: StoreError) -> StoreError {
        match (error, &self.path) {
            (StoreError::Busy { pid: None }, Some(path)) => StoreError::Busy { pid: place::locked_by(path) },
            (error, _) => error,
        }
    }

    /// Refuses to write to a file that is not at its path any more.
    fn checked(&self) -> impl Fn() -> Result<(), SqlFailure> + Send + use<> {
        let file = self.file.clone();
        move || file.as_ref().map_or(Ok(()), |file| file.check())
    }

    /// Reads in one transaction, so that several statements see one moment.
    async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, SqlFailure> + Send + 'static,
    {
        self.call(move |conn| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
            work(&tx)
        })
        .await
    }

    /// Writes in one transaction, which is rolled back when the work fails.
    async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, SqlFailure> + Send + 'static,
    {
        let checked = self.checked();
        self.call(move |conn| {
            checked()?;
            transact(conn, "", "", work)
        })
        .await
    }

    /// Writes like [`Store::write`], with failpoints before and after the commit. The change is then
    /// published to other processes on the store's thread, so that they receive it even if the caller stops
    /// waiting. `durable`: the commit waits for the disk.
    async fn write_and_publish<T, F, C>(
        &self,
        durable: bool,
        (before, after): (&'static str, &'static str),
        work: F,
        changes: impl FnOnce(&T) -> C + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, SqlFailure> + Send + 'static,
        C: IntoIterator<Item = StoreChange>,
    {
        let (notifier, checked) = (self.notifier.clone(), self.checked());
        self.call(move |conn| {
            checked()?;
            let value = if durable {
                transact(conn, before, after, work)?
            } else {
                transact(&mut *no_sync::Relaxed::new(conn)?, before, after, work)?
            };
            for change in changes(&value) {
                notifier.notify_others(&change);
            }
            Ok(value)
        })
        .await
    }
}

fn transact<T>(
    conn: &mut Connection,
    before: &'static str,
    after: &'static str,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, SqlFailure>,
) -> Result<T, SqlFailure> {
    // Immediate: a deferred transaction that reads first and writes later could not be retried if another
    // process wrote in between, and would fail without waiting.
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let value = work(&tx)?;
    failpoint::failpoint(before);
    tx.commit()?;
    failpoint::failpoint(after);
    Ok(value)
}

/// Whether the write-ahead log is short enough to be read again in almost no time.
fn is_short(connection: &Connection) -> bool {
    connection
        .path()
        .and_then(|path| std::fs::metadata(rows::with_suffix(Path::new(path), "-wal")).ok())
        .is_some_and(|log| log.len() < SHORT_LOG)
}

fn serve(mut connection: Connection, file: Option<&Path>, queue: &mpsc::Receiver<StoreRequest>) {
    let mut next = None;
    let mut is_marked = file.is_none();
    while let Some(job) = next.take().or_else(|| queue.recv().ok()) {
        match job {
            StoreRequest::Grouped(first, beside) => {
                next = group_commit::execute_group(&mut connection, first, &beside, queue);
            }
            StoreRequest::Work(work) => {
                // A panic in one request (a caller's predicate, say) must not take the store away from all others.
                // Its transaction was rolled back while the stack unwound, and its caller reads `Closed`.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut connection)));
                if done.is_err() {
                    tracing::error!("a request to the store panicked");
                }
            }
            StoreRequest::Close { reply, keep_short_log } => {
                if keep_short_log
                    && is_short(&connection)
                    && let Err(error) =
                        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
                {
                    tracing::warn!("the log of the store cannot be kept: {error}");
                }
                close(connection, file);
                let _ = reply.send(());
                return;
            }
        }
        is_marked = is_marked || file.is_some_and(log_mark::note);
    }
    close(connection, file);
}

/// The last one who closes folds the log and removes it; what is left of it is marked again.
fn close(connection: Connection, file: Option<&Path>) {
    file.inspect(|file| log_mark::lift(file));
    if let Err((_, error)) = connection.close() {
        tracing::warn!("the store was not closed cleanly: {error}");
    }
    file.map(log_mark::note);
}
