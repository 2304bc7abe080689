//! The thread that owns the connection: requests in the order in which they were sent, and the transactions that they
//! run in.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::presence::FilePresence;
use super::{
    OpenError, SqlFailure, Store, StoreError, change_feed, failpoint, group_commit, log_mark, no_sync, place,
    rows,
};
use aye_core::contract::clock::SystemClock;
use aye_core::contract::presence::{LocalPresence, Presence};

/// A log that is shorter is left as it is at the end. Reading it again takes less than a millisecond.
const SHORT_LOG: u64 = 512 * 1024;
/// Statements that stay prepared: about as many as this module has.
const STATEMENTS: usize = 96;

/// A request that has the connection to itself.
type SoleRequest = Box<dyn FnOnce(&mut Connection) + Send>;

pub(super) enum StoreRequest {
    Work(SoleRequest),
    /// A request that changes nothing.
    Read(SoleRequest),
    /// A request that shares its transaction with those after it.
    Grouped(Box<dyn group_commit::GroupRequest>, group_commit::Beside),
    Close {
        reply: oneshot::Sender<()>,
        keep_short_log: bool,
    },
}

impl Store {
    pub(super) fn start(
        connection: Connection,
        path: Option<PathBuf>,
        may_write: bool,
    ) -> Result<Self, OpenError> {
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
        let presence: Arc<dyn Presence> = match &path {
            Some(path) => Arc::new(FilePresence::beside(path, may_write)),
            None => Arc::new(LocalPresence::default()),
        };
        let file = path.map(|path| Arc::new(place::OpenFile::at(path)));
        Ok(Self { jobs, file, notifier, presence, clock: Arc::new(SystemClock) })
    }

    pub(super) async fn end(&self, keep_short_log: bool) {
        let (reply, answer) = oneshot::channel();
        if self.jobs.send(StoreRequest::Close { reply, keep_short_log }).is_ok() {
            let _ = answer.await;
        }
    }

    /// Carries out a request on the store's thread.
    pub(super) async fn call<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, SqlFailure> + Send + 'static,
    {
        self.request(StoreRequest::Work, work).await
    }

    async fn request<T, F>(&self, kind: fn(SoleRequest) -> StoreRequest, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, SqlFailure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = kind(Box::new(move |conn| {
            let _ = reply.send(work(conn));
        }));
        self.jobs.send(job).map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?.map_err(|SqlFailure(error)| self.named(error))
    }

    /// The same error, with the process that is in the way.
    pub(super) fn named(&self, error: StoreError) -> StoreError {
        match (error, self.path()) {
            (StoreError::Busy { pid: None }, Some(path)) => StoreError::Busy { pid: place::locked_by(path) },
            (error, _) => error,
        }
    }

    /// Refuses to write to a file that is not at its path any more.
    pub(super) fn checked(&self) -> impl Fn() -> Result<(), SqlFailure> + Send + use<> {
        let file = self.file.clone();
        move || file.as_ref().map_or(Ok(()), |file| file.check())
    }

    /// Reads in one transaction, so that several statements see one moment.
    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, SqlFailure> + Send + 'static,
    {
        self.request(StoreRequest::Read, move |conn| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
            work(&tx)
        })
        .await
    }

    /// Writes in one transaction, which is rolled back when the work fails.
    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
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

    /// Writes in one transaction that does not wait for the disk (see `no_sync`).
    pub(super) async fn write_relaxed<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, SqlFailure> + Send + 'static,
    {
        let checked = self.checked();
        self.call(move |conn| {
            checked()?;
            transact(&mut *no_sync::Relaxed::new(conn)?, "", "", work)
        })
        .await
    }
}

pub(super) fn transact<T>(
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
    let mut next = VecDeque::new();
    while let Some(job) = next.pop_front().or_else(|| queue.recv().ok()) {
        match job {
            StoreRequest::Grouped(first, beside) => {
                let rest = group_commit::execute_group(&mut connection, first, &beside, queue);
                next.extend(rest);
            }
            StoreRequest::Work(work) | StoreRequest::Read(work) => {
                // A panic in one request (a caller's predicate, say) must not take the store away from all others.
                // Its transaction was rolled back while the stack unwound, and its caller reads `Closed`.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut connection)));
                if done.is_err() {
                    tracing::error!("a request to the store panicked");
                }
            }
            StoreRequest::Close { reply, keep_short_log } => {
                close(connection, file, keep_short_log);
                let _ = reply.send(());
                return;
            }
        }
    }
    close(connection, file, false);
}

/// Closes the connection. A short log is kept if that is wanted; else the last one who closes folds the log into the
/// file and removes it.
fn close(connection: Connection, file: Option<&Path>, keep_short_log: bool) {
    let is_kept = keep_short_log && is_short(&connection) && {
        let kept = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        kept.inspect_err(|error| tracing::warn!("the log of the store cannot be kept: {error}")).is_ok()
    };
    match file {
        Some(file) if is_kept => log_mark::note(&connection, file),
        Some(file) => log_mark::lift(file),
        None => {}
    }
    if let Err((_, error)) = connection.close() {
        tracing::warn!("the store was not closed cleanly: {error}");
    }
}
