//! Folders that moved.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use crate::contract::storage::StoreError;

/// Keeps the first commits of the repositories of folders, by which a folder is found again that was moved.
#[async_trait]
pub trait FolderStore: Send + Sync {
    /// Whether the first commit of a folder's repository is known.
    async fn knows_folder(&self, cwd: &Path) -> Result<bool, StoreError>;

    /// Notes the first commit of a folder's repository, and where below its root the folder is. It need not wait for the
    /// disk.
    async fn note_folder(&self, cwd: &Path, first_commit: &str, below: &Path) -> Result<(), StoreError>;

    /// The folders at this place of a repository with this first commit that have conversations, the latest first.
    async fn folders_of(&self, first_commit: &str, below: &Path) -> Result<Vec<PathBuf>, StoreError>;

    /// Gives the conversations of a folder to another one. Returns their number.
    async fn move_folder(&self, from: &Path, to: &Path) -> Result<u64, StoreError>;
}
