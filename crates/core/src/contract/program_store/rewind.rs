//! Rewinding a conversation.

use crate::contract::ids::ThreadId;
use crate::contract::record::ThreadRecord;

/// A copy of the first messages of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkAt {
    /// The thread.
    pub from: ThreadId,
    /// The number of its messages that the copy has.
    pub keep: u64,
    /// The copy: its title, when empty, is the thread's.
    pub copy: ThreadRecord,
    /// The thread is left for the copy.
    pub is_rewind: bool,
}
