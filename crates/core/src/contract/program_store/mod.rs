//! What a program keeps in its store besides what a runtime needs: traits by what they keep, and the rows and filters of
//! their methods. The promises are those of [`storage`](super::storage).

mod audit;
mod config;
mod folders;
mod inbox;
mod outbox;
mod prompts;
mod push;
mod rewind;
mod rows;
mod statistics;
mod threads;
mod transfer;
mod transfer_file;
mod upkeep;
mod work;

use std::sync::Arc;

use super::storage::ThreadRunStore;

pub use audit::{AuditReader, AuditVerifier, RecentCall, verify_sealed};
pub use config::ConfigStore;
pub use folders::FolderStore;
pub use inbox::{InboxFilter, InboxStore, SuspensionLookup};
pub use outbox::{OutboxOutcome, OutboxRow, OutboxStatus, OutboxStore};
pub use prompts::PromptStore;
pub use push::{PushStore, PushTarget, PushTargetsOf, push_key};
pub use rewind::{ForkAt, RewindStore};
pub use rows::{RowFeed, RowReader};
pub use statistics::StatisticsStore;
pub use threads::{Match, MessageSelection, TaskListStore, ThreadListStore, ThreadLookup, ThreadView};
pub use transfer::{CopyPart, ExportPart, ThreadCopy, ThreadExport, ThreadRest, TransferStore};
pub use transfer_file::ThreadCopyFile;
pub use upkeep::{PrunePlace, Pruned, UpkeepStore};
pub use work::{JobFilter, JobLookup, NoWork, WorkClaim, WorkStore};

/// The store of a program: everything that a runtime needs, and what front ends and commands keep and read.
pub trait ProgramStore:
    ThreadRunStore
    + AuditReader
    + AuditVerifier
    + ConfigStore
    + FolderStore
    + InboxStore
    + OutboxStore
    + PromptStore
    + PushStore
    + RewindStore
    + StatisticsStore
    + TaskListStore
    + ThreadListStore
    + TransferStore
    + UpkeepStore
    + WorkStore
{
}

impl<T> ProgramStore for T where
    T: ThreadRunStore
        + AuditReader
        + AuditVerifier
        + ConfigStore
        + FolderStore
        + InboxStore
        + OutboxStore
        + PromptStore
        + PushStore
        + RewindStore
        + StatisticsStore
        + TaskListStore
        + ThreadListStore
        + TransferStore
        + UpkeepStore
        + WorkStore
{
}

/// The store of a program as its parts share it.
pub type SharedStore = Arc<dyn ProgramStore>;
