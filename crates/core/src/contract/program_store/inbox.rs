//! The pending questions of all threads.

use crate::contract::ids::ThreadId;
use crate::contract::record::SuspensionRecord;

/// A filter for listing questions; a field that is `None` does not restrict the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxFilter {
    /// Of this thread.
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
    /// Exactly this one.
    One(Box<SuspensionRecord>),
    /// Nothing.
    None,
    /// Several, open ones first, then oldest first, at most 20.
    Many(Vec<SuspensionRecord>),
}
