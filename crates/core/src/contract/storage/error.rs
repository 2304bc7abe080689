//! Errors of stores, worded for users.

use std::path::PathBuf;

use crate::contract::error_code::ErrorCode;
use crate::contract::foreign::ForeignError;
use crate::contract::ids::{InvalidId, JobId, RunId, SuspensionId, ThreadId};
use crate::contract::record::{AttemptId, Owner, SuspensionStatus};

/// Why something was not read or written; nothing of the request was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// It is not there.
    #[error("not found: {0}")]
    NotFound(String),
    /// The item already exists.
    #[error("{0} already exists")]
    AlreadyExists(String),
    /// Another writer wrote in between.
    #[error("changed meanwhile: expected version {expected}, found {actual}")]
    VersionConflict {
        /// The version that the writer had seen; 0 is "not there".
        expected: u64,
        /// The current version; 0 means "not found".
        actual: u64,
    },
    /// The disk, the database or the network.
    #[error("{0}")]
    Io(String),
    /// A value does not fit its type, or cannot be kept.
    #[error("{0}")]
    Serialization(String),
}

/// The reason why a request to the store failed. Whatever the reason, nothing of the request was written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process took the thread over; this one must stop driving it.
    #[error("another process took over thread {thread}; nothing was written")]
    Fenced { thread: ThreadId },
    /// The decision that a call wanted to use does not exist, is a cancellation, or was already used.
    #[error("question {suspension} has no unused decision; the call must not start")]
    NotDecided { suspension: SuspensionId },
    /// The same execution was started before.
    #[error(
        "attempt {attempt} of call {call} has already started",
        attempt = id.attempt, call = id.call_id
    )]
    AlreadyStarted { id: AttemptId },
    /// An outcome for an execution that was never started.
    #[error("attempt {attempt} of call {call} was never started", attempt = id.attempt, call = id.call_id)]
    NotStarted { id: AttemptId },
    /// A second outcome.
    #[error("attempt {attempt} of call {call} already has an outcome", attempt = id.attempt, call = id.call_id)]
    AlreadyEnded { id: AttemptId },
    /// A question cannot change to that status from the one it has.
    #[error("question {suspension} is {from:?} and cannot become {to:?}")]
    IllegalMove { suspension: SuspensionId, from: SuspensionStatus, to: SuspensionStatus },
    /// A finished run stays finished.
    #[error("run {run} is done and cannot resume")]
    RunOver { run: RunId },
    /// The thread does not exist.
    #[error("unknown thread {0}")]
    NoThread(ThreadId),
    /// The question does not exist.
    #[error("unknown question {0}")]
    NoSuspension(SuspensionId),
    /// An item with this id already exists, or belongs elsewhere.
    #[error("{what} already exists")]
    Exists {
        /// The item, with its id.
        what: String,
    },
    /// A part of a request names another thread or run than the rest.
    #[error("{what} does not belong to {place}")]
    Misplaced {
        what: String,
        /// The place that the request gave for the item.
        place: String,
    },
    /// A queued message is gone: it was withdrawn, or its run started elsewhere.
    #[error("message {id} is no longer in the queue of thread {thread}")]
    NotQueued { thread: ThreadId, id: u64 },
    /// The job does not exist.
    #[error("unknown job {0}")]
    NoJob(JobId),
    /// Only the worker that claimed a job may report the job's result, and only while the claim lasts.
    #[error("this worker lost its claim on job {0}; nothing was written")]
    NotClaimed(JobId),
    /// The mailbox has an open job with the same key.
    #[error("job {job} of thread {thread} already has the key `{key}`")]
    Duplicate {
        /// The mailbox.
        thread: ThreadId,
        key: String,
        /// The job that has it.
        job: JobId,
    },
    /// A live process drives the thread.
    #[error("thread {thread} is in use by process {pid}", pid = owner.pid)]
    Owned {
        thread: ThreadId,
        /// The owner of the lease.
        owner: Box<Owner>,
    },
    /// Rows of a thread are missing, doubled or unreadable. Other threads are not touched by it.
    #[error("thread {thread} is damaged: {why}")]
    Damaged { thread: ThreadId, why: String },
    /// A value that could be written but never read again.
    #[error("{what} cannot be stored: {why}")]
    Unwritable {
        /// The kind of value.
        what: &'static str,
        why: String,
    },
    /// Another process locked the store for too long.
    #[error("the store is locked by {}; nothing was written", holder(*pid))]
    Busy {
        /// The number of that process, where the system reports it.
        pid: Option<u32>,
    },
    /// The file was deleted or moved, or replaced by another one: anything written to it would be lost.
    #[error(
        "the store {} was deleted, moved or replaced while it was open; nothing was written; start aye again",
        path.display()
    )]
    Gone {
        /// The former path of the file.
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
    Backup { path: PathBuf, why: String },
    #[error("the disk is full; nothing was written")]
    Full,
    /// The file or its folder became read-only.
    #[error("the store cannot be written to; nothing was written")]
    ReadOnly,
    /// The database found broken pages.
    #[error("the store's file is damaged ({0})")]
    Corrupt(String),
    /// The store was closed, or its thread died over this very request.
    #[error("the store is closed")]
    Closed,
    /// Changes by other processes cannot be received.
    #[error("cannot subscribe to changes: {0}")]
    Bell(#[source] std::io::Error),
    /// It cannot be opened.
    #[error("{0}")]
    Unopened(String),
    /// Anything else the database or the disk said.
    #[error("the store failed")]
    Database(#[source] ForeignError),
}

impl StoreError {
    /// Returns the name of the error for programs.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NoThread(_) | Self::NoSuspension(_) | Self::NoJob(_) => ErrorCode::NotFound,
            Self::Duplicate { .. } | Self::Exists { .. } => ErrorCode::Exists,
            Self::Owned { .. } => ErrorCode::Busy,
            Self::Fenced { .. } => ErrorCode::TakenOver,
            Self::NotQueued { .. } => ErrorCode::NotQueued,
            Self::NoMessage => ErrorCode::NoMessage,
            Self::Damaged { .. } | Self::Corrupt(_) => ErrorCode::Damaged,
            Self::ReadOnly => ErrorCode::ReadOnly,
            Self::Full => ErrorCode::DiskFull,
            Self::NotDecided { .. }
            | Self::AlreadyStarted { .. }
            | Self::NotStarted { .. }
            | Self::AlreadyEnded { .. }
            | Self::IllegalMove { .. }
            | Self::RunOver { .. }
            | Self::Misplaced { .. }
            | Self::NotClaimed(_)
            | Self::Unwritable { .. }
            | Self::Busy { .. }
            | Self::Gone { .. }
            | Self::InvalidId(_)
            | Self::Backup { .. }
            | Self::Closed
            | Self::Bell(_)
            | Self::Unopened(_)
            | Self::Database(_) => ErrorCode::Internal,
        }
    }
}

/// Describes the process that has a lock.
pub fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl From<StoreError> for StorageError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unwritable { .. } => Self::Serialization(error.to_string()),
            StoreError::NoThread(_) | StoreError::NoJob(_) => Self::NotFound(error.to_string()),
            StoreError::Exists { what } => Self::AlreadyExists(what),
            StoreError::Duplicate { .. } => Self::AlreadyExists(error.to_string()),
            StoreError::Database(source) => Self::Io(format!("the store failed: {source}")),
            other => Self::Io(other.to_string()),
        }
    }
}

/// Why a thread was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// A live process drives it.
    #[error("the thread is in use by process {pid}", pid = owner.pid)]
    Busy { owner: Owner },
    #[error(transparent)]
    Store(#[from] StoreError),
}
