//! Maintenance of a store.

use async_trait::async_trait;

use crate::contract::ids::ThreadId;
use crate::contract::storage::StoreError;
use crate::contract::suspension::Actor;

/// The position from which pruning continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrunePlace {
    /// The time of the last change of the thread looked at last, in Unix milliseconds.
    pub updated_at: i64,
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

/// Keeps a store sound and small.
#[async_trait]
pub trait UpkeepStore: Send + Sync {
    /// Checks the whole store for damage and returns one line for each problem found. It takes a while.
    async fn check(&self) -> Result<Vec<String>, StoreError>;

    /// Deletes some of the threads that were changed before a time, oldest first, as
    /// [`delete_thread`](crate::contract::storage::ThreadRunStore::delete_thread) does. Those that are pinned stay, and
    /// those in which something waits, is queued or runs, also in a child below them.
    async fn prune(
        &self,
        before: Option<u64>,
        from: PrunePlace,
        actor: Actor,
        now_ms: u64,
    ) -> Result<Pruned, StoreError>;

    /// The bytes that hold something.
    async fn used_bytes(&self) -> Result<u64, StoreError>;

    /// Returns the space of deleted data; a step that takes long is left out unless `with_rebuild`. Returns `false` if
    /// another process keeps deleted data from being removed until it ends.
    async fn shrink(&self, with_rebuild: bool) -> Result<bool, StoreError>;

    /// Does in advance what a first message would wait for. Failing to do so is not an error.
    async fn warm(&self);

    /// Closes the store for all its handles, after the requests that were sent before, and puts off what the next start
    /// can do: for a program that a user is waiting for.
    async fn leave(&self);

    /// Whether another handle receives what is committed through this one, as far as can be determined.
    fn has_listener(&self) -> bool;
}
