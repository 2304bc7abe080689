//! The pending questions of all threads.

use async_trait::async_trait;

use crate::contract::ids::{SuspensionId, ThreadId};
use crate::contract::record::{InboxRow, SuspensionRecord};
use crate::contract::storage::StoreError;

/// A filter for listing questions; a field that is `None` does not restrict the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxFilter {
    pub thread: Option<ThreadId>,
    /// About this tool, in letters of any case.
    pub tool: Option<String>,
    /// Asked before this time, in Unix milliseconds.
    pub asked_before: Option<u64>,
    /// Only questions that have not expired at this time, in Unix milliseconds.
    pub valid_at: Option<u64>,
    /// Leaves out this many of them first.
    pub offset: usize,
    /// At most this many.
    pub limit: Option<usize>,
}

/// The result of looking up a suspension by an id prefix.
#[derive(Clone, Debug, PartialEq)]
pub enum SuspensionLookup {
    One(Box<SuspensionRecord>),
    None,
    /// Several, open ones first, then oldest first, at most 20.
    Many(Vec<SuspensionRecord>),
}

/// Lists questions for users.
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait InboxStore: Send + Sync {
    /// The open questions that the filter leaves, oldest first. A row that cannot be read is left out and logged.
    async fn inbox(&self, filter: InboxFilter) -> Result<Vec<InboxRow>, StoreError>;

    /// The number of pending questions of all threads except the named one and its children. An expired question is not
    /// counted, even if it has not been marked as expired yet.
    async fn waiting_count(&self, except: Option<&ThreadId>, now_ms: u64) -> Result<u64, StoreError>;

    /// For each id, the shortest prefix of at least `least` bytes that identifies it in
    /// [`InboxStore::find_suspension`], or the whole id if no shorter prefix does.
    async fn short_ids(&self, ids: Vec<SuspensionId>, least: usize) -> Result<Vec<String>, StoreError>;

    /// The question whose id starts with `prefix`. A whole id always matches exactly one; an empty prefix matches none.
    ///
    /// Closed questions count too: a prefix that once identified one question must never come to identify another, which
    /// a user would then answer unseen.
    async fn find_suspension(&self, prefix: &str) -> Result<SuspensionLookup, StoreError>;
}
