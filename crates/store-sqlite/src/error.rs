//! Errors of the store, worded for users.

use std::path::PathBuf;

use rusqlite::ErrorCode;

use aye_core::contract::ids::{InvalidId, JobId, RunId, SuspensionId, ThreadId};
use aye_core::contract::record::{AttemptId, Owner, SuspensionStatus};

/// Why a request to the store was not carried out. Whatever it is: nothing of the request was written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process took the thread over; this one must stop driving it.
    #[error("another process took over thread {thread}; nothing was written")]
    Fenced {
        /// The thread.
        thread: ThreadId,
    },
    /// The decision that a call wanted to spend is not there, says cancel, or is spent.
    #[error("question {suspension} has no unspent decision; the call must not start")]
    NotDecided {
        /// The question.
        suspension: SuspensionId,
    },
    /// The same execution was begun before.
    #[error(
        "attempt {attempt} of call {call} has already started",
        attempt = id.attempt, call = id.call_id
    )]
    AlreadyStarted {
        /// The execution.
        id: AttemptId,
    },
    /// An outcome for an execution that was never begun.
    #[error("attempt {attempt} of call {call} was never started", attempt = id.attempt, call = id.call_id)]
    NotStarted {
        /// The execution.
        id: AttemptId,
    },
    /// A second outcome.
    #[error("attempt {attempt} of call {call} already has an outcome", attempt = id.attempt, call = id.call_id)]
    AlreadyEnded {
        /// The execution.
        id: AttemptId,
    },
    /// A question cannot go where it was told to.
    #[error("question {suspension} is {from:?} and cannot become {to:?}")]
    IllegalMove {
        /// The question.
        suspension: SuspensionId,
        /// Where it stands.
        from: SuspensionStatus,
        /// Where it was to go.
        to: SuspensionStatus,
    },
    /// A finished run stays finished.
    #[error("run {run} is done and cannot resume")]
    RunOver {
        /// The run.
        run: RunId,
    },
    /// There is no such thread.
    #[error("unknown thread {0}")]
    NoThread(ThreadId),
    /// There is no such question.
    #[error("unknown question {0}")]
    NoSuspension(SuspensionId),
    /// Something with this id is there already, or belongs elsewhere.
    #[error("{what} already exists")]
    Exists {
        /// What, with its id.
        what: String,
    },
    /// A part of a request names another thread or run than the rest.
    #[error("{what} does not belong to {place}")]
    Misplaced {
        /// What.
        what: String,
        /// Where it was said to belong.
        place: String,
    },
    /// A queued message is gone: it was taken back, or its run began elsewhere.
    #[error("message {id} is no longer in the queue of thread {thread}")]
    NotQueued {
        /// The thread.
        thread: ThreadId,
        /// The message.
        id: u64,
    },
    /// There is no such job.
    #[error("unknown job {0}")]
    NoJob(JobId),
    /// Only who claimed a job may say what became of it, and only as long as it is claimed.
    #[error("this worker lost its claim on job {0}; nothing was written")]
    NotClaimed(JobId),
    /// The mailbox has an open job with the same key.
    #[error("job {job} of thread {thread} already has the key `{key}`")]
    Duplicate {
        /// The mailbox.
        thread: ThreadId,
        /// The key.
        key: String,
        /// The job that has it.
        job: JobId,
    },
    /// A live process drives the thread.
    #[error("thread {thread} is in use by process {pid}", pid = owner.pid)]
    Owned {
        /// The thread.
        thread: ThreadId,
        /// Who drives it.
        owner: Box<Owner>,
    },
    /// Rows of a thread are missing, doubled or unreadable. Other threads are not touched by it.
    #[error("thread {thread} is damaged: {why}")]
    Damaged {
        /// The thread.
        thread: ThreadId,
        /// What is wrong with it.
        why: String,
    },
    /// A value that could be written but never read again.
    #[error("{what} cannot be stored: {why}")]
    Unwritable {
        /// What.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// Another process held the store for too long.
    #[error("the store is locked by {}; nothing was written", holder(*pid))]
    Busy {
        /// That process, when the system tells.
        pid: Option<u32>,
    },
    /// The file was deleted or moved, or another one has its place: what is written to it is found by nobody.
    #[error(
        "the store {} was deleted, moved or replaced while it was open; nothing was written; start aye again",
        path.display()
    )]
    Gone {
        /// Where it was.
        path: PathBuf,
    },
    /// A name that was given from outside is not one.
    #[error("{0}; nothing was written")]
    InvalidId(#[from] InvalidId),
    /// A job without a message.
    #[error("a job needs a message; nothing was queued")]
    NoMessage,
    /// A backup cannot be written.
    #[error("the backup {} cannot be written: {why}", path.display())]
    Backup {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No space left.
    #[error("the disk is full; nothing was written")]
    Full,
    /// The file or its folder became read-only.
    #[error("the store cannot be written to; nothing was written")]
    ReadOnly,
    /// SQLite found broken pages.
    #[error("the store's file is damaged ({0})")]
    Corrupt(String),
    /// The store was closed, or its thread died over this very request.
    #[error("the store is closed")]
    Closed,
    /// Changes by other processes cannot be heard.
    #[error("cannot subscribe to changes: {0}")]
    Bell(#[source] std::io::Error),
    /// Anything else SQLite or the disk said.
    #[error("the store failed")]
    Sqlite(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let Some(code) = error.sqlite_error_code() else { return Self::Sqlite(error) };
        match code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::Busy { pid: None },
            ErrorCode::DiskFull => Self::Full,
            ErrorCode::SystemIoFailure if is_no_space(&error) => Self::Full,
            ErrorCode::ReadOnly => Self::ReadOnly,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Corrupt(text_of(&error)),
            _ => Self::Sqlite(error),
        }
    }
}

/// Who holds a lock, in words.
fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// The shared-memory file cannot grow: SQLite calls a full disk an I/O error there.
fn is_no_space(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

pub(super) fn text_of(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(text)) => text.clone(),
        other => other.to_string(),
    }
}

