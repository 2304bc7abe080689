//! The queue as a worker sees it.

use crate::contract::ids::{JobId, ThreadId};
use crate::contract::mailbox::{MailboxJob, MailboxJobStatus};

/// A filter for listing jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Of this mailbox only.
    pub mailbox: Option<ThreadId>,
    /// Only jobs in these states; empty for any state.
    pub statuses: Vec<MailboxJobStatus>,
    /// Maximum jobs to list.
    pub limit: Option<usize>,
}

/// The result of looking up a job by its number or an id prefix.
#[derive(Clone, Debug, PartialEq)]
pub enum JobLookup {
    /// Exactly this one.
    One(Box<MailboxJob>),
    /// Nothing.
    None,
    /// Several ids.
    Many(Vec<JobId>),
}
