//! What is asked of a store, and parts of threads.

use std::collections::BTreeMap;

use crate::contract::audit::AuditKind;
use crate::contract::ids::{RunId, ThreadId};
use crate::contract::message::Message;
use crate::contract::outline::Outline;
use crate::contract::record::SuspensionStatus;

/// How long a lease holds, in milliseconds of the boot's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Now.
    pub now: u64,
    /// Until when; `None` is as long as its process lives.
    pub until: Option<u64>,
}

impl Term {
    /// As long as its process lives.
    pub const ENDLESS: Term = Term { now: 0, until: None };
}

/// Which questions to list; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspensionFilter {
    /// Of this thread.
    pub thread: Option<ThreadId>,
    /// Of this run.
    pub run: Option<RunId>,
    /// That stand there.
    pub status: Option<SuspensionStatus>,
}

/// The end of a thread, and what of the rest belongs to each request.
#[derive(Clone, Debug, Default)]
pub struct ThreadTail {
    /// What the whole thread amounts to.
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

/// How much of a thread is read, from its end towards its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Nothing before this place.
    pub floor: usize,
    /// It is enough when the messages have so many bytes as they are stored.
    pub bytes: usize,
    /// And are at least so many.
    pub count: usize,
}

/// Which rows to list; what is `None` or empty does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Written at this time or later, in Unix milliseconds.
    pub since: Option<u64>,
    /// Of this thread.
    pub thread: Option<ThreadId>,
    /// Of these kinds.
    pub kinds: Vec<AuditKind>,
}
