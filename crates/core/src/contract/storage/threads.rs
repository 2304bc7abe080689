//! Conversations: their messages, summaries, state and images.

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use serde_json::Value;

use super::{Portion, Slice, StoreError, ThreadTail};
use crate::contract::ids::{RunId, ThreadId};
use crate::contract::image::ImageRef;
use crate::contract::message::Message;
use crate::contract::prefix::PrefixRecord;
use crate::contract::record::{NamedBy, StoredMessage, ThreadRecord, ThreadSummary};
use crate::contract::summary::{RequestStart, SummaryRecord};

/// Keeps conversations. Messages are only appended, by [`ThreadRunStore::checkpoint`](super::ThreadRunStore::checkpoint);
/// their places count up from 1 without a gap.
///
/// A method that is about a part of a thread should read that part only, so none of them has a body here.
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is missing or unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait ThreadStore: Send + Sync {
    /// Adds a thread that does not exist yet. One that exists and has no title gets this one; nothing else changes.
    async fn ensure_thread(&self, thread: ThreadRecord) -> Result<(), StoreError>;

    /// The thread, when it exists.
    async fn load_thread(&self, id: &ThreadId) -> Result<Option<ThreadRecord>, StoreError>;

    /// Threads, pinned ones first, then newest change first. Those of children are left out: their questions
    /// count for the one at the top.
    async fn summaries(&self, slice: Slice) -> Result<Vec<ThreadSummary>, StoreError>;

    /// Names a thread. A model's title is used only if nothing else named the thread; `false` means that it
    /// was not used.
    ///
    /// # Errors
    /// [`StoreError::NoThread`].
    async fn rename_thread(&self, thread: &ThreadId, title: &str, by: NamedBy) -> Result<bool, StoreError>;

    /// All messages of a thread, in order; none for a thread that does not exist.
    async fn load_messages(&self, id: &ThreadId) -> Result<Vec<StoredMessage>, StoreError>;

    /// The thread-scoped state by key.
    async fn thread_state(&self, id: &ThreadId) -> Result<BTreeMap<String, Value>, StoreError>;

    /// Stores a summary. Returns `false`, and writes nothing, if an existing summary reaches as far or
    /// farther.
    ///
    /// # Errors
    /// [`StoreError::NoThread`]; [`StoreError::Damaged`] if the last summarised message is not at the
    /// position that the summary names.
    async fn add_summary(&self, summary: SummaryRecord) -> Result<bool, StoreError>;

    /// The summary of a thread that reaches farthest, when it reaches beyond a place.
    async fn summary(&self, thread: &ThreadId, beyond: u64) -> Result<Option<SummaryRecord>, StoreError>;

    /// The start of a thread's requests that was frozen last. A store that keeps none costs a cached start whenever another
    /// process continues a conversation.
    async fn prefix(&self, thread: &ThreadId) -> Result<Option<PrefixRecord>, StoreError> {
        let _ = thread;
        Ok(None)
    }

    /// All starts of a thread's requests, oldest first. A store that keeps only the newest one lets only the requests since
    /// then be replayed.
    async fn request_starts(&self, thread: &ThreadId) -> Result<Vec<RequestStart>, StoreError> {
        let Some(prefix) = self.prefix(thread).await? else { return Ok(Vec::new()) };
        let summary =
            self.summary(thread, 0).await?.filter(|summary| summary.upto_seq == prefix.summary_upto);
        Ok(vec![RequestStart { prefix, summary }])
    }

    /// Keeps the bytes of an image.
    async fn put_image(&self, image: &ImageRef, bytes: Vec<u8>, now_ms: u64) -> Result<(), StoreError>;

    /// The bytes of an image, when they are known.
    async fn image(&self, hash: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// The number of messages of a thread.
    async fn message_count(&self, id: &ThreadId) -> Result<u64, StoreError>;

    /// The number of messages of a thread, and the last `n` of them, in order.
    async fn messages_tail(&self, id: &ThreadId, n: usize) -> Result<(u64, Vec<StoredMessage>), StoreError>;

    /// A part of the messages of a thread, in order.
    async fn messages_page(&self, id: &ThreadId, slice: Slice) -> Result<Vec<StoredMessage>, StoreError>;

    /// Returns the number of messages of a thread, and the messages of a run, in order. The messages of a run
    /// are consecutive.
    async fn messages_of_run(
        &self,
        id: &ThreadId,
        run: &RunId,
    ) -> Result<(u64, Vec<StoredMessage>), StoreError>;

    /// The end of a thread. A summary bounds it further: the messages that it replaces are not read, except the last
    /// of them. A thread that does not exist is empty.
    async fn thread_tail(&self, thread: &ThreadId, portion: Portion) -> Result<ThreadTail, StoreError>;

    /// The messages before a place, from 0, in order.
    async fn messages_back(
        &self,
        thread: &ThreadId,
        before: usize,
        portion: Portion,
    ) -> Result<Vec<Message>, StoreError>;

    /// Returns the messages from a position on, counted from 0, in order, until they have this many bytes as
    /// JSON.
    async fn messages_from(
        &self,
        thread: &ThreadId,
        from: usize,
        bytes: usize,
    ) -> Result<Vec<Message>, StoreError>;

    /// The last message that the model wrote: of a run, or of the whole thread.
    async fn last_answer(
        &self,
        thread: &ThreadId,
        run: Option<&RunId>,
    ) -> Result<Option<Message>, StoreError>;

    /// Returns which of these ids are already used by calls of a thread.
    async fn used_call_ids(&self, thread: &ThreadId, ids: Vec<String>)
    -> Result<HashSet<String>, StoreError>;

    /// Brings what the store knows of all messages of a thread up to date, when [`ThreadTail::is_assumed`] says that it
    /// is not.
    async fn complete_outline(&self, _thread: &ThreadId) -> Result<(), StoreError> {
        Ok(())
    }
}
