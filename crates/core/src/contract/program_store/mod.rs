//! What a program keeps in its store besides what a runtime needs ([`ThreadRunStore`](super::storage::ThreadRunStore)).

mod audit;
mod inbox;
mod outbox;
mod push;
mod rewind;
mod threads;
mod transfer;
mod transfer_file;
mod upkeep;
mod work;

pub use audit::RecentCall;
pub use inbox::{InboxFilter, SuspensionLookup};
pub use outbox::{OutboxOutcome, OutboxRow, OutboxStatus};
pub use push::{PushTarget, PushTargetsOf, push_key};
pub use rewind::ForkAt;
pub use threads::{Match, MessageSelection, ThreadLookup, ThreadView};
pub use transfer::{CopyPart, ExportPart, ThreadCopy, ThreadExport, ThreadRest};
pub use transfer_file::ThreadCopyFile;
pub use upkeep::{PrunePlace, Pruned};
pub use work::{JobFilter, JobLookup};
