//! Errors of storing values, for any store.

/// Why something was not read or written; nothing of the request was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// It is not there.
    #[error("not found: {0}")]
    NotFound(String),
    /// It is there already.
    #[error("{0} already exists")]
    AlreadyExists(String),
    /// Somebody else wrote in between.
    #[error("changed meanwhile: expected version {expected}, found {actual}")]
    VersionConflict {
        /// The version that the writer had seen; 0 is "not there".
        expected: u64,
        /// The version that is there; 0 is "not there".
        actual: u64,
    },
    /// The disk, the database or the network.
    #[error("{0}")]
    Io(String),
    /// A value does not fit its type, or cannot be kept.
    #[error("{0}")]
    Serialization(String),
}
