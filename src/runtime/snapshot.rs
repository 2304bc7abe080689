//! The files as they are before a step changes them: taken before the first call of a step that may, and written down
//! with its intent.

use super::driver::Driver;
use super::git::head_of;
use crate::contract::ids::CallId;
use crate::contract::judgement::Risk;
use crate::contract::snapshot::SnapshotRecord;
use crate::contract::tool::ToolClass;

impl Driver {
    /// Somebody is asked, and has to read first: time to look at the files that the call may change.
    pub(super) fn prepare_snapshot(&self) {
        if let Some(snapshots) = &self.shared.snapshots {
            snapshots.prepare();
        }
    }

    /// The snapshot that goes with the intent of a call, when the call is the first of its step that may change files.
    /// What the tool says of itself and what the rules made of the call tell whether it may.
    pub(super) async fn snapshot_before(&mut self, id: &CallId, class: ToolClass) -> Option<SnapshotRecord> {
        let snapshots = self.shared.snapshots.clone()?;
        let only_reads = class == ToolClass::Pure
            || self
                .unsaved
                .judged
                .iter()
                .rfind(|judged| judged.call_id == *id)
                .is_some_and(|judged| judged.judgement.risk == Risk::Reads);
        let step = self.machine.steps();
        if only_reads || self.snapped == Some(step) {
            return None;
        }
        self.snapped = Some(step);
        let root = snapshots.root();
        let taken = snapshots.take(&self.slot.cancel).await;
        if taken.tree.is_none() {
            tracing::info!(run = %self.record.id, why = taken.note, "no snapshot before this step");
        }
        Some(SnapshotRecord {
            thread_id: self.record.thread_id.clone(),
            run_id: self.record.id.clone(),
            seq: self.history.len() as u64,
            head: head_of(&root),
            root,
            tree: taken.tree,
            note: taken.note,
            created_at: self.shared.clock.now_ms(),
        })
    }
}
