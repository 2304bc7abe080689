//! Snapshots of files before a step changes them: taken before the calls of a step that may change files, and stored
//! with their intents.

use std::path::PathBuf;

use super::driver::Driver;
use super::git::head_of;
use super::parts::StepSnapshot;
use aye_core::contract::ids::CallId;
use aye_core::contract::judgement::Risk;
use aye_core::contract::snapshot::SnapshotRecord;
use aye_core::contract::tool::{FilePreview, ToolClass};

impl Driver {
    /// Prepares a snapshot while a user reads a question: there is time to read the files that the call may
    /// change.
    pub(super) fn prepare_snapshot(&self) {
        if let Some(snapshots) = &self.shared.snapshots {
            snapshots.prepare();
        }
    }

    /// Takes the snapshot that is stored with the intent of a call, if the call may change files that were
    /// not kept in its step. The tool's class and the verdict of the rules determine whether it may.
    ///
    /// If a call declares the files that it changes, only those are kept; what a command will change is
    /// unknown in advance.
    pub(super) async fn snapshot_before(
        &mut self,
        id: &CallId,
        class: ToolClass,
        files: &[FilePreview],
    ) -> Option<SnapshotRecord> {
        let snapshots = self.shared.snapshots.clone()?;
        let only_reads = class == ToolClass::Pure
            || self
                .unsaved
                .judged
                .iter()
                .rfind(|judged| judged.call_id == *id)
                .is_some_and(|judged| judged.judgement.risk == Risk::Reads);
        let step = self.machine.steps();
        if self.snapped.step != Some(step) {
            self.snapped = StepSnapshot { step: Some(step), ..StepSnapshot::default() };
        }
        if only_reads || self.snapped.is_all {
            return None;
        }
        let root = snapshots.root();
        let taken = if class == ToolClass::Verifiable && !files.is_empty() {
            let new = files.iter().map(|file| &file.path).filter(|path| !self.snapped.files.contains(*path));
            let new: Vec<PathBuf> = new.cloned().collect();
            self.snapped.files.extend(new.iter().cloned());
            snapshots.take_files(new).await?
        } else {
            self.snapped.is_all = true;
            snapshots.take(&self.slot.handle.cancel).await
        };
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