/// Why the store could not be opened. Nothing was written to a file that is not ours, or is newer.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A newer program wrote it.
    #[error(
        "the store {} was written by a newer aye (format {found}; this version supports {ours})",
        path.display()
    )]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        ours: i64,
    },
    /// Somebody else's file.
    #[error("{} is not a store of aye: {why}", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// How one can tell.
        why: String,
    },
    /// A directory, a link, a pipe.
    #[error("{} is {what}; the store must be a plain file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file, its folder or the whole file system cannot be written to.
    #[error("{} is read-only; make it writable, or use --ephemeral, which needs no store", path.display())]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// Another process holds it.
    #[error("the store {} was locked by {} for longer than {waited_ms} ms", path.display(), holder(*pid))]
    Locked {
        /// The file.
        path: PathBuf,
        /// That process, when the system tells.
        pid: Option<u32>,
        /// How long it was tried.
        waited_ms: u64,
    },
    /// Its write-ahead log was deleted or replaced. It is said once.
    #[error(
        "the log of the store {} {what}; the latest writes are lost; run the command again to continue with \
         the earlier data, or restore a backup with `aye store restore FILE`",
        path.display()
    )]
    LogLost {
        /// The file.
        path: PathBuf,
        /// What became of the log.
        what: String,
    },
    /// Broken.
    #[error("the store {} is damaged: {why}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No space left.
    #[error("the disk is full; the store {} cannot be opened", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// A setting that the promises rest on was not taken.
    #[error("the store {} is not safe here: {setting} is {found} instead of {wanted}", path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// The setting.
        setting: &'static str,
        /// What it is.
        found: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// A migration failed; the store is as it was.
    #[error("the store {} could not be upgraded from format {from} to {to}", path.display())]
    Migration {
        /// The file.
        path: PathBuf,
        /// Its format.
        from: i64,
        /// The one that failed.
        to: i64,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The disk or SQLite said something else.
    #[error("the store {} cannot be opened", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What kind of refusal an [`OpenError`] is: the edge makes an exit status and a hint of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// A newer program wrote it: update aye, or name another store.
    NewerVersion,
    /// Somebody else's file.
    NotOurs,
    /// A directory, a link, a pipe.
    NotAFile,
    /// Cannot be written to: a run without a store is possible.
    ReadOnly,
    /// Another process holds it.
    Locked,
    /// Broken.
    Corrupt,
    /// No space left.
    Full,
    /// Something else.
    Io,
}

impl OpenError {
    /// What kind of refusal it is.
    pub fn kind(&self) -> OpenErrorKind {
        match self {
            Self::NewerVersion { .. } => OpenErrorKind::NewerVersion,
            Self::NotOurs { .. } => OpenErrorKind::NotOurs,
            Self::NotAFile { .. } => OpenErrorKind::NotAFile,
            Self::ReadOnly { .. } => OpenErrorKind::ReadOnly,
            Self::Locked { .. } => OpenErrorKind::Locked,
            Self::Corrupt { .. } | Self::LogLost { .. } => OpenErrorKind::Corrupt,
            Self::Full { .. } => OpenErrorKind::Full,
            Self::Setting { .. } | Self::Migration { .. } | Self::Io { .. } => OpenErrorKind::Io,
        }
    }
}

/// Why a thread was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// A live process drives it.
    #[error("the thread is in use by process {pid}", pid = owner.pid)]
    Busy {
        /// Who.
        owner: Owner,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
