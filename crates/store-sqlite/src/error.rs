//! Errors of SQLite and of opening a store, worded for users.

use std::path::PathBuf;

use rusqlite::ErrorCode;

use aye_core::contract::foreign::ForeignError;
use aye_core::contract::ids::InvalidId;
use aye_core::contract::storage::{StoreError, holder};

/// A [`StoreError`] inside this crate, where `?` makes one of what SQLite says.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct SqlFailure(#[from] pub(crate) StoreError);

impl From<SqlFailure> for StoreError {
    fn from(SqlFailure(error): SqlFailure) -> Self {
        error
    }
}

impl From<InvalidId> for SqlFailure {
    fn from(error: InvalidId) -> Self {
        Self(error.into())
    }
}

impl From<rusqlite::Error> for SqlFailure {
    fn from(error: rusqlite::Error) -> Self {
        let Some(code) = error.sqlite_error_code() else { return Self(StoreError::Database(error.into())) };
        Self(match code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy { pid: None },
            ErrorCode::DiskFull => StoreError::Full,
            ErrorCode::SystemIoFailure if is_no_space(&error) => StoreError::Full,
            ErrorCode::ReadOnly => StoreError::ReadOnly,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt(text_of(&error)),
            _ => StoreError::Database(error.into()),
        })
    }
}

/// The shared-memory file cannot grow: SQLite calls a full disk an I/O error there.
pub(super) fn is_no_space(error: &rusqlite::Error) -> bool {
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
        "the store {} was written by a newer aye (format {found}; this version supports {ours}); update aye",
        path.display()
    )]
    NewerVersion {
        path: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        ours: i64,
    },
    /// The file is not a store of aye.
    #[error("{} is not a store of aye: {why}", path.display())]
    NotOurs {
        path: PathBuf,
        /// The reason why it is not.
        why: String,
    },
    /// A directory, a link, a pipe.
    #[error("{} is {what}; the store must be a plain file", path.display())]
    NotAFile {
        path: PathBuf,
        /// The kind of file that was found.
        what: &'static str,
    },
    /// The file, its folder or the whole file system cannot be written to.
    #[error("{} is read-only; make it writable, or use --ephemeral, which needs no store", path.display())]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// Another process has locked the store.
    #[error("the store {} was locked by {} for longer than {waited_ms} ms", path.display(), holder(*pid))]
    Locked {
        path: PathBuf,
        /// The number of that process, where the system reports it.
        pid: Option<u32>,
        /// Time spent waiting for the lock, in milliseconds.
        waited_ms: u64,
    },
    /// The store's write-ahead log was deleted. This is reported once.
    #[error(
        "the log of the store {} {what}; the latest writes are lost; run the command again to continue with \
         the earlier data, or restore a backup with `aye store restore FILE`",
        path.display()
    )]
    LogLost {
        path: PathBuf,
        /// What happened to the log.
        what: String,
    },
    /// The write-ahead log beside the store is another store's: SQLite would copy its pages into this one.
    #[error(
        "the log {0}-wal belongs to another store; nothing changed; put this store's own log in its place, or move \
         {0}-wal to another folder to continue without the latest writes, or restore a backup with `aye store restore FILE`",
        path.display()
    )]
    ForeignLog { path: PathBuf },
    #[error("the store {} is damaged: {why}", path.display())]
    Corrupt {
        path: PathBuf,
        /// What is wrong with the file.
        why: String,
    },
    #[error("the disk is full; the store {} cannot be opened", path.display())]
    Full { path: PathBuf },
    /// The store would be on a network file system.
    #[error(
        "the store {} is on a network file system ({kind}), which would damage it; set AYE_HOME or XDG_DATA_HOME to a \
         folder on a local disk (and move aye.db and aye.db-wal there while no aye runs), or use --ephemeral, which needs \
         no store",
        path.display()
    )]
    NetworkFileSystem {
        path: PathBuf,
        /// The kind of file system.
        kind: String,
    },
    /// A setting that the promises rest on was not taken.
    #[error("the store {} is not safe here: {setting} is {found} instead of {wanted}", path.display())]
    Setting { path: PathBuf, setting: &'static str, found: String, wanted: &'static str },
    /// A migration failed; the store is as it was.
    #[error("the store {} could not be upgraded from format {from} to {to}", path.display())]
    Migration {
        path: PathBuf,
        /// Its format.
        from: i64,
        /// The one that failed.
        to: i64,
        #[source]
        source: rusqlite::Error,
    },
    /// The disk or SQLite said something else.
    #[error("the store {} cannot be opened: {source}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: ForeignError,
    },
}

/// The kind of an [`OpenError`]: the caller derives an exit status and a hint from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// A newer program wrote it: update aye, or name another store.
    NewerVersion,
    /// The file is not a store of aye.
    NotOurs,
    /// A directory, a link, a pipe.
    NotAFile,
    /// Cannot be written to: a run without a store is possible.
    ReadOnly,
    /// Another process has locked the store.
    Locked,
    Corrupt,
    Full,
    Io,
}

impl OpenError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> OpenErrorKind {
        match self {
            Self::NewerVersion { .. } => OpenErrorKind::NewerVersion,
            Self::NotOurs { .. } => OpenErrorKind::NotOurs,
            Self::NotAFile { .. } => OpenErrorKind::NotAFile,
            Self::ReadOnly { .. } => OpenErrorKind::ReadOnly,
            Self::Locked { .. } => OpenErrorKind::Locked,
            Self::Corrupt { .. } | Self::LogLost { .. } | Self::ForeignLog { .. } => OpenErrorKind::Corrupt,
            Self::Full { .. } => OpenErrorKind::Full,
            Self::NetworkFileSystem { .. }
            | Self::Setting { .. }
            | Self::Migration { .. }
            | Self::Io { .. } => OpenErrorKind::Io,
        }
    }
}
