//! Why a snapshot was not taken, or cannot be read.

use aye_store_sqlite::objects::ObjectError;

/// Why something with snapshots was not done.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The scan was stopped. Its findings are kept, and the next scan continues from there.
    #[error("it was stopped")]
    Stopped,
    /// The folder has too many files or too many bytes: how many are too many.
    #[error("{0}")]
    TooLarge(String),
    /// The folder cannot be read.
    #[error("{0}")]
    Failed(String),
    /// Again and again something was dropped meanwhile.
    #[error("snapshots are being dropped to make room")]
    MakingRoom,
    /// What was read cannot be kept.
    #[error(transparent)]
    NotKept(#[from] ObjectError),
    /// A tree or a file of it is gone or damaged.
    #[error("the snapshot cannot be read: {0}")]
    Unreadable(ObjectError),
    /// No tree can have this name.
    #[error("the snapshot's name is damaged")]
    Name,
}
