//! Queries to a store, and parts of threads.

use std::collections::BTreeMap;

use crate::contract::audit::AuditKind;
use crate::contract::ids::{RunId, ThreadId};
use crate::contract::message::Message;
use crate::contract::outline::Outline;
use crate::contract::record::SuspensionStatus;

/// A part of a list: what to leave out first, and how many to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Entries to leave out.
    pub offset: usize,
    /// Maximum number of entries.
    pub limit: usize,
}

impl Slice {
    /// Returns this part of a list.
    pub fn of<T>(self, list: impl IntoIterator<Item = T>) -> Vec<T> {
        list.into_iter().skip(self.offset).take(self.limit).collect()
    }
}

/// A filter for listing questions; a field that is `None` does not restrict the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspensionFilter {
    pub thread: Option<ThreadId>,
    pub run: Option<RunId>,
    pub status: Option<SuspensionStatus>,
}

/// The end of a thread, and what of the rest belongs to each request.
#[derive(Clone, Debug, Default)]
pub struct ThreadTail {
    /// The outline of the whole thread.
    pub outline: Outline,
    /// The outline is made from what is loaded, because it is not known of all: see `complete_outline`.
    pub is_assumed: bool,
    /// The place of the first message, from 0.
    pub base: usize,
    /// The messages from there on.
    pub messages: Vec<Message>,
    /// Messages before that which the outline needs, by their places.
    pub apart: BTreeMap<usize, Message>,
}

/// The portion of a thread to read, from its end towards its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Nothing before this place.
    pub floor: usize,
    /// The number of bytes, as stored, after which the messages are enough.
    pub bytes: usize,
    /// The minimum number of messages, however many bytes they have.
    pub count: usize,
}

/// A filter for listing rows; a field that is `None` or empty does not restrict the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Written at this time or later, in Unix milliseconds.
    pub since: Option<u64>,
    pub thread: Option<ThreadId>,
    pub kinds: Vec<AuditKind>,
}
