//! Maintenance of a store.

use crate::contract::ids::ThreadId;

/// The position from which pruning continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrunePlace {
    /// The time of the last change of the thread looked at last, in Unix milliseconds.
    pub updated_at: i64,
    /// Its number.
    pub n: i64,
}

/// The result of one step of pruning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The threads that were deleted.
    pub threads: Vec<ThreadId>,
    /// The position to continue from; `None` if there are no more threads.
    pub next: Option<PrunePlace>,
}
