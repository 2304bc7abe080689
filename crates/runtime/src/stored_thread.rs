//! The stored state of a thread, loaded before a driver starts.

use std::collections::BTreeMap;

use serde_json::Value;

use super::windows::LoadedMessages;
use aye_core::context::{History, Sizes};
use aye_core::contract::child::ChildRecord;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::record::RunRecord;
use aye_core::contract::storage::{Portion, StoreError, ThreadRunStore, ThreadTail};
use aye_core::contract::summary::SummaryRecord;

/// Maximum bytes of messages to read before it is known how many a request takes.
const BYTES: usize = 64 << 10;
/// The same in messages.
const COUNT: usize = 24;

/// A start that cannot be read costs a cached one.
fn no_prefix(thread: &ThreadId, error: &StoreError) -> Option<PrefixRecord> {
    tracing::error!(%thread, %error, "the start of the requests is made anew");
    None
}

pub(super) struct StoredThread {
    run: Option<RunRecord>,
    pub(super) state: BTreeMap<String, Value>,
    /// Its end: a driver loads more when a request has room for more.
    pub(super) history: History,
    /// The sizes of its messages, as far as they have been measured.
    pub(super) sizes: Sizes,
    /// Whether the outline is unknown for messages that are not loaded.
    pub(super) is_assumed: bool,
    /// The call that the conversation serves, if it belongs to a child.
    pub(super) lineage: Option<ChildRecord>,
    pub(super) summary: Option<SummaryRecord>,
    /// The start of its requests.
    pub(super) prefix: Option<PrefixRecord>,
}

impl StoredThread {
    /// Reads a thread. `cut`: where requests of the conversation are cut. `kept`: what an earlier run loaded,
    /// of which only the last message is read again. All requests are made when the future is first polled,
    /// so that the store's thread answers one after the other without being woken for each.
    pub(super) async fn read(
        store: &dyn ThreadRunStore,
        thread: &ThreadId,
        cut: usize,
        kept: Option<LoadedMessages>,
    ) -> Result<StoredThread, StoreError> {
        let whole = Portion { floor: cut, bytes: BYTES, count: COUNT };
        let known = kept.as_ref().map_or(0, |kept| kept.history.end().saturating_sub(1));
        let portion = Portion { floor: cut.max(known), ..whole };
        let (run, state, tail, lineage, summary, prefix) = tokio::try_join!(
            store.latest_run(thread),
            store.thread_state(thread),
            store.thread_tail(thread, portion),
            store.child(thread),
            store.summary(thread, 0),
            async { Ok(store.prefix(thread).await.unwrap_or_else(|error| no_prefix(thread, &error))) },
        )?;
        let part = |tail: ThreadTail| History::part(tail.outline, tail.base, tail.messages, tail.apart);
        let mut is_assumed = tail.is_assumed;
        let (history, sizes) = match kept {
            None => (part(tail), Sizes::default()),
            Some(kept) => {
                // An outline that is made from what is loaded needs more than the last message.
                let history = if is_assumed { None } else { kept.history.extended_by(part(tail)) };
                if let Some(history) = history {
                    (history, kept.sizes)
                } else {
                    let tail = store.thread_tail(thread, whole).await?;
                    is_assumed = tail.is_assumed;
                    (part(tail), Sizes::default())
                }
            }
        };
        Ok(StoredThread { run, state, history, sizes, is_assumed, lineage, summary, prefix })
    }

    /// The newest run, over or not.
    pub(super) fn newest_run(&self) -> Option<&RunRecord> {
        self.run.as_ref()
    }

    /// Takes out the newest run when it is not over.
    pub(super) fn take_unfinished(&mut self) -> Option<RunRecord> {
        self.run.take_if(|run| run.status != RunStatus::Done)
    }
}
