//! What the store holds of a conversation that somebody begins to drive.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::contract::child::ChildRecord;
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::RunStatus;
use crate::contract::record::{RunRecord, StoredMessage};
use crate::contract::summary::SummaryRecord;
use crate::store::{Store, StoreError};

/// See the module's text.
pub(super) struct Held {
    run: Option<RunRecord>,
    pub(super) state: BTreeMap<String, Value>,
    pub(super) messages: Vec<StoredMessage>,
    /// What the conversation serves, when it is a child's.
    pub(super) lineage: Option<ChildRecord>,
    pub(super) summary: Option<SummaryRecord>,
}

impl Held {
    /// Reads it. All is asked when this is first polled, so that the store's thread answers one after the other without
    /// being woken for each.
    pub(super) async fn read(store: &Store, thread: &ThreadId) -> Result<Held, StoreError> {
        let (run, state, messages, lineage, summary) = tokio::try_join!(
            store.latest_run(thread),
            store.thread_state(thread),
            store.messages(thread),
            store.child(thread),
            store.summary(thread, 0),
        )?;
        Ok(Held { run, state, messages, lineage, summary })
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
