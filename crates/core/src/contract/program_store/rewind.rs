//! Rewinding a conversation.

use async_trait::async_trait;

use crate::contract::ids::ThreadId;
use crate::contract::record::ThreadRecord;
use crate::contract::snapshot::{SnapshotRecord, WentBackRecord};
use crate::contract::storage::StoreError;

/// A copy of the first messages of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkAt {
    pub from: ThreadId,
    /// The number of its messages that the copy has.
    pub keep: u64,
    /// The copy: its title, when empty, is the thread's.
    pub copy: ThreadRecord,
    /// The thread is left for the copy.
    pub is_rewind: bool,
}

/// Keeps what a rewind needs. No message is ever deleted: a rewind continues with a fork of the conversation.
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait RewindStore: Send + Sync {
    /// The snapshots of a thread, oldest first.
    async fn snapshots(&self, thread: &ThreadId) -> Result<Vec<SnapshotRecord>, StoreError>;

    /// The files as they were when the thread had `keep` messages: the first snapshot after these, merged with later ones
    /// up to the first that covers all files; `None` if no step since then may have changed a file.
    async fn snapshot_behind(
        &self,
        thread: &ThreadId,
        keep: u64,
    ) -> Result<Option<SnapshotRecord>, StoreError>;

    /// Creates a thread from the first messages of another one, and stores what is needed to undo this. The number in
    /// `went` is assigned here and returned.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], [`StoreError::Exists`]; [`StoreError::Damaged`] when the copied part has a call without a
    /// result, which no model accepts.
    async fn go_back(
        &self,
        fork: Option<ForkAt>,
        went: Option<WentBackRecord>,
    ) -> Result<Option<u64>, StoreError>;

    /// The last rewind that led to this thread, or in it.
    async fn last_went_back(&self, thread: &ThreadId) -> Result<Option<WentBackRecord>, StoreError>;

    /// Says for which thread another one was left; `None`: it continues.
    async fn set_left(&self, thread: &ThreadId, to: Option<&ThreadId>) -> Result<(), StoreError>;
}
